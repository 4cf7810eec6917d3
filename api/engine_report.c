/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The statistics of the engine as a JSON object, which the control channel
 * sends to monitoring programs. Members of the object:
 *
 *	name, incarnation (hexadecimal text), version, time_ns
 *	rails	the fields of te_rail_stats for each rail, the state as a word
 *	peers	the fields of te_peer_stats for each open segment, the state as
 *		a word; and paths: for each path its kind as a word, transport
 *		and provider; if the path uses rails, also rail, address,
 *		remote_rail and remote_address
 *	served	name, incarnation, tx_bytes, rx_bytes and time_ns of each
 *		process that has written or read memory of this one; the
 *		numbers are those that the other process has sent
 *
 * Counters are numbers, exact up to 2^53. showLinks shows the same rails, peers
 * and served processes.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/engine_int.h"
#include "meta/tei_meta_cache.h"
#include "topo/tei_topo.h"
#include "util/text.h"

#define REPORT_RAILS	(TEI_RAIL_MAX + 1)
/* greatest number of elements of "served" */
#define REPORT_SERVED 1024

static void report_num(cJSON *o, const char *key, uint64_t value)
{
	cJSON_AddNumberToObject(o, key, (double)value);
}

/* Appends a new object to the list and returns it. Returns NULL if memory is
 * short; the caller need not check that, because the functions of cJSON accept
 * NULL. */
static cJSON *report_object(cJSON *list)
{
	cJSON *o = cJSON_CreateObject();

	if (o && !cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		o = NULL;
	}
	return o;
}

static void report_rail(cJSON *list, const struct te_rail_stats *s)
{
	cJSON *o = report_object(list);

	cJSON_AddStringToObject(o, "name", s->name);
	cJSON_AddStringToObject(o, "provider", s->provider);
	cJSON_AddStringToObject(o, "transport", s->transport);
	cJSON_AddStringToObject(o, "address", s->address);
	cJSON_AddStringToObject(o, "state", engine_rail_state(s->state));
	report_num(o, "lanes", s->lanes);
	report_num(o, "tx_bytes", s->tx_bytes);
	report_num(o, "rx_bytes", s->rx_bytes);
	report_num(o, "slices", s->slices);
	report_num(o, "retries", s->retries);
	report_num(o, "errors", s->errors);
	report_num(o, "inflight_bytes", s->inflight_bytes);
	report_num(o, "inflight_max", s->inflight_max);
	report_num(o, "window", s->window);
	cJSON_AddNumberToObject(o, "rate", s->rate);
	report_num(o, "state_changes", s->state_changes);
}

static void report_rails(struct engine *e, cJSON *list)
{
	struct te_rail_stats *s = calloc(REPORT_RAILS, sizeof(*s));
	size_t i, n = REPORT_RAILS;

	if (s && !te_rail_stats(e, s, sizeof(*s), &n))
		for (i = 0; i < n && i < REPORT_RAILS; i++)
			report_rail(list, &s[i]);
	free(s);
}

static const char *report_peer_state(uint32_t state)
{
	static const char *const names[] = { "new", "ready", "fencing",
					     "gone" };

	return state < sizeof(names) / sizeof(names[0]) ? names[state] : "?";
}

static void report_path(cJSON *list, const struct te_path *p)
{
	static const char *const kinds[] = { "fabric", "process", "memcpy",
					     "file" };
	cJSON *o = report_object(list);

	cJSON_AddStringToObject(o, "kind", p->kind < 4 ? kinds[p->kind] : "?");
	cJSON_AddStringToObject(o, "transport", p->transport);
	cJSON_AddStringToObject(o, "provider", p->provider);
	if (p->kind != TE_PATH_FABRIC)
		return;
	cJSON_AddStringToObject(o, "rail", p->rail);
	cJSON_AddStringToObject(o, "address", p->address);
	cJSON_AddStringToObject(o, "remote_rail", p->remote_rail);
	cJSON_AddStringToObject(o, "remote_address", p->remote_address);
}

static void report_peer(struct engine *e, segment_id_t id,
			struct te_path *paths, cJSON *list)
{
	struct te_peer_stats s;
	char incarnation[32];
	cJSON *o, *ways;
	size_t i, n = 0;

