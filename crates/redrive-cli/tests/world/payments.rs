//! The retry budget of `profile = "payments"` for any engine: it dead-letters nothing in an outage, and allows no more
//! retries than configured in a healthy sink.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::process::{Processor, stdout};
use super::receiver::{OK, Receiver, UNAVAILABLE};
use super::{config, wait_for};

const BUDGET: usize = 5;
/// Messages that always fail.
const FAILING: usize = 20;
/// More retries than this mean that the budget did not work, however slow the machine is: the amount for three minutes.
const RETRIES_MAX: usize = 4 * BUDGET - 1;

/// A pipeline on some engine.
pub struct Scene<'a> {
    pub pipeline: &'a str,
    /// The table `[engine]`.
    pub engine: String,
    /// The first lines of `[[pipeline]]`.
    pub source: String,
    /// Sends messages `o-<number>`.
    pub bring: &'a dyn Fn(&Processor, Range<usize>),
}

impl Scene<'_> {
    fn config(&self, url: &str) -> String {
        let pipeline = format!(
            r#"{}
profile = "payments"
backoff = {{ fixed = "300ms" }}
budget = {{ retries_per_minute = {BUDGET} }}
concurrency = 8
breaker = {{ cooldown = "1s", cooldown_max = "2s" }}"#,
            self.source
        );
        config(&self.engine, &pipeline, url)
    }

    fn shown(&self, processor: &Processor) -> serde_json::Value {
        processor.get(&format!("/v1/pipelines/{}", self.pipeline)).json()
    }

    fn letters(&self, processor: &Processor, reason: &str) -> usize {
        let path = format!("/v1/pipelines/{}/letters?filter=reason:{reason}&limit=500", self.pipeline);
        processor.get(&path).json()["letters"].as_array().unwrap().len()
    }

    /// The budget is empty at once, but dead-letters nothing.
    pub fn an_outage_makes_no_letters(&self, dir: &Path) {
        let down = Arc::new(AtomicBool::new(false));
        let is_down = Arc::clone(&down);
        let receiver = Receiver::start(move |_| if is_down.load(SeqCst) { UNAVAILABLE } else { OK });
        let processor = Processor::start(dir, &self.config(&receiver.url()));
        (self.bring)(&processor, 0..200);
        wait_for("the first ones", || self.shown(&processor)["succeeded"] == 200);
        down.store(true, SeqCst);
        (self.bring)(&processor, 200..800);
        wait_for("the breaker to open", || self.shown(&processor)["breaker"] != "closed");
        let rounds = || self.shown(&processor)["health"]["rounds"].as_u64();
        wait_for("two rounds of probes", || rounds() >= Some(2));
        let shown = self.shown(&processor);
        assert_eq!((&shown["dead"], &shown["letters"]["open"]), (&0.into(), &0.into()), "{shown}");
        let status = stdout(&processor.cli(&["status", self.pipeline]));
        assert!(status.contains("nothing is dead-lettered for it"), "{status}");
        down.store(false, SeqCst);
        wait_for("all to be delivered", || self.shown(&processor)["succeeded"] == 800);
        assert_eq!(self.shown(&processor)["letters"]["open"], 0);
    }

    /// One in four always fails, which is not an outage: retries are counted, and five per minute are allowed.
    pub fn a_healthy_sink_gets_no_more_retries_than_the_budget(&self, dir: &Path) {
        let fails =
            |id: &str| id.trim_start_matches("o-").parse::<usize>().is_ok_and(|n| n.is_multiple_of(4));
        let receiver = Receiver::start(move |request| if fails(request.id()) { UNAVAILABLE } else { OK });
        let processor = Processor::start(dir, &self.config(&receiver.url()));
        let started = std::time::Instant::now();
        (self.bring)(&processor, 0..80);
        wait_for("the good ones", || self.shown(&processor)["succeeded"] == 60);
        // Another message has to succeed, so that the sink is known to work.
        let mut more = 80;
        wait_for("the others", || {
            (self.bring)(&processor, more + 1..more + 2);
            more += 4;
            self.shown(&processor)["letters"]["open"] == FAILING
        });
        let calls = receiver.requests().iter().filter(|request| fails(request.id())).count();
        // Tokens come back at this rate, so a slow machine gets more of them. Without the budget every failing message
        // would be retried at least once, so the cap keeps the test able to fail however long it takes.
        let allowed = (BUDGET + started.elapsed().as_secs() as usize * BUDGET / 60 + 1).min(RETRIES_MAX);
        assert!(
            calls <= FAILING + allowed,
            "{calls} calls for {FAILING} messages, {allowed} retries are allowed"
        );
        let exhausted = self.letters(&processor, "budget_exhausted");
        assert!(exhausted >= FAILING - allowed, "{exhausted} of {FAILING} are dead for the budget");
    }
}
