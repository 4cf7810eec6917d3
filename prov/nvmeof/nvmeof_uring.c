/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/nvmeof/nvmeof_int.h"
#include "util/thread.h"

#ifdef TEI_HAVE_URING

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

/*
 * The back end io_uring: one ring and one thread. Only this thread submits
 * requests and reaps completions, because the kernel cancels the requests of a
 * thread when that thread ends, and a program's threads may end at any time.
 * A request of the ring reads an eventfd, by which other threads wake this
 * thread for new operations.
 *
 * If the kernel supports it, the ring is set up for a single issuer that runs
 * the completion work itself while it waits (io_uring_setup(2),
 * IORING_SETUP_SINGLE_ISSUER and IORING_SETUP_DEFER_TASKRUN), which avoids
 * interrupting the thread. Then only that thread may register memory and files;
 * other threads ask it to do so.
 */

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define URING_REAP	64u
#define URING_SHARE	4u		/* determines how many completions are
					 * handled at a time: the number of
					 * requests in flight, divided by
					 * URING_SHARE, plus 1 */
#define URING_EXTRA	8u		/* number of entries of the ring in
					 * addition to ctx->depth */
#define URING_WAIT_NS	UINT64_C(1000000000) /* longest wait of the thread,
					      * ns */

struct uring {
	struct io_uring ring;		/* used by the thread; if single is
					 * false, other threads may also
					 * register memory and files with it */
	int event;
	uint64_t tick;			/* buffer for the eventfd's value */
	pthread_t thread;
	bool can_fix, can_fix_files;
	bool single;			/* only the thread may use the ring */
	struct tei_log_limit log_limit;
	struct nvmeof_io *fresh[NVMEOF_DEPTH_MAX]; /* writes whose bytes must be
						    * copied into bounce
						    * buffers; used by the
						    * thread only */
	uint32_t nfresh;

	/* guarded by ctx->lock */
	bool asleep;			/* the thread is waiting for the
					 * kernel */
	bool quit;
	int started;			/* 0: not started yet; 1: started;
					 * negative: -errno of the failure */
	struct tei_list asks;		/* list of uring_ask.node: registration
					 * requests */
	pthread_cond_t answered;	/* signalled when a request in asks is
					 * done, and when "started" is set */
	uint32_t flying;		/* number of requests that the kernel
					 * has */
	bool armed;			/* a read of the eventfd is in flight */
	uint64_t fixed[NVMEOF_FIXED / 64];	/* bit map of used buffer
						 * slots */
	uint64_t files[NVMEOF_FILES / 64];	/* bit map of used file slots */
};

/*
 * A request by which another thread makes the ring's thread register or
 * unregister memory or files. On the stack of the requesting thread.
 */
struct uring_ask {
	int (*call)(struct uring *u, const struct uring_ask *ask);
	unsigned int slot;
	void *addr;			/* memory to register; if len is 0, the
					 * memory is unregistered */
	uint64_t len;
	int fd;				/* file to register */
	const int *slots;		/* n slots of files to unregister */
	uint32_t n;
	/* node, done and ret are guarded by ctx->lock */
	struct tei_list node;
	bool done;
	int ret;
};

struct uring_answer {
	struct nvmeof_io *io;		/* NULL if the completion is that of the
					 * read of the eventfd */
	int res;
};

/* --- requests ------------------------------------------------------------ */

static void uring_prep(const struct tei_nvmeof *ctx, struct nvmeof_io *io,
		       struct io_uring_sqe *sqe)
{
	int fd = io->slot >= 0 ? io->slot : io->fd;
	/* an fdatasync (NVMEOF_SYNC) has no buf */
	char *buf = io->buf ? io->buf + io->done : NULL;
	uint32_t len = io->length - io->done;
	uint64_t at = io->at + io->done;

