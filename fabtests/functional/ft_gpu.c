/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Transfers GPU memory through the API with the CUDA stand-in. Its GPU memory
 * is not mapped for the CPU, so any CPU access to it crashes the test.
 */
#include <stdio.h>
#include <string.h>

#include "fabtests/common/cuda_stand_in.h"
#include "fabtests/functional/fx.h"

/* length for which the engine makes two driver copies */
#define GPU_SIZE (9 * FX_MIB + 17)

struct gpu_rig {
	struct cuda_stand_in cuda;
	transfer_engine_t engine;
	struct fx_buf mem;
	uint64_t gpu[2];
	void *context[2];
	uint64_t sequence;
};

static bool gpu_said(const char *text)
{
	struct te_error err;

	if (!te_last_error(&err, sizeof(err)) && strstr(err.text, text))
		return true;
	ft_diag("last error: %s", err.text);
	return false;
}

static void *gpu_ptr(const struct gpu_rig *rig, int i)
{
	return (void *)(uintptr_t)rig->gpu[i];
}

static bool gpu_move(struct gpu_rig *rig, int op, void *local, uint64_t remote,
		     uint64_t len)
{
	return fx_move(rig->engine, LOCAL_SEGMENT, op, local, remote, len, 0);
}

/* --- a program without GPU memory ---------------------------------------- */

static void host_run(struct gpu_rig *rig)
{
	transfer_engine_t e = rig->engine;
	unsigned char *p = rig->mem.p;

	ft_ok(!registerLocalMemory(e, p, GPU_SIZE, "*", 1) &&
	      !registerLocalMemory(e, p + GPU_SIZE, GPU_SIZE, "cpu:0", 1),
	      "host_memory_is_registered_without_a_driver");
	ft_ok(gpu_move(rig, OPCODE_WRITE, p, rig->mem.addr + GPU_SIZE, 100),
	      "host_memory_is_copied_without_a_driver");
	ft_ok(registerLocalMemory(e, p + 2 * GPU_SIZE, 64, "cuda:0", 1) == -6 &&
	      gpu_said("libcuda.so.1"), "cuda_without_a_driver_is_6");
	ft_ok(!cuda_stand_in_mapped(), "host_run_loads_no_driver");
}

/* --- registration -------------------------------------------------------- */

static void registration(struct gpu_rig *rig)
{
	transfer_engine_t e = rig->engine;
	unsigned char *free_host = rig->mem.p + 2 * GPU_SIZE;

	/* The library loads the driver here: no GPU memory has been registered
	 * before. */
	ft_ok(registerLocalMemory(e, gpu_ptr(rig, 0), GPU_SIZE, "cpu:0", 0) ==
		      -1 && gpu_said("is memory of cuda:0, not of the host"),
	      "gpu_memory_as_the_hosts_is_refused");
	ft_ok(registerLocalMemory(e, gpu_ptr(rig, 0), GPU_SIZE, "cuda:1", 0) ==
		      -1 && gpu_said("is memory of cuda:0, not cuda:1"),
	      "another_gpu_is_refused");
	ft_ok(registerLocalMemory(e, free_host, 64, "cuda:0", 0) == -1 &&
	      gpu_said("is host memory, not cuda:0"),
	      "host_memory_as_a_gpus_is_refused");
	ft_ok(registerLocalMemory(e, gpu_ptr(rig, 0), UINT64_C(1) << 40, "*",
				  0) == -1 &&
		      gpu_said("different kinds"),
	      "range_beyond_the_gpu_allocation_is_refused");
	rig->cuda.fail("cuStreamCreate", 0, 2);
	ft_ok(registerLocalMemory(e, gpu_ptr(rig, 0), GPU_SIZE, "*", 0) ==
		      -302 &&
	      gpu_said("cuStreamCreate: CUDA_ERROR_OUT_OF_MEMORY (2)"),
	      "error_of_the_driver_is_told_in_its_words");
	ft_ok(!registerLocalMemory(e, gpu_ptr(rig, 0), GPU_SIZE, "*", 0) &&
	      !registerLocalMemory(e, gpu_ptr(rig, 1), GPU_SIZE, "cuda:1", 1),
	      "gpu_memory_is_registered_by_name_and_found_out");
	ft_ok(registerLocalMemory(e, (char *)gpu_ptr(rig, 0) + 5, 10, "*", 0) ==
		      -7, "overlap_is_refused");
	ft_ok(registerLocalMemory(e, free_host, 64, "*", 0) == 0 &&
	      !unregisterLocalMemory(e, free_host),
	      "host_memory_is_registered_beside_it");
}

/* --- copies -------------------------------------------------------------- */

static bool gpu_round(struct gpu_rig *rig, uint64_t off, uint64_t len)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	fx_buf_poison(&rig->mem, GPU_SIZE, GPU_SIZE);
	return gpu_move(rig, OPCODE_WRITE, rig->mem.p, rig->gpu[0] + off,
			len) &&
	       gpu_move(rig, OPCODE_READ, gpu_ptr(rig, 1), rig->gpu[0] + off,
			len) &&
	       gpu_move(rig, OPCODE_WRITE, gpu_ptr(rig, 1),
			rig->mem.addr + GPU_SIZE, len) &&
	       fx_buf_check(&rig->mem, GPU_SIZE, len, seq) &&
	       fx_buf_poisoned(&rig->mem, GPU_SIZE + len, GPU_SIZE - len);
}

