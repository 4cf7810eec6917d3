/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_LIST_H
#define TEI_UTIL_LIST_H

/*
 * A doubly linked list whose nodes are embedded in the owner's objects. The
 * list begins and ends at a head, which belongs to no object. The functions
 * allocate nothing and take no lock; the owner of the head states which lock
 * guards the list.
 */

#include <stdbool.h>
#include <stddef.h>

struct tei_list {
	struct tei_list *prev;
	struct tei_list *next;
};

#define tei_container_of(ptr, type, member) \
	((type *)(void *)((char *)(ptr) - offsetof(type, member)))

static inline void tei_list_init(struct tei_list *l)
{
	l->prev = l;
	l->next = l;
}

static inline bool tei_list_empty(const struct tei_list *l)
{
	return l->next == l;
}

static inline void tei_list_insert_after(struct tei_list *pos,
					 struct tei_list *n)
{
	n->prev = pos;
	n->next = pos->next;
	pos->next->prev = n;
	pos->next = n;
}

static inline void tei_list_add_head(struct tei_list *l, struct tei_list *n)
{
	tei_list_insert_after(l, n);
}

static inline void tei_list_add_tail(struct tei_list *l, struct tei_list *n)
{
	tei_list_insert_after(l->prev, n);
}

/* Unlinks n and makes it an empty list, so that a second call has no effect. */
static inline void tei_list_del(struct tei_list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	tei_list_init(n);
}

/* Moves all entries of the list `from` to the tail of the list `to`. The list
 * `from` is empty afterwards. */
static inline void tei_list_splice_tail(struct tei_list *to,
					struct tei_list *from)
{
	if (tei_list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	tei_list_init(from);
}

#define tei_list_first(l, type, member) \
	tei_container_of((l)->next, type, member)

#define tei_list_foreach(pos, l, type, member)				\
	for ((pos) = tei_container_of((l)->next, type, member);		\
	     &(pos)->member != (l);					\
	     (pos) = tei_container_of((pos)->member.next, type, member))

/* Does what tei_list_foreach does. In addition, the loop body may unlink and
 * free pos. tmp: pointer of the same type as pos, used by the macro. */
#define tei_list_foreach_safe(pos, tmp, l, type, member)		\
	for ((pos) = tei_container_of((l)->next, type, member),		\
	     (tmp) = tei_container_of((pos)->member.next, type, member);	\
	     &(pos)->member != (l);					\
	     (pos) = (tmp),						\
	     (tmp) = tei_container_of((pos)->member.next, type, member))

#endif /* TEI_UTIL_LIST_H */
