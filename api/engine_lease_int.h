/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_LEASE_INT_H
#define TEI_API_ENGINE_LEASE_INT_H

#include <pthread.h>

#include "api/engine_int.h"
#include "api/engine_lease_wire.h"

#define LEASE_AGAIN_NS	(20 * TEI_NS_PER_MS)	/* first repetition */
#define LEASE_BEAT_NS	(200 * TEI_NS_PER_MS)	/* longest time between two */
#define LEASE_TRY_NS	(50 * TEI_NS_PER_US)	/* what no rail took: first try */
#define LEASE_TRIES	9u			/* then no longer pauses */
#define LEASE_LOOK_NS	(50 * TEI_NS_PER_MS)	/* for who has gone */
#define LEND_AGAIN_NS	(100 * TEI_NS_PER_MS)	/* memory for a slot: first, */
#define LEND_PAUSE_NS	(5 * TEI_NS_PER_SEC)	/* and longest, pause */

/*
 * What no rail takes, as where a provider has room for one message of a peer at
 * a time, is tried again once something is heard of that peer, and after a time
 * that doubles.
 */
struct lease_trying {
	uint64_t until_ns;		/* not before */
	uint32_t refused;		/* times in a row */
};

/* How the initiator's piece stands. */
enum lease_state {
	LEASE_NONE,			/* the number is free */
	LEASE_ASKING,			/* for a slot; nothing was moved */
	LEASE_MOVING,			/* the rails have it */
	LEASE_TELLING,			/* GO: the target copies, or soon */
	LEASE_RETURNING,		/* FREE; no task's any more */
};

/* The thread's but for what is marked. */
struct lease_piece {
	struct engine_leasing *leasing;
	struct lease_target *target;
	uint64_t id;
	enum lease_state state;
	struct engine_lease *lease;	/* NULL: nobody's any more */
	uint64_t at;			/* in the lease */
	uint32_t length;
	bool stopped;			/* the rails were asked to end it */
	bool unfenced;
	bool over;			/* told DONE while it moved */
	int code;			/* with that */
	uint64_t since_ns;		/* in this state */
	uint64_t due_ns, pause_ns;	/* of what is to be said again */
	bool unsaid;			/* no rail took what was to be said */

	struct tei_rail_task rail;	/* the data plane's while it moves */

	/* leasing->lock */
	struct tei_list node;		/* in leasing->railed */
	enum tei_rail_end end;
	bool silent;
	struct tei_err err;
};

/* A peer whose GPU memory is aimed at. The thread's; from the first task on
 * until a while after the last. */
struct lease_target {
	struct tei_list link;		/* leasing->targets */
	struct tei_rail_peer *peer;	/* one reference */
	uint32_t prefer;		/* of tei_rail_send */
	uint64_t next_id;
	uint64_t heard_ns;		/* last time a piece went on, or one
					   came while there was none */
	bool silent;			/* MC_SLICE_TIMEOUT has ended one since */
	uint32_t running;		/* pieces of tasks */
	uint32_t used;			/* numbers that are not free */
	struct lease_trying trying;
	struct tei_list queue;		/* engine_lease.queue */
	struct lease_piece piece[LEASE_PIECES]; /* by number */
};

/* How the target's piece stands. */
enum lend_state {
	LEND_NONE,			/* never heard of */
	LEND_ASKED,			/* waits for a slot */
	LEND_FETCHING,			/* a read: GPU to slot */
	LEND_LENT,			/* READY: the slot is the initiator's */
	LEND_STORING,			/* a write: slot to GPU */
	LEND_DONE,			/* it has no slot any more */
};

struct lend_piece {
	uint64_t id;
	enum lend_state state;
	bool reads;
	bool unwanted;			/* FREE came while it was fetched */
	uint64_t gpu;			/* the piece's address there */
	uint64_t serial;		/* of the region */
	uint32_t length;
	int code;			/* LEND_DONE */
	uint64_t heard_ns;
	bool unsaid;			/* no rail took what was to be said */
	struct lend_slot *slot;		/* FETCHING, LENT, STORING */
	struct lend_peer *peer;
	struct tei_list node;		/* ASKED: in leasing->asks */
};

/* Who asks here. The thread's; until a while after it was last heard, and as
 * long as it may be late: what it asked for is not lent for again. */
struct lend_peer {
	struct tei_list link;		/* leasing->borrowers */
	struct tei_rail_peer *peer;	/* one reference */
	uint32_t prefer;
	uint64_t heard_ns;
	struct lease_trying trying;
	struct lend_piece piece[LEASE_PIECES]; /* by number */
};

/*
 * An initiator that was told READY for a slot and has not said since that it
 * is past that: it may read it however late, so the slot's addresses must not
 * be another's. It is past it once it says FREE or GO, or has begun a number
 * that is LEASE_PIECES above; or when it has gone.
 */
struct lend_late {
	struct tei_rail_peer *peer;	/* one reference; NULL: nobody */
	uint64_t id;
};

struct lend_slot {
	struct lend_pool *pool;		/* fixed */
	struct lend_piece *piece;	/* the thread's, which changes it with
					   leasing->lock; NULL: nobody's */
	struct tei_gpu_op copy;		/* the GPU module's while it runs */

	/* leasing->lock */
	char *mem;			/* LEASE_PIECE bytes; NULL, and doubtful:
					   there were none to be had yet */
	struct lend_grave *grave;	/* for mem when it goes; a worker's
					   while it is renewing */
	bool doubtful;			/* it is to get other memory */
	uint64_t again_ns, pause_ns;	/* when, after a try that failed */
	struct lend_late late;
	bool renewing;			/* a worker has it */
	bool copying;
	bool lost;			/* the GPU may still touch it */
	struct tei_list node;		/* in leasing->copied */
	int code;			/* how the copy has ended */
};

