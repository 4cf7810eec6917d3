/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Transports, installed by name or by discovery, and the topology of their
 * rails.
 */
#include "api/engine_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/tei_topo.h"

#define TRANSPORT_MATRIX_MAX	(1u << 20)

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

static struct engine_transport *transport_note(struct engine *e,
					       const char *name)
{
	int i;

	for (i = 0; i < ENGINE_TRANSPORTS; i++) {
		if (e->transports[i].installed)
			continue;
		snprintf(e->transports[i].name, sizeof(e->transports[i].name),
			 "%s", tei_rail_transport_of(name));
		snprintf(e->transports[i].proto, sizeof(e->transports[i].proto),
			 "%s", name);
		e->transports[i].installed = true;
		return &e->transports[i];
	}
	return NULL;
}

/* --- topology ------------------------------------------------------------ */

static void transport_pci(const char *text, struct tei_topo_pci *pci)
{
	unsigned int domain, bus, dev, fn;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &dev, &fn) != 4)
		return;
	pci->known = true;
	pci->domain = domain;
	pci->bus = (uint8_t)bus;
	pci->dev = (uint8_t)dev;
	pci->fn = (uint8_t)fn;
}

/* Describes the NICs of the rails for the topology. Returns their number or
 * -1. */
static int transport_nics(struct engine *e, struct tei_rail_desc *rails,
			  struct tei_topo_nic_desc *nics)
{
	size_t i, n = tei_rail_count(e->dp);

	for (i = 0; i < n; i++) {
		if (tei_rail_describe(e->dp, i, &rails[i]))
			return -1;
		if (!rails[i].open || rails[i].hidden) {
			/* uninstalled or replaced: keeps its index */
			snprintf(rails[i].name, sizeof(rails[i].name),
				 "uninstalled-%zu", i);
			nics[i].off = true;
		}
		nics[i].name = rails[i].name;
		nics[i].speed = rails[i].speed_bps;
		transport_pci(rails[i].pci, &nics[i].pci);
	}
	return (int)n;
}

