/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The labels of a descriptor. Peers find labelled ranges by the text of the
 * label. A label of a whole registration is also the label of each buffer in
 * its range. The freeze sorts and checks n labels in time n log n at most,
 * because the descriptor may come from a malicious peer.
 */
#include <stdlib.h>
#include <string.h>

#include "meta/meta_int.h"
#include "meta/tei_meta_desc.h"
#include "util/err.h"
#include "util/text.h"

int meta_desc_label(struct meta_desc *d, const struct tei_meta_label *label,
		    const char **why)
{
	struct tei_meta_label l = *label;
	uint64_t end;

	if (d->pub.label_count == TEI_META_BUFFERS_MAX)
		return meta_desc_why(why, "too many labels", TEI_ERR_TOO_MANY);
	if (!l.text || !*l.text ||
	    !tei_text_valid(l.text, TEI_META_LABEL_MAX - 1))
		return meta_desc_why(why,
				     "label empty, too long or not plain UTF-8",
				     TEI_ERR_INVALID);
	if (!l.addr || !l.length ||
	    __builtin_add_overflow(l.addr, l.length - 1, &end))
		return meta_desc_why(why, "label without a range",
				     TEI_ERR_INVALID);
	l.text = meta_desc_copy(d, l.text, strlen(l.text));
	if (!l.text || !meta_desc_grow((void **)&d->labels, d->pub.label_count,
				       &d->label_room, sizeof(*d->labels)))
		return meta_desc_oom(why);
	d->labels[d->pub.label_count++] = l;
	d->pub.labels = d->labels;
	return 0;
}

static int label_by_addr(const void *a, const void *b)
{
	const struct tei_meta_label *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->length != y->length)
		return x->length > y->length ? -1 : 1;
	if (x->nested != y->nested)
		return x->nested ? 1 : -1;
	return strcmp(x->text, y->text);
}

/* Compares two labels by text. Both are pointers into the array of labels;
 * labels with the same text are ordered by their position in that array. */
static int label_by_text(const void *a, const void *b)
{
	const struct tei_meta_label *x = *(const struct tei_meta_label *const *)a;
	const struct tei_meta_label *y = *(const struct tei_meta_label *const *)b;
	int order = strcmp(x->text, y->text);

	return order ? order : x < y ? -1 : x > y;
}

/* State of a pass over the buffers and labels in ascending order of addresses.
 * A run is a sequence of buffers that are adjacent in memory. */
struct label_walk {
	uint32_t next;		/* index of the first buffer after the present
				 * run */
	uint64_t base, last;	/* addresses of the first and the last byte of
				 * the present run */
	uint32_t named;		/* index of the first buffer that has no label
				 * yet */
	uint64_t named_last;	/* address of the last byte of the previous
				 * label of a whole registration */
	bool any;		/* named_last is valid: there was such a
				 * label */
};

/* Goes on to the next runs until the present run ends at or above addr, or
 * there is no further run. */
static void label_walk_to(const struct meta_desc *d, struct label_walk *w,
			  uint64_t addr)
{
	const struct tei_meta_buffer *b = d->buffers;
	uint32_t n = d->pub.buffer_count;

	while (w->next < n && (!w->next || w->last < addr)) {
		w->base = b[w->next].addr;
		do {
			w->last = b[w->next].addr + (b[w->next].length - 1);
			w->next++;
		} while (w->next < n && w->last != UINT64_MAX &&
			 b[w->next].addr == w->last + 1);
	}
}

/*
 * Sets l as the label of the buffers in its range. Returns false if the range
 * overlaps that of the previous label of a whole registration, or if it ends
 * inside a buffer.
 */
static bool label_name_buffers(struct meta_desc *d, struct label_walk *w,
			       const struct tei_meta_label *l)
{
	struct tei_meta_buffer *b = d->buffers;
	uint64_t last = l->addr + (l->length - 1);
	uint32_t i = w->named;

	if (w->any && l->addr <= w->named_last)
		return false;
	while (i < d->pub.buffer_count && b[i].addr < l->addr)
		i++;
	for (; i < d->pub.buffer_count && b[i].addr <= last; i++) {
		if (b[i].length - 1 > last - b[i].addr)
			return false;
		b[i].label = l->text;
	}
	w->named = i;
	w->named_last = last;
	w->any = true;
	return true;
}

int meta_desc_seal_labels(struct meta_desc *d, const char **why)
{
	struct label_walk w = { 0 };
	const struct tei_meta_label *l;
	uint32_t i, n = d->pub.label_count;

	if (!n)
		return 0;
	qsort(d->labels, n, sizeof(*d->labels), label_by_addr);
	free(d->by_text);
	d->by_text = malloc(n * sizeof(*d->by_text));
	if (!d->by_text)
		return meta_desc_oom(why);
	for (i = 0; i < n; i++) {
		l = d->by_text[i] = &d->labels[i];
		label_walk_to(d, &w, l->addr);
		if (!w.next || l->addr < w.base || l->addr > w.last ||
		    l->length - 1 > w.last - l->addr)
			return meta_desc_why(why, "label outside the buffers",
					     TEI_ERR_INVALID);
		if (!l->nested && !label_name_buffers(d, &w, l))
			return meta_desc_why(why,
					     "label of overlapping registrations",
					     TEI_ERR_INVALID);
	}
	qsort(d->by_text, n, sizeof(*d->by_text), label_by_text);
	return 0;
}

/*
 * Returns the index in d->by_text of the first label whose text is equal to or
 * above "text". If "after" is true, returns the index of the first label whose
 * text is above "text".
 */
static uint32_t label_index(const struct meta_desc *d, const char *text,
			    bool after)
{
	uint32_t low = 0, high = d->pub.label_count, mid;
	int order;

	while (low < high) {
		mid = low + (high - low) / 2;
		order = strcmp(d->by_text[mid]->text, text);
		if (order < 0 || (after && !order))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

uint32_t tei_meta_desc_find_label(const struct tei_meta_desc *desc,
				  const char *text,
				  const struct tei_meta_label *const **at)
{
	const struct meta_desc *d = (const struct meta_desc *)(const void *)desc;
	uint32_t first = label_index(d, text, false);

	*at = d->by_text ? d->by_text + first : NULL;
	return label_index(d, text, true) - first;
}
