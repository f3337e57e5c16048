//! Precedence of flags, variables and the file.

use super::*;

#[test]
fn flags_go_over_variables_over_the_file_over_defaults() {
    let text = format!(
        "[engine]\ndir = \"file\"\n[server]\nlisten = \"127.0.0.1:1\"\n{}",
        orders_with("tiers = [\"1s\"]")
    );
    let environment = Environment {
        dir: Some("variable".to_owned()),
        listen: Some("127.0.0.1:2".to_owned()),
        ..Environment::default()
    };
    let flags = flags(&["--listen", "127.0.0.1:3", "--backoff-base", "2s", "--max-retries", "9"]);
    let config = loaded_with(&text, &flags, &environment).config.unwrap();
    assert_eq!(config.engine.dir.to_str(), Some("variable"));
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(
        config.pipelines[0].policy.retries(),
        9,
        "the flag's backoff took the place of the file's tiers"
    );
    let shown: Vec<String> = config.resolved().iter().flat_map(|table| table.text(true)).collect();
    for (setting, origin) in [
        ("kind = ", "# default"),
        ("dir = ", "# REDRIVE_DIR"),
        ("listen = ", "# --listen"),
        ("backoff = ", "# --backoff-base"),
        ("retries = ", "# --max-retries"),
        ("name = ", "# redrive.toml:6"),
        ("jitter = ", "# profile tiered"),
    ] {
        let line = shown.iter().find(|line| line.starts_with(setting)).unwrap();
        assert!(line.ends_with(origin), "{line}");
    }
}

#[test]
fn a_pipeline_from_flags_goes_through_the_same_validator_and_its_faults_name_the_flag() {
    let right = flags(&[
        "--mode",
        "blocking",
        "--max-retries",
        "3",
        "--tiers",
        "5s,30s,5m",
        "--jitter",
        "full",
        "--classify",
        "off",
        "--ordering",
        "key",
        "--sink-url",
        "http://127.0.0.1:8000/",
    ]);
    let loaded = load::build(None, &right, &Environment::default());
    let config = loaded.config.unwrap();
    assert_eq!((config.pipelines[0].name.as_str(), config.pipelines[0].policy.retries()), ("default", 3));

    let mistaken = flags(&[
        "--tiers",
        "30s,5s",
        "--max-retries",
        "7",
        "--jitter",
        "fool",
        "--sink-url",
        "x",
        "--listen",
        "?",
    ]);
    let told = report(&load::build(None, &mistaken, &Environment::default()).faults);
    for said in [
        "`--tiers` must grow: 5s comes after 30s; --tiers 5s,30s",
        "both `--max-retries 7` and 2 tiers are set; 2 tiers allow at most 2 retries",
        "`--jitter fool` is not a jitter",
        "`--sink-url` must begin with http:// or https://",
        "`--listen ?` is not an IP address with a port",
        "5 errors.",
    ] {
        assert!(told.contains(said), "{said}\n{told}");
    }
    let both = flags(&["--tiers", "5s", "--backoff-base", "1s", "--sink-url", "http://h/"]);
    let told = report(&load::build(None, &both, &Environment::default()).faults);
    assert!(told.contains("both `--tiers` and `backoff` are set"), "{told}");
}

#[test]
fn flags_over_a_file_with_several_pipelines_need_a_name() {
    let two = format!("{ORDERS}{}", ORDERS.replace("orders", "push"));
    let told = report(&loaded_with(&two, &flags(&["--jitter", "full"]), &Environment::default()).faults);
    assert!(told.contains("the file has 2 pipelines; choose one with `--name`"), "{told}");
    let named = flags(&["--jitter", "full", "--name", "push"]);
    let config = loaded_with(&two, &named, &Environment::default()).config.unwrap();
    let jitters: Vec<String> = config.pipelines.iter().map(|p| p.policy.jitter().to_string()).collect();
    assert_eq!(jitters, ["equal", "full"]);
    let strange = flags(&["--jitter", "full", "--name", "nobody"]);
    let told = report(&loaded_with(&two, &strange, &Environment::default()).faults);
    assert!(told.contains("the file has no pipeline `nobody`"), "{told}");
}

/// A filter may begin with a minus, which means "not".
#[test]
fn a_filter_that_begins_with_not_is_a_filter_and_no_flag() {
    use clap::Parser as _;
    for command in ["inspect", "replay", "export"] {
        let parsed =
            redrive_cli::Cli::try_parse_from(["redrive", "dlq", command, "orders", "--filter", "-key:acme"]);
        assert!(parsed.is_ok(), "{command}: {}", parsed.unwrap_err());
    }
}
