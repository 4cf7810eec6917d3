/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_kv.h"
#include "meta/meta_record.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "util/err.h"
#include "util/log.h"
#include "util/settings.h"

/*
 * The names that this process publishes in a key-value store. Only the thread
 * with the writer's token commits changes, so that callers and the keeper do
 * not interfere. If several processes want the same name, the version of the
 * key rpc_meta decides which of them gets it.
 *
 * The text of the latest call of meta_kv_publish is the one that the store is
 * to contain. If no server answers that call, the call fails, but the keeper
 * writes the text later.
 */

#define KV_LOST_HINT                                                     \
	"this process was suspended or could not reach the store, that " \
	"process could not reach it, or another user removed its keys"

/* The owner of a name, as read from the store. */
struct kv_owner {
	bool there;		/* the key rpc_meta exists */
	bool damaged;		/* the value of rpc_meta cannot be decoded */
	char endpoint[TEI_META_ENDPOINT_MAX];
	uint64_t incarnation; /* incarnation of the owner; 0: the owner does not
			       * use this library */
	int64_t version;      /* version of rpc_meta, or META_ABSENT if there
			       * is no key */
};

/* --- the writer's token -------------------------------------------------- */

static bool kv_writer_take(struct meta_kv *kv, uint64_t deadline_ns)
{
	bool taken;

	tei_mutex_lock(&kv->lock);
	while (kv->writing && tei_ns_left(deadline_ns))
		tei_mutex_wait(&kv->cond, &kv->lock, tei_ns_left(deadline_ns));
	taken = !kv->writing;
	if (taken)
		kv->writing = true;
	tei_mutex_unlock(&kv->lock);
	return taken;
}

/*
 * Takes the writer's token for a caller that publishes *text under name.
 * Returns false if the token is not free by the deadline. In this case, if the
 * name has an entry, stores *text in it for the keeper, and sets *text to NULL.
 */
static bool kv_writer_take_or_leave(struct meta_kv *kv, const char *name,
				    uint64_t deadline_ns, char **text,
				    size_t len)
{
	struct kv_name *n;
	bool taken;

	tei_mutex_lock(&kv->lock);
	while (kv->writing && tei_ns_left(deadline_ns))
		tei_mutex_wait(&kv->cond, &kv->lock, tei_ns_left(deadline_ns));
	taken = !kv->writing;
	if (taken)
		kv->writing = true;
	else
		tei_list_foreach(n, &kv->names, struct kv_name, link) {
			if (strcmp(n->name, name) != 0)
				continue;
			free(n->pending);
			n->pending = *text;
			n->pending_len = len;
			*text = NULL;
			kv_wake(kv);
			break;
		}
	tei_mutex_unlock(&kv->lock);
	return taken;
}

static void kv_writer_give(struct meta_kv *kv)
{
	tei_mutex_lock(&kv->lock);
	kv->writing = false;
	pthread_cond_broadcast(&kv->cond);
	tei_mutex_unlock(&kv->lock);
}

static int kv_writer_busy(struct meta_kv *kv, const char *name,
			  struct tei_err *err)
{
	return tei_err_fail(err, TEI_ERR_SOCKET, "meta", NULL,
			    "segment '%.64s': an earlier write to %s %s has not ended",
			    name, kv->ops->product, kv->where);
}

/* --- the list of names --------------------------------------------------- */

static void kv_name_free(struct kv_name *n)
{
	free(n->name);
	free(n->ram);
	free(n->rpc);
	free(n->text);
	free(n->pending);
	free(n->rpc_text);
	free(n);
}

void kv_names_free(struct meta_kv *kv) TEI_NO_TSA
{
	struct kv_name *n, *tmp;

	tei_list_foreach_safe(n, tmp, &kv->names, struct kv_name, link)
		kv_name_free(n);
	tei_list_init(&kv->names);
}

