/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests with two rails of RDMA devices: rxe0 and rxe1 in this process, rxp0 and
 * rxp1 in the target. The devices use two veth pairs: ve0 and vp0 for rail 0,
 * ve1 and vp1 for rail 1. run_in_vm.sh creates them; without them the test is
 * skipped. The emulated machine may be a hundred times slower than a real one,
 * so the time limits are long.
 */

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx.h"

#define VERBS_OURS "rxe0,rxe1"
#define VERBS_THEIRS "MOONRAIL_DEVICES=rxp0,rxp1"
#define VERBS_TIMEOUT_S "60"
#define VERBS_LIMIT_MS	120000 /* time in which each task must end */
#define VERBS_LEN (12 * FX_MIB)
#define VERBS_OTHER (13 * FX_MIB)
#define VERBS_MEM (16 * FX_MIB)
#define VERBS_BLOCK (256 * FX_KIB)
#define VERBS_CALM_MS 1000
/* longer than the time after which the device repeats a lost packet, ms */
#define VERBS_STILL_MS 5000
/* default number of cuts; the first argument of the program replaces it */
#define VERBS_CUTS 4
/* number of jobs that move the same bytes, so that tasks remain at a cut */
#define VERBS_TIMES 4
#define VERBS_TRIES 6

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

/* Writes len bytes at offset `off` of the target's memory, reads them back, and
 * verifies them after each direction. Repeats a failed attempt for up to `ms`.
 * Returns true on success. */
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

/* Starts a write and waits until a random part of its first half has
 * arrived. */
static bool verbs_begin(struct fx_job *job)
{
	*job = verbs_job(OPCODE_WRITE);
	fx_buf_fill(&rig.mem, 0, job->len, ++rig.sequence);
	fx_buf_poison(&rig.target.mem, 0, job->len);
	return ft_ok(!fx_job_start(job), "write_is_submitted") &&
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
			ft_diag("task %zu is COMPLETED but its bytes are not "
				"in place",
				i);
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

	/* It may take some time until the second rail is connected. */
	do {
		good = verbs_works(0, VERBS_LEN, 0);
		r = fx_rails(rig.engine, "rdma");
	} while (good && r.used < 2 && ft_now_ns() < limit);
	ft_ok(good, "verified_write_and_read_complete");
	ft_diag("%u rails, %u used", r.count, r.used);
	ft_ok(r.count == 2 && r.used == 2, "both_rails_have_carried_data");
	fx_engine_name(rig.engine, name, sizeof(name));
	seg = fx_ask(&rig.target, "open %s", name);
	fx_buf_fill(&rig.target.mem, 0, VERBS_LEN, ++rig.sequence);
	fx_buf_poison(&rig.mem, 0, VERBS_LEN);
	ft_ok(seg > 0 &&
		      !fx_ask(&rig.target, "start %d 1 0 %llu %llu %llu 1 -",
			      seg, (unsigned long long)rig.mem.addr, VERBS_LEN,
			      VERBS_BLOCK) &&
		      !fx_ask(&rig.target, "wait") &&
		      fx_buf_check(&rig.mem, 0, VERBS_LEN, rig.sequence),
	      "write_of_the_target_to_this_process_completes");
}

/* Law 2: the target unregisters its memory during writes. */
static void unregister_in_mid_write(void)
{
	struct fx_job job;
	bool calm;
	int ret;

	if (!ft_ok(verbs_begin(&job), "write_is_under_way"))
		return;
	ret = fx_ask(&rig.target, "unreg 0");
	ft_diag("unregister: %d with %llu bytes done", ret,
		(unsigned long long)job.bytes);
	calm = !ret && fx_buf_still(&rig.target.mem, 0, VERBS_LEN,
				    VERBS_CALM_MS);
	ft_ok(!ret && !fx_ask(&rig.target, "same") && calm,
	      "law2_unregistered_memory_gets_no_byte");
	ft_ok(fx_job_wait(&job, VERBS_LIMIT_MS),
	      "tasks_to_unregistered_memory_end");
	ft_diag("%s", fx_job_text(&job));
	ft_ok(verbs_completed_is_true(&job),
	      "completed_tasks_have_all_bytes_in_place");
	fx_job_free(&job);
	ft_ok(!fx_ask(&rig.target, "same"),
	      "unregistered_memory_gets_no_byte_after_the_last_task");
	ft_ok(verbs_works(VERBS_OTHER, FX_MIB, VERBS_LIMIT_MS),
	      "write_and_read_of_another_buffer_complete");
	ft_ok(!fx_ask(&rig.target, "reg 0 %llu 1", VERBS_LEN) &&
		      verbs_works(0, FX_MIB, VERBS_LIMIT_MS),
	      "write_and_read_of_memory_registered_again_complete");
}

