/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/functional/ft_files.h"

static const uint64_t files_length[FILES_COUNT] = { FILES_FIRST, FILES_SECOND };

bool files_make(struct files_rig *rig)
{
	const char *tmp = getenv("FT_FILES_DIR");
	bool good;
	int fd;

	memset(rig, 0, sizeof(*rig));
	tmp = tmp && *tmp ? tmp : getenv("TMPDIR");
	/* The default is not /tmp, which may be in memory. */
	snprintf(rig->dir, sizeof(rig->dir), "%.40s/ft_files.XXXXXX",
		 tmp && *tmp ? tmp : "/var/tmp");
	good = mkdtemp(rig->dir) != NULL;
	for (int i = 0; i < FILES_COUNT && good; i++) {
		snprintf(rig->path[i], sizeof(rig->path[i]), "%s/%d", rig->dir,
			 i);
		fd = open(rig->path[i], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		good = fd >= 0 && !ftruncate(fd, (off_t)files_length[i]);
		close(fd);
	}
	setenv("MOONRAIL_SEGMENT_DIR", rig->dir, 1);
	strcpy(rig->meta, "P2PHANDSHAKE");
	strcpy(rig->server, "127.0.0.1");
	return ft_ok(good, "files_are_created");
}

bool files_engine(struct files_rig *rig, const char *transport)
{
	rig->mem = fx_buf_map(FILES_MEM, -1);
	rig->engine = createTransferEngine(rig->meta, rig->server, "", 0, 0);
	return ft_ok(rig->engine && fx_register(rig->engine, &rig->mem) &&
		     (!transport ||
		      installTransport(rig->engine, transport, NULL)),
		     "engine_with_%s_starts",
		     transport ? transport : "no_transport");
}

void files_close(struct files_rig *rig)
{
	ft_ok(fx_buf_guards(&rig->mem), "guard_zones_are_unchanged");
	if (rig->engine)
		destroyTransferEngine(rig->engine);
	fx_buf_unmap(&rig->mem);
	rig->engine = NULL;
}

void files_remove(struct files_rig *rig)
{
	char path[96];

	for (int i = 0; i < FILES_COUNT; i++)
		unlink(rig->path[i]);
	snprintf(path, sizeof(path), "%s/.lock", rig->dir);
	unlink(path);
	ft_ok(!rmdir(rig->dir), "no_file_is_left_behind");
}

int files_meta(const struct files_rig *rig, const char *format, ...)
{
	const char *build = getenv("BUILD");
	char args[512], line[1024];
	va_list ap;
	int ret;

	va_start(ap, format);
	vsnprintf(args, sizeof(args), format, ap);
	va_end(ap);
	snprintf(line, sizeof(line),
		 "%s/bin/te_meta --metadata_server=%s %s >/dev/null",
		 build ? build : "build", rig->meta, args);
	ret = system(line);
	return WIFEXITED(ret) ? WEXITSTATUS(ret) : -1;
}

bool files_register(struct files_rig *rig)
{
	return ft_ok(!files_meta(rig, "register %s %s %s", FILES_NAME,
				 rig->path[0], rig->path[1]) &&
		     !files_meta(rig, "mount --server=%s test %s %s",
				 rig->server, rig->path[0], rig->path[1]),
		     "file_segment_is_registered_and_mounted");
}

bool files_check(const struct files_rig *rig, uint64_t sequence)
{
	struct fx_buf got = fx_buf_map(FILES_MEM, -1);
	uint64_t at = 0;
	bool good = got.p != NULL;
	int fd;

	for (int i = 0; i < FILES_COUNT && good; i++) {
		fd = open(rig->path[i], O_RDONLY | O_CLOEXEC);
		good = pread(fd, got.p + at, files_length[i], 0) ==
		       (ssize_t)files_length[i];
		at += files_length[i];
		close(fd);
	}
	good = good && fx_buf_check(&got, 0, FILES_SIZE, sequence);
	fx_buf_unmap(&got);
	return good;
}

int files_one(struct files_rig *rig, int op, uint64_t at, void *local,
	      uint64_t len, struct te_error *err)
{
	struct transfer_request rq = {
		.opcode = op, .source = local, .target_id = rig->seg,
		.target_offset = at, .length = len,
	};
	batch_id_t id = allocateBatchID(rig->engine, 1);
	struct transfer_status st = { .status = -1 };
	int ret = submitTransfer(rig->engine, id, &rq, 1);

	if (!ret)
		te_wait_batch(rig->engine, id, FX_LONG_MS * 1000LL, &st);
	if (!ret && err)
		te_task_error(rig->engine, id, 0, err, sizeof(*err));
	freeBatchID(rig->engine, id);
	return ret ? -ret : st.status;
}
