/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_H
#define MOONRAIL_H

/*
 * What moonrail offers beyond the Mooncake API of transfer_engine_c.h. All
 * calls are thread-safe. The ABI grows at the end only: arrays are passed
 * with the size of one element, outputs are filled up to the caller's size;
 * where that is larger than what the library knows, the rest becomes 0. Pieces
 * of a request (te_local, te_remote) never grow: their arrays have no size.
 */

#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with everything else hidden. */
#pragma GCC visibility push(default)

#define TE_VERSION_MAJOR 0
#define TE_VERSION_MINOR 2
#define TE_VERSION_PATCH 0

/* "0.2.0", the library's own version. Never NULL, static. */
const char *te_version(void);

/* "1.17", API version of the libfabric in use. Never NULL, static. */
const char *te_fabric_version(void);

/*
 * The calling thread's last error, or a task's (te_task_error). Plain data,
 * strings terminated.
 */
struct te_error {
	int32_t code;		/* as the set-up calls return; 0: no error */
	int32_t prov_errno;	/* the provider's own errno, 0 if none */
	uint32_t flags;		/* TE_ERROR_… */
	uint32_t reserved;
	char rail[64];		/* "" if not tied to a rail */
	char peer[96];		/* "" if not tied to a peer */
	char provider[32];	/* "" if not tied to a provider */
	char text[160];		/* what happened, provider's text included */
	char hint[160];		/* what to do about it, or "" */
};

/* te_error.flags: the target could not be fenced; its memory may still be
 * written by operations that were posted. The calls of this header then give
 * STATUS_TIMEOUT; getTransferStatus gives STATUS_FAILED, unless
 * MC_SLICE_TIMEOUT is set. */
#define TE_ERROR_UNFENCED 1u
/* te_error.flags: whether an atomic was executed, or a notification delivered, is
 * not known. */
#define TE_ERROR_UNKNOWN 2u
/* te_error.flags: the target has unregistered what its descriptor has that we
 * know it by: that was got, or imported, before. */
#define TE_ERROR_STALE 4u

/* Fills *err up to size bytes. 0, or -1 for NULL or size 0. */
int te_last_error(struct te_error *err, size_t size);

/*
 * Error record of a task that ended CANCELED, FAILED or TIMEOUT; code 0
 * otherwise. 0, or 1 for a stale or invented id or index.
 */
int te_task_error(transfer_engine_t engine, batch_id_t batch_id,
		  size_t task_id, struct te_error *err, size_t size);

/* --- the log -------------------------------------------------------------- */

/* Levels, as MC_LOG_LEVEL counts them. */
enum te_log_level {
	TE_LOG_ERROR = 0,
	TE_LOG_WARN = 1,
	TE_LOG_INFO = 2,
	TE_LOG_DEBUG = 3
};

/*
 * Receives one line: its level, the part of the library that logs it, and the
 * text without time, process id and line end. The strings are valid until it
 * returns. Any thread, several at the same time, possibly with locks of the
 * library held: it must not call the library, must not wait for a thread that
 * does, and must return quickly.
 */
typedef void (*te_log_fn)(int level, const char *module, const char *text,
			  void *context);

/*
 * Passes the log lines of the process to the callback instead of standard
 * error; NULL restores that. The lines are those that MC_LOG_LEVEL selects.
 * When it has returned 0, the callback before it is not running and is not
 * called any more. 0, or a negative code if a callback calls it. Any thread.
 */
int te_set_log(te_log_fn callback, void *context);

/* --- creation of an engine ------------------------------------------------ */

/*
 * Options of te_engine_create. Fields that are 0 or NULL have no effect unless
 * stated otherwise. Later versions add fields at the end.
 */
struct te_engine_options {
	const char *metadata;		/* connection string; required */
	const char *server_name;	/* as createTransferEngine; required */
	const char *ip;			/* address that the control channel
					 * binds and publishes */
	uint32_t port;			/* of the control channel */
	int32_t auto_discover;		/* 1: find the topology and install the
					 * transports that fit */
	/*
	 * settings_count texts "NAME=VALUE" with names of environment
	 * variables. For this engine each takes precedence over the
	 * environment; an empty VALUE means the default.
	 */
	const char *const *settings;
	size_t settings_count;
};

/*
 * Creates an engine as createTransferEngine does, with settings of its own.
 * size is sizeof(struct te_engine_options) of the calling program. The options
 * are copied. A setting that is malformed, unknown, out of range or common to
 * the whole process is an error that names it (te_last_error), and for an
 * unknown name also the closest known one. Returns 0 and sets *engine, or a
 * negative code and leaves *engine as it was. Any thread.
 */
