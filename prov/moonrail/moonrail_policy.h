/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_POLICY_H
#define TEI_PROV_MOONRAIL_MOONRAIL_POLICY_H

/*
 * Policies: how the rails share the operations of an endpoint, depending on the
 * size of the operation.
 */

#include <stdint.h>

#include "prov/moonrail/moonrail_int.h"
#include "prov/rail/tei_rail.h"
#include "util/lock.h"

struct moonrail_domain;
struct moonrail_peer;

/* How the rails share an operation. */
enum moonrail_policy_kind {
	MOONRAIL_ADAPTIVE,		/* each rail takes slices as long as its
					 * window is not full */
	MOONRAIL_FIXED,			/* all operations of an endpoint use one
					 * rail */
	MOONRAIL_ROUND_ROBIN,		/* each operation uses the next rail */
	MOONRAIL_STRIPING,		/* each rail carries an equal part */
};

struct moonrail_policy {
	uint64_t max;			/* largest operation to which this entry
					 * applies, bytes */
	enum moonrail_policy_kind kind;
};

struct moonrail_policies {
	struct moonrail_policy of[MOONRAIL_POLICIES]; /* in ascending order of
						       * max */
	uint32_t n;
};

/* --- moonrail_policy.c --------------------------------------------------- */
/* Reads the policies from the environment variables. Returns 0, or -FI_EINVAL
 * if a value is malformed. */
int moonrail_policies(struct moonrail_policies *policies);
/* Returns the policy for operations of size bytes. */
enum moonrail_policy_kind moonrail_policy(const struct moonrail_domain *d,
					  uint64_t size);
/* Returns 1 + the index of the rail that carries the next undivided operation
 * of an endpoint to a peer, or 0 if any rail may carry it. */
uint32_t moonrail_policy_rail(struct moonrail_peer *peer, uint32_t ep,
			      enum moonrail_policy_kind kind)
	TEI_REQUIRES(moonrail_held);
/* Chooses the rails that each carry an equal part of len bytes, and writes
 * their indices to "rails". Returns the number of these rails. */
uint32_t moonrail_policy_parts(struct moonrail_peer *peer, uint64_t len,
			       uint8_t rails[TEI_RAIL_MAX])
	TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_POLICY_H */
