# SPDX-License-Identifier: BSD-2-Clause
"""Runs the tools of moonrail, which are programs in C."""
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def find(name):
    """Returns the path of a tool: the copy in this package or, if there is none, the
    tool that is found in PATH."""
    own = os.path.join(HERE, "bin", name)
    return own if os.path.exists(own) else shutil.which(name)


def run(name):
    """Replaces this process with the tool, which gets the arguments."""
    path = find(name)
    if not path:
        sys.exit("%s: not part of this package and not in PATH; install the tools of "
                 "moonrail, or build the package from its sources" % name)
    if path.startswith(HERE):
        # LD_LIBRARY_PATH makes the tools load the library in this package.
        old = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = HERE + (":" + old if old else "")
    os.execv(path, [name] + sys.argv[1:])
