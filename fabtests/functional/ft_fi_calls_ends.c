/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints that are not ready yet or closed, and processes that have ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/ft_fi_calls.h"

/* --- event queues --------------------------------------------------------- */

void call_bound_queue(struct fi_rig *r)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct fi_cq_attr c = { .format = FI_CQ_FORMAT_TAGGED };
	struct fid_ep *ep;
	struct fid_eq *eq;
	struct fid_cq *cq;
	bool good;

	good = !fi_eq_open(r->fabric, &attr, &eq, NULL) &&
	       !fi_cq_open(r->domain, &c, &cq, NULL) &&
	       !fi_endpoint(r->domain, r->info, &ep, NULL) &&
	       !fi_ep_bind(ep, &eq->fid, 0) &&
	       !fi_ep_bind(ep, &r->av->fid, 0) &&
	       !fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) &&
	       !fi_enable(ep);
	if (!fi_rig_ok(r, good, "endpoint_is_bound_to_event_queue"))
		return;
	good = fi_close(&eq->fid) == -FI_EBUSY;
	fi_rig_ok(r, !fi_close(&ep->fid) && good && !fi_close(&eq->fid) &&
			     !fi_close(&cq->fid),
			     "event_queue_closes_only_after_its_endpoint");
}

/* --- an endpoint that only sends, or only receives ------------------------ */

/* Opens an endpoint with a single completion queue, which is bound with these
 * flags, and inserts its address. */
static bool call_one_queue(struct fi_rig *r, uint64_t flags,
			   struct call_ep *e)
{
	struct fi_cq_attr attr = {
		.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC,
	};
	char name[512];
	size_t len = sizeof(name);

	return !fi_cq_open(r->domain, &attr, &e->cq[0], NULL) &&
	       !fi_endpoint(r->domain, r->info, &e->ep, NULL) &&
	       !fi_ep_bind(e->ep, &r->av->fid, 0) &&
	       !fi_ep_bind(e->ep, &e->cq[0]->fid, flags) &&
	       !fi_enable(e->ep) && !fi_getname(&e->ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &e->self, 0, NULL) == 1;
}

static bool call_one_queue_close(struct fi_rig *r, struct call_ep *e)
{
	return !fi_close(&e->ep->fid) && !fi_close(&e->cq[0]->fid) &&
	       !fi_av_remove(r->av, &e->self, 1, 0);
}

static bool call_sends_only(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	struct fi_cq_tagged_entry t;
	struct fi_rig_done d;
	bool good;

	if (!call_one_queue(r, FI_TRANSMIT, &e))
		return false;
	good = fi_recv(e.ep, r->mem, 8, NULL, FI_ADDR_UNSPEC, NULL) ==
		       -FI_ENOCQ &&
	       fi_trecv(e.ep, r->mem, 8, NULL, FI_ADDR_UNSPEC, 1, 0, NULL) ==
		       -FI_ENOCQ;
	while (fi_rig_again(r, fi_recv(r->ep, r->mem, 8, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	while (fi_rig_again(r, fi_send(e.ep, r->buf, 8, NULL, r->self, NULL)))
		;
	return call_await(e.cq[0], &t, NULL) && call_done(r, r->rx, &d) &&
	       call_one_queue_close(r, &e) && good;
}

static bool call_receives_only(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	struct fi_cq_tagged_entry t;
	bool good;

	if (!call_one_queue(r, FI_RECV, &e))
		return false;
	good = fi_send(e.ep, r->buf, 8, NULL, r->self, NULL) == -FI_ENOCQ &&
	       fi_read(e.ep, r->buf, 8, NULL, r->peer, r->remote, r->key,
		       NULL) == -FI_ENOCQ;
	while (fi_rig_again(r, fi_recv(e.ep, r->mem, 8, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 8, NULL, e.self, NULL)))
		;
	return call_await(e.cq[0], &t, NULL) && call_sent(r) &&
	       call_one_queue_close(r, &e) && good;
}

void call_one_way(struct fi_rig *r)
{
	if (!call_moonrail(r))
		return;
	fi_rig_ok(r, call_sends_only(r),
		  "endpoint_without_receive_queue_sends");
	fi_rig_ok(r, call_receives_only(r),
		  "endpoint_without_transmit_queue_receives");
}

/* --- an endpoint without addresses yet ------------------------------------ */

/* Checks that a peer can write to an endpoint that has no address vector yet,
 * and that the write's data is reported. */
void call_early_data(struct fi_rig *r)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_cq_tagged_entry t;
	char name[512];
	size_t len = sizeof(name);
	struct fid_ep *ep;
	struct fid_cq *cq;
	fi_addr_t addr;
	bool good;

	if (!call_moonrail(r))
		return;
	good = !fi_cq_open(r->domain, &attr, &cq, NULL) &&
	       !fi_endpoint(r->domain, r->info, &ep, NULL) &&
	       !fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV) &&
	       !fi_getname(&ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &addr, 0, NULL) == 1;
	if (!fi_rig_ok(r, good, "endpoint_without_address_vector_is_opened"))
		return;
	while (fi_rig_again(r, fi_writedata(r->ep, r->buf, 64, NULL, 91, addr,
					    0, fi_mr_key(r->mr), NULL)))
		;
	good = call_sent(r) && call_await(cq, &t, NULL) && t.data == 91 &&
	       t.flags & FI_REMOTE_CQ_DATA;
	fi_rig_ok(r, good,
		  "endpoint_without_address_vector_reports_write_with_data");
	fi_rig_ok(r, !fi_close(&ep->fid) && !fi_close(&cq->fid) &&
			     !fi_av_remove(r->av, &addr, 1, 0),
		  "endpoint_without_address_vector_closes");
}

/* --- invalid keys -------------------------------------------------------- */

static bool call_two_keys(struct fi_rig *r, const uint64_t key[2], int err)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 64 };
	struct fi_rma_iov to[2] = {
		{ .len = 32, .key = key[0] }, { .len = 32, .key = key[1] },
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
		.rma_iov = to, .rma_iov_count = 2,
	};
	struct fi_rig_done d;

	while (fi_rig_again(r, fi_writemsg(r->ep, &msg, FI_COMPLETION |
					   FI_DELIVERY_COMPLETE)))
		;
	return fi_rig_next(r, r->tx, &d) && d.err == err;
}

