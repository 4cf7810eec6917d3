/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_LOCAL_LOCAL_MEMFD_H
#define TEI_PROV_LOCAL_LOCAL_MEMFD_H

/* Sealed memfds of this process and of other processes. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "prov/local/tei_local.h"

/*
 * Creates a memfd of that size, sealed against a change of its size. flags are
 * flags of memfd_create. Returns the file descriptor, or -1 with errno set:
 * EFBIG if the size exceeds RLIMIT_FSIZE.
 */
int local_memfd_create(const char *name, unsigned int flags, uint64_t size);

/* Returns the inode number of the file, or 0. */
uint64_t local_memfd_inode(int fd);

/* The properties that a memfd of another process must have. */
struct local_memfd_want {
	uint64_t size;		/* bytes */
	uint64_t inode;		/* inode number; 0: any */
	bool huge;		/* its pages come from a pool of huge pages */
	bool same_user;		/* it belongs to the effective user of this
				 * process */
};

/*
 * Opens a memfd of another process for reading and writing. The number may be
 * any file descriptor, such as a device, so the file is checked with O_PATH
 * before it is opened. The kernel requires ptrace access to the process. If the
 * result is TEI_LOCAL_OK, the caller closes *out.
 */
enum tei_local_reason local_memfd_open(pid_t pid, int number,
				       const struct local_memfd_want *want,
				       int *out);

#endif /* TEI_PROV_LOCAL_LOCAL_MEMFD_H */
