/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_H
#define TEI_PROV_LOCAL_H

/*
 * Copies within this process and between processes of this host: by memcpy
 * (memory of another process is mapped, tei_local_memory.h), or by
 * process_vm_readv and process_vm_writev. The target's threads are not involved,
 * so a target that is idle or stopped delays no copy.
 *
 * Threads: every call may be made from any thread. A done callback may call
 * only tei_local_submit, tei_local_copy, tei_local_atomic and tei_local_stats.
 * The lock of the module is in row 6 of docs/LOCKING.md; it is not held while a
 * callback runs. Lengths are bytes, times are CLOCK_MONOTONIC nanoseconds.
 *
 * After a fork, the context cannot be used in the child: every call returns
 * TEI_ERR_CONTEXT, except tei_local_fini, which frees the child's copy.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"
#include "util/list.h"

struct tei_local;		/* The context of the module; each engine has
				 * one. */
struct tei_local_peer;		/* another process of this host, or this
				 * process */
struct tei_local_op;
struct tei_settings;

/* Largest piece that is copied without interruption. A small operation waits
 * for at most one such piece per thread. */
#define TEI_LOCAL_PIECE		(1u << 20)
/* Largest length that tei_local_copy accepts. */
#define TEI_LOCAL_COPY_MAX	TEI_LOCAL_PIECE
/* Largest length for which a copy by the calling thread is faster than a copy
 * thread, even if the kernel makes the copy. */
#define TEI_LOCAL_INLINE	(256u << 10)
/* Largest number of operations that tei_local_copy_run copies at once. */
#define TEI_LOCAL_RUN 1023u
/* Maximum number of regions of one context. */
#define TEI_LOCAL_REGIONS	65536u
/* Size of the text form of an identity, with its terminator. */
#define TEI_LOCAL_ID_TEXT	192

/* ---- context ---------------------------------------------------------- */

/*
 * Creates a context. Reads copies, spin_us and slice_timeout_s; keeps no
 * pointer to settings. Starts no thread before the first submit. Returns 0,
 * TEI_ERR_MEMORY or TEI_ERR_INVALID. A kernel that does not support copies
 * between processes is not an error here; tei_local_identity and
 * tei_local_peer_open report it.
 */
int tei_local_init(const struct tei_settings *settings, struct tei_err *err,
		   struct tei_local **out);

/*
 * Cancels queued operations, waits for the pieces being copied, joins the
 * threads and frees the context. The caller must have closed all peers. NULL is
 * ignored. Other processes that still have the identity of this context are
 * refused from their next piece on; the call waits up to one second for the
 * pieces in progress.
 */
void tei_local_fini(struct tei_local *ctx);

/* Returns the largest number of copy threads of the context. */
uint32_t tei_local_threads(const struct tei_local *ctx);

/* ---- identity --------------------------------------------------------- */

/* The values with which another process reaches this context. Published as it
 * is. An identity received from a peer is not trusted; tei_local_peer_open
 * verifies it. */
struct tei_local_id {
	char boot_id[40];	/* null-terminated text */
	uint64_t pid_ns;	/* inode number of the pid namespace */
	int32_t pid;
	int32_t magic_fd;	/* descriptor of the registration table's
				 * memfd */
	uint64_t start_time;	/* start time of the process, clock ticks since
				 * boot */
	uint64_t magic_addr;	/* address of the registration table */
	uint64_t incarnation;	/* random number of the context */
};

/* Gets the identity of the context. Returns 0, or TEI_ERR_UNSUPPORTED if the
 * kernel or a sandbox provides no memfd, pidfd or /proc. Then only transfers
 * within the process work. */
int tei_local_identity(struct tei_local *ctx, struct tei_local_id *out);

/* Writes the identity as one word of printable ASCII without quotes, at most
 * TEI_LOCAL_ID_TEXT bytes. Returns 0, or TEI_ERR_INVALID if buf is too small. */
int tei_local_id_format(const struct tei_local_id *id, char *buf, size_t len);

/*
 * Parses the text of an identity; any input is allowed. Returns 0 or
 * TEI_ERR_INVALID.
 */
int tei_local_id_parse(const char *text, struct tei_local_id *out);

/* ---- regions ---------------------------------------------------------- */

/* Flags of the parameter "access" of tei_local_region_add. */
#define TEI_LOCAL_REMOTE	1u	/* other processes may access the
					 * region, too */
#define TEI_LOCAL_READ_ONLY	2u	/* no copy may write to the region */

