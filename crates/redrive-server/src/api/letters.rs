//! Dead letters: read, counted, discarded and restored.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use redrive::internal::letters::select;
use redrive::internal::letters::select::Page;
use redrive::letters::Selection;
use redrive::letters::redact::{REDACTED, Redaction};
use redrive::{Letter, LetterState, Message, Time};
use redrive_api::{
    Discard, DiscardAnswer, Discarded, Instant, LetterCounts, LetterPage, LetterStats, LettersOfTenant,
    Restored, Undo, WouldDiscard,
};
use serde::Deserialize;

use super::change::{Change, JsonBody, reason};
use super::replay_plan::taken;
use super::shown::{ShownLetter, all_before, messages_before, page_of};
use super::{selection, view};
use crate::answer::Json;
use crate::answer_memory::large;
use crate::problem::Problem;
use crate::request::{Params, Path};
use crate::service::Served;
use crate::state::Shared;

/// The default number of letters per page.
const PAGE_DEFAULT: usize = 100;
/// The time limit for statistics over letters, page by page; if it is not enough, `scanned` gives the number covered.
/// Clients wait for a minute.
const STATS_WITHIN: Duration = Duration::from_secs(45);
/// The maximum number of tenants that statistics distinguish. Fewer are shown.
const TENANTS_MAX: usize = 1_000;
const TENANTS_SHOWN_MAX: usize = 100;
/// The name for all other tenants.
const OTHERS: &str = "(others)";
/// The maximum size of payloads per page; a page that exceeds it ends early.
const PAYLOADS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum length of a discard's reason.
pub(super) const REASON_BYTES_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LetterListParams {
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
    Params(params): Params<LetterListParams>,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let selection = Selection {
        // An empty filter is refused here as elsewhere: leave it out to get all letters.
        filter: params
            .filter
            .as_deref()
            .map(|text| selection::filter(text, &served.redaction))
            .transpose()?,
        state: given(&params.state).as_deref().map(selection::state).transpose()?,
        since: given(&params.since)
            .as_deref()
            .map(|text| selection::since(text, served.handle.now()))
            .transpose()?,
        ids: None,
        all: true,
    };
    let limit = params.limit.unwrap_or(PAGE_DEFAULT).min(select::PAGE_MAX);
    let room = shared.answers.room().await?;
    let page = page_of(served, &selection, params.cursor, limit, params.payload).await?;
    let before = all_before(served, &page.letters).await?;
    let (served, with_payload) = (served.clone(), params.payload);
    let built = large(move || shown_page(&served, &page, &before, with_payload)).await?;
    shared.answers.hold(built, Some(room)).await
}

/// A page of letters, with no more payloads than one answer may contain.
fn shown_page(
    served: &Served,
    page: &Page,
    before: &[Vec<Message>],
    with_payload: bool,
) -> LetterPage<ShownLetter> {
    let mut next = page.next;
    let mut letters = Vec::with_capacity(page.letters.len());
    let mut payload_bytes = 0;
    let mut last = None;
    for (letter, before) in page.letters.iter().zip(before) {
        payload_bytes += letter.message.payload().filter(|_| with_payload).map_or(0, <[u8]>::len);
        if payload_bytes > PAYLOADS_BYTES_MAX && last.is_some() {
            next = last;
            break;
        }
        letters.push(ShownLetter::of(served, letter, before, None, with_payload));
        last = Some(letter.id);
    }
    LetterPage { letters, next: next.map(|next| next.to_string()), scanned: page.scanned }
}

