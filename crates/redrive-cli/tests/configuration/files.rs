//! The configuration file and the files it names, with the binary.

use super::*;

#[test]
fn the_file_is_found_by_flag_variable_or_place() {
    let dir = with_config(ORDERS);
    assert_eq!(redrive(dir.path(), &["config", "check"]).code, Some(0));
    fs::rename(dir.path().join("redrive.toml"), dir.path().join("other.toml")).unwrap();
    let ran = redrive(dir.path(), &["config", "check"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("there is no redrive.toml here and no --config"), "{}", ran.stderr);
    assert_eq!(redrive(dir.path(), &["--config", "other.toml", "config", "check"]).code, Some(0));
    let ran = redrive_with(
        dir.path(),
        &["config", "show", "--origin"],
        &[("REDRIVE_CONFIG", "other.toml"), ("REDRIVE_DIR", "d")],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("dir = \"d\"") && ran.stdout.contains("# REDRIVE_DIR"), "{}", ran.stdout);
    assert_eq!(redrive(dir.path(), &["--config", "nowhere.toml", "check"]).code, Some(2));
    fs::write(dir.path().join("bytes.toml"), [0xff, 0xfe]).unwrap();
    let ran = redrive(dir.path(), &["--config", "bytes.toml", "check"]);
    assert!(ran.stderr.contains("not UTF-8"), "{}", ran.stderr);
}

/// `processor` starts with everything that `config check` accepts: each of these once passed the check and then ended
/// with exit code 2.
#[test]
fn what_would_stop_a_processor_is_told_by_the_check() {
    let token = |scopes: &str, file: &str| {
        format!("[[server.token]]\nname = \"ops\"\nscopes = {scopes}\nsecret_file = \"{file}\"\n{ORDERS}")
    };
    let url = |url: &str| ORDERS.replace("http://127.0.0.1:8000/orders", url);
    let read = "[\"read\"]";
    let cases = [
        (ORDERS.replace("\"orders\"", "\"LOCK\""), "`LOCK` has its own meaning in the engine's directory"),
        (token(read, "missing"), "`secret_file = \"missing\"` cannot be used: No such file"),
        (token(read, "empty"), "`secret_file = \"empty\"` cannot be used: the file is empty"),
        (
            token(read, "short"),
            "`secret_file = \"short\"` does not hold a usable secret: the secret of token `ops` has 7 bytes",
        ),
        (token("[]", "good"), "`scopes = []` allows nothing; name some of read"),
        (format!("{ORDERS}headers = {{ x-key_file = \"missing\" }}\n"), "missing: No such file"),
        (format!("{ORDERS}headers = {{ X-Key_file = \"empty\" }}\n"), "empty: the file is empty"),
        (format!("{ORDERS}headers = {{ host = \"hunter2\" }}\n"), "belongs to the connection"),
        (format!("{ORDERS}ca_file = \"missing\"\n"), "`sink.webhook.ca_file` is \"missing\""),
        (format!("{ORDERS}ca_file = \"short\"\n"), "there is no certificate in it"),
        (format!("{ORDERS}timeout = \"2h\"\n"), "`sink.webhook.timeout = \"2h\"` must be at most 1h"),
        (url("http://user:hunter2@127.0.0.1:8000"), "`sink.webhook.url` cannot be used"),
        (url("http://[::1/hunter2"), "`sink.webhook.url` cannot be used"),
        (
            format!("[server]\ntls_cert_file = \"c\"\ntls_key_file = \"k\"\n{ORDERS}"),
            "`tls_cert_file` is \"c\", but",
        ),
    ];
    for (text, problem) in cases {
        let dir = with_config(&text);
        fs::write(dir.path().join("empty"), " \n").unwrap();
        fs::write(dir.path().join("short"), "hunter2").unwrap();
        fs::write(dir.path().join("good"), "correct-horse-battery").unwrap();
        for command in [&["config", "check"][..], &["check"], &["processor"]] {
            let ran = redrive(dir.path(), command);
            assert_eq!(ran.code, Some(2), "{command:?} with\n{text}\n{}{}", ran.stdout, ran.stderr);
            assert!(ran.stderr.contains(problem), "{command:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("redrive.toml:"), "no place in {}", ran.stderr);
            assert!(ran.stderr.contains("1 error"), "{}", ran.stderr);
            assert!(!format!("{}{}", ran.stdout, ran.stderr).contains("hunter2"), "{}", ran.stderr);
        }
    }
}

#[test]
fn faults_of_files_are_told_together_with_those_of_the_text() {
    let text = format!(
        "[[server.token]]\nname = \"ops\"\nscopes = [\"read\"]\nsecret_file = \"missing\"\n\
         {}ca_file = \"none.pem\"\nheaders = {{ x-key_file = \"gone\" }}\n",
        orders_with("jitter = \"fool\"").replace("http://127.0.0.1:8000/orders", "ftp://host")
    );
    let dir = with_config(&text);
    let ran = redrive(dir.path(), &["config", "check", "--json"]);
    let faults: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let faults = faults["faults"].as_array().unwrap_or_else(|| panic!("{faults}"));
    let told: Vec<(&str, u64)> = faults
        .iter()
        .map(|fault| (fault["key"].as_str().unwrap(), fault["line"].as_u64().unwrap()))
        .collect();
    let expected = [
        ("secret_file", 4),
        ("jitter", 7),
        ("sink.webhook.url", 9),
        ("sink.webhook.ca_file", 10),
        ("sink.webhook.headers.x-key_file", 11),
    ];
    assert_eq!(told, expected);
    assert!(faults.iter().all(|fault| fault["fix"].is_string()), "{faults:?}");
}

fn push_sink(kind: &str, lines: &str) -> String {
    format!("[[pipeline]]\nname = \"push\"\nprofile = \"push\"\n[pipeline.sink.{kind}]\n{lines}")
}

/// Once, a missing key was reported together with the emptiness of a file that was not named.
#[test]
fn what_a_push_sink_lacks_is_reported_once_and_nothing_is_made_up() {
    for (kind, lines, missing) in [
        ("apns", "", &["key_file", "key_id", "team_id"][..]),
        ("apns", "key_file = \"k\"\n", &["key_id", "team_id"]),
        ("apns", "certificate_file = \"c\"\n", &["certificate_key_file"]),
        ("apns", "key_file = \"k\"\ncertificate_file = \"c\"\n", &["certificate_file"]),
        ("webpush", "", &["vapid_key_file", "subject"]),
        ("fcm", "", &["service_account_file"]),
        // Given values are checked all the same.
        ("apns", "url = \"http://x\"\nkey_id = \"ABC\"\n", &["key_file", "team_id", "url"]),
    ] {
        let dir = with_config(&push_sink(kind, lines));
        let ran = redrive(dir.path(), &["config", "check", "--json"]);
        assert_eq!(ran.code, Some(2), "{kind} {lines}: {}", ran.stdout);
        let faults: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        let faults = faults["faults"].as_array().unwrap_or_else(|| panic!("{faults}"));
        let mut told: Vec<&str> = faults.iter().map(|fault| fault["key"].as_str().unwrap()).collect();
        told.sort_unstable();
        let mut missing: Vec<String> = missing.iter().map(|key| format!("sink.{kind}.{key}")).collect();
        missing.sort_unstable();
        assert_eq!(told, missing, "{kind} {lines}: {faults:?}");
    }
}

#[test]
fn a_hash_key_that_could_be_guessed_and_an_on_purged_with_a_password_are_refused() {
    let dir = with_config("");
    fs::write(dir.path().join("account.json"), "{}").unwrap();
    fs::write(dir.path().join("hash.key"), "abc").unwrap();
    let sink = "service_account_file = \"account.json\"\nhash_key_file = \"hash.key\"\n";
    fs::write(dir.path().join("redrive.toml"), push_sink("fcm", sink)).unwrap();
    let ran = redrive(dir.path(), &["config", "check"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("has 3 bytes; at least 16 are needed"), "{}", ran.stderr);
    let sink = "service_account_file = \"account.json\"\non_purged = \"https://ops:hunter2@example.com/\"\n";
    fs::write(dir.path().join("redrive.toml"), push_sink("fcm", sink)).unwrap();
    let ran = redrive(dir.path(), &["config", "check"]);
    assert!(ran.stderr.contains("`sink.fcm.on_purged` cannot be used"), "{}", ran.stderr);
    let said = ran.stderr.contains("headers.authorization_file") || ran.stderr.contains("hunter2");
    assert!(!said, "there are no headers of on_purged: {}", ran.stderr);
}

/// A client may be unable to read the secrets of a processor; the address is in the same file.
#[test]
fn a_client_needs_no_file_that_the_configuration_names() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dir = with_config(&format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[[server.token]]\nname = \"ops\"\nscopes = [\"read\"]\n\
         secret_file = \"missing\"\n{ORDERS}"
    ));
    let ran = redrive(dir.path(), &["status"]);
    assert_eq!(ran.code, Some(75), "{}", ran.stderr);
    assert!(ran.stderr.contains(&format!("127.0.0.1:{port}")), "{}", ran.stderr);
    assert!(!ran.stderr.contains("faults"), "{}", ran.stderr);
}
