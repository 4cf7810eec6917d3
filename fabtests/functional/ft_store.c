/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The same tests for every metadata store, each with a real server. Processes
 * publish segments, open them and move bytes, while owners are killed, the
 * server is killed, stopped and wiped, and other clients write keys. The
 * arguments are the names of the stores to test; without arguments, all are
 * tested.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_relay.h"
#include "fabtests/common/ft_server.h"
#include "fabtests/functional/fx.h"

#define STORE_MEM	(4 * FX_MIB)	/* size of the memory of each process */
#define STORE_LEASE_MS	"2000"
#define STORE_POLL_MS	"200"
#define STORE_BUFFERS	10000
#define STORE_SMALL	4096 /* size of each small buffer */
#define STORE_PATIENT_S	"30"
#define STORE_HASTY_S	"2"
/* delay of the relay in each direction, ms */
#define STORE_SLOW_MS	100

struct store_rig {
	struct ft_server server;
	transfer_engine_t engine;
	struct fx_buf mem;
	uint64_t sequence;
};

static const char *store_said(void)
{
	static struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	return err.text;
}

/* Starts a process that publishes its memory under `name`. Returns true on
 * success. */
static bool store_target(struct fx_peer *peer, const char *name)
{
	char own[64];

	snprintf(own, sizeof(own), "FX_NAME=%s", name);
	return fx_peer_start(peer, STORE_MEM, own, NULL) &&
	       !fx_ask(peer, "reg 0 %llu 1", (unsigned long long)STORE_MEM);
}

/* Writes to the whole memory of the peer through the segment. Returns true if
 * the bytes arrive. */
static bool store_move(struct store_rig *rig, segment_id_t seg,
		       struct fx_peer *peer)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, STORE_MEM, seq);
	return fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
		       peer->mem.addr, STORE_MEM, FX_MIB) &&
	       fx_buf_check(&peer->mem, 0, STORE_MEM, seq);
}

struct store_wait {
	struct store_rig *rig;
	const char *name;
	bool there;
	segment_id_t seg;
	struct fx_peer *peer;
};

/* Opens the segment once. Returns true if its presence in the store is as
 * expected (w->there). If the server does not answer, returns false, so that
 * the caller repeats the call. */
static bool store_open_is(void *arg)
{
	struct store_wait *w = arg;
	segment_id_t seg = openSegmentNoCache(w->rig->engine, w->name);

	if (seg < 0)
		return !w->there && strstr(store_said(), "is not in ");
	closeSegment(w->rig->engine, seg);
	return w->there;
}

static bool store_open_until(struct store_rig *rig, const char *name,
			     bool there)
{
	struct store_wait w = { rig, name, there, -1, NULL };

	return ft_wait_until(store_open_is, &w, FX_LONG_MS);
}

static bool store_reached(void *arg)
{
	struct store_wait *w = arg;

	return store_move(w->rig, w->seg, w->peer);
}

/* Runs te_meta with the arguments `args`. Returns true if it succeeds and
 * prints a line that contains `want`. */
static bool store_tool(const struct store_rig *rig, const char *args,
		       const char *want)
{
	const char *build = getenv("BUILD");
	char command[512], line[512];
	bool found = !*want;
	FILE *out;

	snprintf(command, sizeof(command),
		 "%s/bin/te_meta --metadata_server=%s %s",
		 build ? build : "build", rig->server.conn, args);
	out = popen(command, "r");
	while (out && fgets(line, sizeof(line), out))
		found = found || strstr(line, want);
	return out && !pclose(out) && found;
}

#define STORE_OK(rig, cond, what) \
	ft_ok(cond, "%s: " what, (rig)->server.kind->name)

/* --- cases ---------------------------------------------------------------- */

