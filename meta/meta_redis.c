/* SPDX-License-Identifier: BSD-2-Clause */
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <netdb.h>
#include <nettle/sha1.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "meta/meta_int.h"
#include "meta/meta_kv.h"
#include "meta/meta_sigpipe.h"
#include "meta/tei_meta_name.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"

/*
 * The Redis driver of meta_kv.h. A commit is one Lua script, which Redis runs
 * atomically. Redis has no versions of keys, so the version is the first 60
 * bits of the SHA-1 of the value. This is sufficient because the record under
 * rpc_meta contains the incarnation of its process: records of different owners
 * have different versions. Leased keys have an expiry time, which each renewal
 * of the lease sets again.
 *
 * Calls take connections from a small pool, so that a slow call does not delay
 * another one. If a pooled connection turns out to be broken, the call is
 * repeated on a new connection. The watcher has a connection of its own.
 */

#define REDIS_PORT	6379
#define REDIS_IDLE	4	/* greatest number of unused connections that
				 * are kept */
#define REDIS_DIGITS	15	/* number of hexadecimal digits of a version */
#define REDIS_CHANGES	4	/* greatest number of keys in one commit */
#define REDIS_SCAN	"1000"	/* number of keys that one SCAN request
				 * examines */
/* time limit of one attempt to connect */
#define REDIS_CONNECT_NS (2 * TEI_NS_PER_SEC)
/* interval at which redis_wait checks whether the store is being closed */
#define REDIS_WAIT_NS TEI_NS_PER_SEC
/* silence of the server after which redis_wait sends PING */
#define REDIS_PING_NS (5 * TEI_NS_PER_SEC)
/* silence of the server after which the watcher connects again */
#define REDIS_DEAD_NS (15 * TEI_NS_PER_SEC)

struct redis {
	char host[TEI_META_HOST_MAX];
	uint16_t port;
	const char *user, *password; /* user name and password from the
				      * settings, or "" */
	unsigned int db;
	/* used by the watcher only; true: the log line that the server does not
	 * report changes was written */
	bool polling;
	/* row 2 of docs/LOCKING.md; not held while a call to the server is in
	 * progress */
	struct tei_mutex lock;
	redisContext *idle[REDIS_IDLE];
	int idle_count;
	struct tei_list uses;		/* connections in use: list of struct
					 * redis_use */
	bool interrupted;		/* redis_interrupt was called: no
					 * further call may begin */
};

/* A connection on which a thread waits for the server. The struct is on the
 * stack of that thread and an element of rd->uses. */
struct redis_use {
	struct tei_list link;
	redisContext *c;
};

/*
 * Script of a commit. KEYS[i] are the keys. ARGV[1] is the lease time in ms.
 * Then there are four arguments for each key: the change, "p" (put), "r"
 * (remove) or "c" (check); the expected version, where "*" means any and "-"
 * means that the key must not exist; "1" if the key is leased, otherwise "0";
 * the new value. Returns 0 if a version differs, otherwise 1.
 */
static const char redis_script[] =
	"for i=1,#KEYS do "
	"local e=ARGV[4*i-1] "
	"if e~='*' then "
	"local v=redis.call('GET',KEYS[i]) "
	"local h=v and string.sub(redis.sha1hex(v),1,15) or '-' "
	"if h~=e then return 0 end "
	"end "
	"end "
	"for i=1,#KEYS do "
	"local w,t=ARGV[4*i-2],ARGV[4*i+1] "
	"if w=='p' then "
	"if ARGV[4*i]=='1' then redis.call('SET',KEYS[i],t,'PX',ARGV[1]) "
	"else redis.call('SET',KEYS[i],t) end "
	"elseif w=='r' then redis.call('DEL',KEYS[i]) end "
	"end "
	"return 1";

static int64_t redis_version(const char *text, size_t len)
{
	uint8_t digest[SHA1_DIGEST_SIZE];
	struct sha1_ctx ctx;
	uint64_t v = 0;
	int i;

	sha1_init(&ctx);
	sha1_update(&ctx, len, (const uint8_t *)text);
	sha1_digest(&ctx, sizeof(digest), digest);
	for (i = 0; i < 8; i++)
		v = v << 8 | digest[i];
	return (int64_t)(v >> 4);
}

/* --- connections --------------------------------------------------------- */

