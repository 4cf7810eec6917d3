/* SPDX-License-Identifier: BSD-2-Clause */

/* Tests of the cookies of requests, batches that are used again, waits for any
 * of several batches, and relative deadlines. */

#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_wait.h"

#define REUSE_ROUNDS  200
#define REUSE_FETCHES 2000u
#define REUSE_BATCHES 8u
#define REUSE_BLOCK   (64 * FX_KIB)

/* A request of te_submit, and the ranges to which it refers. */
struct reuse_request {
	struct te_request r;
	struct te_local local;
	struct te_remote remote;
};

/* Initializes *q as a request that writes one block at offset `off`. */
static void reuse_fill(struct wait_rig *rig, struct reuse_request *q,
		       uint64_t off, uint64_t cookie)
{
	memset(q, 0, sizeof(*q));
	q->local = (struct te_local){ rig->mem.p + off, REUSE_BLOCK };
	q->remote =
		(struct te_remote){ rig->target.mem.addr + off, REUSE_BLOCK };
	q->r.opcode = TE_WRITE;
	q->r.target_id = rig->seg;
	q->r.local_count = q->r.remote_count = 1;
	q->r.local = &q->local;
	q->r.remote = &q->remote;
	q->r.cookie = cookie;
}

static int reuse_submit(struct wait_rig *rig, batch_id_t id, uint64_t off,
			uint64_t cookie)
{
	struct reuse_request q;

	reuse_fill(rig, &q, off, cookie);
	return te_submit(rig->engine, id, &q.r, sizeof(q.r), 1, 0);
}

/* --- cookies ------------------------------------------------------------- */

static bool cookie_tasks(struct wait_rig *rig, batch_id_t id)
{
	struct te_task t[4];
	size_t n = 4;
	bool good;

	memset(t, 0xff, sizeof(t));
	good = !te_batch_tasks(rig->engine, id, 0, t, sizeof(*t), &n) && n == 3;
	for (size_t i = 0; i < 3; i++)
		good = good && t[i].cookie == (i == 2 ? 0 : 70 + i) &&
		       t[i].status == STATUS_COMPLETED && !t[i].reserved &&
		       t[i].transferred_bytes == REUSE_BLOCK;
	n = 4;
	return good && !te_batch_tasks(rig->engine, id, 2, t, sizeof(*t), &n) &&
	       n == 1 && !t[0].cookie &&
	       !te_batch_tasks(rig->engine, id, 3, t, sizeof(*t), &n) && !n;
}

/* An expected end of batch `id`, with three tasks. (The batch also ends with
 * fewer tasks, if these end before the next task is submitted.) */
struct cookie_end {
	struct wait_rig *rig;
	batch_id_t id;
	uint64_t cookie;
};

/* Fetches ended batches until the expected end is found, and stores its cookie.
 * Returns false if it has not been reported yet. */
static bool cookie_ended(struct cookie_end *end)
{
	struct te_ended ended = { .batch_id = 0 };
	size_t n = 1;

	while (!te_ended_batches(end->rig->engine, &ended, sizeof(ended), &n) &&
	       n)
		if (ended.batch_id == end->id && ended.tasks == 3) {
			end->cookie = ended.cookie;
			return true;
		}
	return false;
}

void wait_cookies(struct wait_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 3);
	struct cookie_end end = { rig, id, 0 };
	struct reuse_request q;
	bool good;

	ft_ok(te_event_fd(rig->engine) >= 0, "an_event_descriptor");
	good = !reuse_submit(rig, id, 0, 70) &&
	       !reuse_submit(rig, id, REUSE_BLOCK, 71);
	reuse_fill(rig, &q, 2 * REUSE_BLOCK, 72);
	good = good && !te_submit(rig->engine, id, &q.r,
				  offsetof(struct te_request, cookie), 1, 0);
	ft_ok(good, "a_request_without_a_cookie_is_accepted");
	ft_ok(!te_wait_batch(rig->engine, id, -1, NULL) &&
		      cookie_tasks(rig, id),
	      "tasks_have_the_cookies_of_their_requests");
	ft_ok(cookie_ended(&end) && end.cookie == 70,
	      "ended_batch_has_the_first_cookie");
	freeBatchID(rig->engine, id);
}

/* --- batches that are filled again --------------------------------------- */

/* Returns true if `fd` becomes readable within `ms`. */
static bool reuse_readable(int fd, unsigned int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, (int)ms) == 1;
}

static bool reuse_round(struct wait_rig *rig, batch_id_t id, int fd)
{
	uint64_t seq = ++rig->sequence, off = seq % 16 * REUSE_BLOCK;
	struct te_task t = { .cookie = 0 };
	size_t n = 1;

	fx_buf_fill(&rig->mem, off, REUSE_BLOCK, seq);
	return !reuse_readable(fd, 0) && !reuse_submit(rig, id, off, seq) &&
	       !te_wait_batch(rig->engine, id, -1, NULL) &&
	       reuse_readable(fd, fx_ms(5000)) &&
	       !te_batch_tasks(rig->engine, id, 0, &t, sizeof(t), &n) &&
	       n == 1 && t.cookie == seq && t.status == STATUS_COMPLETED &&
	       fx_buf_check(&rig->target.mem, off, REUSE_BLOCK, seq) &&
	       reuse_submit(rig, id, off, seq) == 2 &&
	       !te_batch_reset(rig->engine, id);
}

