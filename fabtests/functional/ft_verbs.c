/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Two rails of RDMA devices: rxe0 and rxe1 here, rxp0 and rxp1 at the target,
 * on the ends of two veth pairs, ve0 and ve1 the ends here. run_in_vm.sh makes
 * them; without them this is skipped. Slow is fine here, wrong is not: all of
 * it may run a hundred times slower than a machine does.
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
#define VERBS_LIMIT_MS 120000	/* in which every task is terminal */
#define VERBS_LEN (12 * FX_MIB)
#define VERBS_OTHER (13 * FX_MIB)
#define VERBS_MEM (16 * FX_MIB)
#define VERBS_BLOCK (256 * FX_KIB)
#define VERBS_CALM_MS 1000
#define VERBS_STILL_MS 5000	/* a packet that was lost is sent again */
#define VERBS_CUTS 4	/* more by the first argument */
#define VERBS_TIMES 4	/* the same job, so that it isn't over at a cut */
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

/* --- a rail goes while slices are on it ------------------------------------ */

/* "rxe1": what it counted; zeroes if that could not be read. */
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

/* Moves other bytes until both rails have carried some of them. */
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

/* The route that makes packets cross the pair goes with the link. */
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

/* What "from" sends to "to", 10.77.RAIL.HOST, goes to its hardware address, or
 * to one that nobody has. */
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

/* Neighbours of other addresses: the connections of the side that made them
 * break. */
static bool verbs_break(unsigned int rail, bool up)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool good = verbs_way(fd, rail, "ve", "vp", 2, up) &&
		    verbs_way(fd, rail, "vp", "ve", 1, up);

	close(fd);
	return good;
}

/* Loses all packets of a rail, both ways, and nobody is told. */
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
	unsigned int still_ms;		/* nothing lands for that long */
	bool delivers;			/* soft RoCE may still deliver what it
					 * had begun before the cut */
};

static struct fx_buf *verbs_sink(int op)
{
	return op == OPCODE_READ ? &rig.mem : &rig.target.mem;
}

/* The same bytes several times over, so that there is work left at the cut. */
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
 * Waits until slices are under way on the rail that is about to go. A rail that
 * has just come back carries little, so a cut at any moment often finds none.
 * False if the jobs end before that.
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

/* Not a byte of what is over lands, neither now nor when the rail is back. */
static bool verbs_cut_mend(const struct verbs_cut *cut)
{
	struct fx_buf *sink = verbs_sink(cut->op);

	fx_buf_poison(&rig.mem, 0, VERBS_LEN);
	fx_buf_poison(&rig.target.mem, 0, VERBS_LEN);
	return ft_ok(cut->link(cut->rail, true), "%s: mended", cut->name) &&
	       ft_ok(fx_buf_still(sink, 0, VERBS_LEN, cut->still_ms) &&
		     fx_buf_poisoned(sink, 0, VERBS_LEN),
		     "%s: law2_not_one_byte_when_it_is_back", cut->name);
}

/*
 * Returns true if slices were on the rail at the cut: some were sent again, or
 * some were under way after the cut and the device may have delivered them.
 */
static bool verbs_cut_once(const struct verbs_cut *cut)
{
	struct fx_job jobs[VERBS_TIMES];
	uint64_t retries, other, from, left;
	bool good;

	if (!ft_ok(verbs_both_carry(), "%s: both_rails_carry", cut->name) ||
	    !ft_ok(verbs_cut_start(cut, jobs), "%s: under_way", cut->name))
		return false;
	retries = verbs_retries();
	if (!verbs_rail_busy(cut->rail, &jobs[VERBS_TIMES - 1]))
		ft_diag("%s: the jobs ended without the rail", cut->name);
	good = cut->link(cut->rail, false);
	from = ft_now_ns();
	left = verbs_stats(cut->rail).inflight_bytes;
	other = verbs_carried(!cut->rail);
	ft_ok(good && !fx_job_poll(&jobs[VERBS_TIMES - 1]),
	      "%s: cut_while_there_is_more_to_do", cut->name);
	ft_ok(verbs_cut_wait(jobs), "%s: all_tasks_complete", cut->name);
	retries = verbs_retries() - retries;
	other = verbs_carried(!cut->rail) - other;
	ft_diag("%s: %llu bytes under way at the cut; %llu ms after it, "
		"%llu bytes by the other rail, %llu slices sent again",
		cut->name, (unsigned long long)left,
		(unsigned long long)((ft_now_ns() - from) / 1000000),
		(unsigned long long)other, (unsigned long long)retries);
	ft_ok(other >= VERBS_BLOCK, "%s: the_other_rail_goes_on", cut->name);
	ft_ok(fx_buf_check(verbs_sink(cut->op), 0, VERBS_LEN, rig.sequence),
	      "%s: every_byte_is_in_place", cut->name);
	return verbs_cut_mend(cut) && (retries || (cut->delivers && left));
}

/* A cut between two slices of its rail says little: then there is another. */
static void verbs_cut(const struct verbs_cut *cut)
{
	bool hit = false;

	for (int i = 0; i < VERBS_TRIES && !hit; i++)
		hit = verbs_cut_once(cut);
	ft_ok(hit, "%s: slices_were_on_the_rail", cut->name);
}

/*
 * A link goes last: where it goes down under traffic, soft RoCE of Linux 6.1 is
 * left with a device that nothing gets through to until it is made anew, whoever
 * opens it. What is answered then takes rail 0, whose connections broke while
 * they were idle.
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
	ft_ok(verbs_works(0, FX_MIB, VERBS_LIMIT_MS), "and_all_works_then");
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
