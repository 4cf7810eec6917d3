/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_TRANSFER_METADATA_H
#define MOONRAIL_MOONCAKE_TRANSFER_METADATA_H

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common.h"
#include "moonrail_engine.h"
#include "topology.h"

#define P2PHANDSHAKE "P2PHANDSHAKE"

namespace mooncake {

/*
 * Information about segments. moonrail keeps the descriptor of this process
 * published. Therefore the functions with which a Mooncake program publishes it
 * again do nothing here. All functions are thread-safe.
 */
class TransferMetadata {
public:
	using SegmentID = std::uint64_t;

	struct DeviceDesc {
		std::string name;
		std::uint16_t lid = 0;
		std::string gid;

		bool operator==(const DeviceDesc &other) const = default;
	};

	/* A buffer of a segment. lkey and rkey are always empty, because
	 * moonrail does not publish keys. */
	struct BufferDesc {
		std::string name; /* location of the buffer */
		std::uint64_t addr = 0;
		std::uint64_t length = 0;	/* bytes */
		std::vector<std::uint32_t> lkey;
		std::vector<std::uint32_t> rkey;
		std::string shm_name;
		std::uint64_t offset = 0;

		bool operator==(const BufferDesc &other) const = default;
	};

	struct NVMeoFBufferDesc {
		std::string file_path;
		std::uint64_t length = 0;	/* bytes */
		std::unordered_map<std::string, std::string> local_path_map;

		bool operator==(const NVMeoFBufferDesc &other) const = default;
	};

	/* A segment. Only the members name, protocol, devices (the known rails
	 * of the segment's process) and buffers are filled in. */
	struct SegmentDesc {
		std::string name;
		std::string protocol;	/* one of "tcp", "rdma", "local",
					 * "nvmeof" */
		std::vector<DeviceDesc> devices;
		Topology topology;
		std::vector<BufferDesc> buffers;
		std::vector<NVMeoFBufferDesc> nvmeof_buffers;

		bool operator==(const SegmentDesc &other) const = default;
	};

	struct RpcMetaDesc {
		std::string ip_or_host_name;
		std::uint16_t rpc_port = 0;
	};

	struct NotifyDesc {
		std::string name;
		std::string notify_msg;
	};

	explicit TransferMetadata(std::shared_ptr<detail::engine> engine)
		: engine_(std::move(engine))
	{
	}

	/* Returns the descriptor of an open segment, or nullptr. If
	 * force_update is true, reads the descriptor again first. */
	std::shared_ptr<SegmentDesc> getSegmentDescByID(SegmentID segment_id,
							bool force_update = false)
	{
		segment_id_t id = detail::segment(segment_id);
		std::string name = engine_->name_of(id);
		std::size_t n = 0;
		std::vector<te_buffer> list;

		if (force_update && id != LOCAL_SEGMENT &&
		    syncSegmentCache(name))
			return nullptr;
		do {
			list.resize(n);
			if (te_segment_buffers(engine_->handle, id, list.data(),
					       sizeof(te_buffer), &n))
				return nullptr;
		} while (n > list.size());
		list.resize(n);

		auto desc = std::make_shared<SegmentDesc>();
		desc->name = name;
		for (const te_buffer &one : list) {
			desc->buffers.emplace_back();
			desc->buffers.back().name = one.location;
			desc->buffers.back().addr = one.addr;
			desc->buffers.back().length = one.length;
		}
		add_paths(id, *desc);
		return desc;
	}

	/* Opens the segment if it is not open yet, and returns its
	 * descriptor. */
	std::shared_ptr<SegmentDesc>
	getSegmentDescByName(const std::string &segment_name,
			     bool force_update = false)
	{
		segment_id_t id = engine_->open(segment_name, force_update);

		if (id < 0)
			return nullptr;
		auto desc = getSegmentDescByID(static_cast<SegmentID>(id));
		closeSegment(engine_->handle, id);
		return desc;
	}

	/* Opens a segment. Returns its id, or a negative code cast to the type
	 * of an id. */
	SegmentID getSegmentID(const std::string &segment_name)
	{
		return static_cast<SegmentID>(
			static_cast<std::int64_t>(engine_->open(segment_name)));
	}

	/* Reads the descriptor of one segment again, or those of all open
	 * segments if the name is empty. Returns 0 or a negative code. */
	int syncSegmentCache(const std::string &segment_name = "")
	{
		if (segment_name.empty())
			return ::syncSegmentCache(engine_->handle);
		segment_id_t id = engine_->open(segment_name, true);
		if (id < 0)
			return detail::last_code();
		return closeSegment(engine_->handle, id);
	}

	int removeLocalSegment(const std::string &segment_name)
	{
		return ::removeLocalSegment(engine_->handle,
					    segment_name.c_str());
	}

	/* updateLocalSegmentDesc() and rePublishRpcMetaEntry() do nothing and
	 * return 0, because the descriptor of this process is published
	 * already. */
	int updateLocalSegmentDesc(SegmentID = LOCAL_SEGMENT_ID)
	{
		return engine_->handle ? 0 : ERR_INVALID_ARGUMENT;
	}

	int rePublishRpcMetaEntry(const std::string &)
	{
		return engine_->handle ? 0 : ERR_INVALID_ARGUMENT;
	}

	/* Returns the address of this process's control channel. */
	RpcMetaDesc localRpcMeta() const
	{
		RpcMetaDesc desc;

		desc.ip_or_host_name =
			getHostNameWithoutPort(engine_->address());
		desc.rpc_port = engine_->port();
		return desc;
	}

	/* Removes the received notifications from the engine's queue and
	 * appends them to the vector. Returns 0. */
	int getNotifies(std::vector<NotifyDesc> &notifies)
	{
		int n = 0;
		notify_msg_t *list = getNotifsFromEngine(engine_->handle, &n);

		for (int i = 0; i < n; i++)
			notifies.push_back({ list[i].name, list[i].msg });
		freeNotifsMsgBuf(list, n);
		return 0;
	}

	/* Checks that the control channel of the peer answers. Returns 0 or a
	 * negative code. */
	int sendProbe(const std::string &peer_server_name)
	{
		return te_probe_peer(engine_->handle, peer_server_name.c_str(),
				     -1);
	}

private:
	void add_paths(segment_id_t id, SegmentDesc &desc)
	{
		std::vector<te_path> paths;
		std::size_t n = 0;

		do {
			paths.resize(n);
			if (te_segment_paths(engine_->handle, id, nullptr,
					     paths.data(), sizeof(te_path), &n))
				return;
		} while (n > paths.size());
		paths.resize(n);
		for (const te_path &path : paths) {
			DeviceDesc device;

			if (desc.protocol.empty())
				desc.protocol = path.transport;
			device.name = path.remote_rail;
			if (!device.name.empty() &&
			    std::find(desc.devices.begin(), desc.devices.end(),
				      device) == desc.devices.end())
				desc.devices.push_back(device);
		}
	}

	std::shared_ptr<detail::engine> engine_;
};

} // namespace mooncake

#endif
