/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ETCD_H
#define TEI_META_META_ETCD_H

/*
 * The etcd driver of meta_kv.h, by etcd's JSON gateway. A commit is one
 * transaction that compares the modification revisions of keys, which are their
 * versions. All leased keys of a process belong to one lease of the server.
 *
 * Endpoints. All calls use the current endpoint until it fails. When a call has
 * switched to another endpoint, the watcher switches too, so that it does not
 * wait for an endpoint that serves no requests.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_etcd_json.h"
#include "meta/meta_http_client.h"
#include "meta/meta_kv.h"
#include "meta/tei_meta.h"
#include "util/lock.h"

#define ETCD_PORT      2379
#define ETCD_ENDPOINTS 16
#define ETCD_SMALL     65536 /* limit of the length of short responses, bytes */
#define ETCD_LARGE     (16u << 20)
/* Result of etcd_call: the server no longer has the lease. The value differs
 * from all codes and from META_CONFLICT. */
#define ETCD_NO_LEASE 2

struct etcd {
	/* the following members do not change after open */
	struct meta_http *http;
	char *auth; /* "user:password", or NULL */
	struct etcd_endpoint {
		char url[TEI_META_ENDPOINT_MAX + 16];
		bool beta; /* guarded by lock: the server is an older etcd,
			    * whose paths begin with /v3beta */
	} endpoints[ETCD_ENDPOINTS];
	int count;
	/* row 2 of docs/LOCKING.md; not held while a request to the server is
	 * in progress */
	struct tei_mutex lock;
	int current;	 /* index of the endpoint that calls use */
	char token[512]; /* token of the endpoint, or "" */
	bool no_auth;	 /* the server requires no token */
	uint64_t lease;	 /* ID of the lease, or 0 if there is none */
	bool lease_lost; /* keys of the lease were lost since the last
			  * renewal */
};

/* --- meta_etcd_call.c ---------------------------------------------------- */

/* Parses the connection string conn, and stores the addresses of the etcd
 * servers in the driver's state. Contacts no server. */
int etcd_endpoints(struct meta_kv *kv, const char *conn, struct tei_err *err);

/* A call of the gateway. */
struct etcd_call {
	const char *path;     /* "/kv/range" */
	struct meta_buf body; /* freed by etcd_call */
	size_t limit;	      /* greatest length of the response, bytes */
	uint64_t deadline_ns;
};

/*
 * Makes the call at the current endpoint. If that endpoint does not serve the
 * call, tries the other ones. Sets *out from a response with status 200.
 * Returns 0, an error code, or ETCD_NO_LEASE, which leaves err unchanged.
 */
int etcd_call(struct meta_kv *kv, struct etcd_call *call,
	      struct etcd_response *out, struct tei_err *err);

/* Makes the next endpoint current, if `endpoint` is the current one. */
void etcd_leave(struct etcd *e, int endpoint);
int etcd_current(struct etcd *e);

/* Writes the URL of a path at an endpoint, "ENDPOINT/v3PATH", to out. */
#define ETCD_URL_MAX (TEI_META_ENDPOINT_MAX + 64)
void etcd_url(struct etcd *e, int endpoint, const char *path,
	      char out[ETCD_URL_MAX]);

/*
 * Writes the HTTP header that contains the token to out, or "" if the server
 * needs no token. If a user and a password are set and there is no token yet,
 * requests one from the endpoint. Returns 0, or an error code with the reason
 * in why.
 */
#define ETCD_TOKEN_MAX (512 + 24)
int etcd_token(struct etcd *e, int endpoint, uint64_t deadline_ns,
	       char out[ETCD_TOKEN_MAX], char why[ETCD_MESSAGE]);

/* Discards the token that header contains. Returns false if there is no
 * password with which another token could be requested. */
bool etcd_token_forget(struct etcd *e, const char *header);

/* Returns true if the error or cancellation means that the token is missing or
 * has expired. */
bool etcd_token_refused(const struct etcd_response *r);

/* --- meta_etcd_watch.c --------------------------------------------------- */

void etcd_watch(struct meta_kv *kv);

#endif /* TEI_META_META_ETCD_H */
