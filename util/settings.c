/* SPDX-License-Identifier: BSD-2-Clause */
#include "util/settings_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "util/log.h"

#define ROW_UINT(n, f, lo, hi, d, u, h) \
	{ n, TEI_SETTING_UINT, offsetof(struct tei_settings, f), lo, hi, d, u, h, \
	  false }
#define ROW_SIZE(n, f, lo, hi, d, u, h) \
	{ n, TEI_SETTING_SIZE, offsetof(struct tei_settings, f), lo, hi, d, u, h, \
	  false }
#define ROW_INT(n, f, lo, hi, d, u, h) \
	{ n, TEI_SETTING_INT, offsetof(struct tei_settings, f), lo, hi, d, u, h, \
	  false }
/* A row for a number that has an effect in Mooncake but none in moonrail. */
#define ROW_UINT_UNUSED(n, f, lo, hi, d, u, h) \
	{ n, TEI_SETTING_UINT, offsetof(struct tei_settings, f), lo, hi, d, u, \
	  "accepted for compatibility; " h, true }
#define ROW_INT_UNUSED(n, f, lo, hi, d, u, h) \
	{ n, TEI_SETTING_INT, offsetof(struct tei_settings, f), lo, hi, d, u, \
	  "accepted for compatibility; " h, true }
#define ROW_BOOL(n, f, d, h) \
	{ n, TEI_SETTING_BOOL, offsetof(struct tei_settings, f), 0, 1, d, "", h, \
	  false }
#define ROW_TEXT(n, f, d, h) \
	{ n, TEI_SETTING_STRING, offsetof(struct tei_settings, f), 0, \
	  sizeof(((struct tei_settings *)0)->f) - 1, d, "", h, false }

