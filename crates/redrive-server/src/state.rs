//! State shared by all requests.

use std::ops::Deref;
use std::sync::Arc;

use redrive::{Clock, Time, WallClock};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::access::auth::{ServerAccess, Unguarded};
use crate::access::token::Token;
use crate::access::wrong_tokens::WrongTokens;
use crate::answer_memory::Answers;
use crate::changes::Changes;
use crate::connections::files::FileBudget;
use crate::connections::registry::Connections;
use crate::group_watch::GroupWatch;
use crate::options::{GRAIN_BYTES, ServerOptions};
use crate::readiness::Readiness;
use crate::service::Service;

/// The maximum number of open event streams. Each keeps a connection for as long as its client likes.
const EVENT_STREAMS_MAX: usize = 64;

/// A handle to the shared parts; clone it freely.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<ServiceParts>);

#[derive(Debug)]
pub(crate) struct ServiceParts {
    pub service: Service,
    pub readiness: Readiness,
    pub started: Time,
    pub body_bytes_max: usize,
    /// The memory for bodies, in units of [`GRAIN_BYTES`].
    pub bodies: Arc<Semaphore>,
    pub answers: Answers,
    pub changes: Changes,
    /// Permits for event streams.
    pub event_streams: Arc<Semaphore>,
    pub wrong_tokens: WrongTokens,
    pub connections: Arc<Connections>,
    pub files: FileBudget,
    pub groups: GroupWatch,
    /// Names of this machine besides localhost.
    pub hosts: Vec<String>,
    unguarded: Unguarded,
    tokens: Vec<Token>,
}

impl Shared {
    pub fn new(options: &ServerOptions, service: Service) -> Self {
        let grains = (options.bodies_bytes_max.max(options.body_bytes_max) / GRAIN_BYTES + 1)
            .min(Semaphore::MAX_PERMITS);
        let files = FileBudget::of_process();
        Self(Arc::new(ServiceParts {
            service,
            readiness: Readiness::default(),
            started: now(),
            body_bytes_max: options.body_bytes_max,
            bodies: Arc::new(Semaphore::new(grains)),
            answers: Answers::new(options.answers_bytes_max),
            changes: Changes::default(),
            event_streams: Arc::new(Semaphore::new(EVENT_STREAMS_MAX)),
            wrong_tokens: WrongTokens::new(Instant::now()),
            connections: Connections::new(files.connections(options.connections_max)),
            files,
            groups: GroupWatch::default(),
            hosts: options.hosts.clone(),
            unguarded: options.unguarded(),
            tokens: options.tokens.clone(),
        }))
    }

    pub fn access_rules(&self) -> ServerAccess<'_> {
        ServerAccess { unguarded: self.unguarded, tokens: &self.tokens }
    }
}

/// The current time, if no pipeline's clock is available.
pub(crate) fn now() -> Time {
    WallClock.now()
}

impl Deref for Shared {
    type Target = ServiceParts;

    fn deref(&self) -> &ServiceParts {
        &self.0
    }
}
