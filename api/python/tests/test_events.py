# SPDX-License-Identifier: BSD-2-Clause
"""Tests unregistered memory, atomics, events, descriptors and paths, with a second
process."""
import asyncio
import select
import threading

import pytest

import moonrail
from conftest import pattern, wait_until


@pytest.fixture(scope="module", params=["1", "0"], ids=["local", "rails"])
def engine(request):
    """An engine that copies inside this host, and one whose bytes go over the rails."""
    with moonrail.Engine(name="127.0.0.1",
                         settings={"MOONRAIL_LOCAL": request.param}) as one:
        yield one


@pytest.fixture
def pair():
    """An engine, and a segment of it that another engine has opened."""
    with moonrail.Engine(name="127.0.0.1") as one, moonrail.Engine(
            name="127.0.0.1") as other:
        yield one, other.open(one.name)


def test_unregistered_memory_is_moved_with_bounce(engine, target):
    peer = engine.open(target.name)
    there = target.address
    data = pattern(5, 200000)
    with pytest.raises(moonrail.Error, match="not registered"):
        peer.write(data, there)
    assert peer.write(data, there, bounce=True) == len(data)
    assert target.show(1000, 2000) == data[1000:3000]
    back = bytearray(len(data))
    assert peer.read(back, there, 30, bounce=True) == len(data)
    assert back == data
    parts = [bytearray(100), bytearray(50)]
    assert peer.readv(parts, [(there, 150)], bounce=True) == 150
    assert parts[0] + parts[1] == data[:150]
    assert peer.writev([b"x" * 10], [(there, 4), (there + 6, 6)], bounce=True) == 10
    assert peer.read_async(back, there, bounce=True).result(30) == len(data)
    assert back[:12] == b"xxxx" + data[4:6] + b"x" * 6
    assert peer.write_async(data, there, bounce=True).result(30) == len(data)
    batch = engine.batch().write(peer, data, there, cookie=1, bounce=True)
    assert batch.read(peer, back, there, bounce=True).run(30) == 2 * len(data)
    with pytest.raises(ValueError, match="without bounce"):
        engine.batch().write(peer, data, there, bounce=True).submit(notify=("a", "b"))
    with pytest.raises(moonrail.TransferError):
        peer.write(data, there + target.size, bounce=True)


def test_atomics_return_the_old_value(engine, target):
    memory = engine.register(bytearray(64))
    view = memory.view().cast("Q")
    peer = engine.open(target.name)
    there = target.address + 4096
    target.ask("fill", 4096, 8, 0)
    engine.batch().atomic_add(peer, there, 2**64 - 1).run(30)
    batch = engine.batch().atomic_fetch_add(peer, memory[0:8], there, 101, cookie=4)
    transfer = batch.submit()
    assert transfer.result(30) == 8 and transfer.tasks() == [(4, 4, 8)]
    engine.batch().atomic_swap(peer, memory[8:16], (there, 8), 7).run()
    engine.batch().atomic_compare_swap(peer, memory[16:24], there, 7, 2**32).run()
    engine.batch().atomic_compare_swap(peer, memory[24:32], there, 8, 1).run()
    engine.batch().atomic_fetch_add(peer, memory[32:36], there + 4, 1).run()
    assert list(view[:4]) == [2**64 - 1, 100, 7, 2**32]
    assert memory.view()[32:36].cast("I")[0] == 1
    assert target.show(4096, 8) == (2 * 2**32).to_bytes(8, "little")
    with pytest.raises(moonrail.Error, match="atomic"):
        engine.batch().atomic_swap(peer, memory[0:8], there + 4, 1).submit()
    with pytest.raises(ValueError, match="reads and writes"):
        engine.batch().atomic_add(peer, there, 1).submit(notify=("a", "b"))


