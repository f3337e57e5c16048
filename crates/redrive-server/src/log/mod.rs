//! The structured log of failed attempts and dead letters, with the fields operators search by.
//!
//! Never contains a payload, a URL or an error text, which may quote either. The time is written by the formatter of
//! the log. In an outage every message fails, so events of one kind are limited, and a summary says how many were left
//! out.

mod limit;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use redrive::internal::letters::correlation_id;
use redrive::internal::letters::select::LetterIds;
use redrive::letters::Redaction;
use redrive::letters::redact::Secrets;
use redrive::{AttemptFailed, DeadLetter, Decided, Message, Time, timestamp};

use limit::{Group, LeftOut, LogLimit, WINDOW};

/// Writes the log of one pipeline. Pass its methods to `Pipeline::on_failure` and `Pipeline::on_dead_letter`.
#[derive(Clone, Debug)]
pub struct FailureLog {
    letters_are_places: bool,
    /// Values to hide of messages, also where their ids repeat them.
    redaction: Redaction,
    limited: Arc<Limited>,
}

/// The limit of a pipeline's log; the summary of events left out is written on drop at the latest.
#[derive(Debug)]
struct Limited {
    pipeline: String,
    limit: Mutex<LogLimit>,
}

/// The fields of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    pub pipeline: String,
    pub message_id: String,
    pub correlation_id: String,
    pub attempt: u64,
    /// `status`, `timeout`, `refused`, `reset` or `other`.
    pub kind: &'static str,
    pub status_code: Option<u64>,
    /// As the receiver sent it, always as text; in seconds if the failure only gives a duration.
    pub retry_after_header: Option<String>,
    pub class: &'static str,
    pub took_ms: u64,
    pub decision: &'static str,
    pub delay_ms: Option<u64>,
    pub due: Option<String>,
    /// `false` for a retry that uses up no attempt, such as in an outage.
    pub counted: Option<bool>,
    pub reason: Option<&'static str>,
    pub letter: Option<String>,
    pub endpoint_hash: Option<String>,
}

/// The id of a message and its correlation id, without copies of redacted values.
pub fn ids(message: &Message, redaction: &Redaction) -> [String; 2] {
    let ids = [message.id().to_owned(), correlation_id(message)];
    if redaction.is_empty() {
        return ids;
    }
    let mut secrets = Secrets::default();
    secrets.add_message(message, redaction);
    ids.map(|id| secrets.without(&id).unwrap_or(id))
}

impl FailureLog {
    /// Creates a log. `letters_are_places`: whether letters are named by the position of their record in a topic.
    pub fn new(pipeline: &str, letters_are_places: bool) -> Self {
        let (pipeline, limit) = (pipeline.to_owned(), Mutex::default());
        let limited = Arc::new(Limited { pipeline, limit });
        Self { letters_are_places, redaction: Redaction::default(), limited }
    }

    /// Hides ids that repeat values which the pipeline redacts.
    #[must_use]
    pub fn redacting(self, redaction: Redaction) -> Self {
        Self { redaction, ..self }
    }

    /// The id of a message and its correlation id, as logged.
    pub fn ids(&self, message: &Message) -> [String; 2] {
        ids(message, &self.redaction)
    }

    /// Logs a failed attempt with `tracing`. One that ends in a dead letter is a warning.
    pub fn attempt_failed(&self, failed: &AttemptFailed) {
        let is_dead = matches!(failed.decision, Decided::Dead(_));
        let is_in = self.admit(Group { is_dead, kind: failed.kind.name() }, failed.at);
        // Without `timestamp`: the formatter adds one, and some readers refuse JSON with a repeated name.
        macro_rules! write_event {
            ($level:ident) => {{
                let fields = self.fields(failed);
                tracing::$level!(
                    target: "redrive::attempt",
                    pipeline = fields.pipeline,
                    message_id = fields.message_id,
                    correlation_id = fields.correlation_id,
                    attempt = fields.attempt,
                    kind = fields.kind,
                    status_code = fields.status_code,
                    retry_after_header = fields.retry_after_header,
                    class = fields.class,
                    took_ms = fields.took_ms,
                    decision = fields.decision,
                    delay_ms = fields.delay_ms,
                    due = fields.due,
                    counted = fields.counted,
                    reason = fields.reason,
                    letter = fields.letter,
                    endpoint_hash = fields.endpoint_hash,
                    "attempt failed"
                )
            }};
        }
        match (is_in, is_dead) {
            (true, true) => write_event!(warn),
            (true, false) => write_event!(info),
            (false, _) if tracing::enabled!(target: "redrive::attempt", tracing::Level::DEBUG) => {
                write_event!(debug);
            }
            (false, _) => {}
        }
    }

