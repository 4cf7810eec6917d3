/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_HPP
#define MOONRAIL_HPP

/*
 * The C++ interface of moonrail: handles that free themselves, std::chrono time
 * limits, errors as std::error_code or as exceptions, std::future, and with
 * C++20 an awaitable. The interface consists of this header. It needs C++17 or
 * later, and no library other than the C library (-lmoonrail). docs/BINDINGS.md
 * lists the C functions that it leaves out.
 *
 * Errors. Each function that may fail has two forms. One form has a last
 * argument of the type std::error_code&; it sets this argument and throws
 * nothing. The other form throws moonrail::error, which has the fields of the C
 * library's error record.
 *
 * Threads. All functions of the class engine are thread-safe, except the move
 * operations and the destructor. An object of another class must be used by one
 * thread at a time, unless its comment says otherwise.
 *
 * Lifetime. An object must not outlive its engine. Memory that a transfer uses
 * must stay valid until the transfer has ended; the destructor of transfer
 * cancels the requests that have not ended, and waits for their end.
 *
 * No exception passes through a frame of the C library. Only one function of
 * this header is called by the library: the log callback of set_log. It catches
 * all exceptions.
 */

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__cpp_impl_coroutine)
#include <coroutine>
#endif

#include <moonrail.h>

namespace moonrail {

/* --- errors -------------------------------------------------------------- */

/* The std::error_category of the C library's codes. The codes are positive
 * numbers. */
class category_type final : public std::error_category {
public:
	const char *name() const noexcept override { return "moonrail"; }

	std::string message(int code) const override
	{
		switch (code) {
		case 1: return "invalid argument";
		case 2: return "too many requests";
		case 3: return "address not registered";
		case 4: return "batch busy";
		case 6: return "device not found";
		case 7: return "address overlaps a registered range";
		case 8: return "transport not supported";
		case TE_TIMED_OUT: return "timed out";
		case TE_CANCELED: return "canceled";
		case 101: return "name resolution error";
		case 102: return "socket error";
		case 103: return "malformed descriptor";
		case 104: return "peer refused";
		case 200: return "metadata error";
		case 201: return "endpoint error";
		case 202: return "context error";
		case 300: return "NUMA error";
		case 302: return "out of memory";
		default: return "code " + std::to_string(code);
		}
	}
};

inline const std::error_category &category() noexcept
{
	static const category_type one;
	return one;
}

/* Converts a positive or negative code of the C library to an error code. */
inline std::error_code make_code(int code) noexcept
{
	return { code < 0 ? -code : code, category() };
}

/* A failed call or a failed transfer. */
class error : public std::system_error {
public:
	error(std::error_code code, const te_error &record)
		: std::system_error(code, text_of(record)), record_(record)
	{
	}

	/* Returns the error record with the members rail, peer, provider, text
	 * and hint. */
	const te_error &record() const noexcept { return record_; }

	/* Returns true if bytes of the transfer may still arrive at the
	 * target. */
	bool unfenced() const noexcept
	{
		return record_.flags & TE_ERROR_UNFENCED;
	}

	/* Returns true if it is unknown whether the operation was executed. */
	bool unknown() const noexcept
	{
		return record_.flags & TE_ERROR_UNKNOWN;
	}

	/* Returns true if this process's copy of the segment's descriptor is
	 * stale (TE_ERROR_STALE). */
	bool stale() const noexcept { return record_.flags & TE_ERROR_STALE; }

private:
	static std::string text_of(const te_error &record)
	{
		std::string text = record.text;

		if (record.hint[0])
			text += std::string("; ") + record.hint;
		return text;
	}

	te_error record_;
};

namespace detail {

/* Returns the last error of the calling thread. */
inline te_error last()
{
	te_error record = {};

	te_last_error(&record, sizeof(record));
	return record;
}

/* Throws moonrail::error with this error code. Its record is the thread's last
 * error if the code is one of the C library; otherwise the record has code -1
 * and the message of the error code as text. */
[[noreturn]] inline void raise(std::error_code code)
{
	te_error record = {};

	if (code.category() == category())
		throw error(code, last());
	record.code = -1;
	code.message().copy(record.text, sizeof(record.text) - 1);
	throw error(code, record);
}

/* Returns the error code for an argument that a function of this header
 * refuses. */
inline std::error_code invalid_argument() noexcept
{
	return std::make_error_code(std::errc::invalid_argument);
}

/* Calls the function with an error code as argument. If the function sets the
 * error code, throws it as an exception. */
template <typename F> auto throwing(F &&call)
{
	std::error_code code;

	if constexpr (std::is_void_v<decltype(call(code))>) {
		call(code);
		if (code)
			raise(code);
	} else {
		auto result = call(code);
		if (code)
			raise(code);
		return result;
	}
}

/* Converts a time limit to microseconds for the C library. Returns -1 (no
 * limit) for the largest value. */
template <typename Rep, typename Period>
std::int64_t microseconds(std::chrono::duration<Rep, Period> limit)
{
	if (limit >= std::chrono::microseconds::max())
		return -1;
	if (limit < limit.zero())
		return 0;
	return std::chrono::ceil<std::chrono::microseconds>(limit).count();
}

} // namespace detail

namespace detail
{

/* Calls a function of the C library that fills an array. If the array is too
 * short, repeats the call with a longer array, until all elements fit. */
template <typename T, typename F>
std::vector<T> fetch(F &&call, std::error_code &code)
{
	std::vector<T> list;
	std::size_t n = 0;

	do {
		list.resize(n);
		code = make_code(call(list.data(), sizeof(T), &n));
	} while (!code && n > list.size());
	list.resize(code ? 0 : n);
	return list;
}

/* Repeats call(), which moves elements from a queue into an array, until the
 * queue is empty. After each call of call(), passes the elements to take(). */
template <typename T, typename F, typename G>
void drain_queue(F &&call, G &&take, std::error_code &code)
{
	T part[64];
	std::size_t n;

	do {
		n = sizeof(part) / sizeof(part[0]);
		code = make_code(call(part, sizeof(T), &n));
		if (!code)
			take(part, n);
	} while (!code && n == sizeof(part) / sizeof(part[0]));
}

/* Calls a function of the C library that writes a text. If the buffer is too
 * short, repeats the call with a longer buffer, until the text fits. */
template <typename F> std::string text_of(F &&call, std::error_code &code)
{
	std::string text;

	for (;;) {
		int n = call(text.data(), text.size());

		code = make_code(n < 0 ? n : 0);
		if (code)
			return {};
		if (static_cast<std::size_t>(n) < text.size()) {
			text.resize(static_cast<std::size_t>(n));
			return text;
		}
		text.resize(static_cast<std::size_t>(n) + 1);
	}
}

} // namespace detail

/* --- the library --------------------------------------------------------- */

/* version() returns the version of the C library, fabric_version() the API
 * version of libfabric. */
inline const char *version() noexcept
{
	return te_version();
}
inline const char *fabric_version() noexcept
{
	return te_fabric_version();
}

/*
 * A callback for log lines. Its arguments are the level (TE_LOG_…), the part of
 * the library that logs, and the text. The library may call it from any thread,
 * and from several threads at the same time. The callback must not call the
 * library. An exception that the callback throws is ignored.
 */
using log_function =
	std::function<void(int, std::string_view, std::string_view)>;

/* Passes the log lines of the process to a callback. If the callback is empty,
 * log lines go to standard error again. When this function has returned without
 * an error, the earlier callback is no longer running. */
inline void set_log(log_function f, std::error_code &code)
{
	static std::mutex lock;
	static std::unique_ptr<log_function> current;
	std::lock_guard<std::mutex> guard(lock);
	std::unique_ptr<log_function> next;
	te_log_fn call = nullptr;

	if (f) {
		next = std::make_unique<log_function>(std::move(f));
		call = [](int level, const char *module, const char *text,
			  void *context) {
			try {
				(*static_cast<log_function *>(context))(
					level, module, text);
			} catch (...) {
			}
		};
	}
	code = make_code(te_set_log(call, next.get()));
	if (!code)
		current = std::move(next);
}

inline void set_log(log_function f)
{
	detail::throwing(
		[&](std::error_code &code) { set_log(std::move(f), code); });
}

/* The value of a time limit that means: no limit. */
inline constexpr std::chrono::microseconds forever =
	std::chrono::microseconds::max();

/* --- engine -------------------------------------------------------------- */

/* The options of an engine, for the constructor of engine. */
struct options {
	std::string metadata = P2P;
	std::string name = "0.0.0.0"; /* name of the engine's segment; with
				       * P2PHANDSHAKE: address of this host */
	std::string ip;		      /* address at which the control channel
				       * listens; "": any */
	std::uint16_t port = 0;	      /* port of the control channel; 0: any
				       * free port */
	/* names of the transports to install; empty: those that match the
	 * devices of this host */
	std::vector<std::string> transports;
	std::vector<std::string> settings;	/* texts "NAME=VALUE", as for
						 * te_engine_create(3) */

