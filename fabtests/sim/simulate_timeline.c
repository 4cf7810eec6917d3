/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writes the trace of a simulation as text, with one line per record, and as a
 * picture (SVG). The picture has one row per host, and its horizontal axis is
 * the time. A row shows the operations of the host's workers, each with a line
 * to the row of its target, and below them the faults of the host.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_check.h"
#include "fabtests/sim/simulate.h"

#define SVG_WIDTH	1800		/* length of the time axis, pixels */
#define SVG_LEFT	80
#define SVG_ROW		60		/* height of a host's row, pixels */
#define SVG_OPS		20000		/* maximum number of operations and
					 * faults that are drawn */

/* For each kind of trace record: the names of its numbers, for the text. */
static const struct {
	const char *kind;
	const char *names[6];
} timeline_names[] = {
	{ "submit", { "op", "kind", "to", "addr", "len" } },
	{ "ended", { "op", "end", "code" } },
	{ "cancel", { "op" } },
	{ "expire", { "op" } },
	{ "refused", { "op" } },
	{ "notify", { "to", "number" } },
	{ "answer", { "to", "number", "code" } },
	{ "notified", { "from", "worker", "sender", "number" } },
	{ "fault", { "fault", "ns" } },
	{ "mended", { "fault" } },
	{ "start", { "rails", "incarnation" } },
	{ "publish", { "contacts", "incarnation" } },
	{ "leave", { "incarnation" } },
	{ "left", { "incarnation" } },
	{ "unregister", { "chunk" } },
	{ "unregistered", { "chunk", "code" } },
	{ "register", { "chunk" } },
};

/* A bar of the picture: an operation, or a fault. */
struct timeline_bar {
	uint64_t id;
	uint64_t from_ns, until_ns;
	uint32_t host, to;
	uint64_t end;
	bool fault;
};

static struct {
	FILE *text;
	const char *svg;
	uint32_t hosts;
	uint64_t from_ns, until_ns;
	struct timeline_bar *bars;
	size_t used;
} timeline;

static void timeline_text(uint64_t now_ns, uint32_t host, const char *kind,
			  unsigned int n, const uint64_t *numbers)
{
	const char *const *names = NULL;
	size_t i;

	for (i = 0; i < sizeof(timeline_names) / sizeof(timeline_names[0]); i++)
		if (!strcmp(timeline_names[i].kind, kind))
			names = timeline_names[i].names;
	fprintf(timeline.text, "%15.9f ",
		(double)(now_ns - SIM_START_NS) / 1e9);
	if (host == SIM_NO_HOST)
		fprintf(timeline.text, "       %s", kind);
	else
		fprintf(timeline.text, "host%-3u %s", host, kind);
	for (i = 0; i < n; i++) {
		if (names && i < 6 && names[i])
			fprintf(timeline.text, " %s", names[i]);
		fprintf(timeline.text, numbers[i] >> 40 ? " 0x%" PRIx64 :
							  " %" PRIu64,
			numbers[i]);
	}
	fputc('\n', timeline.text);
}

static void timeline_bar(uint64_t now_ns, uint32_t host, const char *kind,
			 unsigned int n, const uint64_t *numbers)
{
	struct timeline_bar *bar;
	size_t i;

	if (!strcmp(kind, "ended") && n >= 2) {
		for (i = timeline.used; i-- > 0;)
			if (!timeline.bars[i].fault &&
			    timeline.bars[i].id == numbers[0]) {
				timeline.bars[i].until_ns = now_ns;
				timeline.bars[i].end = numbers[1];
				return;
			}
		return;
	}
	if (timeline.used == SVG_OPS)
		return;
	bar = &timeline.bars[timeline.used];
	if (!strcmp(kind, "submit") && n >= 3) {
		bar->to = (uint32_t)numbers[2];
		bar->end = 4;		/* no value of enum tei_rail_end: the
					 * operation has not ended */
		bar->until_ns = timeline.until_ns;
		bar->fault = false;
	} else if (!strcmp(kind, "fault") && n >= 2) {
		bar->until_ns = now_ns + numbers[1];
		bar->fault = true;
	} else {
		return;
	}
	bar->id = numbers[0];
	bar->host = host;
	bar->from_ns = now_ns;
	timeline.used++;
}

static void timeline_record(void *arg, uint64_t now_ns, uint32_t host,
			    const char *kind, unsigned int n,
			    const uint64_t *numbers)
{
	(void)arg;
	if (timeline.text)
		timeline_text(now_ns, host, kind, n, numbers);
	if (timeline.bars)
		timeline_bar(now_ns, host, kind, n, numbers);
}

