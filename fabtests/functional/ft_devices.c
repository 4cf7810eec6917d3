/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Network interfaces that become usable after an engine has started, or that
 * change while it runs. Two network namespaces are connected by the rails r0
 * and r1 and by a pair of interfaces for the control channel, which no engine
 * uses as a rail. The initiator is this process, on host a; targets are on host
 * b.
 *
 * "ft_devices" runs all cases one after the other, "ft_devices CASE" runs one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_zk.h"
#include "fabtests/functional/fx_links.h"

#define DEVICES_MEM (4 * FX_MIB)
#define DEVICES_BLOCK (512 * FX_KIB)
/* offset in the memory at which a target exports its descriptor */
#define DEVICES_TEXT (2 * FX_MIB)
#define DEVICES_MOVE (2 * FX_MIB)
#define DEVICES_ROUNDS 400
#define DEVICES_SEED 5

struct devices {
	struct fx_links links;
	int log;		/* memfd with the log of the target */
};

/* --- the network ---------------------------------------------------------- */

/* Runs the command "ip" with the arguments "what" on host b. */
static bool devices_ip(const char *what)
{
	char line[256];
	int ret;

	snprintf(line, sizeof(line), "ip -n \"$RAILS_PEER\" %s", what);
	ret = system(line);
	if (ret)
		ft_diag("ip %s: exit status %d", what, ret);
	return !ret;
}

static bool devices_no_carrier(void *arg)
{
	char line[128];

	snprintf(line, sizeof(line),
		 "ip -n \"$RAILS_PEER\" -o link show %s | grep -q NO-CARRIER",
		 (const char *)arg);
	return !system(line);
}

static bool devices_carrier(void *arg)
{
	char line[128];

	snprintf(line, sizeof(line),
		 "ip -n \"$RAILS_PEER\" -o link show %s | grep -q LOWER_UP",
		 (const char *)arg);
	return !system(line);
}

/* Removes the carrier of one interface at host b; the interface itself stays
 * up. */
static bool devices_cut(const char *rail)
{
	char line[32];

	snprintf(line, sizeof(line), "link %s down a", rail + 1);
	return fx_links_do(line) &&
	       ft_wait_until(devices_no_carrier, (void *)(uintptr_t)rail,
			     FX_LONG_MS);
}

static bool devices_mend(const char *rail)
{
	char line[32];

	snprintf(line, sizeof(line), "link %s up a", rail + 1);
	return fx_links_do(line) &&
	       ft_wait_until(devices_carrier, (void *)(uintptr_t)rail,
			     FX_LONG_MS);
}

/* --- engines -------------------------------------------------------------- */

static bool devices_target(struct fx_peer *target, int *log)
{
	char netns[128], option[32];

	snprintf(netns, sizeof(netns), "netns=%s", getenv("RAILS_PEER"));
	*log = fx_log(option, sizeof(option));
	return fx_peer_start(target, DEVICES_MEM, "host=10.77.200.2", netns,
			     "transport=auto", option, "MOONRAIL_DEVICES=",
			     "MOONRAIL_LOCAL=0", "MC_TE_FILTERS_EXCLUDE=ctl",
			     NULL) &&
	       !fx_ask(target, "reg 0 %llu 1", DEVICES_MEM);
}

static bool devices_initiator(struct fx_links *l)
{
	setenv("MOONRAIL_DEVICES", "", 1);
	setenv("MOONRAIL_LOCAL", "0", 1);
	setenv("MC_TE_FILTERS_EXCLUDE", "ctl", 1);
	l->mem = fx_buf_map(DEVICES_MEM, -1);
	l->engine = fx_engine_at("10.77.200.1", "auto");
	return l->engine && fx_register(l->engine, &l->mem);
}

static bool devices_start(struct devices *d)
{
	memset(d, 0, sizeof(*d));
	d->links.seg = -1;
	return devices_target(&d->links.target, &d->log) &&
	       devices_initiator(&d->links);
}

static void devices_stop(struct devices *d)
{
	close(d->log);
	fx_links_stop(&d->links);
}

static bool devices_logged(const struct devices *d, const char *a, const char *b)
{
	char *text = fx_heard(d->log);
	bool found = fx_lines(text, a, b) > 0;

	if (!found)
		ft_diag("the target logged: %s", text);
	free(text);
	return found;
}

