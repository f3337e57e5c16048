//! The retry budget of `profile = "payments"` as any engine has to keep to it: nothing is dead for it in an outage, and in
//! a healthy sink no more retries are made than it allows.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::process::{Processor, stdout};
use super::receiver::{OK, Receiver, UNAVAILABLE};
use super::{config, wait_for};

const BUDGET: usize = 5;

/// A pipeline on some engine.
pub struct Scene<'a> {
    pub pipeline: &'a str,
    /// The table `[engine]`.
    pub engine: String,
    /// The first lines of `[[pipeline]]`.
    pub source: String,
    /// Brings messages `o-<number>` in.
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

    /// The budget is empty at once, and nobody dies of that.
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

    /// One in four always fails, which is not an outage: their retries are counted, and there are five a minute.
    pub fn a_healthy_sink_gets_no_more_retries_than_the_budget(&self, dir: &Path) {
        let fails =
            |id: &str| id.trim_start_matches("o-").parse::<usize>().is_ok_and(|n| n.is_multiple_of(4));
        let receiver = Receiver::start(move |request| if fails(request.id()) { UNAVAILABLE } else { OK });
        let processor = Processor::start(dir, &self.config(&receiver.url()));
        let started = std::time::Instant::now();
        (self.bring)(&processor, 0..80);
        wait_for("the good ones", || self.shown(&processor)["succeeded"] == 60);
        // Somebody has to be answered so that it is known that the sink is there.
        let mut more = 80;
        wait_for("the others", || {
            (self.bring)(&processor, more + 1..more + 2);
            more += 4;
            self.shown(&processor)["letters"]["open"] == 20
        });
        let calls = receiver.requests().iter().filter(|request| fails(request.id())).count();
        // Tokens come back at this rate; a machine that is slow has more of them.
        let allowed = BUDGET + started.elapsed().as_secs() as usize * BUDGET / 60 + 1;
        assert!(calls <= 20 + allowed, "{calls} calls for 20 messages, {allowed} retries are allowed");
        let exhausted = self.letters(&processor, "budget_exhausted");
        assert!(exhausted >= 20 - allowed, "{exhausted} of 20 are dead for the budget");
    }
}
