/* SPDX-License-Identifier: BSD-2-Clause */
/* GPU memory of another process. The owner of the memory is a second process of
 * this program. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "prov/gpu/gpu_int.h"
#include "prov/gpu/gpu_test.h"

#define PEER_SIZE	((20u << 20) + 12345)	/* bytes that are copied in
						 * three pieces */
#define PEER_OFFSET	4096u	/* start of the exported range in the
				 * allocation */

#define PEER_CHUNK	(4u << 20)
#define PEER_CHUNKS	6u	/* so many contain the range */

/* --- the owner ------------------------------------------------------------ */

static bool owner_io(int fd, void *buf, size_t len, bool out)
{
	char *p = buf;
	ssize_t n;

	while (len) {
		n = out ? send(fd, p, len, MSG_NOSIGNAL) : read(fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* Sends the file descriptors of the chunks, or receives them. */
static bool owner_files(int fd, struct tei_cuda_chunks *chunks, bool out)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(PEER_CHUNKS * sizeof(int))];
	} control;
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen =
				      CMSG_SPACE(chunks->n * sizeof(int)) };
	int fds[PEER_CHUNKS];
	uint32_t i;

	if (!chunks->n)
		return true;
	memset(&control, 0, sizeof(control));
	control.head.cmsg_level = SOL_SOCKET;
	control.head.cmsg_type = SCM_RIGHTS;
	control.head.cmsg_len = CMSG_LEN(chunks->n * sizeof(int));
	for (i = 0; i < chunks->n; i++)
		fds[i] = chunks->list[i].fd;
	memcpy(CMSG_DATA(&control.head), fds, chunks->n * sizeof(int));
	if ((out ? sendmsg(fd, &msg, MSG_NOSIGNAL)
		 : recvmsg(fd, &msg, MSG_CMSG_CLOEXEC)) != 1)
		return false;
	memcpy(fds, CMSG_DATA(&control.head), chunks->n * sizeof(int));
	for (i = 0; i < chunks->n; i++)
		chunks->list[i].fd = fds[i];
	return true;
}

/* Exports memory filled with 0x5a, and sends the handle. Then sends the content
 * for each byte that it receives. */
int gpu_test_owner(int fd, unsigned int n)
{
	struct tei_settings settings = { .failure.slice_timeout_s = 30 };
	unsigned char *host = malloc(PEER_SIZE);
	struct cuda_stand_in driver;
	struct tei_cuda_chunks chunks;
	struct tei_cuda_ipc data;
	struct tei_gpu *ctx;
	struct tei_err err;
	void *context, *at;
	uint64_t addr;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!cuda_stand_in_load(&driver) || tei_gpu_init(&settings, &err, &ctx))
		return 1;
	addr = n ? driver.map(1, n, n == 1 ? 2 * PEER_SIZE / 65536 * 65536 :
					     PEER_CHUNK, 1) :
		   cuda_stand_in_memory(&driver, 1, PEER_OFFSET + PEER_SIZE,
					&context);
	at = (void *)(uintptr_t)(addr + PEER_OFFSET);
	if (!host || !addr || tei_gpu_mem_add(ctx, at, PEER_SIZE, &err))
		return 1;
	memset(host, 0x5a, PEER_SIZE);
	if (driver.to_device(addr + PEER_OFFSET, host, PEER_SIZE) ||
	    tei_gpu_mem_export(ctx, at, PEER_SIZE, &data, &chunks, &err) ||
	    chunks.n != n || !owner_io(fd, &data, sizeof(data), true) ||
	    !owner_io(fd, &chunks, sizeof(chunks), true) ||
	    !owner_files(fd, &chunks, true))
		return 1;
	while (owner_io(fd, &byte, 1, false))
		if (driver.to_host(host, addr + PEER_OFFSET, PEER_SIZE) ||
		    !owner_io(fd, host, PEER_SIZE, true))
			return 1;
	return 0;
}

struct owner {
	pid_t pid;
	int fd;
	struct tei_cuda_ipc data;	/* handle of the memory */
	struct tei_cuda_chunks chunks;
};

static struct owner owner_start(unsigned int chunks)
{
	struct owner o = { .pid = -1 };
	char number[16], n[16];
	int sv[2];

