/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_REMOTE_INT_H
#define TEI_PROV_STAGING_REMOTE_INT_H

/*
 * Requests to GPU memory of another process through remote bounce slots. If the
 * rails of the target cannot access its GPU memory, the target grants slots of
 * pinned host memory, one for each piece of a request. The initiator transfers
 * bytes between its memory and a slot: by a copy, if the target is a process of
 * this host and permits that, otherwise by its rails. The target copies between
 * the slot and the GPU. staging_wire.h has the messages, which use the rails.
 *
 *	write	ASK, READY, transfer into the slot, GO, copy, DONE
 *	read	ASK, copy, READY, transfer from the slot, FREE, DONE
 *
 * Messages may be lost and reordered. The pieces are requests of a channel
 * (util/channel.h): each piece has a number, and at most STAGING_NUMBERS pieces
 * are unfinished at a time. The initiator repeats the message of the piece's
 * present state until it is answered. The target keeps the state and result of
 * the last STAGING_NUMBERS numbers, and ignores messages about older ones.
 *
 * COMPLETED. For a write, DONE was received for every piece. The target sends
 * DONE when the event after the copy has completed, so the bytes are in GPU
 * memory. For a read, a completed transfer has read every piece from its slot.
 * READY carries the serial of the target's registered region, and all pieces of
 * a request must have the same one.
 *
 * Fence. A slot is reused at once only after GO, or after a FREE without
 * STAGING_UNFENCED, which says that the transfers have ended, and that rail
 * tasks were fenced. After every other end (the initiator is gone, is silent for
 * MC_SLICE_TIMEOUT, or could not be fenced) the memory of the slot is
 * unregistered, which includes a fence and waits for the copies of local
 * processes. Its addresses are quarantined until that initiator is gone
 * or has said that it no longer uses them. The slot gets other memory; if there
 * is none, the target tries again later. So a late write fails, and so does a
 * client that reads READY late: the addresses are no longer registered.
 *
 * Checks. ASK carries the range of the whole task, and the target checks that
 * range before it grants a slot for any piece. Only the target's own copies
 * write to its GPU memory. Unregistering that memory first removes the range
 * and then waits for the copies in progress; a GO that arrives later is
 * answered by DONE with the code TEI_ERR_NOT_REGISTERED.
 *
 * Fairness and bounds. A client gets another slot only while more slots are
 * free than it has. So a silent client keeps at most half of the slots. The
 * next slot goes to the waiting client that has the fewest slots, and among
 * equals to the one that has waited longest. The memory for an initiator is
 * bounded: STAGING_NUMBERS records, STAGING_INBOX unread messages (further ones
 * are lost, and repeated by the sender), and the quarantined addresses of at
 * most STAGING_NUMBERS slots. Messages are read from the peers by turns, at
 * most STAGING_BURST per iteration, so a peer that floods does not block
 * others.
 *
 * Early ends. On cancel and deadline no piece begins another step, and transfers
 * are ended; rail tasks are fenced. If GO was sent for a piece, the initiator waits
 * for its DONE for at most MOONRAIL_FENCE_MS; then the task ends UNFENCED,
 * because its bytes may still land. If the target is gone, the task ends
 * FAILED. If the target is silent, or grants no slot, for MC_SLICE_TIMEOUT, the
 * task ends FAILED, or UNFENCED if it waits for the DONE of a piece for which
 * GO was sent. If a GPU of the target does not complete a copy, the task ends
 * UNFENCED. While a task waits for its turn or for a slot, MC_SLICE_TIMEOUT
 * counts from the latest of these events: the start of the task, the end of its
 * last piece, the latest progress of any piece for the same target.
 *
 * Threads. One thread per context, "tei-remote", serves both sides. Only this
 * thread changes pieces and slots. The other threads put their reports
 * (messages, ended transfers, ended copies, tasks to begin or to end) into its
 * lists under the lock, and notify it. The thread waits for no other process;
 * threads of the owner allocate new memory for slots (tei_staging_ops.renew).
 */

#include "prov/staging/staging_int.h"
#include "prov/staging/staging_wire.h"
#include "util/channel.h"

#define STAGING_REMOTE_SLOTS 32u /* number of slots of a pool */
#define STAGING_NUMBERS	     64u /* number of pieces remembered per peer */
/* Greatest number of pieces in progress per target. */
#define STAGING_WINDOW 16u
/* Greatest number of unread messages of a peer. */
#define STAGING_INBOX 256u
/* Greatest number of messages read per iteration. */
#define STAGING_BURST 128u

/* First and longest interval between repetitions of a message. */
#define STAGING_REPEAT_NS (20 * TEI_NS_PER_MS)
#define STAGING_REPEAT_MAX_NS (200 * TEI_NS_PER_MS)
/* First and longest back-off after a refused send. */
#define STAGING_BACKOFF_NS (50 * TEI_NS_PER_US)
#define STAGING_BACKOFF_MAX_NS (512 * STAGING_BACKOFF_NS)
/* Interval of the checks whether peers are gone. */
#define STAGING_CHECK_NS (50 * TEI_NS_PER_MS)
/* First and longest back-off after memory for a slot was not available. */
#define STAGING_RENEW_NS (100 * TEI_NS_PER_MS)
#define STAGING_RENEW_MAX_NS (5 * TEI_NS_PER_SEC)

