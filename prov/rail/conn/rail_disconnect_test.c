/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests the search for the sockets of a lane, which are cut or marked
 * close-on-exec. */

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/lock.h"


/* A lane, and two connections to one listener. The lane watches only the first
 * one. */
struct cut_rig {
	struct rail_lane lane;
	struct sockaddr_in addr;
	int listener, watched, other;
	struct tei_socket cut;
};

static int cut_connect(const struct cut_rig *rig)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL_FATAL(connect(fd, (const void *)&rig->addr,
				      sizeof(rig->addr)), 0);
	return fd;
}

static void cut_begin(struct cut_rig *rig)
{
	struct epoll_event ev = { .events = EPOLLIN };
	socklen_t len = sizeof(rig->addr);

	memset(rig, 0, sizeof(*rig));
	rig->addr.sin_family = AF_INET;
	rig->addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	rig->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CU_ASSERT_FATAL(rig->listener >= 0);
	CU_ASSERT_EQUAL_FATAL(bind(rig->listener, (void *)&rig->addr, len), 0);
	CU_ASSERT_EQUAL_FATAL(listen(rig->listener, 2), 0);
	CU_ASSERT_EQUAL_FATAL(getsockname(rig->listener, (void *)&rig->addr,
					  &len), 0);
	rig->watched = cut_connect(rig);
	rig->other = cut_connect(rig);
	tei_mutex_init(&rig->lane.lock);
	rig->lane.wait_fd = epoll_create1(EPOLL_CLOEXEC);
	CU_ASSERT_EQUAL_FATAL(epoll_ctl(rig->lane.wait_fd, EPOLL_CTL_ADD,
					rig->watched, &ev), 0);
}

static void cut_end(struct cut_rig *rig)
{
	close(rig->lane.wait_fd);
	close(rig->listener);
	close(rig->watched);
	close(rig->other);
	tei_mutex_fini(&rig->lane.lock);
}

static bool cut_works(int fd)
{
	return send(fd, "x", 1, MSG_NOSIGNAL) == 1;
}

static enum rail_disconnect cut_one(struct cut_rig *rig)
{
	enum rail_disconnect cut;

	tei_mutex_lock(&rig->lane.lock);
	cut = rail_disconnect_one(&rig->lane, &rig->addr, sizeof(rig->addr),
				  &rig->cut);
	tei_mutex_unlock(&rig->lane.lock);
	return cut;
}

static void test_cut_leaves_sockets_that_lane_does_not_watch(void)
{
	struct cut_rig rig;

	cut_begin(&rig);
	CU_ASSERT_EQUAL(cut_one(&rig), RAIL_CUT_SOME);
	CU_ASSERT(!cut_works(rig.watched));
	CU_ASSERT(cut_works(rig.other));
	cut_end(&rig);
}

/* Checks that another socket with the file descriptor number of a closed socket
 * is not taken for the closed one. */
static void test_cut_socket_is_present_until_closed(void)
{
	struct cut_rig rig;

	cut_begin(&rig);
	CU_ASSERT_EQUAL(cut_one(&rig), RAIL_CUT_SOME);
	CU_ASSERT_EQUAL(rig.cut.fd, rig.watched);
	CU_ASSERT(rail_disconnect_there(&rig.cut));
	CU_ASSERT_EQUAL(dup2(rig.other, rig.watched), rig.watched);
	CU_ASSERT(!rail_disconnect_there(&rig.cut));
	cut_end(&rig);
}

static void cut_listed(struct cut_rig *rig,
		       const struct rail_disconnect_list *list)
{
	tei_mutex_lock(&rig->lane.lock);
	rail_disconnect_listed(&rig->lane, list, &rig->addr, sizeof(rig->addr));
	tei_mutex_unlock(&rig->lane.lock);
}

static void test_listed_connection_with_reused_number_is_not_cut(void)
{
	struct rail_disconnect_list list;
	struct cut_rig rig;
	int child;

	cut_begin(&rig);
	rail_disconnect_list(&rig.lane, &list);
	CU_ASSERT_EQUAL(list.n, 1);
	cut_listed(&rig, &list);
	CU_ASSERT(!cut_works(rig.watched));
	CU_ASSERT(cut_works(rig.other));
	child = dup(rig.watched);
	CU_ASSERT_EQUAL(dup2(rig.other, rig.watched), rig.watched);
	cut_listed(&rig, &list);
	CU_ASSERT(cut_works(rig.other));
	close(child);
	rail_disconnect_list_free(&list);
	cut_end(&rig);
}

