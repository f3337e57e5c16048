//! One pipeline as a user describes it: policy, order, limits, handler.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::policy::{Given, Mode};
use redrive_core::{
    BreakerSettings, GroupRule, GuardSettings, Message, Policy, PolicyFaults, PolicySettings,
};
use serde::de::DeserializeOwned;

use super::faults::BuildFault;
use crate::backoff::{Backoff, FailedAttempt};
use crate::dispatch::{AttemptFailed, HealthChanged, ProtectionSettings};
use crate::engine::letter_options::options_of;
use crate::engine::{AfterDead, DeliveryOrder, Grouping, StoreNotice, StoreOptions};
use crate::failure::Failure;
use crate::handler::{AnyHandler, Call, Handler, Sink};
use crate::json::Json;
use crate::name;
use crate::run::built::Settings;
use crate::run::hooks::{DeadLetter, Listeners};
use crate::run::watchdog::{OnStuck, Stuck};

/// Describes a pipeline; nothing is judged before the builder's `build`.
///
/// ```
/// use std::time::Duration;
///
/// use redrive::{Failure, Message, DeliveryOrder, Pipeline, Policy};
///
/// async fn charge(payment: Message) -> Result<(), Failure> {
///     if payment.payload().is_none() {
///         return Err(Failure::permanent("a payment without an amount"));
///     }
///     Ok(())
/// }
///
/// let payments = Pipeline::new("payments")
///     .policy(Policy::exponential("1s", 2.0, "1h"))
///     .ordering(DeliveryOrder::Key)
///     .dedup(Duration::from_secs(24 * 3600))
///     .on_dead_letter(|letter| eprintln!("{} is dead: {}", letter.message.id(), letter.reason))
///     .handler_fn(charge);
/// ```
#[must_use]
pub struct Pipeline {
    name: String,
    policy: Result<Policy, PolicyFaults>,
    backoff: Option<Backoff>,
    /// Concurrency and timeout, where they are set here and not in the policy.
    limits: PolicySettings,
    options: StoreOptions,
    handler: Option<AnyHandler>,
    mode: Option<Mode>,
    max_pending: u64,
    ledger_horizon: Option<Duration>,
    listeners: Listeners,
    grace: Duration,
    on_stuck: Option<OnStuck>,
    protection: ProtectionSettings,
}

