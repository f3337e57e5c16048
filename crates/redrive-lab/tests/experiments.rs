//! Every scenario of the lab in its quick form: the audit balances, figures that do not depend on the machine are as
//! expected, and the verdict fails when the claim is broken on purpose.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

mod support {
    pub(crate) mod quick;
}

use redrive_lab::experiments::{EXPERIMENTS, Experiment, Finished, Order, OrderedEngine, expected_runs, run};
use redrive_lab::results::files::read_all;
use redrive_lab::results::summary::RunStatus;
use redrive_lab::results::{Summary, report, requirements};
use redrive_lab::scenario::{AUDIT, Clock, FigureVerdict, RangesOf, Size};
use redrive_lab::testbed::{Audit, Silent, Watch};
use support::quick::{Insist, must_hold, must_hold_on, order};

fn finished(name: &str) -> Finished {
    run(&order(name, None, None), &Silent).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Must hold, and must match the forecast of `check`.
fn must_hold_as_forecast(name: &str) {
    let summary = must_hold(&order(name, None, None), Insist::OnAll);
    let wrong: Vec<_> = summary.forecasts.iter().filter(|line| !line.met).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    asked_for_is_there(&summary);
}

/// Figures and forecasts that requirements name must exist.
fn asked_for_is_there(summary: &Summary) {
    for requirement in requirements::all().unwrap() {
        for asked in requirement.figures.iter().filter(|asked| asked.scenario == summary.scenario) {
            let has = |variant: &str| {
                let found = summary.variants.iter().find(|found| found.name == variant);
                found.is_some_and(|found| found.figures.contains_key(&asked.figure))
            };
            let any = summary.variants.iter().any(|variant| has(&variant.name));
            let all = asked.variants.iter().all(|variant| has(variant));
            assert!(any && all, "{}: {asked:?}", requirement.id);
        }
        for asked in requirement.forecasts.iter().filter(|asked| asked.scenario == summary.scenario) {
            let is_there = summary.forecasts.iter().any(|line| line.what == asked.what);
            assert!(is_there, "{}: {asked:?}: {:#?}", requirement.id, summary.forecasts);
        }
    }
}

#[test]
fn every_requirement_names_scenarios_that_exist() {
    for requirement in requirements::all().unwrap() {
        for name in requirement.scenarios() {
            assert!(Experiment::named(name).is_some(), "{}: {name}", requirement.id);
        }
    }
}

/// The committed pages equal the output of `redrive lab report` for the committed results: answers, figures, pages
/// and plots.
#[test]
fn findings_walk_every_requirement_and_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let known = expected_runs().unwrap();
    if std::env::var_os("REDRIVE_REGENERATE").is_some() {
        report::write(&root, &known).unwrap();
    }
    let pages = report::pages(&root, &known).unwrap();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    for (path, page) in [("docs/findings.md", &pages.findings), ("lab/results/README.md", &pages.index)] {
        assert!(read(path) == *page, "{path} is out of date: run `redrive lab report`");
    }
    for (path, page) in pages.figures.iter().chain(&pages.results) {
        assert!(read(path) == *page, "{path} is out of date: run `redrive lab report`");
    }
    let made: BTreeSet<&str> = pages.figures.iter().map(|(path, _)| path.as_str()).collect();
    let files = std::fs::read_dir(root.join("docs/findings")).unwrap();
    for file in files.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        assert!(
            made.contains(format!("docs/findings/{file}").as_str()),
            "docs/findings/{file} is of no scenario"
        );
    }
    for requirement in requirements::all().unwrap() {
        let heading = format!("\n## {}\n", requirement.id);
        assert!(pages.figures[0].1.contains(&heading), "{} is missing", requirement.id);
        assert!(
            pages.findings.contains(&format!("| [{}](", requirement.id)),
            "{} is missing",
            requirement.id
        );
    }
    for summary in read_all(&root.join("lab/results")).unwrap().into_iter().map(|(_, summary)| summary) {
        let page = format!("docs/findings/{}.md", summary.scenario);
        assert!(made.contains(page.as_str()), "{page}");
    }
}

