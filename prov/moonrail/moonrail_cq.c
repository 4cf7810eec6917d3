/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Completion queues.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_cq.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_fabric.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/world.h"

#define CQ_EMPTY_POLLS	50	/* number of empty polls before the thread
				 * yields the processor; they take about 50
				 * us */
#define CQ_SPIN_NS	(50 * TEI_NS_PER_US)	/* time for which fi_cq_sread
						 * polls before it sleeps */
#define CQ_SLEEP_NS	(20 * TEI_NS_PER_MS)	/* longest sleep between two
						 * polls */

static struct moonrail_cq *cq_of(struct fid_cq *fid)
{
	return tei_container_of(fid, struct moonrail_cq, fid);
}

/* Makes the file descriptor not readable if the queue is empty. Called only
 * before a thread sleeps. Calls that read the queue do not change the file
 * descriptor, which saves a polling application two system calls per
 * completion. */
static void cq_reset_wait(struct moonrail_cq *cq)
{
	if (!cq->n)
		moonrail_wait_reset(&cq->wait);
}

static bool cq_grow(struct moonrail_cq *cq)
{
	uint32_t cap = cq->cap ? cq->cap * 2 : 256, i;
	struct moonrail_entry *ring = malloc(cap * sizeof(*ring));

	if (!ring)
		return false;
	for (i = 0; i < cq->n; i++)
		ring[i] = cq->ring[(cq->head + i) % cq->cap];
	free(cq->ring);
	cq->ring = ring;
	cq->cap = cap;
	cq->head = 0;
	return true;
}

void moonrail_cq_add(struct moonrail_cq *cq, const struct moonrail_entry *e)
{
	if (cq->n == cq->cap && !cq_grow(cq)) {
		TEI_ERROR("prov", "completion queue: a completion is lost: out of memory");
		return;
	}
	cq->ring[(cq->head + cq->n) % cq->cap] = *e;
	__atomic_store_n(&cq->n, cq->n + 1, __ATOMIC_RELEASE);
	moonrail_wait_signal(&cq->wait);
	moonrail_notify(cq->domain);
}

static size_t cq_entry_size(enum fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_TAGGED:
		return sizeof(struct fi_cq_tagged_entry);
	default:
		return sizeof(struct fi_cq_entry);
	}
}

static struct moonrail_entry *cq_first(struct moonrail_cq *cq)
{
	return cq->n ? &cq->ring[cq->head] : NULL;
}

static void cq_drop_first(struct moonrail_cq *cq)
{
	cq->head = (cq->head + 1) % cq->cap;
	__atomic_store_n(&cq->n, cq->n - 1, __ATOMIC_RELEASE);
}

/* Reads up to count completions into buf. Each entry format is a prefix of the
 * next larger one. Errors keep their place among the completions, because an
 * error may return a buffer to which earlier completions refer. */
static ssize_t cq_take(struct moonrail_cq *cq, void *buf, size_t count,
		       fi_addr_t *src)
	TEI_REQUIRES(moonrail_held)
{
	size_t size = cq_entry_size(cq->format), i;
	struct fi_cq_tagged_entry t;
	struct moonrail_entry *e = cq_first(cq);

	if (!e)
		return -FI_EAGAIN;
	if (e->err)
		return -FI_EAVAIL;
	for (i = 0; i < count && e && !e->err; i++, e = cq_first(cq)) {
		t.op_context = e->context;
		t.flags = e->flags;
		t.len = e->len;
		t.buf = e->buf;
		t.data = e->data;
		t.tag = e->tag;
		memcpy((char *)buf + i * size, &t, size);
		if (src)
			src[i] = e->src;
		cq_drop_first(cq);
	}
	return (ssize_t)i;
}

/* Reads completions if the queue is not empty. The check takes no lock, because
 * applications poll many empty queues. */
static ssize_t cq_take_now(struct moonrail_cq *cq, void *buf, size_t count,
			   fi_addr_t *src)
{
	ssize_t ret;

	if (!__atomic_load_n(&cq->n, __ATOMIC_ACQUIRE))
		return -FI_EAGAIN;
	moonrail_enter(cq->domain);
	ret = cq_take(cq, buf, count, src);
	moonrail_leave(cq->domain);
	return ret;
}

