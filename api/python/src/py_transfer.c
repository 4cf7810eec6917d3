/* SPDX-License-Identifier: BSD-2-Clause */
/* Methods of Handle: batches, requests, waiting, and blocking transfers. */
#include <stdio.h>
#include <stdlib.h>

#include "py_handle.h"

/* --- batches ------------------------------------------------------------- */

/* alloc_batch(size) -> batch, or a negative code */
PyObject *handle_alloc_batch(struct handle *self, PyObject *args)
{
	uint64_t size;
	batch_id_t id;

	if (!PyArg_ParseTuple(args, "O&", py_u64, &size))
		return NULL;
	WITHOUT_GIL(id = allocateBatchID(self->engine, size));
	if (id == INVALID_BATCH)
		return PyLong_FromLong(-1);
	return PyLong_FromUnsignedLongLong(id);
}

typedef int (*batch_fn)(transfer_engine_t engine, batch_id_t batch);

/* Calls a function of the C API whose only argument, after the engine, is a
 * batch. Returns its code. */
static PyObject *batch_call(struct handle *self, PyObject *args, batch_fn call)
{
	uint64_t batch;
	int ret;

	if (!PyArg_ParseTuple(args, "O&", py_u64, &batch))
		return NULL;
	WITHOUT_GIL(ret = call(self->engine, batch));
	return PyLong_FromLong(ret);
}

/* reset_batch(batch) -> 0 or a positive code */
PyObject *handle_reset_batch(struct handle *self, PyObject *args)
{
	return batch_call(self, args, te_batch_reset);
}

/* free_batch(batch) -> 0 or a positive code */
PyObject *handle_free_batch(struct handle *self, PyObject *args)
{
	return batch_call(self, args, freeBatchID);
}

/* batch_fd(batch) -> file descriptor, or a negative code */
PyObject *handle_batch_fd(struct handle *self, PyObject *args)
{
	return batch_call(self, args, te_batch_event_fd);
}

/* cancel(batch) -> 0 or a positive code */
PyObject *handle_cancel(struct handle *self, PyObject *args)
{
	return batch_call(self, args, te_cancel_batch);
}

/* limit_batch(batch, timeout_us) -> 0 or a positive code */
PyObject *handle_limit_batch(struct handle *self, PyObject *args)
{
	uint64_t batch;
	long long us;
	int ret;

	if (!PyArg_ParseTuple(args, "O&L", py_u64, &batch, &us))
		return NULL;
	WITHOUT_GIL(ret = te_batch_timeout(self->engine, batch, us));
	return PyLong_FromLong(ret);
}

/* tasks(batch, count) -> the first "count" tasks of the batch, as the bytes of
 * an array of struct te_task. Returns fewer tasks if the batch has fewer, and
 * none if it does not exist. */
PyObject *handle_tasks(struct handle *self, PyObject *args)
{
	struct te_task *tasks;
	uint64_t batch, room;
	PyObject *bytes;
	size_t count;

	if (!PyArg_ParseTuple(args, "O&O&", py_u64, &batch, py_u64, &room))
		return NULL;
	tasks = calloc(room + 1, sizeof(*tasks));
	if (!tasks)
		return PyErr_NoMemory();
	count = room;
	if (te_batch_tasks(self->engine, batch, 0, tasks, sizeof(*tasks),
			   &count))
		count = 0;
	bytes = PyBytes_FromStringAndSize((const char *)tasks,
					  (Py_ssize_t)(count * sizeof(*tasks)));
	free(tasks);
	return bytes;
}

/* task_error(batch, task) -> error record as a tuple */
PyObject *handle_task_error(struct handle *self, PyObject *args)
{
	struct te_error e = { 0 };
	uint64_t batch, task;

	if (!PyArg_ParseTuple(args, "O&O&", py_u64, &batch, py_u64, &task))
		return NULL;
	te_task_error(self->engine, batch, task, &e, sizeof(e));
	return py_error_tuple(&e);
}

/* --- waiting ------------------------------------------------------------- */

/* wait(batch, timeout_us) -> (status, bytes); None if the time has passed; or a
 * positive code */
