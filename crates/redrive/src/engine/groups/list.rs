//! The groups of a pipeline with their states: the engine's counts combined with the decisions.

#![warn(missing_docs)]

use std::collections::BTreeSet;

use redrive_core::{GroupId, Time};

use super::GroupFigures;
use super::mark::{GroupMark, GroupState};
use super::marks::GroupMarks;
use crate::engine::letter::{Letter, LetterScan, SCAN_BYTES};
use crate::engine::seam::{Engine, EngineError, Query};

/// A group as it is listed.
#[derive(Clone, Debug)]
pub struct GroupSummary {
    /// How many letters it has, and how fast they arrive.
    pub figures: GroupFigures,
    /// The state that follows from the decision and from later letters.
    pub state: GroupState,
    /// The decision.
    pub mark: Option<GroupMark>,
    /// The letter that has been open longest, without its payload, if requested.
    pub sample: Option<Letter>,
}

impl GroupSummary {
    /// The group.
    pub fn group(&self) -> GroupId {
        self.figures.group
    }

    /// The normalised error, or the name a rule gives it.
    pub fn title(&self) -> &str {
        match (self.group().is_other(), &self.sample, &self.mark) {
            (true, _, _) => "groups beyond the first 1,000",
            (_, Some(sample), _) => &sample.group.title,
            (_, None, Some(mark)) => &mark.title,
            (_, None, None) => "",
        }
    }
}

/// All groups with an open letter or a mark, those with the most open letters first. `kept` has the marks if the engine
/// does not store them itself.
pub fn list(
    engine: &mut dyn Engine,
    kept: &GroupMarks,
    with_samples: bool,
    now: Time,
) -> Result<Vec<GroupSummary>, EngineError> {
    let marks = engine.group_marks().unwrap_or_else(|| kept.clone());
    let decided: Vec<GroupId> = marks.iter().map(|mark| mark.group).collect();
    engine.reserve_groups(&decided);
    let figures = engine.groups(now)?;
    let open: BTreeSet<GroupId> = figures.iter().map(|figures| figures.group).collect();
    let empty = marks.iter().filter(|mark| !open.contains(&mark.group));
    let empty = empty.map(|mark| GroupFigures { group: mark.group, open: 0, oldest: None, per_minute: 0 });
    let all: Vec<GroupFigures> = figures.iter().copied().chain(empty).collect();
    let mut groups = Vec::with_capacity(all.len());
    for figures in all {
        groups.push(summary(engine, figures, marks.get(figures.group), with_samples, now)?);
    }
    groups.sort_by_key(|summary| (std::cmp::Reverse(summary.figures.open), summary.group()));
    Ok(groups)
}

/// Open letters of a group after `after`, in order, and the cursor; a page ends once it holds about [`SCAN_BYTES`].
pub fn letters(
    engine: &mut dyn Query,
    group: GroupId,
    after: Option<u64>,
    limit: usize,
) -> Result<LetterScan, EngineError> {
    let numbers = engine.letters_in_group(group, after, limit)?;
    let mut scan = LetterScan { next: after, ..LetterScan::default() };
    let mut bytes = 0;
    for number in &numbers {
        if bytes >= SCAN_BYTES {
            return Ok(scan);
        }
        scan.scanned += 1;
        scan.next = Some(*number);
        if let Some(letter) = engine.letter(*number)? {
            bytes += letter.size();
            scan.letters.push(letter);
        }
    }
    let next = if numbers.len() < limit { None } else { scan.next };
    Ok(LetterScan { next, ..scan })
}

fn summary(
    engine: &mut dyn Query,
    figures: GroupFigures,
    mark: Option<&GroupMark>,
    with_sample: bool,
    now: Time,
) -> Result<GroupSummary, EngineError> {
    let state = match mark {
        None => GroupState::Open,
        Some(mark) => {
            let most = mark.counts_up_to();
            let since = if most == 0 || figures.open == 0 {
                0
            } else {
                engine.open_since(figures.group, mark.at, most)?
            };
            mark.state(since, now)
        }
    };
    let sample = match figures.oldest.filter(|_| with_sample) {
        Some((_, number)) => engine.letter(number)?.map(Letter::without_payload),
        None => None,
    };
    Ok(GroupSummary { figures, state, mark: mark.cloned(), sample })
}
