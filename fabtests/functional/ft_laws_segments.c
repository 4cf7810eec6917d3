/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_laws.h"
#include "fabtests/functional/fx.h"

/* --- names and ids ------------------------------------------------------- */

static void seg_names(struct law_rig *rig)
{
	char own[128], slashed[140];
	struct te_error err;

	fx_engine_name(rig->engine, own, sizeof(own));
	snprintf(slashed, sizeof(slashed), "/%s", rig->target.name);
	ft_ok(rig->seg == 1, "ids_count_from_1");
	ft_ok(openSegment(rig->engine, rig->target.name) == rig->seg,
	      "same_name_has_the_same_id");
	ft_ok(openSegment(rig->engine, slashed) == rig->seg,
	      "a_leading_slash_is_dropped");
	ft_ok(openSegmentNoCache(rig->engine, rig->target.name) == rig->seg,
	      "open_without_cache_has_the_same_id");
	ft_ok(openSegment(rig->engine, own) == LOCAL_SEGMENT, "own_name_is_0");
	for (int i = 0; i < 3; i++)
		closeSegment(rig->engine, rig->seg);
	ft_ok(law_write_works(rig, 4096, 1),
	      "segment_with_one_reference_left_is_written");
	ft_ok(!closeSegment(rig->engine, rig->seg), "the_last_close_is_0");
	ft_ok(!closeSegment(rig->engine, rig->seg) &&
	      !te_last_error(&err, sizeof(err)) &&
	      strstr(err.text, "no such segment"),
	      "law5_segment_closed_too_often_returns_0_with_a_record");
}

static void seg_stale(struct law_rig *rig)
{
	struct transfer_request req = { OPCODE_WRITE, rig->mem.p, rig->seg,
					rig->target.mem.addr, 64 };
	batch_id_t id = allocateBatchID(rig->engine, 1);
	struct te_buffer buf;
	size_t n = 1;

	ft_ok(submitTransfer(rig->engine, id, &req, 1) == 1 &&
	      te_segment_buffers(rig->engine, rig->seg, &buf, sizeof(buf),
				 &n) == -1, "law5_a_closed_id_is_stale");
	freeBatchID(rig->engine, id);
	rig->seg = openSegment(rig->engine, rig->target.name);
	ft_ok(rig->seg > 0 && law_write_works(rig, 4096, 2),
	      "opened_again_it_works");
}

/* Closes the last reference to a segment while tasks to it are in progress. */
static void seg_close_busy(struct law_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->target.mem.addr, .len = LAW_MEM,
			      .block = 10000 };

	fx_buf_fill(&rig->mem, 0, LAW_MEM, 3);
	ft_ok(!fx_job_start(&job) && !closeSegment(rig->engine, rig->seg) &&
	      fx_job_wait(&job, FX_LONG_MS) &&
	      job.n[STATUS_COMPLETED] == job.tasks &&
	      fx_buf_check(&rig->target.mem, 0, LAW_MEM, 3),
	      "close_does_not_disturb_tasks_under_way");
	fx_job_free(&job);
	rig->seg = openSegment(rig->engine, rig->target.name);
	ft_ok(!removeLocalSegment(rig->engine, rig->target.name) &&
	      law_write_works(rig, 4096, 4) &&
	      openSegment(rig->engine, rig->target.name) > 0,
	      "a_name_that_was_forgotten_opens_again");
}

/* --- descriptors --------------------------------------------------------- */

static size_t seg_count(const struct law_rig *rig, segment_id_t seg)
{
	struct te_buffer bufs[4];
	size_t n = 4;

	if (te_segment_buffers(rig->engine, seg, bufs, sizeof(bufs[0]), &n))
		return SIZE_MAX;
	return n;
}

