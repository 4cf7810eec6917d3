/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_TOPOLOGY_H
#define MOONRAIL_MOONCAKE_TOPOLOGY_H

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#if __has_include(<jsoncpp/json/json.h>)
#include <jsoncpp/json/json.h>
#elif __has_include(<json/json.h>)
#include <json/json.h>
#endif

#include "common.h"
#include "moonrail_engine.h"

namespace mooncake {

/* The NICs for the memory at one location. */
struct TopologyEntry {
	std::string name; /* location, such as "cpu:0" */
	std::vector<std::string> preferred_hca;
	std::vector<std::string> avail_hca; /* the other NICs */

	bool operator==(const TopologyEntry &other) const = default;
};

using TopologyMatrix = std::unordered_map<std::string, TopologyEntry>;

namespace detail {

/* Parses {"location": [["NIC", …], ["NIC", …]], …}. */
class topology_parser {
public:
	explicit topology_parser(std::string_view text) : rest_(text) {}

	bool parse(TopologyMatrix &matrix)
	{
		if (!take('{'))
			return false;
		if (!take('}')) {
			do {
				TopologyEntry entry;

				if (!string(entry.name) || !take(':') ||
				    !lists(entry))
					return false;
				matrix[entry.name] = entry;
			} while (take(','));
			if (!take('}'))
				return false;
		}
		skip();
		return rest_.empty();
	}

private:
	void skip()
	{
		while (!rest_.empty() && std::strchr(" \t\r\n", rest_[0]))
			rest_.remove_prefix(1);
	}

	bool take(char c)
	{
		skip();
		if (rest_.empty() || rest_[0] != c)
			return false;
		rest_.remove_prefix(1);
		return true;
	}

	/* Parses a string. The only escape sequences that names may contain are
	 * \" and \\. */
	bool string(std::string &text)
	{
		if (!take('"'))
			return false;
		for (; !rest_.empty(); rest_.remove_prefix(1)) {
			if (rest_[0] == '"') {
				rest_.remove_prefix(1);
				return true;
			}
			if (rest_[0] == '\\')
				rest_.remove_prefix(1);
			if (!rest_.empty())
				text += rest_[0];
			else
				break;
		}
		return false;
	}

	bool list(std::vector<std::string> &names)
	{
		if (!take('['))
			return false;
		if (take(']'))
			return true;
		do {
			names.emplace_back();
			if (!string(names.back()))
				return false;
		} while (take(','));
		return take(']');
	}

	bool lists(TopologyEntry &entry)
	{
		return take('[') && list(entry.preferred_hca) && take(',') &&
		       list(entry.avail_hca) && take(']');
	}

	std::string_view rest_;
};

} // namespace detail

/*
 * The NICs of this host and their distances to memory. The object of an engine
 * (TransferEngine::getLocalTopology) also determines the NICs of transports
 * that are installed later: discover(filter) limits the NICs that are used, and
 * parse(text) sets which of them are preferred for each location. Used by one
 * thread at a time.
 */
class Topology {
public:
	Topology() = default;

	bool empty() const { return matrix_.empty(); }

	void clear()
	{
		matrix_.clear();
		hca_list_.clear();
		parsed_ = false;
	}

	int discover() { return discover({}); }

	/*
	 * Reads the topology of the NICs of this host whose names are in
	 * filter; an empty filter means all NICs. If the engine has no
	 * transport yet, opens the rails for this purpose and closes them
	 * again. Returns 0 or a negative code.
	 */
	int discover(const std::vector<std::string> &filter)
	{
		std::shared_ptr<detail::engine> owner = engine_.lock();
		std::string text;
		int ret;

		if (owner && !filter.empty())
			owner->filter = filter;
		if (owner && owner->handle)
			text = owner->topology();
		if (text.empty() || text == "{}") {
			detail::engine other;

			other.metadata = "P2PHANDSHAKE";
			other.server_name = "127.0.0.1";
			other.auto_discover = true;
			other.filter = filter;
			ret = other.create(0);
			if (ret)
				return ret;
			text = other.topology();
		}
		ret = parse(text);
		parsed_ = false;
		if (!ret && !filter.empty())
			keep(filter);
		return !ret && hca_list_.empty() ? ERR_DEVICE_NOT_FOUND : ret;
	}

	/* Replaces the topology by the one in the JSON text. Returns 0. If the
	 * text is malformed, returns ERR_MALFORMED_JSON and changes nothing. */
	int parse(const std::string &topology_json)
	{
		detail::topology_parser parser(topology_json);
		TopologyMatrix matrix;

		if (!parser.parse(matrix))
			return ERR_MALFORMED_JSON;
		matrix_ = std::move(matrix);
		parsed_ = true;
		list();
		return 0;
	}

	/* Removes a NIC from the topology. Returns 0, or
	 * ERR_DEVICE_NOT_FOUND. */
	int disableDevice(const std::string &device_name)
	{
		std::size_t n = 0;

		for (auto &one : matrix_) {
			n += std::erase(one.second.preferred_hca, device_name);
			n += std::erase(one.second.avail_hca, device_name);
		}
		list();
		parsed_ = parsed_ || n;
		return n ? 0 : ERR_DEVICE_NOT_FOUND;
	}

	/* Returns the topology in JSON. */
	std::string toString() const
	{
		std::string text = "{";
		const char *separator = "";

		for (const auto &one : matrix_) {
			text += separator + quote(one.first) + ": [" +
				quote(one.second.preferred_hca) + ", " +
				quote(one.second.avail_hca) + "]";
			separator = ", ";
		}
		return text + "}";
	}

	bool operator==(const Topology &other) const
	{
		return matrix_ == other.matrix_;
	}

	TopologyMatrix getMatrix() const { return matrix_; }

	/* Returns the names of all NICs, sorted. */
	const std::vector<std::string> &getHcaList() const
	{
		return hca_list_;
	}

private:
	friend class TransferEngine;

	static std::string quote(const std::string &name)
	{
		std::string text = "\"";

		for (char c : name) {
			if (c == '"' || c == '\\')
				text += '\\';
			text += c;
		}
		return text + "\"";
	}

	static std::string quote(const std::vector<std::string> &names)
	{
		std::string text = "[";
		const char *separator = "";

		for (const std::string &name : names) {
			text += separator + quote(name);
			separator = ", ";
		}
		return text + "]";
	}

	/* Removes the NICs whose names are not in the list. */
	void keep(const std::vector<std::string> &names)
	{
		auto other = [&](const std::string &name) {
			return std::find(names.begin(), names.end(), name) ==
			       names.end();
		};

		for (auto &one : matrix_) {
			std::erase_if(one.second.preferred_hca, other);
			std::erase_if(one.second.avail_hca, other);
		}
		list();
	}

	void list()
	{
		hca_list_.clear();
		for (const auto &one : matrix_)
			for (auto names : { &one.second.preferred_hca,
					    &one.second.avail_hca })
				hca_list_.insert(hca_list_.end(),
						 names->begin(), names->end());
		std::sort(hca_list_.begin(), hca_list_.end());
		hca_list_.erase(std::unique(hca_list_.begin(),
					    hca_list_.end()),
				hca_list_.end());
	}

	TopologyMatrix matrix_;
	std::vector<std::string> hca_list_;
	std::weak_ptr<detail::engine> engine_; /* set only in the topology
						* object of an engine */
	bool parsed_ = false; /* the program has set or changed matrix_ by
			       * parse() or disableDevice() */
};

} // namespace mooncake

#endif
