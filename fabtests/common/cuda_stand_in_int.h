/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_COMMON_CUDA_STAND_IN_INT_H
#define TEI_FABTESTS_COMMON_CUDA_STAND_IN_INT_H

/* Private to the stand-in driver. */

#include "fabtests/common/cuda_stand_in.h"

#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))
#define DEVICES 2

enum {
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
	INVALID_DEVICE = 101, INVALID_CONTEXT = 201, ALREADY_REGISTERED = 712,
	NOT_REGISTERED = 713, INVALID_HANDLE = 400, NOT_READY = 600,
	NOT_SUPPORTED = 801,
	CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
};

struct context {
	int device;
	/* true: a primary context, as the library uses it; its memory may be
	 * freed only while a context is current */
	bool strict;
	unsigned int flags;
	bool gone;			/* true: destroyed. A primary context
					 * exists again after it is retained
					 * again */
};

struct chunk;				/* physical memory from cuMemCreate */

/* Addresses from cuMemAddressReserve. */
struct reserve {
	uint64_t base;			/* if 0, the slot is free */
	char *alias;			/* address of the accessible mappings */
	size_t size;
	bool own;			/* reserved by stand_in_map */
};

struct memory {
	uint64_t base;			/* address of a range that is mapped
					 * without access; if 0, the slot is
					 * free */
	char *alias;			/* accessible mapping of the same
					 * bytes */
	size_t size;
	struct context *context;	/* NULL: from cuMemMap */
	int device;
	unsigned int opened;		/* number of times that the memory of
					 * another process was opened; 0: the
					 * memory belongs to this process */
	ino_t inode;
	int fd;				/* memfd behind both mappings */
	/* true: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is set */
	bool sync_calls;
	/* addresses that the memory is mapped to; NULL: it is from cuMemAlloc
	 * or opened */
	struct reserve *reserve;
	struct chunk *chunk;		/* from cuMemMap: its physical memory */
	unsigned int access;		/* from cuMemMap: bit i is set if GPU i has
					 * access */
};

/* Returns the context of the calling thread, or NULL. */
struct context *driver_current(void);

/* Takes the lock and checks whether the call is allowed. Returns OK with the
 * lock held, or an error code with the lock released. */
int driver_enter(const char *call, bool in_context);
/* Checks like `driver_enter` a call that CUDA forbids while another thread
 * captures a stream. It is allowed if the calling thread's capture mode is
 * relaxed. Otherwise it invalidates the capture. */
int driver_enter_unsafe(const char *call);
/* Releases the lock. Returns ret. */
int driver_leave(int ret);

/* The lock is held during the calls below. */

/* Returns the memory that contains the address, or NULL. */
struct memory *driver_memory_at(uint64_t addr);
/* Returns an unused element, or NULL. */
struct memory *driver_memory_room(void);
/* Creates a file of GPU memory. Returns its file descriptor, or -1. */
int driver_file(size_t size);
/* Adds a use of the primary context of a device, or removes one. The last removal
 * destroys the context. */
void driver_primary_use(int device, bool on);
/* Returns true if the environment variable that refuses memory of other
 * processes has that value. */
bool driver_refuses(const char *where);

/* Waits while stand_in_hold holds back calls that unmap memory of another
 * process. */
void driver_close_wait(void);

/* Returns the accessible address of a range of mapped memory, or NULL if not all
 * of it is mapped and accessible for the current context. */
void *driver_mapped_bytes(uint64_t addr, size_t len);
/* Returns the number of imported chunks, retained handles and reserved ranges
 * that the library has not released. */
unsigned int driver_mapped_left(void);

#endif /* TEI_FABTESTS_COMMON_CUDA_STAND_IN_INT_H */
