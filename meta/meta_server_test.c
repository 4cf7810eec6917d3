/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_test.h"
#include "meta/meta_server_int.h"
#include "meta/meta_test.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/settings.h"

#define INCARNATION UINT64_C(0xfedcba9876543210)

static void server_exchange(const char *host)
{
	struct tei_meta_server *s = meta_test_server(host, INCARNATION, 0, 0);
	struct tei_meta_desc *d;
	uint64_t incarnation = 0;
	char *json = NULL;
	size_t len;

	if (!s)
		return;
	meta_test_publish(s, 3);
	CU_ASSERT_EQUAL(tei_meta_ping(tei_meta_server_address(s), NULL,
				      meta_test_deadline(), &incarnation,
				      NULL), 0);
	CU_ASSERT_EQUAL(incarnation, INCARNATION);
	CU_ASSERT_EQUAL(tei_meta_get_desc(tei_meta_server_address(s), NULL,
					  tei_meta_server_name(s), false,
					  meta_test_deadline(), &json, &len,
					  NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_desc_decode(json, len, &d, NULL), 0);
	CU_ASSERT_STRING_EQUAL(d->name, tei_meta_server_name(s));
	CU_ASSERT_EQUAL(d->incarnation, INCARNATION);
	tei_meta_desc_unref(d);
	free(json);
	tei_meta_server_stop(s);
}

static void test_server_answers_over_ipv4(void)
{
	server_exchange("127.0.0.1");
}

static void test_server_answers_over_ipv6(void)
{
	server_exchange("::1");
}

static void test_server_is_reached_by_host_name(void)
{
	server_exchange("localhost");
}

static void test_unknown_name_is_refused_unless_any_will_do(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", 1, 0, 0);
	struct tei_err err;
	char *json;
	size_t len;

	if (!s)
		return;
	CU_ASSERT_EQUAL(tei_meta_get_desc(tei_meta_server_address(s), NULL, "x",
					  true, meta_test_deadline(), &json,
					  &len, &err), TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(err.prov_errno, TEI_ERR_METADATA);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "no such segment"));
	meta_test_publish(s, 1);
	CU_ASSERT_EQUAL(tei_meta_get_desc(tei_meta_server_address(s), NULL, "x",
					  false, meta_test_deadline(), &json,
					  &len, &err), TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(tei_meta_get_desc(tei_meta_server_address(s), NULL, "x",
					  true, meta_test_deadline(), &json,
					  &len, &err), 0);
	free(json);
	CU_ASSERT_EQUAL(tei_meta_server_withdraw(s, tei_meta_server_name(s)),
			0);
	CU_ASSERT_EQUAL(tei_meta_server_withdraw(s, tei_meta_server_name(s)),
			TEI_ERR_METADATA);
	CU_ASSERT_EQUAL(tei_meta_get_desc(tei_meta_server_address(s), NULL, "x",
					  true, meta_test_deadline(), &json,
					  &len, &err), TEI_ERR_REJECTED);
	tei_meta_server_stop(s);
}

static char *server_report(void *arg)
{
	return strdup(arg);
}

static int server_stats(struct tei_meta_server *s, const char *want)
{
	char *json = NULL;
	struct tei_err err;
	int rc = tei_meta_get_stats(tei_meta_server_address(s), NULL,
				    meta_test_deadline(), &json, &err);

	if (rc)
		CU_ASSERT_EQUAL(err.prov_errno, TEI_ERR_METADATA);
	if (!rc)
		CU_ASSERT_STRING_EQUAL(json, want);
	free(json);
	return rc;
}

static void test_statistics_are_those_of_who_is_asked_now(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", 1, 0, 0);
	char one[] = "{\"n\":1}", two[] = "{\"n\":2}";

	if (!s)
		return;
	CU_ASSERT_EQUAL(server_stats(s, NULL), TEI_ERR_REJECTED);
	tei_meta_server_report(s, server_report, one);
	CU_ASSERT_EQUAL(server_stats(s, one), 0);
	tei_meta_server_report(s, server_report, two);
	CU_ASSERT_EQUAL(server_stats(s, two), 0);
	tei_meta_server_report(s, NULL, NULL);
	CU_ASSERT_EQUAL(server_stats(s, NULL), TEI_ERR_REJECTED);
	tei_meta_server_stop(s);
}

static char *server_count(void *arg)
{
	char text[32];

	snprintf(text, sizeof(text), "%u",
		 __atomic_add_fetch((uint32_t *)arg, 1, __ATOMIC_RELAXED));
	return strdup(text);
}

/* Tests that the report function is called every 100 ms at most, although
 * clients request statistics more often. */
static void test_statistics_are_made_every_100_ms_at_most(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", 1, 0, 0);
	uint64_t from = tei_now_ns(), until = from + 500 * TEI_NS_PER_MS;
	uint64_t end = meta_test_deadline();
	uint32_t made = 0, asked = 0, last = 0;
	char *json = NULL;

	if (!s)
		return;
	tei_meta_server_report(s, server_count, &made);
	while (tei_now_ns() < until || asked < 20 ||
	       (last < 2 && tei_now_ns() < end)) {
		CU_ASSERT_EQUAL_FATAL(
			tei_meta_get_stats(tei_meta_server_address(s), NULL,
					   meta_test_deadline(), &json, NULL),
			0);
		last = (uint32_t)strtoul(json, NULL, 10);
		CU_ASSERT_EQUAL(last, __atomic_load_n(&made, __ATOMIC_RELAXED));
		free(json);
		asked++;
		poll(NULL, 0, 5); /* a pause, so that the requests do not exceed
				   * the rate limit */
	}
	CU_ASSERT(made >= 2);
	CU_ASSERT(made <= 1 + (tei_now_ns() - from) / (100 * TEI_NS_PER_MS));
	tei_meta_server_stop(s);
}

static void test_large_text_arrives_whole(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", 1, 0, 0);
	size_t len = (size_t)9 << 20, got = 0, i, wrong = 0;
	char *text = malloc(len), *json = NULL;

	if (!s)
		return;
	for (i = 0; i < len; i++)
		text[i] = (char)('a' + i % 23);
	CU_ASSERT_EQUAL(tei_meta_server_publish(s, "big", text, len, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_meta_get_desc(tei_meta_server_address(s), NULL,
						"big", false,
						meta_test_deadline(), &json,
						&got, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(got, len);
	for (i = 0; i < len; i++)
		wrong += json[i] != text[i];
	CU_ASSERT_EQUAL(wrong, 0);
	free(json);
	free(text);
	tei_meta_server_stop(s);
}

static void test_ports_come_from_the_range(void)
{
	struct tei_meta_server *first = meta_test_server("127.0.0.1", 1, 0, 0);
	struct tei_meta_server_config config = { .host = "127.0.0.1" };
	struct tei_meta_server *s;
	struct tei_err err;

	if (!first)
		return;
	config.min_port = tei_meta_server_port(first);
	config.max_port = config.min_port;
	CU_ASSERT_EQUAL(tei_meta_server_start(&config, &s, &err),
			TEI_ERR_SOCKET);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "MC_MAX_RPC_PORT"));
	config.host = "127.0.0.3";
	if (!tei_meta_server_start(&config, &s, &err)) {
		CU_ASSERT_EQUAL(tei_meta_server_port(s), config.min_port);
		tei_meta_server_stop(s);
	}
	config.host = "192.0.2.77";
	CU_ASSERT_EQUAL(tei_meta_server_start(&config, &s, &err),
			TEI_ERR_SOCKET);
	config.host = "0.0.0.0";
	CU_ASSERT_EQUAL(tei_meta_server_start(&config, &s, &err),
			TEI_ERR_INVALID);
	config.host = "";
	CU_ASSERT_EQUAL(tei_meta_server_start(&config, &s, &err),
			TEI_ERR_INVALID);
	tei_meta_server_stop(first);
	tei_meta_server_stop(NULL);
}

static void test_defaults_come_from_the_settings(void)
{
	struct tei_settings *settings = meta_test_settings();
	struct tei_meta_server_config config;

	tei_meta_server_defaults(settings, "::1", 9, &config);
	CU_ASSERT_EQUAL(config.min_port, settings->control.min_port);
	CU_ASSERT_EQUAL(config.max_port, settings->control.max_port);
	CU_ASSERT_EQUAL(config.frame_timeout_ns,
			settings->control.connect_timeout_s * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(config.incarnation, 9);
}

static void test_client_errors_have_their_codes(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", 1, 0, 0);
	char endpoint[TEI_META_ENDPOINT_MAX];
	uint64_t start = tei_now_ns(), v;
	struct tei_err err;

	if (!s)
		return;
	snprintf(endpoint, sizeof(endpoint), "%s",
		 tei_meta_server_address(s));
	tei_meta_server_stop(s);
	CU_ASSERT_EQUAL(tei_meta_ping(endpoint, NULL, meta_test_deadline(), &v,
				      &err), TEI_ERR_SOCKET);
	CU_ASSERT_EQUAL(err.prov_errno, ECONNREFUSED);
	CU_ASSERT_STRING_EQUAL(err.peer, endpoint);
	CU_ASSERT_EQUAL(tei_meta_ping("no-such-host.invalid:1", NULL,
				      start + TEI_NS_PER_SEC, &v, &err),
			TEI_ERR_DNS);
	CU_ASSERT(tei_now_ns() - start <
		  meta_test_slowness() * 3 * TEI_NS_PER_SEC);
	CU_ASSERT_EQUAL(tei_meta_ping("127.0.0.1", NULL, meta_test_deadline(), &v,
				      &err), TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_meta_ping("127.0.0.1:1", NULL, 1, &v, &err),
			TEI_ERR_SOCKET);
}

#define SERVER_THREADS 6

struct server_load {
	struct tei_meta_server *server;
	unsigned int failed;		/* atomic: number of failed requests */
};

static void *server_reader(void *arg)
{
	struct server_load *l = arg;
	struct tei_meta_desc *d;
	char *json;
	size_t len;
	int i;

	for (i = 0; i < 100; i++) {
		if (tei_meta_get_desc(tei_meta_server_address(l->server), NULL, "",
				      true, meta_test_deadline(), &json, &len,
				      NULL)) {
			__atomic_fetch_add(&l->failed, 1, __ATOMIC_RELAXED);
			continue;
		}
		if (tei_meta_desc_decode(json, len, &d, NULL))
			__atomic_fetch_add(&l->failed, 1, __ATOMIC_RELAXED);
		else
			tei_meta_desc_unref(d);
		free(json);
	}
	return NULL;
}

static void test_readers_see_whole_texts_while_it_changes(void)
{
	struct server_load load = { meta_test_server("127.0.0.1", 1, 0, 0),
				    0 };
	pthread_t threads[SERVER_THREADS];
	unsigned int i;

	if (!load.server)
		return;
	meta_test_publish(load.server, 1);
	for (i = 0; i < SERVER_THREADS; i++)
		pthread_create(&threads[i], NULL, server_reader, &load);
	for (i = 0; i < 100; i++)
		meta_test_publish(load.server, i % 50);
	for (i = 0; i < SERVER_THREADS; i++)
		pthread_join(threads[i], NULL);
	CU_ASSERT_EQUAL(load.failed, 0);
	tei_meta_server_stop(load.server);
}

/* --- fork ---------------------------------------------------------------- */

static int fork_connect(const struct tei_meta_server *s)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)tei_meta_server_port(s)),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CU_ASSERT_EQUAL_FATAL(connect(fd, (struct sockaddr *)&sa, sizeof(sa)),
			      0);
	return fd;
}

