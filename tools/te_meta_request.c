/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_meta_serve.h"
#include "util/text.h"

/* Handles the requests of Mooncake's protocol, with the status codes and texts
 * of Mooncake. A request that has a parameter other than "key" is passed to
 * te_meta_extend.c. */

#define REQUEST_PATH "/metadata"

/* --- answers ------------------------------------------------------------- */

static enum MHD_Result request_queue(struct serve_request *r,
				     unsigned int status,
				     struct MHD_Response *response)
{
	enum MHD_Result result = MHD_NO;

	if (!response)
		return MHD_NO;
	if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
				    "application/json") == MHD_YES)
		result = MHD_queue_response(r->conn, status, response);
	MHD_destroy_response(response);
	return result;
}

enum MHD_Result serve_answer(struct serve_request *r, unsigned int status,
			     const char *text)
{
	char *copy = strdup(text);

	return copy ? serve_answer_text(r, status, copy, strlen(copy)) : MHD_NO;
}

enum MHD_Result serve_answer_text(struct serve_request *r, unsigned int status,
				  char *text, size_t len)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		len, text, MHD_RESPMEM_MUST_FREE);

	if (!response)
		free(text);
	return request_queue(r, status, response);
}

void serve_suspend(struct serve_request *r)
{
	r->socket->suspended = true;
	MHD_suspend_connection(r->conn);
}

void serve_resume(struct serve_request *r)
{
	r->socket->suspended = false;
	r->socket->since_ns = tei_now_ns();
	MHD_resume_connection(r->conn);
}

/* --- parameters ---------------------------------------------------------- */

const char *serve_argument(const struct serve_request *r, const char *name)
{
	return MHD_lookup_connection_value(r->conn, MHD_GET_ARGUMENT_KIND,
					   name);
}

const char *serve_key(const char *text, size_t len, char out[SERVE_KEY_MAX + 1])
{
	static const char white[] = " \t\r\n\v\f";

	while (len && *text && strchr(white, *text)) {
		text++;
		len--;
	}
	while (len && text[len - 1] && strchr(white, text[len - 1]))
		len--;
	if (!len)
		return "metadata key is required";
	if (len > SERVE_KEY_MAX)
		return "metadata key is too long (at most 2048 bytes)";
	memcpy(out, text, len);
	out[len] = 0;
	return strlen(out) != len || !tei_text_valid(out, SERVE_KEY_MAX)
		       ? "metadata key contains a control character or is not "
			 "UTF-8"
		       : NULL;
}

/* --- GET, PUT, DELETE ---------------------------------------------------- */

static enum MHD_Result request_missing(struct serve_request *r)
{
	return serve_answer(r, MHD_HTTP_NOT_FOUND, "metadata not found");
}

static enum MHD_Result request_full(struct serve_request *r)
{
	return serve_answer(r, MHD_HTTP_INSUFFICIENT_STORAGE,
			    "metadata store is full");
}

/* Answers a GET. If the request has the parameter "version", the version of the
 * key is the first line of the answer. */
static enum MHD_Result request_get(struct serve_request *r)
{
	const struct table_key *k = table_get(r->serve->table, r->key);
	char line[24] = "", *text;
	size_t n;

	if (!k)
		return request_missing(r);
	if (!r->serve->opts->plain && serve_argument(r, "version"))
		snprintf(line, sizeof(line), "%lld\n", (long long)k->version);
	n = strlen(line);
	text = malloc(n + k->len + 1);
	if (!text)
		return MHD_NO;
	memcpy(text, line, n);
	memcpy(text + n, k->text, k->len);
	return serve_answer_text(r, MHD_HTTP_OK, text, n + k->len);
}

static enum MHD_Result request_store(struct serve_request *r)
{
	struct table_change c = {
		.key = r->key,
		.expected = TABLE_ANY,
		.what = TABLE_PUT,
		.text = realloc(r->body, r->len ? r->len : 1),
		.len = r->len,
	};

	r->serve->bodies -= r->room;
	r->room = 0;
	r->body = NULL;
	if (c.text && !table_commit(r->serve->table, &c, 1, NULL, 0))
		return serve_answer(r, MHD_HTTP_OK, "metadata updated");
	free(c.text);
	return request_full(r);
}

/* Answers a PUT. The record of a process is replaced with a different one only
 * if no process accepts connections at its address. */
static enum MHD_Result request_put(struct serve_request *r)
{
	static const char duplicate[] = "Duplicate rpc_meta key not allowed";
	const struct table_key *k = table_get(r->serve->table, r->key);

	if (!k || !strstr(r->key, "rpc_meta"))
		return request_store(r);
	if (k->len == r->len && !memcmp(k->text, r->len ? r->body : "", r->len))
		return serve_answer(r, MHD_HTTP_OK, "metadata unchanged");
	if (r->serve->opts->plain || r->serve->stopping)
		return serve_answer(r, MHD_HTTP_BAD_REQUEST, duplicate);
	if (!r->probed && serve_probe(r, k))
		return MHD_YES;
	return r->owner_alive || k->version != r->owner_version
		       ? serve_answer(r, MHD_HTTP_BAD_REQUEST, duplicate)
		       : request_store(r);
}

static enum MHD_Result request_delete(struct serve_request *r)
{
	struct table_change c = {
		.key = r->key,
		.expected = TABLE_ANY,
		.what = TABLE_REMOVE,
	};

