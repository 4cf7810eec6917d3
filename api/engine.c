/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creation and destruction of engines; the own descriptor.
 */
#include "api/engine_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/engine_transport.h"
#include "api/transport_rail.h"
#include "topo/tei_topo.h"

struct engine *engine_from(transfer_engine_t handle)
{
	static const struct tei_err bad = {
		.code = TEI_ERR_INVALID,
		.text = "no such engine: NULL, destroyed or invented handle",
	};
	static const struct tei_err forked = {
		.code = TEI_ERR_INVALID,
		.text = "this engine belongs to the parent process",
		.hint = "create an engine after fork()",
	};
	struct engine *e = handle;

	if (!engine_handle_known(handle)) {
		tei_err_set_last(&bad);
		return NULL;
	}
	if (e->fork_gen != engine_fork_gen()) {
		tei_err_set_last(&forked);
		return NULL;
	}
	return e;
}

int engine_bad(struct engine *e, const char *call, const char *what)
{
	struct tei_err err = { .code = TEI_ERR_INVALID };

	if (!e)
		return TEI_ERR_INVALID;
	err.when_ns = tei_now_ns();
	snprintf(err.text, sizeof(err.text), "%s: %s", call,
		 what ? what : "an argument is NULL, empty or out of range");
	tei_err_set_last(&err);
	TEI_LOG_LIMITED(&e->bad_limit, TEI_LOG_ERROR, "engine", "%s", err.text);
	return TEI_ERR_INVALID;
}

uint64_t engine_deadline(const struct engine *e)
{
	return tei_now_ns() + e->settings.connect_timeout_s * TEI_NS_PER_SEC;
}

/* --- the own descriptor -------------------------------------------------- */

static int engine_desc_rails(struct engine *e, struct tei_meta_desc *desc,
			     struct engine_desc_rails *rails,
			     struct tei_err *err)
{
	struct tei_rail_desc d;
	struct tei_meta_first first;
	struct tei_meta_rail rail;
	bool have_first = false;
	size_t i;
	int ret = 0;

	rails->n = 0;
	for (i = 0; i < tei_rail_count(e->dp) && !ret; i++) {
		memset(&rail, 0, sizeof(rail));
		if (tei_rail_describe(e->dp, i, &d) || !d.open || d.hidden)
			continue;
		snprintf(rail.name, sizeof(rail.name), "%s", d.name);
		snprintf(rail.provider, sizeof(rail.provider), "%s",
			 d.provider);
		engine_addr_pack(&d.known, &rail.address);
		ret = tei_meta_desc_add_rail(desc, &rail, err);
		rails->rail[rails->n++] = i;
		if (ret || have_first || !d.known.len)
			continue;
		memset(&first, 0, sizeof(first));
		snprintf(first.provider, sizeof(first.provider), "%s",
			 d.provider);
		first.address = rail.address;
		ret = tei_meta_desc_set_first(desc, &first, err);
		have_first = true;
	}
	return ret;
}

/*
 * Returns the end of the bytes from at on that have the same location, and
 * writes that location to where. parts is the parsed r->parts.
 */
static const char *engine_desc_part(const struct engine_region *r,
				    const struct tei_topo_where *parts,
				    const char *at, char where[TEI_TOPO_NAME])
{
	const char *start = r->addr;
	char next[TEI_TOPO_NAME];
	uint64_t end, more;

	if (!r->parts) {
		snprintf(where, TEI_TOPO_NAME, "%s", r->location);
		return start + r->length;
	}
	tei_topo_where_part(parts, r->length, (uint64_t)(at - start), where,
			    &end);
	for (; end < r->length; end = more) {
		tei_topo_where_part(parts, r->length, end, next, &more);
		if (strcmp(next, where))
			break;
	}
	return start + end;
}

/* Returns the length of the entry that begins at `at`. All bytes of an entry
 * have the same keys and the same location. */
static uint64_t engine_desc_piece(struct engine *e,
				  const struct engine_region *r,
				  const struct tei_topo_where *parts,
				  const char *at)
{
	char where[TEI_TOPO_NAME];
	const char *part = engine_desc_part(r, parts, at, where);
	uint64_t len = tei_rail_mr_piece(e->dp, at);

	return len && len < (uint64_t)(part - at) ? len :
						    (uint64_t)(part - at);
}

