/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/ft_transfer.h"
#include "fabtests/functional/fx.h"

#define RIG_THREADS 4
#define RIG_ROUNDS 60
/* bytes that one thread uses in the memory of each side */
#define RIG_PART (8 * FX_MIB)

bool xfer_rig_start(struct xfer_rig *rig, unsigned int rails, size_t mem)
{
	memset(rig, 0, sizeof(*rig));
	rig->rails = rails;
	rig->random = fx_seed();
	setenv("MOONRAIL_DEVICES",
	       rails == 1 ? "127.0.0.1" : "127.0.0.1,127.0.0.2", 1);
	rig->mem = fx_buf_map(mem, -1);
	if (!rig->mem.p || !fx_target_start(&rig->target, mem))
		return false;
	rig->engine = fx_engine("tcp");
	if (!rig->engine || !fx_register(rig->engine, &rig->mem))
		return false;
	rig->seg = openSegment(rig->engine, rig->target.name);
	return rig->seg > 0;
}

void xfer_rig_stop(struct xfer_rig *rig)
{
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->target);
	fx_buf_unmap(&rig->mem);
}

struct fx_job xfer_rig_job(const struct xfer_rig *rig, int op, uint64_t local,
			   uint64_t remote, uint64_t len, uint64_t block)
{
	struct fx_job job = {
		.engine = rig->engine, .seg = rig->seg, .op = op,
		.local = rig->mem.p + local,
		.remote = rig->target.mem.addr + remote,
		.len = len, .block = block,
	};

	return job;
}

bool xfer_rig_move(const struct xfer_rig *rig, int op, uint64_t local,
		   uint64_t remote, uint64_t len, uint64_t block)
{
	return fx_move(rig->engine, rig->seg, op, rig->mem.p + local,
		       rig->target.mem.addr + remote, len, block);
}

/* --- four threads -------------------------------------------------------- */

struct rig_worker {
	struct xfer_rig *rig;
	unsigned int index;
	uint64_t random;
	bool good;
};

/* Writes a random range and checks it at the target, then poisons the local
 * range, reads the bytes back and checks them. Returns true if they are
 * right. */
static bool rig_worker_round(struct rig_worker *w, uint64_t seq)
{
	struct xfer_rig *rig = w->rig;
	uint64_t base = w->index * RIG_PART;
	uint64_t len = 1 + ft_random(&w->random) %
		       (seq % 3 ? 5000 : RIG_PART / 2);
	uint64_t soff = base + ft_random(&w->random) % (RIG_PART - len);
	uint64_t doff = base + ft_random(&w->random) % (RIG_PART - len);
	uint64_t block = 1 + len / (1 + ft_random(&w->random) % 16);

	fx_buf_fill(&rig->mem, soff, len, seq);
	if (!xfer_rig_move(rig, OPCODE_WRITE, soff, doff, len, block) ||
	    !fx_buf_check(&rig->target.mem, doff, len, seq))
		return false;
	fx_buf_poison(&rig->mem, soff, len);
	return xfer_rig_move(rig, OPCODE_READ, soff, doff, len, block) &&
	       fx_buf_check(&rig->mem, soff, len, seq);
}

static void *rig_worker_main(void *arg)
{
	struct rig_worker *w = arg;

	for (uint64_t i = 0; w->good && i < RIG_ROUNDS; i++)
		w->good = rig_worker_round(w, ((uint64_t)w->index << 32) + i);
	return NULL;
}

void xfer_threads(struct xfer_rig *rig)
{
	struct rig_worker w[RIG_THREADS];
	pthread_t thread[RIG_THREADS];
	bool good = true;

	for (unsigned int i = 0; i < RIG_THREADS; i++) {
		w[i].rig = rig;
		w[i].index = i;
		w[i].random = ft_random(&rig->random);
		w[i].good = true;
		pthread_create(&thread[i], NULL, rig_worker_main, &w[i]);
	}
	for (unsigned int i = 0; i < RIG_THREADS; i++) {
		pthread_join(thread[i], NULL);
		good = good && w[i].good;
	}
	ft_ok(good, "four_threads_at_once_%u_rails", rig->rails);
}

/* --- both directions ----------------------------------------------------- */

/* Makes the target start its own reads or writes of the upper half of this
 * process's memory, from offset `half`. This process uses the lower half
 * meanwhile. Returns true on success. */
static bool rig_peer_starts(struct xfer_rig *rig, int op, uint64_t half)
{
	char own[128];
	int seg;

	if (!fx_engine_name(rig->engine, own, sizeof(own)))
		return false;
	seg = fx_ask(&rig->target, "open %s", own);
	return seg > 0 &&
	       !fx_ask(&rig->target, "start %d %d %llu %llu %llu %llu 8 -", seg,
		       op, (unsigned long long)half,
		       (unsigned long long)(rig->mem.addr + half),
		       (unsigned long long)(8 * FX_MIB + 7),
		       (unsigned long long)(100 * FX_KIB + 1));
}

static bool rig_both_ways(struct xfer_rig *rig, int op)
{
	uint64_t half = rig->mem.len / 2, len = 8 * FX_MIB + 7;
	uint64_t seq = rig->sequence += 2;
	bool read = op == OPCODE_READ, good = true;
	struct fx_buf *mine = &rig->mem, *its = &rig->target.mem;

	fx_buf_poison(read ? mine : its, 0, len);
	fx_buf_poison(read ? its : mine, half, len);
	fx_buf_fill(read ? its : mine, 0, len, seq);
	fx_buf_fill(read ? mine : its, half, len, seq + 1);
	if (!rig_peer_starts(rig, op, half))
		return false;
	for (unsigned int i = 0; good && i < 8; i++)
		good = xfer_rig_move(rig, op, 0, 0, len, 99 * FX_KIB);
	good = !fx_ask(&rig->target, "wait") && good;
	if (strncmp(rig->target.text, "0 waiting, 0 canceled", 21) ||
	    !strstr(rig->target.text, "0 timeout (0 unfenced), 0 failed, 0 o"))
		good = false;
	if (!good)
		ft_diag("statuses at the peer: %s", rig->target.text);
	return good && fx_buf_check(read ? mine : its, 0, len, seq) &&
	       fx_buf_check(read ? its : mine, half, len, seq + 1);
}

void xfer_both_ways(struct xfer_rig *rig)
{
	ft_ok(rig_both_ways(rig, OPCODE_WRITE),
	      "simultaneous_writes_of_both_sides_arrive_%u_rails", rig->rails);
	ft_ok(rig_both_ways(rig, OPCODE_READ),
	      "simultaneous_reads_of_both_sides_arrive_%u_rails", rig->rails);
}
