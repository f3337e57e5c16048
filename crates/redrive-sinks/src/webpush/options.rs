//! The user settings of a Web Push sink, and their validation.

use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive::internal::subscriptions::{Purge, Subscriptions};

use super::classes::ROWS;
use super::vapid::Vapid;
use crate::fault::SinkFault;
use crate::push::PushClasses;
use crate::push::keys::Es256;
use crate::secret::Secret;
use crate::webhook::Names;

/// The maximum number of concurrent requests to one subscription.
pub const PER_ENDPOINT: u32 = 5;
/// The maximum number of keys: more are no longer a rotation.
const KEYS_MAX: usize = 16;

/// The settings of a Web Push sink.
#[derive(Clone, Debug)]
pub struct WebPushOptions {
    /// Files with the private keys. The first signs for subscriptions that do not name one; the others are for those
    /// made with them, so that a key can be replaced without losing subscribers.
    pub vapid_key_files: Vec<PathBuf>,
    /// A contact for push services: `mailto:…` or `https://…`.
    pub subject: String,
    /// The authorities whose certificates are trusted, instead of the built-in list.
    pub ca_file: Option<PathBuf>,
    /// The limit of the whole exchange.
    pub timeout: Duration,
    pub classes: PushClasses,
    pub per_endpoint: u32,
    /// Allows subscriptions in private networks and on this host, and plain http: for tests.
    pub allow_private_addresses: bool,
    /// The key of `endpoint_hash`; random for each process unless set.
    pub hash_key: Option<Secret>,
    /// The state of endpoints.
    pub subscriptions: Subscriptions,
    /// Further members that an envelope may have because the pipeline reads them.
    pub other_members: Vec<String>,
    pub names: Names,
}

impl WebPushOptions {
    pub fn new(vapid_key_file: impl Into<PathBuf>, subject: impl Into<String>) -> Self {
        Self {
            vapid_key_files: vec![vapid_key_file.into()],
            subject: subject.into(),
            ca_file: None,
            timeout: Duration::from_secs(30),
            classes: PushClasses::new(ROWS),
            per_endpoint: PER_ENDPOINT,
            allow_private_addresses: false,
            hash_key: None,
            subscriptions: Subscriptions::new("webpush", Purge::default()),
            other_members: Vec::new(),
            names: Names::system(),
        }
    }

    /// All faults. Reads the named files, and connects to nothing.
    pub fn check(&self) -> Vec<SinkFault> {
        let mut faults = Vec::new();
        faults.extend(self.vapid().err());
        faults.extend(crate::tls::client(self.ca_file.as_deref()).err());
        faults
    }

    /// The keys, the current one first.
    pub(super) fn vapid(&self) -> Result<Vec<Vapid>, SinkFault> {
        let subject = self.subject.trim();
        if !(subject.starts_with("mailto:") && subject.contains('@') || subject.starts_with("https://")) {
            let problem =
                format!("`subject` is {subject:?}, which is not an address that a push service can use");
            return Err(SinkFault::of("subject", subject, problem, "subject = \"mailto:ops@example.com\""));
        }
        if self.vapid_key_files.is_empty() || self.vapid_key_files.len() > KEYS_MAX {
            let problem = format!("`vapid_key_file` names {} files", self.vapid_key_files.len());
            let fix = format!("name 1 to {KEYS_MAX} files, the current key first");
            return Err(SinkFault::of("vapid_key_file", "", problem, &fix));
        }
        let keys = self.vapid_key_files.iter().map(|path| read_key("vapid_key_file", path));
        keys.map(|key| key.map(|key| Vapid::new(key, subject.to_owned()))).collect()
    }
}

/// Reads a P-256 key from a file; the fault names the file but not its content.
pub(crate) fn read_key(setting: &str, path: &Path) -> Result<Es256, SinkFault> {
    let failed = |problem: String| {
        let value = path.display().to_string();
        let problem = format!("`{setting}` is {value:?}, but {problem}");
        let fix = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem";
        SinkFault::of(setting, &value, problem, fix)
    };
    let text = Secret::read(path).map_err(|error| failed(error.problem))?;
    Es256::read(text.expose()).map_err(|problem| failed(problem.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_and_readable_keys_are_needed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vapid.pem");
        let key =
            |options: &WebPushOptions| options.check().into_iter().map(|fault| fault.key).collect::<Vec<_>>();
        assert_eq!(key(&WebPushOptions::new(&path, "mailto:a@b.example")), ["vapid_key_file"]);
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        std::fs::write(&path, pair.serialize_pem()).unwrap();
        assert!(key(&WebPushOptions::new(&path, "mailto:a@b.example")).is_empty());
        assert_eq!(key(&WebPushOptions::new(&path, "ops")), ["subject"]);
        let none =
            WebPushOptions { vapid_key_files: Vec::new(), ..WebPushOptions::new("", "https://b.example") };
        assert_eq!(key(&none), ["vapid_key_file"]);
    }
}
