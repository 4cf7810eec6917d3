/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_NVMEOF_INT_H
#define TEI_PROV_NVMEOF_INT_H

/*
 * The way of an operation: queue, pieces (nvmeof_io) that a back end runs,
 * then, file by file, an fdatasync where one is due and a look at the file;
 * then its done callback. Only I/O threads do any of it but the queueing.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/nvmeof/tei_nvmeof.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define NVMEOF_BLOCK	4096u		/* direct pieces lie on such */
#define NVMEOF_SMALL	16384u		/* unaligned ones up to this: whole */
#define NVMEOF_DEPTH_MAX 1024u
#define NVMEOF_FIXED	1024u		/* slots for registered buffers */
#define NVMEOF_PART	(UINT64_C(1) << 30)	/* bytes of one: the kernel's */
#define NVMEOF_FILES	256u		/* and for registered files */
#define NVMEOF_MISSES	64u		/* until a bounce changes its node */
#define NVMEOF_SHARE	8u		/* a file's own: room / this, 1 at least */
#define NVMEOF_CROWD	4u		/* all requests: room * this */
#define NVMEOF_STALL_NS	TEI_NS_PER_SEC	/* without an end: it is stalled */
#define NVMEOF_SIDE_MAX	16u		/* threads for looks and closes */

struct tei_topo_where;

enum nvmeof_sync { NVMEOF_SYNC_NONE, NVMEOF_SYNC_DATA, NVMEOF_SYNC_DSYNC };

/* Belongs to its segment. Fixed after open, but for the last group. */
struct nvmeof_file {
	struct tei_nvmeof_seg *seg;
	char *path;			/* NULL: not mounted here */
	char *name;
	uint64_t length, offset;	/* in the segment */
	int direct, cached;		/* descriptors, or -1 */
	int direct_slot, cached_slot;	/* of registered files, or -1 */
	uint32_t mem_align;		/* what direct asks of memory */
	uint32_t block;			/* and of offsets; at least a page */
	void *cufile;			/* its handle for GPU memory, or NULL */
	int numa;			/* node of its device, or -1 */
	bool device;			/* a block device */
	bool remote;			/* its server may let us wait */
	int read_only;			/* why it can't be written: errno, or 0 */
	dev_t dev;			/* what was opened */
	ino_t ino;

	/* ctx->lock */
	struct tei_list unsynced;	/* ops that wait for an fdatasync */
	struct tei_list syncing;	/* ops that the present one is for */
	struct tei_list ended;		/* ops that wait for a look */
	struct tei_list look_node;	/* ctx->looks, or ctx->side.looks */
	struct tei_list queue;		/* ops whose next piece is its */
	struct tei_list turn_node;	/* ctx->turn, while queue is not empty */
	struct tei_list busy_node;	/* ctx->busy, while running */
	uint32_t running;		/* its requests that are not idle */
	uint32_t ends, seen;		/* of them; ends at the last count */
	uint64_t seen_ns;		/* since when ends is seen; 0: not */
	bool stalled;			/* its requests take nobody's room */
	uint64_t failed_at;		/* ctx->clock of a failed fdatasync */
	uint64_t looked_at;		/* ctx->clock when a look that found
					 * nothing wrong began */
	bool looking;			/* some thread is */
	int broken;			/* atomic: a code, else 0 */
	struct tei_err why;		/* broken's */
};

struct tei_nvmeof_seg {
	struct tei_nvmeof *ctx;
	struct tei_list node;		/* ctx->side.closes */
	char *name;
	uint64_t size;
	uint32_t refs;			/* atomic */
	uint32_t count;
	struct nvmeof_file file[];
};

enum nvmeof_kind { NVMEOF_READ, NVMEOF_WRITE, NVMEOF_SYNC };

/* One request to the kernel. ctx->ios, or allocated where those are taken; a
 * back end's while it runs. */
struct nvmeof_io {
	bool extra;			/* allocated */
	struct tei_list node;		/* ctx->idle or ctx->ready */
	enum nvmeof_kind kind;
	struct tei_nvmeof_op *op;	/* NULL: a sync */
	struct nvmeof_file *file;
	int fd;
	int slot;			/* fd's as a registered file, or -1 */
	uint64_t at;			/* in the file */
	char *local;			/* where the bytes belong */
	char *buf;			/* local, or bounce */
	uint32_t length, done;		/* of the piece; moved so far */
	int fixed;			/* slot of a registered buffer, or -1 */
	uint32_t tries;
	struct {			/* context NULL: memory of the host */
		void *context;
		uint64_t base;
		int err;		/* cuFile's own for the last, or 0 */
	} gpu;
	bool direct;
	struct nvmeof_bounce *bounce;	/* what buf is of, or NULL */
};

/* Where bytes lie between a file and memory that it does not take. Belongs to a
 * request, or is on ctx->bounces. */
struct nvmeof_bounce {
	struct tei_list node;
	int numa;			/* node it is to be on, or -1 */
	char *mem;			/* TEI_NVMEOF_PIECE bytes */
};

