//! `make lab-alert` in its quick form: a real Prometheus scrapes a processor and evaluates every rule of deploy/alerts.

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_real_prometheus_scrapes_a_processor_and_evaluates_every_shipped_rule() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        println!("skipped: prometheus is not installed; make tools installs it");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/burn-rate.sh");
    let ran = Command::new(script)
        .env("REDRIVE_BIN", env!("CARGO_BIN_EXE_redrive"))
        .env("REDRIVE_BURN_QUICK", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (shown, faults) = (text(&ran.stdout), text(&ran.stderr));
    assert!(ran.status.success(), "{shown}{faults}");
    assert!(shown.contains("rules are evaluated and the series are there"), "{shown}{faults}");
}
