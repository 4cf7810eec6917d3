/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_FABRIC_FAB_H
#define TEI_FABTESTS_SIM_FABRIC_FAB_H

/*
 * Objects of the simulated fabric. All code runs in one thread, so there are no
 * locks. Nothing depends on an address: lists are in the order of creation, and
 * objects are numbered.
 *
 * The files form layers. A file only calls files in its own line or in lines
 * below it. Exceptions are fab_op_end and fab_recv_start, which report to a
 * higher layer.
 *
 *   fab_info, fab_mr, fab_av, fab_cq, fab_eq     libfabric objects
 *   fab_ep, fab_post                             endpoints, operations
 *   fab_handle                                   packets at the target
 *   fab_conn                                     connections
 *   fab_wire                                     packets on the way
 *   fab_net, fab_fault, fab_fd, fab_world        NICs, paths, faults
 */

#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/uio.h>

#include "fabtests/sim/sim.h"
#include "fabtests/sim/sim_net.h"
#include "util/list.h"

#define FAB_IOV	    SIM_NET_IOV
#define FAB_FD_BASE (1 << 24) /* smallest file descriptor of the simulated
			       * world */
#define FAB_API	    FI_VERSION(1, 17)

/* --- NICs and paths (fab_net.c) --- */

/* One NIC. sim_net_begin creates it. */
struct fab_nic {
	struct sim_net_nic at;
	bool up;	  /* the cable is plugged in */
	uint64_t free_ns; /* time at which the NIC has sent its last packet and
			   * can send the next one */
	uint16_t next_port;
	sim_event_id pump;	 /* pending event in which the NIC sends its
				  * next packets, or 0 */
	struct tei_list sending; /* list of fab_side.sending: sides that have
				  * packets to send; they send one packet each,
				  * in turn */
	struct tei_list eps;	 /* list of fab_ep.link: enabled endpoints */
	struct sim_net_fault fault;
	struct sim_rng rng; /* random stream of the paths that begin at this
			     * NIC */
	struct sim_rng fault_rng;
};

/* A path whose state a test or a fault has changed. It exists until
 * sim_net_end. */
struct fab_path {
	struct tei_list link; /* entry of a list in fab_net.paths */
	struct sim_net_nic from, to;
	struct sim_net_path p;
	uint64_t free_ns; /* time at which the last packet has passed the path,
			   * if the path has a bandwidth of its own */
};

#define FAB_PORT  20000 /* first port of endpoints that request no port */
#define FAB_PATHS 256 /* number of hash buckets in fab_net.paths */

/* The network's data of one host. */
struct fab_host {
	bool power;
	int changes_fd; /* file descriptor that reports link changes, or -1 if
			 * none is open */
	bool changed;	/* links have changed, and the process has not read that
			 * yet */
};

struct fab_net {
	struct sim_net_conf conf;
	uint32_t nhosts, nnics;
	struct fab_nic *nics; /* all NICs, indexed by host * nnics + nic */
	struct fab_host *hosts;
	struct tei_list paths[FAB_PATHS];
	uint32_t npaths;	/* number of paths in all lists of `paths` */
	struct tei_list held;	/* list of fab_side.holding: sides of which
				 * packets wait at a blocked path */
	struct tei_list flying; /* list of fab_pkt.link: packets on the way */
	struct tei_list objs;	/* list of fab_obj.link: all libfabric
				 * objects */
	struct tei_list conns;	/* list of fab_conn.link: all connections */
	uint64_t next_ep, next_conn;
	uint64_t next_key;
	struct sim_net_stats stats;
	struct fab_fd *fds; /* table of file descriptors, indexed by fd -
			     * FAB_FD_BASE */
	uint32_t nfds, max_fds;
};

/* The network of the current simulation, or NULL. */
extern struct fab_net *fab_net;

struct fab_nic *fab_nic_get(struct sim_net_nic at);
/* Reads the state of a path. Sets *free_ns to the address of the path's
 * free_ns, or to NULL if the path has no bandwidth of its own. */
void fab_path_find(struct sim_net_nic from, struct sim_net_nic to,
		   struct sim_net_path *p, uint64_t **free_ns);
/* Returns true if packets cannot pass the path now. *stalled is then true if
 * acknowledgements can pass it. */
bool fab_path_blocked(struct sim_net_nic from, struct sim_net_nic to,
		      bool *stalled);
/* Allocates zeroed memory. Ends the program if there is no memory. */
void *fab_alloc(size_t size);

/* --- libfabric objects --- */

enum fab_kind {
	FAB_FABRIC,
	FAB_DOMAIN,
	FAB_EP,
	FAB_MR,
	FAB_CQ,
	FAB_AV,
	FAB_EQ,
	FAB_CNTR,
};

/* The common part of all libfabric objects. The statistics count an object from
 * fab_obj_add to fab_obj_del. */
struct fab_obj {
	struct tei_list link; /* entry of fab_net.objs */
	enum fab_kind kind;
	uint32_t host, life;
	void (*drop)(struct fab_obj *obj); /* frees the object in sim_net_end */
};

