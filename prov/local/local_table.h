/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_LOCAL_TABLE_H
#define TEI_PROV_LOCAL_LOCAL_TABLE_H

/*
 * The registered regions of a context (local_table), and the shared
 * registration table in which other processes of this host read them (design
 * notes in local_shared_table.c).
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/local/tei_local.h"
#include "prov/local/tei_local_gpu.h"

#define LOCAL_MAGIC	UINT64_C(0x314b4f4f434c454d)	/* first word of a
							 * registration table */
#define LOCAL_VERSION	7u
#define LOCAL_SLOTS	256u
#define LOCAL_BLOCK	64u		/* maximum number of regions per
					 * block */
#define LOCAL_INDEX	4096u		/* maximum number of blocks of a
					 * table */
#define LOCAL_BLOCKS (2 * LOCAL_INDEX)	/* number of blocks in a table; enough
					 * for two generations */
/* Flag: other processes may access the region. */
#define LOCAL_ACCESSIBLE UINT64_C(1)
#define LOCAL_WRITABLE	 UINT64_C(2) /* flag: the region is not read-only */
/* Bits of the flags with the number of the file that holds the region, plus 1;
 * 0 if peers cannot map the region. */
#define LOCAL_FILE_SHIFT 8
#define LOCAL_FILE_MASK	 (UINT64_C(0xff) << LOCAL_FILE_SHIFT)
/* Position of the serial number of the registration in the flags. The number
 * has 48 bits and is not 0. Each registration of a context gets a new one. */
#define LOCAL_SERIAL_SHIFT 16
/* Files of mappable memory, one per page size (local_memory.c). */
#define LOCAL_FILES	3u
/* Maximum number of regions of GPU memory that peers can map. */
#define LOCAL_GPU	1024u
/* Maximum number of files of all these regions together. */
#define LOCAL_GPU_FILES 2048u
/* Size of each of these files, bytes. The files are sparse. */
#define LOCAL_FILE_SIZE (UINT64_C(1) << 60)

struct local_slot {
	_Atomic uint64_t owner;		/* result of local_owner for the owner;
					 * 0 if the slot is free */
	_Atomic uint64_t base[2];	/* start of each of the two ranges */
	_Atomic uint64_t end[2];	/* end of each of the two ranges; end[0]
					 * is stored last and makes the slot
					 * valid */
	_Atomic uint64_t uses;		/* number of earlier uses of the slot;
					 * the present use is not counted */
	uint64_t spare[2];
};

struct local_entry {
	_Atomic uint64_t base;
	_Atomic uint64_t end;
	_Atomic uint64_t flags; /* LOCAL_ACCESSIBLE, LOCAL_WRITABLE, the number
				 * of the file, the serial number */
	_Atomic uint64_t offset; /* offset of base in the file, bytes */
};

/* GPU memory that peers can map with a handle of the GPU driver (design notes in
 * local_gpu.c). */
struct local_gpu_entry {
	_Atomic uint64_t serial;	/* number of the registration; 0 if the
					 * entry is free */
	_Atomic uint64_t base;
	_Atomic uint64_t end;
	_Atomic uint64_t data[TEI_LOCAL_GPU_DATA / 8]; /* handle of the GPU
							* driver */
	_Atomic uint64_t files; /* lower 32 bits: position of the first file;
				 * upper 32 bits: number of files */
};

_Static_assert(sizeof(struct local_gpu_entry) == 128, "two cache lines");

/* A file that belongs to a region of GPU memory. */
struct local_gpu_file {
	_Atomic uint64_t fd;	/* file descriptor in the target */
	_Atomic uint64_t inode; /* inode number of the file */
	_Atomic uint64_t number; /* tei_local_gpu_file.number */
	uint64_t spare;
};

/* A file of mappable memory. */
struct local_file {
	_Atomic uint64_t number;	/* file descriptor in the target, plus
					 * 1; 0 if the file does not exist */
	_Atomic uint64_t inode;		/* inode number of the file */
};

struct local_head {
	_Atomic uint64_t magic;
	_Atomic uint64_t incarnation;	/* becomes 0 when the context is
					 * closed */
	_Atomic uint64_t layout;	/* result of local_layout */
	_Atomic uint64_t generation;	/* bit 0 selects the current index */
	_Atomic uint64_t count[2];	/* number of entries in each index */
	struct local_file files[LOCAL_FILES];
	/* Robust futex word: id of the watch thread of the process that created
	 * the table. The thread holds the word while it runs; 0 if no thread
	 * holds it. The kernel sets FUTEX_OWNER_DIED when the process ends or
	 * calls exec. */
	_Atomic uint32_t holder;
	/* number of entries of local_shared_table.gpu that were ever used */
	_Atomic uint32_t gpu_used;
};

