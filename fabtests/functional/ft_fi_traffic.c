/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sends tagged and untagged messages of all sizes and atomics in both
 * directions over two rails for a while. No message may be lost, repeated or
 * overtaken, and no atomic may be executed twice.
 *
 *	ft_fi_traffic [SECONDS [LONGEST]]
 *			LONGEST is the maximum length of a message
 *	ft_fi_traffic data
 *			writes with data: when the target gets the data, the
 *			bytes of the write must be in place
 *	ft_fi_traffic killed
 *			kills the other process; operations to it must fail
 *			with FI_ETIMEDOUT
 *	ft_fi_traffic orders [SECONDS]
 *			requests message orders in the hints and posts pairs of
 *			operations; the second one must not overtake the first
 *
 * Between network namespaces (fi_rig.h), links may be cut during the test.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_test.h"
#include "fabtests/functional/fi_rig.h"

#define LONGEST		400000u
/* number of messages posted at one time */
#define SLOTS		8u
#define SLOT		(FI_RIG_BUF / SLOTS)
/* number of atomics posted at one time */
#define ATOMICS		4u
#define LAST		UINT64_C(1)	/* flag that marks the last message */
/* offset in mem at which messages are received */
#define IN		(1u << 20)
#define DATA		40u		/* number of writes with data */
#define DATA_LEN	(1u << 20)

static unsigned int traffic_seconds = 1;
static size_t traffic_longest = LONGEST;

/* The first bytes of each message. */
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
	ft_diag("message %llu with %zu bytes arrived, expected message %llu",
		(unsigned long long)h.number, len, (unsigned long long)i);
	return false;
}

static bool traffic_done(struct fi_rig *r, struct fid_cq *cq)
{
	struct fi_rig_done d;

	return fi_rig_next(r, cq, &d) && !d.err;
}

/* The state of the test in one of the two processes. */
struct traffic {
	struct fi_rig *r;
	uint64_t end;			/* time at which sending ends, ns,
					 * CLOCK_MONOTONIC */
	uint64_t sent, got, adds, added;
	bool last_sent, last_got, posted, bad;
	struct fi_context slot[SLOTS], in, atomic[ATOMICS];
	bool busy[SLOTS], adding[ATOMICS];
	uint64_t old[ATOMICS], olds;	/* olds: sum of all values that the
					 * atomics fetched */
};

/* Handles the result of a call. Returns true if the call succeeded. On
 * -FI_EAGAIN, returns false, and the caller repeats the call later. On any
 * other error, sets t->bad and returns false. */
static bool traffic_taken(struct traffic *t, ssize_t ret)
{
	if (ret && ret != -FI_EAGAIN) {
		ft_diag("posting failed: %s", fi_strerror((int)-ret));
		t->bad = true;
	}
	return !ret;
}

static void traffic_send(struct traffic *t)
{
	uint32_t k = (uint32_t)(t->sent % SLOTS);
	uint8_t *at = t->r->buf + k * SLOT;
	size_t len = traffic_length(t->sent);
	bool last = ft_now_ns() >= t->end;
	ssize_t ret;

	if (t->busy[k] || t->last_sent)
		return;
	traffic_make(at, t->sent, last);
	ret = t->sent % 2 ? fi_send(t->r->ep, at, len, NULL, t->r->peer,
				    &t->slot[k]) :
			    fi_tsend(t->r->ep, at, len, NULL, t->r->peer, 5,
				     &t->slot[k]);
	if (!traffic_taken(t, ret))
		return;
	t->busy[k] = true;
	t->last_sent = last;
	t->sent++;
}

static void traffic_post(struct traffic *t)
{
	uint8_t *at = t->r->mem + IN;
	ssize_t ret;

	if (t->posted || t->last_got)
		return;
	ret = t->got % 2 ? fi_recv(t->r->ep, at, SLOT, NULL, FI_ADDR_UNSPEC,
				   &t->in) :
			   fi_trecv(t->r->ep, at, SLOT, NULL, FI_ADDR_UNSPEC, 5,
				    0, &t->in);
	t->posted = traffic_taken(t, ret);
}