static struct timeval redis_timeout(uint64_t deadline_ns)
{
	uint64_t us = tei_ns_left(deadline_ns) / 1000 + 1;

	return (struct timeval){ .tv_sec = (time_t)(us / 1000000),
				 .tv_usec = (suseconds_t)(us % 1000000) };
}

static int redis_broken(struct meta_kv *kv, const redisContext *c,
			struct tei_err *err)
{
	const char *why = c->errstr[0] ? c->errstr : "connection lost";

	/* the store is being closed, and redis_interrupt has shut down the
	 * connection */
	if (meta_kv_stopping(kv))
		return tei_err_note(err, TEI_ERR_SOCKET, "meta", NULL,
				    "Redis %s: the store is being closed",
				    kv->where);
	return meta_kv_fail(kv, TEI_ERR_SOCKET, err, NULL, "%s", why);
}

/*
 * Returns an error for an error reply of the server. If the reply means that
 * the server cannot serve requests at present, the code is TEI_ERR_SOCKET, as
 * for a server that does not answer.
 */
static int redis_refused(struct meta_kv *kv, const char *text,
			 struct tei_err *err)
{
	/* beginnings of such replies; if the script of a commit fails, other
	 * text precedes them */
	static const char *const later[] = {
		"READONLY",   "LOADING",
		"MASTERDOWN", "CLUSTERDOWN",
		"TRYAGAIN",   "BUSY ",
		"OOM ",	      "MISCONF",
		"NOREPLICAS", "max number of clients"
	};
	static const char *const access[] = { "NOAUTH", "WRONGPASS", "NOPERM",
					      "ERR invalid password",
					      "ERR AUTH" };
	size_t i;

	for (i = 0; i < sizeof(later) / sizeof(later[0]); i++)
		if (strstr(text, later[i]))
			return meta_kv_fail(kv, TEI_ERR_SOCKET, err,
					    strcmp(later[i], "READONLY") ?
						    NULL :
						    "name the primary server, not a replica",
					    "%.120s", text);
	for (i = 0; i < sizeof(access) / sizeof(access[0]); i++)
		if (strstr(text, access[i]))
			return meta_kv_fail(kv, TEI_ERR_REJECTED, err,
					    "set MC_REDIS_USERNAME and MC_REDIS_PASSWORD",
					    "%.120s", text);
	return meta_kv_fail(kv, TEI_ERR_METADATA, err, NULL, "%.120s", text);
}

/*
 * Registers a connection on which this thread is going to wait, so that
 * redis_interrupt can shut it down. If redis_interrupt was called before, shuts
 * the connection down at once.
 */
static void redis_use(struct redis *rd, struct redis_use *use, redisContext *c)
{
	use->c = c;
	tei_mutex_lock(&rd->lock);
	tei_list_add_tail(&rd->uses, &use->link);
	if (rd->interrupted)
		shutdown(c->fd, SHUT_RDWR);
	tei_mutex_unlock(&rd->lock);
}

static void redis_unuse(struct redis *rd, struct redis_use *use)
{
	tei_mutex_lock(&rd->lock);
	tei_list_del(&use->link);
	tei_mutex_unlock(&rd->lock);
}

static void redis_interrupt(struct meta_kv *kv)
{
	struct redis *rd = kv->state;
	struct redis_use *use;

	tei_mutex_lock(&rd->lock);
	rd->interrupted = true;
	tei_list_foreach(use, &rd->uses, struct redis_use, link)
		shutdown(use->c->fd, SHUT_RDWR);
	tei_mutex_unlock(&rd->lock);
}

/* Sends a command, AUTH or SELECT, on a new connection. Returns 0 if the server
 * accepts it. */
static int redis_simple(struct meta_kv *kv, redisContext *c, int argc,
			const char **argv, struct tei_err *err)
{
	redisReply *r = redisCommandArgv(c, argc, argv, NULL);
	int rc = 0;

	if (!r)
		return redis_broken(kv, c, err);
	if (r->type == REDIS_REPLY_ERROR)
		rc = redis_refused(kv, r->str, err);
	freeReplyObject(r);
	return rc;
}