	CU_ASSERT_FATAL(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	snprintf(number, sizeof(number), "%d", sv[1]);
	snprintf(n, sizeof(n), "%u", chunks);
	o.pid = fork();
	if (!o.pid) {
		close(sv[0]);
		execl("/proc/self/exe", "gpu_test", "--owner", number, n,
		      NULL);
		_exit(1);
	}
	close(sv[1]);
	o.fd = sv[0];
	CU_ASSERT_FATAL(owner_io(o.fd, &o.data, sizeof(o.data), false));
	CU_ASSERT_FATAL(owner_io(o.fd, &o.chunks, sizeof(o.chunks), false));
	CU_ASSERT_FATAL(o.chunks.n == chunks);
	CU_ASSERT_FATAL(owner_files(o.fd, &o.chunks, false));
	return o;
}

static void owner_end(struct owner *o)
{
	if (o->pid > 0) {
		kill(o->pid, SIGKILL);
		while (waitpid(o->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (o->pid > 0)
		close(o->fd);
	tei_cuda_chunks_close(&o->chunks);
	o->pid = -1;
}

/* Returns true if the owner's memory has these bytes. */
static bool owner_has(struct owner *o, const unsigned char *bytes)
{
	unsigned char *copy = malloc(PEER_SIZE);
	bool same;

	same = copy && owner_io(o->fd, copy, 1, true) &&
	       owner_io(o->fd, copy, PEER_SIZE, false) &&
	       !memcmp(copy, bytes, PEER_SIZE);
	free(copy);
	return same;
}

/* --- this process --------------------------------------------------------- */

struct peer_rig {
	const struct cuda_stand_in *driver;
	struct tei_gpu *ctx;
	struct owner owner;
	struct gpu_test_mem gpu;
	unsigned char *host;	/* registered */
	uint64_t addr;		/* the owner's memory in this process */
	int *swept;		/* number of calls of the sweep function;
				 * atomic */
};

static void peer_sweep(void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_ACQ_REL);
}

static uint64_t peer_host(const struct peer_rig *r)
{
	return (uintptr_t)r->host;
}

/* near: true if the memory is mapped on the GPU of memory of this process.
 * chunks: as for gpu_test_owner. */
static struct peer_rig peer_open(uint64_t seconds, bool near,
				 unsigned int chunks)
{
	static int swept;
	struct peer_rig r = { .driver = gpu_test_driver(), .swept = &swept };
	struct tei_err err;
	size_t i;

	r.owner = owner_start(chunks);
	r.ctx = gpu_test_open(seconds);
	swept = 0;
	tei_gpu_set_sweep(r.ctx, peer_sweep, &swept);
	r.gpu = gpu_test_mem(r.ctx, 0, PEER_SIZE);
	r.host = malloc(PEER_SIZE);
	CU_ASSERT_FATAL(r.host != NULL);
	for (i = 0; i < PEER_SIZE; i++)
		r.host[i] = (unsigned char)(i * 7 ^ i >> 12);
	CU_ASSERT_FATAL(!tei_gpu_mem_add(r.ctx, r.host, PEER_SIZE, &err));
	CU_ASSERT_FATAL(!tei_gpu_peer_open(r.ctx, &r.owner.data,
					   &r.owner.chunks, PEER_SIZE,
					   near ? r.gpu.addr + 9 : 0, &r.addr,
					   &err));
	return r;
}

static void peer_close(struct peer_rig *r)
{
	owner_end(&r->owner);
	CU_ASSERT(!tei_gpu_mem_remove(r->ctx, r->host, UINT64_MAX));
	free(r->host);
	gpu_test_mem_free(r->ctx, &r->gpu);
	/* closing unmaps the memory, if the test has not */
	gpu_test_close(r->ctx);
}

static void peer_copies(bool near, unsigned int chunks)
{
	struct peer_rig r = peer_open(30, near, chunks);
	unsigned char *back = malloc(PEER_SIZE);

	CU_ASSERT_EQUAL(tei_gpu_kind(r.ctx, r.addr, 1), TEI_GPU_NOT_REGISTERED);
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, r.addr, peer_host(&r), PEER_SIZE),
			0);
	CU_ASSERT(owner_has(&r.owner, r.host));
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, r.gpu.addr, r.addr, PEER_SIZE), 0);
	CU_ASSERT(!r.driver->to_host(back, r.gpu.addr, PEER_SIZE));
	CU_ASSERT(!memcmp(back, r.host, PEER_SIZE));
	memset(r.host, 3, PEER_SIZE);
	CU_ASSERT(!r.driver->to_device(r.gpu.addr, r.host, PEER_SIZE));
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, r.addr, r.gpu.addr, PEER_SIZE), 0);
	CU_ASSERT(owner_has(&r.owner, r.host));
	memset(r.host, 4, PEER_SIZE);
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, peer_host(&r), r.addr, PEER_SIZE),
			0);
	CU_ASSERT(owner_has(&r.owner, r.host));
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, r.addr + 1, peer_host(&r),
				      PEER_SIZE), TEI_ERR_NOT_REGISTERED);
	if (near)
		CU_ASSERT(!tei_gpu_mem_remove(r.ctx,
					      (void *)(uintptr_t)r.addr,
					      UINT64_MAX));
	free(back);
	peer_close(&r);
}

static void test_bytes_go_to_another_process(void)
{
	peer_copies(true, 0);
	peer_copies(false, 0);
}

static void test_bytes_go_to_chunks_of_another_process(void)
{
	peer_copies(true, 1);
	peer_copies(false, 1);
	peer_copies(true, PEER_CHUNKS);
	peer_copies(false, PEER_CHUNKS);
}

