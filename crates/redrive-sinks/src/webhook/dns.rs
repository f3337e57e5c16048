//! Resolves host names to addresses.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// A pending lookup of one name.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The resolver: the system's, unless a user or a test provides another one.
#[derive(Clone)]
pub struct Names {
    look_up: Arc<dyn Fn(&str) -> Lookup + Send + Sync>,
}

impl Names {
    /// The system's own resolver, with `/etc/hosts` and its other configuration.
    pub fn system() -> Self {
        Self::by(|host| {
            let host = host.to_owned();
            async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) }
        })
    }

    /// A custom resolver.
    pub fn by<F, Fut>(look_up: F) -> Self
    where
        F: Fn(&str) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        Self { look_up: Arc::new(move |host| Box::pin(look_up(host))) }
    }

    pub(crate) fn look_up(&self, host: &str) -> Lookup {
        (self.look_up)(host)
    }
}

/// The system could not resolve a host.
#[derive(Debug, thiserror::Error)]
#[error("the host name could not be resolved")]
pub(crate) struct Unresolved(#[source] pub(super) Option<io::Error>);

impl Default for Names {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Names")
    }
}
