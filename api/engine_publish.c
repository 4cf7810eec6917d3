/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Publication of the own descriptor.
 *
 * The descriptor is built when it is needed: for a peer's request to the
 * control channel, for a publication in a store, or for the program. A
 * registration only raises listing.version, so its cost does not grow with the
 * number of regions.
 *
 * With P2PHANDSHAKE there is no store; the control channel always answers with
 * the present descriptor. A store contains a text, which either lists the
 * buffers or refers to the control channel for them.
 *
 *  - A text that lists the buffers must always be correct. So a call that
 *    changes the buffers writes the new text to the store before it returns. If
 *    the last publication was less than PUBLISH_REST_NS ago, the new text
 *    refers to the control channel.
 *  - A text that refers to the control channel stays correct when the buffers
 *    change. A worker thread writes it again, at most every PUBLISH_REST_NS, so
 *    that peers that watch it are notified. Once the buffers no longer change,
 *    the text of the worker thread lists them again, if they fit.
 *
 * So if there are many registrations in a row, at most two of them wait for the
 * store. If a publication has failed, or if the store is known to be
 * unavailable or to refuse publications, the next call publishes the descriptor
 * itself and returns the store's error.
 *
 * listing.store is held during a publication; no other lock is held then.
 */
#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/text.h"

#include <stdlib.h>

#define PUBLISH_REST_NS		(250 * TEI_NS_PER_MS)
/* first back-off of a worker thread after a failed publication */
#define PUBLISH_AGAIN_NS TEI_NS_PER_SEC
/* greatest number of times that the back-off is doubled */
#define PUBLISH_AGAIN_MAX 6

static struct tei_meta_desc *publish_source(void *arg)
{
	return engine_describe(arg);
}

void engine_publish_init(struct engine *e)
{
	tei_mutex_init(&e->listing.lock);
	tei_mutex_init(&e->listing.store);
}

void engine_publish_fini(struct engine *e)
{
	tei_meta_desc_unref(e->listing.head);
	tei_meta_desc_unref(e->listing.desc);
	tei_mutex_fini(&e->listing.store);
	tei_mutex_fini(&e->listing.lock);
}

bool engine_published(struct engine *e)
{
	bool is;

	tei_mutex_lock(&e->listing.lock);
	is = e->listing.head != NULL;
	tei_mutex_unlock(&e->listing.lock);
	return is;
}

/* --- the descriptor ------------------------------------------------------- */

/* Returns the next serial number for a descriptor. It is derived from the time
 * of day, so that a restarted process has higher serial numbers than its
 * predecessor. */
static uint64_t publish_serial(struct engine_listing *l)
{
	uint64_t now = tei_wall_ns();

	l->serial = now > l->serial ? now : l->serial + 1;
	return l->serial;
}

static int publish_make(struct engine *e, struct tei_meta_desc **out,
			struct tei_err *err)
	TEI_REQUIRES(e->listing.lock)
{
	struct engine_listing *l = &e->listing;
	struct tei_meta_desc *desc;
	int ret;

	if (!l->head)
		return tei_err_fail(err, TEI_ERR_METADATA, "engine", NULL,
				    "this engine has not published a descriptor yet");
	ret = tei_meta_desc_copy_head(l->head, &desc, err);
	if (ret)
		return ret;
	ret = tei_meta_desc_set_serial(desc, publish_serial(l), err);
	if (!ret)
		ret = engine_desc_buffers(e, desc, err);
	return tei_meta_desc_finish(desc, ret, out, err);
}

static int publish_describe(struct engine *e, struct tei_meta_desc **out,
			    struct tei_err *err)
	TEI_REQUIRES(e->listing.lock)
{
	struct engine_listing *l = &e->listing;
	struct tei_meta_desc *desc = NULL;
	int ret;

	if (!l->desc || l->desc_version != l->version) {
		ret = publish_make(e, &desc, err);
		if (ret)
			return ret;
		tei_meta_desc_unref(l->desc);
		l->desc = desc;
		l->desc_version = l->version;
	}
	*out = tei_meta_desc_ref(l->desc);
	return 0;
}

struct tei_meta_desc *engine_describe(struct engine *e)
{
	struct tei_meta_desc *desc = NULL;
	struct tei_err err;

