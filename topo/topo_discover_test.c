/* SPDX-License-Identifier: BSD-2-Clause */
#include "topo/topo_test.h"

#include <errno.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "topo/topo_int.h"
#include "util/err.h"

/* Discovers the topology of the machine that an XML file describes, with NICs
 * of the given names. "names" ends with NULL. */
static struct tei_topo *discover(const char *xml, const char *const *names)
{
	struct tei_topo_opts opts = { .xml_path = topo_test_data(xml) };
	struct tei_topo_nic_desc nics[16];
	struct tei_topo *topo = NULL;
	size_t n;

	memset(nics, 0, sizeof(nics));
	for (n = 0; names[n]; n++)
		nics[n].name = names[n];
	CU_ASSERT_EQUAL_FATAL(tei_topo_discover(nics, n, &opts, &topo, NULL),
			      0);
	return topo;
}

static const char *const mlx8[] = {
	"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3",
	"mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", NULL,
};

static void test_two_sockets_with_infiniband(void)
{
	static const char *const names[] = { "eth0", "mlx4_0", "ib0", NULL };
	struct tei_topo *topo = discover("24em64t-2n6c2t-pci.xml", names);

	CU_ASSERT_STRING_EQUAL(tei_topo_nic(topo, 1)->pci, "0000:05:00.0");
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 1)->numa_node, 0);
	CU_ASSERT_EQUAL(tei_topo_location_count(topo), 5);
	CU_ASSERT_STRING_EQUAL(tei_topo_location(topo, 0), "cpu:0");
	CU_ASSERT_STRING_EQUAL(tei_topo_location(topo, 4), "cuda:2");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "eth0 mlx4_0 ib0|");
	/* all NICs are equally far from the location, so all are preferred */
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"), "eth0 mlx4_0 ib0|");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:0"),
			       "eth0 mlx4_0 ib0|");
	tei_topo_free(topo);
}

static void test_the_matrix_tells_far_from_near(void)
{
	static const char *const names[] = { "eth0", "mlx4_0", NULL };
	struct tei_topo *topo = discover("24em64t-2n6c2t-pci.xml", names);
	char *text;

	CU_ASSERT_EQUAL_FATAL(tei_topo_json(topo, &text), 0);
	CU_ASSERT_STRING_EQUAL(text,
		"{\"cpu:0\":[[\"eth0\",\"mlx4_0\"],[]],"
		"\"cpu:1\":[[],[\"eth0\",\"mlx4_0\"]],"
		"\"cuda:0\":[[\"eth0\",\"mlx4_0\"],[]],"
		"\"cuda:1\":[[],[\"eth0\",\"mlx4_0\"]],"
		"\"cuda:2\":[[],[\"eth0\",\"mlx4_0\"]]}");
	free(text);
	tei_topo_free(topo);
}

static void test_gpu_next_to_its_nic(void)
{
	static const char *const names[] = { "eth0", "mlx5_0", "lo", NULL };
	struct tei_topo *topo = discover("32em64t-2n8c2t-pci-wholeio.xml",
					 names);

	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"), "eth0 mlx5_0|lo");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "eth0 mlx5_0 lo|");
	/* hwloc lists only one CUDA device, so the other GPUs have no
	 * location */
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:0"), "mlx5_0|eth0 lo");
	CU_ASSERT_EQUAL(tei_topo_location_count(topo), 3);
	tei_topo_free(topo);
}

static void test_gpus_prefer_nics_of_their_switch(void)
{
	struct tei_topo *topo = discover("gpu8-nic8.xml", mlx8);
	char location[32], expected[64];
	const char *row;
	int i;

	CU_ASSERT_EQUAL(tei_topo_location_count(topo), 10);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"),
			       "mlx5_4 mlx5_5 mlx5_6 mlx5_7|"
			       "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
	for (i = 0; i < 8; i++) {
		snprintf(location, sizeof(location), "cuda:%d", i);
		snprintf(expected, sizeof(expected), "mlx5_%d mlx5_%d|",
			 i & ~1, i | 1);
		row = topo_test_row(topo, location);
		CU_ASSERT(!strncmp(row, expected, strlen(expected)));
		CU_ASSERT_EQUAL(strlen(row), 8 * strlen("mlx5_0 ") - 1);
	}
	tei_topo_free(topo);
}

