/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_H
#define MOONRAIL_H

/*
 * The extensions of moonrail to the Mooncake API of transfer_engine_c.h. All
 * calls are thread-safe.
 *
 * ABI: later versions add fields only at the end of a struct. The caller passes
 * the size of its struct, or of one array element. The library writes at most
 * this number of bytes to a struct that it fills in. If the caller's struct is
 * larger than that of the library, the rest is set to 0. te_local and te_remote
 * never grow, so arrays of them are passed without a size.
 */

#include <stddef.h>
#include <stdint.h>

#include "transfer_engine_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* exports the functions declared below; all other symbols of the library are
 * hidden */
#pragma GCC visibility push(default)

#define TE_VERSION_MAJOR 0
#define TE_VERSION_MINOR 2
#define TE_VERSION_PATCH 0

/* Returns the version of the library, for example "0.2.0". The string is
 * static, never NULL. */
const char *te_version(void);

/* Returns the API version of the libfabric in use, for example "1.17". The
 * string is static, never NULL. */
const char *te_fabric_version(void);

/*
 * An error record: the last error of the calling thread (te_last_error) or the
 * error of a task (te_task_error). All strings are terminated.
 */
struct te_error {
	int32_t code;		/* negative, from the table in
				 * transfer_engine_c.h; 0: no error */
	int32_t prov_errno;	/* error number of the libfabric
				 * provider, 0 if none */
	uint32_t flags;		/* bits TE_ERROR_… */
	uint32_t reserved;
	char rail[64];		/* local rail; "" if the error does not concern
				 * a rail */
	char peer[96];		/* peer; "" if the error does not concern a
				 * peer */
	char provider[32];	/* libfabric provider; "" if the error does not
				 * concern a provider */
	char text[160];		/* what happened, including the provider's
				 * text */
	char hint[160];		/* what the user can do, or "" */
};

/* te_error.flags: the target could not be fenced, so operations that were
 * posted may still write to its memory. The status of such a task is
 * STATUS_TIMEOUT. Only getTransferStatus reports STATUS_FAILED for it if
 * MC_SLICE_TIMEOUT is not set. */
#define TE_ERROR_UNFENCED 1u
/* te_error.flags: it is unknown whether the atomic was executed or the
 * notification was delivered. */
#define TE_ERROR_UNKNOWN 2u
/* te_error.flags: this process's copy of the segment's descriptor is stale: it
 * lists memory that the target has since unregistered. */
#define TE_ERROR_STALE 4u

/*
 * Copies the last error of the calling thread to *err, up to size bytes. The
 * record has code 0 if the thread has had no error yet. Returns 0, or -1 if err
 * is NULL or size is 0.
 */
int te_last_error(struct te_error *err, size_t size);

/*
 * Copies the error record of a task that ended CANCELED, FAILED or TIMEOUT to
 * *err, up to size bytes. For every other task the record has code 0. Returns
 * 0, or 1 if the engine, the batch or the task does not exist.
 */
int te_task_error(transfer_engine_t engine, batch_id_t batch_id,
		  size_t task_id, struct te_error *err, size_t size);

/* --- the log -------------------------------------------------------------- */

/* Log levels, with the numbers that MC_LOG_LEVEL uses. */
enum te_log_level {
	TE_LOG_ERROR = 0,
	TE_LOG_WARN = 1,
	TE_LOG_INFO = 2,
	TE_LOG_DEBUG = 3
};

/*
 * Receives one log line: its level, the part of the library that logs it, and
 * the text without time, process id and line end. The strings are valid until
 * the callback returns. The library calls it from any thread, from several
 * threads at the same time, and possibly while it holds locks. The callback
 * must not call the library, must not wait for a thread that does, and must
 * return quickly.
 */
typedef void (*te_log_fn)(int level, const char *module, const char *text,
			  void *context);

/*
 * Passes the log lines of the process to callback instead of standard error;
 * NULL restores standard error. MC_LOG_LEVEL selects the lines. Once this call
 * has returned 0, the previous callback is no longer running and is not called
 * again. Returns 0, or a negative code if it is called from a callback. Any
 * thread may call it.
 */
int te_set_log(te_log_fn callback, void *context);

/* --- creation of an engine ------------------------------------------------ */

/*
 * Options of te_engine_create. Fields that are 0 or NULL have no effect unless
 * stated otherwise. Later versions add fields at the end.
 */
struct te_engine_options {
	const char *metadata;		/* connection string; required */
	const char *server_name;	/* local_server_name of
					 * createTransferEngine; required */
	const char *ip;			/* address at which the control channel
					 * listens and which it publishes */
	uint32_t port;			/* TCP port of the control channel */
	int32_t auto_discover;		/* 1: discover the topology and install
					 * the matching transports */
	/*
	 * settings_count texts "NAME=VALUE", where NAME is an environment
	 * variable. For this engine, each takes precedence over the
	 * environment. An empty VALUE means the default.
	 */
	const char *const *settings;
	size_t settings_count;
};

/*
 * Creates an engine as createTransferEngine does, with settings of its own.
 * size is sizeof(struct te_engine_options) of the calling program. The options
 * are copied. A setting is refused if it is malformed, unknown, out of range or
 * common to the whole process; te_last_error then names it, and for an unknown
 * name also the closest known one. Returns 0 and sets *engine, or returns a
 * negative code and leaves *engine unchanged. Any thread may call it.
 */
