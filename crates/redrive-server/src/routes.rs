//! The table of routes. The router and the OpenAPI document are both generated from it, so neither can have a route
//! that the other lacks.

use axum::http::Method;

use crate::access::auth::Access;
use crate::access::token::Scope;

/// Every operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Page,
    Live,
    Health,
    Ready,
    Metrics,
    Openapi,
    ListPipelines,
    ShowPipeline,
    PausePipeline,
    ResumePipeline,
    ProbeBreaker,
    CloseBreaker,
    Ingest,
    ListMessages,
    ShowMessage,
    RetryMessage,
    CancelMessage,
    ShowKey,
    ListGroups,
    ShowGroup,
    MarkGroup,
    ListLetters,
    LetterStats,
    ShowLetter,
    EditLetters,
    DiscardLetters,
    UndoDiscard,
    EraseLetters,
    CompactLetters,
    ImportLetters,
    StartReplay,
    ListReplays,
    ShowReplay,
    PauseReplay,
    ResumeReplay,
    AbortReplay,
    ListSubscriptions,
    ShowSubscription,
    SubscriptionKeys,
    RegisterSubscription,
    RemoveSubscription,
    FlagSubscription,
    PurgeSubscription,
    UndoSubscription,
    ResumePurging,
    StreamEvents,
    ListActions,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub operation: Operation,
    pub path: &'static str,
    pub access: Access,
}

const fn route(operation: Operation, path: &'static str, access: Access) -> Route {
    Route { operation, path, access }
}

const READ: Access = Access::Needs(Scope::Read);
const INGEST: Access = Access::Needs(Scope::Ingest);
const EDIT: Access = Access::Needs(Scope::Edit);
const REPLAY: Access = Access::Needs(Scope::Replay);
const DISCARD: Access = Access::Needs(Scope::Discard);
/// Erasing cannot be undone, so a token for discards does not allow it.
const ERASE: Access = Access::Needs(Scope::Admin);
const ADMIN: Access = Access::Needs(Scope::Admin);

/// In the order of the documentation. `{*id}` takes the rest of the path: ids may contain slashes.
pub static ROUTES: [Route; 47] = [
    route(Operation::Page, "/", Access::Open),
    route(Operation::Live, "/livez", Access::Open),
    route(Operation::Health, "/healthz", Access::Open),
    route(Operation::Ready, "/readyz", Access::Open),
    route(Operation::Metrics, "/metrics", Access::Needs(Scope::Metrics)),
    route(Operation::Openapi, "/v1/openapi.json", Access::Open),
    route(Operation::ListPipelines, "/v1/pipelines", READ),
    route(Operation::ShowPipeline, "/v1/pipelines/{pipeline}", READ),
    route(Operation::PausePipeline, "/v1/pipelines/{pipeline}/pause", ADMIN),
    route(Operation::ResumePipeline, "/v1/pipelines/{pipeline}/resume", ADMIN),
    route(Operation::ProbeBreaker, "/v1/pipelines/{pipeline}/breaker/probe", ADMIN),
    route(Operation::CloseBreaker, "/v1/pipelines/{pipeline}/breaker/close", ADMIN),
    route(Operation::Ingest, "/v1/pipelines/{pipeline}/messages", INGEST),
    route(Operation::ListMessages, "/v1/pipelines/{pipeline}/messages", READ),
    route(Operation::ShowMessage, "/v1/pipelines/{pipeline}/messages/{*id}", READ),
    route(Operation::RetryMessage, "/v1/pipelines/{pipeline}/messages/{*id}/retry", REPLAY),
    route(Operation::CancelMessage, "/v1/pipelines/{pipeline}/messages/{*id}/cancel", DISCARD),
    route(Operation::ShowKey, "/v1/pipelines/{pipeline}/keys/{*key}", READ),
    route(Operation::ListGroups, "/v1/pipelines/{pipeline}/groups", READ),
    route(Operation::ShowGroup, "/v1/pipelines/{pipeline}/groups/{id}", READ),
    route(Operation::MarkGroup, "/v1/pipelines/{pipeline}/groups/{id}/state", EDIT),
    route(Operation::ListLetters, "/v1/pipelines/{pipeline}/letters", READ),
    route(Operation::LetterStats, "/v1/pipelines/{pipeline}/letters/stats", READ),
    route(Operation::ShowLetter, "/v1/pipelines/{pipeline}/letters/{*id}", READ),
    route(Operation::EditLetters, "/v1/pipelines/{pipeline}/letters/edit", EDIT),
    route(Operation::DiscardLetters, "/v1/pipelines/{pipeline}/letters/discard", DISCARD),
    route(Operation::UndoDiscard, "/v1/pipelines/{pipeline}/letters/undo", DISCARD),
    route(Operation::EraseLetters, "/v1/pipelines/{pipeline}/letters/erase", ERASE),
    route(Operation::CompactLetters, "/v1/pipelines/{pipeline}/letters/compact", ADMIN),
    route(Operation::ImportLetters, "/v1/pipelines/{pipeline}/letters/import", REPLAY),
    route(Operation::ListSubscriptions, "/v1/pipelines/{pipeline}/subscriptions", READ),
    route(Operation::RegisterSubscription, "/v1/pipelines/{pipeline}/subscriptions", INGEST),
    route(Operation::SubscriptionKeys, "/v1/pipelines/{pipeline}/subscriptions/keys", READ),
    route(Operation::ShowSubscription, "/v1/pipelines/{pipeline}/subscriptions/{*id}", READ),
    route(Operation::RemoveSubscription, "/v1/pipelines/{pipeline}/subscriptions/remove", DISCARD),
    route(Operation::FlagSubscription, "/v1/pipelines/{pipeline}/subscriptions/flag", EDIT),
    route(Operation::PurgeSubscription, "/v1/pipelines/{pipeline}/subscriptions/purge", DISCARD),
    route(Operation::UndoSubscription, "/v1/pipelines/{pipeline}/subscriptions/undo", DISCARD),
    route(Operation::ResumePurging, "/v1/pipelines/{pipeline}/subscriptions/resume", ADMIN),
    route(Operation::StreamEvents, "/v1/pipelines/{pipeline}/events", READ),
    route(Operation::StartReplay, "/v1/replays", REPLAY),
    route(Operation::ListReplays, "/v1/replays", READ),
    route(Operation::ShowReplay, "/v1/replays/{id}", READ),
    route(Operation::PauseReplay, "/v1/replays/{id}/pause", REPLAY),
    route(Operation::ResumeReplay, "/v1/replays/{id}/resume", REPLAY),
    route(Operation::AbortReplay, "/v1/replays/{id}/abort", REPLAY),
    route(Operation::ListActions, "/v1/actions", READ),
];

