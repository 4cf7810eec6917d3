/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Error records of requests that are refused at submission. Each record names
 * the call, the request, the field, the value and the limit that the value
 * breaks. The hint says what the caller can do. Nothing is logged, because an
 * application may submit many such requests per second.
 */
#include "api/engine_int.h"
#include "api/engine_ipc.h"
#include "api/engine_memory.h"
#include "meta/tei_meta_desc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/engine_refusal.h"

/* --- the record ---------------------------------------------------------- */

int engine_refuse(const char *call, size_t i, int code, const char *hint,
		  const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	engine_refuse_v(call, i, code, hint, fmt, ap);
	va_end(ap);
	return code;
}

void engine_refuse_v(const char *call, size_t i, int code, const char *hint,
		     const char *fmt, va_list ap)
{
	struct tei_err err;
	int n;

	memset(&err, 0, sizeof(err));
	err.code = code == 8 ? TEI_ERR_UNSUPPORTED : -code;
	err.when_ns = tei_now_ns();
	n = i == ENGINE_REFUSE_CALL ?
		    snprintf(err.text, sizeof(err.text), "%s: ", call) :
		    snprintf(err.text, sizeof(err.text), "%s, request %zu: ",
			     call, i);
	vsnprintf(err.text + n, sizeof(err.text) - (size_t)n, fmt, ap);
	if (hint)
		snprintf(err.hint, sizeof(err.hint), "%s", hint);
	tei_err_set_last(&err);
}

int engine_refuse_code(const char *call, size_t i, int code)
{
	const char *name = tei_err_name(code == 8 ? TEI_ERR_UNSUPPORTED :
						    -code);

	if (code == TE_TIMED_OUT)
		return engine_refuse(call, i, code,
				     "set a later deadline, or allocate another batch",
				     ENGINE_DEADLINE_PASSED);
	return engine_refuse(call, i, code, NULL, "%s", name);
}

/* --- reasons that are common to all calls that submit -------------------- */

int engine_refuse_full(const char *call, const struct engine_batch *b, size_t n)
{
	return engine_refuse(call, ENGINE_REFUSE_CALL, 2,
			     "allocate a larger batch, or submit the other requests to another batch",
			     "batch holds %u of %u requests, %zu more %s too many",
			     b->count, b->size, n, n == 1 ? "is" : "are");
}

int engine_refuse_target(const char *call, size_t i, segment_id_t id)
{
	return engine_refuse(call, i, 1,
			     "use an id that openSegment returned and that has not been closed",
			     "target_id %d is not an open segment", id);
}

int engine_refuse_transport(struct engine *e, const char *call, size_t i,
			    segment_id_t id)
{
	const struct engine_segment *s = engine_segment_find(e, id);
	const char *protocol = s && s->desc ? s->desc->protocol : "";
	char hint[TEI_ERR_TEXT];

	if (!*protocol || !strcmp(protocol, "local"))
		protocol = "tcp";
	snprintf(hint, sizeof(hint), "call installTransport(engine, \"%.16s\", NULL)%s",
		 protocol, strcmp(protocol, "nvmeof") ? " at both ends" : "");
	return engine_refuse(call, i, 8, hint,
			     "no transport for this segment: installTransport(engine, \"%.16s\", NULL) is missing",
			     protocol);
}

int engine_refuse_gpu(struct engine *e, const char *call, size_t i,
		      segment_id_t id, uint64_t addr, uint64_t len)
{
	const struct engine_segment *s = engine_segment_find(e, id);
	const struct tei_meta_buffer *b;
	char why[TEI_ERR_TEXT];

	if (!s || !s->gpu || !s->local || !s->local->ipc)
		return 0;
	b = tei_meta_desc_find(s->desc, addr, 1);
	if (!b || !engine_segment_on_gpu(b))
		return 0;
	if (!tei_meta_desc_covers(s->desc, addr, len))
		return engine_refuse(call, i, 8,
				     "keep each request inside one registered buffer of the target",
				     "GPU memory 0x%llx of the target: %llu bytes from there are not registered",
				     (unsigned long long)addr,
				     (unsigned long long)len);
	engine_ipc_why(s->local->ipc, addr, len, why);
	return engine_refuse(call, i, 8,
			     "install a transport with rails at both ends, or see te_memory(3), GPU memory of another process of this host",
			     "GPU memory 0x%llx of the target is not mapped: %s",
			     (unsigned long long)addr, why);
}

