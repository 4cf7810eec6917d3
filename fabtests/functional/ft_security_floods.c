/* SPDX-License-Identifier: BSD-2-Clause */
#include <poll.h>
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
 * What one bad client costs the others. A machine's pace changes from second
 * to second, so two targets are opened in turns, request by request, while one
 * of them is flooded: what the flooder's own use of the machine costs falls on
 * both alike. Then the other is flooded. No process has a secret, so that what
 * floods are valid requests.
 */
#define FLOOD_ROUNDS	10	/* even: each target is flooded in half of them */
#define FLOOD_REQUESTS	400	/* in a round, 4 ms apart */
#define FLOOD_SLOWEST	20	/* left out of a mean: the machine's own */
#define FLOOD_SETTLE_NS	500000000
#define FLOOD_CONNS	200

struct flood_rig {
	transfer_engine_t engine;
	struct fx_peer target[2];
	/* microseconds of a round, of the target that is flooded or not */
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

static bool flood_open(struct flood_rig *rig, int target, double *us)
{
	struct timespec pause = { .tv_nsec = 4000000 };
	uint64_t from = ft_now_ns();
	segment_id_t seg = openSegmentNoCache(rig->engine,
					      rig->target[target].name);

	*us = (double)(ft_now_ns() - from) / 1e3;
	if (seg < 0)
		return false;
	closeSegment(rig->engine, seg);
	nanosleep(&pause, NULL);
	return true;
}

static void flood_figures(double *us, int count, double *median, double *mean)
{
	double sum = 0;
	int i;

	ft_sort(us, (size_t)count);
	for (i = 0; i < count - FLOOD_SLOWEST; i++)
		sum += us[i];
	*median = us[count / 2];
	*mean = sum / (count - FLOOD_SLOWEST);
}

/* One round's openings of both, in turns; victim is flooded, -1: none is. */
static bool flood_openings(struct flood_rig *rig, int victim, int round)
{
	static double us[2][FLOOD_REQUESTS / 2];
	int i, target;

	for (i = 0; i < FLOOD_REQUESTS; i++) {
		target = i & 1;
		if (!flood_open(rig, target, &us[target != victim][i / 2]))
			return false;
	}
	for (i = 0; i < 2; i++)
		flood_figures(us[i], FLOOD_REQUESTS / 2, &rig->median[i][round],
			      &rig->mean[i][round]);
	return true;
}

static bool flood_round(struct flood_rig *rig, int round,
			void (*fn)(const char *))
{
	struct timespec settle = { .tv_nsec = FLOOD_SETTLE_NS };
	int victim = round & 1;
	pid_t pid = fork();
	bool good;

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn(rig->target[victim].name);
		_exit(0);
	}
	if (pid < 0)
		return false;
	nanosleep(&settle, NULL);
	good = flood_openings(rig, victim, round);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return good;
}

/*
 * Of pairs of rounds, which differ in the victim: "+1.2 % (-0.5 to +2.0)", the
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
	bool good = true;
	double bound = 0;

	if (strcmp(only, "1") && !strstr(what, only))
		return;
	for (int i = 0; good && i < FLOOD_ROUNDS; i++)
		good = flood_round(rig, i, fn);
	if (!ft_ok(good, "every_request_is_answered_beside_%s", what))
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
	pause();
}

void sec_floods(void)
{
	static struct flood_rig rig;

	if (!ft_ok(fx_target_start(&rig.target[0], FX_MIB) &&
		   fx_target_start(&rig.target[1], FX_MIB), "two_targets"))
		return;
	rig.engine = fx_engine("tcp");
	flood_beside(&rig, "nobody", flood_by_nobody);
	flood_beside(&rig, "silence", flood_silence);
	flood_beside(&rig, "a_drip", flood_drip);
	flood_beside(&rig, "a_flood_over_1", flood_one);
	flood_beside(&rig, "a_flood_over_200", flood_many);
	flood_beside(&rig, "connects", flood_connects);
	destroyTransferEngine(rig.engine);
	ft_ok(fx_peer_stop(&rig.target[0]) && fx_peer_stop(&rig.target[1]),
	      "both_end_well");
}
