//! The options of a server, and why one cannot start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::access::auth::Unguarded;
use crate::access::token::Token;
use crate::tls::ServerTls;

/// The unit in which the memory for bodies and answers is allocated.
pub(crate) const GRAIN_BYTES: usize = 1024;

/// Settings of a server; the defaults are those of `redrive processor`.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub listen: SocketAddr,
    pub tokens: Vec<Token>,
    /// The certificate; plain HTTP without it.
    pub tls: Option<ServerTls>,
    /// Whether reads need a token.
    pub reads: Reads,
    /// Names besides localhost under which reads on loopback are open; see [`crate::access::auth`].
    pub hosts: Vec<String>,
    /// The maximum size of a request body.
    pub body_bytes_max: usize,
    /// The memory for bodies of all requests together.
    pub bodies_bytes_max: usize,
    /// The memory for large answers of all requests together.
    pub answers_bytes_max: usize,
    /// The maximum number of connections; never more than half of the files that the process may open. Beyond it idle
    /// ones are closed.
    pub connections_max: usize,
    /// How long requests may continue after shutdown was requested.
    pub grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7333)),
            tokens: Vec::new(),
            tls: None,
            reads: Reads::default(),
            hosts: Vec::new(),
            body_bytes_max: 64 * 1024 * 1024,
            bodies_bytes_max: 256 * 1024 * 1024,
            answers_bytes_max: 256 * 1024 * 1024,
            connections_max: 4096,
            grace: Duration::from_secs(10),
        }
    }
}

/// Whether reads need a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reads {
    /// They do as soon as a token is configured, and always beyond loopback.
    #[default]
    Auto,
    /// They always do.
    Token,
    /// They never do: every client that reaches the port may read everything.
    Open,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "`server.listen` is {listen}, which others can reach, and no token is configured; add a [[server.token]] with \
         name, scopes and secret_file, give one with --token-file or REDRIVE_TOKEN, or listen on 127.0.0.1"
    )]
    Exposed { listen: SocketAddr },
    #[error("two tokens are named `{name}`; names identify who did what, so give each its own")]
    SameName { name: String },
    #[error("cannot listen on {listen}: {source}; {}", way_out(.source.kind()))]
    Listen { listen: SocketAddr, source: io::Error },
}

/// How to fix an address that cannot be listened on.
fn way_out(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address. Choose one it has with --listen or `server.listen`: 127.0.0.1 for this \
             machine alone, 0.0.0.0 for all of its addresses"
        }
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need a privilege. Choose a higher port with --listen or `server.listen`"
        }
        _ => "is another process there? Choose a free port with --listen or `server.listen`",
    }
}

impl ServerOptions {
    /// Which callers may read without a token.
    pub(crate) fn unguarded(&self) -> Unguarded {
        let configured = self.tokens.iter().any(|token| !token.is_generated());
        match self.reads {
            Reads::Open => Unguarded::Everybody,
            Reads::Auto if self.is_loopback() && !configured => Unguarded::Neighbours,
            Reads::Auto | Reads::Token => Unguarded::Nobody,
        }
    }

    fn is_loopback(&self) -> bool {
        self.listen.ip().to_canonical().is_loopback()
    }

    /// Validates these settings before a socket is opened.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let configured = self.tokens.iter().any(|token| !token.is_generated());
        if !self.is_loopback() && !configured {
            return Err(ServerError::Exposed { listen: self.listen });
        }
        let names: Vec<&str> = self.tokens.iter().map(Token::name).collect();
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                return Err(ServerError::SameName { name: (*name).to_owned() });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::token::Scope;

    fn options(listen: &str, tokens: Vec<Token>) -> ServerOptions {
        ServerOptions { listen: listen.parse().unwrap(), tokens, ..ServerOptions::default() }
    }

    fn token(name: &str) -> Token {
        Token::new(name, "a-secret-of-some-length", [Scope::Read]).unwrap()
    }

    #[test]
    fn reads_need_a_token_as_soon_as_one_is_configured() {
        let made = || vec![Token::ephemeral().unwrap()];
        let unguarded = |listen: &str, tokens: Vec<Token>, reads| {
            ServerOptions { reads, ..options(listen, tokens) }.unguarded()
        };
        for (listen, tokens, reads, expected) in [
            ("127.0.0.1:7333", made(), Reads::Auto, Unguarded::Neighbours),
            ("127.0.0.1:7333", vec![token("ops")], Reads::Auto, Unguarded::Nobody),
            ("192.0.2.1:7333", made(), Reads::Auto, Unguarded::Nobody),
            ("127.0.0.1:7333", made(), Reads::Token, Unguarded::Nobody),
            ("127.0.0.1:7333", vec![token("ops")], Reads::Open, Unguarded::Everybody),
            ("192.0.2.1:7333", vec![token("ops")], Reads::Open, Unguarded::Everybody),
        ] {
            assert_eq!(unguarded(listen, tokens, reads), expected, "{listen} {reads:?}");
        }
    }

    #[test]
    fn beyond_loopback_a_configured_token_is_asked_for() {
        for listen in ["0.0.0.0:7333", "[::]:7333", "192.0.2.1:7333"] {
            let error = options(listen, Vec::new()).check().unwrap_err().to_string();
            assert!(error.contains(listen) && error.contains("[[server.token]]"), "{error}");
            // A token generated for local users must not open the server to others.
            assert!(options(listen, vec![Token::ephemeral().unwrap()]).check().is_err());
            assert!(options(listen, vec![token("ops")]).check().is_ok());
        }
        for listen in ["127.0.0.1:7333", "127.8.8.8:7333", "[::1]:7333", "[::ffff:127.0.0.1]:7333"] {
            assert!(options(listen, Vec::new()).check().is_ok(), "{listen}");
        }
    }

    #[test]
    fn two_holders_cannot_share_a_name() {
        let error = options("127.0.0.1:0", vec![token("ops"), token("ops")]).check().unwrap_err();
        assert!(error.to_string().contains("`ops`"));
    }
}
