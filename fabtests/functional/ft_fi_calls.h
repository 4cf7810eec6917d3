/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FT_FI_CALLS_H
#define TEI_FABTESTS_FUNCTIONAL_FT_FI_CALLS_H

#include "fabtests/functional/fi_rig.h"

#define CALL_LARGE	200000u	/* bytes of a message that no provider treats as
				 * small */
#define CALL_SILENT_S	2	/* MC_SLICE_TIMEOUT, s; a stopped process
				 * exceeds it, and a busy one should not */

/* A second endpoint, which sends to itself. */
struct call_ep {
	struct fid_cntr *counts;	/* counts sends and receives */
	struct fid_ep *ep;
	struct fid_cq *cq[2];		/* completion queues of sends and of
					 * receives */
	fi_addr_t self;
};

/* Returns true if the rig uses moonrail's provider. */
bool call_moonrail(const struct fi_rig *r);
/* Returns true if the queue's next completion is a success. */
bool call_done(struct fi_rig *r, struct fid_cq *cq, struct fi_rig_done *d);
/* Returns true if the next send completes with success. */
bool call_sent(struct fi_rig *r);
/* Opens the endpoint *e with queues of that format, bound with these flags, and
 * inserts its address. Sends and receives count in e->counts, if not NULL. */
bool call_open(struct fi_rig *r, enum fi_cq_format format, uint64_t flags,
	       struct call_ep *e);
/* Closes the endpoint and its queues and removes its address. */
bool call_close(struct fi_rig *r, struct call_ep *e);
/* Opens a new fabric, domain and address vector with that source address. */
bool call_domain(struct fi_rig *r, uint32_t format, const char *node,
		 const char *service, struct fi_rig *own);
bool call_domain_close(struct fi_rig *own);
/* Waits for the queue's next completion. src: NULL, or is set to its source. */
bool call_await(struct fid_cq *cq, void *entry, fi_addr_t *src);

/* ft_fi_calls_addr.c */
void call_addresses(struct fi_rig *r);
void call_texts(struct fi_rig *r);
void call_many(struct fi_rig *r);
void call_socket_names(struct fi_rig *r);
void call_two_names(struct fi_rig *r);
void call_other_host(struct fi_rig *r);
void call_own_rails(struct fi_rig *r);
void call_kinds(struct fi_rig *r);
/* ft_fi_calls_cntr.c */
void call_counter(struct fi_rig *r);
void call_counter_errors(struct fi_rig *r);
/* The other process ends during this case. */
void call_gone(struct fi_rig *r);
/* ft_fi_calls_cq.c */
void call_formats(struct fi_rig *r);
void call_waits(struct fi_rig *r);
void call_error_entry(struct fi_rig *r);
void call_selective(struct fi_rig *r);
void call_selective_look(struct fi_rig *r);
void call_turns(struct fi_rig *r);
void call_signal(struct fi_rig *r);
void call_polled(struct fi_rig *r);
/* Returns true if there is nothing to read for a while. */
bool call_silent(struct fid_cq *cq);
/* ft_fi_calls_ends.c */
void call_bound_queue(struct fi_rig *r);
void call_one_way(struct fi_rig *r);
void call_early_data(struct fi_rig *r);
void call_void_keys(struct fi_rig *r);
void call_closed(struct fi_rig *r);
void call_sender_gone(struct fi_rig *r);
void call_cut_unread(struct fi_rig *r);
void call_too_soon(struct fi_rig *r);
/* Runs with MOONRAIL_MAX_PEERS=3. */
void call_visitors(struct fi_rig *r);
/* Runs without a rig. */
void call_unclosed(void);
/* ft_fi_calls_hints.c */
/* Allocates hints for an RDM endpoint of the provider with messages. */
struct fi_info *call_hints(const char *provider);
/* Calls fi_getinfo and frees the hints. */
int call_info(struct fi_info *h, const char *node, const char *service,
	      uint64_t flags, struct fi_info **info);
void call_hints_of(const char *provider);
void call_own_hints(void);
/* ft_fi_calls_mr.c */
void call_registrations(struct fi_rig *r);
void call_described(struct fi_rig *r);
void call_many_buffers(struct fi_rig *r);
/* ft_fi_calls_msg.c */
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
/* ft_fi_calls_peer.c */
void call_sought(struct fi_rig *r);
void call_full(struct fi_rig *r);
void call_own_full(struct fi_rig *r);
/* These three functions run with MC_SLICE_TIMEOUT=CALL_SILENT_S. The other
 * process is stopped for longer than this time, or starts later. */
void call_stopped(struct fi_rig *r);
void call_late(struct fi_rig *r);
void call_given_up(struct fi_rig *r);

#endif /* TEI_FABTESTS_FUNCTIONAL_FT_FI_CALLS_H */
