/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of the simulated fabric, through the libfabric interface. */

#include "fabtests/sim/sim_net.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_test.h"

#define RIG_BYTES (4u << 20)
#define RIG_MODES                                                           \
	(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | \
	 FI_MR_ENDPOINT | FI_MR_RMA_EVENT)

/* One endpoint of a host, with registered memory. */
struct node {
	struct sim_host *host;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	struct fid_mr *mr;
	char *mem;
	fi_addr_t peer;
	/* numbers of successful and of failed completions read so far */
	unsigned int done, failed;
	int err;    /* error of the last failed completion */
	size_t len; /* length of the last successful completion */
};

static struct node nodes[2];
static struct sim_net_conf conf;

static const struct sim_net_nic nic0 = { 0, 0 }, nic1 = { 1, 0 };

/* Reads all completions of a node's queue. */
static void node_poll(struct node *n)
{
	struct sim_host *before = sim_host_enter(n->host);
	struct fi_cq_err_entry err;
	struct fi_cq_msg_entry e;
	ssize_t ret;

	for (;;) {
		ret = fi_cq_read(n->cq, &e, 1);
		if (ret == 1) {
			n->done++;
			n->len = e.len;
		} else if (ret == -FI_EAVAIL) {
			CU_ASSERT_EQUAL_FATAL(fi_cq_readerr(n->cq, &err, 0), 1);
			n->failed++;
			n->err = err.err;
		} else {
			break;
		}
	}
	sim_host_enter(before);
}

