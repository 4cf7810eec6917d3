/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_HPP
#define MOONRAIL_HPP

/*
 * The C++ interface of moonrail: handles that free themselves, std::chrono time
 * limits, errors as std::error_code or as exceptions, std::future, and with C++20
 * an awaitable. It consists of this header and needs the C library only
 * (-lmoonrail), C++17 or later.
 *
 * Errors. Each function that may fail has two forms. The form with a last argument
 * std::error_code& throws nothing and sets it. The other form throws
 * moonrail::error, which has the fields of the C library's error record.
 *
 * Threads. All functions of engine are thread-safe, except its move and its
 * destruction. Other objects are used by one thread at a time.
 *
 * Lifetime. An object must not outlive its engine. Memory that a transfer uses must
 * stay valid until the transfer has ended; the destructor of transfer cancels
 * what has not ended and waits for it.
 *
 * No exception passes through a frame of the C library, because it calls no
 * function of this header.
 */

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
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

/* The category of the C library's codes; the values are positive. */
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

/* Makes an error code of a code of the C library, of either sign. */
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

	/* The error record: rail, peer, provider, text, hint. */
	const te_error &record() const noexcept { return record_; }

	/* Bytes of the transfer may still arrive at the target. */
	bool unfenced() const noexcept
	{
		return record_.flags & TE_ERROR_UNFENCED;
	}

	/* It is unknown whether the operation was executed. */
	bool unknown() const noexcept
	{
		return record_.flags & TE_ERROR_UNKNOWN;
	}

	/* The segment must be opened again. */
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

[[noreturn]] inline void raise(std::error_code code)
{
	throw error(code, last());
}

/* Calls the function with an error code, and throws what it has set. */
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

/* Converts a time limit; the largest value means none. */
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

/* No time limit. */
inline constexpr std::chrono::microseconds forever =
	std::chrono::microseconds::max();

/* --- engine -------------------------------------------------------------- */

/* What engine's constructor needs. */
struct options {
	std::string metadata = P2P;
	std::string name = "0.0.0.0";	/* with P2P: address of this host */
	std::string ip;			/* of the control channel; "": any */
	std::uint16_t port = 0;		/* of the control channel; 0: any */
	std::vector<std::string> transports;	/* empty: those that fit */
	std::vector<std::string> settings;	/* "NAME=VALUE" */

	static constexpr const char *P2P = "P2PHANDSHAKE";
};

struct notification {
	std::string name, text;
};

/* This process's end of all its transfers. */
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

	/* The handle for functions of the C API; the engine stays the owner. */
	transfer_engine_t get() const noexcept { return handle_; }
	explicit operator bool() const noexcept { return handle_; }

	/* The name under which peers open this engine's segment. */
	std::string name() const
	{
		char text[512] = "";

		getLocalIpAndPort(handle_, text, sizeof(text));
		return text;
	}

	/* Checks that the control port of that peer answers. */
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

	/* Takes the notifications that have arrived. */
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

	std::vector<struct te_rail_stats> rails() const
	{
		std::size_t n = 0;

		te_rail_stats(handle_, nullptr, sizeof(struct te_rail_stats),
			      &n);
		std::vector<struct te_rail_stats> list(n);
		te_rail_stats(handle_, list.data(), sizeof(list[0]), &n);
		list.resize(n < list.size() ? n : list.size());
		return list;
	}

	/* The descriptor that is readable while something has ended or arrived;
	 * see te_event_fd(3). The engine owns it. */
	int event_fd() const noexcept { return te_event_fd(handle_); }

private:
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

/* Registered memory, which the destructor unregisters. The bytes belong to the
 * program, unless allocate() has made them. */
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

	/* Allocates and registers memory, as te_alloc(3) does. location: nullptr
	 * for any node. */
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
	 * access it. The destructor does the same, but cannot report an error. */
	void release(std::error_code &code) noexcept
	{
		int ret = 0;

		if (engine_)
			ret = allocated_ ? te_free(engine_, addr_) :
					   unregisterLocalMemory(engine_,
								 addr_);
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
		int ret = registerLocalMemory(e.get(), addr, size, location,
					      remote);

		code = make_code(ret);
		if (ret)
			return;
		engine_ = e.get();
		addr_ = addr;
		size_ = size;
	}

	void swap(memory &other) noexcept
	{
		std::swap(engine_, other.engine_);
		std::swap(addr_, other.addr_);
		std::swap(size_, other.size_);
		std::swap(allocated_, other.allocated_);
	}

	transfer_engine_t engine_ = nullptr;
	void *addr_ = nullptr;
	std::size_t size_ = 0;
	bool allocated_ = false;
};

