//! Pages of pending messages. A call scans a bounded number of messages, in small batches, so that deliveries go on.

use redrive_core::Message;

use super::cursor::{Cursor, PARTS};
use crate::engine::{PendingMessage, PendingScan, PendingState};
use crate::handle::{HandleError, PipelineHandle};
use crate::letters::Filter;
use crate::run::steer::{self, Part};

/// Messages scanned for one page; the cursor continues from there.
pub const SCAN_MAX: usize = 10_000;
/// The largest page.
pub const PAGE_MAX: usize = 1_000;
/// Approximate bytes of one page.
pub const PAGE_BYTES: usize = 16 << 20;
/// Messages read from the engine at once, and entries that the engine scans to find them.
const READ_MAX: usize = 64;
const LOOK_MAX: usize = 1_024;

/// Selects pending messages.
///
/// ```
/// use redrive::messages::MessageQuery;
/// use redrive::PendingState;
///
/// let held = MessageQuery { state: Some(PendingState::Held), ..MessageQuery::default() };
/// ```
#[derive(Clone, Debug, Default)]
pub struct MessageQuery {
    /// Messages in this state.
    pub state: Option<PendingState>,
    /// Messages that match this filter.
    pub filter: Option<Filter>,
}

/// A message with its displayed state: while nothing may start, messages that would be ready or delayed are shown as
/// held.
#[derive(Clone, Debug)]
pub struct ListedMessage {
    /// The displayed state.
    pub state: PendingState,
    /// The message and its position.
    pub found: PendingMessage,
}

impl ListedMessage {
    /// The message.
    pub fn message(&self) -> &Message {
        &self.found.message
    }
}

/// A page of a listing.
#[derive(Clone, Debug, Default)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<ListedMessage>,
    /// Where to continue; `None` at the end.
    pub next: Option<Cursor>,
    /// Messages that were scanned.
    pub scanned: u64,
    /// Messages that are known to be pending but cannot be listed: those that a Kafka member has not read yet.
    pub unlisted: u64,
}

impl MessageQuery {
    /// Up to `limit` messages from the cursor on. A message that changes state meanwhile may be missed or listed
    /// twice.
    pub async fn page(
        &self,
        handle: &PipelineHandle,
        from: Option<Cursor>,
        limit: usize,
    ) -> Result<MessagePage, HandleError> {
        let (now, limit) = (handle.now(), limit.clamp(1, PAGE_MAX));
        let gated = handle.figures().is_gated();
        let mut page = MessagePage::default();
        let mut bytes = 0;
        let mut at = from.or_else(|| self.next_part(None, gated));
        while let Some(Cursor { part, after }) = at {
            let is_full = page.messages.len() >= limit || bytes >= PAGE_BYTES;
            if is_full || page.scanned as usize >= SCAN_MAX {
                page.next = at;
                break;
            }
            let wanted = READ_MAX.min(limit - page.messages.len());
            let scan = scan(handle, part, after, wanted, LOOK_MAX).await?;
            page.scanned += scan.scanned;
            page.unlisted += if after.is_none() { scan.unlisted } else { 0 };
            let fits = |found: &PendingMessage| {
                self.filter.as_ref().is_none_or(|filter| filter.matches_pending(found, now))
            };
            for found in scan.messages.into_iter().filter(fits) {
                bytes += found.size();
                page.messages.push(ListedMessage { state: shown_as(part, gated), found });
            }
            at = match scan.next {
                Some(after) => Some(Cursor { part, after: Some(after) }),
                None => self.next_part(Some(part), gated),
            };
        }
        Ok(page)
    }

    /// The beginning of the next part that may contain matching messages.
    fn next_part(&self, after: Option<Part>, gated: bool) -> Option<Cursor> {
        let done = after.map_or(0, |after| 1 + PARTS.iter().take_while(|part| **part != after).count());
        let is_meant = |part: &&Part| self.state.is_none_or(|state| shown_as(**part, gated) == state);
        let part = PARTS.iter().skip(done).find(is_meant)?;
        Some(Cursor { part: *part, after: None })
    }
}

/// The state in which messages of a part are counted and shown.
pub(super) fn shown_as(part: Part, gated: bool) -> PendingState {
    match part {
        Part::Waiting(PendingState::Ready | PendingState::Delayed) | Part::Unstarted if gated => {
            PendingState::Held
        }
        Part::Waiting(state) => state,
        Part::Unstarted => PendingState::Ready,
        Part::Started => PendingState::InFlight,
    }
}

pub(super) async fn scan(
    handle: &PipelineHandle,
    part: Part,
    after: Option<(u64, u64)>,
    limit: usize,
    look_max: usize,
) -> Result<PendingScan, HandleError> {
    handle
        .ask(move |asked| match (part, &asked.running) {
            (Part::Waiting(state), _) => asked.engine.scan_pending(state, after, limit, look_max),
            (_, Some(running)) => Ok(steer::held(part, running.machine, after, limit)),
            (_, None) => Ok(PendingScan::default()),
        })
        .await
}
