//! The inputs and answers of each operation, in words and by the names of schemas.

use crate::problem::Code;
use crate::routes::Operation;

/// Name, type and description of a query parameter.
type Param = (&'static str, &'static str, &'static str);
/// Status, description, media type and schema of an answer.
type Answer = (&'static str, &'static str, &'static str, &'static str);

pub(super) struct Described {
    pub summary: &'static str,
    pub params: &'static [Param],
    pub body: Option<&'static str>,
    pub answers: &'static [Answer],
    /// In addition to those that follow from the shape of the route.
    pub codes: &'static [Code],
}

const JSON: &str = "application/json";

/// Exhaustive: a new operation without a description does not compile.
#[rustfmt::skip] // one line for each part
pub(super) fn describe(operation: Operation) -> Described {
    match operation {
        Operation::Page => described("A page that shows the pipelines and their dead letters live.")
            .answers(&[("200", "The page.", "text/html", "string")]),
        Operation::Live => described("Whether the process is alive.")
            .answers(&[("200", "It is alive.", JSON, "Health")])
            .codes(&[Code::MethodNotAllowed]),
        Operation::Health => described("The same as /livez.")
            .answers(&[("200", "It is alive.", JSON, "Health")]),
        Operation::Ready => described("Readiness probe.")
            .answers(&[
                ("200", "Ready.", JSON, "Health"),
                ("503", "Starting or stopping.", JSON, "Health"),
            ]),
        Operation::Metrics => described("All metrics in the text format of Prometheus.")
            .answers(&[("200", "See docs/reference/metrics.md.", "text/plain", "string")]),
        Operation::Openapi => described("This document.")
            .answers(&[("200", "The document.", JSON, "object")]),
        Operation::ListPipelines => described("All pipelines with their figures.")
            .answers(&[("200", "The pipelines.", JSON, "Pipelines")]),
        Operation::ShowPipeline => described("One pipeline with its figures.")
            .answers(&[("200", "The pipeline.", JSON, "Pipeline")]),
        Operation::PausePipeline => described("Starts nothing new; what runs continues, and new messages are still accepted.")
            .answers(&[("200", "The pipeline, paused.", JSON, "Pipeline")]),
        Operation::ResumePipeline => described("Resumes after a pause, or with `now` before a Retry-After is over.")
            .params(&[
                (
                    "dead_letter_anyway",
                    "boolean",
                    "Resumes even if the messages that triggered the dead-letter guard will be dead-lettered.",
                ),
                (
                    "now",
                    "boolean",
                    "Ends the wait for a Retry-After that applies to all messages; the message that received it still waits.",
                ),
            ])
            .answers(&[("200", "The pipeline, running.", JSON, "Pipeline")]),
        Operation::ProbeBreaker => described("Sends probes now instead of after the cooldown; to all endpoints in cooldown, where there are many.")
            .answers(&[("200", "The pipeline.", JSON, "Pipeline")])
            .codes(&[Code::Conflict]),
        Operation::CloseBreaker => described("Closes the breaker without probing; calls ramp up.")
            .answers(&[("200", "The pipeline.", JSON, "Pipeline")])
            .codes(&[Code::Conflict]),
        Operation::Ingest => described("Accepts one message, or many as application/x-ndjson; the answer comes after the sync to disk.")
            .params(&[("ids", "boolean", "Many messages: list their ids in the answer.")])
            .body("NewMessage")
            .answers(&[
                ("202", "Accepted and durable. For a batch: at least one message was new.", JSON, "Accepted"),
                (
                    "200",
                    "The id is known already; nothing was added. Of many: all are known.",
                    JSON,
                    "Accepted",
                ),
            ])
            .codes(&[Code::BadMessage, Code::Conflict, Code::TooManyPending, Code::DiskFull]),
        Operation::ShowMessage => described("A message by its id: its state, and the outcome of each attempt.")
            .answers(&[("200", "The message.", JSON, "Message")])
            .codes(&[Code::Conflict]),
        Operation::ListMessages => described("Messages that are not terminal, by state, a page at a time. On Kafka those this process has read.")
            .params(&[
                ("state", "string", "ready, held, delayed, key_wait or in_flight; all if not given."),
                (
                    "filter",
                    "string",
                    "In the filter language without `reason` and `state`, for example `tenant:acme attempts:>=3`; `age` \
                     counts from the creation.",
                ),
                ("cursor", "string", "The `next` of the page before."),
                ("limit", "integer", "Page size: 1 to 1000; 100 by default."),
                ("payload", "boolean", "Whether to give the payloads too."),
            ])
            .answers(&[(
                "200",
                "A page. It may be short, or empty, even if `next` is set and there is more.",
                JSON,
                "Messages",
            )])
            .codes(&[Code::BadFilter]),
        Operation::RetryMessage => described("Makes a message due that waits for its time, by its id or number.")
            .answers(&[("200", "It is due, durably.", JSON, "Steered")])
            .codes(&[Code::Conflict]),
        Operation::CancelMessage => described("Makes a dead letter of a message that waits, with the reason `cancelled`.")
            .answers(&[("200", "It is a dead letter, durably.", JSON, "Steered")])
            .codes(&[Code::Conflict]),
        Operation::ShowKey => described("The message or letter that blocks a key, and how many messages wait behind it.")
            .answers(&[("200", "The key's line.", JSON, "Key")])
            .codes(&[Code::Conflict]),
        Operation::ListGroups => described("Dead letters by what they died of: groups with open letters or a state, the largest first.")
            .answers(&[("200", "The groups.", JSON, "Groups")]),
        Operation::ShowGroup => described("One group: what its letters have in common, and a few of them.")
            .answers(&[("200", "The group.", JSON, "GroupDetail")]),
        Operation::MarkGroup => described("Decides about a group: open, acknowledged, resolved, or snoozed for a while.")
            .body("GroupDecision")
            .answers(&[("200", "The group.", JSON, "Group")]),
        Operation::ListLetters => described("Dead letters in the order of their numbers, a page at a time.")
            .params(&[
                ("filter", "string", "In the filter language, for example `reason:max_retries age:>1h`."),
                ("state", "string", "open, replaying, succeeded, discarded or erased; all if not given."),
                ("since", "string", "Letters that died at this time or later; a time, or a span such as 1h."),
                ("cursor", "string", "The `next` of the page before."),
                ("limit", "integer", "Page size: 1 to 1000; 100 by default."),
                ("payload", "boolean", "Whether to give the payloads too."),
            ])
            .answers(&[(
                "200",
                "A page. It may be short, or empty, even if `next` is set and there is more.",
                JSON,
                "Letters",
            )])
            .codes(&[Code::BadFilter]),
        Operation::LetterStats => described("Dead letters counted by state, reason and class.")
            .answers(&[("200", "The counts.", JSON, "LetterStats")]),
        Operation::ShowLetter => described("One dead letter with its payload, by `orders/17`, its number, or the id of its message.")
            .answers(&[("200", "The letter.", JSON, "Letter")])
            .codes(&[Code::Conflict]),
        Operation::EditLetters => described("Changes the messages of open letters, or undoes an edit. The versions before are kept.")
            .body("Edit")
            .answers(&[("200", "What was, or with `dry_run` would be, edited.", JSON, "EditAnswer")])
            .codes(&[Code::BadFilter, Code::EmptySelection, Code::Conflict]),
        Operation::DiscardLetters => described("Discards open letters. They are kept, and a discard can be taken back.")
            .body("Discard")
            .answers(&[("200", "What was, or with `dry_run` would be, discarded.", JSON, "DiscardAnswer")])
            .codes(&[Code::BadFilter, Code::EmptySelection, Code::Conflict]),
        Operation::EraseLetters => described("Erases payload, headers, key, tenant and error texts of letters, in every copy that Redrive owns. It \
                      cannot be undone; a tombstone stays. Letters in a replay are refused.")
            .body("Erase")
            .answers(&[(
                "200",
                "What was, or with `dry_run` would be, erased, and what remains where.",
                JSON,
                "EraseAnswer",
            )])
            .codes(&[Code::BadFilter, Code::EmptySelection, Code::Conflict]),
        Operation::CompactLetters => described("Deletes letters that are done from the topics of a Kafka pipeline now, instead of within the hour.")
            .answers(&[("200", "What was deleted.", JSON, "Compacted")])
            .codes(&[Code::Conflict]),
        Operation::UndoDiscard => described("Takes a discard back.")
            .body("Undo")
            .answers(&[("200", "How many letters are open again.", JSON, "Undone")])
            .codes(&[Code::Conflict]),
        Operation::ImportLetters => described("Makes open letters of messages that died elsewhere, each unless there is one with the same message.")
            .params(&[
                ("dry_run", "boolean", "Changes nothing, and reports what would be imported."),
                ("from", "string", "Where they come from, for the action log."),
                ("dialect", "string", "The framework whose headers the letters have; by default recognised from the headers of each."),
            ])
            .body("ForeignLetter")
            .answers(&[(
                "200",
                "How many were, or with `dry_run` would be, imported.",
                JSON,
                "ImportedLetters",
            )]),
        Operation::StartReplay => described("Puts a frozen selection of open letters back, each once, at a pace.")
            .body("StartReplay")
            .answers(&[
                ("202", "The job, which runs by itself and continues after a restart.", JSON, "Replay"),
                ("200", "With `dry_run`: what it would do.", JSON, "ReplayForecast"),
            ])
            .codes(&[Code::BadFilter, Code::EmptySelection, Code::NotFound, Code::Conflict]),
        Operation::ListReplays => described("All replay jobs, the latest first.")
            .answers(&[("200", "The jobs.", JSON, "Replays")]),
        Operation::ShowReplay => described("One replay job.")
            .answers(&[("200", "The job.", JSON, "Replay")]),
        Operation::PauseReplay => described("Pauses a replay job.")
            .answers(&[("200", "The job.", JSON, "Replay")])
            .codes(&[Code::Conflict]),
        Operation::ResumeReplay => described("Resumes a replay job that was paused or stopped.")
            .answers(&[("200", "The job.", JSON, "Replay")])
            .codes(&[Code::Conflict]),
        Operation::AbortReplay => described("Ends a replay job; letters it has not sent stay open.")
            .answers(&[("200", "The job.", JSON, "Replay")])
            .codes(&[Code::Conflict]),
        Operation::ListSubscriptions => described("Stored subscriptions, and endpoints that are flagged or purged, in the order of their hashes.")
            .params(&[
                ("state", "string", "active, flagged or purged; all if not given."),
                ("cursor", "string", "The `next` of the page before."),
                ("limit", "integer", "Page size: 1 to 1000; 100 by default."),
            ])
            .answers(&[("200", "A page, with how many there are of each.", JSON, "Subscriptions")])
            .codes(&[Code::Conflict]),
        Operation::RegisterSubscription => described("Stores a subscription under an id that messages can name. It is active from now on.")
            .body("NewSubscription")
            .answers(&[("200", "It is stored, durably.", JSON, "Subscription")])
            .codes(&[Code::Conflict]),
        Operation::SubscriptionKeys => described("How many stored subscriptions were made with which VAPID key.")
            .answers(&[("200", "The keys.", JSON, "SubscriptionKeys")])
            .codes(&[Code::Conflict]),
        Operation::ShowSubscription => described("One endpoint, by its hash or the id of its stored subscription.")
            .answers(&[("200", "What is known of it.", JSON, "Subscription")])
            .codes(&[Code::Conflict]),
        Operation::RemoveSubscription => described("Removes a stored subscription; the endpoint's flag or purge is kept.")
            .body("NamedSubscription")
            .answers(&[("200", "It is removed, durably.", JSON, "RemovedSubscription")])
            .codes(&[Code::Conflict]),
        Operation::FlagSubscription => described("Flags an endpoint to be watched. It is still called.")
            .body("NamedSubscription")
            .answers(&[("200", "It is flagged, durably.", JSON, "Subscription")])
            .codes(&[Code::Conflict]),
        Operation::PurgeSubscription => described("Purges an endpoint: its messages become dead letters `gone` without a call.")
            .body("NamedSubscription")
            .answers(&[("200", "It is purged, durably.", JSON, "Subscription")])
            .codes(&[Code::Conflict]),
        Operation::UndoSubscription => described("Takes a flag or a purge back, or all purges since a time.")
            .body("UndoSubscription")
            .answers(&[("200", "How many were taken back.", JSON, "UndoneSubscriptions")])
            .codes(&[Code::Conflict]),
        Operation::ResumePurging => described("Resumes purging after the guard has stopped it.")
            .answers(&[("200", "Purging continues.", JSON, "Purging")])
            .codes(&[Code::Conflict]),
        Operation::StreamEvents => described("What happens from now on, as server-sent events; with the header Last-Event-ID from there on.")
            .params(&[(
                "type",
                "string",
                "Only these, separated by commas: dead_letter, breaker, health, replay, flagged, purged, cleared, \
                 registered, undone, removed, purging_stopped, purging_resumed.",
            )])
            .answers(&[(
                "200",
                "A stream without an end. `missed` is its last event if the client is too slow, `restarted` its first if \
                 the last event was one of an earlier process.",
                "text/event-stream",
                "string",
            )]),
        Operation::ListActions => described("Who did what, the oldest first.")
            .params(&[
                ("pipeline", "string", "Actions on this pipeline."),
                ("since", "string", "Actions at this time or later; a time, or a span such as 24h."),
                ("limit", "integer", "Page size: 1 to 10000; 1000 by default."),
            ])
            .answers(&[("200", "The actions.", JSON, "Actions")])
            .codes(&[Code::StorageFailed]),
    }
}

fn described(summary: &'static str) -> Described {
    Described { summary, params: &[], body: None, answers: &[], codes: &[] }
}

impl Described {
    fn params(self, params: &'static [Param]) -> Self {
        Self { params, ..self }
    }

    fn body(self, schema: &'static str) -> Self {
        Self { body: Some(schema), ..self }
    }

    fn answers(self, answers: &'static [Answer]) -> Self {
        Self { answers, ..self }
    }

    fn codes(self, codes: &'static [Code]) -> Self {
        Self { codes, ..self }
    }
}
