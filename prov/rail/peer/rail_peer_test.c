/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the end of a peer. The process behind a peer that is gone may still
 * be alive and have posted bytes in its sockets. To simulate this, the test
 * stops the progress thread of the target. */

#include <errno.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_failure.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_progress.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"


#define PEER_OTHER	UINT64_C(0x07e4)	/* incarnation of a process that
						 * is not the target */
#define PEER_WAIT_NS	(20 * TEI_NS_PER_SEC)
#define PEER_LONG_NS	(3600 * TEI_NS_PER_SEC)	/* a time that is longer than
						 * any time limit */

/* A rig with one write that is posted to a target which does not read its
 * sockets. */
struct peer_rig {
	struct test_pair pair;
	struct test_task task;
};

static void peer_turns(struct peer_rig *rig, uint64_t ahead)
{
	struct timespec nap = { .tv_nsec = 1000000 };
	uint64_t end = tei_now_ns() + PEER_WAIT_NS;

	while (!test_ends(&rig->task) && tei_now_ns() < end) {
		test_pair_turn(&rig->pair, tei_now_ns() + ahead);
		nanosleep(&nap, NULL);
	}
	CU_ASSERT_EQUAL_FATAL(test_ends(&rig->task), 1);
}

static void peer_begin(struct peer_rig *rig)
{
	struct test_pair *pair = &rig->pair;

	test_pair_open(pair);
	test_plane_still(&pair->to);
	test_fill(pair->src, sizeof(pair->src), 7);
	memset(pair->dst, 0, sizeof(pair->dst));
	test_task_init(&rig->task, pair->peer, false, pair->src, pair->dst,
		       sizeof(pair->src));
	CU_ASSERT_EQUAL_FATAL(test_submit(pair->from.dp, &rig->task, 1), 0);
	CU_ASSERT_EQUAL_FATAL(pair->peer->tasks.posted, 1);
	CU_ASSERT_EQUAL(test_ends(&rig->task), 0);
}

static void peer_end(struct peer_rig *rig)
{
	test_pair_close(&rig->pair);
}

/* Starts the target's progress thread again. Returns true if the bytes in the
 * target's sockets are then written to memory. */
static bool peer_lands(struct peer_rig *rig)
{
	struct test_pair *pair = &rig->pair;
	struct rail *rail = rail_at(pair->to.dp, 0);
	uint64_t end = tei_now_ns() + PEER_WAIT_NS;

	while (memcmp(pair->src, pair->dst, sizeof(pair->src)) &&
	       tei_now_ns() < end)
		rail_lane_run(&rail->rx_lane);
	return !memcmp(pair->src, pair->dst, sizeof(pair->src));
}

/* Tests that the task ends as unfenced, and that its bytes still arrive in the
 * target's memory afterwards. */
static void peer_ends_unfenced(struct peer_rig *rig)
{
	struct test_pair *pair = &rig->pair;

	peer_turns(rig, 0);
	CU_ASSERT_EQUAL(rig->task.end, TEI_RAIL_END_UNFENCED);
	CU_ASSERT_NOT_EQUAL(memcmp(pair->src, pair->dst, sizeof(pair->src)), 0);
	CU_ASSERT(peer_lands(rig));
}

static void peer_replace(struct peer_rig *rig)
{
	tei_rail_peer_resolved(rig->pair.peer, PEER_OTHER,
			       &rig->pair.peer->remotes[0].addr, 1);
	CU_ASSERT(tei_rail_peer_gone(rig->pair.peer));
}

static void test_law2_a_peer_that_lost_its_name_may_still_be_written(void)
{
	struct peer_rig rig;
	struct test_task later;

	peer_begin(&rig);
	peer_replace(&rig);
	/* a later task for the peer fails at once, because nothing is posted to
	 * the peer any longer */
	test_task_init(&later, rig.pair.peer, false, rig.pair.src, rig.pair.dst,
		       1);
	CU_ASSERT_EQUAL(test_submit(rig.pair.from.dp, &later, 1), 0);
	CU_ASSERT_EQUAL(test_ends(&later), 1);
	CU_ASSERT_EQUAL(later.end, TEI_RAIL_END_FAILED);
	peer_ends_unfenced(&rig);
	CU_ASSERT_EQUAL(rig.task.code, TEI_ERR_CONTEXT);
	peer_end(&rig);
}

