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

/* hint of an error if another process now uses the control port of a peer that
 * has ended */
#define TEI_META_PEER_ENDED \
	"the peer has ended, and another process has its port"

/*
 * Sends one request to the control channel at endpoint ("host:port"). Blocks
 * until deadline_ns at most; the name resolution is included. Returns
 * TEI_ERR_DNS if the host cannot be resolved. Returns TEI_ERR_SOCKET if the
 * connection is refused or lost, or if the host is unreachable or does not
 * answer in time. Returns TEI_ERR_REJECTED if the peer does not use this
 * protocol or answers with an error, whose text is then in err->text and whose
 * code is in err->prov_errno.
 *
 * secret must be the secret of the server, or NULL if the server has no secret.
 * If it is not, the function returns TEI_ERR_REJECTED with TEI_META_DENIED in
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
 * Gets the descriptor of the segment "name" as terminated text, which the
 * caller frees with free(). A server that does not publish "name" sends its
 * primary descriptor instead if "any" is true, and an error if "any" is false.
 */
int tei_meta_get_desc(const char *endpoint, const struct tei_secret *secret,
		      const char *name, bool any, uint64_t deadline_ns,
		      char **json, size_t *len, struct tei_err *err);

/*
 * Does what tei_meta_get_desc does, for callers that have settings. Refuses an
 * answer of more than max bytes. max is the setting MC_HANDSHAKE_MAX_LENGTH; 0
 * means TEI_META_TEXT_MAX.
 */
int tei_meta_get_desc_max(const char *endpoint, const struct tei_secret *secret,
			  const char *name, bool any, size_t max,
			  uint64_t deadline_ns, char **json, size_t *len,
			  struct tei_err *err);

/*
 * Gets the statistics of the process at endpoint (see api/engine_report.c) as
 * terminated text, which the caller frees with free(). Also returns
 * TEI_ERR_REJECTED if the process has no statistics or does not send them to
 * this client: a process without a secret sends its statistics only to
 * processes of its own host.
 */
int tei_meta_get_stats(const char *endpoint, const struct tei_secret *secret,
		       uint64_t deadline_ns, char **json, struct tei_err *err);

#endif /* TEI_META_TEI_META_CLIENT_H */
