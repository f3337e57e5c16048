//! The states that each message may be in, as far as the acknowledgements tell.
//!
//! An acknowledgement leaves one state. A step that was announced and never acknowledged may have happened or not; then
//! there are two states, until something else is observed about the message.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::acks::{Line, Step};

/// Where a message is, as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LedgerState {
    /// It will be delivered, or is handed out.
    Pending,
    Done,
    Letter,
    Discarded,
}

/// What is known about one accepted message.
#[derive(Debug, Clone)]
pub struct KnownMessage {
    pub id: String,
    pub key: Option<String>,
    pub may_be: Vec<LedgerState>,
    /// Handed out in the current run and, as far as was acknowledged, neither settled nor released.
    pub out: bool,
    /// A settlement of it is in progress.
    pub settling: bool,
    /// It was a letter once; from then on it is not bound to the order of its key.
    pub was_letter: bool,
    pub jobs: HashSet<u64>,
}

/// The messages of one pipeline by number.
#[derive(Debug, Default, Clone)]
pub struct Book {
    pub known: BTreeMap<u64, KnownMessage>,
    /// Messages that were offered and never answered: they may exist.
    pub offered: HashMap<String, Option<String>>,
    /// By key: messages that may still have to come before others.
    lines: HashMap<String, BTreeSet<u64>>,
}

#[derive(Debug, Default, Clone)]
pub struct Ledger {
    pub books: HashMap<String, Book>,
    pub runs: u64,
    pub clean: bool,
    pub acknowledged: u64,
    /// Whether the log is between a power cut and the next opening.
    cut: bool,
}

impl Ledger {
    /// Folds the lines of the file. Returns `Err` if the victim observed something that must not happen.
    pub fn of(lines: &[Line]) -> Result<Self, String> {
        let mut ledger = Self::default();
        for line in lines {
            ledger.fold(line)?;
        }
        Ok(ledger)
    }

    fn fold(&mut self, line: &Line) -> Result<(), String> {
        self.clean = *line == Line::Closed;
        if self.cut && *line != Line::Opened {
            self.doubt(line);
            return Ok(());
        }
        match line {
            Line::Cut => {
                self.cut = true;
                Ok(())
            }
            Line::Opened | Line::Closed => {
                self.runs += u64::from(*line == Line::Opened);
                self.cut = false;
                for known in self.books.values_mut().flat_map(|book| book.known.values_mut()) {
                    (known.out, known.settling) = (false, false);
                }
                Ok(())
            }
            Line::Closing { pipeline } => {
                let book = self.books.entry(pipeline.clone()).or_default();
                book.known.values_mut().for_each(|known| known.out = false);
                Ok(())
            }
            Line::Offer { pipeline, id, key } => {
                let book = self.books.entry(pipeline.clone()).or_default();
                book.offered.insert(id.clone(), key.clone());
                Ok(())
            }
            Line::Accepted { pipeline, seq, id } => {
                self.acknowledged += 1;
                let book = self.books.entry(pipeline.clone()).or_default();
                book.accept(*seq, id).map_err(|what| format!("{pipeline}: {what}"))
            }
            Line::Taken { pipeline, seq, id } => {
                let book = self.books.entry(pipeline.clone()).or_default();
                let said = book.taken(*seq, id);
                said.map_err(|what| format!("run {}, {pipeline} #{seq}: {what}", self.runs))
            }
            Line::Step { pipeline, seq, step, acknowledged } => {
                self.acknowledged += u64::from(*acknowledged);
                let book = self.books.entry(pipeline.clone()).or_default();
                let said = book.step(*seq, *step, *acknowledged);
                said.map_err(|what| format!("run {}, {pipeline} #{seq}: {what}", self.runs))
            }
        }
    }
}

impl Ledger {
    /// Takes in a line written after a power cut: it may have happened or not.
    fn doubt(&mut self, line: &Line) {
        match line {
            Line::Offer { pipeline, id, key } => {
                let book = self.books.entry(pipeline.clone()).or_default();
                book.offered.insert(id.clone(), key.clone());
            }
            Line::Step { pipeline, seq, step, acknowledged: _ } => {
                let known = self.books.get_mut(pipeline).and_then(|book| book.known.get_mut(seq));
                if let Some(known) = known
                    && !matches!(step, Step::Released | Step::Retry)
                {
                    known.may_be = vec![
                        LedgerState::Pending,
                        LedgerState::Done,
                        LedgerState::Letter,
                        LedgerState::Discarded,
                    ];
                }
            }
            // What was unknown before the cut stays unknown.
            Line::Accepted { .. }
            | Line::Taken { .. }
            | Line::Opened
            | Line::Closing { .. }
            | Line::Closed
            | Line::Cut => {}
        }
    }
}

