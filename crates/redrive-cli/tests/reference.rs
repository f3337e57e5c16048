//! The default file is the reference: it contains every key, it is valid, and the pages generated from it are current.

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use redrive_cli::config::declared::{Form, SettingTable, Shown};
use redrive_cli::config::sinks::KEYS;
use redrive_cli::config::{Environment, ProcessorFlags, Source, default, load, schema};
use redrive_cli::reference;
use redrive_core::duration::print;
use support::redrive;

#[test]
fn the_default_file_is_right_as_it_stands() {
    let source = Source::new("default.toml", default::text());
    let loaded = load::build(Some(source), &ProcessorFlags::default(), &Environment::default());
    assert!(loaded.faults.is_empty(), "{:#?}", loaded.faults.all);
    assert!(loaded.config.is_some());
}

#[test]
fn what_the_default_file_sets_is_what_holds_without_it() {
    // Only the name and the address are examples; everything else is the default.
    let bare =
        "[[pipeline]]\nname = \"orders\"\n[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:8000/orders\"\n";
    assert_eq!(settings(default::text()), settings(bare));

    // Settings that it shows commented out, with the defaults that the schema and the reference name. Some tables need
    // other settings before their defaults have an effect.
    let sink = "[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:8000/orders\"\n";
    let without_sink = bare.replace(sink, "");
    let kafka = "kind = \"kafka\"\nbrokers = [\"localhost:9092\"]\ngroup = \"g\"\nstart = \"latest\"\n";
    let mut tables = 0;
    for table in KEYS.declared() {
        let is_shown_as_comment = |engine: Option<&str>| match engine {
            Some(engine) => engine != "embedded",
            None => !table.header.is_active(),
        };
        let defaults = table.settings.iter().filter(|setting| matches!(setting.shown, Shown::Default(_)));
        let lines: Vec<String> = defaults
            .filter(|setting| is_shown_as_comment(setting.only))
            .map(|setting| format!("{} = {}", setting.key, setting.shown.toml()))
            .collect();
        if lines.is_empty() || (table.path == "engine" && !cfg!(feature = "kafka")) {
            continue;
        }
        let (rest, needs) = match table.path {
            "engine" => (bare, kafka),
            "pipeline.budget" => (bare, "retries_per_minute = 100\n"),
            "alert" => (bare, "webhook = \"http://127.0.0.1:8000/alerts\"\n"),
            "pipeline.sink.apns" => {
                (&*without_sink, "key_file = \"k.p8\"\nkey_id = \"ABC123DEFG\"\nteam_id = \"DEF123GHIJ\"\n")
            }
            "pipeline.sink.fcm" => (&*without_sink, "service_account_file = \"fcm.json\"\n"),
            "pipeline.sink.webpush" => {
                (&*without_sink, "vapid_key_file = \"v.pem\"\nsubject = \"mailto:ops@example.com\"\n")
            }
            _ => (bare, ""),
        };
        tables += 1;
        let with = |lines: &str| match table.path {
            "engine" => format!("[engine]\n{needs}{lines}\n{rest}"),
            _ => format!("{rest}{}\n{needs}{lines}\n", table.title()),
        };
        let text = with(&lines.join("\n"));
        assert_eq!(settings(&text), settings(&with("")), "{text}");
    }
    assert!(
        tables >= 11,
        "{tables}: breaker, fast, slow, crash, guard, auto_replay, budget, alert, three push sinks"
    );
}

/// All effective values with this file.
fn settings(text: &str) -> Vec<String> {
    let source = Source::new("x.toml", text);
    let loaded = load::build(Some(source), &ProcessorFlags::default(), &Environment::default());
    let tables = loaded.config.unwrap_or_else(|| panic!("{:#?}", loaded.faults.all)).resolved();
    tables.into_iter().flat_map(|table| table.text(false)).collect()
}

