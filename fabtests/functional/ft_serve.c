/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests "te_meta serve" with HTTP requests: Mooncake's protocol, the additional
 * requests, limits, and invalid requests. The test uses no engine.
 */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_http.h"
#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_proc.h"
#include "fabtests/common/ft_test.h"

#define SERVE_LINE_MS	30000
#define SERVE_END_MS	30000
#define SERVE_COUNTERS	8  /* number of threads that change the same key */
#define SERVE_ADDITIONS 25 /* number of additions by each of these threads */

struct serve_rig {
	struct ft_proc proc;
	int port;
};

static const char *serve_program(void)
{
	static char path[4096];
	const char *build = getenv("BUILD");

	snprintf(path, sizeof(path), "%s/bin/te_meta", build ? build : "build");
	return path;
}

/* Starts a server with the options `first` and `second`, which may be NULL.
 * Returns true on success. */
static bool serve_start(struct serve_rig *rig, const char *first,
			const char *second)
{
	const char *argv[] = { serve_program(),
			       "serve",
			       "--host=127.0.0.1",
			       "--port=0",
			       first,
			       first ? second : NULL,
			       NULL };
	char line[128];

	rig->port = 0;
	if (ft_proc_start(&rig->proc, (char **)(uintptr_t)argv))
		return false;
	return !ft_proc_line(&rig->proc, line, sizeof(line),
			     SERVE_LINE_MS * ft_load()) &&
	       sscanf(line, "http://127.0.0.1:%d/metadata", &rig->port) == 1;
}

static bool serve_stop(struct serve_rig *rig)
{
	kill(rig->proc.pid, SIGTERM);
	return !ft_proc_stop(&rig->proc, SERVE_END_MS * ft_load());
}

/* Sends a request. Returns true if the answer has this HTTP status and contains
 * `text`. */
static bool serve_is(const struct serve_rig *rig, const char *method,
		     const char *target, const char *body, int status,
		     const char *text)
{
	struct ft_http_answer a;

	ft_http(rig->port, method, target, body, &a);
	if (a.status == status && strstr(a.text, text))
		return true;
	ft_diag("%s %.60s: %d %.200s", method, target, a.status, a.text);
	return false;
}

static bool serve_put(const struct serve_rig *rig, const char *key,
		      const char *text)
{
	char target[256];

	snprintf(target, sizeof(target), "/metadata?key=%s", key);
	return serve_is(rig, "PUT", target, text, 200, "metadata updated");
}

static bool serve_commit(const struct serve_rig *rig, const char *commit,
			 int status, const char *text)
{
	return serve_is(rig, "POST", "/metadata?commit=1", commit, status,
			text);
}

/* Returns the number that follows `name` in the text, or 0 if the text does not
 * contain name. */
static long long serve_number(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? atoll(at + strlen(name)) : 0;
}

static long long serve_version(const struct serve_rig *rig)
{
	struct ft_http_answer a;

	ft_http(rig->port, "GET", "/metadata?prefix=x&limit=1", NULL, &a);
	return serve_number(a.text, "\"version\":");
}

/* --- Mooncake's protocol ------------------------------------------------- */

