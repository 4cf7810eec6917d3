/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Labels of registered memory, and nested registrations. A peer registers; this
 * process looks up the labels and transfers.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/functional/fx.h"

#define LABEL_MEM	(16 * FX_MIB)
/* length of the buffer at the start of the peer's memory */
#define LABEL_POOL	(8 * FX_MIB)
/* offset of a nested registration in that buffer */
#define LABEL_IN	(64 * FX_KIB)
#define LABEL_LEN	(4 * FX_KIB)	/* length of that nested registration */
#define LABEL_MANY	10000u

#define LABEL_NESTED	((unsigned int)TE_REG_NESTED)

struct label_rig {
	transfer_engine_t engine;
	struct fx_peer peer;
	struct fx_buf mem;
	segment_id_t seg;
	uint64_t sequence;
};

static const char *label_said(void)
{
	static struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	return err.text;
}

static bool label_start(struct label_rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->mem = fx_buf_map(LABEL_MEM, -1);
	rig->engine = fx_engine("tcp");
	if (!rig->mem.p || !rig->engine ||
	    !fx_register(rig->engine, &rig->mem) ||
	    !fx_peer_start(&rig->peer, LABEL_MEM, NULL))
		return false;
	if (fx_ask(&rig->peer, "label 0 %llu 0 pool", LABEL_POOL) ||
	    fx_ask(&rig->peer, "label %llu %llu %u layers.0.weight", LABEL_IN,
		   LABEL_LEN, LABEL_NESTED))
		return false;
	rig->seg = openSegment(rig->engine, rig->peer.name);
	return rig->seg > 0;
}

static void label_stop(struct label_rig *rig)
{
	closeSegment(rig->engine, rig->seg);
	ft_ok(fx_peer_stop(&rig->peer), "peer_ends_well");
	destroyTransferEngine(rig->engine);
	fx_buf_unmap(&rig->mem);
}

/* Returns true if te_segment_find finds exactly one range with this label:
 * `len` bytes at the offset `off` of the peer's memory. */
static bool label_is(struct label_rig *rig, const char *label, uint64_t off,
		     uint64_t len)
{
	struct te_buffer b[2];
	size_t n = 2;

	if (te_segment_find(rig->engine, rig->seg, label, b, sizeof(*b), &n)) {
		ft_diag("%s", label_said());
		return false;
	}
	return n == 1 && b[0].addr == rig->peer.mem.addr + off &&
	       b[0].length == len && b[0].location[0] &&
	       !strcmp(b[0].label, label);
}

/* Reads the descriptor of the segment again. Returns true if it does not
 * contain the label. */
static bool label_absent(struct label_rig *rig, const char *label)
{
	struct te_buffer b;
	size_t n = 1;

	return !syncSegmentCache(rig->engine) &&
	       te_segment_find(rig->engine, rig->seg, label, &b, sizeof(b),
			       &n) == -3 && n == 1 &&
	       strstr(label_said(), "has no label");
}

static bool label_write(struct label_rig *rig, uint64_t off, uint64_t len)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, off, len, seq);
	return fx_move(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p + off,
		       rig->peer.mem.addr + off, len, 0) &&
	       fx_buf_check(&rig->peer.mem, off, len, seq);
}

/* --- labels --------------------------------------------------------------- */