	static constexpr const char *P2P = "P2PHANDSHAKE";
};

struct notification {
	std::string name, text;
};

/* A notification whose data may contain any bytes. */
struct binary_notification {
	std::string name;
	std::vector<unsigned char> data;
};

class transfer;

/* An engine: a segment with a name, and the rails, memory and connections of
 * this process. */
class engine {
public:
	explicit engine(const options &o = {})
	{
		detail::throwing([&](std::error_code &code) {
			create(o, code);
		});
	}

	engine(const options &o, std::error_code &code) { create(o, code); }

	engine(engine &&other) noexcept
		: handle_(std::exchange(other.handle_, nullptr))
	{
	}

	engine &operator=(engine &&other) noexcept
	{
		if (this != &other) {
			reset();
			handle_ = std::exchange(other.handle_, nullptr);
		}
		return *this;
	}

	~engine() { reset(); }

	/* Returns the handle for functions of the C API. This object stays the
	 * owner of the engine. */
	transfer_engine_t get() const noexcept { return handle_; }
	explicit operator bool() const noexcept { return handle_; }

	/* Returns the name under which peers open this engine's segment. */
	std::string name() const
	{
		char text[512] = "";

		getLocalIpAndPort(handle_, text, sizeof(text));
		return text;
	}

	/* Checks that the control channel of the peer answers. */
	void probe(const std::string &peer, std::chrono::microseconds limit,
		   std::error_code &code)
	{
		code = make_code(te_probe_peer(handle_, peer.c_str(),
					       detail::microseconds(limit)));
	}

	void probe(const std::string &peer,
		   std::chrono::microseconds limit = forever)
	{
		detail::throwing([&](std::error_code &code) {
			probe(peer, limit, code);
		});
	}

	/* Returns the text notifications that have been received, and removes
	 * them from the queue. */
	std::vector<notification> notifications()
	{
		std::vector<notification> list;
		int n = 0;
		notify_msg_t *all = getNotifsFromEngine(handle_, &n);
		auto release = [n](notify_msg_t *m) { freeNotifsMsgBuf(m, n); };
		std::unique_ptr<notify_msg_t, decltype(release)> owner(all,
								       release);

		for (int i = 0; i < n; i++)
			list.push_back({ all[i].name, all[i].msg });
		return list;
	}

	/* Returns the binary notifications that have been received, and removes
	 * them from the queue. */
	std::vector<binary_notification>
	binary_notifications(std::error_code &code)
	{
		std::vector<binary_notification> list;
		auto release = [](te_notification *all, std::size_t n) {
			te_notify_release(all, sizeof(*all), n);
		};

		detail::drain_queue<te_notification>(
			[&](auto... args) {
				return te_notify_fetch(handle_, args...);
			},
			[&](te_notification *all, std::size_t n) {
				auto end = [&](te_notification *one) {
					release(one, n);
				};
				std::unique_ptr<te_notification, decltype(end)>
					owner(all, end);

				for (std::size_t i = 0; i < n; i++)
					add(list, all[i]);
			},
			code);
		return list;
	}

	std::vector<binary_notification> binary_notifications()
	{
		return detail::throwing([&](std::error_code &code) {
			return binary_notifications(code);
		});
	}

	std::vector<struct te_rail_stats> rails(std::error_code &code) const
	{
		return detail::fetch<struct te_rail_stats>(
			[&](auto... args) {
				return te_rail_stats(handle_, args...);
			},
			code);
	}

	std::vector<struct te_rail_stats> rails() const
	{
		return detail::throwing(
			[&](std::error_code &code) { return rails(code); });
	}

	/* Returns the settings in force, with one line "NAME=value source" for
	 * each setting. */
	std::string settings(std::error_code &code) const
	{
		return detail::text_of(
			[&](char *buf, std::size_t size) {
				return te_settings_text(handle_, buf, size);
			},
			code);
	}

	std::string settings() const
	{
		return detail::throwing(
			[&](std::error_code &code) { return settings(code); });
	}

	/* Returns the topology in use, as JSON. */
	std::string topology(std::error_code &code) const
	{
		return detail::text_of(
			[&](char *buf, std::size_t size) {
				return te_topology_text(handle_, buf, size);
			},
			code);
	}

	std::string topology() const
	{
		return detail::throwing(
			[&](std::error_code &code) { return topology(code); });
	}

