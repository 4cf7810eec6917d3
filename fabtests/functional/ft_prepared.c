/* SPDX-License-Identifier: BSD-2-Clause */

/* Prepared lists between two processes: subsets of pieces, repeated
 * submissions, refused calls, unregistered memory, early ends, a restarted
 * target, and several threads. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>

#include "fabtests/common/ft_port.h"
#include "fabtests/functional/fx.h"

#define PREP_PIECES  5000 /* number of pieces, more than TE_PIECES_MAX */
#define PREP_LEN     200  /* length of a piece, bytes */
#define PREP_STRIDE  512  /* distance of two pieces, bytes */
#define PREP_MEM     (4 * FX_MIB)
#define PREP_REGION  (FX_MIB) /* size of each registered buffer, bytes */
/* step that puts the pieces of the target in another order */
#define PREP_STEP    1237
#define PREP_THREADS 4
#define PREP_ROUNDS  40 /* number of submissions of one thread */

struct prep_rig {
	const char *way;
	transfer_engine_t engine;
	struct fx_peer target;
	struct fx_buf mem;
	segment_id_t seg;
	struct te_piece piece[PREP_PIECES];
	unsigned char *want; /* expected content of the target's memory */
};

/* --- the rig -------------------------------------------------------------- */

static uint64_t prep_remote_off(uint32_t i)
{
	return (uint64_t)i * PREP_STEP % PREP_PIECES * PREP_STRIDE + 64;
}

static void prep_fill_pieces(struct prep_rig *rig)
{
	for (uint32_t i = 0; i < PREP_PIECES; i++) {
		rig->piece[i].local = rig->mem.p + (size_t)i * PREP_STRIDE;
		rig->piece[i].remote =
			rig->target.mem.addr + prep_remote_off(i);
		rig->piece[i].length = PREP_LEN;
	}
}

/* Starts the target with its control channel at `port` (0 means any port). It
 * registers the first len bytes of its memory. Returns true on success. */
static bool prep_target(struct prep_rig *rig, const char *transport, int port,
			uint64_t len)
{
	char way[64], min[64], max[64];
	bool good;

	snprintf(way, sizeof(way), "transport=%s", transport);
	snprintf(min, sizeof(min), "MC_MIN_RPC_PORT=%d", port);
	snprintf(max, sizeof(max), "MC_MAX_RPC_PORT=%d", port);
	good = fx_peer_start(&rig->target, PREP_MEM, way, port ? min : NULL,
			     max, NULL);
	for (uint64_t off = 0; good && off < len; off += PREP_REGION)
		good = !fx_ask(&rig->target, "reg %llu %llu 1",
			       (unsigned long long)off, PREP_REGION);
	return good;
}

static bool prep_start(struct prep_rig *rig, const char *way,
		       const char *transport, int port)
{
	bool good;

	memset(rig, 0, sizeof(*rig));
	rig->way = way;
	rig->want = malloc(PREP_MEM);
	rig->mem = fx_buf_map(PREP_MEM, -1);
	good = rig->want && rig->mem.p &&
	       prep_target(rig, transport, port, PREP_MEM);
	if (good)
		rig->engine = fx_engine(transport);
	for (uint64_t off = 0; good && off < PREP_MEM; off += PREP_REGION)
		good = rig->engine &&
		       !registerLocalMemory(rig->engine, rig->mem.p + off,
					    PREP_REGION, "*", 1);
	if (good)
		rig->seg = openSegment(rig->engine, rig->target.name);
	prep_fill_pieces(rig);
	return ft_ok(good && rig->seg > 0, "two_processes_%s", way);
}

static void prep_stop(struct prep_rig *rig)
{
	ft_ok(fx_buf_guards(&rig->mem) && fx_buf_guards(&rig->target.mem),
	      "guard_zones_are_unchanged_%s", rig->way);
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->target);
	fx_buf_unmap(&rig->mem);
	free(rig->want);
}

static int prep_list(const struct prep_rig *rig, uint32_t opcode, size_t n,
		     te_prepared_t *list)
{
	return te_prepare(rig->engine, rig->seg, opcode, rig->piece, n, 0,
			  list);
}

/* Submits the n pieces of the list with these indices and waits. Returns the
 * status of the task, or the negative code of te_submit_prepared. */
