/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Creation and destruction of engines.
 */
#include "api/engine_int.h"
#include "api/engine_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/engine_transport.h"
#include "api/transport_bounce.h"
#include "api/transport_rail.h"
#include "meta/tei_meta_cache.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "topo/tei_topo.h"

/* --- creation ------------------------------------------------------------ */

static void engine_resolve(void *arg, struct tei_rail_peer *peer)
{
	engine_segment_resolve_later(arg, peer);
}

static void engine_rails_changed(void *arg)
{
	engine_publish_soon(arg);
}

static const struct tei_rail_ops engine_rail_ops = {
	.task_done = transport_rail_done,
	.notify = engine_note_arrived,
	.resolve = engine_resolve,
	.rails_changed = engine_rails_changed,
	.devices_changed = engine_devices_changed,
	.message = engine_staging_message,
};

static void engine_init_locks(struct engine *e)
{
	int i;

	tei_mutex_init(&e->control);
	tei_mutex_init(&e->merged);
	engine_publish_init(e);
	tei_mutex_init(&e->processes.lock);
	tei_mutex_init(&e->slots.lock);
	engine_prepared_init(e);
	tei_mutex_init(&e->notes.lock);
	tei_rwlock_init(&e->segments);
	engine_wait_init(e);
	engine_event_init(e);
	tei_list_init(&e->notes.list);
	tei_list_init(&e->notes.binary);
	for (i = 0; i < ENGINE_TRANSPORTS; i++)
		e->transports[i].engine = e;
}

/* Allocates an engine. Returns NULL if memory is short. */
static struct engine *engine_new(void)
{
	struct engine *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	if (!engine_work_init(e))
		goto err_free;
	if (!engine_deadline_init(e))
		goto err_work;
	engine_init_locks(e);
	return e;
err_work:
	engine_work_fini(e);
err_free:
	free(e);
	return NULL;
}

static void engine_segment_changed(void *arg, const char *name,
				   uint32_t tries)
{
	engine_segment_refresh_later(arg, name, tries);
}

static bool engine_segment_wanted(void *arg, const char *name)
{
	struct engine *e = arg;

	return tei_meta_cache_uses(e->cache, name);
}

static int engine_start_meta(struct engine *e, const char *conn,
			     const char *server_name, struct tei_err *err)
{
	int ret;

	ret = tei_meta_store_open(conn, &e->settings, &e->store, err);
	if (ret)
		return ret;
	ret = tei_meta_store_serve(e->store, server_name, e->incarnation,
				   &e->server, &e->host_fixed, err);
	if (ret)
		return ret;
	snprintf(e->name, sizeof(e->name), "%s",
		 tei_meta_store_own_name(e->store, server_name));
	ret = tei_meta_cache_create(e->store, 0, &engine_segment_ops, e,
				    &e->cache, err);
	if (!ret)
		tei_meta_store_watch(e->store, engine_segment_changed,
				     engine_segment_wanted, e);
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
	engine_segment_attach_own(e);
	ret = engine_staging_open(e, err);
	if (ret)
		return ret;
	ret = tei_rail_dp_open(&attr, err, &e->dp);
	if (ret)
		return ret;
	tei_staging_set_rails(e->staging, e->dp);
	return engine_bounce_open(e, err);
}

/* Waits until the submitted tasks have ended, for at most MC_SLICE_TIMEOUT. The
 * data plane accepts no new tasks afterwards. */
static void engine_quiesce(struct engine *e)
{
	uint64_t until = tei_now_ns() +
			 e->settings.failure.slice_timeout_s * TEI_NS_PER_SEC;

	engine_transports_drain(e, NULL, until);
}

/* Stops the engine without freeing anything. Some members of the engine may be
 * NULL, because its creation has failed. */
static void engine_stop(struct engine *e)
{
	if (e->server)
		tei_meta_server_report(e->server, NULL, NULL);
	if (e->store)
		tei_meta_store_watch(e->store, NULL, NULL, NULL);
	if (e->dp)
		tei_rail_notify_stop(e->dp);
	engine_wait_shut(e);
	/* the workers are stopped before the descriptor is withdrawn, because
	 * one of them may be publishing it */
	engine_work_stop(e);
	if (engine_published(e))
		tei_meta_store_withdraw(e->store, e->name, engine_deadline(e),
					NULL);
	if (e->dp)
		engine_quiesce(e);
	/* the deadline thread is stopped last, because deadlines must end tasks
	 * during the waits above */
	engine_deadline_stop(e);
}

/* Closes everything that the creation has opened, in reverse order. Some
 * members of the engine may be NULL, because its creation has failed. */
static void engine_fini(struct engine *e)
{
	engine_stop(e);
	tei_staging_close(e->staging);
	engine_segment_free_all(e);
	engine_transports_close(e);
	tei_staging_free(e->staging);
	engine_bounce_free(e);
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
	tei_rwlock_fini(&e->segments);
	engine_work_fini(e);
	engine_publish_fini(e);
	tei_mutex_fini(&e->control);
	tei_mutex_fini(&e->merged);
	tei_mutex_fini(&e->processes.lock);
	tei_mutex_fini(&e->slots.lock);
	engine_prepared_fini(e);
	tei_mutex_fini(&e->notes.lock);
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

/* Loads the settings. A setting in the options takes precedence over the
 * environment. */
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
		snprintf(s->control.bind_address,
			 sizeof(s->control.bind_address), "%s", o->ip);
	if (o->port)
		s->control.min_port = s->control.max_port = o->port;
	return 0;
}

static int engine_check_options(const struct te_engine_options *o,
				const char *call, struct tei_err *err)
{
	const size_t ip_max =
		sizeof(((struct tei_settings *)0)->control.bind_address) - 1;

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
	e = engine_new();
	if (!e)
		return tei_err_fail(&err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for an engine");
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
	/* sets the thread's last error again, because the clean-up may have
	 * replaced it with an error of its own */
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

/* Returns true if the options contain a field that this version does not know,
 * and that field is not 0. Programs built for a later version may set such
 * fields. */
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
				    "%s: options of %zu bytes: the bytes after the %zu that this version knows are not 0",
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

	/* returns in a child of fork, because the engine belongs to the parent
	 * process */
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
