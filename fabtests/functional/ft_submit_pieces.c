/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Requests with random iov entries. The test executes each request byte by byte
 * on copies of the local and the remote memory. Then every byte of both
 * memories must equal the copies, also between the entries.
 */

#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/ft_submit.h"

#define PIECES_ROUNDS 60
#define PIECES_BATCH 8

struct pieces_rig {
	struct submit_rig *rig;
	segment_id_t seg;
	unsigned char *there;		/* the remote memory, as this process
					 * has mapped it */
	uint64_t there_addr;		/* address of the remote memory in its
					 * process */

	uint64_t local_at;		/* offset in rig->mem at which the local
					 * memory of the test starts */
	uint64_t len;			/* size of the local and of the remote
					 * memory */
	/* expected contents of both memories */
	unsigned char *want_local, *want_remote;
};

struct pieces_list {
	struct te_local local[TE_PIECES_MAX];
	struct te_remote remote[TE_PIECES_MAX];
	struct te_request req;
};

static uint64_t pieces_below(struct pieces_rig *p, uint64_t n)
{
	return ft_random(&p->rig->random) % n;
}

/* Sets `cell` to the numbers from 0 to n - 1 in random order. Each iov entry
 * lies in a cell of its own, so that no two entries overlap. */
static void pieces_shuffle(struct pieces_rig *p, unsigned int *cell,
			   unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		cell[i] = i;
	for (unsigned int i = n - 1; i > 0; i--) {
		unsigned int j = (unsigned int)pieces_below(p, i + 1);
		unsigned int t = cell[i];

		cell[i] = cell[j];
		cell[j] = t;
	}
}

/* Makes one random request of a batch. The requests of a batch use different
 * stripes of both memories. */
static void pieces_make(struct pieces_rig *p, struct pieces_list *l,
			unsigned int stripe)
{
	uint64_t width = p->len / PIECES_BATCH, at = stripe * width, sum = 0;
	unsigned int n = (unsigned int)(4u << pieces_below(p, 7));
	uint64_t cell = width / n, left;
	unsigned int order[TE_PIECES_MAX];
	struct te_request *r = &l->req;

	memset(r, 0, sizeof(*r));
	r->opcode = pieces_below(p, 2) ? TE_READ : TE_WRITE;
	r->target_id = p->seg;
	r->local = l->local;
	r->remote = l->remote;
	pieces_shuffle(p, order, n);
	r->local_count = (uint32_t)(1 + pieces_below(p, n));
	for (unsigned int i = 0; i < r->local_count; i++) {
		uint64_t off = pieces_below(p, cell / 2);

		l->local[i].addr = p->rig->mem.p + p->local_at + at +
				   order[i] * cell + off;
		l->local[i].length = 1 + pieces_below(p, cell - off);
		sum += l->local[i].length;
	}
	pieces_shuffle(p, order, n);
	for (left = sum; left && r->remote_count < n; r->remote_count++) {
		uint64_t off = pieces_below(p, cell / 2);
		uint64_t len = 1 + pieces_below(p, cell - off);

		l->remote[r->remote_count].addr = p->there_addr + at +
			order[r->remote_count] * cell + off;
		l->remote[r->remote_count].length = len < left ? len : left;
		left -= l->remote[r->remote_count].length;
	}
	/* If the remote entries hold fewer bytes, shorten the local ones. */
	while (left) {
		struct te_local *last = &l->local[r->local_count - 1];
		uint64_t cut = last->length < left ? last->length : left;

		last->length -= cut;
		left -= cut;
		r->local_count -= !last->length;
	}
}

/* Executes the request on the expected contents, one byte at a time. */
static void pieces_expect(struct pieces_rig *p, const struct pieces_list *l)
{
	uint32_t a = 0, b = 0;
	uint64_t i = 0, j = 0;

	while (a < l->req.local_count) {
		unsigned char *here = p->want_local +
			((unsigned char *)l->local[a].addr + i -
			 (p->rig->mem.p + p->local_at));
		unsigned char *there = p->want_remote +
			(l->remote[b].addr + j - p->there_addr);

		if (l->req.opcode == TE_READ)
			*here = *there;
		else
			*there = *here;
		if (++i == l->local[a].length) {
			a++;
			i = 0;
		}
		if (++j == l->remote[b].length) {
			b++;
			j = 0;
		}
	}
}

