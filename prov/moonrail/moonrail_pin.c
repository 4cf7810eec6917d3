/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that peers may touch, as the data plane knows it: regions that never
 * overlap. A range that does gets the gaps registered, and a part in each
 * region that it touches. What nobody has a part in any more is kept for a
 * while where it is likely to be wanted again, as with a buffer that is sent
 * from over and over.
 */
#include <stdlib.h>
#include <string.h>

#include "prov/moonrail/moonrail_int.h"

#define PIN_IDLE	512	/* regions kept */
#define PIN_WAIT_NS	(5 * TEI_NS_PER_SEC)

/* Index of the first one that ends above addr. */
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

/* There is room for one more. */
static void pin_insert(struct moonrail_domain *d, uint32_t i,
		       struct moonrail_pin *p)
{
	memmove(&d->pins[i + 1], &d->pins[i],
		(d->npins - i) * sizeof(*d->pins));
	d->pins[i] = p;
	d->npins++;
}

static void pin_take_out(struct moonrail_domain *d, uint32_t i,
			 struct tei_list *gone)
{
	tei_list_add_tail(gone, &d->pins[i]->link);
	memmove(&d->pins[i], &d->pins[i + 1],
		(d->npins - i - 1) * sizeof(*d->pins));
	d->npins--;
	d->ngoing++;
}

/* Its room in the table was kept. */
static void pin_gone(struct moonrail_domain *d, struct moonrail_pin *p,
		     bool stays)
{
	moonrail_enter(d);
	d->ngoing--;
	if (stays)
		pin_insert(d, pin_index(d, p->addr), p);
	moonrail_leave(d);
	if (!stays)
		free(p);
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
			TEI_WARN("prov", "%p stays registered: %s",
				 (void *)p->addr, err.text);
		pin_gone(d, p, stays);
	}
}

/* The one that was used longest ago goes, where too many are idle. */
static void pin_pick(struct moonrail_domain *d, struct tei_list *gone)
	TEI_REQUIRES(moonrail_held)
{
	uint32_t i, idle = 0, oldest = 0;
	uint64_t used = UINT64_MAX;

	for (i = 0; i < d->npins; i++) {
		if (d->pins[i]->refs)
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

static int pin_add(struct moonrail_domain *d, uint32_t i, char *addr,
		   uint64_t len)
{
	struct moonrail_pin **grown, *p;
	struct tei_rail_mr *mr;
	int ret;

	/* those that go may come back */
	if (d->npins + d->ngoing >= d->pins_cap) {
		grown = realloc(d->pins, (d->pins_cap * 2 + 16) *
						 sizeof(*grown));
		if (!grown)
			return -FI_ENOMEM;
		d->pins = grown;
		d->pins_cap = d->pins_cap * 2 + 16;
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -FI_ENOMEM;
	ret = tei_rail_mr_reg(d->dp, addr, len, "*", TEI_RAIL_REMOTE, NULL,
			      &mr);
	if (ret) {
		free(p);
		/* that may be about to go */
		return ret == TEI_ERR_OVERLAP && d->ngoing ? -FI_EAGAIN :
							     -FI_ENOMEM;
	}
	p->addr = addr;
	p->len = len;
	tei_list_init(&p->link);
	pin_insert(d, i, p);
	return 0;
}

int moonrail_pin(struct moonrail_domain *d, const void *addr, uint64_t len)
{
	char *at = (char *)(uintptr_t)addr, *end = at + len, *to;
	uint32_t i = pin_index(d, at);
	int ret;

	d->pin_clock++;
	for (; at < end; i++) {
		if (i == d->npins || d->pins[i]->addr > at) {
			to = i == d->npins || d->pins[i]->addr > end ?
				     end : d->pins[i]->addr;
			ret = pin_add(d, i, at, (uint64_t)(to - at));
			if (ret) {
				if (at > (char *)(uintptr_t)addr)
					moonrail_unpin(d, addr,
						       (uint64_t)(at -
							(char *)(uintptr_t)addr),
						       NULL);
				return ret;
			}
		}
		d->pins[i]->refs++;
		d->pins[i]->used = d->pin_clock;
		at = d->pins[i]->addr + d->pins[i]->len;
	}
	return 0;
}

void moonrail_unpin(struct moonrail_domain *d, const void *addr, uint64_t len,
		    struct tei_list *gone)
{
	const char *at = addr, *end = at + len;
	uint32_t i = pin_index(d, at);
	struct tei_list spent;

	tei_list_init(&spent);
	/* what is pinned must not outlive its use: see moonrail_bounce.c */
	if (!gone && d->bounces)
		gone = &spent;
	while (i < d->npins && d->pins[i]->addr < end) {
		if (!--d->pins[i]->refs && gone)
			pin_take_out(d, i, gone);
		else
			i++;
	}
	moonrail_bounce_spent(d, &spent);
}

bool moonrail_pinned(const struct moonrail_domain *d, const void *addr,
		     uint64_t len)
{
	const char *at = addr;
	uint32_t i = pin_index(d, at);

	return i < d->npins && d->pins[i]->addr <= at &&
	       len <= d->pins[i]->len - (uint64_t)(at - d->pins[i]->addr);
}

/* The data plane closes its own. */
void moonrail_pin_free_all(struct moonrail_domain *d)
{
	uint32_t i;

	for (i = 0; i < d->npins; i++)
		free(d->pins[i]);
	free(d->pins);
	d->pins = NULL;
	d->npins = 0;
}