	if (!engine_peer_stats(e, id, &s, paths, &n))
		return; /* the segment was closed meanwhile */
	o = report_object(list);
	cJSON_AddStringToObject(o, "name", s.name);
	snprintf(incarnation, sizeof(incarnation), "0x%016" PRIx64,
		 s.incarnation);
	cJSON_AddStringToObject(o, "incarnation", incarnation);
	cJSON_AddStringToObject(o, "state", report_peer_state(s.state));
	report_num(o, "queued", s.queued);
	report_num(o, "tx_bytes", s.tx_bytes);
	report_num(o, "rx_bytes", s.rx_bytes);
	report_num(o, "completed", s.completed);
	report_num(o, "failed", s.failed);
	report_num(o, "timeout", s.timeout);
	report_num(o, "canceled", s.canceled);
	report_num(o, "retries", s.retries);
	report_num(o, "fences", s.fences);
	ways = cJSON_AddArrayToObject(o, "paths");
	for (i = 0; i < n; i++)
		report_path(ways, &paths[i]);
}

static void report_peers(struct engine *e, cJSON *list)
{
	struct te_path *paths = calloc(TEI_RAIL_MAX, sizeof(*paths));
	segment_id_t ids[ENGINE_IDS];
	size_t i, n = paths ? ENGINE_IDS : 0;
	uint32_t from = 0;

	while (n == ENGINE_IDS) {
		n = tei_meta_cache_ids(e->cache, &from, ids, ENGINE_IDS);
		for (i = 0; i < n; i++)
			report_peer(e, ids[i], paths, list);
	}
	free(paths);
}

/* Appends a description of an initiator to the list. Escapes control characters
 * in its name, because a peer can choose any name. */
static void report_initiator(cJSON *list, struct tei_rail_served *s)
{
	cJSON *o = report_object(list);
	char incarnation[32], name[4 * sizeof(s->name)];

	tei_text_escape(s->name, name, sizeof(name));
	cJSON_AddStringToObject(o, "name", name);
	snprintf(incarnation, sizeof(incarnation), "0x%016" PRIx64,
		 s->incarnation);
	cJSON_AddStringToObject(o, "incarnation", incarnation);
	report_num(o, "tx_bytes", s->tx_bytes);
	report_num(o, "rx_bytes", s->rx_bytes);
	report_num(o, "time_ns", s->ns);
}

static void report_served(struct engine *e, cJSON *list)
{
	struct tei_rail_served *s = calloc(REPORT_SERVED, sizeof(*s));
	size_t i, n = s ? tei_rail_served(e->dp, s, REPORT_SERVED) : 0;

	for (i = 0; i < n && i < REPORT_SERVED; i++)
		report_initiator(list, &s[i]);
	free(s);
}

char *engine_report(void *arg)
{
	struct engine *e = arg;
	cJSON *doc = cJSON_CreateObject();
	char text[32], *json;

	cJSON_AddStringToObject(doc, "name", e->name);
	snprintf(text, sizeof(text), "0x%016" PRIx64, e->incarnation);
	cJSON_AddStringToObject(doc, "incarnation", text);
	cJSON_AddStringToObject(doc, "version", te_version());
	report_num(doc, "time_ns", tei_now_ns());
	report_rails(e, cJSON_AddArrayToObject(doc, "rails"));
	report_peers(e, cJSON_AddArrayToObject(doc, "peers"));
	report_served(e, cJSON_AddArrayToObject(doc, "served"));
	json = cJSON_PrintUnformatted(doc);
	cJSON_Delete(doc);
	return json;
}

/* --- showLinks ----------------------------------------------------------- */

static char *links_topo(struct engine *e, bool json)
{
	char *text = NULL;
	size_t len;

	tei_mutex_lock(&e->control);
	if (e->topo && json) {
		if (tei_topo_json(e->topo, &text))
			text = NULL;
	} else if (e->topo) {
		len = tei_topo_text(e->topo, NULL, 0);
		text = malloc(len + 1);
		if (text)
			tei_topo_text(e->topo, text, len + 1);
	}
	tei_mutex_unlock(&e->control);
	return text;
}

