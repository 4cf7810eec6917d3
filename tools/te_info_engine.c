/* SPDX-License-Identifier: BSD-2-Clause */
/* Child process that creates an engine on this machine. The child prints the
 * lines "@engine", "@error", "@rail", "@setting" and "@matrix", and the lines
 * "@fabric", "@provider" and "@library" about libfabric. */
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/tei_meta_store.h"
#include "tools/te_info.h"
#include "util/clock.h"

#define ENGINE_TEXT (1u << 18)

static void engine_rails(transfer_engine_t engine)
{
	struct te_rail_stats stats[INFO_RAILS], *s;
	size_t n = INFO_RAILS, i;
	cJSON *o;

	if (te_rail_stats(engine, stats, sizeof(stats[0]), &n))
		return;
	for (i = 0; i < n && i < INFO_RAILS; i++) {
		s = &stats[i];
		o = cJSON_CreateObject();
		info_text(o, "name", "%s", s->name);
		info_text(o, "transport", "%s", s->transport);
		info_text(o, "provider", "%s", s->provider);
		info_text(o, "address", "%s", s->address);
		info_text(o, "state", "%s", info_state_name(s->state));
		info_num(o, "lanes", s->lanes);
		info_num(o, "window_bytes", (double)s->window);
		info_say("rail", o);
	}
}

/* Prints a line "NAME=value source" of the settings as "@setting". The value
 * may contain blanks. */
static void engine_setting(char *line)
{
	char *value = strchr(line, '='), *source = strrchr(line, ' ');
	cJSON *o;

	if (!value || !source || source < value)
		return;
	*value++ = '\0';
	*source++ = '\0';
	o = cJSON_CreateObject();
	info_text(o, "name", "%s", line);
	info_text(o, "value", "%s", value);
	info_text(o, "source", "%s", source);
	info_say("setting", o);
}

static void engine_settings(transfer_engine_t engine, char *buf)
{
	char *line, *end;

	if (te_settings_text(engine, buf, ENGINE_TEXT) < 0)
		return;
	for (line = buf; (end = strchr(line, '\n')); line = end + 1) {
		*end = '\0';
		engine_setting(line);
	}
}

static void engine_matrix(transfer_engine_t engine, char *buf)
{
	cJSON *links, *matrix;

	if (showLinks(engine, buf, ENGINE_TEXT, 1))
		return;
	links = cJSON_Parse(buf);
	/* the member is missing if the engine's rails reach no other process */
	matrix = cJSON_DetachItemFromObjectCaseSensitive(links,
							 "priority_matrix");
	if (matrix)
		info_say("matrix", matrix);
	cJSON_Delete(links);
}

bool info_is_libfabric(const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	if (strncmp(base, "libfabric", 9))
		return false;
	base += 9;
	return !strncmp(base, ".so", 3) ||
	       (*base == '-' && strstr(base, ".so"));
}

bool info_is_infinipath(const char *path)
{
	const char *base = strrchr(path, '/');

	return !strncmp(base ? base + 1 : path, "libinfinipath.so", 16);
}

static int engine_library(struct dl_phdr_info *lib, size_t size, void *arg)
{
	const char *base = strrchr(lib->dlpi_name, '/');
	cJSON *o;

	(void)size;
	(void)arg;
	base = base ? base + 1 : lib->dlpi_name;
	if (!info_is_libfabric(lib->dlpi_name) &&
	    !info_is_infinipath(lib->dlpi_name) &&
	    strncmp(base, "libmoonrail.so", 14))
		return 0;
	o = cJSON_CreateObject();
	info_text(o, "path", "%s", lib->dlpi_name);
	info_say("library", o);
	return 0;
}

/*
 * Checks whether the metadata server accepts this user, by opening its store.
 * The engine of this child does not use the store, because an engine that
 * publishes creates nodes which stay in the store. If this user has no
 * credentials, every other user could change these nodes.
 */
static int engine_metadata(const struct info_opts *opts)
{
	struct tei_meta_store *store = info_child_store(opts);
	struct tei_err err;
	int ret;

	if (!store)
		return -1;
	ret = tei_meta_store_check(store, tei_now_ns() + INFO_STORE_NS, &err);
	tei_meta_store_close(store);
	if (ret)
		info_say_err("metadata", &err);
	return ret;
}

int info_engine_child(const struct info_opts *opts)
{
	char *buf = malloc(ENGINE_TEXT), address[128];
	transfer_engine_t engine = NULL;
	cJSON *o;

	info_fabric_say(opts);
	dl_iterate_phdr(engine_library, NULL);
	if (buf && !engine_metadata(opts))
		engine = info_child_engine(opts);
	if (!engine) {
		free(buf);
		return 1;
	}
	o = cJSON_CreateObject();
	if (!getLocalIpAndPort(engine, address, sizeof(address)))
		info_text(o, "control_channel", "%s", address);
	info_say("engine", o);
	engine_rails(engine);
	engine_settings(engine, buf);
	engine_matrix(engine, buf);
	destroyTransferEngine(engine);
	free(buf);
	return 0;
}
