/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_MOONCAKE_TRANSFER_ENGINE_SCATTER_H
#define MOONRAIL_MOONCAKE_TRANSFER_ENGINE_SCATTER_H

/* The functions of class TransferEngine that move many fragments at once.
 * transfer_engine.h includes this header. */
#include "transfer_engine.h"

namespace mooncake {

/* Fragments to move between one local buffer and one range of a segment. The
 * three spans have one element for each fragment. Only submitScatter() reads
 * them. */
struct TransferEngine::ScatterTransferRange {
	TransferRequest::OpCode opcode;
	std::string remote_segment;
	std::uint64_t remote_base_offset; /* first address of the range at
					   * the target */
	std::size_t remote_size;	  /* length of the range at the
					   * target, bytes */
	void *local_buffer;
	std::size_t local_capacity; /* length of the local buffer,
				     * bytes */
	std::span<const std::size_t> local_offsets;
	std::span<const std::size_t> remote_offsets;
	std::span<const std::size_t> lengths; /* bytes of each fragment; 0:
					       * the fragment is empty */
	/* Called when a fragment has ended, with the index of the fragment in
	 * this range. It is called by the thread that calls submitScatter(),
	 * wait() or waitFor(), or that destroys the operation. */
	std::function<void(std::size_t, const Status &)> on_fragment_complete;
};

/*
 * Fragments that were submitted together. The destructor waits until all of
 * them have ended. Only one thread may use the object at a time. A callback
 * must not use it.
 */
class TransferEngine::ScatterTransferOperation {
public:
	ScatterTransferOperation(ScatterTransferOperation &&) noexcept = default;
	ScatterTransferOperation &
	operator=(ScatterTransferOperation &&) noexcept = default;

	/* Waits until all fragments have ended. Returns OK, or the error of the
	 * first fragment that has failed. */
	Status wait()
	{
		return work_ ? work_->wait(-1) : Status::InvalidArgument(
							 "no operation");
	}

	/* Does what wait() does, but waits for "timeout" at most. If this time
	 * has passed, returns a status with the code Clock, and the transfer
	 * continues. */
	Status waitFor(std::chrono::nanoseconds timeout)
	{
		using namespace std::chrono;
		auto us = ceil<microseconds>(timeout).count();

		if (!work_)
			return Status::InvalidArgument("no operation");
		return work_->wait(us < 0 ? 0 : us);
	}

private:
	friend class TransferEngine;
	using Callback = std::function<void(std::size_t, const Status &)>;

	struct Fragment {
		std::size_t range, index;
	};

	struct Work {
		explicit Work(std::shared_ptr<detail::engine> e)
			: engine(std::move(e))
		{
		}

		~Work() { wait(-1); }

		void add(const ScatterTransferRange &range);
		void submit();
		Status wait(std::int64_t limit_us);
		void end(const Fragment &fragment, const Status &status);
		void end_all(const Status &status);
		segment_id_t segment_of(const std::string &name);
		void release();

		std::shared_ptr<detail::engine> engine;
		/* callbacks of the ranges, in the order in which the ranges
		 * were added */
		std::vector<Callback> callbacks;
		std::vector<TransferRequest> requests;
		/* for each element of `requests`, the fragment to which it
		 * belongs */
		std::vector<Fragment> fragments;
		std::map<std::string, segment_id_t> segments;
		std::size_t ended = 0; /* number of requests whose end was
					* reported to the callback */
		BatchID batch = INVALID_BATCH_ID;
		Status result;
	};

	explicit ScatterTransferOperation(std::unique_ptr<Work> work)
		: work_(std::move(work))
	{
	}

