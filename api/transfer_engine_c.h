/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TRANSFER_ENGINE_C_H
#define TRANSFER_ENGINE_C_H

/*
 * The Mooncake Transfer Engine API as moonrail implements it. Programs written
 * for the original header compile and link unchanged. moonrail.h declares the
 * extensions.
 *
 * Threads: every call may be made from any thread at any time, except
 * destroyTransferEngine, which must be the last call on its engine. No call may
 * be made from a signal handler. After fork(), calls of the child on an
 * inherited engine return an error.
 *
 * The library does not keep strings and arrays that are passed to a call after
 * the call has returned, unless stated otherwise. The memory given to
 * registerLocalMemory belongs to the caller. It must stay mapped until
 * unregisterLocalMemory has returned 0.
 *
 * There are two families of return codes. submitTransfer,
 * submitTransferWithNotify, getTransferStatus and freeBatchID return 0 or a
 * positive code (second column). All other calls return 0 or a negative code
 * (first column).
 *
 *	invalid argument		  -1	  1
 *	too many requests		  -2	  2
 *	address not registered		  -3	  3
 *	batch or memory busy		  -4	  4
 *	device not found		  -6	  6
 *	address overlaps a registered one -7	  7
 *	unsupported transport		  -	  8
 *	DNS, socket, malformed JSON,
 *	handshake rejected		-101…-104 101…104
 *	metadata, endpoint, context	-200…-202 200…202
 *	NUMA, clock, memory		-300…-302 300…302
 *	not implemented			-303	  999
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* exports the functions declared below; all other symbols of the library are
 * hidden */
#pragma GCC visibility push(default)

typedef void *transfer_engine_t;
typedef void *transport_t;

typedef int32_t segment_handle_t;
typedef int32_t segment_id_t;
typedef uint64_t batch_id_t;

/* The segment of the engine itself. */
#define LOCAL_SEGMENT ((segment_id_t)0)
#define INVALID_BATCH ((batch_id_t)UINT64_MAX)

#define OPCODE_READ 0
#define OPCODE_WRITE 1

/*
 * Values of transfer_status.status. CANCELED and higher values are terminal:
 * the status does not change any more. getTransferStatus reports TIMEOUT only
 * if MC_SLICE_TIMEOUT is set; otherwise it reports FAILED instead.
 */
#define STATUS_WAITING 0	/* the task is queued or in progress */
#define STATUS_PENDING 1	/* not reported by this library */
#define STATUS_INVALID 2	/* not reported by this library */
#define STATUS_CANCELED 3	/* the task was cancelled, and no further byte
				 * is written */
#define STATUS_COMPLETED 4	/* all bytes have arrived */
#define STATUS_TIMEOUT 5	/* the task has ended, but the target could not
				 * be fenced, so bytes may still be written */
#define STATUS_FAILED 6		/* the task has failed, and no further byte is
				 * written unless the error record has
				 * TE_ERROR_UNFENCED */

struct transfer_request {
	int opcode;		/* OPCODE_READ or OPCODE_WRITE */
	void *source;		/* local address in registered memory */
	segment_id_t target_id;	/* id that openSegment has returned, or
				 * LOCAL_SEGMENT */
	uint64_t target_offset;	/* memory: address in the target process;
				 * files: byte offset in the segment */
	uint64_t length;	/* bytes, at least 1 */
};
typedef struct transfer_request transfer_request_t;

struct transfer_status {
	int status;			/* STATUS_… */
	uint64_t transferred_bytes;	/* lower bound of the number of bytes
					 * that have arrived */
};
typedef struct transfer_status transfer_status_t;

struct buffer_entry {
	void *addr;
	size_t length;		/* bytes */
};
typedef struct buffer_entry buffer_entry_t;

struct notify_msg {
	char *name;		/* terminated string */
	char *msg;		/* terminated string */
};
typedef struct notify_msg notify_msg_t;

struct nic_load_stat {
	char device_name[64];
	uint64_t inflight_bytes;	/* bytes posted and not completed */
	double ewma_bandwidth_bps;	/* service rate, bytes per second */
};
typedef struct nic_load_stat nic_load_stat_t;

struct segment_desc {
	int type;		/* 0: memory, 1: files */
	union {
		struct {
			void *addr;
			uint64_t size;
			const char *location;
		} rdma;
		struct {
			const char *file_path;
			const char *subsystem_name;
			const char *proto;
			const char *ip;
			uint64_t port;
		} nvmeof;
	} desc_;
};
typedef struct segment_desc segment_desc_t;

/* --- engine -------------------------------------------------------------- */

