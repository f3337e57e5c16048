//! One delivery, from the message to its outcome.

use std::fmt;
use std::time::{Duration, SystemTime};

use hyper::body::Incoming;
use hyper::{Response, StatusCode, Uri};
use redrive::{Call, Delivery, Endpoint, Failure, FailureKind, LimitBy, Message, Sink};
use tokio::time::{Instant, timeout_at};

use super::auth::{Authorization, Authorizer};
use super::connect::Pool;
use super::endpoint_hash::EndpointHash;
use super::guard::Guard;
use super::options::{self, MessageTarget, WebhookOptions};
use super::outcome::answer::{self, WebhookAnswer};
use super::outcome::classes::{ClassTable, Meaning, Trouble};
use super::outcome::judge::{self, EndpointOwner, WebhookError};
use super::outcome::text::Redactor;
use super::outcome::trouble;
use super::permits::EndpointPermits;
use super::request::Template;
use super::signing::SigningError;
use crate::fault::SinkFault;

/// Posts each message to a URL and judges the answer.
pub struct WebhookSink {
    target: MessageTarget,
    template: Template,
    auth: Authorizer,
    limit_by: LimitBy,
    permits: Option<EndpointPermits>,
    /// The maximum number of calls per second to one endpoint.
    rate: Option<f64>,
    pool: Pool,
    timeout: Duration,
    classes: ClassTable,
    redactor: Redactor,
    hash: EndpointHash,
}

impl WebhookSink {
    /// Reads the files of the options and sets everything up. Connects only for the first message.
    ///
    /// Fails with the first fault; [`WebhookOptions::check`] returns all of them.
    pub fn build(options: WebhookOptions) -> Result<Self, SinkFault> {
        let (target, per_endpoint) = (options.target()?, options.limits()?);
        options.authorized_once()?;
        let tls = options.tls()?;
        let proxy = options.proxy()?;
        let auth = options.auth.authorizer(|| options.pool(Guard::Off, tls.clone(), proxy.clone()))?;
        let signer = options.signing.signer(std::time::Instant::now())?;
        let headers = options.headers.iter().map(|(name, from)| options::header(name, from));
        let headers = headers.collect::<Result<Vec<_>, _>>()?;
        let own = auth.secrets();
        let redactor = Redactor::of(headers.iter().map(|(_, _, secret)| secret).chain(&own));
        let headers = headers.into_iter().map(|(name, value, _)| (name, value)).collect();
        let hash = EndpointHash::of_key(options.hash_key.as_ref())?;
        // The operator chose the URL in the configuration, so its address is not checked.
        let (guard, source) = match &target {
            MessageTarget::Fixed(_) => (Guard::Off, None),
            MessageTarget::PerMessage(source) if options.allow_private_addresses => {
                (Guard::Off, Some(source.clone()))
            }
            MessageTarget::PerMessage(source) => (Guard::On, Some(source.clone())),
        };
        Ok(Self {
            target,
            template: Template { headers, signer, format: options.format, source },
            auth,
            limit_by: options.limit_by,
            rate: options.per_endpoint_rate,
            permits: per_endpoint.map(|limit| EndpointPermits::new(limit as usize)),
            pool: options.pool(guard, tls, proxy),
            timeout: options.timeout,
            classes: options.classes,
            redactor,
            hash,
        })
    }

    /// Sends the message and judges the answer, all within the timeout.
    async fn exchange(&self, call: &Call, endpoint: &Uri) -> Result<(), Failure> {
        let deadline = Instant::now() + self.timeout;
        let unit = self.unit(&call.message, endpoint);
        let _permit =
            match &self.permits {
                None => None,
                Some(permits) => {
                    let permit = timeout_at(deadline, permits.take(unit)).await;
                    Some(permit.map_err(|_| {
                        self.timed_out("waiting for a free slot at the endpoint", None, false)
                    })?)
                }
            };
        let authorization = self.authorize(None, deadline).await?;
        let response = self.send(call, endpoint, authorization.as_ref(), deadline).await?;
        let refused = response.status() == StatusCode::UNAUTHORIZED && self.auth.can_refresh();
        if !refused {
            return self.hear(response, endpoint, authorization.as_ref(), deadline).await;
        }
        // A token may expire early; a new one is tried once.
        drop(response);
        let authorization = self.authorize(authorization.as_ref(), deadline).await?;
        let response = self.send(call, endpoint, authorization.as_ref(), deadline).await?;
        if response.status() == StatusCode::UNAUTHORIZED && self.receiver() == EndpointOwner::Ours {
            let text = "401 Unauthorized: the receiver refuses a token that was granted just now";
            let failure = Failure::credential(text).of_kind(FailureKind::Status(401));
            return Err(failure.note("status_code", "401"));
        }
        self.hear(response, endpoint, authorization.as_ref(), deadline).await
    }

