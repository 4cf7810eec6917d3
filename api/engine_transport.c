/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Installs and uninstalls transports: those that the application names, or
 * those that match the devices of this host.
 */
#include <stdio.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "api/engine_topology.h"
#include "api/engine_transport.h"

/* Returns the installed transport with that name, or NULL. */
static struct engine_transport *transport_find(struct engine *e,
					       const char *name)
{
	int i;

	name = tei_rail_transport_of(name);
	for (i = 0; i < ENGINE_TRANSPORTS; i++)
		if (e->transports[i].installed &&
		    !strcmp(e->transports[i].name, name))
			return &e->transports[i];
	return NULL;
}

static struct engine_transport *
transport_note(struct engine *e, const char *name,
	       const struct engine_transport_ops *by)
{
	int i;

	for (i = 0; i < ENGINE_TRANSPORTS; i++) {
		if (e->transports[i].installed)
			continue;
		snprintf(e->transports[i].name, sizeof(e->transports[i].name),
			 "%s", tei_rail_transport_of(name));
		snprintf(e->transports[i].proto, sizeof(e->transports[i].proto),
			 "%s", name);
		e->transports[i].by = by;
		e->transports[i].installed = true;
		return &e->transports[i];
	}
	return NULL;
}

static struct engine_transport *transport_install(struct engine *e,
						  const char *proto,
						  const char *matrix,
						  bool *news,
						  struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	const struct engine_transport_ops *by = engine_transport_named(proto);
	struct engine_transport *t = transport_find(e, proto);
	int ret;

	*news = false;
	if (t)
		return by->accepts_name && by->accepts_name(e, proto, err)
			       ? NULL
			       : t;
	ret = engine_topology_take(e, matrix, err);
	if (!ret)
		ret = by->install(e, proto, err);
	if (ret)
		return NULL;
	t = transport_note(e, proto, by);
	*news = t != NULL;
	return t;
}

static void transport_unknown(const char *proto, struct tei_err *err)
{
	char names[TEI_ERR_TEXT], hint[TEI_ERR_TEXT];

	engine_transport_names(names, sizeof(names));
	snprintf(hint, sizeof(hint), "transports that are built in: %.100s", names);
	tei_err_fail(err, TEI_ERR_UNSUPPORTED, "engine", hint,
		     "no transport named \"%.32s\"", proto ? proto : "");
}

transport_t installTransport(transfer_engine_t engine, const char *proto,
			     void **args)
{
	struct engine *e = engine_from(engine);
	struct engine_transport *t;
	struct tei_err err;
	bool news;

	memset(&err, 0, sizeof(err));
	if (!e)
		return NULL;
	if (!proto || !engine_transport_named(proto)) {
		transport_unknown(proto, &err);
		return NULL;
	}
	tei_mutex_lock(&e->control);
	t = transport_install(e, proto, args ? args[0] : NULL, &news, &err);
	news = news && !engine_republish(e, &err);
	tei_mutex_unlock(&e->control);
	if (news)
		engine_publish(e, false, &err);
	return t;
}

int uninstallTransport(transfer_engine_t engine, const char *proto)
{
	struct engine *e = engine_from(engine);
	struct engine_transport *t;
	struct tei_err err;
	uint64_t until;
	int ret;

	if (!e || !proto)
		return engine_bad(e, __func__, NULL);
	tei_mutex_lock(&e->control);
	t = transport_find(e, proto);
	if (!t) {
		tei_mutex_unlock(&e->control);
		tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
			     "transport \"%.32s\" is not installed", proto);
		return 0; /* not an error, as in Mooncake */
	}
	/* until this time, the transport waits for its tasks */
	until = tei_now_ns() +
		e->settings.failure.slice_timeout_s * TEI_NS_PER_SEC;
	ret = t->by->uninstall(e, proto, until, &err);
	if (!ret) {
		t->installed = false;
		ret = engine_republish(e, &err);
	}
	tei_mutex_unlock(&e->control);
	return ret ? ret : engine_publish(e, true, &err);
}

/* --- discovery ----------------------------------------------------------- */

int engine_auto_discover(struct engine *e, struct tei_err *err)
{
	struct engine_transport *t;
	bool rdma, news;

	rdma = !e->settings.rails.force_tcp &&
	       (e->settings.rails.force_hca ||
		tei_rail_transport_present(&e->settings, "rdma", "", 0));
	tei_mutex_lock(&e->control);
	if (e->settings.copies.enabled)
		transport_install(e, "local", NULL, &news, err);
	t = transport_install(e, rdma ? "rdma" : "tcp", NULL, &news, err);
	tei_mutex_unlock(&e->control);
	return t ? 0 : err->code;
}
