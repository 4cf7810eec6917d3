/* SPDX-License-Identifier: BSD-2-Clause */
/* Methods of Handle: prepared lists. */
#include <stdlib.h>

#include "py_handle.h"

/*
 * prepare(segment, opcode, pieces) -> list, or a negative code. pieces is a list of
 * tuples (local address, remote address, length).
 */
PyObject *handle_prepare(struct handle *self, PyObject *args)
{
	unsigned long long local, remote, length;
	struct te_piece *pieces;
	te_prepared_t made = 0;
	int segment, opcode, ret;
	Py_ssize_t n, i;
	PyObject *list;

	if (!PyArg_ParseTuple(args, "iiO", &segment, &opcode, &list))
		return NULL;
	n = PyList_Size(list);
	if (n < 0)
		return NULL;
	pieces = calloc((size_t)n + 1, sizeof(*pieces));
	if (!pieces)
		return PyErr_NoMemory();
	for (i = 0; i < n; i++) {
		if (!PyArg_ParseTuple(PyList_GetItem(list, i), "KKK", &local,
				      &remote, &length)) {
			free(pieces);
			return NULL;
		}
		pieces[i].local = (void *)(uintptr_t)local;
		pieces[i].remote = remote;
		pieces[i].length = length;
	}
	WITHOUT_GIL(ret = te_prepare(self->engine, segment, (uint32_t)opcode,
				     pieces, (size_t)n, 0, &made));
	free(pieces);
	if (ret)
		return PyLong_FromLong(-ret);
	return PyLong_FromUnsignedLongLong(made);
}

/* The argument "indices" as an array for the C API. */
struct indices {
	const uint32_t *value; /* indices; NULL: all pieces */
	Py_ssize_t count;
	Py_buffer view;		/* buffer that contains the indices, if the
				 * argument has the right type; otherwise
				 * unused */
	uint32_t *copy;		/* copy of the indices, if `view` is not used;
				 * otherwise NULL */
};

static void indices_free(struct indices *in)
{
	if (in->view.obj)
		PyBuffer_Release(&in->view);
	free(in->copy);
}

/* Copies the indices from a sequence of integers. Returns -1 with an exception
 * after an error. */
static int indices_copy(struct indices *in, PyObject *object)
{
	struct py_u64s list = { 0 };
	Py_ssize_t i;
	int ret = -1;

	if (!py_u64s(object, &list))
		return -1;
	in->copy = calloc((size_t)list.count + 1, sizeof(*in->copy));
	if (!in->copy) {
		PyErr_NoMemory();
		goto out;
	}
	for (i = 0; i < list.count; i++) {
		if (list.value[i] > UINT32_MAX) {
			PyErr_Format(PyExc_IndexError,
				     "indices[%zd]: %llu is above 2**32 - 1", i,
				     (unsigned long long)list.value[i]);
			goto out;
		}
		in->copy[i] = (uint32_t)list.value[i];
	}
	in->value = in->copy;
	in->count = list.count;
	ret = 0;
out:
	py_u64s_free(&list);
	return ret;
}

/* Uses the object's buffer without a copy, and returns true, if the object is
 * an array of unsigned 32-bit integers, such as array.array("I") or an array of
 * numpy.uint32. Otherwise returns false. */
static bool indices_view(struct indices *in, PyObject *object)
{
	const char *format;

	if (!PyObject_CheckBuffer(object) || PyBytes_Check(object))
		return false;
	if (PyObject_GetBuffer(object, &in->view, PyBUF_CONTIG_RO | PyBUF_FORMAT)) {
		PyErr_Clear();
		return false;
	}
	format = in->view.format ? in->view.format : "B";
	if ((*format == 'I' || *format == 'L') && !format[1] &&
	    in->view.itemsize == (Py_ssize_t)sizeof(*in->value)) {
		in->value = in->view.buf;
		in->count = in->view.len / in->view.itemsize;
		return true;
	}
	PyBuffer_Release(&in->view);
	return false;
}

/*
 * submit_prepared(batch, list, indices or None, cookie) -> (code, checked):
 * code is 0 or negative; checked is *checked of te_submit_prepared, bits
 * TE_PREPARED_….
 */
PyObject *handle_submit_prepared(struct handle *self, PyObject *args)
{
	struct indices in = { 0 };
	uint64_t batch, list, cookie;
	uint32_t checked = 0;
	PyObject *object, *result = NULL;
	int ret;

	if (!PyArg_ParseTuple(args, "O&O&OO&", py_u64, &batch, py_u64, &list,
			      &object, py_u64, &cookie))
		return NULL;
	if (object != Py_None) {
		if (!indices_view(&in, object) && indices_copy(&in, object))
			goto out;
		if (!in.count) {
			PyErr_SetString(PyExc_ValueError, "indices: empty");
			goto out;
		}
	}
	WITHOUT_GIL(ret = te_submit_prepared(self->engine, batch, list,
					     in.value, (size_t)in.count, cookie,
					     0, &checked));
	result = Py_BuildValue("(iI)", -ret, (unsigned)checked);
out:
	indices_free(&in);
	return result;
}

PyObject *handle_release_prepared(struct handle *self, PyObject *args)
{
	uint64_t list;
	int ret;

	if (!PyArg_ParseTuple(args, "O&", py_u64, &list))
		return NULL;
	WITHOUT_GIL(ret = te_prepared_release(self->engine, list));
	return PyLong_FromLong(-ret);
}
