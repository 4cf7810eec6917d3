/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_CONFIG_H
#define MOONRAIL_MOONCAKE_CONFIG_H

#include <cstddef>
#include <cstdint>

namespace mooncake {

/*
 * The members of Mooncake's configuration that programs read or set. moonrail
 * reads its settings from the environment (see moonrail(7)); values that a
 * program sets here have no effect.
 */
struct GlobalConfig {
	std::uint64_t max_mr_size = UINT64_C(1) << 40;	/* bytes */
	std::uint64_t max_seg_size = UINT64_C(1) << 40;	/* bytes */
	std::size_t slice_size = 65536;			/* bytes */
	std::uint16_t handshake_port = 12001;
	std::uint16_t rpc_min_port = 15000;
	std::uint16_t rpc_max_port = 17000;
	int retry_cnt = 9;
	std::int64_t slice_timeout = -1; /* seconds; -1 if not set */
	bool metacache = true;
	bool trace = false;
	bool use_ipv6 = false;
	bool ascend_use_fabric_mem = false;
	bool ascend_agent_mode = false;
	bool ascend_store_te_init = false;
	bool sunrise_use_device_mem = false;
};

inline GlobalConfig &globalConfig()
{
	static GlobalConfig config;
	return config;
}

} // namespace mooncake

#endif
