/* SPDX-License-Identifier: BSD-2-Clause */
#include "prov/nvmeof/nvmeof_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND	(1048576u + 123)	/* offset of the second file */
#define THIRD	(SECOND + 4096u)

/*
 * Checks that operations on file i fail with a text that contains "why", and
 * that operations on the other files work.
 */
static void fault_only(struct rig *r, int i, const char *why)
{
	static const uint64_t at[] = { 0, SECOND, THIRD };
	struct run t;
	int k, pass;

	for (pass = 0; pass < 2; pass++) {
		for (k = 0; k < RIG_FILES; k++) {
			run_op(r, &t, pass, at[k], r->mem, 4096);
			CU_ASSERT_EQUAL(t.code, k == i ? TEI_ERR_NO_DEVICE : 0);
			CU_ASSERT(k != i || strstr(t.text, why));
		}
	}
	/* an operation on this file and other files must fail */
	CU_ASSERT_EQUAL(run_op(r, &t, true, 0, r->mem, r->size),
			TEI_ERR_NO_DEVICE);
	CU_ASSERT(tei_nvmeof_seg_failed(r->seg));
}

static uint64_t fault_length(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : (uint64_t)st.st_size;
}

static void fault_shrunk(const char *io)
{
	struct rig r;

	if (!rig_start(&r, io, "data", true))
		return;
	CU_ASSERT_EQUAL(truncate(r.path[1], 100), 0);
	fault_only(&r, 1, "bytes");
	CU_ASSERT_EQUAL(fault_length(r.path[1]), 100);	/* the file was not
							 * extended */
	CU_ASSERT_EQUAL(truncate(r.path[1], 4096), 0);
	rig_reopen(&r);
	CU_ASSERT(!tei_nvmeof_seg_failed(r.seg));
	CU_ASSERT_EQUAL(truncate(r.path[2], 2999999), 0);
	fault_only(&r, 2, "2999999 bytes, not 3000000");
	rig_stop(&r);
}

static void fault_vanished(const char *io)
{
	struct rig r;
	char other[112];

	if (!rig_start(&r, io, "none", true))
		return;
	snprintf(other, sizeof(other), "%s.old", r.path[0]);
	CU_ASSERT_EQUAL(rename(r.path[0], other), 0);
	fault_only(&r, 0, "no longer exists");
	CU_ASSERT_EQUAL(rename(other, r.path[0]), 0);
	rig_reopen(&r);
	CU_ASSERT(!tei_nvmeof_seg_failed(r.seg));
	CU_ASSERT_EQUAL(unlink(r.path[1]), 0);
	fault_only(&r, 1, "");
	r.file[2].path = NULL;		/* the file is not mounted */
	close(open(r.path[1], O_RDWR | O_CREAT, 0600));
	CU_ASSERT_EQUAL(truncate(r.path[1], 4096), 0);
	rig_reopen(&r);
	fault_only(&r, 2, "not mounted on this server");
	rig_stop(&r);
}

static void fault_replaced(const char *io)
{
	struct rig r;

	if (!rig_start(&r, io, "data", true))
		return;
	CU_ASSERT_EQUAL(rename(r.path[2], r.path[0]), 0);
	close(open(r.path[2], O_RDWR | O_CREAT, 0600));
	CU_ASSERT_EQUAL(truncate(r.path[2], 3000000), 0);
	struct run t;

	CU_ASSERT_EQUAL(run_op(&r, &t, false, THIRD, r.mem, 4096),
			TEI_ERR_NO_DEVICE);
	CU_ASSERT_PTR_NOT_NULL(strstr(t.text, "replaced by another file"));
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem, 100),
			TEI_ERR_NO_DEVICE);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, SECOND, r.mem, 100), 0);
	rig_stop(&r);
}

static void test_a_shrunk_file_fails_and_stays_so(void)
{
	rig_each(fault_shrunk);
}

static void test_a_vanished_file_fails(void)
{
	rig_each(fault_vanished);
}

static void test_a_replaced_file_fails(void)
{
	rig_each(fault_replaced);
}

static void test_path_without_a_regular_file_fails(void)
{
	struct rig r;
	char path[112];

	if (!rig_start(&r, "threads", "none", true))
		return;
	snprintf(path, sizeof(path), "%s.fifo", r.path[0]);
	CU_ASSERT_EQUAL(mkfifo(path, 0600), 0);
	r.file[1].path = path;
	rig_reopen(&r);
	fault_only(&r, 1, "neither a file nor");
	r.file[1].path = r.dir;
	rig_reopen(&r);
	fault_only(&r, 1, "");
	r.file[1].path = "/proc/self/mem";
	r.file[1].length = 4096;
	rig_reopen(&r);
	fault_only(&r, 1, "bytes");
	unlink(path);
	rig_stop(&r);
}

/*
 * Tests a file that can only be read, because it is a running program: reads of
 * the file must work, and writes must fail with the reason.
 */
