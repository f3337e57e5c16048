//! One push, from the message to its outcome.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use hyper::{Method, Request, StatusCode, Uri};
use redrive::internal::subscriptions::{Reader, Registered, Stored};
use redrive::{Call, Delivery, Endpoint, Failure, Message, Notes, Sink, StatusPage};
use tokio::time::{Instant, timeout_at};

use super::classes;
use super::message::{MessageFault, Push, readable_endpoint, vapid_key};
use super::options::WebPushOptions;
use super::subscription::Subscription;
use super::vapid::Vapid;
use crate::fault::SinkFault;
use crate::push::conceal::{conceal, secrets_of};
use crate::push::failing::{self, Said};
use crate::push::gate::{SubscriptionGate, Taken};
use crate::push::trust::KeyTrust;
use crate::push::{PushClasses, Verdict};
use crate::webhook::Trouble;
use crate::webhook::connect::{self, Pool};
use crate::webhook::guard::Guard;
use crate::webhook::outcome::text::Redactor;
use crate::webhook::outcome::{answer, trouble};
use crate::webhook::payload::{Payload, Sent};

const TTL: HeaderName = HeaderName::from_static("ttl");
const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");
const AES128GCM: HeaderValue = HeaderValue::from_static("aes128gcm");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// The maximum time that push services store a message: four weeks. Also sent for messages without a deadline.
const TTL_SECS_MAX: u64 = 28 * 24 * 3600;
const EXCERPT_BYTES_MAX: usize = 256;
/// The push services with a public status page. None is known for Mozilla.
const STATUS_PAGES: &[StatusPage] = &[
    StatusPage { service: "Chrome (FCM)", url: "https://status.firebase.google.com/" },
    StatusPage { service: "Safari (APNs)", url: "https://developer.apple.com/system-status/" },
];

/// Pushes each message to its browser.
pub struct WebPushSink {
    /// The current key first.
    keys: Vec<Vapid>,
    pool: Pool,
    timeout: Duration,
    classes: PushClasses,
    per_endpoint: u32,
    allow_http: bool,
    trust: KeyTrust,
    redactor: Redactor,
    other_members: Vec<String>,
    gate: SubscriptionGate,
}

/// The answer of a push service.
struct PushAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl WebPushSink {
    /// Reads the files of the options and sets everything up. Connects only for the first message.
    pub fn build(options: WebPushOptions) -> Result<Self, SinkFault> {
        let keys = options.vapid()?;
        let tls = crate::tls::client(options.ca_file.as_deref())?;
        let gate = SubscriptionGate::new(options.hash_key.as_ref(), options.subscriptions)?;
        gate.subscriptions().read_with(reader(&gate, &keys, options.allow_private_addresses));
        gate.subscriptions().sign_with(keys.iter().map(|key| key.public().to_owned()));
        let guard = if options.allow_private_addresses { Guard::Off } else { Guard::On };
        Ok(Self {
            keys,
            pool: connect::pool(options.names, guard, tls),
            timeout: options.timeout,
            classes: options.classes,
            per_endpoint: options.per_endpoint,
            allow_http: options.allow_private_addresses,
            trust: KeyTrust::default(),
            redactor: Redactor::of([]),
            other_members: options.other_members,
            gate,
        })
    }

    fn read(&self, message: &Message) -> Result<Push, MessageFault> {
        Push::of(message, self.allow_http, &|id| self.gate.stored(id), &self.other_members)
    }

    /// The key that the subscription was made with.
    fn key(&self, push: &Push) -> Result<&Vapid, Failure> {
        let Some(named) = &push.vapid_key else {
            // There is at least one; the options were checked.
            return self.keys.first().ok_or_else(|| failing::without_credential("there is no VAPID key"));
        };
        let bare = named.trim_end_matches('=');
        self.keys.iter().find(|key| key.public() == bare).ok_or_else(|| {
            failing::unsendable(
                "the subscription was made with a VAPID key that is not configured: put its file into \
                 `previous_vapid_key_files`, or the browser must subscribe again",
            )
        })
    }

