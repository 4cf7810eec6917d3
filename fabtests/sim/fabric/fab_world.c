/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions of tei_world.net: sockets, interfaces and links of the current
 * host, which in the real world come from the kernel. */

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"
#include "util/world.h"

#define WORLD_MSS	1448
#define WORLD_RTO_MS	200

static uint32_t world_host(void)
{
	struct sim_host *host = sim_host_current();

	return host ? sim_host_id(host) : 0;
}

/* --- sockets --- */

static int side_fd(struct fab_side *s)
{
	if (s->fd < 0)
		s->fd = fab_fd_new(FAB_FD_CONN, s);
	return s->fd;
}

static void world_call(int fd, tei_net_socket_fn *fn, void *arg)
{
	struct tei_socket s = { .fd = fd, .ino = (unsigned long)fd };

	fn(&s, arg);
}

static void world_ep_sockets(struct fab_ep *ep, tei_net_socket_fn *fn,
			     void *arg)
{
	struct fab_side *s, *tmp;

	if (ep->fd < 0)
		ep->fd = fab_fd_new(FAB_FD_LISTEN, ep);
	world_call(ep->fd, fn, arg);
	tei_list_foreach_safe (s, tmp, &ep->sides, struct fab_side, link)
		if (!s->shut)
			world_call(side_fd(s), fn, arg);
}

static void world_sockets(int fd, unsigned long ino, tei_net_socket_fn *fn,
			  void *arg)
{
	struct fab_fd *f = fab_fd_get(fd);
	struct fab_cq *cq;
	struct fab_ep *ep;

	if (!f || !fab_net->conf.ip || (ino && ino != (unsigned long)fd))
		return;
	if (f->kind != FAB_FD_CQ) {
		if (f->kind != FAB_FD_CHANGES)
			world_call(fd, fn, arg);
		return;
	}
	cq = f->of;
	tei_list_foreach (ep, &cq->tx_eps, struct fab_ep, in_tx)
		world_ep_sockets(ep, fn, arg);
	tei_list_foreach (ep, &cq->rx_eps, struct fab_ep, in_rx)
		world_ep_sockets(ep, fn, arg);
}

static bool world_same(const struct tei_socket *s)
{
	return fab_fd_get(s->fd) && s->ino == (unsigned long)s->fd;
}

/* Returns the side whose socket has the file descriptor, or NULL. */
static struct fab_side *world_side(int fd)
{
	struct fab_fd *f = fab_fd_get(fd);

	return f && f->kind == FAB_FD_CONN ? f->of : NULL;
}

static int world_write(const struct fab_addr *a, struct sockaddr *sa,
		       uint32_t *len)
{
	char text[FAB_ADDR_MAX];
	size_t n = fab_addr_write(a, text);

	memcpy(sa, text, n < *len ? n : *len);
	*len = (uint32_t)n;
	return 0;
}

/* Returns the address of one end of the side's socket. The initiator's end has
 * an ephemeral port, as with TCP. */
static struct fab_addr world_end(const struct fab_side *s, int index)
{
	struct fab_addr a = s->conn->addr[index];

	if (!index)
		a.port = s->conn->ephemeral;
	return a;
}

static int world_own_addr(int fd, struct sockaddr *sa, uint32_t *len)
{
	struct fab_fd *f = fab_fd_get(fd);
	struct fab_addr a;

	if (!f || (f->kind != FAB_FD_LISTEN && f->kind != FAB_FD_CONN))
		return EBADF;
	if (f->kind == FAB_FD_LISTEN)
		a = ((struct fab_ep *)f->of)->addr;
	else
		a = world_end(f->of, ((struct fab_side *)f->of)->index);
	return world_write(&a, sa, len);
}

static int world_peer_addr(int fd, struct sockaddr *sa, uint32_t *len)
{
	struct fab_side *s = world_side(fd);
	struct fab_addr a;

	if (!s)
		return fab_fd_get(fd) ? ENOTCONN : EBADF;
	if (s->state != FAB_SIDE_UP)
		return ENOTCONN;
	a = world_end(s, !s->index);
	return world_write(&a, sa, len);
}

