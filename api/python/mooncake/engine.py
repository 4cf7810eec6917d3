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

If Mooncake's own module is installed too, the import fails, because the order of
sys.path would choose between the two. MOONRAIL_REPLACE_MOONCAKE=1 in the environment
chooses this one.
"""
import enum
import os
import sys


def _check_alone():
    """Raises ImportError if another module mooncake.engine is installed."""
    if os.environ.get("MOONRAIL_REPLACE_MOONCAKE") == "1":
        return
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.modules["mooncake"].__path__:
        if not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            other = name.startswith("engine.") and name.endswith((".so", ".py"))
            if other and not os.path.samefile(os.path.join(folder, name), __file__):
                raise ImportError(
                    "mooncake.engine of moonrail in %s would hide %s; uninstall one of "
                    "them, or set MOONRAIL_REPLACE_MOONCAKE=1 to use moonrail's"
                    % (here, os.path.join(folder, name)), name=__name__)


_check_alone()

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
