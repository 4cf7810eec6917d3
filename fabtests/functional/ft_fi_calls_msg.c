/* SPDX-License-Identifier: BSD-2-Clause */
/* Calls that move bytes: with scatter/gather entries, with flags, and in all
 * variants. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_fi_calls.h"

#define PIECES		4

/* --- scatter/gather entries ---------------------------------------------- */

/* Sets iov to n entries of unequal lengths in the buffer, len bytes in total,
 * with gaps between them. */
static void call_cut(uint8_t *buf, size_t len, size_t n, struct iovec *iov)
{
	size_t i, at = 0, part;

	for (i = 0; i < n; i++) {
		part = i + 1 < n ? len * (i + 1) / 11 : len - at;
		iov[i].iov_base = buf + at + i * 64;
		iov[i].iov_len = part;
		at += part;
	}
}

static bool call_pieces_same(const struct iovec *iov, size_t n, uint32_t seed)
{
	size_t i, k, at = 0;

	for (i = 0; i < n; i++)
		for (k = 0; k < iov[i].iov_len; k++, at++)
			if (((uint8_t *)iov[i].iov_base)[k] !=
			    fi_rig_byte(seed, at))
				return false;
	return true;
}

static void call_pieces_fill(const struct iovec *iov, size_t n, uint32_t seed)
{
	size_t i, k, at = 0;

	for (i = 0; i < n; i++)
		for (k = 0; k < iov[i].iov_len; k++, at++)
			((uint8_t *)iov[i].iov_base)[k] = fi_rig_byte(seed, at);
}

void call_pieces(struct fi_rig *r)
{
	static const size_t len[] = { 700, 9001, CALL_LARGE };
	struct iovec iov[PIECES];
	struct fi_rig_done d;
	bool good = true;
	uint32_t i;
	size_t n;

	for (i = 0; i < sizeof(len) / sizeof(len[0]); i++) {
		n = r->server ? PIECES - 1 : PIECES;
		call_cut(r->buf, len[i], n, iov);
		if (r->server) {
			memset(r->buf, 0, len[i] + 512);
			while (fi_rig_again(r, fi_trecvv(r->ep, iov, NULL, n,
							 FI_ADDR_UNSPEC, i, 0,
							 NULL)))
				;
			good = call_done(r, r->rx, &d) && d.e.len == len[i] &&
			       call_pieces_same(iov, n, i) && good;
		} else {
			call_pieces_fill(iov, n, i);
			while (fi_rig_again(r, fi_tsendv(r->ep, iov, NULL, n,
							 r->peer, i, NULL)))
				;
			good = call_sent(r) && good;
		}
	}
	fi_rig_ok(r, good, "messages_with_different_iov_on_both_sides_arrive");
	n = r->info->tx_attr->iov_limit + 1;
	if (call_moonrail(r))
		fi_rig_ok(r, fi_sendv(r->ep, iov, NULL, n, r->peer, NULL) ==
				     -FI_EINVAL &&
				     fi_recvv(r->ep, iov, NULL, n,
					      FI_ADDR_UNSPEC, NULL) ==
				     -FI_EINVAL,
			  "message_with_too_many_iov_entries_is_refused");
}

/* Checks that operations over the length limit are refused before memory is
 * accessed. The sum of the lengths in iov and in "at" overflows size_t. */
void call_too_long(struct fi_rig *r)
{
	size_t max = r->info->ep_attr->max_msg_size;
	struct iovec iov[2] = {
		{ .iov_base = r->buf, .iov_len = SIZE_MAX - 7 },
		{ .iov_base = r->buf, .iov_len = 16 },
	};
	struct iovec one = { .iov_base = r->buf, .iov_len = 1 };
	struct fi_rma_iov at[2] = {
		{ .addr = r->remote, .len = SIZE_MAX, .key = r->key },
		{ .addr = r->remote, .len = 2, .key = r->key },
	};
	struct fi_msg_rma msg = {
		.msg_iov = &one, .iov_count = 1, .addr = r->peer,
		.rma_iov = at, .rma_iov_count = 2,
	};
	bool good;

	if (!call_moonrail(r))
		return;
	good = fi_send(r->ep, r->buf, max + 1, NULL, r->peer, NULL) ==
		       -FI_EMSGSIZE &&
	       fi_tsendv(r->ep, iov, NULL, 2, r->peer, 1, NULL) ==
		       -FI_EMSGSIZE &&
	       fi_write(r->ep, r->buf, max + 1, NULL, r->peer, r->remote,
			r->key, NULL) == -FI_EMSGSIZE &&
	       fi_readv(r->ep, iov, NULL, 2, r->peer, r->remote, r->key,
			NULL) == -FI_EMSGSIZE;
	fi_rig_ok(r, good, "operation_over_the_length_limit_is_refused");
	fi_rig_ok(r, fi_writemsg(r->ep, &msg, 0) == -FI_EINVAL,
		  "write_with_overflowing_remote_lengths_is_refused");
}

