//! Limits how often a recurring problem is logged: while a broker is away, its clients report it several times a
//! second.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use redrive::internal::engine::EngineError;

use crate::locked::locked;

/// Time between two log lines about the same problem.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The problems that one client has reported.
#[derive(Debug, Default)]
pub struct ProblemLog {
    reported: Mutex<Vec<Reported>>,
}

#[derive(Debug)]
struct Reported {
    code: RDKafkaErrorCode,
    at: Instant,
    since: u64,
}

impl ProblemLog {
    /// Returns how often a problem was reported since it was last logged, including this time, if it is to be logged
    /// now.
    pub fn times(&self, error: &KafkaError, now: Instant) -> Option<u64> {
        let Some(code) = error.rdkafka_error_code() else { return Some(1) };
        let mut reported = locked(&self.reported);
        let Some(before) = reported.iter_mut().find(|one| one.code == code) else {
            reported.push(Reported { code, at: now, since: 0 });
            return Some(1);
        };
        before.since += 1;
        if now.duration_since(before.at) < LOG_EVERY {
            return None;
        }
        before.at = now;
        Some(std::mem::take(&mut before.since))
    }
}

/// Forwards a log line of librdkafka to our log.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg
        | RDKafkaLogLevel::Alert
        | RDKafkaLogLevel::Critical
        | RDKafkaLogLevel::Error => {
            tracing::warn!(facility, said = message, "librdkafka");
        }
        RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice => {
            tracing::info!(facility, said = message, "librdkafka");
        }
        RDKafkaLogLevel::Info | RDKafkaLogLevel::Debug => {
            tracing::debug!(facility, said = message, "librdkafka");
        }
    }
}

pub(crate) fn unavailable(error: &dyn std::fmt::Display) -> EngineError {
    EngineError::Unavailable(format!("Kafka: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_again_and_again_is_told_once_in_a_while() {
        let trouble = ProblemLog::default();
        let (down, other) = (RDKafkaErrorCode::AllBrokersDown, RDKafkaErrorCode::BrokerTransportFailure);
        let began = Instant::now();
        let at =
            |code, seconds| trouble.times(&KafkaError::Global(code), began + Duration::from_secs(seconds));
        assert_eq!([at(down, 0), at(down, 1), at(other, 2), at(down, 9)], [Some(1), None, Some(1), None]);
        assert_eq!(trouble.times(&KafkaError::MessageConsumption(down), began + LOG_EVERY), Some(3));
        assert_eq!([at(down, 11), at(down, 21)], [None, Some(2)]);
        assert_eq!(trouble.times(&KafkaError::Canceled, began), Some(1));
    }
}
