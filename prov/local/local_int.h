/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_INT_H
#define TEI_PROV_LOCAL_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/local/tei_local.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"

#define LOCAL_MAGIC	UINT64_C(0x314b4f4f434c454d)	/* in the cookie */
#define LOCAL_VERSION	3u
#define LOCAL_SLOTS	256u
#define LOCAL_BLOCK	64u		/* regions of a block, at most */
#define LOCAL_INDEX	4096u		/* blocks of a table, at most */
#define LOCAL_BLOCKS	(2 * LOCAL_INDEX) /* of two generations */
#define LOCAL_ACCESSIBLE UINT64_C(1)	/* local_entry.flags: others may */
#define LOCAL_WRITABLE	UINT64_C(2)	/* not for reading only */
#define LOCAL_CUT_MIN	(64u << 10)	/* pieces aren't cut below this */

/* ---- board: see the note in local_board.c ------------------------------ */

struct local_slot {
	_Atomic uint64_t owner;		/* local_owner word, 0 is free */
	_Atomic uint64_t base[2];	/* ranges in use: [base, end) */
	_Atomic uint64_t end[2];	/* end[0] is stored last: armed */
	_Atomic uint64_t uses;		/* counted up when one ends */
	uint64_t spare[2];
};

struct local_entry {
	_Atomic uint64_t base;
	_Atomic uint64_t end;
	_Atomic uint64_t flags;		/* LOCAL_ACCESSIBLE, … */
};

struct local_head {
	_Atomic uint64_t magic;
	_Atomic uint64_t incarnation;	/* 0 once the context closes */
	_Atomic uint64_t layout;	/* local_layout() */
	_Atomic uint64_t generation;	/* the epoch; bit 0 picks the index */
	_Atomic uint64_t count[2];	/* of entries in each index */
};

/* One block in force: where its first region starts, and which block it is. */
struct local_entry_block {
	_Atomic uint64_t base;
	_Atomic uint64_t place;		/* index | regions << 32 */
};

/* Sections lie 64 KiB apart, so that each can have its own protection. */
#define LOCAL_SECTION	65536u

struct local_board {
	union {
		struct local_head head;
		char head_room[LOCAL_SECTION];
	};
	union {
		struct {
			struct local_slot slots[LOCAL_SLOTS];
			_Atomic uint64_t scratch; /* probe of write access */
		};
		char slot_room[LOCAL_SECTION];
	};
	struct local_entry_block index[2][LOCAL_INDEX];
	struct local_entry block[LOCAL_BLOCKS][LOCAL_BLOCK];
};

_Static_assert(sizeof(struct local_slot) == 64, "one cache line");
_Static_assert(offsetof(struct local_board, slots) == LOCAL_SECTION, "");
_Static_assert(offsetof(struct local_board, index) == 2 * LOCAL_SECTION, "");
_Static_assert(sizeof(struct local_board) % LOCAL_SECTION == 0, "");

/* A registered range, in the table of the context. */
struct local_region {
	uint64_t base;
	uint64_t end;
	uint32_t access;		/* TEI_LOCAL_REMOTE, … */
	bool removing;			/* nothing new may begin on it */
	bool hidden;			/* and it is not published */
};

struct local_regions {
	struct local_region r[LOCAL_BLOCK];
};

/* A block of regions. The struct is small, because a publication reads many. */
struct local_block {
	struct local_regions *in;	/* its regions; owned */
	uint64_t last;			/* end address of its last region */
	uint16_t n;			/* regions, at least 1 */
	uint16_t visible;		/* published regions */
	uint16_t place;			/* its block in the boards, plus 1; 0: none
					 * yet */
	bool dirty;			/* changed since the last publication */
};

/* The regions of a context, sorted by address and disjoint. Guarded by the lock of
 * the context. */
struct local_table {
	struct local_block *blocks;	/* sorted by address */
	uint32_t nblocks;		/* blocks in use */
	uint32_t room;			/* allocated entries of blocks */
	uint32_t nregions;		/* regions in all blocks */
	/* Per index of the boards: blocks [from, to) have changed or moved since
	 * that index was written. */
	struct {
		uint32_t from, to;
	} stale[2];
	/* Block numbers of the boards, each plus 1. */
	uint16_t *unused;		/* free */
	uint16_t *leaving;		/* in use by the generation in force, but
					 * not by the next one */
	uint32_t nunused, nleaving;	/* entries of the two arrays */
	uint32_t used;			/* highest number that was ever given out */
};

