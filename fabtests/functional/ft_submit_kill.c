/* SPDX-License-Identifier: BSD-2-Clause */

/* Law 13 from outside: the target is killed or stopped, a rail's connections
 * are lost; the number it counted and what was reported agree. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fabtests/functional/ft_submit.h"

#define KILL_DEPTH 16

struct kill_run {
	struct fx_count count;
	struct fx_counted got;
	pthread_t thread;
	uint64_t *number;	/* at the target */
	uint64_t goal;
};

static void *kill_main(void *arg)
{
	struct kill_run *run = arg;

	fx_count_run(&run->count, &run->got);
	return NULL;
}

static bool kill_counted(void *arg)
{
	struct kill_run *run = arg;

	return __atomic_load_n(run->number, __ATOMIC_SEQ_CST) >= run->goal;
}

/* Counts on target; returns when it is under way. */
static bool kill_start(struct submit_rig *rig, struct fx_peer *target,
		       segment_id_t seg, struct kill_run *run)
{
	memset(run, 0, sizeof(*run));
	run->count.engine = rig->engine;
	run->count.seg = seg;
	run->count.addr = target->mem.addr;
	run->count.width = 8;
	run->count.threads = 1;
	run->count.rounds = 1000000;
	run->count.depth = KILL_DEPTH;
	run->count.results = (void *)rig->mem.p;
	run->number = (void *)target->mem.p;
	run->goal = 3 * KILL_DEPTH;
	return !pthread_create(&run->thread, NULL, kill_main, run) &&
	       ft_wait_until(kill_counted, run, FX_LONG_MS);
}

static void kill_stop(struct kill_run *run)
{
	__atomic_store_n(&run->count.stop, true, __ATOMIC_RELAXED);
	pthread_join(run->thread, NULL);
}

/* Each that COMPLETED counted; each that counted COMPLETED or is unknown. */
static bool kill_agrees(const struct kill_run *run)
{
	uint64_t number = *run->number;
	bool good = number >= run->got.completed &&
		    number <= run->got.completed + run->got.unknown &&
		    !run->got.other;

	ft_diag("%llu counted; %u completed, %u unknown, %u failed, %u other",
		(unsigned long long)number, run->got.completed,
		run->got.unknown, run->got.failed, run->got.other);
	return good;
}

static void kill_target(struct submit_rig *rig)
{
	struct fx_peer target;
	struct kill_run run;
	segment_id_t seg;
	bool good;

	if (!ft_ok(fx_target_start(&target, FX_MIB), "another_target_starts"))
		return;
	memset(target.mem.p, 0, 64);
	seg = openSegment(rig->engine, target.name);
	good = kill_start(rig, &target, seg, &run);
	fx_peer_kill(&target);
	kill_stop(&run);
	ft_ok(good && kill_agrees(&run) && run.got.completed,
	      "law13_killed_target_each_counted_once_or_unknown_%s", rig->way);
	closeSegment(rig->engine, seg);
	fx_peer_drop(&target);
}

/* The target takes the number's memory back while it is counted on: it stands
 * still from the moment that the call has returned. */
void submit_unregister(struct submit_rig *rig)
{
	struct timespec pause = { .tv_nsec = 100000000 };
	struct fx_peer target;
	struct kill_run run;
	segment_id_t seg;
	uint64_t then;
	bool good;

	if (!ft_ok(fx_target_start(&target, FX_MIB), "another_target_starts"))
		return;
	memset(target.mem.p, 0, 64);
	seg = openSegment(rig->engine, target.name);
	good = kill_start(rig, &target, seg, &run) &&
	       !fx_ask(&target, "unreg 0");
	then = __atomic_load_n(run.number, __ATOMIC_SEQ_CST);
	/* time that passes is what is tested */
	nanosleep(&pause, NULL);
	kill_stop(&run);
	good = good && *run.number == then;
	ft_ok(kill_agrees(&run) && good && run.got.failed &&
	      !run.got.unknown && then == run.got.completed,
	      "law13_unregistered_memory_stands_still_%s", rig->way);
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, seg);
}

