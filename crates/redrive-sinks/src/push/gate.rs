//! The gate before a push: a purged endpoint is not called, and what a service reports about an endpoint is recorded.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::StatusCode;
use redrive::internal::subscriptions::{
    Admission, Answer, EndpointId, Reader, Record, Registered, Stored, Subscriptions,
};
use redrive::timestamp;
use redrive::{Failure, Notes};
use redrive_core::Time;

use super::failing::{self, PushError};
use super::json::{self, FieldFault};
use super::verdict::Verdict;
use crate::fault::SinkFault;
use crate::secret::Secret;
use crate::webhook::endpoint_hash::EndpointHash;

/// The result of a push that a service accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub status: StatusCode,
    /// For how many seconds the service keeps the push, if it says so: it may be less than requested (RFC 8030, 5.2).
    pub granted_ttl: Option<u64>,
}

impl From<StatusCode> for Taken {
    fn from(status: StatusCode) -> Self {
        Self { status, granted_ttl: None }
    }
}

/// A sink's access to the subscriptions of a pipeline.
#[derive(Clone)]
pub struct SubscriptionGate {
    hash: Arc<EndpointHash>,
    subscriptions: Subscriptions,
}

impl SubscriptionGate {
    pub fn new(hash_key: Option<&Secret>, subscriptions: Subscriptions) -> Result<Self, SinkFault> {
        let hash = EndpointHash::of_key(hash_key)?;
        if hash_key.is_some() {
            subscriptions.hash_with(&format!("{:016x}", hash.numbering()));
        }
        Ok(Self { hash: Arc::new(hash), subscriptions })
    }

    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// The function for hashes and numbers of endpoints.
    pub(crate) fn hash(&self) -> &EndpointHash {
        &self.hash
    }

    pub fn stored(&self, id: &str) -> Option<Arc<Stored>> {
        self.subscriptions.stored(id)
    }

    /// The id of an endpoint or a device token in the table.
    pub fn id(&self, endpoint: &str) -> EndpointId {
        id(&self.hash, endpoint)
    }

    /// The same for callers that must not hold the table itself.
    pub fn ids(&self) -> impl Fn(&str) -> EndpointId + Send + Sync + use<> {
        let hash = Arc::clone(&self.hash);
        move |endpoint| id(&hash, endpoint)
    }

    /// Makes the call unless the endpoint is purged. A failure carries the endpoint's hash, and what it implies for the
    /// endpoint is durable before this returns.
    pub async fn pass<T: Into<Taken>>(
        &self,
        endpoint: &str,
        registered_ms: Option<u64>,
        notes: &mut Notes,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<(), Failure> {
        let id = self.id(endpoint);
        notes.add("endpoint_hash", id.to_string());
        let admission = self.subscriptions.admit(id, registered_ms.map(Time::from_millis), now()).await;
        let outcome = match admission {
            Admission::Purged(record) => Err(purged(&record)),
            Admission::Call | Admission::Returned => {
                let outcome = call.await.map(|taken| note(taken.into(), notes));
                let text = outcome.as_ref().err().map(Failure::chain).unwrap_or_default();
                if let Some(answer) = answer(&outcome, &text) {
                    self.subscriptions.answered(id, answer, now()).await;
                }
                outcome
            }
        };
        outcome.map_err(|failure| named(failure, id))
    }

    /// The failure of a message that need not be sent to a push service, with the endpoint's hash if it does name one.
    pub fn unsendable(&self, fault: impl ToString, endpoint: Option<&str>, notes: &mut Notes) -> Failure {
        let failure = failing::unsendable(fault);
        let Some(id) = endpoint.map(|endpoint| self.id(endpoint)) else { return failure };
        notes.add("endpoint_hash", id.to_string());
        named(failure, id)
    }
}

/// Reads `{"token": …}` to store it.
pub fn token_reader(
    gate: &SubscriptionGate,
    check: impl Fn(&str) -> Result<(), FieldFault> + Send + Sync + 'static,
) -> Reader {
    let ids = gate.ids();
    Arc::new(move |value, _| {
        json::no_near_miss(value, &["token"], "").map_err(|fault| fault.to_string())?;
        let token = value.get("token").and_then(serde_json::Value::as_str).unwrap_or_default();
        check(token).map_err(|_| "the subscription has no `token` that can be one".to_owned())?;
        Ok(Registered { endpoint: ids(token), key: None })
    })
}

fn id(hash: &EndpointHash, endpoint: &str) -> EndpointId {
    // The hash consists of the digits of an id.
    hash.of(endpoint).parse().unwrap_or(EndpointId::from_number(0))
}

/// What an outcome implies for the endpoint; most failures imply nothing.
fn answer<'a>(outcome: &Result<(), Failure>, text: &'a str) -> Option<Answer<'a>> {
    let Err(failure) = outcome else { return Some(Answer::Delivered) };
    let error = failure.downcast_ref::<PushError>()?;
    let (status, reason) = (error.status, text);
    match error.verdict? {
        Verdict::GONE => Some(Answer::Gone { status, reason }),
        Verdict::Flagged | Verdict::Resubscribe => Some(Answer::Refused { status, reason }),
        Verdict::Delivered | Verdict::Fails(_) | Verdict::Renew => None,
    }
}

