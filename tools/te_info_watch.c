/* SPDX-License-Identifier: BSD-2-Clause */
/* Shows the rails and peers of a running process, which it queries repeatedly
 * over the control channel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "meta/tei_meta_client.h"
#include "meta/tei_meta_store.h"
#include "tools/te_info.h"
#include "util/clock.h"
#include "util/settings.h"

#define WATCH_INTERVAL	1.0	/* default of --interval, seconds */
#define WATCH_SILENT_NS	2.5e9	/* If the last report of an initiator is older
				 * than this time in ns, its rate is shown as
				 * 0. */

/* Data of --watch: the store, and the process that is watched. */
struct watch {
	const struct info_opts *opts;
	struct tei_settings settings;
	struct tei_meta_store *store;
	char endpoint[TEI_META_ENDPOINT_MAX];
	cJSON *before;			/* previous statistics, or NULL */
};

static uint64_t watch_deadline(const struct watch *w)
{
	return tei_now_ns() +
	       w->settings.control.connect_timeout_s * TEI_NS_PER_SEC;
}

static int watch_open(struct watch *w, struct tei_err *err)
{
	int ret = tei_settings_load(&w->settings, err);

	if (!ret)
		ret = tei_meta_store_open(w->opts->metadata_server,
					  &w->settings, &w->store, err);
	if (!ret)
		ret = tei_meta_store_resolve(w->store, w->opts->segment,
					     watch_deadline(w), w->endpoint,
					     err);
	return ret;
}

static cJSON *watch_ask(struct watch *w, struct tei_err *err)
{
	cJSON *doc;
	char *json;

	if (tei_meta_get_stats(w->endpoint, tei_meta_store_secret(w->store),
			       watch_deadline(w), &json, err))
		return NULL;
	doc = cJSON_Parse(json);
	free(json);
	if (!doc)
		snprintf(err->text, sizeof(err->text),
			 "the answer of %.64s is not JSON", w->endpoint);
	info_clean(doc);
	return doc;
}

static const cJSON *watch_list(const cJSON *doc, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(doc, key);
}

/* Finds the rail or peer of o in the previous statistics. Returns its object
 * there, or NULL. */
static const cJSON *watch_same(const struct watch *w, const char *key,
			       const cJSON *o)
{
	const cJSON *p;

	cJSON_ArrayForEach(p, watch_list(w->before, key))
		if (!strcmp(info_get(p, "name"), info_get(o, "name")) &&
		    !strcmp(info_get(p, "transport"), info_get(o, "transport")))
			return p;
	return NULL;
}

/* Adds the rates of all elements of the list `key`: bytes per second since the
 * previous statistics, or 0 if there are none. */
static void watch_rates(const struct watch *w, cJSON *doc, const char *key)
{
	double seconds = (info_get_num(doc, "time_ns") -
			  info_get_num(w->before, "time_ns")) / 1e9;
	bool same_process = !strcmp(info_get(doc, "incarnation"),
				    info_get(w->before, "incarnation"));
	const cJSON *was;
	double tx, rx;
	cJSON *o;

	cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(doc, key)) {
		was = same_process && seconds > 0 ? watch_same(w, key, o)
						  : NULL;
		tx = was ? info_get_num(o, "tx_bytes") -
			   info_get_num(was, "tx_bytes") : 0;
		rx = was ? info_get_num(o, "rx_bytes") -
			   info_get_num(was, "rx_bytes") : 0;
		info_num(o, "tx_bytes_per_s", was ? tx / seconds : 0);
		info_num(o, "rx_bytes_per_s", was ? rx / seconds : 0);
	}
}

/* Finds the initiator of o in the previous statistics. Returns its object
 * there, or NULL. */
static const cJSON *watch_served_before(const struct watch *w, const cJSON *o)
{
	const cJSON *p;

	cJSON_ArrayForEach(p, watch_list(w->before, "served"))
		if (!strcmp(info_get(p, "incarnation"),
			    info_get(o, "incarnation")))
			return p;
	return NULL;
}

/* Returns the rate of an initiator between its last two reports, bytes/s. */
static double watch_served_rate(const cJSON *doc, const cJSON *was,
				const cJSON *o, const char *bytes,
				const char *rate)
{
	double ns = info_get_num(o, "time_ns") - info_get_num(was, "time_ns");

	if (!was)
		return 0;
	if (ns > 0)
		return (info_get_num(o, bytes) - info_get_num(was, bytes)) *
		       1e9 / ns;
	if (info_get_num(doc, "time_ns") - info_get_num(o, "time_ns") >
	    WATCH_SILENT_NS)
		return 0;
	return info_get_num(was, rate);
}

/* Adds the rates of the initiators. Each initiator reports about once a second,
 * independently of the output of this program. So the rates are computed from
 * the times of the reports and not from the times of the output. */
static void watch_served_rates(const struct watch *w, cJSON *doc)
{
	const cJSON *was;
	cJSON *o;

	cJSON_ArrayForEach(o, cJSON_GetObjectItemCaseSensitive(doc, "served")) {
		was = watch_served_before(w, o);
		info_num(o, "tx_bytes_per_s",
			 watch_served_rate(doc, was, o, "tx_bytes",
					   "tx_bytes_per_s"));
		info_num(o, "rx_bytes_per_s",
			 watch_served_rate(doc, was, o, "rx_bytes",
					   "rx_bytes_per_s"));
	}
}

