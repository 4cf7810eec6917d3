/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FI_RIG_H
#define TEI_FABTESTS_FUNCTIONAL_FI_RIG_H

/*
 * Two processes with one RDM endpoint each, of any libfabric provider. Each
 * process has one thread. Checks of moonrail's provider also run with another
 * provider. That shows that they require only what other providers offer, too.
 */

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabtests/common/ft_test.h"

#define FI_RIG_BUF	(4u << 20)
/* time limit of steps that normally end soon, ms; longer on a loaded machine */
#define FI_RIG_WAIT_MS	(fi_rig_emulated() ? 60000 : 20000 * (int)ft_load())

struct fi_rig {
	const char *provider;
	bool server;
	bool hasty;			/* true: closes its objects without
					 * waiting for the other process */
	int sock;			/* socket to the other process */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_cntr *sent, *got;
	/* counters of remote reads and remote writes; exist only with
	 * FI_RMA_EVENT */
	struct fid_cntr *counter[2];
	struct fid_ep *ep;
	fi_addr_t peer, self;
	uint8_t *buf;			/* source or destination of FI_RIG_BUF
					 * bytes */
	uint8_t *mem;			/* registered memory of FI_RIG_BUF bytes
					 * for RMA */
	struct fid_mr *mr;
	uint64_t remote, key;		/* address and key of `mem` in the other
					 * process */
};

typedef void (*fi_rig_fn)(struct fi_rig *rig);

/* FI_MR_… modes that the following runs set. A run with moonrail sets them in
 * the result of fi_getinfo, as a program may do. For other providers, the modes
 * are part of the hints. */
extern int fi_rig_mr_mode;

/* FI_ORDER_… flags in the hints of the following runs */
extern uint64_t fi_rig_order;

/*
 * Runs fn in two processes, a client and a server. `caps` are capabilities that
 * the test requests in addition to those of all tests. Returns false if a check
 * failed or a process died. Sets *missing to true if the provider does not
 * exist.
 */
bool fi_rig_run(const char *provider, uint64_t caps, fi_rig_fn fn,
		bool *missing);

/* Runs all checks of a test with one provider. Returns false if a check failed.
 * Sets *missing to true if the provider does not exist. */
typedef bool (*fi_rig_run_fn)(const char *provider, bool *missing);

/*
 * Calls run with the provider "only". If that is NULL, calls it with moonrail,
 * and then with the first of moonrail's lower providers that exists. "what" is
 * the name of the check that reports the result. Returns the exit code for
 * main.
 */
int fi_rig_main(const char *only, fi_rig_run_fn run, const char *what);

/*
 * Returns true if the environment gives each of the two processes its own
 * rails. FT_FI_CLIENT and FT_FI_SERVER are the names of network namespaces;
 * each process uses all rails of its namespace. FT_FI_CLIENT_RAILS and
 * FT_FI_SERVER_RAILS are the rails to use, as addresses or devices, and may be
 * set with or without namespaces.
 */
bool fi_rig_apart(void);

/* Returns true if the rails are named devices, as in a virtual machine. */
bool fi_rig_emulated(void);

/* Sets FI_PROVIDER_PATH to the folder with the provider of this build. Returns
 * false if there is none. */
bool fi_rig_path(void);
/* Does the same as fi_rig_path, and reduces the receive buffers of tcp
 * endpoints. */
bool fi_rig_path_for_test(void);

/* Waits until the other process calls fi_rig_meet, too. */
void fi_rig_meet(struct fi_rig *rig);

/* Reports a check like ft_ok. The reported name starts with the provider and
 * "client" or "server". */
bool fi_rig_ok(struct fi_rig *rig, bool cond, const char *name);

/* Waits for the next completion or error completion of cq. Only an error
 * completion sets done->err. Returns false if neither arrives in
 * FI_RIG_WAIT_MS. */
struct fi_rig_done {
	struct fi_cq_tagged_entry e;
	int err;
	size_t olen;
};
bool fi_rig_next(struct fi_rig *rig, struct fid_cq *cq,
		 struct fi_rig_done *done);

/* Returns true if `ret`, the result of a call, is -FI_EAGAIN, so that the call
 * must be repeated. Makes progress before it returns. */
bool fi_rig_again(struct fi_rig *rig, ssize_t ret);

/* Makes progress at the provider, then sleeps for 0.1 ms. */
void fi_rig_idle(struct fi_rig *rig);

/* Splits the result of fi_av_straddr, fi_sockaddr_in://HOST:PORT or
 * fi_sockaddr_in6://[HOST]:PORT. Returns false for any other text. */
bool fi_rig_socket(const char *text, char host[64], char port[16]);

/* Returns byte i of the pattern with the number `seed`. */
static inline uint8_t fi_rig_byte(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}
void fi_rig_fill(uint8_t *p, size_t len, uint32_t seed);
bool fi_rig_same(const uint8_t *p, size_t len, uint32_t seed);

#endif /* TEI_FABTESTS_FUNCTIONAL_FI_RIG_H */
