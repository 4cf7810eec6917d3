/* SPDX-License-Identifier: BSD-2-Clause */
/* The transfers of the class MooncakeEngine. */
#include <stdlib.h>
#include <string.h>

#include "py_mooncake.h"

/* An open segment. It is closed when it is no longer current and has no
 * users. */
struct mooncake_segment {
	segment_id_t id;
	uint32_t users; /* number of transfers and batches that use the
			 * segment */
	bool current;	/* mooncake.segments refers to this object, so the next
			 * transfer to this name uses it */
	char name[];
};

/* A transfer that was submitted without waiting, and that the program has not
 * freed yet. */
struct mooncake_batch {
	struct mooncake_segment *segment;
	int64_t until_us; /* end of the time limit of the transfer, as a value
			   * of py_now_us() */
};

/* A transfer, as described by the arguments of a method. */
struct mooncake_transfer {
	const char *target;
	const uint64_t *local, *remote, *length;
	size_t count;
	int opcode;
	const char *name, *msg; /* name and text of the notification; name is
				 * NULL if there is none */
};

/* --- segments ------------------------------------------------------------ */

/* Closes and frees the segment if it has no users and is not current. */
static void segment_release(struct mooncake *self, struct mooncake_segment *s)
{
	if (s->users || s->current)
		return;
	closeSegment(self->engine, s->id);
	free(s);
}

/* Makes the segment no longer current, so that the next transfer to its name
 * opens the segment again. */
static void segment_forget(struct mooncake *self, struct mooncake_segment *s)
{
	PyObject *type, *value, *trace;

	if (!s->current)
		return;
	s->current = false;
	PyErr_Fetch(&type, &value, &trace);
	if (PyDict_DelItemString(self->segments, s->name))
		PyErr_Clear();
	PyErr_Restore(type, value, trace);
}

/* Removes one user of the segment. If the transfer has failed, the next one to
 * that name opens the segment again, because another process may have replaced
 * the target. */
static void segment_put(struct mooncake *self, struct mooncake_segment *s,
			bool failed)
{
	if (failed)
		segment_forget(self, s);
	s->users--;
	segment_release(self, s);
}

static struct mooncake_segment *segment_find(struct mooncake *self,
					     const char *name)
{
	PyObject *at = PyDict_GetItemString(self->segments, name);
	struct mooncake_segment *s;

	if (!at)
		return NULL;
	s = PyLong_AsVoidPtr(at);
	s->users++;
	return s;
}

/* Returns the open segment of that name and adds one user. If the segment
 * cannot be opened, returns NULL without an exception; the library has logged
 * the reason. */
static struct mooncake_segment *segment_get(struct mooncake *self,
					    const char *name)
{
	struct mooncake_segment *s = segment_find(self, name), *other;
	segment_id_t id;
	PyObject *at;

	if (s)
		return s;
	Py_BEGIN_ALLOW_THREADS
	id = openSegment(self->engine, name);
	Py_END_ALLOW_THREADS
	if (id < 0)
		return NULL;
	other = segment_find(self, name);
	if (other) {
		closeSegment(self->engine, id);
		return other;
	}
	s = calloc(1, sizeof(*s) + strlen(name) + 1);
	at = s ? PyLong_FromVoidPtr(s) : NULL;
	if (!at || PyDict_SetItemString(self->segments, name, at)) {
		PyErr_Clear();
		Py_XDECREF(at);
		free(s);
		closeSegment(self->engine, id);
		return NULL;
	}
	Py_DECREF(at);
	strcpy(s->name, name);
	s->id = id;
	s->users = 1;
	s->current = true;
	return s;
}

void mooncake_close_segments(struct mooncake *self)
{
	PyObject *all = PyDict_Values(self->segments);
	struct mooncake_segment *s;
	Py_ssize_t i;

	for (i = 0; all && i < PyList_Size(all); i++) {
		s = PyLong_AsVoidPtr(PyList_GetItem(all, i));
		segment_forget(self, s);
		segment_release(self, s);
	}
	Py_XDECREF(all);
	PyErr_Clear();
}

/* --- batches ------------------------------------------------------------- */

/* Cancels the batch, waits for its end and frees it. */
static void batch_abort(struct mooncake *self, batch_id_t id)
{
	struct transfer_status status;

	Py_BEGIN_ALLOW_THREADS
	te_cancel_batch(self->engine, id);
	te_wait_batch(self->engine, id, -1, &status);
	freeBatchID(self->engine, id);
	Py_END_ALLOW_THREADS
}

