/* SPDX-License-Identifier: BSD-2-Clause */
/* The network: its NICs and paths, and the list of all libfabric objects. */

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

struct fab_net *fab_net;

void *fab_alloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		sim_fail("network: no memory for %zu bytes", size);
	return p;
}

/* --- settings --- */

void sim_net_conf_tcp(struct sim_net_conf *conf)
{
	*conf = (struct sim_net_conf){
		.ip = true,
		.wait_fd = true,
		.eq = true,
		.msg_order = FI_ORDER_SAS | FI_ORDER_WAW | FI_ORDER_WAS |
			     FI_ORDER_SAW | FI_ORDER_RAR | FI_ORDER_RAW |
			     FI_ORDER_RAS,
		.tx_size = 256,
		.rx_size = 1024,
		.iov_limit = 4,
		.rma_iov_limit = 4,
		.inject_size = 64,
		.max_msg_size = UINT64_C(1) << 40,
		.refusal_breaks = true,
		.stale_refuses = true,
		.packet = 65536,
		.window = 4 << 20,
		.unexpected = 1024,
		.connect_ns = 10 * SIM_SEC,
		.retry_ns = 0,
		.rto_ns = 200 * SIM_MS,
		.linger_ns = 60 * SIM_SEC,
		.latency_ns = 20 * SIM_US,
		.bandwidth = UINT64_C(1250000000),
	};
}

void sim_net_conf_verbs(struct sim_net_conf *conf)
{
	*conf = (struct sim_net_conf){
		.wait_fd = true,
		.eq = true,
		.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
			   FI_MR_PROV_KEY,
		.msg_order = FI_ORDER_SAS,
		.tx_size = 256,
		.rx_size = 256,
		.iov_limit = 4,
		.rma_iov_limit = 1,
		.inject_size = 64,
		.max_msg_size = UINT64_C(1) << 30,
		.auto_progress = true,
		.key_per_packet = true,
		.refusal_breaks = true,
		.unordered = true,
		.packet = 4096,
		.window = 256 << 10,
		.unexpected = 256,
		.connect_ns = 2 * SIM_SEC,
		.retry_ns = 500 * SIM_MS,
		.rto_ns = 4 * SIM_MS,
		.linger_ns = 500 * SIM_MS,
		.latency_ns = 2 * SIM_US,
		.bandwidth = UINT64_C(12500000000),
	};
}

/* --- the objects --- */

void fab_obj_add(struct fab_obj *obj, enum fab_kind kind,
		 void (*drop)(struct fab_obj *obj))
{
	struct sim_host *host = sim_host_current();

	obj->kind = kind;
	obj->host = host ? sim_host_id(host) : SIM_NO_HOST;
	obj->life = host ? sim_host_life(host) : 0;
	obj->drop = drop;
	tei_list_add_tail(&fab_net->objs, &obj->link);
}

void fab_obj_del(struct fab_obj *obj)
{
	tei_list_del(&obj->link);
}

static void net_count(enum fab_kind kind, struct sim_net_stats *stats)
{
	switch (kind) {
	case FAB_DOMAIN:
		stats->domains++;
		break;
	case FAB_EP:
		stats->endpoints++;
		break;
	case FAB_MR:
		stats->mrs++;
		break;
	case FAB_CQ:
	case FAB_EQ:
		stats->queues++;
		break;
	case FAB_AV:
		stats->avs++;
		break;
	case FAB_CNTR:
		stats->counters++;
		break;
	case FAB_FABRIC:
		break;
	}
}

/* Returns true if the object belongs to the present process of a host, or to no
 * host. Returns false if its process was killed. */
static bool net_lives(const struct fab_obj *obj)
{
	struct sim_host *host;

	if (obj->host == SIM_NO_HOST)
		return true;
	host = sim_host_get(obj->host);
	return !sim_host_killed(host) && sim_host_life(host) == obj->life;
}

