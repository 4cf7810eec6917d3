/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * GPU memory that the rails access directly. The test needs neither a GPU nor a
 * NIC that can access one: cuda_stand_in.h and nic_stand_in.h replace them,
 * over tcp. The test checks which path is chosen, which requests are refused,
 * and the transferred bytes. It does not test hardware.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unistd.h>

#include "fabtests/common/nic_stand_in.h"
#include "fabtests/functional/fx_gpu.h"

#define DIRECT_SIZE	(9 * FX_MIB + 17)
#define DIRECT_RACES	10

/* the CUDA stand-in of this process (the test or a peer) */
static struct cuda_stand_in cuda;

struct direct_rig {
	transfer_engine_t engine;
	struct fx_buf mem;			/* host memory, 2 * DIRECT_SIZE
						 * bytes */
	/* GPU memory of this process, one buffer on each of two GPUs */
	uint64_t gpu[2];
	struct fx_peer peer;
	uint64_t there;				/* address of the peer's GPU
						 * memory */
	segment_id_t seg;
	uint64_t sequence;
};

/* Returns the number of open descriptors of the stand-in's GPU memory.
 * Descriptors of connections do not count, because their number changes. */
static int direct_fds(void)
{
	char path[64], is[64];
	int fd, n = 0;
	ssize_t len;

	for (fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, is, sizeof(is) - 1);
		is[len > 0 ? len : 0] = '\0';
		n += !strncmp(is, "/memfd:gpu", strlen("/memfd:gpu"));
	}
	return n;
}

/* --- the peer ------------------------------------------------------------ */

static bool child_make(struct fx_gpu *gpu, size_t len)
{
	void *context;

	gpu->to_device = cuda.to_device;
	gpu->to_host = cuda.to_host;
	gpu->addr = cuda_stand_in_memory(&cuda, 0, len, &context);
	return gpu->addr != 0;
}

static int child_obey(transfer_engine_t engine, struct fx_buf *mem,
		      const char *verb, const char *args, char *text)
{
	static struct fx_gpu gpu;

	if (!strcmp(verb, "copies"))
		return (int)cuda.copies();
	if (!strcmp(verb, "stale"))
		return (int)nic_stand_in.stale;
	if (!strcmp(verb, "fds"))
		return direct_fds();
	if (!strcmp(verb, "left"))
		return (int)cuda.left();
	if (!strcmp(verb, "ready"))
		return cuda.alias(gpu.addr, 1) != NULL;
	if (!strcmp(verb, "fail")) {
		cuda.fail(args, 0, 2);
		return 0;
	}
	if (!strcmp(verb, "refuse")) {
		nic_stand_in.no_dmabuf = strchr(args, 'd');
		nic_stand_in.no_peer = strchr(args, 'p');
		return 0;
	}
	if (!strcmp(verb, "by")) {
		snprintf(text, 64, "%u %u %u", nic_stand_in.dmabufs,
			 nic_stand_in.peers, nic_stand_in.refused);
		return 0;
	}
	return fx_gpu_obey(&gpu, child_make, engine, mem, verb, args, text);
}

/* Registers the peer's GPU memory again. Its NIC now refuses registrations by
 * dma-buf if `refuse` contains "d", and by address if it contains "p". */
static bool direct_again(struct direct_rig *rig, const char *refuse)
{
	return !fx_ask(&rig->peer, "ungpu") &&
	       !fx_ask(&rig->peer, "refuse %s", refuse) &&
	       !fx_ask(&rig->peer, "regpu") && !syncSegmentCache(rig->engine);
}

/* --- bytes --------------------------------------------------------------- */

enum direct_way {
	BY_RAIL,			/* no driver copies: the NICs access the
					 * memory */
	BY_COPY_HERE,
	BY_COPY_THERE,
	BY_COPIES,			/* the drivers of both processes copy */
};

static void *direct_gpu(const struct direct_rig *rig, int i)
{
	return (void *)(uintptr_t)rig->gpu[i];
}

/* Returns true if the transfer completes, and if the drivers that `way` names,
 * and no others, have made copies. */
