/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Transfers between GPU memory and file segments with cuFile. Stand-ins replace
 * the CUDA driver and libcufile. The test checks which path is used, that short
 * reads and writes are continued, that errors are reported, and that the bytes
 * are right. It does not test hardware.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/common/cuda_stand_in.h"
#include "fabtests/common/cufile_stand_in.h"
#include "fabtests/functional/ft_files.h"

#define GPU_SIZE FILES_MEM

struct gf_rig {
	struct files_rig files;
	struct cuda_stand_in cuda;
	struct cufile_stand_in cufile;
	uint64_t gpu[2];
	uint64_t sequence;
};

enum gf_way { BY_CUFILE, BY_STAGING };

static void *gf_gpu(const struct gf_rig *rig, int i)
{
	return (void *)(uintptr_t)rig->gpu[i];
}

/* Submits one request for GPU i. Returns true if it ends with the status
 * `status` and used the path `way`. */
static bool gf_one(struct gf_rig *rig, int op, uint64_t at, int i, uint64_t off,
		   uint64_t len, enum gf_way way, int status)
{
	unsigned int copies = rig->cuda.copies();
	unsigned int moves = rig->cufile.moves ? rig->cufile.moves() : 0;
	int got = files_one(&rig->files, op, at, (char *)gf_gpu(rig, i) + off,
			    len, NULL);

	copies = rig->cuda.copies() - copies;
	moves = (rig->cufile.moves ? rig->cufile.moves() : 0) - moves;
	if (got == status && !moves == (way == BY_STAGING) &&
	    !copies == (way == BY_CUFILE))
		return true;
	ft_diag("status %d, %u moves by cuFile, %u copies by CUDA", got, moves,
		copies);
	return false;
}

/* Writes the memory of GPU 0 to the files and reads them back into GPU 1, in
 * requests of `block` bytes. Returns true if the bytes are right. */
static bool gf_round(struct gf_rig *rig, uint64_t block, enum gf_way way)
{
	struct fx_buf *mem = &rig->files.mem;
	uint64_t seq = ++rig->sequence, at, len;
	bool good;

	fx_buf_fill(mem, 0, FILES_SIZE, seq);
	good = !rig->cuda.to_device(rig->gpu[0], mem->p, FILES_SIZE);
	for (at = 0; good && at < FILES_SIZE; at += len) {
		len = FILES_SIZE - at < block ? FILES_SIZE - at : block;
		good = gf_one(rig, OPCODE_WRITE, at, 0, at, len, way,
			      STATUS_COMPLETED);
	}
	good = good && files_check(&rig->files, seq);
	fx_buf_poison(mem, 0, FILES_MEM);
	good = good && !rig->cuda.to_device(rig->gpu[1], mem->p, FILES_MEM);
	for (at = 0; good && at < FILES_SIZE; at += len) {
		len = FILES_SIZE - at < block ? FILES_SIZE - at : block;
		good = gf_one(rig, OPCODE_READ, at, 1, at, len, way,
			      STATUS_COMPLETED);
	}
	return good && !rig->cuda.to_host(mem->p, rig->gpu[1], FILES_MEM) &&
	       fx_buf_check(mem, 0, FILES_SIZE, seq) &&
	       fx_buf_poisoned(mem, FILES_SIZE, FILES_MEM - FILES_SIZE);
}

static bool gf_register(struct gf_rig *rig, int i, bool add)
{
	return !(add ? registerLocalMemory(rig->files.engine, gf_gpu(rig, i),
					   GPU_SIZE, "*", 0) :
		       unregisterLocalMemory(rig->files.engine,
					     gf_gpu(rig, i)));
}

static bool gf_open(struct gf_rig *rig)
{
	rig->files.seg = openSegment(rig->files.engine, FILES_NAME);
	return rig->files.seg > 0;
}

static void gf_close(struct gf_rig *rig)
{
	closeSegment(rig->files.engine, rig->files.seg);
	files_close(&rig->files);
	if (rig->cufile.left)
		ft_ok(!rig->cufile.left(),
		      "cufile_has_no_resources_after_the_engine");
}

/* Returns true if a real libcufile is installed. Loads it in a child process,
 * because a loaded library would stay in this process. */
