/* SPDX-License-Identifier: BSD-2-Clause */

/* Transfers between two processes over one rail and over two rails. The tests
 * check that the requested bytes arrive and that no other byte changes. */

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/ft_transfer.h"
#include "fabtests/functional/fx.h"

#define XFER_MEM (66 * FX_MIB)
/* bytes before and after a range that must not change */
#define XFER_EDGE 64

static const uint64_t xfer_sizes[] = {
	1, 2, 3, 7, 8, 63, 64, 65, 255, 511, 1000, 4095, 4096, 4097, 8192,
	16385, 65535, 65536, 65537, 131072, 1000001, FX_MIB, FX_MIB + 13,
	4 * FX_MIB - 1, 16 * FX_MIB + 5, 64 * FX_MIB,
};

static const uint64_t xfer_offsets[] = { 64, 77, 4096 + 1 };

static bool xfer_edges_clean(const struct fx_buf *buf, uint64_t off,
			     uint64_t len)
{
	return fx_buf_poisoned(buf, off - XFER_EDGE, XFER_EDGE) &&
	       fx_buf_poisoned(buf, off + len, XFER_EDGE);
}

static void xfer_poison(struct fx_buf *buf, uint64_t off, uint64_t len)
{
	fx_buf_poison(buf, off - XFER_EDGE, len + 2 * XFER_EDGE);
}

/* Writes len bytes and checks them at the target, then poisons the local range,
 * reads the bytes back and checks them. Returns true if all bytes are right,
 * also around the ranges. */
static bool xfer_one_size(struct xfer_rig *rig, uint64_t len, uint64_t soff,
			  uint64_t doff)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, soff, len, seq);
	xfer_poison(&rig->target.mem, doff, len);
	if (!xfer_rig_move(rig, OPCODE_WRITE, soff, doff, len, 0) ||
	    !fx_buf_check(&rig->target.mem, doff, len, seq) ||
	    !xfer_edges_clean(&rig->target.mem, doff, len))
		return false;
	xfer_poison(&rig->mem, soff, len);
	return xfer_rig_move(rig, OPCODE_READ, soff, doff, len, 0) &&
	       fx_buf_check(&rig->mem, soff, len, seq) &&
	       xfer_edges_clean(&rig->mem, soff, len);
}

static void every_size_and_offset(struct xfer_rig *rig)
{
	size_t sizes = sizeof(xfer_sizes) / sizeof(xfer_sizes[0]);
	bool good = true;

	for (size_t i = 0; good && i < sizes * 9; i++) {
		uint64_t len = xfer_sizes[i / 9];

		/* Large transfers take long, so they use only one pair of
		 * offsets. */
		if (len > 4 * FX_MIB && i % 9 != 1)
			continue;
		good = xfer_one_size(rig, len, xfer_offsets[i % 3],
				     xfer_offsets[i / 3 % 3]);
		if (!good)
			ft_diag("failed transfer: length %llu, local offset "
				"%llu, remote offset %llu",
				(unsigned long long)len,
				(unsigned long long)xfer_offsets[i % 3],
				(unsigned long long)xfer_offsets[i / 3 % 3]);
	}
	ft_ok(good, "every_size_and_offset_arrives_%u_rails", rig->rails);
}

/* Law 1: writes large blocks one after the other. All bytes of a block must be
 * in place as soon as its tasks are COMPLETED. */
static void law1(struct xfer_rig *rig)
{
	uint64_t len = 2400000;
	bool good = true;

	for (unsigned int i = 0; good && i < 100; i++) {
		uint64_t doff = (i * 37 % 20) * FX_MIB + i;

		fx_buf_fill(&rig->mem, i, len, ++rig->sequence);
		fx_buf_poison(&rig->target.mem, doff, len);
		good = xfer_rig_move(rig, OPCODE_WRITE, i, doff, len,
				     len / (1 + i % 5)) &&
		       !memcmp(rig->target.mem.p + doff, rig->mem.p + i, len);
	}
	ft_ok(good, "law1_completed_means_in_place_%u_rails", rig->rails);
}

/*
 * Returns how many of the first len bytes of the target equal the local ones.
 * If a status was read before, the result must be at least the
 * transferred_bytes of that status.
 */
static uint64_t xfer_in_place(const struct xfer_rig *rig, uint64_t len)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < len; i++)
		n += rig->target.mem.p[i] == rig->mem.p[i];
	return n;
}

