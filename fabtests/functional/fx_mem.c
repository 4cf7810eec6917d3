/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/common/ft_clock.h"
#include "fabtests/common/ft_pattern.h"
#include "fabtests/functional/fx.h"

#define MEM_SEED 0x5eed
#define MEM_GUARD_BYTE 0xa5

#ifdef FX_SANITIZED
#define MEM_SLOW 3
#else
#define MEM_SLOW 1
#endif

/* Suppresses a wrong report of ThreadSanitizer: libfabric's destructor unlocks
 * a mutex that its constructor has locked, and the sanitizer does not see the
 * lock. */
const char *__tsan_default_suppressions(void)
	__attribute__((visibility("default")));
const char *__tsan_default_suppressions(void)
{
	return "mutex:_dl_call_fini\n";
}

bool fx_slow(void)
{
	return MEM_SLOW > 1;
}

unsigned int fx_ms(unsigned int ms)
{
	return ms * MEM_SLOW * ft_load();
}

unsigned int fx_soon_ms(unsigned int ms)
{
	unsigned int most = FX_PATIENT_S * 800;

	ms = fx_ms(ms);
	return ms < most ? ms : most;
}

unsigned long fx_rss_kib(void)
{
	unsigned long kib = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %lu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib;
}

uint64_t fx_seed(void)
{
	const char *text = getenv("FT_SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : ft_now_ns();

	ft_diag("FT_SEED=%llu repeats this run", (unsigned long long)seed);
	return seed;
}

struct fx_buf fx_buf_map(size_t len, int fd)
{
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	struct fx_buf buf = { .len = len };
	unsigned char *base;

	base = mmap(NULL, len + 2 * FX_GUARD, PROT_READ | PROT_WRITE, flags, fd,
		    0);
	if (base == MAP_FAILED) {
		ft_diag("no memory for %zu bytes", len);
		return buf;
	}
	memset(base, MEM_GUARD_BYTE, FX_GUARD);
	memset(base + FX_GUARD + len, MEM_GUARD_BYTE, FX_GUARD);
	buf.p = base + FX_GUARD;
	buf.addr = (uint64_t)(uintptr_t)buf.p;
	return buf;
}

void fx_buf_unmap(struct fx_buf *buf)
{
	if (buf->p)
		munmap(buf->p - FX_GUARD, buf->len + 2 * FX_GUARD);
	buf->p = NULL;
}

static bool mem_is(const unsigned char *p, uint64_t len, unsigned char byte)
{
	return !len || (p[0] == byte && !memcmp(p, p + 1, len - 1));
}

bool fx_buf_guards(const struct fx_buf *buf)
{
	if (mem_is(buf->p - FX_GUARD, FX_GUARD, MEM_GUARD_BYTE) &&
	    mem_is(buf->p + buf->len, FX_GUARD, MEM_GUARD_BYTE))
		return true;
	ft_diag("a guard zone was written to");
	return false;
}

void fx_buf_fill(struct fx_buf *buf, uint64_t off, uint64_t len,
		 uint64_t sequence)
{
	ft_pattern_fill(buf->p + off, 0, len, MEM_SEED, sequence);
}

bool fx_buf_check(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  uint64_t sequence)
{
	size_t at = ft_pattern_check(buf->p + off, 0, len, MEM_SEED, sequence);

	if (at == len)
		return true;
	ft_diag("byte %zu of %llu at offset %llu is 0x%02x, not 0x%02x", at,
		(unsigned long long)len, (unsigned long long)off,
		buf->p[off + at],
		ft_pattern_byte(at, MEM_SEED, sequence));
	return false;
}

void fx_buf_poison(struct fx_buf *buf, uint64_t off, uint64_t len)
{
	memset(buf->p + off, FX_POISON, len);
}

bool fx_buf_poisoned(const struct fx_buf *buf, uint64_t off, uint64_t len)
{
	uint64_t at = off;

	if (mem_is(buf->p + off, len, FX_POISON))
		return true;
	while (at < off + len && buf->p[at] == FX_POISON)
		at++;
	if (at == off + len)
		ft_diag("a byte was not poison at first, and was poison when "
			"it was read again");
	else
		ft_diag("byte %llu is 0x%02x, not poison",
			(unsigned long long)at, buf->p[at]);
	return false;
}

bool fx_buf_still(const struct fx_buf *buf, uint64_t off, uint64_t len,
		  unsigned int ms)
{
	uint64_t end = ft_now_ns() + (uint64_t)ms * 1000000;
	unsigned char *copy = malloc(len);
	struct timespec pause = { .tv_nsec = 10000000 };
	bool unchanged = copy != NULL;
	uint64_t i = 0;

	if (!copy)
		return false;
	memcpy(copy, buf->p + off, len);
	while (unchanged && ft_now_ns() < end) {
		nanosleep(&pause, NULL);
		unchanged = !memcmp(copy, buf->p + off, len);
	}
	while (!unchanged && i < len && copy[i] == buf->p[off + i])
		i++;
	if (!unchanged)
		ft_diag("byte %llu changed", (unsigned long long)(off + i));
	free(copy);
	return unchanged;
}

unsigned int fx_count_dir(const char *path)
{
	DIR *dir = opendir(path);
	unsigned int n = 0;
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		n += d->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}
