/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_META_TEI_META_H
#define TEI_META_TEI_META_H

/*
 * Metadata: segment descriptors and their JSON (tei_meta_desc.h), the store
 * that finds them (tei_meta_store.h), the control channel that serves them
 * (tei_meta_server.h, tei_meta_client.h), names and addresses
 * (tei_meta_name.h), and the cache of open segments (tei_meta_cache.h). This
 * header contains the common declarations.
 *
 * Common rules. Functions that return int return 0 or an enum tei_code. Outputs
 * are written only on success. A function that fails fills err (which may be
 * NULL), sets the thread's last error and logs one line. deadline_ns is an
 * absolute time of tei_now_ns(); blocking calls return by then, with
 * TEI_ERR_SOCKET if it has passed. Strings passed in are copied. A thread that
 * posts or polls for the data plane must not call a function whose comment says
 * that it blocks. All functions are thread-safe unless stated otherwise.
 */

#include "util/err.h"

struct addrinfo;
struct tei_secret;
struct tei_settings;
struct tei_meta_desc;
struct tei_meta_server;
struct tei_meta_store;
struct tei_meta_cache;

#define TEI_META_VERSION	2	/* version of the descriptor format */
#define TEI_META_NAME_MAX	512	/* size of a segment name, terminator
					 * included */
#define TEI_META_HOST_MAX	256	/* size of a host name or address as
					 * text, terminator included */
#define TEI_META_ENDPOINT_MAX	272	/* size of a text "[host]:port",
					 * terminator included */
#define TEI_META_ADDRESS_MAX	256	/* greatest length of a fabric address,
					 * bytes */
#define TEI_META_LOCAL_MAX	256	/* size of a local identity, terminator
					 * included */
#define TEI_META_KEY_MAX	256	/* greatest length of a memory key,
					 * bytes */
#define TEI_META_LOCATION_MAX	4096	/* size of a location, terminator
					 * included */
#define TEI_META_LABEL_MAX	256	/* size of a label, terminator
					 * included */
#define TEI_META_RAILS_MAX	128	/* greatest number of rails in a
					 * descriptor */
#define TEI_META_BUFFERS_MAX	(1u << 20)
#define TEI_META_TEXT_MAX	(64u << 20)	/* greatest length of a
						 * descriptor as JSON text,
						 * bytes */

#endif /* TEI_META_TEI_META_H */
