/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H
#define TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H

/*
 * Two rails, r0 and r1, between two network namespaces: the test runs on host
 * a, the targets on host b (fabtests/scripts/rails_lib.sh). There is no other
 * connection between the two.
 */

#include "fabtests/functional/fx.h"

struct fx_links {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;	/* the target; its memory has the same size and
				 * is all registered */
	segment_id_t seg;
};

/* Returns true if this process runs on host a. If not, main must return the
 * result of fx_links_inside, which starts this program again on host a with
 * these arguments, or skips the test. control: "yes" or "no", whether there is
 * another pair of devices for the control channel. */
bool fx_links_are(void);
int fx_links_inside(char **argv, const char *control);

/* Starts the engine and one target, and waits until both rails carry data.
 * Allocates 2 MiB more than mem, for fx_links_mended. */
bool fx_links_start(struct fx_links *links, size_t mem);
/* Does the same with these devices at both ends: "r0" or "r0,r1". */
bool fx_links_start_on(struct fx_links *links, const char *devices, size_t mem);
/* Starts another target with mem bytes. */
bool fx_links_target(struct fx_peer *target, size_t mem);
void fx_links_stop(struct fx_links *links);

/* Calls the function "rails_" + what of rails_lib.sh. Returns true on
 * success. */
bool fx_links_do(const char *what);
/* Returns the counters of a rail, such as "r0"; zeroes if that fails. */
struct te_rail_stats fx_links_stats(const struct fx_links *links,
				    const char *rail);
/* Returns the bytes that this host has sent over both rails, as counted by the
 * kernel. */
uint64_t fx_links_crossed(void);
/* Moves other bytes until both rails carry data again. */
bool fx_links_mended(struct fx_links *links);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H */
