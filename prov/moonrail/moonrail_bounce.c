/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bounce buffers. They are used if rails require registered local memory
 * (FI_MR_LOCAL) or pin registered memory, and the application has not
 * registered its buffer. Registering the buffer on the fly and keeping the
 * registration would be faster, but wrong once the application unmaps the
 * buffer and maps other memory there, because the provider does not learn of
 * that. Memory that the application has registered is used directly.
 *
 * Moves use blocks of three sizes, which are cut from registered slabs that
 * stay until the domain is closed. A sent message that its receiver reads, and
 * a move that is larger than the largest size, have a separate block with a
 * registration of its own. If the receiver never acknowledges a message, its
 * block is dirty: the receiver may still read it, so nothing else is put into
 * it. Unregistering a dirty block needs a fence, which disturbs all peers. So
 * dirty blocks are unregistered only if there are more than 64 MiB of them, and
 * at most one per second.
 *
 * Registration may wait for the progress thread, so only calls of the
 * application and the bounce thread register memory. Unregistration may wait
 * for peers, so only the bounce thread unregisters blocks. A move that finds no
 * free block waits for the bounce thread.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"
#include "util/thread.h"

#define BOUNCE_SIZES	3
#define BOUNCE_IDLE	(64u << 20)	/* limit of idle separate blocks, and of
					 * dirty blocks, bytes */
#define BOUNCE_DIRTY_NS	TEI_NS_PER_SEC	/* shortest time between the ends of two
					 * dirty blocks */
#define BOUNCE_PAGE	UINT64_C(65536)	/* granularity of the sizes of separate
					 * blocks */
#define BOUNCE_WAIT_NS	(5 * TEI_NS_PER_SEC)

static const struct bounce_size {
	uint32_t bytes, blocks;
} bounce_sizes[BOUNCE_SIZES] = {
	{ 4096, 256 }, { 65536, 32 }, { 1048576, 4 },
};

/* A bounce buffer. Part of a slab, or a separate block (bounce_new), which
 * exists until the bounce thread unregisters it or the domain is closed. */
struct moonrail_block {
	struct tei_list link;		/* b->idle, b->alone or b->dirty; in no
					 * list while it is in use */
	char *mem;
	uint64_t size;
	int kind;			/* index of its size; -1: a separate
					 * block */
};

/* A registered region that is cut into blocks of one size. */
struct bounce_slab {
	struct tei_list link;
	char *mem;
	uint64_t size;
	struct moonrail_block block[];
};

/* A move that waits for a block. */
struct bounce_later {
	struct tei_list link;
	struct moonrail_op *op;
	uint32_t n;
	struct moonrail_wire_piece at[MOONRAIL_IOV];
};

/* The bounce buffers of a domain. domain->lock guards all fields above lock. */
struct moonrail_bounces {
	struct moonrail_domain *domain;	/* fixed */
	pthread_t thread;		/* fixed */
	struct tei_list idle[BOUNCE_SIZES]; /* free blocks by size;
					     * moonrail_block.link */
	struct tei_list alone;		/* idle separate blocks, most recently
					 * used first; .link */
	uint64_t alone_bytes;
	struct tei_list dirty;		/* separate blocks that a peer may still
					 * read; .link */
	uint64_t dirty_bytes;
	uint64_t dirty_ns;		/* time at which the last dirty block
					 * was unregistered */
	uint32_t out;			/* blocks in use */
	bool scarce;			/* memory is short: idle separate blocks
					 * must be unregistered */
	struct tei_list spent;		/* pinned ranges to unregister;
					 * moonrail_pin.link */
	struct tei_list slabs;		/* bounce_slab.link */
	struct tei_list later;		/* bounce_later.link */

	struct tei_mutex lock;		/* guards the fields below; a leaf */
	pthread_cond_t cond;
	bool work, stop;
};

static void bounce_wake(struct moonrail_bounces *b, bool stop)
{
	tei_mutex_lock(&b->lock);
	b->work = true;
	b->stop |= stop;
	pthread_cond_signal(&b->cond);
	tei_mutex_unlock(&b->lock);
}

/* --- blocks -------------------------------------------------------------- */