static bool direct_move(struct direct_rig *rig, int op, void *local,
			uint64_t off, uint64_t len, uint64_t block,
			enum direct_way way)
{
	unsigned int here = cuda.copies();
	int there = fx_ask(&rig->peer, "copies");
	bool good = fx_move(rig->engine, rig->seg, op, local,
			    rig->there + off, len, block);

	here = cuda.copies() - here;
	there = fx_ask(&rig->peer, "copies") - there;
	if ((here != 0) == (way == BY_COPY_HERE || way == BY_COPIES) &&
	    (there != 0) == (way == BY_COPY_THERE || way == BY_COPIES))
		return good;
	ft_diag("GPU copies: %u in this process, %d in the peer", here, there);
	return false;
}

/* Writes host memory to the peer's GPU memory and reads it back. Returns true
 * if the bytes are right and the path was `way`. */
static bool direct_round(struct direct_rig *rig, uint64_t off, uint64_t len,
			 uint64_t block, enum direct_way way)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	fx_buf_poison(&rig->mem, DIRECT_SIZE, DIRECT_SIZE);
	return fx_gpu_put(&rig->peer, 0, DIRECT_SIZE, 0) &&
	       direct_move(rig, OPCODE_WRITE, rig->mem.p, off, len, block,
			   way) &&
	       fx_gpu_has(&rig->peer, off, len, seq) &&
	       fx_gpu_has(&rig->peer, 0, off, 0) &&
	       fx_gpu_has(&rig->peer, off + len, DIRECT_SIZE - off - len, 0) &&
	       direct_move(rig, OPCODE_READ, rig->mem.p + DIRECT_SIZE, off,
			   len, block, way) &&
	       fx_buf_check(&rig->mem, DIRECT_SIZE, len, seq) &&
	       fx_buf_poisoned(&rig->mem, DIRECT_SIZE + len,
			       DIRECT_SIZE - len);
}

/* Writes the memory of the local GPU 0 to the peer's GPU memory and reads it
 * back into the local GPU 1. Returns true if the bytes are right and the path
 * was `way`. */
static bool direct_gpus(struct direct_rig *rig, uint64_t off, uint64_t len,
			uint64_t block, enum direct_way way)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	fx_buf_poison(&rig->mem, DIRECT_SIZE, DIRECT_SIZE);
	return !cuda.to_device(rig->gpu[0], rig->mem.p, len) &&
	       !cuda.to_device(rig->gpu[1], rig->mem.p + DIRECT_SIZE,
			       DIRECT_SIZE) &&
	       fx_gpu_put(&rig->peer, 0, DIRECT_SIZE, 0) &&
	       direct_move(rig, OPCODE_WRITE, direct_gpu(rig, 0), off, len,
			   block, way) &&
	       fx_gpu_has(&rig->peer, off, len, seq) &&
	       fx_gpu_has(&rig->peer, off + len, DIRECT_SIZE - off - len, 0) &&
	       direct_move(rig, OPCODE_READ, direct_gpu(rig, 1), off, len,
			   block, way) &&
	       !cuda.to_host(rig->mem.p + DIRECT_SIZE, rig->gpu[1],
			     DIRECT_SIZE) &&
	       fx_buf_check(&rig->mem, DIRECT_SIZE, len, seq) &&
	       fx_buf_poisoned(&rig->mem, DIRECT_SIZE + len,
			       DIRECT_SIZE - len);
}

static bool direct_own(struct direct_rig *rig, bool add)
{
	bool good = true;
	int i;

	for (i = 0; i < 2; i++)
		good &= !(add ? registerLocalMemory(rig->engine,
						    direct_gpu(rig, i),
						    DIRECT_SIZE, "*", 0) :
				unregisterLocalMemory(rig->engine,
						      direct_gpu(rig, i)));
	return good;
}

static void bytes(struct direct_rig *rig)
{
	ft_ok(direct_round(rig, 0, DIRECT_SIZE, 0, BY_RAIL) &&
	      direct_round(rig, 4095, 1, 0, BY_RAIL) &&
	      direct_round(rig, 3, 2 * FX_MIB + 1, 0, BY_RAIL),
	      "host_to_anothers_gpu_and_back_by_rail");
	ft_ok(direct_round(rig, 0, 2 * FX_MIB, 8192, BY_RAIL) &&
		      direct_round(rig, 1, 8 * FX_MIB, 700000, BY_RAIL),
	      "small_requests_to_anothers_gpu_go_by_rail");
	ft_ok(direct_own(rig, true), "gpu_memory_of_our_own");
	ft_ok(direct_gpus(rig, 0, DIRECT_SIZE, 0, BY_RAIL) &&
	      direct_gpus(rig, 5, 3 * FX_MIB + 1, 65536, BY_RAIL),
	      "gpu_to_gpu_by_rail");
	ft_ok(nic_stand_in.posts > 0, "nic_accesses_gpu_memory_itself");
}

