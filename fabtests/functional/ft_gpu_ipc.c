/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Copies by the GPU from and to GPU memory of another process of this host. The
 * memory is from cuMemAlloc, or consists of chunks (cuMemCreate) that are mapped
 * to adjacent addresses. Each process uses the CUDA stand-in. Unless a case says
 * otherwise, the processes have no rails, so no other transport can move the
 * bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/cuda_stand_in.h"
#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/fx_gpu.h"

#define IPC_SIZE  (17 * FX_MIB + 17)
#define IPC_RACES 20
#define IPC_RENEWALS 8
#define IPC_LEAKS 10	/* number of times that memory is mapped and unmapped */

struct ipc_rig {
	struct cuda_stand_in cuda;
	const char *kind;	/* option of the peer: its kind of memory */
	unsigned int unmapped;	/* result of cuda.left() while no memory of a
				 * peer is mapped */
	transfer_engine_t engine;
	struct fx_buf mem;	/* host memory, 2 * IPC_SIZE bytes */
	uint64_t gpu[2];	/* GPU memory of this process, one buffer on
				 * each of two GPUs */
	struct fx_peer peer;
	uint64_t there;		/* address of the peer's GPU memory */
	segment_id_t seg;
	uint64_t sequence;
};

/* --- the peer ------------------------------------------------------------ */

static struct cuda_stand_in child_cuda;
static bool child_chunks;	/* true: the memory consists of chunks */

/* Allocates memory. The environment variable FX_CHUNKS is the number of chunks,
 * negative if other processes cannot open them; 0: the memory is from
 * cuMemAlloc. */
static uint64_t child_memory(size_t len)
{
	const char *text = getenv("FX_CHUNKS");
	int n = text ? atoi(text) : 0, many = n < 0 ? -n : n;
	void *context;

	if (!n)
		return cuda_stand_in_memory(&child_cuda, 0, len, &context);
	len = (len / (size_t)many + 65535) / 65536 * 65536;
	child_chunks = true;
	return child_cuda.map(0, (unsigned int)many, len, n > 0);
}

/* Frees memory of child_memory. */
static int child_free(uint64_t addr)
{
	if (!child_chunks)
		return child_cuda.free(addr);
	child_cuda.unmap(addr);
	return 0;
}

static bool child_make(struct fx_gpu *gpu, size_t len)
{
	if (!cuda_stand_in_load(&child_cuda))
		return false;
	gpu->to_device = child_cuda.to_device;
	gpu->to_host = child_cuda.to_host;
	gpu->free = child_free;
	gpu->addr = child_memory(len);
	return gpu->addr != 0;
}

static int child_obey(transfer_engine_t engine, struct fx_buf *mem,
		      const char *verb, const char *args, char *text)
{
	static struct fx_gpu gpu;

	if (!strcmp(verb, "hold")) {
		child_cuda.hold(atoi(args));
		return 0;
	}
	if (!strcmp(verb, "queued"))
		return !cuda_stand_in_await(&child_cuda, atoi(args));
	if (!strcmp(verb, "left"))
		return (int)child_cuda.left();
	if (!strcmp(verb, "copies"))
		return (int)child_cuda.copies();
	if (!strcmp(verb, "shared"))
		return child_cuda.alias(gpu.addr, 1) != NULL;
	if (!strcmp(verb, "fds"))
		return (int)fx_count_dir("/proc/self/fd");
	return fx_gpu_obey(&gpu, child_make, engine, mem, verb, args, text);
}

/* Starts a process with GPU memory. Returns the address of the memory, or 0. */
static uint64_t ipc_peer(struct fx_peer *peer, const char *transport,
			 const char *option)
{
	char by[32];

	snprintf(by, sizeof(by), "transport=%s", transport);
	if (!fx_peer_start(peer, IPC_SIZE, by, FX_HASTY, option, NULL) ||
	    fx_ask(peer, "gpu 1"))
		return 0;
	return strtoull(peer->text, NULL, 10);
}

static bool ipc_target(struct ipc_rig *rig, const char *transport,
		       const char *option)
{
	rig->there = ipc_peer(&rig->peer, transport,
			      option ? option : rig->kind);
	rig->seg = rig->there ? openSegment(rig->engine, rig->peer.name) : -1;
	return rig->seg > 0;
}

