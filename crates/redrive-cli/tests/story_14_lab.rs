//! Story 14: somebody who doubts a claim reproduces it with one command.

mod support;

use std::path::Path;

use support::{Ran, redrive};

fn lab(dir: &Path, arguments: &[&str]) -> Ran {
    redrive(dir, &[&["lab"], arguments].concat())
}

#[test]
fn the_list_names_every_scenario_with_its_clock_and_how_long_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(dir.path(), &["list"]);
    let list = output.stdout;
    for name in [
        "blocking-vs-non-blocking",
        "failure-sweep",
        "backoff-sweep",
        "poison-growth",
        "ordering",
        "retry-storm",
    ] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{name}: {list}");
    }
    assert!(list.contains("virtual clock") && list.contains("real clock"), "{list}");
}

#[test]
fn one_command_runs_a_scenario_prints_its_table_and_writes_its_report() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(dir.path(), &["run", "retry-storm", "--seed", "7", "--quick"]);
    let shown = &output.stdout;
    assert!(output.code == Some(0), "{shown}{}", output.stderr);
    for part in [
        "seed 7",
        "peak reload",
        "dead for the outage",
        "steady, jitter none",
        "forecast of `redrive check`",
        "✓",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let report = dir.path().join("lab/results/retry-storm/7/index.html");
    assert!(report.is_file() && shown.contains("lab/results/retry-storm/7/index.html"), "{shown}");
    let again = lab(dir.path(), &["report"]);
    assert!(again.code == Some(0), "{}", again.stderr);
    let findings = std::fs::read_to_string(dir.path().join("docs/findings.md")).unwrap();
    assert!(findings.contains("A quick run: its figures are no measurement."), "{findings}");
    assert!(findings.contains("commit unknown"), "outside of a checkout nobody knows the commit: {findings}");
    let index = std::fs::read_to_string(dir.path().join("lab/results/README.md")).unwrap();
    assert!(index.contains("virtual clock, quick run |"), "{index}");
}

#[test]
fn a_figure_outside_of_its_range_ends_with_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = include_str!("../../../lab/scenarios/jitter-comparison.toml");
    let claim = "min = 715.0\nmax = 873.0";
    assert!(scenario.contains(claim));
    std::fs::write(dir.path().join("bold.toml"), scenario.replace(claim, "max = 100.0")).unwrap();
    let output = lab(dir.path(), &["run", "jitter-comparison", "--quick", "--file", "bold.toml"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stdout.contains("✗ calls of full"), "{}", output.stdout);
}

#[test]
fn what_does_not_exist_is_a_usage_error_that_names_what_does() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = lab(dir.path(), &["run", "no-such"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("metastability"), "{}", unknown.stderr);
    // Refused for what it is, before a broker is looked for.
    for brokers in [&["--brokers", "127.0.0.1:1"][..], &[]] {
        let kafka = lab(dir.path(), &[&["run", "bloom", "--engine", "kafka"], brokers].concat());
        assert_eq!(kafka.code, Some(2), "{}", kafka.stderr);
        assert!(kafka.stderr.contains("does not run on the engine kafka: it is a model"), "{}", kafka.stderr);
    }
}
