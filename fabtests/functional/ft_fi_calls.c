/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The libfabric provider: what fi_getinfo says to hints, and the forms of calls
 * that ft_fi_rdm and ft_fi_objects do not use, with moonrail's provider and
 * with the one below it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define PIECES		4
#define LARGE		200000u	/* not a small message anywhere */

static bool call_moonrail(const struct fi_rig *r)
{
	return !strcmp(r->provider, "moonrail");
}

static bool call_done(struct fi_rig *r, struct fid_cq *cq,
		      struct fi_rig_done *d)
{
	return fi_rig_next(r, cq, d) && !d->err;
}

static bool call_sent(struct fi_rig *r)
{
	struct fi_rig_done d;

	return call_done(r, r->tx, &d);
}

/* --- hints --------------------------------------------------------------- */

static struct fi_info *call_hints(const char *provider)
{
	struct fi_info *h = fi_allocinfo();

	h->fabric_attr->prov_name = strdup(provider);
	h->ep_attr->type = FI_EP_RDM;
	h->caps = FI_MSG | FI_TAGGED;
	return h;
}

/* Frees the hints. */
static int call_info(struct fi_info *h, const char *node, const char *service,
		     uint64_t flags, struct fi_info **info)
{
	int ret = fi_getinfo(FI_VERSION(1, 17), node, service, flags, h, info);

	fi_freeinfo(h);
	return ret;
}

static bool call_refuses(struct fi_info *h)
{
	struct fi_info *info;
	int ret = call_info(h, NULL, NULL, 0, &info);

	if (!ret)
		fi_freeinfo(info);
	return ret == -FI_ENODATA;
}

static bool call_port_is(const void *addr, uint16_t port)
{
	const struct sockaddr_in *in = addr;

	return in && in->sin_family == AF_INET &&
	       ntohl(in->sin_addr.s_addr) == 0x7f000001 &&
	       ntohs(in->sin_port) == port;
}

static bool call_node(const char *provider, uint64_t flags)
{
	struct fi_info *h = call_hints(provider), *info;
	bool good;

	h->addr_format = FI_SOCKADDR_IN;
	if (call_info(h, "127.0.0.1", "4711", flags, &info))
		return false;
	good = info->addr_format == FI_SOCKADDR_IN &&
	       call_port_is(flags ? info->src_addr : info->dest_addr, 4711);
	fi_freeinfo(info);
	return good;
}

/* What no provider here has. */
static bool call_unmet(const char *provider)
{
	struct fi_info *h = call_hints(provider);
	bool good;

	h->ep_attr->type = FI_EP_DGRAM;
	good = call_refuses(h);
	h = call_hints(provider);
	h->tx_attr->iov_limit = 4096;
	return call_refuses(h) && good;
}

static void call_hints_of(const char *provider)
{
	struct fi_info *info = NULL;
	bool good;

	good = !call_info(call_hints(provider), NULL, NULL, 0, &info);
	if (!ft_ok(good, "%s: is found", provider))
		return;
	good = info->caps & FI_TAGGED && info->caps & FI_RECV &&
	       !(info->caps & (FI_RMA | FI_ATOMIC | FI_RMA_EVENT)) &&
	       info->ep_attr->type == FI_EP_RDM && info->tx_attr->iov_limit &&
	       info->tx_attr->size && info->rx_attr->size;
	ft_ok(good, "%s: no more is given than is asked for", provider);
	ft_ok(strstr(fi_tostr(info, FI_TYPE_INFO), "FI_EP_RDM") &&
		      strstr(fi_tostr(&info->caps, FI_TYPE_CAPS), "FI_TAGGED"),
	      "%s: and can be read", provider);
	fi_freeinfo(info);
	ft_ok(call_unmet(provider), "%s: hints that cannot be met", provider);
	ft_ok(call_node(provider, 0) && call_node(provider, FI_SOURCE),
	      "%s: node and service, of the peer and of ourselves", provider);
}

/* The model of registration that was asked for in two words before 1.5. */
static bool call_old(uint32_t version, int mode, int is)
{
	struct fi_info *h = call_hints("moonrail"), *info;
	bool good;

	h->domain_attr->mr_mode = mode;
	if (fi_getinfo(version, NULL, NULL, 0, h, &info)) {
		fi_freeinfo(h);
		return false;
	}
	good = info->domain_attr->mr_mode == is &&
	       info->fabric_attr->api_version == version;
	fi_freeinfo(info);
	fi_freeinfo(h);
	return good;
}

