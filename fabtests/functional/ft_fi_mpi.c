/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ft_fi_mpi [long]: an MPI program with two to sixteen ranks that moves bytes
 * in the ways of MPI programs and checks every byte. It does ping-pong,
 * "storms" (all ranks send many messages to all others, which receive from any
 * source with any tag), a thousand sends at one time, all forms of probing,
 * collectives, and one-sided operations with fences and locks. ft_fi_mpi.sh
 * runs it over moonrail's libfabric provider. Rank 0 prints one line for each
 * check. A rank that finds an error prints it and aborts the job.
 */
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOVES_MAX	(16 << 20)
#define MOVES_RANKS	16
/* longest message of a storm, bytes; long ones use rendezvous */
#define STORM_MAX	40000
#define STORM_TAGS	7
#define STORM_WINDOW	32

static int rank, ranks;
static bool is_long;
static uint8_t *out, *in;	/* buffers of MOVES_MAX bytes: sources and
				 * destinations of messages */

static void moves_fail(const char *text, ...)
	__attribute__((format(printf, 1, 2), noreturn));

static void moves_fail(const char *text, ...)
{
	va_list ap;

	printf("not ok - rank %d: ", rank);
	va_start(ap, text);
	vprintf(text, ap);
	va_end(ap);
	printf("\n");
	fflush(stdout);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static void moves_ok(const char *what)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank)
		return;
	printf("ok - %d ranks: %s\n", ranks, what);
	fflush(stdout);
}

static uint8_t moves_byte(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static void moves_fill(uint8_t *p, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = moves_byte(seed, i);
}

static void moves_same(const uint8_t *p, size_t len, uint32_t seed,
		       const char *where)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != moves_byte(seed, i))
			moves_fail("%s: byte %zu of %zu is %02x, expected %02x",
				   where, i, len, p[i], moves_byte(seed, i));
}

static void moves_status(const MPI_Status *s, int source, int tag, int len,
			 const char *where)
{
	int n;

	MPI_Get_count(s, MPI_BYTE, &n);
	if (s->MPI_SOURCE != source || s->MPI_TAG != tag || n != len)
		moves_fail("%s: received %d bytes from rank %d with tag %d, "
			   "expected %d bytes from rank %d with tag %d",
			   where, n, s->MPI_SOURCE, s->MPI_TAG, len, source,
			   tag);
}

/* --- two ranks ------------------------------------------------------------ */

static void pair_ping(int other, int len, int round)
{
	uint32_t seed = (uint32_t)(len + round);
	MPI_Status s;

	if (rank < other) {
		moves_fill(out, (size_t)len, seed);
		MPI_Send(out, len, MPI_BYTE, other, 1, MPI_COMM_WORLD);
		MPI_Recv(in, len, MPI_BYTE, other, 2, MPI_COMM_WORLD, &s);
		moves_status(&s, other, 2, len, "ping-pong");
		moves_same(in, (size_t)len, seed + 1, "ping-pong");
		return;
	}
	memset(in, 0xee, (size_t)len);
	MPI_Recv(in, len, MPI_BYTE, other, 1, MPI_COMM_WORLD, &s);
	moves_status(&s, other, 1, len, "ping-pong");
	moves_same(in, (size_t)len, seed, "ping-pong");
	moves_fill(out, (size_t)len, seed + 1);
	if (round % 2)
		MPI_Send(out, len, MPI_BYTE, other, 2, MPI_COMM_WORLD);
	else
		MPI_Ssend(out, len, MPI_BYTE, other, 2, MPI_COMM_WORLD);
}

static void pairs(void)
{
	static const int size[] = {
		0, 1, 8, 63, 1024, 1025, 4096, 16263, 16264, 16265, 65535,
		65536, 1 << 20, 5000001, MOVES_MAX,
	};
	size_t n = sizeof(size) / sizeof(size[0]) - (is_long ? 0 : 2), i;
	int other = rank ^ 1, round;

	for (i = 0; i < n && other < ranks; i++)
		for (round = 0; round < (size[i] > 65536 ? 2 : 20); round++)
			pair_ping(other, size[i], round);
	moves_ok("ping_pong_of_every_size_is_intact");
}

