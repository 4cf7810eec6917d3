/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/functional/ft_laws.h"
#include "fabtests/functional/fx.h"

#define NOTE_HELD 4096		/* default of MOONRAIL_MAX_NOTIFIES */

/* In these tests the peer sends notifications, and this process receives
 * them. */
struct note_rig {
	struct law_rig law;
	char name[128];
	int back;		/* segment id by which the peer has opened this
				 * process */
};

/* Receives one notification and copies it to `text` as "NAME=MSG", truncated to
 * len bytes. Returns false if none arrives within `ms`. */
static bool note_take(struct note_rig *rig, char *text, size_t len,
		      unsigned int ms)
{
	struct timespec pause = { .tv_nsec = 200000 };
	notify_msg_t *got = NULL;
	int n = 0;

	for (unsigned int i = 0; !n && i < ms * 5; i++) {
		got = getNotifsFromEngine(rig->law.engine, &n);
		if (!n)
			nanosleep(&pause, NULL);
	}
	if (n)
		snprintf(text, len, "%s=%s", got[0].name, got[0].msg);
	freeNotifsMsgBuf(got, n);
	return n == 1;
}

static bool note_data_round(struct note_rig *rig, uint64_t len, uint64_t seq)
{
	struct law_rig *law = &rig->law;
	char text[64];
	bool good;

	fx_buf_fill(&law->target.mem, 0, len, seq);
	fx_buf_poison(&law->mem, 0, len);
	if (fx_ask(&law->target, "start %d 1 0 %llu %llu 0 1 here", rig->back,
		   (unsigned long long)law->mem.addr, (unsigned long long)len))
		return false;
	good = note_take(rig, text, sizeof(text), FX_LONG_MS) &&
	       fx_buf_check(&law->mem, 0, len, seq) &&
	       !strcmp(text, "here=here");
	return !fx_ask(&law->target, "wait") && good;
}

static void note_after_the_data(struct note_rig *rig)
{
	static const uint64_t sizes[] = { 1, 100, 65536, 1000001, LAW_MEM };
	bool good = true;

	for (uint64_t i = 0; good && i < 40; i++)
		good = note_data_round(rig, sizes[i % 5], i + 1);
	ft_ok(good, "law1_a_notification_comes_after_the_data");
}

static void note_in_order(struct note_rig *rig)
{
	struct timespec pause = { .tv_nsec = 200000 };
	unsigned int seen = 0, many = 400;
	bool good = true;
	char want[32];

	for (unsigned int i = 0; good && i < many; i++)
		good = !fx_ask(&rig->law.target, "notify %d n %u", rig->back,
			       i);
	for (unsigned int i = 0; good && seen < many && i < 100000; i++) {
		int n = 0;
		notify_msg_t *got = getNotifsFromEngine(rig->law.engine, &n);

		for (int k = 0; k < n; k++) {
			snprintf(want, sizeof(want), "%u", seen++);
			good = good && !strcmp(got[k].name, "n") &&
			       !strcmp(got[k].msg, want);
		}
		freeNotifsMsgBuf(got, n);
		if (!n)
			nanosleep(&pause, NULL);
	}
	ft_ok(good && seen == many, "law13_notifications_arrive_once_and_in_order");
	ft_diag("%u of %u", seen, many);
}

/* Checks that a write that fails sends no notification. Notifications keep
 * their order, so the next one must be the first to arrive. */
static void note_not_after_failure(struct note_rig *rig)
{
	char text[64] = "";

	ft_ok(!fx_ask(&rig->law.target, "start %d 1 0 %llu 4096 0 1 bad",
		      rig->back,
		      (unsigned long long)(rig->law.mem.addr - 100)) &&
	      !fx_ask(&rig->law.target, "wait") &&
	      strstr(rig->law.target.text, "1 failed"), "a_write_that_fails");
	fx_ask(&rig->law.target, "notify %d mark er", rig->back);
	ft_ok(note_take(rig, text, sizeof(text), FX_LONG_MS) &&
		      !strcmp(text, "mark=er"),
	      "law4_failed_write_sends_no_notification");
	ft_diag("%s", text);
}

static void note_none(struct note_rig *rig)
{
	int n = 5;

	ft_ok(!getNotifsFromEngine(rig->law.engine, &n) && n == 0,
	      "fetch_without_notifications_gives_null_and_0");
}

static void note_to_ourselves(struct note_rig *rig)
{
	char name[] = "self", msg[] = "", text[64];
	struct notify_msg note = { name, msg };

	ft_ok(!genNotifyInEngine(rig->law.engine, LOCAL_SEGMENT, note) &&
	      note_take(rig, text, sizeof(text), FX_LONG_MS) &&
	      !strcmp(text, "self="), "a_notification_to_ourselves");
}

/*
 * Returns true if this process's own name, in two spellings, opens as segment
 * 0.
 */
static bool note_self_open(transfer_engine_t engine)
{
	char port[128], other[160];

	if (!fx_engine_name(engine, port, sizeof(port)))
		return false;
	snprintf(other, sizeof(other), "/127.1%s", strrchr(port, ':'));
	return openSegment(engine, port) == LOCAL_SEGMENT &&
	       openSegment(engine, other) == LOCAL_SEGMENT;
}

