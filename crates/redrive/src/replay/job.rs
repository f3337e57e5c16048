//! A replay job: its parameters, its progress, its view and its stored form.

use std::fmt;

use redrive_core::{Ratio, Time};
use serde_json::{Value, json};

use super::ends::{Canary, Latest, Trial};
use super::groups::TouchedGroups;
use super::held::HeldLetters;
use crate::engine::{LetterState, ReplayAnswer, ReplayTarget};
use crate::naming;
use crate::timestamp;

/// Maximum jobs that are running, paused or stopped at the same time.
pub(crate) const LIVE_MAX: usize = 64;

/// The actor of auto-replay, in jobs and actions.
pub const AUTO_ACTOR: &str = "auto-replay";

/// The parameters of a replay job.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ReplaySpec {
    /// Letters per second; `None` means as fast as possible.
    pub rate: Option<f64>,
    /// Also replay letters that were replayed three times.
    pub force: bool,
    /// Where letters are replayed to.
    pub target: ReplayTarget,
    /// This many letters go first; the rest follow once these have ended and no more than `stop_at` of them died
    /// again.
    pub canary: u64,
    /// Stops the job when more than this share of the canary, or of the letters that ended last, 50 at most, died again;
    /// `None` is never.
    pub stop_at: Option<Ratio>,
    /// A description of the selection in words.
    pub selection: String,
}

/// The states of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplayState {
    /// Letters are being put back.
    Running,
    /// It was paused.
    Paused,
    /// Every letter was put back or skipped, and all that were put back have ended.
    Done,
    /// It was aborted. Letters it had not reached are untouched, and those not started yet are taken back.
    Aborted,
    /// Too many of its letters died again, or its canary was held for too long; the note says which. It continues when
    /// resumed.
    Stopped,
    /// It cannot continue; the note says why. Letters it had not reached are untouched.
    Failed,
}

impl ReplayState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Paused, Self::Done, Self::Aborted, Self::Stopped, Self::Failed];

    /// The name in the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Done => "done",
            Self::Aborted => "aborted",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether its remaining letters are reserved, so that no other job takes them. Those of a job stopped by
    /// failures are free.
    pub(crate) const fn holds_letters(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }

    /// Whether it will never put back another letter.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Aborted | Self::Failed)
    }
}

impl fmt::Display for ReplayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Letters that were not put back, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Skipped {
    /// Letters that no longer exist.
    pub not_found: u64,
    /// Letters that were in another replay at that moment.
    pub in_replay: u64,
    /// Letters that were delivered by another replay.
    pub succeeded: u64,
    /// Letters that were discarded.
    pub discarded: u64,
    /// Letters that were erased before their turn.
    pub erased: u64,
    /// Letters that were replayed three times before, without `force`.
    pub too_often: u64,
    /// Letters whose stored bytes are damaged.
    pub damaged: u64,
}

