/* SPDX-License-Identifier: BSD-2-Clause */
/* Child process in which one local rail reads a few bytes of a segment over
 * each rail of this segment. It calls libfabric directly, so that each pair of
 * rails is tested alone. Prints a line "@pair" for each pair. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "tools/te_info.h"
#include "util/clock.h"

#define PAIR_NS		(2 * TEI_NS_PER_SEC)
#define PAIR_BYTES	64
#define PAIR_READS	20
#define PAIR_API	FI_VERSION(1, 17)
#define PAIR_KEY	0x7e1

/* The local endpoint. It is opened again for each remote rail. */
struct pair {
	const struct info_opts *opts;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
	char buf[PAIR_BYTES];
	const char *what;	/* name of the libfabric call that has failed */
	char text[160];		/* the provider's error text, or "" */
};

/* --- the local rail ------------------------------------------------------ */

static struct fi_info *pair_hints(const char *provider)
{
	struct fi_info *h = fi_allocinfo();

	if (!h)
		return NULL;
	h->caps = FI_MSG | FI_RMA | FI_READ | FI_REMOTE_READ | FI_WRITE |
		  FI_REMOTE_WRITE;
	h->mode = FI_CONTEXT | FI_CONTEXT2;
	h->ep_attr->type = FI_EP_RDM;
	h->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR |
				  FI_MR_ALLOCATED | FI_MR_PROV_KEY |
				  FI_MR_ENDPOINT;
	h->fabric_attr->prov_name = provider ? strdup(provider) : NULL;
	return h;
}

static bool pair_is_rail(const struct fi_info *i, const char *rail)
{
	if (i->nic && i->nic->device_attr && i->nic->device_attr->name &&
	    !strcmp(i->nic->device_attr->name, rail))
		return true;
	return !strcmp(i->domain_attr->name, rail);
}

/* Returns true if text is an IP address. An IPv6 address may have a zone. */
static bool pair_is_ip(const char *text)
{
	char plain[INET6_ADDRSTRLEN];
	size_t len = text ? strcspn(text, "%") : 0;
	uint8_t bin[16];

	if (!text || len >= sizeof(plain))
		return false;
	memcpy(plain, text, len);
	plain[len] = '\0';
	return inet_pton(AF_INET, plain, bin) == 1 ||
	       inet_pton(AF_INET6, plain, bin) == 1;
}

static int pair_find(struct pair *p)
{
	const struct info_opts *o = p->opts;
	struct fi_info *hints = pair_hints(o->provider), *list = NULL, *i;
	bool ip = pair_is_ip(o->device_name);
	int ret;

	p->what = "fi_getinfo";
	if (!hints)
		return -FI_ENOMEM;
	ret = fi_getinfo(PAIR_API, ip ? o->device_name : NULL, NULL,
			 ip ? FI_SOURCE : 0, hints, &list);
	fi_freeinfo(hints);
	if (ret)
		return ret;
	for (i = list; i && !ip && o->rail && !pair_is_rail(i, o->rail);
	     i = i->next)
		;
	p->info = i ? fi_dupinfo(i) : NULL;
	fi_freeinfo(list);
	return p->info ? 0 : -FI_ENODATA;
}

static int pair_domain(struct pair *p)
{
	int ret;

	p->what = "fi_fabric";
	ret = fi_fabric(p->info->fabric_attr, &p->fabric, NULL);
	if (ret)
		return ret;
	p->what = "fi_domain";
	ret = fi_domain(p->fabric, p->info, &p->domain, NULL);
	if (ret || !(p->info->domain_attr->mr_mode & FI_MR_LOCAL))
		return ret;
	p->what = "fi_mr_reg";
	return fi_mr_reg(p->domain, p->buf, sizeof(p->buf), FI_READ, 0,
			 PAIR_KEY, 0, &p->mr, NULL);
}

static int pair_endpoint(struct pair *p)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_CONTEXT, .size = 64 };
	struct fi_av_attr av = { .type = FI_AV_UNSPEC };
	int ret;

	p->what = "fi_cq_open";
	ret = fi_cq_open(p->domain, &cq, &p->cq, NULL);
	if (ret)
		return ret;
	p->what = "fi_av_open";
	ret = fi_av_open(p->domain, &av, &p->av, NULL);
	if (ret)
		return ret;
	p->what = "fi_endpoint";
	ret = fi_endpoint(p->domain, p->info, &p->ep, NULL);
	if (ret)
		return ret;
	p->what = "fi_ep_bind";
	ret = fi_ep_bind(p->ep, &p->av->fid, 0);
	if (!ret)
		ret = fi_ep_bind(p->ep, &p->cq->fid, FI_TRANSMIT | FI_RECV);
	if (ret)
		return ret;
	p->what = "fi_enable";
	return fi_enable(p->ep);
}

