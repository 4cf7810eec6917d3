/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records the fence events of all simulated hosts, and passes them to the
 * acceptor (sim_fence.h).
 *
 * The linker option --wrap makes calls of some functions of prov/rail lead to
 * the functions __wrap_* in this file, which call the original functions. An
 * event is recorded at these calls, and when the simulated network closes an
 * endpoint. So the acceptor compares the state of an initiator with the events
 * at the target. Recording has no effect on the simulation.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_check.h"
#include "fabtests/sim/sim_fence.h"
#include "fabtests/sim/sim_fence_hooks.h"
#include "fabtests/sim/sim_net.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_reopen.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/wire/rail_wire.h"

#define HOOKS_BUCKETS	1024

/* A slice that has failed and was neither posted again nor dropped. */
struct hooks_slice {
	struct tei_list link;		/* in hooks.slices[] */
	const struct rail_slice *slice;
	uint64_t initiator, target;
	uint32_t rail, gen;
};

/* An open rx lane. */
struct hooks_lane {
	struct tei_list link;		/* in hooks.lanes or hooks.fresh */
	const struct rail *rail_of;	/* valid in hooks.fresh only */
	const struct fid_ep *ep;
	uint64_t target;
	uint32_t rail;
};

static struct {
	struct tei_list slices[HOOKS_BUCKETS];
	struct tei_list lanes;		/* recorded as SIM_FENCE_OPENED */
	struct tei_list fresh;		/* lanes of rails that may have no index
					 * yet */
	FILE *file;
	bool unfenced;			/* true while rail_slice_drop runs with
					 * its parameter "unfenced" set to
					 * true */
} hooks;

static void hooks_write(const struct sim_fence_event *e)
{
	const char *broken = sim_fence_accept(e);

	if (hooks.file)
		fprintf(hooks.file,
			"%.9f %s initiator %" PRIx64 " target %" PRIx64 " rail %u generation %u now %u%s%s\n",
			(double)(sim_now() - SIM_START_NS) / 1e9,
			sim_fence_name(e->kind), e->initiator, e->target,
			e->rail, e->gen, e->now, broken ? ": " : "",
			broken ? broken : "");
	if (!broken)
		return;
	if (hooks.file)
		fflush(hooks.file);
	sim_found("fence of initiator %" PRIx64 ", target %" PRIx64 ", rail %u: the model forbids %s (generation %u, now %u): %s",
		  e->initiator, e->target, e->rail, sim_fence_name(e->kind),
		  e->gen, e->now, broken);
}

/* Returns true if the rail is part of its data plane, and has its index. */
static bool hooks_has_index(const struct rail *rail)
{
	return rail->index < rail_count(rail->dp) &&
	       rail_at(rail->dp, rail->index) == rail;
}

/* Records SIM_FENCE_OPENED for the new rx lanes whose rails have an index. A
 * rail gets its index after its rx lane was opened. */
static void hooks_settle(void)
{
	struct hooks_lane *l, *next;

	tei_list_foreach_safe (l, next, &hooks.fresh, struct hooks_lane, link) {
		if (!hooks_has_index(l->rail_of))
			continue;
		l->rail = l->rail_of->index;
		tei_list_del(&l->link);
		tei_list_add_tail(&hooks.lanes, &l->link);
		hooks_write(&(struct sim_fence_event){
			.kind = SIM_FENCE_OPENED,
			.target = l->target,
			.rail = l->rail,
			.gen = l->rail_of->rx_lane.gen,
		});
	}
}

static void hooks_record(const struct sim_fence_event *e)
{
	hooks_settle();
	hooks_write(e);
}

/* --- slices --- */

static struct tei_list *hooks_bucket(const struct rail_slice *s)
{
	return &hooks.slices[((uintptr_t)s >> 6) % HOOKS_BUCKETS];
}

/* Records what happens to a slice that has failed earlier. */
static void hooks_slice(const struct rail_slice *s, enum sim_fence_kind kind)
{
	struct hooks_slice *h;

	tei_list_foreach (h, hooks_bucket(s), struct hooks_slice, link) {
		if (h->slice != s)
			continue;
		hooks_record(&(struct sim_fence_event){
			.kind = kind,
			.initiator = h->initiator,
			.target = h->target,
			.rail = h->rail,
			.gen = h->gen,
		});
		tei_list_del(&h->link);
		free(h);
		return;
	}
}

