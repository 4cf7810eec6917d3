/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests notifications between two processes: up to 1 MiB, over each transport,
 * with a full receiver, and with stopped and killed peers.
 *
 * The text of a notification is computed from its number and its length, which
 * are also its name: "NUMBER LENGTH". The peer has these additional commands:
 *
 *	fetch FROM COUNT	fetches COUNT notifications, the first of which
 *				has the number FROM; the code is the number of
 *				notifications that are right and in order
 *	binary FROM COUNT	does the same for binary notifications. Their
 *				data are the bytes of the text, with every ninth
 *				byte replaced by zero.
 *	hold			fetches once; the code is the number of
 *				notifications, and the text has their names,
 *				each followed by a semicolon
 */

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/fx.h"

/* maximum length of name and text together, bytes */
#define NOTE_MAX (1024 * 1024)
/* MC_HANDSHAKE_CONNECT_TIMEOUT of the test, s */
#define NOTE_WAIT_S (fx_ms(1000) / 1000)

/* --- texts -------------------------------------------------------------- */

static void note_fill(char *text, size_t len, unsigned int number)
{
	uint64_t x = number * 0x9e3779b97f4a7c15ULL + 1;

	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		text[i] = (char)(1 + x % 255);
	}
	text[len] = '\0';
}

static bool note_is(const notify_msg_t *note, unsigned int number)
{
	unsigned int n;
	bool good;
	char *text;
	size_t len;

	if (sscanf(note->name, "%u %zu", &n, &len) != 2 || n != number ||
	    len > NOTE_MAX)
		return false;
	text = malloc(len + 1);
	if (!text)
		return false;
	note_fill(text, len, number);
	good = !strcmp(note->msg, text);
	free(text);
	return good;
}

/* Makes the data of a binary notification from a text of len bytes: every ninth
 * byte becomes 0. */
static void note_binary(unsigned char *data, const char *text, size_t len)
{
	memcpy(data, text, len);
	for (size_t i = 8; i < len; i += 9)
		data[i] = 0;
}

static bool note_binary_is(const struct te_notification *note,
			   unsigned int number)
{
	unsigned int n;
	bool good = false;
	char *text;
	size_t len;

	if (sscanf(note->name, "%u %zu", &n, &len) != 2 || n != number ||
	    len > NOTE_MAX || len != note->length)
		return false;
	text = malloc(2 * len + 1);
	if (text) {
		note_fill(text, len, number);
		note_binary((unsigned char *)text + len, text, len);
		good = !memcmp(note->data, text + len, len);
	}
	free(text);
	return good;
}

/* --- the peer ----------------------------------------------------------- */

static int note_fetch_binary(transfer_engine_t e, unsigned int from, int count)
{
	uint64_t end = ft_now_ns() + FX_LONG_MS * 1000000ULL;
	struct timespec nap = { .tv_nsec = 200000 };
	struct te_notification got[3];
	int seen = 0, good = 0;
	size_t n;

	while (seen < count && ft_now_ns() < end) {
		n = 3;
		if (te_notify_fetch(e, got, sizeof(*got), &n))
			return -1;
		for (size_t i = 0; i < n; i++)
			good += note_binary_is(&got[i],
					       from + (unsigned int)seen++);
		te_notify_release(got, sizeof(*got), n);
		if (!n)
			nanosleep(&nap, NULL);
	}
	return good;
}

static int note_fetch(transfer_engine_t e, unsigned int from, int count)
{
	uint64_t end = ft_now_ns() + FX_LONG_MS * 1000000ULL;
	struct timespec nap = { .tv_nsec = 200000 };
	int seen = 0, good = 0;

	while (seen < count && ft_now_ns() < end) {
		int n = 0;
		notify_msg_t *got = getNotifsFromEngine(e, &n);

		for (int i = 0; i < n; i++)
			good += note_is(&got[i], from + (unsigned int)seen++);
		freeNotifsMsgBuf(got, n);
		if (!n)
			nanosleep(&nap, NULL);
	}
	return good;
}

