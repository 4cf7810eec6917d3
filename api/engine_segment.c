/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Segments. An open segment has an id of the cache of descriptors, and its
 * targets: the peer, the local process or the files that its requests reach.
 */
#include "api/engine_int.h"
#include "api/engine_ipc.h"
#include "api/engine_memory.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- fabric addresses in descriptors ------------------------------------- */

/* The contact addresses of a peer. */
struct engine_contacts {
	struct tei_rail_addr at[TEI_RAIL_CONTACTS];
	size_t n;
};

/* Adds a contact address to *c. Does nothing if the address is in *c already,
 * or if no rail of this process can reach it. */
static void segment_add_contact(struct engine *e,
				const struct tei_meta_address *address,
				struct engine_contacts *c)
{
	struct tei_rail_addr *at = &c->at[c->n];
	size_t i;

	if (c->n == TEI_RAIL_CONTACTS || !engine_addr_unpack(address, at) ||
	    !tei_rail_addr_fits(e->dp, at))
		return;
	for (i = 0; i < c->n; i++)
		if (!memcmp(&c->at[i], at, sizeof(*at)))
			return;
	c->n++;
}

/*
 * Collects the contact addresses of a descriptor that a rail of this process
 * can reach. If there are none, takes the first address of the descriptor, so
 * that tasks fail and report the reason. Returns false if the descriptor has no
 * address.
 */
static bool segment_contacts(struct engine *e, const struct tei_meta_desc *desc,
			     struct engine_contacts *c)
{
	uint32_t i;

	c->n = 0;
	segment_add_contact(e, &desc->first.address, c);
	for (i = 0; i < desc->rail_count; i++)
		segment_add_contact(e, &desc->rails[i].address, c);
	if (!c->n)
		c->n = engine_addr_unpack(&desc->first.address, &c->at[0]);
	return c->n;
}

/* --- the table ----------------------------------------------------------- */

struct engine_segment *engine_segment_find(struct engine *e, segment_id_t id)
{
	struct engine_segment *s = tei_meta_cache_data(e->cache, id);

	return s && s->id == id ? s : NULL;
}

/* Closes all local processes that have no references. If "all" is true, also
 * closes those that have references. */
static void segment_close_processes(struct engine *e, bool all)
{
	struct engine_local_process **p, *n;

	tei_mutex_lock(&e->processes.lock);
	for (p = &e->processes.list; (n = *p);) {
		if (!all && __atomic_load_n(&n->refs, __ATOMIC_ACQUIRE)) {
			p = &n->next;
			continue;
		}
		*p = n->next;
		engine_ipc_free(n->ipc);
		tei_local_peer_close(e->local, n->peer);
		free(n);
	}
	tei_mutex_unlock(&e->processes.lock);
}

static struct engine_local_process *
segment_local_process(struct engine *e, struct tei_local_peer *peer)
{
	struct engine_local_process *n = calloc(1, sizeof(*n));

	if (!n) {
		tei_local_peer_close(e->local, peer);
		return NULL;
	}
	n->peer = peer;
	n->ipc = engine_ipc_new(e, n);
	n->refs = 1;
	tei_mutex_lock(&e->processes.lock);
	n->next = e->processes.list;
	e->processes.list = n;
	tei_mutex_unlock(&e->processes.lock);
	return n;
}

/*
 * The targets of a segment: the peer, the local process and the files that its
 * requests reach. They are opened while engine->segments is not held, because
 * the kernel, the other process or a file server may take long to answer, and
 * submissions need that lock. segment_select() then exchanges these targets
 * with the previous ones of the segment. The caller closes the previous targets
 * after it has released the lock.
 */
struct segment_targets {
	struct tei_rail_peer *peer;
	struct engine_local_process *local;
	struct tei_nvmeof_seg *files;
	int why_not_local;		/* engine_segment.why_not_local */
};

static void segment_put_targets(struct engine *e, struct segment_targets *t)
{
	if (t->peer)
		tei_rail_peer_put(t->peer);
	engine_local_process_put(t->local);
	tei_nvmeof_seg_put(t->files);
	memset(t, 0, sizeof(*t));
	segment_close_processes(e, false);
}

