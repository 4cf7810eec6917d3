/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers whose addresses are inserted late, that are backpressured or stopped,
 * or that start late. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/ft_fi_calls.h"

/* --- a sender whose address is inserted after its message ---------------- */

#define SOUGHT_TAG	7

/* Opens a domain with an empty address vector and an endpoint in it. *own is a
 * copy of the rig that uses them. */
static bool call_stranger(struct fi_rig *r, const char *service,
			  struct fi_rig *own, struct call_ep *e)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fi_info *h = call_hints(r->provider);

	*own = *r;
	h->caps |= FI_SOURCE | FI_DIRECTED_RECV;
	if (call_info(h, "127.0.0.1", service, FI_SOURCE, &own->info) ||
	    fi_fabric(own->info->fabric_attr, &own->fabric, NULL) ||
	    fi_domain(own->fabric, own->info, &own->domain, NULL) ||
	    fi_av_open(own->domain, &attr, &own->av, NULL) ||
	    !call_open(own, FI_CQ_FORMAT_TAGGED, 0, e))
		return false;
	own->tx = e->cq[0];
	own->rx = e->cq[1];
	return true;
}

static bool call_stranger_close(struct fi_rig *own, struct call_ep *e)
{
	bool good = call_close(own, e) && !fi_close(&own->av->fid) &&
		    !fi_close(&own->domain->fid) &&
		    !fi_close(&own->fabric->fid);

	fi_freeinfo(own->info);
	return good;
}

/* Inserts the address of the other process into av. With moonrail, this is its
 * socket address; with other providers, its name. */
static bool call_by_socket(struct fi_rig *r, struct fid_av *av, fi_addr_t *out)
{
	char name[512], text[512], host[64], port[16];
	size_t len = sizeof(name), n = sizeof(text);

	if (fi_av_lookup(r->av, r->peer, name, &len))
		return false;
	if (!call_moonrail(r))
		return fi_av_insert(av, name, 1, out, 0, NULL) == 1;
	return fi_rig_socket(fi_av_straddr(r->av, name, text, &n), host,
			     port) &&
	       fi_av_insertsvc(av, host, port, out, 0, NULL) == 1;
}

/* Posts receives with FI_PEEK until an unexpected message has arrived. Returns
 * false if none arrives in FI_RIG_WAIT_MS. */
static bool call_come(struct fi_rig *own, struct call_ep *e)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct fi_msg_tagged msg = {
		.addr = FI_ADDR_UNSPEC, .tag = SOUGHT_TAG,
	};
	struct fi_rig_done d = { .err = FI_ENOMSG };

	while (d.err && ft_now_ns() < end) {
		while (fi_rig_again(own, fi_trecvmsg(e->ep, &msg, FI_PEEK |
						     FI_COMPLETION)))
			;
		if (!fi_rig_next(own, e->cq[1], &d))
			return false;
	}
	return !d.err;
}

static bool call_word(struct fi_rig *own, struct call_ep *e, fi_addr_t from,
		      const char *word)
{
	struct fi_rig_done d;

	memset(own->mem, 0, 64);
	while (fi_rig_again(own, fi_trecv(e->ep, own->mem, 64, NULL, from,
					  SOUGHT_TAG, 0, NULL)))
		;
	return call_done(own, e->cq[1], &d) && !strcmp((char *)own->mem, word);
}

