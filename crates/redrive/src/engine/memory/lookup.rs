//! Read-only lookups in the memory engine: messages, key lines, letters and pending messages.

use std::collections::BTreeSet;

use redrive_core::Time;

use super::inner::{EntryState, Inner};
use crate::engine::groups::OpenGroups;
use crate::engine::letter::{Letter, LetterStanding, LetterState, SCAN_BYTES};
use crate::engine::message_state::{KeyLine, WAITING_MAX};
use crate::engine::message_state::{MessagePhase, MessageState};
use crate::engine::pending::{PendingAt, PendingMessage, PendingScan, PendingState};
use crate::engine::seam::{AfterDead, EngineError};

pub(super) struct Lookup<'a>(pub(super) &'a Inner);

impl Lookup<'_> {
    pub(super) fn letter(&self, seq: u64) -> Option<Letter> {
        let letter = self.0.letters.get(&seq)?;
        let entry = &self.0.entries[&seq];
        Some(Letter {
            id: seq,
            state: letter.state,
            reason: letter.reason,
            dead_at: letter.dead_at,
            job: letter.job,
            message: entry.message.clone(),
            meta: entry.meta,
            history: entry.history.clone(),
            group: letter.group.clone(),
            edits: letter.replaced.iter().map(|replaced| replaced.edit.clone()).collect(),
            options: letter.options.as_deref().map(str::to_owned),
        })
    }

    /// Counted anew on each call: this engine prefers simplicity to speed.
    pub(super) fn open_groups(&self) -> OpenGroups {
        let mut groups = OpenGroups::default();
        groups.reserve(self.0.decided.iter().copied());
        let open = self.0.letters.iter().filter(|(_, letter)| letter.state == LetterState::Open);
        for (seq, letter) in open {
            groups.enter(letter.group.group, letter.dead_at, *seq);
        }
        groups
    }

    pub(super) fn message(&self, id: &str, now: Time) -> Result<Option<MessageState>, EngineError> {
        let Some(window) = self.0.options.dedup else { return Err(EngineError::NotRemembered) };
        let Some((seq, at)) = self.0.seen.get(id) else { return Ok(None) };
        let (entry, letter) = (&self.0.entries[seq], self.0.letters.get(seq));
        let duplicate_of = (now.since(*at) < window).then_some(*seq);
        let waits = |phase| if letter.is_some() { MessagePhase::Replaying } else { phase };
        let mut due = None;
        let phase = match entry.state {
            _ if entry.in_flight.is_some() => MessagePhase::InFlight,
            EntryState::Ready => waits(MessagePhase::Ready),
            EntryState::Blocked | EntryState::Released => waits(MessagePhase::KeyWait),
            EntryState::Delayed(until) => {
                due = Some(until);
                waits(PendingState::timed(entry.meta.deferred).into())
            }
            EntryState::Letter | EntryState::Done => match letter {
                Some(letter) => letter.state.into(),
                None if now.since(*at) >= window => return Ok(None),
                None => {
                    let succeeded = MessageState::new(id, MessagePhase::Succeeded);
                    return Ok(Some(MessageState { duplicate_of, ..succeeded }));
                }
            },
        };
        let state = MessageState::new(id, phase).with_history(&entry.meta, &entry.history);
        let (letter, reason) = (letter.map(|_| *seq), letter.map(|letter| letter.reason));
        Ok(Some(MessageState { due, letter, reason, duplicate_of, ..state }))
    }

    pub(super) fn key_line(&self, key: &[u8]) -> Option<KeyLine> {
        let nobody = BTreeSet::new();
        let line = self.0.lines.of(key).unwrap_or(&nobody);
        let is_of_key = |seq: &u64| self.0.entries[seq].message.key() == Some(key);
        let open = self.0.letters.iter().filter(|(_, letter)| letter.state == LetterState::Open);
        let blocks = self.0.options.after_dead == AfterDead::BlockKey;
        let letters: Vec<u64> = open.map(|(seq, _)| *seq).filter(|seq| blocks && is_of_key(seq)).collect();
        let running = line.iter().find(|seq| self.0.entries[seq].in_flight.is_some());
        let first = running.or(line.first());
        let letter = letters.first().filter(|letter| first.is_none_or(|first| *letter < first));
        let seq = letter.or(first)?;
        let entry = &self.0.entries[seq];
        let (phase, due) = match entry.state {
            _ if letter.is_some() => (MessagePhase::Dead, None),
            _ if entry.in_flight.is_some() => (MessagePhase::InFlight, None),
            EntryState::Delayed(until) => (MessagePhase::Delayed, Some(until)),
            _ => (MessagePhase::Ready, None),
        };
        let head = MessageState::new(entry.message.id(), phase).with_history(&entry.meta, &entry.history);
        let reason = letter.and_then(|letter| self.0.letters.get(letter)).map(|letter| letter.reason);
        let waiting = (line.len() + letters.len() - 1).min(WAITING_MAX) as u64;
        Some(KeyLine { head: MessageState { due, letter: letter.copied(), reason, ..head }, waiting })
    }

    pub(super) fn letter_standing(&self, job: u64, seq: u64) -> Option<LetterStanding> {
        let letter = self.0.letters.get(&seq)?;
        Some(LetterStanding {
            state: letter.state,
            dead_at: letter.dead_at,
            replays: self.0.entries[&seq].meta.replays,
            in_job: letter.jobs.contains(&job),
            is_last_job: letter.job == Some(job),
        })
    }

    /// Where a message waits; `None` if it is terminal or handed out.
    pub(super) fn pending_at(&self, seq: u64) -> Option<PendingAt> {
        let entry = self.0.entries.get(&seq).filter(|entry| entry.in_flight.is_none())?;
        let state = Inner::pending_state(entry)?;
        Some(PendingAt { number: seq, state, key: (seq, 0) })
    }

    /// Looks at messages by number, whatever their state.
    pub(super) fn scan_pending(
        &self,
        state: PendingState,
        after: Option<(u64, u64)>,
        limit: usize,
        look_max: usize,
    ) -> PendingScan {
        let mut scan = PendingScan { next: after, ..PendingScan::default() };
        let Some(from) = after.map_or(Some(0), |(seq, _)| seq.checked_add(1)) else {
            return PendingScan::default();
        };
        let mut bytes = 0;
        for (seq, entry) in self.0.entries.range(from..) {
            if scan.messages.len() >= limit || bytes >= SCAN_BYTES || scan.scanned >= look_max as u64 {
                return scan;
            }
            scan.scanned += 1;
            scan.next = Some((*seq, 0));
            if let Some(at) = self.pending_at(*seq).filter(|at| at.state == state) {
                let found = PendingMessage {
                    at,
                    message: entry.message.clone(),
                    meta: entry.meta,
                    history: entry.history.clone(),
                    due: entry.due,
                };
                bytes += found.size();
                scan.messages.push(found);
            }
        }
        PendingScan { next: None, ..scan }
    }
}
