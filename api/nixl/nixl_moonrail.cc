/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A plug-in for NIXL, which makes transfers between agents, or inside one
 * agent, over moonrail. NIXL loads it as libplugin_MOONRAIL.so.
 *
 * A request of NIXL uses one batch, and a prepared list whose pieces are the
 * ranges that NIXL passes. If the ranges are GPU memory or files, there is no
 * prepared list, and each range becomes one request of submitTransfer.
 *
 * A file can only be the remote side of a request, and only in the agent that
 * has registered it; see nixl_files.h.
 *
 * The notification of a request is sent when all its bytes are in place. A
 * thread sends it, because te_notify waits until the target has acknowledged
 * it. Meanwhile checkXfer reports that the request is in progress. The thread
 * ends when it has sent all notifications.
 *
 * releaseReqH cancels the request. NIXL may call it twice: the second call
 * comes from the destructor of NIXL's own handle, which ignores the result. So
 * the first call does not wait; it returns NIXL_ERR_REPOST_ACTIVE if bytes of
 * the request can still land. The second call waits until no byte can land any
 * longer.
 */
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend_plugin.h"
#include "moonrail.h"
#include "nixl_files.h"

namespace
{

using moonrail_nixl::file;
using moonrail_nixl::file_spec;
using moonrail_nixl::files;

constexpr std::size_t NOTES = 64; /* number of notifications that one call of
				   * te_notify_fetch returns at most */

/* NIXL's metadata of registered memory, of remote memory, or of a file. For a
 * file of this agent, at.segment is set; a file of another agent has no
 * segment. */
struct memory : nixlBackendMD {
	std::uintptr_t addr;
	file at; /* registered file; only the metadata of the registration
		  * itself owns its file descriptor */

	explicit memory(std::uintptr_t start, bool own, const file &f = file())
	    : nixlBackendMD(own), addr(start), at(f)
	{
	}
};

/* A registered buffer of this process. Guarded by backend::lock. */
struct region {
	std::size_t length;
	unsigned refs; /* number of NIXL registrations of the buffer and of
			  ranges inside it */
};

/* A notification of a request. The request and the thread that sends it share
 * this object. */
struct note {
	segment_id_t segment;
	std::string data;
	std::mutex lock; /* guards result */
	int result = NIXL_IN_PROG;

	note(segment_id_t to, std::string bytes)
	    : segment(to), data(std::move(bytes))
	{
	}

	void set(int value)
	{
		std::lock_guard<std::mutex> hold(lock);
		result = value;
	}

	nixl_status_t get()
	{
		std::lock_guard<std::mutex> hold(lock);
		return static_cast<nixl_status_t>(result);
	}
};

/* A request of NIXL, which uses it in one thread at a time. */
struct request : nixlBackendReqH {
	segment_id_t segment = -1;
	te_prepared_t list = 0;		       /* prepared list; 0: `plain` is
						* used */
	std::vector<transfer_request_t> plain; /* requests of submitTransfer;
						* empty: `list` is used */
	batch_id_t batch = INVALID_BATCH;
	std::string notify_data;
	bool has_notify = false;
	bool canceled = false;
	/*
	 * The notification that is sent after the bytes; NULL: none was
	 * requested, or bytes are still moving.
	 */
	std::shared_ptr<note> notify;
};

class backend : public nixlBackendEngine
{
      public:
	explicit backend(const nixlBackendInitParams *params);
	~backend() override;
	backend(const backend &) = delete;
	backend &operator=(const backend &) = delete;

	bool supportsRemote() const override
	{
		return true;
	}
	bool supportsLocal() const override
	{
		return true;
	}
	bool supportsNotif() const override
	{
		return true;
	}
	nixl_mem_list_t getSupportedMems() const override
	{
		return { DRAM_SEG, VRAM_SEG, FILE_SEG };
	}

	nixl_status_t registerMem(const nixlBlobDesc &mem,
				  const nixl_mem_t &kind,
				  nixlBackendMD *&out) override;
	nixl_status_t deregisterMem(nixlBackendMD *meta) override;

