/* SPDX-License-Identifier: BSD-2-Clause */

/* File segments: what is refused, and what fails while the rest goes on. */

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
	      -1, "law8_outside_of_the_segment_is_refused");
	ft_ok(files_one(rig, OPCODE_READ, 0, other, sizeof(other), NULL) == -3,
	      "memory_that_is_not_registered_is_refused");
	ft_ok(files_one(rig, 7, 0, rig->mem.p, 1, NULL) == -1,
	      "an_unknown_opcode_is_refused");
	ft_ok(fx_submit(rig->engine, &req, NULL) == -8,
	      "several_pieces_are_refused");
	req.local_count = 1;
	remote.length = 8;
	ft_ok(fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED,
	      "one_piece_works");
	req.opcode = TE_ATOMIC_ADD;
	req.local_count = 0;
	ft_ok(fx_submit(rig->engine, &req, NULL) == -8,
	      "an_atomic_is_refused");
}

/* The second file is away; the first one works all the time. */
static void bad_file(struct files_rig *rig)
{
	struct te_error err = { 0 };
	char away[112];

	snprintf(away, sizeof(away), "%s.away", rig->path[1]);
	rename(rig->path[1], away);
	ft_ok(files_one(rig, OPCODE_WRITE, FILES_FIRST, rig->mem.p, 4096,
			&err) == STATUS_FAILED &&
	      strstr(err.text, rig->path[1]) && err.code == -6,
	      "law10_a_file_that_went_away_fails_with_a_record");
	ft_diag("%s", err.text);
	ft_ok(files_one(rig, OPCODE_READ, FILES_FIRST - 10, rig->mem.p, 20,
			NULL) == STATUS_FAILED,
	      "law4_so_does_a_request_that_crosses_into_it");
	ft_ok(files_one(rig, OPCODE_WRITE, 5, rig->mem.p, 100000, NULL) ==
	      STATUS_COMPLETED, "another_file_goes_on");
	rename(away, rig->path[1]);
	ft_ok(openSegment(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_WRITE, FILES_FIRST, rig->mem.p, 4096,
			NULL) == STATUS_COMPLETED,
	      "opened_again_it_works");
	ft_ok(!truncate(rig->path[0], 1000) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 1001, &err) ==
	      STATUS_FAILED &&
	      files_one(rig, OPCODE_WRITE, 2000, rig->mem.p, 10, &err) ==
	      STATUS_FAILED, "a_file_that_shrank_fails");
	ft_diag("%s", err.text);
	ft_ok(!truncate(rig->path[0], FILES_FIRST) &&
	      openSegmentNoCache(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 1001, NULL) ==
	      STATUS_COMPLETED, "as_long_as_it_was_it_works");
}

static void bad_mount(struct files_rig *rig)
{
	struct te_error err = { 0 };

	ft_ok(!files_meta(rig, "unmount --server=%s test", rig->server) &&
	      openSegmentNoCache(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, &err) ==
	      STATUS_FAILED && strstr(err.hint, "te_meta mount"),
	      "what_is_not_mounted_fails_and_says_how");
	ft_diag("%s; %s", err.text, err.hint);
	ft_ok(!files_meta(rig, "mount --server=%s test %s %s", rig->server,
			  rig->path[0], rig->path[1]) &&
	      openSegment(rig->engine, FILES_NAME) == rig->seg &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) ==
	      STATUS_COMPLETED, "mounted_it_works");
}

static void bad_transport(struct files_rig *rig)
{
	ft_ok(!uninstallTransport(rig->engine, "nvmeof") &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) == -8,
	      "uninstalled_it_is_refused");
	ft_ok(installTransport(rig->engine, "nvmeof", NULL) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) ==
	      STATUS_COMPLETED, "installed_again_it_works");
	ft_ok(!unregisterLocalMemory(rig->engine, rig->mem.p) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) == -3 &&
	      fx_register(rig->engine, &rig->mem) &&
	      files_one(rig, OPCODE_READ, 0, rig->mem.p, 10, NULL) ==
	      STATUS_COMPLETED, "memory_unregistered_and_registered_again");
}

static void bad_settings(struct files_rig *rig)
{
	transfer_engine_t e;

	setenv("MOONRAIL_FILE_SYNC", "perhaps", 1);
	e = createTransferEngine(rig->meta, rig->server, "", 0, 0);
	ft_ok(e && !installTransport(e, "nvmeof", NULL),
	      "a_setting_that_makes_no_sense_is_refused");
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
	      "without_the_transport_it_is_refused");
	ft_ok(installTransport(rig.engine, "nvmeof", NULL) != NULL &&
	      files_one(&rig, OPCODE_READ, 0, rig.mem.p, 1, NULL) ==
	      STATUS_COMPLETED, "installed_later_it_works");
	bad_requests(&rig);
	bad_file(&rig);
	bad_mount(&rig);
	bad_transport(&rig);
	bad_settings(&rig);
	ft_ok(!files_meta(&rig, "remove test") &&
	      openSegmentNoCache(rig.engine, FILES_NAME) == -1,
	      "removed_it_cannot_be_opened");
	files_close(&rig);
	files_remove(&rig);
}
