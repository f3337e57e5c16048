//! The ways to write a handler: an `async fn`, a closure, a type, or a sink.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use redrive_core::endpoints::{Endpoint, LimitBy};
use redrive_core::{Message, rate};
use serde::de::DeserializeOwned;

use crate::dispatch::routes::Router;
use crate::engine::{Execution, SourcePosition};
use crate::failure::{Failure, NOTES_MAX};
use crate::json::Json;

/// Delivers messages. Every `async fn(&Message) -> Result<(), Failure>` is a handler.
///
/// Implement it for your own type if the handler has state that its future borrows:
///
/// ```
/// use redrive::{Failure, Handler, Message};
///
/// struct Shipping {
///     carrier: String,
/// }
///
/// impl Handler for Shipping {
///     async fn handle(&self, message: &Message) -> Result<(), Failure> {
///         println!("{} goes with {}", message.id(), self.carrier);
///         Ok(())
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Delivers a message. The future is dropped after the timeout.
    fn handle(&self, message: &Message) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// A function from a borrowed message to a future that may borrow it. It lets an `async fn` that takes a reference be
/// used as a handler; there is no need to name it.
pub trait HandlerFn<'a>: Send + Sync + 'static {
    type Future: Future<Output = Result<(), Failure>> + Send + 'a;

    /// Calls the function.
    fn call(&self, message: &'a Message) -> Self::Future;
}

impl<'a, F, Fut> HandlerFn<'a> for F
where
    F: Fn(&'a Message) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'a,
{
    type Future = Fut;

    fn call(&self, message: &'a Message) -> Fut {
        self(message)
    }
}

impl<F> Handler for F
where
    F: for<'a> HandlerFn<'a>,
{
    fn handle(&self, message: &Message) -> impl Future<Output = Result<(), Failure>> + Send {
        self.call(message)
    }
}

/// One attempt to deliver a message, with the details that a sink may pass to its receiver.
///
/// ```
/// use redrive::Call;
///
/// fn headers(call: &Call) -> [(&'static str, String); 3] {
///     [
///         ("webhook-id", call.message.id().to_owned()),
///         ("redrive-attempt", call.attempt.to_string()),
///         ("redrive-pipeline", call.pipeline.to_string()),
///     ]
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Call {
    /// The message.
    pub message: Message,
    /// The number of the call, 1 for the first. Calls that use up no attempt count too; a replay starts again at 1.
    pub attempt: u32,
    /// How often the message was replayed.
    pub replays: u32,
    /// The pipeline.
    pub pipeline: Arc<str>,
    /// The record that the message came from, if messages come from a topic.
    pub origin: Option<SourcePosition>,
}

/// Fields for the structured log of a delivery that succeeded. Never a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes(Vec<(&'static str, String)>);

impl Notes {
    /// Adds a note; beyond [`NOTES_MAX`] they are dropped.
    pub fn add(&mut self, name: &'static str, value: impl Into<String>) {
        if self.0.len() < NOTES_MAX {
            self.0.push((name, value.into()));
        }
    }

    /// The first value that was noted under a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
    }
}

/// The future of one delivery, as [`Sink::deliver`] returns it: `Box::pin(async move { … })`.
pub type Delivery<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// Delivers messages to an external system: a handler that also gets the number of the attempt, and that describes
/// itself to the engine, to `status` and to the API.
///
/// The future is dropped after the pipeline's timeout and at the end of the drain time; its effect may have happened
/// by then.
///
/// ```
/// use redrive::{Call, Delivery, Sink};
///
/// struct Print;
///
/// impl Sink for Print {
///     fn deliver(&self, call: Call) -> Delivery<'_> {
///         Box::pin(async move {
///             println!("{}", call.message.id());
///             Ok(())
///         })
///     }
///
///     fn name(&self) -> &'static str {
///         "print"
///     }
/// }
/// ```
pub trait Sink: Send + Sync + 'static {
    /// Delivers a message.
    fn deliver(&self, call: Call) -> Delivery<'_>;

    /// Like [`Self::deliver`], for pipelines that also log successes: it adds notes for the log, such as a status
    /// code. A failure carries its own notes.
    fn deliver_noted<'a>(&'a self, call: Call, notes: &'a mut Notes) -> Delivery<'a> {
        let _ = notes;
        self.deliver(call)
    }

