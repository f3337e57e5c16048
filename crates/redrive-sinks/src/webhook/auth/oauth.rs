//! OAuth2 client credentials: fetches a token, holds it until shortly before it expires, and fetches another when the
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

/// A token is replaced so long before it expires.
const EARLY: Duration = Duration::from_secs(30);
/// How long a token without `expires_in` is used.
const LIFETIME_DEFAULT: Duration = Duration::from_mins(5);
const LIFETIME_MAX: Duration = Duration::from_hours(24);
/// The token endpoint is left in peace for so long after a failure, whoever asks.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// Where tokens come from, as a user describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OAuth2 {
    pub token_url: Secret,
    pub client_id: String,
    pub client_secret_file: PathBuf,
    pub scopes: Vec<String>,
}

/// The token of a sink.
pub(super) struct TokenSource {
    url: Uri,
    client_id: String,
    secret: Watched<Secret>,
    scope: String,
    pool: Pool,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    token: Option<(Authorization, Instant)>,
    failed: Option<(Refusal, Instant)>,
    generations: u64,
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// Our id or secret is wrong, and trying again changes nothing.
    Credential(String),
    /// It may work a moment later.
    Unavailable(String),
}

impl Refusal {
    fn failure(&self) -> Failure {
        let failure = match self {
            Self::Credential(text) => Failure::credential(text.clone()),
            Self::Unavailable(text) => Failure::transient(text.clone()),
        };
        failure.before_receiver()
    }
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Option<u64>,
}

#[derive(Deserialize)]
struct Refused {
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

    /// The token in force. One of the `refused` generation is not used again.
    pub(super) async fn authorization(&self, refused: Option<u64>) -> Result<Authorization, Failure> {
        // Whoever comes while a token is fetched waits for that one.
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
            Ok(granted) => {
                held.generations += 1;
                held.failed = None;
                let lifetime =
                    granted.expires_in.map_or(LIFETIME_DEFAULT, Duration::from_secs).min(LIFETIME_MAX);
                let mut value =
                    HeaderValue::try_from(format!("Bearer {}", granted.access_token)).map_err(|_| {
                        Failure::credential("the token endpoint granted a token that no header can hold")
                    })?;
                value.set_sensitive(true);
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

    async fn fetch(&self) -> Result<Granted, Refusal> {
        let unavailable = |text: String| Refusal::Unavailable(format!("the token endpoint: {text}"));
        let response = self.pool.request(self.request()?).await;
        let response = response.map_err(|error| unavailable(trouble::of(&error).1))?;
        let (head, mut body) = response.into_parts();
        let mut text = Vec::new();
        let read = answer::read(&mut body, &mut text).await;
        read.map_err(|error| unavailable(trouble::broken(&error).to_owned()))?;
        let status = head.status;
        if status.is_success() {
            return serde_json::from_slice(&text)
                .map_err(|_| unavailable("its answer holds no access_token".to_owned()));
        }
        let named = serde_json::from_slice::<Refused>(&text).ok().map(|refused| refused.error);
        let named = named.filter(|name| name.len() <= 64 && name.bytes().all(|b| b.is_ascii_graphic()));
        let said = named.map(|name| format!(" {name}")).unwrap_or_default();
        let text = format!("{}{said}", status.as_u16());
        if status.is_client_error() && status.as_u16() != 429 && status.as_u16() != 408 {
            return Err(Refusal::Credential(format!(
                "the token endpoint refuses our client id or secret: {text}"
            )));
        }
        Err(unavailable(text))
    }

    fn request(&self) -> Result<Request<Payload>, Refusal> {
        let broken = || Refusal::Credential("the client id or secret cannot be sent in a header".to_owned());
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

/// `application/x-www-form-urlencoded`, as RFC 6749 wants ids and secrets too.
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
}