int engine_desc_collect(struct engine *e,
			const struct engine_desc_rails *rails,
			const struct engine_region *r,
			struct engine_pieces *out, struct tei_err *err)
{
	const char *at = r->addr, *end = at + r->length;
	struct engine_pieces p = { .keys = (uint32_t)rails->n };
	size_t words = rails->n + 1, cap = 0, k;
	struct tei_topo_where parts;
	uint64_t *grown, *piece;
	int ret;

	ret = tei_topo_where_parse(r->parts, &parts, err);
	for (; at < end && !ret; at += *piece) {
		if (p.n == cap) {
			cap = cap ? 2 * cap : 1;
			grown = realloc(p.word, cap * words * sizeof(*grown));
			if (!grown) {
				free(p.word);
				return tei_err_fail(err, TEI_ERR_MEMORY,
						    "engine", NULL,
						    "no memory for a region");
			}
			p.word = grown;
		}
		piece = &p.word[p.n++ * words];
		memset(piece, 0, words * sizeof(*piece));
		*piece = engine_desc_piece(e, r, &parts, at);
		for (k = 0; k < rails->n; k++)
			tei_rail_mr_key(e->dp, at, rails->rail[k],
					&piece[1 + k]);
	}
	if (!ret)
		*out = p;
	return ret;
}

/* Adds one buffer for each entry of the region. */
static int engine_desc_region(const struct engine_region *r,
			      struct tei_meta_desc *desc, struct tei_err *err)
{
	const struct engine_pieces *p = &r->pieces;
	const char *at = r->addr;
	struct tei_topo_where parts;
	char where[TEI_TOPO_NAME];
	const uint64_t *piece;
	size_t i;
	int ret;

	ret = tei_topo_where_parse(r->parts, &parts, err);
	for (i = 0; i < p->n && !ret; i++, at += *piece) {
		piece = &p->word[i * (p->keys + 1)];
		engine_desc_part(r, &parts, at, where);
		ret = tei_meta_desc_add_buffer(desc, where, (uintptr_t)at,
					       *piece, piece + 1, NULL, err);
	}
	return ret;
}

int engine_desc_buffers(struct engine *e, struct tei_meta_desc *desc,
			struct tei_err *err)
{
	uint32_t i;
	int ret = 0;

	/* A registration sets the region's pieces without this lock, and listed
	 * with it. A region whose number of keys differs is left out: it was
	 * registered before the rails of desc changed. */
	for (i = 0; i < e->nregions && !ret; i++)
		if (e->regions[i].listed &&
		    e->regions[i].pieces.keys == desc->rail_count)
			ret = engine_desc_region(&e->regions[i], desc, err);
	return ret;
}

static int engine_desc_extras(struct engine *e, struct tei_meta_desc *desc,
			      struct tei_err *err)
{
	char text[TEI_META_LOCAL_MAX], *json;
	struct tei_local_id id;
	int ret = 0;

	if (__atomic_load_n(&e->local_on, __ATOMIC_RELAXED) &&
	    !tei_local_identity(e->local, &id) &&
	    !engine_local_format(e, &id, text, sizeof(text)))
		ret = tei_meta_desc_set_local(desc, text, err);
	if (!ret && e->topo && !tei_topo_json(e->topo, &json)) {
		ret = tei_meta_desc_set_matrix(desc, json, err);
		free(json);
	}
	return ret;
}

static const char *engine_protocol(const struct engine *e)
{
	int i;

	for (i = 0; i < ENGINE_TRANSPORTS; i++)
		if (e->transports[i].installed &&
		    e->transports[i].by == &transport_rail)
			return e->transports[i].name;
	return "local";
}

int engine_desc_head(struct engine *e, struct engine_desc_rails *rails,
		     struct tei_meta_desc **out, struct tei_err *err)
{
	struct tei_meta_desc *desc;
	int ret;

