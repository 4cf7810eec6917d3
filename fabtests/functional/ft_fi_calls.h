/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_FI_CALLS_H
#define TEI_FABTESTS_FUNCTIONAL_FT_FI_CALLS_H

#include "fabtests/functional/fi_rig.h"

/* length of a message that no provider sends as a small one */
#define CALL_LARGE	200000u
/* MC_SLICE_TIMEOUT, s: a stopped process exceeds it, a process on a loaded
 * machine should not */
#define CALL_SILENT_S	2

/* An endpoint of the same process that sends messages to itself. */
struct call_ep {
	struct fid_cntr *counts;	/* counts completed sends and
					 * receives */
	struct fid_ep *ep;
	struct fid_cq *cq[2];		/* completion queues: [0] of sends, [1]
					 * of receives */
	fi_addr_t self;
};

/* Returns true if the rig uses moonrail's provider. */
bool call_moonrail(const struct fi_rig *r);
/* Waits for the next completion of the queue. Returns true if there is one
 * without an error. */
bool call_done(struct fi_rig *r, struct fid_cq *cq, struct fi_rig_done *d);
/* Waits for the next completion of r->tx. Returns true if there is one without
 * an error. */
bool call_sent(struct fi_rig *r);
/* Opens the endpoint *e with completion queues of that format, which are bound
 * with these flags. Inserts the endpoint's address into its address vector. If
 * e->counts is not NULL, it counts completed sends and receives. */
bool call_open(struct fi_rig *r, enum fi_cq_format format, uint64_t flags,
	       struct call_ep *e);
/* Closes the endpoint and its queues, and removes its address. */
bool call_close(struct fi_rig *r, struct call_ep *e);
/* Opens a fabric, a domain and an address vector with the source address `node`
 * and `service` in *own. */
bool call_domain(struct fi_rig *r, uint32_t format, const char *node,
		 const char *service, struct fi_rig *own);
bool call_domain_close(struct fi_rig *own);
/* Waits for the next completion of the queue. If `src` is not NULL, sets *src
 * to the source of the message. */
bool call_await(struct fid_cq *cq, void *entry, fi_addr_t *src);

/* in ft_fi_calls_addr.c: */
void call_addresses(struct fi_rig *r);
void call_texts(struct fi_rig *r);
void call_many(struct fi_rig *r);
void call_socket_names(struct fi_rig *r);
void call_two_names(struct fi_rig *r);
void call_other_host(struct fi_rig *r);
void call_own_rails(struct fi_rig *r);
void call_kinds(struct fi_rig *r);
/* in ft_fi_calls_cntr.c: */
void call_counter(struct fi_rig *r);
void call_counter_errors(struct fi_rig *r);
/* The other process ends during this case. */
void call_gone(struct fi_rig *r);
/* in ft_fi_calls_cq.c: */
void call_formats(struct fi_rig *r);
void call_waits(struct fi_rig *r);
void call_error_entry(struct fi_rig *r);
void call_selective(struct fi_rig *r);
void call_selective_look(struct fi_rig *r);
void call_turns(struct fi_rig *r);
void call_signal(struct fi_rig *r);
void call_polled(struct fi_rig *r);
/* Returns true if the queue stays empty for 20 ms. */
bool call_silent(struct fid_cq *cq);
/* in ft_fi_calls_ends.c: */
void call_bound_queue(struct fi_rig *r);
void call_one_way(struct fi_rig *r);
void call_early_data(struct fi_rig *r);
void call_void_keys(struct fi_rig *r);
void call_closed(struct fi_rig *r);
void call_sender_gone(struct fi_rig *r);
void call_cut_unread(struct fi_rig *r);
void call_too_soon(struct fi_rig *r);
/* This case needs MOONRAIL_MAX_PEERS=3. */
void call_visitors(struct fi_rig *r);
/* This case runs without the two processes of a rig. */
void call_unclosed(void);
/* in ft_fi_calls_hints.c: */
/* Allocates hints for an RDM endpoint with the capability FI_MSG. */
struct fi_info *call_hints(const char *provider);
/* Calls fi_getinfo and frees the hints. Returns its result. */
int call_info(struct fi_info *h, const char *node, const char *service,
	      uint64_t flags, struct fi_info **info);
void call_hints_of(const char *provider);
void call_own_hints(void);
/* in ft_fi_calls_mr.c: */
void call_registrations(struct fi_rig *r);
void call_described(struct fi_rig *r);
void call_many_buffers(struct fi_rig *r);
/* in ft_fi_calls_msg.c: */
void call_pieces(struct fi_rig *r);
void call_too_long(struct fi_rig *r);
void call_rma_pieces(struct fi_rig *r);
void call_inject(struct fi_rig *r);
void call_more(struct fi_rig *r);
void call_directed(struct fi_rig *r);
void call_removed(struct fi_rig *r);
void call_cancel_multi(struct fi_rig *r);
void call_longs(struct fi_rig *r);
void call_room(struct fi_rig *r);
/* in ft_fi_calls_peer.c: */
void call_sought(struct fi_rig *r);
void call_full(struct fi_rig *r);
void call_own_full(struct fi_rig *r);
/* The following cases need MC_SLICE_TIMEOUT=CALL_SILENT_S. The other process is
 * stopped for longer than that, or starts later. */
void call_stopped(struct fi_rig *r);
void call_late(struct fi_rig *r);
void call_given_up(struct fi_rig *r);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_FI_CALLS_H */
