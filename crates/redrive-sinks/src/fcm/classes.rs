//! The class table of FCM answers: based on the error code in the body, not on the status alone.

use redrive_core::Class;
use serde_json::Value;

use crate::push::{Rows, Verdict};

pub const ROWS: Rows = Rows {
    reasons: &[
        ("UNREGISTERED", Verdict::GONE),
        ("INVALID_ARGUMENT", Verdict::Flagged),
        ("SENDER_ID_MISMATCH", Verdict::Flagged),
        ("THIRD_PARTY_AUTH_ERROR", Verdict::CREDENTIAL),
        ("QUOTA_EXCEEDED", Verdict::LIMITED),
        ("UNAVAILABLE", Verdict::TRANSIENT),
        ("INTERNAL", Verdict::TRANSIENT),
    ],
    statuses: &[
        (400, Verdict::PERMANENT),
        (401, Verdict::Renew),
        (403, Verdict::CREDENTIAL),
        // A missing token has the code UNREGISTERED; without it the project does not exist.
        (404, Verdict::CREDENTIAL),
        (408, Verdict::TRANSIENT),
        (429, Verdict::LIMITED),
    ],
    otherwise: Verdict::PERMANENT,
    tls: Class::Transient,
};

/// The content of an answer's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explained {
    /// `errorCode` of the details, else the canonical status: `NOT_FOUND`.
    pub code: String,
    /// Whether the code is FCM's own, not only the canonical status.
    pub is_fcm: bool,
}

const CODE_BYTES_MAX: usize = 64;

impl Explained {
    pub fn read(body: &[u8]) -> Self {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let details = said.pointer("/error/details").and_then(Value::as_array);
        let mut codes = details.into_iter().flatten().filter_map(|detail| word(detail.get("errorCode")));
        if let Some(code) = codes.next() {
            return Self { code, is_fcm: true };
        }
        Self { code: word(said.pointer("/error/status")).unwrap_or_default(), is_fcm: false }
    }

    /// The reason for the class table. A canonical status stands for a code if the two mean the same.
    pub fn reason(&self) -> &str {
        match self.code.as_str() {
            code if self.is_fcm => code,
            code @ ("INVALID_ARGUMENT" | "UNAVAILABLE" | "INTERNAL") => code,
            "RESOURCE_EXHAUSTED" => "QUOTA_EXCEEDED",
            _ => "",
        }
    }
}

/// A single word, as codes are; anything else is dropped.
fn word(value: Option<&Value>) -> Option<String> {
    let text = value?.as_str()?;
    let is_word = (1..=CODE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_the_details_goes_before_the_canonical_status() {
        let body = r#"{"error":{"code":404,"status":"NOT_FOUND","message":"…","details":[
            {"@type":"type.googleapis.com/google.rpc.BadRequest"},
            {"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}]}}"#;
        assert_eq!(Explained::read(body.as_bytes()).reason(), "UNREGISTERED");
        let bare = Explained::read(br#"{"error":{"status":"NOT_FOUND"}}"#);
        assert_eq!((bare.code.as_str(), bare.reason()), ("NOT_FOUND", ""));
        let quota = Explained::read(br#"{"error":{"status":"RESOURCE_EXHAUSTED"}}"#);
        assert_eq!(quota.reason(), "QUOTA_EXCEEDED");
        for body in ["", "<html>", "[]", r#"{"error":{"status":"a token: x/y"}}"#] {
            assert_eq!(Explained::read(body.as_bytes()), Explained::default(), "{body}");
        }
    }
}
