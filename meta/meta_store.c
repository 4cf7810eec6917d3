/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "meta/meta_json.h"
#include "meta/meta_store_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"

/* A name that this process has published; tei_meta_store_close withdraws it. */
struct store_name {
	struct tei_list link;
	char name[TEI_META_NAME_MAX];
};

/*
 * Schemes and their back ends. A scheme is the part of the connection string
 * before "://" and may be written in upper or lower case. P2PHANDSHAKE has no
 * "://" and must be written in upper case.
 */
static const struct store_scheme {
	const char *scheme;
	/* functions of the back end, or NULL if it is not built in */
	const struct meta_store_ops *ops;
	const char *option; /* option of ./configure with which the back end is
			     * not built in */
} store_schemes[] = {
	{ "P2PHANDSHAKE", &meta_p2p_ops, NULL },
#ifdef TEI_HAVE_ZOOKEEPER
	{ "zookeeper", &meta_zookeeper_ops, NULL },
#else
	{ "zookeeper", NULL, "--disable-zookeeper" },
#endif
#ifdef TEI_HAVE_ETCD
	{ "etcd", &meta_etcd_ops, NULL },
#else
	{ "etcd", NULL, "--disable-etcd" },
#endif
#ifdef TEI_HAVE_REDIS
	{ "redis", &meta_redis_ops, NULL },
#else
	{ "redis", NULL, "--disable-redis" },
#endif
#ifdef TEI_HAVE_HTTP
	{ "http", &meta_http_ops, NULL },
	{ "https", &meta_http_ops, NULL },
#else
	{ "http", NULL, "--disable-http" },
	{ "https", NULL, "--disable-http" },
#endif
	{ "inside", &meta_inside_ops, NULL },
};

#define STORE_SCHEMES	(sizeof(store_schemes) / sizeof(store_schemes[0]))

static void store_built_in(char *out, size_t len)
{
	const char *comma = "";
	size_t i, used = 0;

	out[0] = 0;
	for (i = 0; i < STORE_SCHEMES && used < len; i++) {
		if (!store_schemes[i].ops)
			continue;
		used += (size_t)snprintf(out + used, len - used, "%s%s%s",
					 comma, store_schemes[i].scheme,
					 i ? "://" : "");
		comma = ", ";
	}
}

/*
 * Returns true if text is a list of host:port without a scheme. Such a list
 * stands for etcd, as in Mooncake. Any other text without a scheme is an error.
 */
static bool store_host_list(const char *text)
{
	char one[TEI_META_ENDPOINT_MAX], host[TEI_META_HOST_MAX];
	uint16_t port;
	size_t len;

	for (;; text += len + 1) {
		len = strcspn(text, ",;");
		if (len >= sizeof(one))
			return false;
		snprintf(one, sizeof(one), "%.*s", (int)len, text);
		if (tei_meta_split(one, host, &port) || !port)
			return false;
		if (!text[len])
			return true;
	}
}

static const struct store_scheme *store_scheme_of(const char *text)
{
	const char *sep = strstr(text, "://");
	size_t i, len = sep ? (size_t)(sep - text) : 0;

	if (!strcmp(text, store_schemes[0].scheme))
		return &store_schemes[0];
	for (i = 1; i < STORE_SCHEMES; i++)
		if (sep ? strlen(store_schemes[i].scheme) == len &&
			  !strncasecmp(text, store_schemes[i].scheme, len) :
		    !strcmp(store_schemes[i].scheme, "etcd"))
			return &store_schemes[i];
	return NULL;
}

static int store_refuse(const char *text, const struct store_scheme *s,
			struct tei_err *err)
{
	char built_in[96], shown[TEI_META_SHOWN];