static void test_law2_a_peer_that_lost_its_name_and_continues_is_fenced(void)
{
	struct peer_rig rig;
	struct tei_err err;

	peer_begin(&rig);
	peer_replace(&rig);
	__atomic_store_n(&rig.pair.to.dp->thread.stop, false, __ATOMIC_RELEASE);
	CU_ASSERT_EQUAL_FATAL(rail_progress_start(rig.pair.to.dp, &err), 0);
	peer_turns(&rig, 0);
	CU_ASSERT_EQUAL(rig.task.end, TEI_RAIL_END_FAILED);
	peer_end(&rig);
}

static void test_law2_a_peer_that_refuses_us_may_still_be_written(void)
{
	struct rail_done done;
	struct peer_rig rig;

	peer_begin(&rig);
	rail_done_init(&done);
	rail_sched_enter(rig.pair.from.dp);
	rail_peer_refused(rig.pair.peer,
			  "the queried process already has MOONRAIL_MAX_PEERS peers", &done);
	rail_sched_leave(rig.pair.from.dp);
	rail_done_run(rig.pair.from.dp, &done);
	peer_ends_unfenced(&rig);
	CU_ASSERT_EQUAL(rig.task.code, TEI_ERR_REJECTED);
	peer_end(&rig);
}

/* Tests a peer that has no user any longer but still has posted slices. */
static void test_law2_a_peer_silent_amid_writes_is_not_forgotten(void)
{
	struct tei_rail_peer *p;
	struct peer_rig rig;
	uint64_t late;

	peer_begin(&rig);
	p = rig.pair.peer;
	tei_rail_peer_put(p);
	late = tei_now_ns() + rig.pair.from.dp->times.probe_ns;
	rail_sched_enter(p->dp);
	p->life.probing = true; /* the peer was pinged before */
	p->life.probe_ns = tei_now_ns();
	rail_sched_leave(p->dp);
	rail_peer_run(p, late);
	CU_ASSERT_FALSE(tei_rail_peer_gone(p));
	/* the task ends because of MC_SLICE_TIMEOUT */
	peer_turns(&rig, PEER_LONG_NS);
	CU_ASSERT_EQUAL(rig.task.end, TEI_RAIL_END_UNFENCED);
	CU_ASSERT_EQUAL(rig.task.code, TEI_ERR_ENDPOINT);
	/* a peer of which a fence was abandoned is forgotten only after a long
	 * time */
	CU_ASSERT_EQUAL(p->fence.unfenced, 1);
	p->life.probing = true;
	p->life.probe_ns = late;
	p->hello.again = true; /* as if the peer had not answered */
	late += 20 * rig.pair.from.dp->times.probe_ns;
	rail_peer_run(p, late);
	CU_ASSERT_FALSE(tei_rail_peer_gone(p));
	/* the interval between hellos has become longer */
	CU_ASSERT(p->hello.next_ns > late + 4 * TEI_NS_PER_SEC);
	rail_peer_run(p, late + 2 * PEER_LONG_NS);
	CU_ASSERT(tei_rail_peer_gone(p));
	tei_rail_peer_hold(p);
	peer_end(&rig);
}

static void test_a_peer_in_use_is_not_asked_for_a_sign_of_life(void)
{
	struct tei_rail_peer *p;
	struct peer_rig rig;

	peer_begin(&rig);
	p = rig.pair.peer;
	tei_rail_peer_put(p);
	rail_peer_probe(p->dp, tei_now_ns() + PEER_LONG_NS);
	CU_ASSERT_FALSE(p->life.probing);
	peer_turns(&rig, PEER_LONG_NS);
	rail_peer_probe(p->dp, tei_now_ns() + PEER_LONG_NS);
	CU_ASSERT(p->life.probing);
	tei_rail_peer_hold(p);
	peer_end(&rig);
}

