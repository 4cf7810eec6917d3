/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of peers, the states of a peer from its creation until it is freed,
 * and functions of tei_rail.h about one peer. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_conn.h"
#include "prov/rail/conn/rail_disconnect.h"
#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_addr.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_state.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/peer/rail_atomic_ctl.h"
#include "prov/rail/peer/rail_notify.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/peer/rail_reverse.h"
#include "prov/rail/sched/rail_atomic.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/heap.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/secret.h"
#include "util/settings.h"
#include "util/world.h"

#define PEER_ALIVE_NS		(5 * TEI_NS_PER_MS)
#define PEER_FIRST_NS		(500 * TEI_NS_PER_MS)
#define PEER_NOT_THERE_NS	(200 * TEI_NS_PER_MS)
#define PEER_PROBE_LOOK		16	/* largest number of peers that one call
					 * of rail_peer_probe examines */

static struct tei_list *peer_bucket(struct tei_rail_dp *dp, uint64_t inc)
{
	return &dp->peers.hash[(inc ^ (inc >> 32)) % RAIL_PEER_HASH];
}

struct tei_rail_peer *rail_peer_find(struct tei_rail_dp *dp, uint64_t inc)
{
	struct tei_rail_peer *p;

	tei_list_foreach(p, peer_bucket(dp, inc), struct tei_rail_peer,
			 hash_link)
		if (p->incarnation == inc)
			return p;
	return NULL;
}

/* Returns true if the peer may be evicted: it is not in use, and no answer to
 * it is pending. Its process may be alive. */
static bool peer_evictable(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	return rail_peer_unused(p) && p->state != RAIL_PEER_GONE &&
	       !p->note_out.n && !p->note_in.answer_pending && !p->keys.nowed &&
	       !rail_fence_answer_due(&p->fence) &&
	       !p->keys.reply.answer_pending;
}

/* Returns true if the peer has still to answer a fence or a revocation. */
static bool peer_owes(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	return rail_fence_failed(&p->fence) || p->keys.nrevokes;
}

/* Returns the evictable peer that has been silent for longest, or NULL. owes:
 * if true, considers only peers that have still to answer a fence or a
 * revocation, otherwise only the others. */
static struct tei_rail_peer *peer_spare(struct tei_rail_dp *dp, bool owes)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p;

	tei_list_foreach (p, &dp->peers.list, struct tei_rail_peer, link)
		if (peer_evictable(p) && peer_owes(p) == owes)
			return p;
	return NULL;
}

/*
 * Evicts the peer that has been silent for longest. The progress thread frees
 * the peer object later, because it may be using the object now. If the process
 * behind the peer is alive, it sends a hello when one of its requests is not
 * answered.
 */
static void peer_evict(struct tei_rail_dp *dp) TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_peer *p = peer_spare(dp, false);
	struct rail_done done;

	p = p ? p : peer_spare(dp, true);
	if (!p)
		return;
	rail_done_init(&done);
	/* the peer has no tasks, so there is nothing to report */
	rail_peer_forget(p, "evicted because another peer was added", &done);
	p->evicted = true;
	dp->peers.n--;
}

static struct tei_rail_peer *peer_make(struct tei_rail_dp *dp,
				       const char *name, uint64_t inc)
{
	struct tei_rail_peer *p = calloc(1, sizeof(*p));
	int i;

	if (!p)
		return NULL;
	if (!tei_random(p->auth.nonce, sizeof(p->auth.nonce))) {
		free(p);
		return NULL;
	}
	p->dp = dp;
	p->incarnation = inc;
	p->auth.sent = tei_now_ns();
	p->alive_ns = tei_now_ns();
	p->born_ns = p->alive_ns;
	snprintf(p->name, sizeof(p->name), "%s", name);
	for (i = 0; i < TEI_RAIL_MAX; i++)
		p->routes.route[i] = -1;
	tei_list_init(&p->hash_link);
	tei_list_init(&p->attn_link);
	tei_list_init(&p->active_link);
	tei_list_init(&p->tasks.small);
	tei_list_init(&p->tasks.queue);
	tei_list_init(&p->tasks.live);
	tei_list_init(&p->tasks.recent_link);
	tei_list_init(&p->tasks.retry);
	tei_list_init(&p->tasks.awaiting_fence);
	rail_notify_init(p);
	tei_list_init(&p->keys.all);
	tei_list_init(&p->keys.groups);
	rail_atomic_init(p);
	tei_list_init(&p->faults);
	p->life.received = -1;
	tei_list_add_tail(&dp->peers.list, &p->link);
	return p;
}

