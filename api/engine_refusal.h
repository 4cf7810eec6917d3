/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_REFUSAL_H
#define TEI_API_ENGINE_REFUSAL_H

/*
 * Error records of refused submissions. Every function stores a record as the
 * calling thread's last error and returns `code`, the value that the public
 * call returns. `call` is the name of that public call; `i` is the index of
 * the request. The functions that take an engine require e->segments to be
 * held for reading or writing.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/transfer_engine_c.h"

struct engine;
struct engine_batch;

/* value of `i`: the refusal does not concern a single request */
#define ENGINE_REFUSE_CALL SIZE_MAX

int engine_refuse(const char *call, size_t i, int code, const char *hint,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void engine_refuse_v(const char *call, size_t i, int code, const char *hint,
		     const char *fmt, va_list ap)
	__attribute__((format(printf, 5, 0)));
/* Refuses with the name of the code as text. */
int engine_refuse_code(const char *call, size_t i, int code);
/* Refuses because the batch has no room for n more requests. */
int engine_refuse_full(const char *call, const struct engine_batch *b,
		       size_t n);
/* Refuses because no open segment has this id. */
int engine_refuse_target(const char *call, size_t i, segment_id_t id);
/* Refuses because no transport of the engine reaches the segment. */
int engine_refuse_transport(struct engine *e, const char *call, size_t i,
			    segment_id_t id);
/* Refuses because local memory is not registered, or is not registered for
 * writing. `field` is the name of the field with its address. */
int engine_refuse_source(struct engine *e, const char *call, size_t i,
			 const char *field, const void *addr, uint64_t len,
			 bool write);
/* Finds out why a request was refused with `code`, and refuses it. */
int engine_refuse_request(struct engine *e, const char *call, size_t i,
			  const struct transfer_request *r, int code);
/* Refuses n requests because none of them could be started. The data plane does
 * not report which request is the cause. */
int engine_refuse_start(struct engine *e, const char *call,
			const struct transfer_request *reqs, size_t n,
			int code);

#endif /* TEI_API_ENGINE_REFUSAL_H */