static int note_hold(transfer_engine_t e, char *text)
{
	int n = 0;
	notify_msg_t *got = getNotifsFromEngine(e, &n);
	size_t used = 0;

	for (int i = 0; i < n && used < 4000; i++)
		used += (size_t)snprintf(text + used, 4096 - used, "%.64s;",
					 got[i].name);
	freeNotifsMsgBuf(got, n);
	return n;
}

static int note_obey(transfer_engine_t e, struct fx_buf *mem, const char *verb,
		     const char *args, char *text)
{
	unsigned int from;
	int count = 0;

	(void)mem;
	if (!strcmp(verb, "fetch") &&
	    sscanf(args, "%u %d", &from, &count) == 2)
		return note_fetch(e, from, count);
	if (!strcmp(verb, "binary") &&
	    sscanf(args, "%u %d", &from, &count) == 2)
		return note_fetch_binary(e, from, count);
	return strcmp(verb, "hold") ? FX_NO_ANSWER : note_hold(e, text);
}

/* --- this side ---------------------------------------------------------- */

struct note_rig {
	transfer_engine_t engine;
	struct fx_peer peer;
	struct fx_buf mem;
	segment_id_t seg;
	char *text;		/* buffer for a text, NOTE_MAX + 1 bytes */
};

static bool note_start(struct note_rig *rig, const char *transport,
		       const char *limit)
{
	char option[64], seconds[16];

	memset(rig, 0, sizeof(*rig));
	snprintf(option, sizeof(option), "transport=%s", transport);
	snprintf(seconds, sizeof(seconds), "%u", NOTE_WAIT_S);
	rig->text = malloc(NOTE_MAX + 1);
	rig->mem = fx_buf_map(FX_MIB, -1);
	if (!fx_peer_start(&rig->peer, FX_MIB, option, limit, NULL) ||
	    fx_ask(&rig->peer, "reg 0 %llu 1", FX_MIB))
		return false;
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", seconds, 1);
	rig->engine = fx_engine(transport);
	unsetenv("MC_HANDSHAKE_CONNECT_TIMEOUT");
	if (!rig->text || !rig->mem.p || !rig->engine ||
	    !fx_register(rig->engine, &rig->mem))
		return false;
	rig->seg = openSegment(rig->engine, rig->peer.name);
	/* This write connects the two processes. */
	return rig->seg > 0 &&
	       fx_move_until(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p,
			     rig->peer.mem.addr, 64, 0, FX_LONG_MS);
}

static void note_stop(struct note_rig *rig)
{
	destroyTransferEngine(rig->engine);
	fx_buf_unmap(&rig->mem);
	free(rig->text);
}

/* Makes the notification with this number. Its text has len bytes. If len is
 * NOTE_MAX, the text is shorter, so that name and text together have about
 * NOTE_MAX bytes. */
static notify_msg_t note_make(struct note_rig *rig, unsigned int number,
			      size_t len, char name[32])
{
	notify_msg_t note = { name, rig->text };

	if (len == NOTE_MAX)
		len -= (size_t)snprintf(name, 32, "%u %zu", number, len - 10);
	snprintf(name, 32, "%u %zu", number, len);
	note_fill(rig->text, len, number);
	return note;
}

static int note_send(struct note_rig *rig, unsigned int number, size_t len)
{
	char name[32];
	notify_msg_t note = note_make(rig, number, len, name);

	return genNotifyInEngine(rig->engine, (uint64_t)rig->seg, note);
}

/* Submits a small write with a notification. Returns true if the write
 * completes. */