static int prep_run(const struct prep_rig *rig, te_prepared_t list,
		    const uint32_t *indices, size_t n, uint32_t *checked)
{
	batch_id_t id = allocateBatchID(rig->engine, 1);
	struct transfer_status status = { .status = STATUS_INVALID };
	int ret;

	ret = te_submit_prepared(rig->engine, id, list, indices, n, 0, 0,
				 checked);
	if (!ret && te_wait_batch(rig->engine, id,
				  fx_ms(FX_LONG_MS) * INT64_C(1000), &status))
		ft_diag("a task did not end");
	freeBatchID(rig->engine, id);
	return ret ? -ret : status.status;
}

/* Returns true if the text of the last error contains `part`. */
static bool prep_said(const char *part)
{
	struct te_error err;

	te_last_error(&err, sizeof(err));
	if (strstr(err.text, part) && err.code < 0)
		return true;
	ft_diag("error record: code %d, '%s' (must contain '%s')", err.code,
		err.text, part);
	return false;
}

/* Fills the local pieces with bytes that depend on the piece and on `round`. */
static void prep_content(struct prep_rig *rig, uint32_t round)
{
	for (uint32_t i = 0; i < PREP_PIECES; i++)
		memset(rig->piece[i].local, (int)(1 + (i * 31 + round) % 250),
		       PREP_LEN);
}

static void prep_expect(struct prep_rig *rig, uint32_t i)
{
	memcpy(rig->want + prep_remote_off(i), rig->piece[i].local, PREP_LEN);
}

static bool prep_as_expected(const struct prep_rig *rig)
{
	return !memcmp(rig->want, rig->target.mem.p, PREP_MEM);
}

/* Fills the target's memory and its expected content with zeros. */
static void prep_clear(struct prep_rig *rig)
{
	memset(rig->target.mem.p, 0, PREP_MEM);
	memset(rig->want, 0, PREP_MEM);
}

/* --- subsets -------------------------------------------------------------- */

static void prep_subsets(struct prep_rig *rig)
{
	uint32_t few[300], checked = 77;
	te_prepared_t list = 0;
	bool good;

	prep_clear(rig);
	prep_content(rig, 0);
	for (uint32_t k = 0; k < 300; k++) {
		few[k] = k * 7919 % PREP_PIECES;
		prep_expect(rig, few[k]);
	}
	few[299] = few[0];
	memset(rig->want + prep_remote_off(299 * 7919 % PREP_PIECES), 0,
	       PREP_LEN);
	good = !prep_list(rig, TE_WRITE, PREP_PIECES, &list) && list;
	good = good &&
	       prep_run(rig, list, few, 300, &checked) == STATUS_COMPLETED;
	ft_ok(good && prep_as_expected(rig) && !checked,
	      "subset_with_repeated_index_moves_only_its_pieces_%s", rig->way);
	for (uint32_t round = 1; good && round <= PREP_ROUNDS; round++) {
		prep_content(rig, round);
		for (uint32_t k = 0; k < 7; k++) {
			few[k] = (round * 997 + k * k) % PREP_PIECES;
			prep_expect(rig, few[k]);
		}
		good = prep_run(rig, list, few, 7, NULL) == STATUS_COMPLETED;
	}
	ft_ok(good && prep_as_expected(rig),
	      "list_submitted_many_times_moves_right_bytes_%s", rig->way);
	ft_ok(!te_prepared_release(rig->engine, list), "list_is_released");
}

static void prep_whole(struct prep_rig *rig)
{
	uint32_t one = PREP_PIECES - 1;
	te_prepared_t write = 0, read = 0;
	bool good;

	prep_clear(rig);
	prep_content(rig, 5);
	for (uint32_t i = 0; i < PREP_PIECES; i++)
		prep_expect(rig, i);
	good = !prep_list(rig, TE_WRITE, PREP_PIECES, &write) &&
	       !prep_list(rig, TE_READ, PREP_PIECES, &read) && write != read;
	ft_ok(good && prep_run(rig, write, NULL, 0, NULL) == STATUS_COMPLETED &&
		      prep_as_expected(rig),
	      "list_of_%d_pieces_is_written_%s", PREP_PIECES, rig->way);
	memset(rig->mem.p, 0, PREP_MEM);
	good = good && prep_run(rig, read, NULL, 0, NULL) == STATUS_COMPLETED;
	for (uint32_t i = 0; i < PREP_PIECES; i++)
		prep_expect(rig, i);
	ft_ok(good && prep_as_expected(rig), "list_of_%d_pieces_is_read_%s",
	      PREP_PIECES, rig->way);
	prep_content(rig, 6);
	prep_expect(rig, one);
	ft_ok(prep_run(rig, write, &one, 1, NULL) == STATUS_COMPLETED &&
		      prep_as_expected(rig),
	      "single_piece_is_written_%s", rig->way);
	te_prepared_release(rig->engine, write);
	te_prepared_release(rig->engine, read);
}

