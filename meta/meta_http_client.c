/* SPDX-License-Identifier: BSD-2-Clause */
#include <curl/curl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "meta/meta_http_client.h"
#include "meta/meta_int.h"
#include "meta/meta_sigpipe.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"

/*
 * Each request uses a curl handle, which no other request uses meanwhile and
 * which the calling thread drives. The handle is part of a multi handle, so
 * that another thread can wake the calling thread. meta_resolve.c resolves host
 * names, because libcurl would wait for its own resolver when a handle is
 * freed. A handle whose request has failed is not used again.
 */

#define HTTP_IDLE     4 /* greatest number of unused handles that a client
			 * keeps */
#define HTTP_POLL_NS  (250 * TEI_NS_PER_MS)
#define HTTP_NAME_MAX 512

struct http_handle {
	struct tei_list link; /* element of http->running while the handle is in
			       * use */
	CURL *easy;
	CURLM *multi;	      /* multi handle, which owns the connections */
	char origin[HTTP_NAME_MAX]; /* "host:port" of the last request that used
				     * this handle */
};

struct meta_http {
	struct meta_http_tls tls; /* files for https; does not change after
				   * meta_http_new */
	/* row 2 of docs/LOCKING.md; not held while a request is in progress */
	struct tei_mutex lock;
	bool canceled;
	struct http_handle *idle[HTTP_IDLE];
	int idle_count;
	struct tei_list running; /* handles in use: list of struct
				  * http_handle */
};

/* A request in progress, on the calling thread's stack. */
struct http_run {
	struct meta_http *http;
	const struct meta_http_request *request;
	struct meta_http_response *out;
	struct http_handle *handle;
	struct curl_slist *headers, *addresses;
	size_t room;		    /* number of bytes that are allocated for
				     * out->body */
	int rc;			    /* error code that a callback has set, or
				     * 0 */
	char text[CURL_ERROR_SIZE]; /* libcurl's description of an error */
};

/* --- handles ------------------------------------------------------------- */

static void http_handle_free(struct http_handle *h)
{
	if (h->easy)
		curl_easy_cleanup(h->easy);
	if (h->multi)
		curl_multi_cleanup(h->multi);
	free(h);
}

static struct http_handle *http_handle_new(void)
{
	struct http_handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->easy = curl_easy_init();
	h->multi = curl_multi_init();
	if (h->easy && h->multi)
		return h;
	http_handle_free(h);
	return NULL;
}

/*
 * Takes a handle for a request to origin, if possible one whose last request
 * went to the same origin. If meta_http_cancel was called, sets *canceled to
 * true, and no request may start.
 */
static struct http_handle *http_take(struct meta_http *http, const char *origin,
				     bool *canceled)
{
	struct http_handle *h = NULL;
	int i, found;

	tei_mutex_lock(&http->lock);
	*canceled = http->canceled;
	found = http->idle_count - 1;
	for (i = 0; i < http->idle_count; i++)
		if (!strcmp(http->idle[i]->origin, origin))
			found = i;
	if (found >= 0) {
		h = http->idle[found];
		http->idle[found] = http->idle[--http->idle_count];
	}
	tei_mutex_unlock(&http->lock);
	if (!h)
		h = http_handle_new();
	if (!h)
		return NULL;
	tei_mutex_lock(&http->lock);
	tei_list_add_tail(&http->running, &h->link);
	*canceled = http->canceled;
	tei_mutex_unlock(&http->lock);
	return h;
}

static void http_give(struct meta_http *http, struct http_handle *h, bool good)
{
	tei_mutex_lock(&http->lock);
	tei_list_del(&h->link);
	if (good && http->idle_count < HTTP_IDLE) {
		http->idle[http->idle_count++] = h;
		h = NULL;
	}
	tei_mutex_unlock(&http->lock);
	if (h)
		http_handle_free(h);
}

/* --- callbacks of libcurl ------------------------------------------------ */