/* --- bytes --------------------------------------------------------------- */

static bool ipc_move(struct ipc_rig *rig, int op, void *local, uint64_t off,
		     uint64_t len, uint64_t block)
{
	return fx_move(rig->engine, rig->seg, op, local, rig->there + off, len,
		       block);
}

/* Returns true if only the range at off has the pattern of the sequence. */
static bool ipc_only(struct ipc_rig *rig, uint64_t off, uint64_t len)
{
	return fx_gpu_has(&rig->peer, off, len, rig->sequence) &&
	       fx_gpu_has(&rig->peer, 0, off, 0) &&
	       fx_gpu_has(&rig->peer, off + len, IPC_SIZE - off - len, 0);
}

/* Writes host memory to the peer's GPU memory and reads it back. Returns true
 * if the bytes are right and no others have changed. */
static bool ipc_round(struct ipc_rig *rig, uint64_t off, uint64_t len,
		      uint64_t block)
{
	fx_buf_fill(&rig->mem, 0, len, ++rig->sequence);
	fx_buf_poison(&rig->mem, IPC_SIZE, IPC_SIZE);
	return fx_gpu_put(&rig->peer, 0, IPC_SIZE, 0) &&
	       ipc_move(rig, OPCODE_WRITE, rig->mem.p, off, len, block) &&
	       ipc_only(rig, off, len) &&
	       ipc_move(rig, OPCODE_READ, rig->mem.p + IPC_SIZE, off, len,
			block) &&
	       fx_buf_check(&rig->mem, IPC_SIZE, len, rig->sequence) &&
	       fx_buf_poisoned(&rig->mem, IPC_SIZE + len, IPC_SIZE - len);
}

static void *ipc_gpu(const struct ipc_rig *rig, int i)
{
	return (void *)(uintptr_t)rig->gpu[i];
}

/* Writes the memory of the local GPU 0 to the peer's GPU memory and reads it
 * back into the local GPU 1. Returns true if the bytes are right. */
static bool ipc_gpus(struct ipc_rig *rig, uint64_t off, uint64_t len,
		     uint64_t block)
{
	fx_buf_fill(&rig->mem, 0, len, ++rig->sequence);
	fx_buf_poison(&rig->mem, IPC_SIZE, IPC_SIZE);
	return !rig->cuda.to_device(rig->gpu[0], rig->mem.p, len) &&
	       !rig->cuda.to_device(rig->gpu[1], rig->mem.p + IPC_SIZE,
				    IPC_SIZE) &&
	       fx_gpu_put(&rig->peer, 0, IPC_SIZE, 0) &&
	       ipc_move(rig, OPCODE_WRITE, ipc_gpu(rig, 0), off, len, block) &&
	       ipc_only(rig, off, len) &&
	       ipc_move(rig, OPCODE_READ, ipc_gpu(rig, 1), off, len, block) &&
	       !rig->cuda.to_host(rig->mem.p + IPC_SIZE, rig->gpu[1],
				  IPC_SIZE) &&
	       fx_buf_check(&rig->mem, IPC_SIZE, len, rig->sequence) &&
	       fx_buf_poisoned(&rig->mem, IPC_SIZE + len, IPC_SIZE - len);
}

/* A refused request maps nothing. */
static void not_mapped(struct ipc_rig *rig)
{
	unsigned int before = rig->cuda.left();
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE,
			      .local = rig->mem.p + 2 * IPC_SIZE,
			      .remote = rig->there, .len = 1 };
	int ret = fx_job_start(&job);

	ft_ok(ret == 3 && rig->cuda.left() == before,
	      "request_from_unregistered_memory_maps_nothing: %d", ret);
}

static void bytes(struct ipc_rig *rig)
{
	ft_ok(ipc_round(rig, 0, IPC_SIZE, 0) && ipc_round(rig, 4095, 1, 0) &&
		      ipc_round(rig, IPC_SIZE - 1, 1, 0) &&
		      ipc_round(rig, 3, 2 * FX_MIB + 1, 0),
	      "write_and_read_of_gpu_of_another_process_complete");
	ft_ok(ipc_round(rig, 0, 2 * FX_MIB, 8192) &&
		      ipc_round(rig, 1, 8 * FX_MIB, 700000),
	      "batches_of_small_requests_complete");
	ft_ok(ipc_gpus(rig, 0, IPC_SIZE, 0) && ipc_gpus(rig, 7, 1, 0) &&
		      ipc_gpus(rig, 1, 3 * FX_MIB, 100000),
	      "write_and_read_between_two_gpus_complete");
}

