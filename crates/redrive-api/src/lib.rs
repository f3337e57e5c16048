//! The JSON of Redrive's HTTP API as types, shared by the server and its clients.
//!
//! One declaration has four uses: the server serializes it, the command line (or your program) deserializes it, its
//! JSON Schema becomes part of the OpenAPI document, and the doc comments of its fields are the descriptions there.
//!
//! Responses are read tolerantly: unknown fields are ignored and missing ones have their default, so that a client
//! can read an older or a newer server. Requests are strict: the server refuses unknown fields.
//!
//! ```
//! use redrive_api::LetterStats;
//!
//! let stats: LetterStats = serde_json::from_str(r#"{"open": 3, "by_reason": {"max_retries": 3}}"#)?;
//! assert_eq!((stats.open, stats.discarded), (3, 0));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod actions;
mod events;
mod groups;
mod instant;
mod letters;
mod messages;
mod pipelines;
mod replays;
mod requests;
mod sink_health;
mod subscriptions;

pub use actions::{ActionView, Actions, Liveness, Refusal};
pub use events::{
    AlertNotice, AlertedGroup, DeadLetterEvent, HealthEvent, PurgingStoppedEvent, QuarantinedPill,
    ReplayEvent, ServiceStatusPage, SubscriptionEvent,
};
pub use groups::{GroupDecision, GroupDetail, GroupView, Groups, RuleView};
pub use instant::Instant;
pub use letters::{
    Compacted, DifferenceView, DiscardAnswer, Discarded, EditAnswer, EditUndone, Edited, EraseAnswer, Erased,
    FirstEdited, ImportedGroup, ImportedLetters, LetterCounts, LetterPage, LetterStats, LetterView,
    LettersOfTenant, LineProblem, NotOpenLetter, Restored, SkippedLetters, WouldDiscard, WouldErase,
};
pub use messages::{
    Accepted, AcceptedMessage, AcceptedMessages, AttemptView, KeyView, ListedMessage, MessagePage,
    MessageView, Payload, Steered,
};
pub use pipelines::{
    AttentionNotice, Backoff, ConditionView, FailedKind, Level, Partitions, Pending, PipelineProblem,
    PipelineView, Pipelines, PolicyView, Recent, StoreHealth, Subject,
};
pub use replays::{
    Canary, HeldLetters, JobState, KeyLetters, LastReplay, ReplayForecast, ReplayJob, Replays, Superseded,
    TakenByReplay, TenantLetters, UnknownSpan,
};
pub use requests::{
    Discard, Edit, Erase, LetterPayload, LetterSelection, MessageIdChoice, StartReplay, Undo,
};
pub use sink_health::{EndpointWait, Endpoints, HealthChange, Incident, Recovery, Resets, SinkHealth};
pub use subscriptions::{
    NamedSubscription, NewSubscription, Purging, PurgingStopped, RemovedSubscription, SubscriptionKey,
    SubscriptionKeys, SubscriptionPage, SubscriptionView, UndoSubscription, UndoneSubscriptions,
};
