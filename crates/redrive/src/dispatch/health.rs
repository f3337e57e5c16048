//! How a pipeline's sink is doing, and what has happened to it: for status, metrics and the log.

#![warn(missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::breaker::{BreakerChange, BreakerState, BreakerView, Cause};
use redrive_core::endpoints::{EndpointWait, LimitBy};
use redrive_core::guard::Flood;
use redrive_core::pulse::Outage;
use redrive_core::views::Gate;
use redrive_core::{Ratio, Time, duration};

use crate::timestamp;

use super::incident::Incident;
use super::resets::ResetFigures;
use super::shared_wait::AskedWait;

/// The health of one pipeline at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthFigures {
    /// The breaker of the sink.
    pub breaker: BreakerView,
    /// Calls that may run at once now: fewer than the limit while the permits grow again, none while it is open.
    pub permits: usize,
    /// How many calls may run at once when nothing is wrong.
    pub limit: usize,
    /// The Retry-After that all messages wait for.
    pub wait: Option<AskedWait>,
    /// Hardly anything gets through, whatever the breaker says.
    pub outage: Option<Outage>,
    /// The outage that runs, or was last.
    pub incident: Option<Incident>,
    /// Where the permits would begin if the breaker closed now, and how long they would need to the limit.
    pub ramp: (usize, Duration),
    /// Good calls per second before the last outage.
    pub usual_per_second: Option<f64>,
    /// The share of it that calls per second begin with after an outage.
    pub reload: Ratio,
    /// Calls per second that are allowed while the permits grow again; `None` without a limit.
    pub reload_per_second: Option<f64>,
    /// How long a good call takes, if there was one.
    pub call_took: Option<Duration>,
    /// Which endpoints keep messages waiting, for a sink with an endpoint per message.
    pub endpoints: Option<EndpointFigures>,
    /// Retries that are left of the budget; `None` without one.
    pub budget_remaining: Option<u32>,
    /// Why the guard has paused the pipeline, if it has.
    pub flood: Option<Flood>,
    /// Messages that may have killed the process and wait for their turn to run alone.
    pub suspects: u64,
    /// Messages whose receiver closed the connection while it handled them.
    pub resets: ResetFigures,
    /// The latest changes, oldest first.
    pub history: Vec<HealthEntry>,
}

/// Endpoints and origins whose messages wait.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EndpointFigures {
    /// What an endpoint is here: a tenant or a key, if the sink limits by these.
    pub limit_by: LimitBy,
    /// Endpoints in cooldown: they fail, or have sent a Retry-After.
    pub endpoints: u64,
    /// Origins in cooldown.
    pub origins: u64,
    /// How many wait, for whatever reason.
    pub waiting: u64,
    /// The most serious of these, at most [`SHOWN_MAX`](super::routes::SHOWN_MAX).
    pub waits: Arc<[EndpointWait]>,
}

/// Something that happened to the health of a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthEntry {
    /// When it changed.
    pub at: Time,
    /// What changed.
    pub change: HealthChange,
}

/// A change with the pipeline it happened to, for listeners.
#[derive(Clone, Debug)]
pub struct HealthChanged {
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// When it changed.
    pub at: Time,
    /// What changed.
    pub change: HealthChange,
}

