/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests of tasks whose target region is unregistered during the transfer. The
 * data plane has no rails, and its progress thread is stopped. The test cuts
 * the tasks and passes the messages of the peer to their handlers.
 */

#include <string.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_op.h"
#include "prov/rail/core/rail_peer_struct.h"
#include "prov/rail/peer/rail_ctl.h"
#include "prov/rail/peer/rail_peer.h"
#include "prov/rail/peer/rail_recv.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_sched.h"
#include "prov/rail/tei_rail.h"
#include "prov/rail/wire/rail_wire.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"

#define USE_LEN		0x1000u		/* length of each task, bytes */

struct use_rig {
	struct test_plane plane;
	struct tei_rail_peer *peer;
	struct rail_done done;
	struct test_task task[4];
	uint32_t n;			/* number of tasks in use */
};

static void use_begin(struct use_rig *rig) TEI_ACQUIRE(rail_sched_held)
{
	memset(rig, 0, sizeof(*rig));
	test_plane_init(&rig->plane);
	test_plane_open(&rig->plane, NULL);
	test_plane_still(&rig->plane);
	rail_done_init(&rig->done);
	rail_sched_enter(rig->plane.dp);
	rig->peer = rail_peer_new(rig->plane.dp, "peer", 7);
	CU_ASSERT_PTR_NOT_NULL(rig->peer);
	rig->peer->state = RAIL_PEER_READY;
}

/* Ends the tasks that have not ended. Frees the rig. */
static void use_end(struct use_rig *rig) TEI_RELEASE(rail_sched_held)
{
	struct tei_err err = { .code = TEI_ERR_CONTEXT };
	struct rail_slice *s;
	uint32_t i;

	for (i = 0; i < rig->n; i++)
		rail_task_end(rig->plane.dp, &rig->task[i].task,
			      TEI_RAIL_END_CANCELED, &err, &rig->done);
	while (!tei_list_empty(&rig->peer->tasks.awaiting_fence)) {
		s = tei_list_first(&rig->peer->tasks.awaiting_fence,
				   struct rail_slice, link);
		rail_slice_drop(rig->plane.dp, s, false, &rig->done);
	}
	rail_sched_leave(rig->plane.dp);
	rail_done_run(rig->plane.dp, &rig->done);
	for (i = 0; i < rig->n; i++)
		CU_ASSERT_EQUAL(test_ends(&rig->task[i]), 1);
	test_plane_close(&rig->plane);
}

static void use_add(struct use_rig *rig, uint64_t base, uint64_t len,
		    uint64_t id) TEI_REQUIRES(rail_sched_held)
{
	test_key_add(rig->peer, base, len, id);
}

/* Adds a task for USE_LEN bytes at the peer's address "remote", of which "cut"
 * bytes have been cut into slices that have completed. Takes ownership of
 * ext. */
static struct tei_rail_task *use_task(struct use_rig *rig, uint64_t remote,
				      uint64_t cut,
				      struct tei_rail_task_ext *ext)
	TEI_REQUIRES(rail_sched_held)
{
	static char local[USE_LEN];
	struct tei_rail_task *t = &rig->task[rig->n].task;
	struct tei_rail_dp *dp = rig->plane.dp;

	test_task_init(&rig->task[rig->n++], rig->peer, false, local,
		       (const void *)(uintptr_t)remote, USE_LEN);
	t->ext = ext;
	t->cut = cut;
	t->done_bytes = cut;
	tei_list_add_tail(&rig->peer->tasks.live, &t->live_link);
	__atomic_store_n(&dp->tasks.nlive, dp->tasks.nlive + 1,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&dp->tasks.nheld, dp->tasks.nheld + 1,
			 __ATOMIC_RELAXED);
	if (cut == USE_LEN)
		return t;
	tei_list_add_tail(&rig->peer->tasks.small, &t->queue_link);
	rig->peer->tasks.queued++;
	return t;
}

