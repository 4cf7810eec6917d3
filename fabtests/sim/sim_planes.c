/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/sim/sim_planes.h"

#include <stdio.h>
#include <string.h>

#include "fabtests/sim/sim_net.h"
#include "fabtests/sim/sim_test.h"
#include "util/err.h"

struct sim_plane sim_planes[SIM_PLANES];

static void plane_done(struct tei_rail_task *task, enum tei_rail_end end,
		       const struct tei_err *err)
{
	struct sim_plane_task *t = (struct sim_plane_task *)(void *)task;

	(void)err;
	t->ends++;
	t->end = end;
	t->end_ns = sim_now();
}

static void plane_notify(void *arg, struct tei_rail_notification *note)
{
	(void)arg;
	tei_rail_notification_free(note);
}

static void plane_resolve(void *arg, struct tei_rail_peer *peer)
{
	(void)arg;
	tei_rail_peer_put(peer);
}

static void plane_changed(void *arg)
{
	(void)arg;
}

static const struct tei_rail_ops plane_ops = {
	.task_done = plane_done,
	.notify = plane_notify,
	.resolve = plane_resolve,
	.rails_changed = plane_changed,
};

/* --- code of a host --- */

static void plane_name(const struct sim_plane *p, char name[16])
{
	snprintf(name, 16, "host%u", sim_host_id(p->host));
}

static uint64_t plane_incarnation(const struct sim_plane *p)
{
	return 100 + sim_host_id(p->host);
}

static void *plane_open(void *arg)
{
	static const char *const options[] = { "MOONRAIL_PROVIDER=sim",
					       "MC_WORKERS_PER_CTX=1" };
	struct sim_plane *p = arg;
	struct tei_rail_dp_attr attr = {
		.settings = &p->settings,
		.ops = &plane_ops,
		.arg = p,
		.incarnation = plane_incarnation(p),
	};
	struct tei_rail_desc desc;
	struct tei_err err;
	char name[16];
	size_t i;

	plane_name(p, name);
	attr.name = name;
	CU_ASSERT_EQUAL_FATAL(
		tei_settings_load_options(&p->settings, options, 2, &err), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_dp_open(&attr, &err, &p->dp), 0);
	CU_ASSERT_EQUAL_FATAL(
		tei_rail_dp_add_transport(
			p->dp, p->conf->verbs ? "rdma" : "tcp", "", &err),
		0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_count(p->dp), p->conf->nics);
	for (i = 0; i < p->conf->nics; i++) {
		CU_ASSERT_EQUAL_FATAL(tei_rail_describe(p->dp, i, &desc), 0);
		p->at[p->nat++] = desc.known;
	}
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(p->dp, p->mem, p->conf->bytes,
					      "*", TEI_RAIL_REMOTE, &err,
					      &p->mr),
			      0);
	return NULL;
}

static void *plane_meet(void *arg)
{
	struct sim_plane *p = arg;
	const struct sim_plane *to;
	struct tei_err err;
	char name[16];
	uint32_t i;

	for (i = 1; i < p->conf->hosts; i++) {
		to = &sim_planes[i];
		plane_name(to, name);
		CU_ASSERT_EQUAL_FATAL(
			tei_rail_peer_get(p->dp, name, plane_incarnation(to),
					  to->at, to->nat, &err, &p->peers[i]),
			0);
	}
	return NULL;
}

void *sim_plane_leave(void *arg)
{
	struct sim_plane *p = arg;
	uint32_t i;

	for (i = 0; i < SIM_PLANES; i++)
		if (p->peers[i])
			tei_rail_peer_put(p->peers[i]);
	tei_rail_dp_close(p->dp, SIM_SEC);
	p->dp = NULL;
	return NULL;
}

/* --- code of a test --- */

static bool plane_ended(void *arg)
{
	return sim_fiber_ended(arg);
}

void sim_plane_run(struct sim_plane *p, void *(*fn)(void *))
{
	struct sim_fiber *fiber = sim_fiber_start(p->host, "test", fn, p);

	CU_ASSERT_FATAL(sim_run_while(plane_ended, fiber,
				      sim_now() + SIM_PLANES_WAIT_NS));
	sim_fiber_join(fiber);
}

void sim_planes_begin(const struct sim_planes_conf *conf)
{
	static bool set;
	struct sim_net_conf net;
	uint32_t i;

	if (!set) {
		sim_net_provider(NULL);
		sim_world_install();
	}
	set = true;
	if (conf->verbs)
		sim_net_conf_verbs(&net);
	else
		sim_net_conf_tcp(&net);
	if (conf->bandwidth)
		net.bandwidth = conf->bandwidth;
	memset(sim_planes, 0, sizeof(sim_planes));
	sim_begin(conf->seed, conf->hosts);
	sim_net_begin(&net, conf->nics);
	for (i = 0; i < conf->hosts; i++) {
		sim_planes[i].conf = conf;
		sim_planes[i].host = sim_host_get(i);
		sim_planes[i].mem = sim_arena(conf->bytes, 4096);
		sim_plane_run(&sim_planes[i], plane_open);
	}
	sim_plane_run(&sim_planes[0], plane_meet);
}

void sim_planes_end(void)
{
	struct sim_net_stats stats;
	uint32_t i;

	for (i = 0; i < sim_planes[0].conf->hosts; i++)
		sim_plane_run(&sim_planes[i], sim_plane_leave);
	sim_net_stats_get(SIM_NO_HOST, &stats);
	CU_ASSERT_EQUAL(stats.domains + stats.endpoints + stats.mrs +
				stats.queues + stats.avs + stats.counters,
			0);
	CU_ASSERT_EQUAL(stats.operations, 0);
	sim_net_end();
	sim_end();
}
