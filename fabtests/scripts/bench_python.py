#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Compares writes from Python with the same writes from C.

    bench_python.py LIBRARY [SECONDS]

LIBRARY is te_python_loop.c, compiled as a shared library. One process calls
mooncake.engine and the loop in C alternately, in random order. Each of the two has an
engine of its own, and both write to the memory of a second process: first by copies
inside this host, then by tcp. For each size, one line shows the 10th percentile of the
time of a call, and the median. The 10th percentile depends less on other load of the
machine, so the ratio of C's time to Python's, and their difference, are computed from
it. The exit status is 1 if a goal is missed.
"""
import ctypes
import os
import random
import statistics
import subprocess
import sys
import time

from mooncake.engine import TransferEngine

SIZE = 32 << 20
TARGET = """
import ctypes
from mooncake.engine import TransferEngine
engine = TransferEngine()
memory = (ctypes.c_ubyte * %d)()
address = ctypes.addressof(memory)
if engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") or \\
        engine.register_memory(address, len(memory)):
    raise SystemExit("no engine")
print("127.0.0.1:%%d" %% engine.get_rpc_port(), address, flush=True)
input()
"""


class Pair:
    """An engine of Python and one of C, and the memory that both write from."""

    def __init__(self, library, name):
        self.memory = ctypes.create_string_buffer(SIZE)
        self.address = ctypes.addressof(self.memory)
        self.name = name
        self.engine = TransferEngine()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") or \
                self.engine.register_memory(self.address, SIZE):
            raise SystemExit("no engine")
        self.c = ctypes.CDLL(library)
        self.c.loop_open.argtypes = [ctypes.c_char_p, ctypes.c_char_p,
                                     ctypes.c_void_p, ctypes.c_size_t]
        if self.c.loop_open(b"127.0.0.1", name.encode(), self.address, SIZE):
            raise SystemExit("no engine in C")

    def calls(self, remote, count, length):
        """Returns two functions that write and return the time in microseconds."""
        at = [i * length for i in range(count)]
        local = [self.address + i for i in at]
        far = [remote + i for i in at]
        sizes = [length] * count
        arrays = [(ctypes.c_uint64 * count)(*one) for one in (local, far, sizes)]
        took = ctypes.c_double()
        engine, name, clock = self.engine, self.name, time.perf_counter_ns

        def python():
            start = clock()
            if count == 1:
                failed = engine.transfer_sync_write(name, local[0], far[0], length)
            else:
                failed = engine.batch_transfer_sync_write(name, local, far, sizes)
            end = clock()
            if failed:
                raise SystemExit("a write from Python failed")
            return (end - start) / 1e3

        def c():
            if self.c.loop_write(*arrays, ctypes.c_size_t(count), ctypes.byref(took)):
                raise SystemExit("a write from C failed")
            return took.value

        return python, c


def compare(calls, seconds):
    times = ([], [])
    until = time.monotonic() + seconds
    while time.monotonic() < until or len(times[0]) < 10:
        order = [0, 1]
        random.shuffle(order)
        for which in order:
            times[which].append(calls[which]())
    return times


def row(way, calls, count, length, seconds):
    """Measures, prints a line, and returns true if the goal is met."""
    compare(calls, seconds / 10)
    python, c = compare(calls, seconds)
    low = [statistics.quantiles(one, n=10)[0] for one in (python, c)]
    middle = statistics.median(python), statistics.median(c)
    ratio, more = low[1] / low[0], low[0] - low[1]
    met = more <= 3 if count == 1 else ratio >= 0.95
    print("%-6s %4d x %6d B %7d %10.1f %10.1f %10.1f %10.1f %6.3f %9.2f  %s" % (
        way, count, length, len(c), *low, *middle, ratio, more,
        "met" if met else "missed"))
    return met


def measure(library, way, seconds):
    met = True
    with subprocess.Popen([sys.executable, "-c", TARGET % SIZE], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as target:
        name, remote = target.stdout.readline().split()
        pair = Pair(library, name)
        for count, length in ((512, 65536), (1, 4096)):
            calls = pair.calls(int(remote), count, length)
            met &= row(way, calls, count, length, seconds)
        pair.c.loop_close()
        target.communicate("\n")
    return met


def main():
    library = sys.argv[1]
    seconds = float(sys.argv[2]) if sys.argv[2:] else 10
    met = True
    print("%-6s %-15s %7s %10s %10s %10s %10s %6s %9s  goal: ratio 0.95, 3 us more" % (
        "way", "write", "calls", "python 10%", "c 10%", "median", "c median", "ratio",
        "more us"))
    for way in "copies", "tcp":
        os.environ["MOONRAIL_LOCAL"] = "1" if way == "copies" else "0"
        met &= measure(library, way, seconds)
    return not met


if __name__ == "__main__":
    sys.exit(main())
