//! Shared by the acceptance tests: the real binary, a small HTTP client, a recording webhook receiver, the stub, Kafka,
//! PostgreSQL and Chromium.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod chromium;
pub mod cooldown;
pub mod edits;
pub mod erasing;
#[cfg(feature = "kafka")]
pub mod guarded;
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod kills;
#[cfg(feature = "kafka")]
pub mod members;
pub mod outage;
pub mod payments;
pub mod pill;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod receiver;
pub mod stub;
pub mod terminal;
#[cfg(feature = "kafka-oauth")]
pub mod tokens;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// A free port, for a process that is about to start. Not from the ephemeral range: the system could give such a port
/// to any connection meanwhile.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let handed_out_from =
        range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768_u16);
    let ports = handed_out_from.saturating_sub(FIRST_PORT).max(1_000);
    // Test programs run concurrently; each starts elsewhere.
    let start = std::process::id().wrapping_mul(7_919) as u16;
    loop {
        let step = NEXT.fetch_add(1, Ordering::SeqCst);
        let port = FIRST_PORT + start.wrapping_add(step) % ports;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Below are the ports of well-known services, and those in our documentation.
const FIRST_PORT: u16 = 12_000;

/// A configuration of one pipeline that delivers to a webhook: the lines of `[engine]`, possibly with its subtables,
/// and of `[[pipeline]]`. [`process::Processor`] inserts the directory and the address.
pub fn config(engine: &str, pipeline: &str, url: &str) -> String {
    format!(
        r#"
[engine]
dir = "@DIR@"
{engine}
[server]
listen = "@LISTEN@"
[[pipeline]]
{pipeline}
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

/// Waits until `done` holds. On a timeout the test fails and names `what`.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited {} s for: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
