/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_REMOTE_INT_H
#define TEI_PROV_STAGING_REMOTE_INT_H

/*
 * Requests to GPU memory of another process through remote bounce slots. If the
 * rails of the target cannot access its GPU memory, the target grants slots of
 * pinned host memory, one for each piece of a request. The rails of the
 * initiator move bytes between the initiator's memory and a slot. The target
 * copies between the slot and the GPU. staging_wire.h has the messages.
 *
 *	write	ASK, READY, transfer into the slot, GO, copy, DONE
 *	read	ASK, copy, READY, transfer from the slot, FREE, DONE
 *
 * Messages may be lost and reordered. Each piece has an increasing number. The
 * initiator repeats the message of its present state until it is answered, and
 * never begins a number that is STAGING_NUMBERS above an unfinished one. The
 * target keeps the state and result of STAGING_NUMBERS numbers, and ignores
 * messages about older ones.
 *
 * COMPLETED. For a write, DONE was received for every piece. The target sends
 * it after the event behind its copy, when the bytes are in GPU memory. For a
 * read, every piece was read from its slot by a rail task that completed.
 *
 * Fence. A slot is reused at once only after GO, or after a FREE without
 * STAGING_UNFENCED, which says that the rail tasks have ended and were fenced.
 * After every other end (the initiator is gone, is silent for MC_SLICE_TIMEOUT,
 * or could not be fenced) the memory of the slot is unregistered, which
 * includes a fence. Its addresses are quarantined until that initiator is gone
 * or has said that it no longer uses them. The slot gets other memory; if there
 * is none, the target tries again later. So a late write meets no memory, and a
 * READY that is read late leads nowhere.
 *
 * Checks. ASK carries the range of the whole task, and the target checks that
 * range before it grants a slot for any piece. Only the target's own copies
 * write to its GPU memory. Unregistering that memory first removes the range
 * and then waits for the copies in progress; a GO that arrives later is
 * answered by DONE with -3.
 *
 * Fairness and bounds. A client gets another slot only while more slots are
 * free than it has. So a silent client keeps at most half of them. Of the
 * clients that wait, the one with the fewest slots is first, then the one that
 * has waited longest. The memory for an initiator is bounded: STAGING_NUMBERS
 * records, STAGING_INBOX unread messages (more are lost, and repeated by the
 * sender), and the quarantined addresses of at most STAGING_NUMBERS slots.
 * Messages are read from each peer in turn, at most STAGING_BURST before other
 * work is done, so a peer that floods delays the others only by its turns.
 *
 * Early ends. On cancel and deadline no piece begins another step, and rail
 * tasks are ended and fenced. A piece after GO is waited for, for at most
 * MOONRAIL_FENCE_MS; then the task ends UNFENCED, because its bytes may still
 * land. If the target is gone, the task ends FAILED. If the target is silent,
 * or grants no slot, for MC_SLICE_TIMEOUT, the task ends FAILED, or UNFENCED if
 * a piece was after GO. If a GPU of the target does not complete a copy, the
 * task ends UNFENCED. While a task waits for its turn or for a slot, that time
 * counts from the latest of these: its start, the end of its last piece, the
 * latest progress of any piece for the same target.
 *
 * Threads. One thread per context, "tei-remote", serves both sides. Only it
 * changes pieces and slots. The other threads notify it under the lock: of
 * messages, of the ends of rail tasks and copies, of tasks that begin or must
 * end. It never blocks; threads of the owner allocate new memory for slots
 * (tei_staging_ops.renew).
 */

#include "prov/staging/staging_int.h"
#include "prov/staging/staging_wire.h"

#define STAGING_REMOTE_SLOTS 32u	/* slots of a pool */
#define STAGING_NUMBERS 64u		/* numbers remembered per peer */
#define STAGING_WINDOW 16u		/* most pieces in progress per target */
#define STAGING_INBOX 256u		/* most unread messages of a peer */
#define STAGING_BURST 128u		/* most messages read per iteration */

