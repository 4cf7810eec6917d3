/* SPDX-License-Identifier: BSD-2-Clause */

/* A table of bad input. It has a call of every exported function with a value
 * that is not an engine, and with another invalid argument. Each call must
 * return its error, and the error record of the calling thread must state the
 * cause. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/functional/ft_bad_input.h"
#include "fabtests/functional/fx.h"

static char table_mem[4096];
static char table_out[64];
static struct transfer_request table_req = { OPCODE_WRITE, table_mem, 0, 1, 1 };
static struct te_request table_request;
static struct te_local table_local = { table_mem, 1 };
static struct te_remote table_remote = { 1, 1 };
static struct te_notification table_binary;
static struct te_registration table_reg = { table_mem, 64, NULL, 0, NULL };
static batch_id_t table_ids[1];
static struct te_task table_task;
static struct te_piece table_piece = { table_mem, 1, 1 };
static te_prepared_t table_list;
static struct notify_msg table_note = { table_mem, table_mem };
static struct notify_msg table_null_note = { table_mem, NULL };
static struct transfer_status table_status;
static struct te_rail_stats table_rails[1];
static struct nic_load_stat table_load[1];
static struct te_buffer table_bufs[1];
static struct te_path table_paths[1];
static struct te_ended table_ended[1];
static struct te_peer_stats table_peer;
static struct te_memory table_memory;
static struct te_error table_err;
static struct buffer_entry table_entry = { table_mem, 64 };
static struct buffer_entry table_empty = { table_mem, 0 };
static void *table_addr = table_mem;
static segment_id_t table_id;
static size_t table_n;
static int table_size;

#define NO_BATCH UINT64_C(0xdeadbeefdeadbeef)

/* ON(NAME, …) defines on_NAME, which calls the function NAME with an invalid
 * engine. IN(NAME, …) defines in_NAME, which calls it with another invalid
 * argument. Both return true if the call was refused. */
#define ON(name, call) \
	static bool on_##name(transfer_engine_t e) { table_n = 1; return (call); }
#define IN(name, call) \
	static bool in_##name(transfer_engine_t e) { table_n = 1; return (call); }

static bool table_destroy(transfer_engine_t e)
{
	destroyTransferEngine(e);
	return true;
}

/* Returns true if closeSegment succeeds for an unknown id and leaves an error
 * record. */
static bool table_close(transfer_engine_t e, segment_id_t id)
{
	struct te_error err;

	return !closeSegment(e, id) && !te_last_error(&err, sizeof(err)) &&
	       strstr(err.text, "closeSegment: no such segment");
}

ON(destroyTransferEngine, table_destroy(e))
ON(discoverTopology, discoverTopology(e) == -1)
ON(getLocalIpAndPort, getLocalIpAndPort(e, table_out, 64) == -1)
IN(getLocalIpAndPort, getLocalIpAndPort(e, NULL, 64) == -1)
ON(installTransport, !installTransport(e, "tcp", NULL))
IN(installTransport, !installTransport(e, "carrier-pigeon", NULL))
ON(uninstallTransport, uninstallTransport(e, "tcp") == -1)
IN(uninstallTransport, uninstallTransport(e, NULL) == -1)
ON(openSegment, openSegment(e, "127.0.0.1:1") == -1)
IN(openSegment, openSegment(e, "") == -1)
ON(openSegmentNoCache, openSegmentNoCache(e, "127.0.0.1:1") == -1)
IN(openSegmentNoCache, openSegmentNoCache(e, NULL) == -1)
ON(te_probe_peer, te_probe_peer(e, "127.0.0.1:1", -1) == -1)
IN(te_probe_peer, te_probe_peer(e, "", -1) == -1)
ON(closeSegment, closeSegment(e, 1) == -1)
IN(closeSegment, table_close(e, 4711))
ON(removeLocalSegment, removeLocalSegment(e, "x") == -1)
IN(removeLocalSegment, removeLocalSegment(e, "") == -1)
ON(syncSegmentCache, syncSegmentCache(e) == -1)
ON(warmupEfaSegment, warmupEfaSegment(e, "127.0.0.1:1") == -1)
IN(warmupEfaSegment, warmupEfaSegment(e, "no colon") < 0)
ON(registerLocalMemory, registerLocalMemory(e, table_mem, 1, "*", 1) == -1)
IN(registerLocalMemory, registerLocalMemory(e, table_mem, 0, "*", 1) == -1)
ON(unregisterLocalMemory, unregisterLocalMemory(e, table_mem) == -1)
IN(unregisterLocalMemory, unregisterLocalMemory(e, table_mem) == -3)
ON(registerLocalMemoryBatch,
   registerLocalMemoryBatch(e, &table_entry, 1, "*") == -1)