/* A range that may be the local side. ctx->mem, sorted. */
struct nvmeof_mem {
	uint64_t base, end;
	int fixed;			/* slot of its first part, the others
					 * follow, or -1 */
	struct tei_topo_where *where;	/* owned; NULL: not known */
	void *context;			/* memory of a GPU: its, or NULL */
	bool removing;
};

/* An operation whose done callback is running; on its caller's stack. */
struct nvmeof_ending {
	struct tei_list node;		/* ctx->ending */
	uint64_t base, end;		/* of its local memory */
};

/* What runs requests. Calls with ctx->lock held unless it says otherwise. */
struct nvmeof_backend {
	const char *name;
	/* 0, or a code with err filled where said; no lock */
	int (*start)(struct tei_nvmeof *ctx, struct tei_err *err);
	/* ctx->stopping is set and nothing is under way: ends its threads; no
	 * lock */
	void (*stop)(struct tei_nvmeof *ctx);
	/* ctx->turn or ctx->ready may hold something: somebody is to pump */
	void (*wake)(struct tei_nvmeof *ctx);
	/* the first of a slot for each ctx->part bytes, or -1; no lock. NULL:
	 * has none */
	int (*fix)(struct tei_nvmeof *ctx, void *addr, uint64_t len);
	void (*unfix)(struct tei_nvmeof *ctx, int slot, uint64_t len);
	/* the same for an open file, until before it is closed; slots: n of
	 * these */
	int (*fix_file)(struct tei_nvmeof *ctx, int fd);
	void (*unfix_files)(struct tei_nvmeof *ctx, const int *slots,
			    uint32_t n);
};

extern const struct nvmeof_backend nvmeof_pool;
extern const struct nvmeof_backend nvmeof_uring;

/* Threads for looks at files and closes of them. ctx->lock. */
struct nvmeof_side {
	pthread_cond_t work;
	struct tei_list looks;		/* files, look_node */
	struct tei_list closes;		/* segments, node */
	uint32_t waiting;		/* of both */
	uint32_t idle, count;		/* threads */
	bool quit;
	pthread_t thread[NVMEOF_SIDE_MAX];
};

/* Made by tei_nvmeof_init, freed by tei_nvmeof_fini. */
struct tei_nvmeof {
	/* fixed after init */
	const struct nvmeof_backend *backend;
	void *back_end;			/* its own */
	enum nvmeof_sync sync;
	bool use_direct;
	uint32_t depth, threads;
	uint32_t room;			/* requests that run at a time; of the
					 * pool each has a thread */
	uint64_t part;			/* NVMEOF_PART; tests make it less */

	struct tei_mutex lock;		/* guards what follows */
	pthread_cond_t work;		/* turn or ready: the pool's */
	pthread_cond_t ended;		/* operations or memory */
	struct tei_list live;		/* ops, live_node */
	struct tei_list turn;		/* files with ops in their queue */
	struct tei_list busy;		/* files with requests, busy_node */
	uint32_t running;		/* requests, but for stalled files' */
	uint32_t all;			/* those too */
	struct tei_list over;		/* ops to be told, node */
	struct tei_list looks;		/* files, look_node */
	struct tei_list ending;		/* nvmeof_ending */
	struct tei_list idle, ready;	/* ios */
	struct tei_list gpu_ready;	/* ios for cuFile */
	struct tei_list bounces;	/* those of no io, latest first */
	uint32_t nbounces;		/* all; depth at most */
	uint32_t misses;		/* takes of one on another node */
	struct nvmeof_side side;
	struct nvmeof_cufile *cufile;	/* set once; NULL: none */
	struct nvmeof_mem *mem;
	uint32_t nmem, mem_room;
	uint64_t clock;			/* raised by submits, failures, looks */
	bool stopping;
	struct tei_nvmeof_counters counters;

	/* set by tests before the first operation; another result than the
	 * kernel's, ctx->lock held */
	int64_t (*spoil)(void *arg, const struct nvmeof_io *io, int64_t res);
	void *spoil_arg;
	/* whether the storage is silent: it keeps the request, until the test
	 * puts it among those that are ready; ctx->lock held */
	bool (*keep)(void *arg, struct nvmeof_io *io);
	void *keep_arg;
	/* before what a server of files may hold up; no lock */
	void (*hold)(void *arg, const struct nvmeof_file *f);
	void *hold_arg;

	struct nvmeof_io *ios;		/* depth of them */
	struct tei_log_limit log_limit;
};

/* --- nvmeof_file.c ------------------------------------------------------- */