/* One for each context of the driver with memory that is lent for. */
struct lend_pool {
	struct engine_leasing *leasing;	/* fixed */
	uint32_t users;			/* leasing->admin: regions */

	/* leasing->lock */
	bool leaving;			/* lends no more */
	bool empty;			/* and the thread has nothing of it */
	struct lend_slot slot[LEASE_SLOTS];
};

/* GPU memory that is lent for; leasing->lock. */
struct lend_region {
	uint64_t serial;
	uint64_t base, length;
	uint32_t place;			/* of its context */
	bool gone;			/* no copy begins any more */
};

/* Memory of a slot whose addresses are nobody's while somebody may be late. */
struct lend_grave {
	struct tei_list link;		/* leasing->graves */
	char *mem;
	struct lend_late late;
};

/* A peer with messages that were not read yet: made with the first, freed with
 * the last of them. leasing->lock. */
struct leasing_sender {
	struct tei_list link;		/* leasing->senders */
	const struct tei_rail_peer *peer; /* by the messages' references */
	struct tei_list messages;	/* tei_rail_message.link */
	uint32_t n;
};

/* Made with the first segment or registration that needs it, freed with the
 * engine. */
struct engine_leasing {
	/* fixed */
	struct engine *engine;
	pthread_t thread;

	struct tei_mutex admin;		/* pools come and go; before lock */
	struct tei_mutex lock;		/* guards what follows */
	pthread_cond_t work;		/* for the thread */
	pthread_cond_t idle;		/* of tasks, or of a pool */
	bool word;			/* something was left */
	struct tei_list senders;	/* leasing_sender.link, by turns */
	struct tei_list live;		/* engine_lease.live */
	uint32_t ending;		/* off that list, not yet told */
	struct tei_list fresh;		/* engine_lease.fresh */
	struct tei_list stopping;	/* engine_lease.stop */
	struct tei_list railed;		/* lease_piece.node */
	struct tei_list copied;		/* lend_slot.node */
	struct lend_pool *pool[TEI_GPU_CONTEXTS];
	struct lend_region *regions;
	uint32_t nregions;
	uint64_t serial;		/* of the last one */
	struct tei_list graves;		/* workers add, the thread removes */
	uint32_t nlate;			/* lend_late of slots and graves */
	bool closing;

	/* the thread's */
	struct tei_list targets;	/* lease_target.link */
	struct tei_list borrowers;	/* lend_peer.link */
	struct tei_list asks;		/* lend_piece.node, oldest first */
	uint64_t now, due;		/* of this round; and the next one */
};

static inline struct engine_leasing *engine_leasing(struct engine *e)
{
	return __atomic_load_n(&e->leasing, __ATOMIC_ACQUIRE);
}

static inline void leasing_due(struct engine_leasing *l, uint64_t when)
{
	if (when < l->due)
		l->due = when;
}

/* --- engine_leasing.c ---------------------------------------------------- */
/* Or NULL: no memory, no thread. */
struct engine_leasing *engine_leasing_get(struct engine *e);
/* Word was left; the lock is held. */
void leasing_word(struct engine_leasing *l) TEI_REQUIRES(l->lock);
/* tei_rail_send's answer. Any thread. */
int leasing_post(struct tei_rail_peer *peer, uint32_t *prefer,
		 const struct lease_msg *m);
/* Sends, unless it is too early to try; what is lost is said again. False: no
 * rail took it, and when to try is in l->due. */
bool leasing_send(struct engine_leasing *l, struct tei_rail_peer *peer,
		  uint32_t *prefer, struct lease_trying *trying,
		  const struct lease_msg *m);

/* Something was heard of that peer. */
static inline void leasing_try_now(struct lease_trying *trying)
{
	trying->until_ns = 0;
	trying->refused = 0;
}

/* --- engine_lease.c: the initiator; the thread, no lock held ------------- */
void lease_fresh(struct engine_leasing *l, struct engine_lease *lease);
void lease_stopped(struct engine_leasing *l, struct engine_lease *lease);
void lease_railed(struct engine_leasing *l, struct lease_piece *p);
void lease_heard(struct engine_leasing *l, const struct tei_rail_peer *peer,
		 const struct lease_msg *m);
void lease_tick(struct engine_leasing *l);

/* --- engine_lend.c: the target; the thread, no lock held ----------------- */
void lend_copied(struct engine_leasing *l, struct lend_slot *slot);
void lend_heard(struct engine_leasing *l, struct tei_rail_peer *peer,
		const struct lease_msg *m);
void lend_tick(struct engine_leasing *l);
/* Whether copies are under way. */
bool lend_busy(struct engine_leasing *l);
/* All that it keeps of peers; nothing is under way. */
void lend_forget(struct engine_leasing *l);
void lease_forget(struct engine_leasing *l);

/* --- engine_lend_pool.c -------------------------------------------------- */
/* The thread, no lock held: the slot's initiator may read its READY late; it
 * has said something; those that have gone. */
void lend_late_set(struct engine_leasing *l, struct lend_slot *slot,
		   struct tei_rail_peer *peer, uint64_t id);
void lend_late_heard(struct engine_leasing *l, const struct tei_rail_peer *peer,
		     const struct lease_msg *m);
void lend_late_look(struct engine_leasing *l);
/* Whether it may be late to any slot. */
bool lend_late_any(struct engine_leasing *l, const struct tei_rail_peer *peer);
/* All of them: the data plane goes. */
void lend_late_forget(struct engine_leasing *l);
void lend_pools_free(struct engine_leasing *l);

#endif /* TEI_API_ENGINE_LEASE_INT_H */