static void fault_read_only(const char *io)
{
	struct run t;
	struct rig r;

	if (!rig_start(&r, io, "data", true))
		return;
	r.file[1].path = "/proc/self/exe";
	rig_reopen(&r);
	CU_ASSERT(!tei_nvmeof_seg_failed(r.seg));
	CU_ASSERT_EQUAL(run_op(&r, &t, true, SECOND, r.mem, 4096), 0);
	CU_ASSERT(!memcmp(r.mem, "\177ELF", 4));
	CU_ASSERT_EQUAL(run_op(&r, &t, false, SECOND, r.mem, 4096),
			TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(t.sys_errno, ETXTBSY);
	CU_ASSERT_PTR_NOT_NULL(strstr(t.text, "open read-only"));
	CU_ASSERT_PTR_NOT_NULL(strstr(t.hint, "openSegment"));
	/* a write that also includes other files must move no byte */
	memset(r.mem, 'x', r.size);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, r.size),
			TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem, 4096), 0);
	CU_ASSERT_EQUAL(r.mem[0], 0);
	CU_ASSERT(!tei_nvmeof_seg_failed(r.seg));
	rig_stop(&r);
}

static void test_read_only_file_is_read(void)
{
	rig_each(fault_read_only);
}

/* --- errors of the kernel ------------------------------------------------ */

/* Result to simulate for requests of one kind. Guarded by ctx->lock. */
struct spoil {
	enum nvmeof_kind kind;
	int64_t res;			/* -errno, or the maximum number of
					 * bytes */
	uint32_t skip, times, met;
};

static int64_t spoil_fn(void *arg, const struct nvmeof_io *io, int64_t res)
{
	struct spoil *s = arg;

	if (io->kind != s->kind || res < 0 || s->met >= s->skip + s->times ||
	    s->met++ < s->skip)
		return res;
	return s->res >= 0 && res < s->res ? res : s->res;
}

static void spoil_set(struct rig *r, struct spoil *s, enum nvmeof_kind kind,
		      int64_t res, uint32_t skip, uint32_t times)
{
	tei_mutex_lock(&r->ctx->lock);
	*s = (struct spoil){ kind, res, skip, times, 0 };
	r->ctx->hooks.spoil = spoil_fn;
	r->ctx->hooks.spoil_arg = s;
	tei_mutex_unlock(&r->ctx->lock);
}

static void fault_errors(const char *io)
{
	struct spoil s;
	struct run t;
	struct rig r;

	if (!rig_start(&r, io, "data", true))
		return;
	spoil_set(&r, &s, NVMEOF_WRITE, -EIO, 2, 1);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, r.size),
			TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(t.sys_errno, EIO);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, r.size), 0);
	spoil_set(&r, &s, NVMEOF_READ, -EIO, 0, 1);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 9, r.mem, 5), TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 9, r.mem, 5), 0);
	spoil_set(&r, &s, NVMEOF_WRITE, 0, 0, 1);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 9, r.mem, 5), TEI_ERR_CONTEXT);
	spoil_set(&r, &s, NVMEOF_SYNC, -EIO, 0, 1);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 9, r.mem, 5), TEI_ERR_CONTEXT);
	CU_ASSERT_PTR_NOT_NULL(strstr(t.text, "fdatasync"));
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 9, r.mem, 5), 0);
	/* a request is repeated after -EAGAIN and -EINTR, but not for ever */
	spoil_set(&r, &s, NVMEOF_READ, -EAGAIN, 0, 20);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 9, r.mem, 5), 0);
	spoil_set(&r, &s, NVMEOF_READ, -EINTR, 0, UINT32_MAX);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, 9, r.mem, 5), TEI_ERR_CONTEXT);
	CU_ASSERT(!tei_nvmeof_seg_failed(r.seg));
	rig_stop(&r);
}

/* Simulates requests that move only a few bytes each. Operations must still
 * move all of their bytes. */
static void fault_short(const char *io)
{
	struct spoil s;
	struct run t;
	struct rig r;
	uint64_t i, n = 200000;
	bool good = true;

	if (!rig_start(&r, io, "data", true))
		return;
	for (i = 0; i < n; i++)
		r.mem[i] = (unsigned char)(i * 7 + i / 256);
	spoil_set(&r, &s, NVMEOF_WRITE, 5000, 0, UINT32_MAX);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, THIRD - 100, r.mem, n), 0);
	CU_ASSERT(s.met > 20);
	memset(r.mem + n, 0, n);
	spoil_set(&r, &s, NVMEOF_READ, 4096, 0, UINT32_MAX);
	CU_ASSERT_EQUAL(run_op(&r, &t, true, THIRD - 100, r.mem + n + 1, n), 0);
	for (i = 0; i < n && good; i++)
		good = r.mem[n + 1 + i] == r.mem[i];
	CU_ASSERT(good);
	rig_stop(&r);
}

static void test_errors_fail_and_the_next_works(void)
{
	rig_each(fault_errors);
}

static void test_short_answers_are_continued(void)
{
	rig_each(fault_short);
}

