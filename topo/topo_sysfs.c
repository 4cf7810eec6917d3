/* SPDX-License-Identifier: BSD-2-Clause */
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "topo/topo_int.h"
#include "util/thread.h"

#define TOPO_SYS_DEPTH	4	/* largest depth of devices that are stacked on
				 * each other */

/*
 * Reads the first line of a small file without its newline. Returns false if
 * the file is unreadable.
 */
static bool topo_sys_read(char *buf, size_t len, const char *dir,
			  const char *name, const char *leaf)
{
	char path[TOPO_PATH];
	FILE *f;
	bool ok;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s/%s", dir, name,
			     leaf) >= sizeof(path))
		return false;
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(buf, (int)len, f) != NULL;
	fclose(f);
	if (ok)
		buf[strcspn(buf, "\n")] = '\0';
	return ok;
}

static int topo_sys_node(const char *dir, const char *name, const char *leaf)
{
	char buf[32];
	char *end;
	long node;

	if (!topo_sys_read(buf, sizeof(buf), dir, name, leaf))
		return -1;
	node = strtol(buf, &end, 10);
	return end != buf && !*end && node >= 0 && node <= UINT16_MAX ?
	       (int)node : -1;
}

/* Gets the PCI address of a device: the last PCI address in the path that the
 * symbolic link dir/name/device leads to. */
static void topo_sys_pci(const char *dir, const char *name,
			 struct tei_topo_pci *pci)
{
	char path[TOPO_PATH], *real, *part, *save = NULL;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s/device", dir,
			     name) >= sizeof(path))
		return;
	real = realpath(path, NULL);
	if (!real)
		return;
	for (part = strtok_r(real, "/", &save); part;
	     part = strtok_r(NULL, "/", &save))
		topo_pci_parse(part, pci);
	free(real);
}

static uint64_t topo_sys_rate(const char *text, uint64_t unit)
{
	char *end;
	double v = strtod(text, &end);

	return end != text && v > 0 && v < 1e6 ? (uint64_t)(v * (double)unit) : 0;
}

static void topo_sys_take(const char *dir, const char *name,
			  struct topo_sys_nic *nic)
{
	int node = topo_sys_node(dir, name, "device/numa_node");

	if (node >= 0)
		nic->node = node;
	topo_sys_pci(dir, name, &nic->pci);
}

static void topo_sys_netdev(const char *dir, const char *name, int depth,
			    struct topo_sys_nic *nic);

/* Gets the node of a bond, VLAN or bridge. This is the node of its lower
 * devices, if all of them are on the same node. */
static void topo_sys_lower(const char *dir, const char *name, int depth,
			   struct topo_sys_nic *nic)
{
	struct topo_sys_nic lower = { .node = -1 };
	char path[TOPO_PATH];
	struct dirent *e;
	int count = 0, node = -1;
	DIR *d;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >=
	    sizeof(path))
		return;
	d = opendir(path);
	if (!d)
		return;
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, "lower_", 6))
			continue;
		lower.node = -1;
		topo_sys_netdev(dir, e->d_name + 6, depth + 1, &lower);
		node = count++ && lower.node != node ? -2 : lower.node;
		if (node == -2)
			break;
	}
	closedir(d);
	if (node >= 0)
		nic->node = node;
	if (count == 1)
		nic->pci = lower.pci;
}

static void topo_sys_netdev(const char *dir, const char *name, int depth,
			    struct topo_sys_nic *nic)
{
	char buf[64];

	if (depth > TOPO_SYS_DEPTH)
		return;
	topo_sys_take(dir, name, nic);
	if (topo_sys_read(buf, sizeof(buf), dir, name, "speed") && !nic->speed)
		nic->speed = topo_sys_rate(buf, 1000000);
	if (nic->node < 0 && !nic->pci.known)
		topo_sys_lower(dir, name, depth, nic);
}