	ret = tei_meta_desc_create(e->name, engine_protocol(e), e->incarnation,
				   &desc, err);
	if (ret)
		return ret;
	ret = engine_desc_rails(e, desc, rails, err);
	if (!ret)
		ret = engine_desc_extras(e, desc, err);
	return tei_meta_desc_finish(desc, ret, out, err);
}

/* --- creation ------------------------------------------------------------ */

static void engine_resolve(void *arg, struct tei_rail_peer *peer)
{
	engine_work_resolve(arg, peer);
}

static void engine_rails_changed(void *arg)
{
	engine_work_publish(arg);
}

static const struct tei_rail_ops engine_rail_ops = {
	.task_done = transport_rail_done,
	.notify = engine_note_arrived,
	.resolve = engine_resolve,
	.rails_changed = engine_rails_changed,
	.devices_changed = engine_devices_changed,
	.message = engine_lease_message,
};

static void engine_init_locks(struct engine *e)
{
	int i;

	tei_mutex_init(&e->control);
	engine_publish_init(e);
	tei_mutex_init(&e->neighbours_lock);
	tei_mutex_init(&e->batches);
	tei_mutex_init(&e->notes_lock);
	tei_mutex_init(&e->work_lock);
	tei_mutex_init(&e->leasing_lock);
	tei_cond_init(&e->work_cond);
	pthread_rwlock_init(&e->segments, NULL);
	engine_wait_init(e);
	engine_event_init(e);
	engine_deadline_init(e);
	tei_list_init(&e->notes);
	tei_list_init(&e->work);
	tei_list_init(&e->working);
	for (i = 0; i < ENGINE_TRANSPORTS; i++)
		e->transports[i].engine = e;
}

static void engine_segment_changed(void *arg, const char *name,
				   uint32_t tries)
{
	engine_work_refresh(arg, name, tries);
}

static int engine_start_meta(struct engine *e, const char *conn,
			     const char *server_name, struct tei_err *err)
{
	struct tei_meta_server_config config;
	char host[TEI_META_HOST_MAX], name_host[TEI_META_HOST_MAX];
	bool p2p, given;
	uint16_t port;
	int ret;

	ret = tei_meta_store_open(conn, &e->settings, &e->store, err);
	if (ret)
		return ret;
	p2p = tei_meta_store_p2p(e->store);
	ret = tei_meta_local_host(&e->settings, server_name, p2p, host, &given,
				  err);
	if (ret)
		return ret;
	/* With P2PHANDSHAKE the address is the segment's name. */
	e->host_fixed = p2p || given;
	tei_meta_server_defaults(&e->settings, host, e->incarnation, &config);
	config.secret = tei_meta_store_secret(e->store);
	if (!p2p && e->settings.legacy_binding &&
	    !tei_meta_split(server_name, name_host, &port) && port)
		config.min_port = config.max_port = port;
	ret = tei_meta_server_start(&config, &e->server, err);
	if (ret)
		return ret;
	tei_meta_store_attach(e->store, e->server);
	snprintf(e->name, sizeof(e->name), "%s",
		 p2p ? tei_meta_server_name(e->server) : server_name);
	ret = tei_meta_cache_create(e->store, 0, NULL, NULL, &e->cache, err);
	if (!ret)
		tei_meta_store_watch(e->store, engine_segment_changed, e);
	return ret;
}

static int engine_start_data(struct engine *e, struct tei_err *err)
{
	struct tei_rail_dp_attr attr = {
		.settings = &e->settings,
		.ops = &engine_rail_ops,
		.arg = e,
		.name = e->name,
		.incarnation = e->incarnation,
		.secret = tei_meta_store_secret(e->store),
		.reports = true,
	};
	int ret;

	ret = tei_local_init(&e->settings, err, &e->local);
	if (ret)
		return ret;
	return tei_rail_dp_open(&attr, err, &e->dp);
}

/* Lets submitted tasks end. The data plane accepts no new ones afterwards. */
static void engine_quiesce(struct engine *e)
{
	uint64_t until = tei_now_ns() +
			 e->settings.slice_timeout_s * TEI_NS_PER_SEC;

	engine_transports_drain(e, NULL, until);
}

