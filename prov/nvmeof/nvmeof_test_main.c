/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/nvmeof/nvmeof_test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t rig_length[RIG_FILES] = { 1048576 + 123, 4096, 3000000 };

static void rig_files(struct rig *r)
{
	const char *tmp = getenv("TMPDIR");
	int i, fd;

	snprintf(r->dir, sizeof(r->dir), "%.40s/nvmeof.XXXXXX",
		 tmp && *tmp ? tmp : "/var/tmp");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(r->dir));
	for (i = 0; i < RIG_FILES; i++) {
		snprintf(r->path[i], sizeof(r->path[i]), "%s/%d", r->dir, i);
		fd = open(r->path[i], O_RDWR | O_CREAT, 0600);
		CU_ASSERT_EQUAL(ftruncate(fd, (off_t)rig_length[i]), 0);
		close(fd);
		r->file[i].path = r->path[i];
		r->file[i].name = "name";
		r->file[i].length = rig_length[i];
		r->size += rig_length[i];
	}
}

static bool rig_context(struct rig *r, const char *io)
{
	struct tei_err err;
	int ret;

	ret = tei_nvmeof_init(&r->settings, &err, &r->ctx);
	if (ret == TEI_ERR_UNSUPPORTED && !strcmp(io, "uring")) {
		tei_test_skip("%s", err.text);
		return false;
	}
	CU_ASSERT_EQUAL_FATAL(ret, 0);
	return true;
}

bool rig_start(struct rig *r, const char *io, const char *sync, bool direct)
{
	memset(r, 0, sizeof(*r));
	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&r->settings, NULL), 0);
	strcpy(r->settings.files.io, io);
	strcpy(r->settings.files.sync, sync);
	r->settings.files.direct = direct;
	r->settings.files.depth = 8;
	r->settings.files.threads = 3;
	if (!rig_context(r, io))
		return false;
	rig_files(r);
	CU_ASSERT_EQUAL_FATAL(posix_memalign((void **)&r->mem, 4096, RIG_MEM),
			      0);
	memset(r->mem, 0, RIG_MEM);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_add(r->ctx, r->mem, RIG_MEM, NULL), 0);
	rig_reopen(r);
	return true;
}

void rig_reopen(struct rig *r)
{
	tei_nvmeof_seg_put(r->seg);
	CU_ASSERT_EQUAL_FATAL(tei_nvmeof_seg_open(r->ctx, "nvmeof/test",
						  r->file, RIG_FILES, NULL,
						  &r->seg), 0);
}

void rig_stop(struct rig *r)
{
	int i;

	tei_nvmeof_seg_put(r->seg);
	CU_ASSERT_EQUAL(tei_nvmeof_mem_remove(r->ctx, r->mem,
					      tei_now_ns() +
						      20 * TEI_NS_PER_SEC), 0);
	tei_nvmeof_fini(r->ctx);
	free(r->mem);
	for (i = 0; i < RIG_FILES; i++)
		unlink(r->path[i]);
	CU_ASSERT_EQUAL(rmdir(r->dir), 0);
}

static void run_done(struct tei_nvmeof_op *op, int code,
		     const struct tei_err *err)
{
	struct run *t = tei_container_of(op, struct run, op);

	pthread_mutex_lock(&t->lock);
	t->calls++;
	t->code = code;
	t->sys_errno = err ? err->prov_errno : 0;
	snprintf(t->text, sizeof(t->text), "%s", err ? err->text : "");
	snprintf(t->hint, sizeof(t->hint), "%s", err ? err->hint : "");
	pthread_cond_signal(&t->cond);
	pthread_mutex_unlock(&t->lock);
}

void run_start(struct rig *r, struct run *t, bool read, uint64_t offset,
	       void *local, uint64_t length)
{
	int ret;

	memset(t, 0, sizeof(*t));
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->cond, NULL);
	t->op.seg = r->seg;
	t->op.read = read;
	t->op.local = local;
	t->op.offset = offset;
	t->op.length = length;
	t->op.done = run_done;
	ret = tei_nvmeof_submit(r->ctx, &t->op);
	if (!ret)
		return;			/* run_done will be called, or has been
					 * called already */
	t->code = ret;
	t->calls = 1;
}

int run_wait(struct run *t)
{
	pthread_mutex_lock(&t->lock);
	while (!t->calls)
		pthread_cond_wait(&t->cond, &t->lock);
	pthread_mutex_unlock(&t->lock);
	CU_ASSERT_EQUAL(t->calls, 1);
	pthread_mutex_destroy(&t->lock);
	pthread_cond_destroy(&t->cond);
	return t->code;
}

bool run_ends(struct run *t)
{
	uint64_t until = tei_now_ns() + 20 * TEI_NS_PER_SEC;
	struct timespec nap = { .tv_nsec = 200000 };
	int calls;

	do {
		pthread_mutex_lock(&t->lock);
		calls = t->calls;
		pthread_mutex_unlock(&t->lock);
		if (calls)
			return !run_wait(t);
		nanosleep(&nap, NULL);
	} while (tei_now_ns() < until);
	return false;
}

/* --- storage that does not answer ---------------------------------------- */

/*
 * Withholds the request from io_uring. The threads back end blocks in
 * silence_hold instead.
 */
static bool silence_keep(void *arg, struct nvmeof_io *io)
{
	struct silence *s = arg;

	if (io->file != s->file || s->rig->ctx->backend == &nvmeof_pool)
		return false;
	tei_list_add_tail(&s->kept, &io->node);
	return true;
}

static void silence_hold(void *arg, const struct nvmeof_file *f)
{
	struct silence *s = arg;

	pthread_mutex_lock(&s->lock);
	while (f == s->file)
		pthread_cond_wait(&s->cond, &s->lock);
	pthread_mutex_unlock(&s->lock);
}

void silence_begin(struct silence *s, struct rig *r, int file, bool looks)
{
	struct tei_nvmeof *ctx = r->ctx;

	memset(s, 0, sizeof(*s));
	s->rig = r;
	s->file = &r->seg->file[file];
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	tei_list_init(&s->kept);
	tei_mutex_lock(&ctx->lock);
	if (!looks)
		ctx->hooks.keep = silence_keep;
	ctx->hooks.keep_arg = s;
	ctx->hooks.hold = silence_hold;
	ctx->hooks.hold_arg = s;
	tei_mutex_unlock(&ctx->lock);
}

/*
 * s must stay valid until the rig has stopped, because threads may still use
 * it.
 */
void silence_end(struct silence *s)
{
	struct tei_nvmeof *ctx = s->rig->ctx;

	tei_mutex_lock(&ctx->lock);
	pthread_mutex_lock(&s->lock);
	s->file = NULL;
	pthread_cond_broadcast(&s->cond);
	pthread_mutex_unlock(&s->lock);
	ctx->hooks.keep = NULL;
	tei_list_splice_tail(&ctx->ready, &s->kept);
	ctx->backend->wake(ctx);
	tei_mutex_unlock(&ctx->lock);
}

int run_op(struct rig *r, struct run *t, bool read, uint64_t offset,
	   void *local, uint64_t length)
{
	run_start(r, t, read, offset, local, length);
	return run_wait(t);
}

void rig_each(void (*fn)(const char *io))
{
	fn("threads");
	fn("uring");
}

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "op", nvmeof_op_cases },
		{ "fault", nvmeof_fault_cases },
		{ NULL, NULL },
	};

	return tei_test_run(argc, argv, suites);
}