/* libfabric answers some of that itself, for all providers that it knows. */
static bool call_listed(uint64_t flags)
{
	struct fi_info *info = NULL, *i;

	if (call_info(call_hints("moonrail"), NULL, NULL,
		      FI_PROV_ATTR_ONLY | flags, &info))
		return false;
	for (i = info; i; i = i->next)
		if (i->fabric_attr->prov_name &&
		    !strcmp(i->fabric_attr->prov_name, "moonrail"))
			break;
	if (i && (i->src_addr || i->dest_addr || !i->fabric_attr->prov_version))
		i = NULL;
	fi_freeinfo(info);
	return i;
}

/* Beyond what fi_getinfo says that there is. */
static bool call_beyond(void)
{
	struct fi_info *h = call_hints("moonrail");
	bool good;

	h->ep_attr->max_msg_size = SIZE_MAX;
	good = call_refuses(h);
	h = call_hints("moonrail");
	h->ep_attr->max_order_waw_size = 8;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->rx_attr->total_buffered_recv = 1;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->domain_attr->max_err_data = 8;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->ep_attr->protocol = FI_PROTO_RXM;
	return call_refuses(h) && good;
}

/* What was given is taken as a hint, but not a later protocol. */
static bool call_given(void)
{
	struct fi_info *h = call_hints("moonrail"), *info;
	bool good;

	if (call_info(h, NULL, NULL, 0, &h))
		return false;
	good = !strstr(fi_tostr(h, FI_TYPE_INFO), "Unknown") &&
	       !strstr(fi_tostr(h, FI_TYPE_INFO), "UNSPEC") &&
	       !fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, h, &info);
	if (good)
		fi_freeinfo(info);
	h->ep_attr->protocol_version++;
	return call_refuses(h) && good;
}

static void call_own_hints(void)
{
	const int all = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY |
			FI_MR_ALLOCATED | FI_MR_RAW | FI_MR_ENDPOINT;
	struct fi_info *h;
	bool good;

	ft_ok(call_listed(0) && call_listed(FI_NUMERICHOST),
	      "moonrail: attributes of the provider alone");
	h = call_hints("moonrail");
	h->caps |= FI_COLLECTIVE;
	good = call_refuses(h);
	h = call_hints("moonrail");
	h->tx_attr->inject_size = 1u << 30;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->domain_attr->name = strdup("nosuchdomain");
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->tx_attr->msg_order = FI_ORDER_RAW;
	good = call_refuses(h) && good;
	h = call_hints("moonrail");
	h->ep_attr->tx_ctx_cnt = 2;
	good = call_refuses(h) && good;
	ft_ok(call_beyond() && good,
	      "moonrail: nothing is claimed that is not kept");
	ft_ok(call_given(), "moonrail: what is given has names, and is taken");
	/* FI_MR_BASIC and FI_MR_SCALABLE, which 2.0 deprecates */
	ft_ok(call_old(FI_VERSION(1, 4), 1, 1) &&
		      call_old(FI_VERSION(1, 4), 0, 2) &&
		      call_old(FI_VERSION(1, 5), 1, 1) &&
		      call_old(FI_VERSION(1, 17), all, 0),
	      "moonrail: versions, and a program that can do all that some "
	      "want with registrations");
}

/* --- counters ------------------------------------------------------------ */

