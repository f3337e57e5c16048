//! The processors: real `redrive` processes, and a supervisor that restarts them when they end by themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use redrive_lab::kafka::Error;

use super::cluster::Cluster;
use super::flow::Flow;
use super::plan::NODES;
use super::receiver::StormReceiver;

/// Retry delays of both flows.
pub const TIERS: [&str; 3] = ["300ms", "1s", "2s"];
const TOKEN: &str = "storm-0123456789abcdef";
/// How long the API may take for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Three processors of one group.
#[derive(Debug)]
pub struct Fleet {
    redrive: PathBuf,
    dir: PathBuf,
    processors: Vec<Processor>,
    /// How often a processor ended by itself, by exit code; -1 for a signal.
    ended_itself: BTreeMap<i32, u32>,
}

#[derive(Debug)]
struct Processor {
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
}

/// Settings that all processors of a fleet share.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Suffix of the names of flows and group.
    pub suffix: &'a str,
    /// `session.timeout.ms`; the product's default if `None`.
    pub session_ms: Option<u64>,
    /// More settings for `[engine.kafka]`.
    pub client: &'a [(String, String)],
}

impl Settings<'_> {
    /// Returns the name of a flow's source topic and pipeline.
    pub fn topic(&self, flow: Flow) -> String {
        format!("{}{}", flow.name(), self.suffix)
    }

    pub fn group(&self) -> String {
        format!("storm{}", self.suffix)
    }
}

impl Fleet {
    /// Writes the configurations and starts all three; `dir` is for their files.
    pub fn start(
        redrive: &Path,
        dir: &Path,
        cluster: &Cluster,
        receiver: &StormReceiver,
        settings: Settings<'_>,
    ) -> Result<Self, Error> {
        let mut processors = Vec::new();
        for number in 0..NODES {
            let home = dir.join(format!("processor-{number}"));
            std::fs::create_dir_all(&home)?;
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            let text = config(number, &home, port, cluster, receiver, settings)?;
            std::fs::write(home.join("redrive.toml"), text)?;
            let mut password = File::options()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(home.join("password"))?;
            password.write_all(cluster.password().as_bytes())?;
            processors.push(Processor { dir: home, port, child: None });
        }
        let (redrive, dir, ended_itself) = (redrive.to_owned(), dir.to_owned(), BTreeMap::new());
        let mut fleet = Self { redrive, dir, processors, ended_itself };
        (0..fleet.processors.len()).try_for_each(|number| fleet.launch(number))?;
        Ok(fleet)
    }

    pub fn launch(&mut self, number: usize) -> Result<(), Error> {
        let processor = &mut self.processors[number];
        let log = File::options().create(true).append(true).open(processor.dir.join("log"))?;
        let mut command = Command::new(&self.redrive);
        command.arg("--config").arg(processor.dir.join("redrive.toml")).arg("processor");
        command.env("REDRIVE_TOKEN", TOKEN).current_dir(&processor.dir);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        processor.child = Some(command.spawn()?);
        Ok(())
    }