static int redis_set_up(struct meta_kv *kv, redisContext *c,
			struct tei_err *err)
{
	struct redis *rd = kv->state;
	const char *auth[] = { "AUTH", rd->user, rd->password };
	const char *plain[] = { "AUTH", rd->password };
	char db[16];
	const char *select[] = { "SELECT", db };
	struct redis_use use;
	int rc = 0;

	redis_use(rd, &use, c);
	snprintf(db, sizeof(db), "%u", rd->db);
	if (*rd->password)
		rc = *rd->user ? redis_simple(kv, c, 3, auth, err)
			       : redis_simple(kv, c, 2, plain, err);
	if (!rc && rd->db)
		rc = redis_simple(kv, c, 2, select, err);
	redis_unuse(rd, &use);
	return rc;
}

/*
 * Connects to one address. Makes several short attempts, and stops early if the
 * store is being closed. Returns NULL if memory is short; otherwise the member
 * err of the result shows whether there is a connection.
 */
static redisContext *redis_connect_to(struct meta_kv *kv, const char *host,
				      uint64_t until_ns)
{
	struct redis *rd = kv->state;
	redisContext *c = NULL;
	uint64_t step;

	do {
		step = tei_now_ns() + REDIS_CONNECT_NS;
		if (c)
			redisFree(c);
		c = redisConnectWithTimeout(
			host, rd->port,
			redis_timeout(step < until_ns ? step : until_ns));
	} while (c && c->err && !tei_ns_left(step) && tei_ns_left(until_ns) &&
		 !meta_kv_stopping(kv));
	return c;
}

/* Connects to the first address of the host that accepts the connection. */
static int redis_connect(struct meta_kv *kv, uint64_t deadline_ns,
			 redisContext **out, struct tei_err *err)
{
	struct redis *rd = kv->state;
	char host[TEI_META_HOST_MAX];
	struct addrinfo *all, *a;
	redisContext *c = NULL;
	uint64_t until, left = 0;
	const char *why;
	int rc = tei_meta_resolve(rd->host, rd->port, deadline_ns, &all, &why);

	if (rc)
		return meta_kv_fail(kv, TEI_ERR_SOCKET, err, NULL, "%s", why);
	rc = TEI_ERR_SOCKET;
	for (a = all; a; a = a->ai_next)
		left++;
	for (a = all; a && rc == TEI_ERR_SOCKET; a = a->ai_next, left--) {
		/* each address gets an equal share of the remaining time, so
		 * that one which does not answer leaves time for the others */
		until = tei_now_ns() + tei_ns_left(deadline_ns) / left;
		meta_address_host(a->ai_addr, a->ai_addrlen, host);
		if (c)
			redisFree(c);
		c = redis_connect_to(kv, host, until);
		if (!c || c->err)
			continue;
		redisSetTimeout(c, redis_timeout(until));
		rc = redis_set_up(kv, c, err);
	}
	if (rc == TEI_ERR_SOCKET && (!c || c->err))
		rc = c ? redis_broken(kv, c, err)
		       : meta_kv_fail(kv, TEI_ERR_MEMORY, err, NULL,
				      "no memory for a connection");
	freeaddrinfo(all);
	if (rc) {
		if (c)
			redisFree(c);
		return rc;
	}
	*out = c;
	return 0;
}

static redisContext *redis_take(struct redis *rd)
{
	redisContext *c = NULL;

	tei_mutex_lock(&rd->lock);
	if (rd->idle_count)
		c = rd->idle[--rd->idle_count];
	tei_mutex_unlock(&rd->lock);
	return c;
}

static void redis_give(struct redis *rd, redisContext *c)
{
	tei_mutex_lock(&rd->lock);
	if (!c->err && rd->idle_count < REDIS_IDLE) {
		rd->idle[rd->idle_count++] = c;
		c = NULL;
	}
	tei_mutex_unlock(&rd->lock);
	if (c)
		redisFree(c);
}

/* --- commands ------------------------------------------------------------ */

/* A command and its arguments. */
struct redis_command {
	int argc;
	const char **argv;
	const size_t *lens; /* lengths of the arguments; NULL: they are
			     * terminated texts */
};

static redisReply *redis_send(struct redis *rd, redisContext *c,
			      const struct redis_command *cmd,
			      uint64_t deadline_ns)
{
	struct redis_use use;
	redisReply *r;

	redis_use(rd, &use, c);
	redisSetTimeout(c, redis_timeout(deadline_ns));
	r = redisCommandArgv(c, cmd->argc, cmd->argv, cmd->lens);
	redis_unuse(rd, &use);
	return r;
}