static void test_connection_newer_than_list_is_cut(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	struct rail_disconnect_list list;
	struct cut_rig rig;

	cut_begin(&rig);
	epoll_ctl(rig.lane.wait_fd, EPOLL_CTL_DEL, rig.watched, NULL);
	rail_disconnect_list(&rig.lane, &list);
	CU_ASSERT_EQUAL(list.n, 0);
	epoll_ctl(rig.lane.wait_fd, EPOLL_CTL_ADD, rig.watched, &ev);
	cut_listed(&rig, &list);
	CU_ASSERT(!cut_works(rig.watched));
	CU_ASSERT(cut_works(rig.other));
	rail_disconnect_list_free(&list);
	cut_end(&rig);
}

/* Checks look-ups of an address to which the lane has no connection. If the
 * lane has accepted a connection, the result is UNKNOWN, because the accepted
 * connection may lead to the same process. A connection that was accepted at
 * another address has no effect. */
static void test_accepted_connection_makes_look_up_unknown(void)
{
	struct sockaddr_in elsewhere = { .sin_family = AF_INET };
	struct epoll_event ev = { .events = EPOLLIN };
	struct rail_lane *lane;
	struct cut_rig rig;
	int made;

	cut_begin(&rig);
	lane = &rig.lane;
	elsewhere.sin_port = htons(1);
	elsewhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	tei_mutex_lock(&lane->lock);
	CU_ASSERT_EQUAL(
		rail_disconnect_find(lane, &elsewhere, sizeof(elsewhere)),
		RAIL_CUT_NONE);
	CU_ASSERT_EQUAL(
		rail_disconnect_lives(lane, &elsewhere, sizeof(elsewhere)),
		RAIL_CUT_NONE);
	made = accept(rig.listener, NULL, NULL);
	CU_ASSERT_FATAL(made >= 0);
	CU_ASSERT_EQUAL_FATAL(epoll_ctl(lane->wait_fd, EPOLL_CTL_ADD, made,
					&ev), 0);
	CU_ASSERT_EQUAL(
		rail_disconnect_find(lane, &elsewhere, sizeof(elsewhere)),
		RAIL_CUT_NONE);
	memcpy(lane->addr.bytes, &rig.addr, sizeof(rig.addr));
	lane->addr.len = sizeof(rig.addr);
	CU_ASSERT_EQUAL(
		rail_disconnect_find(lane, &elsewhere, sizeof(elsewhere)),
		RAIL_CUT_UNKNOWN);
	CU_ASSERT_EQUAL(
		rail_disconnect_lives(lane, &elsewhere, sizeof(elsewhere)),
		RAIL_CUT_UNKNOWN);
	CU_ASSERT(rail_disconnect_shows(lane, &elsewhere, sizeof(elsewhere)));
	/* a connection to the address itself is found nevertheless */
	CU_ASSERT_EQUAL(
		rail_disconnect_lives(lane, &rig.addr, sizeof(rig.addr)),
		RAIL_CUT_SOME);
	tei_mutex_unlock(&lane->lock);
	close(made);
	cut_end(&rig);
}

/* Checks a socket that the lane still watches, but whose file descriptor number
 * belongs to another file, as it may happen after a fork. */
static void test_cut_of_reused_number_is_skipped(void)
{
	struct cut_rig rig;
	int child;

	cut_begin(&rig);
	child = dup(rig.watched);
	CU_ASSERT_EQUAL(dup2(rig.other, rig.watched), rig.watched);
	CU_ASSERT_NOT_EQUAL(cut_one(&rig), RAIL_CUT_SOME);
	CU_ASSERT(cut_works(rig.other));
	close(child);
	cut_end(&rig);
}

/* Waits until the receive window of the other end is closed, or, if "full" is
 * false, until it is open again. Returns false after a timeout. */
static bool cut_await(struct cut_rig *rig, int other, bool full)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	static char junk[1 << 16];

	while (rail_tcp_received(rig->watched, 0, false) != full) {
		if (tei_now_ns() > end)
			return false;
		if (full)
			send(rig->watched, junk, sizeof(junk),
			     MSG_NOSIGNAL | MSG_DONTWAIT);
		else
			recv(other, junk, sizeof(junk), MSG_DONTWAIT);
	}
	return true;
}