static void label_find(struct label_rig *rig)
{
	struct te_buffer b[3];
	size_t n = 3;

	ft_ok(label_is(rig, "pool", 0, LABEL_POOL) &&
	      label_is(rig, "layers.0.weight", LABEL_IN, LABEL_LEN),
	      "labels_of_a_buffer_and_of_a_range_inside_it_are_found");
	ft_ok(label_write(rig, LABEL_IN, LABEL_LEN),
	      "range_that_was_found_is_written");
	ft_ok(!te_segment_buffers(rig->engine, rig->seg, b, sizeof(*b), &n) &&
	      n == 1 && !strcmp(b[0].label, "pool"),
	      "buffers_have_their_labels");
	n = 3;
	ft_ok(!te_segment_find(rig->engine, rig->seg, NULL, b, sizeof(*b),
			       &n) && n == 2 && !strcmp(b[0].label, "pool") &&
	      !strcmp(b[1].label, "layers.0.weight"),
	      "all_labels_are_listed_by_address");
	n = 0;
	ft_ok(!te_segment_find(rig->engine, rig->seg, NULL, NULL, sizeof(*b),
			       &n) && n == 2, "labels_can_be_counted");
	ft_ok(label_absent(rig, "layers.0"), "beginning_of_a_label_is_absent");
	n = 1;
	ft_ok(te_segment_find(rig->engine, 77, "pool", b, sizeof(*b),
			      &n) == -1 &&
	      te_segment_find(rig->engine, rig->seg, "", b, sizeof(*b),
			      &n) == -1 &&
	      te_segment_find(rig->engine, rig->seg, "pool", NULL, 8,
			      &n) == -1 &&
	      te_segment_find(rig->engine, rig->seg, "pool", b, 0, &n) == -1,
	      "wrong_arguments_of_find_are_refused");
}

static void label_twice(struct label_rig *rig)
{
	unsigned long long at = LABEL_POOL + FX_MIB;
	struct te_buffer b[2];
	size_t n = 2;

	ft_ok(!fx_ask(&rig->peer, "label %llu %llu 0 pool", at, LABEL_LEN) &&
	      !syncSegmentCache(rig->engine) &&
	      !te_segment_find(rig->engine, rig->seg, "pool", b, sizeof(*b),
			       &n) && n == 2 && b[0].length == LABEL_POOL &&
	      b[1].addr == rig->peer.mem.addr + at,
	      "label_of_two_buffers_finds_both");
	n = 1;
	ft_ok(!te_segment_find(rig->engine, rig->seg, "pool", b, sizeof(*b),
			       &n) && n == 2,
	      "count_tells_that_there_are_more");
	ft_ok(!fx_ask(&rig->peer, "unreg %llu", at) &&
		      !syncSegmentCache(rig->engine) &&
		      label_is(rig, "pool", 0, LABEL_POOL),
	      "label_of_unregistered_buffer_is_withdrawn");
}

/* Checks that labels are found in a segment that was imported from a blob. */
static void label_blob(struct label_rig *rig)
{
	transfer_engine_t other = fx_engine("tcp");
	struct te_registration reg = { rig->mem.p + LABEL_LEN, LABEL_LEN, NULL,
				       TE_REG_NESTED, "k\xc3\xa4se" };
	struct te_buffer b;
	segment_id_t seg = -1;
	size_t len = 0, n = 1;
	void *blob;

	ft_ok(!te_register(rig->engine, &reg, sizeof(reg), 1) &&
	      !te_segment_export(rig->engine, LOCAL_SEGMENT, NULL, &len),
	      "own_segment_is_exported");
	blob = malloc(len);
	ft_ok(blob &&
	      !te_segment_export(rig->engine, LOCAL_SEGMENT, blob, &len) &&
	      !te_segment_import(other, blob, len, 0, &seg) &&
	      !te_segment_find(other, seg, "k\xc3\xa4se", &b, sizeof(b), &n) &&
	      n == 1 && b.addr == (uintptr_t)reg.addr && b.length == LABEL_LEN,
	      "label_is_found_in_an_imported_blob");
	n = 1;
	ft_ok(!te_segment_find(rig->engine, LOCAL_SEGMENT, "k\xc3\xa4se", &b,
			       sizeof(b), &n) && b.addr == (uintptr_t)reg.addr,
	      "label_is_found_in_the_own_segment");
	ft_ok(!te_unregister(rig->engine, &reg, sizeof(reg), 1),
	      "own_label_is_unregistered");
	free(blob);
	destroyTransferEngine(other);
}

