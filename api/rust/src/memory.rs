// SPDX-License-Identifier: BSD-2-Clause
use std::ffi::CString;
use std::mem::{size_of, ManuallyDrop};
use std::ops::{Bound, RangeBounds};
use std::os::raw::{c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::Arc;

use crate::engine::{Engine, Handle};
use crate::error::{c_string, check, text_of, Error, Result};
use crate::ffi;

/// The options of [`Engine::alloc_at`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocFlags {
    /// Peers cannot access the memory.
    pub private: bool,
    /// No huge pages are used.
    pub small_pages: bool,
    /// Huge pages of the kernel's pool are used; if there are too few, the call fails.
    pub huge_pages: bool,
    /// All of the memory is on the requested node; if that is not possible, the call fails.
    pub strict: bool,
}

impl AllocFlags {
    fn bits(self) -> u64 {
        [
            (self.private, ffi::TE_ALLOC_PRIVATE),
            (self.small_pages, ffi::TE_ALLOC_SMALL_PAGES),
            (self.huge_pages, ffi::TE_ALLOC_HUGE_PAGES),
            (self.strict, ffi::TE_ALLOC_STRICT),
        ]
        .iter()
        .filter(|(set, _)| *set)
        .fold(0, |bits, (_, flag)| bits | u64::from(*flag))
    }
}

/// The options of [`Engine::register_with`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// "*", "cpu:0" or "cuda:0".
    pub location: String,
    /// A label with which peers can find the memory, such as the name of a tensor; or "".
    pub label: String,
    /// Peers cannot access the memory.
    pub private: bool,
    /// Neither peers nor this engine write to the memory.
    pub read_only: bool,
}

impl Default for Registration {
    fn default() -> Registration {
        Registration {
            location: "*".to_string(),
            label: String::new(),
            private: false,
            read_only: false,
        }
    }
}

impl Registration {
    fn bits(&self) -> u64 {
        let private = if self.private { ffi::TE_REG_PRIVATE } else { 0 };
        let read_only = if self.read_only { ffi::TE_REG_READ_ONLY } else { 0 };
        u64::from(private | read_only)
    }
}

enum Owner {
    /// The memory was allocated by te_alloc.
    Library,
    /// The memory is a part of this other registered memory.
    Part(#[allow(dead_code)] Memory),
    /// The memory was a vector with this capacity.
    Vector(usize),
    /// The program owns the memory.
    Program,
}

/// The memory behind all clones of a `Memory`. The functions of `Engine` create it. The
/// last reference unregisters the memory.
struct Inner {
    engine: Arc<Handle>,
    start: *mut u8,
    size: usize,
    location: String,
    /// flags TE_REG_…
    flags: u64,
    label: CString,
    owner: Owner,
    registered: bool,
}

// SAFETY: safe functions use the pointer only to copy single bytes and words atomically.
// All other uses are in unsafe functions, whose callers must prevent data races.
unsafe impl Send for Inner {}
unsafe impl Sync for Inner {}

/// Registered memory.
///
/// `Memory` is `Send`, `Sync` and `Clone`; clones are the same memory. Each transfer
/// holds a clone until it has ended. The memory is unregistered, and freed if this crate
/// owns it, when the last clone is dropped, so that no code can free memory that is in
/// use, not even with `std::mem::forget`.
///
/// Peers and transfers change the bytes at any time. Therefore there is no reference to
/// them, except from unsafe functions: [`read`](Memory::read) and
/// [`write`](Memory::write) copy. A copy at the same time as a transfer of the same bytes
/// may deliver old and new bytes mixed.
#[derive(Clone)]
pub struct Memory {
    inner: Arc<Inner>,
}

/// A range of registered memory, for a request. It holds a clone of the memory.
#[derive(Clone)]
pub struct Piece {
    memory: Memory,
    start: usize,
    len: usize,
}

impl Memory {
    pub(crate) fn allocate(
        engine: &Engine,
        size: usize,
        location: Option<&str>,
        flags: AllocFlags,
    ) -> Result<Memory> {
        let location = match location {
            Some(text) => Some(c_string("location", text)?),
            None => None,
        };
        let place = location.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let mut made = ffi::te_memory::zeroed();
        // SAFETY: the struct has the size that is passed.
        check(unsafe {
            ffi::te_alloc(
                engine.handle.0,
                size,
                place,
                flags.bits(),
                &mut made,
                size_of::<ffi::te_memory>(),
            )
        })?;
        let inner = Inner {
            engine: engine.handle.clone(),
            start: made.addr as usize as *mut u8,
            size,
            location: text_of(&made.location),
            flags: 0,
            label: CString::default(),
            owner: Owner::Library,
            registered: true,
        };
        Ok(Memory { inner: Arc::new(inner) })
    }