static void test_peer_that_does_not_read_counts_as_alive(void)
{
	struct cut_rig rig;
	int other;

	cut_begin(&rig);
	other = accept(rig.listener, NULL, NULL);
	CU_ASSERT_FATAL(other >= 0);
	CU_ASSERT(!rail_tcp_received(rig.watched, 0, false));
	/* if no data is under way, the peer counts as alive only if it was
	 * pinged ("asked") */
	CU_ASSERT(rail_tcp_received(rig.watched, 0, true));
	CU_ASSERT(cut_await(&rig, other, true));
	CU_ASSERT(cut_await(&rig, other, false));
	close(other);
	cut_end(&rig);
}

/* Checks that a connection is pending until the process of the peer has
 * answered. */
static void test_connection_of_busy_peer_is_pending(void)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct cut_rig rig;
	int other;

	cut_begin(&rig);
	CU_ASSERT_EQUAL(send(rig.watched, "", 1, MSG_NOSIGNAL), 1);
	while (!rail_tcp_pending(rig.watched) && tei_now_ns() < end)
		sched_yield();
	CU_ASSERT(rail_tcp_pending(rig.watched));
	other = accept(rig.listener, NULL, NULL);
	CU_ASSERT_FATAL(other >= 0);
	CU_ASSERT_EQUAL(send(other, "", 1, MSG_NOSIGNAL), 1);
	while (rail_tcp_pending(rig.watched) && tei_now_ns() < end)
		sched_yield();
	CU_ASSERT(!rail_tcp_pending(rig.watched));
	close(other);
	cut_end(&rig);
}

static bool cut_marked(int fd)
{
	return fcntl(fd, F_GETFD) & FD_CLOEXEC;
}

/* Checks a lane that watches a socket, and an epoll descriptor which watches
 * another socket. */
static void test_lane_descriptors_are_marked_close_on_exec(void)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int nested, inner, stale, child, other;
	struct cut_rig rig;

	cut_begin(&rig);
	nested = epoll_create1(0);
	inner = cut_connect(&rig);
	other = epoll_create1(0);
	CU_ASSERT_EQUAL(epoll_ctl(rig.lane.wait_fd, EPOLL_CTL_ADD, nested, &ev),
			0);
	CU_ASSERT_EQUAL(epoll_ctl(nested, EPOLL_CTL_ADD, inner, &ev), 0);
	fcntl(inner, F_SETFD, 0);
	fcntl(rig.watched, F_SETFD, 0);
	fcntl(rig.other, F_SETFD, 0);
	/* the file of "stale" is still listed, but its number belongs to
	 * another file now */
	stale = epoll_create1(0);
	CU_ASSERT_EQUAL(epoll_ctl(rig.lane.wait_fd, EPOLL_CTL_ADD, stale, &ev),
			0);
	child = fcntl(stale, F_DUPFD_CLOEXEC, 0);
	CU_ASSERT_EQUAL(dup2(other, stale), stale);
	CU_ASSERT_EQUAL(epoll_ctl(stale, EPOLL_CTL_ADD, rig.other, &ev), 0);

	CU_ASSERT_EQUAL(rail_cloexec_lane(&rig.lane), 3);
	CU_ASSERT(cut_marked(rig.watched));
	CU_ASSERT(cut_marked(nested));
	CU_ASSERT(cut_marked(inner));
	CU_ASSERT(!cut_marked(rig.other));
	CU_ASSERT(!cut_marked(stale));
	CU_ASSERT(!cut_marked(other));
	CU_ASSERT_EQUAL(rail_cloexec_lane(&rig.lane), 0);
	close(child);
	close(stale);
	close(other);
	close(inner);
	close(nested);
	cut_end(&rig);
}

const struct tei_test_case rail_disconnect_cases[] = {
	{ "cut_socket_is_present_until_closed",
	  test_cut_socket_is_present_until_closed },
	{ "connection_of_busy_peer_is_pending",
	  test_connection_of_busy_peer_is_pending },
	{ "cut_leaves_sockets_that_lane_does_not_watch",
	  test_cut_leaves_sockets_that_lane_does_not_watch },
	{ "listed_connection_with_reused_number_is_not_cut",
	  test_listed_connection_with_reused_number_is_not_cut },
	{ "connection_newer_than_list_is_cut",
	  test_connection_newer_than_list_is_cut },
	{ "accepted_connection_makes_look_up_unknown",
	  test_accepted_connection_makes_look_up_unknown },
	{ "cut_of_reused_number_is_skipped",
	  test_cut_of_reused_number_is_skipped },
	{ "peer_that_does_not_read_counts_as_alive",
	  test_peer_that_does_not_read_counts_as_alive },
	{ "lane_descriptors_are_marked_close_on_exec",
	  test_lane_descriptors_are_marked_close_on_exec },
	{ NULL, NULL },
};
