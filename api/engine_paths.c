/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_segment_paths and te_peer_stats: the paths to a segment, and the traffic
 * on them.
 */
#include "api/engine_int.h"
#include "api/engine_ipc.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"

#include <stdio.h>
#include <string.h>

#include "topo/tei_topo.h"

/* --- copies inside this host --------------------------------------------- */

static uint64_t traffic_get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void traffic_out(const struct engine_traffic *t, struct te_peer_stats *s)
{
	s->tx_bytes += traffic_get(&t->tx_bytes);
	s->rx_bytes += traffic_get(&t->rx_bytes);
	s->completed += traffic_get(&t->completed);
	s->failed += traffic_get(&t->failed);
	s->canceled += traffic_get(&t->canceled);
	if (traffic_get(&t->last_ns) > s->last_ns)
		s->last_ns = traffic_get(&t->last_ns);
}

/* --- paths --------------------------------------------------------------- */

/* What te_segment_paths and te_peer_stats need from a segment, with one
 * reference to each object. */
struct paths_target {
	struct tei_meta_desc *desc;
	struct tei_rail_peer *peer;	    /* process reached over rails, or
					     * NULL */
	struct engine_local_process *local; /* local process reached by kernel
					     * copies, or NULL */
	struct tei_nvmeof_seg *files;	/* files of a file segment, or NULL */
	int why_not_local;		/* engine_segment.why_not_local */
};

/* Fills in *t for the segment with that id and takes the references. The own
 * segment has neither a peer nor a local process. Returns false if the id is
 * not open. */
static bool paths_hold(struct engine *e, segment_id_t id,
		       struct paths_target *t)
{
	struct engine_segment *s;

	memset(t, 0, sizeof(*t));
	if (id == LOCAL_SEGMENT) {
		t->desc = tei_meta_cache_get(e->cache, id);
		return t->desc != NULL;
	}
	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	if (s) {
		t->desc = tei_meta_desc_ref(s->desc);
		t->peer = s->peer;
		t->local = s->local;
		t->files = s->files ? tei_nvmeof_seg_hold(s->files) : NULL;
		if (t->peer)
			tei_rail_peer_hold(t->peer);
		engine_local_process_hold(t->local);
		t->why_not_local = s->why_not_local;
	}
	tei_rwlock_unlock(&e->segments);
	return s != NULL;
}

static void paths_release(struct paths_target *t)
{
	if (t->peer)
		tei_rail_peer_put(t->peer);
	engine_local_process_put(t->local);
	tei_nvmeof_seg_put(t->files);
	tei_meta_desc_unref(t->desc);
}

static void paths_copy(const struct paths_target *t, struct te_path *p)
{
	bool here = !t->local || tei_local_peer_is_self(t->local->peer);

	memset(p, 0, sizeof(*p));
	p->kind = here ? TE_PATH_MEMCPY : TE_PATH_PROCESS;
	p->flags = TE_PATH_CONNECTED;
	p->numa_node = -1;
	snprintf(p->transport, sizeof(p->transport), "local");
	snprintf(p->provider, sizeof(p->provider), "%s%s",
		 here ? "memcpy" :
		 tei_local_peer_maps(t->local->peer) ? "memcpy,process_vm" :
						       "process_vm",
		 t->local && engine_ipc_mapped(t->local->ipc) ? ",cuda_ipc" :
								"");
	snprintf(p->rail, sizeof(p->rail), "local");
	snprintf(p->remote_rail, sizeof(p->remote_rail), "local");
}

static void paths_files(const struct engine *e, struct te_path *p)
{
	memset(p, 0, sizeof(*p));
	p->kind = TE_PATH_FILE;
	p->flags = TE_PATH_CONNECTED;
	p->numa_node = -1;
	snprintf(p->transport, sizeof(p->transport), "nvmeof");
	snprintf(p->provider, sizeof(p->provider), "%s",
		 tei_nvmeof_kind(e->nvmeof));
	snprintf(p->rail, sizeof(p->rail), "nvmeof");
	snprintf(p->remote_rail, sizeof(p->remote_rail), "nvmeof");
}

static void paths_rail(const struct tei_rail_path_info *in,
		       const struct paths_target *t, struct te_path *p)
{
	memset(p, 0, sizeof(*p));
	p->kind = TE_PATH_FABRIC;
	p->flags = in->connections ? TE_PATH_CONNECTED : 0;
	p->rank = in->rank;
	p->connections = in->connections;
	p->numa_node = in->numa;
	memcpy(p->transport, in->transport, sizeof(p->transport));
	memcpy(p->provider, in->provider, sizeof(p->provider));
	memcpy(p->rail, in->rail, sizeof(p->rail));
	memcpy(p->address, in->address, sizeof(p->address));
	memcpy(p->remote_rail, in->remote_rail, sizeof(p->remote_rail));
	memcpy(p->remote_address, in->remote_address,
	       sizeof(p->remote_address));
	snprintf(p->why_not_local, sizeof(p->why_not_local), "%s",
		 engine_local_why(t->why_not_local));
}

/* If requests to the segment use local copies or files instead of rails,
 * describes this path in *p and returns true. */
