//! The user settings of a webhook sink, and their validation.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::Uri;
use hyper::header::{HeaderName, HeaderValue};
use redrive::LimitBy;
use redrive_core::Pick;
use redrive_core::pace::RATE_MIN;
use redrive_core::rate::{self, RATE_MAX};
use redrive_core::text::connection_header::is_connection_header;

use super::auth::Auth;
use super::cloud_event::Format;
use super::connect::{self, Pool};
use super::dns::Names;
use super::endpoint::{self, EndpointFault, EndpointSource};
use super::guard::Guard;
use super::header::is_ours;
use super::outcome::classes::ClassTable;
use super::proxy::Proxy;
use super::signing::Signing;
use crate::fault::SinkFault;
use crate::secret::Secret;
use crate::tls::ClientCertificate;

/// The default concurrency per endpoint, if messages name their endpoints.
pub const PER_ENDPOINT: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum timeout of a request.
pub const TIMEOUT_MAX: Duration = Duration::from_hours(1);

/// The value of a header: a text, or a file that contains it.
#[derive(Clone, Debug)]
pub enum HeaderFrom {
    Text(Secret),
    File(PathBuf),
}

impl HeaderFrom {
    /// A header as written in the configuration: `authorization = "Bearer …"`, or `authorization_file = "token.txt"`.
    pub fn setting(name: &str, value: &str) -> (String, Self) {
        match name.strip_suffix("_file") {
            Some(name) => (name.to_owned(), Self::File(value.into())),
            None => (name.to_owned(), Self::Text(value.into())),
        }
    }
}

/// The settings of a webhook sink. Exactly one of `url` and `endpoint` is set.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// The destination of every message. Kept as a secret: for many webhooks the path is the key.
    pub url: Option<Secret>,
    /// The location of the endpoint in each message: `json:/pointer` or `header:name`.
    pub endpoint: Option<Pick>,
    /// Sent with every request.
    pub headers: Vec<(String, HeaderFrom)>,
    /// The authorities whose certificates are trusted, instead of the built-in list.
    pub ca_file: Option<PathBuf>,
    /// Our certificate for receivers that ask for one.
    pub client_certificate: Option<ClientCertificate>,
    pub auth: Auth,
    pub format: Format,
    /// The limit of the whole exchange: waiting for a permit, connecting, sending, the answer and its body.
    pub timeout: Duration,
    pub classes: ClassTable,
    /// The concurrency per endpoint; [`PER_ENDPOINT`] if messages name endpoints, else unlimited.
    pub per_endpoint: Option<u32>,
    /// Requests per second to one endpoint, if messages name endpoints or with [`Self::limit_by`]; unlimited unless
    /// set.
    pub per_endpoint_rate: Option<f64>,
    /// The unit of `per_endpoint`, `per_endpoint_rate` and breakers.
    pub limit_by: LimitBy,
    /// Lets messages name endpoints in private networks and on this host.
    pub allow_private_addresses: bool,
    pub signing: Signing,
    /// The key of `endpoint_hash` in logs and of the hashes that `status` shows; random for each process unless set. Open
    /// breakers of endpoints survive a restart only with the same key.
    pub hash_key: Option<Secret>,
    /// The proxy for requests, including those for tokens: `http://host:port`.
    pub proxy: Option<Secret>,
    /// A file with `user:password` for the proxy.
    pub proxy_auth_file: Option<PathBuf>,
    pub names: Names,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            url: None,
            endpoint: None,
            headers: Vec::new(),
            ca_file: None,
            client_certificate: None,
            auth: Auth::None,
            format: Format::Plain,
            timeout: TIMEOUT,
            classes: ClassTable::default(),
            per_endpoint: None,
            per_endpoint_rate: None,
            limit_by: LimitBy::Endpoint,
            allow_private_addresses: false,
            signing: Signing::default(),
            hash_key: None,
            proxy: None,
            proxy_auth_file: None,
            names: Names::system(),
        }
    }
}

/// The destination of messages.
#[derive(Clone, Debug)]
pub(super) enum MessageTarget {
    Fixed(Uri),
    PerMessage(EndpointSource),
}

impl WebhookOptions {
    /// Sends every message to one URL.
    pub fn to_url(url: impl Into<Secret>) -> Self {
        Self { url: Some(url.into()), ..Self::default() }
    }

    /// Sends each message to the endpoint that it names.
    pub fn per_message(endpoint: Pick) -> Self {
        Self { endpoint: Some(endpoint), ..Self::default() }
    }

    /// All faults. Reads the named files, and connects to nothing.
    pub fn check(&self) -> Vec<SinkFault> {
        let mut faults = Vec::new();
        faults.extend(self.target().err());
        faults.extend(self.limits().err());
        faults.extend(self.authorized_once().err());
        faults.extend(self.proxy().err());
        match self.tls() {
            Ok(tls) => faults.extend(self.auth.authorizer(|| self.pool(Guard::Off, tls, None)).err()),
            Err(fault) => faults.push(fault),
        }
        faults.extend(self.signing.signer(Instant::now()).err());
        faults.extend(self.headers.iter().filter_map(|(name, from)| header(name, from).err()));
        faults
    }

