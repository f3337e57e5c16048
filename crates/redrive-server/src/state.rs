//! What all requests share.

use std::ops::Deref;
use std::sync::Arc;

use redrive::{Clock, Time, WallClock};
use tokio::sync::Semaphore;

use crate::auth::Door;
use crate::options::ServerOptions;
use crate::readiness::Readiness;
use crate::service::Service;
use crate::token::Token;

/// The unit in which the memory for bodies is handed out.
pub(crate) const GRAIN_BYTES: usize = 1024;

/// A handle to the shared parts; clone it freely.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Parts>);

#[derive(Debug)]
pub(crate) struct Parts {
    pub service: Service,
    pub readiness: Readiness,
    pub started: Time,
    pub body_bytes_max: usize,
    /// The memory for bodies, in grains.
    pub bodies: Arc<Semaphore>,
    loopback: bool,
    tokens: Vec<Token>,
    hosts: Vec<String>,
}

impl Shared {
    pub fn new(options: &ServerOptions, service: Service) -> Self {
        let grains = (options.bodies_bytes_max.max(options.body_bytes_max) / GRAIN_BYTES + 1)
            .min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Parts {
            service,
            readiness: Readiness::default(),
            started: now(),
            body_bytes_max: options.body_bytes_max,
            bodies: Arc::new(Semaphore::new(grains)),
            loopback: options.listen.ip().to_canonical().is_loopback(),
            tokens: options.tokens.clone(),
            hosts: options.hosts.clone(),
        }))
    }

    pub fn door(&self) -> Door<'_> {
        Door { loopback: self.loopback, tokens: &self.tokens, hosts: &self.hosts }
    }
}

/// The present, where no pipeline's clock is at hand.
pub(crate) fn now() -> Time {
    WallClock.now()
}

impl Deref for Shared {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