/* Writes PIECES local ranges to two remote ranges, and reads these into fewer
 * local ranges. Returns true if the bytes are right. */
static bool call_places(struct fi_rig *r, size_t len, uint32_t seed)
{
	struct fi_rma_iov at[2] = {
		{ .addr = r->remote, .len = len / 3, .key = r->key },
		{ .addr = r->remote + len, .len = len - len / 3,
		  .key = r->key },
	};
	struct iovec iov[PIECES];
	struct fi_msg_rma msg = {
		.msg_iov = iov, .iov_count = PIECES, .addr = r->peer,
		.rma_iov = at,
		.rma_iov_count = r->info->tx_attr->rma_iov_limit > 1 ? 2 : 1,
	};
	bool good;

	if (msg.rma_iov_count == 1)
		at[0].len = len;
	call_cut(r->buf, len, PIECES, iov);
	call_pieces_fill(iov, PIECES, seed);
	while (fi_rig_again(r, fi_writemsg(r->ep, &msg, FI_DELIVERY_COMPLETE |
					   FI_COMPLETION)))
		;
	good = call_sent(r);
	memset(r->buf, 0, len + 512);
	msg.iov_count = PIECES - 2;
	call_cut(r->buf, len, PIECES - 2, iov);
	while (fi_rig_again(r, fi_readmsg(r->ep, &msg, FI_COMPLETION)))
		;
	return call_sent(r) && good && call_pieces_same(iov, PIECES - 2, seed);
}

static bool call_vectors(struct fi_rig *r, size_t len, uint32_t seed)
{
	struct iovec iov[PIECES];
	bool good;

	call_cut(r->buf, len, PIECES, iov);
	call_pieces_fill(iov, PIECES, seed);
	while (fi_rig_again(r, fi_writev(r->ep, iov, NULL, PIECES, r->peer,
					 r->remote, r->key, NULL)))
		;
	good = call_sent(r);
	memset(r->buf, 0, len + 512);
	call_cut(r->buf, len, PIECES - 1, iov);
	while (fi_rig_again(r, fi_readv(r->ep, iov, NULL, PIECES - 1, r->peer,
					r->remote, r->key, NULL)))
		;
	return call_sent(r) && good && call_pieces_same(iov, PIECES - 1, seed);
}

void call_rma_pieces(struct fi_rig *r)
{
	if (r->server) {
		fi_rig_meet(r);
		return;
	}
	fi_rig_ok(r, call_vectors(r, 900, 1) && call_vectors(r, CALL_LARGE, 2),
		  "writes_and_reads_with_local_iov_complete");
	fi_rig_ok(r, call_places(r, 900, 3) && call_places(r, CALL_LARGE, 4),
		  "writes_and_reads_with_remote_iov_complete");
	fi_rig_meet(r);
}

/* --- inject, data, flags ------------------------------------------------- */

/* Sends one message with each of the inject calls. The buffer is changed as
 * soon as a call returns. */
static bool call_injects(struct fi_rig *r)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 32 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
	};
	bool good;

	fi_rig_fill(r->buf, 32, 1);
	while (fi_rig_again(r, fi_tinject(r->ep, r->buf, 32, r->peer, 201)))
		;
	fi_rig_fill(r->buf, 32, 2);
	while (fi_rig_again(r, fi_tinjectdata(r->ep, r->buf, 32, 77, r->peer,
					      202)))
		;
	fi_rig_fill(r->buf, 32, 3);
	while (fi_rig_again(r, fi_tsenddata(r->ep, r->buf, 32, NULL, 78,
					    r->peer, 203, NULL)))
		;
	good = call_sent(r);
	fi_rig_fill(r->buf, 32, 4);
	while (fi_rig_again(r, fi_sendmsg(r->ep, &msg, FI_INJECT |
					  FI_COMPLETION)))
		;
	memset(r->buf, 0, 32);
	return call_sent(r) && good && call_silent(r->tx);
}