/*
 * Creates an engine and returns it, or NULL after an error, which is logged.
 * The caller owns the engine and frees it with destroyTransferEngine.
 *
 *	metadata_conn_string	"P2PHANDSHAKE" (no server), or the address of a
 *				metadata server, such as
 *				"zookeeper://host:port[,host:port…][/chroot]";
 *				see moonrail(7)
 *	local_server_name	the segment name of this process; with
 *				P2PHANDSHAKE only its host is used, and the name
 *				becomes "host:port" with the port to which the
 *				control channel is bound (getLocalIpAndPort)
 *	ip_or_host_name		ignored
 *	rpc_port		ignored
 *	auto_discover		1: discover the topology and install the
 *				matching transports; 0: the caller installs them
 */
transfer_engine_t createTransferEngine(const char *metadata_conn_string,
				       const char *local_server_name,
				       const char *ip_or_host_name,
				       uint64_t rpc_port, int auto_discover);

/*
 * Withdraws the published descriptor, waits for the submitted tasks for at most
 * MC_SLICE_TIMEOUT, stops the engine's threads and frees the engine. Blocks.
 * NULL is ignored. A second call for the same handle is ignored, unless a new
 * engine has been created at the same address.
 */
void destroyTransferEngine(transfer_engine_t engine);

/* Discovers the NICs and their distances to memory. Returns 0 or a negative
 * code. */
int discoverTopology(transfer_engine_t engine);

/*
 * Writes "ip:port" of the control channel to buf_out, with an IPv6 address in
 * brackets, truncated to buf_len bytes including the terminator. Returns 0 or
 * -1.
 */
int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);

/*
 * Installs a transport: "tcp", "rdma", "shm", "local" or "nvmeof"; "efa" and
 * "cxi" mean "rdma" with that libfabric provider. args is NULL or an array that
 * ends with NULL, whose first element is an optional topology in JSON. Returns
 * a handle that the engine owns, or NULL after an error. If the transport is
 * installed already, the handle is the same as before.
 */
transport_t installTransport(transfer_engine_t engine, const char *proto,
			     void **args);

/*
 * Waits for the tasks of a transport, then uninstalls it. Returns 0 or a
 * negative code. If no transport of that name is installed, returns 0 and sets
 * the record of te_last_error.
 */
int uninstallTransport(transfer_engine_t engine, const char *proto);

/* --- segments ------------------------------------------------------------ */

/*
 * Opens a segment and returns its id, which is at least 0. The same name always
 * has the same id; the engine's own name has id 0. Leading slashes of the name
 * are dropped. Returns -1 if the name is empty, is not published, or its
 * descriptor cannot be read. Blocks for at most MC_HANDSHAKE_CONNECT_TIMEOUT.
 */
segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);

/* Opens a segment as openSegment does, but fetches its descriptor even if it is
 * in the cache. */
segment_id_t openSegmentNoCache(transfer_engine_t engine,
				const char *segment_name);

/*
 * Releases one reference, which openSegment has taken. After the last reference
 * is released, the id is stale; tasks in progress continue. Returns 0, or -1 if
 * engine is NULL or stale. If the id is not open, returns 0 and sets the record
 * of te_last_error.
 */
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);

/* Removes a segment name from the cache, so that the next openSegment fetches
 * the descriptor again. Returns 0, even if the name is not cached, or -1 if the
 * name is empty. */
int removeLocalSegment(transfer_engine_t engine, const char *segment_name);

/* Fetches the descriptors of all open segments again. Returns 0 or the code of
 * the first error. */
int syncSegmentCache(transfer_engine_t engine);

/*
 * Connects every rail pair with the process of a segment, for any provider, not
 * only EFA. Pairs that are connected already are left alone. Returns 0 or a
 * negative code.
 */
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);

/* --- memory -------------------------------------------------------------- */

/*
 * Registers [addr, addr + length) with every transport that is installed now or
 * later. location is "cpu:N", "cuda:N", "*" or "segments:<page>:<n0>,…"; NULL
 * means "*". If remote_accessible is 0, the memory is not published. Returns 0,
 * or -1 (length 0, or a range that wraps or is not mapped readable), -7 (the
 * range overlaps registered memory) or another negative code. After an error
 * nothing is registered.
 */
int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length,
			const char *location, int remote_accessible);

/*
 * Unregisters memory. Once it has returned 0, no peer can read or write the
 * memory any more: the call removes the memory from the descriptor, requests
 * the connected initiators to drain, and fences those that do not answer. It
 * waits for local tasks that use the memory for at most MC_SLICE_TIMEOUT. If
 * some are still running then, returns -4 and the memory stays registered.
 * Returns -3 if addr is not the start of registered memory.
 */