static const struct tei_setting_row settings_rows[] = {
	ROW_UINT("MC_NUM_CQ_PER_CTX", lanes.per_rail, 1, 16, "1", "",
		 "sending endpoints, each with a completion queue, per rail"),
	ROW_UINT_UNUSED("MC_NUM_COMP_CHANNELS_PER_CTX", lanes.comp_channels, 1,
			16, "1", "", "each lane has one wait object"),
	ROW_UINT_UNUSED("MC_IB_PORT", rails.ib_port, 1, 255, "1", "",
			"name the device in MOONRAIL_DEVICES"),
	ROW_INT_UNUSED("MC_GID_INDEX", rails.gid_index, -1, 255, "-1", "",
		       "the provider chooses"),
	ROW_UINT("MC_MAX_CQE_PER_CTX", lanes.cq_size, 64, 65536, "4096",
		 "entries", "requested size of a completion queue"),
	ROW_UINT("MC_MAX_EP_PER_CTX", lanes.max_conns, 1, 65536, "256", "",
		 "open connections per rail; at least 2"),
	ROW_UINT_UNUSED("MC_NUM_QP_PER_EP", lanes.qp_per_ep, 1, 16, "2", "",
			"the provider owns its queue pairs"),
	ROW_UINT("MC_MAX_SGE", lanes.max_sge, 1, 64, "4", "",
		 "iov entries of one posted operation, at most the provider's "
		 "limit and 16"),
	ROW_UINT("MC_MAX_WR", lanes.max_wr, 4, 16384, "256", "",
		 "operations in flight per endpoint, at most the size of the "
		 "provider's queue"),
	ROW_UINT_UNUSED("MC_MAX_INLINE", lanes.max_inline, 0, 4096, "64",
			"bytes", "inject sizes are the provider's choice"),
	ROW_SIZE("MC_MAX_MR_SIZE", memory.max_mr_size, 0, INT64_C(1) << 60, "0",
		 "bytes",
		 "largest memory region of one registration; 0: the device's "
		 "limit"),
	ROW_UINT_UNUSED("MC_MTU", rails.mtu, 256, 65536, "4096", "bytes",
			"the provider negotiates the MTU"),
	ROW_UINT("MC_WORKERS_PER_CTX", sched.progress_threads, 0, 16, "0", "",
		 "largest number of progress threads of an engine; 0: the number of rails, at "
		 "most a quarter of the CPUs, and at most 8"),
	ROW_UINT("MOONRAIL_CONNECTIONS", sched.connections, 0, 16, "0", "",
		 "largest number of tcp connections between two rails for large requests; 0: the "
		 "number of progress threads per rail, at most 4"),
	ROW_UINT("MOONRAIL_CONNECTIONS_MIN", sched.connections_min, 1, 16, "1",
		 "",
		 "smallest number of tcp connections between two rails for large requests"),
	ROW_UINT("MC_SLICE_SIZE", sched.slice_size, 4096, 67108864, "65536",
		 "bytes", "smallest slice of a large request"),
	ROW_UINT("MOONRAIL_SLICE_MAX", sched.slice_max, 4096, 1073741824,
		 "1048576", "bytes", "largest slice of a large request"),
	ROW_UINT("MC_RETRY_CNT", failure.retry_cnt, 0, 128, "9", "",
		 "retries of a slice after an error"),
	ROW_UINT("MC_SLICE_TIMEOUT", failure.slice_timeout_s, 1, 3600, "10",
		 "s", "a task fails if nothing has progressed for this long"),
	ROW_UINT("MC_TRANSFER_TIMEOUT", failure.transfer_timeout_s, 0, 86400,
		 "0", "s",
		 "deadline of a batch after its last submission, unless "
		 "te_batch_deadline sets one; 0: none"),
	ROW_BOOL("MC_PATH_ROUNDROBIN", sched.path_roundrobin, "0",
		 "use the peer's rails round-robin instead of the best "
		 "matching one"),
	ROW_UINT("MC_MIN_RPC_PORT", control.min_port, 1, 65535, "15000", "",
		 "lowest port of the control channel"),
	ROW_UINT("MC_MAX_RPC_PORT", control.max_port, 1, 65535, "17000", "",
		 "highest port of the control channel"),
	ROW_UINT("MC_HANDSHAKE_CONNECT_TIMEOUT", control.connect_timeout_s, 1,
		 3600, "5", "s",
		 "timeout of one request on the control channel, and of the "
		 "wait for the acknowledgement of a notification"),
	ROW_BOOL("MC_USE_IPV6", control.use_ipv6, "0",
		 "prefer IPv6 addresses for the control channel and rails"),
	ROW_UINT("MC_HANDSHAKE_LISTEN_BACKLOG", control.listen_backlog, 1,
		 65535, "4096", "", "listen backlog of the control channel"),
	ROW_UINT("MC_HANDSHAKE_MAX_LENGTH", control.handshake_max, 1048576,
		 134217728, "67108864", "bytes",
		 "largest accepted answer of a peer's control channel; a "
		 "descriptor has at most 64 MiB"),
	ROW_BOOL("MC_LEGACY_RPC_PORT_BINDING", control.legacy_binding, "0",
		 "with a metadata server: the control channel binds the host "
		 "and port in the server name"),
	ROW_BOOL("MC_DISABLE_METACACHE", store.no_segment_cache, "0",
		 "openSegment fetches the descriptor each time, as "
		 "openSegmentNoCache does"),
	ROW_TEXT("MC_TCP_BIND_ADDRESS", control.bind_address, "",
		 "address that the control channel binds and publishes"),
	ROW_TEXT("MC_METADATA_CLUSTER_ID", store.cluster_id, "",
		 "prefix of the keys in the metadata store"),
	ROW_UINT("MOONRAIL_ZK_SESSION_MS", store.zk_session_ms, 100, 3600000,
		 "10000", "ms",
		 "ZooKeeper session timeout, after which the nodes of a dead "
		 "process disappear"),
	ROW_TEXT("MOONRAIL_ZK_AUTH_FILE", store.zk_auth_file, "",
		 "file with user:password for ZooKeeper; only that user may "
		 "read or change the published nodes"),
	ROW_TEXT("MC_REDIS_USERNAME", store.redis_user, "",
		 "user of the metadata store on Redis; none: the default user"),
	ROW_TEXT("MC_REDIS_PASSWORD", store.redis_password, "",
		 "password of the metadata store on Redis"),
	ROW_UINT("MC_REDIS_DB_INDEX", store.redis_db, 0, 255, "0", "",
		 "number of the Redis database of the metadata store"),
	ROW_TEXT("MOONRAIL_ETCD_AUTH_FILE", store.etcd_auth_file, "",
		 "file with user:password for the metadata store on etcd"),
	ROW_TEXT("MOONRAIL_STORE_CA_FILE", store.ca_file, "",
		 "PEM file of the authorities that may sign the certificate of "
		 "the metadata server; etcd:// then uses TLS"),
	ROW_TEXT("MOONRAIL_STORE_CERT_FILE", store.cert_file, "",
		 "PEM file of this process's certificate for the metadata "
		 "server"),
	ROW_TEXT("MOONRAIL_STORE_KEY_FILE", store.key_file, "",
		 "PEM file of the private key of MOONRAIL_STORE_CERT_FILE"),
	ROW_UINT("MOONRAIL_STORE_LEASE_MS", store.lease_ms, 1000, 3600000,
		 "10000", "ms",
		 "lease of the keys in a metadata store other than ZooKeeper, "
		 "after which the keys of a dead process disappear"),
	ROW_UINT("MOONRAIL_STORE_POLL_MS", store.poll_ms, 50, 3600000, "2000",
		 "ms",
		 "interval at which keys are read again if the metadata store "
		 "does not report changes"),
	ROW_TEXT("MOONRAIL_SECRET_FILE", control.secret_file, "",
		 "file with the secret that all processes share; other "
		 "processes are refused"),
	ROW_TEXT("MOONRAIL_SEGMENT_DIR", store.segment_dir, "",
		 "with P2PHANDSHAKE: folder with the descriptors of file "
		 "segments"),
	ROW_UINT("MOONRAIL_MAX_CLIENTS", control.max_clients, 8, 65536, "1024",
		 "",
		 "connections to the control channel; one address may have a "
		 "quarter of them"),
	ROW_UINT("MOONRAIL_CLIENT_RATE", control.client_rate, 16, 1000000,
		 "896", "1/s",
		 "processing steps of the control channel per client address, "
		 "after a burst of 24 seconds' worth"),
	ROW_TEXT("MC_TE_FILTERS", rails.filters, "",
		 "comma list: only these interfaces or RDMA devices become "
		 "rails"),
	ROW_TEXT("MC_TE_FILTERS_EXCLUDE", rails.filters_exclude, "",
		 "comma list: these interfaces or RDMA devices do not become "
		 "rails; ignored if MC_TE_FILTERS is set"),
	ROW_TEXT("MC_CUSTOM_TOPO_JSON", rails.custom_topo, "",
		 "file with the priority matrix, instead of discovery"),
	ROW_BOOL("MC_FORCE_TCP", rails.force_tcp, "0",
		 "auto_discover installs tcp even where RDMA devices exist"),
	ROW_BOOL("MC_FORCE_HCA", rails.force_hca, "0",
		 "auto_discover installs rdma and fails if there is no RDMA "
		 "device; MC_FORCE_TCP takes precedence"),
	ROW_TEXT("MOONRAIL_DATA_PORTS", rails.data_ports, "",
		 "LOW-HIGH: ports on which the endpoints of tcp rails listen"),
	ROW_TEXT("MOONRAIL_PROVIDER", rails.provider, "",
		 "libfabric provider of all rails, for example tcp;ofi_rxm"),
	ROW_TEXT("MOONRAIL_DEVICES", rails.devices, "",
		 "comma list of interfaces, RDMA devices or addresses to use "
		 "as rails"),
	ROW_BOOL("MOONRAIL_MERGE", sched.merge, "1",
		 "small requests that are adjacent at source and target are "
		 "posted as one"),
	ROW_BOOL("MOONRAIL_SMALL_FIRST", sched.small_first, "0",
		 "bulk requests are always throttled for small ones, not only "
		 "while small ones are active"),
	ROW_BOOL("MOONRAIL_GPU_DIRECT", memory.gpu_direct, "1",
		 "access GPU memory directly, on rails that can and for files "
		 "with cuFile"),
	ROW_BOOL("MC_DISABLE_GPU_DIRECT_RDMA", memory.no_gpu_direct, "0",
		 "1 has the effect of MOONRAIL_GPU_DIRECT=0"),
	ROW_BOOL("MOONRAIL_MR_LOCAL", memory.mr_local, "0",
		 "register local memory on all rails, as if each required it"),
	ROW_BOOL("MOONRAIL_LOCAL", copies.enabled, "1",
		 "auto_discover also installs direct copies within the process "
		 "and the host"),
	ROW_UINT("MOONRAIL_COPY_THREADS", copies.threads, 0, 64, "0", "",
		 "maximum number of copy threads inside this host; 0: half "
		 "the CPUs of the process, 1 to 16"),
	ROW_BOOL("MOONRAIL_GPU_IPC", copies.gpu_ipc, "1",
		 "the GPU copies from and to GPU memory of other processes of "
		 "this host"),
	ROW_TEXT("MOONRAIL_FILE_IO", files.io, "auto",
		 "uring, threads, or auto: io_uring if available"),
	ROW_TEXT("MOONRAIL_FILE_SYNC", files.sync, "data",
		 "durability of a completed write to a file: data, dsync or "
		 "none"),
	ROW_BOOL("MOONRAIL_FILE_DIRECT", files.direct, "1",
		 "aligned parts bypass the page cache if the file allows it"),
	ROW_UINT("MOONRAIL_FILE_DEPTH", files.depth, 1, 1024, "64", "",
		 "file operations in flight in the kernel"),
	ROW_UINT("MOONRAIL_FILE_THREADS", files.threads, 1, 256, "16", "",
		 "threads that read and write files without io_uring"),
	ROW_UINT("MOONRAIL_SPIN_US", sched.spin_us, 0, 1000000, "50", "us",
		 "the progress thread spins this long after activity, then "
		 "sleeps"),
	ROW_TEXT("MOONRAIL_PROGRESS_CPUS", sched.progress_cpus, "",
		 "CPUs of the progress thread, such as 0-3,8; near: those of "
		 "its NICs' NUMA nodes"),
	ROW_UINT("MOONRAIL_FENCE_MS", failure.fence_ms, 10, 60000, "500", "ms",
		 "time to wait for a peer's answer to a fence"),
	ROW_UINT("MOONRAIL_MAX_PEERS", limits.max_peers, 1, 1048576, "16384",
		 "",
		 "known peers; a further one replaces the unused peer that has "
		 "been silent longest"),
	ROW_TEXT(
		"MC_LOG_LEVEL", log.level, "warn",
		"error, warn, info or debug, or 0 to 3; read once per process"),
	ROW_TEXT("MC_VERBOSE", log.verbose, "0",
		 "any value but 0 means debug; read once per process"),
	ROW_UINT("MOONRAIL_MAX_NOTIFIES", limits.max_notifies, 1, 1048576,
		 "4096", "",
		 "queued notifications for getNotifsFromEngine, and to one "
		 "peer; further ones wait at their sender"),
	ROW_SIZE("MOONRAIL_NOTIFY_BYTES", limits.notify_bytes, 1048576,
		 INT64_C(1) << 40, "67108864", "bytes",
		 "limit of these notifications in bytes of names and "
		 "messages"),
};

