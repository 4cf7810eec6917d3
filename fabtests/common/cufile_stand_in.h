/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H
#define TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H

/*
 * A libcufile.so.0 without GPUDirect Storage, for tests. It moves bytes between
 * files and the memory of the driver in cuda_stand_in.h through the page cache.
 * It makes the same demands as the real library: a file descriptor opened with
 * O_DIRECT, registered memory and a current context.
 */

#include <stdbool.h>
#include <stddef.h>

struct cufile_stand_in {
	/* Makes a call fail with that result `times` times, after it has
	 * succeeded `after` times. cuFileRead and cuFileWrite return the result
	 * unchanged; -1 stands for errno EIO. */
	void (*fail)(const char *call, unsigned int after, unsigned int times,
		     int result);
	/* Limits the bytes that one call moves; 0 means no limit. */
	void (*shorten)(size_t bytes);
	/* Returns the number of calls to cuFileRead and cuFileWrite so far. */
	unsigned int (*moves)(void);
	/* Returns the number of registered files and memory ranges. */
	unsigned int (*left)(void);
};

/* Loads the stand-in as cuda_stand_in_load loads the driver, which must be
 * loaded first. From then on the library finds it. */
bool cufile_stand_in_load(struct cufile_stand_in *cufile);

#endif /* TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H */