/* Stops the engine without freeing anything; parts of it may be missing. */
static void engine_stop(struct engine *e)
{
	if (e->server)
		tei_meta_server_report(e->server, NULL, NULL);
	if (e->store)
		tei_meta_store_watch(e->store, NULL, NULL);
	if (e->dp)
		tei_rail_notify_stop(e->dp);
	engine_wait_shut(e);
	/* before the withdrawal, because a worker may be publishing */
	engine_work_stop(e);
	if (engine_published(e))
		tei_meta_store_withdraw(e->store, e->name, engine_deadline(e),
					NULL);
	if (e->dp)
		engine_quiesce(e);
	/* deadlines are in force until all waits above are over */
	engine_deadline_stop(e);
}

/* Closes everything that the creation has opened, in reverse order; parts may
 * be missing. */
static void engine_fini(struct engine *e)
{
	engine_stop(e);
	engine_stage_close(e);
	engine_lease_close(e);
	engine_segment_free_all(e);
	tei_nvmeof_fini(e->nvmeof);
	tei_gpu_fini(e->gpu);
	tei_local_fini(e->local);
	if (e->dp)
		tei_rail_dp_close(e->dp, 0);
	engine_stage_free(e);
	engine_lease_free(e);
	tei_meta_cache_destroy(e->cache);
	tei_meta_store_close(e->store);
	tei_meta_server_stop(e->server);
	engine_event_fini(e);
	engine_alloc_free_all(e);
	engine_batch_free_all(e);
	engine_note_free_all(e);
	tei_topo_free(e->topo);
	free(e->matrix);
	engine_memory_free_all(e);
}

static void engine_free(struct engine *e)
{
	engine_deadline_fini(e);
	tei_mutex_fini(&e->events.lock);
	pthread_rwlock_destroy(&e->segments);
	pthread_cond_destroy(&e->work_cond);
	engine_publish_fini(e);
	tei_mutex_fini(&e->control);
	tei_mutex_fini(&e->neighbours_lock);
	tei_mutex_fini(&e->batches);
	tei_mutex_fini(&e->notes_lock);
	tei_mutex_fini(&e->work_lock);
	tei_mutex_fini(&e->leasing_lock);
	free(e);
}

static int engine_start(struct engine *e, const char *conn,
			const char *server_name, int auto_discover,
			struct tei_err *err)
{
	int ret;

	ret = engine_start_meta(e, conn, server_name, err);
	if (!ret)
		ret = engine_start_data(e, err);
	if (ret)
		return ret;
	if (auto_discover)
		ret = engine_auto_discover(e, err);
	if (ret)
		return ret;
	tei_mutex_lock(&e->control);
	ret = engine_republish(e, err);
	tei_mutex_unlock(&e->control);
	return ret ? ret : engine_publish(e, true, err);
}

/* Loads the settings. Those of the options override the environment. */
static int engine_load_settings(struct engine *e,
				const struct te_engine_options *o,
				struct tei_err *err)
{
	struct tei_settings *s = &e->settings;
	int ret;

	ret = tei_settings_load_options(s, o->settings, o->settings_count, err);
	if (ret)
		return ret;
	if (o->ip && *o->ip)
		snprintf(s->tcp_bind_address, sizeof(s->tcp_bind_address), "%s",
			 o->ip);
	if (o->port)
		s->min_rpc_port = s->max_rpc_port = o->port;
	return 0;
}

static int engine_check_options(const struct te_engine_options *o,
				const char *call, struct tei_err *err)
{
	const size_t ip_max = sizeof(((struct tei_settings *)0)->
				     tcp_bind_address) - 1;

	if (!o->metadata)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine",
				    "P2PHANDSHAKE needs no server",
				    "%s: metadata is NULL", call);
	if (!o->server_name || !*o->server_name)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%s: the server name is empty", call);
	if (strlen(o->server_name) >= TEI_META_NAME_MAX)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%s: server name of %zu bytes (at most %d)",
				    call, strlen(o->server_name),
				    TEI_META_NAME_MAX - 1);
	if (o->ip && strlen(o->ip) > ip_max)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%s: ip of %zu bytes (at most %zu)", call,
				    strlen(o->ip), ip_max);
	if (o->port > UINT16_MAX)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%s: port %u (at most %d)", call, o->port,
				    UINT16_MAX);
	if (o->settings_count && !o->settings)
		return tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
				    "%s: settings_count is %zu, but settings is NULL",
				    call, o->settings_count);
	return 0;
}