	nixl_status_t connect(const std::string &) override
	{
		return NIXL_SUCCESS;
	}
	nixl_status_t disconnect(const std::string &agent) override;
	nixl_status_t getConnInfo(std::string &out) const override;
	nixl_status_t loadRemoteConnInfo(const std::string &agent,
					 const std::string &info) override;
	nixl_status_t getPublicData(const nixlBackendMD *,
				    std::string &) const override
	{
		return NIXL_SUCCESS;
	}
	nixl_status_t loadRemoteMD(const nixlBlobDesc &mem, const nixl_mem_t &,
				   const std::string &,
				   nixlBackendMD *&out) override
	{
		out = new memory(mem.addr, false);
		return NIXL_SUCCESS;
	}
	nixl_status_t loadLocalMD(nixlBackendMD *in,
				  nixlBackendMD *&out) override
	{
		auto *m = static_cast<memory *>(in);

		out = new memory(m->addr, false, m->at);
		return NIXL_SUCCESS;
	}
	nixl_status_t unloadMD(nixlBackendMD *in) override
	{
		delete in;
		return NIXL_SUCCESS;
	}

	nixl_status_t prepXfer(const nixl_xfer_op_t &op,
			       const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote,
			       const std::string &agent,
			       nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t *args) const override;
	nixl_status_t postXfer(const nixl_xfer_op_t &op,
			       const nixl_meta_dlist_t &local,
			       const nixl_meta_dlist_t &remote,
			       const std::string &agent,
			       nixlBackendReqH *&handle,
			       const nixl_opt_b_args_t *args) const override;
	nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
	nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;

	nixl_status_t getNotifs(notif_list_t &out) override;
	nixl_status_t genNotif(const std::string &agent,
			       const std::string &msg) const override;

	nixl_status_t
	queryMem(const nixl_reg_dlist_t &descs,
		 std::vector<nixl_query_resp_t> &out) const override;
	nixl_status_t estimateXferCost(
		const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
		const nixl_meta_dlist_t &remote, const std::string &agent,
		nixlBackendReqH *const &handle,
		std::chrono::microseconds &duration,
		std::chrono::microseconds &margin, nixl_cost_t &method,
		const nixl_opt_args_t *args) const override;

      private:
	bool segment_of(const std::string &agent, segment_id_t &id) const;
	bool covers(std::uintptr_t addr, std::size_t length) const;
	nixl_status_t register_file(const nixlBlobDesc &mem,
				    nixlBackendMD *&out);
	static nixl_status_t plain_requests(const nixl_xfer_op_t &op,
					    const std::vector<te_piece> &pieces,
					    const nixl_meta_dlist_t &remote,
					    request &r);
	nixl_status_t submit(request &r) const;
	std::shared_ptr<note> queue_note(segment_id_t to,
					 const std::string &data) const;
	void sender();
	static void free_request(transfer_engine_t engine, request *r);

	transfer_engine_t engine = nullptr;