void __real_rail_slice_handle_error(struct tei_rail_dp *dp,
				    struct rail_slice *s, int err,
				    struct rail_done *done);
void __wrap_rail_slice_handle_error(struct tei_rail_dp *dp,
				    struct rail_slice *s, int err,
				    struct rail_done *done);
void __wrap_rail_slice_handle_error(struct tei_rail_dp *dp,
				    struct rail_slice *s, int err,
				    struct rail_done *done)
{
	struct hooks_slice *h = malloc(sizeof(*h));

	if (!h)
		sim_fail("no memory for a fence event");
	h->slice = s;
	h->initiator = dp->incarnation;
	h->target = s->peer->incarnation;
	h->rail = s->peer->remotes[s->remote_idx].id;
	h->gen = s->remote_gen;
	tei_list_add_tail(hooks_bucket(s), &h->link);
	hooks_record(&(struct sim_fence_event){
		.kind = SIM_FENCE_FAILED,
		.initiator = h->initiator,
		.target = h->target,
		.rail = h->rail,
		.gen = h->gen,
	});
	__real_rail_slice_handle_error(dp, s, err, done);
}

/* Checks that the slice, which will be posted, goes to a generation that is not
 * known to be closed. */
static void hooks_cut(const struct rail_slice *s)
{
	const struct tei_rail_peer *peer = s->peer;
	uint32_t rail = peer->remotes[s->remote_idx].id;
	const char *broken = sim_fence_cut(peer->dp->incarnation,
					   peer->incarnation, rail,
					   s->remote_gen);

	if (broken)
		sim_found("slice of initiator %" PRIx64 " to target %" PRIx64 ", rail %u, generation %u: %s",
			  peer->dp->incarnation, peer->incarnation, rail,
			  s->remote_gen, broken);
}

int __real_rail_slice_cut(struct rail_lane *lane, struct rail_slice **out);
int __wrap_rail_slice_cut(struct rail_lane *lane, struct rail_slice **out);
int __wrap_rail_slice_cut(struct rail_lane *lane, struct rail_slice **out)
{
	int i, n = __real_rail_slice_cut(lane, out);

	for (i = 0; i < n; i++) {
		hooks_slice(out[i], SIM_FENCE_RELEASED);
		hooks_cut(out[i]);
	}
	return n;
}

void __real_rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice);
void __wrap_rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice);
void __wrap_rail_slice_put(struct tei_rail_dp *dp, struct rail_slice *slice)
{
	hooks_slice(slice, hooks.unfenced ? SIM_FENCE_UNFENCED :
					    SIM_FENCE_RELEASED);
	__real_rail_slice_put(dp, slice);
}

void __real_rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *s,
			    bool unfenced, struct rail_done *done);
void __wrap_rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *s,
			    bool unfenced, struct rail_done *done);
void __wrap_rail_slice_drop(struct tei_rail_dp *dp, struct rail_slice *s,
			    bool unfenced, struct rail_done *done)
{
	hooks.unfenced = unfenced;
	__real_rail_slice_drop(dp, s, unfenced, done);
	hooks.unfenced = false;
}

/* --- the initiator's fence --- */

void __real_rail_fence_event(struct tei_rail_peer *peer, uint16_t remote,
			     enum rail_fence_event event,
			     const struct rail_fence_args *args);
void __wrap_rail_fence_event(struct tei_rail_peer *peer, uint16_t remote,
			     enum rail_fence_event event,
			     const struct rail_fence_args *args);
