/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_RAIL_SHIM_H
#define TEI_PROV_RAIL_RAIL_SHIM_H

/* A shim for unit tests between a rail and its provider. The shim checks the
 * rail's registrations, refuses those beyond limits that the test sets, and
 * passes the others to the provider. */

#include <rdma/fi_domain.h>

#include "prov/rail/rail_test.h"

/* A shim. The test owns the object, which must stay valid until the data plane
 * is closed. */
struct rail_shim {
	/* set by the test, before or after the installation */
	size_t max_len;		/* size of the largest registration that is
				 * accepted, bytes; 0 means no limit */
	uint32_t max_live;	/* largest number of registrations at a time; 0
				 * means no limit */
	int refusal;		/* error that a refused registration returns,
				 * -FI_E* */

	/* counted by any thread; read by the test when nothing runs */
	_Atomic uint32_t live;		/* number of registrations that exist
					 * now */
	_Atomic uint32_t bound, enabled; /* numbers of registrations bound to an
					  * endpoint, and enabled, so far */
	_Atomic uint32_t made;		/* number of successful registrations so
					 * far */
	_Atomic uint32_t refused;
	_Atomic uint32_t late;		/* number of registrations that were
					 * closed only after their lane was
					 * closed */
	_Atomic uint32_t mapped;	/* number of raw keys of peers that are
					 * mapped now */
	_Atomic uint32_t maps;		/* number of raw keys of peers that were
					 * mapped so far */
	_Atomic uint32_t bad_maps;	/* number of refused attempts to map a
					 * raw key that no shim has issued */

	/* used only by rail_shim.c */
	struct rail *rail;
	struct fi_ops_mr *real_reg, reg;
	struct fi_ops *real_domain, domain;
	struct fi_ops *real_mr, mr;
	struct rail_shim *next;
};

/* Installs the shim. Must be called before anything is registered. mode:
 * FI_MR_… bits that are added to the rail's mr_mode. */
void rail_shim_install(struct rail_shim *shim, struct rail *rail,
		       uint64_t mode);
/* Removes the shim after the data plane was closed. */
void rail_shim_remove(struct rail_shim *shim);

#endif /* TEI_PROV_RAIL_RAIL_SHIM_H */
