//! Records which deliveries were started and came back, for the process that starts after a crash, and which messages
//! are suspected of having caused one.

use std::io;

use redrive_core::Time;

use super::in_flight::{Held, InFlight};
use super::tickets::Tickets;
use crate::engine::embedded::crash::started::{LastRun, Mark, Started};
use crate::engine::embedded::crash::suspected::Suspected;
use crate::engine::embedded::disk::real::DiskFile;
use crate::engine::embedded::journal::record::Was;
use crate::engine::seam::{
    Announced, Delivery, EngineError, Execution, Receipt, Settlement, Suspect, Ticket, Verdict,
};

#[derive(Debug)]
pub(crate) struct CrashMarks<F> {
    execution: Execution,
    started: Started<F>,
    suspects: Suspected<F>,
    /// Suspects that have finished, with the ticket that makes it durable.
    ending: Vec<(Ticket, u64)>,
}

impl<F: DiskFile> CrashMarks<F> {
    pub(crate) fn new(execution: Execution, started: Started<F>, suspects: Suspected<F>) -> Self {
        Self { execution, started, suspects, ending: Vec::new() }
    }

    /// The suspicion against this message, if any.
    pub(crate) fn suspect(&mut self, seq: u64, now: Time) -> Option<Box<Suspect>> {
        self.suspects.of(seq, now).map(Box::new)
    }

    /// Marks deliveries that are about to be started.
    pub(crate) fn started(&mut self, taken: &[Delivery], in_flight: &InFlight) -> Result<(), EngineError> {
        if taken.is_empty() || self.execution == Execution::Elsewhere {
            return Ok(());
        }
        let out = |delivery: &Delivery| mark_of(in_flight, &delivery.receipt);
        // A suspect may be in a different place than when it became one.
        if !self.suspects.is_empty() {
            for mark in taken.iter().filter_map(out) {
                self.suspects.moved(mark).map_err(|error| marking(&error))?;
            }
        }
        // Suspects are marked too: it adds no crash to a known suspect, and identifies one should its record be lost.
        let marked = self.started.mark(taken.iter().filter_map(out), || marks_of(in_flight));
        marked.map_err(|error| EngineError::Storage(format!("marking what was started: {error}")))
    }

    /// Records which of these deliveries came back, before their verdicts are written, so that they are not suspected
    /// if the process dies in between. Suspects that come back unstarted wait again. Those that ran are cleared, and
    /// forgotten once the batch that `tickets` issues next is durable.
    pub(crate) fn returned(
        &mut self,
        batch: &[Settlement],
        in_flight: &InFlight,
        tickets: &Tickets,
    ) -> Result<(), EngineError> {
        if self.execution != Execution::Elsewhere {
            let returned = batch.iter().filter(|settlement| settlement.verdict.clears());
            let returned = returned.filter_map(|settlement| mark_of(in_flight, &settlement.delivery.receipt));
            let marked = self.started.returned(returned, || marks_of(in_flight));
            marked.map_err(|error| EngineError::Storage(format!("marking what came back: {error}")))?;
        }
        if self.suspects.is_empty() {
            return Ok(());
        }
        for Settlement { delivery, verdict, .. } in batch {
            let seq = delivery.receipt.seq;
            if !self.suspects.is_known(seq) {
                continue;
            }
            if *verdict == Verdict::Release {
                self.suspects.released(seq).map_err(|error| marking(&error))?;
                continue;
            }
            if verdict.clears() {
                self.suspects.cleared(seq).map_err(|error| marking(&error))?;
            }
            self.ending.push((tickets.upcoming(), seq));
        }
        Ok(())
    }

    /// Forgets suspects whose end is durable.
    pub(crate) fn forget_ended(&mut self, tickets: &Tickets) -> Result<(), EngineError> {
        let ended = self.ending.partition_point(|(ticket, _)| tickets.is_durable(*ticket));
        for (_, seq) in self.ending.drain(..ended) {
            self.suspects.settled(seq).map_err(|error| marking(&error))?;
        }
        Ok(())
    }

    /// Announces a suspect that is about to run alone.
    pub(crate) fn announce(&mut self, next: &[Receipt]) -> Result<Announced, EngineError> {
        let Some(first) = next.first() else { return Ok(Announced::Gone) };
        if self.suspects.is_another_running(first.seq) {
            return Ok(Announced::NotYet);
        }
        self.suspects.announce(first.seq).map_err(|error| marking(&error))?;
        Ok(Announced::Yes)
    }

    /// Removes all marks at a clean end, because every delivery has come back.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.started.clear()
    }
}

