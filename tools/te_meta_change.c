/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "tools/te_meta.h"

/* Changes the descriptors of file segments. If another process changes the same
 * descriptor at the same time, the change function is called again. So it must
 * start from the descriptor in its arguments each time. */

#define CHANGE_REFUSED	TEI_ERR_REJECTED	/* the change was refused, and
						 * the reason was printed to
						 * stderr */

struct change {
	const struct meta_opts *opts;
	struct meta_file *files;	/* array of path_count elements; the
					 * first `checked` of them are filled */
	uint32_t checked;
};

static int change_refuse(const char *name, const char *why)
{
	fprintf(stderr, "te_meta: %s: %s\n", name, why);
	return CHANGE_REFUSED;
}

static int change_new(const char *name, struct tei_meta_desc **out,
		      struct tei_err *err)
{
	return tei_meta_desc_create(name, "nvmeof", 0, out, err);
}

static int change_look(struct change *c, uint64_t want)
{
	uint32_t i = c->checked++;

	return meta_check(c->opts->paths[i], want, &c->files[i]);
}

static int change_register(void *arg, const struct tei_meta_desc *now,
			   struct tei_meta_desc **next, struct tei_err *err)
{
	struct change *c = arg;
	const struct meta_opts *o = c->opts;
	struct tei_meta_file_path at = { .server = o->server };
	struct tei_meta_desc *d;
	uint32_t i;
	int ret;

	if (now)
		return change_refuse(o->name, "is registered already; te_meta remove removes it");
	ret = change_new(o->name, &d, err);
	if (ret)
		return ret;
	for (i = 0; i < o->path_count && !ret; i++) {
		at.path = c->files[i].path;
		ret = tei_meta_desc_add_file(d, at.path, c->files[i].length,
					     &at, o->server ? 1 : 0, err);
	}
	return tei_meta_desc_finish(d, ret, next, err);
}

/* Adds the file f to the descriptor d. If path is not NULL, d also states that
 * `server` has the file mounted at `path`. If path is NULL, d states no such
 * path for `server`. */
static int change_file(struct tei_meta_desc *d, const struct tei_meta_file *f,
		       const char *server, const char *path, bool *had,
		       struct tei_err *err)
{
	struct tei_meta_file_path *map;
	uint32_t i, n = 0;
	int ret;

	map = calloc((size_t)f->local_count + 1, sizeof(*map));
	if (!map)
		return TEI_ERR_MEMORY;
	for (i = 0; i < f->local_count; i++) {
		if (strcmp(f->local[i].server, server))
			map[n++] = f->local[i];
		else
			*had = true;
	}
	if (path) {
		map[n].server = server;
		map[n++].path = path;
	}
	ret = tei_meta_desc_add_file(d, f->path, f->length, map, n, err);
	free(map);
	return ret;
}

static int change_map(struct change *c, const struct tei_meta_desc *now,
		      bool mount, struct tei_meta_desc **next,
		      struct tei_err *err)
{
	const struct meta_opts *o = c->opts;
	struct tei_meta_desc *d;
	bool had = false;
	uint32_t i;
	int ret;

	ret = change_new(o->name, &d, err);
	if (ret)
		return ret;
	for (i = 0; i < now->file_count && !ret; i++)
		ret = change_file(d, &now->files[i], o->server,
				  mount ? c->files[i].path : NULL, &had, err);
	if (!ret && !mount && !had)
		ret = change_refuse(o->name, "is not mounted on that server");
	return tei_meta_desc_finish(d, ret, next, err);
}

/* Checks that the segment is registered and consists of files. Returns 0 if it
 * is. */
static int change_present(const struct meta_opts *o,
			  const struct tei_meta_desc *now)
{
	if (!now)
		return change_refuse(o->name, "no such file segment");
	if (strcmp(now->protocol, "nvmeof"))
		return change_refuse(o->name, "is not a file segment");
	return 0;
}

static int change_mount(void *arg, const struct tei_meta_desc *now,
			struct tei_meta_desc **next, struct tei_err *err)
{
	struct change *c = arg;
	char why[96];
	uint32_t i;
	int ret = change_present(c->opts, now);

	if (ret)
		return ret;
	if (now->file_count != c->opts->path_count) {
		snprintf(why, sizeof(why), "has %" PRIu32 " files, but %" PRIu32
			 " paths were given", now->file_count,
			 c->opts->path_count);
		return change_refuse(c->opts->name, why);
	}
	while (c->checked)
		free(c->files[--c->checked].path);
	for (i = 0; i < now->file_count && !ret; i++)
		if (change_look(c, now->files[i].length))
			ret = CHANGE_REFUSED;
	return ret ? ret : change_map(c, now, true, next, err);
}

static int change_unmount(void *arg, const struct tei_meta_desc *now,
			  struct tei_meta_desc **next, struct tei_err *err)
{
	struct change *c = arg;
	int ret = change_present(c->opts, now);

	return ret ? ret : change_map(c, now, false, next, err);
}

/* Removes a descriptor, even if its contents are not valid. */
static int change_remove(struct tei_meta_store *store, const char *name,
			 uint64_t deadline_ns)
{
	bool found = false;
	int ret = tei_meta_store_remove(store, name, deadline_ns, &found, NULL);

	return ret || found ? ret : change_refuse(name, "no such file segment");
}

int meta_change(struct tei_meta_store *store, const struct meta_opts *opts,
		uint64_t deadline_ns)
{
	static const tei_meta_change_fn fns[] = {
		[META_REGISTER] = change_register,
		[META_MOUNT] = change_mount,
		[META_UNMOUNT] = change_unmount,
	};
	struct change c = { .opts = opts };
	int ret = 0;

	c.files = calloc((size_t)opts->path_count + 1, sizeof(*c.files));
	if (!c.files)
		return META_EXIT_FAILED;
	while (opts->verb == META_REGISTER && !ret &&
	       c.checked < opts->path_count)
		ret = change_look(&c, opts->size);
	if (!ret && opts->verb == META_REMOVE)
		ret = change_remove(store, opts->name, deadline_ns);
	else if (!ret)
		ret = tei_meta_store_change(store, opts->name, fns[opts->verb],
					    &c, deadline_ns, NULL);
	meta_check_free(c.files, c.checked);
	return ret ? META_EXIT_FAILED : META_EXIT_OK;
}
