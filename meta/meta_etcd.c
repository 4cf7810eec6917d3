/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_auth_file.h"
#include "meta/meta_etcd.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"

/* The functions of the etcd driver, except the watch. meta_etcd.h describes the
 * design. */

#define ETCD_LIST_STEP "1000" /* greatest number of keys in one response of a
			       * listing */

/* --- values -------------------------------------------------------------- */

static bool etcd_get_pair(void *arg, const struct etcd_pair *pair)
{
	struct meta_kv_value *out = arg;

	free(out->text);
	out->text = malloc(pair->value_len + 1);
	if (!out->text)
		return false;
	memcpy(out->text, pair->value, pair->value_len + 1);
	out->len = pair->value_len;
	out->version = pair->version;
	return true;
}

static int etcd_get(struct meta_kv *kv, const char *key, uint64_t deadline_ns,
		    struct meta_kv_value *out, struct tei_err *err)
{
	struct etcd_call call = { .path = "/kv/range",
				  .limit = ETCD_LARGE,
				  .deadline_ns = deadline_ns };
	struct etcd_response r = { .pair = etcd_get_pair, .arg = out };
	int rc;

	out->text = NULL;
	out->len = 0;
	out->version = META_ABSENT;
	meta_buf_text(&call.body, "{\"key\":");
	etcd_put_bytes(&call.body, key, strlen(key));
	meta_buf_text(&call.body, "}");
	rc = etcd_call(kv, &call, &r, err);
	if (rc == ETCD_NO_LEASE)
		rc = meta_kv_fail(kv, TEI_ERR_METADATA, err, NULL, "%s",
				  r.message);
	if (!rc)
		return 0;
	free(out->text);
	out->text = NULL;
	out->len = 0;
	out->version = META_ABSENT;
	return rc;
}

/* --- the lease ----------------------------------------------------------- */

static uint64_t etcd_lease_id(struct etcd *e)
{
	uint64_t lease;

	tei_mutex_lock(&e->lock);
	lease = e->lease;
	tei_mutex_unlock(&e->lock);
	return lease;
}

/* Records that the server no longer has the lease. The keys that belonged to it
 * no longer exist either. */
static void etcd_lease_gone(struct etcd *e, uint64_t lease)
{
	tei_mutex_lock(&e->lock);
	if (e->lease == lease)
		e->lease = 0;
	e->lease_lost = true;
	tei_mutex_unlock(&e->lock);
}

/* Requests a new lease from the server and sets *lease to its ID. Called only
 * by the thread with the writer's token. */
static int etcd_grant(struct meta_kv *kv, uint64_t deadline_ns, uint64_t *lease,
		      struct tei_err *err)
{
	uint64_t ttl = (kv->settings->store.lease_ms + 999) / 1000;
	struct etcd_call call = { .path = "/lease/grant",
				  .limit = ETCD_SMALL,
				  .deadline_ns = deadline_ns };
	struct etcd_response r = { 0 };
	struct etcd *e = kv->state;
	int rc;

	meta_buf_text(&call.body, "{\"TTL\":\"");
	meta_buf_u64(&call.body, ttl);
	meta_buf_text(&call.body, "\"}");
	rc = etcd_call(kv, &call, &r, err);
	if (rc == ETCD_NO_LEASE || (!rc && !r.lease))
		return meta_kv_fail(kv, TEI_ERR_METADATA, err, NULL,
				    "the server granted no lease");
	if (rc)
		return rc;
	if ((uint64_t)r.ttl > ttl)
		TEI_INFO("meta",
			 "etcd %s grants leases of %lld s, not of "
			 "MOONRAIL_STORE_LEASE_MS, %u ms",
			 kv->where, (long long)r.ttl,
			 kv->settings->store.lease_ms);
	tei_mutex_lock(&e->lock);
	e->lease = r.lease;
	tei_mutex_unlock(&e->lock);
	*lease = r.lease;
	return 0;
}