    /// Reports several sources of `authorization`: a request has only one.
    pub(super) fn authorized_once(&self) -> Result<(), SinkFault> {
        let is_set = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        if self.auth == Auth::None || !is_set {
            return Ok(());
        }
        let problem = "`auth` and `headers.authorization` both set the header authorization";
        let fix = "remove `headers.authorization`, or remove `auth`";
        Err(SinkFault::of("headers.authorization", "", problem, fix))
    }

    pub(super) fn tls(&self) -> Result<rustls::ClientConfig, SinkFault> {
        crate::tls::client_with(self.ca_file.as_deref(), self.client_certificate.as_ref())
    }

    pub(super) fn pool(&self, guard: Guard, tls: rustls::ClientConfig, proxy: Option<Arc<Proxy>>) -> Pool {
        connect::pool_through(self.names.clone(), guard, tls, proxy)
    }

    pub(super) fn proxy(&self) -> Result<Option<Arc<Proxy>>, SinkFault> {
        let Some(url) = &self.proxy else {
            return match &self.proxy_auth_file {
                None => Ok(None),
                Some(_) => Err(SinkFault::of(
                    "proxy",
                    "",
                    "`proxy` is missing, and `proxy_auth_file` is set",
                    "proxy = \"http://proxy.example.com:3128\"",
                )),
            };
        };
        Proxy::of(url, self.proxy_auth_file.as_deref(), self.timeout).map(Arc::new).map(Some)
    }

    pub(super) fn target(&self) -> Result<MessageTarget, SinkFault> {
        let fix = "url = \"https://example.com/hook\", or endpoint = \"json:/url\"";
        match (&self.url, &self.endpoint) {
            (None, None) => Err(SinkFault::of("url", "", "neither `url` nor `endpoint` is set", fix)),
            (Some(_), Some(_)) => Err(SinkFault::of(
                "endpoint",
                "",
                "`url` and `endpoint` are both set",
                "keep `url` or `endpoint`",
            )),
            (None, Some(pick)) => Ok(MessageTarget::PerMessage(EndpointSource::of(pick))),
            (Some(url), None) => endpoint::judge(url.expose()).map(MessageTarget::Fixed).map_err(|fault| {
                // Appended as a comment, so that the whole fix can be pasted.
                let fix = match fault {
                    EndpointFault::User => {
                        "url = \"https://example.com/hook\" # they belong into headers.authorization_file"
                    }
                    _ => "url = \"https://example.com/hook\"",
                };
                SinkFault::of("url", "", format!("`url` cannot be used: {fault}"), fix)
            }),
        }
    }

    pub(super) fn limits(&self) -> Result<Option<u32>, SinkFault> {
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            let value = format!("{:?}", self.timeout);
            let problem = format!("`timeout` is {value}, which is not between nothing and an hour");
            return Err(SinkFault::of("timeout", &value, problem, "timeout = \"30s\""));
        }
        if let Some(rate) = self.per_endpoint_rate
            && !(rate::is_sound(rate) && rate >= RATE_MIN)
        {
            let (key, value) = ("per_endpoint_rate", rate.to_string());
            let problem = format!("`{key}` is {value} a second; it may be from one an hour to {RATE_MAX}");
            return Err(SinkFault::of(
                key,
                &value,
                problem,
                "per_endpoint_rate = \"20/s\", or remove `per_endpoint_rate`",
            ));
        }
        let is_one = self.url.is_some() && self.limit_by == LimitBy::Endpoint;
        if let Some(rate) = self.per_endpoint_rate.filter(|_| is_one) {
            let problem = "`per_endpoint_rate` is for messages that name their endpoints, or for a `limit_by` of tenant \
                           or key, and all of these messages go to one `url`";
            let fix = "remove `per_endpoint_rate`";
            return Err(SinkFault::of("per_endpoint_rate", &rate.to_string(), problem, fix));
        }
        match self.per_endpoint {
            Some(0) => {
                let problem = "`per_endpoint` is 0: no message could ever be sent";
                Err(SinkFault::of("per_endpoint", "0", problem, "per_endpoint = 5, or remove `per_endpoint`"))
            }
            Some(limit) => Ok(Some(limit)),
            None => {
                let several = self.endpoint.is_some() || self.limit_by != LimitBy::Endpoint;
                Ok(several.then_some(PER_ENDPOINT))
            }
        }
    }
}