	tei_meta_conn_shown(text, shown);
	store_built_in(built_in, sizeof(built_in));
	if (s && !strstr(text, "://") && !store_host_list(text))
		return tei_err_fail(err, TEI_ERR_NOT_IMPLEMENTED, "meta",
				    "etcd://host:port[,...] or "
				    "zookeeper://host:port[,...]; a bare "
				    "host:port means etcd",
				    "metadata '%s': no scheme (built in: %s)",
				    shown, built_in);
	if (!s)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta", NULL,
				    "metadata '%s': unknown scheme (built in: %s)",
				    shown, built_in);
	if (s->option)
		return tei_err_fail(err, TEI_ERR_NOT_IMPLEMENTED, "meta",
				    "configure the library without the option, "
				    "or use P2PHANDSHAKE",
				    "metadata '%s': this library was "
				    "configured with %s (built in: %s)",
				    shown, s->option, built_in);
	return tei_err_fail(err, TEI_ERR_NOT_IMPLEMENTED, "meta", NULL,
			    "metadata '%s': %s is not built in (built in: %s)",
			    shown, s->scheme, built_in);
}

int tei_meta_store_open(const char *conn_string,
			const struct tei_settings *settings,
			struct tei_meta_store **out, struct tei_err *err)
{
	const struct store_scheme *scheme;
	struct tei_meta_store *s;
	int rc;

	if (!conn_string || !*conn_string)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta",
				    "P2PHANDSHAKE needs no server",
				    "empty metadata connection string");
	scheme = store_scheme_of(conn_string);
	if (!scheme || !scheme->ops ||
	    (!strstr(conn_string, "://") && scheme != &store_schemes[0] &&
	     !store_host_list(conn_string)))
		return store_refuse(conn_string, scheme, err);
	s = calloc(1, sizeof(*s));
	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "out of memory");
	s->ops = scheme->ops;
	s->settings = settings;
	tei_mutex_init(&s->lock);
	tei_list_init(&s->published);
	rc = *settings->control.secret_file
		     ? tei_secret_load(settings->control.secret_file,
				       &s->secret, err)
		     : 0;
	if (!rc && s->ops->open)
		rc = s->ops->open(s, conn_string, err);
	if (rc) {
		tei_secret_free(s->secret);
		tei_mutex_fini(&s->lock);
		free(s);
		return rc;
	}
	*out = s;
	return 0;
}

static uint64_t store_close_deadline(const struct tei_meta_store *s)
{
	return tei_now_ns() +
	       s->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
}

void tei_meta_store_close(struct tei_meta_store *s)
{
	struct store_name *n, *tmp;

	if (!s)
		return;
	tei_list_foreach_safe(n, tmp, &s->published, struct store_name, link) {
		if (s->ops->withdraw)
			s->ops->withdraw(s, n->name, store_close_deadline(s),
					 NULL);
		tei_meta_server_withdraw(s->server, n->name);
		free(n);
	}
	if (s->ops->close)
		s->ops->close(s);
	tei_secret_free(s->secret);
	tei_mutex_fini(&s->lock);
	free(s);
}

const struct tei_secret *
tei_meta_store_secret(const struct tei_meta_store *s)
{
	return s->secret;
}

uint32_t tei_meta_store_caps(const struct tei_meta_store *s)
{
	return s->ops->caps;
}

const char *tei_meta_store_scheme(const struct tei_meta_store *s)
{
	return s->ops->scheme;
}

void tei_meta_store_attach(struct tei_meta_store *s,
			   struct tei_meta_server *server)
{
	s->server = server;
}

static struct store_name *store_named(struct tei_meta_store *s,
				      const char *name) TEI_REQUIRES(s->lock)
{
	struct store_name *n;

	tei_list_foreach(n, &s->published, struct store_name, link)
		if (!strcmp(n->name, name))
			return n;
	return NULL;
}

/* Adds name to the list of published names. Returns false if memory is
 * short. */
static bool store_note(struct tei_meta_store *s, const char *name)
{
	struct store_name *n;

	tei_mutex_lock(&s->lock);
	n = store_named(s, name);
	if (!n) {
		n = calloc(1, sizeof(*n));
		if (n) {
			strncpy(n->name, name, sizeof(n->name) - 1);
			tei_list_add_tail(&s->published, &n->link);
		}
	}
	tei_mutex_unlock(&s->lock);
	return n != NULL;
}