    /// Logs a letter that no attempt led to: it expired, its key is blocked, it is a poison pill, or it was cancelled.
    /// Other letters are in the event of their last attempt.
    pub fn dead_letter(&self, letter: &DeadLetter, now: Time) {
        if letter.failure.is_some() {
            return;
        }
        let reason = letter.reason.name();
        if !self.admit(Group { is_dead: true, kind: reason }, now) {
            return;
        }
        let [message_id, correlation_id] = self.ids(&letter.message);
        tracing::warn!(
            target: "redrive::letter",
            pipeline = &*letter.pipeline,
            message_id,
            correlation_id,
            letter = self.letter(&letter.pipeline, letter.number),
            reason,
            decision = "dead_letter",
            attempts = letter.meta.attempts,
            crashes = letter.meta.crashes,
            "dead letter"
        );
    }

    /// The fields of the event. Pure.
    pub fn fields(&self, failed: &AttemptFailed) -> Fields {
        let note = |name: &str| {
            failed.notes.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
        };
        let (decision, due, counted, reason) = match &failed.decision {
            Decided::Retry { due, counts, .. } => ("retry_at", Some(*due), Some(*counts), None),
            Decided::Dead(reason) => ("dead_letter", None, None, Some(reason.name())),
        };
        let [message_id, correlation_id] = self.ids(&failed.message);
        Fields {
            pipeline: failed.pipeline.to_string(),
            message_id,
            correlation_id,
            attempt: u64::from(failed.attempt),
            kind: failed.kind.name(),
            status_code: note("status_code").and_then(|code| code.parse().ok()),
            retry_after_header: note("retry_after_header")
                .map(str::to_owned)
                .or_else(|| failed.retry_after.map(|wait| wait.as_secs().to_string())),
            class: failed.class.name(),
            took_ms: u64::try_from(failed.took.as_millis()).unwrap_or(u64::MAX),
            decision,
            delay_ms: due.map(|due| due.as_millis().saturating_sub(failed.at.as_millis())),
            due: due.map(timestamp::print),
            counted: counted.filter(|counted| !counted),
            reason,
            letter: reason.map(|_| self.letter(&failed.pipeline, failed.number)),
            endpoint_hash: note("endpoint_hash").map(str::to_owned),
        }
    }

    fn letter(&self, pipeline: &str, number: u64) -> String {
        LetterIds { pipeline, are_places: self.letters_are_places }.text(number)
    }

    /// Whether the event is logged. The first one left out schedules the summary, even if nothing follows.
    fn admit(&self, group: Group, at: Time) -> bool {
        let admitted = self.limited.limit.lock().unwrap_or_else(PoisonError::into_inner).admit(group, at);
        self.limited.say(&admitted.ended);
        if admitted.is_first_left_out
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let limited = Arc::downgrade(&self.limited);
            runtime.spawn(async move {
                tokio::time::sleep(WINDOW).await;
                Weak::upgrade(&limited).iter().for_each(|limited| limited.flush());
            });
        }
        admitted.is_in
    }
}

impl Limited {
    fn flush(&self) {
        let left_out = self.limit.lock().unwrap_or_else(PoisonError::into_inner).end();
        self.say(&left_out);
    }

    fn say(&self, left_out: &[LeftOut]) {
        for LeftOut { group, count } in left_out {
            let decision = if group.is_dead { "dead_letter" } else { "retry_at" };
            tracing::info!(
                target: "redrive::attempt",
                pipeline = self.pipeline,
                kind = group.kind,
                decision,
                left_out = count,
                within_s = WINDOW.as_secs(),
                "more attempts failed the same way and were not logged one by one; -v logs them all"
            );
        }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write as _};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use redrive::{Class, FailureKind, Reason};
    use tracing::field::{Field, Visit};
    use tracing::span;

    use super::*;

    fn failed(decision: Decided, headers: &[(&str, &str)]) -> AttemptFailed {
        let message = headers
            .iter()
            .fold(Message::builder("o-1").payload("card 4111"), |message, (name, value)| {
                message.header(*name, (*value).to_owned())
            })
            .build()
            .unwrap();
        AttemptFailed {
            pipeline: Arc::from("push"),
            message_id: "o-1".to_owned(),
            number: 17,
            message,
            attempt: 2,
            class: Class::RateLimited,
            kind: FailureKind::Status(429),
            error: "429 from https://user:pw@example.test/x".to_owned(),
            retry_after: Some(Duration::from_secs(15)),
            took: Duration::from_millis(3),
            decision,
            notes: vec![("status_code", "429".to_owned()), ("endpoint_hash", "hmac-sha256:a1b2".to_owned())],
            at: Time::from_millis(1_000),
        }
    }

