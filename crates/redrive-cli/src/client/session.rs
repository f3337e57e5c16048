//! Creates an API client from the global flags: address, token, and a single-threaded runtime.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use redrive::Time;

use super::address::{ApiAddress, ApiAddressFault};
use super::api::Api;
use super::fault::ClientFault;
use super::token::Bearer;
use crate::args::Global;
use crate::config::load::{FILE_DEFAULT, load_text};
use crate::config::{EngineConfig, Environment, ServerConfig};
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// The context of a client command. The clock is an argument, so that tests can stop it.
#[derive(Debug)]
pub struct Session {
    pub api: Api,
    pub clock: fn() -> Time,
}

impl Session {
    pub fn now(&self) -> Time {
        (self.clock)()
    }

    /// The fault for a part of an answer that does not match the API.
    pub fn strange(&self, error: &serde_json::Error) -> ClientFault {
        ClientFault::Strange { address: self.api.address().to_string(), problem: error.to_string() }
    }
}

/// Connects as the flags say and runs a command to completion.
pub fn with_api(
    global: &Global,
    out: &mut Output,
    command: impl AsyncFnOnce(&Session, &mut Output) -> Result<Exit, Failed>,
) -> Result<Exit, Failed> {
    let config = Nearby::find(global, out)?;
    let address: ApiAddress = match &global.url {
        Some(url) => url.parse(),
        None => address_of(config.listen, config.tls).parse(),
    }
    .map_err(|fault: ApiAddressFault| Failed::usage(fault.to_string()))?;
    let token = token(global, &config.dir, &address)?;
    if token.is_some() && !address.is_loopback() && !address.is_https() {
        out.note(&format!(
            "warning: the token goes to {address} unencrypted; use https unless the network is yours"
        ));
    }
    let api = Api::new(address, token, global.ca_file.as_deref())?;
    let session = Session { api, clock: wall_clock };
    block_on(command(&session, out))
}

/// What the configuration in this directory says about a local processor.
#[derive(Debug)]
struct Nearby {
    listen: SocketAddr,
    /// Whether the processor serves TLS.
    tls: bool,
    dir: PathBuf,
}

impl Nearby {
    /// A configuration named explicitly must be readable. A missing or faulty default one only means defaults: looking
    /// at a processor must be possible while its next configuration is being written.
    fn find(global: &Global, out: &mut Output) -> Result<Self, Failed> {
        let environment = Environment::of_process();
        let there = global.config.is_some() || Path::new(FILE_DEFAULT).exists();
        let config = if there {
            let config = load_text(global, &environment)?.config;
            if config.is_none() {
                out.note(
                    "warning: the configuration has faults (`redrive check` shows them) and is not used",
                );
            }
            config
        } else {
            None
        };
        Ok(config.map_or_else(
            || Self {
                listen: ServerConfig::default().listen,
                tls: false,
                dir: environment.dir.map_or_else(|| EngineConfig::default().dir, PathBuf::from),
            },
            |config| Self {
                listen: config.server.listen,
                tls: config.server.tls.is_some(),
                dir: config.engine.dir,
            },
        ))
    }
}

/// The address to connect to; an unspecified listen address becomes localhost.
fn address_of(listen: SocketAddr, tls: bool) -> String {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, listen.port()))
}

/// Runs a future on this thread. Client commands wait for one thing at a time.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failed::new(Exit::TryAgain, format!("no runtime: {error}")))?.block_on(future)
}

/// Chooses the token: `--token-file`, else `REDRIVE_TOKEN`, else the engine's own. The last only for an address on this
/// machine: it must not be sent to another host because `--url` was given next to a local store.
fn token(global: &Global, engine_dir: &Path, address: &ApiAddress) -> Result<Option<Bearer>, Failed> {
    if let Some(token) = global.token()? {
        return Bearer::new(token.expose()).map(Some);
    }
    Ok(if address.is_loopback() { Bearer::of_engine(engine_dir) } else { None })
}

/// The wall clock. A clock before 1970 counts as 1970.
pub fn wall_clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_listens_everywhere_is_knocked_at_on_this_machine() {
        for (listen, address) in [
            ("127.0.0.1:7333", "http://127.0.0.1:7333"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("[::]:8080", "http://[::1]:8080"),
            ("10.0.0.7:7333", "http://10.0.0.7:7333"),
        ] {
            assert_eq!(address_of(listen.parse().unwrap(), false), address);
            assert!(address.parse::<ApiAddress>().is_ok());
        }
    }
}
