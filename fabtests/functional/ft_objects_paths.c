/* SPDX-License-Identifier: BSD-2-Clause */

/* Tests te_segment_paths, te_peer_stats and the other reports about rails and
 * peers. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_objects.h"
#include "fabtests/functional/fx.h"

#define PATHS_MEM (16 * FX_MIB)

struct paths_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
};

static bool paths_start(struct paths_rig *rig, const char *transport)
{
	char option[64];

	memset(rig, 0, sizeof(*rig));
	snprintf(option, sizeof(option), "transport=%s", transport);
	rig->mem = fx_buf_map(PATHS_MEM, -1);
	rig->engine = fx_engine(transport);
	if (!fx_peer_start(&rig->target, PATHS_MEM, option, NULL) ||
	    fx_ask(&rig->target, "reg 0 %llu 1", PATHS_MEM) ||
	    !rig->engine || !fx_register(rig->engine, &rig->mem))
		return ft_ok(false, "a target and an engine start");
	rig->seg = openSegment(rig->engine, rig->target.name);
	return ft_ok(rig->seg > 0, "%s: a segment opens", transport);
}

static void paths_stop(struct paths_rig *rig)
{
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->target);
	fx_buf_unmap(&rig->mem);
}

static bool paths_move(struct paths_rig *rig, segment_id_t seg, int op,
		       uint64_t remote, uint64_t len, uint64_t block)
{
	return fx_move(rig->engine, seg, op, rig->mem.p, remote, len, block);
}

static size_t paths_get(struct paths_rig *rig, segment_id_t seg,
			struct te_path *p)
{
	size_t n = 8;

	memset(p, 0x5a, 8 * sizeof(*p));
	return te_segment_paths(rig->engine, seg, "cpu:0", p, sizeof(*p), &n) ?
	       SIZE_MAX : n;
}

static struct te_peer_stats paths_stats(struct paths_rig *rig, segment_id_t seg)
{
	struct te_peer_stats s;

	memset(&s, 0x5a, sizeof(s));
	if (te_peer_stats(rig->engine, seg, &s, sizeof(s)))
		memset(&s, 0x5a, sizeof(s));
	return s;
}

static bool paths_connected(void *rig)
{
	struct te_path p[8];

	return paths_get(rig, ((struct paths_rig *)rig)->seg, p) == 2 &&
	       (p[0].flags & p[1].flags & TE_PATH_CONNECTED);
}

/* --- over the fabric ----------------------------------------------------- */

static void paths_fabric(struct paths_rig *rig)
{
	struct te_rail_stats rails[2];
	struct te_path p[8];
	size_t n = 2;
	bool good;

	ft_ok(paths_get(rig, rig->seg, p) == 2 && p[0].kind == TE_PATH_FABRIC &&
		      !(p[0].flags & TE_PATH_CONNECTED),
	      "path_before_any_traffic_is_not_connected");
	good = paths_stats(rig, rig->seg).state == TE_PEER_NEW;
	ft_ok(good, "peer_before_any_traffic_is_new");
	ft_ok(!warmupEfaSegment(rig->engine, rig->target.name) &&
	      ft_wait_until(paths_connected, rig, fx_ms(5000)) &&
	      paths_get(rig, rig->seg, p) == 2,
	      "a_warm_up_connects_every_path");
	te_rail_stats(rig->engine, rails, sizeof(rails[0]), &n);
	good = fx_ask(&rig->target, "rails") == 2;
	for (int i = 0; good && i < 2; i++)
		good = !strcmp(p[i].transport, "tcp") &&
		       !strcmp(p[i].rail, rails[i].name) &&
		       !strcmp(p[i].provider, rails[i].provider) &&
		       !strcmp(p[i].address, rails[i].address) &&
		       p[i].remote_rail[0] && p[i].rank == TE_PATH_NEAR &&
		       strstr(rig->target.text, p[i].remote_address);
	ft_ok(good && strcmp(p[0].remote_address, p[1].remote_address),
	      "addresses_are_those_of_the_rails_on_both_sides");
	ft_ok(paths_get(rig, LOCAL_SEGMENT, p) == 1 &&
		      p[0].kind == TE_PATH_MEMCPY,
	      "path_to_the_own_segment_is_memcpy");
}