static bool world_listens(int fd)
{
	struct fab_fd *f = fab_fd_get(fd);

	return f && f->kind == FAB_FD_LISTEN;
}

static uint32_t world_ms_since(uint64_t ns)
{
	uint64_t ms = (sim_now() - ns) / SIM_MS;

	return ms > UINT32_MAX ? UINT32_MAX : (uint32_t)ms;
}

/* Returns how often TCP would have retransmitted the held packets so far, if
 * the time between two attempts doubles each time. */
static uint32_t world_retransmits(const struct fab_side *s)
{
	uint32_t ms, n = 0;

	if (tei_list_empty(&s->held))
		return 0;
	for (ms = world_ms_since(s->held_ns) / WORLD_RTO_MS; ms; ms /= 2)
		n++;
	return n;
}

/* Returns the number of bytes in the side's queue, including headers. */
static uint32_t world_unsent(const struct fab_side *s)
{
	const struct fab_msg *m;
	uint64_t bytes = 0;

	tei_list_foreach (m, &s->queue, struct fab_msg, link)
		bytes += m->kind == FAB_READ || m->kind == FAB_ACK ?
				 64 : m->len - m->sent + 64;
	return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static bool world_tcp_state(int fd, struct tei_tcp_state *out)
{
	struct fab_side *s = world_side(fd);
	uint64_t window = fab_net ? fab_net->conf.window : 0;

	if (!s)
		return false;
	memset(out, 0, sizeof(*out));
	out->established = s->state == FAB_SIDE_UP && !s->shut;
	out->has_window = true;
	out->unacked = (uint32_t)s->on_wire;
	out->notsent_bytes = world_unsent(s);
	out->retransmits = world_retransmits(s);
	out->snd_wnd = s->flight < window ? (uint32_t)(window - s->flight) : 0;
	out->snd_mss = WORLD_MSS;
	out->last_data_sent = world_ms_since(s->sent_ns);
	out->last_data_recv = world_ms_since(s->recv_ns);
	out->last_ack_recv = world_ms_since(s->ack_ns);
	out->bytes_acked = s->acked_bytes;
	out->bytes_received = s->received_bytes;
	return true;
}

static void world_cut(int fd)
{
	struct fab_side *s = world_side(fd);

	if (s)
		fab_side_shut(s);
}

static int world_dup(int fd)
{
	struct fab_fd *f = fab_fd_get(fd);
	int copy;

	if (!f)
		return -1;
	copy = fab_fd_new(FAB_FD_DUP, NULL);
	fab_net->fds[copy - FAB_FD_BASE].dup = fd;
	return copy;
}

static void world_close(int fd)
{
	fab_fd_close(fd);
}

static enum tei_net_answer world_connect(const struct sockaddr *sa,
					 uint32_t len, uint64_t wait_ns)
{
	struct fab_addr to;
	uint32_t host = world_host();
	bool stalled;
	struct sim_net_nic from;
	uint64_t start = sim_now();

	if (!fab_addr_read(sa, len, &to))
		return TEI_NET_SILENT;
	from.host = host;
	from.nic = to.at.nic;
	if (fab_path_blocked(from, to.at, &stalled) ||
	    fab_path_blocked(to.at, from, &stalled)) {
		if (sim_fiber_current())
			sim_sleep_until(start + wait_ns);
		return TEI_NET_SILENT;
	}
	if (sim_fiber_current())
		sim_sleep_until(start + 2 * fab_net->conf.latency_ns);
	return fab_ep_at(&to) ? TEI_NET_ACCEPTED : TEI_NET_REFUSED;
}

static enum tei_net_bind world_bindable(const struct sockaddr *sa,
					uint32_t len, bool listens)
{
	struct fab_addr a;

	if (!fab_addr_read(sa, len, &a) || a.at.host != world_host())
		return TEI_NET_BIND_ABSENT;
	return listens && a.port && fab_ep_at(&a) ? TEI_NET_BIND_BUSY :
						    TEI_NET_BIND_FREE;
}

/* --- interfaces --- */

/* One entry of the list of interfaces, with the memory to which the entry
 * points. */
struct world_interface {
	struct ifaddrs ifa;
	char name[IF_NAMESIZE];
	struct sockaddr_in addr, mask;
};

static int world_interfaces(struct ifaddrs **out)
{
	struct fab_addr a = { .at = { world_host(), 0 } };
	struct ifaddrs **tail = out;
	struct world_interface *w;
	uint32_t i, len;

	*out = NULL;
	for (i = 0; fab_net && i < fab_net->nnics; i++) {
		w = fab_alloc(sizeof(*w));
		a.at.nic = i;
		len = sizeof(w->addr);
		snprintf(w->name, sizeof(w->name), "sim%u", i);
		if (fab_net->conf.ip)
			world_write(&a, (struct sockaddr *)&w->addr, &len);
		w->mask.sin_family = AF_INET;
		w->mask.sin_addr.s_addr = htonl(0xffff0000);
		w->ifa.ifa_name = w->name;
		w->ifa.ifa_flags = IFF_UP | (fab_nic_get(a.at)->up ?
						     IFF_RUNNING : 0);
		if (fab_net->conf.ip) {
			w->ifa.ifa_addr = (struct sockaddr *)&w->addr;
			w->ifa.ifa_netmask = (struct sockaddr *)&w->mask;
		}
		*tail = &w->ifa;
		tail = &w->ifa.ifa_next;
	}
	return 0;
}

static void world_interfaces_free(struct ifaddrs *list)
{
	struct ifaddrs *next;

	for (; list; list = next) {
		next = list->ifa_next;
		free(tei_container_of(list, struct world_interface, ifa));
	}
}

static uint32_t world_interface_index(const char *name)
{
	unsigned int i;
	int end = 0;

	if (!fab_net || sscanf(name, "sim%u%n", &i, &end) != 1 || name[end] ||
	    i >= fab_net->nnics)
		return 0;
	return i + 1;
}

static bool world_interface_name(uint32_t index, char *name)
{
	if (!fab_net || !index || index > fab_net->nnics)
		return false;
	snprintf(name, IF_NAMESIZE, "sim%u", index - 1);
	return true;
}

static int world_interface_up(uint32_t index)
{
	struct sim_net_nic at = { world_host(), index - 1 };

	return fab_net && index && index <= fab_net->nnics &&
	       fab_nic_get(at)->up;
}

static int world_changes_open(void)
{
	struct fab_host *h;

	if (!fab_net)
		return -1;
	h = &fab_net->hosts[world_host()];
	if (h->changes_fd < 0)
		h->changes_fd = fab_fd_new(FAB_FD_CHANGES, h);
	return h->changes_fd;
}

static bool world_changes_read(int fd)
{
	struct fab_fd *f = fab_fd_get(fd);
	struct fab_host *h;
	bool changed;

	if (!f || f->kind != FAB_FD_CHANGES)
		return false;
	h = f->of;
	changed = h->changed;
	h->changed = false;
	return changed;
}

const struct tei_world_net sim_net_world = {
	.kernel_fds = false,
	.sockets = world_sockets,
	.same = world_same,
	.own_addr = world_own_addr,
	.peer_addr = world_peer_addr,
	.listens = world_listens,
	.tcp_state = world_tcp_state,
	.cut = world_cut,
	.dup = world_dup,
	.close = world_close,
	.connect = world_connect,
	.bindable = world_bindable,
	.interfaces = world_interfaces,
	.interfaces_free = world_interfaces_free,
	.interface_index = world_interface_index,
	.interface_name = world_interface_name,
	.interface_up = world_interface_up,
	.changes_open = world_changes_open,
	.changes_read = world_changes_read,
};
