/* SPDX-License-Identifier: BSD-2-Clause */
/* The libfabric provider: messages, tagged messages, remote memory access and
 * atomics between two processes. Runs with moonrail and with one of its lower
 * providers. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define COUNT	300
#define LEAVES	25
#define FENCED	900u	/* number of messages, fewer than an endpoint buffers */

static bool rdm_sent(struct fi_rig *r)
{
	struct fi_rig_done d;

	return fi_rig_next(r, r->tx, &d) && !d.err;
}

static void rdm_post(struct fi_rig *r, void *buf, size_t len, void *context)
{
	while (fi_rig_again(r, fi_recv(r->ep, buf, len, NULL, FI_ADDR_UNSPEC,
				       context)))
		;
}

static bool rdm_send(struct fi_rig *r, const void *buf, size_t len)
{
	while (fi_rig_again(r, fi_send(r->ep, buf, len, NULL, r->peer, NULL)))
		;
	return rdm_sent(r);
}

static size_t rdm_length(uint32_t i)
{
	return i * 61 % 20000;
}

/* Checks the order of messages of different lengths. Small and large messages
 * use different protocols. */
static void rdm_order(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good = true;
	uint32_t i;

	for (i = 0; i < COUNT && good; i++) {
		if (r->server) {
			rdm_post(r, r->buf, 20000, NULL);
			good = fi_rig_next(r, r->rx, &d) && !d.err &&
			       d.e.len == rdm_length(i) &&
			       fi_rig_same(r->buf, d.e.len, i);
		} else {
			fi_rig_fill(r->buf, rdm_length(i), i);
			good = rdm_send(r, r->buf, rdm_length(i));
		}
	}
	fi_rig_ok(r, good,
		  "messages_of_mixed_sizes_arrive_in_order_and_intact");
	if (!r->server)
		fi_rig_ok(r, fi_cntr_read(r->sent) == COUNT,
			  "counter_counts_the_sends");
}

static void rdm_large(struct fi_rig *r)
{
	static const size_t len[] = { 16200, 16400, 100001, 3000001 };
	struct fi_rig_done d;
	bool good = true;
	size_t i;

	for (i = 0; i < sizeof(len) / sizeof(len[0]) && good; i++) {
		/* Post the receive before the message is sent, in every other
		 * round. */
		if (r->server && i % 2)
			rdm_post(r, r->buf, FI_RIG_BUF, NULL);
		fi_rig_meet(r);
		if (r->server) {
			usleep(2000);
			if (!(i % 2))
				rdm_post(r, r->buf, FI_RIG_BUF, NULL);
			good = fi_rig_next(r, r->rx, &d) && !d.err &&
			       d.e.len == len[i] &&
			       fi_rig_same(r->buf, len[i], (uint32_t)i);
		} else {
			fi_rig_fill(r->buf, len[i], (uint32_t)i);
			good = rdm_send(r, r->buf, len[i]);
		}
	}
	fi_rig_ok(r, good, "large_messages_expected_and_unexpected_arrive");
}

static void rdm_trecv(struct fi_rig *r, uint64_t tag, uint64_t ignore)
{
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf, 64, NULL,
					FI_ADDR_UNSPEC, tag, ignore, NULL)))
		;
}

static void rdm_tagged(struct fi_rig *r)
{
	static const uint64_t order[] = { 7, 5, 6 };
	struct fi_rig_done d;
	bool good = true;
	uint64_t tag;
	int i;

	for (tag = 5; tag <= 7 && !r->server; tag++) {
		memset(r->buf, (int)tag, 64);
		while (fi_rig_again(r, fi_tsend(r->ep, r->buf, 8, NULL,
						r->peer, tag, NULL)))
			;
		good = good && rdm_sent(r);
	}
	for (i = 0; i < 3 && r->server; i++) {
		/* Tag 5 with the mask 3 matches the messages 5 and 6. */
		rdm_trecv(r, order[i], i == 1 ? 3 : 0);
		good = good && fi_rig_next(r, r->rx, &d) && !d.err &&
		       d.e.tag == order[i] && d.e.len == 8 &&
		       r->buf[7] == order[i] && d.e.flags & FI_TAGGED;
	}
	fi_rig_ok(r, good, "tagged_receive_takes_the_oldest_matching_message");
}

static int rdm_ask(struct fi_rig *r, uint64_t tag, uint64_t flags,
		   struct fi_context *context, struct fi_rig_done *d)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 40000 };
	struct fi_msg_tagged msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
		.tag = tag, .context = context,
	};

	while (fi_rig_again(r, fi_trecvmsg(r->ep, &msg, flags)))
		;
	return fi_rig_next(r, r->rx, d) ? d->err : -1;
}

/* Posts receives with FI_PEEK until the message has arrived. Returns true if it
 * has this tag and length. */