/*
 * Opens a socket for libcurl. A program that this process starts does not
 * inherit the socket. TCP keepalive detects within 15 s that the other host is
 * gone.
 */
static curl_socket_t http_socket(void *arg, curlsocktype purpose,
				 struct curl_sockaddr *a)
{
	int fd = socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
	int on = 1, idle = 5, interval = 3, count = 3;
	unsigned int limit = 15000;

	(void)arg;
	(void)purpose;
	if (fd < 0)
		return CURL_SOCKET_BAD;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
	return fd;
}

static bool http_collect(struct http_run *run, const char *bytes, size_t len)
{
	struct meta_http_response *out = run->out;
	size_t need = out->len + len + 1, room;
	char *body;

	if (len > run->request->limit || out->len > run->request->limit - len) {
		run->rc = TEI_ERR_METADATA;
		snprintf(out->why, sizeof(out->why),
			 "the response is longer than %zu bytes",
			 run->request->limit);
		return false;
	}
	if (need > run->room) {
		room = need > 2 * run->room ? need : 2 * run->room;
		body = realloc(out->body, room);
		if (!body) {
			run->rc = TEI_ERR_MEMORY;
			return false;
		}
		out->body = body;
		run->room = room;
	}
	memcpy(out->body + out->len, bytes, len);
	out->len += len;
	out->body[out->len] = 0;
	return true;
}

static size_t http_data(char *bytes, size_t one, size_t len, void *arg)
{
	struct http_run *run = arg;
	long status = 0;
	bool good;

	(void)one; /* the size of an element is always 1 */
	curl_easy_getinfo(run->handle->easy, CURLINFO_RESPONSE_CODE, &status);
	if (!run->request->piece || status != 200) {
		good = http_collect(run, bytes, len);
	} else {
		run->out->status = (int)status;
		good = run->request->piece(run->request->arg, bytes, len);
		if (!good)
			run->rc = TEI_ERR_CANCELED;
	}
	return good ? len : len + 1;	/* a result other than len makes libcurl
					 * end the request */
}

/* --- preparation --------------------------------------------------------- */

/* Reads the host and the port in the URL. Returns false if the URL is not an
 * http or https URL. */
static bool http_origin(const char *url, char host[HTTP_NAME_MAX],
			uint16_t *port)
{
	char *part = NULL, *number = NULL;
	CURLU *u = curl_url();
	bool good =
		u && !curl_url_set(u, CURLUPART_URL, url, 0) &&
		!curl_url_get(u, CURLUPART_HOST, &part, 0) &&
		!curl_url_get(u, CURLUPART_PORT, &number, CURLU_DEFAULT_PORT) &&
		strlen(part) < HTTP_NAME_MAX - 8;

	if (good) {
		snprintf(host, HTTP_NAME_MAX, "%s", part);
		*port = (uint16_t)strtoul(number, NULL, 10);
	}
	curl_free(part);
	curl_free(number);
	curl_url_cleanup(u);
	return good &&
	       (!strncmp(url, "http://", 7) || !strncmp(url, "https://", 8));
}

/* Returns true if the request must end because meta_http_cancel was called or
 * "idle" has returned false. Sets run->rc in this case. */
static bool http_stopped(void *arg)
{
	struct http_run *run = arg;
	bool stopped;

	tei_mutex_lock(&run->http->lock);
	stopped = run->http->canceled;
	tei_mutex_unlock(&run->http->lock);
	if (!stopped && run->request->idle)
		stopped = !run->request->idle(run->request->arg);
	if (stopped)
		run->rc = TEI_ERR_CANCELED;
	return stopped;
}

/* Resolves the host and gives the addresses to libcurl (CURLOPT_RESOLVE). Does
 * nothing for an IPv6 address. */
