/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "meta/meta_server_int.h"
#include "meta/meta_test.h"
#include "util/clock.h"

/* Tests the rate limit of client addresses at times that the test chooses. */

#define RATE_LIMIT_STEP	  TEI_NS_PER_MS
#define RATE_LIMIT_CREDIT 24000 /* steps that an address may use in a burst */
#define RATE_LIMIT_START  (1000 * TEI_NS_PER_SEC)

/* Creates a server that has no thread and in which only those members are set
 * that meta_rate_limit.c uses. */
static struct tei_meta_server *rate_limit_server(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_ANY) };
	struct tei_meta_server *s = calloc(1, sizeof(*s));
	static struct meta_bound bound;

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	s->bound = &bound;
	s->listener[1] = -1;
	s->config.client_rate = 1000;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->listener[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CU_ASSERT_EQUAL(bind(s->listener[0], (struct sockaddr *)&sa,
			     sizeof(sa)), 0);
	CU_ASSERT_EQUAL(listen(s->listener[0], 16), 0);
	tei_list_init(&s->conns);
	tei_list_init(&s->dead);
	meta_rate_limit_init(s);
	return s;
}

static void rate_limit_end(struct tei_meta_server *s)
{
	meta_rate_limit_fini(s);
	CU_ASSERT_EQUAL(s->rate.ip_count, 0);
	CU_ASSERT_EQUAL(s->rate.blocked_count, 0);
	close(s->epoll_fd);
	close(s->listener[0]);
	free(s);
}

static struct meta_ip *rate_limit_of(struct tei_meta_server *s,
				     const char *text, uint64_t now)
{
	struct sockaddr_storage ss = { 0 };
	struct sockaddr_in6 *v6 = (void *)&ss;
	struct sockaddr_in *v4 = (void *)&ss;

	ss.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET;
	if (ss.ss_family == AF_INET6)
		inet_pton(AF_INET6, text, &v6->sin6_addr);
	else
		inet_pton(AF_INET, text, &v4->sin_addr);
	return meta_rate_limit_join(s, (struct sockaddr *)&ss, now);
}

/* Initializes *c as a client of the address ip. Nothing ever arrives at its
 * socket. */
static void rate_limit_client(struct tei_meta_server *s, struct meta_conn *c,
			      struct meta_ip *ip, uint64_t deadline)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = c };

	memset(c, 0, sizeof(*c));
	tei_list_init(&c->link);
	tei_list_init(&c->ip_link);
	tei_list_init(&c->throttled_link);
	c->ip = ip;
	c->deadline_ns = deadline;
	c->fd = eventfd(0, EFD_CLOEXEC);
	CU_ASSERT_EQUAL(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, c->fd, &ev), 0);
}

static void test_time_pays_for_steps(void)
{
	struct tei_meta_server *s = rate_limit_server();
	struct meta_ip *ip = rate_limit_of(s, "10.0.0.1", RATE_LIMIT_START);
	uint64_t now = RATE_LIMIT_START;

	meta_rate_limit_charge(s, ip, RATE_LIMIT_CREDIT, now);
	CU_ASSERT_FALSE(meta_rate_limit_spent(s, ip, now));
	meta_rate_limit_charge(s, ip, 1, now);
	CU_ASSERT(meta_rate_limit_spent(s, ip, now));
	now += RATE_LIMIT_STEP;
	CU_ASSERT_FALSE(meta_rate_limit_spent(s, ip, now));
	/* an address that was idle for a long time may still use only one
	 * burst */
	now += 1000 * TEI_NS_PER_SEC;
	meta_rate_limit_charge(s, ip, RATE_LIMIT_CREDIT + 1, now);
	CU_ASSERT(meta_rate_limit_spent(s, ip, now));
	rate_limit_end(s);
}