	/* Returns the descriptor of this engine's segment, for segment::import
	 * in another process. */
	std::vector<unsigned char> export_segment(std::error_code &code) const
	{
		std::vector<unsigned char> blob;
		std::size_t n = 0;
		int ret;

		do {
			blob.resize(n);
			ret = te_segment_export(handle_, 0, blob.data(), &n);
		} while (ret ? n > blob.size() : blob.empty());
		code = make_code(ret);
		blob.resize(ret ? 0 : n);
		return blob;
	}

	std::vector<unsigned char> export_segment() const
	{
		return detail::throwing([&](std::error_code &code) {
			return export_segment(code);
		});
	}

	/* Fetches the descriptors of all open segments again. */
	void sync(std::error_code &code)
	{
		code = make_code(syncSegmentCache(handle_));
	}

	void sync()
	{
		detail::throwing([&](std::error_code &code) { sync(code); });
	}

	/* Connects every rail pair with a peer, so that the first transfer does
	 * not have to wait for it. */
	void warm_up(const std::string &peer, std::error_code &code)
	{
		code = make_code(warmupEfaSegment(handle_, peer.c_str()));
	}

	void warm_up(const std::string &peer)
	{
		detail::throwing(
			[&](std::error_code &code) { warm_up(peer, code); });
	}

	/* Waits until all requests that were submitted before this call have
	 * ended. */
	template <typename Rep, typename Period>
	void drain(std::chrono::duration<Rep, Period> limit,
		   std::error_code &code)
	{
		code = make_code(
			te_drain(handle_, detail::microseconds(limit)));
	}

	void drain(std::chrono::microseconds limit = forever)
	{
		detail::throwing(
			[&](std::error_code &code) { drain(limit, code); });
	}

	/* Returns the transfers that have ended and that no earlier call has
	 * returned. Transfers that have been destroyed are left out. For
	 * programs that wait for event_fd(). */
	std::vector<te_ended> ended(std::error_code &code)
	{
		std::vector<te_ended> list;

		detail::drain_queue<te_ended>(
			[&](auto... args) {
				return te_ended_batches(handle_, args...);
			},
			[&](te_ended *all, std::size_t n) {
				list.insert(list.end(), all, all + n);
			},
			code);
		return list;
	}

	std::vector<te_ended> ended()
	{
		return detail::throwing(
			[&](std::error_code &code) { return ended(code); });
	}

	/* Waits until one of at most TE_WAIT_MAX transfers has ended, and
	 * returns its index. Returns nothing if the time limit has passed.
	 * Skips transfers that were moved from. */
	std::optional<std::size_t> wait_any(const std::vector<transfer> &all,
					    std::chrono::microseconds limit,
					    std::error_code &code) const;
	std::optional<std::size_t>
	wait_any(const std::vector<transfer> &all,
		 std::chrono::microseconds limit = forever) const;

	/* Returns a file descriptor that is readable while the end of a
	 * transfer or a notification can be fetched; see te_event_fd(3). The
	 * engine owns the file descriptor. */
	int event_fd() const noexcept { return te_event_fd(handle_); }

private:
  static void add(std::vector<binary_notification> &list,
		  const te_notification &note)
  {
	  const auto *bytes = static_cast<unsigned char *>(note.data);

	  list.push_back({ note.name, { bytes, bytes + note.length } });
  }

	void create(const options &o, std::error_code &code)
	{
		std::vector<const char *> settings;
		te_engine_options c = {};
		int ret;

		for (const std::string &one : o.settings)
			settings.push_back(one.c_str());
		c.metadata = o.metadata.c_str();
		c.server_name = o.name.c_str();
		c.ip = o.ip.empty() ? nullptr : o.ip.c_str();
		c.port = o.port;
		c.auto_discover = o.transports.empty();
		c.settings = settings.data();
		c.settings_count = settings.size();
		ret = te_engine_create(&c, sizeof(c), &handle_);
		code = make_code(ret);
		if (ret)
			return;
		for (const std::string &one : o.transports) {
			if (installTransport(handle_, one.c_str(), nullptr))
				continue;
			code = make_code(detail::last().code);
			reset();
			return;
		}
	}

	void reset() noexcept
	{
		if (handle_)
			destroyTransferEngine(handle_);
		handle_ = nullptr;
	}

	transfer_engine_t handle_ = nullptr;
};

/* --- memory -------------------------------------------------------------- */

/* Describes memory that the constructor of the class `memory` registers. */
struct registration {
	void *addr = nullptr;
	std::size_t size = 0;
	std::string location = "*";
	std::string label;	/* label with which peers can find the memory,
				 * or "" */
	bool remote = true;	/* peers can access the memory */
	bool read_only = false; /* neither peers nor this engine write to the
				 * memory */
	bool nested = false; /* the memory may lie inside registered memory, and
			      * must then be released before that memory */
};

/* Registered memory, which the destructor unregisters. The bytes belong to the
 * program, unless allocate() has allocated them. */
class memory {
public:
	memory(engine &e, void *addr, std::size_t size,
	       const char *location = "*", bool remote = true)
	{
		detail::throwing([&](std::error_code &code) {
			take(e, addr, size, location, remote, code);
		});
	}

	memory(engine &e, void *addr, std::size_t size, const char *location,
	       bool remote, std::error_code &code)
	{
		take(e, addr, size, location, remote, code);
	}

	memory(engine &e, const registration &r)
	{
		detail::throwing(
			[&](std::error_code &code) { take(e, r, code); });
	}

	memory(engine &e, const registration &r, std::error_code &code)
	{
		take(e, r, code);
	}

	/* Allocates and registers memory, as te_alloc(3) does. If location is
	 * nullptr, the memory may be on any node. */
	static memory allocate(engine &e, std::size_t size,
			       const char *location, std::uint64_t flags,
			       std::error_code &code)
	{
		te_memory m = {};
		memory result;

		code = make_code(te_alloc(e.get(), size, location, flags, &m,
					  sizeof(m)));
		if (!code) {
			result.engine_ = e.get();
			result.addr_ = reinterpret_cast<void *>(
				static_cast<std::uintptr_t>(m.addr));
			result.size_ = size;
			result.allocated_ = true;
		}
		return result;
	}

	static memory allocate(engine &e, std::size_t size,
			       const char *location = nullptr,
			       std::uint64_t flags = 0)
	{
		return detail::throwing([&](std::error_code &code) {
			return allocate(e, size, location, flags, code);
		});
	}

	memory(memory &&other) noexcept { swap(other); }

	memory &operator=(memory &&other) noexcept
	{
		memory moved(std::move(other));

		swap(moved);
		return *this;
	}

	~memory()
	{
		std::error_code ignored;

		release(ignored);
	}

	/* Unregisters the memory. When it returns without an error, no peer can
	 * access it, unless it lies inside other registered memory. The
	 * destructor does the same, but cannot report an error. */
	void release(std::error_code &code) noexcept
	{
		const te_registration entry = { addr_, size_, nullptr, flags_,
						label_.c_str() };
		int ret = 0;

		if (engine_)
			ret = allocated_ ? te_free(engine_, addr_)
					 : te_unregister(engine_, &entry,
							 sizeof(entry), 1);
		if (!ret)
			engine_ = nullptr;
		code = make_code(ret);
	}

