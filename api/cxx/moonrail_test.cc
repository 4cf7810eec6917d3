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
	moonrail::registration all, layer;
	all.addr = bytes.data();
	all.size = bytes.size();
	all.label = "model";
	layer.addr = bytes.data() + 4096;
	layer.size = 8192;
	layer.label = "layer 1";
	layer.nested = true;
	moonrail::memory m(e, all), part(e, layer);

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
	CHECK(wait_until([&] {
		for (auto &one : other.notifications())
			all.push_back(one);
		return all.size() >= 2;
	}));
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

static void labels_find_the_memory_of_a_peer(const std::string &name)
{
	moonrail::engine e(here());
	moonrail::segment s(e, name);
	std::error_code code;

	auto all = s.find("model"), layer = s.find("layer 1");
	CHECK(all.size() == 1 && layer.size() == 1);
	CHECK(layer.at(0).addr == all.at(0).addr + 4096);
	CHECK(all[0].length == SIZE && layer[0].length == 8192);
	CHECK(s.find(nullptr).size() == 2);
	CHECK(s.find("layer 2", code).empty());
	CHECK(code == moonrail::make_code(3));
}

static void nested_memory_is_released_before_its_buffer(const std::string &)
{
	moonrail::engine e(here());
	std::vector<char> bytes(65536);
	std::error_code code;
	moonrail::registration outer, inner;

	outer.addr = bytes.data();
	outer.size = bytes.size();
	inner.addr = &bytes[100];
	inner.size = 200;
	moonrail::memory m(e, outer);
	moonrail::memory refused(e, inner, code);
	CHECK(code == moonrail::make_code(7));
	inner.nested = true;
	inner.label = "part";
	moonrail::memory part(e, inner);
	m.release(code);
	CHECK(code == moonrail::make_code(4));
	part.release(code);
	CHECK(!code);
	m.release(code);
	CHECK(!code);
	outer.read_only = true;
	moonrail::memory fixed(e, outer);
	moonrail::segment self(e, e.name());
	moonrail::write(e, self, &bytes[0], fixed.address() + 8, 8, 10s, code);
	CHECK(code);
}

static void ranges_are_moved_by_one_call(const std::string &name)
{
	for (const char *local : { "MOONRAIL_LOCAL=0", "MOONRAIL_LOCAL=1" }) {
		moonrail::engine e(here({ local }));
		std::vector<char> bytes(1 << 20);
		moonrail::memory m(e, bytes.data(), bytes.size());
		moonrail::segment s(e, name);
		std::uint64_t there = s.buffers().at(0).addr;
		std::vector<moonrail::local_range> from, to;

		for (std::size_t i = 0; i < 1000; i++) {
			bytes[i * 100] = static_cast<char>(i * 5);
			from.push_back({ &bytes[i * 100], 50 });
			to.push_back({ &bytes[500000 + i * 50], 50 });
		}
		moonrail::writev(e, s, from, { { there, 50000 } });
		moonrail::readv(e, s, to,
				{ { there, 10 }, { there + 10, 49990 } }, 20s);
		bool same = true;
		for (std::size_t i = 0; i < 1000; i++)
			same = same && bytes[500000 + i * 50] ==
					       static_cast<char>(i * 5);
		CHECK(same);
		moonrail::batch b(e);
		b.readv(s, { to[0], to[1] }, { { there, 100 } })
			.writev(s, { from[0] }, { { there, 50 } });
		CHECK(b.submit().get() == 150);
		std::error_code code;
		moonrail::readv(e, s, to, { { there, 10 } }, 20s, code);
		CHECK(code == moonrail::make_code(1));
	}
}

static void unregistered_memory_is_moved_with_bounce(const std::string &name)
{
	moonrail::engine e(here({ "MOONRAIL_LOCAL=0" }));
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr;
	std::vector<char> from(200000), to(200000);
	std::error_code code;

	for (std::size_t i = 0; i < from.size(); i++)
		from[i] = static_cast<char>(i * 3 + (i >> 8));
	moonrail::batch b(e);
	b.write(s, from.data(), there, from.size()).run(code);
	CHECK(code == moonrail::make_code(3) && !b.size());
	b.write(s, from.data(), there, from.size()).bounce().run();
	b.time_limit(30s).read(s, to.data(), there, to.size()).bounce();
	CHECK(b.submit().get() == to.size());
	CHECK(from == to);
	try {
		b.write(s, from.data(), there, 1)
			.bounce()
			.submit(moonrail::notification{ "a", "b" });
		CHECK(false);
	} catch (const moonrail::error &x) {
		CHECK(x.code() == std::errc::invalid_argument);
	}
}

