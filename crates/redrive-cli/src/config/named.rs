//! What the text alone cannot tell: whether the files it names can be used, and what the parts that will run say to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive_server::{Scope, Token};
use redrive_sinks::{Secret, SinkFault, WebhookOptions};

use super::alert::AlertTarget;
use super::fault::Fault;
use super::kafka::{self, PassedOn};
use super::tree::At;

/// Something to look at once the text is read.
#[derive(Clone, Debug)]
pub(super) enum Named {
    Token {
        part: Option<String>,
        name: String,
        secret_file: PathBuf,
        at: At,
    },
    Tls {
        at: At,
    },
    Kafka {
        passed_on: Vec<PassedOn>,
    },
    Alert {
        part: Option<String>,
        to: AlertTarget,
        timeout: Duration,
        at: At,
    },
    Webhook {
        part: Option<String>,
        /// What the table makes of a sink, or what is wrong with it already.
        options: Result<Box<WebhookOptions>, Vec<SinkFault>>,
        /// The policy's limit for an attempt; `None`: the policy has faults of its own.
        timeout: Option<Duration>,
        /// Where the values of the pipeline were given, by their dotted key.
        given: BTreeMap<String, At>,
    },
}

impl Named {
    /// Reads the files; connects to nothing.
    pub(super) fn faults(&self) -> Vec<Fault> {
        match self {
            Self::Token { part, name, secret_file, at } => {
                let fault = token_fault(name, secret_file, at).map(|fault| fault.of(part.as_deref()));
                fault.into_iter().collect()
            }
            Self::Tls { at } => {
                let problem = "`tls_cert_file` is set, and this build serves no TLS";
                let fix = "put a proxy with TLS in front, and listen on loopback";
                vec![Fault::line("tls_cert_file", problem, fix, vec![at.clone()]).of(Some("server"))]
            }
            Self::Kafka { passed_on } => {
                let faults = kafka::passed_on_faults(passed_on);
                faults.into_iter().map(|fault| fault.of(Some("engine"))).collect()
            }
            Self::Alert { part, to, timeout, at } => {
                let faults = alert_faults(to, *timeout, at);
                faults.into_iter().map(|fault| fault.of(part.as_deref())).collect()
            }
            Self::Webhook { part, options, timeout, given } => {
                let faults = match options.clone() {
                    Ok(mut options) => {
                        options.timeout = timeout.unwrap_or(options.timeout);
                        options.check()
                    }
                    Err(faults) => faults,
                };
                faults.iter().map(|fault| webhook_fault(fault, given).of(part.as_deref())).collect()
            }
        }
    }
}

fn token_fault(name: &str, secret_file: &Path, at: &At) -> Option<Fault> {
    let shown = secret_file.display();
    let problem = match Secret::read(secret_file) {
        Err(error) => format!("`secret_file = \"{shown}\"` cannot be used: {}", error.problem),
        // What it may do is checked with the text.
        Ok(secret) => {
            let error = Token::new(name, secret.expose(), Scope::ALL).err()?;
            format!("`secret_file = \"{shown}\"` holds no usable secret: {error}")
        }
    };
    let fix = format!("openssl rand -hex 20 > {shown}, readable by the user that runs the processor");
    Some(Fault::value("secret_file", problem, fix, at.clone()))
}

fn alert_faults(to: &AlertTarget, timeout: Duration, at: &At) -> Vec<Fault> {
    let of_sink = |fault: &SinkFault| {
        // The sink's own word for its address is `url`.
        let key = if fault.key == "url" { "webhook" } else { fault.key.as_str() };
        let problem = fault.problem.replace("`url`", "`webhook`");
        Fault::line(key, problem, fault.fix.as_str(), vec![at.clone()])
    };
    match to {
        AlertTarget::Webhook { .. } => {
            to.options(timeout).iter().flat_map(WebhookOptions::check).map(|fault| of_sink(&fault)).collect()
        }
        AlertTarget::Command(words) => {
            let program = words.first().map(String::as_str).unwrap_or_default();
            if !program.contains('/') || Path::new(program).is_file() {
                return Vec::new();
            }
            let problem = format!("`command` names `{program}`, and there is no such file");
            vec![Fault::line("command", problem, "correct its path", vec![at.clone()])]
        }
    }
}

/// What the sink says, under the key and at the place where it was set.
fn webhook_fault(fault: &SinkFault, given: &BTreeMap<String, At>) -> Fault {
    let (key, at) = place(&fault.key, given);
    let problem = fault.problem.replace(&format!("`{}`", fault.key), &format!("`{key}`"));
    Fault::line(key, problem, fault.fix.as_str(), at.into_iter().collect())
}

fn place(key: &str, given: &BTreeMap<String, At>) -> (String, Option<At>) {
    let inside = format!("sink.webhook.{key}");
    let of_file = format!("{inside}_file");
    // Names of headers are lower case by now; a time limit stands in the sink or in the pipeline.
    let found = given.iter().find(|(name, _)| {
        name.eq_ignore_ascii_case(&inside)
            || name.eq_ignore_ascii_case(&of_file)
            || (key == "timeout" && *name == key)
    });
    match found {
        Some((name, at)) => (name.clone(), Some(at.clone())),
        None => (inside, None),
    }
}