/* Tests pieces that are adjacent to the next one on the remote side only, or on
 * both sides. */
static void prep_adjacent(struct prep_rig *rig)
{
	struct te_piece piece[6];
	te_prepared_t list = 0;
	bool good;

	prep_clear(rig);
	prep_content(rig, 9);
	for (uint32_t i = 0; i < 6; i++) {
		uint64_t to = i < 4 ? i * 100 : 5000 + i * 300;

		piece[i].local = rig->mem.p + (i < 2 ? i * 100 : i * 400);
		piece[i].remote = rig->target.mem.addr + to;
		piece[i].length = 100;
		memcpy(rig->want + to, piece[i].local, 100);
	}
	good = !te_prepare(rig->engine, rig->seg, TE_WRITE, piece, 6, 0, &list);
	ft_ok(good && prep_run(rig, list, NULL, 0, NULL) == STATUS_COMPLETED &&
		      prep_as_expected(rig),
	      "adjacent_pieces_move_right_bytes_%s", rig->way);
	te_prepared_release(rig->engine, list);
}

/* --- refusals ------------------------------------------------------------- */

static void prep_bad_prepare(struct prep_rig *rig)
{
	struct te_piece piece = rig->piece[0];
	te_prepared_t list = 4711;
	bool good;

	piece.length = 0;
	good = te_prepare(rig->engine, rig->seg, TE_WRITE, &piece, 1, 0,
			  &list) == 1 &&
	       prep_said("pieces[0]");
	piece.length = UINT64_MAX;
	good = te_prepare(rig->engine, rig->seg, TE_WRITE, &piece, 1, 0,
			  &list) == 1 &&
	       good;
	good = te_prepare(rig->engine, rig->seg, TE_ATOMIC_ADD, rig->piece, 1,
			  0, &list) == 1 &&
	       prep_said("opcode") && good;
	good = te_prepare(rig->engine, rig->seg, TE_WRITE, rig->piece, 0, 0,
			  &list) == 1 &&
	       good;
	good = te_prepare(rig->engine, rig->seg, TE_WRITE, rig->piece, 1, 2,
			  &list) == 1 &&
	       prep_said("flags") && good;
	good = te_prepare(rig->engine, rig->seg, TE_WRITE, rig->piece, 1, 0,
			  NULL) == 1 &&
	       good;
	good = te_prepare(rig->engine, 4711, TE_WRITE, rig->piece, 1, 0,
			  &list) == 1 &&
	       prep_said("4711") && good;
	piece = rig->piece[0];
	piece.local = &piece;
	good = te_prepare(rig->engine, rig->seg, TE_WRITE, &piece, 1, 0,
			  &list) == 3 &&
	       prep_said("pieces[0].local") && good;
	piece = rig->piece[0];
	piece.remote = rig->target.mem.addr + PREP_MEM - 1;
	good = te_prepare(rig->engine, rig->seg, TE_WRITE, &piece, 1, 0,
			  &list) == 3 &&
	       prep_said("pieces[0].remote") && good;
	ft_ok(good && list == 4711, "prepare_refuses_bad_arguments_%s",
	      rig->way);
}

