/* SPDX-License-Identifier: BSD-2-Clause */

/* Tests of blocking transfers: te_read, te_write and the calls for lists of
 * ranges. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_wait.h"

#define BLOCKING_THREADS 8
#define BLOCKING_ROUNDS 50
/* number of local ranges; more than TE_PIECES_MAX */
#define BLOCKING_PIECES 700u
#define BLOCKING_PIECE 1536u	/* bytes of each local range */

/* Writes a pattern with one blocking call and reads it back with another.
 * Returns true if the bytes are right. */
static bool blocking_moves(struct wait_rig *rig, segment_id_t seg,
			   struct fx_buf *target, uint64_t off, uint64_t len)
{
	uint64_t seq = ++rig->sequence, at = target->addr + off;
	bool good;

	fx_buf_fill(&rig->mem, off, len, seq);
	good = !te_write(rig->engine, seg, rig->mem.p + off, at, len, -1) &&
	       fx_buf_check(target, off, len, seq);
	fx_buf_poison(&rig->mem, off, len);
	return good &&
	       !te_read(rig->engine, seg, rig->mem.p + off, at, len,
			FX_LONG_MS * WAIT_MS) &&
	       fx_buf_check(&rig->mem, off, len, seq);
}

/*
 * Divides the local memory into ranges of BLOCKING_PIECE bytes, and the
 * target's memory into ranges of 1 000 bytes in reverse order. The library has
 * to cut both at the boundaries of the other, so that the cut ranges have
 * several lengths. Returns the number of remote ranges.
 */
static size_t blocking_lists(struct wait_rig *rig, struct te_local *local,
			     struct te_remote *remote)
{
	uint64_t len = BLOCKING_PIECES * BLOCKING_PIECE, piece = 1000, off = 0;
	size_t n = 0;

	for (size_t i = 0; i < BLOCKING_PIECES; i++) {
		local[i].addr = rig->mem.p + i * BLOCKING_PIECE;
		local[i].length = BLOCKING_PIECE;
	}
	for (; off < len; off += remote[n++].length) {
		remote[n].length = len - off < piece ? len - off : piece;
		remote[n].addr = rig->target.mem.addr + len - off -
				 remote[n].length;
	}
	return n;
}

/* Returns true if the remote ranges, in the order of the list, contain the
 * bytes of the local memory. */
static bool blocking_mirrored(struct wait_rig *rig,
			      const struct te_remote *remote, size_t n)
{
	const unsigned char *from = rig->mem.p;

	for (size_t i = 0; i < n; from += remote[i++].length)
		if (memcmp(rig->target.mem.p +
				   (remote[i].addr - rig->target.mem.addr),
			   from, remote[i].length))
			return false;
	return true;
}

static void blocking_vectors(struct wait_rig *rig)
{
	uint64_t len = BLOCKING_PIECES * BLOCKING_PIECE, seq = ++rig->sequence;
	struct te_local *local = calloc(BLOCKING_PIECES, sizeof(*local));
	struct te_remote *remote = calloc(2 * BLOCKING_PIECES, sizeof(*remote));
	size_t n = blocking_lists(rig, local, remote);
	bool good;

	fx_buf_fill(&rig->mem, 0, len, seq);
	ft_ok(!te_writev(rig->engine, rig->seg, local, BLOCKING_PIECES, remote,
			 n, -1) && blocking_mirrored(rig, remote, n),
	      "writev_of_%u_and_%zu_ranges_is_in_place", BLOCKING_PIECES, n);
	fx_buf_poison(&rig->mem, 0, len);
	good = !te_readv(rig->engine, rig->seg, local, BLOCKING_PIECES, remote,
			 n, -1);
	ft_ok(good && fx_buf_check(&rig->mem, 0, len, seq),
	      "readv_of_the_same_ranges_returns_the_bytes");
	fx_buf_poison(&rig->mem, 0, len);
	remote[n - 1].length--;
	ft_ok(te_readv(rig->engine, rig->seg, local, BLOCKING_PIECES, remote,
		       n, -1) == 1 && fx_buf_poisoned(&rig->mem, 0, len),
	      "readv_of_different_lengths_is_refused");
	remote[n - 1].length = 0;
	ft_ok(te_writev(rig->engine, rig->seg, local, BLOCKING_PIECES, remote,
			n, -1) == 1, "writev_with_an_empty_range_is_refused");
	free(local);
	free(remote);
}

