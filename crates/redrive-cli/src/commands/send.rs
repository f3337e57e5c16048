//! `redrive send`: one message, or many as NDJSON, into a pipeline.

use std::io::{self, BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use redrive_api::AcceptedMessages;
use serde_json::{Map, Value, json};

use crate::args::Global;
use crate::client::{Session, with_api};
use crate::exit::{Exit, Failed};
use crate::output::{Output, count, safe};

/// The maximum number of lines in a request. With the limit on bytes, it stays below a processor's default limits.
const LINES_MAX: usize = 10_000;
const BYTES_MAX: usize = 8 << 20;
/// The largest payload that is read. A processor accepts less.
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, clap::Args)]
pub struct SendArgs {
    /// The pipeline
    pub pipeline: String,
    /// The payload, sent byte for byte; `-` reads it from stdin
    #[arg(allow_hyphen_values = true, required_unless_present_any = ["file", "ndjson"])]
    pub payload: Option<String>,
    /// Read the payload from a file, or with --ndjson the messages
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub file: Option<PathBuf>,
    /// Send a message per line of stdin or --file, each a JSON object as the API takes it
    #[arg(long, conflicts_with_all = ["payload", "id", "key", "header", "tenant", "ttl", "delay", "due"])]
    pub ndjson: bool,
    /// The message's id; default: read as the pipeline's `id` says, or generated
    #[arg(long)]
    pub id: Option<String>,
    /// The key whose messages keep their order
    #[arg(long)]
    pub key: Option<String>,
    /// A header; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,
    /// The tenant
    #[arg(long)]
    pub tenant: Option<String>,
    /// Give up after this long, as in 1h30m
    #[arg(long, value_name = "SPAN")]
    pub ttl: Option<String>,
    /// Deliver not before this long has passed; 365 days at most
    #[arg(long, value_name = "SPAN", conflicts_with = "due")]
    pub delay: Option<String>,
    /// Deliver not before this RFC 3339 time; 365 days ahead at most
    #[arg(long, value_name = "TIME")]
    pub due: Option<String>,
}

pub fn run(args: &SendArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    with_api(global, out, async |session, out| {
        if args.ndjson { many(args, session, out).await } else { one(args, session, out).await }
    })
}

async fn one(args: &SendArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let payload = match (&args.payload, &args.file) {
        (_, Some(path)) => read(open(path)?, &path.display().to_string())?,
        (Some(text), None) if text == "-" => read(io::stdin().lock(), "stdin")?,
        (Some(text), None) => text.clone().into_bytes(),
        (None, None) => Vec::new(),
    };
    let sent = session.api.send(&args.pipeline, message(args, &payload)).await?;
    if out.is_json() {
        out.json(&sent.json)?;
        return Ok(Exit::Ok);
    }
    let what = if sent.view.duplicate { "duplicate" } else { "accepted" };
    out.line(&format!("{what} {}   {}", safe::line(&sent.view.id), sent.view.state))?;
    Ok(Exit::Ok)
}

/// Builds a message for the API. In base64 the payload arrives unchanged, JSON or not.
fn message(args: &SendArgs, payload: &[u8]) -> Value {
    let mut message = Map::from_iter([("payload_base64".to_owned(), json!(STANDARD.encode(payload)))]);
    let texts = [
        ("id", &args.id),
        ("key", &args.key),
        ("tenant", &args.tenant),
        ("ttl", &args.ttl),
        ("delay", &args.delay),
        ("due", &args.due),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            message.insert(name.to_owned(), json!(value));
        }
    }
    if !args.header.is_empty() {
        let headers: Map<String, Value> =
            args.header.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        message.insert("headers".to_owned(), headers.into());
    }
    message.into()
}

/// Sends lines in batches, as many as fit into one request. A request is accepted as a whole or not at all.
async fn many(args: &SendArgs, session: &Session, out: &mut Output) -> Result<Exit, Failed> {
    let from: Box<dyn Read> = match &args.file {
        Some(path) => Box::new(open(path)?),
        None => Box::new(io::stdin()),
    };
    let mut lines = BufReader::new(from).split(b'\n');
    let mut all = AcceptedMessages::default();
    let mut before = 0_u64;
    loop {
        let (mut body, mut taken) = (Vec::new(), 0);
        while taken < LINES_MAX && body.len() < BYTES_MAX {
            let Some(line) = lines.next() else { break };
            body.extend(line.map_err(|error| Failed::usage(format!("the lines cannot be read: {error}")))?);
            body.push(b'\n');
            taken += 1;
        }
        if taken == 0 {
            break;
        }
        if !body.trim_ascii().is_empty() {
            let sent = session.api.send_many(&args.pipeline, Bytes::from(body)).await;
            let sent = sent.map_err(|fault| so_far(fault.into(), &all, before))?;
            all.accepted += sent.view.accepted;
            all.duplicates += sent.view.duplicates;
        }
        before += taken as u64;
    }
    if out.is_json() {
        out.json(&json!({ "accepted": all.accepted, "duplicates": all.duplicates }))?;
    } else {
        out.line(&format!("accepted {}   duplicates {}", count(all.accepted), count(all.duplicates)))?;
    }
    Ok(Exit::Ok)
}

/// One of several requests failed: the ones before it were accepted.
fn so_far(failed: Failed, sent: &AcceptedMessages, lines: u64) -> Failed {
    if lines == 0 {
        return failed;
    }
    let so_far = format!(
        "the first {} lines were sent before: accepted {}, duplicates {}; sending all again adds none of them twice if \
         they have ids",
        count(lines),
        count(sent.accepted),
        count(sent.duplicates)
    );
    let hint = failed.hint.clone().map_or_else(|| so_far.clone(), |hint| format!("{hint}\n  {so_far}"));
    failed.hint(hint)
}

fn open(path: &Path) -> Result<std::fs::File, Failed> {
    std::fs::File::open(path).map_err(|error| Failed::usage(format!("{}: {error}", path.display())))
}

fn read(from: impl Read, name: &str) -> Result<Vec<u8>, Failed> {
    let mut payload = Vec::new();
    let read = from.take(PAYLOAD_BYTES_MAX + 1).read_to_end(&mut payload);
    read.map_err(|error| Failed::usage(format!("{name}: {error}")))?;
    if payload.len() as u64 > PAYLOAD_BYTES_MAX {
        return Err(Failed::usage(format!("{name} is larger than 64 MiB"))
            .hint("keep it elsewhere and send where it is"));
    }
    Ok(payload)
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value() {
        assert_eq!(header("x-src=a=b"), Ok(("x-src".to_owned(), "a=b".to_owned())));
        assert_eq!(header("x-src="), Ok(("x-src".to_owned(), String::new())));
        assert!(header("x-src").is_err() && header("=a").is_err());
    }
}