/* The addresses of the rails that the target is expected to have; all other
 * addresses must not be rails. */
struct devices_want {
	struct fx_peer *target;
	const char *rails[3];
};

/* Returns true if the target has exactly the expected rails. */
static bool devices_has(void *arg)
{
	static const char *const all[] = { "127.0.0.1", "10.77.0.2",
					   "10.77.1.2", "10.77.0.22" };
	struct devices_want *want = arg;
	bool wanted, good;

	good = fx_ask(want->target, "rails") >= 0;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]) && good; i++) {
		char text[32];

		wanted = false;
		for (size_t k = 0; k < 3 && want->rails[k]; k++)
			wanted |= !strcmp(want->rails[k], all[i]);
		snprintf(text, sizeof(text), " %s:", all[i]);
		good = (strstr(want->target->text, text) != NULL) == wanted;
	}
	return good;
}

static bool devices_become(struct fx_peer *target, const char *a, const char *b,
			   const char *c)
{
	struct devices_want want = { target, { a, b, c } };

	if (ft_wait_until(devices_has, &want, FX_LONG_MS))
		return true;
	ft_diag("the target's rails are: %s", target->text);
	return false;
}

/* Returns true if the target's descriptor contains the name of the rail. */
static bool devices_publishes(struct fx_peer *target, const char *rail)
{
	int len = fx_ask(target, "export %llu", DEVICES_TEXT);
	char name[16];

	if (len <= 0)
		return false;
	snprintf(name, sizeof(name), "\"%s\"", rail);
	return memmem(target->mem.p + DEVICES_TEXT, (size_t)len, name,
		      strlen(name)) != NULL;
}

/* What a descriptor is expected to contain: the rail `has`, also the rail `and`
 * if it is not NULL, and no rail `lacks`. */
struct devices_published {
	struct fx_peer *target;
	const char *has, *and, *lacks;
};

static bool devices_is_published(void *arg)
{
	struct devices_published *p = arg;

	return devices_publishes(p->target, p->has) &&
	       (!p->and || devices_publishes(p->target, p->and)) &&
	       !devices_publishes(p->target, p->lacks);
}

/* Waits until the target's descriptor has the expected rails. The target
 * publishes its descriptor after it has changed its list of rails, so the
 * descriptor can contain only one of two new rails for a while. */
static bool devices_published(struct fx_peer *target, const char *has,
			      const char *and, const char *lacks)
{
	struct devices_published p = { target, has, and, lacks };

	return ft_wait_until(devices_is_published, &p, FX_LONG_MS);
}

/* Repeats a write until it succeeds. Compares every byte, and checks that the
 * bytes went over the rails. */
static bool devices_moves(struct fx_links *l)
{
	uint64_t was = fx_links_crossed();

	fx_buf_fill(&l->mem, 0, DEVICES_MOVE, DEVICES_SEED);
	fx_buf_poison(&l->target.mem, 0, DEVICES_MOVE);
	if (!fx_move_until(l->engine, l->seg, OPCODE_WRITE, l->mem.p,
			   l->target.mem.addr, DEVICES_MOVE, DEVICES_BLOCK,
			   FX_LONG_MS))
		return false;
	return fx_buf_check(&l->target.mem, 0, DEVICES_MOVE, DEVICES_SEED) &&
	       fx_links_crossed() - was >= DEVICES_MOVE;
}

static bool devices_open(struct fx_links *l)
{
	l->seg = openSegment(l->engine, l->target.name);
	return l->seg >= 0;
}

/* --- cases ---------------------------------------------------------------- */

/* Neither side has a carrier when the engines start, and the segment is opened
 * before there is one. */