	switch (io->kind) {
	case NVMEOF_READ:
		if (io->fixed >= 0)
			io_uring_prep_read_fixed(sqe, fd, buf, len, at,
						 io->fixed);
		else
			io_uring_prep_read(sqe, fd, buf, len, at);
		break;
	case NVMEOF_WRITE:
		if (io->fixed >= 0)
			io_uring_prep_write_fixed(sqe, fd, buf, len, at,
						  io->fixed);
		else
			io_uring_prep_write(sqe, fd, buf, len, at);
		sqe->rw_flags = nvmeof_io_flags(ctx, io);
		break;
	case NVMEOF_SYNC:
		io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
		break;
	}
	if (io->slot >= 0)
		io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
	io_uring_sqe_set_data(sqe, io);
}

/* Puts ready requests into the ring, as long as it has free entries. The kernel
 * receives them with the next wait. */
static void uring_fill(struct tei_nvmeof *ctx, struct uring *u)
	TEI_REQUIRES(ctx->lock)
{
	struct io_uring_sqe *sqe;
	struct nvmeof_io *io;

	if (!u->armed) {
		sqe = io_uring_get_sqe(&u->ring);
		if (sqe) {
			io_uring_prep_read(sqe, u->event, &u->tick,
					   sizeof(u->tick), 0);
			io_uring_sqe_set_data(sqe, NULL);
			u->armed = true;
		}
	}
	while (!tei_list_empty(&ctx->ready) && u->nfresh < NVMEOF_DEPTH_MAX) {
		sqe = io_uring_get_sqe(&u->ring);
		if (!sqe)
			return;
		io = tei_list_first(&ctx->ready, struct nvmeof_io, node);
		tei_list_del(&io->node);
		uring_prep(ctx, io, sqe);
		if (io->kind == NVMEOF_WRITE && io->buf != io->local)
			u->fresh[u->nfresh++] = io;
		u->flying++;
	}
}

/* --- completions --------------------------------------------------------- */

static uint32_t uring_reap(struct uring *u, struct uring_answer *answer,
			   uint32_t most)
{
	struct io_uring_cqe *cqe[URING_REAP];
	uint32_t i, n = io_uring_peek_batch_cqe(&u->ring, cqe, most);

	for (i = 0; i < n; i++) {
		answer[i].io = io_uring_cqe_get_data(cqe[i]);
		answer[i].res = cqe[i]->res;
	}
	io_uring_cq_advance(&u->ring, n);
	return n;
}

static void uring_copy(struct tei_nvmeof *ctx,
		       const struct uring_answer *answer, uint32_t n)
	TEI_REQUIRES(ctx->lock)
{
	bool copies = false;
	uint32_t i;

	for (i = 0; i < n; i++)
		copies |= answer[i].io && answer[i].io->buf !=
					  answer[i].io->local;
	if (!copies)
		return;
	tei_mutex_unlock(&ctx->lock);
	for (i = 0; i < n; i++)
		if (answer[i].io)
			nvmeof_io_copy(answer[i].io, answer[i].res);
	tei_mutex_lock(&ctx->lock);
}

/*
 * Handles a part of the completions. The caller submits new requests before it
 * handles the rest of the completions, so that a fast device does not run idle.
 */
static void uring_answers(struct tei_nvmeof *ctx, struct uring *u)
	TEI_REQUIRES(ctx->lock)
{
	uint32_t most = u->flying / URING_SHARE + 1;
	struct uring_answer answer[URING_REAP];
	uint32_t i, n;

	n = uring_reap(u, answer, most < URING_REAP ? most : URING_REAP);
	uring_copy(ctx, answer, n);
	for (i = 0; i < n; i++) {
		if (!answer[i].io) {
			u->armed = false;
			continue;
		}
		u->flying--;
		nvmeof_io_done(ctx, answer[i].io, answer[i].res);
	}
}

/* --- the thread ---------------------------------------------------------- */

/*
 * Handles one registration request of another thread. Handles only one per
 * call, because I/O makes no progress meanwhile.
 */
static void uring_asked(struct tei_nvmeof *ctx, struct uring *u)
	TEI_REQUIRES(ctx->lock)
{
	struct uring_ask *ask;

	if (tei_list_empty(&u->asks))
		return;
	ask = tei_list_first(&u->asks, struct uring_ask, node);
	tei_list_del(&ask->node);
	tei_mutex_unlock(&ctx->lock);
	ask->ret = ask->call(u, ask);
	tei_mutex_lock(&ctx->lock);
	ask->done = true;
	pthread_cond_broadcast(&u->answered);
}