static void segment_free(struct engine *e, struct engine_segment *s)
{
	struct segment_targets t = {
		.peer = s->peer, .local = s->local, .files = s->files,
	};

	segment_put_targets(e, &t);
	tei_meta_desc_unref(s->desc);
	free(s);
}

void engine_segment_attach_own(struct engine *e)
{
	tei_rwlock_write(&e->segments);
	engine_transports_attach(e, NULL, &e->own_vias);
	tei_rwlock_unlock(&e->segments);
}

void engine_segment_free_all(struct engine *e)
{
	tei_meta_cache_detach_all(e->cache);
}

void engine_segment_close_all(struct engine *e)
{
	segment_close_processes(e, true);
}

/* --- targets ------------------------------------------------------------- */

bool engine_segment_on_gpu(const struct tei_meta_buffer *b)
{
	return !strncmp(b->location, "cuda:", 5);
}

static bool segment_has_gpu(const struct tei_meta_desc *desc)
{
	uint32_t i;

	for (i = 0; i < desc->buffer_count; i++)
		if (engine_segment_on_gpu(&desc->buffers[i]))
			return true;
	return false;
}

/*
 * Opens the process of a descriptor for kernel copies. Returns NULL if this
 * engine, the process or the kernel does not allow them. On input, *why is the
 * reason why the previous attempt failed; on output, the reason why this
 * attempt failed, or 0. Logs the reason if it differs from the previous one.
 */
static struct engine_local_process *
segment_try_local(struct engine *e, const struct tei_meta_desc *d, int *why)
{
	struct tei_local_peer *peer = NULL;
	struct tei_local_id id;
	int before = *why;

	*why = 0;
	if (!__atomic_load_n(&e->local_on, __ATOMIC_RELAXED) || !*d->local)
		return NULL;
	*why = engine_local_parse(e, d->local, &id);
	if (!*why)
		*why = (int)tei_local_peer_open(e->local, &id, NULL, &peer);
	if (peer) {
		TEI_INFO("engine", "peer %s: local (%s)", d->name,
			 tei_local_peer_is_self(peer) ?
				 "memcpy" :
				 "process_vm; memcpy for mapped memory");
		return segment_local_process(e, peer);
	}
	if (*why != before)
		TEI_INFO("engine", "peer %s: no local copies: %s",
			 d->name, engine_local_why(*why));
	return NULL;
}

/* Returns true if the segment has a local process and desc describes that
 * process. */
static bool segment_same_local(struct engine *e, const struct engine_segment *s,
			       const struct tei_meta_desc *desc)
{
	return s->local && s->desc->incarnation == desc->incarnation &&
	       !strcmp(s->desc->local, desc->local) &&
	       __atomic_load_n(&e->local_on, __ATOMIC_RELAXED);
}

/* Returns true if the segment has that descriptor and its targets need not be
 * opened again. e->segments must be held. */
static bool segment_fine(const struct engine_segment *s,
			 const struct tei_meta_desc *desc)
{
	return s && !s->off_route && tei_meta_desc_equal(s->desc, desc) &&
	       !(s->files && tei_nvmeof_seg_failed(s->files));
}

/* Opens the files and the local process of desc. Leaves t->local NULL if the
 * segment already has this local process. The caller must not hold
 * e->segments. */
static void segment_open_targets(struct engine *e,
				 const struct engine_segment *s,
				 const struct tei_meta_desc *desc,
				 struct segment_targets *t)
{
	memset(t, 0, sizeof(*t));
	t->why_not_local = s->why_not_local;
	t->files = engine_files_open(e, desc);
	if (!segment_same_local(e, s, desc))
		t->local = segment_try_local(e, desc, &t->why_not_local);
}

/*
 * Sets the segment's descriptor to desc, which may be its present one, and its
 * targets to the peer of desc and the targets in *t. *t receives the previous
 * targets. After an error the segment keeps its descriptor and targets, and the
 * next call tries again. e->segments must be held for writing.
 */
