//! Runs a jq program in a separate process, which is killed if a letter takes too much time or memory.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::jq_worker::{Answer, MEMORY_BYTES_MAX, Order};
use crate::exit::{Exit, Failed};

/// The time limit of the program for one letter.
const LETTER_TIME_MAX: Duration = Duration::from_secs(10);
/// How much is read of the process's stderr when it ends.
const LAST_WORDS_BYTES_MAX: u64 = 4 * 1024;
const NOTHING_CHANGED: &str = "nothing was changed";

/// A parsed jq program in its process, ready to run.
#[derive(Debug)]
pub struct JqProcess {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl JqProcess {
    /// Starts the process and sends it the program.
    pub async fn start(code: &str) -> Result<Self, Failed> {
        let failed = |error| Failed::new(Exit::Storage, format!("the jq program cannot be started: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(program)
            .args(["dlq", "jq-worker"])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failed::new(Exit::Storage, "the jq program cannot be started"));
        };
        let mut process = Self { child, orders, answers: BufReader::new(answers) };
        match process.ask(&Order::Program(code.to_owned()), "when it was read").await? {
            Answer::Unreadable(why) => {
                Err(Failed::usage(format!("--jq: {why}")).hint("write it like '.currency |= ascii_upcase'"))
            }
            _ => Ok(process),
        }
    }

    /// The new payload for this one, or why there is none; `None` if the program changes nothing. Fails if the program
    /// exceeds its limits.
    pub async fn apply(
        &mut self,
        letter: &str,
        payload: &str,
    ) -> Result<Result<Option<String>, String>, Failed> {
        match self.ask(&Order::Payload(payload.to_owned()), &format!("for letter {letter}")).await? {
            Answer::Made(new) => Ok(Ok(new)),
            Answer::Refused(why) | Answer::Unreadable(why) => Ok(Err(why)),
            Answer::Ready => Ok(Ok(None)),
        }
    }

    async fn ask(&mut self, order: &Order, when: &str) -> Result<Answer, Failed> {
        match tokio::time::timeout(LETTER_TIME_MAX, self.answer(order)).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(self.ended(when).await),
            Err(_) => {
                let message =
                    format!("the jq program ran for more than {} s {when}", LETTER_TIME_MAX.as_secs());
                Err(Failed::new(Exit::Bad, message).hint(NOTHING_CHANGED))
            }
        }
    }

    /// Sends an order and reads the answer, whose size is limited; `None` if the process has ended.
    async fn answer(&mut self, order: &Order) -> Option<Answer> {
        let line = serde_json::to_string(order).ok()? + "\n";
        self.orders.write_all(line.as_bytes()).await.ok()?;
        self.orders.flush().await.ok()?;
        let mut answer = String::new();
        (&mut self.answers).take(MEMORY_BYTES_MAX).read_line(&mut answer).await.ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// Why the process ended, from the runtime's last message on stderr.
    async fn ended(&mut self, when: &str) -> Failed {
        let mut words = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let read = async {
                let _ = stderr.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut words).await;
            };
            let _ = tokio::time::timeout(LETTER_TIME_MAX, read).await;
        }
        let words = String::from_utf8_lossy(&words);
        let why = if words.contains("overflowed its stack") {
            "the jq program calls itself too deeply, or gives a value that is nested too deeply,".to_owned()
        } else if words.contains("memory allocation") {
            format!("the jq program needs more than {} MB of memory", MEMORY_BYTES_MAX >> 20)
        } else {
            "the jq program ended".to_owned()
        };
        Failed::new(Exit::Bad, format!("{why} {when}")).hint(NOTHING_CHANGED)
    }
}