_Static_assert(sizeof(settings_rows) / sizeof(settings_rows[0]) <=
	       TEI_SETTING_ROWS, "TEI_SETTING_ROWS is too small");

const struct tei_setting_row *tei_settings_table(size_t *count)
{
	*count = sizeof(settings_rows) / sizeof(settings_rows[0]);
	return settings_rows;
}

static bool settings_parse_bool(const char *text, bool *out)
{
	static const char *const yes[] = { "1", "true", "yes", "on" };
	static const char *const no[] = { "0", "false", "no", "off" };
	size_t i;

	for (i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
		if (!strcasecmp(text, yes[i]) || !strcasecmp(text, no[i])) {
			*out = !strcasecmp(text, yes[i]);
			return true;
		}
	}
	return false;
}

/* Returns the factor that the suffix of a size stands for. Valid suffixes are
 * "", K, M, G and T in upper or lower case; a letter may be followed by iB.
 * Returns 0 for any other text. */
static int64_t settings_factor(const char *suffix)
{
	static const char units[] = "KkMmGgTt";
	const char *unit;

	if (!*suffix)
		return 1;
	unit = strchr(units, *suffix);
	if (!unit || (suffix[1] && strcmp(suffix + 1, "iB")))
		return 0;
	return INT64_C(1) << 10 * ((unit - units) / 2 + 1);
}

