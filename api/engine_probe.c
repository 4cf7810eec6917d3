/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_probe_peer: checks that a peer's control channel answers.
 */
#include "api/engine_int.h"
#include "meta/tei_meta_client.h"
#include "meta/tei_meta_desc.h"
#include "meta/tei_meta_store.h"

#include <inttypes.h>
#include <string.h>

/*
 * Returns the incarnation that the store has published for name. With
 * P2PHANDSHAKE nothing is published: the name is the address, so the process
 * that answers there is the peer, and *incarnation is 0.
 */
static int probe_published(struct engine *e, const char *name,
			   uint64_t deadline_ns, uint64_t *incarnation,
			   struct tei_err *err)
{
	struct tei_meta_desc *desc;
	int ret;

	*incarnation = 0;
	if (tei_meta_store_p2p(e->store))
		return 0;
	ret = tei_meta_store_fetch(e->store, name, deadline_ns, &desc, err);
	if (ret)
		return ret;
	*incarnation = desc->incarnation;
	tei_meta_desc_unref(desc);
	return 0;
}

static int probe_peer(struct engine *e, const char *name, uint64_t deadline_ns,
		      struct tei_err *err)
{
	char endpoint[TEI_META_ENDPOINT_MAX];
	uint64_t wanted, answered;
	int ret;

	ret = probe_published(e, name, deadline_ns, &wanted, err);
	if (!ret)
		ret = tei_meta_store_resolve(e->store, name, deadline_ns,
					     endpoint, err);
	if (ret)
		return ret;
	ret = tei_meta_ping(endpoint, tei_meta_store_secret(e->store),
			    deadline_ns, &answered, err);
	/* with P2PHANDSHAKE, the address in the text is the name */
	if (ret && !tei_meta_store_p2p(e->store))
		tei_err_prefix(err, "segment '%.64s'", name);
	if (ret || !wanted || wanted == answered)
		return ret;
	return tei_err_fail(err, TEI_ERR_REJECTED, "engine",
			    TEI_META_PEER_ENDED,
			    "segment '%.64s': incarnation %" PRIx64
			    " answers at %.64s, not %" PRIx64,
			    name, answered, endpoint, wanted);
}

int te_probe_peer(transfer_engine_t engine, const char *name,
		  int64_t timeout_us)
{
	struct engine *e = engine_from(engine);
	uint64_t deadline_ns;
	struct tei_err err;
	int ret;

	while (name && *name == '/')
		name++;
	if (!e || !name || !*name)
		return engine_bad(e, __func__, NULL);
	deadline_ns = timeout_us < 0 ? engine_deadline(e) :
				       engine_wait_deadline(timeout_us);
	memset(&err, 0, sizeof(err));
	ret = probe_peer(e, name, deadline_ns, &err);
	if (ret)
		tei_err_set_last(&err);
	return ret;
}
