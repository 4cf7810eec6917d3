/* SPDX-License-Identifier: BSD-2-Clause */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_zookeeper.h"

/* Tests of the ownership of segment names: two processes that want the same
 * name, and owners that are killed, end normally, are stopped, or are
 * replaced. */

static void claimed_twice(struct zk_rig *rig)
{
	struct fx_peer first;
	segment_id_t seg;

	if (!ft_ok(zk_target(rig, &first, "name"), "one_process_has_a_name"))
		return;
	ft_ok(!createTransferEngine(rig->conn, "name", "127.0.0.1", 0, 0) &&
		      strstr(zk_said(), "is held by") &&
		      strstr(zk_said(), first.name),
	      "second_process_learns_the_owner_of_the_name");
	ft_diag("%s", zk_said());
	seg = openSegment(rig->engine, "name");
	ft_ok(seg >= 0 && zk_move(rig, seg, &first), "the_first_keeps_it");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&first);
}

/* Kills a target and waits until its name is gone. Returns true if that
 * happened when its session expired, and not much later. Sets *good to false if
 * a step fails. */
static bool killed_is_gone(struct zk_rig *rig, bool *good)
{
	unsigned int ms, slow;
	struct fx_peer target;
	uint64_t start;

	*good = zk_target(rig, &target, "mortal");
	if (!*good)
		return false;
	start = ft_now_ns();
	fx_peer_kill(&target);
	*good = zk_open_until(rig, "mortal", false, FX_LONG_MS);
	ms = (unsigned int)((ft_now_ns() - start) / 1000000);
	slow = (unsigned int)(rig->slowest_ns / 1000000);
	ft_diag("name gone %u ms after the kill; session timeout %d ms, "
		"slowest open %u ms",
		ms, ZK_SESSION_MS, slow);
	fx_peer_drop(&target);
	/* The servers check sessions every 100 ms. The remaining 700 ms allow
	 * for load on the machine. */
	return ms <= fx_ms(ZK_SESSION_MS + 800) + 4 * slow;
}

/* Checks that the name of a killed process is gone with its session. Tries four
 * times, because the machine or the server may be busy. */
static void killed_and_gone(struct zk_rig *rig)
{
	bool good = true, in_time = false;

	for (int i = 0; i < 4 && good && !in_time; i++)
		in_time = killed_is_gone(rig, &good);
	ft_ok(good && in_time,
	      "a_killed_process_segment_goes_with_its_session");
}

/* Ends a process with a signal that it handles. Its segment must disappear at
 * once, before its session would expire. */
static void ended_gracefully(struct zk_rig *rig)
{
	struct fx_peer target;

	if (!ft_ok(zk_target(rig, &target, "graceful") &&
		   !fx_ask(&target, "graceful"), "a_graceful_one_publishes"))
		return;
	kill(target.proc.pid, SIGTERM);
	ft_ok(ft_proc_wait(&target.proc, FX_LONG_MS) == 128 + SIGTERM &&
	      openSegmentNoCache(rig->engine, "graceful") == -1,
	      "law12_a_graceful_end_withdraws_the_segment_at_once");
	fx_peer_drop(&target);
}

struct zk_heir {
	struct zk_rig *rig;
	segment_id_t seg;
	struct fx_peer *peer;
};

/* Returns true if a write reaches the new owner of the name. The segment was
 * opened while the name belonged to the previous owner. */
static bool zk_heir_reached(void *arg)
{
	const struct zk_heir *h = arg;

	return zk_move(h->rig, h->seg, h->peer);
}