static bool blocking_last(int code, const char *text)
{
	struct te_error err = { 0 };

	return !te_last_error(&err, sizeof(err)) && err.code == code &&
	       strstr(err.text, text);
}

static void blocking_refused(struct wait_rig *rig)
{
	static char outside[64];
	uint64_t at = rig->target.mem.addr, end = at + WAIT_MEM;

	ft_ok(te_write(rig->engine, rig->seg, outside, at, 64, -1) == 3 &&
	      blocking_last(-3, "te_write"),
	      "write_of_unregistered_memory_is_refused");
	ft_ok(te_read(rig->engine, rig->seg, rig->mem.p, at, 0, -1) == 1 &&
	      blocking_last(-1, "te_read"), "read_of_length_0_is_refused");
	ft_ok(te_write(rig->engine, rig->seg, rig->mem.p, end + FX_MIB, 64,
		       FX_LONG_MS * WAIT_MS) == 3 && blocking_last(-3, ""),
	      "law8_write_beyond_the_target_s_memory_fails");
}

/* Checks that te_ended_batches does not report the internal batches of blocking
 * calls. */
static void blocking_unreported(struct wait_rig *rig)
{
	struct te_ended ended[4];
	size_t n = 4;
	int fd = te_event_fd(rig->engine);

	ft_ok(fd >= 0 && !te_ended_batches(rig->engine, ended, sizeof(*ended),
					   &n),
	      "an_event_descriptor");
	n = 4;
	ft_ok(blocking_moves(rig, rig->seg, &rig->target.mem, 0, 4096) &&
	      !te_ended_batches(rig->engine, ended, sizeof(*ended), &n) && !n,
	      "blocking_call_reports_no_ended_batch");
}

/* Moves len bytes between `local` and the target's memory at offset `off` with
 * one request. Returns the result of te_submit_wait. */
static int blocking_request(struct wait_rig *rig, uint32_t opcode,
			    uint32_t flags, void *local, uint64_t off,
			    uint64_t len)
{
	struct te_local here = { local, len };
	struct te_remote there = { rig->target.mem.addr + off, len };
	struct te_request req = {
		.opcode = opcode,
		.flags = flags,
		.target_id = rig->seg,
		.local = &here,
		.local_count = opcode == TE_ATOMIC_ADD ? 0 : 1,
		.remote = &there,
		.remote_count = 1,
		.operand = opcode > TE_WRITE ? 5 : 0,
	};

	return te_submit_wait(rig->engine, &req, sizeof(req), 1, 0,
			      FX_LONG_MS * WAIT_MS);
}

static void blocking_requests(struct wait_rig *rig)
{
	struct fx_buf stack = fx_buf_map(FX_MIB, -1);
	uint64_t seq = ++rig->sequence, old = 0;
	uint64_t *number = (uint64_t *)(void *)rig->target.mem.p;

	fx_buf_fill(&stack, 0, FX_MIB, seq);
	ft_ok(blocking_request(rig, TE_WRITE, 0, stack.p, 0, 64) == 3 &&
		      blocking_last(-3, "te_submit_wait"),
	      "submit_wait_of_unregistered_memory_without_flag_is_refused");
	ft_ok(!blocking_request(rig, TE_WRITE, TE_REQ_BOUNCE, stack.p, 0,
				FX_MIB) &&
		      fx_buf_check(&rig->target.mem, 0, FX_MIB, seq),
	      "submit_wait_writes_unregistered_memory");
	fx_buf_poison(&stack, 0, FX_MIB);
	ft_ok(!blocking_request(rig, TE_READ, TE_REQ_BOUNCE, stack.p, 0,
				FX_MIB) &&
		      fx_buf_check(&stack, 0, FX_MIB, seq),
	      "submit_wait_reads_into_unregistered_memory");
	fx_buf_unmap(&stack);
	__atomic_store_n(number, 37, __ATOMIC_SEQ_CST);
	ft_ok(!blocking_request(rig, TE_ATOMIC_ADD, 0, NULL, 0, 8) &&
		      !blocking_request(rig, TE_ATOMIC_FETCH_ADD, 0, rig->mem.p,
					0, 8) &&
		      __atomic_load_n(number, __ATOMIC_SEQ_CST) == 47,
	      "submit_wait_executes_atomics");
	memcpy(&old, rig->mem.p, sizeof(old));
	ft_ok(old == 42, "submit_wait_returns_the_old_value");
	ft_ok(!te_submit_wait(rig->engine, NULL, sizeof(struct te_request), 0,
			      0, -1) &&
		      te_submit_wait(rig->engine, NULL,
				     sizeof(struct te_request), 1048577, 0,
				     -1) == 2,
	      "submit_wait_of_0_succeeds_and_of_1048577_is_refused");
	ft_ok(blocking_request(rig, TE_READ, 0, rig->mem.p, WAIT_MEM + FX_MIB,
			       64) == 3 &&
		      blocking_last(-3, ""),
	      "law8_submit_wait_beyond_the_target_s_memory_fails");
}

