//! The binary as a process: started, queried, killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use super::{free_port, http, wait_for};

pub const TOKEN: &str = "test-token-0123456789";

/// The binary with a clean environment.
pub fn redrive(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
    for name in ["REDRIVE_CONFIG", "REDRIVE_URL", "REDRIVE_TOKEN"] {
        command.env_remove(name);
    }
    command.current_dir(dir).env("REDRIVE_TOKEN", TOKEN).env("NO_COLOR", "1");
    command
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running processor with its own directory. Killed on drop.
pub struct Processor {
    pub dir: PathBuf,
    pub port: u16,
    child: Option<Child>,
}

impl Processor {
    /// Starts a processor with this `redrive.toml`; `@DIR@` and `@LISTEN@` in it are replaced.
    pub fn start(dir: &Path, config: &str) -> Self {
        let port = free_port();
        let config = config
            .replace("@DIR@", &dir.join("data").display().to_string())
            .replace("@LISTEN@", &format!("127.0.0.1:{port}"));
        std::fs::write(dir.join("redrive.toml"), config).unwrap();
        let mut processor = Self { dir: dir.to_owned(), port, child: None };
        processor.restart();
        processor
    }

    /// Starts a processor with this command, which listens on this loopback port.
    pub fn run(dir: &Path, port: u16, command: &mut Command) -> Self {
        let mut processor = Self { dir: dir.to_owned(), port, child: None };
        processor.launch(command);
        processor
    }

    /// Restarts it with the same directory and configuration.
    pub fn restart(&mut self) {
        let mut command = redrive(&self.dir);
        self.launch(command.arg("processor"));
    }

    fn launch(&mut self, command: &mut Command) {
        let path = self.dir.join("processor.log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.child = Some(child);
        let url = self.url("/readyz");
        let what =
            format!("the processor to be ready; its log: {}", self.dir.join("processor.log").display());
        wait_for(&what, || {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
                panic!("the processor ended with {status}: {}", self.log());
            }
            http::try_send("GET", &url, &[], "").is_some_and(|answer| answer.status == 200)
        });
    }

    /// Its process id, unless it has been waited for.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("processor.log")).unwrap_or_default()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn post(&self, path: &str, body: &str) -> http::Answer {
        self.post_as(path, "application/json", body)
    }

    pub fn post_as(&self, path: &str, content_type: &str, body: &str) -> http::Answer {
        let bearer = format!("Bearer {TOKEN}");
        let headers = [("authorization", bearer.as_str()), ("content-type", content_type)];
        http::send("POST", &self.url(path), &headers, body)
    }

    /// A GET with the token.
    pub fn get(&self, path: &str) -> http::Answer {
        http::get_with_token(&self.url(path))
    }

    /// A command of the binary that talks to this processor.
    pub fn cli(&self, args: &[&str]) -> Output {
        redrive(&self.dir).args(["--url", &self.url("")]).args(args).output().unwrap()
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends a signal by name and returns without waiting.
    pub fn signal(&self, name: &str) {
        if let Some(child) = &self.child {
            let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
            assert!(sent.unwrap().success());
        }
    }

    /// Waits for its end and returns its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let mut child = self.child.take()?;
        let mut ended = None;
        wait_for("the processor to end", || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.kill();
    }
}
