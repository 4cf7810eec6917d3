/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues. */
#include <pthread.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_fi_calls.h"

/* Checks completions in one format. Each format has the members of the next
 * smaller format and more. */
static bool call_format(struct fi_rig *r, enum fi_cq_format format)
{
	struct fi_cq_tagged_entry t[2];
	struct call_ep e = { .counts = NULL };
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	bool good = true;

	memset(t, 0xee, sizeof(t));
	if (!call_open(r, format, 0, &e))
		return false;
	while (fi_rig_again(r, fi_trecv(e.ep, r->mem, 64, NULL, FI_ADDR_UNSPEC,
					55, 0, &t[0])))
		;
	while (fi_rig_again(r, fi_tsenddata(e.ep, r->buf, 24, NULL, 99, e.self,
					    55, &t[1])))
		;
	good = call_await(e.cq[0], &t[1], NULL) && t[1].op_context == &t[1] &&
	       call_await(e.cq[1], &t[0], &src) && t[0].op_context == &t[0] &&
	       src == e.self;
	if (format >= FI_CQ_FORMAT_MSG)
		good = good && t[0].len == 24 && t[0].flags & FI_TAGGED &&
		       t[0].flags & FI_RECV && t[1].flags & FI_SEND;
	if (format >= FI_CQ_FORMAT_DATA)
		good = good && t[0].data == 99 &&
		       t[0].flags & FI_REMOTE_CQ_DATA;
	if (format >= FI_CQ_FORMAT_TAGGED)
		good = good && t[0].tag == 55;
	else	/* The queue must not write beyond the entry. */
		good = good && t[0].tag == UINT64_C(0xeeeeeeeeeeeeeeee);
	return call_close(r, &e) && good;
}

void call_formats(struct fi_rig *r)
{
	bool good = true;
	int i;

	for (i = FI_CQ_FORMAT_CONTEXT; i <= FI_CQ_FORMAT_TAGGED; i++)
		good = call_format(r, (enum fi_cq_format)i) && good;
	fi_rig_ok(r, good, "completions_of_all_formats_and_sources_are_right");
}

/* Opens an endpoint and posts a receive of len bytes with this tag. Then sends
 * itself 24 bytes with this tag and the data 98. */
static bool call_to_self(struct fi_rig *r, struct call_ep *e, uint64_t tag,
			 size_t len)
{
	if (!call_open(r, FI_CQ_FORMAT_TAGGED, 0, e))
		return false;
	while (fi_rig_again(r, fi_trecv(e->ep, r->mem, len, NULL,
					FI_ADDR_UNSPEC, tag, 0, r)))
		;
	while (fi_rig_again(r, fi_tsenddata(e->ep, r->buf, 24, NULL, 98,
					    e->self, tag, e)))
		;
	return true;
}

/* Checks that fi_cq_sread and fi_cq_sreadfrom return a completion, and the
 * latter also its source. */
void call_waits(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct fi_cq_tagged_entry t;
	bool good;

	good = call_to_self(r, &e, 56, 64) &&
	       fi_cq_sread(e.cq[0], &t, 1, NULL, FI_RIG_WAIT_MS) == 1 &&
	       t.op_context == &e && t.flags & FI_SEND;
	fi_rig_ok(r, good, "sread_returns_the_completion");
	good = good && fi_cq_sreadfrom(e.cq[1], &t, 1, &src, NULL,
				       FI_RIG_WAIT_MS) == 1 &&
	       t.op_context == r && t.len == 24 && t.data == 98 &&
	       t.tag == 56 && src == e.self;
	fi_rig_ok(r, good && call_close(r, &e),
		  "sreadfrom_returns_the_completion_and_its_source");
}

/* Checks the error entry of a truncated message. Runs with moonrail only,
 * because other providers may not work after such an error. */
void call_error_entry(struct fi_rig *r)
{
	struct fi_cq_err_entry err = { .err = 0 };
	struct call_ep e = { .counts = NULL };
	struct fi_cq_tagged_entry t;
	ssize_t n;
	bool good;

	if (!call_moonrail(r))
		return;
	good = call_to_self(r, &e, 57, 8) && call_await(e.cq[0], &t, NULL);
	n = good ? fi_cq_sread(e.cq[1], &t, 1, NULL, FI_RIG_WAIT_MS) : 0;
	good = n == -FI_EAVAIL && fi_cq_readerr(e.cq[1], &err, 0) == 1 &&
	       err.err == FI_ETRUNC && err.op_context == r && err.len == 8 &&
	       err.olen == 16 && err.tag == 57 && err.data == 98 &&
	       err.flags & FI_REMOTE_CQ_DATA && err.flags & FI_TAGGED;
	fi_rig_ok(r, good && call_close(r, &e),
		  "error_entry_describes_the_truncated_message");
}

