//! Tracks which batches were given to the writer, which are durable, and which of these were reported.

use std::collections::VecDeque;

use crate::engine::seam::Ticket;

#[derive(Debug, Default)]
pub(crate) struct Tickets {
    given: u64,
    durable: u64,
    /// Issued to the caller and not yet reported as durable.
    unreported: VecDeque<Ticket>,
}

impl Tickets {
    /// Issues the next ticket.
    pub(crate) fn issue(&mut self) -> Ticket {
        self.given += 1;
        Ticket(self.given)
    }

    /// Issues the next ticket, to be reported to the caller.
    pub(crate) fn issue_reported(&mut self) -> Ticket {
        let ticket = self.issue();
        self.unreported.push_back(ticket);
        ticket
    }

    /// The last ticket issued.
    pub(crate) fn last(&self) -> Ticket {
        Ticket(self.given)
    }

    /// The ticket that will be issued next.
    pub(crate) fn upcoming(&self) -> Ticket {
        Ticket(self.given + 1)
    }

    /// Records that the batch of this ticket and all before it are durable.
    pub(crate) fn durable(&mut self, Ticket(ticket): Ticket) {
        self.durable = self.durable.max(ticket);
    }

    pub(crate) fn is_durable(&self, Ticket(ticket): Ticket) -> bool {
        ticket <= self.durable
    }

    /// The latest ticket that became durable since the last call.
    pub(crate) fn report(&mut self) -> Option<Ticket> {
        let mut last = None;
        while let Some(ticket) = self.unreported.pop_front_if(|ticket| ticket.0 <= self.durable) {
            last = Some(ticket);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_durable_ticket_stands_for_all_before_it() {
        let mut tickets = Tickets::default();
        let [first, own, second] = [tickets.issue_reported(), tickets.issue(), tickets.issue_reported()];
        assert_eq!(tickets.report(), None);
        tickets.durable(own);
        assert!(tickets.is_durable(first) && !tickets.is_durable(second));
        assert_eq!((tickets.report(), tickets.report()), (Some(first), None));
        tickets.durable(second);
        assert_eq!(tickets.report(), Some(second));
        assert_eq!((tickets.last(), tickets.upcoming()), (Ticket(3), Ticket(4)));
    }
}