/* Cuts a slice of len bytes from the task, which then awaits a fence. */
static struct rail_slice *use_slice(struct use_rig *rig,
				    struct tei_rail_task *t, uint64_t off,
				    uint64_t len) TEI_REQUIRES(rail_sched_held)
{
	struct rail_slice *s = rail_slice_get(rig->plane.dp);

	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	s->peer = rig->peer;
	s->lane = NULL;
	s->first = t;
	s->ntasks = 1;
	s->remote = t->remote + off;
	s->len = len;
	t->merge_next = NULL;
	t->slices++;
	t->done_bytes -= len;
	tei_list_add_tail(&rig->peer->tasks.awaiting_fence, &s->link);
	return s;
}

/* Passes a REVOKE for the region with that id to its handler. */
static void use_revoke(struct use_rig *rig, uint64_t id)
	TEI_REQUIRES(rail_sched_held)
{
	uint8_t buf[64];
	struct rail_wire w = { .p = buf, .cap = sizeof(buf) };

	rail_wire_put(&w, rig->peer->keys.epoch + 1, 4);
	rail_wire_put(&w, 1, 2);
	rail_wire_put(&w, id, 8);
	w.cap = w.pos;
	w.pos = 0;
	rail_key_on_revoke(rig->peer, &w, &rig->done);
}

/* Passes a KEY_REP with one region, which has no keys, to its handler. */
static void use_reply(struct use_rig *rig, uint64_t base, uint64_t len,
		      uint64_t id, uint32_t epoch) TEI_REQUIRES(rail_sched_held)
{
	uint8_t buf[64];
	struct rail_wire w = { .p = buf, .cap = sizeof(buf) };

	rail_wire_put(&w, base, 8);
	rail_wire_put(&w, len, 8);
	rail_wire_put(&w, 0, 4);
	rail_wire_put(&w, epoch, 4);
	rail_wire_put(&w, 1, 2);
	rail_wire_put(&w, base, 8);
	rail_wire_put(&w, len, 8);
	rail_wire_put(&w, id, 8);
	rail_wire_put(&w, 0, 1);
	rail_wire_put(&w, 0, 2);
	w.cap = w.pos;
	w.pos = 0;
	rail_key_on_reply(rig->peer, &w, 1, &rig->done);
}

/* Returns true if the task was failed because of an unregistered region. */
static bool use_failed(const struct tei_rail_task *t)
{
	return t->complete_wanted == TEI_RAIL_END_FAILED + 1 && t->err &&
	       t->err->code == TEI_ERR_NOT_REGISTERED;
}

static void test_revocation_fails_partly_cut_task(void)
{
	struct tei_rail_task *begun, *whole, *other, *new;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	use_add(&rig, 0x2000, USE_LEN, 2);
	begun = use_task(&rig, 0x1000, 1, NULL);
	new = use_task(&rig, 0x1000, 0, NULL);
	other = use_task(&rig, 0x2000, 1, NULL);
	whole = use_task(&rig, 0x1000, USE_LEN, NULL);
	use_slice(&rig, whole, 0, 1);
	use_revoke(&rig, 1);
	CU_ASSERT(use_failed(begun));
	CU_ASSERT_EQUAL(new->complete_wanted, 0);
	CU_ASSERT_EQUAL(other->complete_wanted, 0);
	CU_ASSERT_EQUAL(whole->complete_wanted, 0);
	use_end(&rig);
}

static void test_revocation_fails_task_in_two_regions(void)
{
	struct tei_rail_task *first, *second;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN / 2, 1);
	use_add(&rig, 0x1000 + USE_LEN / 2, USE_LEN / 2, 2);
	first = use_task(&rig, 0x1000, USE_LEN / 2, NULL);
	second = use_task(&rig, 0x1000, USE_LEN / 2 + 1, NULL);
	use_revoke(&rig, 2);
	CU_ASSERT_EQUAL(first->complete_wanted, 0);
	CU_ASSERT(use_failed(second));
	use_revoke(&rig, 1);
	CU_ASSERT(use_failed(first));
	use_end(&rig);
}

