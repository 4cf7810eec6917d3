// SPDX-License-Identifier: BSD-2-Clause
//! Ranges, cookies, waiting for several transfers, prepared lists and binary notifications.
//! Each test has a second process.
mod common;

use std::os::raw::{c_int, c_short};
use std::time::Duration;

use common::{block_on, pattern, wait_until, Target, SIZE};
use moonrail::{Engine, Error, Memory, Piece, Registration, Status, Task, Transfer};

const LIMIT: Option<Duration> = Some(Duration::from_secs(40));

#[test]
fn target_process() {
    common::target_process();
}

fn engine(local: &str) -> Engine {
    Engine::builder("127.0.0.1")
        .setting("MOONRAIL_LOCAL", local)
        .setting("MC_SLICE_TIMEOUT", "3")
        .build()
        .unwrap()
}

#[test]
fn ranges_of_both_sides_are_concatenated() {
    let mut target = Target::start();
    for local in ["1", "0"] {
        let engine = engine(local);
        let memory = engine.register(pattern(3, 300_000)).unwrap();
        let peer = engine.open(&target.name).unwrap();
        let at = target.address;
        let pieces = [memory.slice(..100), memory.slice(200..1000)];
        peer.write_pieces(&pieces, &[(at, 500), (at + 1000, 400)], None).unwrap();
        let bytes = pattern(3, 1000);
        let want = [&bytes[..100], &bytes[200..]].concat();
        assert_eq!(target.show(0, 500), want[..500]);
        assert_eq!(target.show(1000, 400), want[500..]);
        let back = [memory.slice(5000..5400), memory.slice(6000..6500)];
        peer.read_pieces(&back, &[(at + 1000, 400), (at, 500)], LIMIT).unwrap();
        assert_eq!(memory.to_vec(5000, 400).unwrap(), want[500..]);
        assert_eq!(memory.to_vec(6000, 500).unwrap(), want[..500]);
        // These are more ranges than one request may have.
        let many: Vec<Piece> =
            (0..2000).map(|i| memory.slice(i * 100..i * 100 + 50)).collect();
        peer.write_pieces(&many, &[(at, 100_000)], LIMIT).unwrap();
        assert_eq!(target.show(99_950, 50), memory.to_vec(199_900, 50).unwrap());
        let error = peer.write_pieces(&many, &[(at, 99_999)], LIMIT).unwrap_err();
        assert_eq!((error.code, error.status), (Error::INVALID_ARGUMENT, None));
        let other = Engine::new("127.0.0.1").unwrap().alloc(4096).unwrap();
        let error = peer.read_pieces(&[other.slice(..)], &[(at, 4096)], None).unwrap_err();
        assert!(error.text.contains("another engine"), "{error}");
    }
}

#[test]
fn limit_ends_a_blocking_write() {
    let target = Target::start();
    let engine = engine("0");
    let memory = engine.alloc(SIZE).unwrap();
    let peer = engine.open(&target.name).unwrap();
    peer.write(memory.slice(..8), target.address).unwrap();
    target.stop();
    let limit = Some(Duration::from_millis(100));
    let to = [(target.address, SIZE as u64)];
    let error = peer.write_pieces(&[memory.slice(..)], &to, limit).unwrap_err();
    // The target is stopped, so that it cannot answer a fence.
    assert!(error.code == Error::TIMED_OUT && error.unfenced(), "{error:?}");
    target.go_on();
}

