/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_MEMORY_LOCATION_H
#define MOONRAIL_MOONCAKE_MEMORY_LOCATION_H

#include <cstddef>
#include <string>
#include <vector>

#include "common.h"

namespace mooncake {

/* The location of memory that may be on any NUMA node. */
inline const std::string kWildcardLocation = "*";
/* The beginning of the location of memory that is spread over several nodes:
 * "segments:PAGE_SIZE:NODE,NODE,…" describes a buffer of as many equal parts as
 * there are nodes. */
inline const std::string kSegmentsLocationPrefix = "segments:";

struct SegmentsLocationInfo {
	std::size_t page_size;		/* bytes */
	std::vector<int> numa_nodes;	/* node of each part */
};

inline std::string buildSegmentsLocation(std::size_t page_size,
					 const std::vector<int> &numa_nodes)
{
	std::string text =
		kSegmentsLocationPrefix + std::to_string(page_size) + ":";
	const char *separator = "";

	for (int node : numa_nodes) {
		text += separator + std::to_string(node);
		separator = ",";
	}
	return text;
}

/* Parses a location that begins with "segments:". If the text is malformed,
 * returns false and leaves info unchanged. */
inline bool parseSegmentsLocation(const std::string &name,
				  SegmentsLocationInfo &info)
{
	SegmentsLocationInfo parsed;

	if (!name.starts_with(kSegmentsLocationPrefix))
		return false;
	std::string_view rest(name);
	rest.remove_prefix(kSegmentsLocationPrefix.size());
	auto colon = rest.find(':');
	if (colon == rest.npos)
		return false;
	auto page = parseFromString<std::size_t>(rest.substr(0, colon));
	if (!page || !*page)
		return false;
	parsed.page_size = *page;
	for (rest.remove_prefix(colon + 1);;) {
		auto comma = rest.find(',');
		auto node = parseFromString<int>(rest.substr(0, comma));
		if (!node || *node < 0)
			return false;
		parsed.numa_nodes.push_back(*node);
		if (comma == rest.npos)
			break;
		rest.remove_prefix(comma + 1);
	}
	info = parsed;
	return true;
}

/* Returns the location "cpu:NODE" of the byte at that offset in a buffer with a
 * "segments:" location. */
inline std::string resolveSegmentsLocation(const SegmentsLocationInfo &info,
					   std::uint64_t buffer_length,
					   std::uint64_t offset)
{
	std::size_t n = info.numa_nodes.size();
	std::uint64_t part = n ? buffer_length / n : 0;

	if (!part)
		return kWildcardLocation;
	std::size_t i = static_cast<std::size_t>(offset / part);
	return "cpu:" + std::to_string(info.numa_nodes[i < n ? i : n - 1]);
}

} // namespace mooncake

#endif