/* Appends a row "LOCATION":[[near],[other]] with eight NICs to the JSON text.
 * first: number of the first near NIC. n: number of near NICs. */
static void matrix_row(char *text, const char *location, int first, int n)
{
	int i;

	sprintf(text + strlen(text), "%s\"%s\":[[", *text ? "," : "",
		location);
	for (i = 0; i < 8; i++)
		if (i >= first && i < first + n)
			sprintf(text + strlen(text), "%s\"mlx5_%d\"",
				i > first ? "," : "", i);
	strcat(text, "],[");
	for (i = 0; i < 8; i++)
		if (i < first || i >= first + n)
			sprintf(text + strlen(text), "%s\"mlx5_%d\"",
				i > (first ? 0 : n) ? "," : "", i);
	strcat(text, "]]");
}

static void test_the_matrix_of_eight_gpus_and_eight_nics(void)
{
	struct tei_topo *topo = discover("gpu8-nic8.xml", mlx8), *again;
	char expected[4096] = "", location[32], whole[4096 + 8];
	char *text, *copy;
	int i;

	matrix_row(expected, "cpu:0", 0, 4);
	matrix_row(expected, "cpu:1", 4, 4);
	for (i = 0; i < 8; i++) {
		snprintf(location, sizeof(location), "cuda:%d", i);
		matrix_row(expected, location, i & ~1, 2);
	}
	snprintf(whole, sizeof(whole), "{%s}", expected);
	CU_ASSERT_EQUAL_FATAL(tei_topo_json(topo, &text), 0);
	CU_ASSERT_STRING_EQUAL(text, whole);
	/* parsing the written matrix results in the same matrix */
	CU_ASSERT_EQUAL_FATAL(tei_topo_parse(text, topo, TEI_TOPO_STRICT,
					     &again, NULL), 0);
	CU_ASSERT_EQUAL_FATAL(tei_topo_json(again, &copy), 0);
	CU_ASSERT_STRING_EQUAL(copy, text);
	free(copy);
	free(text);
	tei_topo_free(again);
	tei_topo_free(topo);
}

static void test_nics_of_both_sockets_have_their_node(void)
{
	struct tei_topo *topo = discover("gpu8-nic8.xml", mlx8);
	size_t i;

	CU_ASSERT_EQUAL_FATAL(tei_topo_nic_count(topo), 8);
	for (i = 0; i < 8; i++) {
		CU_ASSERT_EQUAL(tei_topo_nic(topo, i)->numa_node, (int)i / 4);
		CU_ASSERT(tei_topo_nic(topo, i)->pci[0] != '\0');
	}
	tei_topo_free(topo);
}

static void test_locations_have_a_place(void)
{
	struct tei_topo *topo = discover("gpu8-nic8.xml", mlx8);
	struct tei_topo_place place = { .numa_node = 77 };

	CU_ASSERT(tei_topo_location_place(topo, 1, &place));
	CU_ASSERT_EQUAL(place.numa_node, 1);
	CU_ASSERT_STRING_EQUAL(place.pci, "");
	CU_ASSERT_STRING_EQUAL(tei_topo_location(topo, 9), "cuda:7");
	CU_ASSERT(tei_topo_location_place(topo, 9, &place));
	CU_ASSERT_EQUAL(place.numa_node, 1);
	CU_ASSERT_STRING_EQUAL(place.pci, "0000:b5:00.0");
	CU_ASSERT(!tei_topo_location_place(topo, 10, &place));
	CU_ASSERT_EQUAL(place.numa_node, 1);
	tei_topo_free(topo);
}