    async fn exchange(&self, call: &Call, push: &Push) -> Result<Taken, Failure> {
        let deadline = Instant::now() + self.timeout;
        let body = push.body().map_err(failing::unsendable)?;
        let (request, sent) = self.request(call, push, body)?;
        let response = match timeout_at(deadline, self.pool.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let (trouble, text) = trouble::of(&error);
                let sent = !error.is_connect() && sent.begun();
                return Err(failing::unanswered(trouble, &text, sent, &self.classes));
            }
            Err(_) => {
                let text = format!("timed out after {} ms", self.timeout.as_millis());
                return Err(failing::unanswered(Trouble::Timeout, &text, sent.begun(), &self.classes));
            }
        };
        let (head, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        // The head determines the meaning; an incomplete body does not matter.
        let _ = timeout_at(deadline, answer::read(&mut incoming, &mut body)).await;
        let granted_ttl = head.headers.get(TTL).and_then(|ttl| ttl.to_str().ok()?.trim().parse().ok());
        self.judge(push, &PushAnswer { status: head.status, headers: head.headers, body })?;
        Ok(Taken { status: head.status, granted_ttl })
    }

    fn request(&self, call: &Call, push: &Push, body: Bytes) -> Result<(Request<Payload>, Sent), Failure> {
        let uri = push.subscription.endpoint.clone();
        let now = SystemTime::now();
        let signed = self.key(push)?.authorization(&uri, unix_secs(now));
        let mut signed = signed
            .ok()
            .and_then(|text| HeaderValue::try_from(text).ok())
            .ok_or_else(|| failing::without_credential("the VAPID token could not be signed"))?;
        signed.set_sensitive(true);
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(AUTHORIZATION, signed);
        headers.insert(TTL, HeaderValue::from(ttl_secs(&call.message, now)));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        if !body.is_empty() {
            headers.insert(CONTENT_ENCODING, AES128GCM);
            headers.insert(CONTENT_TYPE, OCTETS);
        }
        if let Some(urgency) = push.urgency {
            headers.insert(URGENCY, HeaderValue::from_static(urgency));
        }
        if let Some(topic) = push.topic.as_deref().and_then(|topic| HeaderValue::from_str(topic).ok()) {
            headers.insert(TOPIC, topic);
        }
        let (payload, sent) = Payload::of_bytes(body);
        let mut request = Request::new(payload);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok((request, sent))
    }

    fn judge(&self, push: &Push, answer: &PushAnswer) -> Result<(), Failure> {
        let at = &push.subscription.endpoint;
        let status = answer.status.as_u16();
        let known = classes::reason(status, &answer.body);
        let mut verdict = self.classes.verdict(status, known.unwrap_or_default());
        let Endpoint { origin, endpoint } = self.numbers(at);
        let secrets = self.secrets(push);
        match verdict {
            Verdict::Delivered => self.trust.accepted(origin, endpoint),
            Verdict::CREDENTIAL => {
                if let Ok(key) = self.key(push) {
                    key.forget(at);
                }
                if self.trust.is_refused_alone(origin, endpoint) {
                    verdict = Verdict::Flagged;
                }
            }
            _ => {}
        }
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let reason = known.map_or_else(
            || {
                let text = conceal(&String::from_utf8_lossy(&answer.body), &secrets);
                self.redactor.clean(text.as_bytes(), at, EXCERPT_BYTES_MAX)
            },
            str::to_owned,
        );
        let said = Said::of(answer.status, &answer.headers, reason).without(&secrets);
        failing::answered(&said, verdict, SystemTime::now()).map_or(Ok(()), Err)
    }

    /// Texts to remove from a push service's answer: the subscription, and our signed token.
    fn secrets(&self, push: &Push) -> Vec<String> {
        let at = &push.subscription.endpoint;
        let signed =
            self.key(push).ok().and_then(|key| key.authorization(at, unix_secs(SystemTime::now())).ok());
        let signed =
            signed.and_then(|text| text.strip_prefix("vapid t=")?.split(',').next().map(str::to_owned));
        secrets_of(at).into_iter().chain(signed).collect()
    }