static void topo_sys_rdma(const char *dir, const char *netdir,
			  const char *name, struct topo_sys_nic *nic)
{
	char buf[64];

	topo_sys_take(dir, name, nic);
	if (!nic->speed &&
	    topo_sys_read(buf, sizeof(buf), dir, name, "ports/1/rate"))
		nic->speed = topo_sys_rate(buf, 1000000000);
	/* an RDMA device in software has the node of its netdev */
	if (nic->node < 0 && !nic->pci.known &&
	    topo_sys_read(buf, sizeof(buf), dir, name, "parent") && *buf &&
	    !strchr(buf, '/'))
		topo_sys_netdev(netdir, buf, 0, nic);
}

void topo_sys_nic(const char *sysfs, const char *device,
		  struct topo_sys_nic *nic)
{
	char net[TOPO_PATH], rdma[TOPO_PATH];

	if (!*device || *device == '.' || strchr(device, '/') ||
	    strlen(sysfs) > TOPO_PATH / 2)
		return;
	snprintf(net, sizeof(net), "%s/class/net", sysfs);
	snprintf(rdma, sizeof(rdma), "%s/class/infiniband", sysfs);
	topo_sys_rdma(rdma, net, device, nic);
	if (nic->node < 0 && !nic->pci.known)
		topo_sys_netdev(net, device, 0, nic);
}

int topo_sys_pci_node(const char *sysfs, const struct tei_topo_pci *pci)
{
	char dir[TOPO_PATH], addr[16];

	topo_pci_text(pci, addr);
	if (!*addr || (size_t)snprintf(dir, sizeof(dir), "%s/bus/pci/devices",
				       sysfs) >= sizeof(dir))
		return -1;
	return topo_sys_node(dir, addr, "numa_node");
}

size_t topo_sys_nodes(const char *sysfs, int *nodes, size_t max)
{
	char buf[4096], *p = buf, *end;
	unsigned long first, last;
	size_t n = 0;

	if (!topo_sys_read(buf, sizeof(buf), sysfs, "devices/system/node",
			   "online"))
		return 0;
	while (*p) {
		first = last = strtoul(p, &end, 10);
		if (end == p)
			break;
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && n < max; first++)
			nodes[n++] = (int)first;
		p = *end == ',' ? end + 1 : end;
		if (*end && *end != ',')
			break;
	}
	return n;
}

int topo_sys_nic_node(const char *sysfs, const char *device, const char *addr)
{
	struct topo_sys_nic nic = { .node = -1 };

	if (device)
		topo_sys_nic(sysfs, device, &nic);
	if (nic.node < 0 && addr)
		topo_pci_parse(addr, &nic.pci);
	return nic.node < 0 ? topo_sys_pci_node(sysfs, &nic.pci) : nic.node;
}

int tei_topo_nic_node(const char *device, const char *pci)
{
	return topo_sys_nic_node("/sys", device, pci);
}

/* --- block devices ------------------------------------------------------- */

/* Returns the node of the device in the folder or, if this device has none, the
 * node of its nearest parent device that has one. Returns -1 if there is
 * none. */
static int topo_sys_above(const char *folder)
{
	char path[TOPO_PATH], *slash;
	int node = -1;

	if (strlen(folder) >= sizeof(path))
		return -1;
	strcpy(path, folder);
	while (node < 0 && (slash = strrchr(path, '/')) && slash != path) {
		node = topo_sys_node(path, ".", "numa_node");
		*slash = '\0';
	}
	return node;
}

static int topo_sys_disk(const char *sysfs, const char *folder, int depth);

/* Returns the node of one component of a device: the folder entry "name" in
 * dir. Returns -1 if the node is unknown, or -2 if the entry is not a
 * component. sysfs: NULL if the components are controllers, otherwise they are
 * disks. */