static bool note_submit(struct note_rig *rig, unsigned int number, size_t len)
{
	struct transfer_request req = { OPCODE_WRITE, rig->mem.p, rig->seg,
					rig->peer.mem.addr, 1000 };
	struct fx_job job = { .engine = rig->engine, .tasks = 1 };
	char name[32];
	notify_msg_t note = note_make(rig, number, len, name);
	bool good;

	job.id = allocateBatchID(rig->engine, 1);
	good = !submitTransferWithNotify(rig->engine, job.id, &req, 1, note) &&
	       fx_job_wait(&job, FX_LONG_MS) &&
	       job.n[STATUS_COMPLETED] == 1;
	return fx_job_free(&job) && good;
}

static bool note_error(int code, uint32_t flags, const char *text)
{
	struct te_error err;

	memset(&err, 0, sizeof(err));
	te_last_error(&err, sizeof(err));
	ft_diag("%d: %s; %s", err.code, err.text, err.hint);
	return err.code == code && err.flags == flags && strstr(err.text, text);
}

/* --- cases -------------------------------------------------------------- */

static void note_sizes(const char *transport)
{
	/* lengths around those that need one, two and nine messages on a
	 * rail */
	static const size_t sizes[] = { 0, 1, 8192, 16000, 16250, 16260, 16270,
					32520, 32540, 146000, 500000, NOTE_MAX };
	const unsigned int n = sizeof(sizes) / sizeof(sizes[0]);
	struct note_rig rig;
	bool good = true;
	unsigned int i;

	if (!ft_ok(note_start(&rig, transport, NULL), "a_peer_by_%s", transport))
		return;
	for (i = 0; good && i < n; i++)
		good = !note_send(&rig, i, sizes[i]);
	ft_ok(good && fx_ask(&rig.peer, "fetch 0 %u", n) == (int)n,
	      "notifications_of_up_to_1_mib_arrive_whole_by_%s", transport);
	for (i = 0; good && i < n; i++)
		good = note_submit(&rig, i, sizes[i]);
	ft_ok(good && fx_ask(&rig.peer, "fetch 0 %u", n) == (int)n,
	      "notifications_arrive_after_transfers_by_%s", transport);
	ft_ok(note_send(&rig, 1, NOTE_MAX + 1 - 9) == -1 &&
		      note_error(-1, 0, "the limit is 1048576"),
	      "notifications_above_1_mib_are_refused_by_%s", transport);
	ft_ok(fx_peer_stop(&rig.peer), "the_peer_ends_well_by_%s", transport);
	note_stop(&rig);
}

/* Sends a binary notification whose data has len bytes. Returns the result of
 * te_notify. */
static int note_send_binary(struct note_rig *rig, unsigned int number,
			    size_t len)
{
	char name[32];
	unsigned char *data = malloc(len + 1);
	int ret;

	snprintf(name, sizeof(name), "%u %zu", number, len);
	note_fill(rig->text, len, number);
	note_binary(data, rig->text, len);
	ret = te_notify(rig->engine, rig->seg, name, len ? data : NULL, len);
	free(data);
	return ret;
}

/* Tests binary notifications of the engine to itself. */
static void note_binary_own(struct note_rig *rig)
{
	static const char data[] = { 0, 'a', 0, 'b' };
	struct te_notification got[2];
	struct pollfd p = { .fd = te_event_fd(rig->engine), .events = POLLIN };
	size_t n = 2, none = 1;
	bool good;
	int text = 9;

	ft_ok(!te_notify(rig->engine, LOCAL_SEGMENT, "own", data, 4) &&
		      !getNotifsFromEngine(rig->engine, &text) && !text,
	      "binary_notification_is_not_returned_as_text");
	ft_ok(!poll(&p, 1, 0), "descriptor_ignores_it_before_the_first_fetch");
	good = !te_notify_fetch(rig->engine, got, sizeof(*got), &n) && n == 1 &&
	       !strcmp(got[0].name, "own") && got[0].length == 4 &&
	       !memcmp(got[0].data, data, 4);
	if (n == 1)
		te_notify_release(got, sizeof(*got), n);
	ft_ok(good && !got[0].name && !got[0].data,
	      "binary_notification_to_the_own_engine_is_fetched");
	ft_ok(!poll(&p, 1, 0) &&
		      !te_notify(rig->engine, LOCAL_SEGMENT, "", NULL, 0) &&
		      poll(&p, 1, 0) == 1 &&
		      !te_notify_fetch(rig->engine, got, sizeof(*got), &none) &&
		      none == 1 && !got[0].length && !poll(&p, 1, 0),
	      "descriptor_is_readable_until_it_is_fetched");
	te_notify_release(got, sizeof(*got), 1);
}

