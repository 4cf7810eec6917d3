// SPDX-License-Identifier: BSD-2-Clause
use std::ffi::CString;
use std::mem::size_of;
use std::os::raw::{c_char, c_int};
use std::os::unix::io::RawFd;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{c_string, check, string_of, text_of, Error, Result, Status};
use crate::ffi;
use crate::memory::{AllocFlags, Memory, Registration};
use crate::segment::Segment;
use crate::transfer::{wait_any, Batch, Transfer};

/// The handle of the engine in the C library. Each object of an engine holds a reference to
/// it. The engine is destroyed when the last of these objects is dropped.
pub(crate) struct Handle(pub(crate) ffi::transfer_engine_t);

// SAFETY: every function of the C library may be called from any thread, except
// destroyTransferEngine, which must be the last call. drop() makes that call when it holds
// the last reference.
unsafe impl Send for Handle {}
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: no object of this engine is left.
        unsafe { ffi::destroyTransferEngine(self.0) };
    }
}

/// One end of transfers: a named segment with rails, memory and connections.
///
/// `Engine` is `Send`, `Sync` and `Clone`; clones are the same engine. The engine ends
/// when its last clone and the last object made from it (memory, segments, batches,
/// transfers) are dropped.
#[derive(Clone)]
pub struct Engine {
    pub(crate) handle: Arc<Handle>,
}

/// The options of an engine. See [`Engine::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    metadata: String,
    name: String,
    ip: Option<String>,
    port: u16,
    transports: Vec<String>,
    settings: Vec<String>,
}

impl Builder {
    /// Sets the metadata service, for example `zookeeper://host:2181`. The default is
    /// `P2PHANDSHAKE`, which needs no server.
    pub fn metadata(mut self, connection: &str) -> Builder {
        self.metadata = connection.to_string();
        self
    }

    /// Sets the address of the control channel.
    pub fn ip(mut self, ip: &str) -> Builder {
        self.ip = Some(ip.to_string());
        self
    }

    /// Sets the port of the control channel. The default is any free port.
    pub fn port(mut self, port: u16) -> Builder {
        self.port = port;
        self
    }

    /// Adds a transport. If there is none, the engine chooses the transports that match
    /// the devices of this host.
    pub fn transport(mut self, name: &str) -> Builder {
        self.transports.push(name.to_string());
        self
    }

    /// Sets an environment variable of the C library for this engine only.
    pub fn setting(mut self, name: &str, value: &str) -> Builder {
        self.settings.push(format!("{name}={value}"));
        self
    }

    /// Creates the engine.
    pub fn build(&self) -> Result<Engine> {
        let metadata = c_string("metadata", &self.metadata)?;
        let name = c_string("name", &self.name)?;
        let ip = match &self.ip {
            Some(ip) => Some(c_string("ip", ip)?),
            None => None,
        };
        let mut settings = Vec::new();
        for setting in &self.settings {
            settings.push(c_string("setting", setting)?);
        }
        let pointers: Vec<*const c_char> = settings.iter().map(|s| s.as_ptr()).collect();
        let mut options = ffi::te_engine_options::zeroed();
        options.metadata = metadata.as_ptr();
        options.server_name = name.as_ptr();
        options.ip = ip.as_ref().map_or(ptr::null(), |ip: &CString| ip.as_ptr());
        options.port = self.port.into();
        options.auto_discover = self.transports.is_empty().into();
        options.settings = pointers.as_ptr();
        options.settings_count = pointers.len();
        let mut raw = ptr::null_mut();
        // SAFETY: the strings live until the call returns, which copies them.
        check(unsafe { ffi::te_engine_create(&options, size_of_options(), &mut raw) })?;
        let engine = Engine { handle: Arc::new(Handle(raw)) };
        for transport in &self.transports {
            let name = c_string("transport", transport)?;
            // SAFETY: the handle is valid.
            let made =
                unsafe { ffi::installTransport(raw, name.as_ptr(), ptr::null_mut()) };
            if made.is_null() {
                return Err(Error::last(0));
            }
        }
        Ok(engine)
    }
}

fn size_of_options() -> usize {
    size_of::<ffi::te_engine_options>()
}

/// A notification that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub name: String,
    pub text: String,
}

/// A notification with bytes that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryNotification {
    pub name: String,
    pub data: Vec<u8>,
}

