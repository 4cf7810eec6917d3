/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_MOONRAIL_MOONRAIL_INT_H
#define TEI_PROV_MOONRAIL_MOONRAIL_INT_H

/*
 * The libfabric provider "moonrail": FI_EP_RDM endpoints over all rails of the
 * host.
 *
 * A domain is one data plane (prov/rail) with its own incarnation. An endpoint
 * is identified by a number within its domain. Each pair of domains has one
 * stream of messages in each direction (moonrail_wire.h, moonrail_stream.c).
 * The messages of the data plane may be lost, repeated or reordered; the stream
 * delivers them in order and exactly once. A message for a backpressured
 * endpoint waits at its sender (moonrail_flow.c).
 *
 * Two-sided operations: if the bytes fit into one message, they are its payload
 * (DATA). If they do not fit, the sender announces the message (RTS), and the
 * receiver reads the bytes with tasks of the data plane, so all rails carry
 * them. The receiver acknowledges the message with a FIN; one FIN can
 * acknowledge several messages. The order of messages is the order of the
 * stream, which is FI_ORDER_SAS. moonrail_order.c enforces the other orders.
 *
 * One-sided operations: a write or read also consists of tasks of the data
 * plane. A task needs an address and a key of the data plane, so the initiator
 * queries each key of the application once per peer (KEY, KEY_IS). KEY_NOT
 * revokes the answer when the registration is closed. When the bytes are in
 * place, the initiator sends DONE in the stream if the operation has remote CQ
 * data or if the owner of the memory counts operations (FI_RMA_EVENT).
 * Registrations of the application may overlap, but those of the data plane may
 * not: moonrail_pin.c keeps regions that do not overlap and counts their users.
 * Local memory need not be registered. If a rail requires registered local
 * memory, the bytes pass through bounce buffers (moonrail_bounce.c).
 *
 * Atomics are messages of the stream (ATOMIC, ATOMIC_REP). The target executes
 * each atomic when its message is delivered, and so exactly once.
 *
 * An address is a name (moonrail_name.h): the incarnation, the endpoint number
 * and the fabric address of one rail. The hello of the data plane brings the
 * addresses of the other rails. If the application knows only a socket address,
 * the hello also brings the incarnation.
 *
 * Progress is automatic: the progress thread of the data plane polls the lanes.
 * While the application reads a completion queue, its calls poll the lanes, and
 * the progress thread leaves them to the application.
 *
 * The source files form layers. A file calls files of its own layer and of the
 * layers below it. A lower layer reports to a higher one through the inbox,
 * through the function table of an operation's type, or through the table of
 * message handlers:
 *
 *	objects		fabric, domain, ep, poll; init and attr (fi_getinfo)
 *	events		dispatch, timer, resolver
 *	operations	msg, recv, rma, atomic
 *	moves, answers	move, bounce_move, bounce_thread, fin, read_back, mr,
 *			order
 *	streams		stream, flow, failure
 *	peers		op, out, av, key, peer
 *	base		cq, cntr, eq, pin, bounce, inbox, policy, devices, name,
 *			wait
 *
 * Locks: each domain has one lock, which guards all fields of the domain and
 * its objects, except the fields whose comments name another guard. The data
 * plane may call back at any time, also from inside a call of the provider, and
 * a callback never waits for this lock. If the lock is free, the callback takes
 * it. Otherwise the callback puts its event into the domain's inbox, and the
 * thread that holds the lock handles the inbox before it releases the lock.
 * docs/LOCKING.md states the order of the locks.
 */

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <stdint.h>

#include "prov/moonrail/moonrail_wire.h"
#include "prov/rail/tei_rail.h"
#include "util/clock.h"
#include "util/lock.h"

#define MOONRAIL_VERSION	FI_VERSION(0, 1)
#define MOONRAIL_API		FI_VERSION(1, 17)
#define MOONRAIL_IOV		4	/* largest number of iov entries of one
					 * operation */
#define MOONRAIL_INJECT		1024	/* largest injected message, bytes */
#define MOONRAIL_QUEUE		4096	/* limit of the operations under way of
					 * an endpoint, and of the messages that
					 * wait for a peer; MPI programs have
					 * thousands */
/* largest number of posted receives of an endpoint */
#define MOONRAIL_RECVS	(4 * MOONRAIL_QUEUE)
#define MOONRAIL_WINDOW		64	/* largest number of messages that a
					 * stream has sent and that are not yet
					 * acknowledged */
#define MOONRAIL_ACK_EVERY	16	/* number of received messages after
					 * which an ACK is sent */
/* first interval of the PINGs of a peer's timer; each later interval is twice
 * as long as the one before, up to 200 ms */
