# SPDX-License-Identifier: BSD-2-Clause
"""Moves memory between machines over libfabric.

    import moonrail

    with moonrail.Engine() as engine:
        memory = engine.register(bytearray(1 << 20))
        peer = engine.open("10.0.0.2:15001")
        peer.write(memory[0:4096], peer.buffers()[0].address)

Segment.write and read wait; writev and readv do so for several ranges. Engine.batch makes
requests with cookies, and atomics, whose Transfer is a future and can be awaited. wait_any
and as_completed wait for several transfers. Segment.prepare_write and prepare_read check a
list of pieces once, of which any are submitted any number of times. Segment.notify sends
text or bytes, for which Engine.receive and receive_binary wait in asyncio.
docs/BINDINGS.md of the sources lists the C functions that this package leaves out.

A transfer that fails raises an exception with the fields of the C library's error
record. The module mooncake.engine, which is installed together with this package,
offers the methods of Mooncake's Python module.
"""
from . import _signals

# Libraries below libfabric install signal handlers when they are loaded. They would
# end the process where Python raises KeyboardInterrupt.
_actions = _signals.save()
try:
    from . import _moonrail
finally:
    _signals.restore(_actions)
    del _actions

from ._moonrail import fabric_version, version as __version__
from .engine import (HUGE_PAGES, PRIVATE, SMALL_PAGES, STRICT, Batch, BinaryNotification,
                     Buffer, Ended, Engine, Notification, Segment)
from .errors import Error, TransferError, TransferTimeout
from .memory import Memory, address_of
from .prepared import PreparedTransfers
from .transfer import Task, Transfer, as_completed, wait_any

__all__ = ["Batch", "BinaryNotification", "Buffer", "Ended", "Engine", "Error",
           "HUGE_PAGES", "Memory", "Notification", "PRIVATE", "PreparedTransfers", "SMALL_PAGES",
           "STRICT", "Segment", "Task", "Transfer", "TransferError", "TransferTimeout",
           "__version__", "address_of", "as_completed", "fabric_version", "wait_any"]
