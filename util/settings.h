/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SETTINGS_H
#define TEI_UTIL_SETTINGS_H

/*
 * Settings. Each setting is a row of one table: name, type, range, default,
 * help. In the structs below, the comment of each member begins with the name
 * of its setting, which is also the name of an environment variable;
 * moonrail(7) describes the settings. An engine reads its settings once, from
 * its own options or from the environment; afterwards they are constant. A
 * value that does not parse or is out of range is an error, whose text states
 * the range. "make check-man" compares the table with the man page.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

#define TEI_SETTING_TEXT	4096
#define TEI_SETTING_ROWS	112	/* upper limit for the number of rows of
					 * the table of settings */

/* Where the value of a setting comes from. */
enum tei_setting_source {
	TEI_SETTING_DEFAULT,
	TEI_SETTING_ENVIRONMENT,
	TEI_SETTING_ENGINE,		/* an option of the engine
					 * (te_engine_create) */
};

/* Which devices become rails, and with which provider. */
struct tei_settings_rails {
	char filters[TEI_SETTING_TEXT];	/* MC_TE_FILTERS: comma list of the only
					 * devices that become rails */
	char filters_exclude[TEI_SETTING_TEXT]; /* MC_TE_FILTERS_EXCLUDE: comma
						 * list of devices that do not
						 * become rails */
	char devices[TEI_SETTING_TEXT];	/* MOONRAIL_DEVICES: comma list of
					 * devices or addresses to use as
					 * rails */
	char provider[64];		/* MOONRAIL_PROVIDER: libfabric provider
					 * of all rails; "" means automatic */
	char custom_topo[TEI_SETTING_TEXT]; /* MC_CUSTOM_TOPO_JSON: file with
					     * the priority matrix */
	bool force_tcp;			/* MC_FORCE_TCP: auto_discover installs
					 * tcp even if RDMA devices exist */
	bool force_hca;			/* MC_FORCE_HCA: auto_discover installs
					 * rdma or fails */
	char data_ports[16];		/* MOONRAIL_DATA_PORTS: LOW-HIGH, ports
					 * of tcp rails */
	uint16_t data_port_low;		/* the two numbers of data_ports; 0
					 * means any port */
	uint16_t data_port_high;
	uint32_t ib_port;		/* MC_IB_PORT: has no effect */
	int32_t gid_index;		/* MC_GID_INDEX: has no effect */
	uint32_t mtu;			/* MC_MTU: has no effect */
};

/* Endpoints, their queues and connections. */
struct tei_settings_lanes {
	uint32_t per_rail;		/* MC_NUM_CQ_PER_CTX: tx lanes per
					 * rail */
	uint32_t cq_size;		/* MC_MAX_CQE_PER_CTX: requested size of
					 * a completion queue, entries */
	uint32_t max_conns;		/* MC_MAX_EP_PER_CTX: most open
					 * connections per rail */
	uint32_t max_sge;		/* MC_MAX_SGE: most iov entries of one
					 * operation */
	uint32_t max_wr;		/* MC_MAX_WR: most operations in flight
					 * per lane */
	uint32_t max_inline;		/* MC_MAX_INLINE: has no effect */
	uint32_t comp_channels;		/* MC_NUM_COMP_CHANNELS_PER_CTX: has no
					 * effect */
	uint32_t qp_per_ep;		/* MC_NUM_QP_PER_EP: has no effect */
};

/* Slices, the choice of rails, and progress. */
struct tei_settings_sched {
	uint32_t slice_size;		/* MC_SLICE_SIZE: smallest slice of a
					 * bulk request, bytes */
	uint32_t slice_max;		/* MOONRAIL_SLICE_MAX: largest slice of
					 * a bulk request, bytes */
	bool merge;			/* MOONRAIL_MERGE: merge adjacent small
					 * requests */
	bool small_first;		/* MOONRAIL_SMALL_FIRST: bulk requests
					 * always leave room for small ones */
	bool path_roundrobin;		/* MC_PATH_ROUNDROBIN: use the peer's
					 * rails round-robin */
	uint32_t spin_us;		/* MOONRAIL_SPIN_US: how long the
					 * progress thread spins after activity,
					 * us */
	uint32_t progress_threads;	/* MC_WORKERS_PER_CTX: largest number
					 * of progress threads; 0: the numbers
					 * of rails and CPUs decide */
	uint32_t connections;		/* MOONRAIL_CONNECTIONS: largest number
					 * of connections of a rail pair for
					 * bulk data; 0: the number of CPUs
					 * decides */
	uint32_t connections_min;	/* MOONRAIL_CONNECTIONS_MIN: smallest
					 * number of these connections */
	char progress_cpus[256];	/* MOONRAIL_PROGRESS_CPUS: CPUs of the
					 * progress threads */
};