PyObject *handle_wait(struct handle *self, PyObject *args)
{
	struct transfer_status s = { 0 };
	uint64_t batch;
	long long us;
	int ret;

	if (!PyArg_ParseTuple(args, "O&L", py_u64, &batch, &us))
		return NULL;
	ret = py_wait(self->engine, batch, us, &s);
	if (ret < 0)
		return NULL;
	if (ret == TE_TIMED_OUT)
		Py_RETURN_NONE;
	if (ret)
		return PyLong_FromLong(ret);
	return Py_BuildValue("(iK)", s.status,
			     (unsigned long long)s.transferred_bytes);
}

/* wait_any(batches, timeout_us) -> index, None if the time has passed, or
 * a negative code */
PyObject *handle_wait_any(struct handle *self, PyObject *args)
{
	struct py_u64s list = { 0 };
	size_t index = 0;
	long long us;
	int ret;

	if (!PyArg_ParseTuple(args, "O&L", py_u64s, &list, &us)) {
		py_u64s_free(&list);
		return NULL;
	}
	ret = py_wait_any(self->engine, list.value, (size_t)list.count, us,
			  &index);
	py_u64s_free(&list);
	if (ret < 0)
		return NULL;
	if (ret == TE_TIMED_OUT)
		Py_RETURN_NONE;
	if (ret)
		return PyLong_FromLong(-ret);
	return PyLong_FromSize_t(index);
}

/* --- ranges -------------------------------------------------------------- */

/* Local or remote memory ranges, converted from a tuple of pairs (address,
 * bytes). */
struct ranges {
	struct te_remote *value;
	size_t count;
};

_Static_assert(sizeof(void *) == sizeof(uint64_t),
	       "struct te_local has the layout of struct te_remote");

static void ranges_free(struct ranges *r)
{
	free(r->value);
}

/* Appends the pairs (address, bytes) of a tuple to an array that is large
 * enough for them. Returns -1 after an error. */
static int ranges_add(struct ranges *r, PyObject *tuple)
{
	Py_ssize_t n = PyTuple_Size(tuple), i;
	unsigned long long addr, length;

	for (i = 0; i < n; i++, r->count++) {
		if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "KK", &addr,
				      &length))
			return -1;
		r->value[r->count].addr = addr;
		r->value[r->count].length = length;
	}
	return 0;
}

/* Allocates an array for n ranges. Returns -1 after an error. */
static int ranges_room(struct ranges *r, size_t n)
{
	r->value = calloc(n + 1, sizeof(*r->value));
	if (r->value)
		return 0;
	PyErr_NoMemory();
	return -1;
}

/* --- requests ------------------------------------------------------------ */

/* The requests of submit(). Both arrays contain all of them; which one is used
 * depends on whether the submission has a notification. */
struct requests {
	struct te_request *value;
	struct transfer_request *plain; /* used if there is a notification, for
					 * submitTransferWithNotify */
	Py_ssize_t count;
	struct ranges local, remote; /* ranges of all requests, to which `value`
				      * refers */
};

static void requests_free(struct requests *r)
{
	free(r->value);
	free(r->plain);
	ranges_free(&r->local);
	ranges_free(&r->remote);
}

/* Allocates the arrays for the requests in the list and for their ranges.
 * Returns -1 after an error. */
static int requests_room(struct requests *r, PyObject *list)
{
	size_t locals = 0, remotes = 0;
	PyObject *item;
	Py_ssize_t i;

	r->count = PyList_Size(list);
	if (r->count < 0)
		return -1;
	for (i = 0; i < r->count; i++) {
		item = PyList_GetItem(list, i);
		if (PyTuple_Size(item) != 8) {
			if (!PyErr_Occurred())
				PyErr_SetString(PyExc_TypeError,
						"a request has 8 members");
			return -1;
		}
		locals += (size_t)PyTuple_Size(PyTuple_GetItem(item, 2));
		remotes += (size_t)PyTuple_Size(PyTuple_GetItem(item, 3));
	}
	if (PyErr_Occurred() || ranges_room(&r->local, locals) ||
	    ranges_room(&r->remote, remotes))
		return -1;
	r->value = calloc((size_t)r->count + 1, sizeof(*r->value));
	r->plain = calloc((size_t)r->count + 1, sizeof(*r->plain));
	if (r->value && r->plain)
		return 0;
	PyErr_NoMemory();
	return -1;
}