static bool pieces_same(const struct pieces_rig *p)
{
	const unsigned char *here = p->rig->mem.p + p->local_at;

	for (uint64_t i = 0; i < p->len; i++) {
		if (here[i] == p->want_local[i] &&
		    p->there[i] == p->want_remote[i])
			continue;
		ft_diag("byte %llu: local 0x%02x, expected 0x%02x; remote 0x%02x, expected 0x%02x",
			(unsigned long long)i, here[i], p->want_local[i],
			p->there[i], p->want_remote[i]);
		return false;
	}
	return true;
}

static bool pieces_round(struct pieces_rig *p, struct pieces_list *l,
			 uint64_t sequence)
{
	struct te_request reqs[PIECES_BATCH];
	struct fx_job job = { .engine = p->rig->engine,
			      .tasks = PIECES_BATCH };
	unsigned char *here = p->rig->mem.p + p->local_at;
	uint64_t bytes = 0;
	int ret;
	bool good;

	ft_pattern_fill(here, 0, p->len, 1, sequence);
	ft_pattern_fill(p->there, 0, p->len, 2, sequence);
	memcpy(p->want_local, here, p->len);
	memcpy(p->want_remote, p->there, p->len);
	for (unsigned int i = 0; i < PIECES_BATCH; i++) {
		pieces_make(p, &l[i], i);
		pieces_expect(p, &l[i]);
		reqs[i] = l[i].req;
		for (uint32_t k = 0; k < l[i].req.local_count; k++)
			bytes += l[i].local[k].length;
	}
	job.id = allocateBatchID(job.engine, PIECES_BATCH);
	ret = te_submit(job.engine, job.id, reqs, sizeof(reqs[0]),
			PIECES_BATCH, 0);
	/* The caller may reuse the arrays as soon as te_submit has returned. */
	for (unsigned int i = 0; i < PIECES_BATCH; i++) {
		memset(l[i].local, 0xff, sizeof(l[i].local));
		memset(l[i].remote, 0xff, sizeof(l[i].remote));
	}
	good = !ret && fx_job_wait(&job, FX_LONG_MS) &&
	       job.n[STATUS_COMPLETED] == PIECES_BATCH && job.bytes == bytes;
	if (!good)
		ft_diag("te_submit %d; %s", ret, fx_job_text(&job));
	return fx_job_free(&job) && good && pieces_same(p);
}

static void pieces_random(struct pieces_rig *p, const char *where)
{
	struct pieces_list *l = calloc(PIECES_BATCH, sizeof(*l));
	bool good = true;

	p->want_local = malloc(p->len);
	p->want_remote = malloc(p->len);
	for (uint64_t i = 0; good && i < PIECES_ROUNDS; i++)
		good = pieces_round(p, l, i);
	ft_ok(good, "random_pieces_are_moved_byte_for_byte_%s_%s", where,
	      p->rig->way);
	free(p->want_local);
	free(p->want_remote);
	free(l);
}

/* Writes from three local regions to a range that lies in two adjacent regions
 * of the target, and reads it back. */