/// The page with the answers must not say "shown" without a result.
#[test]
fn without_results_no_measured_requirement_is_shown() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("lab/results")).unwrap();
    let pages = report::pages(root.path(), &expected_runs().unwrap()).unwrap();
    for line in pages.findings.lines().filter(|line| line.starts_with("| [")) {
        assert!(line.ends_with("| open |"), "{line}");
    }
}

/// A result from another version of its scenario file, or from before versions were recorded, says so.
#[test]
fn results_of_an_earlier_version_of_their_scenario_are_named() {
    let root = tempfile::tempdir().unwrap();
    let results = root.path().join("lab/results");
    let dir = run(&order("jitter-comparison", None, Some(&results)), &Silent).unwrap().dir.unwrap();
    let full = dir.with_file_name("7");
    std::fs::rename(&dir, &full).unwrap();
    let known = expected_runs().unwrap();
    let findings = |hash: Option<&str>| {
        let path = full.join("summary.json");
        let mut summary: Summary = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        if let Some(hash) = hash {
            hash.clone_into(&mut summary.scenario_hash);
            std::fs::write(&path, serde_json::to_string(&summary).unwrap()).unwrap();
        }
        report::pages(root.path(), &known).unwrap().findings
    };
    assert!(!findings(None).contains("| made by an earlier version"));
    for hash in ["", "0123456789abcdef"] {
        assert!(findings(Some(hash)).contains("| made by an earlier version of the scenario"), "{hash}");
    }
}

/// The evidence for a claim must notice that it is broken, one claim after the other.
fn must_fail_when_broken(name: &str, engine: Option<&OrderedEngine>) {
    let scenario = Experiment::named(name).unwrap().scenario().unwrap();
    for (which, broken) in scenario.broken.iter().enumerate() {
        let order = Order { engine: engine.cloned(), ..order(name, Some(which), None) };
        let summary = run(&order, &Silent).unwrap_or_else(|error| panic!("{name}: {error}")).summary;
        let is_missed = |verdict: &FigureVerdict| {
            verdict.variant == broken.variant && verdict.figure == broken.fails && !verdict.met
        };
        let noticed = match broken.fails.as_str() {
            AUDIT => summary.standing() == RunStatus::AuditFailed,
            _ => summary.verdicts.iter().any(is_missed),
        };
        assert!(
            noticed,
            "{name}: `{}` of `{}` did not notice: {:#?} {:#?}",
            broken.fails, broken.variant, summary.verdicts, summary.variants
        );
    }
}

macro_rules! scenarios {
    ($($test:ident => $name:literal,)*) => {
        const TESTED: &[&str] = &[$($name),*];
        $(
            mod $test {
                #[test]
                fn quick_run_is_as_expected() {
                    super::must_hold_as_forecast($name);
                }

                #[test]
                fn verdict_fails_when_a_claim_is_broken() {
                    super::must_fail_when_broken($name, None);
                }
            }
        )*
    };
}

scenarios! {
    blocking => "blocking-vs-non-blocking",
    retry_storm => "retry-storm",
    poison_growth => "poison-growth",
    failure_sweep => "failure-sweep",
    mixed => "mixed",
    backoff_sweep => "backoff-sweep",
    misclassification => "misclassification",
    time_to_dead_letter => "time-to-dead-letter",
    ordering => "ordering",
    replay => "replay",
    jitter_comparison => "jitter-comparison",
    budgets => "budgets",
    metastability => "metastability",
    bloom => "bloom",
    false_dead_letters => "false-dead-letters",
    noisy_endpoint => "noisy-endpoint",
    lateness => "lateness",
    kills => "kills",
    soak => "soak-50k",
}

#[test]
fn scenarios_of_the_virtual_clock_have_a_quick_form_on_the_embedded_engine() {
    std::thread::scope(|scope| {
        for name in ["retry-storm", "poison-growth", "backoff-sweep"] {
            scope.spawn(move || {
                // A dozen variants at once, forty times as fast, are late on a busy machine; the growth of letters is
                // unaffected.
                let insist =
                    if name == "poison-growth" { Insist::OnAll } else { Insist::OnWhatSpeedCannotChange };
                must_hold_on(name, OrderedEngine::Embedded, "embedded engine, real clock", insist);
            });
        }
    });
}

