/* SPDX-License-Identifier: BSD-2-Clause */
/* The class MooncakeEngine: creation of the engine, information about peers,
 * and the table of the class's methods. */
#include <stdlib.h>
#include <string.h>

#include "py_mooncake.h"

/* smallest time limit that MC_TRANSFER_TIMEOUT can set, s */
#define MOONCAKE_TIMEOUT_MIN	5
/* time limit if MC_TRANSFER_TIMEOUT is not set, s */
#define MOONCAKE_TIMEOUT	30
/* greatest number of attempts for a synchronous transfer */
#define MOONCAKE_RAILS 64

#define METHOD(name) static MOONCAKE_METHOD(name)

/* --- creation ------------------------------------------------------------ */

static int64_t mooncake_timeout_us(void)
{
	const char *text = getenv("MC_TRANSFER_TIMEOUT");
	long seconds = text && *text ? strtol(text, NULL, 10) :
				       MOONCAKE_TIMEOUT;

	if (seconds < MOONCAKE_TIMEOUT_MIN)
		seconds = MOONCAKE_TIMEOUT_MIN;
	return (int64_t)seconds * 1000000;
}

/* Creates the engine, without the GIL. Returns NULL after an error, which the
 * library has logged. */
static transfer_engine_t mooncake_create(const char *metadata, const char *host,
					 const char *protocol, const char *filter)
{
	bool named = !strcmp(protocol, "efa") || !strcmp(protocol, "cxi");
	struct te_engine_options o = { .metadata = metadata,
				       .server_name = host,
				       .auto_discover = !named };
	const char *settings[2];
	transfer_engine_t engine;

	settings[o.settings_count++] = filter;
	/* This class itself applies MC_TRANSFER_TIMEOUT, as the limit of its
	 * synchronous transfers, so the library must not apply it. */
	settings[o.settings_count++] = "MC_TRANSFER_TIMEOUT=";
	o.settings = settings;
	if (te_engine_create(&o, sizeof(o), &engine))
		return NULL;
	if (named && !installTransport(engine, protocol, NULL)) {
		destroyTransferEngine(engine);
		return NULL;
	}
	return engine;
}

/* Sets the members of the object for a new engine. */
static void mooncake_begin(struct mooncake *self, transfer_engine_t engine)
{
	size_t rails = 0;

	te_rail_stats(engine, NULL, sizeof(struct te_rail_stats), &rails);
	self->tries = 1 + (uint32_t)(rails < MOONCAKE_RAILS ? rails :
							      MOONCAKE_RAILS);
	self->timeout_us = mooncake_timeout_us();
	self->reports_timeout = getenv("MC_SLICE_TIMEOUT") != NULL;
	self->engine = engine;
}

/* Returns the setting "MC_TE_FILTERS=devices". The caller frees the text. */
static char *mooncake_filter(const char *devices)
{
	static const char name[] = "MC_TE_FILTERS=";
	char *text = malloc(sizeof(name) + strlen(devices));

	if (text) {
		strcpy(text, name);
		strcat(text, devices);
	}
	return text;
}

static PyObject *mooncake_init(struct mooncake *self, const char *host,
			       const char *metadata, const char *protocol,
			       const char *devices)
{
	transfer_engine_t engine;
	char *filter;

	if (self->engine || !strcmp(protocol, "xgmi"))
		return PyLong_FromLong(-1);
	filter = mooncake_filter(devices);
	if (!filter)
		return PyErr_NoMemory();
	Py_BEGIN_ALLOW_THREADS
	engine = mooncake_create(metadata, host, protocol, filter);
	free(filter);
	Py_END_ALLOW_THREADS
	if (engine && self->engine) {
		/* Another thread has created an engine in initialize() in the
		 * meantime. */
		Py_BEGIN_ALLOW_THREADS
		destroyTransferEngine(engine);
		Py_END_ALLOW_THREADS
		engine = NULL;
	}
	if (!engine)
		return PyLong_FromLong(-1);
	mooncake_begin(self, engine);
	return PyLong_FromLong(0);
}

METHOD(initialize)
{
	static char *names[] = { "", "", "", "", NULL };
	const char *host, *metadata, *protocol, *devices;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "ssss", names, &host,
					 &metadata, &protocol, &devices))
		return NULL;
	return mooncake_init(self, host, metadata, protocol, devices);
}

