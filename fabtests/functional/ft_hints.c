/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Causes faults of the network, of a limit or of a filter that users meet, and
 * checks that the hint of the error says what the user can do. Each case runs
 * in a process of its own, because most cases need a network namespace and some
 * drop privileges.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabtests/functional/fx.h"

/* ports of the cases in network namespaces of their own */
#define HINTS_PORTS	"41000-41063"
#define HINTS_MATCH	"-p tcp --dport 41000:41063"
#define HINTS_MEM	FX_MIB

/* --- helper functions ----------------------------------------------------- */

/* Returns true if the last error of this thread contains `text` in its text and
 * `hint` in its hint. */
static bool hints_say(const char *text, const char *hint)
{
	struct te_error err = { 0 };
	bool good = !te_last_error(&err, sizeof(err)) &&
		    strstr(err.text, text) && strstr(err.hint, hint);

	ft_diag("%s; %s", err.text, err.hint);
	return good;
}

/* Moves the process to a new network namespace and enables its loopback
 * interface. */
static bool hints_netns(void)
{
	return !unshare(CLONE_NEWNET) && !system("ip link set lo up");
}

static bool hints_run(const char *command)
{
	int ret = system(command);

	if (ret)
		ft_diag("%s: %d", command, ret);
	return !ret;
}

/* Makes the system call `call` fail with the errno `error` in this thread, and
 * in the threads and processes that it starts. */
static bool hints_filter(long call, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K,
			 SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* --- the control channel -------------------------------------------------- */

static int hints_no_route(void)
{
	transfer_engine_t e;

	if (!hints_netns())
		return ft_skip("needs a network namespace");
	e = fx_engine(NULL);
	ft_ok(e && openSegment(e, "192.0.2.1:12345") < 0 &&
		      hints_say("unreachable", "ip route get"),
	      "absent_route_is_named_with_the_command_that_shows_it");
	destroyTransferEngine(e);
	return ft_result();
}

static int hints_timed_out(void)
{
	transfer_engine_t e;

	if (!hints_netns() ||
	    !hints_run("iptables -w 10 -I INPUT " HINTS_MATCH " -j DROP"))
		return ft_skip("needs a network namespace and iptables");
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", "1", 1);
	e = fx_engine(NULL);
	ft_ok(e && openSegment(e, "127.0.0.1:41000") < 0 &&
	      hints_say("timed out", "does a firewall drop packets"),
	      "silent_host_is_named_with_firewall_and_timeout");
	destroyTransferEngine(e);
	return ft_result();
}

static int hints_many_files(void)
{
	struct rlimit few = { 256, 256 };
	transfer_engine_t e = fx_engine(NULL);
	int last = 0;

	if (!e || setrlimit(RLIMIT_NOFILE, &few))
		return ft_skip("no engine, or the limit of open files cannot "
			       "be lowered");
	while (dup(STDOUT_FILENO) >= 0)
		last++;
	ft_ok(last > 0 && openSegment(e, "127.0.0.1:12345") < 0 &&
		      hints_say("open files", "ulimit -n"),
	      "failure_by_too_many_open_files_names_the_limit");
	_exit(ft_result());	/* without destroying the engine, which would
				 * need file descriptors */
}

/* The range of local ports has one port, and that is already in use for the
 * same destination. */
static int hints_no_port(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	transfer_engine_t e;
	char name[64];
	int fd, held;

	if (!hints_netns() ||
	    !hints_run("echo 40000 40000 > /proc/sys/net/ipv4/ip_local_port_range"))
		return ft_skip("needs a network namespace");
	e = fx_engine(NULL);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sa.sin_port = htons(30000);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!e || bind(fd, (void *)&sa, len) || listen(fd, 8) ||
	    connect(held, (void *)&sa, len))
		return ft_skip("the port cannot be occupied: %s",
			       strerror(errno));
	snprintf(name, sizeof(name), "127.0.0.1:%u", ntohs(sa.sin_port));
	ft_ok(openSegment(e, name) < 0 &&
	      hints_say("assign requested address", "ip_local_port_range"),
	      "used_up_ports_name_the_range");
	close(held);
	close(fd);
	destroyTransferEngine(e);
	return ft_result();
}

