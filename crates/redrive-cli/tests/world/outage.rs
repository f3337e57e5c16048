//! The outage of story 5 for any engine, with the assertions about a pipeline.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::process::{Processor, stdout};
use super::receiver::{OK, Receiver, UNAVAILABLE};
use super::{config, wait_for};

pub const MIN: usize = 20;
pub const CONCURRENCY: usize = 16;
pub const PROBES: usize = 5;

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
    pub fn config(&self, url: &str) -> String {
        let pipeline = format!(
            r#"{}
tiers = ["100ms", "200ms", "400ms"]
concurrency = {CONCURRENCY}
[pipeline.breaker]
cooldown = "1s"
cooldown_max = "2s"
probes = {PROBES}
[pipeline.breaker.fast]
window = "10s"
min = {MIN}"#,
            self.source
        );
        config(&self.engine, &pipeline, url)
    }

    pub fn shown(&self, processor: &Processor) -> serde_json::Value {
        processor.get(&format!("/v1/pipelines/{}", self.pipeline)).json()
    }

    /// The value of a metric of this pipeline; `labels` follow its name.
    pub fn metric(&self, processor: &Processor, name: &str, labels: &str) -> String {
        let line = format!("{name}{{pipeline=\"{}\"{labels}}}", self.pipeline);
        let metrics = processor.get("/metrics").body;
        metrics.lines().find_map(|found| found.strip_prefix(&line)).unwrap_or_default().trim().to_owned()
    }

    /// Down, killed and restarted meanwhile, and back: few calls, no letters, no lost message. `while_open` checks what
    /// the engine holds, and returns how many more messages it sent.
    pub fn an_outage_costs_few_calls_and_no_message(
        &self,
        dir: &Path,
        while_open: impl Fn(&Processor) -> usize,
    ) {
        let down = Arc::new(AtomicBool::new(true));
        let is_down = Arc::clone(&down);
        let receiver = Receiver::start(move |_| if is_down.load(SeqCst) { UNAVAILABLE } else { OK });
        let mut processor = Processor::start(dir, &self.config(&receiver.url()));
        (self.bring)(&processor, 0..400);
        wait_for("the breaker to open", || self.shown(&processor)["breaker"] != "closed");

        // Calls in flight when it opened fail, and probes are made; nothing else.
        let rounds = |processor: &Processor| self.shown(processor)["health"]["rounds"].as_u64();
        wait_for("three rounds of probes", || rounds(&processor) >= Some(3));
        let shown = self.shown(&processor);
        let made = shown["health"]["rounds"].as_u64().unwrap() as usize;
        let calls = receiver.requests().len();
        assert!(calls <= MIN + 2 * CONCURRENCY + (made + 1) * PROBES, "{calls} calls in {made} rounds");
        assert_eq!(shown["dead"], 0, "{shown}");
        let reason = shown["health"]["reason"].as_str().unwrap();
        assert!(reason.contains(" messages failed within 10s"), "{reason}");
        assert!(shown["pending"]["held"].as_u64() > Some(300), "{shown}");
        let status = stdout(&processor.cli(&["status", self.pipeline]));
        assert!(
            status.contains("breaker OPEN since") || status.contains("breaker HALF OPEN since"),
            "{status}"
        );
        assert!(status.contains("nothing is dead-lettered for it"), "{status}");
        // One of them may be under way.
        assert!(status.contains(" probes, ") && status.contains(" failed\n"), "{status}");
        assert!(status.contains("  ready ") && status.contains("   held "), "{status}");
        assert!(status.contains("dead +0 since open"), "{status}");
        assert!(status.contains("  if it closed now: ramp 5 → 16 permits in ~"), "{status}");
        let incident = &shown["health"]["incident"];
        assert!(
            incident["until"].is_null() && incident["failed_attempts"].as_u64() <= Some(calls as u64),
            "{shown}"
        );
        assert_eq!(self.metric(&processor, "redrive_breaker_state", ",state=\"closed\""), "0");
        assert!(processor.log().contains("▲ breaker open: "), "{}", processor.log());
        let all = 460 + while_open(&processor);

        // Killed and restarted while it is down: the breaker is open from the start, and only probes are sent.
        let since = shown["health"]["since"].clone();
        processor.kill();
        let before = receiver.requests().len();
        processor.restart();
        (self.bring)(&processor, 400..460);
        let shown = self.shown(&processor);
        assert_ne!(shown["breaker"], "closed", "{shown}");
        assert_eq!(shown["health"]["since"], since, "{shown}");
        let began = shown["health"]["rounds"].as_u64().unwrap();
        wait_for("two more rounds", || rounds(&processor) >= Some(began + 2));
        let more = (rounds(&processor).unwrap() - began) as usize;
        let calls = receiver.requests().len() - before;
        assert!(calls <= (more + 2) * PROBES, "{calls} calls in {more} rounds after the restart");

        down.store(false, SeqCst);
        wait_for("all to be delivered", || self.shown(&processor)["succeeded"].as_u64() == Some(all as u64));
        let shown = self.shown(&processor);
        assert_eq!((&shown["breaker"], &shown["dead"]), (&"closed".into(), &0.into()), "{shown}");
        assert_eq!(shown["letters"]["open"], 0, "{shown}");
        let history = shown["health"]["history"].to_string();
        assert!(history.contains("▼ breaker closed"), "{history}");
        let incident = &shown["health"]["incident"];
        let for_nothing = (&incident["dead_for_the_outage"], &incident["expired"]);
        assert_eq!(for_nothing, (&0.into(), &0.into()), "{incident}");
        assert_eq!(incident["from"], since, "{incident}");
        assert!(incident["peak_of_limit"].as_f64() <= Some(1.0), "{incident}");
        assert!(incident["peak_per_second"].as_u64() > Some(0), "{incident}");
        let status = stdout(&processor.cli(&["status", self.pipeline]));
        let told =
            ["  incident ", " (of which probes ", "  dead for the outage 0  expired 0  peak ", " × limit"];
        told.iter().for_each(|part| assert!(status.contains(part), "{part}: {status}"));
        let json = stdout(&processor.cli(&["status", self.pipeline, "--json"]));
        assert!(json.contains("\"incident\":{\"") || json.contains("\"incident\": {"), "{json}");

        // Held messages use up no attempts: most were sent once, when the sink was back.
        let mut sent: BTreeMap<String, usize> = BTreeMap::new();
        receiver.requests().iter().for_each(|request| *sent.entry(request.id().to_owned()).or_default() += 1);
        assert_eq!(sent.len(), all);
        assert!(sent.values().filter(|calls| **calls == 1).count() > 300, "{sent:?}");
    }
}