static void devices_carrier_case(void)
{
	struct fx_links *l;
	struct devices d;
	bool good;

	good = devices_cut("r0") && devices_cut("r1") && devices_start(&d);
	if (!ft_ok(good, "engine_without_carrier_starts"))
		return;
	l = &d.links;
	ft_ok(devices_logged(&d, "warn", "r0: there is no carrier"),
	      "missing_carrier_at_start_is_a_warning");
	ft_ok(devices_become(&l->target, "127.0.0.1", NULL, NULL) &&
		      !devices_publishes(&l->target, "r0"),
	      "interface_without_carrier_is_not_published");
	ft_ok(devices_open(l), "segment_without_reachable_rails_is_opened");
	ft_ok(devices_mend("r0") && devices_mend("r1") &&
		      devices_become(&l->target, "10.77.0.2", "10.77.1.2", NULL),
	      "interface_is_used_when_its_carrier_appears");
	ft_ok(devices_published(&l->target, "r0", "r1", "lo"),
	      "descriptor_names_the_interfaces_instead_of_loopback");
	ft_ok(devices_moves(l),
	      "buffers_and_segment_from_before_the_carrier_are_usable");
	ft_ok(fx_links_mended(l),
	      "both_interfaces_carry_after_their_carrier_appears");
	devices_stop(&d);
}

static void devices_one_case(void)
{
	struct fx_links *l;
	struct devices d;

	if (!ft_ok(devices_cut("r1") && devices_start(&d),
		   "engine_with_one_of_two_carriers_starts"))
		return;
	l = &d.links;
	ft_ok(devices_become(&l->target, "10.77.0.2", NULL, NULL),
	      "interface_with_carrier_is_the_only_rail");
	ft_ok(devices_open(l) && devices_moves(l),
	      "interface_with_carrier_carries");
	ft_ok(devices_mend("r1") && devices_become(&l->target, "10.77.0.2",
						   "10.77.1.2", NULL),
	      "second_interface_is_added_when_its_carrier_appears");
	ft_ok(fx_links_mended(l), "peers_in_contact_use_the_added_interface");
	ft_ok(devices_published(&l->target, "r1", NULL, "lo"),
	      "added_interface_is_published");
	devices_stop(&d);
}

static void devices_address_case(void)
{
	struct fx_links *l;
	struct devices d;
	bool good;

	good = devices_ip("addr flush dev r0") && devices_ip("addr flush dev r1");
	if (!ft_ok(good && devices_start(&d), "engine_without_address_starts"))
		return;
	l = &d.links;
	ft_ok(devices_logged(&d, "warn", "r0: it has no usable address"),
	      "missing_address_at_start_is_a_warning");
	ft_ok(devices_become(&l->target, "127.0.0.1", NULL, NULL) &&
		      !devices_publishes(&l->target, "r0"),
	      "interface_without_address_is_not_published");
	ft_ok(devices_ip("addr add 10.77.0.2/24 dev r0") &&
		      devices_become(&l->target, "10.77.0.2", NULL, NULL),
	      "interface_is_used_when_its_address_appears");
	ft_ok(devices_open(l) && devices_moves(l), "late_address_is_reached");
	ft_ok(devices_ip("addr add 10.77.1.2/24 dev r1") &&
		      devices_become(&l->target, "10.77.0.2", "10.77.1.2", NULL),
	      "second_late_address_is_used");
	ft_ok(fx_links_mended(l), "both_late_addresses_are_reached");
	ft_ok(devices_ip("addr del 10.77.0.2/24 dev r0") &&
		      devices_ip("addr add 10.77.0.22/24 dev r0") &&
		      devices_become(&l->target, "10.77.0.22", "10.77.1.2", NULL),
	      "changed_address_replaces_the_rail");
	ft_ok(fx_links_mended(l), "peers_in_contact_use_the_changed_address");
	devices_stop(&d);
	devices_ip("addr del 10.77.0.22/24 dev r0");
	devices_ip("addr add 10.77.0.2/24 dev r0");
}

/* Two processes of host b move bytes over loopback while the carrier of the
 * rails appears. */
