# SPDX-License-Identifier: BSD-2-Clause
"""Tests the package moonrail with a second process."""
import array
import asyncio
import concurrent.futures
import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import moonrail
from conftest import pattern, stop, wait_until

LOOPBACK = {"MOONRAIL_LOCAL": "0"}


@pytest.fixture
def engine():
    with moonrail.Engine(name="127.0.0.1") as one:
        yield one


@pytest.fixture
def rails_only():
    """An engine whose bytes go over the rails, also within this host."""
    with moonrail.Engine(name="127.0.0.1", settings=LOOPBACK) as one:
        yield one


def test_write_and_read_move_the_bytes(engine, target):
    memory = engine.register(bytearray(pattern(5, 65536)))
    with engine.open(target.name) as peer:
        buffers = peer.buffers()
        assert [(b.address, b.nbytes) for b in buffers] == [(target.address,
                                                             target.size)]
        assert peer.write(memory, buffers[0]) == 65536
        assert target.show(0, 65536) == pattern(5, 65536)
        target.ask("fill", 0, 100, 9)
        assert peer.read(memory[1000:1100], target.address) == 100
        assert memory.view()[1000:1101].tobytes() == b"\x09" * 100 + pattern(
            5, 65536)[1100:1101]
        assert peer.stats().tx_bytes >= 0
    with pytest.raises(ValueError, match="closed"):
        peer.write(memory, target.address)


LABELLED = """
import sys
import moonrail

with moonrail.Engine(name="127.0.0.1") as engine:
    pool = bytearray(1 << 20)
    outer = engine.register(pool, label="pool")
    part = engine.register(outer[4096:8192], label="layers.0.\u00e4", nested=True)
    print(engine.name, flush=True)
    for line in sys.stdin:
        result = None
        try:
            exec(line)
        except moonrail.Error as error:
            result = error.code
        print(result, flush=True)
"""


