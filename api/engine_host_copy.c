/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies inside this host for GPU staging. If the GPU cannot access the GPU
 * memory of a local process, the bytes pass through remote bounce slots of that
 * process. If possible, the slots are memory that local processes can map, and the
 * initiator copies by memcpy. Otherwise the kernel copies (process_vm_readv,
 * process_vm_writev): the transport "local" was installed after the slots were
 * allocated, the memory cannot be shared, or the initiator cannot map it. The
 * messages about the slots use the rails.
 *
 * Like every copy to a local process, a copy holds a copy slot of that process.
 * Until the copy has ended, that process cannot finish unregistering the remote
 * bounce slot. A copy that starts after that process has begun to unregister it
 * is refused.
 */
#include "api/engine_host_copy.h"

#include <errno.h>
#include <unistd.h>

#include "api/engine_int.h"
#include "prov/local/tei_local.h"
#include "prov/local/tei_local_memory.h"
#include "prov/staging/tei_staging.h"

/* --- the host memory of this process -------------------------------------- */

int engine_host_share(void *arg, void *mem, uint64_t len, bool remote,
		      uint64_t *serial)
{
	struct engine *e = arg;
	int ret = ENOTSUP;

	*serial = 0;
	/* other processes do not copy before the transport is installed */
	if (remote && __atomic_load_n(&e->local_on, __ATOMIC_RELAXED))
		ret = tei_local_memory_map(e->local, mem, len,
					   (uint64_t)sysconf(_SC_PAGESIZE));
	if (ret && ret != ENOTSUP)
		return TEI_ERR_MEMORY;
	ret = tei_local_region_add(e->local, mem, len,
				   remote ? TEI_LOCAL_REMOTE : 0);
	if (ret)
		TEI_DEBUG_LOG("engine", "%p, %llu bytes: no copies from and to bounce buffers of GPU memory inside this host: %s",
			      mem, (unsigned long long)len, tei_err_name(ret));
	else
		*serial = tei_local_region_serial(e->local, mem);
	return 0;
}

int engine_host_unshare(void *arg, void *mem, uint64_t deadline_ns)
{
	struct engine *e = arg;

	return tei_local_region_remove(e->local, mem, 0, deadline_ns);
}

void engine_host_release(void *arg, void *mem)
{
	struct engine *e = arg;

	tei_local_memory_free(e->local, mem);
}

/* --- copies --------------------------------------------------------------- */

_Static_assert(sizeof(struct tei_local_op) <= TEI_STAGING_COPY &&
		       _Alignof(struct tei_local_op) <= _Alignof(uint64_t),
	       "operation of a copy");

static struct tei_local_op *host_op(struct tei_staging_copy *copy)
{
	return (void *)copy->op.room;
}

static void host_end(struct tei_staging_copy *copy, int code, uint64_t bytes,
		     const struct tei_err *err)
{
	struct engine_local_process *process = copy->near;
	int status = STATUS_COMPLETED;

	if (code == TEI_LOCAL_CANCELLED) {
		code = TEI_ERR_CANCELED;
		err = NULL;
	}
	if (code)
		status = STATUS_CANCELED;
	/* after a failure, the rails move the bytes, or the task fails because
	 * the slot was withdrawn */
	if (!code || code == TEI_ERR_CANCELED)
		engine_traffic_count(&process->traffic, copy->read,
				     code ? 0 : bytes, status);
	tei_staging_copy_done(copy, code, err);
}

static void host_done(struct tei_local_op *op, int code, uint64_t bytes)
{
	host_end(op->group, code, bytes, op->why);
}

/* Fills in the operation of a copy. Returns 0; TEI_ERR_NOT_REGISTERED if the
 * process does not permit copies from and to the slot with this serial; or
 * TEI_ERR_BUSY if the memory of this process is being unregistered. */
static int host_prepare(struct engine *e, struct tei_staging_copy *copy)
{
	struct engine_local_process *process = copy->near;
	struct tei_local_op *op = host_op(copy);

	op->peer = process->peer;
	op->opcode = copy->read ? TEI_LOCAL_READ : TEI_LOCAL_WRITE;
	op->local = copy->local;
	op->registered = true;
	op->remote = copy->slot;
	op->length = copy->length;
	op->serial = copy->serial;
	op->done = host_done;
	op->group = copy;
	if (tei_local_serial(e->local, op->peer, op->remote, op->length,
			     !copy->read) != op->serial)
		return TEI_ERR_NOT_REGISTERED;
	return tei_local_region_check(e->local, op->local, op->length,
				      copy->read) ? TEI_ERR_BUSY : 0;
}

/* Returns true if the calling thread may copy: the copy is short and is no kernel
 * copy, which could wait for page faults in the memory of the other process. */
static bool host_copies_inline(const struct tei_local_op *op)
{
	return op->length <= TEI_LOCAL_INLINE &&
	       (tei_local_peer_is_self(op->peer) || tei_local_op_mapped(op));
}

int engine_host_copy(void *arg, struct tei_staging_copy *copy)
{
	struct engine *e = arg;
	struct tei_local_op *op = host_op(copy);
	struct tei_err err;
	int ret = host_prepare(e, copy);

	if (ret)
		return ret;
	if (!host_copies_inline(op))
		return tei_local_submit(e->local, op);
	ret = tei_local_copy_op(e->local, op, &err);
	/* no byte was copied if the copy is refused with one of these codes */
	if (ret == TEI_ERR_TOO_MANY)
		return tei_local_submit(e->local, op);
	if (ret == TEI_ERR_NOT_REGISTERED)
		return ret;
	host_end(copy, ret, op->length, &err);
	return 0;
}

void engine_host_copy_cancel(void *arg, struct tei_staging_copy *copy)
{
	struct engine *e = arg;

	tei_local_cancel_start(e->local, host_op(copy));
}