static void uring_nap(struct tei_nvmeof *ctx, struct uring *u)
	TEI_REQUIRES(ctx->lock)
{
	bool more = !tei_list_empty(&ctx->ready) || !tei_list_empty(&u->asks) ||
		    io_uring_cq_ready(&u->ring);
	int ret;

	u->asleep = !more;
	tei_mutex_unlock(&ctx->lock);
	while (u->nfresh)
		nvmeof_io_fill(u->fresh[--u->nfresh]);
	ret = more ? io_uring_submit_and_get_events(&u->ring) :
		     io_uring_submit_and_wait(&u->ring, 1);
	if (ret < 0)
		io_uring_get_events(&u->ring);	/* frees completion entries */
	tei_mutex_lock(&ctx->lock);
	u->asleep = false;
}

static void uring_wake(struct tei_nvmeof *ctx)
{
	struct uring *u = ctx->backend_state;
	uint64_t one = 1;

	if (!u->asleep)
		return;			/* no wake-up is needed, because the
					 * thread checks the lists before it
					 * sleeps */
	u->asleep = false;
	if (write(u->event, &one, sizeof(one)) != sizeof(one))
		u->asleep = true;
}

/* --- registered memory and files ----------------------------------------- */

static int uring_ask(struct tei_nvmeof *ctx, struct uring_ask *ask)
{
	struct uring *u = ctx->backend_state;

	if (!u->single || pthread_equal(pthread_self(), u->thread))
		return ask->call(u, ask);
	tei_mutex_lock(&ctx->lock);
	tei_list_add_tail(&u->asks, &ask->node);
	uring_wake(ctx);
	while (!ask->done)
		tei_mutex_wait(&u->answered, &ctx->lock, URING_WAIT_NS);
	tei_mutex_unlock(&ctx->lock);
	return ask->ret;
}

/* Takes n adjacent free slots; the table "used" has "size" slots. Returns the
 * first of the slots, or -1 if there are not enough. */
static int uring_slots_take(struct tei_nvmeof *ctx, uint64_t *used,
			    uint32_t size, uint32_t n)
{
	uint32_t i, k, run = 0;

	tei_mutex_lock(&ctx->lock);
	for (i = 0; i < size && run < n; i++)
		run = used[i / 64] >> i % 64 & 1 ? 0 : run + 1;
	for (k = i - run; run == n && k < i; k++)
		used[k / 64] |= UINT64_C(1) << k % 64;
	tei_mutex_unlock(&ctx->lock);
	return run == n ? (int)(i - n) : -1;
}

static void uring_slots_give(struct tei_nvmeof *ctx, uint64_t *used, int slot,
			     uint32_t n)
{
	uint32_t i;

	tei_mutex_lock(&ctx->lock);
	for (i = (uint32_t)slot; i < (uint32_t)slot + n; i++)
		used[i / 64] &= ~(UINT64_C(1) << i % 64);
	tei_mutex_unlock(&ctx->lock);
}

/*
 * Logs why memory is not registered: without registration, the kernel has to
 * look up the pages for each request. Returns -1.
 */
static int uring_unfixed(struct uring *u, void *addr, uint64_t len,
			 const char *why, uint64_t limit, const char *unit)
{
	TEI_LOG_LIMITED(&u->log_limit, TEI_LOG_INFO, "nvmeof",
			"%p, %llu bytes: not registered with io_uring, which costs CPU time: %s %llu%s",
			addr, (unsigned long long)len, why,
			(unsigned long long)limit, unit);
	return -1;
}

static int uring_unlocked(struct uring *u, void *addr, uint64_t len, int err)
{
	struct rlimit limit = { .rlim_cur = 0 };

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (err == ENOMEM && limit.rlim_cur != RLIM_INFINITY)
		return uring_unfixed(u, addr, len,
				     "the memlock limit (ulimit -l) is",
				     limit.rlim_cur >> 10, " KiB");
	return uring_unfixed(u, addr, len, "the kernel refused, errno",
			     (uint64_t)err, "");
}

