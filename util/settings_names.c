/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of environment variables that are not in the table of settings:
 * Mooncake's variables that have no effect in moonrail, each with the reason,
 * and unknown names, for which the closest known name is found. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/log.h"
#include "util/settings_int.h"

#define NAMES_MAX	64	/* longest name that is compared, bytes */

#define WHY_STORE	"belongs to Mooncake Store"
#define WHY_TENT	"chooses or configures Mooncake's second engine"
#define WHY_POOL	"the provider owns the TCP connections"
#define WHY_GPU		"belongs to a GPU transport of Mooncake; see MOONRAIL_GPU_DIRECT"
#define WHY_MEMORY	"chooses a memory transport that moonrail does not have"
#define WHY_LOG		"the log goes to standard error or to te_set_log"
#define WHY_TOOL	"is read by Mooncake's own programs and tests"

/* Variables of Mooncake that have no effect in moonrail, each with the reason.
 * A name that ends in '*' stands for all names with that beginning. */
static const struct {
	const char *name, *why;
} names_ignored[] = {
	{ "MC_AUTO_GID_MAX_RETRIES", "the provider chooses the GID" },
	{ "MC_BENCH_PROMOTION_LATENCY", WHY_TOOL },
	{ "MC_CONN_PAUSE_TTL_MS",
	  "probes determine when a rail or a connection is used again" },
	{ "MC_CXL_DEV_PATH", WHY_MEMORY },
	{ "MC_CXL_DEV_SIZE", WHY_MEMORY },
	{ "MC_DISABLE_HIP", WHY_GPU },
	{ "MC_DISABLE_MACA", WHY_GPU },
	{ "MC_DISABLE_MMAP_ARENA", WHY_STORE },
	{ "MC_DISABLE_MUSA", WHY_GPU },
	{ "MC_EFA_CQ_THREADS", "progress threads serve all rails" },
	{ "MC_EFA_NIC_SELECTION",
	  "memory is registered with all rails; the topology chooses" },
	{ "MC_ENABLE_DEST_DEVICE_AFFINITY",
	  "the best matching rail of the peer is always preferred" },
	{ "MC_ENABLE_HCA_PEER_AFFINITY",
	  "the best matching rail of the peer is always preferred" },
	{ "MC_ENABLE_MNNVL", WHY_GPU },
	{ "MC_ENABLE_PARALLEL_REG_MR",
	  "a large buffer is always registered on several rails in parallel" },
	{ "MC_ENDPOINT_STORE_TYPE", "connections are always evicted by SIEVE" },
	{ "MC_FILEREAD_WORKERS", WHY_STORE },
	{ "MC_FORCE_MNNVL", WHY_GPU },
	{ "MC_FORCE_MUSA", WHY_GPU },
	{ "MC_FRAGMENT_RATIO", "the measured rate sizes the last slice" },
	{ "MC_HANDSHAKE_PORT",
	  "the control channel uses MC_MIN_RPC_PORT to MC_MAX_RPC_PORT" },
	{ "MC_HIP_*", WHY_GPU },
	{ "MC_IB_PCI_RELAXED_ORDERING",
	  "the provider chooses the access flags of a registration" },
	{ "MC_IB_SL",
	  "libfabric's verbs provider has no setting for the service level; "
	  "the subnet manager or the rdma_cm configuration sets it" },
	{ "MC_IB_TC",
	  "libfabric's verbs provider has no setting for the traffic class; "
	  "set rdma_cm's default_roce_tos for the device" },
	{ "MC_INITIATOR_*", WHY_TOOL },
	{ "MC_INTRANODE_NVLINK", WHY_GPU },
	{ "MC_INTRA_NVLINK", WHY_GPU },
	{ "MC_LOCAL_SERVER_NAME", WHY_TOOL },
	{ "MC_LOG_DIR", WHY_LOG },
	{ "MC_LOG_RDMA_SLICE_AFFINITY", "te_segment_paths shows the routes" },
	{ "MC_MACA_*", WHY_GPU },
	{ "MC_MASTER_ADDR", WHY_STORE },
	{ "MC_MAX_CONCURRENT_REG_MR",
	  "the calling thread registers all buffers of a list" },
	{ "MC_METADATA_SERVER", WHY_TOOL },
	{ "MC_MIN_REG_SIZE", "belongs to Mooncake's barex transport" },
	{ "MC_MLX5_QP_LAG_PORT_BALANCE", "the provider owns its queue pairs" },
	{ "MC_MLX5_QP_UDP_SPORTS", "the provider owns its queue pairs" },
	{ "MC_MMAP_ARENA_POOL_SIZE", WHY_STORE },
	{ "MC_MS_*", WHY_STORE },
	{ "MC_MUSA_*", WHY_GPU },
	{ "MC_NIC_PEER_AFFINITY",
	  "the best matching rail of the peer is always preferred" },
	{ "MC_NOF_*", WHY_STORE },
	{ "MC_NVME_*", WHY_STORE },
	{ "MC_PKEY_INDEX",
	  "libfabric's verbs provider has no setting for the index; name the "
	  "interface of the partition, such as ib0.8001, in MOONRAIL_DEVICES" },
	{ "MC_RDMA_BIND_ADDRESS",
	  "rails publish their own addresses; see MOONRAIL_DEVICES" },
	{ "MC_RDMA_RAIL_PAUSE_SECONDS",
	  "probes determine when a rail or a connection is used again" },
	{ "MC_RPC_*", WHY_STORE },
	{ "MC_RUST_*", WHY_TOOL },
	{ "MC_STORE_*", WHY_STORE },
	{ "MC_TANGRT_*", WHY_GPU },
	{ "MC_TARGET_*", WHY_TOOL },
	{ "MC_TCP_ADMISSION_TIMEOUT_MS", WHY_POOL },
	{ "MC_TCP_ENABLE_CONNECTION_POOL", WHY_POOL },
	{ "MC_TCP_LANES_PER_PEER", WHY_POOL },
	{ "MC_TCP_MAX_CONNECTIONS_PER_PEER", WHY_POOL },
	{ "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER", WHY_POOL },
	{ "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", WHY_POOL },
	{ "MC_TCP_PROTO", "writes are always acknowledged by the target" },
	{ "MC_TCP_SLICE_SIZE", "MC_SLICE_SIZE applies to all transports" },
	{ "MC_TCP_STATUS_TIMEOUT_SEC", "see MC_SLICE_TIMEOUT" },
	{ "MC_TENT_*", WHY_TENT },
	{ "MC_TEST_*", WHY_TOOL },
	{ "MC_TE_METADATA_REFRESH_INTERVAL_SECONDS",
	  "changes of a descriptor are detected without polling" },
	{ "MC_TE_METRIC", "te_info --watch and te_rail_stats show rates" },
	{ "MC_TE_METRIC_INTERVAL_SECONDS",
	  "te_info --watch and te_rail_stats show rates" },
	{ "MC_TE_RPC_CLIENT_IO_THREADS",
	  "one thread serves the control channel" },
	{ "MC_TPU_PJRT_LIB", WHY_GPU },
	{ "MC_TRACK_RDMA_POSTED_SLICES",
	  "the error record of a task names the stuck slices" },
	{ "MC_UBSHMEM_*", WHY_MEMORY },
	{ "MC_USE_HIP_IPC", WHY_GPU },
	{ "MC_USE_NVLINK_IPC", WHY_GPU },
	{ "MC_USE_TENT", WHY_TENT },
	{ "MC_USE_TEV1", WHY_TENT },
	{ "MC_USE_UBSHMEM_IPC", WHY_MEMORY },
	{ "MC_YLT_LOG_LEVEL", WHY_LOG },
};