/* Runs one request and resets the batch. Returns true if, immediately after the
 * wait, the file descriptor is readable and the end of the batch can be
 * fetched. */
static bool reuse_fetch(struct wait_rig *rig, batch_id_t id, int fd, size_t i)
{
	struct te_ended ended = { .batch_id = 0 };
	size_t n = 1, at = 1;
	int ret;

	if (reuse_submit(rig, id, 0, i + 1))
		return false;
	ret = i % 2 ? te_wait_any(rig->engine, &id, 1, -1, &at, NULL) :
		      te_wait_batch(rig->engine, id, -1, NULL);
	return !ret && reuse_readable(fd, 0) &&
	       !te_ended_batches(rig->engine, &ended, sizeof(ended), &n) &&
	       n == 1 && ended.batch_id == id && ended.cookie == i + 1 &&
	       !te_batch_reset(rig->engine, id);
}

static void reuse_fetches(struct wait_rig *rig, batch_id_t id, int fd)
{
	struct te_ended ended[4];
	size_t i, n;

	do {
		n = 4;
		te_ended_batches(rig->engine, ended, sizeof(*ended), &n);
	} while (n);
	for (i = 0; i < REUSE_FETCHES; i++)
		if (!reuse_fetch(rig, id, fd, i))
			break;
	ft_ok(i == REUSE_FETCHES, "end_can_be_fetched_when_wait_returns");
}

/* Checks that a batch which was reset before its end was fetched does not
 * report this end. */
static void reuse_unfetched(struct wait_rig *rig, batch_id_t id)
{
	struct te_ended ended[4];
	size_t n = 4;
	bool found = false;

	ft_ok(!te_ended_batches(rig->engine, ended, sizeof(*ended), &n) &&
		      !reuse_submit(rig, id, 0, 1) &&
		      !te_wait_batch(rig->engine, id, -1, NULL) &&
		      !te_batch_reset(rig->engine, id),
	      "a_batch_is_reset");
	n = 4;
	te_ended_batches(rig->engine, ended, sizeof(*ended), &n);
	for (size_t i = 0; i < n; i++)
		found = found || ended[i].batch_id == id;
	ft_ok(!found && te_wait_batch(rig->engine, id, 0, NULL) == 1,
	      "a_reset_batch_has_no_tasks_and_reports_no_end");
}

void wait_reuse(struct wait_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 1);
	int fd = te_batch_event_fd(rig->engine, id), ret;
	bool good = true;

	ft_ok(te_event_fd(rig->engine) >= 0, "an_event_descriptor");
	for (int i = 0; i < REUSE_ROUNDS; i++)
		good = reuse_round(rig, id, fd) && good;
	ft_ok(good, "a_reset_batch_carries_%d_transfers", REUSE_ROUNDS);
	reuse_fetches(rig, id, fd);
	reuse_unfetched(rig, id);
	ft_ok(!te_batch_timeout(rig->engine, id, 0) &&
		      reuse_submit(rig, id, 0, 1) == TE_TIMED_OUT &&
		      !te_batch_reset(rig->engine, id) &&
		      reuse_round(rig, id, fd),
	      "reset_removes_the_deadline");
	fx_peer_pause(&rig->target);
	reuse_submit(rig, id, 0, 1);
	ret = te_batch_reset(rig->engine, id);
	fx_peer_resume(&rig->target);
	ft_ok(ret == 4 && !te_wait_batch(rig->engine, id, -1, NULL),
	      "law2_reset_of_a_batch_in_progress_is_refused");
	freeBatchID(rig->engine, id);
	ft_ok(te_batch_reset(rig->engine, id) == 1,
	      "law5_reset_of_a_freed_batch_is_refused");
}

/* --- any of several batches ---------------------------------------------- */

/* Starts one write in each batch. Returns true if te_wait_any returns each
 * batch once and all bytes arrive. */
static bool any_round(struct wait_rig *rig, const batch_id_t *ids)
{
	batch_id_t left[REUSE_BATCHES];
	struct transfer_status st;
	uint64_t seq = ++rig->sequence;
	size_t at;

	memcpy(left, ids, sizeof(left));
	fx_buf_fill(&rig->mem, 0, REUSE_BATCHES * REUSE_BLOCK, seq);
	for (size_t i = 0; i < REUSE_BATCHES; i++)
		if (reuse_submit(rig, ids[i], i * REUSE_BLOCK, 0))
			return false;
	for (size_t i = 0; i < REUSE_BATCHES; i++) {
		at = REUSE_BATCHES;
		st.status = -1;
		if (te_wait_any(rig->engine, left, REUSE_BATCHES, -1, &at,
				&st) ||
		    at >= REUSE_BATCHES || left[at] == INVALID_BATCH ||
		    st.status != STATUS_COMPLETED ||
		    st.transferred_bytes != REUSE_BLOCK)
			return false;
		left[at] = INVALID_BATCH;
		te_batch_reset(rig->engine, ids[at]);
	}
	return fx_buf_check(&rig->target.mem, 0, REUSE_BATCHES * REUSE_BLOCK,
			    seq);
}

