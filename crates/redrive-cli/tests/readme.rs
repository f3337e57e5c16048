//! Runs the commands of README.md, docs/quickstart.md and docs/guide/try-failures.md, and compares their output with
//! the pages.
//!
//! The commands of the ```` ```console ```` blocks run as written, in order, in one shell. Only these are changed: the
//! ports, so that nothing clashes; `make demo`, which would build: the binary's demo runs instead, with an early outage
//! and until its breaker has closed; and the broker, which is that of the tests. In the expected output, a word with a
//! digit matches any word and `…` anything; column widths are ignored.

mod world;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use world::free_port;

/// One `$ ` line with its continuation, and the expected output.
#[derive(Debug, Default)]
struct Step {
    command: String,
    expected: Vec<String>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The steps of all console blocks. A command continues after a trailing backslash and to the end of a here-document.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "```console" {
            continue;
        }
        while let Some(line) = lines.next().filter(|line| *line != "```") {
            let Some(command) = line.strip_prefix("$ ") else {
                let step = steps.last_mut().expect("a console block begins with a command");
                step.expected.push(line.to_owned());
                continue;
            };
            let mut command = command.to_owned();
            let document = command.contains("<<'EOF'");
            while command.ends_with('\\') || (document && !command.ends_with("\nEOF")) {
                command.push('\n');
                command.push_str(lines.next().expect("the command goes on"));
            }
            steps.push(Step { command, expected: Vec::new() });
        }
    }
    steps
}

/// The script: a mark before each step, its exit code after it; background processes end with the script.
fn script(steps: &[Step], ports: &[(&str, u16)]) -> String {
    let mut script = "set -u\nexec 2>&1\ntrap 'kill $(jobs -p) 2>/dev/null' EXIT\n".to_owned();
    for (index, step) in steps.iter().enumerate() {
        let mut command = step
            .command
            .replace("make demo", "redrive demo --for 48s --outage-window 6s@3s --listen 127.0.0.1:7333");
        command = command.replace("redrive downstream", "redrive downstream --listen 127.0.0.1:7335");
        if !command.contains("--listen") {
            command = command.replace("redrive producer", "redrive producer --listen 127.0.0.1:7334");
        }
        let scripts = repository().join("scripts/kafka.sh").display().to_string();
        command = command
            .replace("make -s kafka-up", &format!("echo {}", world::kafka::address()))
            .replace("make kafka-down", "true")
            .replace("scripts/kafka.sh", &scripts);
        for (port, own) in ports {
            command = command.replace(port, &own.to_string());
        }
        // The minimum time that a person takes to read; accepted messages are delivered meanwhile.
        let _ =
            writeln!(script, "printf '\\n@@ {index}\\n'; sleep 0.5\n{command}\nprintf '\\n@@ code %s\\n' $?");
    }
    script
}

/// Whether a printed line matches the expected one. Runs of letters and digits that contain a digit are not compared.
fn matches(expected: &str, printed: &str) -> bool {
    let expected = expected.split_whitespace().collect::<Vec<_>>().join(" ");
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = vec![String::new()];
    let mut word = String::new();
    let mut chars = expected.chars().chain(['\n']).peekable();
    while let Some(c) = chars.next() {
        let next_is_digit = chars.peek().is_some_and(char::is_ascii_digit);
        let in_number = ".,:".contains(c) && next_is_digit && word.ends_with(|c: char| c.is_ascii_digit());
        if c.is_ascii_alphanumeric() || in_number {
            word.push(c);
            continue;
        }
        if word.bytes().any(|byte| byte.is_ascii_digit()) {
            parts.push(String::new());
        } else {
            parts.last_mut().unwrap().push_str(&word);
        }
        word.clear();
        match c {
            '…' => parts.push(String::new()),
            '\n' => {}
            other => parts.last_mut().unwrap().push(other),
        }
    }
    let (first, rest) = parts.split_first().unwrap();
    let Some(mut left) = printed.strip_prefix(first.as_str()) else { return false };
    for (index, part) in rest.iter().enumerate() {
        if index + 1 == rest.len() {
            return left.ends_with(part.as_str());
        }
        let Some(at) = left.find(part.as_str()) else { return false };
        left = &left[at + part.len()..];
    }
    left.is_empty()
}