static void test_memory_outlives_its_owner(void)
{
	struct peer_rig r;
	unsigned int n;

	for (n = 0; n <= PEER_CHUNKS; n += PEER_CHUNKS) {
		r = peer_open(30, true, n);
		owner_end(&r.owner);
		CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, r.addr, peer_host(&r),
					      PEER_SIZE), 0);
		peer_close(&r);
	}
}

/* --- chunks --------------------------------------------------------------- */

/* Returns the number of open file descriptors of this process. */
static unsigned int chunk_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned int n = 0;

	CU_ASSERT_FATAL(dir != NULL);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

struct chunk_rig {
	const struct cuda_stand_in *driver;
	struct tei_gpu *ctx;
	uint64_t addr;
	uint64_t len;
	struct tei_cuda_ipc data;
	struct tei_cuda_chunks chunks;
	struct tei_err err;
};

/* Registers memory of n chunks of 64 KiB, except for its first and last byte. */
static void chunk_open(struct chunk_rig *r, unsigned int n, bool shared)
{
	memset(r, 0, sizeof(*r));
	r->driver = gpu_test_driver();
	r->ctx = gpu_test_open(30);
	r->addr = r->driver->map(0, n, 65536, shared);
	r->len = n * 65536 - 2;
	CU_ASSERT_FATAL(r->addr != 0);
	CU_ASSERT_FATAL(!tei_gpu_mem_add(r->ctx,
					 (void *)(uintptr_t)(r->addr + 1),
					 r->len, &r->err));
}

static int chunk_export(struct chunk_rig *r)
{
	return tei_gpu_mem_export(r->ctx, (void *)(uintptr_t)(r->addr + 1),
				  r->len, &r->data, &r->chunks, &r->err);
}

static void chunk_close(struct chunk_rig *r)
{
	CU_ASSERT(!tei_gpu_mem_remove(r->ctx,
				      (void *)(uintptr_t)(r->addr + 1),
				      UINT64_MAX));
	gpu_test_close(r->ctx);
	r->driver->unmap(r->addr);
}

static void test_chunks_are_exported(void)
{
	unsigned int before = chunk_files(), i;
	struct chunk_rig r;

	chunk_open(&r, 3, true);
	CU_ASSERT_EQUAL(chunk_export(&r), 0);
	CU_ASSERT_EQUAL(r.data.kind, TEI_CUDA_IPC_CHUNKS);
	CU_ASSERT_EQUAL(r.data.offset, 1);
	CU_ASSERT_EQUAL_FATAL(r.chunks.n, 3);
	for (i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(r.chunks.list[i].size, 65536);
		CU_ASSERT(fcntl(r.chunks.list[i].fd, F_GETFD) & FD_CLOEXEC);
	}
	tei_cuda_chunks_close(&r.chunks);
	/* only the chunks that contain the range */
	r.addr += 65536;
	r.len = 1000;
	CU_ASSERT_EQUAL(chunk_export(&r), 0);
	CU_ASSERT_EQUAL(r.chunks.n, 1);
	tei_cuda_chunks_close(&r.chunks);
	r.addr -= 65536;
	chunk_close(&r);
	CU_ASSERT_EQUAL(chunk_files(), before);
}

static void test_chunks_that_cannot_be_exported_are_refused(void)
{
	static const char *const calls[] = {
		"cuPointerSetAttribute",
		"cuMemGetAddressRange",
		"cuMemRetainAllocationHandle",
		"cuMemGetAllocationPropertiesFromHandle",
		"cuMemExportToShareableHandle",
	};
	unsigned int before, left, i;
	struct chunk_rig r;

	chunk_open(&r, 3, false);
	before = chunk_files();
	CU_ASSERT_EQUAL(chunk_export(&r), TEI_ERR_UNSUPPORTED);
	CU_ASSERT_PTR_NOT_NULL(strstr(r.err.text, "POSIX_FILE_DESCRIPTOR"));
	CU_ASSERT_EQUAL(r.chunks.n, 0);
	CU_ASSERT_EQUAL(chunk_files(), before);
	chunk_close(&r);
	chunk_open(&r, 3, true);
	before = chunk_files();
	left = r.driver->left();
	for (i = 0; i < 5; i++) {
		/* the call for the second chunk or, of the functions that are
		 * called more often or once, an earlier one */
		r.driver->fail(calls[i], i > 0, 700);
		CU_ASSERT_EQUAL(chunk_export(&r), TEI_ERR_CONTEXT);
		CU_ASSERT_PTR_NOT_NULL(strstr(r.err.text, calls[i]));
		CU_ASSERT_EQUAL(chunk_files(), before);
		CU_ASSERT_EQUAL(r.driver->left(), left);
	}
	chunk_close(&r);
}

/* Sets the largest number of file descriptors. Returns false if that is not
 * allowed. */
static bool chunk_limit(struct rlimit *was, unsigned int most)
{
	struct rlimit limit;

	CU_ASSERT_FATAL(!getrlimit(RLIMIT_NOFILE, was));
	limit = *was;
	limit.rlim_cur = most;
	return !setrlimit(RLIMIT_NOFILE, &limit);
}

