/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/functional/fx_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the peer's side ----------------------------------------------------- */

static int gpu_register(const struct fx_gpu *gpu, transfer_engine_t engine,
			size_t len, int remote)
{
	return registerLocalMemory(engine, (void *)(uintptr_t)gpu->addr, len,
				   "*", remote);
}

static int gpu_make(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		    transfer_engine_t engine, size_t len, const char *args,
		    char *text)
{
	if (!make(gpu, len))
		return FX_NO_ANSWER;
	snprintf(text, 32, "%llu", (unsigned long long)gpu->addr);
	return gpu_register(gpu, engine, len, atoi(args));
}

int fx_gpu_obey(struct fx_gpu *gpu, bool (*make)(struct fx_gpu *, size_t),
		transfer_engine_t engine, struct fx_buf *mem, const char *verb,
		const char *args, char *text)
{
	unsigned long long off, len;

	if (!strcmp(verb, "gpu"))
		return gpu_make(gpu, make, engine, mem->len, args, text);
	if (!strcmp(verb, "ungpu"))
		return unregisterLocalMemory(engine,
					     (void *)(uintptr_t)gpu->addr);
	if (!strcmp(verb, "regpu"))
		return gpu_register(gpu, engine, mem->len, 1);
	if (sscanf(args, "%llu %llu", &off, &len) != 2)
		return FX_NO_ANSWER;
	if (!strcmp(verb, "load"))
		return gpu->to_device(gpu->addr + off, mem->p + off, len);
	if (!strcmp(verb, "store"))
		return gpu->to_host(mem->p + off, gpu->addr + off, len);
	return FX_NO_ANSWER;
}

/* --- the test's ---------------------------------------------------------- */

uint64_t fx_gpu_target(struct fx_peer *peer, size_t len, const char *option)
{
	if (!fx_peer_start(peer, len, option, NULL) || fx_ask(peer, "gpu 1"))
		return 0;
	return strtoull(peer->text, NULL, 10);
}

bool fx_gpu_put(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence)
{
	if (sequence)
		fx_buf_fill(&peer->mem, off, len, sequence);
	else
		fx_buf_poison(&peer->mem, off, len);
	return !len || !fx_ask(peer, "load %llu %llu", (unsigned long long)off,
			       (unsigned long long)len);
}

bool fx_gpu_has(struct fx_peer *peer, uint64_t off, uint64_t len,
		uint64_t sequence)
{
	if (!len)
		return true;
	/* neither of the two, should nothing come */
	memset(peer->mem.p + off, 0x11, len);
	if (fx_ask(peer, "store %llu %llu", (unsigned long long)off,
		   (unsigned long long)len))
		return false;
	return sequence ? fx_buf_check(&peer->mem, off, len, sequence) :
			  fx_buf_poisoned(&peer->mem, off, len);
}
