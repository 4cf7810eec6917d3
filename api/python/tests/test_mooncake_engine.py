# SPDX-License-Identifier: BSD-2-Clause
"""Tests every method of mooncake.engine.TransferEngine with a second process."""
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from conftest import Target, pattern, stop, wait_until
from mooncake import engine as module
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

KIB = 1024
SIZE = 8 << 20


class Memory:
    """Memory of this process that is registered with an engine."""

    def __init__(self, engine, size=SIZE):
        self.bytes = (ctypes.c_ubyte * size)()
        self.address = ctypes.addressof(self.bytes)
        assert engine.register_memory(self.address, size) == 0

    def fill(self, offset, data):
        ctypes.memmove(self.address + offset, data, len(data))

    def show(self, offset, length):
        return ctypes.string_at(self.address + offset, length)


@pytest.fixture
def engine():
    one = TransferEngine()
    assert one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return one


@pytest.fixture
def memory(engine):
    return Memory(engine)


def ranges(count, length):
    return [i * 2 * length for i in range(count)], [length] * count


def test_module_has_the_constants_and_the_enum():
    for name in ("CUDA", "EFA", "HIP", "MNNVL", "MUSA", "INTRA_NVLINK"):
        assert isinstance(getattr(module, "SUPPORT_" + name), bool)
    assert (int(module.Read), int(module.Write)) == (0, 1)
    assert TransferEngine.TransferOpcode.Write == TransferOpcode.Write == 1
    note = TransferNotify()
    note.name = "n"
    assert (note.name, note.msg) == ("n", "")


def test_methods_before_initialize_fail_without_exception():
    one = TransferEngine()
    assert one.get_rpc_port() == 0
    assert one.transfer_sync_write("x:1", 4096, 4096, 1) == -1
    assert one.batch_transfer_async_write("x:1", [1], [1], [1]) == 0
    assert one.register_memory(4096, 4096) < 0
    assert one.send_probe("127.0.0.1:1") == -1
    assert one.allocate_managed_buffer(100) == 0
    assert one.get_notifies() == []
    assert one.get_engine_ptr() == 0
    assert "cpu:0" in json.loads(one.get_local_topology())


def test_initialize_with_unknown_server_or_twice_returns_minus_1(engine):
    one = TransferEngine()
    assert one.initialize("127.0.0.1", "nonsense://x", "tcp", "") == -1
    assert one.initialize("127.0.0.1", "P2PHANDSHAKE", "xgmi", "") == -1
    assert one.initialize_ext("127.0.0.1", "x", "tcp", "", "nonsense") == -1
    assert one.initialize_ext("127.0.0.1", "P2PHANDSHAKE", "tcp", "", "") == 0
    assert one.get_rpc_port() > 0
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1


@pytest.mark.parametrize("args", [
    ("t", -1, 1, 1), ("t", 1, 1 << 64, 1), ("t", None, 1, 1), ("t", 1.5, 1, 1),
    (1, 1, 1, 1)])
def test_wrong_argument_types_raise_type_error(engine, args):
    with pytest.raises(TypeError):
        engine.transfer_sync_write(*args)


def test_lists_with_wrong_contents_raise_type_error(engine):
    for wrong in (None, 7, "12", [1, -1], [1, "2"]):
        with pytest.raises(TypeError):
            engine.batch_transfer_sync_write("t", wrong, [1], [1])
    assert engine.batch_transfer_sync_write("t", [1, 2], [1], [1]) == -1
    assert engine.batch_transfer_async_read("t", [1, 2], [1], [1]) == 0


