/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registration tables (struct local_shared_table): memory through which both
 * ends of a copy coordinate without messages.
 *
 * A context has two of them with the same layout: a private table for copies
 * within its process, and a shared table in a memfd for other processes. The
 * owner has mapped the shared table at the address that its identity states.
 * Initiators open the memfd as /proc/PID/fd/N, for which the kernel requires
 * ptrace access. They check that it is a tmpfs file, sealed against growing and
 * shrinking so that no access can fault, and map its region tables read-only
 * and its copy slots writable. The shared table also holds a magic number and
 * the incarnation, which initiators read to verify the process.
 *
 * Region tables. Regions are grouped in blocks. An index lists the current
 * blocks, sorted by address. There are two indexes; bit 0 of the generation
 * selects the current one. To publish a change, the target writes each changed
 * block to memory that the current index does not list, writes the other index,
 * and then stores generation + 1. So a change writes one block and the index,
 * however many regions there are. A target that is stopped at any point, even
 * during a registration, leaves a valid table. A reader searches the index that
 * the generation selects, then one block, then reads the generation again, and
 * searches again if it has changed. Words are stored with release and loaded
 * with acquire semantics, so readers that see a word of a later table also see
 * the later generation. Memory of a block that only the previous generation
 * used is rewritten only after the next generation has been stored; readers of
 * the old generation then search again anyway.
 *
 * Copy slots. Target and initiator use Dekker's algorithm:
 *
 *	initiator, for each piece		target, removing a region
 *	I1 claim a slot, arm it with the range	T1 publish without the region
 *	I2 is the range in the tables?		T2 read every slot
 *	I3 copy					T3 wait while one is armed
 *	I4 clear the slot			   on the range
 *
 * I1, I2, T1 and T2 are sequentially consistent: either I2 sees T1 and the
 * piece is refused, or T2 sees I1 and waits for I4. A slot that was seen clear
 * once after T1, or whose count of uses has increased since then, need not be
 * read again: a piece that claims this slot later is refused at I2. So T2 reads
 * each slot until this is the case and never returns to an earlier slot. If the
 * wait reaches its deadline, the region is published again.
 *
 * The owner of a slot is one word that consists of a pid and a start time. One
 * compare-and-swap sets it, so the slots of a process name the process even if
 * it dies. Any process may free the slot of a dead owner. The pidfd reports the
 * death only after the last thread has left the kernel, so after the copy.
 * The range of a freed slot may be stale until the next owner has armed it; the
 * only effect is that the target waits for that owner. A stopped owner counts
 * as alive, because its thread may be between I2 and I3. A process that calls
 * exec during a piece keeps its pid and start time, and so its slot, until it
 * ends.
 *
 * Any process with ptrace access can overwrite the shared registration tables,
 * that of this process, too. Therefore counts and indexes that are read from
 * them are clamped to their limits, and addresses in them are never
 * dereferenced: the addresses to copy come from the caller and are only
 * compared with the region tables. The authoritative table of the target is the
 * heap array in the context; copies within the process are checked against the
 * private registration table.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "prov/local/local_int.h"
#include "prov/local/local_memfd.h"
#include "util/clock.h"

#define SHARED_TABLE_NAME  "moonrail-local"
/* Number of times that a reader tries again because the table has changed
 * meanwhile. */
#define SHARED_TABLE_TRIES	 1024
#define SHARED_TABLE_YIELDS	 64 /* calls of sched_yield in a drain before it
				     * sleeps */
#define SHARED_TABLE_SLEEP_NS	 (50 * 1000)
#define SHARED_TABLE_CHECK_EVERY 16 /* number of sleeps between two checks
				     * whether the owner is alive */

struct local_shared_table *local_shared_table_private(bool *wiped_by_fork)
{
	struct local_shared_table *b;

	b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (b == MAP_FAILED)
		return NULL;
	*wiped_by_fork = !madvise(b, sizeof(*b), MADV_WIPEONFORK);
	return b;
}

static struct local_shared_table *shared_table_map(int fd, int prot)
{
	struct local_shared_table *b;
	int err;

