/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_CHECK_H
#define TEI_FABTESTS_SIM_SIM_CHECK_H

/*
 * Patterns in memory, and the slots of a host's memory.
 *
 * A slot is a range of a target's memory that one worker of one life of an
 * initiator uses, for one transfer at a time. While no transfer uses the slot,
 * its used range holds a pattern that only the checker has written (its
 * tombstone). A byte that lands after its transfer has ended therefore destroys
 * the tombstone.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Fills memory with the pattern of a seed. */
void sim_pattern_fill(void *p, size_t len, uint64_t seed);
/* Returns the offset of the first byte that differs from the pattern, or len. */
size_t sim_pattern_differs(const void *p, size_t len, uint64_t seed);

/* The number of bytes before and after a range that must not change. */
#define SIM_GUARD	32

/* A range of memory with a tombstone. len 0: none. */
struct sim_tomb {
	char *at;
	size_t len;
	uint64_t seed;
};

/* Writes a tombstone over len bytes and the guards around them. Each call uses
 * another pattern. */
void sim_tomb_set(struct sim_tomb *tomb, char *at, size_t len);
/* Ends the simulation as failed if a byte of the tombstone has changed. what: the
 * owner, for the message. */
void sim_tomb_verify(const struct sim_tomb *tomb, const char *what);
/* As sim_tomb_verify, but the bytes between the guards may have changed. */
void sim_tomb_verify_guards(const struct sim_tomb *tomb, const char *what);

/*
 * Reports that a rule is broken: prints the text and ends the process with status
 * SIM_EXIT_FOUND, so that a parent process can search for a smaller schedule.
 */
#define SIM_EXIT_FOUND	3
void sim_found(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));

/* Calls fn before the process ends because of sim_found. */
void sim_on_found(void (*fn)(void));

#endif /* TEI_FABTESTS_SIM_SIM_CHECK_H */
