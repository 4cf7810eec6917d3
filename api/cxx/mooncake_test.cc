/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests the headers in mooncake/ with two processes. The tests use each class
 * and each function in these headers.
 *
 *	mooncake_test            runs the tests; starts itself as the target
 *	mooncake_test target     prints its name and waits until its input ends
 */
#include <transfer_engine.h>

#include <config.h>
#include <cuda_alike.h>
#include <memory_location.h>
#include <multi_transport.h>
#include <show_links.h>
#include <transport/transport.h>

#include <csignal>
#include <iostream>

#include "cxx_test.hpp"

using namespace mooncake;
using namespace std::chrono_literals;
using Code = Status::Code;
using NotifyDesc = TransferMetadata::NotifyDesc;

static constexpr std::size_t SIZE = 4 << 20;
static const std::string HERE = "127.0.0.1";

/* An engine with all transports that match the devices of this host. */
struct node {
	TransferEngine engine{ true };

	node() { CHECK(engine.init(P2PHANDSHAKE, HERE) == 0); }
};

/* Memory that is registered with an engine and filled with a pattern. */
struct buffer {
	TransferEngine &engine;
	std::vector<unsigned char> bytes;

	buffer(TransferEngine &e, std::size_t size) : engine(e), bytes(size)
	{
		CHECK(e.registerLocalMemory(data(), size, "cpu:0") == 0);
	}

	~buffer() { CHECK(engine.unregisterLocalMemory(data()) == 0); }

	void fill(unsigned seed)
	{
		for (std::size_t i = 0; i < bytes.size(); i++)
			bytes[i] = static_cast<unsigned char>(
				(i * 31 + seed) ^ (i >> 8));
	}

	unsigned char *data() { return bytes.data(); }
};

static int target()
{
	node here;
	buffer memory(here.engine, SIZE);

	here.engine.enableGracefulShutdown();
	std::cout << here.engine.getLocalIpAndPort() << std::endl;
	while (std::cin.get() != EOF)
		;
	return 0;
}

/* Opens the segment and returns the address of its first buffer. */
static std::uint64_t remote(TransferEngine &engine, SegmentID id)
{
	auto desc = engine.getMetadata()->getSegmentDescByID(id);

	CHECK(desc && desc->buffers.size() == 1 &&
	      desc->buffers[0].length == SIZE &&
	      desc->buffers[0].name == "cpu:0");
	return desc && !desc->buffers.empty() ? desc->buffers[0].addr : 0;
}

/* Waits until a task has ended. */
static TransferStatusEnum wait_task(TransferEngine &engine, BatchID batch,
				    std::size_t task)
{
	TransferStatus status = { TransferStatusEnum::WAITING, 0 };

	while (status.s == TransferStatusEnum::WAITING)
		if (!engine.getTransferStatus(batch, task, status).ok())
			return TransferStatusEnum::INVALID;
	return status.s;
}

/* Moves length bytes in n requests of equal length. Returns the status of the
 * batch. */
static TransferStatusEnum move(TransferEngine &engine, SegmentID id,
			       TransferRequest::OpCode opcode,
			       unsigned char *local, std::uint64_t there,
			       std::size_t length, std::size_t n)
{
	BatchID batch = engine.allocateBatchID(n);
	std::vector<TransferRequest> list;
	TransferStatus status;

	for (std::size_t i = 0; i < n; i++)
		list.push_back({ .opcode = opcode,
				 .source = local + i * length,
				 .target_id = id,
				 .target_offset = there + i * length,
				 .length = length });
	CHECK(batch != INVALID_BATCH_ID);
	CHECK(engine.submitTransfer(batch, list).ok());
	for (std::size_t i = 0; i < n; i++)
		wait_task(engine, batch, i);
	CHECK(engine.getBatchTransferStatus(batch, status).ok());
	if (status.s == TransferStatusEnum::COMPLETED)
		CHECK(status.transferred_bytes == n * length);
	CHECK(engine.freeBatchID(batch).ok());
	CHECK(engine.freeBatchID(batch).IsInvalidArgument());
	return status.s;
}

