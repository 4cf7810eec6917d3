// SPDX-License-Identifier: BSD-2-Clause
use std::mem::size_of;
use std::os::raw::{c_char, c_int};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{fetch, microseconds, Engine, Handle};
use crate::error::{c_string, check, text_of, Error, Result};
use crate::ffi;
use crate::memory::Piece;
use crate::prepared::Prepared;
use crate::transfer::Batch;

/// The type of the functions te_readv and te_writev.
type MovePieces = unsafe extern "C" fn(
    ffi::transfer_engine_t,
    ffi::segment_id_t,
    *const ffi::te_local,
    usize,
    *const ffi::te_remote,
    usize,
    i64,
) -> c_int;

struct Inner {
    engine: Engine,
    id: ffi::segment_id_t,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: this object has one reference to the segment.
        unsafe { ffi::closeSegment(self.engine.handle.0, self.id) };
    }
}

/// The memory that a peer has published.
///
/// `Segment` is `Send`, `Sync` and `Clone`. It is closed when the last clone is dropped;
/// transfers in progress continue.
#[derive(Clone)]
pub struct Segment {
    inner: Arc<Inner>,
}

/// A buffer of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The address in the target process.
    pub address: u64,
    /// The length, bytes.
    pub len: u64,
    /// The location: "cpu:0", "cuda:1" or "*".
    pub location: String,
    /// The label of the registration, or "".
    pub label: String,
}

impl Buffer {
    fn from_c(one: &ffi::te_buffer) -> Buffer {
        Buffer {
            address: one.addr,
            len: one.length,
            location: text_of(&one.location),
            label: text_of(&one.label),
        }
    }
}

/// The way in which bytes reach a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// From a local rail to a rail of the peer.
    Fabric,
    /// Copies by the kernel to another process.
    Process,
    /// Copies inside this process.
    Memcpy,
    /// Transfers to and from the files of a file segment.
    File,
}

/// One path to a segment.
#[derive(Clone, Debug)]
pub struct Path {
    pub kind: PathKind,
    pub connected: bool,
    pub transport: String,
    pub provider: String,
    pub rail: String,
    pub address: String,
    pub remote_rail: String,
    pub remote_address: String,
    /// The reason why copies inside this host, although allowed, are not possible, or "".
    pub why_not_local: String,
    /// The number of established connections to the remote rail.
    pub connections: u32,
}

/// The state of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The peer has not answered yet.
    New,
    Ready,
    /// After a failure, the initiator waits for a fence.
    Fencing,
    /// The process has ended; open the segment again.
    Gone,
}

/// Statistics of one peer.
#[derive(Clone, Debug)]
pub struct PeerStats {
    pub name: String,
    pub state: PeerState,
    /// The number of requests that wait for a rail.
    pub queued: u32,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
    pub completed: u64,
    pub failed: u64,
    pub timeout: u64,
    pub canceled: u64,
    pub retries: u64,
    pub fences: u64,
}

impl Segment {
    pub(crate) fn open(engine: &Engine, name: &str, cached: bool) -> Result<Segment> {
        let name = c_string("name", name)?;
        // SAFETY: the string is terminated.
        let id = unsafe {
            match cached {
                true => ffi::openSegment(engine.handle.0, name.as_ptr()),
                false => ffi::openSegmentNoCache(engine.handle.0, name.as_ptr()),
            }
        };
        match id < 0 {
            true => Err(Error::last(0)),
            false => Ok(Segment::new(engine, id)),
        }
    }

    pub(crate) fn import(engine: &Engine, blob: &[u8]) -> Result<Segment> {
        let mut id = -1;
        // SAFETY: the blob has the size that is passed.
        check(unsafe {
            ffi::te_segment_import(
                engine.handle.0,
                blob.as_ptr().cast(),
                blob.len(),
                0,
                &mut id,
            )
        })?;
        Ok(Segment::new(engine, id))
    }

    fn new(engine: &Engine, id: ffi::segment_id_t) -> Segment {
        Segment { inner: Arc::new(Inner { engine: engine.clone(), id }) }
    }

    /// Returns the id for functions of the C library.
    pub fn id(&self) -> i32 {
        self.inner.id
    }

    pub(crate) fn engine(&self) -> &Arc<Handle> {
        &self.inner.engine.handle
    }

    fn raw(&self) -> ffi::transfer_engine_t {
        self.inner.engine.handle.0
    }

    /// Writes local memory to a remote address, and waits until the transfer has ended.
    /// Returns the number of bytes.
    pub fn write(&self, local: impl Into<Piece>, remote: u64) -> Result<u64> {
        self.batch().write(self, local, remote).submit()?.wait()
    }

    /// Reads from a remote address into local memory, and waits until the transfer has
    /// ended. Returns the number of bytes.
    pub fn read(&self, local: impl Into<Piece>, remote: u64) -> Result<u64> {
        self.batch().read(self, local, remote).submit()?.wait()
    }