static int engine_create(const struct te_engine_options *o, const char *call,
			 struct engine **out)
{
	struct tei_err err;
	struct engine *e;
	int ret;

	ret = engine_check_options(o, call, &err);
	if (ret)
		return ret;
	e = calloc(1, sizeof(*e));
	if (!e)
		return tei_err_fail(&err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for an engine");
	engine_init_locks(e);
	ret = engine_load_settings(e, o, &err);
	if (ret)
		goto err_free;
	e->incarnation = tei_meta_incarnation();
	ret = engine_start(e, o->metadata, o->server_name, o->auto_discover,
			   &err);
	if (!ret) {
		ret = engine_handle_add(e);
		if (ret)
			tei_err_fail(&err, ret, "engine", NULL,
				     "too many engines in this process");
	}
	if (ret)
		goto err_fini;
	tei_meta_server_report(e->server, engine_report, e);
	TEI_INFO("engine", "segment %s at %s", e->name,
		 tei_meta_server_address(e->server));
	*out = e;
	return 0;
err_fini:
	engine_fini(e);
	/* errors of the clean-up must not replace the cause */
	tei_err_set_last(&err);
err_free:
	engine_free(e);
	return ret;
}

transfer_engine_t createTransferEngine(const char *metadata_conn_string,
				       const char *local_server_name,
				       const char *ip_or_host_name,
				       uint64_t rpc_port, int auto_discover)
{
	const struct te_engine_options options = {
		.metadata = metadata_conn_string,
		.server_name = local_server_name,
		.auto_discover = auto_discover,
	};
	struct engine *e = NULL;

	(void)ip_or_host_name;
	(void)rpc_port;
	engine_create(&options, __func__, &e);
	return e;
}

/* Returns true if a program built for a later version sets a field that this
 * version does not know. */
static bool engine_options_unknown(const void *options, size_t size)
{
	const unsigned char *p = options;
	size_t i;

	for (i = sizeof(struct te_engine_options); i < size; i++)
		if (p[i])
			return true;
	return false;
}

int te_engine_create(const struct te_engine_options *options, size_t size,
		     transfer_engine_t *engine)
{
	struct te_engine_options o;
	struct engine *e;
	int ret;

	if (!options || !engine ||
	    size < offsetof(struct te_engine_options, ip))
		return tei_err_fail(NULL, TEI_ERR_INVALID, "engine",
				    "pass the options, their size and the address of the engine handle",
				    "%s: an argument is NULL or the size %zu is too small",
				    __func__, size);
	if (engine_options_unknown(options, size))
		return tei_err_fail(NULL, TEI_ERR_INVALID, "engine",
				    "the program needs a later version of the library",
				    "%s: options of %zu bytes (this version knows %zu), and the rest is not 0",
				    __func__, size, sizeof(o));
	memset(&o, 0, sizeof(o));
	memcpy(&o, options, size < sizeof(o) ? size : sizeof(o));
	ret = engine_create(&o, __func__, &e);
	if (!ret)
		*engine = e;
	return ret;
}

void destroyTransferEngine(transfer_engine_t engine)
{
	struct engine *e = engine;
	bool graceful;

	/* in a child of fork the engine is its parent's */
	if (!engine_from(engine))
		return;
	if (!engine_shutdown_enter(e, &graceful))
		return;
	engine_fini(e);
	engine_free(e);
	engine_shutdown_leave(graceful);
}

void engine_leave(struct engine *e)
{
	engine_stop(e);
	tei_rail_dp_leave(e->dp, 0);
}

int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len)
{
	struct engine *e = engine_from(engine);

	if (!e || !buf_out || !buf_len)
		return engine_bad(e, __func__, NULL);
	snprintf(buf_out, buf_len, "%s", tei_meta_server_address(e->server));
	return 0;
}