static void test_disabled_nics_do_not_compete(void)
{
	struct tei_topo_opts opts = {
		.xml_path = topo_test_data("gpu8-nic8.xml"),
	};
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "mlx5_0", .off = true },
		{ .name = "mlx5_2" },
		{ .name = "mlx5_7" },
	};
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_discover(nics, 3, &opts, &topo, NULL),
			      0);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:0"), "mlx5_2|mlx5_7");
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 0)->numa_node, 0);
	tei_topo_free(topo);
}

static void test_driver_numbers_win(void)
{
	static const struct tei_topo_gpu gpus[] = {
		{ 0, { true, 0, 0xb5, 0, 0 } },
		{ 1, { true, 0, 0x13, 0, 0 } },
		{ 2, { .known = false } },
		{ 3, { true, 7, 0x13, 0, 0 } },
	};
	struct tei_topo_opts opts = {
		.xml_path = topo_test_data("gpu8-nic8.xml"),
		.gpus = gpus, .gpu_count = 4,
	};
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "mlx5_0" }, { .name = "mlx5_7" },
	};
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_discover(nics, 2, &opts, &topo, NULL),
			      0);
	CU_ASSERT_EQUAL(tei_topo_location_count(topo), 6);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:0"), "mlx5_7|mlx5_0");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:1"), "mlx5_0|mlx5_7");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:2"), "mlx5_0 mlx5_7|");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:3"), "mlx5_0 mlx5_7|");
	tei_topo_free(topo);
}

static void test_rails_are_found_by_device_or_pci_address(void)
{
	struct tei_topo_opts opts = {
		.xml_path = topo_test_data("gpu8-nic8.xml"),
	};
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "10.0.0.1", .device = "ib0", .speed = 5 },
		{ .name = "rail1", .pci = { true, 0, 0x94, 0, 0 } },
		{ .name = "10.0.0.3", .device = "nosuch" },
	};
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_discover(nics, 3, &opts, &topo, NULL),
			      0);
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 0)->numa_node, 0);
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 0)->speed, 5);
	CU_ASSERT_STRING_EQUAL(tei_topo_nic(topo, 0)->pci, "0000:14:00.0");
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 1)->numa_node, 1);
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 2)->numa_node, -1);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"),
			       "rail1|10.0.0.1 10.0.0.3");
	tei_topo_free(topo);
}

static void test_one_node_is_near_to_everything(void)
{
	static const char *const names[] = { "eth1", "lo", "eth0", NULL };
	struct tei_topo *topo = discover("vm-small.xml", names);

	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "eth1 lo eth0|");
	CU_ASSERT_EQUAL(tei_topo_location_count(topo), 1);
	tei_topo_free(topo);
}

static void test_nics_without_pci_are_preferred(void)
{
	static const char *const names[] = { "eth0", "eth1", NULL };
	struct tei_topo *topo = discover("nopci.xml", names);
	char *text;

	/* nothing is known about the position of the NIC */
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 0)->numa_node, -1);
	CU_ASSERT_STRING_EQUAL(tei_topo_nic(topo, 0)->pci, "");
	CU_ASSERT_EQUAL_FATAL(tei_topo_json(topo, &text), 0);
	CU_ASSERT_STRING_EQUAL(text, "{\"cpu:0\":[[\"eth0\",\"eth1\"],[]],"
				     "\"cpu:1\":[[\"eth0\",\"eth1\"],[]]}");
	free(text);
	tei_topo_free(topo);
}

static void test_broken_topology_is_unknown_distance(void)
{
	static const char *const names[] = { "eth0", "eth1", NULL };
	struct tei_topo *topo = discover("no-such-file.xml", names);

	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "eth0 eth1|");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cuda:0"), "eth0 eth1|");
	tei_topo_free(topo);
	topo = discover("README", names);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "eth0 eth1|");
	tei_topo_free(topo);
}

