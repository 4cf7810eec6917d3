/* SPDX-License-Identifier: BSD-2-Clause */
/* Opens and closes the data plane and its rails, and describes them. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prov/rail/conn/rail_announce.h"
#include "prov/rail/conn/rail_msg.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_lane_thread.h"
#include "prov/rail/rail_open.h"
#include "prov/rail/rail_progress.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"

#define DP_PROBE_NS	(30 * TEI_NS_PER_SEC)
#define DP_STUCK_NS	(500 * TEI_NS_PER_MS)
#define DP_BYE_NS	(200 * TEI_NS_PER_MS)
#define DP_BYE_TEST	16			/* number of attempts to send
						 * BYE per test of a peer's
						 * ports */
#define DP_BYE_POLLS	256			/* while BYE is sent, number of
						 * polls that follow each other
						 * without a pause */
#define DP_NAP_NS	(200 * TEI_NS_PER_US)	/* length of the pause between
						 * two polls while the data
						 * plane waits */

static void dp_free(struct tei_rail_dp *dp)
{
	struct rail_slice_chunk *c, *next;

	rail_link_close(dp);
	rail_lane_threads_close(dp);
	tei_loop_close(&dp->thread.loop);
	for (c = dp->tasks.chunks; c; c = next) {
		next = c->next;
		free(c);
	}
	rail_mr_close_placeholder(dp);
	rail_notify_dp_fini(dp);
	tei_wipe(&dp->conf.auth, sizeof(dp->conf.auth));
	pthread_cond_destroy(&dp->cond);
	tei_mutex_fini(&dp->sched);
	tei_mutex_fini(&dp->admin);
	free(dp);
}

int tei_rail_dp_open(const struct tei_rail_dp_attr *attr, struct tei_err *err,
		     struct tei_rail_dp **out)
{
	struct tei_rail_dp *dp = calloc(1, sizeof(*dp));
	int i, ret;

	if (!dp)
		return tei_err_fail(err, TEI_ERR_MEMORY, "rail", NULL,
				    "no memory for a data plane");
	dp->settings = attr->settings;
	dp->ops = attr->ops;
	dp->arg = attr->arg;
	dp->incarnation = attr->incarnation;
	dp->conf.info_flags = attr->info_flags;
	dp->conf.port = attr->port;
	dp->conf.next_port = (uint32_t)attr->incarnation;
	dp->conf.back = attr->back;
	dp->conf.reports = attr->reports;
	dp->conf.signs = attr->secret != NULL;
	if (attr->secret)
		tei_secret_key(attr->secret, "peer protocol", &dp->conf.auth);
	dp->link.fd = -1;
	dp->peers.table = 1;
	dp->times.probe_ns = DP_PROBE_NS;
	dp->times.stuck_ns = DP_STUCK_NS;
	dp->times.bye_ns = DP_BYE_NS;
	snprintf(dp->name, sizeof(dp->name), "%s", attr->name);
	tei_mutex_init(&dp->admin);
	tei_mutex_init(&dp->sched);
	tei_cond_init(&dp->cond);
	tei_list_init(&dp->peers.list);
	tei_list_init(&dp->tasks.recent);
	tei_list_init(&dp->memory.revoking);
	tei_list_init(&dp->peers.attn);
	tei_list_init(&dp->tasks.active);
	tei_list_init(&dp->tasks.wide);
	tei_list_init(&dp->tasks.slices);
	tei_list_init(&dp->health.faults);
	rail_notify_dp_init(dp);
	for (i = 0; i < RAIL_PEER_HASH; i++)
		tei_list_init(&dp->peers.hash[i]);
	rail_link_open(dp);
	ret = attr->any_local ? rail_mr_open_placeholder(dp, err) : 0;
	if (!ret)
		ret = rail_numa_check(dp, err);
	if (!ret)
		ret = rail_lane_threads_open(dp, err);
	if (!ret)
		ret = rail_progress_start(dp, err);
	if (ret) {
		dp_free(dp);
		return ret;
	}
	rail_numa_bind(dp);
	tei_settings_log_unused(dp->settings);
	*out = dp;
	return 0;
}

/* Returns true if every task has ended and has been reported. */
static bool dp_drained(struct tei_rail_dp *dp)
{
	return !__atomic_load_n(&dp->tasks.nheld, __ATOMIC_ACQUIRE);
}

/* Returns true if a notification has not been acknowledged yet. */
static bool dp_has_notes(struct tei_rail_dp *dp) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p;

	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link)
		if (p->note_out.n)
			return true;
	return false;
}