static void test_memory_of_too_many_chunks_is_refused(void)
{
	struct chunk_rig r;
	struct rlimit was;
	unsigned int before;

	if (!chunk_limit(&was, 4096)) {
		printf("# skipped: the process may not have 4096 file descriptors\n");
		return;
	}
	chunk_open(&r, TEI_CUDA_CHUNKS + 1, true);
	before = chunk_files();
	CU_ASSERT_EQUAL(chunk_export(&r), TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(chunk_files(), before);
	r.len -= 65536;
	CU_ASSERT_EQUAL(chunk_export(&r), 0);
	CU_ASSERT_EQUAL(r.chunks.n, TEI_CUDA_CHUNKS);
	tei_cuda_chunks_close(&r.chunks);
	/* the second chunk's descriptor is in the upper half */
	CU_ASSERT(!setrlimit(RLIMIT_NOFILE, &was));
	CU_ASSERT(chunk_limit(&was, 2 * before));
	CU_ASSERT_EQUAL(chunk_export(&r), TEI_ERR_TOO_MANY);
	CU_ASSERT_PTR_NOT_NULL(strstr(r.err.text, "ulimit -n"));
	CU_ASSERT_EQUAL(chunk_files(), before);
	CU_ASSERT(!setrlimit(RLIMIT_NOFILE, &was));
	chunk_close(&r);
}

/* Opens the chunks that this process has exported itself. */
static int chunk_import(struct chunk_rig *r)
{
	uint64_t at;
	int ret = tei_gpu_peer_open(r->ctx, &r->data, &r->chunks, r->len,
				    0, &at, &r->err);

	if (!ret)
		CU_ASSERT(!tei_gpu_mem_remove(r->ctx, (void *)(uintptr_t)at,
					      UINT64_MAX));
	return ret;
}

static void test_failure_to_map_chunks_leaves_nothing(void)
{
	static const struct {
		const char *call;
		unsigned int after;
	} cases[] = {
		{ "cuMemAddressReserve", 0 },
		{ "cuMemImportFromShareableHandle", 0 },
		{ "cuMemImportFromShareableHandle", 2 },
		{ "cuMemMap", 0 },
		{ "cuMemMap", 1 },
		{ "cuCtxGetDevice", 0 },
		{ "cuMemSetAccess", 0 },
	};
	unsigned int files, left, i;
	struct chunk_rig r;

	chunk_open(&r, 3, true);
	CU_ASSERT_EQUAL(chunk_export(&r), 0);
	files = chunk_files();
	left = r.driver->left();
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		r.driver->fail(cases[i].call, cases[i].after, 801);
		CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_CONTEXT);
		CU_ASSERT_PTR_NOT_NULL(strstr(r.err.text, cases[i].call));
		CU_ASSERT_EQUAL(chunk_files(), files);
		CU_ASSERT_EQUAL(r.driver->left(), left);
	}
	/* a GPU that cannot reach the memory does not prevent the mapping */
	r.driver->fail("cuMemSetAccess", 1, 801);
	CU_ASSERT_EQUAL(chunk_import(&r), 0);
	CU_ASSERT_EQUAL(r.driver->left(), left);
	CU_ASSERT_EQUAL(chunk_files(), files);
	tei_cuda_chunks_close(&r.chunks);
	chunk_close(&r);
}

static void test_wrong_chunks_are_refused(void)
{
	struct tei_cuda_chunks none = { .n = 0 };
	struct chunk_rig r, good;
	unsigned int left;
	uint64_t at;

	chunk_open(&r, 3, true);
	CU_ASSERT_EQUAL(chunk_export(&r), 0);
	left = r.driver->left();
	good = r;
	r.len = 3 * 65536;
	CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_INVALID);
	r = good;
	r.data.offset = UINT64_MAX - 5;
	CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_INVALID);
	r = good;
	r.chunks.list[1].size = UINT64_MAX - 65535;
	CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_INVALID);
	r = good;
	r.chunks.list[1].size = 1 << 20;
	CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_CONTEXT);
	r = good;
	r.chunks.list[2].fd = 0;
	CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_CONTEXT);
	r = good;
	r.data.kind = TEI_CUDA_IPC_ALLOC;
	CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_INVALID);
	r.data.kind = 77;
	CU_ASSERT_EQUAL(chunk_import(&r), TEI_ERR_INVALID);
	r = good;
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &r.data, &none, r.len, 0, &at,
					  &r.err), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(r.driver->left(), left);
	CU_ASSERT_EQUAL(chunk_import(&r), 0);
	tei_cuda_chunks_close(&r.chunks);
	chunk_close(&r);
}

/* Chunks do not belong to the context in which they are mapped. */
static void test_chunks_are_unmapped_without_their_context(void)
{
	struct peer_rig r = peer_open(30, true, PEER_CHUNKS);

	gpu_test_mem_free(r.ctx, &r.gpu);
	r.driver->fail("cuCtxPushCurrent", 0, 201);
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, (void *)(uintptr_t)r.addr,
				      UINT64_MAX));
	CU_ASSERT_EQUAL(r.driver->left(), 0);
	r.gpu = gpu_test_mem(r.ctx, 0, PEER_SIZE);
	peer_close(&r);
}