	tei_mutex_lock(&e->listing.lock);
	if (e->listing.head)
		publish_describe(e, &desc, &err);
	tei_mutex_unlock(&e->listing.lock);
	return desc;
}

/* --- rails and regions ---------------------------------------------------- */

/* Builds the entries of all regions for a descriptor that has those rails. p
 * has one element for each region. The caller frees the entries, even after an
 * error. */
static int publish_collect(struct engine *e,
			   const struct engine_desc_rails *rails,
			   struct engine_pieces *p, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < e->memory.n && !ret; i++)
		if (e->memory.regions[i].remote)
			ret = engine_desc_collect(
				e, rails, &e->memory.regions[i], &p[i], err);
	return ret;
}

/* Exchanges the entries of all regions with those in p, which has one element
 * for each region. The caller then frees the old entries. */
static void publish_swap(struct engine *e, struct engine_pieces *p)
	TEI_REQUIRES(e->control) TEI_REQUIRES(e->listing.lock)
{
	struct engine_pieces old;
	uint32_t i;

	for (i = 0; i < e->memory.n; i++) {
		old = e->memory.regions[i].pieces;
		e->memory.regions[i].pieces = p[i];
		p[i] = old;
	}
}

static void publish_head(struct engine *e, struct tei_meta_desc *head,
			 const struct engine_desc_rails *rails,
			 struct engine_pieces *p) TEI_REQUIRES(e->control)
{
	struct engine_listing *l = &e->listing;
	struct tei_meta_desc *old;

	tei_meta_cache_set_local(e->cache, head);
	tei_mutex_lock(&e->listing.lock);
	publish_swap(e, p);
	old = l->head;
	l->head = head;
	l->rails = *rails;
	l->version++;
	tei_mutex_unlock(&e->listing.lock);
	if (!old)
		tei_meta_server_source(e->server, e->name, publish_source, e);
	tei_meta_desc_unref(old);
}

int engine_republish(struct engine *e, struct tei_err *err)
{
	uint32_t i, n = e->memory.n;
	struct engine_desc_rails rails;
	struct engine_pieces *p;
	struct tei_meta_desc *head;
	int ret;

	p = calloc(n ? n : 1, sizeof(*p));
	if (!p)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory to publish %u region%s", n,
				    tei_plural(n));
	ret = engine_desc_head(e, &rails, &head, err);
	if (ret)
		goto err_pieces;
	ret = publish_collect(e, &rails, p, err);
	if (ret)
		tei_meta_desc_unref(head);
	else
		publish_head(e, head, &rails, p);
err_pieces:
	for (i = 0; i < n; i++)
		free(p[i].word);
	free(p);
	return ret;
}

/* --- the store ------------------------------------------------------------ */

/* Writes the descriptor to the store. If "head" is true, leaves out the
 * buffers. report_loss is that of engine_publish. */
static int publish_locked(struct engine *e, bool report_loss, bool head,
			  struct tei_err *err) TEI_REQUIRES(e->listing.store)
{
	struct engine_listing *l = &e->listing;
	uint32_t flags = (report_loss ? TEI_META_REPORT_LOSS : 0) |
			 (head ? TEI_META_HEAD : 0);
	struct tei_meta_desc *desc = NULL;
	bool listed = true;
	int ret;

	tei_mutex_lock(&e->listing.lock);
	ret = publish_describe(e, &desc, err);
	if (ret)
		desc = NULL;
	/* l->listed is set before the attempt, because the store may have
	 * received the text even if the attempt fails */
	l->listed |= !head;
	tei_mutex_unlock(&e->listing.lock);
	if (!ret) {
		ret = tei_meta_store_bring(e->store, desc, flags,
					   engine_deadline(e), &listed, err);
		tei_meta_desc_unref(desc);
	}
	tei_mutex_lock(&e->listing.lock);
	l->failed = ret;
	l->stored_ns = tei_now_ns();
	if (!ret) {
		l->listed = listed;
		l->tries = 0;
	}
	tei_mutex_unlock(&e->listing.lock);
	return ret;
}

/* Updates the own descriptor and publishes it, because the rails have
 * changed. */
static void publish_rails(struct engine *e, const struct engine_work *w)
{
	struct tei_err err;
	int ret;

	(void)w;
	if (!engine_published(e))
		return;
	tei_mutex_lock(&e->control);
	ret = engine_republish(e, &err);
	tei_mutex_unlock(&e->control);
	if (!ret)
		engine_publish(e, false, &err);
}