static char *transport_read_file(const char *path, struct tei_err *err)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t n;

	if (f)
		text = malloc(TRANSPORT_MATRIX_MAX + 1);
	if (!f || !text) {
		tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
			     "MC_CUSTOM_TOPO_JSON=%s: cannot be read: %s", path,
			     strerror(errno));
		if (f)
			fclose(f);
		return NULL;
	}
	n = fread(text, 1, TRANSPORT_MATRIX_MAX, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

/* Returns the topology for the present rails, or NULL after an error. */
static struct tei_topo *transport_topo(struct engine *e, const char *matrix,
				       struct tei_err *err)
{
	struct tei_rail_desc *rails = calloc(TEI_RAIL_MAX, sizeof(*rails));
	struct tei_topo_nic_desc nics[TEI_RAIL_MAX];
	struct tei_topo *topo = NULL, *custom = NULL;
	int n, ret;

	if (!rails)
		return NULL;
	memset(nics, 0, sizeof(nics));
	n = transport_nics(e, rails, nics);
	ret = n < 0 ? TEI_ERR_CONTEXT :
		      tei_topo_discover(nics, (size_t)n, NULL, &topo, err);
	free(rails);
	if (ret || !matrix)
		return topo;
	ret = tei_topo_parse(matrix, topo, 0, &custom, err);
	tei_topo_free(topo);
	return ret ? NULL : custom;
}

static int transport_set_topo(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	struct tei_topo *topo = transport_topo(e, e->matrix, err), *old;

	if (!topo)
		return err->code ? err->code : TEI_ERR_MEMORY;
	old = e->topo;
	e->topo = topo;
	tei_rail_dp_set_topo(e->dp, topo);
	tei_topo_free(old);
	return 0;
}

/* Checks and stores the topology text of the caller or of MC_CUSTOM_TOPO_JSON,
 * before rails are opened. */
static int transport_take_matrix(struct engine *e, const char *json,
				 struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	struct tei_topo *probe;
	char *text;
	int ret;

	if (json)
		text = strdup(json);
	else if (*e->settings.custom_topo)
		text = transport_read_file(e->settings.custom_topo, err);
	else
		return 0;
	if (!text)
		return TEI_ERR_INVALID;
	ret = tei_topo_parse(text, NULL, 0, &probe, err);
	if (ret) {
		free(text);
		return ret;
	}
	tei_topo_free(probe);
	free(e->matrix);
	e->matrix = text;
	return 0;
}

/* --- install ------------------------------------------------------------- */

static int transport_open(struct engine *e, const char *proto,
			  struct tei_err *err) TEI_REQUIRES(e->control)
{
	int ret;

	if (!strcmp(proto, "local")) {
		__atomic_store_n(&e->local_on, true, __ATOMIC_RELAXED);
		engine_segment_reevaluate(e);
		return 0;
	}
	if (!strcmp(proto, "nvmeof")) {
		ret = engine_files_on(e, err);
		if (!ret)
			engine_segment_reevaluate(e);
		return ret;
	}
	ret = tei_rail_dp_add_transport(e->dp, proto, "", err);
	if (ret)
		return ret;
	ret = transport_set_topo(e, err);
	if (ret)
		tei_rail_dp_remove_transport(e->dp,
					     tei_rail_transport_of(proto), 0,
					     NULL);
	return ret;
}

/*
 * Returns 0 if the installed transport rdma is the one that the name means:
 * always for "rdma"; for the name of a provider if all open rails use that
 * provider.
 */
static int transport_same(struct engine *e, const char *proto,
			  struct tei_err *err) TEI_REQUIRES(e->control)
{
	const char *name = tei_rail_transport_of(proto);
	struct tei_rail_desc d;
	size_t i;

	if (!strcmp(name, proto))
		return 0;
	for (i = 0; i < tei_rail_count(e->dp); i++)
		if (!tei_rail_describe(e->dp, i, &d) && d.open &&
		    !strcmp(d.transport, name) && strcmp(d.provider, proto))
			return tei_err_fail(err, TEI_ERR_BUSY, "engine",
					    "uninstall transport rdma first",
					    "transport %s: rdma is installed already with provider %s",
					    proto, d.provider);
	return 0;
}

static struct engine_transport *transport_install(struct engine *e,
						  const char *proto,
						  const char *matrix,
						  bool *news,
						  struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	struct engine_transport *t = transport_find(e, proto);
	int ret;

	*news = false;

	if (t)
		return transport_same(e, proto, err) ? NULL : t;
	ret = transport_take_matrix(e, matrix, err);
	if (!ret)
		ret = transport_open(e, proto, err);
	if (ret)
		return NULL;
	t = transport_note(e, proto);
	*news = t != NULL;
	return t;
}

static bool transport_name_known(const char *proto)
{
	static const char *const names[] = { "tcp", "rdma", "efa", "cxi",
					     "shm", "local", "nvmeof" };
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(proto, names[i]))
			return true;
	return false;
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
	if (!proto || !transport_name_known(proto)) {
		tei_err_fail(&err, TEI_ERR_UNSUPPORTED, "engine",
			     "built in: tcp, rdma, efa, cxi, shm, local, nvmeof",
			     "no transport named \"%.32s\"",
			     proto ? proto : "");
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

/* Returns the time until which running tasks may end by themselves. */
static uint64_t transport_patience(const struct engine *e)
{
	return tei_now_ns() + e->settings.slice_timeout_s * TEI_NS_PER_SEC;
}

/* Waits for GPU staging first, because its copies lead to rail tasks. */
static int transport_remove(struct engine *e, const char *proto,
			    struct tei_err *err)
{
	uint64_t until = transport_patience(e);

	engine_stage_drain(e, STAGE_BY_RAIL, until);
	engine_stage_drain(e, STAGE_BY_LEASE, until);
	engine_lease_drain(e, until);
	return tei_rail_dp_remove_transport(e->dp, proto, tei_ns_left(until),
					    err);
}

/* Switches copies to other processes off. Copies inside this process go on. */
static int transport_local(struct engine *e, struct tei_err *err)
	TEI_REQUIRES(e->control)
{
	uint64_t until = transport_patience(e);

	__atomic_store_n(&e->local_on, false, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	if (engine_stage_drain(e, STAGE_BY_KERNEL, until) &&
	    engine_segment_drain(e, until))
		return 0;
	__atomic_store_n(&e->local_on, true, __ATOMIC_RELAXED);
	engine_segment_reevaluate(e);
	return tei_err_fail(err, TEI_ERR_BUSY, "engine", NULL,
			    "local: copies are still in progress");
}

int uninstallTransport(transfer_engine_t engine, const char *proto)
{
	struct engine *e = engine_from(engine);
	struct engine_transport *t;
	struct tei_err err;
	int ret;

	if (!e || !proto)
		return engine_bad(e, __func__, NULL);
	tei_mutex_lock(&e->control);
	t = transport_find(e, proto);
	if (!t) {
		tei_mutex_unlock(&e->control);
		tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
			     "transport \"%.32s\" is not installed", proto);
		return 0;	/* as in Mooncake */
	}
	if (!strcmp(proto, "local")) {
		ret = transport_local(e, &err);
	} else if (!strcmp(proto, "nvmeof")) {
		ret = engine_files_off(e, &err);
	} else {
		ret = transport_remove(e, tei_rail_transport_of(proto), &err);
	}
	if (!ret) {
		t->installed = false;
		ret = engine_republish(e, &err);
	}
	tei_mutex_unlock(&e->control);
	return ret ? ret : engine_publish(e, true, &err);
}

/* --- devices that appear later -------------------------------------------- */

#define DEVICES_WAIT_NS		(50 * TEI_NS_PER_MS)	/* collects reports */
#define DEVICES_AGAIN_NS	TEI_NS_PER_SEC		/* first back-off */
#define DEVICES_DOUBLES		8			/* doublings of it */

static uint32_t transport_refresh(struct engine *e) TEI_REQUIRES(e->control)
{
	uint32_t did = 0;
	int i;

	for (i = 0; i < ENGINE_TRANSPORTS; i++)
		if (e->transports[i].installed &&
		    strcmp(e->transports[i].name, "local") &&
		    strcmp(e->transports[i].name, "nvmeof") &&
		    strcmp(e->transports[i].name, "shm"))
			did |= tei_rail_dp_refresh(e->dp,
						   e->transports[i].proto, "");
	return did;
}

/*
 * Moves the control channel to an address that other hosts can reach, if it was
 * bound to loopback because no interface had one, or if the interfaces have
 * lost its address. Returns 0 if it needs no move or has been moved.
 */
static int transport_move_control(struct engine *e)
{
	char host[TEI_META_HOST_MAX];
	struct tei_err err;
	int ret;

	if (e->host_fixed ||
	    !tei_meta_host_outdated(&e->settings,
				    tei_meta_server_host(e->server), host))
		return 0;
	ret = tei_meta_server_move(e->server, host, &err);
	if (!ret)
		engine_work_publish(e);
	return ret;
}

/* Opens the rails; the data plane requests their publication. */
void engine_transport_devices(struct engine *e)
{
	struct tei_err err;
	bool changed, stays;
	uint32_t did;

	/* during its creation the engine looks for rails itself */
	if (!engine_published(e)) {
		engine_work_devices(e, tei_now_ns() + DEVICES_WAIT_NS);
		return;
	}
	memset(&err, 0, sizeof(err));
	tei_mutex_lock(&e->control);
	changed = tei_rail_dp_devices_changed(e->dp);
	if (changed)
		e->devices_tries = 0;
	if (!changed && !e->devices_again) {
		tei_mutex_unlock(&e->control);
		return;
	}
	stays = transport_move_control(e);
	did = transport_refresh(e);
	/* after an error the topology of the previous rails stays in use */
	if (did & TEI_RAIL_REFRESHED)
		transport_set_topo(e, &err);
	e->devices_again = stays || did & TEI_RAIL_REFRESH_AGAIN;
	if (e->devices_again) {
		engine_work_devices(e, tei_now_ns() +
				    (DEVICES_AGAIN_NS << e->devices_tries));
		e->devices_tries += e->devices_tries < DEVICES_DOUBLES;
	}
	tei_mutex_unlock(&e->control);
}

void engine_devices_changed(void *arg)
{
	engine_work_devices(arg, tei_now_ns() + DEVICES_WAIT_NS);
}

/* --- discovery ----------------------------------------------------------- */

int engine_auto_discover(struct engine *e, struct tei_err *err)
{
	struct engine_transport *t;
	bool rdma, news;

	rdma = !e->settings.force_tcp &&
	       (e->settings.force_hca ||
		tei_rail_transport_present(&e->settings, "rdma", "", 0));
	tei_mutex_lock(&e->control);
	if (e->settings.local)
		transport_install(e, "local", NULL, &news, err);
	t = transport_install(e, rdma ? "rdma" : "tcp", NULL, &news, err);
	tei_mutex_unlock(&e->control);
	return t ? 0 : err->code;
}

int discoverTopology(transfer_engine_t engine)
{
	struct engine *e = engine_from(engine);
	struct tei_err err;
	int ret;

	if (!e)
		return TEI_ERR_INVALID;
	memset(&err, 0, sizeof(err));
	tei_mutex_lock(&e->control);
	ret = transport_set_topo(e, &err);
	tei_mutex_unlock(&e->control);
	return ret;
}