#[test]
fn the_help_of_a_setting_names_each_of_its_words() {
    let mut with_words = 0;
    for setting in KEYS.declared().iter().flat_map(|table| table.settings) {
        let words = setting.form.words().unwrap_or_default();
        let help = setting.help();
        let parts: Vec<&str> = help.split([' ', ',', ';', ':', '"']).collect();
        for word in &words {
            assert!(parts.contains(word), "{}: {help} lacks {word}", setting.key);
        }
        with_words += u32::from(!words.is_empty());
    }
    assert!(with_words >= 16, "{with_words}");
}

/// The bounds are in the declaration, which the reference is generated from. The library has those of the policy too.
#[test]
fn the_bounds_that_are_declared_are_those_that_hold() {
    let tick = Duration::from_millis(1);
    let mut bounds = 0;
    for table in KEYS.declared() {
        for setting in table.settings {
            let Some((min, max)) = setting.form.span() else { continue };
            let is_list = matches!(setting.form, Form::Spans(..));
            let refused = |span: Duration| {
                let span = print(span);
                let value = if is_list { format!("[{span:?}]") } else { format!("{span:?}") };
                let text = setting_alone(table, setting.key, &value);
                let loaded = load::build(
                    Some(Source::new("x.toml", text)),
                    &ProcessorFlags::default(),
                    &Environment::default(),
                );
                let all = &loaded.faults.all;
                all.iter()
                    .any(|fault| fault.key.ends_with(setting.key) && fault.problem.contains("` must be at "))
            };
            let place = format!("{}.{} {min:?} to {max:?}", table.path, setting.key);
            assert!(!refused(min), "{place}: the least is refused");
            if !min.is_zero() {
                assert!(refused(min.saturating_sub(tick)), "{place}: less is taken");
                bounds += 1;
            }
            if max < Duration::from_millis(u64::MAX) {
                assert!(!refused(max), "{place}: the most is refused");
                assert!(refused(max + tick), "{place}: more is taken");
                bounds += 1;
            }
        }
    }
    assert!(bounds >= 30, "{bounds}");
}

/// A file in which only this setting can be wrong.
fn setting_alone(table: &SettingTable, key: &str, value: &str) -> String {
    const SINK: &str = "[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:8000/orders\"\n";
    let line = format!("{key} = {value}\n");
    let others = match key {
        "retry_after_min" | "retry_after_shared_max" => "retry_after_max = \"720h\"\n",
        "cap" => "base = \"1ms\"\n",
        "every" | "within" | "oldest_letter" => "webhook = \"http://127.0.0.1:8000/alerts\"\n",
        "timeout" if table.path == "alert" => "webhook = \"http://127.0.0.1:8000/alerts\"\n",
        _ => "",
    };
    let pipeline = "[[pipeline]]\nname = \"orders\"\n";
    match table.path {
        "pipeline" => format!("{pipeline}{others}{line}{SINK}"),
        "pipeline.sink.webhook" => format!("{pipeline}{SINK}{line}"),
        "pipeline.sink.stdout" => format!("{pipeline}{}\n{line}", table.title()),
        "pipeline.sink.apns" => {
            format!("{pipeline}{}\nkey_file = \"k\"\nkey_id = \"A\"\nteam_id = \"B\"\n{line}", table.title())
        }
        "pipeline.sink.fcm" => format!("{pipeline}{}\nservice_account_file = \"f\"\n{line}", table.title()),
        "pipeline.sink.webpush" => {
            format!(
                "{pipeline}{}\nvapid_key_file = \"v\"\nsubject = \"mailto:a@example.com\"\n{line}",
                table.title()
            )
        }
        _ => format!("{pipeline}{SINK}{}\n{others}{line}", table.title()),
    }
}

#[test]
fn every_setting_says_what_it_is_and_shows_a_value_of_its_form() {
    let mut texts = vec![default::text().to_owned()];
    for table in KEYS.declared() {
        for setting in table.settings {
            assert!(!setting.about.is_empty(), "{setting:?}");
            // Each alone, including the commented ones.
            let above = if table.path.starts_with("pipeline.") { "[[pipeline]]\n" } else { "" };
            texts.push(format!("{above}{}\n\"{}\" = {}\n", table.title(), setting.key, setting.shown.toml()));
        }
    }
    for (text, faults) in texts.iter().zip(faults_of(&texts)) {
        assert!(faults.is_empty(), "{text}{faults}");
    }
}

