/* SPDX-License-Identifier: BSD-2-Clause */

#include <stdlib.h>
#include <string.h>

#include "prov/rail/conn/rail_key.h"
#include "prov/rail/core/rail.h"
#include "prov/rail/core/rail_dp.h"
#include "prov/rail/core/rail_info.h"
#include "prov/rail/core/rail_lane.h"
#include "prov/rail/health/rail_health.h"
#include "prov/rail/health/rail_renew.h"
#include "prov/rail/rail_peer_run.h"
#include "prov/rail/rail_progress.h"
#include "prov/rail/rail_test.h"
#include "prov/rail/sched/rail_fence.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/lock.h"
#include "util/log.h"
#include "util/settings.h"


static pthread_mutex_t test_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t test_cond;	/* signaled, with test_lock held, when a
					 * task ends */
static uint32_t test_notes;		/* number of notifications that all
					 * planes have received; guarded by
					 * test_lock */
static uint32_t test_user_messages;
static uint32_t test_looks;		/* number of calls of ops->resolve, by
					 * all planes; atomic */
static uint32_t test_order;		/* number of tasks that have ended;
					 * guarded by test_lock */

static void test_task_done(struct tei_rail_task *task, enum tei_rail_end end,
			   const struct tei_err *err)
{
	struct test_task *t = tei_container_of(task, struct test_task, task);

	if (t->poison)
		memset(task->local, t->poison, task->length);
	pthread_mutex_lock(&test_lock);
	t->ends++;
	t->order = test_order++;
	t->end = end;
	t->code = err ? err->code : 0;
	snprintf(t->text, sizeof(t->text), "%s", err ? err->text : "");
	snprintf(t->hint, sizeof(t->hint), "%s", err ? err->hint : "");
	pthread_cond_broadcast(&test_cond);
	pthread_mutex_unlock(&test_lock);
}

static void test_notify(void *arg, struct tei_rail_notification *note)
{
	struct test_plane *p = arg;
	bool hold = p->hold;

	pthread_mutex_lock(&test_lock);
	test_notes++;
	if (hold)
		tei_list_add_tail(&p->notes, &note->link);
	pthread_mutex_unlock(&test_lock);
	if (hold)
		return;
	tei_rail_notification_release(p->dp, 1, note->bytes);
	tei_rail_notification_free(note);
}

struct tei_rail_notification *test_plane_note(struct test_plane *p)
{
	struct tei_rail_notification *note = NULL;

	pthread_mutex_lock(&test_lock);
	if (!tei_list_empty(&p->notes)) {
		note = tei_list_first(&p->notes, struct tei_rail_notification,
				      link);
		tei_list_del(&note->link);
	}
	pthread_mutex_unlock(&test_lock);
	return note;
}

void test_plane_release(struct test_plane *p,
			struct tei_rail_notification *note)
{
	tei_rail_notification_release(p->dp, 1, note->bytes);
	tei_rail_notification_free(note);
}

/* Ends ops->resolve without a result, as if the peer still had its old
 * addresses. */
static void test_resolve(void *arg, struct tei_rail_peer *peer)
{
	(void)arg;
	__atomic_fetch_add(&test_looks, 1, __ATOMIC_RELAXED);
	tei_rail_peer_put(peer);
}

static void test_rails_changed(void *arg)
{
	(void)arg;
}

static void test_message(void *arg, struct tei_rail_message *m)
{
	(void)arg;
	__atomic_fetch_add(&test_user_messages, 1, __ATOMIC_RELAXED);
	tei_rail_message_free(m);
}

static const struct tei_rail_ops test_ops = {
	.task_done = test_task_done,
	.notify = test_notify,
	.resolve = test_resolve,
	.rails_changed = test_rails_changed,
	.message = test_message,
};

uint32_t test_resolved(void)
{
	return __atomic_load_n(&test_looks, __ATOMIC_RELAXED);
}

uint32_t test_messages(void)
{
	return __atomic_load_n(&test_user_messages, __ATOMIC_RELAXED);
}

uint32_t test_notified(void)
{
	uint32_t n;

	pthread_mutex_lock(&test_lock);
	n = test_notes;
	pthread_mutex_unlock(&test_lock);
	return n;
}

/* --- data planes --------------------------------------------------------- */

