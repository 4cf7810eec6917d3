/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_COMMON_H
#define MOONRAIL_MOONCAKE_COMMON_H

/*
 * Functions that programs for Mooncake use in addition to its engine. Such
 * programs also rely on the system headers that this header includes. glog and
 * libnuma are included if the compiler finds them, but no function of
 * moonrail's headers uses them.
 */
#if __cplusplus < 202002L
#error "The headers of Mooncake's C++ API need C++20 (-std=c++20)"
#endif

#if __has_include(<glog/logging.h>)
#include <glog/logging.h>
#endif
#if __has_include(<numa.h>)
#include <numa.h>
#endif

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "error.h"

#ifndef PAUSE
#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ __volatile__("yield")
#else
#define PAUSE()
#endif
#endif

#ifndef likely
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif

namespace mooncake {

inline constexpr int LOCAL_SEGMENT_ID = 0;

/* --- time, host, processors ---------------------------------------------- */

inline std::int64_t getCurrentTimeInNano()
{
	return std::chrono::duration_cast<std::chrono::nanoseconds>(
		       std::chrono::system_clock::now().time_since_epoch())
		.count();
}

inline std::int64_t getCurrentTimeInMilli()
{
	return getCurrentTimeInNano() / 1000000;
}

/* Returns the local time as "2026-01-31 23:59:59.000000". */
inline std::string getCurrentDateTime()
{
	std::int64_t us = getCurrentTimeInNano() / 1000;
	std::time_t seconds = static_cast<std::time_t>(us / 1000000);
	std::tm parts = {};
	char text[64], fraction[16];

	localtime_r(&seconds, &parts);
	std::strftime(text, sizeof(text), "%F %T", &parts);
	std::snprintf(fraction, sizeof(fraction), ".%06d",
		      static_cast<int>(us % 1000000));
	return std::string(text) + fraction;
}

inline std::string getHostname()
{
	char name[256] = "";

	if (gethostname(name, sizeof(name) - 1))
		return "";
	return name;
}

/*
 * Binds the calling thread to the processors of a NUMA node. Uses node 0 if
 * socket_id is not a node of this host. Returns 0 or ERR_NUMA. Reads the list
 * of processors from sysfs, so that the program need not link with libnuma.
 */
inline int bindToSocket(int socket_id)
{
	const std::string folder = "/sys/devices/system/node/node";
	std::string text;
	cpu_set_t set;

	std::ifstream list(folder + std::to_string(socket_id) + "/cpulist");
	if (!std::getline(list, text)) {
		std::ifstream first(folder + "0/cpulist");
		if (!std::getline(first, text))
			return ERR_NUMA;
	}
	CPU_ZERO(&set);
	for (const char *at = text.c_str(); *at >= '0' && *at <= '9';) {
		char *end;
		unsigned long low = std::strtoul(at, &end, 10), high = low;

		if (*end == '-')
			high = std::strtoul(end + 1, &end, 10);
		for (; low <= high && low < CPU_SETSIZE; low++)
			CPU_SET(low, &set);
		at = *end == ',' ? end + 1 : end;
	}
	if (!CPU_COUNT(&set))
		return 0;
	return sched_setaffinity(0, sizeof(set), &set) ? ERR_NUMA : 0;
}

/* --- host names and ports ------------------------------------------------ */

template <typename T> std::optional<T> parseFromString(std::string_view text)
{
	const char *end = text.data() + text.size();
	T value{};
	auto [at, error] = std::from_chars(text.data(), end, value);

	if (error != std::errc() || at != end)
		return {};
	return value;
}

inline std::uint16_t getPortFromString(std::string_view text,
				       std::uint16_t default_port)
{
	return parseFromString<std::uint16_t>(text).value_or(default_port);
}

inline std::uint16_t getDefaultHandshakePort()
{
	const char *text = std::getenv("MC_HANDSHAKE_PORT");

	return text ? getPortFromString(text, 12001) : 12001;
}

/* Returns true if the text is an IPv6 address without a port; a zone ("%eth0") may
 * follow it. */
inline bool isValidIpV6(const std::string &address)
{
	std::string number = address.substr(0, address.find('%'));
	in6_addr parsed;

	if (address.find(':', number.size()) != address.npos)
		return false;
	return inet_pton(AF_INET6, number.c_str(), &parsed) == 1;
}

inline std::string maybeWrapIpV6(const std::string &address)
{
	return isValidIpV6(address) ? "[" + address + "]" : address;
}

namespace detail {

/* Splits a name into host and port. The name is "host", "host:port",
 * "[IPv6]:port", an IPv6 address, or an IPv6 address with a zone and ":port".
 * The port is empty if the name has none. */
inline std::pair<std::string, std::string> split_host(const std::string &name)
{
	if (name.starts_with('[')) {
		auto end = name.find(']');
		if (end != name.npos &&
		    isValidIpV6(name.substr(1, end - 1))) {
			auto colon = name.find(':', end);
			return { name.substr(1, end - 1),
				 colon == name.npos ?
					 "" :
					 name.substr(colon + 1) };
		}
	}
	if (isValidIpV6(name))
		return { name, "" };
	auto colon = name.rfind(':');
	if (colon == name.npos)
		return { name, "" };
	return { name.substr(0, colon), name.substr(colon + 1) };
}

} // namespace detail

inline std::pair<std::string, std::uint16_t>
parseHostNameWithPort(const std::string &name)
{
	auto [host, port] = detail::split_host(name);

	return { host, getPortFromString(port, getDefaultHandshakePort()) };
}

inline bool hasExplicitPort(const std::string &name)
{
	return !detail::split_host(name).second.empty();
}

inline std::string getHostNameWithoutPort(const std::string &name)
{
	return detail::split_host(name).first;
}

inline std::string buildHostNameWithPort(const std::string &host,
					 std::uint16_t port)
{
	return maybeWrapIpV6(host) + ":" + std::to_string(port);
}

/* --- memory, random numbers ---------------------------------------------- */

/* Returns true if the two ranges have a byte in common. */
inline bool overlap(const void *a, std::size_t a_length, const void *b,
		    std::size_t b_length)
{
	auto x = reinterpret_cast<std::uintptr_t>(a);
	auto y = reinterpret_cast<std::uintptr_t>(b);

	return x < y ? y - x < a_length : x - y < b_length;
}

/* A generator of random numbers that are not suitable for cryptography. */
class SimpleRandom {
public:
	explicit SimpleRandom(std::uint32_t seed) : state_(seed) {}

	/* Returns the generator of the calling thread. */
	static SimpleRandom &Get()
	{
		thread_local SimpleRandom one(std::random_device{}());
		return one;
	}

	std::uint32_t next()
	{
		return static_cast<std::uint32_t>(state_());
	}

	/* Returns a number below max. max must not be 0. */
	std::uint32_t next(std::uint32_t max) { return next() % max; }

private:
	std::minstd_rand state_;
};

} // namespace mooncake

#endif