static void write_and_read_move_the_bytes(const std::string &name)
{
	node here;
	TransferEngine &e = here.engine;
	buffer memory(e, SIZE);
	SegmentHandle s = e.openSegment(name);
	std::uint64_t there = remote(e, s);

	memory.fill(1);
	std::vector<unsigned char> sent = memory.bytes;
	CHECK(move(e, s, TransferRequest::WRITE, memory.data(), there, 65536,
		   SIZE / 65536) == TransferStatusEnum::COMPLETED);
	memory.fill(2);
	CHECK(move(e, s, TransferRequest::READ, memory.data(), there, 65536,
		   SIZE / 65536) == TransferStatusEnum::COMPLETED);
	CHECK(memory.bytes == sent);
	CHECK(e.closeSegment(s) == 0);
}

static void transport_moves_the_bytes(const std::string &name)
{
	TransferEngine e;

	CHECK(e.getMetadata() == nullptr);
	CHECK(e.init(P2PHANDSHAKE, HERE, HERE, 12345) == 0);
	CHECK(e.init(P2PHANDSHAKE, HERE) == ERR_INVALID_ARGUMENT);
	CHECK(e.installTransport("no such transport", nullptr) == nullptr);
	CHECK(e.getTransport("tcp") == nullptr);
	Transport *tcp = e.installTransport("tcp", nullptr);
	CHECK(tcp && e.getTransport("tcp") == tcp);
	CHECK(e.installTransport("tcp", nullptr) == tcp);
	CHECK(e.isTcpOnly() && e.numContexts() >= 1);
	if (!tcp)
		return;
	{
		buffer memory(e, 8192);
		SegmentHandle s = e.openSegment(name);
		std::uint64_t there = remote(e, s);
		TransferStatus status = { TransferStatusEnum::WAITING, 0 };

		memory.fill(3);
		BatchID batch = tcp->allocateBatchID(1);
		CHECK(tcp->submitTransfer(batch,
					  { { TransferRequest::WRITE,
					      memory.data(), s, there,
					      8192 } })
			      .ok());
		while (status.s == TransferStatusEnum::WAITING)
			CHECK(tcp->getTransferStatus(batch, 0, status).ok());
		CHECK(status.s == TransferStatusEnum::COMPLETED &&
		      status.transferred_bytes == 8192);
		CHECK(tcp->freeBatchID(batch).ok());
		auto sent = memory.bytes;
		memory.fill(4);
		CHECK(move(e, s, TransferRequest::READ, memory.data(), there,
			   8192, 1) == TransferStatusEnum::COMPLETED);
		CHECK(memory.bytes == sent);
	}
	CHECK(e.uninstallTransport("tcp") == 0);
	CHECK(e.getTransport("tcp") == nullptr);
	CHECK(e.freeEngine() == 0 && e.getMetadata() == nullptr);
	CHECK(e.getLocalIpAndPort().empty() && e.getRpcPort() == 0);
}

static void errors_are_statuses(const std::string &name)
{
	node here;
	TransferEngine &e = here.engine;
	buffer memory(e, 4096);
	SegmentHandle s = e.openSegment(name);
	std::uint64_t there = remote(e, s);
	TransferStatus status;
	std::vector<unsigned char> stranger(64);

	CHECK(e.openSegment("127.0.0.1:1") == static_cast<SegmentHandle>(-1));
	CHECK(e.getMetadata()->getSegmentDescByID(99) == nullptr);
	CHECK(e.getMetadata()->getSegmentDescByID(UINT64_MAX) == nullptr);
	CHECK(e.CheckSegmentStatus(99).IsInvalidArgument());
	CHECK(e.CheckSegmentStatus(s).ok());
	/* Checks that a request fails whose range the target has not
	 * registered. */
	CHECK(move(e, s, TransferRequest::WRITE, memory.data(),
		   there + SIZE + (1 << 30), 64,
		   1) == TransferStatusEnum::FAILED);
	BatchID batch = e.allocateBatchID(1);
	CHECK(e.getBatchTransferStatus(batch, status).ok() &&
	      status.s == TransferStatusEnum::COMPLETED &&
	      status.transferred_bytes == 0);
	Status bad = e.submitTransfer(batch, { { TransferRequest::WRITE,
						 stranger.data(), s, there,
						 64 } });
	CHECK(bad.IsAddressNotRegistered() && !bad.message().empty());
	CHECK(bad.ToString().starts_with("AddressNotRegistered: "));
	bad = e.submitTransfer(
		batch, { { TransferRequest::WRITE, memory.data(), s, there, 64 },
			 { TransferRequest::WRITE, memory.data(), s, there,
			   64 } });
	CHECK(bad.IsTooManyRequests());
	bad = e.submitTransfer(batch, { { TransferRequest::WRITE, memory.data(),
					  UINT64_MAX, there, 64 } });
	CHECK(bad.IsInvalidArgument());
	CHECK(e.getTransferStatus(batch, 0, status).IsInvalidArgument());
	CHECK(e.freeBatchID(batch).ok());
	CHECK(e.getBatchTransferStatus(batch, status).IsInvalidArgument());
	CHECK(e.allocateBatchID(SIZE) == INVALID_BATCH_ID);
	CHECK(e.registerLocalMemory(memory.data(), 64) ==
	      ERR_ADDRESS_OVERLAPPED);
	CHECK(e.unregisterLocalMemory(stranger.data()) ==
	      ERR_ADDRESS_NOT_REGISTERED);
}

