# SPDX-License-Identifier: BSD-2-Clause
"""Tests blocking calls, cookies, waiting for several transfers, prepared lists and binary
notifications, with a second process."""
import array
import asyncio
import os
import signal
import threading

import pytest

import moonrail
from conftest import Target, pattern, stop, wait_until

SIZE = 1 << 20


@pytest.fixture(scope="module", params=["1", "0"], ids=["local", "rails"])
def engine(request):
    """An engine that copies inside this host, and one whose bytes go over the rails."""
    with moonrail.Engine(name="127.0.0.1",
                         settings={"MOONRAIL_LOCAL": request.param}) as one:
        yield one


@pytest.fixture
def rails_only(request):
    """An engine that makes no copies inside the host, so all bytes go over the rails. The
    parameter of the fixture is a dict of further settings of the engine."""
    with moonrail.Engine(name="127.0.0.1", settings={
            "MOONRAIL_LOCAL": "0", **getattr(request, "param", {})}) as one:
        yield one


@pytest.fixture
def stopped(rails_only):
    """A peer that is stopped and knows the engine, memory of SIZE bytes, and the address
    of the peer's memory."""
    target = Target()
    memory = rails_only.register(bytearray(SIZE))
    peer = rails_only.open(target.name)
    peer.write(memory[:8], target.address)
    stop(target.process)
    yield peer, memory, target.address
    os.kill(target.process.pid, signal.SIGCONT)
    target.close()


def test_ranges_of_both_sides_are_concatenated(engine, target):
    memory = engine.register(bytearray(pattern(3, 4096)))
    peer = engine.open(target.name)
    there = target.address
    assert peer.writev([memory[0:100], memory[200:1000]],
                       [(there, 500), (there + 1000, 400)]) == 900
    want = pattern(3, 4096)[:100] + pattern(3, 4096)[200:1000]
    assert target.show(0, 500) == want[:500]
    assert target.show(1000, 400) == want[500:]
    assert peer.readv((memory[2000:2400], memory[3000:3500]),
                      [(there + 1000, 400), (there, 500)]) == 900
    view = memory.view()
    assert view[2000:2400].tobytes() == want[500:]
    assert view[3000:3500].tobytes() == want[:500]
    batch = engine.batch().readv(peer, [memory[0:1], memory[9:10]], [(there, 2)])
    assert batch.submit().result(20) == 2
    assert (view[0], view[9]) == (want[0], want[1])


def test_thousands_of_ranges_are_moved_by_one_call(engine, target):
    memory = engine.register(bytearray(pattern(9, SIZE)))
    peer = engine.open(target.name)
    count = 3000
    remotes = [(target.address + (i * 7 % count) * 200, 100) for i in range(count)]
    assert peer.writev([memory[i * 300:i * 300 + 100] for i in range(count)],
                       remotes) == count * 100
    for i in (0, 1, 777, count - 1):
        assert target.show((i * 7 % count) * 200, 100) == pattern(9, SIZE)[
            i * 300:i * 300 + 100]


def test_wrong_ranges_are_refused(engine, target):
    memory = engine.register(bytearray(4096))
    peer = engine.open(target.name)
    there = target.address
    for locals, remotes, text in (
            ([memory[:8]], [there, there], "need a length"),
            ([memory[:8]], [(there, 4), (there, 5)], "8 bytes, remote ranges of 9"),
            ([memory[:8], memory[8:16]], [(there, 8)], "16 bytes, remote buffer of 8"),
            ([], [], "0 bytes, remote ranges of 0|empty"),
            ([(memory.address, 0)], [there], "empty|length 0")):
        with pytest.raises(ValueError, match=text):
            peer.writev(locals, remotes)
    with pytest.raises(moonrail.Error, match="not registered") as refused:
        peer.write(bytearray(8), there)
    assert refused.type is moonrail.Error
    with pytest.raises(moonrail.TransferError) as failed:
        peer.writev([memory[:8]], [there + target.size])
    assert failed.value.status == 6 and not failed.value.unfenced
    with pytest.raises(ValueError, match="no request"):
        engine.batch().submit()
    with pytest.raises(ValueError, match="one piece"):
        engine.batch().writev(peer, [memory[:4], memory[4:8]], [(there, 8)]).submit(
            notify=("a", "b"))


def test_time_limit_ends_a_blocking_write(stopped):
    peer, memory, there = stopped
    with pytest.raises(moonrail.TransferTimeout) as late:
        peer.write(memory, there, timeout=0.2)
    assert isinstance(late.value, TimeoutError)
    assert isinstance(late.value, moonrail.TransferError)
    # The target is stopped, so that it cannot answer a fence.
    assert late.value.code == -9 and late.value.unfenced and str(late.value)
    with pytest.raises(moonrail.TransferTimeout):
        peer.write(memory, there, timeout=0)
    transfer = peer._engine.batch().write(peer, memory, there).submit(
        timeout=0.2)
    with pytest.raises(moonrail.TransferTimeout):
        transfer.result(60)


