// SPDX-License-Identifier: BSD-2-Clause
//! Finds the C library: in the folder LIBMOONRAIL_DIR, else where pkg-config says,
//! else where the linker looks.
use std::env;
use std::process::Command;

fn from_pkg_config() -> Option<String> {
    let out =
        Command::new("pkg-config").args(["--variable=libdir", "moonrail"]).output().ok()?;
    let dir = String::from_utf8(out.stdout).ok()?.trim().to_string();
    (out.status.success() && !dir.is_empty()).then_some(dir)
}

fn main() {
    println!("cargo:rerun-if-env-changed=LIBMOONRAIL_DIR");
    println!("cargo:rustc-link-lib=dylib=moonrail");
    if let Some(dir) = env::var("LIBMOONRAIL_DIR").ok().or_else(from_pkg_config) {
        println!("cargo:rustc-link-search=native={dir}");
        // For the tests and examples of this package.
        println!("cargo:rustc-link-arg=-Wl,-rpath,{dir}");
    }
}