/* --- which path is used -------------------------------------------------- */

/* Returns true if the peer has made `times` registrations of GPU memory since
 * its start, all by dma-buf or all by address. */
static bool direct_by(struct direct_rig *rig, bool dmabuf, unsigned int times)
{
	unsigned int d = 0, p = 0, r = 0;

	if (fx_ask(&rig->peer, "by") ||
	    sscanf(rig->peer.text, "%u %u %u", &d, &p, &r) != 3)
		return false;
	if (d == (dmabuf ? times : 0) && p == (dmabuf ? 0 : times))
		return true;
	ft_diag("registrations: %u by dma-buf, %u by peer memory, %u refused",
		d, p, r);
	return false;
}

static void ways(struct direct_rig *rig)
{
	unsigned int d = 0, p = 0, d2 = 0, p2 = 0, r = 0, r2 = 0;
	int here = direct_fds(), there = fx_ask(&rig->peer, "fds");

	/* The peer has made one registration on each of its two rails. */
	ft_ok(direct_by(rig, nic_stand_in_has_dmabuf(), 2),
	      nic_stand_in_has_dmabuf()
		      ? "gpu_memory_is_registered_by_dma_buf"
		      : "gpu_memory_is_registered_as_peer_memory");
	ft_ok(!fx_ask(&rig->peer, "by") &&
	      sscanf(rig->peer.text, "%u %u %u", &d, &p, &r) == 3 &&
	      direct_again(rig, "d") && !fx_ask(&rig->peer, "by") &&
	      sscanf(rig->peer.text, "%u %u %u", &d2, &p2, &r2) == 3 &&
	      d2 == d && p2 == p + 2 &&
	      direct_round(rig, 0, DIRECT_SIZE, 0, BY_RAIL),
	      "a_nic_that_refuses_dma_bufs_has_peer_memory");
	ft_ok(direct_again(rig, "dp") &&
		      direct_round(rig, 0, DIRECT_SIZE, 0, BY_COPY_THERE) &&
		      direct_round(rig, 1, 8 * FX_MIB, 700000, BY_COPY_THERE),
	      "nic_that_refuses_gpu_memory_uses_bounce_slots");
	ft_ok(direct_gpus(rig, 0, DIRECT_SIZE, 0, BY_COPIES),
	      "local_gpu_memory_is_staged_for_such_a_target");
	nic_stand_in.no_dmabuf = nic_stand_in.no_peer = true;
	ft_ok(direct_own(rig, false) && direct_own(rig, true) &&
		      direct_gpus(rig, 0, DIRECT_SIZE, 0, BY_COPIES),
	      "gpu_memory_of_two_refusing_nics_is_staged");
	ft_ok(direct_again(rig, "-") &&
		      direct_gpus(rig, 7, DIRECT_SIZE - 7, 0, BY_COPY_HERE),
	      "initiator_with_refusing_nic_stages_alone");
	nic_stand_in.no_dmabuf = nic_stand_in.no_peer = false;
	ft_ok(direct_own(rig, false) && direct_own(rig, true) &&
		      direct_gpus(rig, 0, DIRECT_SIZE, 0, BY_RAIL),
	      "nic_that_takes_gpu_memory_again_is_used");
	/* A rail may access the memory only if the driver orders its
	 * synchronous calls with accesses of NICs. */
	ft_ok(!fx_ask(&rig->peer, "ungpu") &&
	      !fx_ask(&rig->peer, "fail cuPointerSetAttribute") &&
	      !fx_ask(&rig->peer, "regpu") && !syncSegmentCache(rig->engine) &&
	      direct_round(rig, 0, DIRECT_SIZE, 0, BY_COPY_THERE),
	      "a_driver_that_does_not_order_its_calls_keeps_nics_away");
	ft_ok(direct_again(rig, "-") &&
		      direct_round(rig, 0, DIRECT_SIZE, 0, BY_RAIL),
	      "target_whose_driver_orders_its_calls_is_direct");
	ft_diag("open files of this process and of the peer: %d and %d, then "
		"%d and %d",
		here, there, direct_fds(), fx_ask(&rig->peer, "fds"));
	ft_ok(there >= 0 && direct_fds() == here &&
		      fx_ask(&rig->peer, "fds") == there,
	      "registrations_leave_no_descriptor_open");
}