/* Retries and time limits of transfers. */
struct tei_settings_failure {
	uint32_t retry_cnt;		/* MC_RETRY_CNT: most retries of a slice
					 * after an error */
	uint32_t slice_timeout_s;	/* MC_SLICE_TIMEOUT: a task fails after
					 * this time without progress, s */
	uint32_t transfer_timeout_s;	/* MC_TRANSFER_TIMEOUT: deadline of a
					 * batch, s; 0 means no limit */
	uint32_t fence_ms;		/* MOONRAIL_FENCE_MS: time to wait for
					 * the answer to a fence, ms */
};

/* Registered memory. */
struct tei_settings_memory {
	uint64_t max_mr_size;		/* MC_MAX_MR_SIZE: largest region of one
					 * registration, bytes; 0 means the
					 * device's limit */
	bool mr_local;			/* MOONRAIL_MR_LOCAL: register local
					 * memory on all rails */
	bool gpu_direct;		/* MOONRAIL_GPU_DIRECT: access GPU
					 * memory directly */
	bool no_gpu_direct;		/* MC_DISABLE_GPU_DIRECT_RDMA: if true,
					 * gpu_direct has no effect */
};

/* The control channel. */
struct tei_settings_control {
	uint32_t min_port;		/* MC_MIN_RPC_PORT: lowest port of the
					 * control channel */
	uint32_t max_port;		/* MC_MAX_RPC_PORT: highest port of the
					 * control channel */
	uint32_t connect_timeout_s;	/* MC_HANDSHAKE_CONNECT_TIMEOUT: time
					 * limit of one request, s */
	bool use_ipv6;			/* MC_USE_IPV6: prefer IPv6 addresses,
					 * for rails too */
	uint32_t listen_backlog;	/* MC_HANDSHAKE_LISTEN_BACKLOG: backlog
					 * of the listening socket */
	uint32_t handshake_max;		/* MC_HANDSHAKE_MAX_LENGTH: largest
					 * accepted answer, bytes */
	bool legacy_binding;		/* MC_LEGACY_RPC_PORT_BINDING: bind the
					 * host and port in the server name */
	char bind_address[256];		/* MC_TCP_BIND_ADDRESS: address to bind
					 * and publish; "" means automatic */
	uint32_t max_clients;		/* MOONRAIL_MAX_CLIENTS: most
					 * connections to the control channel */
	uint32_t client_rate;		/* MOONRAIL_CLIENT_RATE: rate limit per
					 * client address, steps/s */
	char secret_file[TEI_SETTING_TEXT]; /* MOONRAIL_SECRET_FILE: file with
					     * the shared secret, for rails
					     * too */
};

/* Metadata stores and the segment cache. */
struct tei_settings_store {
	bool no_segment_cache;		/* MC_DISABLE_METACACHE: openSegment
					 * always reads the descriptor again */
	char cluster_id[256];		/* MC_METADATA_CLUSTER_ID: prefix of the
					 * keys in the store */
	char segment_dir[TEI_SETTING_TEXT]; /* MOONRAIL_SEGMENT_DIR: folder with
					     * the descriptors of file
					     * segments */
	uint32_t zk_session_ms;		/* MOONRAIL_ZK_SESSION_MS: ZooKeeper
					 * session timeout, ms */
	char zk_auth_file[TEI_SETTING_TEXT]; /* MOONRAIL_ZK_AUTH_FILE: file with
					      * user:password for ZooKeeper */
	char redis_user[256];		     /* MC_REDIS_USERNAME: user of the
					      * Redis server; "" means the
					      * default user */
	char redis_password[1024];	/* MC_REDIS_PASSWORD: password of the
					 * Redis server; never shown */
	uint32_t redis_db;		/* MC_REDIS_DB_INDEX: number of the
					 * Redis database */
	char etcd_auth_file[TEI_SETTING_TEXT]; /* MOONRAIL_ETCD_AUTH_FILE: file
						* with user:password for etcd */
	char ca_file[TEI_SETTING_TEXT];	       /* MOONRAIL_STORE_CA_FILE: PEM
						* file with the trusted
						* authorities */
	char cert_file[TEI_SETTING_TEXT];      /* MOONRAIL_STORE_CERT_FILE: PEM
						* file with the own
						* certificate */
	char key_file[TEI_SETTING_TEXT];       /* MOONRAIL_STORE_KEY_FILE: PEM
						* file with the private key */
	uint32_t lease_ms;		/* MOONRAIL_STORE_LEASE_MS: lease of the
					 * keys in the store, ms */
	uint32_t poll_ms;		/* MOONRAIL_STORE_POLL_MS: interval at
					 * which keys are read again, ms */
};

/* Copies on this host. */
struct tei_settings_copies {
	bool enabled;			/* MOONRAIL_LOCAL: auto_discover also
					 * installs copies on this host */
	uint32_t threads;		/* MOONRAIL_COPY_THREADS: most copy
					 * threads; 0 means that the number of
					 * CPUs decides */
	bool gpu_ipc;			/* MOONRAIL_GPU_IPC: the GPU copies from
					 * and to GPU memory of other
					 * processes */
};

