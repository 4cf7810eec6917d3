/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A transport that stores the bytes of other segments in files of a temporary
 * folder, with one file for each buffer. It is linked into the unit tests only,
 * and only one engine at a time can install it. It is an example of a complete
 * transport, which consists of a file like this one, a declaration, and a row
 * in engine_transports.c.
 */
#include "api/transport_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/engine_int.h"
#include "api/engine_transport.h"
#include "meta/tei_meta_desc.h"
#include "util/thread.h"
#include "util/world.h"

/* The data of this transport in a task (engine_task.room). */
struct store_task {
	struct tei_list link; /* element of store.queue */
	char *local;
	uint64_t offset; /* offset in the file */
	uint32_t buffer; /* index of the target's buffer to which the file
			  * belongs */
};

_Static_assert(sizeof(struct store_task) <= ENGINE_TASK_ROOM, "fits");

static struct store {
	struct engine *engine; /* does not change while installed */
	pthread_t thread;      /* does not change while installed */
	char folder[64];       /* does not change while installed */

	struct tei_mutex lock;		/* guards the members below */
	pthread_cond_t changed;
	struct tei_list queue; /* tasks that have not begun, linked by
				* store_task.link */
	bool busy;	       /* the thread is executing a task */
	bool paused, stop;
} store;

/* --- the thread ----------------------------------------------------------- */

static struct store_task *store_task(struct engine_task *t)
{
	return engine_task_room(t);
}

static void store_err(const struct engine_task *t, int code, const char *text,
		      struct tei_err *err)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->rail, sizeof(err->rail), "store");
	snprintf(err->text, sizeof(err->text), "segment %d: %s", t->target,
		 text);
}

/* Reads or writes the whole range of a task in the file. Returns 0 or an
 * errno. */
static int store_access(struct engine_task *t)
{
	struct store_task *s = store_task(t);
	uint64_t done = 0;
	char path[96];
	ssize_t n = 1;
	int fd;

	snprintf(path, sizeof(path), "%s/%d.%u", store.folder, t->target,
		 s->buffer);
	fd = open(path, O_CLOEXEC | (t->read ? O_RDONLY : O_RDWR | O_CREAT),
		  0600);
	if (fd < 0)
		return errno;
	for (; done < t->length && n > 0; done += n > 0 ? (uint64_t)n : 0)
		n = t->read ? pread(fd, s->local + done, t->length - done,
				    (off_t)(s->offset + done)) :
			      pwrite(fd, s->local + done, t->length - done,
				     (off_t)(s->offset + done));
	close(fd);
	return done == t->length ? 0 : EIO;
}

static void store_run(struct engine_task *t)
{
	int code = store_access(t);
	struct tei_err err;

	store_err(t, TEI_ERR_CONTEXT, strerror(code), &err);
	engine_task_end(t, code ? STATUS_FAILED : STATUS_COMPLETED, &err);
}

static void *store_main(void *arg)
{
	struct store_task *s;

	(void)arg;
	tei_mutex_lock(&store.lock);
	while (!store.stop) {
		if (store.paused || tei_list_empty(&store.queue)) {
			tei_mutex_wait(&store.changed, &store.lock,
				       TEI_NS_PER_SEC);
			continue;
		}
		s = tei_list_first(&store.queue, struct store_task, link);
		tei_list_del(&s->link);
		store.busy = true;
		tei_mutex_unlock(&store.lock);
		store_run(engine_task_from(s));
		tei_mutex_lock(&store.lock);
		store.busy = false;
		tei_cond_broadcast(&store.changed);
	}
	tei_mutex_unlock(&store.lock);
	return NULL;
}

void transport_store_pause(bool paused)
{
	tei_mutex_lock(&store.lock);
	store.paused = paused;
	tei_cond_broadcast(&store.changed);
	tei_mutex_unlock(&store.lock);
}

/* --- installation --------------------------------------------------------- */

static int store_install(struct engine *e, const char *proto,
			 struct tei_err *err)
{
	int ret;

