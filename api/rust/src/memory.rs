// SPDX-License-Identifier: BSD-2-Clause
use std::mem::{size_of, ManuallyDrop};
use std::ops::{Bound, RangeBounds};
use std::os::raw::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering::Relaxed};
use std::sync::Arc;

use crate::engine::{Engine, Handle};
use crate::error::{c_string, check, text_of, Error, Result};
use crate::ffi;

/// How [`Engine::alloc_at`] allocates.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocFlags {
    /// Peers cannot access the memory.
    pub private: bool,
    /// No huge pages.
    pub small_pages: bool,
    /// Huge pages of the kernel's pool, or an error.
    pub huge_pages: bool,
    /// All of the memory on the requested node, or an error.
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

enum Owner {
    /// te_alloc
    Library,
    /// the capacity of a vector
    Vector(usize),
    /// the program
    Program,
}

/// Created by the functions of `Engine`. The last reference unregisters the memory.
struct Inner {
    engine: Arc<Handle>,
    start: *mut u8,
    size: usize,
    location: String,
    owner: Owner,
}

// SAFETY: the pointer is used for copies of single bytes and words, which are atomic,
// and by functions whose caller answers for the rest.
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
        Ok(Memory::new(
            engine,
            made.addr as usize as *mut u8,
            size,
            text_of(&made.location),
            Owner::Library,
        ))
    }

    pub(crate) fn register(engine: &Engine, bytes: Vec<u8>) -> Result<Memory> {
        let mut bytes = ManuallyDrop::new(bytes);
        let (start, size, capacity) = (bytes.as_mut_ptr(), bytes.len(), bytes.capacity());
        // SAFETY: the vector lives as long as the registration.
        let code = unsafe {
            ffi::registerLocalMemory(engine.handle.0, start.cast(), size, c_any(), 1)
        };
        if let Err(error) = check(code) {
            drop(ManuallyDrop::into_inner(bytes));
            return Err(error);
        }
        let owner = Owner::Vector(capacity);
        Ok(Memory::new(engine, start, size, "*".to_string(), owner))
    }

    pub(crate) unsafe fn register_raw(
        engine: &Engine,
        start: *mut u8,
        size: usize,
        location: &str,
    ) -> Result<Memory> {
        let place = c_string("location", location)?;
        check(ffi::registerLocalMemory(
            engine.handle.0,
            start.cast(),
            size,
            place.as_ptr(),
            1,
        ))?;
        Ok(Memory::new(engine, start, size, location.to_string(), Owner::Program))
    }

    fn new(
        engine: &Engine,
        start: *mut u8,
        size: usize,
        location: String,
        owner: Owner,
    ) -> Memory {
        let engine = engine.handle.clone();
        Memory { inner: Arc::new(Inner { engine, start, size, location, owner }) }
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

    /// Unregisters the memory and frees it, or returns the vector that was registered;
    /// for other memory, the vector is empty. After it has returned a vector, no peer
    /// can access the memory. If the memory is [shared](Memory::is_shared), the code of the
    /// error is [`Error::BUSY`], and the last of its holders unregisters it.
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
    /// Unregisters the memory. After an error it stays registered and is not freed.
    fn unregister(&self) -> Result<()> {
        let start = self.start.cast::<c_void>();
        // SAFETY: te_alloc or registerLocalMemory was called for this address.
        check(unsafe {
            match self.owner {
                Owner::Library => ffi::te_free(self.engine.0, start),
                _ => ffi::unregisterLocalMemory(self.engine.0, start),
            }
        })
    }

    /// Unregisters the memory and returns the vector.
    fn end(self) -> Result<Vec<u8>> {
        let this = ManuallyDrop::new(self);
        let result = this.unregister();
        // SAFETY: `this` is not used or dropped afterwards, so the fields move out once.
        unsafe {
            drop(ptr::read(&this.engine));
            drop(ptr::read(&this.location));
        }
        result.map(|()| this.vector().unwrap_or_default())
    }

    /// Returns the vector that was registered. To be called once, after unregister().
    fn vector(&self) -> Option<Vec<u8>> {
        match self.owner {
            // SAFETY: the parts are those of the vector that register() has taken.
            Owner::Vector(capacity) => {
                Some(unsafe { Vec::from_raw_parts(self.start, self.size, capacity) })
            }
            _ => None,
        }
    }
}

impl Drop for Inner {
    /// Leaks a vector that is still registered, because peers may still access it.
    fn drop(&mut self) {
        if self.unregister().is_ok() {
            drop(self.vector());
        }
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

/// A whole memory is a piece.
impl From<&Memory> for Piece {
    fn from(memory: &Memory) -> Piece {
        memory.slice(..)
    }
}

fn c_any() -> *const std::os::raw::c_char {
    b"*\0".as_ptr().cast()
}

const WORD: usize = size_of::<u64>();

/// Returns how many bytes come before the first whole word.
fn before_word(start: *const u8, len: usize) -> usize {
    start.align_offset(WORD).min(len)
}

/// Copies bytes to memory that others change at the same time.
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

/// Copies bytes from memory that others change at the same time.
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