static void call_counter(struct fi_rig *r)
{
	struct fi_cntr_attr attr = {
		.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC,
	};
	uint64_t from, end;
	struct fid_cntr *c;
	bool good;

	if (!fi_rig_ok(r, !fi_cntr_open(r->domain, &attr, &c, NULL),
		       "a counter"))
		return;
	good = !fi_cntr_set(c, 5) && fi_cntr_read(c) == 5 &&
	       !fi_cntr_add(c, 2) && fi_cntr_read(c) == 7 &&
	       !fi_cntr_wait(c, 7, 0);
	fi_rig_ok(r, good, "is set, added to and waited for");
	from = ft_now_ns();
	good = fi_cntr_wait(c, 8, 30) == -FI_ETIMEDOUT;
	end = ft_now_ns();
	fi_rig_ok(r, good && end - from >= UINT64_C(25000000),
		  "in vain, for as long as was said");
	good = !fi_cntr_adderr(c, 3) && fi_cntr_readerr(c) == 3 &&
	       !fi_cntr_seterr(c, 1) && fi_cntr_readerr(c) == 1 &&
	       fi_cntr_read(c) == 7 && !fi_close(&c->fid);
	fi_rig_ok(r, good, "and its errors are a count of their own");
	while (fi_rig_again(r, fi_recv(r->ep, r->mem, 8, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	from = fi_cntr_read(r->sent);
	while (fi_rig_again(r, fi_send(r->ep, r->buf, 8, NULL, r->self, NULL)))
		;
	good = !fi_cntr_wait(r->sent, from + 1, FI_RIG_WAIT_MS) &&
	       fi_cntr_read(r->sent) == from + 1 && call_sent(r);
	fi_rig_ok(r, call_done(r, r->rx, &(struct fi_rig_done){ .err = 0 }) &&
			     good, "a send is waited for by its counter");
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

/* Of what a program has been told by its queue it is not told again. */
static void call_counter_errors(struct fi_rig *r)
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
	fi_rig_ok(r, good, "a receive that is cancelled ends no later wait");
	call_message(r, 64, 8);
	good = call_sent(r) && fi_rig_next(r, r->rx, &d) &&
	       d.err == FI_ETRUNC &&
	       fi_cntr_wait(r->got, was + 1, 20) == -FI_ETIMEDOUT;
	fi_rig_ok(r, good, "nor does an error that has been read");
	call_message(r, 8, 8);
	good = !fi_cntr_wait(r->got, was + 1, FI_RIG_WAIT_MS) && call_sent(r);
	fi_rig_ok(r, call_done(r, r->rx, &d) && good,
		  "which ends with the next message");
}

/* --- a second endpoint, which sends to itself ------------------------------ */

struct call_ep {
	struct fid_cntr *counts;	/* what it sends and receives, or NULL */
	struct fid_ep *ep;
	struct fid_cq *cq[2];		/* of what it sends, and receives */
	fi_addr_t self;
};

static bool call_open(struct fi_rig *r, enum fi_cq_format format,
		      uint64_t flags, struct call_ep *e)
{
	struct fi_cq_attr attr = {
		.format = format, .wait_obj = FI_WAIT_UNSPEC,
	};
	char name[512];
	size_t len = sizeof(name);

	return !fi_cq_open(r->domain, &attr, &e->cq[0], NULL) &&
	       !fi_cq_open(r->domain, &attr, &e->cq[1], NULL) &&
	       !fi_endpoint(r->domain, r->info, &e->ep, NULL) &&
	       !fi_ep_bind(e->ep, &r->av->fid, 0) &&
	       !fi_ep_bind(e->ep, &e->cq[0]->fid, FI_TRANSMIT | flags) &&
	       !fi_ep_bind(e->ep, &e->cq[1]->fid, FI_RECV | flags) &&
	       (!e->counts || !fi_ep_bind(e->ep, &e->counts->fid,
					  FI_SEND | FI_RECV)) &&
	       !fi_enable(e->ep) && !fi_getname(&e->ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &e->self, 0, NULL) == 1;
}

static bool call_close(struct fi_rig *r, struct call_ep *e)
{
	return !fi_close(&e->ep->fid) && !fi_close(&e->cq[0]->fid) &&
	       !fi_close(&e->cq[1]->fid) &&
	       !fi_av_remove(r->av, &e->self, 1, 0);
}

static bool call_await(struct fid_cq *cq, void *entry, fi_addr_t *src)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	ssize_t n;

	do {
		n = src ? fi_cq_readfrom(cq, entry, 1, src) :
			  fi_cq_read(cq, entry, 1);
	} while (n == -FI_EAGAIN && ft_now_ns() < end);
	return n == 1;
}

/* Each format is the beginning of the next one. */
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
	else	/* nothing is written beyond it */
		good = good && t[0].tag == UINT64_C(0xeeeeeeeeeeeeeeee);
	return call_close(r, &e) && good;
}

static void call_formats(struct fi_rig *r)
{
	bool good = true;
	int i;

	for (i = FI_CQ_FORMAT_CONTEXT; i <= FI_CQ_FORMAT_TAGGED; i++)
		good = call_format(r, (enum fi_cq_format)i) && good;
	fi_rig_ok(r, good, "completions of all formats, and their source");
}

/* What fi_cq_read says when there is nothing to read, after a while. */
static bool call_silent(struct fid_cq *cq)
{
	struct fi_cq_tagged_entry t;
	uint64_t end = ft_now_ns() + UINT64_C(20000000);
	ssize_t n;

	do {
		n = fi_cq_read(cq, &t, 1);
	} while (n == -FI_EAGAIN && ft_now_ns() < end);
	return n == -FI_EAGAIN;
}

static void call_selective(struct fi_rig *r)
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
		       "an endpoint of selective completion"))
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
	fi_rig_ok(r, good, "tells of what was asked for and of nothing else");
	fi_rig_ok(r, call_silent(e.cq[0]) && call_silent(e.cq[1]) &&
			     call_close(r, &e), "once");
}

/* Looks for a message until it has come. */
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

/* What was found is told to who asked, whatever else a queue is told. */
static void call_selective_look(struct fi_rig *r)
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
		       "a selective queue for who looks"))
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
		  "who looks for a message is told by a selective queue too");
}

/*
 * What completed before an error is read before it. Only here is it certain
 * that a message to oneself has come when its call returns.
 */