impl Skipped {
    /// The reasons with their counts, by name.
    pub fn by_reason(&self) -> [(&'static str, u64); 7] {
        [
            ("not_found", self.not_found),
            ("in_replay", self.in_replay),
            ("succeeded", self.succeeded),
            ("discarded", self.discarded),
            ("erased", self.erased),
            ("too_often", self.too_often),
            ("damaged", self.damaged),
        ]
    }

    /// The number of skipped letters.
    pub fn total(&self) -> u64 {
        self.by_reason().iter().map(|(_, count)| count).sum()
    }

    fn from_json(value: &Value) -> Option<Self> {
        let count = |name: &str| value.get(name)?.as_u64();
        Some(Self {
            not_found: count("not_found")?,
            in_replay: count("in_replay")?,
            succeeded: count("succeeded")?,
            discarded: count("discarded")?,
            // Jobs from before letters could be erased lack this field.
            erased: count("erased").unwrap_or(0),
            too_often: count("too_often")?,
            damaged: count("damaged")?,
        })
    }
}

/// The public view of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayView {
    /// The name: `r-1`, `r-2` …; with the tag of the process, `r-k3x9q-1`, if several share the letters.
    pub id: String,
    /// The pipeline.
    pub pipeline: String,
    /// The state.
    pub state: ReplayState,
    /// The selection in words.
    pub selection: String,
    /// Letters in the frozen selection.
    pub total: u64,
    /// Letters that were put back by this job: under way, succeeded, dead again or forgotten.
    pub published: u64,
    /// Of these, letters that have not ended yet.
    pub under_way: u64,
    /// Letters under way that are held, and why. On Kafka, those of the process that runs the job.
    pub held: Option<HeldLetters>,
    /// Of these, letters that were delivered.
    pub succeeded: u64,
    /// Of these, letters that died again.
    pub dead_again: u64,
    /// Of these, letters that were resolved so long ago that they no longer exist.
    pub forgotten: u64,
    /// Letters that were not put back.
    pub skipped: u64,
    /// Letters that are neither published nor skipped: the job has not reached them, or they were taken back when it
    /// was aborted.
    pub untouched: u64,
    /// Skipped letters by reason.
    pub skips: Skipped,
    /// Letters per second; `None` means as fast as possible.
    pub rate: Option<f64>,
    /// Whether letters that were replayed three times are included.
    pub force: bool,
    /// Where letters are replayed to.
    pub target: ReplayTarget,
    /// The result of the canary, if there was one.
    pub canary: Option<Canary>,
    /// The share of failures that stops it.
    pub stop_at: Option<Ratio>,
    /// The most deliveries that may have been made twice because a process ended halfway; 0 if none did.
    pub sent_twice_max: u64,
    /// When it was started.
    pub created: Time,
    /// Who started it.
    pub actor: String,
    /// The groups of its letters.
    pub groups: TouchedGroups,
    /// Why it stopped, if it did.
    pub note: Option<String>,
}

/// The constant part of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Facts {
    pub number: u64,
    /// The engine's id of the job. Not its number: if the job files are lost but the letters are kept, a new `r-1`
    /// must not be confused with the old one.
    pub engine_job: u64,
    pub pipeline: String,
    pub spec: ReplaySpec,
    pub total: u64,
    /// Checksum of the frozen ids.
    pub ids_crc: u32,
    pub created: Time,
    pub actor: String,
    /// The groups of its letters.
    pub groups: TouchedGroups,
}

/// The changing part of a job.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobProgress {
    pub state: ReplayState,
    /// Letters of the selection, from the first on, whose answer from the engine has been counted.
    pub offered: u64,
    pub published: u64,
    pub skips: Skipped,
    /// Letters by their final state.
    pub succeeded: u64,
    pub dead_again: u64,
    pub forgotten: u64,
    /// Letters that were put back and then taken back untried when the job was aborted.
    pub recalled: u64,
    pub sent_twice_max: u64,
    /// The ends of the latest letters.
    pub latest: Latest,
    /// The canary in progress.
    pub trial: Option<Trial>,
    pub canary: Option<Canary>,
    /// Letters under way that were held at the latest look.
    pub held: Option<HeldLetters>,
    /// Whether the job was stopped because its canary was held: the letters under way are taken back.
    pub gave_up: bool,
    pub note: Option<String>,
}

impl JobProgress {
    pub(super) fn new() -> Self {
        Self {
            state: ReplayState::Running,
            offered: 0,
            published: 0,
            skips: Skipped::default(),
            succeeded: 0,
            dead_again: 0,
            forgotten: 0,
            recalled: 0,
            sent_twice_max: 0,
            latest: Latest::default(),
            trial: None,
            canary: None,
            held: None,
            gave_up: false,
            note: None,
        }
    }

    /// Letters that were put back and have not ended, as far as is known.
    pub(super) fn under_way(&self) -> u64 {
        self.published.saturating_sub(self.succeeded + self.dead_again + self.forgotten + self.recalled)
    }

