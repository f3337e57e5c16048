//! The error text by which a message is grouped: the most informative exception, and its frames.

/// Exceptions that only say that a listener failed; the nested one says why.
const WRAPPERS: [&str; 4] = [
    "org.springframework.kafka.listener.ListenerExecutionFailedException",
    "org.springframework.kafka.listener.adapter.ListenerExecutionFailedException",
    "org.springframework.kafka.listener.TimestampedException",
    "org.springframework.messaging.MessageHandlingException",
];

const CAUSED_BY: &str = "Caused by: ";
/// Bytes of a stack trace that are searched for the nested exception.
const TRACE_BYTES_MAX: usize = 64 * 1024;

/// The failure as the headers describe it.
#[derive(Clone, Debug, Default)]
pub(super) struct Died {
    pub exception: Option<String>,
    pub inner_exception: Option<String>,
    pub message: Option<String>,
    pub stacktrace: Option<String>,
}

impl Died {
    fn is_wrapped(&self) -> bool {
        self.exception.as_deref().is_some_and(|exception| WRAPPERS.contains(&exception))
    }

    /// The name of the most informative exception.
    pub(super) fn exception_name(&self) -> Option<String> {
        if !self.is_wrapped() {
            return self.exception.clone();
        }
        let inside = self.section().and_then(exception_of).map(str::to_owned);
        self.inner_exception.clone().or(inside).or_else(|| self.exception.clone())
    }

    /// That exception with its message and its frames, as far as they are known.
    pub(super) fn error(&self) -> Option<String> {
        if let Some(section) = self.section() {
            return Some(section.to_owned());
        }
        match (self.exception_name(), &self.message) {
            (Some(exception), Some(message)) if !message.starts_with(&exception) => {
                Some(format!("{exception}: {message}"))
            }
            (_, Some(message)) => Some(message.clone()),
            (Some(exception), None) => Some(exception),
            (None, None) => None,
        }
    }

    /// The part of the stack trace that belongs to that exception.
    fn section(&self) -> Option<&str> {
        let trace = self.stacktrace.as_deref()?.trim();
        let trace = &trace[..trace.floor_char_boundary(TRACE_BYTES_MAX)];
        let is_trace = trace.lines().any(|line| line.trim_start().starts_with("at "));
        if trace.is_empty() || !is_trace {
            return None;
        }
        if !self.is_wrapped() {
            return Some(trace);
        }
        let mut causes = trace.match_indices(CAUSED_BY).map(|(at, _)| &trace[at + CAUSED_BY.len()..]);
        let wanted = |cause: &&str| match &self.inner_exception {
            Some(inner) => cause.starts_with(inner.as_str()),
            None => true,
        };
        Some(causes.find(wanted).unwrap_or(trace))
    }
}

/// The exception name at the start of a stack trace.
fn exception_of(trace: &str) -> Option<&str> {
    let head = trace.lines().next()?;
    let name = head.split(':').next()?.trim();
    (!name.is_empty() && !name.contains(' ')).then_some(name)
}
