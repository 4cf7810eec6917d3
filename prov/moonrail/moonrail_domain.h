/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_DOMAIN_H
#define TEI_PROV_MOONRAIL_MOONRAIL_DOMAIN_H

/*
 * Domains, their lock, and the inbox of events.
 */

#include <pthread.h>
#include <rdma/fi_domain.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_policy.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/range.h"
#include "util/settings.h"

struct moonrail_bounces;
struct moonrail_fabric;
struct moonrail_peer;
struct moonrail_pin;
struct moonrail_task;

#define MOONRAIL_HASH	256u

/* Returns the list of a hash table that holds the entries with this key or
 * incarnation. */
static inline struct tei_list *moonrail_bucket(struct tei_list *hash,
					       uint64_t key)
{
	return &hash[(key ^ key >> 32) % MOONRAIL_HASH];
}

/* The functions that handle a domain's events. Each is called with the domain's
 * lock held, by the thread that holds the lock. The event may have been added
 * earlier and by another thread. */
struct moonrail_inbox_ops {
	/* Handles a message of the data plane and frees it. */
	void (*message)(struct moonrail_domain *d, struct tei_rail_message *m);
	/* Handles the end of a task. */
	void (*task_done)(struct moonrail_task *task);
	/* Frees the objects that have become unused while the lock was
	 * held. */
	void (*free_unused)(struct moonrail_domain *d);
};

/* The events of a domain that no thread has handled yet, and the threads that
 * wait for a change. */
struct moonrail_inbox {
	const struct moonrail_inbox_ops *ops; /* constant */
	struct tei_mutex lock;		/* a leaf lock; guards messages and
					 * tasks */
	struct tei_list messages;	/* list of tei_rail_message.link */
	struct tei_list tasks;		/* list of moonrail_task.link */
	pthread_cond_t cond;		/* signalled when the member "events"
					 * has changed */
	/* atomic */
	uint32_t sleepers;		/* number of threads that wait on
					 * cond */
	uint32_t n;			/* number of elements in messages and
					 * tasks */
	uint64_t events;		/* number of completions and other
					 * changes so far */
};

/* Handles a message of the stream of a peer. Returns false if the message
 * cannot be accepted now, or if memory is short; the sender then repeats it. */
typedef bool (*moonrail_message_fn)(struct moonrail_peer *peer,
				    const struct moonrail_wire *w,
				    const uint8_t *payload, uint32_t len);

/*
 * Created by fi_domain, freed by fi_close.
 */
struct moonrail_domain {
	/* constant */
	struct fid_domain fid;
	struct moonrail_fabric *fabric;
	struct tei_settings settings;
	struct moonrail_policies policies;
	struct tei_rail_dp *dp;
	uint64_t incarnation;
	bool virt_addr, prov_key;	/* virt_addr: keys are used with virtual
					 * addresses; prov_key: the provider
					 * chooses the keys */
	uint32_t format;		/* addr_format of the domain's
					 * addresses */
	struct moonrail_name source;	/* address of the only local rail to
					 * publish; if len is 0, all rails are
					 * published */
	const moonrail_message_fn *handlers; /* handlers of messages, indexed by
					      * enum moonrail_wire_op */
	/* bounce buffers; NULL if they are not needed, because no rail pins
	 * memory and none requires registered local memory */
	struct moonrail_bounces *bounces;
	bool bounces_local;		/* a rail requires registered local
					 * memory */
	bool closing;			/* the domain is closing: messages are
					 * dropped */

	struct tei_mutex lock;		/* guards the fields below */
	bool counts;			/* a counter of this domain counts
					 * remote accesses: peers must report
					 * their reads and writes of this
					 * domain's memory */
	struct tei_list peers;		/* list of moonrail_peer.link */
	struct tei_list idle;		/* list of moonrail_peer.idle_link:
					 * peers that may have become unused */
	/* lists of moonrail_peer.hash_link: peers whose incarnation is known,
	 * hashed by incarnation */
	struct tei_list known[MOONRAIL_HASH];
	struct tei_list eps;		/* list of moonrail_ep.link */
	struct tei_list cntrs;		/* list of moonrail_cntr.link */
	/* lists of moonrail_mr.link, hashed by key */
	struct tei_list mrs[MOONRAIL_HASH];
	/* lists of moonrail_key.hash_link: keys of peers, hashed by peer and
	 * key */
	struct tei_list keys[MOONRAIL_HASH];
	struct tei_range_table pins;	     /* table of moonrail_pin.range */
	uint32_t nunregistering;	/* number of pinned ranges that were
					 * removed from pins and are not
					 * unregistered yet */
	uint64_t pin_clock;
	uint64_t next_id;
	uint32_t next_ep;
	uint32_t next_rail;		/* index of the next rail for the policy
					 * MOONRAIL_ROUND_ROBIN */

