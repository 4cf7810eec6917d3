/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Discovers the topology of a machine. The closeness of a NIC to a location is
 * a number: 0 if the NIC is known to be far, 1 if its distance is unknown, 2 if
 * it is on the same NUMA node. For a GPU, a closeness above 2 means that the
 * NIC shares a PCI bridge with the GPU; it is 2 plus the depth of this bridge.
 * The NICs with the greatest closeness are preferred if this closeness is at
 * least 2, or if all distances are unknown.
 */

#include <stdlib.h>
#include <string.h>

#include "topo/topo_int.h"
#include "util/err.h"

#define TOPO_MAX_NODES	1024
#define TOPO_MAX_GPUS	256

enum {
	TOPO_FAR = 0,
	TOPO_UNKNOWN = 1,
	TOPO_NEAR = 2,		/* on the same NUMA node. A NIC that shares a
				 * PCI bridge with the GPU has this value plus
				 * the depth of the bridge */
};

/* Data of one discovery while it runs. */
struct topo_find {
	struct topo_hw hw;
	const char *sysfs;	/* root of sysfs; NULL if sysfs must not be
				 * read */
	struct tei_topo *topo;
	struct topo_spot *spots;	/* where each NIC is; one entry per
					 * NIC */
	/* how close each NIC is to the location being examined: TOPO_FAR,
	 * TOPO_UNKNOWN or at least TOPO_NEAR */
	unsigned int *close;
	size_t n_nodes;
	int nodes[TOPO_MAX_NODES];
	size_t n_gpus;
	struct topo_gpu gpus[TOPO_MAX_GPUS];
};

/* Finds the hwloc object of a NIC. If hwloc describes another machine, searches
 * by name first, because the PCI address of the NIC belongs to this machine. */
static struct hwloc_obj *topo_find_obj(const struct topo_find *f,
				       const struct tei_topo_pci *pci,
				       const char *device)
{
	struct hwloc_obj *by_pci = topo_hw_by_pci(&f->hw, pci);
	struct hwloc_obj *by_name = topo_hw_by_name(&f->hw, device);

	if (f->hw.this_system)
		return by_pci ? by_pci : by_name;
	return by_name ? by_name : by_pci;
}

static void topo_find_nic(struct topo_find *f,
			  const struct tei_topo_nic_desc *desc, uint32_t i)
{
	const char *device = desc->device ? desc->device : desc->name;
	struct topo_sys_nic sys = { .node = -1, .speed = desc->speed };
	struct tei_topo_nic *nic = &f->topo->nics[i];
	struct topo_spot *spot = &f->spots[i];
	struct tei_topo_pci pci = desc->pci;
	struct hwloc_obj *obj;

	if (f->sysfs)
		topo_sys_nic(f->sysfs, device, &sys);
	if (!pci.known)
		pci = sys.pci;
	obj = topo_find_obj(f, &pci, device);
	topo_hw_spot(&f->hw, obj, spot);
	if (!pci.known)
		pci = topo_hw_pci(obj);
	if (spot->node < 0 && f->sysfs)
		spot->node = topo_sys_pci_node(f->sysfs, &pci);
	if (spot->node < 0)
		spot->node = sys.node;
	nic->numa_node = spot->node;
	nic->speed = sys.speed;
	topo_pci_text(&pci, nic->pci);
}

static void topo_find_nodes(struct topo_find *f)
{
	f->n_nodes = topo_hw_nodes(&f->hw, f->nodes, TOPO_MAX_NODES);
	if (!f->n_nodes && f->sysfs)
		f->n_nodes = topo_sys_nodes(f->sysfs, f->nodes,
					    TOPO_MAX_NODES);
	if (!f->n_nodes) {
		f->nodes[0] = 0;
		f->n_nodes = 1;
	}
}

