/* SPDX-License-Identifier: BSD-2-Clause */

/* Invalid requests to te_submit. The call must return a code and an error
 * record, and must not create a task. */

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fabtests/functional/ft_submit.h"

struct bad_case {
	const char *name;
	int code;
	struct te_request req;
};

static bool bad_refused(struct submit_rig *rig, batch_id_t id,
			const struct bad_case *c)
{
	struct te_error err = { 0 };
	struct transfer_status st;
	int ret = te_submit(rig->engine, id, &c->req, sizeof(c->req), 1, 0);

	te_last_error(&err, sizeof(err));
	if (ret == c->code && err.code == (c->code == 999 ? -303 : -c->code) &&
	    *err.text && getTransferStatus(rig->engine, id, 0, &st) == 1)
		return true;
	ft_diag("%s: %d, %d %s", c->name, ret, err.code, err.text);
	return false;
}

/* Returns true if the request is refused with an error text that contains
 * `says`: the field and its value. */
static bool bad_names(struct submit_rig *rig, const struct te_request *req,
		      uint64_t flags, const char *says)
{
	batch_id_t id = allocateBatchID(rig->engine, 1);
	struct te_error err = { 0 };
	bool good = te_submit(rig->engine, id, req, sizeof(*req), 1, flags) &&
		    !te_last_error(&err, sizeof(err)) &&
		    strstr(err.text, says);

	ft_diag("%s", err.text);
	freeBatchID(rig->engine, id);
	return good;
}

static void bad_texts(struct submit_rig *rig)
{
	struct te_local in = { rig->mem.p, 8 }, out = { &in, 8 };
	struct te_remote there = { rig->target.mem.addr, 8 };
	struct te_request good = {
		.opcode = TE_WRITE, .target_id = rig->seg, .local = &in,
		.local_count = 1, .remote = &there, .remote_count = 1,
	};
	struct te_request r = good;
	char text[96];

	r.target_id = 4711;
	ft_ok(bad_names(rig, &r, 0, "request 0: target_id 4711"),
	      "te_submit_names_the_target_%s", rig->way);
	r = good;
	r.local = &out;
	snprintf(text, sizeof(text), "request 0: local[0] %p",
		 out.addr);
	ft_ok(bad_names(rig, &r, 0, text), "te_submit_names_the_address_%s",
	      rig->way);
	r = good;
	r.flags = 4;
	ft_ok(bad_names(rig, &r, 0, "flags 0x4 of the request") &&
	      bad_names(rig, &good, 4, "flags 0x4 of the call"),
	      "te_submit_tells_whose_flags_%s", rig->way);
	r = good;
	r.operand = 77;
	ft_ok(bad_names(rig, &r, 0, "operand is 77"),
	      "te_submit_names_operand_%s", rig->way);
}

