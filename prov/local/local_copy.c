/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies one piece: makes the checks before the copy, copies, and reports
 * errors. */
#include <errno.h>
#include <string.h>

#include "prov/local/local_int.h"
#include "prov/local/local_move.h"

static bool copy_to_self(const struct local_piece *p)
{
	return !p->peer || p->peer->self;
}

static bool copy_local_mapped(struct tei_local *ctx, void *addr, uint64_t len)
{
	char byte[2];
	struct iovec local = { byte, 2 };
	struct iovec remote[2] = { { addr, 1 },
				   { (char *)addr + len - 1, 1 } };

	return process_vm_readv(ctx->host.pid, &local, 1, remote, 2, 0) == 2;
}

static int copy_explain(const struct local_piece *p, uint64_t done,
			int sys_errno, struct tei_err *err)
{
	struct tei_local *ctx = p->ctx;

	switch (sys_errno) {
	case ESRCH:
		return local_fail(ctx, err, TEI_ERR_CONTEXT, p->peer,
				  sys_errno, "the process has ended");
	case EPERM:
		return local_fail(ctx, err, TEI_ERR_CONTEXT, p->peer,
				  sys_errno, "the kernel no longer permits access to the process");
	case ENOMEM:
		return local_fail(ctx, err, TEI_ERR_MEMORY, p->peer,
				  sys_errno, "the kernel is out of memory");
	case EFAULT:
		if (!copy_local_mapped(ctx, p->local + done,
				       p->length - done))
			return local_fail(ctx, err, TEI_ERR_INVALID, p->peer,
					  sys_errno,
					  "local memory near %p is not mapped",
					  (void *)(p->local + done));
		return local_fail(ctx, err, TEI_ERR_CONTEXT, p->peer,
				  sys_errno,
				  "target memory near %#llx is not mapped, or is read-only",
				  (unsigned long long)(p->remote + done));
	default:
		return local_fail(ctx, err, TEI_ERR_CONTEXT, p->peer,
				  sys_errno, "kernel copy: %s",
				  strerrordesc_np(sys_errno));
	}
}

static int copy_bad_magic(const struct local_piece *p, struct tei_err *err)
{
	return local_fail(p->ctx, err, TEI_ERR_CONTEXT, p->peer, 0,
			  "the process is no longer the one that was attached: it "
			  "has closed its engine or executed another program");
}

/*
 * Reads magic and incarnation from the process and not from the mapped
 * registration table, because exec replaces the memory of the process but keeps
 * its pid, its start time and this mapping. A READ reads both and the data with
 * one system call. Returns the bytes copied, or -1 with *code set.
 */
static ssize_t copy_read_some(const struct local_piece *p, uint64_t done,
			      int *code, struct tei_err *err)
{
	uint64_t magic[2] = { 0, 0 };
	struct iovec local[2] = { { magic, sizeof(magic) },
				  { p->local + done, p->length - done } };
	struct iovec remote[2] = { local_magic_at(p->peer),
				   { (void *)(uintptr_t)(p->remote + done),
				     p->length - done } };
	ssize_t n = process_vm_readv(p->peer->id.pid, local, 2, remote, 2, 0);

	if (n < 0 && errno != EFAULT)
		*code = copy_explain(p, done, errno, err);
	else if (n < (ssize_t)sizeof(magic) ||
		 !local_magic_right(p->peer, magic))
		*code = copy_bad_magic(p, err);
	else if (n == (ssize_t)sizeof(magic) && p->length > done)
		*code = copy_explain(p, done, EFAULT, err);
	else
		return n - (ssize_t)sizeof(magic);
	return -1;
}

/* Reads magic and incarnation from the process. Returns 0, or a code with *err
 * filled. */
static int copy_check_magic(const struct local_piece *p, uint64_t done,
			    struct tei_err *err)
{
	uint64_t magic[2] = { 0, 0 };
	struct iovec local = { magic, sizeof(magic) };
	struct iovec remote = local_magic_at(p->peer);
	ssize_t n = process_vm_readv(p->peer->id.pid, &local, 1, &remote, 1, 0);

	if (n < 0 && errno != EFAULT)
		return copy_explain(p, done, errno, err);
	if (n != (ssize_t)sizeof(magic) || !local_magic_right(p->peer, magic))
		return copy_bad_magic(p, err);
	return 0;
}

static ssize_t copy_write_some(const struct local_piece *p, uint64_t done,
			       int *code, struct tei_err *err)
{
	struct iovec local = { p->local + done, p->length - done };
	struct iovec remote = { (void *)(uintptr_t)(p->remote + done),
				p->length - done };
	ssize_t n;

	*code = copy_check_magic(p, done, err);
	if (*code)
		return -1;
	n = process_vm_writev(p->peer->id.pid, &local, 1, &remote, 1, 0);
	if (n < 0 || (!n && p->length > done)) {
		*code = copy_explain(p, done, n < 0 ? errno : EFAULT, err);
		return -1;
	}
	return n;
}