static void test_each_address_pays_for_itself(void)
{
	struct tei_meta_server *s = rate_limit_server();
	struct meta_ip *ip = rate_limit_of(s, "10.0.0.1", RATE_LIMIT_START);
	char text[TEI_META_HOST_MAX];

	meta_rate_limit_charge(s, ip, 2 * RATE_LIMIT_CREDIT, RATE_LIMIT_START);
	CU_ASSERT_FALSE(meta_rate_limit_spent(
		s, rate_limit_of(s, "10.0.0.2", RATE_LIMIT_START),
		RATE_LIMIT_START));
	CU_ASSERT_PTR_EQUAL(rate_limit_of(s, "10.0.0.1", RATE_LIMIT_START), ip);
	/* all addresses of one IPv6 /64 network count as one address */
	CU_ASSERT_PTR_EQUAL(
		rate_limit_of(s, "2001:db8::1", RATE_LIMIT_START),
		rate_limit_of(s, "2001:db8::ffff:2", RATE_LIMIT_START));
	CU_ASSERT_PTR_NOT_EQUAL(
		rate_limit_of(s, "2001:db8::1", RATE_LIMIT_START),
		rate_limit_of(s, "2001:db8:0:1::1", RATE_LIMIT_START));
	CU_ASSERT_EQUAL(s->rate.ip_count, 4);
	meta_rate_limit_text(ip, text);
	CU_ASSERT_STRING_EQUAL(text, "10.0.0.1");
	rate_limit_end(s);
}

/*
 * Tests that the steps of an address still count after its client has
 * disconnected and connected again, and that entries of idle addresses are
 * freed if many other addresses connect.
 */
static void test_debt_of_a_client_outlives_the_connection(void)
{
	struct tei_meta_server *s = rate_limit_server();
	struct meta_ip *ip = rate_limit_of(s, "10.0.0.1", RATE_LIMIT_START);
	char text[32];
	int i;

	meta_rate_limit_charge(s, ip, 2 * RATE_LIMIT_CREDIT, RATE_LIMIT_START);
	meta_rate_limit_leave(s, ip);
	CU_ASSERT_PTR_EQUAL(rate_limit_of(s, "10.0.0.1", RATE_LIMIT_START), ip);
	meta_rate_limit_leave(s, ip);
	for (i = 0; i < 5000; i++) {
		snprintf(text, sizeof(text), "10.1.%d.%d", i / 250, i % 250);
		meta_rate_limit_leave(s,
				      rate_limit_of(s, text, RATE_LIMIT_START));
	}
	CU_ASSERT(s->rate.ip_count <= 4096);
	CU_ASSERT_PTR_EQUAL(rate_limit_of(s, "10.0.0.1", RATE_LIMIT_START), ip);
	CU_ASSERT(meta_rate_limit_spent(s, ip, RATE_LIMIT_START));
	rate_limit_end(s);
}