	void *data() const noexcept { return addr_; }
	std::size_t size() const noexcept { return size_; }
	std::uint64_t address() const noexcept
	{
		return reinterpret_cast<std::uintptr_t>(addr_);
	}

private:
	memory() = default;

	void take(engine &e, void *addr, std::size_t size,
		  const char *location, bool remote, std::error_code &code)
	{
		registration r;

		r.addr = addr;
		r.size = size;
		r.location = location ? location : "*";
		r.remote = remote;
		take(e, r, code);
	}

	void take(engine &e, const registration &r, std::error_code &code)
	{
		te_registration entry = {};
		int ret;

		entry.addr = r.addr;
		entry.length = r.size;
		entry.location = r.location.c_str();
		entry.label = r.label.c_str();
		entry.flags = (r.remote ? 0 : TE_REG_PRIVATE) |
			      (r.read_only ? TE_REG_READ_ONLY : 0) |
			      (r.nested ? TE_REG_NESTED : 0);
		label_ = r.label;
		ret = te_register(e.get(), &entry, sizeof(entry), 1);
		code = make_code(ret);
		if (ret)
			return;
		engine_ = e.get();
		addr_ = r.addr;
		size_ = r.size;
		flags_ = entry.flags;
	}

	void swap(memory &other) noexcept
	{
		std::swap(engine_, other.engine_);
		std::swap(addr_, other.addr_);
		std::swap(size_, other.size_);
		std::swap(allocated_, other.allocated_);
		std::swap(flags_, other.flags_);
		label_.swap(other.label_);
	}

	transfer_engine_t engine_ = nullptr;
	void *addr_ = nullptr;
	std::size_t size_ = 0;
	bool allocated_ = false;
	std::uint64_t flags_ = 0; /* TE_REG_… */
	std::string label_;
};

/* --- segments ------------------------------------------------------------ */

class prepared;

/* A piece of a prepared list. */
using piece = te_piece;

/* The memory that a peer has published. */
class segment {
public:
	segment(engine &e, const std::string &name)
	{
		detail::throwing([&](std::error_code &code) {
			open(e, name, code);
		});
	}

	segment(engine &e, const std::string &name, std::error_code &code)
	{
		open(e, name, code);
	}

	/* Opens the segment of a peer. Fetches its descriptor again, even if
	 * the descriptor is in the cache. */
	static segment open_fresh(engine &e, const std::string &name,
				  std::error_code &code)
	{
		segment s;

		s.set(e, openSegmentNoCache(e.get(), name.c_str()), code);
		return s;
	}

	static segment open_fresh(engine &e, const std::string &name)
	{
		return detail::throwing([&](std::error_code &code) {
			return open_fresh(e, name, code);
		});
	}

	/* Opens the segment that a descriptor of engine::export_segment
	 * describes. Communicates with no other process. */
	static segment import(engine &e, const void *blob, std::size_t size,
			      std::error_code &code)
	{
		segment_id_t id = -1;
		segment s;

		code = make_code(
			te_segment_import(e.get(), blob, size, 0, &id));
		if (!code)
			s.set(e, id, code);
		return s;
	}

	static segment import(engine &e, const std::vector<unsigned char> &blob)
	{
		return detail::throwing([&](std::error_code &code) {
			return import(e, blob.data(), blob.size(), code);
		});
	}

	segment(segment &&other) noexcept
		: engine_(std::exchange(other.engine_, nullptr)), id_(other.id_)
	{
	}

	segment &operator=(segment &&other) noexcept
	{
		std::swap(engine_, other.engine_);
		std::swap(id_, other.id_);
		return *this;
	}

	~segment()
	{
		if (engine_)
			closeSegment(engine_, id_);
	}

	segment_id_t id() const noexcept { return id_; }
	/* Returns the handle of the engine to which the segment belongs. */
	transfer_engine_t owner() const noexcept
	{
		return engine_;
	}

	/* Returns the buffers of the segment. Their member addr is an address
	 * in the peer's process. */
	std::vector<te_buffer> buffers(std::error_code &code) const
	{
		return detail::fetch<te_buffer>(
			[&](auto... args) {
				return te_segment_buffers(engine_, id_,
							  args...);
			},
			code);
	}

	std::vector<te_buffer> buffers() const
	{
		return detail::throwing([&](std::error_code &code) {
			return buffers(code);
		});
	}

	/* Returns the memory that the peer has registered with that label, in
	 * ascending order of addresses. If label is nullptr, returns all memory
	 * that has a label. Fails if there is no such memory. */
	std::vector<te_buffer> find(const char *label,
				    std::error_code &code) const
	{
		return detail::fetch<te_buffer>(
			[&](auto... args) {
				return te_segment_find(engine_, id_, label,
						       args...);
			},
			code);
	}

	std::vector<te_buffer> find(const char *label) const
	{
		return detail::throwing([&](std::error_code &code) {
			return find(label, code);
		});
	}

	/* Returns the paths to the segment. Their ranks are those for memory at
	 * location; nullptr means any location. */
	std::vector<te_path> paths(const char *location,
				   std::error_code &code) const
	{
		return detail::fetch<te_path>(
			[&](auto... args) {
				return te_segment_paths(engine_, id_, location,
							args...);
			},
			code);
	}

	std::vector<te_path> paths(const char *location = nullptr) const
	{
		return detail::throwing([&](std::error_code &code) {
			return paths(location, code);
		});
	}

	/* Returns the statistics of the peer. */
	struct te_peer_stats stats(std::error_code &code) const
	{
		struct te_peer_stats s = {};

		code = make_code(te_peer_stats(engine_, id_, &s, sizeof(s)));
		return s;
	}

	struct te_peer_stats stats() const
	{
		return detail::throwing(
			[&](std::error_code &code) { return stats(code); });
	}

	/* Waits until all requests to this segment that were submitted before
	 * this call have ended. */
	template <typename Rep, typename Period>
	void flush(std::chrono::duration<Rep, Period> limit,
		   std::error_code &code) const
	{
		code = make_code(
			te_flush(engine_, id_, detail::microseconds(limit)));
	}

	void flush(std::chrono::microseconds limit = forever) const
	{
		detail::throwing(
			[&](std::error_code &code) { flush(limit, code); });
	}

	/* prepare_write and prepare_read check a list of pieces to write or to
	 * read once, so that it can be submitted many times. */
	prepared prepare_write(const std::vector<piece> &pieces,
			       std::error_code &code) const;
	prepared prepare_write(const std::vector<piece> &pieces) const;
	prepared prepare_read(const std::vector<piece> &pieces,
			      std::error_code &code) const;
	prepared prepare_read(const std::vector<piece> &pieces) const;