struct blocking_thread {
	struct wait_rig *rig;
	unsigned int index;
	bool good;
	pthread_t thread;
};

static void *blocking_thread_main(void *arg)
{
	struct blocking_thread *t = arg;
	uint64_t off = t->index * 64 * FX_KIB;
	struct wait_rig rig = *t->rig;

	rig.sequence += t->index * 1000;
	t->good = true;
	for (int i = 0; i < BLOCKING_ROUNDS; i++)
		t->good = blocking_moves(&rig, rig.seg, &rig.target.mem, off,
					 1 + (uint64_t)i * 1300) && t->good;
	return NULL;
}

static void blocking_threads(struct wait_rig *rig)
{
	struct blocking_thread t[BLOCKING_THREADS];
	bool good = true;

	for (unsigned int i = 0; i < BLOCKING_THREADS; i++) {
		t[i].rig = rig;
		t[i].index = i;
		pthread_create(&t[i].thread, NULL, blocking_thread_main, &t[i]);
	}
	for (unsigned int i = 0; i < BLOCKING_THREADS; i++) {
		pthread_join(t[i].thread, NULL);
		good = t[i].good && good;
	}
	rig->sequence += BLOCKING_THREADS * 1000;
	ft_ok(good, "blocking_calls_of_%u_threads_move_their_bytes",
	      BLOCKING_THREADS);
}

void wait_blocking(struct wait_rig *rig)
{
	struct fx_buf own = rig->mem;
	uint64_t seq = ++rig->sequence;

	ft_ok(blocking_moves(rig, rig->seg, &rig->target.mem, 0, 8),
	      "write_and_read_of_8_bytes");
	ft_ok(blocking_moves(rig, rig->seg, &rig->target.mem, 0, 8 * FX_MIB),
	      "write_and_read_of_8_mib");
	fx_buf_fill(&own, 0, FX_MIB, seq);
	ft_ok(!te_write(rig->engine, LOCAL_SEGMENT, own.p,
			(uint64_t)(uintptr_t)own.p + FX_MIB, FX_MIB, -1) &&
		      !memcmp(own.p, own.p + FX_MIB, FX_MIB),
	      "write_to_the_own_segment");
	blocking_vectors(rig);
	blocking_requests(rig);
	blocking_refused(rig);
	blocking_threads(rig);
	blocking_unreported(rig);
}

/*
 * Calls te_write with timeouts that pass during the transfer. Changes the local
 * memory as soon as the call returns; none of the new bytes may arrive. Returns
 * the number of calls that timed out.
 */
static unsigned int blocking_cut(struct wait_rig *rig)
{
	uint64_t len = 16 * FX_MIB, at = rig->target.mem.addr;
	unsigned int late = 0;
	bool good = true;
	int ret;

	for (int i = 0; i < 16 && good; i++) {
		fx_buf_fill(&rig->mem, 0, len, ++rig->sequence);
		fx_buf_fill(&rig->target.mem, 0, len, rig->sequence);
		ret = te_write(rig->engine, rig->seg, rig->mem.p, at, len,
			       wait_random(rig, 4000));
		fx_buf_poison(&rig->mem, 0, len);
		good = (!ret || (ret == TE_TIMED_OUT &&
				 blocking_last(-TE_TIMED_OUT, ""))) &&
		       fx_buf_still(&rig->target.mem, 0, len, 20) &&
		       fx_buf_check(&rig->target.mem, 0, len, rig->sequence);
		late += ret == TE_TIMED_OUT;
	}
	ft_ok(good, "law2_timed_out_write_reads_no_byte_after_its_return");
	return late;
}