	mutable std::mutex lock; /* guards the members below */
	files folder;
	std::unordered_map<std::string, segment_id_t> agents;
	/* registered buffers by address */
	std::map<std::uintptr_t, region> regions;
	/* notifications that `thread` has not begun to send */
	mutable std::deque<std::shared_ptr<note>> notes;
	mutable std::thread thread;   /* sends the elements of `notes`; it may
				       * have ended already */
	mutable bool sending = false; /* `thread` is running and sends what is
				       * added to `notes` */
	bool stopping = false;
};

/* --- the engine ----------------------------------------------------------- */

/* Creates the engine. NIXL's parameter "address" is the IP address or host name
 * that the agent publishes; the default is the name of the host. */
backend::backend(const nixlBackendInitParams *params)
    : nixlBackendEngine(params)
{
	te_engine_options options = {};
	std::string address, folder_setting = folder.setting();
	const char *settings[] = { folder_setting.c_str() };
	char host[256];

	options.metadata = "P2PHANDSHAKE";
	options.auto_discover = 1;
	options.settings = settings;
	options.settings_count = 1;
	if (getInitParam("address", address) == NIXL_SUCCESS &&
	    !address.empty()) {
		options.server_name = address.c_str();
		options.ip = address.c_str();
	} else if (!gethostname(host, sizeof(host) - 1)) {
		host[sizeof(host) - 1] = 0;
		options.server_name = host;
	}
	initErr = te_engine_create(&options, sizeof(options), &engine) != 0;
}

backend::~backend()
{
	{
		std::lock_guard<std::mutex> hold(lock);
		stopping = true;
	}
	if (thread.joinable())
		thread.join();
	if (engine)
		destroyTransferEngine(engine);
}

/* --- memory --------------------------------------------------------------- */

/* Returns true if a registered buffer contains the range. `lock` must be
 * held. */
bool backend::covers(std::uintptr_t addr, std::size_t length) const
{
	auto at = regions.upper_bound(addr);

	if (at == regions.begin())
		return false;
	--at;
	return addr - at->first < at->second.length &&
	       length <= at->second.length - (addr - at->first);
}

/* Registers a file. `lock` must be held. */
nixl_status_t backend::register_file(const nixlBlobDesc &mem,
				     nixlBackendMD *&out)
{
	file f;

	/* may be called for each file: installTransport returns at once if the
	 * transport is installed already */
	if (!installTransport(engine, "nvmeof", nullptr))
		return NIXL_ERR_NOT_SUPPORTED;
	int ret = folder.add(engine, mem.metaInfo, mem.devId,
			     mem.addr + mem.len, f);
	if (ret)
		return ret == -EINVAL ? NIXL_ERR_INVALID_PARAM
				      : NIXL_ERR_BACKEND;
	out = new memory(mem.addr, true, f);
	return NIXL_SUCCESS;
}

nixl_status_t backend::registerMem(const nixlBlobDesc &mem,
				   const nixl_mem_t &kind, nixlBackendMD *&out)
{
	std::lock_guard<std::mutex> hold(lock);
	std::string gpu = "cuda:" + std::to_string(mem.devId);
	te_registration entry = {};

	if (kind == FILE_SEG)
		return register_file(mem, out);
	if (kind != DRAM_SEG && kind != VRAM_SEG)
		return NIXL_ERR_NOT_SUPPORTED;
	if (covers(mem.addr, mem.len)) {
		std::prev(regions.upper_bound(mem.addr))->second.refs++;
		out = new memory(mem.addr, true);
		return NIXL_SUCCESS;
	}
	entry.addr = reinterpret_cast<void *>(mem.addr);
	entry.length = mem.len;
	if (kind == VRAM_SEG)
		entry.location = gpu.c_str();
	if (te_register(engine, &entry, sizeof(entry), 1))
		return NIXL_ERR_BACKEND;
	regions[mem.addr] = { mem.len, 1 };
	out = new memory(mem.addr, true);
	return NIXL_SUCCESS;
}

nixl_status_t backend::deregisterMem(nixlBackendMD *meta)
{
	std::lock_guard<std::mutex> hold(lock);
	auto *m = static_cast<memory *>(meta);
	auto at = regions.upper_bound(m->addr);

	if (m->at.segment >= 0) {
		folder.remove(engine, m->at);
		delete m;
		return NIXL_SUCCESS;
	}
	if (at == regions.begin())
		return NIXL_ERR_NOT_FOUND;
	--at;
	if (!--at->second.refs) {
		if (unregisterLocalMemory(
			    engine, reinterpret_cast<void *>(at->first))) {
			at->second.refs++;
			return NIXL_ERR_BACKEND;
		}
		regions.erase(at);
	}
	delete m;
	return NIXL_SUCCESS;
}

/* Returns the size, mode and time of a file in the form that NIXL's own
 * plug-ins use. Returns nothing if the file does not exist. */
static nixl_query_resp_t query_file(const std::string &meta)
{
	file_spec spec(meta);
	struct stat st;

	if (stat(spec.path.empty() ? meta.c_str() : spec.path.c_str(), &st))
		return std::nullopt;
	return nixl_b_params_t{ { "size", std::to_string(st.st_size) },
				{ "mode", std::to_string(st.st_mode) },
				{ "mtime", std::to_string(st.st_mtime) } };
}

/* Reports for each range whether it is registered in this agent, and for each
 * file whether it exists. */
nixl_status_t backend::queryMem(const nixl_reg_dlist_t &descs,
				std::vector<nixl_query_resp_t> &out) const
{
	std::lock_guard<std::mutex> hold(lock);

	out.clear();
	for (int i = 0; i < descs.descCount(); i++)
		if (descs.getType() == FILE_SEG)
			out.push_back(query_file(descs[i].metaInfo));
		else if (covers(descs[i].addr, descs[i].len))
			out.push_back(nixl_b_params_t{});
		else
			out.push_back(std::nullopt);
	return NIXL_SUCCESS;
}

/* --- agents --------------------------------------------------------------- */

nixl_status_t backend::getConnInfo(std::string &out) const
{
	char name[512];

	if (getLocalIpAndPort(engine, name, sizeof(name)))
		return NIXL_ERR_BACKEND;
	out = name;
	return NIXL_SUCCESS;
}

nixl_status_t backend::loadRemoteConnInfo(const std::string &agent,
					  const std::string &info)
{
	segment_id_t id = openSegment(engine, info.c_str());

	if (id < 0)
		return NIXL_ERR_BACKEND;
	std::lock_guard<std::mutex> hold(lock);
	auto old = agents.find(agent);
	if (old != agents.end() && old->second != id)
		closeSegment(engine, old->second);
	agents[agent] = id;
	return NIXL_SUCCESS;
}

nixl_status_t backend::disconnect(const std::string &agent)
{
	std::lock_guard<std::mutex> hold(lock);
	auto at = agents.find(agent);

	if (at == agents.end())
		return NIXL_SUCCESS;
	closeSegment(engine, at->second);
	agents.erase(at);
	return NIXL_SUCCESS;
}

bool backend::segment_of(const std::string &agent, segment_id_t &id) const
{
	std::lock_guard<std::mutex> hold(lock);
	auto at = agents.find(agent);

	if (agent == localAgent)
		id = LOCAL_SEGMENT;
	else if (at != agents.end())
		id = at->second;
	else
		return false;
	return true;
}

/* --- requests ------------------------------------------------------------- */

/* Adds one request for each piece to r.plain. If the piece is in a file, the
 * target of its request is the segment of that file. */
nixl_status_t backend::plain_requests(const nixl_xfer_op_t &op,
				      const std::vector<te_piece> &pieces,
				      const nixl_meta_dlist_t &remote,
				      request &r)
{
	for (std::size_t i = 0; i < pieces.size(); i++) {
		const te_piece &p = pieces[i];
		segment_id_t to = r.segment;

		if (remote.getType() == FILE_SEG) {
			const file &f =
				static_cast<const memory *>(
					remote[static_cast<int>(i)].metadataP)
					->at;

			if (f.segment < 0)
				return NIXL_ERR_NOT_SUPPORTED;
			if (!(op == NIXL_READ ? f.readable : f.writable))
				return NIXL_ERR_INVALID_PARAM;
			to = f.segment;
		}
		r.plain.push_back(
			{ op == NIXL_READ ? OPCODE_READ : OPCODE_WRITE, p.local,
			  to, p.remote, p.length });
	}
	return NIXL_SUCCESS;
}

nixl_status_t
backend::prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
		  const nixl_meta_dlist_t &remote, const std::string &agent,
		  nixlBackendReqH *&handle, const nixl_opt_b_args_t *) const
{
	auto r = std::make_unique<request>();
	uint32_t opcode = op == NIXL_READ ? TE_READ : TE_WRITE;
	std::vector<te_piece> pieces;
	int n = local.descCount(), ret = 8;

	if (!n || n != remote.descCount() || !segment_of(agent, r->segment))
		return NIXL_ERR_INVALID_PARAM;
	if (local.getType() == FILE_SEG)
		return NIXL_ERR_NOT_SUPPORTED;
	for (int i = 0; i < n; i++) {
		if (local[i].len != remote[i].len)
			return NIXL_ERR_INVALID_PARAM;
		pieces.push_back({ reinterpret_cast<void *>(local[i].addr),
				   remote[i].addr, local[i].len });
	}
	if (local.getType() == DRAM_SEG && remote.getType() == DRAM_SEG)
		ret = te_prepare(engine, r->segment, opcode, pieces.data(),
				 pieces.size(), 0, &r->list);
	/* 3: the descriptor does not list the memory; reads it again, because
	 * the target may have registered the memory since */
	if (ret == 3 && !syncSegmentCache(engine))
		ret = te_prepare(engine, r->segment, opcode, pieces.data(),
				 pieces.size(), 0, &r->list);
	if (ret && ret != 8)
		return NIXL_ERR_BACKEND;
	if (ret) {
		nixl_status_t bad = plain_requests(op, pieces, remote, *r);

		if (bad != NIXL_SUCCESS)
			return bad;
	}
	r->batch = allocateBatchID(engine, ret ? pieces.size() : 1);
	if (r->batch == INVALID_BATCH) {
		te_prepared_release(engine, r->list);
		return NIXL_ERR_BACKEND;
	}
	handle = r.release();
	return NIXL_SUCCESS;
}