static void call_turns(struct fi_rig *r)
{
	struct fi_cq_tagged_entry t[2];
	struct fi_cq_err_entry err;
	struct call_ep e = { .counts = NULL };
	bool good = true;
	int i;

	if (!call_moonrail(r))
		return;
	if (!fi_rig_ok(r, call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e),
		       "an endpoint for one error"))
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
	fi_rig_ok(r, good && call_close(r, &e), "an error has its turn");
}

/* A sleeper is woken by somebody who has nothing for him. */
static void call_signal(struct fi_rig *r)
{
	struct fi_cq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	uint64_t from = ft_now_ns();
	struct fi_cq_entry e;
	struct fid_cq *cq;
	char text[128] = "";
	bool good;

	if (!fi_rig_ok(r, !fi_cq_open(r->domain, &attr, &cq, NULL), "a queue"))
		return;
	good = !fi_cq_signal(cq) &&
	       fi_cq_sread(cq, &e, 1, NULL, FI_RIG_WAIT_MS) < 0 &&
	       ft_now_ns() - from < UINT64_C(10000000000);
	fi_rig_ok(r, good, "is left when it is signalled");
	fi_rig_ok(r, !fi_close(&cq->fid) &&
			     fi_cq_strerror(r->rx, FI_EIO, NULL, text,
					    sizeof(text)),
		  "and puts errors into words");
}

/* --- pieces -------------------------------------------------------------- */

/* Unequal ones, with room in between. */
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

static void call_pieces(struct fi_rig *r)
{
	static const size_t len[] = { 700, 9001, LARGE };
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
	fi_rig_ok(r, good, "messages in pieces that differ on both sides");
	n = r->info->tx_attr->iov_limit + 1;
	if (call_moonrail(r))
		fi_rig_ok(r, fi_sendv(r->ep, iov, NULL, n, r->peer, NULL) ==
				     -FI_EINVAL &&
				     fi_recvv(r->ep, iov, NULL, n,
					      FI_ADDR_UNSPEC, NULL) ==
				     -FI_EINVAL, "more than the limit are refused");
}

/* Two places at the peer, written from pieces and read into others. */
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

static void call_rma_pieces(struct fi_rig *r)
{
	if (r->server) {
		fi_rig_meet(r);
		return;
	}
	fi_rig_ok(r, call_vectors(r, 900, 1) && call_vectors(r, LARGE, 2),
		  "writes and reads in pieces");
	fi_rig_ok(r, call_places(r, 900, 3) && call_places(r, LARGE, 4),
		  "of several places at the peer");
	fi_rig_meet(r);
}

/* --- inject, data, flags ------------------------------------------------- */

/* The buffer is the program's again when the call returns. */
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

static void call_inject(struct fi_rig *r)
{
	struct fi_rig_done d;

	fi_rig_ok(r, r->server ? call_injected(r) : call_injects(r),
		  "injected messages, tagged and not, with data and without");
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
		  "an injected write with data");
	fi_rig_meet(r);
}

/* More is to come, and comes in order. */
static void call_more(struct fi_rig *r)
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
	fi_rig_ok(r, good, "messages after which more come");
}

/* Two receives of one tag, each for one sender. */
static void call_directed(struct fi_rig *r)
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
		fi_rig_ok(r, call_sent(r), "a message for one who waits for us");
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
	fi_rig_ok(r, good, "a receive for one sender leaves the others alone");
	fi_rig_meet(r);
}

/*
 * A receive is for who had the address when it was posted. What happens to it
 * when that is removed is up to the provider: here it is nobody else's who gets
 * the place, and his still.
 */
static void call_removed(struct fi_rig *r)
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
		       "another endpoint"))
		return;
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf, 8, NULL, e.self, 12, 0,
					&e)))
		;
	good = !fi_av_remove(r->av, &e.self, 1, 0) &&
	       !fi_getname(&r->ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &again, 0, NULL) == 1 &&
	       again == e.self;
	fi_rig_ok(r, good, "an address takes the place of one that is removed");
	while (fi_rig_again(r, fi_trecv(r->ep, r->buf + 64, 8, NULL,
					FI_ADDR_UNSPEC, 12, 0, &i)))
		;
	memset(r->mem, 3, 8);
	while (fi_rig_again(r, fi_tsend(r->ep, r->mem, 8, NULL, r->self, 12,
					NULL)))
		;
	good = call_sent(r) && call_done(r, r->rx, &d) &&
	       d.e.op_context == &i && r->buf[64] == 3;
	fi_rig_ok(r, good, "but not its receives");
	memset(r->mem, 4, 8);
	while (fi_rig_again(r, fi_tsend(e.ep, r->mem, 8, NULL, r->self, 12,
					NULL)))
		;
	good = call_done(r, r->rx, &d) && d.e.op_context == &e &&
	       r->buf[0] == 4;
	fi_rig_ok(r, good, "which are his who had the address, as before");
	fi_rig_ok(r, call_close(r, &e), "the other endpoint is closed");
}

