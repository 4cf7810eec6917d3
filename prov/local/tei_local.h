/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_H
#define TEI_PROV_LOCAL_H

/*
 * Copies inside this process (memcpy) and between processes of this host
 * (process_vm_readv and writev). The target's threads take no part: a target
 * that is idle or stopped costs nothing and holds nothing up.
 *
 * Threads: every call may be made from any thread, none from inside a done
 * callback but tei_local_submit, _copy, _atomic and _stats. The lock of
 * the module is in row 6 of docs/LOCKING.md and is not held while a callback
 * runs. Lengths are bytes, times CLOCK_MONOTONIC nanoseconds.
 *
 * After fork the child's context is dead: every call answers TEI_ERR_CONTEXT,
 * but tei_local_fini, which frees what the child has a copy of.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/list.h"

struct tei_local;		/* one per engine */
struct tei_local_peer;		/* one process of this host, or our own */
struct tei_settings;

/* Largest piece copied at a time, and so the longest that one waits for. */
#define TEI_LOCAL_PIECE		(1u << 20)
/* tei_local_copy takes no more than this. */
#define TEI_LOCAL_COPY_MAX	(256u << 10)
/* Up to this, a copy by the caller beats handing it to a copy thread. */
#define TEI_LOCAL_INLINE	(256u << 10)
/* Regions of one context. */
#define TEI_LOCAL_REGIONS	65536u
/* Room for the text form of an identity with its terminator. */
#define TEI_LOCAL_ID_TEXT	192

/* ---- context ---------------------------------------------------------- */

/*
 * Reads workers, spin_us and slice_timeout_s; keeps no pointer to settings.
 * No thread is started before the first submit. 0, TEI_ERR_MEMORY or
 * TEI_ERR_INVALID. A kernel that cannot serve other processes is no error
 * here: tei_local_identity and tei_local_peer_open say so.
 */
int tei_local_init(const struct tei_settings *settings, struct tei_err *err,
		   struct tei_local **out);

/*
 * Cancels what is queued, waits for the pieces being copied, joins the
 * threads and frees the context. All peers must have been closed. NULL is
 * fine. Other processes that still hold our identity are refused from their
 * next piece on; the call waits up to one second for those in mid-piece.
 */
void tei_local_fini(struct tei_local *ctx);

/* ---- identity --------------------------------------------------------- */

/*
 * What another process needs to reach this context; published as it is.
 * Coming from a peer it is only a claim, and tei_local_peer_open checks it.
 */
struct tei_local_id {
	char boot_id[40];	/* terminated */
	uint64_t pid_ns;	/* inode of the pid namespace */
	int32_t pid;
	int32_t cookie_fd;	/* number of the cookie memfd in that process */
	uint64_t start_time;	/* of the process, clock ticks since boot */
	uint64_t cookie_addr;	/* where the cookie lies in that process */
	uint64_t incarnation;	/* random, of the context */
};

/*
 * 0, or TEI_ERR_UNSUPPORTED where this kernel or sandbox gives no memfd, no
 * pidfd or no /proc; then only transfers inside the process work.
 */
int tei_local_identity(struct tei_local *ctx, struct tei_local_id *out);

/* One word of printable ASCII without quotes, at most TEI_LOCAL_ID_TEXT. */
int tei_local_id_format(const struct tei_local_id *id, char *buf, size_t len);

/* 0 or TEI_ERR_INVALID, *out untouched then. Any input. */
int tei_local_id_parse(const char *text, struct tei_local_id *out);

/* ---- regions ---------------------------------------------------------- */

/* tei_local_region_add's access. */
#define TEI_LOCAL_REMOTE	1u	/* by other processes, too */
#define TEI_LOCAL_READ_ONLY	2u	/* nothing may be copied into it */

/*
 * Lets [base, base+len) be named as the target of a copy: by this process
 * always, by others as access says. 0, TEI_ERR_INVALID (NULL, zero,
 * wraps), TEI_ERR_OVERLAP, TEI_ERR_TOO_MANY, TEI_ERR_CONTEXT. A range that
 * is being removed still overlaps.
 */
int tei_local_region_add(struct tei_local *ctx, const void *base,
			 uint64_t len, uint32_t access);

/*
 * Between on and the off that belongs to it, what is added may only be named
 * from the off on: the table is made known once, not once for each. Pairs may
 * nest.
 */
void tei_local_regions_adding(struct tei_local *ctx, bool on);

/*
 * Withdraws the region that starts at base; len is its length, or 0 for
 * whatever it has. When it returns 0 no copy of this process (either side)
 * and none of another process touches the region any more, nor ever will:
 * operations of this process on it have ended, and their done has returned,
 * pieces of others have ended or are refused. Blocks until that is so or until
 * deadline_ns passes; then TEI_ERR_BUSY, and the region is registered as
 * before. A dead process never holds it up; a stopped one in mid-piece does.
 * TEI_ERR_NOT_REGISTERED, also where another thread is removing it.
 */