static int etcd_renew(struct meta_kv *kv, const char *const *keys, size_t count,
		      uint64_t deadline_ns, bool *lost, struct tei_err *err)
{
	struct etcd_call call = { .path = "/lease/keepalive",
				  .limit = ETCD_SMALL,
				  .deadline_ns = deadline_ns };
	struct etcd_response r = { 0 };
	struct etcd *e = kv->state;
	uint64_t lease = etcd_lease_id(e);
	int rc = 0;

	(void)keys;
	(void)count;
	if (lease) {
		meta_buf_text(&call.body, "{\"ID\":\"");
		meta_buf_u64(&call.body, lease);
		meta_buf_text(&call.body, "\"}");
		rc = etcd_call(kv, &call, &r, err);
		/* if the server does not know the lease, the response has no
		 * TTL */
		if (rc == ETCD_NO_LEASE || (!rc && !r.ttl)) {
			etcd_lease_gone(e, lease);
			rc = 0;
		}
	}
	tei_mutex_lock(&e->lock);
	*lost = e->lease_lost;
	if (!rc)
		e->lease_lost = false;
	tei_mutex_unlock(&e->lock);
	return rc;
}

/* --- commits ------------------------------------------------------------- */

/*
 * Commits the changes. A response may be lost although the server has executed
 * the commit. The driver then sends the commit again, the versions do not match
 * any longer, and the result is META_CONFLICT. In this case the caller finds
 * its own record in the store.
 *
 * A server that has lost its data counts revisions from 1 again, so the
 * expected version may by chance be that of another process's key. The commit
 * fails nevertheless, because the server no longer has the lease. For this
 * reason the driver must not repeat a commit with a new lease.
 */
static int etcd_commit(struct meta_kv *kv, struct meta_kv_change *changes,
		       size_t count, uint64_t deadline_ns, struct tei_err *err)
{
	struct etcd_call call = { .path = "/kv/txn",
				  .limit = ETCD_SMALL,
				  .deadline_ns = deadline_ns };
	struct etcd_response r = { 0 };
	struct etcd *e = kv->state;
	uint64_t lease = etcd_lease_id(e);
	bool leased = false;
	size_t i;
	int rc = 0;

	for (i = 0; i < count; i++)
		leased = leased || changes[i].leased;
	if (leased && !lease)
		rc = etcd_grant(kv, deadline_ns, &lease, err);
	if (rc)
		return rc;
	etcd_put_commit(&call.body, changes, count, lease);
	rc = etcd_call(kv, &call, &r, err);
	if (rc == ETCD_NO_LEASE) {
		etcd_lease_gone(e, lease);
		return META_CONFLICT;
	}
	if (rc)
		return rc;
	if (!r.succeeded)
		return META_CONFLICT;
	for (i = 0; i < count; i++)
		if (changes[i].what == META_KV_PUT)
			changes[i].version = r.revision;
	return 0;
}

/* --- listings ------------------------------------------------------------ */

struct etcd_listing {
	struct meta_names *names;
	size_t prefix;	      /* length of the prefix, bytes */
	struct meta_buf last; /* the last key that was received, with a NUL
			       * appended: the first key of the next request */
};

static bool etcd_list_pair(void *arg, const struct etcd_pair *pair)
{
	struct etcd_listing *l = arg;

	l->last.len = 0;
	meta_buf_bytes(&l->last, pair->key, pair->key_len + 1);
	if (l->last.failed)
		return false;
	if (pair->key_len <= l->prefix || strlen(pair->key) != pair->key_len)
		return true;
	return meta_names_add(l->names, pair->key + l->prefix);
}

static int etcd_list(struct meta_kv *kv, const char *prefix,
		     uint64_t deadline_ns, struct meta_names *names,
		     struct tei_err *err)
{
	struct etcd_listing l = { .names = names, .prefix = strlen(prefix) };
	struct etcd_response r;
	struct etcd_call call;
	int rc;

