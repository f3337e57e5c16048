//! Whether a cluster can be reached, and if not, why. A request to librdkafka fails only with a timeout; the reason,
//! such as a wrong password, goes to the error callback. So after a timeout a client is created just to receive that
//! callback.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{BaseProducer, DeliveryResult, Producer as _, ProducerContext};
use redrive::internal::engine::EngineError;

use crate::Cluster;
use crate::locked::locked;

/// A healthy cluster answers within this time; after it, we look for the reason.
const AT_ONCE: Duration = Duration::from_secs(3);
/// How long to wait for the reason.
const LISTEN_MAX: Duration = Duration::from_secs(4);
/// A slow cluster gets this much more time.
const AT_LAST: Duration = Duration::from_secs(7);

/// Why the cluster could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The cluster answers and refuses access. Trying again does not help.
    Refused {
        problem: String,
        fix: &'static str,
    },
    Silent(String),
}

impl Unreached {
    pub fn of(self, cluster: &Cluster) -> EngineError {
        let brokers = cluster.brokers.join(",");
        match self {
            Self::Refused { problem, fix } => {
                EngineError::Directory { problem: refused_text(&brokers, &problem), fix }
            }
            Self::Silent(problem) => EngineError::Unavailable(silent_text(&brokers, &problem)),
        }
    }
}

pub(crate) fn refused_text(brokers: &str, problem: &str) -> String {
    format!("the cluster at {brokers} refuses access: {problem}")
}

pub(crate) fn silent_text(brokers: &str, problem: &str) -> String {
    format!("the cluster at {brokers} did not answer: {problem}")
}

/// Fetches metadata of all visible topics with the client's own call `ask`.
pub(crate) fn metadata(
    cluster: &Cluster,
    ask: impl Fn(Duration) -> Result<Metadata, KafkaError>,
) -> Result<Metadata, Unreached> {
    if let Ok(metadata) = ask(AT_ONCE) {
        return Ok(metadata);
    }
    let heard = listen(cluster);
    if let Some(refused) = heard.as_ref().and_then(Heard::refused) {
        return Err(refused);
    }
    ask(AT_LAST).map_err(|error| match heard {
        Some(heard) => Unreached::Silent(heard.reason),
        None => Unreached::Silent(error.to_string()),
    })
}

struct Heard {
    code: RDKafkaErrorCode,
    reason: String,
}

impl Heard {
    fn refused(&self) -> Option<Unreached> {
        let fix = match self.code {
            RDKafkaErrorCode::Authentication
            | RDKafkaErrorCode::SaslAuthenticationFailed
            | RDKafkaErrorCode::UnsupportedSASLMechanism => {
                "check `sasl.username`, `sasl.password` and `sasl.mechanism` in [engine.kafka]"
            }
            RDKafkaErrorCode::SSL => {
                "check `ssl.ca.location` and the other `ssl.` keys in [engine.kafka], and that `brokers` are named as in \
                 their certificate"
            }
            _ => return None,
        };
        Some(Unreached::Refused { problem: self.reason.clone(), fix })
    }
}

/// Connects just to learn the reason.
fn listen(cluster: &Cluster) -> Option<Heard> {
    let mut config = cluster.admin();
    config.set_log_level(RDKafkaLogLevel::Info);
    let listener: BaseProducer<Listener> = match config.create_with_context(Listener::default()) {
        Ok(listener) => listener,
        // The description of an invalid setting would show its value.
        Err(KafkaError::ClientCreation(reason)) => {
            return Some(Heard { code: RDKafkaErrorCode::Fail, reason });
        }
        Err(_) => return None,
    };
    let until = Instant::now() + LISTEN_MAX;
    while Instant::now() < until && !listener.context().has_report() {
        listener.poll(Duration::from_millis(50));
    }
    listener.context().take()
}

#[derive(Default)]
struct Listener {
    reported: Mutex<Option<Heard>>,
    /// A TLS listener hangs up on a plain-text client, which librdkafka only logs.
    remarked: Mutex<Option<String>>,
}

impl Listener {
    fn has_report(&self) -> bool {
        locked(&self.reported).is_some()
    }

    fn take(&self) -> Option<Heard> {
        let remarked = || {
            let reason = locked(&self.remarked).take()?;
            // On a busy machine the log line may be all that arrives in time about a refused certificate.
            let is_refused = reason.contains("certificate verify failed");
            let code =
                if is_refused { RDKafkaErrorCode::SSL } else { RDKafkaErrorCode::BrokerTransportFailure };
            Some(Heard { code, reason })
        };
        locked(&self.reported).take().or_else(remarked)
    }
}

impl ClientContext for Listener {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        if facility == "FAIL" {
            // Drop the prefix `[thrd:…]: `.
            let reason = message.split_once("]: ").map_or(message, |(_, reason)| reason);
            locked(&self.remarked).get_or_insert(reason_of(reason));
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        // It follows the reason, and is not one itself.
        if code != RDKafkaErrorCode::AllBrokersDown {
            locked(&self.reported).get_or_insert(Heard { code, reason: reason_of(reason) });
        }
    }
}

impl ProducerContext for Listener {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// Cuts `…: Connection refused (after 3ms in state CONNECT, 1 identical error(s) suppressed)` at the bracket. A
/// listener that hangs up on the very first request speaks another protocol, so the text says that.
fn reason_of(reason: &str) -> String {
    let (before, state) = reason.rsplit_once(" (after ").unwrap_or((reason, ""));
    if state.contains("APIVERSION_QUERY") && !before.contains("security.protocol") {
        return format!("{before} (is `security.protocol` in [engine.kafka] what this listener wants?)");
    }
    before.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_is_told_from_silence() {
        let heard = |code| Heard { code, reason: "no".to_owned() }.refused();
        assert!(
            matches!(heard(RDKafkaErrorCode::Authentication), Some(Unreached::Refused { fix, .. }) if fix.contains("sasl.password"))
        );
        assert!(
            matches!(heard(RDKafkaErrorCode::SSL), Some(Unreached::Refused { fix, .. }) if fix.contains("ssl.ca.location"))
        );
        assert_eq!(heard(RDKafkaErrorCode::BrokerTransportFailure), None);
    }

    #[test]
    fn a_reason_is_told_without_its_milliseconds_and_with_what_it_may_mean() {
        assert_eq!(reason_of("a: refused (after 3ms in state CONNECT)"), "a: refused");
        assert_eq!(reason_of("a: refused (really)"), "a: refused (really)");
        let hung_up = reason_of("a: Disconnected: closed by peer (after 3ms in state APIVERSION_QUERY)");
        assert!(hung_up.starts_with("a: Disconnected: closed by peer (is `security.protocol`"), "{hung_up}");
    }
}
