// SPDX-License-Identifier: BSD-2-Clause
//! Each test has a second process.
mod common;

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use common::{block_on, pattern, wait_until, Target, SIZE};
use moonrail::{
    fabric_version, set_log, version, AllocFlags, Engine, Error, LogLevel, Memory,
    PathKind, PeerState, RailState, Segment, Status, Transfer,
};

const LIMIT: Option<Duration> = Some(Duration::from_secs(40));

#[test]
fn target_process() {
    common::target_process();
}

fn engine() -> Engine {
    Engine::new("127.0.0.1").unwrap()
}

/// Returns an engine whose bytes go over the rails, even within this host.
fn rails_only() -> Engine {
    Engine::builder("127.0.0.1").setting("MOONRAIL_LOCAL", "0").build().unwrap()
}

/// Stops a target, and then submits a write of 4 MiB to that target.
fn held_write(engine: &Engine, target: &Target) -> (Memory, Transfer, Segment) {
    let memory = engine.alloc(SIZE).unwrap();
    let peer = engine.open(&target.name).unwrap();
    peer.write(memory.slice(..8), target.address).unwrap();
    target.stop();
    let transfer = engine.batch().write(&peer, &memory, target.address).submit().unwrap();
    (memory, transfer, peer)
}

#[test]
fn write_and_read_move_the_bytes() {
    let mut target = Target::start();
    for engine in [engine(), rails_only()] {
        let memory = engine.alloc(1 << 20).unwrap();
        let peer = engine.open(&target.name).unwrap();
        let buffers = peer.buffers().unwrap();
        assert_eq!(buffers.len(), 1);
        assert_eq!((buffers[0].address, buffers[0].len), (target.address, SIZE as u64));
        assert_eq!(memory.len(), 1 << 20);
        assert!(!memory.is_empty() && memory.as_ptr() as u64 == memory.address());
        let bytes = pattern(5, 65536);
        memory.write(3, &bytes).unwrap();
        assert_eq!(memory.to_vec(3, 65536).unwrap(), bytes);
        assert_eq!(peer.write(memory.slice(3..65539), target.address).unwrap(), 65536);
        assert_eq!(target.show(0, 65536), bytes);
        target.ask("fill 1000 100 9");
        assert_eq!(
            peer.read(memory.slice(100_000..=100_199), target.address + 900).unwrap(),
            200
        );
        let mut got = [0; 200];
        memory.read(100_000, &mut got).unwrap();
        assert_eq!(got[..100], bytes[900..1000]);
        assert_eq!(got[100..], [9; 100]);
    }
}

#[test]
fn registered_vector_is_returned_by_release() {
    let target = Target::start();
    let engine = engine();
    let peer = engine.open(&target.name).unwrap();
    let mut vector = pattern(1, 10_000);
    vector.reserve(5000);
    let memory = engine.register(vector).unwrap();
    assert_eq!(memory.location(), "*");
    peer.write(&memory, target.address).unwrap();
    memory.write(0, &[0; 10_000]).unwrap();
    peer.read(&memory, target.address).unwrap();
    // SAFETY: no transfer is in progress, and no peer knows the memory.
    assert_eq!(unsafe { memory.as_slice() }, pattern(1, 10_000));
    let piece = memory.slice(10..20);
    assert!(piece.len() == 10 && !piece.is_empty() && piece.memory().len() == 10_000);
    assert!(memory.is_shared());
    drop(piece);
    assert!(!memory.is_shared());
    assert_eq!(memory.release().unwrap(), pattern(1, 10_000));
    assert!(engine.alloc(4096).unwrap().release().unwrap().is_empty());
    let mut bytes = vec![7u8; 4096];
    // SAFETY: the vector lives longer than the registration.
    let raw = unsafe { engine.register_raw(bytes.as_mut_ptr(), 4096, "cpu:0") }.unwrap();
    peer.write(&raw, target.address).unwrap();
    raw.release().unwrap();
}