static void seg_buffers(struct law_rig *rig)
{
	struct te_buffer bufs[2];
	size_t n = 2;

	memset(bufs, 0x5a, sizeof(bufs));
	ft_ok(!te_segment_buffers(rig->engine, rig->seg, bufs, sizeof(bufs[0]),
				  &n) &&
	      n == 1 && bufs[0].addr == rig->target.mem.addr &&
	      bufs[0].length == LAW_MEM && bufs[0].location[0] &&
	      bufs[1].location[0] == 0x5a, "buffers_are_those_registered");
	ft_ok(seg_count(rig, LOCAL_SEGMENT) == 1,
	      "buffers_of_the_own_segment_are_listed");
	n = 0;
	ft_ok(!te_segment_buffers(rig->engine, rig->seg, NULL, sizeof(bufs[0]),
				  &n) && n == 1, "buffers_can_be_counted");
}

#define PARTS_LEN (FX_MIB + 1)

/* Returns true if buffer b is part i of the peer's memory. The first two parts
 * have equal lengths in whole pages, the last one has the rest. Each part has a
 * location of its own. */
static bool seg_is_part(const struct fx_peer *peer, const struct te_buffer *b,
			unsigned int i)
{
	static const char *const where[] = { "cpu:0", "cpu:1", "cpu:0" };
	uint64_t at = (PARTS_LEN / 3 * i + 4095) / 4096 * 4096;
	uint64_t end = (PARTS_LEN / 3 * (i + 1) + 4095) / 4096 * 4096;

	if (i == 2)
		end = PARTS_LEN;
	if (b->addr == peer->mem.addr + at && b->length == end - at &&
	    !strcmp(b->location, where[i]))
		return true;
	ft_diag("part %u: %llu bytes at 0x%llx, location %s", i,
		(unsigned long long)b->length, (unsigned long long)b->addr,
		b->location);
	return false;
}

static void seg_parts(struct law_rig *rig)
{
	struct te_buffer bufs[4];
	struct fx_peer other;
	size_t i, n = 4;
	segment_id_t seg;
	bool good;

	if (!ft_ok(fx_peer_start(&other, PARTS_LEN, NULL) &&
		   !fx_ask(&other, "reg 0 %llu 1 segments:4096:0,1,0",
			   PARTS_LEN), "a_target_with_a_buffer_in_parts"))
		return;
	seg = openSegment(rig->engine, other.name);
	good = !te_segment_buffers(rig->engine, seg, bufs, sizeof(bufs[0]),
				   &n) && n == 3;
	for (i = 0; good && i < 3; i++)
		good = seg_is_part(&other, &bufs[i], (unsigned int)i);
	ft_ok(good, "parts_are_published_with_their_locations");
	fx_buf_fill(&rig->mem, 0, PARTS_LEN, 12);
	ft_ok(fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
		      other.mem.addr, PARTS_LEN, 0) &&
	      fx_buf_check(&other.mem, 0, PARTS_LEN, 12),
	      "a_write_goes_across_the_parts");
	ft_ok(!fx_ask(&other, "unreg 0") && !syncSegmentCache(rig->engine) &&
	      seg_count(rig, seg) == 0, "the_parts_are_withdrawn_together");
	closeSegment(rig->engine, seg);
	ft_ok(fx_peer_stop(&other), "the_target_in_parts_ends_well");
}

