//! The default file is the reference: it holds every key, it is right, and the pages made from it are current.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use redrive_cli::config::sinks::KEYS;
use redrive_cli::config::{Environment, ProcessorFlags, Source, default, load};
use redrive_cli::reference;
use support::redrive;

#[test]
fn the_default_file_is_right_as_it_stands() {
    let source = Source::new("default.toml", default::TEXT);
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
    assert_eq!(settings(default::TEXT), settings(bare));
}

#[test]
fn the_default_file_names_every_key_and_no_other() {
    let named: BTreeSet<(String, String)> =
        default::settings().into_iter().map(|setting| (setting.table, setting.key)).collect();
    let tables: BTreeSet<&str> = KEYS.tables().iter().map(|table| table.path).collect();
    for table in KEYS.tables() {
        for key in table.keys {
            let path =
                if table.path.is_empty() { (*key).to_owned() } else { format!("{}.{key}", table.path) };
            // A table is named by its own header, or as an inline table.
            let is_table = tables.contains(path.as_str()) || KEYS.open_tables().contains(&path.as_str());
            let by_header =
                named.iter().any(|(table, _)| *table == path || table.starts_with(&format!("{path}.")));
            let by_key = named.contains(&(table.path.to_owned(), (*key).to_owned()));
            assert!(by_key || (is_table && by_header), "`{key}` of [{}] is not in default.toml", table.path);
        }
    }
    for (table, key) in &named {
        let open = KEYS.open_tables().contains(&table.as_str());
        let known = KEYS.of(table).is_some_and(|keys| keys.contains(&key.as_str()));
        assert!(open || known, "default.toml names `{key}` in [{table}], which nobody reads");
    }
}

#[test]
fn every_setting_of_the_default_file_says_what_it_is() {
    for setting in default::settings() {
        assert!(!setting.about.is_empty(), "{setting:?}");
    }
}

#[test]
fn the_program_prints_the_default_file_and_the_completions() {
    let dir = tempfile::tempdir().unwrap();
    let ran = redrive(dir.path(), &["config", "default"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), default::TEXT));
    for shell in ["bash", "zsh", "fish"] {
        let ran = redrive(dir.path(), &["completions", shell]);
        assert_eq!(ran.code, Some(0));
        assert!(ran.stdout.contains("journal") && ran.stdout.contains("max-retries"), "{shell}");
    }
}

#[test]
fn every_profile_is_in_the_reference_with_what_it_is_for() {
    let page = reference::configuration_page();
    let comment = default::settings().into_iter().find(|setting| setting.key == "profile").unwrap().about;
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