/// Runs the page in its own directory and returns the differences.
fn faults(page: &str) -> (usize, Vec<String>) {
    let text = std::fs::read_to_string(repository().join(page)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    run(&text, dir.path())
}

fn run(text: &str, dir: &Path) -> (usize, Vec<String>) {
    let steps = steps(text);
    let ports = [("7333", free_port()), ("7335", free_port()), ("7334", free_port())];
    let binary = Path::new(env!("CARGO_BIN_EXE_redrive")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let output = Command::new("timeout")
        .args(["240", "bash", "-c", &script(&steps, &ports)])
        .current_dir(dir)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env_remove("REDRIVE_CONFIG")
        .env_remove("REDRIVE_TOKEN")
        .env("REDRIVE_LISTEN", format!("127.0.0.1:{}", ports[0].1))
        .env("REDRIVE_URL", format!("http://127.0.0.1:{}", ports[0].1))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut faults = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let region = printed.split(&format!("\n@@ {index}\n")).nth(1).unwrap_or_default();
        let (region, code) = region.split_once("\n@@ code ").unwrap_or((region, "none, it was not reached"));
        let code = code.lines().next().unwrap_or_default();
        if code != "0" {
            faults.push(format!("$ {}\n  exit code {code}\n{region}", step.command));
        }
        let mut lines = region.lines();
        for expected in step.expected.iter().filter(|line| !line.trim().is_empty() && line.trim() != "…") {
            if !lines.any(|line| matches(expected, line)) {
                faults.push(format!("$ {}\n  expected: {expected}\n  printed:\n{region}", step.command));
                break;
            }
        }
    }
    (steps.len(), faults)
}

/// An earlier run may have left the README's topic behind.
fn forget_the_shop() {
    let topics = "shop|shop\\..*";
    let ran = Command::new(repository().join("scripts/kafka.sh"))
        .args([
            "run",
            "kafka-topics.sh",
            "--bootstrap-server",
            &world::kafka::address(),
            "--delete",
            "--if-exists",
        ])
        .args(["--topic", topics])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_readme_does_what_it_says() {
    forget_the_shop();
    let (steps, faults) = faults("README.md");
    assert!(steps >= 8, "README.md has {steps} commands; are its blocks still marked as console?");
    assert!(faults.is_empty(), "README.md:\n{}", faults.join("\n"));
}

#[test]
fn the_quickstart_does_what_it_says() {
    let (steps, faults) = faults("docs/quickstart.md");
    assert!(steps >= 8, "docs/quickstart.md has {steps} commands; are its blocks still marked as console?");
    assert!(faults.is_empty(), "docs/quickstart.md:\n{}", faults.join("\n"));
}

/// A newcomer continues from the first page to the second, with the first one's store.
#[test]
fn the_quickstart_goes_on_where_the_readme_ended() {
    let dir = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let queue = readme.split("## Use it as a queue over HTTP").nth(1).unwrap().split("\n## ").next().unwrap();
    let (steps, faults) = run(queue, dir.path());
    assert!(steps >= 8 && faults.is_empty(), "README.md:\n{}", faults.join("\n"));
    let quickstart = std::fs::read_to_string(repository().join("docs/quickstart.md")).unwrap();
    let (_, faults) = run(&quickstart, dir.path());
    assert!(faults.is_empty(), "docs/quickstart.md after README.md:\n{}", faults.join("\n"));
}

#[test]
fn breaking_things_on_purpose_does_what_it_says() {
    let (steps, faults) = faults("docs/guide/try-failures.md");
    assert!(steps >= 13, "docs/guide/try-failures.md has {steps} commands");
    assert!(faults.is_empty(), "docs/guide/try-failures.md:\n{}", faults.join("\n"));
}

/// The tables of flags match the program: each flag of the two commands, with its default.
#[test]
fn the_tables_of_flags_are_those_of_the_program() {
    use clap::CommandFactory as _;
    let page = std::fs::read_to_string(repository().join("docs/guide/try-failures.md")).unwrap();
    let mut program = redrive_cli::Cli::command();
    program.build();
    for (command, heading) in [("producer", "## The producer"), ("downstream", "## The downstream")] {
        let part = page.split(heading).nth(1).unwrap().split("\n## ").next().unwrap();
        let rows: Vec<&str> = part.lines().filter(|line| line.starts_with("| `--")).collect();
        let command = program.find_subcommand(command).unwrap();
        let own = command.get_arguments().filter(|arg| !arg.is_global_set() && arg.get_long().is_some());
        for arg in own.filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())) {
            let flag = format!("`--{}`", arg.get_long().unwrap());
            let row = rows.iter().find(|row| row.split('|').nth(1).is_some_and(|cell| cell.contains(&flag)));
            let row = row.unwrap_or_else(|| panic!("{heading} lacks {flag}"));
            // An address and a ledger are described in words.
            let told = row.split('|').nth(3).unwrap().trim();
            match arg.get_default_values() {
                [value] if flag != "`--target`" => assert_eq!(told, value.to_str().unwrap(), "{flag}"),
                [] if flag != "`--ledger`" => assert_eq!(told, "–", "{flag}"),
                _ => {}
            }
        }
        for flag in rows.iter().flat_map(|row| row.split('|').nth(1).unwrap().split(',')) {
            let flag = flag.trim().trim_matches('`').trim_start_matches("--");
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(flag)), "there is no --{flag}");
        }
    }
}

#[test]
fn a_line_that_says_something_else_is_noticed() {
    let expected = "replay r-1  1/1   succeeded 1   dead again 0   0.3 s";
    assert!(matches(expected, "replay r-7  12/12   succeeded 12   dead again 0   14.0 s"));
    assert!(!matches(expected, "replay r-7  12/12   failed 12   dead again 0   14.0 s"));
    assert!(!matches(expected, "replay r-7  12/12   succeeded 12"));
    assert!(matches("API http://… · token", "API http://127.0.0.1:7333 · token"));
    assert!(!matches("{\"status\":\"ready\"}", "{\"status\":\"starting\"}"));
}