	std::unique_ptr<Work> work_;
};

/* Reports the end of a fragment to the callback of its range. If the callback
 * throws an exception, the operation fails. */
inline void
TransferEngine::ScatterTransferOperation::Work::end(const Fragment &fragment,
						    const Status &status)
{
	const Callback &callback = callbacks[fragment.range];

	if (result.ok())
		result = status;
	if (!callback)
		return;
	try {
		callback(fragment.index, status);
	} catch (...) {
		if (result.ok())
			result = Status::Context("exception in the callback of "
						 "a fragment");
	}
}

/* Reports "status" to the callbacks of all requests whose end was not reported
 * yet, and frees the memory of the requests. */
inline void
TransferEngine::ScatterTransferOperation::Work::end_all(const Status &status)
{
	while (ended < requests.size())
		end(fragments[ended++], status);
	release();
}

/* Opens the segment if this operation has not opened it yet. Returns its id or
 * -1. */
inline segment_id_t
TransferEngine::ScatterTransferOperation::Work::segment_of(
	const std::string &name)
{
	auto [at, added] = segments.try_emplace(name, -1);

	if (added)
		at->second = engine->open(name);
	return at->second;
}

inline void TransferEngine::ScatterTransferOperation::Work::release()
{
	if (batch != INVALID_BATCH_ID)
		::freeBatchID(engine->handle, batch);
	batch = INVALID_BATCH_ID;
	for (const auto &one : segments)
		if (one.second >= 0)
			::closeSegment(engine->handle, one.second);
	segments.clear();
}

/* Adds one request for each fragment of a range. If a fragment is empty or
 * invalid, adds no request for it and reports its end at once. */
inline void TransferEngine::ScatterTransferOperation::Work::add(
	const ScatterTransferRange &range)
{
	std::size_t n = range.local_offsets.size(), index = callbacks.size();
	auto inside = [](std::size_t offset, std::size_t length,
			 std::size_t size) {
		return offset <= size && length <= size - offset;
	};
	bool usable = range.remote_offsets.size() == n &&
		      range.lengths.size() == n && range.local_buffer &&
		      !range.remote_segment.empty() &&
		      range.remote_base_offset <= UINT64_MAX -
							  range.remote_size;

	callbacks.push_back(range.on_fragment_complete);
	if (!usable && result.ok())
		result = Status::InvalidArgument("scatter range: no buffer or "
						 "segment, or lists of "
						 "different lengths");
	for (std::size_t i = 0; i < n; i++) {
		Fragment fragment = { index, i };

		if (!usable) {
			end(fragment, result);
			continue;
		}
		std::size_t local = range.local_offsets[i];
		std::size_t remote = range.remote_offsets[i];
		std::size_t length = range.lengths[i];

		if (!inside(local, length, range.local_capacity) ||
		    !inside(remote, length, range.remote_size)) {
			end(fragment, Status::InvalidArgument(
					      "scatter fragment: outside its "
					      "buffer"));
			continue;
		}
		if (!length) {
			end(fragment, Status::OK());
			continue;
		}
		segment_id_t id = segment_of(range.remote_segment);
		if (id < 0) {
			end(fragment, detail::status(detail::last_code()));
			continue;
		}
		requests.push_back(
			{ .opcode = range.opcode,
			  .source = static_cast<char *>(range.local_buffer) +
				    local,
			  .target_id = static_cast<SegmentID>(id),
			  .target_offset = range.remote_base_offset + remote,
			  .length = length });
		fragments.push_back(fragment);
	}
}

inline void TransferEngine::ScatterTransferOperation::Work::submit()
{
	Transport all(engine);
	Status status;

	if (requests.empty()) {
		release();
		return;
	}
	batch = all.allocateBatchID(requests.size());
	if (batch == INVALID_BATCH_ID)
		status = detail::status(detail::last_code());
	else
		status = all.submitTransfer(batch, requests);
	if (!status.ok())
		end_all(status);
}

/* Waits for the requests one after the other, for at most limit_us microseconds
 * in total. If limit_us is negative, there is no limit. */
inline Status
TransferEngine::ScatterTransferOperation::Work::wait(std::int64_t limit_us)
{
	using clock = std::chrono::steady_clock;
	auto begin = clock::now();

	for (; ended < requests.size(); ) {
		std::int64_t left = limit_us;
		transfer_status_t got = {};

		if (limit_us > 0) {
			auto used = std::chrono::duration_cast<
				std::chrono::microseconds>(clock::now() -
							   begin);
			left = used.count() < limit_us ?
				       limit_us - used.count() :
				       0;
		}
		int ret = te_wait_task(engine->handle, batch, ended, left,
				       &got);
		if (ret == TE_TIMED_OUT)
			return Status::Clock("the scatter transfer has not "
					     "ended in time");
		if (ret) {
			end_all(detail::status(ret));
			break;
		}
		Status status;
		if (got.status != STATUS_COMPLETED)
			status = Status::Socket("the transfer of the fragment "
						"failed");
		end(fragments[ended++], status);
	}
	if (ended == requests.size())
		release();
	return result;
}

inline TransferEngine::ScatterTransferOperation
TransferEngine::submitScatter(const std::vector<ScatterTransferRange> &ranges)
{
	using Operation = ScatterTransferOperation;
	auto work = std::make_unique<Operation::Work>(engine_);

	for (const ScatterTransferRange &range : ranges)
		work->add(range);
	work->submit();
	return Operation(std::move(work));
}

inline Status
TransferEngine::transferScatter(const std::vector<ScatterTransferRange> &ranges)
{
	return submitScatter(ranges).wait();
}

} // namespace mooncake

#endif
