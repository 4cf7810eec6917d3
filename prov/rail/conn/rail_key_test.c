/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of the keys of a peer and of a region. The data plane has no rails, and
 * its progress thread is stopped; the test acts as the progress thread.
 */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_mr.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/settings.h"


struct key_rig {
	struct test_plane plane;
	struct tei_rail_peer *peer;
};

static void key_begin(struct key_rig *rig) TEI_ACQUIRE(rail_sched_held)
{
	test_plane_init(&rig->plane);
	test_plane_open(&rig->plane, NULL);
	test_plane_still(&rig->plane);
	rail_sched_enter(rig->plane.dp);
	rig->peer = rail_peer_new(rig->plane.dp, "peer", 7);
	CU_ASSERT_PTR_NOT_NULL(rig->peer);
}

static void key_end(struct key_rig *rig) TEI_RELEASE(rail_sched_held)
{
	rail_sched_leave(rig->plane.dp);
	test_plane_close(&rig->plane);
}

static struct rail_rkey *key_add(struct key_rig *rig, uint64_t base,
				 uint64_t len, uint64_t id)
	TEI_REQUIRES(rail_sched_held)
{
	return test_key_add(rig->peer, base, len, id);
}

static uint64_t key_id_at(struct key_rig *rig, uint64_t addr)
	TEI_REQUIRES(rail_sched_held)
{
	struct rail_rkey *k = rail_key_find(rig->peer, addr);

	return k ? k->id : 0;
}

static void test_an_address_finds_its_region(void)
{
	struct key_rig rig;

	key_begin(&rig);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1000), 0);
	/* the keys are added in an order that is not that of their addresses */
	key_add(&rig, 0x5000, 0x1000, 3);
	key_add(&rig, 0x1000, 0x1000, 1);
	key_add(&rig, 0x2000, 0x1, 2);
	CU_ASSERT_EQUAL(rig.peer->keys.rkeys.n, 3);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0xfff), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1000), 1);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1fff), 1);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x2000), 2);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x2001), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x5fff), 3);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x6000), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, UINT64_MAX), 0);
	key_end(&rig);
}

static void test_many_regions_stay_sorted(void)
{
	uint64_t state = 0x9e3779b97f4a7c15, at, i;
	struct key_rig rig;

	key_begin(&rig);
	for (i = 0; i < 500; i++) {
		at = test_random(&state) % 1000;
		key_add(&rig, 0x10000 + at * 0x100, 0x100, at + 1);
	}
	for (i = 1; i < rig.peer->keys.rkeys.n; i++)
		CU_ASSERT(rig.peer->keys.rkeys.at[i - 1]->base <
			  rig.peer->keys.rkeys.at[i]->base);
	for (i = 0; i < rig.peer->keys.rkeys.n; i++) {
		at = rig.peer->keys.rkeys.at[i]->base;
		CU_ASSERT_EQUAL(key_id_at(&rig, at + 0xff),
				(at - 0x10000) / 0x100 + 1);
	}
	key_end(&rig);
}

static void test_adjacent_regions_cover_a_range_together(void)
{
	struct key_rig rig;

	key_begin(&rig);
	key_add(&rig, 0x1000, 0x1000, 1);
	key_add(&rig, 0x2000, 0x1000, 2);
	key_add(&rig, 0x4000, 0x1000, 4);
	CU_ASSERT(rail_key_covers(rig.peer, 0x1000, 0x2000, true));
	CU_ASSERT(rail_key_covers(rig.peer, 0x1fff, 2, true));
	CU_ASSERT(rail_key_covers(rig.peer, 0x2fff, 1, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, 0xfff, 2, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, 0x1000, 0x2001, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, 0x2fff, 2, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, 0x1000, 0x4000, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, 0x1000, 0, true));
	key_add(&rig, 0x3000, 0x1000, 3);
	CU_ASSERT(rail_key_covers(rig.peer, 0x1000, 0x4000, true));
	key_end(&rig);
}