int te_engine_create(const struct te_engine_options *options, size_t size,
		     transfer_engine_t *engine);

/* --- waiting and control of work ------------------------------------------ */

/*
 * Returned by a wait whose timeout has passed, and by a submission to a batch
 * whose deadline has passed. The error record of a task that was ended by the
 * deadline of its batch has code -TE_TIMED_OUT.
 */
#define TE_TIMED_OUT 9
/* The error record of a cancelled task has code -TE_CANCELED. */
#define TE_CANCELED 10

/*
 * Wait until the task is terminal, or until every task of the batch is,
 * including the tasks that are submitted during the wait. timeout_us is in
 * microseconds; 0 checks once, a negative value sets no limit. The calling
 * thread drives progress for MOONRAIL_SPIN_US, then sleeps.
 *
 * Return 0 if the task or batch is terminal, or TE_TIMED_OUT if the timeout has
 * passed before. In both cases *status is filled in, unless status is NULL. For
 * a batch it contains the worst status of the tasks, in the order COMPLETED <
 * CANCELED < FAILED < TIMEOUT < WAITING, and the sum of their bytes. Return 1
 * if the engine, batch or task does not exist, if nothing was submitted to the
 * batch, or if the batch is freed or the engine is destroyed during the wait.
 */
int te_wait_task(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
		 int64_t timeout_us, struct transfer_status *status);
int te_wait_batch(transfer_engine_t engine, batch_id_t batch_id,
		  int64_t timeout_us, struct transfer_status *status);

/* Maximum number of batches in one call of te_wait_any. */
#define TE_WAIT_MAX 4096

/*
 * Waits until every task of one of count batches is terminal, as te_wait_batch
 * waits for one batch. Elements that are INVALID_BATCH are skipped.
 *
 * Returns 0 when a batch has ended; *index is the lowest index of such a batch,
 * and *status is filled unless it is NULL. Returns TE_TIMED_OUT if the time has
 * passed. Returns 1 if the engine or one of the batches does not exist, is
 * freed during the wait or has no tasks, if all elements are skipped, or if
 * count is above TE_WAIT_MAX.
 */
int te_wait_any(transfer_engine_t engine, const batch_id_t *batch_ids,
		size_t count, int64_t timeout_us, size_t *index,
		struct transfer_status *status);

/* Fills in *status for a whole batch as te_wait_batch does, but without
 * waiting. Returns 0, or 1 if the batch does not exist or has no tasks. */
int te_batch_status(transfer_engine_t engine, batch_id_t batch_id,
		    struct transfer_status *status);

/*
 * Returns a file descriptor for poll, select and epoll, or a negative code. The
 * file descriptor is readable exactly while te_ended_batches can fetch an ended
 * batch or getNotifsFromEngine can fetch a notification. Every call returns the
 * same file descriptor. The engine owns it and closes it in
 * destroyTransferEngine; the program must not close it. A program that reads
 * from it must call both functions before it sleeps again.
 */
int te_event_fd(transfer_engine_t engine);

/* A batch that has ended: every task submitted to it so far is terminal. */
struct te_ended {
	batch_id_t batch_id;
	int32_t status; /* STATUS_…, as te_batch_status reports
			 * it */
	uint32_t reserved;
	uint64_t transferred_bytes;
	uint64_t cookie;		/* cookie of the batch's first task */
	uint64_t tasks;			/* number of tasks in the batch */
};

/*
 * Fetches the batches that have ended, including those that had ended when
 * te_event_fd was first called. Batches that have been freed are left out. The
 * end of a batch is reported once. If more tasks are submitted to a batch
 * before its end is fetched, that end is not reported; the batch is reported
 * when the new tasks have ended, too. Fills up to *count elements of elem_size
 * bytes each, then sets *count to the number filled. Returns 0 or -1.
 */
int te_ended_batches(transfer_engine_t engine, struct te_ended *ended,
		     size_t elem_size, size_t *count);

/* A task of a batch. */
struct te_task {
	uint64_t cookie; /* cookie of the request; 0 for submitTransfer */
	int32_t status;	 /* STATUS_…, as te_wait_task reports it */
	uint32_t reserved;
	uint64_t transferred_bytes;
};

/*
 * Lists the tasks of a batch from task first on, in the order of their
 * submission, without waiting. Fills up to *count elements of elem_size bytes
 * each, then sets *count to the number filled. Returns 0, or 1 if the engine or
 * batch does not exist or an argument is invalid.
 */
int te_batch_tasks(transfer_engine_t engine, batch_id_t batch_id, size_t first,
		   struct te_task *tasks, size_t elem_size, size_t *count);

/*
 * Removes all tasks of a batch, so that it can be filled again. The id, the
 * size and the event file descriptor remain; the deadline is removed. If
 * te_ended_batches has not fetched the end of the batch yet, the end is no
 * longer reported. Costs less than freeBatchID and allocateBatchID. Returns 0,
 * 4 while a task is not terminal, or 1 if the engine or batch does not exist.
 */
int te_batch_reset(transfer_engine_t engine, batch_id_t batch_id);

/*
 * Returns a file descriptor as te_event_fd does, for one batch: it is readable
 * exactly while the batch has tasks and all of them are terminal. freeBatchID
 * closes it.
 */
