/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_NIC_STAND_IN_H
#define TEI_FABTESTS_COMMON_NIC_STAND_IN_H

/*
 * NICs that reach GPU memory, for tests on hosts without such NICs and GPUs. A
 * test links this file, which then stands between the library and libfabric. It
 * reports FI_HMEM for every provider, accepts registrations of the GPU memory
 * of cuda_stand_in.h, and passes the bytes behind that memory to the provider.
 * The provider is real and the NIC is not, so a passed test does not prove that
 * real hardware works.
 *
 * NIC_HMEM in the environment: with "no-domain" or "no-endpoint", opening a
 * domain or endpoint with FI_HMEM fails; with "mr-endpoint", FI_MR_ENDPOINT is
 * set together with FI_HMEM.
 *
 * A post from GPU memory without the descriptor of its registration reaches the
 * provider unchanged. The provider's CPU copy then faults.
 */

#include <stdbool.h>

#include "fabtests/common/cuda_stand_in.h"

/* State of this process. The test may set its fields at any time; any thread
 * counts. */
struct nic_stand_in {
	/* The test sets these members: */
	const struct cuda_stand_in *cuda;	/* NULL means that FI_HMEM is
						 * not reported */
	const char *without;	/* address or provider of a rail whose NIC
				 * reaches no GPU; NULL means the value of the
				 * environment variable NIC_WITHOUT, if it is
				 * set */
	bool no_dmabuf, no_peer; /* refuse registrations by dma-buf, by
				  * address */

	/* The test reads these members: */
	_Atomic unsigned int dmabufs, peers;	/* registrations by dma-buf, by
						 * address */
	_Atomic unsigned int refused;
	_Atomic unsigned int posts;		/* posts with local GPU
						 * memory */
	_Atomic unsigned int stale;		/* posts refused because the
						 * registration was closed */
};
extern struct nic_stand_in nic_stand_in;

/* Returns true if libfabric has FI_MR_DMABUF, both the headers and the library
 * in use. */
bool nic_stand_in_has_dmabuf(void);

#endif /* TEI_FABTESTS_COMMON_NIC_STAND_IN_H */