static int redis_call_blocked(struct meta_kv *kv,
			      const struct redis_command *cmd,
			      uint64_t deadline_ns, redisReply **out,
			      struct tei_err *err)
{
	struct redis *rd = kv->state;
	redisContext *c = redis_take(rd);
	redisReply *r = NULL;
	int rc = 0;

	if (c) {
		r = redis_send(rd, c, cmd, deadline_ns);
		if (!r) {
			redisFree(c);
			c = NULL;
		}
	}
	if (!c) {
		rc = redis_connect(kv, deadline_ns, &c, err);
		if (rc)
			return rc;
		r = redis_send(rd, c, cmd, deadline_ns);
	}
	if (!r)
		rc = redis_broken(kv, c, err);
	else if (r->type == REDIS_REPLY_ERROR)
		rc = redis_refused(kv, r->str, err);
	/* after an error the connection is closed, and the next call connects
	 * again, perhaps to another server of the same name */
	if (rc)
		redisFree(c);
	else
		redis_give(rd, c);
	if (rc && r)
		freeReplyObject(r);
	*out = rc ? NULL : r;
	return rc;
}

/*
 * Runs a command. The caller frees *out with freeReplyObject. A command may be
 * sent twice, if a pooled connection breaks during the call. This is safe: a
 * repeated commit either writes the same values again or returns META_CONFLICT.
 */
static int redis_call(struct meta_kv *kv, const struct redis_command *cmd,
		      uint64_t deadline_ns, redisReply **out,
		      struct tei_err *err)
{
	struct meta_sigpipe signals;
	int rc;

	/* hiredis writes to the socket without MSG_NOSIGNAL */
	meta_sigpipe_block(&signals);
	rc = redis_call_blocked(kv, cmd, deadline_ns, out, err);
	meta_sigpipe_restore(&signals);
	return rc;
}

static int redis_odd(struct meta_kv *kv, redisReply *r, const char *what,
		     struct tei_err *err)
{
	int type = r->type;

	freeReplyObject(r);
	return meta_kv_fail(kv, TEI_ERR_METADATA, err, NULL,
			    "%s: unexpected reply type %d", what, type);
}

static int redis_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		     struct meta_kv_value *out, struct tei_err *err)
{
	const char *argv[] = { "GET", key };
	const struct redis_command cmd = { 2, argv, NULL };
	redisReply *r;
	int rc = redis_call(kv, &cmd, deadline_ns, &r, err);

	out->text = NULL;
	out->len = 0;
	out->version = META_ABSENT;
	if (rc)
		return rc;
	if (r->type != REDIS_REPLY_STRING && r->type != REDIS_REPLY_NIL)
		return redis_odd(kv, r, "GET", err);
	if (r->type == REDIS_REPLY_STRING) {
		out->len = (size_t)r->len;
		out->text = malloc(out->len + 1);
		if (!out->text) {
			freeReplyObject(r);
			return meta_kv_fail(kv, TEI_ERR_MEMORY, err, NULL,
					    "no memory for a value");
		}
		memcpy(out->text, r->str, out->len);
		out->text[out->len] = 0;
		out->version = redis_version(r->str, out->len);
	}
	freeReplyObject(r);
	return 0;
}

/* Writes the four arguments of the script for one key to argv and lens. */
static void redis_change(const struct meta_kv_change *c, char expected[24],
			 const char **argv, size_t *lens)
{
	argv[0] = c->what == META_KV_PUT ? "p" :
		  c->what == META_KV_REMOVE ? "r" : "c";
	if (c->expected == META_KV_ANY)
		snprintf(expected, 24, "*");
	else if (c->expected == META_ABSENT)
		snprintf(expected, 24, "-");
	else
		snprintf(expected, 24, "%0*" PRIx64, REDIS_DIGITS,
			 (uint64_t)c->expected);
	argv[1] = expected;
	argv[2] = c->leased ? "1" : "0";
	argv[3] = c->what == META_KV_PUT ? c->text : "";
	lens[0] = lens[2] = 1;
	lens[1] = strlen(expected);
	lens[3] = c->what == META_KV_PUT ? c->len : 0;
}