static void devices_neighbour_case(void)
{
	struct fx_peer target, other;
	int log[2], seg, ret;
	bool good;

	good = devices_cut("r0") && devices_cut("r1") &&
	       devices_target(&target, &log[0]) &&
	       devices_target(&other, &log[1]);
	if (!ft_ok(good, "two_processes_without_carrier_start"))
		return;
	seg = fx_ask(&other, "open %s", target.name);
	ret = fx_ask(&other, "start %d %d 0 %llu %llu %llu %d -", seg,
		     OPCODE_WRITE, (unsigned long long)target.mem.addr,
		     DEVICES_MOVE, DEVICES_BLOCK, DEVICES_ROUNDS);
	ft_ok(seg >= 0 && !ret, "processes_without_carrier_use_loopback");
	good = devices_mend("r0") && devices_mend("r1") &&
	       devices_published(&target, "r0", NULL, "lo");
	ft_ok(good, "loopback_is_not_published_while_a_peer_uses_it");
	ret = fx_ask(&other, "wait");
	ft_ok(!ret && strstr(other.text, " 0 failed") &&
		      strstr(other.text, " 0 timeout") &&
		      !strstr(other.text, " 0 completed"),
	      "transfers_over_loopback_do_not_fail: %s", other.text);
	fx_peer_stop(&other);
	ft_ok(devices_become(&target, "10.77.0.2", "10.77.1.2", NULL),
	      "loopback_is_closed_when_no_peer_knows_it");
	fx_peer_stop(&target);
	close(log[0]);
	close(log[1]);
}

static bool devices_r0_up(void *arg)
{
	return fx_links_stats(arg, "r0").state == TE_RAIL_UP;
}

/* An interface is removed and created again with the same address. */
static void devices_again_case(void)
{
	struct fx_links *l;
	struct devices d;
	bool good;

	if (!ft_ok(devices_start(&d) && devices_open(&d.links) &&
			   devices_moves(&d.links), "both_interfaces_are_used"))
		return;
	l = &d.links;
	good = !system("ip link del r0 && ip link add r0 type veth peer name r0"
		       " netns \"$RAILS_PEER\" && ip addr add 10.77.0.1/24 dev r0"
		       " && ip link set r0 up") &&
	       devices_ip("addr add 10.77.0.2/24 dev r0") &&
	       devices_ip("link set r0 up");
	ft_ok(good && ft_wait_until(devices_r0_up, l, FX_LONG_MS),
	      "rail_of_recreated_interface_is_up");
	ft_ok(fx_links_mended(l), "recreated_interface_carries");
	devices_stop(&d);
}

/* --- the control channel with a metadata store ---------------------------- */

/* Rig of the case with a metadata store: the hosts find each other through a
 * ZooKeeper server on host a. They reach the server over the control
 * interfaces, which have link-local addresses here. (An engine does not choose
 * such an address for its control channel.) */
struct devices_store {
	struct ft_zk zk;
	/* path of the file with the secret; with a secret, openSegment always
	 * uses the control channel */
	char secret[32];
	char conn[192];
};

static bool devices_secret(struct devices_store *s)
{
	static const char text[] = "a secret of at least sixteen bytes\n";
	int fd;

	snprintf(s->secret, sizeof(s->secret), "/tmp/ft_devices.XXXXXX");
	fd = mkstemp(s->secret);
	if (fd < 0)
		return false;
	if (write(fd, text, sizeof(text) - 1) != sizeof(text) - 1) {
		close(fd);
		return false;
	}
	return !close(fd);
}

static bool devices_store_start(struct devices_store *s)
{
	memset(s, 0, sizeof(*s));
	if (system("ip addr flush dev ctl && "
		   "ip addr add 169.254.77.1/24 dev ctl") ||
	    !devices_ip("addr flush dev ctl") ||
	    !devices_ip("addr add 169.254.77.2/24 dev ctl") ||
	    !devices_secret(s) || !ft_zk_start_at(&s->zk, 1, "169.254.77.1"))
		return false;
	snprintf(s->conn, sizeof(s->conn), "zookeeper://%s/devices",
		 s->zk.hosts);
	return true;
}

static void devices_store_stop(struct devices_store *s)
{
	ft_zk_stop(&s->zk);
	unlink(s->secret);
	unsetenv("MOONRAIL_SECRET_FILE");
	if (system("ip addr flush dev ctl && "
		   "ip addr add 10.77.200.1/24 dev ctl"))
		ft_diag("interface ctl: the address was not restored");
	devices_ip("addr flush dev ctl");
	devices_ip("addr add 10.77.200.2/24 dev ctl");
}

