/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Tests on a machine with two NUMA nodes. Each node has a NIC (nicN) and a disk
 * (/dev/nodeN). A third disk is in memory. run_in_vm.sh -fn provides such a
 * machine; elsewhere the test is skipped.
 */

#include <dirent.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fabtests/common/cuda_stand_in.h"
#include "fabtests/functional/fx.h"

#define NUMA_HALF (2 * FX_MIB)
#define NUMA_MEM (2 * NUMA_HALF)
#define NUMA_BLOCK (64 * FX_KIB)

static struct {
	transfer_engine_t engine;
	unsigned char *mem;		/* NUMA_MEM bytes: the first half on
					 * NUMA node 0, the second on node 1 */
	struct fx_buf buf;		/* `mem` as a buffer without guard
					 * zones */
	struct fx_peer target;
	segment_id_t seg, own;
} rig;

/* Binds the range to the NUMA node and allocates its pages there. Returns true
 * on success. */
static bool on_node(void *mem, size_t len, int node)
{
	unsigned long bits = 1ul << node;

	if (syscall(SYS_mbind, mem, len, MPOL_BIND, &bits, 8 * sizeof(bits),
		    0))
		return false;
	memset(mem, 1, len);
	return true;
}

static bool numa_start(void)
{
	char name[128];

	rig.mem = mmap(NULL, NUMA_MEM, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (rig.mem == MAP_FAILED || !on_node(rig.mem, NUMA_HALF, 0) ||
	    !on_node(rig.mem + NUMA_HALF, NUMA_HALF, 1))
		return false;
	rig.buf.p = rig.mem;
	rig.buf.len = NUMA_MEM;
	setenv("MOONRAIL_DEVICES", "nic0,nic1", 1);
	rig.engine = fx_engine("tcp");
	if (!rig.engine || !fx_register(rig.engine, &rig.buf) ||
	    !fx_target_start(&rig.target, NUMA_MEM) ||
	    !fx_engine_name(rig.engine, name, sizeof(name)))
		return false;
	rig.seg = openSegment(rig.engine, rig.target.name);
	rig.own = openSegment(rig.engine, name);
	return rig.seg >= 0 && rig.own >= 0;
}

static bool is_buffer(const struct te_buffer *b, const void *addr,
		      uint64_t len, const char *location)
{
	ft_diag("%llu bytes, %s", (unsigned long long)b->length, b->location);
	return b->addr == (uintptr_t)addr && b->length == len &&
	       !strcmp(b->location, location);
}

static bool halves_are_told_apart(void)
{
	struct te_buffer b[4];
	size_t n = 4;

	return !te_segment_buffers(rig.engine, rig.own, b, sizeof(b[0]), &n) &&
	       n == 2 && is_buffer(&b[0], rig.mem, NUMA_HALF, "cpu:0") &&
	       is_buffer(&b[1], rig.mem + NUMA_HALF, NUMA_HALF, "cpu:1");
}

/* Returns true if, for memory of this node, exactly the paths over the NIC of
 * this node have the rank TE_PATH_NEAR. */
static bool ranked_for(int node)
{
	struct te_path paths[8];
	char location[16];
	size_t i, n = 8;
	bool good;

	snprintf(location, sizeof(location), "cpu:%d", node);
	good = !te_segment_paths(rig.engine, rig.seg, location, paths,
				 sizeof(paths[0]), &n) && n >= 2;
	for (i = 0; good && i < n; i++) {
		ft_diag("%s: %s on node %d, rank %u", location, paths[i].rail,
			paths[i].numa_node, paths[i].rank);
		good = paths[i].numa_node == paths[i].rail[3] - '0' &&
		       (paths[i].rank == TE_PATH_NEAR) ==
		       (paths[i].numa_node == node);
	}
	return good;
}

static uint64_t carried(const char *rail)
{
	struct te_rail_stats stats[8];
	size_t i, n = 8;

	if (te_rail_stats(rig.engine, stats, sizeof(stats[0]), &n))
		return 0;
	for (i = 0; i < n && i < 8; i++)
		if (!strcmp(stats[i].name, rail))
			return stats[i].tx_bytes;
	return 0;
}

/* Writes the half of the memory that is on this node, one block after the
 * other. Returns true if the NIC of this node carries most of the bytes. */
static bool goes_by(int node)
{
	char near[8], far[8];
	uint64_t at, was[2], now[2], from = (uint64_t)node * NUMA_HALF;
	bool good = true;

	snprintf(near, sizeof(near), "nic%d", node);
	snprintf(far, sizeof(far), "nic%d", !node);
	was[0] = carried(near);
	was[1] = carried(far);
	fx_buf_fill(&rig.buf, from, NUMA_HALF, 7);
	for (at = 0; good && at < NUMA_HALF; at += NUMA_BLOCK)
		good = fx_move(rig.engine, rig.seg, OPCODE_WRITE,
			       rig.mem + from + at, rig.target.mem.addr + at,
			       NUMA_BLOCK, 0);
	now[0] = carried(near) - was[0];
	now[1] = carried(far) - was[1];
	ft_diag("node %d: %llu bytes by %s, %llu by %s", node,
		(unsigned long long)now[0], near, (unsigned long long)now[1],
		far);
	return good && now[0] > now[1] &&
	       fx_buf_check(&rig.target.mem, 0, NUMA_HALF, 7);
}

/* Returns the number of threads of this process that may run only on the
 * processor of this node. */
static unsigned int bound_to(int node)
{
	char path[300], want[64], line[256];
	struct dirent *d;
	unsigned int n = 0;
	DIR *dir = opendir("/proc/self/task");
	FILE *f;

	snprintf(want, sizeof(want), "Cpus_allowed_list:\t%d\n", node);
	while (dir && (d = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/status",
			 d->d_name);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f))
			n += !strcmp(line, want);
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return n;
}