/* --- a rail fails while slices are posted on it --------------------------- */

/* Returns the statistics of rxe0 (rail 0) or rxe1 (rail 1). All members are 0
 * if they cannot be read. */
static struct te_rail_stats verbs_stats(unsigned int rail)
{
	struct te_rail_stats stats[8];
	char name[16];
	size_t n = 8;

	snprintf(name, sizeof(name), "rxe%u", rail);
	if (!te_rail_stats(rig.engine, stats, sizeof(stats[0]), &n))
		for (size_t i = 0; i < n && i < 8; i++)
			if (!strcmp(stats[i].name, name))
				return stats[i];
	memset(stats, 0, sizeof(stats[0]));
	return stats[0];
}

static uint64_t verbs_carried(unsigned int rail)
{
	struct te_rail_stats s = verbs_stats(rail);

	return s.tx_bytes + s.rx_bytes;
}

static uint64_t verbs_retries(void)
{
	return verbs_stats(0).retries + verbs_stats(1).retries;
}

/* Moves bytes of the second buffer until both rails have carried some of
 * them. */
static bool verbs_both_carry(void)
{
	uint64_t limit = ft_now_ns() + VERBS_LIMIT_MS * UINT64_C(1000000);
	uint64_t was[2] = { verbs_carried(0), verbs_carried(1) };
	bool good = true, both = false;

	while (good && !both && ft_now_ns() < limit) {
		good = verbs_works(VERBS_OTHER, 2 * FX_MIB, VERBS_LIMIT_MS);
		both = verbs_carried(0) > was[0] && verbs_carried(1) > was[1];
	}
	return good && both;
}

/* Restores the route of the rail, which the kernel has removed when the link
 * went down. */
static bool verbs_route(unsigned int rail)
{
	char line[128];

	snprintf(line, sizeof(line),
		 "ip route replace 10.77.%u.2 dev ve%u table %u", rail, rail,
		 101 + 2 * rail);
	return !system(line);
}

static bool verbs_link(unsigned int rail, bool up)
{
	struct ifreq req = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool good;

	snprintf(req.ifr_name, sizeof(req.ifr_name), "ve%u", rail);
	good = !ioctl(fd, SIOCGIFFLAGS, &req);
	req.ifr_flags = (short)(up ? req.ifr_flags | IFF_UP :
				     req.ifr_flags & ~IFF_UP);
	good = good && !ioctl(fd, SIOCSIFFLAGS, &req);
	close(fd);
	return good && (!up || verbs_route(rail));
}

/* Sets the hardware address to which interface `from` of the rail sends packets
 * for 10.77.RAIL.HOST. If `open` is true, this is the address of interface
 * `to`; otherwise it is an address that no interface has. */
static bool verbs_way(int fd, unsigned int rail, const char *from,
		      const char *to, unsigned int host, bool open)
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	struct ifreq req = { 0 };
	struct arpreq arp = { .arp_flags = ATF_COM | ATF_PERM };

	snprintf(req.ifr_name, sizeof(req.ifr_name), "%s%u", to, rail);
	snprintf(arp.arp_dev, sizeof(arp.arp_dev), "%s%u", from, rail);
	addr.sin_addr.s_addr = htonl(0x0a4d0000 | rail << 8 | host);
	memcpy(&arp.arp_pa, &addr, sizeof(addr));
	if (ioctl(fd, SIOCGIFHWADDR, &req))
		return false;
	arp.arp_ha = req.ifr_hwaddr;
	if (!open)
		arp.arp_ha.sa_data[5] ^= 0x55;
	return !ioctl(fd, SIOCSARP, &arp);
}

/* If `up` is false, gives both interfaces of the rail a wrong hardware address
 * of the other one, so that the connections fail at the side that made them. If
 * `up` is true, restores the addresses. */
static bool verbs_break(unsigned int rail, bool up)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool good = verbs_way(fd, rail, "ve", "vp", 2, up) &&
		    verbs_way(fd, rail, "vp", "ve", 1, up);

	close(fd);
	return good;
}

/* Drops all packets of a rail in both directions, without an error at either
 * side, if `up` is false. Otherwise stops dropping them. */
