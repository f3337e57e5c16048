//! The metrics of a processor whose cluster is in trouble fire the alerts of `deploy/alerts`: the series come from a
//! real process on a real broker, and Prometheus' own tool evaluates them.
#![cfg(feature = "kafka")]

mod world;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use world::process::Processor;
use world::receiver::{OK, Receiver};
use world::{kafka, wait_for};

/// A separate broker, which may be frozen. Removed on drop.
struct Broker(PathBuf);

impl Broker {
    fn run(&self, words: &str) -> String {
        let ran = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka.sh"))
            .args(words.split_whitespace())
            .env("REDRIVE_KAFKA_DIR", &self.0)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{words}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.run("down");
    }
}

/// The series of a page of metrics, each constant for half an hour.
fn series(page: &str) -> String {
    let samples = page.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket"));
    samples.filter_map(|line| line.rsplit_once(' ')).fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "      - series: '{name}'\n        values: \"{value}x30\"");
        text
    })
}

/// How many alerts of a name fire if everything stays as on the page.
fn firing(dir: &Path, page: &str, alert: &str) -> bool {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/alerts/redrive.rules.yaml");
    let text = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{}    promql_expr_test:\n      \
         - expr: count(ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}})\n        eval_time: 20m\n        exp_samples:\n          \
         - labels: '{{}}'\n            value: 1\n",
        rules.canonicalize().unwrap().display(),
        series(page)
    );
    let file = dir.join("alerts.test.yaml");
    std::fs::write(&file, text).unwrap();
    let judged = Command::new("promtool").args(["test", "rules"]).arg(&file).output();
    judged.expect("promtool is installed: make tools").status.success()
}

fn page(processor: &Processor, path: &str) -> (u16, String) {
    let answer = processor.get(path);
    (answer.status, answer.body)
}

/// Earlier, lag 0, `/readyz` 200 and a clean status were reported in both cases.
#[test]
fn a_lost_range_and_a_frozen_broker_are_told_and_fire_their_alerts() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker(dir.path().join("broker"));
    let address = broker.run("up");
    let receiver = Receiver::start(|_| OK);
    let topic = "orders";
    kafka::create_at(&address, topic, 1);
    let lines = format!("source = \"{topic}\"\nname = \"{topic}\"\ntiers = [\"1s\"]");
    let config = world::config(&kafka::engine_at(&address, "delivery", "create"), &lines, &receiver.url());

    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let mut first = Processor::start(&home, &config);
    wait_for("it to have its partition", || {
        page(&first, "/metrics").1.contains("redrive_group_member{pipeline=\"orders\"} 1")
    });
    first.signal("TERM");
    assert_eq!(first.wait(), Some(0));
    kafka::produce_at(&address, topic, (0..10).map(|n| (n.to_string(), "{}".to_owned())));
    let delete = dir.path().join("delete.json");
    let text = format!(r#"{{"partitions":[{{"topic":"{topic}","partition":0,"offset":5}}],"version":1}}"#);
    std::fs::write(&delete, text).unwrap();
    let line = format!(
        "run kafka-delete-records.sh --bootstrap-server {address} --offset-json-file {}",
        delete.display()
    );
    broker.run(&line);
    let processor = Processor::start(&home, &config);
    let lag = format!("redrive_lag{{pipeline=\"{topic}\",topic=\"{topic}\",partition=\"0\"}} 10");
    wait_for("the lag of the stopped partition", || page(&processor, "/metrics").1.contains(&lag));
    let (status, said) = page(&processor, "/readyz");
    assert!(status == 503 && said.contains("lost_range"), "{status} {said}");
    let told = page(&processor, "/metrics").1;
    assert!(firing(dir.path(), &told, "RedrivePartitionHeld"));
    assert!(!firing(dir.path(), &told, "RedriveKafkaUnreachable"));

    broker.run("freeze 1");
    let unreachable = format!("redrive_kafka_reachable{{pipeline=\"{topic}\"}} 0");
    wait_for("the processor to notice", || page(&processor, "/metrics").1.contains(&unreachable));
    assert!(page(&processor, "/readyz").1.contains("Kafka does not answer"));
    assert!(firing(dir.path(), &page(&processor, "/metrics").1, "RedriveKafkaUnreachable"));
    broker.run("thaw 1");
    wait_for("the cluster to be back", || !page(&processor, "/metrics").1.contains(&unreachable));
}

/// Names of metrics in a text, without histogram suffixes.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = text.match_indices("redrive_").filter(|(at, _)| !text[..*at].ends_with(is_name));
    let names = starts.map(|(at, _)| {
        let rest = &text[at..];
        &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]
    });
    let plain = |name: &'_ str| {
        ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .map_or(name.len(), str::len)
    };
    names.map(|name| &name[..plain(name)]).collect()
}

#[test]
fn every_metric_of_the_board_and_the_rules_is_on_the_page_of_a_processor_on_kafka() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let read = |file: &str| std::fs::read_to_string(deploy.join(file)).unwrap();
    let asked = read("grafana/redrive.json") + &read("alerts/redrive.rules.yaml");
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker(dir.path().join("broker"));
    let address = broker.run("up");
    let receiver = Receiver::start(|_| OK);
    kafka::create_at(&address, "orders", 1);
    let lines = "source = \"orders\"\nname = \"orders\"\ntiers = [\"1s\"]";
    let config = world::config(&kafka::engine_at(&address, "delivery", "create"), lines, &receiver.url());
    let home = dir.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let processor = Processor::start(&home, &config);
    let page = page(&processor, "/metrics").1;
    let asked = metrics(&asked);
    assert!(asked.len() > 25, "{asked:?}");
    for name in asked {
        assert!(page.contains(&format!("# TYPE {name} ")), "{name} is not on the page");
    }
}