static uint64_t uring_parts(const struct tei_nvmeof *ctx, uint64_t len)
{
	return len / ctx->part + (len % ctx->part != 0);
}

/*
 * Returns true if the memory is larger than this host's RAM. Such memory is not
 * registered, because registration makes all pages present.
 */
static bool uring_exceeds(uint64_t len, uint64_t *ram)
{
	*ram = (uint64_t)sysconf(_SC_PHYS_PAGES) *
	       (uint64_t)sysconf(_SC_PAGESIZE);
	return len > *ram;
}

static int uring_call_buffer(struct uring *u, const struct uring_ask *ask)
{
	struct iovec iov = { .iov_base = ask->len ? ask->addr : NULL,
			     .iov_len = ask->len };
	__u64 tag = 0;

	return io_uring_register_buffers_update_tag(&u->ring, ask->slot, &iov,
						    &tag, 1);
}

/* Makes the pages of the memory present. The calling thread does this, so that
 * its memory policy applies, and does it before the registration, which blocks
 * the ring. */
static void uring_populate(const struct uring *u, void *addr, uint64_t len)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t at = (uintptr_t)addr & (page - 1);

	if (u->single && len)
		madvise((char *)addr - at, at + len, MADV_POPULATE_WRITE);
}

/*
 * Registers memory in a slot, or clears the slot if len is 0. Returns 0 or an
 * errno.
 */
static int uring_buffer(struct tei_nvmeof *ctx, int slot, void *addr,
			uint64_t len)
{
	struct uring_ask ask = { .call = uring_call_buffer, .addr = addr,
				 .slot = (unsigned int)slot, .len = len };
	int ret;

	uring_populate(ctx->backend_state, addr, len);
	ret = uring_ask(ctx, &ask);
	return ret == 1 ? 0 : ret < 0 ? -ret : EIO;
}

/* Registers memory, one part at a time because the ring is blocked meanwhile.
 * Returns -1 if the memory is too large, no slots are left or the limit on
 * locked memory is exceeded; the memory is then used unregistered. */
static int uring_fix(struct tei_nvmeof *ctx, void *addr, uint64_t len)
{
	uint64_t n = uring_parts(ctx, len), i, at, ram;
	struct uring *u = ctx->backend_state;
	int slot, err = 0;

	if (!u->can_fix)
		return -1;
	if (uring_exceeds(len, &ram))
		return uring_unfixed(u, addr, len, "this host's memory is",
				     ram >> 20, " MiB");
	slot = n > NVMEOF_FIXED ? -1 :
	       uring_slots_take(ctx, u->fixed, NVMEOF_FIXED, (uint32_t)n);
	if (slot < 0)
		return uring_unfixed(u, addr, len,
				     "too few free buffer slots (1 GiB each), of",
				     NVMEOF_FIXED, " in all");
	for (i = 0; i < n && !err; i++) {
		at = i * ctx->part;
		err = uring_buffer(ctx, slot + (int)i, (char *)addr + at,
				   len - at < ctx->part ? len - at : ctx->part);
	}
	if (!err)
		return slot;
	for (i--; i-- > 0;)
		uring_buffer(ctx, slot + (int)i, NULL, 0);
	uring_slots_give(ctx, u->fixed, slot, (uint32_t)n);
	return uring_unlocked(u, addr, len, err);
}

static void uring_unfix(struct tei_nvmeof *ctx, int slot, uint64_t len)
{
	uint32_t n = (uint32_t)uring_parts(ctx, len), i;
	struct uring *u = ctx->backend_state;

	for (i = 0; i < n; i++)
		uring_buffer(ctx, slot + (int)i, NULL, 0);
	uring_slots_give(ctx, u->fixed, slot, n);
}

static int uring_call_file(struct uring *u, const struct uring_ask *ask)
{
	return io_uring_register_files_update(&u->ring, ask->slot, &ask->fd, 1);
}