static bool call_injected(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good = true;
	uint32_t i;

	for (i = 1; i <= 4; i++) {
		while (fi_rig_again(r, i < 4 ?
				fi_trecv(r->ep, r->buf, 64, NULL,
					 FI_ADDR_UNSPEC, 200 + i, 0, NULL) :
				fi_recv(r->ep, r->buf, 64, NULL,
					FI_ADDR_UNSPEC, NULL)))
			;
		good = call_done(r, r->rx, &d) && d.e.len == 32 &&
		       fi_rig_same(r->buf, 32, i) && good;
		if (i == 2 || i == 3)
			good = good && d.e.flags & FI_REMOTE_CQ_DATA &&
			       d.e.data == 75 + i;
	}
	return good;
}

void call_inject(struct fi_rig *r)
{
	struct fi_rig_done d;

	fi_rig_ok(r, r->server ? call_injected(r) : call_injects(r),
		  "injected_messages_of_all_kinds_arrive");
	if (!r->server) {
		fi_rig_fill(r->buf, 48, 5);
		while (fi_rig_again(r, fi_inject_writedata(r->ep, r->buf, 48,
							   79, r->peer,
							   r->remote, r->key)))
			;
		memset(r->buf, 0, 48);
		fi_rig_meet(r);
		return;
	}
	fi_rig_ok(r, call_done(r, r->rx, &d) && d.e.data == 79 &&
			     d.e.flags & FI_REMOTE_WRITE &&
			     fi_rig_same(r->mem, 48, 5),
		  "injected_write_with_data_arrives");
	fi_rig_meet(r);
}

/* Checks that messages sent with FI_MORE arrive in order. */
void call_more(struct fi_rig *r)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 8 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
	};
	struct fi_rig_done d;
	bool good = true;
	uint64_t i;

	for (i = 0; i < 20; i++) {
		if (r->server) {
			while (fi_rig_again(r, fi_recv(r->ep, r->buf, 8, NULL,
						       FI_ADDR_UNSPEC, NULL)))
				;
			good = call_done(r, r->rx, &d) &&
			       !memcmp(r->buf, &i, sizeof(i)) && good;
			continue;
		}
		memcpy(r->buf, &i, sizeof(i));
		while (fi_rig_again(r, fi_sendmsg(r->ep, &msg, FI_COMPLETION |
						  (i % 4 < 3 ? FI_MORE : 0))))
			;
		good = call_sent(r) && good;
	}
	fi_rig_ok(r, good, "messages_with_more_arrive_in_order");
}

/* Posts two receives with the same tag for different senders. Checks that each
 * takes the message of its own sender. */
void call_directed(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good;
	int i;

	if (!r->server) {
		memset(r->buf, 7, 8);
		fi_rig_meet(r);
		while (fi_rig_again(r, fi_tsend(r->ep, r->buf, 8, NULL,
						r->peer, 9, NULL)))
			;
		fi_rig_ok(r, call_sent(r),
			  "message_for_directed_receive_is_sent");
		fi_rig_meet(r);
		return;
	}
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf, 8, NULL, r->self, 9, 0,
					&i)))
		;
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf + 64, 8, NULL, r->peer,
					9, 0, &d)))
		;
	fi_rig_meet(r);
	good = call_done(r, r->rx, &d) && d.e.op_context == &d &&
	       r->buf[64] == 7;
	memset(r->mem, 6, 8);
	while (fi_rig_again(r, fi_tsend(r->ep, r->mem, 8, NULL, r->self, 9,
					NULL)))
		;
	good = call_sent(r) && good && call_done(r, r->rx, &d) &&
	       d.e.op_context == &i && r->buf[0] == 6;
	fi_rig_ok(r, good,
		  "directed_receive_takes_only_messages_of_its_sender");
	fi_rig_meet(r);
}

/*
 * Checks a receive for an address that is removed. libfabric does not define
 * this case. With moonrail, the receive stays bound to the endpoint that had
 * the address when it was posted. It does not accept the endpoint that gets the
 * address later.
 */