/* --- addresses ----------------------------------------------------------- */

static void call_addresses(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	char name[512], again[512], text[512];
	size_t len = sizeof(name), room = sizeof(again), n = sizeof(text);
	struct fid_av *av;
	fi_addr_t a[2];
	bool good;

	if (!fi_rig_ok(r, !fi_av_open(r->domain, &attr, &av, NULL),
		       "a table of addresses"))
		return;
	good = !fi_getname(&r->ep->fid, name, &len) &&
	       fi_av_insert(av, name, 1, &a[0], 0, NULL) == 1 && !a[0] &&
	       !fi_av_lookup(av, a[0], again, &room) && room == len &&
	       !memcmp(name, again, len) &&
	       fi_av_straddr(av, name, text, &n) && strlen(text) > 4;
	fi_rig_ok(r, good, "gives back what was put in, in words too");
	good = !fi_av_remove(av, a, 1, 0);
	if (call_moonrail(r)) {
		room = sizeof(again);
		good = fi_av_lookup(av, a[0], again, &room) == -FI_EINVAL &&
		       fi_av_remove(av, a, 1, 0) == -FI_EINVAL && good;
	}
	fi_rig_ok(r, good && !fi_close(&av->fid), "until it is removed");
	len = 1;
	fi_rig_ok(r, fi_getname(&r->ep->fid, name, &len) == -FI_ETOOSMALL &&
			     len > 1, "a name that finds no room says how much");
}

/* --- registrations ------------------------------------------------------- */

static void call_registrations(struct fi_rig *r)
{
	bool prov_key = r->info->domain_attr->mr_mode & FI_MR_PROV_KEY;
	struct iovec iov = { .iov_base = r->buf, .iov_len = 8192 };
	struct fi_mr_attr attr = {
		.mr_iov = &iov, .iov_count = 1, .access = FI_REMOTE_READ,
		.requested_key = 302, .context = r,
	};
	struct fid_mr *mr[3];
	bool good;
	int i;

	good = !fi_mr_regv(r->domain, &iov, 1, FI_REMOTE_WRITE, 0, 301, 0,
			   &mr[0], NULL) &&
	       !fi_mr_regattr(r->domain, &attr, 0, &mr[1]) &&
	       mr[1]->fid.context == r &&
	       fi_mr_key(mr[0]) != fi_mr_key(mr[1]);
	if (!fi_rig_ok(r, good, "memory registered in two other ways"))
		return;
	if (prov_key)
		good = !fi_mr_reg(r->domain, r->buf, 64, FI_REMOTE_READ, 0,
				  301, 0, &mr[2], NULL) &&
		       fi_mr_key(mr[2]) != fi_mr_key(mr[0]);
	else
		good = fi_mr_key(mr[0]) == 301 && fi_mr_key(mr[1]) == 302 &&
		       fi_mr_reg(r->domain, r->buf, 64, FI_REMOTE_READ, 0, 301,
				 0, &mr[2], NULL) == -FI_ENOKEY;
	fi_rig_ok(r, good, "a key is the program's choice, or never given twice");
	for (i = 0; i < 2 + prov_key; i++)
		good = !fi_close(&mr[i]->fid) && good;
	fi_rig_ok(r, good, "and given up");
}

/* Local memory that is registered and described, as some want it. */
static void call_described(struct fi_rig *r)
{
	uint8_t *back = r->buf + FI_RIG_BUF / 2;
	struct fi_rig_done d;
	struct fid_mr *mr;
	void *desc;
	bool good;

	if (!fi_rig_ok(r, !fi_mr_reg(r->domain, r->buf, FI_RIG_BUF,
				     FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0,
				     401, 0, &mr, NULL), "local memory"))
		return;
	desc = fi_mr_desc(mr);
	if (r->server) {
		while (fi_rig_again(r, fi_recv(r->ep, r->buf, LARGE, desc,
					       FI_ADDR_UNSPEC, NULL)))
			;
		good = call_done(r, r->rx, &d) && d.e.len == LARGE &&
		       fi_rig_same(r->buf, LARGE, 14);
	} else {
		fi_rig_fill(r->buf, LARGE, 14);
		while (fi_rig_again(r, fi_send(r->ep, r->buf, LARGE, desc,
					       r->peer, NULL)))
			;
		good = call_sent(r);
		while (fi_rig_again(r, fi_write(r->ep, r->buf, LARGE, desc,
						r->peer, r->remote + 8192,
						r->key, NULL)))
			;
		good = call_sent(r) && good;
		while (fi_rig_again(r, fi_read(r->ep, back, LARGE, desc,
					       r->peer, r->remote + 8192,
					       r->key, NULL)))
			;
		good = call_sent(r) && good && fi_rig_same(back, LARGE, 14);
	}
	fi_rig_ok(r, good, "moves with its description");
	fi_rig_meet(r);
	fi_rig_ok(r, !fi_close(&mr->fid), "and is given back");
}