static void store_published(struct store_rig *rig)
{
	unsigned long long half = STORE_MEM / 2;
	struct fx_peer target;
	struct store_wait w = { rig, "target", true, -1, &target };

	STORE_OK(rig, fx_peer_start(&target, STORE_MEM, "FX_NAME=target", NULL) &&
		      !fx_ask(&target, "reg 0 %llu 1", half),
		 "process_publishes_half_of_its_memory");
	w.seg = openSegment(rig->engine, "target");
	STORE_OK(rig, w.seg >= 0 && !store_move(rig, w.seg, &target),
		 "the_other_half_is_refused");
	STORE_OK(rig, !fx_ask(&target, "reg %llu %llu 1", half, half) &&
		      ft_wait_until(store_reached, &w, FX_LONG_MS),
		 "change_of_an_open_segment_is_seen");
	STORE_OK(rig, !createTransferEngine(rig->server.conn, "target",
					    "127.0.0.1", 0, 0) &&
		      strstr(store_said(), "is held by"),
		 "name_of_a_live_process_is_refused");
	STORE_OK(rig, store_move(rig, w.seg, &target),
		 "live_process_keeps_its_name");
	closeSegment(rig->engine, w.seg);
	fx_peer_stop(&target);
	STORE_OK(rig, store_open_until(rig, "target", false),
		 "segment_of_an_ended_process_is_withdrawn");
}

static void store_killed(struct store_rig *rig)
{
	struct fx_peer first, heir;
	struct store_wait w = { rig, "crown", true, -1, &heir };

	STORE_OK(rig, store_target(&first, "crown"), "first_owner_publishes");
	w.seg = openSegment(rig->engine, "crown");
	STORE_OK(rig, w.seg >= 0 && store_move(rig, w.seg, &first),
		 "first_owner_is_reached");
	fx_peer_kill(&first);
	STORE_OK(rig, store_target(&heir, "crown"),
		 "name_of_a_killed_process_is_taken_over_at_once");
	STORE_OK(rig, ft_wait_until(store_reached, &w, FX_LONG_MS),
		 "successor_is_reached_through_the_open_segment");
	closeSegment(rig->engine, w.seg);
	fx_peer_drop(&first);
	fx_peer_kill(&heir);
	if (!rig->server.kind->only_keys)
		STORE_OK(rig, store_open_until(rig, "crown", false),
			 "keys_of_a_killed_process_disappear");
	fx_peer_drop(&heir);
}

static void store_outage(struct store_rig *rig)
{
	struct fx_peer target, second;
	segment_id_t seg;

	STORE_OK(rig, store_target(&target, "lasting"), "target_publishes");
	seg = openSegment(rig->engine, "lasting");
	ft_server_kill(&rig->server);
	STORE_OK(rig, seg >= 0 && store_move(rig, seg, &target),
		 "transfers_go_on_without_a_server");
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", STORE_HASTY_S, 1);
	STORE_OK(rig, !createTransferEngine(rig->server.conn, "late",
					    "127.0.0.1", 0, 0) && *store_said(),
		 "engine_without_a_server_fails_with_an_error");
	ft_diag("%s", store_said());
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", STORE_PATIENT_S, 1);
	ft_server_wipe(&rig->server);
	STORE_OK(rig, ft_server_restart(&rig->server), "server_is_back_empty");
	STORE_OK(rig, store_open_until(rig, "lasting", true),
		 "segment_is_published_again_after_the_server_was_wiped");
	STORE_OK(rig, store_move(rig, seg, &target),
		 "open_segment_still_reaches_its_process");
	STORE_OK(rig, store_target(&second, "second") &&
		      store_open_until(rig, "second", true),
		 "new_segments_are_published_and_found");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&second);
	fx_peer_stop(&target);
}

static void store_stopped(struct store_rig *rig)
{
	struct fx_peer target;
	segment_id_t seg;

	STORE_OK(rig, store_target(&target, "steady"), "target_publishes_again");
	seg = openSegment(rig->engine, "steady");
	ft_server_pause(&rig->server);
	STORE_OK(rig, seg >= 0 && store_move(rig, seg, &target) &&
		      store_move(rig, seg, &target),
		 "transfers_do_not_wait_for_a_stopped_server");
	ft_server_resume(&rig->server);
	STORE_OK(rig, !fx_ask(&target, "unreg 0") &&
		      !fx_ask(&target, "reg 0 %llu 1",
			      (unsigned long long)STORE_MEM),
		 "server_that_continues_is_used_again");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
}

/* Tests a slow server: a relay makes each of its answers take a fifth of a
 * second. */
