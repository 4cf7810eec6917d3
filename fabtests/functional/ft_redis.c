/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests of situations that only Redis has: replicas that refuse writes, and
 * CLIENT PAUSE. ft_store has the tests that all stores share.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_port.h"
#include "fabtests/common/ft_server.h"
#include "fabtests/functional/fx.h"

#define REDIS_PAUSE_MS	3000
#define REDIS_LEASE_MS	"2000"
#define REDIS_PATIENT_S	"30"

static const struct ft_server_kind *redis_kind(void)
{
	const struct ft_server_kind *k = ft_server_kinds;

	while (k->name && strcmp(k->name, "redis") != 0)
		k++;
	return k;
}

static bool redis_cli(int port, const char *args, const char *want)
{
	char command[192];

	snprintf(command, sizeof(command),
		 "redis-cli -p %d %s 2>/dev/null | grep -q '%s'", port, args,
		 want);
	return !system(command);
}

static void redis_error(struct te_error *err)
{
	memset(err, 0, sizeof(*err));
	te_last_error(err, sizeof(*err));
	ft_diag("%s; %s", err->text, err->hint);
}

struct redis_replica {
	struct ft_proc proc;
	int port;
	char conn[64];
};

static bool redis_replica_synced(void *arg)
{
	struct redis_replica *r = arg;

	return redis_cli(r->port, "info replication", "master_link_status:up");
}

static bool redis_replica_start(struct redis_replica *r, int primary)
{
	char port[16], from[16];
	char dir[] = "/tmp";
	const char *argv[] = { "redis-server", "--port", port, "--bind",
			       "127.0.0.1", "--dir", dir, "--save", "",
			       "--dbfilename", from, "--appendonly", "no",
			       "--replicaof", "127.0.0.1", from,
			       "--repl-diskless-load", "swapdb", NULL };

	r->port = ft_port("127.0.0.1");
	snprintf(port, sizeof(port), "%d", r->port);
	snprintf(from, sizeof(from), "%d", primary);
	snprintf(r->conn, sizeof(r->conn), "redis://127.0.0.1:%d", r->port);
	return r->port &&
	       !ft_proc_start(&r->proc, (char **)(uintptr_t)argv) &&
	       ft_wait_until(redis_replica_synced, r, FX_LONG_MS);
}

static void redis_read_only(const struct ft_server *primary)
{
	struct redis_replica r = { .proc.pid = 0 };
	transfer_engine_t e;
	struct te_error err;

	ft_ok(redis_replica_start(&r, primary->port), "replica_starts");
	e = createTransferEngine(r.conn, "reader", "127.0.0.1", 0, 0);
	redis_error(&err);
	ft_ok(!e && strstr(err.text, "READONLY") &&
		      strstr(err.hint, "primary server"),
	      "engine_on_a_read_only_replica_is_refused");
	if (e)
		destroyTransferEngine(e);
	e = redis_cli(r.port, "replicaof no one", "OK") ?
		    createTransferEngine(r.conn, "reader", "127.0.0.1", 0, 0) :
		    NULL;
	ft_ok(e != NULL, "engine_on_a_promoted_replica_is_created");
	if (e)
		destroyTransferEngine(e);
	ft_proc_kill(&r.proc);
}

struct redis_lookup {
	transfer_engine_t engine;
};

static bool redis_opens(void *arg)
{
	struct redis_lookup *l = arg;
	segment_id_t seg = openSegmentNoCache(l->engine, "paused");

	if (seg >= 0)
		closeSegment(l->engine, seg);
	return seg >= 0;
}

static void redis_paused(struct ft_server *server)
{
	struct redis_lookup l = { NULL };
	struct fx_peer target;
	char pause[48];

	setenv("FX_META", server->conn, 1);
	snprintf(pause, sizeof(pause), "client pause %d all", REDIS_PAUSE_MS);
	ft_ok(fx_peer_start(&target, FX_MIB, "FX_NAME=paused", NULL) &&
		      !fx_ask(&target, "reg 0 %llu 1",
			      (unsigned long long)FX_MIB),
	      "target_publishes");
	l.engine = createTransferEngine(server->conn, "watcher", "127.0.0.1",
					0, 0);
	ft_ok(l.engine && installTransport(l.engine, "tcp", NULL) &&
		      redis_opens(&l),
	      "segment_is_found");
	ft_ok(redis_cli(server->port, pause, "OK"), "clients_are_paused");
	/* The keys may have expired during the pause; they must be written
	 * again. */
	ft_ok(l.engine && ft_wait_until(redis_opens, &l, FX_LONG_MS),
	      "segment_outlives_a_pause_that_is_longer_than_its_lease");
	ft_ok(redis_cli(server->port, pause, "OK") &&
		      !fx_ask(&target, "unreg 0") &&
		      !fx_ask(&target, "reg 0 %llu 1",
			      (unsigned long long)FX_MIB),
	      "target_publishes_in_spite_of_a_pause");
	ft_ok(l.engine && ft_wait_until(redis_opens, &l, FX_LONG_MS),
	      "segment_that_was_published_in_a_pause_is_found");
	if (l.engine)
		destroyTransferEngine(l.engine);
	fx_peer_stop(&target);
}

int main(int argc, char **argv)
{
	const struct ft_server_kind *kind = redis_kind();
	struct ft_server server;
	const char *missing;

	fx_init(argc, argv);
	setenv("MC_TCP_BIND_ADDRESS", "127.0.0.1", 1);
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", REDIS_PATIENT_S, 1);
	setenv("MOONRAIL_STORE_LEASE_MS", REDIS_LEASE_MS, 1);
	missing = kind->name ? kind->missing() : "not built in";
	if (missing)
		return ft_skip("%s", missing);
	if (ft_ok(ft_server_open(&server, kind), "server_starts")) {
		redis_read_only(&server);
		redis_paused(&server);
	}
	ft_server_close(&server);
	return ft_result();
}