static void call_sought_client(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	bool late = call_moonrail(r), good;
	size_t len = 512;
	struct fi_rig own;
	fi_addr_t from;

	if (!fi_rig_ok(r, call_stranger(r, NULL, &own, &e),
		       "domain_without_addresses_is_opened"))
		return;
	good = late || call_by_socket(r, own.av, &from);
	memset(r->buf, 0, len);
	good = !fi_getname(&e.ep->fid, r->buf, &len) && good;
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 512, NULL, r->peer,
				       NULL)))
		;
	good = call_sent(r) && good;
	/* Other providers cannot match a message that arrived before the
	 * sender's address was inserted. */
	if (late)
		good = call_come(&own, &e) &&
		       call_by_socket(r, own.av, &from) && good;
	fi_rig_ok(r, good && call_word(&own, &e, from, "one"),
		  "message_of_sender_inserted_later_matches_its_receive");
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 8, NULL, r->peer, NULL)))
		;
	good = call_sent(r);
	fi_rig_ok(r, good && call_word(&own, &e, from, "two"),
		  "later_message_of_that_sender_follows_in_order");
	fi_rig_meet(r);
	fi_rig_ok(r, call_stranger_close(&own, &e),
		  "domain_without_addresses_closes");
}

static bool call_hear(struct fi_rig *r, size_t len)
{
	struct fi_rig_done d;

	while (fi_rig_again(r, fi_recv(r->ep, r->buf, len, NULL,
				       FI_ADDR_UNSPEC, NULL)))
		;
	return call_done(r, r->rx, &d);
}

static bool call_say(struct fi_rig *r, fi_addr_t to, const char *word)
{
	while (fi_rig_again(r, fi_tsend(r->ep, word, strlen(word) + 1, NULL,
					to, SOUGHT_TAG, NULL)))
		;
	return call_sent(r);
}

void call_sought(struct fi_rig *r)
{
	fi_addr_t to;
	bool good;

	if (!r->server) {
		call_sought_client(r);
		return;
	}
	good = call_hear(r, 512) &&
	       fi_av_insert(r->av, r->buf, 1, &to, 0, NULL) == 1 &&
	       call_say(r, to, "one") && call_hear(r, 8) &&
	       call_say(r, to, "two");
	fi_rig_ok(r, good,
		  "messages_to_process_without_sender_address_are_sent");
	fi_rig_meet(r);
	fi_av_remove(r->av, &to, 1, 0);
}

/* --- an endpoint that is backpressured ----------------------------------- */

#define FULL_LEN	16000u
#define FULL_PAUSE_NS	UINT64_C(200000000)
/* number of messages for providers that do not limit unexpected messages */
#define FULL_OTHERS	200u
#define FULL_WORDS	3

static void call_full_make(struct fi_rig *r, uint64_t i, uint64_t last)
{
	memcpy(r->buf, &i, sizeof(i));
	memcpy(r->buf + sizeof(i), &last, sizeof(last));
}

/* Sends until no message has been accepted for FULL_PAUSE_NS. Returns the
 * number of messages sent, or 0 on failure. */
static uint64_t call_full_fill(struct fi_rig *r)
{
	uint64_t taken = ft_now_ns(), n = 0;
	ssize_t ret;

	fi_rig_fill(r->buf, FULL_LEN, 9);
	while (ft_now_ns() - taken < FULL_PAUSE_NS &&
	       (call_moonrail(r) || n < FULL_OTHERS)) {
		call_full_make(r, n, 0);
		ret = fi_send(r->ep, r->buf, FULL_LEN, NULL, r->peer, NULL);
		fi_rig_again(r, ret);
		if (ret)
			continue;
		if (!call_sent(r))
			return 0;
		taken = ft_now_ns();
		n++;
	}
	return n;
}

/* Sends messages from another domain to the full endpoint. The peer waits until
 * a message has arrived, then posts a receive for it. */
static bool call_full_say(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	struct fi_rig own;
	fi_addr_t to;
	bool good;
	int i;

	good = call_stranger(r, NULL, &own, &e) &&
	       call_by_socket(r, own.av, &to);
	own.ep = e.ep;
	for (i = 0; i < FULL_WORDS; i++) {
		good = good && call_say(&own, to, "word");
		fi_rig_meet(r);
	}
	return good && call_stranger_close(&own, &e);
}

static bool call_full_hear(struct fi_rig *r)
{
	struct call_ep e = { .ep = r->ep, .cq = { r->tx, r->rx } };
	bool good = true;
	int i;

	for (i = 0; i < FULL_WORDS; i++) {
		good = good && call_come(r, &e) &&
		       call_word(r, &e, FI_ADDR_UNSPEC, "word");
		fi_rig_meet(r);
	}
	return good;
}