static void pieces_across_regions(struct submit_rig *rig)
{
	uint64_t part = SUBMIT_MEM / SUBMIT_REGIONS, len = 3000;
	struct te_local local[3] = {
		{ rig->mem.p + 100, 1000 }, { rig->mem.p + 2 * part, 1500 },
		{ rig->mem.p + part + 7, 500 },
	};
	struct te_remote remote = { rig->target.mem.addr + part - 1200, len };
	struct te_request req = {
		.opcode = TE_WRITE, .target_id = rig->seg, .local_count = 3,
		.remote_count = 1, .local = local, .remote = &remote,
	};
	unsigned char want[3000];
	bool good;

	fx_buf_fill(&rig->mem, 0, SUBMIT_MEM, 77);
	for (uint64_t i = 0, at = 0; i < 3; at += local[i++].length)
		memcpy(want + at, local[i].addr, local[i].length);
	good = fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED &&
	       !memcmp(rig->target.mem.p + part - 1200, want, len);
	for (int i = 0; i < 3; i++)
		memset(local[i].addr, 0, local[i].length);
	req.opcode = TE_READ;
	good = good && fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED;
	for (uint64_t i = 0, at = 0; good && i < 3; at += local[i++].length)
		good = !memcmp(want + at, local[i].addr, local[i].length);
	ft_ok(good, "pieces_cross_the_border_of_regions_%s", rig->way);
}

/* Writes large iov entries and one of three bytes, so that the request is cut
 * into several slices. */
static void pieces_large(struct submit_rig *rig)
{
	uint64_t part = SUBMIT_MEM / SUBMIT_REGIONS, len = part - 100;
	struct te_local local[4];
	struct te_remote remote[5] = { { rig->target.mem.addr + 1, 3 } };
	struct te_request req = {
		.opcode = TE_WRITE, .target_id = rig->seg, .local_count = 4,
		.remote_count = 5, .local = local, .remote = remote,
	};
	unsigned char *here = malloc(4 * part), *there = malloc(4 * part);
	uint64_t at = 0;
	bool good;

	for (uint64_t i = 0; i < 4; i++) {
		local[i].addr = rig->mem.p + (3 - i) * part;
		local[i].length = len + 3 * !i;
		remote[i + 1].addr = rig->target.mem.addr + i * part + 77;
		remote[i + 1].length = len;
	}
	fx_buf_fill(&rig->mem, 0, SUBMIT_MEM, 78);
	good = fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED;
	for (int i = 0; i < 4; at += local[i++].length)
		memcpy(here + at, local[i].addr, local[i].length);
	at = 0;
	for (int i = 0; i < 5; at += remote[i++].length)
		memcpy(there + at, rig->target.mem.p + (remote[i].addr -
				   rig->target.mem.addr), remote[i].length);
	ft_ok(good && !memcmp(here, there, at), "large_pieces_arrive_%s",
	      rig->way);
	free(here);
	free(there);
}

/* Checks that a request fails if a part of one remote entry is not registered
 * at the target. */
static void pieces_refused(struct submit_rig *rig)
{
	struct te_local local[2] = { { rig->mem.p, 100 },
				     { rig->mem.p + 200, 100 } };
	struct te_remote remote[2] = {
		{ rig->target.mem.addr, 100 },
		{ rig->target.mem.addr + SUBMIT_MEM - 50, 100 },
	};
	struct te_request req = {
		.opcode = TE_WRITE, .target_id = rig->seg, .local_count = 2,
		.remote_count = 2, .local = local, .remote = remote,
	};
	struct te_error err = { 0 };

	ft_ok(fx_submit(rig->engine, &req, &err) == STATUS_FAILED &&
	      err.code == -3, "a_piece_that_is_not_registered_there_fails_%s",
	      rig->way);
}

void submit_pieces(struct submit_rig *rig)
{
	struct pieces_rig p = {
		.rig = rig, .seg = rig->seg, .there = rig->target.mem.p,
		.there_addr = rig->target.mem.addr, .len = SUBMIT_MEM,
	};

	pieces_random(&p, "to_the_target");
	/* With kernel copies, a range must lie in a single region. */
	if (strcmp(rig->way, "auto_discover"))
		pieces_across_regions(rig);
	pieces_large(rig);
	pieces_refused(rig);
}

void submit_pieces_own(struct submit_rig *rig)
{
	struct pieces_rig p = {
		.rig = rig, .seg = LOCAL_SEGMENT, .len = SUBMIT_MEM / 2,
		.there = rig->mem.p + SUBMIT_MEM / 2,
		.there_addr = rig->mem.addr + SUBMIT_MEM / 2,
	};

	pieces_random(&p, "inside_the_process");
}