    /// The kind of sink, one word, such as `webhook`. Shown by `status` and in the API.
    fn name(&self) -> &'static str {
        "custom"
    }

    /// The target in words: `https://example.com`, `json:/url of each message`. Never a path, a token or another
    /// secret.
    fn target(&self) -> Option<String> {
        None
    }

    /// Public status pages of the services behind this sink. They are shown to people when deliveries are paused
    /// because a service fails, and never fetched.
    fn status_pages(&self) -> &'static [StatusPage] {
        &[]
    }

    /// For a sink with an endpoint per message: how many calls to one endpoint may run at once. `None` for a sink
    /// with one endpoint for all.
    fn per_endpoint(&self) -> Option<u32> {
        None
    }

    /// For a sink with [`Self::per_endpoint`]: how many calls per second may begin at one endpoint. Further messages
    /// wait in the store until their turn, and use up no attempt. On Kafka each process applies the rate on its own.
    fn per_endpoint_rate(&self) -> Option<f64> {
        None
    }

    /// For a sink with [`Self::per_endpoint`]: whether an origin is one service that answers for all its endpoints,
    /// as a push service does, rather than a host of many customers. An origin that is one service goes into cooldown
    /// when too many of its answers are failures, by the settings of the pipeline's breaker.
    fn origin_is_one_service(&self) -> bool {
        false
    }

    /// For a sink with a limit for the whole pipeline: this process does `owned` of `all` parts of the work, like the
    /// members of a Kafka group. Called when that changes; until then this process does all of it.
    fn set_share(&self, owned: u32, all: u32) {
        let _ = (owned, all);
    }

    /// Whether every message goes to the same place. Then a Retry-After for one message applies to all: nothing is
    /// sent before it is over.
    fn is_one_endpoint(&self) -> bool {
        false
    }

    /// Whether delivering runs code in this process that could crash it: yours, or a library that aborts. Then the
    /// messages that were running when the process died are suspects, and one that keeps crashing the process is
    /// quarantined as a poison pill. A sink that only talks to another process or service returns `false`, and no
    /// message is ever suspected of a crash of this process.
    fn runs_in_process(&self) -> bool {
        true
    }

    /// The endpoint of a message, for a sink with [`Self::per_endpoint`]: numbers that are equal for the same
    /// endpoint and the same origin. `None` if the message has no endpoint; [`Self::deliver`] then says why.
    fn endpoint(&self, message: &Message) -> Option<Endpoint> {
        let _ = message;
        None
    }

    /// What the number of an endpoint stands for: an endpoint, or a tenant or key if limits count by these.
    fn limit_by(&self) -> LimitBy {
        LimitBy::Endpoint
    }

    /// For a sink whose [`Self::endpoint`] returns the same numbers in every process: a number that identifies how
    /// they are made, such as a hash of the key. As long as it stays the same, open breakers of endpoints survive a
    /// restart. `None` if the numbers are valid only in this process.
    fn numbering(&self) -> Option<u64> {
        None
    }
}

pub(crate) type Attempting = Delivery<'static>;

/// The public status page of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusPage {
    /// The usual name of the service, such as `APNs`.
    pub service: &'static str,
    /// The address of the page.
    pub url: &'static str,
}

impl fmt::Display for StatusPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.service, self.url)
    }
}

/// The handler or sink of a pipeline, as `status` and the API show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkDescription {
    /// The kind: `handler` for a function, otherwise [`Sink::name`].
    pub name: &'static str,
    /// [`Sink::target`].
    pub target: Option<String>,
    /// [`Sink::status_pages`].
    pub status_pages: &'static [StatusPage],
}

impl SinkDescription {
    fn of_handler() -> Self {
        Self { name: "handler", target: None, status_pages: &[] }
    }
}

/// A call as the runner passes it. The pipeline's name is borrowed, so that only sinks pay for a copy.
pub(crate) struct Calling<'a> {
    pub(crate) message: Message,
    pub(crate) attempt: u32,
    pub(crate) replays: u32,
    pub(crate) origin: Option<SourcePosition>,
    pub(crate) pipeline: &'a Arc<str>,
}

impl Calling<'_> {
    fn into_call(self) -> Call {
        let Self { message, attempt, replays, origin, pipeline } = self;
        Call { message, attempt, replays, origin, pipeline: Arc::clone(pipeline) }
    }
}

/// Called with the share of the work that this process does: owned parts, and all parts.
pub(crate) type ShareListener = Arc<dyn Fn(u32, u32) + Send + Sync>;

/// A type-erased handler.
#[derive(Clone)]
pub(crate) struct AnyHandler {
    start: Arc<dyn Fn(Calling<'_>) -> Attempting + Send + Sync>,
    pub(crate) on_share: Option<ShareListener>,
    pub(crate) router: Option<Router>,
    pub(crate) one_endpoint: bool,
    pub(crate) execution: Execution,
    pub(crate) description: SinkDescription,
}

impl AnyHandler {
    pub(crate) fn borrowing(handler: impl Handler) -> Self {
        let handler = Arc::new(handler);
        Self {
            start: Arc::new(move |calling| {
                let (handler, message) = (Arc::clone(&handler), calling.message);
                Box::pin(async move { handler.handle(&message).await })
            }),
            on_share: None,
            router: None,
            one_endpoint: false,
            execution: Execution::InProcess,
            description: SinkDescription::of_handler(),
        }
    }

