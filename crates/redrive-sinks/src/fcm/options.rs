//! The user settings of an FCM sink, and their validation.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use redrive::internal::subscriptions::{Purge, Subscriptions};
use redrive_core::rate;

use super::access::Access;
use super::account::Account;
use super::classes::ROWS;
use crate::fault::SinkFault;
use crate::push::PushClasses;
use crate::push::http2::{ServerAddress, Sessions};
use crate::secret::Secret;
use crate::webhook::Names;
use crate::webhook::connect;
use crate::webhook::guard::Guard;

pub const GOOGLE: &str = "https://fcm.googleapis.com";
pub const CONNECTIONS: u32 = 2;
pub const CONNECTIONS_MAX: u32 = 64;

/// The settings of an FCM sink.
#[derive(Clone, Debug)]
pub struct FcmOptions {
    /// The JSON file of a service account.
    pub service_account_file: PathBuf,
    /// [`GOOGLE`], or another server.
    pub url: String,
    pub ca_file: Option<PathBuf>,
    pub connections: u32,
    /// The maximum number of requests per second, for all members of a Kafka group together.
    pub rate: Option<f64>,
    pub timeout: Duration,
    pub classes: PushClasses,
    /// The key of `endpoint_hash`; random for each process unless set.
    pub hash_key: Option<Secret>,
    /// The state of device tokens.
    pub subscriptions: Subscriptions,
    /// Further members that a message may have because the pipeline reads them; they are not sent to FCM.
    pub other_members: Vec<String>,
}

impl FcmOptions {
    pub fn new(service_account_file: impl Into<PathBuf>) -> Self {
        Self {
            service_account_file: service_account_file.into(),
            url: GOOGLE.into(),
            ca_file: None,
            connections: CONNECTIONS,
            rate: None,
            timeout: Duration::from_secs(30),
            classes: PushClasses::new(ROWS),
            hash_key: None,
            subscriptions: Subscriptions::new("fcm", Purge::default()),
            other_members: Vec::new(),
        }
    }

    /// All faults. Reads the named files, and connects to nothing.
    pub fn check(&self) -> Vec<SinkFault> {
        let mut faults = Vec::new();
        faults.extend(self.access().err());
        faults.extend(self.sessions().err());
        faults
    }

    pub(super) fn access(&self) -> Result<Access, SinkFault> {
        let failed = |problem: String| {
            let value = self.service_account_file.display().to_string();
            let problem = format!("`service_account_file` is {value:?}, but {problem}");
            let fix = "the JSON file from the Firebase console: Project settings, Service accounts";
            SinkFault::of("service_account_file", &value, problem, fix)
        };
        let text = Secret::read(&self.service_account_file).map_err(|error| failed(error.problem))?;
        let account = Account::read(text.expose()).map_err(|problem| failed(problem.to_string()))?;
        let tls = crate::tls::client(self.ca_file.as_deref())?;
        // The operator chooses the token server, so its address is not checked.
        Ok(Access::new(account, connect::pool(Names::system(), Guard::Off, tls)))
    }

    pub(super) fn sessions(&self) -> Result<Sessions, SinkFault> {
        let tls = crate::tls::client(self.ca_file.as_deref())?;
        let server = self.address().and_then(|address| ServerAddress::of(&address, tls));
        let server = server.ok_or_else(|| {
            let problem = format!("`url` is {:?}, which is not https://HOST or https://HOST:PORT", self.url);
            SinkFault::of("url", &self.url, problem, "remove `url`")
        })?;
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            let value = self.connections.to_string();
            let fix = format!("connections = {CONNECTIONS}  # 1 to {CONNECTIONS_MAX}");
            return Err(SinkFault::of("connections", &value, format!("`connections` is {value}"), &fix));
        }
        if self.rate.is_some_and(|rate| !rate::is_sound(rate)) {
            return Err(SinkFault::of("rate", "", "`rate` is not a rate", "rate = \"600k/m\""));
        }
        Ok(Sessions::new(server, self.connections as usize))
    }

    pub(super) fn address(&self) -> Option<Uri> {
        self.url.parse().ok().filter(|address: &Uri| matches!(address.path(), "" | "/"))
    }
}
