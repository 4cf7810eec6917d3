/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_CORE_RAIL_REFUSAL_H
#define TEI_PROV_RAIL_CORE_RAIL_REFUSAL_H

/*
 * Reasons for which a process refuses a hello. A REFUSE message carries one of
 * these codes, and a text for people. Only the code decides what the receiver
 * does. The process that receives REFUSE treats every code except
 * RAIL_REFUSE_STALE as final, even a code that it does not know.
 */
enum rail_refusal {
	RAIL_REFUSE_NONE,		/* the hello was not refused; this value
					 * is never sent */
	RAIL_REFUSE_STALE,		/* the hello names an incarnation that
					 * the receiver does not have */
	RAIL_REFUSE_NO_SECRET,		/* the hello is signed, but the receiver
					 * has no shared secret */
	RAIL_REFUSE_UNSIGNED,		/* the hello is unsigned, but the
					 * receiver has a shared secret */
	RAIL_REFUSE_SECRETS_DIFFER,
	RAIL_REFUSE_TOO_MANY_PEERS,	/* MOONRAIL_MAX_PEERS is reached */
};

#endif /* TEI_PROV_RAIL_CORE_RAIL_REFUSAL_H */
