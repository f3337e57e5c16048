//! The user settings of an APNs sink, and their validation.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use redrive::internal::subscriptions::{Purge, Subscriptions};

use super::classes::ROWS;
use super::token::ProviderToken;
use crate::fault::SinkFault;
use crate::push::PushClasses;
use crate::push::http2::{ServerAddress, Sessions};
use crate::secret::Secret;
use crate::webhook::ClientCertificate;
use crate::webpush::options::read_key;

pub const PRODUCTION: &str = "https://api.push.apple.com";
pub const SANDBOX: &str = "https://api.sandbox.push.apple.com";
pub const CONNECTIONS: u32 = 2;
pub const CONNECTIONS_MAX: u32 = 64;

/// How we authenticate to APNs.
#[derive(Clone, Debug)]
pub enum ApnsAuth {
    /// A provider token, signed with a key from the developer account.
    Token { key_file: PathBuf, key_id: String, team_id: String },
    /// A certificate in the TLS handshake.
    Certificate { certificate_file: PathBuf, key_file: PathBuf },
}

/// The settings of an APNs sink.
#[derive(Clone, Debug)]
pub struct ApnsOptions {
    pub auth: ApnsAuth,
    /// [`PRODUCTION`], [`SANDBOX`], or another server.
    pub url: String,
    /// The app, for messages that do not name one.
    pub topic: Option<String>,
    pub ca_file: Option<PathBuf>,
    /// The maximum number of connections; further ones are opened only when all are full.
    pub connections: u32,
    pub timeout: Duration,
    pub classes: PushClasses,
    /// The key of `endpoint_hash`; random for each process unless set.
    pub hash_key: Option<Secret>,
    /// The state of device tokens.
    pub subscriptions: Subscriptions,
    /// Further members that an envelope may have because the pipeline reads them.
    pub other_members: Vec<String>,
}

impl ApnsOptions {
    pub fn new(auth: ApnsAuth) -> Self {
        Self {
            auth,
            url: PRODUCTION.into(),
            topic: None,
            ca_file: None,
            connections: CONNECTIONS,
            timeout: Duration::from_secs(30),
            classes: PushClasses::new(ROWS),
            hash_key: None,
            subscriptions: Subscriptions::new("apns", Purge::default()),
            other_members: Vec::new(),
        }
    }

    /// All faults. Reads the named files, and connects to nothing.
    pub fn check(&self) -> Vec<SinkFault> {
        let mut faults = Vec::new();
        faults.extend(self.token().err());
        faults.extend(self.check_server());
        faults
    }

    /// All faults of the server address and the connection settings, including the certificate.
    pub fn check_server(&self) -> Vec<SinkFault> {
        self.sessions().err().into_iter().collect()
    }

    pub(super) fn token(&self) -> Result<Option<ProviderToken>, SinkFault> {
        let ApnsAuth::Token { key_file, key_id, team_id } = &self.auth else { return Ok(None) };
        for (key, value) in [("key_id", key_id), ("team_id", team_id)] {
            if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                let problem = format!("`{key}` is {value:?}, which is not a valid Apple id");
                let fix = format!("{key} = \"ABC123DEFG\"");
                return Err(SinkFault::of(key, value, problem, &fix));
            }
        }
        let key = read_key("key_file", key_file)?;
        Ok(Some(ProviderToken::new(key, key_id.clone(), team_id.clone())))
    }

    pub(super) fn sessions(&self) -> Result<Sessions, SinkFault> {
        let tls = match &self.auth {
            ApnsAuth::Token { .. } => crate::tls::client(self.ca_file.as_deref())?,
            ApnsAuth::Certificate { certificate_file, key_file } => {
                let own =
                    ClientCertificate { cert_file: certificate_file.clone(), key_file: key_file.clone() };
                crate::tls::client_with(self.ca_file.as_deref(), Some(&own)).map_err(by_our_names)?
            }
        };
        let server = self.address().and_then(|address| ServerAddress::of(&address, tls));
        let server = server.ok_or_else(|| {
            let problem = format!("`url` is {:?}, which is not https://HOST or https://HOST:PORT", self.url);
            SinkFault::of("url", &self.url, problem, "remove `url`, and set environment = \"production\"")
        })?;
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            let value = self.connections.to_string();
            let problem = format!("`connections` is {value}");
            let fix = format!("connections = {CONNECTIONS}  # 1 to {CONNECTIONS_MAX}");
            return Err(SinkFault::of("connections", &value, problem, &fix));
        }
        Ok(Sessions::new(server, self.connections as usize))
    }

    pub(super) fn address(&self) -> Option<Uri> {
        self.url.parse().ok().filter(|address: &Uri| matches!(address.path(), "" | "/"))
    }
}

/// Renames a fault of the certificate to this sink's settings.
fn by_our_names(fault: SinkFault) -> SinkFault {
    let ours = |text: &str| {
        text.replace("client_cert_file", "certificate_file")
            .replace("client_key_file", "certificate_key_file")
    };
    SinkFault { key: ours(&fault.key), problem: ours(&fault.problem), ..fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_its_ids_is_needed_and_a_server_that_is_one() {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("key.p8");
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        std::fs::write(&key_file, pair.serialize_pem()).unwrap();
        let keys = |key_id: &str, change: fn(&mut ApnsOptions)| {
            let (key_file, key_id) = (key_file.clone(), key_id.to_owned());
            let mut options =
                ApnsOptions::new(ApnsAuth::Token { key_file, key_id, team_id: "TEAM123456".into() });
            change(&mut options);
            options.check().into_iter().map(|fault| fault.key).collect::<Vec<_>>()
        };
        assert!(keys("ABC123DEFG", |_| {}).is_empty());
        assert_eq!(keys("", |_| {}), ["key_id"]);
        assert_eq!(keys("ABC", |options| options.url = "http://127.0.0.1".into()), ["url"]);
        assert_eq!(keys("ABC", |options| options.url = "https://a.example/x".into()), ["url"]);
        assert_eq!(keys("ABC", |options| options.connections = 0), ["connections"]);
        assert_eq!(keys("ABC", |options| options.ca_file = Some("/nowhere.pem".into())), ["ca_file"]);
        let auth = ApnsAuth::Certificate { certificate_file: "/nowhere.pem".into(), key_file };
        assert_eq!(ApnsOptions::new(auth).check()[0].key, "certificate_file");
    }
}
