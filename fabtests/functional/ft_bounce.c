/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * TE_REQ_BOUNCE: requests of te_submit whose local memory is not registered.
 * The test process moves data to and from one or two target processes.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx.h"

#define BOUNCE_MEM (16 * FX_MIB)
#define BOUNCE_BLOCK (64 * FX_KIB)
#define BOUNCE_MANY (BOUNCE_MEM / BOUNCE_BLOCK)
#define BOUNCE_RANGES 100

/* An engine in the test process with unregistered memory, and a target
 * process. */
struct bounce_rig {
	transfer_engine_t engine;
	segment_id_t seg;
	struct fx_buf mem;
	struct fx_peer target;
	const char *way; /* how the bytes are moved; suffix of the test names */
};

/* A batch of requests with one local and one remote range each. */
struct bounce_batch {
	batch_id_t id;
	size_t n;
	struct te_local local[BOUNCE_MANY];
	struct te_remote remote[BOUNCE_MANY];
	struct te_request req[BOUNCE_MANY];
};

static bool bounce_start(struct bounce_rig *rig, const char *way,
			 const char *transport, unsigned int timeout_s)
{
	char option[32];
	bool good;

	memset(rig, 0, sizeof(*rig));
	rig->way = way;
	snprintf(option, sizeof(option), "transport=%s", transport);
	rig->mem = fx_buf_map(BOUNCE_MEM, -1);
	good = rig->mem.p &&
	       fx_peer_start(&rig->target, BOUNCE_MEM, option, NULL) &&
	       !fx_ask(&rig->target, "reg 0 %llu 1", BOUNCE_MEM);
	if (good)
		rig->engine = fx_engine_timeout(transport, timeout_s);
	if (rig->engine)
		rig->seg = openSegment(rig->engine, rig->target.name);
	return ft_ok(rig->engine && rig->seg > 0, "two_processes_%s", way);
}

static void bounce_stop(struct bounce_rig *rig)
{
	ft_ok(fx_buf_guards(&rig->mem) && fx_buf_guards(&rig->target.mem),
	      "guard_zones_are_unchanged_%s", rig->way);
	destroyTransferEngine(rig->engine);
	fx_peer_stop(&rig->target);
	fx_buf_unmap(&rig->mem);
}

/* --- one request --------------------------------------------------------- */

static struct te_request bounce_request(struct bounce_rig *rig, uint32_t op,
					struct te_local *local,
					struct te_remote *remote)
{
	return (struct te_request){
		.opcode = op, .flags = TE_REQ_BOUNCE, .target_id = rig->seg,
		.local = local, .local_count = 1,
		.remote = remote, .remote_count = 1,
	};
}

/* Moves len bytes between rig->mem and the target's memory, both at the offset
 * `off`. Returns the status, or the negative code of te_submit. */
static int bounce_move(struct bounce_rig *rig, uint32_t op, uint64_t off,
		       uint64_t len, struct te_error *err)
{
	struct te_local local = { rig->mem.p + off, len };
	struct te_remote remote = { rig->target.mem.addr + off, len };
	struct te_request req = bounce_request(rig, op, &local, &remote);

	return fx_submit(rig->engine, &req, err);
}

/* Writes len bytes and reads len bytes. Returns true if exactly these bytes
 * have changed. */
static bool bounce_size(struct bounce_rig *rig, uint64_t len)
{
	const uint64_t off = 4099, end = off + len;
	struct te_error err = { 0 };
	int status;

	fx_buf_poison(&rig->mem, 0, end + off);
	fx_buf_poison(&rig->target.mem, 0, end + off);
	fx_buf_fill(&rig->mem, off, len, len);
	status = bounce_move(rig, TE_WRITE, off, len, &err);
	if (status != STATUS_COMPLETED ||
	    !fx_buf_check(&rig->target.mem, off, len, len) ||
	    !fx_buf_poisoned(&rig->target.mem, 0, off) ||
	    !fx_buf_poisoned(&rig->target.mem, end, off)) {
		ft_diag("write of %llu bytes: status %d %s",
			(unsigned long long)len, status, err.text);
		return false;
	}
	fx_buf_fill(&rig->target.mem, off, len, len + 1);
	fx_buf_poison(&rig->mem, off, len);
	status = bounce_move(rig, TE_READ, off, len, &err);
	if (status == STATUS_COMPLETED &&
	    fx_buf_check(&rig->mem, off, len, len + 1) &&
	    fx_buf_poisoned(&rig->mem, 0, off) &&
	    fx_buf_poisoned(&rig->mem, end, off))
		return true;
	ft_diag("read of %llu bytes: status %d %s", (unsigned long long)len,
		status, err.text);
	return false;
}