static void test_a_range_that_wraps_is_not_covered(void)
{
	const uint64_t top = UINT64_MAX - 0xfff;
	struct key_rig rig;

	key_begin(&rig);
	key_add(&rig, top, 0xfff, 1);	/* a region cannot contain the highest
					 * address */
	key_add(&rig, 0, 0x1000, 2);
	CU_ASSERT_EQUAL(key_id_at(&rig, UINT64_MAX - 1), 1);
	CU_ASSERT_EQUAL(key_id_at(&rig, UINT64_MAX), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0), 2);
	CU_ASSERT(rail_key_covers(rig.peer, top, 0xfff, true));
	CU_ASSERT(rail_key_covers(rig.peer, UINT64_MAX - 1, 1, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, top, 0x1000, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, top, 0x1001, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, UINT64_MAX, 2, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, 1, UINT64_MAX, true));
	CU_ASSERT_FALSE(rail_key_covers(rig.peer, 0, UINT64_MAX, true));
	key_end(&rig);
}

static void test_a_known_region_is_kept(void)
{
	struct rail_rkey *first;
	struct key_rig rig;

	key_begin(&rig);
	first = key_add(&rig, 0x1000, 0x1000, 1);
	key_add(&rig, 0x1000, 0x1000, 1);
	CU_ASSERT_EQUAL(rig.peer->keys.rkeys.n, 1);
	CU_ASSERT_PTR_EQUAL(rail_key_find(rig.peer, 0x1000), first);
	key_end(&rig);
}

static void test_a_newer_region_replaces_those_it_overlaps(void)
{
	struct key_rig rig;

	key_begin(&rig);
	key_add(&rig, 0x1000, 0x1000, 1);
	key_add(&rig, 0x2000, 0x1000, 2);
	key_add(&rig, 0x3000, 0x1000, 3);
	key_add(&rig, 0x4000, 0x1000, 4);
	key_add(&rig, 0x1fff, 0x1002, 5);
	CU_ASSERT_EQUAL(rig.peer->keys.rkeys.n, 2);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1000), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1fff), 5);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x3000), 5);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x3001), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x4000), 4);
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 0);
	key_end(&rig);
}

static void test_a_replaced_region_lives_until_its_slices_are_back(void)
{
	struct rail_rkey *old;
	struct key_rig rig;

	key_begin(&rig);
	old = key_add(&rig, 0x1000, 0x1000, 1);
	old->slices = 2;
	key_add(&rig, 0x1800, 0x1000, 2);
	CU_ASSERT(old->revoked);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1800), 2);
	rail_key_slice_done(rig.peer, old);
	CU_ASSERT_EQUAL(old->slices, 1);
	rail_key_slice_done(rig.peer, old); /* frees the remote key "old",
					     * because no slice uses it any
					     * longer */
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 0);
	key_end(&rig);
}

static void test_revoking_an_idle_region_is_answered_at_once(void)
{
	struct key_rig rig;

	key_begin(&rig);
	key_add(&rig, 0x1000, 0x1000, 1);
	key_add(&rig, 0x2000, 0x1000, 2);
	rail_key_revoked(rig.peer, 1);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1000), 0);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x2000), 2);
	CU_ASSERT_EQUAL_FATAL(rig.peer->keys.nowed, 1);
	CU_ASSERT_EQUAL(rig.peer->keys.answer_pending[0], 1);
	CU_ASSERT_EQUAL(rig.peer->keys.ndraining, 0);
	key_end(&rig);
}

static void test_revoking_an_unknown_region_is_answered_once(void)
{
	struct key_rig rig;

	key_begin(&rig);
	rail_key_revoked(rig.peer, 9);
	rail_key_revoked(rig.peer, 9);
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 1);
	key_end(&rig);
}