static void test_environment_names_the_machine(void)
{
	struct tei_topo *topo = NULL;

	setenv("HWLOC_XMLFILE", topo_test_data("gpu8-nic8.xml"), 1);
	CU_ASSERT_EQUAL(tei_topo_discover_all(NULL, &topo, NULL), 0);
	unsetenv("HWLOC_XMLFILE");
	CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
	CU_ASSERT_EQUAL(tei_topo_nic_count(topo), 16);
	CU_ASSERT_STRING_EQUAL(tei_topo_nic(topo, 1)->name, "mlx5_0");
	CU_ASSERT_STRING_EQUAL(tei_topo_nic(topo, 15)->pci, "0000:b6:00.0");
	tei_topo_free(topo);
}

static void test_discovery_on_this_machine_keeps_all_nics(void)
{
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "lo" }, { .name = "no/such" }, { .name = ".." },
		{ .name = "x", .pci = { true, 0xffff, 255, 31, 7 } },
	};
	const uint32_t *near, *other;
	size_t n_near, n_other, i;
	struct tei_topo *topo;

	CU_ASSERT_EQUAL_FATAL(tei_topo_discover(nics, 4, NULL, &topo, NULL),
			      0);
	CU_ASSERT(tei_topo_location_count(topo) >= 1);
	for (i = 0; i < tei_topo_location_count(topo); i++) {
		CU_ASSERT(tei_topo_lookup(topo, tei_topo_location(topo, i),
					  &near, &n_near, &other, &n_other));
		CU_ASSERT(n_near > 0);
		CU_ASSERT_EQUAL(n_near + n_other, 4);
	}
	tei_topo_free(topo);
	CU_ASSERT_EQUAL(tei_topo_discover(nics, 4, NULL, NULL, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_topo_discover_all(NULL, NULL, NULL),
			TEI_ERR_INVALID);
	CU_ASSERT_EQUAL(tei_topo_discover(NULL, 1, NULL, &topo, NULL),
			TEI_ERR_INVALID);
}

/* --- a simulated sysfs --------------------------------------------------- */

static char sys_root[] = "/tmp/topo-sysfs-XXXXXX";

/* Creates a file below the simulated root of sysfs, and the folders above
 * it. */
