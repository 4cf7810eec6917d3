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
 * said that it has finished, may still read the block. Such a block is dirty
 * and must not be used again. Unregistering a dirty block needs a fence, which
 * disturbs all peers. So tei_rail_bounce_surplus returns a dirty block only if
 * dirty blocks occupy more than TEI_RAIL_BOUNCE_IDLE bytes, and at most one per
 * second. A block that only local tasks use is never dirty, because a task that
 * has ended no longer accesses its local memory, even if it is unfenced.
 *
 * Lock. The pool has no lock. Its owner chooses a lock that guards the pool,
 * and holds it in all calls of the functions below "with the owner's lock". The
 * functions below "functions that block" access only the constant members of
 * the pool, so the owner usually calls them without the lock.
 *
 * Users. The engine has a pool for requests with TE_REQ_BOUNCE
 * (api/transport_bounce.c), and each domain of the provider has one for
 * unregistered buffers (prov/moonrail/moonrail_bounce.h). Two other modules
 * have bounce buffers that do not fit into this pool:
 *
 * - GPU staging (prov/staging/) has a fixed number of slots for each context of
 *   the CUDA driver. The slots must lie near the GPU of this context, be pinned
 *   in the context and be registered with the transport of files, too. A slot
 *   can be lost to a GPU that hangs, and a slot that was granted to a peer gets
 *   other memory if the peer does not give it back. These states belong to the
 *   protocol of staging, and the number of slots is a part of what a peer is
 *   granted. A common pool would have to know all these states. The only common
 *   code would be the choice of the NUMA node, which is tei_rail_node_near
 *   already.
 * - Files (prov/nvmeof/) use aligned buffers for O_DIRECT on the NUMA node of
 *   the device. No rail accesses these buffers, so they are not registered.
 *   Moreover, prov/nvmeof/ must not use prov/rail/.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/list.h"

struct tei_rail_dp;

/* Number of different sizes of the blocks that are cut from slabs. */
#define TEI_RAIL_BOUNCE_SIZES	 3
/* Value of tei_rail_bounce.kind for a separate block. The kind of any other
 * block is the index of its size. */
#define TEI_RAIL_BOUNCE_SEPARATE (-1)
/* Limit for the total size of the idle separate blocks, and another limit, of
 * the same value, for the total size of the dirty blocks, bytes. */
#define TEI_RAIL_BOUNCE_IDLE	 (64u << 20)

/* A bounce buffer: a part of a slab, or a separate block. The owner of the pool
 * may use it from tei_rail_bounce_take until tei_rail_bounce_put. */
struct tei_rail_bounce {
	struct tei_list link;		/* entry of a list of the pool. While
					 * the owner of the pool has taken the
					 * block, the owner may use this
					 * member */
	char *mem;			/* memory of the block; constant */
	uint64_t size;			/* size of mem, bytes; constant */
	int kind;			/* constant; index of the size, or
					 * TEI_RAIL_BOUNCE_SEPARATE */
	/* memory that the owner of the pool may use, initially 0; its size is
	 * the argument "room" of tei_rail_bounces_init, bytes */
	uint64_t room[];
};

/* A registered region that is cut into blocks of one size. */
struct tei_rail_bounce_slab;

/* A pool. Embedded in a struct of its owner. The owner may read the members but
 * not write them. */
struct tei_rail_bounces {
	/* constant */
	struct tei_rail_dp *dp;
	uint32_t access;
	size_t room;

	/* guarded by the owner's lock */
	struct tei_list idle[TEI_RAIL_BOUNCE_SIZES]; /* free blocks by size,
						      * linked by
						      * tei_rail_bounce.link */
	uint32_t nslabs[TEI_RAIL_BOUNCE_SIZES]; /* number of slabs with blocks
						 * of each size */
	struct tei_list slabs;
	struct tei_list separate;	/* idle separate blocks, most recently
					 * used first, linked by
					 * tei_rail_bounce.link */
	uint64_t separate_bytes;	/* total size of the blocks in the list
					 * separate */
	struct tei_list dirty;		/* dirty blocks, linked by
					 * tei_rail_bounce.link */
	uint64_t dirty_bytes;		/* total size of the blocks in the list
					 * dirty */
	uint64_t dirty_ns;		/* time at which a dirty block was last
					 * taken from the list, ns */
	uint32_t in_use;		/* number of blocks that the owner has
					 * taken and has not put back */
	bool scarce;			/* memory is short: idle separate blocks
					 * must be unregistered */
};

