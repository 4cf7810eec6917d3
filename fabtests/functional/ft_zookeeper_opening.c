/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef THREADED
/* Makes zookeeper.h declare the synchronous calls. */
#define THREADED
#endif
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

#include "fabtests/functional/ft_zookeeper.h"

/*
 * Tests of a descriptor that changes while the segment is being opened. With a
 * shared secret, the initiator first reads the segment's node, and then asks
 * the target for the descriptor. The target is stopped meanwhile, and the node
 * changes. ZooKeeper notifies a watch only once: if the initiator ignored this
 * notification, it would not see any later change.
 */

#define OPENING_TOUCHES 10
#define OPENING_NAP_US 50000
/* attempts; the target may be too late in some of them */
#define OPENING_TRIES 5

struct opening_call {
	struct zk_rig *rig;
	const char *name;
	segment_id_t seg;
};

static void *opening_main(void *arg)
{
	struct opening_call *c = arg;

	c->seg = openSegment(c->rig->engine, c->name);
	return NULL;
}

static bool opening_connected(void *zh)
{
	return zoo_state(zh) == ZOO_CONNECTED_STATE;
}

/* Writes the present contents to the segment's node again, so that ZooKeeper
 * notifies the watches of the node. Returns true on success. */
static bool opening_touch(zhandle_t *zh, const char *name)
{
	char path[256], data[8192];
	int len = sizeof(data);

	snprintf(path, sizeof(path), "/moon/rail/mooncake/ram/%s", name);
	return !zoo_get(zh, path, 0, data, &len, NULL) && len > 0 &&
	       !zoo_set(zh, path, data, len, -1);
}

/* Opens the segment in a thread while the target is stopped, and writes the
 * node several times before the target is resumed. Returns false if a step of
 * the test was not possible. Otherwise the result of openSegment is in
 * c->seg. */
static bool opening_try(struct opening_call *c, struct fx_peer *target,
			zhandle_t *zh)
{
	struct timespec nap = { .tv_nsec = OPENING_NAP_US * 1000 };
	pthread_t thread;
	bool good = true;
	int i;

	fx_peer_pause(target);
	if (pthread_create(&thread, NULL, opening_main, c)) {
		fx_peer_resume(target);
		return false;
	}
	for (i = 0; good && i < OPENING_TOUCHES; i++) {
		nanosleep(&nap, NULL);
		good = opening_touch(zh, c->name);
	}
	fx_peer_resume(target);
	pthread_join(thread, NULL);
	return good;
}

static bool opening_empty(void *arg)
{
	const struct opening_call *c = arg;
	size_t n = 0;

	return !te_segment_buffers(c->rig->engine, c->seg, NULL, 0, &n) && !n;
}

static void opening_seen(struct opening_call *c, struct fx_peer *target,
			 zhandle_t *zh)
{
	bool good = true;
	int i;

	for (i = 0; good && c->seg < 0 && i < OPENING_TRIES; i++)
		good = opening_try(c, target, zh);
	if (!ft_ok(good && c->seg >= 0,
		   "node_of_a_segment_changes_while_it_is_opened"))
		return;
	ft_ok(!fx_ask(target, "unreg 0") &&
		      ft_wait_until(opening_empty, c, FX_LONG_MS),
	      "change_after_the_opening_is_seen");
	closeSegment(c->rig->engine, c->seg);
}

void zk_opening(struct zk_rig *rig)
{
	struct opening_call c = { .rig = rig, .name = "opened", .seg = -1 };
	zhandle_t *zh = zookeeper_init(rig->zk.hosts, NULL, FX_LONG_MS, NULL,
				       NULL, 0);
	struct fx_peer target;

	if (ft_ok(zh && ft_wait_until(opening_connected, zh, FX_LONG_MS) &&
		  zk_target_for(&target, c.name, ZK_LONG_SESSION_MS),
		  "a_target_is_about_to_be_opened")) {
		opening_seen(&c, &target, zh);
		fx_peer_stop(&target);
	}
	if (zh)
		zookeeper_close(zh);
}

/* --- owners that are stopped ---------------------------------------------- */

/* number of targets; more than the worker threads of an engine */
#define CROWD 6

struct crowd {
	struct fx_peer stopped[CROWD], lively;
	segment_id_t seg[CROWD];
	int count;
};

static void crowd_name(char name[16], int i)
{
	snprintf(name, 16, "stopped-%c", 'a' + i);
}

/* Starts all targets, opens their segments, and stops all targets except
 * `lively`. Returns true on success. */
static bool crowd_start(struct crowd *c, struct opening_call *lively)
{
	char name[16];

	for (; c->count < CROWD; c->count++) {
		crowd_name(name, c->count);
		if (!zk_target_for(&c->stopped[c->count], name,
				   ZK_LONG_SESSION_MS))
			return false;
		c->seg[c->count] = zk_open(lively->rig, name);
		if (c->seg[c->count] < 0 ||
		    !fx_peer_pause(&c->stopped[c->count]))
			return false;
	}
	lively->seg = zk_open(lively->rig, lively->name);
	return lively->seg >= 0;
}

static bool crowd_touch(zhandle_t *zh)
{
	bool good = true;
	char name[16];
	int i;

	for (i = 0; good && i < CROWD; i++) {
		crowd_name(name, i);
		good = opening_touch(zh, name);
	}
	return good;
}

/*
 * Tests a change of one descriptor while all worker threads are busy. The
 * descriptors of the stopped targets have changed, and the worker threads of
 * the initiator wait for these targets. The initiator must notice a change of
 * the running target (`lively`) long before those waits end.
 */
void zk_crowd(struct zk_rig *rig)
{
	struct opening_call lively = { .rig = rig, .name = "lively" };
	zhandle_t *zh = zookeeper_init(rig->zk.hosts, NULL, FX_LONG_MS, NULL,
				       NULL, 0);
	struct crowd c = { 0 };
	int i;

	if (!ft_ok(zh && ft_wait_until(opening_connected, zh, FX_LONG_MS) &&
			   zk_target_for(&c.lively, lively.name,
					 ZK_LONG_SESSION_MS),
		   "running_target_publishes"))
		return;
	ft_ok(crowd_start(&c, &lively) && crowd_touch(zh),
	      "stopped_targets_have_changed");
	ft_ok(!fx_ask(&c.lively, "unreg 0") &&
		      ft_wait_until(opening_empty, &lively,
				    ZK_PATIENT_S * 1000 / 2),
	      "change_of_the_running_target_is_seen_soon");
	for (i = 0; i < c.count; i++) {
		fx_peer_resume(&c.stopped[i]);
		fx_peer_stop(&c.stopped[i]);
	}
	fx_peer_stop(&c.lively);
	zookeeper_close(zh);
}
