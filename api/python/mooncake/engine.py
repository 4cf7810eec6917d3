# SPDX-License-Identifier: BSD-2-Clause
"""The Transfer Engine with the names of Mooncake's Python module.

Programs that were written for Mooncake's module use moonrail without a change:

    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    engine.initialize("10.0.0.1", "P2PHANDSHAKE", "tcp", "")
    peer = "10.0.0.2:15001"
    engine.register_memory(address, length)
    engine.transfer_sync_write(peer, address, peer_address, length)

Transfers raise no exception. They return 0, or -1 if the bytes are not in place;
the library's log has the cause. After -1 no byte of the transfer moves any more.
"""
import enum

from moonrail._moonrail import MooncakeEngine as _MooncakeEngine

SUPPORT_CUDA = False
SUPPORT_EFA = True
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False


class TransferOpcode(enum.IntEnum):
    """The direction of a transfer."""

    Read = 0
    Write = 1


Read = TransferOpcode.Read
Write = TransferOpcode.Write


class TransferNotify:
    """A notification: a name and a text for the application at the target."""

    __slots__ = ("name", "msg")

    def __init__(self, name="", msg=""):
        self.name = name
        self.msg = msg

    def __repr__(self):
        return "TransferNotify(name=%r, msg=%r)" % (self.name, self.msg)


class InnerTransferEngine:
    """Refers to an engine; it keeps the engine alive."""

    __slots__ = ("_engine",)

    def __init__(self, engine):
        self._engine = engine


class TransferEngine(_MooncakeEngine):
    """An engine: this process's memory, and the segments of its peers."""

    TransferOpcode = TransferOpcode

    def get_notifies(self):
        """Returns the received notifications and removes them."""
        return [TransferNotify(name, msg) for name, msg in self.take_notifies()]

    def get_engine(self):
        """Returns an object that other modules can pass on."""
        return InnerTransferEngine(self)