static void sys_file(const char *path, const char *text)
{
	char full[512], *p;
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", sys_root, path);
	for (p = full + strlen(sys_root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	fputs(text, f);
	fclose(f);
}

static void sys_link(const char *path, const char *to)
{
	char full[512], target[512];

	snprintf(full, sizeof(full), "%s/%s", sys_root, path);
	snprintf(target, sizeof(target), "%s/%s", sys_root, to);
	CU_ASSERT_EQUAL_FATAL(symlink(target, full), 0);
}

static int sys_remove(const char *path, const struct stat *st, int flag,
		      struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void sys_make(void)
{
	strcpy(sys_root + strlen(sys_root) - 6, "XXXXXX");
	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(sys_root));
	sys_file("devices/system/node/online", "0-1\n");
	sys_file("devices/pci0000:80/0000:80:01.0/0000:81:00.0/numa_node",
		 "1\n");
	sys_file("devices/pci0000:00/0000:00:04.0/virtio1/x", "");
	sys_file("devices/pci0000:00/0000:00:04.0/numa_node", "0\n");
	sys_file("bus/pci/devices/x", "");
	sys_link("bus/pci/devices/0000:00:04.0",
		 "devices/pci0000:00/0000:00:04.0");
	sys_file("class/net/eth1/speed", "25000\n");
	sys_link("class/net/eth1/device",
		 "devices/pci0000:80/0000:80:01.0/0000:81:00.0");
	sys_file("class/net/eth0/speed", "-1\n");
	sys_link("class/net/eth0/device",
		 "devices/pci0000:00/0000:00:04.0/virtio1");
	sys_file("class/net/vlan5/lower_eth1", "");
	sys_file("class/net/bond0/lower_eth1", "");
	sys_file("class/net/bond0/lower_vlan5", "");
	sys_file("class/net/bond1/lower_eth0", "");
	sys_file("class/net/bond1/lower_eth1", "");
	sys_file("class/net/loop0/lower_loop0", "");
	sys_file("class/infiniband/rxe0/parent", "eth1\n");
	sys_file("class/infiniband/rxe0/ports/1/rate", "10 Gb/sec (1X SDR)\n");
	sys_file("class/infiniband/rxe1/parent", "../../x\n");
}

static void test_sysfs_fills_the_gaps(void)
{
	static const char *const names[] = {
		"eth0", "eth1", "vlan5", "bond0", "bond1", "rxe0", "rxe1",
		"loop0",
	};
	static const int nodes[] = { 0, 1, 1, 1, -1, 1, -1, -1 };
	struct tei_topo_opts opts = {
		.xml_path = topo_test_data("nopci.xml"), .sysfs = sys_root,
	};
	struct tei_topo_nic_desc nics[8];
	struct tei_topo *topo = NULL;
	size_t i;

	sys_make();
	memset(nics, 0, sizeof(nics));
	for (i = 0; i < 8; i++)
		nics[i].name = names[i];
	if (!topo_hw_built_in())
		opts.xml_path = NULL;
	CU_ASSERT_EQUAL(tei_topo_discover(nics, 8, &opts, &topo, NULL), 0);
	nftw(sys_root, sys_remove, 8, FTW_DEPTH | FTW_PHYS);
	CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
	for (i = 0; i < 8; i++)
		CU_ASSERT_EQUAL(tei_topo_nic(topo, i)->numa_node, nodes[i]);
	CU_ASSERT_STRING_EQUAL(tei_topo_nic(topo, 0)->pci, "0000:00:04.0");
	CU_ASSERT_STRING_EQUAL(tei_topo_nic(topo, 2)->pci, "0000:81:00.0");
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 0)->speed, 0);
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 1)->speed, 25000000000);
	CU_ASSERT_EQUAL(tei_topo_nic(topo, 5)->speed, 10000000000);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"),
			       "eth0|eth1 vlan5 bond0 bond1 rxe0 rxe1 loop0");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"),
			       "eth1 vlan5 bond0 rxe0|eth0 bond1 rxe1 loop0");
	tei_topo_free(topo);
}

static void test_sysfs_serves_where_hwloc_fails(void)
{
	struct tei_topo_opts opts = {
		.xml_path = "/no/such/file.xml", .sysfs = sys_root,
	};
	const struct tei_topo_nic_desc nics[] = {
		{ .name = "eth1" },
		{ .name = "r", .pci = { true, 0, 0, 4, 0 } },
	};
	struct tei_topo *topo = NULL;

	if (!topo_hw_built_in())
		opts.xml_path = NULL;
	sys_make();
	CU_ASSERT_EQUAL(tei_topo_discover(nics, 2, &opts, &topo, NULL), 0);
	nftw(sys_root, sys_remove, 8, FTW_DEPTH | FTW_PHYS);
	CU_ASSERT_PTR_NOT_NULL_FATAL(topo);
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:0"), "r|eth1");
	CU_ASSERT_STRING_EQUAL(topo_test_row(topo, "cpu:1"), "eth1|r");
	tei_topo_free(topo);
}