static int segment_select(struct engine *e, struct engine_segment *s,
			  struct tei_meta_desc *desc, struct segment_targets *t,
			  struct tei_err *err)
{
	struct tei_rail_peer *peer = NULL;
	struct engine_local_process *local = s->local;
	struct tei_nvmeof_seg *files = s->files;
	struct engine_contacts contacts;
	int ret = 0;

	if (segment_contacts(e, desc, &contacts))
		ret = tei_rail_peer_get(e->dp, desc->name, desc->incarnation,
					contacts.at, contacts.n, err, &peer);
	s->off_route = ret;
	if (ret)
		return ret;
	if (t->local || !segment_same_local(e, s, desc)) {
		s->local = t->local;
		t->local = local;
		s->why_not_local = t->why_not_local;
	}
	t->peer = s->peer;
	s->peer = peer;
	s->files = t->files;
	t->files = files;
	tei_meta_desc_ref(desc);
	tei_meta_desc_unref(s->desc);
	s->desc = desc;
	s->gpu = segment_has_gpu(desc) && tei_staging_remote_on(e->staging);
	engine_transports_attach(e, s, &s->vias);
	return 0;
}

/* Does the job of engine_segment_sweep. Runs in a worker thread, because unmapping
 * may block in the driver. */
static void segment_unmap(struct engine *e, const struct engine_work *w)
{
	struct engine_local_process *n;

	(void)w;
	segment_close_processes(e, false);
	tei_mutex_lock(&e->processes.lock);
	for (n = e->processes.list; n; n = n->next)
		if (engine_ipc_mapped(n->ipc))
			engine_ipc_unmap_stale(n->ipc);
	tei_mutex_unlock(&e->processes.lock);
}

/* Returns true if GPU memory of the process is to be unmapped. */
static bool segment_unmaps(const struct engine_local_process *n)
{
	if (!engine_ipc_mapped(n->ipc))
		return false;
	/* a process without references is one whose segment was closed while
	 * tasks used it */
	return !__atomic_load_n(&n->refs, __ATOMIC_ACQUIRE) ||
	       engine_ipc_stale(n->ipc);
}

void engine_segment_sweep(void *arg)
{
	static const struct engine_work_kind kind = {
		.run = segment_unmap,
		.single = ENGINE_WORK_UNMAP,
	};
	struct engine_local_process *n;
	struct engine *e = arg;
	bool stale = false;

	/* The GPU's thread waits for no lock, because a thread that has it may
	 * be in a call of the driver. The next sweep comes in a second. */
	if (!tei_mutex_trylock(&e->processes.lock))
		return;
	for (n = e->processes.list; n && !stale; n = n->next)
		stale = segment_unmaps(n);
	tei_mutex_unlock(&e->processes.lock);
	if (stale)
		engine_work_at(e, &kind, 0);
}

bool engine_segment_drain(struct engine *e, uint64_t until_ns)
{
	bool alone;

	for (;;) {
		segment_close_processes(e, false);
		tei_mutex_lock(&e->processes.lock);
		alone = !e->processes.list;
		tei_mutex_unlock(&e->processes.lock);
		if (alone || tei_now_ns() >= until_ns)
			return alone;
		tei_local_progress(e->local);
		tei_sleep_ns(TEI_NS_PER_MS / 5);
	}
}

/* Creates the struct engine_segment of a segment, without targets. Returns NULL
 * if memory is short. */
static struct engine_segment *segment_new(segment_id_t id,
					  const struct tei_meta_desc *desc,
					  struct tei_err *err)
{
	struct engine_segment *s = calloc(1, sizeof(*s));

	if (s)
		s->id = id;
	else
		tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
			     "no memory for segment %.64s", desc->name);
	return s;
}

/*
 * Sets the targets of a segment according to its descriptor in the cache. If
 * "again" is false, does nothing if they are set already. Creates the struct
 * engine_segment for a new segment. Only this function changes the targets of a
 * segment. The cache calls it for one segment in one thread at a time.
 */