static void *bounce_region(struct moonrail_domain *d, uint64_t size)
{
	void *mem = tei_rail_mem_near(d->dp, "*", size);
	struct tei_rail_mr *mr;

	if (!mem)
		return NULL;
	if (!tei_rail_mr_reg(d->dp, mem, size, "*", TEI_RAIL_REMOTE, NULL,
			     &mr))
		return mem;
	munmap(mem, size);
	return NULL;
}

static int bounce_kind(uint64_t len)
{
	int k;

	for (k = 0; k < BOUNCE_SIZES; k++)
		if (len <= bounce_sizes[k].bytes)
			return k;
	return -1;
}

/* Registers a slab of blocks of one size. Called only by the bounce thread,
 * without the lock. Returns NULL if memory is short. */
static struct bounce_slab *bounce_new_slab(struct moonrail_domain *d, int kind)
{
	const struct bounce_size *s = &bounce_sizes[kind];
	struct bounce_slab *slab;
	uint32_t i;

	slab = calloc(1, sizeof(*slab) + s->blocks * sizeof(slab->block[0]));
	if (!slab)
		return NULL;
	slab->size = (uint64_t)s->bytes * s->blocks;
	slab->mem = bounce_region(d, slab->size);
	if (!slab->mem) {
		free(slab);
		return NULL;
	}
	for (i = 0; i < s->blocks; i++) {
		slab->block[i].mem = slab->mem + (uint64_t)i * s->bytes;
		slab->block[i].size = s->bytes;
		slab->block[i].kind = kind;
	}
	return slab;
}

static void bounce_add_slab(struct moonrail_bounces *b,
			    struct bounce_slab *slab, int kind)
{
	uint32_t i;

	tei_list_add_tail(&b->slabs, &slab->link);
	for (i = 0; i < bounce_sizes[kind].blocks; i++)
		tei_list_add_tail(&b->idle[kind], &slab->block[i].link);
}

/* Registers a separate block. Called by the bounce thread without the lock, or
 * by a thread of the application. Returns NULL if memory is short. */
static struct moonrail_block *bounce_new(struct moonrail_domain *d,
					 uint64_t len)
{
	struct moonrail_block *block = calloc(1, sizeof(*block));

	if (!block)
		return NULL;
	tei_list_init(&block->link);
	block->kind = -1;
	block->size = (len + BOUNCE_PAGE - 1) / BOUNCE_PAGE * BOUNCE_PAGE;
	block->mem = bounce_region(d, block->size);
	if (!block->mem) {
		free(block);
		return NULL;
	}
	return block;
}

static void bounce_add_dirty(struct moonrail_bounces *b,
			     struct moonrail_block *block)
{
	tei_list_add_tail(&b->dirty, &block->link);
	b->dirty_bytes += block->size;
}

static void bounce_add_alone(struct moonrail_bounces *b,
			     struct moonrail_block *block)
{
	tei_list_add_head(&b->alone, &block->link);
	b->alone_bytes += block->size;
}

/* Unregisters and frees a separate block that is in no list. If the block
 * cannot be unregistered, it becomes dirty. */
static void bounce_drop(struct moonrail_domain *d, struct moonrail_block *block)
{
	struct tei_err err;

	if (!tei_rail_mr_dereg(d->dp, block->mem, BOUNCE_WAIT_NS, &err)) {
		munmap(block->mem, block->size);
		free(block);
		return;
	}
	TEI_WARN("prov", "memory at %p stays registered: %s", (void *)block->mem,
		 err.text);
	moonrail_enter(d);
	bounce_add_dirty(d->bounces, block);
	moonrail_leave(d);
}

static struct moonrail_block *bounce_take_alone(struct moonrail_bounces *b,
						uint64_t len)
{
	struct moonrail_block *block;

	tei_list_foreach(block, &b->alone, struct moonrail_block, link) {
		if (block->size < len || block->size / 4 > len)
			continue;
		tei_list_del(&block->link);
		b->alone_bytes -= block->size;
		b->out++;
		return block;
	}
	return NULL;
}

