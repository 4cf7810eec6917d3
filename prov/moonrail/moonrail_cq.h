/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_CQ_H
#define TEI_PROV_MOONRAIL_MOONRAIL_CQ_H

/*
 * Completion queues, counters and poll sets.
 */

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <stdbool.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_int.h"
#include "util/list.h"
#include "util/lock.h"

struct moonrail_domain;

struct moonrail_entry {
	void *context, *buf;
	uint64_t flags, data, tag;
	size_t len, olen;
	fi_addr_t src;
	int err;
	uint64_t cntr, nth;		/* id of the counter that has counted
					 * this error, and number of the error
					 * at that counter; both are 0 if no
					 * counter has counted it */
};

/* Created by fi_cq_open, freed by fi_close. domain->lock guards all fields
 * except those marked atomic. */
struct moonrail_cq {
	struct fid_cq fid;
	struct moonrail_domain *domain;
	enum fi_cq_format format;
	struct moonrail_wait wait;
	bool woken;			/* fi_cq_signal was called */
	uint32_t refs;			/* number of endpoints and poll sets
					 * that use the queue */
	struct moonrail_entry *ring;	/* ring buffer of completions and
					 * errors, in order of arrival; grows
					 * when it is full */
	uint32_t head, cap;
	uint32_t n;			/* number of entries in ring; may be
					 * read without the lock */
	uint32_t empty;			/* number of consecutive polls that
					 * found no completion; atomic */
	bool sleeping;			/* a thread sleeps on the file
					 * descriptor or is about to, and the
					 * data plane has been notified of this;
					 * atomic */
};

/* Created by fi_cntr_open, freed by fi_close. */
struct moonrail_cntr {
	/* constant */
	struct fid_cntr fid;
	struct moonrail_domain *domain;
	uint64_t id;
	/* read without a lock, changed under domain->lock */
	uint64_t value, errors;
	/* guarded by domain->lock */
	struct tei_list link;		/* in domain->cntrs */
	uint64_t known_errors;		/* number of errors that the application
					 * already knows */
	uint64_t failed, past;		/* failed: number of all operations that
					 * have failed; past: value of failed
					 * when the application last read the
					 * number of errors */
	uint32_t refs;			/* number of endpoints, registrations
					 * and poll sets that use the counter */
};

/* --- moonrail_cq.c, moonrail_cntr.c -------------------------------------- */
int moonrail_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		     struct fid_cq **cq, void *context);
/* Returns 0 if the queue is empty and its file descriptor will report the next
 * entry, otherwise -FI_EAGAIN. */
int moonrail_cq_trywait(struct moonrail_cq *cq);
/* Appends a completion or an error and wakes the threads that wait for it. */
void moonrail_cq_add(struct moonrail_cq *cq, const struct moonrail_entry *e)
	TEI_REQUIRES(moonrail_held);
int moonrail_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		       struct fid_cntr **cntr, void *context);
/* Adds 1 to the successes of a counter if good is true, otherwise to its
 * errors. */
void moonrail_cntr_add(struct moonrail_cntr *cntr, bool good)
	TEI_REQUIRES(moonrail_held);
/* Records that the application has read error number nth of the counter with
 * that id, if the counter is still open. */
void moonrail_cntr_error_read(struct moonrail_domain *d, uint64_t id,
			      uint64_t nth) TEI_REQUIRES(moonrail_held);

/* --- moonrail_poll.c ----------------------------------------------------- */
int moonrail_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
		       struct fid_poll **set);

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_CQ_H */