void fab_obj_add(struct fab_obj *obj, enum fab_kind kind,
		 void (*drop)(struct fab_obj *obj));
/* Reverses fab_obj_add. Does not free the object. */
void fab_obj_del(struct fab_obj *obj);

struct fab_fabric {
	struct fid_fabric fid;
	struct fab_obj obj;
};

#define FAB_KEYS 256 /* number of hash buckets in fab_domain.keys */
#define FAB_PEERS 256

struct fab_domain {
	struct fid_domain fid;
	struct fab_obj obj;
	struct fab_nic *nic;
	uint32_t nmrs, neps;
	struct tei_list keys[FAB_KEYS]; /* hash table of the domain's
					 * registrations: lists of
					 * fab_mr.link */
};

struct fab_mr {
	struct fid_mr fid;
	struct fab_obj obj;
	struct tei_list link; /* entry of a list in domain->keys */
	struct fab_domain *domain;
	struct fab_ep *ep; /* endpoint to which the registration is bound; used
			    * only if mr_mode has FI_MR_ENDPOINT */
	bool enabled;
	char *base;
	size_t len;
	uint64_t access;
	uint64_t key;
};

/* Returns the registration with the key if it permits the access to the range,
 * otherwise NULL. Sets *at to the local address of the range. */
struct fab_mr *fab_mr_check(struct fab_ep *ep, uint64_t key, uint64_t addr,
			    uint64_t len, uint64_t access, char **at);
/* Returns true if the memory descriptor `desc` permits the access to the local
 * range in this domain. */
bool fab_mr_local(const struct fab_domain *domain, void *desc, const void *addr,
		  size_t len, uint64_t access);
void fab_mr_unbind(struct fab_ep *ep);

/* One entry of a completion queue. */
struct fab_comp {
	struct tei_list link; /* entry of fab_cq.comps or fab_cq.late */
	struct fab_cq *cq;
	sim_event_id due;	  /* event that moves the entry from `late` to
				   * `comps`; 0 if there is none */
	struct fi_cq_err_entry e; /* e.err is 0 if the operation has
				   * succeeded */
};

struct fab_cq {
	struct fid_cq fid;
	struct fab_obj obj;
	enum fi_cq_format format;
	struct tei_list comps;
	struct tei_list late;	/* list of fab_comp.link: delayed completions,
				 * which are moved to `comps` later */
	struct tei_list tx_eps; /* list of fab_ep.in_tx: endpoints that use this
				 * queue for sent operations */
	struct tei_list rx_eps; /* list of fab_ep.in_rx: endpoints that use this
				 * queue for receives, and another one for sent
				 * operations */
	int fd;			/* file descriptor of the queue; -1 if it has
				 * none */
};

/* Adds a copy of the completion to the queue, after delay_ns. */
void fab_cq_add(struct fab_cq *cq, const struct fi_cq_err_entry *e,
		uint64_t delay_ns);
/* Wakes the process if it waits for the queue's file descriptor. */
void fab_cq_notify(struct fab_cq *cq);
/* Returns true if fi_cq_read would return a completion or handle a packet. */
bool fab_cq_ready(const struct fab_cq *cq);
int fab_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		struct fid_cq **out, void *context);
int fab_trywait(struct fid_fabric *fabric, struct fid **fids, int count);

struct fab_eq {
	struct fid_eq fid;
	struct fab_obj obj;
};
int fab_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		struct fid_eq **out, void *context);

struct fab_cntr {
	struct fid_cntr fid;
	struct fab_obj obj;
	uint64_t value, errors;
};
int fab_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
		  struct fid_cntr **out, void *context);

/* The address of an endpoint. A port of 0 means that there is no address. */
struct fab_addr {
	struct sim_net_nic at;
	uint16_t port;
};

struct fab_av {
	struct fid_av fid;
	struct fab_obj obj;
	struct fab_addr *addrs; /* addresses, indexed by fi_addr */
	size_t n, max;
	size_t *free; /* indices of removed addresses, to be used again */
	size_t nfree, max_free;
	struct tei_list eps; /* list of fab_ep.in_av: endpoints that are bound
			      * to this address vector */
};
int fab_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		struct fid_av **out, void *context);
extern struct fi_ops_mr fab_mr_domain_ops;

/* Writes the address to `out`, in the format of the provider. Returns its
 * length, which is at most FAB_ADDR_MAX. */
#define FAB_ADDR_MAX 48
size_t fab_addr_write(const struct fab_addr *a, void *out);
/* Reads an address in the format of the provider. Returns false if this network
 * has no such address. */
bool fab_addr_read(const void *in, size_t len, struct fab_addr *out);
bool fab_addr_same(const struct fab_addr *a, const struct fab_addr *b);

/* --- endpoints --- */

/* A posted receive. */
struct fab_recv {
	struct tei_list link; /* entry of ep->recvs */
	struct iovec iov[FAB_IOV];
	size_t niov, len;
	void *context;
	bool tagged;
	uint64_t tag, ignore;
};

