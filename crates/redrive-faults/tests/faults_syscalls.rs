//! The Nth system call fails or is the last one, for N = 1, 2, 3, … until the workload gets through.
//!
//! After a failed write or sync of the journal the process must stop with exit code 74 and acknowledge nothing more;
//! whatever failed, what was acknowledged is there afterwards. `REDRIVE_SYSCALLS=all` leaves out no N.

mod support;

use std::process::Command;

use redrive_faults::plan::Random;
use redrive_faults::verify::{Seen, copy_dir};
use support::{Rig, Victim};

const STEPS: u64 = 80;
const SYNCS: &str = "fdatasync,fsync";
const WRITES: &str = "pwrite64";
/// The index and the small files; the file of acknowledgements is written with `writev`.
const PLAIN_WRITES: &str = "write";
const NAMES: &str = "openat";
const CUTS: &str = "ftruncate,unlink,rename";

/// What is done to the Nth call.
#[derive(Debug, Clone, Copy)]
struct Case {
    calls: &'static str,
    fault: &'static str,
    /// On a new directory, or on one that has seen work.
    fresh: bool,
}

#[test]
fn a_failing_call_stops_the_store_and_loses_nothing() {
    let case = |calls, fault, fresh| Case { calls, fault, fresh };
    run(&[
        case(SYNCS, "error=EIO", false),
        case(SYNCS, "error=EIO", true),
        case(WRITES, "error=EIO", false),
        case(WRITES, "error=ENOSPC", false),
        case(PLAIN_WRITES, "error=ENOSPC", false),
        case(NAMES, "error=EIO", false),
        case(NAMES, "error=EMFILE", true),
        case(CUTS, "error=EIO", false),
        case(CUTS, "error=EIO", true),
    ]);
}

#[test]
fn a_kill_at_any_call_loses_nothing() {
    let case = |calls, fresh| Case { calls, fault: "signal=SIGKILL", fresh };
    run(&[
        case(SYNCS, false),
        case(SYNCS, true),
        case(WRITES, false),
        case(WRITES, true),
        case(PLAIN_WRITES, false),
        case(NAMES, false),
        case(CUTS, false),
        case(CUTS, true),
    ]);
}

fn run(cases: &[Case]) {
    if !can_trace() {
        return;
    }
    let all = std::env::var("REDRIVE_SYSCALLS").is_ok_and(|value| value == "all");
    let base = Rig::new();
    base.work(7, 3000);
    for case in cases {
        let (mut runs, mut stopped, mut n) = (0, 0, 1);
        let mut seen = Seen::default();
        loop {
            let (found, code) = strike(&base, *case, n);
            let Some(found) = found else { break };
            seen += found;
            runs += 1;
            stopped += u64::from(code == Some(74));
            n += if all { 1 } else { 1 + n / 2 };
        }
        let Case { calls, fault, fresh } = case;
        let place = if *fresh { "a new directory" } else { "a used directory" };
        println!("{calls} {fault} on {place}: {runs} runs up to call {n}, {stopped} stopped; {seen}");
        assert!(runs > 0, "{case:?} was never hit");
    }
}

/// One run with the Nth call struck; `None` once there are fewer calls than that.
fn strike(base: &Rig, case: Case, n: u64) -> (Option<Seen>, Option<i32>) {
    let rig = Rig::new();
    if !case.fresh {
        copy_dir(&base.dir, &rig.dir).expect("a copy");
        std::fs::copy(&base.acks, &rig.acks).expect("a copy");
    }
    let log = rig.scratch.0.join("trace");
    let victim = rig.command("strace", Random::new(n).next(), STEPS);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-y", "-o"]).arg(&log);
    strace.args(["-e", &format!("trace={}", case.calls)]);
    strace.args(["-e", &format!("inject={}:{}:when={n}", case.calls, case.fault)]);
    strace.args(victim.get_args()).env("RUST_BACKTRACE", "0");
    let (status, said) = Victim::spawn(&mut strace).wait();
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    let clean =
        std::fs::read_to_string(&rig.acks).unwrap_or_default().ends_with("CLOSED\n") && status.success();
    let struck: Vec<&str> = log.lines().filter(|line| line.contains("INJECTED")).collect();
    let what = format!("{case:?} at {n}: {status}, {said}\nstruck: {struck:#?}");
    if case.fault.starts_with("error") {
        let journal = struck.iter().any(|line| line.contains("/journal/j-") || line.contains("/journal/l-"));
        let code = status.code();
        assert!(code == Some(74) || (code == Some(0) && !journal), "it must stop with 74: {what}");
        if struck.is_empty() {
            return (None, code);
        }
    } else if clean {
        return (None, Some(0));
    }
    let seen = rig.check(!clean, &what);
    if n.is_multiple_of(3) {
        rig.work(n, 20);
        rig.check(false, &format!("working on after {what}"));
    }
    (Some(seen), status.code())
}

fn can_trace() -> bool {
    let probe = Command::new("strace").args(["-f", "-qq", "-o", "/dev/null", "true"]).output();
    match probe {
        Err(error) => panic!("strace cannot be started ({error}): install the package `strace`"),
        Ok(output) if !output.status.success() => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("skipped: this system does not permit ptrace: {}", said.trim());
            false
        }
        Ok(_) => true,
    }
}