/* First and longest interval between repetitions of a message. */
#define STAGING_REPEAT_NS (20 * TEI_NS_PER_MS)
#define STAGING_REPEAT_MAX_NS (200 * TEI_NS_PER_MS)
/* First back-off of a send, and how often it doubles. */
#define STAGING_BACKOFF_NS (50 * TEI_NS_PER_US)
#define STAGING_BACKOFFS 9u
/* Interval between checks for gone peers. */
#define STAGING_CHECK_NS (50 * TEI_NS_PER_MS)
/* First and longest back-off after memory for a slot was not available. */
#define STAGING_RENEW_NS (100 * TEI_NS_PER_MS)
#define STAGING_RENEW_MAX_NS (5 * TEI_NS_PER_SEC)

/*
 * Back-off of sends to a peer that no rail has accepted, for example because
 * the provider has room for one message of a peer at a time. A send is tried
 * again after a time that doubles, or as soon as a message of that peer
 * arrives.
 */
struct staging_backoff {
	uint64_t until_ns;		/* earliest time of the next try */
	uint32_t refused;		/* failures in a row */
};

/* States of a piece at the initiator. */
enum staging_request_state {
	REQUEST_NONE,			/* the number is free */
	REQUEST_SENT,			/* waits for READY; nothing was moved */
	REQUEST_MOVING,			/* a rail task is in progress */
	REQUEST_COPYING,		/* GO sent: the target copies */
	REQUEST_RETURNED,		/* FREE sent; has no task any more */
};

/* A piece at the initiator. The thread's, except the last group. */
struct staging_request {
	struct staging_remote *remote;
	struct staging_target *target;
	uint64_t id;
	enum staging_request_state state;
	struct tei_staging_remote_task *task; /* NULL: has no task any more */
	uint64_t at;			/* offset in the task, bytes */
	uint32_t length;
	bool stopped;			/* the rail task was cancelled */
	bool unfenced;
	bool done_early;		/* DONE arrived while it was moving, */
	int code;			/* with this code */
	uint64_t since_ns;		/* start of this state */
	uint64_t due_ns, pause_ns;	/* next repetition of its message */
	bool unsent;			/* no rail accepted its message */

	struct tei_rail_task rail;	/* the data plane's while MOVING */

	/* part.lock */
	struct tei_list node;		/* in remote->moved */
	enum tei_rail_end end;
	bool silent;
	struct tei_err err;
};

/* A peer whose GPU memory is the target of tasks. The thread's. Kept until a
 * while after the last task. */
struct staging_target {
	struct tei_list link;		/* remote->targets */
	struct tei_rail_peer *peer;	/* one reference */
	uint32_t prefer;		/* for tei_rail_send */
	uint64_t next_id;
	uint64_t received_ns;		/* last progress of a piece, or first
					 * task after a time without tasks */
	bool silent;			/* MC_SLICE_TIMEOUT has ended a piece
					 * since */
	uint32_t running;		/* pieces with a task */
	uint32_t used;			/* numbers that are not free */
	struct staging_backoff backoff;
	struct tei_list queue;		/* tei_staging_remote_task.queue */
	struct staging_request request[STAGING_NUMBERS]; /* index: number modulo
							  * size */
};

/* States of a piece at the target. */
enum staging_grant_state {
	GRANT_NONE,			/* never received */
	GRANT_WAITING,			/* waits for a slot */
	GRANT_FETCHING,			/* read: copy from GPU to slot */
	GRANT_SENT,			/* READY sent: the client has the
					 * slot */
	GRANT_STORING,			/* write: copy from slot to GPU */
	GRANT_DONE,			/* DONE sent: has no slot any more */
};

