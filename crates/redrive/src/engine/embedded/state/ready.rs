//! Ready messages in order of arrival: the newest straight from memory, a backlog from the journal.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::engine::completion::CompletionSet;
use crate::engine::embedded::disk::real::Disk;
use crate::engine::embedded::index::tables::Pointer;
use crate::engine::embedded::journal::frame::{Frame, frame_len};
use crate::engine::embedded::journal::log::ReadError;
use crate::engine::embedded::journal::reader::{Reader, Scanned};
use crate::engine::embedded::journal::record::{AcceptedBody, kind};

/// How much of a backlog is kept in memory.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// How much is read from the journal at once.
const READ_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub struct ReadyMessage {
    pub seq: u64,
    pub pointer: Pointer,
    /// `None` if the stored bytes are damaged.
    pub wire: Option<Bytes>,
}

#[derive(Debug)]
pub struct Ready<D: Disk> {
    reader: Reader<D>,
    queue: VecDeque<ReadyMessage>,
    queue_bytes: usize,
    /// Everything before this position is in the queue or was handed out.
    next: u64,
    /// The end of the durable part.
    end: u64,
    /// The number the next accepted message must have; a gap means that one was lost to damage.
    expected: Option<u64>,
    /// Message numbers with a position from which they can be read, oldest first.
    marks: VecDeque<(u64, u64)>,
}

impl<D: Disk> Ready<D> {
    pub fn new(reader: Reader<D>, from: u64, end: u64, expected: Option<u64>) -> Self {
        Self {
            reader,
            queue: VecDeque::new(),
            queue_bytes: 0,
            next: from,
            end,
            expected,
            marks: VecDeque::new(),
        }
    }

    /// Whether the batch just committed directly follows what is in the queue, so that its frames may be offered.
    pub fn follows_on(&self) -> bool {
        self.next == self.end && self.queue_bytes < QUEUE_BYTES_MAX
    }

    /// Takes one frame of such a batch.
    pub fn offer(&mut self, frame: &Frame, departed: &CompletionSet) {
        if frame.kind == kind::ACCEPTED {
            self.accept(frame, departed);
        }
    }

    /// Records that a batch is durable up to `end`; `offered` if its frames are in the queue already.
    pub fn extend(&mut self, end: u64, offered: bool) {
        self.end = end;
        if offered {
            self.next = end;
        }
    }

    /// The next ready message; all of them have numbers below `next_seq`.
    pub fn pop(
        &mut self,
        departed: &CompletionSet,
        next_seq: u64,
    ) -> Result<Option<ReadyMessage>, ReadError> {
        self.look(departed, next_seq)?;
        let message = self.queue.pop_front();
        if let Some(message) = &message {
            self.queue_bytes -= message.pointer.len as usize;
        }
        Ok(message)
    }

    /// The stored form of the next message, if it is readable.
    pub fn first(&mut self, departed: &CompletionSet, next_seq: u64) -> Result<Option<&Bytes>, ReadError> {
        self.look(departed, next_seq)?;
        Ok(self.queue.front().and_then(|message| message.wire.as_ref()))
    }

    /// Makes sure that the next message, if there is one, is in the queue.
    fn look(&mut self, departed: &CompletionSet, next_seq: u64) -> Result<(), ReadError> {
        if self.queue.is_empty() && self.expected == Some(next_seq) {
            // The rest of the journal has no unread message: walking through it would delay everything else.
            self.next = self.end;
        }
        while self.queue.is_empty() && self.next < self.end {
            self.fill(departed)?;
        }
        Ok(())
    }

    pub fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.next >= self.end
    }

    /// All messages below this number were handed out or skipped.
    pub fn next_seq(&self) -> u64 {
        self.queue.front().map_or(self.expected.unwrap_or(0), |message| message.seq)
    }

    /// The position and number to resume from, so that all messages from `prefix` on are found again.
    pub fn resume_from(&mut self, prefix: u64) -> (u64, u64) {
        if let Some(expected) = self.expected.filter(|expected| *expected <= prefix && self.queue.is_empty())
        {
            // Everything that was read is finished. If one message fails again and again, it may take long until a new
            // one comes, and old frames must not be kept until then.
            self.marks.clear();
            return (self.next, expected);
        }
        while self.marks.len() > 1 && self.marks[1].0 <= prefix {
            self.marks.pop_front();
        }
        let (seq, position) = self.marks.front().copied().unwrap_or((self.expected.unwrap_or(0), self.next));
        (position, seq)
    }

    fn fill(&mut self, departed: &CompletionSet) -> Result<(), ReadError> {
        let reader = self.reader.clone();
        let to = self.end.min(self.next + READ_BYTES);
        let from = self.next;
        self.next = reader.scan(from, to, |scanned| {
            match scanned {
                Scanned::Frame(frame) if frame.kind == kind::ACCEPTED => self.accept(&frame, departed),
                Scanned::Rot(rot) => {
                    if let Some(header) = rot.header.filter(|header| header.kind == kind::ACCEPTED) {
                        let pointer = Pointer::new(rot.position, rot.len as u32);
                        self.mark(header.tag, rot.position);
                        self.skip_to(header.tag, departed);
                        self.expected = Some(header.tag + 1);
                        self.lost(header.tag, pointer, departed);
                    }
                }
                Scanned::Frame(_) | Scanned::Batch(_) => {}
            }
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    fn accept(&mut self, frame: &Frame, departed: &CompletionSet) {
        let seq = frame.tag;
        self.mark(seq, frame.position);
        self.skip_to(seq, departed);
        self.expected = Some(seq + 1);
        if departed.contains(seq) {
            return;
        }
        let pointer = Pointer::new(frame.position, frame_len(frame.body.len()) as u32);
        let wire = AcceptedBody::read(frame.body.clone()).map(|body| body.wire);
        self.queue_bytes += pointer.len as usize;
        self.queue.push_back(ReadyMessage { seq, pointer, wire });
    }

    /// Remembers that reading from `position` finds `seq`, and before it everything that is missing up to it.
    fn mark(&mut self, seq: u64, position: u64) {
        let far_from_last = |mark: &(u64, u64)| position - mark.1 >= READ_BYTES;
        if self.marks.back().is_none_or(far_from_last) {
            self.marks.push_back((self.expected.unwrap_or(seq).min(seq), position));
        }
    }

    /// Numbers have no gaps, so numbers missing before `seq` were in frames that are lost without a trace.
    fn skip_to(&mut self, seq: u64, departed: &CompletionSet) {
        for missing in self.expected.unwrap_or(seq)..seq {
            self.lost(missing, Pointer::new(0, 0), departed);
        }
    }

    fn lost(&mut self, seq: u64, pointer: Pointer, departed: &CompletionSet) {
        if !departed.contains(seq) {
            self.queue_bytes += pointer.len as usize;
            self.queue.push_back(ReadyMessage { seq, pointer, wire: None });
        }
    }

    /// Adds the numbers that are lost because the journal ends before them.
    pub fn lose_until(&mut self, next_seq: u64, departed: &CompletionSet) {
        if self.is_drained() && self.expected.is_some_and(|expected| expected < next_seq) {
            self.mark(next_seq, self.next);
            self.skip_to(next_seq, departed);
            self.expected = Some(next_seq);
        }
    }
}