/* Sends text and binary notifications alternately. Those of each kind must
 * arrive in order. */
static void note_binaries(const char *transport)
{
	static const size_t sizes[] = { 0, 1, 9, 1000, 3000, 70000, 900000 };
	const unsigned int count = sizeof(sizes) / sizeof(*sizes);
	struct note_rig rig;
	bool good = true;

	if (!ft_ok(note_start(&rig, transport, NULL), "start_%s", transport))
		return;
	for (unsigned int i = 0; i < count; i++)
		good = good && !note_send_binary(&rig, i, sizes[i]) &&
		       !note_send(&rig, 100 + i, 40);
	ft_ok(good && fx_ask(&rig.peer, "binary 0 %u", count) == (int)count,
	      "%u_binary_notifications_arrive_unchanged_%s", count, transport);
	ft_ok(fx_ask(&rig.peer, "fetch 100 %u", count) == (int)count,
	      "texts_between_them_arrive_%s", transport);
	ft_ok(te_notify(rig.engine, rig.seg, "12", rig.text, NOTE_MAX - 1) ==
			      -1 &&
		      te_notify(rig.engine, rig.seg, "1", rig.text,
				UINT64_MAX) == -1,
	      "binary_notification_above_1_mib_is_refused_%s", transport);
	note_binary_own(&rig);
	note_stop(&rig);
	fx_peer_stop(&rig.peer);
}

static void note_full(void)
{
	const size_t len = 300000;
	const int many = 20;
	struct note_rig rig;
	bool good = true;

	if (!ft_ok(note_start(&rig, "tcp", "MOONRAIL_NOTIFY_BYTES=1M"),
		   "a_peer_that_holds_1_mib"))
		return;
	for (int i = 0; good && i < many; i++)
		good = note_submit(&rig, (unsigned int)i, len);
	ft_ok(good, "submissions_end_though_the_peer_is_full");
	ft_ok(note_send(&rig, 99, 10) == -2 &&
	      note_error(-2, 0, "reached its limit for queued notifications"),
	      "a_notification_to_a_full_peer_is_withdrawn");
	ft_ok(fx_ask(&rig.peer, "fetch 0 %d", many) == many,
	      "notifications_to_a_full_peer_arrive_once_and_in_order");
	good = !note_send(&rig, 100, 10);
	ft_ok(good && fx_ask(&rig.peer, "fetch 100 1") == 1,
	      "the_next_one_is_acknowledged");
	ft_ok(fx_ask(&rig.peer, "hold") == 0,
	      "full_peer_keeps_no_notification");
	ft_ok(fx_peer_stop(&rig.peer), "the_full_peer_ends_well");
	note_stop(&rig);
}

/* Returns true if the time since begin_ns is at most about NOTE_WAIT_S. */
static bool note_in_time(uint64_t begin_ns)
{
	uint64_t ms = (ft_now_ns() - begin_ns) / 1000000;

	ft_diag("the call took %llu ms", (unsigned long long)ms);
	return ms <= NOTE_WAIT_S * 1000 + fx_ms(2000);
}