static struct moonrail_block *bounce_take(struct moonrail_bounces *b,
					  uint64_t len)
{
	int kind = bounce_kind(len);
	struct moonrail_block *block;

	if (kind < 0)
		return bounce_take_alone(b, len);
	if (tei_list_empty(&b->idle[kind]))
		return NULL;
	block = tei_list_first(&b->idle[kind], struct moonrail_block, link);
	tei_list_del(&block->link);
	b->out++;
	return block;
}

void moonrail_bounce_put(struct moonrail_domain *d,
			 struct moonrail_block *block, bool clean)
{
	struct moonrail_bounces *b = d->bounces;

	b->out--;
	if (block->kind >= 0)
		tei_list_add_head(&b->idle[block->kind], &block->link);
	else if (clean)
		bounce_add_alone(b, block);
	else
		bounce_add_dirty(b, block);
	if (!tei_list_empty(&b->later) || b->dirty_bytes > BOUNCE_IDLE ||
	    b->alone_bytes > BOUNCE_IDLE)
		bounce_wake(b, false);
}

/* --- sends and moves ----------------------------------------------------- */

/* Copies len bytes between the iov entries of an operation and its block. out:
 * copies from the block to the iov entries. */
static void bounce_copy(const struct moonrail_op *op, uint64_t len, bool out)
{
	char *at = op->block->mem;
	uint64_t n;
	uint32_t i;

	for (i = 0; i < op->niov && len; i++) {
		n = op->iov[i].iov_len < len ? op->iov[i].iov_len : len;
		if (n && out)
			memcpy(op->iov[i].iov_base, at, n);
		else if (n)
			memcpy(at, op->iov[i].iov_base, n);
		at += n;
		len -= n;
	}
}

static bool bounce_registered(struct moonrail_domain *d,
			      const struct iovec *iov, size_t n)
	TEI_REQUIRES(moonrail_held)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (iov[i].iov_len &&
		    !moonrail_pinned(d, iov[i].iov_base, iov[i].iov_len))
			return false;
	return true;
}

/* Handles a failed registration: requests the bounce thread to unregister idle
 * blocks. Returns true if memory may become free soon. */
static bool bounce_scarce(struct moonrail_bounces *b)
{
	if (b->alone_bytes) {
		b->scarce = true;
		bounce_wake(b, false);
	}
	return b->alone_bytes || b->out;
}

int moonrail_bounce_send(struct moonrail_op *op, const struct iovec *iov,
			 size_t niov, struct iovec *out)
{
	struct moonrail_domain *d = op->ep->domain;
	struct moonrail_bounces *b = d->bounces;

	if (!b || bounce_registered(d, iov, niov))
		return 0;
	op->block = bounce_take_alone(b, op->total);
	if (!op->block) {
		op->block = bounce_new(d, op->total);
		b->out += op->block != NULL;
	}
	if (!op->block)
		return bounce_scarce(b) ? -FI_EAGAIN : -FI_ENOMEM;
	memcpy(op->iov, iov, niov * sizeof(*iov));
	op->niov = (uint32_t)niov;
	bounce_copy(op, op->total, false);
	op->niov = 0;
	out->iov_base = op->block->mem;
	out->iov_len = op->total;
	return 1;
}

static uint64_t bounce_moved(const struct moonrail_op *op)
{
	return op->kind == MOONRAIL_RECV ? op->got : op->total;
}

/* Leaves a move to the bounce thread. */
static int bounce_put_off(struct moonrail_op *op,
			  const struct moonrail_wire_piece *at, uint32_t n)
{
	struct moonrail_bounces *b = op->ep->domain->bounces;
	struct bounce_later *l = calloc(1, sizeof(*l));

	if (!l)
		return -FI_ENOMEM;
	l->op = op;
	l->n = n;
	memcpy(l->at, at, n * sizeof(*at));
	tei_list_add_tail(&b->later, &l->link);
	op->ep->busy++;
	bounce_wake(b, false);
	return 1;
}