impl Held {
    fn mark(&self, seq: u64) -> Mark {
        Mark {
            seq,
            due: if let Was::Waiting { due } = self.was { Some(due) } else { None },
            line: if self.was == Was::Blocked { self.key } else { None },
        }
    }
}

/// The mark of a delivery, unless the receipt is of an earlier hand-out.
fn mark_of(in_flight: &InFlight, receipt: &Receipt) -> Option<Mark> {
    Some(in_flight.of_receipt(receipt)?.mark(receipt.seq))
}

/// The marks of all deliveries handed out, to start a new file of marks with.
fn marks_of(in_flight: &InFlight) -> LastRun {
    let mut out = LastRun::default();
    for (seq, held) in in_flight.iter() {
        if held.goes.is_some() {
            out.returned.push(held.mark(seq));
        } else {
            out.running.push(held.mark(seq));
        }
    }
    out
}

fn marking(error: &io::Error) -> EngineError {
    EngineError::Storage(format!("marking suspects: {error}"))
}

#[cfg(test)]
mod tests {
    use redrive_core::{Message, Meta};

    use super::*;
    use crate::engine::embedded::disk::real::Disk;
    use crate::engine::embedded::disk::sim::SimDisk;
    use crate::engine::embedded::index::tables::Pointer;
    use crate::engine::history::History;
    use crate::engine::seam::LastEnd;

    const NOW: Time = Time::from_millis(1_000);

    /// Marks with message 1 as a suspect.
    fn marks(disk: &SimDisk, execution: Execution) -> CrashMarks<<SimDisk as Disk>::File> {
        let (started, _) = Started::open(disk).unwrap();
        let (mut suspects, _) = Suspected::open(disk, LastEnd::Unknown).unwrap();
        let running = vec![Mark { seq: 1, due: None, line: None }];
        suspects.adopt(&[], &LastRun { running, returned: Vec::new() }).unwrap();
        CrashMarks::new(execution, started, suspects)
    }

    fn handed_out(in_flight: &mut InFlight, seq: u64) -> Delivery {
        Delivery {
            receipt: in_flight.hand_out(seq, Held::started(Was::Fresh, None, Pointer::new(0, 64))),
            message: Message::builder(format!("m-{seq}")).build().unwrap(),
            meta: Meta::default(),
            history: History::default(),
            due: None,
            arrived: None,
            origin: None,
            doomed: None,
            suspect: None,
        }
    }

    fn settled(delivery: Delivery, verdict: Verdict) -> Settlement {
        Settlement { delivery, verdict, attempt: None }
    }

    #[test]
    fn a_suspect_that_comes_back_is_forgotten_once_its_verdict_is_durable() {
        let disk = SimDisk::new();
        let (mut marks, mut in_flight) = (marks(&disk, Execution::InProcess), InFlight::new(0));
        let mut tickets = Tickets::default();
        assert_eq!(marks.suspect(1, NOW).unwrap().crashes, 1);
        let delivery = handed_out(&mut in_flight, 1);
        marks.started(std::slice::from_ref(&delivery), &in_flight).unwrap();
        assert_eq!(marks.announce(&[delivery.receipt]).unwrap(), Announced::Yes);
        let other = handed_out(&mut in_flight, 2);
        assert_eq!(marks.announce(&[other.receipt]).unwrap(), Announced::NotYet, "one at a time");

        marks.returned(&[settled(delivery, Verdict::Done)], &in_flight, &tickets).unwrap();
        let ticket = tickets.issue_reported();
        assert_eq!(marks.suspect(1, NOW), None, "it came back");
        marks.forget_ended(&tickets).unwrap();
        assert!(!marks.suspects.is_empty(), "its verdict is not durable");
        tickets.durable(ticket);
        marks.forget_ended(&tickets).unwrap();
        assert!(marks.suspects.is_empty());
    }

    #[test]
    fn what_was_started_and_did_not_come_back_is_found_by_the_next_process() {
        for (execution, running) in [(Execution::InProcess, vec![3]), (Execution::Elsewhere, Vec::new())] {
            let disk = SimDisk::new();
            let mut in_flight = InFlight::new(0);
            let mut marks = marks(&disk, execution);
            let taken = [2, 3].map(|seq| handed_out(&mut in_flight, seq));
            marks.started(&taken, &in_flight).unwrap();
            let [came_back, _] = taken;
            let batch = [settled(came_back, Verdict::Done)];
            marks.returned(&batch, &in_flight, &Tickets::default()).unwrap();
            drop(marks);
            let (_, last_run) = Started::open(&disk).unwrap();
            let found: Vec<u64> = last_run.running.iter().map(|mark| mark.seq).collect();
            assert_eq!(found, running, "{execution:?}");
        }
    }
}