/* Checks te_wait_any with one batch (`ids[0]`) that cannot end, because its
 * target is stopped, and others that end. */
static void any_stuck(struct wait_rig *rig, const batch_id_t *ids)
{
	struct transfer_request own = {
		.opcode = OPCODE_WRITE,
		.source = rig->mem.p,
		.target_id = LOCAL_SEGMENT,
		.length = 4096,
		.target_offset = (uint64_t)(uintptr_t)rig->mem.p + 8192,
	};
	batch_id_t list[3] = { ids[0], INVALID_BATCH, ids[1] };
	uint64_t from;
	size_t at = 9;

	fx_peer_pause(&rig->target);
	reuse_submit(rig, ids[0], 0, 0);
	from = ft_now_ns();
	ft_ok(te_wait_any(rig->engine, list, 1, 50 * WAIT_MS, &at, NULL) ==
			      TE_TIMED_OUT &&
		      at == 9 && ft_now_ns() - from >= 50000000,
	      "wait_for_a_stuck_batch_times_out");
	submitTransfer(rig->engine, ids[1], &own, 1);
	ft_ok(!te_wait_any(rig->engine, list, 3, -1, &at, NULL) && at == 2,
	      "wait_returns_the_batch_that_has_ended");
	fx_peer_resume(&rig->target);
	ft_ok(!te_wait_any(rig->engine, list, 1, -1, &at, NULL) && !at,
	      "wait_ends_when_the_target_continues");
	ft_ok(te_wait_any(rig->engine, list + 1, 1, -1, &at, NULL) == 1 &&
		      te_wait_any(rig->engine, list, 0, -1, &at, NULL) == 1 &&
		      te_wait_any(rig->engine, ids + 2, 1, -1, &at, NULL) == 1,
	      "wait_without_a_batch_or_a_task_is_refused");
}

static void any_engine(struct wait_rig *rig, const char *name)
{
	batch_id_t ids[REUSE_BATCHES];
	bool good = true;

	for (size_t i = 0; i < REUSE_BATCHES; i++)
		ids[i] = allocateBatchID(rig->engine, 1);
	for (int i = 0; i < REUSE_ROUNDS && good; i++)
		good = any_round(rig, ids);
	ft_ok(good, "wait_returns_each_of_%u_batches_once_%s", REUSE_BATCHES,
	      name);
	any_stuck(rig, ids);
	for (size_t i = 0; i < REUSE_BATCHES; i++)
		good = !freeBatchID(rig->engine, ids[i]) && good;
	ft_ok(good, "the_batches_are_freed");
}

void wait_any(struct wait_rig *rig)
{
	struct wait_rig asleep = *rig;

	any_engine(rig, "polling");
	setenv("MOONRAIL_SPIN_US", "0", 1);
	asleep.engine = fx_engine("tcp");
	unsetenv("MOONRAIL_SPIN_US");
	fx_register(asleep.engine, &asleep.mem);
	asleep.seg = openSegment(asleep.engine, rig->target.name);
	any_engine(&asleep, "sleeping");
	destroyTransferEngine(asleep.engine);
	rig->sequence = asleep.sequence;
}

/* --- relative deadlines -------------------------------------------------- */

void wait_relative(struct wait_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 4);
	struct transfer_status st = { .status = -1 };
	uint64_t from, ms;

	fx_peer_pause(&rig->target);
	from = ft_now_ns();
	ft_ok(!reuse_submit(rig, id, 0, 0) &&
		      !te_batch_timeout(rig->engine, id, 300 * WAIT_MS) &&
		      !te_wait_batch(rig->engine, id, FX_LONG_MS * WAIT_MS,
				     &st),
	      "a_batch_with_a_relative_deadline_ends");
	ms = (ft_now_ns() - from) / 1000000;
	fx_peer_resume(&rig->target);
	ft_ok(st.status == STATUS_TIMEOUT && ms >= 300 &&
		      ms < 300 + wait_end_ms(),
	      "law3_it_ends_after_the_deadline: %llu ms",
	      (unsigned long long)ms);
	ft_ok(reuse_submit(rig, id, 0, 0) == TE_TIMED_OUT &&
		      !te_batch_timeout(rig->engine, id, -1) &&
		      !reuse_submit(rig, id, 0, 0) &&
		      !te_wait_batch(rig->engine, id, -1, NULL),
	      "a_negative_timeout_removes_the_deadline");
	freeBatchID(rig->engine, id);
}