METHOD(initialize_ext)
{
	static char *names[] = { "", "", "", "", "", NULL };
	const char *host, *metadata, *protocol, *devices, *type;
	PyObject *text, *result = NULL;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "sssss", names, &host,
					 &metadata, &protocol, &devices, &type))
		return NULL;
	if (!strcmp(metadata, "P2PHANDSHAKE") || strstr(metadata, "://"))
		return mooncake_init(self, host, metadata, protocol, devices);
	text = PyUnicode_FromFormat("%s://%s", type, metadata);
	if (text)
		metadata = PyUnicode_AsUTF8AndSize(text, NULL);
	if (text && metadata)
		result = mooncake_init(self, host, metadata, protocol, devices);
	Py_XDECREF(text);
	return result;
}

/* --- information --------------------------------------------------------- */

METHOD(get_rpc_port)
{
	static char *names[] = { NULL };
	char text[256], *port;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "", names))
		return NULL;
	if (!self->engine ||
	    getLocalIpAndPort(self->engine, text, sizeof(text)))
		return PyLong_FromLong(0);
	port = strrchr(text, ':');
	return PyLong_FromLong(port ? strtol(port + 1, NULL, 10) : 0);
}

/* Returns the topology of the engine as a new string. */
static PyObject *mooncake_topology(transfer_engine_t engine)
{
	PyObject *result;
	int n, have = 0;
	char *text;

	n = te_topology_text(engine, NULL, 0);
	text = n < 0 ? NULL : malloc((size_t)n + 1);
	if (text)
		have = te_topology_text(engine, text, (size_t)n + 1);
	if (!text || have != n) {
		free(text);
		PyErr_SetString(PyExc_RuntimeError,
				"the topology cannot be read");
		return NULL;
	}
	result = PyUnicode_FromString(text);
	free(text);
	return result;
}

METHOD(get_local_topology)
{
	static char *names[] = { "device_name", NULL };
	const char *devices = NULL;
	transfer_engine_t engine;
	PyObject *result;
	char *filter;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "|z", names, &devices))
		return NULL;
	if (self->engine && (!devices || !*devices))
		return mooncake_topology(self->engine);
	filter = mooncake_filter(devices ? devices : "");
	if (!filter)
		return PyErr_NoMemory();
	Py_BEGIN_ALLOW_THREADS
	engine = mooncake_create("P2PHANDSHAKE", "127.0.0.1", "", filter);
	free(filter);
	Py_END_ALLOW_THREADS
	if (!engine)
		return PyUnicode_FromString("{}");
	result = mooncake_topology(engine);
	Py_BEGIN_ALLOW_THREADS
	destroyTransferEngine(engine);
	Py_END_ALLOW_THREADS
	return result;
}

METHOD(get_first_buffer_address)
{
	static char *names[] = { "", NULL };
	struct te_buffer first = { 0 };
	size_t count = 1;
	const char *name;
	segment_id_t id;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "s", names, &name))
		return NULL;
	if (!self->engine)
		return PyLong_FromLong(0);
	Py_BEGIN_ALLOW_THREADS
	/* Reads the descriptor again, because the peer may have registered
	 * memory since the descriptor was last read. */
	id = openSegmentNoCache(self->engine, name);
	if (id >= 0) {
		te_segment_buffers(self->engine, id, &first, sizeof(first),
				   &count);
		closeSegment(self->engine, id);
	}
	Py_END_ALLOW_THREADS
	return PyLong_FromUnsignedLongLong(first.addr);
}

typedef int (*mooncake_named)(transfer_engine_t engine, const char *name);

/* Calls a function of the C API with the name of a peer, without the GIL.
 * Returns the result of the function, or -1 if initialize() was not called. */
static PyObject *mooncake_by_name(struct mooncake *self, PyObject *args,
				  PyObject *kw, char **names,
				  mooncake_named call)
{
	const char *name;
	int ret = -1;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "s", names, &name))
		return NULL;
	if (self->engine) {
		Py_BEGIN_ALLOW_THREADS
		ret = call(self->engine, name);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(ret);
}

METHOD(warmup_efa_segment)
{
	static char *names[] = { "segment_name", NULL };

	return mooncake_by_name(self, args, kw, names, warmupEfaSegment);
}

static int mooncake_probe(transfer_engine_t engine, const char *name)
{
	return te_probe_peer(engine, name, -1);
}

