/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_FABRIC_FAB_H
#define TEI_FABTESTS_SIM_FABRIC_FAB_H

/*
 * Objects of the simulated fabric. Everything runs in one thread, so there are
 * no locks. Nothing depends on an address: lists are in the order of creation,
 * and objects are numbered.
 *
 * Layers, each file calls those below it only, except for the functions that
 * report upward (fab_op_end, fab_recv_start):
 *
 *   fab_info  fab_domain  fab_mr  fab_av  fab_cq  fab_eq	libfabric
 * objects fab_ep  fab_post					endpoints,
 * operations
 *   fab_handle						packets at the target
 *   fab_conn						connections
 *   fab_wire						packets on the way
 *   fab_net  fab_fault  fab_fd  fab_world			NICs, paths,
 * faults
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
#define FAB_FD_BASE (1 << 24) /* smallest descriptor */
#define FAB_API	    FI_VERSION(1, 17)

/* --- NICs and paths (fab_net.c) --------------------------------------------
 */

/* One NIC. Made by sim_net_begin. */
struct fab_nic {
	struct sim_net_nic at;
	bool up;	  /* has a cable */
	uint64_t free_ns; /* when the last packet has left */
	uint16_t next_port;
	sim_event_id pump;	 /* pending event of fab_wire_pump */
	struct tei_list sending; /* fab_side.sending: sides with packets to
				  * send, in turn */
	struct tei_list eps;	 /* fab_ep.link: enabled endpoints */
	struct sim_net_fault fault;
	struct sim_rng rng; /* for the paths that begin here */
	struct sim_rng fault_rng;
};

/* A path that was changed. Lives until sim_net_end. */
struct fab_path {
	struct tei_list link; /* in fab_net.paths[] */
	struct sim_net_nic from, to;
	struct sim_net_path p;
	uint64_t free_ns; /* when its last packet has passed */
};

#define FAB_PATHS 256 /* buckets */

/* One host's view of the network. */
struct fab_host {
	bool power;
	int changes_fd; /* fab_fd of link changes, -1: none */
	bool changed;	/* a report is unread */
};

struct fab_net {
	struct sim_net_conf conf;
	uint32_t nhosts, nnics;
	struct fab_nic *nics; /* [host * nnics + nic] */
	struct fab_host *hosts;
	struct tei_list paths[FAB_PATHS];
	uint32_t npaths;	/* in paths */
	struct tei_list held;	/* fab_side.holding: sides whose packets
				 * wait for a path */
	struct tei_list flying; /* fab_pkt.link: packets on the way */
	struct tei_list objs;	/* fab_obj.link: all libfabric objects */
	struct tei_list conns;	/* fab_conn.link */
	uint64_t next_ep, next_conn;
	uint64_t next_key;
	struct sim_net_stats stats;
	struct fab_fd *fds; /* [fd - FAB_FD_BASE] */
	uint32_t nfds, max_fds;
};

/* The network, NULL: none. */
extern struct fab_net *fab_net;

struct fab_nic *fab_nic_get(struct sim_net_nic at);
/* Returns the state of a path. *free_ns: end of the path's last packet, NULL if
 * the path has no bandwidth of its own. */
void fab_path_find(struct sim_net_nic from, struct sim_net_nic to,
		   struct sim_net_path *p, uint64_t **free_ns);
/* Returns true if no packet passes now; *stalled: acknowledgements do. */
bool fab_path_blocked(struct sim_net_nic from, struct sim_net_nic to,
		      bool *stalled);
/* Allocates zeroed memory; ends the program if there is none. */
void *fab_alloc(size_t size);

/* --- libfabric objects -----------------------------------------------------
 */

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

/* The head of every object. Counted until it is closed. */
struct fab_obj {
	struct tei_list link; /* in fab_net.objs */
	enum fab_kind kind;
	uint32_t host, life;
	void (*drop)(struct fab_obj *obj); /* frees it in sim_net_end */
};

void fab_obj_add(struct fab_obj *obj, enum fab_kind kind,
		 void (*drop)(struct fab_obj *obj));
/* Undoes fab_obj_add. Does not free. */
void fab_obj_del(struct fab_obj *obj);

struct fab_fabric {
	struct fid_fabric fid;
	struct fab_obj obj;
};

#define FAB_KEYS 256 /* buckets */
#define FAB_PEERS 256

struct fab_domain {
	struct fid_domain fid;
	struct fab_obj obj;
	struct fab_nic *nic;
	uint32_t nmrs, neps;
	struct tei_list keys[FAB_KEYS]; /* fab_mr.link */
};

struct fab_mr {
	struct fid_mr fid;
	struct fab_obj obj;
	struct tei_list link; /* in domain->keys */
	struct fab_domain *domain;
	struct fab_ep *ep; /* FI_MR_ENDPOINT: bound to it */
	bool enabled;
	char *base;
	size_t len;
	uint64_t access;
	uint64_t key;
};

