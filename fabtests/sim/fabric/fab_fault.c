/* SPDX-License-Identifier: BSD-2-Clause */
/* The functions with which tests and the plan of faults break and repair the
 * network. */

#include "fabtests/sim/fabric/fab.h"
#include "fabtests/sim/fabric/fab_msg.h"

static bool fault_same(struct sim_net_nic a, struct sim_net_nic b)
{
	return a.host == b.host && a.nic == b.nic;
}

/* Informs the process of a host that links have changed. */
static void fault_report(uint32_t host)
{
	struct fab_host *h = &fab_net->hosts[host];

	h->changed = true;
	if (h->changes_fd >= 0)
		fab_fd_fire(h->changes_fd);
}

void sim_net_nic_link(struct sim_net_nic nic, bool up)
{
	struct fab_nic *n = fab_nic_get(nic);

	if (n->up == up)
		return;
	n->up = up;
	SIM_TRACE(nic.host, "link", nic.nic, up);
	fault_report(nic.host);
	fab_wire_release();
}

void sim_net_power(uint32_t host, bool on)
{
	fab_nic_get((struct sim_net_nic){ host, 0 });
	fab_net->hosts[host].power = on;
	SIM_TRACE(host, "power", on);
	fab_wire_release();
}

/* Closes the connections between two NICs at the sides of `a`. If `both` is
 * true, closes them at the sides of `b` too. */
static void fault_reset(struct sim_net_nic a, struct sim_net_nic b, bool both)
{
	struct fab_conn *c, *next;
	int side;

	tei_list_foreach_safe (c, next, &fab_net->conns, struct fab_conn,
			       link) {
		side = fault_same(c->addr[0].at, a) &&
				       fault_same(c->addr[1].at, b)
			       ? 0
		       : fault_same(c->addr[1].at, a) &&
				       fault_same(c->addr[0].at, b)
			       ? 1
			       : -1;
		if (side < 0)
			continue;
		c->refs++;
		fab_side_close(&c->side[side], fab_conn_error(), false);
		if (both)
			fab_side_close(&c->side[!side], fab_conn_error(),
				       false);
		fab_conn_put(c);
	}
}

void sim_net_reset(struct sim_net_nic a, struct sim_net_nic b)
{
	SIM_TRACE(a.host, "reset", a.nic, b.host, b.nic);
	fault_reset(a, b, true);
}

void sim_net_reset_side(struct sim_net_nic a, struct sim_net_nic b)
{
	SIM_TRACE(a.host, "reset side", a.nic, b.host, b.nic);
	fault_reset(a, b, false);
}

void sim_net_fault_get(struct sim_net_nic nic, struct sim_net_fault *fault)
{
	*fault = fab_nic_get(nic)->fault;
}

void sim_net_fault_set(struct sim_net_nic nic,
		       const struct sim_net_fault *fault)
{
	fab_nic_get(nic)->fault = *fault;
	SIM_TRACE(nic.host, "fault", nic.nic, fault->again_ns, fault->again_ppm,
		  fault->late_ns, fault->late_ppm, fault->lose, fault->flush,
		  (uint64_t)fault->mr_refuse, (uint64_t)fault->ep_refuse);
}