/* Returns an extension with two remote entries of USE_LEN / 2 bytes: at 0x3000,
 * then at 0x1000. */
static struct tei_rail_task_ext *use_ext(void)
{
	struct tei_rail_task_ext *x = tei_rail_task_ext_new(0, 2);

	CU_ASSERT_PTR_NOT_NULL_FATAL(x);
	x->piece[0].addr = 0x3000;
	x->piece[1].addr = 0x1000;
	x->piece[0].len = x->piece[1].len = USE_LEN / 2;
	tei_rail_task_ext_lay(x->piece, 2);
	return x;
}

static void test_revocation_fails_scattered_task(void)
{
	struct tei_rail_task *first, *second;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	use_add(&rig, 0x3000, USE_LEN, 3);
	first = use_task(&rig, 0x3000, USE_LEN / 2, use_ext());
	second = use_task(&rig, 0x3000, USE_LEN / 2 + 1, use_ext());
	use_revoke(&rig, 1);
	CU_ASSERT_EQUAL(first->complete_wanted, 0);
	CU_ASSERT(use_failed(second));
	use_revoke(&rig, 3);
	CU_ASSERT(use_failed(first));
	use_end(&rig);
}

/* Slices of completely cut tasks fail after the revocation. */
static void test_failed_slice_after_revocation_fails_its_task(void)
{
	struct tei_rail_task *part, *whole;
	struct rail_slice *s, *all;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	part = use_task(&rig, 0x1000, USE_LEN, NULL);
	whole = use_task(&rig, 0x1000, USE_LEN, NULL);
	s = use_slice(&rig, part, 1, USE_LEN - 1);
	all = use_slice(&rig, whole, 0, USE_LEN);
	use_revoke(&rig, 1);
	CU_ASSERT_EQUAL(part->complete_wanted, 0);
	rail_sched_again(rig.peer, s, &rig.done);
	CU_ASSERT(use_failed(part));
	/* all bytes of this task are posted to the new region */
	rail_sched_again(rig.peer, all, &rig.done);
	CU_ASSERT_EQUAL(whole->complete_wanted, 0);
	CU_ASSERT_FALSE(whole->region_gone);
	use_end(&rig);
}

static void test_revocation_fails_part_in_retry_list(void)
{
	struct tei_rail_task *part, *whole;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	part = use_task(&rig, 0x1000, USE_LEN, NULL);
	whole = use_task(&rig, 0x1000, USE_LEN, NULL);
	rail_sched_again(rig.peer, use_slice(&rig, whole, 0, USE_LEN),
			 &rig.done);
	rail_sched_again(rig.peer, use_slice(&rig, part, 0, 1), &rig.done);
	CU_ASSERT_EQUAL(part->complete_wanted, 0);
	use_revoke(&rig, 1);
	CU_ASSERT(use_failed(part));
	CU_ASSERT_EQUAL(whole->complete_wanted, 0);
	CU_ASSERT_FALSE(whole->region_gone);
	use_end(&rig);
}

static void test_key_of_newer_region_fails_partly_cut_task(void)
{
	struct tei_rail_task *begun, *beyond;
	struct use_rig rig;

	use_begin(&rig);
	/* two keys of one region */
	use_add(&rig, 0x1000, USE_LEN, 1);
	use_add(&rig, 0x2000, USE_LEN, 1);
	begun = use_task(&rig, 0x1000, 1, NULL);
	beyond = use_task(&rig, 0x2000, 1, NULL);
	/* the same key again */
	use_reply(&rig, 0x1000, USE_LEN, 1, 0);
	CU_ASSERT_EQUAL(begun->complete_wanted, 0);
	/* before REVOKE has arrived, KEY_REP names another region, which
	 * also contains 0x1000 */
	use_reply(&rig, 0x800, USE_LEN, 2, 1);
	CU_ASSERT(use_failed(begun));
	CU_ASSERT(use_failed(beyond));
	CU_ASSERT_PTR_NULL(rail_key_find(rig.peer, 0x2000));
	use_end(&rig);
}

