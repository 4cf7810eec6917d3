/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_LEASE_INT_H
#define TEI_API_ENGINE_LEASE_INT_H

#include <pthread.h>

#include "api/engine_int.h"
#include "api/engine_lease_wire.h"

#define LEASE_AGAIN_NS	(20 * TEI_NS_PER_MS)	/* first repetition */
#define LEASE_BEAT_NS	(200 * TEI_NS_PER_MS)	/* longest interval of them */
#define LEASE_TRY_NS	(50 * TEI_NS_PER_US)	/* first back-off of a send */
#define LEASE_TRIES	9u			/* doublings of it */
#define LEASE_LOOK_NS	(50 * TEI_NS_PER_MS)	/* checks for gone peers */
#define LEND_AGAIN_NS	(100 * TEI_NS_PER_MS)	/* memory for a slot: first */
#define LEND_PAUSE_NS	(5 * TEI_NS_PER_SEC)	/* and longest back-off */

/*
 * Back-off of sends to a peer that no rail has accepted, for example because
 * the provider has room for one message of a peer at a time. A send is tried
 * again after a time that doubles, or as soon as a message of that peer
 * arrives.
 */
struct lease_trying {
	uint64_t until_ns;		/* earliest time of the next try */
	uint32_t refused;		/* failures in a row */
};

/* States of a piece at the initiator. */
enum lease_state {
	LEASE_NONE,			/* the number is free */
	LEASE_ASKING,			/* waits for READY; nothing was moved */
	LEASE_MOVING,			/* a rail task is in progress */
	LEASE_TELLING,			/* GO sent: the target copies */
	LEASE_RETURNING,		/* FREE sent; has no task any more */
};

/* A piece at the initiator. The thread's, except the last group. */
struct lease_piece {
	struct engine_leasing *leasing;
	struct lease_target *target;
	uint64_t id;
	enum lease_state state;
	struct engine_lease *lease;	/* NULL: has no task any more */
	uint64_t at;			/* offset in the lease, bytes */
	uint32_t length;
	bool stopped;			/* the rail task was cancelled */
	bool unfenced;
	bool over;			/* DONE arrived while it was moving, */
	int code;			/* with this code */
	uint64_t since_ns;		/* start of this state */
	uint64_t due_ns, pause_ns;	/* next repetition of its message */
	bool unsaid;			/* no rail accepted its message */

	struct tei_rail_task rail;	/* the data plane's while MOVING */

	/* leasing->lock */
	struct tei_list node;		/* in leasing->railed */
	enum tei_rail_end end;
	bool silent;
	struct tei_err err;
};

/* A peer whose GPU memory is the target of tasks. The thread's. Kept until a
 * while after the last task. */
struct lease_target {
	struct tei_list link;		/* leasing->targets */
	struct tei_rail_peer *peer;	/* one reference */
	uint32_t prefer;		/* for tei_rail_send */
	uint64_t next_id;
	uint64_t heard_ns;		/* last progress of a piece, or first
					 * task after a time without tasks */
	bool silent;			/* MC_SLICE_TIMEOUT has ended a piece
					 * since */
	uint32_t running;		/* pieces with a task */
	uint32_t used;			/* numbers that are not free */
	struct lease_trying trying;
	struct tei_list queue;		/* engine_lease.queue */
	struct lease_piece piece[LEASE_PIECES]; /* index: number modulo size */
};

/* States of a piece at the target. */
enum lend_state {
	LEND_NONE,			/* never received */
	LEND_ASKED,			/* waits for a slot */
	LEND_FETCHING,			/* read: copy from GPU to slot */
	LEND_LENT,			/* READY sent: the client has the
					 * slot */
	LEND_STORING,			/* write: copy from slot to GPU */
	LEND_DONE,			/* DONE sent: has no slot any more */
};

