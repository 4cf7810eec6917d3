/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_CLUSTER_H
#define TEI_FABTESTS_SIM_SIM_CLUSTER_H

/*
 * The processes of the simulated hosts: each has a data plane with one rail per
 * NIC, registered memory, and peers. A table in the simulator stands for the
 * metadata store.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/sim/sim.h"
#include "prov/rail/tei_rail.h"
#include "util/settings.h"

#define SIM_CHUNKS	4		/* registered regions of a process */

/* What a simulation consists of. Fixed after sim_cluster_open. */
struct sim_conf {
	uint32_t hosts, rails;
	uint32_t workers;		/* per host */
	uint64_t pause_ns;		/* mean pause of a worker between two
					 * operations */
	uint64_t until_ns;		/* end of the workload */
	bool verbs;			/* NICs like verbs devices */
	size_t chunk;			/* bytes of a registered region */
};

/* One life of a host's process. Made by cluster_start; kept until sim_cluster_end,
 * because a killed process frees nothing. */
struct sim_proc {
	struct sim_node *node;
	struct sim_proc *former;	/* the life before, or NULL */
	uint64_t incarnation;
	char name[32];
	struct tei_rail_dp *dp;		/* NULL: not open */
	struct tei_rail_peer **peers;	/* one per host, NULL: none yet */
	bool leaving;			/* no new operations */
	uint32_t busy;			/* fibers that use the process */
	void *work;			/* of the workload */
};

/* One host. */
struct sim_node {
	struct sim_host *host;
	uint32_t id;
	struct sim_proc *proc;		/* the present or last life */
	char *chunk[SIM_CHUNKS];	/* at the same addresses in each life */
	bool registered[SIM_CHUNKS];
	uint64_t since_ns[SIM_CHUNKS];	/* time of the last change of
					 * registered */
	/* what the metadata store says */
	uint64_t incarnation;		/* 0: nothing */
	struct tei_rail_addr contacts[TEI_RAIL_CONTACTS];
	size_t ncontacts;
	struct sim_rng rng;
};

/* The workload above the processes. */
struct sim_work_ops {
	/* Starts the work of a process whose data plane is open. In a fiber of
	 * the host. */
	void (*start)(struct sim_proc *proc);
	/* The process of the host is killed, or has left. */
	void (*gone)(struct sim_proc *proc);
	/* A notification was delivered. */
	void (*notified)(struct sim_proc *proc, const char *name,
			 const char *msg);
};

/* Makes the hosts and starts their processes at random times in the first
 * second. conf and ops must stay valid. */
void sim_cluster_begin(const struct sim_conf *conf,
		       const struct sim_work_ops *ops);
/* Frees what killed and closed processes have left. After sim_end. */
void sim_cluster_end(void);
const struct sim_conf *sim_cluster_conf(void);
struct sim_node *sim_cluster_node(uint32_t id);
/* Returns the node of the current host. */
struct sim_node *sim_cluster_self(void);

/* Kills the process. */
void sim_cluster_kill(struct sim_node *node);
/* Starts a new process after a kill or a leave. */
void sim_cluster_restart(struct sim_node *node);
/* Lets the process end its work and close its data plane, in a fiber of its
 * own. */
void sim_cluster_leave(struct sim_node *node);
/* Returns true if the process has a data plane and is not leaving. */
bool sim_cluster_up(const struct sim_node *node);

/* Returns the peer object of the process for the present incarnation of another
 * host, with a reference that the process keeps until it needs a newer one.
 * NULL: the store has none. */
struct tei_rail_peer *sim_cluster_peer(struct sim_proc *proc, uint32_t to);

/* Closes the data planes of all hosts at the end. Returns false if that has not
 * ended at until_ns. */
bool sim_cluster_close(uint64_t until_ns);

/* Reports that something is disturbed until the time. sim_cluster_calm_since
 * returns the latest of these times. */
void sim_cluster_disturb(uint64_t until_ns);
uint64_t sim_cluster_calm_since(void);

#endif /* TEI_FABTESTS_SIM_SIM_CLUSTER_H */