/* Submits the transfer in a new batch. Returns the id of the batch, or
 * INVALID_BATCH without an exception after an error. */
static batch_id_t batch_submit(struct mooncake *self,
			       const struct mooncake_transfer *t,
			       segment_id_t segment)
{
	struct transfer_request *requests;
	notify_msg_t note;
	batch_id_t id;
	size_t i;
	int ret;

	requests = calloc(t->count ? t->count : 1, sizeof(*requests));
	if (!requests)
		return INVALID_BATCH;
	for (i = 0; i < t->count; i++) {
		requests[i].opcode = t->opcode;
		requests[i].source = (void *)(uintptr_t)t->local[i];
		requests[i].target_id = segment;
		requests[i].target_offset = t->remote[i];
		requests[i].length = t->length[i];
	}
	Py_BEGIN_ALLOW_THREADS
	id = allocateBatchID(self->engine, t->count);
	if (id != INVALID_BATCH) {
		if (t->name) {
			note.name = (char *)t->name;
			note.msg = (char *)t->msg;
			ret = submitTransferWithNotify(self->engine, id,
						       requests, t->count,
						       note);
		} else {
			ret = submitTransfer(self->engine, id, requests,
					     t->count);
		}
		if (ret) {
			freeBatchID(self->engine, id);
			id = INVALID_BATCH;
		}
	}
	Py_END_ALLOW_THREADS
	free(requests);
	return id;
}

/* Returns the time limit of a transfer in microseconds: self->timeout_us plus 1
 * ns for each byte. */
static int64_t transfer_limit_us(const struct mooncake *self,
				 const struct mooncake_transfer *t)
{
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < t->count; i++)
		bytes += t->length[i] / 1000;
	return self->timeout_us + (int64_t)(bytes & INT64_MAX >> 1);
}

/*
 * Submits the transfer and waits until it has ended. If the transfer fails,
 * submits it again as a whole. Returns 0 if all bytes were moved. Returns -1
 * without an exception if the transfer has failed or its time limit has passed;
 * in both cases no byte moves any longer. Returns -2 if a signal handler has
 * raised an exception.
 */
static int transfer_sync(struct mooncake *self,
			 const struct mooncake_transfer *t)
{
	int64_t until = py_now_us() + transfer_limit_us(self, t), left;
	struct transfer_status status;
	struct mooncake_segment *s;
	uint32_t tries;
	batch_id_t id;
	int ret;

	for (tries = 0; tries < self->tries; tries++) {
		left = until - py_now_us();
		if (left <= 0)
			return -1;
		s = segment_get(self, t->target);
		if (!s)
			return -1;
		id = batch_submit(self, t, s->id);
		if (id == INVALID_BATCH) {
			segment_put(self, s, true);
			return -1;
		}
		status.status = STATUS_COMPLETED;
		ret = t->count ? py_wait(self->engine, id, left, &status) : 0;
		if (ret) {
			batch_abort(self, id);
			segment_put(self, s, true);
			return ret < 0 ? -2 : -1;
		}
		freeBatchID(self->engine, id);
		segment_put(self, s,
			    status.status != STATUS_COMPLETED);
		if (status.status == STATUS_COMPLETED)
			return 0;
	}
	return -1;
}

/* Submits the transfer and adds its batch to the object's dict of batches.
 * Returns the id of the batch, or 0 without an exception after an error. */
static batch_id_t transfer_async(struct mooncake *self,
				 const struct mooncake_transfer *t)
{
	struct mooncake_segment *s = segment_get(self, t->target);
	struct mooncake_batch *b;
	PyObject *key, *at;
	batch_id_t id;

	if (!s)
		return 0;
	id = batch_submit(self, t, s->id);
	if (id == INVALID_BATCH) {
		segment_put(self, s, true);
		return 0;
	}
	b = calloc(1, sizeof(*b));
	key = PyLong_FromUnsignedLongLong(id);
	at = b ? PyLong_FromVoidPtr(b) : NULL;
	if (!key || !at || PyDict_SetItem(self->batches, key, at)) {
		PyErr_Clear();
		batch_abort(self, id);
		segment_put(self, s, false);
		free(b);
		id = 0;
	} else {
		b->segment = s;
		b->until_us = py_now_us() + transfer_limit_us(self, t);
	}
	Py_XDECREF(key);
	Py_XDECREF(at);
	return id;
}

