/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_zookeeper.h"

/*
 * Tests of a stopped ZooKeeper server. The connection to it remains open, but
 * it does not reply. Every call that needs the server must wait until its
 * deadline. Transfers must not be delayed, neither before the ZooKeeper client
 * notices the loss nor after it.
 */

#define STOPPED_BLOCK 65536
/* number of writes that must finish during a call that waits for the server */
#define STOPPED_MOVES 20
/* longer than the time after a registration in which the engine only notes
 * further registrations, and publishes them later, in ms */
#define STOPPED_REST_MS 1000

/* The measurement of one call. */
struct stopped_call {
	struct zk_mover *mover;
	uint64_t from;		/* time at which the call began */
	uint32_t moves;		/* number of writes that had finished when the
				 * call began */
};

/* Returns the time limit for a call that waits for the server, in ms. The call
 * may have to wait for another such call first. */
static unsigned int stopped_limit_ms(void)
{
	return 2 * zk_hasty_ms() + fx_ms(2000);
}

static struct stopped_call stopped_begin(struct zk_mover *m)
{
	struct stopped_call c = {
		.mover = m, .from = ft_now_ns(),
		.moves = zk_mover_moves(m),
	};

	return c;
}

/* Checks that the call ended within `limit_ms`. If it took long, checks also
 * that STOPPED_MOVES writes finished meanwhile. */
static void stopped_end(const struct stopped_call *c, const char *what,
			unsigned int limit_ms)
{
	uint32_t moves = zk_mover_moves(c->mover) - c->moves;
	unsigned int ms = (unsigned int)((ft_now_ns() - c->from) / 1000000);

	ft_diag("%s took %u ms; %u writes completed meanwhile", what, ms,
		moves);
	ft_ok(ms <= limit_ms, "%s_ends_in_time", what);
	ft_ok(ms < zk_hasty_ms() / 2 || moves >= STOPPED_MOVES,
	      "transfers_go_on_beside_%s", what);
}

/* Checks that calls which need no server return in less than half of
 * zk_hasty_ms(). */
static void stopped_at_once(struct zk_mover *m)
{
	struct stopped_call c = stopped_begin(m);
	static char own[STOPPED_BLOCK];
	bool good = true;

	for (int i = 0; good && i < 100; i++)
		good = openSegment(m->rig->engine, "target") == m->seg &&
		       !closeSegment(m->rig->engine, m->seg);
	ft_ok(good, "a_cached_segment_is_opened");
	stopped_end(&c, "opening_what_is_open_100_times", zk_hasty_ms() / 2);
	c = stopped_begin(m);
	ft_ok(!registerLocalMemory(m->rig->engine, own, sizeof(own), "*", 0) &&
	      !unregisterLocalMemory(m->rig->engine, own),
	      "memory_that_is_not_published_comes_and_goes");
	stopped_end(&c, "registering_for_own_use", zk_hasty_ms() / 2);
}

static void stopped_calls(struct zk_mover *m, void *published)
{
	static char more[STOPPED_BLOCK];
	struct stopped_call c = stopped_begin(m);

	ft_ok(registerLocalMemory(m->rig->engine, more, sizeof(more), "*", 1) <
			      0 &&
		      strstr(zk_said(), "no answer from ZooKeeper"),
	      "publication_says_that_zookeeper_does_not_answer");
	stopped_end(&c, "registering", stopped_limit_ms());
	c = stopped_begin(m);
	unregisterLocalMemory(m->rig->engine, published);
	stopped_end(&c, "unregistering", stopped_limit_ms());
	c = stopped_begin(m);
	ft_ok(openSegment(m->rig->engine, "unheard-of") < 0 &&
		      strstr(zk_said(), "no answer from ZooKeeper"),
	      "look_up_says_that_zookeeper_does_not_answer");
	stopped_end(&c, "looking_a_name_up", stopped_limit_ms());
}

/* Resumes the server. Checks that the memory which was unregistered while the
 * server was stopped is no longer published. */
static void stopped_resumed(struct zk_rig *rig, void *published)
{
	segment_id_t seg;

	ft_zk_resume(&rig->zk, 0);
	ft_ok(ft_zk_wait(&rig->zk, 0) &&
		      zk_open_until(rig, "target", true, FX_LONG_MS),
	      "resumed_server_serves");
	ft_ok(unregisterLocalMemory(rig->engine, published) != 0,
	      "memory_unregistered_during_the_stop_is_unregistered");
	ft_ok(zk_publish(rig, published, STOPPED_BLOCK),
	      "unregistered_memory_is_published_again");
	seg = openSegment(rig->engine, "initiator");
	ft_ok(seg == LOCAL_SEGMENT, "the_own_name_is_ours_still");
	unregisterLocalMemory(rig->engine, published);
}

void zk_stopped(struct zk_rig *rig)
{
	static char published[STOPPED_BLOCK];
	struct zk_mover m;
	struct fx_peer target;
	segment_id_t seg;
	bool good;

	if (!ft_ok(zk_target(rig, &target, "target"), "a_target_publishes"))
		return;
	seg = zk_open(rig, "target");
	if (!ft_ok(seg >= 0 && zk_move(rig, seg, &target) &&
		   zk_publish(rig, published, sizeof(published)) &&
		   zk_mover_start(&m, rig, seg, &target, STOPPED_BLOCK),
		   "a_segment_is_found_and_written"))
		return;
	/* Wait: the engine publishes a registration later if it follows another
	 * one too soon, and the call would then not wait for the stopped
	 * server. */
	usleep(fx_ms(STOPPED_REST_MS) * 1000);
	ft_zk_pause(&rig->zk, 0);
	/* The segment is open, so opening it again needs no server. */
	ft_ok(openSegment(rig->engine, "target") == seg &&
		      !closeSegment(rig->engine, seg),
	      "open_segment_is_opened_again_without_the_server");
	stopped_at_once(&m);
	stopped_calls(&m, published);
	stopped_at_once(&m);
	good = zk_mover_stop(&m);
	ft_ok(good && m.longest_ns < zk_hasty_ms() * UINT64_C(750000),
	      "transfers_do_not_wait_for_the_server");
	ft_ok(zk_move(rig, seg, &target),
	      "bytes_written_during_the_stop_arrive");
	stopped_resumed(rig, published);
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
}
