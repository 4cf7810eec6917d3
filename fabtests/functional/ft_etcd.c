/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Engines that find each other through etcd. Members of the etcd cluster are
 * killed and stopped, leases are revoked, revisions are compacted and tokens
 * become invalid. One part uses TLS. ft_store has the tests that all stores
 * share.
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_etcd.h"
#include "fabtests/functional/fx.h"

#define ETCD_MEM      (2 * FX_MIB)
#define ETCD_LEASE_MS "2000"
#define ETCD_ANSWER   65536
#define ETCD_SHORT_NS FT_NS_PER_SEC

struct etcd_rig {
	struct ft_etcd etcd;
	char conn[160];
	transfer_engine_t engine;
	struct fx_buf mem;
	uint64_t sequence;
	char answer[ETCD_ANSWER];
};

static const char *etcd_said(void)
{
	static struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	return err.text;
}

static bool etcd_target(struct fx_peer *peer, const char *name)
{
	char own[64];

	snprintf(own, sizeof(own), "FX_NAME=%s", name);
	return fx_peer_start(peer, ETCD_MEM, own, NULL) &&
	       !fx_ask(peer, "reg 0 %llu 1", (unsigned long long)ETCD_MEM);
}

static bool etcd_move(struct etcd_rig *rig, segment_id_t seg,
		      struct fx_peer *peer)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, ETCD_MEM, seq);
	return fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p,
		       peer->mem.addr, ETCD_MEM, FX_MIB) &&
	       fx_buf_check(&peer->mem, 0, ETCD_MEM, seq);
}

struct etcd_wait {
	struct etcd_rig *rig;
	const char *name;
	bool there;
};

static bool etcd_open_is(void *arg)
{
	struct etcd_wait *w = arg;
	segment_id_t seg = openSegmentNoCache(w->rig->engine, w->name);

	if (seg < 0)
		return !w->there && strstr(etcd_said(), "is not in ");
	closeSegment(w->rig->engine, seg);
	return w->there;
}

static bool etcd_open_until(struct etcd_rig *rig, const char *name, bool there)
{
	struct etcd_wait w = { rig, name, there };

	return ft_wait_until(etcd_open_is, &w, FX_LONG_MS);
}

static bool etcd_engine(struct etcd_rig *rig)
{
	rig->engine =
		createTransferEngine(rig->conn, "observer", "127.0.0.1", 0, 0);
	return rig->engine && installTransport(rig->engine, "tcp", NULL) &&
	       fx_register(rig->engine, &rig->mem);
}

static bool etcd_open(struct etcd_rig *rig, int members, bool tls)
{
	int i;

	memset(rig, 0, sizeof(*rig));
	if (!ft_etcd_start(&rig->etcd, members, tls))
		return false;
	for (i = 0; i < members; i++)
		if (!ft_etcd_wait(&rig->etcd, i))
			return false;
	snprintf(rig->conn, sizeof(rig->conn), "etcd://%s", rig->etcd.hosts);
	setenv("FX_META", rig->conn, 1);
	rig->mem = fx_buf_map(ETCD_MEM, -1);
	return rig->mem.p != NULL;
}

static void etcd_close(struct etcd_rig *rig)
{
	if (rig->engine)
		destroyTransferEngine(rig->engine);
	fx_buf_unmap(&rig->mem);
	ft_etcd_stop(&rig->etcd);
}

/* --- three members -------------------------------------------------------- */

/* Kills the member that is the leader of the cluster and that all engines use
 * first. */
static void etcd_leader_killed(struct etcd_rig *rig)
{
	struct fx_peer target, second;
	segment_id_t seg;
	int leader = ft_etcd_leader(&rig->etcd);

	/* The leader comes first in the connection string of all engines. */
	ft_ok(leader >= 0, "cluster_has_a_leader");
	snprintf(rig->conn, sizeof(rig->conn),
		 "etcd://127.0.0.1:%d,127.0.0.1:%d;127.0.0.1:%d",
		 rig->etcd.client[leader], rig->etcd.client[(leader + 1) % 3],
		 rig->etcd.client[(leader + 2) % 3]);
	setenv("FX_META", rig->conn, 1);
	ft_ok(etcd_engine(rig) && etcd_target(&target, "target"),
	      "engines_use_three_members");
	seg = openSegment(rig->engine, "target");
	ft_etcd_kill(&rig->etcd, leader);
	ft_ok(seg >= 0 && etcd_move(rig, seg, &target),
	      "transfers_go_on_when_the_leader_is_killed");
	ft_ok(etcd_target(&second, "second") &&
		      etcd_open_until(rig, "second", true),
	      "new_names_are_published_and_found_without_the_leader");
	fx_peer_kill(&second);
	ft_ok(etcd_open_until(rig, "second", false),
	      "keys_of_a_killed_process_disappear_without_the_leader");
	fx_peer_drop(&second);
	ft_ok(etcd_open_until(rig, "target", true) &&
		      etcd_move(rig, seg, &target),
	      "keys_of_the_running_process_stay");
	ft_ok(ft_etcd_restart(&rig->etcd, leader) &&
		      ft_etcd_wait(&rig->etcd, leader),
	      "killed_member_is_back");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
}