/* Back-off after a send that no rail has accepted, for example because the
 * provider has room for one message of a peer at a time. The send is tried
 * again after a time that doubles, or as soon as a message of that peer
 * arrives. */
struct staging_backoff {
	uint64_t until_ns; /* no send before this time, ns */
	uint32_t refused;  /* number of consecutive failures */
};

/* States of a piece at the initiator. */
enum staging_request_state {
	REQUEST_NONE,	  /* the number is free */
	REQUEST_SENT,	  /* ASK sent: the piece waits for READY */
	REQUEST_MOVING,	  /* a transfer is in progress */
	REQUEST_COPYING,  /* GO sent: the target copies */
	REQUEST_RETURNED, /* FREE sent: the piece no longer belongs to a task */
};

/* A piece at the initiator. Used by the thread "tei-remote" only, except the
 * last group. */
struct staging_request {
	struct staging_remote *remote;
	struct staging_target *target;
	uint64_t id;
	enum staging_request_state state;
	struct tei_staging_remote_task *task; /* NULL if the piece no longer has
					       * a task */
	uint64_t at;			/* offset in the task, bytes */
	uint32_t length;
	bool stopped;			/* the transfer was cancelled */
	bool by_copy;			/* the transfer is op.copy, otherwise
					 * op.rail */
	bool unfenced;
	bool done_early;	   /* DONE arrived in state MOVING */
	int code;		   /* code in that DONE */
	uint64_t since_ns;	   /* time at which the state began, ns */
	uint64_t due_ns;	   /* time of the next repetition, ns */
	uint32_t tries;		   /* number of messages sent in this state */
	bool unsent;		   /* no rail has accepted the message */

	/* used by the data plane, or by the owner, in state MOVING */
	union {
		struct tei_rail_task rail;
		struct tei_staging_copy copy;
	} op;

	/* guarded by part.lock */
	struct tei_list node;		/* in remote->moved */
	enum tei_rail_end end;
	bool silent;
	struct tei_err err;
};

/* A peer whose GPU memory is the target of tasks. Used by the thread
 * "tei-remote" only. Kept for a while after the last task. */
struct staging_target {
	struct tei_list link;		/* in remote->targets */
	struct tei_rail_peer *peer;	/* the peer, with one reference */
	uint32_t prefer;		/* rail that tei_rail_send tries
					 * first */
	struct tei_channel_out out;	/* channel that numbers the pieces */
	uint64_t received_ns; /* time of the last progress of a piece,
			       * but no earlier than waits_ns of the
			       * first task after an idle time, ns */
	bool silent;	      /* MC_SLICE_TIMEOUT has ended a piece
			       * since received_ns */
	uint64_t copies_ns;   /* time from which on pieces are copied inside
			       * the host; later than the present after a
			       * copy has failed */
	uint32_t running;     /* number of pieces that belong to a task */
	uint32_t used;	      /* number of pieces not in state NONE */
	struct staging_backoff backoff;
	struct tei_list queue; /* list of tei_staging_remote_task.queue */
	/* indexed by piece number modulo STAGING_NUMBERS */
	struct staging_request request[STAGING_NUMBERS];
};

/* States of a piece at the target. */
enum staging_grant_state {
	GRANT_NONE,	/* no message was received */
	GRANT_WAITING,	/* the piece waits for a slot */
	GRANT_FETCHING, /* for a read, the GPU copies its memory to the slot */
	GRANT_SENT,	/* READY sent: the client has the slot */
	GRANT_STORING,	/* for a write, the GPU copies the slot to its memory */
	GRANT_DONE,	/* DONE sent: the piece has no slot any longer */
};

/* A piece at the target. */
struct staging_grant {
	uint64_t id;
	enum staging_grant_state state;
	bool reads;
	bool canceled;			/* FREE arrived in state FETCHING */
	uint64_t gpu;			/* address in GPU memory */
	uint64_t serial;		/* serial of the region that holds
					 * gpu */
	uint32_t length;
	int code;			  /* in state DONE: the code that DONE
					   * carries */
	uint64_t received_ns;		  /* time of the last message about the
					   * piece, ns */
	bool unsent;			  /* no rail has accepted the message of
					   * the piece's state */
	struct staging_remote_slot *slot; /* set in the states FETCHING, SENT
					   * and STORING */
	struct staging_client *client;
	struct tei_list node; /* in remote->waiting in state WAITING */
};

/* A client. Used by the thread "tei-remote" only. Kept for a while after its
 * last message, and as long as it may still read a grant, so that an old ASK is
 * not granted again. */
