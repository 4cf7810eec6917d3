/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_NIC_STAND_IN_H
#define TEI_FABTESTS_COMMON_NIC_STAND_IN_H

/*
 * NICs that reach memory of a GPU, for tests on hosts that have neither: linked
 * into a test, it stands between the library and libfabric, says FI_HMEM for
 * whatever provider there is, takes registrations of the memory of the driver
 * in cuda_stand_in.h, and gives the provider the bytes that are behind it. The
 * provider is a real one, the NIC is not: nothing here is known to work with
 * hardware for that it worked in a test.
 *
 * NIC_HMEM in the environment: "no-domain" or "no-endpoint" is made of what says
 * FI_HMEM; "mr-endpoint" says FI_MR_ENDPOINT with it.
 *
 * A post from such memory without the descriptor of its registration reaches the
 * provider as it is, whose CPU then touches what no CPU can.
 */

#include <stdbool.h>

#include "fabtests/common/cuda_stand_in.h"

/* Of this process, from the start on or at any time; counted by any thread. */
struct nic_stand_in {
	/* set by the test */
	const struct cuda_stand_in *cuda;	/* NULL: it says nothing */
	const char *without;	/* address or provider of a rail whose NIC reaches
				 * no GPU; NULL: as NIC_WITHOUT in the
				 * environment says, if it does */
	bool no_dmabuf, no_peer; /* refused from now on */

	/* read by the test */
	_Atomic unsigned int dmabufs, peers;	/* registrations, ever */
	_Atomic unsigned int refused;
	_Atomic unsigned int posts;		/* from or to such memory here */
	_Atomic unsigned int stale;		/* with what was unregistered:
						 * refused */
};
extern struct nic_stand_in nic_stand_in;

/* Whether libfabric knows dma-bufs: as built, and as it runs. */
bool nic_stand_in_has_dmabuf(void);

#endif /* TEI_FABTESTS_COMMON_NIC_STAND_IN_H */
