//! The pure part of Redrive.
//!
//! # Layout, in the order a message meets it
//!
//! - [`time`], [`duration`], [`ratio`], [`rate`], [`random`]: points in time, spans, shares, paces and drawn numbers
//! - [`message`]: what is delivered, and its one wire form; [`pick`]: where in it a value stands
//! - [`class`], [`outcome`]: what came back from an attempt
//! - [`reason`], [`decision`]: what happens next, and why
//! - [`meta`]: what is remembered of a message between attempts
//! - [`jitter`], [`schedule`]: how long a retry waits
//! - [`profiles`], [`policy`]: what a user sets, and the one validator
//! - [`failure_kind`], [`window`]: what failures are counted, and over which time
//! - [`breaker`], [`ramp`], [`pulse`]: whether a sink may be called, and how much
//! - [`closed`]: for how long a message was kept from a sink that was closed
//! - [`endpoints`], [`pace`]: the same for each endpoint of a sink that has many, and how often it may be called
//! - [`budget`], [`guard`]: how many retries and dead letters are too many
//! - [`suspects`]: who may have killed the process
//! - [`views`]: the health of the sink and the retry budget, as a decision sees them
//! - [`mod@decide`]: the one function that decides
//! - [`forecast`], [`forecast_outage`]: what a policy implies, before anything runs
//! - [`printable`]: text of others made safe for terminals, logs and JSON
//!
//! Nothing in this crate does I/O, reads a clock or draws a random number: all of them are arguments.

pub mod breaker;
pub mod budget;
pub mod class;
pub mod closed;
pub mod decide;
pub mod decision;
pub mod duration;
pub mod endpoints;
pub mod failure_kind;
pub mod forecast;
pub mod forecast_budget;
pub mod forecast_outage;
pub mod guard;
pub mod jitter;
pub mod message;
pub mod meta;
pub mod nearest;
pub mod outcome;
pub mod pace;
pub mod pick;
pub mod policy;
pub mod printable;
pub mod profiles;
pub mod pulse;
pub mod ramp;
pub mod random;
pub mod rate;
pub mod ratio;
pub mod reason;
pub mod schedule;
pub mod suspects;
pub mod time;
pub mod views;
pub mod window;

pub use breaker::{Breaker, BreakerSettings};
pub use class::{Class, Family};
pub use decide::{after, decide, expired, outlasts_hold};
pub use decision::Decision;
pub use failure_kind::FailureKind;
pub use forecast::Forecast;
pub use forecast_outage::OutageForecast;
pub use guard::GuardSettings;
pub use jitter::{Jitter, Spread};
pub use message::{Message, MessageBuilder, MessageParts};
pub use meta::Meta;
pub use outcome::Outcome;
pub use pick::Pick;
pub use policy::{Policy, PolicyBuilder, PolicyFault, PolicyFaults, PolicySettings, PolicyWarning};
pub use random::Random;
pub use ratio::Ratio;
pub use reason::Reason;
pub use schedule::Schedule;
pub use time::Time;
pub use views::{Budget, Health};