static bool library_found(void)
{
	pid_t child = fork();
	int status = 0;

	if (!child)
		_exit(dlopen("libcufile.so.0", RTLD_NOW) ? 1 : 0);
	return child < 0 || waitpid(child, &status, 0) != child || status;
}

static void without_library(struct gf_rig *rig)
{
	if (library_found()) {
		ft_diag("skipped: a real libcufile is installed");
		return;
	}
	ft_ok(files_engine(&rig->files, "nvmeof") &&
		      gf_register(rig, 0, true) && gf_register(rig, 1, true) &&
		      gf_open(rig) && gf_round(rig, FILES_SIZE, BY_STAGING),
	      "gpu_memory_is_staged_without_libcufile");
	gf_close(rig);
}

static void driver_refused(struct gf_rig *rig)
{
	rig->cufile.fail("cuFileDriverOpen", 0, 2, 5001);
	ft_ok(files_engine(&rig->files, "nvmeof") &&
		      gf_register(rig, 0, true) && gf_register(rig, 1, true) &&
		      gf_open(rig) && gf_round(rig, FILES_SIZE, BY_STAGING),
	      "gpu_memory_is_staged_without_the_cufile_driver");
	gf_close(rig);
}

/* Registers GPU memory before the transport is installed, after that, and after
 * the segment was opened. All of it must use cuFile. */
static void in_any_order(struct gf_rig *rig)
{
	ft_ok(files_engine(&rig->files, NULL) && gf_register(rig, 0, true) &&
	      installTransport(rig->files.engine, "nvmeof", NULL) &&
	      gf_open(rig) && gf_register(rig, 1, true) &&
	      gf_round(rig, FILES_SIZE, BY_CUFILE),
	      "memory_before_the_transport");
	gf_close(rig);
	ft_ok(files_engine(&rig->files, "nvmeof") && gf_open(rig) &&
	      gf_register(rig, 0, true) && gf_register(rig, 1, true) &&
	      gf_round(rig, FILES_SIZE, BY_CUFILE),
	      "memory_behind_the_segment");
	ft_ok(gf_round(rig, 300001, BY_CUFILE) &&
		      gf_round(rig, FX_MIB, BY_CUFILE),
	      "requests_of_odd_and_even_sizes_use_cufile");
}

static void short_moves(struct gf_rig *rig)
{
	rig->cufile.shorten(100003);
	ft_ok(gf_round(rig, FILES_SIZE, BY_CUFILE),
	      "short_transfers_of_cufile_are_continued");
	rig->cufile.shorten(0);
}

static void errors(struct gf_rig *rig)
{
	struct te_error err;
	int status;

	rig->cufile.fail("cuFileRead", 1, 1, -1);
	ft_ok(gf_one(rig, OPCODE_READ, 0, 0, 0, FILES_SIZE, BY_CUFILE,
		     STATUS_FAILED), "a_read_error_fails_it");
	rig->cufile.fail("cuFileWrite", 0, 1, -5011);
	memset(&err, 0, sizeof(err));
	status = files_one(&rig->files, OPCODE_WRITE, 0, gf_gpu(rig, 0), 4096,
			   &err);
	ft_ok(status == STATUS_FAILED && err.code == -202 &&
		      strstr(err.text, "5011"),
	      "cufile_error_is_in_the_record: %s", err.text);
	ft_ok(gf_one(rig, OPCODE_READ, FILES_SIZE - 8, 0, 0, 8, BY_CUFILE,
		     STATUS_COMPLETED) &&
		      gf_round(rig, FILES_SIZE, BY_CUFILE),
	      "requests_after_an_error_complete");
	ft_ok(files_one(&rig->files, OPCODE_READ, FILES_SIZE, gf_gpu(rig, 0), 1,
			NULL) == -1,
	      "request_beyond_the_files_is_refused");
}