	b = mmap(NULL, sizeof(*b), prot, MAP_SHARED, fd, 0);
	if (b == MAP_FAILED)
		return NULL;
	if (madvise(b, sizeof(*b), MADV_DONTFORK)) {
		err = errno;
		munmap(b, sizeof(*b));
		errno = err;
		return NULL;
	}
	return b;
}

struct local_shared_table *local_shared_table_shared(int *out_fd)
{
	struct local_shared_table *b;
	int fd, err;

	fd = local_memfd_create(SHARED_TABLE_NAME, 0, sizeof(*b));
	if (fd < 0)
		return NULL;
	b = shared_table_map(fd, PROT_READ | PROT_WRITE);
	if (b) {
		*out_fd = fd;
		return b;
	}
	err = errno;
	close(fd);
	errno = err;
	return NULL;
}

void local_shared_table_unmap(struct local_shared_table *b)
{
	munmap(b, sizeof(*b));
}

enum tei_local_reason local_shared_table_attach(pid_t pid, int number,
						struct local_shared_table **out)
{
	const struct local_memfd_want want = { .size = sizeof(**out) };
	enum tei_local_reason reason;
	struct local_shared_table *b;
	int fd = -1;

	reason = local_memfd_open(pid, number, &want, &fd);
	if (reason != TEI_LOCAL_OK)
		return reason;
	b = shared_table_map(fd, PROT_READ);
	if (b && mprotect(b->slots, sizeof(b->slot_room),
			  PROT_READ | PROT_WRITE)) {
		local_shared_table_unmap(b);
		b = NULL;
	}
	if (!b)
		reason = errno == EACCES || errno == EPERM ?
				 TEI_LOCAL_NO_PERMISSION :
				 TEI_LOCAL_NO_RESOURCE;
	close(fd);
	if (b)
		*out = b;
	return reason;
}

static uint64_t shared_table_flags(const struct local_region *r)
{
	return (r->access & TEI_LOCAL_REMOTE ? LOCAL_ACCESSIBLE : 0) |
	       (r->access & TEI_LOCAL_READ_ONLY ? 0 : LOCAL_WRITABLE) |
	       (uint64_t)r->file << LOCAL_FILE_SHIFT |
	       r->serial << LOCAL_SERIAL_SHIFT;
}

/* ---- tables ------------------------------------------------------------ */

static void shared_table_put(_Atomic uint64_t *word, uint64_t value)
{
	atomic_store_explicit(word, value, memory_order_release);
}

static void shared_table_write_block(struct local_entry *e,
				     const struct local_block *from)
{
	const struct local_region *r;
	uint32_t i;

	for (i = 0; i < from->n; i++) {
		r = &from->in->r[i];
		if (r->hidden)
			continue;
		shared_table_put(&e->base, r->base);
		shared_table_put(&e->end, r->end);
		shared_table_put(&e->flags, shared_table_flags(r));
		shared_table_put(&e->offset, r->offset);
		e++;
	}
}

void local_shared_table_publish(struct local_shared_table *b,
				uint64_t generation,
				const struct local_table *table)
{
	unsigned int which = generation & 1;
	struct local_entry_block *x = b->index[which];
	const struct local_block *from;
	uint32_t i;

	for (i = table->stale[which].from;
	     i < table->stale[which].to && i < table->nblocks; i++) {
		from = &table->blocks[i];
		if (from->dirty)
			shared_table_write_block(b->block[from->place - 1],
						 from);
		shared_table_put(&x[i].base, from->in->r[0].base);
		shared_table_put(&x[i].place,
				 (uint64_t)from->visible << 32 |
					 (uint64_t)(from->place - 1));
	}
	shared_table_put(&b->head.count[which], table->nblocks);
	atomic_store(&b->head.generation, generation);
}

static uint64_t shared_table_get(_Atomic uint64_t *word)
{
	return atomic_load_explicit(word, memory_order_acquire);
}

/* Returns the published block that may hold addr, and stores its number of
 * regions in *count. Returns NULL if there is no such block. */