static void atomics_return_the_old_value(const std::string &name)
{
	moonrail::engine e(here());
	auto m = moonrail::memory::allocate(e, 4096);
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr + 65536;
	auto *old = static_cast<std::uint64_t *>(m.data());
	auto *small = reinterpret_cast<std::uint32_t *>(old + 4);
	moonrail::batch b(e);

	old[0] = 100;
	moonrail::write(e, s, old, there, 8);
	b.atomic_add(s, there, 11).run();
	b.atomic_fetch_add<std::uint64_t>(s, old, there, 5).run();
	b.atomic_swap<std::uint64_t>(s, old + 1, there, 7).run();
	b.atomic_compare_swap<std::uint64_t>(s, old + 2, there, 7, 9).run();
	b.atomic_compare_swap<std::uint64_t>(s, old + 3, there, 7, 8).run();
	b.atomic_fetch_add<std::uint32_t>(s, small, there, 1);
	CHECK(b.submit().get() == 4);
	CHECK(old[0] == 111 && old[1] == 116 && old[2] == 7 && old[3] == 9);
	CHECK(*small == 9);
}

static void cookies_return_and_batches_are_used_again(const std::string &name)
{
	moonrail::engine e(here());
	auto m = moonrail::memory::allocate(e, 4096);
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr;
	batch_id_t id;

	CHECK(e.event_fd() >= 0);
	moonrail::batch b(e);
	b.write(s, m.data(), there, 10).cookie(UINT64_MAX);
	b.write(s, m.data(), there, 20).read(s, m.data(), there, 30).cookie(3);
	auto t = b.submit();
	id = t.id();
	CHECK(t.get() == 60 && t.wait_task_for(2, 20s));
	auto tasks = t.tasks();
	CHECK(tasks.size() == 3 && tasks[0].cookie == UINT64_MAX &&
	      tasks[1].cookie == 0 && tasks[2].cookie == 3);
	CHECK(tasks[2].transferred_bytes == 30 &&
	      tasks[2].status == STATUS_COMPLETED);
	auto ended = e.ended();
	CHECK(ended.size() == 1 && ended[0].batch_id == id &&
	      ended[0].cookie == UINT64_MAX && ended[0].tasks == 3);
	CHECK(e.ended().empty());
	moonrail::batch again(std::move(t));
	t = again.write(s, m.data(), there, 8).submit();
	CHECK(t.id() == id && t.get() == 8 && t.tasks().size() == 1);
}

static void first_ended_transfer_is_found(const std::string &name)
{
	moonrail::engine e(here({ "MOONRAIL_LOCAL=0" }));
	std::vector<char> bytes(8 << 20);
	moonrail::memory m(e, bytes.data(), bytes.size());
	moonrail::segment s(e, name), self(e, e.name());
	std::uint64_t there = s.buffers().at(0).addr;
	std::vector<moonrail::transfer> all;
	std::error_code code;

	moonrail::batch many(e);
	for (int i = 0; i < 1000; i++)
		many.write(s, bytes.data(), there, bytes.size());
	all.push_back(many.submit());
	all.push_back(moonrail::batch(e)
			      .write(self, &bytes[0], m.address() + 64, 64)
			      .submit());
	CHECK(e.wait_any(all, 20s) == std::size_t(1));
	all.pop_back();
	if (!all[0].done()) {
		moonrail::batch busy(std::move(all[0]), code);
		CHECK(code == moonrail::make_code(4) || all[0].done());
	}
	all[0].cancel_task(999);
	all[0].time_limit(0s);
	CHECK(e.wait_any(all) == std::size_t(0));
	all[0].get(code);
	CHECK(code);
	CHECK(!e.wait_any({}, 0s, code) && code);
	e.drain(20s);
	auto late = moonrail::batch(e)
			    .write(s, bytes.data(), there, bytes.size())
			    .submit();
	late.deadline(std::chrono::steady_clock::now() + 60s);
	CHECK(late.get() == bytes.size());
}

