//! Runs scenarios in separate processes, with repeats.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::options::BenchOptions;
use super::rig::Error;
use redrive_lab::bench::{Figures, Repeats};

pub struct Runs<'a> {
    pub options: &'a BenchOptions,
}

impl Runs<'_> {
    pub fn repeat(&self, scenario: &str, settings: &[(&str, u64)], fates: &str) -> Result<Repeats, Error> {
        (0..self.options.repeats)
            .map(|_| self.measure(scenario, settings, fates))
            .collect::<Result<_, _>>()
            .map(Repeats)
    }

    /// Writes the same bytes with as many syncs as the run `of`, to measure what the disk allows.
    pub fn raw(&self, of: &Figures) -> Result<Figures, Error> {
        self.measure(
            "raw",
            &[("--bytes", of.get("bytes") as u64), ("--syncs", of.get("syncs") as u64)],
            "succeed",
        )
    }

    /// Runs one measurement in an empty directory.
    pub fn measure(&self, scenario: &str, settings: &[(&str, u64)], fates: &str) -> Result<Figures, Error> {
        self.empty()?;
        let figures = self.child(scenario, settings, fates, &[]);
        self.empty()?;
        figures
    }

    pub fn store(&self) -> PathBuf {
        self.options.dir.join("store")
    }

    pub fn empty(&self) -> Result<(), Error> {
        for entry in fs::read_dir(&self.options.dir)? {
            fs::remove_dir_all(entry?.path())?;
        }
        // Dirty pages of the previous measurement must not slow down the next one's syncs.
        Command::new("sync").status()?;
        Ok(())
    }

    pub fn child(
        &self,
        scenario: &str,
        settings: &[(&str, u64)],
        fates: &str,
        flags: &[&str],
    ) -> Result<Figures, Error> {
        let output = self.command(scenario, settings, fates, flags)?.output()?;
        if !output.status.success() {
            return Err(format!("{scenario} {settings:?} {fates}: {}", output.status).into());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let line: Vec<&str> = text.lines().collect();
        eprintln!("{scenario} {settings:?} {fates}: {}", line.join(" "));
        Ok(Figures::parse(&text))
    }

    /// Runs a measurement that kills itself.
    pub fn killed(&self, scenario: &str, settings: &[(&str, u64)], fates: &str) -> Result<(), Error> {
        let status = self.command(scenario, settings, fates, &["--kill"])?.status()?;
        if status.code().is_some() {
            return Err(format!("{scenario} was to be killed, but: {status}").into());
        }
        Ok(())
    }

    fn command(
        &self,
        scenario: &str,
        settings: &[(&str, u64)],
        fates: &str,
        flags: &[&str],
    ) -> Result<Command, Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--scenario", scenario, "--fates", fates]).arg("--dir").arg(self.store());
        command.args(["--concurrency", &self.options.concurrency.to_string()]).args(flags);
        for (name, value) in settings {
            command.args([*name, &value.to_string()]);
        }
        command.stderr(Stdio::inherit());
        Ok(command)
    }
}