static const struct serve_row {
	const char *name;
	const char *method, *target, *body;
	int status;
	const char *text;
} serve_rows[] = {
	{ "get_of_a_missing_key_is_404", "GET",
	  "/metadata?key=mooncake%2Fram%2Fnode", NULL, 404,
	  "metadata not found" },
	{ "put_of_a_value_is_200", "PUT", "/metadata?key=mooncake%2Fram%2Fnode",
	  "{\"name\":\"node\"}", 200, "metadata updated" },
	{ "get_returns_the_value", "GET", "/metadata?key=mooncake%2Fram%2Fnode",
	  NULL, 200, "{\"name\":\"node\"}" },
	{ "key_may_contain_plain_slashes", "GET",
	  "/metadata?key=mooncake/ram/node", NULL, 200, "{\"name\":\"node\"}" },
	{ "white_space_around_a_key_is_ignored", "GET",
	  "/metadata?key=+mooncake/ram/node%20", NULL, 200, "node" },
	{ "put_replaces_a_value", "PUT", "/metadata?key=mooncake%2Fram%2Fnode",
	  "", 200, "metadata updated" },
	{ "empty_value_is_returned", "GET",
	  "/metadata?key=mooncake%2Fram%2Fnode", NULL, 200, "" },
	{ "delete_of_a_key_is_200", "DELETE",
	  "/metadata?key=mooncake%2Fram%2Fnode", NULL, 200,
	  "metadata deleted" },
	{ "delete_of_a_missing_key_is_404", "DELETE",
	  "/metadata?key=mooncake%2Fram%2Fnode", NULL, 404,
	  "metadata not found" },
	{ "get_without_a_key_is_400", "GET", "/metadata", NULL, 400,
	  "metadata key is required" },
	{ "put_with_an_empty_key_is_400", "PUT", "/metadata?key=", "x", 400,
	  "metadata key is required" },
	{ "post_without_a_key_is_400", "POST", "/metadata", "x", 400,
	  "metadata key is required" },
	{ "post_is_405", "POST", "/metadata?key=x", "x", 405,
	  "Method not allowed" },
	{ "other_methods_are_405", "PATCH", "/metadata?key=x", "x", 405,
	  "Method not allowed" },
	{ "other_paths_are_404", "GET", "/meta?key=x", NULL, 404, "" },
	{ "health_is_200", "GET", "/health", NULL, 200, "OK" },
	{ "registration_of_a_process_is_200", "PUT",
	  "/metadata?key=mooncake%2Frpc_meta%2Fnode",
	  "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":1}", 200,
	  "metadata updated" },
	{ "same_registration_again_is_200", "PUT",
	  "/metadata?key=mooncake%2Frpc_meta%2Fnode",
	  "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":1}", 200,
	  "metadata unchanged" },
	{ "control_character_in_a_key_is_400", "PUT", "/metadata?key=a%01b",
	  "x", 400, "control character" },
	{ "zero_byte_in_a_key_is_400", "PUT", "/metadata?key=a%00b", "x", 400,
	  "control character" },
	{ "key_that_is_not_utf8_is_400", "PUT", "/metadata?key=%ff%fe", "x",
	  400, "UTF-8" },
};

static void serve_table(const struct serve_rig *rig, const char *mode)
{
	const struct serve_row *row;
	size_t i;

	for (i = 0; i < sizeof(serve_rows) / sizeof(serve_rows[0]); i++) {
		row = &serve_rows[i];
		ft_ok(serve_is(rig, row->method, row->target, row->body,
			       row->status, row->text),
		      "%s: %s", mode, row->name);
	}
}

/* Tests registrations of the name "node". Its first record has port 1, where no
 * process listens, so that another process may take the name. */
static void serve_names(const struct serve_rig *rig)
{
	static const char target[] = "/metadata?key=mooncake%2Frpc_meta%2Fnode";
	char live[96];

	snprintf(live, sizeof(live),
		 "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":%d}",
		 rig->port);
	ft_ok(serve_is(rig, "PUT", target, live, 200, "metadata updated"),
	      "name_of_a_dead_process_is_free");
	ft_ok(serve_is(rig, "PUT", target,
		       "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":1}",
		       400, "Duplicate rpc_meta key not allowed"),
	      "name_of_a_live_process_is_400");
	ft_ok(serve_is(rig, "DELETE", target, NULL, 200, "metadata deleted") &&
		      serve_put(rig, "mooncake%2Frpc_meta%2Fnode", "[]") &&
		      serve_is(rig, "PUT", target, live, 200,
			       "metadata updated"),
	      "invalid_registration_is_replaced");
}

static void serve_plain(void)
{
	struct serve_rig rig;

	if (!ft_ok(serve_start(&rig, "--plain", NULL), "plain: server_starts"))
		return;
	serve_table(&rig, "plain");
	ft_ok(serve_is(&rig, "PUT", "/metadata?key=mooncake%2Frpc_meta%2Fnode",
		       "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":2}",
		       400, "Duplicate rpc_meta key not allowed"),
	      "plain: name_of_a_dead_process_is_400");
	ft_ok(serve_is(&rig, "GET", "/metadata?prefix=moon", NULL, 400,
		       "key is required") &&
		      serve_commit(&rig, "{}", 400, "key is required"),
	      "plain: additional_requests_are_400");
	ft_ok(serve_stop(&rig), "plain: sigterm_ends_the_server");
}