/* The target is not involved in the transfers. */
static void stopped_target(struct ipc_rig *rig)
{
	int before = fx_ask(&rig->peer, "copies"), after;
	bool moved;

	fx_buf_fill(&rig->mem, 0, IPC_SIZE, ++rig->sequence);
	moved = fx_peer_pause(&rig->peer) &&
		ipc_move(rig, OPCODE_WRITE, rig->mem.p, 0, IPC_SIZE, 0);
	fx_peer_resume(&rig->peer);
	after = fx_ask(&rig->peer, "copies");
	ft_ok(moved && after == before && ipc_only(rig, 0, IPC_SIZE),
	      "write_to_a_stopped_target_completes");
}

/* --- refused requests ---------------------------------------------------- */

static struct fx_job ipc_job(const struct ipc_rig *rig, int op)
{
	return (struct fx_job){ .engine = rig->engine, .seg = rig->seg,
				.op = op, .local = rig->mem.p,
				.remote = rig->there, .len = IPC_SIZE };
}

/* Returns true if the last error of this thread contains the text. */
static bool ipc_says(const char *text)
{
	struct te_error err = { 0 };

	te_last_error(&err, sizeof(err));
	ft_diag("%s; %s", err.text, err.hint);
	return strstr(err.text, text);
}

static void refused(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	struct te_local local[2] = { { rig->mem.p, 64 },
				     { rig->mem.p + 128, 64 } };
	struct te_remote remote = { rig->there, 128 };
	struct te_request list = { .opcode = TE_WRITE, .target_id = rig->seg,
				   .local = local, .local_count = 2,
				   .remote = &remote, .remote_count = 1 };
	struct te_error err;

	fx_gpu_put(&rig->peer, 0, IPC_SIZE, 0);
	job.remote++;
	ft_ok(fx_job_start(&job) == 8 &&
		      fx_gpu_has(&rig->peer, 0, IPC_SIZE, 0) &&
		      ipc_says("not registered"),
	      "request_beyond_target_memory_is_refused");
	job = ipc_job(rig, OPCODE_WRITE);
	job.local = rig->mem.p + IPC_SIZE + 1;
	ft_ok(fx_job_start(&job) == 3,
	      "write_from_unregistered_source_is_refused");
	ft_ok(fx_submit(rig->engine, &list, &err) == -8,
	      "scatter_gather_request_is_refused");
}

/* --- requests that end early --------------------------------------------- */

static void cancelled(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	bool ended;

	job.block = 64 * FX_KIB;
	fx_gpu_put(&rig->peer, 0, IPC_SIZE, 0);
	fx_buf_fill(&rig->mem, 0, IPC_SIZE, ++rig->sequence);
	rig->cuda.hold(1);
	ft_ok(!fx_job_start(&job) && cuda_stand_in_await(&rig->cuda, true),
	      "copies_of_a_batch_are_queued");
	ft_ok(!te_cancel_batch(rig->engine, job.id), "batch_is_cancelled");
	fx_nap(50000);
	ended = fx_job_poll(&job);
	ft_ok(!ended && job.n[STATUS_CANCELED],
	      "cancelled_tasks_wait_for_their_copies: %s", fx_job_text(&job));
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended &&
		      job.n[STATUS_CANCELED] + job.n[STATUS_COMPLETED] ==
			      job.tasks &&
		      fx_gpu_put(&rig->peer, 0, IPC_SIZE, 0) &&
		      fx_gpu_has(&rig->peer, 0, IPC_SIZE, 0),
	      "no_byte_lands_after_cancelled_tasks_have_ended: %s",
	      fx_job_text(&job));
	fx_job_free(&job);
}