static void test_reply_older_than_a_known_region_is_void(void)
{
	struct tei_rail_task *begun;
	struct use_rig rig;

	use_begin(&rig);
	use_reply(&rig, 0x1000, USE_LEN, 2, 1);
	begun = use_task(&rig, 0x1000, 1, NULL);
	use_reply(&rig, 0x1000, USE_LEN, 1, 0);
	CU_ASSERT_EQUAL(begun->complete_wanted, 0);
	CU_ASSERT_EQUAL(rail_key_find(rig.peer, 0x1000)->id, 2);
	use_end(&rig);
}

/* The keys of all regions are withdrawn because the peer has a new rail. */
static void test_region_without_keys_is_revoked_too(void)
{
	struct tei_rail_task *begun, *other, *both;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	use_add(&rig, 0x2000, USE_LEN, 2);
	begun = use_task(&rig, 0x1000, 1, NULL);
	other = use_task(&rig, 0x2000, 1, NULL);
	both = use_task(&rig, 0x1800, USE_LEN - 1, NULL);
	rail_key_drop_all(rig.peer);
	use_reply(&rig, 0x1000, USE_LEN, 1, 0);
	rail_key_drop_all(rig.peer);
	CU_ASSERT_EQUAL(begun->complete_wanted, 0);
	use_revoke(&rig, 1);
	CU_ASSERT(use_failed(begun));
	CU_ASSERT(use_failed(both));
	CU_ASSERT_EQUAL(other->complete_wanted, 0);
	/* the same region, then another one */
	use_reply(&rig, 0x2000, USE_LEN, 2, 1);
	CU_ASSERT_EQUAL(other->complete_wanted, 0);
	rail_key_drop_all(rig.peer);
	use_reply(&rig, 0x2000, USE_LEN, 3, 2);
	CU_ASSERT(use_failed(other));
	use_end(&rig);
}

/* --- groups of tasks ------------------------------------------------------ */

/* Adds a task of the group, of which "cut" bytes have been cut into slices that
 * have completed, after its keys were found. A task that is cut completely
 * ends. */
static struct tei_rail_task *use_part(struct use_rig *rig,
				      struct tei_rail_group *group,
				      uint64_t remote, uint64_t cut)
	TEI_REQUIRES(rail_sched_held)
{
	struct tei_rail_task *t = use_task(rig, remote, cut, NULL);

	t->group = group;
	if (cut)
		CU_ASSERT(rail_key_group_ready(rig->peer, t));
	if (cut == USE_LEN)
		rail_task_finish(rig->plane.dp, t, &rig->done);
	return t;
}

static struct tei_rail_group *use_group(struct use_rig *rig)
{
	struct tei_rail_group *group = tei_rail_group_new(rig->peer);

	CU_ASSERT_PTR_NOT_NULL_FATAL(group);
	return group;
}

/* Ends the tasks as use_end does, then frees the groups. */
static void use_end_groups(struct use_rig *rig, struct tei_rail_group *a,
			   struct tei_rail_group *b)
	TEI_RELEASE(rail_sched_held)
{
	uint32_t i;

	for (i = 0; i < rig->n; i++)
		rig->task[i].task.group = NULL;
	rail_sched_leave(rig->plane.dp);
	tei_rail_group_free(a);
	tei_rail_group_free(b);
	rail_sched_enter(rig->plane.dp);
	use_end(rig);
}