#[test]
fn growth_of_letters_is_noticed_on_the_embedded_engine_too() {
    must_fail_when_broken("poison-growth", Some(&OrderedEngine::Embedded));
}

/// A result of an older version of its scenario proves nothing about the current one.
#[test]
fn every_committed_result_was_made_by_the_scenario_that_is_committed() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/results");
    let mut differ = Vec::new();
    for (dir, summary) in read_all(&results).unwrap() {
        let scenario = Experiment::named(&summary.scenario).unwrap().scenario().unwrap();
        let mut must_be_same = |what: &str, is_same: bool| {
            if !is_same {
                differ.push(format!("{}: {what}", dir.strip_prefix(&results).unwrap().display()));
            }
        };
        must_be_same("content", ["", &scenario.hash].contains(&summary.scenario_hash.as_str()));
        must_be_same("title", summary.title == scenario.title);
        must_be_same("question", summary.question == scenario.question);
        must_be_same("method", summary.method == scenario.method);
        let variants: Vec<&str> = summary.variants.iter().map(|variant| variant.name.as_str()).collect();
        must_be_same("variants", variants == scenario.variant_names());
        // A scenario on the virtual clock has separate ranges for runs on an engine.
        let real = scenario.clock == Clock::Virtual && summary.ran_on.ends_with("real clock");
        let is_kafka = summary.ran_on.starts_with("Kafka");
        let engine = if is_kafka { RangesOf::Kafka } else { RangesOf::Embedded };
        let expected = scenario.judge(&summary.variants, Size { real, engine, ..Size::default() });
        must_be_same("ranges and verdicts", ranges(&summary.verdicts) == ranges(&expected));
        let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let drawn: BTreeSet<String> = files
            .filter(|path| path.extension().is_some_and(|ending| ending == "svg"))
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        must_be_same("plots", drawn == summary.plots.iter().map(|(file, _)| file.clone()).collect());
    }
    assert!(differ.is_empty(), "run these scenarios again: {differ:#?}");
}

/// The expected ranges and whether they were met, without the reasons.
fn ranges(verdicts: &[FigureVerdict]) -> Vec<String> {
    let range = |v: &FigureVerdict| format!("{} {} {:?} {:?} {}", v.variant, v.figure, v.min, v.max, v.met);
    verdicts.iter().map(range).collect()
}

#[test]
fn every_scenario_is_tested() {
    let known: BTreeSet<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    assert_eq!(known, TESTED.iter().copied().collect::<BTreeSet<_>>());
}