static int uring_fix_file(struct tei_nvmeof *ctx, int fd)
{
	struct uring *u = ctx->backend_state;
	struct uring_ask ask = { .call = uring_call_file, .fd = fd };
	int slot;

	if (!u->can_fix_files)
		return -1;
	slot = uring_slots_take(ctx, u->files, NVMEOF_FILES, 1);
	if (slot < 0)
		return -1;
	ask.slot = (unsigned int)slot;
	if (uring_ask(ctx, &ask) == 1)
		return slot;
	uring_slots_give(ctx, u->files, slot, 1);
	return -1;
}

static int uring_call_unfix_files(struct uring *u, const struct uring_ask *ask)
{
	int none = -1;
	uint32_t i;

	for (i = 0; i < ask->n; i++)
		io_uring_register_files_update(&u->ring,
					       (unsigned int)ask->slots[i],
					       &none, 1);
	return 0;
}

static void uring_unfix_files(struct tei_nvmeof *ctx, const int *slots,
			      uint32_t n)
{
	struct uring_ask ask = { .call = uring_call_unfix_files,
				 .slots = slots, .n = n };
	struct uring *u = ctx->backend_state;
	uint32_t i;

	uring_ask(ctx, &ask);
	for (i = 0; i < n; i++)
		uring_slots_give(ctx, u->files, slots[i], 1);
}

/* --- start and stop ------------------------------------------------------ */

static int uring_open(struct tei_nvmeof *ctx, struct uring *u)
{
	unsigned int entries = ctx->depth + URING_EXTRA;
	int ret = -EINVAL;

#ifdef IORING_SETUP_DEFER_TASKRUN
	ret = io_uring_queue_init(entries, &u->ring,
				  IORING_SETUP_SINGLE_ISSUER |
				  IORING_SETUP_DEFER_TASKRUN);
	u->single = !ret;
#endif
#ifdef IORING_SETUP_COOP_TASKRUN
	if (ret == -EINVAL)
		ret = io_uring_queue_init(entries, &u->ring,
					  IORING_SETUP_COOP_TASKRUN);
#endif
	if (ret == -EINVAL)
		ret = io_uring_queue_init(entries, &u->ring, 0);
	return ret;
}

/*
 * Raises the limit of the kernel's workers to the maximum number of requests.
 * Workers run what the kernel cannot do asynchronously, above all fdatasync. By
 * default there may be as few as four per CPU, and a file that does not answer
 * would occupy all of them. A kernel without such a limit keeps its default.
 */
static void uring_workers(struct tei_nvmeof *ctx, struct uring *u)
{
	unsigned int most[2] = { ctx->room * NVMEOF_CROWD + URING_EXTRA, 0 };

	io_uring_register_iowq_max_workers(&u->ring, most);
}

/*
 * Returns true if the kernel's io_uring supports all operations that this file
 * uses.
 */
static bool uring_knows(struct uring *u)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
	bool fine = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
		    io_uring_opcode_supported(probe, IORING_OP_WRITE);

	if (probe)
		io_uring_free_probe(probe);
	return fine && u->ring.features & IORING_FEAT_NODROP;
}

/* Opens the ring on the thread that uses it. Returns 0 or a negative errno. */
static int uring_ready(struct tei_nvmeof *ctx, struct uring *u)
{
	int ret = uring_open(ctx, u);

	if (ret)
		return ret;
	if (!uring_knows(u)) {
		io_uring_queue_exit(&u->ring);
		return -EOPNOTSUPP;
	}
	uring_workers(ctx, u);
	u->can_fix = !io_uring_register_buffers_sparse(&u->ring, NVMEOF_FIXED);
	u->can_fix_files = !io_uring_register_files_sparse(&u->ring,
							   NVMEOF_FILES);
	io_uring_register_ring_fd(&u->ring);	/* an optimisation, so a failure
						 * is ignored */
	return 0;
}

