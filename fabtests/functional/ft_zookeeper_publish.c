/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef THREADED
/* Makes zookeeper.h declare the synchronous calls. */
#define THREADED
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "fabtests/functional/ft_zookeeper.h"

/*
 * Tests of the publication of registered memory: access to buffers that are
 * newer than the descriptor which a peer has read, publications by a worker
 * thread that fail after the call has returned, and te_probe_peer.
 */

#define PUBLISH_PIECE	4096u
#define PUBLISH_BURST	64	/* number of registrations without a pause */
/* number of registrations before the initiator opens the segment */
#define PUBLISH_OPENED	8
#define PUBLISH_TRIES	10

static bool publish_reg(struct fx_peer *peer, unsigned int i)
{
	return !fx_ask(peer, "reg %u %u 1", i * PUBLISH_PIECE, PUBLISH_PIECE);
}

/* --- a burst of registrations --------------------------------------------- */

static bool publish_write(struct zk_rig *rig, segment_id_t seg,
			  struct fx_peer *peer, unsigned int i)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, i * PUBLISH_PIECE, PUBLISH_PIECE, seq);
	return fx_move(rig->engine, seg, OPCODE_WRITE,
		       rig->mem.p + i * PUBLISH_PIECE,
		       peer->mem.addr + i * PUBLISH_PIECE, PUBLISH_PIECE, 0) &&
	       fx_buf_check(&peer->mem, i * PUBLISH_PIECE, PUBLISH_PIECE, seq);
}

static void publish_burst(struct zk_rig *rig)
{
	struct fx_peer target;
	segment_id_t seg = -1;
	bool good = true;
	size_t listed = 0;
	unsigned int i;

	if (!ft_ok(fx_peer_start(&target, ZK_MEM, "FX_NAME=burst", NULL),
		   "a_target_without_memory"))
		return;
	for (i = 0; i < PUBLISH_BURST && good; i++) {
		good = publish_reg(&target, i);
		if (i + 1 == PUBLISH_OPENED) {
			seg = zk_open(rig, "burst");
			good = good && seg >= 0 &&
			       !te_segment_buffers(rig->engine, seg, NULL, 0,
						   &listed);
		}
		if (i + 1 >= PUBLISH_OPENED)
			good = good && publish_write(rig, seg, &target, i);
	}
	ft_diag("%zu of %d buffers were listed when the segment was opened",
		listed, PUBLISH_BURST);
	ft_ok(good, "a_buffer_is_usable_as_soon_as_its_registration_has_returned");
	closeSegment(rig->engine, seg);
	fx_peer_stop(&target);
}

/* --- a publication that fails after the call ------------------------------ */

/* Registers three buffers. The first call publishes the first buffer. The
 * second call publishes a reference to the control channel. A worker thread
 * publishes the third buffer later, so the third call succeeds although the
 * server is stopped. Returns true if it does. */
static bool publish_deferred(struct zk_rig *rig, struct fx_peer *peer)
{
	bool good;
	int i;

	for (i = 0; i < PUBLISH_TRIES; i++) {
		good = publish_reg(peer, 0) && publish_reg(peer, 1);
		ft_zk_pause(&rig->zk, 0);
		if (good && publish_reg(peer, 2))
			return true;
		/* On a busy machine the worker thread may publish the second
		 * buffer before the third call. The third call then needs the
		 * server and fails. */
		ft_diag("%s", peer->text);
		ft_zk_resume(&rig->zk, 0);
		for (unsigned int n = 0; n < 3; n++)
			fx_ask(peer, "unreg %u", n * PUBLISH_PIECE);
	}
	return false;
}

static bool publish_failed(void *arg)
{
	char *text = fx_heard(*(int *)arg);
	bool failed = fx_lines(text, "publishing 'later'", "no answer") > 0;

	free(text);
	return failed;
}

struct publish_node {
	const struct zk_rig *rig;
	unsigned int buffers;
};

/* Returns true if the node in the store itself lists the expected number of
 * buffers. */
static bool publish_listed(void *arg)
{
	const struct publish_node *n = arg;
	static char text[65536];
	int len = sizeof(text) - 1, ret = ZCONNECTIONLOSS;
	zhandle_t *zh = zookeeper_init(n->rig->zk.hosts, NULL, 10000, NULL,
				       NULL, 0);
	unsigned int found = 0;
	const char *p = text;

	if (zh)
		ret = zoo_get(zh, "/moon/rail/mooncake/ram/later", 0, text,
			      &len, NULL);
	if (zh)
		zookeeper_close(zh);
	if (ret != ZOK || len < 0)
		return false;
	text[len] = '\0';
	while ((p = strstr(p, "\"rkey\""))) {
		found++;
		p++;
	}
	return found == n->buffers;
}

