// SPDX-License-Identifier: BSD-2-Clause
use std::future::Future;
use std::mem::size_of;
use std::os::raw::c_char;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::engine::{microseconds, Engine, Handle};
use crate::error::{c_string, check, Error, Result, Status};
use crate::ffi;
use crate::memory::Piece;
use crate::reactor;
use crate::segment::Segment;

struct Request {
    opcode: u32,
    segment: Segment,
    local: Vec<Piece>,
    remote: Vec<ffi::te_remote>,
    operand: u64,
    compare: u64,
    cookie: u64,
}

/// The result of one request of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The cookie that [`Batch::cookie`] has set, or 0.
    pub cookie: u64,
    pub status: Status,
    /// The number of bytes that have arrived.
    pub bytes: u64,
}

/// Requests that will be submitted together. The order of their execution is undefined.
#[must_use]
pub struct Batch {
    engine: Engine,
    requests: Vec<Request>,
    limit: Option<Duration>,
    /// A batch of the C library that was reset and can be used again.
    ready: Option<BatchId>,
}

impl Batch {
    pub(crate) fn new(engine: &Engine) -> Batch {
        Batch { engine: engine.clone(), requests: Vec::new(), limit: None, ready: None }
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns true if there is no request.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Adds a write of local memory to a remote address.
    pub fn write(self, to: &Segment, local: impl Into<Piece>, remote: u64) -> Batch {
        self.add_one(ffi::TE_WRITE, to, local.into(), remote)
    }

    /// Adds a read from a remote address into local memory.
    pub fn read(self, from: &Segment, local: impl Into<Piece>, remote: u64) -> Batch {
        self.add_one(ffi::TE_READ, from, local.into(), remote)
    }

    /// Adds one request that writes the local pieces, one after the other, to the remote
    /// ranges of (address, length). Both sides have the same total length.
    pub fn write_pieces(
        self,
        to: &Segment,
        local: &[Piece],
        remote: &[(u64, u64)],
    ) -> Batch {
        self.add(ffi::TE_WRITE, to, local.to_vec(), remote, 0, 0)
    }

    /// Adds one request that reads the remote ranges, one after the other, into the local
    /// pieces.
    pub fn read_pieces(
        self,
        from: &Segment,
        local: &[Piece],
        remote: &[(u64, u64)],
    ) -> Batch {
        self.add(ffi::TE_READ, from, local.to_vec(), remote, 0, 0)
    }

    /// Adds a request that atomically adds `operand` to the 8-byte number at a remote
    /// address.
    pub fn atomic_add(self, at: &Segment, remote: u64, operand: u64) -> Batch {
        self.add(ffi::TE_ATOMIC_ADD, at, Vec::new(), &[(remote, 8)], operand, 0)
    }

    /// Adds a request that atomically adds `operand` to a remote number and stores the old
    /// value in `old`, a piece of 4 or 8 bytes. The remote number has the same length.
    pub fn atomic_fetch_add(
        self,
        at: &Segment,
        old: impl Into<Piece>,
        remote: u64,
        operand: u64,
    ) -> Batch {
        self.add_atomic(ffi::TE_ATOMIC_FETCH_ADD, at, old.into(), remote, operand, 0)
    }

    /// Adds a request that atomically replaces a remote number and stores the old value in
    /// `old`.
    pub fn atomic_swap(
        self,
        at: &Segment,
        old: impl Into<Piece>,
        remote: u64,
        operand: u64,
    ) -> Batch {
        self.add_atomic(ffi::TE_ATOMIC_SWAP, at, old.into(), remote, operand, 0)
    }

    /// Adds a request that does what [`atomic_swap`](Batch::atomic_swap) does if the remote
    /// number is equal to `compare`; otherwise it only stores the value in `old`.
    pub fn atomic_compare_swap(
        self,
        at: &Segment,
        old: impl Into<Piece>,
        remote: u64,
        compare: u64,
        operand: u64,
    ) -> Batch {
        self.add_atomic(ffi::TE_ATOMIC_CAS, at, old.into(), remote, operand, compare)
    }

    /// Sets the cookie of the request that was added last. A cookie is a number that the
    /// program chooses and that [`Transfer::tasks`] returns. [`Batch::submit_and_notify`]
    /// ignores it.
    pub fn cookie(mut self, cookie: u64) -> Batch {
        if let Some(last) = self.requests.last_mut() {
            last.cookie = cookie;
        }
        self
    }

    /// Sets a time limit. Requests that have not ended within this time fail.
    pub fn time_limit(mut self, limit: Duration) -> Batch {
        self.limit = Some(limit);
        self
    }

    fn add_one(self, opcode: u32, segment: &Segment, local: Piece, remote: u64) -> Batch {
        let len = local.len() as u64;
        self.add(opcode, segment, vec![local], &[(remote, len)], 0, 0)
    }

    fn add_atomic(
        self,
        opcode: u32,
        segment: &Segment,
        old: Piece,
        remote: u64,
        operand: u64,
        compare: u64,
    ) -> Batch {
        let len = old.len() as u64;
        self.add(opcode, segment, vec![old], &[(remote, len)], operand, compare)
    }

    fn add(
        mut self,
        opcode: u32,
        segment: &Segment,
        local: Vec<Piece>,
        remote: &[(u64, u64)],
        operand: u64,
        compare: u64,
    ) -> Batch {
        self.requests.push(Request {
            opcode,
            segment: segment.clone(),
            local,
            remote: remote
                .iter()
                .map(|(addr, length)| ffi::te_remote { addr: *addr, length: *length })
                .collect(),
            operand,
            compare,
            cookie: 0,
        });
        self
    }

    /// Submits the requests, and waits until all of them have ended. When the time limit
    /// has passed, this function ends the requests, and the code of the error is
    /// [`Error::TIMED_OUT`]. The status in the error is `None`, even if a request has
    /// failed.
    pub fn run(self) -> Result<()> {
        self.check()?;
        let local = self.locals();
        let list = self.list(&local);
        // SAFETY: the arrays, and the pieces with their memory, live until the call returns;
        // then all requests have ended.
        check(unsafe {
            ffi::te_submit_wait(
                self.engine.handle.0,
                list.as_ptr(),
                size_of::<ffi::te_request>(),
                list.len(),
                0,
                microseconds(self.limit),
            )
        })
    }

    fn locals(&self) -> Vec<Vec<ffi::te_local>> {
        self.requests
            .iter()
            .map(|one| one.local.iter().map(Piece::to_c).collect())
            .collect()
    }

    /// Returns the requests in the form of the C library. They point to the remote ranges
    /// of this object and to `local`.
    fn list(&self, local: &[Vec<ffi::te_local>]) -> Vec<ffi::te_request> {
        self.requests.iter().zip(local).map(|(one, local)| one.to_c(local)).collect()
    }

    /// Submits the requests: all of them or none.
    pub fn submit(mut self) -> Result<Transfer> {
        let batch = self.allocate()?;
        let local = self.locals();
        let list = self.list(&local);
        // SAFETY: the arrays live until the call returns. The transfer holds the local
        // memory until its end.
        check(unsafe {
            ffi::te_submit(
                self.engine.handle.0,
                batch.id,
                list.as_ptr(),
                size_of::<ffi::te_request>(),
                list.len(),
                0,
            )
        })?;
        Ok(self.started(batch))
    }

    /// Submits reads and writes of one piece each. When all of them are completed, the
    /// target of the first one receives a notification.
    pub fn submit_and_notify(mut self, name: &str, text: &str) -> Result<Transfer> {
        let name = c_string("name", name)?;
        let text = c_string("text", text)?;
        let batch = self.allocate()?;
        let mut list = Vec::new();
        for one in &self.requests {
            list.push(one.to_plain()?);
        }
        let msg = ffi::notify_msg {
            name: name.as_ptr() as *mut c_char,
            msg: text.as_ptr() as *mut c_char,
        };
        // SAFETY: as in submit(); the library copies the strings.
        check(unsafe {
            ffi::submitTransferWithNotify(
                self.engine.handle.0,
                batch.id,
                list.as_mut_ptr(),
                list.len(),
                msg,
            )
        })?;
        Ok(self.started(batch))
    }

    /// Returns an error if the requests cannot be passed to the library.
    fn check(&self) -> Result<()> {
        if self.requests.is_empty() {
            return Err(Error::new(Error::INVALID_ARGUMENT, "the batch has no request"));
        }
        let engine = &self.engine.handle;
        for (i, one) in self.requests.iter().enumerate() {
            let mut engines =
                one.local.iter().map(Piece::engine).chain(Some(one.segment.engine()));
            if !engines.all(|other| Arc::ptr_eq(other, engine)) {
                return Err(Error::new(
                    Error::INVALID_ARGUMENT,
                    format!("request {i}: the memory or the segment is of another engine"),
                ));
            }
        }
        Ok(())
    }

    /// Checks the requests and allocates a batch of the C library for them.
    fn allocate(&mut self) -> Result<BatchId> {
        self.check()?;
        let engine = &self.engine.handle;
        let size = self.requests.len();
        let batch = match self.ready.take() {
            Some(ready) if ready.size >= size => ready,
            _ => BatchId::allocate(engine, size)?,
        };
        if let Some(limit) = self.limit {
            batch.limit(limit)?;
        }
        Ok(batch)
    }

    fn started(self, batch: BatchId) -> Transfer {
        let count = self.requests.len();
        let keep = self.requests.into_iter().flat_map(|one| one.local).collect();
        Transfer::new(batch, count, Arc::new(keep))
    }
}

impl Request {
    fn to_c(&self, local: &[ffi::te_local]) -> ffi::te_request {
        let mut c = ffi::te_request::zeroed();
        c.opcode = self.opcode;
        c.target_id = self.segment.id();
        c.local_count = u32::try_from(local.len()).unwrap_or(u32::MAX);
        c.remote_count = u32::try_from(self.remote.len()).unwrap_or(u32::MAX);
        c.local = if local.is_empty() { ptr::null() } else { local.as_ptr() };
        c.remote = self.remote.as_ptr();
        c.operand = self.operand;
        c.compare = self.compare;
        c.cookie = self.cookie;
        c
    }