static int redis_commit(struct meta_kv *kv, struct meta_kv_change *changes,
			size_t count, uint64_t deadline_ns, struct tei_err *err)
{
	char expected[REDIS_CHANGES][24], number[8], lease[16];
	const char *argv[4 + 5 * REDIS_CHANGES];
	size_t lens[4 + 5 * REDIS_CHANGES], i, n = 0;
	struct redis_command cmd = { 0, argv, lens };
	redisReply *r;
	int rc;

	if (count > REDIS_CHANGES)
		return meta_kv_fail(kv, TEI_ERR_TOO_MANY, err, NULL,
				    "commit of %zu keys is too large", count);
	snprintf(number, sizeof(number), "%zu", count);
	snprintf(lease, sizeof(lease), "%u", kv->settings->store.lease_ms);
	argv[n++] = "EVAL";
	argv[n++] = redis_script;
	argv[n++] = number;
	for (i = 0; i < count; i++)
		argv[n++] = changes[i].key;
	argv[n++] = lease;
	for (i = 0; i < n; i++)
		lens[i] = strlen(argv[i]);
	for (i = 0; i < count; i++, n += 4)
		redis_change(&changes[i], expected[i], argv + n, lens + n);
	cmd.argc = (int)n;
	rc = redis_call(kv, &cmd, deadline_ns, &r, err);
	if (rc)
		return rc;
	if (r->type != REDIS_REPLY_INTEGER)
		return redis_odd(kv, r, "EVAL", err);
	rc = r->integer ? 0 : META_CONFLICT;
	freeReplyObject(r);
	for (i = 0; i < count && !rc; i++)
		if (changes[i].what == META_KV_PUT)
			changes[i].version = redis_version(changes[i].text,
							   changes[i].len);
	return rc;
}

/* Sets the expiry time of one key again. Sets *lost to true if the key does not
 * exist. */
static int redis_renew_key(struct meta_kv *kv, const char *key,
			   uint64_t deadline_ns, bool *lost,
			   struct tei_err *err)
{
	char lease[16];
	const char *argv[] = { "PEXPIRE", key, lease };
	const struct redis_command cmd = { 3, argv, NULL };
	redisReply *r;
	int rc;

	snprintf(lease, sizeof(lease), "%u", kv->settings->store.lease_ms);
	rc = redis_call(kv, &cmd, deadline_ns, &r, err);
	if (rc)
		return rc;
	*lost = *lost || r->type != REDIS_REPLY_INTEGER || !r->integer;
	freeReplyObject(r);
	return 0;
}

static int redis_renew(struct meta_kv *kv, const char *const *keys,
		       size_t count, uint64_t deadline_ns, bool *lost,
		       struct tei_err *err)
{
	size_t i;
	int rc = 0;

	for (i = 0; i < count && !rc; i++)
		rc = redis_renew_key(kv, keys[i], deadline_ns, lost, err);
	return rc;
}

/* Writes to out the pattern for SCAN that matches the keys which start with
 * prefix. */
static void redis_pattern(const char *prefix, char *out, size_t len)
{
	size_t n = 0;

	for (; *prefix && n + 3 < len; prefix++) {
		if (strchr("*?[]\\^-", *prefix))
			out[n++] = '\\';
		out[n++] = *prefix;
	}
	out[n++] = '*';
	out[n] = 0;
}

/* Adds the names in one reply to SCAN to names. Writes to cursor the value for
 * the next SCAN. */
static int redis_list_step(struct meta_kv *kv, const redisReply *r,
			   size_t prefix, char cursor[32],
			   struct meta_names *names, struct tei_err *err)
{
	const redisReply *keys;
	size_t i;

	if (r->type != REDIS_REPLY_ARRAY || r->elements != 2 ||
	    r->element[0]->type != REDIS_REPLY_STRING ||
	    r->element[1]->type != REDIS_REPLY_ARRAY)
		return meta_kv_fail(kv, TEI_ERR_METADATA, err, NULL,
				    "SCAN: unexpected reply");
	snprintf(cursor, 32, "%s", r->element[0]->str);
	keys = r->element[1];
	for (i = 0; i < keys->elements; i++)
		if (keys->element[i]->type == REDIS_REPLY_STRING &&
		    (size_t)keys->element[i]->len > prefix &&
		    !meta_names_add(names, keys->element[i]->str + prefix))
			return meta_kv_fail(kv, TEI_ERR_MEMORY, err, NULL,
					    "no memory for the list of keys");
	return 0;
}

