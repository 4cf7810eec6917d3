/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters, and how waits for them end when the peer ends. */
#include <sys/socket.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/ft_fi_calls.h"

/* --- counters alone ------------------------------------------------------ */

void call_counter(struct fi_rig *r)
{
	struct fi_cntr_attr attr = {
		.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC,
	};
	uint64_t from, end;
	struct fid_cntr *c;
	bool good;

	if (!fi_rig_ok(r, !fi_cntr_open(r->domain, &attr, &c, NULL),
		       "counter_is_opened"))
		return;
	good = !fi_cntr_set(c, 5) && fi_cntr_read(c) == 5 &&
	       !fi_cntr_add(c, 2) && fi_cntr_read(c) == 7 &&
	       !fi_cntr_wait(c, 7, 0);
	fi_rig_ok(r, good, "counter_is_set_increased_and_waited_for");
	from = ft_now_ns();
	good = fi_cntr_wait(c, 8, 30) == -FI_ETIMEDOUT;
	end = ft_now_ns();
	fi_rig_ok(r, good && end - from >= UINT64_C(25000000),
		  "counter_wait_times_out_after_its_timeout");
	good = !fi_cntr_adderr(c, 3) && fi_cntr_readerr(c) == 3 &&
	       !fi_cntr_seterr(c, 1) && fi_cntr_readerr(c) == 1 &&
	       fi_cntr_read(c) == 7 && !fi_close(&c->fid);
	fi_rig_ok(r, good, "counter_counts_errors_separately");
	while (fi_rig_again(r, fi_recv(r->ep, r->mem, 8, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	from = fi_cntr_read(r->sent);
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 8, NULL, r->self, NULL)))
		;
	good = !fi_cntr_wait(r->sent, from + 1, FI_RIG_WAIT_MS) &&
	       fi_cntr_read(r->sent) == from + 1 && call_sent(r);
	fi_rig_ok(r, call_done(r, r->rx, &(struct fi_rig_done){ .err = 0 }) &&
			     good, "counter_wait_ends_with_a_send");
}

static void call_message(struct fi_rig *r, size_t len, size_t room)
{
	while (fi_rig_again(r, fi_recv(r->ep, r->mem, room, NULL,
				       FI_ADDR_UNSPEC, r)))
		;
	while (fi_rig_again(r, fi_send(r->ep, r->buf, len, NULL, r->self,
				       NULL)))
		;
}

/* Checks that fi_cntr_wait does not end because of an error that the program
 * has read from the completion queue before. */
void call_counter_errors(struct fi_rig *r)
{
	uint64_t was = fi_cntr_read(r->got);
	struct fi_rig_done d;
	bool good;

	while (fi_rig_again(r, fi_recv(r->ep, r->mem, 8, NULL, FI_ADDR_UNSPEC,
				       &d)))
		;
	good = !fi_cancel(&r->ep->fid, &d) && fi_rig_next(r, r->rx, &d) &&
	       d.err == FI_ECANCELED &&
	       fi_cntr_wait(r->got, was + 1, 20) == -FI_ETIMEDOUT;
	fi_rig_ok(r, good, "counter_wait_ignores_earlier_cancelled_receive");
	call_message(r, 64, 8);
	good = call_sent(r) && fi_rig_next(r, r->rx, &d) &&
	       d.err == FI_ETRUNC &&
	       fi_cntr_wait(r->got, was + 1, 20) == -FI_ETIMEDOUT;
	fi_rig_ok(r, good, "counter_wait_ignores_error_already_read");
	call_message(r, 8, 8);
	good = !fi_cntr_wait(r->got, was + 1, FI_RIG_WAIT_MS) && call_sent(r);
	fi_rig_ok(r, call_done(r, r->rx, &d) && good,
		  "counter_wait_ends_with_the_next_message");
}

/* --- operations to a process that has ended ------------------------------ */

/* Posts an operation to the peer. kind is 0: large send, 1: write, 2: atomic,
 * 3: large read. */
static ssize_t call_of(struct fi_rig *r, int kind)
{
	static uint64_t one = 1;

	switch (kind) {
	case 0:
		return fi_tsend(r->ep, r->buf, CALL_LARGE, NULL, r->peer, 1,
				NULL);
	case 1:
		return fi_write(r->ep, r->buf, 64, NULL, r->peer, r->remote,
				r->key, NULL);
	case 2:
		return fi_atomic(r->ep, &one, 1, NULL, r->peer, r->remote,
				 r->key, FI_UINT64, FI_SUM, NULL);
	default:
		return fi_read(r->ep, r->buf, CALL_LARGE, NULL, r->peer,
			       r->remote, r->key, NULL);
	}
}

/* Posts an operation of this kind to a process that has ended. Returns true if
 * it completes with FI_ECONNRESET within 2 s. */
static bool call_fails(struct fi_rig *r, int kind)
{
	uint64_t until = ft_now_ns() + UINT64_C(2000000000);
	struct fi_rig_done d;

	while (fi_rig_again(r, call_of(r, kind)))
		if (ft_now_ns() > until) {
			ft_diag("operation %d: still refused after 2 s", kind);
			return false;
		}
	if (!fi_rig_next(r, r->tx, &d)) {
		ft_diag("operation %d: no completion", kind);
		return false;
	}
	if (d.err == FI_ECONNRESET && ft_now_ns() < until)
		return true;
	ft_diag("operation %d: completed with error %d", kind, d.err);
	return false;
}

