/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_MR_H
#define TEI_PROV_RAIL_CORE_RAIL_MR_H

/* The end of a registered region. rail_int.h has the other functions. */

#include "prov/rail/rail_int.h"

/* Removes the region from the table. dp->admin is held too. */
void rail_mr_remove(struct tei_rail_dp *dp, struct tei_rail_mr *mr)
	TEI_REQUIRES(rail_sched_held);
/* Frees a region that is in no table and on no rail. */
void rail_mr_free(struct tei_rail_mr *mr);

#endif /* TEI_PROV_RAIL_CORE_RAIL_MR_H */