static bool fork_clients_become(const struct tei_meta_server *s, uint32_t want)
{
	uint64_t end = meta_test_deadline();

	while (__atomic_load_n(&s->stats.clients, __ATOMIC_RELAXED) != want)
		if (tei_now_ns() >= end || usleep(1000))
			return false;
	return true;
}

/* Returns the number of sockets and other descriptors in the server's epoll
 * set. */
static unsigned int fork_watched(const struct tei_meta_server *s)
{
	char path[64], line[256];
	unsigned int n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", s->epoll_fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		n += !strncmp(line, "tfd:", 4);
	if (f)
		fclose(f);
	return n;
}

/* Tests that a closed connection does not stay in the server's epoll set if a
 * child of fork still has its socket open. */
static void test_child_holds_no_dead_connection_in_the_set(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", 1, 0, 0);
	uint64_t incarnation;
	unsigned int before;
	int fd, ends[2];
	pid_t pid;
	char c;

	if (!s)
		return;
	before = fork_watched(s);
	CU_ASSERT_EQUAL(before, 2); /* the listener and the eventfd */
	fd = fork_connect(s);
	CU_ASSERT_TRUE(fork_clients_become(s, 1));
	CU_ASSERT_EQUAL(fork_watched(s), before + 1);
	CU_ASSERT_EQUAL_FATAL(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	if (!pid) {
		close(ends[1]);
		_exit(read(ends[0], &c, 1) != 0);
	}
	CU_ASSERT_TRUE(pid > 0);
	shutdown(fd, SHUT_RDWR);
	CU_ASSERT_TRUE(fork_clients_become(s, 0));
	CU_ASSERT_EQUAL(fork_watched(s), before);
	CU_ASSERT_EQUAL(tei_meta_ping(tei_meta_server_address(s), NULL,
				      meta_test_deadline(), &incarnation,
				      NULL), 0);
	close(ends[1]);
	waitpid(pid, NULL, 0);
	close(ends[0]);
	close(fd);
	tei_meta_server_stop(s);
}

/* Pings an endpoint that does not answer. Returns true if the error has the
 * given text and hint. On a slow machine, the time may pass before the client
 * is connected; the next ping then has twice the time. */
static bool server_hints(const char *endpoint, const char *text,
			 const char *hint)
{
	struct tei_err err = { 0 };
	bool good = false;
	uint64_t v, ms;

	for (ms = 100; ms < 4000 && !good; ms *= 2)
		good = tei_meta_ping(endpoint, NULL,
				     tei_now_ns() + ms * TEI_NS_PER_MS, &v,
				     &err) &&
		       strstr(err.text, text) && strstr(err.hint, hint);
	if (!good)
		printf("%s: %s; %s\n", endpoint, err.text, err.hint);
	return good;
}

static void test_failed_connections_say_what_to_do(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	char at[64];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CU_ASSERT_EQUAL_FATAL(bind(fd, (void *)&sa, sizeof(sa)), 0);
	CU_ASSERT_EQUAL_FATAL(getsockname(fd, (void *)&sa, &len), 0);
	snprintf(at, sizeof(at), "127.0.0.1:%u", ntohs(sa.sin_port));
	/* the socket is bound but does not listen yet: connections are refused,
	 * and no other process can use the port */
	CU_ASSERT(server_hints(at, "refused", "is the process running"));
	CU_ASSERT_EQUAL_FATAL(listen(fd, 4), 0);
	CU_ASSERT(server_hints(at, "connected, but no answer",
			       "is that a moonrail control port"));
	close(fd);
	CU_ASSERT(server_hints("127.0.0.1:70000", "out of range", ""));
	CU_ASSERT(server_hints("127.0.0.1", "not host:port", ""));
}

/* Returns true if a server with the given incarnation answers at host and
 * port. */
static bool server_is_at(const char *host, uint16_t port, uint64_t incarnation)
{
	char endpoint[TEI_META_ENDPOINT_MAX];
	uint64_t found = 0;

	tei_meta_join(host, port, endpoint);
	return !tei_meta_ping(endpoint, NULL, meta_test_deadline(), &found,
			      NULL) && found == incarnation;
}

struct server_gone {
	const char *host;
	uint16_t port;
};

static bool server_is_gone(void *arg)
{
	const struct server_gone *g = arg;

	return !server_is_at(g->host, g->port, INCARNATION);
}

static void test_moved_server_answers_at_both_addresses(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", INCARNATION,
						     0, 0);
	struct server_gone second = { "127.0.0.2", 0 };
	const char *host = s ? tei_meta_server_host(s) : NULL;
	uint16_t port = s ? tei_meta_server_port(s) : 0;
	struct tei_err err;

	if (!s)
		return;
	second.port = port;
	CU_ASSERT_EQUAL(tei_meta_server_move(s, "127.0.0.2", NULL), 0);
	CU_ASSERT_STRING_EQUAL(tei_meta_server_host(s), "127.0.0.2");
	CU_ASSERT_EQUAL(tei_meta_server_port(s), port);
	CU_ASSERT(server_is_at("127.0.0.2", port, INCARNATION));
	CU_ASSERT(server_is_at("127.0.0.1", port, INCARNATION));
	/* 192.0.2.1 is not an address of this host */
	CU_ASSERT_EQUAL(tei_meta_server_move(s, "192.0.2.1", &err),
			TEI_ERR_SOCKET);
	CU_ASSERT_STRING_EQUAL(tei_meta_server_host(s), "127.0.0.2");
	CU_ASSERT_EQUAL(tei_meta_server_move(s, "127.0.0.3", NULL), 0);
	CU_ASSERT(server_is_at("127.0.0.3", port, INCARNATION));
	CU_ASSERT(server_is_at("127.0.0.1", port, INCARNATION));
	CU_ASSERT(ft_wait_until(server_is_gone, &second, 20000));
	CU_ASSERT_EQUAL(tei_meta_server_move(s, "127.0.0.1", NULL), 0);
	CU_ASSERT_STRING_EQUAL(tei_meta_server_host(s), "127.0.0.1");
	CU_ASSERT_PTR_EQUAL(tei_meta_server_host(s), host);
	CU_ASSERT(server_is_at("127.0.0.1", port, INCARNATION));
	tei_meta_server_stop(s);
	CU_ASSERT(!server_is_at("127.0.0.3", port, INCARNATION));
}

