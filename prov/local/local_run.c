/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs: small operations with the same peer and direction that are copied
 * together, by memcpy if the peer's memory can be mapped, else by one system
 * call. The peer is checked once, and one copy slot is armed, for all of them.
 * The slot covers the range from the lowest to the highest target address.
 * These addresses lie in one region of the target, so the slot does not delay
 * the removal of other regions. If a run ends early, the operation at
 * which it has ended is copied alone, which finds the cause.
 */
#include <errno.h>
#include <sys/uio.h>

#include "prov/local/local_int.h"

/* One entry for each operation, and one for the magic number: a run that reads
 * also reads the magic number. */
#define RUN_ENTRIES (TEI_LOCAL_RUN + 1)

struct local_run {
	struct tei_local *ctx;
	struct tei_local_peer *peer;
	bool write;
	size_t n; /* number of operations */
	struct tei_local_op *const *op;
	uint64_t base, end; /* range that contains the target ranges of all
			     * operations */
	uint64_t bytes;
};

/* Returns true if op may be part of a run with first. */
static bool run_accepts(const struct tei_local_op *first,
			const struct tei_local_op *op)
{
	return op->peer == first->peer && op->opcode == first->opcode &&
	       op->length && op->length <= TEI_LOCAL_INLINE && op->local &&
	       (uint64_t)(uintptr_t)op->local <= UINT64_MAX - op->length &&
	       op->remote <= UINT64_MAX - op->length;
}

/*
 * Fills the run with the first operations that fit: they lie in the same region
 * of the target and have at most TEI_LOCAL_PIECE bytes together. Returns false
 * if there are less than two.
 */
static bool run_fill(struct local_run *run, struct tei_local *ctx,
		     struct tei_local_op *const op[], size_t n)
{
	struct tei_local_peer *peer = op[0]->peer;
	uint64_t base, end;
	size_t i;

	if (!peer || peer->self || !run_accepts(op[0], op[0]))
		return false;
	*run = (struct local_run){ .ctx = ctx,
				   .peer = peer,
				   .op = op,
				   .write = op[0]->opcode == TEI_LOCAL_WRITE,
				   .base = op[0]->remote,
				   .end = op[0]->remote };
	if (!local_shared_table_region(peer->shared_table, op[0]->remote, &base,
				       &end))
		return false;
	for (i = 0; i < n && i < TEI_LOCAL_RUN; i++) {
		if (!run_accepts(op[0], op[i]) || op[i]->remote < base ||
		    op[i]->remote + op[i]->length > end ||
		    run->bytes + op[i]->length > TEI_LOCAL_PIECE)
			break;
		run->bytes += op[i]->length;
		if (op[i]->remote < run->base)
			run->base = op[i]->remote;
		if (op[i]->remote + op[i]->length > run->end)
			run->end = op[i]->remote + op[i]->length;
	}
	run->n = i;
	return i > 1;
}

/* Appends a range to the array v of n entries. Extends the last entry instead
 * if the range follows it directly. Returns the new number of entries. */
static unsigned long run_append(struct iovec *v, unsigned long n, void *addr,
				size_t len)
{
	if (n && (char *)v[n - 1].iov_base + v[n - 1].iov_len == addr) {
		v[n - 1].iov_len += len;
		return n;
	}
	v[n] = (struct iovec){ addr, len };
	return n + 1;
}

/* Returns the number of operations that are complete when the first "bytes"
 * bytes of the run were copied. */
static size_t run_whole(const struct local_run *run, uint64_t bytes)
{
	size_t i;

	for (i = 0; i < run->n && run->op[i]->length <= bytes; i++)
		bytes -= run->op[i]->length;
	return i;
}

/*
 * Copies the bytes with a system call. Also reads the magic number, for the
 * reason stated at copy_read_some. Returns the number of bytes copied.
 */
static uint64_t run_kernel(const struct local_run *run)
{
	struct iovec local[RUN_ENTRIES], remote[RUN_ENTRIES];
	pid_t pid = run->peer->id.pid;
	uint64_t magic[2] = { 0, 0 };
	unsigned long nl = 1, nr = 1;
	ssize_t n;
	size_t i;

	local[0] = (struct iovec){ magic, sizeof(magic) };
	remote[0] = local_magic_at(run->peer);
	for (i = 0; i < run->n; i++) {
		nl = run_append(local, nl, run->op[i]->local,
				run->op[i]->length);
		nr = run_append(remote, nr,
				(void *)(uintptr_t)run->op[i]->remote,
				run->op[i]->length);
	}
	if (!run->write) {
		n = process_vm_readv(pid, local, nl, remote, nr, 0);
		return n < (ssize_t)sizeof(magic) ||
				       !local_magic_right(run->peer, magic)
			       ? 0
			       : (uint64_t)n - sizeof(magic);
	}
	n = process_vm_readv(pid, local, 1, remote, 1, 0);
	if (n != (ssize_t)sizeof(magic) || !local_magic_right(run->peer, magic))
		return 0;
	n = process_vm_writev(pid, local + 1, nl - 1, remote + 1, nr - 1, 0);
	return n < 0 ? 0 : (uint64_t)n;
}

/* Reads magic and incarnation from the process (see copy_read_some). */
static bool run_magic_right(const struct local_run *run)
{
	uint64_t magic[2] = { 0, 0 };
	struct iovec local = { magic, sizeof(magic) };
	struct iovec remote = local_magic_at(run->peer);

	return process_vm_readv(run->peer->id.pid, &local, 1, &remote, 1, 0) ==
		       (ssize_t)sizeof(magic) &&
	       local_magic_right(run->peer, magic);
}