static int hints_no_zone(void)
{
	transfer_engine_t e = fx_engine(NULL);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return ft_skip("no IPv6 here");
	close(fd);
	ft_ok(e && openSegment(e, "[fe80::1]:12345") < 0 &&
	      hints_say("fe80::1", "fe80::1%eth0"),
	      "link_local_address_without_interface_is_named");
	destroyTransferEngine(e);
	return ft_result();
}

static int hints_filtered_connect(void)
{
	transfer_engine_t e = fx_engine(NULL);

	if (!e || !hints_filter(SYS_connect, EPERM))
		return ft_skip("no seccomp filter can be set");
	ft_ok(openSegment(e, "127.0.0.1:12345") < 0 &&
	      hints_say("not permitted", "seccomp"),
	      "forbidden_connect_names_seccomp");
	_exit(ft_result());
}

/* --- threads -------------------------------------------------------------- */

static int hints_no_thread(void)
{
	struct rlimit none = { 0, 0 };
	transfer_engine_t e;

	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) ||
	    setrlimit(RLIMIT_NPROC, &none))
		return ft_skip("needs root, to become another user");
	e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
	ft_ok(!e && hints_say("", "limit on threads"),
	      "thread_limit_is_named");
	destroyTransferEngine(e);
	return ft_result();
}

static int hints_filtered_thread(void)
{
	transfer_engine_t e;

	if (!hints_filter(SYS_clone3, EPERM))
		return ft_skip("no seccomp filter can be set");
	e = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
	ft_ok(!e && hints_say("", "seccomp"),
	      "forbidden_thread_names_seccomp");
	destroyTransferEngine(e);
	return ft_result();
}

/* --- copies inside a host ------------------------------------------------- */

/* The peer is on this host, and a seccomp filter forbids the call that copies
 * from its memory. */
static int hints_filtered_copy(void)
{
	transfer_engine_t e = fx_engine("auto");
	struct te_path paths[8];
	struct fx_peer peer;
	size_t n = 8;
	int seg;

	if (!e || !fx_peer_start(&peer, HINTS_MEM, "transport=auto", NULL) ||
	    fx_ask(&peer, "reg 0 %llu 1", HINTS_MEM))
		return ft_skip("the peer for local copies did not start");
	if (!hints_filter(SYS_process_vm_readv, EPERM))
		return ft_skip("no seccomp filter can be set");
	seg = openSegment(e, peer.name);
	memset(paths, 0, sizeof(paths));
	if (ft_ok(seg > 0 && !te_segment_paths(e, seg, NULL, paths,
					       sizeof(paths[0]), &n) && n > 0 &&
		  strstr(paths[0].why_not_local, "seccomp"),
		  "forbidden_copy_names_seccomp"))
		ft_diag("%s", paths[0].why_not_local);
	fx_peer_stop(&peer);
	_exit(ft_result());
}

/* --- the data ports ------------------------------------------------------- */

/* Submits a write of len bytes, which must fail. Checks that the hint in its
 * error record contains `hint`. */
static void hints_write(transfer_engine_t e, const struct fx_peer *peer,
			uint64_t len, const char *hint, const char *name)
{
	struct fx_buf mem = fx_buf_map(HINTS_MEM, -1);
	struct fx_job job = { .engine = e, .op = OPCODE_WRITE, .len = len };
	struct te_error err = { 0 };

	job.seg = fx_register(e, &mem) ? openSegment(e, peer->name) : -1;
	job.local = mem.p;
	job.remote = peer->mem.addr;
	ft_ok(job.seg > 0 && !fx_job_start(&job) &&
	      fx_job_wait(&job, FX_LONG_MS) &&
	      !te_task_error(e, job.id, 0, &err, sizeof(err)) &&
	      strstr(err.hint, hint), "%s", name);
	ft_diag("%s: %s; %s", fx_job_text(&job), err.text, err.hint);
	fx_job_free(&job);
}

