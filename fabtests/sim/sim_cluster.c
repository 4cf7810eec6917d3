/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim_check.h"
#include "fabtests/sim/sim_load.h"
#include "prov/rail/rail_lane_thread.h"
#include "util/err.h"

#define CLUSTER_PAGE	4096
/* longest time that the metadata store takes to answer, ns */
#define CLUSTER_LOOKUP_NS	(20 * SIM_MS)
/* time after which a process that has found no rail tries again, ns */
#define CLUSTER_AGAIN_NS	SIM_SEC

static struct {
	const struct sim_conf *conf;
	const struct sim_work_ops *ops;
	struct sim_node *nodes;
	struct tei_settings settings;
	uint64_t incarnation;
	uint64_t calm_since;
	uint32_t open;			/* number of open processes */
} cluster;

const struct sim_conf *sim_cluster_conf(void)
{
	return cluster.conf;
}

struct sim_node *sim_cluster_node(uint32_t id)
{
	return &cluster.nodes[id];
}

struct sim_node *sim_cluster_self(void)
{
	return &cluster.nodes[sim_host_id(sim_host_current())];
}

void sim_cluster_disturb(uint64_t until_ns)
{
	if (cluster.calm_since < until_ns)
		cluster.calm_since = until_ns;
}

uint64_t sim_cluster_calm_since(void)
{
	return cluster.calm_since;
}

bool sim_cluster_up(const struct sim_node *node)
{
	return sim_host_running(node->host) && node->proc && node->proc->open &&
	       !node->proc->leaving;
}

/* --- the metadata store --- */

/* Publishes the contact addresses of the process in the metadata store, which
 * is in its node. */
static void cluster_publish(struct sim_proc *proc)
{
	struct sim_node *node = proc->node;
	struct tei_rail_desc desc;
	size_t i, n = 0;

	for (i = 0; i < tei_rail_count(proc->dp); i++)
		if (!tei_rail_describe(proc->dp, i, &desc) && desc.open &&
		    !desc.hidden && n < TEI_RAIL_CONTACTS)
			node->contacts[n++] = desc.known;
	node->ncontacts = n;
	node->incarnation = proc->incarnation;
	SIM_TRACE(node->id, "publish", n, proc->incarnation);
}

/* A query of the metadata store for the addresses of a host. */
struct lookup {
	struct sim_proc *proc;
	struct tei_rail_peer *peer;
	uint32_t host;
};

static void *lookup_main(void *arg)
{
	struct lookup *lookup = arg;
	struct sim_node *self = sim_cluster_self();
	struct sim_node *to = &cluster.nodes[lookup->host];

	sim_sleep_until(sim_now() +
			sim_rng_below(&self->rng, CLUSTER_LOOKUP_NS));
	if (to->incarnation)
		tei_rail_peer_resolved(lookup->peer, to->incarnation,
				       to->contacts, to->ncontacts);
	tei_rail_peer_put(lookup->peer);
	lookup->proc->busy--;
	sim_wake(&lookup->proc->busy, true);
	free(lookup);
	return NULL;
}

static void cluster_resolve(void *arg, struct tei_rail_peer *peer)
{
	struct lookup *lookup = malloc(sizeof(*lookup));
	struct sim_proc *proc = arg;

	if (!lookup)
		sim_fail("no memory for a look-up");
	proc->busy++;
	lookup->proc = proc;
	lookup->peer = peer;
	lookup->host = (uint32_t)atoi(tei_rail_peer_name(peer) + 4);
	sim_fiber_detach(sim_fiber_start(proc->node->host, "lookup",
					 lookup_main, lookup));
}

static void cluster_rails_changed(void *arg)
{
	struct sim_proc *proc = arg;

	if (proc->dp)
		cluster_publish(proc);
}

static void cluster_notify(void *arg, struct tei_rail_notification *note)
{
	struct sim_proc *proc = arg;

	cluster.ops->notified(proc, note->name, note->msg);
	tei_rail_notification_release(proc->dp, 1, note->bytes);
	tei_rail_notification_free(note);
}

static const struct tei_rail_ops cluster_rail_ops = {
	.task_done = sim_load_done,
	.notify = cluster_notify,
	.resolve = cluster_resolve,
	.rails_changed = cluster_rails_changed,
};

/* --- processes --- */

struct tei_rail_peer *sim_cluster_peer(struct sim_proc *proc, uint32_t to)
{
	struct sim_node *node = &cluster.nodes[to];
	struct tei_rail_peer *peer = proc->peers[to];
	struct tei_err err;
	char name[32];

