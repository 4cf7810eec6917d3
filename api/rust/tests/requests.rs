// SPDX-License-Identifier: BSD-2-Clause
//! Ranges, cookies, waiting for several transfers, prepared lists and binary notifications.
//! Each test has a second process.
mod common;

use std::os::raw::{c_int, c_short};
use std::time::Duration;

use common::{block_on, pattern, wait_until, Target, SIZE};
use moonrail::{Engine, Error, Memory, Piece, Status, Task, Transfer};

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
        // More ranges than one request may have.
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
        // The transfer holds what it needs.
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