static void topo_find_gpus(struct topo_find *f,
			   const struct tei_topo_opts *opts)
{
	struct topo_gpu *gpu;
	size_t i;

	if (!opts->gpus) {
		f->n_gpus = topo_hw_gpus(&f->hw, f->gpus, TOPO_MAX_GPUS);
		return;
	}
	for (i = 0; i < opts->gpu_count && i < TOPO_MAX_GPUS; i++) {
		gpu = &f->gpus[i];
		gpu->ordinal = opts->gpus[i].ordinal;
		topo_hw_spot(&f->hw,
			     topo_hw_by_pci(&f->hw, &opts->gpus[i].pci),
			     &gpu->spot);
		if (gpu->spot.node < 0 && f->sysfs)
			gpu->spot.node = topo_sys_pci_node(f->sysfs,
							   &opts->gpus[i].pci);
	}
	f->n_gpus = i;
}

static unsigned int topo_close_node(const struct topo_find *f,
				    const struct topo_spot *spot, int node)
{
	if (f->n_nodes == 1)
		return TOPO_NEAR;
	if (spot->nodes)
		return topo_hw_near(spot, node) ? TOPO_NEAR : TOPO_FAR;
	if (spot->node < 0)
		return TOPO_UNKNOWN;
	return spot->node == node ? TOPO_NEAR : TOPO_FAR;
}

static unsigned int topo_close_gpu(const struct topo_find *f,
				   const struct topo_spot *nic,
				   const struct topo_spot *gpu)
{
	unsigned int depth = topo_hw_shared_bridge(nic->obj, gpu->obj);

	if (depth)
		return TOPO_NEAR + depth;
	if (gpu->nodes && nic->nodes)
		return topo_hw_share_node(gpu, nic) ? TOPO_NEAR : TOPO_FAR;
	if (gpu->node < 0)
		return f->n_nodes == 1 ? TOPO_NEAR : TOPO_UNKNOWN;
	return topo_close_node(f, nic, gpu->node);
}

/* Adds the row of a location to the topology. f->close must hold the closeness
 * of every NIC to the location. gpu: the GPU of the location, or NULL if the
 * location is a NUMA node. */
static int topo_find_add(struct topo_find *f, const char *location, int node,
			 struct hwloc_obj *gpu)
{
	unsigned int best = 0, worst = ~0u;
	struct tei_topo_pci pci;
	struct topo_row *row;
	uint32_t i;

	if (topo_find_row(f->topo, location))
		return 0;
	row = topo_add_row(f->topo, location);
	if (!row)
		return TEI_ERR_MEMORY;
	row->numa_node = node;
	pci = topo_hw_pci(gpu);
	topo_pci_text(&pci, row->pci);
	for (i = 0; i < f->topo->n_nics; i++) {
		if (f->topo->nics[i].off)
			continue;
		best = f->close[i] > best ? f->close[i] : best;
		worst = f->close[i] < worst ? f->close[i] : worst;
	}
	if (best < TOPO_NEAR && !(best == TOPO_UNKNOWN && worst == best))
		best = ~0u;
	for (i = 0; i < f->topo->n_nics; i++)
		if (!f->topo->nics[i].off && f->close[i] == best)
			row->nics[row->n_preferred++] = i;
	for (i = 0; i < f->topo->n_nics; i++)
		if (!f->topo->nics[i].off && f->close[i] != best)
			row->nics[row->n_preferred + row->n_accessible++] = i;
	return 0;
}

static int topo_find_rows(struct topo_find *f)
{
	char location[TEI_TOPO_NAME];
	size_t i;
	uint32_t k;
	int rc = 0;

	for (i = 0; i < f->n_nodes && !rc; i++) {
		for (k = 0; k < f->topo->n_nics; k++)
			f->close[k] = topo_close_node(f, &f->spots[k],
						      f->nodes[i]);
		snprintf(location, sizeof(location), "cpu:%d", f->nodes[i]);
		rc = topo_find_add(f, location, f->nodes[i], NULL);
	}
	for (i = 0; i < f->n_gpus && !rc; i++) {
		for (k = 0; k < f->topo->n_nics; k++)
			f->close[k] = topo_close_gpu(f, &f->spots[k],
						     &f->gpus[i].spot);
		snprintf(location, sizeof(location), "cuda:%u",
			 f->gpus[i].ordinal);
		rc = topo_find_add(f, location, f->gpus[i].spot.node,
				   f->gpus[i].spot.obj);
	}
	return rc;
}

