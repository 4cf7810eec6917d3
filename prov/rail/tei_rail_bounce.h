/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_BOUNCE_H
#define TEI_PROV_RAIL_TEI_RAIL_BOUNCE_H

/*
 * A pool of bounce buffers: registered host memory through which the bytes of
 * memory that is not registered pass.
 *
 * Blocks. The pool cuts blocks of three sizes from registered slabs, which stay
 * registered until the data plane is closed. A block that is larger than the
 * largest size, or that a peer reads, is separate: it has a registration of its
 * own, which can end before the data plane does.
 *
 * Growth. Registration may take milliseconds and may wait for the progress
 * thread. No function that takes a block registers memory, so a transfer that
 * finds no block must wait until a thread of the owner has made one with
 * tei_rail_bounce_slab_new or tei_rail_bounce_new. The owner limits the growth.
 *
 * Dirty blocks. A peer that was told to read a separate block, and that has not
 * said that it has finished, may still read the block. Such a block is dirty:
 * nothing else is put into it. Unregistering a dirty block needs a fence, which
 * disturbs all peers. So tei_rail_bounce_surplus returns dirty blocks only if
 * there are more than TEI_RAIL_BOUNCE_IDLE bytes of them, and at most one per
 * second. A block that only local tasks use is never dirty, because a task that
 * has ended no longer accesses its local memory, even if it is unfenced.
 *
 * Lock. The pool has no lock. Its owner states which lock guards it, and holds
 * this lock in the functions of the second group. The functions of the third
 * group block, and access only the constant members of the pool. So the owner
 * usually calls them without the lock.
 *
 * Users. The engine has a pool for requests with TE_REQ_BOUNCE
 * (api/transport_bounce.c), and each domain of the provider has one for
 * unregistered buffers (prov/moonrail/moonrail_bounce.h). Two other modules
 * have bounce buffers that do not fit into this pool:
 *
 * - GPU staging (prov/staging/) has a fixed number of slots for each context of
 *   the CUDA driver. The slots must lie near that GPU, be pinned in its
 *   context and be registered with the transport of files, too. A slot can be
 *   lost to a GPU that hangs, and a slot that was granted to a peer gets other
 *   memory if the peer does not give it back. These states belong to the
 *   protocol of staging, and the number of slots is a part of what a peer is
 *   granted. A common pool would have to know about all of them, and would
 *   share nothing but the allocation of pages, which tei_rail_mem_near already
 *   does.
 * - Files (prov/nvmeof/) use aligned buffers for O_DIRECT on the NUMA node of
 *   the device. No rail accesses them, so they are not registered, and that
 *   module must not use rails.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

struct tei_rail_dp;

/* Number of sizes of the blocks that are cut from slabs. */
#define TEI_RAIL_BOUNCE_SIZES	 3
/* Kind of a separate block. */
#define TEI_RAIL_BOUNCE_SEPARATE (-1)
/* The largest number of bytes that the pool keeps in separate blocks which are
 * not in use, and the largest number in dirty blocks. */
#define TEI_RAIL_BOUNCE_IDLE	 (64u << 20)

/* A bounce buffer: a part of a slab, or a separate block. It belongs to the
 * owner of the pool from take to put. */
struct tei_rail_bounce {
	struct tei_list link;		/* in a list of the pool; while the
					 * owner has the block, the owner may
					 * use this member */
	char *mem;			/* constant */
	uint64_t size;			/* constant; bytes of mem */
	int kind;			/* constant; index of the size, or
					 * TEI_RAIL_BOUNCE_SEPARATE */
	/* memory for the owner's use, initially 0; the argument room of
	 * tei_rail_bounces_init is its size in bytes */
	uint64_t room[];
};

/* A registered region that is cut into blocks of one size. */
struct tei_rail_bounce_slab;

/* A pool. Embedded in a struct of its owner, which only reads the members. */
struct tei_rail_bounces {
	/* constant */
	struct tei_rail_dp *dp;
	uint32_t access;
	size_t room;

