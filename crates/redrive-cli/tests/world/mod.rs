//! What the acceptance tests share: the real binary, a small HTTP client, a receiver of webhooks that
//! remembers, the stub, Kafka, PostgreSQL and Chromium.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod chromium;
#[cfg(feature = "kafka")]
pub mod guarded;
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod outage;
pub mod payments;
pub mod pill;
pub mod postgres;
pub mod process;
pub mod receiver;
pub mod stub;

use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Longer than anything takes, also on a machine that is busy elsewhere.
const PATIENCE: Duration = Duration::from_mins(3);

/// A port nobody listens on. Somebody else may take it before it is used; a test that loses that race fails loudly.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A configuration of one pipeline that delivers to a webhook: the lines of `[engine]`, which may go on with tables of it, and
/// of `[[pipeline]]`. [`process::Processor`] puts the directory and the address in.
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

/// Waits until `done` holds. A test that waits in vain says for what.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited {} s for: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(20));
    }
}