#[test]
fn memory_in_use_is_not_released() {
    let target = Target::start();
    let engine = rails_only();
    let (memory, transfer, _) = held_write(&engine, &target);
    assert!(memory.is_shared());
    assert_eq!(memory.release().unwrap_err().code, Error::BUSY);
    target.go_on();
    transfer.wait().unwrap();
}

#[test]
fn leaked_transfer_keeps_its_memory() {
    let mut target = Target::start();
    let engine = rails_only();
    let (memory, transfer, _) = held_write(&engine, &target);
    memory.write(0, &pattern(3, SIZE)).unwrap();
    let (memory, extra) = (memory.slice(..), memory);
    mem::forget(transfer);
    drop(memory);
    drop(extra);
    drop(engine);
    target.go_on();
    // The bytes arrive, because the transfer keeps the memory, the batch and the engine
    // alive.
    assert!(wait_until(|| target.show(SIZE - 64, 64) == pattern(3, SIZE)[SIZE - 64..]));
}

#[test]
fn dropped_transfer_releases_its_memory_at_its_end() {
    let target = Target::start();
    let engine = rails_only();
    let (memory, transfer, _) = held_write(&engine, &target);
    drop(transfer);
    target.go_on();
    assert!(wait_until(|| !memory.is_shared()));
    memory.release().unwrap();
}

#[test]
fn canceled_transfer_ends_with_its_record() {
    let target = Target::start();
    // The target answers the fence when it runs again.
    let engine = Engine::builder("127.0.0.1")
        .setting("MOONRAIL_LOCAL", "0")
        .setting("MOONRAIL_FENCE_MS", "30000")
        .build()
        .unwrap();
    let (_memory, transfer, _) = held_write(&engine, &target);
    assert!(transfer.wait_timeout(Duration::from_millis(50)).is_none());
    assert!(!transfer.is_done());
    assert_eq!(transfer.status().0, Status::Waiting);
    transfer.cancel();
    target.go_on();
    let error = transfer.wait().unwrap_err();
    assert_eq!((error.code, error.status), (Error::CANCELED, Some(Status::Canceled)));
    assert!(!error.unfenced() && !error.unknown() && !error.stale());
    assert!(transfer.is_done());
    assert_eq!(
        transfer.wait_timeout(Duration::ZERO).unwrap().unwrap_err().code,
        error.code
    );
}

#[test]
fn time_limit_ends_a_transfer() {
    let target = Target::start();
    let engine = rails_only();
    let (memory, first, peer) = held_write(&engine, &target);
    let second = engine
        .batch()
        .write(&peer, &memory, target.address)
        .time_limit(Duration::from_millis(100))
        .submit()
        .unwrap();
    let error = second.wait().unwrap_err();
    assert_eq!(error.code, Error::TIMED_OUT);
    assert!(matches!(error.status, Some(Status::Failed | Status::Timeout)));
    assert_eq!(error.unfenced(), error.status == Some(Status::Timeout));
    target.go_on();
    drop(first);
}

#[test]
fn write_to_a_killed_peer_fails_with_its_record() {
    let mut target = Target::start();
    let engine = Engine::builder("127.0.0.1")
        .setting("MOONRAIL_LOCAL", "0")
        .setting("MC_SLICE_TIMEOUT", "3")
        .build()
        .unwrap();
    let (_memory, transfer, _) = held_write(&engine, &target);
    target.kill();
    let error = transfer.wait().unwrap_err();
    assert!(matches!(error.status, Some(Status::Failed | Status::Timeout)), "{error:?}");
    assert!(
        error.code > 0 && !error.text.is_empty() && !error.peer.is_empty(),
        "{error:?}"
    );
    assert!(error.to_string().contains(&error.text));
    assert!(engine.probe(&target.name, Some(Duration::from_secs(2))).is_err());
}