static void copies(struct gpu_rig *rig)
{
	ft_ok(gpu_round(rig, 0, GPU_SIZE), "host_gpu_gpu_host_large");
	ft_ok(gpu_round(rig, GPU_SIZE - 1, 1) && gpu_round(rig, 4095, 4099),
	      "host_gpu_gpu_host_small");
	ft_ok(fx_move(rig->engine, LOCAL_SEGMENT, OPCODE_WRITE, rig->mem.p,
		      rig->gpu[0], 4 * FX_MIB, 4096),
	      "batch_of_a_thousand");
}

static void completed_is_true(struct gpu_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = LOCAL_SEGMENT,
			      .op = OPCODE_READ, .local = rig->mem.p,
			      .remote = rig->gpu[0], .len = 4096 };
	struct timespec nap = { .tv_nsec = 1000000 };
	bool out_of_order = false;
	int i;

	rig->cuda.hold(1);
	if (!ft_ok(!fx_job_start(&job), "copy_starts"))
		return;
	for (i = 0; i < 20; i++) {
		out_of_order |= fx_job_poll(&job);
		nanosleep(&nap, NULL);
	}
	rig->cuda.hold(0);
	ft_ok(!out_of_order, "law1_copy_is_not_completed_before_its_event");
	ft_ok(fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_COMPLETED] == 1,
	      "copy_completes_after_its_event");
	fx_job_free(&job);
}

static void failures(struct gpu_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = LOCAL_SEGMENT,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->gpu[0], .len = GPU_SIZE };
	struct te_error err = { 0 };

	rig->cuda.fail("cuMemcpyAsync", 1, 1);
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
	      job.n[STATUS_FAILED] == 1 &&
	      !te_task_error(rig->engine, job.id, 0, &err, sizeof(err)) &&
	      strstr(err.text, "cuMemcpyAsync: CUDA_ERROR_INVALID_VALUE (1)") &&
	      !strcmp(err.provider, "cuda"),
	      "failed_copy_tells_the_drivers_words");
	fx_job_free(&job);
	ft_ok(gpu_round(rig, 3, 100), "copy_after_a_failed_copy_completes");
}

static int gpu_submit(struct gpu_rig *rig, int op, void *local, uint64_t remote,
		      uint64_t len)
{
	struct fx_job job = { .engine = rig->engine, .seg = LOCAL_SEGMENT,
			      .op = op, .local = local, .remote = remote,
			      .len = len };
	int ret = fx_job_start(&job), status;

	if (ret)
		return ret;
	fx_job_wait(&job, FX_LONG_MS);
	status = fx_task_status(&job, 0);
	fx_job_free(&job);
	return -status;
}

static void bad_requests(struct gpu_rig *rig)
{
	struct te_local local[2] = { { gpu_ptr(rig, 0), 64 },
				     { rig->mem.p, 64 } };
	struct te_remote remote = { rig->mem.addr + GPU_SIZE, 128 };
	struct te_remote number = { rig->gpu[0], 8 };
	struct te_request req = { .opcode = TE_WRITE, .local = local,
				  .local_count = 2, .remote = &remote,
				  .remote_count = 1,
				  .target_id = LOCAL_SEGMENT };

	ft_ok(gpu_submit(rig, OPCODE_WRITE, gpu_ptr(rig, 0),
			 rig->gpu[0] + 100, 101) == 1,
	      "overlapping_ends_are_refused");
	ft_ok(gpu_submit(rig, OPCODE_WRITE, gpu_ptr(rig, 0),
			 rig->mem.addr + 2 * GPU_SIZE, 64) == -STATUS_FAILED &&
	      gpu_submit(rig, OPCODE_WRITE, rig->mem.p + 2 * GPU_SIZE,
			 rig->gpu[0], 64) == 3,
	      "unregistered_ends_are_refused");
	ft_ok(fx_submit(rig->engine, &req, NULL) == -3,
	      "pieces_of_gpu_memory_are_refused");
	req.opcode = TE_ATOMIC_ADD;
	req.local_count = 0;
	req.remote = &number;
	req.operand = 1;
	ft_ok(fx_submit(rig->engine, &req, NULL) == STATUS_FAILED,
	      "atomic_on_gpu_memory_fails");
}

/* --- other processes ----------------------------------------------------- */

/* Starts another engine in this process. It accesses the GPU memory over rails,
 * as the engine of another process would. */
