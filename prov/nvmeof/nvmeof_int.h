/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_NVMEOF_INT_H
#define TEI_PROV_NVMEOF_INT_H

/*
 * Life of an operation: it waits in a queue and is cut into pieces (nvmeof_io),
 * which a back end runs. Then, for each of its files in turn, an fdatasync runs
 * if one is needed, and the file is checked. Then its done callback runs. The
 * submitting thread only queues it; threads of the module do the rest.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/nvmeof/tei_nvmeof.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/range.h"

#define NVMEOF_BLOCK	4096u		/* alignment of direct requests, which
					 * bypass the page cache, bytes */
#define NVMEOF_SMALL	16384u		/* longest unaligned piece that is not
					 * split, bytes */
#define NVMEOF_DEPTH_MAX 1024u
#define NVMEOF_FIXED	1024u		/* number of slots of registered
					 * buffers */
#define NVMEOF_PART	(UINT64_C(1) << 30)	/* kernel limit of the length of
						 * a registered buffer, bytes */
#define NVMEOF_FILES	256u		/* number of slots of registered
					 * files */
#define NVMEOF_MISSES	64u		/* number of uses of buffers on a wrong
					 * NUMA node until one is replaced */
#define NVMEOF_SHARE	8u		/* each file is guaranteed 1/8 of
					 * tei_nvmeof.room */
#define NVMEOF_CROWD	4u		/* limit of all requests, as a multiple
					 * of tei_nvmeof.room */
#define NVMEOF_STALL_NS	TEI_NS_PER_SEC	/* a file without a completion for this
					 * time is stalled, ns */
#define NVMEOF_SIDE_MAX	16u		/* greatest number of threads that check
					 * and close files */

struct tei_topo_where;

enum nvmeof_sync { NVMEOF_SYNC_NONE, NVMEOF_SYNC_DATA, NVMEOF_SYNC_DSYNC };

/* A file of a segment. Constant after open, except for the last group. */
struct nvmeof_file {
	struct tei_nvmeof_seg *seg;
	char *path;			/* path; NULL if not mounted here */
	char *name;
	uint64_t length, offset;	/* length of the file; offset of its
					 * first byte in the segment; bytes */
	int direct, cached;		/* descriptors that bypass, and use, the
					 * page cache; -1 if not open */
	int direct_slot, cached_slot;	/* slots of direct and cached as
					 * registered files; -1 if not
					 * registered */
	uint32_t mem_align;		/* alignment of memory for direct
					 * requests, bytes */
	uint32_t block;			/* offset alignment of direct requests,
					 * at least a page, bytes */
	void *cufile;			/* cuFile's handle; NULL if not used */
	int numa;			/* NUMA node of the device; -1 if it is
					 * unknown */
	bool device;			/* the file is a block device */
	bool remote;			/* the file is on a network file system,
					 * so calls may block */
	int read_only;			/* errno with which the file could not
					 * be opened for writing, or 0 */
	dev_t dev;			/* dev and ino identify the open file */
	ino_t ino;

	/* guarded by ctx->lock */
	struct tei_list unsynced;	/* writes that wait for an fdatasync */
	struct tei_list syncing;	/* writes that the running fdatasync
					 * covers */
	struct tei_list ended;		/* operations that await a file check */
	struct tei_list look_node;	/* in ctx->looks or ctx->side.looks */
	struct tei_list queue;		/* operations whose next piece is in
					 * this file */
	struct tei_list turn_node;	/* in ctx->turn while "queue" is not
					 * empty */
	struct tei_list busy_node;	/* in ctx->busy while "running" is not
					 * 0 */
	uint32_t running;		/* requests that are ready or running */
	uint32_t ends, seen;		/* ends: number of ended requests; seen:
					 * value of ends at seen_ns */
	uint64_t seen_ns;		/* time of the check for a stall that
					 * has set "seen", ns; 0 if there was
					 * none since the file was idle */
	bool stalled;			/* the requests of the file are not
					 * counted in ctx->running */
	uint64_t failed_at;		/* ctx->clock at the last failed
					 * fdatasync, or 0 */
	uint64_t looked_at;		/* ctx->clock at the start of the last
					 * successful check */
	bool looking;			/* a thread is checking the file */
	int broken;			/* tei_code that says why the file
					 * cannot be used, or 0; atomic */
	struct tei_err why;		/* error record for the code in
					 * broken */
};

struct tei_nvmeof_seg {
	struct tei_nvmeof *ctx;
	struct tei_list node;		/* in ctx->side.closes, or in no list */
	char *name;
	uint64_t size;
	uint32_t refs;			/* number of references; atomic */
	uint32_t count;
	struct nvmeof_file file[];
};