static void seg_refresh(struct law_rig *rig)
{
	struct fx_peer other;
	segment_id_t seg;

	if (!ft_ok(fx_peer_start(&other, 3 * FX_MIB, NULL) &&
		   !fx_ask(&other, "reg 0 %llu 1", FX_MIB),
		   "a_target_with_one_buffer"))
		return;
	seg = openSegment(rig->engine, other.name);
	ft_ok(seg_count(rig, seg) == 1 &&
		      !fx_ask(&other, "reg %llu %llu 1", 2 * FX_MIB, FX_MIB),
	      "target_registers_another_buffer");
	fx_buf_fill(&rig->mem, 0, FX_MIB, 11);
	ft_ok(fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
		      other.mem.addr + 2 * FX_MIB, FX_MIB, 0) &&
	      fx_buf_check(&other.mem, 2 * FX_MIB, FX_MIB, 11),
	      "a_buffer_registered_after_open_can_be_written");
	ft_ok(!syncSegmentCache(rig->engine) && seg_count(rig, seg) == 2,
	      "sync_shows_the_new_buffer");
	ft_ok(!fx_ask(&other, "unreg 0") &&
		      openSegmentNoCache(rig->engine, other.name) == seg &&
		      seg_count(rig, seg) == 1,
	      "open_without_cache_shows_that_a_buffer_is_gone");
	ft_ok(!fx_ask(&other, "unreg %llu", 2 * FX_MIB) &&
		      !syncSegmentCache(rig->engine) &&
		      seg_count(rig, seg) == 0,
	      "law12_unregistered_buffer_is_not_published");
	fx_peer_stop(&other);
	ft_ok(syncSegmentCache(rig->engine) < 0,
	      "sync_with_one_that_is_gone_is_an_error");
	ft_ok(law_write_works(rig, FX_MIB, 12),
	      "transfers_of_other_segments_continue");
	ft_ok(!closeSegment(rig->engine, seg) &&
		      !closeSegment(rig->engine, seg) &&
		      !syncSegmentCache(rig->engine),
	      "law12_closed_segment_is_forgotten");
}

/* Returns the number of open descriptors of this process and the peer. */
static unsigned int seg_descriptors(const struct fx_peer *peer)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)peer->proc.pid);
	return fx_count_dir("/proc/self/fd") + fx_count_dir(path);
}

/* Calls warmupEfaSegment several times. Returns true if all calls succeed and
 * open no new connections. */
static bool seg_warm_again(struct law_rig *rig, const struct fx_peer *cold)
{
	unsigned int was = seg_descriptors(cold), now, i;
	bool good = true;

	for (i = 0; i < 16; i++)
		good &= !warmupEfaSegment(rig->engine, cold->name);
	now = seg_descriptors(cold);
	if (now > was + 4)
		ft_diag("open file descriptors: %u, then %u", was, now);
	return good && now <= was + 4;
}

static void seg_warmup(struct law_rig *rig)
{
	struct fx_peer cold;
	segment_id_t seg;
	uint64_t from;

	if (!ft_ok(fx_target_start(&cold, FX_MIB), "a_target_starts"))
		return;
	ft_ok(!warmupEfaSegment(rig->engine, cold.name) &&
	      !warmupEfaSegment(rig->engine, cold.name), "warmup_twice_is_0");
	ft_ok(seg_warm_again(rig, &cold), "warmed_up_it_makes_no_connection");
	removeLocalSegment(rig->engine, cold.name);
	fx_peer_kill(&cold);
	fx_peer_drop(&cold);
	if (!ft_ok(fx_target_start(&cold, FX_MIB), "a_target_starts"))
		return;
	seg = openSegment(rig->engine, cold.name);
	fx_peer_pause(&cold);
	from = ft_now_ns();
	ft_ok(warmupEfaSegment(rig->engine, cold.name) < 0 &&
	      ft_now_ns() - from < fx_ms(8000) * UINT64_C(1000000),
	      "law3_warmup_of_a_stopped_target_ends");
	fx_peer_resume(&cold);
	ft_ok(!warmupEfaSegment(rig->engine, cold.name),
	      "warmup_of_a_target_that_goes_on_is_0");
	closeSegment(rig->engine, seg);
	removeLocalSegment(rig->engine, cold.name);
	fx_peer_stop(&cold);
}

/* --- transports ---------------------------------------------------------- */

static void transport_handles(struct law_rig *rig)
{
	transport_t tcp = installTransport(rig->engine, "tcp", NULL);

	ft_ok(tcp && installTransport(rig->engine, "tcp", NULL) == tcp,
	      "the_same_transport_twice_gives_the_first_handle");
}