#[test]
fn cookies_return_with_the_results() {
    let target = Target::start();
    let engine = engine("1");
    let memory = engine.alloc(4096).unwrap();
    let peer = engine.open(&target.name).unwrap();
    let at = target.address;
    let fd = engine.event_fd().unwrap();
    let transfer = engine
        .batch()
        .write(&peer, memory.slice(..10), at)
        .cookie(u64::MAX)
        .read(&peer, memory.slice(..20), at)
        .write(&peer, memory.slice(..30), at)
        .cookie(3)
        .submit()
        .unwrap();
    transfer.wait().unwrap();
    let task = |cookie, bytes| Task { cookie, status: Status::Completed, bytes };
    assert_eq!(transfer.tasks().unwrap(), [task(u64::MAX, 10), task(0, 20), task(3, 30)]);
    assert!(readable(fd));
    let ended = engine.ended_batches().unwrap();
    assert_eq!(ended.len(), 1);
    assert_eq!((ended[0].id, ended[0].cookie), (transfer.id(), u64::MAX));
    assert_eq!((ended[0].tasks, ended[0].bytes), (3, 60));
    assert_eq!(ended[0].status, Status::Completed);
    assert!(!readable(fd) && engine.ended_batches().unwrap().is_empty());
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

extern "C" {
    fn poll(fds: *mut PollFd, count: u64, ms: c_int) -> c_int;
}

fn readable(fd: c_int) -> bool {
    let mut one = PollFd { fd, events: 1, revents: 0 };
    unsafe { poll(&mut one, 1, 0) == 1 && one.revents == 1 }
}

#[test]
fn first_ended_transfer_is_found() {
    let target = Target::start();
    let engine = engine("0");
    let memory = engine.alloc(SIZE).unwrap();
    let peer = engine.open(&target.name).unwrap();
    let me = engine.open(&engine.name()).unwrap();
    peer.write(memory.slice(..8), target.address).unwrap();
    target.stop();
    let held = engine.batch().write(&peer, &memory, target.address).submit().unwrap();
    assert_eq!(engine.wait_any(&[&held], Some(Duration::ZERO)).unwrap(), None);
    let piece = memory.slice(..8);
    let ending = engine.batch().write(&me, piece, memory.address() + 8).submit().unwrap();
    assert_eq!(engine.wait_any(&[&held, &ending], LIMIT).unwrap(), Some(1));
    assert_eq!(engine.wait_any(&[], LIMIT).unwrap_err().code, Error::INVALID_ARGUMENT);
    let other = Engine::new("127.0.0.1").unwrap();
    assert!(other.wait_any(&[&ending], LIMIT).is_err());
    held.cancel();
    target.go_on();
    assert_eq!(engine.wait_any(&[&held], None).unwrap(), Some(0));
}

#[test]
fn ended_batch_is_used_again() {
    let target = Target::start();
    let engine = engine("1");
    let memory = engine.alloc(4096).unwrap();
    let peer = engine.open(&target.name).unwrap();
    let fill = |mut batch: moonrail::Batch, count: usize| -> Transfer {
        for i in 0..count {
            let piece = memory.slice(i..i + 1);
            batch = batch.write(&peer, piece, target.address).cookie(i as u64);
        }
        batch.submit().unwrap()
    };
    let mut transfer = fill(engine.batch(), 8);
    let id = transfer.id();
    for count in [8, 3, 8] {
        transfer.wait().unwrap();
        transfer = fill(transfer.into_batch(&engine).unwrap(), count);
        assert_eq!(transfer.wait().unwrap(), count as u64);
        assert_eq!((transfer.id(), transfer.tasks().unwrap().len()), (id, count));
    }
    let larger = fill(transfer.into_batch(&engine).unwrap(), 9);
    larger.wait().unwrap();
    assert_ne!(larger.id(), id);
    let other = Engine::new("127.0.0.1").unwrap();
    assert_eq!(larger.into_batch(&other).err().unwrap().code, Error::INVALID_ARGUMENT);
    target.stop();
    let rails = self::engine("0");
    let mine = rails.alloc(4096).unwrap();
    target.go_on();
    let there = rails.open(&target.name).unwrap();
    there.write(&mine, target.address).unwrap();
    target.stop();
    let held = rails.batch().write(&there, &mine, target.address).submit().unwrap();
    assert_eq!(held.into_batch(&rails).err().unwrap().code, Error::BUSY);
    target.go_on();
}

#[test]
fn prepared_pieces_are_submitted_many_times() {
    const COUNT: usize = 1000;
    let mut target = Target::start();
    for local in ["1", "0"] {
        let engine = engine(local);
        let memory = engine.register(pattern(7, COUNT * 128)).unwrap();
        let back = engine.alloc(COUNT * 128).unwrap();
        let peer = engine.open(&target.name).unwrap();
        let pieces = |memory: &Memory| -> Vec<(Piece, u64)> {
            (0..COUNT)
                .map(|i| {
                    let piece = memory.slice(i * 128..i * 128 + 64);
                    (piece, target.address + i as u64 * 200)
                })
                .collect()
        };
        let (writes, reads) = (pieces(&memory), pieces(&back));
        let write = peer.prepare_write(writes).unwrap();
        let read = peer.prepare_read(reads).unwrap();
        assert!(write.len() == COUNT && !write.is_empty());
        target.ask(&format!("fill 0 {SIZE} 0"));
        assert_eq!(write.submit(&[5, 999, 5]).unwrap().wait().unwrap(), 3 * 64);
        assert_eq!(target.show(4 * 200, 64), [0; 64]);
        assert_eq!(target.show(999 * 200, 64), memory.to_vec(999 * 128, 64).unwrap());
        let all = write.submit_all().unwrap();
        assert!(!all.was_checked() && !all.was_restarted());
        let (bytes, _) = block_on(all);
        assert_eq!(bytes.unwrap(), COUNT as u64 * 64);
        let even: Vec<u32> = (0..COUNT as u32).step_by(2).collect();
        let transfer = read.submit_with(Some(&even), 8, LIMIT).unwrap();
        // The transfer still works, because it holds references to its segment
        // and memory.
        drop(read);
        assert_eq!(transfer.wait().unwrap(), COUNT as u64 / 2 * 64);
        assert_eq!(transfer.tasks().unwrap()[0].cookie, 8);
        assert_eq!(
            back.to_vec(128 * 998, 64).unwrap(),
            memory.to_vec(128 * 998, 64).unwrap()
        );
        assert_eq!(back.to_vec(128, 64).unwrap(), [0; 64]);
        assert_eq!(write.submit(&[]).err().unwrap().code, Error::INVALID_ARGUMENT);
        assert_eq!(write.submit(&[1000]).err().unwrap().code, Error::INVALID_ARGUMENT);
        assert!(peer.prepare_write(None).is_err());
        let outside = target.address + SIZE as u64;
        let error = peer.prepare_write([(memory.slice(..8), outside)]).err().unwrap();
        assert!(error.text.contains("pieces[0]"), "{error}");
        let other = Engine::new("127.0.0.1").unwrap().alloc(4096).unwrap();
        let error = peer.prepare_write([(other.slice(..), outside)]).err().unwrap();
        assert!(error.text.contains("another engine"), "{error}");
        drop(write);
        memory.release().unwrap();
    }
}

#[test]
fn prepared_write_to_a_killed_target_fails() {
    let mut target = Target::start();
    let engine = engine("0");
    let memory = engine.alloc(4096).unwrap();
    let peer = engine.open(&target.name).unwrap();
    let pieces = [(memory.slice(..), target.address)];
    let prepared = peer.prepare_write(pieces).unwrap();
    prepared.submit_all().unwrap().wait().unwrap();
    target.kill();
    let error = prepared.submit_all().and_then(|one| one.wait()).unwrap_err();
    assert!(error.code > 0 && !error.text.is_empty(), "{error:?}");
}

#[test]
fn binary_notifications_carry_any_bytes() {
    let mut target = Target::start();
    let engine = engine("1");
    let peer = engine.open(&target.name).unwrap();
    peer.notify_bytes("all", &[0, 255, 7, 0]).unwrap();
    peer.notify_bytes("none", &[]).unwrap();
    let mut notes = String::new();
    assert!(wait_until(|| {
        notes += &target.ask("binary");
        notes == "all=[0, 255, 7, 0];none=[];"
    }));
    assert!(peer.notify_bytes("long", &vec![0; (1 << 20) + 1]).is_err());
    assert!(peer.notify_bytes("a\0b", &[]).is_err());
    let me = engine.open(&engine.name()).unwrap();
    for i in 0..100u8 {
        me.notify_bytes(&i.to_string(), &vec![i; i.into()]).unwrap();
    }
    let got = engine.binary_notifications().unwrap();
    assert_eq!(got.len(), 100);
    assert!(got
        .iter()
        .enumerate()
        .all(|(i, n)| { n.name == i.to_string() && n.data == vec![i as u8; i] }));
    assert!(engine.binary_notifications().unwrap().is_empty());
}

#[test]
fn labels_find_the_memory_of_a_peer() {
    let target = Target::start();
    let engine = engine("1");
    let peer = engine.open(&target.name).unwrap();
    let found = peer.find(Some("layer 1")).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].address, found[0].len), (target.address + 4096, 4096));
    assert_eq!(found[0].label, "layer 1");
    assert_eq!(peer.find(None).unwrap(), found);
    assert_eq!(peer.find(Some("layer 2")).unwrap_err().code, 3);
    assert_eq!(peer.find(Some("a\0b")).unwrap_err().code, Error::INVALID_ARGUMENT);
}

