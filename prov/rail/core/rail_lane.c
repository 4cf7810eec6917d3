/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes: one RDM endpoint each, with its own completion queue, address vector
 * and event queue. Each opening starts a new generation. rail_closing.c closes
 * lanes.
 */

#include <errno.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

void rail_lane_init(struct rail_lane *lane, struct rail *rail, bool target,
		    uint16_t index)
{
	lane->rail = rail;
	lane->is_rx = target;
	lane->index = index;
	lane->wait_fd = -1;
	tei_mutex_init(&lane->lock);
	tei_list_init(&lane->posted);
	tei_list_init(&lane->recv.deferred);
}

struct fid_fabric *rail_lane_fabric(const struct rail_lane *lane)
{
	if (lane->fids.fabric)
		return lane->fids.fabric;
	return lane->first ? lane->rail->fab.contact_fabric
			   : lane->rail->fab.fabric;
}

static struct fid_domain *lane_domain(const struct rail_lane *lane)
{
	if (lane->fids.domain)
		return lane->fids.domain;
	if (lane->first)
		return lane->rail->fab.contact_domain;
	return lane->is_rx ? lane->rail->fab.rx_domain
			   : lane->rail->fab.tx_domain;
}

/*
 * Returns true if the lane gets a domain of its own.
 *
 * xnet (provider tcp of libfabric 2.x, net of 1.17) progresses all sockets of a
 * domain at once, and the wait object of each queue contains all sockets of the
 * domain. Code that cuts the sockets of one lane would therefore cut every lane
 * of the domain. If posts need no registered memory, each lane can have its own
 * domain.
 *
 * A thread that reads an event queue also touches all domains of the same
 * fabric, even one that another thread is opening or closing. So each domain
 * that belongs to one lane has its own fabric, and the contact lane has one
 * too.
 */
static bool lane_has_domain(const struct rail_lane *lane)
{
	const struct rail *rail = lane->rail;

	return !lane->is_rx && rail->fab.tx_domain != rail->fab.rx_domain &&
	       !(rail->fab.mr_mode & (FI_MR_LOCAL | FI_MR_RAW));
}

/* Opens a domain in a fabric of its own. *fabric may already be open, from a
 * failed attempt. */
static int lane_open_own(const struct rail *rail, struct fid_fabric **fabric,
			 struct fid_domain **domain)
{
	int ret =
		*fabric ? 0
			: fi_fabric(rail->fab.info->fabric_attr, fabric, NULL);

	return ret ? ret : fi_domain(*fabric, rail->fab.info, domain, NULL);
}

static int lane_open_domain(struct rail_lane *lane)
{
	struct rail *rail = lane->rail;

	if (lane_has_domain(lane))
		return lane_open_own(rail, &lane->fids.fabric,
				     &lane->fids.domain);
	if (!lane->first || rail->fab.contact_domain)
		return 0;
	return lane_open_own(rail, &rail->fab.contact_fabric,
			     &rail->fab.contact_domain);
}

/*
 * Opens a wait set for the completion queue of provider net, as xnet was called
 * in libfabric 1.16 and 1.17. In net, fi_trywait does nothing, so the
 * descriptor of a queue stays readable forever after its first completion.
 * fi_wait clears the descriptor of a wait set.
 */
static int lane_open_wait(struct rail_lane *lane, struct fi_cq_attr *cq)
{
	struct fi_wait_attr attr = { .wait_obj = FI_WAIT_FD };
	int ret;

	if (strcmp(lane->rail->fab.info->fabric_attr->prov_name, "net"))
		return 0;
	ret = fi_wait_open(rail_lane_fabric(lane), &attr, &lane->fids.wait);
	if (ret)
		return ret;
	cq->wait_obj = FI_WAIT_SET;
	cq->wait_set = lane->fids.wait;
	return 0;
}

bool rail_lane_sleep_ready(struct rail_lane *lane)
{
	struct fid *fid = &lane->cq->fid;

	if (!lane->fids.wait)
		return !fi_trywait(rail_lane_fabric(lane), &fid, 1);
	errno = 0;	/* see lane_read_cq */
	return fi_wait(lane->fids.wait, 0) == -FI_ETIMEDOUT;
}