static bool rdm_await(struct fi_rig *r, uint64_t tag, uint64_t flags,
		      struct fi_context *context, size_t len)
{
	struct fi_rig_done d;
	int err = 0, i;

	for (i = 0; i < 20000; i++) {
		err = rdm_ask(r, tag, FI_PEEK | flags, context, &d);
		if (err != FI_ENOMSG)
			break;
		fi_rig_idle(r);
	}
	/* Some providers report length 0 for a discarded message. */
	return !err && d.e.tag == tag &&
	       (d.e.len == len || (flags & FI_DISCARD && !d.e.len));
}

static void rdm_peek(struct fi_rig *r)
{
	/* With ofi_rxm, the send of a large message never completes if the
	 * receiver discards it. Use a small one there. */
	size_t len[] = { 100, 30000,
			 strcmp(r->provider, "moonrail") ? 200 : 20000, 50 };
	struct fi_context context;
	struct fi_rig_done d;
	bool good = true;
	uint32_t i;

	for (i = 0; i < 4 && !r->server; i++) {
		fi_rig_fill(r->buf + i * 40000, len[i], i);
		while (fi_rig_again(r, fi_tsend(r->ep, r->buf + i * 40000,
						len[i], NULL, r->peer, 30 + i,
						NULL)))
			;
	}
	for (i = 0; i < 4 && !r->server; i++)
		good = rdm_sent(r) && good;
	if (!r->server) {
		fi_rig_ok(r, good, "messages_for_peeks_are_sent");
		return;
	}
	fi_rig_ok(r, rdm_await(r, 33, 0, &context, 50) &&
			     rdm_await(r, 30, 0, &context, 100) &&
			     rdm_ask(r, 99, FI_PEEK, &context, &d) == FI_ENOMSG,
		  "peek_finds_only_messages_that_have_arrived");
	good = rdm_await(r, 31, FI_CLAIM, &context, 30000) &&
	       rdm_ask(r, 31, FI_PEEK, NULL, &d) == FI_ENOMSG &&
	       !rdm_ask(r, 31, FI_CLAIM, &context, &d) &&
	       fi_rig_same(r->buf, 30000, 1);
	fi_rig_ok(r, good, "claimed_message_is_received_only_by_its_claimer");
	good = rdm_await(r, 32, FI_DISCARD, &context, len[2]) &&
	       rdm_ask(r, 32, FI_PEEK, &context, &d) == FI_ENOMSG;
	fi_rig_ok(r, good, "discarded_message_is_gone");
	good = !rdm_ask(r, 33, 0, NULL, &d) && fi_rig_same(r->buf, 50, 3) &&
	       !rdm_ask(r, 30, 0, NULL, &d) && fi_rig_same(r->buf, 100, 0);
	fi_rig_ok(r, good, "peeked_message_can_still_be_received");
}

static void rdm_data(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good = true;
	int i;

	for (i = 0; i < 2; i++) {
		if (r->server) {
			rdm_post(r, r->buf, 64, &good);
			good = good && fi_rig_next(r, r->rx, &d) && !d.err &&
			       d.e.op_context == &good && d.e.len == 24 &&
			       d.e.flags & FI_REMOTE_CQ_DATA &&
			       d.e.data == 0x123456789abcdefull + (uint64_t)i;
			continue;
		}
		while (fi_rig_again(r, i ? fi_injectdata(r->ep, r->buf, 24,
							0x123456789abcdf0ull,
							r->peer) :
					   fi_senddata(r->ep, r->buf, 24, NULL,
						       0x123456789abcdefull,
						       r->peer, NULL)))
			;
		if (!i)
			good = rdm_sent(r);
	}
	fi_rig_ok(r, good, "remote_cq_data_sent_and_injected_arrives");
}

/* Tests truncated messages. Runs with moonrail only, because tcp;ofi_rxm of
 * libfabric 1.17 does not work after one. */
static void rdm_truncated(struct fi_rig *r)
{
	static const size_t len[] = { 500, 50000 };
	struct fi_rig_done d;
	bool good = true;
	int i;

	if (strcmp(r->provider, "moonrail"))
		return;
	for (i = 0; i < 2; i++) {
		if (r->server)
			rdm_post(r, r->buf, 100, NULL);
		fi_rig_meet(r);
		if (!r->server)
			good = rdm_send(r, r->buf, len[i]) && good;
		else
			good = fi_rig_next(r, r->rx, &d) &&
			       d.err == FI_ETRUNC && good;
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "message_longer_than_its_buffer_is_an_error");
}

static void rdm_cancel(struct fi_rig *r)
{
	struct fi_rig_done d;

	rdm_post(r, r->buf, 64, r);
	fi_cancel(&r->ep->fid, r);
	fi_rig_ok(r, fi_rig_next(r, r->rx, &d) && d.err == FI_ECANCELED &&
			     d.e.op_context == r,
			     "cancelled_receive_is_reported");
}