void sim_net_stats_get(uint32_t host, struct sim_net_stats *stats)
{
	struct fab_obj *obj;
	struct fab_conn *c;

	*stats = fab_net->stats;
	tei_list_foreach (c, &fab_net->conns, struct fab_conn, link)
		stats->connections += c->side[0].state == FAB_SIDE_UP ||
				      c->side[1].state == FAB_SIDE_UP;
	tei_list_foreach (obj, &fab_net->objs, struct fab_obj, link)
		if (net_lives(obj) &&
		    (host == SIM_NO_HOST || obj->host == host))
			net_count(obj->kind, stats);
}

/* Frees all objects of one kind. */
static void net_drop(enum fab_kind kind)
{
	struct fab_obj *obj, *tmp;

	tei_list_foreach_safe (obj, tmp, &fab_net->objs, struct fab_obj, link)
		if (obj->kind == kind)
			obj->drop(obj);
}

/* --- hosts --- */

static void net_host_changed(void *arg, struct sim_host *host)
{
	struct fab_obj *obj;
	uint32_t i;

	(void)arg;
	if (!fab_net || !sim_host_killed(host))
		return;
	for (i = 0; fab_net->conf.ports && i < fab_net->nnics; i++)
		fab_net->nics[sim_host_id(host) * fab_net->nnics + i]
			.next_port = FAB_PORT;
	tei_list_foreach (obj, &fab_net->objs, struct fab_obj, link)
		if (obj->kind == FAB_EP && obj->host == sim_host_id(host))
			fab_ep_stop(tei_container_of(obj, struct fab_ep, obj),
				    true);
}

/* --- NICs and paths --- */

static void net_nic_init(struct fab_nic *nic, uint32_t host, uint32_t index)
{
	uint64_t number = (uint64_t)host * fab_net->nnics + index;

	nic->at.host = host;
	nic->at.nic = index;
	nic->up = true;
	nic->next_port = FAB_PORT;
	tei_list_init(&nic->sending);
	tei_list_init(&nic->eps);
	sim_rng_init(&nic->rng, "nic", number);
	sim_rng_init(&nic->fault_rng, "nic faults", number);
}

void sim_net_begin(const struct sim_net_conf *conf, uint32_t nics)
{
	uint32_t i, j;

	if (fab_net || !nics || nics > 64)
		sim_fail("network: already begun, or %u NICs per host (must be 1 to 64)",
			 nics);
	fab_net = fab_alloc(sizeof(*fab_net));
	fab_net->conf = *conf;
	fab_net->nhosts = sim_host_count();
	fab_net->nnics = nics;
	tei_list_init(&fab_net->held);
	tei_list_init(&fab_net->flying);
	tei_list_init(&fab_net->objs);
	tei_list_init(&fab_net->conns);
	for (i = 0; i < FAB_PATHS; i++)
		tei_list_init(&fab_net->paths[i]);
	fab_net->nics = fab_alloc((size_t)fab_net->nhosts * nics *
				  sizeof(*fab_net->nics));
	fab_net->hosts = fab_alloc(fab_net->nhosts * sizeof(*fab_net->hosts));
	for (i = 0; i < fab_net->nhosts; i++) {
		fab_net->hosts[i].power = true;
		fab_net->hosts[i].changes_fd = -1;
		for (j = 0; j < nics; j++)
			net_nic_init(&fab_net->nics[i * nics + j], i, j);
	}
	sim_host_watch(net_host_changed, NULL);
}

static void net_free_paths(void)
{
	struct fab_path *p, *tmp;
	int i;

	for (i = 0; i < FAB_PATHS; i++)
		tei_list_foreach_safe (p, tmp, &fab_net->paths[i],
				       struct fab_path, link)
			free(p);
}

void sim_net_end(void)
{
	uint32_t i;

	net_drop(FAB_EP);
	net_drop(FAB_MR);
	net_drop(FAB_CNTR);
	net_drop(FAB_EQ);
	net_drop(FAB_AV);
	net_drop(FAB_CQ);
	net_drop(FAB_DOMAIN);
	net_drop(FAB_FABRIC);
	fab_wire_end();
	for (i = 0; i < fab_net->nhosts * fab_net->nnics; i++)
		if (fab_net->nics[i].pump)
			sim_cancel(fab_net->nics[i].pump);
	net_free_paths();
	free(fab_net->nics);
	free(fab_net->hosts);
	free(fab_net->fds);
	free(fab_net);
	fab_net = NULL;
}

