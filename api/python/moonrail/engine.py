# SPDX-License-Identifier: BSD-2-Clause
"""Engines, segments and what they report."""
import json
import threading
import time
from collections import namedtuple
from types import SimpleNamespace

from . import _moonrail
from .errors import (TIMED_OUT, Error, TransferTimeout, check, last_error,
                     transfer_error)
from .events import Receivers
from .memory import Memory, address_of
from .prepared import PreparedTransfers
from .transfer import COMPLETED, FAILED, Batches, Transfer, Watcher, microseconds

READ = 0
WRITE = 1
ATOMIC_ADD = 2
ATOMIC_FETCH_ADD = 3
ATOMIC_SWAP = 4
ATOMIC_CAS = 5

BOUNCE = 1

SMALL_PAGES = 2
HUGE_PAGES = 4
STRICT = 8
PRIVATE = 1
READ_ONLY = 2
NESTED = 4

TURN_US = 100000                # time between two checks for signals, microseconds

Buffer = namedtuple("Buffer", "address nbytes location label", defaults=(None,))
Buffer.__doc__ = "Memory that a peer has published. label is None if it has no label."
Notification = namedtuple("Notification", "name text")
Notification.__doc__ = "A notification that has arrived."
BinaryNotification = namedtuple("BinaryNotification", "name data")
BinaryNotification.__doc__ = "A notification with bytes that has arrived."
Ended = namedtuple("Ended", "id status nbytes cookie tasks")
Ended.__doc__ = "The end of a transfer: Transfer.id, and the cookie of its first request."


def _remote(remote):
    """Returns (address, bytes or None) of the remote side of a request."""
    if isinstance(remote, Buffer):
        return remote.address, remote.nbytes
    if isinstance(remote, tuple):
        return int(remote[0]), int(remote[1])
    return int(remote), None


def _ranges(opcode, locals, remotes):
    """Returns the two sides of a request as tuples of (address, bytes)."""
    local = tuple([address_of(one, writable=opcode == READ) for one in locals])
    nbytes = sum([length for _, length in local])
    remote = [_remote(one) for one in remotes]
    if len(remote) == 1:
        there, room = remote[0]
        if room is not None and nbytes > room:
            raise ValueError("local memory of %d bytes, remote buffer of %d"
                             % (nbytes, room))
        return local, ((there, nbytes),)
    if None in [length for _, length in remote]:
        raise ValueError("remote: several ranges need a length, as in (address, bytes)")
    if sum([length for _, length in remote]) != nbytes:
        raise ValueError("local memory of %d bytes, remote ranges of %d"
                         % (nbytes, sum([length for _, length in remote])))
    return local, tuple(remote)


