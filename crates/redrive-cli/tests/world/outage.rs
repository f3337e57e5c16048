//! The outage of story 5 as any engine has to play it, and what is asked of a pipeline meanwhile.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::process::{Processor, stdout};
use super::receiver::{OK, Receiver, UNAVAILABLE};
use super::wait_for;

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
    /// Brings messages `o-<number>` in.
    pub bring: &'a dyn Fn(&Processor, Range<usize>),
}

impl Scene<'_> {
    pub fn config(&self, url: &str) -> String {
        let Self { engine, source, .. } = self;
        format!(
            r#"
[engine]
{engine}
dir = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
{source}
tiers = ["100ms", "200ms", "400ms"]
concurrency = {CONCURRENCY}
[pipeline.breaker]
cooldown = "1s"
cooldown_max = "2s"
probes = {PROBES}
[pipeline.breaker.fast]
window = "10s"
min = {MIN}
[pipeline.sink.webhook]
url = "{url}"
"#
        )
    }

    pub fn shown(&self, processor: &Processor) -> serde_json::Value {
        processor.get(&format!("/v1/pipelines/{}", self.pipeline)).json()
    }

    /// The value of a metric of this pipeline; `labels` come behind its name.
    pub fn metric(&self, processor: &Processor, name: &str, labels: &str) -> String {
        let line = format!("{name}{{pipeline=\"{}\"{labels}}}", self.pipeline);
        let metrics = processor.get("/metrics").body;
        metrics.lines().find_map(|found| found.strip_prefix(&line)).unwrap_or_default().trim().to_owned()
    }

    /// Down, killed and started again meanwhile, and back: few calls, no letter, nobody forgotten. `while_open` looks at
    /// what the engine holds, and says how many more messages it brought.
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

        // What was on its way when it opened comes back failed, and probes are made; nothing else.
        let rounds = |processor: &Processor| self.shown(processor)["health"]["rounds"].as_u64();
        wait_for("three rounds of probes", || rounds(&processor) >= Some(3));
        let shown = self.shown(&processor);
        let rounds = shown["health"]["rounds"].as_u64().unwrap() as usize;
        let calls = receiver.requests().len();
        assert!(calls <= MIN + 2 * CONCURRENCY + (rounds + 1) * PROBES, "{calls} calls in {rounds} rounds");
        assert_eq!(shown["dead"], 0, "{shown}");
        let reason = shown["health"]["reason"].as_str().unwrap();
        assert!(reason.contains(" first attempts failed within 10s"), "{reason}");
        assert!(shown["pending"]["held"].as_u64() > Some(300), "{shown}");
        let status = stdout(&processor.cli(&["status", self.pipeline]));
        assert!(
            status.contains("breaker OPEN since") || status.contains("breaker HALF OPEN since"),
            "{status}"
        );
        assert!(status.contains("nothing is dead-lettered for it"), "{status}");
        assert_eq!(self.metric(&processor, "redrive_breaker_state", ",state=\"closed\""), "0");
        assert!(processor.log().contains("▲ breaker open: "), "{}", processor.log());
        let all = 460 + while_open(&processor);

        // Killed and started again while it is down: it opens again within its sample.
        processor.kill();
        let before = receiver.requests().len();
        processor.restart();
        (self.bring)(&processor, 400..460);
        wait_for("the breaker to open again", || self.shown(&processor)["breaker"] != "closed");
        let opened_after = receiver.requests().len() - before;
        assert!(opened_after <= MIN + 6 * CONCURRENCY, "{opened_after} calls until it opened again");

        down.store(false, SeqCst);
        wait_for("all to be delivered", || self.shown(&processor)["succeeded"].as_u64() == Some(all as u64));
        let shown = self.shown(&processor);
        assert_eq!((&shown["breaker"], &shown["dead"]), (&"closed".into(), &0.into()), "{shown}");
        assert_eq!(shown["letters"]["open"], 0, "{shown}");
        let history = shown["health"]["history"].to_string();
        assert!(history.contains("▼ breaker closed"), "{history}");

        // Attempts of what was held are unchanged: most were sent once, when the sink was back.
        let mut sent: BTreeMap<String, usize> = BTreeMap::new();
        receiver.requests().iter().for_each(|request| *sent.entry(request.id().to_owned()).or_default() += 1);
        assert_eq!(sent.len(), all);
        assert!(sent.values().filter(|calls| **calls == 1).count() > 300, "{sent:?}");
    }
}