static void test_sysfs_tells_a_nic_s_node_and_a_node_s_cpus(void)
{
	cpu_set_t cpus;

	sys_make();
	sys_file("devices/system/node/node1/cpulist", "1,3-4\n");
	CU_ASSERT_EQUAL(topo_sys_nic_node(sys_root, "eth1", NULL), 1);
	CU_ASSERT_EQUAL(topo_sys_nic_node(sys_root, "rxe0", ""), 1);
	CU_ASSERT_EQUAL(topo_sys_nic_node(sys_root, "no", "0000:00:04.0"), 0);
	CU_ASSERT_EQUAL(topo_sys_nic_node(sys_root, "127.0.0.1", ""), -1);
	CU_ASSERT_EQUAL(topo_sys_nic_node(sys_root, NULL, NULL), -1);
	CU_ASSERT(topo_sys_node_cpus(sys_root, 1, &cpus));
	CU_ASSERT(CPU_COUNT(&cpus) == 3 && CPU_ISSET(4, &cpus));
	CU_ASSERT(!topo_sys_node_cpus(sys_root, 2, &cpus));
	CU_ASSERT_EQUAL(CPU_COUNT(&cpus), 3);
	nftw(sys_root, sys_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static void sys_disk(unsigned int major, unsigned int minor, const char *folder)
{
	char path[256];

	snprintf(path, sizeof(path), "%.200s/x", folder);
	sys_file(path, "");
	snprintf(path, sizeof(path), "dev/block/%u:%u", major, minor);
	sys_link(path, folder);
}

/* Tests the nodes of disks: a disk that has a node, a disk of which a parent
 * device has one, NVMe namespaces with two controllers, and volumes on other
 * disks. */
static void test_sysfs_tells_a_disk_s_node(void)
{
	const char *near = "devices/pci0000:80/0000:80:01.0/0000:81:00.0";
	char path[128];

	sys_make();
	sys_file("dev/block/x", "");
	snprintf(path, sizeof(path), "%s/nvme/nvme0/nvme0n1", near);
	sys_disk(259, 0, path);
	snprintf(path, sizeof(path), "%s/nvme/nvme0/nvme0n1/nvme0n1p2", near);
	sys_disk(259, 2, path);
	sys_disk(254, 0, "devices/pci0000:00/0000:00:04.0/virtio1/block/vda");
	/* NVMe namespaces with two controllers */
	sys_disk(259, 9, "devices/virtual/nvme-subsystem/s1/nvme1n1");
	sys_file("devices/virtual/nvme-subsystem/s1/nvme1/numa_node", "1\n");
	sys_file("devices/virtual/nvme-subsystem/s1/nvme2/numa_node", "1\n");
	sys_disk(259, 19, "devices/virtual/nvme-subsystem/s1/nvme1n1/nvme1n1p1");
	sys_file("devices/virtual/nvme-subsystem/s1/nvme1n1/nvme1n1p1/partition",
		 "1\n");
	sys_disk(259, 10, "devices/virtual/nvme-subsystem/s2/nvme3n1");
	sys_file("devices/virtual/nvme-subsystem/s2/nvme3/numa_node", "1\n");
	sys_file("devices/virtual/nvme-subsystem/s2/nvme4/numa_node", "0\n");
	sys_disk(259, 12, "devices/virtual/nvme-subsystem/s3/nvme7n1");
	sys_file("devices/virtual/nvme-subsystem/s3/nvme7/numa_node", "1\n");
	sys_file("devices/virtual/nvme-subsystem/s3/nvme8/numa_node", "-1\n");
	/* NVMe namespaces over TCP */
	sys_disk(259, 11, "devices/virtual/nvme-fabrics/ctl/nvme5/nvme5n1");
	sys_file("devices/virtual/nvme-fabrics/ctl/nvme5/numa_node", "-1\n");
	sys_file("devices/virtual/nvme-fabrics/ctl/nvme6/numa_node", "1\n");
	/* volumes of the device mapper (dm) and of md */
	sys_disk(253, 0, "devices/virtual/block/dm-0");
	sys_file("devices/virtual/block/dm-0/slaves/x", "");
	sys_disk(253, 1, "devices/virtual/block/dm-1");
	sys_file("devices/virtual/block/dm-1/slaves/.x", "");
	snprintf(path, sizeof(path), "%s/nvme/nvme0/nvme0n1/nvme0n1p2", near);
	sys_link("devices/virtual/block/dm-1/slaves/nvme0n1p2", path);
	sys_disk(253, 2, "devices/virtual/block/dm-2");
	sys_file("devices/virtual/block/dm-2/slaves/.x", "");
	sys_link("devices/virtual/block/dm-2/slaves/dm-1",
		 "devices/virtual/block/dm-1");
	sys_link("devices/virtual/block/dm-2/slaves/vda",
		 "devices/pci0000:00/0000:00:04.0/virtio1/block/vda");
	sys_disk(253, 3, "devices/virtual/block/dm-3");
	sys_file("devices/virtual/block/dm-3/slaves/.x", "");
	sys_link("devices/virtual/block/dm-3/slaves/dm-3",
		 "devices/virtual/block/dm-3");
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 0)), 1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 2)), 1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(254, 0)), 0);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 9)), 1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 19)), 1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 10)), -1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 11)), -1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 12)), -1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(253, 0)), -1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(253, 1)), 1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(253, 2)), -1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(253, 3)), -1);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(0, 45)), -1);
	nftw(sys_root, sys_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static void sys_loop(unsigned int minor, const char *file)
{
	char path[64], text[512];

	snprintf(path, sizeof(path), "devices/virtual/block/loop%u", minor);
	sys_disk(7, minor, path);
	snprintf(path, sizeof(path),
		 "devices/virtual/block/loop%u/loop/backing_file", minor);
	snprintf(text, sizeof(text), "%.500s\n", file);
	sys_file(path, text);
}

/* Tests that a loop device has the node of the disk that holds its backing
 * file. */
static void test_sysfs_tells_a_loop_device_s_node(void)
{
	const char *near = "devices/pci0000:80/0000:80:01.0/0000:81:00.0";
	char path[512];
	struct stat st;

	sys_make();
	sys_file("dev/block/x", "");
	sys_file("image", "");
	CU_ASSERT_FATAL((size_t)snprintf(path, sizeof(path), "%s/image",
					 sys_root) < sizeof(path));
	CU_ASSERT_EQUAL_FATAL(stat(path, &st), 0);
	sys_loop(3, path);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(7, 3)), -1);
	snprintf(path, sizeof(path), "%s/nvme/nvme0/nvme0n1", near);
	sys_disk(major(st.st_dev), minor(st.st_dev), path);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(7, 3)), 1);
	sys_disk(259, 7, "devices/virtual/block/loop3/loop3p1");
	sys_file("devices/virtual/block/loop3/loop3p1/partition", "1\n");
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(259, 7)), 1);
	snprintf(path, sizeof(path), "%s/image (deleted)", sys_root);
	sys_loop(4, path);
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(7, 4)), -1);
	sys_loop(5, "/dev/null");	/* /dev/null is a device, but not a
					 * disk */
	CU_ASSERT_EQUAL(topo_sys_block_node(sys_root, makedev(7, 5)), -1);
	nftw(sys_root, sys_remove, 8, FTW_DEPTH | FTW_PHYS);
}