    pub(crate) fn register(
        engine: &Engine,
        bytes: Vec<u8>,
        options: &Registration,
    ) -> Result<Memory> {
        let label = c_string("label", &options.label)?;
        let mut bytes = ManuallyDrop::new(bytes);
        let inner = Inner {
            engine: engine.handle.clone(),
            start: bytes.as_mut_ptr(),
            size: bytes.len(),
            location: options.location.clone(),
            flags: options.bits(),
            label,
            owner: Owner::Vector(bytes.capacity()),
            registered: false,
        };
        inner.register()
    }

    pub(crate) unsafe fn register_raw(
        engine: &Engine,
        start: *mut u8,
        size: usize,
        options: &Registration,
    ) -> Result<Memory> {
        let inner = Inner {
            engine: engine.handle.clone(),
            start,
            size,
            location: options.location.clone(),
            flags: options.bits(),
            label: c_string("label", &options.label)?,
            owner: Owner::Program,
            registered: false,
        };
        inner.register()
    }

    /// Registers a range of the memory once more, with a label for peers. The range has the
    /// same access and location as the memory, and holds a clone of the memory.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    pub fn register_part(
        &self,
        range: impl RangeBounds<usize>,
        label: &str,
    ) -> Result<Memory> {
        let piece = self.slice(range);
        let local = piece.to_c();
        let inner = Inner {
            engine: self.inner.engine.clone(),
            start: local.addr.cast(),
            size: piece.len,
            location: self.inner.location.clone(),
            flags: u64::from(ffi::TE_REG_NESTED),
            label: c_string("label", label)?,
            owner: Owner::Part(self.clone()),
            registered: false,
        };
        inner.register()
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.inner.size
    }

    /// Returns true if the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.inner.size == 0
    }

    /// Returns the address under which peers read and write the first byte.
    pub fn address(&self) -> u64 {
        self.inner.start as usize as u64
    }

    /// Returns the location as registered: "cpu:0", "cuda:1" or "*".
    pub fn location(&self) -> &str {
        &self.inner.location
    }

    /// Returns a range of the memory.
    ///
    /// # Panics
    /// If the range is not inside the memory.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Piece {
        let start = match range.start_bound() {
            Bound::Included(n) => *n,
            Bound::Excluded(n) => n + 1,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(n) => n + 1,
            Bound::Excluded(n) => *n,
            Bound::Unbounded => self.len(),
        };
        assert!(
            start <= end && end <= self.len(),
            "range {start}..{end} is not inside memory of {} bytes",
            self.len()
        );
        Piece { memory: self.clone(), start, len: end - start }
    }

    /// Copies bytes into the memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.host(offset, bytes.len())?;
        // SAFETY: host() has checked the range.
        unsafe { store(to, bytes) };
        Ok(())
    }

    /// Copies bytes out of the memory.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.host(offset, bytes.len())?;
        // SAFETY: host() has checked the range.
        unsafe { load(from, bytes) };
        Ok(())
    }

    /// Returns a copy of a range of the memory.
    pub fn to_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        self.host(offset, len)?;
        let mut bytes = vec![0; len];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns a pointer to the first byte. It is valid until the last clone is dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.start
    }

    /// Returns the bytes as a slice.
    ///
    /// # Safety
    /// The memory is host memory. While the slice exists, no peer and no transfer writes
    /// to it.
    pub unsafe fn as_slice(&self) -> &[u8] {
        std::slice::from_raw_parts(self.inner.start, self.inner.size)
    }

    /// Returns true if another clone, a piece or a transfer that has not ended holds the
    /// memory.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.inner) > 1
    }

    /// Unregisters the memory and frees it, or returns the vector that was registered; for
    /// other memory, the returned vector is empty. When this function has returned without
    /// an error, no peer can access the memory. If the memory is
    /// [shared](Memory::is_shared), the code of the error is [`Error::BUSY`], and the last
    /// of its holders unregisters it.
    pub fn release(self) -> Result<Vec<u8>> {
        let inner = Arc::try_unwrap(self.inner).map_err(|_| {
            Error::new(Error::BUSY, "the memory has other users in this process")
        })?;
        inner.end()
    }

    /// Checks that a range lies inside the memory, and that the processor can access it.
    fn host(&self, offset: usize, len: usize) -> Result<*mut u8> {
        if self.inner.location.starts_with("cuda") {
            return Err(Error::new(
                Error::INVALID_ARGUMENT,
                format!(
                    "memory at {}: the processor cannot access it",
                    self.inner.location
                ),
            ));
        }
        match offset.checked_add(len) {
            // SAFETY: the range is inside the memory.
            Some(end) if end <= self.len() => Ok(unsafe { self.inner.start.add(offset) }),
            _ => Err(Error::new(
                Error::INVALID_ARGUMENT,
                format!(
                    "offset {offset}, {len} bytes: not inside memory of {} bytes",
                    self.len()
                ),
            )),
        }
    }
}