static void test_revoking_a_region_in_use_is_answered_after_its_last_slice(void)
{
	struct rail_rkey *k;
	struct key_rig rig;

	key_begin(&rig);
	k = key_add(&rig, 0x1000, 0x1000, 1);
	k->slices = 2;
	rail_key_revoked(rig.peer, 1);
	CU_ASSERT_EQUAL(key_id_at(&rig, 0x1000), 0);
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 0);
	/* a repeated REVOKE is not answered earlier */
	rail_key_revoked(rig.peer, 1);
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 0);
	rail_key_slice_done(rig.peer, k);
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 0);
	rail_key_revoked(rig.peer, 1);
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 0);
	rail_key_slice_done(rig.peer, k);
	CU_ASSERT_EQUAL_FATAL(rig.peer->keys.nowed, 1);
	CU_ASSERT_EQUAL(rig.peer->keys.answer_pending[0], 1);
	CU_ASSERT_EQUAL(rig.peer->keys.ndraining, 0);
	key_end(&rig);
}

static void test_slices_in_the_retry_list_release_a_revoked_region(void)
{
	struct rail_slice *s;
	struct rail_rkey *k;
	struct key_rig rig;

	key_begin(&rig);
	k = key_add(&rig, 0x1000, 0x1000, 1);
	s = rail_slice_get(rig.plane.dp);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	s->rkey = k;
	k->slices = 1;
	tei_list_add_tail(&rig.peer->tasks.retry, &s->link);
	rail_key_revoked(rig.peer, 1);
	CU_ASSERT_PTR_NULL(s->rkey);
	CU_ASSERT_EQUAL(rig.peer->keys.nowed, 1);
	tei_list_del(&s->link);
	rail_slice_put(rig.plane.dp, s);
	key_end(&rig);
}

static void test_dropped_regions_in_use_are_answered_after_their_slices(void)
{
	uint32_t out_of_order, late;
	struct rail_rkey *k;
	struct key_rig rig;

	key_begin(&rig);
	k = key_add(&rig, 0x1000, 0x1000, 1);
	k->slices = 1;
	/* withdraws all keys, as if the peer had got another rail */
	rail_key_drop_all(rig.peer);
	rail_key_revoked(rig.peer, 1);
	out_of_order = rig.peer->keys.nowed;
	rail_key_slice_done(rig.peer, k);
	late = rig.peer->keys.nowed;
	key_end(&rig);
	CU_ASSERT_EQUAL(out_of_order, 0);
	CU_ASSERT_EQUAL(late, 1);
}

static void test_a_region_added_again_is_answered_after_its_old_slices(void)
{
	uint32_t out_of_order, late;
	struct rail_rkey *k;
	struct key_rig rig;

	key_begin(&rig);
	k = key_add(&rig, 0x1000, 0x1000, 1);
	k->slices = 1;
	rail_key_drop_all(rig.peer);
	key_add(&rig, 0x1000, 0x1000, 1);
	rail_key_revoked(rig.peer, 1);
	out_of_order = rig.peer->keys.nowed;
	rail_key_slice_done(rig.peer, k);
	late = rig.peer->keys.nowed;
	key_end(&rig);
	CU_ASSERT_EQUAL(out_of_order, 0);
	CU_ASSERT_EQUAL(late, 1);
}

/* Checks that an entry of keys.draining is reserved for each key in use. */
static void test_withdrawing_keys_in_use_takes_no_memory(void)
{
	const struct rail_draining *room;
	struct rail_rkey *k[100];
	struct key_rig rig;
	uint32_t i;

	key_begin(&rig);
	for (i = 0; i < 100; i++) {
		k[i] = key_add(&rig, 0x1000 * (i + 1), 0x1000, i + 1);
		k[i]->slices = 1;
		if (i == 50) /* some keys are in use while others are
			      * added */
			rail_key_drop_all(rig.peer);
	}
	room = rig.peer->keys.draining;
	CU_ASSERT(rig.peer->keys.draining_cap >= 100);
	rail_key_drop_all(rig.peer);
	CU_ASSERT_PTR_EQUAL(rig.peer->keys.draining, room);
	CU_ASSERT_EQUAL(rig.peer->keys.ndraining, 100);
	for (i = 0; i < 100; i++)
		rail_key_slice_done(rig.peer, k[i]);
	CU_ASSERT_EQUAL(rig.peer->keys.ndraining, 0);
	key_end(&rig);
}