/* --- commits and leases -------------------------------------------------- */

static void serve_commits(const struct serve_rig *rig)
{
	struct ft_http_answer a;
	char commit[256];
	long long version;

	ft_ok(serve_commit(rig,
			   "{\"changes\":[{\"key\":\"c1\",\"version\":0,"
			   "\"put\":\"one\"},"
			   "{\"key\":\"c2\",\"put\":\"\\\"two\\\"\"}]}",
			   200, "{\"versions\":["),
	      "commit_of_two_keys_is_done");
	ft_ok(serve_is(rig, "GET", "/metadata?key=c2", NULL, 200, "\"two\""),
	      "committed_value_is_returned");
	ft_http(rig->port, "GET", "/metadata?key=c1&version=1", NULL, &a);
	version = atoll(a.text);
	ft_ok(version > 0 && strstr(a.text, "\none"),
	      "value_is_returned_with_its_version");
	ft_ok(serve_commit(rig,
			   "{\"changes\":[{\"key\":\"c3\",\"put\":\"x\"},"
			   "{\"key\":\"c1\",\"version\":0,\"put\":\"y\"}]}",
			   409, "another version") &&
		      serve_is(rig, "GET", "/metadata?key=c3", NULL, 404, ""),
	      "commit_with_one_conflict_changes_nothing");
	snprintf(commit, sizeof(commit),
		 "{\"changes\":[{\"key\":\"c1\",\"version\":%lld},"
		 "{\"key\":\"c1\",\"version\":%lld,\"remove\":true},"
		 "{\"key\":\"none\",\"remove\":true}]}",
		 version, version);
	ft_ok(serve_commit(rig, commit, 200, "[0,0,0]") &&
		      serve_is(rig, "GET", "/metadata?key=c1", NULL, 404, ""),
	      "commit_removes_a_key_of_the_expected_version");
	ft_ok(serve_commit(rig, commit, 409, "another version"),
	      "commit_for_a_removed_key_is_a_conflict");
}

static void serve_commits_bad(const struct serve_rig *rig)
{
	static const char *const bad[] = {
		"",
		"[",
		"{}",
		"{\"changes\":[]}",
		"{\"changes\":[{\"put\":\"x\"}]}",
		"{\"changes\":[{\"key\":\"\",\"put\":\"x\"}]}",
		"{\"changes\":[{\"key\":\"a\",\"key\":\"b\",\"put\":\"x\"}]}",
		"{\"changes\":[{\"key\":\"a\",\"put\":\"x\",\"put\":\"y\"}]}",
		"{\"changes\":[{\"key\":\"a\",\"put\":7}]}",
		"{\"changes\":[{\"key\":\"a\",\"version\":-1}]}",
		"{\"changes\":[{\"key\":\"a\",\"put\":\"x\",\"leased\":true}]}",
		("{\"lease\":\"l\",\"ttl\":5,\"changes\":"
		 "[{\"key\":\"a\",\"put\":\"x\",\"leased\":true}]}"),
		"{\"changes\":[{\"key\":\"a\",\"put\":\"x\"}]} more",
	};
	bool good = true;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		good = serve_commit(rig, bad[i], 400, "metadata commit: ") &&
		       good;
	ft_ok(good && serve_is(rig, "GET", "/metadata?key=a", NULL, 404, ""),
	      "malformed_commits_are_400");
}

struct serve_wait {
	const struct serve_rig *rig;
	const char *target;
	int status;
};

static bool serve_status(void *arg)
{
	struct serve_wait *w = arg;
	struct ft_http_answer a;

	return ft_http(w->rig->port, "GET", w->target, NULL, &a) == w->status;
}

/* Creates a lease of 700 ms with three keys, and renews it at once for a minute.
 * On a slow machine, a lease may expire before its renewal; the next one then
 * has twice the time. Sets *end to the time at which the lease would have
 * expired without a renewal. Returns true on success. */
