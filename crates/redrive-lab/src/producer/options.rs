//! The settings of the producer, all checked at once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::{Ratio, rate};

use super::progress::Progress;
use super::report::ProducerReport;
use super::schedule::Schedule;
use super::target::Target;
use crate::fate::Rates;
use crate::seed::DEFAULT_SEED;

/// The port of `redrive producer`.
pub const DEFAULT_PORT: u16 = 7334;
/// Maximum number of orders per request; keeps a request below 8 MB.
pub const BATCH_MAX: u32 = 10_000;
/// Maximum number of requests in flight.
pub const IN_FLIGHT_MAX: usize = 10_000;

/// Receives the progress, in the producer's task; it must not block.
#[derive(Clone)]
pub struct OnProgress(pub Arc<dyn Fn(&Progress) + Send + Sync>);

impl std::fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnProgress")
    }
}

#[derive(Clone, Debug)]
pub struct ProducerOptions {
    pub target: Target,
    /// Orders per second.
    pub rate: f64,
    /// Ends the run after this many orders.
    pub count: Option<u64>,
    /// Ends the run after this time. With neither limit it runs until stopped.
    pub duration: Option<Duration>,
    pub poison_rate: Ratio,
    pub transient_rate: Ratio,
    pub seed: u64,
    /// The number of the first order, to continue where another run ended.
    pub first: u64,
    /// Orders per request.
    pub batch: u32,
    /// Maximum number of unanswered requests. When it is reached, the schedule waits.
    pub in_flight_max: usize,
    /// How long requests may take to end after a stop.
    pub grace: Duration,
    /// File for acknowledged ids, one per line.
    pub ids_file: Option<PathBuf>,
    /// The address of the metrics, if they are served.
    pub listen: Option<SocketAddr>,
    pub on_progress: Option<OnProgress>,
    pub progress_every: Duration,
}

impl ProducerOptions {
    /// The rates of the common workload, 50 orders per second, without end.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            rate: 50.0,
            count: None,
            duration: None,
            poison_rate: Rates::WORKLOAD.poison,
            transient_rate: Rates::WORKLOAD.transient,
            seed: DEFAULT_SEED,
            first: 0,
            batch: 1,
            in_flight_max: 64,
            grace: Duration::from_secs(1),
            ids_file: None,
            listen: None,
            on_progress: None,
            progress_every: Duration::from_secs(1),
        }
    }

    pub fn schedule(&self) -> Schedule {
        Schedule::new(self.rate, self.batch, self.count, self.duration)
    }

    pub fn rates(&self) -> Rates {
        Rates { poison: self.poison_rate, transient: self.transient_rate }
    }

    /// All invalid settings.
    pub fn faults(&self) -> Vec<OptionsFault> {
        let together = self.poison_rate.as_f64() + self.transient_rate.as_f64();
        let last = self.first.checked_add(self.schedule().count.unwrap_or(0));
        let checks = [
            (rate::is_sound(self.rate), OptionsFault::Rate { rate: self.rate.to_string() }),
            (
                together <= 1.0,
                OptionsFault::Shares { poison: self.poison_rate, transient: self.transient_rate },
            ),
            ((1..=BATCH_MAX).contains(&self.batch), OptionsFault::Batch { batch: self.batch }),
            (
                (1..=IN_FLIGHT_MAX).contains(&self.in_flight_max),
                OptionsFault::InFlight { max: self.in_flight_max },
            ),
            (last.is_some(), OptionsFault::First { first: self.first }),
            (!self.progress_every.is_zero(), OptionsFault::ProgressEvery),
        ];
        checks.into_iter().filter(|(fine, _)| !fine).map(|(_, fault)| fault).collect()
    }
}

/// An invalid setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsFault {
    #[error("rate: {rate} messages per second is not possible; give one above 0 and up to 100 million")]
    Rate { rate: String },
    #[error(
        "poison-rate {poison} and transient-rate {transient} are more than 100% together; lower one of them"
    )]
    Shares { poison: Ratio, transient: Ratio },
    #[error("batch: {batch} messages per request is not possible; give 1 to {BATCH_MAX}")]
    Batch { batch: u32 },
    #[error("in-flight: {max} requests at the same time is not possible; give 1 to {IN_FLIGHT_MAX}")]
    InFlight { max: usize },
    #[error("first: from {first} on there are not as many numbers as the run needs; start lower")]
    First { first: u64 },
    #[error("the time between two progress lines is zero; give at least 1ms")]
    ProgressEvery,
}

/// Why a run could not start or ended early.
#[derive(Debug, thiserror::Error)]
pub enum ProducerError {
    #[error("{}", joined(.0))]
    Options(Vec<OptionsFault>),
    #[error(
        "cannot serve the metrics on {addr}: {error}; stop whoever listens there, or give another address"
    )]
    Listen { addr: SocketAddr, error: std::io::Error },
    #[error("cannot write the ids to {path}: {error}; check the path and the space on the disk")]
    IdsFile { path: String, error: std::io::Error },
    /// The target will never accept the orders; the report shows how far the run got.
    #[error(
        "the target does not take the orders: {why}; check the address, the token and its scope `ingest`"
    )]
    Rejected { why: String, report: Box<ProducerReport> },
}

fn joined(faults: &[OptionsFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::producer::BatchAnswer;

    fn options() -> ProducerOptions {
        ProducerOptions::new(Target::callback(|_| async { BatchAnswer::Accepted { duplicates: 0 } }))
    }

    #[test]
    fn the_defaults_are_sound_and_all_faults_are_named_at_once() {
        assert_eq!(options().faults(), []);
        let wrong = ProducerOptions {
            rate: 0.0,
            batch: 0,
            in_flight_max: 0,
            poison_rate: Ratio::percent(60),
            transient_rate: Ratio::percent(41),
            progress_every: Duration::ZERO,
            first: u64::MAX,
            count: Some(1),
            ..options()
        };
        let text = joined(&wrong.faults());
        assert_eq!(wrong.faults().len(), 6, "{text}");
        for part in ["rate: 0", "60% and transient-rate 41%", "batch: 0", "in-flight: 0", "first: "] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