/* Counts the memory mappings that prefer this node: *there of them have pages
 * on the node, *else_ have pages on the other node. */
static void count_preferring(int node, unsigned int *there, unsigned int *else_)
{
	char policy[32], here[16], other[16], line[1024];
	FILE *f = fopen("/proc/self/numa_maps", "re");

	*there = *else_ = 0;
	snprintf(policy, sizeof(policy), ":%d ", node);
	snprintf(here, sizeof(here), " N%d=", node);
	snprintf(other, sizeof(other), " N%d=", !node);
	while (f && fgets(line, sizeof(line), f)) {
		if (!strstr(line, " prefer") || !strstr(line, policy))
			continue;
		*there += strstr(line, here) != NULL;
		*else_ += strstr(line, other) != NULL;
	}
	if (f)
		fclose(f);
}

/* Returns true if mappings that prefer this node exist (the buffers of its
 * rail) and all their pages are on the node. */
static bool buffers_near(int node)
{
	unsigned int there, elsewhere;

	count_preferring(node, &there, &elsewhere);
	ft_diag("mappings that prefer node %d: %u with pages there, %u with "
		"pages elsewhere",
		node, there, elsewhere);
	return there > 0 && !elsewhere;
}

/* Returns the number of pages on this node in mappings that prefer it. */
static unsigned long pages_near(int node)
{
	char policy[32], here[16], line[1024], *at;
	FILE *f = fopen("/proc/self/numa_maps", "re");
	unsigned long n = 0;

	snprintf(policy, sizeof(policy), ":%d ", node);
	snprintf(here, sizeof(here), " N%d=", node);
	while (f && fgets(line, sizeof(line), f)) {
		at = strstr(line, here);
		if (at && strstr(line, " prefer") && strstr(line, policy))
			n += strtoul(at + strlen(here), NULL, 10);
	}
	if (f)
		fclose(f);
	return n;
}

/* Writes GPU memory of the stand-in over the NIC of this node. Returns true if
 * the bounce buffers are on the node. */
static bool staged_near(struct cuda_stand_in *cuda, int node)
{
	uint64_t gpu, pages = NUMA_HALF / (uint64_t)sysconf(_SC_PAGESIZE);
	transfer_engine_t engine;
	unsigned long before;
	void *context, *mem;
	segment_id_t seg;
	char name[8];
	bool good;

	gpu = cuda_stand_in_memory(cuda, 0, NUMA_HALF, &context);
	mem = (void *)(uintptr_t)gpu;
	snprintf(name, sizeof(name), "nic%d", node);
	setenv("MOONRAIL_DEVICES", name, 1);
	engine = fx_engine("tcp");
	good = gpu && engine &&
	       (seg = openSegment(engine, rig.target.name)) > 0 &&
	       !registerLocalMemory(engine, mem, NUMA_HALF, "cuda:0", 0);
	before = pages_near(node);
	good = good && fx_move(engine, seg, OPCODE_WRITE, mem,
			       rig.target.mem.addr, NUMA_HALF, 0);
	ft_diag("node %d: %lu pages before the write, %lu after it", node,
		before, pages_near(node));
	good = good && pages_near(node) >= before + pages;
	if (engine)
		destroyTransferEngine(engine);
	return good && !cuda->free(gpu) && !cuda->ctx_destroy(context);
}

/* Registers a file segment for a disk, with the name of the disk. Returns true
 * on success. */