static int segment_attach(void *arg, int32_t id, struct tei_meta_desc *desc,
			  bool again, void **data, struct tei_err *err)
{
	struct engine *e = arg;
	struct engine_segment *s = *data;
	struct segment_targets t;
	struct tei_err none;
	int ret;

	if (!again && segment_fine(s, desc))
		return 0;
	if (!s)
		s = segment_new(id, desc, err);
	if (!s)
		return TEI_ERR_MEMORY;
	segment_open_targets(e, s, desc, &t);
	tei_rwlock_write(&e->segments);
	ret = segment_select(e, s, desc, &t, err ? err : &none);
	tei_rwlock_unlock(&e->segments);
	segment_put_targets(e, &t);
	if (ret && !*data)
		free(s);
	else
		*data = s;
	return ret;
}

static void segment_detach(void *arg, void *data)
{
	struct engine *e = arg;

	/* locks e->segments for writing to wait for the threads that have found
	 * the segment and are still using it */
	tei_rwlock_write(&e->segments);
	tei_rwlock_unlock(&e->segments);
	segment_free(e, data);
}

const struct tei_meta_cache_ops engine_segment_ops = {
	.attach = segment_attach,
	.detach = segment_detach,
};

/*
 * Returns true if the descriptor of an open segment must be read again. If the
 * store reports restarts of peers, that is the case only if the peer is gone or
 * is being fenced. If the store does not report them, it is also the case if
 * the peer has sent nothing for 5 ms.
 */
static bool segment_stale(struct engine *e, const char *name)
{
	int32_t id = tei_meta_cache_lookup(e->cache, name);
	struct engine_segment *s;
	bool stale = false;

	if (id <= 0)
		return false;
	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	/* a segment without a peer: its descriptor may have been read before
	 * the other process had rails */
	if (s && s->peer)
		stale = tei_meta_store_caps(e->store) & TEI_META_REPORTS ?
			!tei_rail_peer_sound(s->peer) :
			!tei_rail_peer_healthy(s->peer);
	else
		stale = s != NULL;
	tei_rwlock_unlock(&e->segments);
	return stale;
}

static segment_id_t segment_open(struct engine *e, const char *name, bool fresh)
{
	struct tei_err err;
	bool stale;
	int32_t id;
	int ret;

	memset(&err, 0, sizeof(err));
	while (*name == '/')
		name++;
	fresh |= e->settings.store.no_segment_cache;
	stale = !fresh && segment_stale(e, name);
	ret = tei_meta_cache_open(e->cache, name, fresh || stale,
				  engine_deadline(e), &id, &err);
	/* if the store is unavailable, uses the descriptor in the cache, so
	 * that open segments stay usable */
	if (ret == TEI_ERR_SOCKET && stale &&
	    tei_meta_store_caps(e->store) & TEI_META_KEEPS)
		ret = tei_meta_cache_open(e->cache, name, false,
					  engine_deadline(e), &id, &err);
	return ret ? -1 : id;
}

static segment_id_t segment_open_checked(transfer_engine_t engine,
					 const char *name, bool fresh)
{
	struct engine *e = engine_from(engine);
	struct tei_err err;

	if (!e)
		return -1;
	if (!name || !*name) {
		tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
			     "openSegment: the segment name is empty");
		return -1;
	}
	return segment_open(e, name, fresh);
}

/* --- the calls ----------------------------------------------------------- */

segment_id_t openSegment(transfer_engine_t engine, const char *segment_name)
{
	return segment_open_checked(engine, segment_name, false);
}

segment_id_t openSegmentNoCache(transfer_engine_t engine,
				const char *segment_name)
{
	return segment_open_checked(engine, segment_name, true);
}

int closeSegment(transfer_engine_t engine, segment_id_t segment_id)
{
	struct engine *e = engine_from(engine);

	if (!e)
		return TEI_ERR_INVALID;
	/* Returns 0 for an unknown id, too. So does Mooncake, whose clients may
	 * close an id twice. */
	if (tei_meta_cache_close(e->cache, segment_id, NULL))
		engine_bad(e, __func__, "no such segment");
	return 0;
}

