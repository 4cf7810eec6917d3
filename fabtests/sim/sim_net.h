/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_FABTESTS_SIM_SIM_NET_H
#define TEI_FABTESTS_SIM_SIM_NET_H

/*
 * The simulated network: the provider "sim" of libfabric, the links below it,
 * and their faults.
 *
 * Each host of the simulation has the same number of NICs, numbered from 0. A
 * program opens them through fi_getinfo, which offers the NICs of the current
 * host (sim_host_current), one domain each: "sim0", "sim1", ... The provider is
 * the shared object libsim-fi.so, which libfabric loads; it takes all code from
 * the program (linked with -rdynamic).
 *
 * What the network does:
 *
 * - Two endpoints that communicate have one reliable connection, which serves
 *   both directions. The first post makes it.
 * - A message is cut into packets. The sending NIC reads the bytes of a packet
 *   from memory when it sends the packet. The bytes are written to the target's
 *   memory when the packet is handled there: by the NIC when it arrives
 *   (conf.auto_progress), or else in fi_cq_read of the target's process.
 * - A packet that has left its endpoint arrives even if that endpoint has
 * failed or was closed since, unless the target's side of the connection is
 * closed.
 * - Packets of a blocked path wait and arrive after the path is open again. A
 *   sender that gets no acknowledgement for conf.retry_ns gives up: its
 *   operations fail, and its waiting packets are dropped.
 * - Every operation gets one completion, unless a fault loses it or its
 * endpoint is closed first.
 *
 * All functions are called from the simulation's thread. None fails, unless its
 * comment says so.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

struct tei_world_net;

/* What the provider offers and how its NICs behave. */
struct sim_net_conf {
	/* the provider's attributes */
	bool ip;	    /* addresses are FI_SOCKADDR_IN, and connections
			     * are sockets that can be looked up and cut;
			     * false: FI_ADDR_STR */
	bool wait_fd;	    /* completion queues have a descriptor */
	bool eq;	    /* event queues can be opened */
	uint64_t mr_mode;   /* FI_MR_LOCAL, FI_MR_VIRT_ADDR,
			     * FI_MR_ALLOCATED, FI_MR_PROV_KEY,
			     * FI_MR_ENDPOINT, FI_MR_RMA_EVENT */
	uint64_t msg_order; /* FI_ORDER_... */
	uint32_t tx_size, rx_size;	   /* posted operations per endpoint */
	uint32_t iov_limit, rma_iov_limit; /* at most SIM_NET_IOV */
	uint32_t inject_size;		   /* bytes */
	uint64_t max_msg_size;		   /* bytes */
	uint32_t mrs; /* registrations per domain, 0: any number */

	/* how NICs and connections behave */
	bool auto_progress;  /* NICs handle packets by themselves; false: the
			      * process does in fi_cq_read */
	bool key_per_packet; /* keys are checked for each packet; false: once
			      * per message */
	bool refusal_breaks; /* a refused key breaks the connection */
	bool unordered;	     /* packets of writes overtake each other */
	bool post_connects;  /* posts are accepted while the connection is
			      * being made; false: -FI_EAGAIN */
	bool remove_closes;  /* fi_av_remove closes the connection */
	bool stale_refuses;  /* a target refuses a new connection from an
			      * endpoint while it has one from it */
	uint32_t packet;     /* bytes of a packet */
	uint32_t window;     /* bytes sent on a connection and not handled by
			      * the target */
	uint32_t unexpected; /* messages per endpoint without a posted
			      * receive, before the connection stalls */
	uint64_t connect_ns; /* after that time without an answer, an attempt
			      * to connect has failed */
	uint64_t retry_ns;   /* see above; 0: senders never give up */
	uint64_t rto_ns;     /* delay of a lost packet */
	uint64_t linger_ns;  /* how long the packets of a closed endpoint wait
			      * at a blocked path */

	/* the default link */
	uint64_t latency_ns, jitter_ns;
	uint64_t bandwidth; /* bytes/s of a NIC, 0: no limit */
};

#define SIM_NET_IOV 8 /* most iov entries of an operation */

/* Fill conf: as provider tcp;ofi_rxm, and as a verbs device. */
void sim_net_conf_tcp(struct sim_net_conf *conf);
void sim_net_conf_verbs(struct sim_net_conf *conf);

/* Makes the network of the current simulation, after sim_begin. conf is
 * copied. nics: per host, at most 64. */
void sim_net_begin(const struct sim_net_conf *conf, uint32_t nics);
/* Frees it with all objects of the provider, before sim_end. */
void sim_net_end(void);