	if (peer && tei_rail_peer_incarnation(peer) == node->incarnation)
		return peer;
	if (!node->incarnation)
		return NULL;
	if (peer)
		tei_rail_peer_put(peer);
	proc->peers[to] = NULL;
	snprintf(name, sizeof(name), "host%u", to);
	if (tei_rail_peer_get(proc->dp, name, node->incarnation,
			      node->contacts, node->ncontacts, &err, &peer))
		return NULL;
	proc->peers[to] = peer;
	return peer;
}

/* Opens the data plane of the process and registers its memory. */
static void cluster_open_plane(struct sim_proc *proc)
{
	struct sim_node *node = proc->node;
	struct tei_rail_dp_attr attr = {
		.settings = &cluster.settings,
		.ops = &cluster_rail_ops,
		.arg = proc,
		.name = proc->name,
		.incarnation = proc->incarnation,
		.back = true,
		.reports = true,
	};
	struct tei_rail_mr *mr;
	struct tei_rail_dp *dp;
	struct tei_err err;
	uint32_t i;

	proc->peers = calloc(cluster.conf->hosts, sizeof(*proc->peers));
	if (!proc->peers || tei_rail_dp_open(&attr, &err, &dp))
		sim_fail("host %u: data plane: %s", node->id, err.text);
	/* In virtual time a poll takes no time, so hardly any lane has a
	 * load. */
	rail_lane_threads_eager(dp);
	/* While all NICs are unplugged there is no rail, so try again later. */
	while (tei_rail_dp_add_transport(
		dp, cluster.conf->verbs ? "rdma" : "tcp", "", &err))
		sim_sleep_until(sim_now() + CLUSTER_AGAIN_NS);
	for (i = 0; i < SIM_CHUNKS; i++) {
		if (tei_rail_mr_reg(dp, node->chunk[i], cluster.conf->chunk,
				    "*", TEI_RAIL_REMOTE, &err, &mr))
			sim_fail("host %u: memory: %s", node->id, err.text);
		node->registered[i] = true;
		node->since_ns[i] = sim_now();
	}
	proc->dp = dp;
	SIM_TRACE(node->id, "start", tei_rail_count(dp), proc->incarnation);
	cluster_publish(proc);
}

/* Starts a process on the current host: opens its objects and starts its
 * workload. */
static void *cluster_start(void *arg)
{
	struct sim_node *node = arg;
	struct sim_proc *proc = calloc(1, sizeof(*proc));

	if (!proc)
		sim_fail("no memory for a process");
	proc->former = node->proc;
	proc->node = node;
	node->proc = proc;
	snprintf(proc->name, sizeof(proc->name), "host%u", node->id);
	proc->incarnation = ++cluster.incarnation;
	if (cluster.ops->open)
		cluster.ops->open(proc);
	else
		cluster_open_plane(proc);
	proc->open = true;
	cluster.open++;
	cluster.ops->start(proc);
	return NULL;
}

static void cluster_start_event(void *arg)
{
	struct sim_node *node = arg;

	sim_fiber_detach(sim_fiber_start(node->host, "start", cluster_start,
					 node));
}

static void cluster_start_later(struct sim_node *node, uint64_t when_ns)
{
	sim_at_host(node->host, when_ns, cluster_start_event, node);
}

void sim_cluster_kill(struct sim_node *node)
{
	struct sim_proc *proc = node->proc;

	if (sim_host_killed(node->host))
		return;
	/* a process that is not open may be opening its objects */
	if (proc)
		proc->killed = proc->open || !proc->leaving;
	if (proc && proc->open) {
		proc->open = false;
		proc->dp = NULL;
		cluster.open--;
		cluster.ops->gone(proc);
	}
	sim_host_kill(node->host);
}

void sim_cluster_restart(struct sim_node *node)
{
	struct sim_proc *proc = node->proc;

	if (sim_host_killed(node->host))
		sim_host_restart(node->host);
	else if (!proc || !proc->leaving || proc->open || proc->replaced)
		return;
	if (proc)
		proc->replaced = true;
	cluster_start_later(node, sim_now());
}

/* Waits until all fibers that use the process have ended, then closes its data
 * plane. */
