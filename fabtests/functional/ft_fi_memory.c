/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that a program has not registered, has registered, or has mapped anew,
 * over rails that want it registered: MOONRAIL_MR_LOCAL makes those of any
 * machine do so, and RDMA devices do by themselves.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define FLIGHT	400u			/* at once */
#define PLACE	((size_t)8192)		/* of each, on both sides */
#define LONG	((size_t)3 << 20)	/* more than any block that is kept */
#define PAGES	((size_t)256 << 10)	/* that are mapped anew */
#define ROUNDS	12u
#define HUGE_LEN ((size_t)100 << 20)	/* more than what is kept for later */

static size_t memory_length(uint32_t i)
{
	return 1 + i * 997 % PLACE;
}

static bool memory_ended(struct fi_rig *r)
{
	struct fi_rig_done d;

	return fi_rig_next(r, r->tx, &d) && !d.err;
}

static bool memory_rma(struct fi_rig *r, bool write, void *buf, size_t len,
		       size_t at)
{
	ssize_t ret;

	do
		ret = write ? fi_write(r->ep, buf, len, NULL, r->peer,
				       r->remote + at, r->key, NULL) :
			      fi_read(r->ep, buf, len, NULL, r->peer,
				      r->remote + at, r->key, NULL);
	while (fi_rig_again(r, ret));
	return !ret;
}

static bool memory_send(struct fi_rig *r, const void *buf, size_t len)
{
	while (fi_rig_again(r, fi_send(r->ep, buf, len, NULL, r->peer, NULL)))
		;
	return memory_ended(r);
}

/* Whether a message of that pattern comes into buf. */
static bool memory_gets(struct fi_rig *r, void *buf, size_t len, uint32_t seed)
{
	struct fi_rig_done d;

	while (fi_rig_again(r, fi_recv(r->ep, buf, len, NULL, FI_ADDR_UNSPEC,
				       NULL)))
		;
	return fi_rig_next(r, r->rx, &d) && !d.err && d.e.len == len &&
	       fi_rig_same(buf, len, seed);
}

static bool memory_all(struct fi_rig *r, bool write)
{
	bool good = true;
	uint32_t i;

	for (i = 0; i < FLIGHT; i++) {
		if (write)
			fi_rig_fill(r->buf + i * PLACE, memory_length(i), i);
		good = good && memory_rma(r, write, r->buf + i * PLACE,
					  memory_length(i), i * PLACE);
	}
	for (i = 0; i < FLIGHT && good; i++)
		good = memory_ended(r);
	return good;
}

/* More than there are blocks, of several sizes. */
static void memory_flight(struct fi_rig *r)
{
	bool good = true;
	uint32_t i;

	if (!r->server) {
		good = memory_all(r, true);
		memset(r->buf, 0, FLIGHT * PLACE);
		good = good && memory_all(r, false);
		for (i = 0; i < FLIGHT && good; i++)
			good = fi_rig_same(r->buf + i * PLACE,
					   memory_length(i), i);
		fi_rig_fill(r->buf, LONG, 5);
		good = good && memory_rma(r, true, r->buf, LONG, 0) &&
		       memory_ended(r);
		memset(r->buf, 0, LONG);
		good = good && memory_rma(r, false, r->buf, LONG, 0) &&
		       memory_ended(r) && fi_rig_same(r->buf, LONG, 5);
	}
	fi_rig_ok(r, good, "many writes and reads of unregistered memory");
	fi_rig_meet(r);
}

static uint8_t *memory_map(void *at, size_t len)
{
	void *p = mmap(at, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1,
		       0);

	return p == MAP_FAILED ? NULL : p;
}

/* One message from those pages, or into them, and a write to the other's. */
static bool memory_round(struct fi_rig *r, uint8_t *p, uint32_t i, bool rma)
{
	if (r->server && !memory_gets(r, p, PAGES, i))
		return false;
	if (!r->server) {
		fi_rig_fill(p, PAGES, i);
		if (!memory_send(r, p, PAGES))
			return false;
		if (rma && (!memory_rma(r, true, p, PAGES, 0) ||
			    !memory_ended(r)))
			return false;
	}
	fi_rig_meet(r);
	return !r->server || !rma || fi_rig_same(r->mem, PAGES, i);
}