static void transferred_bytes_is_a_lower_bound(struct xfer_rig *rig)
{
	struct fx_job job = xfer_rig_job(rig, OPCODE_WRITE, 0, 0, 64 * FX_MIB,
					 0);
	uint64_t before = 0, polls = 0;
	bool good, ended = false;

	fx_buf_fill(&rig->mem, 0, job.len, ++rig->sequence);
	for (uint64_t i = 0; i < job.len; i++)
		rig->target.mem.p[i] = (unsigned char)~rig->mem.p[i];
	good = !fx_job_start(&job);
	for (; good && !ended && polls < 1000000; polls++) {
		ended = fx_job_poll(&job);
		good = job.bytes >= before && job.bytes <= job.len;
		if (good && !ended && job.bytes > before)
			good = xfer_in_place(rig, job.len) >= job.bytes;
		before = job.bytes;
	}
	ft_ok(good && ended && job.n[STATUS_COMPLETED] == 1 &&
	      job.bytes == job.len,
	      "transferred_bytes_is_a_lower_bound_%u_rails", rig->rails);
	fx_job_free(&job);
}

/* --- batches ------------------------------------------------------------- */

#define XFER_BATCH 128
#define XFER_CELL (64 * FX_KIB)

struct xfer_piece {
	uint64_t soff, doff, len;
	bool read;
};

/* Makes random requests: writes, or reads and writes if `mixed` is true. Each
 * uses a part of a cell of its own. The cells are in order on the local side
 * and in random order on the remote side. */
static void xfer_shuffle(struct xfer_rig *rig, struct xfer_piece *p, bool mixed)
{
	unsigned int cell[XFER_BATCH];

	for (unsigned int i = 0; i < XFER_BATCH; i++)
		cell[i] = i;
	for (unsigned int i = XFER_BATCH - 1; i > 0; i--) {
		unsigned int j = (unsigned int)(ft_random(&rig->random) %
						(i + 1));
		unsigned int t = cell[i];

		cell[i] = cell[j];
		cell[j] = t;
	}
	for (unsigned int i = 0; i < XFER_BATCH; i++) {
		uint64_t gap = XFER_EDGE + ft_random(&rig->random) % 100;

		p[i].len = 1 + ft_random(&rig->random) %
			   (i % 4 ? 300 : XFER_CELL - 400);
		p[i].soff = i * XFER_CELL + gap;
		p[i].doff = cell[i] * XFER_CELL + XFER_EDGE +
			    ft_random(&rig->random) % 200;
		p[i].read = mixed && ft_random(&rig->random) % 2;
	}
}

static void xfer_prepare(struct xfer_rig *rig, const struct xfer_piece *p,
			 uint64_t seq)
{
	fx_buf_poison(&rig->mem, 0, XFER_BATCH * XFER_CELL);
	fx_buf_poison(&rig->target.mem, 0, XFER_BATCH * XFER_CELL);
	for (unsigned int i = 0; i < XFER_BATCH; i++)
		fx_buf_fill(p[i].read ? &rig->target.mem : &rig->mem,
			    p[i].read ? p[i].doff : p[i].soff, p[i].len,
			    seq + i);
}

static bool xfer_batch_arrived(struct xfer_rig *rig, const struct xfer_piece *p,
			       uint64_t seq)
{
	for (unsigned int i = 0; i < XFER_BATCH; i++)
		if (!fx_buf_check(&rig->mem, p[i].soff, p[i].len, seq + i) ||
		    !fx_buf_check(&rig->target.mem, p[i].doff, p[i].len,
				  seq + i) ||
		    !xfer_edges_clean(&rig->mem, p[i].soff, p[i].len) ||
		    !xfer_edges_clean(&rig->target.mem, p[i].doff, p[i].len))
			return false;
	return true;
}

static bool xfer_run_pieces(struct xfer_rig *rig, const struct xfer_piece *p)
{
	struct transfer_request reqs[XFER_BATCH];
	struct fx_job job = { .engine = rig->engine, .tasks = XFER_BATCH };
	bool good;

	memset(reqs, 0, sizeof(reqs));
	for (unsigned int i = 0; i < XFER_BATCH; i++) {
		reqs[i].opcode = p[i].read ? OPCODE_READ : OPCODE_WRITE;
		reqs[i].source = rig->mem.p + p[i].soff;
		reqs[i].target_id = rig->seg;
		reqs[i].target_offset = rig->target.mem.addr + p[i].doff;
		reqs[i].length = p[i].len;
	}
	job.id = allocateBatchID(rig->engine, XFER_BATCH);
	good = !submitTransfer(rig->engine, job.id, reqs, XFER_BATCH) &&
	       fx_job_wait(&job, FX_LONG_MS) &&
	       job.n[STATUS_COMPLETED] == XFER_BATCH;
	if (!good)
		ft_diag("%s", fx_job_text(&job));
	return fx_job_free(&job) && good;
}

static void batch_of_128_scattered(struct xfer_rig *rig, bool mixed)
{
	struct xfer_piece p[XFER_BATCH];
	bool good = true;

	for (unsigned int round = 0; good && round < 10; round++) {
		uint64_t seq = rig->sequence += XFER_BATCH + 1;

		xfer_shuffle(rig, p, mixed);
		xfer_prepare(rig, p, seq);
		good = xfer_run_pieces(rig, p) &&
		       xfer_batch_arrived(rig, p, seq);
	}
	ft_ok(good, "batch_of_128_%s_arrives_%u_rails",
	      mixed ? "reads_and_writes" : "scattered", rig->rails);
}