enum nvmeof_kind { NVMEOF_READ, NVMEOF_WRITE, NVMEOF_SYNC };

/* One request to the kernel. An element of ctx->ios, or allocated if all of
 * those are in use. The back end owns it while it runs. */
struct nvmeof_io {
	bool extra;			/* not an element of ctx->ios */
	struct tei_list node;		/* in ctx->idle or ctx->ready */
	enum nvmeof_kind kind;
	struct tei_nvmeof_op *op;	/* operation; NULL for an fdatasync */
	struct nvmeof_file *file;
	int fd;
	int slot;			/* slot of fd as a registered file; -1
					 * if it is not registered */
	uint64_t at;			/* offset in the file */
	char *local;			/* start of the piece in op->local */
	char *buf;			/* same as local, or bounce->mem */
	uint32_t length, done;		/* length: bytes of the piece; done:
					 * bytes moved so far */
	int fixed;			/* slot of the registered buffer that
					 * holds buf; -1 if none does */
	uint32_t tries;
	struct {			/* host memory if context is NULL */
		void *context;
		uint64_t base;
		int err;		/* error number of cuFile, or 0 */
	} gpu;
	bool direct;
	struct nvmeof_bounce *bounce;	/* bounce buffer at buf, or NULL */
};

/* Buffer for bytes on their way between a file and memory that a direct request
 * does not accept. Owned by a request, or unused and in ctx->bounces. */
struct nvmeof_bounce {
	struct tei_list node;
	int numa;			/* preferred NUMA node; -1 for any
					 * node */
	char *mem;			/* TEI_NVMEOF_PIECE bytes */
};

/* Registered memory. Created by tei_nvmeof_mem_add or tei_nvmeof_gpu_add, freed
 * by tei_nvmeof_mem_remove or tei_nvmeof_fini. */
struct nvmeof_mem {
	struct tei_range range;		/* in ctx->mem */
	int fixed;			/* slot of the first registered part
					 * (those of the other parts follow); -1
					 * if it is not registered */
	struct tei_topo_where *where;	/* location, owned by this object; NULL
					 * if it is unknown */
	void *context;			/* CUDA context of GPU memory, or
					 * NULL */
	bool removing;
};

/* An operation whose done callback is running. On the stack of the thread that
 * runs the callback. */
struct nvmeof_ending {
	struct tei_list node;		/* in ctx->ending */
	uint64_t base, end;		/* bounds of the local memory */
};

/* A back end, which runs requests. Functions are called with ctx->lock held
 * unless stated otherwise. */
struct nvmeof_backend {
	const char *name;
	/* Returns 0, or a code with *err filled. Called without the lock. */
	int (*start)(struct tei_nvmeof *ctx, struct tei_err *err);
	/* Ends the back end's threads. ctx->stopping is set and no request is
	 * in flight. Called without the lock. */
	void (*stop)(struct tei_nvmeof *ctx);
	/* Causes nvmeof_pump to be called by a thread, because ctx->turn or
	 * ctx->ready may have become non-empty. */
	void (*wake)(struct tei_nvmeof *ctx);
	/* Registers memory in adjacent slots, one for each ctx->part bytes.
	 * Returns the first slot, or -1 if the memory is not registered. Called
	 * without the lock. NULL if the back end cannot register memory. */
	int (*fix)(struct tei_nvmeof *ctx, void *addr, uint64_t len);
	void (*unfix)(struct tei_nvmeof *ctx, int slot, uint64_t len);
	/* Registers an open file. Returns its slot, or -1 if it is not
	 * registered. unfix_files releases n slots and is called before the
	 * files are closed. Called without the lock. */
	int (*fix_file)(struct tei_nvmeof *ctx, int fd);
	void (*unfix_files)(struct tei_nvmeof *ctx, const int *slots,
			    uint32_t n);
};

extern const struct nvmeof_backend nvmeof_pool;
extern const struct nvmeof_backend nvmeof_uring;

/* Threads that check and close files of network file systems. Guarded by
 * ctx->lock. */
struct nvmeof_blocking {
	pthread_cond_t work;
	struct tei_list looks;		/* files to check (look_node) */
	struct tei_list closes;		/* segments to close, linked by node */
	uint32_t waiting;		/* number of looks and closes */
	uint32_t idle, count;		/* number of idle and of all threads */
	bool quit;
	pthread_t thread[NVMEOF_SIDE_MAX];
};