int tei_local_region_remove(struct tei_local *ctx, const void *base,
			    uint64_t len, uint64_t deadline_ns);

struct tei_local_range {
	const void *base;
	uint64_t len;		/* or 0: whatever it has */
	int code;		/* written: as tei_local_region_remove's */
};

/*
 * The same for several at once: the table is made known once, not once for
 * each. Each has its own code; one that stays is no reason for the others to.
 */
void tei_local_regions_remove(struct tei_local *ctx,
			      struct tei_local_range *ranges, size_t count,
			      uint64_t deadline_ns);

/*
 * 0 where [addr, addr+len) lies inside one region of ours, of which nothing
 * is being removed and which, if write, is not for reading only; else
 * TEI_ERR_NOT_REGISTERED. No lock, no log.
 */
int tei_local_region_check(struct tei_local *ctx, const void *addr,
			   uint64_t len, bool write);

/* ---- peers ------------------------------------------------------------ */

/* Why a peer cannot be reached by kernel copies. */
enum tei_local_reason {
	TEI_LOCAL_OK = 0,
	TEI_LOCAL_BAD_ID,	/* the identity makes no sense */
	TEI_LOCAL_OTHER_HOST,	/* another boot id */
	TEI_LOCAL_OTHER_PIDNS,	/* same host, another pid namespace */
	TEI_LOCAL_NO_KERNEL,	/* a call or /proc is missing on our side */
	TEI_LOCAL_GONE,		/* no such process, or it has ended */
	TEI_LOCAL_RESTARTED,	/* pid lives, start time or incarnation not */
	TEI_LOCAL_NO_PERMISSION, /* ptrace access refused by the kernel */
	TEI_LOCAL_BAD_COOKIE,	/* memfd, seals, magic or layout wrong */
	TEI_LOCAL_NO_RESOURCE,	/* memory or descriptors on our side */
	TEI_LOCAL_FORKED,	/* the calling process is a child of ours */
};

/* A short sentence, never NULL, static. */
const char *tei_local_reason_text(enum tei_local_reason reason);

/*
 * Checks the claim from all sides and makes the peer: same boot and pid
 * namespace, pidfd, start time, cookie memfd (type, seals, size) mapped,
 * magic and incarnation read back by process_vm_readv. Any reason but
 * TEI_LOCAL_OK means: use a network, and say why. Then *err (may be NULL)
 * holds the text; nothing is logged, that is the caller's. Does system calls
 * but never waits for the peer. An id of this process, of ctx or of another
 * context, gives a peer that is reached by memcpy.
 */
enum tei_local_reason tei_local_peer_open(struct tei_local *ctx,
					  const struct tei_local_id *id,
					  struct tei_err *err,
					  struct tei_local_peer **out);

/* Cancels the peer's operations as tei_local_cancel does, then frees it. */
void tei_local_peer_close(struct tei_local *ctx, struct tei_local_peer *peer);

/*
 * True while the process lives and its context is the one that was opened.
 * A few system calls.
 */
bool tei_local_peer_alive(struct tei_local_peer *peer);

/* True once the process has ended, and touches nothing any more; what cannot be
 * told counts as alive. One system call. */
bool tei_local_peer_ended(const struct tei_local_peer *peer);

/* True where the peer is this process. */
bool tei_local_peer_is_self(const struct tei_local_peer *peer);

/* Whether all of [addr, addr + len) is registered there, and for us to read, or
 * to write, as far as it can be told now. */
bool tei_local_peer_covers(const struct tei_local_peer *peer, uint64_t addr,
			   uint64_t len, bool write);

/* ---- operations ------------------------------------------------------- */

enum tei_local_opcode {
	TEI_LOCAL_READ,		/* remote to local */
	TEI_LOCAL_WRITE,	/* local to remote */
};

/* done's code where the operation was cancelled; else 0 or a tei_code. */
#define TEI_LOCAL_CANCELLED	1

struct tei_local_op;

/*
 * Called exactly once per successful submit, no lock held, no piece of the
 * operation being copied or ever copied again: by a copy thread, or by a
 * thread inside tei_local_progress, _cancel, _peer_close or _fini. op belongs to the
 * callee from here on and may be freed or submitted again. bytes: how many
 * were moved, all of them where code is 0; pieces are not moved in order.
 */
typedef void (*tei_local_done_fn)(struct tei_local_op *op, int code,
				  uint64_t bytes);

/*
 * Made by the caller, who keeps it and the local memory alive until done is
 * called. Zero-initialise; fill the first group.
 */
struct tei_local_op {
	/* caller's, constant while submitted */
	struct tei_local_peer *peer;	/* NULL: this process, ctx's regions */
	enum tei_local_opcode opcode;
	void *local;			/* need not be a region */
	bool registered;		/* it must lie in one of ours, which
					   may be written for a read */
	uint64_t remote;		/* address at the target */
	uint64_t length;		/* 0 completes at once, checked */
	tei_local_done_fn done;
	struct tei_err *err;		/* filled before done on failure, or NULL */
	void *group;			/* for done */