/* Returns true if fi_cq_read still finds nothing after 20 ms. */
bool call_silent(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry t;
	uint64_t end = ft_now_ns() + UINT64_C(20000000);
	ssize_t n;

	do {
		n = fi_cq_read(cq, &t, 1);
	} while (n == -FI_EAGAIN && ft_now_ns() < end);
	return n == -FI_EAGAIN;
}

void call_selective(struct fi_rig *r)
{
	struct iovec iov = { .iov_base = r->mem, .iov_len = 64 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = r,
	};
	struct fi_cq_tagged_entry t;
	struct call_ep e = { .counts = NULL };
	bool good = true;
	int i;

	if (!fi_rig_ok(r, call_open(r, FI_CQ_FORMAT_TAGGED,
				    FI_SELECTIVE_COMPLETION, &e),
		       "selective_endpoint_is_opened"))
		return;
	for (i = 0; i < 2; i++) {
		msg.addr = FI_ADDR_UNSPEC;
		iov.iov_base = r->mem;
		while (fi_rig_again(r, fi_recvmsg(e.ep, &msg,
						  i ? FI_COMPLETION : 0)))
			;
		msg.addr = e.self;
		iov.iov_base = r->buf;
		while (fi_rig_again(r, fi_sendmsg(e.ep, &msg,
						  i ? FI_COMPLETION : 0)))
			;
		if (i)
			good = good && call_await(e.cq[0], &t, NULL) &&
			       call_await(e.cq[1], &t, NULL) &&
			       t.op_context == r;
		else
			good = call_silent(e.cq[0]) && call_silent(e.cq[1]);
	}
	fi_rig_ok(r, good,
		  "selective_endpoint_reports_only_requested_completions");
	fi_rig_ok(r, call_silent(e.cq[0]) && call_silent(e.cq[1]) &&
			     call_close(r, &e),
			     "selective_endpoint_reports_each_completion_once");
}

/* Posts receives with FI_PEEK in `flags` until one finds a message. Returns
 * true if its completion is right. */
static bool call_look(struct call_ep *e, struct fi_context *context,
		      uint64_t flags)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct fi_msg_tagged msg = {
		.addr = FI_ADDR_UNSPEC, .tag = 5, .context = context,
	};
	struct fi_cq_err_entry err;
	struct fi_cq_tagged_entry t;

	do {
		if (fi_trecvmsg(e->ep, &msg, flags))
			return false;
		if (call_await(e->cq[1], &t, NULL))
			return t.op_context == context &&
			       (flags & FI_DISCARD || t.len == 24);
		memset(&err, 0, sizeof(err));
		if (fi_cq_readerr(e->cq[1], &err, 0) != 1 ||
		    err.err != FI_ENOMSG)
			return false;
	} while (ft_now_ns() < end);
	return false;
}

/* Checks that receives with FI_PEEK or FI_CLAIM report their results, although
 * the queue has selective completion. */
void call_selective_look(struct fi_rig *r)
{
	struct fi_context context[2];
	struct fi_msg_tagged msg = {
		.addr = FI_ADDR_UNSPEC, .tag = 5, .context = context,
	};
	struct fi_cq_tagged_entry t;
	struct call_ep e = { .counts = NULL };
	bool good;
	int i;

	if (!fi_rig_ok(r, call_open(r, FI_CQ_FORMAT_TAGGED,
				    FI_SELECTIVE_COMPLETION, &e),
		       "selective_endpoint_for_peeks_is_opened"))
		return;
	for (i = 0; i < 2; i++)
		while (fi_rig_again(r, fi_tsend(e.ep, r->buf, 24, NULL, e.self,
						5, NULL)))
			;
	good = call_look(&e, context, FI_PEEK | FI_CLAIM) &&
	       !fi_trecvmsg(e.ep, &msg, FI_CLAIM | FI_DISCARD) &&
	       call_await(e.cq[1], &t, NULL) && t.op_context == context &&
	       call_look(&e, context, FI_PEEK | FI_DISCARD);
	fi_rig_ok(r, good && call_close(r, &e),
		  "selective_endpoint_reports_results_of_peeks");
}

