//! The access token: fetched with the service account, shared by all calls, renewed before it expires, one fetch at a
//! time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request};
use redrive::Failure;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::account::Account;
use crate::push::{PushClasses, failing};
use crate::webhook::Trouble;
use crate::webhook::connect::Pool;
use crate::webhook::outcome::{answer, trouble};
use crate::webhook::payload::Payload;

/// A token is renewed this long before it expires, so that none expires in transit.
const BEFORE_END: Duration = Duration::from_mins(5);
const FORM: HeaderValue = HeaderValue::from_static("application/x-www-form-urlencoded");

/// A token and how long it may be used.
#[derive(Clone)]
struct HeldToken {
    bearer: String,
    until: SystemTime,
}

/// Fetches and holds the token.
pub struct Access {
    account: Account,
    pool: Pool,
    held: Mutex<Option<HeldToken>>,
    /// The holder fetches; the others wait and use the result.
    fetching: tokio::sync::Mutex<()>,
}

impl Access {
    pub(super) fn new(account: Account, pool: Pool) -> Self {
        Self { account, pool, held: Mutex::default(), fetching: tokio::sync::Mutex::default() }
    }

    pub fn project(&self) -> &str {
        &self.account.project
    }

    /// The value of `authorization`, fetched if there is none.
    pub async fn bearer(&self, deadline: Instant, classes: &PushClasses) -> Result<String, Failure> {
        if let Some(bearer) = self.current(SystemTime::now()) {
            return Ok(bearer);
        }
        let late =
            || failing::unanswered(Trouble::Timeout, "timed out waiting for an access token", false, classes);
        let _fetching = timeout_at(deadline, self.fetching.lock()).await.map_err(|_| late())?;
        // Another call may have fetched it in the meantime.
        if let Some(bearer) = self.current(SystemTime::now()) {
            return Ok(bearer);
        }
        let held = timeout_at(deadline, self.fetch(classes)).await.map_err(|_| late())??;
        let bearer = held.bearer.clone();
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(bearer)
    }

    /// Drops a token that FCM refused, unless it was already replaced.
    pub fn refused(&self, bearer: &str) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.take_if(|held| held.bearer == bearer);
    }

    fn current(&self, now: SystemTime) -> Option<String> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().filter(|held| now < held.until).map(|held| held.bearer.clone())
    }

    async fn fetch(&self, classes: &PushClasses) -> Result<HeldToken, Failure> {
        let now = SystemTime::now();
        let secs = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let form = self.account.assertion(secs);
        let form = form.map_err(|_| failing::without_credential("the service account's key cannot sign"))?;
        let (payload, _) = Payload::of_bytes(Bytes::from(form));
        let length = payload.bytes().len();
        let mut request = Request::new(payload);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.account.token_uri.clone();
        request.headers_mut().insert(CONTENT_TYPE, FORM);
        request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        let response = self.pool.request(request).await.map_err(|error| {
            let (trouble, text) = trouble::of(&error);
            // A token that was issued but not received does no harm.
            failing::unanswered(trouble, &format!("no access token: {text}"), false, classes)
        })?;
        let (head, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        let _ = answer::read_up_to(answer::BODY_BYTES_MAX, &mut incoming, &mut body).await;
        match head.status.as_u16() {
            200 => held(&body, now).ok_or_else(|| {
                let text = "no access token: the token server's answer cannot be read";
                failing::unanswered(Trouble::Reset, text, false, classes)
            }),
            status @ (400 | 401 | 403 | 404) => {
                let text = format!("the service account was refused: {status}{}", error_code(&body));
                Err(failing::without_credential(&text))
            }
            status => {
                let text = format!("no access token: the token server answered {status}");
                Err(failing::unanswered(Trouble::Reset, &text, false, classes))
            }
        }
    }
}

fn held(body: &[u8], now: SystemTime) -> Option<HeldToken> {
    let said: Value = serde_json::from_slice(body).ok()?;
    let token = said.get("access_token")?.as_str().filter(|token| !token.is_empty())?;
    let valid =
        Duration::from_secs(said.get("expires_in").and_then(Value::as_u64).unwrap_or(3600).min(86_400));
    // A token that expires sooner than the margin is used for half of its lifetime.
    let used = valid.checked_sub(BEFORE_END).filter(|used| !used.is_zero()).unwrap_or(valid / 2);
    Some(HeldToken { bearer: format!("Bearer {token}"), until: now + used })
}

/// `: invalid_grant`, if the answer contains such a word.
fn error_code(body: &[u8]) -> String {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = said.get("error").and_then(Value::as_str).unwrap_or_default();
    let is_word =
        !code.is_empty() && code.len() <= 64 && code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    if is_word { format!(": {code}") } else { String::new() }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Access([secret])")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_used_until_five_minutes_before_its_end() {
        let now = SystemTime::UNIX_EPOCH;
        let until = |body: &str| {
            held(body.as_bytes(), now).map(|held| held.until.duration_since(now).unwrap().as_secs())
        };
        assert_eq!(until(r#"{"access_token":"a","expires_in":3599}"#), Some(3299));
        assert_eq!(until(r#"{"access_token":"a","expires_in":60}"#), Some(30));
        assert_eq!(until(r#"{"access_token":""}"#), None);
        assert_eq!(until("nonsense"), None);
    }

    #[test]
    fn an_error_is_repeated_only_if_it_is_a_code() {
        assert_eq!(error_code(br#"{"error":"invalid_grant","error_description":"x"}"#), ": invalid_grant");
        assert_eq!(error_code(br#"{"error":"See https://x.example/?t=1"}"#), "");
        assert_eq!(error_code(b""), "");
    }
}
