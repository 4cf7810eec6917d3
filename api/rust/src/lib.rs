// SPDX-License-Identifier: BSD-2-Clause
//! moonrail moves bytes between the memory of processes, over all network cards of the two
//! hosts, by libfabric. This crate is the safe interface to the C library, without further
//! dependencies.
//!
//! ```no_run
//! # fn main() -> Result<(), moonrail::Error> {
//! let engine = moonrail::Engine::new("127.0.0.1")?;
//! let memory = engine.alloc(4096)?;
//! let peer = engine.open("10.0.0.2:15023")?;
//! memory.write(0, b"hello")?;
//! peer.write(memory.slice(..5), peer.buffers()?[0].address)?;
//! # Ok(())
//! # }
//! ```
//!
//! If a transfer is reported as completed, its bytes are in place at the target. After
//! its end, in whatever way, local memory is not touched any more. [`Error::unfenced`] is
//! true if bytes may still arrive at the target.
//!
//! All types are `Send` and `Sync`. An object keeps alive what it needs: a transfer its
//! memory, memory its engine.
//!
//! `docs/BINDINGS.md` of the sources lists the C functions that this crate leaves out.
//!
//! After `fork`, the child must not use objects of the parent, except to drop them.

mod engine;
mod error;
mod ffi;
mod log;
mod memory;
mod prepared;
mod reactor;
mod segment;
mod transfer;

#[cfg(test)]
mod abi_test;

pub use engine::{
    BinaryNotification, Builder, Ended, Engine, Notification, RailState, RailStats,
};
pub use error::{Error, Result, Status};
pub use log::{set_log, LogLevel};
pub use memory::{AllocFlags, Memory, Piece, Registration};
pub use prepared::Prepared;
pub use segment::{Buffer, Path, PathKind, PeerState, PeerStats, Segment};
pub use transfer::{Batch, Task, Transfer};

/// Returns the version of the C library, for example "0.2.0".
pub fn version() -> String {
    // SAFETY: the string is static.
    unsafe { error::string_of(ffi::te_version()) }
}

/// Returns the API version of the libfabric in use, for example "1.17".
pub fn fabric_version() -> String {
    // SAFETY: the string is static.
    unsafe { error::string_of(ffi::te_fabric_version()) }
}

// All types may be moved to other threads and shared by them.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Engine>();
    shared::<Memory>();
    shared::<Piece>();
    shared::<Prepared>();
    shared::<Segment>();
    shared::<Batch>();
    shared::<Transfer>();
    shared::<Error>();
};