/* Returns the registration of a key if it may be used for the range, else NULL.
 * *at: the address of the range. */
struct fab_mr *fab_mr_check(struct fab_ep *ep, uint64_t key, uint64_t addr,
			    uint64_t len, uint64_t access, char **at);
/* Returns true if desc may be used for local memory in this domain. */
bool fab_mr_local(const struct fab_domain *domain, void *desc, const void *addr,
		  size_t len, uint64_t access);
void fab_mr_unbind(struct fab_ep *ep);

/* One entry of a completion queue. */
struct fab_comp {
	struct tei_list link; /* in fab_cq.comps or .late */
	struct fab_cq *cq;
	sim_event_id due;	  /* in late: when it is added */
	struct fi_cq_err_entry e; /* e.err 0: a success */
};

struct fab_cq {
	struct fid_cq fid;
	struct fab_obj obj;
	enum fi_cq_format format;
	struct tei_list comps;
	struct tei_list late;	/* fab_comp.link: to be added later */
	struct tei_list tx_eps; /* fab_ep.in_tx */
	struct tei_list rx_eps; /* fab_ep.in_rx, if another queue is bound
				 * for sending */
	int fd;			/* -1: no descriptor */
};

/* Adds a completion after delay_ns; takes a copy. */
void fab_cq_add(struct fab_cq *cq, const struct fi_cq_err_entry *e,
		uint64_t delay_ns);
/* Informs the process that the queue is ready. */
void fab_cq_notify(struct fab_cq *cq);
/* Returns true if fi_cq_read would return something or make progress. */
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

/* The address of an endpoint. port 0: none. */
struct fab_addr {
	struct sim_net_nic at;
	uint16_t port;
};

struct fab_av {
	struct fid_av fid;
	struct fab_obj obj;
	struct fab_addr *addrs; /* [fi_addr] */
	size_t n, max;
	size_t *free; /* indices of removed addresses */
	size_t nfree, max_free;
	struct tei_list eps; /* fab_ep.in_av */
};
int fab_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		struct fid_av **out, void *context);
extern struct fi_ops_mr fab_mr_domain_ops;

/* Writes the address in the provider's format. Returns the length, at most
 * FAB_ADDR_MAX. */
#define FAB_ADDR_MAX 48
size_t fab_addr_write(const struct fab_addr *a, void *out);
/* Reads an address. Returns false if it is none of this network. */
bool fab_addr_read(const void *in, size_t len, struct fab_addr *out);
bool fab_addr_same(const struct fab_addr *a, const struct fab_addr *b);

/* --- messages, packets -----------------------------------------------------
 */

enum fab_msg_kind {
	FAB_SEND,
	FAB_WRITE,
	FAB_READ,  /* of an operation */
	FAB_BYTES, /* answer to FAB_READ */
	FAB_ACK,   /* the end of an operation at its target */
};

/*
 * A message. The sender's side and the target's side use the same object; each
 * packet on the way, the sender's queue and the operation have a reference.
 */
struct fab_msg {
	struct tei_list link; /* in fab_side.queue */
	uint32_t refs;
	enum fab_msg_kind kind;
	uint64_t number; /* of the connection */
	uint64_t len;
	/* at the sender */
	uint64_t sent;
	bool sent_all;
	struct iovec iov[FAB_IOV]; /* the bytes; FAB_READ: their target */
	size_t niov;
	char *copy;	    /* of injected bytes, or NULL */
	struct fab_op *op;  /* NULL: ended */
	bool acked;	    /* the target sends FAB_ACK */
	struct fab_msg *of; /* FAB_BYTES, FAB_ACK: the operation's */
	int status;	    /* FAB_ACK: -FI_E* or 0 */
	/* in the header */
	struct fi_rma_iov rma[FAB_IOV];
	size_t nrma;
	bool tagged;
	uint64_t tag;
	bool has_data;
	uint64_t data;
	/* at the target */
	uint64_t landed;
	bool started;
	int refused;		 /* error of the target, or 0 */
	char *at[FAB_IOV];	 /* addresses of rma */
	struct tei_list coming;	 /* FAB_SEND: in fab_side.receiving */
	struct fab_recv *recv;	 /* FAB_SEND: where the bytes go */
	char *held;		 /* FAB_SEND: bytes without a receive */
	struct tei_list waiting; /* FAB_SEND: in fab_ep.unexpected */
	struct fab_side *side;	 /* FAB_SEND: the receiving side, NULL: it
				  * is closed */
};

void fab_msg_put(struct fab_msg *m);

enum fab_pkt_kind {
	FAB_P_CONNECT,
	FAB_P_ACCEPT,
	FAB_P_REFUSE,
	FAB_P_MSG,
	FAB_P_END, /* the sender has closed its side */
	FAB_P_CUT, /* this side was shut down locally */
};

