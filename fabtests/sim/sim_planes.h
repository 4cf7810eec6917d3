/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_PLANES_H
#define TEI_FABTESTS_SIM_SIM_PLANES_H

/*
 * A few data planes (prov/rail) in the simulated world, for unit tests. Each
 * host has one data plane with one region of registered memory. If a step
 * fails, the test case fails.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/sim/sim.h"
#include "prov/rail/tei_rail.h"
#include "util/settings.h"

#define SIM_PLANES	3		/* maximum number of hosts of a test */
#define SIM_PLANES_NICS 2		/* maximum number of NICs of a host */

/* Virtual time after which a step of a test has failed, ns. */
#define SIM_PLANES_WAIT_NS (120 * SIM_SEC)

struct sim_planes_conf {
	uint64_t seed;
	bool verbs;			/* NICs behave like verbs devices */
	uint32_t hosts, nics;		/* number of hosts, and of NICs per
					 * host */
	size_t bytes;			/* size of a host's registered memory,
					 * bytes */
	uint64_t bandwidth;		/* bandwidth of a NIC, bytes/s; 0 means
					 * the default of the simulated
					 * network */
};

/* The data plane of one host. */
struct sim_plane {
	const struct sim_planes_conf *conf;
	struct sim_host *host;
	struct tei_settings settings;
	struct tei_rail_dp *dp;
	struct tei_rail_mr *mr;
	char *mem;			/* registered memory, conf->bytes */
	struct tei_rail_addr at[SIM_PLANES_NICS]; /* contact addresses, `nat` of
						   * them */
	size_t nat;
	struct tei_rail_peer *peers[SIM_PLANES]; /* peer objects of host 0, by
						  * host; the arrays of other
						  * hosts are empty */
};

extern struct sim_plane sim_planes[SIM_PLANES];

/* A task and its result. */
struct sim_plane_task {
	struct tei_rail_task task;	/* must be the first member */
	uint32_t ends;			/* number of calls of task_done for the
					 * task */
	enum tei_rail_end end;
	uint64_t end_ns;		/* virtual time at which the task
					 * ended */
};

/* Starts a simulation and opens a data plane on each host. Host 0 gets a peer
 * object for each other host. `conf` must stay valid until sim_planes_end. */
void sim_planes_begin(const struct sim_planes_conf *conf);
/* Closes the data planes, checks that no object of the simulated fabric is
 * left, and ends the simulation. */
void sim_planes_end(void);

/* Runs fn(p) in a fiber of the plane's host, and returns when fn has
 * returned. */
void sim_plane_run(struct sim_plane *p, void *(*fn)(void *));
/* Releases the peer objects and closes the data plane of `p`. Must run in a
 * fiber of its host (sim_plane_run). Returns NULL. */
void *sim_plane_leave(void *p);

#endif /* TEI_FABTESTS_SIM_SIM_PLANES_H */
