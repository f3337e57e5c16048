//! Gets one notice out: a POST, or a program that gets it on its standard input.

use std::process::Stdio;
use std::time::Duration;

use redrive::{Call, Message, Sink as _};
use redrive_server::alerts::Notice;
use redrive_sinks::WebhookSink;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::config::{AlertConfig, AlertTarget};
use crate::exit::Failed;

/// Where the notices of one `[[alert]]` go.
pub enum Sender {
    Webhook(Box<WebhookSink>),
    Command { words: Vec<String>, timeout: Duration },
}

impl Sender {
    pub fn build(config: &AlertConfig) -> Result<Self, Failed> {
        match (&config.to, config.options()) {
            (AlertTarget::Command(words), _) => {
                Ok(Self::Command { words: words.clone(), timeout: config.timeout })
            }
            (AlertTarget::Webhook { .. }, options) => {
                let built = WebhookSink::build(options.unwrap_or_default());
                let sink = built.map_err(|fault| Failed::usage(format!("alert: {fault}")))?;
                Ok(Self::Webhook(Box::new(sink)))
            }
        }
    }

    /// Sends it, within the alert's timeout; otherwise what went wrong, in a few words.
    pub async fn send(&self, notice: &Notice, attempt: u32) -> Result<(), String> {
        let body = notice.to_json().to_string();
        match self {
            Self::Webhook(sink) => {
                let message = Message::builder(notice.id()).payload(body.into_bytes()).build();
                let message = message.map_err(|error| error.to_string())?;
                let pipeline = notice.pipeline.as_deref().unwrap_or("redrive").into();
                let sent = sink.deliver(Call { message, attempt, replays: 0, pipeline, origin: None }).await;
                sent.map_err(|failure| failure.chain())
            }
            Self::Command { words, timeout } => run(words, notice, body.as_bytes(), *timeout).await,
        }
    }
}

/// Runs a program in a process group of its own, so that what it started goes with it when it takes too long.
async fn run(words: &[String], notice: &Notice, body: &[u8], timeout: Duration) -> Result<(), String> {
    let (program, args) = words.split_first().ok_or("there is no program")?;
    let mut child = Command::new(program)
        .args(args)
        .env("REDRIVE_ALERT", notice.kind.name())
        .env("REDRIVE_ALERT_STATE", notice.state.name())
        .env("REDRIVE_ALERT_PIPELINE", notice.pipeline.as_deref().unwrap_or_default())
        .env("REDRIVE_ALERT_SUMMARY", &notice.summary)
        .stdin(Stdio::piped())
        // Whatever it prints is not of the log, whose lines are JSON.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let stdin = child.stdin.take();
    let ended = tokio::time::timeout(timeout, async {
        if let Some(mut stdin) = stdin {
            // A program that does not read it may still be content.
            let _ = stdin.write_all(body).await;
        }
        child.wait().await
    });
    match ended.await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{program}: {status}")),
        Ok(Err(error)) => Err(format!("{program}: {error}")),
        Err(_) => {
            // Its process has not been waited for, so the group is still its own.
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            Err(format!("{program}: not done after {timeout:?}"))
        }
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Webhook(_) => "Webhook(…)",
            Self::Command { .. } => "Command(…)",
        })
    }
}