static int lane_open_cq(struct rail_lane *lane)
{
	struct fi_cq_attr attr = {
		.size = lane->rail->dp->settings->lanes.cq_size,
		.format = FI_CQ_FORMAT_MSG,
		.wait_obj = FI_WAIT_FD,
	};
	int ret, fd;

	lane->wait_fd = -1;
	ret = lane_open_wait(lane, &attr);
	if (ret)
		return ret;
	ret = fi_cq_open(lane_domain(lane), &attr, &lane->cq, NULL);
	if (!ret) {
		if (!fi_control(lane->fids.wait ? &lane->fids.wait->fid
						: &lane->cq->fid,
				FI_GETWAIT, &fd))
			lane->wait_fd = fd;
		return 0;
	}
	attr.wait_obj = FI_WAIT_NONE;
	return fi_cq_open(lane_domain(lane), &attr, &lane->cq, NULL);
}

static int lane_open_queues(struct rail_lane *lane)
{
	struct fi_av_attr av_attr = {
		.type = lane->rail->fab.info->domain_attr->av_type,
		.count = 64,
	};
	struct fi_eq_attr eq_attr = { .wait_obj = FI_WAIT_NONE, .size = 64 };
	int ret;

	ret = lane_open_cq(lane);
	if (ret)
		return ret;
	ret = fi_av_open(lane_domain(lane), &av_attr, &lane->av, NULL);
	if (ret)
		return ret;
	/* some providers have no event queues for RDM endpoints */
	if (fi_eq_open(rail_lane_fabric(lane), &eq_attr, &lane->fids.eq, NULL))
		lane->fids.eq = NULL;
	return 0;
}

/*
 * Opens a counter of the peers' reads and writes, if the rx lane has no
 * descriptor to sleep on. A change of the counter shows that peers are active;
 * without the counter, the progress thread polls the lane less and less often.
 */
static void lane_open_cntr(struct rail_lane *lane)
{
	struct fi_cntr_attr attr = {
		.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE,
	};

	int ret;

	if (!lane->is_rx || lane->wait_fd >= 0)
		return;
	ret = fi_cntr_open(lane_domain(lane), &attr, &lane->fids.cntr, NULL);
	if (!ret)
		ret = fi_ep_bind(lane->ep, &lane->fids.cntr->fid,
				 FI_REMOTE_WRITE | FI_REMOTE_READ);
	lane->fids.cntr_seen = 0;
	if (!ret)
		return;
	TEI_DEBUG_LOG("rail", "%s: no counter of remote operations: %s",
		      lane->rail->name, fi_strerror(-ret));
	if (lane->fids.cntr)
		fi_close(&lane->fids.cntr->fid);
	lane->fids.cntr = NULL;
}

static int lane_bind(struct rail_lane *lane)
{
	int ret;

	ret = fi_ep_bind(lane->ep, &lane->av->fid, 0);
	if (ret)
		return ret;
	ret = fi_ep_bind(lane->ep, &lane->cq->fid, FI_TRANSMIT | FI_RECV);
	if (ret)
		return ret;
	if (lane->fids.eq && fi_ep_bind(lane->ep, &lane->fids.eq->fid, 0)) {
		fi_close(&lane->fids.eq->fid);
		lane->fids.eq = NULL;
	}
	return 0;
}

static int lane_post_rx(struct rail_lane *lane, struct rail_rx *rx)
{
	return (int)fi_recv(lane->ep, rx->buf, RAIL_MSG_MAX,
			    lane->recv.mr ? fi_mr_desc(lane->recv.mr) : NULL,
			    FI_ADDR_UNSPEC, &rx->op.ctx);
}

static void lane_rx_idle(struct rail_lane *lane, struct rail_rx *rx)
{
	rx->next = lane->recv.idle;
	lane->recv.idle = rx;
}

static void lane_rx_complete(struct rail_lane *lane,
			     const struct fi_cq_msg_entry *entry, int n,
			     struct rail_done *done)
{
	struct rail_rx *rx;
	int i;

