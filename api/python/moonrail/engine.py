# SPDX-License-Identifier: BSD-2-Clause
"""Engines, segments and what they report."""
import json
import threading
from collections import namedtuple
from types import SimpleNamespace

from . import _moonrail
from .errors import Error, check, last_error
from .memory import Memory, address_of
from .transfer import CANCELED, Transfer, Watcher, microseconds

READ = 0
WRITE = 1

SMALL_PAGES = 2
HUGE_PAGES = 4
STRICT = 8
PRIVATE = 1

Buffer = namedtuple("Buffer", "address nbytes location")
Buffer.__doc__ = "A buffer that a peer has published."
Notification = namedtuple("Notification", "name text")
Notification.__doc__ = "A notification that has arrived."


def _remote(remote):
    """Returns (address, bytes or None) of the remote side of a request."""
    if isinstance(remote, Buffer):
        return remote.address, remote.nbytes
    if isinstance(remote, tuple):
        return int(remote[0]), int(remote[1])
    return int(remote), None


class Engine:
    """This process's end of all its transfers. All methods are thread-safe.

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

    def register(self, obj, location="*", remote=True):
        """Registers the memory of an object (see address_of) and returns a Memory.

        location   "cpu:0", "cuda:1", or "*" to detect it
        remote     False: peers cannot access it
        """
        address, nbytes = address_of(obj, writable=False)
        check(self._handle.register(address, nbytes, location, remote))
        memory = Memory(self, address, nbytes, obj, location=location)
        self._memory[address] = memory
        return memory

    def alloc(self, nbytes, location=None, *, flags=0):
        """Allocates registered memory and returns a Memory.

        location   "cpu:0" for a NUMA node, "cuda:0" for a GPU, None for any node
        flags      PRIVATE, SMALL_PAGES, HUGE_PAGES, STRICT, as te_alloc(3) has them
        """
        result = check(self._handle.alloc(nbytes, location, flags))
        memory = Memory(self, result[0], nbytes, allocated=True, location=result[3])
        self._memory[memory.address] = memory
        return memory

    # --- segments and transfers

    def open(self, name, *, fresh=False):
        """Opens the segment of a peer. fresh reads its descriptor again."""
        return Segment(self, name, check(self._handle.open(name, fresh)))

    def batch(self):
        """Returns an empty Batch, whose requests are submitted together."""
        return Batch(self)

    def _submit(self, requests, keep, notify=None):
        self._sweep()
        name, text = notify if notify is not None else (None, None)
        batch = check(self._handle.submit(requests, name, text))
        return Transfer(self, batch, len(requests), keep)

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
        """Returns the notifications that have arrived, and removes them."""
        return [Notification(*item) for item in self._handle.notifications()]

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
        """Closes the segment. Transfers that are in progress go on."""
        if self._id is not None:
            self._engine._handle.close_segment(self._id)
            self._id = None

    def buffers(self):
        """Returns the buffers of the segment as a list of Buffer."""
        return [Buffer(*item)
                for item in check(self._engine._handle.buffers(self._number()))]

    def _number(self):
        if self._id is None:
            raise ValueError("segment %s: it was closed" % self.name)
        return self._id

    def write(self, local, remote, timeout=None):
        """Writes an object's memory to the peer and waits.

        local    what address_of accepts; its memory is registered
        remote   an address in the target process, a Buffer, or (address, bytes)
        timeout  seconds; then the transfer is canceled, and TimeoutError is raised
                 when it has ended

        Returns the number of bytes. Raises TransferError if they are not in place.
        """
        return self._sync(WRITE, local, remote, timeout)

    def read(self, local, remote, timeout=None):
        """Reads from the peer into an object's memory, as write does."""
        return self._sync(READ, local, remote, timeout)

    def write_async(self, local, remote):
        """Starts a write and returns a Transfer."""
        return self._engine.batch().write(self, local, remote).submit()

    def read_async(self, local, remote):
        """Starts a read and returns a Transfer."""
        return self._engine.batch().read(self, local, remote).submit()

    def _sync(self, opcode, local, remote, timeout):
        batch = self._engine.batch()
        batch._add(opcode, self, local, remote)
        transfer = batch.submit()
        try:
            ended = transfer.wait(timeout)
        except BaseException:       # KeyboardInterrupt
            transfer.cancel()
            transfer.wait()
            raise
        if not ended:
            transfer.cancel()
            transfer.wait()
            if transfer._status == CANCELED:
                raise TimeoutError("the transfer has not ended within %g s" % timeout)
        return transfer.result()

    def notify(self, name, text):
        """Sends a notification and waits until the peer's engine has it."""
        if self._engine._handle.notify(self._number(), name, text):
            raise last_error()

    def stats(self):
        """Returns the counters of the peer, with the members of te_peer_stats(3)."""
        return SimpleNamespace(
            **check(self._engine._handle.peer_stats(self._number())))


class Batch:
    """Requests that are submitted together. The methods return the batch itself:

        transfer = engine.batch().write(a, x, 4096).read(b, y, 8192).submit()
    """

    def __init__(self, engine):
        self._engine = engine
        self._requests = []
        self._keep = []

    def __len__(self):
        return len(self._requests)

    def write(self, segment, local, remote):
        """Adds a write, with the arguments of Segment.write."""
        return self._add(WRITE, segment, local, remote)

    def read(self, segment, local, remote):
        """Adds a read, with the arguments of Segment.read."""
        return self._add(READ, segment, local, remote)

    def _add(self, opcode, segment, local, remote):
        address, nbytes = address_of(local, writable=opcode == READ)
        there, room = _remote(remote)
        if room is not None and nbytes > room:
            raise ValueError("request %d: local memory of %d bytes, remote buffer of %d"
                             % (len(self._requests), nbytes, room))
        self._requests.append((opcode, segment._number(), address, there, nbytes))
        self._keep.append((segment, local))
        return self

    def submit(self, notify=None):
        """Submits the requests and returns a Transfer.

        notify   a pair (name, text) that the target receives when all bytes are in
                 place; then all requests must be writes to one segment
        """
        requests, self._requests = self._requests, []
        keep, self._keep = self._keep, []
        return self._engine._submit(requests, keep, notify)
