//! deploy/compose.yaml works: every command of ours in it goes through the real argument parser, and the configuration
//! it names through the real parser.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use redrive_cli::commands::{Cli, Command, downstream};
#[cfg(feature = "kafka")]
use redrive_cli::config::{Environment, ProcessorFlags, Source, load};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn read(file: &str) -> String {
    let path = deploy(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The arguments of a list such as `["downstream", "--listen", "…"]`, which YAML and a Dockerfile write as JSON does.
fn arguments(list: &str) -> Vec<String> {
    let list: Vec<String> = serde_json::from_str(list).unwrap_or_else(|error| panic!("{list}: {error}"));
    std::iter::once("redrive".to_owned()).chain(list).collect()
}

fn parse(arguments: &[String]) -> Cli {
    Cli::try_parse_from(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

/// The commands of services that run our image.
fn commands() -> Vec<Vec<String>> {
    let text = read("compose.yaml");
    let lists = text.lines().filter_map(|line| line.trim_start().strip_prefix("command: ["));
    lists.map(|rest| arguments(&format!("[{rest}"))).collect()
}

#[test]
fn every_command_of_the_compose_file_is_one_that_redrive_takes() {
    let commands = commands();
    assert_eq!(commands.len(), 2, "downstream and producer: {commands:?}");
    for command in &commands {
        parse(command);
    }
}

/// Once, the stub refused to listen beyond loopback, and compose showed a service that restarted for ever.
#[test]
fn the_downstream_of_the_compose_file_may_listen_where_it_shall() {
    let commands = commands();
    let parsed = commands.iter().map(|command| parse(command)).find_map(|cli| match cli.command {
        Command::Downstream(args) => Some(args),
        _ => None,
    });
    let args = parsed.expect("there is a downstream");
    let options = downstream::options(&args).unwrap_or_else(|failed| panic!("{failed}"));
    assert!(!options.listen.ip().is_loopback(), "other containers have to reach it");
}

#[cfg(feature = "kafka")]
#[test]
fn what_the_image_runs_by_itself_is_a_processor_with_the_mounted_configuration() {
    let dockerfile = read("Dockerfile");
    let command = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).expect("the image has a CMD");
    assert!(matches!(parse(&arguments(command)).command, Command::Processor(_)));
    let compose = read("compose.yaml");
    let mounted = compose.lines().find_map(|line| line.trim().strip_prefix("- ./")?.split_once(':'));
    let (file, _) = mounted.expect("a configuration is mounted");
    let source = Source::new(file, read(file));
    // Compose sets REDRIVE_TOKEN, which is required to listen beyond loopback.
    let environment = Environment { token: true, ..Environment::default() };
    let loaded = load::build(Some(source), &ProcessorFlags::default(), &environment);
    // It warns that tokens go over plain HTTP, which is intended: compose publishes the port on loopback only.
    assert!(loaded.config.is_some(), "{:#?}", loaded.faults.all);
}

/// A mount of a missing file becomes an empty directory, and the service starts without its configuration.
#[test]
fn everything_that_compose_mounts_is_there_and_prometheus_loads_the_shipped_rules() {
    let compose = read("compose.yaml");
    let mounts: Vec<(&str, &str)> =
        compose.lines().filter_map(|line| line.trim().strip_prefix("- ./")?.split_once(':')).collect();
    for (file, _) in &mounts {
        assert!(deploy(file).exists(), "{file} is mounted and does not exist");
    }
    let inside = |file: &str| {
        let mount = mounts.iter().find(|(mounted, _)| *mounted == file);
        mount.map(|(_, inside)| inside.trim_end_matches(":ro").to_owned()).unwrap_or_default()
    };
    let prometheus = read("prometheus/prometheus.yml");
    assert!(prometheus.contains(&format!("- {}\n", inside("alerts/redrive.rules.yaml"))), "{prometheus}");
    assert!(prometheus.contains("credentials: only-for-trying-it"), "compose sets this token");
    let provider = read("grafana/provisioning/dashboards/redrive.yaml");
    let board = PathBuf::from(inside("grafana/redrive.json"));
    assert!(provider.contains(&format!("path: {} ", board.parent().unwrap().display())), "{provider}");
}