static void refused(struct gf_rig *rig)
{
	ft_ok(gf_register(rig, 0, false), "unregistered_it_is_given_back");
	rig->cufile.fail("cuFileBufRegister", 0, 1, 5012);
	ft_ok(gf_register(rig, 0, true) &&
	      gf_one(rig, OPCODE_WRITE, 0, 0, 0, FILES_SIZE, BY_STAGING,
		     STATUS_COMPLETED) &&
	      gf_one(rig, OPCODE_READ, 0, 1, 0, FILES_SIZE, BY_CUFILE,
		     STATUS_COMPLETED),
	      "memory_that_it_refuses_is_staged");
	ft_ok(gf_register(rig, 0, false) && gf_register(rig, 0, true) &&
	      gf_round(rig, FILES_SIZE, BY_CUFILE),
	      "registered_again_it_is_not");
	gf_close(rig);
	rig->cufile.fail("cuFileHandleRegister", 1, 1, 5018);
	ft_ok(files_engine(&rig->files, "nvmeof") &&
		      gf_register(rig, 0, true) && gf_register(rig, 1, true) &&
		      gf_open(rig) &&
		      gf_one(rig, OPCODE_WRITE, 5, 0, 0, FILES_FIRST - 5,
			     BY_CUFILE, STATUS_COMPLETED) &&
		      gf_one(rig, OPCODE_WRITE, FILES_FIRST, 0, 0, 8,
			     BY_STAGING, STATUS_COMPLETED) &&
		      gf_round(rig, FILES_SIZE, BY_STAGING),
	      "request_to_a_file_that_cufile_refuses_is_staged");
	gf_close(rig);
}

/* Uninstalls the transport while cuFile writes. All tasks must have completed
 * when the call returns. */
static void uninstalled(struct gf_rig *rig)
{
	struct fx_job job;

	if (!ft_ok(files_engine(&rig->files, "nvmeof") &&
			   gf_register(rig, 0, true) && gf_open(rig),
		   "engine_with_cufile_starts_again"))
		return;
	job = (struct fx_job){ .engine = rig->files.engine,
			       .seg = rig->files.seg, .op = OPCODE_WRITE,
			       .local = gf_gpu(rig, 0), .len = FILES_SIZE,
			       .block = 65536 };
	rig->cufile.shorten(1000);
	ft_ok(!fx_job_start(&job) &&
	      !uninstallTransport(rig->files.engine, "nvmeof") &&
	      fx_job_poll(&job) && job.n[STATUS_COMPLETED] == job.tasks,
	      "uninstalled_it_is_drained: %s", fx_job_text(&job));
	fx_job_free(&job);
	ft_ok(installTransport(rig->files.engine, "nvmeof", NULL) != NULL &&
		      !fx_job_start(&job) && gf_register(rig, 0, false) &&
		      fx_job_wait(&job, FX_LONG_MS) &&
		      job.n[STATUS_COMPLETED] == job.tasks,
	      "unregister_during_file_transfer_waits_for_its_end: %s",
	      fx_job_text(&job));
	fx_job_free(&job);
	rig->cufile.shorten(0);
	gf_close(rig);
}

static void unwanted(struct gf_rig *rig)
{
	setenv("MOONRAIL_GPU_DIRECT", "0", 1);
	ft_ok(files_engine(&rig->files, "nvmeof") &&
		      gf_register(rig, 0, true) && gf_register(rig, 1, true) &&
		      gf_open(rig) && gf_round(rig, FILES_SIZE, BY_STAGING),
	      "gpu_memory_is_staged_with_gpu_direct_off");
	unsetenv("MOONRAIL_GPU_DIRECT");
	gf_close(rig);
}

int main(int argc, char **argv)
{
	struct gf_rig rig;
	void *context;
	int i;

	fx_init(argc, argv);
	memset(&rig, 0, sizeof(rig));
	if (!files_make(&rig.files) || !files_register(&rig.files) ||
	    !ft_ok(cuda_stand_in_load(&rig.cuda),
		   "cuda_driver_stand_in_is_loaded"))
		return ft_result();
	for (i = 0; i < 2; i++)
		rig.gpu[i] = cuda_stand_in_memory(&rig.cuda, i, GPU_SIZE,
						  &context);
	without_library(&rig);
	if (!ft_ok(cufile_stand_in_load(&rig.cufile),
		   "libcufile_stand_in_is_loaded"))
		return ft_result();
	driver_refused(&rig);
	in_any_order(&rig);
	short_moves(&rig);
	errors(&rig);
	refused(&rig);
	uninstalled(&rig);
	unwanted(&rig);
	ft_ok(!rig.cuda.left(), "driver_has_no_resources_after_the_engine");
	ft_ok(!files_meta(&rig.files, "remove test"), "the_segment_is_removed");
	files_remove(&rig.files);
	return ft_result();
}