static int topo_sys_below_one(const char *sysfs, const char *dir,
			      const char *name, int depth)
{
	char path[TOPO_PATH], *real;
	int node = topo_sys_node(dir, name, "numa_node");

	if (node >= 0)
		return node;
	if ((size_t)snprintf(path, sizeof(path), sysfs ? "%s/%s" :
			     "%s/%s/numa_node", dir, name) >= sizeof(path))
		return -1;
	if (!sysfs)
		return access(path, F_OK) ? -2 : -1;
	real = realpath(path, NULL);
	node = real ? topo_sys_disk(sysfs, real, depth + 1) : -1;
	free(real);
	return node;
}

/* Returns the node that all components of a device have in common, or -1 if
 * there is none. */
static int topo_sys_below(const char *sysfs, const char *folder,
			  const char *where, int depth)
{
	char path[TOPO_PATH];
	int node = -2, one;
	struct dirent *e;
	DIR *d;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, where) >=
	    sizeof(path))
		return -1;
	d = opendir(path);
	while (d && node != -1 && (e = readdir(d))) {
		if (*e->d_name == '.')
			continue;
		one = topo_sys_below_one(sysfs, path, e->d_name, depth);
		if (one != -2)
			node = node == -2 || node == one ? one : -1;
	}
	if (d)
		closedir(d);
	return node < 0 ? -1 : node;
}

static int topo_sys_block(const char *sysfs, dev_t dev, int depth)
{
	char path[TOPO_PATH], *real;
	int node;

	if ((size_t)snprintf(path, sizeof(path), "%s/dev/block/%u:%u", sysfs,
			     major(dev), minor(dev)) >= sizeof(path))
		return -1;
	real = realpath(path, NULL);
	node = real ? topo_sys_disk(sysfs, real, depth) : -1;
	free(real);
	return node;
}

/* Returns the node of the disk that holds the loop device's backing file.
 * Returns -1 if it is unknown, or if this process cannot see the file. */
static int topo_sys_loop(const char *sysfs, const char *folder, int depth)
{
	char file[TOPO_PATH];
	struct stat st;

	if (!topo_sys_read(file, sizeof(file), folder, "loop",
			   "backing_file") || stat(file, &st))
		return -1;
	return topo_sys_block(sysfs, S_ISBLK(st.st_mode) ? st.st_rdev :
							   st.st_dev, depth + 1);
}

/* Returns the node of a disk: the node of the disk itself or of a parent
 * device. If these have no node, uses a node that all of the following have in
 * common: the disks of a volume, the disk that holds a loop device's backing
 * file, or the controllers of a multipath NVMe namespace. */
static int topo_sys_disk(const char *sysfs, const char *folder, int depth)
{
	int node = topo_sys_above(folder);
	char path[TOPO_PATH], text[16];

	if (node >= 0 || depth > TOPO_SYS_DEPTH ||
	    strlen(folder) >= sizeof(path))
		return node;
	strcpy(path, folder);
	if (topo_sys_read(text, sizeof(text), path, ".", "partition"))
		*strrchr(path, '/') = '\0';
	node = topo_sys_below(sysfs, path, "slaves", depth);
	if (node < 0)
		node = topo_sys_loop(sysfs, path, depth);
	return node < 0 ? topo_sys_below(NULL, path, "..", depth) : node;
}

int topo_sys_block_node(const char *sysfs, dev_t dev)
{
	return topo_sys_block(sysfs, dev, 0);
}

int tei_topo_block_node(dev_t dev)
{
	return topo_sys_block_node("/sys", dev);
}

/* --- processors ---------------------------------------------------------- */

bool topo_sys_node_cpus(const char *sysfs, int node, cpu_set_t *cpus)
{
	char buf[4096], name[64];

	snprintf(name, sizeof(name), "devices/system/node/node%d", node);
	return topo_sys_read(buf, sizeof(buf), sysfs, name, "cpulist") &&
	       !tei_cpus_parse(buf, cpus);
}

bool tei_topo_node_cpus(int node, cpu_set_t *cpus)
{
	return topo_sys_node_cpus("/sys", node, cpus);
}