	memset(&store, 0, sizeof(store));
	snprintf(store.folder, sizeof(store.folder), "/tmp/%s.XXXXXX", proto);
	if (!mkdtemp(store.folder))
		return tei_err_fail(err, TEI_ERR_CONTEXT, "engine", NULL,
				    "cannot create the folder %s: %s", store.folder,
				    strerror(errno));
	tei_mutex_init(&store.lock);
	tei_cond_init(&store.changed);
	tei_list_init(&store.queue);
	ret = tei_thread_start(&store.thread, false, store_main, NULL);
	if (ret)
		return tei_err_fail(err, TEI_ERR_CONTEXT, "engine", NULL,
				    "%s: %s", proto, strerror(ret));
	store.engine = e;
	engine_segment_reevaluate(e);
	return 0;
}

static bool store_drain(struct engine *e,
			const struct engine_transport_ops *through,
			uint64_t until_ns)
{
	bool left;

	if (through || store.engine != e)
		return true;
	tei_mutex_lock(&store.lock);
	while ((left = store.busy || !tei_list_empty(&store.queue)) &&
	       tei_now_ns() < until_ns)
		tei_mutex_wait(&store.changed, &store.lock, TEI_NS_PER_MS);
	tei_mutex_unlock(&store.lock);
	return !left;
}

static void store_close(struct engine *e)
{
	char command[96];

	if (store.engine != e)
		return;
	tei_mutex_lock(&store.lock);
	store.stop = true;
	tei_cond_broadcast(&store.changed);
	tei_mutex_unlock(&store.lock);
	tei_thread_join(store.thread);
	store.engine = NULL;
	snprintf(command, sizeof(command), "rm -r %s", store.folder);
	if (system(command))
		TEI_WARN("engine", "cannot remove the folder %s", store.folder);
}

static int store_uninstall(struct engine *e, const char *proto,
			   uint64_t until_ns, struct tei_err *err)
{
	if (!store_drain(e, NULL, until_ns))
		return tei_err_fail(err, TEI_ERR_BUSY, "engine", NULL,
				    "%s: requests are still in progress", proto);
	store_close(e);
	engine_segment_reevaluate(e);
	return 0;
}

/* --- tasks ---------------------------------------------------------------- */

static void *store_attach(struct engine *e, const struct engine_segment *s)
{
	return s && store.engine == e ? s->desc : NULL;
}

static int store_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct engine_target *target, void *at)
{
	const struct tei_meta_desc *desc = at;
	const struct tei_meta_buffer *b;
	struct store_task *s = store_task(t);

	(void)target;
	b = tei_meta_desc_find(desc, r->target_offset, r->length);
	if (!b)
		return 1;
	if (tei_local_region_check(e->local, r->source, r->length,
				   r->opcode == OPCODE_READ))
		return 3;
	engine_task_init(e, t, r, &transport_store);
	s->local = r->source;
	s->offset = r->target_offset - b->addr;
	s->buffer = (uint32_t)(b - desc->buffers);
	return 0;
}

static void store_start(struct engine *e, struct engine_task *t)
{
	(void)e;
	tei_mutex_lock(&store.lock);
	tei_list_add_tail(&store.queue, &store_task(t)->link);
	tei_cond_broadcast(&store.changed);
	tei_mutex_unlock(&store.lock);
}

/* Ends a task if the thread has not taken it out of the queue yet. */
static void store_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	struct store_task *s;
	bool queued = false;
	struct tei_err err;

	(void)e;
	tei_mutex_lock(&store.lock);
	tei_list_foreach(s, &store.queue, struct store_task, link)
		queued |= s == store_task(t);
	if (queued)
		tei_list_del(&store_task(t)->link);
	tei_mutex_unlock(&store.lock);
	if (!queued)
		return;
	store_err(t, deadline ? TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED,
		  "not started", &err);
	engine_task_end(t, deadline ? STATUS_FAILED : STATUS_CANCELED, &err);
}

static const char *const store_names[] = { "store", NULL };

const struct engine_transport_ops transport_store = {
	.names = store_names,
	.takes = ENGINE_HOST_HOST,
	.install = store_install,
	.uninstall = store_uninstall,
	.attach = store_attach,
	.prepare = store_prepare,
	.start = store_start,
	.cancel = store_cancel,
	.drain = store_drain,
	.close = store_close,
};
