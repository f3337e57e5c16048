//! The API client: one method per route.

use std::path::Path;

use bytes::Bytes;
use hyper::http::Method;
use redrive::GroupId;
use redrive_api::{
    AcceptedMessage, AcceptedMessages, Actions, Compacted, Discard, Discarded, Edit, EditUndone, Edited,
    Erase, EraseAnswer, GroupDecision, GroupDetail, GroupView, Groups, ImportedLetters, KeyView, LetterPage,
    LetterStats, LetterView, MessagePage, MessageView, NamedSubscription, NewSubscription, PipelineView,
    Pipelines, Purging, RemovedSubscription, ReplayForecast, ReplayJob, Replays, Restored, StartReplay,
    Steered, SubscriptionKeys, SubscriptionPage, SubscriptionView, Undo, UndoSubscription,
    UndoneSubscriptions, WouldDiscard,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::address::{ApiAddress, opaque_segment, query, segment};
use super::answer::ApiAnswer;
use super::fault::ClientFault;
use super::token::Bearer;
use super::wire::Wire;
use crate::exit::Failed;

/// Words that are routes in the place of a letter id.
const LETTER_ROUTES: [&str; 7] = ["stats", "edit", "discard", "undo", "erase", "compact", "import"];

/// Words that are routes in the place of a subscription id.
const SUBSCRIPTION_ROUTES: [&str; 6] = ["keys", "remove", "flag", "purge", "undo", "resume"];

/// The API of a processor.
#[derive(Clone, Debug)]
pub struct Api {
    wire: Wire,
}

/// The selection of letters for a page.
#[derive(Clone, Debug, Default)]
pub struct PageQuery {
    pub filter: Option<String>,
    /// `None` selects letters in every state.
    pub state: Option<String>,
    pub since: Option<String>,
    pub payload: bool,
    pub limit: u32,
    pub cursor: Option<String>,
}

/// The selection of messages for a page.
#[derive(Clone, Debug, Default)]
pub struct MessageQuery {
    /// `None` selects every state.
    pub state: Option<String>,
    pub filter: Option<String>,
    pub limit: u32,
    pub cursor: Option<String>,
}

impl Api {
    pub fn new(address: ApiAddress, token: Option<Bearer>, ca_file: Option<&Path>) -> Result<Self, Failed> {
        Ok(Self { wire: Wire::new(address, token, ca_file)? })
    }

    pub fn address(&self) -> &ApiAddress {
        self.wire.address()
    }

    pub async fn pipelines(&self) -> Result<ApiAnswer<Pipelines>, ClientFault> {
        self.get("/v1/pipelines").await
    }

    pub async fn pipeline(&self, name: &str) -> Result<ApiAnswer<PipelineView>, ClientFault> {
        self.get(&format!("/v1/pipelines/{}", segment(name))).await
    }

    pub async fn pause(&self, pipeline: &str) -> Result<ApiAnswer<PipelineView>, ClientFault> {
        self.post(&format!("/v1/pipelines/{}/pause", segment(pipeline)), None).await
    }

    pub async fn resume(
        &self,
        pipeline: &str,
        anyway: bool,
        now: bool,
    ) -> Result<ApiAnswer<PipelineView>, ClientFault> {
        let how = match (anyway, now) {
            (false, false) => "",
            (true, false) => "?dead_letter_anyway=true",
            (false, true) => "?now=true",
            (true, true) => "?dead_letter_anyway=true&now=true",
        };
        self.post(&format!("/v1/pipelines/{}/resume{how}", segment(pipeline)), None).await
    }

    pub async fn message(&self, pipeline: &str, id: &str) -> Result<ApiAnswer<MessageView>, ClientFault> {
        self.get(&format!("/v1/pipelines/{}/messages/{}", segment(pipeline), segment(id))).await
    }

    /// Sends one message.
    pub async fn send(&self, pipeline: &str, body: Value) -> Result<ApiAnswer<AcceptedMessage>, ClientFault> {
        self.post(&format!("/v1/pipelines/{}/messages", segment(pipeline)), Some(body)).await
    }

    /// Sends many messages, one per line: all of them or none.
    pub async fn send_many(
        &self,
        pipeline: &str,
        lines: Bytes,
    ) -> Result<ApiAnswer<AcceptedMessages>, ClientFault> {
        let path = format!("/v1/pipelines/{}/messages", segment(pipeline));
        self.read(&self.wire.ask_as(Method::POST, &path, "application/x-ndjson", lines).await?)
    }

    pub async fn messages(
        &self,
        pipeline: &str,
        page: &MessageQuery,
    ) -> Result<ApiAnswer<MessagePage<Value>>, ClientFault> {
        let limit = page.limit.to_string();
        let query = query(&[
            ("state", page.state.as_deref()),
            ("filter", page.filter.as_deref()),
            ("limit", Some(&limit)),
            ("cursor", page.cursor.as_deref()),
        ]);
        self.get(&format!("/v1/pipelines/{}/messages{query}", segment(pipeline))).await
    }

    /// Makes a message due or cancels it; `word` is `retry` or `cancel`.
    pub async fn steer(
        &self,
        pipeline: &str,
        id: &str,
        word: &str,
    ) -> Result<ApiAnswer<Steered>, ClientFault> {
        let path = format!("/v1/pipelines/{}/messages/{}/{word}", segment(pipeline), segment(id));
        self.post(&path, None).await
    }

    /// Controls the breaker; `word` is `probe` or `close`.
    pub async fn breaker(&self, pipeline: &str, word: &str) -> Result<ApiAnswer<PipelineView>, ClientFault> {
        self.post(&format!("/v1/pipelines/{}/breaker/{word}", segment(pipeline)), None).await
    }

    pub async fn key(&self, pipeline: &str, key: &str) -> Result<ApiAnswer<KeyView>, ClientFault> {
        self.get(&format!("/v1/pipelines/{}/keys/{}", segment(pipeline), segment(key))).await
    }

    pub async fn letters(
        &self,
        pipeline: &str,
        page: &PageQuery,
    ) -> Result<ApiAnswer<LetterPage<Value>>, ClientFault> {
        let limit = page.limit.to_string();
        let query = query(&[
            ("filter", page.filter.as_deref()),
            ("state", page.state.as_deref()),
            ("since", page.since.as_deref()),
            ("payload", page.payload.then_some("true")),
            ("limit", Some(&limit)),
            ("cursor", page.cursor.as_deref()),
        ]);
        self.get(&format!("/v1/pipelines/{}/letters{query}", segment(pipeline))).await
    }

    pub async fn letter(&self, pipeline: &str, id: &str) -> Result<ApiAnswer<LetterView>, ClientFault> {
        let id = if LETTER_ROUTES.contains(&id) { opaque_segment(id) } else { segment(id) };
        self.get(&format!("/v1/pipelines/{}/letters/{id}", segment(pipeline))).await
    }

    pub async fn groups(&self, pipeline: &str) -> Result<ApiAnswer<Groups>, ClientFault> {
        self.get(&format!("/v1/pipelines/{}/groups", segment(pipeline))).await
    }

    pub async fn group(&self, pipeline: &str, group: GroupId) -> Result<ApiAnswer<GroupDetail>, ClientFault> {
        self.get(&format!("/v1/pipelines/{}/groups/{group}", segment(pipeline))).await
    }

    pub async fn mark_group(
        &self,
        pipeline: &str,
        group: GroupId,
        decision: &GroupDecision,
    ) -> Result<ApiAnswer<GroupView>, ClientFault> {
        let path = format!("/v1/pipelines/{}/groups/{group}/state", segment(pipeline));
        self.post_with(&path, decision).await
    }

    pub async fn letter_stats(&self, pipeline: &str) -> Result<ApiAnswer<LetterStats>, ClientFault> {
        self.get(&format!("/v1/pipelines/{}/letters/stats", segment(pipeline))).await
    }

    pub async fn edit(&self, pipeline: &str, edit: &Edit) -> Result<ApiAnswer<Edited>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/letters/edit", segment(pipeline)), edit).await
    }

    pub async fn undo_edit(&self, pipeline: &str, edit: &str) -> Result<ApiAnswer<EditUndone>, ClientFault> {
        let path = format!("/v1/pipelines/{}/letters/edit", segment(pipeline));
        // The API accepts no other field beside `undo`, not even `dry_run`.
        self.post(&path, Some(json!({ "undo": edit }))).await
    }

    pub async fn discard(
        &self,
        pipeline: &str,
        discard: &Discard,
    ) -> Result<ApiAnswer<Discarded>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/letters/discard", segment(pipeline)), discard).await
    }

    pub async fn would_discard(
        &self,
        pipeline: &str,
        discard: &Discard,
    ) -> Result<ApiAnswer<WouldDiscard>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/letters/discard", segment(pipeline)), discard).await
    }

    pub async fn erase(&self, pipeline: &str, erase: &Erase) -> Result<ApiAnswer<EraseAnswer>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/letters/erase", segment(pipeline)), erase).await
    }

    pub async fn compact(&self, pipeline: &str) -> Result<ApiAnswer<Compacted>, ClientFault> {
        self.post(&format!("/v1/pipelines/{}/letters/compact", segment(pipeline)), None).await
    }

    pub async fn undo(&self, pipeline: &str, discard: &str) -> Result<ApiAnswer<Restored>, ClientFault> {
        let path = format!("/v1/pipelines/{}/letters/undo", segment(pipeline));
        self.post_with(&path, &Undo { id: discard.to_owned() }).await
    }

    /// Imports letters, one per line; `from` names their origin.
    pub async fn import(
        &self,
        pipeline: &str,
        lines: Bytes,
        dry_run: bool,
        from: &str,
        dialect: Option<&str>,
    ) -> Result<ApiAnswer<ImportedLetters>, ClientFault> {
        let dry_run = dry_run.then_some("true");
        let query = query(&[("dry_run", dry_run), ("from", Some(from)), ("dialect", dialect)]);
        let path = format!("/v1/pipelines/{}/letters/import{query}", segment(pipeline));
        self.read(&self.wire.ask_as(Method::POST, &path, "application/x-ndjson", lines).await?)
    }

    pub async fn subscriptions(
        &self,
        pipeline: &str,
        state: Option<&str>,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<ApiAnswer<SubscriptionPage<Value>>, ClientFault> {
        let limit = limit.to_string();
        let query = query(&[("state", state), ("limit", Some(&limit)), ("cursor", cursor.as_deref())]);
        self.get(&format!("/v1/pipelines/{}/subscriptions{query}", segment(pipeline))).await
    }

    pub async fn subscription(
        &self,
        pipeline: &str,
        id: &str,
    ) -> Result<ApiAnswer<SubscriptionView>, ClientFault> {
        let id = if SUBSCRIPTION_ROUTES.contains(&id) { opaque_segment(id) } else { segment(id) };
        self.get(&format!("/v1/pipelines/{}/subscriptions/{id}", segment(pipeline))).await
    }

    pub async fn subscription_keys(
        &self,
        pipeline: &str,
    ) -> Result<ApiAnswer<SubscriptionKeys>, ClientFault> {
        self.get(&format!("/v1/pipelines/{}/subscriptions/keys", segment(pipeline))).await
    }

    pub async fn subscription_register(
        &self,
        pipeline: &str,
        subscription: &NewSubscription,
    ) -> Result<ApiAnswer<SubscriptionView>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/subscriptions", segment(pipeline)), subscription).await
    }

    /// Marks a subscription; `word` is `flag` or `purge`.
    pub async fn subscription_mark(
        &self,
        pipeline: &str,
        word: &str,
        endpoint: &NamedSubscription,
    ) -> Result<ApiAnswer<SubscriptionView>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/subscriptions/{word}", segment(pipeline)), endpoint).await
    }

    pub async fn subscription_remove(
        &self,
        pipeline: &str,
        subscription: &NamedSubscription,
    ) -> Result<ApiAnswer<RemovedSubscription>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/subscriptions/remove", segment(pipeline)), subscription)
            .await
    }

    pub async fn subscription_undo(
        &self,
        pipeline: &str,
        undo: &UndoSubscription,
    ) -> Result<ApiAnswer<UndoneSubscriptions>, ClientFault> {
        self.post_with(&format!("/v1/pipelines/{}/subscriptions/undo", segment(pipeline)), undo).await
    }

    pub async fn subscription_resume(&self, pipeline: &str) -> Result<ApiAnswer<Purging>, ClientFault> {
        self.post(&format!("/v1/pipelines/{}/subscriptions/resume", segment(pipeline)), None).await
    }

    pub async fn replay_dry(&self, replay: &StartReplay) -> Result<ApiAnswer<ReplayForecast>, ClientFault> {
        self.post_with("/v1/replays", replay).await
    }

    pub async fn replay_start(&self, replay: &StartReplay) -> Result<ApiAnswer<ReplayJob>, ClientFault> {
        self.post_with("/v1/replays", replay).await
    }

    pub async fn replay(&self, id: &str) -> Result<ApiAnswer<ReplayJob>, ClientFault> {
        self.get(&format!("/v1/replays/{}", segment(id))).await
    }

    pub async fn replays(&self) -> Result<ApiAnswer<Replays<Value>>, ClientFault> {
        self.get("/v1/replays").await
    }

    pub async fn replay_pause(&self, id: &str) -> Result<ApiAnswer<ReplayJob>, ClientFault> {
        self.post(&format!("/v1/replays/{}/pause", segment(id)), None).await
    }

    pub async fn replay_resume(&self, id: &str) -> Result<ApiAnswer<ReplayJob>, ClientFault> {
        self.post(&format!("/v1/replays/{}/resume", segment(id)), None).await
    }

    pub async fn replay_abort(&self, id: &str) -> Result<ApiAnswer<ReplayJob>, ClientFault> {
        self.post(&format!("/v1/replays/{}/abort", segment(id)), None).await
    }

    pub async fn actions(
        &self,
        pipeline: Option<&str>,
        since: Option<&str>,
        limit: u32,
    ) -> Result<ApiAnswer<Actions<Value>>, ClientFault> {
        let limit = limit.to_string();
        let query = query(&[("pipeline", pipeline), ("since", since), ("limit", Some(&limit))]);
        self.get(&format!("/v1/actions{query}")).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<ApiAnswer<T>, ClientFault> {
        self.read(&self.wire.ask(Method::GET, path, Bytes::new()).await?)
    }

    async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<Value>,
    ) -> Result<ApiAnswer<T>, ClientFault> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.read(&self.wire.ask(Method::POST, path, body).await?)
    }

    async fn post_with<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<ApiAnswer<T>, ClientFault> {
        let body = serde_json::to_vec(body).map_err(|error| self.strange(&error))?;
        self.read(&self.wire.ask(Method::POST, path, Bytes::from(body)).await?)
    }

    fn strange(&self, error: &serde_json::Error) -> ClientFault {
        ClientFault::Strange { address: self.address().to_string(), problem: error.to_string() }
    }

    fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<ApiAnswer<T>, ClientFault> {
        let json: Value = serde_json::from_slice(bytes).map_err(|error| self.strange(&error))?;
        let view = T::deserialize(&json).map_err(|error| self.strange(&error))?;
        Ok(ApiAnswer { json, view })
    }
}