/* A posted operation. */
struct fab_op {
	struct tei_list link; /* entry of side->ops */
	struct fab_ep *ep;
	struct fab_side *side;
	struct fab_msg *msg;
	void *context;
	uint64_t flags; /* flags that the completion has */
	bool quiet;	/* a success is not reported as a completion */
};

/* Ends an operation and frees it. `err` is FI_E*, or 0 for success. If `report`
 * is false, adds no completion; this is the case if the endpoint is being
 * closed. */
void fab_op_end(struct fab_op *op, int err, bool report);

struct fab_ep {
	struct fid_ep fid;
	struct fab_obj obj;
	struct tei_list link; /* entry of nic->eps, if the endpoint is
			       * enabled */
	struct fab_domain *domain;
	struct fab_nic *nic;
	uint64_t id;
	struct fab_addr addr;
	bool enabled, dead;	     /* `dead` means that the endpoint is being
				      * closed or its process was killed */
	uint64_t tx_flags, rx_flags; /* default flags of operations */
	struct fab_cq *tx_cq, *rx_cq;
	struct tei_list in_tx, in_rx; /* entries of tx_cq->tx_eps and
				       * rx_cq->rx_eps */
	struct fab_av *av;
	struct tei_list in_av;	 /* entry of av->eps */
	struct fab_cntr *remote; /* counter of operations of peers that access
				  * this endpoint's memory, or NULL */
	bool tx_selective, rx_selective;
	uint32_t tx_used, rx_used;
	struct tei_list sides;
	uint32_t nparked;	   /* number of packets in the lists
				    * fab_side.parked of all sides */
	struct tei_list *by_peer;  /* hash table with FAB_PEERS lists of
				    * fab_side.by_peer; NULL until there is a
				    * side */
	struct fab_side **by_addr; /* indexed by fi_addr: side of the connection
				    * to that address, or NULL */
	size_t nby_addr;
	struct tei_list recvs;
	struct tei_list unexpected; /* list of fab_msg.waiting: unexpected
				     * messages */
	uint32_t nunexpected;
	struct tei_list inbox; /* list of fab_pkt.link: packets that have
				* arrived */
	int fd;		       /* file descriptor of the listening socket, or -1
				* if none was requested yet */
};

int fab_ep_open(struct fid_domain *domain, struct fi_info *info,
		struct fid_ep **out, void *context);
/* Returns the enabled endpoint with the address, or NULL. */
struct fab_ep *fab_ep_at(const struct fab_addr *a);
/* Wakes the process if it waits for a completion queue of the endpoint. */
void fab_ep_notify(struct fab_ep *ep);
/* Ends the connections and receives of the endpoint, without completions. If
 * `inform` is true, informs the peers. */
void fab_ep_stop(struct fab_ep *ep, bool inform);
/* fab_ep_remember sets the entry of an fi_addr in by_addr to a side.
 * fab_ep_forget_addr clears the entry of an fi_addr. fab_ep_forget clears all
 * entries that point to a side. */
void fab_ep_remember(struct fab_ep *ep, fi_addr_t addr, struct fab_side *s);
void fab_ep_forget_addr(struct fab_ep *ep, fi_addr_t addr);
void fab_ep_forget(struct fab_ep *ep, struct fab_side *s);

extern struct fi_ops_msg fab_msg_ops;
extern struct fi_ops_rma fab_rma_ops;
extern struct fi_ops_tagged fab_tagged_ops;

/* --- the provider --- */

/* Returns the provider "sim". libsim-fi.so returns it from fi_prov_ini. */
__attribute__((visibility("default"))) struct fi_provider *
sim_fabric_provider(void);
int fab_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **out);
int fab_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **out, void *context);

/* --- file descriptors (fab_fd.c) --- */

enum fab_fd_kind {
	FAB_FD_NONE,
	FAB_FD_CQ,
	FAB_FD_LISTEN,
	FAB_FD_CONN,
	FAB_FD_CHANGES,
	FAB_FD_DUP
};

struct fab_fd {
	enum fab_fd_kind kind;
	void *of;	       /* object of the file descriptor: fab_cq, fab_ep,
				* fab_side or fab_host */
	int dup;	       /* FAB_FD_DUP: the file descriptor that this one
				* duplicates */
	void (*fn)(void *arg); /* function that sim_net_fd_notify has set, or
				* NULL */
	void *arg;
};

int fab_fd_new(enum fab_fd_kind kind, void *of);
void fab_fd_close(int fd);
/* Returns the entry of a file descriptor. If it is a duplicate, returns the
 * entry of the original. Returns NULL if the file descriptor is not open. */
struct fab_fd *fab_fd_get(int fd);
/* Called when the file descriptor has become readable: makes the call that
 * sim_net_fd_notify has requested, if any. */
void fab_fd_fire(int fd);

#endif /* TEI_FABTESTS_SIM_FABRIC_FAB_H */
