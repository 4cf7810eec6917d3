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

/* --- messages, packets --- */

enum fab_msg_kind {
	FAB_SEND,
	FAB_WRITE,
	FAB_READ,  /* request for the bytes of a read operation */
	FAB_BYTES, /* answer to FAB_READ: the bytes */
	FAB_ACK,   /* answer to an operation: its result at the target */
};

/*
 * A message. The sender's side and the target's side use the same object.
 * References to it are held by each packet on the way, by the sender's queue
 * and by the operation.
 */
struct fab_msg {
	struct tei_list link; /* entry of fab_side.queue */
	uint32_t refs;
	enum fab_msg_kind kind;
	uint64_t number; /* number of the message among all that its side has
			  * posted */
	uint64_t len;
	/* The sender uses the members from `sent` to `status`. */
	uint64_t sent;
	bool sent_all;
	struct iovec iov[FAB_IOV]; /* memory of the bytes to be sent; for
				    * FAB_READ, memory to which the requested
				    * bytes are to be written */
	size_t niov;
	char *copy;	    /* copy of the bytes of an injected message, or
			     * NULL */
	struct fab_op *op;  /* operation to which the message belongs; NULL if
			     * the operation has ended or the message is an
			     * answer */
	bool acked;	    /* the target answers with FAB_ACK */
	struct fab_msg *of; /* FAB_BYTES, FAB_ACK: the message to which this one
			     * is the answer */
	int status;	    /* FAB_ACK: result of the operation, FI_E* or 0 */
	/* The header of each packet contains the members from `rma` to
	 * `data`. */
	struct fi_rma_iov rma[FAB_IOV];
	size_t nrma;
	bool tagged;
	uint64_t tag;
	bool has_data;
	uint64_t data;
	/* The target uses the members from `landed` on. For FAB_READ, `landed`
	 * counts the bytes of the answer that the initiator has received. */
	uint64_t landed;
	bool started;
	int refused;		 /* error with which the target has refused the
				  * message, or 0 */
	char *at[FAB_IOV];	 /* local addresses of the ranges in `rma` */
	struct tei_list coming;	 /* FAB_SEND: entry of fab_side.receiving */
	struct fab_recv *recv;	 /* FAB_SEND: receive that gets the bytes */
	char *held;		 /* FAB_SEND: the bytes that have arrived, if no
				  * receive matches yet */
	struct tei_list waiting; /* FAB_SEND: entry of fab_ep.unexpected */
	struct fab_side *side;	 /* FAB_SEND: the receiving side; NULL if it is
				  * closed */
};

void fab_msg_put(struct fab_msg *m);

enum fab_pkt_kind {
	FAB_P_CONNECT,
	FAB_P_ACCEPT,
	FAB_P_REFUSE,
	FAB_P_MSG,
	FAB_P_END, /* the sender of the packet has closed its side */
	FAB_P_CUT, /* sent by a side to itself: its process has cut the
		    * connection */
};

struct fab_pkt {
	struct tei_list link; /* entry of fab_net.flying, fab_ep.inbox,
			       * fab_side.held or fab_side.parked */
	struct fab_conn *conn;
	int to; /* index of the side to which the packet is sent */
	enum fab_pkt_kind kind;
	int status; /* FAB_P_REFUSE, FAB_P_END: error with which the other side
		     * closes */
	struct fab_msg *msg;
	uint64_t off;
	uint32_t len;
	char data[];
};

struct fab_pkt *fab_pkt_new(struct fab_conn *conn, int to,
			    enum fab_pkt_kind kind, uint32_t len);
void fab_pkt_free(struct fab_pkt *p);

/* --- connections --- */

enum fab_side_state {
	FAB_SIDE_NONE, /* the endpoint does not know the connection yet */
	FAB_SIDE_CONNECTING,
	FAB_SIDE_UP,
	FAB_SIDE_CLOSED,
};