static void uninstall_waits(struct law_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->target.mem.addr, .len = LAW_MEM,
			      .block = 5000 };
	struct te_local from[2] = { { rig->mem.p, 8 }, { rig->mem.p, 8 } };
	struct te_remote to = { rig->target.mem.addr, 16 };
	struct te_remote number = { rig->target.mem.addr, 8 };
	struct te_request pieces = {
		.opcode = TE_WRITE, .target_id = rig->seg, .local_count = 2,
		.local = from, .remote_count = 1, .remote = &to,
	};
	struct te_request atomic = {
		.opcode = TE_ATOMIC_ADD, .target_id = rig->seg,
		.remote_count = 1, .remote = &number, .operand = 1,
	};
	struct te_error err = { 0 };
	struct nic_load_stat load;
	size_t n = 1;
	int code;

	fx_buf_fill(&rig->mem, 0, LAW_MEM, 21);
	ft_ok(!fx_job_start(&job) && !uninstallTransport(rig->engine, "tcp") &&
	      fx_job_poll(&job) && job.n[STATUS_COMPLETED] == job.tasks &&
	      fx_buf_check(&rig->target.mem, 0, LAW_MEM, 21),
	      "uninstall_waits_for_pending_tasks");
	fx_job_free(&job);
	code = fx_job_start(&job);
	ft_ok(!te_last_error(&err, sizeof(err)) &&
	      strstr(err.text, "no transport for this segment") &&
	      strstr(err.hint, "installTransport"),
	      "submit_without_a_transport_names_installTransport");
	ft_diag("%s; %s", err.text, err.hint);
	if (!ft_ok(code == 8, "submit_without_a_transport_is_8"))
		ft_diag("submit returned %d", code);
	ft_ok(fx_submit(rig->engine, &pieces, NULL) == -8 &&
		      fx_submit(rig->engine, &atomic, NULL) == -8,
	      "pieces_and_atomics_without_a_transport_are_8");
	if (!code && fx_job_wait(&job, FX_LONG_MS))
		fx_job_free(&job);
	ft_ok(!fx_rails(rig->engine, "tcp").count &&
	      !getNicLoadStats(rig->engine, &load, &n) && n == 0,
	      "the_rails_of_a_transport_go_with_it");
	ft_ok(!uninstallTransport(rig->engine, "tcp"),
	      "uninstall_of_a_removed_transport_returns_0");
	ft_ok(installTransport(rig->engine, "tcp", NULL) &&
	      law_write_works(rig, LAW_MEM, 22),
	      "installed_again_it_carries_what_was_registered_before");
}

/* Registers memory and opens a segment before a transport is installed.
 * Transfers must work afterwards. */
static void transport_last(void)
{
	struct law_rig rig = { 0 };

	rig.mem = fx_buf_map(FX_MIB, -1);
	rig.engine = fx_engine(NULL);
	if (!ft_ok(fx_target_start(&rig.target, FX_MIB) && rig.engine &&
		   fx_register(rig.engine, &rig.mem),
		   "memory_is_registered_without_a_transport"))
		return;
	rig.seg = openSegment(rig.engine, rig.target.name);
	ft_ok(rig.seg > 0 && installTransport(rig.engine, "tcp", NULL) &&
	      law_write_works(&rig, FX_MIB, 31),
	      "a_transport_installed_last_carries_it");
	law_rig_stop(&rig);
}

/* Opens the segment of a target that has no rails yet. When the target has
 * installed a transport, transfers must work without opening the segment
 * again. */