int removeLocalSegment(transfer_engine_t engine, const char *segment_name)
{
	struct engine *e = engine_from(engine);

	if (!e || !segment_name || !*segment_name)
		return engine_bad(e, __func__, NULL);
	return tei_meta_cache_forget(e->cache, segment_name);
}

void engine_segment_reevaluate(struct engine *e)
{
	segment_id_t ids[ENGINE_IDS];
	struct tei_err err;
	uint32_t from = 0;
	size_t i, n;

	do {
		n = tei_meta_cache_ids(e->cache, &from, ids, ENGINE_IDS);
		for (i = 0; i < n; i++)
			tei_meta_cache_attach(e->cache, ids[i], &err);
	} while (n == ENGINE_IDS);
}

int syncSegmentCache(transfer_engine_t engine)
{
	struct engine *e = engine_from(engine);
	struct tei_err err;

	if (!e)
		return TEI_ERR_INVALID;
	return tei_meta_cache_sync(
		e->cache,
		e->settings.control.connect_timeout_s * TEI_NS_PER_SEC, &err);
}

int warmupEfaSegment(transfer_engine_t engine, const char *segment_name)
{
	struct engine *e = engine_from(engine);
	struct tei_rail_peer *peer = NULL;
	struct engine_segment *s;
	struct tei_err err;
	segment_id_t id;
	int ret = 0;

	if (!e || !segment_name || !*segment_name)
		return engine_bad(e, __func__, NULL);
	id = segment_open(e, segment_name, false);
	if (id < 0)
		return tei_err_last()->code ? tei_err_last()->code :
					      TEI_ERR_METADATA;
	if (id == LOCAL_SEGMENT)
		return 0;
	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	if (s && s->peer) {
		peer = s->peer;
		tei_rail_peer_hold(peer);
	}
	tei_rwlock_unlock(&e->segments);
	if (peer) {
		ret = tei_rail_peer_warmup(
			peer,
			e->settings.control.connect_timeout_s * TEI_NS_PER_SEC,
			&err);
		tei_rail_peer_put(peer);
	}
	closeSegment(engine, id);
	return ret;
}

/*
 * Looks up the name of a peer again and reports its incarnation and addresses
 * to the data plane, or that its control channel refuses connections. If names
 * in the store are addresses, the control channel is tried first. Otherwise the
 * peer may have been restarted at another address, so the store is queried
 * first.
 */
static void segment_resolve(struct engine *e, const struct engine_work *w)
{
	struct tei_rail_peer *peer = w->peer;
	const char *name = tei_rail_peer_name(peer);
	bool address = tei_meta_store_caps(e->store) & TEI_META_ADDRESSES;
	struct engine_contacts contacts;
	struct tei_meta_desc *desc;
	struct tei_err err;
	int32_t id;

	id = tei_meta_cache_lookup(e->cache, name);
	if (id <= 0)
		return;
	if (address && tei_meta_store_refused(e->store, name)) {
		tei_rail_peer_no_control(peer);
		return;
	}
	if (tei_meta_cache_refresh(e->cache, id, tei_now_ns() + TEI_NS_PER_SEC,
				   NULL, &err))
		return;
	desc = tei_meta_cache_get(e->cache, id);
	if (!desc)
		return;
	if (segment_contacts(e, desc, &contacts))
		tei_rail_peer_resolved(peer, desc->incarnation, contacts.at,
				       contacts.n);
	if (!address && desc->incarnation == tei_rail_peer_incarnation(peer) &&
	    tei_meta_store_refused(e->store, name))
		tei_rail_peer_no_control(peer);
	tei_meta_desc_unref(desc);
}

void engine_segment_resolve_later(struct engine *e, struct tei_rail_peer *peer)
{
	static const struct engine_work_kind kind = { .run = segment_resolve };

	engine_work_peer(e, &kind, peer);
}

