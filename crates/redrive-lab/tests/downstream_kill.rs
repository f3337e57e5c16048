//! The file ledger survives `kill -9` of a real process with every id it confirmed.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use redrive_lab::downstream::ledger::Ledger;
use redrive_lab::downstream::{LedgerFault, LedgerOptions};

const PATH: &str = "REDRIVE_LAB_KILLED_LEDGER";
const CONFIRMED: &str = "confirmed ";

/// The process to kill: this test binary again, with the path set. Without the path the test does nothing.
#[tokio::test]
async fn a_process_that_applies_until_it_is_killed() {
    let Ok(path) = std::env::var(PATH) else { return };
    let options = LedgerOptions::File(path.into());
    let ledger = loop {
        match Ledger::open(&options).await {
            // The parent may still have the ledger open; wait until it releases the lock.
            Err(LedgerFault::Locked { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            opened => break opened.unwrap(),
        }
    };
    let from = ledger.count().await.unwrap();
    for n in from.. {
        let id = format!("o-{n}");
        ledger.apply(&id).await.unwrap();
        // Bypasses the test harness's output capture: the parent must read it at once.
        writeln!(std::io::stderr(), "{CONFIRMED}{id}").unwrap();
    }
}

#[tokio::test]
async fn what_a_killed_process_has_confirmed_is_in_its_ledger() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("applied");
    let mut confirmed = HashSet::new();
    for round in 1..=5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_that_applies_until_it_is_killed", "--nocapture"])
            .env(PATH, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let mut read = 0;
        for line in lines {
            // Skips other output, and a line that the kill cut short.
            let Some(id) = line.strip_prefix(CONFIRMED) else { continue };
            confirmed.insert(id.to_owned());
            read += 1;
            if read == 40 * round {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(read >= 40 * round, "round {round}: the process ended by itself");

        let ledger = Ledger::open(&LedgerOptions::File(path.clone())).await.unwrap();
        for id in &confirmed {
            assert!(ledger.contains(id).await.unwrap(), "round {round}: {id} was confirmed and is gone");
        }
    }
}