    async fn authorize(
        &self,
        refused: Option<&Authorization>,
        deadline: Instant,
    ) -> Result<Option<Authorization>, Failure> {
        let authorized = timeout_at(deadline, self.auth.authorize(refused)).await;
        authorized.map_err(|_| self.timed_out("waiting for a token", None, false))?
    }

    /// Sends the request and waits for the head of the answer.
    async fn send(
        &self,
        call: &Call,
        endpoint: &Uri,
        authorization: Option<&Authorization>,
        deadline: Instant,
    ) -> Result<Response<Incoming>, Failure> {
        let authorization = authorization.map(|authorization| &authorization.value);
        let fetched = timeout_at(deadline, self.template.signer.fetch(&call.message, endpoint)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(SigningError::Command("it takes too long".to_owned())));
        let fetched = fetched.map_err(judge::unsigned)?;
        let request = self.template.request(call, endpoint.clone(), &fetched, authorization, now_secs());
        let (mut request, sent) = request.map_err(judge::unsigned)?;
        let meanwhile = sent.clone();
        hyper::ext::on_informational(&mut request, move |interim| {
            meanwhile.answered_interim(interim.status().as_u16());
        });
        match timeout_at(deadline, self.pool.request(request)).await {
            Ok(Ok(response)) if self.is_the_proxys(&response, endpoint) => {
                let text = "the proxy refuses our credentials (407)";
                Err(judge::unanswered(
                    Trouble::ProxyAuth,
                    text,
                    None,
                    false,
                    (&self.classes, self.receiver()),
                ))
            }
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let (trouble, text) = trouble::of(&error);
                let text = sent.explain(trouble::with_hint(trouble, text, endpoint));
                let sent = sent.begun() && !trouble::is_unheard(&error);
                Err(judge::unanswered(trouble, &text, None, sent, (&self.classes, self.receiver())))
            }
            Err(_) if sent.begun() => {
                let text = sent.explain(self.took_too_long("waiting for the answer"));
                let judged = (&self.classes, self.receiver());
                Err(judge::unanswered(Trouble::Timeout, &text, None, true, judged))
            }
            Err(_) => Err(self.timed_out("connecting", None, false)),
        }
    }

    /// Whether an answer must be the proxy's: no receiver asks for credentials of a proxy.
    fn is_the_proxys<B>(&self, response: &Response<B>, endpoint: &Uri) -> bool {
        response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED && self.pool.is_relayed(endpoint)
    }

    /// The unit of a message for the limits.
    fn unit(&self, message: &Message, endpoint: &Uri) -> u64 {
        // No URL starts like these, and an empty name counts as none.
        let named = |what: &str, name: Option<&[u8]>| match name {
            Some(name) => self.hash.number([what.as_bytes(), b":", name].concat()),
            None => self.hash.number(what),
        };
        match self.limit_by {
            LimitBy::Endpoint => self.hash.number(endpoint.to_string()),
            LimitBy::Tenant => named("tenant", message.tenant().map(str::as_bytes)),
            LimitBy::Key => named("key", message.key()),
        }
    }

    /// Reads the answer and judges it.
    async fn hear(
        &self,
        response: Response<Incoming>,
        endpoint: &Uri,
        authorization: Option<&Authorization>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let (head, mut body) = response.into_parts();
        // Receivers repeat what they were sent, and tokens change between attempts.
        let sent =
            authorization.filter(|_| !head.status.is_success()).and_then(|one| one.value.to_str().ok());
        let redactor = sent.map(|sent| self.redactor.also(sent));
        let redactor = redactor.as_ref().unwrap_or(&self.redactor);
        let mut answer = WebhookAnswer::of(head.status, &head.headers, redactor, endpoint);
        let mut beginning = Vec::new();
        let read = timeout_at(deadline, answer::read(&mut body, &mut beginning)).await;
        match judge::meaning(&answer, &self.classes, self.receiver()) {
            // The head identifies a failure. How its body ends does not matter.
            Meaning::Fails(class) => {
                answer.explain(&beginning, redactor, endpoint);
                Err(judge::answered(&answer, class, SystemTime::now()))
            }
            // A success needs a complete answer: a receiver that breaks off may have aborted its work as well.
            Meaning::Ok => match read {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    let text = trouble::broken(&error);
                    Err(judge::unanswered(
                        Trouble::Reset,
                        text,
                        Some(&answer),
                        true,
                        (&self.classes, self.receiver()),
                    ))
                }
                Err(_) => Err(self.timed_out("reading the answer", Some(&answer), true)),
            },
        }
    }

    fn timed_out(&self, doing: &str, answer: Option<&WebhookAnswer>, sent: bool) -> Failure {
        let text = self.took_too_long(doing);
        judge::unanswered(Trouble::Timeout, &text, answer, sent, (&self.classes, self.receiver()))
    }

    fn took_too_long(&self, doing: &str) -> String {
        format!("timed out after {} ms, {doing}", self.timeout.as_millis())
    }

    fn receiver(&self) -> EndpointOwner {
        match self.target {
            MessageTarget::Fixed(_) => EndpointOwner::Ours,
            MessageTarget::PerMessage(_) => EndpointOwner::Theirs,
        }
    }
}