/*
 * Registers [base, base+len) as a possible target of copies: by this process
 * always, by other processes if access has TEI_LOCAL_REMOTE. Returns 0,
 * TEI_ERR_INVALID (NULL, zero length or wraps around), TEI_ERR_OVERLAP,
 * TEI_ERR_TOO_MANY, TEI_ERR_MEMORY or TEI_ERR_CONTEXT. A region that is being
 * removed still counts as an overlap.
 */
int tei_local_region_add(struct tei_local *ctx, const void *base,
			 uint64_t len, uint32_t access);

/* Returns the serial number of the region that was registered with this base, or
 * 0 if there is none or if it is being removed. See tei_local_serial. */
uint64_t tei_local_region_serial(struct tei_local *ctx, const void *base);

/* Publishes several new regions at once. Regions that are added between a call
 * with "on" true and the matching call with "on" false stay unpublished: they
 * cannot be targets yet. The table is then published once instead of once per
 * region. Such pairs of calls may nest. */
void tei_local_regions_adding(struct tei_local *ctx, bool on);

/*
 * Removes the region that starts at base and has length len; len 0 matches any
 * length. When it returns 0, no copy by this process (as source or target) or
 * by another process accesses the region, now or later. Operations of this
 * process on the region have ended and their done callbacks have returned;
 * pieces of other processes have ended or are refused.
 *
 * Blocks until the region is removed, or until deadline_ns. At the deadline
 * returns TEI_ERR_BUSY, and the region stays registered. A dead process does
 * not delay the call; a process that is stopped while it copies a piece does.
 * Returns TEI_ERR_NOT_REGISTERED if there is no such region or another thread
 * is removing it.
 */
int tei_local_region_remove(struct tei_local *ctx, const void *base,
			    uint64_t len, uint64_t deadline_ns);

struct tei_local_range {
	const void *base;
	uint64_t len; /* length of the region; 0 means any length */
	int code;     /* result; a value that tei_local_region_remove returns */
};

/* Removes several regions at once: the table is published once instead of once
 * per region. Sets the code of each range. A region that cannot be removed does
 * not affect the other ones. */
void tei_local_regions_remove(struct tei_local *ctx,
			      struct tei_local_range *ranges, size_t count,
			      uint64_t deadline_ns);

/* Returns 0 if [addr, addr+len) lies within one region of the context that is
 * published and, if write is true, is not read-only. Otherwise returns
 * TEI_ERR_NOT_REGISTERED. Takes no lock and logs nothing. */
int tei_local_region_check(struct tei_local *ctx, const void *addr,
			   uint64_t len, bool write);

/* Returns true if a part of [addr, addr+len) lies in a region, even in one that
 * is being removed. len is not 0, and the range does not wrap. */
bool tei_local_region_touches(struct tei_local *ctx, const void *addr,
			      uint64_t len);

/* ---- peers ------------------------------------------------------------ */

/* Reasons why a peer cannot be reached by kernel copies. */
enum tei_local_reason {
	TEI_LOCAL_OK = 0,
	TEI_LOCAL_BAD_ID, /* the identity is invalid */
	TEI_LOCAL_OTHER_HOST,	 /* the identity has the boot id of another
				  * host */
	TEI_LOCAL_OTHER_PIDNS,	 /* the identity has another pid namespace of
				  * this host */
	TEI_LOCAL_NO_KERNEL,	 /* a system call or /proc is missing */
	TEI_LOCAL_GONE,		 /* the process does not exist or has ended */
	TEI_LOCAL_RESTARTED,	 /* the process has another start time or
				  * incarnation than the identity */
	TEI_LOCAL_NO_PERMISSION, /* the kernel refuses ptrace access */
	TEI_LOCAL_BAD_MAGIC,	 /* memfd, seals, magic or layout are wrong */
	TEI_LOCAL_NO_RESOURCE,	 /* this process lacks memory or file
				  * descriptors */
	TEI_LOCAL_FORKED,	 /* the calling process is a forked child */
};

/* Returns a short static text that names the reason. Never returns NULL. */
const char *tei_local_reason_text(enum tei_local_reason reason);

/*
 * Verifies the identity and creates the peer. Checks the boot id and the pid
 * namespace, opens a pidfd, checks the start time, maps the memfd of its
 * registration table after checking its type, seals and size, and reads magic
 * and incarnation from the process with process_vm_readv.
 *
 * If the result is not TEI_LOCAL_OK, the caller must use a network. Then *err
 * holds the text; err may be NULL. Nothing is logged; the caller reports the
 * reason. Makes system calls but never waits for the peer. If the identity
 * belongs to this process (to ctx or to another context), the peer is reached
 * by memcpy. The caller frees *out with tei_local_peer_close.
 */
