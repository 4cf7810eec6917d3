/* SPDX-License-Identifier: BSD-2-Clause */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/functional/ft_laws.h"
#include "fabtests/functional/fx.h"

/* --- law 6: no output, handler, environment or global state -------------- */

extern char **environ;

#define LAW6_SIGNALS 65

static void law6_actions(struct sigaction *acts)
{
	memset(acts, 0, LAW6_SIGNALS * sizeof(*acts));
	for (int s = 1; s < LAW6_SIGNALS; s++)
		sigaction(s, NULL, &acts[s]);
}

static char *law6_environment(void)
{
	size_t len = 1;
	char *text;

	for (char **e = environ; *e; e++)
		len += strlen(*e) + 1;
	text = calloc(1, len);
	for (char **e = environ; text && *e; e++)
		strcat(strcat(text, *e), "\n");
	return text;
}

/* Creates and uses two engines. Makes calls that succeed and calls that fail,
 * which may cause log lines. Returns true if the former succeed. The function
 * itself prints nothing. */
static bool law6_life(const char *transport)
{
	transfer_engine_t a = fx_engine(transport), b = fx_engine(transport);
	struct fx_buf buf = fx_buf_map(FX_MIB, -1);
	struct fx_buf mem = fx_buf_map(FX_MIB, -1);
	struct nic_load_stat load[4];
	char name[128], links[4096];
	size_t n = 4;
	bool good;

	good = a && b && fx_register(a, &buf) && fx_register(b, &mem) &&
	       fx_engine_name(b, name, sizeof(name)) &&
	       fx_move(a, openSegment(a, name), OPCODE_WRITE, buf.p, mem.addr,
		       FX_MIB, FX_KIB) &&
	       !getNicLoadStats(a, load, &n) &&
	       !showLinks(a, links, sizeof(links), 0) && *links &&
	       !showLinks(a, links, sizeof(links), 1) && *links == '{' &&
	       te_settings_text(a, links, sizeof(links)) > 0;
	openSegment(a, "127.0.0.1:1");
	registerLocalMemory(a, NULL, 0, NULL, 1);
	submitTransfer(a, 17, NULL, 3);
	destroyTransferEngine(a);
	destroyTransferEngine(b);
	fx_buf_unmap(&mem);
	fx_buf_unmap(&buf);
	return good;
}

static bool law6_is_silent(const char *transport)
{
	int fd = memfd_create("stdout", MFD_CLOEXEC), saved;
	off_t said;
	bool good;

	fflush(stdout);
	saved = dup(STDOUT_FILENO);
	dup2(fd, STDOUT_FILENO);
	good = law6_life(transport);
	fflush(stdout);
	said = lseek(fd, 0, SEEK_END);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(fd);
	if (said)
		ft_diag("the library wrote %lld bytes to stdout",
			(long long)said);
	ft_ok(good, "law6_several_engines_per_process_%s", transport);
	return !said;
}

/* --- what an engine takes that does nothing ------------------------------- */

#define IDLE_KIB (40 * 1024)

static int law_wait(pid_t pid)
{
	int status = -1;

	for (int ms = 0; ms < FX_LONG_MS; ms++) {
		struct timespec pause = { .tv_nsec = 1000000 };

		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) :
						   128 + WTERMSIG(status);
		nanosleep(&pause, NULL);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return -1;
}

/* Creates an engine with one tcp rail. Returns a bit for each fault: 1: no
 * engine; 2: more endpoints than one; 4: too much resident memory. */
static int idle_child(void)
{
	struct te_rail_stats s = { .lanes = 0 };
	transfer_engine_t engine;
	int faults = 0;
	size_t n = 1;

	setenv("FI_OFI_RXM_MSG_RX_SIZE", "1024", 1);
	setenv("MOONRAIL_DEVICES", "127.0.0.1", 1);
	engine = fx_engine("tcp");
	if (!engine)
		return 1;
	if (te_rail_stats(engine, &s, sizeof(s), &n) || n != 1 || s.lanes != 1)
		faults |= 2;
	if (!fx_slow() && fx_rss_kib() > IDLE_KIB)
		faults |= 4;
	destroyTransferEngine(engine);
	return faults;
}

/* Tests in a child process, before libfabric is used, that an engine opens no tx
 * lane and little memory before it contacts a peer. */
static void idle_engine(void)
{
	int faults;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		_exit(idle_child());
	faults = pid > 0 ? law_wait(pid) : -1;
	ft_ok(faults >= 0 && !(faults & ~4),
	      "idle_engine_has_one_endpoint_per_rail");
	if (fx_slow())
		puts("skip - idle_engine_takes_40_mib: a sanitizer takes memory "
		     "of its own");
	else
		ft_ok(faults >= 0 && !(faults & ~2),
		      "idle_engine_takes_40_mib");
	if (faults)
		ft_diag("faults: %d", faults);
}

/* Must run first, so that it also sees changes that the library makes when it
 * is first used. */
