/* SPDX-License-Identifier: BSD-2-Clause */
/* Registered and managed memory of the class MooncakeEngine. */
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "py_mooncake.h"

/* --- registration -------------------------------------------------------- */

PyObject *mooncake_register_memory(struct mooncake *self, PyObject *args,
				   PyObject *kw)
{
	static char *names[] = { "buffer_addr", "capacity", "location", NULL };
	const char *location = "*";
	uint64_t addr, size;
	int ret = -1;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&O&|s", names, py_u64,
					 &addr, py_u64, &size, &location))
		return NULL;
	if (self->engine) {
		Py_BEGIN_ALLOW_THREADS
		ret = registerLocalMemory(self->engine,
					  (void *)(uintptr_t)addr, size,
					  location, 1);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(ret);
}

PyObject *mooncake_unregister_memory(struct mooncake *self, PyObject *args,
				     PyObject *kw)
{
	static char *names[] = { "", NULL };
	uint64_t addr;
	int ret = -1;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&", names, py_u64, &addr))
		return NULL;
	if (self->engine) {
		Py_BEGIN_ALLOW_THREADS
		ret = unregisterLocalMemory(self->engine,
					    (void *)(uintptr_t)addr);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(ret);
}

/* Registers the ranges [addr, addr + size), without the GIL. Returns 0 or a
 * negative code. */
static int memory_register(transfer_engine_t engine, const struct py_u64s *addr,
			   const struct py_u64s *size, const char *location)
{
	size_t n = (size_t)addr->count, i;
	buffer_entry_t *list;
	int ret;

	if (!n)
		return 0;
	list = calloc(n, sizeof(*list));
	if (!list)
		return -302;
	for (i = 0; i < n; i++) {
		list[i].addr = (void *)(uintptr_t)addr->value[i];
		list[i].length = size->value[i];
	}
	ret = registerLocalMemoryBatch(engine, list, n, location);
	free(list);
	return ret;
}

PyObject *mooncake_batch_register_memory(struct mooncake *self, PyObject *args,
					 PyObject *kw)
{
	static char *names[] = { "buffer_addresses", "capacities", "location",
				 NULL };
	struct py_u64s addr = { 0 }, size = { 0 };
	const char *location = "*";
	PyObject *result = NULL;
	int ret = -1;

	if (PyArg_ParseTupleAndKeywords(args, kw, "O&O&|s", names, py_u64s,
					&addr, py_u64s, &size, &location)) {
		if (self->engine && addr.count == size.count) {
			Py_BEGIN_ALLOW_THREADS
			ret = memory_register(self->engine, &addr, &size,
					      location);
			Py_END_ALLOW_THREADS
		}
		result = PyLong_FromLong(ret);
	}
	py_u64s_free(&addr);
	py_u64s_free(&size);
	return result;
}

PyObject *mooncake_batch_unregister_memory(struct mooncake *self,
					   PyObject *args, PyObject *kw)
{
	static char *names[] = { "", NULL };
	struct py_u64s addr = { 0 };
	PyObject *result = NULL;
	int ret = -1;

	if (PyArg_ParseTupleAndKeywords(args, kw, "O&", names, py_u64s, &addr)) {
		if (self->engine) {
			_Static_assert(sizeof(void *) == sizeof(uint64_t),
				       "addresses have 64 bits");
			Py_BEGIN_ALLOW_THREADS
			ret = unregisterLocalMemoryBatch(
				self->engine, (void **)addr.value,
				(size_t)addr.count);
			Py_END_ALLOW_THREADS
		}
		result = PyLong_FromLong(ret);
	}
	py_u64s_free(&addr);
	return result;
}

/* --- bytes at an address -------------------------------------------------- */

/* Copies bytes within this process, without the GIL. Returns false if a byte
 * cannot be read or written, where memcpy would end the process. */
static bool memory_copy(void *to, const void *from, size_t size)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		struct iovec a = { (char *)to + done, size - done };
		struct iovec b = { (char *)(uintptr_t)from + done,
				   size - done };

		n = process_vm_readv(getpid(), &a, 1, &b, 1, 0);
		if (n <= 0)
			return false;
		done += (size_t)n;
	}
	return true;
}