static bool hints_data(struct fx_peer *peer)
{
	setenv("MOONRAIL_DEVICES", "127.0.0.1", 1);
	return hints_netns() &&
	       fx_peer_start(peer, HINTS_MEM,
			     "MOONRAIL_DATA_PORTS=" HINTS_PORTS, NULL) &&
	       !fx_ask(peer, "reg 0 %llu 1", HINTS_MEM);
}

static int hints_firewall(void)
{
	struct fx_peer peer;
	transfer_engine_t e;

	if (!hints_data(&peer) ||
	    !hints_run("iptables -w 10 -I INPUT " HINTS_MATCH " -j DROP"))
		return ft_skip("needs a network namespace and iptables");
	e = fx_engine_hasty("tcp");
	hints_write(e, &peer, 64, "MOONRAIL_DATA_PORTS=LOW-HIGH",
		    "dropped_data_port_names_the_setting_that_pins_it");
	fx_peer_kill(&peer);
	destroyTransferEngine(e);
	return ft_result();
}

/* Drops packets of 1400 bytes and more. A path has this effect if its MTU is
 * smaller and the ICMP messages about it are lost. */
static int hints_black_hole(void)
{
	struct fx_buf mem = fx_buf_map(4096, -1);
	struct fx_peer peer;
	transfer_engine_t e;
	int seg;

	if (!hints_data(&peer))
		return ft_skip("needs a network namespace");
	e = fx_engine_timeout("tcp", 3);
	seg = e ? openSegment(e, peer.name) : -1;
	if (!ft_ok(seg > 0 && fx_register(e, &mem) &&
		   fx_move(e, seg, OPCODE_WRITE, mem.p, peer.mem.addr, 64, 0),
		   "small_write_passes"))
		return ft_result();
	if (!hints_run("iptables -w 10 -I INPUT " HINTS_MATCH
		       " -m length --length 1400:65535 -j DROP"))
		return ft_skip("needs iptables with its length match");
	hints_write(e, &peer, HINTS_MEM, "check the MTU",
		    "black_hole_for_large_packets_names_the_mtu");
	fx_peer_kill(&peer);
	destroyTransferEngine(e);
	return ft_result();
}

/* --- the cases ------------------------------------------------------------ */

static const struct {
	const char *name;
	int (*fn)(void);
} hints_cases[] = {
	{ "no_route", hints_no_route },
	{ "timed_out", hints_timed_out },
	{ "many_files", hints_many_files },
	{ "no_port", hints_no_port },
	{ "no_zone", hints_no_zone },
	{ "filtered_connect", hints_filtered_connect },
	{ "no_thread", hints_no_thread },
	{ "filtered_thread", hints_filtered_thread },
	{ "filtered_copy", hints_filtered_copy },
	{ "firewall", hints_firewall },
	{ "black_hole", hints_black_hole },
};

int main(int argc, char **argv)
{
	size_t i, skipped = 0, n = sizeof(hints_cases) / sizeof(hints_cases[0]);
	int status;
	pid_t pid;

	fx_init(argc, argv);
	for (i = 0; i < n; i++) {
		fflush(stdout);
		pid = fork();
		if (!pid) {
			status = hints_cases[i].fn();
			fflush(stdout);
			/* _exit skips LeakSanitizer's check, which needs a
			 * thread and ptrace. The limits of some cases forbid
			 * these. */
			_exit(status);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid)
			status = -1;
		status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		skipped += status == FT_SKIPPED;
		ft_ok(!status || status == FT_SKIPPED, "case_%s_ends_well",
		      hints_cases[i].name);
	}
	if (skipped == n)
		return ft_skip("no case can run here");
	return ft_result();
}
