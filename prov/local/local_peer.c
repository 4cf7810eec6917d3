/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that kernel copies can reach, and checks of their identity. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "prov/local/local_int.h"

#define PEER_MAX_PID	(1 << 22)	/* the kernel uses no higher pid */

static enum tei_local_reason peer_check_id(struct tei_local *ctx,
					   const struct tei_local_id *id)
{
	if (local_guard(ctx))
		return TEI_LOCAL_FORKED;
	if (id->pid <= 0 || id->pid > PEER_MAX_PID || id->magic_fd < 0 ||
	    !id->incarnation || !id->magic_addr ||
	    !memchr(id->boot_id, '\0', sizeof(id->boot_id)))
		return TEI_LOCAL_BAD_ID;
	if (!ctx->shared)
		return TEI_LOCAL_NO_KERNEL;
	if (strcmp(id->boot_id, ctx->host.boot_id))
		return TEI_LOCAL_OTHER_HOST;
	if (id->pid_ns != ctx->host.pid_ns)
		return TEI_LOCAL_OTHER_PIDNS;
	return TEI_LOCAL_OK;
}

/*
 * Opens the pidfd and checks the start time. The pidfd is opened first: as long
 * as the pidfd does not report that the process has ended, /proc/PID belongs to
 * this process.
 */
static enum tei_local_reason peer_open_process(struct tei_local_peer *peer)
{
	uint64_t start;
	int fd = local_pidfd_open(peer->id.pid), rc;

	if (fd < 0) {
		switch (-fd) {
		case ESRCH:
		case EINVAL:
			return TEI_LOCAL_GONE;
		case EMFILE:
		case ENFILE:
		case ENOMEM:
			return TEI_LOCAL_NO_RESOURCE;
		default:
			return TEI_LOCAL_NO_KERNEL;
		}
	}
	peer->pidfd = fd;
	rc = local_proc_start_time(peer->id.pid, &start);
	if (local_pidfd_ended(fd))
		return TEI_LOCAL_GONE;
	if (rc)
		return TEI_LOCAL_NO_PERMISSION; /* /proc may be mounted with
						 * hidepid, which hides the
						 * process */
	return start == peer->id.start_time ? TEI_LOCAL_OK :
					      TEI_LOCAL_RESTARTED;
}

static enum tei_local_reason peer_probe_reason(int err)
{
	switch (err) {
	case ESRCH:
		return TEI_LOCAL_GONE;
	case EPERM:
	case EACCES:
		return TEI_LOCAL_NO_PERMISSION;
	case ENOSYS:
		return TEI_LOCAL_NO_KERNEL;
	case ENOMEM:
		return TEI_LOCAL_NO_RESOURCE;
	default:
		return TEI_LOCAL_BAD_MAGIC;
	}
}

/*
 * Checks that the memory at magic_addr in the process is the mapped
 * registration table, and is readable and writable.
 */
static enum tei_local_reason peer_probe(const struct tei_local_peer *peer)
{
	uint64_t magic[2] = { 0, 0 }, scratch = 0;
	ssize_t n;
	struct iovec local = { magic, sizeof(magic) };
	struct iovec remote = { (void *)(uintptr_t)peer->id.magic_addr,
				sizeof(magic) };

	n = process_vm_readv(peer->id.pid, &local, 1, &remote, 1, 0);
	if (n != (ssize_t)sizeof(magic))
		return peer_probe_reason(n < 0 ? errno : EFAULT);
	if (magic[0] != LOCAL_MAGIC)
		return TEI_LOCAL_BAD_MAGIC;
	if (magic[1] != peer->id.incarnation)
		return TEI_LOCAL_RESTARTED;
	local = (struct iovec){ &scratch, sizeof(scratch) };
	remote = (struct iovec){
		(void *)(uintptr_t)(peer->id.magic_addr +
				    offsetof(struct local_shared_table,
					     scratch)),
		sizeof(scratch)
	};
	n = process_vm_writev(peer->id.pid, &local, 1, &remote, 1, 0);
	if (n != (ssize_t)sizeof(scratch))
		return peer_probe_reason(n < 0 ? errno : EFAULT);
	return TEI_LOCAL_OK;
}

static enum tei_local_reason peer_attach(struct tei_local_peer *peer)
{
	enum tei_local_reason reason;
	struct local_head *head;

	reason = local_shared_table_attach(peer->id.pid, peer->id.magic_fd,
					   &peer->shared_table);
	if (reason != TEI_LOCAL_OK)
		return !peer->self && local_pidfd_ended(peer->pidfd) ?
			TEI_LOCAL_GONE : reason;
	head = &peer->shared_table->head;
	if (atomic_load(&head->magic) != LOCAL_MAGIC ||
	    atomic_load(&head->layout) != local_layout())
		return TEI_LOCAL_BAD_MAGIC;
	if (atomic_load(&head->incarnation) != peer->id.incarnation)
		return TEI_LOCAL_RESTARTED;
	return peer->self ? TEI_LOCAL_OK : peer_probe(peer);
}

static enum tei_local_reason peer_connect(struct tei_local *ctx,
					  struct tei_local_peer *peer)
{
	enum tei_local_reason reason;

