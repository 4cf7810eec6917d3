// SPDX-License-Identifier: BSD-2-Clause
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::{c_char, c_int};

use crate::ffi;

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The status of a transfer: how it has ended, or that it is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The request is queued or in progress.
    Waiting,
    /// A cancellation has ended the request; nothing further is written.
    Canceled,
    /// Every byte has arrived.
    Completed,
    /// The request has ended, but the target could not be fenced: bytes may still arrive
    /// there.
    Timeout,
    /// The request has failed. The target is fenced, unless [`Error::unfenced`] is true.
    Failed,
}

impl Status {
    pub(crate) fn from_c(status: c_int) -> Status {
        match status {
            ffi::STATUS_CANCELED => Status::Canceled,
            ffi::STATUS_COMPLETED => Status::Completed,
            ffi::STATUS_TIMEOUT => Status::Timeout,
            ffi::STATUS_FAILED => Status::Failed,
            _ => Status::Waiting,
        }
    }
}

/// A failed call or a failed transfer. It contains the error record of the C library.
#[derive(Clone, Debug)]
pub struct Error {
    /// A code of `transfer_engine_c.h`, as a positive number.
    pub code: i32,
    /// The status of the transfer, or `None` if a call has failed.
    pub status: Option<Status>,
    /// Error number of the libfabric provider, or 0.
    pub provider_errno: i32,
    /// The local rail, or "".
    pub rail: String,
    /// The peer, or "".
    pub peer: String,
    /// The libfabric provider, or "".
    pub provider: String,
    /// What happened.
    pub text: String,
    /// What the user can do, or "".
    pub hint: String,
    flags: u32,
}

impl Error {
    /// The value of [`Error::code`] for an invalid argument.
    pub const INVALID_ARGUMENT: i32 = 1;
    /// The value of [`Error::code`] for memory that is still in use.
    pub const BUSY: i32 = 4;
    /// The value of [`Error::code`] for a time limit that has passed.
    pub const TIMED_OUT: i32 = ffi::TE_TIMED_OUT;
    /// The value of [`Error::code`] for a cancelled transfer.
    pub const CANCELED: i32 = ffi::TE_CANCELED;

    /// Returns true if bytes of the transfer may still arrive at the target.
    pub fn unfenced(&self) -> bool {
        self.flags & ffi::TE_ERROR_UNFENCED != 0
    }

    /// Returns true if it is unknown whether the atomic was executed or the notification
    /// was delivered.
    pub fn unknown(&self) -> bool {
        self.flags & ffi::TE_ERROR_UNKNOWN != 0
    }

    /// Returns true if the segment must be opened again.
    pub fn stale(&self) -> bool {
        self.flags & ffi::TE_ERROR_STALE != 0
    }

    pub(crate) fn from_record(record: &ffi::te_error, status: Option<Status>) -> Error {
        Error {
            code: record.code.saturating_abs(),
            status,
            provider_errno: record.prov_errno,
            rail: text_of(&record.rail),
            peer: text_of(&record.peer),
            provider: text_of(&record.provider),
            text: text_of(&record.text),
            hint: text_of(&record.hint),
            flags: record.flags,
        }
    }

    /// Makes the record of an error that this crate itself has detected.
    pub(crate) fn new(code: i32, text: impl Into<String>) -> Error {
        let mut error = Error::from_record(&ffi::te_error::zeroed(), None);
        error.code = code;
        error.text = text.into();
        error
    }

    /// Returns the last error of this thread. `code` is the code that the failed call has
    /// returned.
    pub(crate) fn last(code: c_int) -> Error {
        let mut record = ffi::te_error::zeroed();
        // SAFETY: the record has the size that is passed.
        unsafe { ffi::te_last_error(&mut record, std::mem::size_of_val(&record)) };
        let mut error = Error::from_record(&record, None);
        if code != 0 {
            error.code = code.saturating_abs();
        }
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.is_empty() {
            true => write!(f, "error {}", self.code)?,
            false => f.write_str(&self.text)?,
        }
        match self.hint.is_empty() {
            true => Ok(()),
            false => write!(f, "; {}", self.hint),
        }
    }
}

impl std::error::Error for Error {}

/// Converts the return code of a call of the C library.
pub(crate) fn check(code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::last(code)),
    }
}

/// Converts a field of a C struct to a string.
pub(crate) fn text_of(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a copy of a string of the C library.
///
/// # Safety
/// The string is terminated.
pub(crate) unsafe fn string_of(text: *const c_char) -> String {
    match text.is_null() {
        true => String::new(),
        false => CStr::from_ptr(text).to_string_lossy().into_owned(),
    }
}

/// Converts an argument to a string of C.
pub(crate) fn c_string(what: &str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| {
        Error::new(Error::INVALID_ARGUMENT, format!("{what}: contains a zero byte"))
    })
}