static void bad_requests(struct submit_rig *rig)
{
	static struct te_local many[TE_PIECES_MAX + 1];
	uint64_t there = rig->target.mem.addr;
	struct te_local one = { rig->mem.p, 8 }, two[2] = { one, one };
	struct te_local none = { rig->mem.p, 0 }, null = { NULL, 8 };
	struct te_local wrap = { rig->mem.p, UINT64_MAX };
	struct te_local odd = { rig->mem.p + 4, 8 }, out = { &one, 8 };
	struct te_local outs[2] = { one, out };
	struct te_remote r8 = { there, 8 }, r4 = { there, 4 };
	struct te_remote r2 = { there, 2 }, r16 = { there, 16 };
	struct te_remote r0 = { there, 0 }, rodd = { there + 4, 8 };
	struct te_remote rwrap = { UINT64_MAX - 3, 8 };
	struct te_remote rtwo[2] = { r8, r8 };
	/* The sum of these lengths overflows 64 bits. */
	struct te_remote huge[3] = { { 1, UINT64_MAX / 2 },
				     { 1, UINT64_MAX / 2 }, { there, 10 } };
	segment_id_t seg = rig->seg;
#define BAD(name, code, op, nl, l, nr, r, ...) \
	{ name, code, { .opcode = op, .target_id = seg, .local_count = nl, \
			.local = l, .remote_count = nr, .remote = r, \
			__VA_ARGS__ } }
	const struct bad_case cases[] = {
		BAD("opcode", 1, 6, 1, &one, 1, &r8, .flags = 0),
		BAD("large opcode", 1, UINT32_MAX, 1, &one, 1, &r8, .flags = 0),
		BAD("flags", 1, TE_WRITE, 1, &one, 1, &r8,
		    .flags = TE_REQ_BOUNCE << 1),
		BAD("all flags", 1, TE_WRITE, 1, &one, 1, &r8,
		    .flags = UINT32_MAX),
		BAD("atomic with bounce buffers", 1, TE_ATOMIC_SWAP, 1, &one, 1,
		    &r8, .flags = TE_REQ_BOUNCE),
		BAD("reserved", 1, TE_WRITE, 1, &one, 1, &r8, .reserved = 1),
		BAD("local NULL", 1, TE_WRITE, 1, NULL, 1, &r8, .flags = 0),
		BAD("remote NULL", 1, TE_WRITE, 1, &one, 1, NULL, .flags = 0),
		BAD("no local", 1, TE_WRITE, 0, NULL, 1, &r8, .flags = 0),
		BAD("no remote", 1, TE_WRITE, 1, &one, 0, NULL, .flags = 0),
		BAD("many", 1, TE_WRITE, TE_PIECES_MAX + 1, many, 1, &r8,
		    .flags = 0),
		BAD("length 0", 1, TE_WRITE, 1, &none, 1, &r0, .flags = 0),
		BAD("address NULL", 1, TE_READ, 1, &null, 1, &r8, .flags = 0),
		BAD("wraps", 1, TE_READ, 1, &wrap, 1, &r8, .flags = 0),
		BAD("wraps there", 1, TE_READ, 1, &one, 1, &rwrap, .flags = 0),
		BAD("sum wraps", 1, TE_READ, 1, &one, 3, huge, .flags = 0),
		BAD("huge", 1, TE_WRITE, 1, &one, 2, huge, .flags = 0),
		BAD("shorter", 1, TE_READ, 1, &one, 1, &r4, .flags = 0),
		BAD("longer", 1, TE_READ, 1, &one, 2, rtwo, .flags = 0),
		BAD("operand", 1, TE_READ, 1, &one, 1, &r8, .operand = 1),
		BAD("compare", 1, TE_READ, 1, &one, 1, &r8, .compare = 1),
		BAD("outside", 3, TE_READ, 1, &out, 1, &r8, .flags = 0),
		BAD("one outside", 3, TE_WRITE, 2, outs, 2, rtwo, .flags = 0),
		BAD("atomic width 2", 1, TE_ATOMIC_ADD, 0, NULL, 1, &r2,
		    .operand = 1),
		BAD("atomic width 16", 1, TE_ATOMIC_ADD, 0, NULL, 1, &r16,
		    .operand = 1),
		BAD("atomic unaligned", 1, TE_ATOMIC_ADD, 0, NULL, 1, &rodd,
		    .operand = 1),
		BAD("atomic two", 1, TE_ATOMIC_ADD, 0, NULL, 2, rtwo,
		    .operand = 1),
		BAD("add with result", 1, TE_ATOMIC_ADD, 1, &one, 1, &r8,
		    .operand = 1),
		BAD("swap without", 1, TE_ATOMIC_SWAP, 0, NULL, 1, &r8,
		    .operand = 1),
		BAD("swap with two", 1, TE_ATOMIC_SWAP, 2, two, 1, &r8,
		    .operand = 1),
		BAD("result too long", 1, TE_ATOMIC_SWAP, 1, &one, 1, &r4,
		    .operand = 1),
		BAD("result unaligned", 1, TE_ATOMIC_SWAP, 1, &odd, 1, &r8,
		    .operand = 1),
		BAD("result outside", 3, TE_ATOMIC_SWAP, 1, &out, 1, &r8,
		    .operand = 1),
		BAD("swap compares", 1, TE_ATOMIC_SWAP, 1, &one, 1, &r8,
		    .compare = 1),
		BAD("33 bits", 1, TE_ATOMIC_ADD, 0, NULL, 1, &r4,
		    .operand = UINT64_C(1) << 32),
		{ "target", 1, { .opcode = TE_WRITE, .target_id = 9999,
				 .local_count = 1, .local = &one,
				 .remote_count = 1, .remote = &r8 } },
		{ "target of pieces", 1, { .opcode = TE_WRITE, .target_id = -7,
					   .local_count = 2, .local = two,
					   .remote_count = 2,
					   .remote = rtwo } },
		{ "own result outside", 3, {
			.opcode = TE_ATOMIC_SWAP, .target_id = LOCAL_SEGMENT,
			.local_count = 1, .local = &out, .remote_count = 1,
			.remote = &r8 } },
	};
#undef BAD
	batch_id_t id = allocateBatchID(rig->engine, 4);
	bool good = true;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		good = bad_refused(rig, id, &cases[i]) && good;
	ft_ok(good, "requests_that_make_no_sense_are_refused");
	ft_ok(!freeBatchID(rig->engine, id), "a_refusal_leaves_no_task");
}

