/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_SHIM_H
#define TEI_PROV_RAIL_RAIL_SHIM_H

/*
 * For unit tests: a rail's device made more demanding than it is. Registrations
 * go through to the provider, after what the shim refuses and checks.
 */

#include "prov/rail/rail_test.h"

/* The test owns it; it lives until the plane is closed. */
struct rail_shim {
	/* set by the test, before or after the installation */
	size_t max_len;		/* longer registrations are refused, 0: none */
	uint32_t max_live;	/* no more at a time, 0: any number */
	int refusal;		/* -FI_E* of it */

	/* read by the test when nothing is under way; counted by any thread */
	_Atomic uint32_t live;		/* registrations there are */
	_Atomic uint32_t bound, enabled; /* of all, ever */
	_Atomic uint32_t made;		/* all, ever */
	_Atomic uint32_t refused;
	_Atomic uint32_t late;		/* closed after their lane */
	_Atomic uint32_t mapped;	/* raw keys, now */
	_Atomic uint32_t maps;		/* ever */
	_Atomic uint32_t bad_maps;	/* not what the other shim gave out */

	/* the shim's own */
	struct rail *rail;
	struct fi_ops_mr *real_reg, reg;
	struct fi_ops *real_domain, domain;
	struct fi_ops *real_mr, mr;
	struct rail_shim *next;
};

/* mode: FI_MR_… bits added to the rail's. Before anything is registered. */
void rail_shim_install(struct rail_shim *shim, struct rail *rail,
		       uint64_t mode);
/* After the plane was closed. */
void rail_shim_remove(struct rail_shim *shim);

#endif /* TEI_PROV_RAIL_RAIL_SHIM_H */
