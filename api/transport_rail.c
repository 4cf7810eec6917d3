/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The transport over the rails of the data plane. It executes all kinds of
 * requests to other processes.
 */
#include "api/transport_rail.h"

#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "api/engine_topology.h"
#include "api/engine_transport.h"

/* greatest number of tasks that one call of the data plane submits or
 * cancels */
#define RAIL_CHUNK 64

_Static_assert(sizeof(struct tei_rail_task) <= ENGINE_TASK_ROOM, "fits");

static struct tei_rail_task *rail_task(struct engine_task *t)
{
	return engine_task_room(t);
}

/* --- installation --------------------------------------------------------- */

static int rail_install(struct engine *e, const char *proto,
			struct tei_err *err) TEI_REQUIRES(e->control)
{
	int ret = tei_rail_dp_add_transport(e->dp, proto, "", err);

	if (ret)
		return ret;
	ret = engine_topology_set(e, err);
	if (ret)
		tei_rail_dp_remove_transport(
			e->dp, tei_rail_transport_of(proto), 0, NULL);
	return ret;
}

/* Switches the rails off. First waits for the transports that hand their bytes
 * to the rails, such as GPU staging. */
static int rail_uninstall(struct engine *e, const char *proto,
			  uint64_t until_ns, struct tei_err *err)
{
	engine_transports_drain(e, &transport_rail, until_ns);
	return tei_rail_dp_remove_transport(e->dp, tei_rail_transport_of(proto),
					    tei_ns_left(until_ns), err);
}

/*
 * Returns 0 if the installed rails also serve the name "proto". This is always
 * true for the name of a transport, such as "rdma". For the name of a provider
 * it is true if all open rails of that transport use the provider.
 */
static int rail_accepts_name(struct engine *e, const char *proto,
			     struct tei_err *err)
{
	const char *name = tei_rail_transport_of(proto);
	struct tei_rail_desc d;
	size_t i;

	if (!strcmp(name, proto))
		return 0;
	for (i = 0; i < tei_rail_count(e->dp); i++)
		if (!tei_rail_describe(e->dp, i, &d) && d.open &&
		    !strcmp(d.transport, name) && strcmp(d.provider, proto))
			return tei_err_fail(err, TEI_ERR_BUSY, "engine",
					    "uninstall transport rdma first",
					    "transport %s: rdma is installed "
					    "already with provider %s",
					    proto, d.provider);
	return 0;
}

/* --- tasks ---------------------------------------------------------------- */

static void *rail_attach(struct engine *e, const struct engine_segment *s)
{
	(void)e;
	return s ? s->peer : NULL;
}

static int rail_prepare(struct engine *e, struct engine_task *t,
			const struct transfer_request *r,
			struct engine_target *target, void *at)
{
	struct tei_rail_task *task = rail_task(t);

	(void)target;
	engine_task_init(e, t, r, &transport_rail);
	task->peer = at;
	task->remote = r->target_offset;
	task->length = r->length;
	task->local = r->source;
	task->read = t->read;
	return 0;
}

static int rail_ranges(struct engine_task *t, const struct te_request *r)
{
	struct tei_rail_task *task = rail_task(t);
	struct tei_rail_task_ext *x;
	uint32_t i;

	x = tei_rail_task_ext_new(r->local_count, r->remote_count);
	if (!x)
		return 302;
	for (i = 0; i < r->local_count; i++) {
		x->piece[i].addr = (uintptr_t)r->local[i].addr;
		x->piece[i].len = r->local[i].length;
	}
	for (i = 0; i < r->remote_count; i++) {
		x->piece[r->local_count + i].addr = r->remote[i].addr;
		x->piece[r->local_count + i].len = r->remote[i].length;
	}
	tei_rail_task_ext_lay(x->piece, r->local_count);
	tei_rail_task_ext_lay(x->piece + r->local_count, r->remote_count);
	task->local = r->local->addr;
	task->read = r->opcode == TE_READ;
	task->ext = x;
	return 0;
}

static int rail_atomic(struct engine_task *t, const struct te_request *r)
{
	struct tei_rail_task *task = rail_task(t);
	struct tei_rail_task_ext *x = tei_rail_task_ext_new(0, 0);

	if (!x)
		return 302;
	x->atomic = engine_atomic_op(r->opcode);
	x->operand = r->operand;
	x->compare = r->compare;
	task->local = r->local_count ? r->local->addr : NULL;
	task->read = true;
	task->ext = x;
	return 0;
}

static int rail_prepare_ranges(struct engine *e, struct engine_task *t,
			       const struct te_request *r,
			       struct engine_target *target, void *at)
{
	struct tei_rail_task *task = rail_task(t);

