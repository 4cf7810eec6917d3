/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_FABRIC_FAB_MSG_H
#define TEI_FABTESTS_SIM_FABRIC_FAB_MSG_H

/* Messages, packets and connections of the simulated fabric. The rules of fab.h
 * hold here, too. */

#include "fabtests/sim/fabric/fab.h"

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
	bool started; /* this side's endpoint has initiated the connection */
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

#endif /* TEI_FABTESTS_SIM_FABRIC_FAB_MSG_H */
