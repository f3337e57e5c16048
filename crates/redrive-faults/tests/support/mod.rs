//! Shared by the fault tests: a store with its acknowledgement file, and the victim as a child process.
#![allow(dead_code)] // each test binary uses its own part

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use redrive_core::SplitMix64;
use redrive_faults::plan;
use redrive_faults::verify::{Asked, Scratch, SeenEffects, verify_as};

/// No run of the victim takes this long unless it hangs, even on a busy machine.
pub(crate) const HANG_GUARD: Duration = Duration::from_mins(5);

pub(crate) const VICTIM: &str = env!("CARGO_BIN_EXE_victim");

/// A directory for a store, and the acknowledgement file beside it.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) scratch: Scratch,
    pub(crate) dir: PathBuf,
    pub(crate) acks: PathBuf,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new().expect("a scratch directory");
        let (dir, acks) = (scratch.0.join("store"), scratch.0.join("acks"));
        std::fs::write(&acks, "").expect("the scratch directory can be written");
        Self { scratch, dir, acks }
    }

    /// Starts the victim; with 0 steps it runs until it is killed.
    pub(crate) fn start(&self, seed: u64, steps: u64) -> Victim {
        Victim::spawn(&mut self.command(seed, steps))
    }

    pub(crate) fn command(&self, seed: u64, steps: u64) -> Command {
        let mut command = Command::new(VICTIM);
        command.arg("work").args([&self.dir, &self.acks]).args([seed.to_string(), steps.to_string()]);
        command
    }

    /// Runs the victim to its end.
    pub(crate) fn work(&self, seed: u64, steps: u64) {
        Victim::run(&mut self.command(seed, steps));
    }

    pub(crate) fn acks_len(&self) -> u64 {
        std::fs::metadata(&self.acks).map_or(0, |metadata| metadata.len())
    }

    pub(crate) fn verify(&self, started: bool) -> Result<SeenEffects, String> {
        if !self.dir.exists() {
            return Ok(SeenEffects::default());
        }
        verify_as(&self.dir, &self.acks, Asked { started, tuning: plan::tuning() })
    }

    /// Verifies the store, and keeps everything for inspection if that fails.
    pub(crate) fn check(&self, started: bool, what: &str) -> SeenEffects {
        self.verify(started).unwrap_or_else(|error| {
            let kept = std::env::temp_dir().join(format!("redrive-failed-{}", std::process::id()));
            let _ = redrive_faults::verify::copy_dir(&self.scratch.0, &kept);
            panic!("{what}: {error}\nkept in {}", kept.display());
        })
    }
}

/// A running victim; it is killed on drop.
#[derive(Debug)]
pub(crate) struct Victim(Option<Child>);

impl Victim {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        Self(Some(child.expect("the victim starts")))
    }

    /// Runs the command to its end.
    pub(crate) fn run(command: &mut Command) {
        let (status, said) = Self::spawn(command).wait();
        assert!(status.success(), "the victim ended with {status}: {said}");
    }

    /// Kills it with `kill -9`.
    pub(crate) fn kill(mut self) {
        let mut child = self.0.take().expect("running");
        child.kill().expect("it can be killed");
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let killed = std::os::unix::process::ExitStatusExt::signal(&output.status) == Some(9);
        assert!(killed, "it ended before it was killed: {} {said}", output.status);
    }

    /// Kills it with `kill -9`, unless it has ended by itself: then returns how.
    pub(crate) fn end_now(&mut self) -> Option<ExitStatus> {
        let mut child = self.0.take().expect("running");
        // A process that has ended but was not waited for can still be killed, which has no effect.
        let _ = child.kill();
        let status = child.wait().expect("it ends");
        (std::os::unix::process::ExitStatusExt::signal(&status) != Some(9)).then_some(status)
    }

    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let child = self.0.as_mut().expect("running");
        while child.try_wait().expect("it can be asked").is_none() {
            // If the assertion fails, `drop` kills it.
            assert!(begun.elapsed() < HANG_GUARD, "the victim hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = self.0.take().expect("running").wait_with_output().expect("it ends");
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How often a test repeats: from the environment, or the default.
pub(crate) fn often(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Waits until the victim works, then a random time; in one case of four only the random time, which may hit the
/// opening.
pub(crate) fn random_moment(rig: &Rig, random: &mut SplitMix64) {
    if !random.chance(25) {
        let (before, begun) = (rig.acks_len(), Instant::now());
        while rig.acks_len() == before {
            assert!(begun.elapsed() < HANG_GUARD, "the victim does nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    std::thread::sleep(Duration::from_micros(random.below(80_000)));
}

pub(crate) fn files_in(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry")) {
        if entry.file_type().expect("a type").is_dir() {
            found.extend(files_in(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}