static bool store_forget(struct tei_meta_store *s, const char *name)
{
	struct store_name *n;

	tei_mutex_lock(&s->lock);
	n = store_named(s, name);
	if (n)
		tei_list_del(&n->link);
	tei_mutex_unlock(&s->lock);
	free(n);
	return n != NULL;
}

/* Publishes desc. Gives its text to the process's own server first, because the
 * store may refer peers to that server as soon as it has the descriptor. */
static int store_publish(struct tei_meta_store *s, struct tei_meta_desc *desc,
			 bool report_loss, uint64_t deadline_ns,
			 struct tei_err *err)
{
	char *json;
	size_t len;
	int rc;

	if (!s->server)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "segment '%.64s': no control channel is open to publish the descriptor",
				    desc->name);
	rc = tei_meta_desc_encode(desc, &json, &len, err);
	if (rc)
		return rc;
	rc = tei_meta_server_publish(s->server, desc->name, json, len, err);
	if (!rc && !store_note(s, desc->name)) {
		tei_meta_server_withdraw(s->server, desc->name);
		rc = tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				  "segment '%.64s': out of memory", desc->name);
	}
	if (!rc && s->ops->publish)
		rc = s->ops->publish(s, desc, json, len, report_loss,
				     deadline_ns, err);
	free(json);
	return rc;
}

int tei_meta_store_publish(struct tei_meta_store *s,
			   struct tei_meta_desc *desc, uint64_t deadline_ns,
			   struct tei_err *err)
{
	return store_publish(s, desc, true, deadline_ns, err);
}

int tei_meta_store_update(struct tei_meta_store *s, struct tei_meta_desc *desc,
			  uint64_t deadline_ns, struct tei_err *err)
{
	return store_publish(s, desc, false, deadline_ns, err);
}

/*
 * Encodes the descriptor as JSON text. If the back end does not store a text of
 * that length, *json, which the caller has set to NULL, is NULL afterwards; the
 * caller then publishes a descriptor head.
 */
static int store_inline(const struct tei_meta_store *s,
			const struct tei_meta_desc *desc, char **json,
			size_t *len, struct tei_err *err)
{
	size_t max = s->ops->inline_max ? s->ops->inline_max(s) : SIZE_MAX;
	int rc;

	if (!max)
		return 0;
	rc = tei_meta_desc_encode(desc, json, len, err);
	if (!rc && *len > max) {
		free(*json);
		*json = NULL;
	}
	return rc;
}

int tei_meta_store_bring(struct tei_meta_store *s, struct tei_meta_desc *desc,
			 uint32_t flags, uint64_t deadline_ns, bool *listed,
			 struct tei_err *err)
{
	char *json = NULL;
	size_t len = 0;
	int rc = 0;

	if (!store_note(s, desc->name))
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "segment '%.64s': out of memory", desc->name);
	if (!s->ops->publish) {
		*listed = false;
		return 0;
	}
	if (!(flags & TEI_META_HEAD))
		rc = store_inline(s, desc, &json, &len, err);
	if (!rc)
		rc = s->ops->publish(s, desc, json, len,
				     flags & TEI_META_REPORT_LOSS, deadline_ns,
				     err);
	if (!rc)
		*listed = json != NULL;
	free(json);
	return rc;
}

bool tei_meta_store_owns(struct tei_meta_store *s, const char *name)
{
	return !s->ops->owns || s->ops->owns(s, name);
}

int tei_meta_store_withdraw(struct tei_meta_store *s, const char *name,
			    uint64_t deadline_ns, struct tei_err *err)
{
	int rc = 0;

	if (!name || !store_forget(s, name))
		return tei_err_fail(err, TEI_ERR_METADATA, "meta", NULL,
				    "segment '%.64s': this process has not published the segment", name ? name :
				    "");
	if (s->ops->withdraw)
		rc = s->ops->withdraw(s, name, deadline_ns, err);
	tei_meta_server_withdraw(s->server, name);
	return rc;
}

