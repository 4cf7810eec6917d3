// SPDX-License-Identifier: BSD-2-Clause
//! The first process prints the name of its segment and waits. The second process, started
//! with that name, writes into its memory while it also does something else.
//!
//!     cargo run --example hello                      # prints, say, 127.0.0.1:15023
//!     cargo run --example hello 127.0.0.1:15023      # then press return in the first
use std::time::Duration;

use moonrail::{Engine, Error};

fn target(engine: &Engine) -> Result<(), Error> {
    let memory = engine.alloc(4096)?;
    println!("{}", engine.name());
    let _ = std::io::stdin().read_line(&mut String::new());
    println!("{}", String::from_utf8_lossy(&memory.to_vec(0, 16)?));
    Ok(())
}

fn initiator(engine: &Engine, name: &str) -> Result<(), Error> {
    let memory = engine.register(b"hello from Rust!".to_vec())?;
    let peer = engine.open(name)?;
    let remote = peer.buffers()?[0].address;
    // submit() does not wait. The transfer holds the memory until its end; it can also be
    // awaited as a future.
    let transfer = engine
        .batch()
        .write(&peer, &memory, remote)
        .time_limit(Duration::from_secs(10))
        .submit()?;
    println!("submitted");
    println!("{} bytes written", transfer.wait()?);
    Ok(())
}

fn main() -> Result<(), Error> {
    let engine = Engine::new("127.0.0.1")?;
    match std::env::args().nth(1) {
        None => target(&engine),
        Some(name) => initiator(&engine, &name),
    }
}