/* Two segments may lead to the same memory. The driver maps chunks to other
 * addresses each time. */
static void test_chunks_that_are_mapped_twice_are_independent(void)
{
	struct peer_rig r = peer_open(30, true, PEER_CHUNKS);
	struct tei_err err;
	uint64_t at = 0;

	CU_ASSERT_FATAL(!tei_gpu_peer_open(r.ctx, &r.owner.data,
					   &r.owner.chunks, PEER_SIZE,
					   r.gpu.addr, &at, &err));
	CU_ASSERT_NOT_EQUAL(at, r.addr);
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, (void *)(uintptr_t)r.addr,
				      UINT64_MAX));
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, r.addr, peer_host(&r), 1),
			TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, at, peer_host(&r), PEER_SIZE), 0);
	CU_ASSERT(owner_has(&r.owner, r.host));
	peer_close(&r);
}

/* The memory must stay mapped after the program has destroyed the context of the
 * memory near which it was mapped. */
static void test_mapping_outlives_contexts_of_the_program(void)
{
	struct peer_rig r = peer_open(30, true, 0);
	void *addr = (void *)(uintptr_t)r.addr;

	gpu_test_mem_free(r.ctx, &r.gpu);
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, r.addr, peer_host(&r), PEER_SIZE),
			0);
	CU_ASSERT(owner_has(&r.owner, r.host));
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, addr, UINT64_MAX));
	CU_ASSERT_EQUAL(r.driver->left(), 0);
	r.gpu = gpu_test_mem(r.ctx, 0, PEER_SIZE);
	peer_close(&r);
}

/* The same for the primary context, which memory of tei_gpu_alloc retains. */
static void test_mapping_keeps_the_primary_context(void)
{
	struct peer_rig r = peer_open(30, true, 0);
	struct tei_err err;
	uint64_t own, at;
	int i;

	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, (void *)(uintptr_t)r.addr,
				      UINT64_MAX));
	for (i = 0; i < 2; i++) {
		CU_ASSERT_FATAL(!tei_gpu_alloc(r.ctx, 0, PEER_SIZE, &own,
					       &err));
		CU_ASSERT_FATAL(!tei_gpu_mem_add(r.ctx, (void *)(uintptr_t)own,
						 PEER_SIZE, &err));
		if (!i)
			CU_ASSERT_FATAL(!tei_gpu_peer_open(r.ctx,
							   &r.owner.data,
							   &r.owner.chunks,
							   PEER_SIZE, own, &at,
							   &err));
		CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, own, peer_host(&r),
					      PEER_SIZE), 0);
		CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, at, own, PEER_SIZE), 0);
		CU_ASSERT(owner_has(&r.owner, r.host));
		CU_ASSERT(!tei_gpu_mem_remove(r.ctx, (void *)(uintptr_t)own,
					      UINT64_MAX));
		tei_gpu_free(r.ctx, own);
		memset(r.host, 7, PEER_SIZE);
	}
	peer_close(&r);
}

static void test_memory_that_cannot_be_exported_is_refused(void)
{
	const struct cuda_stand_in *driver = gpu_test_driver();
	struct tei_gpu *ctx = gpu_test_open(30);
	struct gpu_test_mem m = gpu_test_mem(ctx, 0, 65536);
	void *addr = (void *)(uintptr_t)m.addr;
	struct tei_cuda_chunks chunks;
	struct tei_cuda_ipc data;
	uint64_t at;
	struct tei_err err;

	CU_ASSERT_EQUAL(tei_gpu_mem_export(ctx, addr, 65537, &data, &chunks,
					   &err),
			TEI_ERR_NOT_REGISTERED);
	driver->fail("cuIpcGetMemHandle", 0, 801);
	CU_ASSERT_EQUAL(tei_gpu_mem_export(ctx, addr, 65536, &data, &chunks,
					   &err),
			TEI_ERR_CONTEXT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "cuIpcGetMemHandle"));
	/* a refusal must not change the memory */
	CU_ASSERT_PTR_NULL(driver->alias(m.addr, 65536));
	CU_ASSERT(!tei_gpu_mem_export(ctx, addr, 65536, &data, &chunks, &err));
	CU_ASSERT_PTR_NOT_NULL(driver->alias(m.addr, 65536));
	CU_ASSERT_EQUAL(data.kind, TEI_CUDA_IPC_ALLOC);
	CU_ASSERT_EQUAL(chunks.n, 0);
	/* without a thread, the memory would stay mapped for ever */
	tei_test_threads(0);
	CU_ASSERT_EQUAL(tei_gpu_peer_open(ctx, &data, &chunks, 65536, 0, &at,
					  &err),
			TEI_ERR_MEMORY);
	tei_test_threads(UINT_MAX);
	/* no process can open its own memory */
	CU_ASSERT_EQUAL(tei_gpu_peer_open(ctx, &data, &chunks, 65536, 0, &at,
					  &err),
			TEI_ERR_CONTEXT);
	gpu_test_mem_free(ctx, &m);
	gpu_test_close(ctx);
}