	(void)e;
	(void)target;
	t->by = &transport_rail;
	task->peer = at;
	task->remote = r->remote->addr;
	task->length = t->length;
	return r->opcode <= TE_WRITE ? rail_ranges(t, r) : rail_atomic(t, r);
}

static int rail_start_run(struct engine *e, struct engine_task *tasks, size_t n,
			  size_t mine)
{
	struct tei_rail_task *few[RAIL_CHUNK], **list = few;
	size_t i, k = 0;
	int ret;

	if (mine > RAIL_CHUNK) {
		list = malloc(mine * sizeof(*list));
		if (!list)
			return TEI_ERR_MEMORY;
	}
	for (i = 0; i < n; i++)
		if (tasks[i].by == &transport_rail)
			list[k++] = rail_task(&tasks[i]);
	ret = tei_rail_submit(e->dp, list, mine);
	if (ret == TEI_ERR_NO_DEVICE)
		ret = TEI_ERR_UNSUPPORTED;
	if (list != few)
		free(list);
	return ret;
}

int engine_rail_status(enum tei_rail_end end)
{
	static const int status[] = {
		[TEI_RAIL_END_COMPLETED] = STATUS_COMPLETED,
		[TEI_RAIL_END_FAILED] = STATUS_FAILED,
		[TEI_RAIL_END_UNFENCED] = STATUS_TIMEOUT,
		[TEI_RAIL_END_CANCELED] = STATUS_CANCELED,
	};

	return status[end];
}

void transport_rail_done(struct tei_rail_task *task, enum tei_rail_end end,
			 const struct tei_err *err)
{
	engine_task_end(engine_task_from(task), engine_rail_status(end), err);
}

static void rail_cancel_list(struct engine *e, struct tei_rail_task **list,
			     size_t n, bool deadline)
{
	if (n && deadline)
		tei_rail_expire(e->dp, list, n);
	else if (n)
		tei_rail_cancel(e->dp, list, n);
}

static void rail_cancel_run(struct engine *e, struct engine_task *tasks,
			    size_t n, bool deadline)
{
	struct tei_rail_task *list[RAIL_CHUNK];
	size_t i, k = 0;

	for (i = 0; i < n; i++) {
		if (tasks[i].by != &transport_rail ||
		    engine_task_ended(&tasks[i]))
			continue;
		list[k++] = rail_task(&tasks[i]);
		if (k == RAIL_CHUNK) {
			rail_cancel_list(e, list, k, deadline);
			k = 0;
		}
	}
	rail_cancel_list(e, list, k, deadline);
}

static uint64_t rail_moved(const struct engine_task *t)
{
	const struct tei_rail_task *task = engine_task_room_const(t);

	return __atomic_load_n(&task->done_bytes, __ATOMIC_RELAXED);
}

/* Frees the task extension of a task that will not start. The extension of a
 * started task is freed by the data plane. */
static void rail_drop(struct engine_task *t)
{
	free(rail_task(t)->ext);
}

/* --- waiting -------------------------------------------------------------- */

static bool rail_progress(struct engine *e)
{
	tei_rail_progress(e->dp);
	return false;
}

static void rail_waiter(struct engine *e, enum engine_waiter now)
{
	switch (now) {
	case ENGINE_WAITER_POLLS:
		tei_rail_drive_begin(e->dp);
		break;
	case ENGINE_WAITER_STOPS:
		tei_rail_drive_end(e->dp);
		break;
	case ENGINE_WAITER_SLEEPS:
		tei_rail_sleep_begin(e->dp);
		break;
	case ENGINE_WAITER_WAKES:
		tei_rail_sleep_end(e->dp);
		break;
	}
}

static bool rail_drain(struct engine *e,
		       const struct engine_transport_ops *through,
		       uint64_t until_ns)
{
	if (!through)
		tei_rail_dp_quiesce(e->dp, tei_ns_left(until_ns));
	return true;
}

static void rail_close(struct engine *e)
{
	if (e->dp)
		tei_rail_dp_close(e->dp, 0);
}

static const char *const rail_names[] = { "tcp", "rdma", "efa",
					  "cxi", "shm",	 NULL };

const struct engine_transport_ops transport_rail = {
	.names = rail_names,
	.takes = ENGINE_KINDS,
	.atomics = true,
	.install = rail_install,
	.uninstall = rail_uninstall,
	.accepts_name = rail_accepts_name,
	.attach = rail_attach,
	.prepare = rail_prepare,
	.prepare_ranges = rail_prepare_ranges,
	.start_run = rail_start_run,
	.cancel_run = rail_cancel_run,
	.moved = rail_moved,
	.drop = rail_drop,
	.progress = rail_progress,
	.waiter = rail_waiter,
	.drain = rail_drain,
	.close = rail_close,
};
