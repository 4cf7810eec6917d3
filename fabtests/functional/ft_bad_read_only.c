/* SPDX-License-Identifier: BSD-2-Clause */

/* Tests registered memory that its owner may only read. Peers may read it, and
 * it may be the source of writes. Requests that would change it are refused,
 * and the owner must not crash. */

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/functional/ft_bad_input.h"
#include "fabtests/functional/fx.h"

#define RO_HALF (256 * FX_KIB)

struct ro_rig {
	transfer_engine_t engine;
	const char *transport;
	struct fx_buf mem;
	struct fx_peer target;	/* first half of its memory writable, second
				 * half not */
	segment_id_t seg;
	unsigned char *own;	/* RO_HALF bytes, registered, read-only */
};

/* Submits a request whose remote side consists of n ranges of the target. The
 * local range is at the start of rig->mem. Returns its status. */
static int ro_submit(struct ro_rig *rig, uint32_t opcode,
		     const struct te_remote *remote, uint32_t n,
		     struct te_error *err)
{
	struct te_local local = { .addr = rig->mem.p };
	struct te_request r = {
		.opcode = opcode, .target_id = rig->seg, .local = &local,
		.local_count = 1, .remote = remote, .remote_count = n,
	};
	uint32_t i;

	for (i = 0; i < n; i++)
		local.length += remote[i].length;
	memset(err, 0, sizeof(*err));
	return fx_submit(rig->engine, &r, err);
}

static bool ro_refused(struct ro_rig *rig, const struct te_remote *remote,
		       uint32_t n)
{
	struct te_error err;
	int status = ro_submit(rig, TE_WRITE, remote, n, &err);

	ft_diag("status %d, error %d: %s", status, err.code, err.text);
	/* For copies inside the host, only the log says that the memory is
	 * registered for reading only. */
	return status == STATUS_FAILED && err.code == -3 &&
	       (strstr(err.text, "for reading only") ||
		!strcmp(rig->transport, "local"));
}

static void ro_remote(struct ro_rig *rig)
{
	uint64_t ro = rig->target.mem.addr + RO_HALF;
	struct te_remote in = { ro + 100, 64 }, last = { ro - 64, 128 };
	struct te_remote both[2] = { { ro - 4096, 64 }, { ro + 4096, 64 } };
	struct te_error err;

	ft_ok(ro_refused(rig, &in, 1), "write_to_read_only_is_refused_%s",
	      rig->transport);
	ft_ok(fx_move(rig->engine, rig->seg, OPCODE_READ, rig->mem.p, ro,
		      RO_HALF, 0) &&
	      fx_buf_check(&rig->mem, 0, RO_HALF, 1),
	      "read_of_read_only_completes_%s", rig->transport);
	ft_ok(ro_refused(rig, &in, 1) && ro_refused(rig, &last, 1) &&
	      ro_refused(rig, both, 2),
	      "write_with_known_key_is_refused_%s", rig->transport);
	ft_ok(ro_submit(rig, TE_READ, both, 2, &err) == STATUS_COMPLETED,
	      "read_of_writable_and_read_only_completes_%s", rig->transport);
	ft_ok(fx_move(rig->engine, rig->seg, OPCODE_WRITE, rig->mem.p,
		      ro - RO_HALF, RO_HALF, 0) &&
	      fx_ask(&rig->target, "rails") > 0 &&
	      fx_buf_check(&rig->target.mem, RO_HALF, RO_HALF, 1),
	      "target_survives_refused_writes_unchanged_%s", rig->transport);
}

static void ro_atomic(struct ro_rig *rig)
{
	struct te_remote number = { rig->target.mem.addr + RO_HALF, 8 };
	struct te_request r = {
		.opcode = TE_ATOMIC_ADD, .target_id = rig->seg, .operand = 1,
		.remote = &number, .remote_count = 1,
	};
	struct te_error err = { 0 };

	ft_ok(fx_submit(rig->engine, &r, &err) == STATUS_FAILED &&
	      err.code == -3, "atomic_on_read_only_is_refused_%s",
	      rig->transport);
}

static void ro_local(struct ro_rig *rig)
{
	uint64_t there = rig->target.mem.addr;
	struct transfer_request req = { OPCODE_READ, rig->own, rig->seg, there,
					64 };
	batch_id_t id = allocateBatchID(rig->engine, 1);

	ft_ok(fx_move(rig->engine, rig->seg, OPCODE_WRITE, rig->own, there,
		      RO_HALF, 0) &&
	      !memcmp(rig->own, rig->target.mem.p, RO_HALF),
	      "write_from_read_only_completes_%s", rig->transport);
	ft_ok(submitTransfer(rig->engine, id, &req, 1) == 3,
	      "read_into_read_only_is_refused_%s", rig->transport);
	freeBatchID(rig->engine, id);
}