METHOD(send_probe)
{
	static char *names[] = { "peer_server_name", NULL };

	return mooncake_by_name(self, args, kw, names, mooncake_probe);
}

/* Returns the received notifications as a list of tuples (name, text). The
 * class mooncake.engine.TransferEngine converts them to TransferNotify. */
METHOD(take_notifies)
{
	static char *names[] = { NULL };

	if (!PyArg_ParseTupleAndKeywords(args, kw, "", names))
		return NULL;
	return self->engine ? py_take_notifications(self->engine) :
			      PyList_New(0);
}

METHOD(get_engine_ptr)
{
	static char *names[] = { NULL };

	if (!PyArg_ParseTupleAndKeywords(args, kw, "", names))
		return NULL;
	return PyLong_FromVoidPtr(self->engine);
}

/* --- the class ----------------------------------------------------------- */

static PyObject *mooncake_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct mooncake *self;

	(void)args;
	(void)kw;
	self = (struct mooncake *)alloc(type, 0);
	if (!self)
		return NULL;
	self->segments = PyDict_New();
	self->batches = PyDict_New();
	self->managed = PyDict_New();
	self->unused = PyDict_New();
	if (!self->segments || !self->batches || !self->managed ||
	    !self->unused) {
		Py_DECREF(self);
		return NULL;
	}
	return (PyObject *)self;
}

/* Frees the batches and segments that the program has left, and destroys the
 * engine. */
static void mooncake_dealloc(struct mooncake *self)
{
	PyTypeObject *type = Py_TYPE((PyObject *)self);
	PyObject *kind, *value, *trace;
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyErr_Fetch(&kind, &value, &trace);
	if (self->engine) {
		mooncake_drop_batches(self);
		mooncake_close_segments(self);
		Py_BEGIN_ALLOW_THREADS
		destroyTransferEngine(self->engine);
		Py_END_ALLOW_THREADS
	}
	Py_XDECREF(self->segments);
	Py_XDECREF(self->batches);
	Py_XDECREF(self->managed);
	Py_XDECREF(self->unused);
	PyErr_Restore(kind, value, trace);
	release(self);
	Py_DECREF(type);
}

#define ROW(name, text)                                                     \
	{ #name, (PyCFunction)(void (*)(void))mooncake_##name,              \
	  METH_VARARGS | METH_KEYWORDS, text }

