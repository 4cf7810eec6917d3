/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests several connections between two rails: two processes move bulk data
 * over two connections, of which one or the other is cut during a transfer.
 * Every byte is checked.
 */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/functional/fx.h"

#define CONNECTIONS_MEM	   (64 * FX_MIB)
#define CONNECTIONS_BLOCK  (4 * FX_MIB)
#define CONNECTIONS_FDS	   1024
/* number of acknowledged bytes from which a socket counts as one that carries
 * bulk data */
#define CONNECTIONS_CARRIED FX_MIB
#define CONNECTIONS_CUTS   6
/* maximum number of transfers in which a cut is tried */
#define CONNECTIONS_ROUNDS 100

struct connections_rig {
	transfer_engine_t engine;
	struct fx_buf mem;
	struct fx_peer target;	/* its memory is as large as `mem` */
	segment_id_t seg;
	uint64_t sequence;	/* number of the last transfer */
};

static bool connections_start(struct connections_rig *rig, const char *most,
			      const char *least)
{
	memset(rig, 0, sizeof(*rig));
	setenv("MOONRAIL_CONNECTIONS", most, 1);
	setenv("MOONRAIL_CONNECTIONS_MIN", least, 1);
	rig->engine = fx_engine_timeout("tcp", FX_PATIENT_S);
	rig->mem = fx_buf_map(CONNECTIONS_MEM, -1);
	if (!rig->engine || !rig->mem.p ||
	    !fx_register(rig->engine, &rig->mem) ||
	    !fx_target_start(&rig->target, CONNECTIONS_MEM))
		return false;
	rig->seg = openSegment(rig->engine, rig->target.name);
	return rig->seg >= 0;
}

static void connections_stop(struct connections_rig *rig)
{
	ft_ok(fx_buf_guards(&rig->mem) && fx_buf_guards(&rig->target.mem),
	      "guard_zones_are_unchanged");
	if (rig->engine)
		destroyTransferEngine(rig->engine);
	fx_buf_unmap(&rig->mem);
	fx_peer_stop(&rig->target);
}

/* Returns the number of established connections to the target. */
static unsigned int connections_count(const struct connections_rig *rig)
{
	struct te_path path[8];
	size_t n = 8;

	if (te_segment_paths(rig->engine, rig->seg, NULL, path, sizeof(path[0]),
			     &n) ||
	    n != 1)
		return 0;
	return path[0].connections;
}

/* Returns the number of bytes that the peer of the TCP socket has acknowledged,
 * or 0 if fd is no such socket. */
static uint64_t connections_acked(int fd)
{
	struct tcp_info info = { 0 };
	socklen_t len = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len))
		return 0;
	return info.tcpi_bytes_acked;
}

/* Fills "fds" with the sockets that have carried bulk data. Returns their
 * number, at most 8. */
static unsigned int connections_busy(int fds[8])
{
	unsigned int n = 0;

	for (int fd = 3; fd < CONNECTIONS_FDS && n < 8; fd++)
		if (connections_acked(fd) >= CONNECTIONS_CARRIED)
			fds[n++] = fd;
	return n;
}

static bool connections_begin(struct connections_rig *rig, struct fx_job *job)
{
	*job = (struct fx_job){
		.engine = rig->engine, .seg = rig->seg, .op = OPCODE_WRITE,
		.local = rig->mem.p, .remote = rig->target.mem.addr,
		.len = CONNECTIONS_MEM, .block = CONNECTIONS_BLOCK,
	};
	fx_buf_fill(&rig->mem, 0, CONNECTIONS_MEM, ++rig->sequence);
	return !fx_job_start(job);
}

/* Waits for the end of the job. Returns true if all tasks are COMPLETED and
 * every byte is right. */
static bool connections_finish(struct connections_rig *rig, struct fx_job *job)
{
	bool good = fx_job_wait(job, FX_LONG_MS) &&
		    job->n[STATUS_COMPLETED] == job->tasks;

	if (!good)
		ft_diag("transfer %llu: %s", (unsigned long long)rig->sequence,
			fx_job_text(job));
	return fx_job_free(job) && good &&
	       fx_buf_check(&rig->target.mem, 0, CONNECTIONS_MEM,
			    rig->sequence);
}

static bool connections_move(struct connections_rig *rig)
{
	struct fx_job job;

	return connections_begin(rig, &job) && connections_finish(rig, &job);
}

static bool connections_are_two(void *arg)
{
	return connections_move(arg) && connections_count(arg) == 2;
}

/* Cuts a connection that carries bulk data in the middle of a transfer: the
 * first or the last one that exists. Returns false if the transfer fails. Adds
 * 1 to *cuts if a connection was cut. */
static bool connections_cut(struct connections_rig *rig, bool last,
			    unsigned int *cuts)
{
	unsigned int n;
	struct fx_job job;
	int fds[8];

	if (!connections_begin(rig, &job))
		return false;
	fx_job_reach(&job, CONNECTIONS_MEM / 4, FX_LONG_MS);
	n = connections_busy(fds);
	if (n >= 2 && job.bytes < CONNECTIONS_MEM)
		*cuts += !shutdown(fds[last ? n - 1 : 0], SHUT_RDWR);
	return connections_finish(rig, &job);
}

static void connections_two(void)
{
	struct te_peer_stats peer = { 0 };
	struct connections_rig rig;
	unsigned int i, cuts = 0;
	bool good;
	int fds[8];

	ft_ok(connections_start(&rig, "2", "2"), "engine_and_target_start");
	ft_ok(ft_wait_until(connections_are_two, &rig, FX_LONG_MS),
	      "bulk_data_makes_two_connections");
	ft_ok(connections_move(&rig) && connections_busy(fds) == 2,
	      "both_connections_carry_data");
	ft_ok(fx_move(rig.engine, rig.seg, OPCODE_READ, rig.mem.p,
		      rig.target.mem.addr, CONNECTIONS_MEM,
		      CONNECTIONS_BLOCK) &&
		      fx_buf_check(&rig.mem, 0, CONNECTIONS_MEM, rig.sequence),
	      "read_over_two_connections_is_right");
	for (i = 0, good = true;
	     good && i < CONNECTIONS_ROUNDS && cuts < CONNECTIONS_CUTS; i++)
		good = connections_cut(&rig, cuts % 2, &cuts);
	ft_ok(good, "transfer_survives_cut_of_one_connection");
	ft_diag("%u connections were cut in %u transfers", cuts, i);
	ft_ok(cuts == CONNECTIONS_CUTS, "connections_are_cut");
	ft_ok(!te_peer_stats(rig.engine, rig.seg, &peer, sizeof(peer)) &&
		      peer.retries && peer.fences,
	      "cut_connections_are_fenced_and_slices_posted_again");
	ft_ok(ft_wait_until(connections_are_two, &rig, FX_LONG_MS),
	      "cut_connection_is_made_again");
	connections_stop(&rig);
}

static void connections_off(void)
{
	struct connections_rig rig;
	int fds[8];

	ft_ok(connections_start(&rig, "1", "1"),
	      "engine_without_further_connections_starts");
	for (int i = 0; i < 4; i++)
		ft_ok(connections_move(&rig), "transfer_completes");
	ft_ok(connections_count(&rig) == 1 && connections_busy(fds) == 1,
	      "limit_of_one_connection_is_kept");
	connections_stop(&rig);
}

int main(int argc, char **argv)
{
	fx_init(argc, argv);
	setenv("MOONRAIL_DEVICES", "127.0.0.1", 1);
	connections_two();
	connections_off();
	return ft_result();
}