/* ------------------------------------------------------------------------- */

/* --- multi-receives ------------------------------------------------------- */

#define CANCELS		8

/* Two messages and the end of the buffer, in any order. */
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
		/* the long one, which came first, may still be read */
		if (d.err || d.e.len != 64)
			continue;
		if (fi_cancel(&r->ep->fid, (void *)(uintptr_t)context))
			return false;
	}
	return got == 2 && fi_rig_same(r->mem, 3000000, 6);
}

static void call_cancel_multi(struct fi_rig *r)
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
	fi_rig_ok(r, good, "a multi-receive is cancelled while it takes one in");
	fi_rig_meet(r);
}

/* --- addresses of sockets ------------------------------------------------- */

/* A message of an endpoint to itself, from whom alone it is taken. */
static bool call_to_itself(struct fi_rig *r)
{
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct fi_cq_tagged_entry t;
	struct call_ep e = { .counts = NULL };
	bool good;

	if (!call_open(r, FI_CQ_FORMAT_TAGGED, 0, &e))
		return false;
	r->tx = e.cq[0];
	r->rx = e.cq[1];
	while (fi_rig_again(r, fi_recv(e.ep, r->mem, 64, NULL, e.self, NULL)))
		;
	while (fi_rig_again(r, fi_send(e.ep, r->buf, 32, NULL, e.self, NULL)))
		;
	good = call_await(e.cq[1], &t, &src) && t.len == 32 && src == e.self;
	return call_close(r, &e) && good;
}

/* Their address says nothing of the endpoint: there may have been others. */
static void call_names_of(struct fi_rig *r, uint32_t format, const char *node)
{
	struct fi_info *h = call_hints(r->provider);
	struct fi_av_attr attr = { .type = FI_AV_MAP };
	struct fi_rig own = *r;
	bool good;

	h->caps |= FI_SOURCE | FI_DIRECTED_RECV;
	h->addr_format = format;
	good = !call_info(h, node, NULL, FI_SOURCE, &own.info) &&
	       own.info->addr_format == format &&
	       !fi_fabric(own.info->fabric_attr, &own.fabric, NULL) &&
	       !fi_domain(own.fabric, own.info, &own.domain, NULL) &&
	       !fi_av_open(own.domain, &attr, &own.av, NULL);
	if (!fi_rig_ok(r, good, "a domain with addresses of sockets"))
		return;
	fi_rig_ok(r, call_to_itself(&own) && call_to_itself(&own),
		  "an endpoint that is opened again is reached");
	fi_rig_ok(r, !fi_close(&own.av->fid) && !fi_close(&own.domain->fid) &&
			     !fi_close(&own.fabric->fid), "and closes");
	fi_freeinfo(own.info);
}

/* A socket's address of this domain, and then the name of another endpoint. */
static bool call_two_insert(struct fi_rig *r, struct fid_av *av,
			    struct fid_ep *other)
{
	char name[512], text[512], host[64], port[16];
	size_t len = sizeof(name), room = sizeof(name), n = sizeof(text);
	fi_addr_t a[2];

	return !fi_getname(&r->ep->fid, name, &len) &&
	       sscanf(fi_av_straddr(av, name, text, &n),
		      "moonrail://[%63[^]]]:%15[0-9]/", host, port) == 2 &&
	       fi_av_insertsvc(av, host, port, &a[0], 0, NULL) == 1 &&
	       !fi_getname(&other->fid, name, &room) &&
	       fi_av_insert(av, name, 1, &a[1], 0, NULL) == 1 && !a[0] &&
	       a[1] == 1;
}

/* From each of them, into the receive that is for it. */
static bool call_two_come(struct fi_rig *r, struct call_ep *to, fi_addr_t addr,
			  struct fid_ep *from, fi_addr_t is)
{
	fi_addr_t src = FI_ADDR_NOTAVAIL;
	struct fi_cq_tagged_entry t;
	int context[2];
	fi_addr_t i;

	for (i = 0; i < 2; i++)
		while (fi_rig_again(r, fi_recv(to->ep, r->mem, 64, NULL, i,
					       &context[i])))
			;
	while (fi_rig_again(r, fi_send(from, r->buf, 32, NULL, addr, NULL)))
		;
	if (!call_await(to->cq[1], &t, &src) || src != is ||
	    t.op_context != &context[is])
		return false;
	return !fi_cancel(&to->ep->fid, &context[!is]) &&
	       fi_cq_readerr(to->cq[1], &(struct fi_cq_err_entry){ .err = 0 },
			     0) == 1;
}

