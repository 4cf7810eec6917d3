/* SPDX-License-Identifier: BSD-2-Clause */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
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
 * to second, so openings are timed in short rounds, in turns: nobody floods,
 * our target is flooded, another process is. The last is what the flooder's
 * own use of the machine costs, whomever it floods. No process has a secret, so
 * that what floods are valid requests.
 */
#define FLOOD_ROUNDS	12
#define FLOOD_REQUESTS	100	/* in a round, 4 ms apart */
#define FLOOD_SETTLE_NS	200000000
#define FLOOD_CONNS	200

enum flood_whom { FLOOD_NOBODY, FLOOD_TARGET, FLOOD_OTHER, FLOOD_STATES };

struct flood_rig {
	transfer_engine_t engine;
	struct fx_peer target, other;
	/* microseconds */
	double median[FLOOD_STATES][FLOOD_ROUNDS];
	double mean[FLOOD_STATES][FLOOD_ROUNDS];
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

/* One round's openings, one after the other. */
static bool flood_openings(struct flood_rig *rig, double *median, double *mean)
{
	struct timespec pause = { .tv_nsec = 4000000 };
	double us[FLOOD_REQUESTS], sum = 0;

	for (int i = 0; i < FLOOD_REQUESTS; i++) {
		uint64_t from = ft_now_ns();
		segment_id_t seg = openSegmentNoCache(rig->engine,
						      rig->target.name);

		us[i] = (double)(ft_now_ns() - from) / 1e3;
		if (seg < 0)
			return false;
		closeSegment(rig->engine, seg);
		nanosleep(&pause, NULL);
	}
	ft_sort(us, FLOOD_REQUESTS);
	/* without the slowest 5: the machine's own */
	for (int i = 0; i < FLOOD_REQUESTS - 5; i++)
		sum += us[i];
	*median = us[FLOOD_REQUESTS / 2];
	*mean = sum / (FLOOD_REQUESTS - 5);
	return true;
}

static bool flood_round(struct flood_rig *rig, enum flood_whom whom, int round,
			void (*fn)(const char *))
{
	struct timespec settle = { .tv_nsec = FLOOD_SETTLE_NS };
	const char *name = whom == FLOOD_TARGET ? rig->target.name :
						  rig->other.name;
	pid_t pid = 0;
	bool good;

	if (whom != FLOOD_NOBODY)
		pid = fork();
	if (!pid && whom != FLOOD_NOBODY) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn(name);
		_exit(0);
	}
	nanosleep(&settle, NULL);
	good = flood_openings(rig, &rig->median[whom][round],
			      &rig->mean[whom][round]);
	if (pid > 0) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	return good;
}

/* Of the rounds' ratios: "+1.2 % (-0.5 to +2.0)", the middle half. */
static void flood_ratio(const char *what, const double *with,
			const double *without)
{
	double r[FLOOD_ROUNDS];

	for (int i = 0; i < FLOOD_ROUNDS; i++)
		r[i] = (with[i] / without[i] - 1) * 100;
	ft_sort(r, FLOOD_ROUNDS);
	ft_diag("  %-34s %+6.2f %% (%+.1f to %+.1f)", what,
		(r[FLOOD_ROUNDS / 2 - 1] + r[FLOOD_ROUNDS / 2]) / 2,
		r[FLOOD_ROUNDS / 4], r[FLOOD_ROUNDS * 3 / 4]);
}

static void flood_beside(struct flood_rig *rig, const char *what,
			 void (*fn)(const char *))
{
	bool good = true;
	double bound = 0;

	for (int i = 0; i < FLOOD_ROUNDS; i++)
		for (int k = 0; good && k < FLOOD_STATES; k++)
			good = flood_round(rig, (enum flood_whom)
					   ((i + k) % FLOOD_STATES), i, fn);
	if (!ft_ok(good, "every_request_is_answered_beside_%s", what))
		return;
	ft_diag("%s:", what);
	flood_ratio("median, against nobody's flood",
		    rig->median[FLOOD_TARGET], rig->median[FLOOD_NOBODY]);
	flood_ratio("median, against another's flood",
		    rig->median[FLOOD_TARGET], rig->median[FLOOD_OTHER]);
	flood_ratio("mean, against nobody's flood", rig->mean[FLOOD_TARGET],
		    rig->mean[FLOOD_NOBODY]);
	flood_ratio("mean, against another's flood", rig->mean[FLOOD_TARGET],
		    rig->mean[FLOOD_OTHER]);
	/* figures are for a quiet machine; this holds on any */
	for (int i = 0; i < FLOOD_ROUNDS; i++)
		bound += rig->median[FLOOD_TARGET][i] -
			 20 * rig->median[FLOOD_NOBODY][i] - 20000;
	ft_ok(bound < 0, "not_held_up_by_%s", what);
}

void sec_floods(void)
{
	static struct flood_rig rig;

	if (!ft_ok(fx_target_start(&rig.target, FX_MIB) &&
		   fx_target_start(&rig.other, FX_MIB), "two_targets"))
		return;
	rig.engine = fx_engine("tcp");
	flood_beside(&rig, "silence", flood_silence);
	flood_beside(&rig, "a_drip", flood_drip);
	flood_beside(&rig, "a_flood_over_1", flood_one);
	flood_beside(&rig, "a_flood_over_200", flood_many);
	flood_beside(&rig, "connects", flood_connects);
	destroyTransferEngine(rig.engine);
	ft_ok(fx_peer_stop(&rig.target) && fx_peer_stop(&rig.other),
	      "both_end_well");
}