/* Two segments may lead to the same memory. */
static void test_memory_that_is_mapped_twice_is_shared(void)
{
	struct peer_rig r = peer_open(30, true, 0);
	unsigned int left = r.driver->left();
	void *addr = (void *)(uintptr_t)r.addr;
	struct gpu_test_op op;
	struct tei_err err;
	uint64_t at = 0;

	CU_ASSERT_FATAL(!tei_gpu_peer_open(r.ctx, &r.owner.data,
					   &r.owner.chunks, PEER_SIZE,
					   r.gpu.addr, &at, &err));
	CU_ASSERT_EQUAL(at, r.addr);
	CU_ASSERT_EQUAL(r.driver->left(), left);
	r.driver->hold(1);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, at, peer_host(&r), PEER_SIZE));
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, addr, 0));
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(r.ctx, addr, 0), TEI_ERR_BUSY);
	r.driver->hold(0);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	CU_ASSERT(owner_has(&r.owner, r.host));
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, addr, UINT64_MAX));
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(r.ctx, addr, 0),
			TEI_ERR_NOT_REGISTERED);
	peer_close(&r);
}

/* If the GPU of the memory at "near" cannot map the memory, its own GPU must. */
static void peer_other_gpu(unsigned int chunks, const char *call)
{
	struct peer_rig r = peer_open(30, true, chunks);
	struct tei_err err;
	uint64_t at;

	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, (void *)(uintptr_t)r.addr, 0));
	r.driver->fail(call, 0, 217);
	CU_ASSERT_FATAL(!tei_gpu_peer_open(r.ctx, &r.owner.data,
					   &r.owner.chunks, PEER_SIZE,
					   r.gpu.addr, &at, &err));
	CU_ASSERT_EQUAL(gpu_test_copy(r.ctx, at, r.gpu.addr, PEER_SIZE), 0);
	peer_close(&r);
}

static void test_memory_is_mapped_by_another_gpu(void)
{
	peer_other_gpu(0, "cuIpcOpenMemHandle");
	peer_other_gpu(PEER_CHUNKS, "cuMemSetAccess");
}

static void test_handle_that_is_wrong_is_refused(void)
{
	struct peer_rig r = peer_open(30, false, 0);
	struct tei_cuda_chunks none = { .n = 0 };
	struct tei_cuda_ipc data = r.owner.data;
	uint64_t at = 77;
	struct tei_err err;

	/* a part of a range that is mapped */
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &data, &none, PEER_SIZE - 1, 0,
					  &at, &err), TEI_ERR_OVERLAP);
	CU_ASSERT(!tei_gpu_mem_remove(r.ctx, (void *)(uintptr_t)r.addr, 0));
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &data, &none, PEER_SIZE + 1, 0,
					  &at, &err), TEI_ERR_INVALID);
	data.offset = UINT64_MAX - 5;
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &data, &none, PEER_SIZE, 0, &at,
					  &err), TEI_ERR_INVALID);
	data = r.owner.data;
	/* the inode number of the file */
	data.handle.bytes[16] ^= 1;
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &data, &none, PEER_SIZE, 0, &at,
					  &err), TEI_ERR_CONTEXT);
	memset(data.uuid, 9, sizeof(data.uuid));
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &data, &none, PEER_SIZE, 0, &at,
					  &err), TEI_ERR_NO_DEVICE);
	/* a driver that is not initialised */
	r.driver->fail("cuDeviceGetCount", 0, 3);
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &r.owner.data, &none, PEER_SIZE, 0,
					  &at, &err), TEI_ERR_CONTEXT);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "cuDeviceGetCount"));
	r.driver->fail("cuIpcOpenMemHandle", 0, 801);
	CU_ASSERT_EQUAL(tei_gpu_peer_open(r.ctx, &r.owner.data, &none, PEER_SIZE, 0,
					  &at, &err), TEI_ERR_CONTEXT);
	CU_ASSERT_EQUAL(at, 77);
	peer_close(&r);
}

/* --- guards --------------------------------------------------------------- */

struct guard_test {
	struct tei_gpu_guard guard;
	int refusals;		/* number of calls that are refused first;
				 * atomic */
	int code;		/* with which they are refused */
	int entered, left;	/* atomic */
	uint64_t bytes;
};

static int guard_enter(struct tei_gpu_guard *g, struct tei_gpu_op *op,
		       uint64_t at, uint64_t len, void **claim,
		       struct tei_err *err)
{
	struct guard_test *t = tei_container_of(g, struct guard_test, guard);

	(void)op;
	if (__atomic_load_n(&t->refusals, __ATOMIC_ACQUIRE)) {
		__atomic_sub_fetch(&t->refusals, 1, __ATOMIC_ACQ_REL);
		memset(err, 0, sizeof(*err));
		return t->code;
	}
	CU_ASSERT_EQUAL(at, t->bytes);
	t->bytes += len;
	__atomic_add_fetch(&t->entered, 1, __ATOMIC_ACQ_REL);
	*claim = t;
	return 0;
}