int te_batch_event_fd(transfer_engine_t engine, batch_id_t batch_id);

/*
 * Request that a task, or every task of a batch, ends early. A task ends as
 * CANCELED if it does not end with another status before. It becomes terminal
 * soon, but possibly after the call has returned. Return 0, also if the task
 * was terminal already, or 1 if the engine, batch or task does not exist.
 */
int te_cancel_task(transfer_engine_t engine, batch_id_t batch_id,
		   size_t task_id);
int te_cancel_batch(transfer_engine_t engine, batch_id_t batch_id);

/*
 * te_flush waits until all tasks to one segment that were submitted before the
 * call are terminal, te_drain does so for all tasks of the engine. timeout_us
 * is that of te_wait_task. Return 0, TE_TIMED_OUT, 1 if the engine or segment
 * does not exist or the engine is destroyed meanwhile, or 302 (no memory).
 */
int te_flush(transfer_engine_t engine, segment_id_t segment_id,
	     int64_t timeout_us);
int te_drain(transfer_engine_t engine, int64_t timeout_us);

/*
 * Sets the deadline of a batch, in nanoseconds of CLOCK_MONOTONIC; 0 removes
 * it. The deadline replaces an earlier one and applies to tasks submitted
 * later, too. A task that it ends is FAILED, or TIMEOUT if the target could not
 * be fenced. Returns 0 or a positive code.
 */
int te_batch_deadline(transfer_engine_t engine, batch_id_t batch_id,
		      uint64_t deadline_ns);

/* Sets the deadline as te_batch_deadline does, timeout_us microseconds from
 * now. If timeout_us is 0, the tasks end at once. A negative value removes the
 * deadline. */
int te_batch_timeout(transfer_engine_t engine, batch_id_t batch_id,
		     int64_t timeout_us);

/* --- rails, segments, settings -------------------------------------------- */

enum te_rail_state {
	TE_RAIL_UP = 0,
	TE_RAIL_SUSPECT = 1,	/* the rail makes no progress and is being
				 * checked */
	TE_RAIL_DOWN = 2,	/* the rail carries no data */
	TE_RAIL_PROBING = 3	/* the rail is repaired and carries a growing
				 * share */
};

/* Statistics of one rail. Counters start at 0 when the engine is created. */
struct te_rail_stats {
	char name[64];		/* name of the network interface or RDMA
				 * device */
	char provider[32];	/* libfabric provider; "local" for copies */
	char address[96];	/* address of the rail, as text */
	char transport[16];	/* "tcp", "rdma", "shm", "local", … */
	uint32_t state;		/* enum te_rail_state */
	uint32_t lanes;		/* number of open endpoints, including rx
				 * lanes */
	uint64_t tx_bytes;	/* bytes written to peers and completed */
	uint64_t rx_bytes;	/* bytes read from peers and completed */
	uint64_t slices;	/* number of completed slices */
	uint64_t retries;	/* number of slices that were posted again */
	uint64_t errors;	/* number of error completions */
	uint64_t inflight_bytes;	/* bytes posted and not completed */
	uint64_t inflight_max;	/* highest value of inflight_bytes so far */
	uint64_t window;	/* bytes that may be posted at one time */
	double rate;		/* service rate, bytes per second */
	uint64_t state_changes;	/* number of changes of state */
};

/*
 * Fills up to *count elements of elem_size bytes each, then sets *count to the
 * number of rails. If *count is 0, stats may be NULL. Returns 0 or -1.
 */
int te_rail_stats(transfer_engine_t engine, struct te_rail_stats *stats,
		  size_t elem_size, size_t *count);

/* Maximum size of a label in bytes, terminator included. */
#define TE_LABEL_MAX 256

/* A remotely accessible buffer of a segment. */
struct te_buffer {
	uint64_t addr;		/* address in the target process, as
				 * target_offset of a request */
	uint64_t length;	/* bytes */
	char location[64];	/* location of the buffer: "cpu:0", "cuda:1",
				 * "*" */
	char label[TE_LABEL_MAX]; /* label of te_register, or "" */
};

/*
 * Lists the buffers in the descriptor of an open segment. Fills up to *count
 * elements of elem_size bytes each, then sets *count to the number of buffers.
 * Returns 0, or -1 for a stale id or an invalid argument.
 */
int te_segment_buffers(transfer_engine_t engine, segment_id_t segment_id,
		       struct te_buffer *bufs, size_t elem_size,
		       size_t *count);

/*
 * Finds the memory that the target has registered with that label, or all
 * memory that has a label if label is NULL. Uses the descriptor of an open
 * segment, as te_segment_buffers does. Each registration is one element with
 * its whole range, even if the registration is nested or consists of several
 * buffers. The elements are in ascending order of addresses; location is that
 * of the first byte. Several registrations may have the same label. Fills up to
 * *count elements of elem_size bytes each, then sets *count to the number of
 * registrations. Returns 0, -1 for a stale id or an invalid argument, or -3 if
 * no registration has the label. *count is unchanged if the result is not 0.
 */
int te_segment_find(transfer_engine_t engine, segment_id_t segment_id,
		    const char *label, struct te_buffer *bufs, size_t elem_size,
		    size_t *count);