/* Returns the batch with that id. Returns NULL without an exception if there is
 * none. */
static struct mooncake_batch *batch_find(struct mooncake *self, uint64_t id)
{
	PyObject *key = PyLong_FromUnsignedLongLong(id), *at;

	at = key ? PyDict_GetItem(self->batches, key) : NULL;
	Py_XDECREF(key);
	return at ? PyLong_AsVoidPtr(at) : NULL;
}

/* Removes a batch whose tasks have ended from the object, and frees it.
 * "failed" says whether a task has failed. Does nothing if another thread has
 * freed the batch already. */
static void batch_free(struct mooncake *self, uint64_t id, bool failed)
{
	struct mooncake_batch *b = batch_find(self, id);
	PyObject *key;

	if (!b)
		return;
	key = PyLong_FromUnsignedLongLong(id);
	if (!key || PyDict_DelItem(self->batches, key))
		PyErr_Clear();
	Py_XDECREF(key);
	freeBatchID(self->engine, id);
	segment_put(self, b->segment, failed);
	free(b);
}

/* Cancels the batch, waits for its end, removes it from the object and frees
 * it. */
static void batch_drop(struct mooncake *self, uint64_t id)
{
	struct transfer_status status;

	Py_BEGIN_ALLOW_THREADS
	te_cancel_batch(self->engine, id);
	te_wait_batch(self->engine, id, -1, &status);
	Py_END_ALLOW_THREADS
	batch_free(self, id, true);
}

void mooncake_drop_batches(struct mooncake *self)
{
	PyObject *ids = PyDict_Keys(self->batches);
	Py_ssize_t i;

	for (i = 0; ids && i < PyList_Size(ids); i++)
		batch_drop(self, PyLong_AsUnsignedLongLong(
					 PyList_GetItem(ids, i)));
	Py_XDECREF(ids);
	PyErr_Clear();
}

/* --- arguments ----------------------------------------------------------- */

/* The arguments of a method that transfers several ranges: lists with one
 * element for each range. */
struct mooncake_lists {
	struct py_u64s local, remote, length;
};

static void lists_free(struct mooncake_lists *l)
{
	py_u64s_free(&l->local);
	py_u64s_free(&l->remote);
	py_u64s_free(&l->length);
}

/* Sets the ranges of the transfer from the lists. Returns false if the lengths
 * of the lists differ. */
static bool lists_use(const struct mooncake_lists *l,
		      struct mooncake_transfer *t)
{
	t->local = l->local.value;
	t->remote = l->remote.value;
	t->length = l->length.value;
	t->count = (size_t)l->local.count;
	return l->local.count == l->remote.count &&
	       l->local.count == l->length.count;
}

/* Sets name and msg of the transfer from the argument "notify", which may be
 * None. The caller drops the two references in text. Returns -1 with an
 * exception after an error. */
static int notify_take(PyObject *notify, struct mooncake_transfer *t,
		       PyObject *text[2])
{
	text[0] = text[1] = NULL;
	if (!notify || notify == Py_None)
		return 0;
	text[0] = PyObject_GetAttrString(notify, "name");
	text[1] = text[0] ? PyObject_GetAttrString(notify, "msg") : NULL;
	if (!text[1])
		return -1;
	t->name = PyUnicode_AsUTF8AndSize(text[0], NULL);
	t->msg = PyUnicode_AsUTF8AndSize(text[1], NULL);
	return t->name && t->msg ? 0 : -1;
}

static PyObject *result_sync(int ret)
{
	return ret < -1 ? NULL : PyLong_FromLong(ret);
}

/* Implements the methods that transfer one range. Waits for the end if "wait"
 * is true. */
static PyObject *single(struct mooncake *self, PyObject *args, PyObject *kw,
			int opcode, bool wait)
{
	static char *names[] = { "target_hostname", "buffer",
				 "peer_buffer_address", "length",
				 "transport_hint", NULL };
	uint64_t local, remote, length;
	struct mooncake_transfer t = { .local = &local, .remote = &remote,
				       .length = &length, .count = 1,
				       .opcode = opcode };
	const char *hint = "";

	if (!PyArg_ParseTupleAndKeywords(args, kw, "sO&O&O&|s", names,
					 &t.target, py_u64, &local, py_u64,
					 &remote, py_u64, &length, &hint))
		return NULL;
	if (!self->engine)
		return PyLong_FromLong(wait ? -1 : 0);
	if (wait)
		return result_sync(transfer_sync(self, &t));
	return PyLong_FromUnsignedLongLong(transfer_async(self, &t));
}