static void note_stopped(void)
{
	struct note_rig rig;
	uint64_t begin;

	if (!ft_ok(note_start(&rig, "tcp", NULL) && !note_send(&rig, 0, 5) &&
		   fx_peer_pause(&rig.peer), "a_peer_is_stopped"))
		return;
	begin = ft_now_ns();
	ft_ok(note_send(&rig, 1, 5) == -9 &&
	      note_error(-9, TE_ERROR_UNKNOWN, "not acknowledged"),
	      "a_notification_to_a_stopped_peer_fails");
	ft_ok(note_in_time(begin), "notification_fails_in_time");
	begin = ft_now_ns();
	ft_ok(note_send(&rig, 2, NOTE_MAX) == -9 &&
	      note_error(-9, 0, "withdrawn"),
	      "a_long_one_to_a_stopped_peer_is_withdrawn");
	ft_ok(note_in_time(begin), "notification_is_withdrawn_in_time");
	fx_peer_resume(&rig.peer);
	ft_ok(!note_send(&rig, 3, 7), "the_peer_goes_on");
	fx_ask(&rig.peer, "hold");
	ft_diag("%s", rig.peer.text);
	ft_ok(!strcmp(rig.peer.text, "0 5;3 7;") ||
	      !strcmp(rig.peer.text, "0 5;1 5;3 7;"),
	      "the_one_in_doubt_came_once_and_in_order_or_never");
	ft_ok(fx_peer_stop(&rig.peer), "the_stopped_peer_ends_well");
	note_stop(&rig);
}

static void note_killed(void)
{
	struct note_rig rig;
	uint64_t begin;

	if (!ft_ok(note_start(&rig, "tcp", NULL) && !note_send(&rig, 0, 5),
		   "a_peer_lives"))
		return;
	fx_peer_kill(&rig.peer);
	begin = ft_now_ns();
	ft_ok(note_send(&rig, 1, 5) < 0, "a_notification_to_a_dead_peer_fails");
	note_error(0, 0, "");
	ft_ok(note_in_time(begin), "notification_to_a_dead_peer_fails_in_time");
	fx_peer_drop(&rig.peer);
	note_stop(&rig);
}

struct note_waiter {
	struct note_rig *rig;
	int ret;
	bool begun;			/* atomic; true: the thread is about to
					 * send */
};

static void *note_waits(void *arg)
{
	struct note_waiter *w = arg;
	char name[32];
	notify_msg_t note = note_make(w->rig, 1, 5, name);

	__atomic_store_n(&w->begun, true, __ATOMIC_RELEASE);
	w->ret = genNotifyInEngine(w->rig->engine, (uint64_t)w->rig->seg, note);
	return NULL;
}

/* Destroys the engine while another thread waits for a stopped peer. The call
 * of that thread must fail. */
static void note_destroyed(void)
{
	struct note_waiter w = { .ret = 0 };
	struct timespec nap = { .tv_nsec = 20000000 };
	struct note_rig rig;
	pthread_t thread;

	w.rig = &rig;
	if (!ft_ok(note_start(&rig, "tcp", NULL) && fx_peer_pause(&rig.peer),
		   "another_peer_is_stopped") ||
	    pthread_create(&thread, NULL, note_waits, &w))
		return;
	while (!__atomic_load_n(&w.begun, __ATOMIC_ACQUIRE))
		sched_yield();
	/* By then, the other thread most likely waits in the call. If it calls
	 * later, the engine does not exist, and the call fails, too. */
	nanosleep(&nap, NULL);
	destroyTransferEngine(rig.engine);
	pthread_join(thread, NULL);
	ft_ok(w.ret < 0, "a_wait_ends_with_the_engine");
	ft_diag("%d", w.ret);
	rig.engine = NULL;
	fx_peer_resume(&rig.peer);
	ft_ok(fx_peer_stop(&rig.peer), "the_other_peer_ends_well");
	note_stop(&rig);
}

int main(int argc, char **argv)
{
	fx_extend(note_obey);
	fx_init(argc, argv);
	note_sizes("tcp");
	note_sizes("shm");
	note_binaries("tcp");
	note_binaries("shm");
	note_full();
	note_stopped();
	note_killed();
	note_destroyed();
	return ft_result();
}
