//! Story 14: a sceptic reproduces a claim with one command.

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
        "cores",
        "config   after 6m",
        "tiers 5s, 30s, 5m",
        "peak reload",
        "dead for the outage",
        "steady, jitter none",
        "forecast of `redrive check`",
        "✓",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let results = dir.path().join("lab/results/retry-storm");
    assert!(results.join("7-quick/index.html").is_file(), "{shown}");
    assert!(shown.contains("lab/results/retry-storm/7-quick/index.html"), "{shown}");
    let page = std::fs::read_to_string(results.join("7-quick/index.md")).unwrap();
    assert!(page.contains("A quick run: its figures are no measurement."), "{page}");
    let report = || {
        let report = lab(dir.path(), &["report"]);
        assert!(report.code == Some(0), "{}", report.stderr);
        report.stdout
    };
    assert!(report().contains("(0 results)"), "a quick run is no finding");
    std::fs::rename(results.join("7-quick"), results.join("7")).unwrap();
    assert!(report().contains("(1 results)"));
    let findings = std::fs::read_to_string(dir.path().join("docs/findings.md")).unwrap();
    let commit = format!("commit {}", redrive_lab::bench::machine::BUILT_FROM);
    assert!(findings.contains(&commit), "wherever it runs, the commit is that of the program: {findings}");
}

/// In a checkout, no broker has to be started first.
#[cfg(feature = "kafka")]
#[test]
fn the_lab_starts_its_own_broker_when_none_is_given() {
    let out = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = out.path().to_string_lossy().into_owned();
    let output =
        lab(&root, &["run", "time-to-dead-letter", "--engine", "kafka", "--quick", "--out", &folder]);
    assert!(output.stderr.contains("starting a broker for this run"), "{}", output.stderr);
    // A busy machine may miss a range that depends on speed; the run itself did use the broker.
    let page = out.path().join("time-to-dead-letter/42-kafka-quick/index.md");
    let page = std::fs::read_to_string(page).unwrap_or_else(|error| panic!("{error}: {}", output.stderr));
    assert!(page.contains("Ran on: Kafka engine, real clock"), "{page}");
    assert!(!page.contains("the audit by id does not balance"), "{page}");
}

#[test]
fn ctrl_c_leaves_a_partial_report_in_a_folder_of_its_own_and_exit_code_130() {
    let dir = tempfile::tempdir().unwrap();
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_redrive"))
        .args(["lab", "run", "time-to-dead-letter", "--engine", "embedded"])
        .current_dir(dir.path())
        .env("TMPDIR", &scratch)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let wait_for = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < Duration::from_mins(2), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // Stores are opened after the program started to listen for signals.
    wait_for("no store was opened", &mut || std::fs::read_dir(&scratch).unwrap().next().is_some());
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    wait_for("it goes on after SIGINT", &mut || child.try_wait().unwrap().is_some());
    let ended = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.code(), Some(130), "{shown}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(shown.contains("partial: interrupted before it was complete"), "{shown}");
    let results = dir.path().join("lab/results/time-to-dead-letter");
    let page = std::fs::read_to_string(results.join("42-partial/index.md")).unwrap();
    assert!(page.contains("Result: partial: interrupted before it was complete."), "{page}");
    assert!(!results.join("42").exists(), "what was cut short is no full result");
}

/// Once, a quick run and an interrupted run replaced the committed result.
#[test]
fn a_quick_run_leaves_the_full_result_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("lab/results/jitter-comparison/42");
    std::fs::create_dir_all(&full).unwrap();
    std::fs::write(full.join("summary.json"), "the full result").unwrap();
    let output = lab(dir.path(), &["run", "jitter-comparison", "--quick"]);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(std::fs::read_to_string(full.join("summary.json")).unwrap(), "the full result");
    assert!(full.with_file_name("42-quick").join("summary.json").is_file());
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

/// No figure has an expected range, so that only the audit decides.
#[test]
fn a_run_whose_audit_does_not_balance_ends_with_exit_code_1() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = include_str!("../../../lab/scenarios/mixed.toml");
    let (expected, broken) = (scenario.find("[[expect]]").unwrap(), scenario.find("[[broken]]").unwrap());
    let run = |letters: &str| {
        let silent = format!("{}{}", &scenario[..expected], &scenario[broken..]);
        let changed = silent.replacen("concurrency = 256", &format!("concurrency = 256\n{letters}"), 1);
        std::fs::write(dir.path().join("mine.toml"), changed).unwrap();
        lab(dir.path(), &["run", "mixed", "--quick", "--file", "mine.toml"])
    };
    let balanced = run("");
    assert_eq!(balanced.code, Some(0), "{}{}", balanced.stdout, balanced.stderr);
    // Announced by the engine's hook, and never written.
    let lost = run("phantom_letters = 100");
    assert_eq!(lost.code, Some(1), "{}{}", lost.stdout, lost.stderr);
    assert!(lost.stdout.contains("✗ does not balance"), "{}", lost.stdout);
    assert!(lost.stdout.contains("FAILED: the audit by id does not balance"), "{}", lost.stdout);
}

#[test]
fn what_does_not_exist_is_a_usage_error_that_names_what_does() {
    let dir = tempfile::tempdir().unwrap();
    let unknown = lab(dir.path(), &["run", "no-such"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("metastability"), "{}", unknown.stderr);
    // Refused before a broker is looked for.
    for brokers in [&["--brokers", "127.0.0.1:1"][..], &[]] {
        let kafka = lab(dir.path(), &[&["run", "bloom", "--engine", "kafka"], brokers].concat());
        assert_eq!(kafka.code, Some(2), "{}", kafka.stderr);
        assert!(kafka.stderr.contains("does not run on the engine kafka: it is a model"), "{}", kafka.stderr);
    }
}
