//! From the global flags to an API: which place, which token, and a runtime of one thread.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use redrive::Time;

use super::api::Api;
use super::fault::ClientFault;
use super::place::{self, Place};
use super::token::Bearer;
use crate::args::Global;
use crate::exit::{Exit, Failed};
use crate::output::Output;

/// What a client command works with. The clock is an argument, so that a test can stop it.
#[derive(Debug)]
pub struct Session {
    pub api: Api,
    pub clock: fn() -> Time,
}

impl Session {
    pub fn now(&self) -> Time {
        (self.clock)()
    }

    /// A part of an answer is not what the API promises.
    pub fn strange(&self, error: &serde_json::Error) -> ClientFault {
        ClientFault::Strange { place: self.api.place().to_string(), problem: error.to_string() }
    }
}

/// Where the engine of this machine keeps its token, unless the configuration says otherwise.
const ENGINE_DIR: &str = "./redrive-data";

/// Connects as the flags say and runs a command to its end.
pub fn with_api(
    global: &Global,
    out: &mut Output,
    command: impl AsyncFnOnce(&Session, &mut Output) -> Result<Exit, Failed>,
) -> Result<Exit, Failed> {
    let place: Place = global
        .url
        .as_deref()
        .unwrap_or(place::DEFAULT)
        .parse()
        .map_err(|fault: place::PlaceFault| Failed::usage(fault.to_string()))?;
    let token = token(global, &place)?;
    if token.is_some() && !place.is_loopback() {
        out.note(&format!(
            "warning: the token goes to {place} unencrypted; use a tunnel unless the network is yours"
        ));
    }
    let session = Session { api: Api::new(place, token), clock: wall_clock };
    block_on(command(&session, out))
}

/// Runs a future on this thread. Client commands wait for one thing at a time.
pub fn block_on<T>(future: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failed::new(Exit::TryAgain, format!("no runtime: {error}")))?.block_on(future)
}

/// `--token-file`, else `REDRIVE_TOKEN`, else the engine's own. The last one only for a place on this machine: it
/// must not be carried to another host because somebody gave `--url` next to a local store.
fn token(global: &Global, place: &Place) -> Result<Option<Bearer>, Failed> {
    if let Some(token) = global.token()? {
        return Bearer::new(token.reveal()).map(Some);
    }
    Ok(Some(engine_dir()).filter(|_| place.is_loopback()).and_then(|dir| Bearer::of_engine(&dir)))
}

fn engine_dir() -> PathBuf {
    ENGINE_DIR.into()
}

/// The wall clock. A clock before 1970 counts as 1970.
pub fn wall_clock() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
