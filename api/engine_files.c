/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * File segments: connects the files of a descriptor, and the tasks for them,
 * with the transport "nvmeof".
 */
#include "api/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

	/* the memory was being unregistered when the transport was installed */
	return ret == TEI_ERR_NOT_REGISTERED ? 0 : ret;
}

/* Registers GPU memory for cuFile, if possible; else file transfers go through
 * bounce buffers. Logs which. Returns true if cuFile was opened by this
 * call. */
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

	/* files that were opened before cuFile must be opened again */
	if (ctx && e->settings.gpu_direct && files_gpu_add(ctx, r))
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
	for (i = 0; i < e->nregions && !ret; i++) {
		if (!e->regions[i].gpu)
			ret = tei_nvmeof_mem_add(ctx, e->regions[i].addr,
						 e->regions[i].length,
						 engine_region_location(
							 &e->regions[i]));
		else if (e->settings.gpu_direct)
			files_gpu_add(ctx, &e->regions[i]);
	}
	if (!ret)
		ret = engine_stage_files(e, ctx);
	if (ret)
		tei_nvmeof_fini(ctx);
	return ret;
}

int engine_files_on(struct engine *e, struct tei_err *err)
{
	int ret = e->nvmeof ? 0 : files_create(e, err);

	if (ret)
		return ret;
	__atomic_store_n(&e->files_on, true, __ATOMIC_RELAXED);
	return 0;
}

/* Switches the transport off. The context stays, because threads may still use
 * it after their tasks have ended. */
int engine_files_off(struct engine *e, struct tei_err *err)
{
	uint64_t until = tei_now_ns() +
			 e->settings.slice_timeout_s * TEI_NS_PER_SEC;

	__atomic_store_n(&e->files_on, false, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	if (engine_stage_drain(e, STAGE_BY_FILE, until) &&
	    tei_nvmeof_drain(e->nvmeof, until))
		return 0;
	__atomic_store_n(&e->files_on, true, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	return tei_err_fail(err, TEI_ERR_BUSY, "engine", NULL,
			    "nvmeof: requests are still in progress");
}

/* --- segments ------------------------------------------------------------ */

/*
 * Returns the path of a file on this server, or NULL. The descriptor lists it
 * under the server's name. With P2PHANDSHAKE it may also be listed under the
 * host, because the port in the name is not known in advance.
 */
static const char *files_path(const struct engine *e,
			      const struct tei_meta_file *f)
{
	const char *by_host = NULL;
	char host[TEI_META_HOST_MAX];
	uint16_t port;
	uint32_t i;

	if (!tei_meta_store_p2p(e->store) ||
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
	struct engine_task *t = tei_container_of(op, struct engine_task,
						 u.file);
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
		       const struct engine_target *target)
{
	return tei_nvmeof_gpu_takes(files_ctx(e), target->files, r->source,
				    r->target_offset, r->length);
}

int engine_files_prepare(struct engine *e, struct engine_task *t,
			 const struct transfer_request *r,
			 struct tei_nvmeof_seg *files)
{
	if (!tei_nvmeof_seg_covers(files, r->target_offset, r->length))
		return 1;
	engine_batch_task(e, t, r, ENGINE_BY_FILE);
	t->u.file.seg = files;
	t->u.file.read = t->read;
	t->u.file.local = r->source;
	t->u.file.offset = r->target_offset;
	t->u.file.length = r->length;
	t->u.file.done = files_done;
	return 0;
}

void engine_files_start(struct engine *e, struct engine_task *t)
{
	struct tei_err err;
	int ret = tei_nvmeof_submit(files_ctx(e), &t->u.file);

	if (!ret)
		return;			/* files_done will end it */
	files_err(&err, ret);
	engine_task_end(t, STATUS_FAILED, &err);
}