def test_labels_are_found_and_nested_memory_is_counted(engine):
    with subprocess.Popen([sys.executable, "-X", "utf8", "-c", LABELLED], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        def ask(line):
            print(line, file=process.stdin, flush=True)
            return process.stdout.readline().strip()

        peer = engine.open(process.stdout.readline().strip())
        outer, = peer.find("pool")
        part, = peer.find("layers.0.\u00e4")
        assert peer.buffers() == [outer]
        assert (part.address, part.nbytes) == (outer.address + 4096, 4096)
        assert [b.label for b in peer.find(None)] == ["pool", "layers.0.\u00e4"]
        assert peer.write(engine.register(bytearray(b"tensor")), part) == 6
        assert ask("result = bytes(pool[4096:4102])") == "b'tensor'"
        with pytest.raises(moonrail.Error) as error:
            peer.find("layers.1")
        assert error.value.code == -3 and "has no label" in str(error.value)
        assert ask("outer.close()") == "-4"
        assert ask("part.close()") == ask("outer.close()") == "None"
        process.stdin.close()


def test_bad_labels_and_ranges_are_refused(engine):
    outer = engine.register(bytearray(65536))
    for label in "x" * 256, "a\nb":
        with pytest.raises(moonrail.Error, match="label") as error:
            engine.register(bytearray(64), label=label)
        assert error.value.code == -1
    with pytest.raises(moonrail.Error) as error:
        engine.register(outer[:4096])
    assert error.value.code == -7
    inner = [engine.register(outer[:4096], nested=True) for _ in range(2)]
    for memory in inner:
        with pytest.raises(moonrail.Error):
            outer.close()
        memory.close()
    outer.close()


def test_memory_of_many_kinds_is_found(engine):
    for obj, size in ((bytearray(10), 10), (array.array("d", [1, 2]), 16),
                      (memoryview(bytearray(7)), 7), ((4096, 5), 5)):
        assert moonrail.address_of(obj)[1] == size
    block = (ctypes.c_uint32 * 4)()
    assert moonrail.address_of(block) == (ctypes.addressof(block), 16)

    class Tensor:
        nbytes = 24

        def data_ptr(self):
            return 8192

    class Cuda:
        __cuda_array_interface__ = {"data": (4096, True), "shape": (2, 3),
                                    "typestr": "<f4", "version": 3}

    assert moonrail.address_of(Tensor()) == (8192, 24)
    assert moonrail.address_of(Cuda()) == (4096, 24)
    with pytest.raises(ValueError, match="read-only"):
        moonrail.address_of(Cuda(), writable=True)
    with pytest.raises(TypeError, match="int has neither"):
        moonrail.address_of(7)
    with pytest.raises(BufferError):
        moonrail.address_of(b"fixed", writable=True)


def test_numpy_arrays_are_memory():
    numpy = pytest.importorskip("numpy")
    one = numpy.zeros((4, 5), dtype=numpy.float32)
    assert moonrail.address_of(one) == (one.ctypes.data, 80)
    with pytest.raises((BufferError, ValueError)):
        moonrail.address_of(one[:, ::2])
    from moonrail.memory import _address_of_dlpack
    assert _address_of_dlpack(one) == (one.ctypes.data, 80)


def test_allocated_memory_is_usable_and_freed(engine, target):
    with engine.alloc(1 << 20, "cpu:0") as memory:
        memory.view()[:5] = b"hello"
        engine.open(target.name).write(memory[:5], target.address)
        assert target.show(0, 5) == b"hello"
        assert memory.location == "cpu:0"
    with pytest.raises(moonrail.Error):
        engine.alloc(1 << 20, "cpu:999")


def test_errors_have_the_fields_of_the_record(engine, target):
    memory = engine.register(bytearray(4096))
    with pytest.raises(moonrail.Error) as caught:
        engine.register(memory, location="nowhere")
    assert caught.value.code < 0 and caught.value.text
    with pytest.raises(moonrail.Error):
        engine.open("127.0.0.1:1")
    with pytest.raises(moonrail.Error, match="MOONRAIL_NO_SUCH"):
        moonrail.Engine(name="127.0.0.1", settings={"MOONRAIL_NO_SUCH": "1"})
    with pytest.raises(moonrail.Error):
        moonrail.Engine(name="127.0.0.1", transports=["efa"])
    peer = engine.open(target.name)
    with pytest.raises(moonrail.TransferError, match="not registered") as failed:
        peer.write(memory, target.address + target.size)
    assert failed.value.status == 6
    with pytest.raises(ValueError, match="local memory of 4096"):
        peer.write(memory, (target.address, 100))


def test_batch_with_notification_arrives_after_its_bytes(engine, target):
    content = pattern(1, 1 << 20)
    memory = engine.register(bytearray(content))
    peer = engine.open(target.name)
    batch = engine.batch()
    for i in range(64):
        batch.write(peer, memory[i * 4096:(i + 1) * 4096],
                    target.address + i * 8192)
    assert len(batch) == 64
    assert batch.submit(notify=("batch", "64")).result(20) == 64 * 4096
    assert wait_until(lambda: "batch=64" in target.ask("notes"))
    for i in range(64):
        assert target.show(i * 8192, 4096) == content[i * 4096:(i + 1) * 4096]


def test_notification_to_this_engine_is_received(engine):
    engine.open(engine.name).notify("name", "text é")
    assert engine.notifications() == [("name", "text é")]
    assert engine.notifications() == []


def test_transfers_are_futures(engine, target):
    memory = engine.register(bytearray(1 << 20))
    peer = engine.open(target.name)
    transfers = [peer.write_async(memory, target.address) for _ in range(20)]
    called = []
    for transfer in transfers:
        transfer.add_done_callback(lambda t: called.append(t.result()))
    assert all(t.result(timeout=20) == 1 << 20 for t in transfers)
    assert wait_until(lambda: len(called) == 20)
    assert called == [1 << 20] * 20
    assert transfers[0].done() and transfers[0].exception() is None
    late = []
    transfers[0].add_done_callback(late.append)
    assert late == [transfers[0]]


def test_transfers_are_awaitable(engine, target):
    memory = engine.register(bytearray(1 << 20))
    peer = engine.open(target.name)

    async def run():
        sizes = await asyncio.gather(*(
            wrap(peer.read_async(memory[i << 16:(i + 1) << 16], target.address))
            for i in range(16)))
        with pytest.raises(moonrail.TransferError):
            await peer.write_async(memory, target.address + target.size)
        return sizes

    async def wrap(transfer):
        return await transfer

    assert asyncio.run(run()) == [1 << 16] * 16


def test_stopped_target_times_out_and_can_be_canceled(rails_only, own_target):
    memory = rails_only.register(bytearray(8 << 20))
    peer = rails_only.open(own_target.name)
    peer.write(memory[:8], own_target.address)
    stop(own_target.process)
    try:
        transfer = peer.write_async(memory, own_target.address)
        with pytest.raises(TimeoutError):
            transfer.result(0.2)
        assert not transfer.done()
        transfer.cancel()
        assert transfer.wait(30)
        with pytest.raises((concurrent.futures.CancelledError,
                            moonrail.TransferError)):
            transfer.result()
        with pytest.raises((TimeoutError, moonrail.TransferError)):
            peer.write(memory, own_target.address, timeout=0.2)
    finally:
        os.kill(own_target.process.pid, signal.SIGCONT)


def test_dropped_transfer_keeps_its_memory_until_its_end(rails_only, target):
    peer = rails_only.open(target.name)
    memory = rails_only.register(bytearray(1 << 20))
    for _ in range(50):
        peer.write_async(memory, target.address)
        gc.collect()
    assert wait_until(lambda: not (rails_only._sweep() or rails_only._dropped))
    assert peer.write(memory, target.address) == 1 << 20


def test_pages_of_canceled_batches_can_be_reused_at_once(rails_only, target):
    """After the end of a canceled transfer no byte of it lands any more."""
    peer = rails_only.open(target.name)
    memory = rails_only.register(bytearray(4 << 20))
    view = memory.view()
    for turn in range(200):
        view[:1 << 20] = bytes([turn & 255]) * (1 << 20)
        batch = rails_only.batch()
        for i in range(16):
            batch.write(peer, memory[i << 16:(i + 1) << 16],
                        target.address + (i << 16))
        transfer = batch.submit()
        if turn % 3:
            transfer.cancel()
        transfer.wait()
        view[:1 << 20] = b"\xee" * (1 << 20)     # must never arrive
        view[2 << 20:3 << 20] = bytes([turn & 255]) * (1 << 20)
        assert peer.write(memory[2 << 20:3 << 20], target.address) == 1 << 20
        assert peer.read(memory[3 << 20:4 << 20], target.address) == 1 << 20
        assert view[3 << 20:] == view[2 << 20:3 << 20]


def test_information_about_the_engine(engine, target):
    rails = engine.rails()
    assert rails and all(rail.name and rail.state == 0 for rail in rails)
    value, source = engine.settings()["MC_SLICE_SIZE"]
    assert int(value) > 0 and source in ("default", "environment")
    assert "cpu:0" in engine.topology()
    engine.probe(target.name, 10)
    with pytest.raises(moonrail.Error):
        engine.probe("127.0.0.1:1", 1)
    assert moonrail.__version__.count(".") == 2


def test_close_ends_waits_of_other_threads(own_target):
    # The close waits until the write has ended, at most MC_SLICE_TIMEOUT.
    engine = moonrail.Engine(name="127.0.0.1",
                             settings={**LOOPBACK, "MC_SLICE_TIMEOUT": "3"})
    memory = engine.register(bytearray(8 << 20))
    peer = engine.open(own_target.name)
    peer.write(memory[:8], own_target.address)
    stop(own_target.process)
    failed, called = [], []
    try:
        transfer = peer.write_async(memory, own_target.address)
        transfer.add_done_callback(called.append)
        thread = threading.Thread(target=lambda: failed.append(transfer.exception()))
        thread.start()
        time.sleep(0.1)
        engine.close()
        thread.join(60)
        assert not thread.is_alive()
    finally:
        os.kill(own_target.process.pid, signal.SIGCONT)
    assert isinstance(failed[0], moonrail.TransferError)
    assert called == [transfer]
    with pytest.raises(moonrail.Error):
        engine.register(bytearray(10))


def test_threads_share_an_engine(engine, target):
    peer = engine.open(target.name)
    wrong = []

    def work(number):
        memory = engine.register(bytearray(128 << 10))
        for turn in range(20):
            memory.view()[:65536] = pattern(number * 20 + turn, 65536)
            there = target.address + number * 65536
            peer.write(memory[:65536], there)
            peer.read(memory[65536:], there)
            if memory.view()[:65536] != memory.view()[65536:]:
                wrong.append((number, turn))
        memory.close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_engines_do_not_leak(target):
    def once():
        with moonrail.Engine(name="127.0.0.1") as engine:
            memory = engine.register(bytearray(4096))
            engine.open(target.name).write(memory, target.address)

    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    once()
    before = descriptors()
    for _ in range(5):
        once()
    assert wait_until(lambda: descriptors() <= before + 1)


def test_open_engine_at_exit_does_no_harm(target):
    program = """
import sys, moonrail
engine = moonrail.Engine(name="127.0.0.1")
memory = engine.register(bytearray(1 << 20))
peer = engine.open(sys.argv[1])
transfers = [peer.write_async(memory, int(sys.argv[2])) for _ in range(10)]
transfers[0].add_done_callback(print)
"""
    out = subprocess.run([sys.executable, "-c", program, target.name,
                          str(target.address)], capture_output=True, text=True,
                         timeout=120, check=False)
    assert out.returncode == 0, out.stderr