static void pair_close_endpoint(struct pair *p)
{
	if (p->ep)
		fi_close(&p->ep->fid);
	if (p->av)
		fi_close(&p->av->fid);
	if (p->cq)
		fi_close(&p->cq->fid);
	p->ep = NULL;
	p->av = NULL;
	p->cq = NULL;
}

static void pair_close(struct pair *p)
{
	pair_close_endpoint(p);
	if (p->mr)
		fi_close(&p->mr->fid);
	if (p->domain)
		fi_close(&p->domain->fid);
	if (p->fabric)
		fi_close(&p->fabric->fid);
	fi_freeinfo(p->info);
}

/* --- one read ------------------------------------------------------------ */

static int pair_error(struct pair *p)
{
	struct fi_cq_err_entry e = { .err = 0 };

	p->what = "read";
	if (fi_cq_readerr(p->cq, &e, 0) < 1)
		return -FI_EIO;
	snprintf(p->text, sizeof(p->text), "%s",
		 fi_cq_strerror(p->cq, e.prov_errno, e.err_data, NULL, 0));
	return e.err > 0 ? -e.err : -FI_EIO;
}

static int pair_wait(struct pair *p, uint64_t end_ns)
{
	struct fi_cq_entry entry;
	ssize_t n;

	for (;;) {
		n = fi_cq_read(p->cq, &entry, 1);
		if (n == 1)
			return 0;
		if (n == -FI_EAVAIL)
			return pair_error(p);
		if (n != -FI_EAGAIN)
			return (int)n;
		if (tei_now_ns() > end_ns)
			return -FI_ETIMEDOUT;
		sched_yield();
	}
}

static int pair_read(struct pair *p, fi_addr_t to, uint64_t addr, uint64_t key,
		     size_t len)
{
	uint64_t end_ns = tei_now_ns() + PAIR_NS;
	void *desc = p->mr ? fi_mr_desc(p->mr) : NULL;
	struct fi_cq_entry entry;
	ssize_t ret;

	p->what = "read";
	for (;;) {
		ret = fi_read(p->ep, p->buf, len, desc, to, addr, key,
			      p->ep->fid.context);
		if (!ret)
			return pair_wait(p, end_ns);
		if (ret != -FI_EAGAIN)
			return (int)ret;
		/* the connection is made only while the queue is read */
		if (fi_cq_read(p->cq, &entry, 1) == -FI_EAVAIL)
			return pair_error(p);
		if (tei_now_ns() > end_ns)
			return -FI_ETIMEDOUT;
		sched_yield();
	}
}

/* Skips GPU memory, because a NIC may have no key for it. */
const struct tei_meta_buffer *info_pair_buffer(const struct tei_meta_desc *d)
{
	for (uint32_t i = 0; i < d->buffer_count; i++)
		if (strncmp(d->buffers[i].location, "cuda:", 5))
			return &d->buffers[i];
	return NULL;
}

/* Replaces the zone of a link-local address with the interface of the local
 * endpoint, because the zone of another host has no meaning here. */
static void pair_set_zone(const struct fi_info *info, uint8_t *address)
{
	struct sockaddr_in6 own, its;

	if (info->addr_format != FI_SOCKADDR_IN6 || !info->src_addr ||
	    info->src_addrlen < sizeof(own))
		return;
	memcpy(&own, info->src_addr, sizeof(own));
	memcpy(&its, address, sizeof(its));
	if (!IN6_IS_ADDR_LINKLOCAL(&its.sin6_addr))
		return;
	its.sin6_scope_id = own.sin6_scope_id;
	memcpy(address, &its, sizeof(its));
}

static int pair_measure(struct pair *p, const struct tei_meta_desc *d,
			uint32_t remote, cJSON *o)
{
	const struct tei_meta_buffer *b = info_pair_buffer(d);
	bool virt = p->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
	size_t len = b->length < PAIR_BYTES ? b->length : PAIR_BYTES;
	uint64_t start = tei_now_ns(), best = UINT64_MAX, took;
	uint8_t address[sizeof(d->rails[remote].address.bytes)];
	fi_addr_t to;
	int ret, i;

	p->what = "fi_av_insert";
	memcpy(address, d->rails[remote].address.bytes, sizeof(address));
	pair_set_zone(p->info, address + INFO_ADDR_PREFIX);
	if (fi_av_insert(p->av, address + INFO_ADDR_PREFIX, 1, &to, 0, NULL) !=
	    1)
		return -FI_EINVAL;
	ret = pair_read(p, to, virt ? b->addr : 0, b->rkey[remote], len);
	info_num(o, "connect_us", (double)(tei_now_ns() - start) / 1e3);
	for (i = 0; i < PAIR_READS && !ret; i++) {
		start = tei_now_ns();
		ret = pair_read(p, to, virt ? b->addr : 0, b->rkey[remote],
				len);
		took = tei_now_ns() - start;
		best = took < best ? took : best;
	}
	if (!ret)
		info_num(o, "latency_us", (double)best / 1e3);
	return ret;
}

