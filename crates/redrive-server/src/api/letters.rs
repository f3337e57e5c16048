//! Dead letters: looked at, counted, discarded and taken back.

use std::collections::BTreeMap;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use redrive::letters::{Selection, select};
use redrive::{Figures, Letter, LetterState, Time};
use serde::Deserialize;
use serde_json::{Value, json};

use super::selection::{self, Given};
use super::view;
use crate::answer::{Json, Params, read_json};
use crate::auth::Actor;
use crate::body;
use crate::problem::{Code, Problem};
use crate::service::Served;
use crate::state::Shared;

/// Letters of a page, unless asked otherwise.
const PAGE_DEFAULT: usize = 100;
/// Letters that statistics look at; beyond it `scanned` says that there are more.
const STATS_MAX: u64 = 100_000;
/// Letters that are discarded in one step.
const STEP: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListParams {
    filter: Option<String>,
    state: Option<String>,
    since: Option<String>,
    cursor: Option<u64>,
    limit: Option<usize>,
    payload: bool,
}

pub(crate) async fn list(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
    Params(params): Params<ListParams>,
) -> Result<Json<Value>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let selection = Selection {
        filter: given(&params.filter).as_deref().map(selection::filter).transpose()?,
        state: given(&params.state).as_deref().map(selection::state).transpose()?,
        since: given(&params.since).as_deref().map(|text| selection::since(text, shared.now())).transpose()?,
        ids: None,
        all: true,
    };
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).clamp(1, select::PAGE_MAX);
    let page = selection.page(&served.handle, params.cursor, limit).await?;
    let letters: Vec<Value> =
        page.letters.iter().map(|letter| view::letter(&pipeline, letter, params.payload)).collect();
    let next = page.next.map(|next| next.to_string());
    Ok(Json(json!({ "letters": letters, "next": next, "scanned": page.scanned })))
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, id)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let numbers = select::resolve(&served.handle, &[id.clone()]).await?;
    let letter = match numbers.first() {
        Some(number) => served.handle.letter(*number).await?,
        None => None,
    };
    let letter = letter.ok_or_else(|| Problem::not_found(format!("there is no letter `{id}`"), "list them first"))?;
    Ok(Json(view::letter(&pipeline, &letter, true)))
}

pub(crate) async fn stats(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
) -> Result<Json<Value>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let mut tally = Tally::default();
    let mut after = None;
    loop {
        let page = Selection::all(LetterState::Open).page(&served.handle, after, select::PAGE_MAX).await?;
        page.letters.iter().for_each(|letter| tally.add(letter));
        after = page.next;
        if after.is_none() || tally.scanned >= STATS_MAX {
            break;
        }
    }
    Ok(Json(tally.view(&served.handle.figures())))
}

/// Open letters, counted.
#[derive(Debug, Default)]
struct Tally {
    by_reason: BTreeMap<&'static str, u64>,
    by_class: BTreeMap<&'static str, u64>,
    oldest: Option<Time>,
    scanned: u64,
}

impl Tally {
    fn add(&mut self, letter: &Letter) {
        self.scanned += 1;
        *self.by_reason.entry(letter.reason.name()).or_default() += 1;
        if let Some(last) = letter.history.attempts().last() {
            *self.by_class.entry(last.class.name()).or_default() += 1;
        }
        self.oldest = Some(self.oldest.map_or(letter.dead_at, |oldest| oldest.min(letter.dead_at)));
    }

    /// The states come from the engine's counters, which count all letters; the rest from those that were looked at.
    fn view(&self, figures: &Figures) -> Value {
        let mut view = json!({
            "by_reason": self.by_reason,
            "by_class": self.by_class,
            "oldest": view::time(self.oldest),
            "scanned": self.scanned,
        });
        for (state, count) in figures.letters() {
            view[state.name()] = json!(count);
        }
        view
    }
}
