/* SPDX-License-Identifier: BSD-2-Clause */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo_int.h"
#include "util/err.h"
#include "util/log.h"

#define TOPO_JSON_DEPTH	3	/* levels of a matrix: object, pair of lists,
				 * list of names */
#define TOPO_JSON_HINT	"a matrix is {\"cpu:0\": [[\"near\"], [\"other\"]]}"

/* Data of one call of tei_topo_parse. */
struct topo_parse {
	const struct tei_topo *base;
	unsigned int flags;
	struct tei_err *err;
	struct tei_topo *topo;
	size_t n_names;		/* number of names of NICs, counted with
				 * repetitions */
	size_t n_unknown;	/* number of names for which "base" has no
				 * NIC */
	struct topo_quote unknown;	/* the first name for which "base" has
					 * no NIC */
	bool named[TEI_TOPO_MAX_NICS];	/* true if the matrix names the NIC */
	bool seen[TEI_TOPO_MAX_NICS];	/* true if the current row already has
					 * the NIC */
};

/* --- text ---------------------------------------------------------------- */

static int topo_json_at(struct tei_err *err, const char *text, const char *at,
			const char *what)
{
	unsigned int line = 1, column = 1;

	for (; text < at && *text; text++) {
		column = *text == '\n' ? 1 : column + 1;
		line += *text == '\n';
	}
	return tei_err_fail(err, TEI_ERR_JSON, TOPO_SUBSYS, TOPO_JSON_HINT,
			    "priority matrix: %s at line %u, column %u", what,
			    line, column);
}

/* Returns what is wrong with the escape sequence at p, or NULL. A NUL character
 * is refused because it would end the C string early. */
static const char *topo_json_escape(const char *p)
{
	return !strncmp(p, "\\u0000", 6) ? "NUL in a string" : NULL;
}

/* Checks the length of the text and the depth of its nesting. This is necessary
 * because cJSON, which parses the text afterwards, is recursive. */
static int topo_json_scan(const char *text, struct tei_err *err)
{
	const char *p, *end = text + strnlen(text, TEI_TOPO_MAX_TEXT + 1);
	const char *bad = NULL;
	bool string = false;
	int depth = 0;

	if (end > text + TEI_TOPO_MAX_TEXT)
		return tei_err_fail(err, TEI_ERR_JSON, TOPO_SUBSYS, NULL,
				    "priority matrix: longer than %u bytes",
				    TEI_TOPO_MAX_TEXT);
	for (p = text; p < end && !bad; p++) {
		if (string && *p == '\\') {
			bad = topo_json_escape(p);
			p += p + 1 < end;
		} else if (*p == '"') {
			string = !string;
		} else if (!string && (*p == '[' || *p == '{')) {
			bad = ++depth > TOPO_JSON_DEPTH ? "nested too deeply" :
							  NULL;
		} else if (!string && (*p == ']' || *p == '}')) {
			depth--;
		}
	}
	return bad ? topo_json_at(err, text, p - 1, bad) : 0;
}

static int topo_json_tree(const char *text, cJSON **out, struct tei_err *err)
{
	const char *at = text;
	cJSON *root;
	int rc = topo_json_scan(text, err);

	if (rc)
		return rc;
	root = cJSON_ParseWithOpts(text, &at, 1);
	if (!root)
		return topo_json_at(err, text, at ? at : text, "syntax error");
	if (!cJSON_IsObject(root)) {
		cJSON_Delete(root);
		return topo_json_at(err, text, text, "not an object");
	}
	*out = root;
	return 0;
}

/* --- shape --------------------------------------------------------------- */

static int topo_parse_fail(struct topo_parse *p, const char *location,
			   const char *what)
{
	return tei_err_fail(p->err, TEI_ERR_JSON, TOPO_SUBSYS, TOPO_JSON_HINT,
			    "priority matrix, location \"%s\": %s",
			    topo_quote(location).text, what);
}

/* Returns the index of the NIC with that name. If there is no base, adds a NIC
 * if the name is new. Returns -1 if base has no such NIC, or -2 if there are
 * too many NICs. */
static int topo_parse_nic(struct topo_parse *p, const char *name)
{
	struct tei_topo *topo = p->topo;
	int i = tei_topo_find_nic(topo, name);

	if (i >= 0 || p->base)
		return i;
	if (topo->n_nics == TEI_TOPO_MAX_NICS)
		return -2;
	i = (int)topo->n_nics++;
	snprintf(topo->nics[i].name, TEI_TOPO_NAME, "%s", name);
	return i;
}