static int redis_list(struct meta_kv *kv, const char *prefix,
		      uint64_t deadline_ns, struct meta_names *names,
		      struct tei_err *err)
{
	char pattern[2 * META_KV_KEY_MAX + 2], cursor[32] = "0";
	const char *argv[] = { "SCAN",  cursor,  "MATCH",
			       pattern, "COUNT", REDIS_SCAN };
	const struct redis_command cmd = { 6, argv, NULL };
	redisReply *r;
	int rc;

	redis_pattern(prefix, pattern, sizeof(pattern));
	do {
		rc = redis_call(kv, &cmd, deadline_ns, &r, err);
		if (rc)
			return rc;
		rc = redis_list_step(kv, r, strlen(prefix), cursor, names,
				     err);
		freeReplyObject(r);
	} while (!rc && strcmp(cursor, "0") != 0);
	return rc;
}

/* --- changes ------------------------------------------------------------- */

/*
 * Returns true if the server is configured to report changed keys. The driver
 * does not change that configuration, because it belongs to the administrator.
 */
static bool redis_reports(redisContext *c)
{
	redisReply *r = redisCommand(c, "CONFIG GET notify-keyspace-events");
	const char *flags;
	bool reports = false;

	if (r && r->type == REDIS_REPLY_ARRAY && r->elements == 2 &&
	    r->element[1]->type == REDIS_REPLY_STRING) {
		flags = r->element[1]->str;
		reports = strchr(flags, 'K') &&
			  (strchr(flags, 'A') ||
			   (strchr(flags, 'g') && strchr(flags, '$') &&
			    strchr(flags, 'x')));
	}
	if (r)
		freeReplyObject(r);
	return reports;
}

/* Handles one message of the subscription. Returns false if the server has
 * refused the subscription. */
static bool redis_message(struct meta_kv *kv, const redisReply *r)
{
	struct tei_err err;
	const char *key;

	if (r->type == REDIS_REPLY_ERROR) {
		redis_refused(kv, r->str, &err);
		return false;
	}
	if (r->type != REDIS_REPLY_ARRAY || !r->elements ||
	    r->element[0]->type != REDIS_REPLY_STRING)
		return true;
	if (!strcmp(r->element[0]->str, "psubscribe"))
		meta_kv_watching(kv);
	if (strcmp(r->element[0]->str, "pmessage") != 0 || r->elements < 4 ||
	    r->element[2]->type != REDIS_REPLY_STRING)
		return true;
	/* the channel is "__keyspace@DB__:KEY" */
	key = strstr(r->element[2]->str, "__:");
	/* renewing a lease causes the event "expire", which is not a change of
	 * the value */
	if (key && r->element[3]->type == REDIS_REPLY_STRING &&
	    strcmp(r->element[3]->str, "expire") != 0)
		meta_kv_changed(kv, key + 3);
	return true;
}

/*
 * Waits for a message. Returns true if input can be read. Returns false if the
 * store is being closed, or if the server does not answer PING. Checks the
 * buffer of hiredis before it calls poll, because poll does not report data in
 * that buffer.
 */
static bool redis_wait(struct meta_kv *kv, redisContext *c)
{
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	uint64_t heard = tei_now_ns(), silent;
	bool asked = false;
	int done;

	while (!meta_kv_stopping(kv)) {
		if (c->reader->pos < c->reader->len ||
		    poll(&p, 1, (int)(REDIS_WAIT_NS / TEI_NS_PER_MS)) > 0)
			return true;
		silent = tei_now_ns() - heard;
		if (silent > REDIS_DEAD_NS)
			return false;
		if (asked || silent < REDIS_PING_NS)
			continue;
		asked = true;
		if (redisAppendCommand(c, "PING") != REDIS_OK ||
		    redisBufferWrite(c, &done) != REDIS_OK)
			return false;
	}
	return false;
}

