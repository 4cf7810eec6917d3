/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport "nvmeof" for file segments. A request to a file segment reads
 * or writes the files that its descriptor lists.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "api/engine_transport.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_store.h"

_Static_assert(sizeof(struct tei_nvmeof_op) <= ENGINE_TASK_ROOM, "fits");

static struct tei_nvmeof *files_ctx(struct engine *e)
{
	return __atomic_load_n(&e->nvmeof, __ATOMIC_ACQUIRE);
}

/* --- memory -------------------------------------------------------------- */

int engine_files_mem_add(struct engine *e, void *addr, uint64_t len,
			 const char *location)
{
	struct tei_nvmeof *ctx = files_ctx(e);

	return ctx ? tei_nvmeof_mem_add(ctx, addr, len, location) : 0;
}

int engine_files_mem_remove(struct engine *e, void *addr, uint64_t deadline_ns)
{
	struct tei_nvmeof *ctx = files_ctx(e);
	int ret = ctx ? tei_nvmeof_mem_remove(ctx, addr, deadline_ns) : 0;

	/* not an error: when the transport was installed, the memory was being
	 * unregistered, so it was not added */
	return ret == TEI_ERR_NOT_REGISTERED ? 0 : ret;
}

/* Registers GPU memory with cuFile, if possible. Otherwise file transfers of
 * this memory use bounce buffers. Logs which of the two applies. Returns true
 * if this call has opened cuFile. */
static bool files_gpu_add(struct tei_nvmeof *ctx, const struct engine_region *r)
{
	struct tei_err err;
	bool fresh = false;
	int ret;

	ret = tei_nvmeof_gpu_on(ctx, &fresh, &err);
	if (!ret)
		ret = tei_nvmeof_gpu_add(ctx, r->addr, r->length, &err);
	TEI_INFO("engine", "%p, %zu bytes of %s: file transfers %s%s",
		 r->addr, r->length, r->location,
		 ret ? "go through pinned host memory: " : "use cuFile",
		 ret ? err.text : "");
	return fresh;
}

void engine_files_gpu_add(struct engine *e, const struct engine_region *r)
{
	struct tei_nvmeof *ctx = files_ctx(e);

	/* if this was the first memory for cuFile, the files that are open
	 * already must be opened again for cuFile */
	if (ctx && e->settings.memory.gpu_direct && files_gpu_add(ctx, r))
		engine_segment_reevaluate(e);
}

/* --- the transport ------------------------------------------------------- */

static int files_create(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	struct tei_nvmeof *ctx;
	uint32_t i;
	int ret;

	ret = tei_nvmeof_init(&e->settings, err, &ctx);
	if (ret)
		return ret;
	for (i = 0; i < e->memory.n && !ret; i++) {
		if (!e->memory.regions[i].gpu)
			ret = tei_nvmeof_mem_add(
				ctx, e->memory.regions[i].addr,
				e->memory.regions[i].length,
				engine_region_location(&e->memory.regions[i]));
		else if (e->settings.memory.gpu_direct)
			files_gpu_add(ctx, &e->memory.regions[i]);
	}
	if (!ret)
		ret = engine_staging_files(e, ctx);
	if (ret)
		tei_nvmeof_fini(ctx);
	return ret;
}

static int file_install(struct engine *e, const char *proto,
			struct tei_err *err) TEI_REQUIRES(e->control)
{
	int ret = e->nvmeof ? 0 : files_create(e, err);