static bool serve_lease(const struct serve_rig *rig, uint64_t *end)
{
	struct ft_http_answer a;
	char commit[256];
	unsigned int ms;

	for (ms = 700; ms < SERVE_END_MS; ms *= 2) {
		snprintf(commit, sizeof(commit),
			 "{\"lease\":\"short\",\"ttl\":%u,\"changes\":"
			 "[{\"key\":\"l1\",\"put\":\"x\",\"leased\":true},"
			 "{\"key\":\"l2\",\"put\":\"x\",\"leased\":true},"
			 "{\"key\":\"l3\",\"put\":\"x\"}]}",
			 ms);
		if (!serve_commit(rig, commit, 200, ""))
			return false;
		*end = ft_now_ns() + ms * UINT64_C(1000000);
		ft_http(rig->port, "POST", "/metadata?renew=short&ttl=60000",
			NULL, &a);
		if (a.status != 404 || ft_now_ns() < *end)
			return a.status == 200;
	}
	return false;
}

static void serve_leases(const struct serve_rig *rig)
{
	struct serve_wait gone = { rig, "/metadata?key=l1", 404 };
	uint64_t begin, end = 0;
	bool good = true;

	ft_ok(serve_lease(rig, &end), "commit_creates_a_lease");
	ft_ok(serve_put(rig, "l2", "y"), "put_takes_a_key_from_its_lease");
	while (good && ft_now_ns() < end) {
		usleep(200000); /* the test needs renewals at intervals */
		good = serve_is(rig, "POST", "/metadata?renew=short&ttl=60000",
				NULL, 200, "lease renewed");
	}
	ft_ok(good &&
		      serve_is(rig, "GET", "/metadata?key=l1", NULL, 200, "x"),
	      "renewed_lease_keeps_its_keys_beyond_its_first_time");
	begin = ft_now_ns();
	ft_ok(serve_is(rig, "POST", "/metadata?renew=short&ttl=300", NULL, 200,
		       "") &&
		      ft_wait_until(serve_status, &gone, 20000 * ft_load()) &&
		      ft_now_ns() - begin >= 300000000,
	      "key_disappears_when_its_lease_expires");
	ft_ok(serve_is(rig, "GET", "/metadata?key=l2", NULL, 200, "y") &&
		      serve_is(rig, "GET", "/metadata?key=l3", NULL, 200, "x"),
	      "keys_without_a_lease_stay");
	ft_ok(serve_is(rig, "POST", "/metadata?renew=short&ttl=300", NULL, 404,
		       "lease not found"),
	      "expired_lease_cannot_be_renewed");
	ft_ok(serve_is(rig, "POST", "/metadata?renew=short&ttl=9", NULL, 400,
		       "ttl") &&
		      serve_is(rig, "POST", "/metadata?renew=&ttl=900", NULL,
			       400, "name"),
	      "invalid_renewal_is_400");
}

/* The server is stopped for 3 s, longer than the lease of 2 s. The key must not
 * expire. */
static void serve_suspended(const struct serve_rig *rig)
{
	int status;

	ft_ok(serve_commit(rig,
			   "{\"lease\":\"long\",\"ttl\":2000,\"changes\":"
			   "[{\"key\":\"s1\",\"put\":\"x\",\"leased\":true}]}",
			   200, ""),
	      "another_lease_is_created");
	kill(rig->proc.pid, SIGSTOP);
	waitpid(rig->proc.pid, &status, WUNTRACED);
	sleep(3); /* longer than the lease */
	kill(rig->proc.pid, SIGCONT);
	ft_ok(serve_is(rig, "GET", "/metadata?key=s1", NULL, 200, "x"),
	      "suspension_of_the_server_does_not_end_leases");
}

/* --- listings and watches ------------------------------------------------ */