#define MOONRAIL_PING_NS (5 * TEI_NS_PER_MS)
#define MOONRAIL_CONTACT_NS (750 * TEI_NS_PER_MS) /* a message exchanged within
						* this time proves that the peer
						* has not timed out; shorter
						* than every MC_SLICE_TIMEOUT */
#define MOONRAIL_FINS		4	/* largest number of messages that one
					 * FIN acknowledges */
#define MOONRAIL_HEAD	(TEI_RAIL_MESSAGE_HEAD + sizeof(struct moonrail_wire))
#define MOONRAIL_EAGER	(TEI_RAIL_MESSAGE_MAX - MOONRAIL_HEAD)
#define MOONRAIL_POLICIES	16	/* largest number of entries of the
					 * size-to-policy table */
#define MOONRAIL_STRIPES	8	/* largest number of rails among which
					 * one range is divided */
/* Limit of the unexpected messages of an endpoint, bytes; above it the senders
 * wait. */
#define MOONRAIL_UNEXPECTED_MAX	(64u << 20)
/* Number of messages of each sender that a backpressured endpoint still
 * accepts. */
#define MOONRAIL_EXCESS_MAX	(2 * MOONRAIL_WINDOW)
/* FI_MR_BASIC and FI_MR_SCALABLE, the values of mr_mode from before libfabric
 * 1.5. Version 2.0 deprecates their names. */
#define MOONRAIL_MR_BASIC	1
#define MOONRAIL_MR_SCALABLE	2
/* The value of FI_MR_DMABUF, which the headers of libfabric 1.17 do not define.
 * With this flag, the attributes describe a DMA buffer instead of an
 * address. */
#define MOONRAIL_DMABUF	(UINT64_C(1) << 40)
/* Value of ep_attr->protocol. Programs such as Mercury store it in an int and
 * reject values that are not positive. The numbers that libfabric assigns are
 * below 100. */
#define MOONRAIL_PROTO	0x6d6f6f6eu	/* this protocol; in decimal
					 * 1836019566 */
#define MOONRAIL_PROTO_010 (MOONRAIL_OWN | MOONRAIL_PROTO) /* protocol of
							    * release 0.1.0;
							    * accepted in
							    * hints */
#define MOONRAIL_MESSAGE (UINT64_C(1) << 40)	/* largest operation, bytes */
#define MOONRAIL_OBJECTS 65536	/* limit that fi_getinfo reports for each kind
				 * of object */

/* Flag of the fi_getinfo calls that libfabric itself makes. With it,
 * FI_PROVIDER does not filter the result. This is necessary because FI_PROVIDER
 * may name only moonrail, while the rails need other providers. */
#define MOONRAIL_INFO_FLAGS (UINT64_C(1) << 60)

/* MOONRAIL_ORDER_FREE: message orders that cost nothing, because messages and
 * atomics are executed in the order of their stream. MOONRAIL_ORDER_ASKED:
 * message orders for which operations must wait (moonrail_order.c); an endpoint
 * enforces them only if its hints request them. */
#define MOONRAIL_ORDER_FREE (FI_ORDER_SAS | FI_ORDER_ATOMIC_RAR | \
			     FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | \
			     FI_ORDER_ATOMIC_WAW)
#define MOONRAIL_ORDER_ASKED (FI_ORDER_SAW | FI_ORDER_WAW | FI_ORDER_WAS | \
			      FI_ORDER_RAW | FI_ORDER_RAR | FI_ORDER_RAS | \
			      FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | \
			      FI_ORDER_RMA_WAW)

#define MOONRAIL_TX_FLAGS (FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | \
			   FI_TRANSMIT_COMPLETE | MOONRAIL_DELIVERED)
/* FI_DELIVERY_COMPLETE and FI_MATCH_COMPLETE have the same effect here, because
 * a message is delivered only when it is matched with a receive. */
#define MOONRAIL_DELIVERED (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)
#define MOONRAIL_REFUSED (FI_TRIGGER | FI_COMMIT_COMPLETE)
#define MOONRAIL_RX_FLAGS (FI_COMPLETION | FI_MULTI_RECV)
#define MOONRAIL_TX_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_SEND | \
			  FI_READ | FI_WRITE | FI_FENCE)
#define MOONRAIL_RX_CAPS (FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_RECV | \
			  FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | \
			  FI_DIRECTED_RECV | FI_SOURCE | FI_RMA_EVENT)
#define MOONRAIL_DOMAIN_CAPS (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define MOONRAIL_CAPS (MOONRAIL_TX_CAPS | MOONRAIL_RX_CAPS | \
		       MOONRAIL_DOMAIN_CAPS)

/* Stands for domain->lock in clang's thread-safety analysis. No code locks
 * it. */
extern struct tei_mutex moonrail_held;

#endif /* TEI_PROV_MOONRAIL_MOONRAIL_INT_H */
