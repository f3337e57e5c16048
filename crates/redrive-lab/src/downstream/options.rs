//! Settings of the downstream that are fixed at startup.

use std::net::{Ipv4Addr, SocketAddr};

use super::{LedgerFault, LedgerOptions, Switches};
use crate::seed::DEFAULT_SEED;

/// The port of `redrive downstream`.
pub const DEFAULT_PORT: u16 = 7335;

#[derive(Clone, Debug)]
pub struct DownstreamOptions {
    pub listen: SocketAddr,
    /// Whether to accept connections from other machines. Anyone who can connect can change the switches.
    pub allow_remote: bool,
    /// Seeds the failures by `fail_rate` and the latencies.
    pub seed: u64,
    /// The initial switches.
    pub switches: Switches,
    pub ledger: LedgerOptions,
}

impl Default for DownstreamOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            allow_remote: false,
            seed: DEFAULT_SEED,
            switches: Switches::default(),
            ledger: LedgerOptions::Memory,
        }
    }
}

impl DownstreamOptions {
    /// Refuses addresses beyond loopback unless explicitly allowed, because switches change without a token.
    pub fn check_listen(&self) -> Result<(), DownstreamError> {
        if self.allow_remote || self.listen.ip().is_loopback() {
            return Ok(());
        }
        Err(DownstreamError::NotLoopback { addr: self.listen })
    }
}

/// Why the downstream could not start or continue.
#[derive(Debug, thiserror::Error)]
pub enum DownstreamError {
    #[error("cannot listen on {addr}: {error}; stop whoever does, or give another address")]
    Listen { addr: SocketAddr, error: std::io::Error },
    /// Switches change without a token, so only this machine may connect.
    #[error(
        "the downstream has no tokens and listens on loopback only, not on {addr}; use 127.0.0.1 or [::1], or --allow-remote in a network you trust"
    )]
    NotLoopback { addr: SocketAddr },
    #[error(transparent)]
    Ledger(#[from] LedgerFault),
}
