//! The polling thread's side of being replaced: it steps back, and joins again with a new consumer.

use std::time::Instant;

use rdkafka::consumer::Consumer;

use crate::commit::committer::Committer;
use crate::consume::mailbox::Note;
use crate::consume::membership::{ABSENT_MAX, UNANSWERED_MAX};
use crate::consume::membership::{JOIN_AGAIN_AFTER, join};
use crate::consume::poll::Polling;

impl Polling {
    /// Whether the member is out of its group for now, so that there is nothing to poll.
    pub(crate) fn is_out(&mut self) -> bool {
        match self.fenced.joining_at {
            None => false,
            Some(at) => {
                if Instant::now() >= at {
                    self.join_again();
                }
                true
            }
        }
    }

    /// The group has replaced this member. Whether by another process: then there is no way back.
    pub(crate) fn was_replaced(&mut self) -> bool {
        let now = Instant::now();
        if self.fenced.joining_at.is_some() {
            return false;
        }
        if self.fenced.again(now) {
            return true;
        }
        tracing::warn!("the group has replaced this member; it joins again in a moment");
        self.step_back(now + JOIN_AGAIN_AFTER);
        false
    }

    /// A client that has lost its way tells nobody: it is in no group, and nothing comes.
    pub(crate) fn look_for_group(&mut self) {
        let now = Instant::now();
        // The group has given it partitions, and nobody answers when it asks where they begin.
        let is_unanswered = self.assigning.is_some();
        let is_member = self.releasing.is_some() || self.consumer.context().is_member(now).unwrap_or(true);
        self.mailbox.note_membership(is_member && !is_unanswered && !self.lanes.is_empty());
        let patience = if is_unanswered { UNANSWERED_MAX } else { ABSENT_MAX };
        if self.absent.for_too_long(is_member && !is_unanswered, patience, now) {
            let seconds = patience.as_secs();
            tracing::warn!(
                "for {seconds} s this member has been in no group, or has had no answer; it joins again with a new client"
            );
            self.step_back(now);
        }
    }

    fn step_back(&mut self, joining_at: Instant) {
        self.mailbox.note_membership(false);
        self.fenced.joining_at = Some(joining_at);
        // They are somebody else's already: there is nothing to drain and nothing to commit.
        self.assigning = None;
        self.releasing = None;
        self.committing = None;
        self.lanes.clear();
        self.mailbox.tell(Note::Gone { epoch: self.epoch });
    }

    /// A consumer after a fatal error is of no use; another one takes its place.
    fn join_again(&mut self) {
        let joined = join(&self.config, &self.topics, &self.mailbox)
            .and_then(|consumer| Ok((Committer::start(&consumer, &self.mailbox)?, consumer)));
        match joined {
            Ok((committer, consumer)) => {
                self.consumer.context().close();
                let old = std::mem::replace(&mut self.consumer, consumer);
                let mut commits = std::mem::replace(&mut self.committer, committer);
                // Its end waits for its threads.
                std::thread::spawn(move || {
                    commits.end();
                    drop(old);
                });
                self.fenced.joining_at = None;
            }
            Err(error) => {
                tracing::warn!(%error, "the group cannot be joined again yet");
                self.fenced.joining_at = Some(Instant::now() + JOIN_AGAIN_AFTER);
            }
        }
    }
}