bool rail_peer_no_room(const struct tei_rail_dp *dp)
{
	return dp->peers.n >= dp->settings->limits.max_peers;
}

struct tei_rail_peer *rail_peer_new(struct tei_rail_dp *dp, const char *name,
				    uint64_t inc)
{
	struct tei_rail_peer *p;

	if (rail_peer_no_room(dp))
		peer_evict(dp);
	if (rail_peer_no_room(dp)) {
		TEI_LOG_LIMITED(&dp->peers.limit, TEI_LOG_WARN, "rail",
				"peer refused: MOONRAIL_MAX_PEERS=%u reached",
				dp->settings->limits.max_peers);
		return NULL;
	}
	p = peer_make(dp, name, inc);
	if (!p)
		return NULL;
	tei_list_add_tail(peer_bucket(dp, inc), &p->hash_link);
	dp->peers.n++;
	rail_notify_recall(p);
	return p;
}

/* Limits of unauthenticated peers: shortest time between two of them, time for
 * which a refusal is repeated, and largest number in the life of the data
 * plane. Limits are needed because the address that such a peer claims to have
 * occupies an entry of an address vector. */
#define PEER_UNAUTHENTICATED_NS	    (100 * TEI_NS_PER_MS)
#define PEER_UNAUTHENTICATED_TRY_NS TEI_NS_PER_SEC
#define PEER_STRANGERS_EVER	4096

struct tei_rail_peer *
rail_peer_unauthenticated(struct tei_rail_dp *dp, uint64_t inc,
			  const struct tei_rail_addr *first,
			  enum rail_refusal why)
{
	uint64_t now = tei_now_ns();
	struct tei_rail_peer *p;

	if (dp->peers.nunauthenticated >= RAIL_STRANGERS ||
	    now < dp->peers.unauthenticated_next_ns ||
	    dp->peers.unauthenticated_ever >= PEER_STRANGERS_EVER)
		return NULL;
	p = peer_make(dp, "an unauthenticated process", inc);
	if (!p)
		return NULL;
	dp->peers.nunauthenticated++;
	dp->peers.unauthenticated_ever++;
	dp->peers.unauthenticated_next_ns = now + PEER_UNAUTHENTICATED_NS;
	/* if memory is short, the peer has no address, so no refusal is sent */
	rail_peer_set_contacts(p, first, 1);
	__atomic_store_n(&p->state, RAIL_PEER_GONE, __ATOMIC_RELEASE);
	p->refusal.unauthenticated = true;
	p->refusal.unauthenticated_ns = now + PEER_UNAUTHENTICATED_TRY_NS;
	p->refusal.incarnation = dp->incarnation;
	p->refusal.reason = why;
	rail_peer_attend(p);
	return p;
}

static void peer_free(struct tei_rail_peer *p) TEI_REQUIRES(rail_sched_held);

/* Creates a resolver: a peer object that sends a hello to the address without
 * knowing the incarnation of the process. */
struct tei_rail_peer *rail_peer_resolver(struct tei_rail_dp *dp,
					 const struct tei_rail_addr *first)
{
	struct tei_rail_peer *p = peer_make(dp, "a process known by its address", 0);

	if (!p)
		return NULL;
	if (rail_peer_set_contacts(p, first, 1)) {
		tei_list_del(&p->attn_link);
		tei_list_del(&p->link);
		peer_free(p);
		return NULL;
	}
	p->addrs.resolver = true;
	p->refs = 1;
	p->hello.wanted = true;
	dp->peers.nresolvers++;
	rail_peer_attend(p);
	return p;
}