    /// Letters under way that are held, as far as is known.
    pub(super) fn held(&self) -> Option<HeldLetters> {
        let held = self.held?;
        let letters = held.letters.min(self.under_way());
        (letters > 0).then_some(HeldLetters { letters, ..held })
    }

    /// Whether letters that were put back and do not run are taken back.
    pub(super) fn takes_back(&self) -> bool {
        self.state == ReplayState::Aborted || self.gave_up
    }

    /// How many of `total` letters may have been under way when the process that wrote this ended. A running job may
    /// have put back more since the last write; an idle one has not.
    pub(super) fn in_flight_max(&self, total: u64) -> u64 {
        let ended = self.succeeded + self.dead_again + self.forgotten + self.recalled + self.skips.total();
        if self.state == ReplayState::Running { total.saturating_sub(ended) } else { self.under_way() }
    }

    /// Whether nothing is left to do or to count. A failed job cannot count any more.
    pub(super) fn is_settled(&self) -> bool {
        match self.state {
            ReplayState::Done | ReplayState::Failed => true,
            ReplayState::Aborted => self.under_way() == 0,
            ReplayState::Running | ReplayState::Paused | ReplayState::Stopped => false,
        }
    }

    /// Counts an answer. Returns whether the letter is being delivered by this job.
    pub(super) fn count(&mut self, answer: ReplayAnswer) -> bool {
        self.offered += 1;
        let skips = &mut self.skips;
        let skipped = match answer {
            // `Already`: it was put back, but the process died before counting it.
            ReplayAnswer::Replayed | ReplayAnswer::Already => {
                self.published += 1;
                return true;
            }
            ReplayAnswer::NotFound => &mut skips.not_found,
            ReplayAnswer::NotOpen(LetterState::Succeeded) => &mut skips.succeeded,
            ReplayAnswer::NotOpen(LetterState::Discarded) => &mut skips.discarded,
            ReplayAnswer::NotOpen(LetterState::Erased) => &mut skips.erased,
            ReplayAnswer::NotOpen(LetterState::Open | LetterState::Replaying) => &mut skips.in_replay,
            ReplayAnswer::TooOften { .. } => &mut skips.too_often,
            ReplayAnswer::Damaged => &mut skips.damaged,
        };
        *skipped += 1;
        false
    }
}

/// The name of its file, with the number alone, because each process has its own directory.
pub(super) fn name(number: u64) -> String {
    format!("r-{number}")
}

/// The number in `r-31`, or in `r-k3x9q-31`.
pub(super) fn number(id: &str) -> Option<u64> {
    naming::number('r', id)
}

/// The public view of the job named `id`.
pub(super) fn view(id: String, facts: &Facts, progress: &JobProgress) -> ReplayView {
    ReplayView {
        id,
        pipeline: facts.pipeline.clone(),
        state: progress.state,
        selection: facts.spec.selection.clone(),
        total: facts.total,
        published: progress.published.saturating_sub(progress.recalled),
        under_way: progress.under_way(),
        held: progress.held(),
        succeeded: progress.succeeded,
        dead_again: progress.dead_again,
        forgotten: progress.forgotten,
        skipped: progress.skips.total(),
        untouched: facts
            .total
            .saturating_sub(progress.published.saturating_sub(progress.recalled) + progress.skips.total()),
        skips: progress.skips,
        rate: facts.spec.rate,
        force: facts.spec.force,
        target: facts.spec.target,
        canary: progress.canary,
        stop_at: facts.spec.stop_at,
        sent_twice_max: progress.sent_twice_max,
        created: facts.created,
        actor: facts.actor.clone(),
        groups: facts.groups.clone(),
        note: progress.note.clone(),
    }
}

