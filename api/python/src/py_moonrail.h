/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_PYTHON_PY_MOONRAIL_H
#define MOONRAIL_PYTHON_PY_MOONRAIL_H

/*
 * Declarations for all source files of the extension module moonrail._moonrail.
 *
 * All functions are called with the GIL held, unless their comment says
 * otherwise. A function that returns NULL or a negative number has set a Python
 * exception, unless its comment says otherwise. The module uses the limited API
 * of CPython if setup.py defines Py_LIMITED_API.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

#include "moonrail.h"

/* Converters for the format "O&" of PyArg_ParseTupleAndKeywords. They accept
 * int and any object with __index__. They raise TypeError for values that the C
 * type cannot hold. */
int py_u64(PyObject *object, void *to);	 /* type of *to: uint64_t */
int py_size(PyObject *object, void *to); /* type of *to: uint64_t; also refuses
					  * 0 */

/* A sequence of Python integers, converted to a C array. */
struct py_u64s {
	uint64_t *value;
	Py_ssize_t count;
};

/* Converter for a list, a tuple or another sequence of integers. The caller
 * frees the array with py_u64s_free(), also if the conversion of another argument
 * failed. */
int py_u64s(PyObject *object, void *to); /* type of *to: struct
					  * py_u64s */
void py_u64s_free(struct py_u64s *list);

/*
 * Waits until all tasks of the batch are terminal or the time has passed,
 * without the GIL. A negative timeout_us means that there is no limit. Returns
 * 0 and fills *status, or returns TE_TIMED_OUT or a positive code of
 * te_wait_batch(). If a signal handler has raised a Python exception, returns
 * -1, and the batch continues.
 */
int py_wait(transfer_engine_t engine, batch_id_t batch, int64_t timeout_us,
	    struct transfer_status *status);

/* Waits as py_wait() does, until one of the batches has ended. Sets *index to
 * its index in batches[]. */
int py_wait_any(transfer_engine_t engine, const batch_id_t *batches,
		size_t count, int64_t timeout_us, size_t *index);

/* Returns the monotonic time in microseconds. */
int64_t py_now_us(void);

/* Returns a new reference to the class moonrail._moonrail.MooncakeEngine. */
PyObject *py_mooncake_type(void);

/* Returns a new reference to the class moonrail._moonrail.Handle. */
PyObject *py_handle_type(void);

/* Functions of the module, as they are called in Python: last_error() -> the
 * calling thread's last error as a tuple (code, flags, prov_errno, rail, peer,
 * provider, text, hint); buffer_address(object, writable) -> (address, bytes)
 * of an object with the buffer protocol. */
PyObject *py_last_error(PyObject *module, PyObject *none);
PyObject *py_buffer_address(PyObject *module, PyObject *args);

/* Removes all received notifications from the queue. Returns a list of tuples
 * (name, text). */
PyObject *py_take_notifications(transfer_engine_t engine);

#endif /* MOONRAIL_PYTHON_PY_MOONRAIL_H */