/* Posts atomics that add 1 to a number of the peer, up to ATOMICS at one
 * time. */
static void traffic_add(struct traffic *t)
{
	static const uint64_t one = 1;
	uint32_t i;

	for (i = 0; i < ATOMICS && !t->last_sent; i++)
		if (!t->adding[i] && traffic_taken(t, fi_fetch_atomic(t->r->ep,
				&one, 1, NULL, &t->old[i], NULL, t->r->peer,
				t->r->remote, t->r->key, FI_UINT64, FI_SUM,
				&t->atomic[i]))) {
			t->adding[i] = true;
			t->adds++;
		}
}

static void traffic_ended(struct traffic *t, const void *context)
{
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		if (context == &t->slot[i])
			t->busy[i] = false;
	for (i = 0; i < ATOMICS; i++) {
		if (context != &t->atomic[i])
			continue;
		t->adding[i] = false;
		t->added++;
		t->olds += t->old[i];
	}
}

static bool traffic_read(struct traffic *t, struct fid_cq *cq,
			 struct fi_cq_tagged_entry *e)
{
	struct fi_cq_err_entry err = { .err = 0 };
	ssize_t n = fi_cq_read(cq, e, 1);

	if (n == -FI_EAVAIL) {
		fi_cq_readerr(cq, &err, 0);
		ft_diag("%s", fi_strerror(err.err));
		t->bad = true;
	}
	return n == 1;
}

static void traffic_look(struct traffic *t)
{
	struct fi_cq_tagged_entry e;

	if (traffic_read(t, t->r->tx, &e))
		traffic_ended(t, e.op_context);
	if (!traffic_read(t, t->r->rx, &e))
		return;
	t->posted = false;
	if (!traffic_is(t->r->mem + IN, e.len, t->got++, &t->last_got))
		t->bad = true;
}

static bool traffic_over(const struct traffic *t)
{
	bool busy = !t->last_sent || !t->last_got || t->added != t->adds;
	uint32_t i;

	for (i = 0; i < SLOTS; i++)
		busy |= t->busy[i];
	return !busy;
}

static void traffic(struct fi_rig *r)
{
	struct traffic t = { .r = r };
	uint64_t limit;

	alarm(110 + traffic_seconds);
	t.end = ft_now_ns() + traffic_seconds * UINT64_C(1000000000);
	limit = t.end + FI_RIG_WAIT_MS * UINT64_C(1000000);
	while (!traffic_over(&t) && !t.bad && ft_now_ns() < limit) {
		traffic_send(&t);
		traffic_add(&t);
		traffic_post(&t);
		traffic_look(&t);
	}
	fi_rig_ok(r, traffic_over(&t) && !t.bad,
		  "messages_arrive_once_in_order_and_intact");
	ft_diag("%llu messages sent, %llu received, %llu atomics",
		(unsigned long long)t.sent, (unsigned long long)t.got,
		(unsigned long long)t.added);
	fi_rig_ok(r, t.olds == t.added * (t.added - 1) / 2,
		  "atomics_fetch_the_result_of_their_predecessor");
	memcpy(r->buf, &t.added, sizeof(t.added));
	fi_rig_meet(r);
	while (fi_rig_again(r, fi_send(r->ep, r->buf, sizeof(t.added), NULL,
				       r->peer, NULL)))
		;
	while (fi_rig_again(r, fi_recv(r->ep, r->mem + IN, SLOT, NULL,
				       FI_ADDR_UNSPEC, NULL)))
		;
	fi_rig_ok(r, traffic_done(r, r->tx) && traffic_done(r, r->rx) &&
			     !memcmp(r->mem, r->mem + IN, sizeof(t.added)),
		  "atomics_are_executed_exactly_once");
}

/* --- writes with data ---------------------------------------------------- */

