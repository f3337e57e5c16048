//! One push to APNs, from the message to its outcome.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, StatusCode, Uri};
use redrive::{Call, Delivery, Failure, Notes, Sink, StatusPage};
use tokio::time::{Instant, timeout_at};

use super::classes::{Explained, gone_unless_registered_since};
use super::message::{Push, apns_id, check_token, readable_token};
use super::options::ApnsOptions;
use super::token::ProviderToken;
use crate::fault::SinkFault;
use crate::push::failing::{self, Judged, Said};
use crate::push::gate::{self, SubscriptionGate};
use crate::push::http2::{Answer, Sessions};
use crate::push::{PushClasses, Verdict};
use crate::webhook::Trouble;

const ID: HeaderName = HeaderName::from_static("apns-id");
const TOPIC: HeaderName = HeaderName::from_static("apns-topic");
const EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
const PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
const PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
const COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");

/// Pushes each message to its device.
pub struct ApnsSink {
    /// `None` if a certificate is used.
    token: Option<ProviderToken>,
    sessions: Sessions,
    address: Uri,
    topic: Option<String>,
    timeout: Duration,
    classes: PushClasses,
    other_members: Vec<String>,
    gate: SubscriptionGate,
}

const STATUS_PAGES: &[StatusPage] =
    &[StatusPage { service: "APNs", url: "https://developer.apple.com/system-status/" }];

impl ApnsSink {
    /// Reads the files of the options and sets everything up. Connects only for the first message.
    pub fn build(options: ApnsOptions) -> Result<Self, SinkFault> {
        let gate = SubscriptionGate::new(options.hash_key.as_ref(), options.subscriptions.clone())?;
        gate.subscriptions().read_with(gate::token_reader(&gate, check_token));
        Ok(Self {
            token: options.token()?,
            sessions: options.sessions()?,
            address: options.address().unwrap_or_default(),
            topic: options.topic,
            timeout: options.timeout,
            classes: options.classes,
            other_members: options.other_members,
            gate,
        })
    }

    async fn push(&self, call: &Call, push: &Push) -> Result<StatusCode, Failure> {
        let deadline = Instant::now() + self.timeout;
        let bearer = self.token.as_ref().map(|token| token.bearer(now_secs())).transpose();
        let bearer = bearer.map_err(|problem| failing::without_credential(&problem.to_string()))?;
        let judged = self.attempt(call, push, bearer.as_deref(), deadline).await?;
        let (Verdict::Renew, Some(token), Some(expired)) = (judged.verdict, &self.token, bearer) else {
            return judged.outcome;
        };
        // Only once: if a new token is refused too, its age is not the reason.
        let renewed = token.renewed(&expired, now_secs());
        let renewed = renewed.map_err(|problem| failing::without_credential(&problem.to_string()))?;
        self.attempt(call, push, Some(&renewed), deadline).await?.outcome
    }

    /// Makes one request and judges its answer.
    async fn attempt(
        &self,
        call: &Call,
        push: &Push,
        bearer: Option<&str>,
        deadline: Instant,
    ) -> Result<Judged, Failure> {
        let request = self
            .request(call, push, bearer)
            .ok_or_else(|| failing::unsendable("the push cannot be written as a request to APNs"))?;
        let sent = AtomicBool::new(false);
        let exchange = self.sessions.request(|| request.clone(), push.body.clone(), &sent);
        match timeout_at(deadline, exchange).await {
            Ok(Ok(answer)) => Ok(self.judge(push, &answer)),
            Ok(Err(lost)) => Err(failing::lost(&lost, &self.classes)),
            Err(_) => {
                let text = format!("timed out after {} ms", self.timeout.as_millis());
                let sent = sent.load(Ordering::Acquire);
                Err(failing::unanswered(Trouble::Timeout, &text, sent, &self.classes))
            }
        }
    }

    fn judge(&self, push: &Push, answer: &Answer) -> Judged {
        let explained = Explained::read(&answer.body);
        let verdict = self.classes.verdict(answer.status.as_u16(), &explained.reason);
        let verdict = gone_unless_registered_since(verdict, &explained, push.registered_ms);
        if verdict == Verdict::RECONNECT {
            self.sessions.retire_all();
        }
        let said = Said::of(answer.status, &answer.headers, explained.reason).without(&[&push.token]);
        let failure = failing::answered(&said, verdict, SystemTime::now());
        Judged { verdict, outcome: failure.map_or(Ok(answer.status), Err) }
    }

    /// `None` if a value cannot be a header, which was checked before.
    fn request(&self, call: &Call, push: &Push, bearer: Option<&str>) -> Option<Request<()>> {
        let path: PathAndQuery = format!("/3/device/{}", push.token).parse().ok()?;
        let authority = self.address.authority()?.clone();
        let uri = Uri::builder().scheme("https").authority(authority).path_and_query(path).build().ok()?;
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(ID, apns_id(call.message.id()))
            .header(PUSH_TYPE, push.push_type);
        if let Some(topic) = push.topic.as_ref().or(self.topic.as_ref()) {
            request = request.header(TOPIC, topic);
        }
        if let Some(priority) = push.priority {
            request = request.header(PRIORITY, priority);
        }
        if let Some(collapse_id) = &push.collapse_id {
            request = request.header(COLLAPSE_ID, collapse_id);
        }
        if let Some(deadline) = call.message.deadline() {
            request = request.header(EXPIRATION, deadline.as_millis() / 1000);
        }
        if let Some(bearer) = bearer {
            let mut value = HeaderValue::from_str(bearer).ok()?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        request.body(()).ok()
    }
}

impl Sink for ApnsSink {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move { self.deliver_noted(call, &mut Notes::default()).await })
    }

    fn deliver_noted<'a>(&'a self, call: Call, notes: &'a mut Notes) -> Delivery<'a> {
        Box::pin(async move {
            let lookup = |id: &str| self.gate.stored(id);
            let push = Push::of(&call.message, &lookup, &self.other_members).map_err(|fault| {
                let token = readable_token(&call.message, &lookup);
                self.gate.unsendable(fault, token.as_deref(), notes)
            })?;
            self.gate.pass(&push.token, push.registered_ms, notes, self.push(&call, &push)).await
        })
    }

    fn name(&self) -> &'static str {
        "apns"
    }

    fn target(&self) -> Option<String> {
        Some(format!("https://{}", self.address.authority().map_or("", |authority| authority.as_str())))
    }

    fn status_pages(&self) -> &'static [StatusPage] {
        STATUS_PAGES
    }

    /// The effect of a push happens at its receiver.
    fn runs_in_process(&self) -> bool {
        false
    }
}

fn now_secs() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Debug for ApnsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApnsSink").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