/* Fills in element i of both arrays from a tuple of submit(). Returns -1 after
 * an error. */
static int requests_fill(struct requests *r, Py_ssize_t i, PyObject *item)
{
	size_t local = r->local.count, remote = r->remote.count;
	struct te_request *req = &r->value[i];
	struct transfer_request *plain = &r->plain[i];
	PyObject *locals, *remotes;
	unsigned int flags;
	int opcode;

	if (!PyArg_ParseTuple(item, "iiOOO&IO&O&", &opcode, &req->target_id,
			      &locals, &remotes, py_u64, &req->cookie, &flags,
			      py_u64, &req->operand, py_u64, &req->compare) ||
	    ranges_add(&r->local, locals) || ranges_add(&r->remote, remotes))
		return -1;
	req->opcode = (uint32_t)opcode;
	req->flags = flags;
	req->local = (const struct te_local *)(r->local.value + local);
	req->local_count = (uint32_t)(r->local.count - local);
	req->remote = r->remote.value + remote;
	req->remote_count = (uint32_t)(r->remote.count - remote);
	plain->opcode = opcode;
	plain->source = req->local->addr;
	plain->target_id = req->target_id;
	plain->target_offset = req->remote->addr;
	plain->length = req->local->length;
	return 0;
}

/*
 * submit(batch, requests, name, text) -> 0 or a negative code. requests is a
 * list of tuples (opcode, segment, local, remote, cookie, flags, operand,
 * compare), in which local and remote are tuples of (address, bytes). If name
 * is None, there is no notification; otherwise each request has one local and
 * one remote range.
 */
PyObject *handle_submit(struct handle *self, PyObject *args)
{
	struct requests r = { 0 };
	PyObject *list, *result = NULL;
	notify_msg_t note;
	uint64_t batch;
	Py_ssize_t i;
	int ret;

	if (!PyArg_ParseTuple(args, "O&Ozz", py_u64, &batch, &list, &note.name,
			      &note.msg))
		return NULL;
	if (requests_room(&r, list))
		goto out;
	for (i = 0; i < r.count; i++)
		if (requests_fill(&r, i, PyList_GetItem(list, i)))
			goto out;
	Py_BEGIN_ALLOW_THREADS
	ret = note.name ? submitTransferWithNotify(self->engine, batch, r.plain,
						   (size_t)r.count, note) :
			  te_submit(self->engine, batch, r.value,
				    sizeof(*r.value), (size_t)r.count, 0);
	Py_END_ALLOW_THREADS
	result = PyLong_FromLong(-ret);
out:
	requests_free(&r);
	return result;
}

/* --- blocking transfers -------------------------------------------------- */

/*
 * One call of transfer(), which does what te_readv(3) and te_writev(3) do. It
 * does not call these functions, because they do not return when a signal
 * arrives, and their result does not show whether the request was refused or
 * the transfer has failed.
 */
struct blocking {
	struct ranges local, remote;
	struct transfer_request *part; /* requests, each for a part that is
					* contiguous on both sides */
	size_t parts;
	batch_id_t batch;
	struct transfer_status status;
	struct te_error error; /* error record; valid if the status is not
				* COMPLETED */
};

/* Divides the ranges into parts that are contiguous on both sides, and fills in
 * one request for each part. Returns -1 after an error. */