static void traffic_data_client(struct fi_rig *r)
{
	bool good = true;
	uint32_t i;

	for (i = 0; i < DATA && good; i++) {
		fi_rig_fill(r->buf, DATA_LEN, i);
		while (fi_rig_again(r, fi_writedata(r->ep, r->buf, DATA_LEN,
						    NULL, i, r->peer, r->remote,
						    r->key, NULL)))
			;
		good = traffic_done(r, r->tx);
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "writes_with_data_complete");
}

static void traffic_data(struct fi_rig *r)
{
	struct fi_rig_done d;
	bool good = true;
	uint32_t i;

	if (!r->server) {
		traffic_data_client(r);
		return;
	}
	for (i = 0; i < DATA && good; i++) {
		good = fi_rig_next(r, r->rx, &d) && !d.err && d.e.data == i &&
		       fi_rig_same(r->mem, DATA_LEN, i);
		fi_rig_meet(r);
	}
	fi_rig_ok(r, good, "write_bytes_are_in_place_when_the_data_arrives");
}

/* --- message orders ------------------------------------------------------- */

/*
 * Each round posts a pair of operations without waiting in between, with a byte
 * pattern of its own. The target's memory contains a number, which the server
 * increments for the pair of reads, then the receive buffer, then the range
 * that is written and read.
 */
#define ORDER_ALL	(FI_ORDER_SAS | FI_ORDER_SAW | FI_ORDER_WAW | \
			 FI_ORDER_WAS | FI_ORDER_RAW | FI_ORDER_RAR | \
			 FI_ORDER_RAS)
/* offset of the receive buffer in mem */
#define ORDER_MESSAGE	64u
#define ORDER_BULK	4096u		/* offset of the written range in mem */
#define ORDER_LEN	(1u << 20)
/* offset, within the written range, of its last part */
#define ORDER_TAIL	(ORDER_LEN - ORDER_PART)
/* size of that part; an operation of this size is sent at once */
#define ORDER_PART	8192u

enum order_pair {
	ORDER_SAW, ORDER_WAW, ORDER_RAW, ORDER_RAR, ORDER_WAS, ORDER_RAS,
	ORDER_PAIRS,
};

static const char *const order_name[ORDER_PAIRS] = {
	"send_does_not_overtake_write", "write_does_not_overtake_write",
	"read_does_not_overtake_write", "read_does_not_overtake_read",
	"write_does_not_overtake_send", "read_does_not_overtake_send",
};

static void order_write(struct fi_rig *r, const uint8_t *from, size_t len,
			uint64_t at)
{
	while (fi_rig_again(r, fi_write(r->ep, from, len, NULL, r->peer,
					r->remote + at, r->key, NULL)))
		;
}

static void order_read(struct fi_rig *r, uint8_t *to, size_t len, uint64_t at)
{
	while (fi_rig_again(r, fi_read(r->ep, to, len, NULL, r->peer,
				       r->remote + at, r->key, NULL)))
		;
}

static void order_send(struct fi_rig *r, uint32_t i)
{
	uint32_t *number = (uint32_t *)(void *)(r->buf + FI_RIG_BUF - 64);

	*number = i;
	while (fi_rig_again(r, fi_send(r->ep, number, sizeof(*number), NULL,
				       r->peer, NULL)))
		;
}

/* Posts the pair and waits for both completions. Returns true if both succeed
 * and the bytes that were read show the right order. */
