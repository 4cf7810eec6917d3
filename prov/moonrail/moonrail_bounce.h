/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_BOUNCE_H
#define TEI_PROV_MOONRAIL_MOONRAIL_BOUNCE_H

/*
 * Bounce buffers: registered memory through which the bytes of unregistered
 * buffers pass. The buffers are blocks of a pool (prov/rail/tei_rail_bounce.h)
 * that domain->lock guards.
 *
 * A move uses a block of a slab, or a separate block if it is larger than the
 * largest block of a slab. A sent message that its receiver reads has a
 * separate block, which becomes dirty if the receiver never acknowledges the
 * message.
 */

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail_bounce.h"
#include "util/list.h"
#include "util/lock.h"

struct moonrail_op;

/* A move that waits for a bounce buffer. */
struct moonrail_deferred_move {
	struct tei_list link;
	struct moonrail_op *op;
	uint32_t n;
	struct moonrail_wire_range at[MOONRAIL_IOV];
};

/* The bounce buffers of a domain. domain->lock guards the fields before
 * "lock". */
struct moonrail_bounces {
	struct moonrail_domain *domain;	/* constant */
	pthread_t thread;		/* constant */
	struct tei_rail_bounces pool;
	struct tei_list pins;		/* list of moonrail_pin.link: pinned
					 * ranges to unregister */
	struct tei_list deferred;	/* list of
					 * moonrail_deferred_move.link */

	struct tei_mutex lock;		/* a leaf lock; guards the fields
					 * below */
	pthread_cond_t cond;
	bool work, stop;
};

/* --- moonrail_bounce.c: the blocks --------------------------------------- */
/* Wakes the bounce thread. stop: the thread must end. */
void moonrail_bounce_wake(struct moonrail_bounces *b, bool stop);
/* Adds free blocks to the pool, so that a move of len bytes finds one. Called
 * by the bounce thread, without the lock. Returns false if memory is short. */
bool moonrail_bounce_grow(struct moonrail_bounces *b, uint64_t len);
/* Handles a failed registration: makes the bounce thread unregister idle
 * blocks. Returns true if memory may become free soon. */
bool moonrail_bounce_scarce(struct moonrail_bounces *b);
/* Returns a bounce buffer to the pool. clean: no peer can read it any
 * longer. */
void moonrail_bounce_put(struct moonrail_domain *d,
			 struct tei_rail_bounce *block, bool clean)
	TEI_REQUIRES(moonrail_held);
/* Takes over a list of pinned ranges without references. The bounce thread
 * unregisters them later. */
void moonrail_bounce_unregister_later(struct moonrail_domain *d,
				      struct tei_list *pins)
	TEI_REQUIRES(moonrail_held);
/* Frees the bounce buffers of the domain. Called after the data plane was
 * closed. */
void moonrail_bounce_free(struct moonrail_domain *d);

/* --- moonrail_bounce_move.c ---------------------------------------------- */
/* Prepares the buffer from which the peer will read a message. Returns 0 if the
 * peer reads iov itself, 1 if the peer reads *out, a bounce buffer, -FI_EAGAIN
 * if memory may become free, or -FI_ENOMEM. Called only by threads of the
 * application. */
int moonrail_bounce_send(struct moonrail_op *op, const struct iovec *iov,
			 size_t niov, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/*
 * Prepares the local buffer of a move; the arguments are those of
 * moonrail_move. Returns 0 if the move can start: it uses the buffer *out, or
 * op->iov if out->iov_base is NULL. Returns 1 if no bounce buffer is free: the
 * bounce thread starts the move again later. Otherwise returns -FI_ENOMEM.
 */
int moonrail_bounce_move(struct moonrail_op *op,
			 const struct moonrail_wire_range *at, uint32_t n,
			 bool read, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/* Copies bytes that a move has read from the bounce buffer op->block to
 * op->iov. */
void moonrail_bounce_read(const struct moonrail_op *op);
/* Returns the number of bytes that an operation moves. */
uint64_t moonrail_bounce_len(const struct moonrail_op *op);

/* --- moonrail_bounce_thread.c -------------------------------------------- */
/* Starts the bounce thread if a rail pins memory or requires registered local
 * memory. Called after the rails were opened. Returns 0 or -FI_ENOMEM. */
int moonrail_bounce_open(struct moonrail_domain *d);
/* Stops the bounce thread before the data plane is closed. */
void moonrail_bounce_stop(struct moonrail_domain *d);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_BOUNCE_H */