    fn to_plain(&self) -> Result<ffi::transfer_request> {
        let opcode = match self.opcode {
            ffi::TE_READ => ffi::OPCODE_READ,
            ffi::TE_WRITE => ffi::OPCODE_WRITE,
            _ => -1,
        };
        if opcode < 0 || self.local.len() != 1 || self.remote.len() != 1 {
            return Err(Error::new(
                Error::INVALID_ARGUMENT,
                "only reads and writes of one piece can have a notification",
            ));
        }
        let local = self.local[0].to_c();
        let mut c = ffi::transfer_request::zeroed();
        c.opcode = opcode;
        c.source = local.addr;
        c.target_id = self.segment.id();
        c.target_offset = self.remote[0].addr;
        c.length = local.length;
        Ok(c)
    }
}

/// A batch of the C library without requests in progress.
pub(crate) struct BatchId {
    pub(crate) engine: Arc<Handle>,
    pub(crate) id: ffi::batch_id_t,
    /// The greatest number of requests.
    size: usize,
}

impl BatchId {
    pub(crate) fn allocate(engine: &Arc<Handle>, size: usize) -> Result<BatchId> {
        // SAFETY: the handle is valid.
        let id = unsafe { ffi::allocateBatchID(engine.0, size) };
        match id == ffi::INVALID_BATCH {
            true => Err(Error::last(0)),
            false => Ok(BatchId { engine: engine.clone(), id, size }),
        }
    }

