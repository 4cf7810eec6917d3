/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_SHIM_H
#define TEI_PROV_RAIL_RAIL_SHIM_H

/*
 * A shim for unit tests that makes a rail's device stricter than it is. It
 * checks registrations, refuses some of them, and passes the rest to the
 * provider.
 */

#include <rdma/fi_domain.h>

#include "prov/rail/rail_test.h"

/* Owned by the test. Must stay valid until the data plane is closed. */
struct rail_shim {
	/* set by the test, before or after the installation */
	size_t max_len;		/* largest registration, bytes; 0 means no
				 * limit */
	uint32_t max_live;	/* most registrations at a time; 0 means no
				 * limit */
	int refusal;		/* error returned beyond these limits, -FI_E* */

	/* counted by any thread; read by the test when nothing runs */
	_Atomic uint32_t live;		/* current registrations */
	_Atomic uint32_t bound, enabled; /* registrations bound
					  * and enabled so far */
	_Atomic uint32_t made;		/* registrations made so far */
	_Atomic uint32_t refused;
	_Atomic uint32_t late;		/* registrations that were closed after
					 * their lane */
	_Atomic uint32_t mapped;	/* raw keys mapped now */
	_Atomic uint32_t maps;		/* raw keys mapped so far */
	_Atomic uint32_t bad_maps;	/* raw keys that no shim has issued */

	/* private */
	struct rail *rail;
	struct fi_ops_mr *real_reg, reg;
	struct fi_ops *real_domain, domain;
	struct fi_ops *real_mr, mr;
	struct rail_shim *next;
};

/* Installs the shim before anything is registered. mode: FI_MR_… bits that
 * are added to the rail's mr_mode. */
void rail_shim_install(struct rail_shim *shim, struct rail *rail,
		       uint64_t mode);
/* Removes the shim after the data plane was closed. */
void rail_shim_remove(struct rail_shim *shim);

#endif /* TEI_PROV_RAIL_RAIL_SHIM_H */