impl Pipeline {
    /// A pipeline with the policy `tiered` and without a handler.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            policy: Ok(Policy::default()),
            backoff: None,
            limits: PolicySettings::default(),
            options: StoreOptions::default(),
            handler: None,
            mode: None,
            max_pending: 0,
            ledger_horizon: None,
            listeners: Listeners::default(),
            grace: Duration::ZERO,
            on_stuck: None,
            protection: ProtectionSettings::default(),
        }
    }

    /// What to do with failures: a [`Policy`], or an unfinished one such as `Policy::tiers(["5s", "30s"])`.
    pub fn policy<P>(mut self, policy: P) -> Self
    where
        P: TryInto<Policy>,
        P::Error: Into<PolicyFaults>,
    {
        self.policy = policy.try_into().map_err(Into::into);
        self
    }

    /// How long a failed message waits before its next attempt, chosen by a function that knows the message, the class,
    /// `Retry-After` and the error. `None` leaves it to the policy's schedule.
    ///
    /// Everything else stays with the policy: how many attempts there are, jitter, cap, TTL, and `Retry-After` as the least
    /// that is waited. `redrive_core::Forecast` does not know the function. It runs on the dispatch thread and should be
    /// quick, and it may be asked twice about one failure.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redrive::{FailedAttempt, Pipeline, Policy};
    /// let pipeline = Pipeline::new("orders").policy(Policy::exponential("1s", 2.0, "1h").retries(8)).backoff(
    ///     |failed: &FailedAttempt<'_>| match failed.failure.downcast_ref::<std::io::Error>() {
    ///         // The link to this tenant is slow to come back.
    ///         Some(_) if failed.message.tenant() == Some("remote") => Some(Duration::from_mins(10)),
    ///         _ => None,
    ///     },
    /// );
    /// ```
    pub fn backoff(
        mut self,
        choose: impl Fn(&FailedAttempt<'_>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.backoff = Some(Backoff::new(choose));
        self
    }

    /// Whether messages of one key wait for each other.
    pub fn ordering(mut self, ordering: DeliveryOrder) -> Self {
        self.options.ordering = ordering;
        self
    }

    /// What becomes of a key's followers when one of its messages is dead.
    pub fn after_dead(mut self, after_dead: AfterDead) -> Self {
        self.options.after_dead = after_dead;
        self
    }

    /// How long an ingested id is remembered, so that a second message with it is refused. Off unless set.
    pub fn dedup(mut self, window: Duration) -> Self {
        self.options.dedup = Some(window);
        self
    }

    /// How long the receiver remembers the ids that it has applied. A replay says how many of its letters were first
    /// attempted before that, and an automatic one leaves them out: the receiver would apply them again. Not known, unless set.
    pub fn ledger_horizon(mut self, horizon: Duration) -> Self {
        self.ledger_horizon = Some(horizon);
        self
    }

    /// Puts dead letters whose error matches into one group, whatever their texts look like otherwise. The first rule that
    /// matches counts; letters that are stored already stay where they are.
    pub fn group(mut self, rule: GroupRule) -> Self {
        Arc::make_mut(&mut self.options.grouping.rules).push(rule);
        self
    }

    /// How many handlers may run at once; over that of the policy.
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.limits.concurrency = Some(concurrency);
        self
    }

    /// How long a handler may take; over that of the policy.
    pub fn timeout(mut self, timeout: impl Into<Given<Duration>>) -> Self {
        self.limits.timeout = Some(timeout.into());
        self
    }

    /// How much longer a handler may take that ends its calls after the timeout by itself and knows why.
    #[doc(hidden)]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Where a failed message waits for its next attempt; over that of the policy.
    ///
    /// [`Mode::Blocking`] retries in place: the call keeps its permit while it waits, so with one permit the whole pipeline
    /// waits. Attempts in place are stored only when the message is settled or the run ends in order; a process that is
    /// killed forgets them.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// How many messages may be pending; beyond it ingest answers [`crate::engine::IngestError::TooMany`]. 0, the default,
    /// is no limit. Retries and replays are never refused.
    pub fn max_pending(mut self, max: u64) -> Self {
        self.max_pending = max;
        self
    }

    /// What delivers a message: an `async fn(&Message) -> Result<(), Failure>`, or a type that implements [`Handler`].
    pub fn handler(mut self, handler: impl Handler) -> Self {
        self.handler = Some(AnyHandler::borrowing(handler));
        self
    }

    /// What delivers a message, as a closure that owns it: `move |message| async move { … }`.
    pub fn handler_fn<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Message) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.handler = Some(AnyHandler::owning(handler));
        self
    }

    /// What delivers a message whose payload is JSON of a type: `|order: Json<Order>, call: Call| async move { … }`.
    ///
    /// A payload that cannot be read becomes a permanent failure with the code `bad_payload`, which says where in the payload
    /// and what was expected; the function is not called.
    ///
    /// ```
    /// # use redrive::{Call, Json, Pipeline};
    /// #[derive(serde::Deserialize)]
    /// struct Order {
    ///     amount: u64,
    /// }
    ///
    /// let pipeline = Pipeline::new("orders").json_handler(|order: Json<Order>, call: Call| async move {
    ///     println!("{} for {}, attempt {}", order.amount, call.message.id(), call.attempt);
    ///     Ok(())
    /// });
    /// ```
    pub fn json_handler<T, F, Fut>(mut self, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(Json<T>, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.handler = Some(AnyHandler::json(handler));
        self
    }

    /// What delivers a message and wants to know which attempt it is; one of `handler`, `handler_fn` and `sink` is enough,
    /// the last one counts.
    pub fn sink(self, sink: impl Sink) -> Self {
        self.dyn_sink(Arc::new(sink))
    }

    /// [`Self::sink`], for a sink whose type is known at run time only.
    pub fn dyn_sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.handler = Some(AnyHandler::sink(sink));
        self
    }

    /// Called for each failed attempt with what was decided about it, for a structured log. It runs on the runtime and
    /// should be quick: while it lags far behind, nothing new is started.
    pub fn on_failure(mut self, hook: impl Fn(&AttemptFailed) + Send + Sync + 'static) -> Self {
        self.listeners.failed = Some(Arc::new(hook));
        self
    }

    /// Called once for each dead letter after it is stored, with the failure as the handler gave it. It runs on the
    /// runtime and should be quick: while it lags far behind, nothing new is started.
    pub fn on_dead_letter(mut self, hook: impl Fn(&DeadLetter) + Send + Sync + 'static) -> Self {
        self.listeners.dead = Some(Arc::new(hook));
        self
    }

    /// Called when the health of the sink changes: the breaker opens or closes, the guard steps in, a message is found to
    /// kill the process. It runs on the runtime and should be quick.
    pub fn on_health(mut self, hook: impl Fn(&HealthChanged) + Send + Sync + 'static) -> Self {
        self.listeners.health = Some(Arc::new(hook));
        self
    }

    /// Called when the store repairs itself, or finds damage: what [`StoreNotice::is_bad`] says should reach a person. It
    /// runs on the runtime and should be quick.
    pub fn on_store(mut self, hook: impl Fn(&StoreNotice) + Send + Sync + 'static) -> Self {
        self.listeners.store = Some(Arc::new(hook));
        self
    }

    /// Called on the dispatch thread when a handler has not come back after twice its timeout: it does not yield, so only
    /// the end of the process can end it. Whoever is started again afterwards finds out which message it was. The usual
    /// answer is `std::process::exit(70)`.
    pub fn on_stuck(mut self, hook: impl Fn(&Stuck) + Send + Sync + 'static) -> Self {
        self.on_stuck = Some(Arc::new(hook));
        self
    }

    /// When the breaker opens and how it closes again; on, unless [`BreakerSettings::off`] is given.
    pub fn breaker(mut self, breaker: BreakerSettings) -> Self {
        self.protection.breaker = breaker;
        self
    }

    /// When a flood of dead letters pauses the pipeline; on, unless [`GuardSettings::off`] is given.
    pub fn guard(mut self, guard: GuardSettings) -> Self {
        self.protection.guard = guard;
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What a run and a store need to know, or all faults.
    pub(super) fn check(self, faults: &mut Vec<BuildFault>) -> Option<(Settings, StoreOptions)> {
        let found = faults.len();
        let name = self.name;
        if let Err(fault) = name::check(&name) {
            let problem = format!("`name` is {name:?}: {}", fault.problem());
            faults.push(BuildFault::of(&name, "name", name.clone(), &problem, name::RULE));
        }
        if self.handler.is_none() {
            let fix = "add .handler(…) with an async fn(&Message) -> Result<(), Failure>";
            faults.push(BuildFault::of(&name, "handler", "", "there is no handler", fix));
        }
        let after_dead = self.options.after_dead;
        if after_dead == AfterDead::BlockKey && self.options.ordering == DeliveryOrder::None {
            let problem = "`after_dead` is block_key, but `ordering` is none: no key is ever blocked";
            let fix = "add .ordering(DeliveryOrder::Key), or leave .after_dead(…) out";
            faults.push(BuildFault::of(&name, "after_dead", "block_key", problem, fix));
        }
        let of_policy =
            |all: PolicyFaults| all.0.into_iter().map(|fault| BuildFault::of_policy(&name, fault));
        let policy = self.policy.map_err(|all| faults.extend(of_policy(all))).ok();
        let limits = self.limits.resolve().map_err(|all| faults.extend(of_policy(all))).ok();
        let (policy, limits, handler) = (policy?, limits?, self.handler?);
        let policy = match self.mode {
            Some(mode) => policy.with_mode(mode),
            None => policy,
        };
        let concurrency = self.limits.concurrency.unwrap_or(policy.concurrency()) as usize;
        let timeout = if self.limits.timeout.is_some() { limits.timeout() } else { policy.timeout() };
        let (listeners, on_stuck, max_pending) = (self.listeners, self.on_stuck, self.max_pending);
        let grouping = Grouping { sink: handler.description.name, ..self.options.grouping };
        let letter_options = options_of(&policy, timeout);
        let timeout = timeout + self.grace;
        let options = StoreOptions { execution: handler.execution, grouping, letter_options, ..self.options };
        let settings = Settings {
            name: name.into(),
            policy: Arc::new(policy),
            backoff: self.backoff,
            concurrency,
            timeout,
            handler,
            listeners,
            on_stuck,
            protection: self.protection,
            ordering: options.ordering,
            grouping: options.grouping.clone(),
            ledger_horizon: self.ledger_horizon,
            max_pending,
        };
        (faults.len() == found).then_some((settings, options))
    }
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("name", &self.name)
            .field("policy", &self.policy)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
