/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_FAILURE_H
#define TEI_PROV_RAIL_CORE_RAIL_FAILURE_H

/* Texts and hints of errors of a provider, and the last error of a peer. */

#include <stdbool.h>

#include "prov/rail/core/rail_dp.h"
#include "util/lock.h"

struct rail;
struct tei_err;

/*
 * Returns "text", the provider's description of an error, if it says more than
 * the name of the error "err" (FI_E*); otherwise returns "". *prov is the
 * provider's code. It is set to 0 if it is an errno that probably is left from
 * an earlier call, such as ENOENT.
 */
const char *rail_prov_text(int err, int *prov, const char *text);

/* Returns a hint: what the user can do about the error fi_err (FI_E*). Returns
 * "" if fi_err is 0. */
const char *rail_failure_hint(int fi_err);

/* Returns true if the error (FI_E*) means that the connection has ended. */
bool rail_err_ends_conn(int err);

/* Stores the provider's error of a failed slice in peer->tasks.last_failure. */
void rail_peer_remember_failure(struct tei_rail_peer *peer,
				const struct rail *rail, int err, int prov,
				const char *text) TEI_REQUIRES(rail_sched_held);

/* Copies the last error remembered by rail_peer_remember_failure into the error
 * record of a task. */
void rail_peer_last_failure(const struct tei_rail_peer *peer,
			    struct tei_err *err) TEI_REQUIRES(rail_sched_held);

#endif /* TEI_PROV_RAIL_CORE_RAIL_FAILURE_H */