/* A position in the table. */
struct local_at {
	uint32_t block;			/* index of the block */
	uint32_t at;			/* index of the region in it */
};

/* Returns the position of the first region that ends above addr. */
struct local_at local_table_seek(const struct local_table *t, uint64_t addr);
/* Returns the region at a position; NULL behind the last region. */
struct local_region *local_table_get(const struct local_table *t,
				     struct local_at at);
/* Returns the position behind that one. */
struct local_at local_table_next(const struct local_table *t,
				 struct local_at at);
/* Marks the region at that position as changed. */
void local_table_touch(struct local_table *t, struct local_at at);
/* Inserts a region in front of that position. Returns 0,
 * TEI_ERR_TOO_MANY or TEI_ERR_MEMORY. */
int local_table_insert(struct local_table *t, struct local_at at,
		       const struct local_region *region);
void local_table_remove(struct local_table *t, struct local_at at);
void local_table_clear(struct local_table *t);
bool local_table_init(struct local_table *t);
void local_table_fini(struct local_table *t);
/* Gives each changed block a new block of the boards, because readers may use the
 * present one. Must be called before the index is written. */
void local_table_renew(struct local_table *t, unsigned int which);
/* Frees the blocks of the boards that the new generation does not use. Must be called
 * after that generation is in force. */
void local_table_settle(struct local_table *t, unsigned int which);

static inline uint64_t local_layout(void)
{
	return (uint64_t)LOCAL_VERSION << 32 | sizeof(struct local_board);
}

static inline bool local_overlaps(uint64_t b1, uint64_t e1, uint64_t b2,
				  uint64_t e2)
{
	return b1 < e2 && b2 < e1;
}

/* A private board: only this process, wiped in a child. NULL: no memory. */
struct local_board *local_board_private(bool *wiped_by_fork);

/* A memfd board, sealed; *fd gets its descriptor. NULL with errno set. */
struct local_board *local_board_shared(int *fd);

/*
 * Maps a peer's board: tables read-only, slots writable. The reason says what
 * is wrong with the descriptor; nothing in it is looked at yet.
 */
enum tei_local_reason local_board_attach(pid_t pid, int fd,
					 struct local_board **out);
void local_board_unmap(struct local_board *b);

/*
 * Publishes the regions that are not hidden as that generation. local_table_renew
 * must have given the changed blocks their new places.
 */
void local_board_publish(struct local_board *b, uint64_t generation,
			 const struct local_table *table);

/* True where one published region with all of the flags holds the range. */
bool local_board_covers(struct local_board *b, uint64_t addr, uint64_t len,
			uint64_t flags);

/* Claims and arms a slot for both ranges; NULL when none is free. */
struct local_slot *local_slot_enter(struct local_board *b, uint64_t owner,
				    const uint64_t base[2],
				    const uint64_t end[2]);
void local_slot_leave(struct local_slot *s);

/*
 * Waits until each slot was seen once without a live owner on the range.
 * False at the deadline.
 */
bool local_slots_drain(struct local_board *b, uint64_t base, uint64_t end,
		       uint64_t deadline_ns);

/* Frees the slots of dead owners. */
void local_slots_reclaim(struct local_board *b);

/* ---- this host --------------------------------------------------------- */

/* Filled at init, constant afterwards. */
struct local_host {
	char boot_id[40];
	uint64_t pid_ns;
	uint64_t start_time;		/* of this process */
	int32_t pid;
	bool usable;			/* all of the above could be read */
	const char *missing;		/* what could not, when not usable */
};

void local_host_read(struct local_host *h);

/* 0 or -errno. */
int local_proc_start_time(pid_t pid, uint64_t *out);
int local_pidfd_open(pid_t pid);
bool local_pidfd_ended(int pidfd);

/* The word in a slot: pid and the low bits of the start time. Never 0. */
uint64_t local_owner(pid_t pid, uint64_t start_time);
bool local_owner_alive(uint64_t owner);

/* ---- context ----------------------------------------------------------- */

/*
 * Made by tei_local_init, freed by tei_local_fini. lock is in row 6 of
 * docs/LOCKING.md; only leaf locks are taken under it.
 */