/* Moves 128 adjacent ranges, which the library may merge into one slice. */
static void batch_of_128_adjacent(struct xfer_rig *rig)
{
	static const uint64_t blocks[] = { 1, 8, 100, 4096, 4099, 65536 };
	bool good = true;

	for (size_t i = 0; good && i < sizeof(blocks) / sizeof(*blocks); i++) {
		uint64_t len = blocks[i] * XFER_BATCH, seq = ++rig->sequence;

		fx_buf_fill(&rig->mem, 64, len, seq);
		xfer_poison(&rig->target.mem, 65, len);
		good = xfer_rig_move(rig, OPCODE_WRITE, 64, 65, len,
				     blocks[i]) &&
		       fx_buf_check(&rig->target.mem, 65, len, seq) &&
		       xfer_edges_clean(&rig->target.mem, 65, len);
		xfer_poison(&rig->mem, 64, len);
		good = good &&
		       xfer_rig_move(rig, OPCODE_READ, 64, 65, len,
				     blocks[i]) &&
		       fx_buf_check(&rig->mem, 64, len, seq) &&
		       xfer_edges_clean(&rig->mem, 64, len);
		if (!good)
			ft_diag("blocks of %llu",
				(unsigned long long)blocks[i]);
	}
	ft_ok(good, "batch_of_128_adjacent_arrives_%u_rails", rig->rails);
}

/* Checks that all bytes are in place when the target gets the notification of
 * the batch. The target then verifies the bytes and sends the notification
 * "good". */
static void target_verifies_on_notify(struct xfer_rig *rig)
{
	char name[] = "check", msg[256], own[128];
	struct notify_msg note = { name, msg };
	struct transfer_request req = { OPCODE_WRITE, rig->mem.p, rig->seg,
					rig->target.mem.addr, 3 * FX_MIB + 1 };
	struct fx_job job = { .engine = rig->engine, .tasks = 1 };
	notify_msg_t *got;
	bool good;
	int n = 0;

	fx_buf_fill(&rig->mem, 0, req.length, ++rig->sequence);
	good = fx_engine_name(rig->engine, own, sizeof(own));
	snprintf(msg, sizeof(msg), "0 %llu %llu %s",
		 (unsigned long long)req.length,
		 (unsigned long long)rig->sequence, own);
	job.id = allocateBatchID(rig->engine, 1);
	good = good && fx_send(&rig->target, "serve 1") &&
	       !submitTransferWithNotify(rig->engine, job.id, &req, 1, note) &&
	       fx_job_wait(&job, FX_LONG_MS) &&
	       fx_answer(&rig->target, FX_LONG_MS) == 1;
	for (unsigned int i = 0; good && !n && i < FX_LONG_MS; i++) {
		got = getNotifsFromEngine(rig->engine, &n);
		good = !n || (n == 1 && !strcmp(got->msg, "good"));
		freeNotifsMsgBuf(got, n);
		poll(NULL, 0, 1);
	}
	ft_ok(good && n == 1, "target_verifies_on_notify_%u_rails", rig->rails);
	fx_job_free(&job);
}

static void guards_are_whole(struct xfer_rig *rig)
{
	ft_ok(fx_buf_guards(&rig->mem) && fx_buf_guards(&rig->target.mem),
	      "guard_zones_are_unchanged_%u_rails", rig->rails);
}

static void every_rail_carries(struct xfer_rig *rig)
{
	struct fx_rails rails = fx_rails(rig->engine, "tcp");

	ft_ok(rails.count == rig->rails && rails.used == rig->rails,
	      "large_requests_use_all_of_%u_rails", rig->rails);
	ft_diag("%u rails, %u used", rails.count, rails.used);
}

static void xfer_with_rails(unsigned int rails)
{
	struct xfer_rig rig;

	if (!ft_ok(xfer_rig_start(&rig, rails, XFER_MEM),
		   "two_processes_with_%u_rails", rails))
		return;
	every_size_and_offset(&rig);
	law1(&rig);
	transferred_bytes_is_a_lower_bound(&rig);
	batch_of_128_scattered(&rig, false);
	batch_of_128_scattered(&rig, true);
	batch_of_128_adjacent(&rig);
	target_verifies_on_notify(&rig);
	xfer_threads(&rig);
	xfer_both_ways(&rig);
	xfer_batches(&rig);
	every_rail_carries(&rig);
	guards_are_whole(&rig);
	xfer_rig_stop(&rig);
}

int main(int argc, char **argv)
{
	fx_init(argc, argv);
	xfer_with_rails(1);
	xfer_with_rails(2);
	return ft_result();
}