/* Implements the methods that transfer several ranges. Waits for the end if
 * "wait" is true. */
static PyObject *batch(struct mooncake *self, PyObject *args, PyObject *kw,
		       int opcode, bool wait)
{
	static char *names[] = { "target_hostname", "buffers",
				 "peer_buffer_addresses", "lengths",
				 "transport_hint", NULL };
	struct mooncake_transfer t = { .opcode = opcode };
	struct mooncake_lists l = { { 0 }, { 0 }, { 0 } };
	PyObject *result = NULL;
	const char *hint = "";

	if (!PyArg_ParseTupleAndKeywords(args, kw, "sO&O&O&|s", names,
					 &t.target, py_u64s, &l.local, py_u64s,
					 &l.remote, py_u64s, &l.length, &hint))
		goto out;
	if (!lists_use(&l, &t) || !self->engine)
		result = PyLong_FromLong(wait ? -1 : 0);
	else if (wait)
		result = result_sync(transfer_sync(self, &t));
	else
		result = PyLong_FromUnsignedLongLong(transfer_async(self, &t));
out:
	lists_free(&l);
	return result;
}

/* --- methods: transfers -------------------------------------------------- */

PyObject *mooncake_transfer_sync_write(struct mooncake *self, PyObject *args, PyObject *kw)
{
	return single(self, args, kw, OPCODE_WRITE, true);
}

PyObject *mooncake_transfer_sync_read(struct mooncake *self, PyObject *args, PyObject *kw)
{
	return single(self, args, kw, OPCODE_READ, true);
}

PyObject *mooncake_transfer_submit_write(struct mooncake *self, PyObject *args, PyObject *kw)
{
	return single(self, args, kw, OPCODE_WRITE, false);
}

PyObject *mooncake_batch_transfer_sync_write(struct mooncake *self, PyObject *args, PyObject *kw)
{
	return batch(self, args, kw, OPCODE_WRITE, true);
}

PyObject *mooncake_batch_transfer_sync_read(struct mooncake *self, PyObject *args, PyObject *kw)
{
	return batch(self, args, kw, OPCODE_READ, true);
}

PyObject *mooncake_batch_transfer_async_write(struct mooncake *self, PyObject *args, PyObject *kw)
{
	return batch(self, args, kw, OPCODE_WRITE, false);
}

PyObject *mooncake_batch_transfer_async_read(struct mooncake *self, PyObject *args, PyObject *kw)
{
	return batch(self, args, kw, OPCODE_READ, false);
}

static bool opcode_ok(int opcode)
{
	if (opcode == OPCODE_READ || opcode == OPCODE_WRITE)
		return true;
	PyErr_Format(PyExc_ValueError,
		     "opcode: %d (must be TransferOpcode.Read or Write)",
		     opcode);
	return false;
}

PyObject *mooncake_transfer_sync(struct mooncake *self, PyObject *args, PyObject *kw)
{
	static char *names[] = { "target_hostname", "buffer",
				 "peer_buffer_address", "length", "opcode",
				 "notify", "transport_hint", NULL };
	uint64_t local, remote, length;
	struct mooncake_transfer t = { .local = &local, .remote = &remote,
				       .length = &length, .count = 1 };
	PyObject *notify = NULL, *text[2] = { NULL, NULL }, *result = NULL;
	const char *hint = "";

	if (!PyArg_ParseTupleAndKeywords(args, kw, "sO&O&O&i|Os", names,
					 &t.target, py_u64, &local, py_u64,
					 &remote, py_u64, &length, &t.opcode,
					 &notify, &hint) ||
	    !opcode_ok(t.opcode))
		return NULL;
	if (!notify_take(notify, &t, text))
		result = self->engine ? result_sync(transfer_sync(self, &t)) :
					PyLong_FromLong(-1);
	Py_XDECREF(text[0]);
	Py_XDECREF(text[1]);
	return result;
}

