/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_store_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/text.h"

/*
 * Persistent segment records: descriptors that no process owns. To change a
 * record, a process reads it, modifies it, and writes it if no other process
 * has written it meanwhile; otherwise it starts again.
 */

#define PERSISTENT_PREFIX (sizeof(TEI_META_PERSISTENT) - 1)

bool tei_meta_persistent_name(const char *name)
{
	return name && !strncmp(name, TEI_META_PERSISTENT, PERSISTENT_PREFIX) &&
	       name[PERSISTENT_PREFIX] && name[PERSISTENT_PREFIX] != '.' &&
	       !strchr(name + PERSISTENT_PREFIX, '/') &&
	       strlen(name) - PERSISTENT_PREFIX < 200;
}

bool meta_names_add(struct meta_names *names, const char *name)
{
	size_t want = names->room ? 2 * names->room : 16;
	char **p, *copy;

	if (names->count == names->room) {
		p = realloc(names->name, want * sizeof(*p));
		if (!p)
			return false;
		names->name = p;
		names->room = want;
	}
	copy = strdup(name);
	if (copy)
		names->name[names->count++] = copy;
	return copy != NULL;
}

void meta_names_free(struct meta_names *names)
{
	while (names->count)
		free(names->name[--names->count]);
	free(names->name);
	memset(names, 0, sizeof(*names));
}

static int persistent_check(const struct tei_meta_store *s, const char *name,
			    struct tei_err *err)
{
	if (!s->ops->persistent_read)
		return tei_err_fail(err, TEI_ERR_UNSUPPORTED, "meta", NULL,
				    "%s does not support file segments",
				    s->ops->scheme);
	if (name && !tei_meta_persistent_name(name))
		return tei_err_fail(err, TEI_ERR_INVALID, "meta",
				    "write nvmeof/NAME, without a further slash",
				    "'%.64s' is not the name of a file segment",
				    name);
	return 0;
}

static int persistent_write(struct tei_meta_store *s, const char *name,
			    const struct tei_meta_desc *next, int64_t version,
			    uint64_t deadline_ns, struct tei_err *err)
{
	char *json = NULL;
	size_t len = 0;
	int rc = 0;

	if (next)
		rc = tei_meta_desc_encode(next, &json, &len, err);
	if (!rc && len > TEI_META_PERSISTENT_MAX)
		rc = tei_err_fail(
			err, TEI_ERR_TOO_MANY, "meta",
			"register fewer files under one name",
			"segment '%.64s': descriptor of %zu bytes (at most %u)",
			name, len, TEI_META_PERSISTENT_MAX);
	if (!rc)
		rc = s->ops->persistent_write(s, name, json, len, version,
					      deadline_ns, err);
	free(json);
	return rc;
}

/* Makes one attempt to change the record. Returns META_CONFLICT if another
 * process has changed it meanwhile. */
static int persistent_try(struct tei_meta_store *s, const char *name,
			  tei_meta_change_fn fn, void *arg,
			  uint64_t deadline_ns, struct tei_err *err)
{
	struct tei_meta_desc *now = NULL, *next = NULL;
	int64_t version;
	char *json;
	size_t len;
	int rc;

	rc = s->ops->persistent_read(s, name, deadline_ns, &json, &len,
				     &version, err);
	if (rc)
		return rc;
	if (json)
		rc = meta_desc_decode_as(name, json, len, &now, err);
	free(json);
	if (!rc)
		rc = fn(arg, now, &next, err);
	if (!rc && (next || now))
		rc = persistent_write(s, name, next, version, deadline_ns, err);
	tei_meta_desc_unref(now);
	tei_meta_desc_unref(next);
	return rc;
}

/* Makes one attempt to remove the record, without decoding it. Returns
 * META_CONFLICT if another process has changed it meanwhile. */
static int persistent_try_remove(struct tei_meta_store *s, const char *name,
				 bool *found, uint64_t deadline_ns,
				 struct tei_err *err)
{
	int64_t version;
	char *json;
	size_t len;
	int rc;

	rc = s->ops->persistent_read(s, name, deadline_ns, &json, &len,
				     &version, err);
	if (rc)
		return rc;
	*found = json != NULL;
	free(json);
	return *found ? persistent_write(s, name, NULL, version, deadline_ns,
					 err)
		      : 0;
}

/* Converts the result of the last attempt to a code of
 * tei_meta_store_change. */
static int persistent_tried(const char *name, int rc, struct tei_err *err)
{
	return rc != META_CONFLICT ? rc :
	       tei_err_fail(err, TEI_ERR_SOCKET, "meta", NULL,
			    "segment '%.64s': other processes changed it during each attempt",
			    name);
}

int tei_meta_store_change(struct tei_meta_store *s, const char *name,
			  tei_meta_change_fn fn, void *arg,
			  uint64_t deadline_ns, struct tei_err *err)
{
	int rc = persistent_check(s, name ? name : "", err);

	if (rc)
		return rc;
	do
		rc = persistent_try(s, name, fn, arg, deadline_ns, err);
	while (rc == META_CONFLICT && tei_now_ns() < deadline_ns);
	return persistent_tried(name, rc, err);
}

int tei_meta_store_remove(struct tei_meta_store *s, const char *name,
			  uint64_t deadline_ns, bool *found,
			  struct tei_err *err)
{
	int rc = persistent_check(s, name ? name : "", err);
	bool was = false;

	if (rc)
		return rc;
	do
		rc = persistent_try_remove(s, name, &was, deadline_ns, err);
	while (rc == META_CONFLICT && tei_now_ns() < deadline_ns);
	if (!rc)
		*found = was;
	return persistent_tried(name, rc, err);
}

static int persistent_by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Adds to "to" a copy of each name in "from", with the folder in front. Skips
 * invalid names. Returns false if memory is short. */
static bool persistent_names(const struct meta_names *from, const char *folder,
			     struct meta_names *to)
{
	bool files = !strcmp(folder, TEI_META_PERSISTENT);
	char name[TEI_META_NAME_MAX];
	size_t i;

	for (i = 0; i < from->count; i++) {
		if ((size_t)snprintf(name, sizeof(name), "%s%s", folder,
				     from->name[i]) >= sizeof(name) ||
		    !tei_text_valid(name, sizeof(name) - 1) ||
		    (files && !tei_meta_persistent_name(name)))
			continue;
		if (!meta_names_add(to, name))
			return false;
	}
	return true;
}

int tei_meta_store_list(struct tei_meta_store *s, const char *folder,
			uint64_t deadline_ns, char ***names, size_t *count,
			struct tei_err *err)
{
	struct meta_names found = { 0 }, out = { 0 };
	int rc = s->ops->list(s, folder, deadline_ns, &found, err);

	if (!rc && !persistent_names(&found, folder, &out))
		rc = tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				  "out of memory for the names of segments");
	meta_names_free(&found);
	if (rc) {
		meta_names_free(&out);
		return rc;
	}
	if (out.count)
		qsort(out.name, out.count, sizeof(*out.name),
		      persistent_by_name);
	*names = out.name;
	*count = out.count;
	return 0;
}