void test_plane_init(struct test_plane *p)
{
	struct tei_err err;

	memset(p, 0, sizeof(*p));
	tei_list_init(&p->notes);
	CU_ASSERT_EQUAL_FATAL(tei_settings_load(&p->settings, &err), 0);
	/* by default a test does the same whatever the number of CPUs */
	if (!p->settings.sched.progress_threads)
		p->settings.sched.progress_threads = 1;
}

void test_plane_open(struct test_plane *p, const char *address)
{
	static uint64_t incarnation = 0x1000;
	struct tei_rail_dp_attr attr = {
		.settings = &p->settings,
		.ops = &test_ops,
		.arg = p,
		.name = address ? address : "none",
		.incarnation = ++incarnation,
		.secret = p->secret,
		.back = true,
		.reports = p->reports,
	};
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_rail_dp_open(&attr, &err, &p->dp), 0);
	if (address)
		CU_ASSERT_EQUAL_FATAL(tei_rail_dp_add_transport(p->dp, "tcp",
								address, &err),
				      0);
}

void test_plane_still(struct test_plane *p)
{
	rail_progress_stop(p->dp);
}

/* An opening reads the name with the lock of its lane held. */
char *test_rail_rename(struct rail *rail, char *name) TEI_NO_TSA
{
	struct fi_fabric_attr *attr = rail->fab.info->fabric_attr;
	char *before = attr->prov_name;
	uint32_t i;

	tei_mutex_lock(&rail->next_rx.lane.lock);
	for (i = 0; i < rail->ntx; i++)
		tei_mutex_lock(&rail->next_tx[i].lane.lock);
	attr->prov_name = name;
	while (i--)
		tei_mutex_unlock(&rail->next_tx[i].lane.lock);
	tei_mutex_unlock(&rail->next_rx.lane.lock);
	return before;
}

void test_plane_use(struct test_plane *p)
{
	struct rail_lane *lane;
	struct tei_err err;
	struct rail *rail;
	uint32_t i, j;

	for (i = 0; i < rail_count(p->dp); i++) {
		rail = rail_at(p->dp, i);
		for (j = 0; j < rail->ntx; j++) {
			if (!rail_use_none(rail, j))
				continue;
			__atomic_store_n(&rail->next_tx[j].use, RAIL_LANE_USED,
					 __ATOMIC_RELEASE);
			lane = &rail->tx_lanes[j * RAIL_LANE_SLOTS];
			tei_mutex_lock(&lane->lock);
			CU_ASSERT_EQUAL_FATAL(rail_lane_open(lane, &err), 0);
			tei_mutex_unlock(&lane->lock);
		}
	}
}

void test_plane_close(struct test_plane *p)
{
	struct tei_rail_notification *note;

	tei_rail_dp_close(p->dp, 0);
	p->dp = NULL;
	while ((note = test_plane_note(p)))
		tei_rail_notification_free(note);
}

struct tei_rail_peer *test_plane_peer(struct test_plane *of,
				      struct test_plane *to)
{
	struct tei_rail_peer *peer = NULL;
	struct tei_rail_desc desc;
	struct tei_err err;

	CU_ASSERT_EQUAL_FATAL(tei_rail_describe(to->dp, 0, &desc), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_peer_get(of->dp, to->dp->name,
						to->dp->incarnation,
						&desc.addr, 1, &err, &peer), 0);
	return peer;
}

/* --- keys ---------------------------------------------------------------- */

struct rail_rkey *test_key_add(struct tei_rail_peer *peer, uint64_t base,
			       uint64_t len, uint64_t id)
{
	struct rail_rkey *k = calloc(1, sizeof(*k));

	CU_ASSERT_PTR_NOT_NULL_FATAL(k);
	k->range.base = base;
	k->range.end = base + len;
	k->id = id;
	CU_ASSERT(rail_key_add(peer, k));
	return k;
}

/* --- tasks --------------------------------------------------------------- */

void test_task_init(struct test_task *t, struct tei_rail_peer *peer, bool read,
		    void *local, const void *remote, uint64_t len)
{
	memset(t, 0, sizeof(*t));
	t->task.peer = peer;
	t->task.read = read;
	t->task.local = local;
	t->task.remote = (uint64_t)(uintptr_t)remote;
	t->task.length = len;
}