impl Book {
    /// Adds a message, because it was answered or handed out, whichever came first.
    fn accept(&mut self, seq: u64, id: &str) -> Result<(), String> {
        match self.known.get(&seq) {
            Some(known) if known.id == id => return Ok(()),
            Some(known) => return Err(format!("#{seq} is {id} and was {} before", known.id)),
            None => {}
        }
        let key = self.offered.remove(id).ok_or_else(|| format!("{id} was never offered, or came twice"))?;
        let known = KnownMessage {
            id: id.to_owned(),
            key,
            may_be: vec![LedgerState::Pending],
            out: false,
            settling: false,
            was_letter: false,
            jobs: HashSet::new(),
        };
        if let Some(key) = &known.key {
            self.lines.entry(key.clone()).or_default().insert(seq);
        }
        self.known.insert(seq, known);
        Ok(())
    }

    /// Notes that a message was handed out.
    pub fn taken(&mut self, seq: u64, id: &str) -> Result<(), String> {
        self.accept(seq, id)?;
        self.in_order(seq)?;
        let known = self.known.get_mut(&seq).ok_or("nobody knows it")?;
        if !known.may_be.contains(&LedgerState::Pending) {
            return Err(format!("{id} is {:?} and was handed out again", known.may_be));
        }
        if known.out {
            return Err(format!("{id} was handed out twice"));
        }
        known.out = true;
        known.may_be = vec![LedgerState::Pending];
        Ok(())
    }

    pub fn step(&mut self, seq: u64, step: Step, acknowledged: bool) -> Result<(), String> {
        let known = self.known.get_mut(&seq).ok_or("nobody knows it")?;
        let (from, to) = match step {
            Step::Released | Step::Retry => (LedgerState::Pending, LedgerState::Pending),
            Step::Done => (LedgerState::Pending, LedgerState::Done),
            Step::Dead => (LedgerState::Pending, LedgerState::Letter),
            Step::Replay { .. } => (LedgerState::Letter, LedgerState::Pending),
            Step::Discard => (LedgerState::Letter, LedgerState::Discarded),
            Step::Undo => (LedgerState::Discarded, LedgerState::Letter),
        };
        let expected = if acknowledged { to } else { from };
        if !known.may_be.contains(&expected) {
            let (id, may_be) = (&known.id, &known.may_be);
            return Err(format!("{id} may be {may_be:?}, and now {step:?} (acknowledged: {acknowledged})"));
        }
        match step {
            Step::Released => known.out = false,
            Step::Done | Step::Retry | Step::Dead => {
                known.settling = !acknowledged;
                known.out = !acknowledged;
            }
            Step::Replay { job } if acknowledged && !known.jobs.insert(job) => {
                return Err(format!("{} was replayed twice by job {job}", known.id));
            }
            Step::Replay { .. } | Step::Discard | Step::Undo => {}
        }
        known.was_letter |= to == LedgerState::Letter || from == LedgerState::Letter;
        known.may_be = if acknowledged || from == to { vec![to] } else { vec![from, to] };
        Ok(())
    }

    /// Checks that no later message of a key starts before an earlier one is terminal.
    fn in_order(&mut self, seq: u64) -> Result<(), String> {
        let Some(this) = self.known.get(&seq) else { return Ok(()) };
        let Some(key) = this.key.as_ref().filter(|_| !this.was_letter) else { return Ok(()) };
        let Some(line) = self.lines.get_mut(key) else { return Ok(()) };
        let over = |known: &KnownMessage| known.was_letter || !known.may_be.contains(&LedgerState::Pending);
        line.retain(|member| *member >= seq || self.known.get(member).is_some_and(|known| !over(known)));
        let waits = |known: &&KnownMessage| known.may_be == [LedgerState::Pending];
        match line.range(..seq).filter_map(|member| self.known.get(member)).find(waits) {
            Some(before) => Err(format!("{} started before {} of its key was over", this.id, before.id)),
            None => Ok(()),
        }
    }
}
