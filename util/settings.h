/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef TEI_UTIL_SETTINGS_H
#define TEI_UTIL_SETTINGS_H

/*
 * Settings. Each setting is a row of one table: name, type, range, default,
 * help. In the structs below, the comment of each member names its setting (an
 * environment variable); the man page describes it. An engine reads its
 * settings once, from its own options or from the environment; afterwards they
 * are constant. A value that does not parse or is out of range is an error that
 * states the range. "make check-man" compares the table with the man page.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/err.h"

#define TEI_SETTING_TEXT	4096
#define TEI_SETTING_ROWS	112	/* at least the length of the table */

/* The origin of a value. */
enum tei_setting_source {
	TEI_SETTING_DEFAULT,
	TEI_SETTING_ENVIRONMENT,
	TEI_SETTING_ENGINE,		/* an option of te_engine_create */
};

/* Which devices become rails, and with which provider. */
struct tei_settings_rails {
	char filters[TEI_SETTING_TEXT];	/* MC_TE_FILTERS, comma list */
	char filters_exclude[TEI_SETTING_TEXT]; /* MC_TE_FILTERS_EXCLUDE */
	char devices[TEI_SETTING_TEXT];	/* MOONRAIL_DEVICES, comma list */
	char provider[64];		/* MOONRAIL_PROVIDER, "": automatic */
	char custom_topo[TEI_SETTING_TEXT]; /* MC_CUSTOM_TOPO_JSON, a file */
	bool force_tcp;			/* MC_FORCE_TCP */
	bool force_hca;			/* MC_FORCE_HCA */
	char data_ports[16];		/* MOONRAIL_DATA_PORTS, LOW-HIGH */
	uint16_t data_port_low;		/* data_ports as numbers; 0 means any
					 * port */
	uint16_t data_port_high;
	uint32_t ib_port;		/* MC_IB_PORT */
	int32_t gid_index;		/* MC_GID_INDEX, -1: automatic */
	uint32_t mtu;			/* MC_MTU, bytes */
};

/* Endpoints, their queues and connections. */
struct tei_settings_lanes {
	uint32_t per_rail;		/* MC_NUM_CQ_PER_CTX */
	uint32_t cq_size;		/* MC_MAX_CQE_PER_CTX */
	uint32_t max_conns;		/* MC_MAX_EP_PER_CTX, per rail */
	uint32_t max_sge;		/* MC_MAX_SGE */
	uint32_t max_wr;		/* MC_MAX_WR, posted per lane */
	uint32_t max_inline;		/* MC_MAX_INLINE, bytes */
	uint32_t comp_channels;		/* MC_NUM_COMP_CHANNELS_PER_CTX */
	uint32_t qp_per_ep;		/* MC_NUM_QP_PER_EP */
};

/* Slices, the choice of rails, and progress. */
struct tei_settings_sched {
	uint32_t slice_size;		/* MC_SLICE_SIZE, bytes */
	uint32_t slice_max;		/* MOONRAIL_SLICE_MAX, bytes */
	bool merge;			/* MOONRAIL_MERGE */
	bool small_first;		/* MOONRAIL_SMALL_FIRST */
	bool path_roundrobin;		/* MC_PATH_ROUNDROBIN */
	uint32_t spin_us;		/* MOONRAIL_SPIN_US, microseconds */
	char progress_cpus[256];	/* MOONRAIL_PROGRESS_CPUS */
};

/* Retries and time limits of transfers. */
struct tei_settings_failure {
	uint32_t retry_cnt;		/* MC_RETRY_CNT */
	uint32_t slice_timeout_s;	/* MC_SLICE_TIMEOUT, seconds */
	uint32_t transfer_timeout_s;	/* MC_TRANSFER_TIMEOUT, seconds; 0: no
					 * limit */
	uint32_t fence_ms;		/* MOONRAIL_FENCE_MS, milliseconds */
};

/* Registered memory. */
struct tei_settings_memory {
	uint64_t max_mr_size;		/* MC_MAX_MR_SIZE, bytes; 0: no limit */
	bool mr_local;			/* MOONRAIL_MR_LOCAL */
	bool gpu_direct;		/* MOONRAIL_GPU_DIRECT */
	bool no_gpu_direct;		/* MC_DISABLE_GPU_DIRECT_RDMA */
};

/* The control channel. */
struct tei_settings_control {
	uint32_t min_port;		/* MC_MIN_RPC_PORT */
	uint32_t max_port;		/* MC_MAX_RPC_PORT */
	uint32_t connect_timeout_s;	/* MC_HANDSHAKE_CONNECT_TIMEOUT */
	bool use_ipv6;			/* MC_USE_IPV6, for rails too */
	uint32_t listen_backlog;	/* MC_HANDSHAKE_LISTEN_BACKLOG */
	uint32_t handshake_max;		/* MC_HANDSHAKE_MAX_LENGTH, bytes */
	bool legacy_binding;		/* MC_LEGACY_RPC_PORT_BINDING */
	char bind_address[256];		/* MC_TCP_BIND_ADDRESS, "": choose */
	uint32_t max_clients;		/* MOONRAIL_MAX_CLIENTS, connections */
	uint32_t client_rate;		/* MOONRAIL_CLIENT_RATE, steps/s */
	char secret_file[TEI_SETTING_TEXT]; /* MOONRAIL_SECRET_FILE, for the
					     * rails too */
};