static bool settings_parse_int(const struct tei_setting_row *row,
			       const char *text, int64_t *out)
{
	long long v, factor = 1;
	char *end;

	if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
		return false;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || end == text)
		return false;
	if (!strcmp(row->unit, "bytes"))
		factor = settings_factor(end);
	else if (*end)
		return false;
	if (!factor || v > row->max / factor || v < row->min / factor)
		return false;
	v *= factor;
	if (v < row->min)
		return false;
	*out = v;
	return true;
}

static bool settings_store(struct tei_settings *s,
			   const struct tei_setting_row *row, const char *text)
{
	char *field = (char *)s + row->offset;
	int64_t v;
	bool b;

	switch (row->type) {
	case TEI_SETTING_UINT:
	case TEI_SETTING_SIZE:
	case TEI_SETTING_INT:
		if (!settings_parse_int(row, text, &v))
			return false;
		if (row->type == TEI_SETTING_UINT)
			*(uint32_t *)(void *)field = (uint32_t)v;
		else if (row->type == TEI_SETTING_SIZE)
			*(uint64_t *)(void *)field = (uint64_t)v;
		else
			*(int32_t *)(void *)field = (int32_t)v;
		return true;
	case TEI_SETTING_BOOL:
		if (!settings_parse_bool(text, &b))
			return false;
		*(bool *)(void *)field = b;
		return true;
	case TEI_SETTING_STRING:
		if (strlen(text) > (size_t)row->max)
			return false;
		strcpy(field, text);
		return true;
	}
	return false;
}