impl Sink for WebhookSink {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            let endpoint = match &self.target {
                MessageTarget::Fixed(url) => url.clone(),
                MessageTarget::PerMessage(source) => source
                    .endpoint(&call.message)
                    .map_err(|fault| Failure::permanent(WebhookError::Endpoint(fault)))?,
            };
            let outcome = self.exchange(&call, &endpoint).await;
            outcome.map_err(|failure| failure.note("endpoint_hash", self.hash.of(&endpoint.to_string())))
        })
    }

    fn name(&self) -> &'static str {
        "webhook"
    }

    /// Only the origin: for many webhooks the path is the key.
    fn target(&self) -> Option<String> {
        Some(match &self.target {
            MessageTarget::Fixed(url) => {
                format!(
                    "{}://{}",
                    url.scheme_str().unwrap_or("http"),
                    url.authority().map_or("", |a| a.as_str())
                )
            }
            MessageTarget::PerMessage(_) => "the endpoint that each message names".to_owned(),
        })
    }

    fn per_endpoint(&self) -> Option<u32> {
        self.permits.as_ref().map(|permits| u32::try_from(permits.limit()).unwrap_or(u32::MAX))
    }

    fn per_endpoint_rate(&self) -> Option<f64> {
        self.rate
    }

    /// The effect of a delivery happens at its receiver.
    fn runs_in_process(&self) -> bool {
        false
    }

    /// With limits by tenant or key the receiver uses the same units: a Retry-After for one applies to that one.
    fn is_one_endpoint(&self) -> bool {
        matches!(self.target, MessageTarget::Fixed(_)) && self.limit_by == LimitBy::Endpoint
    }

    fn endpoint(&self, message: &Message) -> Option<Endpoint> {
        let uri = match &self.target {
            MessageTarget::PerMessage(source) => source.endpoint(message).ok()?,
            MessageTarget::Fixed(_) if self.limit_by == LimitBy::Endpoint => return None,
            MessageTarget::Fixed(url) => url.clone(),
        };
        Some(Endpoint { origin: self.hash.origin(&uri), endpoint: self.unit(message, &uri) })
    }

    fn limit_by(&self) -> LimitBy {
        self.limit_by
    }

    fn numbering(&self) -> Option<u64> {
        Some(self.hash.number(self.limit_by.name()))
    }
}

fn now_secs() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl fmt::Debug for WebhookSink {
    /// Omits URLs and headers: both may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSink").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