static void prepared_pieces_are_submitted_many_times(const std::string &name)
{
	moonrail::engine e(here());
	std::vector<char> bytes(100000);
	moonrail::memory m(e, bytes.data(), bytes.size());
	moonrail::segment s(e, name);
	std::uint64_t there = s.buffers().at(0).addr;
	std::vector<moonrail::piece> out, in;
	std::error_code code;

	for (std::size_t i = 0; i < 500; i++) {
		bytes[i * 64] = static_cast<char>(i);
		out.push_back({ &bytes[i * 64], there + i * 100, 64 });
		in.push_back({ &bytes[50000 + i * 64], there + i * 100, 64 });
	}
	auto write = s.prepare_write(out), read = s.prepare_read(in);
	CHECK(write.size() == 500);
	CHECK(write.submit_all().get() == 500 * 64);
	auto t = read.submit({ 499, 7 }, 12);
	CHECK(t.get() == 128 && t.tasks().at(0).cookie == 12);
	CHECK(!t.checked() && !t.restarted());
	CHECK(bytes[50000 + 499 * 64] == static_cast<char>(499) &&
	      bytes[50000 + 7 * 64] == 7 && !bytes[50000 + 8 * 64]);
	read.submit({}, 0, code);
	CHECK(code == std::errc::invalid_argument);
	read.submit({ 500 }, 0, code);
	CHECK(code == moonrail::make_code(1));
	out[0].remote = there + SIZE;
	s.prepare_write(out, code);
	CHECK(code == moonrail::make_code(3));
}

static void binary_notifications_carry_any_bytes(const std::string &)
{
	moonrail::engine e(here()), other(here());
	moonrail::segment s(e, other.name());
	const unsigned char data[] = { 0, 255, 7, 0 };
	std::vector<moonrail::binary_notification> all;

	s.notify_bytes("all", data, sizeof(data));
	for (int i = 0; i < 100; i++)
		s.notify_bytes(std::to_string(i), nullptr, 0);
	CHECK(wait_until([&] {
		for (auto &one : other.binary_notifications())
			all.push_back(one);
		return all.size() >= 101;
	}));
	CHECK(all.size() == 101 && all[0].name == "all" &&
	      all[0].data == std::vector<unsigned char>(data, data + 4));
	CHECK(all[100].name == "99" && all[100].data.empty());
	CHECK(other.notifications().empty());
}

static void descriptors_and_statistics_are_available(const std::string &name)
{
	moonrail::engine e(here()), other(here());
	std::vector<char> bytes(4096);
	moonrail::memory m(other, bytes.data(), bytes.size());
	std::error_code code;

	auto s = moonrail::segment::import(e, other.export_segment());
	CHECK(s.buffers().at(0).addr == m.address());
	moonrail::segment::import(e, "x", 1, code);
	CHECK(code == moonrail::make_code(104));
	auto fresh = moonrail::segment::open_fresh(e, name);
	CHECK(!fresh.paths().empty() && !fresh.paths("cpu:0").empty());
	CHECK(fresh.stats().name[0]);
	fresh.flush(20s);
	e.warm_up(name);
	e.sync();
	CHECK(e.settings().find("MC_SLICE_TIMEOUT=") != std::string::npos);
	CHECK(e.topology().front() == '{');
	CHECK(moonrail::version() == std::string(te_version()));
	CHECK(*moonrail::fabric_version());
}

static void exceptions_of_a_log_function_are_caught(const std::string &)
{
	std::string lines;
	moonrail::engine e(here());
	std::error_code code;

	moonrail::set_log(
		[&](int level, std::string_view module, std::string_view text) {
			if (level == TE_LOG_ERROR && !module.empty())
				lines += text;
			throw 1;
		});
	moonrail::memory refused(e, &lines, 0, "*", true, code);
	moonrail::set_log(nullptr);
	CHECK(code && !lines.empty());
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
		CASE(labels_find_the_memory_of_a_peer),
		CASE(nested_memory_is_released_before_its_buffer),
		CASE(ranges_are_moved_by_one_call),
		CASE(unregistered_memory_is_moved_with_bounce),
		CASE(atomics_return_the_old_value),
		CASE(cookies_return_and_batches_are_used_again),
		CASE(first_ended_transfer_is_found),
		CASE(prepared_pieces_are_submitted_many_times),
		CASE(binary_notifications_carry_any_bytes),
		CASE(descriptors_and_statistics_are_available),
		CASE(exceptions_of_a_log_function_are_caught),
#if defined(__cpp_impl_coroutine)
		CASE(transfers_are_awaitable),
#endif
	};

	if (argc > 1)
		return target();
	child peer(argv[0]);
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), peer.name);
}