static void call_full_client(struct fi_rig *r)
{
	uint64_t n = call_full_fill(r);
	struct fi_rig_done d;
	fi_addr_t other;
	bool good;

	fi_rig_ok(r, n, "messages_are_sent_until_the_endpoint_is_full");
	while (fi_rig_again(r, fi_recv(r->ep, r->mem + 4096, 512, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	fi_rig_meet(r);
	good = call_done(r, r->rx, &d) &&
	       fi_av_insert(r->av, r->mem + 4096, 1, &other, 0, NULL) == 1;
	while (good && fi_rig_again(r, fi_send(r->ep, "other", 6, NULL, other,
					       NULL)))
		;
	fi_rig_ok(r, good && call_sent(r),
		  "other_endpoint_of_that_process_still_receives");
	fi_rig_meet(r);
	if (call_moonrail(r))
		fi_rig_ok(r, call_full_say(r),
			  "messages_of_another_domain_are_sent_to_full_"
			  "endpoint");
	call_full_make(r, n, 1);
	while (fi_rig_again(r, fi_send(r->ep, r->buf, FULL_LEN, NULL, r->peer,
				       NULL)))
		;
	good = call_sent(r);
	fi_rig_meet(r);
	fi_rig_ok(r, good && !fi_av_remove(r->av, &other, 1, 0),
		  "full_endpoint_with_room_again_receives");
}

/* While the first endpoint of this process is full, makes an atomic and
 * receives a message with the second endpoint e. Returns true if both
 * complete. */
static bool call_full_other(struct fi_rig *r, struct call_ep *e)
{
	uint64_t one = 1, old;
	char name[512] = "";
	size_t len = sizeof(name);
	struct fi_rig own = *r;
	struct fi_rig_done d;

	own.tx = e->cq[0];
	own.rx = e->cq[1];
	while (fi_rig_again(&own, fi_fetch_atomic(e->ep, &one, 1, NULL, &old,
						  NULL, r->peer, r->remote,
						  r->key, FI_UINT64, FI_SUM,
						  NULL)))
		;
	if (!fi_rig_ok(r, call_done(&own, e->cq[0], &d),
		       "second_endpoint_does_atomics_while_first_is_full"))
		return false;
	if (fi_getname(&e->ep->fid, name, &len))
		return false;
	memcpy(r->buf, name, sizeof(name));
	while (fi_rig_again(r, fi_send(r->ep, r->buf, sizeof(name), NULL,
				       r->peer, NULL)))
		;
	while (fi_rig_again(&own, fi_recv(e->ep, r->mem, 64, NULL,
					  FI_ADDR_UNSPEC, NULL)))
		;
	return call_sent(r) && call_done(&own, e->cq[1], &d) &&
	       !strcmp((char *)r->mem, "other");
}

/* Receives all messages. Returns true if they are intact and in order. */
static bool call_full_all(struct fi_rig *r)
{
	uint64_t n = 0, head[2];
	struct fi_rig_done d;

	do {
		while (fi_rig_again(r, fi_recv(r->ep, r->mem, FULL_LEN, NULL,
					       FI_ADDR_UNSPEC, NULL)))
			;
		if (!call_done(r, r->rx, &d) || d.e.len != FULL_LEN)
			return false;
		memcpy(head, r->mem, sizeof(head));
		call_full_make(r, head[0], head[1]);
		if (head[0] != n++ || memcmp(r->mem, r->buf, FULL_LEN))
			return false;
	} while (!head[1]);
	return true;
}

/* Fills an endpoint with messages for which no receive is posted. Checks that
 * they wait without blocking other endpoints. */
void call_full(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	bool good;

	if (!r->server) {
		call_full_client(r);
		return;
	}
	fi_rig_meet(r);
	good = call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e) &&
	       call_full_other(r, &e);
	fi_rig_ok(r, good, "second_endpoint_receives_while_first_is_full");
	fi_rig_meet(r);
	if (call_moonrail(r))
		fi_rig_ok(r, call_full_hear(r),
			  "full_endpoint_receives_from_other_domain");
	fi_rig_fill(r->buf, FULL_LEN, 9);
	fi_rig_ok(r, call_full_all(r),
		  "messages_that_waited_arrive_in_order_and_intact");
	fi_rig_meet(r);
	fi_rig_ok(r, call_close(r, &e), "second_endpoint_closes");
}

/* --- a full endpoint of the same domain ---------------------------------- */

/* limit of the unexpected messages that an endpoint buffers, bytes */
#define FULL_HOLD	(64u << 20)

/* Sends to an endpoint of the same domain until no message is accepted. Returns
 * the number of messages, or 0 on failure or if the endpoint accepts twice its
 * limit. */
static uint64_t call_own_fill(struct fi_rig *r, fi_addr_t to)
{
	ssize_t ret = 0;
	uint64_t n = 0;

	fi_rig_fill(r->buf, FULL_LEN, 9);
	while (!ret && n < 2 * FULL_HOLD / FULL_LEN) {
		call_full_make(r, n, 0);
		ret = fi_send(r->ep, r->buf, FULL_LEN, NULL, to, NULL);
		n += !ret;
		if (!ret && !call_sent(r))
			return 0;
	}
	return ret == -FI_EAGAIN ? n : 0;
}

/* Receives the n buffered messages and checks their order. As soon as there is
 * space again, another send must be accepted; its message is received last. */
static bool call_own_drain(struct fi_rig *r, struct call_ep *e, uint64_t n)
{
	struct fi_rig own = *r;
	struct fi_rig_done d;
	uint64_t i, head[2];
	ssize_t ret = -FI_EAGAIN;

	own.ep = e->ep;
	own.rx = e->cq[1];
	for (i = 0; i < n + !ret; i++) {
		while (fi_rig_again(&own, fi_recv(e->ep, r->mem, FULL_LEN, NULL,
						  FI_ADDR_UNSPEC, NULL)))
			;
		if (!call_done(&own, e->cq[1], &d) || d.e.len != FULL_LEN)
			return false;
		memcpy(head, r->mem, sizeof(head));
		call_full_make(r, head[0], head[1]);
		if (head[0] != i || memcmp(r->mem, r->buf, FULL_LEN))
			return false;
		if (!ret)
			continue;
		call_full_make(r, n, 1);
		ret = fi_send(r->ep, r->buf, FULL_LEN, NULL, e->self, NULL);
		if (!ret && !call_sent(r))
			return false;
	}
	return !ret;
}

/* Checks that a full endpoint still accepts a message for which a receive is
 * posted. */
static bool call_own_pass(struct fi_rig *r, struct call_ep *e)
{
	struct fi_rig own = *r;

	own.ep = e->ep;
	own.rx = e->cq[1];
	while (fi_rig_again(&own, fi_trecv(e->ep, r->mem, 64, NULL,
					   FI_ADDR_UNSPEC, SOUGHT_TAG, 0, NULL)))
		;
	return call_say(r, e->self, "past") &&
	       call_done(&own, e->cq[1], &(struct fi_rig_done){ .err = 0 }) &&
	       !strcmp((char *)r->mem, "past");
}

static bool call_own_refused(struct fi_rig *r, fi_addr_t to, size_t len)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = len };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = to,
	};

	return !r->ep->ops->tx_size_left(r->ep) &&
	       fi_sendmsg(r->ep, &msg, FI_DELIVERY_COMPLETE) == -FI_EAGAIN &&
	       fi_sendmsg(r->ep, &msg, FI_TRANSMIT_COMPLETE) == -FI_EAGAIN;
}