static void prep_bad_submit(struct prep_rig *rig)
{
	uint32_t index = 10, checked;
	te_prepared_t list = 0;
	batch_id_t id = allocateBatchID(rig->engine, 1);
	struct transfer_status status;
	struct te_task task = { 0 };
	size_t tasks = 1;
	bool good;

	good = !prep_list(rig, TE_WRITE, 10, &list) &&
	       prep_run(rig, list, &index, 1, &checked) == -1 &&
	       prep_said("indices[0] is 10") &&
	       prep_run(rig, list, NULL, 3, NULL) == -1 &&
	       te_submit_prepared(rig->engine, id, list, NULL, 0, 0, 8, NULL) ==
		       1 &&
	       te_submit_prepared(rig->engine, id + (UINT64_C(2) << 32), list,
				  NULL, 0, 0, 0, NULL) == 1 &&
	       prep_run(rig, 0, NULL, 0, NULL) == -1 &&
	       prep_run(rig, list + 1, NULL, 0, NULL) == -1 &&
	       prep_said("no such prepared list");
	ft_ok(good, "submission_of_bad_arguments_is_refused_%s", rig->way);
	index = 0;
	good = !te_submit_prepared(rig->engine, id, list, &index, 0, 0, 0,
				   NULL) &&
	       te_batch_status(rig->engine, id, &status) == 1;
	ft_ok(good, "submission_of_0_indices_adds_nothing_%s", rig->way);
	good = !te_submit_prepared(rig->engine, id, list, NULL, 0, 4711, 0,
				   NULL) &&
	       te_submit_prepared(rig->engine, id, list, NULL, 0, 0, 0, NULL) ==
		       2 &&
	       prep_said("batch holds 1 of 1");
	te_wait_batch(rig->engine, id, -1, NULL);
	ft_ok(good, "submission_to_full_batch_is_refused_%s", rig->way);
	good = !te_batch_tasks(rig->engine, id, 0, &task, sizeof(task),
			       &tasks) &&
	       tasks == 1 && task.cookie == 4711 &&
	       task.transferred_bytes == 10 * PREP_LEN;
	ft_ok(good, "task_has_cookie_and_bytes_of_its_submission_%s", rig->way);
	freeBatchID(rig->engine, id);
	good = !te_prepared_release(rig->engine, list) &&
	       te_prepared_release(rig->engine, list) == 1 &&
	       prep_run(rig, list, NULL, 0, NULL) == -1;
	ft_ok(good, "law5_released_list_is_refused_%s", rig->way);
}

static void prep_closed_segment(struct prep_rig *rig)
{
	te_prepared_t list = 0;
	bool good;

	good = !prep_list(rig, TE_WRITE, 10, &list) &&
	       !closeSegment(rig->engine, rig->seg) &&
	       prep_run(rig, list, NULL, 0, NULL) == -1 &&
	       prep_said("not an open segment");
	ft_ok(good, "list_of_closed_segment_is_refused_%s", rig->way);
	te_prepared_release(rig->engine, list);
	rig->seg = openSegment(rig->engine, rig->target.name);
}

/* --- unregistered memory -------------------------------------------------- */

static void prep_unregistered(struct prep_rig *rig)
{
	uint32_t last = PREP_PIECES - 1, checked;
	te_prepared_t list = 0;
	bool good;

	good = !prep_list(rig, TE_WRITE, PREP_PIECES, &list) &&
	       !unregisterLocalMemory(rig->engine, rig->mem.p);
	ft_ok(good && prep_run(rig, list, NULL, 0, NULL) == -3 &&
		      prep_said("pieces[0].local"),
	      "list_with_unregistered_source_is_refused_%s", rig->way);
	ft_ok(good && prep_run(rig, list, &last, 1, NULL) == STATUS_COMPLETED,
	      "pieces_with_registered_source_are_written_%s", rig->way);
	good = !registerLocalMemory(rig->engine, rig->mem.p, PREP_REGION, "*",
				    1) &&
	       prep_run(rig, list, NULL, 0, NULL) == STATUS_COMPLETED;
	ft_ok(good, "list_with_source_registered_again_is_written_%s",
	      rig->way);
	good = !fx_ask(&rig->target, "unreg 0") &&
	       !syncSegmentCache(rig->engine) &&
	       prep_run(rig, list, NULL, 0, &checked) == -3 &&
	       prep_said("pieces[0].remote") && checked == TE_PREPARED_CHECKED;
	ft_ok(good, "list_with_unregistered_target_is_refused_%s", rig->way);
	for (last = 0; prep_remote_off(last) < PREP_REGION; last++)
		;
	ft_ok(good && prep_run(rig, list, &last, 1, NULL) == STATUS_COMPLETED,
	      "pieces_in_its_other_buffers_are_written_%s", rig->way);
	good = !fx_ask(&rig->target, "reg 0 %llu 1", PREP_REGION) &&
	       !syncSegmentCache(rig->engine) &&
	       prep_run(rig, list, NULL, 0, &checked) == STATUS_COMPLETED &&
	       checked == TE_PREPARED_CHECKED &&
	       prep_run(rig, list, NULL, 0, &checked) == STATUS_COMPLETED &&
	       !checked;
	ft_ok(good, "list_with_target_registered_again_is_checked_once_%s",
	      rig->way);
	te_prepared_release(rig->engine, list);
}

