/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_AV_H
#define TEI_PROV_MOONRAIL_MOONRAIL_AV_H

/*
 * Address vectors.
 */

#include <rdma/fi_domain.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_name.h"
#include "prov/moonrail/moonrail_peer.h"
#include "util/list.h"

struct moonrail_eq;

struct moonrail_av_entry {
	struct tei_list link;		/* in peer->entries */
	struct moonrail_av *av;
	struct moonrail_peer *peer;	/* NULL if the entry is free */
	uint32_t index, ep;
	struct moonrail_name name;	/* name as it was inserted */
	bool socket;			/* inserted as a sockaddr */
	bool refused;			/* the peer has closed the endpoint */
	int err;			/* FI_E* with which the search for the
					 * process failed, or 0; each operation
					 * fails with it until the address is
					 * inserted again */
};

#define MOONRAIL_FOUND	64u

/* Cached result of a search for the address of a peer's endpoint. */
struct moonrail_av_found {
	const struct moonrail_peer *peer; /* peer of the entry, compared and
					   * never dereferenced; NULL if the
					   * entry is unused */
	uint32_t ep;
	uint64_t changes;		/* moonrail_av.changes at the search */
	fi_addr_t at;			/* address that was found, or
					 * FI_ADDR_NOTAVAIL */
};

struct moonrail_av {
	struct fid_av fid;
	struct moonrail_domain *domain;
	struct moonrail_av_entry **entry;
	uint32_t n, cap, refs;
	uint32_t vacant;		/* all entries with a lower index are in
					 * use */
	uint32_t named;			/* number of entries whose address names
					 * an endpoint */
	uint64_t changes;		/* number of changes to the entries so
					 * far */
	struct moonrail_av_found found[MOONRAIL_FOUND]; /* indexed by a hash of
							 * peer and ep */
	uint64_t flags;
	struct moonrail_eq *eq;
};

/* --- moonrail_av.c, moonrail_av_names.c ---------------------------------- */
int moonrail_av_insertsvc(struct fid_av *av, const char *node,
			  const char *service, fi_addr_t *addr, uint64_t flags,
			  void *context);
int moonrail_av_insertsym(struct fid_av *av, const char *node, size_t nodes,
			  const char *service, size_t services, fi_addr_t *addr,
			  uint64_t flags, void *context);
int moonrail_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		     struct fid_av **av, void *context);
/* Returns the entry of an address, or NULL if there is none. */
struct moonrail_av_entry *moonrail_av_get(struct moonrail_av *av, fi_addr_t a)
	TEI_REQUIRES(moonrail_held);
/* Returns the FI_E* with which each operation for this address fails, or 0 if
 * the address can be used. */
static inline int moonrail_av_err(const struct moonrail_av_entry *e)
{
	return e->peer->err ? e->peer->err : e->err;
}
/* Moves all entries of the peer "from" to the peer "to". Both peers stand for
 * the same process. */
void moonrail_av_merge(struct moonrail_peer *from, struct moonrail_peer *to)
	TEI_REQUIRES(moonrail_held);
/* Marks the addresses of the peer's endpoint ep as refused, because the
 * endpoint has been closed. */
void moonrail_av_refused(struct moonrail_peer *peer, uint32_t ep)
	TEI_REQUIRES(moonrail_held);
/* Returns the address of a peer's endpoint, or FI_ADDR_NOTAVAIL. av: NULL if no
 * address vector is bound yet. */
fi_addr_t moonrail_av_find(struct moonrail_av *av, struct moonrail_peer *peer,
			   uint32_t ep) TEI_REQUIRES(moonrail_held);
/* Returns true if an address stands for the peer's endpoint ep. "named" is the
 * endpoint number in this address. MOONRAIL_EP_ANY stands for every endpoint
 * that has no address of its own. */
bool moonrail_av_is(struct moonrail_av *av, struct moonrail_peer *peer,
		    uint32_t named, uint32_t ep) TEI_REQUIRES(moonrail_held);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_AV_H */