/*
 * Checks that the control channel of the peer with that segment name answers.
 * With a metadata service, the answer must come from the process that has
 * published the name; with P2PHANDSHAKE, where the name is the address, from
 * any engine. The segment need not be open. Blocks for at most timeout_us
 * microseconds, or MC_HANDSHAKE_CONNECT_TIMEOUT if timeout_us is negative. Any
 * thread may call it.
 *
 * Returns 0, or a negative code with the reason in te_last_error: -1 (invalid
 * argument, or a name that is no address), -101 (unknown host), -102 (no
 * connection, or no answer in time), -104 (another process answers, or the
 * shared secrets differ), -200 (the metadata service does not have the name).
 */
int te_probe_peer(transfer_engine_t engine, const char *name,
		  int64_t timeout_us);

/* --- requests that struct transfer_request cannot express ---------------- */

/* te_request.opcode. Values never change. */
enum te_opcode {
	TE_READ = 0,		 /* does what OPCODE_READ does */
	TE_WRITE = 1,		 /* does what OPCODE_WRITE does */
	TE_ATOMIC_ADD = 2,	 /* *remote += operand */
	TE_ATOMIC_FETCH_ADD = 3, /* *remote += operand; returns the old
				  * value */
	TE_ATOMIC_SWAP = 4,	 /* *remote = operand; returns the old
				  * value */
	TE_ATOMIC_CAS = 5	 /* if *remote == compare, *remote =
				  * operand; returns the old value */
};

/*
 * Flag of TE_READ and TE_WRITE: the local ranges need not be registered. They
 * must be host memory that stays mapped and accessible until the task has
 * ended. If all of them are registered, the flag has no effect. Otherwise the
 * bytes pass through registered buffers of the engine, in pieces of at most 64
 * KiB. A write copies each piece out of the caller's memory at some time
 * between the submission and the end of the task. A read copies into the
 * caller's memory before the task has ended, and never afterwards. The engine
 * registers its buffers when they are first used, 6 MiB of them at most.
 */
#define TE_REQ_BOUNCE 1u

/* Maximum number of ranges of one request on either side. */
#define TE_PIECES_MAX 256

/* One range of local memory. The layout is frozen; later versions add new
 * properties to te_request. */
struct te_local {
	void *addr;
	uint64_t length;		/* bytes, not 0 */
};

/* One range of the target's memory. The layout is frozen. */
struct te_remote {
	uint64_t addr;			/* address in the target process */
	uint64_t length;		/* bytes, not 0 */
};

/*
 * One task. Set the struct to zero before filling it in. te_submit does not use
 * the arrays after it has returned. The memory that they describe must stay
 * registered until the task has ended; a source must also keep its content.
 *
 * TE_READ and TE_WRITE move the concatenation of the local ranges from or to
 * the concatenation of the remote ranges. Both sides have the same total
 * length. Each local range lies in registered memory; different ranges may lie
 * in different registered buffers. Ranges on the receiving side may overlap;
 * which bytes remain in an overlap is undefined. transferred_bytes counts the
 * bytes of all ranges.
 *
 * An atomic has one remote range of 4 or 8 bytes, aligned to its length, in
 * memory that the target registered as remotely accessible. It holds an
 * unsigned number in the target's byte order. operand and compare must fit into
 * it. The old value is delivered to the only local range, which has the same
 * length and alignment and lies in registered memory. TE_ATOMIC_ADD has no
 * local range.
 *
 * The target's processor executes atomics, never a NIC, because atomics of two
 * NICs, or of a NIC and a processor, are not atomic with one another. Therefore
 * all atomics of te_submit on an address are atomic with one another, over any
 * rails and from any processes, and with __atomic builtins (C11 atomics) of the
 * target's own threads. Each atomic is sequentially consistent. Plain transfers
 * to the same address are not atomic with them. Atomics need no support by the
 * provider and survive the loss of a rail; each may have to wake the target's
 * progress thread. The calling thread executes the atomics of LOCAL_SEGMENT.
 * Atomics for another process of this host use a rail, because the kernel
 * cannot execute them; without a rail te_submit returns 8.
 *
 * An atomic is executed at most once: it carries a number that the target
 * remembers. Its status is COMPLETED if it was executed, or FAILED if it was
 * not executed. If the target's process has ended, FAILED can also mean that
 * the outcome is unknown. TIMEOUT means that the outcome is unknown and the
 * atomic may still be executed, because the target cannot be reached. The flag
 * TE_ERROR_UNKNOWN of the error record marks every unknown outcome. Code -303
 * in the error record means that the target's version has no atomics.
 *
 * Tasks may be executed in any order. The same is true for the atomics of one
 * batch.
 */
struct te_request {
	uint32_t opcode;		/* enum te_opcode */
	uint32_t flags;			/* 0 or TE_REQ_BOUNCE */
	int32_t target_id;		/* segment_id_t of the target */
	uint32_t local_count;		/* number of elements of local */
	uint32_t remote_count;		/* number of elements of remote */
	uint32_t reserved;		/* must be 0 */
	const struct te_local *local;
	const struct te_remote *remote;
	uint64_t operand;		/* for atomics; otherwise 0 */
	uint64_t compare;		/* for TE_ATOMIC_CAS; otherwise 0 */
	uint64_t cookie;		/* any value; returned by te_batch_tasks
					 * and te_ended_batches */
};