static void label_bad(struct label_rig *rig)
{
	char text[300];
	struct te_registration reg = { rig->mem.p, 64, NULL, TE_REG_NESTED,
				       text };
	size_t i;
	static const struct {
		const char *label, *why;
	} bad[] = {
		{ "a\nb", "control character 0x0a at byte 1" },
		{ "\x7f", "control character 0x7f at byte 0" },
		{ "ab\xc3", "not valid UTF-8 at byte 2" },
		{ "\xed\xa0\x80", "not valid UTF-8 at byte 0" },
	};

	memset(text, 'x', sizeof(text));
	text[TE_LABEL_MAX] = 0;
	ft_ok(te_register(rig->engine, &reg, sizeof(reg), 1) == -1 &&
	      strstr(label_said(), "label of 256 bytes (must be at most 255)"),
	      "long_label_is_refused");
	text[TE_LABEL_MAX - 1] = 0;
	ft_ok(!te_register(rig->engine, &reg, sizeof(reg), 1) &&
	      !te_unregister(rig->engine, &reg, sizeof(reg), 1),
	      "longest_label_is_accepted");
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		reg.label = bad[i].label;
		if (!ft_ok(te_register(rig->engine, &reg, sizeof(reg), 1) ==
			   -1 && strstr(label_said(), bad[i].why),
			   "bad_label_%zu_is_refused", i))
			ft_diag("%s", label_said());
	}
}

/* Looks up the label t.i of the peer. Returns 1 if the result is the range that
 * the peer registered with that label, and 0 otherwise. */
static unsigned int label_right(struct label_rig *rig, unsigned int i)
{
	char label[32];

	snprintf(label, sizeof(label), "t.%u", i);
	return label_is(rig, label, 256ULL * i, 256);
}

static void label_many(struct label_rig *rig)
{
	unsigned int i, right = 0;
	uint64_t from;

	ft_ok(!fx_ask(&rig->peer, "labels %u 256", LABEL_MANY) &&
	      !syncSegmentCache(rig->engine), "ten_thousand_labels");
	from = ft_now_ns();
	for (i = 0; i < LABEL_MANY; i++)
		right += label_right(rig, i);
	ft_diag("%.2f us per look-up",
		(double)(ft_now_ns() - from) / 1e3 / LABEL_MANY);
	ft_ok(right == LABEL_MANY, "each_of_ten_thousand_labels_is_found");
	ft_ok(!fx_ask(&rig->peer, "unlabels %u 256", LABEL_MANY) &&
	      label_absent(rig, "t.0"), "ten_thousand_labels_are_withdrawn");
}

/* --- nested registrations -------------------------------------------------- */

static void nested_refused(struct label_rig *rig)
{
	struct fx_peer *p = &rig->peer;
	unsigned int read_only = TE_REG_NESTED | TE_REG_READ_ONLY;
	unsigned int private = TE_REG_NESTED | TE_REG_PRIVATE;

	ft_ok(fx_ask(p, "label 0 64 0 -") == -7,
	      "range_inside_a_buffer_needs_the_flag");
	ft_ok(fx_ask(p, "label %llu 128 %u -", LABEL_POOL - 64,
		     LABEL_NESTED) == -7,
	      "range_that_leaves_the_buffer_is_refused");
	ft_ok(fx_ask(p, "label 0 64 %u -", read_only) == -1 &&
	      fx_ask(p, "label 0 64 %u -", private) == -1,
	      "range_with_another_access_is_refused");
	ft_ok(fx_ask(p, "unlabel 0 64 %u -", LABEL_NESTED) == -3 &&
	      fx_ask(p, "unlabel %llu %llu %u other", LABEL_IN, LABEL_LEN,
		     LABEL_NESTED) == -3 &&
	      fx_ask(p, "unlabel 0 64 0 pool") == -3 &&
	      fx_ask(p, "unlabel 0 %llu 0 -", LABEL_POOL) == -3 &&
	      fx_ask(p, "unreg %llu", LABEL_IN) == -3,
	      "only_an_existing_registration_is_unregistered");
}