static int settings_reject(struct tei_err *err,
			   const struct tei_setting_row *row, const char *text)
{
	switch (row->type) {
	case TEI_SETTING_BOOL:
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", NULL,
				    "%s=%.32s: not one of 0, 1, true, false, yes, no, on, off",
				    row->name, text);
	case TEI_SETTING_STRING:
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", NULL,
				    "%s: longer than %lld characters",
				    row->name, (long long)row->max);
	default:
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", NULL,
				    "%s=%.32s: not a whole number from %lld to %lld%s",
				    row->name, text, (long long)row->min,
				    (long long)row->max,
				    strcmp(row->unit, "bytes") ? "" :
				    ", or a size such as 64K or 1M");
	}
}

/* Misspelled names that Mooncake also accepts, and the names that they stand
 * for. */
static const char *const settings_alias[][2] = {
	{ "MC_MIN_PRC_PORT", "MC_MIN_RPC_PORT" },
	{ "MC_MAX_PRC_PORT", "MC_MAX_RPC_PORT" },
};

const struct tei_setting_row *settings_find(const char *name, size_t len)
{
	size_t i, n = sizeof(settings_alias) / sizeof(settings_alias[0]);

	for (i = 0; i < n; i++) {
		if (strlen(settings_alias[i][0]) != len ||
		    strncmp(settings_alias[i][0], name, len))
			continue;
		name = settings_alias[i][1];
		len = strlen(name);
	}
	n = sizeof(settings_rows) / sizeof(settings_rows[0]);
	for (i = 0; i < n; i++)
		if (strlen(settings_rows[i].name) == len &&
		    !strncmp(settings_rows[i].name, name, len))
			return &settings_rows[i];
	return NULL;
}