int te_topology_text(transfer_engine_t engine, char *buf, size_t len)
{
	struct engine *e = engine_from(engine);
	char *text;
	int n;

	if (!e || (len && !buf))
		return engine_bad(e, __func__, NULL);
	text = e->topo ? links_topo(e, true) : strdup("{}");
	if (!text)
		return tei_err_fail(NULL, TEI_ERR_MEMORY, "engine", NULL,
				    "te_topology_text: out of memory");
	n = snprintf(buf, len, "%s", text);
	free(text);
	return n;
}

static const char *links_get(const cJSON *o, const char *key)
{
	const char *s = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(o, key));

	return s ? s : "";
}

static double links_num(const cJSON *o, const char *key)
{
	const cJSON *n = cJSON_GetObjectItemCaseSensitive(o, key);

	return n ? n->valuedouble : 0;
}

static void links_rail(FILE *f, const cJSON *o)
{
	fprintf(f, "rail %-16s %-6s %-14s %-8s %s  written %.0f B read %.0f B slices %.0f retries %.0f errors %.0f in flight %.0f B window %.0f B rate %.0f B/s changes %.0f\n",
		links_get(o, "name"), links_get(o, "transport"),
		links_get(o, "provider"), links_get(o, "state"),
		links_get(o, "address"), links_num(o, "tx_bytes"),
		links_num(o, "rx_bytes"), links_num(o, "slices"),
		links_num(o, "retries"), links_num(o, "errors"),
		links_num(o, "inflight_bytes"), links_num(o, "window"),
		links_num(o, "rate"), links_num(o, "state_changes"));
}

static void links_path(FILE *f, const cJSON *o, bool first)
{
	if (strcmp(links_get(o, "kind"), "fabric"))
		fprintf(f, " by %s", links_get(o, "provider"));
	else
		fprintf(f, "%s %s to %s at %s", first ? " by" : ",",
			links_get(o, "rail"), links_get(o, "remote_rail"),
			links_get(o, "remote_address"));
}

static void links_peer(FILE *f, const cJSON *o)
{
	const cJSON *paths = cJSON_GetObjectItemCaseSensitive(o, "paths"), *p;

	fprintf(f, "peer %-31s %-8s written %.0f B read %.0f B queued %.0f completed %.0f failed %.0f timeout %.0f canceled %.0f retries %.0f fences %.0f",
		links_get(o, "name"), links_get(o, "state"),
		links_num(o, "tx_bytes"), links_num(o, "rx_bytes"),
		links_num(o, "queued"), links_num(o, "completed"),
		links_num(o, "failed"), links_num(o, "timeout"),
		links_num(o, "canceled"), links_num(o, "retries"),
		links_num(o, "fences"));
	cJSON_ArrayForEach(p, paths)
		links_path(f, p, p == paths->child);
	fputc('\n', f);
}

static void links_initiator(FILE *f, const cJSON *o)
{
	fprintf(f, "served %-29s written by it %.0f B read by it %.0f B\n",
		links_get(o, "name"), links_num(o, "tx_bytes"),
		links_num(o, "rx_bytes"));
}

/* Converts the JSON document and the topology to readable lines. */
static char *links_text(const cJSON *doc, const char *topo)
{
	const cJSON *o;
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "segment %s\n", links_get(doc, "segment"));
	cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(doc, "rails"))
		links_rail(f, o);
	cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(doc, "peers"))
		links_peer(f, o);
	cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(doc, "served"))
		links_initiator(f, o);
	fputs(topo ? topo : "", f);
	if (!fclose(f))
		return text;
	free(text);
	return NULL;
}

char *engine_links(struct engine *e, bool json)
{
	cJSON *doc = cJSON_CreateObject();
	char *topo, *text;

	cJSON_AddStringToObject(doc, "segment", e->name);
	report_rails(e, cJSON_AddArrayToObject(doc, "rails"));
	report_peers(e, cJSON_AddArrayToObject(doc, "peers"));
	report_served(e, cJSON_AddArrayToObject(doc, "served"));
	topo = links_topo(e, json);
	if (json && topo)
		cJSON_AddRawToObject(doc, "priority_matrix", topo);
	text = json ? cJSON_PrintUnformatted(doc) : links_text(doc, topo);
	free(topo);
	cJSON_Delete(doc);
	return text;
}