/* A record of what is wrong with a file. sys_errno 0: none. Returns code. */
int nvmeof_explain(struct tei_err *err, int code, const struct nvmeof_file *f,
		   int sys_errno, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Whether the file is at its path and as long as it should be; blocks where
 * its server does. */
int nvmeof_file_look(const struct nvmeof_file *f, struct tei_err *err);
/* The cheap part: what was opened is long enough and has a name. */
int nvmeof_file_glance(const struct nvmeof_file *f, struct tei_err *err);
/* Closes the files; blocks where their servers do. */
void nvmeof_seg_free(struct tei_nvmeof_seg *seg);
/* The file that holds the segment's byte at offset. */
uint32_t nvmeof_file_at(const struct tei_nvmeof_seg *seg, uint64_t offset);

/* --- nvmeof_mem.c -------------------------------------------------------- */

/* The range that holds [addr, addr+len) and may be used, or NULL. */
const struct nvmeof_mem *nvmeof_mem_find(struct tei_nvmeof *ctx,
					 const void *addr, uint64_t len)
	TEI_REQUIRES(ctx->lock);

/* Puts a range into the table. */
int nvmeof_mem_insert(struct tei_nvmeof *ctx, const struct nvmeof_mem *m);

/* The slot of bytes of the range, or -1: none, or they are in two parts. */
int nvmeof_mem_slot(const struct tei_nvmeof *ctx, const struct nvmeof_mem *m,
		    const void *addr, uint64_t len);

/* The NUMA node of a byte of the range, or -1. */
int nvmeof_mem_node(const struct nvmeof_mem *m, const void *addr);

/* --- nvmeof_bounce.c ----------------------------------------------------- */

/* One on the NUMA node; any where that is -1, or where there are as many as
 * there may be: new memory costs more than to copy once from another node, so
 * that only every NVMEOF_MISSES-th such one is moved. NULL: no memory, or more
 * requests than depth have one. */
struct nvmeof_bounce *nvmeof_bounce_take(struct tei_nvmeof *ctx, int numa)
	TEI_REQUIRES(ctx->lock);
void nvmeof_bounce_give(struct tei_nvmeof *ctx, struct nvmeof_bounce *b)
	TEI_REQUIRES(ctx->lock);
/* Nothing is under way any more. */
void nvmeof_bounce_fini(struct tei_nvmeof *ctx);

/* --- nvmeof_cufile.c ----------------------------------------------------- */

/* There is something in ctx->gpu_ready. */
void nvmeof_cufile_wake(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock);
/* Nothing is under way; ends its threads and gives back what is registered. */
void nvmeof_cufile_stop(struct tei_nvmeof *ctx);
/* No operation touches it any more; host memory is left alone. */
void nvmeof_cufile_mem_remove(struct tei_nvmeof *ctx,
			      const struct nvmeof_mem *m);
/* A file was opened, or is about to be closed. */
void nvmeof_cufile_file_add(struct tei_nvmeof *ctx, struct nvmeof_file *f);
void nvmeof_cufile_file_remove(struct nvmeof_file *f);

/* --- nvmeof_side.c ------------------------------------------------------- */

/* Has a thread call nvmeof_file_settle; false: not needed, or none can be had.
 * The file is looking from here on. */
bool nvmeof_side_look(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock);
/* Has a thread call nvmeof_seg_free; false: the same. */
bool nvmeof_side_close(struct tei_nvmeof *ctx, struct tei_nvmeof_seg *seg);
void nvmeof_side_init(struct tei_nvmeof *ctx);
/* Ends its threads when all is done; no operation lives. */
void nvmeof_side_stop(struct tei_nvmeof *ctx);
void nvmeof_side_fini(struct tei_nvmeof *ctx);

/* --- nvmeof_op.c --------------------------------------------------------- */

/* Makes ready what there is room for. */
void nvmeof_pump(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock);
/* A request that was ready has ended: bytes, or -errno. It is idle or ready
 * again. nvmeof_io_copy comes before, without the lock. */
void nvmeof_io_done(struct tei_nvmeof *ctx, struct nvmeof_io *io, int64_t res)
	TEI_REQUIRES(ctx->lock);
/* Puts the bytes of a write into the bounce buffer; before it runs, without
 * the lock. */
void nvmeof_io_fill(struct nvmeof_io *io);
/* Takes the bytes of a read out of the bounce buffer. */
void nvmeof_io_copy(struct nvmeof_io *io, int64_t res);
/* RWF_ flags. */
int nvmeof_io_flags(const struct tei_nvmeof *ctx, const struct nvmeof_io *io);
/* Looks at the file for all operations that wait for that; the lock is dropped
 * meanwhile. They, and with them the file, may be gone afterwards. */
void nvmeof_file_settle(struct tei_nvmeof *ctx, struct nvmeof_file *f)
	TEI_REQUIRES(ctx->lock);
/* Looks at files and calls done callbacks; what is due after that is ready.
 * True if there was anything. */
bool nvmeof_settle(struct tei_nvmeof *ctx) TEI_REQUIRES(ctx->lock);
/* Cancels all and waits until nothing lives. */
void nvmeof_cancel_all(struct tei_nvmeof *ctx);
/* cond wait; false: the deadline has passed. */
bool nvmeof_wait(struct tei_nvmeof *ctx, uint64_t deadline_ns)
	TEI_REQUIRES(ctx->lock);

#endif /* TEI_PROV_NVMEOF_INT_H */
