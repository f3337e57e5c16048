//! The class table of Web Push answers (RFC 8030, and additions by the services).

use redrive_core::Class;

use crate::push::{Rows, Verdict};

/// The common reason for every wording of "made with another key".
pub const KEY_MISMATCH: &str = "VapidPkHashMismatch";

pub const ROWS: Rows = Rows {
    reasons: &[(KEY_MISMATCH, Verdict::Resubscribe)],
    statuses: &[
        (400, Verdict::PERMANENT),
        (401, Verdict::CREDENTIAL),
        (403, Verdict::CREDENTIAL),
        (404, Verdict::GONE),
        (408, Verdict::TRANSIENT),
        (410, Verdict::GONE),
        (413, Verdict::PERMANENT),
        (425, Verdict::TRANSIENT),
        (429, Verdict::LIMITED),
    ],
    otherwise: Verdict::PERMANENT,
    // The subscriber chooses the endpoint, so its certificate concerns only that one.
    tls: Class::Permanent,
};

/// The reason in the body of an answer: JSON from Apple and Mozilla, text from Google.
pub fn reason(status: u16, body: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(&body[..body.len().min(2048)]).to_ascii_lowercase();
    let is_mismatch = text.contains("vapidpkhashmismatch")
        || text.contains("do not correspond to the credentials used to create")
        || (text.contains("vapid") && text.contains("mismatch"));
    (is_mismatch && matches!(status, 400 | 401 | 403)).then_some(KEY_MISMATCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::PushClasses;

    /// Real answers of the services, and their classes.
    #[test]
    fn the_golden_corpus_of_answers() {
        let google = "the VAPID credentials in the authorization header do not correspond to the credentials used \
                      to create the subscriptions.";
        let mozilla =
            r#"{"code":401,"errno":109,"error":"Unauthorized","message":"VAPID public key mismatch"}"#;
        let classes = PushClasses::new(ROWS);
        for (status, body, verdict) in [
            (201, "", Verdict::OK),
            (202, "", Verdict::OK),
            (204, "", Verdict::OK),
            (400, r#"{"reason":"VapidPkHashMismatch"}"#, Verdict::Resubscribe),
            (400, r#"{"reason":"BadWebPushTopic"}"#, Verdict::PERMANENT),
            (400, "", Verdict::PERMANENT),
            (401, "", Verdict::CREDENTIAL),
            (401, mozilla, Verdict::Resubscribe),
            (403, "", Verdict::CREDENTIAL),
            (403, r#"{"reason":"BadJwtToken"}"#, Verdict::CREDENTIAL),
            (403, google, Verdict::Resubscribe),
            (404, r#"{"code":404,"errno":102}"#, Verdict::GONE),
            (410, r#"{"reason":"Unregistered"}"#, Verdict::GONE),
            (410, "push subscription has unsubscribed or expired.", Verdict::GONE),
            (413, r#"{"reason":"PayloadTooLarge"}"#, Verdict::PERMANENT),
            (429, "", Verdict::LIMITED),
            (301, "", Verdict::PERMANENT),
            (500, "", Verdict::TRANSIENT),
            (502, "", Verdict::TRANSIENT),
            (503, r#"{"errno":201}"#, Verdict::TRANSIENT),
            (504, "", Verdict::TRANSIENT),
        ] {
            let reason = reason(status, body.as_bytes()).unwrap_or_default();
            assert_eq!(classes.verdict(status, reason), verdict, "{status} {body}");
        }
    }
}
