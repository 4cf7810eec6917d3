/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies bytes between memory of the caller and target memory that this process
 * can access. */
#include <string.h>

#include "prov/local/local_move.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define MOVE_HIDES_TARGET
#endif

#ifdef MOVE_HIDES_TARGET
/* functions of the runtime library of ThreadSanitizer */
void __tsan_read_range(void *addr, unsigned long size);
void __tsan_write_range(void *addr, unsigned long size);

/* The bytes are volatile because the compiler could replace the loop by
 * memmove, whose accesses ThreadSanitizer sees. */
__attribute__((no_sanitize("thread"))) static void
move_bytes(volatile char *to, const volatile char *from, uint64_t length)
{
	uint64_t i;

	if ((uintptr_t)to <= (uintptr_t)from) {
		for (i = 0; i < length; i++)
			to[i] = from[i];
	} else {
		for (i = length; i > 0; i--)
			to[i - 1] = from[i - 1];
	}
}

void local_move(bool write, char *local, char *remote, uint64_t length)
{
	volatile char *to = write ? remote : local;
	const volatile char *from = write ? local : remote;

	if (write)
		__tsan_read_range(local, length);
	else
		__tsan_write_range(local, length);
	move_bytes(to, from, length);
}
#else
void local_move(bool write, char *local, char *remote, uint64_t length)
{
	if (write)
		memmove(remote, local, length);
	else
		memmove(local, remote, length);
}
#endif
