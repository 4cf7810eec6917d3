/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The topology of the engine's rails: which NICs are near which memory.
 */
#include "api/engine_topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "topo/tei_topo.h"

#define TOPOLOGY_MATRIX_MAX (1u << 20)

static void topology_pci(const char *text, struct tei_topo_pci *pci)
{
	unsigned int domain, bus, dev, fn;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &dev, &fn) != 4)
		return;
	pci->known = true;
	pci->domain = domain;
	pci->bus = (uint8_t)bus;
	pci->dev = (uint8_t)dev;
	pci->fn = (uint8_t)fn;
}

/* Describes the rails in rails[] and their NICs in nics[], for the discovery of
 * the topology. Returns their number, or -1 after an error. */
static int topology_nics(struct engine *e, struct tei_rail_desc *rails,
			 struct tei_topo_nic_desc *nics)
{
	size_t i, n = tei_rail_count(e->dp);

	for (i = 0; i < n; i++) {
		if (tei_rail_describe(e->dp, i, &rails[i]))
			return -1;
		if (!rails[i].open || rails[i].hidden) {
			/* gives the rail a name that no NIC has, because the
			 * rail was uninstalled or replaced but keeps its
			 * index */
			snprintf(rails[i].name, sizeof(rails[i].name),
				 "uninstalled-%zu", i);
			nics[i].off = true;
		}
		nics[i].name = rails[i].name;
		nics[i].speed = rails[i].speed_bps;
		topology_pci(rails[i].pci, &nics[i].pci);
	}
	return (int)n;
}

static char *topology_read_file(const char *path, struct tei_err *err)
{
	FILE *f = fopen(path, "re");
	char *text = NULL;
	size_t n;

	if (f)
		text = malloc(TOPOLOGY_MATRIX_MAX + 1);
	if (!f || !text) {
		tei_err_fail(err, TEI_ERR_INVALID, "engine", NULL,
			     "MC_CUSTOM_TOPO_JSON=%s: cannot be read: %s", path,
			     strerror(errno));
		if (f)
			fclose(f);
		return NULL;
	}
	n = fread(text, 1, TOPOLOGY_MATRIX_MAX, f);
	text[n] = '\0';
	fclose(f);
	return text;
}

/* Discovers the topology for the present rails. "matrix" is a topology in JSON
 * that replaces the discovered one, or NULL. Returns NULL after an error. */
static struct tei_topo *topology_topo(struct engine *e, const char *matrix,
				      struct tei_err *err)
{
	struct tei_rail_desc *rails = calloc(TEI_RAIL_MAX, sizeof(*rails));
	struct tei_topo_nic_desc nics[TEI_RAIL_MAX];
	struct tei_topo *topo = NULL, *custom = NULL;
	int n, ret;

	if (!rails)
		return NULL;
	memset(nics, 0, sizeof(nics));
	n = topology_nics(e, rails, nics);
	ret = n < 0 ? TEI_ERR_CONTEXT
		    : tei_topo_discover(nics, (size_t)n, NULL, &topo, err);
	free(rails);
	if (ret || !matrix)
		return topo;
	ret = tei_topo_parse(matrix, topo, 0, &custom, err);
	tei_topo_free(topo);
	return ret ? NULL : custom;
}

int engine_topology_set(struct engine *e, struct tei_err *err)
{
	struct tei_topo *topo = topology_topo(e, e->matrix, err), *old;

	if (!topo)
		return err->code ? err->code : TEI_ERR_MEMORY;
	old = e->topo;
	e->topo = topo;
	tei_rail_dp_set_topo(e->dp, topo);
	tei_topo_free(old);
	return 0;
}

int engine_topology_take(struct engine *e, const char *json,
			 struct tei_err *err)
{
	struct tei_topo *probe;
	char *text;
	int ret;

	if (json)
		text = strdup(json);
	else if (*e->settings.rails.custom_topo)
		text = topology_read_file(e->settings.rails.custom_topo, err);
	else
		return 0;
	if (!text)
		return TEI_ERR_INVALID;
	ret = tei_topo_parse(text, NULL, 0, &probe, err);
	if (ret) {
		free(text);
		return ret;
	}
	tei_topo_free(probe);
	free(e->matrix);
	e->matrix = text;
	return 0;
}

int discoverTopology(transfer_engine_t engine)
{
	struct engine *e = engine_from(engine);
	struct tei_err err;
	int ret;

	if (!e)
		return TEI_ERR_INVALID;
	memset(&err, 0, sizeof(err));
	tei_mutex_lock(&e->control);
	ret = engine_topology_set(e, &err);
	tei_mutex_unlock(&e->control);
	return ret;
}
