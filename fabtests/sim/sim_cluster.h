/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_CLUSTER_H
#define TEI_FABTESTS_SIM_SIM_CLUSTER_H

/*
 * The processes of the simulated hosts. Each process has a data plane with one
 * rail per NIC, registered memory, and peers, unless the workload opens other
 * objects. A table in the simulator replaces the metadata store.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/sim/sim.h"
#include "prov/rail/tei_rail.h"
#include "util/settings.h"

#define SIM_CHUNKS	4		/* number of registered regions (chunks)
					 * of a process */

/* The parameters of a simulation. They do not change after
 * sim_cluster_begin. */
struct sim_conf {
	uint32_t hosts, rails;
	uint32_t workers;		/* number of workers per host */
	uint32_t threads;		/* number of progress threads per data
					 * plane */
	uint32_t connections;		/* number of connections of a rail pair
					 * for bulk data; 0 means 1 */
	uint64_t pause_ns;		/* mean time that a worker waits between
					 * two operations */
	uint64_t until_ns;		/* virtual time at which the workload
					 * ends, ns */
	bool verbs;			/* NICs behave like verbs devices */
	uint32_t places;		/* value of MC_MAX_EP_PER_CTX in each
					 * process; 0 means the default */
	size_t chunk;			/* size of a registered region, bytes */
};

/* One process of a host. cluster_start creates it. sim_cluster_end frees it,
 * unless it was killed: a killed process frees nothing. */
struct sim_proc {
	struct sim_node *node;
	struct sim_proc *former;	/* the host's previous process, or
					 * NULL */
	uint64_t incarnation;
	char name[32];
	bool open;			/* the process has opened its objects
					 * and has not closed them; it was not
					 * killed */
	struct tei_rail_dp *dp;		/* data plane; NULL if it is not open,
					 * or if the workload opens other
					 * objects */
	struct tei_rail_peer **peers;	/* peer objects, indexed by host; NULL
					 * if the process has none for the
					 * host */
	bool killed;
	bool replaced;			/* the start of the host's next process
					 * was requested */
	bool leaving;			/* the process is closing or has closed
					 * its objects; it starts no new
					 * operation */
	uint32_t busy;			/* number of fibers that use the
					 * process */
	void *work;			/* data of the workload */
};

/* One host, with the simulator's data about its process. */
struct sim_node {
	struct sim_host *host;
	uint32_t id;
	struct sim_proc *proc;		/* the running process, or the last one;
					 * NULL before the first one */
	char *chunk[SIM_CHUNKS];	/* memory of the registered regions; a
					 * restarted process has the same
					 * addresses */
	bool registered[SIM_CHUNKS];
	uint64_t since_ns[SIM_CHUNKS];	/* time at which `registered` changed
					 * last */
	/* The members incarnation to ncontacts are the record of the process in
	 * the metadata store. */
	uint64_t incarnation;		/* incarnation of the process; 0: the
					 * store has no record */
	struct tei_rail_addr contacts[TEI_RAIL_CONTACTS];
	size_t ncontacts;
	struct sim_rng rng;
};

/* The functions of the workload, which the processes call. */
struct sim_work_ops {
	/* Open and close the objects that a process of this workload has
	 * instead of a data plane, registered memory and peers. Both are NULL
	 * if the processes have data planes. Called in a fiber of the host.
	 * `close` waits until all fibers that use the process have ended. */
	void (*open)(struct sim_proc *proc);
	void (*close)(struct sim_proc *proc);
	/* Called when the objects of a process are open, in a fiber of the
	 * host: starts the work of the process. */
	void (*start)(struct sim_proc *proc);
	/* Called when the process was killed or has closed its objects. */
	void (*gone)(struct sim_proc *proc);
	/* Called when a notification was delivered to the data plane of the
	 * process. */
	void (*notified)(struct sim_proc *proc, const char *name,
			 const char *msg);
};

/* Creates the nodes and starts their processes at random times in the first
 * second. `conf` and `ops` must stay valid. */
void sim_cluster_begin(const struct sim_conf *conf,
		       const struct sim_work_ops *ops);
/* Frees the nodes and all processes except the killed ones. Called after
 * sim_end. */
void sim_cluster_end(void);
const struct sim_conf *sim_cluster_conf(void);
/* Returns the settings that every process gets, as texts of the form
 * NAME=VALUE. Writes the number of the texts to *n. */
const char *const *sim_cluster_options(size_t *n);
struct sim_node *sim_cluster_node(uint32_t id);
/* Returns the node of the current host. */
struct sim_node *sim_cluster_self(void);

/* Kills the process of the node. */
void sim_cluster_kill(struct sim_node *node);
/* Starts a new process on a node whose process was killed or has left. */
void sim_cluster_restart(struct sim_node *node);
/* Starts a fiber that ends the work of the process and closes its objects. */
void sim_cluster_leave(struct sim_node *node);
/* Returns true if the host runs and its process is open and is not leaving. */
bool sim_cluster_up(const struct sim_node *node);

/* Returns the peer object of `proc` for the present process of host `to`.
 * `proc` holds the reference until that host has a newer process. Returns NULL
 * if the store has no record of the host. */
struct tei_rail_peer *sim_cluster_peer(struct sim_proc *proc, uint32_t to);

/* Closes the objects of all processes at the end of the simulation. Returns
 * false if a process is still open at the time until_ns. */
bool sim_cluster_close(uint64_t until_ns);

/* sim_cluster_disturb records that a fault may have effects until the time
 * until_ns. sim_cluster_calm_since returns the latest of the recorded times. */
void sim_cluster_disturb(uint64_t until_ns);
uint64_t sim_cluster_calm_since(void);

#endif /* TEI_FABTESTS_SIM_SIM_CLUSTER_H */
