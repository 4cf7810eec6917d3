/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_ENGINE_REFUSAL_H
#define TEI_API_ENGINE_REFUSAL_H

/*
 * Error records of refused submissions. Each function stores an error record as
 * the calling thread's last error. The functions that return a value return the
 * code that the public call then returns. `call` is the name of the public
 * call, `i` the index of the request. The functions that have an engine as
 * parameter require e->segments to be held for reading or writing.
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
/* Stores an error record whose text is the name of the code. */
int engine_refuse_code(const char *call, size_t i, int code);
/* Refuses a submission because the batch cannot hold n more tasks. */
int engine_refuse_full(const char *call, const struct engine_batch *b,
		       size_t n);
/* Refuses a request because no open segment has this id. */
int engine_refuse_target(const char *call, size_t i, segment_id_t id);
/* Refuses a request because no transport of the engine reaches the segment. */
int engine_refuse_transport(struct engine *e, const char *call, size_t i,
			    segment_id_t id);
/* Refuses a request that no transport takes, if its target range is GPU memory of
 * a local process. Returns 0 if it is not. */
int engine_refuse_gpu(struct engine *e, const char *call, size_t i,
		      segment_id_t id, uint64_t addr, uint64_t len);
/* Refuses a request because its local memory is not registered, or not for
 * writing if write is true. `field` is the name of the request's field that has
 * the address. */
int engine_refuse_source(struct engine *e, const char *call, size_t i,
			 const char *field, const void *addr, uint64_t len,
			 bool write);
/* Stores the error record of a request that was refused with `code`, after
 * finding out the reason. Returns `code`. */
int engine_refuse_request(struct engine *e, const char *call, size_t i,
			  const struct transfer_request *r, int code);
/* Refuses all n requests of a submission because the data plane could not start
 * them. The data plane does not report which of them is the cause. */
int engine_refuse_start(struct engine *e, const char *call,
			const struct transfer_request *reqs, size_t n,
			int code);

#endif /* TEI_API_ENGINE_REFUSAL_H */
