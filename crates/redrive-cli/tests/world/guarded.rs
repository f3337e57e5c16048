//! A separate broker that requires a password, with TLS and without.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A running broker. Its process and its data are removed on drop.
pub struct Guarded {
    dir: PathBuf,
    /// The listener without authentication, for creating topics and records.
    pub open: String,
}

impl Guarded {
    /// Starts one; `dir` holds its few files.
    pub fn start(dir: &Path) -> Self {
        let mut broker = Self { dir: dir.join("broker"), open: String::new() };
        broker.open = broker.script("up");
        broker
    }

    /// The SASL_SSL listener with SCRAM-SHA-512.
    pub fn sasl_ssl(&self) -> String {
        self.text("sasl_ssl")
    }

    /// The SASL_PLAINTEXT listener with PLAIN.
    pub fn sasl_plaintext(&self) -> String {
        self.text("sasl_plaintext")
    }

    pub fn password(&self) -> String {
        self.text("password")
    }

    /// One of the files that the broker created: `ca.pem`, `password`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join("secure").join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap().trim().to_owned()
    }

    fn script(&self, what: &str) -> String {
        let ran = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka.sh"))
            .arg(what)
            .env("REDRIVE_KAFKA_DIR", &self.dir)
            .env("REDRIVE_KAFKA_SECURE", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(ran.status.success(), "kafka.sh {what}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.script("down");
            return;
        }
        // A second panic would hide the first.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.script("down")));
    }
}
