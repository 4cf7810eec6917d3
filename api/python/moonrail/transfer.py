# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that are in progress."""
import asyncio
import concurrent.futures
import os
import select
import struct
import threading
import time
from collections import namedtuple

from .errors import TransferError, last_error, transfer_error

CANCELED = 3
COMPLETED = 4
TIMEOUT = 5
FAILED = 6

WAIT_MAX = 4096
_TASK = struct.Struct("=QiIQ")      # struct te_task

Task = namedtuple("Task", "cookie status nbytes")
Task.__doc__ = "One request of a transfer. The status is that of the C API."


def microseconds(timeout):
    """Converts seconds, or None for no limit."""
    if timeout is None:
        return -1
    if timeout < 0:
        raise ValueError("timeout: %r (must be at least 0)" % timeout)
    return int(timeout * 1000000)


class Transfer:
    """One or more reads and writes that were submitted together.

    The transfer keeps the local objects alive until all its requests have ended. If the
    program drops the transfer before that, the transfer is canceled.

    checked     True: the pieces of a prepared list were checked again
    restarted   True: they were checked because a new process has replaced the target
    """

    checked = False
    restarted = False

    def __init__(self, engine, batch, count, keep):
        self._engine = engine
        self._batch = batch
        self._number = batch
        self._count = count
        self._keep = keep
        self._tasks = None          # struct te_task of each request, after the end
        self._lock = threading.Lock()
        self._waiting = 0           # number of threads in handle.wait
        self._callbacks = []
        self._status = None         # set once, when all requests have ended
        self._bytes = 0
        self._error = None

    def __repr__(self):
        state = "in progress" if self._status is None else "status %d" % self._status
        return "<Transfer of %d requests: %s>" % (self._count, state)

    def __del__(self):
        if getattr(self, "_status", 0) is None:
            self._engine._drop(self._batch, self._keep)

    def _poll(self, timeout_us):
        """Waits until all requests have ended. Returns False if the time has passed."""
        if not self._enter():
            return True
        result = None
        try:
            result = self._engine._handle.wait(self._batch, timeout_us)
        finally:
            callbacks = self._leave(result)
        for call in callbacks:
            call(self)
        return result is not None

    def _leave(self, result=None):
        """Ends a wait, and records its result. Returns the callbacks to run."""
        with self._lock:
            self._waiting -= 1
            if self._status is None and result is not None:
                self._finish(result)
            if self._status is None:
                return []
            # The batch is freed when no thread waits for it any more.
            if self._batch is not None and not self._waiting:
                self._engine._batches.put(self._batch, self._count)
                self._batch = None
            callbacks, self._callbacks = self._callbacks, []
        return callbacks

    def _enter(self):
        """Keeps the batch from being freed until _leave(). Returns False if the transfer has
        ended."""
        with self._lock:
            if self._status is not None:
                return False
            self._waiting += 1
        return True

    def _hold(self):
        """Returns a file descriptor that becomes readable when the transfer ends, or None if
        the transfer has ended. The file descriptor stays open until _leave()."""
        if not self._enter():
            return None
        fd = self._engine._handle.batch_fd(self._batch)
        if fd < 0:
            self._leave()
            raise last_error()
        return fd

    def _finish(self, result):
        """Records the end. The caller holds the lock."""
        if isinstance(result, int):     # the engine was closed
            self._status = FAILED
            self._error = TransferError(
                (-1, 0, 0, "", "", "", "the engine was closed", ""), FAILED)
            self._batch = None
        else:
            self._status, self._bytes = result
            self._tasks = self._engine._handle.tasks(self._batch, self._count)
            if self._status in (TIMEOUT, FAILED):
                self._error = self._first_error()
        self._keep = None

    def _first_error(self):
        record = None
        for task in range(self._count):
            record = self._engine._handle.task_error(self._batch, task)
            if record[0]:
                break
        return transfer_error(record, self._status)

    def done(self):
        """Returns True if all requests have ended. Never blocks."""
        return self._poll(0)

    def wait(self, timeout=None):
        """Waits for the end, at most timeout seconds. Returns False if the time has
        passed. Raises nothing if the transfer has failed."""
        return self._poll(microseconds(timeout))

    def result(self, timeout=None):
        """Waits for the end and returns the number of bytes.

        Raises TimeoutError if timeout seconds have passed first; the transfer goes on.
        Raises TransferError if a request has failed, and
        concurrent.futures.CancelledError if it was canceled.
        """
        if not self.wait(timeout):
            raise TimeoutError("the transfer has not ended within %g s" % timeout)
        if self._status == CANCELED:
            raise concurrent.futures.CancelledError()
        if self._error is not None:
            raise self._error
        return self._bytes

    def _run(self):
        """Waits for the end as result() does, and cancels the transfer if a signal handler
        raises an exception."""
        try:
            self.wait()
        except BaseException:       # KeyboardInterrupt
            self.cancel()
            self.wait()
            raise
        return self.result()

    @property
    def id(self):
        """The number of the transfer that Engine.ended returns. Numbers are used again
        after the end of a transfer."""
        return self._number

    def exception(self, timeout=None):
        """Waits as result() does, and returns the exception of a failure, or None."""
        try:
            self.result(timeout)
        except TransferError as error:
            return error
        return None

    def tasks(self):
        """Returns a list of Task: the cookie, the status and the bytes of each request, in
        the order in which they were added. Never blocks."""
        tasks = b""
        if not self.done() and self._enter():
            try:
                tasks = self._engine._handle.tasks(self._batch, self._count)
            finally:
                for call in self._leave():
                    call(self)
        return [Task(cookie, status, nbytes) for cookie, status, _, nbytes
                in _TASK.iter_unpack(self._tasks or tasks)]

    def cancel(self):
        """Requests the early end. result() tells how the transfer has ended. The local
        memory may be used again when it has ended, not earlier."""
        with self._lock:
            if self._status is None:
                self._engine._handle.cancel(self._batch)

    def cancelled(self):
        """Returns True if the transfer has ended because it was canceled."""
        return self.done() and self._status == CANCELED

    def add_done_callback(self, call):
        """Calls call(transfer) in a thread of the engine when all requests have ended, or
        at once if they have."""
        with self._lock:
            if self._status is None:
                self._callbacks.append(call)
                call = None
        if call is not None:
            call(self)
        else:
            self._engine._watch(self)

    def __await__(self):
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self):
        fd = self._hold()
        if fd is not None:
            loop = asyncio.get_running_loop()
            ended = loop.create_future()

            def readable():
                loop.remove_reader(fd)
                if not ended.done():
                    ended.set_result(None)

            loop.add_reader(fd, readable)
            try:
                await ended
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                loop.remove_reader(fd)
                for call in self._leave():
                    call(self)
        return self.result()


