/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_TRANSFER_ENGINE_H
#define MOONRAIL_MOONCAKE_TRANSFER_ENGINE_H

/*
 * Mooncake's C++ class TransferEngine over moonrail's C library (-lmoonrail),
 * for programs that were written for Mooncake. It needs C++20. moonrail.hpp is
 * the interface for new programs.
 *
 * Differences that a program may notice:
 *   - Batches are not objects of the program: BatchID cannot be cast to a
 *     pointer.
 *   - A transfer ends FAILED if there is no progress for MC_SLICE_TIMEOUT,
 *     which is 10 s by default. Its status is TIMEOUT instead if the program or
 *     the environment has set MC_SLICE_TIMEOUT and the target could not be
 *     fenced.
 *   - submitTransfer() refuses memory that is not registered.
 *   - update_metadata is ignored: a registration is published at once.
 *   - ip_or_host_name and rpc_port of init() are ignored; getRpcPort() returns
 *     the port that is bound.
 *   - Transports for devices and the functions mp_… are absent.
 *
 * Threads: after init() and installTransport(), any thread may call any
 * function except freeEngine(), the destructor and the move operations.
 */
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory_location.h"
#include "moonrail_engine.h"
#include "multi_transport.h"
#include "topology.h"
#include "transfer_metadata.h"
#include "transport/transport.h"

namespace mooncake {

using TransferRequest = Transport::TransferRequest;
using TransferStatus = Transport::TransferStatus;
using TransferStatusEnum = Transport::TransferStatusEnum;
using SegmentHandle = Transport::SegmentHandle;
using SegmentID = Transport::SegmentID;
using BatchID = Transport::BatchID;
using BufferEntry = Transport::BufferEntry;
using NicLoadStats = Transport::NicLoadStats;

inline constexpr BatchID INVALID_BATCH_ID = UINT64_MAX;

enum class PeerLiveness : std::uint8_t {
	Alive = 0,
	Unreachable = 1,
};

struct AutoDiscoverConfig {
	bool enabled = false;
	/* moonrail ignores the protocol, because an engine uses all transports
	 * that match its devices */
	std::string protocol;
};

class TransferEngine {
public:
	TransferEngine(bool auto_discover = false)
		: TransferEngine(auto_discover, {})
	{
	}

	/* "filter" contains the names of the NICs that may be used. If it is
	 * empty, all NICs may be used. */
	TransferEngine(bool auto_discover,
		       const std::vector<std::string> &filter)
		: engine_(std::make_shared<detail::engine>()),
		  topology_(std::make_shared<Topology>())
	{
		engine_->auto_discover = auto_discover;
		engine_->filter = filter;
		topology_->engine_ = engine_;
		all_ = std::make_unique<Transport>(engine_);
	}

	TransferEngine(TransferEngine &&other) noexcept = default;

	TransferEngine &operator=(TransferEngine &&other) noexcept
	{
		if (this != &other) {
			freeEngine();
			engine_ = std::move(other.engine_);
			topology_ = std::move(other.topology_);
			transports_ = std::move(other.transports_);
			all_ = std::move(other.all_);
		}
		return *this;
	}

	~TransferEngine() { freeEngine(); }

	/* --- engine ------------------------------------------------------ */

	/* Creates the C engine. Must be called once, before all functions that
	 * need an engine. Returns 0 or a negative code. */
	int init(const std::string &metadata_conn_string,
		 const std::string &local_server_name,
		 const std::string & /* ip_or_host_name */ = "",
		 std::uint64_t /* rpc_port */ = 12345)
	{
		if (engine_->handle)
			return ERR_INVALID_ARGUMENT;
		engine_->metadata = metadata_conn_string;
		engine_->server_name = local_server_name;
		return engine_->create(0);
	}

	/* Destroys the C engine. The objects that getMetadata() and
	 * installTransport() have returned then return errors. Returns 0. */
	int freeEngine()
	{
		if (engine_)
			engine_->destroy();
		return 0;
	}

	void setAutoDiscover(bool auto_discover)
	{
		engine_->auto_discover = auto_discover;
	}

	void setAutoDiscover(const AutoDiscoverConfig &config)
	{
		engine_->auto_discover = config.enabled;
	}

