/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests moonrail.hpp with two processes.
 *
 *	moonrail_test            runs the tests; starts itself as the target
 *	moonrail_test target     prints its name and waits until its input ends
 */
#include <moonrail.hpp>

#include <iostream>

#include "cxx_test.hpp"

using namespace std::chrono_literals;

static constexpr std::size_t SIZE = 8 << 20;
static moonrail::options here(std::vector<std::string> settings = {})
{
	moonrail::options o;

	o.name = "127.0.0.1";
	o.settings = std::move(settings);
	return o;
}

static int target()
{
	moonrail::engine e(here());
	std::vector<char> bytes(SIZE);
	moonrail::memory m(e, bytes.data(), bytes.size());

	std::cout << e.name() << std::endl;
	while (std::cin.get() != EOF)
		;
	return 0;
}

static void write_and_read_move_the_bytes(const std::string &name)
{
	moonrail::engine e(here());
	std::vector<char> bytes(2 << 20);
	moonrail::memory m(e, bytes.data(), bytes.size());
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr;

	for (std::size_t i = 0; i < 1 << 20; i++)
		bytes[i] = static_cast<char>(i * 7 + (i >> 9));
	CHECK(moonrail::write(e, s, &bytes[0], there, 1 << 20) == 1 << 20);
	CHECK(moonrail::read(e, s, &bytes[1 << 20], there, 1 << 20) ==
	      1 << 20);
	CHECK(!std::memcmp(&bytes[0], &bytes[1 << 20], 1 << 20));
	e.probe(name, 10s);
	CHECK(!e.rails().empty());
}

static void errors_are_codes_or_exceptions(const std::string &name)
{
	moonrail::engine e(here());
	std::error_code code;
	char byte;

	moonrail::segment bad(e, "127.0.0.1:1", code);
	CHECK(code == moonrail::make_code(-102));
	CHECK(code.category().name() == std::string("moonrail"));
	try {
		moonrail::segment thrown(e, "127.0.0.1:1");
		CHECK(false);
	} catch (const moonrail::error &x) {
		CHECK(x.code().value() == 102 && x.record().text[0]);
		CHECK(!x.unfenced() && !x.unknown());
	}
	moonrail::segment s(e, name);
	moonrail::memory m(e, &byte, 1);
	auto t = moonrail::batch(e).write(s, &byte, 4096, 1).submit();
	t.get(code);
	CHECK(code);
	try {
		t.get();
		CHECK(false);
	} catch (const moonrail::error &x) {
		CHECK(x.code() == code && x.record().text[0]);
	}
	moonrail::engine refused(here({ "MOONRAIL_NO_SUCH=1" }), code);
	CHECK(code && !refused);
	moonrail::memory again(e, &byte, 1, "*", true, code);
	CHECK(code == moonrail::make_code(7));
	m.release(code);
	CHECK(!code);
}

static void notification_follows_its_bytes(const std::string &)
{
	moonrail::engine e(here()), other(here());
	std::vector<char> bytes(4096, 'x'), room(4096);
	moonrail::memory m(e, bytes.data(), bytes.size());
	moonrail::memory to(other, room.data(), room.size());
	moonrail::segment s(e, other.name());
	moonrail::batch b(e);

	b.write(s, bytes.data(), to.address(), 4096);
	CHECK(b.size() == 1);
	auto t = b.submit(moonrail::notification{ "done", "4096" });
	CHECK(t.get() == 4096);
	s.notify("second", "");
	std::vector<moonrail::notification> all;
	for (int i = 0; i < 1000 && all.size() < 2; i++) {
		for (auto &one : other.notifications())
			all.push_back(one);
		std::this_thread::sleep_for(1ms);
	}
	CHECK(all.size() == 2 && all[0].name == "done" &&
	      all[0].text == "4096" && all[1].name == "second");
	CHECK(bytes == room);
}

static void transfers_end_as_futures(const std::string &name)
{
	moonrail::engine e(here());
	auto m = moonrail::memory::allocate(e, 1 << 20, "cpu:0");
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr;
	std::vector<std::future<std::uint64_t>> all;

	for (int i = 0; i < 16; i++)
		all.push_back(moonrail::batch(e)
				      .write(s, m.data(), there, m.size())
				      .submit()
				      .as_future());
	for (auto &one : all)
		CHECK(one.get() == 1 << 20);
	auto t = moonrail::batch(e).read(s, m.data(), there, 64).submit();
	CHECK(t.wait_for(20s) && t.done());
	CHECK(t.event_fd() >= 0);
}

static void transfers_that_are_dropped_are_canceled(const std::string &name)
{
	moonrail::engine e(here({ "MOONRAIL_LOCAL=0" }));
	std::vector<char> bytes(8 << 20);
	moonrail::memory m(e, bytes.data(), bytes.size());
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr;

	for (int i = 0; i < 50; i++)
		moonrail::batch(e)
			.write(s, bytes.data(), there, bytes.size())
			.submit();
	auto t = moonrail::batch(e)
			 .write(s, bytes.data(), there, bytes.size())
			 .submit();
	t.cancel();
	t.wait();
	std::error_code code;
	t.get(code);
	CHECK(!code || code == moonrail::make_code(TE_CANCELED));
	CHECK(moonrail::write(e, s, bytes.data(), there, 4096) == 4096);
}

#if defined(__cpp_impl_coroutine)
struct job {
	struct promise_type {
		std::promise<std::uint64_t> done;

		job get_return_object() { return { done.get_future() }; }
		std::suspend_never initial_suspend() { return {}; }
		std::suspend_never final_suspend() noexcept { return {}; }
		void return_value(std::uint64_t n) { done.set_value(n); }
		void unhandled_exception()
		{
			done.set_exception(std::current_exception());
		}
	};

	std::future<std::uint64_t> result;
};

static job copy(moonrail::engine &e, moonrail::segment &s, void *from,
		std::uint64_t to, std::size_t size)
{
	std::uint64_t n = 0;

	for (int i = 0; i < 10; i++)
		n += co_await moonrail::batch(e)
			     .write(s, from, to, size)
			     .submit();
	co_return n;
}

static void transfers_are_awaitable(const std::string &name)
{
	moonrail::engine e(here());
	std::vector<char> bytes(1 << 20);
	moonrail::memory m(e, bytes.data(), bytes.size());
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr;

	CHECK(copy(e, s, bytes.data(), there, 1 << 20).result.get() ==
	      10 << 20);
	try {
		copy(e, s, bytes.data(), 4096, 1).result.get();
		CHECK(false);
	} catch (const moonrail::error &x) {
		CHECK(x.code());
	}
}
#endif

int main(int argc, char **argv)
{
	static const test_case cases[] = {
		CASE(write_and_read_move_the_bytes),
		CASE(errors_are_codes_or_exceptions),
		CASE(notification_follows_its_bytes),
		CASE(transfers_end_as_futures),
		CASE(transfers_that_are_dropped_are_canceled),
#if defined(__cpp_impl_coroutine)
		CASE(transfers_are_awaitable),
#endif
	};

	if (argc > 1)
		return target();
	child peer(argv[0]);
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), peer.name);
}