/* Other pages are at the same address each time. */
static void memory_remapped(struct fi_rig *r)
{
	bool same = !strcmp(r->provider, "moonrail"), good;
	uint8_t *p = memory_map(NULL, PAGES);
	uint32_t i;

	good = p;
	for (i = 0; i < ROUNDS && good; i++) {
		/* not every provider's write completes when it is there */
		good = memory_round(r, p, i, same);
		fi_rig_meet(r);
		good = good && memory_map(p, PAGES);
	}
	fi_rig_ok(r, good, "pages that are mapped anew at an address");
	if (p)
		munmap(p, PAGES);
}

/* The same of memory that is registered in between, as a whole or a half. */
static void memory_registered(struct fi_rig *r)
{
	uint8_t *p = memory_map(NULL, PAGES);
	struct fid_mr *mr;
	bool good = p;
	uint32_t i;

	for (i = 0; i < ROUNDS && good; i++) {
		if (fi_mr_reg(r->domain, p, i % 2 ? PAGES : PAGES / 2,
			      FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0,
			      7000 + i, 0, &mr, NULL)) {
			good = false;
			break;
		}
		good = memory_round(r, p, i, false);
		good = !fi_close(&mr->fid) && good;
		good = good && memory_map(p, PAGES);
		good = good && memory_round(r, p, i + 100, false);
		good = good && memory_map(p, PAGES);
	}
	fi_rig_ok(r, good, "memory that is registered for a while");
	if (p)
		munmap(p, PAGES);
}

static int memory_reg(struct fi_rig *r, uint8_t *p, uint64_t key,
		      struct fid_mr **mr)
{
	return fi_mr_reg(r->domain, p, PAGES / 2, FI_SEND | FI_RECV, 0, key, 0,
			 mr, NULL);
}

/* One of two that overlap is closed, and what it alone had mapped anew. */
static void memory_overlap(struct fi_rig *r)
{
	bool ours = !strcmp(r->provider, "moonrail");
	uint8_t *p = memory_map(NULL, PAGES);
	struct fid_mr *a, *b, *c;
	bool good;

	good = p && !memory_reg(r, p, 8001, &a) &&
	       !memory_reg(r, p + PAGES / 4, 8002, &b) && !fi_close(&a->fid) &&
	       memory_map(p, PAGES / 4) && memory_round(r, p, 40, false) &&
	       memory_round(r, p, 41, false);
	fi_rig_ok(r, good, "memory of two registrations, one of them closed");
	if (good && ours && getenv("MOONRAIL_MR_LOCAL")[0] == '1')
		fi_rig_ok(r, memory_reg(r, p, 8003, &c) == -FI_EBUSY,
			  "which is registered again when both are");
	good = good && !fi_close(&b->fid) && !memory_reg(r, p, 8003, &c) &&
	       memory_round(r, p, 42, false) && !fi_close(&c->fid);
	fi_rig_ok(r, good, "after that it is");
	if (p)
		munmap(p, PAGES);
}

static void memory_huge(struct fi_rig *r)
{
	uint8_t *p = memory_map(NULL, HUGE_LEN);
	bool good = p;
	uint32_t i;

	for (i = 0; i < 2 && good; i++) {
		if (r->server) {
			good = memory_gets(r, p, HUGE_LEN, i);
		} else {
			fi_rig_fill(p, HUGE_LEN, i);
			good = memory_send(r, p, HUGE_LEN);
		}
	}
	fi_rig_ok(r, good, "messages larger than what is kept");
	if (p)
		munmap(p, HUGE_LEN);
}

static void memory_parts(struct fi_rig *r)
{
	static const fi_rig_fn part[] = {
		memory_flight, memory_remapped, memory_registered,
		memory_overlap,
	};
	size_t i;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
		fi_rig_meet(r);
		part[i](r);
	}
	/* emulated devices move some 10 MB in a second */
	if (!fi_rig_emulated())
		memory_huge(r);
}

static bool memory_run(const char *provider, bool *missing)
{
	return fi_rig_run(provider, 0, memory_parts, missing);
}

/* With an argument: that provider alone. */
int main(int argc, char **argv)
{
	(void)argc;
	if (!fi_rig_path())
		return ft_skip("built without the provider");
	setenv("MOONRAIL_MR_LOCAL", "1", 0);
	return fi_rig_main(argv[1], memory_run, "memory");
}
