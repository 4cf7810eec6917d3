/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * First contact with a target of which some addresses lead nowhere, or to
 * another process. Host a is this process, the target is on host b; the rails
 * r0 and r1 connect them. Each case opens the segment, writes, and compares
 * every byte. After that, te_info must name the addresses that answered.
 *
 * "ft_contact" runs all cases one after the other, "ft_contact CASE" runs one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_options.h"
#include "fabtests/functional/fx_links.h"

#define CONTACT_LEN FX_MIB
/* time limit for the first write, ms; on a machine without other load it takes
 * 100 to 300 */
#define CONTACT_MS 3000
#define CONTACT_SEED 11
/* number of processes that are started until one gets the wanted port; on
 * average every second one does */
#define CONTACT_DECOYS 40

/* Parameters of one case. Host a is this process. */
struct contact {
	const char *name;
	const char *host;	/* address of the target's control port */
	const char *own;	/* address of the initiator's control port */
	const char *devices;	/* MOONRAIL_DEVICES of the target; "" means all
				 * devices */
	const char *own_devices;
	const char *ipv6;	/* MC_USE_IPV6 of both: "0" or "1" */
	const char *good[2];	/* addresses of the target that answer, or NULL;
				 * without any, te_info is not run */
	const char *bad;	/* address of the target that does not answer,
				 * or NULL */
	bool check;		/* true: te_info also checks the whole
				 * machine */
};

/* --- the network ---------------------------------------------------------- */

static bool contact_sh(const char *line)
{
	int ret = system(line);

	if (ret)
		ft_diag("%s: exit status %d", line, ret);
	return !ret;
}

/* Adds an interface with this address to host b. The interface has no
 * connection to another host. */
static bool contact_private(const char *address)
{
	char line[256];

	snprintf(line, sizeof(line),
		 "ip -n \"$RAILS_PEER\" link add priv0 type veth peer name dark &&"
		 "ip -n \"$RAILS_PEER\" addr add %s dev priv0 &&"
		 "ip -n \"$RAILS_PEER\" link set dark up &&"
		 "ip -n \"$RAILS_PEER\" link set priv0 up", address);
	return contact_sh(line);
}

/* --- the target and the initiator ----------------------------------------- */

static bool contact_target(struct fx_peer *target, const struct contact *c)
{
	char host[96], netns[128], devices[96], ipv6[32];

	snprintf(host, sizeof(host), "host=%s", c->host);
	snprintf(netns, sizeof(netns), "netns=%s", getenv("RAILS_PEER"));
	snprintf(devices, sizeof(devices), "MOONRAIL_DEVICES=%s", c->devices);
	snprintf(ipv6, sizeof(ipv6), "MC_USE_IPV6=%s", c->ipv6);
	return fx_peer_start(target, CONTACT_LEN, host, netns, devices, ipv6,
			     NULL) &&
	       !fx_ask(target, "reg 0 %llu 1", CONTACT_LEN);
}

/* Copies the text "ADDRESS:PORT" of the peer's rail with this address to `out`.
 * `out` is "" if the peer has no such rail. */
static void contact_address(struct fx_peer *peer, const char *address,
			    char out[96])
{
	char *at, *save = NULL, text[sizeof(peer->text)];

	out[0] = '\0';
	if (fx_ask(peer, "rails") < 0)
		return;
	snprintf(text, sizeof(text), "%s", peer->text);
	for (at = strtok_r(text, " ", &save); at; at = strtok_r(NULL, " ", &save))
		if (!strncmp(at, address, strlen(address)) &&
		    at[strlen(address)] == ':')
			snprintf(out, 96, "%s", at);
}

static bool contact_initiator(struct fx_links *l, const struct contact *c)
{
	setenv("MOONRAIL_DEVICES", c->own_devices, 1);
	setenv("MC_USE_IPV6", c->ipv6, 1);
	l->mem = fx_buf_map(CONTACT_LEN, -1);
	l->engine = fx_engine_at(c->own, "tcp");
	return l->engine && fx_register(l->engine, &l->mem);
}

/* Opens the segment and writes once. Checks the bytes, and that both steps took
 * less than CONTACT_MS. */