/*
 * One entry of an index: describes a block by the start of its first region and
 * by its position.
 */
struct local_entry_block {
	_Atomic uint64_t base;
	_Atomic uint64_t place;		/* lower 32 bits: number of the
					 * published block; upper 32 bits:
					 * number of its regions */
};

/*
 * Sections are 64 KiB apart, a multiple of every page size, so each can have
 * its own protection.
 */
#define LOCAL_SECTION	65536u

struct local_shared_table {
	union {
		struct local_head head;
		char head_room[LOCAL_SECTION];
	};
	union {
		struct {
			struct local_slot slots[LOCAL_SLOTS];
			_Atomic uint64_t scratch; /* word that another process
						   * writes to test its write
						   * access */
		};
		char slot_room[LOCAL_SECTION];
	};
	struct local_entry_block index[2][LOCAL_INDEX];
	struct local_entry block[LOCAL_BLOCKS][LOCAL_BLOCK];
	struct local_gpu_entry gpu[LOCAL_GPU];
	struct local_gpu_file gpu_files[LOCAL_GPU_FILES];
};

_Static_assert(sizeof(struct local_slot) == 64, "one cache line");
_Static_assert(offsetof(struct local_shared_table, slots) == LOCAL_SECTION, "");
_Static_assert(offsetof(struct local_shared_table, index) == 2 * LOCAL_SECTION,
	       "");
_Static_assert(sizeof(struct local_shared_table) % LOCAL_SECTION == 0, "");

/*
 * A registered region. Owned by the context's table, in which regions are
 * disjoint and sorted by base.
 */
struct local_region {
	uint64_t base;
	uint64_t end;
	uint64_t offset;		/* offset of base in the file, bytes */
	uint64_t serial;		/* number of the registration */
	uint32_t access;		/* TEI_LOCAL_REMOTE and
					 * TEI_LOCAL_READ_ONLY */
	uint32_t file;			/* number of the file plus 1, or 0 */
	bool removing;			/* no new operation may use the
					 * region */
	bool hidden;			/* the region is being removed and is
					 * not published */
};

struct local_regions {
	struct local_region r[LOCAL_BLOCK];
};

/* One block. The struct is small because a publication reads all of these
 * structs. */
struct local_block {
	struct local_regions *in;	/* regions of the block; owned by the
					 * block */
	uint64_t last;			/* end of the last region of the
					 * block */
	uint16_t n;			/* number of regions, at least 1 */
	uint16_t visible;		/* number of regions that are
					 * published */
	uint16_t place;			/* number of the published copy of the
					 * block, plus 1; 0 if there is none */
	bool dirty;			/* the block has changed since it was
					 * published */
};

/* The regions of a context. Guarded by the context's lock. */
struct local_table {
	struct local_block *blocks;	/* array of blocks, sorted by address */
	uint32_t nblocks;		/* number of blocks in use */
	uint32_t room;			/* number of allocated entries of
					 * "blocks" */
	uint32_t nregions;		/* number of regions in all blocks */
	/* for each of the two published indexes: the range [from, to) of blocks
	 * that have changed or moved since the index was written */
	struct {
		uint32_t from, to;
	} stale[2];
	/* two arrays with the numbers of published blocks, each plus 1 */
	uint16_t *unused;		/* blocks that can be published now */
	uint16_t *leaving;		/* blocks that the current generation
					 * uses and the next one does not */
	uint32_t nunused, nleaving;	/* number of entries of the two
					 * arrays */
	uint32_t used;			/* highest number of a published block
					 * that was ever used */
};

/* A position in the table of regions. */
struct local_at {
	uint32_t block;			/* index of the block */
	uint32_t at;			/* index of the region in the block */
};

/* Returns the position of the first region that ends above addr. */
struct local_at local_table_seek(const struct local_table *t, uint64_t addr);
/* Returns the region at a position, or NULL if the position is after the last
 * region. */
struct local_region *local_table_get(const struct local_table *t,
				     struct local_at at);
/* Returns the position of the region after the one at the given position. */
struct local_at local_table_next(const struct local_table *t,
				 struct local_at at);
