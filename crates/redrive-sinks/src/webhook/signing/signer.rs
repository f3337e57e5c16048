//! Chooses the secrets for a message's request, and creates the header with the signatures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use redrive::{Message, Time};

use super::command::SecretCommand;
use super::keyring::{EndpointKeys, Keyring};
use super::watched::Watched;
use crate::fault::SinkFault;
use crate::secret::SecretError;

const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const KEYRING_BYTES_MAX: u64 = 64 * 1024;
const ENDPOINTS_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The user settings of signing. If none is set, requests are not signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signing {
    /// A file with the secrets for receivers without their own, one per line.
    pub secret_file: Option<PathBuf>,
    /// A file with the secrets of each endpoint: `URL SECRET` per line.
    pub endpoint_secrets_file: Option<PathBuf>,
    /// A command that prints the secrets of the endpoint in its last argument, one per line; nothing if it has none.
    pub endpoint_secret_command: Vec<String>,
    /// The message header with the secret of its endpoint. It is not passed on.
    pub endpoint_secret_header: Option<String>,
}

/// Why a request could not be signed. Never repeats a secret or an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    #[error("there is no signing secret for this endpoint")]
    NoSecret,
    #[error("the signing secret that the message brings cannot be used: {0}")]
    BadSecret(String),
    #[error("the command for the signing secret of this endpoint failed: {0}")]
    Command(String),
}

impl SigningError {
    /// Whether it may work later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Command(_))
    }
}

/// The signed content. The timestamp is new for each attempt, and so is the signature.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Unsigned<'a> {
    /// As in the header `webhook-id`.
    pub(in super::super) id: &'a [u8],
    pub(in super::super) timestamp_secs: u64,
    pub(in super::super) payload: &'a [u8],
}

/// Signs requests.
#[derive(Debug, Default)]
pub(in super::super) struct Signer {
    secret: Option<Watched<Keyring>>,
    by_endpoint: Option<Watched<EndpointKeys>>,
    command: Option<SecretCommand>,
    header: Option<String>,
}

/// The command's answer for the endpoint of one message. Empty if the command was not run.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Fetched(Option<Arc<Keyring>>);

impl Signing {
    /// Reads the files and reports their faults.
    pub(in super::super) fn signer(&self, now: Instant) -> Result<Signer, SinkFault> {
        let secret = self.secret_file.as_deref().map(|path| {
            let parse = |text: &str| Keyring::parse(text).map_err(|fault| fault.to_string());
            Watched::open(path, KEYRING_BYTES_MAX, parse, now)
                .map_err(|error| fault("signing_secret_file", &error))
        });
        let by_endpoint = self.endpoint_secrets_file.as_deref().map(|path| {
            let parse = |text: &str| EndpointKeys::parse(text).map_err(|fault| fault.to_string());
            Watched::open(path, ENDPOINTS_BYTES_MAX, parse, now)
                .map_err(|error| fault("endpoint_secrets_file", &error))
        });
        Ok(Signer {
            secret: secret.transpose()?,
            by_endpoint: by_endpoint.transpose()?,
            command: SecretCommand::of(&self.endpoint_secret_command)?,
            header: self.endpoint_secret_header.clone(),
        })
    }
}

fn fault(key: &str, error: &SecretError) -> SinkFault {
    let problem = format!("`{key}` cannot be used: {error}");
    SinkFault::of(
        key,
        &error.path.display().to_string(),
        problem,
        "a readable file with a whsec_ or whsk_ secret per line",
    )
}

impl Signer {
    /// Whether this message header holds a secret.
    pub(in super::super) fn is_secret_header(&self, name: &str) -> bool {
        self.header.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(name))
    }

    /// Runs the command for the secrets of an endpoint, if there is one and neither the message nor the file has any.
    pub(in super::super) async fn fetch(
        &self,
        message: &Message,
        endpoint: &hyper::Uri,
    ) -> Result<Fetched, SigningError> {
        let Some(command) = &self.command else { return Ok(Fetched::default()) };
        let endpoint = endpoint.to_string();
        if self.own_header(message).is_some() || self.is_in_file(&endpoint) {
            return Ok(Fetched::default());
        }
        command.secrets(&endpoint).await.map(Fetched).map_err(SigningError::Command)
    }

    /// Adds the header with the signatures. Precedence: the message's own secret, that of its endpoint in the file,
    /// that from the command, and the common one.
    pub(in super::super) fn sign(
        &self,
        message: &Message,
        endpoint: &hyper::Uri,
        fetched: &Fetched,
        unsigned: Unsigned<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), SigningError> {
        let is_off = self.header.is_none() && self.by_endpoint.is_none() && self.command.is_none();
        if is_off && self.secret.is_none() {
            return Ok(());
        }
        let content = content(unsigned);
        let now = Time::from_millis(unsigned.timestamp_secs * 1000);
        let signatures = if let Some(own) = self.own_secret(message)? {
            own.sign(&content, now)
        } else {
            self.configured(endpoint, fetched, &content, now)?
        };
        let value = HeaderValue::try_from(signatures).map_err(|_| SigningError::NoSecret)?;
        headers.insert(WEBHOOK_SIGNATURE, value);
        Ok(())
    }

    /// The secrets in the message, on one line and separated by commas.
    fn own_secret(&self, message: &Message) -> Result<Option<Keyring>, SigningError> {
        let Some(value) = self.own_header(message) else { return Ok(None) };
        let text =
            std::str::from_utf8(value).map_err(|_| SigningError::BadSecret("it is not a text".to_owned()))?;
        let ring = Keyring::parse(&text.replace(',', "\n"));
        ring.map(Some).map_err(|fault| SigningError::BadSecret(fault.problem))
    }

    fn own_header<'m>(&self, message: &'m Message) -> Option<&'m [u8]> {
        let name = self.header.as_ref()?;
        message.headers().find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn is_in_file(&self, endpoint: &str) -> bool {
        let keys = self.by_endpoint.as_ref().map(|keys| keys.get(ENDPOINTS_BYTES_MAX, Instant::now()));
        keys.is_some_and(|keys| keys.of(endpoint).is_some())
    }

    fn configured(
        &self,
        endpoint: &hyper::Uri,
        fetched: &Fetched,
        content: &[u8],
        now: Time,
    ) -> Result<String, SigningError> {
        let instant = Instant::now();
        if let Some(keys) = &self.by_endpoint
            && let Some(ring) = keys.get(ENDPOINTS_BYTES_MAX, instant).of(&endpoint.to_string())
        {
            let signatures = ring.sign(content, now);
            if !signatures.is_empty() {
                return Ok(signatures);
            }
        }
        let signatures = fetched.0.as_ref().map(|ring| ring.sign(content, now));
        if let Some(signatures) = signatures.filter(|signatures| !signatures.is_empty()) {
            return Ok(signatures);
        }
        let ring = self.secret.as_ref().ok_or(SigningError::NoSecret)?;
        Ok(ring.get(KEYRING_BYTES_MAX, instant).sign(content, now))
    }
}

