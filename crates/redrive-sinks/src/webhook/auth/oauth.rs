//! OAuth2 client credentials: fetches a token, keeps it until shortly before it expires, and fetches another when the
//! receiver refuses it.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use redrive::{Failure, Message};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::super::connect::Pool;
use super::super::endpoint;
use super::super::outcome::{answer, trouble};
use super::super::payload::Payload;
use super::super::signing::watched::Watched;
use super::authorization::{Authorization, current};
use crate::fault::SinkFault;
use crate::secret::Secret;

/// How long before expiry a token is replaced.
const EARLY: Duration = Duration::from_secs(30);
/// How long a token without `expires_in` is used.
const LIFETIME_DEFAULT: Duration = Duration::from_mins(5);
const LIFETIME_MAX: Duration = Duration::from_hours(24);
/// How long the token endpoint is not called again after a failure.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// The user settings of a token endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth2 {
    pub token_url: Secret,
    pub client_id: String,
    pub client_secret_file: PathBuf,
    pub scopes: Vec<String>,
}

/// Provides the tokens of a sink.
pub(in super::super) struct TokenSource {
    url: Uri,
    client_id: String,
    secret: Watched<Secret>,
    scope: String,
    pool: Pool,
    held: Mutex<HeldToken>,
}

#[derive(Default)]
struct HeldToken {
    token: Option<(Authorization, Instant)>,
    failed: Option<(RefusalBody, Instant)>,
    generations: u64,
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RefusalBody {
    /// Our id or secret is wrong, and retrying does not help.
    Credential(String),
    /// It may work later.
    Unavailable(String),
}

impl RefusalBody {
    fn failure(&self) -> Failure {
        let failure = match self {
            Self::Credential(text) => Failure::credential(text.clone()),
            Self::Unavailable(text) => Failure::transient(text.clone()),
        };
        failure.before_receiver()
    }
}

/// The answer of a token endpoint.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// Required by the RFC, but often missing.
    token_type: Option<String>,
    /// A number of seconds; some servers write it as text.
    expires_in: Option<Value>,
}

impl Granted {
    /// The header and how long it may be used.
    fn accept(&self) -> Result<(HeaderValue, Duration), RefusalBody> {
        if let Some(kind) = self.token_type.as_deref().filter(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            let kind = plain(kind).unwrap_or("…");
            return Err(RefusalBody::Credential(format!(
                "the token endpoint grants a token of type {kind}, and only Bearer can be used"
            )));
        }
        let lifetime = lifetime(self.expires_in.as_ref())?;
        let value = HeaderValue::try_from(format!("Bearer {}", self.access_token));
        let mut value = value.map_err(|_| {
            RefusalBody::Credential("the token endpoint granted a token that no header can hold".to_owned())
        })?;
        value.set_sensitive(true);
        Ok((value, lifetime))
    }
}

/// How long a token may be used, from its `expires_in`.
fn lifetime(expires_in: Option<&Value>) -> Result<Duration, RefusalBody> {
    let (seconds, written) = match expires_in {
        None | Some(Value::Null) => return Ok(LIFETIME_DEFAULT),
        Some(Value::Number(number)) => (number.as_f64(), number.to_string()),
        Some(Value::String(text)) => (text.trim().parse().ok(), text.clone()),
        Some(_) => (None, String::new()),
    };
    match seconds {
        Some(seconds) if seconds >= 0.0 => {
            Ok(Duration::from_secs_f64(seconds.min(LIFETIME_MAX.as_secs_f64())))
        }
        _ => {
            let written = plain(&written).unwrap_or("…");
            Err(unavailable(&format!(
                "its answer has an `expires_in` of {written}, which is not a number of seconds from 0"
            )))
        }
    }
}

/// A word from the token endpoint that is safe to show in an error.
fn plain(word: &str) -> Option<&str> {
    let is_plain = (1..=64).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_graphic());
    is_plain.then_some(word)
}

fn unavailable(text: &str) -> RefusalBody {
    RefusalBody::Unavailable(format!("the token endpoint: {text}"))
}

#[derive(Deserialize)]
struct TokenRefused {
    error: String,
}

impl TokenSource {
    pub(super) fn new(options: &OAuth2, secret: Watched<Secret>, pool: Pool) -> Result<Self, SinkFault> {
        let url = endpoint::judge(options.token_url.expose()).map_err(|fault| {
            let problem = format!("`auth.token_url` cannot be used: {fault}");
            SinkFault::of(
                "auth.token_url",
                "",
                problem,
                "auth.token_url = \"https://login.example.com/oauth2/token\"",
            )
        })?;
        let (client_id, scope) = (options.client_id.clone(), options.scopes.join(" "));
        Ok(Self { url, client_id, secret, scope, pool, held: Mutex::default() })
    }