static void *uring_main(void *arg)
{
	struct tei_nvmeof *ctx = arg;
	struct uring *u = ctx->backend_state;
	bool some;
	int ret = uring_ready(ctx, u);

	tei_mutex_lock(&ctx->lock);
	u->started = ret ? ret : 1;
	pthread_cond_broadcast(&u->answered);
	while (!ret && (!u->quit || u->flying)) {
		/* This call comes first because it releases the lock: work that
		 * arrives meanwhile is found below. */
		uring_asked(ctx, u);
		some = nvmeof_settle(ctx);
		nvmeof_pump(ctx);
		if (!tei_list_empty(&ctx->over) ||
		    (some && !tei_list_empty(&ctx->looks)))
			continue;
		uring_fill(ctx, u);
		if (!u->quit || u->flying)
			uring_nap(ctx, u);
		uring_answers(ctx, u);
	}
	tei_mutex_unlock(&ctx->lock);
	if (!ret)
		io_uring_queue_exit(&u->ring);
	return NULL;
}

static int uring_fail(struct tei_err *err, int code, const char *what, int ret)
{
	memset(err, 0, sizeof(*err));
	err->code = code;
	snprintf(err->text, sizeof(err->text), "io_uring: %s%s%s", what,
		 ret ? ": " : "", ret ? strerror(-ret) : "");
	return code;
}

static int uring_begin(struct tei_nvmeof *ctx, struct uring *u,
		       struct tei_err *err)
{
	int ret = u->event < 0 ? u->event :
		  -tei_thread_start(&u->thread, false, uring_main, ctx);

	if (ret)
		return uring_fail(err, TEI_ERR_MEMORY, "no thread", ret);
	tei_mutex_lock(&ctx->lock);
	while (!u->started)
		tei_mutex_wait(&u->answered, &ctx->lock, URING_WAIT_NS);
	ret = u->started < 0 ? u->started : 0;
	tei_mutex_unlock(&ctx->lock);
	if (!ret)
		return 0;
	pthread_join(u->thread, NULL);
	return uring_fail(err, TEI_ERR_UNSUPPORTED,
			  ret == -EOPNOTSUPP ? "the kernel's version is too old" :
					       "not available",
			  ret == -EOPNOTSUPP ? 0 : ret);
}

static struct uring *uring_new(void)
{
	struct uring *u = calloc(1, sizeof(*u));

	if (!u)
		return NULL;
	u->event = eventfd(0, EFD_CLOEXEC);
	if (u->event < 0)
		u->event = -errno;	/* uring_begin reports the error */
	tei_list_init(&u->asks);
	tei_cond_init(&u->answered);
	return u;
}

static void uring_free(struct uring *u)
{
	if (u->event >= 0)
		close(u->event);
	pthread_cond_destroy(&u->answered);
	free(u);
}

static int uring_start(struct tei_nvmeof *ctx, struct tei_err *err)
{
	struct uring *u = uring_new();
	int ret;

	if (!u)
		return uring_fail(err, TEI_ERR_MEMORY, "out of memory", 0);
	ctx->backend_state = u;
	ret = uring_begin(ctx, u, err);
	if (ret) {
		uring_free(u);
		ctx->backend_state = NULL;
	}
	return ret;
}

static void uring_stop(struct tei_nvmeof *ctx)
{
	struct uring *u = ctx->backend_state;

	tei_mutex_lock(&ctx->lock);
	u->quit = true;
	uring_wake(ctx);
	tei_mutex_unlock(&ctx->lock);
	pthread_join(u->thread, NULL);
	uring_free(u);
	ctx->backend_state = NULL;
}

const struct nvmeof_backend nvmeof_uring = {
	.name = "io_uring",
	.start = uring_start,
	.stop = uring_stop,
	.wake = uring_wake,
	.fix = uring_fix,
	.unfix = uring_unfix,
	.fix_file = uring_fix_file,
	.unfix_files = uring_unfix_files,
};

#else /* TEI_HAVE_URING */

static int uring_start(struct tei_nvmeof *ctx, struct tei_err *err)
{
	(void)ctx;
	memset(err, 0, sizeof(*err));
	snprintf(err->text, sizeof(err->text),
		 "io_uring: the library was configured with --disable-uring or "
		 "without liburing");
	return TEI_ERR_UNSUPPORTED;
}

const struct nvmeof_backend nvmeof_uring = {
	.name = "io_uring",
	.start = uring_start,
};

#endif /* TEI_HAVE_URING */