/* Each rank sends to the next one in a ring and receives from the previous one
 * at the same time. */
static void exchange(void)
{
	int len = is_long ? 4 << 20 : 300000, to = (rank + 1) % ranks;
	int from = (rank + ranks - 1) % ranks, i;
	MPI_Status s;

	for (i = 0; i < 4; i++) {
		moves_fill(out, (size_t)len, (uint32_t)(rank + i));
		MPI_Sendrecv(out, len, MPI_BYTE, to, 3, in, len, MPI_BYTE, from,
			     3, MPI_COMM_WORLD, &s);
		moves_status(&s, from, 3, len, "exchange");
		moves_same(in, (size_t)len, (uint32_t)(from + i), "exchange");
	}
	moves_ok("simultaneous_exchange_in_a_ring_is_intact");
}

/* --- storms --------------------------------------------------------------- */

/* Returns the length of the i-th message from one rank to another. */
static int storm_len(int from, int to, int i)
{
	uint32_t x = (uint32_t)(from * 7919 + to * 104729 + i * 31337);

	x = x * 2654435761u >> 8;
	if (x % 8 == 0)
		return (int)(16 + x / 8 % (STORM_MAX - 16));
	return (int)(16 + x / 8 % 2000);
}

struct storm_head {
	int32_t from, seq;
};

static void storm_check(const uint8_t *p, const MPI_Status *s,
			int32_t next[MOVES_RANKS])
{
	struct storm_head h;

	memcpy(&h, p, sizeof(h));
	if (h.from != s->MPI_SOURCE || h.from < 0 || h.from >= ranks)
		moves_fail("storm: message of rank %d arrived from rank %d",
			   h.from, s->MPI_SOURCE);
	if (h.seq != next[h.from])
		moves_fail("storm: message %d of rank %d arrived, expected "
			   "message %d", h.seq,
			   h.from, next[h.from]);
	next[h.from]++;
	moves_status(s, h.from, 10 + h.seq % STORM_TAGS,
		     storm_len(h.from, rank, h.seq), "storm");
	moves_same(p + sizeof(h),
		   (size_t)storm_len(h.from, rank, h.seq) - sizeof(h),
		   (uint32_t)h.seq, "storm");
}

/* The state of a rank in a storm. Request i uses the i-th part of the buffers,
 * STORM_MAX bytes. */
struct storm {
	MPI_Request sends[STORM_WINDOW], receives[STORM_WINDOW];
	int32_t next[MOVES_RANKS];	/* expected number of the next message
					 * from each rank */
	int total, sent, posted, got, window;
};

/* Sends the next message; the destinations alternate. Returns false if the last
 * message in the same part of the buffer is not sent yet. */
static bool storm_send(struct storm *t)
{
	int to = (rank + 1 + t->sent % (ranks - 1)) % ranks, free;
	int slot = t->sent % STORM_WINDOW, i = t->sent / (ranks - 1);
	struct storm_head h = { .from = rank, .seq = i };
	uint8_t *p = out + (size_t)slot * STORM_MAX;
	int len = storm_len(rank, to, i);

	MPI_Test(&t->sends[slot], &free, MPI_STATUS_IGNORE);
	if (!free)
		return false;
	memcpy(p, &h, sizeof(h));
	moves_fill(p + sizeof(h), (size_t)len - sizeof(h), (uint32_t)i);
	MPI_Isend(p, len, MPI_BYTE, to, 10 + i % STORM_TAGS, MPI_COMM_WORLD,
		  &t->sends[slot]);
	t->sent++;
	return true;
}

static void storm_post(struct storm *t)
{
	int slot = t->posted++ % STORM_WINDOW;

	MPI_Irecv(in + (size_t)slot * STORM_MAX, STORM_MAX, MPI_BYTE,
		  MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
		  &t->receives[slot]);
}

/* Tests the oldest posted receive and checks its message. Receives complete in
 * the order in which they were posted, so the messages of each sender are in
 * order, too. Returns false if the receive has not completed. */
