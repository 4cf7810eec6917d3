/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transfers between GPU memory and files without host memory in between:
 * GPUDirect Storage, with NVIDIA's libcufile. The library is optional and is
 * loaded when the first GPU memory is registered. Its calls block on the
 * storage, so they run on threads of their own. Pieces, completion and
 * durability are the same as for other operations (nvmeof_op.c).
 *
 * If cuFile cannot be used (no library, no kernel driver, unsupported file
 * system or memory), the functions of tei_nvmeof.h report this, and the caller
 * uses host memory instead.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/clock.h"
#include "util/cuda.h"
#include "util/thread.h"

#define CUFILE_LIBRARY	"libcufile.so.0"
#define CUFILE_THREADS	8u

/* Constants of cuFile's ABI. */
enum {
	CUFILE_OK = 0,
	CUFILE_NOT_THERE = 5001,	/* the kernel module is not loaded */
	CUFILE_DRIVER_IS_OPEN = 5026,
};
enum { CUFILE_HANDLE_FD = 1 };

struct cufile_error {
	int code, cuda;
};

struct cufile_descr {
	int type;
	union {
		int fd;
		void *handle;
	} u;
	const void *ops;
};

/* Created with the first GPU memory, freed with the context. */
struct nvmeof_cufile {
	/* constant */
	void *library;
	struct tei_cuda *cuda;
	struct cufile_error (*open)(void);
	struct cufile_error (*file_register)(void **, struct cufile_descr *);
	void (*file_deregister)(void *);
	struct cufile_error (*memory_register)(const void *, size_t, int);
	struct cufile_error (*memory_deregister)(const void *);
	ssize_t (*read)(void *, void *, size_t, off_t, off_t);
	ssize_t (*write)(void *, const void *, size_t, off_t, off_t);
	pthread_t thread[CUFILE_THREADS];
	uint32_t threads;

	/* guarded by ctx->lock */
	pthread_cond_t work;
	bool quit;
};

static const struct {
	const char *name;
	size_t at;
} cufile_calls[] = {
	{ "cuFileDriverOpen", offsetof(struct nvmeof_cufile, open) },
	{ "cuFileHandleRegister",
	  offsetof(struct nvmeof_cufile, file_register) },
	{ "cuFileHandleDeregister",
	  offsetof(struct nvmeof_cufile, file_deregister) },
	{ "cuFileBufRegister",
	  offsetof(struct nvmeof_cufile, memory_register) },
	{ "cuFileBufDeregister",
	  offsetof(struct nvmeof_cufile, memory_deregister) },
	{ "cuFileRead", offsetof(struct nvmeof_cufile, read) },
	{ "cuFileWrite", offsetof(struct nvmeof_cufile, write) },
};

static int cufile_explain(struct tei_err *err, int code, const char *call,
			  struct cufile_error e)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	err->prov_errno = e.code;
	err->when_ns = tei_now_ns();
	strcpy(err->provider, "cufile");
	snprintf(err->text, sizeof(err->text), "%s: cuFile error %d%s",
		 call, e.code, e.code == CUFILE_NOT_THERE ? ": the nvidia-fs module is not loaded" : "");
	return code;
}

/* --- threads ------------------------------------------------------------- */

/* Runs one request. Returns the number of bytes moved, or -errno. */
static int64_t cufile_run(const struct nvmeof_cufile *c, struct nvmeof_io *io)
{
	off_t at = (off_t)(io->at + io->done);
	off_t off = (off_t)((uintptr_t)io->local - io->gpu.base + io->done);
	size_t len = io->length - io->done;
	struct tei_err err;
	ssize_t n;

	io->gpu.err = 0;
	if (tei_cuda_push(c->cuda, io->gpu.context, &err))
		return -EFAULT;
	errno = 0;
	if (io->kind == NVMEOF_READ)
		n = c->read(io->file->cufile, (void *)(uintptr_t)io->gpu.base,
			    len, at, off);
	else
		n = c->write(io->file->cufile,
			     (const void *)(uintptr_t)io->gpu.base, len, at,
			     off);
	if (n == -1)
		n = errno ? -errno : -EIO;
	else if (n < 0)
		io->gpu.err = (int)-n;
	tei_cuda_pop(c->cuda);
	return io->gpu.err ? -EIO : n;
}