/* Stops the first and then the second member. A stopped member accepts
 * connections and does not answer. */
static void etcd_member_stopped(struct etcd_rig *rig)
{
	struct fx_peer target;
	int i;

	ft_ok(etcd_target(&target, "steady"), "target_publishes");
	for (i = 0; i < 2; i++) {
		kill(rig->etcd.procs[i].pid, SIGSTOP);
		ft_ok(etcd_open_until(rig, "steady", true),
		      "segment_is_found_while_member_%d_is_stopped", i);
		ft_ok(!fx_ask(&target, "unreg 0") &&
			      !fx_ask(&target, "reg 0 %llu 1",
				      (unsigned long long)ETCD_MEM),
		      "segment_is_changed_while_member_%d_is_stopped", i);
		kill(rig->etcd.procs[i].pid, SIGCONT);
		ft_ok(ft_etcd_wait(&rig->etcd, i), "member_%d_serves_again", i);
	}
	fx_peer_stop(&target);
}

static void etcd_majority_lost(struct etcd_rig *rig)
{
	struct fx_peer target;
	segment_id_t seg;
	int i;

	ft_ok(etcd_target(&target, "lasting"), "target_publishes_again");
	seg = openSegment(rig->engine, "lasting");
	ft_etcd_kill(&rig->etcd, 0);
	ft_etcd_kill(&rig->etcd, 1);
	ft_ok(seg >= 0 && etcd_move(rig, seg, &target),
	      "transfers_go_on_without_a_majority");
	ft_ok(openSegment(rig->engine, "unknown") < 0 && *etcd_said() &&
		      !strstr(etcd_said(), "is not in "),
	      "call_without_a_majority_fails_with_an_error");
	ft_diag("%s", etcd_said());
	for (i = 0; i < 2; i++)
		ft_ok(ft_etcd_restart(&rig->etcd, i), "member_%d_restarts", i);
	ft_ok(ft_etcd_wait(&rig->etcd, 0) &&
		      etcd_open_until(rig, "lasting", true) &&
		      etcd_move(rig, seg, &target),
	      "segment_is_found_when_the_majority_is_back");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
}

/* --- one member ----------------------------------------------------------- */

/* Revokes all leases. Returns the number of leases, or 0 on failure. */
static int etcd_revoke_all(struct etcd_rig *rig)
{
	char json[64], none[1024];
	const char *at;
	int n = 0;

	if (ft_etcd_post(&rig->etcd, 0, "/lease/leases", "{}", rig->answer,
			 sizeof(rig->answer)) != 200)
		return 0;
	for (at = rig->answer; (at = strstr(at, "\"ID\":\"")); n++) {
		at += strlen("\"ID\":\"");
		snprintf(json, sizeof(json), "{\"ID\":\"%.*s\"}",
			 (int)strspn(at, "0123456789"), at);
		if (ft_etcd_post(&rig->etcd, 0, "/lease/revoke", json, none,
				 sizeof(none)) != 200)
			return 0;
	}
	return n;
}

static void etcd_lease_revoked(struct etcd_rig *rig)
{
	struct fx_peer target;
	segment_id_t seg;

	ft_ok(etcd_target(&target, "leased"), "target_with_a_lease_publishes");
	seg = openSegment(rig->engine, "leased");
	ft_ok(etcd_revoke_all(rig) >= 2, "all_leases_are_revoked");
	ft_ok(etcd_open_until(rig, "leased", true) &&
		      etcd_open_until(rig, "observer", true),
	      "names_of_revoked_leases_are_published_again");
	ft_ok(etcd_move(rig, seg, &target),
	      "open_segment_survives_the_loss_of_the_lease");
	ft_ok(!fx_ask(&target, "unreg 0") &&
		      !fx_ask(&target, "reg 0 %llu 1",
			      (unsigned long long)ETCD_MEM),
	      "segment_changes_with_the_new_lease");
	closeSegment(rig->engine, seg);
	fx_peer_kill(&target);
	ft_ok(etcd_open_until(rig, "leased", false),
	      "new_lease_ends_with_its_process");
	fx_peer_drop(&target);
}