/* Returns the text that the environment has for the row's setting, or NULL. */
static const char *settings_env(const struct tei_setting_row *row)
{
	size_t i, n = sizeof(settings_alias) / sizeof(settings_alias[0]);
	const char *text = getenv(row->name);

	for (i = 0; (!text || !*text) && i < n; i++)
		if (!strcmp(settings_alias[i][1], row->name))
			text = getenv(settings_alias[i][0]);
	return text && *text ? text : NULL;
}

/* Returns true for a setting that util/log.c reads once per process. */
static bool settings_of_process(const struct tei_setting_row *row)
{
	return row->offset == offsetof(struct tei_settings, log.level) ||
	       row->offset == offsetof(struct tei_settings, log.verbose);
}

static int settings_option(struct tei_settings *s, const char *option,
			   size_t number, struct tei_err *err)
{
	size_t len = option ? strcspn(option, "=") : 0;
	const struct tei_setting_row *row;
	const char *why, *text;
	char hint[TEI_ERR_TEXT];

	if (!len || !option[len])
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", NULL,
				    "option %zu: \"%.64s\" is not of the form NAME=VALUE",
				    number, option ? option : "NULL");
	row = settings_find(option, len);
	why = row ? NULL : settings_why_ignored(option, len);
	if (why) {
		TEI_INFO("settings", "%.*s has no effect: %s", (int)len,
			 option, why);
		return 0;
	}
	if (!row) {
		snprintf(hint, sizeof(hint), "the closest setting is %s",
			 settings_closest(option, len));
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", hint,
				    "option %zu: %.*s is not a setting",
				    number, len < 64 ? (int)len : 64, option);
	}
	if (settings_of_process(row))
		return tei_err_fail(err, TEI_ERR_INVALID, "settings",
				    "set it in the environment, or use te_set_log",
				    "option %zu: %s applies to the whole process, not to one engine",
				    number, row->name);
	text = option + len + 1;
	s->source[row - settings_rows] = *text ? TEI_SETTING_ENGINE :
						 TEI_SETTING_DEFAULT;
	if (!*text)
		text = row->def;
	return settings_store(s, row, text) ? 0 :
					      settings_reject(err, row, text);
}

/* Parses the port range LOW-HIGH in rails.data_ports and stores its two
 * numbers. */
static int settings_check_ports(struct tei_settings *s, struct tei_err *err)
{
	unsigned long low, high;
	char *end;

	if (!*s->rails.data_ports)
		return 0;
	low = strtoul(s->rails.data_ports, &end, 10);
	if (*s->rails.data_ports < '0' || *s->rails.data_ports > '9' ||
	    *end != '-' || end[1] < '0' || end[1] > '9')
		goto err_ports;
	high = strtoul(end + 1, &end, 10);
	if (*end || !low || low > high || high > UINT16_MAX)
		goto err_ports;
	s->rails.data_port_low = (uint16_t)low;
	s->rails.data_port_high = (uint16_t)high;
	return 0;
err_ports:
	return tei_err_fail(err, TEI_ERR_INVALID, "settings",
			    "for example MOONRAIL_DATA_PORTS=40000-40063",
			    "MOONRAIL_DATA_PORTS=%s: not two ports LOW-HIGH from 1 to 65535",
			    s->rails.data_ports);
}

/* Checks values that depend on each other, and computes the values that are
 * derived from others. */
static int settings_check(struct tei_settings *s, struct tei_err *err)
{
	if (!tei_log_level_valid(s->log.level))
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", NULL,
				    "MC_LOG_LEVEL=%.32s: not one of error, warn, info, debug, or from 0 to 3",
				    s->log.level);
	if (s->control.min_port > s->control.max_port)
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", NULL,
				    "MC_MIN_RPC_PORT=%u is above MC_MAX_RPC_PORT=%u",
				    s->control.min_port, s->control.max_port);
	if (s->sched.connections &&
	    s->sched.connections_min > s->sched.connections)
		return tei_err_fail(err, TEI_ERR_INVALID, "settings", NULL,
				    "MOONRAIL_CONNECTIONS_MIN=%u is above MOONRAIL_CONNECTIONS=%u",
				    s->sched.connections_min,
				    s->sched.connections);
	if (s->sched.slice_max < s->sched.slice_size)
		s->sched.slice_max = s->sched.slice_size;
	if (s->memory.no_gpu_direct)
		s->memory.gpu_direct = false;
	return settings_check_ports(s, err);
}