static char *kv_rpc_text(const struct meta_kv *kv)
{
	struct tei_meta_server *server = kv->store->server;

	return meta_rpc_encode(tei_meta_server_host(server),
			       tei_meta_server_port(server),
			       tei_meta_server_incarnation(server));
}

static struct kv_name *kv_name_new(struct meta_kv *kv, const char *name)
{
	const char *cluster = kv->settings->store.cluster_id;
	struct kv_name *n = calloc(1, sizeof(*n));
	char ram[META_KV_KEY_MAX], rpc[META_KV_KEY_MAX];

	if (!n)
		return NULL;
	tei_list_init(&n->link);
	if (!tei_meta_segment_key(cluster, name, ram, sizeof(ram)) &&
	    !tei_meta_rpc_key(cluster, name, rpc, sizeof(rpc))) {
		n->name = strdup(name);
		n->ram = strdup(ram);
		n->rpc = strdup(rpc);
		n->rpc_text = kv_rpc_text(kv);
	}
	if (n->name && n->ram && n->rpc && n->rpc_text)
		return n;
	kv_name_free(n);
	return NULL;
}

/* Returns the entry of name, or NULL if there is none. The caller has the
 * writer's token; the entry is valid as long as the caller has it. */
static struct kv_name *kv_name_find(struct meta_kv *kv, const char *name)
{
	struct kv_name *n, *found = NULL;

	tei_mutex_lock(&kv->lock);
	tei_list_foreach(n, &kv->names, struct kv_name, link)
		if (!strcmp(n->name, name))
			found = n;
	tei_mutex_unlock(&kv->lock);
	return found;
}

static void kv_name_mark(struct meta_kv *kv, struct kv_name *n, bool registered,
			 bool dirty)
{
	tei_mutex_lock(&kv->lock);
	n->registered = registered;
	n->dirty = dirty;
	n->lost = n->lost && !registered;
	if (registered && !kv->watched && !n->check_ns)
		n->check_ns = tei_now_ns() +
			      kv->settings->store.poll_ms * TEI_NS_PER_MS;
	kv_wake(kv);
	tei_mutex_unlock(&kv->lock);
}

/*
 * Called when the keys of a name could not be written. If "refused" is true,
 * another process owns the name, and the name becomes unregistered. Otherwise
 * the keeper writes the keys later, and still renews the lease of keys that
 * exist.
 */
static void kv_name_failed(struct meta_kv *kv, struct kv_name *n, bool refused)
{
	tei_mutex_lock(&kv->lock);
	n->dirty = !refused;
	n->registered = n->registered && !refused;
	if (!refused)
		kv->retry_ns = tei_now_ns() + META_KV_RETRY_NS;
	kv_wake(kv);
	tei_mutex_unlock(&kv->lock);
}

void kv_names_changed(struct meta_kv *kv, const char *key)
{
	struct kv_name *n;

	/* the check is delayed, because most changes are this process's own
	 * writes and come in bursts */
	tei_list_foreach(n, &kv->names, struct kv_name, link)
		if (!strcmp(n->rpc, key) || !strcmp(n->ram, key))
			n->check_ns = tei_now_ns() + META_KV_CHECK_NS;
}

void kv_names_check_all(struct meta_kv *kv)
{
	struct kv_name *n;

	tei_list_foreach(n, &kv->names, struct kv_name, link)
		n->check_ns = 1;
}

/* --- registration -------------------------------------------------------- */

static void kv_owner_text(const struct kv_owner *o, char *out, size_t len)
{
	snprintf(out, len, "%.60s, incarnation %016" PRIx64,
		 *o->endpoint ? o->endpoint : "an unknown address",
		 o->incarnation);
}

static int kv_owner_read(struct meta_kv *kv, const struct kv_name *n,
			 uint64_t deadline_ns, struct kv_owner *out,
			 struct tei_err *err)
{
	struct meta_kv_value v;
	int rc = kv_get(kv, n->rpc, deadline_ns, &v, err);

