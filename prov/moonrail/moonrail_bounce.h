/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_BOUNCE_H
#define TEI_PROV_MOONRAIL_MOONRAIL_BOUNCE_H

/*
 * Bounce buffers: registered memory through which the bytes of unregistered
 * buffers pass.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"

struct moonrail_block;
struct moonrail_op;

/* --- moonrail_bounce.c --------------------------------------------------- */
/* Starts the bounce thread if a rail needs it. Called after the rails were
 * opened. Returns 0 or -FI_ENOMEM. */
int moonrail_bounce_open(struct moonrail_domain *d);
/* moonrail_bounce_stop stops the bounce thread before the data plane is closed;
 * moonrail_bounce_free frees everything after the data plane was closed. */
void moonrail_bounce_stop(struct moonrail_domain *d);
void moonrail_bounce_free(struct moonrail_domain *d);
/* Prepares the buffer that the peer reads for a message. Returns 0 if the peer
 * reads iov itself, 1 if the peer reads *out, a bounce buffer; or -FI_ENOMEM,
 * or -FI_EAGAIN if memory may become free. Called only by threads of the
 * application. */
int moonrail_bounce_send(struct moonrail_op *op, const struct iovec *iov,
			 size_t niov, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/*
 * Prepares the local buffer of a move; the arguments are those of
 * moonrail_move. Returns 0 if the bytes move from or to *out, or, if
 * out->iov_base is NULL, op->iov. Returns 1 if no bounce buffer is free: the
 * bounce thread starts the move again later. Otherwise returns -FI_ENOMEM.
 */
int moonrail_bounce_move(struct moonrail_op *op,
			 const struct moonrail_wire_piece *at, uint32_t n,
			 bool read, struct iovec *out)
	TEI_REQUIRES(moonrail_held);
/* Copies the bytes that have been read from op->block to op->iov. */
void moonrail_bounce_read(const struct moonrail_op *op);
/* Gives back a bounce buffer. clean: no peer reads it any more. */
void moonrail_bounce_put(struct moonrail_domain *d,
			 struct moonrail_block *block, bool clean)
	TEI_REQUIRES(moonrail_held);
/* Takes over pinned ranges without references, which the bounce thread
 * unregisters. */
void moonrail_bounce_spent(struct moonrail_domain *d, struct tei_list *pins)
	TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_BOUNCE_H */