PyObject *mooncake_write_bytes_to_buffer(struct mooncake *self, PyObject *args,
					 PyObject *kw)
{
	static char *names[] = { "", "", "", NULL };
	uint64_t addr, length;
	PyObject *data;
	const char *text = NULL;
	Py_ssize_t size;
	Py_buffer view;
	bool ok = false;

	(void)self;
	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&OO&", names, py_u64,
					 &addr, &data, py_u64, &length))
		return NULL;
	if (PyUnicode_Check(data)) {
		text = PyUnicode_AsUTF8AndSize(data, &size);
		if (!text)
			return NULL;
	} else if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) {
		return NULL;
	} else {
		size = view.len;
	}
	if (length <= (uint64_t)size) {
		Py_BEGIN_ALLOW_THREADS
		ok = memory_copy((void *)(uintptr_t)addr,
				 text ? text : view.buf, length);
		Py_END_ALLOW_THREADS
	}
	if (!text)
		PyBuffer_Release(&view);
	if (length > (uint64_t)size)
		return PyErr_Format(PyExc_ValueError,
				    "length: %llu (data has %zd bytes)",
				    (unsigned long long)length, size);
	if (!ok)
		return PyErr_Format(PyExc_ValueError,
				    "address: %llu bytes at %p are not writable",
				    (unsigned long long)length,
				    (void *)(uintptr_t)addr);
	return PyLong_FromLong(0);
}

PyObject *mooncake_read_bytes_from_buffer(struct mooncake *self, PyObject *args,
					  PyObject *kw)
{
	static char *names[] = { "", "", NULL };
	uint64_t addr, length;
	PyObject *result;
	char *to;
	bool ok;

	(void)self;
	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&O&", names, py_u64,
					 &addr, py_u64, &length))
		return NULL;
	if (length > PY_SSIZE_T_MAX)
		return PyErr_NoMemory();
	result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)length);
	if (!result)
		return NULL;
	to = PyBytes_AsString(result);
	Py_BEGIN_ALLOW_THREADS
	ok = memory_copy(to, (const void *)(uintptr_t)addr, length);
	Py_END_ALLOW_THREADS
	if (ok)
		return result;
	Py_DECREF(result);
	return PyErr_Format(PyExc_ValueError,
			    "address: %llu bytes at %p are not readable",
			    (unsigned long long)length,
			    (void *)(uintptr_t)addr);
}

/* --- managed buffers ----------------------------------------------------- */

#define MANAGED_MIN	(UINT64_C(8) << 10)
/* buffers that are longer than this, in bytes, are freed after use */
#define MANAGED_MAX (UINT64_C(256) << 20)
/* number of bytes that one allocation provides for several buffers */
#define MANAGED_SLAB (UINT64_C(64) << 20)

/* Returns the size of the managed buffer for that length: 8 KiB times a power
 * of two, or the length itself if it is greater than MANAGED_MAX. */
static uint64_t managed_class(uint64_t length)
{
	uint64_t size = MANAGED_MIN;

	while (size < length && size < MANAGED_MAX)
		size <<= 1;
	return size < length ? length : size;
}

/* Allocates memory and registers it, without the GIL. Returns its address, or 0
 * after an error. */
static uint64_t managed_alloc(transfer_engine_t engine, uint64_t size)
{
	struct te_memory memory;

	if (te_alloc(engine, size, "*", 0, &memory, sizeof(memory)) &&
	    te_alloc(engine, size, "cpu:0", 0, &memory, sizeof(memory)))
		return 0;
	return memory.addr;
}

/* Returns the list of unused buffers of that size, as a borrowed reference.
 * Returns NULL with an exception after an error. */