static void *cufile_main(void *arg)
{
	struct tei_nvmeof *ctx = arg;
	struct nvmeof_cufile *c;
	struct nvmeof_io *io;
	int64_t res;

	tei_mutex_lock(&ctx->lock);
	c = ctx->cufile;
	while (!c->quit) {
		if (tei_list_empty(&ctx->gpu_ready)) {
			tei_mutex_wait(&c->work, &ctx->lock,
				       3600 * TEI_NS_PER_SEC);
			continue;
		}
		io = tei_list_first(&ctx->gpu_ready, struct nvmeof_io, node);
		tei_list_del(&io->node);
		tei_mutex_unlock(&ctx->lock);
		res = cufile_run(c, io);
		tei_mutex_lock(&ctx->lock);
		nvmeof_io_done(ctx, io, res);
		ctx->backend->wake(ctx);
	}
	tei_mutex_unlock(&ctx->lock);
	return NULL;
}

void nvmeof_cufile_wake(struct tei_nvmeof *ctx)
{
	pthread_cond_signal(&ctx->cufile->work);
}

/* --- start and stop ------------------------------------------------------ */

static int cufile_bind(struct nvmeof_cufile *c, struct tei_err *err)
{
	size_t i;
	void *f;

	memset(err, 0, sizeof(*err));
	strcpy(err->provider, "cufile");
	err->code = TEI_ERR_UNSUPPORTED;
	c->library = dlopen(CUFILE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!c->library) {
		strcpy(err->text, CUFILE_LIBRARY " cannot be loaded");
		return err->code;
	}
	for (i = 0; i < sizeof(cufile_calls) / sizeof(cufile_calls[0]); i++) {
		f = dlsym(c->library, cufile_calls[i].name);
		if (!f) {
			snprintf(err->text, sizeof(err->text), "%s has no %s",
				 CUFILE_LIBRARY, cufile_calls[i].name);
			return err->code;
		}
		memcpy((char *)c + cufile_calls[i].at, &f, sizeof(f));
	}
	return 0;
}

static void cufile_free(struct nvmeof_cufile *c)
{
	/* cuFile's driver stays open, because other code in this process may
	 * use it */
	tei_cuda_close(c->cuda);
	if (c->library)
		dlclose(c->library);
	pthread_cond_destroy(&c->work);
	free(c);
}

static int cufile_open(struct nvmeof_cufile *c, struct tei_err *err)
{
	struct cufile_error e;
	int ret = tei_cuda_open(err, &c->cuda);

	if (!ret)
		ret = cufile_bind(c, err);
	if (ret)
		return ret;
	e = c->open();
	if (e.code == CUFILE_OK || e.code == CUFILE_DRIVER_IS_OPEN)
		return 0;
	return cufile_explain(err, TEI_ERR_UNSUPPORTED, "cuFileDriverOpen", e);
}

int tei_nvmeof_gpu_on(struct tei_nvmeof *ctx, bool *fresh, struct tei_err *err)
{
	struct nvmeof_cufile *c;
	int ret;

	if (ctx->cufile)
		return 0;
	memset(err, 0, sizeof(*err));
	err->code = TEI_ERR_MEMORY;
	strcpy(err->text, "out of memory");
	c = calloc(1, sizeof(*c));
	if (!c)
		return err->code;
	tei_cond_init(&c->work);
	ret = cufile_open(c, err);
	if (ret) {
		cufile_free(c);
		return ret;
	}
	tei_mutex_lock(&ctx->lock);
	ctx->cufile = c;
	tei_mutex_unlock(&ctx->lock);
	while (c->threads < CUFILE_THREADS &&
	       !tei_thread_start(&c->thread[c->threads], false, cufile_main,
				 ctx))
		c->threads++;
	if (c->threads) {
		*fresh = true;
		return 0;
	}
	nvmeof_cufile_stop(ctx);
	strcpy(err->text, "cuFile: no thread could be started");
	return TEI_ERR_MEMORY;
}

void nvmeof_cufile_stop(struct tei_nvmeof *ctx)
{
	struct nvmeof_cufile *c = ctx->cufile;
	struct nvmeof_mem *m;
	uint32_t i;

	if (!c)
		return;
	tei_mutex_lock(&ctx->lock);
	c->quit = true;
	pthread_cond_broadcast(&c->work);
	tei_mutex_unlock(&ctx->lock);
	for (i = 0; i < c->threads; i++)
		pthread_join(c->thread[i], NULL);
	tei_range_foreach (m, i, &ctx->mem, struct nvmeof_mem, range)
		nvmeof_cufile_mem_remove(ctx, m);
	cufile_free(c);
	ctx->cufile = NULL;
}

