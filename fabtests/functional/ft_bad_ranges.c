/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <string.h>

#include "fabtests/functional/ft_bad_input.h"
#include "fabtests/functional/fx.h"

/* --- registration -------------------------------------------------------- */

static void range_lengths(transfer_engine_t e, char *p)
{
	ft_ok(registerLocalMemory(e, p, 0, "*", 1) == -1,
	      "register_with_length_0_is_refused");
	ft_ok(registerLocalMemory(e, NULL, 4096, "*", 1) == -1,
	      "register_at_null_is_refused");
	ft_ok(registerLocalMemory(e, p, SIZE_MAX, "*", 1) == -1 &&
	      registerLocalMemory(e, p, (size_t)0 - (size_t)(uintptr_t)p + 1,
				  "*", 1) == -1,
	      "register_past_the_last_address_is_refused");
	ft_ok(registerLocalMemory(e, p, SIZE_MAX / 2, "*", 1) < 0 ||
	      !unregisterLocalMemory(e, p),
	      "register_of_huge_range_does_no_harm");
	ft_ok(!registerLocalMemory(e, p + 1, 13, NULL, 1) &&
	      !registerLocalMemory(e, p + 14, 1, "*", 1) &&
	      !unregisterLocalMemory(e, p + 1) &&
	      !unregisterLocalMemory(e, p + 14),
	      "register_of_adjacent_unaligned_ranges_works");
}

static void range_overlaps(transfer_engine_t e, char *p)
{
	struct te_error err = { 0 };
	char other[64];

	registerLocalMemory(e, p + 4096, 4096, "*", 1);
	snprintf(other, sizeof(other), "registered buffer %p, 4096 bytes",
		 (void *)(p + 4096));
	ft_ok(registerLocalMemory(e, p + 5000, 10, "*", 1) == -7 &&
	      !te_last_error(&err, sizeof(err)) && strstr(err.text, other),
	      "register_with_overlap_names_the_other_buffer");
	ft_diag("%s", err.text);
	ft_ok(registerLocalMemory(e, p + 4096, 4096, "*", 1) == -7,
	      "register_of_same_range_is_refused");
	ft_ok(registerLocalMemory(e, p + 5000, 10, "*", 1) == -7,
	      "register_inside_a_buffer_is_refused");
	ft_ok(registerLocalMemory(e, p, 16384, "*", 1) == -7,
	      "register_around_a_buffer_is_refused");
	ft_ok(registerLocalMemory(e, p + 4095, 2, "*", 1) == -7,
	      "register_over_first_byte_of_a_buffer_is_refused");
	ft_ok(registerLocalMemory(e, p + 8191, 1, "*", 0) == -7,
	      "register_over_last_byte_of_a_buffer_is_refused");
	ft_ok(unregisterLocalMemory(e, p + 4097) == -3 &&
	      unregisterLocalMemory(e, p) == -3,
	      "unregister_of_other_address_is_refused");
	ft_ok(!unregisterLocalMemory(e, p + 4096), "unregister_works");
	ft_ok(unregisterLocalMemory(e, p + 4096) == -3,
	      "unregister_twice_is_refused");
	ft_ok(unregisterLocalMemory(e, NULL) < 0,
	      "unregister_of_null_is_refused");
}

static void range_batches(transfer_engine_t e, char *p)
{
	struct buffer_entry bad[3] = {
		{ p, 100 }, { p + 4096, 100 }, { p + 50, 10 },
	};
	struct buffer_entry zero[2] = { { p, 100 }, { p + 4096, 0 } };
	void *addrs[3] = { p, p + 1, p + 4096 };

	ft_ok(registerLocalMemoryBatch(e, bad, 3, "*") == -7,
	      "register_batch_with_overlap_is_refused");
	ft_ok(registerLocalMemoryBatch(e, zero, 2, "*") == -1,
	      "register_batch_with_length_0_is_refused");
	ft_ok(!registerLocalMemory(e, p, 100, "*", 1) &&
	      !registerLocalMemory(e, p + 4096, 100, "*", 1),
	      "register_batch_that_fails_is_rolled_back");
	ft_ok(unregisterLocalMemoryBatch(e, addrs, 3) == -3,
	      "unregister_batch_returns_the_first_error");
	ft_ok(unregisterLocalMemory(e, p + 4096) == -3,
	      "unregister_batch_continues_after_an_error");
	ft_ok(registerLocalMemoryBatch(e, NULL, 1, "*") == -1 &&
	      unregisterLocalMemoryBatch(e, NULL, 1) == -1,
	      "register_batch_of_null_is_refused");
}