    /// Kills a processor with `kill -9`.
    pub fn kill(&mut self, number: usize) -> Result<(), Error> {
        if let Some(mut child) = self.processors[number].child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Removes everything a processor has stored; only call it while the processor is stopped.
    pub fn lose_disk(&self, number: usize) -> Result<(), Error> {
        match std::fs::remove_dir_all(self.processors[number].dir.join("data")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Sends a signal to a processor: `STOP`, `CONT`, `TERM`.
    pub fn signal(&self, number: usize, name: &str) -> Result<(), Error> {
        let child = self.processors[number].child.as_ref().ok_or("the processor does not run")?;
        let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("processor {number} is gone").into()) }
    }

    /// Returns how a processor ended after SIGTERM; `None` while it still runs.
    pub fn ended(&mut self, number: usize) -> Result<Option<ExitStatus>, Error> {
        let Some(child) = &mut self.processors[number].child else { return Ok(None) };
        let status = child.try_wait()?;
        if status.is_some() {
            self.processors[number].child = None;
        }
        Ok(status)
    }

    /// Restarts processors that ended by themselves, as a supervisor does. A refused configuration is an error.
    pub fn supervise(&mut self) -> Result<(), Error> {
        for number in 0..self.processors.len() {
            let Some(child) = &mut self.processors[number].child else { continue };
            let Some(status) = child.try_wait()? else { continue };
            let code = status.code().unwrap_or(-1);
            *self.ended_itself.entry(code).or_default() += 1;
            if code == 2 {
                return Err(format!("processor {number} refuses to run:\n{}", self.log(number)).into());
            }
            self.launch(number)?;
        }
        Ok(())
    }

    /// Whether the processor reports that it is ready; `None` if it does not answer.
    pub fn is_ready(&self, number: usize) -> Option<bool> {
        let answer = self.get(number, "/readyz").ok()?;
        Some(answer.split(' ').nth(1)? == "200")
    }

    /// Runs `redrive pause` or `redrive resume` against one processor.
    pub fn steer(&self, number: usize, verb: &str, pipeline: &str) -> Result<(), Error> {
        let url = format!("http://127.0.0.1:{}", self.processors[number].port);
        let mut command = Command::new(&self.redrive);
        command.args([verb, pipeline, "--url", &url]).env("REDRIVE_TOKEN", TOKEN).current_dir(&self.dir);
        let ran = command.stdin(Stdio::null()).output()?;
        if ran.status.success() {
            return Ok(());
        }
        Err(format!("redrive {verb}: {}", String::from_utf8_lossy(&ran.stderr)).into())
    }

    pub fn ended_itself(&self) -> &BTreeMap<i32, u32> {
        &self.ended_itself
    }

    /// Returns the logs of all processors.
    pub fn said(&self) -> String {
        let read =
            |processor: &Processor| std::fs::read_to_string(processor.dir.join("log")).unwrap_or_default();
        self.processors.iter().map(read).collect()
    }

    /// Returns the last lines of one processor's log.
    pub fn log(&self, number: usize) -> String {
        let text = std::fs::read_to_string(self.processors[number].dir.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn get(&self, number: usize, path: &str) -> Result<String, Error> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.processors[number].port))?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for processor in &mut self.processors {
            if let Some(child) = &mut processor.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn config(
    number: u64,
    home: &Path,
    port: u16,
    cluster: &Cluster,
    receiver: &StormReceiver,
    settings: Settings<'_>,
) -> Result<String, Error> {
    let brokers =
        cluster.guarded()?.iter().map(|broker| format!("{broker:?}")).collect::<Vec<_>>().join(", ");
    let session = settings.session_ms.map_or(String::new(), |ms| format!("\"session.timeout.ms\" = {ms}\n"));
    let client = settings.client.iter().map(|(key, value)| format!("{key:?} = {value:?}\n"));
    let client = client.collect::<Vec<_>>().concat();
    let mut text = format!(
        r#"[engine]
kind    = "kafka"
brokers = [{brokers}]
group   = "{group}"
member  = "processor-{number}"
start   = "earliest"
topics  = "create"
dir     = "{dir}"
[engine.kafka]
{session}{client}"security.protocol"  = "SASL_PLAINTEXT"
"sasl.mechanism"     = "PLAIN"
"sasl.username"      = "redrive"
"sasl.password_file" = "{password}"
[server]
listen = "127.0.0.1:{port}"
"#,
        group = settings.group(),
        dir = home.join("data").display(),
        password = home.join("password").display(),
    );
    for flow in Flow::ALL {
        let tiers = TIERS.map(|tier| format!("{tier:?}")).join(", ");
        let ordering = if flow.keeps_order() { "key" } else { "none" };
        write!(
            text,
            r#"
[[pipeline]]
source   = "{topic}"
id       = "json:/order_id"
tiers    = [{tiers}]
jitter   = "none"
ordering = "{ordering}"
[pipeline.sink.webhook]
url      = "{url}"
"#,
            topic = settings.topic(flow),
            url = receiver.url(flow),
        )?;
    }
    Ok(text)
}
