//! Batches until they are durable: their copies acknowledged, their marks committed or in `T.progress`. No I/O.

use std::collections::VecDeque;

use redrive::engine::Ticket;

use crate::lane::Lane;

#[derive(Debug)]
struct Open {
    /// Copies that are not acknowledged.
    copies: usize,
    epoch: u32,
    /// For each lane it touched, the last of its marks.
    marks: Vec<(usize, u64)>,
}

/// Batches that were given and not yet reported.
#[derive(Debug, Default)]
pub struct Tickets {
    open: VecDeque<Open>,
    /// How many were given so far.
    given: u64,
}

impl Tickets {
    pub fn begin(&mut self, epoch: u32) -> Ticket {
        self.given += 1;
        self.open.push_back(Open { copies: 0, epoch, marks: Vec::new() });
        Ticket(self.given)
    }

    fn get(&mut self, ticket: Ticket) -> Option<&mut Open> {
        let first = self.given - self.open.len() as u64 + 1;
        let at = ticket.0.checked_sub(first)?;
        self.open.get_mut(at as usize)
    }

    /// One of its verdicts waits for a copy.
    pub fn copying(&mut self, ticket: Ticket) {
        if let Some(open) = self.get(ticket) {
            open.copies += 1;
        }
    }

    /// A copy of it is there.
    pub fn copied(&mut self, ticket: Ticket) {
        if let Some(open) = self.get(ticket) {
            open.copies -= 1;
        }
    }

    /// One of its records is marked; `mark` counts the marks of the lane.
    pub fn marked(&mut self, ticket: Ticket, lane: usize, mark: u64) {
        let Some(open) = self.get(ticket) else { return };
        match open.marks.iter_mut().find(|(touched, _)| *touched == lane) {
            Some((_, last)) => *last = mark.max(*last),
            None => open.marks.push((lane, mark)),
        }
    }

    /// The last batch that is durable with all before it, if that is news. What was marked in an assignment that is over
    /// will be repeated by somebody; nobody has to wait for it.
    pub fn durable(&mut self, lanes: &[Lane], epoch: u32) -> Option<Ticket> {
        let is_kept = |open: &Open| {
            let kept = |(lane, mark): &(usize, u64)| lanes.get(*lane).is_none_or(|lane| lane.kept >= *mark);
            open.copies == 0 && (open.epoch != epoch || open.marks.iter().all(kept))
        };
        let before = self.open.len();
        while self.open.front().is_some_and(is_kept) {
            self.open.pop_front();
        }
        (self.open.len() < before).then(|| Ticket(self.given - self.open.len() as u64))
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Everything counts as durable: the engine was closed in order.
    pub fn end(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use redrive::engine::completion::CompletionSet;

    use super::*;
    use crate::lane::LaneKind;
    use crate::room::Room;
    use crate::suspects::Suspected;

    fn lane(kept: u64) -> Lane {
        let room = Arc::new(Room::new(1, 1));
        let lane =
            Lane::new(LaneKind::Source, "t".into(), 0, CompletionSet::default(), Suspected::default(), room);
        Lane { kept, ..lane }
    }

    #[test]
    fn batches_become_durable_in_the_order_they_were_given() {
        let mut tickets = Tickets::default();
        let (first, second) = (tickets.begin(1), tickets.begin(1));
        tickets.copying(first);
        tickets.marked(second, 0, 3);
        assert_eq!(tickets.durable(&[lane(9)], 1), None);
        tickets.marked(first, 0, 5);
        tickets.copied(first);
        assert_eq!(tickets.durable(&[lane(4)], 1), None);
        assert_eq!(tickets.durable(&[lane(5)], 1), Some(second));
        assert_eq!(tickets.durable(&[lane(5)], 1), None, "it is told once");
    }

    #[test]
    fn nobody_waits_for_marks_in_partitions_that_are_gone() {
        let mut tickets = Tickets::default();
        let ticket = tickets.begin(1);
        tickets.marked(ticket, 3, 7);
        assert_eq!(tickets.durable(&[], 2), Some(ticket));
    }
}