static bool storm_receive(struct storm *t)
{
	int slot = t->got % STORM_WINDOW, there;
	MPI_Status s;

	MPI_Test(&t->receives[slot], &there, &s);
	if (!there)
		return false;
	storm_check(in + (size_t)slot * STORM_MAX, &s, t->next);
	t->got++;
	return true;
}

/* Runs a storm of `each` messages from each rank to each other rank. A rank has
 * at most `window` receives posted. No rank waits for a particular message, so
 * that the ranks cannot block each other. */
static void storm(int each, int window)
{
	struct storm t = { .total = each * (ranks - 1), .window = window };
	int i;

	for (i = 0; i < STORM_WINDOW; i++)
		t.sends[i] = MPI_REQUEST_NULL;
	while (t.got < t.total || t.sent < t.total) {
		while (t.posted < t.total && t.posted - t.got < t.window)
			storm_post(&t);
		for (i = 0; i < STORM_WINDOW && t.sent < t.total; i++)
			if (!storm_send(&t))
				break;
		while (t.got < t.posted && storm_receive(&t))
			;
	}
	MPI_Waitall(STORM_WINDOW, t.sends, MPI_STATUSES_IGNORE);
	moves_ok(window < STORM_WINDOW ?
			 "storm_of_unexpected_messages_is_intact" :
			 "storm_from_any_source_with_any_tag_is_intact");
}

/* Rank 0 sends many messages before rank 1 posts their receives. Rank 1 then
 * receives them from the last tag to the first. */
static void unexpected(void)
{
	int n = is_long ? 2000 : 300, len = 900, i;
	MPI_Request *r = calloc((size_t)n, sizeof(*r));
	MPI_Status s;

	if (rank == 0) {
		for (i = 0; i < n; i++) {
			moves_fill(out + i * len, (size_t)len, (uint32_t)i);
			MPI_Isend(out + i * len, len, MPI_BYTE, 1, 100 + i,
				  MPI_COMM_WORLD, &r[i]);
		}
		MPI_Send(NULL, 0, MPI_BYTE, 1, 99, MPI_COMM_WORLD);
		MPI_Waitall(n, r, MPI_STATUSES_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(NULL, 0, MPI_BYTE, 0, 99, MPI_COMM_WORLD, &s);
		for (i = n - 1; i >= 0; i--) {
			MPI_Recv(in, len, MPI_BYTE, 0, 100 + i, MPI_COMM_WORLD,
				 &s);
			moves_same(in, (size_t)len, (uint32_t)i, "unexpected");
		}
	}
	free(r);
	moves_ok("messages_received_from_last_to_first_are_intact");
}

/* Both ranks post n synchronous sends before any receive. */
static void many_synchronous(int other, int n)
{
	MPI_Request *r = calloc(2 * (size_t)n, sizeof(*r));
	int len = 40, i;

	for (i = 0; i < n; i++) {
		moves_fill(out + i * len, (size_t)len, (uint32_t)(rank + i));
		MPI_Issend(out + i * len, len, MPI_BYTE, other, i,
			   MPI_COMM_WORLD, &r[i]);
	}
	for (i = n - 1; i >= 0; i--)
		MPI_Irecv(in + i * len, len, MPI_BYTE, other, i, MPI_COMM_WORLD,
			  &r[n + i]);
	MPI_Waitall(2 * n, r, MPI_STATUSES_IGNORE);
	for (i = 0; i < n; i++)
		moves_same(in + i * len, (size_t)len, (uint32_t)(other + i),
			   "synchronous");
	free(r);
}

/* Both ranks first send n messages that are so long that they use rendezvous:
 * no send completes before its receive is posted. */
static void many_announced(int other, int n)
{
	MPI_Request *r = calloc((size_t)n, sizeof(*r));
	int len = 17000, i;
	MPI_Status s;

	moves_fill(out, (size_t)len, (uint32_t)rank);
	for (i = 0; i < n; i++)
		MPI_Isend(out, len, MPI_BYTE, other, 97, MPI_COMM_WORLD, &r[i]);
	for (i = 0; i < n; i++) {
		memset(in, 0xee, (size_t)len);
		MPI_Recv(in, len, MPI_BYTE, other, 97, MPI_COMM_WORLD, &s);
		moves_same(in, (size_t)len, (uint32_t)other, "announced");
	}
	MPI_Waitall(n, r, MPI_STATUSES_IGNORE);
	free(r);
}

static void many(void)
{
	int other = rank ^ 1;

	if (other < ranks) {
		many_synchronous(other, 1000);
		many_announced(other, is_long ? 2000 : 1200);
	}
	moves_ok("thousand_sends_in_both_directions_are_intact");
}

static void cancel(void)
{
	int other = rank ^ 1, is;
	MPI_Request r;
	MPI_Status s;

	if (other < ranks) {
		MPI_Irecv(in, 100, MPI_BYTE, other, 98, MPI_COMM_WORLD, &r);
		MPI_Cancel(&r);
		MPI_Wait(&r, &s);
		MPI_Test_cancelled(&s, &is);
		if (!is)
			moves_fail("MPI_Cancel: the receive was not cancelled");
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (other < ranks) {
		moves_fill(out, 64, 5);
		MPI_Sendrecv(out, 64, MPI_BYTE, other, 98, in, 64, MPI_BYTE,
			     other, 98, MPI_COMM_WORLD, &s);
		moves_same(in, 64, 5, "after a cancelled receive");
	}
	moves_ok("receive_after_a_cancelled_one_takes_the_message");
}

/* --- probing -------------------------------------------------------------- */

enum probe_form { PROBE, IPROBE, MPROBE, IMPROBE, PROBE_FORMS };

/* Probes for a message from any rank in one of the forms, and receives it into
 * `in`. */
static void probe_take(enum probe_form form, MPI_Status *s)
{
	MPI_Message m = MPI_MESSAGE_NULL;
	int found = 0, n;

	switch (form) {
	case PROBE:
		MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, s);
		break;
	case IPROBE:
		while (!found)
			MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
				   &found, s);
		break;
	case MPROBE:
		MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &m, s);
		break;
	default:
		while (!found)
			MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD,
				    &found, &m, s);
	}
	MPI_Get_count(s, MPI_BYTE, &n);
	if (n > MOVES_MAX)
		moves_fail("probe: message of %d bytes is too long", n);
	if (form == MPROBE || form == IMPROBE)
		MPI_Mrecv(in, n, MPI_BYTE, &m, s);
	else
		MPI_Recv(in, n, MPI_BYTE, s->MPI_SOURCE, s->MPI_TAG,
			 MPI_COMM_WORLD, s);
}

