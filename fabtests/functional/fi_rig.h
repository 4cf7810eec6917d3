/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_FUNCTIONAL_FI_RIG_H
#define TEI_FABTESTS_FUNCTIONAL_FI_RIG_H

/*
 * Two processes with an RDM endpoint each, of any libfabric provider: what
 * moonrail's provider does is done with another one as well, to show that the
 * test asks for no more than any provider gives. One thread each.
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
	bool hasty;			/* closes without waiting for the other */
	int sock;			/* to the other process */
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_cntr *sent, *got;
	struct fid_cntr *counter[2];	/* remote reads, writes; with FI_RMA_EVENT */
	struct fid_ep *ep;
	fi_addr_t peer, self;
	uint8_t *buf;			/* FI_RIG_BUF bytes */
	uint8_t *mem;			/* registered, as many */
	struct fid_mr *mr;
	uint64_t remote, key;		/* the other's mem */
};

typedef void (*fi_rig_fn)(struct fi_rig *rig);

/* FI_MR_… that the processes work with from now on. Programs may set more in
 * what fi_getinfo gave than it asks for; other providers than moonrail get it
 * as a hint. */
extern int fi_rig_mr_mode;

/* FI_ORDER_… that the hints ask for from now on. */
extern uint64_t fi_rig_order;

/*
 * Runs fn in two processes, of which the second is the server, with those
 * capabilities beside what all tests use. False: a check failed, or one of them
 * died. *missing: there is no such provider.
 */
bool fi_rig_run(const char *provider, uint64_t caps, fi_rig_fn fn,
		bool *missing);

/* All checks with a provider: false, where one failed. *missing as above. */
typedef bool (*fi_rig_run_fn)(const char *provider, bool *missing);

/*
 * The end of a main: run with that provider only, or, where it is NULL, with
 * moonrail's and with the first of those below it that is there. The exit code.
 */
int fi_rig_main(const char *only, fi_rig_run_fn run, const char *what);

/*
 * FT_FI_CLIENT and FT_FI_SERVER in the environment: network namespaces of the
 * two processes, each of which then takes all rails that it finds there, or the
 * ones that FT_FI_CLIENT_RAILS and FT_FI_SERVER_RAILS name, by addresses or as
 * devices, also where there are no namespaces.
 */
bool fi_rig_apart(void);

/* Whether the rails are devices that are named, as those of a virtual machine. */
bool fi_rig_emulated(void);

/* FI_PROVIDER_PATH for the provider of this build; false: there is none. */
bool fi_rig_path(void);

/* Waits for the other process to get here too. */
void fi_rig_meet(struct fi_rig *rig);

/* As ft_ok, with the provider and the side before the name. */
bool fi_rig_ok(struct fi_rig *rig, bool cond, const char *name);

/* The next completion, or error completion (then *e has its code). False:
 * neither came in time. */
struct fi_rig_done {
	struct fi_cq_tagged_entry e;
	int err;
	size_t olen;
};
bool fi_rig_next(struct fi_rig *rig, struct fid_cq *cq,
		 struct fi_rig_done *done);

/* Calls that say -FI_EAGAIN are made again: in a loop over this. */
bool fi_rig_again(struct fi_rig *rig, ssize_t ret);

/* Lets the provider go on for a moment. */
void fi_rig_idle(struct fi_rig *rig);

/* Splits what fi_av_straddr gave for a socket address, fi_sockaddr_in://HOST:PORT
 * or fi_sockaddr_in6://[HOST]:PORT. Returns false for any other text. */
bool fi_rig_socket(const char *text, char host[64], char port[16]);

/* Byte i of pattern seed. */
static inline uint8_t fi_rig_byte(uint32_t seed, size_t i)
{
	return (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}
void fi_rig_fill(uint8_t *p, size_t len, uint32_t seed);
bool fi_rig_same(const uint8_t *p, size_t len, uint32_t seed);

#endif /* TEI_FABTESTS_FUNCTIONAL_FI_RIG_H */