	if (!table_get(r->serve->table, r->key))
		return request_missing(r);
	table_commit(r->serve->table, &c, 1, NULL, 0);
	return serve_answer(r, MHD_HTTP_OK, "metadata deleted");
}

static enum MHD_Result request_key(struct serve_request *r, const char *method)
{
	const char *value = NULL, *why;
	size_t len = 0;

	MHD_lookup_connection_value_n(r->conn, MHD_GET_ARGUMENT_KIND, "key", 3,
				      &value, &len);
	why = serve_key(value ? value : "", value ? len : 0, r->key);
	if (why)
		return serve_answer(r, MHD_HTTP_BAD_REQUEST, why);
	if (!strcmp(method, MHD_HTTP_METHOD_GET))
		return request_get(r);
	if (!strcmp(method, MHD_HTTP_METHOD_PUT))
		return request_put(r);
	if (!strcmp(method, MHD_HTTP_METHOD_DELETE))
		return request_delete(r);
	return serve_answer(r, MHD_HTTP_METHOD_NOT_ALLOWED,
			    "Method not allowed");
}

static enum MHD_Result request_run(struct serve_request *r, const char *url,
				   const char *method)
{
	bool get = !strcmp(method, MHD_HTTP_METHOD_GET);
	bool post = !strcmp(method, MHD_HTTP_METHOD_POST);
	const char *prefix;

	if (get && !strcmp(url, "/health"))
		return serve_answer(r, MHD_HTTP_OK, "OK");
	if (strcmp(url, REQUEST_PATH) != 0)
		return serve_answer(r, MHD_HTTP_NOT_FOUND, "404: Not Found");
	if (r->serve->opts->plain)
		return request_key(r, method);
	prefix = serve_argument(r, "prefix");
	if (get && prefix)
		return serve_watch(r, prefix);
	if (post && serve_argument(r, "commit"))
		return serve_commit(r);
	if (post && serve_argument(r, "renew"))
		return serve_renew(r);
	return request_key(r, method);
}

/* --- receiving ----------------------------------------------------------- */

static enum MHD_Result request_too_long(struct serve_request *r)
{
	char text[80];

	snprintf(text, sizeof(text),
		 "metadata value is too long (at most %llu bytes)",
		 (unsigned long long)r->serve->opts->max_value);
	return serve_answer(r, MHD_HTTP_CONTENT_TOO_LARGE, text);
}

/* Creates the object of a request. If the header states a body above the limit,
 * refuses the request before the client sends the body. */
static enum MHD_Result request_begin(struct serve *s,
				     struct MHD_Connection *conn, void **out)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	const char *length = MHD_lookup_connection_value(
		conn, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
	struct serve_request *r = calloc(1, sizeof(*r));

	if (!r || !info || !info->socket_context) {
		free(r);
		return MHD_NO;
	}
	r->serve = s;
	r->conn = conn;
	r->socket = info->socket_context;
	tei_list_init(&r->link);
	*out = r;
	return length && strtoull(length, NULL, 10) > s->opts->max_value
		       ? request_too_long(r)
		       : MHD_YES;
}

/* Enlarges the buffer of the body to at least want bytes. Returns false if the
 * memory for bodies is used up. */
static bool request_room(struct serve_request *r, size_t want)
{
	struct serve *s = r->serve;
	size_t room = r->room;
	char *body;

	while (room < want)
		room = room ? 2 * room : 4096;
	if (room > s->opts->max_value)
		room = s->opts->max_value;
	if (room == r->room)
		return true;
	if (s->bodies + (room - r->room) + table_bytes(s->table) >
	    s->opts->memory)
		return false;
	body = realloc(r->body, room);
	if (!body)
		return false;
	s->bodies += room - r->room;
	r->body = body;
	r->room = room;
	return true;
}

/* Appends received bytes to the body. If the body was refused, drops them. If
 * the client goes on sending far above the limit, returns MHD_NO, which closes
 * the connection. */
static enum MHD_Result request_append(struct serve_request *r, const char *data,
				      size_t len)
{
	uint64_t max = r->serve->opts->max_value;
	size_t want = r->len + len;

	if (!r->refused && want > max)
		r->refused = MHD_HTTP_CONTENT_TOO_LARGE;
	if (!r->refused && !request_room(r, want))
		r->refused = MHD_HTTP_INSUFFICIENT_STORAGE;
	if (!r->refused)
		memcpy(r->body + r->len, data, len);
	r->len = want;
	return want > 2 * max ? MHD_NO : MHD_YES;
}

enum MHD_Result serve_request(void *arg, struct MHD_Connection *conn,
			      const char *url, const char *method,
			      const char *version, const char *data,
			      size_t *len, void **request)
{
	struct serve_request *r = *request;
	enum MHD_Result result;

	(void)version;
	if (!r)
		return request_begin(arg, conn, request);
	if (*len) {
		result = request_append(r, data, *len);
		*len = 0;
		return result;
	}
	if (r->refused)
		return r->refused == MHD_HTTP_CONTENT_TOO_LARGE
			       ? request_too_long(r)
			       : request_full(r);
	return request_run(r, url, method);
}

void serve_request_end(void *arg, struct MHD_Connection *conn, void **request,
		       enum MHD_RequestTerminationCode code)
{
	struct serve_request *r = *request;

	(void)arg;
	(void)conn;
	(void)code;
	if (!r)
		return;
	r->socket->since_ns = tei_now_ns();
	tei_list_del(&r->link);
	r->serve->bodies -= r->room;
	free(r->body);
	free(r);
	*request = NULL;
}
