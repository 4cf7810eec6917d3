/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The class moonrail._moonrail.Handle: the C API of one engine. The classes of
 * the Python package moonrail use it. Its methods return the codes of the C API
 * and raise exceptions only for wrong arguments. All calls that may wait are
 * made without the GIL.
 *
 * close() may run while other threads are in a method, because calls of the C
 * API return a code if the engine was destroyed.
 */
#include <stdlib.h>
#include <string.h>

#include "py_handle.h"

/* --- errors -------------------------------------------------------------- */

PyObject *py_error_tuple(const struct te_error *e)
{
	return Py_BuildValue("(iIisssss)", (int)e->code, (unsigned)e->flags,
			     (int)e->prov_errno, e->rail, e->peer, e->provider,
			     e->text, e->hint);
}

PyObject *py_last_error(PyObject *module, PyObject *none)
{
	struct te_error e = { 0 };

	(void)module;
	(void)none;
	te_last_error(&e, sizeof(e));
	return py_error_tuple(&e);
}

/* --- engine -------------------------------------------------------------- */

/* Converts a list of settings to an array of strings. The strings are valid as
 * long as the list. The caller frees the array. */
static const char **handle_settings(PyObject *list, size_t *count)
{
	Py_ssize_t n = PyList_Size(list), i;
	const char **text;

	if (n < 0)
		return NULL;
	text = calloc((size_t)n + 1, sizeof(*text));
	if (!text)
		return (const char **)PyErr_NoMemory();
	for (i = 0; i < n; i++) {
		text[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i),
						  NULL);
		if (!text[i]) {
			free(text);
			return NULL;
		}
	}
	*count = (size_t)n;
	return text;
}

/* create(metadata, name, ip, port, auto_discover, settings) -> 0 or a negative
 * code */
static PyObject *handle_create(struct handle *self, PyObject *args)
{
	struct te_engine_options o = { 0 };
	transfer_engine_t engine = NULL;
	const char **settings;
	PyObject *list;
	int ret;

	if (!PyArg_ParseTuple(args, "sszIpO", &o.metadata, &o.server_name,
			      &o.ip, &o.port, &o.auto_discover, &list))
		return NULL;
	settings = handle_settings(list, &o.settings_count);
	if (!settings)
		return NULL;
	o.settings = settings;
	WITHOUT_GIL(ret = te_engine_create(&o, sizeof(o), &engine));
	free(settings);
	if (!ret)
		self->engine = engine;
	return PyLong_FromLong(ret);
}

static PyObject *handle_close(struct handle *self, PyObject *none)
{
	transfer_engine_t engine = self->engine;

	(void)none;
	self->engine = NULL;
	if (engine)
		WITHOUT_GIL(destroyTransferEngine(engine));
	Py_RETURN_NONE;
}

static PyObject *handle_name(struct handle *self, PyObject *none)
{
	char text[512] = "";

	(void)none;
	getLocalIpAndPort(self->engine, text, sizeof(text));
	return PyUnicode_FromString(text);
}

static PyObject *handle_install(struct handle *self, PyObject *args)
{
	transport_t transport;
	const char *name;

	if (!PyArg_ParseTuple(args, "s", &name))
		return NULL;
	WITHOUT_GIL(transport = installTransport(self->engine, name, NULL));
	return PyLong_FromLong(transport ? 0 : -1);
}

typedef int (*handle_text)(transfer_engine_t engine, char *buf, size_t len);

/* Calls a function of the C API that writes a text. Returns the text, or None
 * if the function fails. */
static PyObject *handle_get_text(struct handle *self, handle_text get)
{
	int n = get(self->engine, NULL, 0);
	PyObject *result = NULL;
	char *text;

	if (n < 0)
		Py_RETURN_NONE;
	text = malloc((size_t)n + 1);
	if (!text)
		return PyErr_NoMemory();
	if (get(self->engine, text, (size_t)n + 1) >= 0)
		result = PyUnicode_FromString(text);
	free(text);
	if (!result && !PyErr_Occurred())
		Py_RETURN_NONE;
	return result;
}

