/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Two rails of RDMA devices: rxe0 and rxe1 here, rxp0 and rxp1 at the target,
 * on the ends of two veth pairs, ve0 and ve1 the ends here. run_in_vm.sh makes
 * them; without them this is skipped. Slow is fine here, wrong is not: all of
 * it may run a hundred times slower than a machine does.
 */

#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx.h"

#define VERBS_OURS "rxe0,rxe1"
#define VERBS_THEIRS "MOONRAIL_DEVICES=rxp0,rxp1"
#define VERBS_TIMEOUT_S "60"
#define VERBS_LIMIT_MS 120000	/* in which every task is terminal */
#define VERBS_LEN (12 * FX_MIB)
#define VERBS_OTHER (13 * FX_MIB)
#define VERBS_MEM (16 * FX_MIB)
#define VERBS_BLOCK (256 * FX_KIB)
#define VERBS_CALM_MS 1000

static struct {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
	segment_id_t seg;
	uint64_t sequence, random;
} rig;

static bool verbs_start(void)
{
	rig.engine = fx_engine("rdma");
	rig.mem = fx_buf_map(VERBS_MEM, -1);
	if (!rig.engine || !fx_register(rig.engine, &rig.mem))
		return false;
	if (!fx_peer_start(&rig.target, VERBS_MEM, "transport=rdma",
			   VERBS_THEIRS, NULL) ||
	    fx_ask(&rig.target, "reg 0 %llu 1", VERBS_LEN) ||
	    fx_ask(&rig.target, "reg %llu %llu 1", VERBS_OTHER, 2 * FX_MIB) ||
	    fx_ask(&rig.target, "copy 0"))
		return false;
	rig.seg = openSegment(rig.engine, rig.target.name);
	return rig.seg >= 0;
}

/* A verified write and read at off of the target; again if it may fail. */
static bool verbs_works(uint64_t off, uint64_t len, unsigned int ms)
{
	uint64_t seq = ++rig.sequence;

	fx_buf_fill(&rig.mem, 0, len, seq);
	if (!fx_move_until(rig.engine, rig.seg, OPCODE_WRITE, rig.mem.p,
			   rig.target.mem.addr + off, len, VERBS_BLOCK, ms) ||
	    !fx_buf_check(&rig.target.mem, off, len, seq))
		return false;
	fx_buf_poison(&rig.mem, 0, len);
	return fx_move_until(rig.engine, rig.seg, OPCODE_READ, rig.mem.p,
			     rig.target.mem.addr + off, len, VERBS_BLOCK, ms) &&
	       fx_buf_check(&rig.mem, 0, len, seq);
}

static struct fx_job verbs_job(int op)
{
	struct fx_job job = {
		.engine = rig.engine, .seg = rig.seg, .op = op,
		.local = rig.mem.p, .remote = rig.target.mem.addr,
		.len = VERBS_LEN, .block = VERBS_BLOCK,
	};

	return job;
}

/* A write that has begun: somewhere in its first half. */
static bool verbs_begin(struct fx_job *job)
{
	*job = verbs_job(OPCODE_WRITE);
	fx_buf_fill(&rig.mem, 0, job->len, ++rig.sequence);
	fx_buf_poison(&rig.target.mem, 0, job->len);
	return ft_ok(!fx_job_start(job), "submit") &&
	       fx_job_reach(job, 1 + ft_random(&rig.random) % (job->len / 2),
			    VERBS_LIMIT_MS);
}

static bool verbs_completed_is_true(const struct fx_job *job)
{
	for (size_t i = 0; i < job->tasks; i++) {
		uint64_t off = i * job->block;

		if (fx_task_status(job, i) == STATUS_COMPLETED &&
		    memcmp(rig.mem.p + off, rig.target.mem.p + off,
			   job->block)) {
			ft_diag("task %zu is COMPLETED but not in place", i);
			return false;
		}
	}
	return true;
}

static void both_ways(void)
{
	char name[128];
	uint64_t limit = ft_now_ns() + VERBS_LIMIT_MS * UINT64_C(1000000);
	struct fx_rails r;
	bool good;
	int seg;

	/* a rail may take its time to connect */
	do {
		good = verbs_works(0, VERBS_LEN, 0);
		r = fx_rails(rig.engine, "rdma");
	} while (good && r.used < 2 && ft_now_ns() < limit);
	ft_ok(good, "verified_write_and_read");
	ft_diag("%u rails, %u used", r.count, r.used);
	ft_ok(r.count == 2 && r.used == 2, "both_rails_carried");
	fx_engine_name(rig.engine, name, sizeof(name));
	seg = fx_ask(&rig.target, "open %s", name);
	fx_buf_fill(&rig.target.mem, 0, VERBS_LEN, ++rig.sequence);
	fx_buf_poison(&rig.mem, 0, VERBS_LEN);
	ft_ok(seg > 0 &&
	      !fx_ask(&rig.target, "start %d 1 0 %llu %llu %llu 1 -", seg,
		      (unsigned long long)rig.mem.addr, VERBS_LEN,
		      VERBS_BLOCK) &&
	      !fx_ask(&rig.target, "wait") &&
	      fx_buf_check(&rig.mem, 0, VERBS_LEN, rig.sequence),
	      "the_target_writes_to_us");
}