static int http_resolve(struct http_run *run, const char *host, uint16_t port)
{
	char text[4096], one[TEI_META_HOST_MAX];
	struct addrinfo *all, *a;
	const char *why = "";
	size_t n;
	int rc;

	if (host[0] == '[')
		return 0;
	rc = meta_resolve_unless(host, port, run->request->deadline_ns,
				 http_stopped, run, &all, &why);
	if (rc) {
		snprintf(run->out->why, sizeof(run->out->why), "%.64s: %s",
			 host, why);
		if (run->rc)
			return run->rc;
		return rc == TEI_ERR_DNS ? TEI_ERR_SOCKET : rc;
	}
	n = (size_t)snprintf(text, sizeof(text), "%s:%u:", host, port);
	for (a = all; a && n + TEI_META_HOST_MAX + 4 < sizeof(text);
	     a = a->ai_next) {
		meta_address_host(a->ai_addr, a->ai_addrlen, one);
		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      strchr(one, ':') ? "%s[%s]" : "%s%s",
				      a == all ? "" : ",", one);
	}
	freeaddrinfo(all);
	run->addresses = curl_slist_append(NULL, text);
	return run->addresses ? 0 : TEI_ERR_MEMORY;
}

static bool http_headers(struct http_run *run)
{
	const char *const *h = run->request->headers;
	struct curl_slist *list;

	/* without this empty header, libcurl would wait for the server's "100
	 * Continue" before it sends a long body */
	run->headers = curl_slist_append(NULL, "Expect:");
	for (; run->headers && h && *h; h++) {
		list = curl_slist_append(run->headers, *h);
		if (!list)
			return false;
		run->headers = list;
	}
	return run->headers != NULL;
}

static long http_ms(uint64_t ns)
{
	uint64_t ms = ns / TEI_NS_PER_MS + 1;

	return ms < INT32_MAX ? (long)ms : INT32_MAX;
}

static void http_tls(CURL *c, const struct meta_http_tls *tls)
{
	if (tls->ca_file && *tls->ca_file)
		curl_easy_setopt(c, CURLOPT_CAINFO, tls->ca_file);
	if (tls->cert_file && *tls->cert_file)
		curl_easy_setopt(c, CURLOPT_SSLCERT, tls->cert_file);
	if (tls->key_file && *tls->key_file)
		curl_easy_setopt(c, CURLOPT_SSLKEY, tls->key_file);
}

static void http_options(struct http_run *run)
{
	const struct meta_http_request *r = run->request;
	uint64_t left = tei_ns_left(r->deadline_ns);
	CURL *c = run->handle->easy;

	curl_easy_reset(c);
	curl_easy_setopt(c, CURLOPT_URL, r->url);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, run->headers);
	curl_easy_setopt(c, CURLOPT_RESOLVE, run->addresses);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, http_ms(left));
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
			 http_ms(r->connect_ns && r->connect_ns < left
					 ? r->connect_ns
					 : left));
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, run->text);
	curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, http_socket);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, http_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, run);
	http_tls(c, &run->http->tls);
	if (r->body) {
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE,
				 (curl_off_t)r->body_len);
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
	}
	if (strcmp(r->method, r->body ? "POST" : "GET") != 0)
		curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, r->method);
}

/* --- the request --------------------------------------------------------- */

static int http_code(struct http_run *run, CURLcode code)
{
	struct meta_http_response *out = run->out;

	if (run->rc == TEI_ERR_CANCELED)
		return run->rc;
	if (code && !run->rc)
		snprintf(out->why, sizeof(out->why), "%.127s",
			 *run->text ? run->text : curl_easy_strerror(code));
	if (run->rc)
		return run->rc;
	switch (code) {
	case CURLE_OK:
		return 0;
	case CURLE_OUT_OF_MEMORY:
		return TEI_ERR_MEMORY;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
		return TEI_ERR_REJECTED;
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
		return TEI_ERR_METADATA;
	default:
		return TEI_ERR_SOCKET;
	}
}

/* Drives the handle until the request has ended. Returns libcurl's result. */
static CURLcode http_drive(struct http_run *run)
{
	CURLM *m = run->handle->multi;
	int active = 1, left;
	CURLMsg *msg;

	while (!curl_multi_perform(m, &active) && active) {
		if (http_stopped(run))
			break;
		curl_multi_poll(m, NULL, 0, (int)(HTTP_POLL_NS / TEI_NS_PER_MS),
				NULL);
	}
	msg = curl_multi_info_read(m, &left);
	return msg && msg->msg == CURLMSG_DONE ? msg->data.result
					       : CURLE_RECV_ERROR;
}