static bool verbs_lose(unsigned int rail, bool up)
{
	char line[160];

	snprintf(line, sizeof(line),
		 "tc qdisc %s dev ve%u root netem loss 100%% && "
		 "tc qdisc %s dev vp%u root netem loss 100%%",
		 up ? "del" : "add", rail, up ? "del" : "add", rail);
	return !system(line);
}

struct verbs_cut {
	const char *name;
	int op;
	unsigned int rail;
	bool (*link)(unsigned int rail, bool up);
	unsigned int still_ms; /* time after the repair during which no byte may
				* land, ms */
	bool delivers;	       /* true if soft RoCE may still deliver data that
				* it had begun to send before the cut */
};

static struct fx_buf *verbs_sink(int op)
{
	return op == OPCODE_READ ? &rig.mem : &rig.target.mem;
}

/* Starts VERBS_TIMES jobs that move the same bytes, so that tasks remain at the
 * cut. Waits until a part of the first job is done. */
static bool verbs_cut_start(const struct verbs_cut *cut, struct fx_job *jobs)
{
	bool good = true;
	int i;

	fx_buf_fill(cut->op == OPCODE_READ ? &rig.target.mem : &rig.mem, 0,
		    VERBS_LEN, ++rig.sequence);
	fx_buf_poison(verbs_sink(cut->op), 0, VERBS_LEN);
	for (i = 0; i < VERBS_TIMES && good; i++) {
		jobs[i] = verbs_job(cut->op);
		good = !fx_job_start(&jobs[i]);
	}
	return good && fx_job_reach(&jobs[0], 1 + ft_random(&rig.random) %
				    VERBS_LEN, VERBS_LIMIT_MS);
}

/*
 * Waits until slices are in flight on the rail that will be cut. A rail that
 * has just recovered carries little, so a cut at a random moment often finds no
 * slice on it. Returns false if job `last` ends before.
 */
static bool verbs_rail_busy(unsigned int rail, struct fx_job *last)
{
	struct timespec pause = { .tv_nsec = 20000 };

	while (!verbs_stats(rail).inflight_bytes) {
		if (fx_job_poll(last))
			return false;
		nanosleep(&pause, NULL);
	}
	return true;
}

static bool verbs_cut_wait(struct fx_job *jobs)
{
	unsigned int completed = 0, tasks = 0;
	bool good = true;
	int i;

	for (i = 0; i < VERBS_TIMES; i++) {
		good = fx_job_wait(&jobs[i], VERBS_LIMIT_MS) && good;
		completed += jobs[i].n[STATUS_COMPLETED];
		tasks += (unsigned int)jobs[i].tasks;
		if (jobs[i].n[STATUS_COMPLETED] != jobs[i].tasks)
			ft_diag("job %d: %s", i, fx_job_text(&jobs[i]));
		fx_job_free(&jobs[i]);
	}
	return good && completed == tasks;
}

/* Restores the rail after all jobs have ended. Checks that none of their bytes
 * lands later. */
static bool verbs_cut_mend(const struct verbs_cut *cut)
{
	struct fx_buf *sink = verbs_sink(cut->op);

	fx_buf_poison(&rig.mem, 0, VERBS_LEN);
	fx_buf_poison(&rig.target.mem, 0, VERBS_LEN);
	return ft_ok(cut->link(cut->rail, true), "%s: rail_is_restored",
		     cut->name) &&
	       ft_ok(fx_buf_still(sink, 0, VERBS_LEN, cut->still_ms) &&
			     fx_buf_poisoned(sink, 0, VERBS_LEN),
		     "%s: law2_restored_rail_delivers_no_late_byte", cut->name);
}

/*
 * Runs jobs and cuts the rail meanwhile. Returns true if slices were in flight
 * on the rail at the cut. Evidence of this are slices that were sent again, or
 * bytes in flight after the cut that the device may have delivered.
 */
