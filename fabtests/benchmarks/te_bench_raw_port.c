/* SPDX-License-Identifier: BSD-2-Clause */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "fabtests/benchmarks/te_bench_raw.h"

enum { PORT_MR_MODES = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
		       FI_MR_PROV_KEY | FI_MR_ENDPOINT };

int raw_error(const char *call, int ret)
{
	fprintf(stderr, "te_bench: %s: %s\n", call, fi_strerror(-ret));
	return -1;
}

/* Copies the first name in --device_name to `buf`. Without the option, `buf`
 * becomes an empty string. */
static void port_device(const struct bench_opts *opts, char *buf, size_t len)
{
	const char *list = opts->device_name ? opts->device_name : "";

	snprintf(buf, len, "%.*s", (int)strcspn(list, ","), list);
}

/* If `name` is the name of a network interface, replaces it by the first IP
 * address of the interface. Otherwise leaves it as it is. */
static void port_address(char *name, size_t len)
{
	struct ifaddrs *list, *at;

	if (getifaddrs(&list))
		return;
	for (at = list; at; at = at->ifa_next) {
		sa_family_t family = at->ifa_addr ? at->ifa_addr->sa_family : 0;
		socklen_t size = family == AF_INET ?
			sizeof(struct sockaddr_in) :
			sizeof(struct sockaddr_in6);

		if (strcmp(at->ifa_name, name) ||
		    (family != AF_INET && family != AF_INET6))
			continue;
		getnameinfo(at->ifa_addr, size, name, (socklen_t)len, NULL, 0,
			    NI_NUMERICHOST);
		break;
	}
	freeifaddrs(list);
}

/* Returns the names of the libfabric providers to try for --protocol, in order;
 * NULL ends the array. */
static const char *const *port_providers(const struct bench_opts *opts)
{
	static const char *const tcp1[] = { "tcp;ofi_rxm", "tcp", NULL };
	static const char *const tcp2[] = { "tcp", "tcp;ofi_rxm", NULL };
	static const char *const shm[] = { "shm", NULL };
	static const char *const rdma[] = { "verbs;ofi_rxm", "efa", "cxi",
					    "psm3", "opx", NULL };

	if (!strcmp(opts->protocol, "shm"))
		return shm;
	if (!strcmp(opts->protocol, "rdma"))
		return rdma;
	return FI_MAJOR(fi_version()) < 2 ? tcp1 : tcp2;
}

static struct fi_info *port_hints(const struct bench_opts *opts,
				  const char *provider)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		return NULL;
	hints->caps = FI_MSG | FI_RMA;
	hints->mode = FI_CONTEXT | FI_CONTEXT2;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = PORT_MR_MODES;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->tx_attr->tclass = FI_TC_BULK_DATA;
	if (opts->plain_calls)
		hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}

static int port_find_one(struct raw_port *port, const struct bench_opts *opts,
			 const char *provider)
{
	struct fi_info *hints = port_hints(opts, provider);
	char device[256];
	const char *node = NULL;
	int ret;

	if (!hints)
		return -FI_ENOMEM;
	port_device(opts, device, sizeof(device));
	if (!strcmp(opts->protocol, "rdma")) {
		if (*device)
			hints->domain_attr->name = strdup(device);
	} else if (strcmp(provider, "shm")) {
		port_address(device, sizeof(device));
		node = *device ? device : "127.0.0.1";
	}
	ret = fi_getinfo(FI_VERSION(1, 17), node, NULL, node ? FI_SOURCE : 0,
			 hints, &port->info);
	fi_freeinfo(hints);
	return ret;
}

static int port_find(struct raw_port *port, const struct bench_opts *opts)
{
	const char *const *providers = port_providers(opts);
	const char *const pinned[] = { opts->provider, NULL };
	int ret = -FI_ENODATA;

	if (opts->provider)
		providers = pinned;
	for (; *providers; providers++) {
		ret = port_find_one(port, opts, *providers);
		if (!ret)
			return 0;
	}
	fprintf(stderr, "te_bench: libfabric has no provider for "
		"--protocol=%s%s%s%s%s: %s\n", opts->protocol,
		opts->provider ? " --provider=" : "",
		opts->provider ? opts->provider : "",
		opts->device_name ? " --device_name=" : "",
		opts->device_name ? opts->device_name : "", fi_strerror(-ret));
	return -1;
}

