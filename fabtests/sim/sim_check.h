/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_CHECK_H
#define TEI_FABTESTS_SIM_SIM_CHECK_H

/*
 * Patterns in memory, and tombstones, which detect bytes that land too late.
 *
 * A slot is a range of a target's memory. It belongs to one worker of one life
 * of an initiator, which uses it for one transfer at a time. When a transfer
 * has ended, its range in the slot is filled with a tombstone: a pattern that
 * only the checker writes. A byte that lands after its transfer has ended
 * therefore changes the tombstone.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills memory with the pattern of a seed. */
void sim_pattern_fill(void *p, size_t len, uint64_t seed);
/* Returns the offset of the first byte that differs from the pattern, or len if
 * none differs. */
size_t sim_pattern_differs(const void *p, size_t len, uint64_t seed);

/* number of bytes before a range, and after it, that must not change */
#define SIM_GUARD	32

/* A range of memory with a tombstone. If len is 0, there is no tombstone. */
struct sim_tomb {
	char *at;
	size_t len;
	uint64_t seed;
};

/* Writes a tombstone over the `len` bytes at `at` and over the guards before
 * and after them. Each call uses another pattern. */
void sim_tomb_set(struct sim_tomb *tomb, char *at, size_t len);
/* Fails the simulation if a byte of the tombstone or of its guards has changed.
 * `what` names the owner of the range in the message. */
void sim_tomb_verify(const struct sim_tomb *tomb, const char *what);
/* Returns true if the tombstone and its guards are unchanged. */
bool sim_tomb_intact(const struct sim_tomb *tomb);
/* Checks only the guards of the tombstone; the bytes between them may have
 * changed. */
void sim_tomb_verify_guards(const struct sim_tomb *tomb, const char *what);

/*
 * Reports that a check has failed: prints the text and ends the process with
 * status SIM_EXIT_FOUND. The parent process of a simulation then searches for a
 * smaller plan of faults.
 */
#define SIM_EXIT_FOUND	3
void sim_found(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));

/* Makes sim_found call fn before it ends the process. */
void sim_on_found(void (*fn)(void));

#endif /* TEI_FABTESTS_SIM_SIM_CHECK_H */