/*
 * Adds count tasks to a batch, all of them or none. They are tasks of the batch
 * like those of submitTransfer. elem_size is the size of one element, which
 * must include all members up to compare. An element larger than this library's
 * struct is accepted if all bytes beyond it are 0. flags must be 0. If count is
 * 0, reqs is ignored and nothing is added.
 *
 * Returns 0, or a positive code; then no task was added and te_last_error names
 * the request and the fault:
 *
 *	1	the engine, batch or target does not exist; unknown opcode or
 *		flag; no range, or too many; length 0; a range that wraps;
 *		sides of different length; unaligned atomic; a field that the
 *		opcode does not use is not 0
 *	2	no room in the batch, or too many tasks queued
 *	3	a local range outside registered memory; or in GPU memory, if
 *		there are several ranges or it is the result of an atomic. With
 *		TE_REQ_BOUNCE: a local range that is not mapped, or in GPU
 *		memory; or a read into a range of which only a part is
 *		registered, or that is registered for reading only
 *	8	no transport or rail reaches the target; or several ranges or an
 *		atomic for files or GPU memory; or TE_REQ_BOUNCE for files, for
 *		GPU memory of this process, or for GPU memory of the target that
 *		the rails cannot access
 *	9	the deadline of the batch has passed
 *	302	no memory
 */
int te_submit(transfer_engine_t engine, batch_id_t batch_id,
	      const struct te_request *reqs, size_t elem_size, size_t count,
	      uint64_t flags);

/* --- blocking transfers -------------------------------------------------- */

/*
 * Read from or write to the memory of a segment and return when the transfer
 * has ended. local lies in registered memory; remote is an address in the
 * target process, or an offset in a file segment. timeout_us is in
 * microseconds; a negative value sets no limit other than MC_SLICE_TIMEOUT. The
 * calling thread drives progress for MOONRAIL_SPIN_US, then sleeps.
 *
 * When the timeout has passed, the call ends the transfer as a deadline does,
 * and returns when it has ended. That is usually at once. If the target does
 * not answer, it is after the attempts to fence the target (MOONRAIL_FENCE_MS).
 * File operations of the kernel may take longer. So no byte of the transfer
 * moves after the call has returned, and the caller may reuse the local memory,
 * with two exceptions. (1) If the target could not be fenced, the record of
 * te_last_error has TE_ERROR_UNFENCED, and a write may still land at the
 * target. (2) If the engine is destroyed during the call, the local memory may
 * be reused only after destroyTransferEngine has returned.
 *
 * Return 0 if all bytes are in place; TE_TIMED_OUT if the timeout ended the
 * transfer; another code of submitTransfer if the request is refused; or the
 * positive value of the code in the transfer's error record. After an error it
 * is unknown which bytes have moved, and te_last_error has the record.
 */
int te_read(transfer_engine_t engine, segment_id_t segment_id, void *local,
	    uint64_t remote, uint64_t length, int64_t timeout_us);
int te_write(transfer_engine_t engine, segment_id_t segment_id,
	     const void *local, uint64_t remote, uint64_t length,
	     int64_t timeout_us);

/*
 * te_readv and te_writev do what te_read and te_write do, for lists of ranges.
 * They move the concatenation of the remote ranges to that of the local ranges,
 * or the other way round. Both sides have the same total length. The number of
 * ranges is not limited by TE_PIECES_MAX; each part that is contiguous on both
 * sides is one task. A call has at most 1048576 tasks. If several parts fail,
 * the error is that of the worst status.
 */
int te_readv(transfer_engine_t engine, segment_id_t segment_id,
	     const struct te_local *local, size_t local_count,
	     const struct te_remote *remote, size_t remote_count,
	     int64_t timeout_us);
int te_writev(transfer_engine_t engine, segment_id_t segment_id,
	      const struct te_local *local, size_t local_count,
	      const struct te_remote *remote, size_t remote_count,
	      int64_t timeout_us);

/*
 * Submits requests as te_submit does, and waits until all of them have ended,
 * as te_read waits. Unlike te_read and te_write, it also takes unregistered
 * local memory (TE_REQ_BOUNCE), atomics, and requests to several segments.
 * elem_size and flags are those of te_submit. count is at most 1048576. The
 * cookies of the requests are ignored.
 *
 * timeout_us has the meaning and the two exceptions that te_read states. An
 * atomic that the timeout has ended may still be executed if the record of
 * te_last_error has TE_ERROR_UNKNOWN.
 *
 * Returns 0 if all requests are COMPLETED or count is 0; otherwise a code of
 * te_submit (no request was started), TE_TIMED_OUT, or the positive value of
 * the code in the error record of the first request with the worst status. It
 * is then unknown which of the others have completed; te_submit and
 * te_batch_tasks report each of them.
 */
int te_submit_wait(transfer_engine_t engine, const struct te_request *reqs,
		   size_t elem_size, size_t count, uint64_t flags,
		   int64_t timeout_us);

/* --- binary notifications ------------------------------------------------ */

/*
 * Sends a notification with any bytes to the engine of a segment, as
 * genNotifyInEngine sends strings: it is acknowledged, arrives at most once and
 * in order with the other binary notifications to that engine. name and data
 * have at most 1 MiB together; data may be NULL if length is 0. Returns 0 or a
 * code of genNotifyInEngine.
 */