static void transport_of_target_last(struct law_rig *rig)
{
	struct law_rig late = { .engine = rig->engine, .mem = rig->mem };
	struct fx_job job;

	if (!ft_ok(fx_peer_start(&late.target, FX_MIB, "transport=none",
				 NULL) &&
		   !fx_ask(&late.target, "reg 0 %llu 1", FX_MIB),
		   "a_target_without_a_transport_starts"))
		return;
	late.seg = openSegment(rig->engine, late.target.name);
	job = (struct fx_job){ .engine = rig->engine, .seg = late.seg,
			       .op = OPCODE_WRITE, .local = rig->mem.p,
			       .remote = late.target.mem.addr, .len = FX_MIB,
			       .block = FX_MIB };
	ft_ok(late.seg > 0 && fx_job_start(&job) == 8,
	      "submit_to_a_target_without_rails_is_8");
	fx_buf_fill(&rig->mem, 0, FX_MIB, 41);
	ft_ok(!fx_ask(&late.target, "install tcp") &&
		      fx_move_until(rig->engine, late.seg, OPCODE_WRITE,
				    rig->mem.p, late.target.mem.addr, FX_MIB,
				    FX_MIB, fx_ms(10000)) &&
		      fx_buf_check(&late.target.mem, 0, FX_MIB, 41),
	      "open_segment_is_reached_when_its_target_has_rails");
	closeSegment(rig->engine, late.seg);
	ft_ok(fx_peer_stop(&late.target), "target_ends_well");
}

/* --- many threads, all calls --------------------------------------------- */

struct seg_worker {
	struct law_rig *rig;
	uint64_t index;
	const char *failed;
};

static void *seg_worker_main(void *arg)
{
	struct seg_worker *w = arg;
	struct law_rig *rig = w->rig;
	uint64_t off = w->index * FX_MIB;
	struct te_rail_stats stats[4];
	struct fx_buf own = fx_buf_map(65536, -1);
	char links[2048];

	for (int i = 0; !w->failed && i < 40; i++) {
		size_t n = 4;
		segment_id_t seg = openSegment(rig->engine, rig->target.name);

		if (seg != rig->seg)
			w->failed = "openSegment";
		else if (!fx_register(rig->engine, &own))
			w->failed = "registerLocalMemory";
		else if (!fx_move(rig->engine, seg, OPCODE_WRITE, own.p,
				  rig->target.mem.addr + off, 65536, 4000))
			w->failed = "a write";
		else if (te_rail_stats(rig->engine, stats, sizeof(stats[0]),
				       &n) ||
			 showLinks(rig->engine, links, sizeof(links), i % 2))
			w->failed = "statistics";
		else if (unregisterLocalMemory(rig->engine, own.p))
			w->failed = "unregisterLocalMemory";
		else if (closeSegment(rig->engine, seg))
			w->failed = "closeSegment";
		else if (i % 8 == 0 && syncSegmentCache(rig->engine))
			w->failed = "syncSegmentCache";
	}
	fx_buf_unmap(&own);
	return NULL;
}

static void seg_threads(struct law_rig *rig)
{
	struct seg_worker w[4];
	pthread_t thread[4];
	bool good = true;

	for (uint64_t i = 0; i < 4; i++) {
		w[i].rig = rig;
		w[i].index = i;
		w[i].failed = NULL;
		pthread_create(&thread[i], NULL, seg_worker_main, &w[i]);
	}
	for (int i = 0; i < 4; i++) {
		pthread_join(thread[i], NULL);
		if (w[i].failed)
			ft_diag("thread %d: %s", i, w[i].failed);
		good = good && !w[i].failed;
	}
	ft_ok(good, "segment_calls_from_four_threads_succeed");
}

void law_segments(void)
{
	struct law_rig rig;

	if (!law_rig_start(&rig))
		return;
	seg_names(&rig);
	seg_stale(&rig);
	seg_close_busy(&rig);
	seg_buffers(&rig);
	seg_threads(&rig);
	seg_warmup(&rig);
	seg_refresh(&rig);
	seg_parts(&rig);
	transport_handles(&rig);
	uninstall_waits(&rig);
	transport_of_target_last(&rig);
	law_rig_stop(&rig);
	transport_last();
}