	/* Sends a notification that may contain any bytes, and waits until the
	 * peer's engine has received it. The peer reads it with
	 * engine::binary_notifications. */
	void notify_bytes(const std::string &name, const void *data,
			  std::size_t size, std::error_code &code)
	{
		code = make_code(
			te_notify(engine_, id_, name.c_str(), data, size));
	}

	void notify_bytes(const std::string &name, const void *data,
			  std::size_t size)
	{
		detail::throwing([&](std::error_code &code) {
			notify_bytes(name, data, size, code);
		});
	}

	/* Sends a notification and waits until the peer's engine has received
	 * it. */
	void notify(std::string name, std::string text, std::error_code &code)
	{
		notify_msg_t msg = { name.data(), text.data() };

		code = make_code(genNotifyInEngine(
			engine_, static_cast<std::uint64_t>(id_), msg));
	}

	void notify(std::string name, std::string text)
	{
		detail::throwing([&](std::error_code &code) {
			notify(std::move(name), std::move(text), code);
		});
	}

private:
  segment() = default;

  void open(engine &e, const std::string &name, std::error_code &code)
  {
	  set(e, openSegment(e.get(), name.c_str()), code);
  }

  void set(engine &e, segment_id_t id, std::error_code &code)
  {
	  id_ = id;
	  code = make_code(id < 0 ? detail::last().code : 0);
	  if (!code)
		  engine_ = e.get();
  }

	transfer_engine_t engine_ = nullptr;
	segment_id_t id_ = -1;
};

/* --- transfers ----------------------------------------------------------- */

/* Requests that were submitted together. */
class transfer {
public:
  transfer(transfer &&other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)), batch_(other.batch_),
	count_(other.count_), size_(other.size_), checked_(other.checked_)
  {
	}

	transfer &operator=(transfer &&other) noexcept
	{
		std::swap(engine_, other.engine_);
		std::swap(batch_, other.batch_);
		std::swap(count_, other.count_);
		std::swap(size_, other.size_);
		std::swap(checked_, other.checked_);
		return *this;
	}

	/* Cancels the requests that have not ended, and waits until they have
	 * ended. */
	~transfer()
	{
		if (!engine_)
			return;
		if (freeBatchID(engine_, batch_)) {
			cancel();
			te_wait_batch(engine_, batch_, -1, nullptr);
			freeBatchID(engine_, batch_);
		}
	}

	/* Returns the worst status of the requests and the sum of their bytes.
	 * Does not wait. */
	transfer_status status() const noexcept
	{
		transfer_status s = {};

		te_batch_status(engine_, batch_, &s);
		return s;
	}

	bool done() const noexcept { return status().status != STATUS_WAITING; }

	/* Waits until all requests have ended. Returns false if the time has
	 * passed. */
	template <typename Rep, typename Period>
	bool wait_for(std::chrono::duration<Rep, Period> limit) const noexcept
	{
		return te_wait_batch(engine_, batch_,
				     detail::microseconds(limit),
				     nullptr) != TE_TIMED_OUT;
	}

	void wait() const noexcept { wait_for(forever); }

	/* Waits until all requests have ended. Returns the number of bytes that
	 * were moved. */
	std::uint64_t get(std::error_code &code) const
	{
		transfer_status s = {};
		int ret = te_wait_batch(engine_, batch_, -1, &s);

		code = make_code(ret);
		if (!ret && s.status != STATUS_COMPLETED)
			code = make_code(record(s.status).code);
		return s.transferred_bytes;
	}

	std::uint64_t get() const
	{
		std::error_code code;
		std::uint64_t bytes = get(code);

		if (code)
			throw error(code, record(status().status));
		return bytes;
	}

	/* Returns the result of each request so far, with its cookie, in the
	 * order in which the requests were added. Does not wait. */
	std::vector<te_task> tasks(std::error_code &code) const
	{
		std::vector<te_task> list(count_);
		std::size_t n = count_;

		code = make_code(te_batch_tasks(engine_, batch_, 0, list.data(),
						sizeof(te_task), &n));
		list.resize(code ? 0 : n);
		return list;
	}

	std::vector<te_task> tasks() const
	{
		return detail::throwing(
			[&](std::error_code &code) { return tasks(code); });
	}

	/* Waits until one request has ended. Returns false if the time has
	 * passed. */
	template <typename Rep, typename Period>
	bool
	wait_task_for(std::size_t task,
		      std::chrono::duration<Rep, Period> limit) const noexcept
	{
		return te_wait_task(engine_, batch_, task,
				    detail::microseconds(limit),
				    nullptr) != TE_TIMED_OUT;
	}

	/* Sets a time limit, counted from now. Requests that have not ended
	 * when it has passed fail. */
	template <typename Rep, typename Period>
	void time_limit(std::chrono::duration<Rep, Period> limit) const noexcept
	{
		te_batch_timeout(engine_, batch_, detail::microseconds(limit));
	}

	/* Sets the time limit as a point in time. */
	void deadline(std::chrono::steady_clock::time_point at) const noexcept
	{
		using std::chrono::nanoseconds;
		auto ns = std::chrono::duration_cast<nanoseconds>(
			at.time_since_epoch());

		te_batch_deadline(engine_, batch_,
				  ns.count() < 1 ? 1
						 : static_cast<std::uint64_t>(
							   ns.count()));
	}

	/* Returns the id of the C library's batch, with which engine::ended
	 * identifies the transfer. */
	batch_id_t id() const noexcept
	{
		return engine_ ? batch_ : INVALID_BATCH;
	}

	/* checked() returns true if the submission of a prepared list has
	 * checked its pieces again. restarted() returns true if the reason was
	 * that another process has replaced the target's process. */
	bool checked() const noexcept
	{
		return checked_ & TE_PREPARED_CHECKED;
	}
	bool restarted() const noexcept
	{
		return checked_ & TE_PREPARED_RESTARTED;
	}

	/* Cancels the request with that number, which then ends early. */
	void cancel_task(std::size_t task) const noexcept
	{
		te_cancel_task(engine_, batch_, task);
	}

	/* Cancels all requests, which then end early. get() reports how the
	 * transfer has ended. The memory may be used again only after the
	 * transfer has ended. */
	void cancel() const noexcept { te_cancel_batch(engine_, batch_); }

	/* Returns the file descriptor that is readable when the transfer has
	 * ended, or a negative code. The transfer owns the file descriptor. */
	int event_fd() const noexcept
	{
		return te_batch_event_fd(engine_, batch_);
	}