/// A header ready to send, and its secret for the redactor.
pub(super) fn header(name: &str, from: &HeaderFrom) -> Result<(HeaderName, HeaderValue, Secret), SinkFault> {
    let key = format!("headers.{name}");
    let refused = |problem: &str, fix: &str| {
        Err(SinkFault::of(key.as_str(), "", format!("`headers` has {name:?}, {problem}"), fix))
    };
    let remove = format!("remove `{key}`");
    let Ok(header) = HeaderName::from_bytes(name.as_bytes()) else {
        return refused("which is not a header name; use letters, digits and hyphens", &remove);
    };
    if is_connection_header(name) {
        return refused("which belongs to the connection and is set by the client", &remove);
    }
    if is_ours(name) {
        return refused("which Redrive sets itself", &remove);
    }
    let secret = match from {
        HeaderFrom::Text(secret) => secret.clone(),
        HeaderFrom::File(path) => match Secret::read(path) {
            Ok(secret) => secret,
            Err(error) => {
                return refused(
                    &format!("whose file cannot be used: {error}"),
                    "a readable file with the value",
                );
            }
        },
    };
    let Ok(mut value) = HeaderValue::from_str(secret.expose()) else {
        let problem = "whose value cannot be sent: a header has one line of visible ASCII characters";
        return refused(problem, &remove);
    };
    value.set_sensitive(true);
    Ok((header, value, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(options: &WebhookOptions) -> Vec<String> {
        options.check().into_iter().map(|fault| fault.key).collect()
    }

    #[test]
    fn good_options_have_no_faults() {
        let mut options = WebhookOptions::to_url("https://example.com/hook");
        options.headers.push(HeaderFrom::setting("authorization", "Bearer x"));
        assert_eq!(options.check(), []);
        assert_eq!(WebhookOptions::per_message(Pick::Json("/url".into())).check(), []);
        assert_eq!(WebhookOptions::per_message(Pick::Json("/url".into())).limits(), Ok(Some(PER_ENDPOINT)));
        assert_eq!(options.limits(), Ok(None));
    }

    #[test]
    fn every_fault_is_found_in_one_go() {
        let options = WebhookOptions {
            ca_file: Some("/no/such/file".into()),
            per_endpoint: Some(0),
            headers: vec![
                HeaderFrom::setting("bad name", "x"),
                HeaderFrom::setting("host", "x"),
                HeaderFrom::setting("webhook-id", "x"),
                HeaderFrom::setting("x-a_file", "/no/such/file"),
                HeaderFrom::setting("x-b", "two\nlines"),
            ],
            ..WebhookOptions::default()
        };
        let expected =
            ["url", "per_endpoint", "ca_file", "headers.bad name", "headers.host", "headers.webhook-id"];
        let expected: Vec<_> = expected.into_iter().chain(["headers.x-a", "headers.x-b"]).collect();
        assert_eq!(keys(&options), expected);
        let both = WebhookOptions {
            url: Some("http://a.example".into()),
            ..WebhookOptions::per_message(Pick::Json("/u".into()))
        };
        assert_eq!(keys(&both), ["endpoint"]);
        let mut paced = WebhookOptions::per_message(Pick::Json("/u".into()));
        paced.per_endpoint_rate = Some(0.0);
        assert_eq!(keys(&paced), ["per_endpoint_rate"]);
        let never = WebhookOptions { timeout: Duration::ZERO, ..WebhookOptions::to_url("http://a.example") };
        assert_eq!(keys(&never), ["timeout"]);
    }

    #[test]
    fn a_request_is_authorized_by_one_setting() {
        let auth = Auth::Basic { user: "shop".to_owned(), password_file: "/dev/null".into() };
        let mut options = WebhookOptions { auth, ..WebhookOptions::to_url("http://a.example") };
        assert!(!keys(&options).contains(&"headers.authorization".to_owned()));
        options.headers.push(HeaderFrom::setting("Authorization_file", "/dev/null"));
        let fault = options.authorized_once().unwrap_err();
        assert_eq!(fault.key, "headers.authorization");
        assert_eq!(fault.fix, "remove `headers.authorization`, or remove `auth`");
        assert_eq!(WebhookOptions { auth: Auth::None, ..options }.authorized_once(), Ok(()));
    }

    #[test]
    fn a_rate_per_endpoint_is_not_ignored_where_there_is_one() {
        let rate = Some(20.0);
        let one = WebhookOptions { per_endpoint_rate: rate, ..WebhookOptions::to_url("http://a.example") };
        assert_eq!(keys(&one), ["per_endpoint_rate"]);
        assert_eq!(keys(&WebhookOptions { limit_by: LimitBy::Tenant, ..one }), [""; 0]);
    }

    #[test]
    fn a_fault_repeats_neither_the_url_nor_a_secret() {
        let mut options = WebhookOptions::to_url("ftp://user:hunter22@example.com/token");
        options.headers.push(HeaderFrom::setting("authorization", "hunter22\n"));
        let faults = options.check();
        assert_eq!(faults.len(), 2);
        let all = format!("{faults:?} {options:?} {}", faults[0]);
        assert!(!all.contains("hunter22") && !all.contains("token"), "{all}");
    }
}
