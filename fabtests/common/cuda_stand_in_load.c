/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/cuda_stand_in.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
	const char *name;
	size_t at;
} stand_in_calls[] = {
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
	{ "stand_in_alias", offsetof(struct cuda_stand_in, alias) },
	{ "stand_in_capture", offsetof(struct cuda_stand_in, capture) },
	{ "stand_in_hold", offsetof(struct cuda_stand_in, hold) },
	{ "stand_in_left", offsetof(struct cuda_stand_in, left) },
	{ "stand_in_copies", offsetof(struct cuda_stand_in, copies) },
};

/* build/fabtests/program or build/test/program: build/test/libcuda.so.1 */
static bool stand_in_path(char *path, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", path, len - 1);
	char *slash;

	if (n <= 0)
		return false;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return false;
	snprintf(slash, len - (size_t)(slash - path),
		 "/../test/libcuda.so.1");
	return true;
}

bool cuda_stand_in_load(struct cuda_stand_in *cuda)
{
	char path[4096];
	void *library, *f;
	size_t i;

	if (!stand_in_path(path, sizeof(path)))
		return false;
	library = dlopen(path, RTLD_NOW);
	if (!library) {
		printf("# %s\n", dlerror());
		return false;
	}
	for (i = 0; i < sizeof(stand_in_calls) / sizeof(stand_in_calls[0]);
	     i++) {
		f = dlsym(library, stand_in_calls[i].name);
		if (!f) {
			printf("# %s has no %s\n", path,
			       stand_in_calls[i].name);
			return false;
		}
		memcpy((char *)cuda + stand_in_calls[i].at, &f, sizeof(f));
	}
	return !cuda->init(0);
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
