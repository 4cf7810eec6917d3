/* SPDX-License-Identifier: BSD-2-Clause */
/* Tests of remote rail selection. They use data structures without real
 * devices: each side has four rails, and all rails are in one network. */

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/conn/rail_width.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_conn_struct.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/sched/rail_select.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"

#define SELECT_RAILS 4u

struct select_rig {
	struct tei_settings settings;
	struct tei_rail_dp dp;
	struct tei_rail_peer peer;
	struct rail rail[SELECT_RAILS];
	struct rail_lane lane[SELECT_RAILS];
	struct rail_remote remote[SELECT_RAILS];
	struct rail_conn conn[SELECT_RAILS][SELECT_RAILS];
	struct rail_conn *conns[SELECT_RAILS * SELECT_RAILS];
	uint8_t ranks[SELECT_RAILS]; /* ranks of the local rails; all of them
				      * are equally near */
	struct rail_rkey *key;
};

static void select_address(struct tei_rail_addr *addr, uint8_t host)
{
	struct sockaddr_in *sa = (void *)addr->bytes;

	addr->addr_format = FI_SOCKADDR_IN;
	addr->len = sizeof(*sa);
	sa->sin_family = AF_INET;
	sa->sin_addr.s_addr = htonl(UINT32_C(0x0a4d0000) + host);
}

/* Creates the rig. The first nnear remote rails are near the target's
 * memory. */
static struct select_rig *select_begin(uint32_t nnear)
{
	struct select_rig *rig = calloc(1, sizeof(*rig));
	struct tei_err err;
	uint32_t i, r;

	CU_ASSERT_PTR_NOT_NULL_FATAL(rig);
	rig->key = calloc(1, sizeof(*rig->key) +
				     SELECT_RAILS * sizeof(rig->key->part[0]));
	CU_ASSERT_PTR_NOT_NULL_FATAL(rig->key);
	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&rig->settings, &err), 0);
	rig->settings.lanes.per_rail = 1;
	rig->dp.settings = &rig->settings;
	rig->dp.nrails = SELECT_RAILS;
	tei_mutex_init(&rig->dp.sched);
	rig->peer.dp = &rig->dp;
	tei_list_init(&rig->peer.faults);
	rig->peer.remotes = rig->remote;
	rig->peer.pairs.conns = rig->conns;
	rig->peer.nremotes = rig->peer.pairs.remotes_cap = SELECT_RAILS;
	rig->peer.pairs.rails = SELECT_RAILS;
	rig->peer.pairs.lanes = 1;
	rig->key->nparts = SELECT_RAILS;
	for (i = 0; i < SELECT_RAILS; i++) {
		rig->rail[i].dp = &rig->dp;
		rig->rail[i].index = (uint16_t)i;
		rig->rail[i].nic.prefix = 24;
		rig->rail[i].nbase = 1;
		select_address(&rig->rail[i].nic.own, (uint8_t)(1 + i));
		rig->dp.rails[i] = &rig->rail[i];
		rail_lane_init(&rig->lane[i], &rig->rail[i], false, 0);
		rig->remote[i].id = (uint16_t)i;
		select_address(&rig->remote[i].addr, (uint8_t)(101 + i));
		rig->peer.routes.route[i] = (int16_t)i;
		rig->key->part[i].rail_id = (uint16_t)i;
		rig->key->part[i].rank = i >= nnear;
		for (r = 0; r < SELECT_RAILS; r++)
			rig->conns[i * SELECT_RAILS + r] = &rig->conn[i][r];
	}
	return rig;
}

static void select_end(struct select_rig *rig)
{
	free(rig->key);
	free(rig);
}

static uint32_t selected(struct select_rig *rig, uint32_t rail, uint64_t length)
{
	struct rail_lane *lane = &rig->lane[rail];
	uint64_t now = 0;
	int16_t remote;

	tei_mutex_lock(&lane->lock);
	rail_sched_enter(&rig->dp);
	remote = rail_select_remote(&rig->peer, lane, rig->key, rig->ranks,
				    length, &now);
	rail_sched_leave(&rig->dp);
	tei_mutex_unlock(&lane->lock);
	CU_ASSERT_TRUE(remote >= 0);
	return (uint32_t)remote;
}