static void serve_listing(const struct serve_rig *rig)
{
	struct ft_http_answer a, b;
	char target[96];

	serve_put(rig, "p%2F1", "x");
	serve_put(rig, "p%2F2", "x");
	serve_put(rig, "q%2F1", "x");
	serve_put(rig, "p%2F3", "x");
	ft_ok(serve_is(rig, "GET", "/metadata?prefix=p%2F", NULL, 200,
		       "\"set\":[\"p/1\",\"p/2\",\"p/3\"]"),
	      "listing_has_the_keys_with_a_prefix");
	ft_http(rig->port, "GET", "/metadata?prefix=p%2F&limit=2", NULL, &a);
	snprintf(target, sizeof(target),
		 "/metadata?prefix=p%%2F&limit=2&since=%lld",
		 serve_number(a.text, "\"version\":"));
	ft_http(rig->port, "GET", target, NULL, &b);
	ft_ok(strstr(a.text, "\"more\":true") &&
		      strstr(a.text, "[\"p/1\",\"p/2\"]") &&
		      strstr(b.text, "\"more\":false") &&
		      strstr(b.text, "[\"p/3\"]"),
	      "long_listing_has_several_parts");
}

static int serve_watch(const struct serve_rig *rig, const char *prefix,
		       long long since, unsigned int wait_ms)
{
	char target[128];

	snprintf(target, sizeof(target),
		 "/metadata?prefix=%s&since=%lld&wait=%u", prefix, since,
		 wait_ms);
	return ft_http_send(rig->port, "GET", target, NULL, 0);
}

static void serve_watches(const struct serve_rig *rig)
{
	long long version = serve_version(rig);
	struct ft_http_answer a, b;
	int first = serve_watch(rig, "w", version, 20000);
	int other = serve_watch(rig, "v", version, 300);
	int gone = serve_watch(rig, "w", version, 20000);

	close(gone);
	ft_ok(serve_put(rig, "w1", "x") && ft_http_receive(first, &a) == 200 &&
		      strstr(a.text, "\"set\":[\"w1\"]"),
	      "watch_reports_a_new_key");
	ft_ok(ft_http_receive(other, &b) == 200 &&
		      strstr(b.text, "\"set\":[],\"removed\":[]"),
	      "watch_of_another_prefix_ends_without_keys");
	first = serve_watch(rig, "w", serve_number(a.text, "\"version\":"),
			    20000);
	ft_ok(serve_is(rig, "DELETE", "/metadata?key=w1", NULL, 200, "") &&
		      ft_http_receive(first, &a) == 200 &&
		      strstr(a.text, "\"removed\":[\"w1\"]"),
	      "watch_reports_a_removed_key");
	ft_ok(ft_http_receive(serve_watch(rig, "w", version, 20000), &a) ==
			      200 &&
		      strstr(a.text, "\"removed\":[\"w1\"]"),
	      "changes_before_the_watch_are_reported_at_once");
	ft_ok(ft_http_receive(serve_watch(rig, "w", 5, 20000), &a) == 200 &&
		      strstr(a.text, "\"reset\":true"),
	      "watch_since_an_earlier_server_is_reset");
}

/* --- conditional changes by several clients ------------------------------ */

struct serve_counter {
	const struct serve_rig *rig;
	int conflicts;
	bool fine;
};

/* The main function of a thread: increments the number under the key "sum"
 * SERVE_ADDITIONS times, by commits that depend on the key's version. */
static void *serve_count(void *arg)
{
	struct serve_counter *c = arg;
	struct ft_http_answer a;
	char commit[160];
	int n = 0, status = 0;

	while (n < SERVE_ADDITIONS) {
		status = ft_http(c->rig->port, "GET",
				 "/metadata?key=sum&version=1", NULL, &a);
		if (status != 200)
			break;
		snprintf(commit, sizeof(commit),
			 "{\"changes\":[{\"key\":\"sum\",\"version\":%lld,"
			 "\"put\":\"%d\"}]}",
			 atoll(a.text), atoi(strchr(a.text, '\n')) + 1);
		status = ft_http(c->rig->port, "POST", "/metadata?commit=1",
				 commit, &a);
		if (status != 200 && status != 409)
			break;
		n += status == 200;
		c->conflicts += status == 409;
	}
	c->fine = n == SERVE_ADDITIONS;
	return NULL;
}