impl Inner {
    /// Registers the memory. After an error, the object is dropped; if it was made from a
    /// `Vec`, this frees the `Vec`.
    fn register(mut self) -> Result<Memory> {
        let location = c_string("location", &self.location)?;
        let entry = self.entry(location.as_ptr());
        // SAFETY: the memory lives as long as its owner, which this object holds.
        check(unsafe {
            ffi::te_register(self.engine.0, &entry, size_of::<ffi::te_registration>(), 1)
        })?;
        self.registered = true;
        Ok(Memory { inner: Arc::new(self) })
    }

    fn entry(&self, location: *const c_char) -> ffi::te_registration {
        ffi::te_registration {
            addr: self.start.cast(),
            length: self.size as u64,
            location,
            flags: self.flags,
            label: self.label.as_ptr(),
        }
    }

    /// Unregisters the memory. After an error it stays registered and is not freed.
    fn unregister(&self) -> Result<()> {
        let start = self.start.cast::<c_void>();
        let entry = self.entry(ptr::null());
        // SAFETY: te_alloc or te_register was called for this memory.
        check(unsafe {
            match self.owner {
                Owner::Library => ffi::te_free(self.engine.0, start),
                _ => ffi::te_unregister(
                    self.engine.0,
                    &entry,
                    size_of::<ffi::te_registration>(),
                    1,
                ),
            }
        })
    }

    /// Unregisters the memory and returns the vector.
    fn end(mut self) -> Result<Vec<u8>> {
        let result = self.unregister();
        self.registered = false;
        let vector = self.vector().unwrap_or_default();
        if result.is_err() {
            // Peers may still access it.
            std::mem::forget(vector);
            return result.map(|()| Vec::new());
        }
        Ok(vector)
    }

    /// Takes out the vector that was registered.
    fn vector(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(&mut self.owner, Owner::Program) {
            // SAFETY: the parts are those of the vector that register() has taken.
            Owner::Vector(capacity) => {
                Some(unsafe { Vec::from_raw_parts(self.start, self.size, capacity) })
            }
            other => {
                self.owner = other;
                None
            }
        }
    }
}

impl Drop for Inner {
    /// If the memory is still registered, leaks it, because peers may still access it.
    fn drop(&mut self) {
        if self.registered && self.unregister().is_err() {
            std::mem::forget(std::mem::replace(&mut self.owner, Owner::Program));
        }
        drop(self.vector());
    }
}

impl Piece {
    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the piece has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory of the piece.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn to_c(&self) -> ffi::te_local {
        ffi::te_local {
            // SAFETY: the range is inside the memory.
            addr: unsafe { self.memory.inner.start.add(self.start) }.cast(),
            length: self.len as u64,
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Handle> {
        &self.memory.inner.engine
    }
}

/// Converts memory to the piece that consists of all its bytes.
impl From<&Memory> for Piece {
    fn from(memory: &Memory) -> Piece {
        memory.slice(..)
    }
}

const WORD: usize = size_of::<u64>();

/// Returns the number of bytes before the first whole word.
fn before_word(start: *const u8, len: usize) -> usize {
    start.align_offset(WORD).min(len)
}

/// Copies bytes to memory that other threads or processes may change at the
/// same time.
///
/// # Safety
/// The memory has at least as many bytes.
unsafe fn store(to: *mut u8, bytes: &[u8]) {
    let head = before_word(to, bytes.len());
    let words = (bytes.len() - head) / WORD;
    let tail = head + words * WORD;
    for i in (0..head).chain(tail..bytes.len()) {
        (*to.add(i).cast::<AtomicU8>()).store(bytes[i], Relaxed);
    }
    for (i, word) in bytes[head..tail].chunks_exact(WORD).enumerate() {
        let value = u64::from_ne_bytes(word.try_into().unwrap());
        (*to.add(head + i * WORD).cast::<AtomicU64>()).store(value, Relaxed);
    }
}

/// Copies bytes from memory that other threads or processes may change at the
/// same time.
///
/// # Safety
/// The memory has at least as many bytes.
unsafe fn load(from: *mut u8, bytes: &mut [u8]) {
    let head = before_word(from, bytes.len());
    let words = (bytes.len() - head) / WORD;
    let tail = head + words * WORD;
    for i in (0..head).chain(tail..bytes.len()) {
        bytes[i] = (*from.add(i).cast::<AtomicU8>()).load(Relaxed);
    }
    for (i, word) in bytes[head..tail].chunks_exact_mut(WORD).enumerate() {
        let value = (*from.add(head + i * WORD).cast::<AtomicU64>()).load(Relaxed);
        word.copy_from_slice(&value.to_ne_bytes());
    }
}