static void probe_all(enum probe_form form, int each)
{
	MPI_Request *r = calloc((size_t)(each * ranks), sizeof(*r));
	uint8_t *p = out;
	MPI_Status s;
	int n = 0, i, to, len;

	for (i = 0; i < each; i++) {
		for (to = 0; to < ranks; to++) {
			if (to == rank)
				continue;
			len = i % 5 == 4 ? 70000 + i : 100 + i;
			moves_fill(p, (size_t)len, (uint32_t)(rank + i));
			MPI_Isend(p, len, MPI_BYTE, to, 200 + i, MPI_COMM_WORLD,
				  &r[n++]);
			p += len;
		}
	}
	for (i = 0; i < each * (ranks - 1); i++) {
		probe_take(form, &s);
		MPI_Get_count(&s, MPI_BYTE, &len);
		to = s.MPI_TAG - 200;
		if (len != (to % 5 == 4 ? 70000 + to : 100 + to))
			moves_fail("probe: wrong length: %d bytes with tag %d",
				   len, s.MPI_TAG);
		moves_same(in, (size_t)len, (uint32_t)(s.MPI_SOURCE + to),
			   "probe");
	}
	MPI_Waitall(n, r, MPI_STATUSES_IGNORE);
	free(r);
}

static void probes(void)
{
	static const char *const name[PROBE_FORMS] = {
		"MPI_Probe_finds_each_message", "MPI_Iprobe_finds_each_message",
		"MPI_Mprobe_finds_each_message",
		"MPI_Improbe_finds_each_message",
	};
	int form;

	for (form = 0; form < PROBE_FORMS; form++) {
		probe_all(form, is_long ? 40 : 10);
		moves_ok(name[form]);
	}
}