/* Marks the region at the given position as changed. */
void local_table_touch(struct local_table *t, struct local_at at);
/* Inserts region before the one at the given position. Returns 0,
 * TEI_ERR_TOO_MANY or TEI_ERR_MEMORY. */
int local_table_insert(struct local_table *t, struct local_at at,
		       const struct local_region *region);
void local_table_remove(struct local_table *t, struct local_at at);
void local_table_clear(struct local_table *t);
bool local_table_init(struct local_table *t);
void local_table_fini(struct local_table *t);
/* Assigns new published blocks to the changed blocks, because readers may be
 * using the old ones. Must be called before index "which" is written. */
void local_table_renew(struct local_table *t, unsigned int which);
/* Records that index "which" has all changes, and makes the published blocks
 * that only the previous generation used available again. Must be called after
 * the new generation has been published with this index. */
void local_table_settle(struct local_table *t, unsigned int which);

static inline uint64_t local_layout(void)
{
	return (uint64_t)LOCAL_VERSION << 32 |
	       sizeof(struct local_shared_table);
}

static inline bool local_overlaps(uint64_t b1, uint64_t e1, uint64_t b2,
				  uint64_t e2)
{
	return b1 < e2 && b2 < e1;
}

/*
 * Maps a private registration table for copies within this process. Sets
 * *wiped_by_fork to true if a forked child will find the table filled with
 * zeros. Returns NULL if memory is short.
 */
struct local_shared_table *local_shared_table_private(bool *wiped_by_fork);

/*
 * Maps a registration table in a sealed memfd. Stores the descriptor of the
 * memfd in *fd. Returns NULL with errno set on failure.
 */
struct local_shared_table *local_shared_table_shared(int *fd);

/*
 * Maps a peer's registration table: the region tables read-only, the slots
 * writable. Checks the file descriptor and returns the reason if it is
 * unsuitable. Does not read the content yet.
 */
enum tei_local_reason
local_shared_table_attach(pid_t pid, int fd, struct local_shared_table **out);
void local_shared_table_unmap(struct local_shared_table *b);

/*
 * Publishes the regions that are not hidden, with the given generation. Each
 * changed block of "table" must have a new block in which it is published; the
 * caller has called local_table_renew for that.
 */
void local_shared_table_publish(struct local_shared_table *b,
				uint64_t generation,
				const struct local_table *table);

/*
 * Returns true if one published region that has all of the flags holds the
 * range. local_shared_table_serial returns the serial number of this region, or
 * 0 if there is none.
 */
bool local_shared_table_covers(struct local_shared_table *b, uint64_t addr,
			       uint64_t len, uint64_t flags);
uint64_t local_shared_table_serial(struct local_shared_table *b, uint64_t addr,
				   uint64_t len, uint64_t flags);

/* The position of a range in a file of mappable memory. */
struct local_place {
	uint32_t file;		/* number of the file, below LOCAL_FILES */
	uint64_t offset;	/* bytes; the range ends within the file */
	uint64_t begin, end;	/* offsets of the region that contains the
				 * range */
};

/*
 * Gets the position of the range in a file. Returns false if the range is not
 * in one published region, or if peers cannot map that region. The position is
 * valid as long as a copy slot that covers the range is armed.
 */
bool local_shared_table_place(struct local_shared_table *b, uint64_t addr,
			      uint64_t len, struct local_place *out);

/*
 * Gets the published region that contains addr. Returns false if there is none.
 * The region may be withdrawn at any time.
 */
bool local_shared_table_region(struct local_shared_table *b, uint64_t addr,
			       uint64_t *base, uint64_t *end);

/*
 * Claims a slot and arms it for both ranges. Returns NULL if no slot is free.
 */
struct local_slot *local_slot_enter(struct local_shared_table *b,
				    uint64_t owner, const uint64_t base[2],
				    const uint64_t end[2]);
void local_slot_leave(struct local_slot *s);

/*
 * Waits until every copy that uses the range and began before the call has
 * ended. The function waits until it has seen each slot at least once in one of
 * these states: free, owned by a process that has ended, armed for other
 * ranges. Does not wait for copies that begin later. Returns false at the
 * deadline.
 */
bool local_slots_drain(struct local_shared_table *b, uint64_t base,
		       uint64_t end, uint64_t deadline_ns);

/* Frees the slots of owners that have ended. */
void local_slots_reclaim(struct local_shared_table *b);

#endif /* TEI_PROV_LOCAL_LOCAL_TABLE_H */
