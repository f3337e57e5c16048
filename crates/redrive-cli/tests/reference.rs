//! The default file is the reference: it holds every key, it is right, and the pages made from it are current.

mod support;

use std::path::{Path, PathBuf};

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
    // Only the name and the address are an example; everything else is what a bare pipeline has.
    let bare =
        "[[pipeline]]\nname = \"orders\"\n[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:8000/orders\"\n";
    let settings = |text: &str| {
        let source = Source::new("x.toml", text);
        let loaded = load::build(Some(source), &ProcessorFlags::default(), &Environment::default());
        let tables = loaded.config.unwrap().resolved();
        tables.into_iter().flat_map(|table| table.text(false)).collect::<Vec<_>>()
    };
    assert_eq!(settings(default::text()), settings(bare));
}

#[test]
fn every_setting_says_what_it_is_and_shows_a_value_of_its_form() {
    let schema = schema::schema(&KEYS);
    assert!(faults_of(&schema, &schema::file_as_json(default::text())).is_empty());
    for table in KEYS.declared() {
        for setting in table.settings {
            assert!(!setting.about.is_empty(), "{setting:?}");
            // Every line by itself, with those that are comments.
            let (title, key, value) = (table.title(), setting.key, setting.shown.toml());
            let text = format!("{title}\n\"{key}\" = {value}\n");
            let faults = faults_of(&schema, &schema::file_as_json(&text));
            assert!(faults.is_empty(), "{text}{faults}");
        }
    }
}

#[test]
fn an_editor_is_told_of_what_the_program_refuses() {
    let schema = schema::schema(&KEYS);
    for (text, fault) in [
        ("[[pipeline]]\nretrys = 3", "retrys"),
        ("[[pipeline]]\nretries = \"3\"", "retries"),
        ("[[pipeline]]\nretries = 100000", "retries"),
        ("[[pipeline]]\nttl = \"1 hour\"", "ttl"),
        ("[[pipeline]]\nordering = \"keys\"", "ordering"),
        ("[[pipeline]]\nprofile = \"tierd\"", "profile"),
        ("[pipeline]\nname = \"orders\"", "pipeline"),
        ("[pipeline.sink.webhok]\nurl = \"http://a\"", "pipeline"),
        ("[[pipeline]]\n[pipeline.attempts_for]\nrate_limited = 0", "rate_limited"),
        ("[[server.token]]\nscopes = [\"everything\"]", "scopes"),
    ] {
        let said = faults_of(&schema, &schema::file_as_json(text));
        assert!(said.contains(fault), "{text}\n{said}");
        let loaded = load::build(
            Some(Source::new("x.toml", text)),
            &ProcessorFlags::default(),
            &Environment::default(),
        );
        assert!(loaded.faults.errors() > 0, "the program takes it\n{text}");
    }
}

/// What a validator of schemas says, nothing if all is well.
fn faults_of(schema: &serde_json::Value, file: &serde_json::Value) -> String {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("redrive.json", schema.clone()).unwrap();
    let index = compiler.compile("redrive.json", &mut schemas).unwrap();
    schemas.validate(file, index).err().map_or_else(String::new, |error| format!("{error:#}"))
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