static void peer_free(struct tei_rail_peer *p) TEI_REQUIRES(rail_sched_held)
{
	rail_notify_free(p);
	rail_atomic_free(p);
	rail_key_free_all(p);
	rail_conn_free_all(p);
	rail_reverse_free(p);
	free(p->keys.ids);
	free(p->keys.draining);
	free(p->keys.answer_pending);
	free(p->keys.revokes);
	free(p->remotes);
	free(p->addrs.contacts);
	free(p);
}

bool rail_peer_orphaned(const struct tei_rail_peer *p)
{
	return !p->refs && p->state == RAIL_PEER_NEW && !p->hello.known_us &&
	       tei_list_empty(&p->tasks.live) && !p->note_out.n;
}

/* Returns true if the peer can be freed: it is gone or orphaned, it is not in
 * use, and no revocation or refusal is in progress. */
static bool peer_idle(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	return rail_peer_unused(p) &&
	       (p->state == RAIL_PEER_GONE || rail_peer_orphaned(p)) &&
	       !p->keys.nrevokes && !p->refusal.incarnation;
}

bool rail_peer_maybe_free(struct tei_rail_peer *p)
{
	if (!peer_idle(p))
		return false;
	if (!tei_list_empty(&p->active_link))
		__atomic_store_n(&p->dp->tasks.nactive,
				 p->dp->tasks.nactive - 1, __ATOMIC_RELAXED);
	rail_health_forget(p);
	tei_list_del(&p->active_link);
	tei_list_del(&p->tasks.recent_link);
	tei_list_del(&p->attn_link);
	tei_heap_remove(&p->dp->peers.timed, &p->timed);
	tei_list_del(&p->hash_link);
	tei_list_del(&p->link);
	if (p->addrs.resolver)
		p->dp->peers.nresolvers--;
	else if (p->refusal.unauthenticated)
		p->dp->peers.nunauthenticated--;
	else if (!p->evicted)
		p->dp->peers.n--;
	peer_free(p);
	return true;
}

void rail_peer_free_all(struct tei_rail_dp *dp)
{
	struct tei_rail_peer *p, *tmp;

	rail_sched_enter(dp);
	dp->notes.closed = true;
	tei_list_foreach_safe (p, tmp, &dp->peers.list, struct tei_rail_peer,
			       link)
		peer_free(p);
	tei_list_init(&dp->peers.list);
	tei_heap_fini(&dp->peers.timed);
	rail_sched_leave(dp);
}

void rail_peer_alive(struct tei_rail_peer *p, uint64_t now)
{
	p->alive_ns = now;
	p->life.probing = false;
	tei_list_del(&p->link);
	tei_list_add_tail(&p->dp->peers.list, &p->link);
}

/* Pings unused peers, one after the other, because nothing else shows that the
 * process of an unused peer has ended without BYE. dp->peers.list is in the
 * order of the last signs of life. */
void rail_peer_probe(struct tei_rail_dp *dp, uint64_t now)
{
	struct tei_rail_peer *p;
	int i;

	rail_sched_enter(dp);
	for (i = 0; i < PEER_PROBE_LOOK && !tei_list_empty(&dp->peers.list);
	     i++) {
		p = tei_list_first(&dp->peers.list, struct tei_rail_peer, link);
		if (now < p->alive_ns + dp->times.probe_ns)
			break;
		tei_list_del(&p->link);
		tei_list_add_tail(&dp->peers.list, &p->link);
		if (!rail_peer_unused(p) || p->life.probing ||
		    p->state != RAIL_PEER_READY)
			continue;
		p->life.probing = true;
		p->life.probe_ns = now;
		rail_peer_attend(p);
		break;
	}
	rail_sched_leave(dp);
}