static bool note_self_transfer(struct law_rig *law, notify_msg_t note)
{
	uint64_t to = law->mem.addr + 4096;
	struct transfer_request req = { OPCODE_WRITE, law->mem.p, LOCAL_SEGMENT,
					to, 4096 };
	struct fx_job job = { .engine = law->engine, .tasks = 1 };
	bool good;

	job.id = allocateBatchID(law->engine, 1);
	good = !submitTransferWithNotify(law->engine, job.id, &req, 1, note) &&
	       fx_job_wait(&job, FX_LONG_MS);
	return fx_job_free(&job) && good;
}

static void note_self_full(struct note_rig *rig)
{
	transfer_engine_t e = rig->law.engine;
	char name[] = "n", msg[16];
	struct notify_msg note = { name, msg };
	struct te_error err = { 0 };
	bool good = true;
	notify_msg_t *got;
	int n, i;

	for (i = 0; good && i < NOTE_HELD; i++) {
		snprintf(msg, sizeof(msg), "%d", i);
		good = !genNotifyInEngine(e, LOCAL_SEGMENT, note);
	}
	ft_ok(good && genNotifyInEngine(e, LOCAL_SEGMENT, note) == -2 &&
		      !te_last_error(&err, sizeof(err)) && err.code == -2 &&
		      strstr(err.text, "MOONRAIL_MAX_NOTIFIES"),
	      "notification_to_self_above_the_limit_is_2");
	got = getNotifsFromEngine(e, &n);
	for (i = 0; i < n && good; i++)
		good = atoi(got[i].msg) == i;
	ft_ok(good && n == NOTE_HELD,
	      "refused_notification_to_self_displaces_no_other");
	freeNotifsMsgBuf(got, n);
	ft_ok(!genNotifyInEngine(e, LOCAL_SEGMENT, note),
	      "notification_to_self_after_a_fetch_is_accepted");
	got = getNotifsFromEngine(e, &n);
	freeNotifsMsgBuf(got, n);
}

static void note_self(struct note_rig *rig)
{
	char name[] = "into", msg[] = "self", text[64] = "";
	struct notify_msg note = { name, msg };

	ft_ok(note_self_open(rig->law.engine), "own_name_is_segment_0");
	ft_ok(note_self_transfer(&rig->law, note) &&
	      note_take(rig, text, sizeof(text), FX_LONG_MS) &&
	      !strcmp(text, "into=self"),
	      "law1_a_transfer_into_ourselves_notifies_once");
	note_none(rig);
	note_self_full(rig);
}

static void note_lengths(struct note_rig *rig)
{
	static char big[FX_MIB + 1];	/* together with the name, 3 bytes over
					 * the limit */
	char name[] = "big";
	struct notify_msg note = { name, big };
	struct law_rig *law = &rig->law;

	memset(big, 'b', 3500);
	ft_ok(fx_send(&law->target, "notes 1") &&
	      !genNotifyInEngine(law->engine, (uint64_t)law->seg, note) &&
	      fx_answer(&law->target, FX_LONG_MS) == 1 &&
	      strlen(law->target.text) == 3500 + 5,
	      "a_long_notification_arrives_whole");
	memset(big, 'b', sizeof(big) - 1);
	ft_ok(genNotifyInEngine(law->engine, (uint64_t)law->seg, note) < 0,
	      "an_endless_notification_is_refused");
	ft_ok(genNotifyInEngine(law->engine, LOCAL_SEGMENT, note) < 0,
	      "an_endless_notification_to_self_is_refused");
	ft_ok(law_write_works(law, 4096, 99),
	      "write_during_notification_test_completes");
}

/* Checks that a notification arrives although the peer exits right after
 * sending it. */
static void note_before_the_end(struct note_rig *rig)
{
	char text[64] = "";

	ft_ok(!fx_ask(&rig->law.target, "notify %d last word", rig->back) &&
	      fx_peer_stop(&rig->law.target) &&
	      note_take(rig, text, sizeof(text), FX_LONG_MS) &&
	      !strcmp(text, "last=word"),
	      "a_notification_before_the_end_arrives");
}

void law_notify(void)
{
	struct note_rig rig;

	memset(&rig, 0, sizeof(rig));
	if (!law_rig_start(&rig.law))
		return;
	fx_engine_name(rig.law.engine, rig.name, sizeof(rig.name));
	rig.back = fx_ask(&rig.law.target, "open %s", rig.name);
	if (!ft_ok(rig.back > 0, "the_peer_opens_us")) {
		fx_peer_stop(&rig.law.target);
	} else {
		note_none(&rig);
		note_after_the_data(&rig);
		note_in_order(&rig);
		note_not_after_failure(&rig);
		note_to_ourselves(&rig);
		note_self(&rig);
		note_lengths(&rig);
		note_none(&rig);
		note_before_the_end(&rig);	/* must be last: it stops the
						 * peer */
	}
	destroyTransferEngine(rig.law.engine);
	fx_buf_unmap(&rig.law.mem);
}