static void from_outside(struct gpu_rig *rig)
{
	transfer_engine_t other = fx_engine("tcp");
	struct fx_buf buf = fx_buf_map(4096, -1);
	struct fx_job job = { .engine = other, .op = OPCODE_WRITE,
			      .local = buf.p, .remote = rig->gpu[0],
			      .len = 4096 };
	struct te_error err = { 0 };
	char name[128];

	if (ft_ok(other && fx_register(other, &buf) &&
		  fx_engine_name(rig->engine, name, sizeof(name)) &&
		  (job.seg = openSegment(other, name)) > 0,
		  "another_engine_starts")) {
		ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
			      job.n[STATUS_FAILED] == 1,
		      "write_of_a_peer_to_private_gpu_memory_fails");
		ft_ok(!te_task_error(other, job.id, 0, &err, sizeof(err)) &&
			      strstr(err.hint, "GPU"),
		      "error_of_the_peers_write_has_a_hint");
		fx_job_free(&job);
		fx_buf_fill(&buf, 0, 4096, ++rig->sequence);
		ft_ok(fx_move(other, job.seg, OPCODE_WRITE, buf.p, rig->gpu[1],
			      4096, 0) &&
			      !rig->cuda.to_host(rig->mem.p, rig->gpu[1],
						 4096) &&
			      fx_buf_check(&rig->mem, 0, 4096, rig->sequence),
		      "remotely_accessible_gpu_memory_is_written");
	}
	destroyTransferEngine(other);
	fx_buf_unmap(&buf);
}

/* Allocates two blocks with te_alloc. The test frees one of them; the engine
 * must free the other one when it is destroyed. */
static void allocated(struct gpu_rig *rig)
{
	transfer_engine_t e = rig->engine;
	struct te_memory m = { 0 }, more;
	void *addr;

	ft_ok(te_alloc(e, 4096, "cuda:7", 0, &m, sizeof(m)) == -6,
	      "te_alloc_for_an_absent_gpu_is_6");
	ft_ok(te_alloc(e, 4096, "cuda:0", TE_ALLOC_HUGE_PAGES, &m,
		       sizeof(m)) == -1, "huge_pages_of_a_gpu_are_refused");
	rig->cuda.fail("cuMemAlloc", 0, 2);
	ft_ok(te_alloc(e, 4096, "cuda:0", 0, &m, sizeof(m)) == -302 &&
	      gpu_said("CUDA_ERROR_OUT_OF_MEMORY (2)"), "full_gpu_is_302");
	ft_ok(!te_alloc(e, FX_MIB, "cuda:1", TE_ALLOC_PRIVATE, &m, sizeof(m)) &&
	      m.size == FX_MIB && !strcmp(m.location, "cuda:1") &&
	      m.numa_node == -1, "memory_of_a_gpu_is_allocated");
	fx_buf_poison(&rig->mem, 0, FX_MIB);
	addr = (void *)(uintptr_t)m.addr;
	ft_ok(gpu_move(rig, OPCODE_READ, rig->mem.p, m.addr, FX_MIB) &&
		      !rig->mem.p[0] && !rig->mem.p[FX_MIB - 1],
	      "allocated_gpu_memory_is_zero");
	ft_ok(!te_free(e, addr) && te_free(e, addr) == -3 &&
		      registerLocalMemory(e, addr, 64, "cuda:1", 0) == -1,
	      "freed_gpu_memory_is_unknown");
	ft_ok(!te_alloc(e, 1, "cuda:0", 0, &more, sizeof(more)),
	      "block_for_the_engine_to_free_is_allocated");
}

static void leaving(struct gpu_rig *rig)
{
	void *both[2] = { gpu_ptr(rig, 0), rig->mem.p };

	ft_ok(!unregisterLocalMemoryBatch(rig->engine, both, 2),
	      "both_kinds_are_unregistered_together");
	ft_ok(gpu_submit(rig, OPCODE_WRITE, gpu_ptr(rig, 1), rig->gpu[0], 64) ==
			      -STATUS_FAILED &&
		      gpu_submit(rig, OPCODE_WRITE, gpu_ptr(rig, 0),
				 rig->gpu[1], 64) != 0,
	      "copy_between_unregistered_buffers_is_refused");
	destroyTransferEngine(rig->engine);
	ft_ok(!rig->cuda.left(), "driver_has_no_resources_after_the_engine");
	ft_ok(fx_buf_guards(&rig->mem), "guard_zones_are_unchanged");
	fx_buf_unmap(&rig->mem);
}

int main(int argc, char **argv)
{
	struct gpu_rig rig = { .engine = NULL };
	int i;

	fx_init(argc, argv);
	rig.engine = fx_engine("tcp");
	rig.mem = fx_buf_map(2 * GPU_SIZE + 4096, -1);
	if (!ft_ok(rig.engine && rig.mem.p, "an_engine_starts"))
		return ft_result();
	host_run(&rig);
	if (!ft_ok(cuda_stand_in_load(&rig.cuda), "a_driver_is_loaded"))
		return ft_result();
	for (i = 0; i < 2; i++)
		rig.gpu[i] = cuda_stand_in_memory(&rig.cuda, i, GPU_SIZE,
						  &rig.context[i]);
	registration(&rig);
	copies(&rig);
	completed_is_true(&rig);
	failures(&rig);
	bad_requests(&rig);
	from_outside(&rig);
	allocated(&rig);
	leaving(&rig);
	return ft_result();
}