#[test]
fn part_of_memory_is_registered_and_released() {
    let engine = engine("1");
    let options = Registration { label: "all".to_string(), ..Registration::default() };
    let memory = engine.register_with(pattern(1, 65536), &options).unwrap();
    let me = engine.open(&engine.name()).unwrap();
    let part = memory.register_part(100..300, "part").unwrap();
    let again = memory.register_part(100..300, "part").unwrap();
    assert_eq!((part.address(), part.len()), (memory.address() + 100, 200));
    // The registered parts hold references to the memory.
    assert!(memory.is_shared());
    assert!(memory.register_part(0..8, &"x".repeat(256)).is_err());
    assert!(memory.register_part(0..8, "a\0b").is_err());
    // A second registration of the same range with the same label only increases a count.
    assert_eq!(me.find(None).unwrap().len(), 2);
    assert!(part.release().unwrap().is_empty());
    assert_eq!(me.find(Some("part")).unwrap().len(), 1);
    drop(again);
    assert_eq!(me.find(None).unwrap()[0].label, "all");
    assert_eq!(memory.release().unwrap(), pattern(1, 65536));
    let refused = Registration { location: "moon:1".to_string(), ..options };
    assert!(engine.register_with(vec![1; 4096], &refused).is_err());
}

#[test]
fn memory_for_reading_only_is_not_written() {
    let engine = engine("1");
    let mut bytes = pattern(1, 4096);
    let options = Registration { read_only: true, ..Registration::default() };
    // SAFETY: the vector lives longer than the memory.
    let memory =
        unsafe { engine.register_raw_with(bytes.as_mut_ptr(), 4096, &options) }.unwrap();
    let me = engine.open(&engine.name()).unwrap();
    let to = memory.address();
    assert!(me.write_bytes(&[1, 2], to, LIMIT).is_err());
    let mut back = [0; 100];
    me.read_bytes(&mut back, to, LIMIT).unwrap();
    assert_eq!(back, pattern(1, 100)[..]);
    drop(memory);
    assert_eq!(bytes, pattern(1, 4096));
}