static bool disk_register(const char *name)
{
	const char *build = getenv("BUILD");
	char line[256];

	snprintf(line, sizeof(line), "%s/bin/te_meta register --server=127.0.0.1 %s /dev/%s >/dev/null",
		 build ? build : "build", name, name);
	return !system(line);
}

/* Reads from the disk to an unaligned address in half 0 or 1 of the memory, so
 * that bounce buffers are needed. Returns true if they are on the NUMA node
 * `node`. */
static bool bounced_near(const char *name, int half, int node)
{
	uint64_t pages = FX_MIB / (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t to = (uint64_t)half * NUMA_HALF + 1;
	transfer_engine_t engine;
	unsigned long before, after;
	segment_id_t seg;
	char segment[32];
	bool good;

	snprintf(segment, sizeof(segment), "nvmeof/%s", name);
	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 0);
	good = engine && installTransport(engine, "nvmeof", NULL) &&
	       fx_register(engine, &rig.buf) &&
	       (seg = openSegment(engine, segment)) > 0;
	before = pages_near(node);
	good = good && fx_move(engine, seg, OPCODE_READ, rig.mem + to, 0,
			       FX_MIB, 0);
	after = pages_near(node);
	ft_diag("%s to memory of node %d: %lu pages on node %d before the "
		"read, %lu after it",
		segment, half, before, node, after);
	if (engine)
		destroyTransferEngine(engine);
	return good && after >= before + pages;
}

static void disks(void)
{
	char dir[] = "/tmp/ft_numa.XXXXXX", line[64];

	if (access("/dev/node0", F_OK) || access("/dev/node1", F_OK) ||
	    access("/dev/disk", F_OK)) {
		ft_skip("the disks of run_in_vm.sh -f are absent");
		return;
	}
	ft_ok(mkdtemp(dir) && !setenv("MOONRAIL_SEGMENT_DIR", dir, 1) &&
		      disk_register("node0") && disk_register("node1") &&
		      disk_register("disk"),
	      "file_segment_of_each_disk_is_registered");
	ft_ok(bounced_near("node0", 0, 0) && bounced_near("node0", 1, 0) &&
		      bounced_near("node1", 0, 1) &&
		      bounced_near("node1", 1, 1),
	      "bounced_file_data_uses_memory_near_the_disk");
	/* The disk in memory belongs to no NUMA node. */
	ft_ok(bounced_near("disk", 0, 0) && bounced_near("disk", 1, 1),
	      "bounced_file_data_uses_memory_near_the_buffer");
	snprintf(line, sizeof(line), "rm -r %s", dir);
	ft_ok(!system(line), "disk_files_are_removed");
}

/* --- memory that the engine allocates ------------------------------------ */

/* Binds this thread to the processor of this node, or to both processors if
 * node is -1. Returns true on success. */
static bool run_on(int node)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	for (int i = 0; i < 2; i++)
		if (node < 0 || i == node)
			CPU_SET(i, &cpus);
	return !sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* Returns true if all pages of the allocation are on this node. */
static bool pages_on(const struct te_memory *m, int node)
{
	enum { MOST = 1024 };
	void *pages[MOST];
	int status[MOST];
	size_t i, n = m->mapped / (size_t)sysconf(_SC_PAGESIZE);

	if (!n || n > MOST)
		return false;
	for (i = 0; i < n; i++)
		pages[i] = (char *)(uintptr_t)m->addr +
			   i * (size_t)sysconf(_SC_PAGESIZE);
	if (syscall(SYS_move_pages, 0, n, pages, NULL, status, 0))
		return false;
	for (i = 0; i < n; i++)
		if (status[i] != node)
			return false;
	return true;
}

/* Allocates memory for this node while the thread runs on the other node, so
 * that the pages are not on the right node by chance. Returns true if the pages
 * are on the node and are of the expected kind (UINT32_MAX means any). */
static bool allocated_on(int node, size_t size, uint64_t flags, uint32_t kind)
{
	struct te_memory m = { .addr = 0 };
	char location[16];
	bool good;
	int ret;

	snprintf(location, sizeof(location), "cpu:%d", node);
	good = run_on(!node);
	ret = te_alloc(rig.engine, size, location, flags, &m, sizeof(m));
	good = run_on(-1) && good && !ret && pages_on(&m, node) &&
	       m.numa_node == node && !strcmp(m.location, location) &&
	       (m.pages == kind || kind == UINT32_MAX);
	ft_diag("te_alloc at %s, flags %u: returned %d, node %d, page kind %u",
		location, (unsigned int)flags, ret, m.numa_node, m.pages);
	return !ret && !te_free(rig.engine, (void *)(uintptr_t)m.addr) && good;
}

/* Sets the number of huge pages in the pool of this node. Returns true on
 * success. */
