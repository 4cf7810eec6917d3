/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_engine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim_engine_int.h"
#include "meta/tei_meta_inside.h"

/* Operations may fail until this time has passed since the end of the last
 * fault. */
#define ENGINE_CALM_NS	(30 * SIM_SEC)
/* mean time between two unregistrations of memory by one process, as a multiple
 * of a worker's mean pause */
#define ENGINE_REGISTRAR	50
/* time between two fetches of notifications, ns */
#define ENGINE_FETCH_NS	(50 * SIM_MS)
/* maximum number of settings of an engine */
#define ENGINE_SETTINGS	16

/* The exported descriptor of a host's engine, which all processes can read. */
struct engine_blob {
	void *data;
	size_t len;			/* bytes; 0 if there is none */
};

static struct {
	const struct sim_conf *conf;
	struct engine_blob *blobs;	/* indexed by host */
	uint64_t ids;			/* number of operations that have
					 * started */
	struct sim_load_stats stats;
} world;

size_t engine_lanes(const struct sim_conf *conf)
{
	return (size_t)conf->hosts * ENGINE_LIVES * conf->workers;
}

size_t engine_lane(const struct engine_worker *w)
{
	uint32_t life = sim_host_life(w->proc->node->host) % ENGINE_LIVES;

	return ((size_t)w->proc->node->id * ENGINE_LIVES + life) *
		       world.conf->workers + w->index;
}

transfer_engine_t engine_of(const struct engine_worker *w)
{
	const struct engine_proc *ep = w->proc->work;

	return ep->engine;
}

struct sim_load_stats *engine_stats(void)
{
	return &world.stats;
}

static const struct sim_load_stats *world_stats(void)
{
	return &world.stats;
}

const char *engine_worker_name(const struct engine_worker *w)
{
	static const char *const kinds[] = { "batch", "atomic",
					     "notification" };
	static char text[96];

	snprintf(text, sizeof(text), "%s %" PRIu64 " of host %u to host %u",
		 kinds[w->kind], w->id, w->proc->node->id, w->to);
	return text;
}

bool engine_excused(const struct engine_worker *w)
{
	const struct sim_node *to = sim_cluster_node(w->to);

	return w->early || w->proc->leaving || !sim_cluster_up(to) ||
	       to->proc->incarnation != w->incarnation ||
	       (w->kind == ENGINE_BATCH &&
		(!to->registered[w->chunk] ||
		 to->since_ns[w->chunk] + SIM_SEC > w->start_ns)) ||
	       sim_cluster_calm_since() + ENGINE_CALM_NS > w->start_ns;
}

/* --- processes --- */

/* Exports the descriptor of the engine, so that other processes can import
 * it. */
static void proc_export(struct sim_proc *proc)
{
	struct engine_blob *blob = &world.blobs[proc->node->id];
	struct engine_proc *ep = proc->work;
	size_t len = 0;
	void *data;

	te_segment_export(ep->engine, 0, NULL, &len);
	len += 4096;
	data = malloc(len);
	if (!data)
		sim_fail("no memory for a descriptor");
	if (te_segment_export(ep->engine, 0, data, &len))
		sim_found("host %u: the descriptor is not exported",
			  proc->node->id);
	free(blob->data);
	blob->data = data;
	blob->len = len;
}

static void proc_register(struct sim_proc *proc, void *at, size_t len,
			  int remote)
{
	struct engine_proc *ep = proc->work;
	int ret = registerLocalMemory(ep->engine, at, len, "cpu:0", remote);

	if (ret)
		sim_found("host %u: memory is not registered: %d",
			  proc->node->id, ret);
}

static void proc_register_all(struct sim_proc *proc)
{
	struct sim_node *node = proc->node;
	size_t size;
	void *at;
	uint32_t i;

	at = engine_batch_local(node->id, &size);
	proc_register(proc, at, size, 0);
	at = engine_message_counts(node->id, &size);
	proc_register(proc, at, size, 1);
	for (i = 0; i < SIM_CHUNKS; i++) {
		proc_register(proc, node->chunk[i], world.conf->chunk, 1);
		node->registered[i] = true;
		node->since_ns[i] = sim_now();
	}
}

static transfer_engine_t proc_create(struct sim_proc *proc)
{
	const char *settings[ENGINE_SETTINGS];
	struct te_engine_options options = {
		.metadata = "inside://",
		.server_name = proc->name,
		.settings = settings,
	};
	transfer_engine_t engine;
	const char *const *common;
	size_t n, i;
	int ret;

	common = sim_cluster_options(&n);
	if (n + 2 > ENGINE_SETTINGS)
		sim_fail("too many settings");
	for (i = 0; i < n; i++)
		settings[i] = common[i];
	settings[i++] = "MOONRAIL_LOCAL=0";
	settings[i++] = "MC_HANDSHAKE_CONNECT_TIMEOUT=3";
	options.settings_count = i;
	ret = te_engine_create(&options, sizeof(options), &engine);
	if (ret)
		sim_found("host %u: no engine: %d", proc->node->id, ret);
	return engine;
}

