/* SPDX-License-Identifier: BSD-2-Clause */

/* Copies inside the process and between processes of the host, and cases in
 * which such copies are not permitted. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/ft_local.h"
#include "fabtests/functional/fx.h"

#define LOCAL_MEM (64 * FX_MIB)
/* size of each of the peer's two buffers */
#define LOCAL_HALF (32 * FX_MIB)

struct local_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer peer;
	segment_id_t seg;
	uint64_t sequence;
};

static bool local_start(struct local_rig *rig, const char *ours,
			const char *its, const char *env)
{
	char option[64];

	memset(rig, 0, sizeof(*rig));
	snprintf(option, sizeof(option), "transport=%s", its);
	rig->mem = fx_buf_map(LOCAL_MEM, -1);
	if (!fx_peer_start(&rig->peer, LOCAL_MEM, option, env, NULL) ||
	    fx_ask(&rig->peer, "reg 0 %llu 1", LOCAL_HALF) ||
	    fx_ask(&rig->peer, "reg %llu %llu 1", LOCAL_HALF, LOCAL_HALF))
		return ft_ok(false, "a %s target starts", its);
	rig->engine = fx_engine(ours);
	rig->seg = -1;
	if (rig->engine && fx_register(rig->engine, &rig->mem))
		rig->seg = openSegment(rig->engine, rig->peer.name);
	return rig->seg > 0 || ft_ok(false, "a %s engine starts", ours);
}

static void local_stop(struct local_rig *rig)
{
	ft_ok(fx_buf_guards(&rig->mem) && fx_buf_guards(&rig->peer.mem),
	      "guard_zones_are_unchanged");
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->peer);
	fx_buf_unmap(&rig->mem);
}

static bool local_works(struct local_rig *rig, uint64_t off, uint64_t len,
			uint64_t block)
{
	uint64_t seq = ++rig->sequence;

	fx_buf_fill(&rig->mem, 0, len, seq);
	if (!fx_move(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p,
		     rig->peer.mem.addr + off, len, block) ||
	    !fx_buf_check(&rig->peer.mem, off, len, seq))
		return false;
	fx_buf_poison(&rig->mem, 0, len);
	return fx_move(rig->engine, rig->seg, OPCODE_READ, rig->mem.p,
		       rig->peer.mem.addr + off, len, block) &&
	       fx_buf_check(&rig->mem, 0, len, seq);
}