static void node_open(struct node *n, uint32_t host)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_MSG,
				 .wait_obj = conf.wait_fd ? FI_WAIT_FD
							  : FI_WAIT_NONE };
	struct fi_info *hints = fi_allocinfo();
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct sim_host *before;

	memset(n, 0, sizeof(*n));
	n->host = sim_host_get(host);
	before = sim_host_enter(n->host);
	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = RIG_MODES;
	hints->domain_attr->name = strdup("sim0");
	hints->fabric_attr->prov_name = strdup("sim");
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	CU_ASSERT_EQUAL_FATAL(
		fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &n->info),
		0);
	fi_freeinfo(hints);
	CU_ASSERT_PTR_NULL(n->info->next);
	CU_ASSERT_EQUAL_FATAL(fi_fabric(n->info->fabric_attr, &n->fabric, NULL),
			      0);
	CU_ASSERT_EQUAL_FATAL(fi_domain(n->fabric, n->info, &n->domain, NULL),
			      0);
	CU_ASSERT_EQUAL_FATAL(fi_cq_open(n->domain, &cq, &n->cq, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_av_open(n->domain, &av, &n->av, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(fi_endpoint(n->domain, n->info, &n->ep, NULL), 0);
	CU_ASSERT_EQUAL(fi_ep_bind(n->ep, &n->cq->fid, FI_TRANSMIT | FI_RECV),
			0);
	CU_ASSERT_EQUAL(fi_ep_bind(n->ep, &n->av->fid, 0), 0);
	CU_ASSERT_EQUAL_FATAL(fi_enable(n->ep), 0);
	n->mem = sim_arena(RIG_BYTES, 4096);
	CU_ASSERT_EQUAL_FATAL(fi_mr_reg(n->domain, n->mem, RIG_BYTES,
					FI_SEND | FI_RECV | FI_READ | FI_WRITE |
						FI_REMOTE_READ |
						FI_REMOTE_WRITE,
					0, 7, 0, &n->mr, NULL),
			      0);
	sim_host_enter(before);
}

static void node_meet(struct node *n, const struct node *other)
{
	char addr[64];
	size_t len = sizeof(addr);

	CU_ASSERT_EQUAL_FATAL(fi_getname(&other->ep->fid, addr, &len), 0);
	CU_ASSERT_EQUAL_FATAL(fi_av_insert(n->av, addr, 1, &n->peer, 0, NULL),
			      1);
}

static void node_close_ep(struct node *n)
{
	if (n->ep)
		CU_ASSERT_EQUAL(fi_close(&n->ep->fid), 0);
	n->ep = NULL;
}

static void node_close_mr(struct node *n)
{
	if (n->mr)
		CU_ASSERT_EQUAL(fi_close(&n->mr->fid), 0);
	n->mr = NULL;
}

static void node_close(struct node *n)
{
	node_close_ep(n);
	node_close_mr(n);
	CU_ASSERT_EQUAL(fi_close(&n->cq->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&n->av->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&n->domain->fid), 0);
	CU_ASSERT_EQUAL(fi_close(&n->fabric->fid), 0);
	fi_freeinfo(n->info);
}

/* Starts a simulation of two hosts. The network has the settings in `conf`,
 * which a test may change before this call. */
static void rig_open(uint64_t seed)
{
	static bool set;

	if (!set)
		sim_net_provider(NULL);
	set = true;
	sim_begin(seed, 2);
	sim_net_begin(&conf, 2);
	node_open(&nodes[0], 0);
	node_open(&nodes[1], 1);
	node_meet(&nodes[0], &nodes[1]);
	node_meet(&nodes[1], &nodes[0]);
}

static void rig_end(void)
{
	struct sim_net_stats stats;

	node_close(&nodes[0]);
	node_close(&nodes[1]);
	sim_run(sim_now() + 120 * SIM_SEC);
	sim_net_stats_get(SIM_NO_HOST, &stats);
	CU_ASSERT_EQUAL(stats.domains + stats.endpoints + stats.mrs +
				stats.queues + stats.avs + stats.counters,
			0);
	CU_ASSERT_EQUAL(stats.operations, 0);
	CU_ASSERT_EQUAL(stats.connections, 0);
	sim_net_end();
	sim_end();
}

static void rig_tcp(void)
{
	sim_net_conf_tcp(&conf);
	rig_open(1);
}

static void rig_verbs(void)
{
	sim_net_conf_verbs(&conf);
	rig_open(1);
}

/* Lets virtual time pass. Host 0 polls its completion queue every 20 us; host 1
 * does so too if `both` is true. */
static void rig_run(uint64_t ns, bool both)
{
	uint64_t end = sim_now() + ns;

	while (sim_now() < end) {
		sim_run(sim_now() + 20 * SIM_US);
		node_poll(&nodes[0]);
		if (both)
			node_poll(&nodes[1]);
	}
}

/* Posts a write or a read from host 0 to host 1. `off` is the offset in the
 * memory of both hosts. */
static ssize_t rig_post(bool read, uint64_t off, size_t len)
{
	struct node *n = &nodes[0], *to = &nodes[1];
	struct sim_host *before = sim_host_enter(n->host);
	bool virt = conf.mr_mode & FI_MR_VIRT_ADDR;
	struct iovec iov = { n->mem + off, len };
	struct fi_rma_iov rma = {
		(virt ? (uintptr_t)to->mem : 0) + off,
		len,
		to->mr ? fi_mr_key(to->mr) : 99,
	};
	void *desc = n->mr ? fi_mr_desc(n->mr) : NULL;
	struct fi_msg_rma msg = {
		.msg_iov = &iov,
		.desc = &desc,
		.iov_count = 1,
		.addr = n->peer,
		.rma_iov = &rma,
		.rma_iov_count = 1,
		.context = n,
	};
	ssize_t ret;

	ret = read ? fi_readmsg(n->ep, &msg, FI_COMPLETION)
		   : fi_writemsg(n->ep, &msg,
				 FI_COMPLETION | FI_DELIVERY_COMPLETE);
	sim_host_enter(before);
	return ret;
}

/* Repeats a post until it is accepted, because posts fail with -FI_EAGAIN until
 * the connection exists. */
static void rig_must_post(bool read, uint64_t off, size_t len)
{
	uint64_t end = sim_now() + 5 * SIM_SEC;
	ssize_t ret;

	for (;;) {
		ret = rig_post(read, off, len);
		if (ret != -FI_EAGAIN || sim_now() > end)
			break;
		rig_run(20 * SIM_US, true);
	}
	CU_ASSERT_EQUAL_FATAL(ret, 0);
}

static void rig_connect(void)
{
	rig_must_post(false, 0, 1);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL_FATAL(nodes[0].done, 1);
	nodes[0].done = 0;
}

static void rig_fill(char *p, size_t len, unsigned int seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = (char)(i * 7 + (i >> 8) + seed);
}

/* --- bytes --- */

static void bytes_move(void (*open)(void))
{
	const size_t len = 1000003;

	open();
	rig_fill(nodes[0].mem, len, 1);
	rig_must_post(false, 0, len);
	rig_run(10 * SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	CU_ASSERT_EQUAL(nodes[0].failed, 0);
	CU_ASSERT(!memcmp(nodes[0].mem, nodes[1].mem, len));
	CU_ASSERT_EQUAL(nodes[1].mem[len], 0);
	rig_fill(nodes[1].mem + len, len, 2);
	rig_must_post(true, len, len);
	rig_run(10 * SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 2);
	CU_ASSERT(!memcmp(nodes[0].mem + len, nodes[1].mem + len, len));
	rig_end();
}

static void test_bytes_move_over_tcp(void)
{
	bytes_move(rig_tcp);
}

static void test_bytes_move_over_verbs(void)
{
	bytes_move(rig_verbs);
}

static ssize_t rig_send(struct node *n, uint64_t off, size_t len)
{
	struct sim_host *before = sim_host_enter(n->host);
	ssize_t ret = fi_send(n->ep, n->mem + off, len, fi_mr_desc(n->mr),
			      n->peer, n);

	sim_host_enter(before);
	return ret;
}

static void messages_match(void (*open)(void))
{
	struct node *to = &nodes[1];

	open();
	rig_connect();
	rig_fill(nodes[0].mem, 100000, 3);
	CU_ASSERT_EQUAL(fi_recv(to->ep, to->mem, 1000, fi_mr_desc(to->mr),
				FI_ADDR_UNSPEC, to),
			0);
	CU_ASSERT_EQUAL(rig_send(&nodes[0], 0, 1000), 0);
	CU_ASSERT_EQUAL(rig_send(&nodes[0], 0, 100000), 0);
	CU_ASSERT_EQUAL(rig_send(&nodes[0], 0, 0), 0);
	rig_run(5 * SIM_MS, true);
	CU_ASSERT_EQUAL(to->done, 1);
	CU_ASSERT_EQUAL(to->len, 1000);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	CU_ASSERT_EQUAL(fi_recv(to->ep, to->mem + 4096, 100000,
				fi_mr_desc(to->mr), FI_ADDR_UNSPEC, to),
			0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(to->done, 2);
	CU_ASSERT_EQUAL(to->len, 100000);
	CU_ASSERT(!memcmp(nodes[0].mem, to->mem + 4096, 100000));
	CU_ASSERT_EQUAL(fi_recv(to->ep, to->mem, 1, fi_mr_desc(to->mr),
				FI_ADDR_UNSPEC, to),
			0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(to->done, 3);
	CU_ASSERT_EQUAL(to->len, 0);
	CU_ASSERT_EQUAL(nodes[0].done, 3);
	rig_end();
}

static void test_messages_wait_for_receives(void)
{
	messages_match(rig_tcp);
	messages_match(rig_verbs);
}

static void test_message_longer_than_receive_is_truncated(void)
{
	struct node *to = &nodes[1];

	rig_tcp();
	rig_connect();
	CU_ASSERT_EQUAL(fi_recv(to->ep, to->mem, 10, NULL, FI_ADDR_UNSPEC, to),
			0);
	CU_ASSERT_EQUAL(rig_send(&nodes[0], 0, 11), 0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(to->failed, 1);
	CU_ASSERT_EQUAL(to->err, FI_ETRUNC);
	rig_end();
}

static void test_messages_beyond_the_limit_stall_the_connection(void)
{
	struct node *to = &nodes[1];
	unsigned int i;

	sim_net_conf_tcp(&conf);
	conf.unexpected = 4;
	rig_open(1);
	rig_connect();
	for (i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(rig_send(&nodes[0], i * 64, 64), 0);
	rig_must_post(false, 1 << 20, 64);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 0);
	for (i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(
			fi_recv(to->ep, to->mem, 64, NULL, FI_ADDR_UNSPEC, to),
			0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(to->done, 8);
	CU_ASSERT_EQUAL(nodes[0].done, 9);
	rig_end();
}

/* --- connections --- */

static void test_first_post_connects(void)
{
	struct sim_net_stats stats;

	rig_tcp();
	CU_ASSERT_EQUAL(rig_post(false, 0, 1), -FI_EAGAIN);
	rig_run(SIM_MS, false);
	CU_ASSERT_EQUAL(rig_post(false, 0, 1), -FI_EAGAIN);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(rig_post(false, 0, 1), 0);
	sim_net_stats_get(SIM_NO_HOST, &stats);
	CU_ASSERT_EQUAL(stats.connects, 1);
	CU_ASSERT_EQUAL(stats.connections, 1);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	rig_end();
}

static void test_crossing_attempts_share_a_connection(void)
{
	struct sim_net_stats stats;

	rig_tcp();
	CU_ASSERT_EQUAL(rig_send(&nodes[0], 0, 1), -FI_EAGAIN);
	CU_ASSERT_EQUAL(rig_send(&nodes[1], 0, 1), -FI_EAGAIN);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(rig_send(&nodes[0], 0, 1), 0);
	CU_ASSERT_EQUAL(rig_send(&nodes[1], 0, 1), 0);
	sim_net_stats_get(SIM_NO_HOST, &stats);
	CU_ASSERT_EQUAL(stats.connects, 1);
	rig_end();
}

static void test_posts_are_queued_while_connecting(void)
{
	sim_net_conf_tcp(&conf);
	conf.post_connects = true;
	rig_open(1);
	CU_ASSERT_EQUAL(rig_post(false, 0, 100), 0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	rig_end();
}

static void test_attempt_without_answer_fails(void)
{
	sim_net_conf_tcp(&conf);
	conf.post_connects = true;
	rig_open(1);
	sim_net_path_block(nic0, nic1, true);
	CU_ASSERT_EQUAL(rig_post(false, 0, 100), 0);
	sim_run(sim_now() + conf.connect_ns - SIM_MS);
	node_poll(&nodes[0]);
	CU_ASSERT_EQUAL(nodes[0].failed, 0);
	sim_run(sim_now() + 2 * SIM_MS);
	node_poll(&nodes[0]);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	CU_ASSERT_EQUAL(nodes[0].err, FI_ETIMEDOUT);
	rig_end();
}

static void test_attempt_to_a_closed_endpoint_is_refused(void)
{
	sim_net_conf_tcp(&conf);
	conf.post_connects = true;
	rig_open(1);
	node_close_ep(&nodes[1]);
	CU_ASSERT_EQUAL(rig_post(false, 0, 100), 0);
	rig_run(SIM_MS, false);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	CU_ASSERT_EQUAL(nodes[0].err, FI_ECONNREFUSED);
	rig_end();
}

static void test_half_open_connection_refuses_a_new_one(void)
{
	sim_net_conf_tcp(&conf);
	conf.post_connects = true;
	rig_open(1);
	rig_must_post(false, 0, 1);
	rig_run(SIM_MS, true);
	sim_net_reset_side(nic0, nic1);
	CU_ASSERT_EQUAL(rig_post(false, 0, 100), 0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	CU_ASSERT_EQUAL(nodes[0].err, FI_ECONNREFUSED);
	/* When the target sends something, it notices that the connection is
	 * broken. */
	CU_ASSERT_EQUAL(rig_send(&nodes[1], 0, 1), 0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[1].failed, 1);
	CU_ASSERT_EQUAL(rig_post(false, 0, 100), 0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 2);
	rig_end();
}

static void test_reset_fails_operations(void)
{
	rig_tcp();
	rig_connect();
	rig_must_post(false, 0, RIG_BYTES);
	rig_must_post(false, 0, 1);
	sim_run(sim_now() + 100 * SIM_US);
	sim_net_reset(nic0, nic1);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 2);
	CU_ASSERT_EQUAL(nodes[0].err, FI_ECONNRESET);
	/* The next post makes a new connection. */
	rig_must_post(false, 0, 1);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	rig_end();
}

/* --- hosts --- */

static void test_bytes_land_only_when_the_target_polls(void)
{
	rig_tcp();
	rig_connect();
	rig_fill(nodes[0].mem, 1000, 5);
	rig_must_post(false, 0, 1000);
	rig_run(SIM_MS, false);
	CU_ASSERT_EQUAL(nodes[1].mem[10], 0);
	CU_ASSERT_EQUAL(nodes[0].done, 0);
	rig_run(SIM_MS, true);
	CU_ASSERT(!memcmp(nodes[0].mem, nodes[1].mem, 1000));
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	rig_end();
}

static void test_nic_lands_bytes_of_a_stopped_process(void)
{
	rig_verbs();
	rig_connect();
	rig_fill(nodes[0].mem, 1000, 5);
	rig_must_post(false, 0, 1000);
	rig_run(SIM_MS, false);
	CU_ASSERT(!memcmp(nodes[0].mem, nodes[1].mem, 1000));
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	rig_end();
}

static void test_peers_of_a_killed_process_get_a_reset(void)
{
	rig_tcp();
	rig_connect();
	rig_must_post(false, 0, RIG_BYTES);
	sim_run(sim_now() + 100 * SIM_US);
	sim_host_kill(nodes[1].host);
	rig_run(SIM_MS, false);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	CU_ASSERT_EQUAL(nodes[0].err, FI_ECONNRESET);
	rig_end();
}

/* Kills the process of host 1 and starts another one. Returns true if the new
 * endpoint has the address of the previous one. */
static bool rig_restart_keeps_address(uint32_t ports)
{
	char old[64], addr[64];
	size_t old_len = sizeof(old), len = sizeof(addr);
	struct node next;

	sim_net_conf_tcp(&conf);
	conf.ports = ports;
	rig_open(1);
	CU_ASSERT_EQUAL(fi_getname(&nodes[1].ep->fid, old, &old_len), 0);
	sim_host_kill(nodes[1].host);
	sim_host_restart(nodes[1].host);
	node_open(&next, 1);
	CU_ASSERT_EQUAL(fi_getname(&next.ep->fid, addr, &len), 0);
	node_close(&next);
	rig_end();
	return len == old_len && !memcmp(addr, old, len);
}

static void test_restarted_process_gets_old_ports_if_they_are_few(void)
{
	CU_ASSERT_FALSE(rig_restart_keeps_address(0));
	CU_ASSERT_TRUE(rig_restart_keeps_address(8));
}

static void test_host_without_power_is_silent(void)
{
	rig_tcp();
	rig_connect();
	rig_must_post(false, 0, 1000);
	sim_net_power(1, false);
	sim_host_kill(nodes[1].host);
	rig_run(100 * SIM_MS, false);
	CU_ASSERT_EQUAL(nodes[0].failed, 0);
	CU_ASSERT_EQUAL(nodes[0].done, 0);
	sim_net_power(1, true);
	rig_run(SIM_MS, false);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	rig_end();
}

/* --- late bytes --- */

static void test_write_lands_after_its_endpoint_was_closed(void)
{
	struct sim_net_stats stats;

	rig_tcp();
	rig_connect();
	rig_fill(nodes[0].mem, 1000, 6);
	sim_net_path_block(nic0, nic1, true);
	rig_must_post(false, 0, 1000);
	rig_run(SIM_SEC, true);
	node_close_ep(&nodes[0]);
	CU_ASSERT_EQUAL(nodes[1].mem[10], 0);
	sim_net_path_block(nic0, nic1, false);
	sim_run(sim_now() + SIM_MS);
	node_poll(&nodes[1]);
	CU_ASSERT(!memcmp(nodes[0].mem, nodes[1].mem, 1000));
	sim_net_stats_get(SIM_NO_HOST, &stats);
	CU_ASSERT_EQUAL(stats.late, 1);
	rig_end();
}

static void test_closed_target_gets_no_late_write(void)
{
	rig_tcp();
	rig_connect();
	rig_fill(nodes[0].mem, 1000, 6);
	sim_net_path_block(nic0, nic1, true);
	rig_must_post(false, 0, 1000);
	rig_run(SIM_SEC, true);
	node_close_ep(&nodes[1]);
	sim_net_path_block(nic0, nic1, false);
	rig_run(SIM_MS, false);
	CU_ASSERT_EQUAL(nodes[1].mem[10], 0);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	rig_end();
}

static void test_nic_gives_up_on_a_blocked_path(void)
{
	rig_verbs();
	rig_connect();
	rig_fill(nodes[0].mem, 1000, 6);
	sim_net_path_block(nic0, nic1, true);
	rig_must_post(false, 0, 1000);
	rig_run(conf.retry_ns - 10 * SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 0);
	rig_run(20 * SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	CU_ASSERT_EQUAL(nodes[0].err, FI_ETIMEDOUT);
	sim_net_path_block(nic0, nic1, false);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[1].mem[10], 0);
	rig_end();
}

static void test_lost_acknowledgement_leaves_the_bytes(void)
{
	rig_verbs();
	rig_connect();
	rig_fill(nodes[0].mem, 1000, 6);
	sim_net_path_block(nic1, nic0, true);
	rig_must_post(false, 0, 1000);
	rig_run(SIM_MS, true);
	CU_ASSERT(!memcmp(nodes[0].mem, nodes[1].mem, 1000));
	CU_ASSERT_EQUAL(nodes[0].done, 0);
	rig_run(conf.retry_ns, true);
	CU_ASSERT_EQUAL(nodes[0].done, 0);
	sim_net_path_block(nic1, nic0, false);
	/* The target's NIC no longer sends the acknowledgement. The initiator
	 * notices that its connection is broken when it sends something. */
	rig_must_post(false, 0, 1);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 2);
	rig_end();
}

static void test_stalled_path_never_gives_up(void)
{
	struct sim_net_path path;

	rig_verbs();
	rig_connect();
	sim_net_path_get(nic0, nic1, &path);
	path.stalled = true;
	sim_net_path_set(nic0, nic1, &path);
	rig_must_post(false, 0, 1000);
	rig_run(10 * conf.retry_ns, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 0);
	path.stalled = false;
	sim_net_path_set(nic0, nic1, &path);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	rig_end();
}

static void test_link_without_cable_holds_packets(void)
{
	rig_tcp();
	rig_connect();
	sim_net_nic_link(nic1, false);
	rig_must_post(false, 0, 1000);
	rig_run(10 * SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 0);
	sim_net_nic_link(nic1, true);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	rig_end();
}

/* --- keys --- */

static void keys_refuse(void (*open)(void), int flushed)
{
	open();
	rig_connect();
	node_close_mr(&nodes[1]);
	rig_must_post(false, 0, 8);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 1);
	CU_ASSERT_EQUAL(nodes[0].err, FI_EACCES);
	/* The refused access has broken the connection, so later operations
	 * fail too. */
	rig_must_post(true, 0, 8);
	CU_ASSERT_EQUAL(rig_send(&nodes[0], 0, 1), 0);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].failed, 3);
	CU_ASSERT_EQUAL(nodes[0].err, flushed);
	rig_end();
}

static void test_unknown_key_is_refused(void)
{
	keys_refuse(rig_tcp, FI_ECONNRESET);
	keys_refuse(rig_verbs, FI_EIO);
}

/* Closes the target's registration while a write to it is in progress. Returns
 * true if the last byte of the write lands nevertheless. */
static bool keys_closed_meanwhile(void (*open)(void))
{
	bool landed;

	open();
	rig_connect();
	rig_fill(nodes[0].mem, RIG_BYTES, 7);
	rig_must_post(false, 0, RIG_BYTES);
	while (!nodes[1].mem[RIG_BYTES / 2])
		rig_run(20 * SIM_US, true);
	CU_ASSERT_EQUAL(nodes[1].mem[RIG_BYTES - 1], 0);
	node_close_mr(&nodes[1]);
	rig_run(20 * SIM_MS, true);
	landed = nodes[1].mem[RIG_BYTES - 1];
	CU_ASSERT_EQUAL(nodes[0].done, landed);
	CU_ASSERT_EQUAL(nodes[0].failed, !landed);
	rig_end();
	return landed;
}

static void test_tcp_checks_the_key_once(void)
{
	CU_ASSERT(keys_closed_meanwhile(rig_tcp));
}

static void test_verbs_checks_the_key_of_each_packet(void)
{
	CU_ASSERT(!keys_closed_meanwhile(rig_verbs));
}

/* --- faults of completions and posts --- */

static void test_posts_are_refused_for_a_time(void)
{
	struct sim_net_fault fault = { .again_ppm = 1000000 };

	rig_tcp();
	rig_connect();
	fault.again_ns = sim_now() + SIM_MS;
	sim_net_fault_set(nic0, &fault);
	CU_ASSERT_EQUAL(rig_post(false, 0, 1), -FI_EAGAIN);
	rig_run(2 * SIM_MS, true);
	CU_ASSERT_EQUAL(rig_post(false, 0, 1), 0);
	rig_end();
}

static void test_queue_of_operations_is_limited(void)
{
	unsigned int i;

	sim_net_conf_tcp(&conf);
	conf.tx_size = 4;
	rig_open(1);
	rig_connect();
	for (i = 0; i < 4; i++)
		CU_ASSERT_EQUAL(rig_post(false, 0, 1), 0);
	CU_ASSERT_EQUAL(rig_post(false, 0, 1), -FI_EAGAIN);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(rig_post(false, 0, 1), 0);
	rig_end();
}

static void test_completions_are_late_lost_or_errors(void)
{
	struct sim_net_fault fault = { .late_ns = 50 * SIM_MS,
				       .late_ppm = 1000000 };

	rig_tcp();
	rig_connect();
	sim_net_fault_set(nic0, &fault);
	rig_must_post(false, 0, 1);
	rig_run(40 * SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 0);
	rig_run(20 * SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 1);
	fault = (struct sim_net_fault){ .lose = 1 };
	sim_net_fault_set(nic0, &fault);
	rig_must_post(false, 0, 1);
	rig_must_post(false, 0, 1);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 2);
	fault = (struct sim_net_fault){ .flush = 1 };
	sim_net_fault_set(nic0, &fault);
	rig_must_post(false, 0, 1);
	rig_must_post(false, 0, 1);
	rig_run(SIM_MS, true);
	CU_ASSERT_EQUAL(nodes[0].done, 2);
	CU_ASSERT_EQUAL(nodes[0].failed, 2);
	rig_end();
}

/* --- rates, repetition --- */

static void test_bandwidth_and_latency_hold(void)
{
	uint64_t start, ns;

	sim_net_conf_verbs(&conf);
	conf.bandwidth = 1000000000;
	rig_open(1);
	rig_connect();
	start = sim_now();
	rig_must_post(false, 0, 1000000);
	while (!nodes[0].done)
		rig_run(SIM_US, true);
	ns = sim_now() - start;
	/* expected: 1 ms for the bytes, plus 245 headers of 64 bytes each and
	 * some latencies */
	CU_ASSERT(ns > 1000 * SIM_US && ns < 1100 * SIM_US);
	rig_end();
}

static uint64_t trace_of(uint64_t seed, bool verbs)
{
	struct sim_net_path path;
	uint64_t hash;
	unsigned int i;

	if (verbs)
		sim_net_conf_verbs(&conf);
	else
		sim_net_conf_tcp(&conf);
	conf.jitter_ns = 50 * SIM_US;
	rig_open(seed);
	rig_connect();
	sim_net_path_get(nic0, nic1, &path);
	path.loss_ppm = 10000;
	sim_net_path_set(nic0, nic1, &path);
	for (i = 0; i < 50; i++)
		rig_must_post(i % 3 == 0, i * 10000, 9999);
	rig_run(SIM_SEC, true);
	CU_ASSERT_EQUAL(nodes[0].done, 50);
	hash = sim_trace_hash();
	rig_end();
	return hash;
}

static void test_same_seed_gives_same_trace(void)
{
	CU_ASSERT_EQUAL(trace_of(3, false), trace_of(3, false));
	CU_ASSERT_NOT_EQUAL(trace_of(3, false), trace_of(4, false));
	CU_ASSERT_EQUAL(trace_of(3, true), trace_of(3, true));
	CU_ASSERT_NOT_EQUAL(trace_of(3, true), trace_of(4, true));
}

static void test_descriptor_reports_completions(void)
{
	struct fid *fid;
	int fd = -1;

	rig_tcp();
	rig_connect();
	fid = &nodes[0].cq->fid;
	CU_ASSERT_EQUAL(fi_control(fid, FI_GETWAIT, &fd), 0);
	CU_ASSERT(!sim_net_fd_ready(fd));
	CU_ASSERT_EQUAL(fi_trywait(nodes[0].fabric, &fid, 1), 0);
	rig_must_post(false, 0, 1);
	sim_run(sim_now() + SIM_MS);
	node_poll(&nodes[1]);
	sim_run(sim_now() + SIM_MS);
	CU_ASSERT(sim_net_fd_ready(fd));
	CU_ASSERT_EQUAL(fi_trywait(nodes[0].fabric, &fid, 1), -FI_EAGAIN);
	node_poll(&nodes[0]);
	CU_ASSERT(!sim_net_fd_ready(fd));
	rig_end();
}

const struct tei_test_case sim_fabric_cases[] = {
	{ "bytes_move_over_tcp", test_bytes_move_over_tcp },
	{ "bytes_move_over_verbs", test_bytes_move_over_verbs },
	{ "messages_wait_for_receives", test_messages_wait_for_receives },
	{ "message_longer_than_receive_is_truncated",
	  test_message_longer_than_receive_is_truncated },
	{ "messages_beyond_the_limit_stall_the_connection",
	  test_messages_beyond_the_limit_stall_the_connection },
	{ "first_post_connects", test_first_post_connects },
	{ "crossing_attempts_share_a_connection",
	  test_crossing_attempts_share_a_connection },
	{ "posts_are_queued_while_connecting",
	  test_posts_are_queued_while_connecting },
	{ "attempt_without_answer_fails", test_attempt_without_answer_fails },
	{ "attempt_to_a_closed_endpoint_is_refused",
	  test_attempt_to_a_closed_endpoint_is_refused },
	{ "half_open_connection_refuses_a_new_one",
	  test_half_open_connection_refuses_a_new_one },
	{ "reset_fails_operations", test_reset_fails_operations },
	{ "bytes_land_only_when_the_target_polls",
	  test_bytes_land_only_when_the_target_polls },
	{ "nic_lands_bytes_of_a_stopped_process",
	  test_nic_lands_bytes_of_a_stopped_process },
	{ "peers_of_a_killed_process_get_a_reset",
	  test_peers_of_a_killed_process_get_a_reset },
	{ "restarted_process_gets_old_ports_if_they_are_few",
	  test_restarted_process_gets_old_ports_if_they_are_few },
	{ "host_without_power_is_silent", test_host_without_power_is_silent },
	{ "write_lands_after_its_endpoint_was_closed",
	  test_write_lands_after_its_endpoint_was_closed },
	{ "closed_target_gets_no_late_write",
	  test_closed_target_gets_no_late_write },
	{ "nic_gives_up_on_a_blocked_path",
	  test_nic_gives_up_on_a_blocked_path },
	{ "lost_acknowledgement_leaves_the_bytes",
	  test_lost_acknowledgement_leaves_the_bytes },
	{ "stalled_path_never_gives_up", test_stalled_path_never_gives_up },
	{ "link_without_cable_holds_packets",
	  test_link_without_cable_holds_packets },
	{ "unknown_key_is_refused", test_unknown_key_is_refused },
	{ "tcp_checks_the_key_once", test_tcp_checks_the_key_once },
	{ "verbs_checks_the_key_of_each_packet",
	  test_verbs_checks_the_key_of_each_packet },
	{ "posts_are_refused_for_a_time", test_posts_are_refused_for_a_time },
	{ "queue_of_operations_is_limited",
	  test_queue_of_operations_is_limited },
	{ "completions_are_late_lost_or_errors",
	  test_completions_are_late_lost_or_errors },
	{ "bandwidth_and_latency_hold", test_bandwidth_and_latency_hold },
	{ "same_seed_gives_same_trace", test_same_seed_gives_same_trace },
	{ "descriptor_reports_completions",
	  test_descriptor_reports_completions },
	{ NULL, NULL },
};