/* Fills an endpoint with messages from another endpoint of the same domain. No
 * receive is posted for them. */
void call_own_full(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	uint64_t n;

	if (!call_moonrail(r) || r->server)
		return;
	if (!fi_rig_ok(r, call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e),
		       "endpoint_of_same_domain_is_opened"))
		return;
	n = call_own_fill(r, e.self);
	fi_rig_ok(r, n >= FULL_HOLD / 2 / FULL_LEN,
		  "endpoint_of_same_domain_buffers_up_to_its_limit");
	fi_rig_ok(r, n && call_own_refused(r, e.self, 64) &&
			     call_own_refused(r, e.self, CALL_LARGE) &&
			     call_silent(r->tx),
			     "full_endpoint_of_same_domain_refuses_all_sends");
	fi_rig_ok(r, call_own_pass(r, &e),
		  "full_endpoint_of_same_domain_takes_expected_message");
	fi_rig_ok(r, n && call_own_drain(r, &e, n),
		  "endpoint_of_same_domain_with_room_again_receives");
	fi_rig_ok(r, call_close(r, &e), "endpoint_of_same_domain_closes");
}

/* --- a process that is stopped -------------------------------------------- */

/* number of messages, more than may be sent without an acknowledgement */
#define STOP_SENDS	200u
#define STOP_LAST	UINT64_MAX
#define STOP_ADDS	8

