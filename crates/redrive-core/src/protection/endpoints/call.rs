//! Where a message goes, what it provides when it asks, and how its call ended.

use std::time::Duration;

use crate::{Random, Time};

/// The destination of a message, as numbers that only the sink can interpret.
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
    /// As many calls as allowed are running there.
    Full,
    /// It must wait until then: the endpoint is failing, has asked to slow down, or has reached its rate.
    NotBefore(Time),
}

/// The properties of a message that asks to go.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// Whether it was deferred before.
    pub waited: bool,
    /// The message is not sent after this time.
    pub latest: Time,
    /// Spreads messages that wait for the same time.
    pub random: Random,
}

/// How a call to an endpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EndpointCall {
    /// Whether it counts for the endpoint's breaker.
    pub counts: bool,
    /// Whether the call was good; `None` if it says nothing about the endpoint.
    pub is_good: Option<bool>,
    /// The Retry-After it asked for.
    pub retry_after: Option<Duration>,
    /// The tenant or endpoint it counts for at the origin; see [`counts_as`]. `None` if it says nothing about the
    /// origin.
    pub counts_as: Option<u64>,
    /// For a first attempt at an origin that is one service: whether it failed as the slow window counts it.
    pub slow: Option<bool>,
}

/// The tenant or endpoint that a call counts for at its origin.
///
/// Several customers may have endpoints at one origin (an automation service, a shared gateway), and what one of them
/// does must not stop deliveries to the others. So failures are counted per tenant: a tenant counts once, however many
/// of its endpoints fail. If an origin cannot be reached at all, no single tenant is the cause, so each endpoint
/// counts. An answered failure of a message without a tenant does not count: all of them may come from the same
/// customer.
pub fn counts_as(to: Endpoint, tenant: Option<u64>, how: Contact) -> Option<u64> {
    match how {
        Contact::NotMade => None,
        Contact::Unreachable => Some(to.endpoint),
        Contact::Served => Some(tenant.unwrap_or(to.endpoint)),
        Contact::Failed => tenant,
    }
}

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// It failed before the endpoint was involved, such as at our own proxy: that says nothing about the endpoint.
    NotMade,
    /// No connection was made: refused, unknown name, or a failed handshake.
    Unreachable,
    /// The request was sent and failed.
    Failed,
    /// The endpoint answered with success.
    Served,
}