	for (i = 0; i < n; i++) {
		rx = tei_container_of(entry[i].op_context, struct rail_rx, op);
		lane_rx_idle(lane, rx);
		lane->ops->received(lane, rx->buf, entry[i].len, done);
	}
}

static void lane_rx_fail(struct rail_lane *lane,
			 const struct fi_cq_err_entry *err, const char *text,
			 struct rail_done *done)
{
	(void)text, (void)done;
	lane_rx_idle(lane,
		     tei_container_of(err->op_context, struct rail_rx, op));
}

static const struct rail_op_handler lane_rx_handler = {
	.complete = lane_rx_complete,
	.fail = lane_rx_fail,
};

void rail_lane_repost(struct rail_lane *lane)
{
	while (lane->recv.idle && lane->ep && !lane_post_rx(lane, lane->recv.idle))
		lane->recv.idle = lane->recv.idle->next;
}

bool rail_lane_receives(const struct rail_lane *lane)
{
	const struct rail *rail = lane->rail;

	return lane->is_rx || (rail->caps.back && !lane->index &&
			       lane != &rail->probe.opening.lane);
}

static int lane_open_rx(struct rail_lane *lane)
{
	size_t size = RAIL_RX_SIZE;
	int i, ret;

	if (!lane->recv.mem) {
		lane->recv.mem = rail_numa_alloc(lane->rail, size);
		lane->recv.bufs =
			calloc(RAIL_RX_DEPTH, sizeof(*lane->recv.bufs));
		if (!lane->recv.mem || !lane->recv.bufs) {
			rail_numa_free(lane->recv.mem, size);
			free(lane->recv.bufs);
			lane->recv.mem = NULL;
			lane->recv.bufs = NULL;
			return -FI_ENOMEM;
		}
	}
	if ((lane->rail->fab.mr_mode & FI_MR_LOCAL) && !lane->recv.mr) {
		ret = rail_reg_own(lane->rail, lane_domain(lane),
				   lane->recv.mem, size, FI_RECV,
				   &lane->recv.mr);
		if (ret)
			return ret;
	}
	lane->recv.idle = NULL;
	for (i = 0; i < RAIL_RX_DEPTH; i++) {
		lane->recv.bufs[i].op.handler = &lane_rx_handler;
		lane->recv.bufs[i].buf =
			(uint8_t *)lane->recv.mem + (size_t)i * RAIL_MSG_MAX;
		ret = lane_post_rx(lane, &lane->recv.bufs[i]);
		if (ret && !(ret == -FI_EAGAIN && i))
			return ret;
		if (ret)
			lane_rx_idle(lane, &lane->recv.bufs[i]);
	}
	return 0;
}

static int lane_read_addr(struct rail_lane *lane)
{
	size_t len = sizeof(lane->addr.bytes);
	int ret;

	memset(&lane->addr, 0, sizeof(lane->addr));
	ret = fi_getname(&lane->ep->fid, lane->addr.bytes, &len);
	if (ret)
		return ret;
	lane->addr.len = (uint32_t)len;
	lane->addr.protocol = lane->rail->fab.info->ep_attr->protocol;
	lane->addr.protocol_version =
		lane->rail->fab.info->ep_attr->protocol_version;
	lane->addr.addr_format = lane->rail->fab.info->addr_format;
	return 0;
}

/* Sets the source address of info to the rail's contact address. Returns info,
 * or frees it and returns NULL. */
static struct fi_info *lane_info_first(const struct rail_lane *lane,
				       struct fi_info *info)
{
	const struct tei_rail_addr *own = &lane->rail->nic.own;

	free(info->src_addr);
	info->src_addrlen = 0;
	info->src_addr = malloc(own->len);
	if (!info->src_addr) {
		fi_freeinfo(info);
		return NULL;
	}
	memcpy(info->src_addr, own->bytes, own->len);
	info->src_addrlen = own->len;
	return info;
}

