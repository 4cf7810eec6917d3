/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints one output of --watch in Prometheus's text format ("Exposition
 * formats", version 0.0.4,
 * prometheus.io/docs/instrumenting/exposition_formats). All samples of a metric
 * are adjacent. The name of a metric ends with its unit, and the name of a
 * counter with _total.
 */
#include <stdio.h>
#include <string.h>

#include "tools/te_info.h"

struct prom_metric {
	const char *key;	/* key of the value in the report */
	const char *name;
	const char *type;
	const char *help;
};

static const struct prom_metric prom_rails[] = {
	{ "tx_bytes", "rail_written_bytes_total", "counter",
	  "Bytes written to peers and completed." },
	{ "rx_bytes", "rail_read_bytes_total", "counter",
	  "Bytes read from peers and completed." },
	{ "slices", "rail_slices_total", "counter", "Slices completed." },
	{ "retries", "rail_retries_total", "counter", "Pieces posted again." },
	{ "errors", "rail_errors_total", "counter", "Error completions." },
	{ "state_changes", "rail_state_changes_total", "counter",
	  "Changes of the rail's state." },
	{ "inflight_bytes", "rail_inflight_bytes", "gauge", "Bytes posted." },
	{ "window", "rail_window_bytes", "gauge",
	  "Bytes that may be posted at one time." },
	{ "rate", "rail_service_rate_bytes_per_second", "gauge",
	  "Measured service rate." },
	{ "lanes", "rail_endpoints", "gauge", "Endpoints open." },
};

static const struct prom_metric prom_peers[] = {
	{ "tx_bytes", "peer_written_bytes_total", "counter",
	  "Bytes written to the segment and completed." },
	{ "rx_bytes", "peer_read_bytes_total", "counter",
	  "Bytes read from the segment and completed." },
	{ "completed", "peer_completed_total", "counter", "Tasks completed." },
	{ "failed", "peer_failed_total", "counter", "Tasks failed." },
	{ "timeout", "peer_timeouts_total", "counter", "Tasks timed out." },
	{ "canceled", "peer_canceled_total", "counter", "Tasks canceled." },
	{ "retries", "peer_retries_total", "counter", "Pieces posted again." },
	{ "fences", "peer_fences_total", "counter", "Fences requested." },
	{ "queued", "peer_queued", "gauge", "Tasks that have not ended." },
};

static const struct prom_metric prom_served[] = {
	{ "tx_bytes", "served_written_bytes_total", "counter",
	  "Bytes that the peer has written here, as it reports." },
	{ "rx_bytes", "served_read_bytes_total", "counter",
	  "Bytes that the peer has read here, as it reports." },
};

#define PROM_COUNT(list) (sizeof(list) / sizeof((list)[0]))

/* Prints a label. In its value, \, " and newlines are written as \\, \" and
 * \n. */
static void prom_value(const char *key, const char *value)
{
	printf("%s=\"", key);
	for (; *value; value++) {
		if (*value == '\n') {
			fputs("\\n", stdout);
			continue;
		}
		if (*value == '\\' || *value == '"')
			putchar('\\');
		putchar(*value);
	}
	putchar('"');
}

static void prom_head(const char *name, const char *type, const char *help)
{
	printf("# HELP moonrail_%s %s\n# TYPE moonrail_%s %s\n", name, help,
	       name, type);
}

/* Prints the labels of a rail in braces. more: text with further labels, each
 * after a comma, or "". */
static void prom_rail_labels(const cJSON *doc, const cJSON *rail,
			     const char *more)
{
	putchar('{');
	prom_value("segment", info_get(doc, "name"));
	putchar(',');
	prom_value("rail", info_get(rail, "name"));
	putchar(',');
	prom_value("transport", info_get(rail, "transport"));
	printf("%s}", more);
}

static void prom_rail(const cJSON *doc, const struct prom_metric *m)
{
	const cJSON *o;

	prom_head(m->name, m->type, m->help);
	cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(doc, "rails")) {
		printf("moonrail_%s", m->name);
		prom_rail_labels(doc, o, "");
		printf(" %.17g\n", info_get_num(o, m->key));
	}
}

/* Prints one sample for each rail and each possible state. The value is 1 for
 * the present state of the rail and 0 for the other states. */
static void prom_states(const cJSON *doc)
{
	static const char *const states[] = { "up", "suspect", "down",
					      "probing" };
	const cJSON *o;
	char more[32];

	prom_head("rail_state", "gauge", "1 for the present state of the rail.");
	cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(doc, "rails"))
		for (size_t i = 0; i < PROM_COUNT(states); i++) {
			snprintf(more, sizeof(more), ",state=\"%s\"",
				 states[i]);
			printf("moonrail_rail_state");
			prom_rail_labels(doc, o, more);
			printf(" %d\n", !strcmp(info_get(o, "state"),
						states[i]));
		}
}

/* Returns true if an earlier element of `peers` represents the same process as
 * `peer`, so that the process was printed already. If the watched process knows
 * a peer under several names, `peers` has an element for each name, with the
 * same counters. */
static bool prom_told(const cJSON *peers, const cJSON *peer)
{
	const cJSON *o;

	cJSON_ArrayForEach(o, peers) {
		if (o == peer)
			return false;
		if (!strcmp(info_get(o, "name"), info_get(peer, "name")) &&
		    !strcmp(info_get(o, "incarnation"),
			    info_get(peer, "incarnation")))
			return true;
	}
	return false;
}

/* Prints one sample of a metric for each process in a list of the report. list
 * is the key of the list: "peers" or "served". */
static void prom_peer(const cJSON *doc, const char *list,
		      const struct prom_metric *m)
{
	const cJSON *peers = cJSON_GetObjectItemCaseSensitive(doc, list);
	const cJSON *o;

	prom_head(m->name, m->type, m->help);
	cJSON_ArrayForEach(o, peers) {
		if (prom_told(peers, o))
			continue;
		printf("moonrail_%s{", m->name);
		prom_value("segment", info_get(doc, "name"));
		putchar(',');
		prom_value("peer", info_get(o, "name"));
		putchar(',');
		prom_value("incarnation", info_get(o, "incarnation"));
		printf("} %.17g\n", info_get_num(o, m->key));
	}
}

void info_prometheus(const cJSON *doc)
{
	prom_head("info", "gauge", "The process's incarnation and version.");
	printf("moonrail_info{");
	prom_value("segment", info_get(doc, "name"));
	putchar(',');
	prom_value("incarnation", info_get(doc, "incarnation"));
	putchar(',');
	prom_value("version", info_get(doc, "version"));
	printf("} 1\n");
	for (size_t i = 0; i < PROM_COUNT(prom_rails); i++)
		prom_rail(doc, &prom_rails[i]);
	prom_states(doc);
	for (size_t i = 0; i < PROM_COUNT(prom_peers); i++)
		prom_peer(doc, "peers", &prom_peers[i]);
	for (size_t i = 0; i < PROM_COUNT(prom_served); i++)
		prom_peer(doc, "served", &prom_served[i]);
}