static void test_tasks_of_a_dead_process_end_when_that_is_found(void)
{
	struct peer_rig rig;
	struct tei_rail_peer *p;
	uint64_t end = tei_now_ns() + PEER_WAIT_NS;

	peer_begin(&rig);
	p = rig.pair.peer;
	test_plane_close(&rig.pair.to);
	while (p->tasks.posted && tei_now_ns() < end)
		rail_lane_run(&rig.pair.rail->tx_lanes[0]);
	CU_ASSERT_EQUAL(test_ends(&rig.task), 0);
	peer_replace(&rig);
	/* the task ends at once */
	CU_ASSERT_EQUAL(test_ends(&rig.task), 1);
	CU_ASSERT_EQUAL(rig.task.end, TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(rig.task.code, TEI_ERR_CONTEXT);
	/* after that, no state machine of the peer has anything to do */
	p->hello.again = true;
	CU_ASSERT_EQUAL(rail_peer_run(p, tei_now_ns()), 0);
	test_plane_open(&rig.pair.to, "127.0.0.2");
	peer_end(&rig);
}

/* Tests the report that the process of a peer has ended. The report may concern
 * another process, so the peer is gone only when nothing listens at its
 * addresses any longer. */
static void test_a_peer_seen_to_end_is_gone_when_nothing_listens(void)
{
	struct peer_rig rig;
	struct tei_rail_peer *p;
	uint64_t end = tei_now_ns() + PEER_WAIT_NS;

	peer_begin(&rig);
	p = rig.pair.peer;
	CU_ASSERT_FALSE(tei_rail_peer_ended(p, "it has ended"));
	CU_ASSERT_FALSE(tei_rail_peer_gone(p));
	CU_ASSERT_EQUAL(test_ends(&rig.task), 0);
	test_plane_close(&rig.pair.to);
	while (p->tasks.posted && tei_now_ns() < end)
		rail_lane_run(&rig.pair.rail->tx_lanes[0]);
	CU_ASSERT_EQUAL(test_ends(&rig.task), 0);
	CU_ASSERT(tei_rail_peer_ended(p, "it has ended"));
	CU_ASSERT(tei_rail_peer_gone(p));
	CU_ASSERT_EQUAL(test_ends(&rig.task), 1);
	CU_ASSERT_EQUAL(rig.task.end, TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(rig.task.code, TEI_ERR_CONTEXT);
	CU_ASSERT(tei_rail_peer_ended(p, "it has ended"));
	CU_ASSERT_EQUAL(test_ends(&rig.task), 1);
	test_plane_open(&rig.pair.to, "127.0.0.2");
	peer_end(&rig);
}

/* Tests tasks that wait for the fence of a peer that has lost its name: they
 * end when the end of its process is observed later. */
static void test_a_death_found_later_ends_waiting_tasks(void)
{
	struct rail_done done;
	struct peer_rig rig;
	uint64_t end = tei_now_ns() + PEER_WAIT_NS;

	peer_begin(&rig);
	peer_replace(&rig);
	rail_done_init(&done);
	rail_sched_enter(rig.pair.from.dp);
	rail_peer_set_gone(rig.pair.peer, "another answers there",
			   RAIL_GONE_OVER, &done);
	rail_sched_leave(rig.pair.from.dp);
	rail_done_run(rig.pair.from.dp, &done);
	test_plane_close(&rig.pair.to);
	while (!test_ends(&rig.task) && tei_now_ns() < end)
		rail_lane_run(&rig.pair.rail->tx_lanes[0]);
	CU_ASSERT_EQUAL(test_ends(&rig.task), 1);
	CU_ASSERT_EQUAL(rig.task.end, TEI_RAIL_END_FAILED);
	test_plane_open(&rig.pair.to, "127.0.0.2");
	peer_end(&rig);
}

static bool peer_fenced(struct tei_rail_peer *p)
{
	bool any;

	rail_sched_enter(p->dp);
	any = rail_fence_any(p);
	rail_sched_leave(p->dp);
	return any;
}

/* Tests that the fence of a peer that may be alive is requested only for as
 * long as the peer may still answer. */
static void test_a_fence_without_waiting_tasks_is_dropped_after_a_while(void)
{
	struct tei_rail_peer *p;
	struct peer_rig rig;

	peer_begin(&rig);
	p = rig.pair.peer;
	peer_replace(&rig);
	peer_turns(&rig, 0);
	CU_ASSERT(peer_fenced(p));
	CU_ASSERT_NOT_EQUAL(rail_peer_run(p, tei_now_ns()), 0);
	rail_peer_run(p, tei_now_ns() + PEER_LONG_NS);
	CU_ASSERT_FALSE(peer_fenced(p));
	CU_ASSERT_EQUAL(rail_peer_run(p, tei_now_ns() + PEER_LONG_NS), 0);
	peer_end(&rig);
}

/* --- peers that are presumed dead ---------------------------------------- */

/* Reports that the control port of the peer refuses connections, some time
 * after the peer's last sign of life. Returns true if the peer is then presumed
 * dead. */
static bool peer_presumed(struct tei_rail_peer *p)
{
	bool presumed;

	rail_sched_enter(p->dp);
	p->alive_ns = tei_now_ns() - TEI_NS_PER_SEC;
	rail_sched_leave(p->dp);
	tei_rail_peer_no_control(p);
	rail_sched_enter(p->dp);
	presumed = rail_presumed(p);
	rail_sched_leave(p->dp);
	return presumed;
}

/* Closes the target of the task, and waits until no slice is posted to it any
 * longer. */
static struct tei_rail_peer *peer_kill(struct peer_rig *rig)
{
	uint64_t end = tei_now_ns() + PEER_WAIT_NS;
	struct tei_rail_peer *p;

	peer_begin(rig);
	p = rig->pair.peer;
	test_plane_close(&rig->pair.to);
	while (p->tasks.posted && tei_now_ns() < end)
		rail_lane_run(&rig->pair.rail->tx_lanes[0]);
	CU_ASSERT(peer_presumed(p));
	return p;
}

static void test_killed_peer_ends_its_tasks_at_once_and_unfenced(void)
{
	struct tei_rail_peer *p;
	struct peer_rig rig;

	p = peer_kill(&rig);
	rail_peer_run(p, tei_now_ns());
	CU_ASSERT_EQUAL(test_ends(&rig.task), 1);
	CU_ASSERT_EQUAL(rig.task.end, TEI_RAIL_END_UNFENCED);
	CU_ASSERT_EQUAL(rig.task.code, TEI_ERR_ENDPOINT);
	/* the presumption may be wrong, so a sign of life makes it void */
	CU_ASSERT_FALSE(tei_rail_peer_gone(p));
	rail_sched_enter(p->dp);
	rail_peer_alive(p, tei_now_ns());
	CU_ASSERT_FALSE(rail_presumed(p));
	rail_sched_leave(p->dp);
	test_plane_open(&rig.pair.to, "127.0.0.2");
	peer_end(&rig);
}

static void test_tasks_submitted_after_the_presumption_need_another_check(void)
{
	struct test_task later;
	struct tei_rail_peer *p;
	struct peer_rig rig;
	uint32_t resolved;

	p = peer_kill(&rig);
	test_task_init(&later, p, false, rig.pair.src, rig.pair.dst, 1);
	CU_ASSERT_EQUAL_FATAL(test_submit(rig.pair.from.dp, &later, 1), 0);
	rail_peer_run(p, tei_now_ns());
	CU_ASSERT_EQUAL(test_ends(&rig.task), 1);
	CU_ASSERT_EQUAL(test_ends(&later), 0);
	resolved = test_resolved();
	rail_presume_ask(p, tei_now_ns() + TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(test_resolved(), resolved + 1);
	CU_ASSERT(peer_presumed(p));
	rail_peer_run(p, tei_now_ns());
	CU_ASSERT_EQUAL(test_ends(&later), 1);
	test_plane_open(&rig.pair.to, "127.0.0.2");
	peer_end(&rig);
}

/* Tests a stopped process. Its kernel accepts connections and holds the posted
 * bytes. */
static void test_stopped_peer_is_not_presumed_to_have_ended(void)
{
	struct peer_rig rig;

	peer_begin(&rig);
	CU_ASSERT_FALSE(peer_presumed(rig.pair.peer));
	rail_peer_run(rig.pair.peer, tei_now_ns());
	CU_ASSERT_EQUAL(test_ends(&rig.task), 0);
	peer_turns(&rig, PEER_LONG_NS);
	peer_end(&rig);
}

static void test_peer_with_a_connection_is_not_presumed_to_have_ended(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	CU_ASSERT_EQUAL(pair.peer->tasks.posted, 0);
	CU_ASSERT_FALSE(peer_presumed(pair.peer));
	test_pair_close(&pair);
}

static void test_peer_that_listens_is_not_presumed_to_have_ended(void)
{
	struct rail_conn *conn;
	struct test_pair pair;

	test_pair_open(&pair);
	rail_sched_enter(pair.from.dp);
	conn = rail_conn_get(pair.peer, &pair.rail->tx_lanes[0],
			     (uint16_t)pair.peer->routes.route[0]);
	rail_sched_leave(pair.from.dp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(conn);
	conn->connected = false; /* as if the connection had broken */
	CU_ASSERT_FALSE(peer_presumed(pair.peer));
	test_pair_close(&pair);
}

/* Tests a peer without a port that can be tested, so that only the connection
 * shows whether it is alive. */
static void test_connection_alone_disproves_that_a_peer_has_ended(void)
{
	struct tei_rail_peer *p;
	struct test_pair pair;
	uint16_t ncontacts;
	uint32_t len;

	test_pair_open(&pair);
	p = pair.peer;
	CU_ASSERT_EQUAL_FATAL(p->nremotes, 1);
	len = p->remotes[0].addr.len;
	ncontacts = p->addrs.ncontacts;
	p->remotes[0].addr.len = 0;	/* removes the only port that could be
					 * tested */
	p->addrs.ncontacts = 0;
	CU_ASSERT_FALSE(peer_presumed(p));
	p->remotes[0].addr.len = len;
	p->addrs.ncontacts = ncontacts;
	test_pair_close(&pair);
}

/* Opens a listening socket. Makes *to a copy of the address *from with the port
 * of this socket. Returns the socket. */
static int peer_listen(const struct tei_rail_addr *from,
		       struct tei_rail_addr *to)
{
	struct sockaddr_in sin;
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*to = *from;
	CU_ASSERT_EQUAL_FATAL(to->len, sizeof(sin));
	memcpy(&sin, to->bytes, sizeof(sin));
	sin.sin_port = 0;
	CU_ASSERT_FATAL(!bind(fd, (struct sockaddr *)&sin, len) &&
			!listen(fd, 1) &&
			!getsockname(fd, (struct sockaddr *)&sin, &len));
	memcpy(to->bytes, &sin, sizeof(sin));
	return fd;
}

/* Tests a peer without a connection, of which one port refuses connections and
 * another one accepts them. */
static void test_one_listening_port_disproves_that_a_peer_has_ended(void)
{
	struct tei_rail_addr other, *contacts;
	struct tei_rail_peer *p;
	struct peer_rig rig;
	uint16_t ncontacts;
	int fd;

	p = peer_kill(&rig);
	contacts = p->addrs.contacts;
	ncontacts = p->addrs.ncontacts;
	fd = peer_listen(&p->remotes[0].addr, &other);
	p->life.presumed_ns = 0;
	p->addrs.contacts = &other;
	p->addrs.ncontacts = 1;
	CU_ASSERT_FALSE(peer_presumed(p));
	p->addrs.contacts = contacts;
	p->addrs.ncontacts = ncontacts;
	close(fd);
	CU_ASSERT(peer_presumed(p));
	rail_peer_run(p, tei_now_ns());
	CU_ASSERT_EQUAL(test_ends(&rig.task), 1);
	test_plane_open(&rig.pair.to, "127.0.0.2");
	peer_end(&rig);
}

/* --- this process was suspended ------------------------------------------ */

/* Tests that the suspension of this process does not count against the deadline
 * of a task. */
static void test_a_suspended_process_does_not_blame_the_peer(void)
{
	struct peer_rig rig;
	struct tei_rail_dp *dp;
	uint64_t limit, now;

	peer_begin(&rig);
	dp = rig.pair.from.dp;
	limit = dp->settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
	now = tei_now_ns() + 2 * limit;
	rail_deadline_stood_still(dp, 2 * limit, now);
	CU_ASSERT(rig.task.task.progress_ns <= now);
	test_pair_turn(&rig.pair, now);
	test_pair_turn(&rig.pair, now + limit / 2);
	CU_ASSERT_EQUAL(rig.task.task.complete_ns, 0);
	/* the suspension lasted only for a part of the time */
	rail_deadline_stood_still(dp, limit / 4, now + limit / 2);
	test_pair_turn(&rig.pair, now + limit + limit / 8);
	CU_ASSERT_EQUAL(rig.task.task.complete_ns, 0);
	CU_ASSERT_EQUAL(test_ends(&rig.task), 0);
	test_pair_turn(&rig.pair, now + 2 * limit);
	CU_ASSERT_NOT_EQUAL(rig.task.task.complete_ns, 0);
	peer_turns(&rig, 3 * limit);
	CU_ASSERT_EQUAL(rig.task.end, TEI_RAIL_END_UNFENCED);
	peer_end(&rig);
}

/* --- hints about a peer that made no progress ---------------------------- */

/* Lets the task end for lack of progress. The peer's last sign of life is
 * `quarters` quarters of MC_SLICE_TIMEOUT older than the end of the task. */
static void peer_no_progress(struct peer_rig *rig, uint64_t quarters)
{
	struct tei_rail_dp *dp;
	uint64_t limit, now;

	peer_begin(rig);
	dp = rig->pair.from.dp;
	limit = dp->settings->failure.slice_timeout_s * TEI_NS_PER_SEC;
	now = rig->task.task.progress_ns + limit + 1;
	rail_sched_enter(dp);
	rig->pair.peer->alive_ns = now - quarters * (limit / 4);
	rail_sched_leave(dp);
	test_pair_turn(&rig->pair, now);
	CU_ASSERT_NOT_EQUAL(rig->task.task.complete_ns, 0);
	peer_turns(rig, 3 * limit);
	CU_ASSERT_EQUAL(test_ends(&rig->task), 1);
	peer_end(rig);
}

static void test_silent_peer_gets_no_hint_about_the_mtu(void)
{
	struct peer_rig rig;

	peer_no_progress(&rig, 3);
	CU_ASSERT_PTR_NULL(strstr(rig.task.hint, "MTU"));
	CU_ASSERT_PTR_NOT_NULL(strstr(rig.task.hint, "no longer answers"));
}

static void test_peer_heard_from_recently_gets_the_hint_about_the_mtu(void)
{
	struct peer_rig rig;

	peer_no_progress(&rig, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(rig.task.hint, "MTU"));
}

/* --- texts of the provider ----------------------------------------------- */

static void test_provider_text_that_misleads_is_left_out(void)
{
	int left = ENOENT, matching = ECONNRESET, other = ECONNREFUSED,
	    device = 12;

	CU_ASSERT_STRING_EQUAL(rail_prov_text(FI_EIO, &left,
					      fi_strerror(ENOENT)), "");
	CU_ASSERT_EQUAL(left, 0);
	CU_ASSERT_STRING_EQUAL(rail_prov_text(FI_ECONNRESET, &matching,
					      fi_strerror(ECONNRESET)),
			       "");
	CU_ASSERT_EQUAL(matching, ECONNRESET);
	CU_ASSERT_STRING_EQUAL(rail_prov_text(FI_EIO, &other,
					      fi_strerror(ECONNREFUSED)),
			       fi_strerror(ECONNREFUSED));
	CU_ASSERT_STRING_EQUAL(rail_prov_text(FI_EIO, &device,
					      "transport retry counter exceeded"),
			       "transport retry counter exceeded");
	CU_ASSERT_EQUAL(device, 12);
	CU_ASSERT_STRING_EQUAL(rail_prov_text(FI_EIO, &device, NULL), "");
}

/* --- addresses of a peer ------------------------------------------------- */

static void test_an_address_without_a_terminator_is_unreachable(void)
{
	struct rail_remote at = { .addr = { .addr_format = FI_ADDR_STR } };
	struct rail rail;

	memset(&rail, 0, sizeof(rail));
	rail.nic.own.addr_format = FI_ADDR_STR;
	memset(at.addr.bytes, 'x', sizeof(at.addr.bytes));
	at.addr.len = sizeof(at.addr.bytes);
	CU_ASSERT_EQUAL(rail_conn_reach(&rail, &at), 0);
	at.addr.bytes[at.addr.len - 1] = '\0';
	CU_ASSERT(rail_conn_reach(&rail, &at));
}

/* --- messages to a peer that is gone ------------------------------------- */

static void peer_owe_all(struct tei_rail_peer *p)
{
	rail_sched_enter(p->dp);
	p->keys.reply.answer_pending = true;
	p->hello.reply = true;
	p->probes.pong = true;
	p->probes.pongs[0] = 1;
	p->probes.npongs = 1;
	rail_key_owe(p, 1);
	rail_fence_requested(p, 0, 0);
	rail_peer_attend(p);
	rail_sched_leave(p->dp);
}

static bool peer_owes_nothing(const struct tei_rail_peer *p)
{
	return !p->keys.reply.answer_pending && !p->hello.reply &&
	       !p->probes.pong && !p->probes.npongs && !p->keys.nowed &&
	       !rail_fence_answer_due(&p->fence);
}

static void peer_goes(struct tei_rail_peer *p, enum rail_gone how)
{
	struct rail_done done;

	rail_done_init(&done);
	rail_sched_enter(p->dp);
	rail_peer_set_gone(p, "the test says so", how, &done);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
}

static void test_a_peer_that_ended_is_not_answered(void)
{
	struct test_pair pair;

	test_pair_open(&pair);
	peer_goes(pair.peer, RAIL_GONE_OVER);
	peer_owe_all(pair.peer);
	CU_ASSERT_EQUAL(rail_peer_run(pair.peer, tei_now_ns()), 0);
	CU_ASSERT(peer_owes_nothing(pair.peer));
	CU_ASSERT_EQUAL(pair.rail->send.left, RAIL_TX_MSGS);
	test_pair_close(&pair);
}

static void test_a_peer_that_may_be_alive_is_answered_for_a_while(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct test_pair pair;

	test_pair_open(&pair);
	peer_goes(pair.peer, RAIL_GONE_PERHAPS);
	peer_owe_all(pair.peer);
	rail_peer_run(pair.peer, tei_now_ns());
	CU_ASSERT(peer_owes_nothing(pair.peer));
	CU_ASSERT_NOT_EQUAL(pair.rail->send.left, RAIL_TX_MSGS);
	while (!rail_msg_idle(pair.rail) && tei_now_ns() < end)
		rail_lane_run(&pair.rail->tx_lanes[0]);
	CU_ASSERT(rail_msg_idle(pair.rail));
	peer_owe_all(pair.peer);
	CU_ASSERT_EQUAL(rail_peer_run(pair.peer,
				      tei_now_ns() + 6 * TEI_NS_PER_SEC), 0);
	CU_ASSERT(peer_owes_nothing(pair.peer));
	CU_ASSERT_EQUAL(pair.rail->send.left, RAIL_TX_MSGS);
	test_pair_close(&pair);
}

/* While no message can be sent, the progress thread must not run the peer's state
 * machines in every iteration. */
static void test_an_answer_that_cannot_be_sent_is_retried_later(void)
{
	struct tei_rail_peer *p;
	struct test_pair pair;
	uint32_t left;
	uint64_t now;

	test_pair_open(&pair);
	p = pair.peer;
	left = pair.rail->send.left;
	pair.rail->send.left = 0;
	rail_sched_enter(p->dp);
	rail_key_owe(p, 1);
	tei_list_del(&p->attn_link);
	rail_sched_leave(p->dp);
	now = tei_now_ns();
	CU_ASSERT(rail_peer_run(p, now) > now);
	CU_ASSERT_EQUAL(p->keys.nowed, 1);
	CU_ASSERT(tei_list_empty(&p->attn_link));
	pair.rail->send.left = left;
	rail_peer_run(p, tei_now_ns());
	CU_ASSERT_EQUAL(p->keys.nowed, 0);
	test_pair_close(&pair);
}

const struct tei_test_case rail_peer_cases[] = {
	{ "a_death_found_later_ends_waiting_tasks",
	  test_a_death_found_later_ends_waiting_tasks },
	{ "killed_peer_ends_its_tasks_at_once_and_unfenced",
	  test_killed_peer_ends_its_tasks_at_once_and_unfenced },
	{ "tasks_submitted_after_the_presumption_need_another_check",
	  test_tasks_submitted_after_the_presumption_need_another_check },
	{ "stopped_peer_is_not_presumed_to_have_ended",
	  test_stopped_peer_is_not_presumed_to_have_ended },
	{ "peer_with_a_connection_is_not_presumed_to_have_ended",
	  test_peer_with_a_connection_is_not_presumed_to_have_ended },
	{ "peer_that_listens_is_not_presumed_to_have_ended",
	  test_peer_that_listens_is_not_presumed_to_have_ended },
	{ "connection_alone_disproves_that_a_peer_has_ended",
	  test_connection_alone_disproves_that_a_peer_has_ended },
	{ "one_listening_port_disproves_that_a_peer_has_ended",
	  test_one_listening_port_disproves_that_a_peer_has_ended },
	{ "a_fence_without_waiting_tasks_is_dropped_after_a_while",
	  test_a_fence_without_waiting_tasks_is_dropped_after_a_while },
	{ "law2_a_peer_silent_amid_writes_is_not_forgotten",
	  test_law2_a_peer_silent_amid_writes_is_not_forgotten },
	{ "law2_a_peer_that_lost_its_name_and_continues_is_fenced",
	  test_law2_a_peer_that_lost_its_name_and_continues_is_fenced },
	{ "law2_a_peer_that_lost_its_name_may_still_be_written",
	  test_law2_a_peer_that_lost_its_name_may_still_be_written },
	{ "law2_a_peer_that_refuses_us_may_still_be_written",
	  test_law2_a_peer_that_refuses_us_may_still_be_written },
	{ "a_peer_in_use_is_not_asked_for_a_sign_of_life",
	  test_a_peer_in_use_is_not_asked_for_a_sign_of_life },
	{ "tasks_of_a_dead_process_end_when_that_is_found",
	  test_tasks_of_a_dead_process_end_when_that_is_found },
	{ "a_peer_seen_to_end_is_gone_when_nothing_listens",
	  test_a_peer_seen_to_end_is_gone_when_nothing_listens },
	{ "an_address_without_a_terminator_is_unreachable",
	  test_an_address_without_a_terminator_is_unreachable },
	{ "a_suspended_process_does_not_blame_the_peer",
	  test_a_suspended_process_does_not_blame_the_peer },
	{ "a_peer_that_ended_is_not_answered",
	  test_a_peer_that_ended_is_not_answered },
	{ "an_answer_that_cannot_be_sent_is_retried_later",
	  test_an_answer_that_cannot_be_sent_is_retried_later },
	{ "a_peer_that_may_be_alive_is_answered_for_a_while",
	  test_a_peer_that_may_be_alive_is_answered_for_a_while },
	{ "silent_peer_gets_no_hint_about_the_mtu",
	  test_silent_peer_gets_no_hint_about_the_mtu },
	{ "peer_heard_from_recently_gets_the_hint_about_the_mtu",
	  test_peer_heard_from_recently_gets_the_hint_about_the_mtu },
	{ "provider_text_that_misleads_is_left_out",
	  test_provider_text_that_misleads_is_left_out },
	{ NULL, NULL },
};