/* Tests a multi-receive buffer of 4096 bytes. The provider must release it when
 * fewer than 1024 bytes are free, that is, after five messages of 700 bytes. */
static void rdm_multi(struct fi_rig *r)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 4096 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = FI_ADDR_UNSPEC,
	};
	bool good = true, over = false;
	struct fi_rig_done d;
	size_t min = 1024, n;

	if (!r->server) {
		fi_rig_meet(r);
		for (n = 0; n < 5; n++) {
			memset(r->buf, (int)n + 1, 700);
			good = rdm_send(r, r->buf, 700) && good;
		}
		fi_rig_ok(r, good, "messages_for_multi_receive_are_sent");
		return;
	}
	fi_setopt(&r->ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &min,
		  sizeof(min));
	while (fi_rig_again(r, fi_recvmsg(r->ep, &msg, FI_MULTI_RECV)))
		;
	fi_rig_meet(r);
	for (n = 0; n < 5 && good && !over; n++) {
		good = fi_rig_next(r, r->rx, &d) && !d.err && d.e.len == 700 &&
		       d.e.buf == r->buf + n * 700 &&
		       r->buf[n * 700 + 699] == n + 1;
		over = d.e.flags & FI_MULTI_RECV;
	}
	/* Some providers report the end of the buffer in an entry of its
	 * own. */
	if (good && n == 5 && !over)
		over = fi_rig_next(r, r->rx, &d) && d.e.flags & FI_MULTI_RECV;
	fi_rig_ok(r, good && over && n == 5,
		  "multi_receive_takes_fitting_messages_and_ends");
}

static bool rdm_rma(struct fi_rig *r, bool write, void *buf, size_t len,
		    uint64_t at, uint64_t key, int *err)
{
	struct fi_rig_done d;
	ssize_t ret;

	do {
		ret = write ? fi_write(r->ep, buf, len, NULL, r->peer,
				       r->remote + at, key, NULL) :
			      fi_read(r->ep, buf, len, NULL, r->peer,
				      r->remote + at, key, NULL);
	} while (fi_rig_again(r, ret));
	if (!fi_rig_next(r, r->tx, &d))
		return false;
	*err = d.err;
	return true;
}

static void rdm_write(struct fi_rig *r)
{
	struct fi_rig_done d;
	int err = 0;

	if (r->server) {
		fi_rig_ok(r, fi_rig_next(r, r->rx, &d) && !d.err &&
				     d.e.flags & FI_REMOTE_CQ_DATA &&
				     d.e.data == 99 &&
				     fi_rig_same(r->mem + 4096, 1000000, 3),
			  "data_of_remote_write_arrives_after_its_bytes");
		fi_rig_meet(r);
		return;
	}
	fi_rig_fill(r->buf, 1000000, 3);
	while (fi_rig_again(r, fi_writedata(r->ep, r->buf, 1000000, NULL, 99,
					    r->peer, r->remote + 4096, r->key,
					    NULL)))
		;
	fi_rig_ok(r, rdm_sent(r), "remote_write_with_data_completes");
	memset(r->buf, 0, 1000000);
	fi_rig_ok(r, rdm_rma(r, false, r->buf, 1000000, 4096, r->key, &err) &&
			     !err && fi_rig_same(r->buf, 1000000, 3),
		  "remote_read_returns_written_bytes");
	fi_rig_fill(r->buf, 64, 8);
	while (fi_rig_again(r, fi_inject_write(r->ep, r->buf, 64, r->peer,
					       r->remote, r->key)))
		;
	memset(r->buf, 0, 64);
	do {
		if (!rdm_rma(r, false, r->buf, 64, 0, r->key, &err) || err)
			break;
	} while (r->buf[63] != fi_rig_byte(8, 63));
	fi_rig_ok(r, !err && fi_rig_same(r->buf, 64, 8),
		  "injected_write_arrives");
	fi_rig_meet(r);
}

/* Checks that invalid writes are refused. Runs with moonrail only: with other
 * providers, a refusal ends the connection. */
static void rdm_refused(struct fi_rig *r)
{
	int err = 0;

	if (strcmp(r->provider, "moonrail") || r->server)
		return;
	fi_rig_ok(r, rdm_rma(r, true, r->buf, 64, 0, 12345, &err) && err,
		  "write_with_unknown_key_is_refused");
	fi_rig_ok(r, rdm_rma(r, true, r->buf, 64, FI_RIG_BUF - 8, r->key,
			     &err) && err == FI_EACCES,
		  "write_beyond_the_end_is_refused");
}

