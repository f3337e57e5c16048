//! The ledger of `redrive downstream` as a witness: `GET /applied?after=&limit=`, `GET /stats`.

use std::path::Path;

use hyper::Method;
use serde::Deserialize;

use crate::client::address::query;
use crate::client::wire::Wire;
use crate::client::{ApiAddress, ClientFault};
use crate::exit::{Exit, Failed};

const PAGE: &str = "10000";

#[derive(Debug)]
pub struct Stub {
    wire: Wire,
}

#[derive(Deserialize)]
struct StubPage {
    ids: Vec<String>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct StubStats {
    duplicates: Option<u64>,
}

impl Stub {
    pub fn new(address: ApiAddress, ca_file: Option<&Path>) -> Result<Self, Failed> {
        // The stub has no tokens, and must not see ours.
        Ok(Self { wire: Wire::new(address, None, ca_file)? })
    }

    pub async fn applied(&self, each: &mut impl FnMut(&str)) -> Result<(), Failed> {
        let mut after: Option<String> = None;
        loop {
            let path = format!("/applied{}", query(&[("after", after.as_deref()), ("limit", Some(PAGE))]));
            let page: StubPage = self.get(&path).await?;
            page.ids.iter().for_each(|id| each(id));
            match page.next {
                None => return Ok(()),
                // A cursor that does not advance would loop for ever.
                next if next == after => return Err(self.strange("the same page comes again")),
                next => after = next,
            }
        }
    }

    /// Repeated calls after the effect, if it counts them.
    pub async fn duplicates(&self) -> Result<Option<u64>, Failed> {
        let stats: StubStats = self.get("/stats").await?;
        Ok(stats.duplicates)
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, path: &str) -> Result<T, Failed> {
        let answer = self.wire.ask(Method::GET, path, bytes::Bytes::new()).await;
        let answer = answer.map_err(|fault| match fault {
            ClientFault::NoProcessor { address } => Failed::new(
                Exit::TryAgain,
                format!(
                    "no downstream answers at {address}; start `redrive downstream` or correct --applied"
                ),
            ),
            // The answer is not from the processor.
            ClientFault::Refused(refused) => self.strange(&format!(
                "GET {} gives {}",
                path.split('?').next().unwrap_or(path),
                refused.status
            )),
            ClientFault::Strange { problem, .. } => self.strange(&problem),
            other => Failed::from(other),
        })?;
        serde_json::from_slice(&answer).map_err(|error| self.strange(&error.to_string()))
    }

    fn strange(&self, problem: &str) -> Failed {
        Failed::usage(format!(
            "{} does not answer as `redrive downstream` does ({problem}); is --applied right?",
            self.wire.address()
        ))
    }
}