/* The peer unregisters memory that this process has mapped. */
static void unregistered(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	bool ended;
	int ret;

	fx_buf_fill(&rig->mem, 0, IPC_SIZE, ++rig->sequence);
	rig->cuda.hold(1);
	if (!ft_ok(!fx_job_start(&job) && cuda_stand_in_await(&rig->cuda, true),
		   "copies_of_a_write_are_queued"))
		return;
	ret = fx_ask(&rig->peer, "ungpu");
	ft_ok(ret == -4, "unregistration_during_a_copy_is_busy: %d", ret);
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_COMPLETED] == 1 &&
		      fx_gpu_has(&rig->peer, 0, IPC_SIZE, rig->sequence),
	      "copy_into_memory_that_stays_registered_completes: %s",
	      fx_job_text(&job));
	fx_job_free(&job);
	ft_ok(ipc_round(rig, 0, IPC_SIZE, 0),
	      "memory_that_was_busy_is_still_mapped");
	ft_ok(!fx_ask(&rig->peer, "ungpu") &&
		      fx_gpu_put(&rig->peer, 0, IPC_SIZE, 0) &&
		      fx_job_start(&job) == 8 &&
		      fx_gpu_has(&rig->peer, 0, IPC_SIZE, 0),
	      "write_to_unregistered_memory_is_refused");
	ft_ok(!fx_ask(&rig->peer, "regpu") && ipc_round(rig, 0, IPC_SIZE, 0),
	      "memory_that_is_registered_again_is_mapped_again");
}

/* The peer unregisters memory at any time during transfers. */
static void unregistered_at_any_time(struct ipc_rig *rig)
{
	unsigned int completed = 0, failed = 0, i;
	struct fx_job job;
	bool good = true;

	for (i = 0; i < IPC_RACES && good; i++) {
		job = ipc_job(rig, OPCODE_WRITE);
		job.block = i & 1 ? 0 : 64 * FX_KIB;
		fx_buf_fill(&rig->mem, 0, IPC_SIZE, ++rig->sequence);
		good = fx_gpu_withdraw(&rig->peer, &job, i % 8 == 7, &completed,
				       &failed) &&
		       !fx_ask(&rig->peer, "regpu");
	}
	ft_ok(good, "no_byte_lands_after_unregistration");
	ft_diag("%u tasks completed, %u failed", completed, failed);
	ft_ok(ipc_round(rig, 0, IPC_SIZE, 0),
	      "transfers_after_unregistrations_complete");
}

/* Waits until the driver has at most `most` objects of this process. */
static bool ipc_left(const struct ipc_rig *rig, unsigned int most)
{
	unsigned int ms;

	for (ms = 0; ms < fx_ms(10000) && rig->cuda.left() > most; ms += 10)
		fx_nap(10000);
	return rig->cuda.left() <= most;
}

/* Memory that its owner has unregistered does not stay mapped in a process that
 * is idle, because a driver may keep memory allocated while it is mapped. */
static void idle(struct ipc_rig *rig)
{
	ft_ok(!fx_ask(&rig->peer, "ungpu") && ipc_left(rig, rig->unmapped),
	      "unregistered_memory_is_unmapped_by_an_idle_process");
	ft_ok(!fx_ask(&rig->peer, "regpu") && ipc_round(rig, 0, IPC_SIZE, 0),
	      "memory_is_mapped_again_after_an_idle_time");
}

/* Memory that is unregistered and unmapped leaves no file descriptor, neither at
 * its owner nor here. */
static void descriptors(struct ipc_rig *rig)
{
	bool good = !fx_ask(&rig->peer, "ungpu") &&
		    ipc_left(rig, rig->unmapped);
	unsigned int here = fx_count_dir("/proc/self/fd"), more = here, i;
	int there = fx_ask(&rig->peer, "fds"), after;

	for (i = 0; i < IPC_LEAKS && good; i++)
		good = !fx_ask(&rig->peer, "regpu") &&
		       ipc_round(rig, 0, IPC_SIZE, 0) &&
		       !fx_ask(&rig->peer, "ungpu") &&
		       ipc_left(rig, rig->unmapped);
	after = fx_ask(&rig->peer, "fds");
	more = fx_count_dir("/proc/self/fd");
	ft_ok(good && more == here && after == there,
	      "unmapped_memory_leaves_no_descriptors: %u of %u, at the owner %d of %d",
	      more, here, after, there);
	ft_ok(!fx_ask(&rig->peer, "regpu") && ipc_round(rig, 0, IPC_SIZE, 0),
	      "memory_is_mapped_again_after_many_times");
}