/* Variables of other programs (Midnight Commander, the MinIO client), which are
 * not reported as unknown. */
static const char *const names_foreign[] = {
	"MC_COLOR_TABLE", "MC_CONFIG_*", "MC_DATADIR", "MC_EXT_*", "MC_HOME",
	"MC_HOST_*", "MC_KEYMAP", "MC_LIBDIR", "MC_PROFILE_ROOT", "MC_SID",
	"MC_SKIN", "MC_TMPDIR", "MC_USER", "MC_XDG_*",
};

static bool names_match(const char *pattern, const char *name, size_t len)
{
	size_t n = strlen(pattern);

	if (n && pattern[n - 1] == '*')
		return len >= n - 1 && !strncmp(pattern, name, n - 1);
	return len == n && !strncmp(pattern, name, n);
}

const char *settings_why_ignored(const char *name, size_t len)
{
	size_t i, n = sizeof(names_ignored) / sizeof(names_ignored[0]);

	for (i = 0; i < n; i++)
		if (names_match(names_ignored[i].name, name, len))
			return names_ignored[i].why;
	return NULL;
}

const char *settings_ignored(size_t n)
{
	return n < sizeof(names_ignored) / sizeof(names_ignored[0]) ?
	       names_ignored[n].name : NULL;
}

static bool names_other_program(const char *name, size_t len)
{
	size_t i, n = sizeof(names_foreign) / sizeof(names_foreign[0]);

	for (i = 0; i < n; i++)
		if (names_match(names_foreign[i], name, len))
			return true;
	return false;
}

