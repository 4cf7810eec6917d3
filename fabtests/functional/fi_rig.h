/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FI_RIG_H
#define TEI_FABTESTS_FUNCTIONAL_FI_RIG_H

/*
 * Two processes with one RDM endpoint each, of any libfabric provider. The
 * checks of moonrail's provider also run with another provider, to show that
 * they require nothing that other providers do not offer. Each process has one
 * thread.
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

#define FI_RIG_BUF	(4u << 20)
#define FI_RIG_WAIT_MS	(fi_rig_emulated() ? 60000 : 20000)

struct fi_rig {
	const char *provider;
	bool server;
	bool hasty;			/* closes without waiting for the
					 * peer */
	int sock;			/* connected with the other process */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_cntr *sent, *got;
	struct fid_cntr *counter[2];	/* remote reads, writes; with
					 * FI_RMA_EVENT */
	struct fid_ep *ep;
	fi_addr_t peer, self;
	uint8_t *buf;			/* FI_RIG_BUF bytes */
	uint8_t *mem;			/* FI_RIG_BUF bytes, registered */
	struct fid_mr *mr;
	uint64_t remote, key;		/* address and key of the other
					 * process's mem */
};

typedef void (*fi_rig_fn)(struct fi_rig *rig);

/* FI_MR_… modes of the following runs. A program may set more modes in the
 * result of fi_getinfo than it requested; providers other than moonrail get the
 * modes as hints. */
extern int fi_rig_mr_mode;

/* FI_ORDER_… flags of the hints of the following runs. */
extern uint64_t fi_rig_order;

/*
 * Runs fn in two processes, the second of which is the server, with those
 * capabilities in addition to the ones that all tests use. Returns false if a
 * check failed or a process died. *missing: the provider does not exist.
 */
bool fi_rig_run(const char *provider, uint64_t caps, fi_rig_fn fn,
		bool *missing);

/* Runs all checks with a provider. Returns false if one failed; *missing as
 * above. */
typedef bool (*fi_rig_run_fn)(const char *provider, bool *missing);

/*
 * Ends a main: calls run with the provider only; if that is NULL, with
 * moonrail's provider and with the first existing provider below it. Returns
 * the exit code.
 */
int fi_rig_main(const char *only, fi_rig_run_fn run, const char *what);

/*
 * Returns true if the environment gives each of the two processes rails of its
 * own. FT_FI_CLIENT and FT_FI_SERVER name their network namespaces, of which
 * each process uses all rails. FT_FI_CLIENT_RAILS and FT_FI_SERVER_RAILS name
 * the rails to use, as addresses or devices, with or without namespaces.
 */
bool fi_rig_apart(void);

/* Returns true if the rails are named devices, as in a virtual machine. */
bool fi_rig_emulated(void);

/* Sets FI_PROVIDER_PATH to the provider of this build. Returns false if there
 * is none. */
bool fi_rig_path(void);
/* Does the same for a test, and reduces the receive buffers of tcp endpoints. */
bool fi_rig_path_for_test(void);

/* Waits until the other process calls it, too. */
void fi_rig_meet(struct fi_rig *rig);

/* Reports a check as ft_ok does, with provider and side before the name. */
bool fi_rig_ok(struct fi_rig *rig, bool cond, const char *name);

/* Waits for the next completion or error completion; the latter sets err.
 * Returns false if there is none in time. */
struct fi_rig_done {
	struct fi_cq_tagged_entry e;
	int err;
	size_t olen;
};
bool fi_rig_next(struct fi_rig *rig, struct fid_cq *cq,
		 struct fi_rig_done *done);

/* Returns true if a call that returned -FI_EAGAIN must be made again. */
bool fi_rig_again(struct fi_rig *rig, ssize_t ret);

/* Drives the provider's progress for a moment. */
void fi_rig_idle(struct fi_rig *rig);

/* Splits fi_sockaddr_in://HOST:PORT or fi_sockaddr_in6://[HOST]:PORT, as
 * fi_av_straddr returns it. Returns false for any other text. */
bool fi_rig_socket(const char *text, char host[64], char port[16]);

/* Returns byte i of pattern seed. */
static inline uint8_t fi_rig_byte(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}
void fi_rig_fill(uint8_t *p, size_t len, uint32_t seed);
bool fi_rig_same(const uint8_t *p, size_t len, uint32_t seed);

#endif /* TEI_FABTESTS_FUNCTIONAL_FI_RIG_H */