/* A driver that takes long to unmap memory must not delay copies. */
static void slow_driver(struct ipc_rig *rig)
{
	unsigned int with = rig->cuda.left();
	bool begun, moved;

	rig->cuda.hold(2);
	begun = !fx_ask(&rig->peer, "ungpu") && ipc_left(rig, with - 1);
	moved = fx_move(rig->engine, LOCAL_SEGMENT, OPCODE_WRITE, rig->mem.p,
			rig->gpu[0], FX_MIB, 0);
	rig->cuda.hold(0);
	ft_ok(begun && moved, "copies_complete_while_the_driver_unmaps");
	ft_ok(!fx_ask(&rig->peer, "regpu") && ipc_round(rig, 0, IPC_SIZE, 0),
	      "memory_is_mapped_again_after_a_slow_unmapping");
}

/* The peer frees memory that this process maps, and registers other memory. */
static void renewed(struct ipc_rig *rig)
{
	bool good = true;
	int i;

	for (i = 0; i < IPC_RENEWALS && good; i++) {
		rig->there = fx_gpu_renew(rig->engine, &rig->peer);
		good = rig->there && ipc_round(rig, 3, FX_MIB, 0);
	}
	ft_ok(good, "memory_that_is_freed_while_mapped_is_replaced: round %d",
	      i);
}

/* --- segments that are closed --------------------------------------------- */

/* The segment is closed and opened again while tasks of the first segment still
 * use the mapping. */
static void opened_again(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE), more;
	bool ended;
	int ret;

	fx_buf_fill(&rig->mem, 0, IPC_SIZE, ++rig->sequence);
	rig->cuda.hold(1);
	if (!ft_ok(!fx_job_start(&job), "write_before_a_close_is_submitted"))
		return;
	closeSegment(rig->engine, rig->seg);
	rig->seg = openSegment(rig->engine, rig->peer.name);
	more = ipc_job(rig, OPCODE_WRITE);
	ret = fx_job_start(&more);
	ft_ok(!ret, "write_to_a_segment_that_is_opened_again_is_accepted: %d",
	      ret);
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS) &&
		(ret || fx_job_wait(&more, FX_LONG_MS));
	ft_ok(ended && !ret && job.n[STATUS_COMPLETED] == 1 &&
		      more.n[STATUS_COMPLETED] == 1 &&
		      fx_gpu_has(&rig->peer, 0, IPC_SIZE, rig->sequence),
	      "both_writes_complete: %s", fx_job_text(&more));
	fx_job_free(&job);
	if (!ret)
		fx_job_free(&more);
}

/* Memory that a task used when its segment was closed is unmapped after the
 * task. */
static void closed_in_use(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	bool ended;

	rig->cuda.hold(1);
	if (!ft_ok(!fx_job_start(&job), "write_before_the_last_close_starts"))
		return;
	closeSegment(rig->engine, rig->seg);
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && ipc_left(rig, rig->unmapped),
	      "memory_of_a_segment_closed_in_use_is_unmapped");
	fx_job_free(&job);
	rig->seg = openSegment(rig->engine, rig->peer.name);
	ft_ok(ipc_round(rig, 0, IPC_SIZE, 0),
	      "memory_of_a_closed_segment_is_mapped_again");
}

/* Makes the driver's next call that maps memory fail. Tests that the next write
 * makes this call, so it is refused, and that later transfers map the memory. */
static void map_fails_once(struct ipc_rig *rig, const char *what)
{
	const char *call = strcmp(rig->kind, "FX_CHUNKS=0") ?
				   "cuMemMap" :
				   "cuIpcOpenMemHandle";
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	int ret;

	rig->cuda.fail(call, 0, 2);
	ret = fx_job_start(&job);
	ft_ok(ret == 8 && ipc_says(call),
	      "write_that_cannot_map_memory_%s_is_refused: %d", what, ret);
	/* the engine does not try again for one second */
	fx_nap(1100000);
	ft_ok(ipc_round(rig, 0, IPC_SIZE, 0),
	      "later_transfers_map_memory_%s", what);
}