static void store_slow(struct store_rig *rig)
{
	const char *host = strstr(rig->server.conn, "127.0.0.1:");
	struct ft_relay relay = { .pid = 0 };
	struct store_wait w = { rig, "snail", true, -1, NULL };
	struct fx_peer target;
	char conn[192];
	char *rest;
	long port = host ? strtol(host + 10, &rest, 10) : 0;

	STORE_OK(rig, port && ft_relay_start(&relay, (int)port, STORE_SLOW_MS),
		 "relay_starts");
	if (!relay.pid)
		return;
	snprintf(conn, sizeof(conn), "%.*s%d%s",
		 (int)(host + 10 - rig->server.conn), rig->server.conn,
		 relay.port, rest);
	setenv("FX_META", conn, 1);
	w.peer = &target;
	STORE_OK(rig, store_target(&target, "snail"),
		 "segment_is_published_on_a_slow_server");
	w.seg = openSegment(rig->engine, "snail");
	STORE_OK(rig, w.seg >= 0 && store_move(rig, w.seg, &target),
		 "segment_of_a_slow_server_is_opened");
	STORE_OK(rig, !fx_ask(&target, "unreg 0") &&
		      !fx_ask(&target, "reg 0 %llu 1",
			      (unsigned long long)STORE_MEM) &&
		      ft_wait_until(store_reached, &w, FX_LONG_MS),
		 "change_on_a_slow_server_is_seen");
	closeSegment(rig->engine, w.seg);
	fx_peer_stop(&target);
	setenv("FX_META", rig->server.conn, 1);
	ft_relay_stop(&relay);
}

static void store_garbage(struct store_rig *rig)
{
	struct fx_peer target;
	struct store_wait w = { rig, "clean", true, -1, &target };

	if (!rig->server.kind->write)
		return;	/* ft_zookeeper has this case for ZooKeeper */
	STORE_OK(rig, store_target(&target, "clean"), "another_target_publishes");
	STORE_OK(rig, rig->server.kind->write(&rig->server, "mooncake/ram/clean",
					      "{\"name\":[1,{") &&
		      rig->server.kind->write(&rig->server,
					      "mooncake/rpc_meta/clean", "[]") &&
		      store_open_until(rig, "clean", true),
		 "owner_replaces_what_a_stranger_wrote_over_its_keys");
	w.seg = openSegment(rig->engine, "clean");
	STORE_OK(rig, w.seg >= 0 && store_move(rig, w.seg, &target),
		 "owner_is_reached_afterwards");
	STORE_OK(rig, rig->server.kind->write(&rig->server, "mooncake/ram/junk",
					      "no JSON at all") &&
		      openSegment(rig->engine, "junk") < 0,
		 "segment_of_garbage_is_refused");
	closeSegment(rig->engine, w.seg);
	fx_peer_stop(&target);
}

/* Returns true if te_meta prints a line with `want`, or if it fails because the
 * server cannot list keys. */
static bool store_lists(struct store_rig *rig, const char *args,
			const char *want)
{
	return store_tool(rig, args, want) != rig->server.kind->only_keys;
}

/* Checks that engines refuse the segment of a Mooncake process in the same
 * store, and that te_meta shows it. */
static void store_mooncake(struct store_rig *rig)
{
	if (!rig->server.kind->write)
		return; /* Mooncake does not support this product */
	STORE_OK(rig, rig->server.kind->write(
			      &rig->server, "mooncake/ram/cake",
			      "{\"buffers\":[{\"addr\":4096,\"length\":64,"
			      "\"name\":\"cpu:0\"}],\"name\":\"cake\","
			      "\"protocol\":\"tcp\",\"tcp_data_port\":16001}"),
		 "mooncake_process_publishes");
	STORE_OK(rig, openSegment(rig->engine, "cake") < 0 &&
		      strstr(store_said(), "belongs to a Mooncake process"),
		 "segment_of_a_mooncake_process_is_refused_by_that_name");
	ft_diag("%s", store_said());
	STORE_OK(rig, store_lists(rig, "list --all", "ram/cake"),
		 "te_meta_lists_a_mooncake_process");
	STORE_OK(rig, store_tool(rig, "show ram/cake",
				 "\"tcp_data_port\":\t16001"),
		 "te_meta_shows_a_mooncake_process");
}