static void guard_leave(struct tei_gpu_guard *g, void *claim)
{
	struct guard_test *t = tei_container_of(g, struct guard_test, guard);

	CU_ASSERT_PTR_EQUAL(claim, t);
	__atomic_add_fetch(&t->left, 1, __ATOMIC_ACQ_REL);
}

static int guard_left(struct guard_test *t)
{
	return __atomic_load_n(&t->left, __ATOMIC_ACQUIRE);
}

static void guard_start(struct peer_rig *r, struct guard_test *t,
			struct gpu_test_op *op, int refusals, int code)
{
	*t = (struct guard_test){ .guard = { guard_enter, guard_leave },
				  .refusals = refusals, .code = code };
	memset(op, 0, sizeof(*op));
	op->op.guard = &t->guard;
	CU_ASSERT(!gpu_test_start_op(r->ctx, op, r->addr, peer_host(r),
				     PEER_SIZE));
}

static void test_each_copy_has_a_claim(void)
{
	struct peer_rig r = peer_open(30, true, 0);
	struct gpu_test_op op;
	struct guard_test t;

	guard_start(&r, &t, &op, 0, 0);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	CU_ASSERT_EQUAL(t.entered, 3);
	CU_ASSERT_EQUAL(guard_left(&t), 3);
	CU_ASSERT_EQUAL(t.bytes, PEER_SIZE);
	/* full for a short time */
	guard_start(&r, &t, &op, 5, TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), 0);
	CU_ASSERT_EQUAL(t.bytes, PEER_SIZE);
	CU_ASSERT_EQUAL(guard_left(&t), 3);
	CU_ASSERT(owner_has(&r.owner, r.host));
	/* refused */
	guard_start(&r, &t, &op, 1, TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_NOT_REGISTERED);
	CU_ASSERT_EQUAL(t.entered, 0);
	CU_ASSERT_EQUAL(guard_left(&t), 0);
	/* cancelled while it is full */
	guard_start(&r, &t, &op, 1 << 30, TEI_ERR_TOO_MANY);
	tei_gpu_cancel(r.ctx, &op.op);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_GPU_CANCELLED);
	peer_close(&r);
}

static void test_operation_without_a_claim_ends(void)
{
	struct peer_rig r = peer_open(GPU_TEST_PATIENCE_S, true, 0);
	struct gpu_test_op op;
	struct guard_test t;

	guard_start(&r, &t, &op, 1 << 30, TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_TOO_MANY);
	CU_ASSERT_EQUAL(t.entered, 0);
	peer_close(&r);
}

/* The claim of a copy that the GPU does not complete must outlive the
 * operation. */
static void test_claim_lasts_until_the_copy_ends(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	struct peer_rig r = peer_open(GPU_TEST_PATIENCE_S, true, 0);
	struct gpu_test_op op;
	struct guard_test t;
	int i;

	r.driver->hold(1);
	guard_start(&r, &t, &op, 0, 0);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_TIMED_OUT);
	CU_ASSERT_EQUAL(guard_left(&t), 0);
	CU_ASSERT_EQUAL(tei_gpu_mem_remove(r.ctx, (void *)(uintptr_t)r.addr,
					   0), TEI_ERR_BUSY);
	r.driver->hold(0);
	for (i = 0; i < 60000 && guard_left(&t) < t.entered; i++)
		nanosleep(&nap, NULL);
	CU_ASSERT_EQUAL(guard_left(&t), t.entered);
	peer_close(&r);
}

/* The sweep must be called although no operation has started the thread. */
static void test_sweep_is_called_again_and_again(void)
{
	struct timespec nap = { .tv_nsec = 10000000 };
	struct peer_rig r = peer_open(30, true, 0);
	int i;

	for (i = 0;
	     i < 2000 && __atomic_load_n(r.swept, __ATOMIC_ACQUIRE) < 2; i++)
		nanosleep(&nap, NULL);
	CU_ASSERT(__atomic_load_n(r.swept, __ATOMIC_ACQUIRE) >= 2);
	peer_close(&r);
}

/* If the GPU hangs, closing must neither unmap the memory nor release its
 * context, because a real driver would wait. */
