/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_PYTHON_PY_HANDLE_H
#define MOONRAIL_PYTHON_PY_HANDLE_H

/*
 * Declarations for the source files of the class moonrail._moonrail.Handle:
 * py_engine.c defines the class, and the other files define some of its
 * methods.
 */

#include "py_moonrail.h"

struct handle {
	PyObject_HEAD
	/* handle of the C engine; NULL before create() and after close() */
	transfer_engine_t engine;
};

/* Runs a call of the C API without the GIL. */
#define WITHOUT_GIL(call)                                                   \
	do {                                                                \
		Py_BEGIN_ALLOW_THREADS                                      \
		call;                                                       \
		Py_END_ALLOW_THREADS                                        \
	} while (0)

/* Returns an error record as a tuple of the same form as the result of
 * last_error() (py_moonrail.h). */
PyObject *py_error_tuple(const struct te_error *e);

/* Declares a method of the class. The comment above its definition states its
 * arguments and its result as they are in Python. */
#define HANDLE_METHOD(name)                                                  \
	PyObject *handle_##name(struct handle *self, PyObject *args)
HANDLE_METHOD(alloc_batch);
HANDLE_METHOD(batch_fd);
HANDLE_METHOD(cancel);
HANDLE_METHOD(drain);
HANDLE_METHOD(ended);
HANDLE_METHOD(event_fd);
HANDLE_METHOD(export);
HANDLE_METHOD(fetch_binary);
HANDLE_METHOD(flush);
HANDLE_METHOD(free_batch);
HANDLE_METHOD(import_segment);
HANDLE_METHOD(limit_batch);
HANDLE_METHOD(notifications);
HANDLE_METHOD(notify);
HANDLE_METHOD(notify_binary);
HANDLE_METHOD(paths);
HANDLE_METHOD(prepare);
HANDLE_METHOD(release_prepared);
HANDLE_METHOD(reset_batch);
HANDLE_METHOD(submit);
HANDLE_METHOD(submit_prepared);
HANDLE_METHOD(sync);
HANDLE_METHOD(task_error);
HANDLE_METHOD(tasks);
HANDLE_METHOD(transfer);
HANDLE_METHOD(wait);
HANDLE_METHOD(wait_any);
HANDLE_METHOD(warm_up);

#endif /* MOONRAIL_PYTHON_PY_HANDLE_H */
