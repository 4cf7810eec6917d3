/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The engine's numbers as JSON, for those who watch the process from outside:
 *
 *	name, incarnation (hexadecimal text), version, time_ns
 *	rails	[te_rail_stats of each, its state as a word]
 *	peers	[te_peer_stats of each open segment, likewise]
 *
 * Counters are numbers: exact up to 2^53.
 */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/engine_int.h"

#define REPORT_RAILS	(TEI_RAIL_MAX + 1)

static void report_num(cJSON *o, const char *key, uint64_t value)
{
	cJSON_AddNumberToObject(o, key, (double)value);
}

/* A new element; NULL without memory, which is fine below. */
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

static void report_peer(struct engine *e, segment_id_t id, cJSON *list)
{
	struct te_peer_stats s;
	cJSON *o;

	if (!engine_peer_stats(e, id, &s))
		return;		/* closed meanwhile */
	o = report_object(list);
	cJSON_AddStringToObject(o, "name", s.name);
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
}

static void report_peers(struct engine *e, cJSON *list)
{
	segment_id_t ids[ENGINE_IDS];
	int i, n, from = 0;

	while (from < ENGINE_SEG_BUCKETS) {
		n = engine_segment_ids(e, &from, ids);
		for (i = 0; i < n; i++)
			report_peer(e, ids[i], list);
	}
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
	json = cJSON_PrintUnformatted(doc);
	cJSON_Delete(doc);
	return json;
}
