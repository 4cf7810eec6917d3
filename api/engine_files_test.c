/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests file segments whose storage does not answer: other calls must continue
 * meanwhile. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api_test.h"
#include "api/engine_int.h"
#include "api/transfer_engine_c.h"
#include "meta/meta_store_int.h"
#include "meta/tei_meta_desc.h"
#include "prov/nvmeof/nvmeof_int.h"

#define FILES_COUNT	2
#define FILES_LEN	65536u

/* An engine, and a segment that consists of two files. The storage of the first
 * file can stop answering. */
struct files_rig {
	struct engine *engine;
	segment_id_t seg;
	char dir[64];
	char mem[2][FILES_LEN];
	uint32_t kept, held; /* atomic; kept: number of requests that the
			      * storage has not answered; held: number of opens
			      * that wait */

	/* silent and ios are guarded by the lock of the nvmeof context */
	bool silent;
	struct tei_list ios;
	/* opening is guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool opening;
};

static void files_path(const struct files_rig *r, const char *name, char *path)
{
	snprintf(path, 96, "%s/%s", r->dir, name);
}

static void files_put(const struct files_rig *r, const char *name,
		      const char *text, off_t length)
{
	char path[96];
	int fd;

	files_path(r, name, path);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	CU_ASSERT_FATAL(!length || !ftruncate(fd, length));
	close(fd);
}

static bool files_keep(void *arg, struct nvmeof_io *io)
{
	struct files_rig *r = arg;

	if (!r->silent || io->file->offset)
		return false;
	tei_list_add_tail(&r->ios, &io->node);
	__atomic_add_fetch(&r->kept, 1, __ATOMIC_RELEASE);
	return true;
}

/* Callback before a file is opened: waits while r->opening is true, if it is
 * the first file. */
static void files_hold(void *arg, const struct nvmeof_file *f)
{
	struct files_rig *r = arg;

	if (f->offset || f->cached >= 0)
		return;
	pthread_mutex_lock(&r->lock);
	__atomic_add_fetch(&r->held, r->opening, __ATOMIC_RELEASE);
	while (r->opening)
		pthread_cond_wait(&r->cond, &r->lock);
	pthread_mutex_unlock(&r->lock);
}

static void files_silent(struct files_rig *r, bool on)
{
	struct tei_nvmeof *ctx = r->engine->nvmeof;

	tei_mutex_lock(&ctx->lock);
	r->silent = on;
	ctx->hooks.keep = files_keep;
	ctx->hooks.hold = files_hold;
	ctx->hooks.keep_arg = ctx->hooks.hold_arg = r;
	tei_list_splice_tail(&ctx->ready, &r->ios);
	ctx->backend->wake(ctx);
	tei_mutex_unlock(&ctx->lock);
}

static void files_descriptor(const struct files_rig *r)
{
	char text[1024], one[256];
	int i;

	strcpy(text, "{\"server_name\":\"nvmeof/test\",\"name\":\"nvmeof/test\","
		     "\"protocol\":\"nvmeof\",\"buffers\":[");
	for (i = 0; i < FILES_COUNT; i++) {
		snprintf(one, sizeof(one),
			 "%s{\"file_path\":\"%d\",\"length\":%u,"
			 "\"local_path_map\":{\"127.0.0.1\":\"%s/%d\"}}",
			 i ? "," : "", i, FILES_LEN, r->dir, i);
		strcat(text, one);
	}
	strcat(text, "]}");
	files_put(r, "test.json", text, 0);
}

/* Creates the rig. Its files execute one request at a time. */
static struct files_rig *files_open(void)
{
	struct files_rig *r = calloc(1, sizeof(*r));
	const char *tmp = getenv("TMPDIR");

	CU_ASSERT_FATAL(r != NULL);
	tei_list_init(&r->ios);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->cond, NULL);
	snprintf(r->dir, sizeof(r->dir), "%.40s/files.XXXXXX",
		 tmp && *tmp ? tmp : "/var/tmp");
	CU_ASSERT_FATAL(mkdtemp(r->dir) != NULL);
	files_put(r, "0", "a", FILES_LEN);
	files_put(r, "1", "b", FILES_LEN);
	files_descriptor(r);
	setenv("MOONRAIL_SEGMENT_DIR", r->dir, 1);
	setenv("MOONRAIL_FILE_DEPTH", "1", 1);
	setenv("MC_SLICE_TIMEOUT", "1", 1);
	r->engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
	unsetenv("MC_SLICE_TIMEOUT");
	CU_ASSERT_FATAL(r->engine &&
			installTransport(r->engine, "nvmeof", NULL));
	files_silent(r, false);
	CU_ASSERT(!registerLocalMemory(r->engine, r->mem[0], FILES_LEN, "*",
				       0));
	r->seg = openSegment(r->engine, "nvmeof/test");
	CU_ASSERT_FATAL(r->seg > 0);
	return r;
}