void __wrap_rail_fence_event(struct tei_rail_peer *peer, uint16_t remote,
			     enum rail_fence_event event,
			     const struct rail_fence_args *args)
{
	struct sim_fence_event e = {
		.initiator = peer->dp->incarnation,
		.target = peer->incarnation,
		.rail = peer->remotes[remote].id,
	};
	enum rail_fence_state next;

	if (!peer->remotes[remote].hint && event == RAIL_FENCE_EV_CLOSED) {
		e.kind = SIM_FENCE_LEARNED;
		if (args->gen == UINT32_MAX)
			e.kind = SIM_FENCE_OVER;
		else if (args->gen == UINT32_MAX - 1)
			e.kind = SIM_FENCE_RAIL_OVER;
		else
			e.now = args->gen + 1;
		hooks_record(&e);
	} else if (event == RAIL_FENCE_EV_UNNEEDED) {
		e.kind = SIM_FENCE_FORGOTTEN;
		hooks_record(&e);
	}
	if (rail_fence_reacts(peer->remotes[remote].fence.state, event,
			      &next) == RAIL_FENCE_IMPOSSIBLE)
		sim_found("fence of initiator %" PRIx64 ", target %" PRIx64 ", rail %u: event %d is impossible in state %d",
			  e.initiator, e.target, e.rail, (int)event,
			  (int)peer->remotes[remote].fence.state);
	__real_rail_fence_event(peer, remote, event, args);
	if (e.kind == SIM_FENCE_LEARNED &&
	    peer->remotes[remote].fence.state == RAIL_FENCE_NONE &&
	    sim_fence_outstanding(e.initiator, e.target, e.rail))
		sim_found("fence of initiator %" PRIx64 ", target %" PRIx64 ", rail %u: the initiator has ended it, and a newer generation is not closed",
			  e.initiator, e.target, e.rail);
}

/* Called when this process sends BYE to the peer. Records one event per
 * rail. */
static void hooks_bye(const struct tei_rail_peer *peer)
{
	struct sim_fence_event e = {
		.kind = SIM_FENCE_LEFT,
		.initiator = peer->incarnation,
		.target = peer->dp->incarnation,
	};

	for (e.rail = 0; e.rail < rail_count(peer->dp); e.rail++)
		hooks_record(&e);
}

/* Fails the simulation if a slice in the list uses a key of the peer's region.
 * `what` says what the slices of the list have done. */
static void hooks_uses(const struct tei_list *slices,
		       const struct tei_rail_peer *peer, uint64_t region,
		       const char *what)
{
	const struct rail_slice *s;

	tei_list_foreach (s, slices, struct rail_slice, link)
		if (s->peer == peer && s->rkey && s->rkey->id == region)
			sim_found("initiator %" PRIx64 " sends REVOKED for region %" PRIu64 " to target %" PRIx64 ", but a slice that uses its key %s",
				  peer->dp->incarnation, region,
				  peer->incarnation, what);
}

/* Called when this process sends REVOKED to the peer. w: the body of the
 * message. */
static void hooks_revoked(const struct tei_rail_peer *peer,
			  struct rail_wire *w)
{
	uint64_t n = rail_wire_get(w, 2), region;
	struct rail *rail;
	uint32_t i, j;

	while (n--) {
		region = rail_wire_get(w, 8);
		hooks_uses(&peer->tasks.awaiting_fence, peer, region,
			   "waits for the fence");
		for (i = 0; i < rail_count(peer->dp); i++) {
			rail = rail_at(peer->dp, i);
			for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++)
				hooks_uses(&rail->tx_lanes[j].posted, peer,
					   region, "is posted");
		}
	}
}

int __real_rail_msg_send(struct tei_rail_peer *peer, const void *msg,
			 size_t len, uint32_t attempt);
int __wrap_rail_msg_send(struct tei_rail_peer *peer, const void *msg,
			 size_t len, uint32_t attempt);
int __wrap_rail_msg_send(struct tei_rail_peer *peer, const void *msg,
			 size_t len, uint32_t attempt)
{
	struct rail_wire w = { .p = (uint8_t *)(uintptr_t)msg, .cap = len };
	struct sim_fence_event e = {
		.initiator = peer->dp->incarnation,
		.target = peer->incarnation,
	};
	uint64_t type;

	w.pos = 5;
	type = rail_wire_get(&w, 1);
	w.pos = RAIL_WIRE_HEADER;
	if (type == RAIL_MSG_FENCE) {
		e.kind = SIM_FENCE_SENT;
		e.rail = (uint32_t)rail_wire_get(&w, 2);
		e.gen = (uint32_t)rail_wire_get(&w, 4);
		hooks_record(&e);
	} else if (type == RAIL_MSG_FENCED) {
		e.kind = SIM_FENCE_ANSWERED;
		e.initiator = peer->incarnation;
		e.target = peer->dp->incarnation;
		e.rail = (uint32_t)rail_wire_get(&w, 2);
		e.gen = (uint32_t)rail_wire_get(&w, 4);
		e.now = (uint32_t)rail_wire_get(&w, 4);
		hooks_record(&e);
	} else if (type == RAIL_MSG_REVOKED) {
		hooks_revoked(peer, &w);
	} else if (type == RAIL_MSG_BYE) {
		hooks_bye(peer);
	}
	return __real_rail_msg_send(peer, msg, len, attempt);
}