int moonrail_bounce_move(struct moonrail_op *op,
			 const struct moonrail_wire_piece *at, uint32_t n,
			 bool read, struct iovec *out)
{
	struct moonrail_domain *d = op->ep->domain;
	uint64_t len = bounce_moved(op);

	out->iov_base = NULL;
	if (!d->bounces || !d->bounces_local || !op->peer->rail || !len)
		return 0;
	if (!op->block) {
		if (bounce_registered(d, op->iov, op->niov))
			return 0;
		/* start no move while others wait, so that their order is
		 * kept */
		if (tei_list_empty(&d->bounces->later))
			op->block = bounce_take(d->bounces, len);
		if (!op->block)
			return bounce_put_off(op, at, n);
	}
	if (!read)
		bounce_copy(op, len, false);
	out->iov_base = op->block->mem;
	out->iov_len = len;
	return 0;
}

void moonrail_bounce_read(const struct moonrail_op *op)
{
	bounce_copy(op, bounce_moved(op), true);
}

/* --- the bounce thread --------------------------------------------------- */

/* Starts the first waiting move if a block is free. Returns 0 if the move was
 * started or has failed, otherwise the size of the block that the move needs.
 * last: fail the move if no block is free. */
static uint64_t bounce_feed_one(struct moonrail_bounces *b, bool last)
	TEI_REQUIRES(moonrail_held)
{
	struct bounce_later *l = tei_list_first(&b->later, struct bounce_later,
						link);
	struct moonrail_op *op = l->op;

	op->block = bounce_take(b, bounce_moved(op));
	if (!op->block && !last)
		return bounce_moved(op);
	tei_list_del(&l->link);
	op->ep->busy--;
	if (!op->block) {
		op->err = FI_ENOMEM;
		op->lost = true;
		op->type->moved(op);
	} else {
		op->type->restart(op, l->at, l->n);
	}
	free(l);
	return 0;
}

/* Registers more blocks, without the lock. Returns false if memory is short. */
static bool bounce_grow(struct moonrail_bounces *b, uint64_t len)
{
	struct moonrail_domain *d = b->domain;
	int kind = bounce_kind(len);
	struct moonrail_block *block = NULL;
	struct bounce_slab *slab = NULL;

	if (kind < 0)
		block = bounce_new(d, len);
	else
		slab = bounce_new_slab(d, kind);
	moonrail_enter(d);
	if (slab)
		bounce_add_slab(b, slab, kind);
	else if (block)
		bounce_add_alone(b, block);
	moonrail_leave(d);
	return slab || block;
}

/* Starts all waiting moves. Returns true if the first one must wait until a
 * block in use becomes free or idle blocks have been unregistered. */
static bool bounce_feed(struct moonrail_bounces *b)
{
	struct moonrail_domain *d = b->domain;
	bool last = false;
	uint64_t want;

	for (;;) {
		want = 0;
		moonrail_enter(d);
		while (!want && !tei_list_empty(&b->later)) {
			want = bounce_feed_one(b, last);
			last = false;
		}
		moonrail_leave(d);
		if (!want)
			return false;
		if (bounce_grow(b, want))
			continue;
		moonrail_enter(d);
		last = !bounce_scarce(b);
		moonrail_leave(d);
		if (!last)
			return true;
	}
}

/* Takes a block that must be unregistered: the least recently used idle block
 * if there are too many, or a dirty block. Returns NULL if there is none. */
static struct moonrail_block *bounce_pick(struct moonrail_bounces *b)
{
	uint64_t now = tei_now_ns();
	struct moonrail_block *block;

	if (!tei_list_empty(&b->alone) &&
	    (b->scarce || b->alone_bytes > BOUNCE_IDLE)) {
		block = tei_container_of(b->alone.prev, struct moonrail_block,
					 link);
		b->alone_bytes -= block->size;
	} else if (b->dirty_bytes > BOUNCE_IDLE &&
		   now - b->dirty_ns > BOUNCE_DIRTY_NS) {
		block = tei_list_first(&b->dirty, struct moonrail_block, link);
		b->dirty_bytes -= block->size;
		b->dirty_ns = now;
	} else {
		b->scarce = false;
		return NULL;
	}
	tei_list_del(&block->link);
	return block;
}

/* Unregisters one pinned range or block. Returns false if there is none to
 * unregister. */