int test_submit(struct tei_rail_dp *dp, struct test_task *t, size_t n)
{
	struct tei_rail_task *list[256];
	size_t i;

	CU_ASSERT_FATAL(n <= 256);
	for (i = 0; i < n; i++)
		list[i] = &t[i].task;
	return tei_rail_submit(dp, list, n);
}

uint32_t test_ends(const struct test_task *t)
{
	uint32_t ends;

	pthread_mutex_lock(&test_lock);
	ends = t->ends;
	pthread_mutex_unlock(&test_lock);
	return ends;
}

bool test_wait(struct test_task *t, size_t n)
{
	uint64_t end = tei_now_ns() + TEST_WAIT_NS;
	struct timespec ts = {
		.tv_sec = (time_t)(end / TEI_NS_PER_SEC),
		.tv_nsec = (long)(end % TEI_NS_PER_SEC),
	};
	size_t i;
	int ret = 0;

	pthread_mutex_lock(&test_lock);
	for (i = 0; i < n; i++)
		while (!t[i].ends && !ret)
			ret = pthread_cond_timedwait(&test_cond, &test_lock,
						     &ts);
	pthread_mutex_unlock(&test_lock);
	return !ret;
}

enum tei_rail_end test_run(struct tei_rail_dp *dp, struct tei_rail_peer *peer,
			   bool read, void *local, const void *remote,
			   uint64_t len)
{
	struct test_task t;

	test_task_init(&t, peer, read, local, remote, len);
	CU_ASSERT_EQUAL_FATAL(test_submit(dp, &t, 1), 0);
	CU_ASSERT_FATAL(test_wait(&t, 1));
	return t.end;
}

void test_connect(struct tei_rail_dp *dp, struct tei_rail_peer *peer,
		  void *local, const void *remote)
{
	uint64_t open_ns;

	/* the time limit for connecting grows with open_ns; the large value
	 * prevents a slow machine from exceeding the limit */
	open_ns = __atomic_exchange_n(&dp->health.open_ns, TEST_WAIT_NS,
				      __ATOMIC_RELAXED);
	CU_ASSERT_EQUAL_FATAL(test_run(dp, peer, false, local, remote, 1),
			      TEI_RAIL_END_COMPLETED);
	__atomic_store_n(&dp->health.open_ns, open_ns, __ATOMIC_RELAXED);
}

/* --- two data planes ----------------------------------------------------- */

static void pair_open(struct test_pair *pair)
{
	struct tei_rail_mr *mr;
	struct tei_err err;

	test_plane_open(&pair->from, "127.0.0.1");
	test_plane_open(&pair->to, "127.0.0.2");
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(pair->from.dp, pair->src,
					      sizeof(pair->src), "*", TEI_RAIL_REMOTE,
					      &err, &mr), 0);
	CU_ASSERT_EQUAL_FATAL(tei_rail_mr_reg(pair->to.dp, pair->dst,
					      sizeof(pair->dst), "*", TEI_RAIL_REMOTE,
					      &err, &mr), 0);
	pair->peer = test_plane_peer(&pair->from, &pair->to);
	test_connect(pair->from.dp, pair->peer, pair->src, pair->dst);
	test_plane_still(&pair->from);
	/* lets the other code believe that the progress thread runs, because
	 * the test calls the functions of this thread */
	__atomic_store_n(&pair->from.dp->thread.stop, false, __ATOMIC_RELEASE);
	pair->rail = rail_at(pair->from.dp, 0);
}

void test_pair_open(struct test_pair *pair)
{
	test_plane_init(&pair->from);
	test_plane_init(&pair->to);
	pair_open(pair);
}

bool test_pair_open_by(struct test_pair *pair, const char *provider)
{
	struct tei_settings *s = &pair->from.settings;
	struct rail_found *list = NULL;
	struct tei_err err;
	int ret;

	test_plane_init(&pair->from);
	test_plane_init(&pair->to);
	snprintf(s->rails.provider, sizeof(s->rails.provider), "%s", provider);
	pair->to.settings = *s;
	ret = rail_info_find(s, "tcp", "127.0.0.1", 0, &err, &list);
	rail_info_free(list);
	if (!ret)
		pair_open(pair);
	return !ret;
}

