/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nested registrations: ranges inside a registered buffer that are registered
 * again. A nested registration is a counted reference to the buffer. Rails and
 * copies use the registration of the buffer, so a nested registration needs no
 * memory key and can be dropped while transfers use the range. The buffer
 * itself cannot be unregistered while references exist, because the owners of
 * the references rely on the access to it.
 *
 * Nested registrations with the same range and label share one struct
 * engine_nested with a reference count. It is an element of a hash table. It is
 * also an element of a list of the region around the range, because the
 * descriptor lists the labels inside each published region.
 */
#include "api/engine_int.h"
#include "api/engine_memory.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

/* --- labels -------------------------------------------------------------- */

bool engine_label_equal(const char *a, const char *b)
{
	return !strcmp(a ? a : "", b ? b : "");
}

int engine_label_check(const char *call, size_t i, const char *label)
{
	const char *at = label, *end;
	struct tei_err err;
	size_t len, n;

	if (!label)
		return 0;
	n = strlen(label);
	if (n >= TE_LABEL_MAX)
		return tei_err_fail(&err, TEI_ERR_INVALID, "engine", NULL,
				    "%s: entry %zu: label of %zu bytes (must "
				    "be at most %d)", call, i, n,
				    TE_LABEL_MAX - 1);
	for (end = label + n; at < end; at += len) {
		len = tei_utf8_length(at, end);
		if (len == 1 && ((unsigned char)*at < ' ' || *at == 0x7f))
			return tei_err_fail(&err, TEI_ERR_INVALID, "engine",
					    NULL,
					    "%s: entry %zu: label: control "
					    "character %#04x at byte %td",
					    call, i, (unsigned int)*at,
					    at - label);
		if (!len)
			return tei_err_fail(&err, TEI_ERR_INVALID, "engine",
					    NULL,
					    "%s: entry %zu: label: not valid "
					    "UTF-8 at byte %td", call, i,
					    at - label);
	}
	return 0;
}

/* --- the hash table ------------------------------------------------------ */

static uint64_t nested_hash(const void *addr, uint64_t length,
			    const char *label)
{
	uint64_t h = tei_hash_add(TEI_HASH_INIT, &addr, sizeof(addr));

	h = tei_hash_add(h, &length, sizeof(length));
	return label ? tei_hash_add(h, label, strlen(label)) : h;
}

static struct engine_nested **nested_bucket(struct engine *e, const void *addr,
					    uint64_t length, const char *label)
	TEI_REQUIRES(e->control)
{
	uint64_t h = nested_hash(addr, length, label);

	return &e->memory.nested[h % e->memory.nested_cap];
}

/* Enlarges the hash table if it is full. Returns false if memory is short. */
static bool nested_grow(struct engine *e) TEI_REQUIRES(e->control)
{
	struct engine_nested **old = e->memory.nested, *n, **b;
	uint32_t i, was = e->memory.nested_cap, cap = was * 2 + 16;

	if (e->memory.nested_n < was)
		return true;
	b = calloc(cap, sizeof(*b));
	if (!b)
		return false;
	e->memory.nested = b;
	e->memory.nested_cap = cap;
	for (i = 0; i < was; i++) {
		while ((n = old[i])) {
			old[i] = n->bucket_next;
			b = nested_bucket(e, n->addr, n->length, n->label);
			n->bucket_next = *b;
			*b = n;
		}
	}
	free(old);
	return true;
}

/* Finds the nested registration with the range and label of "what". Returns the
 * address of the pointer to it in its hash bucket, or NULL if it does not
 * exist. */
static struct engine_nested **nested_find(struct engine *e,
					  const struct te_registration *what)
	TEI_REQUIRES(e->control)
{
	const char *label = what->label && *what->label ? what->label : NULL;
	struct engine_nested **at;

	if (!e->memory.nested_n)
		return NULL;
	at = nested_bucket(e, what->addr, what->length, label);
	while (*at && ((*at)->addr != what->addr ||
		       (*at)->length != what->length ||
		       !engine_label_equal((*at)->label, label)))
		at = &(*at)->bucket_next;
	return *at ? at : NULL;
}

/* --- registrations ------------------------------------------------------- */

struct engine_region *engine_nested_outer(struct engine *e, const void *addr,
					  uint64_t length, uint64_t call)
{
	struct tei_range *range = tei_range_find(
		&e->memory.ranges, (uint64_t)(uintptr_t)addr, length);
	struct engine_region *r;

	if (!range)
		return NULL;
	r = engine_memory_find(e, (const void *)(uintptr_t)range->base);
	return r && (!r->call || r->call == call) ? r : NULL;
}

static struct engine_nested *nested_new(const struct te_registration *what,
					void *outer)
{
	struct engine_nested *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->addr = what->addr;
	n->length = what->length;
	n->outer = outer;
	n->refs = 1;
	if (!what->label || !*what->label)
		return n;
	n->label = strdup(what->label);
	if (n->label)
		return n;
	free(n);
	return NULL;
}

int engine_nested_add(struct engine *e, struct engine_region *outer,
		      const struct te_registration *what, struct tei_err *err)
{
	struct engine_nested **at = nested_find(e, what), *n;

	if (at) {
		(*at)->refs++;
		return 0;
	}
	n = nested_grow(e) ? nested_new(what, outer->addr) : NULL;
	if (!n)
		return tei_err_fail(err, TEI_ERR_MEMORY, "engine", NULL,
				    "no memory for a nested registration");
	at = nested_bucket(e, n->addr, n->length, n->label);
	n->bucket_next = *at;
	*at = n;
	e->memory.nested_n++;
	tei_mutex_lock(&e->listing.lock);
	n->next = outer->nested;
	if (n->next)
		n->next->prev = n;
	outer->nested = n;
	e->listing.version += n->label && outer->listed;
	tei_mutex_unlock(&e->listing.lock);
	return 0;
}

bool engine_nested_drop(struct engine *e, const struct te_registration *what,
			bool *published)
{
	struct engine_nested **at = nested_find(e, what), *n;
	struct engine_region *outer;

	if (!at)
		return false;
	n = *at;
	if (--n->refs)
		return true;
	*at = n->bucket_next;
	e->memory.nested_n--;
	outer = engine_memory_find(e, n->outer);
	tei_mutex_lock(&e->listing.lock);
	if (n->next)
		n->next->prev = n->prev;
	if (n->prev)
		n->prev->next = n->next;
	else
		outer->nested = n->next;
	if (n->label && outer->listed) {
		e->listing.version++;
		*published = true;
	}
	tei_mutex_unlock(&e->listing.lock);
	free(n->label);
	free(n);
	return true;
}

uint64_t engine_nested_count(const struct engine_region *r)
{
	const struct engine_nested *n;
	uint64_t refs = 0;

	for (n = r->nested; n; n = n->next)
		refs += n->refs;
	return refs;
}

void engine_nested_free_all(struct engine *e)
{
	struct engine_nested *n;
	uint32_t i;

	for (i = 0; i < e->memory.nested_cap; i++) {
		while ((n = e->memory.nested[i])) {
			e->memory.nested[i] = n->bucket_next;
			free(n->label);
			free(n);
		}
	}
	free(e->memory.nested);
}