static int port_open_domain(struct raw_port *port, bool wait_fd)
{
	struct fi_cq_attr cq = {
		.size = port->info->tx_attr->size,
		.format = FI_CQ_FORMAT_CONTEXT,
		.wait_obj = wait_fd ? FI_WAIT_FD : FI_WAIT_NONE,
	};
	struct fi_av_attr av = { .type = FI_AV_TABLE, .count = 1 };
	int ret;

	ret = fi_fabric(port->info->fabric_attr, &port->fabric, NULL);
	if (ret)
		return raw_error("fi_fabric", ret);
	ret = fi_domain(port->fabric, port->info, &port->domain, NULL);
	if (ret)
		return raw_error("fi_domain", ret);
	ret = fi_cq_open(port->domain, &cq, &port->cq, NULL);
	if (ret)
		return raw_error("fi_cq_open", ret);
	ret = fi_av_open(port->domain, &av, &port->av, NULL);
	if (ret)
		return raw_error("fi_av_open", ret);
	return 0;
}

static int port_open_ep(struct raw_port *port)
{
	int ret;

	ret = fi_endpoint(port->domain, port->info, &port->ep, NULL);
	if (ret)
		return raw_error("fi_endpoint", ret);
	ret = fi_ep_bind(port->ep, &port->av->fid, 0);
	if (ret)
		return raw_error("fi_ep_bind", ret);
	ret = fi_ep_bind(port->ep, &port->cq->fid, FI_TRANSMIT | FI_RECV);
	if (ret)
		return raw_error("fi_ep_bind", ret);
	ret = fi_enable(port->ep);
	if (ret)
		return raw_error("fi_enable", ret);
	port->self.addr_len = sizeof(port->self.addr);
	ret = fi_getname(&port->ep->fid, port->self.addr, &port->self.addr_len);
	if (ret)
		return raw_error("fi_getname", ret);
	return 0;
}

int raw_port_register(struct raw_port *port, const void *addr, size_t len,
		      uint64_t key, struct fid_mr **mr)
{
	int ret;

	ret = fi_mr_reg(port->domain, addr, len,
			FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE,
			0, key, 0, mr, NULL);
	if (ret)
		return raw_error("fi_mr_reg", ret);
	if (!(port->info->domain_attr->mr_mode & FI_MR_ENDPOINT))
		return 0;
	ret = fi_mr_bind(*mr, &port->ep->fid, 0);
	if (!ret)
		ret = fi_mr_enable(*mr);
	if (!ret)
		return 0;
	fi_close(&(*mr)->fid);
	*mr = NULL;
	return raw_error("fi_mr_enable", ret);
}

static int port_register(struct raw_port *port,
			 const struct bench_memory *memory)
{
	int mode = port->info->domain_attr->mr_mode;
	uint32_t key = 0;

	if (getrandom(&key, sizeof(key), 0) < 0 ||
	    raw_port_register(port, memory->addr, memory->size, key,
			      &port->mr))
		return -1;
	port->self.key = fi_mr_key(port->mr);
	port->self.base = mode & FI_MR_VIRT_ADDR ?
			  (uint64_t)(uintptr_t)memory->addr : 0;
	return 0;
}

int raw_port_open(struct raw_port *port, const struct bench_opts *opts,
		  const struct bench_memory *memory)
{
	memset(port, 0, sizeof(*port));
	if (port_find(port, opts) || port_open_domain(port, opts->wait_fd) ||
	    port_open_ep(port) || port_register(port, memory)) {
		raw_port_close(port);
		return -1;
	}
	return 0;
}

void raw_port_close(struct raw_port *port)
{
	struct fid *fids[] = {
		port->mr ? &port->mr->fid : NULL,
		port->ep ? &port->ep->fid : NULL,
		port->cq ? &port->cq->fid : NULL,
		port->av ? &port->av->fid : NULL,
		port->domain ? &port->domain->fid : NULL,
		port->fabric ? &port->fabric->fid : NULL,
	};

	for (size_t i = 0; i < sizeof(fids) / sizeof(fids[0]); i++)
		if (fids[i])
			fi_close(fids[i]);
	if (port->info)
		fi_freeinfo(port->info);
	memset(port, 0, sizeof(*port));
}