struct fab_nic *fab_nic_get(struct sim_net_nic at)
{
	if (at.host >= fab_net->nhosts || at.nic >= fab_net->nnics)
		sim_fail("network: there is no NIC %u of host %u", at.nic,
			 at.host);
	return &fab_net->nics[at.host * fab_net->nnics + at.nic];
}

static bool net_same(struct sim_net_nic a, struct sim_net_nic b)
{
	return a.host == b.host && a.nic == b.nic;
}

static struct tei_list *net_bucket(struct sim_net_nic from,
				   struct sim_net_nic to)
{
	uint32_t hash =
		((from.host * 64 + from.nic) * 31 + to.host) * 64 + to.nic;

	return &fab_net->paths[(hash * UINT32_C(2654435761)) >> 24];
}

static struct fab_path *net_path(struct sim_net_nic from, struct sim_net_nic to)
{
	struct fab_path *p;

	if (!fab_net->npaths)
		return NULL;
	tei_list_foreach (p, net_bucket(from, to), struct fab_path, link)
		if (net_same(p->from, from) && net_same(p->to, to))
			return p;
	return NULL;
}

void fab_path_find(struct sim_net_nic from, struct sim_net_nic to,
		   struct sim_net_path *p, uint64_t **free_ns)
{
	struct fab_path *path = net_path(from, to);

	*free_ns = NULL;
	if (path) {
		*p = path->p;
		if (path->p.bandwidth)
			*free_ns = &path->free_ns;
		return;
	}
	memset(p, 0, sizeof(*p));
	p->latency_ns = fab_net->conf.latency_ns;
	p->jitter_ns = fab_net->conf.jitter_ns;
}

bool fab_path_blocked(struct sim_net_nic from, struct sim_net_nic to,
		      bool *stalled)
{
	struct fab_path *path = net_path(from, to);

	*stalled = false;
	if (!fab_nic_get(from)->up || !fab_nic_get(to)->up ||
	    !fab_net->hosts[from.host].power || !fab_net->hosts[to.host].power)
		return true;
	if (!path)
		return false;
	*stalled = !path->p.blocked && path->p.stalled;
	return path->p.blocked || path->p.stalled;
}

void sim_net_path_get(struct sim_net_nic from, struct sim_net_nic to,
		      struct sim_net_path *path)
{
	uint64_t *none;

	fab_path_find(from, to, path, &none);
}

void sim_net_path_set(struct sim_net_nic from, struct sim_net_nic to,
		      const struct sim_net_path *path)
{
	struct fab_path *p = net_path(from, to);

	fab_nic_get(from);
	fab_nic_get(to);
	if (!p) {
		p = fab_alloc(sizeof(*p));
		p->from = from;
		p->to = to;
		tei_list_add_tail(net_bucket(from, to), &p->link);
		fab_net->npaths++;
	}
	p->p = *path;
	SIM_TRACE(SIM_NO_HOST, "path", from.host, from.nic, to.host, to.nic,
		  path->blocked, path->stalled, path->latency_ns,
		  path->bandwidth);
	fab_wire_release();
}

void sim_net_path_block(struct sim_net_nic from, struct sim_net_nic to,
			bool blocked)
{
	struct sim_net_path path;

	sim_net_path_get(from, to, &path);
	path.blocked = blocked;
	sim_net_path_set(from, to, &path);
}

/* --- the provider's place --- */

void sim_net_provider(const char *folder)
{
	char self[PATH_MAX], path[PATH_MAX + 8], file[PATH_MAX + 32];
	ssize_t n;

	if (!folder) {
		n = readlink("/proc/self/exe", self, sizeof(self) - 1);
		if (n < 0)
			sim_fail("network: the program's folder is unknown");
		self[n] = '\0';
		snprintf(path, sizeof(path), "%s/sim", dirname(self));
		folder = path;
	}
	snprintf(file, sizeof(file), "%s/libsim-fi.so", folder);
	if (access(file, R_OK))
		sim_fail("network: %s: %s; make builds it", file,
			 strerror(errno));
	setenv("FI_PROVIDER_PATH", folder, 1);
	setenv("FI_PROVIDER", "sim", 1);
}
