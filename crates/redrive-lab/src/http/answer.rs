//! Responses and request bodies, each of bounded size.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::{Value, json as value};

pub(crate) type Answer = Response<Full<Bytes>>;

pub(crate) fn answer(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub(crate) fn json(status: StatusCode, body: &Value) -> Answer {
    answer(status, "application/json", format!("{body}\n"))
}

pub(crate) fn text(status: StatusCode, body: &'static str) -> Answer {
    answer(status, "text/plain; charset=utf-8", body)
}

/// An error response in the same shape as those of the API.
pub(crate) fn fault(status: StatusCode, code: &str, message: &str, hint: &str) -> Answer {
    json(status, &value!({ "code": code, "message": message, "hint": hint }))
}

/// Reads a body of at most `max` bytes; on error returns the response to send.
pub(crate) async fn body(body: Incoming, max: usize) -> Result<Bytes, Box<Answer>> {
    match Limited::new(body, max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let message = format!("the body has more than {max} bytes");
            Err(Box::new(fault(StatusCode::PAYLOAD_TOO_LARGE, "too_large", &message, "send less at once")))
        }
        Err(_) => {
            let message = "the body ended before its time";
            Err(Box::new(fault(StatusCode::BAD_REQUEST, "bad_body", message, "send the request again")))
        }
    }
}

/// The value of `name` in a query; decodes `%` escapes and `+`.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Option<String> {
    let pairs = query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| decoded(value))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(if *first == b'+' { b' ' } else { *first }));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_and_decoded() {
        let query = Some("after=o-1%2F2+x&limit=5&odd=%zz&end=%4&empty");
        for (name, value) in [
            ("after", Some("o-1/2 x")),
            ("limit", Some("5")),
            ("odd", Some("%zz")),
            ("end", Some("%4")),
            ("empty", Some("")),
            ("none", None),
        ] {
            assert_eq!(parameter(query, name).as_deref(), value, "{name}");
        }
        assert_eq!(parameter(None, "after"), None);
    }
}