IN(registerLocalMemoryBatch,
   registerLocalMemoryBatch(e, &table_empty, 1, "*") == -1)
ON(unregisterLocalMemoryBatch,
   unregisterLocalMemoryBatch(e, &table_addr, 1) == -1)
IN(unregisterLocalMemoryBatch,
   unregisterLocalMemoryBatch(e, &table_addr, 1) == -3)
ON(te_register, te_register(e, &table_reg, sizeof(table_reg), 1) == -1)
IN(te_register, te_register(e, &table_reg, 8, 1) == -1)
ON(te_unregister, te_unregister(e, &table_reg, sizeof(table_reg), 1) == -1)
IN(te_unregister, te_unregister(e, &table_reg, sizeof(table_reg), 1) == -3)
ON(allocateBatchID, allocateBatchID(e, 1) == INVALID_BATCH)
IN(allocateBatchID, allocateBatchID(e, 1048577) == INVALID_BATCH)
ON(submitTransfer, submitTransfer(e, NO_BATCH, &table_req, 1) == 1)
IN(submitTransfer, submitTransfer(e, NO_BATCH, &table_req, 1) == 1)
ON(submitTransferWithNotify,
   submitTransferWithNotify(e, NO_BATCH, &table_req, 1, table_note) == 1)
IN(submitTransferWithNotify,
   submitTransferWithNotify(e, NO_BATCH, &table_req, 1, table_null_note) == 1)
ON(getTransferStatus, getTransferStatus(e, NO_BATCH, 0, &table_status) == 1)
IN(getTransferStatus, getTransferStatus(e, NO_BATCH, 0, &table_status) == 1)
ON(freeBatchID, freeBatchID(e, NO_BATCH) == 1)
IN(freeBatchID, freeBatchID(e, NO_BATCH) == 1)
ON(getNotifsFromEngine, !getNotifsFromEngine(e, &table_size))
IN(getNotifsFromEngine, !getNotifsFromEngine(e, NULL))
ON(genNotifyInEngine, genNotifyInEngine(e, 1, table_note) == -1)
IN(genNotifyInEngine, genNotifyInEngine(e, 4711, table_note) == -1)
ON(te_notify, te_notify(e, 0, "x", table_mem, 1) == -1)
IN(te_notify, te_notify(e, 0, "x", NULL, 1) == -1)
ON(te_notify_fetch,
   te_notify_fetch(e, &table_binary, sizeof(table_binary), &table_n) == -1)
IN(te_notify_fetch, te_notify_fetch(e, &table_binary, 8, &table_n) == -1)
ON(getNicLoadStats, getNicLoadStats(e, table_load, &table_n) == -1)
IN(getNicLoadStats, getNicLoadStats(e, NULL, &table_n) == -1)
ON(showLinks, showLinks(e, table_out, 64, 1) == -1)
IN(showLinks, showLinks(e, NULL, 64, 1) == -1)
ON(enableGracefulShutdown, enableGracefulShutdown(e) == -1)

ON(te_submit,
   te_submit(e, NO_BATCH, &table_request, sizeof(table_request), 1, 0) == 1)
IN(te_submit, te_submit(e, NO_BATCH, NULL, sizeof(table_request), 1, 0) == 1)
ON(te_read, te_read(e, 0, table_mem, 1, 1, -1) == 1)
IN(te_read, te_read(e, 0, NULL, 1, 1, -1) == 1)
ON(te_write, te_write(e, 0, table_mem, 1, 1, -1) == 1)
IN(te_write, te_write(e, 4711, table_mem, 1, 1, -1) == 1)
ON(te_readv, te_readv(e, 0, &table_local, 1, &table_remote, 1, -1) == 1)
IN(te_readv, te_readv(e, 0, NULL, 1, &table_remote, 1, -1) == 1)
ON(te_writev, te_writev(e, 0, &table_local, 1, &table_remote, 1, -1) == 1)
IN(te_writev, te_writev(e, 0, &table_local, 1, &table_remote, 0, -1) == 1)
ON(te_submit_wait,
   te_submit_wait(e, &table_request, sizeof(table_request), 1, 0, -1) == 1)
