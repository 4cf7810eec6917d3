/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_CLIENT_H
#define TEI_META_TEI_META_CLIENT_H

/*
 * Requests to the control channels of other processes. The rules of tei_meta.h
 * apply.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/tei_meta.h"

/* Hint of an error: another process uses the control port of a peer. */
#define TEI_META_PEER_ENDED \
	"the peer has ended, and another process has its port"

/*
 * Sends one request to the control channel at endpoint ("host:port"). Blocks
 * until deadline_ns at most, name resolution included. Returns TEI_ERR_DNS;
 * TEI_ERR_SOCKET if the connection is refused or lost, the host is unreachable
 * or does not answer in time; TEI_ERR_REJECTED if the peer answers with an
 * error (its text is in err->text, its code in err->prov_errno) or does not use
 * this protocol.
 *
 * secret must be the secret of the server, or NULL if the server has none.
 * Otherwise the function returns TEI_ERR_REJECTED with TEI_META_DENIED in
 * err->prov_errno.
 */
#define TEI_META_DENIED		13

int tei_meta_ping(const char *endpoint, const struct tei_secret *secret,
		  uint64_t deadline_ns, uint64_t *incarnation,
		  struct tei_err *err);

/*
 * Returns true if the control channel at endpoint refuses connections: no
 * process listens there. Logs nothing. Blocks, at most until deadline_ns.
 */
bool tei_meta_refused(const char *endpoint, uint64_t deadline_ns);

/*
 * Gets the descriptor of name as terminated text, which the caller frees with
 * free(). If any is true, the server sends its primary descriptor if it does
 * not publish name.
 */
int tei_meta_get_desc(const char *endpoint, const struct tei_secret *secret,
		      const char *name, bool any, uint64_t deadline_ns,
		      char **json, size_t *len, struct tei_err *err);

/*
 * Does what tei_meta_get_desc does, for callers that have settings. Refuses an
 * answer of more than max bytes, which is the setting MC_HANDSHAKE_MAX_LENGTH;
 * 0 means TEI_META_TEXT_MAX.
 */
int tei_meta_get_desc_max(const char *endpoint, const struct tei_secret *secret,
			  const char *name, bool any, size_t max,
			  uint64_t deadline_ns, char **json, size_t *len,
			  struct tei_err *err);

/*
 * Gets the statistics of the process at endpoint (see api/engine_report.c) as
 * terminated text, which the caller frees with free(). Returns TEI_ERR_REJECTED
 * also if the process has none or refuses them: without a secret, it only sends
 * them to processes of its host.
 */
int tei_meta_get_stats(const char *endpoint, const struct tei_secret *secret,
		       uint64_t deadline_ns, char **json, struct tei_err *err);

#endif /* TEI_META_TEI_META_CLIENT_H */
