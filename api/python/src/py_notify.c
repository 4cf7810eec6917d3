/* SPDX-License-Identifier: BSD-2-Clause */
/* Methods of Handle: notifications of strings and of bytes. */
#include "py_handle.h"

/* Number of notifications that one call of te_notify_fetch() returns at
 * most. */
#define NOTIFY_FETCH 64

/* notify(segment, name, text) -> 0 or a negative code */
PyObject *handle_notify(struct handle *self, PyObject *args)
{
	notify_msg_t note;
	int segment, ret;

	if (!PyArg_ParseTuple(args, "iss", &segment, &note.name, &note.msg))
		return NULL;
	WITHOUT_GIL(ret = genNotifyInEngine(self->engine, (uint64_t)segment,
					    note));
	return PyLong_FromLong(ret);
}

PyObject *py_take_notifications(transfer_engine_t engine)
{
	PyObject *list = PyList_New(0), *item;
	notify_msg_t *msgs;
	int i, n = 0;

	if (!list)
		return NULL;
	msgs = getNotifsFromEngine(engine, &n);
	for (i = 0; list && i < n; i++) {
		item = Py_BuildValue("(ss)", msgs[i].name, msgs[i].msg);
		if (!item || PyList_Append(list, item))
			Py_CLEAR(list);
		Py_XDECREF(item);
	}
	if (msgs)
		freeNotifsMsgBuf(msgs, n);
	return list;
}

PyObject *handle_notifications(struct handle *self, PyObject *none)
{
	(void)none;
	return py_take_notifications(self->engine);
}

/* notify_binary(segment, name, data) -> 0 or a negative code. data is an object
 * with the buffer protocol. */
PyObject *handle_notify_binary(struct handle *self, PyObject *args)
{
	PyObject *data;
	Py_buffer view;
	const char *name;
	int segment, ret;

	if (!PyArg_ParseTuple(args, "isO", &segment, &name, &data) ||
	    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE))
		return NULL;
	WITHOUT_GIL(ret = te_notify(self->engine, segment, name, view.buf,
				    (uint64_t)view.len));
	PyBuffer_Release(&view);
	return PyLong_FromLong(ret);
}

/* Appends the notifications to the list as tuples (name, bytes). Returns -1
 * after an error. */
static int notify_append(PyObject *list, const struct te_notification *notes,
			 size_t count)
{
	PyObject *item;
	size_t i;
	int ret;

	for (i = 0; i < count; i++) {
		item = Py_BuildValue("(sy#)", notes[i].name,
				     (const char *)notes[i].data,
				     (Py_ssize_t)notes[i].length);
		ret = item ? PyList_Append(list, item) : -1;
		Py_XDECREF(item);
		if (ret)
			return -1;
	}
	return 0;
}

/* fetch_binary() -> list of (name, bytes), or a negative code */
PyObject *handle_fetch_binary(struct handle *self, PyObject *none)
{
	struct te_notification notes[NOTIFY_FETCH];
	PyObject *list = PyList_New(0);
	size_t count = NOTIFY_FETCH;
	int ret, bad;

	(void)none;
	while (list && count == NOTIFY_FETCH) {
		ret = te_notify_fetch(self->engine, notes, sizeof(*notes),
				      &count);
		if (ret) {
			Py_DECREF(list);
			return PyLong_FromLong(ret);
		}
		bad = notify_append(list, notes, count);
		te_notify_release(notes, sizeof(*notes), count);
		if (bad)
			Py_CLEAR(list);
	}
	return list;
}