	memset(out, 0, sizeof(*out));
	out->version = META_ABSENT;
	if (rc || !v.text)
		return rc;
	out->there = true;
	out->version = v.version;
	out->damaged = !meta_rpc_decode(v.text, v.len, out->endpoint,
					&out->incarnation);
	if (out->damaged)
		out->endpoint[0] = 0;
	free(v.text);
	return 0;
}

/*
 * Returns true if the owner of a record is alive, because it answers a PING. An
 * owner that refuses the PING is alive too, unless the refusal shows that
 * another process has this address. If this process has no memory for the PING,
 * it assumes that the owner is alive. If the record contains no valid address,
 * no owner is alive.
 */
static bool kv_owner_alive(struct meta_kv *kv, const struct kv_owner *o,
			   uint64_t deadline_ns)
{
	uint64_t own = tei_meta_server_incarnation(kv->store->server);
	uint64_t until = tei_now_ns() + META_KV_PING_NS, inc;
	struct tei_err err;
	int rc;

	if (!*o->endpoint)
		return false;
	rc = tei_meta_ping(o->endpoint, kv->store->secret,
			   until < deadline_ns ? until : deadline_ns, &inc,
			   &err);
	if (rc == TEI_ERR_REJECTED)
		return !o->incarnation || err.prov_errno == TEI_META_DENIED ||
		       err.prov_errno == TEI_ERR_TOO_MANY;
	if (rc)
		return rc != TEI_ERR_SOCKET && rc != TEI_ERR_DNS;
	return inc != own && (!o->incarnation || inc == o->incarnation);
}

static int kv_refuse(struct meta_kv *kv, struct kv_name *n,
		     const struct kv_owner *o, struct tei_err *err)
{
	char who[META_KV_WHO];

	kv_owner_text(o, who, sizeof(who));
	tei_mutex_lock(&kv->lock);
	snprintf(n->lost_to, sizeof(n->lost_to), "%s", who);
	tei_mutex_unlock(&kv->lock);
	if (n->announced)
		return tei_err_fail(err, TEI_ERR_METADATA, "meta", KV_LOST_HINT,
				    "segment '%.24s' was lost to %s", n->name,
				    who);
	return tei_err_fail(err, TEI_ERR_METADATA, "meta",
			    "choose another server name, or end that process",
			    "segment '%.24s' is held by %s", n->name, who);
}

/* Writes both keys of the name if rpc_meta has the expected version. */
static int kv_write(struct meta_kv *kv, struct kv_name *n, int64_t expected,
		    uint64_t deadline_ns, struct tei_err *err)
{
	struct meta_kv_change c[] = {
		{ .key = n->rpc, .expected = expected, .what = META_KV_PUT,
		  .text = n->rpc_text, .len = strlen(n->rpc_text),
		  .leased = true },
		{ .key = n->ram, .expected = META_KV_ANY, .what = META_KV_PUT,
		  .text = n->text, .len = n->len, .leased = true },
	};
	int rc = kv_commit(kv, c, 2, deadline_ns, err);

	if (rc)
		return rc;
	n->version = c[0].version;
	n->announced = true;
	kv_name_mark(kv, n, true, false);
	return 0;
}

/*
 * Returns true if the calling thread is the keeper, this process has owned the
 * name before, and the record names another process now. In this case the
 * keeper must not take the name over, because two processes that cannot reach
 * each other would take it from one another forever. A caller of
 * meta_kv_publish may take it over.
 */
static bool kv_succeeded(const struct meta_kv *kv, const struct kv_name *n,
			 const struct kv_owner *o)
{
	return n->announced && o->incarnation &&
	       pthread_equal(pthread_self(), kv->keeper);
}

/*
 * Makes one attempt to register the name. Sets *refused to true if another
 * process keeps the name, because it is alive or because kv_succeeded is true.
 * Returns META_CONFLICT if the owner has changed during the attempt.
 */