static bool bounce_let_go(struct moonrail_bounces *b)
{
	struct moonrail_domain *d = b->domain;
	struct moonrail_block *block = NULL;
	struct moonrail_pin *pin = NULL;
	struct tei_list gone;

	tei_list_init(&gone);
	moonrail_enter(d);
	if (!tei_list_empty(&b->spent)) {
		pin = tei_list_first(&b->spent, struct moonrail_pin, link);
		tei_list_del(&pin->link);
		tei_list_add_tail(&gone, &pin->link);
	} else {
		block = bounce_pick(b);
	}
	moonrail_leave(d);
	if (pin)
		moonrail_pin_drop(d, &gone);
	else if (block)
		bounce_drop(d, block);
	return pin || block;
}

/* Sleeps until there is work, at most one second. */
static void bounce_wait(struct moonrail_bounces *b)
{
	tei_mutex_lock(&b->lock);
	if (!b->work)
		tei_mutex_wait(&b->cond, &b->lock, TEI_NS_PER_SEC);
	b->work = false;
	tei_mutex_unlock(&b->lock);
}

static bool bounce_stopped(struct moonrail_bounces *b)
{
	bool stop;

	tei_mutex_lock(&b->lock);
	stop = b->stop;
	tei_mutex_unlock(&b->lock);
	return stop;
}

static void *bounce_main(void *arg)
{
	struct moonrail_bounces *b = arg;

	while (!bounce_stopped(b)) {
		bounce_feed(b);
		if (!bounce_let_go(b))
			bounce_wait(b);
	}
	return NULL;
}

/* --- life of the bounce buffers ------------------------------------------ */

void moonrail_bounce_spent(struct moonrail_domain *d, struct tei_list *pins)
{
	if (tei_list_empty(pins))
		return;
	tei_list_splice_tail(&d->bounces->spent, pins);
	bounce_wake(d->bounces, false);
}

int moonrail_bounce_open(struct moonrail_domain *d)
{
	uint32_t wants = tei_rail_wants(d->dp);
	struct moonrail_bounces *b;
	int k;

	if (!wants)
		return 0;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -FI_ENOMEM;
	b->domain = d;
	for (k = 0; k < BOUNCE_SIZES; k++)
		tei_list_init(&b->idle[k]);
	tei_list_init(&b->alone);
	tei_list_init(&b->dirty);
	tei_list_init(&b->spent);
	tei_list_init(&b->slabs);
	tei_list_init(&b->later);
	tei_mutex_init(&b->lock);
	tei_cond_init(&b->cond);
	d->bounces = b;
	d->bounces_local = wants & TEI_RAIL_WANTS_LOCAL;
	if (!tei_thread_start(&b->thread, false, bounce_main, b))
		return 0;
	d->bounces = NULL;
	pthread_cond_destroy(&b->cond);
	tei_mutex_fini(&b->lock);
	free(b);
	return -FI_ENOMEM;
}

void moonrail_bounce_stop(struct moonrail_domain *d)
{
	if (!d->bounces)
		return;
	bounce_wake(d->bounces, true);
	pthread_join(d->bounces->thread, NULL);
}

static void bounce_free_blocks(struct tei_list *list)
{
	struct moonrail_block *block, *tmp;

	tei_list_foreach_safe(block, tmp, list, struct moonrail_block, link) {
		munmap(block->mem, block->size);
		free(block);
	}
}

void moonrail_bounce_free(struct moonrail_domain *d)
{
	struct moonrail_bounces *b = d->bounces;
	struct bounce_slab *slab, *tmp;
	struct moonrail_pin *p, *ptmp;

	if (!b)
		return;
	bounce_free_blocks(&b->alone);
	bounce_free_blocks(&b->dirty);
	tei_list_foreach_safe(p, ptmp, &b->spent, struct moonrail_pin, link)
		free(p);
	tei_list_foreach_safe(slab, tmp, &b->slabs, struct bounce_slab, link) {
		munmap(slab->mem, slab->size);
		free(slab);
	}
	pthread_cond_destroy(&b->cond);
	tei_mutex_fini(&b->lock);
	free(b);
	d->bounces = NULL;
}