int te_engine_create(const struct te_engine_options *options, size_t size,
		     transfer_engine_t *engine);

/* --- waiting and control of work ------------------------------------------ */

/*
 * The caller's time ran out: what a wait returns then. As a code it is also in
 * the error record, with its sign, of a task ended by its batch's deadline,
 * and what submitTransfer returns once that has passed.
 */
#define TE_TIMED_OUT 9
/* With its sign in the error record of a cancelled task. */
#define TE_CANCELED 10

/*
 * Waits until the task, or every task of the batch submitted so far and during
 * the wait, is terminal. timeout_us: microseconds, 0 looks once, negative:
 * no limit. Drives progress for MOONRAIL_SPIN_US, then sleeps.
 * 0: terminal; TE_TIMED_OUT: not yet; both fill *status (may be NULL), for a
 * batch with the worst status of its tasks and the sum of their bytes, where
 * COMPLETED < CANCELED < FAILED < TIMEOUT < WAITING. 1: stale or invented id
 * or index, nothing submitted, batch freed or engine destroyed meanwhile.
 */
int te_wait_task(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
		 int64_t timeout_us, struct transfer_status *status);
int te_wait_batch(transfer_engine_t engine, batch_id_t batch_id,
		  int64_t timeout_us, struct transfer_status *status);

/* A whole batch as te_wait_batch gives it, without waiting. 0 or 1. */
int te_batch_status(transfer_engine_t engine, batch_id_t batch_id,
		    struct transfer_status *status);

/*
 * A descriptor for poll, select and epoll, readable exactly while a batch that
 * has ended was not fetched by te_ended_batches, or a notification not by
 * getNotifsFromEngine. The same one at each call; the engine's: never closed
 * by the program, gone with the engine. Reading it is allowed, if those two
 * are called before the next sleep. The descriptor or a negative code.
 */
int te_event_fd(transfer_engine_t engine);

/* A batch that has ended: every task submitted to it so far is terminal. */
struct te_ended {
	batch_id_t batch_id;
	int32_t status;			/* as te_batch_status */
	uint32_t reserved;
	uint64_t transferred_bytes;
};

/*
 * Batches that have ended since te_event_fd was first called, or had by then;
 * not those freed meanwhile. Each end is told once; one that was not fetched
 * before more was submitted to its batch, together with the next one. Fills up
 * to *count elements of elem_size bytes each, then sets *count to the number
 * filled. 0 or -1.
 */
int te_ended_batches(transfer_engine_t engine, struct te_ended *ended,
		     size_t elem_size, size_t *count);

/*
 * As te_event_fd, for one batch: readable exactly while tasks were submitted
 * to it and all of them are terminal. The batch's: closed by freeBatchID.
 */
int te_batch_event_fd(transfer_engine_t engine, batch_id_t batch_id);

/*
 * Asks a task, or all tasks of a batch, to end early: CANCELED, or what they
 * come to first. Each is terminal soon, not when the call returns. 0, also
 * where it was terminal, or 1.
 */
int te_cancel_task(transfer_engine_t engine, batch_id_t batch_id,
		   size_t task_id);
int te_cancel_batch(transfer_engine_t engine, batch_id_t batch_id);

/*
 * Waits until all tasks that were submitted to that segment, or at all, before
 * the call are terminal; timeout_us as above. 0, TE_TIMED_OUT, 1, or 302.
 */
int te_flush(transfer_engine_t engine, segment_id_t segment_id,
	     int64_t timeout_us);
int te_drain(transfer_engine_t engine, int64_t timeout_us);

/*
 * The batch's tasks, also those submitted later, end by that time, in
 * nanoseconds of CLOCK_MONOTONIC: FAILED, or TIMEOUT where the target could
 * not be fenced. 0: no deadline. Replaces an earlier one. 0 or a positive
 * code.
 */
int te_batch_deadline(transfer_engine_t engine, batch_id_t batch_id,
		      uint64_t deadline_ns);

/* --- rails, segments, settings -------------------------------------------- */

enum te_rail_state {
	TE_RAIL_UP = 0,
	TE_RAIL_SUSPECT = 1,	/* slow to answer; probed */
	TE_RAIL_DOWN = 2,	/* carries nothing */
	TE_RAIL_PROBING = 3	/* on its way back */
};