/* Returns true if the next operation completes with the error `err`; 0 means
 * success. */
static bool call_ends(struct fi_rig *r, int err)
{
	struct fi_rig_done d;

	if (fi_rig_next(r, r->tx, &d) && d.err == err)
		return true;
	ft_diag("operation completed with error %d, expected %d", d.err, err);
	return false;
}

static bool call_stop_write(struct fi_rig *r, int err)
{
	while (fi_rig_again(r, fi_write(r->ep, r->buf, 64, NULL, r->peer,
					r->remote, r->key, NULL)))
		;
	return call_ends(r, err);
}

static void call_stop_send(struct fi_rig *r, fi_addr_t to, uint64_t i)
{
	struct iovec iov = { .iov_base = &i, .iov_len = sizeof(i) };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = to,
	};

	while (fi_rig_again(r, fi_sendmsg(r->ep, &msg, FI_TRANSMIT_COMPLETE)))
		;
}

static bool call_stop_add(struct fi_rig *r, int err, uint64_t *old)
{
	static uint64_t one = 1;

	while (fi_rig_again(r, fi_fetch_atomic(r->ep, &one, 1, NULL, old, NULL,
					       r->peer, r->remote + 64, r->key,
					       FI_UINT64, FI_SUM, NULL)))
		;
	return call_ends(r, err);
}

/* Checks that a write, many sends and an atomic to the stopped process all time
 * out. */
static bool call_stop_all(struct fi_rig *r)
{
	bool good = call_stop_write(r, FI_ETIMEDOUT);
	uint64_t i, old;

	for (i = 0; i < STOP_SENDS; i++)
		call_stop_send(r, r->peer, i);
	for (i = 0; i < STOP_SENDS; i++)
		good = call_ends(r, FI_ETIMEDOUT) && good;
	return call_stop_add(r, FI_ETIMEDOUT, &old) && good;
}

/* Removes and inserts the peer's address and writes to it, until a write
 * succeeds. On a loaded machine, the first writes may time out. */
static bool call_stop_again(struct fi_rig *r, const char *name)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct fi_rig_done d;

	do {
		if (fi_av_remove(r->av, &r->peer, 1, 0) ||
		    fi_av_insert(r->av, name, 1, &r->peer, 0, NULL) != 1)
			return false;
		while (fi_rig_again(r, fi_write(r->ep, r->buf, 64, NULL,
						r->peer, r->remote, r->key,
						NULL)))
			;
		if (!fi_rig_next(r, r->tx, &d))
			return false;
	} while (d.err == FI_ETIMEDOUT && ft_now_ns() < end);
	return !d.err;
}

/* Stops a process with SIGSTOP. Returns true when it has stopped, which happens
 * some time after the signal. */