void call_void_keys(struct fi_rig *r)
{
	static const uint64_t none[2] = { 111, 222 }, two[2] = { 501, 502 };
	struct fid_mr *mr[2];
	bool good;
	int i;

	if (!call_moonrail(r))
		return;
	if (!r->server)
		fi_rig_ok(r, call_two_keys(r, none, FI_EACCES),
			  "write_with_two_unknown_keys_is_refused");
	for (i = 0, good = r->server; i < 2 && good; i++)
		good = !fi_mr_reg(r->domain, r->mem + 64 * i, 64,
				  FI_REMOTE_WRITE, 0, two[i], 0, &mr[i], NULL);
	fi_rig_meet(r);
	if (!r->server)
		good = call_two_keys(r, two, 0);
	fi_rig_meet(r);
	for (i = 0; r->server && good && i < 2; i++)
		good = !fi_close(&mr[i]->fid);
	fi_rig_meet(r);
	if (!r->server)
		good = call_two_keys(r, two, FI_EACCES) && good;
	fi_rig_ok(r, good, "write_with_two_closed_keys_is_refused");
	fi_rig_meet(r);
}

/* --- room for peers ------------------------------------------------------- */

/* Inserts and removes the address of a process that does not exist. The address
 * is that of r->ep with another incarnation. */
static bool call_made_up(struct fi_rig *r, uint32_t i)
{
	struct {
		uint64_t head, incarnation;
		uint8_t rest[496];
	} name;
	size_t len = sizeof(name);
	fi_addr_t a;

	return !fi_getname(&r->ep->fid, &name, &len) &&
	       (name.incarnation += i + 1) &&
	       fi_av_insert(r->av, &name, 1, &a, 0, NULL) == 1 &&
	       !fi_av_remove(r->av, &a, 1, 0);
}

/* Opens a second domain, sends a message from it to the peer, and closes it. */
static bool call_visit(struct fi_rig *r, uint64_t tag)
{
	struct call_ep e = { .counts = NULL };
	struct fi_cq_tagged_entry t;
	struct fi_rig own;
	char name[512];
	size_t len = sizeof(name);
	fi_addr_t to;
	bool good;

	good = call_domain(r, 0, "127.0.0.1", NULL, &own) &&
	       call_open(&own, FI_CQ_FORMAT_TAGGED, 0, &e) &&
	       !fi_av_lookup(r->av, r->peer, name, &len) &&
	       fi_av_insert(own.av, name, 1, &to, 0, NULL) == 1 &&
	       !fi_tsend(e.ep, r->buf, 64, NULL, to, tag, NULL) &&
	       call_await(e.cq[0], &t, NULL);
	return call_close(&own, &e) && call_domain_close(&own) && good;
}

#define CALL_VISITS	6u