/* The oldest endpoint by a socket's address, another one by its name. */
static void call_two_names(struct fi_rig *r)
{
	struct fi_av_attr attr = { .type = FI_AV_TABLE };
	struct fi_rig own = *r;
	struct call_ep other = { .counts = NULL }, to = { .counts = NULL };
	char name[512];
	size_t len = sizeof(name);
	fi_addr_t addr;
	bool good;

	if (!call_moonrail(r))
		return;
	good = call_open(r, FI_CQ_FORMAT_TAGGED, 0, &other) &&
	       !fi_av_open(r->domain, &attr, &own.av, NULL) &&
	       call_two_insert(r, own.av, other.ep) &&
	       call_open(&own, FI_CQ_FORMAT_TAGGED, 0, &to) &&
	       !fi_getname(&to.ep->fid, name, &len) &&
	       fi_av_insert(r->av, name, 1, &addr, 0, NULL) == 1;
	if (!fi_rig_ok(r, good, "an address of a socket and a name"))
		return;
	good = call_two_come(r, &to, addr, other.ep, 1) &&
	       call_two_come(r, &to, addr, r->ep, 0);
	fi_rig_ok(r, call_sent(r) && good,
		  "which are not taken for each other");
	fi_rig_ok(r, call_close(&own, &to) && call_close(r, &other) &&
			     !fi_av_remove(r->av, &addr, 1, 0) &&
			     !fi_close(&own.av->fid), "and are closed");
}

static void call_socket_names(struct fi_rig *r)
{
	call_names_of(r, FI_SOCKADDR_IN, "127.0.0.1");
	if (access("/proc/net/if_inet6", R_OK))
		ft_diag("no IPv6 here: no such addresses");
	else
		call_names_of(r, FI_SOCKADDR_IN6, "::1");
}

static void call_all(struct fi_rig *r)
{
	static const fi_rig_fn part[] = {
		call_counter, call_counter_errors, call_formats, call_selective,
		call_selective_look, call_turns, call_signal, call_pieces,
		call_rma_pieces, call_inject, call_more, call_directed, call_removed,
		call_cancel_multi, call_socket_names, call_two_names,
		call_addresses,
		call_registrations, call_described,
	};
	size_t i;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		fi_rig_meet(r);
		part[i](r);
	}
}

static void call_memory(struct fi_rig *r)
{
	call_registrations(r);
	fi_rig_meet(r);
	call_rma_pieces(r);
	fi_rig_meet(r);
	call_described(r);
}

/* Of each kind, to the peer. */
static ssize_t call_of(struct fi_rig *r, int kind)
{
	static uint64_t one = 1;

	switch (kind) {
	case 0:
		return fi_tsend(r->ep, r->buf, LARGE, NULL, r->peer, 1, NULL);
	case 1:
		return fi_write(r->ep, r->buf, 64, NULL, r->peer, r->remote,
				r->key, NULL);
	case 2:
		return fi_atomic(r->ep, &one, 1, NULL, r->peer, r->remote,
				 r->key, FI_UINT64, FI_SUM, NULL);
	default:
		return fi_read(r->ep, r->buf, LARGE, NULL, r->peer, r->remote,
			       r->key, NULL);
	}
}

/* One of each kind to a process that has ended: none is left hanging, and none
 * is said to be done. */
static bool call_fails(struct fi_rig *r, int kind)
{
	uint64_t until = ft_now_ns() + UINT64_C(2000000000);
	struct fi_rig_done d;

	while (fi_rig_again(r, call_of(r, kind)))
		if (ft_now_ns() > until) {
			ft_diag("operation %d is never taken", kind);
			return false;
		}
	if (!fi_rig_next(r, r->tx, &d)) {
		ft_diag("operation %d never ends", kind);
		return false;
	}
	if (d.err == FI_ECONNRESET && ft_now_ns() < until)
		return true;
	ft_diag("operation %d ends with %d", kind, d.err);
	return false;
}

/* A message that the other takes to its end: who waits by a counter is told,
 * whichever of the two comes first; and once. */
static void call_counted(struct fi_rig *r)
{
	uint64_t was = fi_cntr_read(r->sent);
	struct fi_rig_done d;
	bool good;

	good = fi_cntr_wait(r->sent, was + 1, FI_RIG_WAIT_MS) == -FI_EAVAIL &&
	       fi_cntr_readerr(r->sent) == 1 && fi_cntr_read(r->sent) == was &&
	       fi_rig_next(r, r->tx, &d) &&
	       (d.err == FI_ECONNREFUSED || d.err == FI_ECONNRESET);
	fi_rig_ok(r, good, "a wait for a send that fails ends");
	fi_rig_ok(r, fi_cntr_wait(r->sent, was + 1, 20) == -FI_ETIMEDOUT,
		  "a wait after that does not end by it");
}

