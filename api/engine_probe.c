/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * te_probe_peer: checks that a peer's control channel answers.
 */
#include "api/engine_int.h"
#include "meta/tei_meta_store.h"

#include <string.h>

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
	ret = tei_meta_store_probe(e->store, name, deadline_ns, &err);
	if (ret)
		tei_err_set_last(&err);
	return ret;
}