    pub(crate) fn sink(sink: Arc<dyn Sink>) -> Self {
        let router = sink.per_endpoint().map(|per_endpoint| {
            let rate = sink.per_endpoint_rate().filter(|rate| rate::is_sound(*rate));
            let (sink, numbering) = (Arc::clone(&sink), sink.numbering());
            let (limit_by, one_service) = (sink.limit_by(), sink.origin_is_one_service());
            let router = Router::new(per_endpoint, rate, move |message| sink.endpoint(message));
            router.numbered(numbering).limiting_by(limit_by).one_service(one_service)
        });
        let one_endpoint = sink.is_one_endpoint();
        let (name, target, status_pages) = (sink.name(), sink.target(), sink.status_pages());
        let description = SinkDescription { name, target, status_pages };
        let execution = if sink.runs_in_process() { Execution::InProcess } else { Execution::Elsewhere };
        let sharing = Arc::clone(&sink);
        Self {
            on_share: Some(Arc::new(move |owned, all| sharing.set_share(owned, all))),
            start: Arc::new(move |calling| {
                let sink = Arc::clone(&sink);
                let call = calling.into_call();
                Box::pin(async move { sink.deliver(call).await })
            }),
            router,
            one_endpoint,
            execution,
            description,
        }
    }

    pub(crate) fn owning<F, Fut>(handler: F) -> Self
    where
        F: Fn(Message) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        Self {
            start: Arc::new(move |calling| Box::pin(handler(calling.message))),
            on_share: None,
            router: None,
            one_endpoint: false,
            execution: Execution::InProcess,
            description: SinkDescription::of_handler(),
        }
    }

    /// Parses the payload first; the handler is called only if that succeeds.
    pub(crate) fn json<T, F, Fut>(handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(Json<T>, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        Self {
            start: Arc::new(move |calling| match Json::of(&calling.message) {
                Ok(payload) => Box::pin(handler(payload, calling.into_call())),
                Err(failure) => Box::pin(std::future::ready(Err(failure))),
            }),
            on_share: None,
            router: None,
            one_endpoint: false,
            execution: Execution::InProcess,
            description: SinkDescription::of_handler(),
        }
    }

    /// Creates the future of one attempt. The part of a handler before its first `await` may already run here.
    pub(crate) fn start(&self, calling: Calling<'_>) -> Attempting {
        (self.start)(calling)
    }
}

impl fmt::Debug for AnyHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyHandler")
    }
}

/// Reads the payload of a message.
pub trait MessageExt {
    /// The payload as JSON. A missing payload is an error, like any other text that is not JSON.
    fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error>;
}

impl MessageExt for Message {
    fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.payload().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn by_item(message: &Message) -> Result<(), Failure> {
        tokio::task::yield_now().await;
        if message.id() == "bad" { Err(Failure::permanent("bad")) } else { Ok(()) }
    }

    struct Stateful {
        refused: String,
    }

    impl Handler for Stateful {
        async fn handle(&self, message: &Message) -> Result<(), Failure> {
            tokio::task::yield_now().await;
            if message.id() == self.refused { Err(Failure::permanent("bad")) } else { Ok(()) }
        }
    }

    struct RefusingSink {
        refused: String,
    }

    impl Sink for RefusingSink {
        fn deliver(&self, call: Call) -> Delivery<'_> {
            Box::pin(async move {
                tokio::task::yield_now().await;
                assert_eq!((call.attempt, call.replays, &*call.pipeline), (3, 1, "orders"));
                if call.message.id() == self.refused { Err(Failure::permanent("bad")) } else { Ok(()) }
            })
        }
    }

    #[tokio::test]
    async fn functions_closures_and_types_can_all_handle() {
        let pipeline: Arc<str> = "orders".into();
        let calling = |id: &str| {
            let message = Message::builder(id).build().unwrap();
            Calling { message, attempt: 3, replays: 1, origin: None, pipeline: &pipeline }
        };
        let refused = "bad".to_owned();
        let handlers = [
            AnyHandler::borrowing(by_item),
            AnyHandler::borrowing(async |m: &Message| by_item(m).await),
            AnyHandler::borrowing(|m: &Message| {
                let bad = m.id() == "bad";
                async move { if bad { Err(Failure::permanent("bad")) } else { Ok(()) } }
            }),
            AnyHandler::borrowing(Stateful { refused: "bad".into() }),
            AnyHandler::sink(Arc::new(RefusingSink { refused: "bad".into() })),
            AnyHandler::owning(move |m: Message| {
                let refused = refused.clone();
                async move { if m.id() == refused { Err(Failure::permanent("bad")) } else { Ok(()) } }
            }),
        ];
        for handler in handlers {
            assert!(handler.start(calling("good")).await.is_ok());
            assert!(handler.start(calling("bad")).await.is_err());
        }
    }

    #[test]
    fn a_payload_reads_as_json() {
        let message = Message::builder("a").payload(r#"{"amount":5}"#).build().unwrap();
        let value: serde_json::Value = message.json().unwrap();
        assert_eq!(value["amount"], 5);
        assert!(Message::builder("a").build().unwrap().json::<serde_json::Value>().is_err());
    }
}