static void test_revocation_fails_rest_of_group(void)
{
	struct tei_rail_task *next, *other, *new;
	struct tei_rail_group *begun, *fresh;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	use_add(&rig, 0x2000, USE_LEN, 2);
	begun = use_group(&rig);
	fresh = use_group(&rig);
	use_part(&rig, begun, 0x1000, USE_LEN);
	next = use_part(&rig, begun, 0x2000, 0);
	other = use_part(&rig, fresh, 0x2000, 1);
	use_revoke(&rig, 1);
	CU_ASSERT(use_failed(next));
	CU_ASSERT_EQUAL(other->complete_wanted, 0);
	/* a group that has used nothing yet may use the new region */
	new = use_part(&rig, fresh, 0x1000, 0);
	CU_ASSERT_FALSE(rail_key_group_gone(new));
	use_end_groups(&rig, begun, fresh);
}

static void test_revocation_lets_posted_group_complete(void)
{
	struct tei_rail_task *posted;
	struct tei_rail_group *group;
	struct rail_slice *s;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	group = use_group(&rig);
	posted = use_task(&rig, 0x1000, USE_LEN, NULL);
	posted->group = group;
	CU_ASSERT(rail_key_group_ready(rig.peer, posted));
	s = use_slice(&rig, posted, 0, USE_LEN);
	use_revoke(&rig, 1);
	CU_ASSERT_EQUAL(posted->complete_wanted, 0);
	/* the slice would be posted to the new region */
	rail_sched_again(rig.peer, s, &rig.done);
	CU_ASSERT(use_failed(posted));
	use_end_groups(&rig, group, NULL);
}

static void test_no_task_of_group_is_cut_after_revocation(void)
{
	struct tei_rail_task *late;
	struct tei_rail_group *group;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	group = use_group(&rig);
	use_part(&rig, group, 0x1000, USE_LEN);
	use_revoke(&rig, 1);
	use_add(&rig, 0x1000, 2 * USE_LEN, 2);
	late = use_part(&rig, group, 0x2000, 0);
	CU_ASSERT_FALSE(rail_key_group_ready(rig.peer, late));
	use_end_groups(&rig, group, NULL);
}

static void test_key_of_newer_region_fails_group(void)
{
	struct tei_rail_task *next, *both;
	struct tei_rail_group *group, *same;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, USE_LEN, 1);
	use_add(&rig, 0x2000, USE_LEN, 2);
	group = use_group(&rig);
	same = use_group(&rig);
	use_part(&rig, group, 0x1000, USE_LEN);
	next = use_part(&rig, group, 0x2000, 0);
	/* a task in two regions */
	both = use_part(&rig, same, 0x1800, USE_LEN - 1);
	rail_key_drop_all(rig.peer);
	use_reply(&rig, 0x1000, USE_LEN, 1, 0);
	use_reply(&rig, 0x2000, USE_LEN, 2, 0);
	CU_ASSERT_EQUAL(next->complete_wanted, 0);
	CU_ASSERT_EQUAL(both->complete_wanted, 0);
	rail_key_drop_all(rig.peer);
	use_reply(&rig, 0x1000, USE_LEN, 3, 1);
	CU_ASSERT(use_failed(next));
	CU_ASSERT(use_failed(both));
	use_end_groups(&rig, group, same);
}

/* The first task of a merged slice belongs to a group, the others do not. */
static void test_merged_slice_loses_only_task_of_group(void)
{
	struct tei_rail_task *part, *plain;
	struct tei_rail_group *group;
	struct rail_slice *s;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, 2 * USE_LEN, 1);
	group = use_group(&rig);
	part = use_part(&rig, group, 0x1000, 0);
	plain = use_task(&rig, 0x2000, 0, NULL);
	CU_ASSERT(rail_key_group_ready(rig.peer, part));
	rail_task_unqueue(part);
	rail_task_unqueue(plain);
	part->cut = part->done_bytes = USE_LEN;
	plain->cut = USE_LEN;
	s = use_slice(&rig, part, 0, USE_LEN);
	s->ntasks = 2;
	s->len = 2 * USE_LEN;
	s->local = part->local;
	part->merge_next = plain;
	plain->slices++;
	plain->merge_next = NULL;
	use_revoke(&rig, 1);
	rail_sched_again(rig.peer, s, &rig.done);
	CU_ASSERT(use_failed(part));
	CU_ASSERT_EQUAL(plain->complete_wanted, 0);
	CU_ASSERT_EQUAL(plain->slices, 1);
	CU_ASSERT_FALSE(tei_list_empty(&rig.peer->tasks.retry));
	use_end_groups(&rig, group, NULL);
}

