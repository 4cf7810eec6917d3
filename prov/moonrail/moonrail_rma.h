/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_RMA_H
#define TEI_PROV_MOONRAIL_MOONRAIL_RMA_H

/*
 * One-sided operations: remote memory access, atomics, and the moves of bytes.
 */

#include <rdma/fi_atomic.h>
#include <rdma/fi_rma.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_wire.h"

struct moonrail_peer;

/* --- moonrail_atomic.c --------------------------------------------------- */
extern struct fi_ops_atomic moonrail_atomic_ops;
int moonrail_atomic_query(struct fid_domain *domain, enum fi_datatype type,
			  enum fi_op op, struct fi_atomic_attr *attr,
			  uint64_t flags);
/* Handles an ATOMIC. Returns false if memory is short; the peer repeats the
 * message. */
bool moonrail_atomic_in(struct moonrail_peer *peer,
			const struct moonrail_wire *w, const uint8_t *payload,
			uint32_t len) TEI_REQUIRES(moonrail_held);
/* Handles an ATOMIC_REP: completes the operation that it answers. Always
 * returns true. */
bool moonrail_atomic_answer(struct moonrail_peer *peer,
			    const struct moonrail_wire *w,
			    const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);

/* --- moonrail_rma.c, moonrail_move.c ------------------------------------- */
extern struct fi_ops_rma moonrail_rma_ops;
/*
 * Moves bytes between op->iov and the n ranges "at" of the peer's memory. Ends
 * where the shorter side ends. op->type->moved is called when no task is left;
 * if no bytes must be moved, it is called before this function returns.
 */
void moonrail_move(struct moonrail_op *op, const struct moonrail_wire_range *at,
		   uint32_t n, bool read) TEI_REQUIRES(moonrail_held);
/* Handles the end of a task of an operation. */
void moonrail_task_done(struct moonrail_task *task)
	TEI_REQUIRES(moonrail_held);
/* Handles DONE (moonrail_message_fn): counts the access of the peer and reports
 * its remote CQ data. */
bool moonrail_rma_done(struct moonrail_peer *peer,
		       const struct moonrail_wire *w, const uint8_t *payload,
		       uint32_t len) TEI_REQUIRES(moonrail_held);
/* Handles KEY_IS or KEY_NOT. Always returns true. */
bool moonrail_rma_key(struct moonrail_peer *peer, const struct moonrail_wire *w,
		      const uint8_t *payload, uint32_t len)
	TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_RMA_H */