/* Stopped for longer than messages are waited for: they are sent again. */
static void stop_target(struct submit_rig *rig)
{
	struct timespec pause = { .tv_nsec = 300000000 };
	struct fx_peer target;
	struct kill_run run;
	segment_id_t seg;
	bool good;

	if (!ft_ok(fx_target_start(&target, FX_MIB), "another_target_starts"))
		return;
	memset(target.mem.p, 0, 64);
	seg = openSegment(rig->engine, target.name);
	good = kill_start(rig, &target, seg, &run);
	for (int i = 0; good && i < 3; i++) {
		good = fx_peer_pause(&target);
		/* time that passes is what is tested */
		nanosleep(&pause, NULL);
		fx_peer_resume(&target);
		run.goal = *run.number + 3 * KILL_DEPTH;
		good = good && ft_wait_until(kill_counted, &run, FX_LONG_MS);
	}
	kill_stop(&run);
	good = kill_agrees(&run) && good;
	ft_ok(good && !run.got.failed && !run.got.unknown &&
	      *run.number == run.got.completed,
	      "law13_sent_again_counted_once_%s", rig->way);
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, seg);
}

/* A loaded machine may be slower than the engine is patient. *tries
 * counts on. */
static bool stop_submit(struct submit_rig *rig, const struct te_request *req,
			unsigned int *tries)
{
	int status;

	for (int i = 0; i < 10; i++) {
		++*tries;
		status = fx_submit(rig->engine, req, NULL);
		if (status != STATUS_TIMEOUT)
			return status == STATUS_COMPLETED;
	}
	return false;
}

/* Stopped for good: unknown and unfenced, in bounded time. */
static void stop_for_good(struct submit_rig *rig)
{
	struct te_local local = { rig->mem.p, 8 };
	struct te_remote remote = { 0, 8 };
	struct te_request req = {
		.opcode = TE_ATOMIC_FETCH_ADD, .local_count = 1,
		.remote_count = 1, .local = &local, .remote = &remote,
		.operand = 1,
	};
	struct te_error err = { 0 };
	struct fx_peer target;
	unsigned int tries = 1;		/* the one that ends unknown */
	bool good;

	if (!ft_ok(fx_target_start(&target, FX_MIB), "another_target_starts"))
		return;
	memset(target.mem.p, 0, 64);
	req.target_id = openSegment(rig->engine, target.name);
	remote.addr = target.mem.addr;
	good = stop_submit(rig, &req, &tries) && fx_peer_pause(&target) &&
	       fx_submit(rig->engine, &req, &err) == STATUS_TIMEOUT;
	ft_ok(good && err.flags == (TE_ERROR_UNKNOWN | TE_ERROR_UNFENCED) &&
	      strstr(err.text, "unknown") && *err.provider,
	      "law13_stopped_target_outcome_unknown_%s", rig->way);
	fx_peer_resume(&target);
	good = stop_submit(rig, &req, &tries);
	ft_ok(good && *(uint64_t *)(void *)target.mem.p ==
		      *(uint64_t *)(void *)rig->mem.p + 1 &&
	      *(uint64_t *)(void *)target.mem.p <= tries,
	      "law13_it_goes_on_and_nothing_counts_twice_%s", rig->way);
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, req.target_id);
}

/* What has to wait for a time limit, by an engine with a short one. */
static void kill_hasty(struct submit_rig *rig)
{
	transfer_engine_t patient = rig->engine;

	rig->engine = fx_engine_hasty("tcp");
	if (ft_ok(rig->engine && fx_register(rig->engine, &rig->mem),
		  "a_hasty_engine_%s", rig->way)) {
		kill_target(rig);
		stop_for_good(rig);
	}
	destroyTransferEngine(rig->engine);
	rig->engine = patient;
}

void submit_kill(struct submit_rig *rig)
{
	kill_hasty(rig);
	stop_target(rig);
}