/* A buffer that could not be mapped once is mapped later. */
static void tried_again(struct ipc_rig *rig)
{
	closeSegment(rig->engine, rig->seg);
	rig->seg = openSegment(rig->engine, rig->peer.name);
	map_fails_once(rig, "of_a_segment_opened_again");
}

/* After an error of the driver, memory is mapped again: its context may be gone. */
static void mapped_again(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	bool failed;

	rig->cuda.fail("cuMemcpyAsync", 0, 700);
	failed = !fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		 job.n[STATUS_FAILED] == 1;
	ft_ok(failed, "write_fails_with_the_error_of_the_driver: %s",
	      fx_job_text(&job));
	fx_job_free(&job);
	map_fails_once(rig, "after_an_error_of_the_driver");
}

/* A write whose copy the GPU does not complete ends with STATUS_TIMEOUT, because
 * its bytes may still arrive. Until the copy has ended, the target cannot
 * unregister the memory. */
static void unfenced(struct ipc_rig *like)
{
	struct ipc_rig rig = *like;
	struct fx_job job;
	bool ended;
	int held, ret;

	rig.engine = fx_engine_hasty("local");
	rig.seg = rig.engine && !fx_register(rig.engine, &rig.mem) ?
			  -1 :
			  openSegment(rig.engine, rig.peer.name);
	job = ipc_job(&rig, OPCODE_WRITE);
	if (!ft_ok(rig.seg > 0 && ipc_round(&rig, 0, IPC_SIZE, 0),
		   "engine_with_short_timeout_writes"))
		return;
	rig.cuda.hold(1);
	ended = !fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended && job.n[STATUS_TIMEOUT] == 1,
	      "write_that_the_gpu_does_not_complete_times_out: %s",
	      fx_job_text(&job));
	held = fx_ask(&rig.peer, "ungpu");
	rig.cuda.hold(0);
	fx_job_free(&job);
	ret = fx_ask(&rig.peer, "ungpu");
	ft_ok(held == -4 && !ret,
	      "memory_is_unregistered_after_the_copy_only: %d, %d", held, ret);
	destroyTransferEngine(rig.engine);
	like->sequence = rig.sequence;
	ft_ok(!fx_ask(&like->peer, "regpu") && ipc_round(like, 0, IPC_SIZE, 0),
	      "transfers_after_a_timeout_complete");
}

/* --- initiators that are stopped or killed ------------------------------- */

static bool ipc_initiator(struct ipc_rig *rig, struct fx_peer *other)
{
	int seg;

	if (!ipc_peer(other, "local", NULL) ||
	    fx_ask(other, "reg 0 %llu 0", IPC_SIZE))
		return false;
	seg = fx_ask(other, "open %s", rig->peer.name);
	return seg > 0 && !fx_ask(other, "hold 1") &&
	       !fx_ask(other, "start %d %d 0 %llu %llu 65536 1 -", seg,
		       OPCODE_WRITE, (unsigned long long)rig->there, IPC_SIZE) &&
	       !fx_ask(other, "queued 1");
}

static void other_initiators(struct ipc_rig *rig)
{
	struct fx_peer other;
	bool killed;
	int ret;

	if (!ft_ok(ipc_initiator(rig, &other), "another_initiator_starts"))
		return;
	fx_peer_pause(&other);
	ret = fx_ask(&rig->peer, "ungpu");
	ft_ok(ret == -4, "memory_in_use_by_a_stopped_process_is_busy: %d", ret);
	ft_ok(ipc_round(rig, 0, IPC_SIZE, 0),
	      "transfers_while_another_initiator_is_stopped_complete");
	fx_peer_resume(&other);
	fx_peer_kill(&other);
	ret = fx_ask(&rig->peer, "ungpu");
	killed = !ret && fx_gpu_put(&rig->peer, 0, IPC_SIZE, 0);
	fx_peer_drop(&other);
	ft_ok(killed && fx_gpu_has(&rig->peer, 0, IPC_SIZE, 0),
	      "memory_in_use_by_a_killed_process_is_unregistered: %d", ret);
	ft_ok(!fx_ask(&rig->peer, "regpu") && ipc_round(rig, 0, IPC_SIZE, 0),
	      "transfers_after_another_initiator_was_killed_complete");
}

/* --- a target that is killed --------------------------------------------- */