/*
 * Returns an error if the descriptor names files and is not a persistent
 * segment record. A process that uses the segment opens these paths with its
 * own permissions. Therefore only an administrator may choose the paths, in a
 * persistent segment record; another process must not.
 */
static int store_files(const char *name, const struct tei_meta_desc *desc,
		       struct tei_err *err)
{
	if (!desc->file_count || tei_meta_persistent_name(name))
		return 0;
	return tei_err_fail(err, TEI_ERR_REJECTED, "meta",
			    "only segments nvmeof/NAME, created by te_meta register, may name files",
			    "segment '%.64s': its descriptor names files",
			    name);
}

/* Decodes the text of a descriptor. Returns an error for the descriptor of a
 * Mooncake process. */
static int store_decode(const char *name, const char *json, size_t len,
			struct tei_meta_desc **out, struct tei_err *err)
{
	if (!meta_desc_of_mooncake(json, len))
		return meta_desc_decode_as(name, json, len, out, err);
	return tei_err_fail(err, TEI_ERR_REJECTED, "meta",
			    "a process that uses moonrail must publish it",
			    "'%.64s': this segment belongs to a Mooncake process; moonrail's wire protocol differs",
			    name);
}

int tei_meta_store_fetch(struct tei_meta_store *s, const char *name,
			 uint64_t deadline_ns, struct tei_meta_desc **out,
			 struct tei_err *err)
{
	struct tei_meta_desc *desc;
	char *json;
	size_t len;
	int rc;

	if (!name || !*name)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "empty segment name");
	rc = s->ops->fetch(s, name, deadline_ns, &json, &len, err);
	if (rc)
		return rc;
	rc = store_decode(name, json, len, &desc, err);
	free(json);
	if (rc)
		return rc;
	rc = store_files(name, desc, err);
	if (rc)
		tei_meta_desc_unref(desc);
	else
		*out = desc;
	return rc;
}

int tei_meta_store_text(struct tei_meta_store *s, const char *name,
			uint64_t deadline_ns, char **json, size_t *len,
			struct tei_err *err)
{
	const char *what = NULL;
	struct meta_json j;
	int rc;

	if (!strncmp(name, TEI_META_PROCESSES, strlen(TEI_META_PROCESSES)))
		name += strlen(TEI_META_PROCESSES);
	rc = s->ops->fetch(s, name, deadline_ns, json, len, err);
	if (rc)
		return rc;
	meta_json_init(&j, *json, *len);
	if (!meta_json_skip(&j) || !meta_json_done(&j))
		what = j.why;
	meta_json_fini(&j);
	if (!what)
		return 0;
	free(*json);
	return tei_err_fail(err, TEI_ERR_JSON, "meta", NULL,
			    "descriptor of segment '%.64s': %s", name, what);
}

int tei_meta_store_resolve(struct tei_meta_store *s, const char *server,
			   uint64_t deadline_ns,
			   char endpoint[TEI_META_ENDPOINT_MAX],
			   struct tei_err *err)
{
	return s->ops->resolve(s, server, deadline_ns, endpoint, err);
}

int tei_meta_store_check(struct tei_meta_store *s, uint64_t deadline_ns,
			 struct tei_err *err)
{
	return s->ops->check ? s->ops->check(s, deadline_ns, err) : 0;
}

void tei_meta_store_watch(struct tei_meta_store *s, tei_meta_changed_fn fn,
			  tei_meta_wanted_fn wanted, void *arg)
{
	if (s->ops->watch)
		s->ops->watch(s, fn, wanted, arg);
}

void tei_meta_store_notify_again(struct tei_meta_store *s, const char *name)
{
	if (s->ops->notify_again)
		s->ops->notify_again(s, name);
}
