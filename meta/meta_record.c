/* SPDX-License-Identifier: BSD-2-Clause */
/* Encodes and decodes the records that a process publishes in a metadata store:
 * the address of its control channel, and the head of its descriptor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meta/meta_int.h"
#include "meta/meta_json.h"
#include "meta/meta_record.h"
#include "meta/meta_store_int.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"

char *meta_rpc_encode(const char *host, uint16_t port, uint64_t incarnation)
{
	struct meta_buf b = { 0 };

	meta_buf_text(&b, "{\"ip_or_host_name\":");
	meta_buf_string(&b, host);
	meta_buf_text(&b, ",\"rpc_port\":");
	meta_buf_u64(&b, port);
	meta_buf_text(&b, ",\"incarnation\":");
	meta_buf_u64(&b, incarnation);
	meta_buf_bytes(&b, "}", 2);
	if (!b.failed)
		return b.text;
	free(b.text);
	return NULL;
}

static bool rpc_member(struct meta_json *j, char host[TEI_META_HOST_MAX],
		       uint64_t *port, uint64_t *incarnation)
{
	if (!strcmp(j->text, "rpc_port"))
		return meta_json_u64(j, port);
	if (!strcmp(j->text, "incarnation"))
		return meta_json_u64(j, incarnation);
	if (strcmp(j->text, "ip_or_host_name"))
		return meta_json_skip(j);
	if (!meta_json_string(j) || j->text_len >= TEI_META_HOST_MAX)
		return false;
	memcpy(host, j->text, j->text_len + 1);
	return true;
}

bool meta_rpc_decode(const char *text, size_t len,
		     char endpoint[TEI_META_ENDPOINT_MAX],
		     uint64_t *incarnation)
{
	char host[TEI_META_HOST_MAX] = "";
	uint64_t port = 0, inc = 0;
	struct meta_json j;
	bool fine;

	meta_json_init(&j, text, len);
	fine = meta_json_object(&j);
	while (fine && meta_json_member(&j))
		fine = rpc_member(&j, host, &port, &inc);
	fine = fine && meta_json_done(&j) && *host && port && port <= 65535;
	meta_json_fini(&j);
	if (!fine)
		return false;
	tei_meta_join(host, (uint16_t)port, endpoint);
	*incarnation = inc;
	return true;
}

/*
 * Creates the descriptor whose JSON text becomes a part of the head: a copy of
 * desc without buffers and labels. If "closed" is true, the copy contains only
 * the name, the protocol and the incarnation.
 */
static int head_desc(const struct tei_meta_desc *desc, bool closed,
		     struct tei_meta_desc **out, struct tei_err *err)
{
	struct tei_meta_desc *d;
	int rc;

	rc = closed ? tei_meta_desc_create(desc->name, desc->protocol,
					   desc->incarnation, &d, err)
		    : tei_meta_desc_copy_head(desc, &d, err);
	return rc ? rc : tei_meta_desc_finish(d, 0, out, err);
}

int meta_head_encode(const struct tei_meta_desc *desc, const char *endpoint,
		     bool closed, char **text, size_t *len, struct tei_err *err)
{
	struct tei_meta_desc *unresolved;
	struct meta_buf b = { 0 };
	char *json;
	size_t n;
	int rc;

	rc = head_desc(desc, closed, &unresolved, err);
	if (rc)
		return rc;
	rc = tei_meta_desc_encode(unresolved, &json, &n, err);
	tei_meta_desc_unref(unresolved);
	if (rc)
		return rc;
	meta_buf_text(&b, "{\"buffers_at\":");
	meta_buf_string(&b, endpoint);
	if (!closed) {
		meta_buf_text(&b, ",\"buffers_count\":");
		meta_buf_u64(&b, desc->buffer_count);
	}
	meta_buf_text(&b, ",");
	meta_buf_bytes(&b, json + 1, n); /* the members of the descriptor and
					  * the closing bracket */
	free(json);
	if (b.failed) {
		free(b.text);
		return tei_err_fail(err, TEI_ERR_MEMORY, "meta", NULL,
				    "no memory to publish '%.64s'", desc->name);
	}
	*text = b.text;
	*len = b.len - 1;
	return 0;
}

bool meta_head_decode(const char *text, size_t len, uint64_t *incarnation,
		      char endpoint[TEI_META_ENDPOINT_MAX])
{
	struct meta_json j;
	bool fine;

	*incarnation = 0;
	endpoint[0] = 0;
	meta_json_init(&j, text, len);
	fine = meta_json_object(&j);
	while (fine && meta_json_member(&j)) {
		if (!strcmp(j.text, "incarnation")) {
			fine = meta_json_u64(&j, incarnation);
		} else if (!strcmp(j.text, "buffers_at")) {
			fine = meta_json_string(&j) &&
			       j.text_len < TEI_META_ENDPOINT_MAX;
			if (fine)
				memcpy(endpoint, j.text, j.text_len + 1);
		} else {
			fine = meta_json_skip(&j);
		}
	}
	fine = fine && meta_json_done(&j);
	meta_json_fini(&j);
	return fine;
}

int meta_head_fetch(const struct tei_meta_store *store, const char *endpoint,
		    const char *name, uint64_t incarnation,
		    uint64_t deadline_ns, char **json, size_t *len, bool *again,
		    struct tei_err *err)
{
	char at[TEI_META_ENDPOINT_MAX], *text;
	struct tei_err e;
	uint64_t inc;
	size_t n;
	int rc;

	*again = false;
	rc = tei_meta_get_desc_max(endpoint, store->secret, name, false,
				   store->settings->control.handshake_max,
				   deadline_ns, &text, &n, &e);
	if (rc) {
		/* a control channel answers at the endpoint, but it does not
		 * know the name */
		if (rc == TEI_ERR_REJECTED && e.prov_errno == TEI_ERR_METADATA)
			snprintf(e.hint, sizeof(e.hint), TEI_META_PEER_ENDED);
		tei_err_prefix(&e, "segment '%.64s'", name);
		if (err)
			*err = e;
		return rc;
	}
	if (!meta_head_decode(text, n, &inc, at) || inc == incarnation) {
		*json = text; /* the caller decodes the text and reports an
			       * error in it */
		*len = n;
		return 0;
	}
	free(text);
	*again = tei_now_ns() < deadline_ns;
	if (*again)
		return 0;
	return tei_err_fail(err, TEI_ERR_METADATA, "meta", NULL,
			    "segment '%.64s': another process answers at %.64s",
			    name, endpoint);
}