static void test_select_uses_far_remote_rails_for_large_requests(void)
{
	struct select_rig *rig = select_begin(2);
	uint32_t i;

	for (i = 0; i < SELECT_RAILS; i++) {
		CU_ASSERT_EQUAL(selected(rig, i, RAIL_FAR_BYTES - 1), i % 2);
		CU_ASSERT_EQUAL(selected(rig, i, RAIL_FAR_BYTES), i);
	}
	select_end(rig);
}

static void test_select_from_single_rail_takes_least_loaded_near_remote(void)
{
	struct select_rig *rig = select_begin(4);

	/* only the local rail 0 has a route */
	rig->peer.routes.route[1] = rig->peer.routes.route[2] =
		rig->peer.routes.route[3] = -1;
	CU_ASSERT_EQUAL(selected(rig, 0, RAIL_FAR_BYTES), 0);
	rig->conn[0][0].bytes = 2;
	rig->conn[0][1].bytes = 2;
	rig->conn[0][2].bytes = 1;
	rig->conn[0][3].bytes = 2;
	CU_ASSERT_EQUAL(selected(rig, 0, RAIL_FAR_BYTES), 2);
	/* a connection on which nothing can be posted at present is not
	 * selected */
	rig->conn[0][2].blocked_ns = UINT64_MAX;
	CU_ASSERT_EQUAL(selected(rig, 0, RAIL_FAR_BYTES), 0);
	select_end(rig);
}

static void test_select_for_extra_lane_takes_remote_of_sufficient_width(void)
{
	struct select_rig *rig = select_begin(4);
	struct rail_width width[SELECT_RAILS];
	uint32_t i;

	rig->peer.routes.route[1] = rig->peer.routes.route[2] =
		rig->peer.routes.route[3] = -1;
	memset(width, 0, sizeof(width));
	for (i = 0; i < SELECT_RAILS; i++) {
		width[i].ctl.n = i >= 2;
		rig->conn[0][i].width = &width[i];
		rig->conn[0][i].bytes = i;
	}
	CU_ASSERT_EQUAL(selected(rig, 0, RAIL_FAR_BYTES), 0);
	/* makes the only lane of the rail an extra lane */
	rig->rail[0].nbase = 0;
	CU_ASSERT_EQUAL(selected(rig, 0, RAIL_FAR_BYTES), 2);
	select_end(rig);
}

static void test_select_without_usable_near_remote_takes_far_one(void)
{
	struct select_rig *rig = select_begin(1);

	CU_ASSERT_EQUAL(selected(rig, 1, 1), 0);
	/* a remote rail with an outstanding fence is not selected; a closed
	 * remote rail is not selected */
	rig->remote[0].fence.state = RAIL_FENCE_WANTED;
	CU_ASSERT_EQUAL(selected(rig, 2, 1), 3);
	rig->remote[0].fence.state = RAIL_FENCE_NONE;
	rig->remote[0].addr.len = 0;
	CU_ASSERT_EQUAL(selected(rig, 1, 1), 2);
	/* without a key for any remote rail, the route is used */
	rig->key->nparts = 0;
	CU_ASSERT_EQUAL(selected(rig, 1, 1), 1);
	select_end(rig);
}

const struct tei_test_case rail_select_cases[] = {
	{ "select_uses_far_remote_rails_for_large_requests",
	  test_select_uses_far_remote_rails_for_large_requests },
	{ "select_from_single_rail_takes_least_loaded_near_remote",
	  test_select_from_single_rail_takes_least_loaded_near_remote },
	{ "select_for_extra_lane_takes_remote_of_sufficient_width",
	  test_select_for_extra_lane_takes_remote_of_sufficient_width },
	{ "select_without_usable_near_remote_takes_far_one",
	  test_select_without_usable_near_remote_takes_far_one },
	{ NULL, NULL },
};