static void bad_calls(struct submit_rig *rig)
{
	struct te_local local = { rig->mem.p, 8 };
	struct te_remote remote = { rig->target.mem.addr, 8 };
	struct te_request reqs[3];
	batch_id_t id = allocateBatchID(rig->engine, 2);
	transfer_engine_t e = rig->engine;
	size_t size = sizeof(reqs[0]);
	size_t least = offsetof(struct te_request, cookie);

	memset(reqs, 0, sizeof(reqs));
	for (int i = 0; i < 3; i++) {
		reqs[i].opcode = TE_READ;
		reqs[i].target_id = rig->seg;
		reqs[i].local_count = reqs[i].remote_count = 1;
		reqs[i].local = &local;
		reqs[i].remote = &remote;
	}
	ft_ok(te_submit(NULL, id, reqs, size, 1, 0) == 1 &&
	      te_submit(reqs, id, reqs, size, 1, 0) == 1 &&
	      te_submit(e, id + 1, reqs, size, 1, 0) == 1 &&
	      te_submit(e, INVALID_BATCH, reqs, size, 1, 0) == 1 &&
	      te_submit(e, id, NULL, size, 1, 0) == 1 &&
	      te_submit(e, id, reqs, least - 1, 1, 0) == 1 &&
	      te_submit(e, id, reqs, 0, 1, 0) == 1 &&
	      te_submit(e, id, reqs, SIZE_MAX, 1, 0) == 1 &&
	      te_submit(e, id, reqs, size, 1, 1) == 1 &&
	      te_submit(e, id, reqs, size, 1, UINT64_MAX) == 1,
	      "calls_that_make_no_sense_are_refused");
	ft_ok(te_submit(e, id, reqs, size, 3, 0) == 2 &&
		      te_submit(e, id, reqs, size, SIZE_MAX, 0) == 2,
	      "submit_of_more_than_the_batch_holds_is_2");
	/* If one request of a call is invalid, none may be accepted. */
	reqs[1].opcode = 77;
	ft_ok(te_submit(e, id, reqs, size, 2, 0) == 1 &&
	      !freeBatchID(e, id), "one_bad_request_refuses_all");
	freeBatchID(e, id);
}