    fn numbers(&self, endpoint: &Uri) -> Endpoint {
        self.gate.hash().endpoint(endpoint)
    }
}

impl Sink for WebPushSink {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move { self.deliver_noted(call, &mut Notes::default()).await })
    }

    fn deliver_noted<'a>(&'a self, call: Call, notes: &'a mut Notes) -> Delivery<'a> {
        Box::pin(async move {
            let push = self.read(&call.message).map_err(|fault| {
                let endpoint = readable_endpoint(&call.message, &|id| self.gate.stored(id));
                self.gate.unsendable(fault, endpoint.as_deref(), notes)
            })?;
            let endpoint = push.subscription.endpoint.to_string();
            self.gate.pass(&endpoint, None, notes, self.exchange(&call, &push)).await
        })
    }

    fn name(&self) -> &'static str {
        "webpush"
    }

    fn target(&self) -> Option<String> {
        Some("the subscription that each message carries".to_owned())
    }

    fn status_pages(&self) -> &'static [StatusPage] {
        STATUS_PAGES
    }

    fn per_endpoint(&self) -> Option<u32> {
        Some(self.per_endpoint)
    }

    /// A push service is one service for all its subscriptions.
    fn origin_is_one_service(&self) -> bool {
        true
    }

    /// The effect of a push happens at its receiver.
    fn runs_in_process(&self) -> bool {
        false
    }

    fn endpoint(&self, message: &Message) -> Option<Endpoint> {
        let push = self.read(message).ok()?;
        Some(self.numbers(&push.subscription.endpoint))
    }

    fn numbering(&self) -> Option<u64> {
        Some(self.gate.hash().numbering())
    }
}

/// Reads subscriptions to store. If one does not say which key it was made with, that of the stored version of the same
/// subscription is used, else the current one.
fn reader(gate: &SubscriptionGate, keys: &[Vapid], allow_http: bool) -> Reader {
    let keys: Vec<String> = keys.iter().map(|key| key.public().to_owned()).collect();
    let ids = gate.ids();
    Arc::new(move |value, known| {
        let subscription = Subscription::of(value, allow_http).map_err(|fault| fault.to_string())?;
        let endpoint = ids(&subscription.endpoint.to_string());
        let named = vapid_key(value).map(|key| key.trim_end_matches('=').to_owned());
        let is_same = |stored: &Arc<Stored>| {
            Subscription::of(&stored.subscription(), allow_http).is_ok_and(|stored| stored == subscription)
        };
        let kept = || known(endpoint).filter(is_same).and_then(|stored| stored.key.clone());
        let key = named.or_else(kept).or_else(|| keys.first().cloned());
        if key.as_ref().is_some_and(|key| !keys.contains(key)) {
            return Err("the subscription was made with a VAPID key that is not configured here".to_owned());
        }
        Ok(Registered { endpoint, key })
    })
}

/// The seconds until the deadline: a push service must not deliver expired messages.
fn ttl_secs(message: &Message, now: SystemTime) -> u64 {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
    let left = message.deadline().map(|deadline| deadline.as_millis().saturating_sub(now) / 1000);
    left.unwrap_or(TTL_SECS_MAX).min(TTL_SECS_MAX)
}

fn unix_secs(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Debug for WebPushSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebPushSink").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;

    use super::*;

    #[test]
    fn each_attempt_sends_what_is_left_of_the_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let left = |deadline: Option<u64>| {
            let message = Message::builder("m");
            let message = match deadline {
                Some(at) => message.deadline(Time::from_millis(at)),
                None => message,
            };
            ttl_secs(&message.build().unwrap(), now)
        };
        assert_eq!(left(Some(1_000_060_000)), 60);
        assert_eq!(left(Some(1_000_000_999)), 0);
        assert_eq!(left(Some(1)), 0);
        assert_eq!(left(None), TTL_SECS_MAX);
        assert_eq!(left(Some(u64::MAX)), TTL_SECS_MAX);
    }
}