struct staging_client {
	struct tei_list link;		/* in remote->clients */
	struct tei_rail_peer *peer;	/* the peer, with one reference */
	uint32_t prefer;		/* rail that tei_rail_send tries
					 * first */
	uint64_t received_ns;		/* time of the client's last message,
					 * ns */
	struct staging_backoff backoff;
	/* indexed by piece number modulo STAGING_NUMBERS */
	struct staging_grant grant[STAGING_NUMBERS];
};

/* An unacknowledged grant: READY was sent for a slot, and the client may still
 * read it, however late. The addresses of the slot must not be reused before
 * the client sends FREE or GO, begins the piece whose number is higher by
 * STAGING_NUMBERS, or is gone. */
struct staging_unacked {
	struct tei_rail_peer *peer;	/* the peer, with one reference; or
					 * NULL */
	uint64_t id;
};

/* A remote bounce slot. */
struct staging_remote_slot {
	struct staging_slot slot;
	struct staging_grant *grant; /* piece that has the slot, or NULL;
				      * changed only by the thread "tei-remote"
				      * with part.lock held */

	/* guarded by part.lock */
	struct staging_quarantine *record; /* record for the memory if it is
					    * quarantined; used by the owner's
					    * thread only while "renewing" is
					    * set */
	uint64_t again_ns, pause_ns; /* after a failure to renew the memory:
				      * time of the next attempt, ns, and the
				      * back-off */
	struct staging_unacked unacked;
	bool renewing; /* a thread of the owner is renewing the memory */
	bool copying;
	int code;			/* result of the copy */
};

/* GPU memory for which slots are granted. Guarded by part.lock. */
struct staging_region {
	uint64_t serial;
	uint64_t base, length;
	uint32_t place; /* index of the memory's CUDA context */
	bool gone;	/* the memory is being unregistered, so
			 * no copy may begin */
};

/* Quarantined memory: the former addresses of a slot, which are not reused as
 * long as the grant of that slot is unacknowledged. */
struct staging_quarantine {
	struct tei_list link;		/* in remote->quarantine */
	char *mem;
	struct staging_unacked unacked;
};

/* A peer with unread messages. Created with the first message, freed with the
 * last one. Guarded by part.lock. */
struct staging_sender {
	struct tei_list link;		/* in remote->senders */
	const struct tei_rail_peer *peer; /* referenced by the messages */
	struct tei_list messages;	/* list of tei_rail_message.link */
	uint32_t n;
};

/* The part for remote bounce slots. Created with the first segment or
 * registration that needs such slots, freed with the context. */
struct staging_remote {
	struct staging_part part;

	/* guarded by part.lock */
	struct tei_list senders;	/* list of staging_sender.link; the
					 * senders take turns */
	struct tei_list live;		/* list of
					 * tei_staging_remote_task.live */
	uint32_t ending;		/* number of tasks removed from live
					 * whose end has not been reported
					 * yet */
	struct tei_list started;	/* linked by .started of the task */
	struct tei_list stopping;	/* linked by .stop of the task */
	struct tei_list moved;		/* list of staging_request.node: pieces
					 * whose transfer has ended */
	struct tei_list copied;		/* list of staging_slot.node: slots
					 * whose copy has ended */
	struct staging_region *regions;
	uint32_t nregions;
	uint64_t serial;	    /* serial of the newest region */
	struct tei_list quarantine; /* list of staging_quarantine.link; only the
				     * thread "tei-remote" removes elements */
	uint32_t nunacked;	    /* number of unacknowledged grants, of slots
				     * and of quarantined memory */

	/* used by the thread "tei-remote" only */
	struct tei_list targets; /* list of staging_target.link */
	struct tei_list clients; /* list of staging_client.link */
	struct tei_list waiting; /* list of staging_grant.node: pieces that wait
				  * for an idle slot, oldest first */
	uint64_t now, due;	 /* times of this iteration and of the
				  * next one, ns */
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
/* Returns the part for remote bounce slots and creates it if necessary. Returns
 * NULL on failure. */
struct staging_remote *staging_remote_get(struct tei_staging *s);
/* Sends a message. prefer: rail that tei_rail_send tries first. Returns the
 * result of tei_rail_send. Any thread. */
int staging_remote_post(struct tei_rail_peer *peer, uint32_t *prefer,
			const struct staging_msg *m);
/* Sends a message, if the back-off permits it. If the message may have been
 * lost, the caller repeats it. Returns false if no rail accepted the message;
 * rs->due is then no later than the time of the next attempt. */
bool staging_remote_send(struct staging_remote *rs, struct tei_rail_peer *peer,
			 uint32_t *prefer, struct staging_backoff *backoff,
			 const struct staging_msg *m);

/* Ends the back-off towards a peer, because a message of that peer has
 * arrived. */
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
/* Handles the end of a transfer. */
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
/* Free the records of all clients and of all targets. No piece may be in
 * progress. */
void staging_grant_forget(struct staging_remote *rs);
void staging_request_forget(struct staging_remote *rs);

#endif /* TEI_PROV_STAGING_REMOTE_INT_H */