/* Checks a batch with two overlapping buffers, in both orders: a batch
 * registers the shorter buffer first, so the longer one (300 bytes) must be
 * refused. Returns true if it is. */
static bool range_longer_refused(transfer_engine_t e, struct buffer_entry a,
			  struct buffer_entry b)
{
	struct buffer_entry list[4] = { a, { (char *)a.addr + 4096, 4000 }, b,
					{ (char *)a.addr + 8192, 1 } };
	struct te_error err;

	return registerLocalMemoryBatch(e, list, 4, "*") == -7 &&
	       !te_last_error(&err, sizeof(err)) &&
	       strstr(err.text, ", 300 bytes");
}

static void range_order(transfer_engine_t e, char *p)
{
	struct buffer_entry longer = { p, 300 }, shorter = { p + 50, 200 };

	ft_ok(range_longer_refused(e, longer, shorter) &&
	      range_longer_refused(e, shorter, longer),
	      "register_batch_registers_the_shortest_first");
}

static void range_locations(transfer_engine_t e, char *p)
{
	static const char *const odd[] = {
		"", "cpu:", "cpu:-1", "cpu:999999999999999999999", "gpu:0",
		"segments:", "segments:0:0", "segments:4096:", "segments:x:y",
		"\"}]{[", "%s%n%s%n",
	};
	bool good = true;

	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++)
		good = good && (registerLocalMemory(e, p, 8192, odd[i], 1) < 0 ||
				!unregisterLocalMemory(e, p));
	ft_ok(good, "register_with_odd_location_does_no_harm");
}

void bad_memory(void)
{
	static char mem[32768] __attribute__((aligned(4096)));
	transfer_engine_t e = fx_engine("tcp");

	if (!ft_ok(e, "engine_starts"))
		return;
	range_lengths(e, mem);
	range_overlaps(e, mem);
	range_batches(e, mem);
	range_order(e, mem);
	range_locations(e, mem);
	destroyTransferEngine(e);
}

/* --- requests ------------------------------------------------------------ */

#define RANGE_LEN (256 * FX_KIB)

struct range_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;	/* first half of its memory remotely accessible,
				 * second half not */
	segment_id_t seg;
};

/* Submits one invalid request. Returns true if the call refuses it, or if its
 * task is FAILED with an error record. Sets *code to the code of the call or of
 * the record. */
static bool range_refused(struct range_rig *rig, int op, void *source,
			  segment_id_t seg, uint64_t remote, uint64_t len,
			  int *code)
{
	struct transfer_request req = { op, source, seg, remote, len };
	struct fx_job job = { .engine = rig->engine, .tasks = 1 };
	struct te_error err = { 0 };
	bool good;

	job.id = allocateBatchID(rig->engine, 1);
	*code = submitTransfer(rig->engine, job.id, &req, 1);
	if (*code) {
		freeBatchID(rig->engine, job.id);
		return *code > 0;
	}
	good = fx_job_wait(&job, fx_soon_ms(8000)) &&
	       job.n[STATUS_FAILED] == 1 &&
	       !te_task_error(rig->engine, job.id, 0, &err, sizeof(err)) &&
	       err.code < 0 && err.text[0];
	*code = -err.code;
	if (!good)
		ft_diag("%s, error %d: %s", fx_job_text(&job), err.code,
			err.text);
	freeBatchID(rig->engine, job.id);
	return good;
}

static void range_remote(struct range_rig *rig, const char *what, uint64_t at,
			 uint64_t len)
{
	int wcode, rcode;
	bool wrefused, rrefused;

	fx_buf_poison(&rig->mem, 0, rig->mem.len);
	wrefused = range_refused(rig, OPCODE_WRITE, rig->mem.p, rig->seg, at,
				 len, &wcode);
	rrefused = range_refused(rig, OPCODE_READ, rig->mem.p, rig->seg, at,
				 len, &rcode);
	ft_ok(wrefused && rrefused, "law8_%s_is_refused", what);
	ft_diag("the write ended with code %d, the read with code %d", wcode,
		rcode);
	ft_ok(fx_buf_poisoned(&rig->mem, 0, rig->mem.len) &&
	      fx_buf_check(&rig->target.mem, 0, 2 * RANGE_LEN, 1) &&
	      fx_buf_guards(&rig->target.mem) && fx_buf_guards(&rig->mem),
	      "law8_%s_changes_no_byte", what);
}