/*
 * Makes libfabric find the provider: sets FI_PROVIDER_PATH and FI_PROVIDER in
 * the environment. folder: of libsim-fi.so; NULL: the folder "sim" next to the
 * program. Called once, before the first call of libfabric.
 */
void sim_net_provider(const char *folder);

/* --- faults ----------------------------------------------------------------
 */

/* One NIC of one host. */
struct sim_net_nic {
	uint32_t host, nic;
};

/* One direction between two NICs. */
struct sim_net_path {
	uint64_t latency_ns, jitter_ns;
	uint64_t bandwidth; /* bytes/s, 0: that of the NIC */
	uint32_t loss_ppm;  /* packets of a million that arrive
			     * conf.rto_ns later */
	bool blocked;	    /* packets wait until that ends */
	bool stalled;	    /* as blocked, but acknowledgements arrive: the
			     * sender does not give up */
};

/* Reads and changes a path. A path that was never changed is the default
 * link. */
void sim_net_path_get(struct sim_net_nic from, struct sim_net_nic to,
		      struct sim_net_path *path);
void sim_net_path_set(struct sim_net_nic from, struct sim_net_nic to,
		      const struct sim_net_path *path);
void sim_net_path_block(struct sim_net_nic from, struct sim_net_nic to,
			bool blocked);

/* Pulls or plugs the cable of a NIC. All paths from and to the NIC are blocked
 * without a cable. The host gets a link event. */
void sim_net_nic_link(struct sim_net_nic nic, bool up);
/* Switches a host's power off or on. Without power, the host's NICs receive
 * nothing, and what they send is lost; so the caller kills the process as well,
 * of which the peers are not informed. With power, packets that arrive for
 * connections of a former process are answered with a reset. */
void sim_net_power(uint32_t host, bool on);

/* Breaks all connections between two NICs at both sides, as a reset does. */
void sim_net_reset(struct sim_net_nic a, struct sim_net_nic b);
/* Breaks them at side a only. Side b is not informed: its connection is half
 * open until it sends. */
void sim_net_reset_side(struct sim_net_nic a, struct sim_net_nic b);

/* Faults of one NIC. All fields 0: none. */
struct sim_net_fault {
	uint64_t again_ns;  /* until this virtual time, posts return
			     * -FI_EAGAIN ... */
	uint32_t again_ppm; /* ... in so many of a million cases */
	uint64_t late_ns;   /* completions of sent operations come so much
			     * later */
	uint32_t late_ppm;  /* ... in so many of a million cases */
	uint32_t lose;	    /* so many of the next completions of sent
			     * operations are lost */
	uint32_t flush;	    /* so many of the next successful completions of
			     * sent operations become errors, and their
			     * connections break */
	int mr_refuse;	    /* error of each registration, -FI_E* */
	int ep_refuse;	    /* error of each fi_enable, -FI_E* */
};
void sim_net_fault_get(struct sim_net_nic nic, struct sim_net_fault *fault);
void sim_net_fault_set(struct sim_net_nic nic,
		       const struct sim_net_fault *fault);

/* --- what there is ---------------------------------------------------------
 */

struct sim_net_stats {
	uint64_t packets, bytes;      /* handled by their targets so far */
	uint64_t completions, errors; /* reported so far */
	uint64_t connects;	      /* connections made so far */
	uint64_t late;		      /* packets of writes that landed after
				       * their operation had ended */
	uint64_t refused;	      /* keys refused so far */
	/* objects that exist now, without those of killed processes */
	uint32_t domains, endpoints, mrs, queues, avs, counters;
	uint32_t connections;
	uint32_t operations; /* posted and not ended */
};
/* host: SIM_NO_HOST for all hosts. The counts "so far", connections and
 * operations are those of all hosts. */
void sim_net_stats_get(uint32_t host, struct sim_net_stats *stats);

/* --- for the simulated world -----------------------------------------------
 */

/*
 * Sockets, interfaces and links of the current host, for tei_world.net.
 * Descriptors are numbers above all descriptors of the process. NIC i is
 * interface "sim<i>" with index i + 1 and address 10.<i>.<a>.<b>/16, where
 * a * 256 + b is the number of the host plus 1.
 */
extern const struct tei_world_net sim_net_world;

/* Returns true if a descriptor of a completion queue or of link changes is
 * readable. */
bool sim_net_fd_ready(int fd);
/* Calls fn(arg) once when the descriptor becomes readable, from any code of the
 * network. Replaces the call that was requested before; fn NULL: requests
 * none. */
void sim_net_fd_notify(int fd, void (*fn)(void *arg), void *arg);

#pragma GCC visibility pop

#endif /* TEI_FABTESTS_SIM_SIM_NET_H */