def test_signal_interrupts_a_blocking_write(stopped):
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    peer, memory, there = stopped
    old = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            peer.write(memory, there)
        with peer.prepare_write([(memory, there)]) as prepared:
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                prepared.run()
    finally:
        signal.signal(signal.SIGALRM, old)


# The close waits until the write has ended, at most MC_SLICE_TIMEOUT.
@pytest.mark.parametrize("rails_only", [{"MC_SLICE_TIMEOUT": "3"}], indirect=True,
                         ids=["rails"])
def test_close_ends_a_blocking_write(stopped):
    peer, memory, there = stopped
    failed = []

    def write():
        try:
            peer.write(memory, there)
        except moonrail.TransferError as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    wait_until(lambda: peer.stats().queued or peer._engine.rails()[0].inflight_bytes)
    peer._engine.close()
    thread.join(60)
    assert not thread.is_alive() and len(failed) == 1 and str(failed[0])


def test_cookies_return_with_the_results(engine, target):
    memory = engine.register(bytearray(4096))
    peer = engine.open(target.name)
    there = target.address
    transfer = engine.batch().write(peer, memory[:10], there, cookie=2**64 - 1).read(
        peer, memory[:20], there, cookie=7).write(peer, memory[:30], there).submit()
    transfer.result(20)
    assert transfer.tasks() == [(2**64 - 1, 4, 10), (7, 4, 20), (0, 4, 30)]
    failing = engine.batch().write(peer, memory[:10], there, cookie=5).write(
        peer, memory, there + target.size, cookie=6).submit()
    with pytest.raises(moonrail.TransferError):
        failing.result(20)
    tasks = failing.tasks()
    assert [task.cookie for task in tasks] == [5, 6]
    assert tasks[0].status == 4 and tasks[1].status == 6
    with pytest.raises(TypeError):
        engine.batch().write(peer, memory, there, cookie=-1).submit()


def test_tasks_of_a_transfer_in_progress_are_waiting(stopped):
    peer, memory, there = stopped
    transfer = peer._engine.batch().write(peer, memory, there,
                                          cookie=3).submit()
    assert transfer.tasks() == [(3, 0, 0)]
    transfer.cancel()
    transfer.wait()
    assert transfer.tasks()[0].status == transfer._status != 0


def test_first_ended_transfer_is_returned(stopped):
    peer, memory, there = stopped
    engine = peer._engine
    with moonrail.Engine(name="127.0.0.1") as other:
        here = other.register(bytearray(4096))
        me = engine.open(other.name)
        held = [peer.write_async(memory, there) for _ in range(3)]
        assert moonrail.wait_any(held, timeout=0) is None
        assert moonrail.wait_any(held, timeout=0.05) is None
        ending = me.write_async(memory[:4096], here.address)
        assert moonrail.wait_any([*held, ending], timeout=20) is ending
        assert moonrail.wait_any([ending, *held]) is ending
        with pytest.raises(TimeoutError, match="3 transfers"):
            list(moonrail.as_completed([*held, ending], timeout=0.1))
        with pytest.raises(ValueError, match="several engines"):
            moonrail.wait_any([ending, other.open(other.name).write_async(
                here, here.address)])
        with pytest.raises(ValueError, match="0 "):
            moonrail.wait_any([])
        called = []
        threading.Timer(0.2, held[1].cancel).start()
        held[1].add_done_callback(called.append)
        assert moonrail.wait_any(held, timeout=60) in held
        for one in held:
            one.cancel()
        assert len(list(moonrail.as_completed(held, timeout=60))) == 3
        assert wait_until(lambda: called == [held[1]])


def test_ended_batches_are_used_again(engine, target):
    memory = engine.register(bytearray(4096))
    peer = engine.open(target.name)

    def run(count):
        batch = engine.batch()
        for i in range(count):
            batch.write(peer, memory[i:i + 1], target.address, cookie=i)
        transfer = batch.submit(timeout=30)
        number = transfer._batch
        assert transfer.result(20) == count
        assert [task.cookie for task in transfer.tasks()] == list(range(count))
        return number

    assert len({run(count) for count in (3, 4, 3, 4, 4, 3)}) == 1
    assert len({run(count) for count in (1, 2, 5, 1, 2, 5)}) == 3
    assert len({run(2000), run(2000)}) == 2