static bool verbs_cut_once(const struct verbs_cut *cut)
{
	struct fx_job jobs[VERBS_TIMES];
	uint64_t retries, other, from, left;
	bool good;

	if (!ft_ok(verbs_both_carry(), "%s: both_rails_carry_data",
		   cut->name) ||
	    !ft_ok(verbs_cut_start(cut, jobs), "%s: jobs_are_under_way",
		   cut->name))
		return false;
	retries = verbs_retries();
	if (!verbs_rail_busy(cut->rail, &jobs[VERBS_TIMES - 1]))
		ft_diag("%s: the jobs ended before the rail carried slices",
			cut->name);
	good = cut->link(cut->rail, false);
	from = ft_now_ns();
	left = verbs_stats(cut->rail).inflight_bytes;
	other = verbs_carried(!cut->rail);
	ft_ok(good && !fx_job_poll(&jobs[VERBS_TIMES - 1]),
	      "%s: rail_is_cut_before_the_jobs_end", cut->name);
	ft_ok(verbs_cut_wait(jobs), "%s: all_tasks_complete", cut->name);
	retries = verbs_retries() - retries;
	other = verbs_carried(!cut->rail) - other;
	ft_diag("%s: %llu bytes were in flight at the cut; within %llu ms, "
		"%llu bytes went over the other rail and %llu slices were "
		"sent again",
		cut->name, (unsigned long long)left,
		(unsigned long long)((ft_now_ns() - from) / 1000000),
		(unsigned long long)other, (unsigned long long)retries);
	ft_ok(other >= VERBS_BLOCK, "%s: other_rail_carries_data_after_the_cut",
	      cut->name);
	ft_ok(fx_buf_check(verbs_sink(cut->op), 0, VERBS_LEN, rig.sequence),
	      "%s: every_byte_is_in_place", cut->name);
	return verbs_cut_mend(cut) && (retries || (cut->delivers && left));
}

/* Repeats the test of a cut until slices were in flight on the rail at the cut.
 * Without such slices the test proves little. */
static void verbs_cut(const struct verbs_cut *cut)
{
	bool hit = false;

	for (int i = 0; i < VERBS_TRIES && !hit; i++)
		hit = verbs_cut_once(cut);
	ft_ok(hit, "%s: rail_has_slices_at_the_cut", cut->name);
}

/*
 * Tests cuts of a rail during transfers. The cut of the link is the last one:
 * if a link goes down under traffic, the soft RoCE device of Linux 6.1 carries
 * no data until it is created again. The replies of the target then use rail 0,
 * whose connections broke in an earlier cut while they were idle.
 */
static void rails_go_in_mid_transfer(unsigned long times)
{
	static const struct verbs_cut cuts[] = {
		{ "write, rail 1 loses all", OPCODE_WRITE, 1, verbs_lose,
		  VERBS_STILL_MS, false },
		{ "read, rail 0 loses all", OPCODE_READ, 0, verbs_lose,
		  VERBS_STILL_MS, false },
		{ "read, rail 0 breaks", OPCODE_READ, 0, verbs_break,
		  VERBS_CALM_MS, true },
		{ "write, rail 0 breaks", OPCODE_WRITE, 0, verbs_break,
		  VERBS_CALM_MS, true },
	};
	static const struct verbs_cut last = {
		"write, link 1 down", OPCODE_WRITE, 1, verbs_link,
		VERBS_CALM_MS, true,
	};

	for (unsigned long i = 0; i < times; i++)
		verbs_cut(&cuts[i % (sizeof(cuts) / sizeof(cuts[0]))]);
	verbs_cut(&last);
	ft_ok(verbs_works(0, FX_MIB, VERBS_LIMIT_MS),
	      "write_and_read_after_all_cuts_complete");
}

static const struct ft_option verbs_operand = {
	"CUTS",	 FT_COUNT, 0,  0,
	1000000, NULL,	   "", "cuts of rails in mid-transfer",
};

static const struct ft_options verbs_options = {
	.program = "ft_verbs",
	.usage = "[CUTS]",
	.operands = &verbs_operand,
	.operand_count = 1,
	.width = 8,
};

int main(int argc, char **argv)
{
	uint64_t cuts = VERBS_CUTS;

	setenv("MC_SLICE_TIMEOUT", VERBS_TIMEOUT_S, 0);
	setenv("MOONRAIL_DEVICES", VERBS_OURS, 0);
	setenv("FI_UNIVERSE_SIZE", "32", 0);
	setenv("FI_OFI_RXM_USE_SRX", "1", 0);
	fx_init(argc, argv);
	ft_options_take(&verbs_options, argc, argv, &cuts);
	if (access("/sys/class/infiniband/rxe1", F_OK) ||
	    access("/sys/class/infiniband/rxp1", F_OK))
		return ft_skip("no devices rxe0, rxe1, rxp0, rxp1");
	rig.random = fx_seed();
	rig.sequence = 1;
	if (!ft_ok(verbs_start(), "two_processes_with_two_rails"))
		return ft_result();
	both_ways();
	unregister_in_mid_write();
	rails_go_in_mid_transfer(cuts);
	ft_ok(fx_peer_stop(&rig.target), "target_ends_well");
	closeSegment(rig.engine, rig.seg);
	destroyTransferEngine(rig.engine);
	ft_ok(fx_buf_guards(&rig.mem), "guards");
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