/* Checks that a completion that comes before an error is also read before it.
 * Runs with moonrail only, which delivers a message to the same domain before
 * fi_send returns. */
void call_turns(struct fi_rig *r)
{
	struct fi_cq_tagged_entry t[2];
	struct fi_cq_err_entry err;
	struct call_ep e = { .counts = NULL };
	bool good = true;
	int i;

	if (!call_moonrail(r))
		return;
	if (!fi_rig_ok(r, call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e),
		       "endpoint_for_an_error_is_opened"))
		return;
	for (i = 0; i < 2; i++)
		while (fi_rig_again(r, fi_recv(e.ep, r->mem, 64, NULL,
					       FI_ADDR_UNSPEC, &t[i])))
			;
	while (fi_rig_again(r, fi_send(e.ep, r->buf, 32, NULL, e.self, NULL)))
		;
	memset(&err, 0, sizeof(err));
	good = !fi_cancel(&e.ep->fid, &t[1]) &&
	       fi_cq_readerr(e.cq[1], &err, 0) == -FI_EAGAIN &&
	       fi_cq_read(e.cq[1], t, 2) == 1 && t[0].op_context == &t[0] &&
	       fi_cq_read(e.cq[1], t, 2) == -FI_EAVAIL &&
	       fi_cq_readerr(e.cq[1], &err, 0) == 1 &&
	       err.err == FI_ECANCELED && err.op_context == &t[1];
	fi_rig_ok(r, good && call_close(r, &e),
		  "error_is_read_after_earlier_completion");
}

/* Checks that fi_cq_signal ends a blocking read of an empty queue. */
void call_signal(struct fi_rig *r)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	uint64_t from = ft_now_ns();
	struct fi_cq_entry e;
	struct fid_cq *cq;
	char text[128] = "";
	bool good;

	if (!fi_rig_ok(r, !fi_cq_open(r->domain, &attr, &cq, NULL),
		       "queue_is_opened"))
		return;
	good = !fi_cq_signal(cq) &&
	       fi_cq_sread(cq, &e, 1, NULL, FI_RIG_WAIT_MS) < 0 &&
	       ft_now_ns() - from < UINT64_C(10000000000);
	fi_rig_ok(r, good, "sread_returns_when_the_queue_is_signalled");
	fi_rig_ok(r, !fi_close(&cq->fid) &&
			     fi_cq_strerror(r->rx, FI_EIO, NULL, text,
					    sizeof(text)),
		  "queue_describes_errors");
}

/* --- two threads that read one queue ------------------------------------- */

#define POLLED		192u
#define POLLED_SLOT	(FI_RIG_BUF / POLLED)
#define POLLED_TAG	1000u
#define POLLERS		2

enum call_polled_kind {
	POLLED_SMALL,			/* small message */
	POLLED_LONG,			/* message whose bytes the receiver
					 * reads (rendezvous) */
	POLLED_CUT,			/* message longer than the receive
					 * buffer */
	POLLED_CANCELLED,		/* a receive that is cancelled */
	POLLED_KINDS,
};

struct call_polled {
	struct fi_rig *r;
	/* The following members are accessed atomically. */
	uint32_t done;
	bool bad;
	uint32_t times[POLLED];		/* number of completions reported for
					 * each context */
};

/* Returns true if the provider works after truncated messages. libfabric's tcp
 * before 2.0 leaves the rest of such a message in the socket and takes it for
 * the next message. After that, nothing arrives. */
static bool call_polled_cuts(const struct fi_rig *r)
{
	return call_moonrail(r) ||
	       FI_VERSION_GE(fi_version(), FI_VERSION(2, 0));
}

static enum call_polled_kind call_polled_kind(const struct fi_rig *r, size_t i)
{
	enum call_polled_kind kind = (enum call_polled_kind)(i % POLLED_KINDS);

	return kind == POLLED_CUT && !call_polled_cuts(r) ? POLLED_SMALL : kind;
}