#[test]
fn an_editor_hears_what_the_program_says() {
    let wrong = [
        ("[[pipeline]]\nretrys = 3", "retrys"),
        ("[[pipeline]]\nretries = \"3\"", "retries"),
        ("[[pipeline]]\nretries = 100000", "retries"),
        ("[[pipeline]]\nttl = \"1 hour\"", "ttl"),
        ("[[pipeline]]\nordering = \"keys\"", "ordering"),
        ("[[pipeline]]\nprofile = \"tierd\"", "profile"),
        ("[pipeline]\nname = \"orders\"", "pipeline"),
        ("[[pipeline]]\n[pipeline.sink.webhok]\nurl = \"http://a\"", "webhok"),
        ("[[pipeline]]\n[pipeline.attempts_for]\nrate_limited = 0", "rate_limited"),
        ("[[server.token]]\nscopes = [\"everything\"]", "scopes"),
    ];
    let texts: Vec<String> = wrong.iter().map(|(text, _)| (*text).to_owned()).collect();
    for ((text, key), faults) in wrong.iter().zip(faults_of(&texts)) {
        assert!(faults.contains(key), "{text}\n{faults}");
        let source = Source::new("x.toml", *text);
        let loaded = load::build(Some(source), &ProcessorFlags::default(), &Environment::default());
        assert!(loaded.faults.errors() > 0, "the program takes it\n{text}");
    }
}

/// The result of a JSON Schema validator for each file: location and problem; empty if all are valid.
fn faults_of(texts: &[String]) -> Vec<String> {
    const VALIDATOR: &str = "
import json, sys, jsonschema
given = json.load(sys.stdin)
jsonschema.Draft7Validator.check_schema(given['schema'])
validator = jsonschema.Draft7Validator(given['schema'])
say = lambda error: '/'.join(map(str, error.absolute_path)) + ': ' + error.message
print(json.dumps([' '.join(map(say, validator.iter_errors(file))) for file in given['files']]))
";
    let files: Vec<_> = texts.iter().map(|text| schema::file_as_json(text)).collect();
    let given = serde_json::json!({"schema": schema::schema(&KEYS), "files": files}).to_string();
    let mut python = Command::new("python3")
        .args(["-c", VALIDATOR])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("scripts/tools.sh installs python3");
    python.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "scripts/tools.sh installs python3-jsonschema");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_program_prints_the_default_file_and_the_completions() {
    let dir = tempfile::tempdir().unwrap();
    let ran = redrive(dir.path(), &["config", "default"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), default::text()));
    for shell in ["bash", "zsh", "fish"] {
        let ran = redrive(dir.path(), &["completions", shell]);
        assert_eq!(ran.code, Some(0));
        assert!(ran.stdout.contains("journal") && ran.stdout.contains("max-retries"), "{shell}");
    }
}

#[test]
fn every_profile_is_in_the_reference_with_what_it_is_for() {
    let page = reference::configuration_page();
    let mut settings = KEYS.declared().iter().flat_map(|table| table.settings);
    let comment = settings.find(|setting| setting.key == "profile").unwrap().help();
    for profile in redrive_core::profiles::ALL {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}`", profile.name)));
        let row = row.unwrap_or_else(|| panic!("`{}` has no row", profile.name));
        assert!(row.contains(profile.about) && profile.about.len() > 20, "{row}");
        let listed = comment.split([' ', ';']).any(|word| word == profile.name);
        assert!(listed, "default.toml does not list {}", profile.name);
    }
}

#[test]
fn the_pages_are_current() {
    current("configuration.md", &reference::configuration_page());
    current("cli.md", &reference::cli_page());
}

fn current(name: &str, text: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("REDRIVE_REGENERATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "docs/reference/{name} is not current: REDRIVE_REGENERATE=1 cargo test -p redrive-cli --test reference"
    );
}
