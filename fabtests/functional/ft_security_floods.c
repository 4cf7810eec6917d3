/* SPDX-License-Identifier: BSD-2-Clause */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_num.h"
#include "fabtests/functional/ft_security.h"
#include "fabtests/functional/fx.h"

/*
 * What one bad client costs the others, in pairs of phases: it floods, it does
 * not. It has a CPU of its own, as it would have a machine of its own; target
 * and initiator share the rest, so that all that the target does for it is
 * counted. A machine's pace changes from second to second: phases are short,
 * and which of a pair comes first changes. No process has a secret, so that
 * what floods are valid requests.
 */
#define FLOOD_ROUNDS	60	/* even: pairs begin with either */
#define FLOOD_REQUESTS	60	/* in a phase, 4 ms apart */
#define FLOOD_SLOWEST	3	/* left out of a mean: the machine's own */
#define FLOOD_SETTLE_NS	250000000 /* until those that wait are served */
#define FLOOD_SPEND_NS	999999999 /* until the flooder has spent its credit */
#define FLOOD_CONNS	200

struct flood_rig {
	transfer_engine_t engine;
	struct fx_peer target;
	int cpu;		/* the flooder's, -1: any */
	pid_t flooder;
	/* microseconds of a phase, with the flood or without */
	double median[2][FLOOD_ROUNDS], mean[2][FLOOD_ROUNDS];
};

/* --- floods -------------------------------------------------------------- */

/* count connections, each with a question as soon as the last is answered. */
static void flood_asks(const char *name, int count)
{
	struct pollfd p[FLOOD_CONNS];
	uint8_t frame[SEC_HEAD], junk[4096];
	int i;

	sec_frame(frame, 1, SEC_PING, 0);
	for (i = 0; i < count; i++)
		p[i] = (struct pollfd){ .fd = -1 };
	for (;;) {
		for (i = 0; i < count; i++) {
			if (p[i].fd >= 0 && !p[i].revents)
				continue;
			if (p[i].fd >= 0 &&
			    recv(p[i].fd, junk, sizeof(junk), 0) > 0 &&
			    send(p[i].fd, frame, sizeof(frame),
				 MSG_NOSIGNAL) > 0)
				continue;
			if (p[i].fd >= 0)
				close(p[i].fd);
			p[i].fd = sec_connect(name, "127.0.0.66");
			p[i].events = POLLIN;
			send(p[i].fd, frame, sizeof(frame), MSG_NOSIGNAL);
		}
		poll(p, (nfds_t)count, 100);
	}
}

static void flood_one(const char *name)
{
	flood_asks(name, 1);
}

static void flood_many(const char *name)
{
	flood_asks(name, FLOOD_CONNS);
}

static void flood_connects(const char *name)
{
	for (;;)
		close(sec_connect(name, "127.0.0.66"));
}

static void flood_silence(const char *name)
{
	int fd[FLOOD_CONNS], i;

	for (i = 0; i < FLOOD_CONNS; i++)
		fd[i] = -1;
	for (i = 0;; i = (i + 1) % FLOOD_CONNS) {
		close(fd[i]);
		fd[i] = sec_connect(name, "127.0.0.66");
		poll(NULL, 0, 10);
	}
}

static void flood_drip(const char *name)
{
	uint8_t frame[SEC_HEAD];
	size_t i;
	int fd;

	sec_frame(frame, 1, SEC_AUTH, 32);
	for (;;) {
		fd = sec_connect(name, "127.0.0.66");
		for (i = 0; i < SEC_HEAD; i++) {
			send(fd, frame + i, 1, MSG_NOSIGNAL);
			poll(NULL, 0, 2);
		}
		close(fd);
	}
}

/* --- what they cost ------------------------------------------------------ */

static bool flood_open(struct flood_rig *rig, double *us)
{
	struct timespec pause = { .tv_nsec = 4000000 };
	uint64_t from = ft_now_ns();
	segment_id_t seg = openSegmentNoCache(rig->engine, rig->target.name);

	*us = (double)(ft_now_ns() - from) / 1e3;
	if (seg < 0)
		return false;
	closeSegment(rig->engine, seg);
	nanosleep(&pause, NULL);
	return true;
}

static bool flood_openings(struct flood_rig *rig, int calm, int round)
{
	static double us[FLOOD_REQUESTS];
	double sum = 0;
	int i;

	for (i = 0; i < FLOOD_REQUESTS; i++)
		if (!flood_open(rig, &us[i]))
			return false;
	ft_sort(us, FLOOD_REQUESTS);
	for (i = 0; i < FLOOD_REQUESTS - FLOOD_SLOWEST; i++)
		sum += us[i];
	rig->median[calm][round] = us[FLOOD_REQUESTS / 2];
	rig->mean[calm][round] = sum / (FLOOD_REQUESTS - FLOOD_SLOWEST);
	return true;
}