static void redis_subscribe(struct meta_kv *kv, redisContext *c)
{
	struct redis *rd = kv->state;
	char pattern[64];
	redisReply *r;
	bool fine = true;

	snprintf(pattern, sizeof(pattern), "__keyspace@%u__:mooncake/*",
		 rd->db);
	r = redisCommand(c, "PSUBSCRIBE %s", pattern);
	while (r && fine && !meta_kv_stopping(kv)) {
		fine = redis_message(kv, r);
		freeReplyObject(r);
		r = NULL;
		if (fine && redis_wait(kv, c))
			redisGetReply(c, (void **)&r);
	}
	if (r)
		freeReplyObject(r);
}

static void redis_watch(struct meta_kv *kv)
{
	struct redis *rd = kv->state;
	struct redis_use use;
	struct tei_err err;
	redisContext *c;

	/* SIGPIPE needs no handling here, because all signals are blocked in
	 * this thread */
	if (redis_connect(kv, kv_deadline(kv), &c, &err))
		return;
	redis_use(rd, &use, c);
	if (redis_reports(c)) {
		rd->polling = false;
		redis_subscribe(kv, c);
	} else if (!rd->polling) {
		rd->polling = true;
		TEI_INFO("meta",
			 "Redis %s does not report changed keys "
			 "(notify-keyspace-events); keys are read every "
			 "MOONRAIL_STORE_POLL_MS, %u ms",
			 kv->where, kv->settings->store.poll_ms);
	}
	redis_unuse(rd, &use);
	redisFree(c);
}

/* --- open and close ------------------------------------------------------ */

static void redis_close(struct meta_kv *kv)
{
	struct redis *rd = kv->state;

	while (rd->idle_count)
		redisFree(rd->idle[--rd->idle_count]);
	tei_mutex_fini(&rd->lock);
	free(rd);
}

static int redis_parse(struct redis *rd, const char *conn, struct tei_err *err)
{
	const char *rest = strstr(conn, "://") + 3;
	char text[TEI_META_HOST_MAX + 8], shown[TEI_META_SHOWN], *end;

	snprintf(text, sizeof(text), "%s", rest);
	end = text + strlen(text);
	if (end > text && end[-1] == '/')
		end[-1] = 0;
	/* An address contains no '@'. A text with '@' is refused, because it
	 * may contain a password. */
	if (strpbrk(text, "@,/") || strlen(rest) >= sizeof(text) ||
	    tei_meta_split(text, rd->host, &rd->port)) {
		tei_meta_conn_shown(conn, shown);
		return tei_err_fail(
			err, TEI_ERR_INVALID, "meta",
			"use redis://host:port, and MC_REDIS_USERNAME, "
			"MC_REDIS_PASSWORD and MC_REDIS_DB_INDEX for user, password and database",
			"metadata '%s': not the address of a Redis server",
			shown);
	}
	if (!rd->port)
		rd->port = REDIS_PORT;
	return 0;
}

static int redis_open(struct meta_kv *kv, const char *conn,
		      uint64_t deadline_ns, struct tei_err *err)
{
	struct redis *rd = calloc(1, sizeof(*rd));
	struct meta_kv_value v;
	int rc;

	if (!rd)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the metadata store");
	kv->state = rd;
	tei_mutex_init(&rd->lock);
	tei_list_init(&rd->uses);
	rd->user = kv->settings->store.redis_user;
	rd->password = kv->settings->store.redis_password;
	rd->db = kv->settings->store.redis_db;
	rc = redis_parse(rd, conn, err);
	if (!rc) {
		tei_meta_join(rd->host, rd->port, kv->where);
		rc = redis_get(kv, "mooncake/", deadline_ns, &v, err);
	}
	if (rc) {
		redis_close(kv);
		return rc;
	}
	free(v.text);
	kv->caps = META_KV_LEASE | META_KV_LIST | META_KV_WATCH;
	return 0;
}

static const struct meta_kv_ops redis_kv_ops = {
	.product = "Redis",
	.open = redis_open,
	.close = redis_close,
	.get = redis_get,
	.commit = redis_commit,
	.list = redis_list,
	.renew = redis_renew,
	.watch = redis_watch,
	.interrupt = redis_interrupt,
};

static int redis_store_open(struct tei_meta_store *store, const char *conn,
			    struct tei_err *err)
{
	return meta_kv_open(store, &redis_kv_ops, conn, err);
}

const struct meta_store_ops meta_redis_ops = {
	.scheme = "redis",
	.open = redis_store_open,
	META_KV_STORE_OPS,
};
