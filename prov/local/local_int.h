/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_INT_H
#define TEI_PROV_LOCAL_INT_H

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "prov/local/local_table.h"
#include "prov/local/tei_local.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define LOCAL_CUT_MIN	(64u << 10)	/* smallest piece into which an
					 * operation is cut, bytes */

/* ---- this host --------------------------------------------------------- */

/* Filled at init, constant afterwards. */
struct local_host {
	char boot_id[40];
	uint64_t pid_ns;
	uint64_t start_time; /* start time of this process */
	int32_t pid;
	bool usable;	     /* true if all members above could be read */
	const char *missing; /* if usable is false, name of a value that could
			      * not be read */
};

void local_host_read(struct local_host *h);

/* local_proc_start_time stores a process's start time in *out and returns 0;
 * local_pidfd_open returns a pidfd. Both return -errno on failure. */
int local_proc_start_time(pid_t pid, uint64_t *out);
int local_pidfd_open(pid_t pid);
bool local_pidfd_ended(int pidfd);
/* Duplicates a file descriptor of another process, for which the kernel requires
 * ptrace access. Returns the new one, which is close-on-exec, or -errno. */
int local_pidfd_getfd(int pidfd, int number);

/*
 * Returns the 64-bit value that identifies a process as the owner of a copy
 * slot: its pid and the low bits of its start time. Never 0.
 */
uint64_t local_owner(pid_t pid, uint64_t start_time);
bool local_owner_alive(uint64_t owner);

/* ---- mappable memory (local_memory.c) ----------------------------------- */

/* Memory of this process that peers can map. */
struct local_extent {
	uint64_t base, end;
	uint64_t offset;	/* offset of base in the file, bytes */
	uint32_t file;		/* number of the file */
};

/* Guarded by the context's lock. */
struct local_memory {
	struct local_extent *extents;	/* sorted by base, disjoint */
	uint32_t n, room;		/* used and allocated elements */
	int fd[LOCAL_FILES];		/* -1 if the file does not exist */
	uint64_t next[LOCAL_FILES];	/* unused from this offset on */
};

/* ---- the peer's memory (local_view.c, local_watch.c) -------------------- */

/* The mappings of a peer's memory. */
struct local_view;

/*
 * The thread that waits for the end of peers whose memory is mapped. It also
 * holds the robust futex word by which peers notice the end of this process.
 */
struct local_watch {
	struct tei_mutex lock;
	pthread_t thread;
	/* guarded by lock */
	struct tei_list peers;	/* list of tei_local_peer.watch_node */
	int epoll;		/* pidfds of the peers, and wake */
	int wake;		/* eventfd that ends the thread */
	pthread_cond_t started;	/* signalled when ready is set */
	bool running;		/* the thread has been started */
	bool ready;		/* the thread holds the word, or cannot */
	bool failed;		/* the thread cannot be started */
};

/* ---- GPU memory (local_gpu.c) -------------------------------------------- */

/* A region of published GPU memory of this process. */
struct local_gpu {
	uint64_t base, end;	/* 0 if the element is free */
	uint64_t serial;	/* number of the registration */
	uint64_t data[TEI_LOCAL_GPU_DATA / 8];
	uint32_t first, files;	/* range of local_gpus.files */
	bool removing;
};

/* The published GPU memory. Guarded by the context's lock. */
struct local_gpus {
	struct local_gpu *list; /* array of LOCAL_GPU elements, or NULL */
	int *files;		/* array of LOCAL_GPU_FILES file descriptors,
				 * each plus 1, or 0; NULL if list is NULL */
	bool closed;		/* no memory can be published any longer */
};

/* ---- context ----------------------------------------------------------- */

/*
 * Created by tei_local_init, freed by tei_local_fini. lock is in row 6 of
 * docs/LOCKING.md; only leaf locks are taken under it.
 */
struct tei_local {
	/* constant after init */
	struct local_host host;
	struct local_shared_table *own;	   /* table for copies within this
					    * process */
	struct local_shared_table *shared; /* table in a memfd for other
					    * processes, or NULL */
	int shared_fd;
	bool wiped; /* the kernel fills the memory of own with zeros in a forked
		     * child (MADV_WIPEONFORK), which shows that this process is
		     * the child */
	uint64_t owner;
	uint64_t incarnation;
	uint32_t workers;
	uint64_t spin_ns;
	uint64_t stall_ns;
	pthread_t *threads; /* array with "workers" entries */
	/* Callback for tests, which set it before the first copy. It is called
	 * when the copy slot has been claimed, before the bytes are copied. */
	void (*before_copy)(void *arg);
	void *before_copy_arg;