/* Runs each command of te_meta and checks its output. */
static void store_te_meta(struct store_rig *rig)
{
	char path[96], args[256], want[160];
	FILE *f;

	snprintf(path, sizeof(path), "%s/segment", rig->server.dir);
	f = fopen(path, "w");
	STORE_OK(rig, f && fputs("12345", f) >= 0 && !fclose(f),
		 "file_is_written");
	snprintf(args, sizeof(args), "register --server=a disk %s", path);
	STORE_OK(rig, store_tool(rig, args, ""), "te_meta_registers");
	snprintf(args, sizeof(args), "mount --server=b disk %s", path);
	STORE_OK(rig, store_tool(rig, args, ""), "te_meta_mounts");
	STORE_OK(rig, store_lists(rig, "list", "nvmeof/disk"), "te_meta_lists");
	snprintf(want, sizeof(want), "\"b\":\t\"%s\"", path);
	STORE_OK(rig, store_tool(rig, "show disk", want) &&
		      store_tool(rig, "show disk", "\"length\":\t5"),
		 "te_meta_shows");
	STORE_OK(rig, store_tool(rig, "unmount --server=b disk", "") &&
		      !store_tool(rig, "show disk", want),
		 "te_meta_unmounts");
	STORE_OK(rig, store_lists(rig, "list --all", "ram/observer"),
		 "te_meta_lists_a_process");
	STORE_OK(rig, store_tool(rig, "show ram/observer", "\"incarnation\":"),
		 "te_meta_shows_a_process");
	STORE_OK(rig, store_tool(rig, "remove disk", "") &&
		      !store_tool(rig, "show disk", ""),
		 "te_meta_removes");
	STORE_OK(rig, !store_tool(rig, "list", "disk"),
		 "te_meta_lists_no_removed_segment");
}

static void store_clusters(struct store_rig *rig)
{
	struct fx_peer here, there;
	segment_id_t seg;

	STORE_OK(rig, store_target(&here, "twin") &&
		      fx_peer_start(&there, STORE_MEM, "FX_NAME=twin",
				    "MC_METADATA_CLUSTER_ID=other", NULL) &&
		      !fx_ask(&there, "reg 0 %llu 1",
			      (unsigned long long)STORE_MEM),
		 "two_clusters_use_the_same_name");
	seg = openSegment(rig->engine, "twin");
	STORE_OK(rig, seg >= 0 && store_move(rig, seg, &here),
		 "segment_of_the_own_cluster_is_found");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&here);
	STORE_OK(rig, store_open_until(rig, "twin", false),
		 "segment_of_another_cluster_is_not_found");
	fx_peer_stop(&there);
}

/* Registers 10000 buffers that are not adjacent. Another process must be able
 * to open the segment. */
