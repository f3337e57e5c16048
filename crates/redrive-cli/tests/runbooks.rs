//! The commands that runbooks and the guide to alerts tell people to type are commands of this program.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use redrive_cli::Cli;

fn pages() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let runbooks = std::fs::read_dir(docs.join("runbooks")).unwrap().map(|page| page.unwrap().path());
    runbooks.chain([docs.join("guide/alerts.md")]).collect()
}

/// Every `redrive …` of a page: lines of code blocks, and code within a sentence.
fn commands(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            commands.extend(
                line.strip_prefix("redrive ").map(|rest| rest.split(" #").next().unwrap().to_owned()),
            );
        } else {
            let spans = line.split('`').skip(1).step_by(2);
            commands.extend(spans.filter_map(|span| span.strip_prefix("redrive ")).map(str::to_owned));
        }
    }
    commands
}

/// Words as a shell makes them, as far as these pages need it: quotes, a pipe or a redirection ends the command.
fn words(command: &str) -> Vec<String> {
    let mut words = vec!["redrive".to_owned()];
    for (i, part) in command.split('\'').enumerate() {
        if i % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    let end = words.iter().position(|word| ["|", ">", ";"].contains(&word.as_str())).unwrap_or(words.len());
    words.truncate(end);
    words
}

#[test]
fn every_command_of_a_runbook_is_one() {
    let mut tried = 0;
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for command in commands(&text) {
            // A command that is only named, without what it needs.
            if ["dlq undo", "processor", "journal"].contains(&command.as_str()) {
                continue;
            }
            tried += 1;
            if let Err(error) = Cli::try_parse_from(words(&command)) {
                panic!("{}: redrive {command}\n{error}", page.display());
            }
        }
    }
    assert!(tried > 50, "only {tried} commands were found");
}