void wait_blocking_stopped(struct wait_rig *rig)
{
	struct te_local here = { rig->mem.p, FX_MIB };
	struct te_remote there = { rig->target.mem.addr, FX_MIB };
	struct te_request req = {
		.opcode = TE_READ,
		.target_id = rig->seg,
		.local = &here,
		.local_count = 1,
		.remote = &there,
		.remote_count = 1,
	};
	struct te_error err = { 0 };
	uint64_t from, ms;
	int ret;

	ft_ok(blocking_cut(rig) > 0, "some_writes_timed_out");
	fx_peer_pause(&rig->target);
	from = ft_now_ns();
	ret = te_read(rig->engine, rig->seg, rig->mem.p, rig->target.mem.addr,
		      FX_MIB, 200 * WAIT_MS);
	ms = (ft_now_ns() - from) / 1000000;
	fx_buf_poison(&rig->mem, 0, FX_MIB);
	te_last_error(&err, sizeof(err));
	ft_ok(ret == TE_TIMED_OUT && err.code == -TE_TIMED_OUT && ms >= 200 &&
	      ms < 200 + wait_end_ms(),
	      "law3_read_from_a_stopped_target_times_out: %llu ms, %d",
	      (unsigned long long)ms, ret);
	ft_ok(err.flags & TE_ERROR_UNFENCED,
	      "record_of_an_unfenced_read_has_the_flag");
	from = ft_now_ns();
	ret = te_submit_wait(rig->engine, &req, sizeof(req), 1, 0,
			     200 * WAIT_MS);
	ms = (ft_now_ns() - from) / 1000000;
	fx_buf_poison(&rig->mem, 0, FX_MIB);
	ft_ok(ret == TE_TIMED_OUT && blocking_last(-TE_TIMED_OUT, "") &&
		      ms >= 200 && ms < 200 + wait_end_ms(),
	      "law3_submit_wait_to_a_stopped_target_times_out: %llu ms, %d",
	      (unsigned long long)ms, ret);
	fx_peer_resume(&rig->target);
	ft_ok(fx_buf_still(&rig->mem, 0, FX_MIB, 200) &&
	      fx_buf_poisoned(&rig->mem, 0, FX_MIB),
	      "law2_timed_out_read_changes_no_byte_after_its_return");
	ft_ok(blocking_moves(rig, rig->seg, &rig->target.mem, 0, FX_MIB),
	      "blocking_calls_work_after_a_timeout");
	fx_peer_pause(&rig->target);
	req.opcode = TE_ATOMIC_ADD;
	req.local_count = 0;
	there.length = 8;
	ret = te_submit_wait(rig->engine, &req, sizeof(req), 1, 0,
			     1000 * WAIT_MS);
	te_last_error(&err, sizeof(err));
	ft_ok(ret == TE_TIMED_OUT && err.flags & TE_ERROR_UNKNOWN,
	      "law13_timed_out_atomic_of_submit_wait_is_unknown: %d, %x", ret,
	      err.flags);
	fx_peer_resume(&rig->target);
}

static void *blocking_reader(void *arg)
{
	struct wait_rig *rig = arg;

	rig->random = (uint64_t)te_read(rig->engine, rig->seg, rig->mem.p,
					rig->target.mem.addr, FX_MIB, -1);
	return NULL;
}

static bool blocking_under_way(void *arg)
{
	return te_drain(arg, 0) == TE_TIMED_OUT;
}

void wait_blocking_destroyed(struct wait_rig *rig)
{
	struct wait_rig own = *rig;
	pthread_t thread;

	own.mem = fx_buf_map(FX_MIB, -1);
	own.engine = fx_engine_hasty("tcp");
	fx_register(own.engine, &own.mem);
	own.seg = openSegment(own.engine, rig->target.name);
	ft_ok(!te_read(own.engine, own.seg, own.mem.p, rig->target.mem.addr,
		       64, -1), "an_engine_of_its_own");
	fx_peer_pause(&rig->target);
	pthread_create(&thread, NULL, blocking_reader, &own);
	ft_ok(ft_wait_until(blocking_under_way, own.engine, fx_ms(5000)),
	      "a_thread_reads_from_a_stopped_target");
	destroyTransferEngine(own.engine);
	pthread_join(thread, NULL);
	fx_buf_poison(&own.mem, 0, FX_MIB);
	fx_peer_resume(&rig->target);
	ft_ok(own.random == 1, "destroying_the_engine_ends_a_blocking_call");
	ft_ok(fx_buf_still(&own.mem, 0, FX_MIB, 100),
	      "law2_destroyed_engine_changes_no_byte");
	fx_buf_unmap(&own.mem);
}