/* --- segments ------------------------------------------------------------ */

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

	/* The buffers of the segment; their addr is a remote address. */
	std::vector<te_buffer> buffers(std::error_code &code) const
	{
		std::vector<te_buffer> list;
		std::size_t n = 0;

		do {
			list.resize(n);
			code = make_code(te_segment_buffers(
				engine_, id_, list.data(), sizeof(te_buffer),
				&n));
		} while (!code && n > list.size());
		list.resize(code ? 0 : n);
		return list;
	}

	std::vector<te_buffer> buffers() const
	{
		return detail::throwing([&](std::error_code &code) {
			return buffers(code);
		});
	}

	/* Sends a notification and waits until the peer's engine has it. */
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
	void open(engine &e, const std::string &name, std::error_code &code)
	{
		id_ = openSegment(e.get(), name.c_str());
		if (id_ < 0)
			code = make_code(detail::last().code);
		else
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
		: engine_(std::exchange(other.engine_, nullptr)),
		  batch_(other.batch_), count_(other.count_)
	{
	}

	transfer &operator=(transfer &&other) noexcept
	{
		std::swap(engine_, other.engine_);
		std::swap(batch_, other.batch_);
		std::swap(count_, other.count_);
		return *this;
	}

	/* Cancels what has not ended, and waits for its end. */
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

	/* Waits for the end. Returns false if the time has passed. */
	template <typename Rep, typename Period>
	bool wait_for(std::chrono::duration<Rep, Period> limit) const noexcept
	{
		return te_wait_batch(engine_, batch_,
				     detail::microseconds(limit),
				     nullptr) != TE_TIMED_OUT;
	}

	void wait() const noexcept { wait_for(forever); }

	/* Waits for the end and returns the number of bytes. */
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

	/* Requests the early end. get() reports how the transfer has ended. The
	 * memory may be used again when it has ended, not earlier. */
	void cancel() const noexcept { te_cancel_batch(engine_, batch_); }

	/* The descriptor that is readable when the transfer has ended, or
	 * a negative code. The transfer owns it. */
	int event_fd() const noexcept
	{
		return te_batch_event_fd(engine_, batch_);
	}

	/* The error record of the first request that did not complete. */
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

	/* Passes the end to a future. A thread waits for it. */
	std::future<std::uint64_t> as_future() &&
	{
		return std::async(std::launch::async,
				  [t = std::move(*this)] { return t.get(); });
	}

#if defined(__cpp_impl_coroutine)
	/* co_await returns the number of bytes or throws moonrail::error. The
	 * coroutine continues in a thread of its own, which waits for the end. */
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

	transfer(transfer_engine_t e, batch_id_t id, std::size_t count) noexcept
		: engine_(e), batch_(id), count_(count)
	{
	}

	transfer_engine_t engine_;
	batch_id_t batch_;
	std::size_t count_;
};

/* Requests that will be submitted together. */
class batch {
public:
	explicit batch(engine &e) : engine_(e.get()) {}

	batch &write(const segment &s, const void *local, std::uint64_t remote,
		     std::size_t size)
	{
		return add(OPCODE_WRITE, s, const_cast<void *>(local), remote,
			   size);
	}

	batch &read(const segment &s, void *local, std::uint64_t remote,
		    std::size_t size)
	{
		return add(OPCODE_READ, s, local, remote, size);
	}

	std::size_t size() const noexcept { return requests_.size(); }

	/* Submits the requests; the batch is empty afterwards. With a
	 * notification, the target receives it when all bytes are in place. */
	transfer submit(const notification *note, std::error_code &code)
	{
		std::vector<transfer_request> all = std::move(requests_);
		batch_id_t id = allocateBatchID(engine_, all.size());
		int ret;

		requests_.clear();
		if (id == INVALID_BATCH) {
			code = make_code(302);
			return { nullptr, 0, 0 };
		}
		if (note) {
			notify_msg_t msg = {
				const_cast<char *>(note->name.c_str()),
				const_cast<char *>(note->text.c_str())
			};

			ret = submitTransferWithNotify(engine_, id, all.data(),
						       all.size(), msg);
		} else {
			ret = submitTransfer(engine_, id, all.data(),
					     all.size());
		}
		code = make_code(ret);
		if (!ret)
			return { engine_, id, all.size() };
		freeBatchID(engine_, id);
		return { nullptr, 0, 0 };
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

private:
	batch &add(int opcode, const segment &s, void *local,
		   std::uint64_t remote, std::size_t size)
	{
		transfer_request r = {};

		r.opcode = opcode;
		r.source = local;
		r.target_id = s.id();
		r.target_offset = remote;
		r.length = size;
		requests_.push_back(r);
		return *this;
	}

	transfer_engine_t engine_;
	std::vector<transfer_request> requests_;
};

/* Writes and waits for the end. */
inline std::uint64_t write(engine &e, const segment &s, const void *local,
			   std::uint64_t remote, std::size_t size)
{
	return batch(e).write(s, local, remote, size).submit().get();
}

/* Reads and waits for the end. */
inline std::uint64_t read(engine &e, const segment &s, void *local,
			  std::uint64_t remote, std::size_t size)
{
	return batch(e).read(s, local, remote, size).submit().get();
}

} // namespace moonrail

#endif /* MOONRAIL_HPP */
