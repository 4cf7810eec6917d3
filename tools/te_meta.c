/* SPDX-License-Identifier: BSD-2-Clause */
/* te_meta: edits the descriptors of file segments in a metadata store, shows
 * all descriptors, and can itself be a metadata store (te_meta serve). */
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "moonrail.h"
#include "tools/te_meta.h"
#include "util/clock.h"
#include "util/settings.h"

static int main_list(struct tei_meta_store *store, const char *folder,
		     uint64_t deadline_ns)
{
	char **names;
	size_t n, i;

	if (tei_meta_store_list(store, folder, deadline_ns, &names, &n, NULL))
		return META_EXIT_FAILED;
	for (i = 0; i < n; i++) {
		puts(names[i]);
		free(names[i]);
	}
	free(names);
	return META_EXIT_OK;
}

/* Adds a 64-bit number to an object. The digits are added as raw JSON, because
 * the numbers of cJSON are exact only up to 53 bits. */
static void show_number(cJSON *object, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	cJSON_AddRawToObject(object, key, text);
}

static void show_file(cJSON *list, const struct tei_meta_file *f)
{
	cJSON *o = cJSON_CreateObject(), *paths;
	uint32_t i;

	if (!cJSON_AddItemToArray(list, o)) {
		cJSON_Delete(o);
		return;
	}
	cJSON_AddStringToObject(o, "file_path", f->path);
	show_number(o, "length", f->length);
	paths = cJSON_AddObjectToObject(o, "local_path_map");
	for (i = 0; i < f->local_count; i++)
		cJSON_AddStringToObject(paths, f->local[i].server,
					f->local[i].path);
}

static void show_line(unsigned int depth)
{
	putchar('\n');
	while (depth--)
		putchar('\t');
}

/* Prints valid JSON text with indentation. Unlike cJSON, does not change its
 * numbers. */
static void show_text(const char *text)
{
	unsigned int depth = 0;
	bool quoted = false;
	const char *p;

	for (p = text; *p; p++) {
		if (!quoted && strchr(" \t\r\n", *p))
			continue;
		if (!quoted && strchr("}]", *p))
			show_line(--depth);
		putchar(*p);
		if (quoted && *p == '\\')
			putchar(*++p);
		else if (*p == '"')
			quoted = !quoted;
		else if (!quoted && strchr("{[", *p))
			show_line(++depth);
		else if (!quoted && *p == ',')
			show_line(depth);
		else if (!quoted && *p == ':')
			putchar('\t');
	}
	putchar('\n');
}

/* Prints the published descriptor of a process, which may be a Mooncake
 * process, as it is in the store. */
static int main_show_process(struct tei_meta_store *store, const char *name,
			     uint64_t deadline_ns)
{
	char *text;
	size_t len;

	if (tei_meta_store_text(store, name, deadline_ns, &text, &len, NULL))
		return META_EXIT_FAILED;
	show_text(text);
	free(text);
	return META_EXIT_OK;
}

static int main_show(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns)
{
	cJSON *doc = cJSON_CreateObject(), *list;
	struct tei_meta_desc *d;
	char *text;
	uint32_t i;

	if (tei_meta_store_fetch(store, name, deadline_ns, &d, NULL)) {
		cJSON_Delete(doc);
		return META_EXIT_FAILED;
	}
	cJSON_AddStringToObject(doc, "server_name", d->name);
	cJSON_AddStringToObject(doc, "protocol", d->protocol);
	show_number(doc, "size", d->size);
	list = cJSON_AddArrayToObject(doc, "buffers");
	for (i = 0; i < d->file_count; i++)
		show_file(list, &d->files[i]);
	tei_meta_desc_unref(d);
	text = cJSON_Print(doc);
	cJSON_Delete(doc);
	puts(text ? text : "{}");
	cJSON_free(text);
	return META_EXIT_OK;
}

static int main_run(struct tei_meta_store *store, const struct meta_opts *opts,
		    uint64_t deadline_ns)
{
	int ret;

	switch (opts->verb) {
	case META_LIST:
		ret = main_list(store, TEI_META_PERSISTENT, deadline_ns);
		if (!ret && opts->all)
			ret = main_list(store, TEI_META_PROCESSES, deadline_ns);
		return ret;
	case META_SHOW:
		return meta_process_name(opts->name) ?
			       main_show_process(store, opts->name,
						 deadline_ns) :
			       main_show(store, opts->name, deadline_ns);
	default:
		return meta_change(store, opts, deadline_ns);
	}
}

static int main_store(const struct meta_opts *opts)
{
	static struct tei_settings settings;
	struct tei_meta_store *store;
	int ret;

	if (tei_settings_load(&settings, NULL) ||
	    tei_meta_store_open(opts->metadata_server, &settings, &store,
				NULL))
		return META_EXIT_FAILED;
	ret = main_run(store, opts,
		       tei_now_ns() + settings.control.connect_timeout_s *
					      TEI_NS_PER_SEC);
	tei_meta_store_close(store);
	return ret;
}

static int main_serve(const struct meta_opts *opts)
{
#ifdef TEI_HAVE_MICROHTTPD
	return meta_serve(opts);
#else
	(void)opts;
	fprintf(stderr, "te_meta: serve: this program was configured with "
			"--disable-serve\n");
	return META_EXIT_FAILED;
#endif
}

/* Flushes stdout. Returns ret, or META_EXIT_USAGE if the output could not be
 * written. */
static int main_flush(int ret)
{
	if (!fflush(stdout) && !ferror(stdout))
		return ret;
	fprintf(stderr, "te_meta: can't write: %s\n", strerror(errno));
	return META_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	struct meta_opts opts;
	int ret;

	ret = meta_parse(argc, argv, &opts);
	if (ret)
		return ret;
	signal(SIGPIPE, SIG_IGN);
	if (opts.help)
		meta_help();
	else if (opts.version)
		printf("moonrail %s\n", te_version());
	else if (opts.verb == META_SERVE)
		ret = main_serve(&opts);
	else
		ret = main_store(&opts);
	return main_flush(ret);
}
