/* SPDX-License-Identifier: BSD-2-Clause */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/meta_int.h"
#include "meta/meta_test.h"
#include "meta/meta_wire.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/settings.h"

/* Tests a client and a server with and without the shared secret, and with an
 * attacker between them who changes bytes. */

/* length of the text that the server publishes as "big", bytes */
#define AUTH_TEXT ((size_t)1 << 20)

static struct tei_secret *auth_secret(const char *text)
{
	struct tei_secret *s = NULL;

	CU_ASSERT_EQUAL_FATAL(tei_secret_make(text, strlen(text), &s), 0);
	return s;
}

static struct tei_meta_server *auth_server(const struct tei_secret *secret)
{
	struct tei_meta_server_config config = {
		.host = "127.0.0.1", .incarnation = 7, .secret = secret,
	};
	struct tei_meta_server *s = NULL;
	char *text = malloc(AUTH_TEXT);

	CU_ASSERT_EQUAL_FATAL(tei_meta_server_start(&config, &s, NULL), 0);
	memset(text, 'x', AUTH_TEXT);
	CU_ASSERT_EQUAL(tei_meta_server_publish(s, "big", text, AUTH_TEXT,
						NULL), 0);
	free(text);
	return s;
}

static int auth_get(const char *at, const struct tei_secret *secret,
		    const char *name, struct tei_err *err)
{
	char *json = NULL;
	size_t len = 0;
	int rc = tei_meta_get_desc(at, secret, name, false,
				   meta_test_deadline(), &json, &len, err);

	if (!rc)
		CU_ASSERT_EQUAL(len, AUTH_TEXT);
	free(json);
	return rc;
}

static char *auth_report(void *arg)
{
	(void)arg;
	return strdup("{}");
}

static void test_the_same_secret_opens_everything(void)
{
	struct tei_secret *secret = auth_secret("a secret of enough bytes");
	struct tei_meta_server *s = auth_server(secret);
	struct tei_meta_server_stats stats;
	uint64_t inc = 0;
	struct tei_err err;
	char *json = NULL;

	CU_ASSERT_EQUAL(tei_meta_ping(tei_meta_server_address(s), secret,
				      meta_test_deadline(), &inc, NULL), 0);
	CU_ASSERT_EQUAL(inc, 7);
	CU_ASSERT_EQUAL(auth_get(tei_meta_server_address(s), secret, "big",
				 NULL), 0);
	CU_ASSERT_EQUAL(auth_get(tei_meta_server_address(s), secret, "none",
				 &err), TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(err.prov_errno, TEI_ERR_METADATA);
	tei_meta_server_report(s, auth_report, NULL);
	CU_ASSERT_EQUAL(tei_meta_get_stats(tei_meta_server_address(s), secret,
					   meta_test_deadline(), &json, NULL),
			0);
	CU_ASSERT_STRING_EQUAL(json, "{}");
	free(json);
	CU_ASSERT_EQUAL(tei_meta_get_stats(tei_meta_server_address(s), NULL,
					   meta_test_deadline(), &json, &err),
			TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(err.prov_errno, TEI_META_DENIED);
	tei_meta_server_stats(s, &stats);
	CU_ASSERT_EQUAL(stats.denied, 1);
	tei_meta_server_stop(s);
	tei_secret_free(secret);
}

/* Checks that a client with the given secret is denied, with the same text for
 * a published and for an unknown name. */
static void auth_denied(struct tei_meta_server *s,
			const struct tei_secret *secret, const char *text)
{
	static const char *const names[] = { "big", "none" };
	struct tei_err err;
	uint64_t inc = 0;
	int i;

	for (i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(auth_get(tei_meta_server_address(s), secret,
					 names[i], &err), TEI_ERR_REJECTED);
		CU_ASSERT_EQUAL(err.prov_errno, TEI_META_DENIED);
		CU_ASSERT_PTR_NOT_NULL(strstr(err.text, text));
		CU_ASSERT_PTR_NOT_NULL(strstr(err.hint, "MOONRAIL_SECRET"));
	}
	CU_ASSERT_EQUAL(tei_meta_ping(tei_meta_server_address(s), secret,
				      meta_test_deadline(), &inc, &err),
			TEI_ERR_REJECTED);
	CU_ASSERT_EQUAL(err.prov_errno, TEI_META_DENIED);
	CU_ASSERT_EQUAL(inc, 0);
}

static void test_error_of_differing_secrets_names_the_difference(void)
{
	struct tei_secret *one = auth_secret("a secret of enough bytes");
	struct tei_secret *two = auth_secret("another one, as long as that");
	struct tei_meta_server *asks = auth_server(one);
	struct tei_meta_server *open = auth_server(NULL);
	struct tei_meta_server_stats stats;

	auth_denied(asks, NULL, "requires a shared secret");
	auth_denied(asks, two, "secrets differ");
	auth_denied(open, one,
		    "has no shared secret, the requesting process has one");
	tei_meta_server_stats(asks, &stats);
	CU_ASSERT_EQUAL(stats.denied, 6);
	CU_ASSERT_EQUAL(stats.served, 3); /* these are the challenges: no
					   * request was answered */
	tei_meta_server_stop(asks);
	tei_meta_server_stop(open);
	tei_secret_free(one);
	tei_secret_free(two);
}

static void test_store_reads_the_secret_from_its_file(void)
{
	struct tei_settings settings = *meta_test_settings();
	char path[] = "/tmp/meta_auth_test.XXXXXX";
	struct tei_meta_store *store = NULL;
	struct tei_err err;
	int fd = mkstemp(path);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, "a secret of enough bytes\n", 25), 25);
	fchmod(fd, 0644);
	snprintf(settings.control.secret_file,
		 sizeof(settings.control.secret_file), "%s", path);
	CU_ASSERT_EQUAL(tei_meta_store_open("P2PHANDSHAKE", &settings, &store,
					    &err), TEI_ERR_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, path));
	fchmod(fd, 0600);
	CU_ASSERT_EQUAL_FATAL(tei_meta_store_open("P2PHANDSHAKE", &settings,
						  &store, &err), 0);
	CU_ASSERT_PTR_NOT_NULL(tei_meta_store_secret(store));
	tei_meta_store_close(store);
	close(fd);
	unlink(path);
}