void engine_publish_soon(struct engine *e)
{
	static const struct engine_work_kind kind = {
		.run = publish_rails,
		.single = ENGINE_WORK_PUBLISH,
	};

	engine_work_at(e, &kind, 0);
}

/* Publishes the descriptor for a call of the application. Waits for the mutex
 * listing.store. */
static int publish_store(struct engine *e, bool report_loss, bool head,
			 struct tei_err *err)
{
	struct engine_listing *l = &e->listing;
	int ret;

	tei_mutex_lock(&l->lock);
	l->waiting++;
	tei_mutex_unlock(&l->lock);
	tei_mutex_lock(&e->listing.store);
	ret = publish_locked(e, report_loss, head, err);
	tei_mutex_unlock(&e->listing.store);
	tei_mutex_lock(&l->lock);
	l->waiting--;
	tei_mutex_unlock(&l->lock);
	return ret;
}

/*
 * Publishes the descriptor for a worker thread. Returns false if the attempt
 * failed. If a call of the application waits for listing.store, does nothing
 * and returns false: each attempt may take MC_HANDSHAKE_CONNECT_TIMEOUT while
 * the store is unavailable, and a call must wait for one attempt of a worker
 * thread at most.
 */
static bool publish_for_worker(struct engine *e, bool head)
{
	struct engine_listing *l = &e->listing;
	struct tei_err err;
	bool yields;
	int ret = 0;

	tei_mutex_lock(&e->listing.store);
	tei_mutex_lock(&l->lock);
	yields = l->waiting > 0;
	tei_mutex_unlock(&l->lock);
	if (!yields)
		ret = publish_locked(e, false, head, &err);
	tei_mutex_unlock(&e->listing.store);
	return !yields && !ret;
}

int engine_publish(struct engine *e, bool report_loss, struct tei_err *err)
{
	return publish_store(e, report_loss, false, err);
}

int engine_publish_regions(struct engine *e, struct tei_err *err)
{
	struct engine_listing *l = &e->listing;
	uint64_t due;
	bool later;

	if (!(tei_meta_store_caps(e->store) & TEI_META_KEEPS))
		return 0;
	tei_mutex_lock(&e->listing.lock);
	l->changed_ns = tei_now_ns();
	later = !l->failed && !l->listed;
	due = l->stored_ns + PUBLISH_REST_NS;
	tei_mutex_unlock(&e->listing.lock);
	if (later && tei_meta_store_owns(e->store, e->name)) {
		engine_publish_at(e, due);
		return 0;
	}
	if (tei_now_ns() >= due)
		return publish_store(e, true, false, err);
	engine_publish_at(e, tei_now_ns() + PUBLISH_REST_NS);
	return publish_store(e, true, true, err);
}

/*
 * The job that publishes the descriptor in a worker thread. While the
 * application goes on registering memory, the text refers to the control
 * channel, so that no registration has to wait. Once no region has changed for
 * PUBLISH_REST_NS, the text lists the buffers. After a failure, which was
 * logged where it was detected, the job is queued again with exponential
 * back-off.
 */
static void publish_later(struct engine *e, const struct engine_work *w)
{
	struct engine_listing *l = &e->listing;
	uint32_t tries;
	uint64_t now = tei_now_ns();
	bool busy;

	(void)w;
	tei_mutex_lock(&e->listing.lock);
	busy = now < l->changed_ns + PUBLISH_REST_NS;
	tei_mutex_unlock(&e->listing.lock);
	if (publish_for_worker(e, busy)) {
		if (busy)
			engine_publish_at(e, tei_now_ns() + PUBLISH_REST_NS);
		return;
	}
	/* queues the job again with a back-off, so that a call that waits for
	 * listing.store can lock it */
	tei_mutex_lock(&e->listing.lock);
	tries = l->tries;
	l->tries += tries < PUBLISH_AGAIN_MAX;
	tei_mutex_unlock(&e->listing.lock);
	engine_publish_at(e, tei_now_ns() + (PUBLISH_AGAIN_NS << tries));
}

void engine_publish_at(struct engine *e, uint64_t due_ns)
{
	static const struct engine_work_kind kind = {
		.run = publish_later,
		.single = ENGINE_WORK_STORE,
	};

	engine_work_at(e, &kind, due_ns);
}
