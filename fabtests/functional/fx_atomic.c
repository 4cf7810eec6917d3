/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/functional/fx.h"

#define ATOMIC_DEPTH_MAX 64

static int atomic_wait(transfer_engine_t engine, batch_id_t id, size_t task)
{
	uint64_t end = ft_now_ns() + FX_LONG_MS * UINT64_C(1000000);
	struct timespec pause = { .tv_nsec = 20000 };
	struct transfer_status st = { .status = STATUS_WAITING };

	for (unsigned int i = 0; ft_now_ns() < end; i++) {
		if (fx_status(engine, id, task, &st))
			return -1;
		if (st.status != STATUS_WAITING)
			return st.status;
		if (i > 20)
			nanosleep(&pause, NULL);
	}
	return STATUS_WAITING;
}

int fx_submit(transfer_engine_t engine, const struct te_request *req,
	      struct te_error *err)
{
	batch_id_t id = allocateBatchID(engine, 1);
	int status = te_submit(engine, id, req, sizeof(*req), 1, 0);

	if (status) {
		ft_diag("te_submit: %d", status);
		freeBatchID(engine, id);
		return -status;
	}
	status = atomic_wait(engine, id, 0);
	if (err)
		te_task_error(engine, id, 0, err, sizeof(*err));
	freeBatchID(engine, id);
	return status;
}

/* --- counting ------------------------------------------------------------ */

struct atomic_counter {
	struct fx_count *count;
	uint64_t *results;		/* registered array of `depth`
					 * results */
	struct fx_counted got;
};

static void atomic_tally(struct atomic_counter *c, batch_id_t id, size_t task,
			 uint64_t old)
{
	struct te_error err = { 0 };
	struct fx_counted *got = &c->got;

	switch (atomic_wait(c->count->engine, id, task)) {
	case STATUS_COMPLETED:
		got->completed++;
		got->sum += old;
		return;
	case STATUS_FAILED:
	case STATUS_TIMEOUT:
		te_task_error(c->count->engine, id, task, &err, sizeof(err));
		if (err.flags & TE_ERROR_UNKNOWN)
			got->unknown++;
		else
			got->failed++;
		return;
	default:
		got->other++;
	}
}

static void atomic_round(struct atomic_counter *c)
{
	struct fx_count *k = c->count;
	struct te_request req[ATOMIC_DEPTH_MAX];
	struct te_local local[ATOMIC_DEPTH_MAX];
	struct te_remote remote = { k->addr, k->width };
	batch_id_t id = allocateBatchID(k->engine, k->depth);
	uint64_t old;

	memset(req, 0, sizeof(req));
	for (unsigned int i = 0; i < k->depth; i++) {
		local[i].addr = &c->results[i];
		local[i].length = k->width;
		req[i].opcode = TE_ATOMIC_FETCH_ADD;
		req[i].target_id = k->seg;
		req[i].local_count = req[i].remote_count = 1;
		req[i].local = &local[i];
		req[i].remote = &remote;
		req[i].operand = 1;
	}
	if (te_submit(k->engine, id, req, sizeof(req[0]), k->depth, 0)) {
		c->got.other += k->depth;
		freeBatchID(k->engine, id);
		return;
	}
	for (unsigned int i = 0; i < k->depth; i++) {
		atomic_wait(k->engine, id, i);
		old = k->width == 4 ? *(uint32_t *)&c->results[i] :
				      c->results[i];
		atomic_tally(c, id, i, old);
	}
	freeBatchID(k->engine, id);
}

static void *atomic_counter_main(void *arg)
{
	struct atomic_counter *c = arg;

	for (unsigned int i = 0; i < c->count->rounds; i++)
		if (!__atomic_load_n(&c->count->stop, __ATOMIC_RELAXED))
			atomic_round(c);
	return NULL;
}

void fx_count_run(struct fx_count *k, struct fx_counted *sum)
{
	struct atomic_counter c[FX_COUNT_THREADS] = { 0 };
	pthread_t thread[FX_COUNT_THREADS];

	memset(sum, 0, sizeof(*sum));
	for (unsigned int i = 0; i < k->threads; i++) {
		c[i].count = k;
		c[i].results = k->results + i * k->depth;
		pthread_create(&thread[i], NULL, atomic_counter_main, &c[i]);
	}
	for (unsigned int i = 0; i < k->threads; i++) {
		pthread_join(thread[i], NULL);
		sum->completed += c[i].got.completed;
		sum->failed += c[i].got.failed;
		sum->unknown += c[i].got.unknown;
		sum->other += c[i].got.other;
		sum->sum += c[i].got.sum;
	}
}

/* --- locks --------------------------------------------------------------- */

static bool lock_swap(const struct fx_lock *l, uint64_t from, uint64_t to,
		      uint64_t *found)
{
	struct te_local local = { l->scratch, 8 };
	struct te_remote remote = { l->addr, 8 };
	struct te_request req = {
		.opcode = TE_ATOMIC_CAS, .target_id = l->seg,
		.local_count = 1, .remote_count = 1, .local = &local,
		.remote = &remote, .operand = to, .compare = from,
	};

	if (fx_submit(l->engine, &req, NULL) != STATUS_COMPLETED)
		return false;
	*found = l->scratch[0];
	return true;
}

/* Takes the lock, increments the guarded number with a read and a write, and
 * releases the lock. Returns false if a request fails. */
static bool lock_round(const struct fx_lock *l)
{
	uint64_t found = 1;

	while (found)
		if (!lock_swap(l, 0, l->who, &found))
			return false;
	if (!fx_move(l->engine, l->seg, OPCODE_READ, &l->scratch[1],
		     l->addr + 64, 8, 0))
		return false;
	l->scratch[1]++;
	if (!fx_move(l->engine, l->seg, OPCODE_WRITE, &l->scratch[1],
		     l->addr + 64, 8, 0))
		return false;
	return lock_swap(l, l->who, 0, &found) && found == l->who;
}

bool fx_lock_run(const struct fx_lock *l)
{
	for (unsigned int i = 0; i < l->rounds; i++)
		if (!lock_round(l))
			return false;
	return true;
}
