/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Prints the elements of an SVG picture to stdout. The style sheet defines the
 * colours.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/te_info.h"

static const char draw_style[] =
	"svg{font-family:DejaVu Sans,Helvetica,Arial,sans-serif;"
	"background:#fff}\n"
	".page{fill:#fff}\n"
	".socket{fill:#f4f6f8;stroke:#8a97a6;stroke-width:1.5}\n"
	".node{fill:#fff;stroke:#b6c0cc;stroke-width:1.2}\n"
	".rail{fill:#d7ebff;stroke:#2f74b5;stroke-width:1.5}\n"
	".nic{fill:#f2f2f2;stroke:#9a9a9a;stroke-width:1.2}\n"
	".gpu{fill:#e3f4dc;stroke:#4b8f3c;stroke-width:1.5}\n"
	".title{font-size:20px;font-weight:bold;fill:#1d2733}\n"
	".sub{font-size:13px;fill:#52606d}\n"
	".head{font-size:15px;font-weight:bold;fill:#1d2733}\n"
	".name{font-size:13px;font-weight:bold;fill:#1d2733}\n"
	".small{font-size:11px;fill:#52606d}\n"
	".near{fill:none;stroke:#d98324;stroke-width:2.5}\n"
	".far{fill:none;stroke:#d98324;stroke-width:1.5;"
	"stroke-dasharray:5 4}\n";

/* Prints one UTF-8 character, escaped for XML. Returns the length of the
 * character in the input, bytes. */
static size_t draw_char(const char *p)
{
	size_t n = 1;

	switch (*p) {
	case '<': fputs("&lt;", stdout); return 1;
	case '>': fputs("&gt;", stdout); return 1;
	case '&': fputs("&amp;", stdout); return 1;
	case '"': fputs("&quot;", stdout); return 1;
	default: break;
	}
	if ((unsigned char)*p < 0x20 || *p == 0x7f) {
		putchar('?');
		return 1;
	}
	putchar(*p);
	while (((unsigned char)p[n] & 0xc0) == 0x80)
		putchar(p[n++]);
	return n;
}

/* Prints at most max characters of text. If the text is longer, the last one is
 * an ellipsis. */
static void draw_chars(const char *text, int max)
{
	int count = 0, n;
	const char *p;

	for (p = text; *p; p++)
		count += ((unsigned char)*p & 0xc0) != 0x80;
	for (n = 0; *text && (n < max - 1 || count <= max); n++)
		text += draw_char(text);
	if (*text)
		fputs("…", stdout);
}

void svg_head(int width, int height, const char *title)
{
	printf("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	       "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n<title>",
	       width, height, width, height);
	draw_chars(title, 1000);
	printf("</title>\n<style>\n%s</style>\n", draw_style);
	svg_box("page", 0, 0, width, height);
}

void svg_tail(void)
{
	puts("</svg>");
}

void svg_box(const char *class, int x, int y, int w, int h)
{
	printf("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\"/>\n",
	       class, x, y, w, h, strcmp(class, "page") ? 6 : 0);
}

/* Returns the mean width of a character in a text of that class, in tenths of a
 * pixel. */
static int draw_pitch(const char *class)
{
	static const struct { const char *class; int pitch; } rows[] = {
		{ "title", 135 }, { "head", 102 }, { "name", 88 },
		{ "sub", 82 }, { "small", 69 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (!strcmp(rows[i].class, class))
			return rows[i].pitch;
	return 80;
}

void svg_text(const char *class, int x, int y, int width, const char *fmt, ...)
{
	cJSON *clean = cJSON_CreateArray();
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	info_text(clean, NULL, "%s", text);
	printf("<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
	if (cJSON_GetArraySize(clean))
		draw_chars(cJSON_GetArrayItem(clean, 0)->valuestring,
			   width * 10 / draw_pitch(class));
	puts("</text>");
	cJSON_Delete(clean);
}

void svg_link(const char *class, int x1, int y1, int x2, int y2)
{
	int bend = (x2 > x1 ? x2 - x1 : x1 - x2) / 2;

	if (bend < 30)
		bend = 30;
	printf("<path class=\"%s\" d=\"M%d %d C%d %d %d %d %d %d\"/>\n", class,
	       x1, y1, x2 > x1 ? x1 + bend : x1 - bend, y1,
	       x2 > x1 ? x2 - bend : x2 + bend, y2, x2, y2);
}