nixl_status_t backend::submit(request &r) const
{
	int ret = r.list ? te_submit_prepared(engine, r.batch, r.list, nullptr,
					      0, 0, 0, nullptr)
			 : submitTransfer(engine, r.batch, r.plain.data(),
					  r.plain.size());

	return ret ? NIXL_ERR_BACKEND : NIXL_IN_PROG;
}

nixl_status_t backend::postXfer(const nixl_xfer_op_t &,
				const nixl_meta_dlist_t &,
				const nixl_meta_dlist_t &, const std::string &,
				nixlBackendReqH *&handle,
				const nixl_opt_b_args_t *args) const
{
	auto *r = static_cast<request *>(handle);

	if (r->canceled || te_batch_reset(engine, r->batch))
		return NIXL_ERR_REPOST_ACTIVE;
	r->notify.reset();
	r->has_notify = args && args->hasNotif;
	if (r->has_notify)
		r->notify_data = args->notifMsg;
	return submit(*r);
}

nixl_status_t backend::checkXfer(nixlBackendReqH *handle) const
{
	auto *r = static_cast<request *>(handle);
	transfer_status_t status = {};

	if (r->notify)
		return r->notify->get();
	if (te_batch_status(engine, r->batch, &status))
		return NIXL_ERR_BACKEND;
	if (status.status == STATUS_WAITING || status.status == STATUS_PENDING)
		return NIXL_IN_PROG;
	if (status.status == STATUS_CANCELED)
		return NIXL_ERR_CANCELED;
	if (status.status != STATUS_COMPLETED)
		return NIXL_ERR_BACKEND;
	if (!r->has_notify)
		return NIXL_SUCCESS;
	r->notify = queue_note(r->segment, r->notify_data);
	return NIXL_IN_PROG;
}