/* --- a request of submitTransfer ----------------------------------------- */

/* Checks the form of a request. Returns 0 if it is correct. Otherwise stores an
 * error record and returns the code of the public call. */
static int refusal_form(const char *call, size_t i,
			const struct transfer_request *r)
{
	uintptr_t source = (uintptr_t)r->source;

	if (r->opcode != OPCODE_READ && r->opcode != OPCODE_WRITE)
		return engine_refuse(call, i, 1, NULL,
				     "opcode %d (must be OPCODE_READ, %d, or OPCODE_WRITE, %d)",
				     (int)r->opcode, OPCODE_READ, OPCODE_WRITE);
	if (!r->source)
		return engine_refuse(call, i, 1, NULL,
				     "source is NULL (must be registered memory)");
	if (!r->length)
		return engine_refuse(call, i, 1, NULL,
				     "length 0 (must be at least 1)");
	if (source + r->length < source)
		return engine_refuse(call, i, 1, NULL,
				     "length %llu from source 0x%llx goes past the end of the address space",
				     (unsigned long long)r->length,
				     (unsigned long long)source);
	if (r->target_offset + (r->length - 1) < r->target_offset)
		return engine_refuse(call, i, 1, NULL,
				     "length %llu from target_offset 0x%llx goes past 2^64",
				     (unsigned long long)r->length,
				     (unsigned long long)r->target_offset);
	return 0;
}

int engine_refuse_source(struct engine *e, const char *call, size_t i,
			 const char *field, const void *addr, uint64_t len,
			 bool write)
{
	unsigned long long bytes = len;

	if (write && !tei_local_region_check(e->local, addr, len, false))
		return engine_refuse(call, i, 3,
				     "register memory that is mapped with PROT_WRITE",
				     "%s 0x%llx, %llu bytes, is registered for reading only, and the request writes there",
				     field, (unsigned long long)(uintptr_t)addr,
				     bytes);
	if (!tei_local_region_check(e->local, addr, 1, false))
		return engine_refuse(call, i, 3,
				     "keep each request inside one registered buffer",
				     "%s 0x%llx is registered, but %llu bytes from there are not inside one buffer",
				     field, (unsigned long long)(uintptr_t)addr,
				     bytes);
	return engine_refuse(call, i, 3,
			     "call registerLocalMemory for the buffer first",
			     "%s 0x%llx, %llu bytes, is not registered", field,
			     (unsigned long long)(uintptr_t)addr, bytes);
}

static bool refusal_unregistered(struct engine *e,
				 const struct transfer_request *r)
{
	return !engine_gpu_concerns(e, r) &&
	       tei_local_region_check(e->local, r->source, r->length,
				      r->opcode == OPCODE_READ);
}

int engine_refuse_request(struct engine *e, const char *call, size_t i,
			  const struct transfer_request *r, int code)
{
	if (code == 1 && refusal_form(call, i, r))
		return code;
	if (code == 1 && r->target_id != LOCAL_SEGMENT &&
	    !engine_segment_find(e, r->target_id))
		return engine_refuse_target(call, i, r->target_id);
	if (code == 3 && refusal_unregistered(e, r))
		return engine_refuse_source(e, call, i, "source", r->source,
					    r->length,
					    r->opcode == OPCODE_READ);
	if (code == 8 && engine_refuse_gpu(e, call, i, r->target_id,
					   r->target_offset, r->length))
		return code;
	if (code == 8 && r->target_id != LOCAL_SEGMENT)
		return engine_refuse_transport(e, call, i, r->target_id);
	return engine_refuse_code(call, i, code);
}

int engine_refuse_start(struct engine *e, const char *call,
			const struct transfer_request *reqs, size_t n, int code)
{
	size_t i;

	for (i = 0; code == 3 && i < n; i++)
		if (refusal_unregistered(e, &reqs[i]))
			return engine_refuse_request(e, call, i, &reqs[i],
						     code);
	if (code == 8)
		return engine_refuse(call, ENGINE_REFUSE_CALL, code,
				     "call installTransport, or look with te_info --check for a usable interface",
				     "no transport for this segment: this process has no rail");
	return engine_refuse_code(call, ENGINE_REFUSE_CALL, code);
}
