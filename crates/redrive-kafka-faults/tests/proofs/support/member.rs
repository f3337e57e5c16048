//! A member of the group as a child process.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use redrive_lab::kafka::trace;

use super::wait_for;

/// Virtual memory of a member in kibibytes: far more than it needs.
const MEMORY_KIB: u64 = 8 << 20;

const MEMBER: &str = env!("CARGO_BIN_EXE_member");

/// A running member; it is killed on drop.
#[derive(Debug)]
pub(crate) struct Member {
    child: Child,
    log: std::path::PathBuf,
}

/// The signals that a test sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Kills it at once.
    Kill,
    /// Ends it cleanly.
    Term,
    /// Freezes it.
    Stop,
    /// Resumes it.
    Cont,
}

impl Member {
    /// Starts a member; its output is appended to `log`.
    pub(crate) fn spawn(args: &[String], log: &Path) -> Self {
        let said =
            std::fs::File::options().create(true).append(true).open(log).expect("a file for its words");
        let mut command = Command::new("sh");
        // No core dumps of processes that are meant to die, and not all of the machine's memory for them.
        let limits = format!("ulimit -c 0; ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
        command.args(["-c", &limits, MEMBER]);
        command.args(args).env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Self { child: command.spawn().expect("the member starts"), log: log.to_owned() }
    }

    /// Sends a signal and returns when it was sent, in microseconds of the wall clock.
    pub(crate) fn signal(&self, signal: Signal) -> u64 {
        let name = match signal {
            Signal::Kill => "-KILL",
            Signal::Term => "-TERM",
            Signal::Stop => "-STOP",
            Signal::Cont => "-CONT",
        };
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill can be called").success(), "the member is gone: {}", self.said());
        trace::wall_us()
    }

    /// Kills it with `kill -9`; returns when.
    pub(crate) fn kill(mut self) -> u64 {
        let alive = self.child.try_wait().expect("it can be asked").is_none();
        assert!(alive, "it ended before it was killed: {}", self.said());
        let at = self.signal(Signal::Kill);
        self.child.wait().expect("it ends");
        at
    }

    /// Ends it cleanly.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::Term);
        let status = self.wait();
        assert!(status.success(), "it did not end well: {status}\n{}", self.said());
    }

    /// Returns how it ended, if it has ended by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it can be asked")
    }

    fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the end of a member", || {
            status = self.child.try_wait().expect("it can be asked");
            status.is_some()
        });
        status.expect("it ended")
    }

    /// Returns the last log lines of all members of this world.
    pub(crate) fn said(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