    /// Writes the local pieces, one after the other, to the remote ranges of (address,
    /// length), and waits for the end. Both sides have the same total length. When the
    /// limit has passed, the transfer is ended, and the code of the error is
    /// [`Error::TIMED_OUT`]. The status in the error is `None`, even if the transfer has
    /// failed.
    pub fn write_pieces(
        &self,
        local: &[Piece],
        remote: &[(u64, u64)],
        limit: Option<Duration>,
    ) -> Result<()> {
        self.move_pieces(ffi::te_writev, local, remote, limit)
    }

    /// Reads the remote ranges, one after the other, into the local pieces. Otherwise does
    /// what [`write_pieces`](Segment::write_pieces) does.
    pub fn read_pieces(
        &self,
        local: &[Piece],
        remote: &[(u64, u64)],
        limit: Option<Duration>,
    ) -> Result<()> {
        self.move_pieces(ffi::te_readv, local, remote, limit)
    }

    /// Writes bytes that are not registered to a remote address, and waits for the end. The
    /// bytes pass through registered buffers of the library, so [`write`](Segment::write)
    /// is faster for large or frequent writes. The limit has the same meaning as in
    /// [`write_pieces`](Segment::write_pieces).
    pub fn write_bytes(
        &self,
        bytes: &[u8],
        remote: u64,
        limit: Option<Duration>,
    ) -> Result<()> {
        let start = bytes.as_ptr() as *mut u8;
        // SAFETY: a write only reads the bytes, which are borrowed until its end.
        unsafe { self.bounce(ffi::TE_WRITE, start, bytes.len(), remote, limit) }
    }

    /// Reads from a remote address into bytes that are not registered. Otherwise does what
    /// [`write_bytes`](Segment::write_bytes) does. After an error, the content of the bytes
    /// is undefined.
    pub fn read_bytes(
        &self,
        bytes: &mut [u8],
        remote: u64,
        limit: Option<Duration>,
    ) -> Result<()> {
        // SAFETY: the bytes are borrowed until the end of the read.
        unsafe { self.bounce(ffi::TE_READ, bytes.as_mut_ptr(), bytes.len(), remote, limit) }
    }

    /// # Safety
    /// The memory stays valid until the call has returned. Then the transfer has ended,
    /// because the engine, which this object holds, is not destroyed during the call.
    unsafe fn bounce(
        &self,
        opcode: u32,
        start: *mut u8,
        len: usize,
        remote: u64,
        limit: Option<Duration>,
    ) -> Result<()> {
        let length = len as u64;
        let local = ffi::te_local { addr: start.cast(), length };
        let remote = ffi::te_remote { addr: remote, length };
        let mut request = ffi::te_request::zeroed();
        request.opcode = opcode;
        request.flags = ffi::TE_REQ_BOUNCE;
        request.target_id = self.inner.id;
        request.local_count = 1;
        request.remote_count = 1;
        request.local = &local;
        request.remote = &remote;
        check(ffi::te_submit_wait(
            self.raw(),
            &request,
            size_of::<ffi::te_request>(),
            1,
            0,
            microseconds(limit),
        ))
    }

    fn move_pieces(
        &self,
        call: MovePieces,
        local: &[Piece],
        remote: &[(u64, u64)],
        limit: Option<Duration>,
    ) -> Result<()> {
        if !local.iter().all(|one| Arc::ptr_eq(one.engine(), self.engine())) {
            return Err(Error::new(
                Error::INVALID_ARGUMENT,
                "a local piece is of another engine",
            ));
        }
        let local: Vec<ffi::te_local> = local.iter().map(Piece::to_c).collect();
        let remote: Vec<ffi::te_remote> = remote
            .iter()
            .map(|(addr, length)| ffi::te_remote { addr: *addr, length: *length })
            .collect();
        // SAFETY: the arrays have these lengths. The caller's pieces hold the memory until
        // the call returns; then the transfer has ended.
        check(unsafe {
            call(
                self.raw(),
                self.inner.id,
                local.as_ptr(),
                local.len(),
                remote.as_ptr(),
                remote.len(),
                microseconds(limit),
            )
        })
    }

    /// Checks a list of writes, each of local memory to a remote address, for many
    /// submissions.
    pub fn prepare_write(
        &self,
        pieces: impl IntoIterator<Item = (Piece, u64)>,
    ) -> Result<Prepared> {
        Prepared::new(self, ffi::TE_WRITE, pieces.into_iter().collect())
    }

    /// Checks a list of reads, each from a remote address into local memory.
    pub fn prepare_read(
        &self,
        pieces: impl IntoIterator<Item = (Piece, u64)>,
    ) -> Result<Prepared> {
        Prepared::new(self, ffi::TE_READ, pieces.into_iter().collect())
    }

    fn batch(&self) -> Batch {
        self.inner.engine.batch()
    }

