//! One of many endpoints is down, on any engine: `status` and the API show which one waits and why, even across a kill.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use serde_json::Value;

use super::process::{Processor, stdout};
use super::receiver::{OK, Receiver, Request, UNAVAILABLE};
use super::wait_for;

const DOWN: &str = "/customer-7/s3cr3t";

/// A pipeline on some engine.
pub struct Scene<'a> {
    pub pipeline: &'a str,
    /// The table `[engine]`.
    pub engine: String,
    /// The first lines of `[[pipeline]]`.
    pub source: String,
    /// Sends messages `o-<number>`, each with this JSON as its payload.
    pub bring: &'a dyn Fn(&Processor, Range<usize>, &str),
}

impl Scene<'_> {
    fn config(&self) -> String {
        let Self { engine, source, .. } = self;
        format!(
            r#"
[engine]
dir = "@DIR@"
{engine}
[server]
listen = "@LISTEN@"
[[pipeline]]
{source}
tiers = ["100ms", "200ms", "400ms"]
concurrency = 16
[pipeline.breaker]
cooldown = "1h"
cooldown_max = "1h"
[pipeline.breaker.fast]
window = "1h"
min = 5
[pipeline.sink.webhook]
endpoint = "json:/url"
allow_private_addresses = true
"#
        )
    }

    fn shown(&self, processor: &Processor) -> Value {
        processor.get(&format!("/v1/pipelines/{}", self.pipeline)).json()
    }

    fn waits(&self, processor: &Processor) -> Vec<Value> {
        self.shown(processor)["health"]["endpoints"]["waits"].as_array().cloned().unwrap_or_default()
    }

    /// The only waiting endpoint, if its breaker is open. The list is at most a second old.
    fn cooldown(&self, processor: &Processor) -> Option<Value> {
        let mut waits = self.waits(processor);
        waits.pop().filter(|wait| waits.is_empty() && wait["why"] == "breaker")
    }

    pub fn an_endpoint_in_cooldown_is_shown_and_stays_in_cooldown_over_a_kill(&self, dir: &Path) {
        let down = Arc::new(AtomicBool::new(true));
        let is_down = Arc::clone(&down);
        let receiver =
            Receiver::start(
                move |request| {
                    if is_for_down(request) && is_down.load(SeqCst) { UNAVAILABLE } else { OK }
                },
            );
        let at = |path: &str| format!("http://127.0.0.1:{}{path}", receiver.port);
        let calls = || receiver.requests().iter().filter(|request| is_for_down(request)).count();
        let mut processor = Processor::start(dir, &self.config());
        (self.bring)(&processor, 0..40, &at(DOWN));
        (self.bring)(&processor, 40..50, &at("/fine"));
        // Counted at the receiver: after the kill a processor may repeat what it had not committed, and counts that as
        // well.
        let served = |ids: Range<usize>| {
            let requests = receiver.requests();
            let is_served = |id| requests.iter().any(|request| request.id() == format!("o-{id}"));
            ids.into_iter().all(is_served)
        };
        wait_for("its neighbour to be served", || served(40..50));
        // Calls already started when it opened fail too; after that nothing is sent.
        wait_for("the rest to be deferred", || {
            let pending = &self.shown(&processor)["pending"];
            pending["in_flight"] == 0 && pending["ready"] == 0
        });

        wait_for("the breaker of the endpoint to be shown as open", || self.cooldown(&processor).is_some());
        let wait = self.cooldown(&processor).unwrap();
        assert_eq!(
            (&wait["unit"], &wait["why"], &wait["rounds"]),
            (&"endpoint".into(), &"breaker".into(), &0.into())
        );
        let hash = wait["hash"].as_str().unwrap().to_owned();
        assert_eq!(hash.len(), 16, "{wait}");
        assert_eq!(self.shown(&processor)["health"]["endpoints"]["waiting"], 1);
        let status = stdout(&processor.cli(&["status", self.pipeline]));
        assert!(status.contains(&format!("endpoint {hash} waits: breaker open, next probe ")), "{status}");
        assert!(processor.log().contains(&format!("hmac-sha256:{hash}")), "the log names it likewise");
        for shown in [status, self.shown(&processor).to_string(), processor.log()] {
            assert!(!shown.contains("s3cr3t") && !shown.contains("customer-7"), "{shown}");
        }

        // The cooldown is written to disk within a second.
        let reminded = || {
            let found = walk(&dir.join("data"));
            found.iter().any(|text| text.contains("cool1 ") && text.contains(&hash))
        };
        wait_for("the cooldown to be written down", reminded);
        let (before, until) = (calls(), wait["until"].clone());
        processor.kill();
        processor.restart();
        wait_for("the cooldown to be shown after the restart", || self.cooldown(&processor).is_some());
        let wait = self.cooldown(&processor).unwrap();
        assert_eq!((wait["hash"].as_str().unwrap(), &wait["until"]), (hash.as_str(), &until), "{wait}");
        (self.bring)(&processor, 50..80, &at(DOWN));
        (self.bring)(&processor, 80..90, &at("/fine"));
        wait_for("its neighbour to be served after the restart", || served(80..90));
        wait_for("the rest to be deferred", || {
            let pending = &self.shown(&processor)["pending"];
            pending["in_flight"] == 0 && pending["ready"] == 0
        });
        assert_eq!(calls(), before, "nothing was sent to it after the restart");

        // An operator knows that it is back. Deferred messages come back at their due times.
        down.store(false, SeqCst);
        let closed = processor.cli(&["breaker", "close", self.pipeline]);
        assert!(closed.status.success(), "{closed:?}");
        wait_for("the cooldown to be over", || self.waits(&processor).is_empty());
        assert_eq!(self.shown(&processor)["dead"], 0);
    }
}

fn is_for_down(request: &Request) -> bool {
    request.head.starts_with(&format!("POST {DOWN} "))
}

/// The texts of all small files below a directory.
fn walk(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(walk(&path));
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().contains("reminder")) {
            found.extend(std::fs::read_to_string(&path));
        }
    }
    found
}
