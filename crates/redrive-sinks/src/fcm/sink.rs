//! One push to FCM, from the message to its outcome.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use redrive::{Call, Delivery, Failure, Notes, Sink, StatusPage};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::access::Access;
use super::classes::Explained;
use super::message::{FcmPush, check_token, readable_target};
use super::options::FcmOptions;
use super::pace::RequestPace;
use crate::fault::SinkFault;
use crate::push::failing::{self, Judged, Said};
use crate::push::gate::{self, SubscriptionGate};
use crate::push::http2::{Answer, Sessions};
use crate::push::{PushClasses, Verdict};
use crate::webhook::Trouble;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// The minimum wait that Google asks for when the quota is used up and `Retry-After` does not ask for more.
const QUOTA_WAIT: Duration = Duration::from_mins(1);

/// Pushes each message to its app instance.
pub struct FcmSink {
    access: Access,
    sessions: Sessions,
    uri: Uri,
    pace: Option<RequestPace>,
    timeout: Duration,
    classes: PushClasses,
    other_members: Vec<String>,
    gate: SubscriptionGate,
}

const STATUS_PAGES: &[StatusPage] =
    &[StatusPage { service: "FCM", url: "https://status.firebase.google.com/" }];

impl FcmSink {
    /// Reads the files of the options and sets everything up. Connects only for the first message.
    pub fn build(options: FcmOptions) -> Result<Self, SinkFault> {
        let (access, sessions) = (options.access()?, options.sessions()?);
        let gate = SubscriptionGate::new(options.hash_key.as_ref(), options.subscriptions.clone())?;
        gate.subscriptions().read_with(gate::token_reader(&gate, check_token));
        let address = options.address().unwrap_or_default();
        let path = format!("/v1/projects/{}/messages:send", access.project());
        let uri = Uri::builder().scheme("https").path_and_query(path);
        let uri = match address.authority() {
            Some(authority) => uri.authority(authority.clone()).build().unwrap_or_default(),
            None => Uri::default(),
        };
        Ok(Self {
            access,
            sessions,
            uri,
            pace: options.rate.map(RequestPace::new),
            timeout: options.timeout,
            classes: options.classes,
            other_members: options.other_members,
            gate,
        })
    }

    async fn push(&self, call: &Call, push: &FcmPush) -> Result<StatusCode, Failure> {
        let deadline = Instant::now() + self.timeout;
        let ends = call.message.deadline().map(redrive_core::Time::as_millis);
        let body = push.body(ends, SystemTime::now()).map_err(failing::unsendable)?;
        let bearer = self.access.bearer(deadline, &self.classes).await?;
        let judged = self.attempt(push, &bearer, body.clone(), deadline).await?;
        if judged.verdict != Verdict::Renew {
            return judged.outcome;
        }
        // Only once: if a new token is refused too, its age is not the reason.
        self.access.refused(&bearer);
        let bearer = self.access.bearer(deadline, &self.classes).await?;
        self.attempt(push, &bearer, body, deadline).await?.outcome
    }

    /// Makes one request and judges its answer.
    async fn attempt(
        &self,
        push: &FcmPush,
        bearer: &str,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Judged, Failure> {
        let mut authorization = HeaderValue::from_str(bearer)
            .map_err(|_| failing::without_credential("the access token cannot be a header"))?;
        authorization.set_sensitive(true);
        let request = || {
            let mut request = Request::new(());
            *request.method_mut() = Method::POST;
            *request.uri_mut() = self.uri.clone();
            request.headers_mut().insert(CONTENT_TYPE, JSON);
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
            request
        };
        let sent = AtomicBool::new(false);
        let exchange = async {
            if let Some(pace) = &self.pace {
                sleep_until(pace.place(Instant::now())).await;
            }
            self.sessions.request(request, body, &sent).await
        };
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

    fn judge(&self, push: &FcmPush, answer: &Answer) -> Judged {
        let explained = Explained::read(&answer.body);
        let verdict = self.classes.verdict(answer.status.as_u16(), explained.reason());
        let said = Said::of(answer.status, &answer.headers, explained.code.clone()).without(&[&push.target]);
        let failure = failing::answered(&said, verdict, SystemTime::now());
        let failure = failure.map(|failure| {
            if verdict == Verdict::LIMITED && failure.retry_after().is_none() {
                failure.wait(QUOTA_WAIT)
            } else {
                failure
            }
        });
        Judged { verdict, outcome: failure.map_or(Ok(answer.status), Err) }
    }
}

impl Sink for FcmSink {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move { self.deliver_noted(call, &mut Notes::default()).await })
    }

    fn deliver_noted<'a>(&'a self, call: Call, notes: &'a mut Notes) -> Delivery<'a> {
        Box::pin(async move {
            let lookup = |id: &str| self.gate.stored(id);
            let push = FcmPush::of(&call.message, &lookup, &self.other_members).map_err(|fault| {
                let target = readable_target(&call.message, &lookup);
                self.gate.unsendable(fault, target.as_deref(), notes)
            })?;
            self.gate.pass(&push.target, push.registered_ms, notes, self.push(&call, &push)).await
        })
    }

    fn name(&self) -> &'static str {
        "fcm"
    }

    fn target(&self) -> Option<String> {
        Some(format!("project {}", self.access.project()))
    }

    fn status_pages(&self) -> &'static [StatusPage] {
        STATUS_PAGES
    }

    /// The quota belongs to the project and is shared by all its senders.
    fn set_share(&self, owned: u32, all: u32) {
        if let Some(pace) = &self.pace {
            pace.own(owned, all);
        }
    }

    /// The effect of a push happens at its receiver.
    fn runs_in_process(&self) -> bool {
        false
    }
}

impl fmt::Debug for FcmSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FcmSink").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