void call_removed(struct fi_rig *r)
{
	char name[512];
	size_t len = sizeof(name);
	struct fi_rig_done d;
	fi_addr_t again = FI_ADDR_NOTAVAIL;
	struct call_ep e = { .counts = NULL };
	bool good;
	int i;

	if (!call_moonrail(r))
		return;
	if (!fi_rig_ok(r, call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e),
		       "second_endpoint_is_opened"))
		return;
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf, 8, NULL, e.self, 12, 0,
					&e)))
		;
	good = !fi_av_remove(r->av, &e.self, 1, 0) &&
	       !fi_getname(&r->ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &again, 0, NULL) == 1 &&
	       again == e.self;
	fi_rig_ok(r, good, "inserted_address_reuses_removed_one");
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf + 64, 8, NULL,
					FI_ADDR_UNSPEC, 12, 0, &i)))
		;
	memset(r->mem, 3, 8);
	while (fi_rig_again(r, fi_tsend(r->ep, r->mem, 8, NULL, r->self, 12,
					NULL)))
		;
	good = call_sent(r) && call_done(r, r->rx, &d) &&
	       d.e.op_context == &i && r->buf[64] == 3;
	fi_rig_ok(r, good, "receive_ignores_sender_that_reuses_its_address");
	memset(r->mem, 4, 8);
	while (fi_rig_again(r, fi_tsend(e.ep, r->mem, 8, NULL, r->self, 12,
					NULL)))
		;
	good = call_done(r, r->rx, &d) && d.e.op_context == &e &&
	       r->buf[0] == 4;
	fi_rig_ok(r, good, "receive_still_takes_message_of_removed_address");
	fi_rig_ok(r, call_close(r, &e), "second_endpoint_closes");
}

/* --- many long messages -------------------------------------------------- */

/* number of messages; they are so long that the receiver reads them */
#define LONGS		13u
#define LONGS_SLOT	(FI_RIG_BUF / LONGS)
#define LONGS_TAG	3000u

static size_t call_long_length(size_t i)
{
	return CALL_LARGE / 2 + i * 1000;
}

/* Returns true if each element of mark, which are the contexts, completes
 * once. */
static bool call_longs_done(struct fi_rig *r, struct fid_cq *cq, uint8_t *mark)
{
	struct fi_rig_done d;
	size_t i, n;

	for (i = 0; i < LONGS; i++) {
		if (!call_done(r, cq, &d))
			return false;
		n = (size_t)((uint8_t *)d.e.op_context - mark);
		if (n >= LONGS || mark[n]++)
			return false;
	}
	return true;
}

static bool call_longs_got(struct fi_rig *r, uint8_t *mark)
{
	bool good = true;
	size_t i;

	/* Post the receives in reverse order of the sends. */
	for (i = LONGS; i--;)
		while (fi_rig_again(r, fi_trecv(r->ep, r->buf + i * LONGS_SLOT,
						LONGS_SLOT, NULL,
						FI_ADDR_UNSPEC, LONGS_TAG + i,
						0, &mark[i])))
			;
	if (!call_longs_done(r, r->rx, mark))
		return false;
	for (i = 0; i < LONGS; i++)
		good = fi_rig_same(r->buf + i * LONGS_SLOT,
				   call_long_length(i), (uint32_t)i) && good;
	return good;
}

static bool call_longs_sent(struct fi_rig *r, uint8_t *mark)
{
	uint8_t *at = r->buf;
	size_t i;

	for (i = 0; i < LONGS; i++, at += LONGS_SLOT) {
		fi_rig_fill(at, call_long_length(i), (uint32_t)i);
		while (fi_rig_again(r, fi_tsend(r->ep, at, call_long_length(i),
						NULL, r->peer, LONGS_TAG + i,
						&mark[i])))
			;
	}
	return call_longs_done(r, r->tx, mark);
}

/* Checks that the sender of many long messages gets a completion for each,
 * although several may be acknowledged at once. */
void call_longs(struct fi_rig *r)
{
	uint8_t mark[LONGS] = { 0 };

	fi_rig_ok(r, r->server ? call_longs_got(r, mark) :
				 call_longs_sent(r, mark),
		  "many_long_messages_complete_once_each");
	fi_rig_meet(r);
}

/* --- room in the queues -------------------------------------------------- */

