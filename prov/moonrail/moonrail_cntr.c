/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counters of completions.
 */
#include <stdlib.h>

#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/world.h"

#define CNTR_SPIN_NS	(50 * TEI_NS_PER_US)	/* time for which fi_cntr_wait
						 * polls before it sleeps */
#define CNTR_SLEEP_NS	(20 * TEI_NS_PER_MS)	/* longest sleep between two
						 * polls */

static struct moonrail_cntr *cntr_of(struct fid_cntr *fid)
{
	return tei_container_of(fid, struct moonrail_cntr, fid);
}

void moonrail_cntr_add(struct moonrail_cntr *c, bool good)
{
	c->failed += !good;
	__atomic_fetch_add(good ? &c->value : &c->errors, 1, __ATOMIC_RELEASE);
	moonrail_notify(c->domain);
}

static uint64_t cntr_read(struct fid_cntr *fid)
{
	struct moonrail_cntr *c = cntr_of(fid);

	moonrail_progress(c->domain);
	return __atomic_load_n(&c->value, __ATOMIC_ACQUIRE);
}

/* Returns the counter's number of errors, and records that the application
 * knows all of them. */
static uint64_t cntr_take_errors(struct moonrail_cntr *c)
{
	uint64_t errors;

	moonrail_enter(c->domain);
	errors = c->known_errors = c->errors;
	c->past = c->failed;
	moonrail_leave(c->domain);
	return errors;
}

static uint64_t cntr_readerr(struct fid_cntr *fid)
{
	struct moonrail_cntr *c = cntr_of(fid);

	moonrail_progress(c->domain);
	return cntr_take_errors(c);
}

void moonrail_cntr_error_read(struct moonrail_domain *d, uint64_t id,
			      uint64_t nth)
{
	struct moonrail_cntr *c;

	tei_list_foreach(c, &d->cntrs, struct moonrail_cntr, link) {
		if (c->id != id)
			continue;
		/* errors before c->past are known already; they may still be in
		 * another completion queue */
		if (nth > c->past && c->known_errors < c->errors)
			c->known_errors++;
		return;
	}
}

static int cntr_change(struct fid_cntr *fid, uint64_t *at, uint64_t value,
		       bool add)
{
	struct moonrail_cntr *c = cntr_of(fid);

	moonrail_enter(c->domain);
	if (add)
		__atomic_fetch_add(at, value, __ATOMIC_RELEASE);
	else
		__atomic_store_n(at, value, __ATOMIC_RELEASE);
	moonrail_notify(c->domain);
	moonrail_leave(c->domain);
	return 0;
}

static int cntr_add(struct fid_cntr *fid, uint64_t value)
{
	return cntr_change(fid, &cntr_of(fid)->value, value, true);
}

static int cntr_set(struct fid_cntr *fid, uint64_t value)
{
	return cntr_change(fid, &cntr_of(fid)->value, value, false);
}

static int cntr_adderr(struct fid_cntr *fid, uint64_t value)
{
	return cntr_change(fid, &cntr_of(fid)->errors, value, true);
}

/* Sets the number of errors and wakes the threads in fi_cntr_wait. The
 * application knows the errors that it has set itself. */
static int cntr_seterr(struct fid_cntr *fid, uint64_t value)
{
	struct moonrail_cntr *c = cntr_of(fid);

	moonrail_enter(c->domain);
	c->known_errors = value;
	c->past = c->failed;
	__atomic_store_n(&c->errors, value, __ATOMIC_RELEASE);
	moonrail_notify(c->domain);
	moonrail_leave(c->domain);
	return 0;
}

static uint64_t cntr_known(struct moonrail_cntr *c)
{
	uint64_t known;

	moonrail_enter(c->domain);
	known = c->known_errors;
	moonrail_leave(c->domain);
	return known;
}

/*
 * Waits until the counter reaches the threshold. An error that the application
 * does not know yet ends the wait, even if the error is older than the call.
 * Otherwise a program that posts and then waits could wait for an operation
 * that failed before the wait. An error during the wait ends the wait even if
 * another thread has read the error first.
 */
static int cntr_wait(struct fid_cntr *fid, uint64_t threshold, int timeout)
{
	struct moonrail_cntr *c = cntr_of(fid);
	uint64_t from = tei_now_ns(), now, end, seen, known = cntr_known(c);

	end = timeout < 0 ? UINT64_MAX :
			    from + (uint64_t)timeout * TEI_NS_PER_MS;
	for (;;) {
		seen = moonrail_events(c->domain);
		if (cntr_read(fid) >= threshold)
			return 0;
		if (__atomic_load_n(&c->errors, __ATOMIC_ACQUIRE) != known) {
			cntr_take_errors(c);
			return -FI_EAVAIL;
		}
		now = tei_now_ns();
		if (now >= end)
			return -FI_ETIMEDOUT;
		if (now - from < CNTR_SPIN_NS)
			tei_relax();
		else
			moonrail_sleep(c->domain, seen,
				       end - now < CNTR_SLEEP_NS ?
					       end - now : CNTR_SLEEP_NS);
	}
}

static int cntr_close(struct fid *fid)
{
	struct moonrail_cntr *c =
		tei_container_of(fid, struct moonrail_cntr, fid.fid);
	struct moonrail_domain *d = c->domain;

	moonrail_enter(d);
	if (c->refs) {
		moonrail_leave(d);
		return -FI_EBUSY;
	}
	tei_list_del(&c->link);
	moonrail_leave(d);
	moonrail_domain_unref(d);
	free(c);
	return 0;
}

static struct fi_ops cntr_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = cntr_close,
	.bind = moonrail_no_bind,
	.control = moonrail_no_control,
	.ops_open = moonrail_no_ops,
};

static struct fi_ops_cntr cntr_ops = {
	.size = sizeof(struct fi_ops_cntr),
	.read = cntr_read,
	.readerr = cntr_readerr,
	.add = cntr_add,
	.set = cntr_set,
	.wait = cntr_wait,
	.adderr = cntr_adderr,
	.seterr = cntr_seterr,
};

int moonrail_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		       struct fid_cntr **out, void *context)
{
	struct moonrail_cntr *c;

	if (attr && (attr->events != FI_CNTR_EVENTS_COMP ||
		     (attr->wait_obj != FI_WAIT_NONE &&
		      attr->wait_obj != FI_WAIT_UNSPEC)))
		return -FI_ENOSYS;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -FI_ENOMEM;
	c->domain = tei_container_of(domain, struct moonrail_domain, fid);
	c->fid.fid.fclass = FI_CLASS_CNTR;
	c->fid.fid.context = context;
	c->fid.fid.ops = &cntr_fi_ops;
	c->fid.ops = &cntr_ops;
	moonrail_domain_ref(c->domain);
	moonrail_enter(c->domain);
	c->id = ++c->domain->next_id;
	tei_list_add_tail(&c->domain->cntrs, &c->link);
	moonrail_leave(c->domain);
	*out = &c->fid;
	return 0;
}