static int blocking_divide(struct blocking *b, int opcode, int segment)
{
	struct te_remote *l = b->local.value, *r = b->remote.value;
	size_t locals = b->local.count, remotes = b->remote.count;
	uint64_t length;

	b->part = calloc(locals + remotes + 1, sizeof(*b->part));
	if (!b->part) {
		PyErr_NoMemory();
		return -1;
	}
	while (locals && remotes) {
		length = l->length < r->length ? l->length : r->length;
		if (!length)
			break;
		b->part[b->parts++] = (struct transfer_request){
			.opcode = opcode,
			.source = (void *)(uintptr_t)l->addr,
			.target_id = segment,
			.target_offset = r->addr,
			.length = length,
		};
		l->addr += length;
		r->addr += length;
		l->length -= length;
		r->length -= length;
		if (!l->length) {
			l++;
			locals--;
		}
		if (!r->length) {
			r++;
			remotes--;
		}
	}
	if (!locals && !remotes && b->parts)
		return 0;
	PyErr_SetString(PyExc_ValueError,
			locals && remotes ?
				"a range has length 0" :
				"the local and the remote ranges differ in "
				"total length, or are empty");
	return -1;
}

/* Copies the error record of the first task whose status is that of the
 * batch. */
static void blocking_record(struct blocking *b, transfer_engine_t engine)
{
	struct te_task task;
	size_t i, count;

	for (i = 0; i < b->parts; i++) {
		count = 1;
		if (te_batch_tasks(engine, b->batch, i, &task, sizeof(task),
				   &count) || !count ||
		    task.status == b->status.status)
			break;
	}
	te_task_error(engine, b->batch, i, &b->error, sizeof(b->error));
}

/* Submits the requests and waits for their end. Returns 0 or a positive code.
 * Returns -1 if a signal handler has raised an exception. */
static int blocking_run(struct blocking *b, transfer_engine_t engine,
			int64_t timeout_us)
{
	int ret;

	Py_BEGIN_ALLOW_THREADS
	b->batch = allocateBatchID(engine, b->parts);
	ret = b->batch == INVALID_BATCH ? 1 : 0;
	if (!ret && timeout_us >= 0)
		ret = te_batch_timeout(engine, b->batch, timeout_us);
	if (!ret)
		ret = submitTransfer(engine, b->batch, b->part, b->parts);
	Py_END_ALLOW_THREADS
	if (b->batch == INVALID_BATCH)
		return ret;
	if (ret)
		goto out;
	ret = py_wait(engine, b->batch, -1, &b->status);
	if (ret < 0) {
		Py_BEGIN_ALLOW_THREADS
		te_cancel_batch(engine, b->batch);
		te_wait_batch(engine, b->batch, -1, NULL);
		Py_END_ALLOW_THREADS
	}
	if (ret > 0) {
		b->status.status = STATUS_FAILED;
		b->error.code = -1;
		snprintf(b->error.text, sizeof(b->error.text),
			 "the engine was closed");
		return 0;
	}
	if (!ret && b->status.status != STATUS_COMPLETED)
		blocking_record(b, engine);
out:
	freeBatchID(engine, b->batch);
	return ret;
}

/*
 * transfer(opcode, segment, local, remote, timeout_us) -> (status, bytes, record), or
 * a negative code if the request was refused. local and remote are tuples of
 * (address, bytes). The record is that of last_error().
 */
PyObject *handle_transfer(struct handle *self, PyObject *args)
{
	struct blocking b = { 0 };
	PyObject *local, *remote, *result = NULL;
	int opcode, segment, ret;
	long long us;

	if (!PyArg_ParseTuple(args, "iiOOL", &opcode, &segment, &local, &remote,
			      &us))
		return NULL;
	if (PyTuple_Size(local) < 0 || PyTuple_Size(remote) < 0 ||
	    ranges_room(&b.local, (size_t)PyTuple_Size(local)) ||
	    ranges_room(&b.remote, (size_t)PyTuple_Size(remote)) ||
	    ranges_add(&b.local, local) || ranges_add(&b.remote, remote) ||
	    blocking_divide(&b, opcode, segment))
		goto out;
	ret = blocking_run(&b, self->engine, us);
	if (ret > 0)
		result = PyLong_FromLong(-ret);
	else if (!ret)
		result = Py_BuildValue(
			"(iKN)", b.status.status,
			(unsigned long long)b.status.transferred_bytes,
			py_error_tuple(&b.error));
out:
	free(b.part);
	ranges_free(&b.local);
	ranges_free(&b.remote);
	return result;
}