static void rdm_overlap(struct fi_rig *r)
{
	struct fid_mr *mr[2];
	uint64_t key = 101, end;
	int err = 0, bad;

	if (r->server) {
		fi_rig_fill(r->buf, 1000, 4);
		bad = fi_mr_reg(r->domain, r->mem + 100, 1000,
				FI_REMOTE_WRITE | FI_REMOTE_READ, 0, key, 0,
				&mr[0], NULL) ||
		      fi_mr_reg(r->domain, r->mem + 600, 1000,
				FI_REMOTE_WRITE | FI_REMOTE_READ, 0, key + 1, 0,
				&mr[1], NULL);

		if (!fi_rig_ok(r, !bad,
			       "overlapping_registrations_are_accepted"))
			exit(FT_FAIL);
		fi_rig_meet(r);
		fi_rig_meet(r);
		/* Other providers complete a write before its bytes are in
		 * place: wait for them. */
		end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
		while (memcmp(r->mem + 600, r->buf, 1000) && ft_now_ns() < end)
			fi_rig_idle(r);
		fi_rig_ok(r, fi_rig_same(r->mem + 600, 1000, 4),
			  "write_to_overlapping_registrations_arrives");
		fi_close(&mr[0]->fid);
		fi_rig_meet(r);
		fi_rig_meet(r);
		fi_close(&mr[1]->fid);
		return;
	}
	fi_rig_meet(r);
	fi_rig_fill(r->buf, 1000, 4);
	if (r->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		key = 0;
	fi_rig_ok(r, key && rdm_rma(r, true, r->buf, 1000, 0, key + 1, &err) &&
			     !err,
			     "write_to_overlapping_registrations_completes");
	fi_rig_meet(r);
	fi_rig_meet(r);
	fi_rig_ok(r, rdm_rma(r, false, r->buf, 1000, 0, key + 1, &err) && !err,
		  "registration_stays_usable_when_overlapping_one_closes");
	if (!strcmp(r->provider, "moonrail"))
		fi_rig_ok(r, rdm_rma(r, false, r->buf, 100, 0, key, &err) &&
				     err, "closed_registration_is_refused");
	fi_rig_meet(r);
}

/* Registers other memory with the same key in each round. A write of the peer
 * must reach the new memory, although the peer knew the old range. */
static void rdm_key_again(struct fi_rig *r)
{
	bool good = true;
	struct fid_mr *mr;
	int err = 0, i, k;

	if (r->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		return;
	for (i = 0; i < 3; i++) {
		if (r->server) {
			good = !fi_mr_reg(r->domain, r->mem + i * 4096, 4096,
					  FI_REMOTE_WRITE, 0, 150, 0, &mr,
					  NULL) && good;
			fi_rig_fill(r->buf, 64, 20 + (uint32_t)i);
			fi_rig_meet(r);
			fi_rig_meet(r);
			for (k = 0; k < 5000 && memcmp(r->mem + i * 4096,
						       r->buf, 64); k++)
				fi_rig_idle(r);
			good = k < 5000 && !fi_close(&mr->fid) && good;
		} else {
			fi_rig_fill(r->buf, 64, 20 + (uint32_t)i);
			fi_rig_meet(r);
			good = rdm_rma(r, true, r->buf, 64, 0, 150, &err) &&
			       !err && good;
			fi_rig_meet(r);
		}
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "key_registered_again_leads_to_the_new_memory");
}

static void rdm_self_rma(struct fi_rig *r)
{
	fi_addr_t peer = r->peer;
	uint64_t at = r->remote, key = r->key;
	int err = 0;

	r->peer = r->self;
	r->key = fi_mr_key(r->mr);
	if (r->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
		r->remote = (uintptr_t)r->mem;
	fi_rig_fill(r->buf, 5000, 11);
	fi_rig_ok(r, rdm_rma(r, true, r->buf, 5000, 9000, r->key, &err) &&
			     !err && fi_rig_same(r->mem + 9000, 5000, 11),
		  "write_to_itself_arrives");
	if (!strcmp(r->provider, "moonrail"))
		fi_rig_ok(r, rdm_rma(r, true, r->buf, 64, 0, 54321, &err) &&
				     err,
			  "write_to_itself_with_unknown_key_is_refused");
	r->peer = peer;
	r->remote = at;
	r->key = key;
}

#define ATOMICS		100	/* number of atomics of each process */
#define ATOMICS_AT	(1u << 20)

static bool rdm_wait_atomic(struct fi_rig *r, ssize_t ret)
{
	return !fi_rig_again(r, ret) && rdm_sent(r);
}

/* Tests FI_FENCE after a large message. Its receive is posted only after an
 * operation with FI_FENCE was refused with -FI_EAGAIN. */
static void rdm_fence(struct fi_rig *r)
{
	uint64_t one = 1;
	struct fi_rma_ioc at = { .addr = r->remote, .count = 1, .key = r->key };
	struct fi_ioc iov = { .addr = &one, .count = 1 };
	struct fi_msg_atomic msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
		.rma_iov = &at, .rma_iov_count = 1, .datatype = FI_UINT64,
		.op = FI_SUM,
	};
	struct fi_rig_done d;
	bool good;

	if (strcmp(r->provider, "moonrail"))
		return;
	if (r->server) {
		fi_rig_meet(r);
		rdm_post(r, r->buf, 100000, NULL);
		fi_rig_ok(r, fi_rig_next(r, r->rx, &d) && !d.err,
			  "message_before_a_fence_arrives");
		return;
	}
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 100000, NULL, r->peer,
				       NULL)))
		;
	good = rdm_wait_atomic(r, fi_atomicmsg(r->ep, &msg, 0)) &&
	       fi_atomicmsg(r->ep, &msg, FI_FENCE) == -FI_EAGAIN;
	fi_rig_meet(r);
	good = rdm_sent(r) && good &&
	       rdm_wait_atomic(r, fi_atomicmsg(r->ep, &msg, FI_FENCE));
	fi_rig_ok(r, good, "fence_waits_until_earlier_operations_complete");
}