/* Unregisters target memory that the cached descriptor still lists. A
 * submission must be accepted, and its task must fail. */
static void prep_stale(struct prep_rig *rig)
{
	batch_id_t id = allocateBatchID(rig->engine, 1);
	struct transfer_status status;
	te_prepared_t list = 0;
	struct te_error err;
	bool good;

	good = !prep_list(rig, TE_WRITE, PREP_PIECES, &list) &&
	       !fx_ask(&rig->target, "unreg 0") &&
	       !te_submit_prepared(rig->engine, id, list, NULL, 0, 0, 0,
				   NULL) &&
	       !te_wait_batch(rig->engine, id,
			      fx_ms(FX_LONG_MS) * INT64_C(1000), &status) &&
	       status.status == STATUS_FAILED &&
	       !te_task_error(rig->engine, id, 0, &err, sizeof(err)) &&
	       err.code == -3;
	ft_ok(good, "list_with_target_unregistered_since_fails_%s", rig->way);
	freeBatchID(rig->engine, id);
	te_prepared_release(rig->engine, list);
	ft_ok(!fx_ask(&rig->target, "reg 0 %llu 1", PREP_REGION) &&
		      !syncSegmentCache(rig->engine),
	      "target_registers_it_again_%s", rig->way);
}

/* --- early ends ----------------------------------------------------------- */

/* Submits the list to a stopped target. Then cancels the task if `cancel` is
 * true, or else sets a deadline that has passed. Returns true if the task ends
 * with the right status. */
static bool prep_end_early(struct prep_rig *rig, te_prepared_t list,
			   bool cancel)
{
	batch_id_t id = allocateBatchID(rig->engine, 2);
	struct transfer_status status = { .status = STATUS_WAITING };
	bool good;

	good = fx_peer_pause(&rig->target) &&
	       !te_submit_prepared(rig->engine, id, list, NULL, 0, 0, 0, NULL);
	if (cancel)
		good = good && !te_cancel_batch(rig->engine, id);
	else
		good = good && !te_batch_deadline(rig->engine, id, ft_now_ns());
	good = good &&
	       !te_wait_batch(rig->engine, id,
			      fx_ms(FX_LONG_MS) * INT64_C(1000), &status);
	/* If slices were posted, the target cannot fence them while it is
	 * stopped, and the task ends as unfenced (TIMEOUT). */
	good = good &&
	       (status.status == STATUS_TIMEOUT ||
		status.status == (cancel ? STATUS_CANCELED : STATUS_FAILED));
	if (!cancel)
		good = good &&
		       te_submit_prepared(rig->engine, id, list, NULL, 0, 0, 0,
					  NULL) == TE_TIMED_OUT;
	fx_peer_resume(&rig->target);
	freeBatchID(rig->engine, id);
	return good;
}

static void prep_early(struct prep_rig *rig)
{
	te_prepared_t list = 0;
	bool good = !prep_list(rig, TE_WRITE, PREP_PIECES, &list);

	ft_ok(good && prep_end_early(rig, list, true),
	      "cancelled_submission_ends_%s", rig->way);
	ft_ok(good && prep_end_early(rig, list, false),
	      "submission_past_its_deadline_ends_%s", rig->way);
	good = good &&
	       fx_move_until(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p,
			     rig->target.mem.addr, 64, 0, FX_LONG_MS);
	prep_clear(rig);
	prep_content(rig, 3);
	for (uint32_t i = 0; i < PREP_PIECES; i++)
		prep_expect(rig, i);
	ft_ok(good && prep_run(rig, list, NULL, 0, NULL) == STATUS_COMPLETED &&
		      prep_as_expected(rig),
	      "list_works_after_early_ends_%s", rig->way);
	te_prepared_release(rig->engine, list);
}

/* --- a restarted target --------------------------------------------------- */

/* Submits the list repeatedly until a task completes. Returns the union of the
 * bits that the submissions set in *checked, or -1 if no task completes in
 * time. */
static int prep_until_written(struct prep_rig *rig, te_prepared_t list)
{
	uint64_t until = ft_now_ns() + FX_LONG_MS * UINT64_C(1000000);
	uint32_t checked = 0, seen = 0;
	int status;

	do {
		status = prep_run(rig, list, NULL, 0, &checked);
		seen |= checked;
	} while (status != STATUS_COMPLETED && ft_now_ns() < until);
	return status == STATUS_COMPLETED ? (int)seen : -1;
}

