/* SPDX-License-Identifier: BSD-2-Clause */

/* File segments: requests that are refused, and requests that fail because a
 * file is missing, too short or unmounted. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/functional/ft_files.h"

static void bad_requests(struct files_rig *rig)
{
	struct te_local local[2] = { { .addr = rig->mem.p, .length = 8 },
				     { .addr = rig->mem.p + 64, .length = 8 } };
	struct te_remote remote = { .addr = 0, .length = 16 };
	struct te_request req = {
		.opcode = TE_READ, .target_id = rig->seg, .local = local,
		.local_count = 2, .remote = &remote, .remote_count = 1,
	};
	char other[64];

	ft_ok(files_one(rig, OPCODE_READ, FILES_SIZE, rig->mem.p, 1, NULL) ==
	      -1 && files_one(rig, OPCODE_WRITE, FILES_SIZE - 1, rig->mem.p, 2,
			      NULL) == -1 &&
	      files_one(rig, OPCODE_WRITE, UINT64_MAX, rig->mem.p, 2, NULL) ==
	      -1, "law8_request_outside_the_file_segment_is_refused");
	ft_ok(files_one(rig, OPCODE_READ, 0, other, sizeof(other), NULL) == -3,
	      "request_with_unregistered_memory_is_refused");
	ft_ok(files_one(rig, 7, 0, rig->mem.p, 1, NULL) == -1,
	      "request_with_unknown_opcode_is_refused");
	ft_ok(fx_submit(rig->engine, &req, NULL) == -8,
	      "request_with_two_local_ranges_is_refused");
	req.local_count = 1;
	remote.length = 8;
	ft_ok(fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED,
	      "request_with_one_local_range_completes");
	req.opcode = TE_ATOMIC_ADD;
	req.local_count = 0;
	ft_ok(fx_submit(rig->engine, &req, NULL) == -8,
	      "atomic_on_file_segment_is_refused");
}

/* Renames the second file. Requests to it must fail, and requests to the first
 * file must still succeed. Then shortens the first file. */
static void bad_file(struct files_rig *rig)
{
	struct te_error err = { 0 };
	char away[112];

	snprintf(away, sizeof(away), "%s.away", rig->path[1]);
	rename(rig->path[1], away);
	ft_ok(files_one(rig, OPCODE_WRITE, FILES_FIRST, rig->mem.p, 4096,
			&err) == STATUS_FAILED &&
	      strstr(err.text, rig->path[1]) && err.code == -6,
	      "law10_request_to_missing_file_fails_with_a_record");
	ft_diag("%s", err.text);
	ft_ok(files_one(rig, OPCODE_READ, FILES_FIRST - 10, rig->mem.p, 20,
			NULL) == STATUS_FAILED,
	      "law4_request_partly_in_missing_file_fails");
	ft_ok(files_one(rig, OPCODE_WRITE, 5, rig->mem.p, 100000, NULL) ==
	      STATUS_COMPLETED, "request_to_another_file_completes");
	rename(away, rig->path[1]);
	ft_ok(openSegment(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_WRITE, FILES_FIRST, rig->mem.p, 4096,
			NULL) == STATUS_COMPLETED,
	      "request_after_file_reappears_completes");
	ft_ok(!truncate(rig->path[0], 1000) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 1001, &err) ==
	      STATUS_FAILED &&
	      files_one(rig, OPCODE_WRITE, 2000, rig->mem.p, 10, &err) ==
	      STATUS_FAILED, "request_beyond_end_of_shrunk_file_fails");
	ft_diag("%s", err.text);
	ft_ok(!truncate(rig->path[0], FILES_FIRST) &&
	      openSegmentNoCache(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 1001, NULL) ==
	      STATUS_COMPLETED,
	      "request_after_file_has_its_length_again_completes");
}

static void bad_mount(struct files_rig *rig)
{
	struct te_error err = { 0 };

	ft_ok(!files_meta(rig, "unmount --server=%s test", rig->server) &&
	      openSegmentNoCache(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, &err) ==
	      STATUS_FAILED && strstr(err.hint, "te_meta mount"),
	      "request_to_unmounted_file_fails_with_a_hint");
	ft_diag("%s; %s", err.text, err.hint);
	ft_ok(!files_meta(rig, "mount --server=%s test %s %s", rig->server,
			  rig->path[0], rig->path[1]) &&
	      openSegment(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) ==
	      STATUS_COMPLETED, "request_to_mounted_file_completes");
}

static void bad_transport(struct files_rig *rig)
{
	ft_ok(!uninstallTransport(rig->engine, "nvmeof") &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) == -8,
	      "request_after_transport_is_uninstalled_is_refused");
	ft_ok(installTransport(rig->engine, "nvmeof", NULL) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) ==
	      STATUS_COMPLETED,
	      "request_after_transport_is_installed_again_completes");
	ft_ok(!unregisterLocalMemory(rig->engine, rig->mem.p) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) == -3 &&
	      fx_register(rig->engine, &rig->mem) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) ==
	      STATUS_COMPLETED,
	      "request_after_memory_is_registered_again_completes");
}

static void bad_settings(struct files_rig *rig)
{
	transfer_engine_t e;

	setenv("MOONRAIL_FILE_SYNC", "perhaps", 1);
	e = createTransferEngine(rig->meta, rig->server, "", 0, 0);
	ft_ok(e && !installTransport(e, "nvmeof", NULL),
	      "transport_with_invalid_setting_is_refused");
	destroyTransferEngine(e);
	setenv("MOONRAIL_FILE_SYNC", "data", 1);
}

void files_bad(void)
{
	struct files_rig rig;

	if (!files_make(&rig) || !files_engine(&rig, NULL) ||
	    !files_register(&rig))
		return;
	rig.seg = openSegment(rig.engine, FILES_NAME);
	ft_ok(rig.seg > 0 && files_one(&rig, OPCODE_READ, 0, rig.mem.p, 1,
				       NULL) == -8,
	      "request_without_the_transport_is_refused");
	ft_ok(installTransport(rig.engine, "nvmeof", NULL) != NULL &&
	      files_one(&rig, OPCODE_READ, 0, rig.mem.p, 1, NULL) ==
	      STATUS_COMPLETED,
	      "request_after_transport_is_installed_completes");
	bad_requests(&rig);
	bad_file(&rig);
	bad_mount(&rig);
	bad_transport(&rig);
	bad_settings(&rig);
	ft_ok(!files_meta(&rig, "remove test") &&
	      openSegmentNoCache(rig.engine, FILES_NAME) == -1,
	      "removed_file_segment_cannot_be_opened");
	files_close(&rig);
	files_remove(&rig);
}
