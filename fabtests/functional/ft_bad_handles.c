/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "fabtests/functional/ft_bad_input.h"
#include "fabtests/functional/fx.h"

static char handle_mem[4096];

/* --- every call with a value that is no engine --------------------------- */

static bool handle_setup_calls(transfer_engine_t e)
{
	char buf[64] = "x";

	return discoverTopology(e) < 0 &&
	       getLocalIpAndPort(e, buf, sizeof(buf)) == -1 &&
	       !installTransport(e, "tcp", NULL) &&
	       uninstallTransport(e, "tcp") < 0 &&
	       showLinks(e, buf, sizeof(buf), 0) < 0 &&
	       te_settings_text(e, buf, sizeof(buf)) < 0;
}

static bool handle_segment_calls(transfer_engine_t e)
{
	struct te_buffer bufs[2];
	size_t n = 2;

	return openSegment(e, "127.0.0.1:1") == -1 &&
	       openSegmentNoCache(e, "127.0.0.1:1") == -1 &&
	       closeSegment(e, 1) == -1 &&
	       removeLocalSegment(e, "x") < 0 &&
	       syncSegmentCache(e) < 0 &&
	       warmupEfaSegment(e, "127.0.0.1:1") < 0 &&
	       te_segment_buffers(e, 0, bufs, sizeof(bufs[0]), &n) == -1;
}

static bool handle_memory_calls(transfer_engine_t e)
{
	struct buffer_entry entry = { handle_mem, sizeof(handle_mem) };
	void *addr = handle_mem;

	return registerLocalMemory(e, handle_mem, 64, "*", 1) == -1 &&
	       unregisterLocalMemory(e, handle_mem) < 0 &&
	       registerLocalMemoryBatch(e, &entry, 1, "*") == -1 &&
	       unregisterLocalMemoryBatch(e, &addr, 1) < 0;
}

static bool handle_transfer_calls(transfer_engine_t e)
{
	struct transfer_request req = { OPCODE_WRITE, handle_mem, 0, 1, 1 };
	struct notify_msg note = { handle_mem, handle_mem };
	struct transfer_status st;
	struct te_error err;

	return allocateBatchID(e, 4) == INVALID_BATCH &&
	       submitTransfer(e, 0, &req, 1) == 1 &&
	       submitTransferWithNotify(e, 0, &req, 1, note) == 1 &&
	       getTransferStatus(e, 0, 0, &st) == 1 &&
	       te_task_error(e, 0, 0, &err, sizeof(err)) == 1 &&
	       freeBatchID(e, 0) == 1;
}

static bool handle_other_calls(transfer_engine_t e)
{
	struct notify_msg note = { handle_mem, handle_mem };
	struct te_rail_stats stats[2];
	struct nic_load_stat load[2];
	size_t n = 2, m = 2;
	int size = 7;

	return !getNotifsFromEngine(e, &size) && size == 0 &&
	       genNotifyInEngine(e, 1, note) < 0 &&
	       getNicLoadStats(e, load, &n) == -1 &&
	       te_rail_stats(e, stats, sizeof(stats[0]), &m) == -1 &&
	       enableGracefulShutdown(e) < 0;
}

static void handle_no_engine(transfer_engine_t e, const char *what)
{
	ft_ok(handle_setup_calls(e),
	      "law5_set_up_calls_refuse_%s_engine", what);
	ft_ok(handle_segment_calls(e),
	      "law5_segment_calls_refuse_%s_engine", what);
	ft_ok(handle_memory_calls(e),
	      "law5_memory_calls_refuse_%s_engine", what);
	ft_ok(handle_transfer_calls(e),
	      "law5_transfer_calls_refuse_%s_engine", what);
	ft_ok(handle_other_calls(e), "law5_other_calls_refuse_%s_engine", what);
	destroyTransferEngine(e);
}

static void handle_engines(void)
{
	transfer_engine_t stale = fx_engine("tcp");
	long word = 0;

	handle_no_engine(NULL, "null");
	handle_no_engine(&word, "unknown");
	handle_no_engine((transfer_engine_t)(uintptr_t)0x1001, "wild");
	destroyTransferEngine(stale);
	destroyTransferEngine(stale);
	handle_no_engine(stale, "stale");
}

/* --- NULL and invalid values in every other argument --------------------- */

static void handle_settings_length(transfer_engine_t e)
{
	int length = te_settings_text(e, NULL, 0);
	char *text = calloc(1, (size_t)length + 2);

	ft_ok(length > 0 && text &&
	      te_settings_text(e, text, (size_t)length + 1) == length &&
	      strlen(text) == (size_t)length,
	      "settings_without_buffer_return_their_length");
	free(text);
}

