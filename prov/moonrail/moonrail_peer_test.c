/* SPDX-License-Identifier: BSD-2-Clause */

#include <rdma/fi_errno.h>
#include <stdlib.h>

#include "prov/moonrail/moonrail_av.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_ep.h"
#include "prov/moonrail/moonrail_msg.h"
#include "prov/moonrail/moonrail_op.h"
#include "prov/moonrail/moonrail_peer.h"
#include "prov/moonrail/moonrail_stream.h"
#include "prov/moonrail/moonrail_test.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "util/clock.h"
#include "util/list.h"


/* Pretends that the resolver has found a process that has left in the
 * meantime. */
static void peer_found_and_gone(struct test_end *t, fi_addr_t at)
{
	struct moonrail_av *av = tei_container_of(t->av, struct moonrail_av,
						  fid);
	struct tei_rail_peer *resolver;

	moonrail_enter(t->domain);
	resolver = moonrail_av_get(av, at)->peer->rail;
	rail_sched_enter(resolver->dp);
	resolver->addrs.found = UINT64_MAX;
	resolver->hello.wanted = false;
	rail_sched_leave(resolver->dp);
	moonrail_leave(t->domain);
}

static void test_send_to_process_that_left_times_out(void)
{
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	struct fi_msg msg = { .msg_iov = &iov, .iov_count = 1 };
	struct test_end t;

	setenv("MC_SLICE_TIMEOUT", "1", 1);
	test_open(&t, NULL);
	unsetenv("MC_SLICE_TIMEOUT");
	msg.addr = test_insert(&t, test_port());
	peer_found_and_gone(&t, msg.addr);
	CU_ASSERT_EQUAL(fi_sendmsg(t.ep, &msg, FI_TRANSMIT_COMPLETE), 0);
	CU_ASSERT_EQUAL(test_ends(&t), FI_ETIMEDOUT);
	test_close(&t);
}

/* If the peer does not answer the read-back check, the receive must time
 * out. */
static void test_read_back_check_without_answer_times_out(void)
{
	struct moonrail_av *av;
	struct moonrail_op *op;
	struct test_end t;
	fi_addr_t at;

	setenv("MC_SLICE_TIMEOUT", "1", 1);
	test_open(&t, NULL);
	unsetenv("MC_SLICE_TIMEOUT");
	at = test_insert(&t, test_port());
	av = tei_container_of(t.av, struct moonrail_av, fid);
	moonrail_enter(t.domain);
	op = moonrail_op_new(tei_container_of(t.ep, struct moonrail_ep, fid),
			     &moonrail_recv_type, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(op);
	op->ep->nrx++;
	moonrail_op_with(op, moonrail_av_get(av, at)->peer);
	moonrail_read_back_send(op);
	moonrail_leave(t.domain);
	CU_ASSERT_EQUAL(test_ends(&t), FI_ETIMEDOUT);
	test_close(&t);
}

/* The buffer of an announced message must stay registered after the peer has
 * failed, because the peer may still be reading the message. */
static void test_announced_message_to_failed_peer_is_kept_for_reader(void)
{
	struct moonrail_peer *p;
	struct moonrail_op *op;
	struct test_end t;
	fi_addr_t at;
	uint64_t from;

	test_open(&t, NULL);
	at = test_insert(&t, test_port());
	moonrail_enter(t.domain);
	p = moonrail_av_get(tei_container_of(t.av, struct moonrail_av, fid),
			    at)->peer;
	op = moonrail_op_new(tei_container_of(t.ep, struct moonrail_ep, fid),
			     &moonrail_send_type, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(op);
	moonrail_op_with(op, p);
	moonrail_op_begin(op);
	tei_list_add_tail(&p->ops.waiting, &op->link);
	from = tei_now_ns();
	moonrail_peer_fail(p, FI_EHOSTUNREACH);
	moonrail_leave(t.domain);
	CU_ASSERT_EQUAL(test_ends(&t), FI_EHOSTUNREACH);
	CU_ASSERT(tei_now_ns() - from >= 750 * TEI_NS_PER_MS);
	test_close(&t);
}

const struct tei_test_case moonrail_peer_cases[] = {
	{ "announced_message_to_failed_peer_is_kept_for_reader",
	  test_announced_message_to_failed_peer_is_kept_for_reader },
	{ "read_back_check_without_answer_times_out",
	  test_read_back_check_without_answer_times_out },
	{ "send_to_process_that_left_times_out",
	  test_send_to_process_that_left_times_out },
	{ NULL, NULL },
};