/* Logs unknown variables when it is called for the first time in this
 * process. */
static void settings_log_once(void)
{
	static bool logged;		/* atomic; true after the first call */

	if (!__atomic_exchange_n(&logged, true, __ATOMIC_RELAXED))
		tei_settings_log_unknown();
}

static bool settings_overridden(const struct tei_setting_row *row,
				const char *const *options, size_t count)
{
	size_t i, len;

	for (i = 0; i < count; i++) {
		len = options[i] ? strcspn(options[i], "=") : 0;
		if (len && settings_find(options[i], len) == row)
			return true;
	}
	return false;
}

int tei_settings_load_options(struct tei_settings *out,
			      const char *const *options, size_t count,
			      struct tei_err *err)
{
	struct tei_settings *s = calloc(1, sizeof(*s));
	size_t i, n = sizeof(settings_rows) / sizeof(settings_rows[0]);
	const char *text;
	int ret = 0;

	if (!s)
		return tei_err_fail(err, TEI_ERR_MEMORY, "settings", NULL,
				    "out of memory");
	settings_log_once();
	for (i = 0; i < n && !ret; i++) {
		text = settings_overridden(&settings_rows[i], options, count) ?
		       NULL : settings_env(&settings_rows[i]);
		s->source[i] = text ? TEI_SETTING_ENVIRONMENT :
				      TEI_SETTING_DEFAULT;
		if (!text)
			text = settings_rows[i].def;
		if (!settings_store(s, &settings_rows[i], text))
			ret = settings_reject(err, &settings_rows[i], text);
	}
	for (i = 0; i < count && !ret; i++)
		ret = settings_option(s, options[i], i, err);
	if (!ret)
		ret = settings_check(s, err);
	if (!ret)
		*out = *s;
	free(s);
	return ret;
}

int tei_settings_load(struct tei_settings *out, struct tei_err *err)
{
	return tei_settings_load_options(out, NULL, 0, err);
}

enum tei_setting_source tei_settings_source(const struct tei_settings *s,
					    const struct tei_setting_row *row)
{
	return (enum tei_setting_source)s->source[row - settings_rows];
}

bool tei_settings_given(const struct tei_settings *s, const char *name)
{
	const struct tei_setting_row *row = settings_find(name, strlen(name));

	return row && tei_settings_source(s, row) != TEI_SETTING_DEFAULT;
}

bool tei_settings_value(const struct tei_settings *s,
			const struct tei_setting_row *row, char *buf,
			size_t len)
{
	const char *field = (const char *)s + row->offset;

	switch (row->type) {
	case TEI_SETTING_UINT:
		snprintf(buf, len, "%u", *(const uint32_t *)(const void *)field);
		break;
	case TEI_SETTING_SIZE:
		snprintf(buf, len, "%llu", (unsigned long long)*
			 (const uint64_t *)(const void *)field);
		break;
	case TEI_SETTING_INT:
		snprintf(buf, len, "%d", *(const int32_t *)(const void *)field);
		break;
	case TEI_SETTING_BOOL:
		snprintf(buf, len, "%d", *(const bool *)(const void *)field);
		break;
	case TEI_SETTING_STRING:
		snprintf(buf, len, "%s", field);
		break;
	}
	return tei_settings_source(s, row) != TEI_SETTING_DEFAULT;
}

void tei_settings_log_unused(const struct tei_settings *s)
{
	size_t i, n = sizeof(settings_rows) / sizeof(settings_rows[0]);
	char value[TEI_SETTING_TEXT];

	for (i = 0; i < n; i++)
		if (settings_rows[i].unused &&
		    tei_settings_value(s, &settings_rows[i], value,
				       sizeof(value)))
			TEI_INFO("settings", "%s=%s has no effect: %s",
				 settings_rows[i].name, value,
				 settings_rows[i].help);
}