IN(te_submit_wait,
   te_submit_wait(e, NULL, sizeof(table_request), 1, 0, -1) == 1)
ON(te_prepare, te_prepare(e, 0, TE_WRITE, &table_piece, 1, 0, &table_list) == 1)
IN(te_prepare, te_prepare(e, 0, TE_WRITE, NULL, 1, 0, &table_list) == 1)
ON(te_prepared_release, te_prepared_release(e, 4711) == 1)
IN(te_prepared_release, te_prepared_release(e, 4711) == 1)
ON(te_submit_prepared,
   te_submit_prepared(e, NO_BATCH, 4711, NULL, 0, 0, 0, NULL) == 1)
IN(te_submit_prepared,
   te_submit_prepared(e, NO_BATCH, 4711, NULL, 0, 0, 0, NULL) == 1)
ON(te_task_error,
   te_task_error(e, NO_BATCH, 0, &table_err, sizeof(table_err)) == 1)
IN(te_task_error,
   te_task_error(e, NO_BATCH, 0, &table_err, sizeof(table_err)) == 1)
ON(te_wait_task, te_wait_task(e, NO_BATCH, 0, 0, NULL) == 1)
IN(te_wait_task, te_wait_task(e, NO_BATCH, 0, -1, NULL) == 1)
ON(te_wait_batch, te_wait_batch(e, NO_BATCH, 0, NULL) == 1)
IN(te_wait_batch, te_wait_batch(e, NO_BATCH, -1, NULL) == 1)
ON(te_wait_any, te_wait_any(e, table_ids, 1, 0, &table_n, NULL) == 1)
IN(te_wait_any, te_wait_any(e, table_ids, 4097, 0, &table_n, NULL) == 1)
ON(te_batch_tasks,
   te_batch_tasks(e, NO_BATCH, 0, &table_task, 24, &table_n) == 1)
IN(te_batch_tasks,
   te_batch_tasks(e, NO_BATCH, 0, NULL, 24, &table_n) == 1)
ON(te_batch_reset, te_batch_reset(e, NO_BATCH) == 1)
IN(te_batch_reset, te_batch_reset(e, NO_BATCH) == 1)
ON(te_batch_timeout, te_batch_timeout(e, NO_BATCH, 1) == 1)
IN(te_batch_timeout, te_batch_timeout(e, NO_BATCH, -1) == 1)
ON(te_batch_status, te_batch_status(e, NO_BATCH, &table_status) == 1)
IN(te_batch_status, te_batch_status(e, NO_BATCH, &table_status) == 1)
ON(te_event_fd, te_event_fd(e) == -1)
ON(te_ended_batches,
   te_ended_batches(e, table_ended, sizeof(*table_ended), &table_n) == -1)
IN(te_ended_batches, te_ended_batches(e, NULL, 1, &table_n) == -1)
ON(te_batch_event_fd, te_batch_event_fd(e, NO_BATCH) == -1)
IN(te_batch_event_fd, te_batch_event_fd(e, NO_BATCH) == -1)
ON(te_cancel_task, te_cancel_task(e, NO_BATCH, 0) == 1)
IN(te_cancel_task, te_cancel_task(e, NO_BATCH, 0) == 1)
ON(te_cancel_batch, te_cancel_batch(e, NO_BATCH) == 1)
IN(te_cancel_batch, te_cancel_batch(e, NO_BATCH) == 1)
ON(te_flush, te_flush(e, 0, 0) == 1)
IN(te_flush, te_flush(e, 4711, -1) == 1)
ON(te_drain, te_drain(e, 0) == 1)
ON(te_batch_deadline, te_batch_deadline(e, NO_BATCH, 1) == 1)
IN(te_batch_deadline, te_batch_deadline(e, NO_BATCH, 1) == 1)
ON(te_rail_stats,
   te_rail_stats(e, table_rails, sizeof(*table_rails), &table_n) == -1)
IN(te_rail_stats, te_rail_stats(e, table_rails, 0, &table_n) == -1)
ON(te_segment_buffers,
   te_segment_buffers(e, 0, table_bufs, sizeof(*table_bufs), &table_n) == -1)