def test_sync_write_and_read_move_the_bytes(engine, memory, target):
    data = pattern(1, 100 * KIB)
    memory.fill(0, data)
    assert engine.transfer_sync_write(target.name, memory.address,
                                      target.address + 64, len(data)) == 0
    assert target.show(64, len(data)) == data
    target.ask("fill", 0, 1000, 77)
    assert engine.transfer_sync_read(
        target_hostname=target.name, buffer=memory.address + SIZE // 2,
        peer_buffer_address=target.address, length=1000, transport_hint="tcp") == 0
    assert memory.show(SIZE // 2, 1000) == b"\x4d" * 1000


def test_batch_sync_moves_every_range(engine, memory, target):
    offsets, lengths = ranges(64, 5000)
    for i, offset in enumerate(offsets):
        memory.fill(offset, pattern(i, 5000))
    here = [memory.address + offset for offset in offsets]
    there = [target.address + offset for offset in offsets]
    assert engine.batch_transfer_sync_write(target.name, here, there, lengths) == 0
    for i, offset in enumerate(offsets):
        assert target.show(offset, 5000) == pattern(i, 5000)
    memory.fill(0, bytes(SIZE))
    assert engine.batch_transfer_sync_read(target.name, tuple(here), there,
                                           lengths) == 0
    for i, offset in enumerate(offsets):
        assert memory.show(offset, 5000) == pattern(i, 5000)
    assert engine.batch_transfer_sync_write(target.name, [], [], []) == 0


def test_range_outside_the_target_is_refused(engine, memory, target):
    beyond = target.address + target.size
    assert engine.transfer_sync_write(target.name, memory.address, beyond, 8) == -1
    assert engine.batch_transfer_sync_write(
        target.name, [memory.address] * 2, [target.address, beyond], [8, 8]) == -1
    one = engine.transfer_submit_write(target.name, memory.address, beyond, 8)
    assert engine.get_batch_transfer_status([one]) == -1
    assert engine.transfer_sync_write(target.name, memory.address,
                                      target.address, 8) == 0


def test_unknown_target_returns_an_error(engine, memory):
    assert engine.transfer_sync_write("127.0.0.1:1", memory.address, 1, 1) == -1
    assert engine.transfer_submit_write("127.0.0.1:1", memory.address, 1, 1) == 0
    assert engine.get_first_buffer_address("127.0.0.1:1") == 0
    assert engine.send_probe("127.0.0.1:1") != 0


def test_transfer_sync_notifies_the_target(engine, memory, target):
    memory.fill(0, b"abc")
    assert engine.transfer_sync(target.name, memory.address, target.address, 3,
                                TransferOpcode.Write,
                                TransferNotify("one", "text")) == 0
    assert engine.batch_transfer_sync(
        target.name, [memory.address] * 2, [target.address] * 2, [3, 3],
        TransferOpcode.Write, notify=TransferNotify("two", "")) == 0
    assert target.show(0, 3) == b"abc"
    notes = []
    assert wait_until(lambda: notes.extend(target.ask("notes").split())
                      or len(notes) >= 2)
    assert notes == ["one=text", "two="]
    assert engine.transfer_sync(target.name, memory.address, target.address, 3,
                                TransferOpcode.Read) == 0
    with pytest.raises(ValueError, match="opcode: 7"):
        engine.transfer_sync(target.name, memory.address, target.address, 3, 7)


def test_async_batches_end_and_are_freed(engine, memory, target):
    offsets, lengths = ranges(16, 4096)
    here = [memory.address + offset for offset in offsets]
    there = [target.address + offset for offset in offsets]
    memory.fill(0, pattern(3, 4096))
    writes = [engine.batch_transfer_async_write(target.name, here, there, lengths)
              for _ in range(20)]
    assert 0 not in writes and len(set(writes)) == 20
    assert engine.get_batch_transfer_status(writes) == 0
    assert target.show(0, 4096) == pattern(3, 4096)
    assert engine.get_batch_transfer_status(writes) == -1      # freed
    read = engine.batch_transfer_async_read(target.name, here, there, lengths)
    assert engine.get_batch_transfer_status([read]) == 0
    other = engine.batch_transfer_async(target.name, here, there, lengths,
                                        TransferOpcode.Write)
    while (status := engine.transfer_check_status(other)) == 0:
        pass
    assert status == 1
    assert engine.transfer_check_status(other) == -1
    one = engine.transfer_submit_write(target.name, here[0], there[0], 4096)
    while (status := engine.transfer_check_status(one)) == 0:
        pass
    assert status == 1


def test_target_that_was_restarted_is_found_again(engine, memory, own_target):
    first = own_target
    assert engine.transfer_sync_write(first.name, memory.address,
                                      first.address, 8) == 0
    first.close()
    assert engine.transfer_sync_write(first.name, memory.address,
                                      first.address, 8) == -1
    second = Target()
    try:
        memory.fill(0, b"new peer")
        assert engine.transfer_sync_write(second.name, memory.address,
                                          second.address, 8) == 0
        assert second.show(0, 8) == b"new peer"
    finally:
        second.close()


def test_batches_of_a_killed_target_fail(engine, memory, own_target):
    # 2 GB, which take far longer than the time until the target is killed
    ids = [engine.batch_transfer_async_write(
        own_target.name, [memory.address] * 4, [own_target.address] * 4, [1 << 20] * 4)
        for _ in range(500)]
    own_target.close()
    assert engine.get_batch_transfer_status(ids) == -1
    assert all(engine.transfer_check_status(one) == -1 for one in ids)


def test_registration_returns_codes(engine):
    blocks = [(ctypes.c_ubyte * 65536)() for _ in range(4)]
    at = [ctypes.addressof(block) for block in blocks]
    assert engine.batch_register_memory(at, [65536] * 4) == 0
    assert engine.batch_register_memory(at, [65536] * 3) == -1
    assert engine.register_memory(at[0], 65536) < 0
    assert engine.batch_unregister_memory(at) == 0
    assert engine.unregister_memory(at[0]) < 0
    assert engine.register_memory(buffer_addr=at[0], capacity=100,
                                  location="cpu:0") == 0
    assert engine.unregister_memory(at[0]) == 0


def test_managed_buffers_are_registered_and_reused(engine, target):
    first = engine.allocate_managed_buffer(10000)
    second = engine.allocate_managed_buffer(10000)
    assert first and second and abs(first - second) >= 16384
    assert engine.write_bytes_to_buffer(first, "hello", 5) == 0
    assert engine.write_bytes_to_buffer(first + 5, memoryview(b" world"), 6) == 0
    assert engine.read_bytes_from_buffer(first, 11) == b"hello world"
    assert engine.transfer_sync_write(target.name, first, target.address, 11) == 0
    assert target.show(0, 11) == b"hello world"
    assert engine.free_managed_buffer(first, 10000) == 0
    assert engine.free_managed_buffer(first, 10000) == -1
    assert engine.allocate_managed_buffer(16384) == first
    large = engine.allocate_managed_buffer(257 << 20)
    assert large and engine.free_managed_buffer(large, 257 << 20) == 0
    assert engine.get_first_buffer_address(
        "127.0.0.1:%d" % engine.get_rpc_port()) != 0


def test_bytes_outside_mapped_memory_raise_value_error(engine):
    with pytest.raises(ValueError, match="0x1000 are not readable"):
        engine.read_bytes_from_buffer(4096, 10)
    with pytest.raises(ValueError, match="0x1000 are not writable"):
        engine.write_bytes_to_buffer(4096, b"x" * 10, 10)
    with pytest.raises(ValueError, match="data has 3 bytes"):
        engine.write_bytes_to_buffer(4096, b"abc", 10)


def test_information_about_peers(engine, target):
    assert engine.get_first_buffer_address(target.name) == target.address
    assert engine.send_probe(target.name) == 0
    assert engine.warmup_efa_segment(target.name) == 0
    assert engine.get_engine_ptr() > 0
    inner = engine.get_engine()
    del engine
    assert isinstance(inner, module.InnerTransferEngine)


def test_device_filter_belongs_to_one_engine():
    one, other = TransferEngine(), TransferEngine()
    assert one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "lo") == 0
    assert json.loads(one.get_local_topology())["cpu:0"] == [["lo"], []]
    assert other.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp",
                            "no_such_device") == -1


