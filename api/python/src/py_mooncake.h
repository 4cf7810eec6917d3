/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef MOONRAIL_PYTHON_PY_MOONCAKE_H
#define MOONRAIL_PYTHON_PY_MOONCAKE_H

/*
 * The class moonrail._moonrail.MooncakeEngine, which mooncake.engine.TransferEngine
 * extends: the methods, return codes and time limits of Mooncake's Python module
 * on top of moonrail's C API.
 *
 * An object opens each segment at its first use and keeps it open. All members of
 * the object are read and written with the GIL held. Calls of the C API that may
 * wait are made without it, so that several threads can use one object. The
 * engine is destroyed with the object, and a method holds a reference to its
 * object.
 */

#include "py_moonrail.h"

struct mooncake {
	PyObject_HEAD
	transfer_engine_t engine;	/* NULL before initialize() */
	PyObject *segments;		/* dict: name -> address of struct
					 * mooncake_segment */
	PyObject *batches;		/* dict: id -> address of struct
					 * mooncake_batch */
	PyObject *managed;	/* dict: address -> size, for each managed
				 * buffer in use */
	PyObject *unused;	/* dict: size -> list of the addresses of unused
				 * managed buffers */
	int64_t timeout_us;	/* time limit of a transfer, without the part
				 * that depends on its number of bytes */
	uint32_t tries;		/* greatest number of attempts of a synchronous
				 * transfer */
	bool reports_timeout;	/* MC_SLICE_TIMEOUT is set, so an unfenced
				 * transfer is reported as a timeout */
};

/* Cancels the batches that the program has not freed, waits for their end and
 * frees them. */
void mooncake_drop_batches(struct mooncake *self);

/* Closes all open segments. mooncake_drop_batches() must have been called
 * before. */
void mooncake_close_segments(struct mooncake *self);

/* Declares a method. All methods accept positional arguments and keywords. */
#define MOONCAKE_METHOD(name)                                                \
	PyObject *mooncake_##name(struct mooncake *self, PyObject *args,     \
				  PyObject *kw)
MOONCAKE_METHOD(transfer_sync_write);
MOONCAKE_METHOD(transfer_sync_read);
MOONCAKE_METHOD(transfer_submit_write);
MOONCAKE_METHOD(transfer_sync);
MOONCAKE_METHOD(transfer_check_status);
MOONCAKE_METHOD(batch_transfer_sync_write);
MOONCAKE_METHOD(batch_transfer_sync_read);
MOONCAKE_METHOD(batch_transfer_async_write);
MOONCAKE_METHOD(batch_transfer_async_read);
MOONCAKE_METHOD(batch_transfer_sync);
MOONCAKE_METHOD(batch_transfer_async);
MOONCAKE_METHOD(get_batch_transfer_status);
MOONCAKE_METHOD(allocate_managed_buffer);
MOONCAKE_METHOD(free_managed_buffer);
MOONCAKE_METHOD(write_bytes_to_buffer);
MOONCAKE_METHOD(read_bytes_from_buffer);
MOONCAKE_METHOD(register_memory);
MOONCAKE_METHOD(unregister_memory);
MOONCAKE_METHOD(batch_register_memory);
MOONCAKE_METHOD(batch_unregister_memory);

#endif /* MOONRAIL_PYTHON_PY_MOONCAKE_H */