int unregisterLocalMemory(transfer_engine_t engine, void *addr);

/* Registers several remotely accessible buffers, the shortest first, and
 * publishes them together. After an error, none of them is registered. Returns
 * 0 or a code of registerLocalMemory. */
int registerLocalMemoryBatch(transfer_engine_t engine,
			     buffer_entry_t *buffer_list, size_t buffer_len,
			     const char *location);

/* Unregisters several buffers. Continues after an error. Returns 0 or the code
 * of the first error. */
int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list,
			       size_t addr_len);

/* --- transfers ----------------------------------------------------------- */

/*
 * Allocates a batch, which is a list of at most batch_size tasks, and returns
 * its id. An id contains a generation, so that the id of a freed batch is
 * refused. Returns INVALID_BATCH if batch_size is above 1048576 or memory is
 * short. A batch of size 0 is valid but accepts no requests.
 */
batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);

/*
 * Queues count requests as the next tasks of the batch, numbered in order.
 * Returns 0, or a positive code; then no request of this call was queued. If
 * count is 0, entries is ignored. Never blocks. The memory at source must stay
 * registered and, for OPCODE_WRITE, unchanged until the task is terminal.
 */
int submitTransfer(transfer_engine_t engine, batch_id_t batch_id,
		   struct transfer_request *entries, size_t count);

/*
 * Queues requests as submitTransfer does. When all requests of this call are
 * COMPLETED, sends notify_msg to the target of the first request. The
 * notification arrives at most once. If a request does not complete, or count
 * is 0, nothing is sent. Neither the call nor the status of a task waits for
 * the notification. Also returns 2 if too many notifications are queued for
 * that target.
 */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
			     struct transfer_request *entries, size_t count,
			     notify_msg_t notify_msg);

/*
 * Fills *status for one task. While the task is not terminal, the call drives
 * progress. Never blocks. Returns 0 or a positive code. A terminal task is
 * COMPLETED, CANCELED or FAILED; the record of te_task_error says whether the
 * target could be fenced. An unfenced task is TIMEOUT instead of FAILED only if
 * MC_SLICE_TIMEOUT is set in the environment or for the engine.
 */
int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id,
		      size_t task_id, struct transfer_status *status);

/* Frees a batch. Returns 0, 4 while a task is not terminal, or 1 if the batch
 * does not exist. */
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* --- notifications ------------------------------------------------------- */

/*
 * Returns the received notifications as an array of *size elements, which the
 * caller frees with freeNotifsMsgBuf, or NULL with *size 0 if there are none.
 * Each notification arrives at most once; those of one sender arrive in order.
 * name and msg of a notification have at most 1 MiB together, without
 * terminators. While MOONRAIL_MAX_NOTIFIES notifications or
 * MOONRAIL_NOTIFY_BYTES bytes wait to be fetched, senders wait.
 */
notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);

/* Frees an array of getNotifsFromEngine; size is its number of elements. NULL
 * is ignored. Returns 0. */
int freeNotifsMsgBuf(notify_msg_t *msg, int size);

/*
 * Sends a notification and waits until the peer's library has acknowledged it,
 * for at most MC_HANDSHAKE_CONNECT_TIMEOUT. For LOCAL_SEGMENT the call does not
 * wait. Returns 0 or a negative code. After an error the notification is not
 * sent again. If the record of te_last_error then has TE_ERROR_UNKNOWN, the
 * notification may have arrived or may still arrive once; without that flag it
 * never arrives.
 */
int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id,
		      notify_msg_t notify_msg);

/* --- observation --------------------------------------------------------- */

/*
 * Fills in up to *count elements, one for each rail, then sets *count to the
 * number of rails. Returns 0, or -1 if a pointer is NULL, even if *count is 0.
 */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats,
		    size_t *count);

/*
 * Writes the local rails and the topology to buf, as text if json is 0, else as
 * JSON, truncated to len bytes including the terminator. Returns 0 or a
 * negative code.
 */
int showLinks(transfer_engine_t engine, char *buf, size_t len, int json);

/*
 * Makes SIGTERM, SIGINT and a normal exit of the process shut the engine down:
 * its descriptor is withdrawn and its tasks are drained. After a signal the
 * process ends with status 128 + signal. The library installs signal handlers
 * only in this call; they replace earlier ones. Returns 0 or a negative code.
 */
int enableGracefulShutdown(transfer_engine_t engine);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* TRANSFER_ENGINE_C_H */
