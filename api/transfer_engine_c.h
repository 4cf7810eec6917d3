/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TRANSFER_ENGINE_C_H
#define TRANSFER_ENGINE_C_H

/*
 * The Mooncake Transfer Engine API, served by moonrail. Programs written for
 * that header compile and link unchanged. What goes beyond it is in
 * moonrail.h.
 *
 * Threads: every call may be made from any thread at any time, but for
 * destroyTransferEngine, which must be the last call on its engine. No call
 * may be made from a signal handler. After fork() the child's calls on an
 * inherited engine return an error.
 *
 * Strings and arrays passed in are never kept after a call returns, unless
 * said otherwise. Memory ranges given to registerLocalMemory stay the
 * caller's; they must stay mapped until unregisterLocalMemory returned 0.
 *
 * Two families of codes: set-up calls return 0 or a negative value,
 * submitTransfer, submitTransferWithNotify, getTransferStatus and freeBatchID
 * return 0 or a positive one:
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

/* The library is built with everything else hidden. */
#pragma GCC visibility push(default)

typedef void *transfer_engine_t;
typedef void *transport_t;

typedef int32_t segment_handle_t;
typedef int32_t segment_id_t;
typedef uint64_t batch_id_t;

/* The caller's own segment. */
#define LOCAL_SEGMENT ((segment_id_t)0)
#define INVALID_BATCH ((batch_id_t)UINT64_MAX)

#define OPCODE_READ 0
#define OPCODE_WRITE 1

/*
 * Values of transfer_status.status; CANCELED and above are terminal and never
 * change. getTransferStatus reports TIMEOUT only if MC_SLICE_TIMEOUT is set,
 * and FAILED instead if not.
 */
#define STATUS_WAITING 0	/* queued or in progress */
#define STATUS_PENDING 1	/* not reported by this library */
#define STATUS_INVALID 2	/* not reported by this library */
#define STATUS_CANCELED 3	/* cancelled; nothing of it lands any more */
#define STATUS_COMPLETED 4	/* every byte is in place at the target */
#define STATUS_TIMEOUT 5	/* ended, but the target could not be fenced */
#define STATUS_FAILED 6		/* ended; fenced unless the error says otherwise */

struct transfer_request {
	int opcode;		/* OPCODE_READ or OPCODE_WRITE */
	void *source;		/* local address, inside registered memory */
	segment_id_t target_id;	/* from openSegment, or LOCAL_SEGMENT */
	uint64_t target_offset;	/* memory: absolute remote address; files:
				 * byte offset in the segment */
	uint64_t length;	/* bytes, 1 and up */
};
typedef struct transfer_request transfer_request_t;

struct transfer_status {
	int status;			/* STATUS_… */
	uint64_t transferred_bytes;	/* lower bound of what is in place */
};
typedef struct transfer_status transfer_status_t;

struct buffer_entry {
	void *addr;
	size_t length;		/* bytes */
};
typedef struct buffer_entry buffer_entry_t;

struct notify_msg {
	char *name;		/* terminated */
	char *msg;		/* terminated */
};
typedef struct notify_msg notify_msg_t;

struct nic_load_stat {
	char device_name[64];
	uint64_t inflight_bytes;
	double ewma_bandwidth_bps;	/* bytes per second, service rate */
};
typedef struct nic_load_stat nic_load_stat_t;

struct segment_desc {
	int type;		/* 0 memory, 1 files */
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
 * Creates an engine. metadata_conn_string: "P2PHANDSHAKE" (no server) or
 * "zookeeper://host:port[,host:port…][/chroot]". local_server_name: this
 * process's segment name; with P2PHANDSHAKE it gives the host, its port is
 * ignored and the name becomes "host:port" with the port really bound
 * (getLocalIpAndPort). ip_or_host_name and rpc_port may be ignored.
 * auto_discover 1: finds the topology and installs the transports that fit;
 * 0: the caller installs them.
 *
 * NULL on error, with a log line that says why. The caller owns the engine
 * and frees it with destroyTransferEngine.
 */
transfer_engine_t createTransferEngine(const char *metadata_conn_string,
				       const char *local_server_name,
				       const char *ip_or_host_name,
				       uint64_t rpc_port, int auto_discover);

/*
 * Drains (bounded by MC_SLICE_TIMEOUT), withdraws what was published, stops
 * the engine's threads and frees it. Blocks. NULL is ignored; a second call on
 * the same handle is ignored as long as no new engine took its place.
 */
void destroyTransferEngine(transfer_engine_t engine);

/* Finds NICs and their distances. 0 or a negative code. */
int discoverTopology(transfer_engine_t engine);

/*
 * "ip:port" of the control channel, IPv6 in brackets, truncated to len bytes
 * with its terminator. 0 or -1.
 */
int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);

/*
 * Installs a transport: "tcp", "rdma", "shm", "local", "nvmeof", or "efa" or
 * "cxi", which mean "rdma" with that provider of libfabric. args may be
 * NULL; else args[0] is an optional topology JSON text and the array ends with
 * NULL. The same name twice gives the first handle. NULL on error. The handle
 * is the engine's.
 */
transport_t installTransport(transfer_engine_t engine, const char *proto,
			     void **args);

/*
 * Waits for the transport's tasks, then unloads it. 0, also if no transport of
 * that name is installed, of which te_last_error then has a record; otherwise a
 * negative code.
 */
int uninstallTransport(transfer_engine_t engine, const char *proto);

/* --- segments ------------------------------------------------------------ */