/*
 * If an fdatasync fails, a write that was submitted before the failure must not
 * complete successfully.
 */
static void fault_sync_shared(const char *io)
{
	struct spoil s;
	struct run t[60];
	struct rig r;
	int i, failed = 0;

	if (!rig_start(&r, io, "data", false))
		return;
	spoil_set(&r, &s, NVMEOF_SYNC, -EIO, 0, 1);
	for (i = 0; i < 60; i++)
		run_start(&r, &t[i], false, (uint64_t)i * 4096, r.mem, 4096);
	for (i = 0; i < 60; i++)
		failed += run_wait(&t[i]) == TEI_ERR_CONTEXT;
	/* only operations that were submitted after the failure may succeed;
	 * the other ones must fail */
	CU_ASSERT(failed > 0);
	for (i = 0; i < 60; i++)
		CU_ASSERT(t[i].code == 0 || t[i].op.born < 62);
	CU_ASSERT_EQUAL(run_op(&r, &t[0], false, 0, r.mem, 4096), 0);
	rig_stop(&r);
}

static void test_a_failed_sync_fails_all_that_wrote(void)
{
	rig_each(fault_sync_shared);
}

static void fault_limit(const char *io)
{
	struct rlimit old, low;
	struct run t;
	struct rig r;

	if (!rig_start(&r, io, "data", true))
		return;
	getrlimit(RLIMIT_FSIZE, &old);
	low = old;
	low.rlim_cur = 500000;
	CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &low), 0);
	run_op(&r, &t, false, 0, r.mem, 1000000);
	CU_ASSERT_EQUAL(t.code, TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(t.sys_errno, EFBIG);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, 400000), 0);
	CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &old), 0);
	CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, 1000000), 0);
	rig_stop(&r);
}

static void test_a_size_limit_is_an_error_not_the_end(void)
{
	signal(SIGXFSZ, SIG_IGN);	/* the threads of the module block this
					 * signal; the other threads of the test
					 * must survive it */
	rig_each(fault_limit);
	signal(SIGXFSZ, SIG_DFL);
}

/* Tests a file system that is full: 256 KiB, with a sparse file of one
 * megabyte. Writes must fail with ENOSPC, and other files must work. */
static void fault_full(const char *io)
{
	struct run t;
	struct rig r;
	char dir[112], path[144];
	int fd;

	if (!rig_start(&r, io, "data", true))
		return;
	snprintf(dir, sizeof(dir), "%s.mnt", r.dir);
	mkdir(dir, 0700);
	if (mount("tmpfs", dir, "tmpfs", 0, "size=256k")) {
		tei_test_skip("tmpfs cannot be mounted: %s", strerror(errno));
	} else {
		snprintf(path, sizeof(path), "%s/file", dir);
		fd = open(path, O_RDWR | O_CREAT, 0600);
		CU_ASSERT_EQUAL(ftruncate(fd, 1048576 + 123), 0);
		close(fd);
		r.file[0].path = path;
		rig_reopen(&r);
		CU_ASSERT_EQUAL(run_op(&r, &t, false, 0, r.mem, 100000), 0);
		run_op(&r, &t, false, 0, r.mem, 1000000);
		CU_ASSERT_EQUAL(t.code, TEI_ERR_CONTEXT);
		CU_ASSERT_EQUAL(t.sys_errno, ENOSPC);
		CU_ASSERT_EQUAL(run_op(&r, &t, false, SECOND, r.mem, 4096), 0);
		CU_ASSERT_EQUAL(umount2(dir, MNT_DETACH), 0);
		CU_ASSERT_EQUAL(run_op(&r, &t, true, 0, r.mem, 100),
				TEI_ERR_NO_DEVICE);
		CU_ASSERT_EQUAL(run_op(&r, &t, true, SECOND, r.mem, 100), 0);
	}
	rmdir(dir);
	rig_stop(&r);
}

static void test_a_full_and_an_unmounted_file_system_fail(void)
{
	rig_each(fault_full);
}

const struct tei_test_case nvmeof_fault_cases[] = {
	{ "read_only_file_is_read", test_read_only_file_is_read },
	{ "a_shrunk_file_fails_and_stays_so",
	  test_a_shrunk_file_fails_and_stays_so },
	{ "a_vanished_file_fails", test_a_vanished_file_fails },
	{ "a_replaced_file_fails", test_a_replaced_file_fails },
	{ "path_without_a_regular_file_fails",
	  test_path_without_a_regular_file_fails },
	{ "errors_fail_and_the_next_works",
	  test_errors_fail_and_the_next_works },
	{ "short_answers_are_continued", test_short_answers_are_continued },
	{ "a_failed_sync_fails_all_that_wrote",
	  test_a_failed_sync_fails_all_that_wrote },
	{ "a_size_limit_is_an_error_not_the_end",
	  test_a_size_limit_is_an_error_not_the_end },
	{ "a_full_and_an_unmounted_file_system_fail",
	  test_a_full_and_an_unmounted_file_system_fail },
	{ NULL, NULL },
};