/* Polls for at most drain_ns until all tasks have ended and all notifications
 * have been acknowledged. Waits for the notifications not longer than
 * MC_HANDSHAKE_CONNECT_TIMEOUT. */
static void dp_drain(struct tei_rail_dp *dp, uint64_t drain_ns)
{
	uint64_t now = tei_now_ns(), end = now + drain_ns, notes_end;

	/* a peer that is stopped or reads nothing acknowledges no notification,
	 * so the wait for notifications has a limit of its own */
	notes_end =
		now + dp->settings->control.connect_timeout_s * TEI_NS_PER_SEC;
	rail_sched_enter(dp);
	while (now < end &&
	       (!dp_drained(dp) || (now < notes_end && dp_has_notes(dp)))) {
		rail_sched_leave(dp);
		tei_rail_progress(dp);
		rail_sched_enter(dp);
		rail_sched_wait(dp, TEI_NS_PER_MS);
		now = tei_now_ns();
	}
	rail_sched_leave(dp);
}

static void dp_run_lanes(struct rail *rail)
{
	uint32_t j;

	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
		rail_lane_run(&rail->tx_lanes[j]);
}

/* Closes the rx lanes. Must be called when the progress thread has stopped,
 * because that thread would open them again. */
static void dp_close_targets(struct tei_rail_dp *dp)
{
	struct rail *rail;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail = rail_at(dp, i);
		if (rail->fab.mr_mode & FI_MR_ENDPOINT) {
			tei_mutex_lock(&rail->dp->admin);
			rail_mr_unbind(rail);
			tei_mutex_unlock(&rail->dp->admin);
		}
		rail_close_target(rail);
	}
}

/* Sends BYE to all peers. Must be called when the progress thread has
 * stopped. */
static void dp_send_bye(struct tei_rail_dp *dp)
{
	uint64_t end = tei_now_ns() + dp->times.bye_ns;
	uint32_t i, polls = 0, tries = 0;

	while (!rail_peer_bye(dp) && tei_now_ns() < end) {
		/* a peer that leaves at the same time may have closed its
		 * ports; nothing can be sent to it any longer */
		if (++tries % DP_BYE_TEST == DP_BYE_TEST / 2)
			rail_peer_bye_test(dp, tries / DP_BYE_TEST);
		tei_sleep_ns(DP_NAP_NS);
		/* a tx lane that a message has requested is still opened, so
		 * that BYE can be sent over it */
		for (i = 0; i < rail_count(dp); i++)
			rail_health_collect(rail_at(dp, i));
	}
	/* wait until the messages have been sent, because their endpoints are
	 * closed next; the wait has a limit, because messages to an unreachable
	 * peer are never sent */
	end = tei_now_ns() + dp->times.bye_ns;
	for (i = 0; i < rail_count(dp); i++)
		while (rail_at(dp, i)->open && !rail_msg_idle(rail_at(dp, i)) &&
		       tei_now_ns() < end) {
			dp_run_lanes(rail_at(dp, i));
			if (polls++ < DP_BYE_POLLS)
				tei_relax();
			else
				tei_sleep_ns(DP_NAP_NS);
		}
}

/* Ends the remaining tasks. The tx endpoints are already closed, so no task
 * reads or writes local memory any longer. */
static void dp_end_tasks(struct tei_rail_dp *dp)
{
	struct tei_err err = { .code = TEI_ERR_CONTEXT };
	struct tei_rail_task *t, *tmp;
	struct tei_rail_peer *p;
	struct rail_done done;

	snprintf(err.text, sizeof(err.text), "the engine was destroyed");
	rail_done_init(&done);
	rail_sched_enter(dp);
	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link)
		tei_list_foreach_safe (t, tmp, &p->tasks.live,
				       struct tei_rail_task, live_link)
			rail_task_drop(t, &err, &done);
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
}

/* Frees all faults and stops the probes. The progress thread must have
 * stopped. */
static void dp_end_health(struct tei_rail_dp *dp)
{
	struct tei_rail_peer *p;
	uint32_t i;

	for (i = 0; i < rail_count(dp); i++) {
		rail_probe_stop(rail_at(dp, i));
		rail_contact_lane_stop(rail_at(dp, i));
	}
	rail_sched_enter(dp);
	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link)
		rail_health_forget(p);
	rail_sched_leave(dp);
}

void tei_rail_dp_quiesce(struct tei_rail_dp *dp, uint64_t drain_ns)
{
	dp_drain(dp, drain_ns);
	__atomic_store_n(&dp->thread.no_callbacks, true, __ATOMIC_RELEASE);
}