/* A send was posted to a peer that then ends. Checks that fi_cntr_wait returns
 * the error, and that the next wait does not return the same error again. */
static void call_counted(struct fi_rig *r)
{
	uint64_t was = fi_cntr_read(r->sent);
	struct fi_rig_done d;
	bool good;

	good = fi_cntr_wait(r->sent, was + 1, FI_RIG_WAIT_MS) == -FI_EAVAIL &&
	       fi_cntr_readerr(r->sent) == 1 && fi_cntr_read(r->sent) == was &&
	       fi_rig_next(r, r->tx, &d) &&
	       (d.err == FI_ECONNREFUSED || d.err == FI_ECONNRESET);
	fi_rig_ok(r, good, "counter_wait_ends_with_failed_send");
	fi_rig_ok(r, fi_cntr_wait(r->sent, was + 1, 20) == -FI_ETIMEDOUT,
		  "counter_wait_after_that_times_out");
}

/* Checks that fi_cntr_wait also returns an error that occurred before the wait.
 * An error counts once: not again after a wait has returned it or the program
 * has read it. */
static void call_counted_late(struct fi_rig *r)
{
	uint64_t was = fi_cntr_read(r->sent), errors;
	struct fi_rig_done d;
	bool good;
	int i;

	errors = fi_cntr_readerr(r->sent);
	/* Both sends fail at once, because the library knows that the peer has
	 * ended. */
	for (i = 0; i < 2; i++)
		while (fi_rig_again(r, call_of(r, 0)))
			;
	good = fi_cntr_wait(r->sent, was + 1, FI_RIG_WAIT_MS) == -FI_EAVAIL;
	while (fi_rig_again(r, call_of(r, 0)))
		;
	/* The first two errors were returned by a wait, the third was not. */
	good = fi_rig_next(r, r->tx, &d) && d.err == FI_ECONNRESET && good &&
	       fi_rig_next(r, r->tx, &d) && d.err == FI_ECONNRESET &&
	       fi_cntr_wait(r->sent, was + 1, FI_RIG_WAIT_MS) == -FI_EAVAIL &&
	       fi_cntr_readerr(r->sent) == errors + 3 &&
	       fi_rig_next(r, r->tx, &d);
	fi_rig_ok(r, good, "counter_wait_begun_after_a_new_failure_ends");
}

/* Makes a send and a receive of the endpoint fail. Reads only the error of the
 * receive, which is in the other queue. Returns true on success. */
static bool call_both_fail(struct fi_rig *r, struct call_ep *e)
{
	uint64_t end = ft_now_ns() + UINT64_C(10000000000);
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry err = { 0 };
	ssize_t n;

	while (fi_rig_again(r, fi_send(e->ep, r->buf, 8, NULL, r->peer, NULL)))
		;
	while (fi_rig_again(r, fi_recv(e->ep, r->mem, 8, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	while (fi_rig_again(r, fi_send(e->ep, r->buf, 64, NULL, e->self, NULL)))
		;
	do {
		n = fi_cq_read(e->cq[1], &entry, 1);
	} while (n == -FI_EAGAIN && ft_now_ns() < end);
	return n == -FI_EAVAIL && fi_cq_readerr(e->cq[1], &err, 0) == 1 &&
	       err.err == FI_ETRUNC;
}

static void call_counted_apart(struct fi_rig *r)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP };
	struct call_ep e = { .counts = NULL };
	uint64_t was;
	bool good;

	good = !fi_cntr_open(r->domain, &attr, &e.counts, NULL) &&
	       call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e);
	if (!fi_rig_ok(r, good,
		       "endpoint_with_two_queues_and_one_counter_is_opened"))
		return;
	good = call_both_fail(r, &e);
	was = fi_cntr_read(e.counts);
	good = good &&
	       fi_cntr_wait(e.counts, was + 100, FI_RIG_WAIT_MS) ==
		       -FI_EAVAIL &&
	       fi_cntr_wait(e.counts, was + 100, 20) == -FI_ETIMEDOUT &&
	       fi_cntr_readerr(e.counts) == 2;
	fi_rig_ok(r, good,
		  "counter_wait_ends_with_unread_error_of_other_queue");
	fi_rig_ok(r, call_close(r, &e) && !fi_close(&e.counts->fid),
		  "endpoint_with_two_queues_and_one_counter_closes");
}

void call_gone(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good;
	char c;

	r->hasty = true;
	if (!r->server) {
		/* After this message, both processes know each other and
		 * nothing is posted. */
		while (fi_rig_again(r, fi_send(r->ep, r->buf, 8, NULL, r->peer,
					       NULL)))
			;
		fi_rig_ok(r, call_sent(r),
			  "last_message_of_ending_process_is_sent");
		fi_rig_meet(r);
		return;
	}
	while (fi_rig_again(r, fi_recv(r->ep, r->buf, 8, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	good = call_done(r, r->rx, &d);
	/* This send stays pending, because the other process posts no receive
	 * for it. */
	while (fi_rig_again(r, call_of(r, 0)))
		;
	fi_rig_meet(r);
	call_counted(r);
	while (recv(r->sock, &c, 1, MSG_DONTWAIT) < 0)
		fi_rig_idle(r);
	fi_rig_ok(r, good && call_fails(r, 0) && call_fails(r, 1) &&
			     call_fails(r, 2) && call_fails(r, 3),
		  "operations_to_ended_process_fail_in_time");
	call_counted_late(r);
	call_counted_apart(r);
}