static void test_moved_server_takes_another_port_if_its_own_is_taken(void)
{
	struct tei_meta_server *s = meta_test_server("127.0.0.1", INCARNATION,
						     0, 0);
	struct tei_meta_server_config config = {
		.host = "127.0.0.2", .incarnation = 1,
	};
	struct tei_meta_server *other = NULL;

	if (!s)
		return;
	config.min_port = config.max_port = tei_meta_server_port(s);
	CU_ASSERT_EQUAL_FATAL(tei_meta_server_start(&config, &other, NULL), 0);
	CU_ASSERT_EQUAL(tei_meta_server_move(s, "127.0.0.2", NULL), 0);
	CU_ASSERT_NOT_EQUAL(tei_meta_server_port(s), config.min_port);
	CU_ASSERT(server_is_at("127.0.0.2", tei_meta_server_port(s),
			       INCARNATION));
	tei_meta_server_stop(other);
	tei_meta_server_stop(s);
}

/* Counts the log lines that contain the text "about". */
struct server_lines {
	const char *about;
	uint32_t n;
};

static void server_line(int level, const char *subsys, const char *text,
			void *arg)
{
	struct server_lines *lines = arg;

	(void)level;
	(void)subsys;
	lines->n += strstr(text, lines->about) != NULL;
}