#[test]
fn bad_arguments_are_refused_with_a_reason() {
    let target = Target::start();
    let engine = engine();
    let other = Engine::builder("127.0.0.1").ip("127.0.0.1").port(0).build().unwrap();
    let memory = engine.alloc(4096).unwrap();
    let peer = engine.open(&target.name).unwrap();
    let refused = |error: Error, text: &str| {
        assert!(error.code > 0 && error.status.is_none(), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(engine.register(Vec::new()).err().unwrap(), "");
    refused(engine.alloc_at(4096, "cpu:999", AllocFlags::default()).err().unwrap(), "");
    refused(engine.open("127.0.0.1:1").err().unwrap(), "");
    refused(engine.open_fresh("a\0b").err().unwrap(), "zero byte");
    refused(engine.import(b"no blob").err().unwrap(), "");
    refused(memory.write(4000, &[0; 97]).unwrap_err(), "not inside memory of 4096");
    refused(memory.read(usize::MAX, &mut [0; 2]).unwrap_err(), "not inside");
    refused(engine.batch().submit().err().unwrap(), "no request");
    refused(
        other.batch().write(&peer, &memory, 0).submit().err().unwrap(),
        "another engine",
    );
    refused(peer.write(memory.slice(5..5), target.address).unwrap_err(), "length 0");
    let builder = Engine::builder("127.0.0.1");
    refused(
        builder.clone().setting("MOONRAIL_NO_SUCH", "1").build().err().unwrap(),
        "NO_SUCH",
    );
    refused(builder.clone().transport("no-such").build().err().unwrap(), "");
    refused(builder.metadata("unknown://x").build().err().unwrap(), "");
    let error = peer.write(&memory, target.address + SIZE as u64).unwrap_err();
    assert_eq!(error.status, Some(Status::Failed));
    assert!(error.text.contains("not registered"), "{error}");
    assert!(error.peer.contains("127.0.0.1") && error.provider_errno >= 0);
}

#[test]
#[should_panic(expected = "range 10..5000 is not inside memory of 4096 bytes")]
fn slice_outside_memory_panics() {
    engine().alloc(4096).unwrap().slice(10..5000);
}

#[test]
fn pieces_and_atomics_are_executed() {
    let mut target = Target::start();
    let engine = engine();
    let memory = engine.alloc_at(
        8192,
        "cpu:0",
        AllocFlags { small_pages: true, ..Default::default() },
    );
    let memory = memory.unwrap();
    assert_eq!(memory.location(), "cpu:0");
    let peer = engine.open(&target.name).unwrap();
    memory.write(0, b"abcdefgh").unwrap();
    let at = target.address;
    let local = [memory.slice(4..8), memory.slice(..4)];
    let batch = engine.batch().write_pieces(&peer, &local, &[(at, 2), (at + 10, 6)]);
    assert!(batch.len() == 1 && !batch.is_empty());
    assert_eq!(batch.submit().unwrap().wait().unwrap(), 8);
    assert_eq!(target.show(0, 2), b"ef");
    assert_eq!(target.show(10, 6), b"ghabcd");
    let back = [memory.slice(100..107), memory.slice(200..201)];
    let batch = engine.batch().read_pieces(&peer, &back, &[(at + 10, 6), (at, 2)]);
    assert_eq!(batch.submit().unwrap().wait().unwrap(), 8);
    assert_eq!(memory.to_vec(100, 7).unwrap(), b"ghabcde");
    let number = at + 4096;
    let value = |m: &Memory, offset| {
        u64::from_ne_bytes(m.to_vec(offset, 8).unwrap().try_into().unwrap())
    };
    let run = |batch: moonrail::Batch| batch.submit().unwrap().wait().unwrap();
    run(engine.batch().atomic_add(&peer, number, 5));
    run(engine.batch().atomic_fetch_add(&peer, memory.slice(1024..1032), number, 2));
    run(engine.batch().atomic_swap(&peer, memory.slice(1032..1040), number, 40));
    run(engine.batch().atomic_compare_swap(
        &peer,
        memory.slice(1040..1048),
        number,
        40,
        41,
    ));
    let old = [1024, 1032, 1040].map(|offset| value(&memory, offset));
    assert_eq!(old, [5, 7, 40]);
    peer.read(memory.slice(1048..1056), number).unwrap();
    assert_eq!(value(&memory, 1048), 41);
}

#[test]
fn notifications_arrive_after_their_bytes() {
    let mut target = Target::start();
    let engine = engine();
    let memory = engine.register(pattern(7, 4096)).unwrap();
    let peer = engine.open(&target.name).unwrap();
    let batch = engine.batch().write(&peer, &memory, target.address);
    batch.submit_and_notify("batch", "1").unwrap().wait().unwrap();
    let mut notes = String::new();
    assert!(wait_until(|| {
        notes += &target.ask("notes");
        notes == "batch=1;"
    }));
    assert_eq!(target.show(0, 4096), pattern(7, 4096));
    peer.notify("plain", "text").unwrap();
    assert_eq!(target.ask("notes"), "plain=text;");
    let batch = engine.batch().atomic_add(&peer, target.address, 1);
    assert!(batch.submit_and_notify("n", "t").is_err());
    let me = engine.open(&engine.name()).unwrap();
    me.notify("name", "é").unwrap();
    let got = engine.notifications();
    assert_eq!((got[0].name.as_str(), got[0].text.as_str()), ("name", "é"));
    assert!(engine.notifications().is_empty());
}

/// A future of a transfer that sends a message after each poll.
struct Reported<'a> {
    transfer: &'a Transfer,
    polled: mpsc::Sender<()>,
}

impl Future for Reported<'_> {
    type Output = moonrail::Result<u64>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context) -> Poll<Self::Output> {
        let state = Pin::new(&mut self.transfer).poll(context);
        let _ = self.polled.send(());
        state
    }
}

