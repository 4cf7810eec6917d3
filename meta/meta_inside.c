/* SPDX-License-Identifier: BSD-2-Clause */
#include "meta/tei_meta_inside.h"

#include <stdlib.h>
#include <string.h>

#include "meta/meta_store_int.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/list.h"
#include "util/secret.h"
#include "util/world.h"

/*
 * A metadata store for simulators (tei_meta_inside.h). A descriptor stays in the
 * store until its process withdraws it or another process publishes the same
 * name, as in a store without leases. The store is always reachable, and each
 * call takes a random time. A descriptor that is published as a head is stored
 * as a whole, because there is no control channel to which a head could refer.
 */

/* longest time that a call takes, ns */
#define INSIDE_NS	(20 * TEI_NS_PER_MS)

/* A descriptor in the store. */
struct inside_text {
	struct tei_list link;		/* element of inside_texts */
	const struct tei_meta_store *owner; /* store of the process that has
					     * published the text; compared,
					     * never accessed */
	char *name;
	char *json;
	size_t len;
};

/* list of inside_text.link */
static struct tei_list inside_texts = { &inside_texts, &inside_texts };

static void inside_wait(void)
{
	uint32_t ns;

	if (tei_random(&ns, sizeof(ns)))
		tei_sleep_ns(ns % INSIDE_NS);
}

static struct inside_text *inside_find(const char *name)
{
	struct inside_text *t;

	tei_list_foreach (t, &inside_texts, struct inside_text, link)
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}

static void inside_free(struct inside_text *t)
{
	tei_list_del(&t->link);
	free(t->name);
	free(t->json);
	free(t);
}

void tei_meta_inside_clear(void)
{
	while (!tei_list_empty(&inside_texts))
		inside_free(tei_list_first(&inside_texts, struct inside_text,
					   link));
}

static struct inside_text *inside_new(const char *name)
{
	struct inside_text *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->name = strdup(name);
	if (!t->name) {
		free(t);
		return NULL;
	}
	tei_list_add_tail(&inside_texts, &t->link);
	return t;
}

/* Stores the text under the name of the descriptor. The store owns the text
 * afterwards. */
static int inside_put(const struct tei_meta_store *store, const char *name,
		      char *json, size_t len, struct tei_err *err)
{
	struct inside_text *t = inside_find(name);

	if (!t)
		t = inside_new(name);
	if (!t) {
		free(json);
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "segment '%.64s': out of memory", name);
	}
	free(t->json);
	t->owner = store;
	t->json = json;
	t->len = len;
	return 0;
}

static int inside_publish(struct tei_meta_store *store,
			  const struct tei_meta_desc *desc, const char *json,
			  size_t len, bool report_loss, uint64_t deadline_ns,
			  struct tei_err *err)
{
	char *text;
	int rc;

	(void)json;
	(void)len;
	(void)report_loss;
	(void)deadline_ns;
	inside_wait();
	rc = tei_meta_desc_encode(desc, &text, &len, err);
	return rc ? rc : inside_put(store, desc->name, text, len, err);
}

static int inside_withdraw(struct tei_meta_store *store, const char *name,
			   uint64_t deadline_ns, struct tei_err *err)
{
	struct inside_text *t;

	(void)deadline_ns;
	(void)err;
	inside_wait();
	t = inside_find(name);
	if (t && t->owner == store)
		inside_free(t);
	return 0;
}

static int inside_fetch(struct tei_meta_store *store, const char *name,
			uint64_t deadline_ns, char **json, size_t *len,
			struct tei_err *err)
{
	const struct inside_text *t;

	(void)store;
	(void)deadline_ns;
	inside_wait();
	t = inside_find(name);
	if (!t)
		return tei_err_note(err, TEI_ERR_METADATA, "meta", NULL,
				    "segment '%.64s' is not in the store", name);
	*json = malloc(t->len + 1);
	if (!*json)
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "segment '%.64s': out of memory", name);
	memcpy(*json, t->json, t->len);
	(*json)[t->len] = 0;
	*len = t->len;
	return 0;
}

static int inside_resolve(struct tei_meta_store *store, const char *server,
			  uint64_t deadline_ns,
			  char endpoint[TEI_META_ENDPOINT_MAX],
			  struct tei_err *err)
{
	(void)store;
	(void)deadline_ns;
	(void)endpoint;
	return tei_err_note(err, TEI_ERR_UNSUPPORTED, "meta", NULL,
			    "segment '%.64s': its process has no control channel",
			    server);
}

const struct meta_store_ops meta_inside_ops = {
	.scheme = "inside",
	.caps = TEI_META_KEEPS,
	.unbound = true,
	.publish = inside_publish,
	.withdraw = inside_withdraw,
	.fetch = inside_fetch,
	.resolve = inside_resolve,
};