void test_pair_close(struct test_pair *pair)
{
	__atomic_store_n(&pair->from.dp->thread.stop, true, __ATOMIC_RELEASE);
	tei_rail_peer_put(pair->peer);
	test_plane_close(&pair->from);
	test_plane_close(&pair->to);
}

void test_pair_turn(struct test_pair *pair, uint64_t now)
{
	uint32_t i;

	rail_peer_run(pair->peer, now);
	for (i = 0; i < pair->rail->ntx * RAIL_LANE_SLOTS; i++)
		rail_lane_run(&pair->rail->tx_lanes[i]);
	rail_lane_run(&pair->rail->rx_lane);
	rail_fence_run(pair->from.dp);
	rail_renew_run(pair->from.dp, now);
	rail_fence_collect(pair->rail);
}

void test_health_run(struct tei_rail_dp *dp, uint64_t now)
{
	rail_progress_reopen(dp, now);
	rail_health_run(dp, now);
}

/* --- data ---------------------------------------------------------------- */

/* Returns the next random number of the generator xorshift64*. state must not
 * be 0. */
uint64_t test_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

void test_fill(void *p, size_t len, uint64_t seed)
{
	uint64_t state = seed | 1;
	uint8_t *b = p;
	size_t i;

	for (i = 0; i < len; i++)
		b[i] = (uint8_t)(test_random(&state) >> 32);
}

static bool test_log_all;	/* true if MC_LOG_LEVEL is set and all lines are
				 * printed */

/* Prints only errors to stderr, or all lines if test_log_all is true. The tests
 * cause many refusals, whose warnings are hidden. */
static void test_log_errors(int level, const char *subsys, const char *text,
			    void *arg)
{
	(void)arg;
	if (level == TEI_LOG_ERROR)
		fprintf(stderr, "error %s: %s\n", subsys, text);
}

void test_log(tei_log_fn fn, void *arg)
{
	if (!fn && !test_log_all)
		fn = test_log_errors;
	tei_log_set(fn, arg);
}

int main(int argc, char **argv)
{
	static const struct tei_test_suite suites[] = {
		{ "rail_select", rail_select_cases },
		{ "rail_addr", rail_addr_cases },
		{ "rail_auth", rail_auth_cases },
		{ "rail_reverse", rail_reverse_cases },
		{ "rail_bounce", rail_bounce_cases },
		{ "rail_cache", rail_cache_cases },
		{ "rail_closing", rail_closing_cases },
		{ "rail_contact", rail_contact_cases },
		{ "rail_disconnect", rail_disconnect_cases },
		{ "rail_fence", rail_fence_cases },
		{ "rail_contact_lane", rail_contact_lane_cases },
		{ "rail_health", rail_health_cases },
		{ "rail_hello", rail_hello_cases },
		{ "rail_key", rail_key_cases },
		{ "rail_key_use", rail_key_use_cases },
		{ "rail_lane_thread", rail_lane_thread_cases },
		{ "rail_limits", rail_limits_cases },
		{ "rail_link", rail_link_cases },
		{ "rail_loss", rail_loss_cases },
		{ "rail_mr", rail_mr_cases },
		{ "rail_dispatch", rail_dispatch_cases },
		{ "rail_notify", rail_notify_cases },
		{ "rail_peer", rail_peer_cases },
		{ "rail_ports", rail_ports_cases },
		{ "rail_probe", rail_probe_cases },
		{ "rail_progress", rail_progress_cases },
		{ "rail_refresh", rail_refresh_cases },
		{ "rail_reopen", rail_reopen_cases },
		{ "rail_sched", rail_sched_cases },
		{ "rail_served", rail_served_cases },
		{ "rail_slice", rail_slice_cases },
		{ "rail_step", rail_step_cases },
		{ "rail_width", rail_width_cases },
		{ "rail_window", rail_window_cases },
		{ "rail_wire", rail_wire_cases },
		{ NULL, NULL },
	};

	test_log_all = getenv("MC_LOG_LEVEL") != NULL;
	setenv("MC_LOG_LEVEL", "warn", 0);
	test_log(NULL, NULL);
	tei_cond_init(&test_cond);
	return tei_test_run(argc, argv, suites);
}
