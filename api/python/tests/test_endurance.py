# SPDX-License-Identifier: BSD-2-Clause
"""Tests the packages under many cancellations, threads and processes.

SOAK=SECONDS is the duration of the test for growth of memory; its default is 3.
"""
import concurrent.futures
import ctypes
import gc
import multiprocessing
import os
import time
import zlib

import moonrail
from conftest import wait_until
from mooncake.engine import TransferEngine

STORM = 2000                 # batches
SLOT = 512 << 10             # bytes of one batch
PIECE = 64 << 10             # bytes of one request
RAILS = {"MOONRAIL_LOCAL": "0"}
SOAK = float(os.environ.get("SOAK", "3"))


class Storm:
    """Batches that are canceled while their bytes move. Even batches write, odd ones
    read. Each uses one slot of its memory and of the target's memory; the sources of
    writes and the destinations of reads get other bytes when the batch has ended."""

    def __init__(self, engine, target):
        self.engine, self.target = engine, target
        self.peer = engine.open(target.name)
        self.memory = engine.register(bytearray(8 * SLOT))
        self.view = self.memory.view()
        self.canceled = 0
        self.differences = []
        self.expected = {}          # slot: checksum that must not change
        # The target's second half holds the bytes that are read.
        self.target.ask("fill", 8 * SLOT, 8 * SLOT, 0x5A)

    def checksum(self, slot):
        """The checksum of the side that received bytes."""
        if slot % 2 == 0:
            return int(self.target.ask("crc", slot * SLOT, SLOT))
        return zlib.crc32(self.view[slot * SLOT:(slot + 1) * SLOT])

    def run(self, turn):
        slot = turn % 8
        self.check(slot)
        batch = self.engine.batch()
        there = self.target.address + (slot + 8 * (slot % 2)) * SLOT
        call = batch.write if slot % 2 == 0 else batch.read
        self.view[slot * SLOT:(slot + 1) * SLOT] = bytes([turn % 251]) * SLOT
        for i in range(0, SLOT, PIECE):
            at = slot * SLOT + i
            call(self.peer, self.memory[at:at + PIECE], there + i)
        transfer = batch.submit()
        if turn % 5:
            time.sleep((turn % 5) * 5e-5)
        transfer.cancel()
        transfer.wait()
        self.canceled += transfer.cancelled()
        # Overwrite the memory at once, as a program may that reuses it.
        self.view[slot * SLOT:(slot + 1) * SLOT] = b"\xee" * SLOT
        self.expected[slot] = self.checksum(slot)

    def check(self, slot):
        if slot in self.expected and self.checksum(slot) != self.expected[slot]:
            self.differences.append(slot)


def test_storm_of_canceled_batches_leaves_no_late_byte(target):
    with moonrail.Engine(name="127.0.0.1", settings=RAILS) as engine:
        storm = Storm(engine, target)
        for turn in range(STORM):
            storm.run(turn)
        for slot in range(8):
            storm.check(slot)
        assert storm.differences == []
        assert storm.canceled > STORM // 100


def transfer_in_child(number, name, address):
    """Runs in a process of the fork server. Returns the bytes that were read back."""
    with moonrail.Engine(name="127.0.0.1") as engine:
        memory = engine.register(bytearray([number]) * 65536 + bytearray(65536))
        peer = engine.open(name)
        peer.write(memory[:65536], address + number * 65536)
        peer.read(memory[65536:], address + number * 65536)
        return bytes(memory.view()[65536:])


def test_processes_of_a_fork_server_have_engines_of_their_own(target):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["moonrail", "mooncake.engine"])
    with moonrail.Engine(name="127.0.0.1") as engine:
        memory = engine.register(bytearray(8))
        with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
            results = [pool.submit(transfer_in_child, i, target.name, target.address)
                       for i in range(8)]
            for number, result in enumerate(results):
                assert result.result(240) == bytes([number]) * 65536
        assert engine.open(target.name).write(memory, target.address) == 8


class Mallinfo(ctypes.Structure):
    """struct mallinfo2 of mallinfo(3)."""
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
        "uordblks", "fordblks", "keepcost")]


def allocated():
    """Returns the bytes that this process has allocated. The size of the
    resident memory is no measure, because it grows while libfabric uses the
    pages of its buffers for the first time."""
    gc.collect()
    call = ctypes.CDLL(None).mallinfo2
    call.restype = Mallinfo
    info = call()
    return info.uordblks + info.hblkhd


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def test_thread_pool_does_not_grow_memory_or_descriptors(target):
    """Twelve threads use one engine of each module."""
    old = TransferEngine()
    assert old.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    engine = moonrail.Engine(name="127.0.0.1", settings=RAILS)
    memory = engine.register(bytearray(12 * 65536))
    buffer = old.allocate_managed_buffer(1 << 20)
    peer = engine.open(target.name)
    pids = os.getpid(), target.process.pid

    def used():
        return [allocated()] + [descriptors(pid) for pid in pids]

    def grown():
        return [last - first for first, last in zip(before, used())]

    def once(number):
        at = number * 65536
        there = target.address + at
        peer.write(memory[at:at + 65536], there)
        transfer = peer.read_async(memory[at:at + 4096], there)
        if number % 2:
            transfer.cancel()
        transfer.wait()
        own = engine.register(bytearray(4096))
        peer.write(own, there)
        own.close()
        here = buffer + at
        ret = old.batch_transfer_sync_write(target.name, [here, here + 4096],
                                            [there, there + 4096], [4096, 4096])
        batch = old.batch_transfer_async_read(target.name, [here], [there], [4096])
        return ret or old.get_batch_transfer_status([batch])

    def work(number, until):
        wrong = 0
        while time.monotonic() < until:
            wrong += once(number) != 0
        return wrong

    def run(seconds):
        until = time.monotonic() + seconds
        return sum(pool.map(work, range(12), [until] * 12))

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert run(max(1, SOAK / 4)) == 0
        before = used()
        assert run(SOAK) == 0
        # Canceled transfers and closed connections are freed a moment later.
        assert wait_until(lambda: (growth := grown())[0] < 1 << 20
                          and max(growth[1:]) <= 2), grown()
    engine.close()