struct fab_pkt {
	struct tei_list link; /* fab_ep.inbox, fab_side.held, .parked */
	struct fab_conn *conn;
	int to; /* index of the target's side */
	enum fab_pkt_kind kind;
	int status; /* FAB_P_REFUSE, FAB_P_END: error */
	struct fab_msg *msg;
	uint64_t off;
	uint32_t len;
	char data[];
};

struct fab_pkt *fab_pkt_new(struct fab_conn *conn, int to,
			    enum fab_pkt_kind kind, uint32_t len);
void fab_pkt_free(struct fab_pkt *p);

/* --- connections -----------------------------------------------------------
 */

enum fab_side_state {
	FAB_SIDE_NONE, /* not yet known to this endpoint */
	FAB_SIDE_CONNECTING,
	FAB_SIDE_UP,
	FAB_SIDE_CLOSED,
};

/* One end of a connection. */
struct fab_side {
	struct fab_conn *conn;
	int index;
	enum fab_side_state state;
	struct fab_ep *ep;    /* NULL if NONE or CLOSED */
	struct tei_list link; /* in ep->sides */
	struct tei_list by_peer; /* in ep->by_peer[] */
	uint32_t naddrs;	 /* entries of ep->by_addr */
	fi_addr_t addr;		 /* the last one of them */
	bool shut;	      /* cut locally; closes when FAB_P_CUT is
			       * handled */
	/* as the sender */
	struct tei_list queue;	 /* fab_msg.link: to be sent */
	struct tei_list ops;	 /* fab_op.link: in the order of posting */
	struct tei_list sending; /* in nic->sending */
	uint64_t flight;	 /* bytes sent and not handled */
	uint64_t on_wire;	 /* packets sent that have not arrived */
	uint64_t arrive_ns;	 /* latest arrival so far */
	uint64_t floor_ns;	 /* arrival of the last packet that is not
				  * part of a message */
	struct tei_list held;	 /* fab_pkt.link: at a blocked path */
	struct tei_list holding; /* in fab_net.held */
	uint64_t held_ns;	 /* since when */
	sim_event_id retry;	 /* gives up */
	uint64_t next_msg;
	/* as the receiver */
	struct tei_list parked;	   /* fab_pkt.link: no receive is posted */
	struct tei_list receiving; /* fab_msg.coming: not all has landed, or
				    * no receive is posted */
	/* for fab_world.c */
	int fd; /* -1: not requested yet */
	uint64_t acked_bytes, received_bytes;
	uint64_t sent_ns, recv_ns, ack_ns; /* last data sent, data received,
					    * acknowledgement received */
};

/* References: one per side that is not CLOSED, one per packet and per event. */
struct fab_conn {
	struct tei_list link; /* in fab_net.conns */
	uint64_t id;
	uint32_t refs;
	struct fab_addr addr[2]; /* of the endpoints; 0: the initiator's */
	uint16_t ephemeral;	 /* the initiator's port of this socket */
	struct fab_side side[2];
	sim_event_id attempt; /* the attempt to connect fails */
	bool reset[2];	      /* a reset to that side is on its way */
};

void fab_conn_put(struct fab_conn *c);
/* Returns the endpoint's side of a connection to the address, or NULL. */
struct fab_side *fab_conn_find(const struct fab_ep *ep,
			       const struct fab_addr *to);
/* Starts to connect. Returns the endpoint's side. */
struct fab_side *fab_conn_start(struct fab_ep *ep, const struct fab_addr *to);
/* Handles CONNECT, ACCEPT, REFUSE, END and CUT. */
void fab_conn_handle(struct fab_pkt *p);
/* Informs a side that its peer does not know the connection. */
void fab_conn_reset(struct fab_conn *c, int to);
/* Closes a side: ends its operations with the error and informs the peer.
 * err 0: ends them without completions. */
void fab_side_close(struct fab_side *s, int err, bool inform);
/* Closes a side when the packets have been handled that have arrived. */
void fab_side_shut(struct fab_side *s);
/* The error for operations of a connection that breaks. */
int fab_conn_error(void);

/* --- packets on the way (fab_wire.c) ----------------------------------------
 */

/* The side has messages to send. */
void fab_wire_want(struct fab_side *s);
/* Sends a packet without a message, out of order with the queue. */
void fab_wire_send(struct fab_pkt *p);
/* Sends the held packets of paths that are no longer blocked. */
void fab_wire_release(void);
/* The side has closed: its held packets wait for conf.linger_ns. */
void fab_wire_linger(struct fab_side *s);
/* Drops the held packets of a side. */
void fab_wire_drop(struct fab_side *s);
/* Handles packets that have arrived at the endpoint. */
void fab_wire_progress(struct fab_ep *ep);
/* Drops the packets of the endpoint's inbox. */
void fab_wire_clear(struct fab_ep *ep);
/* A packet was handled or dropped. Frees it. */
void fab_wire_done(struct fab_pkt *p);
/* Frees all packets, in sim_net_end. */
void fab_wire_end(void);