static PyObject *handle_settings_text(struct handle *self, PyObject *none)
{
	(void)none;
	return handle_get_text(self, te_settings_text);
}

static PyObject *handle_topology_text(struct handle *self, PyObject *none)
{
	(void)none;
	return handle_get_text(self, te_topology_text);
}

static PyObject *handle_probe(struct handle *self, PyObject *args)
{
	const char *name;
	long long us;
	int ret;

	if (!PyArg_ParseTuple(args, "sL", &name, &us))
		return NULL;
	WITHOUT_GIL(ret = te_probe_peer(self->engine, name, us));
	return PyLong_FromLong(ret);
}

/* --- memory -------------------------------------------------------------- */

/* Converts the Python arguments (address, size, location, flags, label or None)
 * to *r. Returns false with an exception after an error. */
static bool handle_entry(PyObject *args, struct te_registration *r)
{
	uint64_t addr;

	memset(r, 0, sizeof(*r));
	if (!PyArg_ParseTuple(args, "O&O&sO&z", py_u64, &addr, py_u64,
			      &r->length, &r->location, py_u64, &r->flags,
			      &r->label))
		return false;
	r->addr = (void *)(uintptr_t)addr;
	return true;
}

static PyObject *handle_register(struct handle *self, PyObject *args)
{
	struct te_registration r;
	int ret;

	if (!handle_entry(args, &r))
		return NULL;
	WITHOUT_GIL(ret = te_register(self->engine, &r, sizeof(r), 1));
	return PyLong_FromLong(ret);
}

static PyObject *handle_unregister(struct handle *self, PyObject *args)
{
	struct te_registration r;
	int ret;

	if (!handle_entry(args, &r))
		return NULL;
	WITHOUT_GIL(ret = te_unregister(self->engine, &r, sizeof(r), 1));
	return PyLong_FromLong(ret);
}

/* alloc(size, location or None, flags) -> (address, page_size, numa_node,
 * location), or a negative code */
static PyObject *handle_alloc(struct handle *self, PyObject *args)
{
	struct te_memory m = { 0 };
	const char *location;
	uint64_t size, flags;
	int ret;

	if (!PyArg_ParseTuple(args, "O&zO&", py_u64, &size, &location, py_u64,
			      &flags))
		return NULL;
	WITHOUT_GIL(ret = te_alloc(self->engine, size, location, flags, &m,
				   sizeof(m)));
	if (ret)
		return PyLong_FromLong(ret);
	return Py_BuildValue("(KKis)", (unsigned long long)m.addr,
			     (unsigned long long)m.page_size,
			     (int)m.numa_node, m.location);
}

static PyObject *handle_free(struct handle *self, PyObject *args)
{
	uint64_t addr;
	int ret;

	if (!PyArg_ParseTuple(args, "O&", py_u64, &addr))
		return NULL;
	WITHOUT_GIL(ret = te_free(self->engine, (void *)(uintptr_t)addr));
	return PyLong_FromLong(ret);
}

/* --- segments ------------------------------------------------------------ */

static PyObject *handle_open(struct handle *self, PyObject *args)
{
	const char *name;
	segment_id_t id;
	int fresh;

	if (!PyArg_ParseTuple(args, "sp", &name, &fresh))
		return NULL;
	WITHOUT_GIL(id = fresh ? openSegmentNoCache(self->engine, name) :
				 openSegment(self->engine, name));
	return PyLong_FromLong(id);
}

static PyObject *handle_close_segment(struct handle *self, PyObject *args)
{
	int id;

	if (!PyArg_ParseTuple(args, "i", &id))
		return NULL;
	return PyLong_FromLong(closeSegment(self->engine, id));
}

/*
 * Calls te_segment_find if "whole" is true, otherwise te_segment_buffers.
 * Returns a list of (address, length, location, label or None), or a negative
 * code.
 */