/* A piece at the target. */
struct lend_piece {
	uint64_t id;
	enum lend_state state;
	bool reads;
	bool unwanted;			/* FREE arrived while FETCHING */
	uint64_t gpu;			/* address in GPU memory */
	uint64_t serial;		/* of the region */
	uint32_t length;
	int code;			/* DONE: its code */
	uint64_t heard_ns;		/* time of the last message about it */
	bool unsaid;			/* no rail accepted its message */
	struct lend_slot *slot;		/* FETCHING, LENT, STORING */
	struct lend_peer *peer;
	struct tei_list node;		/* ASKED: in leasing->asks */
};

/* A client. The thread's. Kept until a while after its last message, and as
 * long as it may read a grant late, so that an old ASK is not granted again. */
struct lend_peer {
	struct tei_list link;		/* leasing->borrowers */
	struct tei_rail_peer *peer;	/* one reference */
	uint32_t prefer;		/* for tei_rail_send */
	uint64_t heard_ns;		/* time of the last message */
	struct lease_trying trying;
	struct lend_piece piece[LEASE_PIECES]; /* index: number modulo size */
};

/*
 * An unacknowledged grant: READY was sent for a slot, and the client may still
 * read it, however late. The addresses of the slot must not be reused before
 * the client says FREE or GO, has begun a number that is LEASE_PIECES above, or
 * is gone.
 */
struct lend_late {
	struct tei_rail_peer *peer;	/* one reference; NULL: none */
	uint64_t id;
};

/* A remote bounce slot. */
struct lend_slot {
	struct lend_pool *pool;		/* constant */
	struct lend_piece *piece;	/* the thread's, which changes it with
					 * leasing->lock held; NULL: free */
	struct tei_gpu_op copy;		/* the GPU module's during the copy */

	/* leasing->lock */
	char *mem;			/* LEASE_PIECE bytes; NULL (and
					 * doubtful): memory was not available
					 * yet */
	struct lend_grave *grave;	/* for mem when it is quarantined; the
					 * worker's while renewing */
	bool doubtful;			/* needs other memory */
	uint64_t again_ns, pause_ns;	/* next try, after a failure */
	struct lend_late late;
	bool renewing;			/* a worker provides the memory */
	bool copying;
	bool lost;			/* the GPU may still access it */
	struct tei_list node;		/* in leasing->copied */
	int code;			/* result of the copy */
};

/* The slots of one context of the driver. */
struct lend_pool {
	struct engine_leasing *leasing;	/* constant */
	uint32_t users;			/* leasing->admin: regions */

	/* leasing->lock */
	bool leaving;			/* grants no slots */
	bool empty;			/* leaving, and the thread uses no
					 * slot */
	struct lend_slot slot[LEASE_SLOTS];
};

/* GPU memory for which slots are granted; leasing->lock. */
struct lend_region {
	uint64_t serial;
	uint64_t base, length;
	uint32_t place;			/* index of its context */
	bool gone;			/* no copy may begin */
};

/* Quarantined memory: the addresses of a slot, unused while its grant is
 * unacknowledged. */
struct lend_grave {
	struct tei_list link;		/* leasing->graves */
	char *mem;
	struct lend_late late;
};

/* A peer with unread messages. Created with the first message, freed with the
 * last one. leasing->lock. */
struct leasing_sender {
	struct tei_list link;		/* leasing->senders */
	const struct tei_rail_peer *peer; /* referenced by the messages */
	struct tei_list messages;	/* tei_rail_message.link */
	uint32_t n;
};

/* Created with the first segment or registration that needs it, freed with the
 * engine. */
struct engine_leasing {
	/* constant */
	struct engine *engine;
	pthread_t thread;

	struct tei_mutex admin;		/* pools are created and freed; taken
					 * before lock */
	struct tei_mutex lock;		/* guards the members below */
	pthread_cond_t work;		/* wakes the thread */
	pthread_cond_t idle;		/* a task has ended, a pool is empty */
	bool word;			/* the thread has been notified */
	struct tei_list senders;	/* leasing_sender.link, in turn */
	struct tei_list live;		/* engine_lease.live */
	uint32_t ending;		/* tasks removed from live whose end is
					 * not reported yet */
	struct tei_list fresh;		/* engine_lease.fresh */
	struct tei_list stopping;	/* engine_lease.stop */
	struct tei_list railed;		/* lease_piece.node */
	struct tei_list copied;		/* lend_slot.node */
	struct lend_pool *pool[TEI_GPU_CONTEXTS];
	struct lend_region *regions;
	uint32_t nregions;
	uint64_t serial;		/* of the last region */
	struct tei_list graves;		/* added by workers, removed by the
					 * thread */
	uint32_t nlate;			/* unacknowledged grants of slots and
					 * quarantined memory */
	bool closing;

