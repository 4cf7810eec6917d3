/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The handles of live engines, so that a stale or unknown handle is refused
 * without being dereferenced. This table and the fork generation are the only
 * state that belongs to the process and not to an engine.
 */
#include <stdio.h>

#include "api/engine_int.h"

#define HANDLE_MAX 1024 /* greatest number of engines in a process */

static struct engine *handle_slots[HANDLE_MAX]; /* each entry is atomic */
/* number of elements of handle_slots that have been used so far; the rest is
 * NULL */
static uint32_t handle_used;
static uint32_t handle_forks;			/* atomic: fork generation of
						 * this process */
static pthread_once_t handle_once = PTHREAD_ONCE_INIT;

static void handle_forked(void)
{
	__atomic_fetch_add(&handle_forks, 1, __ATOMIC_RELAXED);
}

static void handle_watch_forks(void)
{
	pthread_atfork(NULL, NULL, handle_forked);
}

uint32_t engine_fork_gen(void)
{
	return __atomic_load_n(&handle_forks, __ATOMIC_RELAXED);
}

int engine_handle_add(struct engine *e)
{
	struct engine *none;
	uint32_t i, used;

	pthread_once(&handle_once, handle_watch_forks);
	e->fork_gen = engine_fork_gen();
	for (i = 0; i < HANDLE_MAX; i++) {
		none = NULL;
		if (!__atomic_compare_exchange_n(&handle_slots[i], &none, e,
						 false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		used = __atomic_load_n(&handle_used, __ATOMIC_RELAXED);
		while (used < i + 1 &&
		       !__atomic_compare_exchange_n(&handle_used, &used, i + 1,
						    false, __ATOMIC_RELEASE,
						    __ATOMIC_RELAXED))
			;
		return 0;
	}
	return TEI_ERR_TOO_MANY;
}

bool engine_handle_remove(struct engine *e)
{
	struct engine *want;
	uint32_t i;

	for (i = 0; e && i < HANDLE_MAX; i++) {
		want = e;
		if (__atomic_compare_exchange_n(&handle_slots[i], &want, NULL,
						false, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return true;
	}
	return false;
}

bool engine_handle_known(const void *handle)
{
	uint32_t i, used = __atomic_load_n(&handle_used, __ATOMIC_ACQUIRE);

	for (i = 0; handle && i < used; i++)
		if (__atomic_load_n(&handle_slots[i], __ATOMIC_ACQUIRE) ==
		    handle)
			return true;
	return false;
}

struct engine *engine_from(transfer_engine_t handle)
{
	static const struct tei_err bad = {
		.code = TEI_ERR_INVALID,
		.text = "no such engine: NULL, destroyed or unknown handle",
	};
	static const struct tei_err forked = {
		.code = TEI_ERR_INVALID,
		.text = "this engine belongs to the parent process",
		.hint = "create an engine after fork()",
	};
	struct engine *e = handle;

	if (!engine_handle_known(handle)) {
		tei_err_set_last(&bad);
		return NULL;
	}
	if (e->fork_gen != engine_fork_gen()) {
		tei_err_set_last(&forked);
		return NULL;
	}
	return e;
}

int engine_bad(struct engine *e, const char *call, const char *what)
{
	struct tei_err err = { .code = TEI_ERR_INVALID };

	if (!e)
		return TEI_ERR_INVALID;
	err.when_ns = tei_now_ns();
	snprintf(err.text, sizeof(err.text), "%s: %s", call,
		 what ? what : "an argument is NULL, empty or out of range");
	tei_err_set_last(&err);
	TEI_LOG_LIMITED(&e->bad_limit, TEI_LOG_ERROR, "engine", "%s", err.text);
	return TEI_ERR_INVALID;
}

uint64_t engine_deadline(const struct engine *e)
{
	return tei_now_ns() +
	       e->settings.control.connect_timeout_s * TEI_NS_PER_SEC;
}