/* As long as nobody has heard of it, a failure ends what begins after it. */
static void call_counted_late(struct fi_rig *r)
{
	uint64_t was = fi_cntr_read(r->sent), errors;
	struct fi_rig_done d;
	bool good;
	int i;

	errors = fi_cntr_readerr(r->sent);
	/* each fails at once: the other is known to have ended */
	for (i = 0; i < 2; i++)
		while (fi_rig_again(r, call_of(r, 0)))
			;
	good = fi_cntr_wait(r->sent, was + 1, FI_RIG_WAIT_MS) == -FI_EAVAIL;
	while (fi_rig_again(r, call_of(r, 0)))
		;
	/* the first two are old, the third is new */
	good = fi_rig_next(r, r->tx, &d) && d.err == FI_ECONNRESET && good &&
	       fi_rig_next(r, r->tx, &d) && d.err == FI_ECONNRESET &&
	       fi_cntr_wait(r->sent, was + 1, FI_RIG_WAIT_MS) == -FI_EAVAIL &&
	       fi_cntr_readerr(r->sent) == errors + 3 &&
	       fi_rig_next(r, r->tx, &d);
	fi_rig_ok(r, good, "so does one that begins when it has failed");
}

/* What fails at each end is in a queue of its own; that one of the two was read
 * says nothing of the other. */
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
	if (!fi_rig_ok(r, good, "an endpoint of two queues and one counter"))
		return;
	good = call_both_fail(r, &e);
	was = fi_cntr_read(e.counts);
	good = good &&
	       fi_cntr_wait(e.counts, was + 100, FI_RIG_WAIT_MS) ==
		       -FI_EAVAIL &&
	       fi_cntr_wait(e.counts, was + 100, 20) == -FI_ETIMEDOUT &&
	       fi_cntr_readerr(e.counts) == 2;
	fi_rig_ok(r, good, "an error that was read hides none in another queue");
	fi_rig_ok(r, call_close(r, &e) && !fi_close(&e.counts->fid),
		  "which close");
}

static void call_gone(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good;
	char c;

	r->hasty = true;
	if (!r->server) {
		/* known to each other, and nothing is under way */
		while (fi_rig_again(r, fi_send(r->ep, r->buf, 8, NULL, r->peer,
					       NULL)))
			;
		fi_rig_ok(r, call_sent(r), "a last message");
		fi_rig_meet(r);
		return;
	}
	while (fi_rig_again(r, fi_recv(r->ep, r->buf, 8, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	good = call_done(r, r->rx, &d);
	/* which the other does not ask for */
	while (fi_rig_again(r, call_of(r, 0)))
		;
	fi_rig_meet(r);
	call_counted(r);
	while (recv(r->sock, &c, 1, MSG_DONTWAIT) < 0)
		fi_rig_idle(r);
	fi_rig_ok(r, good && call_fails(r, 0) && call_fails(r, 1) &&
			     call_fails(r, 2) && call_fails(r, 3),
		  "whatever is for one that has ended fails, soon");
	call_counted_late(r);
	call_counted_apart(r);
}

static bool call_run(const char *provider, bool *missing)
{
	bool good = fi_rig_run(provider, FI_DIRECTED_RECV | FI_SOURCE, call_all,
			       missing);

	if (!*missing)
		call_hints_of(provider);
	return good;
}

/* Addresses or offsets, keys of the provider's or the program's, and who
 * registers all memory. */
static void call_models(void)
{
	static const int mode[] = {
		FI_MR_VIRT_ADDR, FI_MR_PROV_KEY,
		FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED |
			FI_MR_LOCAL,
	};
	bool missing, good = true;
	size_t i;

	for (i = 0; i < sizeof(mode) / sizeof(mode[0]); i++) {
		fi_rig_mr_mode = mode[i];
		good = fi_rig_run("moonrail", 0, call_memory, &missing) && good;
	}
	fi_rig_mr_mode = 0;
	ft_ok(good, "moonrail: all models of registration");
}

static void call_moonrail_only(void)
{
	bool missing;

	ft_ok(fi_rig_run("moonrail", 0, call_gone, &missing) && !missing,
	      "moonrail: a process ends");
	call_models();
	call_own_hints();
}

/* With an argument: that provider alone. */
int main(int argc, char **argv)
{
	if (!fi_rig_path())
		return ft_skip("built without the provider");
	if (argc == 1)
		call_moonrail_only();
	return fi_rig_main(argv[1], call_run, "calls");
}
