/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/cuda_stand_in.h"
#include "fabtests/common/cufile_stand_in.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct stand_in_call {
	const char *name;
	size_t at;
};

static const struct stand_in_call stand_in_calls[] = {
	{ "cuInit", offsetof(struct cuda_stand_in, init) },
	{ "cuCtxCreate_v2", offsetof(struct cuda_stand_in, ctx_create) },
	{ "cuCtxDestroy_v2", offsetof(struct cuda_stand_in, ctx_destroy) },
	{ "cuCtxPushCurrent_v2", offsetof(struct cuda_stand_in, push) },
	{ "cuCtxPopCurrent_v2", offsetof(struct cuda_stand_in, pop) },
	{ "cuMemAlloc_v2", offsetof(struct cuda_stand_in, alloc) },
	{ "cuMemFree_v2", offsetof(struct cuda_stand_in, free) },
	{ "cuMemcpyHtoD_v2", offsetof(struct cuda_stand_in, to_device) },
	{ "cuMemcpyDtoH_v2", offsetof(struct cuda_stand_in, to_host) },
	{ "stand_in_fail", offsetof(struct cuda_stand_in, fail) },
	{ "stand_in_failing", offsetof(struct cuda_stand_in, failing) },
	{ "stand_in_alias", offsetof(struct cuda_stand_in, alias) },
	{ "stand_in_capture", offsetof(struct cuda_stand_in, capture) },
	{ "stand_in_hold", offsetof(struct cuda_stand_in, hold) },
	{ "stand_in_left", offsetof(struct cuda_stand_in, left) },
	{ "stand_in_copies", offsetof(struct cuda_stand_in, copies) },
	{ "stand_in_queued", offsetof(struct cuda_stand_in, queued) },
	{ "stand_in_map", offsetof(struct cuda_stand_in, map) },
	{ "stand_in_unmap", offsetof(struct cuda_stand_in, unmap) },
};

static const struct stand_in_call cufile_calls[] = {
	{ "stand_in_cufile_fail", offsetof(struct cufile_stand_in, fail) },
	{ "stand_in_cufile_shorten",
	  offsetof(struct cufile_stand_in, shorten) },
	{ "stand_in_cufile_moves", offsetof(struct cufile_stand_in, moves) },
	{ "stand_in_cufile_left", offsetof(struct cufile_stand_in, left) },
};

/* Composes the path build/test/LIBRARY from the path of the running program,
 * which is build/fabtests/PROGRAM or build/test/PROGRAM. */
static bool stand_in_path(const char *library, char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len - 1);
	char *slash;

	if (n <= 0)
		return false;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return false;
	snprintf(slash, len - (size_t)(slash - path), "/../test/%s", library);
	return true;
}

static bool stand_in_load(const char *name, const struct stand_in_call *calls,
			  size_t n, void *out)
{
	char path[4096];
	void *library, *f;
	size_t i;

	if (!stand_in_path(name, path, sizeof(path)))
		return false;
	library = dlopen(path, RTLD_NOW);
	if (!library) {
		printf("# %s\n", dlerror());
		return false;
	}
	for (i = 0; i < n; i++) {
		f = dlsym(library, calls[i].name);
		if (!f) {
			printf("# %s has no %s\n", path, calls[i].name);
			return false;
		}
		memcpy((char *)out + calls[i].at, &f, sizeof(f));
	}
	return true;
}

bool cuda_stand_in_load(struct cuda_stand_in *cuda)
{
	return stand_in_load("libcuda.so.1", stand_in_calls,
			     sizeof(stand_in_calls) / sizeof(stand_in_calls[0]),
			     cuda) &&
	       !cuda->init(0);
}

bool cufile_stand_in_load(struct cufile_stand_in *cufile)
{
	return stand_in_load("libcufile.so.0", cufile_calls,
			     sizeof(cufile_calls) / sizeof(cufile_calls[0]),
			     cufile);
}

uint64_t cuda_stand_in_memory(const struct cuda_stand_in *cuda, int device,
			      size_t size, void **context)
{
	uint64_t addr = 0;
	void *none;

	if (cuda->ctx_create(context, 0, device))
		return 0;
	if (cuda->alloc(&addr, size))
		addr = 0;
	cuda->pop(&none);
	return addr;
}

bool cuda_stand_in_await(const struct cuda_stand_in *cuda, bool queued)
{
	unsigned int ms;

	for (ms = 0; ms < 10000 && (cuda->queued() > 0) != queued; ms++)
		usleep(1000);
	return (cuda->queued() > 0) == queued;
}

bool cuda_stand_in_mapped(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	bool found = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, "libcuda") != NULL;
	if (f)
		fclose(f);
	return found;
}
