//! Exposed secrets: in `config show`, in world-readable files, in guessable tokens.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn token(file: &str) -> String {
    format!("[[server.token]]\nname = \"ops\"\nscopes = [\"read\"]\nsecret_file = \"{file}\"\n")
}

fn write(dir: &std::path::Path, name: &str, text: &str, mode: u32) {
    fs::write(dir.join(name), text).unwrap();
    fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn every_file_with_a_secret_that_everybody_may_read_is_warned_of() {
    let text = format!(
        "{}{ORDERS}headers = {{ x-key_file = \"header\" }}\n\
         [[alert]]\nwebhook = \"https://chat.example.com/hunter2\"\nheaders = {{ authorization_file = \"alert\" }}\n",
        token("ops")
    );
    let dir = with_config(&text);
    let files = ["ops", "header", "alert", "flag"];
    for (mode, warned) in [(0o644, true), (0o602, true), (0o640, false), (0o600, false)] {
        files.iter().for_each(|name| write(dir.path(), name, "correct-horse-battery", mode));
        for command in [&["config", "check"][..], &["check"]] {
            let ran = redrive(dir.path(), &[command, &["--token-file", "flag"]].concat());
            assert_eq!(ran.code, Some(0), "a warning stops nothing: {}", ran.stderr);
            for name in files {
                let told = ran.stderr.contains(&format!("names {name}, which holds a secret"));
                assert_eq!(told, warned, "{command:?}: {name} with {mode:o}: {}", ran.stderr);
                assert_eq!(ran.stderr.contains(&format!("chmod o-rwx {name}")), warned, "{}", ran.stderr);
            }
            assert!(!ran.stderr.contains("correct-horse"), "{}", ran.stderr);
        }
    }
    // A file without secrets may be world-readable.
    let dir = with_config(&format!("{ORDERS}ca_file = \"ca.pem\"\n"));
    write(dir.path(), "ca.pem", "not a certificate", 0o644);
    assert!(!redrive(dir.path(), &["config", "check"]).stderr.contains("holds a secret"));
}

#[test]
fn two_ways_to_set_the_authorization_are_refused_with_place_and_fix() {
    let text = format!(
        "{ORDERS}headers = {{ authorization_file = \"token\" }}\nauth = {{ kind = \"bearer\", token_file = \"token\" }}\n"
    );
    let dir = with_config(&text);
    write(dir.path(), "token", "correct-horse-battery", 0o600);
    let ran = redrive(dir.path(), &["config", "check"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    for said in [
        "both set the header authorization",
        "redrive.toml:5",
        "; remove `sink.webhook.headers.authorization_file`, or remove `sink.webhook.auth`",
    ] {
        assert!(ran.stderr.contains(said), "{said}\n{}", ran.stderr);
    }
}

#[test]
fn a_password_for_kafka_is_a_secret_too() {
    let text = ORDERS.replace("[[pipeline]]", "[engine]\nkind = \"kafka\"\nbrokers = [\"k:9092\"]\ngroup = \"g\"\nstart = \"latest\"\n[engine.kafka]\n\"sasl.password_file\" = \"password\"\n[[pipeline]]\nsource = \"orders\"");
    let dir = with_config(&text);
    write(dir.path(), "password", "correct-horse-battery", 0o644);
    let ran = redrive(dir.path(), &["config", "check"]);
    assert!(ran.stderr.contains("names password, which holds a secret"), "{}", ran.stderr);
}

#[test]
fn a_token_that_can_be_guessed_is_refused_with_a_way_to_a_better_one() {
    let dir = with_config(&format!("{}{ORDERS}", token("ops")));
    write(dir.path(), "ops", "fifteen-bytes-!", 0o600);
    let ran = redrive(dir.path(), &["config", "check"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("has 15 bytes") && ran.stderr.contains("openssl rand -hex 20"),
        "{}",
        ran.stderr
    );
    write(dir.path(), "ops", "sixteen-bytes--!", 0o600);
    assert_eq!(redrive(dir.path(), &["config", "check"]).code, Some(0));

    let dir = with_config(ORDERS);
    let ran = redrive_with(dir.path(), &["processor"], &[("REDRIVE_TOKEN", "fifteen-bytes-!")]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("has 15 bytes") && !ran.stderr.contains("fifteen"), "{}", ran.stderr);
}

#[test]
fn the_address_of_a_chat_service_is_not_shown() {
    let text = format!("{ORDERS}[[alert]]\nwebhook = \"https://chat.example.com/hooks/T0/hunter2\"\n");
    let dir = with_config(&text);
    for command in
        [&["config", "show"][..], &["config", "show", "--origin"], &["config", "show", "--json"], &["check"]]
    {
        let ran = redrive(dir.path(), command);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("hunter2"), "{command:?}: {}", ran.stdout);
    }
    assert!(
        redrive(dir.path(), &["config", "show"]).stdout.contains("webhook = \"https://chat.example.com/…\"")
    );
}

#[test]
fn who_may_read_is_said_in_one_word() {
    let server = |line: &str| format!("[server]\n{line}\n{ORDERS}");
    assert_eq!(config(&server("")).server.reads, Reads::Auto);
    assert_eq!(config(&server("reads = \"auto\"")).server.reads, Reads::Auto);
    assert_eq!(config(&server("reads = \"token\"")).server.reads, Reads::Token);
    assert_eq!(config(&server("reads = \"open\"")).server.reads, Reads::Open);
    assert!(wrong(&server("reads = \"nobody\"")).contains("is not one of auto, token, open"));
    let open = format!("[server]\nreads = \"open\"\n{}{ORDERS}", token("ops"));
    assert!(report(&loaded(&open).faults).contains("shows payloads, metrics and actions to every client"));
    let dir = with_config(&server("reads = \"open\""));
    assert!(redrive(dir.path(), &["config", "show"]).stdout.contains("reads = \"open\""));
}