/// A change in the health of a pipeline.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HealthChange {
    /// The breaker changed.
    Breaker {
        /// What happened to it.
        change: BreakerChange,
        /// Where the permits begin again, and where they end.
        ramp: Option<(usize, usize)>,
    },
    /// The sink sent a Retry-After: nothing is sent until then.
    AskedToWait(AskedWait),
    /// An operator ended the wait.
    WaitLifted,
    /// The guard has paused the pipeline.
    Flood(Flood),
    /// The last run ended without a clean stop, and this was running.
    Suspected {
        /// Messages that were running.
        messages: usize,
    },
    /// So many runs in a row ended without a clean stop, and no message was running that could have ended them.
    UncleanEnds {
        /// Starts that ended uncleanly.
        runs: u32,
    },
    /// A suspect is about to run alone, or, with `exclusive`, with nothing else.
    RunsAlone {
        /// The message that runs.
        message_id: String,
        /// Crashes while it ran.
        crashes: u32,
        /// Crashes after which it is given up.
        threshold: u32,
        /// Whether nothing else runs meanwhile, in any pipeline.
        exclusive: bool,
        /// Suspects that wait behind it.
        left: usize,
    },
    /// All suspects have come to an end.
    SuspectsCleared {
        /// Suspects that ran and came to an end.
        cleared: u64,
    },
    /// A message was given up as a poison pill.
    Quarantined {
        /// The message.
        message_id: String,
        /// Crashes while it ran.
        crashes: u32,
        /// The first of them.
        first_crash: Option<Time>,
        /// The last of them.
        last_crash: Option<Time>,
    },
    /// A receiver closed the connection while it handled a message.
    ReceiverClosed {
        /// The message.
        message_id: String,
        /// Resets attributed to this message, and how many quarantine it; `None` where resets are common.
        suspicion: Option<(u32, u32)>,
    },
    /// Resets that were not logged one by one.
    ReceiverClosedMore {
        /// How many more.
        more: u64,
        /// Within which time.
        within: Duration,
    },
    /// A receiver closed the connection too often while it handled a message, which is a dead letter now.
    ReceiverKilled {
        /// The message.
        message_id: String,
        /// How often.
        times: u32,
    },
    /// The process did not run: it was stopped, or starved.
    StoodStill {
        /// How long.
        span: Duration,
    },
    /// A handler does not come back and does not yield.
    Stuck {
        /// The message.
        message_id: String,
        /// How long it ran.
        after: Duration,
    },
}

impl HealthChange {
    /// The message it is about, if it is about one.
    pub fn message_id(&self) -> Option<&str> {
        match self {
            Self::RunsAlone { message_id, .. }
            | Self::Quarantined { message_id, .. }
            | Self::ReceiverClosed { message_id, .. }
            | Self::ReceiverKilled { message_id, .. }
            | Self::Stuck { message_id, .. } => Some(message_id),
            Self::AskedToWait(wait) => Some(&wait.message_id),
            _ => None,
        }
    }

    /// Whether it needs attention.
    pub fn is_bad(&self) -> bool {
        match self {
            Self::Breaker { change, .. } => {
                matches!(
                    change,
                    BreakerChange::Opened(_) | BreakerChange::Alert(_) | BreakerChange::Reopened { .. }
                )
            }
            Self::Flood(_)
            | Self::AskedToWait(_)
            | Self::Suspected { .. }
            | Self::UncleanEnds { .. }
            | Self::Quarantined { .. }
            | Self::ReceiverKilled { .. }
            | Self::StoodStill { .. }
            | Self::Stuck { .. } => true,
            Self::RunsAlone { .. }
            | Self::WaitLifted
            | Self::SuspectsCleared { .. }
            | Self::ReceiverClosed { .. }
            | Self::ReceiverClosedMore { .. } => false,
        }
    }
}

impl HealthFigures {
    /// Whether nothing but probes is sent.
    pub fn is_gated(&self) -> bool {
        self.breaker.state != BreakerState::Closed || self.wait.is_some()
    }
}

impl Default for HealthFigures {
    fn default() -> Self {
        let breaker = BreakerView {
            enabled: true,
            state: BreakerState::Closed,
            since: None,
            next_probe: None,
            rounds: 0,
            probes: 0,
            cause: None,
        };
        Self {
            breaker,
            permits: 0,
            limit: 0,
            wait: None,
            outage: None,
            incident: None,
            ramp: (0, Duration::ZERO),
            usual_per_second: None,
            reload: Ratio::ZERO,
            reload_per_second: None,
            call_took: None,
            endpoints: None,
            budget_remaining: None,
            flood: None,
            suspects: 0,
            resets: ResetFigures::default(),
            history: Vec::new(),
        }
    }
}

/// A share of messages, as in `56 % of 500 messages failed within 10s`.
pub fn cause(cause: &Cause) -> String {
    let percent = u64::from(cause.failed) * 100 / u64::from(cause.of.max(1));
    let within = duration::print(cause.within);
    match cause.by {
        Gate::Breaker => format!("{percent} % of {} messages failed within {within}", cause.of),
        Gate::Credential => {
            format!(
                "{percent} % of {} messages failed within {within}, mostly because our key was refused",
                cause.of
            )
        }
    }
}