pub(super) fn to_json(facts: &Facts, progress: &JobProgress) -> Value {
    let skips: serde_json::Map<String, Value> = progress
        .skips
        .by_reason()
        .iter()
        .map(|(reason, count)| ((*reason).to_owned(), json!(count)))
        .collect();
    json!({
        "id": name(facts.number),
        "engine_job": facts.engine_job,
        "pipeline": facts.pipeline,
        "selection": facts.spec.selection,
        "rate": facts.spec.rate,
        "force": facts.spec.force,
        "target": facts.spec.target.name(),
        "canary": facts.spec.canary,
        "stop_at": facts.spec.stop_at.map(|share| share.to_string()),
        "total": facts.total,
        "ids_crc": facts.ids_crc,
        "created": timestamp::print(facts.created),
        "actor": facts.actor,
        "groups": facts.groups.to_json(),
        "state": progress.state.name(),
        "offered": progress.offered,
        "published": progress.published,
        "skipped": skips,
        "succeeded": progress.succeeded,
        "dead_again": progress.dead_again,
        "forgotten": progress.forgotten,
        "recalled": progress.recalled,
        "sent_twice_max": progress.sent_twice_max,
        "latest": progress.latest.text(),
        "trial": progress.trial.map(|trial| [trial.published_before, trial.died_before, trial.letters]),
        "canary_ended": progress.canary.map(|canary| [canary.letters, canary.succeeded, u64::from(canary.is_over)]),
        "held": progress.held.map(HeldLetters::to_json),
        "gave_up": progress.gave_up,
        "note": progress.note,
    })
}

pub(super) fn from_json(value: &Value) -> Option<(Facts, JobProgress)> {
    let count = |key: &str| value.get(key)?.as_u64();
    let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
    let spec = ReplaySpec {
        rate: value.get("rate")?.as_f64(),
        force: value.get("force")?.as_bool()?,
        // Jobs of an earlier version lack this field.
        target: match value.get("target") {
            Some(target) => ReplayTarget::from_name(target.as_str()?)?,
            None => ReplayTarget::Pipeline,
        },
        canary: count("canary").unwrap_or(0),
        stop_at: text("stop_at").and_then(|share| share.parse().ok()),
        selection: text("selection")?,
    };
    let facts = Facts {
        number: number(&text("id")?)?,
        engine_job: count("engine_job")?,
        pipeline: text("pipeline")?,
        spec,
        total: count("total")?,
        ids_crc: u32::try_from(count("ids_crc")?).ok()?,
        created: timestamp::parse(&text("created")?)?,
        actor: text("actor")?,
        groups: TouchedGroups::of_json(value.get("groups")),
    };
    let progress = JobProgress {
        state: ReplayState::from_name(&text("state")?)?,
        offered: count("offered")?.min(facts.total),
        published: count("published")?,
        skips: Skipped::from_json(value.get("skipped")?)?,
        succeeded: count("succeeded")?,
        dead_again: count("dead_again")?,
        // Jobs of an earlier version did not count them.
        forgotten: count("forgotten").unwrap_or(0),
        recalled: count("recalled").unwrap_or(0),
        sent_twice_max: count("sent_twice_max").unwrap_or(0),
        latest: Latest::of_text(&text("latest").unwrap_or_default()),
        trial: triple(value.get("trial")).map(|[published_before, died_before, letters]| Trial {
            published_before,
            died_before,
            letters,
        }),
        canary: triple(value.get("canary_ended")).map(|[letters, succeeded, over]| Canary {
            letters,
            succeeded,
            is_over: over > 0,
        }),
        // Jobs of an earlier version lack these.
        held: value.get("held").and_then(HeldLetters::of_json),
        gave_up: value.get("gave_up").and_then(Value::as_bool).unwrap_or(false),
        note: text("note"),
    };
    Some((facts, progress))
}

fn triple(value: Option<&Value>) -> Option<[u64; 3]> {
    let values: Vec<u64> = value?.as_array()?.iter().filter_map(Value::as_u64).collect();
    values.try_into().ok()
}