static void contact_write(struct fx_links *l, const struct contact *c)
{
	uint64_t from = ft_now_ns();
	double ms;
	bool good;

	fx_buf_fill(&l->mem, 0, CONTACT_LEN, CONTACT_SEED);
	fx_buf_poison(&l->target.mem, 0, CONTACT_LEN);
	l->seg = openSegment(l->engine, l->target.name);
	good = l->seg >= 0 &&
	       fx_move(l->engine, l->seg, OPCODE_WRITE, l->mem.p,
		       l->target.mem.addr, CONTACT_LEN, 0);
	ms = (double)(ft_now_ns() - from) / 1e6;
	ft_ok(good && fx_buf_check(&l->target.mem, 0, CONTACT_LEN,
				   CONTACT_SEED),
	      "first_write_%s_completes", c->name);
	ft_diag("the first write took %.0f ms", ms);
	ft_ok(ms < fx_ms(CONTACT_MS), "first_write_%s_is_quick", c->name);
}

/* --- te_info -------------------------------------------------------------- */

/* Runs te_info for the target's segment and returns its output, or NULL on
 * failure. The caller frees the output. */
static char *contact_info(const struct fx_links *l, const struct contact *c)
{
	char line[512], *text = calloc(1, 1 << 20);
	size_t used = 0, n = 1;
	FILE *f;

	snprintf(line, sizeof(line),
		 "\"$BUILD/bin/te_info\" %s --segment='%s' --json",
		 c->check ? "--check" : "", l->target.name);
	f = popen(line, "r");
	if (!f || !text) {
		free(text);
		return NULL;
	}
	for (; n && used + 1 < 1 << 20; used += n)
		n = fread(text + used, 1, (1 << 20) - 1 - used, f);
	pclose(f);
	return text;
}

/* Checks that te_info names the addresses that answer, and the address that
 * does not. */
static void contact_told(struct fx_links *l, const struct contact *c)
{
	char *text = contact_info(l, c), at[96], wanted[192];
	bool good = text != NULL;

	for (int i = 0; i < 2 && good && c->good[i]; i++) {
		contact_address(&l->target, c->good[i], at);
		snprintf(wanted, sizeof(wanted), "\"%s answers", at);
		good = *at && strstr(text, wanted);
		if (!good)
			ft_diag("te_info output lacks: %s", wanted);
	}
	ft_ok(good, "te_info_names_the_addresses_that_answer_%s", c->name);
	if (good && c->bad) {
		/* Do not compare the port: it changes when the target renews
		 * the endpoint. */
		snprintf(wanted, sizeof(wanted), "received an answer from %s:",
			 c->bad);
		good = strstr(text, wanted) != NULL;
		ft_ok(good, "te_info_names_the_address_that_does_not_answer_%s",
		      c->name);
		if (!good)
			ft_diag("te_info output lacks: %s", wanted);
	}
	free(text);
}

/* Runs a case whose network interfaces exist already. */
static void contact_run(const struct contact *c)
{
	struct fx_links l;

	memset(&l, 0, sizeof(l));
	if (!ft_ok(contact_target(&l.target, c) && contact_initiator(&l, c),
		   "engines_%s_start", c->name))
		return;
	contact_write(&l, c);
	if (c->good[0])
		contact_told(&l, c);
	fx_links_stop(&l);
}

/* --- cases ---------------------------------------------------------------- */

static const struct contact contact_usual = {
	.host = "10.77.0.2", .own = "10.77.0.1", .devices = "",
	.own_devices = "", .ipv6 = "0", .good = { "10.77.0.2", "10.77.1.2" },
	.bad = "172.30.5.1",
};

/* Host b also has an address in a private network to which host a has no
 * route. */
static void contact_private_case(void)
{
	struct contact c = contact_usual;

	c.name = "with_private_network";
	c.check = true;
	if (ft_ok(contact_private("172.30.5.1/24"), "private_network_is_made"))
		contact_run(&c);
	contact_sh("ip -n \"$RAILS_PEER\" link del priv0");
}

/* The address without a route is the first one in the descriptor. The default
 * route of host a accepts packets for it and loses them. */
static void contact_first_case(void)
{
	struct contact c = contact_usual;
	bool good;

	c.name = "with_unreachable_first_address";
	good = contact_private("172.30.5.1/24") &&
	       contact_sh("ip route add default via 10.77.0.9");
	/* The descriptor lists addresses before interfaces. */
	c.devices = "172.30.5.1,r0,r1";
	if (ft_ok(good, "default_route_is_made"))
		contact_run(&c);
	contact_sh("ip route del default");
	contact_sh("ip -n \"$RAILS_PEER\" link del priv0");
}

/* Starts processes on host a until one of them listens at the address and port
 * `at`, which the target has on host b. Returns false if none does. */