static void killed_and_inherited(struct zk_rig *rig)
{
	struct fx_peer first, heir;
	struct zk_heir h = { rig, -1, &heir };
	uint64_t start;

	if (!ft_ok(zk_target(rig, &first, "crown"), "owner_of_a_name_starts"))
		return;
	h.seg = openSegment(rig->engine, "crown");
	ft_ok(h.seg >= 0 && zk_move(rig, h.seg, &first),
	      "owner_of_a_name_is_reached");
	fx_peer_kill(&first);
	start = ft_now_ns();
	ft_ok(zk_target(rig, &heir, "crown"),
	      "successor_of_a_killed_owner_starts_at_once");
	ft_diag("the successor has the name %u ms after the kill",
		(unsigned int)((ft_now_ns() - start) / 1000000));
	ft_ok(ft_wait_until(zk_heir_reached, &h, FX_LONG_MS),
	      "successor_is_reached_through_the_open_segment");
	ft_diag("the successor is reached %u ms after the kill",
		(unsigned int)((ft_now_ns() - start) / 1000000));
	/* Wait until the first owner's session has certainly expired. */
	ft_ok(!zk_open_until(rig, "crown", false, 2 * ZK_SESSION_MS) &&
	      zk_move(rig, h.seg, &heir),
	      "the_first_ones_session_takes_nothing_with_it");
	closeSegment(rig->engine, h.seg);
	fx_peer_drop(&first);
	fx_peer_stop(&heir);
}

static bool zk_sleeper_is_gone(void *arg)
{
	const struct zk_rig *own = arg;
	segment_id_t seg = openSegmentNoCache(own->engine, "sleeper");

	if (seg >= 0)
		closeSegment(own->engine, seg);
	return seg < 0 && strstr(zk_said(), "is not in ZooKeeper");
}

/*
 * Returns true if the name of a stopped process disappears in time. As long as
 * the name exists, opening it waits for the process until
 * MC_HANDSHAKE_CONNECT_TIMEOUT, which is short here.
 */
static bool zk_sleeper_expires(const struct zk_rig *rig)
{
	struct zk_rig own;
	bool gone;

	gone = zk_rig_join(&own, rig, "observer") &&
	       ft_wait_until(zk_sleeper_is_gone, &own,
			     fx_ms(4 * ZK_SESSION_MS + 4000));
	zk_rig_leave(&own);
	return gone;
}

static void stopped_past_its_session(struct zk_rig *rig)
{
	struct fx_peer sleeper;
	segment_id_t seg;

	if (!ft_ok(zk_target(rig, &sleeper, "sleeper"),
		   "owner_of_another_name_starts"))
		return;
	seg = openSegment(rig->engine, "sleeper");
	ft_ok(fx_peer_pause(&sleeper) && zk_sleeper_expires(rig),
	      "session_of_a_stopped_owner_expires");
	fx_peer_resume(&sleeper);
	ft_ok(zk_open_until(rig, "sleeper", true, FX_LONG_MS),
	      "resumed_owner_publishes_again");
	ft_ok(zk_move(rig, seg, &sleeper), "resumed_owner_is_reached");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&sleeper);
}

/*
 * Returns true if a change of the registered memory fails because the process
 * has lost its name. The change is repeated: for up to 250 ms after a
 * registration the node refers to the control channel, and a change returns 0
 * without a request to the store.
 */
static bool zk_refused_for_loss(struct fx_peer *p)
{
	uint64_t end = ft_now_ns() + fx_ms(FX_LONG_MS) * UINT64_C(1000000);
	int ret;

	do {
		ret = fx_ask(p, "unreg 0");
		if (!ret)
			ret = fx_ask(p, "reg 0 4096 1");
	} while (!ret && ft_now_ns() < end);
	return ret == -200;
}

static void stopped_and_replaced(struct zk_rig *rig)
{
	struct fx_peer first, second;
	uint64_t start;

	if (!ft_ok(zk_target(rig, &first, "post"),
		   "owner_of_a_third_name_starts"))
		return;
	ft_ok(fx_peer_pause(&first), "owner_of_the_third_name_is_stopped");
	start = ft_now_ns();
	ft_ok(zk_target(rig, &second, "post"),
	      "owner_that_does_not_answer_is_replaced");
	ft_diag("owner replaced after %u ms, including the successor's start",
		(unsigned int)((ft_now_ns() - start) / 1000000));
	fx_peer_resume(&first);
	ft_ok(zk_refused_for_loss(&first) && fx_ask(&first, "said") == -200 &&
		      strstr(first.text, "was lost to") &&
		      strstr(first.text, second.name),
	      "replaced_owner_is_notified");
	ft_diag("%s", first.text);
	ft_ok(zk_move(rig, openSegmentNoCache(rig->engine, "post"), &second),
	      "the_successor_keeps_it");
	fx_peer_drop(&first);
	fx_peer_stop(&second);
}

