/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_zookeeper.h"

/* Tests of transfers and calls while servers are killed. */

/* number of writes in each phase: before, during and after the outage */
#define OUTAGE_MOVES 8

struct zk_new_target {
	struct zk_rig *rig;
	const char *name;
};

/* Returns true if the segment can be opened, which shows that the servers
 * respond again. */
static bool zk_serves_again(void *arg)
{
	const struct zk_new_target *t = arg;
	segment_id_t seg = openSegmentNoCache(t->rig->engine, t->name);

	if (seg >= 0)
		closeSegment(t->rig->engine, seg);
	return seg >= 0;
}

/* Tests calls during the outage. Those that need a server must fail in time
 * with a clear error; the others must succeed. */
static void zk_calls_meanwhile(struct zk_rig *rig, segment_id_t seg)
{
	static char more[65536];
	uint64_t start = ft_now_ns();
	int ret;

	ft_ok(openSegment(rig->engine, "target") == seg,
	      "an_open_segment_opens_again_without_a_server");
	closeSegment(rig->engine, seg);
	ret = openSegment(rig->engine, "unheard-of");
	ft_ok(ret < 0 && strstr(zk_said(), "no answer from ZooKeeper"),
	      "another_segment_fails_with_a_clear_error");
	ret = registerLocalMemory(rig->engine, more, sizeof(more), "*", 1);
	ft_ok(ret < 0 && strstr(zk_said(), "no answer from ZooKeeper"),
	      "registration_fails_with_a_clear_error");
	ft_ok(ft_now_ns() - start <
		      (4 * zk_hasty_ms() + fx_ms(4000)) * UINT64_C(1000000),
	      "open_and_registration_fail_by_their_deadlines");
}

void zk_outages(struct zk_rig *rig)
{
	struct zk_new_target t = { rig, "target" };
	struct fx_peer target, second;
	struct zk_mover m;
	segment_id_t seg;
	bool good;

	if (!ft_ok(zk_target(rig, &target, "target"), "a_target_publishes"))
		return;
	seg = zk_open(rig, "target");
	if (!ft_ok(seg >= 0 && zk_mover_start(&m, rig, seg, &target, ZK_MEM),
		   "a_segment_is_found_and_written"))
		return;
	good = zk_mover_more(&m, OUTAGE_MOVES);
	zk_mover_catch(&m);
	ft_zk_kill(&rig->zk, 0);
	good = good && zk_mover_more(&m, OUTAGE_MOVES);
	zk_calls_meanwhile(rig, seg);
	good = good && ft_zk_restart(&rig->zk, 0) &&
	       ft_wait_until(zk_serves_again, &t, FX_LONG_MS) &&
	       zk_mover_more(&m, OUTAGE_MOVES);
	good = zk_mover_stop(&m) && good;
	ft_ok(good, "transfers_go_on_while_the_server_is_killed_and_back");
	ft_ok(zk_target_for(&second, "second", ZK_LONG_SESSION_MS) &&
		      zk_open_until(rig, "second", true, FX_LONG_MS) &&
		      zk_move(rig, zk_open(rig, "second"), &second),
	      "new_segment_is_found_after_the_outage");
	fx_peer_stop(&second);
	/* This must happen long before the session of the process would
	 * expire. */
	ft_ok(zk_open_until(rig, "second", false, ZK_LONG_SESSION_MS / 2),
	      "segment_of_an_ended_process_is_gone");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
}

void zk_leader_killed(struct zk_rig *rig)
{
	struct zk_new_target t = { rig, "second" };
	struct fx_peer target, second;
	struct zk_mover m;
	segment_id_t seg;
	int leader;
	bool good;

	if (!ft_ok(zk_target(rig, &target, "target") &&
		   zk_target(rig, &second, "second"),
		   "targets_publish_on_an_ensemble"))
		return;
	seg = openSegment(rig->engine, "target");
	if (!ft_ok(seg >= 0 && zk_mover_start(&m, rig, seg, &target, ZK_MEM),
		   "a_segment_is_written"))
		return;
	good = zk_mover_more(&m, OUTAGE_MOVES);
	leader = ft_zk_leader(&rig->zk);
	ft_ok(leader >= 0, "the_ensemble_has_a_leader");
	zk_mover_catch(&m);
	ft_zk_kill(&rig->zk, leader);
	good = good && zk_mover_more(&m, OUTAGE_MOVES) &&
	       ft_wait_until(zk_serves_again, &t, FX_LONG_MS) &&
	       zk_mover_more(&m, OUTAGE_MOVES);
	good = zk_mover_stop(&m) && good;
	ft_ok(good, "transfers_go_on_while_the_leader_is_killed");
	ft_ok(zk_open_until(rig, "second", true, FX_LONG_MS) &&
	      zk_move(rig, openSegment(rig->engine, "second"), &second),
	      "segments_are_found_with_the_next_leader");
	ft_ok(!fx_ask(&second, "unreg 0") &&
		      !fx_ask(&second, "reg 0 %llu 1",
			      (unsigned long long)ZK_MEM),
	      "segments_are_published_with_the_next_leader");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&second);
	fx_peer_stop(&target);
}
