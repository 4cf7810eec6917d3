/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H
#define TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H

/*
 * Two rails, r0 and r1, that connect two network namespaces. The test runs on
 * host a, the targets on host b (fabtests/scripts/rails_lib.sh creates both).
 * There is no other connection between the hosts.
 */

#include "fabtests/functional/fx.h"

struct fx_links {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;	/* its memory is as large as `mem` and
				 * registered */
	segment_id_t seg;
};

/*
 * fx_links_are returns true if this process runs on host a. If not, main must
 * return the result of fx_links_inside. That function starts this program again
 * on host a with the arguments `argv`, or skips the test. With `control` "yes",
 * another pair of devices exists for the control channel; with "no", there is
 * none.
 */
bool fx_links_are(void);
int fx_links_inside(char **argv, const char *control);

/* Starts the engine and one target, and waits until both rails carry data. Maps
 * 2 MiB more than `mem` bytes at both; fx_links_mended uses them. */
bool fx_links_start(struct fx_links *links, size_t mem);
/* Does the same as fx_links_start with the devices "r0" or "r0,r1" at both
 * ends. */
bool fx_links_start_on(struct fx_links *links, const char *devices, size_t mem);
/* Starts another target on host b with `mem` bytes of registered memory. */
bool fx_links_target(struct fx_peer *target, size_t mem);
void fx_links_stop(struct fx_links *links);

/* Calls a shell function of rails_lib.sh. Its name is "rails_" followed by
 * "what", which may contain arguments. Returns true on success. */
bool fx_links_do(const char *what);
/* Rate of each rail that fx_links_inside makes, Mbit/s. */
#define FX_LINKS_MBIT 200
/* Changes the rates of both rails, Mbit/s. Returns true on success. The function
 * "restore" of rails_lib.sh restores FX_LINKS_MBIT. */
bool fx_links_rates(int mbit);
/* Returns the counters of the rail "r0" or "r1". All are 0 on failure. */
struct te_rail_stats fx_links_stats(const struct fx_links *links,
				    const char *rail);
/* Returns the number of bytes that this host has sent over both rails, as
 * counted by the kernel. */
uint64_t fx_links_crossed(void);
/* Moves data in the last 2 MiB of the memory until both rails carry data again.
 * Returns false if a move fails or FX_LONG_MS passes before. */
bool fx_links_mended(struct fx_links *links);

#endif /* TEI_FABTESTS_FUNCTIONAL_FX_LINKS_H */