/* Runs with a limit of three peers (MOONRAIL_MAX_PEERS) in both processes.
 * Removed addresses and closed domains must not count. */
void call_visitors(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good = true;
	uint32_t i;

	for (i = 0; !r->server && good && i < 100; i++)
		good = call_made_up(r, i);
	fi_rig_ok(r, good,
		  "removed_addresses_do_not_use_up_the_room_for_peers");
	fi_rig_meet(r);
	for (i = 0; good && i < CALL_VISITS; i++) {
		if (r->server) {
			while (fi_rig_again(r, fi_trecv(r->ep, r->mem, 64, NULL,
							FI_ADDR_UNSPEC, i, 0,
							NULL)))
				;
			good = call_done(r, r->rx, &d);
		} else {
			good = call_visit(r, i);
		}
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "closed_processes_do_not_use_up_the_room_for_peers");
}

/* --- endpoints that are closed or not open yet --------------------------- */

/* Copies the 512 bytes at "word" from the server to the client. */
static bool call_word(struct fi_rig *r, void *word)
{
	struct fi_rig_done d;
	bool good;

	if (r->server) {
		memcpy(r->buf, word, 512);
		while (fi_rig_again(r, fi_tsend(r->ep, r->buf, 512, NULL,
						r->peer, 61, NULL)))
			;
		return call_sent(r);
	}
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf, 512, NULL,
					FI_ADDR_UNSPEC, 61, 0, NULL)))
		;
	good = call_done(r, r->rx, &d);
	memcpy(word, r->buf, 512);
	return good;
}

static void call_post_to(struct fi_rig *r, fi_addr_t to, uint64_t flags)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 64 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = to,
	};

	while (fi_rig_again(r, fi_sendmsg(r->ep, &msg, FI_COMPLETION | flags)))
		;
}

static bool call_send_to(struct fi_rig *r, fi_addr_t to, uint64_t flags,
			 struct fi_rig_done *d)
{
	call_post_to(r, to, flags);
	return fi_rig_next(r, r->tx, d);
}

void call_closed(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	struct fi_cq_tagged_entry t;
	struct fi_rig_done d = { .err = 0 };
	char name[512];
	size_t len = sizeof(name);
	fi_addr_t to;
	bool good = true;
	int i;

	if (!call_moonrail(r))
		return;
	memset(name, 0, sizeof(name));
	if (r->server)
		good = call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e) &&
		       !fi_getname(&e.ep->fid, name, &len) &&
		       !fi_recv(e.ep, r->mem, 64, NULL, FI_ADDR_UNSPEC, NULL);
	good = call_word(r, name) && good;
	if (!r->server)
		good = fi_av_insert(r->av, name, 1, &to, 0, NULL) == 1 &&
		       call_send_to(r, to, FI_DELIVERY_COMPLETE, &d) && !d.err;
	else
		good = call_await(e.cq[1], &t, NULL) && call_close(r, &e) &&
		       good;
	fi_rig_meet(r);
	if (!r->server) {
		/* FI_TRANSMIT_COMPLETE may report success: the acknowledgement
		 * may arrive although the refusal was lost. */
		good = call_send_to(r, to, FI_TRANSMIT_COMPLETE, &d) &&
		       (!d.err || d.err == FI_ECONNREFUSED) && good;
		good = call_send_to(r, to, FI_DELIVERY_COMPLETE, &d) &&
		       d.err == FI_ECONNREFUSED && good;
		for (i = 0; i < 3; i++)
			good = call_send_to(r, to, 0, &d) &&
			       d.err == FI_ECONNREFUSED && good;
		good = !fi_av_remove(r->av, &to, 1, 0) && good;
	}
	fi_rig_ok(r, good, "send_to_closed_endpoint_is_refused");
	fi_rig_meet(r);
}

/* Closes an endpoint and unmaps its buffer after a large send. Checks that the
 * receiver drops the message. */
void call_sender_gone(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	struct fi_rig_done d = { .err = 0 };
	void *mem;
	bool good;

	if (!call_moonrail(r))
		return;
	mem = mmap(NULL, CALL_LARGE, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	good = mem != MAP_FAILED && call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e);
	while (good && fi_rig_again(r, fi_tsend(e.ep, mem, CALL_LARGE, NULL,
						r->self, 77, NULL)))
		;
	good = good && call_close(r, &e) && !munmap(mem, CALL_LARGE);
	while (good && fi_rig_again(r, fi_trecv(r->ep, r->mem, CALL_LARGE, NULL,
						FI_ADDR_UNSPEC, 77, 0, r)))
		;
	good = good && call_silent(r->rx) && !fi_cancel(&r->ep->fid, r);
	fi_rig_ok(r, good,
		  "message_of_closed_endpoint_in_same_domain_is_dropped");
	fi_rig_ok(r, good && fi_rig_next(r, r->rx, &d) &&
			     d.err == FI_ECANCELED,
		  "receive_for_dropped_message_can_be_cancelled");
	fi_rig_meet(r);
}

