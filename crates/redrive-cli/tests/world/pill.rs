//! The message of story 8 that kills its receiver over HTTP, for any engine.

use std::path::Path;
use std::time::Duration;

use super::process::{Processor, stdout};
use super::receiver::{HANG_UP, OK, Receiver};
use super::{config, wait_for};

pub const PILL: &str = "o-88120";

/// A pipeline on some engine.
pub struct Scene<'a> {
    pub pipeline: &'a str,
    /// The table `[engine]`.
    pub engine: String,
    /// The first lines of `[[pipeline]]`.
    pub source: String,
    /// Sends a message with this id.
    pub bring: &'a dyn Fn(&Processor, &str),
}

impl Scene<'_> {
    pub fn config(&self, url: &str) -> String {
        let pipeline = format!(
            r#"{}
tiers = ["1s", "1200ms", "1500ms"]
jitter = "none""#,
            self.source
        );
        config(&self.engine, &pipeline, url)
    }

    /// Three broken connections, one letter, and all other messages are delivered.
    pub fn a_pill_is_found_by_three_broken_connections(&self, dir: &Path) {
        let receiver = Receiver::start(|request| {
            std::thread::sleep(Duration::from_millis(10));
            if request.id() == PILL { HANG_UP } else { OK }
        });
        let processor = Processor::start(dir, &self.config(&receiver.url()));
        let shown = || processor.get(&format!("/v1/pipelines/{}", self.pipeline)).json();
        (self.bring)(&processor, PILL);
        let mut others = 0;
        wait_for("the pill to be found", || {
            // Other messages continue, and show that the receiver works: one is answered between two attempts.
            (self.bring)(&processor, &format!("o-{others}"));
            others += 1;
            shown()["letters"]["open"] == 1
        });
        wait_for("the others", || shown()["succeeded"].as_u64() == Some(others));
        assert_eq!(receiver.requests_for(PILL).len(), 3, "three deaths of the receiver");
        let letter = stdout(&processor.cli(&["dlq", "show", self.pipeline, PILL]));
        assert!(letter.contains("poison_pill"), "{letter}");
        assert!(letter.contains("crashes  3") && letter.contains("never replayed automatically"), "{letter}");
        let why = "the receiver closed the connection 3 times while handling this message";
        assert!(letter.contains(why), "{letter}");
        // The complete record, as JSON.
        let json = stdout(&processor.cli(&["dlq", "show", self.pipeline, PILL, "--json"]));
        let record: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&record["message"], &record["crashes"]), (&PILL.into(), &3.into()), "{record}");
        let time = |name: &str| redrive::timestamp::parse(record[name].as_str().unwrap()).unwrap();
        assert!(time("first_crash") < time("last_crash"), "{record}");
        assert!(time("last_crash") <= time("dead_at"), "{record}");
        let log = processor.log();
        let told = format!("the receiver closed the connection while handling {PILL} (1 of 3)");
        assert!(log.contains(&told) && log.contains(&format!("{PILL} dead-lettered: poison_pill")), "{log}");
        assert!(!log.contains("without a clean stop"), "{log}");
        assert_eq!(shown()["dead"], 1);
    }
}
