//! The alert rules of deploy/alerts: they query only metrics that `/metrics` serves, every alert links to a runbook,
//! and promtool has tested each of them firing and not firing.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use redrive_server::exposition::{Kind, Metric};
use redrive_server::metrics::METRICS;
use support::start;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn rules() -> String {
    read("deploy/alerts/redrive.rules.yaml")
}

/// The text of each alert, up to the next rule.
fn alerts(rules: &str) -> BTreeMap<String, String> {
    let mut alerts = BTreeMap::new();
    for block in rules.split("- alert: ").skip(1) {
        let block = block.split("- record: ").next().unwrap_or(block);
        let name = block.lines().next().unwrap().trim().to_owned();
        assert!(alerts.insert(name.clone(), block.to_owned()).is_none(), "{name} is there twice");
    }
    alerts
}

/// A metric in a query, with its matchers: `(label, operator, value)`.
#[derive(Debug)]
struct Selector {
    metric: String,
    matchers: Vec<(String, String, String)>,
}

/// Every `redrive_…` in a text, with its matchers.
fn selectors(text: &str) -> Vec<Selector> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut selectors = Vec::new();
    for (at, _) in text.match_indices("redrive_") {
        // Part of a longer name, or of a path.
        if text[..at].ends_with(is_name) {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (metric, behind) = rest.split_at(end);
        let braces = behind.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let matchers = braces.map(|(inside, _)| inside.split(',').map(matcher).collect());
        selectors.push(Selector { metric: metric.to_owned(), matchers: matchers.unwrap_or_default() });
    }
    selectors
}

fn matcher(text: &str) -> (String, String, String) {
    // In the board's JSON the quotes are escaped.
    let text = text.trim().replace("\\\"", "\"");
    let (left, value) = text.split_once('"').unwrap_or_else(|| panic!("no matcher: {text}"));
    let label = left.trim_end_matches(['=', '!', '~']);
    let operator = &left[label.len()..];
    (label.trim().to_owned(), operator.to_owned(), value.trim_end_matches('"').to_owned())
}

/// The labels of a metric by the name of one of its series, if it exists.
fn labels_of(series: &str) -> Option<&'static [&'static str]> {
    let is_of = |metric: &&&Metric| match metric.kind {
        Kind::Histogram => {
            ["_bucket", "_sum", "_count"].iter().any(|end| series.strip_suffix(end) == Some(metric.name))
        }
        Kind::Counter | Kind::Gauge => series == metric.name,
    };
    METRICS.iter().find(is_of).map(|metric| metric.labels)
}