static int kv_register_once(struct meta_kv *kv, struct kv_name *n,
			    uint64_t deadline_ns, bool *refused,
			    struct tei_err *err)
{
	uint64_t own = tei_meta_server_incarnation(kv->store->server);
	char who[META_KV_WHO];
	struct kv_owner o;
	int rc = kv_owner_read(kv, n, deadline_ns, &o, err);
	bool other = o.there && (o.damaged || o.incarnation != own);

	if (rc)
		return rc;
	*refused = other && (kv_succeeded(kv, n, &o) ||
			     kv_owner_alive(kv, &o,
					    deadline_ns + META_KV_PING_NS));
	if (*refused)
		return kv_refuse(kv, n, &o, err);
	rc = kv_write(kv, n, o.version, deadline_ns, err);
	if (!rc && other && !o.damaged) {
		kv_owner_text(&o, who, sizeof(who));
		TEI_WARN("meta",
			 "segment '%s': taken over from %s, which does not answer",
			 n->name, who);
	}
	return rc;
}

static int kv_register(struct meta_kv *kv, struct kv_name *n,
		       uint64_t deadline_ns, bool *refused, struct tei_err *err)
{
	int rc;

	do
		rc = kv_register_once(kv, n, deadline_ns, refused, err);
	while (rc == META_CONFLICT && tei_ns_left(deadline_ns) &&
	       !meta_kv_stopping(kv));
	if (rc != META_CONFLICT)
		return rc;
	return tei_err_fail(err, TEI_ERR_METADATA, "meta",
			    "other processes register the same name; choose another server name",
			    "segment '%.64s': its owner in %s %s keeps changing",
			    n->name, kv->ops->product, kv->where);
}

/* Writes the text of n to the store. Registers the name first if it is not
 * registered. */
static int kv_bring(struct meta_kv *kv, struct kv_name *n, uint64_t deadline_ns,
		    bool *refused, struct tei_err *err)
{
	bool registered;
	int rc = META_CONFLICT;

	*refused = false;
	tei_mutex_lock(&kv->lock);
	registered = n->registered;
	tei_mutex_unlock(&kv->lock);
	if (registered)
		rc = kv_write(kv, n, n->version, deadline_ns, err);
	if (rc == META_CONFLICT)
		rc = kv_register(kv, n, deadline_ns, refused, err);
	return rc;
}

/* --- calls of the store -------------------------------------------------- */

/*
 * Returns an error if the keeper has found that another process has taken the
 * name over, and 0 otherwise. If "report_loss" is true, the loss counts as
 * reported afterwards: the next call with report_loss returns 0, so that its
 * caller may register the name again.
 */
static int kv_report_lost(struct meta_kv *kv, struct kv_name *n,
			  bool report_loss, struct tei_err *err)
{
	char who[META_KV_WHO] = "";

	tei_mutex_lock(&kv->lock);
	if (n->lost && (n->loss_unreported || !report_loss))
		snprintf(who, sizeof(who), "%s", n->lost_to);
	if (report_loss)
		n->loss_unreported = false;
	tei_mutex_unlock(&kv->lock);
	if (!*who)
		return 0;
	return tei_err_fail(err, TEI_ERR_METADATA, "meta", KV_LOST_HINT,
			    "segment '%.24s' was lost to %s", n->name, who);
}

/*
 * Returns the entry of name, which is created if there is none, and stores text
 * in it as the value to publish. *known becomes true if the entry existed
 * before. If the name is not valid or memory is short, frees text and returns
 * NULL.
 */
static struct kv_name *kv_name_set(struct meta_kv *kv, const char *name,
				   char *text, size_t len, bool *known)
{
	struct kv_name *n = kv_name_find(kv, name);
	char *rpc;

	*known = n != NULL;
	if (!n)
		n = kv_name_new(kv, name);
	rpc = n ? kv_rpc_text(kv) : NULL;
	if (!rpc) {
		if (n && !*known)
			kv_name_free(n);
		free(text);
		return NULL;
	}
	free(n->rpc_text);
	n->rpc_text = rpc;
	free(n->text);
	n->text = text;
	n->len = len;
	tei_mutex_lock(&kv->lock);
	free(n->pending);
	n->pending = NULL;
	tei_mutex_unlock(&kv->lock);
	return n;
}