static void stale_handles(struct submit_rig *rig)
{
	struct te_local local[2] = { { rig->mem.p, 8 }, { rig->mem.p, 8 } };
	uint64_t there = rig->target.mem.addr;
	struct te_remote remote[2] = { { there, 8 }, { there + 4, 8 } };
	struct te_request req = {
		.opcode = TE_WRITE, .target_id = rig->seg, .local_count = 2,
		.remote_count = 2, .local = local, .remote = remote,
	};
	batch_id_t id = allocateBatchID(rig->engine, 1);
	transfer_engine_t gone = fx_engine(NULL);

	/* Iov entries of a request may overlap, on both sides. */
	ft_ok(fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED &&
	      fx_buf_guards(&rig->target.mem), "overlapping_pieces_are_moved");
	freeBatchID(rig->engine, id);
	ft_ok(te_submit(rig->engine, id, &req, sizeof(req), 1, 0) == 1,
	      "a_batch_that_was_freed_is_1");
	id = allocateBatchID(rig->engine, 1);
	req.target_id = openSegment(rig->engine, rig->target.name);
	closeSegment(rig->engine, req.target_id);
	/* Both calls may return the same id. Then that segment is still open,
	 * so use another id. */
	if (req.target_id == rig->seg)
		req.target_id++;
	ft_ok(te_submit(rig->engine, id, &req, sizeof(req), 1, 0) == 1,
	      "a_segment_that_is_not_open_is_1");
	req.target_id = rig->seg;
	destroyTransferEngine(gone);
	ft_ok(te_submit(gone, id, &req, sizeof(req), 1, 0) == 1,
	      "an_engine_that_was_destroyed_is_1");
	freeBatchID(rig->engine, id);
}

/* Submits elements that are longer than struct te_request, as a program does
 * that was built with a newer header. */
static void longer_elements(struct submit_rig *rig)
{
	struct te_local local = { rig->mem.p, 8 };
	struct te_remote remote = { rig->target.mem.addr, 8 };
	struct {
		struct te_request req;
		uint64_t later;
	} reqs[2];
	batch_id_t id = allocateBatchID(rig->engine, 2);
	struct fx_job job = { .engine = rig->engine, .id = id, .tasks = 2 };
	bool good;

	memset(reqs, 0, sizeof(reqs));
	for (int i = 0; i < 2; i++) {
		reqs[i].req.opcode = TE_READ;
		reqs[i].req.target_id = rig->seg;
		reqs[i].req.local_count = reqs[i].req.remote_count = 1;
		reqs[i].req.local = &local;
		reqs[i].req.remote = &remote;
	}
	reqs[1].later = 1;
	good = te_submit(rig->engine, id, &reqs[0].req, sizeof(reqs[0]), 2,
			 0) == 1;
	reqs[1].later = 0;
	good = good && !te_submit(rig->engine, id, &reqs[0].req,
				  sizeof(reqs[0]), 2, 0) &&
	       fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_COMPLETED] == 2;
	ft_ok(fx_job_free(&job) && good,
	      "longer_requests_are_accepted_if_the_rest_is_0");
}

/* Checks atomics inside the process with an engine without rails. */
static void no_rail(void)
{
	transfer_engine_t e = fx_engine(NULL);
	static uint64_t mem[8] __attribute__((aligned(64)));
	struct te_local local = { mem, 8 };
	struct te_remote remote = { (uint64_t)(uintptr_t)&mem[1], 8 };
	struct te_request req = {
		.opcode = TE_ATOMIC_FETCH_ADD, .target_id = LOCAL_SEGMENT,
		.local_count = 1, .remote_count = 1, .local = &local,
		.remote = &remote, .operand = 3,
	};

	mem[1] = 4;
	ft_ok(e && !registerLocalMemory(e, mem, sizeof(mem), "*", 1) &&
	      fx_submit(e, &req, NULL) == STATUS_COMPLETED && mem[0] == 4 &&
	      mem[1] == 7, "own_atomics_need_no_transport");
	destroyTransferEngine(e);
}

void submit_bad(struct submit_rig *rig)
{
	bad_requests(rig);
	bad_texts(rig);
	bad_calls(rig);
	stale_handles(rig);
	longer_elements(rig);
	no_rail();
}
