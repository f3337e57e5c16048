//! Builds the router from the table of routes: each with its handler behind its guard.

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{self, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};

use crate::access::guard::{guard, guard_steered, one_host};
use crate::api::{
    actions, edit, erase, events, groups, keys, letters, messages, pipelines, replays, subscriptions,
};
use crate::problem::{Code, Problem};
use crate::routes::{Operation, ROUTES, STEERED_PATH};
use crate::state::Shared;
use crate::{answer_memory, health, import, ingest, openapi, page};

pub(crate) fn router(shared: Shared) -> Router {
    let mut router = Router::new();
    for route in ROUTES.into_iter().filter(|route| !route.operation.is_steered()) {
        let guarded = handler(route.operation).layer(from_fn_with_state((shared.clone(), route), guard));
        router = router.route(route.path, guarded);
    }
    let steered = post(messages::steer).layer(from_fn_with_state(shared.clone(), guard_steered));
    router
        .route(STEERED_PATH, steered)
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::map_response_with_state(shared.answers.clone(), answer_memory::count))
        .layer(middleware::from_fn(one_host))
        .layer(middleware::map_response(careful))
        .with_state(shared)
}

fn handler(operation: Operation) -> MethodRouter<Shared> {
    match operation {
        Operation::Page => get(page::page),
        Operation::Live | Operation::Health => get(health::live),
        Operation::Ready => get(health::ready),
        Operation::Metrics => get(health::metrics),
        Operation::Openapi => get(openapi::serve),
        Operation::ListPipelines => get(pipelines::list),
        Operation::ShowPipeline => get(pipelines::show),
        Operation::PausePipeline => post(pipelines::pause),
        Operation::ResumePipeline => post(pipelines::resume),
        Operation::Ingest => post(ingest::ingest),
        Operation::ProbeBreaker => post(pipelines::probe_breaker),
        Operation::CloseBreaker => post(pipelines::close_breaker),
        Operation::ListMessages => get(messages::list),
        Operation::ShowMessage => get(messages::show),
        Operation::RetryMessage | Operation::CancelMessage => post(messages::steer),
        Operation::ShowKey => get(keys::show),
        Operation::ListGroups => get(groups::list),
        Operation::ShowGroup => get(groups::show),
        Operation::MarkGroup => post(groups::mark),
        Operation::ListLetters => get(letters::list),
        Operation::LetterStats => get(letters::stats),
        Operation::ShowLetter => get(letters::show),
        Operation::EditLetters => post(edit::edit),
        Operation::DiscardLetters => post(letters::discard),
        Operation::UndoDiscard => post(letters::undo),
        Operation::EraseLetters => post(erase::erase),
        Operation::CompactLetters => post(erase::compact),
        Operation::ImportLetters => post(import::import),
        Operation::StartReplay => post(replays::start),
        Operation::ListReplays => get(replays::list),
        Operation::ShowReplay => get(replays::show),
        Operation::PauseReplay => post(replays::pause),
        Operation::ResumeReplay => post(replays::resume),
        Operation::AbortReplay => post(replays::abort),
        Operation::ListSubscriptions => get(subscriptions::list),
        Operation::ShowSubscription => get(subscriptions::show),
        Operation::SubscriptionKeys => get(subscriptions::keys),
        Operation::RegisterSubscription => post(subscriptions::register),
        Operation::RemoveSubscription => post(subscriptions::remove),
        Operation::FlagSubscription => post(subscriptions::flag),
        Operation::PurgeSubscription => post(subscriptions::purge),
        Operation::UndoSubscription => post(subscriptions::undo),
        Operation::ResumePurging => post(subscriptions::resume),
        Operation::StreamEvents => get(events::stream),
        Operation::ListActions => get(actions::list),
    }
}

async fn no_such_route() -> Problem {
    Problem::not_found("no such path", "GET /v1/openapi.json lists all of them")
}

async fn no_such_method() -> Problem {
    let message = "method not allowed on this path";
    Problem::new(Code::MethodNotAllowed, message, "see the header Allow, or GET /v1/openapi.json")
}

/// Adds headers that forbid MIME sniffing and caching: responses contain messages, and change all the time.
async fn careful(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