/* Checks that requests are refused if the CPU would have to access the memory:
 * atomics and scatter/gather. */
static void by_cpu(struct direct_rig *rig)
{
	struct te_local local[2] = { { rig->mem.p, 8 }, { rig->mem.p + 8, 8 } };
	struct te_remote remote[2] = { { rig->there, 8 },
				       { rig->there + 64, 8 } };
	struct te_request req = {
		.opcode = TE_ATOMIC_ADD, .target_id = rig->seg,
		.remote = remote, .remote_count = 1, .operand = 1,
	};

	ft_ok(fx_submit(rig->engine, &req, NULL) == -8,
	      "atomic_on_remote_gpu_memory_is_refused");
	req = (struct te_request){ .opcode = TE_WRITE, .target_id = rig->seg,
				   .local = local, .local_count = 2,
				   .remote = remote, .remote_count = 2 };
	ft_ok(fx_submit(rig->engine, &req, NULL) == -8,
	      "list_of_pieces_to_remote_gpu_memory_is_refused");
	local[0].addr = direct_gpu(rig, 0);
	remote[0].addr = rig->peer.mem.addr;
	remote[1].addr = rig->peer.mem.addr + 64;
	ft_ok(!fx_ask(&rig->peer, "reg 0 4096 1") &&
		      fx_submit(rig->engine, &req, NULL) == -3 &&
		      !fx_ask(&rig->peer, "unreg 0"),
	      "list_of_pieces_from_local_gpu_memory_is_refused");
}

/* Adds a rail whose NIC cannot register GPU memory to an engine with GPU
 * memory, and removes it again. */
static void late_rail(struct direct_rig *rig)
{
	nic_stand_in.without = "shm";
	ft_ok(installTransport(rig->engine, "shm", NULL) &&
		      direct_gpus(rig, 0, DIRECT_SIZE, 0, BY_COPY_HERE),
	      "gpu_memory_is_staged_if_one_rail_refuses_it");
	ft_ok(!uninstallTransport(rig->engine, "shm") &&
		      direct_gpus(rig, 0, DIRECT_SIZE, 0, BY_RAIL),
	      "gpu_memory_is_direct_after_that_rail_is_gone");
	nic_stand_in.without = NULL;
}

/* --- unregistering ------------------------------------------------------- */

static void unregistered_there(struct direct_rig *rig)
{
	unsigned int i, completed = 0, failed = 0, sure = 0;
	bool good = true;

	for (i = 0; i < DIRECT_RACES && good; i++) {
		struct fx_job job = {
			.engine = rig->engine, .seg = rig->seg,
			.op = i & 1 ? OPCODE_READ : OPCODE_WRITE,
			.local = rig->mem.p, .remote = rig->there,
			.len = DIRECT_SIZE, .block = i % 3 ? 0 : FX_MIB / 2,
		};

		fx_buf_fill(&rig->mem, 0, DIRECT_SIZE, ++rig->sequence);
		good = fx_gpu_withdraw(&rig->peer, &job, i & 2, &completed,
				       i & 2 ? &sure : &failed) &&
		       !fx_ask(&rig->peer, "regpu") &&
		       !syncSegmentCache(rig->engine);
	}
	ft_diag("jobs: %u completed; failed: %u at random times, %u while "
		"queued",
		completed, failed, sure);
	ft_ok(sure, "some_writes_were_in_flight_at_unregistration");
	ft_ok(good, "unregistered_gpu_memory_gets_no_byte");
	ft_ok(direct_round(rig, 0, DIRECT_SIZE, 0, BY_RAIL),
	      "registered_again_it_works");
}

