/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_ENGINE_H
#define MOONRAIL_MOONCAKE_ENGINE_H

/*
 * The state that the classes of one engine share, and the conversions between
 * Mooncake's C++ types and moonrail's C types. Programs do not use this header.
 */
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <moonrail.h>

#include "common.h"
#include "common/base/status.h"

namespace mooncake::detail {

/*
 * The engine that the objects of TransferEngine, Transport, TransferMetadata
 * and Topology share. Created by TransferEngine and freed with the last of
 * these objects. The members before `lock` are set by one thread, before other
 * threads use the engine.
 */
struct engine {
	transfer_engine_t handle = nullptr; /* handle of the C engine;
					     * nullptr before init() */
	std::string metadata, server_name;
	std::vector<std::string> filter;  /* names of the NICs that may be
					   * used; empty: all */
	std::vector<std::string> applied; /* value of `filter` when the C engine
					   * was created */
	bool auto_discover = false;

	std::mutex lock;
	/* the members below are guarded by lock */
	/* names of the open segments */
	std::map<segment_id_t, std::string> names;
	/* start and length of registered buffers */
	std::map<std::uintptr_t, std::size_t> buffers;

	engine() = default;
	engine(const engine &) = delete;
	engine &operator=(const engine &) = delete;
	~engine() { destroy(); }

	/* Creates the C engine with the settings in the members above. Port 0
	 * means any port. Returns 0 or a negative code. */
	int create(std::uint32_t port)
	{
		std::string text = "MC_TE_FILTERS=";
		const char *separator = "";
		te_engine_options options = {};

		for (const std::string &name : filter) {
			text += separator + name;
			separator = ",";
		}
		const char *settings[] = { text.c_str() };
		options.metadata = metadata.c_str();
		options.server_name = server_name.c_str();
		options.port = port;
		options.auto_discover = auto_discover;
		options.settings = settings;
		options.settings_count = filter.empty() ? 0 : 1;
		applied = filter;
		return te_engine_create(&options, sizeof(options), &handle);
	}

	void destroy()
	{
		transfer_engine_t old = handle;

		handle = nullptr;
		if (old)
			destroyTransferEngine(old);
		std::lock_guard<std::mutex> guard(lock);
		names.clear();
		buffers.clear();
	}

	/* Returns "host:port" of the control channel. Returns "" before
	 * init(). */
	std::string address() const
	{
		char text[512] = "";

		getLocalIpAndPort(handle, text, sizeof(text));
		return text;
	}

	/* Returns the port of the control channel. Returns 0 before init(). */
	std::uint16_t port() const
	{
		std::string text = address();

		return getPortFromString(text.substr(text.rfind(':') + 1), 0);
	}

	/* Returns the topology in JSON. Before a transport is installed, the
	 * text is "{}". */
	std::string topology() const
	{
		int n = te_topology_text(handle, nullptr, 0);

		if (n < 0)
			return "{}";
		std::vector<char> text(static_cast<std::size_t>(n) + 1);
		te_topology_text(handle, text.data(), text.size());
		return text.data();
	}

	/* Opens a segment. If "again" is true, reads its descriptor again.
	 * Returns the id of the segment or -1. */
	segment_id_t open(const std::string &name, bool again = false)
	{
		auto call = again ? openSegmentNoCache : openSegment;
		segment_id_t id = call(handle, name.c_str());

		if (id >= 0) {
			std::lock_guard<std::mutex> guard(lock);
			names[id] = name;
		}
		return id;
	}

	/* Returns the name of the own segment or of a segment that was opened.
	 * Returns "" for any other id. */
	std::string name_of(segment_id_t id)
	{
		if (id == LOCAL_SEGMENT)
			return address();
		std::lock_guard<std::mutex> guard(lock);
		auto found = names.find(id);
		return found == names.end() ? "" : found->second;
	}

	std::vector<struct te_rail_stats> rails() const
	{
		std::vector<struct te_rail_stats> list;
		std::size_t n = 0;

		do {
			list.resize(n);
			if (::te_rail_stats(handle, list.data(),
					    sizeof(struct te_rail_stats), &n))
				n = 0;
		} while (n > list.size());
		list.resize(n);
		return list;
	}
};

/* Converts the id of a segment to its id in the C API. Returns -1 if the number
 * is too large for an id. */
inline segment_id_t segment(std::uint64_t id)
{
	return id <= INT32_MAX ? static_cast<segment_id_t>(id) : -1;
}

/* Converts a positive or negative code of the C library to a status. If the
 * calling thread's last error has the same code, the status has the message of
 * that error. */
inline Status status(int code)
{
	te_error error = {};
	std::string text;

	if (!code)
		return Status::OK();
	code = code < 0 ? -code : code;
	if (code == 303)
		code = 999;
	te_last_error(&error, sizeof(error));
	if (-error.code == code || (code == 999 && error.code == -303)) {
		text = error.text;
		if (error.hint[0])
			text += std::string("; ") + error.hint;
	}
	if (code == TE_TIMED_OUT)
		return Status::Clock(text);
	Status result(static_cast<Status::Code>(code), text);
	if (Status::CodeToString(result.code()) == "UnknownCode")
		return Status::Context(text);
	return result;
}

/* Returns the code of the calling thread's last error, which is negative.
 * Returns ERR_INVALID_ARGUMENT if the thread has had no error. */
inline int last_code()
{
	te_error error = {};

	te_last_error(&error, sizeof(error));
	return error.code < 0 ? error.code : ERR_INVALID_ARGUMENT;
}

/* Converts a notification to the form of the C API. The result refers to the
 * two strings. */
inline notify_msg_t notification(std::string &name, std::string &text)
{
	return { name.data(), text.data() };
}

/* Returns true if the C API can carry the notification, because neither text
 * contains a byte 0. */
inline bool notification_fits(const std::string &name, const std::string &text)
{
	return name.find('\0') == name.npos && text.find('\0') == text.npos;
}

} // namespace mooncake::detail

#endif