static bool local_sizes(struct local_rig *rig)
{
	static const uint64_t sizes[] = { 1, 63, 4097, 65536, 1048577,
					  LOCAL_HALF - 9 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		if (!local_works(rig, i, sizes[i], 0) ||
		    !local_works(rig, i, sizes[i], 1 + sizes[i] / 100))
			return false;
	return true;
}

/* Returns true if all bytes were moved by local copies, or, if `local` is
 * false, all by tcp. */
static bool local_carried(struct local_rig *rig, bool local)
{
	struct fx_rails copies = fx_rails(rig->engine, "local");
	struct fx_rails tcp = fx_rails(rig->engine, "tcp");

	ft_diag("bytes sent and received: local %llu and %llu, tcp %llu and "
		"%llu",
		(unsigned long long)copies.tx, (unsigned long long)copies.rx,
		(unsigned long long)tcp.tx, (unsigned long long)tcp.rx);
	return local ? copies.tx && copies.rx && !tcp.tx && !tcp.rx :
		       tcp.tx && tcp.rx && !copies.tx && !copies.rx;
}

/* --- inside the process -------------------------------------------------- */

static void inside_the_process(const char *transport)
{
	transfer_engine_t e = fx_engine(transport);
	struct fx_buf from = fx_buf_map(4 * FX_MIB, -1);
	struct fx_buf to = fx_buf_map(4 * FX_MIB, -1);
	char own[128];
	bool good;

	fx_buf_fill(&from, 0, from.len, 1);
	good = e && fx_register(e, &from) && fx_register(e, &to) &&
	       fx_move(e, LOCAL_SEGMENT, OPCODE_WRITE, from.p, to.addr,
		       from.len, 70000) &&
	       fx_buf_check(&to, 0, to.len, 1);
	fx_buf_poison(&from, 0, from.len);
	good = good && fx_engine_name(e, own, sizeof(own)) &&
	       fx_move(e, openSegment(e, own), OPCODE_READ, from.p, to.addr,
		       from.len, 0) && fx_buf_check(&from, 0, from.len, 1);
	ft_ok(good && fx_buf_guards(&from) && fx_buf_guards(&to),
	      "transfer_inside_the_process_with_%s_completes", transport);
	destroyTransferEngine(e);
	fx_buf_unmap(&from);
	fx_buf_unmap(&to);
}

/* --- which path is used -------------------------------------------------- */

/* Returns true if the kernel permits this process to copy from the memory of
 * its child. */
static bool local_permitted(void)
{
	struct fx_peer peer;
	struct iovec local, remote;
	char byte;
	bool good;

	if (!fx_peer_start(&peer, 4096, NULL))
		return false;
	local.iov_base = &byte;
	remote.iov_base = (void *)(uintptr_t)peer.mem.addr;
	local.iov_len = remote.iov_len = 1;
	good = process_vm_readv(peer.proc.pid, &local, 1, &remote, 1, 0) == 1;
	if (!good)
		ft_diag("process_vm_readv: %s", strerror(errno));
	fx_peer_stop(&peer);
	return good;
}

static void way(const char *ours, const char *its, const char *env, bool local,
		const char *name)
{
	struct local_rig rig;

	if (!local_start(&rig, ours, its, env))
		return;
	ft_ok(local_sizes(&rig), "%s_works", name);
	ft_ok(local_carried(&rig, local), "%s", name);
	local_stop(&rig);
}

static void way_without_local(void)
{
	setenv("MOONRAIL_LOCAL", "0", 1);
	way("auto", "auto", "MOONRAIL_LOCAL=0", false,
	    "MOONRAIL_LOCAL_0_goes_over_tcp");
	unsetenv("MOONRAIL_LOCAL");
}

/* --- rules for kernel copies --------------------------------------------- */

static void local_idle_target(struct local_rig *rig)
{
	bool good;

	fx_peer_pause(&rig->peer);
	good = local_works(rig, 0, 4 * FX_MIB, FX_MIB);
	fx_peer_resume(&rig->peer);
	ft_ok(good, "local_needs_no_progress_of_the_target");
}

static bool local_refused(struct local_rig *rig, int op, uint64_t remote,
			  uint64_t len)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg, .op = op,
			      .local = rig->mem.p, .remote = remote,
			      .len = len };
	bool good;
	int ret = fx_job_start(&job);

	if (ret)
		return ret > 0;
	good = fx_job_wait(&job, FX_LONG_MS) && job.n[STATUS_FAILED] == 1;
	return fx_job_free(&job) && good;
}

static void local_ranges(struct local_rig *rig)
{
	uint64_t a = rig->peer.mem.addr;
	const uint64_t bad[][2] = {
		{ a - 1, 64 }, { a - 4096, 4096 }, { 0, 64 },
		{ a + LOCAL_MEM - 63, 64 }, { a + LOCAL_MEM, 1 },
		{ a - 64, LOCAL_HALF }, { a + 64, LOCAL_MEM },
		{ UINT64_MAX - 32, 64 },
	};
	bool good = true;

	fx_buf_poison(&rig->mem, 0, LOCAL_MEM);
	fx_buf_fill(&rig->peer.mem, 0, LOCAL_MEM, 5);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		good = good &&
		       local_refused(rig, OPCODE_WRITE, bad[i][0], bad[i][1]) &&
		       local_refused(rig, OPCODE_READ, bad[i][0], bad[i][1]);
	ft_ok(good, "law8_local_ranges_outside_are_refused");
	ft_ok(fx_buf_check(&rig->peer.mem, 0, LOCAL_MEM, 5) &&
	      fx_buf_guards(&rig->peer.mem) &&
	      fx_buf_poisoned(&rig->mem, 0, LOCAL_MEM),
	      "law8_local_not_one_wrong_byte");
}

/* Submits 200 writes of `block` bytes, with gaps between their ranges. Every
 * fifth one is to a range outside of the peer's memory. Only those may fail. */