/* Notifies the data plane that a thread is going to sleep on the file
 * descriptor. The progress thread then polls the lanes, even if callers have
 * polled them until now, until the queue is read again. */
static void cq_sleep_begin(struct moonrail_cq *cq)
{
	if (cq->wait.fd >= 0 &&
	    !__atomic_exchange_n(&cq->sleeping, true, __ATOMIC_RELAXED))
		tei_rail_sleep_begin(cq->domain->dp);
}

static void cq_sleep_end(struct moonrail_cq *cq)
{
	if (__atomic_load_n(&cq->sleeping, __ATOMIC_RELAXED) &&
	    __atomic_exchange_n(&cq->sleeping, false, __ATOMIC_RELAXED))
		tei_rail_sleep_end(cq->domain->dp);
}

/* Reads completions. If there are none, polls the lanes and tries again. */
static ssize_t cq_poll(struct moonrail_cq *cq, void *buf, size_t count,
		       fi_addr_t *src)
{
	ssize_t ret;

	cq_sleep_end(cq);
	ret = cq_take_now(cq, buf, count, src);
	if (ret != -FI_EAGAIN)
		return ret;
	moonrail_progress(cq->domain);
	return cq_take_now(cq, buf, count, src);
}

/*
 * Reads completions. After many empty polls, yields the processor, because the
 * thread for which the caller waits may need it. This matters if more threads
 * poll than there are processors: a large message takes several iterations at
 * both sides, and each iteration can then cost a time slice of the scheduler.
 */
static ssize_t cq_readfrom(struct fid_cq *fid, void *buf, size_t count,
			   fi_addr_t *src)
{
	struct moonrail_cq *cq = cq_of(fid);
	ssize_t ret = cq_poll(cq, buf, count, src);
	uint32_t empty = 0;

	if (ret == -FI_EAGAIN)
		empty = __atomic_load_n(&cq->empty, __ATOMIC_RELAXED) + 1;
	if (empty > CQ_EMPTY_POLLS)
		tei_yield();
	else
		__atomic_store_n(&cq->empty, empty, __ATOMIC_RELAXED);
	return ret;
}

static ssize_t cq_read(struct fid_cq *fid, void *buf, size_t count)
{
	return cq_readfrom(fid, buf, count, NULL);
}

static ssize_t cq_readerr(struct fid_cq *fid, struct fi_cq_err_entry *out,
			  uint64_t flags)
{
	struct moonrail_cq *cq = cq_of(fid);
	struct moonrail_entry e, *first;

	(void)flags;
	moonrail_enter(cq->domain);
	first = cq_first(cq);
	if (!first || !first->err) {
		moonrail_leave(cq->domain);
		return -FI_EAGAIN;
	}
	e = *first;
	cq_drop_first(cq);
	if (e.cntr)
		moonrail_cntr_error_read(cq->domain, e.cntr, e.nth);
	moonrail_leave(cq->domain);
	out->op_context = e.context;
	out->flags = e.flags;
	out->len = e.len;
	out->buf = e.buf;
	out->data = e.data;
	out->tag = e.tag;
	out->olen = e.olen;
	out->err = e.err;
	out->prov_errno = e.err;
	/* before API version 1.5, the structure has no member err_data_size */
	if (FI_VERSION_GE(cq->domain->fabric->fid.api_version,
			  FI_VERSION(1, 5)))
		out->err_data_size = 0;
	return 1;
}

static bool cq_woken(struct moonrail_cq *cq) TEI_REQUIRES(moonrail_held)
{
	bool woken = cq->woken;

	cq->woken = false;
	return woken;
}

/* Reads completions. If there are none, polls for a while, then sleeps while
 * the progress thread polls the lanes. */
