/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/common/ft_pattern.h"
#include "fabtests/stress/stress.h"

#define SEC UINT64_C(1000000000)
#define MOVE_PER_WORKER 6

static unsigned char move_expected[STRESS_SLOT];

static unsigned char *move_at(struct stress *s, const struct stress_move *m,
			      unsigned int side)
{
	return s->worker[m->worker[side]].mem.p +
	       m->slot[side] * STRESS_SLOT + m->off[side];
}

/* Returns true if the process of one side is still the one with which the move
 * began, so that its memory is still mapped. */
static bool move_lives(const struct stress *s, const struct stress_move *m,
		       unsigned int side)
{
	const struct stress_worker *w = &s->worker[m->worker[side]];

	return w->mem.p && w->life == m->life[side];
}

static unsigned int move_source(const struct stress_move *m)
{
	return m->op == OPCODE_WRITE ? 0 : 1;
}

/* --- begin of a move ----------------------------------------------------- */

static bool move_take_slot(struct stress_worker *w, unsigned int *slot)
{
	for (unsigned int i = 0; i < STRESS_SLOTS; i++) {
		if (w->slot[i].state != STRESS_FREE)
			continue;
		w->slot[i].state = STRESS_USED;
		*slot = i;
		return true;
	}
	return false;
}

/* Returns true if worker `from` has an open segment of worker `to`. If not,
 * sends the command "open" and returns false. Sends nothing if such a command
 * is in progress or worker `to` is stopped. */
static bool move_segment(struct stress *s, unsigned int from, unsigned int to)
{
	struct stress_worker *w = &s->worker[from], *t = &s->worker[to];
	char line[160];

	if (w->opening[to])
		return false;
	if (w->seg[to] && w->seg_life[to] == t->life)
		return true;
	if (t->stopped)
		return false;
	w->opening[to] = true;
	w->seg_life[to] = t->life;
	snprintf(line, sizeof(line), "open %u %s\n", to, t->name);
	ft_proc_send(&w->proc, line);
	return false;
}

/* Chooses the direction, the size and the offsets of a move. The size has a
 * random number of bits, so that small and large sizes are equally frequent. */
static void move_shape(struct stress_move *m, uint64_t *random)
{
	unsigned int bits = (unsigned int)(ft_random(random) % 20);

	m->op = ft_random(random) % 2 ? OPCODE_WRITE : OPCODE_READ;
	m->len = (UINT64_C(1) << bits) + ft_random(random) % (1u << bits);
	if (m->len > STRESS_SLOT - 2)
		m->len = STRESS_SLOT - 2;
	for (unsigned int side = 0; side < 2; side++)
		m->off[side] = ft_random(random) % (STRESS_SLOT - m->len);
	m->block = m->len / (1 + ft_random(random) % STRESS_TASKS) + 1;
	m->cancel = ft_random(random) % 16 == 0;
}

static void move_send(struct stress *s, const struct stress_move *m)
{
	const struct stress_worker *w = &s->worker[m->worker[0]];
	struct ft_proc *proc = &s->worker[m->worker[0]].proc;
	char line[256];

	snprintf(line, sizeof(line), "move %llu %d %d %llu %llu %llu %llu\n",
		 (unsigned long long)m->id, w->seg[m->worker[1]], m->op,
		 (unsigned long long)(m->slot[0] * STRESS_SLOT + m->off[0]),
		 (unsigned long long)(s->worker[m->worker[1]].mem.addr +
				      m->slot[1] * STRESS_SLOT + m->off[1]),
		 (unsigned long long)m->len, (unsigned long long)m->block);
	ft_proc_send(proc, line);
	if (!m->cancel)
		return;
	snprintf(line, sizeof(line), "cancel %llu\n",
		 (unsigned long long)m->id);
	ft_proc_send(proc, line);
}

/* Begins the next move if both workers are ready and have a free slot,
 * otherwise returns false. The random choices of a move depend only on the seed
 * and on its id. */
static bool move_begin(struct stress *s, struct stress_move *m)
{
	uint64_t id = s->moves + 1, random = s->seed + (id << 20);
	unsigned int w[2];

	w[0] = (unsigned int)(ft_random(&random) % STRESS_WORKERS);
	w[1] = (w[0] + 1 + (unsigned int)(ft_random(&random) %
					  (STRESS_WORKERS - 1))) %
	       STRESS_WORKERS;
	s->moves = id;
	if (s->worker[w[0]].stopped ||
	    s->worker[w[0]].moves >= MOVE_PER_WORKER ||
	    !move_segment(s, w[0], w[1]))
		return false;
	memset(m, 0, sizeof(*m));
	move_shape(m, &random);
	for (unsigned int side = 0; side < 2; side++) {
		m->worker[side] = w[side];
		m->life[side] = s->worker[w[side]].life;
		if (move_take_slot(&s->worker[w[side]], &m->slot[side]))
			continue;
		if (side)
			s->worker[w[0]].slot[m->slot[0]].state = STRESS_FREE;
		return false;
	}
	m->id = id;
	m->begin_ns = ft_now_ns();
	ft_pattern_fill(move_at(s, m, move_source(m)), 0, m->len, s->seed, id);
	s->worker[w[0]].moves++;
	move_send(s, m);
	return true;
}

