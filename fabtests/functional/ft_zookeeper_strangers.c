/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fabtests/functional/ft_zookeeper.h"

/* Tests of processes without the shared secret or the ZooKeeper credentials of
 * the other processes. */

static bool strangers_file(char path[64], const char *text)
{
	int fd;

	strcpy(path, "/tmp/ft_zookeeper.XXXXXX");
	fd = mkstemp(path);
	if (fd < 0)
		return false;
	dprintf(fd, "%s\n", text);
	return !fchmod(fd, 0600) && !close(fd);
}

/* Creates an engine with all transports, kernel copies included, and registers
 * `mem`. Returns NULL on failure. */
static transfer_engine_t strangers_engine(const char *conn, const char *name,
					  const struct fx_buf *mem)
{
	transfer_engine_t e = createTransferEngine(conn, name, "127.0.0.1", 0,
						   1);

	if (e && fx_register(e, mem))
		return e;
	if (e)
		destroyTransferEngine(e);
	return NULL;
}

static bool strangers_move(struct zk_rig *rig, transfer_engine_t e,
			   segment_id_t seg, struct fx_peer *target)
{
	uint64_t seq = ++rig->sequence;
	bool moved;

	fx_buf_fill(&rig->mem, 0, ZK_MEM, seq);
	moved = seg >= 0 && fx_move(e, seg, OPCODE_WRITE, rig->mem.p,
				    target->mem.addr, FX_MIB, 0);
	return moved && fx_buf_check(&target->mem, 0, FX_MIB, seq);
}

/* Opens the segment whose descriptor (of `size` bytes) the target has exported
 * to the second half of its memory. Returns the segment id, or -1 on
 * failure. */
static segment_id_t strangers_import(transfer_engine_t e,
				     struct fx_peer *target, int size)
{
	segment_id_t seg;

	if (size <= 0 ||
	    te_segment_import(e, target->mem.p + ZK_MEM / 2, (size_t)size, 0,
			      &seg))
		return -1;
	return seg;
}

static void strangers_with_a_secret(struct zk_rig *rig, const char *file)
{
	struct fx_peer target;
	transfer_engine_t e;
	char own[96];
	int size;

	snprintf(own, sizeof(own), "MOONRAIL_SECRET_FILE=%s", file);
	if (!ft_ok(fx_peer_start(&target, ZK_MEM, "transport=auto",
				 "FX_NAME=vault", own, NULL) &&
		   !fx_ask(&target, "reg 0 %llu 1", ZK_MEM / 2),
		   "a_target_with_a_secret"))
		return;
	size = fx_ask(&target, "export %llu", ZK_MEM / 2);
	e = strangers_engine(rig->conn, "stranger", &rig->mem);
	if (!ft_ok(size > 0 && e, "engine_without_the_secret_starts"))
		return;
	ft_ok(openSegment(e, "vault") < 0,
	      "engine_without_the_secret_cannot_open_the_segment");
	ft_diag("%s", zk_said());
	ft_ok(!strangers_move(rig, e, strangers_import(e, &target, size),
			      &target),
	      "engine_without_the_secret_cannot_use_an_exported_blob");
	destroyTransferEngine(e);
	setenv("MOONRAIL_SECRET_FILE", file, 1);
	e = strangers_engine(rig->conn, "friend", &rig->mem);
	unsetenv("MOONRAIL_SECRET_FILE");
	ft_ok(e && strangers_move(rig, e, openSegment(e, "vault"), &target),
	      "engine_with_the_secret_writes");
	if (e)
		destroyTransferEngine(e);
	fx_peer_stop(&target);
}

static transfer_engine_t strangers_engine_as(const char *file,
					     const char *conn,
					     const char *name,
					     const struct fx_buf *mem)
{
	transfer_engine_t e;

	setenv("MOONRAIL_ZK_AUTH_FILE", file, 1);
	e = strangers_engine(conn, name, mem);
	unsetenv("MOONRAIL_ZK_AUTH_FILE");
	return e;
}

/* Tests MOONRAIL_ZK_AUTH_FILE. The chroot of *rig was created without
 * credentials, and the chroot "/closed" is created with them. */
static void strangers_with_credentials(struct zk_rig *rig, const char *file)
{
	char conn[192], own[96], meta[224];
	struct fx_peer target;
	transfer_engine_t e;

	ft_ok(!strangers_engine_as(file, rig->conn, "late", &rig->mem) &&
	      strstr(zk_said(), "may change /moon/rail/mooncake"),
	      "credentials_are_not_wasted_on_open_folders");
	snprintf(conn, sizeof(conn), "zookeeper://%s/closed", rig->zk.hosts);
	snprintf(meta, sizeof(meta), "FX_META=%s", conn);
	snprintf(own, sizeof(own), "MOONRAIL_ZK_AUTH_FILE=%s", file);
	if (!ft_ok(fx_peer_start(&target, ZK_MEM, "FX_NAME=safe", meta, own,
				 NULL) &&
		   !fx_ask(&target, "reg 0 %llu 1", ZK_MEM),
		   "a_target_with_credentials"))
		return;
	e = strangers_engine_as(file, conn, "friend", &rig->mem);
	ft_ok(e && strangers_move(rig, e, openSegment(e, "safe"), &target),
	      "engine_with_the_credentials_writes");
	ft_ok(!createTransferEngine(conn, "stranger", "127.0.0.1", 0, 0) &&
		      strstr(zk_said(), "does not allow the operation"),
	      "engine_without_credentials_gets_a_clear_error");
	ft_ok(fx_peer_pause(&target) &&
		      !createTransferEngine(conn, "safe", "127.0.0.1", 0, 0),
	      "engine_without_credentials_cannot_take_a_stopped_owners_name");
	fx_peer_resume(&target);
	ft_ok(e && strangers_move(rig, e, openSegmentNoCache(e, "safe"),
				  &target),
	      "stopped_owner_keeps_its_name");
	if (e)
		destroyTransferEngine(e);
	fx_peer_stop(&target);
}

void zk_strangers(struct zk_rig *rig)
{
	char secret[64], credentials[64];

	if (!ft_ok(strangers_file(secret, "a secret of enough bytes") &&
		   strangers_file(credentials, "moon:secret"),
		   "a_secret_and_credentials"))
		return;
	strangers_with_a_secret(rig, secret);
	strangers_with_credentials(rig, credentials);
	unlink(secret);
	unlink(credentials);
}