static void engine_open_all(struct sim_proc *proc)
{
	struct engine_proc *ep =
		calloc(1, sizeof(*ep) +
				  world.conf->workers * sizeof(ep->workers[0]));

	if (!ep)
		sim_fail("no memory for a process");
	proc->work = ep;
	ep->engine = proc_create(proc);
	/* While all NICs are unplugged there is no rail, so try again later. */
	while (!installTransport(ep->engine,
				 world.conf->verbs ? "rdma" : "tcp", NULL)) {
		if (sim_cluster_calm_since() + ENGINE_CALM_NS < sim_now())
			sim_found("host %u: the rails are not installed",
				  proc->node->id);
		sim_sleep_until(sim_now() + SIM_SEC);
	}
	proc_register_all(proc);
	proc_export(proc);
	SIM_TRACE(proc->node->id, "start", proc->incarnation);
}

/* Waits until all fibers that use the process have ended, then destroys its
 * engine. */
static void engine_close_all(struct sim_proc *proc)
{
	struct engine_proc *ep = proc->work;
	uint32_t i;

	while (proc->busy > 0)
		sim_wait(&proc->busy, SIM_NEVER);
	destroyTransferEngine(ep->engine);
	ep->engine = NULL;
	for (i = 0; i < SIM_CHUNKS; i++)
		proc->node->registered[i] = false;
}

/* --- workers --- */

/* Opens the segment of the target host, by its name or by its exported
 * descriptor. Returns false if it cannot be opened, because no process of that
 * host has published it, or because that process has ended. */
static bool worker_open(struct engine_worker *w)
{
	const struct engine_blob *blob = &world.blobs[w->to];
	char name[32];

	w->segment = -1;
	if (blob->len && sim_rng_below(&w->rng, 2)) {
		te_segment_import(engine_of(w), blob->data, blob->len, 0,
				  &w->segment);
	} else {
		snprintf(name, sizeof(name), "host%u", w->to);
		w->segment = openSegment(engine_of(w), name);
	}
	if (w->segment == 0)
		sim_found("%s: opened its own segment", engine_worker_name(w));
	if (w->segment < 0)
		SIM_TRACE(w->proc->node->id, "unopened", w->id, w->to);
	if (w->segment < 0 && !engine_excused(w))
		sim_found("%s: the segment is not opened",
			  engine_worker_name(w));
	return w->segment > 0;
}

/* Does one random operation with a random target. */
static void worker_turn(struct engine_worker *w)
{
	const struct sim_node *to;
	uint64_t kind;

	w->id = ++world.ids;
	w->start_ns = sim_now();
	w->early = false;
	w->nparts = 0;
	w->slot = NULL;
	w->to = (uint32_t)sim_rng_below(&w->rng, world.conf->hosts - 1);
	w->to += w->to >= w->proc->node->id;
	w->chunk = 0;
	to = sim_cluster_node(w->to);
	if (!to->proc)
		return;
	w->incarnation = to->proc->incarnation;
	kind = sim_rng_below(&w->rng, 10);
	w->kind = kind == 0 ? ENGINE_NOTE :
		  kind <= 2 ? ENGINE_ATOMIC : ENGINE_BATCH;
	if (!worker_open(w))
		return;
	switch (w->kind) {
	case ENGINE_BATCH:
		engine_batch_run(w);
		break;
	case ENGINE_ATOMIC:
		engine_message_atomic(w);
		break;
	case ENGINE_NOTE:
		engine_message_note(w);
		break;
	}
	closeSegment(engine_of(w), w->segment);
}

/* Waits for a random time with the given mean. Returns false if the process is
 * leaving or the workload is over. */
static bool world_pause(struct sim_proc *proc, struct sim_rng *rng,
			uint64_t mean)
{
	if (!proc->leaving)
		sim_wait(proc, sim_now() + sim_rng_below(rng, 2 * mean));
	return !proc->leaving && sim_now() < world.conf->until_ns;
}

static void world_finished(struct sim_proc *proc)
{
	proc->busy--;
	sim_wake(&proc->busy, true);
}

static void *worker_main(void *arg)
{
	struct engine_worker *w = arg;
	struct engine_proc *ep = w->proc->work;

	while (world_pause(w->proc, &w->rng, world.conf->pause_ns))
		worker_turn(w);
	ep->working--;
	world_finished(w->proc);
	return NULL;
}

/* Runs in a fiber of the process. Fetches the notifications until all workers
 * of the process have ended. */
static void *fetcher_main(void *arg)
{
	struct sim_proc *proc = arg;
	struct engine_proc *ep = proc->work;

	do {
		sim_sleep_until(sim_now() + ENGINE_FETCH_NS);
		engine_message_fetch(proc);
	} while (ep->working > 0);
	world_finished(proc);
	return NULL;
}

/* --- the registrar --- */

/* Calls fn for each batch of any process that accesses the chunk of the node
 * and has not ended. */
