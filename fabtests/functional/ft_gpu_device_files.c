/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Transfers between file segments and the memory of real GPUs: with cuFile
 * where it is installed, and through host memory.
 */
#include "fabtests/functional/ft_files.h"
#include "fabtests/functional/ft_gpu_device.h"

#include <stdlib.h>

#define FILES_BLOCK 700001

/* Moves all bytes of the files in requests of `block` bytes. Returns true on
 * success. */
static bool files_all(struct files_rig *files, int op, uint64_t gpu,
		      uint64_t block)
{
	uint64_t at, len;

	for (at = 0; at < FILES_SIZE; at += len) {
		len = FILES_SIZE - at < block ? FILES_SIZE - at : block;
		if (files_one(files, op, at, device_ptr(gpu + at), len, NULL) !=
		    STATUS_COMPLETED)
			return false;
	}
	return true;
}

/* Writes from GPU 0 to the files and reads them back into GPU 1. Returns true
 * if all bytes are right. */
static bool files_round(struct device_rig *rig, struct files_rig *files,
			uint64_t block, uint64_t seq)
{
	fx_buf_fill(&rig->host, 0, FILES_SIZE, seq);
	fx_buf_poison(&rig->back, 0, FILES_MEM);
	return !rig->cuda.to_device(rig->gpu[0], rig->host.p, FILES_SIZE) &&
	       !rig->cuda.to_device(rig->gpu[1], rig->back.p, FILES_MEM) &&
	       files_all(files, OPCODE_WRITE, rig->gpu[0], block) &&
	       files_check(files, seq) &&
	       files_all(files, OPCODE_READ, rig->gpu[1], block) &&
	       !rig->cuda.to_host(rig->back.p, rig->gpu[1], FILES_MEM) &&
	       fx_buf_check(&rig->back, 0, FILES_SIZE, seq) &&
	       fx_buf_poisoned(&rig->back, FILES_SIZE, FILES_MEM - FILES_SIZE);
}

static void files_way(struct device_rig *rig, struct files_rig *files,
		      const char *direct, const char *what)
{
	bool good;
	int i;

	setenv("MOONRAIL_GPU_DIRECT", direct, 1);
	good = files_engine(files, "nvmeof");
	for (i = 0; good && i < 2; i++)
		good = !registerLocalMemory(files->engine,
					    device_ptr(rig->gpu[i]),
					    FILES_MEM, "*", 0);
	files->seg = good ? openSegment(files->engine, FILES_NAME) : -1;
	ft_ok(files->seg > 0 && files_round(rig, files, FILES_SIZE, 60) &&
	      files_round(rig, files, FILES_BLOCK, 61),
	      "gpu_file_gpu_%s", what);
	if (files->seg > 0)
		closeSegment(files->engine, files->seg);
	files_close(files);
	unsetenv("MOONRAIL_GPU_DIRECT");
}

void device_files(struct device_rig *rig)
{
	struct files_rig files;

	if (!files_make(&files) || !files_register(&files))
		return;
	files_way(rig, &files, "1", "by_cufile_if_there_is_one");
	files_way(rig, &files, "0", "by_way_of_host_memory");
	ft_ok(!files_meta(&files, "remove test"), "the_segment_is_removed");
	files_remove(&files);
}
