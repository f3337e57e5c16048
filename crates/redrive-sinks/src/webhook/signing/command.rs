//! A command that provides the signing secrets of endpoints: it runs with the endpoint as its last argument, and its
//! output is cached for a while.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::keyring::Keyring;
use crate::fault::SinkFault;

/// The maximum number of endpoints in the cache.
const REMEMBERED_MAX: usize = 10_000;
/// How long an answer is cached: a new secret is in use after this time.
const FRESH_FOR: Duration = Duration::from_mins(5);
/// How long a failure is cached, so that a failing command does not run for every message.
const FAILED_FOR: Duration = Duration::from_secs(5);
/// The time limit of one run.
const RUN_MAX: Duration = Duration::from_secs(10);
/// The maximum number of concurrent runs.
const RUNNING_MAX: usize = 4;
const OUTPUT_BYTES_MAX: u64 = 64 * 1024;

/// `None` if the command has no secret for this endpoint.
type Answer = Option<Arc<Keyring>>;

#[derive(Debug)]
pub(super) struct SecretCommand {
    program: Vec<String>,
    remembered: Mutex<HashMap<Box<str>, Remembered>>,
    running: Semaphore,
}

#[derive(Clone, Debug)]
struct Remembered {
    answer: Result<Answer, String>,
    until: Instant,
}

impl SecretCommand {
    /// Creates the cache; `None` without a command.
    pub(super) fn of(program: &[String]) -> Result<Option<Self>, SinkFault> {
        let Some(first) = program.first() else { return Ok(None) };
        let path = Path::new(first);
        let key = "endpoint_secret_command";
        if first.is_empty() {
            let fix = "endpoint_secret_command = [\"/usr/local/bin/endpoint-secret\"]";
            return Err(SinkFault::of(key, first, format!("`{key}` names no program"), fix));
        }
        if path.is_absolute() && !path.is_file() {
            let problem = format!("`{key}` names {first:?}, and there is no such file");
            return Err(SinkFault::of(key, first, problem, "correct its path"));
        }
        let (remembered, running) = (Mutex::default(), Semaphore::new(RUNNING_MAX));
        Ok(Some(Self { program: program.to_vec(), remembered, running }))
    }