/* Files. */
struct tei_settings_files {
	char io[16];			/* MOONRAIL_FILE_IO: uring, threads or
					 * auto */
	char sync[16];			/* MOONRAIL_FILE_SYNC: data, dsync or
					 * none */
	bool direct;			/* MOONRAIL_FILE_DIRECT: bypass the page
					 * cache */
	uint32_t depth;			/* MOONRAIL_FILE_DEPTH: most operations
					 * in flight */
	uint32_t threads;		/* MOONRAIL_FILE_THREADS: threads
					 * without io_uring */
};

struct tei_settings_limits {
	uint32_t max_peers;		/* MOONRAIL_MAX_PEERS: most peers that a
					 * data plane knows */
	uint32_t max_notifies;		/* MOONRAIL_MAX_NOTIFIES: most queued
					 * notifications */
	uint64_t notify_bytes;		/* MOONRAIL_NOTIFY_BYTES: most bytes of
					 * queued notifications */
};

/* The settings of the log. util/log.c reads the two variables itself; the
 * values here are only shown by te_settings_text. */
struct tei_settings_log {
	char level[32];			/* MC_LOG_LEVEL: level of the log */
	char verbose[32];		/* MC_VERBOSE: any value but 0 means
					 * debug */
};

/* All settings of one engine. The engine embeds the struct. The values are
 * constant after tei_settings_load, so any thread may read them. */
struct tei_settings {
	struct tei_settings_rails rails;
	struct tei_settings_lanes lanes;
	struct tei_settings_sched sched;
	struct tei_settings_failure failure;
	struct tei_settings_memory memory;
	struct tei_settings_control control;
	struct tei_settings_store store;
	struct tei_settings_copies copies;
	struct tei_settings_files files;
	struct tei_settings_limits limits;
	struct tei_settings_log log;
	/* the source of each setting, enum tei_setting_source, in the order of
	 * the rows of the table */
	uint8_t source[TEI_SETTING_ROWS];
};

enum tei_setting_type {
	TEI_SETTING_UINT,
	TEI_SETTING_SIZE,		/* uint64_t; the text may end with a
					 * suffix such as K */
	TEI_SETTING_INT,
	TEI_SETTING_BOOL,		/* bool; texts: 0/1, true/false, yes/no,
					 * on/off */
	TEI_SETTING_STRING,
};

struct tei_setting_row {
	const char *name;		/* name of the environment variable */
	enum tei_setting_type type;
	size_t offset;			/* offset of the value in struct
					 * tei_settings, bytes */
	int64_t min, max;		/* limits of a number; for a string, max
					 * is the greatest length, bytes */
	const char *def;		/* default value, as text */
	const char *unit;		/* unit of the value: "bytes", "s", …,
					 * or "" if it has none */
	const char *help;		/* description of the setting, which
					 * te_info shows */
	bool unused;			/* the setting has no effect */
};

/* Returns the table of settings. *count gets the number of rows. */
const struct tei_setting_row *tei_settings_table(size_t *count);

/*
 * Reads all settings from the environment. Returns 0. If a value is invalid,
 * returns TEI_ERR_INVALID, leaves *out unchanged and fills err with the name,
 * the value and the valid range. An empty variable counts as unset. The first
 * call of a process also runs tei_settings_log_unknown.
 */
int tei_settings_load(struct tei_settings *out, struct tei_err *err);

/*
 * Does what tei_settings_load does, and also reads the `count` options of one
 * engine, which have the form "NAME=VALUE". Options take precedence over the
 * environment. An empty value selects the default. If a name occurs twice, the
 * last value counts. Also returns TEI_ERR_INVALID for an entry that is NULL or
 * malformed, for an unknown name (the text contains the closest known one), and
 * for a setting that applies to the whole process.
 */
int tei_settings_load_options(struct tei_settings *out,
			      const char *const *options, size_t count,
			      struct tei_err *err);

/*
 * Logs each environment variable whose name begins with MC_ or MOONRAIL_ and is
 * not in the table. For a variable of Mooncake, logs at level info why it has
 * no effect. For any other, logs a warning with the closest name of the table.
 */
void tei_settings_log_unknown(void);

/*
 * Returns true if the user has set the setting of that name, in the environment
 * or for the engine, even to its default.
 */
bool tei_settings_given(const struct tei_settings *s, const char *name);

/* Returns where the value of the row's setting comes from. */
enum tei_setting_source tei_settings_source(const struct tei_settings *s,
					    const struct tei_setting_row *row);

/*
 * Writes the current value of the row's setting into buf as text. Returns true
 * if the user has set this setting (tei_settings_given).
 */
bool tei_settings_value(const struct tei_settings *s,
			const struct tei_setting_row *row, char *buf,
			size_t len);

/*
 * Logs, at level info, each setting that the user has set although it has no
 * effect, with the reason.
 */
void tei_settings_log_unused(const struct tei_settings *s);

#endif /* TEI_UTIL_SETTINGS_H */
