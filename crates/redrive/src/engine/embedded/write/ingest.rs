//! How messages enter a store: bounded, and answered after the sync.

use std::sync::Arc;

use redrive_core::Time;
use tokio::sync::oneshot;

use super::command::{Command, Note};
use super::mailbox::{Mailbox, Refused};
use crate::engine::ingest::{Ingest, IngestAnswer, IngestError, NewMessage};

/// If more than this is waiting to be written, ingest answers "busy".
const INGEST_BYTES_MAX: usize = 64 << 20;

/// A handle through which messages enter a store.
#[derive(Debug, Clone)]
pub(crate) struct StoreIngest {
    pub(crate) commands: Arc<Mailbox<Command>>,
    pub(crate) notes: Arc<Mailbox<Note>>,
}

impl Ingest for StoreIngest {
    fn submit(&self, batch: Vec<NewMessage>, now: Time) -> oneshot::Receiver<IngestAnswer> {
        let (answer, receiver) = oneshot::channel();
        let command = Command::Ingest { batch, now, answer };
        let bytes = command.bytes();
        // Durable batches that the owner has not taken in count too, so that memory is bounded whichever side is
        // slow.
        let room = INGEST_BYTES_MAX.saturating_sub(self.notes.bytes());
        if let Err((Command::Ingest { answer, .. }, refused)) = self.commands.offer(command, bytes, room) {
            let error = match refused {
                Refused::Full => IngestError::Busy,
                Refused::Closed => IngestError::NotTaking,
            };
            let _ = answer.send(Err(error));
        }
        receiver
    }
}