/* Drops the references to a nested registration while a transfer uses the
 * range. The transfer must complete. */
static void nested_dropped(struct label_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->peer.mem.addr,
			      .len = LABEL_POOL, .block = 64 * FX_KIB };
	unsigned int i;
	bool good = true;

	ft_ok(!fx_ask(&rig->peer, "label %llu %llu %u layers.0.weight",
		      LABEL_IN, LABEL_LEN, LABEL_NESTED),
	      "same_range_is_registered_twice");
	fx_buf_fill(&rig->mem, 0, LABEL_POOL, ++rig->sequence);
	good = !fx_job_start(&job);
	for (i = 0; i < 2; i++) {
		good &= !fx_ask(&rig->peer, "unlabel %llu %llu %u "
				"layers.0.weight", LABEL_IN, LABEL_LEN,
				LABEL_NESTED);
		if (i == 0)
			good &= !syncSegmentCache(rig->engine) &&
				label_is(rig, "layers.0.weight", LABEL_IN,
					 LABEL_LEN);
	}
	ft_ok(good, "label_stays_until_the_last_reference_is_dropped");
	ft_ok(label_absent(rig, "layers.0.weight"),
	      "label_goes_with_the_last_reference");
	ft_ok(fx_job_wait(&job, FX_LONG_MS) &&
	      job.n[STATUS_COMPLETED] == job.tasks &&
	      fx_buf_check(&rig->peer.mem, 0, LABEL_POOL, rig->sequence),
	      "dropped_reference_stops_no_transfer");
	fx_job_free(&job);
	ft_ok(label_write(rig, LABEL_IN, LABEL_LEN),
	      "range_stays_accessible_through_the_buffer");
	ft_ok(fx_ask(&rig->peer, "unlabel %llu %llu %u layers.0.weight",
		     LABEL_IN, LABEL_LEN, LABEL_NESTED) == -3,
	      "reference_is_dropped_once");
}

/* Unregisters the buffer while nested registrations exist, which must be
 * refused. Then drops them and unregisters the buffer while a transfer writes
 * to it. */
static void nested_outer(struct label_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->peer.mem.addr,
			      .len = LABEL_POOL, .block = 64 * FX_KIB };

	ft_ok(!fx_ask(&rig->peer, "label 0 %llu %u -", LABEL_LEN,
		      LABEL_NESTED) &&
	      !fx_ask(&rig->peer, "label %llu %llu %u x", LABEL_IN, LABEL_LEN,
		      LABEL_NESTED), "two_references");
	ft_ok(fx_ask(&rig->peer, "unlabel 0 %llu 0 pool", LABEL_POOL) == -4 &&
	      fx_ask(&rig->peer, "unreg 0") == -4,
	      "buffer_with_references_is_not_unregistered");
	ft_ok(!syncSegmentCache(rig->engine) &&
		      label_is(rig, "pool", 0, LABEL_POOL) &&
		      label_write(rig, 0, LABEL_POOL),
	      "buffer_with_references_stays_accessible");
	ft_ok(!fx_ask(&rig->peer, "unlabel 0 %llu %u -", LABEL_LEN,
		      LABEL_NESTED) &&
	      fx_ask(&rig->peer, "unreg 0") == -4 &&
	      !fx_ask(&rig->peer, "unlabel %llu %llu %u x", LABEL_IN,
		      LABEL_LEN, LABEL_NESTED),
	      "references_are_dropped_in_any_order");
	ft_ok(!fx_job_start(&job) && !fx_ask(&rig->peer, "unreg 0"),
	      "buffer_without_references_is_unregistered");
	fx_buf_poison(&rig->peer.mem, 0, LABEL_POOL);
	ft_ok(fx_job_wait(&job, FX_LONG_MS) &&
	      fx_buf_poisoned(&rig->peer.mem, 0, LABEL_POOL),
	      "law2_no_byte_lands_after_the_buffer_is_unregistered");
	fx_job_free(&job);
	ft_ok(label_absent(rig, "pool"),
	      "label_of_unregistered_buffer_is_withdrawn");
}