/* --- threads ------------------------------------------------------------- */

static char worker_xml[4096];

static void *topo_worker(void *arg)
{
	const struct tei_topo *shared = arg;
	struct tei_topo_opts opts = { .xml_path = worker_xml };
	const struct tei_topo_nic_desc nic = { .name = "eth0" };
	struct tei_topo *own;
	uint8_t ranks[8];
	uintptr_t bad = 0;
	char *text;
	int i;

	for (i = 0; i < 20; i++) {
		tei_topo_ranks(shared, "cuda:3", ranks, 8);
		bad += ranks[2] != TEI_TOPO_PREFERRED;
		bad += tei_topo_json(shared, &text) != 0;
		bad += tei_topo_parse(text, shared, 0, &own, NULL) != 0;
		free(text);
		tei_topo_free(own);
		bad += tei_topo_discover(&nic, 1, &opts, &own, NULL) != 0;
		tei_topo_free(own);
	}
	return (void *)bad;
}

static void test_many_threads_may_read(void)
{
	struct tei_topo *topo = discover("gpu8-nic8.xml", mlx8);
	pthread_t threads[4];
	void *bad;
	int i;

	snprintf(worker_xml, sizeof(worker_xml), "%s",
		 topo_test_data("vm-small.xml"));
	for (i = 0; i < 4; i++)
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL,
						     topo_worker, topo), 0);
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], &bad);
		CU_ASSERT_PTR_NULL(bad);
	}
	tei_topo_free(topo);
}