static int http_perform(struct http_run *run)
{
	struct http_handle *h = run->handle;
	CURLcode code = CURLE_OUT_OF_MEMORY;
	long status = 0;

	http_options(run);
	if (!curl_multi_add_handle(h->multi, h->easy)) {
		code = http_drive(run);
		curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
		curl_multi_remove_handle(h->multi, h->easy);
	}
	run->out->status = (int)status;
	return http_code(run, code);
}

/* If a complete response has no body, sets an empty, terminated body. */
static int http_body(struct http_run *run)
{
	if (!run->out->body)
		run->out->body = calloc(1, 1);
	return run->out->body ? 0 : TEI_ERR_MEMORY;
}

static int http_run_to(struct http_run *run, const char *host, uint16_t port)
{
	char origin[HTTP_NAME_MAX];
	bool canceled;
	int rc = 0;

	snprintf(origin, sizeof(origin), "%.*s:%u", HTTP_NAME_MAX - 8, host,
		 port);
	run->handle = http_take(run->http, origin, &canceled);
	if (!run->handle)
		return TEI_ERR_MEMORY;
	if (canceled)
		rc = TEI_ERR_CANCELED;
	if (!rc && strcmp(run->handle->origin, origin) != 0)
		rc = http_resolve(run, host, port);
	if (!rc && !http_headers(run))
		rc = TEI_ERR_MEMORY;
	if (!rc)
		rc = http_perform(run);
	if (!rc)
		rc = http_body(run);
	snprintf(run->handle->origin, HTTP_NAME_MAX, "%s", origin);
	http_give(run->http, run->handle, !rc);
	return rc;
}

int meta_http_run(struct meta_http *http,
		  const struct meta_http_request *request,
		  struct meta_http_response *out)
{
	struct http_run run = { .http = http, .request = request, .out = out };
	struct meta_sigpipe signals;
	char host[HTTP_NAME_MAX];
	uint16_t port;
	int rc;

	memset(out, 0, sizeof(*out));
	if (!http_origin(request->url, host, &port)) {
		snprintf(out->why, sizeof(out->why), "not an http URL");
		return TEI_ERR_INVALID;
	}
	/* the TLS library may write to the socket without MSG_NOSIGNAL */
	meta_sigpipe_block(&signals);
	rc = http_run_to(&run, host, port);
	meta_sigpipe_restore(&signals);
	curl_slist_free_all(run.headers);
	curl_slist_free_all(run.addresses);
	if (!rc)
		return 0;
	free(out->body);
	out->body = NULL;
	out->len = 0;
	if (!*out->why)
		snprintf(out->why, sizeof(out->why), "%s", tei_err_name(rc));
	return rc;
}

/* --- the client ---------------------------------------------------------- */

static void http_init(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct meta_http *meta_http_new(const struct meta_http_tls *tls)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct meta_http *http = calloc(1, sizeof(*http));

	if (!http)
		return NULL;
	pthread_once(&once, http_init);
	if (tls)
		http->tls = *tls;
	tei_mutex_init(&http->lock);
	tei_list_init(&http->running);
	return http;
}

void meta_http_cancel(struct meta_http *http)
{
	struct http_handle *h;

	tei_mutex_lock(&http->lock);
	http->canceled = true;
	tei_list_foreach (h, &http->running, struct http_handle, link)
		curl_multi_wakeup(h->multi);
	tei_mutex_unlock(&http->lock);
}

void meta_http_free(struct meta_http *http)
{
	int i;

	if (!http)
		return;
	for (i = 0; i < http->idle_count; i++)
		http_handle_free(http->idle[i]);
	tei_mutex_fini(&http->lock);
	free(http);
}