/* One end of a connection. */
struct fab_side {
	struct fab_conn *conn;
	int index;
	enum fab_side_state state;
	struct fab_ep *ep;    /* NULL in the states FAB_SIDE_NONE and
			       * FAB_SIDE_CLOSED */
	struct tei_list link; /* entry of ep->sides */
	struct tei_list by_peer; /* entry of a list in ep->by_peer */
	uint32_t naddrs;	 /* number of entries of ep->by_addr that point
				  * to this side */
	fi_addr_t addr;		 /* index of the last entry of ep->by_addr that
				  * was set to this side */
	bool shut; /* the process of this side has cut the connection; the side
		    * closes when FAB_P_CUT is handled */
	/* The side uses the members from `queue` to `next_msg` as a sender. */
	struct tei_list queue;	 /* list of fab_msg.link: messages to be sent */
	struct tei_list ops;	 /* list of fab_op.link: posted operations, in
				  * the order of posting */
	struct tei_list sending; /* entry of nic->sending */
	uint64_t flight;	 /* bytes sent and not yet handled by the
				  * target */
	uint64_t on_wire;	 /* number of packets that were sent and have
				  * not arrived yet */
	uint64_t arrive_ns;	 /* latest arrival time of all packets sent so
				  * far */
	uint64_t floor_ns;	 /* arrival time of the last packet that makes
				  * or closes the connection; no later packet
				  * arrives before it */
	struct tei_list held;	 /* list of fab_pkt.link: packets that wait at a
				  * blocked path */
	struct tei_list holding; /* entry of fab_net.held */
	uint64_t held_ns;	 /* time at which the packets in `held` began to
				  * wait */
	sim_event_id retry;	 /* event that ends the wait of the packets in
				  * `held`: the side fails and the packets are
				  * dropped; 0 if there is none */
	uint64_t next_msg;
	/* The side uses `parked` and `receiving` as a receiver. */
	struct tei_list parked;	   /* list of fab_pkt.link: packets that wait
				    * until a receive is posted, because the
				    * endpoint stores no further unexpected
				    * message */
	struct tei_list receiving; /* list of fab_msg.coming: messages of which
				    * bytes are missing or which have no receive
				    * yet */
	/* fab_world.c uses the members from `fd` on. */
	int fd; /* file descriptor of the connection's socket, or -1 if none was
		 * requested yet */
	uint64_t acked_bytes, received_bytes;
	uint64_t sent_ns, recv_ns, ack_ns; /* times of the last packet sent, the
					    * last packet received and the last
					    * acknowledgement received */
};

/* A connection. References to it are held by each side that has an endpoint, by
 * each packet and by each event of the connection. */
struct fab_conn {
	struct tei_list link; /* entry of fab_net.conns */
	uint64_t id;
	uint32_t refs;
	struct fab_addr addr[2]; /* addresses of the two endpoints; addr[0] is
				  * that of the initiator, which has made the
				  * connection */
	uint16_t ephemeral;	 /* the initiator's port of the connection's
				  * socket */
	struct fab_side side[2];
	sim_event_id attempt; /* event that ends the attempt to connect if no
			       * answer arrives; 0 if there is none */
	bool reset[2];	      /* by index of a side: a reset (FAB_P_REFUSE or
			       * FAB_P_END) to that side is on its way */
};

void fab_conn_put(struct fab_conn *c);
/* Returns the endpoint's side of a connection to the address `to`, or NULL. */
struct fab_side *fab_conn_find(const struct fab_ep *ep,
			       const struct fab_addr *to);
/* Starts to connect the endpoint to the address `to`. Returns the endpoint's
 * side. */
struct fab_side *fab_conn_start(struct fab_ep *ep, const struct fab_addr *to);
/* Handles all packets except FAB_P_MSG, and frees them. */
void fab_conn_handle(struct fab_pkt *p);
/* Sends a reset to the side with index `to`: the other side does not know the
 * connection. Does nothing if a reset is already on its way. */
void fab_conn_reset(struct fab_conn *c, int to);
/* Closes a side. Ends its operations with the error `err`, or without
 * completions if `err` is 0. If `inform` is true, sends FAB_P_END to the other
 * side. */
void fab_side_close(struct fab_side *s, int err, bool inform);
/* Cuts the connection at a side. The side closes after it has handled all
 * packets that have already arrived. */
void fab_side_shut(struct fab_side *s);
/* Returns the error with which operations end if their connection breaks. */
int fab_conn_error(void);

/* --- packets on the way (fab_wire.c) --- */

/* Makes the NIC send the messages in the side's queue, if the side may send. */
void fab_wire_want(struct fab_side *s);
/* Sends a packet that is not part of a message. It does not wait for the
 * messages in the queue. */
void fab_wire_send(struct fab_pkt *p);
/* Called when the state of a path or of a NIC has changed: delivers the held
 * packets of all paths that are no longer blocked. */
void fab_wire_release(void);
/* Called when the side has closed: its held packets will be dropped after
 * conf.linger_ns. */
void fab_wire_linger(struct fab_side *s);
/* Drops the held packets of a side. */
void fab_wire_drop(struct fab_side *s);
/* Handles packets that have arrived at the endpoint, at most 16 per call. */
void fab_wire_progress(struct fab_ep *ep);
/* Drops all packets in the endpoint's inbox. */
void fab_wire_clear(struct fab_ep *ep);
/* Frees a packet that was handled or dropped. */
void fab_wire_done(struct fab_pkt *p);
/* Frees all packets. Called by sim_net_end. */
void fab_wire_end(void);

/* --- at the target (fab_handle.c) --- */

/* Handles a packet of a message and frees it. If the packet must wait for a
 * receive, adds it to `parked` of the side. */
void fab_handle(struct fab_side *s, struct fab_pkt *p);
/* Called when a receive was posted: handles the unexpected messages and the
 * parked packets that match a posted receive. */
void fab_recv_start(struct fab_ep *ep);
/* Frees a receive and reports the error `err` for it. If `err` is 0, reports
 * nothing. */
void fab_recv_fail(struct fab_ep *ep, struct fab_recv *r, int err);

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