	/* guarded by the owner's lock */
	struct tei_list idle[TEI_RAIL_BOUNCE_SIZES]; /* free blocks by size,
						      * linked by
						      * tei_rail_bounce.link */
	uint32_t nslabs[TEI_RAIL_BOUNCE_SIZES]; /* slabs by the size of their
						 * blocks */
	struct tei_list slabs;
	struct tei_list separate;	/* idle separate blocks, most recently
					 * used first, linked by
					 * tei_rail_bounce.link */
	uint64_t separate_bytes;	/* bytes of the blocks in separate */
	struct tei_list dirty;		/* dirty blocks, linked by their member
					 * link */
	uint64_t dirty_bytes;		/* bytes of the blocks in dirty */
	uint64_t dirty_ns;		/* time at which a dirty block was last
					 * taken from the list, ns */
	uint32_t in_use;		/* blocks that the owner has taken and
					 * not put */
	bool scarce;			/* memory is short: idle separate blocks
					 * must be unregistered */
};

/* --- start and end -------------------------------------------------------- */

/*
 * Initializes an empty pool. access: access flags for tei_rail_mr_reg. room:
 * bytes of struct tei_rail_bounce.room. Registers nothing.
 */
void tei_rail_bounces_init(struct tei_rail_bounces *b, struct tei_rail_dp *dp,
			   uint32_t access, size_t room);
/* Frees all memory of the pool after the data plane was closed. The owner must
 * have put all blocks. */
void tei_rail_bounces_fini(struct tei_rail_bounces *b);
/* Returns the kind of block for len bytes. */
int tei_rail_bounce_kind(uint64_t len);
/* Returns the size of the blocks of a kind other than separate, bytes, and the
 * number of blocks of one slab. */
uint32_t tei_rail_bounce_size(int kind);
uint32_t tei_rail_bounce_count(int kind);

/* --- with the owner's lock ------------------------------------------------ */

/* tei_rail_bounce_take takes an idle block for len bytes,
 * tei_rail_bounce_take_separate an idle separate block for len bytes. Both
 * return NULL if there is none. */
struct tei_rail_bounce *tei_rail_bounce_take(struct tei_rail_bounces *b,
					     uint64_t len);
struct tei_rail_bounce *
tei_rail_bounce_take_separate(struct tei_rail_bounces *b, uint64_t len);
/* Gives a block back. clean: no peer reads the block any longer. If clean is
 * false, the block is dirty; only a separate block can be. */
void tei_rail_bounce_put(struct tei_rail_bounces *b,
			 struct tei_rail_bounce *block, bool clean);
/* Adds a slab, or a separate block, to the pool. used: the owner keeps the
 * block and will put it. */
void tei_rail_bounce_slab_add(struct tei_rail_bounces *b,
			      struct tei_rail_bounce_slab *slab);
void tei_rail_bounce_add(struct tei_rail_bounces *b,
			 struct tei_rail_bounce *block, bool used);
/* Returns true if tei_rail_bounce_surplus should be called. */
bool tei_rail_bounce_too_many(const struct tei_rail_bounces *b);
/*
 * Takes a block that must be unregistered with tei_rail_bounce_free: the least
 * recently used idle one if there are too many or memory is scarce, or a dirty
 * one. Returns NULL if there is none at time now. If tei_rail_bounce_free
 * fails, the owner calls tei_rail_bounce_add_dirty.
 */
struct tei_rail_bounce *tei_rail_bounce_surplus(struct tei_rail_bounces *b,
						uint64_t now);
void tei_rail_bounce_add_dirty(struct tei_rail_bounces *b,
			       struct tei_rail_bounce *block);
/* Handles a failed registration: marks the idle separate blocks as surplus.
 * Returns true if memory or a block may become free soon. */
bool tei_rail_bounce_scarce(struct tei_rail_bounces *b);

/* --- functions that block ------------------------------------------------ */

/* Registers a slab of blocks of one kind, or a separate block of at least len
 * bytes. Returns NULL if memory is short. */
struct tei_rail_bounce_slab *
tei_rail_bounce_slab_new(const struct tei_rail_bounces *b, int kind);
struct tei_rail_bounce *tei_rail_bounce_new(const struct tei_rail_bounces *b,
					    uint64_t len);
/* Unregisters and frees a separate block that is in no list. Waits for peers
 * which may read the block. Logs a warning and returns false if it stays
 * registered. */
bool tei_rail_bounce_free(const struct tei_rail_bounces *b,
			  struct tei_rail_bounce *block);

#endif /* TEI_PROV_RAIL_TEI_RAIL_BOUNCE_H */