fn note(taken: Taken, notes: &mut Notes) {
    notes.add("status_code", taken.status.as_str());
    if let Some(granted) = taken.granted_ttl {
        notes.add("granted_ttl", granted.to_string());
    }
}

/// Adds the hash, which goes into the log and, with the text of the failure, into the letter.
fn named(failure: Failure, id: EndpointId) -> Failure {
    let failure = failure.map_cause(|cause| match cause.downcast::<PushError>() {
        Ok(error) => Box::new(error.at(id.to_string())),
        Err(other) => other,
    });
    failure.note("endpoint_hash", id.to_string())
}

/// The failure without a call: the endpoint is known to be gone.
fn purged(record: &Record) -> Failure {
    let at = timestamp::print(record.at);
    let text = format!("the subscription was purged at {at}: {}", record.reason);
    Failure::gone(failing::uncalled(&text)).uncalled()
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl std::fmt::Debug for SubscriptionGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SubscriptionGate").field("subscriptions", &self.subscriptions).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderMap;
    use redrive::internal::subscriptions::{Purge, SubscriptionState};
    use redrive_core::Class;

    use super::*;
    use crate::push::failing::Said;

    fn gate(purge: Purge) -> SubscriptionGate {
        SubscriptionGate::new(None, Subscriptions::new("push", purge)).unwrap()
    }

    fn failure(status: u16, verdict: Verdict) -> Result<StatusCode, Failure> {
        let said = Said::of(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), String::new());
        Err(failing::answered(&said, verdict, SystemTime::now()).unwrap())
    }

    async fn pass(
        gate: &SubscriptionGate,
        endpoint: &str,
        registered_ms: Option<u64>,
        call: impl Future<Output = Result<StatusCode, Failure>>,
    ) -> Result<(), Failure> {
        gate.pass(endpoint, registered_ms, &mut Notes::default(), call).await
    }

    #[tokio::test]
    async fn what_was_delivered_is_noted_for_the_log() {
        let (gate, mut notes) = (gate(Purge::Verify), Notes::default());
        gate.pass("00ab", None, &mut notes, async { Ok(StatusCode::CREATED) }).await.unwrap();
        assert_eq!(notes.get("status_code"), Some("201"));
        assert_eq!(notes.get("endpoint_hash"), Some(gate.id("00ab").to_string().as_str()));
    }

    #[tokio::test]
    async fn a_purged_endpoint_ends_as_gone_without_a_call() {
        let gate = gate(Purge::AtOnce);
        let gone = pass(&gate, "https://push.example/1", None, async { failure(410, Verdict::GONE) }).await;
        assert_eq!(gone.unwrap_err().class(), Class::Gone);
        let never = async { unreachable!("a purged endpoint is not called") };
        let failure = pass(&gate, "https://push.example/1", None, never).await.unwrap_err();
        assert_eq!(failure.class(), Class::Gone);
        let hash = gate.id("https://push.example/1").to_string();
        assert!(failure.chain().ends_with(&format!(": 410 Gone [{hash}]")), "{}", failure.chain());
        assert_eq!(failure.notes(), [("endpoint_hash", hash)]);
        assert!(failure.is_uncalled(), "no breaker counts it");
        let other = pass(&gate, "https://push.example/2", None, async { Ok(StatusCode::CREATED) }).await;
        assert!(other.is_ok());
    }

    #[tokio::test]
    async fn a_device_that_registered_since_is_called_again() {
        let gate = gate(Purge::AtOnce);
        pass(&gate, "00ab", None, async { failure(410, Verdict::GONE) }).await.unwrap_err();
        pass(&gate, "00ab", Some(1), async { unreachable!("it registered long before") }).await.unwrap_err();
        pass(&gate, "00ab", Some(u64::MAX), async { Ok(StatusCode::CREATED) }).await.unwrap();
        pass(&gate, "00ab", None, async { Ok(StatusCode::CREATED) }).await.unwrap();
    }

    #[tokio::test]
    async fn only_what_is_about_the_endpoint_changes_what_is_known_of_it() {
        let gate = gate(Purge::AtOnce);
        let standing = |gate: &SubscriptionGate| {
            gate.subscriptions().show(&gate.id("00ab").to_string()).map(|listed| listed.standing())
        };
        for (status, verdict) in [
            (429, Verdict::LIMITED),
            (503, Verdict::TRANSIENT),
            (400, Verdict::PERMANENT),
            (403, Verdict::CREDENTIAL),
        ] {
            pass(&gate, "00ab", None, async { failure(status, verdict) }).await.unwrap_err();
            assert_eq!(standing(&gate), Some(SubscriptionState::Active), "{status}");
        }
        pass(&gate, "00ab", None, async { failure(400, Verdict::Flagged) }).await.unwrap_err();
        assert_eq!(standing(&gate), Some(SubscriptionState::Flagged));
        pass(&gate, "00ab", None, async { Ok(StatusCode::CREATED) }).await.unwrap();
        assert_eq!(standing(&gate), Some(SubscriptionState::Active));
    }
}
