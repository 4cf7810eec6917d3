/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The calls that return statistics of the rails, error records, settings and
 * versions.
 */
#include "api/engine_int.h"

#include <pthread.h>
#include <rdma/fabric.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "prov/local/tei_local_stats.h"

const char *te_version(void)
{
	return TEI_VERSION;
}

static pthread_once_t stats_fabric_once = PTHREAD_ONCE_INIT;
static char stats_fabric[32];		/* version of libfabric, as text; set
					 * once */

static void stats_read_fabric(void)
{
	uint32_t v = fi_version();

	snprintf(stats_fabric, sizeof(stats_fabric), "%u.%u", FI_MAJOR(v),
		 FI_MINOR(v));
}

const char *te_fabric_version(void)
{
	pthread_once(&stats_fabric_once, stats_read_fabric);
	return stats_fabric;
}

/* --- errors -------------------------------------------------------------- */

int te_last_error(struct te_error *err, size_t size)
{
	if (!err || !size)
		return TEI_ERR_INVALID;
	engine_error_out(tei_err_last()->code ? tei_err_last() : NULL, 0, err,
			 size);
	return 0;
}

/* --- rails --------------------------------------------------------------- */

/* value in stats_list.rails for the copies inside this host, which are not a
 * rail */
#define STATS_LOCAL UINT32_MAX

/* The indices of the open rails. If copies inside this host are listed, the
 * last element is STATS_LOCAL. */
struct stats_list {
	uint32_t rails[TEI_RAIL_MAX + 1];
	size_t n;
};

static void stats_list(struct engine *e, bool local, struct stats_list *list)
{
	size_t i, n = tei_rail_count(e->dp);
	struct tei_rail_desc d;

	list->n = 0;
	for (i = 0; i < n; i++)
		if (!tei_rail_describe(e->dp, i, &d) && d.open)
			list->rails[list->n++] = (uint32_t)i;
	if (local && __atomic_load_n(&e->local_on, __ATOMIC_RELAXED))
		list->rails[list->n++] = STATS_LOCAL;
}

static void stats_local(struct engine *e, struct te_rail_stats *s)
{
	struct tei_local_counters c;

	tei_local_stats(e->local, &c);
	memset(s, 0, sizeof(*s));
	snprintf(s->name, sizeof(s->name), "local");
	snprintf(s->provider, sizeof(s->provider), "local");
	snprintf(s->transport, sizeof(s->transport), "local");
	s->tx_bytes = c.tx_bytes;
	s->rx_bytes = c.rx_bytes;
	s->slices = c.pieces;
	s->errors = c.errors;
	s->inflight_bytes = c.queued_bytes;
}

static void stats_rail(struct engine *e, uint32_t i, struct te_rail_stats *s)
{
	struct tei_rail_stats r;
	struct tei_rail_desc d;

	if (i == STATS_LOCAL) {
		stats_local(e, s);
		return;
	}
	memset(s, 0, sizeof(*s));
	if (tei_rail_describe(e->dp, i, &d) || tei_rail_get_stats(e->dp, i, &r))
		return;
	snprintf(s->name, sizeof(s->name), "%s", d.name);
	snprintf(s->provider, sizeof(s->provider), "%s", d.provider);
	snprintf(s->address, sizeof(s->address), "%s", d.address_text);
	snprintf(s->transport, sizeof(s->transport), "%s", d.transport);
	s->state = r.state;
	s->lanes = r.lanes;
	s->tx_bytes = r.tx_bytes;
	s->rx_bytes = r.rx_bytes;
	s->slices = r.slices;
	s->retries = r.retries;
	s->errors = r.errors;
	s->inflight_bytes = r.inflight_bytes;
	s->inflight_max = r.inflight_max;
	s->window = r.window;
	s->rate = r.rate;
	s->state_changes = r.state_changes;
}

int te_rail_stats(transfer_engine_t engine, struct te_rail_stats *stats,
		  size_t elem_size, size_t *count)
{
	struct engine *e = engine_from(engine);
	struct stats_list list;
	struct te_rail_stats s;
	size_t i;

	if (!e || !count || (*count && (!stats || !elem_size)))
		return engine_bad(e, __func__, NULL);
	stats_list(e, true, &list);
	for (i = 0; i < list.n && i < *count; i++) {
		stats_rail(e, list.rails[i], &s);
		engine_out((char *)stats + i * elem_size, elem_size, &s,
			   sizeof(s));
	}
	*count = list.n;
	return 0;
}

int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats,
		    size_t *count)
{
	struct engine *e = engine_from(engine);
	struct stats_list list;
	struct te_rail_stats s;
	size_t i;

	if (!e || !stats || !count)
		return engine_bad(e, __func__, NULL);
	stats_list(e, false, &list);
	for (i = 0; i < list.n && i < *count; i++) {
		stats_rail(e, list.rails[i], &s);
		memset(&stats[i], 0, sizeof(stats[i]));
		memcpy(stats[i].device_name, s.name, sizeof(s.name));
		stats[i].inflight_bytes = s.inflight_bytes;
		stats[i].ewma_bandwidth_bps = s.rate;
	}
	*count = list.n;
	return 0;
}

/* --- text ---------------------------------------------------------------- */

/* A text in a buffer of len bytes. `used` counts all bytes of the text,
 * including those that do not fit. */
struct stats_text {
	char *buf;
	size_t len, used;
};

static void stats_add(struct stats_text *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void stats_add(struct stats_text *t, const char *fmt, ...)
{
	bool room = t->used < t->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(room ? t->buf + t->used : NULL,
		      room ? t->len - t->used : 0, fmt, ap);
	va_end(ap);
	if (n > 0)
		t->used += (size_t)n;
}

const char *engine_rail_state(uint32_t state)
{
	static const char *const names[] = { "up", "suspect", "down",
					     "probing" };

	return state < 4 ? names[state] : "?";
}

int showLinks(transfer_engine_t engine, char *buf, size_t len, int json)
{
	struct engine *e = engine_from(engine);
	struct tei_err err;
	char *text;

	if (!e || !buf || !len)
		return engine_bad(e, __func__, NULL);
	text = engine_links(e, json);
	if (!text)
		return tei_err_fail(&err, TEI_ERR_MEMORY, "engine", NULL,
				    "showLinks: out of memory");
	snprintf(buf, len, "%s", text);
	free(text);
	return 0;
}

int te_settings_text(transfer_engine_t engine, char *buf, size_t len)
{
	struct engine *e = engine_from(engine);
	struct stats_text t = { .buf = buf, .len = len };
	const struct tei_setting_row *rows;
	char value[TEI_SETTING_TEXT + 1];
	size_t i, n;
	static const char *const source[] = {
		[TEI_SETTING_DEFAULT] = "default",
		[TEI_SETTING_ENVIRONMENT] = "environment",
		[TEI_SETTING_ENGINE] = "engine",
	};

	if (!e || (len && !buf))
		return engine_bad(e, __func__, NULL);
	if (len)
		*buf = '\0';
	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++) {
		tei_settings_value(&e->settings, &rows[i], value,
				   sizeof(value));
		if (*value && !strcmp(rows[i].name, "MC_REDIS_PASSWORD"))
			snprintf(value, sizeof(value), "(hidden)");
		stats_add(&t, "%s=%s %s\n", rows[i].name, value,
			  source[tei_settings_source(&e->settings, &rows[i])]);
	}
	return (int)t.used;
}