static bool node_pool(int node, int pages)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages",
		 node);
	f = fopen(path, "we");
	if (!f)
		return false;
	fprintf(f, "%d", pages);
	return !fclose(f);
}

/* Returns almost all of the memory that is available on both nodes. That is
 * more than either node has. */
static uint64_t nearly_all(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (f && !kib && fgets(line, sizeof(line), f))
		sscanf(line, "MemAvailable: %llu", &kib);
	if (f)
		fclose(f);
	return (kib << 10) - 32 * FX_MIB;
}

static void allocated(void)
{
	const uint64_t strict = TE_ALLOC_STRICT;
	struct te_error err = { 0 };
	struct te_memory m;

	ft_ok(allocated_on(0, NUMA_HALF, 0, UINT32_MAX) &&
	      allocated_on(1, NUMA_HALF, 0, UINT32_MAX) &&
	      allocated_on(0, 5000, 0, TE_PAGES_SMALL) &&
	      allocated_on(1, 5000, 0, TE_PAGES_SMALL),
	      "te_alloc_takes_pages_of_the_node");
	ft_ok(allocated_on(0, NUMA_HALF, strict | TE_ALLOC_SMALL_PAGES,
			   TE_PAGES_SMALL) &&
		      allocated_on(1, NUMA_HALF, strict | TE_ALLOC_SMALL_PAGES,
				   TE_PAGES_SMALL),
	      "te_alloc_strict_takes_pages_of_no_other_node");
	ft_ok(node_pool(1, 2) &&
		      allocated_on(1, NUMA_MEM, strict | TE_ALLOC_HUGE_PAGES,
				   TE_PAGES_HUGE) &&
		      te_alloc(rig.engine, NUMA_MEM, "cpu:0",
			       strict | TE_ALLOC_HUGE_PAGES, &m,
			       sizeof(m)) == -302 &&
		      node_pool(1, 0),
	      "te_alloc_strict_takes_huge_pages_of_the_node");
	/* If te_alloc did not refuse this allocation, the kernel would kill the
	 * process. */
	ft_ok(te_alloc(rig.engine, nearly_all(), "cpu:1", strict, &m,
		       sizeof(m)) == -300 &&
		      !te_last_error(&err, sizeof(err)) &&
		      strstr(err.text, "node 1"),
	      "te_alloc_strict_above_free_memory_of_node_is_refused");
	ft_diag("%s", err.text);
}

static void alone_on(int node)
{
	transfer_engine_t engine;
	char name[8];

	snprintf(name, sizeof(name), "nic%d", node);
	setenv("MOONRAIL_DEVICES", name, 1);
	setenv("MOONRAIL_PROGRESS_CPUS", "near", 1);
	engine = fx_engine("tcp");
	unsetenv("MOONRAIL_PROGRESS_CPUS");
	ft_ok(engine && bound_to(node) == 1,
	      "progress_thread_is_bound_near_nic%d", node);
	destroyTransferEngine(engine);
	ft_ok(!bound_to(node), "destroyed_engine_leaves_no_thread_near_nic%d",
	      node);
}

int main(int argc, char **argv)
{
	struct cuda_stand_in cuda;

	fx_init(argc, argv);
	if (access("/sys/devices/system/node/node1", F_OK) ||
	    access("/sys/class/net/nic1", F_OK)) {
		printf("the NUMA nodes and NICs of run_in_vm.sh -fn are "
		       "absent\n");
		return 77;
	}
	alone_on(0);
	alone_on(1);
	if (!ft_ok(numa_start(), "engine_and_target_on_two_nics_start"))
		return ft_result();
	ft_ok(halves_are_told_apart(),
	      "region_on_two_nodes_is_published_as_two_buffers");
	ft_ok(goes_by(0) && goes_by(1), "near_nic_carries_most_bytes");
	ft_ok(buffers_near(0) && buffers_near(1),
	      "rail_buffers_are_on_the_node_of_the_nic");
	ft_ok(ranked_for(0) && ranked_for(1), "near_nic_is_ranked_first");
	ft_ok(!unregisterLocalMemory(rig.engine, rig.mem) &&
		      !registerLocalMemory(rig.engine, rig.mem, NUMA_MEM,
					   "segments:4096:0,1", 1) &&
		      goes_by(1),
	      "near_nic_of_a_given_location_carries_most_bytes");
	ft_ok(cuda_stand_in_load(&cuda) && staged_near(&cuda, 0) &&
		      staged_near(&cuda, 1),
	      "staged_bytes_use_memory_near_the_nic");
	allocated();
	disks();
	ft_ok(fx_peer_stop(&rig.target), "target_ends_without_error");
	destroyTransferEngine(rig.engine);
	return ft_result();
}