static bool order_client(struct fi_rig *r, enum order_pair pair, uint32_t i)
{
	uint8_t *one = r->buf, *two = r->buf + ORDER_LEN;
	uint64_t seen[2];

	fi_rig_fill(one, ORDER_LEN, i);
	switch (pair) {
	case ORDER_SAW:
		order_write(r, one, ORDER_LEN, ORDER_BULK);
		order_send(r, i);
		break;
	case ORDER_WAW:
		fi_rig_fill(two, ORDER_LEN, i + 1);
		order_write(r, two, ORDER_LEN, ORDER_BULK);
		order_write(r, one, ORDER_PART, ORDER_BULK + ORDER_TAIL);
		break;
	case ORDER_RAW:
		order_write(r, one, ORDER_LEN, ORDER_BULK);
		order_read(r, two, ORDER_PART, ORDER_BULK + ORDER_TAIL);
		break;
	case ORDER_RAR:
		order_read(r, one, sizeof(seen[0]), 0);
		order_read(r, two, sizeof(seen[1]), 0);
		break;
	case ORDER_WAS:
		order_send(r, i);
		order_write(r, one, 8, ORDER_BULK);
		break;
	default:
		order_send(r, i);
		order_read(r, two, sizeof(i), ORDER_MESSAGE);
		break;
	}
	if (!traffic_done(r, r->tx) || !traffic_done(r, r->tx))
		return false;
	memcpy(&seen[0], one, sizeof(seen[0]));
	memcpy(&seen[1], two, sizeof(seen[1]));
	switch (pair) {
	case ORDER_RAW:
		return !memcmp(two, one + ORDER_TAIL, ORDER_PART);
	case ORDER_RAR:
		return seen[0] <= seen[1];
	case ORDER_RAS:
		return !memcmp(two, &i, sizeof(i));
	default:
		return true;
	}
}

/* Increments the number at the start of mem until the client has finished the
 * round. */
