/* SPDX-License-Identifier: BSD-2-Clause */
/* Methods of Handle: descriptors of segments, paths, and events of the engine.
 */
#include <stdlib.h>

#include "py_handle.h"

/* Number of ended batches that one call of te_ended_batches() returns at
 * most. */
#define ENDED_FETCH 64

/* --- descriptors --------------------------------------------------------- */

/* export() -> bytes, or a negative code */
PyObject *handle_export(struct handle *self, PyObject *none)
{
	PyObject *result;
	void *blob = NULL;
	size_t room, size = 0;
	int ret;

	(void)none;
	do {
		free(blob);
		room = size;
		blob = malloc(room + 1);
		if (!blob)
			return PyErr_NoMemory();
		size = room;
		ret = te_segment_export(self->engine, 0, room ? blob : NULL,
					&size);
	} while (size > room);
	result = ret ? PyLong_FromLong(ret)
		     : PyBytes_FromStringAndSize(blob, (Py_ssize_t)size);
	free(blob);
	return result;
}

/* import_segment(blob) -> segment, or a negative code */
PyObject *handle_import_segment(struct handle *self, PyObject *args)
{
	segment_id_t id = -1;
	PyObject *object;
	Py_buffer view;
	int ret;

	if (!PyArg_ParseTuple(args, "O", &object) ||
	    PyObject_GetBuffer(object, &view, PyBUF_SIMPLE))
		return NULL;
	WITHOUT_GIL(ret = te_segment_import(self->engine, view.buf,
					    (size_t)view.len, 0, &id));
	PyBuffer_Release(&view);
	return PyLong_FromLong(ret ? ret : id);
}

/* sync() -> 0 or a negative code */
PyObject *handle_sync(struct handle *self, PyObject *none)
{
	int ret;

	(void)none;
	WITHOUT_GIL(ret = syncSegmentCache(self->engine));
	return PyLong_FromLong(ret);
}

/* warm_up(name) -> 0 or a negative code */
PyObject *handle_warm_up(struct handle *self, PyObject *args)
{
	const char *name;
	int ret;

	if (!PyArg_ParseTuple(args, "s", &name))
		return NULL;
	WITHOUT_GIL(ret = warmupEfaSegment(self->engine, name));
	return PyLong_FromLong(ret);
}

/* --- paths --------------------------------------------------------------- */

static PyObject *segment_path(const struct te_path *p)
{
	return Py_BuildValue(
		"{s:I,s:N,s:I,s:i,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:I}", "kind",
		(unsigned)p->kind, "connected",
		PyBool_FromLong(p->flags & TE_PATH_CONNECTED), "rank",
		(unsigned)p->rank, "numa_node", (int)p->numa_node, "transport",
		p->transport, "provider", p->provider, "rail", p->rail,
		"address", p->address, "remote_rail", p->remote_rail,
		"remote_address", p->remote_address, "why_not_local",
		p->why_not_local, "connections", (unsigned)p->connections);
}

/* paths(segment, location or None) -> list of dict, or a negative code */
PyObject *handle_paths(struct handle *self, PyObject *args)
{
	struct te_path *all = NULL;
	size_t room = 0, count, i;
	const char *location;
	PyObject *list, *item;
	int id, ret;

	if (!PyArg_ParseTuple(args, "iz", &id, &location))
		return NULL;
	for (;;) {
		count = room;
		ret = te_segment_paths(self->engine, id, location, all,
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
		item = segment_path(&all[i]);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	free(all);
	return list;
}

/* --- waiting for the end of earlier requests ------------------------------ */

/* flush(segment, timeout_us) -> 0 or a positive code */
PyObject *handle_flush(struct handle *self, PyObject *args)
{
	long long us;
	int id, ret;

	if (!PyArg_ParseTuple(args, "iL", &id, &us))
		return NULL;
	WITHOUT_GIL(ret = te_flush(self->engine, id, us));
	return PyLong_FromLong(ret);
}

/* drain(timeout_us) -> 0 or a positive code */
PyObject *handle_drain(struct handle *self, PyObject *args)
{
	long long us;
	int ret;

	if (!PyArg_ParseTuple(args, "L", &us))
		return NULL;
	WITHOUT_GIL(ret = te_drain(self->engine, us));
	return PyLong_FromLong(ret);
}

/* --- events -------------------------------------------------------------- */

/* event_fd() -> file descriptor, or a negative code */
PyObject *handle_event_fd(struct handle *self, PyObject *none)
{
	(void)none;
	return PyLong_FromLong(te_event_fd(self->engine));
}

/* ended() -> list of (batch, status, bytes, cookie, tasks), or a negative
 * code */
PyObject *handle_ended(struct handle *self, PyObject *none)
{
	struct te_ended all[ENDED_FETCH];
	PyObject *list = PyList_New(0), *item;
	size_t count = ENDED_FETCH, i;
	int ret;

	(void)none;
	while (list && count == ENDED_FETCH) {
		ret = te_ended_batches(self->engine, all, sizeof(*all), &count);
		if (ret) {
			Py_DECREF(list);
			return PyLong_FromLong(ret);
		}
		for (i = 0; list && i < count; i++) {
			item = Py_BuildValue(
				"(KiKKK)", (unsigned long long)all[i].batch_id,
				(int)all[i].status,
				(unsigned long long)all[i].transferred_bytes,
				(unsigned long long)all[i].cookie,
				(unsigned long long)all[i].tasks);
			if (!item || PyList_Append(list, item))
				Py_CLEAR(list);
			Py_XDECREF(item);
		}
	}
	return list;
}
