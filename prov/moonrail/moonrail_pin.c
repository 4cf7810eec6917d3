/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pinned ranges: the memory that peers may access, as registrations of the data
 * plane, which never overlap. If a new range overlaps pinned ranges, the gaps
 * are registered, and the new range takes a reference to each pinned range that
 * it touches. A pinned range without references stays registered for a while,
 * because it may be used again, such as a buffer that is sent from repeatedly.
 */
#include <stdlib.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"

#define PIN_IDLE	512	/* largest number of unused pinned ranges that
				 * stay registered */
#define PIN_WAIT_NS	(5 * TEI_NS_PER_SEC)

/* Returns the pinned range at index i of the table. */
static struct moonrail_pin *pin_get(const struct moonrail_domain *d, uint32_t i)
{
	return tei_container_of(d->pins.at[i], struct moonrail_pin, range);
}

static char *pin_addr(const struct moonrail_pin *p)
{
	return (char *)(uintptr_t)p->range.base;
}

static void pin_take_out(struct moonrail_domain *d, struct moonrail_pin *p,
			 struct tei_list *gone)
{
	tei_list_add_tail(gone, &p->link);
	tei_range_remove(&d->pins, &p->range);
	d->nunregistering++;
}

/*
 * Handles the result of an attempt to unregister. A range that stays registered
 * returns to the table, which has kept room for it, and can be used again.
 * There are two exceptions. If rails pin memory, the bounce thread tries to
 * unregister the range again. If another range that is just being registered
 * overlaps it, the caller tries again, because that registration is about to
 * fail.
 */
static void pin_unregistered(struct moonrail_domain *d, struct moonrail_pin *p,
			     bool stays, struct tei_list *gone)
{
	struct tei_list again;

	tei_list_init(&again);
	moonrail_enter(d);
	if (stays && d->bounces) {
		tei_list_add_tail(&again, &p->link);
		moonrail_bounce_unregister_later(d, &again);
	} else if (stays && tei_range_insert(&d->pins, &p->range)) {
		tei_list_add_tail(gone, &p->link);
	} else {
		d->nunregistering--;
		if (!stays)
			free(p);
	}
	moonrail_leave(d);
}

void moonrail_pin_drop(struct moonrail_domain *d, struct tei_list *gone)
{
	struct moonrail_pin *p;
	struct tei_err err;
	bool stays;

	while (!tei_list_empty(gone)) {
		p = tei_list_first(gone, struct moonrail_pin, link);
		tei_list_del(&p->link);
		stays = tei_rail_mr_dereg(d->dp, pin_addr(p), PIN_WAIT_NS,
					  &err);
		if (stays)
			TEI_WARN("prov", "memory at %p stays registered: %s",
				 (void *)pin_addr(p), err.text);
		pin_unregistered(d, p, stays, gone);
	}
}

/* If too many ranges are unused, takes the least recently used one out of the
 * table and adds it to the list "gone". */
static void pin_pick(struct moonrail_domain *d, struct tei_list *gone)
	TEI_REQUIRES(moonrail_held)
{
	struct moonrail_pin *p, *oldest = NULL;
	uint32_t i, idle = 0;

	tei_range_foreach (p, i, &d->pins, struct moonrail_pin, range) {
		if (p->refs || p->registering)
			continue;
		idle++;
		if (!oldest || p->used < oldest->used)
			oldest = p;
	}
	if (idle > PIN_IDLE)
		pin_take_out(d, oldest, gone);
}

void moonrail_pin_trim(struct moonrail_domain *d)
{
	struct tei_list gone;

	tei_list_init(&gone);
	moonrail_enter(d);
	pin_pick(d, &gone);
	moonrail_leave(d);
	moonrail_pin_drop(d, &gone);
}

/* Registers a range with the data plane. If rails pin memory and this fails,
 * for example because the process itself cannot write to the memory, registers
 * the range read-only. */
static int pin_register(struct moonrail_domain *d, char *addr, uint64_t len)
{
	struct tei_rail_mr *mr;
	int ret;

	ret = tei_rail_mr_reg(d->dp, addr, len, "*", TEI_RAIL_REMOTE, NULL,
			      &mr);
	if (ret && ret != TEI_ERR_OVERLAP && d->bounces)
		ret = tei_rail_mr_reg(d->dp, addr, len, "*",
				      TEI_RAIL_REMOTE | TEI_RAIL_READ_ONLY,
				      NULL, &mr);
	return ret;
}

/* Registers a range, and releases the lock meanwhile, because pinning takes
 * time: it processes about 10 GB/s. */
static int pin_register_away(struct moonrail_domain *d, char *addr,
			     uint64_t len) TEI_REQUIRES(moonrail_held)
{
	int ret;

	moonrail_leave(d);
	ret = pin_register(d, addr, len);
	moonrail_enter(d);
	return ret;
}