static bool contact_decoy(struct fx_peer *decoy, const char *at)
{
	unsigned int port = (unsigned int)atoi(strrchr(at, ':') + 1);
	char ports[64], is[96];

	snprintf(ports, sizeof(ports), "MOONRAIL_DATA_PORTS=%u-%u", port - 1,
		 port);
	for (int i = 0; i < CONTACT_DECOYS; i++) {
		if (!fx_peer_start(decoy, CONTACT_LEN, "host=192.168.100.1",
				   "MOONRAIL_DEVICES=dup0", ports,
				   "MC_LOG_LEVEL=error", NULL))
			return false;
		contact_address(decoy, "192.168.100.1", is);
		if (!strcmp(is, at))
			return !fx_ask(decoy, "reg 0 %llu 1", CONTACT_LEN);
		fx_peer_stop(decoy);
	}
	return false;
}

/* Both hosts have the address 192.168.100.1, as the management interfaces of
 * network cards do. Another moonrail process on host a answers at this address
 * and at the port of the target. */
static void contact_same_case(void)
{
	struct contact c = contact_usual;
	struct fx_peer decoy;
	struct fx_links l;
	char at[96];
	bool good;

	memset(&l, 0, sizeof(l));
	c.name = "with_the_same_address_on_both_hosts";
	c.bad = "192.168.100.1";
	good = contact_sh("ip link add dup0 type veth peer name dup1 &&"
			  "ip addr add 192.168.100.1/30 dev dup0 &&"
			  "ip link set dup1 up && ip link set dup0 up") &&
	       contact_private("192.168.100.1/30");
	good = ft_ok(good && contact_target(&l.target, &c),
		     "target_has_an_address_of_this_host");
	if (!good)
		return;
	contact_address(&l.target, "192.168.100.1", at);
	if (ft_ok(*at && contact_decoy(&decoy, at) && contact_initiator(&l, &c),
		  "another_process_has_address_and_port_of_the_target")) {
		fx_buf_poison(&decoy.mem, 0, CONTACT_LEN);
		contact_write(&l, &c);
		contact_told(&l, &c);
		ft_ok(fx_buf_poisoned(&decoy.mem, 0, CONTACT_LEN),
		      "other_process_at_the_same_address_receives_no_byte");
		fx_peer_stop(&decoy);
		fx_links_stop(&l);
	}
	contact_sh("ip link del dup0");
	contact_sh("ip -n \"$RAILS_PEER\" link del priv0");
}

/* Contact over link-local IPv6 addresses. The zone in such an address ("%r1")
 * is the name of an interface of the host that uses the address. */
static void contact_local_case(void)
{
	struct contact c = contact_usual;
	bool good;

	c.name = "over_link_local_ipv6";
	c.ipv6 = "1";
	c.host = "fe80::b%r1";
	c.own = "fe80::a%r1";
	c.devices = "fe80::b%r1";
	c.own_devices = "fe80::a%r1";
	c.good[0] = "[fe80::b]";
	c.good[1] = NULL;
	c.bad = NULL;
	good = contact_sh("echo 0 >/proc/sys/net/ipv6/conf/r1/disable_ipv6 &&"
			  "ip netns exec \"$RAILS_PEER\" sh -c "
			  "'echo 0 >/proc/sys/net/ipv6/conf/r1/disable_ipv6' &&"
			  "ip addr add fe80::a/64 dev r1 nodad &&"
			  "ip -n \"$RAILS_PEER\" addr add fe80::b/64 dev r1 nodad");
	if (ft_ok(good, "link_local_addresses_are_made"))
		contact_run(&c);
	/* Without a device list, rails have no link-local address. Only the
	 * control channel uses one here. */
	c.name = "by_name_over_link_local_ipv6";
	c.devices = c.own_devices = "";
	c.ipv6 = "0";
	c.good[0] = NULL;
	contact_run(&c);
}

static const struct {
	const char *name;
	void (*run)(void);
} contact_cases[] = {
	{ "private", contact_private_case },
	{ "first", contact_first_case },
	{ "same", contact_same_case },
	{ "local", contact_local_case },
};

int main(int argc, char **argv)
{
	const char *only;

	fx_init(argc, argv);
	only = ft_options_word(argc, argv, "CASE", "the only case to run; all");
	if (!fx_links_are())
		return fx_links_inside(argv, "no");
	for (size_t i = 0; i < sizeof(contact_cases) / sizeof(contact_cases[0]);
	     i++)
		if (!only || !strcmp(only, contact_cases[i].name))
			contact_cases[i].run();
	return ft_result();
}
