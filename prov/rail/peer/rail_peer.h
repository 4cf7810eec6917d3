/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_PEER_RAIL_PEER_H
#define TEI_PROV_RAIL_PEER_RAIL_PEER_H

/*
 * Peers: remote processes, from the first hello until they are gone. rail_ctl.h
 * has the state machines that the progress thread runs for a peer.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/lock.h"

struct rail;
struct rail_done;
struct tei_err;

#define RAIL_STRANGERS		4	/* largest number of unauthenticated
					 * peers at a time */

/*
 * Sends the hello in buf (len bytes) to the current group of contact addresses
 * of a peer that has not answered yet. Returns 0 if the hello was sent to all
 * addresses of the group, -FI_EAGAIN if some are not connected yet,
 * -FI_EHOSTUNREACH if no local rail can reach any address. Progress thread.
 */
int rail_contact_hello(struct tei_rail_peer *peer, uint8_t *buf, size_t len,
		       uint64_t now, uint32_t attempt);

/* Records that another process answers at the contact address with this number
 * (counted from 1; 0 means that the number is unknown). Returns true if the
 * peer has other addresses that must be tried, or if it has answered
 * meanwhile. */
bool rail_contact_refused(struct tei_rail_peer *peer, uint16_t number)
	TEI_REQUIRES(rail_sched_held);

/* Logs the contact address at which the peer has answered. Must be called while
 * peer->remotes still holds the contact addresses. */
void rail_contact_answered(struct tei_rail_peer *peer, const struct rail *rail,
			   uint16_t number) TEI_REQUIRES(rail_sched_held);

/* Returns the peer with that incarnation, or NULL if it is unknown. */
struct tei_rail_peer *rail_peer_find(struct tei_rail_dp *dp,
				     uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);

/* Creates a peer. If the table of peers is full, evicts another peer first.
 * Returns NULL if no peer can be evicted or memory is short. */
struct tei_rail_peer *rail_peer_new(struct tei_rail_dp *dp, const char *name,
				    uint64_t incarnation)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if the table of peers is full. If rail_peer_new has just failed
 * and this function returns false, memory was short. */
bool rail_peer_no_room(const struct tei_rail_dp *dp)
	TEI_REQUIRES(rail_sched_held);

/* Records a sign of life. */
void rail_peer_alive(struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held);

/* Sends a ping to one of the peers that have been silent for long. Progress
 * thread, no lock held. */
void rail_peer_probe(struct tei_rail_dp *dp, uint64_t now);