class Engine:
    """One end of transfers: a named segment with rails, memory and connections. All
    methods are thread-safe.

    metadata    "P2PHANDSHAKE", or "zookeeper://host:port"
    name        with P2PHANDSHAKE the address of this host, "0.0.0.0" for the first
                one; otherwise the name of the segment
    ip, port    where the control channel listens, instead of a free choice
    transports  names of transports such as ["tcp"]; None: those that fit this host
    settings    a dict of the variables of moonrail(7), for this engine only

    An engine can be used in a with statement, which closes it.
    """

    def __init__(self, metadata="P2PHANDSHAKE", name="0.0.0.0", *, ip=None, port=0,
                 transports=None, settings=None):
        self._handle = _moonrail.Handle()
        self._memory = {}
        self._dropped = []
        self._lock = threading.Lock()
        self._watcher = Watcher()
        self._batches = Batches(self._handle)
        self._receivers = Receivers(self._handle)
        self._polls = False         # the program uses event_fd()
        texts = ["%s=%s" % item for item in (settings or {}).items()]
        check(self._handle.create(metadata, name, ip, port, transports is None, texts))
        try:
            for transport in transports or ():
                check(self._handle.install(transport))
        except Error:
            self._handle.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the engine: transfers that are in progress fail, registered memory is
        released. Later calls raise Error."""
        left = self._watcher.stop()
        self._handle.close()
        self._receivers.wake()
        for transfer in left:
            transfer._leave()
            transfer.done()         # runs its callbacks
        self._memory.clear()
        self._dropped.clear()

    @property
    def name(self):
        """The name under which peers open this engine's segment."""
        return self._handle.name()

    # --- memory

    def register(self, obj, location="*", remote=True, *, label=None, nested=False,
                 read_only=False):
        """Registers the memory of an object (see address_of) and returns a Memory.

        location   "cpu:0", "cuda:1", or "*" to detect it
        remote     False: peers cannot access it
        label      a name with which peers find the memory, such as that of a tensor
        nested     True: the memory may lie inside registered memory, which then
                   cannot be closed before this one
        read_only  True: neither peers nor this engine write to it
        """
        address, nbytes = address_of(obj, writable=False)
        flags = ((0 if remote else PRIVATE) | (NESTED if nested else 0)
                 | (READ_ONLY if read_only else 0))
        memory = Memory(self, address, nbytes, obj, location=location, flags=flags,
                        label=label)
        check(self._handle.register(*memory._entry()))
        self._memory[id(memory)] = memory
        return memory

    def alloc(self, nbytes, location=None, *, flags=0):
        """Allocates registered memory and returns a Memory.

        location   "cpu:0" for a NUMA node, "cuda:0" for a GPU, None for any node
        flags      PRIVATE, SMALL_PAGES, HUGE_PAGES, STRICT, as te_alloc(3) has them
        """
        result = check(self._handle.alloc(nbytes, location, flags))
        memory = Memory(self, result[0], nbytes, allocated=True, location=result[3])
        self._memory[id(memory)] = memory
        return memory

    # --- segments and transfers

    def open(self, name, *, fresh=False):
        """Opens the segment of a peer. If fresh is true, reads its descriptor again."""
        return Segment(self, name, check(self._handle.open(name, fresh)))

    def export(self):
        """Returns the descriptor of this engine's segment as bytes, for import_segment in
        another process."""
        return check(self._handle.export())

    def import_segment(self, blob):
        """Opens the segment that a descriptor describes. Communicates with no other
        process."""
        number = check(self._handle.import_segment(blob))
        return Segment(self, "of a descriptor", number)

    def sync(self):
        """Fetches the descriptors of all open segments again."""
        check(self._handle.sync())

    def warm_up(self, name):
        """Connects every rail pair with a peer, before the first transfer."""
        check(self._handle.warm_up(name))

    def batch(self):
        """Returns an empty Batch, whose requests are submitted together."""
        return Batch(self)

    def _submit(self, requests, keep, notify=None, timeout=None):
        name, text = notify if notify is not None else (None, None)
        return self._start(
            len(requests), keep, timeout,
            lambda batch: self._handle.submit(batch, requests, name, text))

    def _start(self, count, keep, timeout, submit):
        """Calls submit(batch) with a batch for count requests. Returns a Transfer."""
        if not count:
            raise ValueError("the batch has no request")
        self._sweep()
        batch = check(self._batches.get(count))
        try:
            if timeout is not None:
                check(-self._handle.limit_batch(batch, microseconds(timeout)))
            check(submit(batch))
        except BaseException:
            self._batches.put(batch, count)
            raise
        return Transfer(self, batch, count, keep)

    def _watch(self, transfer):
        self._watcher.add(transfer)

    def _drop(self, batch, keep):
        """Cancels a transfer that the program has dropped, and keeps its memory alive
        until it has ended."""
        self._handle.cancel(batch)
        with self._lock:
            self._dropped.append((batch, keep))

    def _sweep(self):
        """Frees the dropped transfers that have ended."""
        if not self._dropped:
            return
        with self._lock:
            dropped, self._dropped = self._dropped, []
        left = []
        for batch, keep in dropped:
            if self._handle.wait(batch, 0) is None:
                left.append((batch, keep))
            else:
                self._handle.free_batch(batch)
        if left:
            with self._lock:
                self._dropped += left

    # --- information

    def notifications(self):
        """Returns the notifications with text that have arrived, and removes them."""
        return [Notification(*item) for item in self._handle.notifications()]

    def binary_notifications(self):
        """Returns the notifications with bytes that have arrived, and removes them."""
        return [BinaryNotification(*item)
                for item in check(self._handle.fetch_binary())]

    async def receive(self):
        """Waits in asyncio for notifications with text, and returns a list of them, which is
        not empty. Raises Error when the engine is closed:

            while True:
                for note in await engine.receive():
                    print(note.name, note.text)
        """
        return await self._receivers.receive(self._texts, lambda: self._polls)

    async def receive_binary(self):
        """Waits in asyncio for notifications with bytes, as receive() does."""
        return await self._receivers.receive(self.binary_notifications,
                                             lambda: self._polls)

    def _texts(self):
        check(self._handle.event_fd())      # is the engine open?
        return self.notifications()

    def event_fd(self):
        """Returns the file descriptor that is readable while the end of a transfer or a
        notification can be fetched (te_event_fd(3)), for programs with an event loop of
        their own. ended(), notifications() and binary_notifications() fetch them. The engine
        closes the file descriptor."""
        self._polls = True
        return check(self._handle.event_fd())

    def ended(self):
        """Returns the ends of transfers as a list of Ended. Leaves out an end that ended()
        has already returned or that a call of the transfer has noticed. Never blocks."""
        return [Ended(*item) for item in check(self._handle.ended())]

    def drain(self, timeout=None):
        """Waits until all requests that were submitted before this call have ended. Raises
        TimeoutError if timeout seconds have passed."""
        _wait(self._handle.drain, timeout)

    def probe(self, name, timeout=None):
        """Raises Error if the control port of that peer does not answer."""
        check(self._handle.probe(name, microseconds(timeout)))

    def rails(self):
        """Returns the statistics of each rail, with the members of te_rail_stats(3)."""
        return [SimpleNamespace(**rail) for rail in check(self._handle.rail_stats())]

    def settings(self):
        """Returns the settings in force: a dict of (value, source)."""
        text = self._handle.settings_text()
        if text is None:
            raise last_error()
        result = {}
        for line in text.splitlines():
            name, _, rest = line.partition("=")
            value, _, source = rest.rpartition(" ")
            result[name] = value, source
        return result

    def topology(self):
        """Returns {location: [[preferred rails], [other rails]]}."""
        text = self._handle.topology_text()
        if text is None:
            raise last_error()
        return json.loads(text)