void tei_rail_dp_leave(struct tei_rail_dp *dp, uint64_t drain_ns)
{
	uint32_t i;

	dp_drain(dp, drain_ns);
	rail_progress_stop(dp);
	dp_end_health(dp);
	/* a peer that has received BYE ends its tasks without a fence, so none
	 * of its writes may land any longer when BYE is sent */
	dp_close_targets(dp);
	dp_send_bye(dp);
	for (i = 0; i < rail_count(dp); i++)
		rail_close_initiating(rail_at(dp, i));
	dp_end_tasks(dp);
}

void tei_rail_dp_close(struct tei_rail_dp *dp, uint64_t drain_ns)
{
	uint32_t i;

	tei_rail_dp_leave(dp, drain_ns);
	rail_mr_free_all(dp);
	/* while the lanes of one rail are closed, a message may still be read
	 * that refers to another rail; so no rail is freed before all are
	 * closed */
	for (i = 0; i < rail_count(dp); i++)
		rail_close(rail_at(dp, i));
	for (i = 0; i < rail_count(dp); i++)
		rail_free(rail_at(dp, i));
	__atomic_store_n(&dp->nrails, 0, __ATOMIC_RELEASE);
	rail_peer_free_all(dp);
	dp_free(dp);
}

/* --- transports ---------------------------------------------------------- */

bool rail_dp_has(struct tei_rail_dp *dp, const struct rail_found *found,
		 const char *transport)
{
	const struct rail *rail;
	uint32_t i;

	for (i = 0; i < dp->nrails; i++) {
		rail = dp->rails[i];
		if (rail_published(rail) && !rail->nic.addr_gone &&
		    (!rail->nic.fallback || found->fallback) &&
		    !strcmp(rail->name, found->name) &&
		    !strcmp(rail->nic.transport, transport))
			return true;
	}
	return false;
}

/* Returns the position of a device in the list of devices that could not be
 * opened, or the length of the list if the device is not in it. */
static uint32_t dp_failed(struct tei_rail_dp *dp, const char *name)
	TEI_REQUIRES(dp->admin)
{
	uint32_t i = 0;

	while (i < dp->devices.failed.n &&
	       strcmp(dp->devices.failed.name[i], name))
		i++;
	return i;
}

/* Adds the device to the list of devices that could not be opened if failed is
 * true, otherwise removes it. */
static void dp_note_attempt(struct tei_rail_dp *dp, const char *name, bool failed)
	TEI_REQUIRES(dp->admin)
{
	uint32_t i = dp_failed(dp, name), last;

	if (failed && i == dp->devices.failed.n && i < RAIL_FAILED_MAX) {
		snprintf(dp->devices.failed.name[i],
			 sizeof(dp->devices.failed.name[i]), "%s", name);
		dp->devices.failed.n++;
	} else if (!failed && i < dp->devices.failed.n) {
		last = --dp->devices.failed.n;
		memmove(dp->devices.failed.name[i],
			dp->devices.failed.name[last],
			sizeof(dp->devices.failed.name[i]));
	}
}

/* Registers a region on a new rail. Returns 0 even if the rail cannot register
 * a region of GPU memory, because GPU staging, if enabled, then moves its bytes
 * through host memory. */
static int dp_register_one(struct tei_rail_mr *mr, struct rail *rail,
			   struct tei_err *err)
{
	struct tei_err why;

	if (!mr->gpu)
		return rail_mr_open_on(mr, rail, err);
	if (rail_mr_open_on(mr, rail, &why))
		TEI_INFO("rail", "GPU memory %p, %llu bytes of cuda:%d: the rails no longer access it directly: %s",
			 (void *)mr->addr, (unsigned long long)mr->len,
			 mr->device.cuda, why.text);
	return 0;
}

/* Registers all regions on a new rail. If a region cannot be registered,
 * unregisters the regions that were registered on this rail before it. */
static int dp_register_on(struct tei_rail_dp *dp, struct rail *rail,
			  struct tei_err *err) TEI_REQUIRES(dp->admin)
{
	uint32_t i;
	int ret = 0;

	for (i = 0; i < dp->memory.mrs.n && !ret; i++)
		if (rail_mr_at(dp, i)->state != RAIL_MR_CLOSED)
			ret = dp_register_one(rail_mr_at(dp, i), rail, err);
	while (ret && i--)
		rail_mr_close_on(rail_mr_at(dp, i), rail);
	return ret;
}