impl Operation {
    /// The method: operations that change nothing use GET.
    pub const fn method(self) -> Method {
        match self {
            Self::PausePipeline
            | Self::ResumePipeline
            | Self::ProbeBreaker
            | Self::CloseBreaker
            | Self::RetryMessage
            | Self::CancelMessage
            | Self::Ingest
            | Self::MarkGroup
            | Self::EditLetters
            | Self::DiscardLetters
            | Self::UndoDiscard
            | Self::EraseLetters
            | Self::CompactLetters
            | Self::ImportLetters
            | Self::StartReplay
            | Self::PauseReplay
            | Self::ResumeReplay
            | Self::AbortReplay
            | Self::RegisterSubscription
            | Self::RemoveSubscription
            | Self::FlagSubscription
            | Self::PurgeSubscription
            | Self::UndoSubscription
            | Self::ResumePurging => Method::POST,
            _ => Method::GET,
        }
    }

    /// Whether it continues when its client has disconnected. Ingest does not: messages without an answer are sent
    /// again under the same ids, so half of them may be stored.
    pub(crate) fn runs_to_its_end(self) -> bool {
        self.method() == Method::POST && self != Self::Ingest
    }
}

/// An id takes the rest of the path, including slashes, so the router cannot distinguish routes by a word after it:
/// these two share one route, and the word decides.
pub(crate) const STEERED_PATH: &str = "/v1/pipelines/{pipeline}/messages/{*id}";

/// The route for the last word of an id, and the id without it.
pub(crate) fn steered(id: &str) -> Option<(Route, &str)> {
    let (id, word) = id.rsplit_once('/')?;
    let operation = match word {
        "retry" => Operation::RetryMessage,
        "cancel" => Operation::CancelMessage,
        _ => return None,
    };
    let route = ROUTES.into_iter().find(|route| route.operation == operation)?;
    (!id.is_empty()).then_some((route, id))
}

impl Operation {
    /// Whether it is served under [`STEERED_PATH`].
    pub(crate) const fn is_steered(self) -> bool {
        matches!(self, Self::RetryMessage | Self::CancelMessage)
    }
}