    /// Sets the deadline.
    pub(crate) fn limit(&self, limit: Duration) -> Result<()> {
        let now = reactor::monotonic_ns();
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the batch exists.
        check(unsafe {
            ffi::te_batch_deadline(self.engine.0, self.id, now.saturating_add(limit))
        })
    }

    /// Removes all requests, which must have ended.
    fn reset(&self) -> Result<()> {
        // SAFETY: the batch exists.
        check(unsafe { ffi::te_batch_reset(self.engine.0, self.id) })
    }

    /// Returns the results of the first `count` requests.
    fn tasks(&self, count: usize) -> Result<Vec<ffi::te_task>> {
        let mut list = vec![ffi::te_task::zeroed(); count];
        let mut filled = count;
        let size = size_of::<ffi::te_task>();
        // SAFETY: the array has that many elements of that size.
        check(unsafe {
            ffi::te_batch_tasks(
                self.engine.0,
                self.id,
                0,
                list.as_mut_ptr(),
                size,
                &mut filled,
            )
        })?;
        list.truncate(filled);
        Ok(list)
    }
}

impl Drop for BatchId {
    fn drop(&mut self) {
        // SAFETY: freeBatchID refuses a batch that does not exist or has not ended.
        unsafe { ffi::freeBatchID(self.engine.0, self.id) };
    }
}

#[derive(Default)]
struct Wake {
    /// The reactor holds a reference to the transfer.
    waiting: bool,
    /// The wakers of the Rust tasks that await this transfer.
    wakers: Vec<Waker>,
}

/// The part of a transfer that lives until the end of its requests: the reactor holds it
/// if the program drops the transfer earlier. It holds the local memory.
pub(crate) struct Shared {
    batch: BatchId,
    count: usize,
    _keep: Arc<Vec<Piece>>,
    wake: Mutex<Wake>,
}

impl Shared {
    /// Waits until the transfer has ended, for at most timeout_us. Returns the result, or
    /// None if the time has passed. Also returns the status with the number of bytes so
    /// far.
    fn poll(&self, timeout_us: i64) -> (Option<Result<u64>>, ffi::transfer_status) {
        let mut status = ffi::transfer_status::zeroed();
        // SAFETY: this object owns the batch.
        let code = unsafe {
            ffi::te_wait_batch(self.batch.engine.0, self.batch.id, timeout_us, &mut status)
        };
        let result = match code {
            ffi::TE_TIMED_OUT => None,
            0 if status.status == ffi::STATUS_COMPLETED => {
                Some(Ok(status.transferred_bytes))
            }
            0 => Some(Err(self.error(Status::from_c(status.status)))),
            code => {
                status.status = ffi::STATUS_FAILED;
                Some(Err(Error::last(code)))
            }
        };
        (result, status)
    }

