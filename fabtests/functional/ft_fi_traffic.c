/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of all sizes, tagged ones among them, and atomics between them, over
 * two rails for a while: none is lost, comes twice, is overtaken or done twice.
 * ft_fi_traffic [SECONDS [LONGEST]], the latter in bytes; between namespaces (fi_rig.h) links may be cut
 * meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define LONGEST		400000u
#define SLOTS		8u		/* messages under way */
#define SLOT		(FI_RIG_BUF / SLOTS)
#define LAST		UINT64_C(1)	/* flag of the last message */

static unsigned int traffic_seconds = 1;
static size_t traffic_longest = LONGEST;

/* What each message begins with. */
struct traffic_head {
	uint64_t number, flags;
};

static size_t traffic_length(uint64_t i)
{
	static const size_t len[] = { 16, 200, 5000, 16264, 16265, LONGEST };

	size_t l = len[(i * 7 + i / 5) % (sizeof(len) / sizeof(len[0]))];

	return l < traffic_longest ? l : traffic_longest;
}

static void traffic_make(uint8_t *p, uint64_t i, bool last)
{
	struct traffic_head h = { .number = i, .flags = last ? LAST : 0 };
	size_t len = traffic_length(i);

	memcpy(p, &h, sizeof(h));
	fi_rig_fill(p + sizeof(h), len - sizeof(h), (uint32_t)i);
}

static bool traffic_is(const uint8_t *p, size_t len, uint64_t i, bool *last)
{
	struct traffic_head h;

	memcpy(&h, p, sizeof(h));
	*last = h.flags & LAST;
	if (h.number == i && len == traffic_length(i))
		return fi_rig_same(p + sizeof(h), len - sizeof(h), (uint32_t)i);
	ft_diag("message %llu of %zu bytes in place of %llu",
		(unsigned long long)h.number, len, (unsigned long long)i);
	return false;
}

static bool traffic_done(struct fi_rig *r, struct fid_cq *cq,
			 struct fi_rig_done *d)
{
	if (fi_rig_next(r, cq, d) && !d->err)
		return true;
	ft_diag("%s", d->err ? fi_strerror(d->err) : "nothing came in time");
	return false;
}

/* One more to a number of the server's; it was what it had to be. */
static bool traffic_add(struct fi_rig *r, uint64_t *count)
{
	uint64_t one = 1, old = UINT64_MAX;
	struct fi_rig_done d;

	while (fi_rig_again(r, fi_fetch_atomic(r->ep, &one, 1, NULL, &old,
					       NULL, r->peer, r->remote, r->key,
					       FI_UINT64, FI_SUM, NULL)))
		;
	if (!traffic_done(r, r->tx, &d))
		return false;
	if (old == (*count)++)
		return true;
	ft_diag("%llu was there, not %llu", (unsigned long long)old,
		(unsigned long long)*count - 1);
	return false;
}

static bool traffic_flush(struct fi_rig *r, uint32_t *under_way)
{
	struct fi_rig_done d;
	bool good = true;

	for (; *under_way && good; (*under_way)--)
		good = traffic_done(r, r->tx, &d);
	return good;
}

static void traffic_client(struct fi_rig *r)
{
	uint64_t end = ft_now_ns() + traffic_seconds * UINT64_C(1000000000);
	uint64_t i = 0, count = 0;
	bool good = true, last = false;
	uint32_t under_way = 0;
	uint8_t *at;

	for (; good && !last; i++) {
		last = ft_now_ns() >= end;
		at = r->buf + i % SLOTS * SLOT;
		traffic_make(at, i, last);
		while (fi_rig_again(r, i % 2 ?
				fi_send(r->ep, at, traffic_length(i), NULL,
					r->peer, NULL) :
				fi_tsend(r->ep, at, traffic_length(i), NULL,
					 r->peer, 5, NULL)))
			;
		if (++under_way < SLOTS && !last)
			continue;
		good = traffic_flush(r, &under_way) && traffic_add(r, &count);
	}
	fi_rig_ok(r, good, "messages and atomics are sent");
	ft_diag("%llu messages, %llu atomics", (unsigned long long)i,
		(unsigned long long)count);
	fi_rig_meet(r);
	fi_rig_ok(r, traffic_add(r, &count), "no atomic was done twice");
}

static void traffic_server(struct fi_rig *r)
{
	bool good = true, last = false;
	struct fi_rig_done d;
	uint64_t i;

	for (i = 0; good && !last; i++) {
		while (fi_rig_again(r, i % 2 ?
				fi_recv(r->ep, r->buf, SLOT, NULL,
					FI_ADDR_UNSPEC, NULL) :
				fi_trecv(r->ep, r->buf, SLOT, NULL,
					 FI_ADDR_UNSPEC, 5, 0, NULL)))
			;
		good = traffic_done(r, r->rx, &d) &&
		       traffic_is(r->buf, d.e.len, i, &last);
	}
	fi_rig_ok(r, good, "messages come once, in order and whole");
	fi_rig_meet(r);
}

static void traffic(struct fi_rig *r)
{
	alarm(110 + traffic_seconds);
	if (r->server)
		traffic_server(r);
	else
		traffic_client(r);
}

int main(int argc, char **argv)
{
	bool missing, good;

	if (!fi_rig_path())
		return ft_skip("built without the provider");
	if (argc > 1)
		traffic_seconds = (unsigned int)atoi(argv[1]);
	if (argc > 2)
		traffic_longest = strtoul(argv[2], NULL, 10);
	if (!fi_rig_apart())
		setenv("FI_MOONRAIL_ADDR", "127.0.0.1,127.0.0.2", 0);
	good = fi_rig_run("moonrail", 0, traffic, &missing);
	ft_ok(good && !missing, "moonrail");
	return ft_result();
}