static PyMethodDef mooncake_methods[] = {
	ROW(initialize,
	    "initialize(local_hostname, metadata_server, protocol, device_name) -> int\n\nCreates the engine. Returns 0, or -1 if that failed. device_name is a\ncomma-separated list of interfaces or RDMA devices, '' for all."),
	ROW(initialize_ext,
	    "initialize_ext(local_hostname, metadata_server, protocol, device_name, metadata_type) -> int\n\nDoes what initialize does for the server metadata_type://metadata_server."),
	ROW(get_rpc_port,
	    "get_rpc_port() -> int\n\nReturns the port of the control channel, 0 before initialize."),
	ROW(transfer_sync_write,
	    "transfer_sync_write(target_hostname, buffer, peer_buffer_address, length, transport_hint='') -> int\n\nWrites to the target and waits. Returns 0, or -1 if the bytes are not in place."),
	ROW(transfer_sync_read,
	    "transfer_sync_read(target_hostname, buffer, peer_buffer_address, length, transport_hint='') -> int\n\nReads from the target and waits. Returns 0 or -1."),
	ROW(transfer_sync,
	    "transfer_sync(target_hostname, buffer, peer_buffer_address, length, opcode, notify=None, transport_hint='') -> int\n\nReads or writes and waits. The target receives notify when the bytes are in place."),
	ROW(transfer_submit_write,
	    "transfer_submit_write(target_hostname, buffer, peer_buffer_address, length, transport_hint='') -> int\n\nSubmits a write. Returns the batch id, 0 on failure."),
	ROW(transfer_check_status,
	    "transfer_check_status(batch_id) -> int\n\nReturns 1 if the batch has completed, 0 if it is in progress, -1 if it has failed,\n-2 if it has ended but the target could not be fenced (MC_SLICE_TIMEOUT is set).\n1 and -1 free the batch."),
	ROW(batch_transfer_sync_write,
	    "batch_transfer_sync_write(target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint='') -> int\n\nWrites several ranges and waits. Returns 0 or -1."),
	ROW(batch_transfer_sync_read,
	    "batch_transfer_sync_read(target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint='') -> int\n\nReads several ranges and waits. Returns 0 or -1."),
	ROW(batch_transfer_async_write,
	    "batch_transfer_async_write(target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint='') -> int\n\nSubmits writes of several ranges. Returns the batch id, 0 on failure."),
	ROW(batch_transfer_async_read,
	    "batch_transfer_async_read(target_hostname, buffers, peer_buffer_addresses, lengths, transport_hint='') -> int\n\nSubmits reads of several ranges. Returns the batch id, 0 on failure."),
	ROW(batch_transfer_sync,
	    "batch_transfer_sync(target_hostname, buffers, peer_buffer_addresses, lengths, opcode, notify=None, transport_hint='') -> int\n\nReads or writes several ranges and waits. Returns 0 or -1."),
	ROW(batch_transfer_async,
	    "batch_transfer_async(target_hostname, buffers, peer_buffer_addresses, lengths, opcode, transport_hint='') -> int\n\nSubmits several ranges. Returns the batch id, 0 on failure."),
	ROW(get_batch_transfer_status,
	    "get_batch_transfer_status(batch_ids) -> int\n\nWaits for the batches and frees them. Returns 0 if all completed, otherwise -1."),
	ROW(allocate_managed_buffer,
	    "allocate_managed_buffer(length) -> int\n\nReturns the address of registered memory, 0 on failure."),
	ROW(free_managed_buffer,
	    "free_managed_buffer(address, length) -> int\n\nGives the memory back. Returns 0, or -1 if it was not allocated here."),
	ROW(write_bytes_to_buffer,
	    "write_bytes_to_buffer(address, data, length) -> int\n\nCopies bytes to memory of this process. Returns 0."),
	ROW(read_bytes_from_buffer,
	    "read_bytes_from_buffer(address, length) -> bytes\n\nReturns bytes from memory of this process."),
	ROW(register_memory,
	    "register_memory(buffer_addr, capacity, location='*') -> int\n\nRegisters memory for transfers. Returns 0 or a negative code."),
	ROW(unregister_memory,
	    "unregister_memory(buffer_addr) -> int\n\nReturns 0 or a negative code. After 0 no peer can access the memory."),
	ROW(batch_register_memory,
	    "batch_register_memory(buffer_addresses, capacities, location='*') -> int\n\nRegisters several ranges, all or none. Returns 0 or a negative code."),
	ROW(batch_unregister_memory,
	    "batch_unregister_memory(buffer_addresses) -> int\n\nReturns 0 or a negative code."),
	ROW(get_local_topology,
	    "get_local_topology(device_name=None) -> str\n\nReturns JSON text: each location with [[preferred rails], [other rails]]."),
	ROW(get_first_buffer_address,
	    "get_first_buffer_address(segment_name) -> int\n\nReturns the address of the first buffer of that segment, 0 if there is none."),
	ROW(warmup_efa_segment,
	    "warmup_efa_segment(segment_name) -> int\n\nConnects all pairs of rails with that segment. Returns 0 or a negative code."),
	ROW(send_probe,
	    "send_probe(peer_server_name) -> int\n\nReturns 0 if the control port of that peer answers."),
	ROW(take_notifies,
	    "take_notifies() -> list[tuple[str, str]]\n\nReturns the received notifications and removes them."),
	ROW(get_engine_ptr,
	    "get_engine_ptr() -> int\n\nReturns the engine's handle of the C API, 0 before initialize."),
	{ NULL, NULL, 0, NULL },
};

static PyType_Slot mooncake_slots[] = {
	{ Py_tp_doc, (void *)"The engine behind mooncake.engine.TransferEngine." },
	{ Py_tp_new, (void *)mooncake_new },
	{ Py_tp_dealloc, (void *)mooncake_dealloc },
	{ Py_tp_methods, mooncake_methods },
	{ 0, NULL },
};

static PyType_Spec mooncake_spec = {
	.name = "moonrail._moonrail.MooncakeEngine",
	.basicsize = sizeof(struct mooncake),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = mooncake_slots,
};

PyObject *py_mooncake_type(void)
{
	return PyType_FromSpec(&mooncake_spec);
}