    fn ended(&self) -> bool {
        self.poll(0).0.is_some()
    }

    /// Returns the error record of the first request that was not completed.
    fn error(&self, status: Status) -> Error {
        let mut record = ffi::te_error::zeroed();
        for task in 0..self.count {
            let size = size_of::<ffi::te_error>();
            // SAFETY: the record has the size that is passed.
            unsafe {
                ffi::te_task_error(
                    self.batch.engine.0,
                    self.batch.id,
                    task,
                    &mut record,
                    size,
                )
            };
            if record.code != 0 {
                break;
            }
        }
        let mut error = Error::from_record(&record, Some(status));
        if error.code == 0 {
            error.code = match status {
                Status::Canceled => Error::CANCELED,
                _ => Error::INVALID_ARGUMENT,
            };
        }
        error
    }

    fn cancel(&self) {
        // SAFETY: this object owns the batch.
        unsafe { ffi::te_cancel_batch(self.batch.engine.0, self.batch.id) };
    }

    pub(crate) fn descriptor(&self) -> Result<i32> {
        // SAFETY: this object owns the batch.
        match unsafe { ffi::te_batch_event_fd(self.batch.engine.0, self.batch.id) } {
            fd if fd >= 0 => Ok(fd),
            code => Err(Error::last(code)),
        }
    }