/*
 * Returns the deadline of an attempt to read a descriptor. A process that is
 * stopped must not delay the refresh of other segments, so the first attempt
 * may take 1 s. Each further attempt may take twice as long as the previous
 * one, so that a slow process can answer.
 */
static uint64_t segment_refresh_deadline(const struct engine *e, uint32_t tries)
{
	uint64_t at = engine_deadline(e), soon;

	if (tries >= ENGINE_TRIES_MAX)
		return at;
	soon = tei_now_ns() + (TEI_NS_PER_SEC << tries);
	return soon < at ? soon : at;
}

/*
 * Reads the descriptor of an open segment again. Does nothing if the segment is
 * no longer open. Also handles a segment that is being opened, because the open
 * may have read the previous descriptor. The id of the segment stays the same.
 * After a failure, asks the store to notify again.
 */
static void segment_refresh(struct engine *e, const struct engine_work *w)
{
	struct tei_err err;
	int32_t id;
	int ret;

	ret = tei_meta_cache_refresh_name(e->cache, w->name,
					  segment_refresh_deadline(e, w->tries),
					  &id, &err);
	if (ret)
		tei_meta_store_notify_again(e->store, w->name);
}

void engine_segment_refresh_later(struct engine *e, const char *name,
				  uint32_t tries)
{
	static const struct engine_work_kind kind = { .run = segment_refresh };

	engine_work_named(e, &kind, name, tries);
}

/* Returns true at most once per ENGINE_UNRESOLVED_NS, to one of the threads
 * that call it. *next is the earliest time at which it returns true again,
 * ns. */