struct tei_local {
	/* fixed after init */
	struct local_host host;
	struct local_board *own;	/* private: checks of this process */
	struct local_board *shared;	/* memfd, or NULL */
	int shared_fd;
	bool wiped;			/* a child finds own zeroed */
	uint64_t owner;
	uint64_t incarnation;
	uint32_t workers;
	uint64_t spin_ns;
	uint64_t stall_ns;
	pthread_t *threads;		/* room for workers */
	/* set by tests before the first copy; inside the slot, before the bytes */
	void (*before_copy)(void *arg);
	void *before_copy_arg;

	struct tei_mutex lock;
	pthread_cond_t work;		/* with lock: queue or stopping */
	pthread_cond_t ended;		/* with lock: an operation ended */
	/* under lock */
	struct local_table table;
	uint32_t adding;		/* calls that hold it back */
	bool unpublished;
	uint64_t generation;
	struct tei_list live;		/* ops, live_node */
	struct tei_list queue;		/* ops, queue_node */
	struct tei_list ending;		/* local_ending */
	uint32_t nthreads;
	uint32_t sleepers;
	uint32_t waiters;
	bool spinning;
	bool stopping;

	/* atomic */
	_Atomic uint32_t queued;	/* ops in queue */
	_Atomic uint64_t queued_bytes;
	_Atomic uint64_t tx_bytes, rx_bytes, pieces, errors;
	struct tei_log_limit log_limit;
};

/* Made by peer_open, freed by peer_close, constant in between. */
struct tei_local_peer {
	struct tei_local_id id;
	struct local_board *board;	/* NULL: the context itself */
	int pidfd;			/* -1: this process */
	bool self;			/* this process: memcpy */
};

/* Memory of this process that an operation touches: two ranges of that length,
 * the same one twice where the far one is another process's. */
struct local_reach {
	uint64_t local, far, length;
};

static inline struct local_reach local_reach(const struct tei_local_op *op)
{
	uint64_t local = (uint64_t)(uintptr_t)op->local;

	return (struct local_reach){
		.local = local,
		.far = op->peer && op->peer->board ? local : op->remote,
		.length = op->length,
	};
}

/* An operation whose done callback is running; on its caller's stack. */
struct local_ending {
	struct tei_list node;		/* ctx->ending, under lock */
	const struct tei_local_op *op;
	const struct tei_local_peer *peer;
	struct local_reach reach;
};

/* 0, or TEI_ERR_CONTEXT in a forked child. */
int local_guard(struct tei_local *ctx);

/*
 * Fills err (may be NULL) and the thread's last error, logs within the
 * context's budget. Returns code.
 */
int local_fail(struct tei_local *ctx, struct tei_err *err, int code,
	       const struct tei_local_peer *peer, int sys_errno,
	       const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* As above without log and last error: for what the caller will report. */
void local_explain(struct tei_err *err, int code, int sys_errno,
		   const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* cond wait that keeps a debug mutex's owner right; false: deadline passed. */
bool local_wait(pthread_cond_t *c, struct tei_mutex *l, uint64_t deadline_ns)
	TEI_REQUIRES(l);

/* Whether op may start: its target in a steady region, its local side too where
 * it must be, no end in one that is being removed. */
bool local_regions_allow(struct tei_local *ctx, const struct tei_local_op *op)
	TEI_REQUIRES(ctx->lock);
void local_regions_clear(struct tei_local *ctx) TEI_REQUIRES(ctx->lock);

/* ---- one piece --------------------------------------------------------- */

struct local_piece {
	struct tei_local *ctx;
	struct tei_local_peer *peer;	/* NULL: the context itself */
	enum tei_local_opcode opcode;
	char *local;
	uint64_t remote;
	uint64_t length;
	struct local_slot *slot;	/* at the peer, once entered */
};

/* Claims the slot at the peer; false: none free. */
bool local_piece_enter(struct local_piece *p);

/* Checks, copies, leaves the slot. 0 or a code with *err filled. */
int local_piece_run(struct local_piece *p, struct tei_err *err);

/* ---- pool -------------------------------------------------------------- */

/* Ends the operations of peer, or all when NULL, and waits for them. */
void local_pool_drain(struct tei_local *ctx, const struct tei_local_peer *peer);
void local_pool_join(struct tei_local *ctx);

/* ---- peer -------------------------------------------------------------- */

/* TEI_LOCAL_OK while the process is there; polls the pidfd, reads the map. */
enum tei_local_reason local_peer_check(struct tei_local_peer *peer);

#endif /* TEI_PROV_LOCAL_INT_H */
