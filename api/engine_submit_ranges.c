/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_submit: scatter/gather requests and atomics. All requests are checked and
 * prepared first; then the tasks start like those of submitTransfer.
 */
#include "api/engine_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_refusal.h"
#include "api/engine_transport.h"
#include "api/transport_bounce.h"

/* Smallest and greatest size of one element of the caller's array, bytes. In
 * release 0.1.0 struct te_request had no member cookie. */
#define SUBMIT_ELEM_MIN offsetof(struct te_request, cookie)
#define SUBMIT_ELEM_MAX 4096

/* The call and the request that an error record names. */
struct submit_at {
	const char *call; /* name of the public function */
	size_t i;	  /* index of the request, or SUBMIT_CALL */
};

#define SUBMIT_CALL ENGINE_REFUSE_CALL

static int submit_fail(struct submit_at at, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Stores an error record with that text as the thread's last error. Returns
 * code. */
static int submit_fail(struct submit_at at, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	engine_refuse_v(at.call, at.i, code, NULL, fmt, ap);
	va_end(ap);
	return code;
}

/* --- checks -------------------------------------------------------------- */

static bool submit_bad_range(uint64_t addr, uint64_t length)
{
	return !length || addr + (length - 1) < addr;
}

static int submit_fail_piece(struct submit_at at, const char *side, uint32_t k,
			     uint64_t addr, uint64_t length)
{
	return submit_fail(at, 1,
			   "%s[%u], 0x%llx, %llu bytes: length 0, or the range "
			   "or the total length overflows 64 bits",
			   side, k, (unsigned long long)addr,
			   (unsigned long long)length);
}

/* Checks the form of the local ranges. Sets *sum to their total length. Returns
 * 0, or the code of te_submit after storing the error record. */
static int submit_local_bytes(const struct te_request *r, struct submit_at at,
			      uint64_t *sum)
{
	const struct te_local *p = r->local;
	uint32_t k;

	if (!r->local_count)
		return submit_fail(at, 1, "local_count 0 (must be at least 1)");
	for (k = 0, *sum = 0; k < r->local_count; *sum += p[k++].length)
		if (!p[k].addr ||
		    submit_bad_range((uintptr_t)p[k].addr, p[k].length) ||
		    *sum + p[k].length < *sum)
			return submit_fail_piece(at, "local", k,
						 (uintptr_t)p[k].addr,
						 p[k].length);
	return 0;
}

static int submit_remote_bytes(const struct te_request *r, struct submit_at at,
			       uint64_t *sum)
{
	const struct te_remote *p = r->remote;
	uint32_t k;

	if (!r->remote_count)
		return submit_fail(at, 1,
				   "remote_count 0 (must be at least 1)");
	for (k = 0, *sum = 0; k < r->remote_count; *sum += p[k++].length)
		if (submit_bad_range(p[k].addr, p[k].length) ||
		    *sum + p[k].length < *sum)
			return submit_fail_piece(at, "remote", k, p[k].addr,
						 p[k].length);
	return 0;
}

static int submit_check_form(const struct te_request *r, struct submit_at at)
{
	if (r->opcode > TE_ATOMIC_CAS)
		return submit_fail(at, 1, "opcode %u is unknown", r->opcode);
	if (r->flags & ~TE_REQ_BOUNCE)
		return submit_fail(at, 1,
				   "flags 0x%x of the request (must be 0 or "
				   "TE_REQ_BOUNCE, 0x%x)",
				   r->flags, TE_REQ_BOUNCE);
	if (r->flags && r->opcode > TE_WRITE)
		return submit_fail(at, 1, "flags 0x%x of an atomic (must be 0)",
				   r->flags);
	if (r->reserved)
		return submit_fail(at, 1, "reserved is %u (must be 0)",
				   r->reserved);
	if (r->local_count > TE_PIECES_MAX || r->remote_count > TE_PIECES_MAX)
		return submit_fail(
			at, 1, "local_count %u, remote_count %u (at most %u)",
			r->local_count, r->remote_count, TE_PIECES_MAX);
	if (r->local_count && !r->local)
		return submit_fail(at, 1,
				   "local is NULL, but local_count is %u",
				   r->local_count);
	if (r->remote_count && !r->remote)
		return submit_fail(at, 1,
				   "remote is NULL, but remote_count is %u",
				   r->remote_count);
	if (r->compare && r->opcode != TE_ATOMIC_CAS)
		return submit_fail(at, 1,
				   "compare is %llu (must be 0 for opcode %u)",
				   (unsigned long long)r->compare, r->opcode);
	return 0;
}

static int submit_check_pieces(const struct te_request *r, struct submit_at at,
			       uint64_t *length)
{
	uint64_t local = 0, remote = 0;
	int ret;

	if (r->operand)
		return submit_fail(at, 1,
				   "operand is %llu (must be 0 for opcode %u)",
				   (unsigned long long)r->operand, r->opcode);
	ret = submit_local_bytes(r, at, &local);
	if (!ret)
		ret = submit_remote_bytes(r, at, &remote);
	if (ret)
		return ret;
	if (local != remote)
		return submit_fail(at, 1,
				   "local ranges have %llu bytes, remote "
				   "ranges %llu (must be equal)",
				   (unsigned long long)local,
				   (unsigned long long)remote);
	*length = local;
	return 0;
}

static int submit_check_atomic(const struct te_request *r, struct submit_at at)
{
	uint32_t want = r->opcode == TE_ATOMIC_ADD ? 0 : 1;
	uint64_t width;

	if (r->remote_count != 1 || r->local_count != want)
		return submit_fail(at, 1,
				   "%u local and %u remote ranges (this atomic "
				   "needs %u and 1)",
				   r->local_count, r->remote_count, want);
	width = r->remote->length;
	if ((width != 4 && width != 8) || r->remote->addr % width)
		return submit_fail(at, 1,
				   "atomic: %llu bytes at 0x%llx (must be 4 or "
				   "8 bytes, aligned to their length)",
				   (unsigned long long)width,
				   (unsigned long long)r->remote->addr);
	if (want && (!r->local->addr || r->local->length != width ||
		     (uintptr_t)r->local->addr % width))
		return submit_fail(
			at, 1,
			"atomic: result of %llu bytes at %p (must have the "
			"length and alignment of the remote range)",
			(unsigned long long)r->local->length, r->local->addr);
	if (width == 4 && (r->operand | r->compare) > UINT32_MAX)
		return submit_fail(at, 1,
				   "operand 0x%llx, compare 0x%llx (must fit "
				   "into the 4 bytes of the atomic)",
				   (unsigned long long)r->operand,
				   (unsigned long long)r->compare);
	return 0;
}

/* --- the call ------------------------------------------------------------ */

static int submit_plain(struct engine *e, struct engine_task *t,
			const struct te_request *r,
			struct engine_target *target)
{
	struct transfer_request plain = {
		.opcode = r->opcode == TE_READ ? OPCODE_READ : OPCODE_WRITE,
		.source = r->local->addr,
		.target_id = r->target_id,
		.target_offset = r->remote->addr,
		.length = r->local->length,
	};

	return engine_submit_prepare(e, t, &plain, r->flags, target);
}

static bool submit_on_gpu(const struct te_request *r,
			  const struct engine_target *target)
{
	uint32_t i;

	for (i = 0; target->gpu && i < r->remote_count; i++)
		if (engine_target_gpu(target, r->remote[i].addr))
			return true;
	return false;
}

/* Called for a request with TE_REQ_BOUNCE. If a local range is not registered,
 * sets target->kind so that a transport with bounce buffers is chosen. Returns
 * 0, or 3 if a local range cannot be used. */
static int submit_unregistered(struct engine *e, const struct te_request *r,
			       struct engine_target *target)
{
	bool unregistered = false;
	uint32_t k;

	for (k = 0; k < r->local_count; k++)
		if (engine_bounce_check(e, r->local[k].addr, r->local[k].length,
					r->opcode == TE_READ, &unregistered))
			return 3;
	if (unregistered)
		target->kind = engine_kind_unregistered(target->kind);
	return 0;
}

static int submit_route(struct engine *e, struct engine_task *t,
			const struct te_request *r,
			struct engine_target *target)
{
	int ret = engine_target_set(e, r->target_id, target);
	const struct engine_via *via, *end;

	if (ret)
		return ret;
	target->kind = engine_kind(false, submit_on_gpu(r, target));
	if (r->flags & TE_REQ_BOUNCE && submit_unregistered(e, r, target))
		return 3;
	end = target->vias->via + target->vias->n;
	for (via = target->vias->via; via < end; via++) {
		if (!(via->by->takes & target->kind))
			continue;
		/* the transports for files and GPU memory accept only one range
		 * on each side */
		if (!via->by->prepare_ranges)
			return 8;
		ret = via->by->prepare_ranges(e, t, r, target, via->at);
		if (ret != ENGINE_DECLINED)
			return ret;
	}
	return 8;
}

int engine_ranges_prepare(struct engine *e, struct engine_task *t,
			  const struct te_request *r,
			  struct engine_target *target)
{
	if (r->opcode <= TE_WRITE && r->local_count == 1 &&
	    r->remote_count == 1)
		return submit_plain(e, t, r, target);
	return submit_route(e, t, r, target);
}

static int submit_fail_no_rail(struct submit_at at)
{
	return engine_refuse(
		at.call, at.i, 8, "install tcp or rdma at both ends",
		"an atomic needs a rail, and no rail reaches the target");
}

/* Returns true if the request is an atomic that is refused because no rail
 * reaches the segment. Returns false for a file segment, because files have no
 * atomics even with a rail. */
static bool submit_no_rail(const struct te_request *r,
			   const struct engine_target *target)
{
	const struct engine_via *via, *end;

	if (r->opcode <= TE_WRITE || r->target_id == LOCAL_SEGMENT)
		return false;
	end = target->vias->via + target->vias->n;
	for (via = target->vias->via; via < end; via++)
		if (via->by->atomics ||
		    (!via->by->through && !via->by->prepare_ranges))
			return false;
	return true;
}

/* Stores the error record of a request of valid form that was refused with
 * "code", after finding out the reason. Returns code. */
static int submit_explain(struct engine *e, const struct te_request *r,
			  struct submit_at at, int code)
{
	struct engine_target target = { .valid = false };
	const struct te_local *p;
	char field[24];
	uint32_t k;

	if (code == 1 && r->target_id != LOCAL_SEGMENT &&
	    !engine_segment_find(e, r->target_id))
		return engine_refuse_target(at.call, at.i, r->target_id);
	if (code == 8)
		engine_target_set(e, r->target_id, &target);
	if (target.vias && submit_no_rail(r, &target))
		return submit_fail_no_rail(at);
	if (code == 8 && target.vias && !target.vias->n)
		return engine_refuse_transport(e, at.call, at.i, r->target_id);
	if (code == 3 && r->flags & TE_REQ_BOUNCE)
		return engine_bounce_refuse(e, at.call, at.i, r);
	if (code == 8 && r->flags & TE_REQ_BOUNCE)
		return engine_refuse(
			at.call, at.i, code,
			"call registerLocalMemory for the buffer first",
			"TE_REQ_BOUNCE does not apply to files, GPU memory of "
			"this process and GPU memory that rails cannot access");
	if (code == 8 && r->opcode <= TE_WRITE && r->local_count == 1 &&
	    r->remote_count == 1 &&
	    engine_refuse_gpu(e, at.call, at.i, r->target_id, r->remote->addr,
			      r->remote->length))
		return code;
	if (code == 8)
		return submit_fail(
			at, code,
			"%u local and %u remote ranges (files and GPU memory "
			"allow one of each, and no atomics)",
			r->local_count, r->remote_count);
	for (k = 0; code == 3 && k < r->local_count; k++) {
		p = &r->local[k];
		if (engine_range_registered(e, r, k))
			continue;
		snprintf(field, sizeof(field), "local[%u]", k);
		return engine_refuse_source(e, at.call, at.i, field, p->addr,
					    p->length, r->opcode != TE_WRITE);
	}
	return engine_refuse_code(at.call, at.i, code);
}

static int submit_one(struct engine *e, struct engine_task *t,
		      const struct te_request *r, struct submit_at at,
		      struct engine_target *target)
{
	int ret = submit_check_form(r, at);

	memset(t, 0, sizeof(*t));
	t->engine = e;
	t->target = r->target_id;
	if (ret)
		return ret;
	if (r->opcode > TE_WRITE) {
		ret = submit_check_atomic(r, at);
		t->length = ret ? 0 : r->remote->length;
	} else {
		ret = submit_check_pieces(r, at, &t->length);
	}
	if (ret)
		return ret;
	ret = engine_ranges_prepare(e, t, r, target);
	if (ret)
		return submit_explain(e, r, at, ret);
	t->cookie = r->cookie;
	return 0;
}

/* Reads element i of the caller's array. Returns false if a member that this
 * version does not know is not 0. */
static bool submit_read(const void *reqs, size_t elem_size, size_t i,
			struct te_request *r)
{
	const unsigned char *p = (const unsigned char *)reqs + i * elem_size;
	size_t k;

	memset(r, 0, sizeof(*r));
	memcpy(r, p, elem_size < sizeof(*r) ? elem_size : sizeof(*r));
	for (k = sizeof(*r); k < elem_size; k++)
		if (p[k])
			return false;
	return true;
}

/* Returns the index of the first request that is an atomic, or n if there is
 * none. */
static size_t submit_first_atomic(const void *reqs, size_t elem_size, size_t n)
{
	struct te_request r;
	size_t i = 0;

	while (i < n &&
	       (!submit_read(reqs, elem_size, i, &r) || r.opcode <= TE_WRITE))
		i++;
	return i;
}

/* Stores the error record of a submission whose tasks could not be started. The
 * data plane does not report which request is the cause. Returns code. */
static int submit_fail_start(struct engine *e, const char *call,
			     const void *reqs, size_t elem_size, size_t n,
			     int code)
{
	struct submit_at at = { call, SUBMIT_CALL };
	struct te_request r;
	size_t i;

	for (i = 0; code == 3 && i < n; i++)
		if (submit_read(reqs, elem_size, i, &r) &&
		    !engine_ranges_registered(e, &r))
			break;
	if (code == 8)
		i = submit_first_atomic(reqs, elem_size, n);
	if (code == 3 && i < n)
		return submit_explain(e, &r, (struct submit_at){ call, i },
				      code);
	if (code == 8 && i < n)
		return submit_fail_no_rail((struct submit_at){ call, i });
	if (code == 3)
		return submit_fail(at, code,
				   "the local memory of a read request is "
				   "registered for reading only");
	return engine_refuse_code(call, SUBMIT_CALL, code);
}

/* Calls drop of the transport for n tasks that were prepared and will not
 * start. */
static void submit_undo(struct engine_task *tasks, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (tasks[i].by->drop)
			tasks[i].by->drop(&tasks[i]);
}

static int submit_locked(struct engine *e, const char *call,
			 struct engine_batch *b, const void *reqs,
			 size_t elem_size, size_t n)
{
	struct engine_target target = { .valid = false };
	struct engine_task *tasks = b->tasks + b->count;
	struct submit_at at = { .call = call };
	struct te_request r;
	size_t i;
	int ret = 0;

	if (n > b->size - b->count)
		return engine_refuse_full(call, b, n);
	for (i = 0; i < n; i++) {
		at.i = i;
		ret = submit_read(reqs, elem_size, i, &r)
			      ? submit_one(e, &tasks[i], &r, at, &target)
			      : submit_fail(at, 1,
					    "fields that this version does not "
					    "know are not 0");
		if (ret)
			break;
	}
	if (!ret) {
		ret = engine_submit_start(e, b, n);
		if (ret)
			submit_fail_start(e, call, reqs, elem_size, n, ret);
	}
	if (ret)
		submit_undo(tasks, i);
	return ret;
}

int engine_submit_ranges(struct engine *e, const char *call, batch_id_t id,
			 const struct te_request *reqs, size_t elem_size,
			 size_t n, uint64_t flags)
{
	struct submit_at at = { call, SUBMIT_CALL };
	struct engine_batch *b;
	int ret;

	if (!reqs && n)
		return submit_fail(at, 1, "reqs is NULL");
	if (elem_size < SUBMIT_ELEM_MIN || elem_size > SUBMIT_ELEM_MAX)
		return submit_fail(at, 1,
				   "elem_size %zu (must be between %zu and %u)",
				   elem_size, SUBMIT_ELEM_MIN, SUBMIT_ELEM_MAX);
	if (flags)
		return submit_fail(at, 1,
				   "flags 0x%llx of the call (must be 0)",
				   (unsigned long long)flags);
	b = engine_batch_lock(e, id);
	if (!b)
		return 1;
	if (!n) {
		engine_batch_unlock(b);
		return 0;
	}
	tei_rwlock_read(&e->segments);
	ret = submit_locked(e, call, b, reqs, elem_size, n);
	tei_rwlock_unlock(&e->segments);
	engine_batch_unlock(b);
	return ret;
}

int te_submit(transfer_engine_t engine, batch_id_t batch_id,
	      const struct te_request *reqs, size_t elem_size, size_t count,
	      uint64_t flags)
{
	struct engine *e = engine_from(engine);

	if (!e)
		return 1;
	return engine_submit_ranges(e, __func__, batch_id, reqs, elem_size,
				    count, flags);
}