struct etcd_log {
	int fd;
	const char *text;
};

static bool etcd_logged(void *arg)
{
	struct etcd_log *l = arg;
	char *text = fx_heard(l->fd);
	bool found = text && fx_lines(text, l->text, "") > 0;

	free(text);
	return found;
}

/* Discards all revisions except the current one. */
static bool etcd_compact(struct etcd_rig *rig)
{
	char json[64];
	const char *at;

	if (!ft_etcd_put(&rig->etcd, "mooncake/ram/filler", "x") ||
	    ft_etcd_post(&rig->etcd, 0, "/kv/range", "{\"key\":\"eA==\"}",
			 rig->answer, sizeof(rig->answer)) != 200)
		return false;
	at = strstr(rig->answer, "\"revision\":\"");
	if (!at)
		return false;
	at += strlen("\"revision\":\"");
	snprintf(json, sizeof(json), "{\"revision\":\"%.*s\"}",
		 (int)strspn(at, "0123456789"), at);
	return ft_etcd_post(&rig->etcd, 0, "/kv/compaction", json, rig->answer,
			    sizeof(rig->answer)) == 200;
}

/* Returns true if the watch has lasted long enough. The library does not
 * continue a watch that breaks within its first second; it begins a new one at
 * the current revision. */
static bool etcd_watch_lasted(void *arg)
{
	const uint64_t *start = arg;

	return ft_now_ns() - *start > ETCD_SHORT_NS;
}

/* Stops a reader while its watch breaks, the segment changes, and the revisions
 * that the reader has not seen are compacted. The reader must then read all
 * keys again. */
static void etcd_compacted(struct etcd_rig *rig)
{
	struct fx_peer target, reader;
	char option[64];
	struct etcd_log log = { .text = "reading all keys again" };
	uint64_t start;
	int seg;

	log.fd = fx_log(option, sizeof(option));
	ft_ok(etcd_target(&target, "compact") &&
		      fx_peer_start(&reader, ETCD_MEM, "FX_NAME=reader",
				    "MC_LOG_LEVEL=info", option, NULL),
	      "target_and_reader_start");
	seg = fx_ask(&reader, "open compact");
	start = ft_now_ns();
	ft_ok(seg >= 0 && ft_wait_until(etcd_watch_lasted, &start, FX_LONG_MS) &&
		      fx_peer_pause(&reader),
	      "reader_opens_and_is_stopped");
	ft_etcd_kill(&rig->etcd, 0);
	ft_ok(ft_etcd_restart(&rig->etcd, 0) && ft_etcd_wait(&rig->etcd, 0),
	      "server_restarts_with_its_data");
	ft_ok(!fx_ask(&target, "unreg 0") &&
		      !fx_ask(&target, "reg 0 %llu 1",
			      (unsigned long long)ETCD_MEM) &&
		      etcd_compact(rig),
	      "segment_changes_and_is_compacted");
	fx_peer_resume(&reader);
	ft_ok(ft_wait_until(etcd_logged, &log, FX_LONG_MS),
	      "watch_of_compacted_revisions_starts_again");
	fx_peer_stop(&reader);
	fx_peer_stop(&target);
	close(log.fd);
}

/* Checks engines whose tokens have become invalid, because the server does not
 * keep tokens when it restarts. */
static void etcd_token_invalid(struct etcd_rig *rig)
{
	char path[96];
	struct fx_peer target;
	segment_id_t seg;
	FILE *f;

	snprintf(path, sizeof(path), "%s/password", rig->etcd.dir);
	f = fopen(path, "we");
	ft_ok(f && fputs("root:sesame\n", f) >= 0 && !fclose(f) &&
		      !chmod(path, 0600),
	      "password_file_is_written");
	destroyTransferEngine(rig->engine);
	setenv("MOONRAIL_ETCD_AUTH_FILE", path, 1);
	ft_ok(etcd_engine(rig) && etcd_target(&target, "member"),
	      "password_is_not_needed_before_the_server_requires_it");
	ft_ok(ft_etcd_protect(&rig->etcd), "server_requires_a_password");
	ft_ok(etcd_open_until(rig, "member", true),
	      "running_engine_gets_a_token");
	ft_etcd_kill(&rig->etcd, 0);
	ft_ok(ft_etcd_restart(&rig->etcd, 0) && ft_etcd_wait(&rig->etcd, 0),
	      "server_restarts_without_its_tokens");
	seg = openSegment(rig->engine, "member");
	ft_ok(etcd_open_until(rig, "member", true) &&
		      !fx_ask(&target, "unreg 0") &&
		      !fx_ask(&target, "reg 0 %llu 1",
			      (unsigned long long)ETCD_MEM) &&
		      etcd_move(rig, seg, &target),
	      "invalid_token_is_replaced");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
	destroyTransferEngine(rig->engine);
	rig->engine = NULL;
	unsetenv("MOONRAIL_ETCD_AUTH_FILE");
}

