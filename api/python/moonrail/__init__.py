# SPDX-License-Identifier: BSD-2-Clause
"""Moves memory between machines over libfabric.

The module mooncake.engine, which is installed together with this package, offers
the methods of Mooncake's Python module.
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

__all__ = ["__version__", "fabric_version"]