/* Waits until the fenced write sets *flag. Returns true if all messages before
 * it have been received by then. */
static bool rdm_fenced_seen(struct fi_rig *r, const volatile uint64_t *flag)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct fi_cq_tagged_entry e;
	uint32_t got = 0;
	bool seen;

	do {
		seen = *flag;
		while (fi_cq_read(r->rx, &e, 1) == 1)
			got++;
	} while (!seen && ft_now_ns() < end);
	if (got != FENCED)
		ft_diag("%u of %u messages had arrived before the fenced "
			"write", got, FENCED);
	return seen && got == FENCED;
}

/* Tests FI_FENCE after small messages. Their sends complete before they are
 * posted on a rail, so the fence must wait for more than completions. */
static void rdm_fence_messages(struct fi_rig *r)
{
	uint64_t one = 1;
	struct iovec iov = { .iov_base = &one, .iov_len = sizeof(one) };
	struct fi_rma_iov at = {
		.addr = r->remote + 8192, .len = sizeof(one), .key = r->key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
		.rma_iov = &at, .rma_iov_count = 1,
	};
	bool good = true;
	uint32_t i;

	if (strcmp(r->provider, "moonrail"))
		return;
	memset(r->mem + 8192, 0, sizeof(one));
	for (i = 0; r->server && i < FENCED; i++)
		rdm_post(r, r->buf, 1000, NULL);
	fi_rig_meet(r);
	if (r->server) {
		fi_rig_ok(r, rdm_fenced_seen(r, (void *)(r->mem + 8192)),
			  "messages_before_a_fence_arrive_before_the_write_"
			  "after_it");
		fi_rig_meet(r);
		return;
	}
	for (i = 0; i < FENCED; i++)
		while (fi_rig_again(r, fi_send(r->ep, r->buf, 1000, NULL,
					       r->peer, NULL)))
			;
	while (fi_rig_again(r, fi_writemsg(r->ep, &msg, FI_FENCE)))
		;
	for (i = 0; i < FENCED + 1 && good; i++)
		good = rdm_sent(r);
	fi_rig_ok(r, good, "fenced_write_after_many_messages_completes");
	fi_rig_meet(r);
}

/* number of atomics that the peer keeps posted */
#define FLOOD		256u
#define FLOODED		20u	/* number of fences */

/* Keeps FLOOD atomics posted until *flag is FLOODED. Returns true if that
 * happens within 10 s and all atomics complete. */
static bool rdm_flood(struct fi_rig *r, const volatile uint64_t *flag)
{
	uint64_t end = ft_now_ns() + UINT64_C(10000000000);
	struct fi_cq_tagged_entry e;
	bool seen, good = true;
	uint32_t under_way = 0;
	uint64_t one = 1;
	ssize_t n;

	do {
		seen = *flag == FLOODED;
		while (!seen && under_way < FLOOD &&
		       !fi_atomic(r->ep, &one, 1, NULL, r->peer, r->remote,
				  r->key, FI_UINT64, FI_SUM, NULL))
			under_way++;
		n = fi_cq_read(r->tx, &e, 1);
		good = good && (n == 1 || n == -FI_EAGAIN);
		under_way -= n == 1;
	} while (!seen && good && ft_now_ns() < end);
	while (under_way && good) {
		good = rdm_sent(r);
		under_way--;
	}
	return seen && good;
}

/* Checks that the fences of a process do not wait for atomics that the peer has
 * posted to that process. */