/* --- target side --------------------------------------------------------- */

/* Checks the key holders of a region. The region belongs to no data plane, so
 * no lock is needed. */
static void test_a_holder_is_noted_once(void) TEI_NO_TSA
{
	struct tei_rail_mr mr;
	uint64_t i;

	memset(&mr, 0, sizeof(mr));
	for (i = 0; i < 100; i++) {
		CU_ASSERT_EQUAL(rail_key_add_holder(&mr, i % 50 + 1), 0);
		CU_ASSERT_EQUAL(mr.nholders, i < 50 ? i + 1 : 50);
	}
	free(mr.holders);
}

static void test_a_region_is_revoked_until_its_holder_has_drained_it(void)
{
	struct tei_rail_mr *mr = NULL;
	static char mem[4096];
	struct key_rig rig;
	struct tei_err err;

	key_begin(&rig);
	rail_sched_leave(rig.plane.dp);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem, sizeof(mem),
					      "*", TEI_RAIL_REMOTE, &err, &mr), 0);
	rail_sched_enter(rig.plane.dp);
	mr->holders_left = 1;
	tei_list_add_tail(&rig.plane.dp->memory.revoking, &mr->revoking);
	CU_ASSERT_EQUAL(rail_key_revoke(rig.peer, mr->id), 0);
	CU_ASSERT_EQUAL(rail_key_revoke(rig.peer, mr->id), 0);
	CU_ASSERT_EQUAL(rig.peer->keys.nrevokes, 1);
	/* a reply for another region is not counted */
	rail_key_drained(rig.peer, mr->id + 1);
	CU_ASSERT_EQUAL(mr->holders_left, 1);
	rail_key_drained(rig.peer, mr->id);
	CU_ASSERT_EQUAL(mr->holders_left, 0);
	CU_ASSERT_EQUAL(rig.peer->keys.nrevokes, 0);
	/* a repetition of the same reply is not counted either */
	mr->holders_left = 1;
	rail_key_drained(rig.peer, mr->id);
	CU_ASSERT_EQUAL(mr->holders_left, 1);
	mr->holders_left = 0;
	key_end(&rig);
}

/* Checks that a key holder which did not answer in time still receives REVOKE
 * after the region has been unregistered, because the holder may still use the
 * key. */
static void
test_a_holder_that_did_not_answer_is_asked_after_unregistration(void)
{
	struct tei_rail_mr *mr = NULL;
	static char mem[4096];
	struct key_rig rig;
	uint64_t id;

	test_plane_init(&rig.plane);
	rig.plane.settings.failure.fence_ms = 10;
	test_plane_open(&rig.plane, NULL);
	rail_sched_enter(rig.plane.dp);
	rig.peer = rail_peer_new(rig.plane.dp, "peer", 7);
	CU_ASSERT_PTR_NOT_NULL_FATAL(rig.peer);
	rig.peer->refs = 1;
	rail_sched_leave(rig.plane.dp);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(rig.plane.dp, mem, sizeof(mem),
					      "*", TEI_RAIL_REMOTE, NULL, &mr),
			      0);
	id = mr->id;
	rail_sched_enter(rig.plane.dp);
	CU_ASSERT_EQUAL(rail_key_add_holder(mr, rig.peer->incarnation), 0);
	rail_sched_leave(rig.plane.dp);
	CU_ASSERT_EQUAL(tei_rail_mr_dereg(rig.plane.dp, mem, 0, NULL), 0);
	rail_sched_enter(rig.plane.dp);
	CU_ASSERT_EQUAL_FATAL(rig.peer->keys.nrevokes, 1);
	CU_ASSERT_EQUAL(rig.peer->keys.revokes[0], id);
	rail_key_drained(rig.peer, id);
	CU_ASSERT_EQUAL(rig.peer->keys.nrevokes, 0);
	key_end(&rig);
}