IN(te_segment_buffers,
   te_segment_buffers(e, 4711, table_bufs, sizeof(*table_bufs),
		      &table_n) == -1)
ON(te_segment_find,
   te_segment_find(e, 0, "x", table_bufs, sizeof(*table_bufs), &table_n) == -1)
IN(te_segment_find, te_segment_find(e, 4711, "x", table_bufs,
				    sizeof(*table_bufs), &table_n) == -1)
ON(te_settings_text, te_settings_text(e, table_out, 64) == -1)
IN(te_settings_text, te_settings_text(e, NULL, 64) == -1)
ON(te_topology_text, te_topology_text(e, table_out, 64) == -1)
IN(te_topology_text, te_topology_text(e, NULL, 64) == -1)
ON(te_segment_export, te_segment_export(e, 0, table_out, &table_n) == -1)
IN(te_segment_export, te_segment_export(e, 8, table_out, &table_n) == -1)
ON(te_segment_import, te_segment_import(e, table_mem, 9, 0, &table_id) == -1)
IN(te_segment_import,
   te_segment_import(e, table_mem, 9, 0, &table_id) == -104)
ON(te_segment_paths,
   te_segment_paths(e, 0, NULL, table_paths, sizeof(*table_paths),
		    &table_n) == -1)
IN(te_segment_paths,
   te_segment_paths(e, 0, "moon:1", table_paths, sizeof(*table_paths),
		    &table_n) == -1)
ON(te_peer_stats, te_peer_stats(e, 0, &table_peer, sizeof(table_peer)) == -1)
IN(te_peer_stats, te_peer_stats(e, -7, &table_peer, sizeof(table_peer)) == -1)
ON(te_alloc,
   te_alloc(e, 64, NULL, 0, &table_memory, sizeof(table_memory)) == -1)
IN(te_alloc, te_alloc(e, 0, NULL, 0, &table_memory, sizeof(table_memory)) == -1)
ON(te_free, te_free(e, table_mem) == -1)
IN(te_free, te_free(e, table_mem) == -3)

#define BOTH(name) { #name, on_##name, in_##name }
/* for functions that have no other argument that can be invalid */
#define ONE(name) { #name, on_##name, NULL }

static const struct table_row {
	const char *name;
	bool (*on)(transfer_engine_t e);
	bool (*in)(transfer_engine_t e);
} table_rows[] = {
	ONE(destroyTransferEngine),
	ONE(discoverTopology),
	BOTH(getLocalIpAndPort),
	BOTH(installTransport),
	BOTH(uninstallTransport),
	BOTH(openSegment),
	BOTH(openSegmentNoCache),
	BOTH(closeSegment),
	BOTH(removeLocalSegment),
	ONE(syncSegmentCache),
	BOTH(warmupEfaSegment),
	BOTH(registerLocalMemory),
	BOTH(unregisterLocalMemory),
	BOTH(registerLocalMemoryBatch),
	BOTH(unregisterLocalMemoryBatch),
	BOTH(allocateBatchID),
	BOTH(submitTransfer),
	BOTH(submitTransferWithNotify),
	BOTH(te_probe_peer),
	BOTH(getTransferStatus),
	BOTH(freeBatchID),
	BOTH(getNotifsFromEngine),
	BOTH(genNotifyInEngine),
	BOTH(getNicLoadStats),
	BOTH(showLinks),
	ONE(enableGracefulShutdown),
	BOTH(te_wait_any),
	BOTH(te_batch_tasks),
	BOTH(te_batch_reset),
	BOTH(te_batch_timeout),
	BOTH(te_register),
	BOTH(te_unregister),
	BOTH(te_notify),
	BOTH(te_notify_fetch),
	BOTH(te_read),
	BOTH(te_write),
	BOTH(te_readv),
	BOTH(te_writev),
	BOTH(te_submit_wait),
	BOTH(te_prepare),
	BOTH(te_prepared_release),
	BOTH(te_submit_prepared),
	BOTH(te_submit),
	BOTH(te_task_error),
	BOTH(te_wait_task),
	BOTH(te_wait_batch),
	BOTH(te_batch_status),
	ONE(te_event_fd),
	BOTH(te_ended_batches),
	BOTH(te_batch_event_fd),
	BOTH(te_cancel_task),
	BOTH(te_cancel_batch),
	BOTH(te_flush),
	ONE(te_drain),
	BOTH(te_batch_deadline),
	BOTH(te_rail_stats),
	BOTH(te_segment_buffers),
	BOTH(te_segment_find),
	BOTH(te_settings_text),
	BOTH(te_topology_text),
	BOTH(te_segment_export),
	BOTH(te_segment_import),
	BOTH(te_segment_paths),
	BOTH(te_peer_stats),
	BOTH(te_alloc),
	BOTH(te_free),
};