def _wait(call, timeout):
    """Repeats call(timeout_us), each time for at most TURN_US, until it returns something
    other than TIMED_OUT. Python handles signals between the calls."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        left = TURN_US
        if until is not None:
            left = min(left, microseconds(max(0, until - time.monotonic())))
        code = call(left)
        if code != TIMED_OUT:
            check(-code)
            return
        if until is not None and time.monotonic() >= until:
            raise TimeoutError("requests have not ended within %g s" % timeout)


class Segment:
    """The memory that a peer has published. It can be used in a with statement."""

    def __init__(self, engine, name, number):
        self._engine = engine
        self._id = number
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return "<Segment %s>" % self.name

    def close(self):
        """Closes the segment. Transfers that are in progress continue."""
        if self._id is not None:
            self._engine._handle.close_segment(self._id)
            self._id = None

    def buffers(self):
        """Returns the buffers of the segment as a list of Buffer."""
        return [Buffer(*item)
                for item in check(self._engine._handle.buffers(self._number()))]

    def find(self, label):
        """Returns the memory that the peer has registered with that label, as a list
        of Buffer in the order of the addresses: more than one if several ranges have
        the label. None finds all memory with a label. Raises Error if there is none.
        """
        return [Buffer(*item)
                for item in check(self._engine._handle.find(self._number(), label))]

    def _number(self):
        if self._id is None:
            raise ValueError("segment %s: it was closed" % self.name)
        return self._id

    def paths(self, location=None):
        """Returns the paths to the segment, with the members of te_segment_paths(3).
        location restricts them to those for memory at "cpu:0" or "cuda:1"."""
        return [SimpleNamespace(**path) for path in check(
            self._engine._handle.paths(self._number(), location))]

    def flush(self, timeout=None):
        """Waits until all requests to this segment that were submitted before this call have
        ended. Raises TimeoutError if timeout seconds have passed."""
        number = self._number()
        _wait(lambda us: self._engine._handle.flush(number, us), timeout)

    def write(self, local, remote, timeout=None, *, bounce=False):
        """Writes an object's memory to the peer and waits.

        local    what address_of accepts; its memory is registered
        remote   an address in the target process, a Buffer, or (address, bytes)
        timeout  seconds; then the transfer is ended, and TransferTimeout is raised when
                 it has ended
        bounce   True: the local memory need not be registered. Meant for small objects
                 that are used once; registered memory is faster.

        Returns the number of bytes. Raises Error if the request is refused, and
        TransferError if the bytes are not in place. When it returns or raises, the local
        memory is no longer used.
        """
        return self._move(WRITE, (local,), (remote,), timeout, bounce)

    def read(self, local, remote, timeout=None, *, bounce=False):
        """Reads from the peer into an object's memory, as write does."""
        return self._move(READ, (local,), (remote,), timeout, bounce)

    def writev(self, locals, remotes, timeout=None, *, bounce=False):
        """Writes the memory of several objects, one after the other, to several ranges of
        the peer, and waits, as write does.

        locals   a sequence of what address_of accepts
        remotes  a sequence of Buffer or (address, bytes), of the same total length

        With bounce, each of them has at most 256 elements.
        """
        return self._move(WRITE, locals, remotes, timeout, bounce)

    def readv(self, locals, remotes, timeout=None, *, bounce=False):
        """Reads several ranges of the peer, one after the other, into the memory of several
        objects, as writev does."""
        return self._move(READ, locals, remotes, timeout, bounce)

    def write_async(self, local, remote, *, bounce=False):
        """Starts a write and returns a Transfer."""
        return self._engine.batch().write(self, local, remote, bounce=bounce).submit()

    def read_async(self, local, remote, *, bounce=False):
        """Starts a read and returns a Transfer."""
        return self._engine.batch().read(self, local, remote, bounce=bounce).submit()

    def prepare_write(self, pieces):
        """Checks a list of writes once and returns PreparedTransfers, which submits any
        of them any number of times.

        pieces   a sequence of (local, remote), with the arguments of write
        """
        return PreparedTransfers(self._engine, self, WRITE, pieces)

    def prepare_read(self, pieces):
        """Checks a list of reads once, as prepare_write does."""
        return PreparedTransfers(self._engine, self, READ, pieces)

    def _move(self, opcode, locals, remotes, timeout, bounce):
        if bounce:
            return self._engine.batch()._add(
                opcode, self, locals, remotes, 0, True).run(timeout)
        local, remote = _ranges(opcode, locals, remotes)
        result = self._engine._handle.transfer(
            opcode, self._number(), local, remote, microseconds(timeout))
        if result == -TIMED_OUT:    # before the submission
            raise TransferTimeout(_moonrail.last_error(), FAILED)
        status, nbytes, record = check(result)
        if status == COMPLETED:
            return nbytes
        raise transfer_error(record, status)

    def notify(self, name, data):
        """Sends a notification and waits until the peer's engine has it.

        data   a str, for Engine.notifications, or an object with the buffer protocol such
               as bytes, for Engine.binary_notifications; at most 1 MiB with the name
        """
        handle = self._engine._handle
        send = handle.notify if isinstance(data, str) else handle.notify_binary
        if send(self._number(), name, data):
            raise last_error()

    def stats(self):
        """Returns the counters of the peer, with the members of te_peer_stats(3)."""
        return SimpleNamespace(
            **check(self._engine._handle.peer_stats(self._number())))


