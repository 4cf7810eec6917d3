// SPDX-License-Identifier: BSD-2-Clause
//! The second process of the tests, and a small executor.
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use moonrail::Engine;

pub const SIZE: usize = 4 << 20;
const MARK: &str = "target> ";
const CHILD: &str = "TEST_TARGET_OF_MOONRAIL";

extern "C" {
    fn kill(pid: i32, signal: i32) -> i32;
}

/// A second process, which executes the commands on its standard input. It runs
/// the test `target_process` of this program.
pub struct Target {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    pub name: String,
    pub address: u64,
}

impl Target {
    pub fn start() -> Target {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "target_process", "--nocapture"])
            .env(CHILD, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let name = String::new();
        let mut target = Target { process, input, output, name, address: 0 };
        let line = target.answer();
        let (name, address) = line.split_once(' ').unwrap();
        target.name = name.to_string();
        target.address = address.parse().unwrap();
        target
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the target has ended");
            // The test harness prints the name of the test without an end of
            // line, so the text follows it.
            if let Some((_, text)) = line.split_once(MARK) {
                return text.trim_end().to_string();
            }
        }
    }

    pub fn ask(&mut self, words: &str) -> String {
        writeln!(self.input, "{words}").unwrap();
        self.answer()
    }

    pub fn show(&mut self, offset: usize, len: usize) -> Vec<u8> {
        let text = self.ask(&format!("show {offset} {len}"));
        (0..len).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    fn signal(&self, number: i32) {
        assert_eq!(unsafe { kill(self.process.id() as i32, number) }, 0);
    }

    /// Stops the process with SIGSTOP. The process continues for a moment until
    /// it has handled the signal.
    pub fn stop(&self) {
        let stat = format!("/proc/{}/stat", self.process.id());
        self.signal(19);
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            thread::yield_now();
        }
    }

    /// Continues the process (SIGCONT).
    pub fn go_on(&self) {
        self.signal(18);
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Executes commands if this process is the second one; otherwise returns at
/// once.
pub fn target_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let engine = Engine::new("127.0.0.1").unwrap();
    let memory = engine.alloc(SIZE).unwrap();
    let _part = memory.register_part(4096..8192, "layer 1").unwrap();
    println!("{MARK}{} {}", engine.name(), memory.address());
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<usize>().unwrap();
        let answer = match words[0] {
            "fill" => {
                memory.write(number(1), &vec![number(3) as u8; number(2)]).unwrap();
                "done".to_string()
            }
            "show" => {
                let bytes = memory.to_vec(number(1), number(2)).unwrap();
                bytes.iter().map(|b| format!("{b:02x}")).collect()
            }
            "notes" => {
                let notes = engine.notifications();
                notes.iter().map(|n| format!("{}={};", n.name, n.text)).collect()
            }
            "binary" => {
                let notes = engine.binary_notifications().unwrap();
                notes.iter().map(|n| format!("{}={:?};", n.name, n.data)).collect()
            }
            other => panic!("unknown command {other}"),
        };
        println!("{MARK}{answer}");
    }
}

pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| seed.wrapping_mul(31).wrapping_add((i * 7) as u8)).collect()
}

pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(40) {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in this thread. Returns its output and how often it was polled.
pub fn block_on<F: Future>(future: F) -> (F::Output, usize) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future: Pin<Box<F>> = Box::pin(future);
    let mut polls = 0;
    loop {
        polls += 1;
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return (output, polls);
        }
        thread::park();
    }
}
