//! The commands in runbooks and guides are commands of this program.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;
use redrive_cli::Cli;

fn pages() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let runbooks = std::fs::read_dir(docs.join("runbooks")).unwrap().map(|page| page.unwrap().path());
    let guides =
        ["alerts.md", "dead-letters.md", "adopt-a-dlq.md"].map(|guide| docs.join("guide").join(guide));
    runbooks.chain(guides).collect()
}

/// Every `redrive …` of a page: lines of code blocks, and inline code.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        // A block may be inside a list.
        let line = line.trim_start();
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            let typed = line.strip_prefix("$ ").unwrap_or(line);
            commands.extend(
                typed.strip_prefix("redrive ").map(|rest| rest.split(" #").next().unwrap().to_owned()),
            );
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            commands.extend(spans.filter_map(|span| span.strip_prefix("redrive ")).map(str::to_owned));
        }
    }
    commands
}

/// Splits into words like a shell, as far as these pages need it: quotes, and what ends a command.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (vec!["redrive".to_owned()], None::<String>, None::<char>);
    for c in command.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    let ends = ["|", ">", ";", "&&"];
    let end = words.iter().position(|word| ends.contains(&word.as_str())).unwrap_or(words.len());
    words.truncate(end);
    words
}

#[test]
fn every_command_of_a_runbook_is_one() {
    let mut tried = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for command in commands(&text) {
            let words = words(&command);
            let is_named_only = words.len() <= 3;
            match Cli::try_parse_from(&words) {
                _ if command.contains('…') => {}
                // A command mentioned without its required arguments.
                Err(error) if is_named_only && error.kind() == ErrorKind::MissingRequiredArgument => {}
                Err(error) => panic!("{}: redrive {command}\n{error}", page.display()),
                Ok(_) => tried += 1,
            }
        }
    }
    assert!(tried > 100, "only {tried} commands were found");
}