/* Functions that tests set before the first operation; NULL if not set. */
struct nvmeof_hooks {
	/* replaces the result of a request; ctx->lock held */
	int64_t (*spoil)(void *arg, const struct nvmeof_io *io, int64_t res);
	void *spoil_arg;
	/* returns true to withhold a request, as if the storage did not answer;
	 * the test later puts the request back into a ready list; ctx->lock
	 * held */
	bool (*keep)(void *arg, struct nvmeof_io *io);
	void *keep_arg;
	/* called before system calls that a file server may block; no lock
	 * held */
	void (*hold)(void *arg, const struct nvmeof_file *f);
	void *hold_arg;
};

/* Created by tei_nvmeof_init, freed by tei_nvmeof_fini. */
struct tei_nvmeof {
	/* constant after init */
	const struct nvmeof_backend *backend;
	void *backend_state;
	enum nvmeof_sync sync;
	bool use_direct;
	uint32_t depth, threads;
	uint32_t room;			/* limit of running requests; those of
					 * stalled files do not count */
	uint64_t part;			/* NVMEOF_PART; smaller in tests */

	struct tei_mutex lock;		/* guards the members below */
	pthread_cond_t work;		/* wakes the threads of the pool when
					 * turn or ready is not empty */
	pthread_cond_t ended;		/* signalled after each done callback */
	struct tei_list live;		/* submitted operations (live_node) */
	struct tei_list turn;		/* files with pieces left (turn_node) */
	struct tei_list busy;		/* files with running requests, linked
					 * by busy_node */
	uint32_t running;		/* number of running requests, except
					 * those of stalled files */
	uint32_t all;			/* number of all running requests */
	struct tei_list over;		/* operations whose done callback is due
					 * (node) */
	struct tei_list looks;		/* files to check (look_node) */
	struct tei_list ending;		/* list of nvmeof_ending.node */
	struct tei_list idle, ready;	/* idle: unused requests; ready:
					 * requests to be run */
	struct tei_list gpu_ready;	/* requests that cuFile must run */
	struct tei_list bounces;	/* unused bounce buffers, latest
					 * first */
	uint32_t nbounces;		/* number of bounce buffers, <= depth */
	uint32_t misses;		/* number of calls that found only
					 * buffers on a wrong NUMA node */
	struct nvmeof_blocking side;
	struct nvmeof_cufile *cufile;	/* set once; NULL if it is not used */
	struct tei_range_table mem;	/* table of nvmeof_mem.range */
	uint64_t clock;			/* logical time: a counter to which each
					 * submit, check and failed fdatasync
					 * adds 1 */
	bool stopping;
	struct tei_nvmeof_counters counters;

	struct nvmeof_hooks hooks;
	struct nvmeof_io *ios;		/* array of "depth" elements */
	struct tei_log_limit log_limit;
};

/* --- nvmeof_file.c ------------------------------------------------------- */

/* Fills *err with an error record about a file. sys_errno: errno of the
 * failure, or 0. Returns code. */
