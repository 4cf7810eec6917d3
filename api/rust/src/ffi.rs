// SPDX-License-Identifier: BSD-2-Clause
//! The declarations of `moonrail.h` and `transfer_engine_c.h` that this crate uses,
//! with the names of C. A test compiles a C program that compares each of them with
//! the headers.
#![allow(non_camel_case_types)]
#![allow(dead_code)]
#![allow(non_snake_case)]

use std::os::raw::{c_char, c_int, c_void};

pub type transfer_engine_t = *mut c_void;
pub type transport_t = *mut c_void;
pub type segment_id_t = i32;
pub type batch_id_t = u64;
pub type te_prepared_t = u64;
pub type te_log_fn = Option<
    unsafe extern "C" fn(
        level: c_int,
        module: *const c_char,
        text: *const c_char,
        context: *mut c_void,
    ),
>;

/// The layout of a struct, for the comparison with C.
#[cfg(test)]
pub struct Layout {
    pub name: &'static str,
    pub size: usize,
    /// name, offset and size of each field
    pub fields: Vec<(&'static str, usize, usize)>,
}

macro_rules! c_structs {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident { $( pub $field:ident: $type:ty, )* }
    )*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $name { $( pub $field: $type, )* }

            impl $name {
                /// All fields are integers, floating-point numbers, pointers, or
                /// arrays of them, so that a value of zero bytes is valid.
                pub fn zeroed() -> $name {
                    // SAFETY: all fields are valid if their bytes are zero; see above.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        #[cfg(test)]
        pub fn layouts() -> Vec<Layout> {
            vec![$( {
                let value = $name::zeroed();
                let start = &value as *const $name as usize;
                Layout {
                    name: stringify!($name),
                    size: std::mem::size_of::<$name>(),
                    fields: vec![$( (
                        stringify!($field),
                        std::ptr::addr_of!(value.$field) as usize - start,
                        std::mem::size_of::<$type>(),
                    ) ),*],
                }
            } ),*]
        }
    };
}

macro_rules! c_constants {
    ($( pub const $name:ident: $type:ty = $value:expr; )*) => {
        $( pub const $name: $type = $value; )*

        #[cfg(test)]
        pub const CONSTANTS: &[(&str, i64)] = &[
            $( (stringify!($name), $name as i64) ),*
        ];
    };
}

macro_rules! c_functions {
    ($( pub fn $name:ident($( $arg:ident: $type:ty ),* $(,)?) $( -> $ret:ty )?; )*) => {
        extern "C" {
            $( pub fn $name($( $arg: $type ),*) $( -> $ret )?; )*
        }

        /// name, types of the arguments, type of the result
        #[cfg(test)]
        pub const FUNCTIONS: &[(&str, &[&str], &str)] = &[
            $( (
                stringify!($name),
                &[$( stringify!($type) ),*],
                concat!($( stringify!($ret) )?),
            ) ),*
        ];
    };
}

c_structs! {
    pub struct transfer_request {
        pub opcode: c_int,
        pub source: *mut c_void,
        pub target_id: segment_id_t,
        pub target_offset: u64,
        pub length: u64,
    }
    pub struct transfer_status {
        pub status: c_int,
        pub transferred_bytes: u64,
    }
    pub struct notify_msg {
        pub name: *mut c_char,
        pub msg: *mut c_char,
    }
    pub struct te_error {
        pub code: i32,
        pub prov_errno: i32,
        pub flags: u32,
        pub reserved: u32,
        pub rail: [c_char; 64],
        pub peer: [c_char; 96],
        pub provider: [c_char; 32],
        pub text: [c_char; 160],
        pub hint: [c_char; 160],
    }
    pub struct te_engine_options {
        pub metadata: *const c_char,
        pub server_name: *const c_char,
        pub ip: *const c_char,
        pub port: u32,
        pub auto_discover: i32,
        pub settings: *const *const c_char,
        pub settings_count: usize,
    }
    pub struct te_rail_stats {
        pub name: [c_char; 64],
        pub provider: [c_char; 32],
        pub address: [c_char; 96],
        pub transport: [c_char; 16],
        pub state: u32,
        pub lanes: u32,
        pub tx_bytes: u64,
        pub rx_bytes: u64,
        pub slices: u64,
        pub retries: u64,
        pub errors: u64,
        pub inflight_bytes: u64,
        pub inflight_max: u64,
        pub window: u64,
        pub rate: f64,
        pub state_changes: u64,
    }
    pub struct te_buffer {
        pub addr: u64,
        pub length: u64,
        pub location: [c_char; 64],
        pub label: [c_char; 256],
    }
    pub struct te_registration {
        pub addr: *mut c_void,
        pub length: u64,
        pub location: *const c_char,
        pub flags: u64,
        pub label: *const c_char,
    }
    pub struct te_local {
        pub addr: *mut c_void,
        pub length: u64,
    }
    pub struct te_remote {
        pub addr: u64,
        pub length: u64,
    }
    pub struct te_request {
        pub opcode: u32,
        pub flags: u32,
        pub target_id: i32,
        pub local_count: u32,
        pub remote_count: u32,
        pub reserved: u32,
        pub local: *const te_local,
        pub remote: *const te_remote,
        pub operand: u64,
        pub compare: u64,
        pub cookie: u64,
    }
    pub struct te_ended {
        pub batch_id: batch_id_t,
        pub status: i32,
        pub reserved: u32,
        pub transferred_bytes: u64,
        pub cookie: u64,
        pub tasks: u64,
    }
    pub struct te_task {
        pub cookie: u64,
        pub status: i32,
        pub reserved: u32,
        pub transferred_bytes: u64,
    }
    pub struct te_notification {
        pub name: *mut c_char,
        pub data: *mut c_void,
        pub length: u64,
    }
    pub struct te_piece {
        pub local: *mut c_void,
        pub remote: u64,
        pub length: u64,
    }
    pub struct te_path {
        pub kind: u32,
        pub flags: u32,
        pub rank: u32,
        pub numa_node: i32,
        pub transport: [c_char; 16],
        pub provider: [c_char; 32],
        pub rail: [c_char; 64],
        pub address: [c_char; 96],
        pub remote_rail: [c_char; 64],
        pub remote_address: [c_char; 96],
        pub why_not_local: [c_char; 64],
        pub connections: u32,
    }
    pub struct te_peer_stats {
        pub name: [c_char; 96],
        pub incarnation: u64,
        pub state: u32,
        pub queued: u32,
        pub tx_bytes: u64,
        pub rx_bytes: u64,
        pub completed: u64,
        pub failed: u64,
        pub timeout: u64,
        pub canceled: u64,
        pub retries: u64,
        pub fences: u64,
        pub last_ns: u64,
    }
    pub struct te_memory {
        pub addr: u64,
        pub size: u64,
        pub mapped: u64,
        pub page_size: u64,
        pub pages: u32,
        pub numa_node: i32,
        pub location: [c_char; 64],
    }
}

c_constants! {
    pub const INVALID_BATCH: batch_id_t = u64::MAX;
    pub const OPCODE_READ: c_int = 0;
    pub const OPCODE_WRITE: c_int = 1;
    pub const STATUS_WAITING: c_int = 0;
    pub const STATUS_CANCELED: c_int = 3;
    pub const STATUS_COMPLETED: c_int = 4;
    pub const STATUS_TIMEOUT: c_int = 5;
    pub const STATUS_FAILED: c_int = 6;
    pub const TE_ERROR_UNFENCED: u32 = 1;
    pub const TE_ERROR_UNKNOWN: u32 = 2;
    pub const TE_ERROR_STALE: u32 = 4;
    pub const TE_TIMED_OUT: c_int = 9;
    pub const TE_CANCELED: c_int = 10;
    pub const TE_LOG_ERROR: c_int = 0;
    pub const TE_LOG_WARN: c_int = 1;
    pub const TE_LOG_INFO: c_int = 2;
    pub const TE_LOG_DEBUG: c_int = 3;
    pub const TE_READ: u32 = 0;
    pub const TE_WRITE: u32 = 1;
    pub const TE_ATOMIC_ADD: u32 = 2;
    pub const TE_ATOMIC_FETCH_ADD: u32 = 3;
    pub const TE_ATOMIC_SWAP: u32 = 4;
    pub const TE_ATOMIC_CAS: u32 = 5;
    pub const TE_RAIL_UP: u32 = 0;
    pub const TE_RAIL_SUSPECT: u32 = 1;
    pub const TE_RAIL_DOWN: u32 = 2;
    pub const TE_RAIL_PROBING: u32 = 3;
    pub const TE_PATH_FABRIC: u32 = 0;
    pub const TE_PATH_PROCESS: u32 = 1;
    pub const TE_PATH_MEMCPY: u32 = 2;
    pub const TE_PATH_FILE: u32 = 3;
    pub const TE_PATH_CONNECTED: u32 = 1;
    pub const TE_PEER_NEW: u32 = 0;
    pub const TE_PEER_READY: u32 = 1;
    pub const TE_PEER_FENCING: u32 = 2;
    pub const TE_PEER_GONE: u32 = 3;
    pub const TE_WAIT_MAX: usize = 4096;
    pub const TE_PREPARED_CHECKED: u32 = 1;
    pub const TE_PREPARED_RESTARTED: u32 = 2;
    pub const TE_REQ_BOUNCE: u32 = 1;
    pub const TE_LABEL_MAX: usize = 256;
    pub const TE_REG_PRIVATE: u32 = 1;
    pub const TE_REG_READ_ONLY: u32 = 2;
    pub const TE_REG_NESTED: u32 = 4;
    pub const TE_ALLOC_PRIVATE: u32 = 1;
    pub const TE_ALLOC_SMALL_PAGES: u32 = 2;
    pub const TE_ALLOC_HUGE_PAGES: u32 = 4;
    pub const TE_ALLOC_STRICT: u32 = 8;
}

c_functions! {
    pub fn te_version() -> *const c_char;
    pub fn te_fabric_version() -> *const c_char;
    pub fn te_last_error(err: *mut te_error, size: usize) -> c_int;
    pub fn te_task_error(
        engine: transfer_engine_t,
        batch: batch_id_t,
        task: usize,
        err: *mut te_error,
        size: usize,
    ) -> c_int;
    pub fn te_set_log(callback: te_log_fn, context: *mut c_void) -> c_int;
    pub fn te_engine_create(
        options: *const te_engine_options,
        size: usize,
        engine: *mut transfer_engine_t,
    ) -> c_int;
    pub fn destroyTransferEngine(engine: transfer_engine_t);
    pub fn getLocalIpAndPort(engine: transfer_engine_t, buf: *mut c_char, len: usize) -> c_int;
    pub fn installTransport(
        engine: transfer_engine_t,
        proto: *const c_char,
        args: *mut *mut c_void,
    ) -> transport_t;
    pub fn openSegment(engine: transfer_engine_t, name: *const c_char) -> segment_id_t;
    pub fn openSegmentNoCache(engine: transfer_engine_t, name: *const c_char) -> segment_id_t;
    pub fn closeSegment(engine: transfer_engine_t, id: segment_id_t) -> c_int;
    pub fn syncSegmentCache(engine: transfer_engine_t) -> c_int;
    pub fn warmupEfaSegment(engine: transfer_engine_t, name: *const c_char) -> c_int;
    pub fn te_register(
        engine: transfer_engine_t,
        entries: *const te_registration,
        elem_size: usize,
        count: usize,
    ) -> c_int;
    pub fn te_unregister(
        engine: transfer_engine_t,
        entries: *const te_registration,
        elem_size: usize,
        count: usize,
    ) -> c_int;
    pub fn te_alloc(
        engine: transfer_engine_t,
        size: usize,
        location: *const c_char,
        flags: u64,
        memory: *mut te_memory,
        memory_size: usize,
    ) -> c_int;
    pub fn te_free(engine: transfer_engine_t, addr: *mut c_void) -> c_int;
    pub fn allocateBatchID(engine: transfer_engine_t, size: usize) -> batch_id_t;
    pub fn freeBatchID(engine: transfer_engine_t, batch: batch_id_t) -> c_int;
    pub fn submitTransferWithNotify(
        engine: transfer_engine_t,
        batch: batch_id_t,
        entries: *mut transfer_request,
        count: usize,
        msg: notify_msg,
    ) -> c_int;
    pub fn te_submit(
        engine: transfer_engine_t,
        batch: batch_id_t,
        reqs: *const te_request,
        elem_size: usize,
        count: usize,
        flags: u64,
    ) -> c_int;
    pub fn te_submit_wait(
        engine: transfer_engine_t,
        reqs: *const te_request,
        elem_size: usize,
        count: usize,
        flags: u64,
        timeout_us: i64,
    ) -> c_int;
    pub fn te_wait_batch(
        engine: transfer_engine_t,
        batch: batch_id_t,
        timeout_us: i64,
        status: *mut transfer_status,
    ) -> c_int;
    pub fn te_wait_any(
        engine: transfer_engine_t,
        batches: *const batch_id_t,
        count: usize,
        timeout_us: i64,
        index: *mut usize,
        status: *mut transfer_status,
    ) -> c_int;
    pub fn te_batch_tasks(
        engine: transfer_engine_t,
        batch: batch_id_t,
        first: usize,
        tasks: *mut te_task,
        elem_size: usize,
        count: *mut usize,
    ) -> c_int;
    pub fn te_ended_batches(
        engine: transfer_engine_t,
        ended: *mut te_ended,
        elem_size: usize,
        count: *mut usize,
    ) -> c_int;
    pub fn te_batch_reset(engine: transfer_engine_t, batch: batch_id_t) -> c_int;
    pub fn te_readv(
        engine: transfer_engine_t,
        id: segment_id_t,
        local: *const te_local,
        local_count: usize,
        remote: *const te_remote,
        remote_count: usize,
        timeout_us: i64,
    ) -> c_int;
    pub fn te_writev(
        engine: transfer_engine_t,
        id: segment_id_t,
        local: *const te_local,
        local_count: usize,
        remote: *const te_remote,
        remote_count: usize,
        timeout_us: i64,
    ) -> c_int;
    pub fn te_prepare(
        engine: transfer_engine_t,
        id: segment_id_t,
        opcode: u32,
        pieces: *const te_piece,
        count: usize,
        flags: u64,
        list: *mut te_prepared_t,
    ) -> c_int;
    pub fn te_submit_prepared(
        engine: transfer_engine_t,
        batch: batch_id_t,
        list: te_prepared_t,
        indices: *const u32,
        count: usize,
        cookie: u64,
        flags: u64,
        checked: *mut u32,
    ) -> c_int;
    pub fn te_prepared_release(engine: transfer_engine_t, list: te_prepared_t) -> c_int;
    pub fn te_notify(
        engine: transfer_engine_t,
        id: segment_id_t,
        name: *const c_char,
        data: *const c_void,
        length: u64,
    ) -> c_int;
    pub fn te_notify_fetch(
        engine: transfer_engine_t,
        notes: *mut te_notification,
        elem_size: usize,
        count: *mut usize,
    ) -> c_int;
    pub fn te_notify_release(notes: *mut te_notification, elem_size: usize, count: usize);
    pub fn te_cancel_batch(engine: transfer_engine_t, batch: batch_id_t) -> c_int;
    pub fn te_batch_deadline(
        engine: transfer_engine_t,
        batch: batch_id_t,
        deadline_ns: u64,
    ) -> c_int;
    pub fn te_batch_event_fd(engine: transfer_engine_t, batch: batch_id_t) -> c_int;
    pub fn te_event_fd(engine: transfer_engine_t) -> c_int;
    pub fn te_flush(engine: transfer_engine_t, id: segment_id_t, timeout_us: i64) -> c_int;
    pub fn te_drain(engine: transfer_engine_t, timeout_us: i64) -> c_int;
    pub fn te_probe_peer(
        engine: transfer_engine_t,
        name: *const c_char,
        timeout_us: i64,
    ) -> c_int;
    pub fn getNotifsFromEngine(engine: transfer_engine_t, size: *mut c_int) -> *mut notify_msg;
    pub fn freeNotifsMsgBuf(msg: *mut notify_msg, size: c_int) -> c_int;
    pub fn genNotifyInEngine(engine: transfer_engine_t, target: u64, msg: notify_msg) -> c_int;
    pub fn te_rail_stats(
        engine: transfer_engine_t,
        stats: *mut te_rail_stats,
        elem_size: usize,
        count: *mut usize,
    ) -> c_int;
    pub fn te_segment_buffers(
        engine: transfer_engine_t,
        id: segment_id_t,
        bufs: *mut te_buffer,
        elem_size: usize,
        count: *mut usize,
    ) -> c_int;
    pub fn te_segment_find(
        engine: transfer_engine_t,
        id: segment_id_t,
        label: *const c_char,
        bufs: *mut te_buffer,
        elem_size: usize,
        count: *mut usize,
    ) -> c_int;
    pub fn te_segment_paths(
        engine: transfer_engine_t,
        id: segment_id_t,
        location: *const c_char,
        paths: *mut te_path,
        elem_size: usize,
        count: *mut usize,
    ) -> c_int;
    pub fn te_peer_stats(
        engine: transfer_engine_t,
        id: segment_id_t,
        stats: *mut te_peer_stats,
        size: usize,
    ) -> c_int;
    pub fn te_settings_text(engine: transfer_engine_t, buf: *mut c_char, len: usize) -> c_int;
    pub fn te_topology_text(engine: transfer_engine_t, buf: *mut c_char, len: usize) -> c_int;
    pub fn te_segment_export(
        engine: transfer_engine_t,
        flags: u64,
        buf: *mut c_void,
        size: *mut usize,
    ) -> c_int;
    pub fn te_segment_import(
        engine: transfer_engine_t,
        blob: *const c_void,
        size: usize,
        flags: u64,
        id: *mut segment_id_t,
    ) -> c_int;
}