static void test_requesting_the_same_key_again_changes_nothing(void)
{
	struct rail_key_want *w;
	struct key_rig rig;

	key_begin(&rig);
	w = &rig.peer->keys.want;
	rail_key_want(rig.peer, 0x1000, 8);
	CU_ASSERT(w->active);
	w->tries = 3;
	w->since_ns = 5;
	w->next_ns = 7;
	rail_key_want(rig.peer, 0x1000, 8);
	CU_ASSERT_EQUAL(w->tries, 3);
	rail_key_want(rig.peer, 0x2000, 8);
	CU_ASSERT_EQUAL(w->tries, 0);
	CU_ASSERT_EQUAL(w->addr, 0x2000);
	/* the new range does not change the time of the next request to a
	 * silent peer */
	CU_ASSERT_EQUAL(w->next_ns, 7);
	/* since_ns is kept, because no reply has arrived since the first
	 * request */
	CU_ASSERT_EQUAL(w->since_ns, 5);
	w->active = false;
	rail_key_want(rig.peer, 0x1000, 8);
	CU_ASSERT_EQUAL(w->since_ns, 0);
	CU_ASSERT_EQUAL(w->next_ns, 0);
	key_end(&rig);
}

const struct tei_test_case rail_key_cases[] = {
	{ "an_address_finds_its_region", test_an_address_finds_its_region },
	{ "many_regions_stay_sorted", test_many_regions_stay_sorted },
	{ "adjacent_regions_cover_a_range_together",
	  test_adjacent_regions_cover_a_range_together },
	{ "a_range_that_wraps_is_not_covered",
	  test_a_range_that_wraps_is_not_covered },
	{ "a_known_region_is_kept", test_a_known_region_is_kept },
	{ "a_newer_region_replaces_those_it_overlaps",
	  test_a_newer_region_replaces_those_it_overlaps },
	{ "a_replaced_region_lives_until_its_slices_are_back",
	  test_a_replaced_region_lives_until_its_slices_are_back },
	{ "revoking_an_idle_region_is_answered_at_once",
	  test_revoking_an_idle_region_is_answered_at_once },
	{ "revoking_an_unknown_region_is_answered_once",
	  test_revoking_an_unknown_region_is_answered_once },
	{ "revoking_a_region_in_use_is_answered_after_its_last_slice",
	  test_revoking_a_region_in_use_is_answered_after_its_last_slice },
	{ "slices_in_the_retry_list_release_a_revoked_region",
	  test_slices_in_the_retry_list_release_a_revoked_region },
	{ "dropped_regions_in_use_are_answered_after_their_slices",
	  test_dropped_regions_in_use_are_answered_after_their_slices },
	{ "a_region_added_again_is_answered_after_its_old_slices",
	  test_a_region_added_again_is_answered_after_its_old_slices },
	{ "withdrawing_keys_in_use_takes_no_memory",
	  test_withdrawing_keys_in_use_takes_no_memory },
	{ "a_holder_is_noted_once", test_a_holder_is_noted_once },
	{ "a_region_is_revoked_until_its_holder_has_drained_it",
	  test_a_region_is_revoked_until_its_holder_has_drained_it },
	{ "requesting_the_same_key_again_changes_nothing",
	  test_requesting_the_same_key_again_changes_nothing },
	{ "a_holder_that_did_not_answer_is_asked_after_unregistration",
	  test_a_holder_that_did_not_answer_is_asked_after_unregistration },
	{ NULL, NULL },
};
