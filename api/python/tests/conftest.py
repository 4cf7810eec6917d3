# SPDX-License-Identifier: BSD-2-Clause
"""The second process of the tests."""
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


class Target:
    """The process of target.py, with its arguments."""

    def __init__(self, *args):
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "target.py"), *args], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        name, address, size = self.process.stdout.readline().split()
        self.name, self.address, self.size = name, int(address), int(size)

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def show(self, offset, length):
        return bytes.fromhex(self.ask("show", offset, length))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def stop(process):
    """Sends SIGSTOP to the process, which continues for a moment until it has
    handled the signal."""
    os.kill(process.pid, signal.SIGSTOP)
    while ") T " not in pathlib.Path(f"/proc/{process.pid}/stat").read_text():
        time.sleep(0)


def wait_until(condition, seconds=60):
    until = time.monotonic() + seconds
    while not (result := condition()) and time.monotonic() < until:
        time.sleep(0.01)
    return result


def pattern(seed, length):
    return bytes((seed * 31 + i * 7) & 255 for i in range(length))


@pytest.fixture(scope="module")
def target():
    """A target for the tests that neither stop nor kill it."""
    one = Target()
    yield one
    one.close()


@pytest.fixture
def own_target():
    """A target that a test may stop or kill."""
    one = Target()
    yield one
    one.close()


@pytest.fixture
def native():
    """A target that uses the package moonrail."""
    one = Target("native")
    yield one
    one.close()
