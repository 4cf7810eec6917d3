/* SPDX-License-Identifier: BSD-2-Clause */
/* Local memory that is unregistered, registered or mapped again, over rails
 * that require registered local memory. RDMA devices require that;
 * MOONRAIL_MR_LOCAL makes any rail require it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabtests/common/ft_options.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

/* number of operations posted at one time */
#define FLIGHT	400u
/* size of the range for each operation, on both sides */
#define PLACE	((size_t)8192)
#define LONG	((size_t)3 << 20)	/* longer than any bounce buffer */
/* size of the memory that is mapped again */
#define PAGES	((size_t)256 << 10)
#define ROUNDS	12u
/* size of a message larger than the memory that the provider keeps
 * registered */
#define HUGE_LEN ((size_t)100 << 20)

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

/* Receives a message into buf. Returns true if it has len bytes with the
 * pattern of `seed`. */
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

/* Posts more writes and reads than there are bounce buffers, each with another
 * length. Then writes and reads one long range. */
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
	fi_rig_ok(r, good, "many_operations_with_unregistered_memory_complete");
	fi_rig_meet(r);
}

static uint8_t *memory_map(void *at, size_t len)
{
	void *p = mmap(at, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1,
		       0);

	return p == MAP_FAILED ? NULL : p;
}

/* Sends the message in the memory p from the client to the server, which
 * receives into its own memory p. If `rma` is true, the client also writes it
 * to the server's r->mem. Returns true if the bytes are right. */
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

/* Checks messages whose memory is replaced by new pages at the same address in
 * each round. */
static void memory_remapped(struct fi_rig *r)
{
	bool is_moonrail = !strcmp(r->provider, "moonrail"), good;
	uint8_t *p = memory_map(NULL, PAGES);
	uint32_t i;

	good = p;
	for (i = 0; i < ROUNDS && good; i++) {
		/* Writes are checked with moonrail only: other providers
		 * complete a write before its bytes are in place. */
		good = memory_round(r, p, i, is_moonrail);
		fi_rig_meet(r);
		good = good && memory_map(p, PAGES);
	}
	fi_rig_ok(r, good, "pages_mapped_again_at_an_address_move");
	if (p)
		munmap(p, PAGES);
}

/* Checks messages whose memory is registered entirely or in its first half.
 * Checks them again after the registration was closed and new pages were mapped
 * at the address. */
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
	fi_rig_ok(r, good, "memory_registered_for_a_while_moves");
	if (p)
		munmap(p, PAGES);
}

static int memory_reg(struct fi_rig *r, uint8_t *p, uint64_t key,
		      struct fid_mr **mr)
{
	return fi_mr_reg(r->domain, p, PAGES / 2, FI_SEND | FI_RECV, 0, key, 0,
			 mr, NULL);
}

/* Checks messages in the memory of two overlapping registrations, after one was
 * closed and the part that only it covered was mapped again. */
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
	fi_rig_ok(r, good,
		  "memory_of_two_registrations_moves_after_one_closes");
	if (good && ours && getenv("MOONRAIL_MR_LOCAL")[0] == '1')
		fi_rig_ok(r, memory_reg(r, p, 8003, &c) == -FI_EBUSY,
			  "memory_of_open_overlapping_registration_is_refused");
	good = good && !fi_close(&b->fid) && !memory_reg(r, p, 8003, &c) &&
	       memory_round(r, p, 42, false) && !fi_close(&c->fid);
	fi_rig_ok(r, good, "memory_is_registered_again_after_both_close");
	if (p)
		munmap(p, PAGES);
}

/* Moves messages of HUGE_LEN bytes. Both sides write to all pages before they
 * meet, because the kernel and a sanitizer need long for so many new pages, and
 * the time limit of fi_rig_next is meant for the message. */
static void memory_huge(struct fi_rig *r)
{
	uint8_t *p = memory_map(NULL, HUGE_LEN);
	bool good = p;
	uint32_t i;

	for (i = 0; i < 2 && good; i++) {
		fi_rig_fill(p, HUGE_LEN, r->server ? i + 2 : i);
		fi_rig_meet(r);
		good = r->server ? memory_gets(r, p, HUGE_LEN, i) :
				   memory_send(r, p, HUGE_LEN);
	}
	fi_rig_ok(r, good, "messages_larger_than_the_kept_memory_arrive");
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
	/* Emulated devices move only some 10 MB per second, too little for this
	 * case. */
	if (!fi_rig_emulated())
		memory_huge(r);
}

static bool memory_run(const char *provider, bool *missing)
{
	return fi_rig_run(provider, 0, memory_parts, missing);
}

/* With an argument, the test uses only the provider of that name. */
int main(int argc, char **argv)
{
	const char *only = ft_options_word(argc, argv, "PROVIDER",
					   "the only provider to test");

	if (!fi_rig_path_for_test())
		return ft_skip("built without the provider");
	setenv("MOONRAIL_MR_LOCAL", "1", 0);
	return fi_rig_main(only, memory_run, "memory");
}
