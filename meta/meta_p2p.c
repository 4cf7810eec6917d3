/* SPDX-License-Identifier: BSD-2-Clause */
#include <string.h>

#include "meta/meta_store_int.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_store.h"
#include "util/err.h"
#include "util/settings.h"

/*
 * The store P2PHANDSHAKE, which has no server. The name of a segment is the
 * address of the control channel of its process, and the descriptor is fetched
 * from there. The user may spell the address differently from the segment's own
 * name. Therefore the request asks for the process's primary descriptor if the
 * name is unknown (parameter "any"). File segments belong to no process; their
 * descriptors are files in a folder.
 */

static int p2p_resolve(struct tei_meta_store *store, const char *server,
		       uint64_t deadline_ns,
		       char endpoint[TEI_META_ENDPOINT_MAX],
		       struct tei_err *err)
{
	char host[TEI_META_HOST_MAX];
	uint16_t port;

	(void)store;
	(void)deadline_ns;
	if (tei_meta_split(server, host, &port) || !port)
		return tei_err_fail(err, TEI_ERR_INVALID, "meta",
				    "with P2PHANDSHAKE a segment's name is host:port or [v6]:port",
				    "segment '%.64s': the name is not an address",
				    server ? server : "");
	tei_meta_join(host, port, endpoint);
	return 0;
}

static int p2p_fetch_persistent(struct tei_meta_store *store, const char *name,
				uint64_t deadline_ns, char **json, size_t *len,
				struct tei_err *err)
{
	int64_t version;
	int rc;

	rc = meta_dir_read(store, name, deadline_ns, json, len, &version, err);
	if (rc || *json)
		return rc;
	return tei_err_fail(err, TEI_ERR_METADATA, "meta",
			    "te_meta register creates it",
			    "segment '%.64s' is not in %.64s", name,
			    store->settings->store.segment_dir);
}

static int p2p_fetch(struct tei_meta_store *store, const char *name,
		     uint64_t deadline_ns, char **json, size_t *len,
		     struct tei_err *err)
{
	char endpoint[TEI_META_ENDPOINT_MAX];
	int rc;

	if (tei_meta_persistent_name(name))
		return p2p_fetch_persistent(store, name, deadline_ns, json, len,
					    err);
	rc = p2p_resolve(store, name, deadline_ns, endpoint, err);
	return rc ? rc
		  : tei_meta_get_desc_max(
			    endpoint, store->secret, name, true,
			    store->settings->control.handshake_max, deadline_ns,
			    json, len, err);
}

const struct meta_store_ops meta_p2p_ops = {
	.scheme = "P2PHANDSHAKE",
	.caps = TEI_META_ADDRESSES,
	.fetch = p2p_fetch,
	.resolve = p2p_resolve,
	.persistent_read = meta_dir_read,
	.persistent_write = meta_dir_write,
	.list = meta_dir_list,
};