/* Counters are since the engine's start. */
struct te_rail_stats {
	char name[64];		/* interface or RDMA device */
	char provider[32];	/* of libfabric; "local" for copies */
	char address[96];	/* fabric address in text */
	char transport[16];	/* "tcp", "rdma", "shm", "local", … */
	uint32_t state;		/* enum te_rail_state */
	uint32_t lanes;		/* endpoints open, target lanes included */
	uint64_t tx_bytes;	/* written to peers and completed */
	uint64_t rx_bytes;	/* read from peers and completed */
	uint64_t slices;	/* completed pieces */
	uint64_t retries;	/* pieces posted again */
	uint64_t errors;	/* error completions */
	uint64_t inflight_bytes;
	uint64_t inflight_max;	/* highest value seen, bytes */
	uint64_t window;	/* bytes that may be posted at a time */
	double rate;		/* service rate, bytes per second */
	uint64_t state_changes;	/* of state */
};

/*
 * Fills up to *count elements of elem_size bytes each, then sets *count to the
 * number there are; stats may be NULL where *count is 0. 0 or -1.
 */
int te_rail_stats(transfer_engine_t engine, struct te_rail_stats *stats,
		  size_t elem_size, size_t *count);

/* A remotely accessible buffer of a segment. */
struct te_buffer {
	uint64_t addr;		/* absolute address there: a target_offset */
	uint64_t length;	/* bytes */
	char location[64];	/* "cpu:0", "cuda:1", "*" */
};

/*
 * Buffers of an open segment as its descriptor lists them. Fills up to *count
 * elements of elem_size bytes each, then sets *count to the number there are.
 * 0, or -1 for a stale id or bad argument.
 */
int te_segment_buffers(transfer_engine_t engine, segment_id_t segment_id,
		       struct te_buffer *bufs, size_t elem_size,
		       size_t *count);

/*
 * Asks the control port of the peer with that segment name for an answer. 0 if
 * it answers as that peer: with a metadata service, as the process that has
 * published the name; with P2PHANDSHAKE, where the name is the address, as any
 * engine. Otherwise a negative code with the reason in te_last_error: -1 (bad
 * argument, or a name that is no address), -101 (the host is unknown), -102 (no
 * connection, or no answer in time), -104 (another process answers, or a wrong
 * secret), -200 (the metadata service does not have the name). Blocks for
 * at most timeout_us microseconds, MC_HANDSHAKE_CONNECT_TIMEOUT if negative.
 * The segment need not be open. Any thread.
 */
int te_probe_peer(transfer_engine_t engine, const char *name,
		  int64_t timeout_us);

/* --- requests that struct transfer_request cannot express ---------------- */

/* te_request.opcode. Values never change. */
enum te_opcode {
	TE_READ = 0,			/* as OPCODE_READ */
	TE_WRITE = 1,			/* as OPCODE_WRITE */
	TE_ATOMIC_ADD = 2,		/* *remote += operand */
	TE_ATOMIC_FETCH_ADD = 3,	/* the same; gives the old number */
	TE_ATOMIC_SWAP = 4,		/* *remote = operand; old number */
	TE_ATOMIC_CAS = 5		/* if *remote == compare:
					 * *remote = operand; old number */
};

/* Pieces of one request, at most, on either side. */
#define TE_PIECES_MAX 256

/* A piece of this process's memory. Frozen: what is to be said of it beyond
 * these two will be said in te_request. */
struct te_local {
	void *addr;
	uint64_t length;		/* bytes, not 0 */
};

/* A piece of the target's memory. Frozen too. */
struct te_remote {
	uint64_t addr;			/* absolute address there */
	uint64_t length;		/* bytes, not 0 */
};

/*
 * One task. The arrays are the caller's and are not used any more when
 * te_submit has returned; the memory that they name must stay as it is until
 * the task has ended. Zero the struct before it is filled in.
 *
 * TE_READ, TE_WRITE: the local pieces end to end are moved to or from the
 * remote pieces end to end; both sides add up to the same length. Each local
 * piece lies in registered memory, each in another region if need be. Pieces
 * that overlap on the receiving side are allowed; which of them is seen there
 * is not defined. transferred_bytes counts the bytes of all pieces.
 *
 * Atomics: one remote piece, of length 4 or 8, at an address that is a multiple
 * of it: an unsigned number in the target's byte order, in memory that the
 * target registered as remotely accessible. operand (and compare) fit into it.
 * The old number is delivered to the one local piece, of the same length,
 * aligned too, in registered memory; TE_ATOMIC_ADD has no local piece.
 *
 * The target's processor executes them, never a NIC: atomics of two NICs, or
 * of a NIC and a processor, are not atomic with one another, so memory that is
 * reached over several rails needs one executor. Thus all te_submit atomics on
 * an address are atomic with one another, whatever rails or processes they
 * come from, and with __atomic builtins (C11 atomics) of the target's own
 * threads, each of them sequentially consistent; plain transfers to the same
 * address are not. They need nothing of the provider and work over each,
 * survive the loss of a rail, and cost the target's progress thread a wake-up.
 * To LOCAL_SEGMENT the caller executes them itself. To another process of this
 * host they travel over a rail, since kernel copies have no atomics: code 8
 * where no rail reaches it.
 *
 * An atomic is executed once at most (law of exactly once: it carries a number
 * of this process's that the target remembers). It ends COMPLETED: executed
 * once; FAILED: not executed, or, where the target's process has ended,
 * unknown; TIMEOUT: unknown, and it may be executed yet, since the target
 * cannot be reached. TE_ERROR_UNKNOWN in the error record says that the
 * outcome is unknown. Code -303 there: the target's version has no atomics.
 *
 * Tasks have no order among one another, atomics of one batch neither.
 */