static bool ro_start(struct ro_rig *rig)
{
	char transport[32];

	snprintf(transport, sizeof(transport), "transport=%s", rig->transport);
	rig->engine = fx_engine(rig->transport);
	rig->mem = fx_buf_map(RO_HALF, -1);
	rig->own = mmap(NULL, RO_HALF, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!rig->engine || rig->own == MAP_FAILED ||
	    !fx_register(rig->engine, &rig->mem) ||
	    !fx_peer_start(&rig->target, 2 * RO_HALF, transport, NULL))
		return false;
	memset(rig->own, 0x5a, RO_HALF);
	mprotect(rig->own, RO_HALF, PROT_READ);
	fx_buf_fill(&rig->target.mem, 0, RO_HALF, 1);
	fx_buf_fill(&rig->target.mem, RO_HALF, RO_HALF, 1);
	rig->seg = openSegment(rig->engine, rig->target.name);
	return rig->seg >= 0 &&
	       !registerLocalMemory(rig->engine, rig->own, RO_HALF, "*", 0) &&
	       !fx_ask(&rig->target, "protect %llu %llu", RO_HALF, RO_HALF) &&
	       !fx_ask(&rig->target, "reg 0 %llu 1", RO_HALF) &&
	       !fx_ask(&rig->target, "reg %llu %llu 1", RO_HALF, RO_HALF);
}

static void ro_transport(const char *transport)
{
	struct ro_rig rig = { .transport = transport };

	if (!ft_ok(ro_start(&rig), "read_only_target_starts_%s", transport))
		return;
	ro_remote(&rig);
	if (strcmp(transport, "local"))
		ro_atomic(&rig);
	ro_local(&rig);
	ft_ok(fx_peer_stop(&rig.target), "read_only_target_ends_%s", transport);
	fx_peer_drop(&rig.target);
	destroyTransferEngine(rig.engine);
	fx_buf_unmap(&rig.mem);
	munmap(rig.own, RO_HALF);
}

static bool ro_write_fails(struct ro_rig *rig, uint64_t at, uint64_t len)
{
	struct te_remote piece = { at, len };

	return ro_refused(rig, &piece, 1);
}

/* Checks copies inside this process between rig->own, which is read-only, and
 * other memory. If the library did not refuse them, the process would crash.
 * The calling thread makes small copies, a copy thread makes large ones. */
static void ro_process(struct ro_rig *rig, const char *whose)
{
	uint64_t ro = (uint64_t)(uintptr_t)rig->own;
	struct transfer_request req = { OPCODE_READ, rig->own, rig->seg,
					rig->mem.addr, 64 };
	batch_id_t id = allocateBatchID(rig->engine, 1);

	ft_ok(ro_write_fails(rig, ro, 64) && ro_write_fails(rig, ro, RO_HALF),
	      "write_to_read_only_of_%s_is_refused", whose);
	ft_ok(fx_move(rig->engine, rig->seg, OPCODE_READ, rig->mem.p, ro,
		      RO_HALF, 0) && rig->mem.p[RO_HALF - 1] == 0x5a,
	      "read_of_read_only_of_%s_completes", whose);
	ft_ok(submitTransfer(rig->engine, id, &req, 1) == 3,
	      "read_into_read_only_from_%s_is_refused", whose);
	req.length = RO_HALF;
	ft_ok(submitTransfer(rig->engine, id, &req, 1) == 3,
	      "large_read_into_read_only_from_%s_is_refused", whose);
	freeBatchID(rig->engine, id);
}

static void ro_own_atomic(struct ro_rig *rig)
{
	struct te_remote number = { (uint64_t)(uintptr_t)rig->own, 8 };
	struct te_local result = { .addr = rig->own, .length = 8 };
	struct te_request r = {
		.opcode = TE_ATOMIC_ADD, .target_id = LOCAL_SEGMENT,
		.operand = 1, .remote = &number, .remote_count = 1,
	};
	struct te_error err = { 0 };
	batch_id_t id = allocateBatchID(rig->engine, 1);

	ft_ok(fx_submit(rig->engine, &r, &err) == STATUS_FAILED &&
	      err.code == -3, "atomic_on_own_read_only_is_refused");
	number.addr = rig->mem.addr;
	r.opcode = TE_ATOMIC_FETCH_ADD;
	r.local = &result;
	r.local_count = 1;
	ft_ok(te_submit(rig->engine, id, &r, sizeof(r), 1, 0) == 3,
	      "atomic_with_read_only_result_is_refused");
	freeBatchID(rig->engine, id);
}

static void ro_in_process(void)
{
	struct ro_rig rig = { .transport = "local", .seg = LOCAL_SEGMENT };
	transfer_engine_t other = fx_engine("local");
	char name[128];

	rig.engine = fx_engine("local");
	rig.mem = fx_buf_map(RO_HALF, -1);
	rig.own = mmap(NULL, RO_HALF, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (!ft_ok(rig.engine && other && rig.own != MAP_FAILED &&
		   fx_register(rig.engine, &rig.mem), "two_engines_start"))
		return;
	memset(rig.own, 0x5a, RO_HALF);
	mprotect(rig.own, RO_HALF, PROT_READ);
	ft_ok(!registerLocalMemory(rig.engine, rig.own, RO_HALF, "*", 1) &&
	      !registerLocalMemory(other, rig.own, RO_HALF, "*", 1),
	      "read_only_memory_is_registered_with_both");
	ro_process(&rig, "own_engine");
	ro_own_atomic(&rig);
	fx_engine_name(other, name, sizeof(name));
	rig.seg = openSegment(rig.engine, name);
	ro_process(&rig, "another_engine");
	destroyTransferEngine(rig.engine);
	destroyTransferEngine(other);
	fx_buf_unmap(&rig.mem);
	munmap(rig.own, RO_HALF);
}

void bad_read_only(void)
{
	ro_transport("tcp");
	ro_transport("shm");
	ro_transport("local");
	ro_in_process();
}