void rail_peer_ready(struct tei_rail_peer *p)
{
	rail_health_forget(p);
	__atomic_store_n(&p->state, RAIL_PEER_READY, __ATOMIC_RELEASE);
	p->hello.wanted = false;
	p->hello.tries = 0;
	p->routes.changed = true;
}

/* Handles that the peer's process has certainly ended, so that it no longer
 * writes or executes anything. */
static void peer_over(struct tei_rail_peer *p, enum rail_gone gone,
		      const char *why, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	p->gone = gone;
	rail_atomic_gone(p, why, done);
	for (i = 0; i < p->nremotes; i++)
		rail_fence_event(p, i, RAIL_FENCE_EV_CLOSED,
				 &(struct rail_fence_args){ .gen = UINT32_MAX,
							    .done = done });
}

/*
 * Moves the peer to GONE and ends its tasks. why: the error of the tasks. If
 * the process may be alive, tasks with posted slices wait for a fence before
 * they end.
 */
static void peer_end(struct tei_rail_peer *p, const struct tei_err *why,
		     enum rail_gone gone, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_dp *dp = p->dp;
	struct tei_rail_task *t, *tmp;

	__atomic_store_n(&p->state, RAIL_PEER_GONE, __ATOMIC_RELEASE);
	p->gone_ns = tei_now_ns();
	rail_health_forget(p);
	tei_list_foreach_safe (t, tmp, &p->tasks.live, struct tei_rail_task,
			       live_link)
		rail_task_end_unpurged(dp, t, TEI_RAIL_END_FAILED, why, done);
	rail_task_purge(p, done);
	rail_notify_gone(p, why);
	if (gone != RAIL_GONE_PERHAPS)
		peer_over(p, gone, why->text, done);
	rail_key_holder_gone(dp, p->incarnation, gone == RAIL_GONE_LEFT);
	while (p->keys.nrevokes)
		rail_key_drained(p, p->keys.revokes[0]);
	rail_key_drop_all(p);
	p->keys.want.active = false;
	rail_peer_attend(p);
	rail_progress_signal(dp);
}

/* Moves a peer from RAIL_GONE_PERHAPS to a state in which its process has
 * certainly ended. */
static void peer_known_gone(struct tei_rail_peer *p, const char *why,
			    enum rail_gone gone, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held)
{
	if (gone == RAIL_GONE_PERHAPS || rail_peer_over(p))
		return;
	peer_over(p, gone, why, done);
	rail_peer_attend(p);
}

void rail_peer_set_gone(struct tei_rail_peer *p, const char *why,
			enum rail_gone gone, struct rail_done *done)
{
	struct tei_err err;

	if (p->state == RAIL_PEER_GONE) {
		peer_known_gone(p, why, gone, done);
		return;
	}
	TEI_INFO("rail", "peer %s: gone: %s", p->name, why);
	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_CONTEXT;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text), "stale incarnation: %.128s", why);
	snprintf(err.hint, sizeof(err.hint), "open the segment again");
	peer_end(p, &err, gone, done);
}

void rail_peer_refused(struct tei_rail_peer *p, const char *why,
		       struct rail_done *done)
{
	struct tei_err err;

	if (p->state == RAIL_PEER_GONE)
		return;
	memset(&err, 0, sizeof(err));
	err.code = TEI_ERR_REJECTED;
	err.when_ns = tei_now_ns();
	snprintf(err.peer, sizeof(err.peer), "%.95s", p->name);
	snprintf(err.text, sizeof(err.text), "refused by the peer: %.128s",
		 why);
	TEI_ERROR("rail", "%s: %s", p->name, err.text);
	/* the process is alive, and posted slices may still land */
	peer_end(p, &err, RAIL_GONE_PERHAPS, done);
}

void rail_peer_forget(struct tei_rail_peer *p, const char *why,
		      struct rail_done *done)
{
	/* no slice of the peer is posted, so the peer is treated as if its
	 * process had ended */
	rail_peer_set_gone(p, why, RAIL_GONE_OVER, done);
	/* if the process is alive and sends a hello, a new peer object is
	 * created for it */
	tei_list_del(&p->hash_link);
}

