//! Collects what the witness and the processor know about every produced id.
//!
//! The system may run while it is audited, so the order matters. Effects happen before Redrive settles; a message that
//! is pending here and succeeds a moment later must not look missing. So the order is: the witness, the letters, the
//! state of each id that neither has, and the witness again if an id is still unaccounted for.

use redrive_api::LetterView;
use serde::Deserialize as _;
use tokio::task::JoinSet;

use super::kafka::TopicRecords;
use super::produced_ids::{Marks, ProducedIds};
use super::reconcile::{IdFate, fate};
use super::witness::{AuditWitness, WitnessReport};
use crate::client::{Api, ClientFault, PageQuery, Session};
use crate::exit::Failed;
use crate::output::Output;

const LETTERS_PAGE: u32 = 500;
/// The maximum number of concurrent requests for messages.
const ASKING_MAX: usize = 16;
/// The maximum number of ids held as text while requesting their states.
const ASK_AT_ONCE: usize = 10_000;

/// The name of the proof without a witness.
pub const BY_POSITION: &str = "by position";

/// How often records are read again while ids are unaccounted for.
const LOOKS_MAX: usize = 3;

/// Findings beyond the marks.
#[derive(Clone, Debug, Default)]
pub struct AuditFindings {
    pub proof: &'static str,
    /// Ids that the witness has but that were not produced: the list is incomplete.
    pub not_produced: u64,
    /// Second letters for an id that already has one: copies left by a crash.
    pub twins: u64,
    pub report: WitnessReport,
    /// The table of effects that was searched for duplicates, if there was one.
    pub effects_table: Option<String>,
    /// The topic whose records were read, if any.
    pub source: Option<String>,
    /// Ranges of offsets deleted by retention: the fate of their messages is unknown.
    pub lost: Vec<String>,
}

pub async fn gather(
    pipeline: &str,
    produced: &mut ProducedIds,
    witness: &AuditWitness,
    effects: Option<&str>,
    session: &Session,
    out: &mut Output,
) -> Result<AuditFindings, Failed> {
    let mut seen = AuditFindings {
        proof: witness.proof(),
        effects_table: effects.map(str::to_owned),
        ..AuditFindings::default()
    };
    // Detect a missing pipeline before a long read.
    session.api.pipeline(pipeline).await?;
    ask_witness(produced, &mut seen, witness, effects, out).await?;
    letters(pipeline, produced, &mut seen, session).await?;
    messages(pipeline, produced, session, out).await?;
    if !produced.some(0, 1, is_missing).0.is_empty() {
        witness.applied(&mut |id| _ = produced.mark(id, Marks::APPLIED)).await?;
    }
    seen.report = witness.report().await?;
    Ok(seen)
}

/// Gathers the same from the topics of a pipeline, whichever processor runs it. Messages move while they are read, so
/// ids that are still unaccounted for are looked up again.
pub async fn gather_records(
    produced: &mut ProducedIds,
    witness: &AuditWitness,
    effects: Option<&str>,
    records: &TopicRecords,
    out: &mut Output,
) -> Result<AuditFindings, Failed> {
    let mut seen = AuditFindings {
        proof: witness.proof(),
        effects_table: effects.map(str::to_owned),
        ..AuditFindings::default()
    };
    ask_witness(produced, &mut seen, witness, effects, out).await?;
    for _ in 0..LOOKS_MAX {
        out.note("reading letters and what is pending …");
        seen.twins = records.letters(produced)?;
        records.pending(produced)?;
        if produced.some(0, 1, is_missing).0.is_empty() {
            break;
        }
        witness.applied(&mut |id| _ = produced.mark(id, Marks::APPLIED)).await?;
    }
    seen.report = witness.report().await?;
    Ok(seen)
}

/// Gathers without a witness: a source record below the committed offsets that is not pending and has no letter was
/// settled. Only the receiver knows whether it acted on it. Letters are read again at the end, because a message may
/// die while pending ones are read.
pub fn gather_positions(
    produced: &mut ProducedIds,
    records: &TopicRecords,
    out: &mut Output,
) -> Result<AuditFindings, Failed> {
    out.note("reading letters and what is pending …");
    records.letters(produced)?;
    records.pending(produced)?;
    let twins = records.letters(produced)?;
    let mut from = Some(0);
    while let Some(start) = from {
        let (settled, next) = produced.some(start, ASK_AT_ONCE, is_missing);
        for id in &settled {
            produced.mark(id, Marks::APPLIED);
        }
        from = next;
    }
    Ok(AuditFindings { proof: BY_POSITION, twins, ..AuditFindings::default() })
}

