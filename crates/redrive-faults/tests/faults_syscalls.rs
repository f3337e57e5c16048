//! The Nth system call of a thread fails, or the process is killed at it, for N = 1, 2, 3, … until the workload
//! completes.
//!
//! After a failed write or sync of the journal the process must stop with exit code 74 and acknowledge nothing more;
//! whatever failed, everything acknowledged is found afterwards. Two thirds of the calls create or open an index, so
//! each run has one pipeline and few steps; `REDRIVE_SYSCALLS=long` uses both pipelines, more steps and a directory
//! with more history, which takes about ten times as long.

mod support;

use std::process::Command;
use std::time::Instant;

use redrive_core::SplitMix64;
use redrive_faults::verify::{SeenEffects, copy_dir};
use support::{Rig, Victim};

const SYNCS: &str = "fdatasync,fsync";
const WRITES: &str = "pwrite64";
/// The index and the small files; the acknowledgement file is written with `writev`.
const PLAIN_WRITES: &str = "write";
const NAMES: &str = "openat";
const CUTS: &str = "ftruncate,unlink,rename";

/// How much the victim does.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// The steps that the used directory has seen, and those of a run with a fault.
    used: u64,
    steps: u64,
    /// The pipeline that runs on a used directory, and on a new one; `None`: both pipelines.
    pipelines: Option<[&'static str; 2]>,
}

const SHORT: Size = Size { used: 400, steps: 24, pipelines: Some(["keyed", "plain"]) };
const LONG: Size = Size { used: 3000, steps: 80, pipelines: None };

/// The fault of the Nth call.
#[derive(Debug, Clone, Copy)]
struct Case {
    calls: &'static str,
    fault: &'static str,
    /// Whether it is on a new directory, or on a used one.
    fresh: bool,
}

impl Size {
    fn victim(self, rig: &Rig, fresh: bool, seed: u64, steps: u64) -> Command {
        let mut command = rig.command(seed, steps);
        command.args(self.pipelines.map(|pipelines| pipelines[usize::from(fresh)]));
        command
    }
}

impl Case {
    /// Whether the call fails; otherwise the process is killed at it.
    fn fails(self) -> bool {
        self.fault.starts_with("error")
    }
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
    let size = match std::env::var("REDRIVE_SYSCALLS").as_deref() {
        Ok("long") => LONG,
        Ok(other) => panic!("REDRIVE_SYSCALLS={other}: it is unset, or `long`"),
        Err(_) => SHORT,
    };
    let base = Rig::new();
    Victim::run(&mut size.victim(&base, false, 7, size.used));
    for case in cases {
        let begun = Instant::now();
        let (mut runs, mut stopped, mut n) = (0, 0, 1);
        let mut seen = SeenEffects::default();
        loop {
            let (found, code) = strike(&base, size, *case, n);
            let Some(found) = found else { break };
            seen += found;
            runs += 1;
            stopped += u64::from(code == Some(74));
            n += 1;
        }
        let Case { calls, fault, fresh } = case;
        let place = if *fresh { "a new directory" } else { "a used directory" };
        println!(
            "{calls} {fault} on {place}: {runs} runs up to call {n}, {stopped} stopped; {seen}; {:.1} s",
            begun.elapsed().as_secs_f64()
        );
        assert!(runs > 0, "{case:?} was never hit");
    }
}

/// Makes one run with a fault at the Nth call; `None` once there are fewer calls than that.
fn strike(base: &Rig, size: Size, case: Case, n: u64) -> (Option<SeenEffects>, Option<i32>) {
    let rig = Rig::new();
    if !case.fresh {
        copy_dir(&base.dir, &rig.dir).expect("a copy");
        std::fs::copy(&base.acks, &rig.acks).expect("a copy");
    }
    let log = rig.scratch.0.join("trace");
    let victim = size.victim(&rig, case.fresh, SplitMix64::new(n).draw(), size.steps);
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-y", "-o"]).arg(&log);
    strace.args(["-e", &format!("trace={}", case.calls)]);
    strace.args(["-e", &format!("inject={}:{}:when={n}", case.calls, case.fault)]);
    // It stops only at these calls, which is several times faster; but then strace injects no signals.
    if case.fails() {
        strace.arg("--seccomp-bpf");
    }
    strace.arg(victim.get_program()).args(victim.get_args()).env("RUST_BACKTRACE", "0");
    // Otherwise the loader searches the victim's libraries in all of cargo's directories, and each search is a call.
    strace.env_remove("LD_LIBRARY_PATH");
    let (status, said) = Victim::spawn(&mut strace).wait();
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    let clean =
        std::fs::read_to_string(&rig.acks).unwrap_or_default().ends_with("CLOSED\n") && status.success();
    let struck: Vec<&str> = log.lines().filter(|line| line.contains("INJECTED")).collect();
    if struck.iter().any(|line| line.contains("/acks\"")) {
        // The acknowledgement file belongs to the test: without it nothing was begun.
        return (Some(SeenEffects::default()), status.code());
    }
    let what = format!("{case:?} at {n}: {status}, {said}\nstruck: {struck:#?}");
    if case.fails() {
        let journal = struck.iter().any(|line| changes_the_journal(line));
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
        Victim::run(&mut size.victim(&rig, case.fresh, n, 20));
        rig.check(false, &format!("working on after {what}"));
    }
    (Some(seen), status.code())
}

/// Whether the call changes the journal. An existing segment that is only opened for reading may be opened a second
/// time.
fn changes_the_journal(call: &str) -> bool {
    let reads = call.contains("openat(") && !call.contains("O_CREAT");
    !reads && (call.contains("/journal/j-") || call.contains("/journal/l-"))
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