void stress_begin(struct stress *s)
{
	unsigned int tries = 0;

	for (unsigned int i = 0; i < STRESS_MOVES && tries < 8; i++)
		while (!s->move[i].id && tries++ < 8 &&
		       !move_begin(s, &s->move[i]))
			s->move[i].id = 0;
}

/* --- checks at the end of a move ----------------------------------------- */

static void move_tell(const struct stress_move *m, const char *what)
{
	ft_diag("move %llu (%s of %llu bytes, worker %u at %u+%llu, worker %u "
		"at %u+%llu): %s", (unsigned long long)m->id,
		m->op == OPCODE_WRITE ? "write" : "read",
		(unsigned long long)m->len, m->worker[0], m->slot[0],
		(unsigned long long)m->off[0], m->worker[1], m->slot[1],
		(unsigned long long)m->off[1], what);
}

/* Counts and prints an error of a move: a wrong byte or an impossible answer of
 * a worker. */
static void move_bad(struct stress *s, const struct stress_move *m,
		     const char *what)
{
	s->bad++;
	move_tell(m, what);
}

/* Counts and prints a move that failed although no fault affected it. Prints
 * its duration, the time since the last fault of each worker, and `why`, the
 * error that the initiator reported. */
static void move_unexplained(struct stress *s, const struct stress_move *m,
			     const char *what, const char *why)
{
	const struct stress_worker *w = s->worker;
	uint64_t now = ft_now_ns();

	s->unexplained++;
	move_tell(m, what);
	ft_diag("  %.3f s after its start, %.1f and %.1f s after its workers "
		"were last stopped or killed, with %s:%s",
		(double)(now - m->begin_ns) / 1e9,
		(double)(now - w[m->worker[0]].fault_ns) / 1e9,
		(double)(now - w[m->worker[1]].fault_ns) / 1e9,
		s->mend_ns ? "a rail broken" : "all rails up", why);
	stress_events(s);
}

/* Checks the destination of one task. If the task completed, all bytes must
 * have been moved. Otherwise each byte must be poison or have been moved. */
static void move_check_task(struct stress *s, const struct stress_move *m,
			    const unsigned char *p, uint64_t from, int status)
{
	uint64_t len = m->len - from < m->block ? m->len - from : m->block;
	uint64_t i;

	if (status == STATUS_COMPLETED) {
		if (ft_pattern_check(p + from, from, len, s->seed, m->id) !=
		    len)
			move_bad(s, m, "COMPLETED, but the bytes are wrong");
		return;
	}
	ft_pattern_fill(move_expected, from, len, s->seed, m->id);
	for (i = 0; i < len; i++)
		if (p[from + i] != FX_POISON && p[from + i] != move_expected[i])
			break;
	if (i < len)
		move_bad(s, m, "the destination has bytes that were not sent");
}

/* Checks that the rest of the slot is still poison. Then fills the whole slot
 * with poison and frees it. */
static void move_clear(struct stress *s, const struct stress_move *m,
		       unsigned int side)
{
	struct stress_worker *w = &s->worker[m->worker[side]];
	uint64_t begin = m->slot[side] * STRESS_SLOT;
	uint64_t end = m->off[side] + m->len;

	if (!fx_buf_poisoned(&w->mem, begin, m->off[side]) ||
	    !fx_buf_poisoned(&w->mem, begin + end, STRESS_SLOT - end))
		move_bad(s, m, "bytes next to the range have changed");
	fx_buf_poison(&w->mem, begin, STRESS_SLOT);
	w->slot[m->slot[side]].state = STRESS_FREE;
}

/* Sets the state of the target's slot to STRESS_LOST, because bytes of the move
 * may still land in it. */
static void move_lose(struct stress *s, const struct stress_move *m,
		      uint64_t calm_ns)
{
	struct stress_slot *slot =
		&s->worker[m->worker[1]].slot[m->slot[1]];

	slot->state = STRESS_LOST;
	slot->since = s->moves;
	slot->from = m->worker[0];
	slot->from_life = m->life[0];
	slot->calm_ns = calm_ns;
}