#[test]
fn unregistered_bytes_are_moved() {
    let mut target = Target::start();
    for local in ["1", "0"] {
        let engine = engine(local);
        let peer = engine.open(&target.name).unwrap();
        let bytes = pattern(5, 200_000);
        peer.write_bytes(&bytes, target.address, LIMIT).unwrap();
        assert_eq!(target.show(1000, 50), bytes[1000..1050]);
        let mut back = vec![0; bytes.len()];
        peer.read_bytes(&mut back, target.address, None).unwrap();
        assert!(back == bytes);
        assert_eq!(peer.write_bytes(&[], target.address, LIMIT).unwrap_err().code, 1);
        assert!(peer.read_bytes(&mut back, target.address + SIZE as u64, LIMIT).is_err());
    }
    let engine = engine("0");
    let peer = engine.open(&target.name).unwrap();
    peer.write_bytes(&[1], target.address, LIMIT).unwrap();
    target.stop();
    let limit = Some(Duration::from_millis(100));
    let error = peer.write_bytes(&vec![0; SIZE], target.address, limit).unwrap_err();
    assert_eq!(error.code, Error::TIMED_OUT);
    target.go_on();
}

#[test]
fn batch_runs_to_its_end() {
    let target = Target::start();
    let engine = engine("0");
    engine.warm_up(&target.name).unwrap();
    engine.sync().unwrap();
    let memory = engine.alloc(4096).unwrap();
    let peer = engine.open(&target.name).unwrap();
    let (old, at) = (memory.slice(..8), target.address + 65536);
    engine.batch().atomic_add(&peer, at, 41).run().unwrap();
    engine.batch().atomic_fetch_add(&peer, old, at, 1).run().unwrap();
    assert_eq!(memory.to_vec(0, 8).unwrap(), 41u64.to_ne_bytes());
    let batch = engine.batch().time_limit(Duration::from_secs(40));
    batch
        .read(&peer, memory.slice(8..16), at)
        .write(&peer, memory.slice(16..24), at + 8)
        .run()
        .unwrap();
    assert_eq!(memory.to_vec(8, 8).unwrap(), 42u64.to_ne_bytes());
    assert_eq!(engine.batch().run().unwrap_err().code, Error::INVALID_ARGUMENT);
    let outside = target.address + SIZE as u64;
    let error = engine.batch().read(&peer, &memory, outside).run().unwrap_err();
    assert_eq!(error.code, 3);
    assert!(engine.warm_up("no colon").is_err());
    target.stop();
    let limit = Duration::from_millis(100);
    let late = engine.batch().time_limit(limit).write(&peer, &memory, target.address);
    assert_eq!(late.run().unwrap_err().code, Error::TIMED_OUT);
    target.go_on();
}