static void statuses_compare_and_print(const std::string &)
{
	Status ok, fault(Code::kSocket, "reason"), copy = fault;
	std::ostringstream text;

	CHECK(ok.ok() && ok == Status::OK() && ok.ToString() == "OK");
	CHECK(Status(Code::kOk, "dropped").message().empty());
	CHECK(copy == fault && copy != ok && copy.code() == Code::kSocket);
	text << fault << " " << Code::kNuma;
	CHECK(text.str() == "Socket: reason Numa");
	Status moved = std::move(copy);
	CHECK(moved == fault);
#define CHECK_CODE(name)                                                    \
	CHECK(Status::name("m").Is##name() && !ok.Is##name() &&             \
	      Status::name("m").ToString() == #name ": m" &&                \
	      Status::CodeToString(Code::k##name) == #name)
	CHECK_CODE(InvalidArgument);
	CHECK_CODE(TooManyRequests);
	CHECK_CODE(AddressNotRegistered);
	CHECK_CODE(BatchBusy);
	CHECK_CODE(DeviceNotFound);
	CHECK_CODE(AddressOverlapped);
	CHECK_CODE(NotSupportedTransport);
	CHECK_CODE(Dns);
	CHECK_CODE(Socket);
	CHECK_CODE(MalformedJson);
	CHECK_CODE(RejectHandshake);
	CHECK_CODE(Metadata);
	CHECK_CODE(Endpoint);
	CHECK_CODE(Context);
	CHECK_CODE(Numa);
	CHECK_CODE(Clock);
	CHECK_CODE(Memory);
	CHECK_CODE(NotImplemented);
	CHECK(Status::CodeToString(static_cast<Code>(77)) == "UnknownCode");
}

static void memory_is_registered_in_batches(const std::string &)
{
	node here;
	TransferEngine &e = here.engine;
	std::vector<char> a(4096), b(8192);

	CHECK(e.registerLocalMemoryBatch({ { a.data(), 4096 },
					   { b.data(), 8192 } },
					 kWildcardLocation) == 0);
	CHECK(e.checkOverlap(a.data() + 4095, 1));
	CHECK(e.checkOverlap(b.data() - 1, 2));
	auto desc = e.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID);
	CHECK(desc && desc->buffers.size() == 2);
	CHECK(desc && desc->name == e.getLocalIpAndPort());
	CHECK(e.unregisterLocalMemoryBatch({ a.data(), a.data(), b.data() }) ==
	      ERR_ADDRESS_NOT_REGISTERED);
	CHECK(!e.checkOverlap(a.data(), 4096));
	CHECK(!e.checkOverlap(b.data(), 8192));
	CHECK(e.registerLocalMemory(a.data(), 4096, kWildcardLocation, false,
				    false) == 0);
	desc = e.getMetadata()->getSegmentDescByID(LOCAL_SEGMENT_ID, true);
	CHECK(desc && desc->buffers.empty());
	CHECK(e.unregisterLocalMemory(a.data(), false) == 0);
}

static void segments_are_described(const std::string &name)
{
	node here;
	TransferEngine &e = here.engine;
	SegmentHandle s = e.openSegment(name);
	auto metadata = e.getMetadata();

	CHECK(metadata->getSegmentID(name) == s);
	auto desc = metadata->getSegmentDescByID(s, true);
	CHECK(desc && desc->name == name && !desc->protocol.empty());
	auto again = metadata->getSegmentDescByName(name);
	CHECK(desc && again && again->buffers == desc->buffers);
	CHECK(desc && again && *again == *desc);
	CHECK(metadata->getSegmentDescByName("127.0.0.1:1") == nullptr);
	CHECK(e.syncSegmentCache() == 0 && e.syncSegmentCache(name) == 0);
	CHECK(e.syncSegmentCache("127.0.0.1:1") < 0);
	CHECK(metadata->syncSegmentCache(name) == 0);
	CHECK(metadata->sendProbe(name) == 0);
	CHECK(metadata->sendProbe("127.0.0.1:1") < 0);
	CHECK(e.probePeerAliveByID(s) == PeerLiveness::Alive);
	CHECK(e.probePeerAliveByID(99) == PeerLiveness::Unreachable);
	CHECK(metadata->updateLocalSegmentDesc() == 0);
	CHECK(metadata->rePublishRpcMetaEntry(e.getLocalIpAndPort()) == 0);
	CHECK(metadata->localRpcMeta().ip_or_host_name == HERE);
	CHECK(metadata->localRpcMeta().rpc_port == e.getRpcPort());
	CHECK(buildHostNameWithPort(HERE, static_cast<std::uint16_t>(
						  e.getRpcPort())) ==
	      e.getLocalIpAndPort());
	CHECK(e.closeSegment(s) == 0 && e.closeSegment(99) == 0);
	CHECK(e.removeLocalSegment(name) == 0);
	CHECK(metadata->removeLocalSegment(name) == 0);
}

static void ended_process_is_unreachable(const std::string &)
{
	node here;
	child other("/proc/self/exe");
	SegmentHandle s = here.engine.openSegment(other.name);

	CHECK(here.engine.probePeerAliveByID(s) == PeerLiveness::Alive);
	other.end();
	CHECK(here.engine.probePeerAliveByID(s) == PeerLiveness::Unreachable);
}

/* Tests that a batch has the status TIMEOUT if its only task has it. The target
 * is stopped, so it cannot be fenced, and MC_SLICE_TIMEOUT is set. */
static void batch_status_follows_the_task(const std::string &)
{
	child other("/proc/self/exe");
	TransferEngine e;
	TransferStatus task = {}, batch = {};

	setenv("MC_SLICE_TIMEOUT", "3", 1);
	CHECK(e.init(P2PHANDSHAKE, HERE) == 0);
	unsetenv("MC_SLICE_TIMEOUT");
	CHECK(e.installTransport("tcp", nullptr));
	{
		buffer memory(e, SIZE);
		SegmentHandle s = e.openSegment(other.name);
		std::uint64_t there = remote(e, s);

		CHECK(move(e, s, TransferRequest::WRITE, memory.data(), there,
			   SIZE, 1) == TransferStatusEnum::COMPLETED);
		/* waits until the process is stopped, because it may run on for
		 * a moment after kill() */
		int status = 0;
		kill(other.pid, SIGSTOP);
		CHECK(waitpid(other.pid, &status, WUNTRACED) == other.pid &&
		      WIFSTOPPED(status));
		BatchID id = e.allocateBatchID(1);
		CHECK(e.submitTransfer(id, { { TransferRequest::WRITE,
					       memory.data(), s, there,
					       SIZE } })
			      .ok());
		wait_task(e, id, 0);
		CHECK(e.getTransferStatus(id, 0, task).ok());
		CHECK(e.getBatchTransferStatus(id, batch).ok());
		CHECK(task.s == TransferStatusEnum::TIMEOUT);
		CHECK(batch.s == task.s);
		CHECK(e.freeBatchID(id).ok());
		kill(other.pid, SIGCONT);
	}
}

static void notification_follows_its_bytes(const std::string &)
{
	node here, there;
	TransferEngine &e = here.engine;
	buffer from(e, 4096), to(there.engine, 4096);
	SegmentHandle s = e.openSegment(there.engine.getLocalIpAndPort());
	std::vector<NotifyDesc> all;

	from.fill(5);
	BatchID batch = e.allocateBatchID(1);
	std::vector<TransferRequest> list = {
		{ TransferRequest::WRITE, from.data(), s,
		  reinterpret_cast<std::uintptr_t>(to.data()), 4096 }
	};
	CHECK(e.submitTransferWithNotify(batch, list, { "a", { '\0' } })
		      .IsInvalidArgument());
	CHECK(e.submitTransferWithNotify(batch, list, { "done", "4096" }).ok());
	CHECK(wait_task(e, batch, 0) == TransferStatusEnum::COMPLETED);
	CHECK(wait_until([&] {
		there.engine.getNotifies(all);
		return !all.empty();
	}));
	CHECK(from.bytes == to.bytes);
	CHECK(e.sendNotifyByID(s, { "second", "" }) == 0);
	CHECK(e.sendNotifyByID(s, { "a", { '\0' } }) == ERR_INVALID_ARGUMENT);
	CHECK(e.sendNotifyByName(there.engine.getLocalIpAndPort(),
				 { "third", "x" }) == 0);
	CHECK(e.sendNotifyByName("127.0.0.1:1", { "n", "x" }) < 0);
	CHECK(wait_until([&] {
		there.engine.getMetadata()->getNotifies(all);
		return all.size() >= 3;
	}));
	CHECK(all.size() == 3 && all[0].name == "done" &&
	      all[0].notify_msg == "4096" && all[1].name == "second" &&
	      all[2].name == "third");
	CHECK(e.freeBatchID(batch).ok());
}

static void scattered_fragments_move(const std::string &name)
{
	node here;
	TransferEngine &e = here.engine;
	buffer memory(e, 1 << 20);
	SegmentHandle s = e.openSegment(name);
	std::uint64_t there = remote(e, s);
	std::vector<std::size_t> from, to, lengths;
	std::vector<int> ended(100);
	bool all_ok = true;

	/* Every second block of 1000 bytes of the buffer is a fragment. At the
	 * target, the fragments are in the opposite order. The last fragment is
	 * empty. */
	for (std::size_t i = 0; i < 100; i++) {
		from.push_back(i * 2000);
		to.push_back((99 - i) * 1000);
		lengths.push_back(i < 99 ? 1000 : 0);
	}
	TransferEngine::ScatterTransferRange range = {
		TransferRequest::WRITE, name, there, SIZE, memory.data(),
		1 << 20, from, to, lengths,
		[&](std::size_t i, const Status &status) {
			ended[i]++;
			all_ok = all_ok && status.ok();
		}
	};
	memory.fill(6);
	auto operation = e.submitScatter({ range });
	Status status = operation.waitFor(20s);
	CHECK(status.ok() && operation.wait().ok());
	CHECK(all_ok && std::count(ended.begin(), ended.end(), 1) == 100);
	auto sent = memory.bytes;
	memory.fill(7);
	range.opcode = TransferRequest::READ;
	range.on_fragment_complete = nullptr;
	CHECK(e.transferScatter({ range }).ok());
	for (std::size_t i = 0; i < 99; i++)
		CHECK(!std::memcmp(&memory.bytes[i * 2000], &sent[i * 2000],
				   1000));
	CHECK(e.transferScatter({}).ok());
	auto moved = std::move(operation);
	CHECK(operation.wait().IsInvalidArgument());
	CHECK(operation.waitFor(1ms).IsInvalidArgument());
}

static void scattered_fragments_are_checked(const std::string &name)
{
	node here;
	TransferEngine &e = here.engine;
	buffer memory(e, 4096);
	std::uint64_t there = remote(e, e.openSegment(name));
	std::vector<std::size_t> zero = { 0, 0 }, lengths = { 64, 4097 };
	std::vector<std::size_t> one = { 0 };
	std::vector<Code> codes(2);
	TransferEngine::ScatterTransferRange range = {
		TransferRequest::WRITE, name, there, SIZE, memory.data(), 4096,
		zero, zero, lengths,
		[&](std::size_t i, const Status &status) {
			codes[i] = status.code();
		}
	};

	CHECK(e.transferScatter({ range }).IsInvalidArgument());
	CHECK(codes[0] == Code::kOk && codes[1] == Code::kInvalidArgument);
	range.remote_segment = "127.0.0.1:1";
	lengths[1] = 64;
	CHECK(e.transferScatter({ range }).IsSocket());
	CHECK(codes[0] == Code::kSocket && codes[1] == Code::kSocket);
	range.remote_segment = name;
	range.remote_offsets = one;
	CHECK(e.transferScatter({ range }).IsInvalidArgument());
	range.remote_offsets = zero;
	range.remote_base_offset = there + SIZE + (1 << 30);
	CHECK(e.transferScatter({ range }).IsSocket());
	range.remote_base_offset = there;
	range.on_fragment_complete = [](std::size_t, const Status &) {
		throw 1;
	};
	CHECK(e.transferScatter({ range }).IsContext());
}

static void filter_selects_the_devices(const std::string &name)
{
	TransferEngine one(true, { "lo" }), two, three;
	std::vector<NicLoadStats> loads;

	CHECK(one.init(P2PHANDSHAKE, HERE) == 0);
	CHECK(one.numContexts() == 1);
	CHECK(one.getLocalTopology()->getHcaList() ==
	      std::vector<std::string>{ "lo" });
	CHECK(one.getNicLoadStats(loads).ok() && loads.size() >= 1);

	two.setWhitelistFilters({ "lo" });
	two.setAutoDiscover({ .enabled = true, .protocol = "rdma" });
	CHECK(two.init(P2PHANDSHAKE, HERE) == 0 && two.numContexts() == 1);

	/* Checks that a filter which is set after init() applies to the first
	 * transport that is installed. */
	three.setAutoDiscover(false);
	CHECK(three.init(P2PHANDSHAKE, HERE) == 0);
	std::string address = three.getLocalIpAndPort();
	CHECK(three.getLocalTopology()->discover({ "lo" }) == 0);
	CHECK(three.getLocalTopology()->getHcaList() ==
	      std::vector<std::string>{ "lo" });
	CHECK(three.installTransport("tcp", nullptr));
	CHECK(three.numContexts() == 1);
	CHECK(three.getLocalIpAndPort() == address);
	CHECK(three.openSegment(name) != static_cast<SegmentHandle>(-1));
	CHECK(three.getLocalTopology()->discover({ "no such device" }) != 0);
	CHECK(!three.installTransport("local", nullptr));
}

static void topology_is_text_and_data(const std::string &)
{
	const std::string json =
		"{\"cpu:0\": [[\"a\", \"b\"], [\"c\"]], \"cuda:0\":[[],[ ]]}";
	node here;
	Topology t, same;

	CHECK(t.empty() && t.toString() == "{}");
	CHECK(t.parse(json) == 0 && !t.empty());
	CHECK(t.getMatrix().size() == 2);
	CHECK(t.getMatrix()["cpu:0"].preferred_hca ==
	      (std::vector<std::string>{ "a", "b" }));
	CHECK(t.getMatrix()["cpu:0"].avail_hca ==
	      std::vector<std::string>{ "c" });
	CHECK(t.getHcaList() == (std::vector<std::string>{ "a", "b", "c" }));
	CHECK(same.parse(t.toString()) == 0 && same == t);
	CHECK(t.disableDevice("b") == 0 && same != t);
	CHECK(t.disableDevice("b") == ERR_DEVICE_NOT_FOUND);
	CHECK(t.getHcaList() == (std::vector<std::string>{ "a", "c" }));
	for (const char *bad : { "", "{", "[]", "{\"a\": 1}", "{\"a\": [[]]}",
				 "{\"a\": [[],[]]", "{} x", "{\"a\": [[1],[]]}",
				 "{\"a\": [[\"x" })
		CHECK(t.parse(bad) == ERR_MALFORMED_JSON);
	t.clear();
	CHECK(t.empty() && t.getHcaList().empty());
	CHECK(t.discover() == 0 && !t.empty());

	std::string text = here.engine.getLocalTopologyString();
	CHECK(same.parse(text) == 0 && !same.empty());
	CHECK(*here.engine.getLocalTopology() == same);

	/* Checks that the transports use the topology that the program has
	 * set. */
	TransferEngine e;
	CHECK(e.init(P2PHANDSHAKE, HERE) == 0);
	std::string nic = same.getHcaList().at(0);
	CHECK(e.getLocalTopology()->parse("{\"cpu:7\": [[\"" + nic +
					  "\"], []]}") == 0);
	CHECK(e.installTransport("tcp", nullptr));
	CHECK(e.getLocalTopologyString().find("cpu:7") != std::string::npos);
	void *args[] = { const_cast<char *>("no JSON"), nullptr };
	TransferEngine refused;
	CHECK(refused.init(P2PHANDSHAKE, HERE) == 0);
	CHECK(!refused.installTransport("tcp", args));
}

static void engines_move_and_end(const std::string &name)
{
	TransferEngine a(true);

	CHECK(a.init("no scheme", HERE) < 0);
	CHECK(a.init(P2PHANDSHAKE, HERE) == 0);
	std::string address = a.getLocalIpAndPort();
	TransferEngine b(std::move(a)), c;
	c = std::move(b);
	CHECK(c.getLocalIpAndPort() == address);
	CHECK(c.openSegment(name) != static_cast<SegmentHandle>(-1));
	CHECK(!c.isUsingTent() && c.getBaseAddr() == nullptr);
	CHECK(c.showLinks().find("lo") != std::string::npos);
	CHECK(c.showLinks(true).find('{') == 0);
	auto metadata = c.getMetadata();
	c = TransferEngine();
	CHECK(metadata->updateLocalSegmentDesc() == ERR_INVALID_ARGUMENT);
	CHECK(metadata->getSegmentDescByID(1) == nullptr);
}

static void locations_are_parsed(const std::string &)
{
	SegmentsLocationInfo info;

	CHECK(buildSegmentsLocation(4096, { 1, 3 }) == "segments:4096:1,3");
	CHECK(parseSegmentsLocation("segments:4096:1,3", info));
	CHECK(info.page_size == 4096 && info.numa_nodes.size() == 2);
	CHECK(resolveSegmentsLocation(info, 8192, 0) == "cpu:1");
	CHECK(resolveSegmentsLocation(info, 8192, 8191) == "cpu:3");
	CHECK(resolveSegmentsLocation({}, 8192, 0) == kWildcardLocation);
	for (const char *bad : { "cpu:0", "segments:", "segments:0:1",
				 "segments:4096:", "segments:4096:1,,2",
				 "segments:4096:-1" })
		CHECK(!parseSegmentsLocation(bad, info));
	CHECK(info.numa_nodes.size() == 2);
	CHECK(kSegmentsLocationPrefix + "x" == "segments:x");
	CHECK(GPU_PREFIX == "cuda:");
}

static void helpers_work(const std::string &)
{
	using host_port = std::pair<std::string, std::uint16_t>;

	CHECK(parseHostNameWithPort("h:5") == host_port("h", 5));
	CHECK(parseHostNameWithPort("h").second == getDefaultHandshakePort());
	CHECK(parseHostNameWithPort("h:x").first == "h");
	CHECK(parseHostNameWithPort("[fe80::1]:5") == host_port("fe80::1", 5));
	CHECK(parseHostNameWithPort("fe80::1%e0:5") ==
	      host_port("fe80::1%e0", 5));
	CHECK(parseHostNameWithPort("::1").first == "::1");
	CHECK(hasExplicitPort("h:5") && !hasExplicitPort("::1"));
	CHECK(getHostNameWithoutPort("[::1]:7") == "::1");
	CHECK(buildHostNameWithPort("::1", 7) == "[::1]:7");
	CHECK(maybeWrapIpV6("h") == "h" && isValidIpV6("fe80::1%eth0"));
	CHECK(!isValidIpV6("10.0.0.1") && !isValidIpV6("fe80::1%e0:5"));
	CHECK(getPortFromString("70000", 3) == 3);
	CHECK(!parseFromString<int>("1x") && *parseFromString<int>("-1") == -1);
	std::int64_t ns = getCurrentTimeInNano();
	CHECK(getCurrentTimeInMilli() >= ns / 1000000 - 1000);
	CHECK(getCurrentDateTime().size() == 26 && !getHostname().empty());
	char bytes[8];
	CHECK(overlap(bytes, 4, bytes + 3, 1));
	CHECK(!overlap(bytes, 4, bytes + 4, 4));
	CHECK(SimpleRandom::Get().next(10) < 10);
	CHECK(SimpleRandom(1).next() == SimpleRandom(1).next());
	CHECK(globalConfig().slice_size == 65536);
	std::thread([] { CHECK(bindToSocket(0) <= 0); }).join();
	PAUSE();
}

int main(int argc, char **argv)
{
	static const test_case cases[] = {
		CASE(write_and_read_move_the_bytes),
		CASE(transport_moves_the_bytes),
		CASE(errors_are_statuses),
		CASE(statuses_compare_and_print),
		CASE(memory_is_registered_in_batches),
		CASE(segments_are_described),
		CASE(ended_process_is_unreachable),
		CASE(batch_status_follows_the_task),
		CASE(notification_follows_its_bytes),
		CASE(scattered_fragments_move),
		CASE(scattered_fragments_are_checked),
		CASE(filter_selects_the_devices),
		CASE(topology_is_text_and_data),
		CASE(engines_move_and_end),
		CASE(locations_are_parsed),
		CASE(helpers_work),
	};

	if (argc > 1)
		return target();
	child peer(argv[0]);
	return run_cases(cases, sizeof(cases) / sizeof(cases[0]), peer.name);
}
