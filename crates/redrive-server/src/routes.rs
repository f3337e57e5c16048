//! The table of routes. The router and the OpenAPI document are both made from it, so neither can know one that the
//! other does not.

use axum::http::Method;

use crate::auth::Access;
use crate::token::Scope;

/// Everything that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Page,
    Live,
    Health,
    Ready,
    Metrics,
    OpenApi,
    ListPipelines,
    ShowPipeline,
    PausePipeline,
    ResumePipeline,
    Ingest,
    ShowMessage,
    ShowKey,
    ListLetters,
    LetterStats,
    ShowLetter,
    DiscardLetters,
    UndoDiscard,
    StartReplay,
    ListReplays,
    ShowReplay,
    PauseReplay,
    ResumeReplay,
    AbortReplay,
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
const REPLAY: Access = Access::Needs(Scope::Replay);
const DISCARD: Access = Access::Needs(Scope::Discard);
const ADMIN: Access = Access::Needs(Scope::Admin);

/// In the order of the documentation. `{*id}` takes the rest of the path: ids may hold slashes.
pub static ROUTES: [Route; 25] = [
    route(Operation::Page, "/", Access::Open),
    route(Operation::Live, "/livez", Access::Open),
    route(Operation::Health, "/healthz", Access::Open),
    route(Operation::Ready, "/readyz", Access::Open),
    route(Operation::Metrics, "/metrics", Access::Needs(Scope::Metrics)),
    route(Operation::OpenApi, "/v1/openapi.json", Access::Open),
    route(Operation::ListPipelines, "/v1/pipelines", READ),
    route(Operation::ShowPipeline, "/v1/pipelines/{pipeline}", READ),
    route(Operation::PausePipeline, "/v1/pipelines/{pipeline}/pause", ADMIN),
    route(Operation::ResumePipeline, "/v1/pipelines/{pipeline}/resume", ADMIN),
    route(Operation::Ingest, "/v1/pipelines/{pipeline}/messages", Access::Needs(Scope::Ingest)),
    route(Operation::ShowMessage, "/v1/pipelines/{pipeline}/messages/{*id}", READ),
    route(Operation::ShowKey, "/v1/pipelines/{pipeline}/keys/{*key}", READ),
    route(Operation::ListLetters, "/v1/pipelines/{pipeline}/letters", READ),
    route(Operation::LetterStats, "/v1/pipelines/{pipeline}/letters/stats", READ),
    route(Operation::ShowLetter, "/v1/pipelines/{pipeline}/letters/{*id}", READ),
    route(Operation::DiscardLetters, "/v1/pipelines/{pipeline}/letters/discard", DISCARD),
    route(Operation::UndoDiscard, "/v1/pipelines/{pipeline}/letters/undo", DISCARD),
    route(Operation::StartReplay, "/v1/replays", REPLAY),
    route(Operation::ListReplays, "/v1/replays", READ),
    route(Operation::ShowReplay, "/v1/replays/{id}", READ),
    route(Operation::PauseReplay, "/v1/replays/{id}/pause", REPLAY),
    route(Operation::ResumeReplay, "/v1/replays/{id}/resume", REPLAY),
    route(Operation::AbortReplay, "/v1/replays/{id}/abort", REPLAY),
    route(Operation::ListActions, "/v1/actions", READ),
];

impl Operation {
    /// Whatever changes nothing is a GET.
    pub const fn method(self) -> Method {
        match self {
            Self::PausePipeline
            | Self::ResumePipeline
            | Self::Ingest
            | Self::DiscardLetters
            | Self::UndoDiscard
            | Self::StartReplay
            | Self::PauseReplay
            | Self::ResumeReplay
            | Self::AbortReplay => Method::POST,
            _ => Method::GET,
        }
    }
}