static int pin_add(struct moonrail_domain *d, char *addr, uint64_t len,
		   bool leave) TEI_REQUIRES(moonrail_held)
{
	struct moonrail_pin *p;
	int ret;

	/* reserve entries also for the ranges that are being unregistered,
	 * because they may return to the table */
	if (!tei_range_reserve(&d->pins, d->nunregistering + 1))
		return -FI_ENOMEM;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -FI_ENOMEM;
	p->range.base = (uintptr_t)addr;
	p->range.end = p->range.base + len;
	p->registering = true;
	tei_list_init(&p->link);
	if (tei_range_insert(&d->pins, &p->range)) {
		free(p); /* the range is empty */
		return -FI_ENOMEM;
	}
	ret = leave ? pin_register_away(d, addr, len) :
		      pin_register(d, addr, len);
	p->registering = false;
	if (!ret)
		return 0;
	tei_range_remove(&d->pins, &p->range);
	free(p);
	/* the caller must try again if the overlapping range may be
	 * unregistered soon */
	return ret == TEI_ERR_OVERLAP && d->nunregistering ? -FI_EAGAIN
							   : -FI_ENOMEM;
}

/* Finds the pinned range that contains the address "at". If there is none,
 * registers one that starts at "at" and ends at "end" or at the next pinned
 * range. */
static int pin_at(struct moonrail_domain *d, char *at, char *end, bool leave,
		  struct moonrail_pin **out) TEI_REQUIRES(moonrail_held)
{
	struct tei_range *r =
		tei_range_overlap(&d->pins, (uintptr_t)at, (uintptr_t)end);
	struct moonrail_pin *p;
	int ret;

	if (!r || r->base > (uintptr_t)at) {
		ret = pin_add(d, at,
			      (r ? r->base : (uintptr_t)end) - (uintptr_t)at,
			      leave);
		if (ret)
			return ret;
		r = tei_range_find(&d->pins, (uintptr_t)at, 1);
	}
	p = tei_container_of(r, struct moonrail_pin, range);
	/* the caller must try again later: the range becomes usable when it is
	 * registered, or when the operations that still use a closed
	 * registration have ended */
	if (p->registering || (d->bounces && p->refs && !p->mrs))
		return -FI_EAGAIN;
	if (p->stale)
		return -FI_EBUSY;
	*out = p;
	return 0;
}

int moonrail_pin(struct moonrail_domain *d, const void *addr, uint64_t len,
		 bool mr)
{
	char *start = (char *)(uintptr_t)addr, *at = start, *end = at + len;
	struct moonrail_pin *p;
	int ret;

	d->pin_clock++;
	while (at < end) {
		ret = pin_at(d, at, end, mr, &p);
		if (ret)
			goto err_unpin;
		p->refs++;
		p->mrs += mr;
		p->used = d->pin_clock;
		at = (char *)(uintptr_t)p->range.end;
	}
	return 0;
err_unpin:
	if (at > start && mr)
		moonrail_pin_closed(d, start, (uint64_t)(at - start));
	if (at > start)
		moonrail_unpin(d, start, (uint64_t)(at - start), NULL);
	return ret;
}

void moonrail_unpin(struct moonrail_domain *d, const void *addr, uint64_t len,
		    struct tei_list *gone)
{
	uint32_t i = tei_range_index(&d->pins, (uintptr_t)addr);
	struct moonrail_pin *p;
	struct tei_list spent;

	tei_list_init(&spent);
	/* if rails pin memory, the range must not stay registered after its use
	 * (moonrail_bounce.c) */
	if (!gone && d->bounces)
		gone = &spent;
	while (tei_range_below(&d->pins, i, (uintptr_t)addr + len)) {
		p = pin_get(d, i);
		if (!--p->refs && gone)
			pin_take_out(d, p, gone);
		else
			i++;
	}
	moonrail_bounce_unregister_later(d, &spent);
}

/* Returns true if one open registration contains the whole pinned range. */
static bool pin_is_within(const struct moonrail_domain *d,
			  const struct moonrail_pin *p)
{
	const struct moonrail_mr *mr;
	uint32_t i;

	for (i = 0; i < MOONRAIL_HASH; i++)
		tei_list_foreach(mr, &d->mrs[i], struct moonrail_mr, link)
			if ((uintptr_t)mr->addr <= p->range.base &&
			    p->range.end <= (uintptr_t)mr->addr + mr->len)
				return true;
	return false;
}

void moonrail_pin_closed(struct moonrail_domain *d, const void *addr,
			 uint64_t len)
{
	uint32_t i = tei_range_index(&d->pins, (uintptr_t)addr);
	struct moonrail_pin *p;

	for (; tei_range_below(&d->pins, i, (uintptr_t)addr + len); i++) {
		p = pin_get(d, i);
		p->mrs--;
		if (d->bounces && p->mrs && !pin_is_within(d, p))
			p->stale = true;
	}
}

bool moonrail_pinned(const struct moonrail_domain *d, const void *addr,
		     uint64_t len)
{
	struct tei_range *r = tei_range_find(&d->pins, (uintptr_t)addr, len);
	const struct moonrail_pin *p;

	if (!r)
		return false;
	p = tei_container_of(r, struct moonrail_pin, range);
	return p->mrs && !p->registering && !p->stale;
}

/* Frees the table and its elements. Unregisters nothing: the data plane itself
 * closes its registrations. */
void moonrail_pin_free_all(struct moonrail_domain *d)
{
	struct moonrail_pin *p;
	uint32_t i;

	tei_range_foreach (p, i, &d->pins, struct moonrail_pin, range)
		free(p);
	tei_range_fini(&d->pins);
}
