//! The default file is the reference: it contains every key, it is valid, and the pages generated from it are current.

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redrive_cli::config::declared::Shown;
use redrive_cli::config::sinks::KEYS;
use redrive_cli::config::{Environment, ProcessorFlags, Source, default, load, schema};
use redrive_cli::reference;
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

    // Tables that it shows commented out, with the defaults that the schema and the reference name.
    let commented = KEYS.declared().iter().filter(|table| !table.header.is_active());
    let mut tables = 0;
    for table in commented {
        let defaults = table.settings.iter().filter(|setting| matches!(setting.shown, Shown::Default(_)));
        let lines: Vec<String> =
            defaults.map(|setting| format!("{} = {}", setting.key, setting.shown.toml())).collect();
        let lines = lines.join("\n");
        tables += u32::from(!lines.is_empty());
        let text = format!("{bare}{}\n{lines}", table.title());
        assert!(lines.is_empty() || settings(&text) == settings(bare), "{text}");
    }
    assert!(tables >= 6, "breaker, fast, slow, crash, guard, auto_replay");
}

/// All effective values with this file.
fn settings(text: &str) -> Vec<String> {
    let source = Source::new("x.toml", text);
    let loaded = load::build(Some(source), &ProcessorFlags::default(), &Environment::default());
    let tables = loaded.config.unwrap_or_else(|| panic!("{:#?}", loaded.faults.all)).resolved();
    tables.into_iter().flat_map(|table| table.text(false)).collect()
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
    let comment = settings.find(|setting| setting.key == "profile").unwrap().about;
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