static bool prep_descriptor_is_new(void *arg)
{
	struct prep_rig *rig = arg;
	struct te_buffer bufs[8];
	size_t n = 8;

	return !te_segment_buffers(rig->engine, rig->seg, bufs, sizeof(bufs[0]),
				   &n) &&
	       n == 1;
}

static void prep_restart(void)
{
	int port = ft_port("127.0.0.1");
	te_prepared_t list = 0;
	struct prep_rig rig;
	uint32_t checked = 0, index = 0;
	uint64_t addr;
	int seen;

	if (!ft_ok(port, "free_port_is_found") ||
	    !prep_start(&rig, "restart", "tcp", port))
		return;
	addr = rig.target.mem.addr;
	ft_ok(!prep_list(&rig, TE_WRITE, PREP_PIECES, &list) &&
		      prep_run(&rig, list, NULL, 0, &checked) ==
			      STATUS_COMPLETED &&
		      !checked,
	      "list_is_written_before_the_restart");
	fx_peer_kill(&rig.target);
	fx_peer_drop(&rig.target);
	if (!ft_ok(prep_target(&rig, "tcp", port, PREP_MEM),
		   "target_restarts_under_its_name"))
		return;
	if (rig.target.mem.addr == addr) {
		prep_clear(&rig);
		prep_content(&rig, 7);
		for (uint32_t i = 0; i < PREP_PIECES; i++)
			prep_expect(&rig, i);
		seen = prep_until_written(&rig, list);
		ft_ok(seen == (TE_PREPARED_CHECKED | TE_PREPARED_RESTARTED) &&
			      prep_as_expected(&rig),
		      "list_survives_a_restart_of_the_target_and_says_so");
	} else {
		ft_diag("the restarted target has other addresses");
	}
	fx_peer_kill(&rig.target);
	fx_peer_drop(&rig.target);
	if (!ft_ok(prep_target(&rig, "tcp", port, PREP_REGION),
		   "target_restarts_with_less_memory"))
		return;
	for (uint32_t i = 0; i < PREP_PIECES; i++)
		if (prep_remote_off(i) >= PREP_REGION)
			index = i;
	syncSegmentCache(rig.engine);
	ft_ok(ft_wait_until(prep_descriptor_is_new, &rig, FX_LONG_MS) &&
		      prep_run(&rig, list, &index, 1, &checked) == -3 &&
		      prep_said("remote") &&
		      checked == (TE_PREPARED_CHECKED | TE_PREPARED_RESTARTED),
	      "list_that_the_restarted_target_does_not_cover_is_refused");
	te_prepared_release(rig.engine, list);
	prep_stop(&rig);
}

/* --- threads -------------------------------------------------------------- */

struct prep_thread {
	struct prep_rig *rig;
	te_prepared_t list;
	pthread_t thread;
	uint32_t first; /* index of the first piece that the thread submits,
			 * followed by every PREP_THREADS-th one */
	bool good;
};

static void *prep_thread_main(void *arg)
{
	struct prep_thread *t = arg;
	uint32_t indices[PREP_PIECES / PREP_THREADS], n = 0;

	for (uint32_t i = t->first; i < PREP_PIECES; i += PREP_THREADS)
		indices[n++] = i;
	t->good = true;
	for (uint32_t round = 0; t->good && round < PREP_ROUNDS; round++)
		t->good = prep_run(t->rig, t->list, indices + round, n - round,
				   NULL) == STATUS_COMPLETED;
	t->good = t->good && prep_run(t->rig, t->list, indices, n, NULL) ==
				     STATUS_COMPLETED;
	return NULL;
}

static void *prep_thread_churn(void *arg)
{
	struct prep_thread *t = arg;
	te_prepared_t mine;

	t->good = true;
	for (uint32_t round = 0; t->good && round < PREP_ROUNDS; round++) {
		t->good = !prep_list(t->rig, TE_READ, 100, &mine) &&
			  !te_prepared_release(t->rig->engine, mine);
		syncSegmentCache(t->rig->engine);
	}
	return NULL;
}