/*
 * Copies with as many system calls as needed. If a call copies less than
 * requested, the next call continues after the copied bytes. A call that copies
 * nothing is an error.
 */
static int copy_kernel(const struct local_piece *p, struct tei_err *err)
{
	uint64_t done = 0;
	int code = 0;
	ssize_t n;

	do {
		n = p->opcode == TEI_LOCAL_READ ?
			copy_read_some(p, done, &code, err) :
			copy_write_some(p, done, &code, err);
		if (n < 0)
			return code;
		done += (uint64_t)n;
	} while (done < p->length);
	return 0;
}

/*
 * Copies through a mapping of the peer's memory. Returns false, without having
 * copied anything, if the memory cannot be mapped. Otherwise sets *code, and
 * fills *err if *code is not 0.
 */
static bool copy_mapped(const struct local_piece *p, int *code,
			struct tei_err *err)
{
	struct tei_local_op op = { .local = p->local,
				   .remote = p->remote,
				   .length = p->length };
	struct tei_local_op *list[1] = { &op };
	struct local_view_run run = { .ctx = p->ctx,
				      .peer = p->peer,
				      .write = p->opcode == TEI_LOCAL_WRITE,
				      .op = list,
				      .n = 1,
				      .base = p->remote };
	bool held;

	if (!p->registered || !p->peer->view ||
	    !local_shared_table_place(p->peer->shared_table, p->remote,
				      p->length, &run.at))
		return false;
	held = local_peer_holds(p->peer);
	*code = held ? 0 : copy_check_magic(p, 0, err);
	if (!*code && !local_view_copy(&run))
		return false;
	/* the process may have ended before all bytes were in place */
	if (held && !local_peer_holds(p->peer))
		*code = copy_check_magic(p, 0, err);
	if (*code)
		/* the memory may belong to a program that was replaced */
		local_view_drop(p->peer->view, false);
	else
		atomic_fetch_add_explicit(&p->ctx->mapped, 1,
					  memory_order_relaxed);
	return true;
}

bool local_piece_enter(struct local_piece *p)
{
	uint64_t base[2] = { p->remote, 0 };
	uint64_t end[2] = { p->remote + p->length, 0 };

	p->slot = local_slot_enter(p->peer->shared_table, p->ctx->owner, base,
				   end);
	return p->slot;
}

static void copy_leave(struct local_piece *p)
{
	if (p->slot)
		local_slot_leave(p->slot);
	p->slot = NULL;
}

static bool copy_writes(const struct local_piece *p)
{
	return p->opcode == TEI_LOCAL_WRITE;
}

/* Returns true if the target range is registered, in this process or at the
 * peer. */
static bool copy_covered(const struct local_piece *p, bool write)
{
	return p->peer ? tei_local_peer_covers(p->peer, p->remote, p->length,
					       write)
		       : local_shared_table_covers(p->ctx->own, p->remote,
						   p->length,
						   write ? LOCAL_WRITABLE : 0);
}

/* Returns true if the target range is registered, with the serial number that
 * the operation requires. */
static bool copy_allowed(const struct local_piece *p)
{
	uint64_t serial = tei_local_serial(p->ctx, p->peer, p->remote,
					   p->length, copy_writes(p));

	return serial && (!p->serial || serial == p->serial);
}

static int copy_refused(const struct local_piece *p, struct tei_err *err)
{
	if (copy_covered(p, copy_writes(p)))
		return local_fail(p->ctx, err, TEI_ERR_NOT_REGISTERED, p->peer,
				  0,
				  "%#llx, %llu bytes: unregistered and registered again during the request",
				  (unsigned long long)p->remote,
				  (unsigned long long)p->length);
	return local_fail(p->ctx, err, TEI_ERR_NOT_REGISTERED, p->peer, 0,
			  "%#llx, %llu bytes: %s",
			  (unsigned long long)p->remote,
			  (unsigned long long)p->length,
			  copy_covered(p, false) ? "registered read-only" :
			  p->peer ? "not registered for remote access" :
				    "not registered");
}

/*
 * Checks the peer and the range. The result stays valid until the slot is left.
 * If the piece is refused, leaves the slot before it reports the error.
 */
static int copy_check(struct local_piece *p, struct tei_err *err)
{
	enum tei_local_reason reason = local_peer_check(p->peer);
	bool covered = copy_allowed(p);

	if (reason == TEI_LOCAL_OK && covered)
		return 0;
	copy_leave(p);
	if (reason != TEI_LOCAL_OK)
		return local_fail(p->ctx, err, TEI_ERR_CONTEXT, p->peer, 0,
				  "%s", tei_local_reason_text(reason));
	return copy_refused(p, err);
}

