/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_PROV_RAIL_TEI_RAIL_DP_H
#define TEI_PROV_RAIL_TEI_RAIL_DP_H

/* The data plane and its rails, a part of tei_rail.h. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "prov/rail/tei_rail_base.h"
#include "util/err.h"

struct tei_rail_ops {
	/*
	 * Reports that a task has ended. Is called once per submitted task.
	 * From this call on, the task's memory belongs to the caller of
	 * tei_rail_submit again.
	 */
	void (*task_done)(struct tei_rail_task *task, enum tei_rail_end end,
			  const struct tei_err *err);
	/*
	 * Delivers a notification. The callee owns the notification, which
	 * counts against MOONRAIL_NOTIFY_BYTES and MOONRAIL_MAX_NOTIFIES until
	 * the callee calls tei_rail_notification_release.
	 */
	void (*notify)(void *arg, struct tei_rail_notification *note);
	/*
	 * Requests the peer's current contact addresses, because the peer does
	 * not answer at the addresses that the data plane knows. The callee
	 * looks them up on another thread and calls tei_rail_peer_resolved;
	 * without a result, no call is needed. The callee owns a reference to
	 * peer, which it drops with tei_rail_peer_put.
	 */
	void (*resolve)(void *arg, struct tei_rail_peer *peer);
	/* Reports that addresses of local rails have changed and must be
	 * published again. */
	void (*rails_changed)(void *arg);
	/*
	 * Reports that an interface, its link or an address of this host may
	 * have changed. The callee calls tei_rail_dp_devices_changed and
	 * tei_rail_dp_refresh from another thread. If NULL, the data plane
	 * keeps the rails that were found at the start.
	 */
	void (*devices_changed)(void *arg);
	/*
	 * Delivers a user message. The callee owns the message and frees it
	 * with tei_rail_message_free. This callback and the next one are NULL
	 * if tei_rail_send is not used.
	 */
	void (*message)(void *arg, struct tei_rail_message *message);
	/*
	 * Lets the owner of the data plane do its work for a peer. Is called on
	 * the progress thread when the peer's state has changed, after
	 * tei_rail_attend, or at the time that the last call returned. Returns
	 * the time at which it must be called again, or 0 if it need not be.
	 */
	uint64_t (*attend)(void *arg, struct tei_rail_peer *peer, uint64_t now);
};

struct tei_rail_dp_attr {
	const struct tei_settings *settings;	/* settings; must outlive the
						 * data plane */
	const struct tei_rail_ops *ops;		/* callbacks; must outlive the
						 * data plane */
	void *arg;				/* first argument of the
						 * callbacks in ops */
	const char *name;			/* name of this process; copied
						 * by tei_rail_dp_open */
	uint64_t incarnation;			/* incarnation of this
						 * process, not 0 */
	/* secret that signs the messages between peers; read only by
	 * tei_rail_dp_open. If NULL, any process may be a peer */
	const struct tei_secret *secret;
	uint64_t info_flags;			/* argument "flags" of the calls
						 * of fi_getinfo */
	uint16_t port;				/* port at which the first rx
						 * lane of each IP rail listens;
						 * 0 means any port */
	/* local memory of tasks must be registered only if tei_rail_wants
	 * returns TEI_RAIL_WANTS_LOCAL */
	bool any_local;
	bool back;				/* use reverse-path sends;
						 * useful if most messages are
						 * answered */
	/* report to each peer how many bytes this process has moved to and from
	 * it; the peer reads the numbers with tei_rail_served */
	bool reports;
};

/* Opens a data plane without rails. Returns 0 and sets *dp, which the caller
 * closes with tei_rail_dp_close. */
int tei_rail_dp_open(const struct tei_rail_dp_attr *attr, struct tei_err *err,
		     struct tei_rail_dp **dp);

/*
 * Waits up to drain_ns for the unfinished tasks, then stops calling
 * ops->resolve, ops->rails_changed and ops->devices_changed.
 */
void tei_rail_dp_quiesce(struct tei_rail_dp *dp, uint64_t drain_ns);

/*
 * Waits up to drain_ns for the unfinished tasks, stops the progress thread,
 * closes the rx lanes, sends BYE to the peers and ends the remaining tasks.
 * Frees nothing, so other calls may still run, but no data moves any longer.
 * Meant for a process that is about to end.
 */
void tei_rail_dp_leave(struct tei_rail_dp *dp, uint64_t drain_ns);

/* Calls tei_rail_dp_leave, then frees everything. No other call may be
 * running. */
void tei_rail_dp_close(struct tei_rail_dp *dp, uint64_t drain_ns);

/* Returns the transport that a name stands for: "rdma" for the names "efa" and
 * "cxi", which select one provider of this transport; for any other name, the
 * name itself. */
const char *tei_rail_transport_of(const char *name);

