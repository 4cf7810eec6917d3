// SPDX-License-Identifier: BSD-2-Clause
//! The thread that waits for the descriptors of batches. It starts when a transfer is
//! first awaited, or dropped before its end, and ends with the process.
use std::collections::HashMap;
use std::os::raw::{c_int, c_long};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::{Error, Result};
use crate::transfer::Shared;

const EPOLLIN: u32 = 1;
const EPOLL_CLOEXEC: c_int = 0o2000000;
const EPOLL_CTL_ADD: c_int = 1;
const EPOLL_CTL_DEL: c_int = 2;
const CLOCK_MONOTONIC: c_int = 1;

#[repr(C)]
#[cfg_attr(target_arch = "x86_64", repr(packed))]
#[derive(Clone, Copy)]
struct EpollEvent {
    events: u32,
    data: u64,
}

#[repr(C)]
struct Timespec {
    sec: c_long,
    nsec: c_long,
}

// Functions of the C library. Every Rust program on Linux is linked to it.
extern "C" {
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(epoll: c_int, op: c_int, fd: c_int, event: *mut EpollEvent) -> c_int;
    fn epoll_wait(epoll: c_int, events: *mut EpollEvent, count: c_int, ms: c_int) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
}

/// Returns the time of CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = Timespec { sec: 0, nsec: 0 };
    // SAFETY: the struct is that of the C library.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut time) };
    time.sec as u64 * 1_000_000_000 + time.nsec as u64
}

struct Reactor {
    epoll: c_int,
    /// The transfers in progress, by file descriptor. A transfer in this table keeps its
    /// file descriptor open.
    held: HashMap<c_int, Arc<Shared>>,
}

static REACTOR: Mutex<Option<Reactor>> = Mutex::new(None);

fn system_error(what: &str) -> Error {
    Error::new(202, format!("{what}: {}", std::io::Error::last_os_error()))
}

fn start() -> Result<Reactor> {
    // SAFETY: no pointer is passed.
    let epoll = unsafe { epoll_create1(EPOLL_CLOEXEC) };
    if epoll < 0 {
        return Err(system_error("epoll_create1"));
    }
    thread::Builder::new()
        .name("moonrail-await".to_string())
        .spawn(move || run(epoll))
        .map_err(|cause| Error::new(202, format!("thread of the futures: {cause}")))?;
    Ok(Reactor { epoll, held: HashMap::new() })
}

/// Holds a reference to the transfer until the transfer has ended, and then calls its
/// wake().
pub(crate) fn watch(transfer: Arc<Shared>) -> Result<()> {
    let fd = transfer.descriptor()?;
    let mut lock = REACTOR.lock().unwrap();
    let reactor = match &mut *lock {
        Some(reactor) => reactor,
        none => none.insert(start()?),
    };
    let mut event = EpollEvent { events: EPOLLIN, data: fd as u64 };
    // SAFETY: the file descriptor is open, because the transfer owns its batch.
    if unsafe { epoll_ctl(reactor.epoll, EPOLL_CTL_ADD, fd, &mut event) } != 0 {
        return Err(system_error("epoll_ctl"));
    }
    reactor.held.insert(fd, transfer);
    Ok(())
}

/// Stops watching a file descriptor and returns its transfer.
fn take(fd: c_int) -> Option<Arc<Shared>> {
    let mut lock = REACTOR.lock().unwrap();
    let reactor = lock.as_mut()?;
    let mut event = EpollEvent { events: 0, data: 0 };
    // SAFETY: the transfer in the table keeps the file descriptor open.
    unsafe { epoll_ctl(reactor.epoll, EPOLL_CTL_DEL, fd, &mut event) };
    reactor.held.remove(&fd)
}

fn run(epoll: c_int) {
    let mut events = [EpollEvent { events: 0, data: 0 }; 64];
    loop {
        // SAFETY: the array has the length that is passed.
        let count =
            unsafe { epoll_wait(epoll, events.as_mut_ptr(), events.len() as c_int, -1) };
        let ended: Vec<Arc<Shared>> = events[..count.max(0) as usize]
            .iter()
            .filter_map(|event| take(event.data as c_int))
            .collect();
        for transfer in &ended {
            transfer.wake();
        }
        // The last reference frees the batch, and possibly memory and the engine. No lock
        // is held here.
        drop(ended);
    }
}