static void range_remotes(struct range_rig *rig)
{
	uint64_t a = rig->target.mem.addr;

	range_remote(rig, "access_outside_any_buffer", a - 8192, 64);
	range_remote(rig, "access_to_address_0", 0, 64);
	range_remote(rig, "access_from_one_byte_before", a - 1, 64);
	range_remote(rig, "access_to_one_byte_after", a + RANGE_LEN - 63, 64);
	range_remote(rig, "access_that_ends_outside", a + RANGE_LEN - 4096,
		     8192);
	range_remote(rig, "access_around_a_buffer", a - 64, RANGE_LEN + 128);
	range_remote(rig, "access_to_private_buffer", a + RANGE_LEN + 4096, 64);
	range_remote(rig, "access_that_ends_in_private_buffer",
		     a + RANGE_LEN - 64, 128);
	range_remote(rig, "access_that_wraps", UINT64_MAX - 31, 64);
	range_remote(rig, "access_to_the_last_address", UINT64_MAX - 64, 64);
}

static void range_locals(struct range_rig *rig)
{
	uint64_t a = rig->target.mem.addr;
	unsigned char *p = rig->mem.p;
	static char stray[128];
	int code;

	ft_ok(range_refused(rig, OPCODE_WRITE, stray, rig->seg, a, 64, &code) &&
	      code == 3, "submit_from_unregistered_source_is_refused");
	ft_ok(range_refused(rig, OPCODE_WRITE, p + rig->mem.len - 32, rig->seg,
			    a, 64, &code) && code == 3,
	      "submit_from_source_that_ends_outside_is_refused");
	ft_ok(range_refused(rig, OPCODE_READ, p - 1, rig->seg, a, 64, &code) &&
	      code == 3, "submit_from_source_that_starts_outside_is_refused");
	ft_ok(range_refused(rig, OPCODE_READ, NULL, rig->seg, a, 64, &code) &&
	      (code == 1 || code == 3), "submit_from_null_source_is_refused");
	ft_ok(range_refused(rig, OPCODE_WRITE, p, rig->seg, a, 0, &code) &&
	      code == 1, "submit_with_length_0_is_refused");
	ft_ok(range_refused(rig, OPCODE_WRITE, p, rig->seg, a, UINT64_MAX,
			    &code) && (code == 1 || code == 3),
	      "submit_with_huge_length_is_refused");
	ft_ok(range_refused(rig, 2, p, rig->seg, a, 64, &code) && code == 1 &&
	      range_refused(rig, -1, p, rig->seg, a, 64, &code) && code == 1,
	      "submit_with_unknown_opcode_is_refused");
	ft_ok(range_refused(rig, OPCODE_WRITE, p, LOCAL_SEGMENT,
			    (uint64_t)(uintptr_t)stray, 64, &code),
	      "submit_outside_the_own_segment_is_refused");
	ft_ok(fx_buf_check(&rig->target.mem, 0, 2 * RANGE_LEN, 1),
	      "refused_requests_change_no_byte");
}

static void range_targets(struct range_rig *rig)
{
	segment_id_t unknown[] = { rig->seg + 1, rig->seg + 100,
				   INT32_MAX,	 INT32_MIN,
				   -2,		 -1 };
	bool good = true;
	int code;

	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
		good = good &&
		       range_refused(rig, OPCODE_WRITE, rig->mem.p, unknown[i],
				     rig->target.mem.addr, 64, &code) &&
		       code == 1;
	ft_ok(good, "law5_submit_to_unknown_segment_is_refused");
}

/* Returns true if the submission of the n requests is refused with an error
 * text that starts with the name of the call and contains `says`. `notify`
 * selects submitTransferWithNotify. */
static bool range_says(struct range_rig *rig, bool notify,
		       struct transfer_request *reqs, size_t n, size_t batch,
		       const char *says)
{
	batch_id_t id = allocateBatchID(rig->engine, batch);
	notify_msg_t note = { "name", "message" };
	struct te_error err = { 0 };
	const char *call = notify ? "submitTransferWithNotify" :
				    "submitTransfer";
	bool good;
	int ret;

	ret = notify ? submitTransferWithNotify(rig->engine, id, reqs, n,
						note) :
		       submitTransfer(rig->engine, id, reqs, n);
	good = ret && !te_last_error(&err, sizeof(err)) &&
	       strstr(err.text, says) &&
	       !strncmp(err.text, call, strlen(call));
	if (!good)
		ft_diag("expected the error '%s'; the call returned %d: %s",
			says, ret, err.text);
	freeBatchID(rig->engine, id);
	return good;
}

static bool range_says_both(struct range_rig *rig,
			    const struct transfer_request *bad,
			    const char *says)
{
	struct transfer_request reqs[2] = {
		{ OPCODE_WRITE, rig->mem.p, rig->seg, rig->target.mem.addr,
		  64 },
		*bad,
	};
	char text[160];

	snprintf(text, sizeof(text), ", request 1: %s", says);
	return range_says(rig, false, reqs, 2, 2, text) &&
	       range_says(rig, true, reqs, 2, 2, text);
}