/* --- memory and files ---------------------------------------------------- */

/* Registers GPU memory with cuFile. */
static int cufile_register(struct tei_nvmeof *ctx, void *addr, uint64_t len,
			   void **context, struct tei_err *err)
{
	struct nvmeof_cufile *c = ctx->cufile;
	struct tei_cuda_mem where;
	struct cufile_error e;
	int ret;

	ret = tei_cuda_where(c->cuda, addr, len, &where, err);
	if (ret)
		return ret;
	ret = tei_cuda_push(c->cuda, where.context, err);
	if (ret)
		return ret;
	e = c->memory_register(addr, len, 0);
	tei_cuda_pop(c->cuda);
	if (e.code)
		return cufile_explain(err, TEI_ERR_UNSUPPORTED,
				      "cuFileBufRegister", e);
	*context = where.context;
	return 0;
}

static int cufile_no_table(struct tei_err *err, int code)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	snprintf(err->text, sizeof(err->text), "%s", tei_err_name(code));
	return code;
}

int tei_nvmeof_gpu_add(struct tei_nvmeof *ctx, void *addr, uint64_t len,
		       struct tei_err *err)
{
	struct nvmeof_mem *m = nvmeof_mem_new(addr, len);
	int ret;

	if (!m)
		return cufile_no_table(err, TEI_ERR_MEMORY);
	ret = cufile_register(ctx, addr, len, &m->context, err);
	if (ret)
		goto err_free;
	ret = nvmeof_mem_insert(ctx, m);
	if (!ret)
		return 0;
	nvmeof_cufile_mem_remove(ctx, m);
	cufile_no_table(err, ret);
err_free:
	nvmeof_mem_free(m);
	return ret;
}

void nvmeof_cufile_mem_remove(struct tei_nvmeof *ctx,
			      const struct nvmeof_mem *m)
{
	struct nvmeof_cufile *c = ctx->cufile;
	struct tei_err err;

	/* if the CUDA context no longer exists, its registrations are already
	 * removed */
	if (!m->context || tei_cuda_push(c->cuda, m->context, &err))
		return;
	c->memory_deregister((const void *)(uintptr_t)m->range.base);
	tei_cuda_pop(c->cuda);
}

/* Registers the file with cuFile, which needs a file descriptor with
 * O_DIRECT. */
void nvmeof_cufile_file_add(struct tei_nvmeof *ctx, struct nvmeof_file *f)
{
	struct cufile_descr descr = { .type = CUFILE_HANDLE_FD };
	struct cufile_error e;

	if (!ctx->cufile || f->direct < 0)
		return;
	descr.u.fd = f->direct;
	e = ctx->cufile->file_register(&f->cufile, &descr);
	if (!e.code)
		return;
	f->cufile = NULL;
	TEI_INFO("nvmeof", "%s: GPU memory is copied through host memory: cuFile error %d",
		 f->path, e.code);
}

void nvmeof_cufile_file_remove(struct nvmeof_file *f)
{
	if (f->cufile)
		f->seg->ctx->cufile->file_deregister(f->cufile);
}

bool tei_nvmeof_gpu_takes(struct tei_nvmeof *ctx,
			  const struct tei_nvmeof_seg *seg, const void *addr,
			  uint64_t offset, uint64_t length)
{
	const struct nvmeof_mem *m;
	bool takes;
	uint32_t i;

	if (!tei_nvmeof_seg_covers(seg, offset, length))
		return false;
	tei_mutex_lock(&ctx->lock);
	m = nvmeof_mem_find(ctx, addr, length);
	takes = m && m->context;
	tei_mutex_unlock(&ctx->lock);
	/* an unusable file counts as supported: the operation is submitted and
	 * fails with the reason */
	for (i = nvmeof_file_at(seg, offset); takes && i < seg->count &&
	     seg->file[i].offset < offset + length; i++)
		takes = seg->file[i].cufile ||
			__atomic_load_n(&seg->file[i].broken, __ATOMIC_RELAXED);
	return takes;
}