static bool segment_due(uint64_t *next)
{
	uint64_t from = __atomic_load_n(next, __ATOMIC_RELAXED);
	uint64_t now = tei_now_ns();

	return now >= from &&
	       __atomic_compare_exchange_n(next, &from,
					   now + ENGINE_UNRESOLVED_NS, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void engine_segment_unresolved(struct engine *e, struct engine_segment *s)
{
	if (!(tei_meta_store_caps(e->store) & TEI_META_REPORTS) &&
	    segment_due(&s->asked_ns))
		engine_segment_refresh_later(e, s->desc->name,
					     ENGINE_TRIES_MAX);
}

/* --- local processes that end --------------------------------------------- */

/* The job that notifies the data plane that a local process has ended. */
static void segment_notify_end(struct engine *e, const struct engine_work *w)
{
	int32_t id = tei_meta_cache_lookup(e->cache, w->name);
	struct tei_rail_peer *peer = NULL;
	struct engine_segment *s;

	if (id <= 0)
		return;
	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	/* checks again that the process has ended, because the segment may
	 * belong to a restarted process by now */
	if (s && s->peer && s->local && tei_local_peer_ended(s->local->peer)) {
		peer = s->peer;
		tei_rail_peer_hold(peer);
	}
	tei_rwlock_unlock(&e->segments);
	if (!peer)
		return;
	tei_rail_peer_ended(peer, tei_local_reason_text(TEI_LOCAL_GONE));
	tei_rail_peer_put(peer);
}

static void segment_log_ended(struct engine *e, segment_id_t id,
			      struct engine_local_process *n)
{
	static const struct engine_work_kind kind = {
		.run = segment_notify_end,
	};
	struct tei_meta_desc *desc;

	if (!segment_due(&n->report_ns))
		return;
	desc = tei_meta_cache_get(e->cache, id);
	if (desc)
		engine_work_named(e, &kind, desc->name, 0);
	tei_meta_desc_unref(desc);
}

bool engine_segment_ended(struct engine *e, segment_id_t id,
			  struct engine_local_process *n)
{
	if (!tei_local_peer_ended(n->peer))
		return false;
	segment_log_ended(e, id, n);
	return true;
}

bool engine_segment_ended_as(struct engine *e, const char *name,
			     uint64_t incarnation)
{
	int32_t id = tei_meta_cache_lookup(e->cache, name);
	struct engine_segment *s;
	bool ended;

	if (id <= 0)
		return false;
	tei_rwlock_read(&e->segments);
	s = engine_segment_find(e, id);
	ended = s && s->local && s->desc->incarnation == incarnation &&
		engine_segment_ended(e, id, s->local);
	tei_rwlock_unlock(&e->segments);
	return ended;
}

/* --- memory that a target does not have ----------------------------------- */

#define SEGMENT_AGAIN_NS TEI_NS_PER_SEC /* back-off after a descriptor could not
					 * be read */

static uint64_t *segment_absent_at(struct engine *e, segment_id_t id)
{
	return &e->absent_ns[tei_meta_slot(id) % ENGINE_ABSENT];
}

/* Returns true if the descriptor lists the whole range. Sets *lent to true if
 * the range includes GPU memory that is reached through remote bounce slots. */
static bool segment_lists(const struct tei_meta_desc *desc, uint64_t addr,
			  uint64_t len, bool *lent)
{
	const struct tei_meta_buffer *b;
	uint64_t have;

	for (*lent = false; len; addr += have, len -= have) {
		b = tei_meta_desc_find(desc, addr, 1);
		if (!b)
			return false;
		*lent |= engine_segment_on_gpu(b) &&
			 !tei_meta_desc_has_keys(desc, b);
		have = b->length - (addr - b->addr);
		have = have < len ? have : len;
	}
	return true;
}

/* Replaces the descriptor "known" of an open segment by desc, if desc is newer
 * and belongs to the same process. */
static void segment_take(struct engine *e, const struct tei_meta_desc *known,
			 struct tei_meta_desc *desc)
{
	struct tei_err err;
	int32_t id;

	/* the process that has refused the request is alive, so a descriptor
	 * that another process has published under the same name is not used */
	if (desc->incarnation != known->incarnation ||
	    tei_meta_cache_put(e->cache, desc, false, &id, &err))
		return;
	tei_meta_cache_close(e->cache, id, NULL);
}

/* Reads the descriptor of a segment again. Replaces the present descriptor if
 * the new one is newer and belongs to the same process. */
static void segment_reload(struct engine *e, const struct engine_work *w)
{
	int32_t id = tei_meta_cache_lookup(e->cache, w->name);
	struct tei_meta_desc *known, *desc;
	struct tei_err err;

	known = id > 0 ? tei_meta_cache_get(e->cache, id) : NULL;
	if (!known)
		return;
	if (!tei_meta_store_fetch(e->store, w->name, engine_deadline(e), &desc,
				  &err)) {
		segment_take(e, known, desc);
		tei_meta_desc_unref(desc);
	} else {
		__atomic_store_n(segment_absent_at(e, id),
				 tei_now_ns() + SEGMENT_AGAIN_NS,
				 __ATOMIC_RELAXED);
	}
	tei_meta_desc_unref(known);
}

static void segment_ask(struct engine *e, segment_id_t id, const char *name)
{
	static const struct engine_work_kind kind = { .run = segment_reload };

	if (segment_due(segment_absent_at(e, id)))
		engine_work_named(e, &kind, name, 0);
}

void engine_segment_absent(struct engine *e, segment_id_t id,
			   struct tei_err *err)
{
	struct tei_meta_desc *desc = tei_meta_cache_get(e->cache, id);
	bool lent;

	if (!desc)
		return; /* the segment was closed meanwhile */
	err->stale = segment_lists(desc, err->absent.addr, err->absent.length,
				   &lent);
	if (err->stale)
		snprintf(err->hint, sizeof(err->hint),
			 "the target has unregistered that memory: get the "
			 "buffers with te_segment_buffers again, or import a "
			 "newer blob");
	if (!*err->peer)
		snprintf(err->peer, sizeof(err->peer), "%.95s", desc->name);
	/* The present descriptor is kept if the memory is GPU memory that is
	 * reached through remote bounce slots. A newer descriptor would not
	 * list it. If the target registered it again later, requests would not
	 * know that it is GPU memory. */
	if (!(err->stale && lent))
		segment_ask(e, id, desc->name);
	tei_meta_desc_unref(desc);
}

/* Describes buffer i of a descriptor, or file i if it is that of a file
 * segment. */
static void segment_buffer(const struct tei_meta_desc *desc, size_t i,
			   struct te_buffer *b)
{
	memset(b, 0, sizeof(*b));
	if (desc->file_count) {
		b->addr = desc->files[i].offset;
		b->length = desc->files[i].length;
		snprintf(b->location, sizeof(b->location), "file");
		return;
	}
	b->addr = desc->buffers[i].addr;
	b->length = desc->buffers[i].length;
	snprintf(b->location, sizeof(b->location), "%.63s",
		 desc->buffers[i].location);
	if (desc->buffers[i].label)
		snprintf(b->label, sizeof(b->label), "%s",
			 desc->buffers[i].label);
}

/* Returns the descriptor of an open segment or of the own segment, with a
 * reference for the caller. Returns NULL if there is none. */
static struct tei_meta_desc *segment_desc(struct engine *e, segment_id_t id)
{
	return id == LOCAL_SEGMENT ? engine_describe(e)
				   : tei_meta_cache_get(e->cache, id);
}

int te_segment_buffers(transfer_engine_t engine, segment_id_t segment_id,
		       struct te_buffer *bufs, size_t elem_size, size_t *count)
{
	struct engine *e = engine_from(engine);
	struct tei_meta_desc *desc;
	struct te_buffer b;
	size_t i, room, n;

	if (!e || !count || (*count && (!bufs || !elem_size)))
		return engine_bad(e, __func__, NULL);
	desc = segment_desc(e, segment_id);
	if (!desc)
		return engine_bad(e, __func__, "no such segment");
	room = *count;
	n = desc->file_count ? desc->file_count : desc->buffer_count;
	for (i = 0; i < n && i < room; i++) {
		segment_buffer(desc, i, &b);
		engine_out((char *)bufs + i * elem_size, elem_size, &b,
			   sizeof(b));
	}
	*count = n;
	tei_meta_desc_unref(desc);
	return 0;
}

/* Describes the whole range that has the label as one buffer. */
static void segment_labelled(const struct tei_meta_desc *desc,
			     const struct tei_meta_label *l,
			     struct te_buffer *b)
{
	const struct tei_meta_buffer *first =
		tei_meta_desc_find(desc, l->addr, 1);

	memset(b, 0, sizeof(*b));
	b->addr = l->addr;
	b->length = l->length;
	if (first)
		snprintf(b->location, sizeof(b->location), "%.63s",
			 first->location);
	snprintf(b->label, sizeof(b->label), "%s", l->text);
}

int te_segment_find(transfer_engine_t engine, segment_id_t segment_id,
		    const char *label, struct te_buffer *bufs, size_t elem_size,
		    size_t *count)
{
	const struct tei_meta_label *const *found = NULL;
	struct engine *e = engine_from(engine);
	struct tei_meta_desc *desc;
	struct te_buffer b;
	struct tei_err err;
	size_t i, n;

	if (!e || !count || (*count && (!bufs || !elem_size)))
		return engine_bad(e, __func__, NULL);
	if (label && !*label)
		return engine_bad(e, __func__, "the label is empty");
	desc = segment_desc(e, segment_id);
	if (!desc)
		return engine_bad(e, __func__, "no such segment");
	n = label ? tei_meta_desc_find_label(desc, label, &found)
		  : desc->label_count;
	if (label && !n) {
		tei_err_note(&err, TEI_ERR_NOT_REGISTERED, "engine",
			     "if the target has registered the label meanwhile, call "
			     "syncSegmentCache",
			     "te_segment_find: segment '%.64s' has no label "
			     "'%.40s'",
			     desc->name, label);
		tei_meta_desc_unref(desc);
		return TEI_ERR_NOT_REGISTERED;
	}
	for (i = 0; i < n && i < *count; i++) {
		segment_labelled(desc, label ? found[i] : &desc->labels[i], &b);
		engine_out((char *)bufs + i * elem_size, elem_size, &b,
			   sizeof(b));
	}
	*count = n;
	tei_meta_desc_unref(desc);
	return 0;
}