static void files_close(struct files_rig *r)
{
	static const char *const names[] = { "0", "1", "test.json", ".lock" };
	char path[96];
	size_t i;

	destroyTransferEngine(r->engine);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		files_path(r, names[i], path);
		unlink(path);
	}
	CU_ASSERT(!rmdir(r->dir));
	unsetenv("MOONRAIL_SEGMENT_DIR");
	unsetenv("MOONRAIL_FILE_DEPTH");
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->cond);
	free(r);
}

/* Submits a read of the start of a file in a new batch. Returns the result of
 * submitTransfer. */
static int files_read(struct files_rig *r, int file, void *local,
		      batch_id_t *batch)
{
	struct transfer_request rq = {
		.opcode = OPCODE_READ, .source = local, .target_id = r->seg,
		.target_offset = (uint64_t)file * FILES_LEN, .length = 4096,
	};

	*batch = allocateBatchID(r->engine, 1);
	return submitTransfer(r->engine, *batch, &rq, 1);
}

static int files_status(struct files_rig *r, batch_id_t batch)
{
	struct transfer_status st = { .status = -1 };

	CU_ASSERT(!getTransferStatus(r->engine, batch, 0, &st));
	return st.status;
}

static int files_wait(struct files_rig *r, batch_id_t batch)
{
	struct transfer_status st = { .status = -1 };

	te_wait_batch(r->engine, batch, 20 * INT64_C(1000000), &st);
	return st.status;
}

static void files_until(const uint32_t *n, uint32_t least)
{
	uint64_t until = tei_now_ns() + 20 * TEI_NS_PER_SEC;
	struct timespec nap = { .tv_nsec = 200000 };

	while (__atomic_load_n(n, __ATOMIC_ACQUIRE) < least &&
	       tei_now_ns() < until)
		nanosleep(&nap, NULL);
	CU_ASSERT(__atomic_load_n(n, __ATOMIC_ACQUIRE) >= least);
}

/*
 * Tests that an unanswered request delays neither the deadline thread nor
 * status queries. A second request to the same file, which waits behind the
 * first one, must end at its deadline. The first request must end only when its
 * storage answers.
 */
static void test_deadline_with_unanswered_file_request_is_kept(void)
{
	struct files_rig *r = files_open();
	uint64_t from = tei_now_ns();
	batch_id_t stuck, behind, other;
	struct te_error err;

	files_silent(r, true);
	CU_ASSERT(!files_read(r, 0, r->mem[0], &stuck));
	files_until(&r->kept, 1);
	CU_ASSERT(!files_read(r, 0, r->mem[0] + 4096, &behind));
	CU_ASSERT(!te_batch_deadline(r->engine, stuck, from));
	CU_ASSERT(!te_batch_deadline(r->engine, behind,
				     tei_now_ns() + TEI_NS_PER_MS));
	CU_ASSERT_EQUAL(files_wait(r, behind), STATUS_FAILED);
	CU_ASSERT(!te_task_error(r->engine, behind, 0, &err, sizeof(err)));
	CU_ASSERT_EQUAL(err.code, -TE_TIMED_OUT);
	CU_ASSERT_EQUAL(files_status(r, stuck), STATUS_WAITING);
	CU_ASSERT(!te_cancel_batch(r->engine, stuck));
	CU_ASSERT_EQUAL(files_status(r, stuck), STATUS_WAITING);
	CU_ASSERT(!files_read(r, 1, r->mem[0] + 8192, &other));
	CU_ASSERT_EQUAL(files_wait(r, other), STATUS_COMPLETED);
	files_silent(r, false);
	CU_ASSERT_EQUAL(files_wait(r, stuck), STATUS_FAILED);
	CU_ASSERT(!te_task_error(r->engine, stuck, 0, &err, sizeof(err)));
	CU_ASSERT_EQUAL(err.code, -TE_TIMED_OUT);
	CU_ASSERT(!freeBatchID(r->engine, stuck));
	CU_ASSERT(!freeBatchID(r->engine, behind));
	CU_ASSERT(!freeBatchID(r->engine, other));
	files_close(r);
}

static void *files_install(void *arg)
{
	struct files_rig *r = arg;

	CU_ASSERT(installTransport(r->engine, "local", NULL) != NULL);
	return NULL;
}