    /// The current token. One of the `refused` generation is not used again.
    pub(super) async fn authorization(&self, refused: Option<u64>) -> Result<Authorization, Failure> {
        // Calls that arrive while a token is being fetched wait for it.
        let mut held = self.held.lock().await;
        let now = Instant::now();
        if let Some((token, until)) = &held.token
            && now < *until
            && refused != Some(token.generation)
        {
            return Ok(token.clone());
        }
        if let Some((refusal, until)) = &held.failed
            && now < *until
        {
            return Err(refusal.failure());
        }
        held.token = None;
        match self.fetch().await {
            Ok((value, lifetime)) => {
                held.generations += 1;
                held.failed = None;
                let token = Authorization { value, generation: held.generations };
                held.token = Some((token.clone(), Instant::now() + lifetime.saturating_sub(EARLY)));
                Ok(token)
            }
            Err(refusal) => {
                let failure = refusal.failure();
                held.failed = Some((refusal, Instant::now() + FAILED_FOR));
                Err(failure)
            }
        }
    }

    async fn fetch(&self) -> Result<(HeaderValue, Duration), RefusalBody> {
        let response = self.pool.request(self.request()?).await;
        let response = response.map_err(|error| unavailable(&trouble::of(&error).1))?;
        let (head, mut body) = response.into_parts();
        let mut text = Vec::new();
        // Read all of it: a token may be long.
        let read = answer::read_up_to(answer::BODY_BYTES_MAX, &mut body, &mut text).await;
        read.map_err(|error| unavailable(trouble::broken(&error)))?;
        let status = head.status;
        if status.is_success() {
            let granted: Granted = serde_json::from_slice(&text)
                .map_err(|_| unavailable("its answer is not JSON with an `access_token`"))?;
            return granted.accept();
        }
        let named = serde_json::from_slice::<TokenRefused>(&text).ok().map(|refused| refused.error);
        let said = named.as_deref().and_then(plain).map(|name| format!(" {name}")).unwrap_or_default();
        let text = format!("{}{said}", status.as_u16());
        if status.is_client_error() && status.as_u16() != 429 && status.as_u16() != 408 {
            return Err(RefusalBody::Credential(format!(
                "the token endpoint refuses our client id or secret: {text}"
            )));
        }
        Err(unavailable(&text))
    }

    fn request(&self) -> Result<Request<Payload>, RefusalBody> {
        let broken =
            || RefusalBody::Credential("the client id or secret cannot be sent in a header".to_owned());
        let mut form = "grant_type=client_credentials".to_owned();
        if !self.scope.is_empty() {
            form.push_str("&scope=");
            form.push_str(&form_encoded(&self.scope));
        }
        let secret = current(&self.secret);
        let pair = format!("{}:{}", form_encoded(&self.client_id), form_encoded(secret.expose()));
        let mut authorization =
            HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair))).map_err(|_| broken())?;
        authorization.set_sensitive(true);
        let message = Message::builder("token").payload(Bytes::from(form)).build().map_err(|_| broken())?;
        let (payload, _) = Payload::of(&message);
        let mut request = Request::new(payload);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(AUTHORIZATION, authorization);
        Ok(request)
    }
}

/// Encodes as `application/x-www-form-urlencoded`, which RFC 6749 requires for ids and secrets too.
fn form_encoded(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => {
                encoded.push(char::from(byte));
            }
            b' ' => encoded.push('+'),
            // Writing to a string does not fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
        encoded
    })
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_secrets_are_encoded_as_forms() {
        assert_eq!(form_encoded("a b+c:é*"), "a+b%2Bc%3A%C3%A9*");
    }

    fn accepted(answer: &str) -> Result<u64, RefusalBody> {
        let granted: Granted = serde_json::from_str(answer).unwrap();
        granted.accept().map(|(_, lifetime)| lifetime.as_secs())
    }

    #[test]
    fn the_time_of_a_token_may_be_a_number_or_a_text() {
        assert_eq!(accepted(r#"{"access_token":"t","expires_in":3600}"#), Ok(3600));
        assert_eq!(accepted(r#"{"access_token":"t","token_type":"BEARER","expires_in":"3600"}"#), Ok(3600));
        assert_eq!(accepted(r#"{"access_token":"t","expires_in":3599.5}"#), Ok(3599));
        assert_eq!(accepted(r#"{"access_token":"t","expires_in":null}"#), Ok(LIFETIME_DEFAULT.as_secs()));
        assert_eq!(accepted(r#"{"access_token":"t"}"#), Ok(LIFETIME_DEFAULT.as_secs()));
        assert_eq!(accepted(r#"{"access_token":"t","expires_in":1e300}"#), Ok(LIFETIME_MAX.as_secs()));
    }

    #[test]
    fn a_time_that_is_none_and_a_token_of_another_type_are_said_as_what_they_are() {
        for (written, shown) in [("-1", "-1"), ("\"soon\"", "soon"), ("\"NaN\"", "NaN"), ("[1]", "…")] {
            let refused = accepted(&format!(r#"{{"access_token":"t","expires_in":{written}}}"#));
            let text = format!(
                "the token endpoint: its answer has an `expires_in` of {shown}, which is not a number of seconds from 0"
            );
            assert_eq!(refused, Err(RefusalBody::Unavailable(text)));
        }
        let refused = accepted(r#"{"access_token":"t","token_type":"DPoP","expires_in":60}"#);
        let text = "the token endpoint grants a token of type DPoP, and only Bearer can be used";
        assert_eq!(refused, Err(RefusalBody::Credential(text.to_owned())));
    }
}
