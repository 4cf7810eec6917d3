/* SPDX-License-Identifier: BSD-2-Clause */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/functional/ft_laws.h"
#include "fabtests/functional/fx.h"

/* --- law 9: the chosen path is reported ---------------------------------- */

static bool law9_move(struct fx_peer *peer, const struct law_rig *rig,
		      const char *name)
{
	int seg = fx_ask(peer, "open %s", name);

	return seg > 0 &&
	       !fx_ask(peer, "start %d 1 0 %llu 65536 1000 20 -", seg,
		       (unsigned long long)rig->target.mem.addr) &&
	       !fx_ask(peer, "wait");
}

struct law9_log {
	int fd;
	const char *name;
};

static bool law9_said(void *arg)
{
	const struct law9_log *log = arg;
	char *text = fx_heard(log->fd);
	bool said = fx_lines(text, log->name, "127.0.0.2") > 0;

	free(text);
	return said;
}

/* Returns true if the log has exactly one line about the target and that line
 * contains each word of the result of te_segment_paths. */
static bool law9_same(struct fx_peer *peer, const struct law_rig *rig,
		      const char *text, int seg)
{
	char line[64], *word, *rest = peer->text;
	unsigned int words = 0;

	snprintf(line, sizeof(line), "peer %.50s: ", rig->target.name);
	if (fx_lines(text, line, "") != 1 ||
	    fx_ask(peer, "paths %d", seg) != 2)
		return false;
	while ((word = strtok_r(rest, " ", &rest))) {
		if (words++ % 6 && fx_lines(text, line, word) != 1) {
			ft_diag("the line lacks '%s'", word);
			return false;
		}
	}
	return words == 12;
}

static void law9(void)
{
	struct fx_peer peer;
	struct law_rig rig;
	char option[32], *text;
	int fd = fx_log(option, sizeof(option));
	struct law9_log log = { fd, rig.target.name };

	if (!law_rig_start(&rig))
		return;
	if (!ft_ok(fx_peer_start(&peer, FX_MIB, option, "MC_LOG_LEVEL=info",
				 NULL) &&
		   !fx_ask(&peer, "reg 0 %llu 1", FX_MIB) &&
		   law9_move(&peer, &rig, rig.target.name),
		   "an_initiator_with_a_log"))
		return;
	ft_wait_until(law9_said, &log, fx_ms(5000));
	fx_ask(&peer, "open %s", rig.target.name);
	text = fx_heard(fd);
	ft_ok(law9_same(&peer, &rig, text, 1),
	      "law9_the_line_and_the_call_say_the_same");
	ft_ok(fx_lines(text, rig.target.name, "127.0.0.2") == 1 &&
	      fx_lines(text, rig.target.name, "tcp") >= 1,
	      "law9_one_line_per_peer_names_provider_and_rails");
	if (fx_lines(text, rig.target.name, "127.0.0.2") != 1)
		ft_diag("the log:\n%s", text);
	free(text);
	ft_ok(fx_ask(&peer, "rails") == 2 &&
	      strstr(peer.text, "tcp ") && strstr(peer.text, "127.0.0.2"),
	      "law9_a_call_returns_the_same");
	fx_peer_stop(&peer);
	close(fd);
	law_rig_stop(&rig);
}

/* --- law 10: error records ----------------------------------------------- */

static void *law10_other_thread(void *arg)
{
	struct te_error *err = arg;

	memset(err, 0x5a, sizeof(*err));
	te_last_error(err, sizeof(*err));
	return NULL;
}