/* Unregisters local GPU memory while a write from it waits for a stopped
 * target. */
static void unregistered_here(struct direct_rig *rig)
{
	struct fx_job job = {
		.engine = rig->engine, .seg = rig->seg, .op = OPCODE_WRITE,
		.local = direct_gpu(rig, 0), .remote = rig->there,
		.len = DIRECT_SIZE,
	};

	fx_buf_fill(&rig->mem, 0, DIRECT_SIZE, ++rig->sequence);
	cuda.to_device(rig->gpu[0], rig->mem.p, DIRECT_SIZE);
	fx_gpu_leave(&rig->peer, &job, NULL, rig->sequence);
	ft_ok(!registerLocalMemory(rig->engine, direct_gpu(rig, 0), DIRECT_SIZE,
				   "*", 0) &&
		      direct_gpus(rig, 0, DIRECT_SIZE, 0, BY_RAIL),
	      "unregistered_local_gpu_memory_is_registered_again");
}

/* --- other targets ------------------------------------------------------- */

/* Starts a second target with one option of fx_peer_start. Checks that
 * transfers to it use the path `way` and that it releases all resources. */
static void other_target(struct direct_rig *rig, const char *option,
			 enum direct_way way, const char *name)
{
	struct direct_rig other = *rig;

	other.there = fx_gpu_target(&other.peer, DIRECT_SIZE, option);
	other.seg = other.there ? openSegment(rig->engine, other.peer.name) :
				  -1;
	ft_ok(other.seg > 0 &&
	      direct_round(&other, 0, DIRECT_SIZE, 0, way) &&
	      direct_round(&other, 1, 8 * FX_MIB, 700000, way), "%s", name);
	ft_ok(!fx_ask(&other.peer, "ready"),
	      "driver_of_such_a_target_is_not_prepared_for_nics");
	ft_ok(!fx_ask(&other.peer, "destroy") && !fx_ask(&other.peer, "left"),
	      "such_a_target_leaves_nothing_in_its_driver");
	closeSegment(rig->engine, other.seg);
	fx_peer_stop(&other.peer);
	rig->sequence = other.sequence;
}

/* Starts a process without GPU memory. Checks its log: each of its two rails
 * must be opened again without FI_HMEM, with one line for each. */
static void told_at_once(const char *option)
{
	struct fx_peer peer;
	char log[32], *text;
	int fd = fx_log(log, sizeof(log));

	if (!ft_ok(fx_peer_start(&peer, FX_MIB, option, log, NULL),
		   "a_process_with_%s", option))
		return;
	text = fx_heard(fd);
	if (!ft_ok(text && fx_lines(text, "moonrail", "") == 2 &&
			   fx_lines(text, " warn rail: 127.0.0.",
				    ": opened without FI_HMEM") == 2,
		   "log_names_each_rail_without_gpu_memory"))
		ft_diag("%s", text);
	free(text);
	close(fd);
	fx_peer_stop(&peer);
}

/* Tests an engine that knows the target only from blobs. A blob contains no
 * keys, but whether the rails can access the memory. */
static void by_blob(struct direct_rig *rig)
{
	struct direct_rig other = *rig;

	other.engine = fx_engine("tcp");
	ft_ok(other.engine && fx_register(other.engine, &other.mem) &&
	      direct_own(&other, true) &&
	      (other.seg = fx_gpu_import(other.engine, &rig->peer)) > 0,
	      "a_target_known_by_its_blob");
	ft_ok(direct_round(&other, 0, DIRECT_SIZE, 0, BY_RAIL) &&
		      direct_gpus(&other, 5, 3 * FX_MIB + 1, 65536, BY_RAIL),
	      "gpu_of_an_imported_target_is_reached_by_rail");
	ft_ok(direct_again(rig, "dp") &&
	      fx_gpu_import(other.engine, &rig->peer) == other.seg &&
	      direct_round(&other, 0, DIRECT_SIZE, 0, BY_COPY_THERE) &&
	      direct_gpus(&other, 5, 3 * FX_MIB + 1, 65536, BY_COPIES),
	      "a_later_blob_says_that_it_is_lent_by_now");
	ft_ok(direct_again(rig, "-") &&
		      fx_gpu_import(other.engine, &rig->peer) == other.seg &&
		      direct_round(&other, 1, 8 * FX_MIB, 700000, BY_RAIL),
	      "blob_after_that_says_that_it_is_direct_again");
	destroyTransferEngine(other.engine);
	rig->sequence = other.sequence;
}