/* --- a library without hwloc --------------------------------------------- */

#ifdef TEI_HAVE_HWLOC
#define HWLOC_CASE(fn) (fn)
#else
#define HWLOC_CASE(fn) (0 ? (fn) : skip_without_hwloc)

static void skip_without_hwloc(void)
{
	tei_test_skip("built with --disable-hwloc");
}
#endif

static void test_topology_file_without_hwloc_is_refused_with_the_option(void)
{
	struct tei_topo_opts opts = {
		.xml_path = topo_test_data("gpu8-nic8.xml"),
	};
	struct tei_topo *topo;
	struct tei_err err;

	if (topo_hw_built_in()) {
		tei_test_skip("built with hwloc");
		return;
	}
	CU_ASSERT_EQUAL(tei_topo_discover_all(&opts, &topo, &err),
			TEI_ERR_NOT_IMPLEMENTED);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "gpu8-nic8.xml"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "--disable-hwloc"));
}

const struct tei_test_case discover_cases[] = {
	{ "two_sockets_with_infiniband",
	  HWLOC_CASE(test_two_sockets_with_infiniband) },
	{ "the_matrix_tells_far_from_near",
	  HWLOC_CASE(test_the_matrix_tells_far_from_near) },
	{ "gpu_next_to_its_nic", HWLOC_CASE(test_gpu_next_to_its_nic) },
	{ "gpus_prefer_nics_of_their_switch",
	  HWLOC_CASE(test_gpus_prefer_nics_of_their_switch) },
	{ "the_matrix_of_eight_gpus_and_eight_nics",
	  HWLOC_CASE(test_the_matrix_of_eight_gpus_and_eight_nics) },
	{ "nics_of_both_sockets_have_their_node",
	  HWLOC_CASE(test_nics_of_both_sockets_have_their_node) },
	{ "locations_have_a_place", HWLOC_CASE(test_locations_have_a_place) },
	{ "disabled_nics_do_not_compete",
	  HWLOC_CASE(test_disabled_nics_do_not_compete) },
	{ "driver_numbers_win", HWLOC_CASE(test_driver_numbers_win) },
	{ "rails_are_found_by_device_or_pci_address",
	  HWLOC_CASE(test_rails_are_found_by_device_or_pci_address) },
	{ "one_node_is_near_to_everything",
	  HWLOC_CASE(test_one_node_is_near_to_everything) },
	{ "nics_without_pci_are_preferred",
	  HWLOC_CASE(test_nics_without_pci_are_preferred) },
	{ "broken_topology_is_unknown_distance",
	  HWLOC_CASE(test_broken_topology_is_unknown_distance) },
	{ "environment_names_the_machine",
	  HWLOC_CASE(test_environment_names_the_machine) },
	{ "discovery_on_this_machine_keeps_all_nics",
	  test_discovery_on_this_machine_keeps_all_nics },
	{ "sysfs_fills_the_gaps", test_sysfs_fills_the_gaps },
	{ "sysfs_serves_where_hwloc_fails",
	  test_sysfs_serves_where_hwloc_fails },
	{ "sysfs_tells_a_nic_s_node_and_a_node_s_cpus",
	  test_sysfs_tells_a_nic_s_node_and_a_node_s_cpus },
	{ "sysfs_tells_a_disk_s_node", test_sysfs_tells_a_disk_s_node },
	{ "sysfs_tells_a_loop_device_s_node",
	  test_sysfs_tells_a_loop_device_s_node },
	{ "topology_file_without_hwloc_is_refused_with_the_option",
	  test_topology_file_without_hwloc_is_refused_with_the_option },
	{ "many_threads_may_read", HWLOC_CASE(test_many_threads_may_read) },
	{ NULL, NULL },
};
