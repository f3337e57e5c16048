//! The pure part of Redrive.
//!
//! # Layout, in the order a message meets it
//!
//! - [`time`], [`random`]: points in time and random numbers
//! - [`text`]: durations, rates, shares and paths as people write them; printable text
//! - [`message`]: what is delivered, and its one wire form
//! - [`retry`]: the outcome of an attempt, how long a retry waits, and [`fn@decide`], the one function that decides
//! - [`policy`]: user settings, the one validator, and the profiles
//! - [`protection`]: whether a sink may be called, and how often; how many retries and dead letters are too many; which
//!   messages may have crashed the process
//! - [`fingerprint`]: which dead letters belong together
//! - [`forecast`]: what a policy implies, before anything runs
//!
//! Nothing in this crate does I/O, reads a clock or draws a random number: times and random numbers are arguments.

#![warn(missing_docs, unreachable_pub)]

pub mod fingerprint;
pub mod forecast;
pub mod message;
pub mod policy;
pub mod protection;
pub mod random;
pub mod retry;
pub mod text;
pub mod time;
pub mod timestamp;

pub use forecast::budget as forecast_budget;
pub use forecast::outage as forecast_outage;
pub use policy::profiles;
pub use protection::{
    blocked_spans, breaker, budget, endpoints, failure_kind, guard, pace, pulse, ramp, reload, suspects,
    window,
};
pub use retry::{class, decide, decision, jitter, meta, reason, schedule, views};
pub use text::{duration, nearest, pick, printable, rate, ratio};

pub use breaker::{Breaker, BreakerSettings};
pub use class::{Class, Family};
pub use decide::{after, decide, expired, outlasts_hold};
pub use decision::{Decision, Outcome};
pub use failure_kind::FailureKind;
pub use fingerprint::{Fingerprint, GroupId, GroupRule, GroupRules};
pub use forecast::Forecast;
pub use forecast::recovery::RecoveryForecast;
pub use forecast_outage::OutageForecast;
pub use guard::GuardSettings;
pub use jitter::{Jitter, Spread};
pub use message::{Message, MessageBuilder, MessageParts};
pub use meta::Meta;
pub use pick::Pick;
pub use policy::{Policy, PolicyBuilder, PolicyFault, PolicyFaults, PolicySettings, PolicyWarning};
pub use random::{Random, SplitMix64};
pub use ratio::Ratio;
pub use reason::Reason;
pub use schedule::Schedule;
pub use time::Time;
pub use views::{Budget, Health};