static void killed_target(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	struct fx_job more = job;
	struct te_error err = { 0 };
	bool ended;
	int ret;

	rig->cuda.hold(1);
	if (!ft_ok(!fx_job_start(&job) && cuda_stand_in_await(&rig->cuda, true),
		   "copies_to_a_target_are_queued"))
		return;
	fx_peer_kill(&rig->peer);
	rig->cuda.hold(0);
	ended = fx_job_wait(&job, FX_LONG_MS) &&
		!te_task_error(rig->engine, job.id, 0, &err, sizeof(err));
	ft_ok(ended && job.n[STATUS_FAILED] == 1 && strstr(err.text, "ended"),
	      "write_to_a_killed_target_fails: %s: %s", fx_job_text(&job),
	      err.text);
	fx_job_free(&job);
	ret = fx_job_start(&more);
	ft_ok(ret == 8, "later_write_to_a_killed_target_is_refused: %d", ret);
	ft_ok(ipc_left(rig, rig->unmapped),
	      "memory_of_a_killed_target_is_unmapped");
	closeSegment(rig->engine, rig->seg);
	fx_peer_drop(&rig->peer);
	ft_ok(ipc_target(rig, "local", NULL) && ipc_round(rig, 0, IPC_SIZE, 0),
	      "transfers_to_another_target_complete");
}

/* --- CUDA IPC that is refused -------------------------------------------- */

/* Tests that the bytes then go another way, through host memory. `option` is an
 * environment variable of the target; `name` and `value` are one of this
 * process, or NULL. */
static void refused_by(const struct ipc_rig *like, const char *what,
		       const char *option, const char *name, const char *value)
{
	struct ipc_rig rig = *like;
	int before, after;

	if (name)
		setenv(name, value, 1);
	rig.engine = fx_engine("auto");
	before = rig.engine && fx_register(rig.engine, &rig.mem) &&
				 ipc_target(&rig, "auto", option) ?
			 fx_ask(&rig.peer, "copies") :
			 -1;
	after = before >= 0 && ipc_round(&rig, 1, 2 * FX_MIB, 0) ?
			fx_ask(&rig.peer, "copies") :
			-1;
	/* ipc_round makes at least 4 copies there itself */
	ft_ok(after > before + 4, "bytes_go_through_host_memory_if_%s", what);
	fx_peer_stop(&rig.peer);
	destroyTransferEngine(rig.engine);
	if (name)
		unsetenv(name);
}

static void refused_without_rails(const struct ipc_rig *like,
				  const char *option)
{
	struct ipc_rig rig = *like;
	struct fx_job job;

	ft_ok(ipc_target(&rig, "local", option), "target_with_%s_starts",
	      option);
	job = ipc_job(&rig, OPCODE_READ);
	ft_ok(fx_job_start(&job) == 8 && ipc_says("exported no buffer"),
	      "request_is_refused_without_rails_and_with_%s", option);
	fx_peer_stop(&rig.peer);
}

/* The target installs the transport after it has registered its memory. */
static void installed_later(const struct ipc_rig *like)
{
	struct ipc_rig rig = *like;

	rig.there = ipc_peer(&rig.peer, "tcp", rig.kind);
	ft_ok(rig.there && !fx_ask(&rig.peer, "shared"),
	      "memory_of_a_process_without_local_is_not_exported");
	ft_ok(!fx_ask(&rig.peer, "install local") &&
		      fx_ask(&rig.peer, "shared") == 1 &&
		      (rig.seg = openSegment(rig.engine, rig.peer.name)) > 0 &&
		      ipc_round(&rig, 1, 2 * FX_MIB, 0),
	      "memory_is_exported_when_local_is_installed");
	fx_peer_stop(&rig.peer);
}