/// The end of a transfer, for programs that wait for [`Engine::event_fd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The id of the transfer: [`Transfer::id`].
    pub id: u64,
    /// The worst status of the requests of the transfer.
    pub status: Status,
    /// The number of bytes that have arrived.
    pub bytes: u64,
    /// The cookie of the first request of the transfer.
    pub cookie: u64,
    /// The number of requests of the transfer.
    pub tasks: u64,
}

/// The state of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RailState {
    Up,
    /// The rail makes no progress; it is being checked.
    Suspect,
    /// The rail carries nothing.
    Down,
    /// The rail was repaired; it carries a growing share.
    Probing,
}

/// Statistics of one rail. The counters start at 0 when the engine is created.
#[derive(Clone, Debug)]
pub struct RailStats {
    /// Interface or RDMA device.
    pub name: String,
    pub provider: String,
    pub address: String,
    pub transport: String,
    pub state: RailState,
    /// Open endpoints.
    pub lanes: u32,
    /// Bytes written to peers and completed.
    pub tx_bytes: u64,
    /// Bytes read from peers and completed.
    pub rx_bytes: u64,
    pub slices: u64,
    /// Slices posted again.
    pub retries: u64,
    /// Error completions.
    pub errors: u64,
    /// Bytes posted and not completed.
    pub inflight_bytes: u64,
    /// Service rate, bytes per second.
    pub rate: f64,
}

impl RailStats {
    fn from_c(one: &ffi::te_rail_stats) -> RailStats {
        RailStats {
            name: text_of(&one.name),
            provider: text_of(&one.provider),
            address: text_of(&one.address),
            transport: text_of(&one.transport),
            state: match one.state {
                ffi::TE_RAIL_UP => RailState::Up,
                ffi::TE_RAIL_SUSPECT => RailState::Suspect,
                ffi::TE_RAIL_PROBING => RailState::Probing,
                _ => RailState::Down,
            },
            lanes: one.lanes,
            tx_bytes: one.tx_bytes,
            rx_bytes: one.rx_bytes,
            slices: one.slices,
            retries: one.retries,
            errors: one.errors,
            inflight_bytes: one.inflight_bytes,
            rate: one.rate,
        }
    }
}

impl Engine {
    /// Creates an engine without a metadata service. `name` is an address of this host.
    pub fn new(name: &str) -> Result<Engine> {
        Engine::builder(name).build()
    }

    /// Returns the options of an engine with that segment name.
    pub fn builder(name: &str) -> Builder {
        Builder {
            metadata: "P2PHANDSHAKE".to_string(),
            name: name.to_string(),
            ip: None,
            port: 0,
            transports: Vec::new(),
            settings: Vec::new(),
        }
    }

    /// Returns the handle for functions of the C library. The engine stays its owner.
    pub fn as_raw(&self) -> *mut std::os::raw::c_void {
        self.handle.0
    }

    /// Returns the address of the control channel. Without a metadata service, this is the
    /// name under which peers open the segment of this engine.
    pub fn name(&self) -> String {
        let mut text = [0 as c_char; 512];
        // SAFETY: the buffer has the size that is passed.
        unsafe { ffi::getLocalIpAndPort(self.handle.0, text.as_mut_ptr(), text.len()) };
        text_of(&text)
    }

    /// Allocates zeroed host memory that peers may read and write.
    pub fn alloc(&self, size: usize) -> Result<Memory> {
        Memory::allocate(self, size, None, AllocFlags::default())
    }

    /// Allocates memory as te_alloc(3) does, for example at "cpu:0" or "cuda:0".
    pub fn alloc_at(
        &self,
        size: usize,
        location: &str,
        flags: AllocFlags,
    ) -> Result<Memory> {
        Memory::allocate(self, size, Some(location), flags)
    }

    /// Registers a vector, so that peers may read and write its bytes.
    /// [`Memory::release`] returns it.
    pub fn register(&self, bytes: Vec<u8>) -> Result<Memory> {
        Memory::register(self, bytes, &Registration::default())
    }

    /// Registers a vector with options.
    pub fn register_with(&self, bytes: Vec<u8>, options: &Registration) -> Result<Memory> {
        Memory::register(self, bytes, options)
    }

    /// Registers memory that this crate does not own.
    ///
    /// # Safety
    /// The memory is valid for reads and writes until the returned object, its clones
    /// and all transfers that use them are dropped. Other processes read and write it
    /// at any time.
    pub unsafe fn register_raw(
        &self,
        start: *mut u8,
        size: usize,
        location: &str,
    ) -> Result<Memory> {
        let options =
            Registration { location: location.to_string(), ..Registration::default() };
        Memory::register_raw(self, start, size, &options)
    }