static uint32_t dp_wants(const struct rail *rail)
{
	return (rail->fab.mr_mode & FI_MR_LOCAL ? TEI_RAIL_WANTS_LOCAL : 0) |
	       (rail->fab.mr_mode & (FI_MR_LOCAL | FI_MR_ALLOCATED)
			? TEI_RAIL_WANTS_PINNED
			: 0);
}

int rail_dp_add(struct tei_rail_dp *dp, const struct rail_found *found,
		const char *transport, struct tei_err *err)
{
	struct rail *rail;
	uint32_t i;
	int ret;

	if (rail_dp_has(dp, found, transport))
		return 0;
	if (dp->nrails == TEI_RAIL_MAX)
		return tei_err_fail(err, TEI_ERR_TOO_MANY, "rail",
				    RAIL_FULL_HINT,
				    "%s: the engine has opened %d rails, which is the limit",
				    found->name, TEI_RAIL_MAX);
	ret = rail_open(dp, found, transport,
			dp_failed(dp, found->name) < dp->devices.failed.n, err,
			&rail);
	dp_note_attempt(dp, found->name, ret);
	if (ret)
		return ret;
	rail->index = (uint16_t)dp->nrails;
	ret = dp_register_on(dp, rail, err);
	if (ret) {
		rail_close(rail);
		rail_free(rail);
		return ret;
	}
	rail_sched_enter(dp);
	__atomic_fetch_or(&dp->devices.wants, dp_wants(rail), __ATOMIC_RELAXED);
	dp->rails[dp->nrails] = rail;
	__atomic_store_n(&dp->nrails, dp->nrails + 1, __ATOMIC_RELEASE);
	for (i = 0; i < dp->memory.mrs.n; i++)
		rail_mr_rank(dp, rail_mr_at(dp, i));
	rail_sched_leave(dp);
	TEI_INFO("rail", "%s: up (%s, %s)", rail->name, transport,
		 rail->nic.provider);
	return 0;
}

int tei_rail_dp_add_transport(struct tei_rail_dp *dp, const char *transport,
			      const char *devices, struct tei_err *err)
{
	struct rail_found *list, *f;
	int ret, opened = 0;

	ret = rail_info_find(dp->settings, transport, devices,
			     dp->conf.info_flags, err, &list);
	if (ret)
		return ret;
	transport = tei_rail_transport_of(transport);
	tei_mutex_lock(&dp->admin);
	for (f = list; f; f = f->next) {
		ret = rail_dp_add(dp, f, transport, err);
		if (!ret)
			opened++;
	}
	if (opened)
		rail_numa_bind(dp);
	tei_mutex_unlock(&dp->admin);
	if (!*dp->settings->rails.devices && !(devices && *devices) &&
	    !strcmp(transport, "tcp"))
		rail_info_warn_lacking(dp->settings, list,
				       dp->ops->devices_changed != NULL);
	rail_info_free(list);
	if (!opened)
		return ret;
	rail_peer_announce(dp);
	/* the progress thread may sleep without the file descriptors of the new
	 * lanes */
	rail_progress_wake(dp);
	return 0;
}

void rail_dp_close_rail(struct tei_rail_dp *dp, struct rail *rail)
{
	uint32_t i;

	/* from here on the progress thread does not use the rail */
	__atomic_store_n(&rail->open, false, __ATOMIC_RELEASE);
	rail_close_initiating(rail);
	for (i = 0; i < dp->memory.mrs.n; i++)
		rail_mr_close_on(rail_mr_at(dp, i), rail);
	rail_close(rail);
}

static bool dp_transport_busy(struct tei_rail_dp *dp, const char *transport)
{
	uint32_t i;
	uint64_t n = 0;

	for (i = 0; i < dp->nrails; i++)
		if (!strcmp(dp->rails[i]->nic.transport, transport))
			n += rail_posted_bytes(dp->rails[i]);
	return n != 0;
}

int tei_rail_dp_remove_transport(struct tei_rail_dp *dp, const char *transport,
				 uint64_t drain_ns, struct tei_err *err)
{
	uint64_t end = tei_now_ns() + drain_ns;
	uint32_t i, n = 0;

	for (i = 0; i < rail_count(dp); i++)
		if (rail_at(dp, i)->open &&
		    !strcmp(rail_at(dp, i)->nic.transport, transport))
			n++;
	if (!n)
		return tei_err_fail(err, TEI_ERR_INVALID, "rail", NULL,
				    "transport %.32s is not installed",
				    transport);
	while (!dp_drained(dp) && tei_now_ns() < end) {
		tei_rail_progress(dp);
		tei_sleep_ns(DP_NAP_NS);
	}
	if (dp_transport_busy(dp, transport))
		return tei_err_fail(err, TEI_ERR_BUSY, "rail", NULL,
				    "transport %.32s still carries tasks",
				    transport);
	for (i = 0; i < rail_count(dp); i++) {
		if (!rail_at(dp, i)->open ||
		    strcmp(rail_at(dp, i)->nic.transport, transport))
			continue;
		tei_mutex_lock(&dp->admin);
		rail_dp_close_rail(dp, rail_at(dp, i));
		tei_mutex_unlock(&dp->admin);
	}
	rail_peer_announce(dp);
	return 0;
}