static void rdm_fence_flooded(struct fi_rig *r)
{
	uint64_t end = ft_now_ns() + UINT64_C(10000000000), i;
	struct iovec iov = { .iov_base = &i, .iov_len = sizeof(i) };
	struct fi_rma_iov at = {
		.addr = r->remote + 8192, .len = sizeof(i), .key = r->key,
	};
	struct fi_msg_rma msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
		.rma_iov = &at, .rma_iov_count = 1,
	};
	struct fi_rig_done d;
	bool good = true;
	ssize_t ret;

	/* Emulated devices are too slow for the time limits. */
	if (strcmp(r->provider, "moonrail") || fi_rig_emulated())
		return;
	memset(r->mem + 8192, 0, sizeof(i));
	for (i = 0; r->server && i < FLOODED; i++)
		rdm_post(r, r->buf, 1000, NULL);
	fi_rig_meet(r);
	if (r->server) {
		good = rdm_flood(r, (void *)(r->mem + 8192));
		fi_rig_ok(r, good, "atomics_to_fencing_process_complete");
		for (i = 0; i < FLOODED && good; i++)
			good = fi_rig_next(r, r->rx, &d) && !d.err;
		fi_rig_ok(r, good, "messages_of_fencing_process_arrive");
		fi_rig_meet(r);
		return;
	}
	for (i = 1; i <= FLOODED && good; i++) {
		while (fi_rig_again(r, fi_send(r->ep, r->buf, 1000, NULL,
					       r->peer, NULL)))
			;
		do {
			ret = fi_writemsg(r->ep, &msg, FI_FENCE);
		} while (fi_rig_again(r, ret) && ft_now_ns() < end);
		good = !ret && rdm_sent(r) && rdm_sent(r);
	}
	fi_rig_ok(r, good, "fence_does_not_wait_for_atomics_of_the_peer");
	fi_rig_meet(r);
}

/* Both processes add 1 to the same number at the server. Each addition must be
 * executed once. */
static void rdm_atomic_sum(struct fi_rig *r)
{
	uint64_t one = 1, old = 0, at = r->remote + ATOMICS_AT, key = r->key;
	fi_addr_t to = r->server ? r->self : r->peer;
	bool good = true;
	int i;

	if (r->server) {
		at = ATOMICS_AT;
		key = fi_mr_key(r->mr);
		if (r->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR)
			at += (uintptr_t)r->mem;
	}
	fi_rig_meet(r);
	for (i = 0; i < ATOMICS && good; i++) {
		while (fi_rig_again(r, i % 2 ?
				fi_atomic(r->ep, &one, 1, NULL, to, at, key,
					  FI_UINT64, FI_SUM, NULL) :
				fi_fetch_atomic(r->ep, &one, 1, NULL, &old,
						NULL, to, at, key, FI_UINT64,
						FI_SUM, NULL)))
			;
		good = rdm_sent(r);
	}
	fi_rig_ok(r, good && old >= ATOMICS / 2, "atomic_sums_complete");
	fi_rig_meet(r);
	while (fi_rig_again(r, fi_fetch_atomic(r->ep, NULL, 1, NULL, &old, NULL,
					       to, at, key, FI_UINT64,
					       FI_ATOMIC_READ, NULL)))
		;
	fi_rig_ok(r, rdm_sent(r) && old == 2 * ATOMICS,
		  "atomic_sums_are_executed_exactly_once");
}

static bool rdm_swap(struct fi_rig *r, uint64_t at, int32_t to, int32_t from,
		     int32_t *old)
{
	while (fi_rig_again(r, fi_compare_atomic(r->ep, &to, 1, NULL, &from,
						 NULL, old, NULL, r->peer, at,
						 r->key, FI_INT32, FI_CSWAP,
						 NULL)))
		;
	return rdm_sent(r);
}

/* Does two atomics on three doubles at `at`: a maximum with d, then a swap with
 * d. `was` receives the values from before the swap. Returns true if both
 * complete. */
static bool rdm_row(struct fi_rig *r, uint64_t at, double d[3], double was[3])
{
	while (fi_rig_again(r, fi_atomic(r->ep, d, 3, NULL, r->peer, at,
					 r->key, FI_DOUBLE, FI_MAX, NULL)))
		;
	if (!rdm_sent(r))
		return false;
	while (fi_rig_again(r, fi_fetch_atomic(r->ep, d, 3, NULL, was, NULL,
					       r->peer, at, r->key, FI_DOUBLE,
					       FI_ATOMIC_WRITE, NULL)))
		;
	return rdm_sent(r);
}

static void rdm_atomic(struct fi_rig *r)
{
	uint64_t at = r->remote + ATOMICS_AT + 64;
	double d[3] = { 1.5, -2, 7 }, was[3] = { 0 };
	int32_t old = -1;
	size_t n = 0;

	rdm_atomic_sum(r);
	fi_rig_meet(r);
	if (r->server) {
		fi_rig_meet(r);
		return;
	}
	fi_rig_ok(r, rdm_swap(r, at, 7, 0, &old) && !old,
		  "compare_and_swap_with_equal_value_swaps");
	fi_rig_ok(r, rdm_swap(r, at, 0, 0, &old) && old == 7,
		  "compare_and_swap_with_other_value_does_not_swap");
	fi_rig_ok(r, rdm_row(r, at + 64, d, was) && was[0] == 1.5 &&
			     was[1] == 0 && was[2] == 7,
		  "atomics_on_three_doubles_are_right");
	fi_rig_ok(r, !fi_atomicvalid(r->ep, FI_INT32, FI_SUM, &n) && n &&
		     fi_atomicvalid(r->ep, FI_DOUBLE, FI_BOR, &n) &&
		     fi_fetch_atomicvalid(r->ep, FI_INT32, FI_CSWAP, &n),
		  "atomicvalid_reports_supported_operations");
	fi_rig_meet(r);
}

