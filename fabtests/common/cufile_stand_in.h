/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H
#define TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H

/*
 * A libcufile.so.0 without GPUDirect Storage, for tests: beside the driver of
 * cuda_stand_in.h, whose memory it knows. It asks for what the real one asks
 * for (a descriptor opened with O_DIRECT, registered memory, a current
 * context) and moves the bytes by the page cache.
 */

#include <stdbool.h>
#include <stddef.h>

struct cufile_stand_in {
	/* The call, by its name, fails with that result, after so many that do
	 * as they are told, for so many times. cuFileRead and cuFileWrite
	 * answer it as it is, -1 with errno EIO. */
	void (*fail)(const char *call, unsigned int after, unsigned int times,
		     int result);
	/* No call moves more bytes than that; 0: any number. */
	void (*shorten)(size_t bytes);
	/* Calls to move bytes, ever. */
	unsigned int (*moves)(void);
	/* Files and memory that are registered. */
	unsigned int (*left)(void);
};

/* Loads it, as cuda_stand_in_load does the driver, which comes first: from then
 * on it is what is found. */
bool cufile_stand_in_load(struct cufile_stand_in *cufile);

#endif /* TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H */