enum tei_local_reason tei_local_peer_open(struct tei_local *ctx,
					  const struct tei_local_id *id,
					  struct tei_err *err,
					  struct tei_local_peer **out);

/* Cancels the operations of the peer, as tei_local_cancel does, then frees the
 * peer. */
void tei_local_peer_close(struct tei_local *ctx, struct tei_local_peer *peer);

/* Returns true if the process lives and its context is still the one that was
 * opened. Makes a few system calls. */
bool tei_local_peer_alive(struct tei_local_peer *peer);

/* Returns true if the process has ended and no longer accesses memory. If this
 * cannot be determined, the process counts as alive. Makes one system call. */
bool tei_local_peer_ended(const struct tei_local_peer *peer);

/* Returns true if the peer is this process. */
bool tei_local_peer_is_self(const struct tei_local_peer *peer);
/* Returns true if the peer has memory that this process can map, and no attempt
 * to map it has failed. */
bool tei_local_peer_maps(const struct tei_local_peer *peer);

/* Returns true if the operation, which is not submitted, is copied through a
 * mapping: it requires a registered local range, and the target range is in
 * memory that this process can map. */
bool tei_local_op_mapped(const struct tei_local_op *op);

/* Returns true if all of [addr, addr + len) is currently registered at the peer
 * and this process may read it, or write it if write is true. */
bool tei_local_peer_covers(const struct tei_local_peer *peer, uint64_t addr,
			   uint64_t len, bool write);

/*
 * Returns the serial number of the registration at the peer that contains all
 * of [addr, addr + len), or 0 if this process may not read it, or may not write
 * it if write is true. If peer is NULL, the range is in the regions of ctx. If
 * memory is unregistered and registered again, the serial number is another
 * one. With tei_local_op.serial, the caller ensures that several operations
 * access the same registration.
 */
uint64_t tei_local_serial(struct tei_local *ctx,
			  const struct tei_local_peer *peer, uint64_t addr,
			  uint64_t len, bool write);

/* ---- operations ------------------------------------------------------- */

enum tei_local_opcode {
	TEI_LOCAL_READ,		/* copies from remote to local memory */
	TEI_LOCAL_WRITE,	/* copies from local to remote memory */
};

/* Code with which done is called if the operation was cancelled; in other cases
 * the code is 0 or a tei_code. */
#define TEI_LOCAL_CANCELLED	1

/*
 * Called exactly once per successful submit, with no lock held and after the
 * last byte was copied. Runs in a copy thread, or in a thread inside
 * tei_local_progress, tei_local_cancel, tei_local_cancel_start,
 * tei_local_peer_close or tei_local_fini.
 * The callback owns op and may free it or submit it again. bytes: number of
 * bytes copied, all of them if code is 0; pieces are not copied in order.
 */
typedef void (*tei_local_done_fn)(struct tei_local_op *op, int code,
				  uint64_t bytes);

/*
 * Created by the caller, which keeps it and the local memory valid until done
 * is called. Initialise it to zero, then set the first group of members.
 */
struct tei_local_op {
	/* set by the caller, constant while submitted */
	struct tei_local_peer *peer;	/* target; NULL means the regions of ctx
					 * in this process */
	enum tei_local_opcode opcode;
	void *local;			/* local memory; it need not be in a
					 * region */
	bool registered;		/* the local range must be in a region
					 * of ctx and mapped; for a READ, the
					 * region must be writable */
	uint64_t remote;		/* address in the target's memory */
	uint64_t length;		/* an operation of length 0 is checked
					 * and completed at once */
	uint64_t serial;		/* serial number that the registration
					 * of the target range must have; 0:
					 * any */
	tei_local_done_fn done;
	struct tei_err *err; /* error record to fill before done is called if
			      * the operation fails, or NULL */
	void *group;	     /* not used by this module; for the done
			      * callback */

	/* private to the module, guarded by local->lock */
	struct tei_list live_node;	/* in the list of submitted
					 * operations */
	struct tei_list queue_node;	/* in the queue while pieces remain to
					 * start */
	uint64_t required;		/* serial number that is required for
					 * each piece; 0: any */
	uint64_t next;			/* offset of the next piece */
	uint64_t moved;			/* bytes copied */
	uint64_t stalled_ns;		/* time since which the operation has
					 * been waiting for a free copy slot, or
					 * 0 */
	uint32_t running;		/* number of pieces being copied */
	int code;			/* code of the first failure, or 0 */
	struct tei_err *why;		/* error record for the done callback;
					 * if NULL, the operation was cancelled,
					 * the record is in err, or memory was
					 * short */
	bool live;
	bool alone; /* the operation must not be copied together with others */
};