static double svg_x(uint64_t ns)
{
	if (ns > timeline.until_ns)
		ns = timeline.until_ns;
	return SVG_LEFT + (double)(ns - timeline.from_ns) * SVG_WIDTH /
			       (double)(timeline.until_ns - timeline.from_ns);
}

static double svg_y(uint32_t host)
{
	return 40 + (double)host * SVG_ROW;
}

static void svg_bar(FILE *f, const struct timeline_bar *bar)
{
	/* colours by result: completed, failed, unfenced, cancelled, not
	 * ended */
	static const char *const colours[] = { "#2a7", "#d33", "#a0f", "#888",
					       "#000" };
	double x = svg_x(bar->from_ns), x2 = svg_x(bar->until_ns);
	double y = svg_y(bar->host), w = x2 - x < 1 ? 1 : x2 - x;
	const char *c = colours[bar->end < 4 ? bar->end : 4];

	if (bar->fault) {
		fprintf(f, "<rect x='%.1f' y='%.1f' width='%.1f' height='6' fill='#fa0'><title>fault %" PRIu64 "</title></rect>\n",
			x, y + 18, w < 3 ? 3 : w, bar->id);
		return;
	}
	y += (double)(bar->id % 4) * 4;
	fprintf(f, "<rect x='%.1f' y='%.1f' width='%.1f' height='3' fill='%s'><title>operation %" PRIu64 ", start %.6f s, duration %.6f s, to host %u</title></rect>\n",
		x, y, w, c, bar->id,
		(double)(bar->from_ns - SIM_START_NS) / 1e9,
		(double)(bar->until_ns - bar->from_ns) / 1e9, bar->to);
	fprintf(f, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s' stroke-width='0.4' opacity='0.5'/>\n",
		x, y, x2, svg_y(bar->to), c);
}

static void timeline_svg(void)
{
	FILE *f = fopen(timeline.svg, "w");
	size_t i;
	uint32_t h;

	if (!f) {
		perror(timeline.svg);
		return;
	}
	fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%.0f' font-family='sans-serif' font-size='12'>\n",
		SVG_LEFT + SVG_WIDTH + 20, svg_y(timeline.hosts) + 20);
	fprintf(f, "<text x='%d' y='20'>seed %" PRIu64 ", %.3f s to %.3f s. Green: completed, red: failed, purple: unfenced, grey: canceled, black: not ended, orange: faults</text>\n",
		SVG_LEFT, sim_seed(),
		(double)(timeline.from_ns - SIM_START_NS) / 1e9,
		(double)(timeline.until_ns - SIM_START_NS) / 1e9);
	for (h = 0; h < timeline.hosts; h++)
		fprintf(f, "<text x='4' y='%.0f'>host %u</text><line x1='%d' y1='%.0f' x2='%d' y2='%.0f' stroke='#ccc'/>\n",
			svg_y(h) + 10, h, SVG_LEFT, svg_y(h) + 16,
			SVG_LEFT + SVG_WIDTH, svg_y(h) + 16);
	for (i = 0; i < timeline.used; i++)
		svg_bar(f, &timeline.bars[i]);
	fputs("</svg>\n", f);
	fclose(f);
}

void simulate_timeline_begin(const struct simulate_options *o)
{
	if (!o->trace && !o->svg)
		return;
	timeline.hosts = o->hosts;
	timeline.from_ns = SIM_START_NS;
	timeline.until_ns = SIM_START_NS + o->seconds * SIM_SEC;
	if (o->trace) {
		timeline.text = fopen(o->trace, "w");
		if (!timeline.text) {
			perror(o->trace);
			exit(2);
		}
		/* Buffer by lines, so that the trace is complete up to a
		 * crash. */
		setvbuf(timeline.text, NULL, _IOLBF, 1 << 16);
	}
	timeline.svg = o->svg;
	if (o->svg)
		timeline.bars = calloc(SVG_OPS, sizeof(*timeline.bars));
	sim_trace_record(timeline_record, NULL);
	sim_on_found(simulate_timeline_end);
}

void simulate_timeline_end(void)
{
	if (timeline.bars) {
		timeline_svg();
		free(timeline.bars);
		timeline.bars = NULL;
	}
	if (timeline.text)
		fclose(timeline.text);
	timeline.text = NULL;
}