#[test]
fn a_result_has_its_page_plots_raw_data_and_command_and_the_report_finds_it() {
    let root = tempfile::tempdir().unwrap();
    let results = root.path().join("lab/results");
    let name = "jitter-comparison";
    let finished = run(&order(name, None, Some(&results)), &Silent).unwrap();
    let dir = finished.dir.unwrap();
    assert_eq!(dir, results.join(name).join("7-quick"));
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    for page in [read("index.md"), read("index.html")] {
        for text in [
            "calls.svg",
            "redrive lab run jitter-comparison --seed 7 --quick",
            "cores",
            "kernel",
            "794 calls",
            "clients 100",
            "Downstream: part of the model",
            &finished.summary.scenario_hash,
        ] {
            assert!(page.contains(text), "{text}");
        }
    }
    assert!(read("calls.svg").starts_with("<svg"));
    assert!(read("samples.csv").lines().count() > 50);
    let stored: Summary = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!((stored.seed, stored.standing()), (7, finished.summary.standing()));
    assert_eq!(stored.verdicts.len(), finished.summary.verdicts.len());
    assert_eq!(stored.settings["full"]["backoff"], "full");
    assert_eq!(stored.common_settings()["runs"], "3", "a quick run has its own");
    assert!(!stored.common_settings().contains_key("backoff") && stored.own_settings("full").len() == 1);
    let mut older: serde_json::Value = serde_json::from_str(&read("summary.json")).unwrap();
    let fields = older.as_object_mut().unwrap();
    assert!(fields.remove("settings").is_some() && fields.remove("scenario_hash").is_some());
    let older: Summary = serde_json::from_value(older).unwrap();
    assert_eq!(older.standing(), stored.standing(), "results of older versions are still read");

    let known = expected_runs().unwrap();
    assert_eq!(
        report::write(root.path(), &known).unwrap().results,
        0,
        "a quick run is no result for the report"
    );
    std::fs::rename(&dir, results.join(name).join("7")).unwrap();
    std::fs::write(results.join(name).join("7/index.md"), "an old page").unwrap();
    let drawn = read_svg(&results);
    std::fs::write(results.join(name).join("7/calls.svg"), "an old plot").unwrap();
    let written = report::write(root.path(), &known).unwrap();
    assert_eq!(written.results, 1);
    assert!(read_svg(&results) == drawn, "the report draws the plot of the run again, from its samples");
    let page = std::fs::read_to_string(results.join(name).join("7/index.md")).unwrap();
    assert!(page.contains("## Why it looks like this\n\n"), "{page}");
    let page = std::fs::read_to_string(root.path().join("docs/findings/jitter-comparison.md")).unwrap();
    assert!(page.contains("../../lab/results/jitter-comparison/7/calls.svg"), "{page}");
    let findings = std::fs::read_to_string(root.path().join("docs/findings.md")).unwrap();
    assert!(findings.contains("](findings/jitter-comparison.md)"), "{findings}");
    let index = std::fs::read_to_string(results.join("README.md")).unwrap();
    assert!(index.contains("](jitter-comparison/7/index.md)"), "{index}");
}

fn read_svg(results: &Path) -> String {
    std::fs::read_to_string(results.join("jitter-comparison/7/calls.svg")).unwrap()
}

/// Interrupts a run after a number of checks.
struct Impatient(AtomicU32);

impl Watch for Impatient {
    fn progress(&self, _done: f64, _doing: &str) {}

    fn is_interrupted(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) >= 15
    }
}

#[test]
fn an_interrupted_run_leaves_what_was_complete_and_says_that_it_is_partial() {
    let out = tempfile::tempdir().unwrap();
    let order = order("jitter-comparison", None, Some(out.path()));
    let Finished { summary, dir, .. } = run(&order, &Impatient(AtomicU32::new(0))).unwrap();
    assert_eq!(summary.standing(), RunStatus::Partial);
    assert_eq!(summary.variants.len(), 1, "the second variant was cut");
    let dir = dir.unwrap();
    assert_eq!(dir, out.path().join("jitter-comparison/7-quick-partial"));
    let page = std::fs::read_to_string(dir.join("index.md")).unwrap();
    assert!(page.contains("partial: interrupted"), "{page}");
}

#[test]
fn a_run_whose_audit_does_not_balance_has_failed_whatever_its_figures_say() {
    let mut summary = finished("retry-storm").summary;
    summary.forecasts.clear();
    summary.verdicts.clear();
    assert_eq!(summary.standing(), RunStatus::Passed);
    let audit = summary.variants[0].audit.unwrap();
    summary.variants[0].audit = Some(Audit { succeeded: audit.succeeded - 1, ..audit });
    assert_eq!(summary.standing(), RunStatus::AuditFailed);
}

#[test]
fn another_scenario_file_can_be_given_and_its_faults_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    std::fs::write(&file, "title = 'mine'\nquestion = 1\n").unwrap();
    let order = Order { file: Some(file), ..order("bloom", None, None) };
    let error = run(&order, &Silent).unwrap_err().to_string();
    assert!(error.contains("scenario file") && error.contains("question"), "{error}");
    let unknown = Order { name: "no-such".to_owned(), file: None, ..order };
    assert!(run(&unknown, &Silent).unwrap_err().to_string().contains("there are blocking-vs-non-blocking"));
}