/* One of two tasks that were merged into a slice has been cancelled. When the
 * deadline ends the other one, the slice is dropped, and both leave the list of
 * live tasks. */
static void test_deadline_ends_both_tasks_of_merged_slice(void)
{
	struct tei_rail_task *first, *canceled;
	struct rail_slice *s;
	struct use_rig rig;

	use_begin(&rig);
	use_add(&rig, 0x1000, 2 * USE_LEN, 1);
	first = use_task(&rig, 0x1000, 0, NULL);
	canceled = use_task(&rig, 0x2000, 0, NULL);
	rail_task_unqueue(first);
	rail_task_unqueue(canceled);
	first->cut = first->done_bytes = canceled->cut = USE_LEN;
	s = use_slice(&rig, first, 0, USE_LEN);
	s->ntasks = 2;
	s->len = 2 * USE_LEN;
	first->merge_next = canceled;
	canceled->slices++;
	canceled->merge_next = NULL;
	tei_list_del(&s->link);
	tei_list_add_tail(&rig.peer->tasks.retry, &s->link);
	rail_task_end(rig.plane.dp, canceled, TEI_RAIL_END_CANCELED, NULL,
		      &rig.done);
	CU_ASSERT_EQUAL(canceled->slices, 1);
	rail_sched_leave(rig.plane.dp);
	rail_ctl_deadlines(rig.peer, tei_now_ns() + 3600 * TEI_NS_PER_SEC);
	rail_sched_enter(rig.plane.dp);
	CU_ASSERT(tei_list_empty(&rig.peer->tasks.live));
	CU_ASSERT(tei_list_empty(&rig.peer->tasks.retry));
	CU_ASSERT_EQUAL(rig.task[0].end, TEI_RAIL_END_FAILED);
	CU_ASSERT_EQUAL(rig.task[1].end, TEI_RAIL_END_CANCELED);
	use_end(&rig);
}

const struct tei_test_case rail_key_use_cases[] = {
	{ "revocation_fails_partly_cut_task",
	  test_revocation_fails_partly_cut_task },
	{ "revocation_fails_task_in_two_regions",
	  test_revocation_fails_task_in_two_regions },
	{ "revocation_fails_scattered_task",
	  test_revocation_fails_scattered_task },
	{ "failed_slice_after_revocation_fails_its_task",
	  test_failed_slice_after_revocation_fails_its_task },
	{ "revocation_fails_part_in_retry_list",
	  test_revocation_fails_part_in_retry_list },
	{ "key_of_newer_region_fails_partly_cut_task",
	  test_key_of_newer_region_fails_partly_cut_task },
	{ "reply_older_than_a_known_region_is_void",
	  test_reply_older_than_a_known_region_is_void },
	{ "region_without_keys_is_revoked_too",
	  test_region_without_keys_is_revoked_too },
	{ "revocation_fails_rest_of_group",
	  test_revocation_fails_rest_of_group },
	{ "revocation_lets_posted_group_complete",
	  test_revocation_lets_posted_group_complete },
	{ "no_task_of_group_is_cut_after_revocation",
	  test_no_task_of_group_is_cut_after_revocation },
	{ "key_of_newer_region_fails_group",
	  test_key_of_newer_region_fails_group },
	{ "deadline_ends_both_tasks_of_merged_slice",
	  test_deadline_ends_both_tasks_of_merged_slice },
	{ "merged_slice_loses_only_task_of_group",
	  test_merged_slice_loses_only_task_of_group },
	{ NULL, NULL },
};
