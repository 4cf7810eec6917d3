/* SPDX-License-Identifier: BSD-2-Clause */
/* Describes the machine: sockets and NUMA nodes as hwloc reports them, NICs and
 * the priority matrix as topo/ finds them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/te_info.h"
#include "topo/tei_topo.h"
#include "util/err.h"

#ifdef TEI_HAVE_HWLOC
#include <hwloc.h>

static void machine_packages(hwloc_topology_t t, struct info_machine *m)
{
	hwloc_obj_t obj = NULL;
	const char *model;

	while (m->n_packages < INFO_PACKAGES &&
	       (obj = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PACKAGE, obj))) {
		struct info_package *p = &m->packages[m->n_packages++];

		p->index = (int)obj->os_index;
		model = hwloc_obj_get_info_by_name(obj, "CPUModel");
		snprintf(p->model, sizeof(p->model), "%s", model ? model : "");
	}
}

/* Returns the index of the package that the NUMA node belongs to, or -1 if it
 * belongs to none or to several. */
static int machine_package_of(hwloc_topology_t t, hwloc_obj_t node)
{
	hwloc_obj_t obj = NULL;
	int i = 0, found = -1;

	while ((obj = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PACKAGE, obj))) {
		if (obj->nodeset && node->nodeset &&
		    hwloc_bitmap_intersects(obj->nodeset, node->nodeset)) {
			if (found >= 0)
				return -1;
			found = i;
		}
		i++;
	}
	return found < INFO_PACKAGES ? found : -1;
}

static unsigned int machine_count(hwloc_topology_t t, hwloc_obj_t node,
				  hwloc_obj_type_t type)
{
	int n = node->cpuset ? hwloc_get_nbobjs_inside_cpuset_by_type(
				       t, node->cpuset, type) : 0;

	return n > 0 ? (unsigned int)n : 0;
}

static void machine_nodes(hwloc_topology_t t, struct info_machine *m)
{
	hwloc_obj_t obj = NULL;

	while (m->n_nodes < INFO_NODES &&
	       (obj = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, obj))) {
		struct info_node *n = &m->nodes[m->n_nodes++];

		n->index = (int)obj->os_index;
		n->package = machine_package_of(t, obj);
		n->memory = obj->attr ?
			    (double)obj->attr->numanode.local_memory : 0;
		n->cores = machine_count(t, obj, HWLOC_OBJ_CORE);
		n->threads = machine_count(t, obj, HWLOC_OBJ_PU);
	}
}

static int machine_load(const char *xml, struct info_machine *m)
{
	hwloc_topology_t t;
	int ret;

	if (hwloc_topology_init(&t))
		return -1;
	ret = xml ? hwloc_topology_set_xml(t, xml) : 0;
	if (!ret)
		ret = hwloc_topology_load(t);
	if (!ret) {
		machine_packages(t, m);
		machine_nodes(t, m);
	}
	hwloc_topology_destroy(t);
	return ret;
}

/* Reads packages and nodes. Returns 0, or -1 with the reason in why. */
static int machine_hwloc(const char *xml, struct info_machine *m, char *why,
			 size_t len)
{
	errno = 0;
	if (!machine_load(xml, m))
		return 0;
	snprintf(why, len, "hwloc can't read %s%s%s",
		 xml ? xml : "this machine", errno ? ": " : "",
		 errno ? strerror(errno) : "");
	return -1;
}
#else
static int machine_hwloc(const char *xml, struct info_machine *m, char *why,
			 size_t len)
{
	(void)xml;
	(void)m;
	snprintf(why, len, "moonrail was configured with --disable-hwloc");
	return -1;
}
#endif

/* Fills descs with the rails, followed by the other NICs that hwloc finds.
 * Returns their number, at most max. */
static size_t machine_descs(const struct info *info,
			    const struct tei_topo *all,
			    struct tei_topo_nic_desc *descs, size_t max)
{
	size_t n = 0, i, k;

	for (i = 0; i < info->n_rails && n < max; i++) {
		const struct info_rail *r = &info->rails[i];

		if (!strcmp(r->transport, "local") ||
		    !strcmp(r->transport, "shm"))
			continue;
		descs[n].name = r->name;
		descs[n++].device = r->device;
	}
	for (i = 0; i < tei_topo_nic_count(all) && n < max; i++) {
		const char *name = tei_topo_nic(all, i)->name;

		for (k = 0; k < n; k++)
			if (!strcmp(descs[k].name, name) ||
			    (descs[k].device && !strcmp(descs[k].device, name)))
				break;
		if (k == n)
			descs[n++].name = name;
	}
	return n;
}

static int machine_topo(struct info *info, struct info_machine *m,
			struct tei_err *err)
{
	struct tei_topo_opts opts = { .xml_path = info->opts.topology };
	struct tei_topo_nic_desc descs[TEI_TOPO_MAX_NICS];
	struct tei_topo *all;
	size_t n;
	int ret;

	ret = tei_topo_discover_all(&opts, &all, err);
	if (ret || info->opts.topology) {
		m->topo = ret ? NULL : all;
		return ret;
	}
	memset(descs, 0, sizeof(descs));
	n = machine_descs(info, all, descs, TEI_TOPO_MAX_NICS);
	ret = tei_topo_discover(descs, n, &opts, &m->topo, err);
	tei_topo_free(all);
	return ret;
}

int info_machine_open(struct info *info, struct info_machine *m, char *why,
		      size_t len)
{
	struct tei_err err;

	memset(m, 0, sizeof(*m));
	if (machine_hwloc(info->opts.topology, m, why, len))
		return -1;
	if (machine_topo(info, m, &err)) {
		snprintf(why, len, "%s", err.text);
		return -1;
	}
	return 0;
}

void info_machine_close(struct info_machine *m)
{
	tei_topo_free(m->topo);
	m->topo = NULL;
}

void info_machine_doc(struct info *info, const struct info_machine *m)
{
	cJSON *doc = info_object(info->doc, "machine_topology"), *list, *o;
	const struct tei_topo_nic *nic;
	size_t i;

	list = info_array(doc, "sockets");
	for (i = 0; i < m->n_packages; i++) {
		o = info_object(list, NULL);
		info_num(o, "index", m->packages[i].index);
		info_text(o, "model", "%s", m->packages[i].model);
	}
	list = info_array(doc, "numa_nodes");
	for (i = 0; i < m->n_nodes; i++) {
		o = info_object(list, NULL);
		info_num(o, "index", m->nodes[i].index);
		if (m->nodes[i].package >= 0)
			info_num(o, "socket",
				 m->packages[m->nodes[i].package].index);
		info_num(o, "memory_bytes", m->nodes[i].memory);
		info_num(o, "cores", m->nodes[i].cores);
		info_num(o, "threads", m->nodes[i].threads);
	}
	list = info_array(doc, "nics");
	for (i = 0; i < tei_topo_nic_count(m->topo); i++) {
		nic = tei_topo_nic(m->topo, i);
		o = info_object(list, NULL);
		info_text(o, "name", "%s", nic->name);
		info_text(o, "pci", "%s", nic->pci);
		info_num(o, "numa_node", nic->numa_node);
		info_num(o, "speed_bps", (double)nic->speed);
	}
}