static void refusals(struct ipc_rig *rig)
{
	refused_by(rig, "the_driver_exports_no_handle",
		   "CUDA_STAND_IN_NO_IPC=export", NULL, NULL);
	refused_by(rig, "the_driver_opens_no_handle", "FX_NONE=1",
		   "CUDA_STAND_IN_NO_IPC", "open");
	refused_by(rig, "ipc_is_switched_off_here", "FX_NONE=1",
		   "MOONRAIL_GPU_IPC", "0");
	refused_by(rig, "ipc_is_switched_off_there", "MOONRAIL_GPU_IPC=0", NULL,
		   NULL);
	refused_by(rig, "chunks_cannot_be_exported", "FX_CHUNKS=-9", NULL, NULL);
	refused_by(rig, "the_driver_opens_no_chunks", "FX_CHUNKS=9",
		   "CUDA_STAND_IN_NO_IPC", "open");
	refused_by(rig, "memory_has_too_many_chunks", "FX_CHUNKS=273", NULL,
		   NULL);
	refused_without_rails(rig, "CUDA_STAND_IN_NO_IPC=export");
	refused_without_rails(rig, "FX_CHUNKS=-9");
}

/* --- the end of an engine ------------------------------------------------- */

static void destroyed(struct ipc_rig *rig)
{
	struct fx_job job = ipc_job(rig, OPCODE_WRITE);
	bool ended;
	int left;

	job.block = 64 * FX_KIB;
	ended = !fx_job_start(&job) && !fx_ask(&rig->peer, "destroy") &&
		fx_job_wait(&job, FX_LONG_MS);
	ft_ok(ended, "tasks_for_a_target_that_is_destroyed_end: %s",
	      fx_job_text(&job));
	fx_job_free(&job);
	left = fx_ask(&rig->peer, "left");
	ft_ok(!left, "destroyed_target_frees_all_driver_objects: %d", left);
	fx_peer_stop(&rig->peer);
	/* an engine that is destroyed while memory is mapped */
	ft_ok(ipc_target(rig, "local", NULL) && ipc_round(rig, 0, IPC_SIZE, 0),
	      "memory_of_another_target_is_mapped");
	destroyTransferEngine(rig->engine);
	left = (int)rig->cuda.left();
	ft_ok(!left, "destroyed_engine_frees_all_driver_objects: %d", left);
	fx_peer_stop(&rig->peer);
}

static bool ipc_setup(struct ipc_rig *rig)
{
	void *context;
	int i;

	srand((unsigned int)fx_seed());
	rig->mem = fx_buf_map(2 * IPC_SIZE, -1);
	rig->engine = fx_engine("local");
	if (!ft_ok(rig->mem.p && rig->engine &&
			   fx_register(rig->engine, &rig->mem) &&
			   cuda_stand_in_load(&rig->cuda),
		   "engine_and_driver_start"))
		return false;
	for (i = 0; i < 2; i++) {
		rig->gpu[i] = cuda_stand_in_memory(&rig->cuda, i, IPC_SIZE,
						   &context);
		if (!ft_ok(!registerLocalMemory(rig->engine, ipc_gpu(rig, i),
						IPC_SIZE, "*", 0),
			   "local_gpu_%d_is_registered", i))
			return false;
	}
	rig->unmapped = rig->cuda.left();
	return ft_ok(ipc_target(rig, "local", NULL),
		     "target_with_gpu_memory_starts");
}

static void ends(struct ipc_rig *rig)
{
	stopped_target(rig);
	refused(rig);
	cancelled(rig);
	unregistered(rig);
	unregistered_at_any_time(rig);
	idle(rig);
	renewed(rig);
	slow_driver(rig);
	opened_again(rig);
	closed_in_use(rig);
	tried_again(rig);
	mapped_again(rig);
	unfenced(rig);
	other_initiators(rig);
	killed_target(rig);
	installed_later(rig);
}

/* Makes the tests with targets whose memory is of one kind. */
static void kind(const char *option, bool many, bool refuse)
{
	struct ipc_rig rig = { .kind = option };

	ft_diag("GPU memory of the target: %s", option);
	if (!ipc_setup(&rig))
		return;
	not_mapped(&rig);
	bytes(&rig);
	descriptors(&rig);
	if (many)
		ends(&rig);
	if (refuse)
		refusals(&rig);
	destroyed(&rig);
	ft_ok(fx_buf_guards(&rig.mem), "guard_zones_are_unchanged");
	fx_buf_unmap(&rig.mem);
}

int main(int argc, char **argv)
{
	fx_extend(child_obey);
	fx_init(argc, argv);
	kind("FX_CHUNKS=0", true, true);
	kind("FX_CHUNKS=1", false, false);
	kind("FX_CHUNKS=9", true, false);
	return ft_result();
}
