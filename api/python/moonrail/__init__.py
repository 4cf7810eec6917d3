# SPDX-License-Identifier: BSD-2-Clause
"""Moves memory between machines over libfabric.

    import moonrail

    with moonrail.Engine() as engine:
        memory = engine.register(bytearray(1 << 20))
        peer = engine.open("10.0.0.2:15001")
        peer.write(memory[0:4096], peer.buffers()[0].address)

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
from .engine import (HUGE_PAGES, PRIVATE, SMALL_PAGES, STRICT, Batch, Buffer, Engine,
                     Notification, Segment)
from .errors import Error, TransferError
from .memory import Memory, address_of
from .transfer import Transfer

__all__ = ["Batch", "Buffer", "Engine", "Error", "HUGE_PAGES", "Memory",
           "Notification", "PRIVATE", "SMALL_PAGES", "STRICT", "Segment", "Transfer",
           "TransferError", "__version__", "address_of", "fabric_version"]