static int topo_parse_name(struct topo_parse *p, const char *location,
			   const cJSON *item)
{
	const char *bad;
	int i;

	if (!cJSON_IsString(item))
		return topo_parse_fail(p, location, "a NIC is not a string");
	bad = topo_bad_name(item->valuestring);
	if (bad)
		return topo_parse_fail(p, location, bad);
	i = topo_parse_nic(p, item->valuestring);
	if (i == -2)
		return topo_parse_fail(p, location, "more than 256 NICs");
	p->n_names++;
	if (i >= 0)
		p->named[i] = true;
	else if (!p->n_unknown++)
		p->unknown = topo_quote(item->valuestring);
	return 0;
}

/* Checks one member "location": [[…], […]] of the matrix. Looks up the names of
 * its NICs, or adds these NICs. */
static int topo_parse_entry(struct topo_parse *p, const cJSON *entry)
{
	const cJSON *list, *item;
	const char *bad = topo_bad_name(entry->string);
	int rc;

	if (bad)
		return topo_parse_fail(p, entry->string ? entry->string : "",
				       bad);
	if (!cJSON_IsArray(entry) || cJSON_GetArraySize(entry) != 2)
		return topo_parse_fail(p, entry->string,
				       "not a pair of lists");
	cJSON_ArrayForEach(list, entry) {
		if (!cJSON_IsArray(list))
			return topo_parse_fail(p, entry->string,
					       "not a pair of lists");
		cJSON_ArrayForEach(item, list) {
			rc = topo_parse_name(p, entry->string, item);
			if (rc)
				return rc;
		}
	}
	return 0;
}

static int topo_parse_unknown(struct topo_parse *p)
{
	bool all = p->n_unknown == p->n_names;

	if (!p->n_unknown)
		return 0;
	if (all || p->flags & TEI_TOPO_STRICT)
		return tei_err_fail(p->err, TEI_ERR_NO_DEVICE, TOPO_SUBSYS,
				    "compare the names with the rails in use",
				    "priority matrix: %s is not a NIC of "
				    "this topology%s", p->unknown.text,
				    all ? ", and neither is any other name" : "");
	TEI_WARN(TOPO_SUBSYS, "priority matrix: %s is not a NIC of this topology; "
		 "ignored, with %zu other unknown names", p->unknown.text,
		 p->n_unknown - 1);
	return 0;
}

/* --- rows ---------------------------------------------------------------- */

static void topo_parse_list(struct topo_parse *p, const cJSON *list,
			    struct topo_row *row, uint32_t *count)
{
	const cJSON *item;
	int i;

	cJSON_ArrayForEach(item, list) {
		i = tei_topo_find_nic(p->topo, item->valuestring);
		if (i < 0 || p->seen[i] || p->topo->nics[i].off)
			continue;
		p->seen[i] = true;
		row->nics[row->n_preferred + row->n_accessible] = (uint32_t)i;
		(*count)++;
	}
}

static int topo_parse_row(struct topo_parse *p, const cJSON *entry)
{
	struct topo_row *row;

	if (!strcmp(entry->string, TEI_TOPO_ANY))
		return 0;
	if (topo_find_row(p->topo, entry->string))
		return topo_parse_fail(p, entry->string, "given twice");
	if (p->topo->n_rows == TEI_TOPO_MAX_LOCATIONS)
		return topo_parse_fail(p, entry->string, "too many locations");
	row = topo_add_row(p->topo, entry->string);
	if (!row)
		return tei_err_fail(p->err, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
				    "out of memory");
	memset(p->seen, 0, sizeof(p->seen));
	topo_parse_list(p, entry->child, row, &row->n_preferred);
	topo_parse_list(p, entry->child->next, row, &row->n_accessible);
	return 0;
}