void __real_rail_fence_on_reply(struct tei_rail_peer *peer, struct rail_wire *w,
				struct rail_done *done);
void __wrap_rail_fence_on_reply(struct tei_rail_peer *peer, struct rail_wire *w,
				struct rail_done *done);
void __wrap_rail_fence_on_reply(struct tei_rail_peer *peer, struct rail_wire *w,
				struct rail_done *done)
{
	struct rail_wire copy = *w;
	struct sim_fence_event e = {
		.kind = SIM_FENCE_REPLIED,
		.initiator = peer->dp->incarnation,
		.target = peer->incarnation,
	};

	e.rail = (uint32_t)rail_wire_get(&copy, 2);
	e.gen = (uint32_t)rail_wire_get(&copy, 4);
	e.now = (uint32_t)rail_wire_get(&copy, 4);
	hooks_record(&e);
	__real_rail_fence_on_reply(peer, w, done);
}

/* --- the target's answers --- */

/* Records an event of the target "peer->dp" and the initiator "peer". */
static void hooks_target(const struct tei_rail_peer *peer, uint32_t rail,
			 uint32_t gen, enum sim_fence_kind kind)
{
	hooks_record(&(struct sim_fence_event){
		.kind = kind,
		.initiator = peer->incarnation,
		.target = peer->dp->incarnation,
		.rail = rail,
		.gen = gen,
	});
}

void __real_rail_fence_requested(struct tei_rail_peer *peer, uint16_t rail,
				 uint32_t gen);
void __wrap_rail_fence_requested(struct tei_rail_peer *peer, uint16_t rail,
				 uint32_t gen);
void __wrap_rail_fence_requested(struct tei_rail_peer *peer, uint16_t rail,
				 uint32_t gen)
{
	hooks_target(peer, rail, gen, SIM_FENCE_ASKED);
	__real_rail_fence_requested(peer, rail, gen);
}

void __real_rail_fence_answered(struct tei_rail_peer *peer, uint16_t rail,
				uint32_t gen);
void __wrap_rail_fence_answered(struct tei_rail_peer *peer, uint16_t rail,
				uint32_t gen);
void __wrap_rail_fence_answered(struct tei_rail_peer *peer, uint16_t rail,
				uint32_t gen)
{
	hooks_target(peer, rail, gen, SIM_FENCE_SETTLED);
	__real_rail_fence_answered(peer, rail, gen);
}

void __real_rail_fence_no_answers(struct tei_rail_peer *peer);
void __wrap_rail_fence_no_answers(struct tei_rail_peer *peer);
void __wrap_rail_fence_no_answers(struct tei_rail_peer *peer)
{
	uint32_t i;

	for (i = 0; i < rail_count(peer->dp); i++)
		if (peer->fence.due & UINT64_C(1) << i)
			hooks_target(peer, i, peer->fence.due_gen[i],
				     SIM_FENCE_SETTLED);
	__real_rail_fence_no_answers(peer);
}

/* --- the target's rx lanes --- */

static void hooks_opened(const struct rail *rail)
{
	struct hooks_lane *l = malloc(sizeof(*l));

	if (!l)
		sim_fail("no memory for a fence event");
	l->ep = rail->rx_lane.ep;
	l->target = rail->dp->incarnation;
	l->rail_of = rail;
	tei_list_add_tail(&hooks.fresh, &l->link);
	hooks_settle();
}

/* Removes the lane of a closed endpoint from a list. Returns the lane, which the
 * caller frees, or NULL if the list does not contain it. */
