/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Measures a metadata store that contains 1 000 segments of 10 processes: how
 * long it takes to publish a segment, to fetch one, and to be notified of a
 * change. Runs only if TEI_STORE_SCALE names a store of
 * fabtests/common/ft_server.c, as in
 *
 *	TEI_STORE_SCALE=redis build/test/meta_test scale
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/ft_server.h"
#include "fabtests/common/ft_test.h"
#include "meta/meta_test.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"

#define SCALE_PROCESSES 10
#define SCALE_NAMES	100 /* number of segments that each process publishes */
#define SCALE_ALL	(SCALE_PROCESSES * SCALE_NAMES)
#define SCALE_CHANGES	5 /* number of changes that each process makes */
#define SCALE_WAIT_MS	120000

/* Memory that the processes share. Each process writes only its own elements of
 * the arrays of times. */
static struct scale {
	/* atomic: number of processes that have reached the barrier with this
	 * index */
	uint32_t arrived[3 + SCALE_PROCESSES * SCALE_CHANGES];
	uint32_t failed; /* atomic: number of calls that
			  * failed */
	uint64_t publish_ns[SCALE_ALL];
	uint64_t open_ns[SCALE_PROCESSES][SCALE_ALL];
	uint64_t changed_at;		/* atomic: time of the last change */
	uint64_t see_ns[SCALE_PROCESSES][SCALE_PROCESSES * SCALE_CHANGES];
} *scale;

static int scale_self;			/* index of this process, 0 to
					 * SCALE_PROCESSES - 1 */
static char scale_expected[32];		/* name of the segment whose change this
					 * process waits for */
static uint64_t scale_seen_at;		/* atomic: time of the notification, or
					 * 0 if it has not arrived yet */

static void scale_name(int process, int i, char out[32])
{
	snprintf(out, 32, "scale-%d-%d", process, i);
}

struct scale_arrival {
	const uint32_t *count;
	uint32_t want;
};

static bool scale_arrived(void *arg)
{
	struct scale_arrival *a = arg;

	return __atomic_load_n(a->count, __ATOMIC_ACQUIRE) >= a->want;
}

/* Waits until all processes have reached the barrier with the index step. */
static void scale_barrier(int step)
{
	struct scale_arrival a = { &scale->arrived[step], SCALE_PROCESSES };

	__atomic_add_fetch(&scale->arrived[step], 1, __ATOMIC_ACQ_REL);
	if (!ft_wait_until(scale_arrived, &a, SCALE_WAIT_MS))
		__atomic_add_fetch(&scale->failed, 1, __ATOMIC_RELAXED);
}

static void scale_publish(struct tei_meta_store *store, int i, uint32_t buffers)
{
	struct tei_meta_desc *d;
	char name[32];

	scale_name(scale_self, i, name);
	d = meta_test_desc(name, (uint64_t)scale_self + 1, 2, buffers);
	if (tei_meta_store_publish(store, d, meta_test_deadline(), NULL))
		__atomic_add_fetch(&scale->failed, 1, __ATOMIC_RELAXED);
	tei_meta_desc_unref(d);
}

static void scale_publish_all(struct tei_meta_store *store)
{
	uint64_t start;
	int i;

	for (i = 0; i < SCALE_NAMES; i++) {
		start = tei_now_ns();
		scale_publish(store, i, 4);
		scale->publish_ns[scale_self * SCALE_NAMES + i] =
			tei_now_ns() - start;
	}
}

static void scale_open_all(struct tei_meta_store *store)
{
	struct tei_meta_desc *d;
	uint64_t start;
	char name[32];
	int i;

	for (i = 0; i < SCALE_ALL; i++) {
		scale_name(i / SCALE_NAMES, i % SCALE_NAMES, name);
		start = tei_now_ns();
		if (tei_meta_store_fetch(store, name, meta_test_deadline(), &d,
					 NULL))
			__atomic_add_fetch(&scale->failed, 1, __ATOMIC_RELAXED);
		else
			tei_meta_desc_unref(d);
		scale->open_ns[scale_self][i] = tei_now_ns() - start;
	}
}

static void scale_changed(void *arg, const char *name, uint32_t tries)
{
	(void)arg;
	(void)tries;
	if (!strcmp(name, scale_expected))
		__atomic_store_n(&scale_seen_at, tei_now_ns(),
				 __ATOMIC_RELEASE);
}

static bool scale_seen(void *arg)
{
	(void)arg;
	return __atomic_load_n(&scale_seen_at, __ATOMIC_ACQUIRE) != 0;
}

/* Measures one change: one of the processes changes its first segment, and the
 * other ones measure how long the notification takes. */