/* Registers a buffer and ranges inside it with one call, and unregisters all of
 * them with another one. The order of the entries must not matter. */
static void nested_together(struct label_rig *rig)
{
	unsigned char *p = fx_buf_map(FX_MIB, -1).p;
	struct te_registration list[] = {
		{ p + 4096, 64, NULL, TE_REG_NESTED, "b" },
		{ p + FX_MIB - 4096, 8192, NULL, TE_REG_NESTED, NULL },
		{ p, 65536, NULL, TE_REG_NESTED, "c" },
		{ p, FX_MIB, NULL, 0, "a" },
	};
	struct te_buffer b[4];
	size_t n = 4;

	ft_ok(te_register(rig->engine, list, sizeof(*list), 4) == -7 &&
	      te_segment_find(rig->engine, LOCAL_SEGMENT, "a", b, sizeof(*b),
			      &n) == -3 &&
	      unregisterLocalMemory(rig->engine, p) == -3,
	      "refused_list_registers_nothing");
	list[1].addr = p;
	list[1].length = FX_MIB;
	n = 4;
	ft_ok(!te_register(rig->engine, list, sizeof(*list), 4) &&
	      !te_segment_find(rig->engine, LOCAL_SEGMENT, NULL, b, sizeof(*b),
			       &n) && n == 3 && !strcmp(b[0].label, "a") &&
	      !strcmp(b[1].label, "c") && !strcmp(b[2].label, "b"),
	      "one_call_registers_a_buffer_and_ranges_inside_it");
	ft_ok(te_unregister(rig->engine, &list[3], sizeof(*list), 1) == -4 &&
	      strstr(label_said(), "3 nested registrations of this buffer"),
	      "refusal_names_the_number_of_references");
	ft_ok(!te_unregister(rig->engine, list, sizeof(*list), 4) &&
	      te_unregister(rig->engine, list, sizeof(*list), 4) == -3,
	      "one_call_unregisters_all_of_them");
	/* If no registered buffer contains the range, the flag has no effect:
	 * the range becomes a buffer. */
	ft_ok(!te_register(rig->engine, &list[2], sizeof(*list), 1) &&
	      !te_register(rig->engine, &list[2], sizeof(*list), 1) &&
	      !te_unregister(rig->engine, &list[2], sizeof(*list), 1) &&
	      te_register(rig->engine, &list[3], sizeof(*list), 1) == -7 &&
	      !te_unregister(rig->engine, &list[2], sizeof(*list), 1) &&
	      te_unregister(rig->engine, &list[2], sizeof(*list), 1) == -3,
	      "range_that_was_registered_twice_is_unregistered_twice");
}

/* Tests a program that was built with a release whose te_registration has no
 * member for the label. */
static void label_abi(struct label_rig *rig)
{
	struct fx_buf buf = fx_buf_map(FX_MIB, -1);
	struct {
		void *addr;
		uint64_t length;
		const char *location;
		uint64_t flags;
	} old = { buf.p, 4096, NULL, 0 };

	ft_ok(!te_register(rig->engine, (void *)&old, sizeof(old), 1) &&
	      te_register(rig->engine, (void *)&old, sizeof(old) - 8, 1) ==
	      -1 && !te_unregister(rig->engine, (void *)&old, sizeof(old), 1),
	      "older_te_registration_has_no_label");
	fx_buf_unmap(&buf);
}

int main(int argc, char **argv)
{
	struct label_rig rig;

	fx_init(argc, argv);
	if (!ft_ok(label_start(&rig), "peer_registers_labelled_memory"))
		return ft_result();
	label_find(&rig);
	label_twice(&rig);
	label_blob(&rig);
	label_bad(&rig);
	label_abi(&rig);
	nested_refused(&rig);
	nested_together(&rig);
	label_many(&rig);
	nested_dropped(&rig);
	nested_outer(&rig);
	label_stop(&rig);
	return ft_result();
}