static void local_batch(struct local_rig *rig, uint64_t block)
{
	enum { N = 200 };
	struct transfer_request reqs[N];
	struct transfer_status st;
	char *want = malloc(LOCAL_HALF);
	batch_id_t id = allocateBatchID(rig->engine, N);
	bool good = want && id != INVALID_BATCH;
	size_t at;

	fx_buf_fill(&rig->mem, 0, LOCAL_HALF, 11);
	fx_buf_fill(&rig->peer.mem, 0, LOCAL_HALF, 12);
	memcpy(want, rig->peer.mem.p, LOCAL_HALF);
	for (size_t i = 0; i < N; i++) {
		at = 2 * i * block;
		reqs[i] = (struct transfer_request){
			.opcode = OPCODE_WRITE,
			.source = rig->mem.p + at,
			.target_id = rig->seg,
			.length = block,
			.target_offset = rig->peer.mem.addr + at +
					 (i % 5 == 2 ? LOCAL_MEM : 0)
		};
		if (i % 5 != 2)
			memcpy(want + at, rig->mem.p + at, block);
	}
	good = good && !submitTransfer(rig->engine, id, reqs, N);
	for (size_t i = 0; i < N && good; i++) {
		te_wait_task(rig->engine, id, i, -1, &st);
		good = st.status ==
		       (i % 5 == 2 ? STATUS_FAILED : STATUS_COMPLETED);
	}
	ft_ok(good,
	      "law8_of_a_batch_of_%llu_bytes_each_only_requests_outside_fail",
	      (unsigned long long)block);
	ft_ok(!memcmp(want, rig->peer.mem.p, LOCAL_HALF),
	      "batch_of_%llu_bytes_each_writes_exactly_its_ranges",
	      (unsigned long long)block);
	freeBatchID(rig->engine, id);
	free(want);
}

/* Checks that the error record of a local copy names the peer and the remote
 * address, as that of a rail does. */
static void local_record(struct local_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->peer.mem.addr + LOCAL_MEM,
			      .len = 64 };
	struct te_error err = { 0 };
	char at[32], process[32];

	snprintf(at, sizeof(at), "%#llx", (unsigned long long)job.remote);
	snprintf(process, sizeof(process), "process %d: ",
		 (int)rig->peer.proc.pid);
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
	      !te_task_error(rig->engine, job.id, 0, &err, sizeof(err)) &&
	      err.code == -3 && !strcmp(err.peer, rig->peer.name) &&
	      strstr(err.text, at) && strstr(err.text, process),
	      "law10_local_task_error_names_peer_and_memory");
	ft_diag("%d, peer '%s': %s", err.code, err.peer, err.text);
	fx_job_free(&job);
}

static void local_unregister(struct local_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->peer.mem.addr, .len = LOCAL_HALF,
			      .block = FX_MIB };
	bool calm, good = true;

	fx_buf_fill(&rig->mem, 0, LOCAL_HALF, 6);
	fx_buf_poison(&rig->peer.mem, 0, LOCAL_HALF);
	ft_ok(!fx_ask(&rig->peer, "copy 0") && !fx_job_start(&job), "submit");
	ft_ok(!fx_ask(&rig->peer, "unreg 0"), "unregister_in_mid_copy");
	calm = fx_buf_still(&rig->peer.mem, 0, LOCAL_HALF, 500);
	ft_ok(!fx_ask(&rig->peer, "same") && calm,
	      "law2_local_not_one_byte_after_unregister");
	good = fx_job_wait(&job, FX_LONG_MS);
	ft_diag("%s", fx_job_text(&job));
	for (size_t i = 0; i < job.tasks && good; i++)
		good = fx_task_status(&job, i) != STATUS_COMPLETED ||
		       !memcmp(rig->mem.p + i * FX_MIB,
			       rig->peer.mem.p + i * FX_MIB, FX_MIB);
	ft_ok(good && job.n[STATUS_COMPLETED] + job.n[STATUS_FAILED] ==
	      job.tasks, "law1_local_completed_before_unregister_is_true");
	fx_job_free(&job);
	ft_ok(local_refused(rig, OPCODE_WRITE, rig->peer.mem.addr, 64) &&
	      fx_buf_still(&rig->peer.mem, 0, 64, 10),
	      "local_unregistered_memory_is_refused");
	ft_ok(local_works(rig, LOCAL_HALF, FX_MIB, 0),
	      "local_another_buffer_works");
	ft_ok(!fx_ask(&rig->peer, "reg 0 %llu 1", LOCAL_HALF) &&
	      local_works(rig, 0, FX_MIB, 0), "local_registered_again_works");
}

