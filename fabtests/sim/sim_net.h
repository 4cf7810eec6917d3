/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_NET_H
#define TEI_FABTESTS_SIM_SIM_NET_H

/*
 * The simulated network: the libfabric provider "sim", the links below it, and
 * their faults.
 *
 * Each host of the simulation has the same number of NICs, numbered from 0. A
 * program opens them through fi_getinfo, which offers the NICs of the current
 * host (sim_host_current), one domain each: "sim0", "sim1", ... The provider is
 * the shared object libsim-fi.so, which libfabric loads. The shared object
 * takes all its code from the program (linked with -rdynamic).
 *
 * Behaviour of the network:
 *
 * - Two endpoints that communicate share one reliable connection, which serves
 *   both directions. The first post makes it.
 * - A message is cut into packets. The sending NIC reads the bytes of a packet
 *   from memory when it sends the packet. The bytes are written to the target's
 *   memory when the target handles the packet: if conf.auto_progress is true,
 *   the NIC handles it when it arrives; if not, the target's process handles it
 *   in fi_cq_read.
 * - A packet that has left its endpoint arrives even if that endpoint has
 *   failed or was closed since, unless the target's side of the connection is
 *   closed.
 * - Packets of a blocked path wait, and arrive when the path is open again. If
 *   a sender gets no acknowledgement for conf.retry_ns, its operations fail and
 *   its waiting packets are dropped.
 * - Every operation gets one completion, unless a fault loses the completion or
 *   the operation's endpoint is closed first.
 *
 * All functions are called from the simulation's thread. A function fails only
 * if its comment says so.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

struct fid_ep;
struct tei_world_net;

/* The attributes of the provider and the behaviour of its NICs. */
struct sim_net_conf {
	/* the provider's attributes */
	bool ip;	    /* true: addresses are FI_SOCKADDR_IN, and
			     * connections have sockets, which the library can
			     * find and cut; false: addresses are FI_ADDR_STR */
	bool wait_fd;	    /* completion queues have a file descriptor */
	bool eq;	    /* event queues can be opened */
	uint64_t mr_mode;   /* what registrations need: any of FI_MR_LOCAL,
			     * FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY,
			     * FI_MR_ENDPOINT, FI_MR_RMA_EVENT */
	uint64_t msg_order; /* message order that the provider guarantees,
			     * FI_ORDER_* */
	uint32_t tx_size, rx_size;	   /* maximum number of posted
					    * operations and of posted receives
					    * per endpoint */
	uint32_t iov_limit, rma_iov_limit; /* maximum number of local and of
					    * remote iov entries of an
					    * operation; at most SIM_NET_IOV */
	uint32_t inject_size;		   /* largest injected message, bytes */
	uint64_t max_msg_size;		   /* largest message, bytes */
	/* maximum number of registrations per domain; 0 means no limit */
	uint32_t mrs;
	/* Number of different ports that a NIC gives to endpoints that request
	 * no port. Each process of a host begins with the first one, so with a
	 * small number it gets ports that the previous process has used. 0:
	 * the processes of a host continue with the next port, and a port is
	 * given again only after all others. */
	uint32_t ports;

	/* behaviour of NICs and connections */
	bool auto_progress;  /* true: NICs handle packets by themselves; false:
			      * the process handles them in fi_cq_read */
	bool key_per_packet; /* true: keys are checked for each packet; false:
			      * once per message */
	bool refusal_breaks; /* if the key of an operation is refused, its
			      * connection breaks */
	bool unordered;	     /* packets of writes may overtake each other */
	bool post_connects;  /* true: posts are accepted while the connection is
			      * being made; false: they return -FI_EAGAIN */
	bool remove_closes;  /* fi_av_remove closes the connections to the
			      * removed address */
	bool stale_refuses;  /* a target refuses a connection from an endpoint
			      * to which it already has one */
	uint32_t packet;     /* largest packet, bytes */
	uint32_t window;     /* maximum number of bytes that are sent on a
			      * connection and not yet handled by the target */
	uint32_t unexpected; /* maximum number of unexpected messages that an
			      * endpoint stores; further messages stall their
			      * connection */
	uint64_t connect_ns; /* time without an answer after which an attempt to
			      * connect fails, ns */
	uint64_t retry_ns;   /* time without an acknowledgement after which
			      * operations fail, ns; 0 means no limit */
	uint64_t rto_ns;     /* additional delay of a lost packet, ns */
	uint64_t linger_ns;  /* time after which packets of a closed endpoint
			      * that wait at a blocked path are dropped, ns */

	uint32_t error_ppm;  /* successful completions of reads and writes, per
			      * million, that become errors and break their
			      * connections */
	uint64_t close_ns;   /* time that closing an endpoint takes, ns; if it
			      * is not 0, endpoints may only be closed in
			      * fibers */

	/* latency and jitter of every path that was not changed */
	uint64_t latency_ns, jitter_ns;
	uint64_t bandwidth; /* bandwidth of a NIC, bytes/s; 0 means no limit */
};

#define SIM_NET_IOV 8 /* maximum number of iov entries of an operation */

/* sim_net_conf_tcp fills conf with the behaviour of the provider tcp;ofi_rxm,
 * sim_net_conf_verbs with that of a verbs device. */
void sim_net_conf_tcp(struct sim_net_conf *conf);
void sim_net_conf_verbs(struct sim_net_conf *conf);

/* Creates the network of the current simulation. Called after sim_begin. Copies
 * conf. `nics` is the number of NICs per host, at most 64. */
void sim_net_begin(const struct sim_net_conf *conf, uint32_t nics);
/* Frees the network with all objects of the provider. Called before sim_end. */
void sim_net_end(void);