static void bounce_sizes(struct bounce_rig *rig)
{
	static const uint64_t sizes[] = {
		1, 2, 8, 4095, 4096, 4097, 65535, 65536, 65537, 196608,
		FX_MIB - 1, FX_MIB, 5 * FX_MIB + 3,
	};
	bool good = true;
	size_t i;

	for (i = 0; good && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		good = bounce_size(rig, sizes[i]);
	ft_ok(good, "unregistered_memory_of_each_size_is_moved_%s", rig->way);
}

/* Moves ranges of random lengths with one request. Each range lies in a part of
 * the memory of its own, on both sides. Returns true if all bytes are right. */
static bool bounce_scatter(struct bounce_rig *rig, uint32_t op, uint64_t *seed)
{
	static struct te_local local[BOUNCE_RANGES];
	static struct te_remote remote[BOUNCE_RANGES];
	const uint64_t cell = BOUNCE_MEM / BOUNCE_RANGES / 2;
	uint64_t left = 0, i, k, at, len;
	struct te_request req = bounce_request(rig, op, local, remote);
	unsigned char *from, *to;
	bool good = true;

	for (i = 0; i < BOUNCE_RANGES; i++) {
		local[i].addr = rig->mem.p + 2 * i * cell + ft_random(seed) % 9;
		local[i].length = 1 + ft_random(seed) %
				      (i % 3 ? 5000 : cell);
		left += local[i].length;
	}
	for (i = 0; left && i < BOUNCE_RANGES; i++, left -= len) {
		len = 1 + ft_random(seed) % cell;
		len = len < left && i + 1 < BOUNCE_RANGES ? len : left;
		remote[i].addr = rig->target.mem.addr + 2 * i * cell;
		/* The last range gets all bytes that are left. */
		remote[i].length = len;
	}
	if (remote[i - 1].length > 2 * cell)
		/* The last range does not fit into its part of the memory,
		 * which is rare: skip this round. */
		return true;
	req.local_count = BOUNCE_RANGES;
	req.remote_count = (uint32_t)i;
	fx_buf_fill(&rig->mem, 0, BOUNCE_MEM, 5);
	fx_buf_fill(&rig->target.mem, 0, BOUNCE_MEM, 6);
	if (fx_submit(rig->engine, &req, NULL) != STATUS_COMPLETED)
		return false;
	for (i = k = at = 0; good && i < req.local_count; i++) {
		from = local[i].addr;
		for (len = 0; good && len < local[i].length; len++) {
			to = rig->target.mem.p + (remote[k].addr -
						  rig->target.mem.addr) + at;
			good = from[len] == *to;
			if (++at == remote[k].length) {
				k++;
				at = 0;
			}
		}
	}
	return good;
}

static void bounce_scatters(struct bounce_rig *rig)
{
	uint64_t seed = fx_seed();
	bool good = true;
	int i;

	for (i = 0; good && i < 6; i++)
		good = bounce_scatter(rig, i % 2 ? TE_READ : TE_WRITE, &seed);
	ft_ok(good, "unregistered_ranges_are_gathered_and_scattered_%s",
	      rig->way);
}

/* --- refusals ------------------------------------------------------------ */

static bool bounce_refused(struct bounce_rig *rig, struct te_request *req,
			   int code, const char *text)
{
	batch_id_t id = allocateBatchID(rig->engine, 1);
	struct te_error err = { 0 };
	int ret = te_submit(rig->engine, id, req, sizeof(*req), 1, 0);

	te_last_error(&err, sizeof(err));
	freeBatchID(rig->engine, id);
	if (ret == code && strstr(err.text, text))
		return true;
	ft_diag("te_submit returned %d, \"%s\" (expected %d, \"%s\")", ret,
		err.text, code, text);
	return false;
}

static void bounce_bad_memory(struct bounce_rig *rig)
{
	struct te_local local = { rig->mem.p, 2 * BOUNCE_BLOCK };
	struct te_remote remote = { rig->target.mem.addr, 2 * BOUNCE_BLOCK };
	struct te_request req = bounce_request(rig, TE_WRITE, &local, &remote);
	unsigned char *hole = mmap(NULL, 3 * BOUNCE_BLOCK, PROT_READ,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(hole + BOUNCE_BLOCK, BOUNCE_BLOCK);
	local.addr = hole;
	ft_ok(bounce_refused(rig, &req, 3, "is not mapped"),
	      "unmapped_memory_with_flag_is_refused_%s", rig->way);
	munmap(hole, BOUNCE_BLOCK);
	munmap(hole + 2 * BOUNCE_BLOCK, BOUNCE_BLOCK);
	local.addr = rig->mem.p;
	req.flags = 0;
	ft_ok(bounce_refused(rig, &req, 3, "is not registered"),
	      "unregistered_memory_without_flag_is_refused_%s", rig->way);
	registerLocalMemory(rig->engine, rig->mem.p, BOUNCE_BLOCK, "*", 0);
	req.flags = TE_REQ_BOUNCE;
	ft_ok(fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED,
	      "write_from_memory_registered_in_part_is_moved_%s", rig->way);
	req.opcode = TE_READ;
	ft_ok(bounce_refused(rig, &req, 3, "registered in part"),
	      "read_into_memory_registered_in_part_is_refused_%s", rig->way);
	local.length = remote.length = BOUNCE_BLOCK;
	ft_ok(fx_submit(rig->engine, &req, NULL) == STATUS_COMPLETED,
	      "registered_memory_with_flag_is_moved_%s", rig->way);
	unregisterLocalMemory(rig->engine, rig->mem.p);
}

/* Checks that a read into memory that was registered for reading only is
 * refused, although the request has the flag. */
static void bounce_bad_access(struct bounce_rig *rig)
{
	struct te_local local = { NULL, 4096 };
	struct te_remote remote = { rig->target.mem.addr, 4096 };
	struct te_request req = bounce_request(rig, TE_READ, &local, &remote);
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	local.addr = page;
	ft_ok(!registerLocalMemory(rig->engine, page, 4096, "*", 0) &&
	      bounce_refused(rig, &req, 3, "registered for reading only"),
	      "read_into_read_only_memory_with_flag_is_refused_%s", rig->way);
	unregisterLocalMemory(rig->engine, page);
	munmap(page, 4096);
}

static void bounce_bad_requests(struct bounce_rig *rig)
{
	struct te_local local = { rig->mem.p, 8 };
	struct te_remote remote = { rig->target.mem.addr, 8 };
	struct te_request req = bounce_request(rig, TE_ATOMIC_SWAP, &local,
					       &remote);

	ft_ok(bounce_refused(rig, &req, 1, "flags 0x1 of an atomic"),
	      "atomic_with_flag_is_refused_%s", rig->way);
	req.opcode = TE_WRITE;
	req.flags = 2 | TE_REQ_BOUNCE;
	ft_ok(bounce_refused(rig, &req, 1, "flags 0x3 of the request"),
	      "unknown_flag_is_refused_%s", rig->way);
	req.flags = TE_REQ_BOUNCE;
	remote.addr += BOUNCE_MEM;
	ft_ok(fx_submit(rig->engine, &req, NULL) == STATUS_FAILED,
	      "write_outside_of_the_target_fails_%s", rig->way);
}

/* --- many requests ------------------------------------------------------- */

/* Fills a batch with requests that move all of the memory, len bytes each. */
static void bounce_fill(struct bounce_rig *rig, struct bounce_batch *b,
			uint32_t op, uint64_t len)
{
	size_t i;

	b->n = BOUNCE_MEM / len;
	for (i = 0; i < b->n; i++) {
		b->local[i].addr = rig->mem.p + i * len;
		b->remote[i].addr = rig->target.mem.addr + i * len;
		b->local[i].length = b->remote[i].length = len;
		b->req[i] = bounce_request(rig, op, &b->local[i],
					   &b->remote[i]);
	}
}

static bool bounce_submit(struct bounce_rig *rig, struct bounce_batch *b)
{
	b->id = allocateBatchID(rig->engine, b->n);
	return !te_submit(rig->engine, b->id, b->req, sizeof(b->req[0]), b->n,
			  0);
}

/* Waits until all tasks of the batch are terminal. Returns the worst of their
 * statuses, or -1 if the wait fails. */
static int bounce_wait(struct bounce_rig *rig, struct bounce_batch *b)
{
	struct transfer_status status = { .status = -1 };

	if (te_wait_batch(rig->engine, b->id, fx_ms(FX_LONG_MS) * 1000LL,
			  &status))
		return -1;
	return status.status;
}

/* Checks batches that move more bytes than the pool of bounce buffers holds. */
static void bounce_many(struct bounce_rig *rig)
{
	static struct bounce_batch b;
	bool good;

	fx_buf_fill(&rig->mem, 0, BOUNCE_MEM, 11);
	fx_buf_poison(&rig->target.mem, 0, BOUNCE_MEM);
	bounce_fill(rig, &b, TE_WRITE, BOUNCE_BLOCK);
	good = bounce_submit(rig, &b) &&
	       bounce_wait(rig, &b) == STATUS_COMPLETED &&
	       fx_buf_check(&rig->target.mem, 0, BOUNCE_MEM, 11);
	freeBatchID(rig->engine, b.id);
	ft_ok(good, "writes_of_more_bytes_than_the_pool_are_moved_%s",
	      rig->way);
	fx_buf_poison(&rig->mem, 0, BOUNCE_MEM);
	bounce_fill(rig, &b, TE_READ, FX_MIB);
	good = bounce_submit(rig, &b) &&
	       bounce_wait(rig, &b) == STATUS_COMPLETED &&
	       fx_buf_check(&rig->mem, 0, BOUNCE_MEM, 11);
	freeBatchID(rig->engine, b.id);
	ft_ok(good, "reads_of_more_bytes_than_the_pool_are_moved_%s",
	      rig->way);
}

/*
 * Cancels batches at different times and changes the local memory as soon as
 * the tasks have ended. The target must not receive a new byte, and a cancelled
 * read must not change the local memory. `copies` is true if the kernel copies
 * the bytes on this host.
 */
static void bounce_cancels(struct bounce_rig *rig, bool copies)
{
	static struct bounce_batch b;
	unsigned int canceled = 0, i;
	bool good = true;
	uint64_t k;
	int status;

	for (i = 0; good && i < 24; i++) {
		memset(rig->mem.p, 0x11, BOUNCE_MEM);
		memset(rig->target.mem.p, 0x22, BOUNCE_MEM);
		bounce_fill(rig, &b, i % 2 ? TE_READ : TE_WRITE,
			    i % 4 < 2 ? BOUNCE_BLOCK : 4 * FX_MIB);
		good = bounce_submit(rig, &b);
		for (k = 0; k < i * 40; k++)
			te_batch_status(rig->engine, b.id,
					&(struct transfer_status){ 0 });
		te_cancel_batch(rig->engine, b.id);
		status = bounce_wait(rig, &b);
		canceled += status == STATUS_CANCELED;
		memset(rig->mem.p, 0x33, BOUNCE_MEM);
		good = good && (status == STATUS_CANCELED ||
				status == STATUS_COMPLETED);
		/* Late bytes would arrive before this transfer ends. */
		good = good && bounce_move(rig, TE_WRITE, 0, 1, NULL) ==
				       STATUS_COMPLETED;
		for (k = 1; good && k < BOUNCE_MEM; k++)
			good = rig->mem.p[k] == 0x33 &&
			       rig->target.mem.p[k] != 0x33;
		freeBatchID(rig->engine, b.id);
	}
	ft_diag("%u of %u batches were CANCELED", canceled, i);
	/* Copies on this host may all end before they are cancelled. */
	ft_ok(good && (canceled || copies), "law2_canceled_requests_leave_memory_alone_%s",
	      rig->way);
}

/* --- targets that do not answer ------------------------------------------ */

/* Checks that a stopped target does not occupy all blocks of the pool, so that
 * requests to another target continue. Then a deadline must end the requests to
 * the stopped target. */
static void bounce_stopped(struct bounce_rig *rig)
{
	static struct bounce_batch b;
	struct transfer_status now = { .status = -1 };
	struct bounce_rig other = *rig;
	bool good;
	int status;

	if (!ft_ok(fx_target_start(&other.target, BOUNCE_MEM),
		   "another_target_starts"))
		return;
	other.seg = openSegment(rig->engine, other.target.name);
	good = bounce_move(rig, TE_WRITE, 0, 8, NULL) == STATUS_COMPLETED &&
	       bounce_move(&other, TE_WRITE, 0, 8, NULL) == STATUS_COMPLETED &&
	       fx_peer_pause(&rig->target);
	bounce_fill(rig, &b, TE_READ, BOUNCE_BLOCK);
	good = good && bounce_submit(rig, &b) && bounce_size(&other, FX_MIB);
	ft_ok(good && !te_batch_status(rig->engine, b.id, &now) &&
	      now.status == STATUS_WAITING,
	      "stopped_target_leaves_blocks_for_another_%s", rig->way);
	te_batch_timeout(rig->engine, b.id, 1000);
	status = bounce_wait(rig, &b);
	memset(rig->mem.p, 0x44, BOUNCE_MEM);
	ft_ok(status == STATUS_FAILED || status == STATUS_TIMEOUT,
	      "deadline_ends_requests_to_a_stopped_target_%s", rig->way);
	freeBatchID(rig->engine, b.id);
	fx_peer_resume(&rig->target);
	good = false;
	for (int i = 0; !good && i < 20; i++)
		good = bounce_move(rig, TE_WRITE, 0, 8, NULL) ==
		       STATUS_COMPLETED;
	for (uint64_t k = 0; good && k < BOUNCE_MEM; k++)
		good = rig->mem.p[k] == 0x44;
	ft_ok(good, "law2_read_changes_nothing_after_its_deadline_%s",
	      rig->way);
	closeSegment(rig->engine, other.seg);
	ft_ok(fx_peer_stop(&other.target), "target_ends_well");
}

/* Kills a target while more requests wait for it than the pool has blocks. They
 * must fail, and their blocks must be usable again. */
static void bounce_killed(struct bounce_rig *rig)
{
	static struct bounce_batch b;
	struct bounce_rig other = *rig;
	bool good;
	int status;

	if (!ft_ok(fx_target_start(&other.target, BOUNCE_MEM),
		   "another_target_starts"))
		return;
	other.seg = openSegment(rig->engine, other.target.name);
	good = bounce_move(&other, TE_WRITE, 0, 8, NULL) == STATUS_COMPLETED &&
	       fx_peer_pause(&other.target);
	bounce_fill(&other, &b, TE_READ, BOUNCE_BLOCK);
	good = good && bounce_submit(&other, &b);
	fx_peer_kill(&other.target);
	status = bounce_wait(&other, &b);
	memset(rig->mem.p, 0x55, BOUNCE_MEM);
	ft_ok(good && (status == STATUS_FAILED || status == STATUS_TIMEOUT),
	      "killed_target_fails_requests_%s", rig->way);
	freeBatchID(rig->engine, b.id);
	good = bounce_size(rig, FX_MIB);
	for (uint64_t k = 2 * FX_MIB; good && k < BOUNCE_MEM; k++)
		good = rig->mem.p[k] == 0x55;
	ft_ok(good, "killed_target_gives_its_blocks_back_%s", rig->way);
	closeSegment(rig->engine, other.seg);
	fx_peer_drop(&other.target);
}

/*
 * Checks requests to a stopped target, more of them than the blocks that one
 * target may occupy. They have no deadline and are not cancelled, so
 * MC_SLICE_TIMEOUT must end all of them.
 */
static void bounce_silent(void)
{
	static struct bounce_batch b;
	struct bounce_rig rig;
	uint64_t from;
	bool good;
	int status;

	if (!bounce_start(&rig, "hasty", "tcp", FX_HASTY_S))
		return;
	good = false;
	for (int i = 0; !good && i < 20; i++)
		good = bounce_move(&rig, TE_WRITE, 0, 8, NULL) ==
		       STATUS_COMPLETED;
	good = good && fx_peer_pause(&rig.target);
	bounce_fill(&rig, &b, TE_WRITE, BOUNCE_BLOCK);
	from = ft_now_ns();
	good = good && bounce_submit(&rig, &b);
	status = bounce_wait(&rig, &b);
	ft_ok(good && (status == STATUS_FAILED || status == STATUS_TIMEOUT) &&
	      ft_now_ns() - from < fx_ms(4 * FX_HASTY_S * 1000) * 1000000ULL,
	      "law3_requests_to_a_silent_target_end_together_%s", rig.way);
	freeBatchID(rig.engine, b.id);
	good = bounce_submit(&rig, &b);
	destroyTransferEngine(rig.engine);
	rig.engine = NULL;
	ft_ok(good, "engine_with_waiting_requests_is_destroyed_%s", rig.way);
	fx_peer_resume(&rig.target);
	fx_peer_stop(&rig.target);
	fx_buf_unmap(&rig.mem);
}

static void bounce_all(struct bounce_rig *rig)
{
	bounce_sizes(rig);
	bounce_scatters(rig);
	bounce_bad_memory(rig);
	bounce_bad_access(rig);
	bounce_bad_requests(rig);
	bounce_many(rig);
}

/* Checks copies inside this process, which need no bounce buffers. */
static void bounce_own(struct bounce_rig *rig)
{
	struct bounce_rig own = *rig;

	own.target.mem = fx_buf_map(BOUNCE_MEM, -1);
	own.target.mem.addr = (uintptr_t)own.target.mem.p;
	own.seg = LOCAL_SEGMENT;
	own.way = "own";
	registerLocalMemory(rig->engine, own.target.mem.p, BOUNCE_MEM, "*", 0);
	bounce_sizes(&own);
	bounce_scatters(&own);
	unregisterLocalMemory(rig->engine, own.target.mem.p);
	fx_buf_unmap(&own.target.mem);
}

int main(int argc, char **argv)
{
	struct bounce_rig rig;

	fx_init(argc, argv);
	setenv("MOONRAIL_DEVICES", "127.0.0.1", 1);
	if (bounce_start(&rig, "tcp", "tcp", FX_PATIENT_S)) {
		bounce_all(&rig);
		bounce_cancels(&rig, false);
		bounce_stopped(&rig);
		bounce_killed(&rig);
		bounce_stop(&rig);
	}
	bounce_silent();
	/* Now the rails require registered local memory. */
	setenv("MOONRAIL_MR_LOCAL", "1", 1);
	setenv("MOONRAIL_DEVICES", "127.0.0.1,127.0.0.2", 1);
	if (bounce_start(&rig, "mr_local", "tcp", FX_PATIENT_S)) {
		bounce_all(&rig);
		bounce_cancels(&rig, false);
		bounce_stop(&rig);
	}
	unsetenv("MOONRAIL_MR_LOCAL");
	/* Now the kernel copies between the processes. */
	if (bounce_start(&rig, "auto", "auto", FX_PATIENT_S)) {
		bounce_all(&rig);
		bounce_own(&rig);
		bounce_cancels(&rig, true);
		bounce_stop(&rig);
	}
	return ft_result();
}