/// `id.timestamp.body`.
fn content(unsigned: Unsigned<'_>) -> Vec<u8> {
    let timestamp = unsigned.timestamp_secs.to_string();
    let length = unsigned.id.len() + timestamp.len() + unsigned.payload.len() + 2;
    let mut content = Vec::with_capacity(length);
    for (at, part) in [unsigned.id, timestamp.as_bytes(), unsigned.payload].into_iter().enumerate() {
        if at > 0 {
            content.push(b'.');
        }
        content.extend_from_slice(part);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::super::key::VerifyingKey;
    use super::*;

    const ONE: &str = "whsec_b25lb25lb25lb25lb25lb25lb25lb25l";
    const TWO: &str = "whsec_dHdvdHdvdHdvdHdvdHdvdHdvdHdvdHdv";

    fn signed(signing: &Signing, message: &Message, endpoint: &str) -> Result<Option<String>, SigningError> {
        let mut headers = HeaderMap::new();
        let unsigned = Unsigned { id: b"a%2E1", timestamp_secs: 1_700_000_000, payload: b"{}" };
        let signer = signing.signer(Instant::now()).unwrap();
        signer.sign(message, &endpoint.parse().unwrap(), &Fetched::default(), unsigned, &mut headers)?;
        Ok(headers.get(WEBHOOK_SIGNATURE).map(|value| value.to_str().unwrap().to_owned()))
    }

    fn verifies(secret: &str, signatures: &str) -> bool {
        let key = VerifyingKey::parse(secret).unwrap();
        signatures.split(' ').any(|one| key.verifies(one, b"a%2E1.1700000000.{}"))
    }

    #[test]
    fn the_secret_of_the_message_goes_over_that_of_its_endpoint_and_that_over_the_one_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let (all, each) = (dir.path().join("all"), dir.path().join("each"));
        std::fs::write(&all, ONE).unwrap();
        std::fs::write(&each, format!("https://a.example/ {TWO}\n")).unwrap();
        let plain = Message::builder("a.1").build().unwrap();
        let signing =
            Signing { secret_file: Some(all), endpoint_secrets_file: Some(each), ..Signing::default() };
        assert!(verifies(TWO, &signed(&signing, &plain, "https://a.example/").unwrap().unwrap()));
        assert!(verifies(ONE, &signed(&signing, &plain, "https://b.example/").unwrap().unwrap()));
        let signing = Signing { endpoint_secret_header: Some("x-secret".to_owned()), ..signing };
        let own = Message::builder("a.1").header("X-Secret", format!("{ONE},{TWO}")).build().unwrap();
        let both = signed(&signing, &own, "https://a.example/").unwrap().unwrap();
        assert!(verifies(ONE, &both) && verifies(TWO, &both));
        let bad = Message::builder("a.1").header("x-secret", "hunter2").build().unwrap();
        let error = signed(&signing, &bad, "https://a.example/").unwrap_err();
        assert!(
            matches!(&error, SigningError::BadSecret(_)) && !error.to_string().contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn an_endpoint_without_a_secret_is_never_sent_to_unsigned() {
        let dir = tempfile::tempdir().unwrap();
        let each = dir.path().join("each");
        std::fs::write(&each, format!("https://a.example/ {TWO}\n")).unwrap();
        let plain = Message::builder("a.1").build().unwrap();
        let signing = Signing { endpoint_secrets_file: Some(each), ..Signing::default() };
        assert_eq!(signed(&signing, &plain, "https://b.example/"), Err(SigningError::NoSecret));
        assert_eq!(signed(&Signing::default(), &plain, "https://b.example/"), Ok(None));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_a_fault_of_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "whsec_AAAA").unwrap();
        let signing = Signing { secret_file: Some(path), ..Signing::default() };
        let fault = signing.signer(Instant::now()).unwrap_err();
        assert_eq!(fault.key, "signing_secret_file");
        assert!(fault.problem.contains("has 24 to 64 bytes, and this one has 3"), "{fault}");
    }
}
