//! A fault in a setting of a sink.

/// One thing to repair: the setting, the problem and what to write instead.
///
/// `value` is empty if the value may be a secret, such as a header or a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\n  fix: {fix}")]
pub struct SinkFault {
    pub key: String,
    pub value: String,
    pub problem: String,
    pub fix: String,
}

impl SinkFault {
    pub(crate) fn of(key: impl Into<String>, value: &str, problem: impl Into<String>, fix: &str) -> Self {
        Self { key: key.into(), value: value.to_owned(), problem: problem.into(), fix: fix.to_owned() }
    }
}