static void law10_last_error(struct law_rig *rig)
{
	struct te_error err = { 0 }, other;
	char small[8];
	pthread_t thread;

	ft_ok(registerLocalMemory(rig->engine, rig->mem.p, 64, "*", 1) == -7 &&
	      !te_last_error(&err, sizeof(err)) && err.code == -7 &&
	      err.text[0], "law10_last_error_has_the_code_and_a_text");
	pthread_create(&thread, NULL, law10_other_thread, &other);
	pthread_join(thread, NULL);
	ft_ok(other.code == 0 && !other.text[0],
	      "law10_last_error_is_the_thread_s_own");
	ft_ok(openSegment(rig->engine, "127.0.0.1:1") == -1 &&
	      !te_last_error(&err, sizeof(err)) && err.code < -100 &&
	      strstr(err.peer, "127.0.0.1:1"),
	      "law10_last_error_names_the_peer");
	ft_diag("error %d, peer '%s': %s", err.code, err.peer, err.text);
	ft_ok(submitTransfer(rig->engine, 17, NULL, 1) == 1 &&
	      !te_last_error(&err, sizeof(err)) && err.code == -1 &&
	      err.text[0], "law10_last_error_of_a_refused_submit");
	ft_diag("%d: %s", err.code, err.text);
	memset(small, 0x5a, sizeof(small));
	ft_ok(!te_last_error((struct te_error *)(void *)small, 4) &&
	      small[4] == 0x5a, "law10_last_error_fills_no_more_than_asked");
}

static void law10_task_error(struct law_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = rig->target.mem.addr - 4096,
			      .len = 64 };
	struct te_error err = { 0 };

	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
	      !te_task_error(rig->engine, job.id, 0, &err, sizeof(err)) &&
	      err.code == -3 && err.text[0] && !(err.flags & 1),
	      "law10_task_error_of_a_range_outside");
	ft_ok(!strcmp(err.peer, rig->target.name),
	      "law10_task_error_names_the_peer");
	ft_diag("error %d, rail '%s', peer '%s', provider '%s': %s (%s)",
		err.code, err.rail, err.peer, err.provider, err.text, err.hint);
	fx_job_free(&job);
	job.remote += 4096;
	err.code = 5;
	ft_ok(!fx_job_start(&job) && fx_job_wait(&job, FX_LONG_MS) &&
		      !te_task_error(rig->engine, job.id, 0, &err,
				     sizeof(err)) &&
		      err.code == 0,
	      "law10_completed_task_has_no_error");
	fx_job_free(&job);
}

/* Copies the first error record of a task that contains an errno of the
 * provider to *err. */
static void law10_find(struct fx_job *job, struct te_error *err)
{
	size_t i;

	for (i = 0; i < job->tasks && !err->prov_errno; i++)
		te_task_error(job->engine, job->id, i, err, sizeof(*err));
}

/* Kills the target during a transfer and waits until the job has ended. */
static void law10_kill_during(struct fx_job *job, const struct fx_buf *mem,
			      struct fx_peer *peer)
{
	job->seg = openSegment(job->engine, peer->name);
	job->local = mem->p;
	job->remote = peer->mem.addr;
	ft_ok(!fx_job_start(job) && fx_job_reach(job, FX_MIB, FX_LONG_MS),
	      "a_transfer_to_a_target_that_is_killed");
	fx_peer_kill(peer);
	fx_job_wait(job, FX_LONG_MS);
}

/* Checks the error record of a task whose connection breaks during the
 * transfer. */
static void law10_broken(void)
{
	struct fx_job job = { .engine = fx_engine_hasty("tcp"),
			      .op = OPCODE_WRITE, .len = 64 * FX_MIB,
			      .block = 64 * FX_KIB };
	struct fx_buf mem = fx_buf_map(job.len, -1);
	struct te_error err = { 0 };
	struct fx_peer peer;

	if (!job.engine || !fx_register(job.engine, &mem) ||
	    !fx_target_start(&peer, job.len))
		return;
	law10_kill_during(&job, &mem, &peer);
	law10_find(&job, &err);
	ft_ok(err.code < 0 && err.prov_errno && err.text[0] && err.hint[0],
	      "law10_task_error_has_the_provider_s_errno_and_a_hint");
	ft_ok(err.rail[0] && strstr(err.provider, "tcp") &&
	      !strcmp(err.peer, peer.name),
	      "law10_task_error_names_rail_provider_and_peer");
	ft_diag("error %d, rail '%s', peer '%s', provider '%s', errno %d: %s "
		"(%s)",
		err.code, err.rail, err.peer, err.provider, err.prov_errno,
		err.text, err.hint);
	fx_job_free(&job);
	destroyTransferEngine(job.engine);
	fx_peer_drop(&peer);
	fx_buf_unmap(&mem);
}