	/* Returns the error record of the first request that was not
	 * completed. */
	te_error record(int status) const noexcept
	{
		te_error record = {};

		for (std::size_t i = 0; i < count_ && !record.code; i++)
			te_task_error(engine_, batch_, i, &record,
				      sizeof(record));
		if (!record.code)
			record.code = status == STATUS_CANCELED ? -TE_CANCELED :
								  -1;
		return record;
	}

	/* Returns a future that receives the result of the transfer. A new
	 * thread waits for the end of the transfer. */
	std::future<std::uint64_t> as_future() &&
	{
		return std::async(std::launch::async,
				  [t = std::move(*this)] { return t.get(); });
	}

#if defined(__cpp_impl_coroutine)
	/* co_await returns the number of bytes or throws moonrail::error. The
	 * coroutine continues in a separate thread, which has waited for the
	 * end of the transfer. */
	auto operator co_await() && noexcept
	{
		struct awaiter {
			transfer t;

			bool await_ready() const noexcept { return t.done(); }
			void await_suspend(std::coroutine_handle<> h)
			{
				std::thread([this, h] {
					t.wait();
					h.resume();
				}).detach();
			}
			std::uint64_t await_resume() { return t.get(); }
		};

		return awaiter{ std::move(*this) };
	}
#endif

private:
	friend class batch;
	friend class prepared;

	transfer(transfer_engine_t e, batch_id_t id, std::size_t count,
		 std::size_t size, std::uint32_t checked = 0) noexcept
	    : engine_(e), batch_(id), count_(count), size_(size),
	      checked_(checked)
	{
	}

	/* Returns an empty transfer, the result of a submission that has
	 * failed. */
	static transfer none() noexcept
	{
		return { nullptr, 0, 0, 0 };
	}

	transfer_engine_t engine_;
	batch_id_t batch_;
	std::size_t count_;	/* number of requests */
	std::size_t size_;	/* greatest number of requests that the batch
				 * can hold */
	std::uint32_t checked_; /* bits TE_PREPARED_… that te_submit_prepared
				 * has set; 0 for other submissions */
};

inline std::optional<std::size_t>
engine::wait_any(const std::vector<transfer> &all,
		 std::chrono::microseconds limit, std::error_code &code) const
{
	std::vector<batch_id_t> ids;
	std::size_t index = 0;
	int ret;

	for (const transfer &one : all)
		ids.push_back(one.id());
	ret = te_wait_any(handle_, ids.data(), ids.size(),
			  detail::microseconds(limit), &index, nullptr);
	code = make_code(ret == TE_TIMED_OUT ? 0 : ret);
	if (ret)
		return std::nullopt;
	return index;
}

inline std::optional<std::size_t>
engine::wait_any(const std::vector<transfer> &all,
		 std::chrono::microseconds limit) const
{
	return detail::throwing([&](std::error_code &code) {
		return wait_any(all, limit, code);
	});
}

/* A range of local memory, and a range of the target's memory. */
using local_range = te_local;
using remote_range = te_remote;

/*
 * Requests that will be submitted together. The functions that add a request
 * return the batch; cookie() and bounce() change the request that was added
 * last:
 *
 *	batch(e).write(s, a, x, 64).cookie(7).read(s, b, y, 64).submit();
 */
class batch {
public:
	explicit batch(engine &e) : engine_(e.get()) {}

	/* Creates an empty batch that uses the C library's batch of an ended
	 * transfer again, which costs less than a new one. If the transfer has
	 * not ended, sets the error code 4 and leaves the transfer
	 * unchanged. */
	batch(transfer &&ended, std::error_code &code) : engine_(ended.engine_)
	{
		code = make_code(te_batch_reset(ended.engine_, ended.batch_));
		if (code)
			return;
		ready_ = ended.batch_;
		room_ = ended.size_;
		ended.engine_ = nullptr;
	}

	explicit batch(transfer &&ended) : engine_(ended.engine_)
	{
		std::error_code code;
		batch made(std::move(ended), code);

		if (code)
			detail::raise(code);
		swap(made);
	}

	batch(batch &&other) noexcept : engine_(other.engine_)
	{
		swap(other);
	}

	batch &operator=(batch &&other) noexcept
	{
		swap(other);
		return *this;
	}

	~batch()
	{
		if (ready_ != INVALID_BATCH)
			freeBatchID(engine_, ready_);
	}

	batch &write(const segment &s, const void *local, std::uint64_t remote,
		     std::size_t size)
	{
		return one(TE_WRITE, s, const_cast<void *>(local), remote,
			   size);
	}

	batch &read(const segment &s, void *local, std::uint64_t remote,
		    std::size_t size)
	{
		return one(TE_READ, s, local, remote, size);
	}

	/* writev() and readv() add one request that moves several local ranges,
	 * one after the other, to or from several remote ranges. Both sides
	 * have the same total length. */
	batch &writev(const segment &s, const std::vector<local_range> &local,
		      const std::vector<remote_range> &remote)
	{
		return add(TE_WRITE, s, local, remote);
	}

	batch &readv(const segment &s, const std::vector<local_range> &local,
		     const std::vector<remote_range> &remote)
	{
		return add(TE_READ, s, local, remote);
	}

	/* Adds a request that atomically adds operand to the 8-byte number at a
	 * remote address. */
	batch &atomic_add(const segment &s, std::uint64_t remote,
			  std::uint64_t operand)
	{
		return atomic(TE_ATOMIC_ADD, s, nullptr, remote, 8, operand, 0);
	}

	/* The three functions below add an atomic that stores the old value of
	 * the remote number at `old`, which lies in registered memory. T is the
	 * type of the remote number: std::uint32_t or std::uint64_t. */
	template <typename T>
	batch &atomic_fetch_add(const segment &s, T *old, std::uint64_t remote,
				T operand)
	{
		return number(TE_ATOMIC_FETCH_ADD, s, old, remote, operand,
			      T());
	}

	template <typename T>
	batch &atomic_swap(const segment &s, T *old, std::uint64_t remote,
			   T operand)
	{
		return number(TE_ATOMIC_SWAP, s, old, remote, operand, T());
	}

	template <typename T>
	batch &atomic_compare_swap(const segment &s, T *old,
				   std::uint64_t remote, T compare, T operand)
	{
		return number(TE_ATOMIC_CAS, s, old, remote, operand, compare);
	}

	/* Sets the cookie of the request, a number that the program chooses and
	 * that transfer::tasks returns. */
	batch &cookie(std::uint64_t value) noexcept
	{
		if (!requests_.empty())
			requests_.back().cookie = value;
		return *this;
	}

	/* Allows that the local memory of the request is not registered; see
	 * TE_REQ_BOUNCE in te_submit(3). */
	batch &bounce() noexcept
	{
		if (!requests_.empty())
			requests_.back().flags |= TE_REQ_BOUNCE;
		return *this;
	}

