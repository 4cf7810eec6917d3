/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pinned ranges: the memory that peers may access, as registrations of the data
 * plane, which never overlap. If a new range overlaps pinned ranges, the gaps
 * are registered, and the new range takes a reference to each pinned range that
 * it touches. A pinned range without references stays registered for a while,
 * because it may be used again, such as a buffer that is sent from repeatedly.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_bounce.h"
#include "prov/moonrail/moonrail_domain.h"
#include "prov/moonrail/moonrail_int.h"
#include "prov/moonrail/moonrail_mr.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/list.h"
#include "util/log.h"

#define PIN_IDLE	512	/* limit of unused pinned ranges */
#define PIN_WAIT_NS	(5 * TEI_NS_PER_SEC)

/* Returns the index of the first pinned range that ends above addr. */
static uint32_t pin_index(const struct moonrail_domain *d, const char *addr)
{
	uint32_t lo = 0, hi = d->npins, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (d->pins[mid]->addr + d->pins[mid]->len <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Inserts a pinned range. The table has room for it (pin_make_room). */
static void pin_insert(struct moonrail_domain *d, uint32_t i,
		       struct moonrail_pin *p)
{
	memmove(&d->pins[i + 1], &d->pins[i],
		(d->npins - i) * sizeof(*d->pins));
	d->pins[i] = p;
	d->npins++;
}

static void pin_remove(struct moonrail_domain *d, uint32_t i)
{
	memmove(&d->pins[i], &d->pins[i + 1],
		(d->npins - i - 1) * sizeof(*d->pins));
	d->npins--;
}

static void pin_take_out(struct moonrail_domain *d, uint32_t i,
			 struct tei_list *gone)
{
	tei_list_add_tail(gone, &d->pins[i]->link);
	pin_remove(d, i);
	d->nunregistering++;
}

/*
 * Handles the result of an attempt to unregister. A range that stays registered
 * returns to the table, which has kept room for it, and can be used again. But
 * if rails pin memory, the bounce thread tries to unregister the range once
 * more.
 */
static void pin_unregistered(struct moonrail_domain *d, struct moonrail_pin *p,
			     bool stays)
{
	struct tei_list again;

	tei_list_init(&again);
	moonrail_enter(d);
	if (stays && d->bounces) {
		tei_list_add_tail(&again, &p->link);
		moonrail_bounce_unregister_later(d, &again);
	} else {
		d->nunregistering--;
		if (stays)
			pin_insert(d, pin_index(d, p->addr), p);
		else
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
		stays = tei_rail_mr_dereg(d->dp, p->addr, PIN_WAIT_NS, &err);
		if (stays)
			TEI_WARN("prov", "memory at %p stays registered: %s",
				 (void *)p->addr, err.text);
		pin_unregistered(d, p, stays);
	}
}

/* Takes the least recently used range out of the table if too many are
 * unused. */
static void pin_pick(struct moonrail_domain *d, struct tei_list *gone)
	TEI_REQUIRES(moonrail_held)
{
	uint32_t i, idle = 0, oldest = 0;
	uint64_t used = UINT64_MAX;

	for (i = 0; i < d->npins; i++) {
		if (d->pins[i]->refs || d->pins[i]->registering)
			continue;
		idle++;
		if (d->pins[i]->used < used) {
			used = d->pins[i]->used;
			oldest = i;
		}
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

/* Makes room for one more range. Ranges that are being unregistered count too,
 * because they may return to the table. */
static int pin_make_room(struct moonrail_domain *d)
{
	struct moonrail_pin **grown;

	if (d->npins + d->nunregistering < d->pins_cap)
		return 0;
	grown = realloc(d->pins, (d->pins_cap * 2 + 16) * sizeof(*grown));
	if (!grown)
		return -FI_ENOMEM;
	d->pins = grown;
	d->pins_cap = d->pins_cap * 2 + 16;
	return 0;
}

/* Registers a range. If memory cannot be written by the process, it is
 * registered read-only for rails that pin memory. */
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

/* Registers a range with the lock released, because pinning takes time: about
 * 10 GB/s. */
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

	if (pin_make_room(d))
		return -FI_ENOMEM;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -FI_ENOMEM;
	p->addr = addr;
	p->len = len;
	p->registering = true;
	tei_list_init(&p->link);
	pin_insert(d, pin_index(d, addr), p);
	ret = leave ? pin_register_away(d, addr, len) :
		      pin_register(d, addr, len);
	p->registering = false;
	if (!ret)
		return 0;
	pin_remove(d, pin_index(d, addr));
	free(p);
	/* the overlapping range may be about to be unregistered */
	return ret == TEI_ERR_OVERLAP && d->nunregistering ? -FI_EAGAIN
							   : -FI_ENOMEM;
}

/* Finds the pinned range that contains at. If there is none, registers one from
 * at to end or to the next pinned range. */
static int pin_at(struct moonrail_domain *d, char *at, char *end, bool leave,
		  struct moonrail_pin **out) TEI_REQUIRES(moonrail_held)
{
	uint32_t i = pin_index(d, at);
	struct moonrail_pin *p;
	int ret;

	if (i == d->npins || d->pins[i]->addr > at) {
		if (i < d->npins && d->pins[i]->addr < end)
			end = d->pins[i]->addr;
		ret = pin_add(d, at, (uint64_t)(end - at), leave);
		if (ret)
			return ret;
		i = pin_index(d, at);
	}
	p = d->pins[i];
	/* the range will become usable, because operations that still use a
	 * closed registration will end */
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
		at = p->addr + p->len;
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
	const char *at = addr, *end = at + len;
	uint32_t i = pin_index(d, at);
	struct tei_list spent;

	tei_list_init(&spent);
	/* if rails pin memory, the range must not stay registered after its use
	 * (moonrail_bounce.c) */
	if (!gone && d->bounces)
		gone = &spent;
	while (i < d->npins && d->pins[i]->addr < end) {
		if (!--d->pins[i]->refs && gone)
			pin_take_out(d, i, gone);
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
			if (mr->addr <= p->addr &&
			    p->addr + p->len <= mr->addr + mr->len)
				return true;
	return false;
}

void moonrail_pin_closed(struct moonrail_domain *d, const void *addr,
			 uint64_t len)
{
	const char *at = addr, *end = at + len;
	struct moonrail_pin *p;
	uint32_t i;

	for (i = pin_index(d, at); i < d->npins && d->pins[i]->addr < end;
	     i++) {
		p = d->pins[i];
		p->mrs--;
		if (d->bounces && p->mrs && !pin_is_within(d, p))
			p->stale = true;
	}
}

bool moonrail_pinned(const struct moonrail_domain *d, const void *addr,
		     uint64_t len)
{
	const char *at = addr;
	uint32_t i = pin_index(d, at);

	return i < d->npins && d->pins[i]->addr <= at && d->pins[i]->mrs &&
	       !d->pins[i]->registering && !d->pins[i]->stale &&
	       len <= d->pins[i]->len - (uint64_t)(at - d->pins[i]->addr);
}

/* Frees the table only: the data plane closes its registrations itself. */
void moonrail_pin_free_all(struct moonrail_domain *d)
{
	uint32_t i;

	for (i = 0; i < d->npins; i++)
		free(d->pins[i]);
	free(d->pins);
	d->pins = NULL;
	d->npins = 0;
}