/* Checks that the error text of a refused request names the call, the request,
 * the field and the value. */
static void range_texts(struct range_rig *rig)
{
	static char stray[128];
	const struct transfer_request good = {
		OPCODE_WRITE, rig->mem.p, rig->seg, rig->target.mem.addr, 64,
	};
	struct transfer_request r = good, many[3] = { good, good, good };
	struct te_error err = { 0 };
	char text[128];

	r.length = 0;
	ft_ok(range_says_both(rig, &r, "length 0 (must be at least 1)"),
	      "submit_with_length_zero_names_request_and_field");
	r = good;
	r.opcode = 7;
	ft_ok(range_says_both(rig, &r, "opcode 7 (must be"),
	      "submit_with_unknown_opcode_names_the_value");
	r = good;
	r.source = NULL;
	ft_ok(range_says_both(rig, &r, "source is NULL"),
	      "submit_with_null_source_names_the_field");
	r = good;
	r.source = stray;
	snprintf(text, sizeof(text), "source %p, 64 bytes, is not registered",
		 (void *)stray);
	ft_ok(range_says_both(rig, &r, text) &&
	      !te_last_error(&err, sizeof(err)) &&
	      strstr(err.hint, "registerLocalMemory"),
	      "submit_from_unregistered_memory_names_the_address");
	r = good;
	r.source = (char *)rig->mem.p + rig->mem.len - 32;
	ft_ok(range_says_both(rig, &r, "source 0x"),
	      "submit_past_the_end_of_a_buffer_names_the_address");
	r = good;
	r.target_id = 4711;
	ft_ok(range_says_both(rig, &r, "target_id 4711 is not an open segment"),
	      "submit_to_an_unknown_segment_names_the_id");
	ft_ok(range_says(rig, false, many, 3, 2,
			 "batch holds 0 of 2 requests") &&
	      range_says(rig, true, many, 3, 2, "batch holds 0 of 2 requests"),
	      "submit_to_a_full_batch_says_how_full_it_is");
}

/* Checks that one invalid request makes the whole submission fail. */
static void range_mixed(struct range_rig *rig)
{
	struct transfer_request reqs[3];
	struct transfer_status st;
	batch_id_t id = allocateBatchID(rig->engine, 8);

	for (int i = 0; i < 3; i++) {
		struct transfer_request req = {
			OPCODE_WRITE, rig->mem.p, rig->seg,
			rig->target.mem.addr, 64,
		};

		reqs[i] = req;
	}
	reqs[1].target_id = 999;
	ft_ok(submitTransfer(rig->engine, id, reqs, 3) == 1 &&
	      getTransferStatus(rig->engine, id, 0, &st) == 1 &&
	      fx_buf_check(&rig->target.mem, 0, 2 * RANGE_LEN, 1),
	      "submit_with_one_bad_request_submits_none");
	ft_ok(!freeBatchID(rig->engine, id),
	      "submit_that_is_refused_leaves_the_batch_idle");
}

void bad_ranges(void)
{
	struct range_rig rig = { 0 };

	rig.engine = fx_engine("tcp");
	rig.mem = fx_buf_map(RANGE_LEN * 2, -1);
	if (!ft_ok(rig.engine && fx_register(rig.engine, &rig.mem) &&
		   fx_peer_start(&rig.target, 2 * RANGE_LEN, NULL) &&
		   !fx_ask(&rig.target, "reg 0 %llu 1", RANGE_LEN) &&
		   !fx_ask(&rig.target, "reg %llu %llu 0", RANGE_LEN,
			   RANGE_LEN),
			   "target_with_inaccessible_buffer_starts"))
		return;
	fx_buf_fill(&rig.target.mem, 0, 2 * RANGE_LEN, 1);
	rig.seg = openSegment(rig.engine, rig.target.name);
	range_locals(&rig);
	range_texts(&rig);
	range_mixed(&rig);
	range_remotes(&rig);
	fx_buf_poison(&rig.mem, 0, 64);
	ft_ok(fx_move(rig.engine, rig.seg, OPCODE_WRITE, rig.mem.p,
		      rig.target.mem.addr + RANGE_LEN - 64, 64, 0) &&
	      fx_buf_poisoned(&rig.target.mem, RANGE_LEN - 64, 64),
	      "write_to_the_last_bytes_of_a_buffer_works");
	range_targets(&rig);
	destroyTransferEngine(rig.engine);
	ft_ok(fx_peer_stop(&rig.target), "target_ends_well");
	fx_buf_unmap(&rig.mem);
}