	struct tei_mutex lock;
	pthread_cond_t work;  /* used with "lock"; signalled when the queue is
			       * not empty or the context is stopping */
	pthread_cond_t ended; /* used with "lock"; signalled when an operation
			       * has ended */
	/* guarded by "lock" */
	struct local_table table;
	uint32_t adding; /* number of calls of tei_local_regions_adding with
			  * "on" true whose matching call has not been made
			  * yet */
	bool unpublished;
	uint64_t generation;
	uint64_t serial; /* serial number of the latest registration */
	struct tei_list live;	/* list of tei_local_op.live_node */
	struct tei_list queue;	/* list of tei_local_op.queue_node */
	struct tei_list ending; /* list of local_ending.node */
	uint32_t nthreads;
	uint32_t sleepers;
	uint32_t waiters;
	bool spinning;
	bool stopping;
	struct local_memory memory;
	struct local_gpus gpu;

	struct local_watch watch; /* has a lock of its own */

	/* atomic */
	_Atomic uint32_t queued; /* number of operations in the list queue */
	_Atomic uint64_t queued_bytes;
	_Atomic uint64_t tx_bytes, rx_bytes, pieces, mapped, errors;
	struct tei_log_limit log_limit;
};

/*
 * Created by tei_local_peer_open, freed by tei_local_peer_close. Constant,
 * except watch_node, which is guarded by the lock of the context's watch.
 */
struct tei_local_peer {
	struct tei_local_id id;
	struct local_shared_table *shared_table; /* NULL if the peer is the
						  * context itself */
	struct local_view *view; /* NULL if the peer is this process */
	struct tei_list watch_node;
	int pidfd; /* -1 if the peer is this process */
	bool self; /* the peer is this process and is
		    * reached by memcpy */
};

/* The memory of this process that an operation accesses: two ranges of "length"
 * bytes, which start at the addresses "local" and "far". If the target is in
 * another process, "far" equals "local". */
struct local_reach {
	uint64_t local, far, length;
};

static inline struct local_reach local_reach(const struct tei_local_op *op)
{
	uint64_t local = (uint64_t)(uintptr_t)op->local;

	return (struct local_reach){
		.local = local,
		.far = op->peer && op->peer->shared_table ? local : op->remote,
		.length = op->length,
	};
}

/*
 * An operation whose done callback is running. On the stack of the thread that
 * runs the callback.
 */
struct local_ending {
	struct tei_list node;		/* in ctx->ending, which ctx->lock
					 * guards */
	const struct tei_local_op *op;
	const struct tei_local_peer *peer;
	struct local_reach reach;
};

/* Returns 0, or TEI_ERR_CONTEXT in a forked child. */
int local_guard(struct tei_local *ctx);

/*
 * Fills *err with an error record (err may be NULL), and the thread's last
 * error. Logs it, within the context's rate limit. Returns code.
 */