int te_notify(transfer_engine_t engine, segment_id_t segment_id,
	      const char *name, const void *data, uint64_t length);

/* A binary notification. */
struct te_notification {
	char *name; /* terminated string */
	void *data; /* length bytes, never NULL */
	uint64_t length;
};

/*
 * Fetches the oldest binary notifications. Binary and text notifications have
 * separate queues; getNotifsFromEngine returns only the text ones. Fills up to
 * *count elements of elem_size bytes each, then sets *count to the number
 * filled. The caller frees name and data with te_notify_release. From the first
 * call on, the file descriptor of te_event_fd is also readable while there is
 * a binary notification. Returns 0 or -1.
 */
int te_notify_fetch(transfer_engine_t engine, struct te_notification *notes,
		    size_t elem_size, size_t *count);

/* Frees name and data of count elements and sets them to NULL. Does not free
 * the array. */
void te_notify_release(struct te_notification *notes, size_t elem_size,
		       size_t count);

/*
 * Writes the settings in force to buf, one line "NAME=value source" each,
 * truncated to len bytes including the terminator. If len is 0, buf may be
 * NULL. Returns the length of the complete text without its terminator, or -1.
 */
int te_settings_text(transfer_engine_t engine, char *buf, size_t len);

/*
 * Writes the topology that the engine uses to buf as JSON, an object that maps
 * each location to [[preferred rails], [other rails]], truncated to len bytes
 * including the terminator. Returns the length of the complete text without its
 * terminator, -1, or -302 if memory is short. An engine without a transport has
 * the topology {}.
 */
int te_topology_text(transfer_engine_t engine, char *buf, size_t len);

/* --- prepared lists ------------------------------------------------------- */

/*
 * One piece of a prepared list: length bytes of local memory and as many bytes
 * of the target's memory. The layout is frozen.
 */
struct te_piece {
	void *local;	 /* local address, in registered memory */
	uint64_t remote; /* address in the target process */
	uint64_t length; /* bytes, not 0 */
};

/* A prepared list. 0 is never valid. */
typedef uint64_t te_prepared_t;

/*
 * Prepares a list of pieces, of which te_submit_prepared submits any subset any
 * number of times. The number of pieces is not limited by TE_PIECES_MAX. opcode
 * is TE_READ or TE_WRITE. flags must be 0. The array is copied. The list does
 * not keep the segment open and registers nothing. Freed by te_prepared_release
 * or with the engine.
 *
 * Checks that each piece lies in registered memory of this process, and in
 * memory that the segment's descriptor lists, and that a transport reaches the
 * segment. Communicates with no other process. If the target has registered the
 * memory after its descriptor was read, call syncSegmentCache first.
 *
 * Returns 0 and sets *list. Otherwise returns a positive code and leaves *list
 * unchanged; te_last_error names the piece and the fault:
 *
 *	1	the engine or segment does not exist; an argument is NULL;
 *		unknown opcode or flag; no piece, or more than 2^30; length 0; a
 *		range that wraps
 *	2	too many prepared lists
 *	3	memory that is not registered in this process, or not in the
 *		segment's descriptor
 *	8	no transport reaches the segment; files; GPU memory
 *	302	no memory
 */
int te_prepare(transfer_engine_t engine, segment_id_t segment_id,
	       uint32_t opcode, const struct te_piece *pieces, size_t count,
	       uint64_t flags, te_prepared_t *list);

/* Bits of *checked of te_submit_prepared. */
#define TE_PREPARED_CHECKED 1u /* the pieces were checked again */
/* Another process has replaced the target process since the last check. */
#define TE_PREPARED_RESTARTED 2u

/*
 * Adds one task to a batch: the pieces of the list with those indices. The task
 * is COMPLETED when the bytes of all these pieces are in place. indices may
 * contain an index several times. If indices is NULL, count must be 0, and the
 * task moves all pieces. If indices is not NULL and count is 0, the call adds
 * nothing and returns 0. cookie is that of te_request. flags must be 0.
 * Any number of threads may submit the same list at the same time. The pieces
 * of a task may be moved in any order.
 *
 * If the descriptor of the segment has changed since the last check, for
 * example because the target has restarted, the pieces are checked against the
 * new one. checked may be NULL. Otherwise *checked is set to 0 or to bits of
 * TE_PREPARED_…, also if the check refuses the submission; it is unchanged if
 * engine, flags or list is invalid. Local memory is checked at each submission.
 *
 * Returns 0, or a positive code; then no task was added and te_last_error names
 * the piece and the fault:
 *
 *	1	the engine, batch, list or segment does not exist; an invalid
 *		index or flag; more than 2^30 pieces; the total length overflows
 *		64 bits
 *	2	no room in the batch, or too many tasks queued
 *	3	memory that is no longer registered in this process, or no
 *		longer in the segment's descriptor
 *	8	no transport or rail reaches the target any longer
 *	9	the deadline of the batch has passed
 *	302	no memory
 */
int te_submit_prepared(transfer_engine_t engine, batch_id_t batch_id,
		       te_prepared_t list, const uint32_t *indices,
		       size_t count, uint64_t cookie, uint64_t flags,
		       uint32_t *checked);

/*
 * Frees a prepared list. Tasks that it has added are not affected. Returns 0,
 * or 1 if the engine or the list does not exist.
 */
int te_prepared_release(transfer_engine_t engine, te_prepared_t list);

