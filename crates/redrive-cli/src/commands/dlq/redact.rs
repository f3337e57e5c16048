//! `--redact`, and headers that carry secrets: what of a letter must not leave.

use redrive::letters::edit::Pointer;
use redrive_core::text::secret_header::is_secret_header;
use serde_json::Value;

use crate::exit::Failed;

/// Reads `--redact /card,/email`.
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

/// Removes headers whose name says that they carry a secret.
pub fn hide_secret_headers(letter: &mut Value) {
    if let Some(headers) = letter.get_mut("headers").and_then(Value::as_object_mut) {
        headers.retain(|name, _| !is_secret_header(name));
    }
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
    fn headers_that_carry_secrets_do_not_leave() {
        let mut letter = json!({ "headers": { "x-src": "web", "Authorization": "Bearer s3cret" } });
        hide_secret_headers(&mut letter);
        assert_eq!(letter["headers"], json!({ "x-src": "web" }));
    }
}