    /// Wakes the waiting tasks. The reactor calls it after the end of the transfer, when it
    /// no longer watches the file descriptor.
    pub(crate) fn wake(&self) {
        let wakers = {
            let mut wake = self.wake.lock().unwrap();
            wake.waiting = false;
            std::mem::take(&mut wake.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Passes the transfer to the reactor. The reactor holds the transfer until it has
    /// ended. Then it wakes `waker` and the wakers of earlier calls.
    fn watch(self: &Arc<Shared>, waker: Option<&Waker>) -> Result<()> {
        let mut wake = self.wake.lock().unwrap();
        if let Some(waker) = waker {
            if !wake.wakers.iter().any(|other| other.will_wake(waker)) {
                wake.wakers.push(waker.clone());
            }
        }
        if !wake.waiting {
            reactor::watch(self.clone())?;
            wake.waiting = true;
        }
        Ok(())
    }
}

/// Requests that were submitted together.
///
/// `Transfer` is `Send` and `Sync`. It is a `Future`, whose output is the number of bytes.
/// The descriptor of the batch wakes it, in a thread that all transfers of the process
/// share and that the first await starts; it runs in any executor. `&Transfer` is a future,
/// too, so that a program can cancel a transfer for which it waits.
///
/// A transfer holds its local memory until its end. If it is dropped earlier, it is
/// cancelled, and the shared thread holds the memory until the end. `drop` does not wait.
#[must_use = "a transfer that is dropped is cancelled"]
pub struct Transfer {
    shared: Arc<Shared>,
    /// bits TE_PREPARED_…, if a prepared list was submitted
    checked: u32,
}

impl Transfer {
    pub(crate) fn new(batch: BatchId, count: usize, keep: Arc<Vec<Piece>>) -> Transfer {
        let wake = Mutex::new(Wake::default());
        let shared = Arc::new(Shared { batch, count, _keep: keep, wake });
        Transfer { shared, checked: 0 }
    }

    pub(crate) fn with_checks(mut self, checked: u32) -> Transfer {
        self.checked = checked;
        self
    }

    /// Returns true if the submission of a prepared list has checked its pieces again.
    pub fn was_checked(&self) -> bool {
        self.checked & ffi::TE_PREPARED_CHECKED != 0
    }

    /// Returns true if the pieces were checked again because the target's process has
    /// been replaced.
    pub fn was_restarted(&self) -> bool {
        self.checked & ffi::TE_PREPARED_RESTARTED != 0
    }

    /// Returns the id of the batch, which [`Engine::ended_batches`] returns.
    pub fn id(&self) -> u64 {
        self.shared.batch.id
    }

    /// Returns the results of the requests, in the order in which they were added. Does
    /// not wait.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let list = self.shared.batch.tasks(self.shared.count)?;
        Ok(list
            .iter()
            .map(|one| Task {
                cookie: one.cookie,
                status: Status::from_c(one.status),
                bytes: one.transferred_bytes,
            })
            .collect())
    }

    /// Returns an empty batch that uses the batch of this transfer again, if it has room
    /// for the requests, because that costs less than a new batch. If the transfer has not
    /// ended, it is cancelled, and the code of the error is [`Error::BUSY`].
    pub fn into_batch(self, engine: &Engine) -> Result<Batch> {
        if !self.is_done() {
            return Err(Error::new(Error::BUSY, "the transfer has not ended"));
        }
        if !Arc::ptr_eq(&engine.handle, &self.shared.batch.engine) {
            return Err(Error::new(
                Error::INVALID_ARGUMENT,
                "the transfer is of another engine",
            ));
        }
        let shared = self.shared.clone();
        drop(self);
        let mut batch = engine.batch();
        // For a short time, the reactor may still hold a reference. The batch is not reused
        // then.
        if let Ok(shared) = Arc::try_unwrap(shared) {
            shared.batch.reset()?;
            batch.ready = Some(shared.batch);
        }
        Ok(batch)
    }

    /// Waits until all requests have ended, and returns the number of bytes.
    pub fn wait(&self) -> Result<u64> {
        loop {
            if let (Some(result), _) = self.shared.poll(-1) {
                return result;
            }
        }
    }

    /// Waits until all requests have ended or the limit has passed. If the limit has
    /// passed, returns `None`, and the transfer continues.
    pub fn wait_timeout(&self, limit: Duration) -> Option<Result<u64>> {
        self.shared.poll(microseconds(Some(limit))).0
    }

    /// Returns true if all requests have ended. Does not wait.
    pub fn is_done(&self) -> bool {
        self.shared.ended()
    }

    /// Returns the worst status of the requests, and the number of bytes that have arrived.
    /// Does not wait.
    pub fn status(&self) -> (Status, u64) {
        let (_, status) = self.shared.poll(0);
        (Status::from_c(status.status), status.transferred_bytes)
    }

    /// Requests that the transfer ends early. [`wait`](Transfer::wait) returns how it has
    /// ended.
    pub fn cancel(&self) {
        self.shared.cancel();
    }

    fn poll_in(&self, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        if let (Some(result), _) = self.shared.poll(0) {
            return Poll::Ready(result);
        }
        match self.shared.watch(Some(cx.waker())) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// Waits until one of the transfers of an engine has ended, and returns its index. Returns
/// `None` if the limit has passed. If `limit` is `None`, there is no limit. At most 4096
/// transfers may be passed.
pub(crate) fn wait_any(
    engine: &Arc<Handle>,
    transfers: &[&Transfer],
    limit: Option<Duration>,
) -> Result<Option<usize>> {
    let count = transfers.len();
    if !(1..=ffi::TE_WAIT_MAX).contains(&count) {
        return Err(Error::new(
            Error::INVALID_ARGUMENT,
            format!("{count} transfers (must be 1 to {})", ffi::TE_WAIT_MAX),
        ));
    }
    if !transfers.iter().all(|one| Arc::ptr_eq(&one.shared.batch.engine, engine)) {
        return Err(Error::new(Error::INVALID_ARGUMENT, "a transfer is of another engine"));
    }
    let ids: Vec<ffi::batch_id_t> = transfers.iter().map(|one| one.id()).collect();
    let mut index = 0;
    // SAFETY: the array has count elements; the transfers own the batches.
    let code = unsafe {
        ffi::te_wait_any(
            engine.0,
            ids.as_ptr(),
            count,
            microseconds(limit),
            &mut index,
            ptr::null_mut(),
        )
    };
    match code {
        0 => Ok(Some(index)),
        ffi::TE_TIMED_OUT => Ok(None),
        code => Err(Error::last(code)),
    }
}

impl Future for Transfer {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        self.poll_in(cx)
    }
}

impl Future for &Transfer {
    type Output = Result<u64>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<u64>> {
        self.poll_in(cx)
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.shared.ended() {
            return;
        }
        self.shared.cancel();
        if self.shared.watch(None).is_err() {
            // No thread can wait for the end: leak the reference, so that the
            // memory is never freed.
            std::mem::forget(self.shared.clone());
        }
    }
}