async fn ask_witness(
    produced: &mut ProducedIds,
    seen: &mut AuditFindings,
    witness: &AuditWitness,
    effects: Option<&str>,
    out: &mut Output,
) -> Result<(), Failed> {
    out.note("reading what the witness has …");
    witness
        .applied(&mut |id| match produced.get(id) {
            None => seen.not_produced += 1,
            Some(marks) if marks.has(Marks::APPLIED) => _ = produced.mark(id, Marks::APPLIED_AGAIN),
            Some(_) => _ = produced.mark(id, Marks::APPLIED),
        })
        .await?;
    let Some(table) = effects else { return Ok(()) };
    witness
        .effects(table, &mut |id| {
            let again = produced.get(id).is_some_and(|marks| marks.has(Marks::EFFECT));
            produced.mark(id, if again { Marks::APPLIED_AGAIN } else { Marks::EFFECT });
        })
        .await
}

async fn letters(
    pipeline: &str,
    produced: &mut ProducedIds,
    seen: &mut AuditFindings,
    session: &Session,
) -> Result<(), Failed> {
    let mut query = PageQuery { limit: LETTERS_PAGE, ..PageQuery::default() };
    loop {
        let page = session.api.letters(pipeline, &query).await?.view;
        for letter in &page.letters {
            let letter = LetterView::deserialize(letter).map_err(|error| session.strange(&error))?;
            let Some(before) = produced.get(&letter.message) else { continue };
            let has_letter = [Marks::OPEN, Marks::DISCARDED, Marks::REPLAYING];
            seen.twins += u64::from(has_letter.iter().any(|mark| before.has(*mark)));
            // A letter whose replay succeeded proves nothing: either the witness has the effect, or it is missing. But
            // it shows that the message continued under a new id.
            if letter.state == "erased" {
                produced.erased(&letter.message);
            } else {
                produced.mark(&letter.message, letter_mark(&letter.state));
            }
        }
        query.cursor = page.next;
        if query.cursor.is_none() {
            return Ok(());
        }
    }
}

fn letter_mark(state: &str) -> Marks {
    match state {
        "open" => Marks::OPEN,
        "discarded" => Marks::DISCARDED,
        "replaying" => Marks::REPLAYING,
        _ => Marks::NONE,
    }
}

fn is_missing(marks: Marks) -> bool {
    fate(marks) == IdFate::Missing
}

/// Requests the state of every id that neither the witness nor the letters have.
async fn messages(
    pipeline: &str,
    produced: &mut ProducedIds,
    session: &Session,
    out: &mut Output,
) -> Result<(), Failed> {
    let mut bar = out.progress("asking for what is pending", produced.len());
    let mut from = Some(0);
    while let Some(start) = from {
        bar.at(start as u64);
        let (ids, next) = produced.some(start, ASK_AT_ONCE, is_missing);
        for (id, mark) in states(pipeline, ids, &session.api).await? {
            produced.mark(&id, mark);
        }
        from = next;
    }
    Ok(())
}

/// The states of some messages, requested a few at a time.
async fn states(pipeline: &str, ids: Vec<String>, api: &Api) -> Result<Vec<(String, Marks)>, ClientFault> {
    let mut rest = ids.into_iter();
    let mut known = Vec::new();
    let mut asking = JoinSet::new();
    loop {
        while asking.len() < ASKING_MAX {
            let Some(id) = rest.next() else { break };
            asking.spawn(ask(api.clone(), pipeline.to_owned(), id));
        }
        match asking.join_next().await {
            None => return Ok(known),
            Some(Ok(asked)) => known.push(asked?),
            // Our tasks neither panic nor are cancelled; if one did, its id would stay unknown and count as missing.
            Some(Err(_)) => {}
        }
    }
}

async fn ask(api: Api, pipeline: String, id: String) -> Result<(String, Marks), ClientFault> {
    let mark = match api.message(&pipeline, &id).await {
        Ok(answer) => message_mark(&answer.view.state).ok_or_else(|| ClientFault::Strange {
            address: api.address().to_string(),
            problem: format!("`{}` is not a state of a message", answer.view.state),
        })?,
        Err(fault) if fault.is_not_found() => Marks::NONE,
        Err(fault) => return Err(fault),
    };
    Ok((id, mark))
}

/// `None` for an unknown state. It must not count as pending, since that could hide a loss.
fn message_mark(state: &str) -> Option<Marks> {
    match state {
        "ready" | "delayed" | "in_flight" | "key_wait" | "held" => Some(Marks::PENDING),
        "replaying" => Some(Marks::REPLAYING),
        "dead" => Some(Marks::OPEN),
        // An erased letter is resolved too; it was counted with the letters.
        "discarded" | "erased" => Some(Marks::DISCARDED),
        // Only Redrive says so; the witness does not have it.
        "succeeded" => Some(Marks::NONE),
        _ => None,
    }
}