/* Returns true if the worker has only one rail, and that rail is broken now or
 * was repaired after the time `since`. */
static bool move_cut_off(const struct stress *s, const struct stress_worker *w,
			 uint64_t since)
{
	for (unsigned int r = 0; r < 2; r++)
		if (w->rails == 1u << r &&
		    ((s->mend_ns && s->rail == r) || s->mended_ns[r] > since))
			return true;
	return false;
}

/* Returns true if one of the two processes was affected by a fault during the
 * move or shortly before it: a stop, a kill, or the loss of its only rail. */
static bool move_disturbed(const struct stress *s, const struct stress_move *m)
{
	uint64_t calm = (STRESS_TIMEOUT_S + 2) * SEC;
	uint64_t since = m->begin_ns > calm ? m->begin_ns - calm : 0;

	for (unsigned int side = 0; side < 2; side++) {
		const struct stress_worker *w = &s->worker[m->worker[side]];

		if (w->stopped || w->life != m->life[side] ||
		    w->fault_ns > since || move_cut_off(s, w, since))
			return true;
	}
	return false;
}

/* Returns true if the move was cancelled while a rail was broken or within a
 * second after its repair. MOONRAIL_FENCE_MS may then be too short for the
 * fence, so tasks may end as TIMEOUT. */
static bool move_unfenced(const struct stress *s, const struct stress_move *m)
{
	uint64_t since = m->begin_ns > SEC ? m->begin_ns - SEC : 0;

	return m->cancel && (s->mend_ns || s->mended_ns[0] > since ||
			     s->mended_ns[1] > since);
}

static struct stress_move *move_find(struct stress *s, unsigned int w,
				     uint64_t id)
{
	for (unsigned int i = 0; i < STRESS_MOVES; i++)
		if (s->move[i].id == id && s->move[i].worker[0] == w)
			return &s->move[i];
	return NULL;
}

/* Called when the move `m` has completed. Frees the lost slots of its target
 * that earlier moves of the same two processes have used: bytes of those moves
 * cannot land any longer. */
static void move_regain(struct stress *s, const struct stress_move *m)
{
	struct stress_worker *w = &s->worker[m->worker[1]];

	for (unsigned int i = 0; i < STRESS_SLOTS; i++) {
		struct stress_slot *slot = &w->slot[i];

		if (slot->state != STRESS_LOST || slot->from != m->worker[0] ||
		    slot->from_life != m->life[0] || slot->since >= m->id)
			continue;
		fx_buf_poison(&w->mem, i * STRESS_SLOT, STRESS_SLOT);
		slot->state = STRESS_FREE;
	}
}

struct move_sum {
	unsigned int n[8];
	unsigned int tasks;
};

static void move_count(struct stress *s, const struct stress_move *m,
		       const char *statuses, const char *why,
		       struct move_sum *sum)
{
	memset(sum, 0, sizeof(*sum));
	for (; statuses[sum->tasks]; sum->tasks++)
		sum->n[(statuses[sum->tasks] - '0') & 7]++;
	for (unsigned int i = 0; i < 8; i++)
		s->status[i] += sum->n[i];
	if (sum->tasks != (m->len + m->block - 1) / m->block)
		move_bad(s, m, "the worker reported a wrong number of tasks");
	if (sum->n[STATUS_COMPLETED] == sum->tasks)
		s->bytes += m->len;
	else if (sum->n[STATUS_COMPLETED] + sum->n[STATUS_CANCELED] ==
			 sum->tasks || move_disturbed(s, m))
		return;
	else if (!sum->n[STATUS_FAILED] && move_unfenced(s, m))
		s->unfenced++;
	else
		move_unexplained(s, m, "failed although it was not disturbed",
				 why);
}

static void move_check(struct stress *s, const struct stress_move *m,
		       const char *statuses, const struct move_sum *sum)
{
	unsigned int source = move_source(m), dest = 1 - source;

	if (move_lives(s, m, source)) {
		if (ft_pattern_check(move_at(s, m, source), 0, m->len, s->seed,
				     m->id) != m->len)
			move_bad(s, m, "its source has changed");
		move_clear(s, m, source);
	}
	if (!move_lives(s, m, dest))
		return;
	for (unsigned int i = 0; i < sum->tasks; i++)
		move_check_task(s, m, move_at(s, m, dest), i * m->block,
				statuses[i] - '0');
	if (dest == 1 && sum->n[STATUS_TIMEOUT])
		move_lose(s, m, 0);
	else
		move_clear(s, m, dest);
	if (dest == 1 && sum->n[STATUS_COMPLETED] == sum->tasks)
		move_regain(s, m);
}