static void serve_race(const struct serve_rig *rig)
{
	struct serve_counter c[SERVE_COUNTERS];
	pthread_t thread[SERVE_COUNTERS];
	bool good = serve_put(rig, "sum", "0");
	int i, conflicts = 0;
	char sum[16];

	for (i = 0; i < SERVE_COUNTERS; i++) {
		c[i] = (struct serve_counter){ rig, 0, false };
		pthread_create(&thread[i], NULL, serve_count, &c[i]);
	}
	for (i = 0; i < SERVE_COUNTERS; i++) {
		pthread_join(thread[i], NULL);
		good = good && c[i].fine;
		conflicts += c[i].conflicts;
	}
	snprintf(sum, sizeof(sum), "%d", SERVE_COUNTERS * SERVE_ADDITIONS);
	ft_diag("%d conflicts", conflicts);
	ft_ok(good && serve_is(rig, "GET", "/metadata?key=sum", NULL, 200, sum),
	      "conditional_changes_of_8_clients_lose_no_update");
}

/* --- limits and bad clients ---------------------------------------------- */

/* Writes the target of a request with a key of 3000 letters to `target`. */
static void serve_long_key(char target[4096])
{
	int n = snprintf(target, 4096, "/metadata?key=");

	memset(target + n, 'k', 3000);
	target[n + 3000] = 0;
}

static void serve_limits(void)
{
	static const char huge[] =
		"PUT /metadata?key=huge HTTP/1.1\r\nHost: x\r\n"
		"Content-Length: 99999999999\r\n\r\n";
	char target[4096], *value = malloc(70000);
	struct ft_http_answer a;
	struct serve_rig rig;
	bool fine;

	if (!value ||
	    !ft_ok(serve_start(&rig, "--max_keys=2", "--max_value=64K"),
		   "server_with_limits_starts")) {
		free(value);
		return;
	}
	memset(value, 'v', 70000);
	value[65536] = 0;
	ft_ok(serve_put(&rig, "one", value), "longest_value_is_taken");
	value[65536] = 'v';
	value[69999] = 0;
	ft_ok(ft_http_receive(ft_http_send_raw(rig.port, huge, strlen(huge)),
			      &a) == 413 &&
		      strstr(a.text, "65536 bytes"),
	      "huge_value_is_413_before_it_is_sent");
	fine = serve_put(&rig, "two", "x");
	ft_ok(fine && serve_is(&rig, "PUT", "/metadata?key=three", "x", 507,
			       "full"),
	      "key_above_the_limit_is_507");
	ft_ok(serve_commit(&rig,
			   "{\"changes\":[{\"key\":\"three\",\"put\":\"x\"},"
			   "{\"key\":\"two\",\"remove\":true}]}",
			   507, "full") &&
		      serve_put(&rig, "two", "y"),
	      "full_server_takes_changes_of_its_keys");
	ft_ok(serve_is(&rig, "DELETE", "/metadata?key=two", NULL, 200, "") &&
		      serve_put(&rig, "three", "x"),
	      "deleted_key_makes_room");
	serve_long_key(target);
	ft_ok(serve_is(&rig, "PUT", target, "x", 400, "at most 2048 bytes"),
	      "long_key_is_400");
	ft_ok(serve_stop(&rig), "server_with_limits_ends");
	free(value);
}

static void serve_memory(void)
{
	struct serve_rig rig;
	char value[40001];

	memset(value, 'v', sizeof(value) - 1);
	value[sizeof(value) - 1] = 0;
	if (!ft_ok(serve_start(&rig, "--memory=100K", NULL),
		   "server_with_little_memory_starts"))
		return;
	ft_ok(serve_put(&rig, "one", value) &&
		      serve_is(&rig, "PUT", "/metadata?key=two", value, 507,
			       "full") &&
		      serve_put(&rig, "one", "small") &&
		      serve_put(&rig, "two", value),
	      "memory_of_values_is_limited");
	ft_ok(serve_stop(&rig), "server_with_little_memory_ends");
}

/* Sends bytes that are not HTTP, and incomplete requests. Other clients must
 * not be affected. */