def test_receivers_wait_for_their_kind_of_notification(pair):
    engine, peer = pair

    async def collect(receive, count):
        notes = []
        while len(notes) < count:
            notes += await receive()
        return notes

    async def run():
        texts = asyncio.create_task(collect(engine.receive, 20))
        binary = asyncio.create_task(collect(engine.receive_binary, 20))
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        for i in range(20):
            await loop.run_in_executor(None, peer.notify, "t%d" % i, str(i))
            await loop.run_in_executor(None, peer.notify, "b%d" % i, bytes([i]))
        return await asyncio.wait_for(asyncio.gather(texts, binary), 60)

    texts, binary = asyncio.run(run())
    assert texts == [("t%d" % i, str(i)) for i in range(20)]
    assert binary == [("b%d" % i, bytes([i])) for i in range(20)]


def test_receiver_sleeps_while_other_events_happen(pair):
    engine, peer = pair
    calls = 0
    take = engine.binary_notifications

    def count():
        nonlocal calls
        calls += 1
        return take()

    async def run():
        nonlocal calls
        task = asyncio.create_task(engine._receivers.receive(count, lambda: False))
        memory = engine.register(bytearray(8))
        me = engine.open(engine.name)
        while not calls:
            await asyncio.sleep(0)
        for _ in range(20):
            await me.write_async(memory, memory.address)
        peer.notify("text", "is not what the receiver waits for")
        calls = 0
        await asyncio.sleep(0.2)
        assert calls < 60 and not task.done()
        peer.notify("binary", b"1")
        return await asyncio.wait_for(task, 60)

    assert asyncio.run(run()) == [("binary", b"1")]
    assert engine.notifications() == [("text", "is not what the receiver waits for")]


def test_receiver_ends_by_cancellation_and_close(pair):
    engine, _ = pair

    async def cancelled():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.receive(), 0.05)
        assert not engine._receivers._waiting

    async def closed():
        threading.Timer(0.1, engine.close).start()
        with pytest.raises(moonrail.Error):
            await asyncio.wait_for(engine.receive_binary(), 60)
        with pytest.raises(moonrail.Error):
            await engine.receive()

    asyncio.run(cancelled())
    asyncio.run(closed())


def test_event_descriptor_reports_the_end_of_a_transfer(engine, target):
    memory = engine.register(bytearray(4096))
    peer = engine.open(target.name)
    fd = engine.event_fd()
    engine.ended()
    transfer = engine.batch().write(peer, memory[:10], target.address, cookie=9).read(
        peer, memory[:20], target.address).submit()
    assert select.select([fd], [], [], 20)[0]
    ended = []
    assert wait_until(lambda: ended.extend(engine.ended()) or ended)
    assert ended == [(transfer.id, 4, 30, 9, 2)]
    assert not select.select([fd], [], [], 0)[0] and engine.ended() == []
    assert transfer.result() == 30


def test_flush_and_drain_wait_for_earlier_requests(engine, target):
    memory = engine.register(bytearray(1 << 20))
    peer = engine.open(target.name)
    transfers = [peer.write_async(memory, target.address) for _ in range(8)]
    peer.flush(30)
    assert all(one.done() for one in transfers)
    one = peer.write_async(memory, target.address)
    engine.drain()
    assert one.done()
    engine.drain(0.0)


def test_exported_descriptor_opens_the_segment(engine, target):
    with moonrail.Engine(name="127.0.0.1") as other:
        memory = other.register(bytearray(b"12345678"), read_only=True)
        with engine.import_segment(other.export()) as segment:
            assert segment.buffers()[0][:2] == (memory.address, 8)
            back = bytearray(8)
            segment.read(back, memory.address, bounce=True)
            assert back == b"12345678"
            with pytest.raises(moonrail.Error):
                segment.write(back, memory.address, bounce=True)
    with pytest.raises(moonrail.Error):
        engine.import_segment(b"no descriptor")


def test_paths_name_the_transport(engine, target):
    engine.warm_up(target.name)
    engine.sync()
    peer = engine.open(target.name)
    for paths in (peer.paths(), peer.paths("cpu:0")):
        assert paths and all(one.transport and one.provider for one in paths)
    with pytest.raises(moonrail.Error):
        peer.paths("moon:1")
    with pytest.raises(moonrail.Error):
        engine.warm_up("no colon")