static void local_uninstalled(struct local_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->peer.mem.addr, .len = LOCAL_HALF,
			      .block = 8 * FX_MIB };
	bool good = fx_job_under_way(&job) &&
		    !uninstallTransport(rig->engine, "local") &&
		    fx_job_poll(&job) &&
		    job.n[STATUS_COMPLETED] == job.tasks;

	ft_ok(good, "uninstalled_local_transport_is_drained: %s",
	      fx_job_text(&job));
	fx_job_free(&job);
	ft_ok(local_works(rig, 0, FX_MIB, 0),
	      "request_after_the_uninstallation_goes_by_tcp");
	ft_ok(installTransport(rig->engine, "local", NULL) &&
		      local_works(rig, 0, FX_MIB, 0),
	      "local_transport_is_installed_again");
}

/* Destroys an engine while it copies to another process and inside this
 * process. The copies must complete. */
static void local_destroyed(void)
{
	struct fx_job job[2];
	struct local_rig rig;

	if (!local_start(&rig, "auto", "auto", NULL))
		return;
	fx_buf_fill(&rig.mem, 0, LOCAL_HALF, 8);
	job[0] = (struct fx_job){ .engine = rig.engine, .seg = rig.seg,
				  .op = OPCODE_WRITE, .local = rig.mem.p,
				  .remote = rig.peer.mem.addr,
				  .len = LOCAL_HALF, .block = 8 * FX_MIB };
	job[1] = job[0];
	job[1].seg = LOCAL_SEGMENT;
	job[1].remote = rig.mem.addr + LOCAL_HALF;
	ft_ok(fx_job_under_way(&job[0]) && fx_job_under_way(&job[1]),
	      "copies_are_under_way");
	destroyTransferEngine(rig.engine);
	ft_ok(fx_buf_check(&rig.peer.mem, 0, LOCAL_HALF, 8) &&
	      fx_buf_check(&rig.mem, LOCAL_HALF, LOCAL_HALF, 8),
	      "destroying_the_engine_waits_for_them");
	fx_peer_stop(&rig.peer);
	fx_buf_unmap(&rig.mem);
}

static void local_kill(struct local_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->peer.mem.addr, .len = LOCAL_HALF,
			      .block = FX_MIB };
	uint64_t from;
	bool good;

	fx_buf_fill(&rig->mem, 0, LOCAL_HALF, 7);
	ft_ok(!fx_job_start(&job), "submit");
	fx_peer_kill(&rig->peer);
	from = ft_now_ns();
	good = fx_job_wait(&job, fx_soon_ms(8000));
	ft_diag("%s after %llu ms", fx_job_text(&job),
		(unsigned long long)((ft_now_ns() - from) / 1000000));
	for (size_t i = 0; i < job.tasks && good; i++)
		good = fx_task_status(&job, i) != STATUS_COMPLETED ||
		       !memcmp(rig->mem.p + i * FX_MIB,
			       rig->peer.mem.p + i * FX_MIB, FX_MIB);
	ft_ok(good, "law3_local_target_killed_every_task_ends_truly");
	fx_job_wait(&job, FX_LONG_MS);
	fx_job_free(&job);
	ft_ok(!local_works(rig, 0, 4096, 0),
	      "local_copy_to_a_dead_target_fails");
	ft_ok(openSegmentNoCache(rig->engine, rig->peer.name) == -1,
	      "law12_local_a_killed_process_cannot_be_opened");
	fx_peer_drop(&rig->peer);
}

static void local_rules(void)
{
	struct local_rig rig;

	if (!local_start(&rig, "auto", "auto", NULL))
		return;
	local_idle_target(&rig);
	local_ranges(&rig);
	local_record(&rig);
	local_batch(&rig, 4096);  /* copied by this thread */
	local_batch(&rig, 65536); /* copied by copy threads */
	for (int i = 0; i < 3; i++)
		local_unregister(&rig);
	ft_ok(local_carried(&rig, true), "local_carried_all_of_it");
	local_uninstalled(&rig);
	local_kill(&rig);
	destroyTransferEngine(rig.engine);
	fx_buf_unmap(&rig.mem);
	local_destroyed();
}

int main(int argc, char **argv)
{
	fx_extend(mapped_obey);
	fx_init(argc, argv);
	inside_the_process("auto");
	inside_the_process("tcp");
	inside_the_process("local");
	way("tcp", "tcp", NULL, false, "law9_tcp_by_name_carries_all_of_it");
	way_without_local();
	if (!local_permitted()) {
		puts("skip - two_processes_local: process_vm_readv is not "
		     "permitted here");
		return ft_result();
	}
	way("auto", "auto", NULL, true, "auto_discover_copies_inside_the_host");
	way("local", "local", NULL, true, "local_by_name_copies");
	local_rules();
	mapped_tests();
	return ft_result();
}