static void watch_rails(const cJSON *doc)
{
	const cJSON *o;

	printf("%-16s %-14s %-8s %10s %10s %9s %9s %9s %9s %7s %7s %7s\n",
	       "rail", "provider", "state", "write MB/s", "read MB/s",
	       "in flight", "window", "rate MB/s", "slices", "retries",
	       "errors", "changes");
	cJSON_ArrayForEach(o, watch_list(doc, "rails"))
		printf("%-16s %-14s %-8s %10.1f %10.1f %8.0fK %8.0fK %9.1f %9.0f %7.0f %7.0f %7.0f\n",
		       info_get(o, "name"), info_get(o, "provider"),
		       info_get(o, "state"),
		       info_get_num(o, "tx_bytes_per_s") / 1e6,
		       info_get_num(o, "rx_bytes_per_s") / 1e6,
		       info_get_num(o, "inflight_bytes") / 1024,
		       info_get_num(o, "window") / 1024,
		       info_get_num(o, "rate") / 1e6,
		       info_get_num(o, "slices"),
		       info_get_num(o, "retries"), info_get_num(o, "errors"),
		       info_get_num(o, "state_changes"));
}

/* Prints the paths to a peer. "r0>r1" is a path from the local rail r0 to the
 * peer's rail r1. */
static void watch_paths(const cJSON *peer)
{
	const cJSON *o;

	cJSON_ArrayForEach(o, watch_list(peer, "paths")) {
		if (strcmp(info_get(o, "kind"), "fabric"))
			printf(" %s", info_get(o, "provider"));
		else
			printf(" %s>%s", info_get(o, "rail"),
			       info_get(o, "remote_rail"));
	}
	putchar('\n');
}

static void watch_peers(const cJSON *doc)
{
	const cJSON *o;

	if (!cJSON_GetArraySize(watch_list(doc, "peers")))
		return;
	printf("%-31s %-8s %10s %10s %9s %9s %7s %7s %7s %s\n", "peer",
	       "state", "write MB/s", "read MB/s", "queued", "completed",
	       "failed", "retries", "fences", "path");
	cJSON_ArrayForEach(o, watch_list(doc, "peers")) {
		printf("%-31s %-8s %10.1f %10.1f %9.0f %9.0f %7.0f %7.0f %7.0f",
		       info_get(o, "name"), info_get(o, "state"),
		       info_get_num(o, "tx_bytes_per_s") / 1e6,
		       info_get_num(o, "rx_bytes_per_s") / 1e6,
		       info_get_num(o, "queued"),
		       info_get_num(o, "completed"),
		       info_get_num(o, "failed") + info_get_num(o, "timeout"),
		       info_get_num(o, "retries"), info_get_num(o, "fences"));
		watch_paths(o);
	}
}

static void watch_served(const cJSON *doc)
{
	const cJSON *o;

	if (!cJSON_GetArraySize(watch_list(doc, "served")))
		return;
	printf("%-40s %10s %10s %10s %10s\n", "initiator (its own count)",
	       "write MB/s", "read MB/s", "written MB", "read MB");
	cJSON_ArrayForEach(o, watch_list(doc, "served"))
		printf("%-40s %10.1f %10.1f %10.0f %10.0f\n",
		       info_get(o, "name"),
		       info_get_num(o, "tx_bytes_per_s") / 1e6,
		       info_get_num(o, "rx_bytes_per_s") / 1e6,
		       info_get_num(o, "tx_bytes") / 1e6,
		       info_get_num(o, "rx_bytes") / 1e6);
}

static void watch_show(const struct watch *w, const cJSON *doc)
{
	char *text, when[16] = "";
	time_t now = time(NULL);
	struct tm tm;

	if (w->opts->prometheus) {
		info_prometheus(doc);
		return;
	}
	if (w->opts->json) {
		text = cJSON_PrintUnformatted(doc);
		puts(text ? text : "{}");
		cJSON_free(text);
		return;
	}
	if (isatty(STDOUT_FILENO))
		fputs("\033[H\033[J", stdout);
	if (localtime_r(&now, &tm))
		strftime(when, sizeof(when), "%H:%M:%S", &tm);
	printf("%s  %s  process %s  moonrail %s\n", when,
	       info_get(doc, "name"), info_get(doc, "incarnation"),
	       info_get(doc, "version"));
	watch_rails(doc);
	watch_peers(doc);
	watch_served(doc);
	if (!isatty(STDOUT_FILENO))
		putchar('\n');
}

static void watch_sleep(double seconds)
{
	struct timespec ts = {
		.tv_sec = (time_t)seconds,
		.tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9),
	};

	nanosleep(&ts, NULL);
}

/* Queries the statistics and prints them once. Returns false if the process
 * does not answer. */
static bool watch_turn(struct watch *w, struct tei_err *err)
{
	cJSON *doc = watch_ask(w, err);

	if (!doc)
		return false;
	watch_rates(w, doc, "rails");
	watch_rates(w, doc, "peers");
	watch_served_rates(w, doc);
	watch_show(w, doc);
	cJSON_Delete(w->before);
	w->before = doc;
	return true;
}

int info_watch(const struct info_opts *opts)
{
	static struct watch w;
	struct tei_err err;
	uint64_t turn;
	int ret;

	w.opts = opts;
	memset(&err, 0, sizeof(err));
	ret = watch_open(&w, &err);
	for (turn = 1; !ret; turn++) {
		ret = !watch_turn(&w, &err);
		if (ret || turn == opts->count || fflush(stdout))
			break;
		watch_sleep(opts->interval ? opts->interval : WATCH_INTERVAL);
	}
	if (ret)
		fprintf(stderr, "te_info: %s: %s\n", opts->segment, err.text);
	cJSON_Delete(w.before);
	tei_meta_store_close(w.store);
	return ret ? INFO_EXIT_BAD : INFO_EXIT_OK;
}