def wait_any(transfers, timeout=None):
    """Waits until one of the transfers has ended, and returns it. Returns None if timeout
    seconds have passed first. The transfers belong to one engine and are at most 4096.
    """
    transfers = list(transfers)
    if not transfers or len(transfers) > WAIT_MAX:
        raise ValueError("transfers: %d (must be 1 to %d)" % (len(transfers), WAIT_MAX))
    engine = transfers[0]._engine
    if any(transfer._engine is not engine for transfer in transfers):
        raise ValueError("transfers: they belong to several engines")
    held = []
    index = 0
    try:
        for transfer in transfers:
            if not transfer._enter():
                return transfer
            held.append(transfer)
        index = engine._handle.wait_any([transfer._batch for transfer in held],
                                        microseconds(timeout))
    finally:
        for transfer in held:
            for call in transfer._leave():
                call(transfer)
    if index is None:
        return None
    # If the engine was closed, all have ended.
    transfer = held[max(index, 0)]
    transfer.wait()
    return transfer


def as_completed(transfers, timeout=None):
    """Returns an iterator over the transfers in the order in which they end. It raises
    TimeoutError if timeout seconds after the call not all have ended."""
    return _as_completed(list(transfers), timeout,
                         None if timeout is None else time.monotonic() + timeout)


def _as_completed(left, timeout, until):
    while left:
        rest = None if until is None else max(0, until - time.monotonic())
        one = wait_any(left, rest)
        if one is None:
            raise TimeoutError("%d transfers have not ended within %g s"
                               % (len(left), timeout))
        left.remove(one)
        yield one


class Batches:
    """Batches of the C library, which the transfers of an engine use one after the other.
    Resetting a batch costs less than allocating one."""

    LARGEST = 1024                  # greatest number of requests of a batch that is kept
    KEPT = 8                        # number of batches that are kept of each size

    def __init__(self, handle):
        self._handle = handle
        self._unused = {}           # power of two -> ids; used with list's own locks

    @staticmethod
    def _size(count):
        return 1 << (count - 1).bit_length() if count else 0

    def get(self, count):
        """Returns a batch with room for count requests, or a negative code."""
        if count > self.LARGEST:
            return self._handle.alloc_batch(count)
        size = self._size(count)
        unused = self._unused.get(size)
        try:
            while unused:
                batch = unused.pop()
                if not self._handle.reset_batch(batch):
                    return batch
                self._handle.free_batch(batch)
        except IndexError:          # another thread was faster
            pass
        return self._handle.alloc_batch(size)

    def put(self, batch, count):
        """Takes back a batch, so that a later get can return it. All its requests must have
        ended."""
        unused = self._unused.setdefault(self._size(count), [])
        if count > self.LARGEST or len(unused) >= self.KEPT:
            self._handle.free_batch(batch)
        else:
            unused.append(batch)


class Watcher:
    """The thread of an engine that runs callbacks. It starts at the first callback."""

    def __init__(self):
        self._lock = threading.Lock()
        self._added = []            # (file descriptor, transfer), for the thread
        self._wake = None           # pipe that wakes the thread
        self._thread = None
        self._stop = False

    def add(self, transfer):
        fd = transfer._hold()
        if fd is None:
            return
        with self._lock:
            if self._thread is None:
                self._wake = os.pipe()
                self._thread = threading.Thread(
                    target=self._run, name="moonrail-callbacks", daemon=True)
                self._thread.start()
            self._added.append((fd, transfer))
            os.write(self._wake[1], b"x")

    def _run(self):
        poll = select.poll()
        poll.register(self._wake[0], select.POLLIN)
        held = {}
        while not self._stop:
            for fd, _ in poll.poll():
                if fd == self._wake[0]:
                    os.read(fd, 4096)
                    with self._lock:
                        added, self._added = self._added, []
                    for one, transfer in added:
                        held[one] = transfer
                        poll.register(one, select.POLLIN)
                else:
                    poll.unregister(fd)
                    transfer = held.pop(fd)
                    transfer.done()
                    for call in transfer._leave():
                        call(transfer)
        self._added += held.items()

    def stop(self):
        """Ends the thread. Returns the transfers that have not ended."""
        if self._thread is None:
            return []
        with self._lock:
            self._stop = True
            os.write(self._wake[1], b"x")
        if threading.current_thread() is not self._thread:
            self._thread.join()
            for fd in self._wake:
                os.close(fd)
        self._thread = None
        return [transfer for _, transfer in self._added]
