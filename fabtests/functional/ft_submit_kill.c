/* SPDX-License-Identifier: BSD-2-Clause */

/* Law 13 as the application sees it. While atomics are in progress, the target
 * is killed or stopped. The number at the target must agree with the reported
 * statuses. */

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
	uint64_t *number;	/* the number to which the atomics add, in the
				 * target's memory */
	uint64_t goal;		/* value of the number that kill_counted waits
				 * for */
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

/* Starts a thread that adds 1 to a number of the target repeatedly. Returns
 * true when some additions have been executed. */
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

/* Returns true if each COMPLETED addition was executed, and no others except
 * those that are reported with an unknown outcome. */
static bool kill_agrees(const struct kill_run *run)
{
	uint64_t number = *run->number;
	bool good = number >= run->got.completed &&
		    number <= run->got.completed + run->got.unknown &&
		    !run->got.other;

	ft_diag("counter %llu; atomics: %u completed, %u unknown, %u failed, "
		"%u other",
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

/* The target unregisters the memory of the number while additions are in
 * progress. The number must not change after unregisterLocalMemory has
 * returned. */
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
	/* Late additions would arrive during this time. */
	nanosleep(&pause, NULL);
	kill_stop(&run);
	good = good && *run.number == then;
	ft_ok(kill_agrees(&run) && good && run.got.failed &&
	      !run.got.unknown && then == run.got.completed,
	      "law13_unregistered_memory_stands_still_%s", rig->way);
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, seg);
}

/* Stops the target for longer than the interval after which the initiator
 * repeats messages. Each addition must be executed once. */
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
		/* The initiator repeats its messages during this time. */
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

/* Submits the request up to ten times, until it ends with another status than
 * TIMEOUT. (A loaded machine may be slower than the timeout of the engine.)
 * Returns true if it completes. Adds the number of attempts to *tries. */
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

/* Stops the target for longer than the timeout. The atomic must end in limited
 * time, with an unknown outcome and unfenced. */
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
	/* number of additions that may have been executed; starts with the one
	 * whose outcome is unknown */
	unsigned int tries = 1;
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
	ft_ok(good &&
		      *(uint64_t *)(void *)target.mem.p ==
			      *(uint64_t *)(void *)rig->mem.p + 1 &&
		      *(uint64_t *)(void *)target.mem.p <= tries,
	      "law13_resumed_target_executes_no_atomic_twice_%s", rig->way);
	ft_ok(fx_peer_stop(&target), "target_ends_well");
	closeSegment(rig->engine, req.target_id);
}

/* --- a target that kernel copies reach too -------------------------------- */

/* Rig for a target on the same host that is killed, so that it sends no BYE.
 * The kernel tells the initiator that the process has ended. */
struct kill_near {
	transfer_engine_t engine;
	struct fx_peer target;
	struct te_local local;
	struct te_remote remote;
	struct te_request add;
	unsigned char blob[65536];	/* exported descriptor of the target */
	size_t size;			/* size of the blob in bytes */
};

static bool near_start(struct submit_rig *rig, struct kill_near *n)
{
	int size;

	memset(n, 0, sizeof(*n));
	n->engine = rig->engine;
	if (!fx_peer_start(&n->target, FX_MIB, rig->transport, NULL) ||
	    fx_ask(&n->target, "reg 0 %llu 1", FX_MIB))
		return ft_ok(false, "another_target_starts");
	size = fx_ask(&n->target, "export %llu", FX_MIB / 2);
	if (size > 0 && (size_t)size <= sizeof(n->blob))
		memcpy(n->blob, n->target.mem.p + FX_MIB / 2,
		       n->size = (size_t)size);
	memset(n->target.mem.p, 0, 64);
	n->local = (struct te_local){ rig->mem.p, 8 };
	n->remote = (struct te_remote){ n->target.mem.addr, 8 };
	n->add.opcode = TE_ATOMIC_FETCH_ADD;
	n->add.target_id = openSegment(n->engine, n->target.name);
	n->add.local_count = n->add.remote_count = 1;
	n->add.local = &n->local;
	n->add.remote = &n->remote;
	n->add.operand = 1;
	return ft_ok(n->size && n->add.target_id > 0,
		     "another_target_is_open_%s", rig->way);
}

static void near_stop(struct kill_near *n)
{
	closeSegment(n->engine, n->add.target_id);
	fx_peer_drop(&n->target);
}

static int near_import(struct kill_near *n)
{
	segment_id_t id;

	return te_segment_import(n->engine, n->blob, n->size, 0, &id);
}

static bool near_gone(void *arg)
{
	struct kill_near *n = arg;
	struct te_peer_stats s;

	return !te_peer_stats(n->engine, n->add.target_id, &s, sizeof(s)) &&
	       s.state == TE_PEER_GONE;
}