#[test]
fn transfers_are_futures() {
    let target = Target::start();
    let engine = rails_only();
    let (memory, transfer, peer) = held_write(&engine, &target);
    let failing = engine
        .batch()
        .write(&peer, &memory, target.address + SIZE as u64)
        .submit()
        .unwrap();
    let reads: Vec<Transfer> = (0..16)
        .map(|i| {
            let piece = memory.slice(i << 16..(i + 1) << 16);
            engine.batch().read(&peer, piece, target.address).submit().unwrap()
        })
        .collect();
    let transfer = Arc::new(transfer);
    let same = transfer.clone();
    // Two tasks wait for the same transfer.
    let other = thread::spawn(move || block_on(&*same).0);
    let (polled, polls_begin) = mpsc::channel();
    let release = thread::spawn(move || {
        polls_begin.recv().unwrap();
        target.go_on();
        target
    });
    let ((), polls) = block_on(async {
        let held = Reported { transfer: &transfer, polled };
        assert_eq!(held.await.unwrap(), SIZE as u64);
        for read in reads {
            assert_eq!(read.await.unwrap(), 1 << 16);
        }
        assert_eq!(failing.await.unwrap_err().status, Some(Status::Failed));
    });
    assert!((2..100).contains(&polls), "{polls} polls");
    assert_eq!(other.join().unwrap().unwrap(), SIZE as u64);
    drop(release.join().unwrap());
}