/// The faults of the queries in a text, compared with what a server serves.
fn faults(text: &str, served: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for Selector { metric, matchers } in selectors(text) {
        let Some(labels) = labels_of(&metric) else {
            faults.push(format!("{metric} is served by nobody"));
            continue;
        };
        let lines: Vec<&str> =
            served.lines().filter(|line| line.starts_with(&format!("{metric}{{"))).collect();
        for (label, operator, value) in matchers {
            if !labels.contains(&label.as_str()) && label != "le" {
                faults.push(format!("{metric} has no label `{label}`"));
                continue;
            }
            // A value that never occurs makes a rule that never fires. Some series exist only in certain conditions.
            let values =
                if operator.contains('~') { value.split('|').collect() } else { vec![value.as_str()] };
            for value in values.into_iter().filter(|value| !lines.is_empty() && !value.starts_with('$')) {
                let pair = format!("{label}=\"{value}\"");
                if !lines.iter().any(|line| line.contains(&pair)) {
                    faults.push(format!("{metric} is never served with {pair}"));
                }
            }
        }
    }
    faults
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_asks_for_series_that_are_served_or_promised() {
    let server = start().await;
    let served = server.get("/metrics").await.text;
    server.stop().await;
    assert_eq!(faults(&rules(), &served), Vec::<String>::new());
    assert!(selectors(&rules()).len() > 30, "the rules were not understood");
    let board = read("deploy/grafana/redrive.json");
    serde_json::from_str::<serde_json::Value>(&board).unwrap();
    assert_eq!(faults(&board, &served), Vec::<String>::new());
    assert!(selectors(&board).len() > 15, "the board was not understood");
    // Test the checker itself.
    let wrong = r#"redrive_nothing > 1 and redrive_pending{state="late"} and redrive_paused{topic="x"}"#;
    assert_eq!(
        faults(wrong, &served),
        [
            "redrive_nothing is served by nobody",
            "redrive_pending is never served with state=\"late\"",
            "redrive_paused has no label `topic`",
        ]
    );
}

/// The questions that a retry operator asks a board: rate, lag, tiers, dead letters, attempts, stall, latency, breaker,
/// held.
#[test]
fn the_board_answers_every_question_of_the_metrics() {
    let board = read("deploy/grafana/redrive.json");
    for query in [
        "by (pipeline, topic) (rate(redrive_consumed_total",
        "by (pipeline, topic) (redrive_lag",
        "tier) (rate(redrive_retries_total",
        "rate(redrive_dead_letters_total",
        "sum by (pipeline) (redrive_dead_letters_total",
        "redrive_attempts_per_message_bucket",
        "redrive_stall_seconds_bucket",
        "redrive_breaker_state",
        "state=\\\"held\\\"",
    ] {
        assert!(board.contains(query), "{query}");
    }
    for quantile in ["0.5", "0.99", "0.999"] {
        let query =
            format!("histogram_quantile({quantile}, sum by (pipeline, le) (rate(redrive_end_to_end_seconds");
        assert!(board.contains(&query), "{query}");
    }
}

#[test]
fn every_recorded_series_that_is_used_is_recorded() {
    let rules = rules();
    let recorded: BTreeSet<&str> =
        rules.split("- record: ").skip(1).map(|block| block.lines().next().unwrap().trim()).collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for (at, _) in rules.match_indices("redrive:") {
        let rest = &rules[at..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        assert!(recorded.contains(name), "{name} is used and not recorded");
    }
}

#[test]
fn every_alert_has_a_severity_a_summary_a_description_and_a_runbook_that_is_there() {
    let mut linked = BTreeSet::new();
    for (name, text) in alerts(&rules()) {
        let severities =
            ["critical", "warning"].map(|severity| format!("labels: {{ severity: {severity} }}"));
        assert!(severities.iter().any(|severity| text.contains(severity)), "{name} has no severity");
        assert!(text.contains("summary: ") && text.contains("description: "), "{name} says nothing");
        let url = text.split("runbook_url: ").nth(1).unwrap_or_else(|| panic!("{name} has no runbook"));
        let page = url.lines().next().unwrap().trim();
        assert!(read(page).contains(&format!("`{name}`")), "{page} does not name {name}");
        linked.insert(page.to_owned());
    }
    // A runbook that no alert links to is not found at night.
    for page in std::fs::read_dir(root().join("docs/runbooks")).unwrap() {
        let page = format!("docs/runbooks/{}", page.unwrap().file_name().into_string().unwrap());
        assert!(linked.contains(&page), "no alert leads to {page}");
    }
}

#[test]
fn the_guide_lists_every_alert_with_its_severity() {
    let guide = read("docs/guide/alerts.md");
    for (name, text) in alerts(&rules()) {
        let severity = text.split("severity: ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let page = text.split("runbook_url: docs/").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        let row = |line: &&str| {
            line.starts_with(&format!("| [`{name}`](../{page}) "))
                && line.ends_with(&format!("| {severity} |"))
        };
        assert!(guide.lines().any(|line| row(&line)), "{name} ({severity}) is not in the table");
    }
}

#[test]
fn every_runbook_says_what_to_look_at_what_to_do_and_when_to_go_on_sleeping() {
    for page in std::fs::read_dir(root().join("docs/runbooks")).unwrap() {
        let path = page.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for heading in ["## First look", "## Likely causes", "## What to do", "## Safe to ignore"] {
            assert!(text.contains(heading), "{}: {heading} is missing", path.display());
        }
    }
}

#[test]
fn every_alert_was_seen_to_fire_and_not_to_fire() {
    let tests =
        ["redrive", "redrive.slow"].map(|name| read(&format!("deploy/alerts/{name}.test.yaml"))).concat();
    let (mut fires, mut rests) = (BTreeSet::new(), BTreeSet::new());
    for block in tests.split("alertname: ").skip(1) {
        let mut lines = block.lines();
        let name = lines.next().unwrap().trim().to_owned();
        match lines.next().unwrap().trim() {
            "exp_alerts: []" => rests.insert(name),
            _ => fires.insert(name),
        };
    }
    let all: BTreeSet<String> = alerts(&rules()).into_keys().collect();
    assert_eq!((&fires, &rests), (&all, &all));
}

#[test]
fn promtool_passes_the_rules_and_their_tests() {
    if Command::new("promtool").arg("--version").output().is_err() {
        println!(
            "skipped: promtool is not installed, the alert rules were not tested; make tools installs it"
        );
        return;
    }
    let said = Command::new(root().join("scripts/alerts.sh")).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(said.status.success(), "{}{}", text(&said.stdout), text(&said.stderr));
}