/* Returns true if the creator of the data plane has chosen the port. */
static bool lane_port_given(const struct rail_lane *lane)
{
	return lane->rail->dp->conf.port && lane->is_rx && !lane->gen;
}

/* Returns the rail's info, with the port that was chosen for the lane. */
static struct fi_info *lane_info(const struct rail_lane *lane)
{
	struct fi_info *info = fi_dupinfo(lane->rail->fab.info);
	struct sockaddr_in *sa = info ? info->src_addr : NULL;

	if (info && lane->first)
		return lane_info_first(lane, info);
	/* the port is at the same place in a sockaddr_in6 */
	if (sa && lane_port_given(lane) &&
	    (info->addr_format == FI_SOCKADDR ||
	     info->addr_format == FI_SOCKADDR_IN ||
	     info->addr_format == FI_SOCKADDR_IN6) &&
	    (sa->sin_family == AF_INET || sa->sin_family == AF_INET6))
		sa->sin_port = htons(lane->rail->dp->conf.port);
	return info;
}

static int lane_endpoint(struct rail_lane *lane)
{
	bool ranged =
		!lane->first && rail_ports_apply(lane, lane->rail->fab.info);
	struct fi_info *info;
	int ret = 0;

	if (!lane->rail->dp->conf.port && !lane->first && !ranged)
		return fi_endpoint(lane_domain(lane), lane->rail->fab.info,
				   &lane->ep, NULL);
	info = lane_info(lane);
	if (!info)
		return -FI_ENOMEM;
	if (ranged && !lane_port_given(lane))
		ret = rail_ports_set(lane, info);
	if (!ret)
		ret = fi_endpoint(lane_domain(lane), info, &lane->ep, NULL);
	fi_freeinfo(info);
	return ret;
}

/* Opens everything that belongs to the lane. *what names the step that
 * failed. */
static int lane_open_ep(struct rail_lane *lane, const char **what)
{
	int ret;

	*what = "fi_domain";
	ret = lane_open_domain(lane);
	if (ret)
		return ret;
	*what = "queues";
	ret = lane_open_queues(lane);
	if (ret)
		return ret;
	*what = "fi_endpoint";
	ret = lane_endpoint(lane);
	if (ret)
		return ret;
	*what = "fi_ep_bind";
	ret = lane_bind(lane);
	if (ret)
		return ret;
	lane_open_cntr(lane);
	*what = "fi_enable";
	ret = fi_enable(lane->ep);
	if (ret)
		return ret;
	*what = "fi_getname";
	ret = lane_read_addr(lane);
	if (ret || !rail_lane_receives(lane))
		return ret;
	*what = "fi_recv";
	return lane_open_rx(lane);
}

/* Updates the estimate of the time that opening a lane takes: the longest
 * recent time, which decays. */
static void lane_opened(struct tei_rail_dp *dp, uint64_t took)
{
	uint64_t old = __atomic_load_n(&dp->health.open_ns, __ATOMIC_RELAXED);

	old -= old / 4;
	__atomic_store_n(&dp->health.open_ns, took > old ? took : old,
			 __ATOMIC_RELAXED);
}

static const char *lane_kind(const struct rail_lane *lane)
{
	if (lane->first)
		return "contact";
	return lane->is_rx ? "rx" : "tx";
}

