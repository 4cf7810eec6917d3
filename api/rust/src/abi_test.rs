// SPDX-License-Identifier: BSD-2-Clause
//! Compares the declarations of `ffi.rs` with the C headers, by a generated C program.
use std::fmt::Write;
use std::process::Command;
use std::{env, fs, mem, process};

use crate::ffi;

/// Structs that later versions of the library may extend at the end.
const GROWING: &[&str] = &[
    "te_error",
    "te_engine_options",
    "te_rail_stats",
    "te_buffer",
    "te_registration",
    "te_request",
    "te_ended",
    "te_task",
    "te_notification",
    "te_path",
    "te_peer_stats",
    "te_memory",
];

/// Translates a type from Rust to C.
fn c_type(rust: &str) -> String {
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("{} const *", c_type(to));
    }
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(to));
    }
    let name = match rust {
        "" | "c_void" => "void",
        "c_char" => "char",
        "c_int" => "int",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        other if ffi::layouts().iter().any(|l| l.name == other) => {
            return format!("struct {other}");
        }
        other => other,
    };
    name.to_string()
}

fn add_same_type(text: &mut String, one: &str, other: &str, what: &str) {
    writeln!(
        text,
        "_Static_assert(__builtin_types_compatible_p({one}, {other}), \"{what}\");"
    )
    .unwrap();
}

fn program() -> String {
    let mut text = String::from("#include <moonrail.h>\n");
    for (name, args, ret) in ffi::FUNCTIONS {
        let args: Vec<String> = args.iter().map(|a| c_type(a)).collect();
        let args = if args.is_empty() { "void".to_string() } else { args.join(", ") };
        let pointer = format!("{} (*)({args})", c_type(ret));
        add_same_type(&mut text, &format!("__typeof__(&{name})"), &pointer, name);
    }
    let log = "void (*)(int, const char *, const char *, void *)";
    add_same_type(&mut text, "te_log_fn", log, "te_log_fn");
    add_same_type(&mut text, "transfer_engine_t", "void *", "transfer_engine_t");
    add_same_type(&mut text, "segment_id_t", "int32_t", "segment_id_t");
    add_same_type(&mut text, "batch_id_t", "uint64_t", "batch_id_t");
    add_same_type(&mut text, "te_prepared_t", "uint64_t", "te_prepared_t");
    for (name, value) in ffi::CONSTANTS {
        writeln!(
            text,
            "_Static_assert((uint64_t)({name}) == {}ULL, \"{name}\");",
            *value as u64
        )
        .unwrap();
    }
    for layout in ffi::layouts() {
        let name = layout.name;
        let relation = if GROWING.contains(&name) { ">=" } else { "==" };
        writeln!(
            text,
            "_Static_assert(sizeof(struct {name}) {relation} {}, \"{name}\");",
            layout.size
        )
        .unwrap();
        for (field, offset, size) in layout.fields {
            writeln!(
                text,
                "_Static_assert(offsetof(struct {name}, {field}) == {offset} && \
                 sizeof(((struct {name} *)0)->{field}) == {size}, \"{name}.{field}\");"
            )
            .unwrap();
        }
    }
    text
}

/// Compiles a C program. If that fails, returns the messages of the compiler.
fn compile(text: &str) -> Result<(), String> {
    let file = env::temp_dir().join(format!("moonrail-abi-{}.c", process::id()));
    fs::write(&file, text).unwrap();
    let cc = env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let mut words = cc.split_whitespace();
    let out = Command::new(words.next().unwrap_or("cc"))
        .args(words)
        .args(["-std=gnu11", "-fsyntax-only", "-I"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .arg(&file)
        .output()
        .unwrap();
    fs::remove_file(&file).unwrap();
    match out.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

#[test]
fn declarations_are_those_of_the_header() {
    let text = program();
    compile(&text).unwrap();
    // Checks that the comparison detects wrong declarations.
    for (right, wrong) in [
        ("offsetof(struct te_error, rail) == 16", "offsetof(struct te_error, rail) == 20"),
        ("(uint64_t)(STATUS_FAILED) == 6ULL", "(uint64_t)(STATUS_FAILED) == 5ULL"),
        ("int (*)(void *, uint64_t)", "int (*)(void *, int32_t)"),
        ("transfer_engine_t, uint64_t)", "transfer_engine_t, int32_t)"),
    ] {
        if text.contains(right) {
            assert!(compile(&text.replacen(right, wrong, 1)).is_err(), "{wrong}");
        }
    }
    assert_eq!(mem::size_of::<ffi::te_local>(), 16);
}