static void copy_count(const struct local_piece *p, int code)
{
	struct tei_local *ctx = p->ctx;

	if (code) {
		atomic_fetch_add_explicit(&ctx->errors, 1,
					  memory_order_relaxed);
		return;
	}
	atomic_fetch_add_explicit(&ctx->pieces, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(p->opcode == TEI_LOCAL_READ ?
				  &ctx->rx_bytes : &ctx->tx_bytes, p->length,
				  memory_order_relaxed);
}

int local_piece_run(struct local_piece *p, struct tei_err *err)
{
	int code = 0;

	if (p->slot)
		code = copy_check(p, err);
	if (!code && p->ctx->before_copy)
		p->ctx->before_copy(p->ctx->before_copy_arg);
	if (!code && copy_to_self(p))
		local_move(p->opcode == TEI_LOCAL_WRITE, p->local,
			   (char *)(uintptr_t)p->remote, p->length);
	else if (!code && !copy_mapped(p, &code, err))
		code = copy_kernel(p, err);
	copy_leave(p);
	copy_count(p, code);
	return code;
}

/* ---- on the caller's thread --------------------------------------------- */

static int copy_args(struct tei_local *ctx, const struct local_piece *p,
		     struct tei_err *err)
{
	uint64_t local = (uint64_t)(uintptr_t)p->local;
	int rc = local_guard(ctx);

	if (rc) {
		local_explain(err, rc, 0, "%s",
			      tei_local_reason_text(TEI_LOCAL_FORKED));
		return rc;
	}
	if ((p->opcode != TEI_LOCAL_READ && p->opcode != TEI_LOCAL_WRITE) ||
	    (!p->local && p->length) || p->length > TEI_LOCAL_COPY_MAX ||
	    local > UINT64_MAX - p->length ||
	    p->remote > UINT64_MAX - p->length)
		return local_fail(ctx, err, TEI_ERR_INVALID, p->peer, 0,
				  "copy between %p and %#llx, %llu bytes: invalid direction, address or length",
				  (void *)p->local,
				  (unsigned long long)p->remote,
				  (unsigned long long)p->length);
	return 0;
}

static int copy_peer(struct local_piece *p, struct tei_err *err)
{
	if (!local_piece_enter(p)) {
		local_slots_reclaim(p->peer->shared_table);
		if (!local_piece_enter(p))
			return local_fail(p->ctx, err, TEI_ERR_TOO_MANY,
					  p->peer, 0,
					  "all copy slots of the target are in use");
	}
	return local_piece_run(p, err);
}

/* Returns true if the local range is in a region of this context. */
static bool copy_local_covered(const struct local_piece *p, bool write)
{
	return local_shared_table_covers(p->ctx->own,
					 (uint64_t)(uintptr_t)p->local,
					 p->length, write ? LOCAL_WRITABLE : 0);
}

static int copy_local_refused(const struct local_piece *p, struct tei_err *err)
{
	return local_fail(p->ctx, err, TEI_ERR_NOT_REGISTERED, p->peer, 0,
			  "local memory %p, %llu bytes: %s", (void *)p->local,
			  (unsigned long long)p->length,
			  copy_local_covered(p, false) ?
				  "registered read-only" :
				  "not registered");
}

/* Checks and copies while guard is held. The guard covers the local range, and
 * the target range if it is in this process: a region that is found registered
 * stays registered until the guard is left. */
static int copy_guarded(struct local_piece *p, bool registered,
			struct local_slot *guard, struct tei_err *err)
{
	bool local = !registered || copy_local_covered(p, !copy_writes(p));
	bool covered = p->peer || copy_allowed(p);
	int code = 0;

	if (local && covered)
		code = p->peer ? copy_peer(p, err) : local_piece_run(p, err);
	local_slot_leave(guard);
	if (!local)
		return copy_local_refused(p, err);
	return covered ? code : copy_refused(p, err);
}

int tei_local_copy_op(struct tei_local *ctx, const struct tei_local_op *op,
		      struct tei_err *err)
{
	struct tei_local_peer *peer = op->peer;
	struct local_piece p = { .ctx = ctx,
				 .opcode = op->opcode,
				 .local = op->local,
				 .peer = peer && peer->shared_table ? peer
								    : NULL,
				 .remote = op->remote,
				 .length = op->length,
				 .serial = op->serial,
				 .registered = op->registered };
	struct local_reach reach = local_reach(op);
	uint64_t base[2] = { reach.local, p.peer ? 0 : reach.far };
	uint64_t end[2] = { base[0] + op->length,
			    p.peer ? 0 : base[1] + op->length };
	struct local_slot *guard;
	int code = copy_args(ctx, &p, err);

	if (code)
		return code;
	guard = local_slot_enter(ctx->own, ctx->owner, base, end);
	if (!guard)
		return local_fail(ctx, err, TEI_ERR_TOO_MANY, peer, 0,
				  "all copy slots of this process are in use");
	return copy_guarded(&p, op->registered, guard, err);
}

int tei_local_copy(struct tei_local *ctx, struct tei_local_peer *peer,
		   enum tei_local_opcode opcode, void *local, uint64_t remote,
		   uint64_t length, struct tei_err *err)
{
	struct tei_local_op op = { .peer = peer, .opcode = opcode,
				   .local = local, .remote = remote,
				   .length = length };

	return tei_local_copy_op(ctx, &op, err);
}