/* Fills err without logging. The caller logs the error. */
static int lane_keep(struct tei_err *err, int code, const char *subsys,
		     const char *hint, const char *fmt, ...)
{
	va_list ap;

	(void)subsys, (void)hint;
	memset(err, 0, sizeof(*err));
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

int rail_lane_open(struct rail_lane *lane, struct tei_err *err)
{
	rail_err_fn report =
		lane->first ? lane_keep : rail_open_err_fn(lane->rail);
	uint64_t from = tei_now_ns();
	char hint[TEI_ERR_TEXT];
	const char *what = "";
	struct tei_list none;
	uint32_t tries = 0;
	int ret;

	for (;;) {
		ret = lane_open_ep(lane, &what);
		if (!ret)
			break;
		tei_list_init(&none);
		rail_lane_close(lane, &none);
		if (!rail_ports_again(lane, ret, tries++))
			break;
	}
	if (ret) {
		rail_limits_memory(ret, hint, sizeof(hint));
		rail_ports_hint(lane, ret, hint, sizeof(hint));
		return report(err, TEI_ERR_CONTEXT, "rail", *hint ? hint : NULL,
			      "%s: %s lane: %s: %s", lane->rail->name,
			      lane_kind(lane), what, fi_strerror(-ret));
	}
	rail_cloexec_opened(lane);
	__atomic_store_n(&lane->gen, lane->gen + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&lane->state, RAIL_LANE_ACTIVE, __ATOMIC_RELEASE);
	lane_opened(lane->rail->dp, tei_now_ns() - from);
	return 0;
}

bool rail_lane_active(const struct rail_lane *lane)
{
	return __atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
	       RAIL_LANE_ACTIVE;
}

void rail_lane_drain_eq(struct rail_lane *lane)
{
	struct fi_eq_err_entry e;
	uint8_t buf[256];
	uint32_t event;
	ssize_t ret;
	int i;

	for (i = 0; lane->fids.eq && i < 16; i++) {
		ret = fi_eq_read(lane->fids.eq, &event, buf, sizeof(buf), 0);
		if (ret == -FI_EAVAIL) {
			memset(&e, 0, sizeof(e));
			ret = fi_eq_readerr(lane->fids.eq, &e, 0);
			if (ret > 0)
				TEI_LOG_LIMITED(
					&lane->rail->errors.limit, TEI_LOG_WARN,
					"rail", "%s: event queue: %s",
					lane->rail->name, fi_strerror(e.err));
		}
		if (ret < 0)
			return;
	}
}

/* --- completions --------------------------------------------------------- */

/* Removes a completed slice from the lane's list and counters. */
static void lane_unpost(struct rail_lane *lane, struct rail_slice *slice)
{
	tei_list_del(&slice->link);
	/* if the lane is retired, the connection already belongs to its sibling
	 * lane */
	if (lane->state == RAIL_LANE_ACTIVE) {
		slice->conn->posted--;
		slice->conn->blocked_ns = 0;
	}
	rail_conn_moved(slice->conn);
	__atomic_store_n(&lane->inflight, lane->inflight - 1, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->inflight_bytes,
			 lane->inflight_bytes - slice->len, __ATOMIC_RELAXED);
}

static void lane_count_ok(struct rail_lane *lane, const struct rail_slice *slice)
{
	uint64_t *bytes =
		slice->read ? &lane->done.rx_bytes : &lane->done.tx_bytes;

	__atomic_store_n(bytes, *bytes + slice->len, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->done.slices, lane->done.slices + 1,
			 __ATOMIC_RELAXED);
}

static void lane_recv_done(struct rail_lane *lane, struct rail_rx *rx,
			   size_t len, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	lane_rx_idle(lane, rx);
	rail_msg_received(lane, rx->buf, len, done);
}

/* Posts the idle receive buffers again, as far as the provider accepts them. */
static void lane_repost(struct rail_lane *lane)
{
	while (lane->recv.idle && lane->ep &&
	       !lane_post_rx(lane, lane->recv.idle))
		lane->recv.idle = lane->recv.idle->next;
}

/* Records, after an operation on the connection has completed, whether the
 * connection is established. Does nothing if the lane is retired, because the
 * connection then belongs to the sibling lane. */
static void lane_conn_is(const struct rail_lane *lane, struct rail_conn *conn,
			 bool connected)
{
	if (lane->state != RAIL_LANE_ACTIVE || !conn->ready ||
	    conn->lane_gen != lane->gen)
		return;
	if (connected && !conn->connected) {
		__atomic_store_n(
			&conn->peer->fence.renew[lane->rail->index].linked,
			true, __ATOMIC_RELAXED);
		__atomic_store_n(&conn->failed_attempts, 0, __ATOMIC_RELAXED);
	}
	conn->connected = connected;
}

/* Returns true if the error means that the connection has ended. */
static bool lane_err_ends(int err)
{
	switch (err) {
	case FI_EACCES:
	case FI_EINVAL:
	case FI_EMSGSIZE:
	case FI_ENOKEY:
	case FI_ENOMEM:
	case FI_EPERM:
	case FI_ETRUNC:
	case FI_EKEYREJECTED:
		return false;
	default:
		return true;
	}
}

/* Returns true if the error means that this connection (path) of the lane has
 * ended. */
static bool lane_conn_fail(const struct rail_lane *lane,
			   const struct rail_conn *conn, int err)
{
	return lane_err_ends(err) && lane->state == RAIL_LANE_ACTIVE &&
	       conn->ready && conn->lane_gen == lane->gen;
}

/*
 * Drops the connection's place in the endpoint cache, and keeps the lane polled
 * for LANE_SETTLE_NS.
 *
 * ofi_rxm notices in two steps that a connection has ended. The second step
 * happens in a poll of the empty queue, some milliseconds after the first step.
 * Between the two steps, ofi_rxm accepts posts to the peer, and all of them
 * fail. Without polls of the lane, this state would last as long as messages
 * are sent only from time to time.
 */
static void lane_drop(struct rail_lane *lane, struct rail_conn *conn)
	TEI_REQUIRES(lane->lock) TEI_REQUIRES(rail_sched_held)
{
	rail_cache_drop(conn);
	__atomic_store_n(&lane->settle_ns, tei_now_ns() + LANE_SETTLE_NS,
			 __ATOMIC_RELAXED);
}

/* Handles the completion of a message, with error err or 0, and frees its
 * buffer. */
static void lane_tx_done(struct rail_lane *lane, struct rail_op *op, int err)
	TEI_REQUIRES(lane->lock)
{
	struct rail_tx *tx = tei_container_of(op, struct rail_tx, op);

	rail_sched_enter(lane->rail->dp);
	if (tx->conn && lane->is_rx) {
		if (err)
			rail_reverse_fail(tx->conn->peer, lane->rail);
	} else if (tx->conn) {
		lane_conn_is(lane, tx->conn, !err);
		if (err && lane_conn_fail(lane, tx->conn, err))
			lane_drop(lane, tx->conn);
	}
	rail_msg_tx_put(tx);
	rail_sched_leave(lane->rail->dp);
}

static void lane_handle_ok(struct rail_lane *lane,
			   const struct fi_cq_msg_entry *e, int n,
			   struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	struct rail_slice *slices[RAIL_CQ_BATCH];
	struct rail_op *op;
	uint64_t bytes = 0, now;
	int i, ns = 0;

	for (i = 0; i < n; i++) {
		op = e[i].op_context;
		if (!op)
			continue;
		switch (op->kind) {
		case RAIL_OP_SLICE:
			slices[ns] = tei_container_of(op, struct rail_slice, op);
			lane_unpost(lane, slices[ns]);
			lane_conn_is(lane, slices[ns]->conn, true);
			lane_count_ok(lane, slices[ns]);
			bytes += slices[ns++]->len;
			break;
		case RAIL_OP_SEND:
			lane_tx_done(lane, op, 0);
			break;
		case RAIL_OP_RECV:
			lane_recv_done(lane,
				       tei_container_of(op, struct rail_rx, op),
				       e[i].len, done);
			break;
		}
	}
	if (!ns)
		return;
	now = tei_now_ns();
	for (i = 0; i < ns && lane->rate.alone; i++)
		if (slices[i] == lane->rate.alone)
			rail_window_alone(lane, now);
	rail_window_measure(lane, bytes, now);
	rail_sched_enter(dp);
	for (i = 0; i < ns; i++)
		rail_slice_complete(dp, slices[i], now, done);
	rail_sched_leave(dp);
}

/*
 * Counts and logs an error completion. what: the operation, such as "write to".
 * peer: the peer of the operation, or NULL. text: the provider's description. A
 * lost connection to a peer is logged for all rails together (rail_loss.c).
 */
static void lane_log_error(struct rail_lane *lane,
			   const struct fi_cq_err_entry *e, const char *what,
			   struct tei_rail_peer *peer, const char *text)
{
	struct rail *rail = lane->rail;
	char prov[128] = "";
	enum tei_log_level level = TEI_LOG_WARN;

	__atomic_fetch_add(&rail->errors.errors, 1, __ATOMIC_RELAXED);
	if (peer && lane_err_ends(e->err)) {
		level = TEI_LOG_INFO;
		rail_sched_enter(rail->dp);
		rail_loss_add(peer, rail, e->err, e->prov_errno, text);
		rail_sched_leave(rail->dp);
	}
	if (!tei_log_enabled(level))
		return;
	if (*text)
		snprintf(prov, sizeof(prov), " (provider: %d, %s)",
			 e->prov_errno, text);
	tei_log_repeated(peer ? &peer->log.err_repeat : &rail->errors.repeat,
			 level, "rail", "%s (%s): %s%s%s: %s%s", rail->name,
			 rail->nic.provider, what, peer ? " " : "",
			 peer ? peer->name : "", fi_strerror(e->err), prov);
}

static void lane_slice_error(struct rail_lane *lane, struct rail_slice *slice,
			     const struct fi_cq_err_entry *e, const char *text,
			     struct rail_done *done) TEI_REQUIRES(lane->lock)
{
	struct tei_rail_dp *dp = lane->rail->dp;

	lane_unpost(lane, slice);
	lane_conn_is(lane, slice->conn, false);
	rail_sched_enter(dp);
	if (lane_conn_fail(lane, slice->conn, e->err))
		lane_drop(lane, slice->conn);
	slice->prov_err = e->prov_errno;
	rail_peer_remember_failure(slice->peer, lane->rail, e->err,
				   e->prov_errno, text);
	rail_health_error(slice, e->err);
	rail_slice_handle_error(dp, slice, e->err, done);
	rail_sched_leave(dp);
}

static void lane_handle_error(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct fi_cq_err_entry e;
	struct rail_slice *slice;
	struct rail_tx *tx;
	struct rail_op *op;
	const char *text;
	char buf[96];

	memset(&e, 0, sizeof(e));
	if (fi_cq_readerr(lane->cq, &e, 0) != 1)
		return;
	text = fi_cq_strerror(lane->cq, e.prov_errno, e.err_data, buf,
			      sizeof(buf));
	text = rail_prov_text(e.err, &e.prov_errno, text);
	op = e.op_context;
	if (!op) {
		lane_log_error(lane, &e, "completion queue", NULL, text);
		return;
	}
	switch (op->kind) {
	case RAIL_OP_SLICE:
		slice = tei_container_of(op, struct rail_slice, op);
		lane_log_error(lane, &e, slice->read ? "read from" : "write to",
			       slice->peer, text);
		lane_slice_error(lane, slice, &e, text, done);
		break;
	case RAIL_OP_SEND:
		tx = tei_container_of(op, struct rail_tx, op);
		lane_log_error(lane, &e, "message to",
			       tx->conn ? tx->conn->peer : NULL, text);
		lane_tx_done(lane, op, e.err);
		break;
	case RAIL_OP_RECV:
		lane_rx_idle(lane, tei_container_of(op, struct rail_rx, op));
		break;
	}
}

/* Reads and handles one batch of completions. Returns true if a completion was
 * read. */
static bool lane_read_cq(struct rail_lane *lane, struct rail_done *done)
	TEI_REQUIRES(lane->lock)
{
	struct fi_cq_msg_entry e[RAIL_CQ_BATCH];
	ssize_t n;

	/*
	 * Provider tcp of libfabric 1.17 reads errno even if recv has returned
	 * 0. If errno were EAGAIN from some earlier call, the provider would
	 * keep a connection that ended before it was established, and poll it
	 * forever.
	 */
	errno = 0;
	n = fi_cq_read(lane->cq, e, RAIL_CQ_BATCH);
	if (n > 0) {
		lane_handle_ok(lane, e, (int)n, done);
		return true;
	}
	if (n == -FI_EAVAIL) {
		lane_handle_error(lane, done);
		return true;
	}
	return false;
}

/* Returns true if the counter shows that peers have read or written since the
 * last call. */
static bool lane_count_changed(struct rail_lane *lane)
{
	uint64_t now;

	if (!lane->fids.cntr)
		return false;
	now = fi_cntr_read(lane->fids.cntr);
	if (now == lane->fids.cntr_seen)
		return false;
	lane->fids.cntr_seen = now;
	return true;
}

bool rail_lane_poll(struct rail_lane *lane, struct rail_done *done)
{
	bool any;

	if (!lane->ep)
		return false;
	if (!lane->recv.visited)
		rail_msg_defer(lane, done);
	/* the receive buffers that the previous poll used are free by now */
	lane_repost(lane);
	any = lane_read_cq(lane, done);
	if (lane->is_rx) {
		any |= lane_count_changed(lane);
	} else if (lane->state == RAIL_LANE_ACTIVE) {
		rail_cache_close(lane);
		any |= rail_sched_pull(lane, 0, done);
	}
	if (lane->settle_ns && tei_now_ns() > lane->settle_ns)
		__atomic_store_n(&lane->settle_ns, 0, __ATOMIC_RELAXED);
	return any;
}

/* Polls the lane once. If there are new slices, posts them first, because
 * polling an empty queue costs as much as a post. */
static bool lane_turn(struct rail_lane *lane, bool work, uint64_t now,
		      struct rail_done *done) TEI_REQUIRES(lane->lock)
{
	if (work && lane->state == RAIL_LANE_ACTIVE &&
	    rail_sched_pull(lane, now, done) &&
	    !__atomic_load_n(&lane->rail->dp->tasks.nactive, __ATOMIC_RELAXED))
		return true;
	return rail_lane_poll(lane, done);
}

/* Polls the lane, and polls again as long as other threads have made a poll
 * request (lane->kick). work: there are new slices. now: as in
 * rail_sched_pull. */
static bool lane_run(struct rail_lane *lane, bool work, uint64_t now)
{
	struct tei_rail_dp *dp = lane->rail->dp;
	struct rail_done done;
	bool any = false;

	rail_done_init(&done);
	do {
		if (!tei_mutex_trylock(&lane->lock)) {
			/*
			 * The thread that holds the lock polls the lane for the
			 * calling thread. If there are more callers than CPUs,
			 * the other thread, or the peer's process, may be
			 * waiting for the CPU of the calling thread.
			 */
			if (!work) {
				sched_yield();
				break;
			}
			__atomic_store_n(&lane->kick, true, __ATOMIC_SEQ_CST);
			if (!tei_mutex_trylock(&lane->lock))
				break;
		}
		any |= lane_turn(lane, work, now, &done);
		tei_mutex_unlock(&lane->lock);
		now = 0;
	} while (__atomic_load_n(&lane->kick, __ATOMIC_SEQ_CST) &&
		 __atomic_exchange_n(&lane->kick, false, __ATOMIC_SEQ_CST));
	rail_done_run(dp, &done);
	return any;
}

bool rail_lane_run(struct rail_lane *lane)
{
	return lane_run(lane, false, 0);
}

void rail_lane_kick(struct rail_lane *lane, uint64_t now)
{
	lane_run(lane, true, now);
}

void rail_sched_kick(struct tei_rail_dp *dp, uint64_t now)
{
	uint32_t n = rail_count(dp), first = 0, i, j;
	struct rail_lane *lane;
	struct rail *rail;

	if (n > 1)
		first = __atomic_fetch_add(&dp->tasks.turn, 1,
					   __ATOMIC_RELAXED);
	for (i = 0; i < n; i++) {
		rail = rail_at(dp, (first + i) % n);
		for (j = 0; j < rail->ntx * RAIL_LANE_SLOTS; j++) {
			lane = &rail->tx_lanes[j];
			if (__atomic_load_n(&lane->state, __ATOMIC_ACQUIRE) ==
			    RAIL_LANE_ACTIVE)
				rail_lane_kick(lane, now);
		}
	}
}