static void order_count(struct fi_rig *r)
{
	uint64_t *number = (uint64_t *)(void *)r->mem;
	char c = 'm';

	while (recv(r->sock, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0)
		__atomic_fetch_add(number, 1, __ATOMIC_SEQ_CST);
}

/* Returns true if the message of round i is received. */
static bool order_received(struct fi_rig *r, uint32_t i)
{
	struct fi_rig_done d;

	return fi_rig_next(r, r->rx, &d) && !d.err &&
	       !memcmp(r->mem + ORDER_MESSAGE, &i, sizeof(i));
}

/* Waits until the 8 bytes of the write are in place. Returns true if the
 * message that was sent before the write has been received by then. */
static bool order_received_first(struct fi_rig *r, uint32_t i)
{
	uint64_t end = ft_now_ns() + FI_RIG_WAIT_MS * UINT64_C(1000000);
	uint64_t *at = (uint64_t *)(void *)(r->mem + ORDER_BULK), want;
	struct fi_cq_tagged_entry e;

	fi_rig_fill((uint8_t *)&want, sizeof(want), i);
	while (__atomic_load_n(at, __ATOMIC_SEQ_CST) != want &&
	       ft_now_ns() < end)
		;
	return fi_cq_read(r->rx, &e, 1) == 1 &&
	       !memcmp(r->mem + ORDER_MESSAGE, &i, sizeof(i));
}

/* Waits for the pair at the target. Returns true if its order was right. */
static bool order_server(struct fi_rig *r, enum order_pair pair, uint32_t i)
{
	switch (pair) {
	case ORDER_SAW:
		return order_received(r, i) &&
		       fi_rig_same(r->mem + ORDER_BULK, ORDER_LEN, i);
	case ORDER_RAR:
		order_count(r);
		return true;
	case ORDER_WAS:
		return order_received_first(r, i);
	case ORDER_RAS:
		return order_received(r, i);
	default:
		return true;
	}
}

static void order_round(struct fi_rig *r, uint32_t i, bool good[ORDER_PAIRS])
{
	enum order_pair pair = (enum order_pair)(i % ORDER_PAIRS);
	bool message = pair == ORDER_SAW || pair == ORDER_WAS ||
		       pair == ORDER_RAS;

	if (r->server && message)
		while (fi_rig_again(r, fi_recv(r->ep, r->mem + ORDER_MESSAGE,
					       sizeof(i), NULL, FI_ADDR_UNSPEC,
					       NULL)))
			;
	fi_rig_meet(r);
	good[pair] = (r->server ? order_server : order_client)(r, pair, i) &&
		     good[pair];
	fi_rig_meet(r);
	if (r->server && pair == ORDER_WAW)
		good[pair] = fi_rig_same(r->mem + ORDER_BULK + ORDER_TAIL,
					 ORDER_PART, i) &&
			     good[pair];
	fi_rig_meet(r);
}

static void traffic_orders(struct fi_rig *r)
{
	uint64_t end = ft_now_ns() + traffic_seconds * UINT64_C(1000000000);
	bool good[ORDER_PAIRS];
	uint32_t i, more;

	for (i = 0; i < ORDER_PAIRS; i++)
		good[i] = true;
	for (i = 0, more = 1; more || i % ORDER_PAIRS; i++) {
		order_round(r, i, good);
		/* The client tells the server whether another round follows. */
		if (!r->server)
			more = ft_now_ns() < end;
		if (r->server ? recv(r->sock, &more, sizeof(more), MSG_WAITALL) !=
					(ssize_t)sizeof(more) :
				send(r->sock, &more, sizeof(more), 0) !=
					(ssize_t)sizeof(more))
			exit(FT_FAIL);
	}
	ft_diag("%u pairs of operations were tested", i);
	for (i = 0; i < ORDER_PAIRS; i++)
		fi_rig_ok(r, good[i], order_name[i]);
}

/* --- a killed process ---------------------------------------------------- */

static bool *traffic_good;		/* result of the test, in memory shared
					 * with the client process */

static int traffic_ends(struct fi_rig *r, ssize_t ret)
{
	struct fi_rig_done d;

	return !ret && fi_rig_next(r, r->tx, &d) ? d.err : -1;
}

static void traffic_killed(struct fi_rig *r)
{
	uint64_t one = 1, old;
	bool good;
	char c;

	if (r->server)
		raise(SIGKILL);
	r->hasty = true;
	while (recv(r->sock, &c, 1, MSG_DONTWAIT) < 0)
		fi_rig_idle(r);
	good = traffic_ends(r, fi_write(r->ep, r->buf, SLOT, NULL, r->peer,
					r->remote, r->key, NULL)) ==
		       FI_ETIMEDOUT &&
	       traffic_ends(r, fi_tsend(r->ep, r->buf, SLOT, NULL, r->peer, 5,
					NULL)) == FI_ETIMEDOUT &&
	       traffic_ends(r, fi_fetch_atomic(r->ep, &one, 1, NULL, &old, NULL,
					       r->peer, r->remote, r->key,
					       FI_UINT64, FI_SUM, NULL)) ==
		       FI_ETIMEDOUT;
	*traffic_good = fi_rig_ok(r, good,
				  "operations_to_killed_process_time_out");
}

static bool traffic_run(const char *what, bool *missing)
{
	bool good;

	if (!strcmp(what, "data"))
		return fi_rig_run("moonrail", 0, traffic_data, missing);
	if (!strcmp(what, "orders")) {
		fi_rig_order = ORDER_ALL;
		good = fi_rig_run("moonrail", 0, traffic_orders, missing);
		fi_rig_order = 0;
		return good;
	}
	if (strcmp(what, "killed"))
		return fi_rig_run("moonrail", 0, traffic, missing);
	traffic_good = mmap(NULL, sizeof(*traffic_good), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (traffic_good == MAP_FAILED)
		return false;
	setenv("MC_SLICE_TIMEOUT", "2", 1);
	fi_rig_run("moonrail", 0, traffic_killed, missing);
	good = *traffic_good;
	munmap(traffic_good, sizeof(*traffic_good));
	return good;
}

int main(int argc, char **argv)
{
	bool missing, good;

	if (!fi_rig_path_for_test())
		return ft_skip("built without the provider");
	if (argc > 1 && atoi(argv[1]))
		traffic_seconds = (unsigned int)atoi(argv[1]);
	if (argc > 2 && atoi(argv[1]))
		traffic_longest = strtoul(argv[2], NULL, 10);
	else if (argc > 2)
		traffic_seconds = (unsigned int)atoi(argv[2]);
	if (!fi_rig_apart())
		setenv("FI_MOONRAIL_ADDR", "127.0.0.1,127.0.0.2", 0);
	good = traffic_run(argc > 1 ? argv[1] : "", &missing);
	ft_ok(good && !missing, "moonrail_traffic_is_right");
	if (argc == 1)
		ft_ok(traffic_run("orders", &missing) && !missing,
		      "moonrail_message_orders_are_kept");
	return ft_result();
}
