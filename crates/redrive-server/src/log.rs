//! The structured log of failed attempts: one event each, with the fields operators search by.
//!
//! Never a payload, a URL or an error's text, which may hold either. The time is written by whoever formats the log.

use redrive::{AttemptFailed, Decided};

/// The longest correlation id that is taken over from a message.
const CORRELATION_BYTES_MAX: usize = 128;
/// Headers in which callers usually send theirs.
const CORRELATION_HEADERS: [&str; 3] = ["correlation-id", "x-correlation-id", "x-request-id"];

/// The fields of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    pub correlation_id: String,
    pub endpoint_hash: Option<String>,
    pub status_code: Option<u64>,
    /// In seconds.
    pub retry_after_header: Option<u64>,
    pub class: &'static str,
    pub decision: &'static str,
    pub delay_ms: Option<u64>,
    pub reason: Option<&'static str>,
    pub attempt: u64,
    pub pipeline: String,
}

/// Give this to `Pipeline::on_failure`: it writes the event with `tracing`. What ends in a dead letter is a warning.
pub fn attempt_failed(failed: &AttemptFailed) {
    let fields = fields(failed);
    // Without `timestamp`: whoever writes the event gives it one, and JSON with a name twice is refused by some readers.
    macro_rules! write_event {
        ($level:ident) => {
            tracing::$level!(
                target: "redrive::attempt",
                correlation_id = fields.correlation_id,
                endpoint_hash = fields.endpoint_hash,
                status_code = fields.status_code,
                retry_after_header = fields.retry_after_header,
                class = fields.class,
                decision = fields.decision,
                delay_ms = fields.delay_ms,
                reason = fields.reason,
                attempt = fields.attempt,
                pipeline = fields.pipeline,
                "attempt failed"
            )
        };
    }
    match failed.decision {
        Decided::Retry { .. } => write_event!(info),
        Decided::Dead(_) => write_event!(warn),
    }
}

/// What the event says. Pure.
pub fn fields(failed: &AttemptFailed) -> Fields {
    let note =
        |name: &str| failed.notes.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str());
    let (decision, delay_ms, reason) = match &failed.decision {
        Decided::Retry { due, .. } => {
            ("retry_at", Some(due.as_millis().saturating_sub(failed.at.as_millis())), None)
        }
        Decided::Dead(reason) => ("dead_letter", None, Some(reason.name())),
    };
    Fields {
        correlation_id: correlation_id(failed, note("correlation_id")),
        endpoint_hash: note("endpoint_hash").map(str::to_owned),
        status_code: note("status_code").and_then(|code| code.parse().ok()),
        retry_after_header: failed.retry_after.map(|wait| wait.as_secs()),
        class: failed.class.name(),
        decision,
        delay_ms,
        reason,
        attempt: u64::from(failed.attempt),
        pipeline: failed.pipeline.to_string(),
    }
}

/// The sender's own, if it is a plain word; else one made from the message's id, the same for all its attempts.
fn correlation_id(failed: &AttemptFailed, noted: Option<&str>) -> String {
    let header = |wanted: &str| {
        let mut headers = failed.message.headers();
        let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.and_then(|(_, value)| std::str::from_utf8(value).ok())
    };
    let given = noted.into_iter().chain(CORRELATION_HEADERS.into_iter().filter_map(header));
    given.into_iter().find(|id| is_plain(id)).map_or_else(|| made_of(&failed.message_id), str::to_owned)
}

fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=CORRELATION_BYTES_MAX).contains(&id.len()) && id.bytes().all(plain)
}

/// FNV-1a: it has to be stable and short, not secret.
fn made_of(id: &str) -> String {
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("req_{hash:016x}")
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write as _};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use redrive::{Class, Message, Reason, Time};
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
            message,
            attempt: 2,
            class: Class::RateLimited,
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

    #[test]
    fn an_event_has_the_fields_of_its_failure() {
        let retried = fields(&failed(retry(), &[]));
        assert_eq!((retried.status_code, retried.retry_after_header), (Some(429), Some(15)));
        assert_eq!((retried.decision, retried.delay_ms, retried.reason), ("retry_at", Some(15_000), None));
        assert!(retried.correlation_id.starts_with("req_"));
        let dead = fields(&failed(Decided::Dead(Reason::TtlExceeded), &[]));
        assert_eq!((dead.decision, dead.delay_ms, dead.reason), ("dead_letter", None, Some("ttl_exceeded")));
        assert_eq!(dead.correlation_id, retried.correlation_id);
    }

    #[test]
    fn a_senders_correlation_id_is_used_if_it_is_a_plain_word() {
        let of = |value: &str| fields(&failed(retry(), &[("X-Request-Id", value)])).correlation_id;
        assert_eq!(of("abc-123"), "abc-123");
        for odd in ["", "https://example.test/?token=x", "a b", &"x".repeat(129)] {
            assert!(of(odd).starts_with("req_"), "{odd}");
        }
    }

    /// Keeps what is written, as text.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<String>>);

    impl Visit for Lines {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0.lock().unwrap(), "{}={value:?} ", field.name());
        }
    }

    impl tracing::Subscriber for Lines {
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
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            attempt_failed(&failed(retry(), &[("authorization", "Bearer s3cret")]));
            attempt_failed(&failed(Decided::Dead(Reason::Gone), &[]));
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
}