void backend::free_request(transfer_engine_t engine, request *r)
{
	freeBatchID(engine, r->batch);
	if (r->list)
		te_prepared_release(engine, r->list);
	delete r;
}

nixl_status_t backend::releaseReqH(nixlBackendReqH *handle) const
{
	auto *r = static_cast<request *>(handle);
	transfer_status_t status = {};
	bool again = r->canceled;

	te_cancel_batch(engine, r->batch);
	r->canceled = true;
	if (again)
		te_wait_batch(engine, r->batch, -1, &status);
	else if (te_batch_reset(engine, r->batch))
		return NIXL_ERR_REPOST_ACTIVE;
	free_request(engine, r);
	return NIXL_SUCCESS;
}

/*
 * Returns the sum of the rates of all rails that are up and reach the segment,
 * in bytes per second. The rate of a rail is known only after its first
 * transfers; before, it counts as 0. Returns 0 if the bytes are copied inside
 * this host.
 */
static double rate_to(transfer_engine_t engine, segment_id_t segment)
{
	std::vector<struct te_rail_stats> rails(64);
	std::vector<te_path> paths(64);
	std::size_t nrails = rails.size(), npaths = paths.size();
	double rate = 0;

	if (te_rail_stats(engine, rails.data(), sizeof(rails[0]), &nrails) ||
	    te_segment_paths(engine, segment, nullptr, paths.data(),
			     sizeof(paths[0]), &npaths))
		return 0;
	rails.resize(std::min(nrails, rails.size()));
	paths.resize(std::min(npaths, paths.size()));
	for (const struct te_rail_stats &rail : rails)
		for (const te_path &path : paths)
			if (rail.state == TE_RAIL_UP &&
			    path.kind == TE_PATH_FABRIC &&
			    !strcmp(path.rail, rail.name)) {
				rate += rail.rate;
				break;
			}
	return rate;
}