int nvmeof_explain(struct tei_err *err, int code, const struct nvmeof_file *f,
		   int sys_errno, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Checks that the file is at its path with its full length. Returns 0, or a
 * code with *err filled. Blocks as long as the file server does. */
int nvmeof_file_check(const struct nvmeof_file *f, struct tei_err *err);
/* Checks that the opened file has its full length and was not removed. Does not
 * look up the path. Returns 0, or a code with *err filled. */
int nvmeof_file_glance(const struct nvmeof_file *f, struct tei_err *err);
/* Closes the files and frees the segment. Blocks as long as file servers do. */
void nvmeof_seg_free(struct tei_nvmeof_seg *seg);
/* Returns the index of the file that holds the byte at offset. */
uint32_t nvmeof_file_at(const struct tei_nvmeof_seg *seg, uint64_t offset);

/* --- nvmeof_mem.c -------------------------------------------------------- */

/* Returns the memory that holds [addr, addr+len); NULL if there is none or it
 * is being removed. */
const struct nvmeof_mem *nvmeof_mem_find(struct tei_nvmeof *ctx,
					 const void *addr, uint64_t len)
	TEI_REQUIRES(ctx->lock);

/* Creates the object of [addr, addr+len), which is in no table yet. Returns
 * NULL if memory is short. */
struct nvmeof_mem *nvmeof_mem_new(const void *addr, uint64_t len);
/* Adds the memory to the table. Returns the result of tei_range_insert. */
int nvmeof_mem_insert(struct tei_nvmeof *ctx, struct nvmeof_mem *m);
/* Frees the object, which is in no table. */
void nvmeof_mem_free(struct nvmeof_mem *m);

/* Returns the slot of the registered buffer that holds all of the bytes, or -1
 * if none does. */
int nvmeof_mem_slot(const struct tei_nvmeof *ctx, const struct nvmeof_mem *m,
		    const void *addr, uint64_t len);

/* Returns the NUMA node of the byte at addr, or -1 if it is unknown. */
int nvmeof_mem_node(const struct nvmeof_mem *m, const void *addr);

/* --- nvmeof_bounce.c ----------------------------------------------------- */

/* Takes a bounce buffer on NUMA node numa; any one if numa is -1, or if all
 * unused buffers are on other nodes and the maximum number of buffers exists.
 * In the latter case, only every NVMEOF_MISSES-th call replaces a buffer by one
 * on the node, because mapping new memory costs more than one copy across
 * nodes. Returns NULL if memory is short, or if all buffers are in use. */
struct nvmeof_bounce *nvmeof_bounce_take(struct tei_nvmeof *ctx, int numa)
	TEI_REQUIRES(ctx->lock);
void nvmeof_bounce_give(struct tei_nvmeof *ctx, struct nvmeof_bounce *b)
	TEI_REQUIRES(ctx->lock);
/* Frees the bounce buffers. No request may be in flight. */
void nvmeof_bounce_fini(struct tei_nvmeof *ctx);

/* --- nvmeof_cufile.c ----------------------------------------------------- */

/* Wakes a thread of cuFile after a request was put on ctx->gpu_ready. */
void nvmeof_cufile_wake(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock);
/* Ends the threads and deregisters all memory. No request may be in flight. */
void nvmeof_cufile_stop(struct tei_nvmeof *ctx);
/* Deregisters GPU memory that no operation uses any longer. Ignores host
 * memory. */
void nvmeof_cufile_mem_remove(struct tei_nvmeof *ctx,
			      const struct nvmeof_mem *m);
/* Register an open file with cuFile, and deregister it before it is closed. */
void nvmeof_cufile_file_add(struct tei_nvmeof *ctx, struct nvmeof_file *f);
void nvmeof_cufile_file_remove(struct nvmeof_file *f);

/* --- nvmeof_blocking.c --------------------------------------------------- */

/* Makes a side thread call nvmeof_file_settle and sets f->looking. Returns
 * false if the file is local or no thread can be started; the caller must then
 * call nvmeof_file_settle. */
bool nvmeof_blocking_check(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock);
/* Makes a side thread call nvmeof_seg_free. Returns false if all files are
 * local or no thread can be started; the caller must then call
 * nvmeof_seg_free. */
bool nvmeof_blocking_close(struct tei_nvmeof *ctx, struct tei_nvmeof_seg *seg);
void nvmeof_blocking_init(struct tei_nvmeof *ctx);
/* Joins the threads after their work is done. No operation may be live. */
void nvmeof_blocking_stop(struct tei_nvmeof *ctx);
void nvmeof_blocking_fini(struct tei_nvmeof *ctx);

/* --- nvmeof_op.c --------------------------------------------------------- */

/* Starts pieces of queued operations: makes ready requests of them, as long as
 * the limits of running requests permit (nvmeof_op.c). */
void nvmeof_pump(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock);
/* Handles the result of a request: bytes, or -errno. Afterwards the request is
 * idle, or ready again. The back end must have called nvmeof_io_copy before. */
void nvmeof_io_done(struct tei_nvmeof *ctx, struct nvmeof_io *io, int64_t res)
	TEI_REQUIRES(ctx->lock);
/* Copies the bytes of a write into the bounce buffer. Called before the request
 * runs, without the lock. */
void nvmeof_io_fill(struct nvmeof_io *io);
/* Copies the bytes of a read out of the bounce buffer. */
void nvmeof_io_copy(struct nvmeof_io *io, int64_t res);
/* Returns the RWF_ flags of a request. */
int nvmeof_io_flags(const struct tei_nvmeof *ctx, const struct nvmeof_io *io);
/* Checks the file for all operations in f->ended. Releases the lock meanwhile.
 * Afterwards the operations and the file may have been freed. */
void nvmeof_file_settle(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock);
/* Starts the fdatasyncs and checks of the files in ctx->looks, and calls the
 * done callbacks of ctx->over. Returns true if it has checked a file or called
 * a callback. */
bool nvmeof_settle(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock);
/* Cancels all operations and waits until none is live. */
void nvmeof_cancel_all(struct tei_nvmeof *ctx);
/* Waits until a done callback has returned, or for a shorter time. Returns
 * false if the deadline has passed. */
bool nvmeof_wait(struct tei_nvmeof *ctx, uint64_t deadline_ns)
	TEI_REQUIRES(ctx->lock);

#endif /* TEI_PROV_NVMEOF_INT_H */
