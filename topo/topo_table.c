/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#include "topo/topo_int.h"
#include "util/err.h"

void topo_pci_text(const struct tei_topo_pci *pci, char text[16])
{
	if (!pci->known || pci->domain > 0xffffff)
		text[0] = '\0';
	else
		snprintf(text, 16, "%04x:%02x:%02x.%x", pci->domain & 0xffffff,
			 pci->bus, pci->dev & 31, pci->fn & 7);
}

bool topo_pci_parse(const char *text, struct tei_topo_pci *pci)
{
	unsigned int domain, bus, dev, fn;
	int end = 0;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &fn, &end) !=
		    4 ||
	    text[end] || dev > 31 || fn > 7)
		return false;
	pci->known = true;
	pci->domain = domain;
	pci->bus = (uint8_t)bus;
	pci->dev = (uint8_t)dev;
	pci->fn = (uint8_t)fn;
	return true;
}

const char *topo_bad_name(const char *name)
{
	const unsigned char *p;

	if (!name || !*name)
		return "empty name";
	if (strnlen(name, TEI_TOPO_NAME) == TEI_TOPO_NAME)
		return "name longer than 63 bytes";
	for (p = (const unsigned char *)name; *p; p++)
		if (*p < 0x20 || *p == 0x7f)
			return "control character in a name";
	return NULL;
}

struct topo_quote topo_quote(const char *text)
{
	struct topo_quote q;
	size_t i;

	for (i = 0; text[i] && i < sizeof(q.text) - 1; i++)
		q.text[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
	q.text[i] = '\0';
	return q;
}

struct tei_topo *topo_new(uint32_t n_nics)
{
	struct tei_topo *topo = calloc(1, sizeof(*topo));
	uint32_t i;

	if (!topo)
		return NULL;
	topo->nics = calloc(n_nics ? n_nics : 1, sizeof(*topo->nics));
	if (!topo->nics) {
		free(topo);
		return NULL;
	}
	topo->n_nics = n_nics;
	for (i = 0; i < n_nics; i++)
		topo->nics[i].numa_node = -1;
	return topo;
}

void tei_topo_free(struct tei_topo *topo)
{
	uint32_t i;

	if (!topo)
		return;
	for (i = 0; i < topo->n_rows; i++)
		free(topo->rows[i].nics);
	free(topo->rows);
	free(topo->any.nics);
	free(topo->nics);
	free(topo);
}

static int topo_row_init(const struct tei_topo *topo, struct topo_row *row,
			 const char *location)
{
	memset(row, 0, sizeof(*row));
	snprintf(row->location, sizeof(row->location), "%s", location);
	row->numa_node = -1;
	row->nics = calloc(topo->n_nics ? topo->n_nics : 1, sizeof(*row->nics));
	return row->nics ? 0 : TEI_ERR_MEMORY;
}

struct topo_row *topo_add_row(struct tei_topo *topo, const char *location)
{
	uint32_t cap = topo->cap_rows ? 2 * topo->cap_rows : 8;
	struct topo_row *rows;

	if (topo->n_rows == topo->cap_rows) {
		rows = realloc(topo->rows, cap * sizeof(*rows));
		if (!rows)
			return NULL;
		topo->rows = rows;
		topo->cap_rows = cap;
	}
	if (topo_row_init(topo, &topo->rows[topo->n_rows], location))
		return NULL;
	return &topo->rows[topo->n_rows++];
}

/* Compares two locations by name. Numbers in the names are compared by their
 * value, so that cpu:2 comes before cpu:10. */
static int topo_row_cmp(const void *pa, const void *pb)
{
	const char *a = ((const struct topo_row *)pa)->location;
	const char *b = ((const struct topo_row *)pb)->location;
	int cmp = strverscmp(a, b);

	return cmp ? cmp : strcmp(a, b);
}

int topo_finish(struct tei_topo *topo)
{
	uint32_t i;

	if (topo->n_rows)
		qsort(topo->rows, topo->n_rows, sizeof(*topo->rows),
		      topo_row_cmp);
	if (topo_row_init(topo, &topo->any, TEI_TOPO_ANY))
		return TEI_ERR_MEMORY;
	for (i = 0; i < topo->n_nics; i++)
		if (!topo->nics[i].off)
			topo->any.nics[topo->any.n_preferred++] = i;
	return 0;
}

static int topo_check_descs(const struct tei_topo_nic_desc *nics, size_t count,
			    struct tei_err *err)
{
	const char *bad;
	size_t i, k;

