/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Handles network devices that appear, change or disappear while the engine
 * runs.
 */
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "api/engine_topology.h"
#include "api/engine_transport.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"

/* time from the first report of a change to the refresh that handles all
 * reports up to then */
#define DEVICES_WAIT_NS (50 * TEI_NS_PER_MS)
/* first back-off after an incomplete refresh */
#define DEVICES_AGAIN_NS TEI_NS_PER_SEC
/* greatest number of times that the back-off is doubled */
#define DEVICES_DOUBLES 8

static uint32_t devices_refresh(struct engine *e) TEI_REQUIRES(e->control)
{
	uint32_t did = 0;
	int i;

	for (i = 0; i < ENGINE_TRANSPORTS; i++)
		if (e->transports[i].by == &transport_rail &&
		    strcmp(e->transports[i].name, "shm"))
			did |= tei_rail_dp_refresh(e->dp,
						   e->transports[i].proto, "");
	return did;
}

/*
 * Moves the control channel to an address that other hosts can reach. A move is
 * necessary if no interface had such an address when the channel was bound, or
 * if no interface has the channel's address any longer. Returns 0 if no move is
 * necessary or the channel has been moved.
 */
static int devices_move_control(struct engine *e)
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
		engine_publish_soon(e);
	return ret;
}

static void devices_later(struct engine *e, uint64_t due_ns);

/* Opens rails for network devices that have appeared. If the rails change, the
 * data plane requests a publication of the descriptor. */
static void devices_open(struct engine *e, const struct engine_work *w)
{
	struct tei_err err;
	bool changed, stays;
	uint32_t did;

	(void)w;
	/* tries again later while the engine is being created, because the
	 * creation itself opens rails */
	if (!engine_published(e)) {
		devices_later(e, tei_now_ns() + DEVICES_WAIT_NS);
		return;
	}
	memset(&err, 0, sizeof(err));
	tei_mutex_lock(&e->control);
	changed = tei_rail_dp_devices_changed(e->dp);
	if (changed)
		e->devices.tries = 0;
	if (!changed && !e->devices.again) {
		tei_mutex_unlock(&e->control);
		return;
	}
	stays = devices_move_control(e);
	did = devices_refresh(e);
	/* an error is ignored, because the topology of the previous rails then
	 * stays in use */
	if (did & TEI_RAIL_REFRESHED)
		engine_topology_set(e, &err);
	e->devices.again = stays || did & TEI_RAIL_REFRESH_AGAIN;
	if (e->devices.again) {
		devices_later(e, tei_now_ns() + (DEVICES_AGAIN_NS
						 << e->devices.tries));
		e->devices.tries += e->devices.tries < DEVICES_DOUBLES;
	}
	tei_mutex_unlock(&e->control);
}

static void devices_later(struct engine *e, uint64_t due_ns)
{
	static const struct engine_work_kind kind = {
		.run = devices_open,
		.single = ENGINE_WORK_DEVICES,
	};

	engine_work_at(e, &kind, due_ns);
}

void engine_devices_changed(void *arg)
{
	devices_later(arg, tei_now_ns() + DEVICES_WAIT_NS);
}
