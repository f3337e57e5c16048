//! Common first mistakes: the answer says what to do.

mod support;

use std::net::TcpListener;

use support::{ORDERS, redrive, redrive_with, with_config};

#[test]
fn a_port_in_use_names_the_flag_that_chooses_another() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir =
        with_config(&format!("[engine]\nkind = \"memory\"\n[server]\nlisten = \"{address}\"\n{ORDERS}"));
    let ran = redrive(dir.path(), &["processor"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains(&address) && ran.stderr.contains("--listen"), "{}", ran.stderr);
}

#[test]
fn a_journal_that_nobody_named_says_how_to_name_it() {
    let dir = tempfile::tempdir().unwrap();
    let ran = redrive(dir.path(), &["journal"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("redrive journal DIR"), "{}", ran.stderr);
}

#[test]
fn a_token_from_a_file_is_enough_to_listen_beyond_loopback() {
    // An address of another machine, so that listening fails.
    let listen = "192.0.2.1:7333";
    let dir = with_config(&format!("[engine]\nkind = \"memory\"\n[server]\nlisten = \"{listen}\"\n{ORDERS}"));
    let ran = redrive(dir.path(), &["processor"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("--token-file") && !ran.stderr.contains("cannot listen"), "{}", ran.stderr);
    std::fs::write(dir.path().join("token"), "a-secret-of-some-length\n").unwrap();
    for (args, variables) in [
        (&["processor", "--token-file", "token"][..], &[][..]),
        (&["processor"], &[("REDRIVE_TOKEN", "a-secret-of-some-length")]),
    ] {
        let ran = redrive_with(dir.path(), args, variables);
        assert!(ran.stderr.contains(&format!("cannot listen on {listen}")), "{}", ran.stderr);
        assert!(ran.stderr.contains("this machine has no such address"), "{}", ran.stderr);
        assert!(!ran.stderr.contains("another process"), "{}", ran.stderr);
    }
}
