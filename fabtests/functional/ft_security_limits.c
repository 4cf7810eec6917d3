/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabtests/functional/ft_security.h"
#include "fabtests/functional/fx.h"

/* MOONRAIL_MAX_NOTIFIES: the maximum number of notifications that an engine
 * keeps while the application does not fetch them. */

#define LIMIT_HELD 4

static int limit_note(transfer_engine_t e, segment_id_t seg, int n)
{
	char name[] = "n", msg[16];
	struct notify_msg note = { name, msg };

	snprintf(msg, sizeof(msg), "%d", n);
	return genNotifyInEngine(e, (uint64_t)seg, note);
}

static bool limit_refused(int ret)
{
	struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	return ret == -2 && strstr(err.text, "MOONRAIL_MAX_NOTIFIES=4");
}

static bool limit_heard(void *arg)
{
	char text[8192] = "";
	ssize_t n = pread(*(int *)arg, text, sizeof(text) - 1, 0);

	return n > 0 && strstr(text, "MOONRAIL_MAX_NOTIFIES=4");
}

static void limit_own(transfer_engine_t e)
{
	notify_msg_t *got;
	bool good = true;
	int n;

	for (int i = 0; i < LIMIT_HELD; i++)
		good = good && !limit_note(e, LOCAL_SEGMENT, i);
	ft_ok(good && limit_refused(limit_note(e, LOCAL_SEGMENT, 9)) &&
		      limit_refused(limit_note(e, LOCAL_SEGMENT, 9)),
	      "notification_to_self_above_the_limit_is_refused");
	got = getNotifsFromEngine(e, &n);
	ft_ok(n == LIMIT_HELD && !strcmp(got[LIMIT_HELD - 1].msg, "3"),
	      "notifications_to_self_below_the_limit_are_kept");
	freeNotifsMsgBuf(got, n);
	ft_ok(!limit_note(e, LOCAL_SEGMENT, 1),
	      "notification_after_a_fetch_is_accepted");
	got = getNotifsFromEngine(e, &n);
	freeNotifsMsgBuf(got, n);
}

/* Sends one notification more than the target may keep. The last one waits at
 * the sender and is withdrawn when the sender's timeout has passed. */
static void limit_received(transfer_engine_t e, struct fx_peer *target,
			   int log)
{
	segment_id_t seg = openSegment(e, target->name);
	struct te_error err = { 0 };
	bool good = seg > 0;

	for (int i = 0; i < LIMIT_HELD; i++)
		good = good && !limit_note(e, seg, i);
	ft_ok(good && fx_ask(target, "notes 4") == 4,
	      "notifications_up_to_the_limit_arrive");
	for (int i = 0; i < LIMIT_HELD; i++)
		good = good && !limit_note(e, seg, 10 + i);
	ft_ok(good && limit_note(e, seg, 14) == -2 &&
		      !te_last_error(&err, sizeof(err)) && err.code == -2 &&
		      strstr(err.hint, "MOONRAIL_MAX_NOTIFIES"),
	      "notification_above_the_limit_is_refused_with_a_hint");
	ft_diag("%s; %s", err.text, err.hint);
	ft_ok(ft_wait_until(limit_heard, &log, fx_ms(20000)),
	      "the_target_logs_its_limit");
	ft_ok(fx_ask(target, "notes 4") == 4 &&
	      !strncmp(target->text, "n=10 n=11 n=12 n=13", 19) &&
	      !strstr(target->text, "n=14"), "the_first_ones_are_kept");
	ft_ok(!limit_note(e, seg, 20) && fx_ask(target, "notes 1") == 1 &&
		      strstr(target->text, "n=20"),
	      "notification_after_a_fetch_is_accepted");
	closeSegment(e, seg);
}

void sec_limits(void)
{
	int log = memfd_create("log", 0);
	struct fx_peer target;
	transfer_engine_t e;
	char option[32], seconds[16];

	snprintf(option, sizeof(option), "log=%d", log);
	setenv("MOONRAIL_MAX_NOTIFIES", "4", 1);
	snprintf(seconds, sizeof(seconds), "%u", fx_ms(2000) / 1000);
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", seconds, 1);
	if (!ft_ok(fx_peer_start(&target, FX_MIB, option, NULL) &&
		   !fx_ask(&target, "reg 0 %llu 1", FX_MIB),
		   "a_target_that_holds_four"))
		return;
	e = fx_engine("tcp");
	limit_own(e);
	limit_received(e, &target, log);
	destroyTransferEngine(e);
	ft_ok(fx_peer_stop(&target), "target_ends_without_error");
	unsetenv("MOONRAIL_MAX_NOTIFIES");
	unsetenv("MC_HANDSHAKE_CONNECT_TIMEOUT");
	close(log);
}
