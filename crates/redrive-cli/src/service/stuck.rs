//! What becomes of a process with a handler that neither comes back nor yields.

use redrive::Stuck;

use crate::exit::Exit;

/// Ends the process at once: whoever starts it again finds out which message it was.
pub fn leave(stuck: &Stuck) {
    // `message` is the name of the text of an event.
    tracing::error!(pipeline = &*stuck.pipeline, message_id = stuck.message_id, "{stuck}; the process ends");
    std::process::exit(i32::from(Exit::Watchdog.code()));
}
