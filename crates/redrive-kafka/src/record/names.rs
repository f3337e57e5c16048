//! The names of our headers. They are an interface for other tools that read these topics.

pub const ORIG_TOPIC: &str = "x-orig-topic";
pub const ORIG_PARTITION: &str = "x-orig-partition";
pub const ORIG_OFFSET: &str = "x-orig-offset";
pub const MESSAGE_ID: &str = "x-message-id";
pub const TENANT: &str = "x-tenant";
/// When the message was created. A producer may set it on a source record; the TTL counts from it.
pub const CREATED: &str = "x-created";
/// The creation time in the message, if it differs from the one that the TTL counts from.
pub const ORIG_CREATED: &str = "x-orig-created";
pub const DEADLINE: &str = "x-deadline";
/// The deadline in the message, if it no longer applies: a replay has none.
pub const ORIG_DEADLINE: &str = "x-orig-deadline";
/// Counted failed attempts so far.
pub const ATTEMPTS: &str = "x-attempts";
pub const UNCOUNTED: &str = "x-uncounted";
pub const RECONNECTS: &str = "x-reconnects";
pub const CRASHES: &str = "x-crashes";
pub const LAST_CRASH: &str = "x-last-crash";
pub const REPLAYS: &str = "x-replays";
pub const FIRST_SEEN: &str = "x-first-seen";
pub const HELD_MS: &str = "x-held-ms";
pub const LAST_DELAY_MS: &str = "x-last-delay-ms";
pub const DUE: &str = "x-due";
pub const REASON: &str = "x-reason";
pub const DEAD_AT: &str = "x-dead-at";
pub const JOB: &str = "x-job";
/// The record that this one replaces: `topic/partition/offset`.
pub const FROM: &str = "x-from";
pub const LAST_ERROR: &str = "x-last-error";
/// `transient` or `permanent`.
pub const ERROR_CLASS: &str = "x-error-class";
/// The exact class.
pub const CLASS: &str = "x-class";
pub const ATTEMPT_ERRORS: &str = "x-attempt-errors";
/// Only on letters: Kafka refused the whole record, whose payload has this many bytes; this one is truncated.
pub const CUT: &str = "x-cut";
/// Only on letters: an old one that was rewritten to the end of the topic.
pub const MOVED: &str = "x-moved";
/// Only on letters: version, id and title of the group it belongs to.
pub const GROUP: &str = "x-group";
/// Only on letters: the policy in force when it died, as JSON.
pub const OPTIONS: &str = "x-options";

/// All names, in the order in which they are written.
pub const ALL: [&str; 31] = [
    ORIG_TOPIC,
    ORIG_PARTITION,
    ORIG_OFFSET,
    MESSAGE_ID,
    TENANT,
    CREATED,
    ORIG_CREATED,
    DEADLINE,
    ORIG_DEADLINE,
    ATTEMPTS,
    UNCOUNTED,
    RECONNECTS,
    CRASHES,
    LAST_CRASH,
    REPLAYS,
    FIRST_SEEN,
    HELD_MS,
    LAST_DELAY_MS,
    DUE,
    REASON,
    DEAD_AT,
    JOB,
    FROM,
    LAST_ERROR,
    ERROR_CLASS,
    CLASS,
    ATTEMPT_ERRORS,
    CUT,
    MOVED,
    GROUP,
    OPTIONS,
];

/// Whether a header after the mark is ours, and not appended by another tool.
pub fn is_ours(name: &str) -> bool {
    name.starts_with("x-") && ALL.contains(&name)
}