static void registrar_each(struct sim_node *node, uint32_t chunk,
			   void (*fn)(struct engine_worker *))
{
	struct engine_worker *w;
	struct engine_proc *ep;
	struct sim_proc *proc;
	uint32_t i, j;

	for (i = 0; i < world.conf->hosts; i++) {
		proc = sim_cluster_node(i)->proc;
		if (!proc || !proc->open)
			continue;
		ep = proc->work;
		for (j = 0; j < world.conf->workers; j++) {
			w = &ep->workers[j];
			if (w->posted && w->kind == ENGINE_BATCH &&
			    w->to == node->id && w->chunk == chunk)
				fn(w);
		}
	}
}

static bool registrar_revoke(struct sim_proc *proc, uint32_t chunk)
{
	struct engine_proc *ep = proc->work;
	struct sim_node *node = proc->node;
	int ret;

	node->registered[chunk] = false;
	node->since_ns[chunk] = sim_now();
	SIM_TRACE(node->id, "unregister", chunk);
	ret = unregisterLocalMemory(ep->engine, node->chunk[chunk]);
	SIM_TRACE(node->id, "unregistered", chunk, (uint64_t)-ret);
	if (ret) {
		node->registered[chunk] = true;
		node->since_ns[chunk] = sim_now();
		return false;
	}
	world.stats.revoked++;
	registrar_each(node, chunk, engine_batch_revoke);
	proc_export(proc);
	return true;
}

static void registrar_restore(struct sim_proc *proc, uint32_t chunk)
{
	struct sim_node *node = proc->node;

	registrar_each(node, chunk, engine_batch_restore);
	proc_register(proc, node->chunk[chunk], world.conf->chunk, 1);
	node->registered[chunk] = true;
	node->since_ns[chunk] = sim_now();
	SIM_TRACE(node->id, "register", chunk);
	proc_export(proc);
}

/* Runs in a fiber of the process. Unregisters a random chunk from time to time,
 * and registers it again after a while. */
static void *registrar_main(void *arg)
{
	struct sim_proc *proc = arg;
	struct sim_rng rng;
	uint32_t chunk;

	sim_rng_init(&rng, "registrar", proc->incarnation);
	while (world_pause(proc, &rng,
			   ENGINE_REGISTRAR * world.conf->pause_ns)) {
		chunk = (uint32_t)sim_rng_below(&rng, SIM_CHUNKS);
		if (registrar_revoke(proc, chunk)) {
			world_pause(proc, &rng, SIM_SEC);
			registrar_restore(proc, chunk);
		}
	}
	world_finished(proc);
	return NULL;
}

/* --- the functions of the workload --- */

static void engine_fiber(struct sim_proc *proc, const char *name,
			 void *(*fn)(void *), void *arg)
{
	proc->busy++;
	sim_fiber_detach(sim_fiber_start(proc->node->host, name, fn, arg));
}

static void engine_start(struct sim_proc *proc)
{
	struct engine_proc *ep = proc->work;
	struct engine_worker *w;
	uint32_t i;

	ep->working = world.conf->workers;
	for (i = 0; i < world.conf->workers; i++) {
		w = &ep->workers[i];
		w->proc = proc;
		w->index = i;
		engine_batch_worker(w);
		sim_rng_init(&w->rng, "engine worker",
			     (uint64_t)sim_host_life(proc->node->host) << 32 |
				     proc->node->id << 16 | i);
		engine_fiber(proc, "worker", worker_main, w);
	}
	engine_fiber(proc, "registrar", registrar_main, proc);
	engine_fiber(proc, "fetcher", fetcher_main, proc);
}

/* Called when the process was killed or has left. Bytes of its unfinished
 * batches may still land, so their ranges may change: removes the tombstones
 * with which the checker would report that. */
static void engine_gone(struct sim_proc *proc)
{
	struct engine_proc *ep = proc->work;
	struct engine_worker *w;
	uint32_t i;

	for (i = 0; i < world.conf->workers; i++) {
		w = &ep->workers[i];
		if (w->posted && w->kind == ENGINE_BATCH)
			engine_batch_gone(w);
		else if (w->posted)
			engine_message_gone(w);
		w->posted = false;
	}
}

static const struct sim_work_ops engine_ops = {
	.open = engine_open_all,
	.close = engine_close_all,
	.start = engine_start,
	.gone = engine_gone,
};

static void world_size(struct sim_conf *conf)
{
	conf->chunk = engine_lanes(conf) * ENGINE_STRIDE;
}

static void world_begin(void)
{
	memset(&world, 0, sizeof(world));
	world.conf = sim_cluster_conf();
	world.blobs = calloc(world.conf->hosts, sizeof(*world.blobs));
	if (!world.blobs)
		sim_fail("no memory for descriptors");
	engine_batch_begin(world.conf);
	engine_message_begin(world.conf);
}

static void world_verify(void)
{
	engine_batch_verify();
	engine_message_verify();
}

static void world_end(void)
{
	uint32_t i;

	for (i = 0; i < world.conf->hosts; i++)
		free(world.blobs[i].data);
	free(world.blobs);
	engine_batch_end();
	engine_message_end();
	tei_meta_inside_clear();
}

const struct sim_workload sim_engine_workload = {
	.name = "engine",
	.ops = &engine_ops,
	.size = world_size,
	.begin = world_begin,
	.verify = world_verify,
	.end = world_end,
	.stats = world_stats,
};