static void *files_other(void *arg)
{
	struct files_rig *r = arg;
	batch_id_t batch;

	CU_ASSERT(!files_read(r, 1, r->mem[0], &batch));
	CU_ASSERT_EQUAL(files_wait(r, batch), STATUS_COMPLETED);
	CU_ASSERT(!freeBatchID(r->engine, batch));
	__atomic_store_n(&r->kept, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Tests that a request to the second file does not wait while the opening of
 * the first file takes long. Installing a transport opens all files again. */
static void test_submit_while_files_are_opened_does_not_wait(void)
{
	struct files_rig *r = files_open();
	pthread_t installs, reads;

	r->opening = true;
	CU_ASSERT_FATAL(!pthread_create(&installs, NULL, files_install, r));
	files_until(&r->held, 1);
	CU_ASSERT_FATAL(!pthread_create(&reads, NULL, files_other, r));
	files_until(&r->kept, 1);
	pthread_mutex_lock(&r->lock);
	r->opening = false;
	pthread_cond_broadcast(&r->cond);
	pthread_mutex_unlock(&r->lock);
	pthread_join(installs, NULL);
	pthread_join(reads, NULL);
	files_other(r);
	files_close(r);
}

static struct meta_store_ops files_ops;
/* rig whose next publication fails; NULL: publications succeed */
static struct files_rig *files_publishing;
static batch_id_t files_batch;

/* A publication that fails, after a read into the memory that is being
 * published has begun. */
static int files_refuse(struct tei_meta_store *store,
			const struct tei_meta_desc *desc, const char *json,
			size_t len, bool notified, uint64_t deadline_ns,
			struct tei_err *err)
{
	struct files_rig *r = files_publishing;

	(void)store;
	(void)desc;
	(void)json;
	(void)len;
	(void)notified;
	(void)deadline_ns;
	if (!r)
		return 0;
	files_publishing = NULL;
	CU_ASSERT(!files_read(r, 0, r->mem[1], &files_batch));
	files_until(&r->kept, 1);
	return tei_err_fail(err, TEI_ERR_METADATA, "meta", NULL, "refused");
}

static void files_refusing(struct files_rig *r)
{
	tei_mutex_lock(&r->engine->control);
	files_ops = *r->engine->store->ops;
	files_ops.publish = files_refuse;
	files_ops.caps |= TEI_META_KEEPS;
	r->engine->store->ops = &files_ops;
	files_publishing = r;
	tei_mutex_unlock(&r->engine->control);
	/* pretends that a publication has failed, so that the next call
	 * publishes the descriptor itself and returns the result */
	tei_mutex_lock(&r->engine->listing.lock);
	r->engine->listing.failed = true;
	tei_mutex_unlock(&r->engine->listing.lock);
	files_silent(r, true);
}

/* Checks that the memory is still registered but not published, and can be
 * unregistered once the read has ended. */
static void files_taken_back(struct files_rig *r)
{
	CU_ASSERT_EQUAL(r->engine->memory.n, 2);
	CU_ASSERT(!r->engine->memory.regions[1].remote);
	CU_ASSERT_EQUAL(unregisterLocalMemory(r->engine, r->mem[1]), -4);
	files_silent(r, false);
	CU_ASSERT_EQUAL(unregisterLocalMemory(r->engine, r->mem[1]), 0);
	CU_ASSERT_EQUAL(files_wait(r, files_batch), STATUS_COMPLETED);
	CU_ASSERT(!freeBatchID(r->engine, files_batch));
	CU_ASSERT_EQUAL(registerLocalMemory(r->engine, r->mem[1], 4096, "*",
					    1), 0);
	CU_ASSERT_EQUAL(unregisterLocalMemory(r->engine, r->mem[1]), 0);
}

static void test_memory_in_use_after_failed_registration_stays_registered(void)
{
	struct files_rig *r = files_open();
	buffer_entry_t list[] = {
		{ r->mem[1] + 8192, 8192 }, { r->mem[1], 4096 },
	};

	files_refusing(r);
	CU_ASSERT_EQUAL(registerLocalMemory(r->engine, r->mem[1], 4096, "*",
					    1), TEI_ERR_METADATA);
	files_taken_back(r);
	r->kept = 0;
	files_refusing(r);
	CU_ASSERT_EQUAL(registerLocalMemoryBatch(r->engine, list, 2, "*"),
			TEI_ERR_METADATA);
	files_taken_back(r);
	files_close(r);
}

const struct tei_test_case files_cases[] = {
	{ "deadline_with_unanswered_file_request_is_kept",
	  test_deadline_with_unanswered_file_request_is_kept },
	{ "submit_while_files_are_opened_does_not_wait",
	  test_submit_while_files_are_opened_does_not_wait },
	{ "memory_in_use_after_failed_registration_stays_registered",
	  test_memory_in_use_after_failed_registration_stays_registered },
	{ NULL, NULL },
};