/*
 * Makes libfabric find the provider: sets FI_PROVIDER_PATH and FI_PROVIDER in
 * the environment. `folder` contains libsim-fi.so; NULL means the folder "sim"
 * next to the program. If the file cannot be read, the simulation fails. Called
 * once, before the first call of libfabric.
 */
void sim_net_provider(const char *folder);

/* Makes the network call fn(ep) when no packet can land through an endpoint any
 * longer, because it was closed or its process was killed. NULL ends these
 * calls. */
void sim_net_on_close(void (*fn)(const struct fid_ep *ep));

/* --- faults --- */

/* One NIC of one host. */
struct sim_net_nic {
	uint32_t host, nic;
};

/* The state of one direction between two NICs. */
struct sim_net_path {
	uint64_t latency_ns, jitter_ns;
	uint64_t bandwidth; /* bandwidth of the path, bytes/s; 0 means that only
			     * the NIC limits it */
	uint32_t loss_ppm;  /* lost packets per million; a lost packet arrives
			     * conf.rto_ns later, because it is sent again */
	bool blocked;	    /* packets wait until this is false again */
	bool stalled;	    /* packets wait as with `blocked`, but the sender
			     * gets acknowledgements, so its operations do not
			     * fail */
};

/* sim_net_path_get reads the state of a path, sim_net_path_set changes it. A
 * path that was never changed has the latency and the jitter in conf. */
void sim_net_path_get(struct sim_net_nic from, struct sim_net_nic to,
		      struct sim_net_path *path);
void sim_net_path_set(struct sim_net_nic from, struct sim_net_nic to,
		      const struct sim_net_path *path);
void sim_net_path_block(struct sim_net_nic from, struct sim_net_nic to,
			bool blocked);

/* Plugs in the cable of a NIC if `up` is true, otherwise unplugs it. Without a
 * cable, all paths from and to the NIC are blocked. The host gets a link
 * event. */
void sim_net_nic_link(struct sim_net_nic nic, bool up);
/*
 * Switches a host's power on or off. Without power, the host's NICs receive
 * nothing, and packets that they have sent are lost. The caller must also kill
 * the host's process; the host's peers are not informed. When the power is on
 * again, packets for connections of the former process are answered with a
 * reset.
 */
void sim_net_power(uint32_t host, bool on);

/* Breaks all connections between two NICs, at both sides, like a TCP reset. */
void sim_net_reset(struct sim_net_nic a, struct sim_net_nic b);
/* Breaks all connections between two NICs at the side of `a` only. The side of
 * `b` is not informed: there the connections are half open until something is
 * sent. */
void sim_net_reset_side(struct sim_net_nic a, struct sim_net_nic b);

/* The faults of one NIC. If all fields are 0, the NIC has no fault. */
struct sim_net_fault {
	uint64_t again_ns;  /* virtual time until which posts fail with
			     * -FI_EAGAIN, with probability again_ppm */
	uint32_t again_ppm; /* probability that a post fails, in millionths */
	uint64_t late_ns;   /* delay of the completions of sent operations, with
			     * probability late_ppm */
	uint32_t late_ppm;  /* probability that a completion is delayed, in
			     * millionths */
	uint32_t lose;	    /* number of the next completions of sent operations
			     * that will be lost */
	uint32_t flush;	    /* number of the next successful completions of sent
			     * operations that become errors and break their
			     * connections */
	int mr_refuse;	    /* error that each registration returns, -FI_E*; 0
			     * means none */
	int ep_refuse;	    /* error that each fi_enable returns, -FI_E*; 0
			     * means none */
};
void sim_net_fault_get(struct sim_net_nic nic, struct sim_net_fault *fault);
void sim_net_fault_set(struct sim_net_nic nic,
		       const struct sim_net_fault *fault);

/* --- statistics --- */

struct sim_net_stats {
	uint64_t packets, bytes;      /* packets that their targets have handled
				       * so far, and the bytes in them */
	uint64_t completions, errors; /* completions reported so far, and those
				       * among them that are errors */
	uint64_t connects;	      /* connections made so far */
	uint32_t started_max;	      /* largest number of connections that one
				       * endpoint has started and not closed at
				       * the same time, so far */
	uint64_t late;		      /* packets of writes that landed after
				       * their operation had ended, so far */
	uint64_t refused;	      /* operations refused so far because of
				       * their key */
	/* The members below are numbers of objects that exist now. Objects of
	 * killed processes do not count. */
	uint32_t domains, endpoints, mrs, queues, avs, counters;
	uint32_t connections;
	uint32_t operations; /* operations posted and not yet ended */
};
/* Reads the statistics of one host, or of all hosts (SIM_NO_HOST). Only the
 * members from `domains` to `counters` depend on the host. The other members
 * are always those of all hosts. */
void sim_net_stats_get(uint32_t host, struct sim_net_stats *stats);

/* --- for the simulated world --- */

/*
 * The functions of tei_world.net for the current host: sockets, interfaces and
 * links. Their file descriptors are larger than all real file descriptors of
 * the process. NIC i is the interface "sim<i>" with index i + 1 and address
 * 10.<i>.<a>.<b>/16, where a * 256 + b is the number of the host plus 1.
 */
extern const struct tei_world_net sim_net_world;

/* Returns true if the file descriptor is readable. Only those of completion
 * queues and of link changes can be. */
bool sim_net_fd_ready(int fd);
/* Requests one call of fn(arg) when the file descriptor becomes readable. The
 * call may come from any function of the network. Replaces the previous request
 * for this file descriptor. If fn is NULL, only removes the previous
 * request. */
void sim_net_fd_notify(int fd, void (*fn)(void *arg), void *arg);

#pragma GCC visibility pop

#endif /* TEI_FABTESTS_SIM_SIM_NET_H */
