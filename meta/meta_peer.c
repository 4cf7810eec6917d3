/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of the store for control channels: starting the one of this
 * process, and finding and testing those of other processes. They work with all
 * kinds of stores.
 */
#include <inttypes.h>

#include "meta/meta_store_int.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_name.h"
#include "meta/tei_meta_server.h"
#include "meta/tei_meta_store.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/settings.h"

#define PEER_REFUSED_NS (200 * TEI_NS_PER_MS) /* time limit of an attempt to
					       * connect */

/* --- this process -------------------------------------------------------- */

/* Starts the server of a process that no other process can reach. */
static int peer_serve_unbound(struct tei_meta_store *s, uint64_t incarnation,
			      struct tei_meta_server **server,
			      struct tei_err *err)
{
	struct tei_meta_server_config config;
	int rc;

	tei_meta_server_defaults(s->settings, s->ops->scheme, incarnation,
				 &config);
	config.secret = s->secret;
	config.unbound = true;
	rc = tei_meta_server_start(&config, server, err);
	if (!rc)
		tei_meta_store_attach(s, *server);
	return rc;
}

int tei_meta_store_serve(struct tei_meta_store *s, const char *server_name,
			 uint64_t incarnation, struct tei_meta_server **server,
			 bool *fixed, struct tei_err *err)
{
	char host[TEI_META_HOST_MAX], name_host[TEI_META_HOST_MAX];
	bool address = s->ops->caps & TEI_META_ADDRESSES, given;
	struct tei_meta_server_config config;
	uint16_t port;
	int rc;

	*fixed = true;
	if (s->ops->unbound)
		return peer_serve_unbound(s, incarnation, server, err);
	rc = tei_meta_local_host(s->settings, server_name, address, host,
				 &given, err);
	if (rc)
		return rc;
	tei_meta_server_defaults(s->settings, host, incarnation, &config);
	config.secret = s->secret;
	if (!address && s->settings->control.legacy_binding &&
	    !tei_meta_split(server_name, name_host, &port) && port)
		config.min_port = config.max_port = port;
	rc = tei_meta_server_start(&config, server, err);
	if (rc)
		return rc;
	tei_meta_store_attach(s, *server);
	*fixed = address || given;
	return 0;
}

const char *tei_meta_store_own_name(const struct tei_meta_store *s,
				    const char *server_name)
{
	return s->ops->caps & TEI_META_ADDRESSES ?
		       tei_meta_server_name(s->server) : server_name;
}

/* --- other processes ----------------------------------------------------- */

/*
 * Gets the incarnation in the descriptor that the store has for name. If names
 * are addresses in this store, sets *incarnation to 0, because every process
 * that answers at the address is the right one.
 */
static int peer_incarnation(struct tei_meta_store *s, const char *name,
			    uint64_t deadline_ns, uint64_t *incarnation,
			    struct tei_err *err)
{
	struct tei_meta_desc *desc;
	int rc;

	*incarnation = 0;
	if (s->ops->caps & TEI_META_ADDRESSES)
		return 0;
	rc = tei_meta_store_fetch(s, name, deadline_ns, &desc, err);
	if (rc)
		return rc;
	*incarnation = desc->incarnation;
	tei_meta_desc_unref(desc);
	return 0;
}

int tei_meta_store_probe(struct tei_meta_store *s, const char *name,
			 uint64_t deadline_ns, struct tei_err *err)
{
	char endpoint[TEI_META_ENDPOINT_MAX];
	uint64_t wanted, answered;
	int rc;

	rc = peer_incarnation(s, name, deadline_ns, &wanted, err);
	if (!rc)
		rc = tei_meta_store_resolve(s, name, deadline_ns, endpoint,
					    err);
	if (rc)
		return rc;
	rc = tei_meta_ping(endpoint, s->secret, deadline_ns, &answered, err);
	/* if the name is an address, the error text contains it already */
	if (rc && !(s->ops->caps & TEI_META_ADDRESSES))
		tei_err_prefix(err, "segment '%.64s'", name);
	if (rc || !wanted || wanted == answered)
		return rc;
	return tei_err_fail(err, TEI_ERR_REJECTED, "meta", TEI_META_PEER_ENDED,
			    "segment '%.64s': incarnation %" PRIx64
			    " answers at %.64s, not %" PRIx64,
			    name, answered, endpoint, wanted);
}

bool tei_meta_store_refused(struct tei_meta_store *s, const char *name)
{
	char endpoint[TEI_META_ENDPOINT_MAX];
	struct tei_err err;

	return !s->ops->resolve(s, name, tei_now_ns() + TEI_NS_PER_SEC,
				endpoint, &err) &&
	       tei_meta_refused(endpoint, tei_now_ns() + PEER_REFUSED_NS);
}
