/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_STAGING_QUARANTINE_INT_H
#define TEI_PROV_STAGING_QUARANTINE_INT_H

/*
 * Remote bounce slots, the target: unacknowledged grants and quarantined memory
 * (staging_quarantine.c). staging_remote_int.h has the rules and the structs.
 */

#include "prov/staging/staging_remote_int.h"

/* Records an unacknowledged grant of a slot. Thread "tei-remote", no lock
 * held. */
void staging_unacked_set(struct staging_remote *rs,
			 struct staging_remote_slot *slot,
			 struct tei_rail_peer *peer, uint64_t id);
/* Ends the unacknowledged grants that this message acknowledges. */
void staging_unacked_message(struct staging_remote *rs,
			     const struct tei_rail_peer *peer,
			     const struct staging_msg *m);
/* Ends the unacknowledged grants of peers that are gone. */
void staging_unacked_check(struct staging_remote *rs);
/* Returns true if the peer has an unacknowledged grant. */
bool staging_unacked_any(struct staging_remote *rs,
			 const struct tei_rail_peer *peer);
/* Ends all unacknowledged grants, because the data plane is being closed. */
void staging_unacked_forget(struct staging_remote *rs);
/* Functions of struct staging_pool_kind. */
int staging_quarantine_prepare(struct staging_slot *slot, struct tei_err *err);
void staging_quarantine_retire(struct staging_slot *slot);
void staging_quarantine_fini(struct staging_slot *slot);

#endif /* TEI_PROV_STAGING_QUARANTINE_INT_H */