/* Pings an endpoint, which does not answer, "pings" times. Returns the number
 * of log lines about the endpoint. */
static uint32_t server_logs(const char *endpoint, uint32_t pings,
			    uint64_t timeout_ns)
{
	struct server_lines lines = { .about = endpoint };
	struct tei_err err;
	uint64_t v;

	CU_ASSERT_EQUAL_FATAL(tei_log_set(server_line, &lines), 0);
	for (; pings; pings--) {
		memset(&err, 0, sizeof(err));
		CU_ASSERT(tei_meta_ping(endpoint, NULL, tei_now_ns() + timeout_ns,
					&v, &err) != 0);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, endpoint));
	}
	tei_log_set(NULL, NULL);
	return lines.n;
}

static void
test_repeated_failures_of_an_endpoint_are_logged_once_for_each_cause(void)
{
	struct sockaddr_in sa[2] = { { .sin_family = AF_INET } };
	socklen_t len = sizeof(sa[0]);
	char at[2][64];
	int i, fd[2];

	for (i = 0; i < 2; i++) {
		sa[i].sin_family = AF_INET;
		sa[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CU_ASSERT_EQUAL_FATAL(bind(fd[i], (void *)&sa[i], len), 0);
		CU_ASSERT_EQUAL_FATAL(getsockname(fd[i], (void *)&sa[i], &len),
				      0);
		snprintf(at[i], sizeof(at[i]), "127.0.0.1:%u",
			 ntohs(sa[i].sin_port));
	}
	CU_ASSERT_EQUAL(server_logs(at[0], 20, TEI_NS_PER_SEC), 1);
	CU_ASSERT_EQUAL(server_logs(at[1], 20, TEI_NS_PER_SEC), 1);
	/* simulates a suspended process: the kernel accepts connections, but
	 * nothing answers */
	CU_ASSERT_EQUAL_FATAL(listen(fd[0], 64), 0);
	CU_ASSERT_EQUAL(server_logs(at[0], 3, TEI_NS_PER_SEC / 5), 1);
	CU_ASSERT_EQUAL(server_logs(at[0], 2, TEI_NS_PER_SEC / 5), 0);
	close(fd[0]);
	close(fd[1]);
}

const struct tei_test_case server_cases[] = {
	{ "moved_server_answers_at_both_addresses",
	  test_moved_server_answers_at_both_addresses },
	{ "moved_server_takes_another_port_if_its_own_is_taken",
	  test_moved_server_takes_another_port_if_its_own_is_taken },
	{ "repeated_failures_of_an_endpoint_are_logged_once_for_each_"
	  "cause",
	  test_repeated_failures_of_an_endpoint_are_logged_once_for_each_cause },
	{ "failed_connections_say_what_to_do",
	  test_failed_connections_say_what_to_do },
	{ "child_holds_no_dead_connection_in_the_set",
	  test_child_holds_no_dead_connection_in_the_set },
	{ "server_answers_over_ipv4", test_server_answers_over_ipv4 },
	{ "server_answers_over_ipv6", test_server_answers_over_ipv6 },
	{ "server_is_reached_by_host_name",
	  test_server_is_reached_by_host_name },
	{ "unknown_name_is_refused_unless_any_will_do",
	  test_unknown_name_is_refused_unless_any_will_do },
	{ "statistics_are_those_of_who_is_asked_now",
	  test_statistics_are_those_of_who_is_asked_now },
	{ "statistics_are_made_every_100_ms_at_most",
	  test_statistics_are_made_every_100_ms_at_most },
	{ "large_text_arrives_whole", test_large_text_arrives_whole },
	{ "ports_come_from_the_range", test_ports_come_from_the_range },
	{ "defaults_come_from_the_settings",
	  test_defaults_come_from_the_settings },
	{ "client_errors_have_their_codes",
	  test_client_errors_have_their_codes },
	{ "readers_see_whole_texts_while_it_changes",
	  test_readers_see_whole_texts_while_it_changes },
	{ NULL, NULL },
};