static bool devices_store_engines(struct devices_store *s, struct devices *d)
{
	struct fx_links *l = &d->links;
	char netns[128], meta[224], option[32];

	memset(d, 0, sizeof(*d));
	l->seg = -1;
	setenv("MOONRAIL_DEVICES", "", 1);
	setenv("MOONRAIL_LOCAL", "0", 1);
	setenv("MC_TE_FILTERS_EXCLUDE", "ctl", 1);
	setenv("MOONRAIL_SECRET_FILE", s->secret, 1);
	snprintf(netns, sizeof(netns), "netns=%s", getenv("RAILS_PEER"));
	snprintf(meta, sizeof(meta), "FX_META=%s", s->conn);
	d->log = fx_log(option, sizeof(option));
	if (!fx_peer_start(&l->target, DEVICES_MEM, netns, meta, option,
			   "FX_NAME=late", "transport=auto", NULL) ||
	    fx_ask(&l->target, "reg 0 %llu 1", DEVICES_MEM))
		return false;
	l->mem = fx_buf_map(DEVICES_MEM, -1);
	l->engine = createTransferEngine(s->conn, "early", "", 0, 1);
	return l->engine && fx_register(l->engine, &l->mem);
}

static bool devices_is_reached(void *arg)
{
	struct fx_links *l = arg;

	return !te_probe_peer(l->engine, "late", 5000000);
}

static bool devices_store_open(void *arg)
{
	struct fx_links *l = arg;

	l->seg = openSegmentNoCache(l->engine, "late");
	return l->seg >= 0;
}

static void devices_control_case(void)
{
	const char *missing = ft_zk_missing();
	struct devices_store s;
	struct devices d;
	struct fx_links *l = &d.links;
	bool good;

	if (missing) {
		ft_skip("control: %s", missing);
		return;
	}
	good = devices_ip("addr flush dev r0") &&
	       devices_ip("addr flush dev r1") && devices_store_start(&s);
	if (!ft_ok(good && devices_store_engines(&s, &d),
		   "engine_with_a_store_and_without_address_starts"))
		return;
	ft_ok(!strncmp(l->target.name, "127.0.0.1:", 10),
	      "control_channel_without_an_interface_is_on_loopback");
	ft_ok(te_probe_peer(l->engine, "late", 1000000),
	      "loopback_is_not_reached_from_another_host");
	good = devices_ip("addr add 10.77.0.2/24 dev r0");
	ft_ok(good && ft_wait_until(devices_is_reached, l, FX_LONG_MS),
	      "control_channel_is_reached_when_an_address_appears");
	ft_ok(ft_wait_until(devices_store_open, l, FX_LONG_MS) &&
		      devices_moves(l),
		      "segment_of_reached_control_channel_carries");
	good = devices_ip("addr del 10.77.0.2/24 dev r0") &&
	       devices_ip("addr add 10.77.0.22/24 dev r0");
	ft_ok(good && ft_wait_until(devices_is_reached, l, FX_LONG_MS),
	      "control_channel_is_reached_when_its_address_changes");
	ft_ok(ft_wait_until(devices_store_open, l, FX_LONG_MS) &&
		      devices_moves(l), "changed_address_carries");
	devices_stop(&d);
	devices_store_stop(&s);
	devices_ip("addr flush dev r0");
	devices_ip("addr add 10.77.0.2/24 dev r0");
	devices_ip("addr add 10.77.1.2/24 dev r1");
}

static const struct {
	const char *name;
	void (*run)(void);
} devices_cases[] = {
	{ "carrier", devices_carrier_case },
	{ "one", devices_one_case },
	{ "address", devices_address_case },
	{ "neighbour", devices_neighbour_case },
	{ "control", devices_control_case },
	{ "again", devices_again_case },	/* must be last: it removes the
						 * rate limit of r0 */
};

int main(int argc, char **argv)
{
	const char *only;

	fx_init(argc, argv);
	only = ft_options_word(argc, argv, "CASE", "the only case to run; all");
	if (!fx_links_are())
		return fx_links_inside(argv, "yes");
	for (size_t i = 0; i < sizeof(devices_cases) / sizeof(devices_cases[0]);
	     i++)
		if (!only || !strcmp(only, devices_cases[i].name))
			devices_cases[i].run();
	return ft_result();
}