/* Allocates the data of a discovery and opens hwloc. Selects the root of sysfs,
 * or no sysfs if hwloc describes another machine. */
static int topo_find_open(const struct tei_topo_opts *opts,
			  struct topo_find **out, struct tei_err *err)
{
	struct topo_find *f;

	if (opts->xml_path && !topo_hw_built_in())
		return tei_err_fail(err, TEI_ERR_NOT_IMPLEMENTED, TOPO_SUBSYS,
				    "configure the library without the option",
				    "topology %s: this library was configured "
				    "with --disable-hwloc",
				    opts->xml_path);
	f = calloc(1, sizeof(*f));
	if (!f)
		return tei_err_fail(err, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
				    "out of memory");
	topo_hw_open(&f->hw, opts->xml_path);
	f->sysfs = opts->sysfs;
	if (!f->sysfs && f->hw.this_system)
		f->sysfs = "/sys";
	*out = f;
	return 0;
}

static void topo_find_close(struct topo_find *f)
{
	topo_hw_close(&f->hw);
	free(f->spots);
	free(f->close);
	free(f);
}

static int topo_find_run(struct topo_find *f,
			 const struct tei_topo_nic_desc *nics, size_t count,
			 const struct tei_topo_opts *opts,
			 struct tei_topo **out, struct tei_err *err)
{
	size_t i;
	int rc = topo_from_descs(nics, count, &f->topo, err);

	if (rc)
		return rc;
	f->spots = calloc(count + 1, sizeof(*f->spots));
	f->close = calloc(count + 1, sizeof(*f->close));
	if (!f->spots || !f->close)
		goto err_free_topo;
	topo_find_nodes(f);
	for (i = 0; i < count; i++)
		topo_find_nic(f, &nics[i], (uint32_t)i);
	topo_find_gpus(f, opts);
	if (topo_find_rows(f) || topo_finish(f->topo))
		goto err_free_topo;
	*out = f->topo;
	return 0;

err_free_topo:
	tei_topo_free(f->topo);
	return tei_err_fail(err, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
			    "out of memory");
}

int tei_topo_discover(const struct tei_topo_nic_desc *nics, size_t count,
		      const struct tei_topo_opts *opts, struct tei_topo **out,
		      struct tei_err *err)
{
	static const struct tei_topo_opts defaults;
	struct topo_find *f;
	int rc;

	if (!out)
		return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "out is NULL");
	opts = opts ? opts : &defaults;
	rc = topo_find_open(opts, &f, err);
	if (rc)
		return rc;
	rc = topo_find_run(f, nics, count, opts, out, err);
	topo_find_close(f);
	return rc;
}

/* Writes one entry to descs for each different name, in the order of the names,
 * because hwloc may list a name several times. Returns the number of
 * entries. */
static size_t topo_unique(const char **names, size_t n,
			  struct tei_topo_nic_desc *descs)
{
	size_t count = 0, i, k;

	for (i = 0; i < n; i++) {
		for (k = 0; k < count; k++)
			if (!strcmp(descs[k].name, names[i]))
				break;
		if (k < count)
			continue;
		memset(&descs[count], 0, sizeof(descs[count]));
		descs[count++].name = names[i];
	}
	return count;
}

int tei_topo_discover_all(const struct tei_topo_opts *opts,
			  struct tei_topo **out, struct tei_err *err)
{
	static const struct tei_topo_opts defaults;
	struct tei_topo_nic_desc descs[TEI_TOPO_MAX_NICS];
	const char *names[TEI_TOPO_MAX_NICS];
	struct topo_find *f;
	size_t n;
	int rc;

	if (!out)
		return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "out is NULL");
	opts = opts ? opts : &defaults;
	rc = topo_find_open(opts, &f, err);
	if (rc)
		return rc;
	n = topo_unique(names, topo_hw_nics(&f->hw, names, TEI_TOPO_MAX_NICS),
			descs);
	rc = topo_find_run(f, descs, n, opts, out, err);
	topo_find_close(f);
	return rc;
}
