//! The health of a pipeline's sink and its latest changes, for status, metrics and the log.

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
    /// Calls that may run at once now: fewer than the limit during ramp-up, none while the breaker is open.
    pub permits: usize,
    /// Calls that may run at once in normal operation.
    pub limit: usize,
    /// The Retry-After that currently holds back all messages.
    pub wait: Option<AskedWait>,
    /// An outage seen by the pulse: hardly any call succeeds, whatever the state of the breaker.
    pub outage: Option<Outage>,
    /// The current outage, or the last one.
    pub incident: Option<Incident>,
    /// How many permits there would be at first if the breaker closed now, and how long the ramp-up to the limit
    /// would take.
    pub ramp: (usize, Duration),
    /// Successful calls per second before the last outage.
    pub usual_per_second: Option<f64>,
    /// The share of that rate with which calls begin after an outage.
    pub reload: Ratio,
    /// Calls per second that are allowed during ramp-up; `None` without a limit.
    pub reload_per_second: Option<f64>,
    /// Average duration of a successful call, if there was one.
    pub call_took: Option<Duration>,
    /// The endpoints that keep messages waiting, for a sink with an endpoint per message.
    pub endpoints: Option<EndpointFigures>,
    /// Retries left in the budget; `None` without a budget.
    pub budget_remaining: Option<u32>,
    /// Why the guard has paused the pipeline, if it has.
    pub flood: Option<Flood>,
    /// Messages that may have killed the process and wait for their turn to run alone.
    pub suspects: u64,
    /// Messages whose receiver closed the connection during the call.
    pub resets: ResetFigures,
    /// The latest changes, oldest first.
    pub history: Vec<HealthEntry>,
}

/// Endpoints and origins whose messages wait.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct EndpointFigures {
    /// What counts as an endpoint: also a tenant or a key, if the sink limits by these.
    pub limit_by: LimitBy,
    /// Endpoints in cooldown because they fail or have sent a Retry-After.
    pub endpoints: u64,
    /// Origins in cooldown.
    pub origins: u64,
    /// Endpoints and origins whose messages wait, for whatever reason.
    pub waiting: u64,
    /// The most serious of these waits, at most [`SHOWN_MAX`](super::routes::SHOWN_MAX).
    pub waits: Arc<[EndpointWait]>,
}

/// A change in the health of a pipeline, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthEntry {
    /// When it changed.
    pub at: Time,
    /// What changed.
    pub change: HealthChange,
}

/// A change with its pipeline, for listeners.
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
        /// The permits at the start and at the end of the ramp-up.
        ramp: Option<(usize, usize)>,
    },
    /// The sink sent a Retry-After: nothing is sent until it is over.
    AskedToWait(AskedWait),
    /// An operator ended the wait.
    WaitLifted,
    /// The guard has paused the pipeline.
    Flood(Flood),
    /// The last run ended without a clean stop while messages were running.
    Suspected {
        /// Messages that were running.
        messages: usize,
    },
    /// Several runs in a row ended without a clean stop, and no running message could have caused it.
    UncleanEnds {
        /// Runs that ended uncleanly.
        runs: u32,
    },
    /// A suspect is about to run: alone in its pipeline, or, with `exclusive`, with nothing else in the process.
    RunsAlone {
        /// The message that runs.
        message_id: String,
        /// Crashes while it ran.
        crashes: u32,
        /// Crashes after which it is quarantined.
        threshold: u32,
        /// Whether nothing else runs meanwhile, in any pipeline.
        exclusive: bool,
        /// Suspects that wait behind it.
        left: usize,
    },
    /// All suspects are settled.
    SuspectsCleared {
        /// Suspects that ran and were settled.
        cleared: u64,
    },
    /// A message was quarantined as a poison pill.
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
        /// Resets attributed to this message, and how many of them quarantine it; `None` where resets are common.
        suspicion: Option<(u32, u32)>,
    },
    /// Resets that were not logged one by one.
    ReceiverClosedMore {
        /// How many more.
        more: u64,
        /// The span they fell into.
        within: Duration,
    },
    /// A receiver closed the connection too often while it handled a message, which is now a dead letter.
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
    /// A handler does not return and does not yield.
    Stuck {
        /// The message.
        message_id: String,
        /// How long it has been running.
        after: Duration,
    },
}

impl HealthChange {
    /// The id of the message that the change is about, if any.
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

/// Describes the cause of an opened breaker, as in `56 % of 500 messages failed within 10s`.
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

/// Describes a wait, as in `the downstream answered o-1 with 429 and Retry-After 24h; others wait for 5m of it
/// (retry_after_shared_max)`.
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

/// Describes a flood, as in `100 of 120 messages that ended within 1m are dead letters`.
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
                    "▲ the process did not run for {}: it was stopped, the machine was suspended, or CPU or disk was \
                     starved",
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