#define ROOM_SENDS	8
#define ROOM_PAUSE_NS	UINT64_C(20000000)

/* Call through the table of operations, because libfabric has deprecated
 * fi_rx_size_left and fi_tx_size_left. */
static ssize_t call_rx_left(struct fid_ep *ep)
{
	return ep->ops->rx_size_left(ep);
}

static ssize_t call_tx_left(struct fid_ep *ep)
{
	return ep->ops->tx_size_left(ep);
}

/* Checks that an endpoint accepts exactly as many receives as rx_size_left
 * reports. */
static bool call_room_received(struct fi_rig *r)
{
	struct call_ep e = { .counts = NULL };
	ssize_t left, i;
	bool good;

	if (!call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e))
		return false;
	left = call_rx_left(e.ep);
	good = left >= (ssize_t)r->info->rx_attr->size;
	for (i = 0; i < left && good; i++)
		good = call_rx_left(e.ep) == left - i &&
		       !fi_recv(e.ep, r->mem, 8, NULL, FI_ADDR_UNSPEC, NULL);
	good = good && !call_rx_left(e.ep) &&
	       fi_recv(e.ep, r->mem, 8, NULL, FI_ADDR_UNSPEC, NULL) ==
		       -FI_EAGAIN;
	return call_close(r, &e) && good;
}

static void call_room_send(struct fi_rig *r, uint64_t flags)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 64 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
	};

	while (fi_rig_again(r, fi_sendmsg(r->ep, &msg, flags)))
		;
}

/* Waits until tx_size_left reports the full queue size. Returns false if that
 * takes longer than FI_RIG_WAIT_MS. */
static bool call_room_all(struct fi_rig *r)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	ssize_t all = (ssize_t)r->info->tx_attr->size;

	while (call_tx_left(r->ep) != all && ft_now_ns() < end)
		fi_cq_read(r->tx, NULL, 0);
	return call_tx_left(r->ep) == all;
}

/* Checks that tx_size_left counts a send until it is delivered. */
static bool call_room_sent(struct fi_rig *r)
{
	ssize_t all = (ssize_t)r->info->tx_attr->size;
	struct fi_rig_done d;
	bool good;
	int i;

	good = call_room_all(r);
	for (i = 0; i < ROOM_SENDS; i++)
		call_room_send(r, i % 2 ? FI_DELIVERY_COMPLETE :
					  FI_MATCH_COMPLETE);
	good = call_tx_left(r->ep) == all - ROOM_SENDS && good;
	fi_rig_meet(r);
	for (i = 0; i < ROOM_SENDS; i++)
		while (fi_rig_again(r, fi_recv(r->ep, r->mem, 64, NULL,
					       FI_ADDR_UNSPEC, NULL)))
			;
	for (i = 0; i < ROOM_SENDS; i++)
		good = call_sent(r) && call_done(r, r->rx, &d) && good;
	return call_room_all(r) && good;
}

/* Sends to a stopped peer until the endpoint has no room for a message and has
 * accepted none for ROOM_PAUSE_NS. Returns false on failure. */
static bool call_room_fill(struct fi_rig *r)
{
	uint64_t now = ft_now_ns(), taken = now, n = 0;
	uint64_t end = now + FI_RIG_WAIT_MS * UINT64_C(1000000);
	ssize_t ret;

	do {
		ret = fi_inject(r->ep, &n, sizeof(n), r->peer);
		now = ft_now_ns();
		if (!ret) {
			taken = now;
			n++;
		}
	} while ((!ret || ret == -FI_EAGAIN) && now < end &&
		 (now - taken < ROOM_PAUSE_NS || call_tx_left(r->ep)));
	return ret == -FI_EAGAIN && now < end;
}

/* Checks that a stopped peer blocks only endpoints with its address: another
 * endpoint, whose address vector does not have the peer, stays usable. */