/* --- objects: descriptors as blobs ---------------------------------------- */

/* Maximum length of a blob, bytes. */
#define TE_BLOB_MAX ((UINT64_C(64) << 20) + 64)

/*
 * Writes the segment descriptor of this engine to buf as a blob, for
 * applications that exchange addresses themselves. Any process, of any byte
 * order, can pass the blob to te_segment_import. The blob contains the name and
 * incarnation of the engine, its rails and its remotely accessible buffers, but
 * no memory keys; for GPU memory it only says whether keys exist. *size is the
 * size of buf on input and the size of the blob on output. If buf is NULL and
 * *size is 0, the call only sets *size. flags must be 0. Returns 0, or -1 for
 * an invalid argument. Also returns -1 if *size is too small, after setting
 * *size to the size needed.
 */
int te_segment_export(transfer_engine_t engine, uint64_t flags, void *buf,
		      size_t *size);

/*
 * Opens the segment that a blob describes, as openSegment opens a segment by
 * its name, but without any communication. If a segment with this name is open,
 * it keeps its id and gets one more reference. The blob of this engine itself
 * opens LOCAL_SEGMENT. A blob that is older than the known descriptor changes
 * nothing. If a task fails because its memory was unregistered after the
 * export, its error record has TE_ERROR_STALE. flags must be 0. Returns 0, or
 * -1 (invalid argument), -2 (too many open segments), -104 (no blob, or a
 * damaged one), -202 (the process of the blob has ended).
 */
int te_segment_import(transfer_engine_t engine, const void *blob, size_t size,
		      uint64_t flags, segment_id_t *id);

/* --- objects: paths and traffic ------------------------------------------- */

enum te_path_kind {
	TE_PATH_FABRIC = 0,  /* from a local rail to a rail of the peer */
	TE_PATH_PROCESS = 1, /* copies to another process of this host */
	TE_PATH_MEMCPY = 2,  /* copies inside this process */
	TE_PATH_FILE = 3     /* transfers to and from the files of a file
			      * segment */
};

enum te_path_rank {
	TE_PATH_NEAR = 0, /* the local rail is preferred for the location */
	TE_PATH_FAR = 1,  /* the local rail is used if the preferred ones are
			   * full or down */
	TE_PATH_OFF = 2	  /* the local rail is not used for the location */
};

/* te_path.flags: the local rail is connected to the remote rail; always set for
 * copies and files */
#define TE_PATH_CONNECTED 1u

struct te_path {
	uint32_t kind;		/* enum te_path_kind */
	uint32_t flags;		/* bits TE_PATH_… */
	uint32_t rank;		/* enum te_path_rank */
	int32_t numa_node;	/* NUMA node of the local rail; -1: unknown */
	char transport[16];	/* "tcp", "rdma", "shm", "local", "nvmeof" */
	char provider[32];	/* libfabric provider; for copies inside this
				 * process "memcpy"; for copies to another
				 * process "process_vm", or
				 * "memcpy,process_vm" if the peer has memory
				 * from te_alloc that can be mapped, followed by
				 * ",cuda_ipc" while GPU memory of the peer is
				 * mapped; for files "io_uring" or "threads" */
	char rail[64];		/* local rail */
	char address[96];	/* address of the local rail, as text */
	char remote_rail[64];	/* rail of the peer; "" before its first
				 * answer */
	char remote_address[96];
	char why_not_local[64];	/* why copies inside this host are not possible
				 * although they are allowed; "" if they are
				 * possible or not allowed */
	uint32_t connections;	/* number of established connections from the
				 * local rail to the remote rail; 0 for copies
				 * and files */
};

/*
 * Lists the paths to an open segment: one element if copies or files are used,
 * else one for each local rail that reaches a rail of the peer. The ranks are
 * those for memory at location; NULL means any location. The same information
 * is logged at level info when it changes. Fills paths and *count as
 * te_rail_stats does. Returns 0, or -1 for a stale id or an invalid argument.
 */
int te_segment_paths(transfer_engine_t engine, segment_id_t segment_id,
		     const char *location, struct te_path *paths,
		     size_t elem_size, size_t *count);

enum te_peer_state {
	TE_PEER_NEW = 0, /* the peer has not answered yet */
	TE_PEER_READY = 1,
	TE_PEER_FENCING = 2, /* after a failure, the initiator waits for a
			      * fence */
	TE_PEER_GONE = 3     /* the process has ended; open the segment
			      * again */
};

/* Statistics of one peer. Counters start at 0 when a segment of the peer's
 * process is first opened. */
struct te_peer_stats {
	char name[96];
	uint64_t incarnation;
	uint32_t state;		/* enum te_peer_state */
	uint32_t queued;	/* number of tasks that wait for a rail */
	uint64_t tx_bytes;	/* bytes written to the peer and completed */
	uint64_t rx_bytes;	/* bytes read from the peer and completed */
	uint64_t completed;	/* completed, failed, timeout and canceled:
				 * number of tasks that have ended with this
				 * status */
	uint64_t failed;
	uint64_t timeout;
	uint64_t canceled;
	uint64_t retries;	/* number of slices that were posted again */
	uint64_t fences;	/* number of fences that were requested from the
				 * peer */
	uint64_t last_ns;	/* time of the last sign of life, ns,
				 * CLOCK_MONOTONIC; 0: none */
};