/* All but the flooders keep off the last CPU that there is. */
static void flood_pin(int cpu, bool to)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	sched_getaffinity(0, sizeof(set), &set);
	if (to)
		CPU_ZERO(&set);
	else
		CPU_CLR(cpu, &set);
	if (to)
		CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static int flood_cpu(void)
{
	int cpu = CPU_SETSIZE;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) || CPU_COUNT(&set) < 2) {
		ft_diag("one CPU: what a flooder uses of it counts as a cost");
		return -1;
	}
	while (!CPU_ISSET(--cpu, &set))
		;
	return cpu;
}

static bool flood_phase(struct flood_rig *rig, int calm, int round)
{
	struct timespec settle = { .tv_nsec = FLOOD_SETTLE_NS };

	kill(rig->flooder, calm ? SIGSTOP : SIGCONT);
	nanosleep(&settle, NULL);
	return flood_openings(rig, calm, round);
}

static bool flood_rounds(struct flood_rig *rig, void (*fn)(const char *))
{
	struct timespec spend = { .tv_nsec = FLOOD_SPEND_NS };
	bool good = true;
	int i;

	rig->flooder = fork();
	if (!rig->flooder) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		flood_pin(rig->cpu, true);
		fn(rig->target.name);
		_exit(0);
	}
	if (rig->flooder < 0)
		return false;
	nanosleep(&spend, NULL);
	for (i = 0; good && i < FLOOD_ROUNDS; i++)
		good = flood_phase(rig, i & 1, i) &&
		       flood_phase(rig, !(i & 1), i);
	kill(rig->flooder, SIGKILL);
	waitpid(rig->flooder, NULL, 0);
	return good;
}

/*
 * Of two rounds, which differ in what came first: "+1.2 % (-0.5 to +2.0)", the
 * middle half.
 */
static void flood_ratio(const char *what, double of[2][FLOOD_ROUNDS])
{
	double r[FLOOD_ROUNDS / 2];
	const int n = FLOOD_ROUNDS / 2;

	for (int i = 0; i < n; i++)
		r[i] = (of[0][2 * i] / of[1][2 * i] * of[0][2 * i + 1] /
			of[1][2 * i + 1] - 1) * 50; /* a root of nearly 1 */
	ft_sort(r, (size_t)n);
	ft_diag("  %s %+6.2f %% (%+.1f to %+.1f)", what, r[n / 2], r[n / 4],
		r[n - 1 - n / 4]);
}

static void flood_beside(struct flood_rig *rig, const char *what,
			 void (*fn)(const char *))
{
	const char *only = getenv("FT_SECURITY_FLOODS");
	double bound = 0;

	if (strcmp(only, "1") && !strstr(what, only))
		return;
	if (!ft_ok(flood_rounds(rig, fn), "every_request_is_answered_beside_%s", what))
		return;
	ft_diag("%s, %.0f us where it does not flood:", what,
		rig->median[1][0]);
	flood_ratio("median", rig->median);
	flood_ratio("mean  ", rig->mean);
	/* figures are for a quiet machine; this holds on any */
	for (int i = 0; i < FLOOD_ROUNDS; i++)
		bound += rig->median[0][i] - 20 * rig->median[1][i] - 20000;
	ft_ok(bound < 0, "not_held_up_by_%s", what);
}

static void flood_by_nobody(const char *name)
{
	(void)name;
	for (;;)
		pause();
}

void sec_floods(void)
{
	static struct flood_rig rig;

	rig.cpu = flood_cpu();
	flood_pin(rig.cpu, false);
	if (!ft_ok(fx_target_start(&rig.target, FX_MIB), "a_target_to_flood"))
		return;
	rig.engine = fx_engine("tcp");
	flood_beside(&rig, "nobody", flood_by_nobody);
	flood_beside(&rig, "silence", flood_silence);
	flood_beside(&rig, "a_drip", flood_drip);
	flood_beside(&rig, "a_flood_over_1", flood_one);
	flood_beside(&rig, "a_flood_over_200", flood_many);
	flood_beside(&rig, "connects", flood_connects);
	destroyTransferEngine(rig.engine);
	ft_ok(fx_peer_stop(&rig.target), "it_ends_well_after_floods");
}