struct te_request {
	uint32_t opcode;		/* enum te_opcode */
	uint32_t flags;			/* 0 */
	int32_t target_id;		/* segment_id_t */
	uint32_t local_count;		/* elements of local */
	uint32_t remote_count;		/* elements of remote */
	uint32_t reserved;		/* 0 */
	const struct te_local *local;
	const struct te_remote *remote;
	uint64_t operand;		/* atomics, else 0 */
	uint64_t compare;		/* TE_ATOMIC_CAS, else 0 */
};

/*
 * Adds count tasks to a batch, all or none; from then on they are tasks of it
 * like those of submitTransfer. elem_size is the size of one element; one that
 * is larger than this library's struct is taken where all that goes beyond is
 * 0. flags is 0. If count is 0, reqs is ignored and nothing is added.
 *
 * 0, or a positive code and nothing was taken: 1 (a stale or invented engine,
 * batch or target, an unknown opcode or flag, no piece or too many, length 0,
 * a range that wraps, sides that differ in length, an unaligned atomic, a
 * field that its opcode has no use for), 2 (no room in the batch, too many
 * queued), 3 (a local piece outside registered memory; in memory of a GPU one
 * of several, or an atomic's result), 8 (no transport or rail reaches the
 * target; several pieces, or an atomic, for files or memory of a GPU), 9 (the
 * batch's deadline has passed), 302 (no memory). te_last_error names request
 * and fault.
 */
int te_submit(transfer_engine_t engine, batch_id_t batch_id,
	      const struct te_request *reqs, size_t elem_size, size_t count,
	      uint64_t flags);

/*
 * Settings in force, one "NAME=value source" line each, truncated to len bytes
 * with its terminator; buf may be NULL where len is 0. Returns the length of the
 * whole text without its terminator, or -1.
 */
int te_settings_text(transfer_engine_t engine, char *buf, size_t len);

/* --- objects: descriptors as blobs ---------------------------------------- */

/* Bytes of the longest blob. */
#define TE_BLOB_MAX ((UINT64_C(64) << 20) + 64)

/*
 * This engine's segment descriptor, for applications that exchange addresses
 * themselves: a blob for te_segment_import of any process, of any byte order.
 * It says who we are, which rails and which remotely accessible buffers we
 * have; it holds no memory keys, only whether memory of a GPU has some. *size:
 * room in, bytes out; buf NULL with 0 asks for the size. flags: 0. 0; -1 for a
 * bad argument, or *size too small, which then is what is needed now.
 */
int te_segment_export(transfer_engine_t engine, uint64_t flags, void *buf,
		      size_t *size);

/*
 * Opens the segment that a blob describes, as openSegment opens it by name,
 * without asking anybody: the same name has the same id, one reference more;
 * a blob of this engine is LOCAL_SEGMENT. One that is older than what is
 * known changes nothing. What is refused because it was unregistered since has
 * TE_ERROR_STALE in its record. flags: 0. 0; -1 bad argument, -104 not a (whole)
 * blob, -202 the blob of a process that has gone, -2 too many.
 */
int te_segment_import(transfer_engine_t engine, const void *blob, size_t size,
		      uint64_t flags, segment_id_t *id);

/* --- objects: which path, and what went there ------------------------------ */

enum te_path_kind {
	TE_PATH_FABRIC = 0,	/* a rail of ours to a rail of the peer */
	TE_PATH_PROCESS = 1,	/* copies by the kernel to another process */
	TE_PATH_MEMCPY = 2,	/* inside this process */
	TE_PATH_FILE = 3	/* the files of a file segment */
};

enum te_path_rank {
	TE_PATH_NEAR = 0,	/* preferred for that location */
	TE_PATH_FAR = 1,	/* helps when the near ones are full or down */
	TE_PATH_OFF = 2	/* not used for that location */
};