	/* Sets the names of the NICs that may be used, before init(). */
	void setWhitelistFilters(std::vector<std::string> &&filters)
	{
		engine_->filter = std::move(filters);
	}

	/*
	 * Installs a transport. args is nullptr, or an array whose first
	 * element is a topology in JSON and whose last element is nullptr. If
	 * args contains no topology, the one that the program has set in
	 * getLocalTopology() is used. Returns the transport, or nullptr after
	 * an error.
	 */
	Transport *installTransport(const std::string &proto, void **args)
	{
		std::string matrix;
		void *own[2] = { nullptr, nullptr };

		if (!apply_filter())
			return nullptr;
		if ((!args || !args[0]) && topology_->parsed_) {
			matrix = topology_->toString();
			own[0] = matrix.data();
			args = own;
		}
		if (!::installTransport(handle(), proto.c_str(), args))
			return nullptr;
		auto &entry = transports_[proto];
		if (!entry)
			entry = std::make_unique<Transport>(engine_);
		return entry.get();
	}

	/* Uninstalls a transport. Returns 0. After an error, returns a negative
	 * code, and the transport stays installed. */
	int uninstallTransport(const std::string &proto)
	{
		int ret = ::uninstallTransport(handle(), proto.c_str());

		if (!ret)
			transports_.erase(proto);
		return ret;
	}

	/* Returns a transport that installTransport() has installed, or nullptr. */
	Transport *getTransport(const std::string &proto)
	{
		auto found = transports_.find(proto);

		return found == transports_.end() ? nullptr :
						    found->second.get();
	}

	std::string getLocalIpAndPort() { return engine_->address(); }
	int getRpcPort() { return engine_->port(); }
	bool isUsingTent() const { return false; }
	void *getBaseAddr() { return nullptr; }

	/* Returns true if all transfers to other hosts use tcp rails. */
	bool isTcpOnly() const
	{
		bool any = false;

		for (const auto &rail : engine_->rails()) {
			std::string transport = rail.transport;

			if (transport != "tcp" && transport != "local")
				return false;
			any = any || transport == "tcp";
		}
		return any;
	}

	/* Returns the number of rails. */
	int numContexts() const
	{
		int n = 0;

		for (const auto &rail : engine_->rails())
			n += std::string(rail.transport) != "local";
		return n;
	}

	std::shared_ptr<TransferMetadata> getMetadata()
	{
		if (!engine_->handle)
			return nullptr;
		return std::make_shared<TransferMetadata>(engine_);
	}

	std::shared_ptr<Topology> getLocalTopology()
	{
		if (engine_->handle && topology_->empty()) {
			topology_->parse(engine_->topology());
			topology_->parsed_ = false;
		}
		return topology_;
	}

	std::string getLocalTopologyString() { return engine_->topology(); }

	void enableGracefulShutdown() { ::enableGracefulShutdown(handle()); }

	std::string showLinks(bool json = false) const
	{
		std::string text(4096, '\0');

		for (;;) {
			if (::showLinks(handle(), text.data(), text.size(),
					json))
				return "";
			std::size_t n = std::strlen(text.c_str());
			if (n + 1 < text.size()) {
				text.resize(n);
				return text;
			}
			text.resize(text.size() * 4);
		}
	}

	Status getNicLoadStats(std::vector<NicLoadStats> &stats) const
	{
		std::vector<nic_load_stat_t> list(1);
		std::size_t n = 0;

		do {
			list.resize(n + 1);
			n = list.size();
			int ret = ::getNicLoadStats(handle(), list.data(), &n);
			if (ret)
				return detail::status(ret);
		} while (n > list.size());
		stats.clear();
		for (std::size_t i = 0; i < n; i++)
			stats.push_back({ list[i].device_name,
					  list[i].inflight_bytes,
					  list[i].ewma_bandwidth_bps });
		return Status::OK();
	}

	/* --- segments ---------------------------------------------------- */

	/* Opens a segment. Returns its id, or a negative code cast to the type
	 * of an id. */
	SegmentHandle openSegment(const std::string &segment_name)
	{
		return static_cast<SegmentHandle>(
			static_cast<std::int64_t>(engine_->open(segment_name)));
	}

	int closeSegment(SegmentHandle segment)
	{
		return ::closeSegment(handle(), detail::segment(segment));
	}

	int removeLocalSegment(const std::string &segment_name)
	{
		return ::removeLocalSegment(handle(), segment_name.c_str());
	}