/* Checks that a thousand tasks that fail for one reason cause at most 32 log
 * lines. */
static void law10_flood(struct law_rig *rig)
{
	struct fx_peer peer;
	char option[32], *text;
	int fd = fx_log(option, sizeof(option)), seg;
	unsigned int lines;

	if (!ft_ok(fx_peer_start(&peer, 4 * FX_MIB, option, FX_HASTY, NULL) &&
		   !fx_ask(&peer, "reg 0 %llu 1", 4 * FX_MIB) &&
		   law9_move(&peer, rig, rig->target.name),
		   "an_initiator_with_a_log"))
		return;
	seg = fx_ask(&peer, "open %s", rig->target.name);
	fx_peer_pause(&rig->target);
	ft_ok(!fx_ask(&peer, "start %d 1 0 %llu %llu 4096 1 -", seg,
		      (unsigned long long)rig->target.mem.addr, 4 * FX_MIB) &&
	      !fx_ask(&peer, "wait"), "a_thousand_tasks_time_out");
	ft_diag("%s", peer.text);
	fx_peer_resume(&rig->target);
	text = fx_heard(fd);
	lines = fx_lines(text, "moonrail", "");
	ft_diag("%u log lines for one cause", lines);
	ft_ok(lines >= 1 && lines <= 32, "law10_floods_are_limited");
	free(text);
	fx_peer_stop(&peer);
	close(fd);
}

/* Counts of the log lines of this process that name one peer. */
struct law10_log {
	pthread_mutex_t lock;
	char name[128];
	unsigned int lines, losses, ended;
	char text[4096];
};

static void law10_take(int level, const char *module, const char *text,
		       void *arg)
{
	struct law10_log *log = arg;
	size_t used;

	(void)level;
	pthread_mutex_lock(&log->lock);
	if (strstr(text, log->name)) {
		used = strlen(log->text);
		log->lines++;
		log->losses += strstr(text, "no connection over") &&
			       strstr(text, "127.0.0.1, 127.0.0.2");
		log->ended += strstr(text, "has probably ended") != NULL;
		snprintf(log->text + used, sizeof(log->text) - used,
			 "%s: %s\n", module, text);
	}
	pthread_mutex_unlock(&log->lock);
}

static bool law10_ended(void *arg)
{
	struct law10_log *log = arg;
	bool ended;

	pthread_mutex_lock(&log->lock);
	ended = log->ended > 0;
	pthread_mutex_unlock(&log->lock);
	return ended;
}

/*
 * Kills a target with two rails. The log may have one line about the
 * connections of both rails and one line about the process, and no other lines.
 * The first one is missing if the process is presumed dead before.
 */
static void law10_kill_is_logged_once(void)
{
	struct law10_log log = { PTHREAD_MUTEX_INITIALIZER, "", 0, 0, 0, "" };
	struct fx_job job = { .engine = fx_engine_hasty("tcp"),
			      .op = OPCODE_WRITE, .len = 64 * FX_MIB,
			      .block = 64 * FX_KIB };
	struct fx_buf mem = fx_buf_map(job.len, -1);
	struct fx_peer peer;

	if (!job.engine || !fx_register(job.engine, &mem) ||
	    !fx_target_start(&peer, job.len))
		return;
	snprintf(log.name, sizeof(log.name), "%s", peer.name);
	te_set_log(law10_take, &log);
	law10_kill_during(&job, &mem, &peer);
	if (job.n[STATUS_COMPLETED] == job.tasks)
		ft_diag("the transfer completed before the kill");
	else
		ft_ok(ft_wait_until(law10_ended, &log, FX_LONG_MS),
		      "law10_end_of_a_killed_target_is_logged");
	fx_job_free(&job);
	destroyTransferEngine(job.engine);
	te_set_log(NULL, NULL);
	if (!ft_ok(log.lines <= 2 && log.losses <= 1 && log.ended <= 1,
		   "law10_killed_target_with_two_rails_is_two_lines"))
		ft_diag("the log:\n%s", log.text);
	fx_peer_drop(&peer);
	fx_buf_unmap(&mem);
}