static void rdm_atomic_refused(struct fi_rig *r)
{
	struct fi_rig_done d = { .err = 0 };
	int32_t a = 7;

	if (strcmp(r->provider, "moonrail") || r->server)
		return;
	while (fi_rig_again(r, fi_atomic(r->ep, &a, 1, NULL, r->peer, r->remote,
					 4711, FI_INT32, FI_SUM, NULL)))
		;
	fi_rig_ok(r, fi_rig_next(r, r->tx, &d) && d.err,
		  "atomic_with_unknown_key_is_refused");
	while (fi_rig_again(r, fi_atomic(r->ep, &a, 1, NULL, r->peer,
					 r->remote + FI_RIG_BUF, r->key,
					 FI_INT32, FI_SUM, NULL)))
		;
	fi_rig_ok(r, fi_rig_next(r, r->tx, &d) && d.err == FI_EACCES,
		  "atomic_beyond_the_end_is_refused");
}

static void rdm_delivered(struct fi_rig *r)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = 300 };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
	};
	struct fi_rig_done d;

	if (r->server) {
		rdm_post(r, r->buf, 300, NULL);
		fi_rig_ok(r, fi_rig_next(r, r->rx, &d) && !d.err &&
				     fi_rig_same(r->buf, 300, 6),
			  "message_with_delivery_complete_arrives");
		return;
	}
	fi_rig_fill(r->buf, 300, 6);
	while (fi_rig_again(r, fi_sendmsg(r->ep, &msg, FI_DELIVERY_COMPLETE)))
		;
	fi_rig_ok(r, rdm_sent(r), "send_with_delivery_complete_completes");
}

static bool rdm_sleep(struct fi_rig *r, int fd)
{
	struct fid *fid = &r->rx->fid;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return fi_trywait(r->fabric, &fid, 1) || poll(&p, 1, FI_RIG_WAIT_MS) == 1;
}

static void rdm_wait(struct fi_rig *r)
{
	struct fi_cq_tagged_entry e;
	ssize_t n = -FI_EAGAIN;
	int fd = -1, i;

	if (!r->server) {
		fi_rig_meet(r);
		usleep(30000);
		rdm_send(r, r->buf, 10);
		fi_rig_meet(r);
		return;
	}
	rdm_post(r, r->buf, 64, NULL);
	fi_control(&r->rx->fid, FI_GETWAIT, &fd);
	fi_rig_meet(r);
	for (i = 0; i < 1000 && n == -FI_EAGAIN && rdm_sleep(r, fd); i++)
		n = fi_cq_read(r->rx, &e, 1);
	fi_rig_ok(r, n == 1 && e.len == 10, "descriptor_wakes_the_receiver");
	fi_rig_ok(r, fi_cq_sread(r->rx, &e, 1, NULL, 20) == -FI_EAGAIN,
		  "wait_without_completion_times_out");
	fi_rig_meet(r);
}

static void rdm_self(struct fi_rig *r)
{
	static const size_t len[] = { 100, 200000 };
	struct fi_rig_done d;
	bool good = true;
	int i;

	/* Each message fits into half of the buffer. */
	for (i = 0; i < 2; i++) {
		fi_rig_fill(r->buf, len[i], 9);
		rdm_post(r, r->buf + FI_RIG_BUF / 2, 200000, NULL);
		while (fi_rig_again(r, fi_send(r->ep, r->buf, len[i], NULL,
					       r->self, NULL)))
			;
		good = good && fi_rig_next(r, r->rx, &d) && !d.err &&
		       d.e.len == len[i] && rdm_sent(r) &&
		       fi_rig_same(r->buf + FI_RIG_BUF / 2, len[i], 9);
	}
	fi_rig_ok(r, good, "messages_to_itself_arrive");
}

/* --- several threads ------------------------------------------------------ */

#define THREADS		4u
/* number of operations of each thread, fewer than a queue can hold */
#define TURNS		200u
#define THREAD_BYTES	(FI_RIG_BUF / THREADS)

struct rdm_thread {
	struct fi_rig *r;
	uint32_t id, *done;		/* number of completed operations of all
					 * threads; atomic */
	bool bad;
};

/* Reads one completion if there is one, of an operation of any thread. */
static void rdm_take(struct rdm_thread *t)
{
	struct fid_cq *cq = t->r->server ? t->r->rx : t->r->tx;
	struct fi_cq_tagged_entry e;
	ssize_t n = fi_cq_read(cq, &e, 1);

	if (n == 1)
		__atomic_fetch_add(t->done, 1, __ATOMIC_RELAXED);
	else if (n != -FI_EAGAIN)
		t->bad = true;
}

