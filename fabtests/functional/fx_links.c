/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fabtests/functional/fx_links.h"

/* number of bytes moved to check that both rails carry data */
#define LINKS_MOVE (2 * FX_MIB)
#define LINKS_BLOCK (512 * FX_KIB)

bool fx_links_are(void)
{
	return getenv("RAILS_ID") != NULL;
}

int fx_links_inside(char **argv, const char *control)
{
	const char *src = getenv("SRC");
	char path[512], self[512], rate[16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (!src || n < 0)
		return ft_skip("SRC is not set");
	self[n] = '\0';
	snprintf(path, sizeof(path), "%s/fabtests/scripts/rails.sh", src);
	snprintf(rate, sizeof(rate), "%dmbit", FX_LINKS_MBIT);
	execlp("sh", "sh", path, "up", "-c", control, rate, rate, "--",
	       "rails_run", "a", self, argv[1], argv[1] ? argv[2] : NULL,
	       (char *)NULL);
	return FT_FAIL;
}

bool fx_links_do(const char *what)
{
	char line[512];
	int ret;

	snprintf(line, sizeof(line),
		 "sh \"$SRC/fabtests/scripts/rails.sh\" on \"$RAILS_ID\" %s",
		 what);
	ret = system(line);
	if (ret)
		ft_diag("%s: %d", what, ret);
	return !ret;
}

bool fx_links_rates(int mbit)
{
	char what[32];
	bool good = true;

	for (int i = 0; i < 2 && good; i++) {
		snprintf(what, sizeof(what), "rate %d %dmbit", i, mbit);
		good = fx_links_do(what);
	}
	return good;
}

struct te_rail_stats fx_links_stats(const struct fx_links *links,
				    const char *rail)
{
	struct te_rail_stats stats[8];
	size_t n = 8;

	if (!te_rail_stats(links->engine, stats, sizeof(stats[0]), &n))
		for (size_t i = 0; i < n && i < 8; i++)
			if (!strcmp(stats[i].name, rail))
				return stats[i];
	memset(stats, 0, sizeof(stats[0]));
	return stats[0];
}

uint64_t fx_links_crossed(void)
{
	unsigned long long n, sum = 0;
	char path[64];
	FILE *f;

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path),
			 "/sys/class/net/r%d/statistics/tx_bytes", i);
		f = fopen(path, "r");
		if (f && fscanf(f, "%llu", &n) == 1)
			sum += n;
		if (f)
			fclose(f);
	}
	return sum;
}

static uint64_t links_carried(const struct fx_links *links, const char *rail)
{
	struct te_rail_stats s = fx_links_stats(links, rail);

	return s.tx_bytes + s.rx_bytes;
}

bool fx_links_mended(struct fx_links *links)
{
	uint64_t end = ft_now_ns() + FX_LONG_MS * UINT64_C(1000000);
	uint64_t was[2] = { links_carried(links, "r0"),
			    links_carried(links, "r1") };
	uint64_t at = links->mem.len - LINKS_MOVE;
	bool good = true, both = false;

	while (good && !both && ft_now_ns() < end) {
		good = fx_move(links->engine, links->seg, OPCODE_WRITE,
			       links->mem.p + at, links->target.mem.addr + at,
			       LINKS_MOVE, LINKS_BLOCK);
		both = links_carried(links, "r0") - was[0] >= LINKS_BLOCK &&
		       links_carried(links, "r1") - was[1] >= LINKS_BLOCK;
	}
	return good && both;
}

/* Moves data until both rails have carried some. Returns false if a move fails,
 * which may happen while the first connections are made. */
static bool links_carry(void *links)
{
	return fx_links_mended(links);
}

bool fx_links_target(struct fx_peer *target, size_t mem)
{
	char netns[128];

	snprintf(netns, sizeof(netns), "netns=%s", getenv("RAILS_PEER"));
	return fx_peer_start(target, mem, "host=10.77.0.2", netns, NULL) &&
	       !fx_ask(target, "reg 0 %zu 1", mem);
}

static bool links_one_carries(const struct fx_links *links)
{
	uint64_t at = links->mem.len - LINKS_MOVE;

	return fx_move_until(links->engine, links->seg, OPCODE_WRITE,
			     links->mem.p + at, links->target.mem.addr + at,
			     LINKS_MOVE, LINKS_BLOCK, FX_LONG_MS);
}

bool fx_links_start_on(struct fx_links *links, const char *devices, size_t mem)
{
	setenv("MOONRAIL_DEVICES", devices, 1);
	links->mem = fx_buf_map(mem + LINKS_MOVE, -1);
	links->engine = createTransferEngine("P2PHANDSHAKE", "10.77.0.1",
					     "10.77.0.1", 0, 0);
	if (!links->mem.p || !links->engine ||
	    !installTransport(links->engine, "tcp", NULL) ||
	    !fx_register(links->engine, &links->mem) ||
	    !fx_links_target(&links->target, links->mem.len))
		return false;
	links->seg = openSegment(links->engine, links->target.name);
	if (links->seg < 0)
		return false;
	return strchr(devices, ',') ?
		       ft_wait_until(links_carry, links, FX_LONG_MS) :
		       links_one_carries(links);
}

bool fx_links_start(struct fx_links *links, size_t mem)
{
	return fx_links_start_on(links, "r0,r1", mem);
}

void fx_links_stop(struct fx_links *links)
{
	ft_ok(fx_buf_guards(&links->mem) && fx_buf_guards(&links->target.mem),
	      "guard_zones_are_unchanged");
	ft_ok(fx_peer_stop(&links->target), "target_ends_well");
	destroyTransferEngine(links->engine);
	fx_buf_unmap(&links->mem);
}