/*
 * Finds and opens the rails of one transport: "tcp", "rdma" or "shm", or "efa"
 * or "cxi" for rails of transport "rdma" with that provider. "devices" is a
 * comma-separated list of interfaces, RDMA devices or addresses; "" means all
 * devices that are usable. Registers all registered memory on the new rails.
 * Logs which devices could not be opened and why. Returns an error only if no
 * device could be opened.
 */
int tei_rail_dp_add_transport(struct tei_rail_dp *dp, const char *transport,
			      const char *devices, struct tei_err *err);

/*
 * Returns true if the interfaces of this host or their addresses have changed
 * since the last call.
 */
bool tei_rail_dp_devices_changed(struct tei_rail_dp *dp);

/*
 * Searches for devices of a transport again, with the arguments of
 * tei_rail_dp_add_transport. Opens rails for devices that have none, and
 * registers all registered memory on them.
 *
 * Replaces a rail in two cases: a fallback rail, such as loopback, when a rail
 * of a network exists; and a rail whose address this host no longer has, when
 * another rail on the same device exists. The replaced rail is no longer
 * published. It is closed as soon as no peer knows it, or at once if its
 * address is gone.
 *
 * Returns the flags below. If a device cannot be opened, logs the failure only
 * if the previous attempt to open this device did not fail.
 */
#define TEI_RAIL_REFRESHED	1u	/* the set of published rails has
					 * changed */
#define TEI_RAIL_REFRESH_AGAIN	2u	/* something is left to do:
					 * call again later */
uint32_t tei_rail_dp_refresh(struct tei_rail_dp *dp, const char *transport,
			     const char *devices);

/* Returns true if a device of the transport exists. "devices" lists the devices
 * to look for; if it is "", the devices that the settings name are looked for.
 * Opens nothing. info_flags: argument "flags" of fi_getinfo. */
bool tei_rail_transport_present(const struct tei_settings *settings,
				const char *transport, const char *devices,
				uint64_t info_flags);

/* Returns, as the flags below, what the rails that were opened so far require
 * of the memory that they access. */
#define TEI_RAIL_WANTS_LOCAL	1u	/* local memory of tasks must be
					 * registered */
#define TEI_RAIL_WANTS_PINNED	2u	/* registration pins memory, so
					 * it must be unregistered
					 * before it is unmapped */
uint32_t tei_rail_wants(struct tei_rail_dp *dp);

/* Waits up to drain_ns until all tasks have ended, then closes the transport's
 * rails. Returns 0, TEI_ERR_INVALID if the transport has no rail, or
 * TEI_ERR_BUSY if tasks still use it. */
int tei_rail_dp_remove_transport(struct tei_rail_dp *dp, const char *transport,
				 uint64_t drain_ns, struct tei_err *err);

/* The properties of a rail that topology discovery and descriptors need. */
struct tei_rail_desc {
	bool open;			/* the rail is open; a closed rail keeps
					 * its index */
	bool hidden;			/* another rail has replaced this rail,
					 * so that this rail must not be
					 * published */
	char name[64];
	char provider[32];
	char transport[16];
	char address_text[96];
	char pci[32];			/* PCI address such as "0000:81:00.0",
					 * or "" if unknown */
	char fabric[64];
	int numa;			/* NUMA node of the NIC, -1 if
					 * unknown */
	uint64_t speed_bps;		/* link speed, bits/s; 0 if unknown */
	struct tei_rail_addr addr;	/* current address of the rail's rx
					 * lane */
	/* address to publish: the contact address if this process listens at
	 * it, otherwise the same as addr. On IP networks this process listens
	 * at the contact address as long as the rail exists */
	struct tei_rail_addr known;
};

/* Returns the number of rails. Indices are stable while the data plane
 * lives. */
size_t tei_rail_count(struct tei_rail_dp *dp);
/* Fills desc for one rail. Returns 0, or an error if there is no such rail. */
int tei_rail_describe(struct tei_rail_dp *dp, size_t index,
		      struct tei_rail_desc *desc);

/* The same values as enum te_rail_state of moonrail.h. */
enum tei_rail_state {
	TEI_RAIL_UP,
	TEI_RAIL_SUSPECT,
	TEI_RAIL_DOWN,
	TEI_RAIL_PROBING,
};

struct tei_rail_stats {
	uint32_t state;			/* state of the rail, enum te_rail_state
					 * of moonrail.h */
	uint32_t lanes;
	uint64_t tx_bytes, rx_bytes, slices, retries, errors;
	uint64_t inflight_bytes, inflight_max, window;
	double rate;			/* measured rate at which the rail moves
					 * data, bytes/s */
	uint64_t state_changes;
};
int tei_rail_get_stats(struct tei_rail_dp *dp, size_t index,
		       struct tei_rail_stats *stats);

/*
 * Sets the priority matrix: NIC i of topo is the rail with the same name. topo
 * belongs to the caller and must outlive the data plane or the next call. If
 * topo is NULL, all rails are equal.
 */
void tei_rail_dp_set_topo(struct tei_rail_dp *dp, const struct tei_topo *topo);

#endif /* TEI_PROV_RAIL_TEI_RAIL_DP_H */