static size_t call_polled_length(const struct fi_rig *r, size_t i)
{
	return call_polled_kind(r, i) == POLLED_LONG ? POLLED_SLOT : 64;
}

static bool call_polled_is(struct call_polled *p, const void *context, int err)
{
	static const int end[] = { 0, 0, FI_ETRUNC, FI_ECANCELED };
	size_t i = (size_t)((const uint32_t *)context - p->times);

	if (i >= POLLED || err != end[call_polled_kind(p->r, i)] ||
	    __atomic_fetch_add(&p->times[i], 1, __ATOMIC_RELAXED))
		return false;
	__atomic_fetch_add(&p->done, 1, __ATOMIC_RELEASE);
	return true;
}

/* Takes one entry from the queue if there is one. Returns false if the entry is
 * wrong. If the queue reports an error, the other thread may read it first. */
static bool call_polled_take(struct call_polled *p)
{
	struct fi_cq_tagged_entry e;
	struct fi_cq_err_entry err;
	ssize_t n = fi_cq_read(p->r->rx, &e, 1);

	if (n == 1)
		return call_polled_is(p, e.op_context, 0);
	if (n != -FI_EAVAIL)
		return n == -FI_EAGAIN;
	memset(&err, 0, sizeof(err));
	n = fi_cq_readerr(p->r->rx, &err, 0);
	return n == 1 ? call_polled_is(p, err.op_context, err.err) :
			n == -FI_EAGAIN;
}

static void *call_poller(void *arg)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct call_polled *p = arg;

	while (!__atomic_load_n(&p->bad, __ATOMIC_RELAXED) &&
	       __atomic_load_n(&p->done, __ATOMIC_ACQUIRE) < POLLED &&
	       ft_now_ns() < end)
		if (!call_polled_take(p))
			__atomic_store_n(&p->bad, true, __ATOMIC_RELAXED);
	return NULL;
}

static void call_polled_fill(struct call_polled *p)
{
	struct fi_rig *r = p->r;
	ssize_t ret;
	size_t i, n;

	for (i = 0; i < POLLED; i++) {
		n = call_polled_kind(r, i) == POLLED_CUT ? 8 : POLLED_SLOT;
		do {
			ret = fi_trecv(r->ep, r->buf + i * POLLED_SLOT, n, NULL,
				       FI_ADDR_UNSPEC, POLLED_TAG + i, 0,
				       &p->times[i]);
		} while (ret == -FI_EAGAIN);
		if (!ret && call_polled_kind(r, i) == POLLED_CANCELLED)
			ret = fi_cancel(&r->ep->fid, &p->times[i]);
		if (ret)
			__atomic_store_n(&p->bad, true, __ATOMIC_RELAXED);
	}
}

static bool call_polled_sent(struct fi_rig *r)
{
	bool good = true;
	size_t i, n;

	for (i = 0; i < POLLED; i++) {
		if (call_polled_kind(r, i) == POLLED_CANCELLED)
			continue;
		n = call_polled_length(r, i);
		fi_rig_fill(r->buf, n, (uint32_t)i);
		while (fi_rig_again(r, fi_tsend(r->ep, r->buf, n, NULL, r->peer,
						POLLED_TAG + i, NULL)))
			;
		good = call_sent(r) && good;
	}
	return good;
}

static bool call_polled_got(struct fi_rig *r)
{
	struct call_polled p = { .r = r };
	pthread_t thread[POLLERS];
	bool good;
	size_t i, n;

	for (n = 0; n < POLLERS; n++)
		if (pthread_create(&thread[n], NULL, call_poller, &p))
			break;
	call_polled_fill(&p);
	for (i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	good = n == POLLERS && !p.bad && p.done == POLLED;
	for (i = 0; i < POLLED && good; i++)
		good = call_polled_kind(r, i) >= POLLED_CUT ||
		       fi_rig_same(r->buf + i * POLLED_SLOT,
				   call_polled_length(r, i), (uint32_t)i);
	return good;
}

/* Checks a completion queue that two threads read while a third thread and the
 * peer cause completions. Each entry must be returned once. */
void call_polled(struct fi_rig *r)
{
	fi_rig_ok(r, r->server ? call_polled_got(r) : call_polled_sent(r),
		  "queue_read_by_two_threads_returns_each_entry_once");
	fi_rig_meet(r);
}