static PyObject *managed_list(struct mooncake *self, PyObject *size)
{
	PyObject *list = PyDict_GetItem(self->unused, size);

	if (list)
		return list;
	list = PyList_New(0);
	if (!list)
		return NULL;
	if (PyDict_SetItem(self->unused, size, list)) {
		Py_DECREF(list);
		return NULL;
	}
	Py_DECREF(list);
	return PyDict_GetItem(self->unused, size);
}

/* Adds the addresses of "count" adjacent buffers of that size to the list. The
 * first buffer begins at addr. */
static int managed_add(PyObject *list, uint64_t addr, uint64_t size,
		       uint64_t count)
{
	PyObject *at;
	int ret = 0;

	for (; count && !ret; count--) {
		at = PyLong_FromUnsignedLongLong(addr + (count - 1) * size);
		ret = at ? PyList_Append(list, at) : -1;
		Py_XDECREF(at);
	}
	return ret;
}

/* Takes a buffer from the list of unused buffers, which must not be empty, and
 * records it as in use. */
static PyObject *managed_take(struct mooncake *self, PyObject *list,
			      PyObject *size)
{
	Py_ssize_t n = PyList_Size(list);
	PyObject *at = PyList_GetItem(list, n - 1);

	Py_INCREF(at);
	if (PyDict_SetItem(self->managed, at, size) ||
	    PyList_SetSlice(list, n - 1, n, NULL)) {
		Py_DECREF(at);
		return NULL;
	}
	return at;
}

/* Takes a managed buffer of that size. Returns its address as a Python integer,
 * which is 0 if there is no memory. */
static PyObject *managed_get(struct mooncake *self, uint64_t size)
{
	uint64_t slab = size > MANAGED_SLAB ? size : MANAGED_SLAB, addr;
	PyObject *key = PyLong_FromUnsignedLongLong(size), *list;
	PyObject *result = NULL;

	list = key ? managed_list(self, key) : NULL;
	if (!list)
		goto out;
	if (!PyList_Size(list)) {
		Py_BEGIN_ALLOW_THREADS
		addr = managed_alloc(self->engine, slab);
		Py_END_ALLOW_THREADS
		if (!addr) {
			result = PyLong_FromLong(0);
			goto out;
		}
		if (managed_add(list, addr, size, slab / size))
			goto out;
	}
	result = managed_take(self, list, key);
out:
	Py_XDECREF(key);
	return result;
}

PyObject *mooncake_allocate_managed_buffer(struct mooncake *self,
					   PyObject *args, PyObject *kw)
{
	static char *names[] = { "", NULL };
	uint64_t length;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&", names, py_u64,
					 &length))
		return NULL;
	if (!self->engine || !length)
		return PyLong_FromLong(0);
	return managed_get(self, managed_class(length));
}

PyObject *mooncake_free_managed_buffer(struct mooncake *self, PyObject *args,
				       PyObject *kw)
{
	static char *names[] = { "", "", NULL };
	PyObject *key, *size, *list;
	uint64_t addr, length, bytes;
	int ret = -1;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&O&", names, py_u64,
					 &addr, py_u64, &length))
		return NULL;
	key = PyLong_FromUnsignedLongLong(addr);
	size = key ? PyDict_GetItem(self->managed, key) : NULL;
	if (!size)
		goto out;
	bytes = PyLong_AsUnsignedLongLong(size);
	if (bytes > MANAGED_MAX) {
		Py_BEGIN_ALLOW_THREADS
		ret = te_free(self->engine, (void *)(uintptr_t)addr);
		Py_END_ALLOW_THREADS
		if (!ret && PyDict_DelItem(self->managed, key))
			PyErr_Clear();
		goto out;
	}
	list = managed_list(self, size);
	ret = list && !PyList_Append(list, key) &&
			      !PyDict_DelItem(self->managed, key) ?
		      0 :
		      -1;
out:
	Py_XDECREF(key);
	return PyErr_Occurred() ? NULL : PyLong_FromLong(ret);
}