static void serve_garbage(const struct serve_rig *rig)
{
	static const char *const bad[] = {
		"\r\n\r\n\r\n",
		"GET\r\n\r\n",
		"\xff\xfe\x01 nonsense \r\n\r\n",
		"PUT /metadata?key=g HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
		"PUT /metadata?key=g HTTP/1.1\r\nTransfer-Encoding: "
		"chunked\r\n\r\nzz\r\n",
		"GET /metadata?key=%zz%& HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /metadata?commit=1 HTTP/1.1\r\nContent-Length: "
		"9\r\n\r\n{",
	};
	char *head = malloc(200000);
	int fds[2 * sizeof(bad) / sizeof(bad[0])], n = 0;
	size_t i;

	for (i = 0; i < 2 * sizeof(bad) / sizeof(bad[0]); i++)
		fds[n++] = ft_http_send_raw(rig->port, bad[i / 2],
					    strlen(bad[i / 2]));
	if (head) {
		memset(head, 'h', 200000);
		memcpy(head, "GET /metadata?key=x HTTP/1.1\r\nA: ", 33);
		close(ft_http_send_raw(rig->port, head, 200000));
		free(head);
	}
	ft_ok(serve_is(rig, "GET", "/metadata?key=g", NULL, 404, "not found"),
	      "clients_that_send_garbage_do_not_disturb_others");
	while (n)
		close(fds[--n]);
}

static void serve_crowd(void)
{
	struct serve_rig rig;
	uint64_t begin;
	int fds[16], i;
	bool fine;

	if (!ft_ok(serve_start(&rig, "--max_connections=4", NULL),
		   "server_for_4_connections_starts"))
		return;
	for (i = 0; i < 16; i++)
		fds[i] = ft_http_send_raw(rig.port, "GET /meta", 9);
	begin = ft_now_ns();
	fine = serve_is(&rig, "GET", "/metadata?key=x", NULL, 404, "not found");
	ft_diag("the server answered after %.1f s",
		(double)(ft_now_ns() - begin) / (double)FT_NS_PER_SEC);
	ft_ok(fine, "slow_clients_that_use_all_connections_make_room");
	for (i = 0; i < 16; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	ft_ok(serve_stop(&rig), "server_for_4_connections_ends");
}

/* --- the process --------------------------------------------------------- */

static void serve_taken(const struct serve_rig *rig)
{
	char port[32];
	const char *argv[] = { serve_program(), "serve", "--host=127.0.0.1",
			       port, NULL };
	struct ft_proc second;

	snprintf(port, sizeof(port), "--port=%d", rig->port);
	ft_ok(!ft_proc_start(&second, (char **)(uintptr_t)argv) &&
		      ft_proc_stop(&second, SERVE_END_MS * ft_load()) == 1,
	      "port_in_use_ends_the_program_with_1");
}

static void serve_end(struct serve_rig *rig)
{
	int fd = serve_watch(rig, "w", serve_version(rig), 20000);
	int idle = ft_http_send_raw(rig->port, "GET /", 5);
	struct ft_http_answer a;

	ft_ok(serve_is(rig, "GET", "/health", NULL, 200, "OK"),
	      "server_still_serves");
	ft_ok(serve_stop(rig), "sigterm_ends_the_server_with_0");
	ft_ok(ft_http_receive(fd, &a) == 200 && strstr(a.text, "\"set\":[]"),
	      "open_watch_is_answered_at_the_end");
	close(idle);
}

int main(void)
{
	struct serve_rig rig;

#ifndef TEI_HAVE_MICROHTTPD
	return ft_skip("built with --disable-serve");
#endif
	serve_plain();
	if (ft_ok(serve_start(&rig, NULL, NULL), "server_prints_its_port")) {
		serve_table(&rig, "full");
		serve_names(&rig);
		serve_commits(&rig);
		serve_commits_bad(&rig);
		serve_leases(&rig);
		serve_suspended(&rig);
		serve_listing(&rig);
		serve_watches(&rig);
		serve_race(&rig);
		serve_garbage(&rig);
		serve_taken(&rig);
		serve_end(&rig);
	}
	serve_limits();
	serve_memory();
	serve_crowd();
	return ft_result();
}