class Batch:
    """Requests that are submitted together. The methods return the batch itself:

        transfer = engine.batch().write(peer, a, x).read(peer, b, y, cookie=7).submit()

    cookie is a number that the program chooses, from 0 to 2**64 - 1; Transfer.tasks returns
    it with the result of the request. bounce allows local memory that is not registered, as
    in Segment.write.

    Atomics change an unsigned number of 4 or 8 bytes in the memory of a peer, which is
    aligned to its length. old is registered memory of the same length, which receives the
    number's old value; te_submit(3) has the details.
    """

    def __init__(self, engine):
        self._engine = engine
        self._requests = []
        self._keep = []

    def __len__(self):
        return len(self._requests)

    def write(self, segment, local, remote, *, cookie=0, bounce=False):
        """Adds a write, with the arguments of Segment.write."""
        return self._add(WRITE, segment, (local,), (remote,), cookie, bounce)

    def read(self, segment, local, remote, *, cookie=0, bounce=False):
        """Adds a read, with the arguments of Segment.read."""
        return self._add(READ, segment, (local,), (remote,), cookie, bounce)

    def writev(self, segment, locals, remotes, *, cookie=0, bounce=False):
        """Adds one request with the arguments of Segment.writev, of which each has at most
        256 elements."""
        return self._add(WRITE, segment, locals, remotes, cookie, bounce)

    def readv(self, segment, locals, remotes, *, cookie=0, bounce=False):
        """Adds one request with the arguments of Segment.readv, of which each has at most
        256 elements."""
        return self._add(READ, segment, locals, remotes, cookie, bounce)

    def atomic_add(self, segment, remote, operand, *, cookie=0):
        """Adds a request that atomically adds to the 8-byte number at an address of the
        peer."""
        return self._atomic(ATOMIC_ADD, segment, (), remote, operand, 0, cookie)

    def atomic_fetch_add(self, segment, old, remote, operand, *, cookie=0):
        """Adds a request that atomically adds to a number and stores the old value in old."""
        return self._atomic(ATOMIC_FETCH_ADD, segment, (old,), remote, operand, 0, cookie)

    def atomic_swap(self, segment, old, remote, operand, *, cookie=0):
        """Adds a request that atomically replaces a number and stores the old value in old."""
        return self._atomic(ATOMIC_SWAP, segment, (old,), remote, operand, 0, cookie)

    def atomic_compare_swap(self, segment, old, remote, compare, operand, *, cookie=0):
        """Adds a request that does what atomic_swap does if the number is equal to compare;
        otherwise it only stores the value in old."""
        return self._atomic(ATOMIC_CAS, segment, (old,), remote, operand, compare, cookie)

    def _atomic(self, opcode, segment, olds, remote, operand, compare, cookie):
        local = tuple([address_of(one, writable=True) for one in olds])
        nbytes = local[0][1] if local else 8
        self._requests.append((opcode, segment._number(), local,
                               ((_remote(remote)[0], nbytes),), cookie, 0, operand,
                               compare))
        self._keep.append((segment, olds))
        return self

    def _add(self, opcode, segment, locals, remotes, cookie, bounce):
        try:
            local, remote = _ranges(opcode, locals, remotes)
        except ValueError as error:
            raise ValueError("request %d: %s" % (len(self._requests), error)) from None
        self._requests.append((opcode, segment._number(), local, remote, cookie,
                               BOUNCE if bounce else 0, 0, 0))
        self._keep.append((segment, locals))
        return self

    def submit(self, notify=None, timeout=None):
        """Submits the requests and returns a Transfer.

        notify   a pair (name, text) that the target receives when all bytes are in
                 place; then all requests must be writes of one piece to one segment,
                 without bounce, and cookies are ignored
        timeout  seconds after which the requests that have not ended fail
        """
        if notify is not None and any(
                request[0] > WRITE or len(request[2]) != 1 or len(request[3]) != 1
                or request[5] for request in self._requests):
            raise ValueError("notify: only reads and writes of one piece, without bounce, "
                             "can have a notification")
        requests, self._requests = self._requests, []
        keep, self._keep = self._keep, []
        return self._engine._submit(requests, keep, notify, timeout)

    def run(self, timeout=None):
        """Submits the requests and waits for their end, as Segment.write does. Returns the
        number of bytes."""
        return self.submit(timeout=timeout)._run()
