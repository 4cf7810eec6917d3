/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_TOOLS_TE_META_SERVE_H
#define TEI_TOOLS_TE_META_SERVE_H

/*
 * te_meta serve: an HTTP server of keys and values with Mooncake's protocol
 * and, unless --plain is given, additional requests for this library. The
 * protocol is described in docs/PROTOCOL.md.
 *
 * One thread runs the server and owns all structs. A connection whose request
 * cannot be answered yet is suspended: it waits for a change of a key, or for a
 * probe thread, which tests whether the owner of a name is alive. A probe
 * thread uses only its struct probe and the pipe.
 */

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "meta/meta_json.h"
#include "meta/tei_meta.h"
#include "tools/te_meta.h"
#include "tools/te_meta_table.h"
#include "util/clock.h"
#include "util/list.h"

#define SERVE_KEY_MAX	   2048	 /* longest key, bytes */
#define SERVE_CHANGES_MAX  64	 /* largest number of keys in one commit */
#define SERVE_PAGE_MAX	   10000 /* largest number of keys in one answer */
#define SERVE_WAIT_MAX_MS  30000 /* longest time for which a watch waits, ms */
#define SERVE_LEASE_MIN_MS 100
#define SERVE_LEASE_MAX_MS 3600000
#define SERVE_PROBES_MAX   16 /* largest number of probe threads at a time */
/* Interval between two runs of the periodic duties. */
#define SERVE_TICK_NS (250 * TEI_NS_PER_MS)

struct serve {
	const struct meta_opts *opts;
	struct table *table;
	struct MHD_Daemon *daemon;
	int listener, signals; /* file descriptors of the listening socket and
				* of the signals */
	int answers[2];	       /* a pipe; each probe thread writes a pointer to
				* its struct probe to it before it ends */
	uint64_t bodies;       /* size of all request bodies in memory, bytes */
	uint64_t tick_ns;      /* time at which the periodic duties last ran */
	unsigned int probes;   /* number of probe threads that are running */
	bool stopping;
	struct tei_list sockets; /* all connections, linked by
				  * serve_socket.link */
	size_t socket_count, max_sockets;
	struct tei_list watches; /* the suspended watches, linked by
				  * serve_request.link */
};

/* A connection of a client. */
struct serve_socket {
	struct tei_list link;
	int fd;
	uint64_t since_ns;		/* time of the last answer; before the
					 * first one, time at which the
					 * connection began */
	bool suspended;
};

/* A request of a client. It is created when its header has arrived, and freed
 * when its answer has been sent. */
struct serve_request {
	struct serve *serve;
	struct MHD_Connection *conn;
	struct serve_socket *socket;
	char *body;
	size_t len, room;
	unsigned int refused; /* 0, or the HTTP status with which the request is
			       * refused because its body is above a limit */
	char key[SERVE_KEY_MAX + 1];
	/* used by a PUT that waits for a probe thread */
	bool probed, owner_alive;
	int64_t owner_version;
	/* used by a watch, which is in serve->watches */
	struct tei_list link;
	bool watching;
	int64_t since;
	uint64_t until_ns;
	size_t limit; /* largest number of keys in the answer to the watch */
};

/* te_meta_request.c: answers a request. arg: the struct serve. The other
 * parameters are those of libmicrohttpd's access handler. */
enum MHD_Result serve_request(void *arg, struct MHD_Connection *conn,
			      const char *url, const char *method,
			      const char *version, const char *data,
			      size_t *len, void **request);
void serve_request_end(void *arg, struct MHD_Connection *conn, void **request,
		       enum MHD_RequestTerminationCode code);
/* Answers the request with a constant text. */
enum MHD_Result serve_answer(struct serve_request *r, unsigned int status,
			     const char *text);
/* Answers the request with a text, which this function frees. */
enum MHD_Result serve_answer_text(struct serve_request *r, unsigned int status,
				  char *text, size_t len);
/* serve_suspend suspends the connection of the request, and serve_resume
 * resumes it. A resumed request is handled again. */
void serve_suspend(struct serve_request *r);
void serve_resume(struct serve_request *r);
/* Returns the value of a parameter of the URL, or NULL if the URL does not have
 * it. */
const char *serve_argument(const struct serve_request *r, const char *name);
/* Copies the text, without white space at its ends, to *out. Returns the reason
 * why the text is not a valid key, or NULL if it is valid. */
const char *serve_key(const char *text, size_t len,
		      char out[SERVE_KEY_MAX + 1]);

/* te_meta_extend.c: answers the requests that Mooncake's protocol does not
 * have. */
enum MHD_Result serve_commit(struct serve_request *r);
enum MHD_Result serve_renew(struct serve_request *r);
/* Answers a listing, or a watch that has something to report. Otherwise
 * suspends the connection. */
enum MHD_Result serve_watch(struct serve_request *r, const char *prefix);
/* Resumes the watches that can be answered now. */
void serve_watches_run(struct serve *s);

/* te_meta_probe.c: tests whether the owner of a name is alive. */
/* Suspends the request and tests in a probe thread whether the owner of a name
 * is alive: the address in its record of rpc_meta must accept a TCP connection.
 * Returns false if no test was started, because the record names no address or
 * because no thread is available. r->owner_alive is then true if the owner must
 * be taken to be alive. */
bool serve_probe(struct serve_request *r, const struct table_key *record);
/* Resumes the requests whose tests have ended. */
void serve_probes_run(struct serve *s);

#endif /* TEI_TOOLS_TE_META_SERVE_H */