/* Receives the first 100 bytes of a large message whose sender's endpoint has
 * closed. If the bytes can no longer be read, the receive must fail with an
 * error other than truncation. If they were copied before, the first bytes must
 * be right. */
void call_cut_unread(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	struct fi_rig_done d = { .err = 0 };
	bool good = true;

	if (!call_moonrail(r))
		return;
	if (r->server) {
		memset(r->mem, 0, 100);
		fi_rig_meet(r);
		while (fi_rig_again(r, fi_trecv(r->ep, r->mem, 100, NULL,
						FI_ADDR_UNSPEC, 78, 0, NULL)))
			;
		good = fi_rig_next(r, r->rx, &d) && d.err &&
		       (d.err != FI_ETRUNC || fi_rig_same(r->mem, 100, 19));
	} else {
		good = call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e);
		fi_rig_fill(r->buf, CALL_LARGE, 19);
		while (good && fi_rig_again(r, fi_tsend(e.ep, r->buf, CALL_LARGE,
							NULL, r->peer, 78,
							NULL)))
			;
		good = call_close(r, &e) && good;
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "unreadable_message_is_not_reported_as_truncated");
	fi_rig_meet(r);
}

/* Sends messages to a domain before its endpoint is opened, and after it was
 * closed. The first must wait, the second must be refused. */
void call_too_soon(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	struct fi_cq_tagged_entry t;
	struct fi_rig_done d = { .err = 0 };
	struct fi_rig own;
	char port[512];
	fi_addr_t to;
	bool good;
	int i;

	if (!call_moonrail(r))
		return;
	memset(port, 0, sizeof(port));
	if (r->server) {
		snprintf(port, sizeof(port), "%d", ft_port("127.0.0.1"));
		good = call_domain(r, FI_SOCKADDR_IN, "127.0.0.1", port, &own);
		good = call_word(r, port) && good;
		fi_rig_meet(r);
		good = good && call_open(&own, FI_CQ_FORMAT_TAGGED, 0, &e) &&
		       !fi_recv(e.ep, r->mem, 64, NULL, FI_ADDR_UNSPEC, NULL) &&
		       call_await(e.cq[1], &t, NULL) && t.len == 64;
		good = call_close(&own, &e) && good;
		fi_rig_meet(r);
		fi_rig_meet(r);
		good = call_domain_close(&own) && good;
	} else {
		good = call_word(r, port) &&
		       fi_av_insertsvc(r->av, "127.0.0.1", port, &to, 0,
				       NULL) == 1;
		if (good)
			call_post_to(r, to, FI_TRANSMIT_COMPLETE);
		/* Wait 400 ms, so that the message arrives before the endpoint
		 * is opened. */
		for (i = 0; i < 20; i++)
			good = call_silent(r->tx) && good;
		fi_rig_meet(r);
		good = call_sent(r) && good;
		fi_rig_meet(r);
		good = good && call_send_to(r, to, FI_DELIVERY_COMPLETE, &d) &&
		       d.err == FI_ECONNREFUSED;
		fi_rig_meet(r);
		good = !fi_av_remove(r->av, &to, 1, 0) && good;
	}
	fi_rig_ok(r, good,
		  "message_waits_for_endpoint_and_is_refused_after_it");
	fi_rig_meet(r);
}

/* --- processes that end without closing anything ------------------------- */

/* number of processes; a race would not show in each of them */
#define CALL_UNCLOSED	20

static int call_leave_open(void)
{
	static struct fi_rig own;	/* static, so that the leak sanitizer
					 * finds a reference to it */
	struct fi_rig r = { .provider = "moonrail" };

	ft_forked();
	alarm(60);
	return !call_domain(&r, 0, "127.0.0.1", NULL, &own);
}

void call_unclosed(void)
{
	int i, status, good = 0;
	pid_t pid;

	for (i = 0; i < CALL_UNCLOSED; i++) {
		fflush(stdout);
		pid = fork();
		if (!pid)
			exit(call_leave_open());
		if (pid > 0 && waitpid(pid, &status, 0) == pid)
			good += !status;
	}
	ft_ok(good == CALL_UNCLOSED,
	      "moonrail_process_that_closes_nothing_ends_well");
}