static void publish_later(struct zk_rig *rig)
{
	struct publish_node node = { rig, 3 };
	struct fx_peer target;
	char option[32];
	int log = fx_log(option, sizeof(option));

	zoo_set_debug_level(0);
	if (!ft_ok(fx_peer_start(&target, ZK_MEM, "FX_NAME=later", option,
				 "MC_HANDSHAKE_CONNECT_TIMEOUT=2",
				 "MOONRAIL_ZK_SESSION_MS=60000", NULL),
		   "a_hasty_target_without_memory"))
		return;
	if (!ft_ok(publish_deferred(rig, &target),
		   "a_registration_in_a_burst_succeeds_without_the_store"))
		return;
	ft_ok(ft_wait_until(publish_failed, &log, FX_LONG_MS),
	      "failed_publication_of_the_burst_is_logged");
	ft_zk_resume(&rig->zk, 0);
	ft_ok(ft_wait_until(publish_listed, &node, FX_LONG_MS),
	      "failed_publication_is_repeated_when_the_store_serves");
	close(log);
	fx_peer_stop(&target);
}

/* --- te_probe_peer -------------------------------------------------------- */

static bool publish_says(const char *text, const char *hint)
{
	struct te_error err = { 0 };

	te_last_error(&err, sizeof(err));
	ft_diag("%d: %s (%s)", err.code, err.text, err.hint);
	return strstr(err.text, text) && strstr(err.hint, hint);
}

/* Starts another engine at the port of a killed one, and checks the results of
 * te_probe_peer for both names. */
static void publish_probe_port(struct zk_rig *rig, const char *name,
			       struct fx_peer *dead)
{
	const char *port = strrchr(dead->name, ':');
	char low[48], high[48];
	struct fx_peer heir;

	if (!ft_ok(port != NULL, "port_of_the_dead_process_is_known"))
		return;
	snprintf(low, sizeof(low), "MC_MIN_RPC_PORT=%.8s", port + 1);
	snprintf(high, sizeof(high), "MC_MAX_RPC_PORT=%.8s", port + 1);
	if (!ft_ok(fx_peer_start(&heir, ZK_MEM, "FX_NAME=heir", low, high, NULL),
		   "a_process_of_another_name_has_its_port"))
		return;
	/* If the node lists no buffers, the engine asks the process at that
	 * port for the descriptor. This other process replies "no such
	 * segment". */
	ft_ok(te_probe_peer(rig->engine, name, -1) == -104 &&
	      publish_says(name, "another process has its port"),
	      "probe_of_a_peer_whose_port_is_another_s_is_rejected");
	ft_ok(!te_probe_peer(rig->engine, "heir", -1),
	      "probe_by_the_name_of_that_process_succeeds");
	fx_peer_stop(&heir);
}

static void publish_probe(struct zk_rig *rig)
{
	struct fx_peer target;
	uint64_t from;

	/* With a long session timeout the nodes of the target remain after the
	 * kill. */
	if (!ft_ok(zk_target_for(&target, "probed", ZK_LONG_SESSION_MS),
		   "a_target_publishes"))
		return;
	ft_ok(!te_probe_peer(rig->engine, "probed", -1),
	      "probe_of_a_live_peer_succeeds");
	ft_ok(te_probe_peer(rig->engine, "nobody", -1) == -200 &&
	      publish_says("nobody", ""), "probe_of_an_unknown_name_fails");
	from = ft_now_ns();
	ft_ok(fx_peer_pause(&target) &&
	      te_probe_peer(rig->engine, "probed", 300000) == -102 &&
	      ft_now_ns() - from < FX_LONG_MS * UINT64_C(500000),
	      "probe_of_a_stopped_peer_fails_at_its_timeout");
	fx_peer_resume(&target);
	ft_ok(!te_probe_peer(rig->engine, "probed", -1),
	      "probe_of_a_resumed_peer_succeeds");
	fx_peer_kill(&target);
	ft_ok(te_probe_peer(rig->engine, "probed", -1) == -102 &&
	      publish_says("probed", "is the process running"),
	      "probe_of_a_killed_peer_fails");
	publish_probe_port(rig, "probed", &target);
	fx_peer_drop(&target);
}

#define PUBLISH_SCRAP	2048u

/* Checks te_probe_peer for a target with so many buffers that its node does not
 * list them but refers to the control channel. */
static void publish_probe_head(struct zk_rig *rig)
{
	struct fx_peer target;
	bool good;

	if (!ft_ok(zk_target_for(&target, "scattered", ZK_LONG_SESSION_MS),
		   "a_target_with_a_node_without_buffers_publishes"))
		return;
	good = !fx_ask(&target, "unreg 0");
	for (uint64_t at = 0; good && at < ZK_MEM; at += PUBLISH_SCRAP)
		good = !fx_ask(&target, "reg %llu %u 1", (unsigned long long)at,
			       PUBLISH_SCRAP);
	ft_ok(good && !te_probe_peer(rig->engine, "scattered", -1),
	      "probe_of_a_live_peer_whose_node_lists_no_buffers_succeeds");
	fx_peer_kill(&target);
	ft_ok(te_probe_peer(rig->engine, "scattered", -1) == -102 &&
	      publish_says("scattered", "is the process running"),
	      "probe_of_a_killed_peer_whose_node_lists_no_buffers_fails");
	ft_ok((int)openSegment(rig->engine, "scattered") < 0 &&
	      publish_says("scattered", "is the process running"),
	      "open_of_a_killed_peer_whose_node_lists_no_buffers_names_it");
	publish_probe_port(rig, "scattered", &target);
	fx_peer_drop(&target);
}

void zk_publications(struct zk_rig *rig)
{
	publish_probe(rig);
	publish_probe_head(rig);
	publish_burst(rig);
	publish_later(rig);
}
