//! Reserves the messages of all tiers that come due soon, as far as they are next to be handed out.

use std::time::{Duration, Instant};

use redrive_core::Time;

use super::lanes::Lanes;
use super::lookahead::LookAhead;
use crate::crash::reservation::Advance;

/// Messages due within this time are reserved with the next commit, for twice this time. The dispatch thread comes by
/// at least once a second.
const SOON: Duration = Duration::from_millis(1_200);
/// How often the look-ahead is checked for messages to reserve.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(crate) struct DueReserve {
    advance: Advance,
    handed_out: u64,
    /// Whether a due message was found that was not reserved.
    starved: bool,
    last_look: Option<Instant>,
}

impl DueReserve {
    pub fn handed_out(&mut self) {
        self.handed_out += 1;
    }

    /// Notes that a due message has to wait for a commit.
    pub fn starved(&mut self) {
        self.starved = true;
    }

    pub fn renew(&mut self, instant: Instant, now: Time, ahead: &LookAhead, lanes: &mut Lanes) {
        let looked = self.last_look.is_some_and(|at| instant.duration_since(at) < LOOK_EVERY);
        if (looked && !self.starved) || ahead.is_empty() {
            return;
        }
        self.last_look = Some(instant);
        let starved = std::mem::take(&mut self.starved);
        let limit = self.advance.next(instant, self.handed_out, starved) as usize;
        let (soon, latest) = (now.plus(SOON).as_millis(), now.plus(SOON * 2).as_millis());
        let (mut count, mut until) = (0, latest);
        let mut wanting = vec![false; lanes.len()];
        for (lane, due) in ahead.coming(limit, latest) {
            count += 1;
            until = due;
            wanting[lane] |= due <= soon && !lanes[lane].reserved.admits_due(due);
        }
        if count < limit {
            until = latest;
        }
        for (lane, _) in lanes.iter_mut().zip(wanting).filter(|(_, wants)| *wants) {
            lane.reserved.want_due(until);
            lane.hurries |= starved;
        }
    }
}
