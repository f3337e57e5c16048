//! What can go wrong between the client and the processor, how to fix it, and the exit code.

use std::fmt;
use std::time::Duration;

use redrive_api::Refusal;

use super::address::ApiAddressFault;
use crate::exit::{Exit, Failed};
use crate::output::safe;

#[derive(Debug, thiserror::Error)]
pub enum ClientFault {
    #[error("no processor answers at {address}; start `redrive processor` or give --url")]
    NoProcessor { address: String },
    #[error("{address} did not answer within {} s; it may be overloaded, try again", within.as_secs())]
    Slow { address: String, within: Duration },
    #[error("no TLS with {address}: {problem}")]
    Untrusted { address: String, problem: &'static str },
    #[error("the connection to {address} broke: {error}")]
    Broken { address: String, error: String },
    /// The processor refused the request.
    #[error("{0}")]
    Refused(Refused),
    #[error("{address} does not answer as a redrive processor does ({problem}); is --url right?")]
    Strange { address: String, problem: String },
    #[error(transparent)]
    Address(#[from] ApiAddressFault),
}

/// A refusal of the API, with the request's context.
#[derive(Debug)]
pub struct Refused {
    pub status: u16,
    pub refusal: Refusal,
    /// Whether the request carried a token: the fix differs.
    pub with_token: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.refusal.message.is_empty() {
            format!("the processor answered {}", self.status)
        } else {
            flags_only(&safe::line(&self.refusal.message))
        };
        f.write_str(&message)
    }
}

impl ClientFault {
    /// 75 if the same request may work later, 1 if the processor could not do it, 2 if the request must be changed.
    pub fn exit(&self) -> Exit {
        match self {
            Self::NoProcessor { .. } | Self::Slow { .. } | Self::Broken { .. } => Exit::TryAgain,
            Self::Refused(refused) => match refused.status {
                429 | 503 => Exit::TryAgain,
                409 | 500..=599 => Exit::Bad,
                _ => Exit::Usage,
            },
            Self::Untrusted { .. } | Self::Strange { .. } | Self::Address(_) => Exit::Usage,
        }
    }

    /// The failure of a request for a change. If the processor may have received it, the change may go on without us:
    /// `how_to_look` says how to find out.
    pub fn of_change(self, how_to_look: impl FnOnce() -> String) -> Failed {
        let is_unsure = matches!(self, Self::Broken { .. } | Self::Slow { .. });
        let failed = Failed::from(self);
        if is_unsure { failed.hint(how_to_look()) } else { failed }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(refused) if refused.status == 404)
    }

    /// Whether the processor may only be restarting, so that following can go on.
    pub fn may_pass(&self) -> bool {
        self.exit() == Exit::TryAgain
    }
}

impl Refused {
    fn fix(&self) -> Option<&'static str> {
        match (self.status, self.with_token) {
            (401, false) => Some(
                "this needs a token: give it with --token-file FILE or REDRIVE_TOKEN (a processor without configured tokens keeps one in <engine dir>/token)",
            ),
            (401, true) => Some(
                "the token that was sent is not one of the processor's: check --token-file and REDRIVE_TOKEN",
            ),
            (403, _) => Some(
                "the token lacks the scope for this: use one whose [[server.token]] entry lists it in `scopes`",
            ),
            _ => None,
        }
    }
}

/// The API gives the name of a field and then, in brackets, the flag that sets it: `` `dry_run` (--dry-run) ``. On the
/// command line only the flag is of use.
fn flags_only(text: &str) -> String {
    let mut said = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("` (--") {
        let (before, bracket) = (&rest[..at], &rest[at + "` (".len()..]);
        let (Some(field), Some(end)) = (before.rfind('`'), bracket.find(')')) else { break };
        let mut before = &before[..field];
        // `` `ambiguous` = `ok` (--ambiguous ok) ``
        if let Some(name) = before.strip_suffix("` = ").and_then(|named| Some(&named[..named.rfind('`')?])) {
            before = name;
        }
        said.push_str(before);
        said.push_str(&bracket[..end]);
        rest = &bracket[end + 1..];
    }
    said + rest
}

impl From<ClientFault> for Failed {
    fn from(fault: ClientFault) -> Self {
        let failed = Self::new(fault.exit(), fault.to_string());
        if let ClientFault::Untrusted { .. } = fault {
            return failed
                .hint("--ca-file FILE names the authority to trust, in PEM, if it is one of your own");
        }
        let ClientFault::Refused(refused) = &fault else { return failed };
        let hint = Some(&refused.refusal.hint)
            .filter(|hint| !hint.is_empty())
            .map(|hint| flags_only(&safe::line(hint)));
        let said: Vec<String> = hint.into_iter().chain(refused.fix().map(str::to_owned)).collect();
        if said.is_empty() { failed } else { failed.hint(said.join("\n  ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_its_flag_is_told_as_the_flag() {
        for (api, said) in [
            ("`ambiguous` = `ok` (--ambiguous ok) replays them", "--ambiguous ok replays them"),
            ("left: `ambiguous` = `skip` (--ambiguous skip) leaves", "left: --ambiguous skip leaves"),
            ("`dry_run` (--dry-run) names all; `x` (--y)", "--dry-run names all; --y"),
            (
                "give `\"message_id\": \"same\"` (--same-id) if right, or `\"new\"` (--new-id) if not",
                "give --same-id if right, or --new-id if not",
            ),
            ("`o` is of pipeline `p` (not here)", "`o` is of pipeline `p` (not here)"),
            ("there is no letter `17", "there is no letter `17"),
        ] {
            assert_eq!(flags_only(api), said);
        }
    }
}