/* Publishes text under name and takes ownership of text. The caller has the
 * writer's token. */
static int kv_publish_text(struct meta_kv *kv, const char *name, char *text,
			   size_t len, bool report_loss, uint64_t deadline_ns,
			   struct tei_err *err)
{
	bool refused, known;
	struct kv_name *n = kv_name_set(kv, name, text, len, &known);
	int rc;

	if (!n)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta", NULL,
				    "segment '%.64s': the name is not valid "
				    "for a key, or memory is short",
				    name);
	rc = known ? kv_report_lost(kv, n, report_loss, err) : 0;
	if (rc)
		return rc;
	if (!known) {
		tei_mutex_lock(&kv->lock);
		tei_list_add_tail(&kv->names, &n->link);
		tei_mutex_unlock(&kv->lock);
	}
	rc = kv_bring(kv, n, deadline_ns, &refused, err);
	if (rc)
		kv_name_failed(kv, n, refused);
	return rc;
}

int meta_kv_publish(struct tei_meta_store *store,
		    const struct tei_meta_desc *desc, const char *json,
		    size_t len, bool report_loss, uint64_t deadline_ns,
		    struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	bool closed = store->secret != NULL;
	size_t n = len;
	char *text;
	int rc = 0;

	if (closed || !json || len > META_KV_INLINE_MAX) {
		rc = meta_head_encode(desc, tei_meta_server_name(store->server),
				      closed, &text, &n, err);
	} else {
		text = strndup(json, len);
		if (!text)
			rc = tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
					  "no memory to publish '%.64s'",
					  desc->name);
	}
	if (rc)
		return rc;
	if (!kv_writer_take_or_leave(kv, desc->name, deadline_ns, &text, n)) {
		free(text);
		return kv_writer_busy(kv, desc->name, err);
	}
	rc = kv_publish_text(kv, desc->name, text, n, report_loss, deadline_ns,
			     err);
	kv_writer_give(kv);
	return rc;
}

size_t meta_kv_inline_max(const struct tei_meta_store *store)
{
	return store->secret ? 0 : META_KV_INLINE_MAX;
}

bool meta_kv_owns(struct tei_meta_store *store, const char *name)
{
	struct meta_kv *kv = store->backend_state;
	struct kv_name *n;
	bool owns = false;

	tei_mutex_lock(&kv->lock);
	if (!kv->down)
		tei_list_foreach(n, &kv->names, struct kv_name, link)
			if (!strcmp(n->name, name))
				owns = n->registered && !n->dirty &&
				       !n->pending && !n->lost;
	tei_mutex_unlock(&kv->lock);
	return owns;
}

/* Removes the keys of a name from the store, if they belong to this process.
 * The name is not in kv->names any longer. */
static int kv_name_remove(struct meta_kv *kv, struct kv_name *n,
			  bool registered, uint64_t deadline_ns,
			  struct tei_err *err)
{
	uint64_t own = tei_meta_server_incarnation(kv->store->server);
	struct meta_kv_change c[] = {
		{ .key = n->rpc,
		  .expected = n->version,
		  .what = META_KV_REMOVE },
		{ .key = n->ram,
		  .expected = META_KV_ANY,
		  .what = META_KV_REMOVE },
	};
	struct kv_owner o;
	int rc = 0;

	if (!registered) {
		/* the server may have executed an earlier write whose answer
		 * was lost */
		rc = kv_owner_read(kv, n, deadline_ns, &o, err);
		if (rc || !o.there || o.incarnation != own)
			return rc;
		c[0].expected = o.version;
	}
	rc = kv_commit(kv, c, 2, deadline_ns, err);
	return rc == META_CONFLICT ? 0 : rc;
}