PyObject *mooncake_batch_transfer_sync(struct mooncake *self, PyObject *args, PyObject *kw)
{
	static char *names[] = { "target_hostname", "buffers",
				 "peer_buffer_addresses", "lengths", "opcode",
				 "notify", "transport_hint", NULL };
	PyObject *notify = NULL, *text[2] = { NULL, NULL }, *result = NULL;
	struct mooncake_lists l = { { 0 }, { 0 }, { 0 } };
	struct mooncake_transfer t = { 0 };
	const char *hint = "";

	if (PyArg_ParseTupleAndKeywords(args, kw, "sO&O&O&i|Os", names,
					&t.target, py_u64s, &l.local, py_u64s,
					&l.remote, py_u64s, &l.length,
					&t.opcode, &notify, &hint) &&
	    opcode_ok(t.opcode) && !notify_take(notify, &t, text))
		result = lists_use(&l, &t) && self->engine ?
				 result_sync(transfer_sync(self, &t)) :
				 PyLong_FromLong(-1);
	Py_XDECREF(text[0]);
	Py_XDECREF(text[1]);
	lists_free(&l);
	return result;
}

PyObject *mooncake_batch_transfer_async(struct mooncake *self, PyObject *args, PyObject *kw)
{
	static char *names[] = { "target_hostname", "buffers",
				 "peer_buffer_addresses", "lengths", "opcode",
				 "transport_hint", NULL };
	struct mooncake_lists l = { { 0 }, { 0 }, { 0 } };
	struct mooncake_transfer t = { 0 };
	PyObject *result = NULL;
	const char *hint = "";

	if (PyArg_ParseTupleAndKeywords(args, kw, "sO&O&O&i|s", names,
					&t.target, py_u64s, &l.local, py_u64s,
					&l.remote, py_u64s, &l.length,
					&t.opcode, &hint) &&
	    opcode_ok(t.opcode))
		result = PyLong_FromUnsignedLongLong(
			lists_use(&l, &t) && self->engine ?
				transfer_async(self, &t) :
				0);
	lists_free(&l);
	return result;
}

/* Waits for one batch and frees it. Returns 0 if the batch is COMPLETED.
 * Returns -1 without an exception if it has ended otherwise or does not exist.
 * Returns -2 with an exception. */
static int batch_finish(struct mooncake *self, uint64_t id)
{
	struct mooncake_batch *b = batch_find(self, id);
	struct transfer_status status = { 0 };
	int64_t left;
	int ret;

	if (!b)
		return -1;
	left = b->until_us - py_now_us();
	ret = py_wait(self->engine, id, left > 0 ? left : 0, &status);
	if (ret < 0)
		return -2;
	if (ret == TE_TIMED_OUT)
		batch_drop(self, id);
	else
		batch_free(self, id, status.status != STATUS_COMPLETED);
	return ret || status.status != STATUS_COMPLETED ? -1 : 0;
}

PyObject *mooncake_get_batch_transfer_status(struct mooncake *self, PyObject *args, PyObject *kw)
{
	static char *names[] = { "", NULL };
	struct py_u64s ids = { 0 };
	Py_ssize_t i;
	int ret = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&", names, py_u64s, &ids))
		return NULL;
	for (i = 0; i < ids.count && !ret; i++)
		ret = self->engine ? batch_finish(self, ids.value[i]) : -1;
	/* After a failure the remaining batches are cancelled, as in
	 * Mooncake. */
	for (; i < ids.count && ret == -1 && self->engine; i++)
		if (batch_find(self, ids.value[i]))
			batch_drop(self, ids.value[i]);
	py_u64s_free(&ids);
	return result_sync(ret);
}

PyObject *mooncake_transfer_check_status(struct mooncake *self, PyObject *args, PyObject *kw)
{
	static char *names[] = { "", NULL };
	struct transfer_status status;
	uint64_t id;
	int ret;

	if (!PyArg_ParseTupleAndKeywords(args, kw, "O&", names, py_u64, &id))
		return NULL;
	if (!self->engine || !batch_find(self, id))
		return PyLong_FromLong(-1);
	Py_BEGIN_ALLOW_THREADS
	ret = te_batch_status(self->engine, id, &status);
	Py_END_ALLOW_THREADS
	if (!ret && status.status == STATUS_WAITING)
		return PyLong_FromLong(0);
	if (!ret && status.status == STATUS_TIMEOUT && self->reports_timeout)
		return PyLong_FromLong(-2);
	ret = ret || status.status != STATUS_COMPLETED;
	batch_free(self, id, ret);
	return PyLong_FromLong(ret ? -1 : 1);
}