/* --- observation --------------------------------------------------------- */

size_t tei_rail_count(struct tei_rail_dp *dp)
{
	return rail_count(dp);
}

int tei_rail_describe(struct tei_rail_dp *dp, size_t index,
		      struct tei_rail_desc *d)
{
	struct rail *rail;

	if (index >= rail_count(dp))
		return TEI_ERR_INVALID;
	rail = rail_at(dp, (uint32_t)index);
	memset(d, 0, sizeof(*d));
	d->open = __atomic_load_n(&rail->open, __ATOMIC_ACQUIRE);
	d->hidden = __atomic_load_n(&rail->hidden, __ATOMIC_ACQUIRE);
	snprintf(d->name, sizeof(d->name), "%s", rail->name);
	snprintf(d->provider, sizeof(d->provider), "%s", rail->nic.provider);
	snprintf(d->transport, sizeof(d->transport), "%s", rail->nic.transport);
	snprintf(d->pci, sizeof(d->pci), "%s", rail->nic.pci);
	snprintf(d->fabric, sizeof(d->fabric), "%.63s",
		 rail->fab.info->fabric_attr->name
			 ? rail->fab.info->fabric_attr->name
			 : "");
	d->numa = rail->nic.numa;
	d->speed_bps = rail->nic.speed_bps;
	tei_mutex_lock(&rail->rx_lane.lock);
	if (rail->rx_lane.ep)
		d->addr = rail->rx_lane.addr;
	tei_mutex_unlock(&rail->rx_lane.lock);
	d->known = rail_contact_lane_held(rail) ? rail->nic.own : d->addr;
	rail_addr_text(&d->addr, d->address_text, sizeof(d->address_text));
	return 0;
}

int tei_rail_get_stats(struct tei_rail_dp *dp, size_t index,
		       struct tei_rail_stats *s)
{
	const struct rail_lane *lane;
	struct rail *rail;
	uint32_t j;

	if (index >= rail_count(dp))
		return TEI_ERR_INVALID;
	rail = rail_at(dp, (uint32_t)index);
	memset(s, 0, sizeof(*s));
	s->state =
		__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE)
			? __atomic_load_n(&rail->link.state, __ATOMIC_RELAXED)
			: 2;
	for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
		lane = &rail->tx_lanes[j];
		s->lanes += __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) !=
			    RAIL_LANE_CLOSED;
		s->tx_bytes +=
			__atomic_load_n(&lane->done.tx_bytes, __ATOMIC_RELAXED);
		s->rx_bytes +=
			__atomic_load_n(&lane->done.rx_bytes, __ATOMIC_RELAXED);
	}
	s->lanes += __atomic_load_n(&rail->rx_lane.state, __ATOMIC_ACQUIRE) !=
		    RAIL_LANE_CLOSED;
	s->slices = rail_moved(rail);
	s->retries = __atomic_load_n(&rail->errors.retries, __ATOMIC_RELAXED);
	s->errors = __atomic_load_n(&rail->errors.errors, __ATOMIC_RELAXED);
	s->inflight_bytes = rail_posted_bytes(rail);
	s->inflight_max =
		__atomic_load_n(&rail->load.inflight_max, __ATOMIC_RELAXED);
	s->window = __atomic_load_n(&rail->load.window, __ATOMIC_RELAXED);
	s->state_changes =
		__atomic_load_n(&rail->link.changes, __ATOMIC_RELAXED);
	s->rate =
		(double)__atomic_load_n(&rail->load.rate_bps, __ATOMIC_RELAXED);
	return 0;
}

void tei_rail_dp_set_topo(struct tei_rail_dp *dp, const struct tei_topo *topo)
{
	uint32_t i;

	tei_mutex_lock(&dp->admin);
	rail_sched_enter(dp);
	dp->topo = topo;
	for (i = 0; i < dp->memory.mrs.n; i++)
		rail_mr_rank(dp, rail_mr_at(dp, i));
	rail_sched_leave(dp);
	tei_mutex_unlock(&dp->admin);
}