/* --- at the target (fab_handle.c) -------------------------------------------
 */

/* Handles a packet of a message; frees it, or parks it. */
void fab_handle(struct fab_side *s, struct fab_pkt *p);
/* A receive was posted: handles unexpected messages and parked packets. */
void fab_recv_start(struct fab_ep *ep);
/* Ends a receive with an error. */
void fab_recv_fail(struct fab_ep *ep, struct fab_recv *r, int err);

/* --- endpoints --------------------------------------------------------------
 */

/* A posted receive. */
struct fab_recv {
	struct tei_list link; /* in ep->recvs */
	struct iovec iov[FAB_IOV];
	size_t niov, len;
	void *context;
	bool tagged;
	uint64_t tag, ignore;
};

/* A posted operation. */
struct fab_op {
	struct tei_list link; /* in side->ops */
	struct fab_ep *ep;
	struct fab_side *side;
	struct fab_msg *msg;
	void *context;
	uint64_t flags; /* of the completion */
	bool quiet;	/* no completion on success */
};

/* Ends an operation and frees it. err: FI_E*, 0: success. report: false if its
 * endpoint is being closed. */
void fab_op_end(struct fab_op *op, int err, bool report);

struct fab_ep {
	struct fid_ep fid;
	struct fab_obj obj;
	struct tei_list link; /* in nic->eps if enabled */
	struct fab_domain *domain;
	struct fab_nic *nic;
	uint64_t id;
	struct fab_addr addr;
	bool enabled, dead;	     /* dead: its process was killed */
	uint64_t tx_flags, rx_flags; /* default flags of operations */
	struct fab_cq *tx_cq, *rx_cq;
	struct tei_list in_tx, in_rx; /* in tx_cq->tx_eps, rx_cq->rx_eps */
	struct fab_av *av;
	struct tei_list in_av;	 /* in av->eps */
	struct fab_cntr *remote; /* counts operations of peers */
	bool tx_selective, rx_selective;
	uint32_t tx_used, rx_used;
	struct tei_list sides;
	struct tei_list *by_peer;  /* [FAB_PEERS], fab_side.by_peer; NULL: no
				    * side yet */
	struct fab_side **by_addr; /* [fi_addr] */
	size_t nby_addr;
	struct tei_list recvs;
	struct tei_list unexpected; /* fab_msg.waiting */
	uint32_t nunexpected;
	struct tei_list inbox; /* fab_pkt.link */
	int fd;		       /* listening socket, -1: not requested */
};

int fab_ep_open(struct fid_domain *domain, struct fi_info *info,
		struct fid_ep **out, void *context);
/* Returns the enabled endpoint of an address, or NULL. */
struct fab_ep *fab_ep_at(const struct fab_addr *a);
/* Informs the process that packets have arrived. */
void fab_ep_notify(struct fab_ep *ep);
/* Ends the connections and receives of the endpoint, without completions. */
void fab_ep_stop(struct fab_ep *ep, bool inform);
/* Enter the side of an fi_addr, remove it, and remove all those of a side. */
void fab_ep_remember(struct fab_ep *ep, fi_addr_t addr, struct fab_side *s);
void fab_ep_forget_addr(struct fab_ep *ep, fi_addr_t addr);
void fab_ep_forget(struct fab_ep *ep, struct fab_side *s);

extern struct fi_ops_msg fab_msg_ops;
extern struct fi_ops_rma fab_rma_ops;
extern struct fi_ops_tagged fab_tagged_ops;

/* --- the provider -----------------------------------------------------------
 */

/* Returns the provider "sim". libsim-fi.so returns it from fi_prov_ini. */
__attribute__((visibility("default"))) struct fi_provider *
sim_fabric_provider(void);
int fab_getinfo(uint32_t version, const char *node, const char *service,
		uint64_t flags, const struct fi_info *hints,
		struct fi_info **out);
int fab_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **out, void *context);

/* --- descriptors (fab_fd.c) ---------------------------------------------- */

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
	void *of;	       /* the cq, ep, side or host */
	int dup;	       /* FAB_FD_DUP: the other descriptor */
	void (*fn)(void *arg); /* sim_net_fd_notify */
	void *arg;
};

int fab_fd_new(enum fab_fd_kind kind, void *of);
void fab_fd_close(int fd);
/* Returns the descriptor, or the one that it duplicates; NULL: not open. */
struct fab_fd *fab_fd_get(int fd);
/* The descriptor has become readable. */
void fab_fd_fire(int fd);

#endif /* TEI_FABTESTS_SIM_FABRIC_FAB_H */