static void paths_counted(struct paths_rig *rig)
{
	uint64_t at = rig->target.mem.addr, from = ft_now_ns();
	struct te_peer_stats s;
	struct fx_rails rails;
	bool good;

	good = paths_move(rig, rig->seg, OPCODE_WRITE, at, 8 * FX_MIB, 65536) &&
	       paths_move(rig, rig->seg, OPCODE_READ, at, FX_MIB, 4096);
	s = paths_stats(rig, rig->seg);
	rails = fx_rails(rig->engine, "tcp");
	ft_ok(good && s.tx_bytes == 8 * FX_MIB && s.rx_bytes == FX_MIB &&
		      s.completed == 128 + 256 && !s.failed && !s.timeout &&
		      !s.canceled && !s.queued,
	      "moved_bytes_are_counted");
	ft_ok(rails.tx == s.tx_bytes && rails.rx == s.rx_bytes,
	      "rails_and_peer_agree");
	ft_ok(s.state == TE_PEER_READY && s.incarnation && s.last_ns >= from &&
	      s.last_ns <= ft_now_ns() && !strcmp(s.name, rig->target.name),
	      "the_peer_is_ready_and_was_heard_of");
	good = paths_move(rig, LOCAL_SEGMENT, OPCODE_WRITE,
			  rig->mem.addr + 8 * FX_MIB, FX_MIB, 65536);
	s = paths_stats(rig, LOCAL_SEGMENT);
	ft_ok(good && s.tx_bytes == FX_MIB && s.completed == 16 &&
		      s.state == TE_PEER_READY,
	      "bytes_to_the_own_segment_are_counted");
}

static void paths_failures_of(struct paths_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->target.mem.addr - 4096,
			      .len = 64 };
	struct te_peer_stats s;

	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
	      paths_stats(rig, rig->seg).failed == 1, "a_failure_is_counted");
	fx_job_free(&job);
	fx_peer_pause(&rig->target);
	job.remote = rig->target.mem.addr;
	job.len = 4 * FX_MIB;
	job.block = 0;
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS),
	      "a_write_to_a_stopped_target_ends");
	s = paths_stats(rig, rig->seg);
	ft_ok(s.failed + s.timeout == 2 && s.fences > 0,
	      "failed_tasks_and_the_fence_are_counted");
	ft_diag("%" PRIu64 " failed, %" PRIu64 " timeout, %" PRIu64
		" fences, %" PRIu64 " retries, state %u", s.failed, s.timeout,
		s.fences, s.retries, s.state);
	fx_peer_resume(&rig->target);
	fx_job_free(&job);
	ft_ok(fx_move_until(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p,
			    rig->target.mem.addr, 4096, 0, fx_ms(20000)) &&
		      paths_stats(rig, rig->seg).state == TE_PEER_READY,
	      "resumed_target_is_ready_again");
}

/* Runs the cases that wait for MC_SLICE_TIMEOUT, with an engine that has a
 * short one. */
static void paths_failures(struct paths_rig *rig)
{
	struct paths_rig brisk = *rig;

	brisk.engine = fx_engine_timeout("tcp", FX_BRISK_S);
	if (ft_ok(brisk.engine && fx_register(brisk.engine, &brisk.mem),
		  "a_brisk_engine_starts")) {
		brisk.seg = openSegment(brisk.engine, brisk.target.name);
		ft_ok(paths_move(&brisk, brisk.seg, OPCODE_WRITE,
				 brisk.target.mem.addr, 4096, 0),
		      "brisk_engine_is_connected");
		paths_failures_of(&brisk);
		rig->target = brisk.target;
	}
	destroyTransferEngine(brisk.engine);
}

static bool paths_cut(void *rig)
{
	struct te_path p[8];

	return paths_get(rig, ((struct paths_rig *)rig)->seg, p) == 2 &&
	       !((p[0].flags | p[1].flags) & TE_PATH_CONNECTED);
}

/* Kills the target while nothing is posted. The paths must become unconnected
 * nevertheless. */