static void test_throttled_clients_continue_in_order(void)
{
	struct tei_meta_server *s = rate_limit_server();
	struct meta_ip *ip = rate_limit_of(s, "10.0.0.1", RATE_LIMIT_START);
	uint64_t now = RATE_LIMIT_START, next;
	struct meta_conn c[3];
	int i;

	for (i = 0; i < 3; i++)
		rate_limit_client(s, &c[i], ip, now + TEI_NS_PER_SEC);
	meta_rate_limit_charge(s, ip, RATE_LIMIT_CREDIT + 10, now);
	for (i = 0; i < 3; i++)
		meta_rate_limit_throttle(s, &c[i], now);
	CU_ASSERT_EQUAL(meta_rate_limit_release(s, now),
			now + 10 * RATE_LIMIT_STEP);
	CU_ASSERT(c[0].throttled_ns && c[1].throttled_ns && c[2].throttled_ns);
	now += 10 * RATE_LIMIT_STEP;
	next = meta_rate_limit_release(s, now);
	CU_ASSERT(!c[0].throttled_ns && c[1].throttled_ns && c[2].throttled_ns);
	CU_ASSERT_EQUAL(next, now + META_RATE_LIMIT_TICK_NS);
	/* the deadline was extended by the time for which the client was
	 * throttled */
	CU_ASSERT_EQUAL(c[0].deadline_ns, now + TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(s->next_due_ns, c[0].deadline_ns);
	/* the client is charged for its request and for being throttled */
	meta_rate_limit_charge(s, ip, 1, now);
	now += 2 * RATE_LIMIT_STEP;
	meta_rate_limit_release(s, now);
	CU_ASSERT(c[1].throttled_ns != 0);
	now += RATE_LIMIT_STEP;
	meta_rate_limit_release(s, now);
	CU_ASSERT(!c[1].throttled_ns && c[2].throttled_ns);
	now += 1000 * RATE_LIMIT_STEP;
	CU_ASSERT_EQUAL(meta_rate_limit_release(s, now), 0);
	CU_ASSERT(!c[2].throttled_ns && tei_list_empty(&s->rate.waiting));
	for (i = 0; i < 3; i++)
		close(c[i].fd);
	rate_limit_end(s);
}

/* Returns true if a connection from the address "from" is accepted within ms
 * milliseconds. */
static bool rate_limit_gets_in(struct tei_meta_server *s, const char *from,
			       int ms)
{
	struct sockaddr_in sa = { .sin_family = AF_INET }, to;
	socklen_t len = sizeof(to);
	struct pollfd p = { .events = POLLOUT };
	bool in;

	p.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	inet_pton(AF_INET, from, &sa.sin_addr);
	CU_ASSERT_EQUAL(bind(p.fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	getsockname(s->listener[0], (struct sockaddr *)&to, &len);
	inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
	in = !connect(p.fd, (struct sockaddr *)&to, sizeof(to)) ||
	     (errno == EINPROGRESS && poll(&p, 1, ms) == 1 &&
	      !(p.revents & (POLLERR | POLLHUP)));
	close(p.fd);
	return in;
}

static void test_blocked_address_cannot_connect_for_a_while(void)
{
	struct tei_meta_server *s = rate_limit_server();
	struct meta_ip *ip = rate_limit_of(s, "127.0.0.66", RATE_LIMIT_START);
	uint64_t now = RATE_LIMIT_START, next;

	meta_rate_limit_charge(s, ip, RATE_LIMIT_CREDIT + 100, now);
	meta_rate_limit_block(s, ip, now); /* does nothing: the address has used
					    * up a burst, but not enough for
					    * being blocked */
	CU_ASSERT_EQUAL(s->rate.blocked_count, 0);
	meta_rate_limit_charge(s, ip, 100, now);
	meta_rate_limit_block(s, ip, now);
	meta_rate_limit_block(s, ip, now);
	CU_ASSERT_EQUAL(s->rate.blocked_count, 1);
	CU_ASSERT_FALSE(rate_limit_gets_in(s, "127.0.0.66", 20));
	CU_ASSERT(rate_limit_gets_in(s, "127.0.0.67", 20000));
	next = meta_rate_limit_release(s, now);
	CU_ASSERT_EQUAL(next, now + 200 * RATE_LIMIT_STEP);
	meta_rate_limit_release(s, next);
	CU_ASSERT_EQUAL(s->rate.blocked_count, 0);
	CU_ASSERT(rate_limit_gets_in(s, "127.0.0.66", 20000));
	rate_limit_end(s);
}

/* Tests that addresses which exceed the limit are only throttled if the filter
 * contains its greatest number of blocked addresses already. */
static void test_many_addresses_are_blocked_or_throttled(void)
{
	struct tei_meta_server *s = rate_limit_server();
	struct meta_ip *ip;
	char text[32];
	int i;

	meta_test_hush(true);
	for (i = 0; i < 40; i++) {
		snprintf(text, sizeof(text), i % 2 ? "127.0.0.%d" :
			 "2001:db8:0:%d::1", 100 + i);
		ip = rate_limit_of(s, text, RATE_LIMIT_START);
		meta_rate_limit_charge(s, ip, RATE_LIMIT_CREDIT + 1000,
				       RATE_LIMIT_START);
		meta_rate_limit_block(s, ip, RATE_LIMIT_START);
	}
	meta_test_hush(false);
	CU_ASSERT_EQUAL(s->rate.blocked_count, 32);
	CU_ASSERT_FALSE(rate_limit_gets_in(s, "127.0.0.131", 20));
	CU_ASSERT(rate_limit_gets_in(s, "127.0.0.1", 20000));
	meta_rate_limit_release(s, RATE_LIMIT_START + 10 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(s->rate.blocked_count, 0);
	CU_ASSERT(rate_limit_gets_in(s, "127.0.0.131", 20000));
	rate_limit_end(s);
}

const struct tei_test_case rate_limit_cases[] = {
	{ "time_pays_for_steps", test_time_pays_for_steps },
	{ "each_address_pays_for_itself", test_each_address_pays_for_itself },
	{ "debt_of_a_client_outlives_the_connection",
	  test_debt_of_a_client_outlives_the_connection },
	{ "throttled_clients_continue_in_order",
	  test_throttled_clients_continue_in_order },
	{ "blocked_address_cannot_connect_for_a_while",
	  test_blocked_address_cannot_connect_for_a_while },
	{ "many_addresses_are_blocked_or_throttled",
	  test_many_addresses_are_blocked_or_throttled },
	{ NULL, NULL },
};
