/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_NIC_STAND_IN_H
#define TEI_FABTESTS_COMMON_NIC_STAND_IN_H

/*
 * NICs that access GPU memory, for tests on hosts without such NICs and GPUs. A
 * test links this file, which intercepts the library's calls of libfabric. It
 * reports FI_HMEM for every provider and accepts registrations of the GPU
 * memory of cuda_stand_in.h. To the provider it passes host addresses at which
 * the same bytes can be accessed. The provider is real and the NIC is not, so a
 * passed test does not prove that real hardware works.
 *
 * The environment variable NIC_HMEM changes the stand-in. With "no-domain" or
 * "no-endpoint", opening a domain or endpoint with FI_HMEM fails. With
 * "mr-endpoint", FI_MR_ENDPOINT is set together with FI_HMEM.
 *
 * A post from GPU memory without the descriptor of its registration reaches the
 * provider unchanged. The provider's CPU copy then faults.
 */

#include <stdbool.h>

#include "fabtests/common/cuda_stand_in.h"

/* Settings and counters of this process. The test may change the settings at
 * any time; all threads count. */
struct nic_stand_in {
	/* The test sets these members: */
	/* the CUDA stand-in; NULL means that FI_HMEM is not reported */
	const struct cuda_stand_in *cuda;
	/* address or provider of a rail whose NIC cannot access GPU memory; if
	 * NULL, the value of the environment variable NIC_WITHOUT, if set */
	const char *without;
	bool no_dmabuf, no_peer; /* true: registrations by dma-buf, or by
				  * address, are refused */

	/* The test reads these members: */
	_Atomic unsigned int dmabufs, peers;	/* numbers of registrations by
						 * dma-buf and by address */
	_Atomic unsigned int refused;
	_Atomic unsigned int posts;		/* number of posts with local
						 * GPU memory */
	/* number of posts refused because the registration was closed */
	_Atomic unsigned int stale;
};
extern struct nic_stand_in nic_stand_in;

/* Returns true if both the headers and the library of libfabric in use have
 * FI_MR_DMABUF. */
bool nic_stand_in_has_dmabuf(void);

#endif /* TEI_FABTESTS_COMMON_NIC_STAND_IN_H */
