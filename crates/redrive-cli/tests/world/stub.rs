//! `redrive downstream` as a process: it fails on request and records what it applied.

use std::path::Path;
use std::process::{Child, Stdio};

use super::process::redrive;
use super::{free_port, http, wait_for};

/// A running stub. Killed on drop.
pub struct Stub {
    pub url: String,
    child: Child,
}

impl Stub {
    pub fn start(dir: &Path, args: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let child = redrive(dir)
            .args(["downstream", "--listen", &listen])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stub = Self { url: format!("http://{listen}"), child };
        wait_for("the downstream", || {
            let ready = http::try_send("GET", &format!("{}/readyz", stub.url), &[], "");
            ready.is_some_and(|answer| answer.status == 200)
        });
        stub
    }

    pub fn stats(&self) -> serde_json::Value {
        http::get(&format!("{}/stats", self.url)).json()
    }

    /// Turns off poison detection.
    pub fn fix(&self) {
        assert_eq!(http::send("POST", &format!("{}/fix", self.url), &[], "").status, 200);
    }

    pub fn has_applied(&self, id: &str) -> bool {
        http::get(&format!("{}/applied/{id}", self.url)).status == 200
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
