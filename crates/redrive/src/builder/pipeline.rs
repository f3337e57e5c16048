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

/// Describes a pipeline; nothing is checked before the builder's `build`.
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
    /// Concurrency and timeout, if set here rather than in the policy.
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
    /// Creates a pipeline with the policy `tiered` and without a handler.
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

    /// How failures are handled: a [`Policy`], or an unfinished one such as `Policy::tiers(["5s", "30s"])`.
    pub fn policy<P>(mut self, policy: P) -> Self
    where
        P: TryInto<Policy>,
        P::Error: Into<PolicyFaults>,
    {
        self.policy = policy.try_into().map_err(Into::into);
        self
    }

    /// How long a failed message waits before its next attempt, computed by a function of the message, the class,
    /// `Retry-After` and the error. `None` leaves it to the policy's schedule.
    ///
    /// The policy still decides everything else: the number of attempts, jitter, cap, TTL, and `Retry-After` as a
    /// lower bound. `redrive_core::Forecast` does not know the function. It runs on the dispatch thread and should be
    /// quick, and it may be called twice for one failure.
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

    /// What happens to the later messages of a key when one of its messages dies.
    pub fn after_dead(mut self, after_dead: AfterDead) -> Self {
        self.options.after_dead = after_dead;
        self
    }

    /// How long an ingested id is remembered, so that a second message with the same id is refused. Off by default.
    pub fn dedup(mut self, window: Duration) -> Self {
        self.options.dedup = Some(window);
        self
    }

    /// How long the receiver remembers the ids that it has applied. A replay reports how many of its letters were
    /// first attempted before that, and an automatic one skips them, since the receiver would apply them again.
    /// Unknown by default.
    pub fn ledger_horizon(mut self, horizon: Duration) -> Self {
        self.ledger_horizon = Some(horizon);
        self
    }

    /// Groups dead letters whose error matches the rule, even if their error texts differ. The first matching rule
    /// counts; stored letters keep their group.
    pub fn group(mut self, rule: GroupRule) -> Self {
        Arc::make_mut(&mut self.options.grouping.rules).push(rule);
        self
    }

    /// How many handlers may run at once; overrides the policy.
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.limits.concurrency = Some(concurrency);
        self
    }

    /// How long a handler may take; overrides the policy.
    pub fn timeout(mut self, timeout: impl Into<Given<Duration>>) -> Self {
        self.limits.timeout = Some(timeout.into());
        self
    }

    /// Extra time for a handler that ends its calls by itself after the timeout and can say why.
    #[doc(hidden)]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Where a failed message waits for its next attempt; overrides the policy.
    ///
    /// [`Mode::Blocking`] retries in place: the call keeps its permit while it waits, so with one permit the whole
    /// pipeline waits. Attempts in place are stored only when the message is settled or the run ends cleanly; a
    /// killed process forgets them.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// How many messages may be pending; beyond that, ingest returns [`crate::engine::IngestError::TooMany`]. 0, the
    /// default, means no limit. Retries and replays are never refused.
    pub fn max_pending(mut self, max: u64) -> Self {
        self.max_pending = max;
        self
    }

    /// The handler that delivers messages: an `async fn(&Message) -> Result<(), Failure>`, or a type that implements
    /// [`Handler`].
    pub fn handler(mut self, handler: impl Handler) -> Self {
        self.handler = Some(AnyHandler::borrowing(handler));
        self
    }

    /// A handler as a closure that takes the message by value: `move |message| async move { … }`.
    pub fn handler_fn<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Message) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.handler = Some(AnyHandler::owning(handler));
        self
    }

    /// A handler for messages whose payload is JSON of a type: `|order: Json<Order>, call: Call| async move { … }`.
    ///
    /// A payload that does not parse becomes a permanent failure with the code `bad_payload`, which says where in the
    /// payload the error is and what was expected; the function is not called.
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

    /// A handler that also gets the number of the attempt. Of `handler`, `handler_fn`, `json_handler` and `sink`,
    /// only the last one set is used.
    pub fn sink(self, sink: impl Sink) -> Self {
        self.dyn_sink(Arc::new(sink))
    }

    /// Like [`Self::sink`], for a sink whose type is known only at run time.
    pub fn dyn_sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.handler = Some(AnyHandler::sink(sink));
        self
    }

    /// Called for each failed attempt with the decision about it, for a structured log. It runs on the runtime and
    /// should be quick: while it lags far behind, no new calls are started.
    pub fn on_failure(mut self, hook: impl Fn(&AttemptFailed) + Send + Sync + 'static) -> Self {
        self.listeners.failed = Some(Arc::new(hook));
        self
    }

    /// Called once for each dead letter after it is stored, with the failure that the handler returned. It runs on
    /// the runtime and should be quick: while it lags far behind, no new calls are started.
    pub fn on_dead_letter(mut self, hook: impl Fn(&DeadLetter) + Send + Sync + 'static) -> Self {
        self.listeners.dead = Some(Arc::new(hook));
        self
    }

    /// Called when the health of the sink changes: the breaker opens or closes, the guard pauses the pipeline, a
    /// message turns out to kill the process. It runs on the runtime and should be quick.
    pub fn on_health(mut self, hook: impl Fn(&HealthChanged) + Send + Sync + 'static) -> Self {
        self.listeners.health = Some(Arc::new(hook));
        self
    }

    /// Called when the store repairs itself or finds damage; report notices with [`StoreNotice::is_bad`] to a person.
    /// It runs on the runtime and should be quick.
    pub fn on_store(mut self, hook: impl Fn(&StoreNotice) + Send + Sync + 'static) -> Self {
        self.listeners.store = Some(Arc::new(hook));
        self
    }

    /// Called on the dispatch thread when a handler has not returned after twice its timeout. Such a handler does not
    /// yield, so only ending the process stops it, usually with `std::process::exit(70)`. The next process finds out
    /// which message it was.
    pub fn on_stuck(mut self, hook: impl Fn(&Stuck) + Send + Sync + 'static) -> Self {
        self.on_stuck = Some(Arc::new(hook));
        self
    }

    /// When the breaker opens and how it closes again. On by default; see [`BreakerSettings::off`].
    pub fn breaker(mut self, breaker: BreakerSettings) -> Self {
        self.protection.breaker = breaker;
        self
    }

    /// When a flood of dead letters pauses the pipeline. On by default; see [`GuardSettings::off`].
    pub fn guard(mut self, guard: GuardSettings) -> Self {
        self.protection.guard = guard;
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The settings of the run and of the store, or `None` after adding all faults.
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
