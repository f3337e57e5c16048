//! The same for flags: the fix for a flag can be typed as printed.

use clap::Parser as _;
use redrive_cli::Cli;
use redrive_cli::commands::Command;
use redrive_cli::config::{Environment, Fault, ProcessorFlags, Severity, load};

const SINK: [&str; 2] = ["--sink-url", "http://127.0.0.1:8000/"];

fn faults(args: &[String]) -> Vec<Fault> {
    let given = args.iter().any(|arg| arg == SINK[0]);
    let sink = SINK.iter().filter(|_| !given).map(|arg| (*arg).to_owned());
    let all = ["redrive", "processor"].map(str::to_owned).into_iter().chain(sink).chain(args.iter().cloned());
    let cli = Cli::try_parse_from(all).unwrap_or_else(|error| panic!("{args:?}: {error}"));
    let Command::Processor(processor) = cli.command else { panic!("{args:?}") };
    let flags: ProcessorFlags = processor.flags;
    let loaded = load::build(None, &flags, &Environment::default());
    loaded.faults.all.into_iter().filter(|fault| fault.severity == Severity::Error).collect()
}

/// The arguments with a fix applied: `--timeout 30s`, or one flag in place of another.
fn changed(args: &[String], offer: &str) -> Vec<String> {
    let (settings, removed) = offer.split_once(" instead of ").unwrap_or((offer, ""));
    let mut changed = args.to_vec();
    let remove = |changed: &mut Vec<String>, flag: &str| {
        if let Some(at) = changed.iter().position(|arg| arg == flag && arg.starts_with("--")) {
            changed.drain(at..at + 2);
        }
    };
    remove(&mut changed, removed.trim_matches('`'));
    for setting in settings.split(" and ") {
        let (flag, value) = setting.split_once(' ').unwrap_or_else(|| panic!("{args:?}: {offer}"));
        assert!(flag.starts_with("--"), "{args:?}: {offer}");
        remove(&mut changed, flag);
        changed.extend([flag.to_owned(), value.to_owned()]);
    }
    changed
}

#[test]
fn the_fix_of_a_flag_can_be_typed() {
    let values =
        ["", "0s", "x", "30", "8760000h", "1s,1s,1s", "30s,5s", "150%", "a b", "1.2.3.4:80", "kafka"];
    let flags = [
        "--engine",
        "--dir",
        "--listen",
        "--name",
        "--source",
        "--sink-url",
        "--profile",
        "--mode",
        "--tiers",
        "--backoff-base",
        "--backoff-cap",
        "--backoff-fixed",
        "--jitter",
        "--classify",
        "--ordering",
        "--timeout",
        "--ttl",
        "--start",
        "--topics",
        "--only",
        "--group",
        "--member",
        "--brokers",
    ];
    for flag in flags {
        for value in values {
            let args = vec![flag.to_owned(), value.to_owned()];
            let found = faults(&args);
            // If something is wrong with the flag itself, take that fault first.
            let about = |fault: &&Fault| fault.problem.contains(&format!("`{flag}"));
            let Some(fault) = found.iter().find(about) else { continue };
            for offer in fault.fix.split(", or ").filter(|offer| !offer.is_empty()) {
                if offer.starts_with("remove `") || offer.starts_with("write it like ") {
                    continue;
                }
                let again = faults(&changed(&args, offer));
                let again = again.iter().find(|again| again.problem == fault.problem);
                assert!(again.is_none(), "{args:?}: {offer} gave {again:?}");
            }
        }
    }
}