/* A piece at the target. */
struct staging_grant {
	uint64_t id;
	enum staging_grant_state state;
	bool reads;
	bool canceled;			/* FREE arrived while FETCHING */
	uint64_t gpu;			/* address in GPU memory */
	uint64_t serial;		/* of the region */
	uint32_t length;
	int code;			/* DONE: its code */
	uint64_t received_ns;		/* time of the last message about it */
	bool unsent;			/* no rail accepted its message */
	struct staging_remote_slot *slot; /* FETCHING, SENT, STORING */
	struct staging_client *client;
	struct tei_list node;		/* WAITING: in remote->waiting */
};

/* A client. The thread's. Kept until a while after its last message, and as
 * long as it may read a grant late, so that an old ASK is not granted again. */
struct staging_client {
	struct tei_list link;		/* remote->clients */
	struct tei_rail_peer *peer;	/* one reference */
	uint32_t prefer;		/* for tei_rail_send */
	uint64_t received_ns;		/* time of the last message */
	struct staging_backoff backoff;
	struct staging_grant grant[STAGING_NUMBERS]; /* index: number modulo
						      * size */
};

/*
 * An unacknowledged grant: READY was sent for a slot, and the client may still
 * read it, however late. The addresses of the slot must not be reused before
 * the client sends FREE or GO, has begun a number that is STAGING_NUMBERS
 * above, or is gone.
 */
struct staging_unacked {
	struct tei_rail_peer *peer;	/* one reference; NULL: none */
	uint64_t id;
};

/* A remote bounce slot. */
struct staging_remote_slot {
	struct staging_slot slot;
	struct staging_grant *grant;	/* the thread's, which changes it with
					 * part.lock held; NULL: free */

	/* part.lock */
	struct staging_quarantine *record; /* for the memory when it is
					    * quarantined; the owner's thread's
					    * while renewing */
	uint64_t again_ns, pause_ns;	/* next try, after a failure */
	struct staging_unacked unacked;
	bool renewing;			/* a thread of the owner provides the
					 * memory */
	bool copying;
	int code;			/* result of the copy */
};

/* GPU memory for which slots are granted; part.lock. */
struct staging_region {
	uint64_t serial;
	uint64_t base, length;
	uint32_t place;			/* index of its context */
	bool gone;			/* no copy may begin */
};

/* Quarantined memory: the addresses of a slot, unused while its grant is
 * unacknowledged. */
struct staging_quarantine {
	struct tei_list link;		/* remote->quarantine */
	char *mem;
	struct staging_unacked unacked;
};

/* A peer with unread messages. Created with the first message, freed with the
 * last one. part.lock. */
struct staging_sender {
	struct tei_list link;		/* remote->senders */
	const struct tei_rail_peer *peer; /* referenced by the messages */
	struct tei_list messages;	/* tei_rail_message.link */
	uint32_t n;
};

/* Created with the first segment or registration that needs it, freed with the
 * context. */
struct staging_remote {
	struct staging_part part;

	/* part.lock */
	struct tei_list senders;	/* staging_sender.link, in turn */
	struct tei_list live;		/* tei_staging_remote_task.live */
	uint32_t ending;		/* tasks removed from live whose end is
					 * not reported yet */
	struct tei_list started;	/* .started */
	struct tei_list stopping;	/* .stop */
	struct tei_list moved;		/* staging_request.node */
	struct tei_list copied;		/* staging_slot.node */
	struct staging_region *regions;
	uint32_t nregions;
	uint64_t serial;		/* of the last region */
	struct tei_list quarantine;	/* added by workers, removed by the
					 * thread */
	uint32_t nunacked;		/* unacknowledged grants of slots and
					 * quarantined memory */

	/* thread "tei-remote" */
	struct tei_list targets;	/* staging_target.link */
	struct tei_list clients;	/* staging_client.link */
	struct tei_list waiting;	/* staging_grant.node, oldest first */
	uint64_t now, due;		/* time of this iteration and the
					 * next */
};

static inline struct staging_remote *staging_remote(struct tei_staging *s)
{
	return __atomic_load_n(&s->remote, __ATOMIC_ACQUIRE);
}

