/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The table of transports, and the calls that concern all of them.
 */
#include "api/engine_transport.h"

#include <stdio.h>
#include <string.h>

/* This transport is linked into the unit tests only. In the library the symbol
 * is undefined, so the element of the table is NULL. */
extern const struct engine_transport_ops transport_store __attribute__((weak));

/* The table, in order of precedence. A transport that hands its bytes to others
 * stands before them. */
static const struct engine_transport_ops *const transports[] = {
	&transport_ipc,	    /* copies by the GPU from and to GPU memory of
			     * another process of this host */
	&transport_staging, /* moves GPU memory of this process through bounce
			     * buffers */
	&transport_slot,    /* moves GPU memory of the target through remote
			     * bounce slots */
	&transport_file,    /* reads and writes the files of file segments */
	&transport_gpu,	    /* copies by the GPU inside this process */
	&transport_store,   /* exists in the unit tests only */
	&transport_local,   /* copies inside this host */
	&transport_bounce,  /* moves unregistered memory through bounce
			     * buffers */
	&transport_rail,    /* everything else, over the rails of the data
			     * plane */
};

#define TRANSPORTS_N (sizeof(transports) / sizeof(transports[0]))

_Static_assert(TRANSPORTS_N <= ENGINE_ROWS_MAX, "a target has all rows");

const struct engine_transport_ops *engine_transport_named(const char *name)
{
	const char *const *p;
	size_t i;

	for (i = 0; i < TRANSPORTS_N; i++) {
		p = transports[i] ? transports[i]->names : NULL;
		for (; p && *p; p++)
			if (!strcmp(*p, name))
				return transports[i];
	}
	return NULL;
}

void engine_transport_names(char *out, size_t len)
{
	const char *const *p;
	size_t i, used = 0;

	*out = '\0';
	for (i = TRANSPORTS_N; i-- > 0;) {
		p = transports[i] ? transports[i]->names : NULL;
		for (; p && *p && used < len; p++)
			used += (size_t)snprintf(out + used, len - used, "%s%s",
						 used ? ", " : "", *p);
	}
}

void engine_transports_attach(struct engine *e, const struct engine_segment *s,
			      struct engine_vias *vias)
{
	struct engine_via *v = vias->via;
	bool reached = false;
	size_t i;

	for (i = 0; i < TRANSPORTS_N; i++) {
		v->by = transports[i];
		v->at = v->by ? v->by->attach(e, s) : NULL;
		reached |= v->at && !v->by->through;
		v += v->at != NULL;
	}
	vias->n = reached ? (uint32_t)(v - vias->via) : 0;
}

bool engine_transports_progress(struct engine *e)
{
	bool any = false;
	size_t i;

	for (i = 0; i < TRANSPORTS_N; i++)
		if (transports[i] && transports[i]->progress)
			any |= transports[i]->progress(e);
	return any;
}

void engine_transports_waiter(struct engine *e, enum engine_waiter now)
{
	size_t i;

	for (i = 0; i < TRANSPORTS_N; i++)
		if (transports[i] && transports[i]->waiter)
			transports[i]->waiter(e, now);
}

bool engine_transports_drain(struct engine *e,
			     const struct engine_transport_ops *through,
			     uint64_t until_ns)
{
	bool all = true;
	size_t i;

	for (i = 0; i < TRANSPORTS_N; i++)
		if (transports[i] && transports[i] != through)
			all &= transports[i]->drain(e, through, until_ns);
	return all;
}

void engine_transports_close(struct engine *e)
{
	size_t i;

	for (i = 0; i < TRANSPORTS_N; i++)
		if (transports[i] && transports[i]->close)
			transports[i]->close(e);
}