/* Starts another initiator *own, with MC_SLICE_TIMEOUT=3 and a fence timeout of
 * 3 s. Returns true on success. */
static bool zk_impatient(const struct zk_rig *rig, struct zk_rig *own)
{
	char *patient = strdup(getenv("MC_SLICE_TIMEOUT"));

	memset(own, 0, sizeof(*own));
	own->mem = fx_buf_map(ZK_MEM, -1);
	setenv("MC_SLICE_TIMEOUT", "3", 1);
	setenv("MOONRAIL_FENCE_MS", "3000", 1);
	own->engine = createTransferEngine(rig->conn, "impatient", "127.0.0.1",
					   0, 0);
	setenv("MC_SLICE_TIMEOUT", patient, 1);
	unsetenv("MOONRAIL_FENCE_MS");
	free(patient);
	return own->engine && installTransport(own->engine, "tcp", NULL) &&
	       fx_register(own->engine, &own->mem);
}

/*
 * Replaces a stopped owner while writes to it are posted. Its sockets still
 * hold bytes, which land when it is resumed. No byte of a FAILED task may land
 * then; bytes of unfenced tasks may.
 */
static void zk_deposed_amid_writes(struct zk_rig *own, struct fx_peer *first,
				   segment_id_t seg)
{
	struct fx_job job = { .engine = own->engine, .seg = seg,
			      .op = OPCODE_WRITE, .local = own->mem.p,
			      .remote = first->mem.addr, .len = ZK_MEM,
			      .block = 64 << 10 };
	unsigned char *before = malloc(ZK_MEM);
	struct fx_peer second;

	fx_buf_fill(&own->mem, 0, ZK_MEM, ++own->sequence);
	if (!ft_ok(before && fx_peer_pause(first) && !fx_job_start(&job),
		   "write_to_a_stopped_owner_is_submitted"))
		goto out;
	ft_ok(zk_target(own, &second, "throne"),
	      "stopped_owner_is_replaced_during_the_write");
	ft_ok(fx_job_wait(&job, FX_LONG_MS) && fx_job_stopped(&job) &&
		      job.n[STATUS_TIMEOUT],
	      "law2_write_to_a_replaced_owner_is_unfenced");
	ft_diag("%s", fx_job_text(&job));
	memcpy(before, first->mem.p, ZK_MEM);
	fx_peer_resume(first);
	ft_ok(zk_refused_for_loss(first),
	      "replaced_owner_is_notified_when_it_is_resumed");
	ft_ok(fx_job_failed_final(&job, &first->mem, before),
	      "law2_failed_write_does_not_land_at_a_replaced_owner");
	ft_diag("%s", memcmp(before, first->mem.p, ZK_MEM) ?
			      "unfenced writes landed" :
			      "no unfenced write landed");
	fx_job_free(&job);
	fx_peer_stop(&second);
out:
	free(before);
}

static void stopped_and_replaced_amid_writes(struct zk_rig *rig)
{
	struct fx_peer first;
	struct zk_rig own;
	segment_id_t seg;

	if (!ft_ok(zk_impatient(rig, &own) && zk_target(&own, &first, "throne"),
		   "owner_for_the_write_starts"))
		return;
	seg = openSegment(own.engine, "throne");
	ft_ok(seg >= 0 && zk_move(&own, seg, &first),
	      "owner_for_the_write_is_reached");
	zk_deposed_amid_writes(&own, &first, seg);
	closeSegment(own.engine, seg);
	destroyTransferEngine(own.engine);
	fx_buf_unmap(&own.mem);
	fx_peer_drop(&first);
}

void zk_names(struct zk_rig *rig)
{
	claimed_twice(rig);
	killed_and_gone(rig);
	ended_gracefully(rig);
	killed_and_inherited(rig);
	stopped_past_its_session(rig);
	stopped_and_replaced(rig);
	stopped_and_replaced_amid_writes(rig);
}