static bool call_stop(pid_t pid)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	kill(pid, SIGSTOP);
	while (state != 'T' && ft_now_ns() < end) {
		f = fopen(path, "r");
		if (!f || fscanf(f, "%*d %*s %c", &state) != 1)
			state = 0;
		if (f)
			fclose(f);
	}
	return state == 'T';
}

/* Stops both processes for longer than MC_SLICE_TIMEOUT while atomics are
 * posted. That time must not count as silence of the peer. Returns true if the
 * atomics complete. */
static bool call_stop_both(struct fi_rig *r, pid_t pid)
{
	static uint64_t none, old;
	bool good = call_stop(pid);
	pid_t child;
	int i;

	for (i = 0; i < STOP_ADDS; i++)
		while (fi_rig_again(r, fi_fetch_atomic(r->ep, &none, 1, NULL,
						       &old, NULL, r->peer,
						       r->remote + 64, r->key,
						       FI_UINT64, FI_SUM,
						       NULL)))
			;
	child = fork();
	if (!child) {
		/* By then, this process has sent the stopped peer a request for
		 * a sign of life. */
		usleep(300000);
		call_stop(getppid());
		sleep(CALL_SILENT_S + 2);
		kill(getppid(), SIGCONT);
		usleep(100000);
		kill(pid, SIGCONT);
		_exit(0);
	}
	good = child > 0 && waitpid(child, NULL, 0) == child && good;
	for (i = 0; i < STOP_ADDS; i++)
		good = call_ends(r, 0) && good;
	return good;
}

static void call_stop_client(struct fi_rig *r)
{
	uint64_t old = 0, i;
	size_t len = 512;
	char name[512];
	bool good;
	pid_t pid;

	good = call_hear(r, sizeof(pid)) && call_stop_write(r, 0) &&
	       call_stop_add(r, 0, &old) &&
	       !fi_av_lookup(r->av, r->peer, name, &len);
	memcpy(&pid, r->buf, sizeof(pid));
	fi_rig_meet(r);
	if (!fi_rig_ok(r, good && !old,
		       "operations_to_running_process_complete"))
		return;
	fi_rig_ok(r, call_stop_both(r, pid),
		  "operations_survive_the_stop_of_both_processes");
	good = call_stop(pid);
	fi_rig_ok(r, call_stop_all(r) && good,
		  "operations_to_stopped_process_time_out");
	kill(pid, SIGCONT);
	fi_rig_ok(r, call_stop_write(r, FI_ETIMEDOUT),
		  "operations_to_resumed_process_fail_until_reinserted");
	fi_rig_ok(r, call_stop_again(r, name),
		  "operations_after_reinsertion_complete");
	for (i = 0; i < STOP_SENDS; i++)
		call_stop_send(r, r->peer, STOP_SENDS + i);
	for (i = 0; i < STOP_SENDS; i++)
		good = call_ends(r, 0) && good;
	fi_rig_ok(r, call_stop_add(r, 0, &old) && (old == 1 || old == 2) &&
			     good,
			     "messages_and_atomics_after_reinsertion_complete");
	call_stop_send(r, r->peer, STOP_LAST);
	fi_rig_ok(r, call_ends(r, 0), "last_message_after_reinsertion_is_sent");
}

/* Receives the messages in order. Those that were sent before the time-out may
 * be missing from some number on; later ones must all arrive. */
static bool call_stop_got(struct fi_rig *r)
{
	uint64_t next = 0, n;

	for (;;) {
		if (!call_hear(r, sizeof(n)))
			return false;
		memcpy(&n, r->buf, sizeof(n));
		if (n == STOP_LAST)
			return next == 2 * STOP_SENDS;
		if (n != next && (n != STOP_SENDS || next == STOP_SENDS))
			return false;
		if (n == STOP_SENDS && next == n)
			ft_diag("%llu messages arrived although their sends "
				"had failed", (unsigned long long)next);
		next = n + 1;
	}
}