static struct local_entry *shared_table_block(struct local_shared_table *b,
					      unsigned int which, uint64_t addr,
					      uint64_t *count)
{
	struct local_entry_block *x = b->index[which];
	uint64_t lo = 0, hi = shared_table_get(&b->head.count[which]), mid,
		 place;

	if (hi > LOCAL_INDEX)
		hi = LOCAL_INDEX;
	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (shared_table_get(&x[mid].base) <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return NULL;
	place = shared_table_get(&x[lo - 1].place);
	*count = place >> 32;
	if (*count > LOCAL_BLOCK)
		*count = LOCAL_BLOCK;
	return b->block[(uint32_t)place % LOCAL_BLOCKS];
}

/* A published region. */
struct shared_table_region {
	uint64_t base, end, flags, offset;
};

static bool shared_table_search(struct local_shared_table *b,
				unsigned int which, uint64_t addr,
				struct shared_table_region *out)
{
	uint64_t lo = 0, hi = 0, mid;
	struct local_entry *e = shared_table_block(b, which, addr, &hi);

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		if (shared_table_get(&e[mid].base) <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return false;
	e += lo - 1;
	out->base = shared_table_get(&e->base);
	out->end = shared_table_get(&e->end);
	out->flags = shared_table_get(&e->flags);
	out->offset = shared_table_get(&e->offset);
	return out->base <= addr;
}

/* Finds the last region that starts at or below addr. Searches again if the
 * table has changed meanwhile. Returns false if there is no such region, or if
 * the table changes too often. */
static bool shared_table_find(struct local_shared_table *b, uint64_t addr,
			      struct shared_table_region *out)
{
	uint64_t generation;
	bool found;
	int i;

	for (i = 0; i < SHARED_TABLE_TRIES; i++) {
		generation = atomic_load(&b->head.generation);
		found = shared_table_search(b, generation & 1, addr, out);
		if (atomic_load(&b->head.generation) == generation)
			return found;
	}
	return false;
}

bool local_shared_table_covers(struct local_shared_table *b, uint64_t addr,
			       uint64_t len, uint64_t flags)
{
	struct shared_table_region r;

	return addr <= UINT64_MAX - len && shared_table_find(b, addr, &r) &&
	       addr + len <= r.end && (r.flags & flags) == flags;
}

uint64_t local_shared_table_serial(struct local_shared_table *b, uint64_t addr,
				   uint64_t len, uint64_t flags)
{
	struct shared_table_region r;

	return addr <= UINT64_MAX - len && shared_table_find(b, addr, &r) &&
			       addr + len <= r.end &&
			       (r.flags & flags) == flags ?
		       r.flags >> LOCAL_SERIAL_SHIFT :
		       0;
}

bool local_shared_table_place(struct local_shared_table *b, uint64_t addr,
			      uint64_t len, struct local_place *out)
{
	struct shared_table_region r;
	uint64_t file;

	if (!len || addr > UINT64_MAX - len ||
	    !shared_table_find(b, addr, &r) || addr + len > r.end)
		return false;
	/* the words of the table may have any value */
	file = (r.flags & LOCAL_FILE_MASK) >> LOCAL_FILE_SHIFT;
	if (!file || file > LOCAL_FILES || r.offset > LOCAL_FILE_SIZE ||
	    r.end - r.base > LOCAL_FILE_SIZE - r.offset)
		return false;
	out->file = (uint32_t)file - 1;
	out->offset = r.offset + (addr - r.base);
	out->begin = r.offset;
	out->end = r.offset + (r.end - r.base);
	return true;
}

bool local_shared_table_region(struct local_shared_table *b, uint64_t addr,
			       uint64_t *base, uint64_t *end)
{
	struct shared_table_region r;

	if (!shared_table_find(b, addr, &r) || addr >= r.end)
		return false;
	*base = r.base;
	*end = r.end;
	return true;
}

/* ---- slots ------------------------------------------------------------- */

static void slot_arm(struct local_slot *s, const uint64_t base[2],
		     const uint64_t end[2])
{
	atomic_store_explicit(&s->base[0], base[0], memory_order_relaxed);
	atomic_store_explicit(&s->base[1], base[1], memory_order_relaxed);
	atomic_store_explicit(&s->end[1], end[1], memory_order_relaxed);
	atomic_store(&s->end[0], end[0]);
}

/*
 * Returns the index of the first slot to try. Threads start at different slots,
 * so most of them find a free slot at once.
 */
static uint32_t slot_hint(uint64_t owner)
{
	uint64_t h = (uint64_t)pthread_self() ^ owner;

	return (uint32_t)((h * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

struct local_slot *local_slot_enter(struct local_shared_table *b,
				    uint64_t owner, const uint64_t base[2],
				    const uint64_t end[2])
{
	uint32_t i, at = slot_hint(owner);
	struct local_slot *s;
	uint64_t none;

	for (i = 0; i < LOCAL_SLOTS; i++) {
		s = &b->slots[(at + i) % LOCAL_SLOTS];
		none = 0;
		if (atomic_load_explicit(&s->owner, memory_order_relaxed) ||
		    !atomic_compare_exchange_strong(&s->owner, &none, owner))
			continue;
		slot_arm(s, base, end);
		return s;
	}
	return NULL;
}

void local_slot_leave(struct local_slot *s)
{
	atomic_store_explicit(&s->end[0], 0, memory_order_release);
	atomic_store_explicit(&s->end[1], 0, memory_order_release);
	atomic_fetch_add(&s->uses, 1);
	atomic_store_explicit(&s->owner, 0, memory_order_release);
}

/* Returns the owner of a slot that is armed on the range, or 0. */
static uint64_t slot_holder(struct local_slot *s, uint64_t base, uint64_t end)
{
	uint64_t owner = atomic_load(&s->owner);
	uint64_t e0, e1, b0, b1;

	if (!owner)
		return 0;
	e0 = atomic_load(&s->end[0]);
	e1 = shared_table_get(&s->end[1]);
	b0 = shared_table_get(&s->base[0]);
	b1 = shared_table_get(&s->base[1]);
	return local_overlaps(b0, e0, base, end) ||
	       local_overlaps(b1, e1, base, end) ? owner : 0;
}

static void slot_free_dead(struct local_slot *s, uint64_t owner)
{
	if (!local_owner_alive(owner))
		atomic_compare_exchange_strong(&s->owner, &owner, 0);
}

static void slot_pause(unsigned int round)
{
	struct timespec ts = { .tv_nsec = SHARED_TABLE_SLEEP_NS };

	if (round < SHARED_TABLE_YIELDS)
		sched_yield();
	else
		nanosleep(&ts, NULL);
}

static bool slot_drain(struct local_slot *s, uint64_t base, uint64_t end,
		       uint64_t deadline_ns)
{
	uint64_t owner, uses = atomic_load(&s->uses);
	unsigned int round;

	for (round = 0; (owner = slot_holder(s, base, end)); round++) {
		if (atomic_load(&s->uses) != uses)
			return true;
		if (round % SHARED_TABLE_CHECK_EVERY ==
		    SHARED_TABLE_CHECK_EVERY - 1)
			slot_free_dead(s, owner);
		if (tei_now_ns() >= deadline_ns) {
			slot_free_dead(s, owner);
			return !slot_holder(s, base, end);
		}
		slot_pause(round);
	}
	return true;
}

bool local_slots_drain(struct local_shared_table *b, uint64_t base,
		       uint64_t end, uint64_t deadline_ns)
{
	uint32_t i;

	for (i = 0; i < LOCAL_SLOTS; i++) {
		if (!slot_drain(&b->slots[i], base, end, deadline_ns))
			return false;
	}
	return true;
}

void local_slots_reclaim(struct local_shared_table *b)
{
	uint64_t owner;
	uint32_t i;

	for (i = 0; i < LOCAL_SLOTS; i++) {
		owner = atomic_load(&b->slots[i].owner);
		if (owner)
			slot_free_dead(&b->slots[i], owner);
	}
}