static struct hooks_lane *hooks_take(struct tei_list *list,
				     const struct fid_ep *ep)
{
	struct hooks_lane *l;

	tei_list_foreach (l, list, struct hooks_lane, link) {
		if (l->ep != ep)
			continue;
		tei_list_del(&l->link);
		return l;
	}
	return NULL;
}

/* Called when the simulated network has closed an endpoint. */
static void hooks_closed(const struct fid_ep *ep)
{
	struct hooks_lane *l;

	hooks_settle();
	free(hooks_take(&hooks.fresh, ep));
	l = hooks_take(&hooks.lanes, ep);
	if (!l)
		return;
	hooks_record(&(struct sim_fence_event){
		.kind = SIM_FENCE_CLOSED,
		.target = l->target,
		.rail = l->rail,
	});
	free(l);
}

int __real_rail_lane_open(struct rail_lane *lane, struct tei_err *err);
int __wrap_rail_lane_open(struct rail_lane *lane, struct tei_err *err);
int __wrap_rail_lane_open(struct rail_lane *lane, struct tei_err *err)
{
	int ret = __real_rail_lane_open(lane, err);

	/* a lane that an opener thread opens becomes the rx lane later, in
	 * rail_health_collect */
	if (!ret && lane == &lane->rail->rx_lane)
		hooks_opened(lane->rail);
	return ret;
}

uint32_t __real_rail_health_collect(struct rail *rail);
uint32_t __wrap_rail_health_collect(struct rail *rail);
uint32_t __wrap_rail_health_collect(struct rail *rail)
{
	uint32_t what = __real_rail_health_collect(rail);

	if (what & RAIL_REOPENED_RX)
		hooks_opened(rail);
	return what;
}

void __real_rail_lane_shutdown(struct rail_lane *lane, bool throttled);
void __wrap_rail_lane_shutdown(struct rail_lane *lane, bool throttled);
void __wrap_rail_lane_shutdown(struct rail_lane *lane, bool throttled)
{
	if (lane == &lane->rail->rx_lane && lane->ep)
		hooks_record(&(struct sim_fence_event){
			.kind = SIM_FENCE_CLOSING,
			.target = lane->rail->dp->incarnation,
			.rail = lane->rail->index,
		});
	__real_rail_lane_shutdown(lane, throttled);
}

/* --- begin and end --- */

static void hooks_free_lanes(struct tei_list *list)
{
	struct hooks_lane *l, *next;

	tei_list_foreach_safe (l, next, list, struct hooks_lane, link) {
		tei_list_del(&l->link);
		free(l);
	}
}

/* Frees the slices of an initiator, or all if `initiator` is 0. */
static void hooks_free_slices(uint64_t initiator)
{
	struct hooks_slice *h, *next;
	size_t i;

	for (i = 0; i < HOOKS_BUCKETS; i++)
		tei_list_foreach_safe (h, next, &hooks.slices[i],
				       struct hooks_slice, link) {
			if (initiator && h->initiator != initiator)
				continue;
			tei_list_del(&h->link);
			free(h);
		}
}

/* The data plane frees its slices, and other slices may get their addresses. A
 * killed process frees nothing. */
void __real_tei_rail_dp_close(struct tei_rail_dp *dp, uint64_t drain_ns);
void __wrap_tei_rail_dp_close(struct tei_rail_dp *dp, uint64_t drain_ns);
void __wrap_tei_rail_dp_close(struct tei_rail_dp *dp, uint64_t drain_ns)
{
	uint64_t incarnation = dp->incarnation;

	__real_tei_rail_dp_close(dp, drain_ns);
	hooks_free_slices(incarnation);
}

void sim_fence_hooks_begin(FILE *file)
{
	size_t i;

	hooks.file = file;
	hooks.unfenced = false;
	tei_list_init(&hooks.lanes);
	tei_list_init(&hooks.fresh);
	for (i = 0; i < HOOKS_BUCKETS; i++)
		tei_list_init(&hooks.slices[i]);
	sim_fence_begin();
	sim_net_on_close(hooks_closed);
}

void sim_fence_hooks_end(void)
{
	sim_net_on_close(NULL);
	hooks_free_slices(0);
	hooks_free_lanes(&hooks.fresh);
	hooks_free_lanes(&hooks.lanes);
	sim_fence_end();
	hooks.file = NULL;
}