/// `the downstream answered o-1 with 429 and Retry-After 24h; others wait for 5m of it (retry_after_shared_max)`.
pub fn asked(wait: &AskedWait) -> String {
    let AskedWait { asked, message_id, kind, since, until, .. } = wait;
    let waited = duration::print(until.since(*since));
    let cut = if wait.is_cut() {
        format!("; others wait for {waited} of it (retry_after_shared_max)")
    } else {
        String::new()
    };
    format!(
        "the downstream answered {message_id} with {kind} and Retry-After {}{cut}",
        duration::print(*asked)
    )
}

/// `100 of 120 messages that ended within 1m are dead letters`.
pub fn flood(flood: &Flood) -> String {
    format!(
        "{} of {} messages that ended within {} are dead letters",
        flood.dead,
        flood.of,
        duration::print(flood.within)
    )
}

impl fmt::Display for HealthChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breaker { change: BreakerChange::Opened(why), .. } => {
                write!(f, "▲ breaker open: {}. Nothing is sent, no attempts are used up.", cause(why))
            }
            Self::Breaker { change: BreakerChange::Alert(why), .. } => {
                write!(f, "▲ breaker would open: {}", cause(why))
            }
            Self::Breaker { change: BreakerChange::Probing { round }, .. } => {
                write!(f, "breaker half open: probes, round {round}")
            }
            Self::Breaker { change: BreakerChange::Reopened { round, .. }, .. } => {
                write!(f, "▲ breaker still open: the probes of round {round} failed")
            }
            Self::Breaker { change: BreakerChange::Closed { good, probes, .. }, ramp } => {
                if *probes == 0 {
                    f.write_str("▼ breaker closed by hand")?;
                } else if good == probes {
                    write!(f, "▼ breaker closed after {good} good probes")?;
                } else {
                    write!(f, "▼ breaker closed after {good}/{probes} good probes")?;
                }
                match ramp {
                    Some((from, to)) if from < to => write!(f, "; ramping {from} → {to} permits"),
                    _ => Ok(()),
                }
            }
            Self::AskedToWait(wait) => {
                write!(f, "▲ nothing is sent until {}: {}", timestamp::print(wait.until), asked(wait))
            }
            Self::WaitLifted => write!(f, "▼ the wait was lifted; calls ramp up"),
            Self::Flood(why) => write!(f, "▲ paused by the dead-letter guard: {}", flood(why)),
            Self::Suspected { messages } => write!(
                f,
                "▲ the last run ended without a clean stop: {messages} deliveries were started and not settled. \
                 They are suspects and run alone; others continue."
            ),
            Self::UncleanEnds { runs } => write!(
                f,
                "▲ the last {runs} runs ended without a clean stop, and no message was running that could have ended \
                 them: look at the system log (out of memory? killed by a health check or by hand?)"
            ),
            Self::RunsAlone { message_id, crashes, threshold, exclusive, left } => {
                let how = if *exclusive { "with nothing else" } else { "alone" };
                write!(f, "suspect {message_id} (crash {crashes} of {threshold}) runs {how}; {left} wait")
            }
            Self::SuspectsCleared { cleared } => write!(f, "▼ {cleared} suspects cleared"),
            Self::Quarantined { message_id, crashes, .. } => {
                write!(f, "▲ {message_id} dead-lettered: poison_pill, quarantined after {crashes} crashes")
            }
            Self::ReceiverClosed { message_id, suspicion } => {
                write!(f, "the receiver closed the connection while handling {message_id}")?;
                match suspicion {
                    Some((times, threshold)) => write!(f, " ({times} of {threshold})"),
                    None => Ok(()),
                }
            }
            Self::ReceiverClosedMore { more, within } => {
                let within = duration::print(*within);
                write!(f, "the receiver closed the connection for {more} more messages within {within}")
            }
            Self::ReceiverKilled { message_id, times } => write!(
                f,
                "▲ {message_id} dead-lettered: poison_pill, quarantined. The receiver closed the connection {times} \
                 times while handling it, and answered others in between"
            ),
            Self::StoodStill { span } => {
                let whole = Duration::from_secs(span.as_secs());
                write!(
                    f,
                    "▲ the process stood still for {}: it was stopped, or its machine suspended, or starved of processor \
                     or disk",
                    duration::print(whole)
                )
            }
            Self::Stuck { message_id, after } => {
                let after = duration::print(*after);
                write!(f, "▲ the handler of {message_id} has not come back for {after} and does not yield")
            }
        }
    }
}