static void scale_change(struct tei_meta_store *store, int step)
{
	int changer = step % SCALE_PROCESSES;
	struct tei_meta_desc *d;

	__atomic_store_n(&scale_seen_at, 0, __ATOMIC_RELEASE);
	scale_name(changer, 0, scale_expected);
	/* this fetch sets a watch on the segment again, because the previous
	 * one has fired */
	if (!tei_meta_store_fetch(store, scale_expected, meta_test_deadline(),
				  &d, NULL))
		tei_meta_desc_unref(d);
	scale_barrier(3 + step);
	if (changer == scale_self) {
		__atomic_store_n(&scale->changed_at, tei_now_ns(),
				 __ATOMIC_RELEASE);
		scale_publish(store, 0, 5 + (uint32_t)step);
	} else if (ft_wait_until(scale_seen, NULL, SCALE_WAIT_MS)) {
		scale->see_ns[scale_self][step] =
			scale_seen_at - __atomic_load_n(&scale->changed_at,
							__ATOMIC_ACQUIRE);
	} else {
		__atomic_add_fetch(&scale->failed, 1, __ATOMIC_RELAXED);
	}
}

static void scale_process(const char *conn)
{
	struct tei_meta_server *server;
	struct tei_meta_store *store;
	int step;

	server = meta_test_server_of(NULL, (uint64_t)scale_self + 1);
	if (!server || tei_meta_store_open(conn, meta_test_settings(), &store,
					   NULL)) {
		__atomic_add_fetch(&scale->failed, 1, __ATOMIC_RELAXED);
		return;
	}
	tei_meta_store_attach(store, server);
	tei_meta_store_watch(store, scale_changed, NULL, NULL);
	scale_barrier(0);
	scale_publish_all(store);
	scale_barrier(1);
	scale_open_all(store);
	scale_barrier(2);
	for (step = 0; step < SCALE_PROCESSES * SCALE_CHANGES; step++)
		scale_change(store, step);
	tei_meta_store_close(store);
	tei_meta_server_stop(server);
}

static int scale_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Prints the median, the 99th percentile and the greatest of the n durations in
 * ns. Durations of 0 are ignored. */
static void scale_print(const char *what, uint64_t *ns, size_t n)
{
	size_t zero = 0, count;

	qsort(ns, n, sizeof(*ns), scale_compare);
	while (zero < n && !ns[zero])
		zero++;
	count = n - zero;
	if (count)
		printf("# %s: median %.2f ms, 99%% %.2f ms, most %.2f ms, %zu times\n",
		       what, (double)ns[zero + count / 2] / 1e6,
		       (double)ns[zero + count * 99 / 100] / 1e6,
		       (double)ns[n - 1] / 1e6, count);
}

static void scale_run(const char *conn)
{
	pid_t child[SCALE_PROCESSES];
	double load[1] = { 0 };
	int i;

	fflush(NULL);
	for (i = 0; i < SCALE_PROCESSES; i++) {
		child[i] = fork();
		if (child[i])
			continue;
		scale_self = i;
		scale_process(conn);
		fflush(NULL);
		_exit(0);
	}
	for (i = 0; i < SCALE_PROCESSES; i++)
		waitpid(child[i], NULL, 0);
	if (getloadavg(load, 1) == 1)
		printf("# load %.1f\n", load[0]);
	scale_print("publish", scale->publish_ns, SCALE_ALL);
	scale_print("open", scale->open_ns[0], SCALE_PROCESSES * SCALE_ALL);
	scale_print("see a change", scale->see_ns[0],
		    sizeof(scale->see_ns) / sizeof(uint64_t));
	CU_ASSERT_EQUAL(scale->failed, 0);
}

static void test_thousand_segments_of_ten_processes(void)
{
	const char *name = getenv("TEI_STORE_SCALE");
	const struct ft_server_kind *k = ft_server_kinds;
	struct ft_server server;

	while (k->name && strcmp(k->name, name) != 0)
		k++;
	CU_ASSERT_PTR_NOT_NULL_FATAL(k->name);
	scale = mmap(NULL, sizeof(*scale), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CU_ASSERT_FATAL(scale != MAP_FAILED);
	CU_ASSERT(ft_server_open(&server, k));
	printf("# %s: %d segments of %d processes\n", name, SCALE_ALL,
	       SCALE_PROCESSES);
	scale_run(server.conn);
	ft_server_close(&server);
	munmap(scale, sizeof(*scale));
}

const struct tei_test_case scale_cases[] = {
	{ "thousand_segments_of_ten_processes",
	  test_thousand_segments_of_ten_processes },
	{ NULL, NULL },
};
