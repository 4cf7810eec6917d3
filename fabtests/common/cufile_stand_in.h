/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H
#define TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H

/*
 * A libcufile.so.0 without GPUDirect Storage, for tests. It copies through the
 * page cache between files and the GPU memory of cuda_stand_in.h. Like the real
 * library, it requires a file descriptor opened with O_DIRECT, registered
 * memory and a current context.
 */

#include <stdbool.h>
#include <stddef.h>

struct cufile_stand_in {
	/* Makes a function fail `times` times with `result`, after `after`
	 * calls that succeed. cuFileRead and cuFileWrite return `result`
	 * unchanged; -1 means that errno is EIO. */
	void (*fail)(const char *call, unsigned int after, unsigned int times,
		     int result);
	/* Limits the number of bytes that one call moves; 0 means no limit. */
	void (*shorten)(size_t bytes);
	/* Returns the number of calls to cuFileRead and cuFileWrite so far. */
	unsigned int (*moves)(void);
	/* Returns the number of files and memory ranges that are still
	 * registered. */
	unsigned int (*left)(void);
};

/* Loads this stand-in after cuda_stand_in_load has loaded the CUDA driver. If a
 * test has loaded it, the library finds it instead of the real libcufile.
 * Returns false if it cannot be loaded. */
bool cufile_stand_in_load(struct cufile_stand_in *cufile);

#endif /* TEI_FABTESTS_COMMON_CUFILE_STAND_IN_H */