/* --- an attacker between both sides -------------------------------------- */

/* An attacker between the client and the server, who forwards all bytes and
 * changes one of them. */
struct auth_between {
	int listen_fd;
	uint16_t server_port;
	bool to_server; /* true: changes a byte that the client sends; false:
			 * one that the server sends */
	size_t at;	/* position of the changed byte among those sent in that
			 * direction */
};

static struct sockaddr_in auth_loopback(uint16_t port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};

	return sa;
}

static bool auth_pass(int from, int to, size_t *seen, bool spoil, size_t at)
{
	uint8_t buf[65536];
	ssize_t n = recv(from, buf, sizeof(buf), 0);

	if (n <= 0)
		return false;
	if (spoil && at >= *seen && at < *seen + (size_t)n)
		buf[at - *seen] ^= 1;
	*seen += (size_t)n;
	return send(to, buf, (size_t)n, MSG_NOSIGNAL) == n;
}

static void *auth_between_thread(void *arg)
{
	struct auth_between *b = arg;
	struct sockaddr_in sa = auth_loopback(b->server_port);
	int client = accept(b->listen_fd, NULL, NULL);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct pollfd p[2] = { { .fd = client, .events = POLLIN },
			       { .fd = server, .events = POLLIN } };
	size_t up = 0, down = 0;
	bool on = !connect(server, (struct sockaddr *)&sa, sizeof(sa));

	while (on && poll(p, 2, 20000) > 0) {
		if (p[0].revents)
			on = auth_pass(client, server, &up, b->to_server,
				       b->at);
		if (on && p[1].revents)
			on = auth_pass(server, client, &down, !b->to_server,
				       b->at);
	}
	close(client);
	close(server);
	return NULL;
}

#define AUTH_NO_BYTE SIZE_MAX /* value of "at" with which no byte is changed */

