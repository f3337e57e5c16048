//! One pipeline as a user describes it: policy, order, limits, handler.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::policy::{Given, Mode};
use redrive_core::{Message, Policy, PolicyFaults, PolicySettings};

use super::faults::BuildFault;
use crate::engine::{AfterDead, Ordering, StoreOptions};
use crate::failure::Failure;
use crate::handler::{AnyHandler, Handler};
use crate::run::built::Settings;
use crate::run::hooks::{DeadLetter, Hook};

/// The longest name of a pipeline; it becomes part of folder and topic names.
pub const NAME_BYTES_MAX: usize = 200;

/// Describes a pipeline; nothing is judged before the builder's `build`.
#[must_use]
pub struct Pipeline {
    name: String,
    policy: Result<Policy, PolicyFaults>,
    /// Concurrency and timeout, where they are set here and not in the policy.
    limits: PolicySettings,
    options: StoreOptions,
    handler: Option<AnyHandler>,
    hook: Option<Hook>,
}

impl Pipeline {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            policy: Ok(Policy::default()),
            limits: PolicySettings::default(),
            options: StoreOptions::default(),
            handler: None,
            hook: None,
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

    /// Whether messages of one key wait for each other.
    pub fn ordering(mut self, ordering: Ordering) -> Self {
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

    /// Called once for each dead letter after it is stored, with the failure as the handler gave it. It runs on the
    /// runtime and should be quick: while it lags far behind, nothing new is started.
    pub fn on_dead_letter(mut self, hook: impl Fn(&DeadLetter) + Send + Sync + 'static) -> Self {
        self.hook = Some(Arc::new(hook));
        self
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What a run and a store need to know, or all faults.
    pub(super) fn check(self, faults: &mut Vec<BuildFault>) -> Option<(Settings, StoreOptions)> {
        let found = faults.len();
        let name = self.name;
        if !is_name(&name) {
            let problem = format!("`name` is {name:?}, which is not a name for folders and topics");
            let fix = format!("1 to {NAME_BYTES_MAX} of the characters a-z A-Z 0-9 . _ - , not only dots");
            faults.push(BuildFault::of(&name, "name", name.clone(), &problem, &fix));
        }
        if self.handler.is_none() {
            let fix = "add .handler(…) with an async fn(&Message) -> Result<(), Failure>";
            faults.push(BuildFault::of(&name, "handler", "", "there is no handler", fix));
        }
        let after_dead = self.options.after_dead;
        if after_dead == AfterDead::BlockKey && self.options.ordering == Ordering::None {
            let problem = "`after_dead` is block_key, but `ordering` is none: no key is ever blocked";
            let fix = "add .ordering(Ordering::Key), or leave .after_dead(…) out";
            faults.push(BuildFault::of(&name, "after_dead", "block_key", problem, fix));
        }
        let of_policy =
            |all: PolicyFaults| all.0.into_iter().map(|fault| BuildFault::of_policy(&name, fault));
        let policy = self.policy.map_err(|all| faults.extend(of_policy(all))).ok();
        let limits = self.limits.resolve().map_err(|all| faults.extend(of_policy(all))).ok();
        if policy.as_ref().is_some_and(|policy| policy.mode() == Mode::Blocking) {
            let problem = "`mode` is blocking, which only the Kafka engine has";
            faults.push(BuildFault::of(&name, "mode", "blocking", problem, "mode = \"non-blocking\""));
        }
        let (policy, limits, handler) = (policy?, limits?, self.handler?);
        let concurrency = self.limits.concurrency.unwrap_or(policy.concurrency()) as usize;
        let timeout = if self.limits.timeout.is_some() { limits.timeout() } else { policy.timeout() };
        let settings = Settings { name, policy, concurrency, timeout, handler, hook: self.hook };
        (faults.len() == found).then_some((settings, self.options))
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(allowed) && !name.chars().all(|c| c == '.')
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