    /// Sends a notification and waits until the library of the peer has it.
    pub fn notify(&self, name: &str, text: &str) -> Result<()> {
        let name = c_string("name", name)?;
        let text = c_string("text", text)?;
        let msg = ffi::notify_msg {
            name: name.as_ptr() as *mut c_char,
            msg: text.as_ptr() as *mut c_char,
        };
        // SAFETY: the library copies the strings and does not change them.
        check(unsafe { ffi::genNotifyInEngine(self.raw(), self.inner.id as u64, msg) })
    }

    /// Sends a notification that may contain any bytes, and waits until the library of the
    /// peer has it. The peer reads it with [`Engine::binary_notifications`].
    pub fn notify_bytes(&self, name: &str, data: &[u8]) -> Result<()> {
        let name = c_string("name", name)?;
        let length = data.len() as u64;
        // SAFETY: the data has that length; the library copies it.
        check(unsafe {
            ffi::te_notify(
                self.raw(),
                self.inner.id,
                name.as_ptr(),
                data.as_ptr().cast(),
                length,
            )
        })
    }

    /// Waits until all requests to this segment that were submitted before this call have
    /// ended.
    pub fn flush(&self, limit: Option<Duration>) -> Result<()> {
        // SAFETY: the handle is valid.
        check(unsafe { ffi::te_flush(self.raw(), self.inner.id, microseconds(limit)) })
    }

    /// Returns the buffers of the segment.
    pub fn buffers(&self) -> Result<Vec<Buffer>> {
        let list = fetch(ffi::te_buffer::zeroed(), |array, size, count| {
            // SAFETY: the array has count elements of that size.
            unsafe {
                ffi::te_segment_buffers(self.raw(), self.inner.id, array, size, count)
            }
        })?;
        Ok(list.iter().map(Buffer::from_c).collect())
    }

    /// Returns the memory that the peer has registered with that label, in ascending order
    /// of addresses. If the label is `None`, returns all memory that has a label. Returns
    /// an error if there is no such memory.
    pub fn find(&self, label: Option<&str>) -> Result<Vec<Buffer>> {
        let label = label.map(|text| c_string("label", text)).transpose()?;
        let text = label.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let list = fetch(ffi::te_buffer::zeroed(), |array, size, count| {
            // SAFETY: the array has count elements of that size; the string is terminated.
            unsafe {
                ffi::te_segment_find(self.raw(), self.inner.id, text, array, size, count)
            }
        })?;
        Ok(list.iter().map(Buffer::from_c).collect())
    }

    /// Returns the paths to the segment, for local memory whose location is not specified
    /// (`"*"`).
    pub fn paths(&self) -> Result<Vec<Path>> {
        let list = fetch(ffi::te_path::zeroed(), |array, size, count| {
            // SAFETY: the array has count elements of that size.
            unsafe {
                ffi::te_segment_paths(
                    self.raw(),
                    self.inner.id,
                    ptr::null(),
                    array,
                    size,
                    count,
                )
            }
        })?;
        Ok(list.iter().map(Path::from_c).collect())
    }

    /// Returns the statistics of the peer.
    pub fn stats(&self) -> Result<PeerStats> {
        let mut one = ffi::te_peer_stats::zeroed();
        let size = size_of::<ffi::te_peer_stats>();
        // SAFETY: the struct has the size that is passed.
        check(unsafe { ffi::te_peer_stats(self.raw(), self.inner.id, &mut one, size) })?;
        Ok(PeerStats {
            name: text_of(&one.name),
            state: match one.state {
                ffi::TE_PEER_NEW => PeerState::New,
                ffi::TE_PEER_READY => PeerState::Ready,
                ffi::TE_PEER_FENCING => PeerState::Fencing,
                _ => PeerState::Gone,
            },
            queued: one.queued,
            tx_bytes: one.tx_bytes,
            rx_bytes: one.rx_bytes,
            completed: one.completed,
            failed: one.failed,
            timeout: one.timeout,
            canceled: one.canceled,
            retries: one.retries,
            fences: one.fences,
        })
    }
}

impl Path {
    fn from_c(one: &ffi::te_path) -> Path {
        Path {
            kind: match one.kind {
                ffi::TE_PATH_PROCESS => PathKind::Process,
                ffi::TE_PATH_MEMCPY => PathKind::Memcpy,
                ffi::TE_PATH_FILE => PathKind::File,
                _ => PathKind::Fabric,
            },
            connected: one.flags & ffi::TE_PATH_CONNECTED != 0,
            transport: text_of(&one.transport),
            provider: text_of(&one.provider),
            rail: text_of(&one.rail),
            address: text_of(&one.address),
            remote_rail: text_of(&one.remote_rail),
            remote_address: text_of(&one.remote_address),
            why_not_local: text_of(&one.why_not_local),
            connections: one.connections,
        }
    }
}
