/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_CUDA_INT_H
#define TEI_UTIL_CUDA_INT_H

/* Private to util/cuda.c and util/cuda_ipc.c: the functions of the driver. */

#include "util/cuda.h"

/* attributes of a pointer */
enum {
	CUDA_POINTER_CONTEXT = 1,
	CUDA_POINTER_MEMORY_TYPE = 2,
	CUDA_POINTER_IS_MANAGED = 8,
	CUDA_POINTER_DEVICE_ORDINAL = 9,
	CUDA_POINTER_RANGE_START = 11,
	CUDA_POINTER_RANGE_SIZE = 12,
};

struct cuda_location {			/* like CUmemLocation of cuda.h */
	int type, id;
};

struct cuda_chunk_prop {		/* like CUmemAllocationProp */
	int type, handles;
	struct cuda_location location;
	void *meta;
	unsigned char flags[8];
};

struct cuda_access {			/* like CUmemAccessDesc */
	struct cuda_location location;
	int flags;
};

/* Functions for physical memory that is mapped to addresses; NULL if the library
 * does not have them. In their types, the handle of physical memory is a
 * uint64_t. */
struct cuda_chunk_calls {
	int (*current)(int *);
	int (*range)(uint64_t *, size_t *, uint64_t);
	int (*retain)(uint64_t *, void *);
	int (*release)(uint64_t);
	int (*properties)(struct cuda_chunk_prop *, uint64_t);
	int (*give)(void *, uint64_t, int, unsigned long long);
	int (*take)(uint64_t *, void *, int);
	int (*reserve)(uint64_t *, size_t, size_t, uint64_t,
		       unsigned long long);
	int (*unreserve)(uint64_t, size_t);
	int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
	int (*unmap)(uint64_t, size_t);
	int (*access)(uint64_t, size_t, const struct cuda_access *, size_t);
};

/* Pointers to the functions of the driver library. In their types, uint64_t
 * stands for CUdeviceptr and void * for a handle. */
struct tei_cuda {
	void *library;
	int (*name)(int, const char **);
	int (*pointer)(unsigned int, const int *, void **, uint64_t);
	int (*device)(int *, int);
	int (*primary_state)(int, unsigned int *, int *);
	int (*primary_retain)(void **, int);
	int (*primary_release)(int);
	int (*push)(void *);
	int (*pop)(void **);
	int (*alloc)(uint64_t *, size_t);
	int (*free)(uint64_t);
	int (*set)(uint64_t, unsigned char, size_t);
	int (*wait)(void);
	int (*pin)(void *, size_t, unsigned int);
	int (*unpin)(void *);
	int (*copy)(uint64_t, uint64_t, size_t, void *);
	int (*stream_create)(void **, unsigned int);
	int (*stream_destroy)(void *);
	int (*stream_query)(void *);
	int (*event_create)(void **, unsigned int);
	int (*event_destroy)(void *);
	int (*event_record)(void *, void *);
	int (*event_query)(void *);
	int (*capture_mode)(int *);

	/* functions that are newer than CUDA 11.0, and functions that are used
	 * only for memory of other processes; NULL if the library does not have
	 * them */
	int (*range_handle)(void *, uint64_t, size_t, int, unsigned long long);
	int (*pointer_set)(const void *, int, uint64_t);
	int (*flags)(unsigned int *);
	int (*flags_set)(unsigned int);
	int (*device_count)(int *);
	int (*device_uuid)(void *, int);
	int (*ipc_get)(struct tei_cuda_handle *, uint64_t);
	int (*ipc_open)(uint64_t *, struct tei_cuda_handle, unsigned int);
	int (*ipc_close)(uint64_t);
	struct cuda_chunk_calls chunks;
};

/* Fills *err with an error that is not one of the driver. */
void cuda_explain(struct tei_err *err, int code, const char *text);
/* Returns 0 if result is 0. Otherwise fills err with the error `result` of the
 * driver call `call`, and returns err's code. */
int cuda_check(const struct tei_cuda *cuda, int result, const char *call,
	       struct tei_err *err);

#endif /* TEI_UTIL_CUDA_INT_H */