static bool near_write_fails(struct submit_rig *rig, struct kill_near *n)
{
	struct fx_job job = { .engine = n->engine, .seg = n->add.target_id,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = n->target.mem.addr, .len = 64 };
	bool good = !fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		    job.n[STATUS_FAILED] == 1;

	return fx_job_free(&job) && good;
}

/* Kills the target and checks what each call returns afterwards. `met` is true
 * if the rails have been connected to the target before. */
static void near_calls(struct submit_rig *rig, bool met)
{
	static char text[] = "x";
	struct notify_msg note = { text, text };
	uint64_t soon;
	const char *how = met ? "met" : "never_met";
	static struct kill_near n;
	struct te_error err = { 0 };

	if (!near_start(rig, &n))
		return;
	if (met)
		ft_ok(fx_submit(n.engine, &n.add, NULL) == STATUS_COMPLETED,
		      "a_process_lives_%s", rig->way);
	fx_peer_kill(&n.target);
	soon = ft_now_ns() + fx_soon_ms(5000) * 1000000ULL;
	ft_ok(near_import(&n) == -202, "blob_of_a_killed_target_is_202_%s_%s",
	      how, rig->way);
	ft_ok(fx_submit(n.engine, &n.add, &err) == STATUS_FAILED &&
	      err.code == -202 && !err.flags && ft_now_ns() < soon,
	      "an_atomic_fails_at_once_%s_%s", how, rig->way);
	ft_diag("error %d, flags %u: %s; %s", err.code, err.flags, err.text,
		err.hint);
	ft_ok(genNotifyInEngine(n.engine, (uint64_t)n.add.target_id, note) ==
		      -201, "a_notification_is_201_%s_%s", how, rig->way);
	ft_ok(near_write_fails(rig, &n) && near_gone(&n),
	      "a_write_fails_%s_%s", how, rig->way);
	near_stop(&n);
}

struct near_wait {
	struct submit_rig *rig;
	struct kill_near *near;
	struct fx_job job;
};

/* Returns true if the job has ended. Makes a write before, which fails because
 * the process has ended; the failure makes a worker notify the data plane. The
 * test calls this function repeatedly. */
static bool near_ended(void *arg)
{
	struct near_wait *w = arg;

	return near_write_fails(w->rig, w->near) && fx_job_poll(&w->job);
}

/* Submits an atomic to a stopped target and kills the target after `ms`.
 * Returns true if the atomic fails in time with the right error. Sets *unknown
 * to true if the atomic had been sent before the kill, so that its outcome is
 * unknown. */
static bool near_killed(struct submit_rig *rig, unsigned int ms, bool *unknown)
{
	struct timespec pause = { .tv_nsec = (long)ms * 1000000 };
	static struct kill_near n;
	struct near_wait w = { .rig = rig, .near = &n };
	struct te_error err = { 0 };
	bool good;

	if (!near_start(rig, &n))
		return false;
	good = fx_submit(n.engine, &n.add, NULL) == STATUS_COMPLETED &&
	       fx_peer_pause(&n.target);
	w.job.engine = n.engine;
	w.job.tasks = 1;
	w.job.id = allocateBatchID(n.engine, 1);
	good = good && !te_submit(n.engine, w.job.id, &n.add, sizeof(n.add), 1,
				  0) && !fx_job_poll(&w.job);
	nanosleep(&pause, NULL);
	fx_peer_kill(&n.target);
	good = ft_wait_until(near_ended, &w, fx_soon_ms(5000)) && good;
	te_task_error(n.engine, w.job.id, 0, &err, sizeof(err));
	*unknown = err.flags == TE_ERROR_UNKNOWN;
	good = good && w.job.n[STATUS_FAILED] == 1 && err.code == -202 &&
	       (*unknown || !err.flags);
	ft_diag("tasks: %s; error %d, flags %u: %s; %s", fx_job_text(&w.job),
		err.code, err.flags, err.text, err.hint);
	good = fx_job_wait(&w.job, FX_LONG_MS) && fx_job_free(&w.job) && good;
	near_stop(&n);
	return good;
}

/* Repeats near_killed with increasing times until the atomic was sent before
 * the kill. The progress thread sends it, and may be late on a loaded
 * machine. */
static void near_under_way(struct submit_rig *rig)
{
	bool good = true, unknown = false;
	unsigned int i;

	for (i = 0; i < 5 && good && !unknown; i++)
		good = near_killed(rig, i * 100, &unknown);
	ft_ok(good && unknown,
	      "law13_an_atomic_under_way_ends_with_its_target_%s", rig->way);
}

void submit_near(struct submit_rig *rig)
{
	near_calls(rig, false);
	near_calls(rig, true);
	near_under_way(rig);
}

/* Runs the tests that wait for MC_SLICE_TIMEOUT, with an engine that has a
 * short one. */
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