	/* thread "tei-lease" */
	struct tei_list targets;	/* lease_target.link */
	struct tei_list borrowers;	/* lend_peer.link */
	struct tei_list asks;		/* lend_piece.node, oldest first */
	uint64_t now, due;		/* time of this iteration and the
					 * next */
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
/* Returns the engine's leasing, created if necessary, or NULL. */
struct engine_leasing *engine_leasing_get(struct engine *e);
/* Notifies the thread. */
void leasing_word(struct engine_leasing *l) TEI_REQUIRES(l->lock);
/* Sends a message. Returns the result of tei_rail_send. Any thread. */
int leasing_post(struct tei_rail_peer *peer, uint32_t *prefer,
		 const struct lease_msg *m);
/* Sends a message unless the back-off forbids it; a lost message is repeated by
 * the caller. Returns false if no rail accepted it; l->due is then the time of
 * the next try at the latest. */
bool leasing_send(struct engine_leasing *l, struct tei_rail_peer *peer,
		  uint32_t *prefer, struct lease_trying *trying,
		  const struct lease_msg *m);

/* Ends the back-off, because a message of that peer has arrived. */
static inline void leasing_try_now(struct lease_trying *trying)
{
	trying->until_ns = 0;
	trying->refused = 0;
}

/* --- engine_lease.c: initiator; thread "tei-lease", no lock held ---------- */
/* Handles a task that was started. */
void lease_fresh(struct engine_leasing *l, struct engine_lease *lease);
/* Handles a request to end a task early. */
void lease_stopped(struct engine_leasing *l, struct engine_lease *lease);
/* Handles the end of a rail task. */
void lease_railed(struct engine_leasing *l, struct lease_piece *p);
/* Handles READY and DONE. */
void lease_heard(struct engine_leasing *l, const struct tei_rail_peer *peer,
		 const struct lease_msg *m);
/* Checks timeouts, repeats messages and begins pieces. */
void lease_tick(struct engine_leasing *l);

/* --- engine_lend.c: target; thread "tei-lease", no lock held -------------- */
/* Handles the end of a copy. */
void lend_copied(struct engine_leasing *l, struct lend_slot *slot);
/* Handles ASK, GO and FREE. */
void lend_heard(struct engine_leasing *l, struct tei_rail_peer *peer,
		const struct lease_msg *m);
/* Checks timeouts, repeats messages and grants slots. */
void lend_tick(struct engine_leasing *l);
/* Returns true if copies are in progress. */
bool lend_busy(struct engine_leasing *l);
/* Free all records of peers; nothing may be in progress. */
void lend_forget(struct engine_leasing *l);
void lease_forget(struct engine_leasing *l);

/* --- engine_lend_pool.c -------------------------------------------------- */
/* Records an unacknowledged grant of a slot. Thread, no lock held. */
void lend_late_set(struct engine_leasing *l, struct lend_slot *slot,
		   struct tei_rail_peer *peer, uint64_t id);
/* Ends the unacknowledged grants that this message acknowledges. */
void lend_late_heard(struct engine_leasing *l, const struct tei_rail_peer *peer,
		     const struct lease_msg *m);
/* Ends the unacknowledged grants of peers that are gone. */
void lend_late_look(struct engine_leasing *l);
/* Returns true if the peer has an unacknowledged grant. */
bool lend_late_any(struct engine_leasing *l, const struct tei_rail_peer *peer);
/* Ends all of them; the data plane is being closed. */
void lend_late_forget(struct engine_leasing *l);
/* Frees all pools, after the thread has ended. */
void lend_pools_free(struct engine_leasing *l);

#endif /* TEI_API_ENGINE_LEASE_INT_H */