/* Metadata stores and the segment cache. */
struct tei_settings_store {
	bool no_segment_cache;		/* MC_DISABLE_METACACHE */
	char cluster_id[256];		/* MC_METADATA_CLUSTER_ID */
	char segment_dir[TEI_SETTING_TEXT]; /* MOONRAIL_SEGMENT_DIR */
	uint32_t zk_session_ms;		/* MOONRAIL_ZK_SESSION_MS */
	char zk_auth_file[TEI_SETTING_TEXT]; /* MOONRAIL_ZK_AUTH_FILE */
	char redis_user[256];		     /* MC_REDIS_USERNAME */
	char redis_password[1024];	/* MC_REDIS_PASSWORD, never shown */
	uint32_t redis_db;		/* MC_REDIS_DB_INDEX */
	char etcd_auth_file[TEI_SETTING_TEXT]; /* MOONRAIL_ETCD_AUTH_FILE */
	char ca_file[TEI_SETTING_TEXT];	       /* MOONRAIL_STORE_CA_FILE */
	char cert_file[TEI_SETTING_TEXT];      /* MOONRAIL_STORE_CERT_FILE */
	char key_file[TEI_SETTING_TEXT];       /* MOONRAIL_STORE_KEY_FILE */
	uint32_t lease_ms;		/* MOONRAIL_STORE_LEASE_MS */
	uint32_t poll_ms;		/* MOONRAIL_STORE_POLL_MS */
};

/* Copies on this host. */
struct tei_settings_copies {
	bool enabled;			/* MOONRAIL_LOCAL */
	uint32_t threads;		/* MOONRAIL_COPY_THREADS; 0: as many as
					 * the member workers says */
	uint32_t workers;		/* MC_WORKERS_PER_CTX; 0: the number of
					 * CPUs decides */
};

/* Files. */
struct tei_settings_files {
	char io[16];			/* MOONRAIL_FILE_IO */
	char sync[16];			/* MOONRAIL_FILE_SYNC */
	bool direct;			/* MOONRAIL_FILE_DIRECT */
	uint32_t depth;			/* MOONRAIL_FILE_DEPTH, operations */
	uint32_t threads;		/* MOONRAIL_FILE_THREADS */
};

struct tei_settings_limits {
	uint32_t max_peers;		/* MOONRAIL_MAX_PEERS */
	uint32_t max_notifies;		/* MOONRAIL_MAX_NOTIFIES, queued */
	uint64_t notify_bytes;		/* MOONRAIL_NOTIFY_BYTES, queued */
};

/* For te_settings_text only; util/log.c reads these variables itself. */
struct tei_settings_log {
	char level[32];			/* MC_LOG_LEVEL */
	char verbose[32];		/* MC_VERBOSE */
};

/*
 * Created by the engine, by value. Constant after tei_settings_load, so any
 * thread may read it.
 */
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
	/* enum tei_setting_source of each row of the table */
	uint8_t source[TEI_SETTING_ROWS];
};

enum tei_setting_type {
	TEI_SETTING_UINT,
	TEI_SETTING_SIZE,		/* uint64_t, with a suffix such as K */
	TEI_SETTING_INT,
	TEI_SETTING_BOOL,		/* 0/1, true/false, yes/no, on/off */
	TEI_SETTING_STRING,
};

struct tei_setting_row {
	const char *name;		/* environment variable */
	enum tei_setting_type type;
	size_t offset;			/* offset of the value in struct
					 * tei_settings, bytes */
	int64_t min, max;		/* range of a number; for a string, max
					 * is the greatest length */
	const char *def;		/* default value, as text */
	const char *unit;		/* "bytes", "s", "" */
	const char *help;		/* shown by te_info */
	bool unused;			/* the setting has no effect */
};

/* Returns the table of settings. *count gets the number of rows. */
const struct tei_setting_row *tei_settings_table(size_t *count);

/*
 * Reads the environment. Returns 0, or TEI_ERR_INVALID with err filled (name,
 * value and range) and *out untouched. An empty variable counts as unset. The
 * first call of a process also runs tei_settings_log_unknown.
 */
int tei_settings_load(struct tei_settings *out, struct tei_err *err);

/*
 * Does the same as tei_settings_load, and also reads `count` options of one
 * engine, each "NAME=VALUE". Options take precedence over the environment. An
 * empty value selects the default. If a name occurs twice, the last value
 * counts. Also returns TEI_ERR_INVALID for an entry that is NULL or malformed,
 * for an unknown name (the text contains the closest known one), and for a
 * setting that applies to the whole process.
 */
int tei_settings_load_options(struct tei_settings *out,
			      const char *const *options, size_t count,
			      struct tei_err *err);

/*
 * Logs each MC_ or MOONRAIL_ variable of the environment that is not in the
 * table. If Mooncake has the variable, logs the reason why it has no effect at
 * level info. Otherwise logs a warning with the closest name of the table.
 */
void tei_settings_log_unknown(void);

/*
 * Returns true if the user has set the setting of that name, in the environment
 * or for the engine, even to its default.
 */
bool tei_settings_given(const struct tei_settings *s, const char *name);

/* Returns the source of the value of a row of the table. */
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