/* Removes the name from kv->names. Returns true if the store may contain its
 * keys. */
static bool kv_name_unlink(struct meta_kv *kv, struct kv_name *n,
			   bool *registered)
{
	bool ours;

	tei_mutex_lock(&kv->lock);
	tei_list_del(&n->link);
	*registered = n->registered;
	ours = n->registered || n->dirty;
	tei_mutex_unlock(&kv->lock);
	return ours;
}

/* Makes the keeper withdraw the name later. Called if another thread has the
 * writer's token. */
static void kv_withdraw_later(struct meta_kv *kv, const char *name)
{
	struct kv_name *n;

	tei_mutex_lock(&kv->lock);
	tei_list_foreach (n, &kv->names, struct kv_name, link)
		if (!strcmp(n->name, name))
			n->withdrawn = true;
	kv_wake(kv);
	tei_mutex_unlock(&kv->lock);
}

int meta_kv_withdraw(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns, struct tei_err *err)
{
	struct meta_kv *kv = store->backend_state;
	uint64_t now = tei_now_ns(), until = now + TEI_NS_PER_SEC;
	struct kv_name *n;
	bool registered;
	int rc = 0;

	/* the wait is short, so that a server that does not answer does not
	 * delay the end of the process */
	if (!kv_writer_take(kv, now + META_KV_CLOSE_NS < deadline_ns ?
					now + META_KV_CLOSE_NS :
					deadline_ns)) {
		kv_withdraw_later(kv, name);
		return kv_writer_busy(kv, name, err);
	}
	n = kv_name_find(kv, name);
	/* if no server answers, the keys disappear when the lease expires */
	if (n && kv_name_unlink(kv, n, &registered))
		rc = kv_name_remove(kv, n, registered,
				    until < deadline_ns ? until : deadline_ns,
				    err);
	if (n)
		kv_name_free(n);
	kv_writer_give(kv);
	return rc;
}

/* --- work of the keeper -------------------------------------------------- */

static void kv_name_lost(struct meta_kv *kv, struct kv_name *n)
{
	tei_mutex_lock(&kv->lock);
	n->registered = false;
	n->dirty = false;
	n->lost = n->loss_unreported = true;
	if (!*n->lost_to)
		snprintf(n->lost_to, sizeof(n->lost_to), "another process");
	tei_mutex_unlock(&kv->lock);
}

static void kv_check_later(struct meta_kv *kv, struct kv_name *n)
{
	tei_mutex_lock(&kv->lock);
	n->check_ns = tei_now_ns() + META_KV_RETRY_NS;
	tei_mutex_unlock(&kv->lock);
}

/*
 * Reads both keys of a registered name. Marks the name as dirty if another
 * process or user has removed or replaced one of them. Returns false if no
 * server has answered.
 */
static bool kv_name_check(struct meta_kv *kv, struct kv_name *n)
{
	struct meta_kv_value rpc, ram = { 0 };
	struct tei_err err;
	bool unchanged;
	int rc;

	rc = kv_get(kv, n->rpc, kv_deadline(kv), &rpc, &err);
	if (!rc)
		rc = kv_get(kv, n->ram, kv_deadline(kv), &ram, &err);
	if (rc) {
		free(rpc.text);
		kv_check_later(kv, n);
		return rc != TEI_ERR_SOCKET;
	}
	unchanged = rpc.text && rpc.version == n->version && ram.text &&
		    ram.len == n->len && !memcmp(ram.text, n->text, n->len);
	free(rpc.text);
	free(ram.text);
	if (!unchanged)
		TEI_WARN("meta",
			 "segment '%s': its keys in %s %s were removed or replaced; publishing it again",
			 n->name, kv->ops->product, kv->where);
	kv_name_mark(kv, n, unchanged, !unchanged);
	return true;
}

