//! How a server is set up, and why one cannot start.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::token::Token;

/// Settings of a server; the defaults are those of `redrive processor`.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub listen: SocketAddr,
    pub tokens: Vec<Token>,
    /// Names beside localhost under which reads on loopback are open; see [`crate::auth`].
    pub hosts: Vec<String>,
    /// The largest body of a request.
    pub body_bytes_max: usize,
    /// Bodies that are held in memory at once, all requests together.
    pub bodies_bytes_max: usize,
    /// Connections at once; the next ones wait to be accepted.
    pub connections_max: usize,
    /// How long requests may go on after the word to stop.
    pub grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7333)),
            tokens: Vec::new(),
            hosts: Vec::new(),
            body_bytes_max: 64 * 1024 * 1024,
            bodies_bytes_max: 256 * 1024 * 1024,
            connections_max: 4096,
            grace: Duration::from_secs(10),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "`server.listen` is {listen}, which others can reach, and no token is configured; add a [[server.token]] with \
         name, scopes and secret_file, give one with --token-file or REDRIVE_TOKEN, or listen on 127.0.0.1"
    )]
    Exposed { listen: SocketAddr },
    #[error("two tokens are named `{name}`; names say who did what, so give each its own")]
    SameName { name: String },
    #[error("cannot listen on {listen}: {source}; {}", way_out(.source.kind()))]
    Listen { listen: SocketAddr, source: io::Error },
}

/// What to do about an address that cannot be listened on.
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
    /// What is wrong with these settings before a socket is opened.
    pub(crate) fn check(&self) -> Result<(), ServerError> {
        let configured = self.tokens.iter().any(|token| !token.is_generated());
        if !self.listen.ip().to_canonical().is_loopback() && !configured {
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
    use crate::token::Scope;

    fn options(listen: &str, tokens: Vec<Token>) -> ServerOptions {
        ServerOptions { listen: listen.parse().unwrap(), tokens, ..ServerOptions::default() }
    }

    fn token(name: &str) -> Token {
        Token::new(name, "a-secret-of-some-length", [Scope::Read]).unwrap()
    }

    #[test]
    fn beyond_loopback_a_configured_token_is_asked_for() {
        for listen in ["0.0.0.0:7333", "[::]:7333", "192.0.2.1:7333"] {
            let error = options(listen, Vec::new()).check().unwrap_err().to_string();
            assert!(error.contains(listen) && error.contains("[[server.token]]"), "{error}");
            // A token the program made for this machine's users is no reason to open it to others.
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