	/* the module's, under local->lock */
	struct tei_list live_node;	/* all that were submitted */
	struct tei_list queue_node;	/* pieces left to start */
	uint64_t next;			/* offset of the next piece */
	uint64_t moved;			/* bytes done */
	uint64_t stalled_ns;		/* since when no slot was free, or 0 */
	uint32_t running;		/* pieces in copy threads */
	int code;			/* first failure */
	struct tei_err *why;		/* of it, for done to read; NULL: it was
					   cancelled, err has it, no memory */
	bool live;
};

/*
 * Queues op for the copy threads. Pieces of at most TEI_LOCAL_PIECE are taken
 * from the operations in turn, so a small one waits for no more than one
 * piece per thread; a large one may be spread over all threads. Never blocks
 * on a copy; the first calls start threads (allocation).
 * 0: done will be called, perhaps before this returns. Else done is not
 * called: TEI_ERR_INVALID, TEI_ERR_NOT_REGISTERED (the target range, as far
 * as it can be told now, or local where it must be), TEI_ERR_MEMORY, TEI_ERR_CONTEXT (forked, or the
 * context is closing). Failures by done: TEI_ERR_NOT_REGISTERED (range not
 * or no longer registered there), TEI_ERR_CONTEXT (the peer is gone or its
 * memory unmapped), TEI_ERR_INVALID (local memory unmapped, peers only),
 * TEI_ERR_TOO_MANY (no in-copy slot at the target for slice_timeout_s). Whoever
 * has no room for err until then reads op->why in done, and the thread's last
 * error where done is not called.
 */
int tei_local_submit(struct tei_local *ctx, struct tei_local_op *op);

/*
 * Drops the pieces that have not started and waits for those that run (a
 * copy that faults on a stuck page of the peer waits with it). When it
 * returns, done has been called and has returned; with TEI_LOCAL_CANCELLED
 * unless the operation ended first. op must stay valid until then and its
 * done must not submit it again; one that is not submitted is left alone.
 */
void tei_local_cancel(struct tei_local *ctx, struct tei_local_op *op);

/* Waits until every operation has ended, and its done has returned: true, or
 * until then. New ones count: the caller sees to it that none come. */
bool tei_local_drain(struct tei_local *ctx, uint64_t deadline_ns);

/*
 * Copies on the calling thread, all checks included; for lengths up to
 * TEI_LOCAL_COPY_MAX (else TEI_ERR_INVALID); pays up to TEI_LOCAL_INLINE.
 * peer NULL: this process. A peer's copy is a few system calls and may fault
 * pages in. 0 when the bytes are in place; else a code as done would give,
 * with *err filled (may be NULL). TEI_ERR_TOO_MANY: no slot just now.
 */
int tei_local_copy(struct tei_local *ctx, struct tei_local_peer *peer,
		   enum tei_local_opcode opcode, void *local, uint64_t remote,
		   uint64_t length, struct tei_err *err);

/* The same for an operation that was not submitted: its done is not called. */
int tei_local_copy_op(struct tei_local *ctx, const struct tei_local_op *op,
		      struct tei_err *err);

/* One atomic on memory of this process. */
struct tei_local_atom {
	unsigned int op;	/* enum tei_atomic_op */
	unsigned int width;	/* 4 or 8, bytes */
	uint64_t addr;		/* a multiple of width, in a region of ctx */
	uint64_t operand, compare;
	void *result;		/* old number, in a region of ctx; or NULL */
};

/*
 * Executes it on the calling thread. 0; else nothing was done:
 * TEI_ERR_INVALID, TEI_ERR_NOT_REGISTERED, TEI_ERR_TOO_MANY (no slot just
 * now), TEI_ERR_CONTEXT, with *err filled (may be NULL). There are none for
 * other processes: the kernel's copies are not atomic.
 */
int tei_local_atomic(struct tei_local *ctx, const struct tei_local_atom *atom,
		     struct tei_err *err);

/*
 * For a thread that waits for its operations: copies the next piece of
 * anyone's and ends the operation if that was its last, done included. False
 * at once when there is nothing to start. Saves the way to a copy thread and
 * back, and adds the caller's core to theirs.
 */
bool tei_local_progress(struct tei_local *ctx);

/* ---- numbers ---------------------------------------------------------- */

/* Since init; a snapshot, single fields consistent only. */
struct tei_local_counters {
	uint64_t tx_bytes;	/* written */
	uint64_t rx_bytes;	/* read */
	uint64_t pieces;	/* completed */
	uint64_t errors;	/* pieces failed */
	uint64_t queued_bytes;	/* submitted and not started */
	uint32_t threads;	/* started */
	uint32_t regions;
};

void tei_local_stats(struct tei_local *ctx, struct tei_local_counters *out);

#endif /* TEI_PROV_LOCAL_H */