static PyObject *handle_list(struct handle *self, int id, bool whole,
			     const char *label)
{
	struct te_buffer *all = NULL;
	size_t room = 0, count, i;
	PyObject *list, *item;
	int ret;

	for (;;) {
		count = room;
		ret = whole ? te_segment_find(self->engine, id, label, all,
					      sizeof(*all), &count) :
			      te_segment_buffers(self->engine, id, all,
						 sizeof(*all), &count);
		if (ret || count <= room)
			break;
		free(all);
		room = count;
		all = calloc(room, sizeof(*all));
		if (!all)
			return PyErr_NoMemory();
	}
	list = ret ? PyLong_FromLong(ret) : PyList_New(0);
	for (i = 0; !ret && list && i < count; i++) {
		item = Py_BuildValue("(KKsz)", (unsigned long long)all[i].addr,
				     (unsigned long long)all[i].length,
				     all[i].location,
				     *all[i].label ? all[i].label : NULL);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	free(all);
	return list;
}

/* buffers(id) -> the list of handle_list(), or a negative code */
static PyObject *handle_buffers(struct handle *self, PyObject *args)
{
	int id;

	if (!PyArg_ParseTuple(args, "i", &id))
		return NULL;
	return handle_list(self, id, false, NULL);
}

/* find(id, label or None) -> the list of handle_list(), or a negative code */
static PyObject *handle_find(struct handle *self, PyObject *args)
{
	const char *label;
	int id;

	if (!PyArg_ParseTuple(args, "iz", &id, &label))
		return NULL;
	return handle_list(self, id, true, label);
}

/* --- statistics ---------------------------------------------------------- */

#define U64(x) ((unsigned long long)(x))

static PyObject *stats_rail(const struct te_rail_stats *r)
{
	return Py_BuildValue(
		"{s:s,s:s,s:s,s:s,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:d,s:K}",
		"name", r->name, "provider", r->provider, "address",
		r->address, "transport", r->transport, "state",
		(unsigned)r->state, "lanes", (unsigned)r->lanes, "tx_bytes",
		U64(r->tx_bytes), "rx_bytes", U64(r->rx_bytes), "slices",
		U64(r->slices), "retries", U64(r->retries), "errors",
		U64(r->errors), "inflight_bytes", U64(r->inflight_bytes),
		"inflight_max", U64(r->inflight_max), "window",
		U64(r->window), "rate", r->rate, "state_changes",
		U64(r->state_changes));
}

/* rail_stats() -> list of dict, or a negative code */
static PyObject *handle_rail_stats(struct handle *self, PyObject *none)
{
	struct te_rail_stats *all;
	size_t count = 0, i;
	PyObject *list, *item;
	int ret;

	(void)none;
	te_rail_stats(self->engine, NULL, sizeof(*all), &count);
	all = calloc(count + 1, sizeof(*all));
	if (!all)
		return PyErr_NoMemory();
	ret = te_rail_stats(self->engine, all, sizeof(*all), &count);
	list = ret ? PyLong_FromLong(ret) : PyList_New(0);
	for (i = 0; !ret && list && i < count; i++) {
		item = stats_rail(&all[i]);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	free(all);
	return list;
}

/* peer_stats(segment) -> dict, or a negative code */
static PyObject *handle_peer_stats(struct handle *self, PyObject *args)
{
	struct te_peer_stats p = { 0 };
	int id, ret;

	if (!PyArg_ParseTuple(args, "i", &id))
		return NULL;
	ret = te_peer_stats(self->engine, id, &p, sizeof(p));
	if (ret)
		return PyLong_FromLong(ret);
	return Py_BuildValue(
		"{s:s,s:K,s:I,s:I,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}",
		"name", p.name, "incarnation", U64(p.incarnation), "state",
		(unsigned)p.state, "queued", (unsigned)p.queued, "tx_bytes",
		U64(p.tx_bytes), "rx_bytes", U64(p.rx_bytes), "completed",
		U64(p.completed), "failed", U64(p.failed), "timeout",
		U64(p.timeout), "canceled", U64(p.canceled), "retries",
		U64(p.retries), "fences", U64(p.fences), "last_ns",
		U64(p.last_ns));
}

/* --- addresses of Python objects ------------------------------------------ */

PyObject *py_buffer_address(PyObject *module, PyObject *args)
{
	PyObject *object, *result;
	Py_buffer view;
	int writable;

	(void)module;
	if (!PyArg_ParseTuple(args, "Op", &object, &writable))
		return NULL;
	if (PyObject_GetBuffer(object, &view,
			       PyBUF_ANY_CONTIGUOUS |
				       (writable ? PyBUF_WRITABLE : 0)))
		return NULL;
	result = Py_BuildValue("(KK)", U64((uintptr_t)view.buf),
			       U64(view.len));
	PyBuffer_Release(&view);
	return result;
}

/* --- the class ----------------------------------------------------------- */

static void handle_dealloc(struct handle *self)
{
	PyTypeObject *type = Py_TYPE((PyObject *)self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
	PyObject *kind, *value, *trace;

	PyErr_Fetch(&kind, &value, &trace);
	if (self->engine)
		WITHOUT_GIL(destroyTransferEngine(self->engine));
	PyErr_Restore(kind, value, trace);
	release(self);
	Py_DECREF(type);
}

#define ROW(name, flags)                                                    \
	{ #name, (PyCFunction)(void (*)(void))handle_##name, flags, NULL }

static PyMethodDef handle_methods[] = {
	ROW(create, METH_VARARGS),
	ROW(close, METH_NOARGS),
	ROW(name, METH_NOARGS),
	ROW(install, METH_VARARGS),
	ROW(settings_text, METH_NOARGS),
	ROW(topology_text, METH_NOARGS),
	ROW(probe, METH_VARARGS),
	ROW(register, METH_VARARGS),
	ROW(unregister, METH_VARARGS),
	ROW(alloc, METH_VARARGS),
	ROW(free, METH_VARARGS),
	ROW(open, METH_VARARGS),
	ROW(close_segment, METH_VARARGS),
	ROW(buffers, METH_VARARGS),
	ROW(find, METH_VARARGS),
	ROW(export, METH_NOARGS),
	ROW(import_segment, METH_VARARGS),
	ROW(paths, METH_VARARGS),
	ROW(sync, METH_NOARGS),
	ROW(warm_up, METH_VARARGS),
	ROW(flush, METH_VARARGS),
	ROW(drain, METH_VARARGS),
	ROW(event_fd, METH_NOARGS),
	ROW(ended, METH_NOARGS),
	ROW(alloc_batch, METH_VARARGS),
	ROW(reset_batch, METH_VARARGS),
	ROW(free_batch, METH_VARARGS),
	ROW(limit_batch, METH_VARARGS),
	ROW(submit, METH_VARARGS),
	ROW(transfer, METH_VARARGS),
	ROW(wait, METH_VARARGS),
	ROW(wait_any, METH_VARARGS),
	ROW(cancel, METH_VARARGS),
	ROW(tasks, METH_VARARGS),
	ROW(task_error, METH_VARARGS),
	ROW(batch_fd, METH_VARARGS),
	ROW(prepare, METH_VARARGS),
	ROW(submit_prepared, METH_VARARGS),
	ROW(release_prepared, METH_VARARGS),
	ROW(notify, METH_VARARGS),
	ROW(notifications, METH_NOARGS),
	ROW(notify_binary, METH_VARARGS),
	ROW(fetch_binary, METH_NOARGS),
	ROW(rail_stats, METH_NOARGS),
	ROW(peer_stats, METH_VARARGS),
	{ NULL, NULL, 0, NULL },
};

static PyType_Slot handle_slots[] = {
	{ Py_tp_doc, (void *)"The C API of one engine." },
	{ Py_tp_dealloc, (void *)handle_dealloc },
	{ Py_tp_methods, handle_methods },
	{ 0, NULL },
};

static PyType_Spec handle_spec = {
	.name = "moonrail._moonrail.Handle",
	.basicsize = sizeof(struct handle),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = handle_slots,
};

PyObject *py_handle_type(void)
{
	return PyType_FromSpec(&handle_spec);
}