/* te_path.flags */
#define TE_PATH_CONNECTED 1u

struct te_path {
	uint32_t kind;		/* enum te_path_kind */
	uint32_t flags;		/* TE_PATH_… */
	uint32_t rank;		/* enum te_path_rank */
	int32_t numa_node;	/* of our rail, -1 unknown */
	char transport[16];	/* "tcp", "rdma", "shm", "local", "nvmeof" */
	char provider[32];	/* of libfabric; "process_vm", "memcpy";
				 * "io_uring", "threads" */
	char rail[64];		/* ours */
	char address[96];	/* ours, as text */
	char remote_rail[64];	/* "" before the peer was first heard of */
	char remote_address[96];
	char why_not_local[64];	/* where copies were allowed and not possible */
};

/*
 * What carries bytes to an open segment: one element for copies, else one per
 * local rail that reaches a rail of the peer. Ranks are those for memory at
 * location; NULL: anywhere. The log says the same at level info, a line per
 * peer and change. Fills as te_rail_stats does. 0, or -1 for a stale id or
 * bad argument.
 */
int te_segment_paths(transfer_engine_t engine, segment_id_t segment_id,
		     const char *location, struct te_path *paths,
		     size_t elem_size, size_t *count);

enum te_peer_state {
	TE_PEER_NEW = 0,	/* not heard of yet */
	TE_PEER_READY = 1,
	TE_PEER_FENCING = 2,	/* something failed; a fence is awaited */
	TE_PEER_GONE = 3	/* that process has gone; open it again */
};

/* Counters are since this process of that name was first opened here. */
struct te_peer_stats {
	char name[96];
	uint64_t incarnation;
	uint32_t state;		/* enum te_peer_state */
	uint32_t queued;	/* tasks that wait for a rail */
	uint64_t tx_bytes;	/* written there and completed */
	uint64_t rx_bytes;	/* read from there and completed */
	uint64_t completed;	/* tasks, by how they ended */
	uint64_t failed;
	uint64_t timeout;
	uint64_t canceled;
	uint64_t retries;	/* pieces posted again */
	uint64_t fences;	/* asked of the peer */
	uint64_t last_ns;	/* CLOCK_MONOTONIC: last sign of life, or 0 */
};

/*
 * Fills *stats up to size bytes for one open segment, the own one included.
 * 0, or -1 for a stale id or bad argument.
 */
int te_peer_stats(transfer_engine_t engine, segment_id_t segment_id,
		  struct te_peer_stats *stats, size_t size);

/* --- objects: memory ------------------------------------------------------- */

/* Flags of te_alloc. */
#define TE_ALLOC_PRIVATE 1u	/* not remotely accessible */
#define TE_ALLOC_SMALL_PAGES 2u	/* no huge pages */
#define TE_ALLOC_HUGE_PAGES 4u	/* from the kernel's pool, or not at all */
#define TE_ALLOC_STRICT 8u	/* on that node, or not at all */

enum te_page_kind {
	TE_PAGES_SMALL = 0,
	TE_PAGES_TRANSPARENT = 1, /* huge, at least in part */
	TE_PAGES_HUGE = 2	/* from the kernel's pool */
};

/* What te_alloc got. */
struct te_memory {
	uint64_t addr;
	uint64_t size;		/* as asked for; registered */
	uint64_t mapped;	/* bytes of memory used */
	uint64_t page_size;	/* bytes; of the largest where mixed */
	uint32_t pages;		/* enum te_page_kind */
	int32_t numa_node;	/* -1: several, or not known */
	char location[64];	/* as registered: "cpu:0", "cuda:1", "*" */
};

/*
 * Memory at location ("cpu:1", "cuda:0"; NULL or "*": of the host, anywhere),
 * there of the largest pages there are, zeroed, touched and registered. A GPU's
 * has no pages to tell of. *memory is filled up to
 * memory_size, which holds the address at least. Freed by te_free or with the
 * engine. 0; -1 bad argument, -300 no such node, or not all of it there
 * (TE_ALLOC_STRICT), -302 no memory or no huge pages, -303 a location that is
 * neither a NUMA node nor a GPU, -6 no such GPU, or no driver in this process,
 * or as registerLocalMemory.
 */
int te_alloc(transfer_engine_t engine, size_t size, const char *location,
	     uint64_t flags, struct te_memory *memory, size_t memory_size);

/*
 * Unregisters as unregisterLocalMemory does, with its promise, then unmaps. 0;
 * -3 not from te_alloc, -4 still in use, and nothing has changed.
 */
int te_free(transfer_engine_t engine, void *addr);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MOONRAIL_H */