/* Returns the part that a slot belongs to. */
static inline struct staging_remote *staging_slot_remote(
	const struct staging_slot *slot)
{
	return tei_container_of(slot->pool->part, struct staging_remote, part);
}

static inline void staging_remote_due(struct staging_remote *rs, uint64_t when)
{
	if (when < rs->due)
		rs->due = when;
}

/* --- staging_remote.c ---------------------------------------------------- */
/* Returns the part, created if necessary, or NULL. */
struct staging_remote *staging_remote_get(struct tei_staging *s);
/* Sends a message. Returns the result of tei_rail_send. Any thread. */
int staging_remote_post(struct tei_rail_peer *peer, uint32_t *prefer,
			const struct staging_msg *m);
/* Sends a message unless the back-off forbids it; a lost message is repeated by
 * the caller. Returns false if no rail accepted it; rs->due is then the time of
 * the next try at the latest. */
bool staging_remote_send(struct staging_remote *rs, struct tei_rail_peer *peer,
			 uint32_t *prefer, struct staging_backoff *backoff,
			 const struct staging_msg *m);

/* Ends the back-off, because a message of that peer has arrived. */
static inline void staging_backoff_end(struct staging_backoff *backoff)
{
	backoff->until_ns = 0;
	backoff->refused = 0;
}

/* --- staging_request.c: initiator; thread "tei-remote", no lock held ------ */
/* Handles a task that was started. */
void staging_request_started(struct staging_remote *rs,
			     struct tei_staging_remote_task *task);
/* Handles a request to end a task early. */
void staging_request_stopped(struct staging_remote *rs,
			     struct tei_staging_remote_task *task);
/* Handles the end of a rail task. */
void staging_request_moved(struct staging_remote *rs,
			   struct staging_request *p);
/* Handles READY and DONE. */
void staging_request_message(struct staging_remote *rs,
			     const struct tei_rail_peer *peer,
			     const struct staging_msg *m);
/* Checks timeouts, repeats messages and begins pieces. */
void staging_request_poll(struct staging_remote *rs);

/* --- staging_grant.c: target; thread "tei-remote", no lock held ----------- */
/* Handles the end of a copy. */
void staging_grant_copied(struct staging_remote *rs,
			  struct staging_remote_slot *slot);
/* Handles ASK, GO and FREE. */
void staging_grant_message(struct staging_remote *rs,
			   struct tei_rail_peer *peer,
			   const struct staging_msg *m);
/* Checks timeouts, repeats messages and grants slots. */
void staging_grant_poll(struct staging_remote *rs);
/* Returns true if copies are in progress. */
bool staging_grant_busy(struct staging_remote *rs);
/* Free all records of peers; nothing may be in progress. */
void staging_grant_forget(struct staging_remote *rs);
void staging_request_forget(struct staging_remote *rs);

/* --- staging_quarantine.c ------------------------------------------------ */
/* Records an unacknowledged grant of a slot. Thread, no lock held. */
void staging_unacked_set(struct staging_remote *rs,
			 struct staging_remote_slot *slot,
			 struct tei_rail_peer *peer, uint64_t id);
/* Ends the unacknowledged grants that this message acknowledges. */
void staging_unacked_message(struct staging_remote *rs,
			     const struct tei_rail_peer *peer,
			     const struct staging_msg *m);
/* Ends the unacknowledged grants of peers that are gone. */
void staging_unacked_check(struct staging_remote *rs);
/* Returns true if the peer has an unacknowledged grant. */
bool staging_unacked_any(struct staging_remote *rs,
			 const struct tei_rail_peer *peer);
/* Ends all of them; the data plane is being closed. */
void staging_unacked_forget(struct staging_remote *rs);
/* Functions of staging_pool_kind. */
int staging_quarantine_prepare(struct staging_slot *slot, struct tei_err *err);
void staging_quarantine_retire(struct staging_slot *slot);
void staging_quarantine_fini(struct staging_slot *slot);

#endif /* TEI_PROV_STAGING_REMOTE_INT_H */