/* Returns true if the keeper must write the keys of the name. */
static bool kv_name_unwritten(const struct meta_kv *kv, const struct kv_name *n)
	TEI_REQUIRES(kv->lock)
{
	(void)kv;
	return n->dirty || (n->pending && !n->lost);
}

/* Replaces the text of n by the newer text that a caller has left in
 * n->pending. The caller has the writer's token. */
static void kv_name_adopt(struct meta_kv *kv, struct kv_name *n)
	TEI_REQUIRES(kv->lock)
{
	(void)kv;
	if (!n->pending)
		return;
	free(n->text);
	n->text = n->pending;
	n->len = n->pending_len;
	n->pending = NULL;
	n->dirty = true;
}

/* Returns the next name for which work is due. Sets *check to true if the keys
 * of the name must be checked, and to false if they must be written. */
static struct kv_name *kv_name_due(struct meta_kv *kv, bool *check)
{
	uint64_t now = tei_now_ns();
	struct kv_name *n, *found = NULL;

	tei_mutex_lock(&kv->lock);
	if (!kv->stop && kv->retry_ns <= now)
		tei_list_foreach(n, &kv->names, struct kv_name, link) {
			if (found || !(kv_name_unwritten(kv, n) ||
				       (n->registered && n->check_ns &&
					n->check_ns <= now)))
				continue;
			found = n;
			kv_name_adopt(kv, n);
			*check = !n->dirty;
			n->check_ns = 0;
		}
	tei_mutex_unlock(&kv->lock);
	return found;
}

/* Publishes the name again, for the keeper. Returns false if no server has
 * answered. */
static bool kv_republish(struct meta_kv *kv, struct kv_name *n)
{
	char *rpc = kv_rpc_text(kv);
	struct tei_err err;
	bool refused;
	int rc;

	if (rpc) {
		free(n->rpc_text);
		n->rpc_text = rpc;
	}
	rc = kv_bring(kv, n, kv_deadline(kv), &refused, &err);
	if (!rc)
		TEI_INFO("meta", "segment '%s': published again", n->name);
	else if (refused)
		kv_name_lost(kv, n);
	else
		kv_name_failed(kv, n, false);
	return !rc || refused;
}

/* Withdraws the names that a caller could not withdraw, because another thread
 * had the writer's token. */
static void kv_remove_withdrawn(struct meta_kv *kv)
{
	struct kv_name *n, *tmp, *found;
	struct tei_err err;
	bool registered;

	do {
		found = NULL;
		tei_mutex_lock(&kv->lock);
		tei_list_foreach_safe (n, tmp, &kv->names, struct kv_name, link)
			if (n->withdrawn)
				found = n;
		tei_mutex_unlock(&kv->lock);
		if (!found)
			return;
		if (kv_name_unlink(kv, found, &registered))
			kv_name_remove(kv, found, registered, kv_deadline(kv),
				       &err);
		kv_name_free(found);
	} while (found);
}

static uint64_t kv_names_next(struct meta_kv *kv)
{
	struct kv_name *n;
	uint64_t next = UINT64_MAX, at;

	tei_mutex_lock(&kv->lock);
	tei_list_foreach(n, &kv->names, struct kv_name, link) {
		at = kv_name_unwritten(kv, n) ? kv->retry_ns :
		     n->registered && n->check_ns ? n->check_ns : UINT64_MAX;
		if (at < kv->retry_ns)
			at = kv->retry_ns;
		if (at < next)
			next = at;
	}
	tei_mutex_unlock(&kv->lock);
	return next;
}

uint64_t kv_names_run(struct meta_kv *kv)
{
	struct kv_name *n;
	bool check, fine = true;

	if (!kv_writer_take(kv, kv_deadline(kv)))
		return tei_now_ns() + META_KV_RETRY_NS;
	kv_remove_withdrawn(kv);
	while (fine && (n = kv_name_due(kv, &check)))
		fine = check ? kv_name_check(kv, n) : kv_republish(kv, n);
	kv_writer_give(kv);
	return kv_names_next(kv);
}
