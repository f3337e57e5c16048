//! No text makes the parser panic, and no text gives both a configuration and errors.

use std::fmt::Write as _;

use proptest::prelude::*;
use redrive_cli::config::{Environment, ProcessorFlags, Source, default, load};

fn survives(text: &str) {
    let source = Source::new("redrive.toml", text);
    let loaded = load::build(Some(source), &ProcessorFlags::default(), &Environment::default());
    assert_eq!(loaded.config.is_some(), loaded.faults.errors() == 0, "{text}");
    let lines = loaded.faults.lines(redrive_cli::output::Paint::OFF);
    assert!(loaded.faults.errors() == 0 || lines.len() > 1, "{text}");
    let _ = loaded.faults.to_json();
    if let Some(config) = loaded.config {
        let shown: Vec<String> = config.resolved().iter().flat_map(|table| table.text(true)).collect();
        assert!(!shown.is_empty());
    }
}

/// A value that a user could write anywhere.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:e}")),
        Just("inf".to_owned()),
        Just("2026-11-15T08:01:12Z".to_owned()),
        Just("99999999999999999999999999".to_owned()),
        "[a-z0-9%(). :/]{0,12}".prop_map(|text| format!("{text:?}")),
        Just("\"5s\"".to_owned()),
        Just("[\"5s\", 3, { a = 1 }]".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("{ base = \"2s\", x = [1] }".to_owned()),
        Just("\"\\u00fc\\n\"".to_owned()),
    ]
}

fn key() -> impl Strategy<Value = String> {
    let known: Vec<String> = redrive_cli::config::sinks::KEYS
        .tables()
        .iter()
        .flat_map(|table| table.keys.iter().map(|key| (*key).to_owned()))
        .collect();
    prop_oneof![prop::sample::select(known), "[a-z_]{1,8}", "\"[^\"\\\\]{0,4}\""]
}

fn header() -> impl Strategy<Value = String> {
    let tables: Vec<String> =
        redrive_cli::config::sinks::KEYS.tables().iter().map(|table| table.path.to_owned()).collect();
    let tables = prop::sample::select(tables);
    (tables, any::<bool>()).prop_map(|(path, twice)| match (path.as_str(), twice) {
        ("", _) => String::new(),
        (path, true) => format!("[[{path}]]"),
        (path, false) => format!("[{path}]"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "\\PC*") {
        survives(&text);
    }

    #[test]
    fn any_bytes_that_are_text(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        survives(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn tables_with_any_keys_and_values(
        parts in prop::collection::vec((header(), prop::collection::vec((key(), value()), 0..6)), 0..6)
    ) {
        let mut text = String::new();
        for (header, settings) in parts {
            text.push_str(&header);
            text.push('\n');
            for (key, value) in settings {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        survives(&text);
    }

    #[test]
    fn the_default_file_with_a_part_cut_out_or_replaced(
        from in 0..default::text().len(),
        len in 0..400_usize,
        patch in "[\\[\\]{}=\"#,\n a-z0-9]{0,8}",
        uncommented in any::<bool>(),
    ) {
        let mut text = default::text().to_owned();
        if uncommented {
            text = text.replace("\n#", "\n");
        }
        let whole = |mut at: usize| {
            at = at.min(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (from, to) = (whole(from), whole(from + len));
        text.replace_range(from..to, &patch);
        survives(&text);
    }
}