	(void)proto;
	if (ret)
		return ret;
	__atomic_store_n(&e->files_on, true, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	return 0;
}

/* Switches the transport off. e->nvmeof is kept, because threads may use it
 * even after their tasks have ended. */
static int file_uninstall(struct engine *e, const char *proto,
			  uint64_t until_ns, struct tei_err *err)
{
	(void)proto;
	__atomic_store_n(&e->files_on, false, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	if (engine_transports_drain(e, &transport_file, until_ns) &&
	    tei_nvmeof_drain(e->nvmeof, until_ns))
		return 0;
	__atomic_store_n(&e->files_on, true, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	return tei_err_fail(err, TEI_ERR_BUSY, "engine", NULL,
			    "nvmeof: requests are still in progress");
}

/* --- segments ------------------------------------------------------------ */

/*
 * Returns the path of a file on this host, or NULL. The descriptor lists paths
 * by the segment name of the engine that uses them. If segment names are
 * addresses, the descriptor may also list a path by the host alone, because the
 * port in the name is not known in advance.
 */
static const char *files_path(const struct engine *e,
			      const struct tei_meta_file *f)
{
	const char *by_host = NULL;
	char host[TEI_META_HOST_MAX];
	uint16_t port;
	uint32_t i;

	if (!(tei_meta_store_caps(e->store) & TEI_META_ADDRESSES) ||
	    tei_meta_split(e->name, host, &port))
		host[0] = '\0';
	for (i = 0; i < f->local_count; i++) {
		if (!strcmp(f->local[i].server, e->name))
			return f->local[i].path;
		if (*host && !strcmp(f->local[i].server, host))
			by_host = f->local[i].path;
	}
	return by_host;
}

struct tei_nvmeof_seg *engine_files_open(struct engine *e,
					 const struct tei_meta_desc *desc)
{
	struct tei_nvmeof_seg *seg = NULL;
	struct tei_nvmeof_file *files;
	struct tei_err err;
	uint32_t i;

	if (!desc->file_count ||
	    !__atomic_load_n(&e->files_on, __ATOMIC_RELAXED))
		return NULL;
	files = calloc(desc->file_count, sizeof(*files));
	for (i = 0; files && i < desc->file_count; i++) {
		files[i].path = files_path(e, &desc->files[i]);
		files[i].name = desc->files[i].path;
		files[i].length = desc->files[i].length;
	}
	if (files)
		tei_nvmeof_seg_open(files_ctx(e), desc->name, files,
				    desc->file_count, &err, &seg);
	free(files);
	return seg;
}

/* --- tasks --------------------------------------------------------------- */

static void files_err(struct tei_err *err, int code)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->when_ns = tei_now_ns();
	snprintf(err->rail, sizeof(err->rail), "nvmeof");
	snprintf(err->text, sizeof(err->text), "file segment: %s",
		 tei_err_name(code));
}

static void files_done(struct tei_nvmeof_op *op, int code,
		       const struct tei_err *err)
{
	struct engine_task *t = engine_task_from(op);
	struct tei_err ended;

	if (code != TEI_NVMEOF_CANCELLED) {
		engine_task_end(t, code ? STATUS_FAILED : STATUS_COMPLETED,
				err);
		return;
	}
	files_err(&ended, __atomic_load_n(&t->expired, __ATOMIC_RELAXED) ?
			  TEI_ERR_TIMED_OUT : TEI_ERR_CANCELED);
	engine_task_end(t, ended.code == TEI_ERR_CANCELED ? STATUS_CANCELED :
							    STATUS_FAILED,
			&ended);
}

bool engine_files_take(struct engine *e, const struct transfer_request *r,
		       struct tei_nvmeof_seg *files)
{
	return tei_nvmeof_gpu_takes(files_ctx(e), files, r->source,
				    r->target_offset, r->length);
}

static void *file_attach(struct engine *e, const struct engine_segment *s)
{
	(void)e;
	return s ? s->files : NULL;
}

/* Prepares a task. If the local memory is GPU memory, cuFile executes the
 * request. Requests that cuFile cannot execute do not get here, because
 * transport_staging has taken them. */
static int file_prepare(struct engine *e, struct engine_task *t,
			const struct transfer_request *r,
			struct engine_target *target, void *at)
{
	struct tei_nvmeof_op *op = engine_task_room(t);

	if (target->kind == ENGINE_HOST_HOST &&
	    tei_local_region_check(e->local, r->source, r->length,
				   r->opcode == OPCODE_READ))
		return 3;
	if (!tei_nvmeof_seg_covers(at, r->target_offset, r->length))
		return 1;
	engine_task_init(e, t, r, &transport_file);
	op->seg = at;
	op->read = t->read;
	op->local = r->source;
	op->offset = r->target_offset;
	op->length = r->length;
	op->done = files_done;
	return 0;
}

static void file_start(struct engine *e, struct engine_task *t)
{
	struct tei_err err;
	int ret = tei_nvmeof_submit(files_ctx(e), engine_task_room(t));

	if (!ret)
		return;			/* files_done will end it */
	files_err(&err, ret);
	engine_task_end(t, STATUS_FAILED, &err);
}

static void file_cancel(struct engine *e, struct engine_task *t, bool deadline)
{
	(void)deadline;
	tei_nvmeof_cancel(e->nvmeof, engine_task_room(t));
}

static uint64_t file_moved(const struct engine_task *t)
{
	const struct tei_nvmeof_op *op = engine_task_room_const(t);

	return __atomic_load_n(&op->moved, __ATOMIC_RELAXED);
}

static bool file_drain(struct engine *e,
		       const struct engine_transport_ops *through,
		       uint64_t until_ns)
{
	return through || !e->nvmeof || tei_nvmeof_drain(e->nvmeof, until_ns);
}

static void file_close(struct engine *e)
{
	tei_nvmeof_fini(e->nvmeof);
}

static const char *const file_names[] = { "nvmeof", NULL };

const struct engine_transport_ops transport_file = {
	.names = file_names,
	.takes = ENGINE_HOST_HOST | ENGINE_GPU_HOST | ENGINE_GPU_GPU,
	.install = file_install,
	.uninstall = file_uninstall,
	.attach = file_attach,
	.prepare = file_prepare,
	.start = file_start,
	.cancel = file_cancel,
	.moved = file_moved,
	.drain = file_drain,
	.close = file_close,
};
