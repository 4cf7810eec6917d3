/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_TRANSPORT_H
#define MOONRAIL_MOONCAKE_TRANSPORT_H

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "../common/base/status.h"
#include "../moonrail_engine.h"
#include "../transfer_metadata.h"

namespace mooncake {

/*
 * An installed transport, and the types of requests.
 * TransferEngine::installTransport returns a pointer to the object, which the
 * engine owns. The functions of the object do the same as those of the engine.
 * A request need not use this transport, because the engine chooses the
 * transport of each request.
 */
class Transport {
public:
	using SegmentID = std::uint64_t;
	using SegmentHandle = SegmentID;
	using BatchID = std::uint64_t;
	using BufferDesc = TransferMetadata::BufferDesc;
	using SegmentDesc = TransferMetadata::SegmentDesc;
	using NotifyDesc = TransferMetadata::NotifyDesc;

	struct TransferRequest {
		enum OpCode { READ, WRITE };

		static constexpr std::uint64_t kNoTaskGroup = 0;

		OpCode opcode;
		void *source;
		SegmentID target_id;
		std::uint64_t target_offset;
		std::size_t length;	/* bytes */
		/* moonrail ignores the members below */
		int advise_retry_cnt = 0;
		int transport_hint = 0;
		std::uint64_t task_group_id = kNoTaskGroup;
	};

	enum TransferStatusEnum {
		WAITING,
		PENDING,
		INVALID,
		CANCELED,
		COMPLETED,
		TIMEOUT,
		FAILED
	};

	struct TransferStatus {
		TransferStatusEnum s;
		std::size_t transferred_bytes;
	};

	struct BufferEntry {
		void *addr;
		std::size_t length;	/* bytes */
	};

	struct NicLoadStats {
		std::string device_name;
		std::uint64_t inflight_bytes{ 0 };
		double ewma_bandwidth_bps{ 0.0 };	/* bytes per second */
	};

	explicit Transport(std::shared_ptr<detail::engine> engine)
		: engine_(std::move(engine))
	{
	}

	virtual ~Transport() = default;

	BatchID allocateBatchID(std::size_t batch_size)
	{
		return ::allocateBatchID(engine_->handle, batch_size);
	}

	Status freeBatchID(BatchID batch_id)
	{
		return detail::status(::freeBatchID(engine_->handle, batch_id));
	}

	Status submitTransfer(BatchID batch_id,
			      const std::vector<TransferRequest> &entries)
	{
		return submit(batch_id, entries, nullptr);
	}

	Status getTransferStatus(BatchID batch_id, std::size_t task_id,
				 TransferStatus &status)
	{
		transfer_status_t got = {};
		int ret = ::getTransferStatus(engine_->handle, batch_id,
					      task_id, &got);

		if (ret)
			return detail::status(ret);
		status.s = static_cast<TransferStatusEnum>(got.status);
		status.transferred_bytes = got.transferred_bytes;
		return Status::OK();
	}

private:
	friend class TransferEngine;

	Status submit(BatchID batch_id,
		      const std::vector<TransferRequest> &entries,
		      const notify_msg_t *notification)
	{
		std::vector<transfer_request_t> list;
		int ret;

		list.reserve(entries.size());
		for (const TransferRequest &one : entries)
			list.push_back({ one.opcode, one.source,
					 detail::segment(one.target_id),
					 one.target_offset, one.length });
		if (notification)
			ret = ::submitTransferWithNotify(engine_->handle,
							 batch_id, list.data(),
							 list.size(),
							 *notification);
		else
			ret = ::submitTransfer(engine_->handle, batch_id,
					       list.data(), list.size());
		return detail::status(ret);
	}

	std::shared_ptr<detail::engine> engine_;
};

} // namespace mooncake

#endif