#[test]
fn pages_of_canceled_batches_can_be_reused_at_once() {
    let target = Target::start();
    let engine = rails_only();
    let peer = engine.open(&target.name).unwrap();
    let memory = engine.alloc(4 << 20).unwrap();
    const PART: usize = 1 << 20;
    for turn in 0..60u8 {
        memory.write(0, &vec![turn; PART]).unwrap();
        let mut batch = engine.batch();
        for i in 0..16 {
            let piece = memory.slice(i << 16..(i + 1) << 16);
            batch = batch.write(&peer, piece, target.address + (i << 16) as u64);
        }
        let transfer = batch.submit().unwrap();
        if turn % 3 != 0 {
            transfer.cancel();
        }
        let _ = transfer.wait();
        memory.write(0, &vec![0xee; PART]).unwrap(); // must never arrive
        memory.write(2 * PART, &vec![turn; PART]).unwrap();
        peer.write(memory.slice(2 * PART..3 * PART), target.address).unwrap();
        peer.read(memory.slice(3 * PART..), target.address).unwrap();
        assert!(memory.to_vec(3 * PART, PART).unwrap() == vec![turn; PART], "turn {turn}");
    }
}

#[test]
fn threads_share_an_engine() {
    let target = Target::start();
    let engine = engine();
    let peer = engine.open(&target.name).unwrap();
    thread::scope(|scope| {
        for number in 0..8u8 {
            let (engine, peer) = (engine.clone(), &peer);
            let there = target.address + u64::from(number) * 65536;
            scope.spawn(move || {
                let memory = engine.alloc(128 << 10).unwrap();
                for turn in 0..10 {
                    let bytes = pattern(number * 10 + turn, 65536);
                    memory.write(0, &bytes).unwrap();
                    peer.write(memory.slice(..65536), there).unwrap();
                    peer.read(memory.slice(65536..), there).unwrap();
                    assert!(memory.to_vec(65536, 65536).unwrap() == bytes);
                }
            });
        }
    });
    engine.drain(LIMIT).unwrap();
    peer.flush(LIMIT).unwrap();
}

#[test]
fn information_is_available() {
    let target = Target::start();
    let engine = Engine::builder("127.0.0.1").transport("tcp").build().unwrap();
    let memory = engine.alloc(4096).unwrap();
    let peer = engine.open_fresh(&target.name).unwrap();
    peer.write(&memory, target.address).unwrap();
    let rails = engine.rails().unwrap();
    assert!(rails.iter().any(|rail| rail.tx_bytes >= 4096 && rail.state == RailState::Up));
    assert!(engine.settings().unwrap().contains("MC_SLICE_SIZE="));
    assert!(engine.topology().unwrap().contains("cpu:0"));
    let paths = peer.paths().unwrap();
    assert!(paths.iter().any(|path| path.kind == PathKind::Fabric && path.connected));
    let stats = peer.stats().unwrap();
    assert_eq!(stats.state, PeerState::Ready);
    assert!(stats.tx_bytes >= 4096 && stats.completed >= 1 && stats.failed == 0);
    engine.probe(&target.name, LIMIT).unwrap();
    assert!(engine.event_fd().unwrap() > 2 && peer.id() > 0 && !engine.as_raw().is_null());
    assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    assert!(fabric_version().contains('.'));
}

#[test]
fn exported_segment_is_imported() {
    let engine = engine();
    let target = rails_only();
    let there = target.register(vec![0; 4096]).unwrap();
    let peer = engine.import(&target.export().unwrap()).unwrap();
    let memory = engine.register(pattern(2, 4096)).unwrap();
    peer.write(&memory, there.address()).unwrap();
    assert_eq!(there.to_vec(0, 4096).unwrap(), pattern(2, 4096));
}

#[test]
fn log_lines_reach_the_callback() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let copy = lines.clone();
    set_log(Some(Box::new(move |level: LogLevel, module: &str, text: &str| {
        copy.lock().unwrap().push((level, format!("{module}: {text}")));
        panic!("a panic of the callback is caught");
    })))
    .unwrap();
    // alloc_at logs this line. No other test causes it; this matters because repeated lines
    // are limited.
    assert!(engine().alloc_at(4096, "cpu:998", AllocFlags::default()).is_err());
    set_log(None).unwrap();
    let lines = lines.lock().unwrap();
    assert!(lines.iter().any(|(level, text)| *level == LogLevel::Error && text.contains("998")));
}