/// Whether an earlier version stored names of tenants, which would outlive their letters. The file is rewritten
/// without them.
pub(super) fn names_tenants(text: &[u8]) -> bool {
    const FIELD: &[u8] = b"\"tenants\"";
    text.windows(FIELD.len()).any(|part| part == FIELD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::HeldWhy;

    #[test]
    fn a_job_comes_back_from_its_file_as_it_was() {
        let facts = Facts {
            number: 31,
            engine_job: u64::MAX - 1,
            pipeline: "orders".into(),
            spec: ReplaySpec {
                rate: Some(0.5),
                force: true,
                target: ReplayTarget::Source,
                canary: 10,
                stop_at: Some(Ratio::percent(20)),
                selection: "error:\"503\"".into(),
            },
            total: 300,
            ids_crc: 7,
            created: Time::from_millis(1_700_000_000_123),
            actor: "ops".into(),
            groups: [7, 9].map(redrive_core::GroupId::from_number).into_iter().collect(),
        };
        let skips = Skipped {
            not_found: 1,
            in_replay: 2,
            succeeded: 3,
            discarded: 4,
            erased: 7,
            too_often: 5,
            damaged: 6,
        };
        let progress = JobProgress {
            state: ReplayState::Paused,
            offered: 200,
            published: 179,
            skips,
            succeeded: 100,
            dead_again: 9,
            forgotten: 1,
            recalled: 2,
            sent_twice_max: 8,
            latest: Latest::of_text("..x"),
            trial: Some(Trial { published_before: 1, died_before: 2, letters: 10 }),
            canary: Some(Canary { letters: 10, succeeded: 4, is_over: false }),
            held: Some(HeldLetters { letters: 5, why: HeldWhy::NoSuccess(Some(Time::from_millis(7))) }),
            gave_up: true,
            note: Some("why".into()),
        };
        assert_eq!(from_json(&to_json(&facts, &progress)), Some((facts.clone(), progress.clone())));
        let shown = view(name(31), &facts, &progress);
        assert_eq!((shown.skipped, shown.under_way, shown.untouched), (28, 67, 95));
        let ended = shown.succeeded + shown.dead_again + shown.forgotten;
        assert_eq!(ended + shown.under_way + shown.skipped + shown.untouched, shown.total);
        // A job of a version that did not store groups.
        let mut earlier = to_json(&facts, &progress);
        earlier.as_object_mut().unwrap().remove("groups");
        let ungrouped = Facts { groups: TouchedGroups::default(), ..facts.clone() };
        assert_eq!(from_json(&earlier), Some((ungrouped, progress.clone())));
        let bare = Facts { spec: ReplaySpec::default(), ..facts };
        let fresh = JobProgress::new();
        assert_eq!(from_json(&to_json(&bare, &fresh)), Some((bare, fresh)));
    }

    #[test]
    fn only_what_may_have_been_in_flight_may_have_been_sent_twice() {
        let progress = JobProgress { published: 40, succeeded: 30, dead_again: 2, ..JobProgress::new() };
        assert_eq!(progress.in_flight_max(100), 68, "it may have gone on after this was written");
        let stopped = JobProgress { state: ReplayState::Stopped, ..progress };
        assert_eq!(stopped.in_flight_max(100), 8);
    }

    #[test]
    fn an_answer_says_what_became_of_a_letter() {
        let mut progress = JobProgress::new();
        assert!(progress.count(ReplayAnswer::Replayed));
        assert!(progress.count(ReplayAnswer::Already));
        assert!(!progress.count(ReplayAnswer::NotOpen(LetterState::Discarded)));
        assert!(!progress.count(ReplayAnswer::TooOften { replays: 3 }));
        assert_eq!((progress.offered, progress.published, progress.skips.total()), (4, 2, 2));
        assert_eq!((progress.skips.discarded, progress.skips.too_often), (1, 1));
    }

    #[test]
    fn names_are_read_back_and_nothing_else_is() {
        assert_eq!(number(&name(31)), Some(31));
        for text in ["", "r-", "r-x", "d-1", "r-+1", "r--1", "31"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