int local_fail(struct tei_local *ctx, struct tei_err *err, int code,
	       const struct tei_local_peer *peer, int sys_errno,
	       const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/*
 * Does what local_fail does, but neither logs nor sets the thread's last error:
 * for errors that the caller reports.
 */
void local_explain(struct tei_err *err, int code, int sys_errno,
		   const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/*
 * Waits on the condition variable c. Then records in debug builds that the
 * calling thread holds the lock again. Returns false if the deadline has
 * passed.
 */
bool local_wait(pthread_cond_t *c, struct tei_mutex *l, uint64_t deadline_ns)
	TEI_REQUIRES(l);

/* Returns true if op may start: no range of op is in a region that is being
 * removed; a target in this process is in a region; and if op->registered is
 * set, its local memory is in a region. */
bool local_regions_allow(struct tei_local *ctx, const struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock);
void local_regions_clear(struct tei_local *ctx) TEI_REQUIRES(ctx->lock);

/* Sets the file and the offset of a new region that lies in one extent of
 * mappable memory. */
void local_memory_locate(struct tei_local *ctx, struct local_region *region)
	TEI_REQUIRES(ctx->lock);
void local_memory_init(struct tei_local *ctx) TEI_NO_TSA;
/*
 * Removes the pages of all files and closes the files. drained is true if no
 * other process copies any longer. If it is false, pages from a pool of huge
 * pages stay until the peers unmap them: an access to a removed page could
 * otherwise fail with SIGBUS.
 */
void local_memory_fini(struct tei_local *ctx, bool drained) TEI_NO_TSA;

/* Closes the files of all published GPU memory. */
void local_gpu_close(struct tei_local *ctx) TEI_NO_TSA;

/* ---- one piece --------------------------------------------------------- */

struct local_piece {
	struct tei_local *ctx;
	struct tei_local_peer *peer; /* NULL if the target is in this context */
	enum tei_local_opcode opcode;
	char *local;
	uint64_t remote;
	uint64_t length;
	uint64_t serial;	 /* serial number that the registration of the
				  * target must have; 0: any */
	bool registered;	 /* the local range is in a region */
	struct local_slot *slot; /* copy slot at the peer; set by
				  * local_piece_enter */
};

/* Claims a copy slot at the peer. Returns false if none is free. */
bool local_piece_enter(struct local_piece *p);

/*
 * Checks and copies one piece, then leaves its copy slot. Returns 0, or a code
 * with *err filled.
 */
int local_piece_run(struct local_piece *p, struct tei_err *err);

/* Returns the address and length of the magic number and the incarnation in the
 * peer's memory. */
static inline struct iovec local_magic_at(const struct tei_local_peer *peer)
{
	return (struct iovec){ (void *)(uintptr_t)peer->id.magic_addr,
			       2 * sizeof(uint64_t) };
}

static inline bool local_magic_right(const struct tei_local_peer *peer,
				     const uint64_t magic[2])
{
	return magic[0] == LOCAL_MAGIC && magic[1] == peer->id.incarnation;
}

/* ---- several operations ------------------------------------------------ */

/*
 * Makes all checks of the target and copies the first of n operations (n >= 1)
 * with one system call. The caller protects the local memory. Returns the
 * number of operations whose bytes are all in place; the operation after them
 * may be copied in part. Returns 0 if nothing can be copied with one system
 * call.
 */
size_t local_run_copy(struct tei_local *ctx, struct tei_local_op *const op[],
		      size_t n);

/* ---- mapped memory ----------------------------------------------------- */

/* Creates a view without mappings. Returns NULL if memory is short. */
struct local_view *local_view_new(void);
/* Waits for copies in progress, and unmaps. The view cannot map again if last
 * is true. */
void local_view_drop(struct local_view *v, bool last);
/* Returns true if a file of the peer can be mapped, or was not tried yet. */
bool local_view_possible(const struct tei_local_peer *peer);
/* Returns true if the file with that index is mapped, or may be mapped. */
bool local_view_permits(struct local_view *v, uint32_t file);
/* Frees a view that no thread uses. NULL is ignored. In a forked child, unmaps
 * nothing, because the child has no such mappings. */
void local_view_free(struct local_view *v, bool forked);

/* Operations whose target ranges lie in one region of the peer. */
struct local_view_run {
	struct tei_local *ctx;
	struct tei_local_peer *peer;
	bool write;
	struct tei_local_op *const *op;
	size_t n;		/* number of operations */
	uint64_t base;		/* an address in the region */
	struct local_place at;	/* place of base */
};

/*
 * Copies between local memory and memory of the peer that can be mapped; maps
 * it if necessary. Returns the number of operations that are complete, and
 * copies no byte of the other ones. The caller has armed a copy slot of the peer
 * that covers all target ranges, and has then found the ranges registered and
 * the peer unchanged. The local ranges must be accessible: an invalid local
 * address raises SIGSEGV and is not reported as an error.
 */
size_t local_view_copy(const struct local_view_run *run);

/*
 * Drops the view of the peer when its process ends, so that this process does
 * not keep the memory of a process that has ended. Starts the thread with the
 * first peer. Returns false if that is impossible; the peer's memory must not
 * be mapped then. May be called again for the same peer.
 */
bool local_watch_add(struct tei_local *ctx, struct tei_local_peer *peer);
/* Starts the thread, unless it runs, and waits until it holds the word by which
 * peers notice the end of this process without a system call. If that is
 * impossible, they query the kernel. */
void local_watch_hold(struct tei_local *ctx);
void local_watch_remove(struct tei_local *ctx, struct tei_local_peer *peer);
void local_watch_init(struct local_watch *w) TEI_NO_TSA;
void local_watch_fini(struct local_watch *w) TEI_NO_TSA;

/* ---- pool -------------------------------------------------------------- */

/* Cancels the operations of peer (of all peers if peer is NULL) and waits for
 * their end. */
void local_pool_drain(struct tei_local *ctx, const struct tei_local_peer *peer);
void local_pool_join(struct tei_local *ctx);

/* ---- peer -------------------------------------------------------------- */

/*
 * Returns true if the process still runs the program that created the shared
 * registration table. Makes no system call. If the result is false, the caller
 * must query the kernel, because the process may live although no thread of it
 * holds the word.
 */
static inline bool local_peer_holds(const struct tei_local_peer *peer)
{
	uint32_t word = atomic_load(&peer->shared_table->head.holder);

	return word & FUTEX_TID_MASK && !(word & FUTEX_OWNER_DIED);
}

/*
 * Returns TEI_LOCAL_OK if the process lives and its context is open. Reads the
 * registration table, and polls the pidfd if local_peer_holds returns false.
 */
enum tei_local_reason local_peer_check(struct tei_local_peer *peer);

#endif /* TEI_PROV_LOCAL_INT_H */