	int syncSegmentCache(const std::string &segment_name = "")
	{
		return TransferMetadata(engine_).syncSegmentCache(segment_name);
	}

	/* Returns OK if the segment is open and its process has not ended;
	 * otherwise returns an error. */
	Status CheckSegmentStatus(SegmentID sid)
	{
		struct te_peer_stats stats = {};
		int ret = ::te_peer_stats(handle(), detail::segment(sid),
					  &stats, sizeof(stats));

		if (ret)
			return detail::status(ret);
		if (stats.state == TE_PEER_GONE)
			return Status::Endpoint("the process of the segment "
						"has ended");
		return Status::OK();
	}

	PeerLiveness probePeerAliveByID(SegmentID target_id)
	{
		std::string name = engine_->name_of(detail::segment(target_id));

		if (te_probe_peer(handle(), name.c_str(), -1))
			return PeerLiveness::Unreachable;
		return PeerLiveness::Alive;
	}

	/* --- memory ------------------------------------------------------ */

	int registerLocalMemory(void *addr, std::size_t length,
				const std::string &location = kWildcardLocation,
				bool remote_accessible = true,
				bool /* update_metadata */ = true)
	{
		int ret = ::registerLocalMemory(handle(), addr, length,
						location.c_str(),
						remote_accessible);

		if (!ret)
			note_buffer(addr, length);
		return ret;
	}

	int unregisterLocalMemory(void *addr, bool /* update_metadata */ = true)
	{
		int ret = ::unregisterLocalMemory(handle(), addr);

		if (!ret)
			forget_buffer(addr);
		return ret;
	}

	/* Registers all buffers. After an error, none of them is registered. */
	int registerLocalMemoryBatch(const std::vector<BufferEntry> &buffer_list,
				     const std::string &location)
	{
		std::vector<buffer_entry_t> list;
		int ret;

		for (const BufferEntry &one : buffer_list)
			list.push_back({ one.addr, one.length });
		ret = ::registerLocalMemoryBatch(handle(), list.data(),
						 list.size(), location.c_str());
		if (!ret)
			for (const BufferEntry &one : buffer_list)
				note_buffer(one.addr, one.length);
		return ret;
	}

	/* Unregisters all buffers, and continues after an error. Returns 0 or
	 * the first error. */
	int unregisterLocalMemoryBatch(const std::vector<void *> &addr_list)
	{
		int first = 0;

		for (void *addr : addr_list) {
			int ret = unregisterLocalMemory(addr);

			if (!first)
				first = ret;
		}
		return first;
	}

	/* Returns true if the range has a byte in common with registered memory. */
	bool checkOverlap(void *addr, std::uint64_t length)
	{
		std::lock_guard<std::mutex> guard(engine_->lock);

		for (const auto &one : engine_->buffers)
			if (overlap(reinterpret_cast<void *>(one.first),
				    one.second, addr, length))
				return true;
		return false;
	}

	/* --- transfers --------------------------------------------------- */

	BatchID allocateBatchID(std::size_t batch_size)
	{
		return all_->allocateBatchID(batch_size);
	}

	Status freeBatchID(BatchID batch_id)
	{
		return all_->freeBatchID(batch_id);
	}

	Status submitTransfer(BatchID batch_id,
			      const std::vector<TransferRequest> &entries)
	{
		return all_->submitTransfer(batch_id, entries);
	}

	/* Submits the requests. When all of them are completed, sends the
	 * notification to the target of the first request. */
	Status submitTransferWithNotify(BatchID batch_id,
					const std::vector<TransferRequest> &entries,
					TransferMetadata::NotifyDesc notify)
	{
		if (!detail::notification_fits(notify.name, notify.notify_msg))
			return Status::InvalidArgument(
				"the notification contains a byte 0");
		notify_msg_t msg = detail::notification(notify.name,
							notify.notify_msg);
		return all_->submit(batch_id, entries, &msg);
	}

	Status getTransferStatus(BatchID batch_id, std::size_t task_id,
				 TransferStatus &status)
	{
		return all_->getTransferStatus(batch_id, task_id, status);
	}

	/* Sets "status" to the worst status of the requests, as
	 * getTransferStatus reports it, and the sum of their bytes. A batch
	 * without requests is COMPLETED. */
	Status getBatchTransferStatus(BatchID batch_id, TransferStatus &status);

