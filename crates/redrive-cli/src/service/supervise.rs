//! A processor that supervises itself: the supervisor only starts a worker with the same arguments, forwards signals to
//! it, and restarts it when it dies.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use redrive_core::duration::print;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::oom_kills;
use super::restarts::{End, Next, Restarts};
use crate::exit::{Exit, Failed};

/// The flag for a supervisor, and the hidden one that its worker gets instead.
pub const FLAG: &str = "--supervise";
pub const WORKER_FLAG: &str = "--worker-of";

/// Signals that are forwarded. All except [`RELOAD`] request shutdown, after which the worker is not restarted.
const PASSED_ON: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];
/// Asks the worker to reload.
const RELOAD: Signal = Signal::HUP;
/// A worker that ignored this many signals is killed at the next one.
const ASKED_MAX: usize = 2;

/// Supervises until the worker ends in a way that a restart cannot fix, or a signal requests shutdown. Returns the exit
/// code.
pub fn supervise() -> Result<u8, Failed> {
    let failed = |error: std::io::Error| Failed::new(Exit::Storage, format!("no supervisor: {error}"));
    // The kernel signals the worker when the thread that started it dies, so it has to be this thread, which lives to
    // the end.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let mut signals = listen().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut restarts = Restarts::default();
        loop {
            let worker = match start(&program) {
                Ok(worker) => worker,
                Err(error) => {
                    let Some(after) = restarts.not_started() else { return Err(failed(error)) };
                    tracing::error!(%error, try_again_in = print(after), "no worker could be started");
                    if wait(after, &mut signals).await {
                        return Ok(Exit::Ok.code());
                    }
                    continue;
                }
            };
            let (began, oom_kills) = (Instant::now(), oom_kills::count());
            tracing::info!(worker = worker.id(), "worker started");
            let (end, asked) = follow(worker, &mut signals).await.map_err(failed)?;
            if asked {
                tracing::info!(%end, "worker ended, as asked");
                return Ok(end.code());
            }
            let ran = print(began.elapsed());
            match restarts.next(end, began.elapsed()) {
                Next::Leave(code) => {
                    tracing::warn!(%end, ran, "worker ended and is not started again");
                    return Ok(code);
                }
                Next::Restart { after } => {
                    let counted = oom_kills.zip(oom_kills::count());
                    let by = end.by(counted.map(|(before, now)| now > before));
                    tracing::error!(%end, by, ran, restart_in = print(after), "worker died");
                    if wait(after, &mut signals).await {
                        return Ok(Exit::Ok.code());
                    }
                }
            }
        }
    })
}

/// Waits; returns whether a signal requested shutdown meanwhile. There is no worker to forward it to.
async fn wait(after: Duration, signals: &mut mpsc::Receiver<Signal>) -> bool {
    let over = tokio::time::sleep(after);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => return false,
            // The next worker loads everything anyway.
            signal = signals.recv() => if signal != Some(RELOAD) { return true },
        }
    }
}

/// Receives every forwarded signal.
fn listen() -> std::io::Result<mpsc::Receiver<Signal>> {
    let (sender, signals) = mpsc::channel(8);
    for passed in PASSED_ON {
        let mut stream = signal(SignalKind::from_raw(passed.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                // A full channel already holds eight signals.
                let _ = sender.try_send(passed);
            }
        });
    }
    Ok(signals)
}

fn start(program: &std::path::Path) -> std::io::Result<Child> {
    Command::new(program)
        .args(worker_args(std::env::args_os().skip(1), std::process::id()))
        .stdin(Stdio::null())
        // In the terminal's process group it would get ^C twice, from the terminal and from us, which means to end
        // immediately.
        .process_group(0)
        .spawn()
}

/// The same arguments, for a worker.
fn worker_args(args: impl Iterator<Item = OsString>, supervisor: u32) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.filter(|arg| arg != FLAG).collect();
    args.extend([WORKER_FLAG.into(), supervisor.to_string().into()]);
    args
}

/// Waits for the worker's end and forwards signals; returns whether any of them requested it.
async fn follow(mut worker: Child, signals: &mut mpsc::Receiver<Signal>) -> std::io::Result<(End, bool)> {
    let pid = worker.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let mut asked = 0;
    loop {
        tokio::select! {
            status = worker.wait() => return Ok((end_of(status?), asked > 0)),
            Some(signal) = signals.recv() => {
                asked += usize::from(signal != RELOAD);
                let signal = if asked > ASKED_MAX { Signal::KILL } else { signal };
                // It may have ended just now, which the next round detects.
                let _ = pid.map(|pid| kill_process(pid, signal));
            }
        }
    }
}

fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Code(code as u8),
        (None, signal) => End::Signal(signal.unwrap_or_default() as u8),
    }
}

/// For the worker: makes it end with its supervisor, even if that is killed. Returns whether the supervisor is still
/// there.
pub fn end_with(supervisor: u32) -> bool {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    rustix::process::getppid()
        .is_some_and(|parent| parent.as_raw_nonzero().get().cast_unsigned() == supervisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_the_same_arguments_and_is_no_supervisor() {
        let args = ["processor", "--supervise", "--dir", "store"].map(OsString::from);
        let expected = ["processor", "--dir", "store", "--worker-of", "42"].map(OsString::from);
        assert_eq!(worker_args(args.into_iter(), 42), expected);
    }
}
