/* SPDX-License-Identifier: BSD-2-Clause */

/* File segments between processes. te_meta registers and mounts the files; the
 * engines of two processes read and write them, and every byte is compared. The
 * environment variable FT_FILES_DIR is the folder for the files, for example a
 * mount point. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_zk.h"
#include "fabtests/functional/ft_files.h"

/* Makes the peer transfer the whole segment from or to its memory, in tasks of
 * `block` bytes. Returns true on success. */
static bool peer_moves(struct fx_peer *peer, int op, uint64_t block)
{
	int seg = fx_ask(peer, "open %s", FILES_NAME);

	if (seg <= 0 ||
	    fx_ask(peer, "start %d %d 0 0 %llu %llu 1 -", seg, op,
		   (unsigned long long)FILES_SIZE, (unsigned long long)block))
		return false;
	return !fx_ask(peer, "wait") && !fx_ask(peer, "close %d", seg);
}

static bool path_is(struct files_rig *rig, const char *provider)
{
	struct te_path path;
	size_t n = 1;

	if (te_segment_paths(rig->engine, rig->seg, NULL, &path, sizeof(path),
			     &n) || n != 1)
		return false;
	ft_diag("transport %s, provider %s", path.transport, path.provider);
	return path.kind == TE_PATH_FILE &&
	       !strcmp(path.transport, "nvmeof") &&
	       (!provider || !strcmp(path.provider, provider));
}

/* Returns true if te_segment_buffers lists the files as buffers, with the
 * offset of each file as its address. */
static bool buffers_are_files(struct files_rig *rig)
{
	struct te_buffer b[FILES_COUNT + 1];
	size_t n = FILES_COUNT + 1;

	return !te_segment_buffers(rig->engine, rig->seg, b, sizeof(b[0]),
				   &n) &&
	       n == FILES_COUNT && !b[0].addr && b[0].length == FILES_FIRST &&
	       b[1].addr == FILES_FIRST && b[1].length == FILES_SECOND &&
	       !strcmp(b[0].location, "file");
}

static void both_ways(struct files_rig *rig, struct fx_peer *peer)
{
	rig->seg = openSegment(rig->engine, FILES_NAME);
	ft_ok(rig->seg > 0 && openSegment(rig->engine, "/" FILES_NAME) ==
	      rig->seg, "file_segment_is_opened");
	ft_ok(buffers_are_files(rig),
	      "file_segment_lists_its_files_as_buffers");
	fx_buf_fill(&peer->mem, 0, FILES_SIZE, 1);
	ft_ok(peer_moves(peer, OPCODE_WRITE, 70000) && files_check(rig, 1),
	      "file_segment_is_written_by_another_process");
	fx_buf_poison(&rig->mem, 0, FILES_MEM);
	ft_ok(fx_move(rig->engine, rig->seg, OPCODE_READ, rig->mem.p + 3, 0,
		      FILES_SIZE, 0) &&
	      !memcmp(rig->mem.p + 3, peer->mem.p, FILES_SIZE),
	      "file_segment_is_read_across_its_files");
	fx_buf_fill(&rig->mem, 0, FILES_SIZE, 2);
	ft_ok(fx_move(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p, 0,
		      FILES_SIZE, 4096) && files_check(rig, 2),
	      "file_segment_is_written_in_blocks");
	fx_buf_poison(&peer->mem, 0, FILES_MEM);
	ft_ok(peer_moves(peer, OPCODE_READ, 1000000) &&
	      fx_buf_check(&peer->mem, 0, FILES_SIZE, 2),
	      "file_segment_is_read_by_another_process");
}

static void destroyed(struct files_rig *rig)
{
	struct fx_job job = { .engine = rig->engine, .seg = rig->seg,
			      .op = OPCODE_WRITE, .local = rig->mem.p,
			      .len = FILES_SIZE, .block = 4096 };

	fx_buf_fill(&rig->mem, 0, FILES_SIZE, 3);
	ft_ok(fx_job_under_way(&job), "writes_are_under_way");
	destroyTransferEngine(rig->engine);
	rig->engine = NULL;
	ft_ok(files_check(rig, 3), "destroy_waits_for_writes_under_way");
}

static void with(const char *io, const char *sync, const char *provider)
{
	struct files_rig rig;
	struct fx_peer peer;

	setenv("MOONRAIL_FILE_IO", io, 1);
	setenv("MOONRAIL_FILE_SYNC", sync, 1);
	ft_diag("MOONRAIL_FILE_IO=%s MOONRAIL_FILE_SYNC=%s", io, sync);
	if (files_make(&rig) && files_engine(&rig, "nvmeof") &&
	    files_register(&rig) &&
	    ft_ok(fx_peer_start(&peer, FILES_MEM, "transport=nvmeof", NULL) &&
		  !fx_ask(&peer, "reg 0 %llu 0", (unsigned long long)FILES_MEM),
		  "peer_starts")) {
		both_ways(&rig, &peer);
		ft_ok(path_is(&rig, provider), "file_segment_path_is_reported");
		destroyed(&rig);
		fx_peer_stop(&peer);
	}
	ft_ok(!files_meta(&rig, "remove test"), "file_segment_is_removed");
	files_close(&rig);
	files_remove(&rig);
	setenv("MOONRAIL_FILE_IO", "auto", 1);
	setenv("MOONRAIL_FILE_SYNC", "data", 1);
}

static void with_zookeeper(void)
{
	struct files_rig rig;
	struct fx_peer peer;
	struct ft_zk zk;

	if (ft_zk_missing()) {
		printf("skip - files_with_zookeeper: %s\n", ft_zk_missing());
		return;
	}
	if (!ft_ok(ft_zk_start(&zk, 1), "zookeeper_server_starts"))
		return;
	files_make(&rig);
	snprintf(rig.meta, sizeof(rig.meta), "zookeeper://%s/files", zk.hosts);
	strcpy(rig.server, "reader");
	setenv("FX_META", rig.meta, 1);
	if (files_engine(&rig, "nvmeof") && files_register(&rig) &&
	    ft_ok(!files_meta(&rig, "mount --server=writer test %s %s",
			      rig.path[0], rig.path[1]),
			      "file_segment_is_mounted_for_the_peer") &&
	    ft_ok(fx_peer_start(&peer, FILES_MEM, "transport=nvmeof",
				"FX_NAME=writer", NULL) &&
		  !fx_ask(&peer, "reg 0 %llu 0", (unsigned long long)FILES_MEM),
		  "peer_starts")) {
		both_ways(&rig, &peer);
		fx_peer_stop(&peer);
		ft_ok(!files_meta(&rig, "remove test"),
		      "file_segment_is_removed");
		ft_ok(openSegmentNoCache(rig.engine, FILES_NAME) == -1,
		      "removed_file_segment_cannot_be_opened");
	}
	unsetenv("FX_META");
	files_close(&rig);
	files_remove(&rig);
	ft_zk_stop(&zk);
}

int main(int argc, char **argv)
{
	fx_init(argc, argv);
	with("threads", "data", "threads");
	with("auto", "dsync", NULL);
	with("auto", "data", NULL);
	files_bad();
	/* This case cannot use a given folder: it would use the folder of the
	 * cases above. */
	if (!getenv("FT_FILES_DIR"))
		with_zookeeper();
	return ft_result();
}