static void prep_threads(struct prep_rig *rig)
{
	struct prep_thread t[PREP_THREADS + 1];
	te_prepared_t list = 0;
	bool good;

	prep_clear(rig);
	prep_content(rig, 11);
	for (uint32_t i = 0; i < PREP_PIECES; i++)
		prep_expect(rig, i);
	good = !prep_list(rig, TE_WRITE, PREP_PIECES, &list);
	for (uint32_t i = 0; i <= PREP_THREADS; i++) {
		t[i].rig = rig;
		t[i].list = list;
		t[i].first = i;
		if (pthread_create(&t[i].thread, NULL,
				   i < PREP_THREADS ? prep_thread_main
						    : prep_thread_churn,
				   &t[i]))
			abort();
	}
	for (uint32_t i = 0; i <= PREP_THREADS; i++) {
		pthread_join(t[i].thread, NULL);
		good = good && t[i].good;
	}
	ft_ok(good && prep_as_expected(rig),
	      "threads_submit_one_list_at_the_same_time_%s", rig->way);
	te_prepared_release(rig->engine, list);
}

/* Submits the list until a submission is refused, because the other thread has
 * released the list. */
static void *prep_thread_until_refused(void *arg)
{
	struct prep_thread *t = arg;
	int status;

	do
		status = prep_run(t->rig, t->list, NULL, 0, NULL);
	while (status == STATUS_COMPLETED);
	t->good = status == -1 && prep_said("no such prepared list");
	return NULL;
}

static void prep_release_in_use(struct prep_rig *rig)
{
	struct prep_thread t = { .rig = rig };
	bool good = !prep_list(rig, TE_WRITE, 500, &t.list);

	if (pthread_create(&t.thread, NULL, prep_thread_until_refused, &t))
		abort();
	good = good &&
	       prep_run(rig, t.list, NULL, 0, NULL) == STATUS_COMPLETED &&
	       !te_prepared_release(rig->engine, t.list);
	pthread_join(t.thread, NULL);
	ft_ok(good && t.good, "list_is_released_while_a_thread_submits_it_%s",
	      rig->way);
}

/* --- the own segment ------------------------------------------------------ */

static void prep_own(struct prep_rig *rig)
{
	struct te_piece piece[50];
	te_prepared_t list = 0;
	bool good;

	prep_content(rig, 2);
	for (uint32_t i = 0; i < 50; i++) {
		piece[i] = rig->piece[i];
		piece[i].remote = (uintptr_t)rig->piece[4000 + i].local;
	}
	good = !te_prepare(rig->engine, LOCAL_SEGMENT, TE_WRITE, piece, 50, 0,
			   &list) &&
	       prep_run(rig, list, NULL, 0, NULL) == STATUS_COMPLETED;
	for (uint32_t i = 0; i < 50; i++)
		good = good &&
		       !memcmp(piece[i].local,
			       (void *)(uintptr_t)piece[i].remote, PREP_LEN);
	ft_ok(good, "list_of_the_own_segment_is_written_%s", rig->way);
	te_prepared_release(rig->engine, list);
}

/* Prepares a list and does not release it; the engine must free it when it is
 * destroyed. */
static void prep_left(struct prep_rig *rig)
{
	te_prepared_t list;

	ft_ok(!prep_list(rig, TE_WRITE, 10, &list),
	      "list_is_left_to_the_engine_%s", rig->way);
}

static void prep_all(const char *way, const char *transport)
{
	struct prep_rig rig;

	if (!prep_start(&rig, way, transport, 0))
		return;
	prep_subsets(&rig);
	prep_whole(&rig);
	prep_adjacent(&rig);
	prep_bad_prepare(&rig);
	prep_bad_submit(&rig);
	prep_closed_segment(&rig);
	prep_unregistered(&rig);
	prep_stale(&rig);
	prep_threads(&rig);
	prep_release_in_use(&rig);
	prep_own(&rig);
	if (!strcmp(way, "1_rail"))
		prep_early(&rig);
	prep_left(&rig);
	prep_stop(&rig);
}

int main(int argc, char **argv)
{
	/* Without address randomization, a restarted peer has its memory at the
	 * same addresses. */
	personality(ADDR_NO_RANDOMIZE);
	fx_init(argc, argv);
	prep_all("1_rail", "tcp");
	prep_all("auto_discover", "auto");
	prep_restart();
	setenv("MOONRAIL_DEVICES", "127.0.0.1,127.0.0.2", 1);
	prep_all("2_rails", "tcp");
	return ft_result();
}