pub(crate) async fn show(
    State(shared): State<Shared>,
    Path((pipeline, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let served = shared.service.find(&pipeline)?;
    let room = shared.answers.room().await?;
    let numbers = select::resolve(&served.handle, std::slice::from_ref(&id)).await?;
    let letter = match numbers.first() {
        Some(number) => served.handle.letter(*number).await?,
        None => None,
    };
    let letter =
        letter.ok_or_else(|| Problem::not_found(format!("there is no letter `{id}`"), "list them first"))?;
    let before = messages_before(served, &letter).await?;
    let served = served.clone();
    let built = large(move || ShownLetter::of(&served, &letter, &before, before.first(), true)).await?;
    shared.answers.hold(built, Some(room)).await
}

/// The states come from the engine's counters, which cover all letters; the rest from the open letters, read page by
/// page so that deliveries continue in between.
pub(crate) async fn stats(
    State(shared): State<Shared>,
    Path(pipeline): Path<String>,
) -> Result<Json<LetterStats>, Problem> {
    let served = shared.service.find(&pipeline)?;
    let mut tally = LetterTally::default();
    let mut after = None;
    let until = tokio::time::Instant::now() + STATS_WITHIN;
    loop {
        let open = Selection::all(LetterState::Open);
        let page = page_of(served, &open, after, select::PAGE_MAX, false).await?;
        page.letters.iter().for_each(|letter| tally.add(letter, &served.redaction));
        after = page.next;
        if after.is_none() || tokio::time::Instant::now() > until {
            break;
        }
    }
    // Asked of the engine, since the figures may be out of date.
    let LetterCounts { open, replaying, succeeded, discarded, erased } =
        view::letter_counts(&served.handle.counts().await?);
    let owned = |counts: BTreeMap<&'static str, u64>| {
        counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    };
    Ok(Json(LetterStats {
        open,
        replaying,
        succeeded,
        discarded,
        erased,
        by_tenant: tally.tenants(),
        by_reason: owned(tally.by_reason),
        by_class: owned(tally.by_class),
        oldest: tally.oldest.map(Instant),
        scanned: tally.scanned,
    }))
}

/// Counts of open letters.
#[derive(Debug, Default)]
struct LetterTally {
    by_reason: BTreeMap<&'static str, u64>,
    by_class: BTreeMap<&'static str, u64>,
    /// The number of letters, and the death of the oldest one.
    by_tenant: BTreeMap<String, (u64, Time)>,
    oldest: Option<Time>,
    scanned: u64,
}

impl LetterTally {
    fn add(&mut self, letter: &Letter, redaction: &Redaction) {
        self.scanned += 1;
        *self.by_reason.entry(letter.reason.name()).or_default() += 1;
        if let Some(last) = letter.history.attempts().last() {
            *self.by_class.entry(last.class.name()).or_default() += 1;
        }
        self.oldest = Some(self.oldest.map_or(letter.dead_at, |oldest| oldest.min(letter.dead_at)));
        let tenant = letter.message.tenant().unwrap_or("(none)");
        let tenant = if redaction.hides_tenant(&letter.message) { REDACTED } else { tenant };
        let room = self.by_tenant.len() < TENANTS_MAX || self.by_tenant.contains_key(tenant);
        let tenant = if room { tenant } else { OTHERS };
        let (letters, oldest) = self.by_tenant.entry(tenant.to_owned()).or_insert((0, letter.dead_at));
        *letters += 1;
        *oldest = letter.dead_at.min(*oldest);
    }

    /// The tenants with the most letters first; those not shown are counted together.
    fn tenants(&self) -> Vec<LettersOfTenant> {
        let mut all: Vec<(&str, u64, Time)> =
            self.by_tenant.iter().map(|(tenant, (letters, oldest))| (&**tenant, *letters, *oldest)).collect();
        let is_other = |tenant: &str| tenant == OTHERS;
        all.sort_by(|one, other| (is_other(one.0), other.1, one.0).cmp(&(is_other(other.0), one.1, other.0)));
        let rest = all.split_off(all.len().min(TENANTS_SHOWN_MAX));
        let others = rest.iter().map(|(_, letters, oldest)| (*letters, *oldest));
        let others = others.reduce(|one, other| (one.0 + other.0, one.1.min(other.1)));
        all.extend(others.map(|(letters, oldest)| (OTHERS, letters, oldest)));
        let view = |(tenant, letters, oldest): (&str, u64, Time)| LettersOfTenant {
            tenant: tenant.to_owned(),
            letters,
            oldest: Some(Instant(oldest)),
        };
        all.into_iter().map(view).collect()
    }
}

pub(crate) async fn discard(
    change: Change,
    JsonBody { value: mut wish, .. }: JsonBody<Discard>,
) -> Result<Json<DiscardAnswer>, Problem> {
    let Change { shared, served, actor } = change;
    let (ids, not_open) = selection::freeze(wish.take_selection(), &served).await?;
    if wish.dry_run {
        let taken = taken(&shared.service.replays.taken_of(&served.handle, &ids).await);
        let would_discard = ids.len() as u64;
        return Ok(Json(DiscardAnswer::Would(WouldDiscard { would_discard, not_open, taken })));
    }
    let reason = reason(wish.reason, REASON_BYTES_MAX)?;
    let done = shared.service.actions.discard(&served.handle, &ids, &actor.0, &reason).await?;
    Ok(Json(DiscardAnswer::Done(Discarded {
        id: done.id,
        discarded: done.discarded,
        undo_until: done.undo_until.map(Instant),
        not_open,
    })))
}

pub(crate) async fn undo(
    Change { shared, served, actor }: Change,
    JsonBody { value: wish, .. }: JsonBody<Undo>,
) -> Result<Json<Restored>, Problem> {
    let done = shared.service.actions.undo(&served.handle, &wish.id, &actor.0).await?;
    Ok(Json(Restored { restored: done.restored }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_tenants_are_named_and_the_others_counted_together() {
        let mut tally = LetterTally::default();
        for n in 0..TENANTS_SHOWN_MAX + 2 {
            tally.by_tenant.insert(format!("t-{n:03}"), (n as u64 + 1, Time::from_millis(n as u64)));
        }
        let shown = tally.tenants();
        assert_eq!(shown.len(), TENANTS_SHOWN_MAX + 1);
        assert_eq!((shown[0].tenant.as_str(), shown[0].letters), ("t-101", 102));
        let others = shown.last().unwrap();
        assert_eq!((others.tenant.as_str(), others.letters), (OTHERS, 3));
        assert_eq!(others.oldest, Some(Instant(Time::from_millis(0))));
    }
}