static void paths_idle_end(struct paths_rig *rig)
{
	ft_ok(!warmupEfaSegment(rig->engine, rig->target.name) &&
	      ft_wait_until(paths_connected, rig, FX_LONG_MS),
	      "paths_are_connected_again");
	fx_peer_kill(&rig->target);
	ft_ok(ft_wait_until(paths_cut, rig, FX_LONG_MS),
	      "the_paths_to_a_killed_target_end_without_traffic");
}

/* --- all reports about rails agree --------------------------------------- */

static bool paths_tells(const char *text, const char *before, uint64_t value,
			const char *after)
{
	char want[96];

	snprintf(want, sizeof(want), "%s%" PRIu64 "%s", before, value, after);
	if (!strstr(text, want))
		ft_diag("no %s in %s", want, text);
	return strstr(text, want) != NULL;
}

/* Returns true if the text and the JSON of showLinks contain the counters of
 * both rails, the peer, and its paths. */
static bool paths_links(struct paths_rig *rig, const struct te_rail_stats s[2])
{
	struct te_peer_stats peer = paths_stats(rig, rig->seg);
	static char json[1 << 16], text[1 << 16];
	struct te_path p[8];
	bool good = !showLinks(rig->engine, json, sizeof(json), 1) &&
		    !showLinks(rig->engine, text, sizeof(text), 0) &&
		    paths_get(rig, rig->seg, p) == 2;

	for (int i = 0; good && i < 2; i++)
		good = paths_tells(json, "\"slices\":", s[i].slices, ",") &&
		       paths_tells(json, "\"window\":", s[i].window, ",") &&
		       paths_tells(text, " slices ", s[i].slices, " retries 0") &&
		       paths_tells(text, " in flight 0 B window ", s[i].window,
				   " B rate ") &&
		       strstr(json, p[i].remote_address) &&
		       strstr(text, p[i].remote_address);
	return good && strstr(json, "\"inflight_bytes\":0") &&
	       strstr(json, "\"kind\":\"fabric\"") && strstr(text, "\npeer ") &&
	       strstr(text, peer.name) &&
	       paths_tells(json, "\"completed\":", peer.completed, ",") &&
	       paths_tells(text, " completed ", peer.completed, " failed 0");
}

static void paths_rails_true(struct paths_rig *rig)
{
	struct te_rail_stats s[2];
	nic_load_stat_t nic[2];
	char text[8192], want[64];
	size_t n = 2, m = 2;
	bool good;

	for (int i = 0; i < 8; i++)
		paths_move(rig, rig->seg, OPCODE_WRITE, rig->target.mem.addr,
			   PATHS_MEM, FX_MIB);
	good = !te_rail_stats(rig->engine, s, sizeof(s[0]), &n) && n == 2 &&
	       !getNicLoadStats(rig->engine, nic, &m) && m == 2 &&
	       !showLinks(rig->engine, text, sizeof(text), 1);
	for (int i = 0; good && i < 2; i++) {
		snprintf(want, sizeof(want), "\"tx_bytes\":%" PRIu64,
			 s[i].tx_bytes);
		good = !strcmp(s[i].name, nic[i].device_name) &&
		       nic[i].inflight_bytes == s[i].inflight_bytes &&
		       nic[i].ewma_bandwidth_bps == s[i].rate &&
		       strstr(text, want) && strstr(text, s[i].address);
	}
	ft_ok(good, "rail_stats_nic_load_and_links_agree");
	for (int i = 0; i < 2; i++) {
		ft_diag("rail %s: rate %.0f, window %" PRIu64 ", most %" PRIu64
			", %u lanes, %" PRIu64 " slices", s[i].name, s[i].rate,
			s[i].window, s[i].inflight_max, s[i].lanes,
			s[i].slices);
		good = good && s[i].state == TE_RAIL_UP && s[i].lanes >= 2 &&
		       s[i].slices > 0 && !s[i].inflight_bytes &&
		       s[i].inflight_max > 0 && s[i].rate > 1e6 &&
		       s[i].rate < 1e12 &&
		       /* The window is about 8 ms of data or more. */
		       (double)s[i].window > s[i].rate * .002 &&
		       s[i].inflight_max <= 16u << 20;
	}
	ft_ok(good, "each_field_of_the_rail_statistics_is_plausible");
	ft_ok(good && paths_links(rig, s), "links_show_rails_and_peers_whole");
}

