//! A terminal for a process, so that its output is meant for people.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::wait_for;

/// A process whose three streams are one terminal.
pub struct Terminal {
    pub child: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub fn spawn(command: &mut Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let theirs = File::options().read(true).write(true).open(path).unwrap();
        let stream = || Stdio::from(theirs.try_clone().unwrap());
        let child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().unwrap();
        drop(theirs);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let reader = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut ours = File::from(ours);
            let mut bytes = [0; 4096];
            // Reading fails once the other side is closed.
            while let Ok(count @ 1..) = ours.read(&mut bytes) {
                reader.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, shown }
    }

    pub fn lines(&self) -> Vec<String> {
        let shown = self.shown.lock().unwrap();
        String::from_utf8_lossy(&shown).lines().map(str::to_owned).collect()
    }

    /// Waits for a line. If the process ends without it, the test fails with its output.
    pub fn wait_for_line(&mut self, part: &str) {
        let mut ended = None;
        wait_for(&format!("a line with {part:?}"), || {
            let found = self.lines().iter().any(|line| line.contains(part));
            assert!(found || ended.is_none(), "ended with {ended:?}:\n{}", self.lines().join("\n"));
            ended = self.child.try_wait().unwrap();
            found
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