static void cluster_close_plane(struct sim_proc *proc)
{
	struct tei_rail_dp *dp = proc->dp;
	uint32_t i;

	/* After this call no new look-up begins; look-ups in progress end by
	 * themselves. */
	tei_rail_notify_stop(dp);
	tei_rail_dp_quiesce(dp, 5 * SIM_SEC);
	while (proc->busy > 0)
		sim_wait(&proc->busy, SIM_NEVER);
	for (i = 0; i < cluster.conf->hosts; i++)
		if (proc->peers[i])
			tei_rail_peer_put(proc->peers[i]);
	memset(proc->peers, 0, cluster.conf->hosts * sizeof(*proc->peers));
	tei_rail_dp_close(dp, SIM_SEC);
	proc->dp = NULL;
	for (i = 0; i < SIM_CHUNKS; i++)
		proc->node->registered[i] = false;
}

static void *cluster_leave(void *arg)
{
	struct sim_proc *proc = arg;

	sim_wake(proc, true);
	if (cluster.ops->close)
		cluster.ops->close(proc);
	else
		cluster_close_plane(proc);
	proc->open = false;
	cluster.open--;
	SIM_TRACE(proc->node->id, "left", proc->incarnation);
	cluster.ops->gone(proc);
	return NULL;
}

void sim_cluster_leave(struct sim_node *node)
{
	if (!sim_cluster_up(node))
		return;
	node->proc->leaving = true;
	SIM_TRACE(node->id, "leave", node->proc->incarnation);
	sim_fiber_detach(sim_fiber_start(node->host, "leave", cluster_leave,
					 node->proc));
}

static bool cluster_closed(void *arg)
{
	(void)arg;
	return cluster.open == 0;
}

bool sim_cluster_close(uint64_t until_ns)
{
	uint32_t i;

	for (i = 0; i < cluster.conf->hosts; i++)
		sim_cluster_leave(&cluster.nodes[i]);
	return sim_run_while(cluster_closed, NULL, until_ns);
}

/* --- begin and end --- */

const char *const *sim_cluster_options(size_t *n)
{
	static char places[32], threads[32], most[48], least[48];
	uint32_t connections = cluster.conf->connections;
	static const char *const options[] = {
		"MOONRAIL_PROVIDER=sim",
		"MC_SLICE_SIZE=4096",
		"MC_SLICE_TIMEOUT=5",
		"MOONRAIL_FENCE_MS=500",
		"MOONRAIL_SPIN_US=2",
		threads,
		most,
		least,
		places,
	};

	snprintf(threads, sizeof(threads), "MC_WORKERS_PER_CTX=%u",
		 cluster.conf->threads);
	if (!connections)
		connections = 1;
	snprintf(most, sizeof(most), "MOONRAIL_CONNECTIONS=%u", connections);
	snprintf(least, sizeof(least), "MOONRAIL_CONNECTIONS_MIN=%u",
		 connections);
	snprintf(places, sizeof(places), "MC_MAX_EP_PER_CTX=%u",
		 cluster.conf->places);
	*n = sizeof(options) / sizeof(options[0]) - !cluster.conf->places;
	return options;
}

static void cluster_settings(void)
{
	const char *const *options;
	struct tei_err err;
	size_t n;

	options = sim_cluster_options(&n);
	if (tei_settings_load_options(&cluster.settings, options, n, &err))
		sim_fail("settings: %s", err.text);
}

void sim_cluster_begin(const struct sim_conf *conf,
		       const struct sim_work_ops *ops)
{
	struct sim_node *node;
	uint32_t i, j;

	memset(&cluster, 0, sizeof(cluster));
	cluster.conf = conf;
	cluster.ops = ops;
	cluster.incarnation = 0x1000;
	cluster_settings();
	cluster.nodes = calloc(conf->hosts, sizeof(*cluster.nodes));
	if (!cluster.nodes)
		sim_fail("no memory for hosts");
	for (i = 0; i < conf->hosts; i++) {
		node = &cluster.nodes[i];
		node->host = sim_host_get(i);
		node->id = i;
		sim_rng_init(&node->rng, "host", i);
		for (j = 0; j < SIM_CHUNKS; j++)
			node->chunk[j] = sim_arena(conf->chunk, CLUSTER_PAGE);
		cluster_start_later(node, sim_now() +
				    sim_rng_below(&node->rng, SIM_SEC));
	}
	sim_cluster_disturb(sim_now() + SIM_SEC);
}

void sim_cluster_end(void)
{
	struct sim_proc *proc, *former;
	uint32_t i;

	for (i = 0; i < cluster.conf->hosts; i++)
		for (proc = cluster.nodes[i].proc; proc; proc = former) {
			former = proc->former;
			if (proc->killed)
				continue;
			free(proc->peers);
			free(proc->work);
			free(proc);
		}
	free(cluster.nodes);
	cluster.nodes = NULL;
}