static void law6_footprint(void)
{
	struct sigaction before[LAW6_SIGNALS], after[LAW6_SIGNALS];
	char *env = law6_environment(), *env_after;
	bool unchanged = true;

	law6_actions(before);
	ft_ok(law6_is_silent("tcp"), "law6_stdout_stays_empty_tcp");
	ft_ok(law6_is_silent("auto"), "law6_stdout_stays_empty_auto");
	law6_actions(after);
	for (int s = 1; s < LAW6_SIGNALS; s++) {
		if (before[s].sa_handler == after[s].sa_handler)
			continue;
		ft_diag("the handler of signal %d has changed", s);
		unchanged = false;
	}
	ft_ok(unchanged, "law6_no_signal_handler_is_installed");
	env_after = law6_environment();
	unchanged = env && env_after && !strcmp(env, env_after);
	if (!unchanged)
		ft_diag("environment before:\n%s# after:\n%s", env, env_after);
	ft_ok(unchanged, "law6_environment_is_unchanged");
	free(env_after);
	free(env);
}

/* Each of three engines writes a pattern of its own to the memory of each
 * engine. */
static void law6_three_engines(void)
{
	transfer_engine_t e[3];
	struct fx_buf mem[3];
	char name[3][128];
	bool good = true;

	for (int i = 0; i < 3; i++) {
		e[i] = fx_engine("tcp");
		mem[i] = fx_buf_map(2 * FX_MIB, -1);
		good = good && e[i] && fx_register(e[i], &mem[i]) &&
		       fx_engine_name(e[i], name[i], sizeof(name[i]));
	}
	for (int i = 0; good && i < 9; i++) {
		int from = i / 3, to = i % 3;
		segment_id_t seg = openSegment(e[from], name[to]);

		fx_buf_fill(&mem[from], 0, FX_MIB, (uint64_t)i);
		good = (from == to) == (seg == LOCAL_SEGMENT) &&
		       fx_move(e[from], seg, OPCODE_WRITE, mem[from].p,
			       mem[to].addr + FX_MIB, FX_MIB, 9999) &&
		       fx_buf_check(&mem[to], FX_MIB, FX_MIB, (uint64_t)i);
	}
	ft_ok(good, "law6_three_engines_transfer_among_each_other");
	destroyTransferEngine(e[1]);
	good = good && fx_move(e[0], openSegment(e[0], name[2]), OPCODE_READ,
			       mem[0].p, mem[2].addr, FX_MIB, 0);
	ft_ok(good, "law6_destroyed_engine_does_not_disturb_the_others");
	destroyTransferEngine(e[0]);
	destroyTransferEngine(e[2]);
	for (int i = 0; i < 3; i++)
		fx_buf_unmap(&mem[i]);
}

/* --- law 7: after fork --------------------------------------------------- */

/* Makes calls in a forked child, all of which must fail. Returns the number of
 * the first one that does not, or 0 if all fail. */
static int law7_child_calls(struct law_rig *rig)
{
	struct transfer_request req = { OPCODE_WRITE, rig->mem.p, rig->seg,
					rig->target.mem.addr, 64 };
	struct transfer_status st;
	char text[] = "x", buf[64];
	struct notify_msg note = { text, text };
	transfer_engine_t e = rig->engine;
	size_t n = 1;
	int size;

	return allocateBatchID(e, 1) != INVALID_BATCH ? 1 :
	       submitTransfer(e, 0, &req, 1) <= 0 ? 2 :
	       getTransferStatus(e, 0, 0, &st) <= 0 ? 3 :
	       freeBatchID(e, 0) <= 0 ? 4 :
	       openSegment(e, rig->target.name) != -1 ? 5 :
	       closeSegment(e, rig->seg) >= 0 ? 6 :
	       registerLocalMemory(e, buf, 64, "*", 1) >= 0 ? 7 :
	       unregisterLocalMemory(e, rig->mem.p) >= 0 ? 8 :
	       installTransport(e, "tcp", NULL) ? 9 :
	       getLocalIpAndPort(e, buf, sizeof(buf)) >= 0 ? 10 :
	       genNotifyInEngine(e, (uint64_t)rig->seg, note) >= 0 ? 11 :
	       getNotifsFromEngine(e, &size) ? 12 :
	       getNicLoadStats(e, NULL, &n) >= 0 ? 13 :
	       syncSegmentCache(e) >= 0 ? 14 : 0;
}

/* Forks while a transfer is in progress, so that the parent may hold locks at
 * the fork. */
static void law7_fork(struct law_rig *rig, bool destroy)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->target.mem.addr, .len = LAW_MEM,
			      .block = 4096 };
	int code;
	pid_t pid;

	fx_buf_fill(&rig->mem, 0, LAW_MEM, 7);
	ft_ok(!fx_job_start(&job), "submit");
	fflush(stdout);
	pid = fork();
	if (!pid) {
		code = law7_child_calls(rig);
		if (destroy)
			destroyTransferEngine(rig->engine);
		_exit(code);
	}
	code = law_wait(pid);
	ft_ok(!code, "law7_the_child_s_calls_are_errors");
	if (code)
		ft_diag("the child exited with %d", code);
	ft_ok(fx_job_wait(&job, FX_LONG_MS) &&
	      job.n[STATUS_COMPLETED] == job.tasks &&
	      fx_buf_check(&rig->target.mem, 0, LAW_MEM, 7) &&
	      law_write_works(rig, FX_MIB, 8), "law7_the_parent_goes_on");
	fx_job_free(&job);
}

void law_process(void)
{
	struct law_rig rig;

	idle_engine();
	law6_footprint();
	law6_three_engines();
	if (!law_rig_start(&rig))
		return;
	for (int i = 0; i < 6; i++)
		law7_fork(&rig, i % 2);
	law_rig_stop(&rig);
}