/* Returns the Levenshtein distance of two names a and b of na and nb bytes, at
 * most NAMES_MAX each. */
static size_t names_distance(const char *a, size_t na, const char *b, size_t nb)
{
	size_t row[NAMES_MAX + 1], i, j, above, corner, best;

	for (j = 0; j <= nb; j++)
		row[j] = j;
	for (i = 1; i <= na; i++) {
		corner = row[0];
		row[0] = i;
		for (j = 1; j <= nb; j++) {
			above = row[j];
			best = corner + (a[i - 1] != b[j - 1]);
			if (above + 1 < best)
				best = above + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
			corner = above;
		}
	}
	return row[nb];
}

static size_t names_common(const char *a, size_t na, const char *b)
{
	size_t n = 0;

	while (n < na && a[n] == b[n])
		n++;
	return n;
}

/* Among several names at the same distance, chooses the one that has the most
 * first characters in common with name. */
const char *settings_closest(const char *name, size_t len)
{
	const struct tei_setting_row *rows;
	size_t i, n, d, common, longest = 0, best = SIZE_MAX;
	const char *closest = "";

	if (len > NAMES_MAX)
		len = NAMES_MAX;
	rows = tei_settings_table(&n);
	for (i = 0; i < n; i++) {
		d = names_distance(name, len, rows[i].name,
				   strlen(rows[i].name));
		common = names_common(name, len, rows[i].name);
		if (d < best || (d == best && common > longest)) {
			best = d;
			longest = common;
			closest = rows[i].name;
		}
	}
	return closest;
}

/* Logs one variable of the environment if it is not a setting and its name
 * begins with MC_ or MOONRAIL_. */
static void names_check(const char *name, size_t len)
{
	const char *why;

	if (strncmp(name, "MC_", 3) && strncmp(name, "MOONRAIL_", 9))
		return;
	if (settings_find(name, len) || names_other_program(name, len))
		return;
	why = settings_why_ignored(name, len);
	if (why)
		TEI_INFO("settings", "%.*s has no effect: %s", (int)len, name,
			 why);
	else
		TEI_WARN("settings",
			 "%.*s in the environment is not a setting; the closest setting is %s",
			 (int)len, name, settings_closest(name, len));
}

void tei_settings_log_unknown(void)
{
	char **e;

	for (e = environ; e && *e; e++)
		if (strchr(*e, '='))
			names_check(*e, strcspn(*e, "="));
}