void stress_done(struct stress *s, unsigned int w, uint64_t id,
		 const char *statuses, const char *why)
{
	struct stress_move *m = move_find(s, w, id);
	struct move_sum sum;

	if (!m) {
		s->bad++;
		ft_diag("worker %u ended the unknown move %llu", w,
			(unsigned long long)id);
		return;
	}
	if (*statuses == '!') {
		/* The submission was refused, so there are no tasks. */
		s->refused++;
		if (!move_disturbed(s, m))
			move_unexplained(s, m, "refused although it was not "
					 "disturbed", why);
		statuses = "";
		memset(&sum, 0, sizeof(sum));
	} else {
		move_count(s, m, statuses, why, &sum);
	}
	move_check(s, m, statuses, &sum);
	s->worker[w].moves--;
	m->id = 0;
}

/* --- dead workers and moves that take too long --------------------------- */

/* Returns how long a slot stays lost after the death of the process that wrote
 * to it, ns. The time does not grow with the load of the machine, because this
 * test causes the load and would run out of slots. */
static uint64_t move_calm_ns(void)
{
	return (fx_slow() ? 15 : 5) * SEC;
}

void stress_dead(struct stress *s, unsigned int w)
{
	uint64_t calm_ns = ft_now_ns() + move_calm_ns();

	for (unsigned int i = 0; i < STRESS_MOVES; i++) {
		struct stress_move *m = &s->move[i];

		if (!m->id || m->worker[0] != w)
			continue;
		/* The kernel may still deliver bytes of the dead process for a
		 * while. */
		if (move_lives(s, m, 1))
			move_lose(s, m, calm_ns);
		m->id = 0;
	}
	s->worker[w].moves = 0;
}

static void move_watch_slot(struct stress *s, struct stress_worker *w,
			    unsigned int i, uint64_t now)
{
	struct stress_slot *slot = &w->slot[i];

	if (slot->state != STRESS_LOST)
		return;
	if (!slot->calm_ns && s->worker[slot->from].life != slot->from_life)
		slot->calm_ns = now + move_calm_ns();
	if (!slot->calm_ns || now < slot->calm_ns || w->stopped ||
	    now < w->fault_ns + move_calm_ns())
		return;
	fx_buf_poison(&w->mem, i * STRESS_SLOT, STRESS_SLOT);
	slot->state = STRESS_FREE;
}

/* Returns true if STRESS_HALT is set and the move has been in progress for that
 * time without a fault that affects its processes. */
static bool move_hangs(const struct stress *s, const struct stress_move *m,
		       uint64_t now)
{
	const struct stress_worker *w;

	if (!s->halt_ns || now < m->begin_ns + s->halt_ns)
		return false;
	for (unsigned int side = 0; side < 2; side++) {
		w = &s->worker[m->worker[side]];
		if (!move_lives(s, m, side) || w->stopped ||
		    now < w->fault_ns + s->halt_ns ||
		    move_cut_off(s, w, now - s->halt_ns))
			return false;
	}
	return true;
}

void stress_watch(struct stress *s)
{
	uint64_t limit = (STRESS_TIMEOUT_S + fx_ms(16)) * SEC;
	uint64_t now = ft_now_ns();

	for (unsigned int i = 0; i < STRESS_MOVES; i++) {
		struct stress_move *m = &s->move[i];
		const struct stress_worker *w = &s->worker[m->worker[0]];

		if (m->id && move_hangs(s, m, now)) {
			move_tell(m, "makes no progress");
			stress_events(s);
			stress_halt(s);
			return;
		}
		if (!m->id || w->stopped || now < m->begin_ns + limit ||
		    now < w->fault_ns + limit)
			continue;
		s->late++;
		move_tell(m, "does not end");
		m->begin_ns = now;
	}
	for (unsigned int i = 0; i < STRESS_WORKERS; i++)
		for (unsigned int j = 0; j < STRESS_SLOTS; j++)
			move_watch_slot(s, &s->worker[i], j, now);
}

bool stress_all_poison(struct stress *s)
{
	bool good = true;

	for (unsigned int i = 0; i < STRESS_WORKERS; i++) {
		struct stress_worker *w = &s->worker[i];

		for (unsigned int j = 0; j < STRESS_SLOTS; j++)
			if (w->slot[j].state == STRESS_FREE)
				good &= fx_buf_poisoned(&w->mem,
							j * STRESS_SLOT,
							STRESS_SLOT);
		good &= fx_buf_guards(&w->mem);
	}
	return good;
}