    fn retry() -> Decided {
        Decided::Retry { due: Time::from_millis(16_000), tier: Arc::from("5s"), counts: true }
    }

    fn fields(failed: &AttemptFailed) -> Fields {
        FailureLog::new("push", false).fields(failed)
    }

    #[test]
    fn an_event_has_the_fields_of_its_failure() {
        let retried = fields(&failed(retry(), &[]));
        assert_eq!((retried.status_code, retried.retry_after_header.as_deref()), (Some(429), Some("15")));
        assert_eq!((retried.decision, retried.delay_ms, retried.reason), ("retry_at", Some(15_000), None));
        assert_eq!((retried.kind, retried.message_id.as_str(), retried.attempt), ("status", "o-1", 2));
        assert_eq!((retried.due.as_deref(), retried.letter), (Some("1970-01-01T00:00:16.000Z"), None));
        assert!(retried.correlation_id.starts_with("req_"));
        let dead = fields(&failed(Decided::Dead(Reason::TtlExceeded), &[]));
        assert_eq!((dead.decision, dead.delay_ms, dead.reason), ("dead_letter", None, Some("ttl_exceeded")));
        assert_eq!(dead.letter.as_deref(), Some("push/17"));
        assert_eq!(dead.correlation_id, retried.correlation_id);
    }

    #[test]
    fn an_id_that_repeats_what_is_redacted_is_not_logged() {
        let mut redaction = Redaction::default();
        assert!(redaction.add("/email"));
        let payload = r#"{"email":"eve@example.com"}"#;
        let message = Message::builder("eve@example.com-7").payload(payload).build().unwrap();
        let failed = AttemptFailed { message, ..failed(retry(), &[]) };
        let log = FailureLog::new("push", false);
        assert_eq!(log.fields(&failed).message_id, "eve@example.com-7");
        let written = log.redacting(redaction).fields(&failed);
        assert!(!format!("{written:?}").contains("eve@"), "{written:?}");
    }

    #[test]
    fn retry_after_is_logged_as_it_was_written() {
        let date = "Wed, 21 Oct 2026 07:28:00 GMT";
        for written in ["120", date] {
            let mut failed = failed(retry(), &[]);
            failed.notes.push(("retry_after_header", written.to_owned()));
            assert_eq!(fields(&failed).retry_after_header.as_deref(), Some(written));
            let lines = LogLines::default();
            tracing::subscriber::with_default(lines.clone(), || {
                FailureLog::new("push", false).attempt_failed(&failed);
            });
            assert!(lines.0.lock().unwrap().contains(written));
        }
    }

    /// Collects the output as text.
    #[derive(Clone, Default)]
    struct LogLines(Arc<Mutex<String>>);

    impl Visit for LogLines {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0.lock().unwrap(), "{}={value:?} ", field.name());
        }
    }

    impl tracing::Subscriber for LogLines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let _ = write!(self.0.lock().unwrap(), "{} ", event.metadata().level());
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn what_is_written_holds_no_payload_no_url_and_no_empty_field() {
        let lines = LogLines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let log = FailureLog::new("push", false);
            log.attempt_failed(&failed(retry(), &[("authorization", "Bearer s3cret")]));
            log.attempt_failed(&failed(Decided::Dead(Reason::Gone), &[]));
        });
        let text = lines.0.lock().unwrap().clone();
        for part in [
            "INFO ",
            "WARN ",
            "class=\"rate_limited\"",
            "delay_ms=15000",
            "reason=\"gone\"",
            "attempt=2",
            "pipeline=\"push\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("timestamp"), "the writer of the log adds one: {text}");
        for secret in ["4111", "example.test", "s3cret", "pw", "None"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }

    #[test]
    fn an_outage_does_not_flood_the_log_and_what_is_left_out_is_said() {
        let lines = LogLines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let log = FailureLog::new("push", false);
            for number in 0..5_000 {
                log.attempt_failed(&AttemptFailed { number, ..failed(retry(), &[]) });
            }
        });
        let text = lines.0.lock().unwrap().clone();
        assert_eq!(text.matches("INFO message=attempt failed").count(), 10, "{}", &text[..500]);
        assert!(text.contains("left_out=4990"), "{}", &text[text.len() - 500..]);
        assert_eq!(text.matches("DEBUG message=attempt failed").count(), 4_990, "-v has them all");
    }
}