static void test_memory_stays_mapped_when_the_gpu_hangs(void)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	struct peer_rig r = peer_open(1, false, 0);
	unsigned int before = r.driver->copies();
	struct tei_cuda *cuda;
	struct gpu_test_op op;
	struct tei_err err;
	void *context;
	uint64_t at;
	int device, i;

	/* a second mapping, which no copy uses */
	CU_ASSERT_FATAL(!tei_gpu_peer_open(r.ctx, &r.owner.data,
					   &r.owner.chunks, PEER_SIZE,
					   r.gpu.addr, &at, &err));
	r.driver->hold(1);
	CU_ASSERT(!gpu_test_start(r.ctx, &op, r.addr, peer_host(&r), 100));
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_TIMED_OUT);
	tei_gpu_fini(r.ctx);
	/* two opened handles and two retained contexts */
	CU_ASSERT_EQUAL(r.driver->left(), 4);
	r.driver->hold(0);
	for (i = 0; i < 60000 && r.driver->copies() == before; i++)
		nanosleep(&nap, NULL);
	/* destroying the contexts closes the handles */
	CU_ASSERT_FATAL(!tei_cuda_open(&err, &cuda));
	CU_ASSERT(!tei_cuda_retain(cuda, &r.owner.data, &device, &context,
				   &err));
	for (i = 0; i < 2; i++)
		tei_cuda_release(cuda, device);
	CU_ASSERT(!tei_cuda_retain_at(cuda, r.gpu.addr, &device, &context,
				      &err));
	for (i = 0; i < 2; i++)
		tei_cuda_release(cuda, device);
	tei_cuda_close(cuda);
	CU_ASSERT_EQUAL(r.driver->left(), 0);
	CU_ASSERT(!r.driver->free(r.gpu.addr));
	CU_ASSERT(!r.driver->ctx_destroy(r.gpu.context));
	free(r.host);
	owner_end(&r.owner);
}

/* Waits until the planted error has occurred. */
static bool peer_has_failed(const struct peer_rig *r)
{
	struct timespec nap = { .tv_nsec = (long)TEI_NS_PER_MS };
	uint64_t end = tei_now_ns() + 30 * TEI_NS_PER_SEC;

	while (r->driver->failing() && tei_now_ns() < end)
		nanosleep(&nap, NULL);
	return !r->driver->failing();
}

/* A failed query of the stream does not prove that the copy has ended, so its
 * claim must stay. */
static void test_claim_outlives_a_failed_query(void)
{
	struct peer_rig r = peer_open(30, true, 0);
	struct gpu_test_op op;
	struct guard_test t;

	r.driver->hold(1);
	/* no event marks the copy, so its stream is queried */
	r.driver->fail("cuEventRecord", 0, 1);
	guard_start(&r, &t, &op, 0, 0);
	CU_ASSERT(peer_has_failed(&r));
	r.driver->fail("cuStreamQuery", 0, 719);
	CU_ASSERT(peer_has_failed(&r));
	CU_ASSERT_EQUAL(guard_left(&t), 0);
	CU_ASSERT(!gpu_test_ended(&op));
	r.driver->hold(0);
	CU_ASSERT_EQUAL(gpu_test_wait(&op), TEI_ERR_CONTEXT);
	CU_ASSERT(t.entered > 0);
	CU_ASSERT_EQUAL(guard_left(&t), t.entered);
	peer_close(&r);
}

const struct tei_test_case peer_cases[] = {
	{ "bytes_go_to_another_process", test_bytes_go_to_another_process },
	{ "memory_outlives_its_owner", test_memory_outlives_its_owner },
	{ "mapping_outlives_contexts_of_the_program",
	  test_mapping_outlives_contexts_of_the_program },
	{ "mapping_keeps_the_primary_context",
	  test_mapping_keeps_the_primary_context },
	{ "bytes_go_to_chunks_of_another_process",
	  test_bytes_go_to_chunks_of_another_process },
	{ "chunks_are_exported", test_chunks_are_exported },
	{ "chunks_that_cannot_be_exported_are_refused",
	  test_chunks_that_cannot_be_exported_are_refused },
	{ "memory_of_too_many_chunks_is_refused",
	  test_memory_of_too_many_chunks_is_refused },
	{ "failure_to_map_chunks_leaves_nothing",
	  test_failure_to_map_chunks_leaves_nothing },
	{ "wrong_chunks_are_refused", test_wrong_chunks_are_refused },
	{ "chunks_are_unmapped_without_their_context",
	  test_chunks_are_unmapped_without_their_context },
	{ "chunks_that_are_mapped_twice_are_independent",
	  test_chunks_that_are_mapped_twice_are_independent },
	{ "memory_that_cannot_be_exported_is_refused",
	  test_memory_that_cannot_be_exported_is_refused },
	{ "memory_that_is_mapped_twice_is_shared",
	  test_memory_that_is_mapped_twice_is_shared },
	{ "memory_is_mapped_by_another_gpu",
	  test_memory_is_mapped_by_another_gpu },
	{ "handle_that_is_wrong_is_refused",
	  test_handle_that_is_wrong_is_refused },
	{ "each_copy_has_a_claim", test_each_copy_has_a_claim },
	{ "operation_without_a_claim_ends",
	  test_operation_without_a_claim_ends },
	{ "claim_lasts_until_the_copy_ends",
	  test_claim_lasts_until_the_copy_ends },
	{ "memory_stays_mapped_when_the_gpu_hangs",
	  test_memory_stays_mapped_when_the_gpu_hangs },
	{ "claim_outlives_a_failed_query", test_claim_outlives_a_failed_query },
	{ "sweep_is_called_again_and_again",
	  test_sweep_is_called_again_and_again },
	{ NULL, NULL },
};