/* Tests a target on the same host. Kernel copies reach its host memory; rails
 * must reach its GPU memory, which this process must not map. */
static void local_process(struct direct_rig *rig)
{
	struct direct_rig other = *rig;

	other.engine = fx_engine("auto");
	other.there = fx_gpu_target(&other.peer, DIRECT_SIZE,
				    "transport=auto");
	ft_ok(other.there && other.engine &&
	      fx_register(other.engine, &other.mem) &&
	      direct_own(&other, true) &&
	      (other.seg = openSegment(other.engine, other.peer.name)) > 0 &&
	      direct_round(&other, 0, DIRECT_SIZE, 0, BY_RAIL) &&
	      direct_gpus(&other, 0, DIRECT_SIZE, 0, BY_RAIL),
	      "a_neighbours_gpu_is_reached_by_rail");
	destroyTransferEngine(other.engine);
	fx_peer_stop(&other.peer);
	rig->sequence = other.sequence;
}

static bool direct_setup(struct direct_rig *rig)
{
	void *context;
	int i;

	srand((unsigned int)fx_seed());
	rig->mem = fx_buf_map(2 * DIRECT_SIZE, -1);
	rig->engine = fx_engine("tcp");
	if (!ft_ok(nic_stand_in.cuda && rig->mem.p && rig->engine &&
			   fx_register(rig->engine, &rig->mem),
		   "engine_with_memory_starts"))
		return false;
	for (i = 0; i < 2; i++)
		rig->gpu[i] = cuda_stand_in_memory(&cuda, i, DIRECT_SIZE,
						   &context);
	rig->there = fx_gpu_target(&rig->peer, DIRECT_SIZE, NULL);
	return ft_ok(rig->there &&
		     (rig->seg = openSegment(rig->engine,
					     rig->peer.name)) > 0,
		     "a_target_with_gpu_memory");
}

int main(int argc, char **argv)
{
	struct direct_rig rig = { .engine = NULL };

	/* A GPU program loads the driver before it creates an engine. */
	if (cuda_stand_in_load(&cuda))
		nic_stand_in.cuda = &cuda;
	fx_extend(child_obey);
	fx_init(argc, argv);
	/* no other way than the rails, and no other reason to change attributes of
	 * the memory */
	setenv("MOONRAIL_GPU_IPC", "0", 1);
	if (!direct_setup(&rig))
		return ft_result();
	bytes(&rig);
	ways(&rig);
	by_cpu(&rig);
	late_rail(&rig);
	told_at_once("NIC_HMEM=no-domain");
	told_at_once("NIC_HMEM=no-endpoint");
	by_blob(&rig);
	unregistered_there(&rig);
	unregistered_here(&rig);
	other_target(&rig, "NIC_WITHOUT=127.0.0.2", BY_COPY_THERE,
		     "target_with_one_refusing_rail_uses_bounce_slots");
	other_target(&rig, "MOONRAIL_GPU_DIRECT=0", BY_COPY_THERE,
		     "target_with_gpu_direct_off_uses_bounce_slots");
	other_target(&rig, "NIC_HMEM=no-domain", BY_COPY_THERE,
		     "target_without_a_gpu_domain_uses_bounce_slots");
	other_target(&rig, "NIC_HMEM=no-endpoint", BY_COPY_THERE,
		     "target_without_a_gpu_endpoint_uses_bounce_slots");
	other_target(&rig, "NIC_HMEM=mr-endpoint", BY_COPY_THERE,
		     "target_with_endpoint_keys_uses_bounce_slots");
	local_process(&rig);
	ft_ok(!nic_stand_in.stale && !fx_ask(&rig.peer, "stale"),
	      "no_operation_uses_an_unregistered_key");
	fx_peer_stop(&rig.peer);
	destroyTransferEngine(rig.engine);
	ft_ok(!cuda.left(), "driver_has_no_resources_after_the_engine");
	ft_ok(fx_buf_guards(&rig.mem), "guard_zones_are_unchanged");
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