static void store_many(struct store_rig *rig)
{
	size_t len = 2UL * STORE_BUFFERS * STORE_SMALL;
	struct fx_peer reader;
	char *mem = mmap(NULL, len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool good = mem != MAP_FAILED;
	size_t i;

	for (i = 0; i < STORE_BUFFERS && good; i++)
		good = !registerLocalMemory(rig->engine,
					    mem + 2 * i * STORE_SMALL,
					    STORE_SMALL, "*", 1);
	STORE_OK(rig, good, "10000_buffers_are_registered");
	STORE_OK(rig, fx_peer_start(&reader, STORE_MEM, "FX_NAME=reader", NULL) &&
		      fx_ask(&reader, "open observer") >= 0,
		 "segment_of_10000_buffers_is_opened");
	fx_peer_stop(&reader);
	for (i = 0; i < STORE_BUFFERS && good; i++)
		good = !unregisterLocalMemory(rig->engine,
					      mem + 2 * i * STORE_SMALL);
	STORE_OK(rig, good, "10000_buffers_are_unregistered");
	if (mem != MAP_FAILED)
		munmap(mem, len);
}

/* Makes the server require a password. Checks engines without it, with a wrong
 * one and with the right one. */
static void store_password(struct store_rig *rig)
{
	const struct ft_server_kind *kind = rig->server.kind;
	transfer_engine_t e;

	if (!kind->protect)
		return;
	STORE_OK(rig, kind->protect(&rig->server), "server_requires_a_password");
	STORE_OK(rig, !createTransferEngine(rig->server.conn, "guest",
					    "127.0.0.1", 0, 0) && *store_said(),
		 "engine_without_a_password_is_refused");
	ft_diag("%s", store_said());
	STORE_OK(rig, ft_server_password(&rig->server, "barley"),
		 "wrong_password_is_set");
	STORE_OK(rig, !createTransferEngine(rig->server.conn, "guest",
					    "127.0.0.1", 0, 0) && *store_said(),
		 "engine_with_a_wrong_password_is_refused");
	ft_diag("%s", store_said());
	STORE_OK(rig, ft_server_password(&rig->server, "sesame"),
		 "password_is_set");
	e = createTransferEngine(rig->server.conn, "guest", "127.0.0.1", 0, 0);
	STORE_OK(rig, e != NULL, "engine_with_the_password_is_created");
	if (e)
		destroyTransferEngine(e);
	ft_server_password(&rig->server, NULL);
}

/* Returns true if te_segment_find finds exactly this range for the label. */
static bool store_label_is(struct store_rig *rig, segment_id_t seg,
			   const char *label, uint64_t addr, uint64_t len)
{
	struct te_buffer b;
	size_t n = 1;

	return !te_segment_find(rig->engine, seg, label, &b, sizeof(b), &n) &&
	       n == 1 && b.addr == addr && b.length == len;
}

/* Looks up labels in a small descriptor and in a large one. The large one has
 * 5000 labels and does not fit into a ZooKeeper node. */
static void store_labels(struct store_rig *rig)
{
	unsigned long long half = STORE_MEM / 2;
	struct fx_peer target;
	segment_id_t seg;

	STORE_OK(rig,
		 fx_peer_start(&target, STORE_MEM, "FX_NAME=labelled", NULL) &&
			 !fx_ask(&target, "label 0 %llu 0 pool", half) &&
			 !fx_ask(&target, "label 4096 64 %u tensor",
				 (unsigned int)TE_REG_NESTED),
		 "process_publishes_labels");
	seg = openSegment(rig->engine, "labelled");
	STORE_OK(rig,
		 store_label_is(rig, seg, "pool", target.mem.addr, half) &&
			 store_label_is(rig, seg, "tensor",
					target.mem.addr + 4096, 64),
		 "labels_are_found");
	STORE_OK(rig,
		 !fx_ask(&target, "labels 5000 64") &&
			 !syncSegmentCache(rig->engine) &&
			 store_label_is(rig, seg, "t.4999",
					target.mem.addr + 4999 * 64, 64),
		 "one_of_many_labels_is_found");
	closeSegment(rig->engine, seg);
	STORE_OK(rig, fx_peer_stop(&target), "process_with_labels_ends");
}

/* --- the suite ------------------------------------------------------------ */

static bool store_open(struct store_rig *rig, const struct ft_server_kind *kind)
{
	memset(rig, 0, sizeof(*rig));
	if (!ft_server_open(&rig->server, kind))
		return false;
	setenv("FX_META", rig->server.conn, 1);
	rig->mem = fx_buf_map(STORE_MEM, -1);
	rig->engine = createTransferEngine(rig->server.conn, "observer",
					   "127.0.0.1", 0, 0);
	return rig->mem.p && rig->engine &&
	       installTransport(rig->engine, "tcp", NULL) &&
	       fx_register(rig->engine, &rig->mem);
}

static void store_run(const struct ft_server_kind *kind)
{
	struct store_rig rig;

	if (ft_ok(store_open(&rig, kind), "%s: server_and_engine_start",
		  kind->name)) {
		store_published(&rig);
		store_killed(&rig);
		store_outage(&rig);
		store_stopped(&rig);
		store_slow(&rig);
		store_garbage(&rig);
		store_mooncake(&rig);
		store_te_meta(&rig);
		store_clusters(&rig);
		store_many(&rig);
		store_labels(&rig);
		store_password(&rig);
	}
	if (rig.engine)
		destroyTransferEngine(rig.engine);
	fx_buf_unmap(&rig.mem);
	ft_server_close(&rig.server);
}

static bool store_wanted(int argc, char **argv, const char *name)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	const struct ft_server_kind *k;
	const char *missing;

	fx_init(argc, argv);
	setenv("MC_TCP_BIND_ADDRESS", "127.0.0.1", 1);
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", STORE_PATIENT_S, 1);
	setenv("MOONRAIL_STORE_LEASE_MS", STORE_LEASE_MS, 1);
	setenv("MOONRAIL_STORE_POLL_MS", STORE_POLL_MS, 1);
	setenv("MOONRAIL_ZK_SESSION_MS", STORE_LEASE_MS, 1);
	for (k = ft_server_kinds; k->name; k++) {
		if (!store_wanted(argc, argv, k->name))
			continue;
		missing = k->missing();
		if (!missing && k->variant && fx_slow() && argc < 2)
			missing = "with a sanitizer, one server of each "
				  "product is tested";
		if (missing)
			printf("skip - %s: %s\n", k->name, missing);
		else
			store_run(k);
	}
	return ft_result();
}