/* --- on this host -------------------------------------------------------- */

static void paths_local(void)
{
	struct paths_rig rig;
	struct te_peer_stats s;
	struct te_path p[8];

	if (!paths_start(&rig, "auto"))
		return;
	if (paths_get(&rig, rig.seg, p) != 1 || p[0].kind != TE_PATH_PROCESS) {
		ft_ok(p[0].why_not_local[0],
		      "path_without_kernel_copies_names_the_reason");
		ft_diag("no kernel copies: %s", p[0].why_not_local);
		paths_stop(&rig);
		return;
	}
	ft_ok(!strcmp(p[0].provider, "process_vm") &&
	      (p[0].flags & TE_PATH_CONNECTED), "a_neighbour_is_process_vm");
	ft_ok(paths_move(&rig, rig.seg, OPCODE_WRITE, rig.target.mem.addr,
			 4 * FX_MIB, 4096) &&
	      paths_move(&rig, rig.seg, OPCODE_READ, rig.target.mem.addr,
			 FX_MIB, 0), "copies_are_made");
	s = paths_stats(&rig, rig.seg);
	ft_ok(s.tx_bytes == 4 * FX_MIB && s.rx_bytes == FX_MIB &&
	      s.completed == 1025 && s.state == TE_PEER_READY && s.last_ns,
	      "copies_are_counted");
	ft_ok(!fx_ask(&rig.target, "unreg 0") &&
	      !fx_ask(&rig.target, "reg 0 %llu 1", FX_MIB) &&
	      !syncSegmentCache(rig.engine) &&
	      paths_stats(&rig, rig.seg).completed == 1025,
	      "a_new_descriptor_keeps_the_counters");
	fx_peer_kill(&rig.target);
	ft_ok(paths_stats(&rig, rig.seg).state == TE_PEER_GONE,
	      "a_killed_neighbour_is_gone");
	fx_peer_drop(&rig.target);
	destroyTransferEngine(rig.engine);
	fx_buf_unmap(&rig.mem);
}

static void paths_bad(struct paths_rig *rig)
{
	struct te_peer_stats s;
	struct te_path p[3];
	size_t n = 1;

	memset(p, 0x5a, sizeof(p));
	ft_ok(!te_segment_paths(rig->engine, rig->seg, NULL, p, 8, &n) &&
		      n == 2 && p[0].rank == 0x5a5a5a5a,
	      "array_of_paths_is_not_overrun");
	ft_ok(te_segment_paths(rig->engine, 999, NULL, p, sizeof(p[0]), &n) ==
	      -1 &&
	      te_segment_paths(rig->engine, -1, NULL, p, sizeof(p[0]), &n) ==
	      -1 &&
	      te_segment_paths(rig->engine, rig->seg, "cpu:x", p, sizeof(p[0]),
			       &n) == -1 &&
	      te_segment_paths(rig->engine, rig->seg, NULL, NULL, 8, &n) ==
	      -1 &&
	      te_segment_paths(rig->engine, rig->seg, NULL, p, 0, &n) == -1 &&
	      te_segment_paths(rig->engine, rig->seg, NULL, p, 8, NULL) ==
	      -1 &&
	      te_segment_paths(NULL, rig->seg, NULL, p, 8, &n) == -1 && n == 2,
	      "bad_arguments_of_paths");
	ft_ok(te_peer_stats(rig->engine, 999, &s, sizeof(s)) == -1 &&
	      te_peer_stats(rig->engine, rig->seg, NULL, sizeof(s)) == -1 &&
	      te_peer_stats(rig->engine, rig->seg, &s, 0) == -1 &&
	      te_peer_stats(NULL, rig->seg, &s, sizeof(s)) == -1,
	      "bad_arguments_of_peer_stats");
}

void objects_paths(void)
{
	struct paths_rig rig;

	if (paths_start(&rig, "tcp")) {
		paths_fabric(&rig);
		paths_counted(&rig);
		paths_rails_true(&rig);
		paths_failures(&rig);
		paths_bad(&rig);
		paths_idle_end(&rig);
		destroyTransferEngine(rig.engine);
		fx_peer_drop(&rig.target);
		fx_buf_unmap(&rig.mem);
	}
	paths_local();
}