    /// The secrets of an endpoint, cached or fetched; or why there are none.
    pub(super) async fn secrets(&self, endpoint: &str) -> Result<Answer, String> {
        if let Some(answer) = self.remembered(endpoint, Instant::now()) {
            return answer;
        }
        let _turn = self.running.acquire().await.map_err(|_| "it is not run any more".to_owned())?;
        // Another call may have fetched the same endpoint meanwhile.
        if let Some(answer) = self.remembered(endpoint, Instant::now()) {
            return answer;
        }
        let answer = match timeout(RUN_MAX, self.run(endpoint)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("it was ended after {} seconds", RUN_MAX.as_secs())),
        };
        self.remember(endpoint, answer, Instant::now())
    }

    async fn run(&self, endpoint: &str) -> Result<Answer, String> {
        let [program, arguments @ ..] = &self.program[..] else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(arguments).arg(endpoint);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("it cannot be started: {error}"))?;
        let mut output = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let read = stdout.take(OUTPUT_BYTES_MAX + 1).read_to_end(&mut output).await;
            read.map_err(|error| format!("its output cannot be read: {error}"))?;
        }
        if output.len() as u64 > OUTPUT_BYTES_MAX {
            return Err(format!("it prints more than {OUTPUT_BYTES_MAX} bytes"));
        }
        let status = child.wait().await.map_err(|error| format!("cannot wait for it: {error}"))?;
        if !status.success() {
            return Err(format!("it ended with {status}"));
        }
        let text = str::from_utf8(&output).map_err(|_| "its output is not UTF-8".to_owned())?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        Keyring::parse(text).map(|ring| Some(Arc::new(ring))).map_err(|fault| format!("its output, {fault}"))
    }

    fn remembered(&self, endpoint: &str, now: Instant) -> Option<Result<Answer, String>> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(endpoint).filter(|known| now < known.until).map(|known| known.answer.clone())
    }

    /// Caches an answer. After a failure an earlier good answer stays in use, and the log says so.
    fn remember(
        &self,
        endpoint: &str,
        answer: Result<Answer, String>,
        now: Instant,
    ) -> Result<Answer, String> {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED_MAX && !remembered.contains_key(endpoint) {
            remembered.retain(|_, known| now < known.until);
            let oldest = remembered.iter().min_by_key(|(_, known)| known.until).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest.filter(|_| remembered.len() >= REMEMBERED_MAX) {
                remembered.remove(&oldest);
            }
        }
        let held_for = if answer.is_ok() { FRESH_FOR } else { FAILED_FOR };
        let before = remembered.get(endpoint).map(|known| known.answer.clone());
        let answer = match (answer, before) {
            (Err(problem), Some(before @ Ok(_))) => {
                tracing::warn!(
                    target: "redrive::sink",
                    "the command for the signing secrets of endpoints failed, its previous output stays in force: {problem}"
                );
                before
            }
            (answer, _) => answer,
        };
        remembered.insert(endpoint.into(), Remembered { answer: answer.clone(), until: now + held_for });
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_b25lb25lb25lb25lb25lb25lb25lb25l";

    /// A shell command; the endpoint is `$0`.
    fn shell(script: &str) -> SecretCommand {
        SecretCommand::of(&["sh", "-c", script].map(str::to_owned)).unwrap().unwrap()
    }

    #[tokio::test]
    async fn an_endpoint_is_asked_for_once_and_each_has_its_own_answer() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script =
            format!("echo \"$0\" >> {}; case \"$0\" in *none*) ;; *) echo {SECRET};; esac", log.display());
        let command = shell(&script);
        for _ in 0..3 {
            assert!(command.secrets("https://a.example/").await.unwrap().is_some());
            assert!(command.secrets("https://none.example/").await.unwrap().is_none());
        }
        let asked = std::fs::read_to_string(&log).unwrap();
        assert_eq!(asked, "https://a.example/\nhttps://none.example/\n");
    }

    #[tokio::test]
    async fn whatever_is_wrong_with_the_command_is_named_and_its_output_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("nowhere").display().to_string();
        let fault = SecretCommand::of(&[nowhere]).unwrap_err();
        assert_eq!(fault.key, "endpoint_secret_command");
        let problem = async |script: &str| shell(script).secrets("https://a.example/").await.unwrap_err();
        assert_eq!(problem("echo hunter2; exit 3").await, "it ended with exit status: 3");
        let bad = problem("echo hunter2").await;
        assert!(bad.starts_with("its output, line 1:") && !bad.contains("hunter2"), "{bad}");
        assert!(problem("head -c 70000 /dev/zero").await.starts_with("it prints more than"));
        assert_eq!(problem("printf '\\377'").await, "its output is not UTF-8");
        let unknown = SecretCommand::of(&["no-such-command-anywhere".to_owned()]).unwrap().unwrap();
        let problem = unknown.secrets("https://a.example/").await.unwrap_err();
        assert!(problem.starts_with("it cannot be started"), "{problem}");
    }

    #[tokio::test]
    async fn a_failure_is_remembered_shortly_and_leaves_a_good_answer_in_force() {
        let command = shell("exit 1");
        let (now, ring) = (Instant::now(), Arc::new(Keyring::parse(SECRET).unwrap()));
        command.remember("a", Ok(Some(ring)), now).unwrap();
        let failed = || Err("no".to_owned());
        assert!(command.remember("a", failed(), now + FRESH_FOR).unwrap().is_some());
        assert!(
            command.remembered("a", now + FRESH_FOR + FAILED_FOR).is_none(),
            "and it is asked again soon"
        );
        command.remember("b", failed(), now).unwrap_err();
        assert!(command.remembered("b", now).unwrap().is_err());
        assert!(command.remembered("b", now + FAILED_FOR).is_none());
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let (command, now) = (shell(""), Instant::now());
        for endpoint in 0..REMEMBERED_MAX + 50 {
            command.remember(&endpoint.to_string(), Ok(None), now).unwrap();
        }
        assert_eq!(command.remembered.lock().unwrap().len(), REMEMBERED_MAX);
    }
}