/* --- all remote rails ---------------------------------------------------- */

static bool pair_loopback(uint32_t format, const void *bytes)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;

	if (format == FI_SOCKADDR_IN || format == FI_SOCKADDR) {
		memcpy(&in, bytes, sizeof(in));
		return in.sin_family == AF_INET &&
		       ntohl(in.sin_addr.s_addr) >> 24 == 127;
	}
	if (format != FI_SOCKADDR_IN6)
		return false;
	memcpy(&in6, bytes, sizeof(in6));
	return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

/* Returns the length of an address in the provider's format, bytes. */
static uint32_t pair_addr_len(const struct fi_info *info)
{
	if (info->addr_format == FI_SOCKADDR_IN)
		return sizeof(struct sockaddr_in);
	if (info->addr_format == FI_SOCKADDR_IN6)
		return sizeof(struct sockaddr_in6);
	return info->src_addrlen && info->addr_format != FI_ADDR_STR ?
		       (uint32_t)info->src_addrlen : 1;
}

/* Returns the reason why the two rails cannot be a pair, or NULL. */
static const char *pair_unfit(const struct pair *p,
			      const struct tei_meta_rail *r,
			      const struct tei_meta_desc *d, uint32_t i)
{
	const struct tei_meta_buffer *b = info_pair_buffer(d);

	if (r->address.len < INFO_ADDR_PREFIX + pair_addr_len(p->info))
		return "the remote rail publishes no address";
	if (r->address.format != p->info->addr_format)
		return "the address format of the remote rail is different";
	if (strcmp(r->provider, p->opts->provider))
		return "the provider of the remote rail is different";
	if (p->info->src_addr &&
	    pair_loopback(r->address.format,
			  r->address.bytes + INFO_ADDR_PREFIX) !=
	    pair_loopback(p->info->addr_format, p->info->src_addr))
		return "only one rail of the pair is loopback";
	if (b->raw && b->raw[i].len)
		return "the keys of the remote rail are too long for this test";
	return NULL;
}

static void pair_remote(struct pair *p, const struct tei_meta_desc *d,
			uint32_t i)
{
	const struct tei_meta_rail *r = &d->rails[i];
	const char *why = pair_unfit(p, r, d, i);
	cJSON *o = cJSON_CreateObject();
	int ret = 0;

	info_text(o, "local", "%s", p->opts->rail);
	info_text(o, "remote", "%s", r->name);
	*p->text = '\0';
	if (!why) {
		ret = pair_endpoint(p);
		if (!ret)
			ret = pair_measure(p, d, i, o);
		pair_close_endpoint(p);
	}
	info_bool(o, "answers", !why && !ret);
	if (why)
		info_text(o, "error", "not tried: %s", why);
	else if (ret == -FI_ETIMEDOUT)
		info_text(o, "error", "no answer within %d s",
			  (int)(PAIR_NS / TEI_NS_PER_SEC));
	else if (ret)
		info_text(o, "error", "%s: %s%s%s", p->what, fi_strerror(-ret),
			  *p->text ? ", " : "", p->text);
	info_say("pair", o);
}

static struct tei_meta_desc *pair_fetch(const struct info_opts *opts,
					struct tei_meta_store **store)
{
	struct tei_meta_desc *desc = NULL;
	struct tei_err err;

	*store = info_child_store(opts);
	if (!*store)
		return NULL;
	if (!tei_meta_store_fetch(*store, opts->remote,
				  tei_now_ns() + INFO_STORE_NS, &desc,
				  &err))
		return desc;
	info_say_err("metadata", &err);
	tei_meta_store_close(*store);
	return NULL;
}

/* Prints the libfabric call that has failed, and its error, as "@error". */
static void pair_say(const struct pair *p, int ret)
{
	struct tei_err err = { .code = ret };

	snprintf(err.text, sizeof(err.text), "%s: %s", p->what,
		 fi_strerror(-ret));
	info_say_err(p->what, &err);
}

int info_pair_child(const struct info_opts *opts)
{
	struct pair p = { .opts = opts };
	struct tei_meta_store *store;
	struct tei_meta_desc *desc;
	uint32_t i;
	int ret;

	if (!opts->remote || !opts->rail || !opts->provider)
		return INFO_EXIT_USAGE;
	desc = pair_fetch(opts, &store);
	if (!desc)
		return 1;
	ret = pair_find(&p);
	if (!ret)
		ret = pair_domain(&p);
	if (ret)
		pair_say(&p, ret);
	for (i = 0; i < desc->rail_count && !ret && info_pair_buffer(desc); i++)
		pair_remote(&p, desc, i);
	pair_close(&p);
	tei_meta_desc_unref(desc);
	tei_meta_store_close(store);
	return ret ? 1 : 0;
}