    /// Registers memory that this crate does not own, with options.
    ///
    /// # Safety
    /// As for [`register_raw`](Engine::register_raw).
    pub unsafe fn register_raw_with(
        &self,
        start: *mut u8,
        size: usize,
        options: &Registration,
    ) -> Result<Memory> {
        Memory::register_raw(self, start, size, options)
    }

    /// Opens the segment of a peer.
    pub fn open(&self, name: &str) -> Result<Segment> {
        Segment::open(self, name, true)
    }

    /// Opens the segment of a peer and fetches its descriptor again.
    pub fn open_fresh(&self, name: &str) -> Result<Segment> {
        Segment::open(self, name, false)
    }

    /// Returns the descriptor of this engine's segment, for [`Engine::import`] in another
    /// process.
    pub fn export(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: with size 0, only the size is returned.
        unsafe { ffi::te_segment_export(self.handle.0, 0, ptr::null_mut(), &mut size) };
        loop {
            let mut blob = vec![0u8; size];
            let room = size;
            // SAFETY: the buffer has the size that is passed.
            let code = unsafe {
                ffi::te_segment_export(
                    self.handle.0,
                    0,
                    blob.as_mut_ptr().cast(),
                    &mut size,
                )
            };
            if code == 0 {
                blob.truncate(size);
                return Ok(blob);
            }
            if size <= room {
                return Err(Error::last(code));
            }
        }
    }

    /// Opens the segment that a descriptor describes. Communicates with no other process.
    pub fn import(&self, blob: &[u8]) -> Result<Segment> {
        Segment::import(self, blob)
    }

    /// Fetches the descriptors of all open segments again.
    pub fn sync(&self) -> Result<()> {
        // SAFETY: the handle is valid.
        check(unsafe { ffi::syncSegmentCache(self.handle.0) })
    }

    /// Connects every rail pair with a peer, before the first transfer.
    pub fn warm_up(&self, name: &str) -> Result<()> {
        let name = c_string("name", name)?;
        // SAFETY: the string is terminated.
        check(unsafe { ffi::warmupEfaSegment(self.handle.0, name.as_ptr()) })
    }

    /// Checks that the control channel of a peer answers within the limit. If the limit is
    /// `None`, the default limit of the library applies.
    pub fn probe(&self, name: &str, limit: Option<Duration>) -> Result<()> {
        let name = c_string("name", name)?;
        // SAFETY: the string is terminated.
        check(unsafe {
            ffi::te_probe_peer(self.handle.0, name.as_ptr(), microseconds(limit))
        })
    }

    /// Returns an empty batch of requests.
    pub fn batch(&self) -> Batch {
        Batch::new(self)
    }

    /// Waits until all requests that were submitted before this call have ended.
    pub fn drain(&self, limit: Option<Duration>) -> Result<()> {
        // SAFETY: the handle is valid.
        check(unsafe { ffi::te_drain(self.handle.0, microseconds(limit)) })
    }

    /// Removes the notifications with text that have arrived from the queue of
    /// the engine, and returns them. Does not wait.
    pub fn notifications(&self) -> Vec<Notification> {
        let mut count: c_int = 0;
        let mut list = Vec::new();
        // SAFETY: the library returns count elements with terminated strings.
        unsafe {
            let all = ffi::getNotifsFromEngine(self.handle.0, &mut count);
            for i in 0..count as usize {
                let one = &*all.add(i);
                list.push(Notification {
                    name: string_of(one.name),
                    text: string_of(one.msg),
                });
            }
            ffi::freeNotifsMsgBuf(all, count);
        }
        list
    }

    /// Removes the notifications with bytes that have arrived from the queue of
    /// the engine, and returns them. Does not wait.
    pub fn binary_notifications(&self) -> Result<Vec<BinaryNotification>> {
        const ROOM: usize = 64;
        let size = size_of::<ffi::te_notification>();
        let mut list = Vec::new();
        loop {
            let mut notes = [ffi::te_notification::zeroed(); ROOM];
            let mut count = ROOM;
            // SAFETY: the array has count elements of that size. The library fills count
            // elements, whose data have the stated lengths.
            unsafe {
                check(ffi::te_notify_fetch(
                    self.handle.0,
                    notes.as_mut_ptr(),
                    size,
                    &mut count,
                ))?;
                for one in &notes[..count] {
                    let data = one.data.cast::<u8>();
                    list.push(BinaryNotification {
                        name: string_of(one.name),
                        data: std::slice::from_raw_parts(data, one.length as usize)
                            .to_vec(),
                    });
                }
                ffi::te_notify_release(notes.as_mut_ptr(), size, count);
            }
            if count < ROOM {
                return Ok(list);
            }
        }
    }