/* --- the functions of tei_rail.h ----------------------------------------- */

/* Drops the reference that a failed tei_rail_peer_get took. */
static void peer_unget(struct tei_rail_peer *p) TEI_REQUIRES(rail_sched_held)
{
	if (!--p->refs)
		rail_peer_attend(p);
}

int tei_rail_peer_get(struct tei_rail_dp *dp, const char *name, uint64_t inc,
		      const struct tei_rail_addr *at, size_t n,
		      struct tei_err *err, struct tei_rail_peer **out)
{
	struct tei_rail_peer *p;
	int ret = 0;

	if (!inc || !n || !at->len || at->len > sizeof(at->bytes))
		return tei_err_fail(err, TEI_ERR_METADATA, "rail", NULL,
				    "%s: its descriptor has no contact address",
				    name);
	rail_sched_enter(dp);
	p = rail_peer_find(dp, inc);
	if (!p)
		p = rail_peer_new(dp, name, inc);
	if (p) {
		p->refs++;
		if (!*p->name)
			snprintf(p->name, sizeof(p->name), "%s", name);
		ret = rail_peer_set_contacts(p, at, n);
		if (ret)
			peer_unget(p);
	} else {
		ret = rail_peer_no_room(dp) ? TEI_ERR_TOO_MANY : TEI_ERR_MEMORY;
	}
	rail_sched_leave(dp);
	if (ret == TEI_ERR_TOO_MANY)
		return tei_err_fail(err, TEI_ERR_TOO_MANY, "rail",
				    "raise MOONRAIL_MAX_PEERS",
				    "%s: not added: this process already has MOONRAIL_MAX_PEERS peers", name);
	if (ret)
		return tei_err_fail(err, ret, "rail", NULL,
				    "%s: no memory for the peer's addresses", name);
	*out = p;
	return 0;
}

int rail_peer_reserve(struct tei_rail_peer *p, size_t n)
{
	struct rail_remote *grown;

	if (n <= p->remotes_room)
		return 0;
	grown = realloc(p->remotes, n * sizeof(*grown));
	if (!grown)
		return TEI_ERR_MEMORY;
	p->remotes = grown;
	p->remotes_room = (uint16_t)n;
	return 0;
}

int rail_peer_set_contacts(struct tei_rail_peer *p,
			   const struct tei_rail_addr *at, size_t n)
{
	struct rail_remote *r;
	uint16_t i;

	if (p->state != RAIL_PEER_NEW)
		return 0;
	if (n > TEI_RAIL_CONTACTS)
		n = TEI_RAIL_CONTACTS;
	if (rail_peer_reserve(p, n))
		return TEI_ERR_MEMORY;
	for (i = 0; i < n; i++) {
		r = &p->remotes[i];
		if (i < p->nremotes && r->id == UINT16_MAX && r->serial &&
		    !memcmp(&r->addr, &at[i], sizeof(at[i])))
			continue;
		memset(r, 0, sizeof(*r));
		r->id = UINT16_MAX;
		r->addr = at[i];
		r->serial = ++p->serial;
		p->addrs.contact.refused &= ~(UINT64_C(1) << i);
	}
	p->nremotes = (uint16_t)n;
	return rail_conn_table(p);
}

/* --- finding a peer again ------------------------------------------------ */

static struct rail_remote *peer_hint(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	uint16_t i;

	for (i = 0; i < p->nremotes; i++)
		if (p->remotes[i].hint)
			return &p->remotes[i];
	return NULL;
}

bool rail_peer_searched(const struct tei_rail_peer *p)
{
	uint16_t r;

	for (r = 0; r < p->nremotes; r++)
		if (p->remotes[r].hint && p->remotes[r].addr.len)
			return true;
	return false;
}

int16_t rail_peer_hint(const struct tei_rail_peer *p, const struct rail *rail)
{
	const struct rail_remote *r = peer_hint(p);

	return r && rail_conn_reach(rail, r) ? (int16_t)(r - p->remotes) : -1;
}