/*
 * Fills *stats, up to size bytes, for an open segment or LOCAL_SEGMENT. Returns
 * 0, or -1 for a stale id or an invalid argument.
 */
int te_peer_stats(transfer_engine_t engine, segment_id_t segment_id,
		  struct te_peer_stats *stats, size_t size);

/* --- objects: memory ------------------------------------------------------ */

/* te_registration.flags */
#define TE_REG_PRIVATE 1u	/* not remotely accessible */
/* Host memory into which neither peers nor this engine may transfer. */
#define TE_REG_READ_ONLY 2u
/*
 * The range may lie inside a registered buffer. It is then a nested
 * registration: a counted reference to that buffer, which cannot be
 * unregistered before it. The range has the access and the location of the
 * buffer. Without such a buffer, the flag has no effect.
 */
#define TE_REG_NESTED 4u

/* A buffer to be registered. Set the struct to zero before filling it in. */
struct te_registration {
	void *addr;
	uint64_t length;	/* bytes, not 0 */
	const char *location;	/* location, as for registerLocalMemory; NULL:
				 * "*" */
	uint64_t flags;		/* bits TE_REG_… */
	const char *label;	/* published name of the range, such as that of
				 * a tensor: valid UTF-8 without control
				 * characters, less than TE_LABEL_MAX bytes;
				 * NULL or "": no label. The library copies the
				 * text. */
};

/*
 * Registers count buffers, all or none, as registerLocalMemoryBatch does, but
 * each with its own location, access and label. Buffers with TE_REG_NESTED are
 * registered after the others, so one call may register a buffer and ranges
 * inside it. elem_size is the size of one element; bytes beyond this library's
 * struct must be 0. te_unregister ends a registration; unregisterLocalMemory
 * ends one that is not nested. Returns 0 or a code of registerLocalMemory.
 */
int te_register(transfer_engine_t engine, const struct te_registration *entries,
		size_t elem_size, size_t count);

/*
 * Unregisters count registrations, which have the addr, the length and the
 * label of the entries. location and the access flags are ignored. An entry
 * with TE_REG_NESTED drops one reference of a nested registration or, if there
 * is none, unregisters the buffer. An entry without TE_REG_NESTED unregisters
 * the buffer. Nested registrations are dropped first, in any order of the
 * entries.
 *
 * Dropping a nested registration stops no transfer: peers can still access the
 * buffer around it. The buffer is unregistered with the guarantee of
 * unregisterLocalMemory. Continues after an error. Returns 0 or the first
 * error: a code of unregisterLocalMemory, -3 if no registration has that range
 * and label, or -4 if nested registrations of the buffer exist.
 */
int te_unregister(transfer_engine_t engine,
		  const struct te_registration *entries, size_t elem_size,
		  size_t count);

/* Flags of te_alloc. */
#define TE_ALLOC_PRIVATE 1u	/* not remotely accessible */
#define TE_ALLOC_SMALL_PAGES 2u	/* use no huge pages */
#define TE_ALLOC_HUGE_PAGES 4u	/* use huge pages of the kernel's pool; fail if
				 * there are not enough */
#define TE_ALLOC_STRICT 8u	/* fail if a part of the memory would not be on
				 * the requested node */

enum te_page_kind {
	TE_PAGES_SMALL = 0,
	TE_PAGES_TRANSPARENT = 1, /* transparent huge pages, at least in part */
	TE_PAGES_HUGE = 2	/* huge pages of the kernel's pool */
};

/* Memory that te_alloc has allocated. */
struct te_memory {
	uint64_t addr;
	uint64_t size;		/* number of bytes that were requested and
				 * registered */
	uint64_t mapped;	/* bytes of memory that the allocation occupies;
				 * at least size */
	uint64_t page_size;	/* page size, bytes; of the largest page if
				 * sizes differ */
	uint32_t pages;		/* enum te_page_kind */
	int32_t numa_node;	/* NUMA node of the memory; -1: several nodes,
				 * or unknown */
	char location[64];	/* location of the registration: "cpu:0",
				 * "cuda:1", "*" */
};

/*
 * Allocates memory at location and registers it. location is a NUMA node
 * ("cpu:1"), a GPU ("cuda:0"), or host memory on any node (NULL or "*"). The
 * memory is zeroed. Host memory uses the largest pages available, and all its
 * pages are populated. For GPU memory the fields about pages are 0. *memory is
 * filled up to memory_size bytes, which must include addr. Freed by te_free or
 * with the engine.
 *
 * Returns 0, or -1 (invalid argument), -6 (no such GPU, or no driver in this
 * process), -300 (no such node, or with TE_ALLOC_STRICT not all of the memory
 * is on it), -302 (no memory or no huge pages), -303 (location is neither a
 * NUMA node nor a GPU), or a code of registerLocalMemory.
 */
int te_alloc(transfer_engine_t engine, size_t size, const char *location,
	     uint64_t flags, struct te_memory *memory, size_t memory_size);

/*
 * Unregisters memory of te_alloc with the guarantee of unregisterLocalMemory,
 * then frees it. Returns 0, or -3 (addr is not from te_alloc) or -4 (still in
 * use); on an error nothing has changed.
 */
int te_free(transfer_engine_t engine, void *addr);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MOONRAIL_H */