	struct ScatterTransferRange;
	class ScatterTransferOperation;

	/* Starts to move the fragments of all ranges. Returns an object with
	 * which the program waits for the end. */
	ScatterTransferOperation
	submitScatter(const std::vector<ScatterTransferRange> &ranges);

	/* Moves the fragments of all ranges, and waits until the transfers have
	 * ended. */
	Status transferScatter(const std::vector<ScatterTransferRange> &ranges);

	/* --- notifications ----------------------------------------------- */

	/* Removes the received notifications from the engine's queue and
	 * appends them to the vector. Returns 0. */
	int getNotifies(std::vector<TransferMetadata::NotifyDesc> &notifies)
	{
		return TransferMetadata(engine_).getNotifies(notifies);
	}

	/* Sends a notification and waits until the peer has received it.
	 * Returns 0 or a negative code. The result is -1 if a text contains a
	 * byte 0. */
	int sendNotifyByID(SegmentID target_id,
			   TransferMetadata::NotifyDesc notify)
	{
		if (!detail::notification_fits(notify.name, notify.notify_msg))
			return ERR_INVALID_ARGUMENT;
		return genNotifyInEngine(handle(), target_id,
					 detail::notification(
						 notify.name,
						 notify.notify_msg));
	}

	int sendNotifyByName(std::string remote_agent,
			     TransferMetadata::NotifyDesc notify)
	{
		segment_id_t id = engine_->open(remote_agent);

		if (id < 0)
			return detail::last_code();
		int ret = sendNotifyByID(static_cast<SegmentID>(id), notify);
		::closeSegment(handle(), id);
		return ret;
	}

private:
	transfer_engine_t handle() const { return engine_->handle; }

	void note_buffer(void *addr, std::size_t length)
	{
		std::lock_guard<std::mutex> guard(engine_->lock);

		engine_->buffers[reinterpret_cast<std::uintptr_t>(addr)] =
			length;
	}

	void forget_buffer(void *addr)
	{
		std::lock_guard<std::mutex> guard(engine_->lock);

		engine_->buffers.erase(reinterpret_cast<std::uintptr_t>(addr));
	}

	bool apply_filter();

	std::shared_ptr<detail::engine> engine_;
	std::shared_ptr<Topology> topology_;
	std::map<std::string, std::unique_ptr<Transport>> transports_;
	std::unique_ptr<Transport> all_;
};

/*
 * Creates the C engine again, on the same port, if the program has passed
 * another filter to getLocalTopology()->discover() after init(): the C engine
 * takes the filter only when it is created. Returns false if that fails, or if
 * the engine is already in use.
 */
inline bool TransferEngine::apply_filter()
{
	if (!engine_->handle || engine_->filter == engine_->applied)
		return engine_->handle;
	if (!engine_->names.empty() || !engine_->buffers.empty() ||
	    !engine_->rails().empty())
		return false;
	std::uint16_t port = engine_->port();
	engine_->destroy();
	return !engine_->create(port);
}

inline Status TransferEngine::getBatchTransferStatus(BatchID batch_id,
						     TransferStatus &status)
{
	transfer_status_t got = {};
	TransferStatus one = {};

	/* te_batch_status fails for a batch without requests. Submitting 0
	 * requests shows whether the batch exists. */
	int ret = te_batch_status(handle(), batch_id, &got);
	if (ret && !::submitTransfer(handle(), batch_id, nullptr, 0)) {
		got.status = STATUS_COMPLETED;
		ret = 0;
	}
	if (ret)
		return detail::status(ret);
	status.s = static_cast<TransferStatusEnum>(got.status);
	status.transferred_bytes = got.transferred_bytes;
	if (got.status != STATUS_TIMEOUT)
		return Status::OK();
	/* getTransferStatus shows whether an unfenced request is reported as
	 * TIMEOUT or as FAILED. */
	status.s = TransferStatusEnum::FAILED;
	for (std::size_t i = 0; getTransferStatus(batch_id, i, one).ok(); i++)
		if (one.s == TransferStatusEnum::TIMEOUT)
			status.s = TransferStatusEnum::TIMEOUT;
	return Status::OK();
}

} // namespace mooncake

#include "transfer_engine_scatter.h"

#endif