/* --- collectives ---------------------------------------------------------- */

static void coll_reduce(int n)
{
	int64_t *a = (int64_t *)(void *)out, *b = (int64_t *)(void *)in;
	int i;

	for (i = 0; i < n; i++)
		a[i] = (int64_t)rank * 1000 + i;
	MPI_Allreduce(a, b, n, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (i = 0; i < n; i++)
		if (b[i] != (int64_t)ranks * (ranks - 1) / 2 * 1000 +
				    (int64_t)ranks * i)
			moves_fail("allreduce: wrong sum: number %d of %d is "
				   "%lld", i, n,
				   (long long)b[i]);
}

static void coll_alltoall(int len)
{
	int i;

	for (i = 0; i < ranks; i++)
		moves_fill(out + i * len, (size_t)len,
			   (uint32_t)(rank * ranks + i));
	MPI_Alltoall(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		moves_same(in + i * len, (size_t)len,
			   (uint32_t)(i * ranks + rank), "alltoall");
}

static void coll_spread(int len, int root)
{
	int i;

	moves_fill(in, (size_t)len, rank == root ? 77u : 0u);
	MPI_Bcast(in, len, MPI_BYTE, root, MPI_COMM_WORLD);
	moves_same(in, (size_t)len, 77, "bcast");
	moves_fill(out, (size_t)len, (uint32_t)rank);
	MPI_Allgather(out, len, MPI_BYTE, in, len, MPI_BYTE, MPI_COMM_WORLD);
	for (i = 0; i < ranks; i++)
		moves_same(in + i * len, (size_t)len, (uint32_t)i, "allgather");
}

static void collectives(void)
{
	static const int size[] = { 1, 100, 5000, 40000, 200000, 1000000 };
	int n = is_long ? 6 : 5, i;

	for (i = 0; i < n; i++) {
		coll_reduce(size[i] / 8 + 1);
		coll_alltoall(size[i]);
		coll_spread(size[i], i % ranks);
	}
	moves_ok("collectives_are_right");
}

/* --- one-sided ------------------------------------------------------------ */

#define WIN_BLOCK	100000	/* size of the block for each rank, bytes */

/* Each rank puts a block into the window of every rank, and then gets a block
 * from each of them. */
static void win_fence(MPI_Win w, uint8_t *mem)
{
	int i;

	MPI_Win_fence(0, w);
	moves_fill(out, WIN_BLOCK, (uint32_t)rank);
	for (i = 0; i < ranks; i++)
		MPI_Put(out, WIN_BLOCK, MPI_BYTE, i, (MPI_Aint)rank * WIN_BLOCK,
			WIN_BLOCK, MPI_BYTE, w);
	MPI_Win_fence(0, w);
	for (i = 0; i < ranks; i++)
		moves_same(mem + i * WIN_BLOCK, WIN_BLOCK, (uint32_t)i, "put");
	for (i = 0; i < ranks; i++)
		MPI_Get(in + i * WIN_BLOCK, WIN_BLOCK, MPI_BYTE, i,
			(MPI_Aint)((rank + i) % ranks) * WIN_BLOCK, WIN_BLOCK,
			MPI_BYTE, w);
	MPI_Win_fence(0, w);
	for (i = 0; i < ranks; i++)
		moves_same(in + i * WIN_BLOCK, WIN_BLOCK,
			   (uint32_t)((rank + i) % ranks), "get");
	moves_ok("MPI_Put_and_MPI_Get_with_fences_are_right");
}

static void win_lock(MPI_Win w, uint8_t *mem, int rounds)
{
	int64_t *count = (int64_t *)(void *)mem, one = 1, was, got;
	int i, to;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w);
	memset(mem, 0, 64);
	MPI_Win_unlock(rank, w);
	MPI_Barrier(MPI_COMM_WORLD);
	for (i = 0; i < rounds; i++) {
		to = (rank + i) % ranks;
		MPI_Win_lock(i % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, to,
			     0, w);
		MPI_Accumulate(&one, 1, MPI_INT64_T, to, 0, 1, MPI_INT64_T,
			       MPI_SUM, w);
		MPI_Fetch_and_op(&one, &was, MPI_INT64_T, to, 8, MPI_SUM, w);
		MPI_Win_unlock(to, w);
		if (was < 0 || was >= (int64_t)rounds * ranks)
			moves_fail("MPI_Fetch_and_op: the fetched value %lld "
				   "is out of range",
				   (long long)was);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, w);
	got = 0;
	/* Count how often the loop above has chosen this rank as target. */
	for (i = 0; i < ranks * rounds; i++)
		got += (i / rounds + i % rounds) % ranks == rank;
	if (count[0] != got || count[1] != got)
		moves_fail("accumulate: sums are %lld and %lld, expected %lld",
			   (long long)count[0], (long long)count[1],
			   (long long)got);
	MPI_Win_unlock(rank, w);
	moves_ok("MPI_Accumulate_and_MPI_Fetch_and_op_with_locks_are_right");
}

/* Uses compare-and-swap as a lock that guards a number, which is read and
 * written. Both are in the window of rank 0. Rank 0 does not take part, because
 * Open MPI 4.1.4 crashes when a rank swaps in its own window (osc/rdma). */
static void win_swap(MPI_Win w, uint8_t *mem, int rounds)
{
	int64_t zero = 0, me = rank + 1, was, n;
	int i;

	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w);
	memset(mem, 0, 64);
	MPI_Win_unlock(rank, w);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, w);
	for (i = 0; i < rounds && rank; i++) {
		do {
			MPI_Compare_and_swap(&me, &zero, &was, MPI_INT64_T, 0, 0,
					     w);
			MPI_Win_flush(0, w);
		} while (was);
		MPI_Get(&n, 1, MPI_INT64_T, 0, 8, 1, MPI_INT64_T, w);
		MPI_Win_flush(0, w);
		n++;
		MPI_Put(&n, 1, MPI_INT64_T, 0, 8, 1, MPI_INT64_T, w);
		MPI_Win_flush(0, w);
		MPI_Compare_and_swap(&zero, &me, &was, MPI_INT64_T, 0, 0, w);
		MPI_Win_flush(0, w);
		if (was != me)
			moves_fail("compare-and-swap: the lock contained "
				   "%lld, not the number of this rank",
				   (long long)was);
	}
	MPI_Win_unlock_all(w);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w);
	MPI_Get(&n, 1, MPI_INT64_T, 0, 8, 1, MPI_INT64_T, w);
	MPI_Win_unlock(0, w);
	if (n != (int64_t)rounds * (ranks - 1))
		moves_fail("compare-and-swap: the counter has the wrong value "
			   "%lld",
			   (long long)n);
	moves_ok("MPI_Compare_and_swap_works_as_a_lock");
}

