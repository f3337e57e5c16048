//! What a user who starts a processor in a terminal sees: every fact once, and no internals.

mod world;

use world::process::redrive;
use world::terminal::Terminal;
use world::{config, free_port, wait_for};

/// How many lines contain all these words.
fn with(lines: &[String], words: &[&str]) -> usize {
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

/// Starts a processor, stops it with ^C once it runs, and returns what the terminal showed.
fn played(engine: &str) -> (u16, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let text = config(engine, "name = \"orders\"", "http://127.0.0.1:9/hook")
        .replace("@DIR@", "data")
        .replace("@LISTEN@", &format!("127.0.0.1:{port}"));
    std::fs::write(dir.path().join("redrive.toml"), text).unwrap();
    // With colours, as on a terminal.
    let mut command = redrive(dir.path());
    let mut terminal = Terminal::spawn(command.arg("processor").env_remove("NO_COLOR"));
    terminal.wait_for_line("API");
    let kill = std::process::Command::new("kill").args(["-INT", &terminal.child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    wait_for("the processor to end", || terminal.child.try_wait().unwrap().is_some());
    terminal.wait_for_line("drained");
    (port, terminal.lines())
}

#[test]
fn a_start_in_a_terminal_says_each_fact_once_and_where_the_page_is() {
    let (port, lines) = played("");
    let all = lines.join("\n");
    assert!(!all.contains("ansi") && !all.contains("tracing"), "{all}");
    assert_eq!(with(&lines, &["pipeline orders", "attempts"]), 1, "{all}");
    assert_eq!(with(&lines, &["4 attempts"]), 1, "{all}");
    assert_eq!(with(&lines, &[&format!("127.0.0.1:{port}")]), 1, "{all}");
    assert_eq!(with(&lines, &["page", &format!("http://127.0.0.1:{port}/")]), 1, "{all}");
    assert_eq!(with(&lines, &["drained"]), 1, "{all}");
    assert_eq!(with(&lines, &["restart"]), 0, "{all}");
}

#[test]
fn an_engine_that_forgets_says_so_before_the_first_message() {
    let (_, lines) = played("kind = \"memory\"");
    let all = lines.join("\n");
    assert_eq!(with(&lines, &["warning", "memory", "restart"]), 1, "{all}");
    let warned = lines.iter().position(|line| line.contains("warning")).unwrap();
    assert!(warned < lines.iter().position(|line| line.contains("API")).unwrap(), "{all}");
}