def test_threads_share_an_engine(engine, memory, target):
    wrong = []

    def work(number):
        offset = number * 256 * KIB
        for turn in range(30):
            data = pattern(number + turn, 4096)
            memory.fill(offset, data)
            ret = engine.batch_transfer_sync_write(
                target.name, [memory.address + offset + i * 64 for i in range(64)],
                [target.address + offset + i * 64 for i in range(64)], [64] * 64)
            ret |= engine.transfer_sync_read(
                target.name, memory.address + offset + 8192,
                target.address + offset, 4096)
            if ret or memory.show(offset + 8192, 4096) != data:
                wrong.append((number, turn, ret))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_waiting_releases_the_gil(monkeypatch, own_target):
    """Only the second thread can end the wait: it continues the stopped target, and needs
    the GIL for that. A wait that held the GIL would end only after MC_SLICE_TIMEOUT."""
    monkeypatch.setenv("MOONRAIL_LOCAL", "0")
    monkeypatch.setenv("MC_SLICE_TIMEOUT", "30")
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    memory = Memory(engine)
    there = own_target.name, memory.address, own_target.address

    def go_on():
        time.sleep(0.2)         # until the first thread waits
        os.kill(own_target.process.pid, signal.SIGCONT)

    def wait_for_batch(*args):
        return engine.get_batch_transfer_status(
            [engine.transfer_submit_write(*args)])

    for call in (wait_for_batch, engine.transfer_sync_write):
        assert engine.transfer_sync_write(*there, 8) == 0
        stop(own_target.process)
        thread = threading.Thread(target=go_on)
        start = time.monotonic()
        thread.start()
        assert call(*there, 4 << 20) == 0
        assert time.monotonic() - start < 30
        thread.join()