/* Tests one-sided operations on memory that the program has allocated. (Memory
 * that MPI allocates is shared by the ranks of a host, so no bytes would be
 * transferred.) */
static void one_sided(void)
{
	uint8_t *mem = calloc((size_t)ranks, WIN_BLOCK);
	MPI_Win w;

	if (!mem)
		moves_fail("out of memory");
	MPI_Win_create(mem, (MPI_Aint)ranks * WIN_BLOCK, 1, MPI_INFO_NULL,
		       MPI_COMM_WORLD, &w);
	win_fence(w, mem);
	win_lock(w, mem, is_long ? 200 : 20);
	win_swap(w, mem, is_long ? 50 : 5);
	MPI_Win_free(&w);
	free(mem);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	is_long = argc > 1 && !strcmp(argv[1], "long");
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	out = malloc(MOVES_MAX);
	in = malloc(MOVES_MAX);
	if (!out || !in || ranks < 2 || ranks > MOVES_RANKS)
		moves_fail("bad number of ranks (%d, must be 2 to 16), or out "
			   "of memory",
			   ranks);
	pairs();
	exchange();
	storm(is_long ? 3000 : 300, STORM_WINDOW);
	storm(is_long ? 3000 : 300, 3);
	unexpected();
	many();
	cancel();
	probes();
	collectives();
	one_sided();
	free(out);
	free(in);
	MPI_Finalize();
	return 0;
}