void rail_peer_drop_hint(struct tei_rail_peer *p)
{
	struct rail_remote *r = peer_hint(p);

	if (!r)
		return;
	memset(&r->addr, 0, sizeof(r->addr));
	r->serial = ++p->serial;
}

/* Returns the entry of peer->remotes that is used for a hint. Creates it if
 * necessary. Returns NULL if memory is short. */
static struct rail_remote *peer_make_hint(struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_remote *r = peer_hint(p);

	if (r)
		return r;
	if (rail_peer_reserve(p, p->nremotes + 1u))
		return NULL;
	r = &p->remotes[p->nremotes++];
	memset(r, 0, sizeof(*r));
	r->id = UINT16_MAX;
	r->hint = true;
	if (!rail_conn_table(p))
		return r;
	p->nremotes--;
	return NULL;
}

/*
 * Makes an address at which the peer was found the hint, so that hellos are
 * sent to it. This is necessary if both processes have opened their lanes again
 * at the same time: neither process then knows a valid address of the other,
 * and no announcement arrives. An address can still be read from the peer's
 * control channel. The answer to a hello to this address lists the peer's
 * rails.
 */
static void peer_hint_at(struct tei_rail_peer *p,
			 const struct tei_rail_addr *at)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_remote *r;
	uint16_t i;

	for (i = 0; i < p->nremotes; i++)
		if (!memcmp(&p->remotes[i].addr, at, sizeof(*at)))
			return;
	r = peer_make_hint(p);
	if (!r)
		return;
	r->addr = *at;
	r->serial = ++p->serial;
	p->hello.again = true;
	p->addrs.hint_turn = 1;
	p->hello.tries = 0;
	p->hello.next_ns = 0;
	p->addrs.contact_next_ns = tei_now_ns() + PEER_FIRST_NS;
	TEI_DEBUG_LOG("rail", "peer %s: sending a hello to another address",
		      p->name);
}

void rail_peer_take_hint(struct tei_rail_peer *p)
{
	struct tei_rail_addr at = p->addrs.found_at;

	p->addrs.found_at.len = 0;
	if (p->state == RAIL_PEER_READY)
		peer_hint_at(p, &at);
}

void rail_peer_take_contacts(struct tei_rail_peer *p,
			     const struct tei_rail_addr *at, uint16_t n)
{
	struct tei_rail_addr *more = p->addrs.contacts;

	if (n > p->addrs.ncontacts) {
		more = realloc(p->addrs.contacts, n * sizeof(*more));
		if (!more)
			return;
		p->addrs.contacts = more;
	}
	p->addrs.ncontacts = n;
	if (n)
		memcpy(p->addrs.contacts, at, n * sizeof(*at));
}

bool rail_peer_not_there(struct tei_rail_peer *p)
{
	const struct rail_remote *r = peer_hint(p);
	uint64_t now = tei_now_ns();
	uint16_t i = 0;

	/* several hellos were sent to the address that was dropped a moment
	 * ago, so this refusal may answer one of them */
	if (p->addrs.ncontacts && p->addrs.not_there_ns &&
	    now < p->addrs.not_there_ns + PEER_NOT_THERE_NS)
		return true;
	while (r && r->addr.len && i < p->addrs.ncontacts &&
	       !rail_addr_same(&p->addrs.contacts[i], &r->addr))
		i++;
	if (!r || !r->addr.len || i >= p->addrs.ncontacts)
		return false;
	p->addrs.contacts[i] = p->addrs.contacts[--p->addrs.ncontacts];
	if (!p->addrs.ncontacts)
		return false;
	rail_peer_drop_hint(p);
	p->addrs.contact_next_ns = 0;
	p->addrs.not_there_ns = now;
	rail_peer_attend(p);
	return true;
}

