//! Delivers a JSON object: a POST, or a program that gets it on its standard input.

use std::process::Stdio;
use std::time::Duration;

use redrive::{Call, Message, Sink as _};
use redrive_sinks::WebhookSink;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::config::AlertTarget;
use crate::exit::Failed;

/// A destination.
pub enum Outlet {
    Webhook(Box<WebhookSink>),
    Command { words: Vec<String>, timeout: Duration },
}

/// One object to deliver.
#[derive(Clone, Debug)]
pub struct Post {
    /// The same for each attempt, so that a receiver recognises repeats.
    pub id: String,
    pub pipeline: String,
    /// A JSON object.
    pub body: String,
    /// Environment variables, for a program.
    pub env: Vec<(&'static str, String)>,
}

impl Outlet {
    /// Builds an outlet. `what` names the setting in an error.
    pub fn build(to: &AlertTarget, timeout: Duration, what: &str) -> Result<Self, Failed> {
        match (to, to.options(timeout)) {
            (AlertTarget::Command(words), _) => Ok(Self::Command { words: words.clone(), timeout }),
            (AlertTarget::Webhook { .. }, options) => {
                let built = WebhookSink::build(options.unwrap_or_default());
                let sink = built.map_err(|fault| Failed::usage(format!("{what}: {fault}")))?;
                Ok(Self::Webhook(Box::new(sink)))
            }
        }
    }

    /// Sends an object within the timeout; fails with a short description.
    pub async fn send(&self, post: &Post, attempt: u32) -> Result<(), String> {
        match self {
            Self::Webhook(sink) => {
                let message = Message::builder(&post.id).payload(post.body.clone().into_bytes()).build();
                let message = message.map_err(|error| error.to_string())?;
                let pipeline = post.pipeline.as_str().into();
                let sent = sink.deliver(Call { message, attempt, replays: 0, pipeline, origin: None }).await;
                sent.map_err(|failure| failure.chain())
            }
            Self::Command { words, timeout } => run(words, post, *timeout).await,
        }
    }
}

/// Runs a program in its own process group, so that its child processes are killed with it on a timeout.
async fn run(words: &[String], post: &Post, timeout: Duration) -> Result<(), String> {
    let (program, args) = words.split_first().ok_or("there is no program")?;
    let mut child = Command::new(program)
        .args(args)
        .envs(post.env.iter().map(|(name, value)| (*name, value.as_str())))
        .stdin(Stdio::piped())
        // Its output must not mix with the log, whose lines are JSON.
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
            // A program that does not read its input may still succeed.
            let _ = stdin.write_all(post.body.as_bytes()).await;
        }
        child.wait().await
    });
    match ended.await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{program}: {status}")),
        Ok(Err(error)) => Err(format!("{program}: {error}")),
        Err(_) => {
            // The process has not been waited for yet, so the group id is still valid.
            let _ = group.map(|group| kill_process_group(group, Signal::KILL));
            Err(format!("{program}: not done after {timeout:?}"))
        }
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Webhook(_) => "Webhook(…)",
            Self::Command { .. } => "Command(…)",
        })
    }
}