/* --- law 11: an engine starts with the rails that work ------------------- */

static void law11_some_rails(void)
{
	struct fx_peer peer;
	char option[32], *text;
	int fd = fx_log(option, sizeof(option));
	struct law_rig rig;

	if (!law_rig_start(&rig))
		return;
	if (ft_ok(fx_peer_start(&peer, FX_MIB, option,
				"MOONRAIL_DEVICES=127.0.0.1,203.0.113.9,nic9",
				NULL) &&
			  !fx_ask(&peer, "reg 0 %llu 1", FX_MIB) &&
			  law9_move(&peer, &rig, rig.target.name),
		  "law11_engine_starts_with_the_rails_that_work")) {
		ft_ok(fx_ask(&peer, "rails") == 1,
		      "law11_engine_has_no_other_rails");
		fx_peer_stop(&peer);
	}
	text = fx_heard(fd);
	if (!ft_ok(fx_lines(text, "203.0.113.9", "") == 1 &&
		   fx_lines(text, "nic9", "") == 1,
		   "law11_a_line_says_which_did_not"))
		ft_diag("the log:\n%s", text);
	free(text);
	close(fd);
	law_rig_stop(&rig);
}

static void law11_no_rail(void)
{
	struct te_error err = { 0 };
	char *old = strdup(getenv("MOONRAIL_DEVICES"));
	transfer_engine_t e;

	setenv("MOONRAIL_DEVICES", "203.0.113.9", 1);
	e = fx_engine(NULL);
	ft_ok(e && !installTransport(e, "tcp", NULL) &&
		      !te_last_error(&err, sizeof(err)) && err.code < 0 &&
		      err.text[0],
	      "law11_engine_without_any_rail_reports_an_error");
	ft_diag("%d: %s (%s)", err.code, err.text, err.hint);
	destroyTransferEngine(e);
	setenv("MOONRAIL_DEVICES", old, 1);
	free(old);
}

/* --- law 12: ended processes cannot be opened ---------------------------- */

static void law12(void)
{
	transfer_engine_t e = fx_engine("tcp"), gone = fx_engine("tcp");
	struct fx_peer peer;
	char name[128] = "";

	fx_engine_name(gone, name, sizeof(name));
	destroyTransferEngine(gone);
	ft_ok(openSegment(e, name) == -1,
	      "law12_a_destroyed_engine_cannot_be_opened");
	if (fx_target_start(&peer, FX_MIB)) {
		fx_peer_kill(&peer);
		ft_ok(openSegment(e, peer.name) == -1,
		      "law12_a_killed_process_cannot_be_opened");
		fx_peer_drop(&peer);
	}
	if (fx_target_start(&peer, FX_MIB)) {
		ft_ok(openSegment(e, peer.name) > 0,
		      "living_process_is_opened");
		fx_peer_stop(&peer);
		ft_ok(openSegmentNoCache(e, peer.name) == -1,
		      "law12_ended_process_is_not_opened_without_cache");
	}
	destroyTransferEngine(e);
}

void law_messages(void)
{
	struct law_rig rig;

	law9();
	if (law_rig_start(&rig)) {
		law10_last_error(&rig);
		law10_task_error(&rig);
		law10_broken();
		law10_kill_is_logged_once();
		law10_flood(&rig);
		law_rig_stop(&rig);
	}
	law11_some_rails();
	law11_no_rail();
	law12();
}