/*
 * Opens a segment: id >= 0, the same for the same name; the engine's own name
 * is 0. -1 for an empty, missing or unreachable name. A leading slash is
 * dropped. Blocks for at most MC_HANDSHAKE_CONNECT_TIMEOUT.
 */
segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);

/* As openSegment, and fetches the descriptor anew first. */
segment_id_t openSegmentNoCache(transfer_engine_t engine,
				const char *segment_name);

/*
 * Drops one reference. The id goes stale with the last one; tasks under way
 * are not disturbed. 0, also for an id that is not open, of which te_last_error
 * then has a record; -1 if engine is NULL or stale.
 */
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);

/* Forgets a cached name. 0 even where absent, -1 if empty. */
int removeLocalSegment(transfer_engine_t engine, const char *segment_name);

/* Fetches every remote descriptor anew. 0 or the first error. */
int syncSegmentCache(transfer_engine_t engine);

/*
 * Connects every pair of rails to that segment, whatever the provider.
 * Idempotent. 0 or a negative code.
 */
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);

/* --- memory -------------------------------------------------------------- */

/*
 * Registers [addr, addr + length) on every transport, installed now or later.
 * location: "cpu:N", "cuda:N", "*" or "segments:<page>:<n0>,…"; NULL is "*".
 * remote_accessible 0 publishes nothing. -1 for length 0 or a range that
 * wraps, -7 for any overlap. Rolled back as a whole on error.
 */
int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length,
			const char *location, int remote_accessible);

/*
 * Returns 0 only when no peer can write or read there any more: withdraws the
 * descriptor, asks the connected initiators to drain, fences those that do
 * not answer. Waits for local tasks on the range, up to MC_SLICE_TIMEOUT, then
 * -4 and the range stays registered. -3 if addr is no registered start.
 */
int unregisterLocalMemory(transfer_engine_t engine, void *addr);

/* One publication for the whole batch, the shortest first; all or nothing. */
int registerLocalMemoryBatch(transfer_engine_t engine,
			     buffer_entry_t *buffer_list, size_t buffer_len,
			     const char *location);

/* Goes on past an error and returns the first. */
int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list,
			       size_t addr_len);

/* --- transfers ----------------------------------------------------------- */

/*
 * A bounded list of tasks. Ids carry a generation: a stale or invented id is
 * refused. INVALID_BATCH for a size above 1048576 or without memory. A batch of
 * size 0 is valid and takes no request.
 */
batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);

/*
 * Queues count requests as the batch's next tasks, numbered in order. 0, or a
 * positive code and nothing of the call is taken. If count is 0, entries is
 * ignored and nothing is sent. Never blocks. The memory at source must stay registered and, for WRITE, unchanged until the task is
 * terminal.
 */
int submitTransfer(transfer_engine_t engine, batch_id_t batch_id,
		   struct transfer_request *entries, size_t count);

/*
 * As submitTransfer; when every request of this call is COMPLETED, notify_msg
 * is sent once, at most once, to the first request's target. Not sent if one
 * of them fails, or if count is 0. Neither the call nor a task's status waits for
 * the notification. 2 also if too many notifications wait for that target.
 */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
			     struct transfer_request *entries, size_t count,
			     notify_msg_t notify_msg);

/*
 * Status of one task; drives progress while it is not terminal. 0 or a
 * positive code. Never blocks. A task that the library ends by itself is
 * COMPLETED, CANCELED or FAILED; the record of te_task_error tells whether the
 * target could be fenced. Only if the user has set MC_SLICE_TIMEOUT, in the
 * environment or for the engine, an unfenced task is TIMEOUT.
 */
int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id,
		      size_t task_id, struct transfer_status *status);

/* 0, or 4 while a task is not terminal, or 1. The id is stale afterwards. */
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* --- notifications ------------------------------------------------------- */

/*
 * A notification has at most 1 MiB: name and msg together, without terminators.
 *
 * Drains the received notifications into an array that the caller frees with
 * freeNotifsMsgBuf. NULL and *size 0 if there are none. Each arrives at most
 * once, those of one sender in order. While MOONRAIL_NOTIFY_BYTES or
 * MOONRAIL_MAX_NOTIFIES are held, senders wait.
 */
notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);

/* Frees what getNotifsFromEngine gave, with its size. NULL is ignored. 0. */
int freeNotifsMsgBuf(notify_msg_t *msg, int size);

/*
 * Sends a notification and waits until the peer's library has acknowledged it, for
 * at most MC_HANDSHAKE_CONNECT_TIMEOUT. 0 or a negative code; after an error it is
 * no longer sent. TE_ERROR_UNKNOWN in the record of te_last_error says that it may
 * have arrived, or may still arrive once; without that flag it never arrives. To
 * LOCAL_SEGMENT, the call does not wait.
 */
int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id,
		      notify_msg_t notify_msg);

/* --- observation --------------------------------------------------------- */

/*
 * Fills up to *count entries, one per rail, then sets *count to the number of
 * rails. 0, or -1 for NULL, also where *count is 0.
 */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats,
		    size_t *count);

/*
 * The local rails and the topology as text (json 0) or JSON, truncated to len
 * bytes with its terminator. 0 or a negative code.
 */
int showLinks(transfer_engine_t engine, char *buf, size_t len, int json);

/*
 * On SIGTERM, SIGINT and exit: drain, withdraw, exit with 128 + signal. The
 * library installs no handler unless this is called; it replaces one that was
 * there. 0 or a negative code.
 */
int enableGracefulShutdown(transfer_engine_t engine);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* TRANSFER_ENGINE_C_H */