	/* Sets a time limit for the requests, counted from their submission.
	 * Requests that have not ended when it has passed fail. */
	template <typename Rep, typename Period>
	batch &time_limit(std::chrono::duration<Rep, Period> limit) noexcept
	{
		limit_us_ = detail::microseconds(limit);
		return *this;
	}

	std::size_t size() const noexcept { return requests_.size(); }

	/*
	 * Submits the requests. The batch is empty afterwards. If note is set,
	 * the target receives that notification when all bytes are in place. In
	 * this case, each request must be a read or a write with one range on
	 * each side and without bounce(), and cookies are ignored.
	 */
	transfer submit(const notification *note, std::error_code &code)
	{
		std::size_t count = requests_.size();
		std::size_t room = count;
		batch_id_t id = allocate(room);

		if (id == INVALID_BATCH) {
			code = make_code(302);
			clear();
			return transfer::none();
		}
		if (limit_us_ >= 0)
			te_batch_timeout(engine_, id, limit_us_);
		if (note)
			code = submit_plain(id, *note);
		else
			code = make_code(te_submit(engine_, id, linked(),
						   sizeof(te_request), count,
						   0));
		clear();
		if (!code)
			return { engine_, id, count, room };
		freeBatchID(engine_, id);
		return transfer::none();
	}

	transfer submit(std::error_code &code) { return submit(nullptr, code); }

	transfer submit()
	{
		return detail::throwing([&](std::error_code &code) {
			return submit(nullptr, code);
		});
	}

	transfer submit(const notification &note)
	{
		return detail::throwing([&](std::error_code &code) {
			return submit(&note, code);
		});
	}

	/* Submits the requests and waits until all of them have ended, as
	 * te_submit_wait(3) does. Requests that have not ended when the limit
	 * of time_limit() has passed are ended. The batch is empty
	 * afterwards. */
	void run(std::error_code &code)
	{
		code = make_code(te_submit_wait(engine_, linked(),
						sizeof(te_request), size(), 0,
						limit_us_));
		clear();
	}

	void run()
	{
		detail::throwing([&](std::error_code &code) { run(code); });
	}

private:
  te_request &start(std::uint32_t opcode, const segment &s)
  {
	  te_request r = {};

	  r.opcode = opcode;
	  r.target_id = s.id();
	  requests_.push_back(r);
	  return requests_.back();
  }

  batch &add(std::uint32_t opcode, const segment &s,
	     const std::vector<local_range> &local,
	     const std::vector<remote_range> &remote)
  {
	  te_request &r = start(opcode, s);

	  r.local_count = static_cast<std::uint32_t>(local.size());
	  r.remote_count = static_cast<std::uint32_t>(remote.size());
	  local_.insert(local_.end(), local.begin(), local.end());
	  remote_.insert(remote_.end(), remote.begin(), remote.end());
	  return *this;
  }

  batch &one(std::uint32_t opcode, const segment &s, void *local,
	     std::uint64_t remote, std::size_t size)
  {
	  te_request &r = start(opcode, s);

	  r.local_count = r.remote_count = 1;
	  local_.push_back({ local, size });
	  remote_.push_back({ remote, size });
	  return *this;
  }

  template <typename T>
  batch &number(std::uint32_t opcode, const segment &s, T *old,
		std::uint64_t remote, T operand, T compare)
  {
	  static_assert(std::is_same_v<T, std::uint32_t> ||
				std::is_same_v<T, std::uint64_t>,
			"an atomic has 4 or 8 bytes");
	  return atomic(opcode, s, old, remote, sizeof(T), operand, compare);
  }

  batch &atomic(std::uint32_t opcode, const segment &s, void *old,
		std::uint64_t remote, std::size_t size, std::uint64_t operand,
		std::uint64_t compare)
  {
	  te_request &r = start(opcode, s);

	  r.operand = operand;
	  r.compare = compare;
	  r.remote_count = 1;
	  remote_.push_back({ remote, size });
	  if (old) {
		  r.local_count = 1;
		  local_.push_back({ old, size });
	  }
	  return *this;
  }

  /* Sets the pointers from the requests to their ranges. Returns the array of
   * requests. */
  const te_request *linked() noexcept
  {
	  const te_local *local = local_.data();
	  const te_remote *remote = remote_.data();

	  for (te_request &r : requests_) {
		  r.local = r.local_count ? local : nullptr;
		  r.remote = r.remote_count ? remote : nullptr;
		  local += r.local_count;
		  remote += r.remote_count;
	  }
	  return requests_.data();
  }

  std::error_code submit_plain(batch_id_t id, const notification &note)
  {
	  notify_msg_t msg = { const_cast<char *>(note.name.c_str()),
			       const_cast<char *>(note.text.c_str()) };
	  std::vector<transfer_request> all;

	  linked();
	  for (const te_request &r : requests_) {
		  transfer_request plain = {};

		  if (r.opcode > TE_WRITE || r.local_count != 1 ||
		      r.remote_count != 1 || r.flags)
			  return detail::invalid_argument();
		  plain.opcode =
			  r.opcode == TE_READ ? OPCODE_READ : OPCODE_WRITE;
		  plain.source = r.local->addr;
		  plain.target_id = r.target_id;
		  plain.target_offset = r.remote->addr;
		  plain.length = r.local->length;
		  all.push_back(plain);
	  }
	  return make_code(submitTransferWithNotify(engine_, id, all.data(),
						    all.size(), msg));
  }

  /* Allocates a batch of the C library for at least "room" requests, and sets
   * "room" to the number that the batch can hold. Returns its id. */
  batch_id_t allocate(std::size_t &room) noexcept
  {
	  batch_id_t id = std::exchange(ready_, INVALID_BATCH);

	  if (id != INVALID_BATCH && room_ >= room) {
		  room = room_;
		  return id;
	  }
	  if (id != INVALID_BATCH)
		  freeBatchID(engine_, id);
	  return allocateBatchID(engine_, room);
  }

  void clear() noexcept
  {
	  requests_.clear();
	  local_.clear();
	  remote_.clear();
  }

  void swap(batch &other) noexcept
  {
	  std::swap(engine_, other.engine_);
	  std::swap(ready_, other.ready_);
	  std::swap(room_, other.room_);
	  std::swap(limit_us_, other.limit_us_);
	  requests_.swap(other.requests_);
	  local_.swap(other.local_);
	  remote_.swap(other.remote_);
  }

	transfer_engine_t engine_;
	batch_id_t ready_ = INVALID_BATCH; /* a batch of the C library that was
					    * reset and can be used again */
	std::size_t room_ = 0;		   /* number of requests that ready_ can
					    * hold */
	std::int64_t limit_us_ = -1;
	std::vector<te_request> requests_;
	std::vector<te_local> local_; /* local ranges of all requests */
	std::vector<te_remote> remote_;
};