static void handle_null_setup(transfer_engine_t e)
{
	size_t n = 4;
	char c = 'x';

	ft_ok(getLocalIpAndPort(e, NULL, 10) == -1,
	      "address_without_buffer_is_refused");
	ft_ok(getLocalIpAndPort(e, &c, 0) == -1 && c == 'x',
	      "address_into_0_bytes_writes_nothing");
	ft_ok(!getLocalIpAndPort(e, &c, 1) && c == '\0',
	      "address_into_1_byte_is_empty_text");
	ft_ok(!installTransport(e, NULL, NULL), "transport_null_is_refused");
	ft_ok(!installTransport(e, "", NULL),
	      "transport_with_empty_name_is_refused");
	ft_ok(!installTransport(e, "carrier-pigeon", NULL),
	      "transport_with_unknown_name_is_refused");
	ft_ok(uninstallTransport(e, NULL) < 0,
	      "uninstall_without_a_name_is_refused");
	ft_ok(getNicLoadStats(e, NULL, &n) == -1, "load_into_null_is_refused");
	ft_ok(te_rail_stats(e, NULL, sizeof(struct te_rail_stats), &n) == -1,
	      "rails_into_null_are_refused");
	ft_ok(showLinks(e, NULL, 10, 0) < 0, "links_into_null_are_refused");
	ft_ok(te_settings_text(e, NULL, 10) == -1,
	      "settings_into_null_are_refused");
	handle_settings_length(e);
	ft_ok(te_last_error(NULL, 100) == -1,
	      "last_error_into_null_is_refused");
}

static void handle_null_counts(transfer_engine_t e)
{
	struct te_rail_stats stats[4];
	struct nic_load_stat load[4];
	struct te_error err;
	size_t n = 0;

	ft_ok(getNicLoadStats(e, load, NULL) == -1,
	      "load_without_count_is_refused");
	ft_ok(te_rail_stats(e, stats, sizeof(stats[0]), NULL) == -1,
	      "rails_without_count_are_refused");
	ft_ok(te_last_error(&err, 0) == -1,
	      "last_error_into_0_bytes_is_refused");
	memset(stats, 0x5a, sizeof(stats));
	ft_ok(!te_rail_stats(e, stats, sizeof(stats[0]), &n) && n == 2 &&
	      stats[0].name[0] == 0x5a, "rails_into_0_elements_are_counted");
	n = 0;
	ft_ok(!te_rail_stats(e, NULL, 0, &n) && n == 2,
	      "rails_into_null_and_0_elements_are_counted");
	n = 1;
	ft_ok(!te_rail_stats(e, stats, sizeof(stats[0]), &n) && n == 2 &&
	      stats[1].name[0] == 0x5a, "rails_into_1_element_fill_only_that");
	n = 4;
	memset(stats, 0x5a, sizeof(stats));
	ft_ok(!te_rail_stats(e, stats, 16, &n) && n == 2 &&
	      stats[0].name[32] == 0x5a,
	      "rails_into_short_elements_fill_only_their_size");
}

static void handle_null_segments(transfer_engine_t e)
{
	struct te_error err;
	struct te_buffer bufs[4];
	size_t n = 4;

	ft_ok(openSegment(e, NULL) == -1 && openSegment(e, "") == -1 &&
	      openSegment(e, "/") == -1, "open_of_empty_name_is_refused");
	ft_ok(openSegmentNoCache(e, NULL) == -1 &&
	      openSegmentNoCache(e, "") == -1,
	      "open_without_cache_of_empty_name_is_refused");
	ft_ok(openSegment(e, "no colon here") == -1 &&
	      openSegment(e, "127.0.0.1:") == -1 &&
	      openSegment(e, "127.0.0.1:99999") == -1 &&
	      openSegment(e, ":::::") == -1 && openSegment(e, "[::1") == -1,
	      "open_of_malformed_name_is_refused");
	ft_ok(openSegment(e, "127.0.0.1:1") == -1,
	      "open_of_closed_port_is_refused");
	ft_ok(!closeSegment(e, 12345) && !closeSegment(e, -1) &&
		      !closeSegment(e, INT32_MIN) &&
		      !closeSegment(e, INT32_MAX),
	      "close_of_unknown_id_returns_0");
	ft_ok(!uninstallTransport(e, "carrier-pigeon") &&
	      !te_last_error(&err, sizeof(err)) &&
	      strstr(err.text, "\"carrier-pigeon\" is not installed"),
	      "uninstall_of_unknown_name_returns_0_with_a_record");
	ft_ok(removeLocalSegment(e, "") == -1 &&
	      removeLocalSegment(e, NULL) == -1,
	      "remove_of_empty_name_is_refused");
	ft_ok(!removeLocalSegment(e, "never.seen:1"),
	      "remove_of_absent_segment_returns_0");
	ft_ok(warmupEfaSegment(e, NULL) < 0 && warmupEfaSegment(e, "") < 0 &&
	      warmupEfaSegment(e, "127.0.0.1:1") < 0,
	      "warmup_of_unknown_segment_is_refused");
	ft_ok(te_segment_buffers(e, 77, bufs, sizeof(bufs[0]), &n) == -1 &&
		      te_segment_buffers(e, -1, bufs, sizeof(bufs[0]), &n) ==
			      -1 &&
		      te_segment_buffers(e, 0, bufs, sizeof(bufs[0]), NULL) ==
			      -1,
	      "buffers_of_unknown_segment_are_refused");
}

