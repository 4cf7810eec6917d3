/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_MR_H
#define TEI_PROV_MOONRAIL_MOONRAIL_MR_H

/*
 * Memory registrations of the application, and the pinned ranges that hold
 * their memory.
 */

#include <rdma/fi_domain.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_wire.h"
#include "util/list.h"
#include "util/range.h"

struct moonrail_cntr;
struct moonrail_ep;
struct moonrail_peer;

struct moonrail_mr {
	struct fid_mr fid;
	struct moonrail_domain *domain;
	struct tei_list link;
	char *addr;
	/* known_to: number of peers to which the key was sent. */
	uint64_t len, key, access, known_to;
	struct moonrail_cntr *cntr[2];	/* counters of remote reads and remote
					 * writes */
};

/* A pinned range: a registration of the data plane. Pinned ranges never
 * overlap. */
struct moonrail_pin {
	struct tei_list link;		/* in a list of pinned ranges to
					 * unregister */
	struct tei_range range;		/* node in moonrail_domain.pins */
	uint64_t used;			/* value of pin_clock at the last use */
	uint32_t refs;
	uint32_t mrs;			/* number of the references "refs" that
					 * registrations of the application
					 * hold */
	bool registering;		/* the range is being registered */
	bool stale;			/* a part of the range belongs to no
					 * open registration and may have been
					 * unmapped; used only if a rail pins
					 * memory */
};

/* --- moonrail_pin.c, moonrail_mr.c --------------------------------------- */
extern struct fi_ops_mr moonrail_mr_ops;
/*
 * Registers a range with the data plane, except for the parts that are
 * registered already, and takes a reference to each pinned range that it
 * touches. mr: the range is a registration of the application; the lock is then
 * released while memory is registered. May wait for the progress thread, so
 * only threads of the application call it. Returns:
 *
 *	0		success
 *	-FI_EAGAIN	a part is being registered or unregistered, or a
 *			closed registration of it is still in use
 *	-FI_EBUSY	a pinned range in it is stale (moonrail_pin.stale): it
 *			cannot be used, nor be unregistered as long as an open
 *			registration uses it
 *	-FI_ENOMEM	no memory, or the registration failed
 */
int moonrail_pin(struct moonrail_domain *d, const void *addr, uint64_t len,
		 bool mr) TEI_REQUIRES(moonrail_held);
/* Marks the pinned ranges of which the other open registrations cover only a
 * part (moonrail_pin.stale). Must be called when a registration of the
 * application is closed: after it was removed from domain->mrs, and before
 * moonrail_unpin. */
void moonrail_pin_closed(struct moonrail_domain *d, const void *addr,
			 uint64_t len) TEI_REQUIRES(moonrail_held);
/* Drops a reference to each pinned range within the given range. Adds the
 * pinned ranges that have no references then to the list "gone", for
 * moonrail_pin_drop. If gone is NULL, these pinned ranges stay registered,
 * because they will probably be used again; if rails pin memory, the bounce
 * thread unregisters them. */
void moonrail_unpin(struct moonrail_domain *d, const void *addr, uint64_t len,
		    struct tei_list *gone) TEI_REQUIRES(moonrail_held);
/* Unregisters the pinned ranges of the list; afterwards no peer can access
 * them. Waits for peers, and a peer may be suspended. Therefore only threads of
 * the application and the bounce thread may call this function, without the
 * lock. */
void moonrail_pin_drop(struct moonrail_domain *d, struct tei_list *gone);
/* If too many pinned ranges are unused, unregisters the one that has been
 * unused for longest. Waits as moonrail_pin_drop does. */
void moonrail_pin_trim(struct moonrail_domain *d);
void moonrail_pin_free_all(struct moonrail_domain *d);
/* Returns true if the range lies in one pinned range that an open registration
 * of the application covers, so that tasks can use it. */
bool moonrail_pinned(const struct moonrail_domain *d, const void *addr,
		     uint64_t len) TEI_REQUIRES(moonrail_held);
/* Returns the open registration with that key, or NULL if there is none. */
struct moonrail_mr *moonrail_mr_find(struct moonrail_domain *d, uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* Sends the peer a KEY_IS that describes the registration with this key, or
 * that reports that there is no such registration. Returns false if memory is
 * short. */
bool moonrail_mr_send_key(struct moonrail_peer *peer, uint64_t key)
	TEI_REQUIRES(moonrail_held);
/* Handles KEY: answers the peer's query with KEY_IS. */
bool moonrail_mr_query(struct moonrail_peer *peer,
		       const struct moonrail_wire *w, const uint8_t *payload,
		       uint32_t len) TEI_REQUIRES(moonrail_held);
/* Requests all peers to report their reads and writes of this domain's memory.
 * Waits up to 2 s for the peers' acknowledgements and releases the lock
 * meanwhile. Only threads of the application may call this function. */
void moonrail_mr_want_events(struct moonrail_domain *d)
	TEI_REQUIRES(moonrail_held);
/*
 * Counts one operation of a peer through an endpoint of this domain, on the
 * memory of n keys. reads: the operation has returned bytes; writes: it has
 * changed bytes; a fetching atomic does both. According to fi_endpoint(3) and
 * fi_mr(3), the endpoint counts an operation that does both as a read only, and
 * a registration's counter of writes counts every operation that changes the
 * registration.
 */
void moonrail_mr_count(struct moonrail_domain *d, const struct moonrail_ep *ep,
		       const uint64_t *keys, uint32_t n, bool reads,
		       bool writes) TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_MR_H */