#define TABLE_ROWS (sizeof(table_rows) / sizeof(table_rows[0]))

/* Exported functions without an engine argument. They are not in the table;
 * other tests check them. */
static const char *const table_others[] = {
	"createTransferEngine", "freeNotifsMsgBuf", "te_engine_create",
	"te_fabric_version", "te_last_error", "te_notify_release", "te_set_log", "te_version",
};

/* A call that runs in a new thread, so that the thread's error record is empty
 * before. */
struct table_call {
	bool (*fn)(transfer_engine_t e);
	transfer_engine_t engine;
	bool refused;
	struct te_error err;
};

static void *table_thread(void *arg)
{
	struct table_call *c = arg;

	c->refused = c->fn(c->engine);
	te_last_error(&c->err, sizeof(c->err));
	return NULL;
}

static bool table_refused(const char *name, bool (*fn)(transfer_engine_t e),
			  transfer_engine_t engine)
{
	struct table_call c = { .fn = fn, .engine = engine };
	pthread_t thread;

	if (pthread_create(&thread, NULL, table_thread, &c))
		return false;
	pthread_join(thread, NULL);
	if (c.refused && c.err.code < 0 && c.err.text[0])
		return true;
	ft_diag("%s: %s, error record: code %d, '%s'", name,
		c.refused ? "refused as expected" : "not refused as expected",
		c.err.code, c.err.text);
	return false;
}

static void table_engine(transfer_engine_t engine, const char *what)
{
	bool good = true;

	for (size_t i = 0; i < TABLE_ROWS; i++)
		good = table_refused(table_rows[i].name, table_rows[i].on,
				     engine) && good;
	ft_ok(good, "law5_every_call_refuses_%s_engine_with_a_record", what);
}

static bool table_has(const char *name)
{
	for (size_t i = 0; i < TABLE_ROWS; i++)
		if (!strcmp(table_rows[i].name, name))
			return true;
	for (size_t i = 0; i < sizeof(table_others) / sizeof(char *); i++)
		if (!strcmp(table_others[i], name))
			return true;
	ft_diag("%s is not in the table", name);
	return false;
}

/* Checks that each function in the list of exported functions
 * (api/moonrail.map) is in the table. Does nothing if the source tree is not
 * available. */
static void table_is_complete(void)
{
	const char *src = getenv("SRC");
	char path[4096], line[256], name[128];
	size_t seen = 0;
	bool good = true;
	FILE *f;

	snprintf(path, sizeof(path), "%s/api/moonrail.map", src ? src : ".");
	f = src ? fopen(path, "r") : NULL;
	if (!f) {
		ft_diag("%s not found: the table is not checked for "
			"completeness", path);
		return;
	}
	while (fgets(line, sizeof(line), f)) {
		if (line[0] != '\t' || !strchr(line, ';') ||
		    sscanf(line, "\t%127[A-Za-z0-9_]", name) != 1)
			continue;
		good = table_has(name) && good;
		seen++;
	}
	fclose(f);
	ft_ok(good && seen == TABLE_ROWS + sizeof(table_others) / sizeof(char *),
	      "every_exported_function_is_in_the_table");
}

void bad_table(void)
{
	transfer_engine_t e = fx_engine("tcp");
	bool good = true;
	long word = 0;

	table_is_complete();
	table_engine(NULL, "a_null");
	table_engine(&word, "an_unknown");
	table_engine((transfer_engine_t)(uintptr_t)0x1001, "a_wild");
	if (!ft_ok(e, "engine_starts"))
		return;
	for (size_t i = 0; i < TABLE_ROWS; i++)
		if (table_rows[i].in)
			good = table_refused(table_rows[i].name,
					     table_rows[i].in, e) && good;
	ft_ok(good, "every_call_refuses_a_bad_argument_with_a_record");
	destroyTransferEngine(e);
	table_engine(e, "a_stale");
}
