//! What each operation takes and answers, in words and by the names of schemas.

use crate::problem::Code;
use crate::routes::Operation;

/// Name, type and meaning of a query parameter.
type Param = (&'static str, &'static str, &'static str);
/// Status, meaning, media type and schema of an answer.
type Answer = (&'static str, &'static str, &'static str, &'static str);

pub(super) struct Described {
    pub id: &'static str,
    pub summary: &'static str,
    pub params: &'static [Param],
    pub body: Option<&'static str>,
    pub answers: &'static [Answer],
    /// Beside those that follow from the shape of the route.
    pub codes: &'static [Code],
}

const JSON: &str = "application/json";
const NOTHING: Described =
    Described { id: "", summary: "", params: &[], body: None, answers: &[], codes: &[] };

/// Exhaustive: a new operation without a description does not compile.
pub(super) fn describe(operation: Operation) -> Described {
    match operation {
        Operation::Page => Described {
            id: "page",
            summary: "A page that shows the pipelines and their dead letters live.",
            answers: &[("200", "The page.", "text/html", "string")],
            ..NOTHING
        },
        Operation::Live => Described {
            id: "live",
            summary: "Whether the process is alive.",
            answers: &[("200", "It does.", JSON, "Health")],
            codes: &[Code::MethodNotAllowed],
            ..NOTHING
        },
        Operation::Health => Described {
            id: "health",
            summary: "The same as /livez.",
            answers: &[("200", "It is alive.", JSON, "Health")],
            ..NOTHING
        },
        Operation::Ready => Described {
            id: "ready",
            summary: "Whether the process wants traffic.",
            answers: &[
                ("200", "It does.", JSON, "Health"),
                ("503", "It is starting or stopping.", JSON, "Health"),
            ],
            ..NOTHING
        },
        Operation::Metrics => Described {
            id: "metrics",
            summary: "All metrics in the text format of Prometheus.",
            answers: &[("200", "See docs/reference/metrics.md.", "text/plain", "string")],
            ..NOTHING
        },
        Operation::OpenApi => Described {
            id: "openapi",
            summary: "This document.",
            answers: &[("200", "The document.", JSON, "object")],
            ..NOTHING
        },
        Operation::ListPipelines => Described {
            id: "listPipelines",
            summary: "All pipelines with their figures.",
            answers: &[("200", "The pipelines.", JSON, "Pipelines")],
            ..NOTHING
        },
        Operation::ShowPipeline => Described {
            id: "showPipeline",
            summary: "One pipeline with its figures.",
            answers: &[("200", "The pipeline.", JSON, "Pipeline")],
            ..NOTHING
        },
        Operation::PausePipeline => Described {
            id: "pausePipeline",
            summary: "Starts nothing new; what runs continues, and new messages are still accepted.",
            answers: &[("200", "The pipeline, paused.", JSON, "Pipeline")],
            ..NOTHING
        },
        Operation::ResumePipeline => Described {
            id: "resumePipeline",
            summary: "Goes on after a pause, or with `now` before a Retry-After is over.",
            params: &[
                (
                    "dead_letter_anyway",
                    "boolean",
                    "Lets the dead letters come for which the guard has paused the pipeline.",
                ),
                (
                    "now",
                    "boolean",
                    "Ends the wait for a Retry-After that applies to all messages; the message that received it still waits.",
                ),
            ],
            answers: &[("200", "The pipeline, running.", JSON, "Pipeline")],
            ..NOTHING
        },
        Operation::ProbeBreaker => Described {
            id: "probeBreaker",
            summary: "Sends probes now instead of after the cooldown; to all endpoints in cooldown, where there are many.",
            answers: &[("200", "The pipeline.", JSON, "Pipeline")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::CloseBreaker => Described {
            id: "closeBreaker",
            summary: "Closes the breaker by hand, without asking the sink; calls begin few and grow.",
            answers: &[("200", "The pipeline.", JSON, "Pipeline")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::Ingest => Described {
            id: "ingest",
            summary: "Accepts one message, or many as application/x-ndjson; the answer comes after the sync to disk.",
            params: &[("ids", "boolean", "Many messages: list their ids in the answer.")],
            body: Some("NewMessage"),
            answers: &[
                ("202", "Accepted, and on disk. Of many: at least one was new.", JSON, "Accepted"),
                (
                    "200",
                    "The id is known already; nothing was added. Of many: all are known.",
                    JSON,
                    "Accepted",
                ),
            ],
            codes: &[Code::BadMessage, Code::Conflict, Code::TooManyPending, Code::DiskFull],
        },
        Operation::ShowMessage => Described {
            id: "showMessage",
            summary: "A message by its id: its state, and what became of each attempt.",
            answers: &[("200", "The message.", JSON, "Message")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ListMessages => Described {
            id: "listMessages",
            summary: "Messages that are not terminal, by state, a page at a time. On Kafka those this process has read.",
            params: &[
                ("state", "string", "ready, held, delayed, key_wait or in_flight; all if not given."),
                (
                    "filter",
                    "string",
                    "In the filter language without `reason` and `state`, for example `tenant:acme attempts:>=3`; `age` \
                     counts from the creation.",
                ),
                ("cursor", "string", "The `next` of the page before."),
                ("limit", "integer", "At most this many, from 1 on; 100 if not given, 1000 at most."),
                ("payload", "boolean", "Whether to give the payloads too."),
            ],
            answers: &[(
                "200",
                "A page. It may be short, or empty, although `next` says there is more.",
                JSON,
                "Messages",
            )],
            codes: &[Code::BadFilter],
            ..NOTHING
        },
        Operation::RetryMessage => Described {
            id: "retryMessage",
            summary: "Makes a message due that waits for its time, by its id or number.",
            answers: &[("200", "It is due, durably.", JSON, "Steered")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::CancelMessage => Described {
            id: "cancelMessage",
            summary: "Makes a dead letter of a message that waits, with the reason `cancelled`.",
            answers: &[("200", "It is a dead letter, durably.", JSON, "Steered")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ShowKey => Described {
            id: "showKey",
            summary: "Whom the messages of a key wait for, and how many wait.",
            answers: &[("200", "The key's line.", JSON, "Key")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ListGroups => Described {
            id: "listGroups",
            summary: "Dead letters by what they died of: groups with open letters or a state, the largest first.",
            answers: &[("200", "The groups.", JSON, "Groups")],
            ..NOTHING
        },
        Operation::ShowGroup => Described {
            id: "showGroup",
            summary: "One group: what its letters have in common, and a few of them.",
            answers: &[("200", "The group.", JSON, "GroupDetail")],
            ..NOTHING
        },
        Operation::MarkGroup => Described {
            id: "markGroup",
            summary: "Decides about a group: open, acknowledged, resolved, or snoozed for a while.",
            body: Some("GroupDecision"),
            answers: &[("200", "The group.", JSON, "Group")],
            ..NOTHING
        },
        Operation::ListLetters => Described {
            id: "listLetters",
            summary: "Dead letters in the order of their numbers, a page at a time.",
            params: &[
                ("filter", "string", "In the filter language, for example `reason:max_retries age:>1h`."),
                ("state", "string", "open, replaying, succeeded, discarded or erased; all if not given."),
                ("since", "string", "Letters that died at this time or later; a time, or a span such as 1h."),
                ("cursor", "string", "The `next` of the page before."),
                ("limit", "integer", "At most this many, from 1 on; 100 if not given, 1000 at most."),
                ("payload", "boolean", "Whether to give the payloads too."),
            ],
            answers: &[(
                "200",
                "A page. It may be short, or empty, although `next` says there is more.",
                JSON,
                "Letters",
            )],
            codes: &[Code::BadFilter],
            ..NOTHING
        },
        Operation::LetterStats => Described {
            id: "letterStats",
            summary: "Dead letters counted by state, reason and class.",
            answers: &[("200", "The counts.", JSON, "LetterStats")],
            ..NOTHING
        },
        Operation::ShowLetter => Described {
            id: "showLetter",
            summary: "One dead letter with its payload, by `orders/17`, its number, or the id of its message.",
            answers: &[("200", "The letter.", JSON, "Letter")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::EditLetters => Described {
            id: "editLetters",
            summary: "Changes the messages of open letters, or undoes an edit. The versions before are kept.",
            body: Some("Edit"),
            answers: &[("200", "What was, or with `dry_run` would be, edited.", JSON, "EditAnswer")],
            codes: &[Code::BadFilter, Code::EmptySelection, Code::Conflict],
            ..NOTHING
        },
        Operation::DiscardLetters => Described {
            id: "discardLetters",
            summary: "Discards open letters. They are kept, and a discard can be taken back.",
            body: Some("Discard"),
            answers: &[("200", "What was, or with `dry_run` would be, discarded.", JSON, "DiscardAnswer")],
            codes: &[Code::BadFilter, Code::EmptySelection, Code::Conflict],
            ..NOTHING
        },
        Operation::EraseLetters => Described {
            id: "eraseLetters",
            summary: "Erases payload, headers, key, tenant and error texts of letters, in every copy that Redrive owns. It \
                      cannot be undone; a tombstone stays. Letters in a replay are refused.",
            body: Some("Erase"),
            answers: &[(
                "200",
                "What was, or with `dry_run` would be, erased, and what remains where.",
                JSON,
                "EraseAnswer",
            )],
            codes: &[Code::BadFilter, Code::EmptySelection, Code::Conflict],
            ..NOTHING
        },
        Operation::CompactLetters => Described {
            id: "compactLetters",
            summary: "Deletes letters that are done from the topics of a Kafka pipeline now, instead of within the hour.",
            answers: &[("200", "What was deleted.", JSON, "Compacted")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::UndoDiscard => Described {
            id: "undoDiscard",
            summary: "Takes a discard back.",
            body: Some("Undo"),
            answers: &[("200", "How many letters are open again.", JSON, "Undone")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ImportLetters => Described {
            id: "importLetters",
            summary: "Makes open letters of messages that died elsewhere, each unless there is one with the same message.",
            params: &[
                ("dry_run", "boolean", "Changes nothing, and says what would be imported."),
                ("from", "string", "Where they come from, for the action log."),
            ],
            body: Some("ForeignLetter"),
            answers: &[(
                "200",
                "How many were, or with `dry_run` would be, imported.",
                JSON,
                "ImportedLetters",
            )],
            ..NOTHING
        },
        Operation::StartReplay => Described {
            id: "startReplay",
            summary: "Puts a frozen selection of open letters back, each once, at a pace.",
            body: Some("StartReplay"),
            answers: &[
                ("202", "The job, which runs by itself and continues after a restart.", JSON, "Replay"),
                ("200", "With `dry_run`: what it would do.", JSON, "ReplayForecast"),
            ],
            codes: &[Code::BadFilter, Code::EmptySelection, Code::NotFound, Code::Conflict],
            ..NOTHING
        },
        Operation::ListReplays => Described {
            id: "listReplays",
            summary: "All replay jobs, the latest first.",
            answers: &[("200", "The jobs.", JSON, "Replays")],
            ..NOTHING
        },
        Operation::ShowReplay => Described {
            id: "showReplay",
            summary: "One replay job.",
            answers: &[("200", "The job.", JSON, "Replay")],
            ..NOTHING
        },
        Operation::PauseReplay => Described {
            id: "pauseReplay",
            summary: "Pauses a replay job.",
            answers: &[("200", "The job.", JSON, "Replay")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ResumeReplay => Described {
            id: "resumeReplay",
            summary: "Goes on with a replay job that was paused or stopped.",
            answers: &[("200", "The job.", JSON, "Replay")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::AbortReplay => Described {
            id: "abortReplay",
            summary: "Ends a replay job; letters it has not sent stay open.",
            answers: &[("200", "The job.", JSON, "Replay")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ListSubscriptions => Described {
            id: "listSubscriptions",
            summary: "Stored subscriptions, and endpoints that are flagged or purged, in the order of their hashes.",
            params: &[
                ("state", "string", "active, flagged or purged; all if not given."),
                ("cursor", "string", "The `next` of the page before."),
                ("limit", "integer", "At most this many, from 1 on; 100 if not given, 1000 at most."),
            ],
            answers: &[("200", "A page, with how many there are of each.", JSON, "Subscriptions")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::RegisterSubscription => Described {
            id: "registerSubscription",
            summary: "Stores a subscription under an id that messages can name. It is active from now on.",
            body: Some("NewSubscription"),
            answers: &[("200", "It is stored, durably.", JSON, "Subscription")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::SubscriptionKeys => Described {
            id: "subscriptionKeys",
            summary: "How many stored subscriptions were made with which VAPID key.",
            answers: &[("200", "The keys.", JSON, "SubscriptionKeys")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ShowSubscription => Described {
            id: "showSubscription",
            summary: "One endpoint, by its hash or the id of its stored subscription.",
            answers: &[("200", "What is known of it.", JSON, "Subscription")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::RemoveSubscription => Described {
            id: "removeSubscription",
            summary: "Removes a stored subscription. What is known of its endpoint stays.",
            body: Some("NamedSubscription"),
            answers: &[("200", "It is removed, durably.", JSON, "RemovedSubscription")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::FlagSubscription => Described {
            id: "flagSubscription",
            summary: "Flags an endpoint to be watched. It is still called.",
            body: Some("NamedSubscription"),
            answers: &[("200", "It is flagged, durably.", JSON, "Subscription")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::PurgeSubscription => Described {
            id: "purgeSubscription",
            summary: "Purges an endpoint: its messages become dead letters `gone` without a call.",
            body: Some("NamedSubscription"),
            answers: &[("200", "It is purged, durably.", JSON, "Subscription")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::UndoSubscription => Described {
            id: "undoSubscription",
            summary: "Takes a flag or a purge back, or all purges since a time.",
            body: Some("UndoSubscription"),
            answers: &[("200", "How many were taken back.", JSON, "UndoneSubscriptions")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::ResumePurging => Described {
            id: "resumePurging",
            summary: "Goes on with purging after the guard has stopped it.",
            answers: &[("200", "Purging continues.", JSON, "Purging")],
            codes: &[Code::Conflict],
            ..NOTHING
        },
        Operation::StreamEvents => Described {
            id: "streamEvents",
            summary: "What happens from now on, as server-sent events; with the header Last-Event-ID from there on.",
            params: &[(
                "type",
                "string",
                "Only these, separated by commas: dead_letter, breaker, health, replay, flagged, purged, cleared, \
                 registered, undone, removed, purging_stopped, purging_resumed.",
            )],
            answers: &[(
                "200",
                "A stream without an end. `missed` is its last event if the client is too slow, `restarted` its first if \
                 the last event was one of an earlier process.",
                "text/event-stream",
                "string",
            )],
            ..NOTHING
        },
        Operation::ListActions => Described {
            id: "listActions",
            summary: "Who did what, the oldest first.",
            params: &[
                ("since", "string", "Actions at this time or later; a time, or a span such as 24h."),
                ("limit", "integer", "At most this many, from 1 on; 1000 if not given, 10000 at most."),
            ],
            answers: &[("200", "The actions.", JSON, "Actions")],
            codes: &[Code::StorageFailed],
            ..NOTHING
        },
    }
}
