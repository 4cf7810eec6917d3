/* SPDX-License-Identifier: BSD-2-Clause */
/* Converts Python arguments to C values. */
#include <stdlib.h>

#include "py_moonrail.h"

int py_u64(PyObject *object, void *to)
{
	PyObject *number = PyNumber_Index(object);
	unsigned long long value;

	if (!number)
		return 0;
	value = PyLong_AsUnsignedLongLong(number);
	if (PyErr_Occurred()) {
		PyErr_Format(PyExc_TypeError,
			     "%S: an integer from 0 to 2**64 - 1 is required",
			     number);
		Py_DECREF(number);
		return 0;
	}
	Py_DECREF(number);
	*(uint64_t *)to = value;
	return 1;
}

int py_size(PyObject *object, void *to)
{
	if (!py_u64(object, to))
		return 0;
	if (*(uint64_t *)to)
		return 1;
	PyErr_SetString(PyExc_ValueError, "length: 0 (must be at least 1)");
	return 0;
}

void py_u64s_free(struct py_u64s *list)
{
	PyMem_Free(list->value);
	list->value = NULL;
	list->count = 0;
}

int py_u64s(PyObject *object, void *to)
{
	struct py_u64s *list = to;
	PyObject *items;
	Py_ssize_t i;

	if (PyUnicode_Check(object) || PyBytes_Check(object)) {
		PyErr_SetString(PyExc_TypeError,
				"a list of integers is required");
		return 0;
	}
	items = PySequence_List(object);
	if (!items)
		return 0;
	list->count = PyList_Size(items);
	list->value = PyMem_Malloc((size_t)(list->count ? list->count : 1) *
				   sizeof(*list->value));
	if (!list->value) {
		PyErr_NoMemory();
		goto out_items;
	}
	for (i = 0; i < list->count; i++)
		if (!py_u64(PyList_GetItem(items, i), &list->value[i]))
			goto out_value;
	Py_DECREF(items);
	return 1;

out_value:
	py_u64s_free(list);
out_items:
	Py_DECREF(items);
	return 0;
}