	struct moonrail_inbox inbox;

	uint32_t refs;			/* number of objects that are open on
					 * the domain; atomic */
};

/* --- moonrail_domain.c --------------------------------------------------- */
int moonrail_domain_open(struct fid_fabric *fabric, struct fi_info *info,
			 struct fid_domain **domain, void *context);
/* Returns true if a domain with this info would try RDMA devices first, because
 * libfabric offers at least one RDMA device that the settings and the info
 * allow. */
bool moonrail_domain_rdma(const struct tei_settings *s,
			  const struct fi_info *info);

/* --- moonrail_dispatch.c ------------------------------------------------- */
/* The functions that the data plane of each domain calls. */
extern const struct tei_rail_ops moonrail_rail_ops;
extern const struct moonrail_inbox_ops moonrail_inbox_ops;
/* Handlers of the messages of a stream, indexed by enum moonrail_wire_op. If a
 * handler is NULL, the stream itself handles the messages of this type. */
extern const moonrail_message_fn moonrail_message_handlers[MOONRAIL_WIRE_OPS];

/* --- moonrail_inbox.c ---------------------------------------------------- */
void moonrail_inbox_init(struct moonrail_domain *d,
			 const struct moonrail_inbox_ops *ops);
void moonrail_inbox_fini(struct moonrail_domain *d);
/* Add a message, or the end of a task, to the inbox. Then handle the inbox if
 * the domain's lock is free. Called without the lock, by any thread. */
void moonrail_inbox_add_message(struct moonrail_domain *d,
				struct tei_rail_message *m);
void moonrail_inbox_add_task(struct moonrail_domain *d,
			     struct moonrail_task *task);
void moonrail_enter(struct moonrail_domain *d) TEI_ACQUIRE(moonrail_held);
bool moonrail_try_enter(struct moonrail_domain *d)
	TEI_TRY_ACQUIRE(true, moonrail_held);
/* Handles the inbox, frees unused peers, and releases the lock. */
void moonrail_leave(struct moonrail_domain *d) TEI_RELEASE(moonrail_held);
/* Handles all events in the inbox. */
void moonrail_drain(struct moonrail_domain *d) TEI_REQUIRES(moonrail_held);
/*
 * Adds or drops the reference of an object that was opened on the domain.
 * fi_close frees the domain once refs is 0, and moonrail_leave still reads the
 * domain after it has released the lock. So an object drops its reference only
 * after moonrail_leave, and does not touch the domain afterwards.
 */
static inline void moonrail_domain_ref(struct moonrail_domain *d)
{
	__atomic_fetch_add(&d->refs, 1, __ATOMIC_RELAXED);
}

static inline void moonrail_domain_unref(struct moonrail_domain *d)
{
	__atomic_fetch_sub(&d->refs, 1, __ATOMIC_RELEASE);
}

/* Counts a completion or another change and wakes the threads in
 * moonrail_sleep. */
void moonrail_notify(struct moonrail_domain *d);
/* Sleeps until the event counter (moonrail_events) differs from "seen", but at
 * most ns nanoseconds, while the progress thread polls the lanes. Must be
 * called without a lock. */
void moonrail_sleep(struct moonrail_domain *d, uint64_t seen, uint64_t ns);
static inline uint64_t moonrail_events(const struct moonrail_domain *d)
{
	return __atomic_load_n(&d->inbox.events, __ATOMIC_SEQ_CST);
}
/* Polls the lanes. Must be called without a lock. */
void moonrail_progress(struct moonrail_domain *d);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_DOMAIN_H */