/*
 * Queues op for the copy threads. The threads take pieces of at most
 * TEI_LOCAL_PIECE bytes from the operations by turns. So a small operation
 * waits for at most one piece per thread, and all threads may work on a large
 * one. A thread copies successive small operations for the same process
 * together. The call never waits for a copy. The first calls start threads and
 * so allocate memory.
 *
 * Returns 0 if done will be called, possibly before the call returns. Otherwise
 * done is not called, and the result is TEI_ERR_INVALID, TEI_ERR_NOT_REGISTERED
 * (the target range, or the local range if op->registered is set),
 * TEI_ERR_MEMORY, or TEI_ERR_CONTEXT (forked child, or the context is closing).
 *
 * Codes of done: TEI_ERR_NOT_REGISTERED (range not registered at the target, or
 * no longer, or registered again since the first piece), TEI_ERR_CONTEXT (the
 * peer has ended or its memory is unmapped), TEI_ERR_INVALID (local memory is
 * unmapped; only in a kernel copy), TEI_ERR_TOO_MANY (no free copy slot at the
 * target for slice_timeout_s). A caller that sets no err finds the error record
 * in op->why during done, or in the thread's last error if the call fails.
 */
int tei_local_submit(struct tei_local *ctx, struct tei_local_op *op);

/* Drops the pieces of the operation that have not started and waits for those
 * being copied. A copy that is blocked on a page fault in the peer's memory
 * delays the call. When it returns, done has returned, with TEI_LOCAL_CANCELLED
 * unless the operation had ended before. op must stay valid until then, and its
 * done must not submit it again. An operation that is not submitted is
 * ignored. */
void tei_local_cancel(struct tei_local *ctx, struct tei_local_op *op);
/* Does the same, but does not wait: done is called after the last piece that is
 * being copied, or by this call if there is none. */
void tei_local_cancel_start(struct tei_local *ctx, struct tei_local_op *op);

/* Waits until every operation has ended and its done callback has returned.
 * Returns true, or false at the deadline. Operations submitted meanwhile count
 * too, so the caller must stop submitting. */
bool tei_local_drain(struct tei_local *ctx, uint64_t deadline_ns);

/*
 * Copies on the calling thread, with all checks. length must be at most
 * TEI_LOCAL_COPY_MAX (else TEI_ERR_INVALID); a copy thread is faster above
 * TEI_LOCAL_INLINE. If peer is NULL, the copy is inside this process. A copy
 * with a peer makes a few system calls and may block on page faults. Returns 0
 * if all bytes are in place, otherwise one of the codes of done, with *err
 * filled; err may be NULL. TEI_ERR_TOO_MANY: no slot is free at the moment.
 */
int tei_local_copy(struct tei_local *ctx, struct tei_local_peer *peer,
		   enum tei_local_opcode opcode, void *local, uint64_t remote,
		   uint64_t length, struct tei_err *err);

/*
 * Does what tei_local_copy does, for an operation that is not submitted. Does
 * not call its done callback.
 */
int tei_local_copy_op(struct tei_local *ctx, const struct tei_local_op *op,
		      struct tei_err *err);

/*
 * Copies several operations with one system call on the calling thread. The
 * operations have not been submitted. Takes the first of the n operations, as
 * long as they have the same peer and opcode as op[0], lie in one region of the
 * peer, have at most TEI_LOCAL_INLINE bytes each, and have at most
 * TEI_LOCAL_PIECE bytes together. Makes all checks and calls no done callback.
 * Returns the number of operations whose bytes are all in place; the operation
 * after them may be copied in part. Reports no error: the caller passes this
 * operation to tei_local_copy_op or tei_local_submit.
 */
size_t tei_local_copy_run(struct tei_local *ctx,
			  struct tei_local_op *const op[], size_t n);

/* Copies the next piece of the queue on the calling thread. Called by a thread
 * that waits for its own operations. If the piece was the last one of an
 * operation, ends the operation and calls its done callback. Returns false at
 * once if no piece can be started. This saves the switch to a copy thread and
 * adds the caller's core to the copying. */
bool tei_local_progress(struct tei_local *ctx);

#endif /* TEI_PROV_LOCAL_H */