/* Makes the peer READY when its first hello has arrived. */
void rail_peer_ready(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/*
 * Moves the peer to RAIL_PEER_GONE. The peer's tasks end as FAILED. A task with
 * posted slices ends only after these slices have been fenced, or as UNFENCED
 * if they cannot be fenced. If gone is not RAIL_GONE_LEFT, regions whose keys
 * the peer holds can from then on be unregistered only with a fence of this
 * process's rx lanes. May be called again when more is known about the peer.
 */
void rail_peer_set_gone(struct tei_rail_peer *peer, const char *why,
			enum rail_gone gone, struct rail_done *done)
	TEI_REQUIRES(rail_sched_held);

/* Forgets a peer that is not in use, although its process may be alive. */
void rail_peer_forget(struct tei_rail_peer *peer, const char *why,
		      struct rail_done *done) TEI_REQUIRES(rail_sched_held);
void rail_peer_free_all(struct tei_rail_dp *dp);

/*
 * Sets the n contact addresses of a peer that has not answered yet; does
 * nothing if the peer has answered. Returns 0, or TEI_ERR_MEMORY if memory is
 * short. In this case the peer cannot be reached until a later call succeeds.
 */
int rail_peer_set_contacts(struct tei_rail_peer *peer,
			   const struct tei_rail_addr *at, size_t n)
	TEI_REQUIRES(rail_sched_held);

/* Allocates memory for at least n entries of peer->remotes. If memory is short,
 * changes nothing and returns TEI_ERR_MEMORY; otherwise returns 0. */
int rail_peer_reserve(struct tei_rail_peer *peer, size_t n)
	TEI_REQUIRES(rail_sched_held);

/* If the address in found_at is new, makes it a hint: an address to which
 * hellos are sent in addition to the known addresses. Progress thread. */
void rail_peer_take_hint(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Stores the n contact addresses that the peer sent in a hello. If memory is
 * short, the old ones remain. */
void rail_peer_take_contacts(struct tei_rail_peer *peer,
			     const struct tei_rail_addr *at, uint16_t n)
	TEI_REQUIRES(rail_sched_held);

/* Drops the hint, because another process answers at its address. Returns true
 * if the peer has other contact addresses that must be tried. */
bool rail_peer_not_there(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Copies the next address of peer->addrs.contacts to found_at, if an attempt is
 * due and found_at is empty. */
void rail_peer_next_first(struct tei_rail_peer *peer, uint64_t now)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if hellos currently go to a hint. */
bool rail_peer_searched(const struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Returns the index of the hint in peer->remotes, or -1 if there is no hint or
 * the rail does not reach it. */
int16_t rail_peer_hint(const struct tei_rail_peer *peer,
		       const struct rail *rail) TEI_REQUIRES(rail_sched_held);

/* Removes the address of the hint, because the peer's rails are known again.
 * Progress thread. */
void rail_peer_drop_hint(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Returns true if a local rail reaches the address and the provider of this
 * local rail uses sockets that can be examined. */
bool rail_peer_by_socket(struct tei_rail_dp *dp, const struct tei_rail_addr *at);

/* Returns true if a port at which the peer's rails listen refuses connections
 * and none accepts one. Waits for at most wait_ns for each port. */
bool rail_presume_closed(struct tei_rail_peer *peer, uint64_t wait_ns);

/* Sends BYE to the peers when the data plane is closed. Returns true when BYE
 * has been sent to all of them. */
bool rail_peer_bye(struct tei_rail_dp *dp);
/* Tests the ports of one peer to which rail_peer_bye could not send BYE. If the
 * peer has closed its ports, rail_peer_bye no longer sends BYE to it. turn: a
 * number that grows with each call, so that the peers are tested in turn. */
void rail_peer_bye_test(struct tei_rail_dp *dp, uint32_t turn);

/* Returns true if the peer is orphaned: it has never answered, and no user or
 * task refers to it. */
bool rail_peer_orphaned(const struct tei_rail_peer *peer);

/* Frees a peer that is unused and either gone or orphaned. Returns true if it
 * was freed. */
bool rail_peer_maybe_free(struct tei_rail_peer *peer)
	TEI_REQUIRES(rail_sched_held);

/* Creates an unauthenticated peer, which exists until its hello has been
 * refused. first: address to which the refusal is sent. Returns NULL if there
 * are too many such peers, if the last one was created a short time ago, or if
 * memory is short. */
struct tei_rail_peer *
rail_peer_unauthenticated(struct tei_rail_dp *dp, uint64_t incarnation,
			  const struct tei_rail_addr *first,
			  enum rail_refusal why) TEI_REQUIRES(rail_sched_held);

/* Creates a resolver for the process that has that address. The caller owns a
 * reference to it. Returns NULL if memory is short. */
struct tei_rail_peer *rail_peer_resolver(struct tei_rail_dp *dp,
					 const struct tei_rail_addr *first)
	TEI_REQUIRES(rail_sched_held);

/* Ends the peer's tasks, because the peer has refused the hello of this
 * process. why: text of the refusal. */
void rail_peer_refused(struct tei_rail_peer *peer, const char *why,
		       struct rail_done *done) TEI_REQUIRES(rail_sched_held);

/* Fills the error record of a task that ends because the peer is presumed
 * dead. */
void rail_presume_err(const struct tei_rail_peer *peer, struct tei_err *err)
	TEI_REQUIRES(rail_sched_held);

/* Calls ops->resolve if tasks or notifications wait for the peer, no slice is
 * posted to it and no connection to it is left. Progress thread, no lock
 * held. */
void rail_presume_ask(struct tei_rail_peer *peer, uint64_t now);

#endif /* TEI_PROV_RAIL_PEER_RAIL_PEER_H */
