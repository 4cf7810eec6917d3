/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_API_TRANSPORT_BOUNCE_H
#define TEI_API_TRANSPORT_BOUNCE_H

/*
 * Requests with TE_REQ_BOUNCE whose local memory is not registered.
 */

#include <stdbool.h>
#include <stdint.h>

#include "transfer_engine_c.h"

struct engine;
struct te_request;
struct tei_err;

/* Reasons why a local range of a request with TE_REQ_BOUNCE is refused. */
enum engine_bounce_refusal {
	ENGINE_BOUNCE_NONE,	 /* the memory can be used */
	ENGINE_BOUNCE_READ_ONLY, /* the request writes to memory that is
				  * registered for reading only */
	ENGINE_BOUNCE_PARTLY,	 /* the request writes to a range of which only
				  * a part is registered */
	ENGINE_BOUNCE_UNMAPPED,
	ENGINE_BOUNCE_GPU,
};

/* Checks a local range of a request with TE_REQ_BOUNCE. "write" is true if the
 * request writes to the range. Sets *bounce to true if the range is not
 * registered; otherwise leaves *bounce unchanged. */
enum engine_bounce_refusal engine_bounce_check(struct engine *e,
					       const void *addr, uint64_t len,
					       bool write, bool *bounce);
/* Stores the error record of a request with TE_REQ_BOUNCE that is refused
 * because of its local memory. Returns 3. e->segments must be held. */
int engine_bounce_refuse(struct engine *e, const char *call, size_t i,
			 const struct te_request *r);

/* Creates e->bounces. Bounce buffers are registered only when the first request
 * needs them. */
int engine_bounce_open(struct engine *e, struct tei_err *err);
/* Frees e->bounces after the data plane was closed. NULL is ignored. */
void engine_bounce_free(struct engine *e);

#endif /* TEI_API_TRANSPORT_BOUNCE_H */
