//! Runs the real program in a separate directory.

#![allow(dead_code, reason = "each test file uses its part of it")]

use std::path::Path;
use std::process::{Command, Output};

pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub code: Option<i32>,
}

/// `redrive ARGS` in `dir`, without any environment of the caller that could affect it.
pub fn redrive(dir: &Path, args: &[&str]) -> Ran {
    redrive_with(dir, args, &[])
}

pub fn redrive_with(dir: &Path, args: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(args).current_dir(dir).env("NO_COLOR", "1");
    for name in
        ["REDRIVE_CONFIG", "REDRIVE_URL", "REDRIVE_TOKEN", "REDRIVE_ENGINE", "REDRIVE_DIR", "REDRIVE_LISTEN"]
    {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    Ran {
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
        code: status.code(),
    }
}

/// A directory that contains `redrive.toml`.
pub fn with_config(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("redrive.toml"), text).unwrap();
    dir
}

/// The smallest valid pipeline.
pub const ORDERS: &str =
    "[[pipeline]]\nname = \"orders\"\n[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:8000/orders\"\n";
