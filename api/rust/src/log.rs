// SPDX-License-Identifier: BSD-2-Clause
use std::os::raw::{c_char, c_int, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::Mutex;

use crate::error::{check, string_of, Result};
use crate::ffi;

/// The severity of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

type Callback = Box<dyn Fn(LogLevel, &str, &str) + Send + Sync>;

/// The callback in use. The C library gets the address of the inner box. This address does
/// not change, because the outer box keeps the inner one on the heap.
#[allow(clippy::redundant_allocation)]
static CALLBACK: Mutex<Option<Box<Callback>>> = Mutex::new(None);

/// Passes the log lines of the C library to a callback, with the arguments (level, module,
/// text). `None` restores standard error. The callback may be called from any thread at any
/// time. It must not call this crate, and must return quickly. A panic in the callback is
/// caught and ignored.
pub fn set_log(callback: Option<Callback>) -> Result<()> {
    let mut current = CALLBACK.lock().unwrap();
    let new = callback.map(Box::new);
    let (function, context): (ffi::te_log_fn, *mut c_void) = match &new {
        Some(callback) => (Some(trampoline), &**callback as *const Callback as *mut c_void),
        None => (None, ptr::null_mut()),
    };
    // SAFETY: the callback lives until the next call of this function has succeeded. The
    // library does not call the previous one after this call has returned 0.
    check(unsafe { ffi::te_set_log(function, context) })?;
    *current = new;
    Ok(())
}

unsafe extern "C" fn trampoline(
    level: c_int,
    module: *const c_char,
    text: *const c_char,
    context: *mut c_void,
) {
    let callback = &*(context as *const Callback);
    let level = match level {
        ffi::TE_LOG_ERROR => LogLevel::Error,
        ffi::TE_LOG_WARN => LogLevel::Warn,
        ffi::TE_LOG_INFO => LogLevel::Info,
        _ => LogLevel::Debug,
    };
    let (module, text) = (string_of(module), string_of(text));
    // A panic must not pass through the frames of C.
    let _ = catch_unwind(AssertUnwindSafe(|| callback(level, &module, &text)));
}