static void handle_long_names(transfer_engine_t e)
{
	static char name[70000];
	struct notify_msg note = { name, name };
	notify_msg_t *got;
	int size;

	memset(name, 'a', sizeof(name) - 1);
	ft_ok(openSegment(e, name) == -1 && openSegmentNoCache(e, name) == -1,
	      "open_of_70000_byte_name_is_refused");
	ft_ok(!installTransport(e, name, NULL),
	      "transport_with_70000_byte_name_is_refused");
	genNotifyInEngine(e, 0, note);
	got = getNotifsFromEngine(e, &size);
	freeNotifsMsgBuf(got, size);
	ft_ok(size == 0 || size == 1,
	      "notification_of_70000_bytes_does_no_harm");
	ft_ok(registerLocalMemory(e, handle_mem, 64, name, 1) < 0 ||
	      !unregisterLocalMemory(e, handle_mem),
	      "location_of_70000_bytes_does_no_harm");
}

static void handle_null_notes(transfer_engine_t e)
{
	char text[] = "text";
	struct notify_msg no_name = { NULL, text }, no_text = { text, NULL };
	struct notify_msg note = { text, text };

	ft_ok(genNotifyInEngine(e, 0, no_name) < 0 &&
	      genNotifyInEngine(e, 0, no_text) < 0,
	      "notification_without_name_or_text_is_refused");
	ft_ok(genNotifyInEngine(e, 4711, note) < 0 &&
		      genNotifyInEngine(e, UINT64_MAX, note) < 0 &&
		      genNotifyInEngine(e, UINT64_C(1) << 32, note) < 0,
	      "notification_to_unknown_segment_is_refused");
	ft_ok(!getNotifsFromEngine(e, NULL),
	      "notifications_without_count_are_refused");
	freeNotifsMsgBuf(NULL, 0);
	freeNotifsMsgBuf(NULL, 5);
}

static void handle_batches(transfer_engine_t e)
{
	static const batch_id_t unknown[] = {
		0,
		1,
		2,
		255,
		UINT64_C(1) << 32,
		INVALID_BATCH,
		INVALID_BATCH - 1,
		UINT64_C(0x8000000000000000),
		UINT64_C(0xdeadbeefdeadbeef),
	};
	struct transfer_request req = { OPCODE_WRITE, handle_mem, 0, 1, 1 };
	batch_id_t live = allocateBatchID(e, 1), stale = allocateBatchID(e, 1);
	struct transfer_status st;
	bool good = true;

	for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++) {
		batch_id_t id = unknown[i];

		if (id == live || id == stale)
			continue;
		good = good && submitTransfer(e, id, &req, 1) == 1 &&
		       getTransferStatus(e, id, 0, &st) == 1 &&
		       freeBatchID(e, id) == 1;
	}
	ft_ok(good, "law5_unknown_batch_id_is_refused");
	good = !freeBatchID(e, stale);
	for (int i = 0; i < 1000 && good; i++) {
		batch_id_t id = allocateBatchID(e, 1);

		good = id != stale && getTransferStatus(e, stale, 0, &st) == 1
		       && freeBatchID(e, stale) == 1 && !freeBatchID(e, id);
	}
	ft_ok(good, "law5_stale_batch_id_stays_refused_after_new_batches");
	ft_ok(submitTransfer(e, live, NULL, 1) == 1,
	      "submit_of_null_requests_is_refused");
	ft_ok(submitTransfer(e, live, &req, SIZE_MAX) == 2 ||
	      submitTransfer(e, live, &req, SIZE_MAX) == 1,
	      "submit_of_too_many_requests_is_refused");
	ft_ok(allocateBatchID(e, SIZE_MAX) == INVALID_BATCH &&
	      allocateBatchID(e, SIZE_MAX / 64) == INVALID_BATCH,
	      "batch_of_too_many_requests_is_refused");
	freeBatchID(e, live);
}

void bad_handles(void)
{
	transfer_engine_t e;

	handle_engines();
	e = fx_engine("tcp");
	if (!ft_ok(e, "engine_starts"))
		return;
	handle_null_setup(e);
	handle_null_counts(e);
	handle_null_segments(e);
	handle_long_names(e);
	handle_null_notes(e);
	handle_batches(e);
	destroyTransferEngine(e);
}