static int auth_through(struct tei_meta_server *s,
			const struct tei_secret *secret, bool to_server,
			size_t at)
{
	struct auth_between b = { .server_port = tei_meta_server_port(s),
				  .to_server = to_server, .at = at };
	struct sockaddr_in sa = auth_loopback(0);
	char endpoint[TEI_META_ENDPOINT_MAX];
	socklen_t len = sizeof(sa);
	pthread_t thread;
	uint64_t inc;
	int rc;

	b.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CU_ASSERT_EQUAL_FATAL(bind(b.listen_fd, (struct sockaddr *)&sa,
				   sizeof(sa)), 0);
	listen(b.listen_fd, 1);
	getsockname(b.listen_fd, (struct sockaddr *)&sa, &len);
	tei_meta_join("127.0.0.1", ntohs(sa.sin_port), endpoint);
	pthread_create(&thread, NULL, auth_between_thread, &b);
	rc = tei_meta_ping(endpoint, secret, at == AUTH_NO_BYTE ?
			   meta_test_deadline() :
			   tei_now_ns() + 2 * TEI_NS_PER_SEC, &inc, NULL);
	pthread_join(thread, NULL);
	close(b.listen_fd);
	return rc;
}

/*
 * Returns true if a change of the byte at position "at" need not be detected.
 * AUTH, RESPONSE, CHALLENGE and the signed request have 48 bytes each, PONG has
 * 56. The ids in AUTH, CHALLENGE and RESPONSE (bytes 8 to 11) are not
 * protected; they only relate replies to requests. The upper bytes of a length
 * (12 to 14) are not changed, because the receiver would wait for the missing
 * bytes.
 */
static bool auth_ignored(size_t at, bool to_server)
{
	size_t in = at % 48;

	if (in >= 12 && in < 15)
		return true;
	return in >= 8 && in < 12 && at < (to_server ? 96u : 48u);
}

static void test_changed_byte_of_a_message_is_detected(void)
{
	struct tei_secret *secret = auth_secret("a secret of enough bytes");
	struct tei_meta_server *s = auth_server(secret);
	unsigned int step = meta_test_slowness() > 1 ? 5 : 1;
	size_t at;

	CU_ASSERT_EQUAL(auth_through(s, secret, true, AUTH_NO_BYTE), 0);
	meta_test_hush(true);
	for (at = 0; at < 144; at += step)
		if (!auth_ignored(at, true))
			CU_ASSERT(auth_through(s, secret, true, at) != 0);
	for (at = 0; at < 104; at += step)
		if (!auth_ignored(at, false))
			CU_ASSERT(auth_through(s, secret, false, at) != 0);
	meta_test_hush(false);
	CU_ASSERT_EQUAL(auth_through(s, secret, true, AUTH_NO_BYTE), 0);
	tei_meta_server_stop(s);
	tei_secret_free(secret);
}

static void test_a_tag_fits_one_frame_once(void)
{
	const uint8_t nonce[2][META_WIRE_NONCE] = { { 1 }, { 2 } };
	const char body[] = "payload";
	struct meta_session one, other;
	struct meta_wire_header h, reply;
	struct tei_mac_key key = { { 3 } };
	uint8_t digest[TEI_MAC_SIZE], tag[TEI_MAC_SIZE];

	meta_session_derive(&key, nonce[0], nonce[1], &one);
	meta_session_derive(&key, nonce[1], nonce[0], &other);
	CU_ASSERT_FALSE(tei_mac_equal(&one.key, &other.key, TEI_MAC_SIZE));
	meta_wire_fill(&h, META_WIRE_PING, META_WIRE_SIGNED, 1, 40);
	meta_wire_fill(&reply, META_WIRE_PONG, META_WIRE_SIGNED, 1, 40);
	tei_digest(body, 7, digest);
	meta_session_sign(&one, &h, digest, tag);
	CU_ASSERT_FALSE(meta_session_check(&other, &h, body, 7, tag));
	CU_ASSERT_FALSE(meta_session_check(&one, &reply, body, 7, tag));
	one.received = 0;
	CU_ASSERT_FALSE(meta_session_check(&one, &h, body, 6, tag));
	one.received = 0;
	CU_ASSERT(meta_session_check(&one, &h, body, 7, tag));
	CU_ASSERT_FALSE(meta_session_check(&one, &h, body, 7, tag));
}

const struct tei_test_case auth_cases[] = {
	{ "the_same_secret_opens_everything",
	  test_the_same_secret_opens_everything },
	{ "error_of_differing_secrets_names_the_difference",
	  test_error_of_differing_secrets_names_the_difference },
	{ "store_reads_the_secret_from_its_file",
	  test_store_reads_the_secret_from_its_file },
	{ "changed_byte_of_a_message_is_detected",
	  test_changed_byte_of_a_message_is_detected },
	{ "a_tag_fits_one_frame_once", test_a_tag_fits_one_frame_once },
	{ NULL, NULL },
};