	if (count > TEI_TOPO_MAX_NICS)
		return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "%zu NICs, the limit is %d", count,
				    TEI_TOPO_MAX_NICS);
	for (i = 0; i < count; i++) {
		bad = topo_bad_name(nics[i].name);
		if (bad)
			return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS,
					    NULL, "NIC %zu: %s", i, bad);
		for (k = 0; k < i; k++)
			if (!strcmp(nics[k].name, nics[i].name))
				return tei_err_fail(err, TEI_ERR_INVALID,
						    TOPO_SUBSYS, NULL,
						    "NIC %s is listed twice",
						    nics[i].name);
	}
	return 0;
}

int topo_from_descs(const struct tei_topo_nic_desc *nics, size_t count,
		    struct tei_topo **out, struct tei_err *err)
{
	struct tei_topo *topo;
	struct tei_topo_nic *nic;
	size_t i;
	int rc;

	if (!out || (count && !nics))
		return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "nics or out is NULL");
	rc = topo_check_descs(nics, count, err);
	if (rc)
		return rc;
	topo = topo_new((uint32_t)count);
	if (!topo)
		return tei_err_fail(err, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
				    "out of memory for %zu NICs", count);
	for (i = 0; i < count; i++) {
		nic = &topo->nics[i];
		snprintf(nic->name, sizeof(nic->name), "%s", nics[i].name);
		topo_pci_text(&nics[i].pci, nic->pci);
		nic->speed = nics[i].speed;
		nic->off = nics[i].off;
	}
	*out = topo;
	return 0;
}

int tei_topo_create(const struct tei_topo_nic_desc *nics, size_t count,
		    struct tei_topo **out, struct tei_err *err)
{
	struct tei_topo *topo = NULL;
	int rc = topo_from_descs(nics, count, out ? &topo : NULL, err);

	if (rc)
		return rc;
	if (topo_finish(topo)) {
		tei_topo_free(topo);
		return tei_err_fail(err, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
				    "out of memory");
	}
	*out = topo;
	return 0;
}

size_t tei_topo_nic_count(const struct tei_topo *topo)
{
	return topo->n_nics;
}

const struct tei_topo_nic *tei_topo_nic(const struct tei_topo *topo,
					size_t index)
{
	return index < topo->n_nics ? &topo->nics[index] : NULL;
}

int tei_topo_find_nic(const struct tei_topo *topo, const char *name)
{
	uint32_t i;

	for (i = 0; name && i < topo->n_nics; i++)
		if (!strcmp(topo->nics[i].name, name))
			return (int)i;
	return -1;
}

size_t tei_topo_location_count(const struct tei_topo *topo)
{
	return topo->n_rows;
}

const char *tei_topo_location(const struct tei_topo *topo, size_t index)
{
	return index < topo->n_rows ? topo->rows[index].location : NULL;
}

const struct topo_row *topo_find_row(const struct tei_topo *topo,
				     const char *location)
{
	uint32_t i;

	for (i = 0; location && i < topo->n_rows; i++)
		if (!strcmp(topo->rows[i].location, location))
			return &topo->rows[i];
	return NULL;
}

bool tei_topo_location_place(const struct tei_topo *topo, size_t index,
			     struct tei_topo_place *place)
{
	if (index >= topo->n_rows)
		return false;
	place->numa_node = topo->rows[index].numa_node;
	memcpy(place->pci, topo->rows[index].pci, sizeof(place->pci));
	return true;
}

bool tei_topo_lookup(const struct tei_topo *topo, const char *location,
		     const uint32_t **preferred, size_t *n_preferred,
		     const uint32_t **accessible, size_t *n_accessible)
{
	const struct topo_row *found = topo_find_row(topo, location);
	const struct topo_row *row = found;
	uint32_t near;

	if (!row || row->n_preferred + row->n_accessible == 0)
		row = &topo->any;
	near = row->n_preferred ? row->n_preferred : row->n_accessible;
	*preferred = row->nics;
	*n_preferred = near;
	*accessible = row->nics + near;
	*n_accessible = row->n_preferred + row->n_accessible - near;
	return found != NULL;
}

void tei_topo_ranks(const struct tei_topo *topo, const char *location,
		    uint8_t *ranks, size_t n)
{
	const uint32_t *near, *other;
	size_t n_near, n_other, i;

	memset(ranks, TEI_TOPO_OFF, n);
	tei_topo_lookup(topo, location, &near, &n_near, &other, &n_other);
	for (i = 0; i < n_near; i++)
		if (near[i] < n)
			ranks[near[i]] = TEI_TOPO_PREFERRED;
	for (i = 0; i < n_other; i++)
		if (other[i] < n)
			ranks[other[i]] = TEI_TOPO_ACCESSIBLE;
}
