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
#include "prov/rail/core/rail_handler.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"

/* A receive buffer. Owned by the lane and guarded by its lock. */
struct rail_rx {
	struct rail_op op;
	uint8_t *buf;
	struct rail_rx *next;		/* next buffer in lane->recv.idle */
};

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
	return lane->contact ? lane->rail->fab.contact_fabric
			     : lane->rail->fab.fabric;
}

static struct fid_domain *lane_domain(const struct rail_lane *lane)
{
	if (lane->fids.domain)
		return lane->fids.domain;
	if (lane->contact)
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

/* Opens a domain in a fabric of its own. *fabric may be open already if an
 * earlier attempt has failed. */
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
	if (!lane->contact || rail->fab.contact_domain)
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
	errno = 0; /* lane_read_cq states the reason */
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
 * Opens a counter of the peers' reads and writes, if the rx lane has no file
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

/* Returns true if the creator of the data plane has chosen the port for this
 * opening of the lane. */
static bool lane_port_given(const struct rail_lane *lane)
{
	return lane->rail->dp->conf.port && lane->is_rx && !lane->gen;
}

/* Returns a copy of the rail's fi_info with the source address of the lane: the
 * contact address for a contact lane, or the port that the creator of the data
 * plane has chosen. Returns NULL if memory is short. */
static struct fi_info *lane_info(const struct rail_lane *lane)
{
	struct fi_info *info = fi_dupinfo(lane->rail->fab.info);
	struct sockaddr_in *sa = info ? info->src_addr : NULL;

	if (info && lane->contact)
		return lane_info_first(lane, info);
	/* sin6_port has the same offset in a sockaddr_in6 */
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
		!lane->contact && rail_ports_apply(lane, lane->rail->fab.info);
	struct fi_info *info;
	int ret = 0;

	if (!lane->rail->dp->conf.port && !lane->contact && !ranged)
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

/* Opens everything that belongs to the lane. On failure *what names the failed
 * step. */
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
 * recent time, reduced by a quarter at each opening. */
static void lane_opened(struct tei_rail_dp *dp, uint64_t took)
{
	uint64_t old = __atomic_load_n(&dp->health.open_ns, __ATOMIC_RELAXED);

	old -= old / 4;
	__atomic_store_n(&dp->health.open_ns, took > old ? took : old,
			 __ATOMIC_RELAXED);
}

static const char *lane_kind(const struct rail_lane *lane)
{
	if (lane->contact)
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

/* Reports that the step "what" of opening a lane has failed. Returns an error
 * code. Once the rail is open, its lanes are opened again and again, so the log
 * lines are limited. */
static int lane_failed(const struct rail_lane *lane, int ret, const char *what,
		       struct tei_err *err)
{
	struct rail *rail = lane->rail;
	char hint[TEI_ERR_TEXT], text[TEI_ERR_TEXT];

	rail_limits_memory(ret, hint, sizeof(hint));
	rail_ports_hint(lane, ret, hint, sizeof(hint));
	snprintf(text, sizeof(text), "%s: %s lane: %s: %s", rail->name,
		 lane_kind(lane), what, fi_strerror(-ret));
	if (lane->contact)
		return lane_keep(err, TEI_ERR_CONTEXT, "rail", NULL, "%s",
				 text);
	if (__atomic_load_n(&rail->open, __ATOMIC_ACQUIRE))
		return tei_err_fail_repeated(&rail->errors.repeat, err,
					     TEI_ERR_CONTEXT, "rail",
					     *hint ? hint : NULL, "%s", text);
	return rail_open_err_fn(rail)(err, TEI_ERR_CONTEXT, "rail",
				      *hint ? hint : NULL, "%s", text);
}

int rail_lane_open(struct rail_lane *lane, struct tei_err *err)
{
	uint64_t from = tei_now_ns();
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
	if (ret)
		return lane_failed(lane, ret, what, err);
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