void rail_peer_next_first(struct tei_rail_peer *p, uint64_t now)
{
	if (!p->addrs.ncontacts || p->addrs.found_at.len ||
	    now < p->addrs.contact_next_ns)
		return;
	p->addrs.found_at =
		p->addrs.contacts[p->addrs.contact_turn++ % p->addrs.ncontacts];
	p->addrs.contact_next_ns = now + PEER_FIRST_NS;
}

/* --- references ----------------------------------------------------------- */

void tei_rail_peer_hold(struct tei_rail_peer *p)
{
	rail_sched_enter(p->dp);
	p->refs++;
	rail_sched_leave(p->dp);
}

void tei_rail_peer_put(struct tei_rail_peer *p)
{
	struct tei_rail_dp *dp = p->dp;

	rail_sched_enter(dp);
	if (!--p->refs)
		rail_peer_attend(p);
	rail_sched_leave(dp);
}

const char *tei_rail_peer_name(const struct tei_rail_peer *p)
{
	return p->name;
}

uint64_t tei_rail_peer_incarnation(const struct tei_rail_peer *p)
{
	return p->incarnation;
}

bool tei_rail_addr_fits(struct tei_rail_dp *dp,
			const struct tei_rail_addr *addr)
{
	return rail_conn_fit_any(dp, addr) >= 0;
}

static bool rail_peer_sound(const struct tei_rail_peer *p)
	TEI_REQUIRES(rail_sched_held)
{
	return p->state != RAIL_PEER_GONE && !rail_fence_failed(&p->fence) &&
	       !rail_fence_any(p);
}

bool tei_rail_peer_sound(struct tei_rail_peer *p)
{
	bool ok;

	rail_sched_enter(p->dp);
	ok = rail_peer_sound(p);
	rail_sched_leave(p->dp);
	return ok;
}

bool tei_rail_peer_healthy(struct tei_rail_peer *p)
{
	bool ok;

	rail_sched_enter(p->dp);
	ok = rail_peer_sound(p) && p->state == RAIL_PEER_READY &&
	     tei_now_ns() - p->alive_ns < PEER_ALIVE_NS;
	rail_sched_leave(p->dp);
	return ok;
}

bool tei_rail_peer_gone(struct tei_rail_peer *p)
{
	bool gone;

	rail_sched_enter(p->dp);
	gone = p->state == RAIL_PEER_GONE;
	rail_sched_leave(p->dp);
	return gone;
}

bool tei_rail_gone(struct tei_rail_dp *dp, uint64_t incarnation)
{
	struct tei_rail_peer *p;
	bool gone;

	rail_sched_enter(dp);
	p = rail_peer_find(dp, incarnation);
	gone = p && p->state == RAIL_PEER_GONE;
	rail_sched_leave(dp);
	return gone;
}

/* --- a peer whose name was taken, or that was seen to end ---------------- */

#define PEER_REFUSED_NS	(250 * TEI_NS_PER_MS)

#define PEER_DOORS (2 * TEI_RAIL_MAX)

/* An address at which a rail of the peer listened, and a local rail that
 * reaches it. */
struct peer_listen_addr {
	struct tei_rail_addr addr;
	struct rail *rail;
};

/* Returns false if no local rail reaches the address. */
static bool peer_listen_addr(struct tei_rail_dp *dp,
			     const struct tei_rail_addr *at,
			     struct peer_listen_addr *listen_addr)
{
	int i = at->len ? rail_conn_fit_any(dp, at) : -1;

	if (i < 0)
		return false;
	listen_addr->addr = *at;
	listen_addr->rail = rail_at(dp, (uint32_t)i);
	return true;
}

/* Lists the listening addresses of all rails of the peer, and the peer's
 * contact addresses. Returns their number, or 0 if an address cannot be reached
 * or a rail has no address at present. */
static uint32_t peer_doors(struct tei_rail_peer *p,
			   struct peer_listen_addr listen_addr[PEER_DOORS])
{
	const struct rail_remote *at;
	bool good = true;
	uint32_t n = 0;
	uint16_t i;