/* --- TLS ------------------------------------------------------------------ */

static void etcd_tls(struct etcd_rig *rig)
{
	char ca[96], other[96], cert[96], key[96];
	struct fx_peer target;
	segment_id_t seg;

	snprintf(ca, sizeof(ca), "%s/ca.pem", rig->etcd.dir);
	snprintf(other, sizeof(other), "%s/other.pem", rig->etcd.dir);
	snprintf(cert, sizeof(cert), "%s/cert.pem", rig->etcd.dir);
	snprintf(key, sizeof(key), "%s/key.pem", rig->etcd.dir);
	snprintf(rig->conn, sizeof(rig->conn), "etcd://127.0.0.1:%d",
		 rig->etcd.tls_port);
	setenv("FX_META", rig->conn, 1);
	ft_ok(!createTransferEngine(rig->conn, "observer", "127.0.0.1", 0, 0) &&
		      *etcd_said(),
	      "server_with_tls_refuses_plain_connections");
	ft_diag("%s", etcd_said());
	setenv("MOONRAIL_STORE_CERT_FILE", cert, 1);
	setenv("MOONRAIL_STORE_KEY_FILE", key, 1);
	setenv("MOONRAIL_STORE_CA_FILE", other, 1);
	ft_ok(!createTransferEngine(rig->conn, "observer", "127.0.0.1", 0, 0) &&
		      strstr(etcd_said(), "certificate"),
	      "certificate_of_an_unknown_authority_is_refused");
	ft_diag("%s", etcd_said());
	setenv("MOONRAIL_STORE_CA_FILE", ca, 1);
	unsetenv("MOONRAIL_STORE_CERT_FILE");
	ft_ok(!createTransferEngine(rig->conn, "observer", "127.0.0.1", 0, 0) &&
		      *etcd_said(),
	      "client_without_a_certificate_is_refused");
	ft_diag("%s", etcd_said());
	setenv("MOONRAIL_STORE_CERT_FILE", cert, 1);
	ft_ok(etcd_engine(rig) && etcd_target(&target, "secure"),
	      "engines_publish_with_tls");
	seg = openSegment(rig->engine, "secure");
	ft_ok(seg >= 0 && etcd_move(rig, seg, &target),
	      "segment_is_found_with_tls");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
	ft_ok(etcd_open_until(rig, "secure", false),
	      "withdrawal_is_seen_with_tls");
}

/* --- the program ---------------------------------------------------------- */

static void etcd_three(void)
{
	static struct etcd_rig rig;

	if (ft_ok(etcd_open(&rig, 3, false), "three_members_start")) {
		etcd_leader_killed(&rig);
		etcd_member_stopped(&rig);
		etcd_majority_lost(&rig);
	}
	etcd_close(&rig);
}

static void etcd_one(void)
{
	static struct etcd_rig rig;

	if (ft_ok(etcd_open(&rig, 1, false) && etcd_engine(&rig),
		  "one_member_and_an_engine_start")) {
		etcd_lease_revoked(&rig);
		etcd_compacted(&rig);
		etcd_token_invalid(&rig);
	}
	etcd_close(&rig);
}

static void etcd_secure(void)
{
	static struct etcd_rig rig;

	if (system("command -v openssl >/dev/null")) {
		printf("skip - tls: no openssl\n");
		return;
	}
	if (ft_ok(etcd_open(&rig, 1, true), "member_with_tls_starts"))
		etcd_tls(&rig);
	etcd_close(&rig);
	unsetenv("MOONRAIL_STORE_CA_FILE");
	unsetenv("MOONRAIL_STORE_CERT_FILE");
	unsetenv("MOONRAIL_STORE_KEY_FILE");
}

int main(int argc, char **argv)
{
	fx_init(argc, argv);
	if (ft_etcd_missing())
		return ft_skip("%s", ft_etcd_missing());
	setenv("MC_TCP_BIND_ADDRESS", "127.0.0.1", 1);
	setenv("MOONRAIL_STORE_LEASE_MS", ETCD_LEASE_MS, 1);
	etcd_three();
	etcd_one();
	etcd_secure();
	return ft_result();
}