	peer->self = peer->id.pid == ctx->host.pid;
	if (peer->self) {
		if (peer->id.start_time != ctx->host.start_time)
			return TEI_LOCAL_RESTARTED;
		if (peer->id.incarnation == ctx->incarnation)
			return TEI_LOCAL_OK;
		return peer_attach(peer);
	}
	peer->view = local_view_new();
	if (!peer->view)
		return TEI_LOCAL_NO_RESOURCE;
	reason = peer_open_process(peer);
	return reason == TEI_LOCAL_OK ? peer_attach(peer) : reason;
}

/* Frees the objects that the peer refers to. In a forked child there is no
 * mapping to free, because of MADV_DONTFORK. */
static void peer_fini(struct tei_local *ctx, struct tei_local_peer *peer)
{
	bool forked = local_guard(ctx) != 0;

	if (!forked)
		local_watch_remove(ctx, peer);
	local_view_free(peer->view, forked);
	if (peer->shared_table && !forked)
		local_shared_table_unmap(peer->shared_table);
	if (peer->pidfd >= 0)
		close(peer->pidfd);
}

static enum tei_local_reason peer_make(struct tei_local *ctx,
				       const struct tei_local_id *id,
				       struct tei_local_peer **out)
{
	enum tei_local_reason reason = peer_check_id(ctx, id);
	struct tei_local_peer *peer;

	if (reason != TEI_LOCAL_OK)
		return reason;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return TEI_LOCAL_NO_RESOURCE;
	peer->id = *id;
	peer->pidfd = -1;
	tei_list_init(&peer->watch_node);
	reason = peer_connect(ctx, peer);
	if (reason != TEI_LOCAL_OK) {
		peer_fini(ctx, peer);
		free(peer);
		return reason;
	}
	*out = peer;
	return TEI_LOCAL_OK;
}

enum tei_local_reason tei_local_peer_open(struct tei_local *ctx,
					  const struct tei_local_id *id,
					  struct tei_err *err,
					  struct tei_local_peer **out)
{
	enum tei_local_reason reason = TEI_LOCAL_BAD_ID;

	if (ctx && id && out)
		reason = peer_make(ctx, id, out);
	if (reason == TEI_LOCAL_NO_KERNEL && ctx->host.missing)
		local_explain(err, TEI_ERR_UNSUPPORTED, 0, "%s: %s is missing",
			      tei_local_reason_text(reason),
			      ctx->host.missing);
	else if (reason != TEI_LOCAL_OK)
		local_explain(err, TEI_ERR_UNSUPPORTED, 0, "process %d: %s",
			      id ? id->pid : 0, tei_local_reason_text(reason));
	return reason;
}

void tei_local_peer_close(struct tei_local *ctx, struct tei_local_peer *peer)
{
	if (!peer)
		return;
	if (!local_guard(ctx))
		local_pool_drain(ctx, peer);
	peer_fini(ctx, peer);
	free(peer);
}

enum tei_local_reason local_peer_check(struct tei_local_peer *peer)
{
	if (!peer->shared_table)
		return TEI_LOCAL_OK;
	if (!local_peer_holds(peer) && tei_local_peer_ended(peer))
		return TEI_LOCAL_GONE;
	return atomic_load(&peer->shared_table->head.incarnation) ==
			       peer->id.incarnation
		       ? TEI_LOCAL_OK
		       : TEI_LOCAL_RESTARTED;
}

bool tei_local_peer_alive(struct tei_local_peer *peer)
{
	if (local_peer_check(peer) != TEI_LOCAL_OK)
		return false;
	return peer->self || peer_probe(peer) == TEI_LOCAL_OK;
}

bool tei_local_peer_ended(const struct tei_local_peer *peer)
{
	return peer->pidfd >= 0 && local_pidfd_ended(peer->pidfd);
}

bool tei_local_peer_is_self(const struct tei_local_peer *peer)
{
	return peer->self;
}

bool tei_local_peer_maps(const struct tei_local_peer *peer)
{
	return peer->view && local_view_possible(peer);
}

bool tei_local_op_mapped(const struct tei_local_op *op)
{
	const struct tei_local_peer *peer = op->peer;
	struct local_place at;

	return op->registered && peer && peer->view &&
	       local_shared_table_place(peer->shared_table, op->remote,
					op->length, &at) &&
	       local_view_permits(peer->view, at.file);
}

uint64_t tei_local_serial(struct tei_local *ctx,
			  const struct tei_local_peer *peer, uint64_t addr,
			  uint64_t len, bool write)
{
	struct local_shared_table *table = peer ? peer->shared_table : NULL;

	return local_shared_table_serial(
		table ? table : ctx->own, addr, len,
		(table && !peer->self ? LOCAL_ACCESSIBLE : 0) |
			(write ? LOCAL_WRITABLE : 0));
}

bool tei_local_peer_covers(const struct tei_local_peer *peer, uint64_t addr,
			   uint64_t len, bool write)
{
	return !peer->shared_table ||
	       local_shared_table_covers(peer->shared_table, addr, len,
					 (peer->self ? 0 : LOCAL_ACCESSIBLE) |
						 (write ? LOCAL_WRITABLE : 0));
}