	rail_sched_enter(p->dp);
	for (i = 0; i < p->nremotes && good; i++) {
		at = &p->remotes[i];
		if (at->hint || (!at->addr.len && !at->away))
			continue;
		good = n < PEER_DOORS &&
		       peer_listen_addr(p->dp, &at->addr, &listen_addr[n]);
		n++;
	}
	for (i = 0; i < p->addrs.ncontacts && good; i++) {
		good = n < PEER_DOORS &&
		       peer_listen_addr(p->dp, &p->addrs.contacts[i],
					&listen_addr[n]);
		n++;
	}
	rail_sched_leave(p->dp);
	return good ? n : 0;
}

/* Returns true if the local rail reaches the address through sockets that can
 * be examined. */
static bool peer_by_socket(const struct peer_listen_addr *d)
{
	bool shown = false;
	struct rail_lane *lane;
	uint32_t j;

	for (j = 0; j < d->rail->ntx * RAIL_LANE_SLOTS && !shown; j++) {
		lane = &d->rail->tx_lanes[j];
		tei_mutex_lock(&lane->lock);
		shown = lane->ep &&
			rail_disconnect_shows(lane, d->addr.bytes, d->addr.len);
		tei_mutex_unlock(&lane->lock);
	}
	return shown;
}

bool rail_peer_by_socket(struct tei_rail_dp *dp, const struct tei_rail_addr *at)
{
	struct peer_listen_addr listen_addr;

	return peer_listen_addr(dp, at, &listen_addr) &&
	       peer_by_socket(&listen_addr);
}

/*
 * Returns true if no rail of the peer listens any longer, so that the process
 * has certainly ended. That another process has taken the peer's name is no
 * proof: the peer may only be stopped (SIGSTOP). Its kernel then still accepts
 * connections, and when it continues, it writes the bytes that its sockets have
 * received to its memory.
 */
static bool peer_refuses(struct tei_rail_peer *p)
{
	struct peer_listen_addr listen_addr[PEER_DOORS];
	uint32_t i, n = peer_doors(p, listen_addr);

	for (i = 0; i < n; i++)
		if (!peer_by_socket(&listen_addr[i]) ||
		    tei_world->net.connect(
			    (const void *)listen_addr[i].addr.bytes,
			    listen_addr[i].addr.len, PEER_REFUSED_NS) != TEI_NET_REFUSED)
			return false;
	return n;
}

void tei_rail_peer_resolved(struct tei_rail_peer *p, uint64_t inc,
			    const struct tei_rail_addr *at, size_t n)
{
	struct tei_rail_dp *dp = p->dp;
	enum rail_gone gone = RAIL_GONE_PERHAPS;
	struct rail_done done;

	if (!n)
		return;
	if (inc != p->incarnation && peer_refuses(p))
		gone = RAIL_GONE_OVER;
	rail_done_init(&done);
	rail_sched_enter(dp);
	if (inc != p->incarnation) {
		rail_peer_set_gone(p, "its name now belongs to a new process",
				   gone, &done);
	} else {
		/* if memory is short, the peer keeps the addresses that it had
		 * before */
		rail_peer_set_contacts(p, at, n);
		p->addrs.found_at = at[p->addrs.found_turn++ % n];
		p->addrs.found_ns = tei_now_ns();
		rail_peer_attend(p);
	}
	rail_sched_leave(dp);
	rail_done_run(dp, &done);
}

bool tei_rail_peer_ended(struct tei_rail_peer *p, const char *why)
{
	struct rail_done done;
	bool over;

	rail_sched_enter(p->dp);
	over = rail_peer_over(p);
	rail_sched_leave(p->dp);
	if (over)
		return true;
	if (!peer_refuses(p))
		return tei_rail_peer_gone(p);
	rail_done_init(&done);
	rail_sched_enter(p->dp);
	rail_peer_set_gone(p, why, RAIL_GONE_OVER, &done);
	rail_sched_leave(p->dp);
	rail_done_run(p->dp, &done);
	return true;
}
