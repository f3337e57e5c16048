//! Batches until they are durable: their copies acknowledged, and their marks committed or in `T.progress`. No I/O.

use std::collections::BTreeMap;

use redrive::internal::engine::{Event, Ticket};

use crate::backlog::lanes::Lanes;

#[derive(Debug)]
struct OpenBatch {
    /// Copies that are not acknowledged yet.
    copies: usize,
    epoch: u32,
    /// The last of its marks in each lane.
    marks: Vec<(usize, u64)>,
}

/// Batches whose durability has not been reported yet.
#[derive(Debug, Default)]
pub struct Tickets {
    open: BTreeMap<u64, OpenBatch>,
    /// How many tickets were given so far.
    given: u64,
}

impl Tickets {
    pub fn begin(&mut self, epoch: u32) -> Ticket {
        self.given += 1;
        self.open.insert(self.given, OpenBatch { copies: 0, epoch, marks: Vec::new() });
        Ticket(self.given)
    }

    fn get(&mut self, ticket: Ticket) -> Option<&mut OpenBatch> {
        self.open.get_mut(&ticket.0)
    }

    /// Notes that one of its verdicts waits for a copy.
    pub fn copying(&mut self, ticket: Ticket) {
        if let Some(open) = self.get(ticket) {
            open.copies += 1;
        }
    }

    /// Notes that one of its copies was acknowledged.
    pub fn copied(&mut self, ticket: Ticket) {
        if let Some(open) = self.get(ticket) {
            open.copies -= 1;
        }
    }

    /// Notes that one of its records is marked; `mark` is the number of that mark in the lane.
    pub fn marked(&mut self, ticket: Ticket, lane: usize, mark: u64) {
        let Some(open) = self.get(ticket) else { return };
        match open.marks.iter_mut().find(|(touched, _)| *touched == lane) {
            Some((_, last)) => *last = mark.max(*last),
            None => open.marks.push((lane, mark)),
        }
    }

    /// Reports newly durable batches: the last of those that are durable without a gap, and if `is_held`, when the
    /// first may stay open for long, also each one behind a gap. Marks of an assignment that is over count as durable:
    /// the next owner delivers those messages again, so nothing waits for them.
    pub fn durable(&mut self, lanes: &Lanes, is_held: bool, out: &mut Vec<Event>) {
        let is_kept = |open: &OpenBatch| {
            let kept =
                |(lane, mark): &(usize, u64)| lanes.get(*lane).is_none_or(|lane| lane.done.is_durable(*mark));
            open.copies == 0 && (open.epoch != lanes.epoch() || open.marks.iter().all(kept))
        };
        let mut last = None;
        while let Some(first) = self.open.first_entry().filter(|first| is_kept(first.get())) {
            last = Some(*first.key());
            first.remove();
        }
        out.extend(last.map(|last| Event::Durable(Ticket(last))));
        if is_held {
            let behind = self.open.extract_if(.., |_, open| is_kept(open));
            out.extend(behind.map(|(ticket, _)| Event::DurableAlone(Ticket(ticket))));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Treats everything as durable, after the engine was closed cleanly.
    pub fn end(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::lanes::tests::lanes;
    use crate::commit::progress::CommitStanding;

    /// Lanes in epoch 3 with this many committed marks in the first lane.
    fn kept(marks: u64) -> Lanes {
        let mut lanes = lanes();
        (0..marks).for_each(|offset| assert!(lanes[0].done.mark(offset)));
        let begun = lanes[0].done.begin_commit(&CommitStanding::default());
        lanes[0].done.accepted(begun.covers);
        lanes
    }

    fn durable(tickets: &mut Tickets, lanes: &Lanes, is_held: bool) -> Vec<Event> {
        let mut out = Vec::new();
        tickets.durable(lanes, is_held, &mut out);
        out
    }

    #[test]
    fn batches_become_durable_in_the_order_they_were_given() {
        let mut tickets = Tickets::default();
        let (first, second) = (tickets.begin(3), tickets.begin(3));
        tickets.copying(first);
        tickets.marked(second, 0, 3);
        assert_eq!(durable(&mut tickets, &kept(9), false), []);
        tickets.marked(first, 0, 5);
        tickets.copied(first);
        assert_eq!(durable(&mut tickets, &kept(4), false), []);
        assert_eq!(durable(&mut tickets, &kept(5), false), [Event::Durable(second)]);
        assert_eq!(durable(&mut tickets, &kept(5), false), [], "it is told once");
    }

    #[test]
    fn a_batch_that_is_held_does_not_hold_up_those_behind_it() {
        let mut tickets = Tickets::default();
        let [first, second, third, fourth] = [(); 4].map(|()| tickets.begin(3));
        tickets.copying(second);
        tickets.marked(fourth, 0, 7);
        let told = durable(&mut tickets, &kept(5), true);
        assert_eq!(told, [Event::Durable(first), Event::DurableAlone(third)]);
        tickets.copied(second);
        assert_eq!(durable(&mut tickets, &kept(7), true), [Event::Durable(fourth)], "with the one before it");
    }

    #[test]
    fn nobody_waits_for_marks_in_partitions_that_are_gone() {
        let mut tickets = Tickets::default();
        let ticket = tickets.begin(3);
        tickets.marked(ticket, 3, 7);
        let mut gone = kept(0);
        gone.end();
        assert_eq!(durable(&mut tickets, &gone, false), [Event::Durable(ticket)]);
    }
}
