//! `--redact`, and headers that carry secrets: the parts of a letter that must not be exported.

use redrive::letters::edit::Pointer;
use redrive::letters::redact::REDACTED;
use redrive_api::{LetterView, Payload};
use redrive_core::text::secret_header::is_secret_header;
use serde_json::Value;

use crate::exit::Failed;
use crate::output::safe;

/// Parses `--redact /card,/email`.
pub fn pointers(texts: &[String]) -> Result<Vec<Pointer>, Failed> {
    texts
        .iter()
        .map(|text| {
            let text = text.trim();
            Pointer::parse(text).filter(|_| text.len() > 1).ok_or_else(|| {
                Failed::usage(format!("--redact `{text}` is not a JSON pointer"))
                    .hint("write it like /card or /customer/email")
            })
        })
        .collect()
}

/// Removes headers whose names say that they carry secrets.
pub fn hide_secret_headers(letter: &mut Value) {
    if let Some(headers) = letter.get_mut("headers").and_then(Value::as_object_mut) {
        headers.retain(|name, _| !is_secret_header(name));
    }
}

/// Fails if the payload shown is not the stored one: an edit of it would replace the value with the mask. `editor`
/// names the means of editing.
pub fn fail_if_redacted(letter: &LetterView, editor: &str) -> Result<(), Failed> {
    // A rule that matched only a header, or only an earlier version, does not affect this payload.
    let is_masked = matches!(&letter.payload, Some(Some(Payload::Utf8(text))) if text.contains(REDACTED));
    if letter.redacted.is_empty() || !is_masked {
        return Ok(());
    }
    let letter = safe::line(&letter.id);
    let message = format!("letter {letter} has redacted values; use --set instead of {editor}");
    Err(Failed::usage(message).hint(
        "nothing was changed; --set, --unset and the flags for headers change a message without showing it",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pointer_that_is_none_is_a_usage_error() {
        let read = pointers(&["/card".into(), " /a/b".into()]).unwrap();
        assert_eq!(read.iter().map(ToString::to_string).collect::<Vec<_>>(), ["/card", "/a/b"]);
        for text in ["card", "", "/", "/a~"] {
            assert_eq!(pointers(&[text.to_owned()]).unwrap_err().exit.code(), 2);
        }
    }

    #[test]
    fn only_a_payload_that_shows_a_mask_is_redacted() {
        let fails = |redacted: &[&str], payload: &str| {
            let letter = LetterView {
                redacted: redacted.iter().map(|&rule| rule.to_owned()).collect(),
                payload: Some(Some(Payload::Utf8(payload.to_owned()))),
                ..LetterView::default()
            };
            fail_if_redacted(&letter, "$EDITOR").is_err()
        };
        assert!(fails(&["/card"], r#"{"card":"[redacted]"}"#) && fails(&[""], "[redacted]"));
        assert!(
            fails(&["header:x-card"], r#"{"copy":"[redacted]"}"#),
            "the value of a header that it repeats"
        );
        assert!(!fails(&["header:x-card"], r#"{"n":1}"#) && !fails(&[], r#"{"note":"[redacted]"}"#));
    }

    #[test]
    fn headers_that_carry_secrets_do_not_leave() {
        let mut letter = json!({ "headers": { "x-src": "web", "Authorization": "Bearer s3cret" } });
        hide_secret_headers(&mut letter);
        assert_eq!(letter["headers"], json!({ "x-src": "web" }));
    }
}