/* --- prepared lists ------------------------------------------------------ */

/*
 * A list of reads or writes of one segment that is checked once and submitted
 * many times, also by several threads at the same time. The list stays valid
 * when the target's process is restarted: the next submission then checks the
 * pieces again. segment::prepare_write and segment::prepare_read create a list.
 */
class prepared
{
      public:
	prepared(prepared &&other) noexcept
	    : engine_(other.engine_), list_(std::exchange(other.list_, 0)),
	      size_(other.size_)
	{
	}

	prepared &operator=(prepared &&other) noexcept
	{
		std::swap(engine_, other.engine_);
		std::swap(list_, other.list_);
		std::swap(size_, other.size_);
		return *this;
	}

	/* Releases the list. Transfers in progress continue. */
	~prepared()
	{
		if (list_)
			te_prepared_release(engine_, list_);
	}

	/* Returns the number of pieces. */
	std::size_t size() const noexcept
	{
		return size_;
	}

	/*
	 * Submits the pieces with these indices as one request. There must be
	 * at least one index; an index may occur several times.
	 * transfer::restarted tells whether another process has replaced the
	 * target's process.
	 */
	transfer submit(const std::vector<std::uint32_t> &indices,
			std::uint64_t cookie, std::error_code &code) const
	{
		code = detail::invalid_argument();
		return indices.empty() ? transfer::none()
				       : start(indices.data(), indices.size(),
					       cookie, code);
	}

	transfer submit(const std::vector<std::uint32_t> &indices,
			std::uint64_t cookie = 0) const
	{
		return detail::throwing([&](std::error_code &code) {
			return submit(indices, cookie, code);
		});
	}

	/* Submits all pieces as one request. */
	transfer submit_all(std::uint64_t cookie, std::error_code &code) const
	{
		return start(nullptr, 0, cookie, code);
	}

	transfer submit_all(std::uint64_t cookie = 0) const
	{
		return detail::throwing([&](std::error_code &code) {
			return submit_all(cookie, code);
		});
	}

      private:
	friend class segment;

	prepared(const segment &s, std::uint32_t opcode,
		 const std::vector<piece> &pieces, std::error_code &code)
	    : engine_(s.owner()), size_(pieces.size())
	{
		code = make_code(te_prepare(engine_, s.id(), opcode,
					    pieces.data(), pieces.size(), 0,
					    &list_));
	}

	transfer start(const std::uint32_t *indices, std::size_t count,
		       std::uint64_t cookie, std::error_code &code) const
	{
		batch_id_t id = allocateBatchID(engine_, 1);
		std::uint32_t checked = 0;
		int ret = 302;

		if (id != INVALID_BATCH)
			ret = te_submit_prepared(engine_, id, list_, indices,
						 count, cookie, 0, &checked);
		code = make_code(ret);
		if (!ret)
			return { engine_, id, 1, 1, checked };
		freeBatchID(engine_, id);
		return transfer::none();
	}

	transfer_engine_t engine_;
	te_prepared_t list_ = 0;
	std::size_t size_;
};

inline prepared segment::prepare_write(const std::vector<piece> &pieces,
				       std::error_code &code) const
{
	return prepared(*this, TE_WRITE, pieces, code);
}

inline prepared segment::prepare_write(const std::vector<piece> &pieces) const
{
	return detail::throwing([&](std::error_code &code) {
		return prepare_write(pieces, code);
	});
}

inline prepared segment::prepare_read(const std::vector<piece> &pieces,
				      std::error_code &code) const
{
	return prepared(*this, TE_READ, pieces, code);
}

inline prepared segment::prepare_read(const std::vector<piece> &pieces) const
{
	return detail::throwing([&](std::error_code &code) {
		return prepare_read(pieces, code);
	});
}

/* --- blocking transfers -------------------------------------------------- */

/*
 * write() and read() move one range and wait until the transfer has ended. They
 * return the number of bytes. When the limit has passed, they end the transfer;
 * see te_read(3). batch::run is the blocking call for unregistered memory and
 * for atomics.
 */
inline std::uint64_t write(engine &e, const segment &s, const void *local,
			   std::uint64_t remote, std::size_t size,
			   std::chrono::microseconds limit,
			   std::error_code &code)
{
	code = make_code(te_write(e.get(), s.id(), local, remote, size,
				  detail::microseconds(limit)));
	return code ? 0 : size;
}

inline std::uint64_t write(engine &e, const segment &s, const void *local,
			   std::uint64_t remote, std::size_t size,
			   std::chrono::microseconds limit = forever)
{
	return detail::throwing([&](std::error_code &code) {
		return write(e, s, local, remote, size, limit, code);
	});
}

inline std::uint64_t read(engine &e, const segment &s, void *local,
			  std::uint64_t remote, std::size_t size,
			  std::chrono::microseconds limit,
			  std::error_code &code)
{
	code = make_code(te_read(e.get(), s.id(), local, remote, size,
				 detail::microseconds(limit)));
	return code ? 0 : size;
}

inline std::uint64_t read(engine &e, const segment &s, void *local,
			  std::uint64_t remote, std::size_t size,
			  std::chrono::microseconds limit = forever)
{
	return detail::throwing([&](std::error_code &code) {
		return read(e, s, local, remote, size, limit, code);
	});
}

/* writev() and readv() move several local ranges, one after the other, to or
 * from several remote ranges, and wait. The number of ranges may exceed
 * TE_PIECES_MAX. */
inline void writev(engine &e, const segment &s,
		   const std::vector<local_range> &local,
		   const std::vector<remote_range> &remote,
		   std::chrono::microseconds limit, std::error_code &code)
{
	code = make_code(te_writev(e.get(), s.id(), local.data(), local.size(),
				   remote.data(), remote.size(),
				   detail::microseconds(limit)));
}

inline void writev(engine &e, const segment &s,
		   const std::vector<local_range> &local,
		   const std::vector<remote_range> &remote,
		   std::chrono::microseconds limit = forever)
{
	detail::throwing([&](std::error_code &code) {
		writev(e, s, local, remote, limit, code);
	});
}

inline void readv(engine &e, const segment &s,
		  const std::vector<local_range> &local,
		  const std::vector<remote_range> &remote,
		  std::chrono::microseconds limit, std::error_code &code)
{
	code = make_code(te_readv(e.get(), s.id(), local.data(), local.size(),
				  remote.data(), remote.size(),
				  detail::microseconds(limit)));
}

inline void readv(engine &e, const segment &s,
		  const std::vector<local_range> &local,
		  const std::vector<remote_range> &remote,
		  std::chrono::microseconds limit = forever)
{
	detail::throwing([&](std::error_code &code) {
		readv(e, s, local, remote, limit, code);
	});
}

} // namespace moonrail

#endif /* MOONRAIL_HPP */