    /// Waits until one of the transfers has ended, and returns its index. Returns `None` if
    /// the limit has passed. At most 4096 transfers may be passed.
    pub fn wait_any(
        &self,
        transfers: &[&Transfer],
        limit: Option<Duration>,
    ) -> Result<Option<usize>> {
        wait_any(&self.handle, transfers, limit)
    }

    /// Returns the transfers that have ended, except those that an earlier call has
    /// returned and those that were dropped. Does not wait.
    pub fn ended_batches(&self) -> Result<Vec<Ended>> {
        const ROOM: usize = 256;
        let size = size_of::<ffi::te_ended>();
        let mut list = Vec::new();
        loop {
            let mut some = [ffi::te_ended::zeroed(); ROOM];
            let mut count = ROOM;
            // SAFETY: the array has count elements of that size.
            check(unsafe {
                ffi::te_ended_batches(self.handle.0, some.as_mut_ptr(), size, &mut count)
            })?;
            list.extend(some[..count].iter().map(|one| Ended {
                id: one.batch_id,
                status: Status::from_c(one.status),
                bytes: one.transferred_bytes,
                cookie: one.cookie,
                tasks: one.tasks,
            }));
            if count < ROOM {
                return Ok(list);
            }
        }
    }

    /// Returns the file descriptor that is readable while the end of a batch or a
    /// notification can be fetched (te_event_fd(3)). [`Engine::ended_batches`],
    /// [`Engine::notifications`] and [`Engine::binary_notifications`] fetch them. The
    /// engine owns the file descriptor.
    pub fn event_fd(&self) -> Result<RawFd> {
        // SAFETY: the handle is valid.
        match unsafe { ffi::te_event_fd(self.handle.0) } {
            fd if fd >= 0 => Ok(fd),
            code => Err(Error::last(code)),
        }
    }

    /// Returns the statistics of the rails.
    pub fn rails(&self) -> Result<Vec<RailStats>> {
        let list = fetch(ffi::te_rail_stats::zeroed(), |array, size, count| {
            // SAFETY: the array has count elements of that size.
            unsafe { ffi::te_rail_stats(self.handle.0, array, size, count) }
        })?;
        Ok(list.iter().map(RailStats::from_c).collect())
    }

    /// Returns the settings in force, one line `NAME=value source` each.
    pub fn settings(&self) -> Result<String> {
        text_from(|buf, len| {
            // SAFETY: the buffer has the size that is passed.
            unsafe { ffi::te_settings_text(self.handle.0, buf, len) }
        })
    }

    /// Returns the topology in use, as JSON.
    pub fn topology(&self) -> Result<String> {
        text_from(|buf, len| {
            // SAFETY: the buffer has the size that is passed.
            unsafe { ffi::te_topology_text(self.handle.0, buf, len) }
        })
    }
}

/// Converts a time limit to microseconds. `None` means that there is no limit.
pub(crate) fn microseconds(limit: Option<Duration>) -> i64 {
    match limit {
        None => -1,
        Some(d) => {
            let up = (d.as_nanos() + 999) / 1000;
            i64::try_from(up).unwrap_or(i64::MAX)
        }
    }
}

/// Calls a function that fills an array. If the array is too short, repeats the call with a
/// longer array, until all elements fit.
pub(crate) fn fetch<T: Copy>(
    zero: T,
    call: impl Fn(*mut T, usize, *mut usize) -> c_int,
) -> Result<Vec<T>> {
    let mut count = 0;
    check(call(ptr::null_mut(), size_of::<T>(), &mut count))?;
    loop {
        let mut list = vec![zero; count];
        count = list.len();
        check(call(list.as_mut_ptr(), size_of::<T>(), &mut count))?;
        if count <= list.len() {
            list.truncate(count);
            return Ok(list);
        }
    }
}

/// Calls a function that writes a text. If the buffer is too short, repeats the call with a
/// longer buffer, until the text fits.
fn text_from(call: impl Fn(*mut c_char, usize) -> c_int) -> Result<String> {
    let mut text: Vec<c_char> = Vec::new();
    loop {
        let length = call(text.as_mut_ptr(), text.len());
        match usize::try_from(length) {
            Err(_) => return Err(Error::last(length)),
            Ok(length) if length < text.len() => return Ok(text_of(&text)),
            Ok(length) => text = vec![0; length + 1],
        }
    }
}
