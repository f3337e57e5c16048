//! The process that runs a jq program. The interpreter has no limits of its own: memory, stack and time are limited for
//! the process, and when one of them is used up, only this process ends and not the command that started it.

use std::io::{self, BufRead as _, Write as _};

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use serde::{Deserialize, Serialize};

use super::jq::JqProgram;
use crate::exit::{Exit, Failed};

/// The memory limit of the process, including its code.
pub(super) const MEMORY_BYTES_MAX: u64 = 768 << 20;
/// Enough for the deepest nesting of JSON that is accepted here, and for a program of ordinary depth.
const STACK_BYTES: usize = 32 << 20;

/// An order to the process, one per line. The program comes first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    Program(String),
    Payload(String),
}

/// An answer of the process, one per line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Ready,
    /// The program cannot be parsed, and why.
    Unreadable(String),
    /// The new payload; `None` if the program changes nothing.
    Made(Option<String>),
    /// There is no new payload, and why.
    Refused(String),
}

/// Carries out the orders on stdin.
pub fn run() -> Result<Exit, Failed> {
    let most = Rlimit { current: Some(MEMORY_BYTES_MAX), maximum: Some(MEMORY_BYTES_MAX) };
    setrlimit(Resource::As, most).map_err(io::Error::from)?;
    // If the command is killed, its program must not go on running.
    #[cfg(target_os = "linux")]
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    let thread = std::thread::Builder::new().name("jq".to_owned()).stack_size(STACK_BYTES).spawn(serve)?;
    match thread.join() {
        Ok(served) => served.map(|()| Exit::Ok).map_err(Failed::from),
        Err(_) => Err(Failed::new(Exit::Bad, "the jq program failed")),
    }
}

fn serve() -> io::Result<()> {
    let (mut program, mut out) = (None, io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let answer = match serde_json::from_str(&line?)? {
            Order::Program(code) => match JqProgram::parse(&code) {
                Ok(read) => {
                    program = Some(read);
                    Answer::Ready
                }
                Err(why) => Answer::Unreadable(why),
            },
            Order::Payload(payload) => match program.as_ref().map(|program| program.apply(&payload)) {
                Some(Ok(new)) => Answer::Made(new),
                Some(Err(why)) => Answer::Refused(why),
                None => Answer::Refused("there is no program".to_owned()),
            },
        };
        writeln!(out, "{}", serde_json::to_string(&answer)?)?;
        out.flush()?;
    }
    Ok(())
}