	meta_buf_text(&l.last, prefix);
	do {
		memset(&call, 0, sizeof(call));
		call.path = "/kv/range";
		call.limit = ETCD_LARGE;
		call.deadline_ns = deadline_ns;
		memset(&r, 0, sizeof(r));
		r.pair = etcd_list_pair;
		r.arg = &l;
		meta_buf_text(&call.body,
			      "{\"keys_only\":true,\"limit\":\"" ETCD_LIST_STEP
			      "\",\"key\":");
		etcd_put_bytes(&call.body, l.last.text, l.last.len);
		meta_buf_text(&call.body, ",\"range_end\":");
		etcd_put_range_end(&call.body, prefix);
		meta_buf_text(&call.body, "}");
		if (l.last.failed)
			call.body.failed = true;
		rc = etcd_call(kv, &call, &r, err);
	} while (!rc && r.more);
	free(l.last.text);
	if (rc == ETCD_NO_LEASE)
		rc = meta_kv_fail(kv, TEI_ERR_METADATA, err, NULL, "%s",
				  r.message);
	return rc;
}

/* --- open and close ------------------------------------------------------ */

static void etcd_close(struct meta_kv *kv)
{
	struct etcd *e = kv->state;

	if (e->http)
		meta_http_free(e->http);
	if (e->auth)
		explicit_bzero(e->auth, strlen(e->auth));
	free(e->auth);
	tei_mutex_fini(&e->lock);
	explicit_bzero(e->token, sizeof(e->token));
	free(e);
}

static int etcd_set_up(struct meta_kv *kv, const char *conn,
		       uint64_t deadline_ns, struct tei_err *err)
{
	const struct tei_settings_store *set = &kv->settings->store;
	const struct meta_http_tls tls = {
		.ca_file = set->ca_file,
		.cert_file = set->cert_file,
		.key_file = set->key_file,
	};
	struct etcd *e = kv->state;
	struct meta_kv_value v;
	int rc = etcd_endpoints(kv, conn, err);

	if (!rc && *set->etcd_auth_file)
		rc = meta_auth_file_read("MOONRAIL_ETCD_AUTH_FILE",
					 set->etcd_auth_file, &e->auth, err);
	if (rc)
		return rc;
	e->http = meta_http_new(&tls);
	if (!e->http)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the metadata store");
	rc = etcd_get(kv, "mooncake/", deadline_ns, &v, err);
	if (!rc)
		free(v.text);
	return rc;
}

static int etcd_open(struct meta_kv *kv, const char *conn, uint64_t deadline_ns,
		     struct tei_err *err)
{
	struct etcd *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory for the metadata store");
	kv->state = e;
	tei_mutex_init(&e->lock);
	rc = etcd_set_up(kv, conn, deadline_ns, err);
	if (rc) {
		etcd_close(kv);
		return rc;
	}
	kv->caps = META_KV_LEASE | META_KV_LIST | META_KV_WATCH;
	return 0;
}

static void etcd_interrupt(struct meta_kv *kv)
{
	struct etcd *e = kv->state;

	meta_http_cancel(e->http);
}

static const struct meta_kv_ops etcd_kv_ops = {
	.product = "etcd",
	.open = etcd_open,
	.close = etcd_close,
	.get = etcd_get,
	.commit = etcd_commit,
	.list = etcd_list,
	.renew = etcd_renew,
	.watch = etcd_watch,
	.interrupt = etcd_interrupt,
};

static int etcd_store_open(struct tei_meta_store *store, const char *conn,
			   struct tei_err *err)
{
	return meta_kv_open(store, &etcd_kv_ops, conn, err);
}

const struct meta_store_ops meta_etcd_ops = {
	.scheme = "etcd",
	.open = etcd_store_open,
	META_KV_STORE_OPS,
};