static ssize_t cq_sreadfrom(struct fid_cq *fid, void *buf, size_t count,
			    fi_addr_t *src, const void *cond, int timeout)
{
	struct moonrail_cq *cq = cq_of(fid);
	uint64_t from = tei_now_ns(), now, end, seen;
	bool woken;
	ssize_t ret;

	(void)cond;
	if (cq->wait.kind == FI_WAIT_NONE)
		return -FI_ENOSYS;
	end = timeout < 0 ? UINT64_MAX :
			    from + (uint64_t)timeout * TEI_NS_PER_MS;
	for (;;) {
		seen = moonrail_events(cq->domain);
		ret = cq_poll(cq, buf, count, src);
		now = tei_now_ns();
		if (ret != -FI_EAGAIN || now >= end)
			return ret;
		moonrail_enter(cq->domain);
		woken = cq_woken(cq);
		moonrail_leave(cq->domain);
		if (woken)
			return -FI_EAGAIN;
		if (now - from < CQ_SPIN_NS)
			tei_relax();
		else
			moonrail_sleep(cq->domain, seen,
				       end - now < CQ_SLEEP_NS ? end - now :
								 CQ_SLEEP_NS);
	}
}

static ssize_t cq_sread(struct fid_cq *fid, void *buf, size_t count,
			const void *cond, int timeout)
{
	return cq_sreadfrom(fid, buf, count, NULL, cond, timeout);
}

static int cq_wake(struct fid_cq *fid)
{
	struct moonrail_cq *cq = cq_of(fid);

	moonrail_enter(cq->domain);
	cq->woken = true;
	moonrail_wait_signal(&cq->wait);
	moonrail_notify(cq->domain);
	moonrail_leave(cq->domain);
	return 0;
}

static const char *cq_strerror(struct fid_cq *fid, int prov_errno,
			       const void *err_data, char *buf, size_t len)
{
	(void)fid, (void)err_data;
	if (buf && len)
		strncpy(buf, fi_strerror(prov_errno), len - 1)[len - 1] = '\0';
	return fi_strerror(prov_errno);
}

int moonrail_cq_trywait(struct moonrail_cq *cq)
{
	int ret;

	moonrail_progress(cq->domain);
	moonrail_enter(cq->domain);
	moonrail_drain(cq->domain);
	cq_reset_wait(cq);
	ret = cq->n ? -FI_EAGAIN : 0;
	moonrail_leave(cq->domain);
	if (!ret)
		cq_sleep_begin(cq);
	return ret;
}

static int cq_control(struct fid *fid, int command, void *arg)
{
	struct moonrail_cq *cq = tei_container_of(fid, struct moonrail_cq,
						  fid.fid);

	return moonrail_wait_control(&cq->wait, command, arg);
}

static int cq_close(struct fid *fid)
{
	struct moonrail_cq *cq = tei_container_of(fid, struct moonrail_cq,
						  fid.fid);
	struct moonrail_domain *d = cq->domain;

	moonrail_enter(d);
	if (cq->refs) {
		moonrail_leave(d);
		return -FI_EBUSY;
	}
	moonrail_leave(d);
	cq_sleep_end(cq);
	moonrail_domain_unref(d);
	moonrail_wait_close(&cq->wait);
	free(cq->ring);
	free(cq);
	return 0;
}

static struct fi_ops cq_fi_ops = {
	.size = sizeof(struct fi_ops),
	.close = cq_close,
	.bind = moonrail_no_bind,
	.control = cq_control,
	.ops_open = moonrail_no_ops,
};

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = cq_read,
	.readfrom = cq_readfrom,
	.readerr = cq_readerr,
	.sread = cq_sread,
	.sreadfrom = cq_sreadfrom,
	.signal = cq_wake,
	.strerror = cq_strerror,
};

int moonrail_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		     struct fid_cq **out, void *context)
{
	struct moonrail_cq *cq;
	int ret;

	if (attr->format > FI_CQ_FORMAT_TAGGED ||
	    attr->wait_cond != FI_CQ_COND_NONE)
		return -FI_ENOSYS;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	ret = moonrail_wait_open(attr->wait_obj, &cq->wait);
	if (ret) {
		free(cq);
		return ret;
	}
	cq->format = attr->format ? attr->format : FI_CQ_FORMAT_CONTEXT;
	cq->domain = tei_container_of(domain, struct moonrail_domain, fid);
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fi_ops;
	cq->fid.ops = &cq_ops;
	moonrail_domain_ref(cq->domain);
	*out = &cq->fid;
	return 0;
}