static bool call_tell_pid(struct fi_rig *r)
{
	pid_t pid = getpid();

	memcpy(r->buf, &pid, sizeof(pid));
	while (fi_rig_again(r, fi_send(r->ep, r->buf, sizeof(pid), NULL,
				       r->peer, NULL)))
		;
	return call_sent(r);
}

void call_stopped(struct fi_rig *r)
{
	bool good;

	if (!r->server) {
		call_stop_client(r);
		return;
	}
	good = call_tell_pid(r);
	fi_rig_meet(r);
	fi_rig_ok(r, good && call_stop_got(r),
		  "failed_messages_do_not_arrive_after_later_ones");
}

/* --- a process that starts late ------------------------------------------ */

static bool call_free_port(char port[8])
{
	int n = ft_port("127.0.0.1");

	snprintf(port, 8, "%d", n);
	return n > 0;
}

/* Removes and inserts the address and sends to it, until a send succeeds. On a
 * loaded machine, connecting may take longer than the time-out. */
static bool call_late_again(struct fi_rig *r, const char *port, fi_addr_t *to)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct fi_rig_done d;

	do {
		if (fi_av_remove(r->av, to, 1, 0) ||
		    fi_av_insertsvc(r->av, "127.0.0.1", port, to, 0, NULL) != 1)
			return false;
		call_stop_send(r, *to, 1);
		if (!fi_rig_next(r, r->tx, &d))
			return false;
	} while (d.err == FI_ETIMEDOUT && ft_now_ns() < end);
	return !d.err;
}

/* Opens a domain at this port. A send to the old entry of the address must fail
 * with `err`. Returns true if sends succeed after the address was inserted
 * again. */
static bool call_late_comes(struct fi_rig *r, const char *port, fi_addr_t *to,
			    int err)
{
	struct call_ep e = { .counts = NULL };
	struct fi_rig own;
	struct fi_rig_done d;
	bool good;

	if (!call_stranger(r, port, &own, &e))
		return false;
	call_stop_send(r, *to, 1);
	good = call_ends(r, err);
	while (fi_rig_again(&own, fi_recv(e.ep, r->mem, 64, NULL,
					  FI_ADDR_UNSPEC, NULL)))
		;
	good = good && call_late_again(r, port, to) &&
	       fi_rig_next(&own, e.cq[1], &d) && !d.err &&
	       d.e.len == sizeof(uint64_t);
	return call_stranger_close(&own, &e) && good;
}

/* Opens a domain at this port and sends a message from it. The message must
 * match the receive that was posted for this address, although sends to the old
 * entry of the address still fail. */
static bool call_late_says(struct fi_rig *r, fi_addr_t to, const char *port,
			   int *context)
{
	struct call_ep e = { .counts = NULL };
	struct fi_rig_done d;
	struct fi_rig own;
	size_t len = 512;
	char name[512];
	fi_addr_t us;
	bool good;

	if (!call_stranger(r, port, &own, &e))
		return false;
	own.ep = e.ep;
	good = !fi_getname(&r->ep->fid, name, &len) &&
	       fi_av_insert(own.av, name, 1, &us, 0, NULL) == 1 &&
	       call_say(&own, us, "late") && call_done(r, r->rx, &d) &&
	       d.e.op_context == context && !strcmp((char *)r->mem, "late");
	call_stop_send(r, to, 1);
	good = call_ends(r, FI_ETIMEDOUT) && good;
	return call_stranger_close(&own, &e) && good;
}

static void call_late_asked(struct fi_rig *r)
{
	int context;
	char port[8];
	fi_addr_t to;
	bool good;

	good = call_free_port(port) &&
	       fi_av_insertsvc(r->av, "127.0.0.1", port, &to, 0, NULL) == 1;
	memset(r->mem, 0, 64);
	while (good && fi_rig_again(r, fi_trecv(r->ep, r->mem, 64, NULL, to,
						SOUGHT_TAG, 0, &context)))
		;
	if (good)
		call_stop_send(r, to, 1);
	good = good && call_ends(r, FI_ETIMEDOUT);
	fi_rig_ok(r, good && call_late_says(r, to, port, &context),
		  "receive_for_address_matches_process_that_starts_late");
}