nixl_status_t backend::estimateXferCost(
	const nixl_xfer_op_t &, const nixl_meta_dlist_t &local,
	const nixl_meta_dlist_t &remote, const std::string &,
	nixlBackendReqH *const &handle, std::chrono::microseconds &duration,
	std::chrono::microseconds &margin, nixl_cost_t &method,
	const nixl_opt_args_t *) const
{
	double rate = 0, bytes = 0;

	if (handle && remote.getType() != FILE_SEG)
		rate = rate_to(engine, static_cast<request *>(handle)->segment);
	if (rate <= 0)
		return NIXL_ERR_NOT_SUPPORTED;
	for (int i = 0; i < local.descCount(); i++)
		bytes += static_cast<double>(local[i].len);
	duration = std::chrono::microseconds(
		static_cast<int64_t>(bytes / rate * 1e6) + 1);
	margin = duration / 2;
	method = nixl_cost_t::ANALYTICAL_BACKEND;
	return NIXL_SUCCESS;
}

/* --- notifications -------------------------------------------------------- */

void backend::sender()
{
	std::unique_lock<std::mutex> hold(lock);

	while (!stopping && !notes.empty()) {
		std::shared_ptr<note> next = notes.front();
		notes.pop_front();
		hold.unlock();
		next->set(te_notify(engine, next->segment, localAgent.c_str(),
				    next->data.data(), next->data.size())
				  ? NIXL_ERR_REMOTE_DISCONNECT
				  : NIXL_SUCCESS);
		hold.lock();
	}
	sending = false;
}

std::shared_ptr<note> backend::queue_note(segment_id_t to,
					  const std::string &data) const
{
	auto next = std::make_shared<note>(to, data);
	std::lock_guard<std::mutex> hold(lock);

	notes.push_back(next);
	if (sending)
		return next;
	/* `thread` has set sending to false and ends without taking the lock
	 * again, so it can be joined while the lock is held */
	if (thread.joinable())
		thread.join();
	sending = true;
	thread = std::thread(&backend::sender, const_cast<backend *>(this));
	return next;
}

nixl_status_t backend::genNotif(const std::string &agent,
				const std::string &msg) const
{
	segment_id_t id;

	if (!segment_of(agent, id))
		return NIXL_ERR_NOT_FOUND;
	queue_note(id, msg);
	return NIXL_SUCCESS;
}

nixl_status_t backend::getNotifs(notif_list_t &out)
{
	te_notification got[NOTES];
	std::size_t count;

	if (!out.empty())
		return NIXL_ERR_INVALID_PARAM;
	do {
		count = NOTES;
		if (te_notify_fetch(engine, got, sizeof(got[0]), &count))
			return NIXL_ERR_BACKEND;
		for (std::size_t i = 0; i < count; i++)
			out.emplace_back(
				got[i].name,
				std::string(static_cast<char *>(got[i].data),
					    got[i].length));
		te_notify_release(got, sizeof(got[0]), count);
	} while (count == NOTES);
	return NIXL_SUCCESS;
}

} // namespace

/* --- the plug-in ---------------------------------------------------------- */

/* NIXL calls this function after it has loaded the plug-in. */
extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init()
{
	static nixlBackendPlugin plugin = {
		NIXL_PLUGIN_API_VERSION,
		[](const nixlBackendInitParams *p) -> nixlBackendEngine * {
			try {
				return new backend(p);
			} catch (const std::exception &) {
				return nullptr;
			}
		},
		[](nixlBackendEngine *e) { delete e; },
		[] { return "MOONRAIL"; },
		[] { return te_version(); },
		[] {
			return nixl_b_params_t{ { "address", "" } };
		},
		[] {
			return nixl_mem_list_t{ DRAM_SEG, VRAM_SEG, FILE_SEG };
		},
	};

	return &plugin;
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini()
{
}
