/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_META_ETCD_H
#define TEI_META_META_ETCD_H

/*
 * The etcd driver of meta_kv.h, which uses etcd's JSON gateway. The version of
 * a key is etcd's modification revision. A commit is one transaction that
 * compares these revisions. All leased keys of a process belong to one lease of
 * the server.
 *
 * Endpoints. An endpoint is the address of one etcd server. All calls use the
 * same, current endpoint. A call that fails there makes another endpoint
 * current. The watcher then switches to the new endpoint too, so that it does
 * not wait for a server that does not work.
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
#define ETCD_SMALL     65536 /* limit of the length of a response without
			      * values, bytes */
#define ETCD_LARGE     (16u << 20)
/* Result of etcd_call if the server no longer has the lease. The value differs
 * from all codes of enum tei_code and from META_CONFLICT. */
#define ETCD_NO_LEASE 2

struct etcd {
	/* the following members do not change after open */
	struct meta_http *http;
	char *auth; /* credentials "user:password", or NULL */
	struct etcd_endpoint {
		char url[TEI_META_ENDPOINT_MAX + 16];
		bool beta; /* guarded by lock; true: the server is an older
			    * etcd, whose paths begin with /v3beta */
	} endpoints[ETCD_ENDPOINTS];
	int count;
	/* row 2 of docs/LOCKING.md; not held while a request to the server is
	 * in progress */
	struct tei_mutex lock;
	int current;	 /* index of the endpoint that calls use */
	char token[512]; /* token that authenticates this client, or "" if there
			  * is none */
	bool no_auth;	 /* the server does not require a token */
	uint64_t lease;	 /* ID of the lease, or 0 if there is none */
	bool lease_lost; /* a lease has expired with its keys since the last
			  * renewal */
};

/* --- meta_etcd_call.c ---------------------------------------------------- */

/* Parses the connection string conn, and stores the addresses of the etcd
 * servers in the driver's state. Contacts no server. */
int etcd_endpoints(struct meta_kv *kv, const char *conn, struct tei_err *err);

/* A request to etcd's JSON gateway. */
struct etcd_call {
	const char *path;     /* path without its prefix, such as "/kv/range" */
	struct meta_buf body; /* JSON text of the request; freed by etcd_call */
	size_t limit;	      /* greatest length of the response, bytes */
	uint64_t deadline_ns;
};

/*
 * Sends the request to the current endpoint, and, if that endpoint does not
 * serve it, to the other ones. If the HTTP status of the response is 200, fills
 * *out and returns 0. Otherwise returns an error code, or ETCD_NO_LEASE without
 * filling err.
 */
int etcd_call(struct meta_kv *kv, struct etcd_call *call,
	      struct etcd_response *out, struct tei_err *err);

/* If "endpoint" is the index of the current endpoint, makes the next one
 * current. */
void etcd_leave(struct etcd *e, int endpoint);
int etcd_current(struct etcd *e);

/* Writes the URL of a path at an endpoint, "ENDPOINT/v3PATH", to out. */
#define ETCD_URL_MAX (TEI_META_ENDPOINT_MAX + 64)
void etcd_url(struct etcd *e, int endpoint, const char *path,
	      char out[ETCD_URL_MAX]);

/*
 * Writes the HTTP header line with the token to out, or "" if the server
 * requires no token. If a user and a password are set and there is no token
 * yet, first requests one from the endpoint. Returns 0, or an error code after
 * it has written the reason to why.
 */
#define ETCD_TOKEN_MAX (512 + 24)
int etcd_token(struct etcd *e, int endpoint, uint64_t deadline_ns,
	       char out[ETCD_TOKEN_MAX], char why[ETCD_MESSAGE]);

/* Discards the token if it is the one in the header line "header". Returns
 * false if no other token can be requested, because no password is set. */
bool etcd_token_forget(struct etcd *e, const char *header);

/* Returns true if r is an error or the cancellation of a watch because the
 * token is missing or has expired. */
bool etcd_token_refused(const struct etcd_response *r);

/* --- meta_etcd_watch.c --------------------------------------------------- */

void etcd_watch(struct meta_kv *kv);

#endif /* TEI_META_META_ETCD_H */