def test_prepared_pieces_are_submitted_many_times(engine, target):
    count, length = 1000, 64
    memory = engine.register(bytearray(pattern(7, SIZE)))
    back = engine.register(bytearray(SIZE))
    peer = engine.open(target.name)

    def pieces(local):
        return [(local[i * 128:i * 128 + length], target.address + i * 200)
                for i in range(count)]

    with peer.prepare_write(pieces(memory)) as write, peer.prepare_read(
            pieces(back)) as read:
        assert len(write) == count
        target.ask("fill", 0, target.size, 0)
        assert write.run([5, 999, 5]) == 3 * length
        assert target.show(4 * 200, length) == bytes(length)
        assert target.show(999 * 200, length) == pattern(7, SIZE)[
            999 * 128:999 * 128 + length]
        assert write.run() == count * length
        for kind in (list, tuple, lambda r: array.array("I", r),
                     lambda r: array.array("Q", r)):
            transfer = read.submit(kind(range(0, count, 2)), cookie=8)
            assert transfer.result(20) == count // 2 * length
            assert transfer.tasks() == [(8, 4, count // 2 * length)]
            assert not transfer.checked and not transfer.restarted
        view = back.view()
        for i in (0, 2, 998):
            assert view[i * 128:i * 128 + length] == memory.view()[
                i * 128:i * 128 + length]
        assert view[128:128 + length] == bytes(length)
        assert read.run(range(1, count, 2)) == count // 2 * length
        assert view[128:128 + length] == memory.view()[128:128 + length]
    with pytest.raises(ValueError, match="closed"):
        write.run()


def test_prepared_transfers_are_awaitable(engine, target):
    memory = engine.register(bytearray(SIZE))
    peer = engine.open(target.name)
    prepared = peer.prepare_read(
        [(memory[i << 10:(i + 1) << 10], target.address) for i in range(256)])

    async def run():
        return await asyncio.gather(*(prepared.submit([i, i + 1]) for i in range(8)))

    assert asyncio.run(run()) == [2048] * 8


def test_prepared_numpy_indices_are_not_copied(engine, target):
    numpy = pytest.importorskip("numpy")
    memory = engine.register(bytearray(4096))
    prepared = engine.open(target.name).prepare_write(
        [(memory[i:i + 1], target.address + i) for i in range(100)])
    assert prepared.run(numpy.arange(50, dtype=numpy.uint32)) == 50
    assert prepared.run(numpy.arange(50)) == 50


def test_wrong_pieces_and_indices_are_refused(engine, target):
    memory = engine.register(bytearray(4096))
    peer = engine.open(target.name)
    there = target.address
    for pieces, kind, text in (
            ([], moonrail.Error, ""),
            ([(bytearray(8), there)], moonrail.Error, "registered"),
            ([(memory, there + target.size)], moonrail.Error, r"pieces\[0\]"),
            ([(memory, (there, 8))], ValueError, "piece 0: local memory of 4096"),
            ([(memory[:8], there), 5], TypeError, "")):
        with pytest.raises(kind, match=text):
            peer.prepare_write(pieces)
    with peer.prepare_write([(memory, there)]) as prepared:
        for indices, kind in (([1], moonrail.Error), ([], ValueError),
                              ([-1], TypeError), ([2**32], IndexError),
                              ("0", TypeError), (0, TypeError),
                              (array.array("I"), ValueError)):
            with pytest.raises(kind):
                prepared.submit(indices)
        memory.close()
        with pytest.raises(moonrail.Error, match="registered") as refused:
            prepared.submit()
        assert not refused.value.restarted


def test_prepared_list_survives_a_restart_of_its_target(rails_only, native):
    memory = rails_only.register(bytearray(pattern(1, 4096)))
    peer = rails_only.open(native.name)
    prepared = peer.prepare_write([(memory[:100], native.address),
                                   (memory[100:300], native.address + 1000)])
    assert prepared.run() == 300
    native.close()
    again = Target("native", native.name.rpartition(":")[2])
    try:
        assert (again.name, again.address) == (native.name, native.address)
        rails_only.open(native.name, fresh=True)
        transfer = prepared.submit([1])
        assert transfer.checked and transfer.restarted
        assert transfer.result(30) == 200
        assert again.show(1000, 200) == pattern(1, 4096)[100:300]
        assert not prepared.submit([1]).restarted
    finally:
        again.close()


def test_binary_notifications_carry_any_bytes(engine, native):
    peer = engine.open(native.name)
    peer.notify("all", bytes(range(256)))
    peer.notify("none", b"")
    peer.notify("array", array.array("H", [1, 2]))
    peer.notify("text", "is not among them")
    notes = []
    assert wait_until(lambda: notes.extend(native.ask("notes").split())
                      or len(notes) == 3)
    assert notes == ["all=" + bytes(range(256)).hex(), "none=", "array=01000200"]
    with pytest.raises(moonrail.Error):
        peer.notify("long", bytes((1 << 20) + 1))
    with pytest.raises(TypeError):
        peer.notify("number", 5)


def test_binary_notification_to_this_engine_is_received(engine):
    me = engine.open(engine.name)
    large = os.urandom(1 << 19)
    for i in range(100):
        me.notify("n%d" % i, bytes([i]) * i)
    me.notify("large", large)
    me.notify("text", "text")
    notes = engine.binary_notifications()
    assert [note.name for note in notes[:100]] == ["n%d" % i for i in range(100)]
    assert notes[99].data == b"c" * 99 and notes[100] == ("large", large)
    assert engine.binary_notifications() == []
    assert engine.notifications() == [("text", "text")]
