/* SPDX-License-Identifier: BSD-2-Clause */

/* enableGracefulShutdown: what a process does before it ends by a signal or by
 * exit(). */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/functional/fx.h"

#define SHUT_MEM (64 * FX_MIB)

/* Suppresses reports of ThreadSanitizer: the peers end while a job is in
 * progress, so its thread is never joined. */
const char *__tsan_default_options(void)
	__attribute__((visibility("default")));
const char *__tsan_default_options(void)
{
	return "report_thread_leaks=0";
}

/* The test process is the initiator. The same target is used in all cases. */
struct shut_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;
};

static bool shut_reaped(void *arg)
{
	struct fx_peer *peer = arg;

	return waitpid(peer->proc.pid, (int *)(void *)peer->text, WNOHANG) ==
	       peer->proc.pid;
}

/* Waits until the peer has ended. Returns its exit code, or -1 if a signal
 * ended it or it does not end in time. */
static int shut_code(struct fx_peer *peer)
{
	int status;

	if (!ft_wait_until(shut_reaped, peer, FX_LONG_MS))
		return -1;
	memcpy(&status, peer->text, sizeof(status));
	peer->proc.pid = 0;
	if (!WIFEXITED(status))
		ft_diag("the peer was ended by signal %d", WTERMSIG(status));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool shut_signalled(struct fx_peer *peer, int sig)
{
	int code;

	kill(peer->proc.pid, sig);
	code = shut_code(peer);
	if (code != 128 + sig)
		ft_diag("unexpected exit code %d", code);
	return code == 128 + sig;
}

static bool shut_gone(struct shut_rig *rig, const char *name)
{
	return openSegmentNoCache(rig->engine, name) == -1;
}

/* Returns true if the peers of an ended process know that it has ended: a write
 * to its segment is refused, or fails well before MC_SLICE_TIMEOUT, because the
 * process has sent BYE. */
static bool shut_told(struct shut_rig *rig, const struct fx_peer *peer,
		      segment_id_t seg)
{
	struct fx_job job = { .engine = rig->engine, .seg = seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .remote = peer->mem.addr, .len = 4096 };
	bool good;

	if (fx_job_start(&job))
		return true;
	good = fx_job_wait(&job, FX_PATIENT_S * 1000 / 2) &&
	       job.n[STATUS_FAILED] == 1;
	if (!good)
		ft_diag("%s", fx_job_text(&job));
	fx_job_wait(&job, FX_LONG_MS);
	return fx_job_free(&job) && good;
}

static bool shut_peer(struct shut_rig *rig, struct fx_peer *peer,
		      segment_id_t *seg)
{
	if (!fx_target_start(peer, SHUT_MEM))
		return false;
	*seg = openSegment(rig->engine, peer->name);
	return *seg > 0 && fx_move(rig->engine, *seg, OPCODE_WRITE, rig->mem.p,
				   peer->mem.addr, FX_MIB, 0);
}

/* Makes the peer start a write of all its memory to the target. Returns true on
 * success. */
static bool shut_writes(struct shut_rig *rig, struct fx_peer *peer,
			uint64_t sequence)
{
	int seg = fx_ask(peer, "open %s", rig->target.name);

	fx_buf_fill(&peer->mem, 0, SHUT_MEM, sequence);
	fx_buf_poison(&rig->target.mem, 0, SHUT_MEM);
	return seg > 0 && !fx_ask(peer, "start %d 1 0 %llu %llu %llu 1 -", seg,
				  (unsigned long long)rig->target.mem.addr,
				  SHUT_MEM, FX_MIB);
}

static bool shut_under_way(void *arg)
{
	struct fx_peer *peer = arg;

	return !fx_ask(peer, "bytes") && atoi(peer->text) > 0;
}

static void shut_by_signal(struct shut_rig *rig, int sig, const char *name)
{
	struct fx_peer peer;
	segment_id_t seg;
	bool good;

	if (!ft_ok(shut_peer(rig, &peer, &seg) && !fx_ask(&peer, "graceful") &&
			   !fx_ask(&peer, "graceful"),
		   "graceful_process_starts"))
		return;
	good = shut_writes(rig, &peer, (uint64_t)sig) &&
	       ft_wait_until(shut_under_way, &peer, FX_LONG_MS);
	ft_ok(good, "graceful_process_writes");
	ft_ok(shut_signalled(&peer, sig),
	      "%s_ends_process_with_128_plus_its_number", name);
	ft_ok(fx_buf_check(&rig->target.mem, 0, SHUT_MEM, (uint64_t)sig),
	      "%s_drains_transfers_under_way", name);
	ft_ok(shut_gone(rig, peer.name), "law12_%s_withdraws_the_segment",
	      name);
	ft_ok(shut_told(rig, &peer, seg), "%s_tells_the_peers", name);
	closeSegment(rig->engine, seg);
	fx_peer_drop(&peer);
}

static void shut_by_exit(struct shut_rig *rig)
{
	struct fx_peer peer;
	segment_id_t seg;

	if (!ft_ok(shut_peer(rig, &peer, &seg) && !fx_ask(&peer, "graceful"),
		   "graceful_process_starts"))
		return;
	ft_ok(shut_writes(rig, &peer, 99) && fx_send(&peer, "exit 7") &&
	      shut_code(&peer) == 7, "exit_keeps_its_code");
	ft_ok(shut_told(rig, &peer, seg) && shut_gone(rig, peer.name),
	      "exit_withdraws_the_segment_and_tells_the_peers");
	closeSegment(rig->engine, seg);
	fx_peer_drop(&peer);
}

static void shut_two_engines(struct shut_rig *rig)
{
	struct fx_peer peer;
	segment_id_t seg;
	char second[128] = "";
	bool good;

	good = shut_peer(rig, &peer, &seg) && !fx_ask(&peer, "graceful") &&
	       !fx_ask(&peer, "second");
	snprintf(second, sizeof(second), "%.127s", peer.text);
	if (!ft_ok(good && openSegment(rig->engine, second) > 0,
		   "a_process_with_two_graceful_engines"))
		return;
	ft_ok(shut_signalled(&peer, SIGTERM) && shut_gone(rig, peer.name) &&
	      shut_gone(rig, second), "both_engines_are_withdrawn");
	closeSegment(rig->engine, seg);
	fx_peer_drop(&peer);
}

static void shut_after_destroy(struct shut_rig *rig)
{
	struct fx_peer peer;
	segment_id_t seg;

	if (!ft_ok(shut_peer(rig, &peer, &seg) && !fx_ask(&peer, "graceful") &&
		   !fx_ask(&peer, "destroy"), "an_engine_that_is_gone"))
		return;
	ft_ok(shut_signalled(&peer, SIGTERM),
	      "a_signal_after_the_engine_is_128_plus_its_number");
	closeSegment(rig->engine, seg);
	fx_peer_drop(&peer);
}

static void shut_handler_before(struct shut_rig *rig)
{
	struct fx_peer peer;
	segment_id_t seg;

	if (!ft_ok(shut_peer(rig, &peer, &seg) && !fx_ask(&peer, "handler") &&
		   !fx_ask(&peer, "graceful"), "a_program_with_a_handler"))
		return;
	peer.mem.p[0] = 0;
	ft_ok(shut_signalled(&peer, SIGTERM) && !peer.mem.p[0],
	      "an_older_handler_is_replaced");
	ft_ok(shut_told(rig, &peer, seg), "peers_are_notified_of_the_shutdown");
	closeSegment(rig->engine, seg);
	fx_peer_drop(&peer);
}

static void shut_handler_after(struct shut_rig *rig)
{
	struct fx_peer peer;
	segment_id_t seg;
	bool good;

	if (!ft_ok(shut_peer(rig, &peer, &seg) && !fx_ask(&peer, "graceful") &&
		   !fx_ask(&peer, "handler"), "a_program_with_a_later_handler"))
		return;
	peer.mem.p[0] = 0;
	kill(peer.proc.pid, SIGTERM);
	good = !fx_ask(&peer, "destroy") && peer.mem.p[0] == 0x77;
	ft_ok(good && shut_gone(rig, peer.name), "a_later_handler_is_obeyed");
	ft_ok(fx_peer_stop(&peer), "peer_ends_without_error");
	closeSegment(rig->engine, seg);
}

#ifdef __SANITIZE_THREAD__
static void shut_forked(struct shut_rig *rig)
{
	(void)rig;
	ft_diag("skipped: ThreadSanitizer does not call signal handlers in the "
		"child of a process that had threads");
}
#else
/* A signal to a forked child must end the child only. The engine of its parent
 * must not shut down. */
static void shut_forked(struct shut_rig *rig)
{
	struct fx_peer peer;
	segment_id_t seg;

	if (!ft_ok(shut_peer(rig, &peer, &seg) && !fx_ask(&peer, "graceful") &&
		   !fx_ask(&peer, "fork"), "a_process_with_a_child"))
		return;
	kill(atoi(peer.text), SIGTERM);
	ft_ok(!fx_ask(&peer, "ended"), "law7_a_signal_ends_the_child_itself");
	ft_ok(fx_move(rig->engine, seg, OPCODE_WRITE, rig->mem.p, peer.mem.addr,
		      FX_MIB, 0),
	      "law7_parent_of_a_signalled_child_goes_on");
	ft_ok(shut_signalled(&peer, SIGTERM),
	      "law7_parent_ends_by_its_own_signal");
	closeSegment(rig->engine, seg);
	fx_peer_drop(&peer);
}
#endif

int main(int argc, char **argv)
{
	struct shut_rig rig = { 0 };

	fx_init(argc, argv);
	rig.mem = fx_buf_map(SHUT_MEM, -1);
	rig.engine = fx_engine("tcp");
	if (!ft_ok(rig.engine && fx_register(rig.engine, &rig.mem) &&
			   fx_target_start(&rig.target, SHUT_MEM),
		   "two_processes_start"))
		return ft_result();
	shut_by_signal(&rig, SIGTERM, "SIGTERM");
	shut_by_signal(&rig, SIGINT, "SIGINT");
	shut_by_exit(&rig);
	shut_two_engines(&rig);
	shut_after_destroy(&rig);
	shut_handler_before(&rig);
	shut_handler_after(&rig);
	shut_forked(&rig);
	destroyTransferEngine(rig.engine);
	ft_ok(fx_peer_stop(&rig.target), "target_ends_well");
	fx_buf_unmap(&rig.mem);
	return ft_result();
}