static bool call_room_apart(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	ssize_t all = (ssize_t)r->info->tx_attr->size;
	struct call_ep e = { .counts = NULL };
	uint64_t last = UINT64_MAX;
	struct fi_rig other = *r;
	struct fi_rig_done d;
	bool good;
	pid_t pid;

	if (fi_av_open(r->domain, &attr, &other.av, NULL) ||
	    !call_open(&other, FI_CQ_FORMAT_TAGGED, 0, &e))
		return false;
	while (fi_rig_again(r, fi_recv(r->ep, r->mem, sizeof(pid), NULL,
				       FI_ADDR_UNSPEC, NULL)))
		;
	if (!call_done(r, r->rx, &d))
		return false;
	memcpy(&pid, r->mem, sizeof(pid));
	kill(pid, SIGSTOP);
	good = call_room_fill(r) && !call_tx_left(r->ep) &&
	       call_tx_left(e.ep) == all;
	kill(pid, SIGCONT);
	while (fi_rig_again(r, fi_inject(r->ep, &last, sizeof(last), r->peer)))
		;
	good = call_room_all(r) && good;
	return call_close(&other, &e) && !fi_close(&other.av->fid) && good;
}

static bool call_room_stopped(struct fi_rig *r)
{
	struct fi_rig_done d;
	uint64_t got = 0, n;
	pid_t pid = getpid();

	memcpy(r->buf, &pid, sizeof(pid));
	while (fi_rig_again(r, fi_send(r->ep, r->buf, sizeof(pid), NULL,
				       r->peer, NULL)))
		;
	if (!call_sent(r))
		return false;
	for (;; got++) {
		while (fi_rig_again(r, fi_recv(r->ep, r->mem, sizeof(n), NULL,
					       FI_ADDR_UNSPEC, NULL)))
			;
		if (!call_done(r, r->rx, &d))
			return false;
		memcpy(&n, r->mem, sizeof(n));
		if (n != got)
			return n == UINT64_MAX;
	}
}

/* Tests tx_size_left and rx_size_left. Other providers return -FI_ENOSYS. */
void call_room(struct fi_rig *r)
{
	bool good;

	if (!call_moonrail(r)) {
		fi_rig_ok(r, call_tx_left(r->ep) == -FI_ENOSYS &&
				     call_rx_left(r->ep) == -FI_ENOSYS,
			  "room_is_not_reported");
		return;
	}
	good = call_room_sent(r);
	fi_rig_ok(r, good, "room_for_sends_is_reported");
	fi_rig_ok(r, call_room_received(r), "room_for_receives_is_reported");
	good = r->server ? call_room_stopped(r) : call_room_apart(r);
	fi_rig_ok(r, good, "stopped_process_blocks_only_its_senders");
	fi_rig_meet(r);
}

/* --- multi-receives ------------------------------------------------------- */

#define CANCELS		8

/* Takes the completions of two messages and of the end of the buffer, in any
 * order. Cancels the multi-receive as soon as the short message has arrived.
 * Returns true if both messages are complete. */
static bool call_cancelled(struct fi_rig *r, const void *context)
{
	bool ended = false;
	struct fi_rig_done d;
	int got = 0;

	while (!ended || got < 2) {
		if (!fi_rig_next(r, r->rx, &d) || d.e.op_context != context)
			return false;
		if (d.err)
			ended = true;
		else
			got++;
		if (d.err && d.err != FI_ECANCELED)
			return false;
		/* The long message was sent first and may still be read at that
		 * time. */
		if (d.err || d.e.len != 64)
			continue;
		if (fi_cancel(&r->ep->fid, (void *)(uintptr_t)context))
			return false;
	}
	return got == 2 && fi_rig_same(r->mem, 3000000, 6);
}

void call_cancel_multi(struct fi_rig *r)
{
	struct iovec iov = { .iov_base = r->mem, .iov_len = FI_RIG_BUF };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.context = &iov,
	};
	bool good = true;
	int i;

	fi_rig_fill(r->buf, 3000000, 6);
	for (i = 0; i < CANCELS && good; i++) {
		while (r->server &&
		       fi_rig_again(r, fi_recvmsg(r->ep, &msg, FI_MULTI_RECV)))
			;
		fi_rig_meet(r);
		if (r->server) {
			good = call_cancelled(r, &iov);
			continue;
		}
		while (fi_rig_again(r, fi_send(r->ep, r->buf, 3000000, NULL,
					       r->peer, NULL)))
			;
		while (fi_rig_again(r, fi_send(r->ep, r->buf, 64, NULL,
					       r->peer, NULL)))
			;
		good = call_sent(r) && call_sent(r);
	}
	fi_rig_ok(r, good,
		  "multi_receive_cancelled_during_a_message_ends_well");
	fi_rig_meet(r);
}
