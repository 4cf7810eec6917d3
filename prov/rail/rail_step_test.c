/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of data planes in a world (util/world.h) that the test provides. The
 * test sets the clock and calls the steps of the progress loops, so that there
 * is no progress thread. */

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fabric.h>
#include <string.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/world.h"

#define STEP_LOOPS   4
#define STEP_NS	     1000 /* simulated duration of a step, ns */
#define STEP_REAL_NS (60 * TEI_NS_PER_SEC)

static uint64_t step_time; /* atomic, because short-lived threads
			    * read the clock too */
static struct tei_loop *step_loops[STEP_LOOPS];
static bool step_inside; /* true while a step runs; no other step may be called
			  * then */

static uint64_t step_now(void)
{
	return __atomic_load_n(&step_time, __ATOMIC_RELAXED);
}

static void step_advance(uint64_t ns)
{
	__atomic_fetch_add(&step_time, ns, __ATOMIC_RELAXED);
}

/* Ends the loop's sleep without waiting, and fills in the result of the sleep.
 * from_ns: time at which the sleep began. */
static void step_wake(struct tei_loop *loop, uint64_t from_ns)
{
	struct tei_loop_sleep *s = &loop->sleep;
	int n = poll(s->fds + 1, s->nfds - 1, 0);

	s->nready = n > 0 ? (uint32_t)n : 0;
	s->woken = __atomic_exchange_n(&loop->wake_pending, false,
				       __ATOMIC_SEQ_CST);
	s->from_ns = from_ns;
	s->until_ns = step_now();
	s->sleep = false;
}

/* Calls the next step of a loop. from_ns: time at which the requested sleep, if
 * any, began. Returns false if the loop has ended. */
static bool step_once(struct tei_loop *loop, uint64_t from_ns)
{
	enum tei_loop_next next;

	if (loop->sleep.sleep)
		step_wake(loop, from_ns);
	step_inside = true;
	next = loop->step(loop->arg, &loop->sleep);
	step_inside = false;
	return next == TEI_LOOP_CONTINUE;
}

/* Advances the clock and calls one step of each loop. Inside a step, only
 * advances the clock. */
static void step_all(void)
{
	uint64_t from = step_now();
	uint32_t i;

	step_advance(STEP_NS);
	for (i = 0; i < STEP_LOOPS && !step_inside; i++)
		if (step_loops[i])
			step_once(step_loops[i], from);
}

static void step_sleep(uint64_t ns)
{
	(void)ns;
	step_all();
}

static void step_cond_wait(pthread_cond_t *cond, struct tei_mutex *l,
			   uint64_t timeout_ns) TEI_NO_TSA
{
	(void)cond;
	(void)timeout_ns;
	tei_mutex_unlock(l);
	step_all();
	tei_mutex_lock(l);
}

static int step_loop_start(struct tei_loop *loop)
{
	uint32_t i;

	for (i = 0; i < STEP_LOOPS && step_loops[i]; i++)
		;
	if (i == STEP_LOOPS)
		return EAGAIN;
	step_loops[i] = loop;
	__atomic_store_n(&loop->open, true, __ATOMIC_RELEASE);
	return 0;
}

static void step_loop_wake(struct tei_loop *loop)
{
	(void)loop;
}

static void step_loop_join(struct tei_loop *loop)
{
	uint32_t i;

	while (step_once(loop, step_now()))
		;
	for (i = 0; i < STEP_LOOPS; i++)
		if (step_loops[i] == loop)
			step_loops[i] = NULL;
}

static void step_loop_close(struct tei_loop *loop)
{
	__atomic_store_n(&loop->open, false, __ATOMIC_RELEASE);
}

static void step_world(struct tei_world *w)
{
	*w = tei_world_real;
	w->now_ns = step_now;
	w->now_about_ns = step_now;
	w->sleep_ns = step_sleep;
	w->relax = step_all;
	w->yield = step_all;
	w->cond_wait = step_cond_wait;
	w->loop_start = step_loop_start;
	w->loop_wake = step_loop_wake;
	w->loop_join = step_loop_join;
	w->loop_close = step_loop_close;
	step_time = 1000 * TEI_NS_PER_SEC;
	tei_world = w;
}

static void step_leave(void)
{
	tei_world = &tei_world_real;
}

/* --- many peers ---------------------------------------------------------- */

#define STEP_PEERS 300

/* Returns the number of peers on the attention list. */
static uint32_t step_attention(struct tei_rail_dp *dp)
{
	struct tei_rail_peer *p;
	uint32_t n = 0;

	rail_sched_enter(dp);
	tei_list_foreach (p, &dp->peers.attn, struct tei_rail_peer, attn_link)
		n++;
	rail_sched_leave(dp);
	return n;
}

static void test_many_due_peers_run_in_several_iterations(void)
{
	static struct tei_rail_peer *peer[STEP_PEERS];
	struct tei_rail_addr at = { .addr_format = FI_SOCKADDR_IN };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	struct tei_world w;
	struct test_plane p;
	struct tei_loop *loop;
	struct tei_err err;
	uint32_t i, left;

	step_world(&w);
	test_plane_init(&p);
	test_plane_open(&p, NULL);
	loop = &p.dp->thread.loop;
	at.len = sizeof(sin);
	memcpy(at.bytes, &sin, sizeof(sin));
	for (i = 0; i < STEP_PEERS; i++)
		CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(p.dp, "peer", 1000 + i,
							&at, 1, &err, &peer[i]),
				      0);
	rail_sched_enter(p.dp);
	for (i = 0; i < STEP_PEERS; i++)
		rail_peer_attend(peer[i]);
	rail_sched_leave(p.dp);
	step_once(loop, step_now());
	left = step_attention(p.dp);
	CU_ASSERT(left > 0 && left < STEP_PEERS);
	/* the thread polls the lanes and then runs the other peers, so it does
	 * not sleep */
	CU_ASSERT(!loop->sleep.sleep || !loop->sleep.ns);
	for (i = 0; i < STEP_PEERS && step_attention(p.dp); i++)
		step_once(loop, step_now());
	CU_ASSERT_EQUAL(step_attention(p.dp), 0);
	for (i = 0; i < STEP_PEERS; i++)
		tei_rail_peer_put(peer[i]);
	test_plane_close(&p);
	step_leave();
}

const struct tei_test_case rail_step_cases[] = {
	{ "many_due_peers_run_in_several_iterations",
	  test_many_due_peers_run_in_several_iterations },
	{ NULL, NULL },
};