static ssize_t rdm_turn(const struct rdm_thread *t, uint32_t i)
{
	uint8_t *at = t->r->buf + t->id * THREAD_BYTES;
	size_t len = rdm_length(i);

	return t->r->server ?
		       fi_trecv(t->r->ep, at, THREAD_BYTES, NULL,
				FI_ADDR_UNSPEC, t->id, 0, NULL) :
		       fi_tsend(t->r->ep, at, len, NULL, t->r->peer, t->id,
				NULL);
}

static void *rdm_thread(void *arg)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	struct rdm_thread *t = arg;
	ssize_t ret;
	uint32_t i;

	for (i = 0; i < TURNS && !t->bad; i++) {
		while ((ret = rdm_turn(t, i)) == -FI_EAGAIN && !t->bad)
			rdm_take(t);
		t->bad = t->bad || ret;
		rdm_take(t);
	}
	while (!t->bad && ft_now_ns() < end &&
	       __atomic_load_n(t->done, __ATOMIC_RELAXED) < THREADS * TURNS)
		rdm_take(t);
	return NULL;
}

/* Tests FI_THREAD_SAFE: several threads use one endpoint and its queues without
 * a lock. */
static void rdm_threads(struct fi_rig *r)
{
	struct rdm_thread t[THREADS];
	pthread_t thread[THREADS];
	uint32_t done = 0, i, n;
	bool good = true;

	if (r->info->domain_attr->threading != FI_THREAD_SAFE) {
		ft_diag("%s is not thread-safe: not tested with several "
			"threads", r->provider);
		return;
	}
	for (i = 0; i < THREADS; i++) {
		t[i] = (struct rdm_thread){ .r = r, .id = i, .done = &done };
		if (!r->server)
			fi_rig_fill(r->buf + i * THREAD_BYTES, THREAD_BYTES, i);
	}
	for (n = 0; n < THREADS; n++)
		if (pthread_create(&thread[n], NULL, rdm_thread, &t[n]))
			break;
	/* A completion may be read by any thread, so all threads must have
	 * ended before the results are checked. */
	for (i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
	for (i = 0; i < n; i++) {
		good = good && !t[i].bad;
		if (r->server)
			good = good && fi_rig_same(r->buf + i * THREAD_BYTES,
						   rdm_length(TURNS - 1), i);
	}
	fi_rig_ok(r, good && n == THREADS && done == THREADS * TURNS,
		  "four_threads_share_one_endpoint");
	fi_rig_meet(r);
}

static void rdm_all(struct fi_rig *r)
{
	static const fi_rig_fn part[] = {
		rdm_order, rdm_large, rdm_tagged, rdm_peek, rdm_data,
		rdm_truncated, rdm_cancel, rdm_multi, rdm_write, rdm_overlap, rdm_key_again,
		rdm_delivered, rdm_wait, rdm_self, rdm_self_rma,
		rdm_atomic, rdm_fence, rdm_fence_messages, rdm_fence_flooded,
		rdm_threads, rdm_refused, rdm_atomic_refused,
	};
	size_t i;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		fi_rig_meet(r);
		part[i](r);
	}
}

static bool rdm_transmit(struct fi_rig *r, size_t len)
{
	struct iovec iov = { .iov_base = r->buf, .iov_len = len };
	struct fi_msg msg = {
		.msg_iov = &iov, .iov_count = 1, .addr = r->peer,
	};

	while (fi_rig_again(r, fi_sendmsg(r->ep, &msg, FI_TRANSMIT_COMPLETE)))
		;
	return rdm_sent(r);
}

/* Checks that a send completes if the receiver closes everything right after
 * the receive. The receiver (the client) has never sent a message. */
static void rdm_leave(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good;

	r->hasty = true;
	if (!r->server)
		rdm_post(r, r->buf, 64, NULL);
	fi_rig_meet(r);
	good = r->server ? rdm_transmit(r, 10) :
			   fi_rig_next(r, r->rx, &d) && !d.err;
	fi_rig_ok(r, good,
		  "send_to_process_that_ends_after_receiving_completes");
}

static bool rdm_run(const char *provider, bool *missing)
{
	bool good = fi_rig_run(provider, 0, rdm_all, missing);
	int i, n = fi_rig_emulated() ? 2 : LEAVES;

	for (i = 0; i < n && good; i++)
		good = fi_rig_run(provider, 0, rdm_leave, missing);
	return good;
}

/* With an argument, the test uses only the provider of that name. */
int main(int argc, char **argv)
{
	const char *only = ft_options_word(argc, argv, "PROVIDER",
					   "the only provider to test");

	if (!fi_rig_path_for_test())
		return ft_skip("built without the provider");
	return fi_rig_main(only, rdm_run, "messages and memory");
}
