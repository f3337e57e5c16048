//! `redrive webhook verify`: checks the signature of a request manually.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::Time;
use redrive_core::duration;
use redrive_sinks::Secret;
use redrive_sinks::webhook::signing::{NotVerified, Received, VerifyingKey, id};
use serde_json::json;

use crate::client::session::wall_clock;
use crate::exit::{Exit, Failed};
use crate::output::{Output, instant, safe};

/// The maximum size of a body.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub struct WebhookArgs {
    #[command(subcommand)]
    pub action: WebhookAction,
}

#[derive(Debug, clap::Subcommand)]
pub enum WebhookAction {
    /// Check the signature of a request that was received
    Verify(Verify),
}

#[derive(Debug, clap::Args)]
pub struct Verify {
    /// A file with the secret (whsec_ or whsk_) or the public key (whpk_); several lines are several keys
    #[arg(long, value_name = "FILE")]
    pub secret_file: PathBuf,
    /// The header webhook-id, as it was received
    #[arg(long, value_name = "ID")]
    pub id: String,
    /// The header webhook-timestamp
    #[arg(long, value_name = "SECONDS")]
    pub timestamp: String,
    /// The header webhook-signature
    #[arg(long, value_name = "SIGNATURES")]
    pub signature: String,
    /// The file with the body, byte for byte; default: standard input
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// How far webhook-timestamp may lie from now, before or after
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    pub tolerance: Duration,
    /// When the request was received, for one that was recorded: 2026-11-15T21:40:05Z, or seconds since 1970; default: now
    #[arg(long, value_name = "TIME", value_parser = received_at)]
    pub at: Option<Time>,
    /// Accept a timestamp of any age
    #[arg(long, conflicts_with_all = ["tolerance", "at"])]
    pub any_age: bool,
}

pub fn run(args: &WebhookArgs, out: &mut Output) -> Result<Exit, Failed> {
    let WebhookAction::Verify(args) = &args.action;
    let secret =
        Secret::read(&args.secret_file).map_err(|error| Failed::usage(format!("--secret-file {error}")))?;
    let keys = keys(secret.expose()).map_err(|problem| {
        Failed::usage(format!("--secret-file {}: {problem}", args.secret_file.display()))
    })?;
    let body = body(args.body.as_deref())?;
    let received =
        Received { id: &args.id, timestamp: &args.timestamp, signature: &args.signature, body: &body };
    let now = (!args.any_age).then(|| (args.at.unwrap_or_else(wall_clock), args.tolerance));
    let (mut why, mut is_of_this_kind) = (NotVerified::NoMatch, false);
    for (at, key) in keys.iter().enumerate() {
        match received.verify_within(key, now) {
            Ok(()) => {
                let message = id::decode(&args.id).unwrap_or_else(|| args.id.clone());
                if out.is_json() {
                    out.json(
                        &json!({"valid": true, "version": key.version(), "key": at + 1, "id": message}),
                    )?;
                } else {
                    let version = key.version();
                    out.line(&format!("valid: {version}, key {}, message {}", at + 1, safe::line(&message)))?;
                }
                return Ok(Exit::Ok);
            }
            // The failure of a key of another kind is irrelevant while there is a key of this kind.
            Err(NotVerified::OtherVersion(_)) if is_of_this_kind => {}
            Err(reason) => {
                is_of_this_kind |= !matches!(reason, NotVerified::OtherVersion(_));
                why = reason;
            }
        }
    }
    if out.is_json() {
        out.json(&json!({"valid": false, "reason": why.to_string()}))?;
    } else {
        out.line(&format!("not valid: {why}"))?;
    }
    Ok(Exit::Bad)
}

/// Parses a time as people write it, or as in the header.
fn received_at(text: &str) -> Result<Time, String> {
    let seconds = text.parse::<u64>().ok().map(|seconds| Time::from_millis(seconds.saturating_mul(1000)));
    seconds
        .or_else(|| instant::parse(text))
        .ok_or_else(|| "write it like 2026-11-15T21:40:05Z, or in seconds since 1970".to_owned())
}

/// Parses one key per line, as in a file of secrets; `until` is ignored here.
fn keys(text: &str) -> Result<Vec<VerifyingKey>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let words = lines.map(|line| line.split_ascii_whitespace().next().unwrap_or_default());
    words.map(|word| VerifyingKey::parse(word).map_err(|fault| fault.to_string())).collect()
}

fn body(path: Option<&Path>) -> Result<Vec<u8>, Failed> {
    let mut body = Vec::new();
    let read = match path {
        Some(path) => {
            std::fs::File::open(path).and_then(|file| file.take(BODY_BYTES_MAX).read_to_end(&mut body))
        }
        None => std::io::stdin().take(BODY_BYTES_MAX).read_to_end(&mut body),
    };
    let name = path.map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
    read.map(|_| body).map_err(|error| Failed::usage(format!("{name}: {error}")))
}