/* Law 2, at a target that takes its memory back. */
static void unregister_in_mid_write(void)
{
	struct fx_job job;
	bool calm;
	int ret;

	if (!ft_ok(verbs_begin(&job), "a_write_is_under_way"))
		return;
	ret = fx_ask(&rig.target, "unreg 0");
	ft_diag("unregister: %d with %llu bytes done", ret,
		(unsigned long long)job.bytes);
	calm = !ret && fx_buf_still(&rig.target.mem, 0, VERBS_LEN,
				    VERBS_CALM_MS);
	ft_ok(!ret && !fx_ask(&rig.target, "same") && calm,
	      "law2_not_one_byte_after_unregister");
	ft_ok(fx_job_wait(&job, VERBS_LIMIT_MS), "all_tasks_are_terminal");
	ft_diag("%s", fx_job_text(&job));
	ft_ok(verbs_completed_is_true(&job), "completed_tasks_are_in_place");
	fx_job_free(&job);
	ft_ok(!fx_ask(&rig.target, "same"), "nor_when_all_is_over");
	ft_ok(verbs_works(VERBS_OTHER, FX_MIB, VERBS_LIMIT_MS),
	      "another_buffer_still_works");
	ft_ok(!fx_ask(&rig.target, "reg 0 %llu 1", VERBS_LEN) &&
	      verbs_works(0, FX_MIB, VERBS_LIMIT_MS),
	      "registered_again_it_works");
}

static bool verbs_link(bool up)
{
	struct ifreq req = { .ifr_name = "ve1" };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool good = !ioctl(fd, SIOCGIFFLAGS, &req);

	req.ifr_flags = (short)(up ? req.ifr_flags | IFF_UP :
				     req.ifr_flags & ~IFF_UP);
	good = good && !ioctl(fd, SIOCSIFFLAGS, &req);
	close(fd);
	return good;
}

/* The rail that does not carry the first address goes. */
static void link_down_in_mid_write(void)
{
	struct fx_job job;
	uint64_t from;
	bool in_time;

	if (!ft_ok(verbs_begin(&job), "a_write_is_under_way"))
		return;
	ft_ok(verbs_link(false), "link_down");
	from = ft_now_ns();
	in_time = fx_job_wait(&job, VERBS_LIMIT_MS);
	ft_diag("%s, %llu ms after the cut", fx_job_text(&job),
		(unsigned long long)((ft_now_ns() - from) / 1000000));
	ft_ok(in_time, "all_tasks_are_terminal");
	ft_ok(verbs_completed_is_true(&job), "completed_tasks_are_in_place");
	fx_job_free(&job);
	ft_ok(verbs_works(VERBS_OTHER, FX_MIB, VERBS_LIMIT_MS),
	      "the_other_rail_goes_on");
	fx_buf_poison(&rig.target.mem, 0, VERBS_LEN);
	ft_ok(verbs_link(true), "link_up");
	ft_ok(fx_buf_still(&rig.target.mem, 0, VERBS_LEN, VERBS_CALM_MS) &&
	      fx_buf_poisoned(&rig.target.mem, 0, VERBS_LEN),
	      "law2_not_one_byte_when_the_link_is_back");
	ft_ok(verbs_works(0, FX_MIB, VERBS_LIMIT_MS), "and_all_works_then");
}

int main(int argc, char **argv)
{
	setenv("MC_SLICE_TIMEOUT", VERBS_TIMEOUT_S, 0);
	setenv("MOONRAIL_DEVICES", VERBS_OURS, 0);
	setenv("FI_UNIVERSE_SIZE", "32", 0);
	setenv("FI_OFI_RXM_USE_SRX", "1", 0);
	fx_init(argc, argv);
	if (access("/sys/class/infiniband/rxe1", F_OK) ||
	    access("/sys/class/infiniband/rxp1", F_OK))
		return ft_skip("no devices rxe0, rxe1, rxp0, rxp1");
	rig.random = fx_seed();
	rig.sequence = 1;
	if (!ft_ok(verbs_start(), "two_processes_with_two_rails"))
		return ft_result();
	both_ways();
	unregister_in_mid_write();
	link_down_in_mid_write();
	ft_ok(fx_peer_stop(&rig.target), "target_ends_well");
	closeSegment(rig.engine, rig.seg);
	destroyTransferEngine(rig.engine);
	ft_ok(fx_buf_guards(&rig.mem), "guards");
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