static bool paths_deferred(const struct engine *e, const struct paths_target *t,
			   struct te_path *p)
{
	if (!t->local && t->peer)
		return false;
	if (t->files)
		paths_files(e, p);
	else
		paths_copy(t, p);
	return true;
}

static size_t paths_list(const struct engine *e, const struct paths_target *t,
			 const char *location, struct te_path *paths,
			 size_t elem_size, size_t room)
{
	struct tei_rail_path_info info[TEI_RAIL_MAX];
	struct te_path p;
	size_t i, n;

	if (paths_deferred(e, t, &p)) {
		if (room)
			engine_out(paths, elem_size, &p, sizeof(p));
		return 1;
	}
	n = tei_rail_peer_paths(t->peer, location, info);
	for (i = 0; i < n && i < room; i++) {
		paths_rail(&info[i], t, &p);
		engine_out((char *)paths + i * elem_size, elem_size, &p,
			   sizeof(p));
	}
	return n;
}

/* Returns true if no transport reaches the segment. */
static bool paths_none(segment_id_t id, const struct paths_target *t)
{
	return id != LOCAL_SEGMENT && !t->peer && !t->local && !t->files;
}

int te_segment_paths(transfer_engine_t engine, segment_id_t segment_id,
		     const char *location, struct te_path *paths,
		     size_t elem_size, size_t *count)
{
	struct engine *e = engine_from(engine);
	struct tei_topo_where where;
	struct paths_target t;
	struct tei_err err;
	int ret;

	if (!e)
		return TEI_ERR_INVALID;
	if (!count || (*count && (!paths || !elem_size)))
		return tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				    "te_segment_paths: paths, elem_size or count is missing");
	ret = location ? tei_topo_where_parse(location, &where, &err) : 0;
	if (ret)
		return ret;
	if (!paths_hold(e, segment_id, &t))
		return tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				    "segment id %d is stale or unknown",
				    segment_id);
	if (paths_none(segment_id, &t))
		*count = 0;
	else
		*count = paths_list(e, &t, location, paths, elem_size,
				    *count);
	paths_release(&t);
	return 0;
}

/* --- counters ------------------------------------------------------------ */

static void paths_rail_stats(struct tei_rail_peer *peer,
			     struct te_peer_stats *s)
{
	static const uint32_t states[] = {
		[TEI_RAIL_PEER_NEW] = TE_PEER_NEW,
		[TEI_RAIL_PEER_READY] = TE_PEER_READY,
		[TEI_RAIL_PEER_FENCING] = TE_PEER_FENCING,
		[TEI_RAIL_PEER_GONE] = TE_PEER_GONE,
	};
	struct tei_rail_peer_stats r;

	tei_rail_peer_get_stats(peer, &r);
	s->state = states[r.state];
	s->queued = r.queued;
	s->tx_bytes = r.tx_bytes;
	s->rx_bytes = r.rx_bytes;
	s->completed = r.completed;
	s->failed = r.failed;
	s->timeout = r.unfenced;
	s->canceled = r.canceled;
	s->retries = r.retries;
	s->fences = r.fences;
	s->last_ns = r.alive_ns;
}

static void paths_stats(struct engine *e, segment_id_t id,
			const struct paths_target *t, struct te_peer_stats *s)
{
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "%.95s", t->desc->name);
	s->incarnation = t->desc->incarnation;
	if (t->peer)
		paths_rail_stats(t->peer, s);
	if (t->local) {
		s->state = TE_PEER_READY;
		if (!tei_local_peer_alive(t->local->peer))
			s->state = TE_PEER_GONE;
		traffic_out(&t->local->traffic, s);
	} else if (id == LOCAL_SEGMENT) {
		s->state = TE_PEER_READY;
		traffic_out(&e->own, s);
	}
}

static size_t paths_routes(const struct engine *e, segment_id_t id,
			   const struct paths_target *t,
			   struct te_path paths[TEI_RAIL_MAX])
{
	struct tei_rail_path_info info[TEI_RAIL_MAX];
	size_t i, n;

	if (paths_none(id, t))
		return 0;
	if (paths_deferred(e, t, &paths[0]))
		return 1;
	n = tei_rail_peer_routes(t->peer, info);
	for (i = 0; i < n; i++)
		paths_rail(&info[i], t, &paths[i]);
	return n;
}

bool engine_peer_stats(struct engine *e, segment_id_t id,
		       struct te_peer_stats *s, struct te_path *paths,
		       size_t *npaths)
{
	struct paths_target t;

	if (!paths_hold(e, id, &t))
		return false;
	paths_stats(e, id, &t, s);
	if (paths)
		*npaths = paths_routes(e, id, &t, paths);
	paths_release(&t);
	return true;
}

int te_peer_stats(transfer_engine_t engine, segment_id_t segment_id,
		  struct te_peer_stats *stats, size_t size)
{
	struct engine *e = engine_from(engine);
	struct te_peer_stats s;
	struct tei_err err;

	if (!e)
		return TEI_ERR_INVALID;
	if (!stats || !size ||
	    !engine_peer_stats(e, segment_id, &s, NULL, NULL))
		return tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				    "te_peer_stats: segment id %d is stale or "
				    "unknown, or stats or size is missing",
				    segment_id);
	engine_out(stats, size, &s, sizeof(s));
	return 0;
}
