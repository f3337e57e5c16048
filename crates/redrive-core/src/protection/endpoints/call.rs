//! Where a message goes, what it asks before it goes, and how its call ended.

use std::time::Duration;

use crate::{Random, Time};

/// What a sink says about where a message goes: numbers that mean something only to it.
///
/// ```
/// use redrive_core::endpoints::Endpoint;
/// use std::hash::{DefaultHasher, Hash, Hasher};
///
/// fn hash(text: &str) -> u64 {
///     let mut hasher = DefaultHasher::new();
///     text.hash(&mut hasher);
///     hasher.finish()
/// }
///
/// let origin = hash("https://a.example");
/// let one = Endpoint { origin, endpoint: hash("https://a.example/one") };
/// let other = Endpoint { origin, endpoint: hash("https://a.example/other") };
/// assert!(one.origin == other.origin && one != other);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Scheme, host and port.
    pub origin: u64,
    /// The whole address.
    pub endpoint: u64,
}

/// Whether a message may go to its endpoint now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// It may go.
    Go,
    /// As many as may run there do.
    Full,
    /// Not before then: it is failing, has asked to slow down, or was called as often as it may be.
    NotBefore(Time),
}

/// What matters of the message that wants to go.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Whether it was put off before.
    pub waited: bool,
    /// It will not be sent after that.
    pub latest: Time,
    /// Spreads messages that wait for the same moment.
    pub random: Random,
}

/// How a call to an endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EndpointCall {
    /// Whether it counts for the endpoint's breaker.
    pub counts: bool,
    /// `None` where it says nothing about the endpoint.
    pub is_good: Option<bool>,
    /// What it asked for.
    pub retry_after: Option<Duration>,
    /// On whose behalf it counts for the origin; see [`counts_as`]. `None`: it says nothing about the origin.
    pub counts_as: Option<u64>,
    /// Of a first attempt at an origin that is one service: whether it failed as the slow window counts it.
    pub slow: Option<bool>,
}

/// On whose behalf a call counts for its origin.
///
/// Several customers may have endpoints at one origin (an automation service, a shared gateway), and what one of them
/// does must not stop deliveries to the others. So failures are counted per tenant: a tenant counts once, however many
/// of its endpoints fail. An origin that cannot be reached at all is not the doing of one tenant, so there each endpoint counts.
/// An answered failure of a message without a tenant has none: it may come from the same customer as all the others.
pub fn counts_as(to: Endpoint, tenant: Option<u64>, how: Contact) -> Option<u64> {
    match how {
        Contact::NotMade => None,
        Contact::Unreachable => Some(to.endpoint),
        Contact::Served => Some(tenant.unwrap_or(to.endpoint)),
        Contact::Failed => tenant,
    }
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It failed before the endpoint had a part in it, as at our own proxy: that says nothing about the endpoint.
    NotMade,
    /// No connection was made: refused, no such name, a broken handshake.
    Unreachable,
    /// The request was sent, and failed.
    Failed,
    /// It answered, and did its work.
    Served,
}