/* Stores the place of run->base in *at. Returns true if the target ranges can be
 * mapped and all local ranges are registered. */
static bool run_is_mappable(const struct local_run *run, struct local_place *at)
{
	size_t i;

	for (i = 0; i < run->n; i++) {
		if (!run->op[i]->registered)
			return false;
	}
	return run->peer->view &&
	       local_shared_table_place(run->peer->shared_table, run->base,
					run->end - run->base, at);
}

/* Copies through mappings, if possible. Returns the number of operations that
 * are complete. */
static size_t run_mapped(const struct local_run *run)
{
	struct local_view_run view = { .ctx = run->ctx,
				       .peer = run->peer,
				       .write = run->write,
				       .op = run->op,
				       .n = run->n,
				       .base = run->base };
	bool held;
	size_t done;

	if (!run_is_mappable(run, &view.at))
		return 0;
	held = local_peer_holds(run->peer);
	if (!held && !run_magic_right(run))
		return 0;
	done = local_view_copy(&view);
	/* the process may have ended before all bytes were in place */
	if (held && !local_peer_holds(run->peer) && !run_magic_right(run))
		return 0;
	atomic_fetch_add_explicit(&run->ctx->mapped, done,
				  memory_order_relaxed);
	return done;
}

/* Copies the run. Returns the number of operations that are complete. */
static size_t run_move(const struct local_run *run)
{
	size_t done = run_mapped(run);

	return done ? done : run_whole(run, run_kernel(run));
}

static void run_count(const struct local_run *run, size_t done)
{
	struct tei_local *ctx = run->ctx;
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < done; i++)
		bytes += run->op[i]->length;
	atomic_fetch_add_explicit(&ctx->pieces, done, memory_order_relaxed);
	atomic_fetch_add_explicit(run->write ? &ctx->tx_bytes : &ctx->rx_bytes,
				  bytes, memory_order_relaxed);
}

/* Returns true if the run may access the target, and the registration of the
 * target has the serial number that each operation requires. */
static bool run_allowed(const struct local_run *run)
{
	uint64_t serial = tei_local_serial(run->ctx, run->peer, run->base,
					   run->end - run->base, run->write);
	size_t i;

	for (i = 0; i < run->n; i++) {
		if (run->op[i]->serial && run->op[i]->serial != serial)
			return false;
	}
	return serial;
}

/* Checks the peer, and copies the run. Returns the number of operations that are
 * complete. */
static size_t run_copy(const struct local_run *run)
{
	uint64_t base[2] = { run->base, 0 }, end[2] = { run->end, 0 };
	struct local_slot *slot;
	size_t done = 0;

	slot = local_slot_enter(run->peer->shared_table, run->ctx->owner, base,
				end);
	if (!slot)
		return 0;
	if (local_peer_check(run->peer) == TEI_LOCAL_OK && run_allowed(run)) {
		if (run->ctx->before_copy)
			run->ctx->before_copy(run->ctx->before_copy_arg);
		done = run_move(run);
	}
	local_slot_leave(slot);
	run_count(run, done);
	return done;
}

size_t local_run_copy(struct tei_local *ctx, struct tei_local_op *const op[],
		      size_t n)
{
	struct local_run run;

	return run_fill(&run, ctx, op, n) ? run_copy(&run) : 0;
}

/* ---- on the caller's thread --------------------------------------------- */

/* Returns true if the local range is in a region that the run may access. */
static bool run_local_covered(const struct local_run *run, uint64_t base,
			      uint64_t end)
{
	return local_shared_table_covers(run->ctx->own, base, end - base,
					 run->write ? 0 : LOCAL_WRITABLE);
}

/* Ends the run before the first operation that requires a registered local
 * range and has none. [base, end) contains all local ranges. */
static void run_check_local(struct local_run *run, uint64_t base, uint64_t end)
{
	const struct tei_local_op *op;
	uint64_t addr;
	size_t i;

	if (run_local_covered(run, base, end))
		return;
	for (i = 0; i < run->n; i++) {
		op = run->op[i];
		addr = (uint64_t)(uintptr_t)op->local;
		if (op->registered &&
		    !run_local_covered(run, addr, addr + op->length))
			break;
	}
	run->n = i;
}

/* Sets the range from the lowest to the highest local address. */
static void run_local(const struct local_run *run, uint64_t *base,
		      uint64_t *end)
{
	uint64_t addr;
	size_t i;

	*base = UINT64_MAX;
	*end = 0;
	for (i = 0; i < run->n; i++) {
		addr = (uint64_t)(uintptr_t)run->op[i]->local;
		if (addr < *base)
			*base = addr;
		if (addr + run->op[i]->length > *end)
			*end = addr + run->op[i]->length;
	}
}

size_t tei_local_copy_run(struct tei_local *ctx,
			  struct tei_local_op *const op[], size_t n)
{
	uint64_t base[2] = { 0, 0 }, end[2] = { 0, 0 };
	struct local_slot *guard;
	struct local_run run;
	size_t done = 0;

	if (local_guard(ctx) || n < 2 || !run_fill(&run, ctx, op, n))
		return 0;
	/* The guard protects all of the range, so no region with a local range
	 * of the run is removed meanwhile. */
	run_local(&run, &base[0], &end[0]);
	guard = local_slot_enter(ctx->own, ctx->owner, base, end);
	if (!guard)
		return 0;
	run_check_local(&run, base[0], end[0]);
	if (run.n > 1)
		done = run_copy(&run);
	local_slot_leave(guard);
	return done;
}