void call_late(struct fi_rig *r)
{
	char port[8];
	fi_addr_t to;
	bool good;

	if (r->server)
		return;
	good = call_free_port(port) &&
	       fi_av_insertsvc(r->av, "127.0.0.1", port, &to, 0, NULL) == 1;
	if (good)
		call_stop_send(r, to, 1);
	good = good && call_ends(r, FI_ETIMEDOUT);
	fi_rig_ok(r, good, "send_to_absent_process_times_out");
	fi_rig_ok(r, good && call_late_comes(r, port, &to, FI_ETIMEDOUT),
		  "late_process_is_reached_after_reinsertion");
	fi_rig_ok(r, good && call_late_comes(r, port, &to, FI_ECONNRESET),
		  "second_process_at_that_address_is_reached");
	call_late_asked(r);
}

/* --- a large message that has failed ------------------------------------- */

static void call_given_send(struct fi_rig *r, uint32_t what)
{
	fi_rig_fill(r->buf, CALL_LARGE, what);
	while (fi_rig_again(r, fi_tsend(r->ep, r->buf, CALL_LARGE, NULL,
					r->peer, SOUGHT_TAG, NULL)))
		;
}

static void call_given_up_client(struct fi_rig *r)
{
	bool good = call_hear(r, sizeof(pid_t));
	size_t len = 512;
	char name[512];
	pid_t pid;

	memcpy(&pid, r->buf, sizeof(pid));
	good = !fi_av_lookup(r->av, r->peer, name, &len) && good;
	call_given_send(r, 1);
	fi_rig_meet(r);
	good = call_stop(pid) && good && call_ends(r, FI_ETIMEDOUT);
	/* The send has failed, so the program may reuse the buffer. */
	fi_rig_fill(r->buf, CALL_LARGE, 2);
	kill(pid, SIGCONT);
	fi_rig_ok(r, good, "large_message_to_stopped_process_times_out");
	fi_rig_meet(r);
	fi_rig_meet(r);
	good = call_stop_again(r, name);
	sleep(CALL_SILENT_S + 1); /* This time without messages is longer than
				   * the time-out. */
	call_given_send(r, 3);
	fi_rig_ok(r, good && call_sent(r),
		  "large_message_after_a_pause_is_sent");
}

static int call_given_receive(struct fi_rig *r)
{
	struct fi_rig_done d;

	memset(r->mem, 0, CALL_LARGE);
	while (fi_rig_again(r, fi_trecv(r->ep, r->mem, CALL_LARGE, NULL,
					FI_ADDR_UNSPEC, SOUGHT_TAG, 0, r)))
		;
	return fi_rig_next(r, r->rx, &d) ? d.err : -1;
}

/* A large message is sent to a process that is stopped, and the send fails. The
 * process then finds the announcement of the message. Checks that its receive
 * fails, and that a later large message arrives. */
void call_given_up(struct fi_rig *r)
{
	struct call_ep e = { .ep = r->ep, .cq = { r->tx, r->rx } };
	bool good;

	if (!r->server) {
		call_given_up_client(r);
		return;
	}
	good = call_tell_pid(r) && call_come(r, &e);
	fi_rig_meet(r);
	fi_rig_meet(r);
	/* The announcement must stay invalid, although other messages have been
	 * exchanged since. */
	call_stop_send(r, r->peer, 0);
	good = call_ends(r, 0) && good;
	fi_rig_ok(r, good && call_given_receive(r) == FI_ETIMEDOUT,
		  "receive_of_failed_large_message_fails");
	fi_rig_meet(r);
	fi_rig_ok(r, !call_given_receive(r) &&
			     fi_rig_same(r->mem, CALL_LARGE, 3),
		  "large_message_after_a_pause_is_received_intact");
}