/* --- start and end -------------------------------------------------------- */

/* Initializes an empty pool. access: flags of tei_rail_mr_reg for the memory of
 * the blocks. room: size of tei_rail_bounce.room, bytes. Registers nothing. */
void tei_rail_bounces_init(struct tei_rail_bounces *b, struct tei_rail_dp *dp,
			   uint32_t access, size_t room);
/* Frees all memory of the pool after the data plane was closed. The owner must
 * have put all blocks. */
void tei_rail_bounces_fini(struct tei_rail_bounces *b);
/* Returns the kind of the smallest block that holds len bytes: the index of a
 * size, or TEI_RAIL_BOUNCE_SEPARATE if no size is large enough. */
int tei_rail_bounce_kind(uint64_t len);
/* tei_rail_bounce_size returns the size of the blocks of a kind, bytes;
 * tei_rail_bounce_count returns the number of blocks in one slab of that kind.
 * kind must not be TEI_RAIL_BOUNCE_SEPARATE. */
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
/* Returns a block to the pool. clean: true if no peer reads the block any
 * longer. Otherwise a separate block becomes dirty; blocks of slabs never
 * become dirty. */
void tei_rail_bounce_put(struct tei_rail_bounces *b,
			 struct tei_rail_bounce *block, bool clean);
/* tei_rail_bounce_slab_add adds the blocks of a slab to the pool, and
 * tei_rail_bounce_add a separate block. used: true if the owner keeps the block
 * and will put it back later. */
void tei_rail_bounce_slab_add(struct tei_rail_bounces *b,
			      struct tei_rail_bounce_slab *slab);
void tei_rail_bounce_add(struct tei_rail_bounces *b,
			 struct tei_rail_bounce *block, bool used);
/* Returns true if the idle separate blocks or the dirty blocks exceed their
 * limit, so that tei_rail_bounce_surplus should be called. */
bool tei_rail_bounce_too_many(const struct tei_rail_bounces *b);
/*
 * Removes and returns a block that the owner must pass to tei_rail_bounce_free.
 * If idle blocks exceed their limit or memory is scarce, this is the least
 * recently used idle separate block; otherwise a dirty block if dirty blocks
 * exceed their limit. Returns NULL if no block needs to be unregistered at time
 * now. If tei_rail_bounce_free fails, the owner calls
 * tei_rail_bounce_add_dirty.
 */
struct tei_rail_bounce *tei_rail_bounce_surplus(struct tei_rail_bounces *b,
						uint64_t now);
void tei_rail_bounce_add_dirty(struct tei_rail_bounces *b,
			       struct tei_rail_bounce *block);
/* Handles a failed registration: marks the idle separate blocks as surplus.
 * Returns true if waiting makes sense, because an idle separate block will be
 * unregistered or a used block will be put back. */
bool tei_rail_bounce_scarce(struct tei_rail_bounces *b);

/* --- functions that block ------------------------------------------------ */

/* tei_rail_bounce_slab_new allocates and registers a slab with blocks of one
 * kind. tei_rail_bounce_new does so for a separate block of at least len bytes.
 * Both return NULL if memory is short or a rail refuses the registration. */
struct tei_rail_bounce_slab *
tei_rail_bounce_slab_new(const struct tei_rail_bounces *b, int kind);
struct tei_rail_bounce *tei_rail_bounce_new(const struct tei_rail_bounces *b,
					    uint64_t len);
/* Unregisters and frees a separate block that is in no list. Waits for peers
 * which may read the block. Returns true on success. If the block cannot be
 * unregistered, logs a warning, keeps the block and returns false. */
bool tei_rail_bounce_free(const struct tei_rail_bounces *b,
			  struct tei_rail_bounce *block);

#endif /* TEI_PROV_RAIL_TEI_RAIL_BOUNCE_H */