def test_child_of_fork_gets_errors_and_the_parent_goes_on(engine, memory, target):
    assert engine.transfer_sync_write(target.name, memory.address,
                                      target.address, 8) == 0
    child = os.fork()
    if not child:
        ret = engine.transfer_sync_write(target.name, memory.address,
                                         target.address, 8)
        os._exit(0 if ret == -1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert engine.transfer_sync_write(target.name, memory.address,
                                      target.address, 8) == 0


def test_interrupt_ends_a_wait(own_target):
    program = """
import os
os.environ["MOONRAIL_LOCAL"] = "0"
import ctypes, signal, sys, threading, time
from mooncake.engine import TransferEngine
engine = TransferEngine()
engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
memory = (ctypes.c_ubyte * (1 << 20))()
engine.register_memory(ctypes.addressof(memory), 1 << 20)
name, address, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
assert engine.transfer_sync_write(name, ctypes.addressof(memory), address, 8) == 0
os.kill(pid, signal.SIGSTOP)
try:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    for _ in range(64):
        engine.transfer_sync_write(name, ctypes.addressof(memory), address, 1 << 20)
    sys.exit("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
finally:
    os.kill(pid, signal.SIGCONT)
"""
    out = subprocess.run([sys.executable, "-c", program, own_target.name,
                          str(own_target.address), str(own_target.process.pid)],
                         capture_output=True, text=True, timeout=120, check=False)
    assert (out.stdout, out.returncode) == ("interrupted\n", 0), out.stderr
    assert out.returncode == 0


def test_engine_at_exit_does_no_harm(target):
    program = """
import ctypes, sys
from mooncake.engine import TransferEngine
engine = TransferEngine()
engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
memory = (ctypes.c_ubyte * (1 << 20))()
engine.register_memory(ctypes.addressof(memory), 1 << 20)
for _ in range(10):
    engine.batch_transfer_async_write(sys.argv[1], [ctypes.addressof(memory)] * 8,
                                      [int(sys.argv[2])] * 8, [1 << 20] * 8)
"""
    out = subprocess.run([sys.executable, "-c", program, target.name,
                          str(target.address)], capture_output=True, text=True,
                         timeout=120, check=False)
    assert out.returncode == 0, out.stderr