static int topo_parse_tree(struct topo_parse *p, const cJSON *root)
{
	const cJSON *entry;
	uint32_t i;
	int rc;

	cJSON_ArrayForEach(entry, root) {
		rc = topo_parse_entry(p, entry);
		if (rc)
			return rc;
	}
	rc = topo_parse_unknown(p);
	if (rc)
		return rc;
	for (i = 0; p->n_names && i < p->topo->n_nics; i++)
		if (!p->named[i])
			p->topo->nics[i].off = true;
	cJSON_ArrayForEach(entry, root) {
		rc = topo_parse_row(p, entry);
		if (rc)
			return rc;
	}
	if (topo_finish(p->topo))
		return tei_err_fail(p->err, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
				    "out of memory");
	return 0;
}

/* Creates a topology with the NICs of base. If base is NULL, the topology has
 * no NICs yet, but memory for TEI_TOPO_MAX_NICS of them. */
static struct tei_topo *topo_parse_start(const struct tei_topo *base)
{
	struct tei_topo *topo = topo_new(base ? base->n_nics :
						TEI_TOPO_MAX_NICS);

	if (topo && base)
		memcpy(topo->nics, base->nics,
		       base->n_nics * sizeof(*base->nics));
	else if (topo)
		topo->n_nics = 0;
	return topo;
}

int tei_topo_parse(const char *text, const struct tei_topo *base,
		   unsigned int flags, struct tei_topo **out,
		   struct tei_err *err)
{
	struct topo_parse p = { .base = base, .flags = flags, .err = err };
	cJSON *root = NULL;
	int rc;

	if (!text || !out)
		return tei_err_fail(err, TEI_ERR_INVALID, TOPO_SUBSYS, NULL,
				    "text or out is NULL");
	rc = topo_json_tree(text, &root, err);
	if (rc)
		return rc;
	p.topo = topo_parse_start(base);
	rc = p.topo ? topo_parse_tree(&p, root) :
		      tei_err_fail(err, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
				   "out of memory");
	cJSON_Delete(root);
	if (rc)
		tei_topo_free(p.topo);
	else
		*out = p.topo;
	return rc;
}

/* --- out ----------------------------------------------------------------- */

static bool topo_json_list(const struct tei_topo *topo, const uint32_t *nics,
			   uint32_t n, cJSON *pair)
{
	cJSON *list = cJSON_CreateArray();
	uint32_t i;

	if (!cJSON_AddItemToArray(pair, list)) {
		cJSON_Delete(list);
		return false;
	}
	for (i = 0; i < n; i++)
		if (!cJSON_AddItemToArray(
			    list, cJSON_CreateString(topo->nics[nics[i]].name)))
			return false;
	return true;
}

static bool topo_json_row(const struct tei_topo *topo,
			  const struct topo_row *row, cJSON *root)
{
	cJSON *pair = cJSON_AddArrayToObject(root, row->location);

	return pair &&
	       topo_json_list(topo, row->nics, row->n_preferred, pair) &&
	       topo_json_list(topo, row->nics + row->n_preferred,
			      row->n_accessible, pair);
}

/* Returns true if every NIC that is not off is listed in at least one row. */
static bool topo_json_covered(const struct tei_topo *topo)
{
	bool in[TEI_TOPO_MAX_NICS] = { false };
	const struct topo_row *row;
	uint32_t i, k;

	for (i = 0; i < topo->n_rows; i++) {
		row = &topo->rows[i];
		for (k = 0; k < row->n_preferred + row->n_accessible; k++)
			in[row->nics[k]] = true;
	}
	for (i = 0; i < topo->n_nics; i++)
		if (!in[i] && !topo->nics[i].off)
			return false;
	return true;
}

static bool topo_json_rows(const struct tei_topo *topo, cJSON *root)
{
	uint32_t i;

	if (!root)
		return false;
	for (i = 0; i < topo->n_rows; i++)
		if (!topo_json_row(topo, &topo->rows[i], root))
			return false;
	return topo_json_covered(topo) || topo_json_row(topo, &topo->any, root);
}

int tei_topo_json(const struct tei_topo *topo, char **text)
{
	cJSON *root = cJSON_CreateObject();
	char *print = NULL, *copy = NULL;

	if (topo_json_rows(topo, root))
		print = cJSON_PrintUnformatted(root);
	cJSON_Delete(root);
	if (print)
		copy = strdup(print);	/* a copy, because the caller uses
					 * free(), while cJSON may have another
					 * allocator */
	cJSON_free(print);
	if (!copy)
		return tei_err_fail(NULL, TEI_ERR_MEMORY, TOPO_SUBSYS, NULL,
				    "out of memory");
	*text = copy;
	return 0;
}
