/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H
#define TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H

/*
 * Two rails, r0 and r1, between two network namespaces: the test on host a,
 * targets on host b (fabtests/scripts/rails_lib.sh). There is no other way
 * between the two.
 */

#include "fabtests/functional/fx.h"

struct fx_links {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;	/* as much memory, all of it registered */
	segment_id_t seg;
};

/* False: not on the rails yet, return fx_links_inside, which starts this
 * program again on host a with these arguments, or skips. control: "yes" or
 * "no", a pair of devices beside the rails. */
bool fx_links_are(void);
int fx_links_inside(char **argv, const char *control);

/* The engine and one target; both rails carry. There are 2 MiB more memory, for
 * fx_links_mended. */
bool fx_links_start(struct fx_links *links, size_t mem);
/* Both of them by these devices, "r0" or "r0,r1". */
bool fx_links_start_on(struct fx_links *links, const char *devices, size_t mem);
/* One more target, of as much memory. */
bool fx_links_target(struct fx_peer *target, size_t mem);
void fx_links_stop(struct fx_links *links);

/* A function of rails_lib.sh, without its "rails_". */
bool fx_links_do(const char *what);
/* "r0": its counters; zeroes if they could not be read. */
struct te_rail_stats fx_links_stats(const struct fx_links *links,
				    const char *rail);
/* Bytes that this host has sent over both rails, as the kernel counts them. */
uint64_t fx_links_crossed(void);
/* Moves other bytes until both rails carry again. */
bool fx_links_mended(struct fx_links *links);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H */
