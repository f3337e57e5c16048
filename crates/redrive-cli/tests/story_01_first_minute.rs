//! Story 1, the first minute: `redrive demo` as a new user sees it, in one process and without questions.
//!
//! The demo also reports when the downstream goes down and comes back.

mod world;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use world::process::{redrive, stderr};
use world::{free_port, http, wait_for};

/// A running demo. Its directory is created in `tmp`, so that a test can check that it is removed.
struct Demo {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    url: String,
}

fn command(tmp: &Path, listen: &str, more: &[&str]) -> Command {
    let mut command = redrive(tmp);
    command.env("TMPDIR", tmp).args(["demo", "--listen", listen]).args(more);
    // A question would get no answer.
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Demo {
    fn start(tmp: &Path, more: &[&str]) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        let mut child = command(tmp, &listen, more).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, url: format!("http://{listen}") }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("the demo goes on").unwrap()
    }

    /// The next line that contains `part`, with those before it.
    fn until(&mut self, part: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            lines.push(self.line());
            if lines.last().is_some_and(|line| line.contains(part)) {
                return lines;
            }
        }
    }

    fn interrupt(&self) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// The rest of its output, and its exit status.
    fn end(mut self) -> (Vec<String>, ExitStatus) {
        let lines = self.lines.by_ref().map(Result::unwrap).collect();
        (lines, self.child.wait().unwrap())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It has ended long ago, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number after `name`, with thousands separators.
fn number(line: &str, name: &str) -> u64 {
    let (_, rest) = line.split_once(&format!("{name} ")).unwrap_or_else(|| panic!("no {name} in: {line}"));
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    digits.replace(',', "").parse().unwrap_or_else(|_| panic!("no number after {name} in: {line}"))
}

/// How long a line may take from the demo to the test.
const LATELY: Duration = Duration::from_secs(5);
const FIVE: [&str; 5] = ["produced", "succeeded", "retrying", "held", "dead"];

/// The five numbers of a status line, whose words are those of the story in the same order.
fn five(line: &str) -> [u64; 5] {
    let (clock, rest) = line.split_once("  ").unwrap();
    let (minutes, seconds) = clock.split_once(':').unwrap_or_else(|| panic!("no clock in: {line}"));
    assert!(minutes.parse::<u64>().is_ok() && seconds.parse::<u64>().is_ok_and(|s| s < 60), "{line}");
    let words: Vec<&str> = rest.split("  ").take(5).map(|part| part.split(' ').next().unwrap()).collect();
    assert_eq!(words, FIVE, "{line}");
    FIVE.map(|name| number(rest, name))
}

fn assert_balances(audit: &str) {
    assert!(audit.starts_with("audit  produced "), "{audit}");
    assert!(audit.ends_with("   ✓ nothing missing"), "{audit}");
    let ends = ["succeeded", "dead", "pending"].map(|name| number(audit, name));
    assert_eq!(number(audit, "produced"), ends.iter().sum::<u64>(), "{audit}");
}

fn demo_dirs(tmp: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(tmp).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("redrive-demo-")).collect()
}

#[test]
fn it_starts_without_a_question_and_ctrl_c_ends_it_while_deliveries_wait() {
    let tmp = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(tmp.path(), &["--outage-window", "2s@2s"]);
    let header: Vec<String> = (0..8).map(|_| demo.line()).collect();
    let dir = demo_dirs(tmp.path()).pop().expect("the directory is there while it runs");
    let engine =
        format!("redrive demo · embedded engine in {} (removed on exit; --keep to keep)", dir.display());
    assert_eq!(header[0], engine);
    assert_eq!(header[1], "  producer    50 orders/s, 512 B, 1% poison, seed 42");
    assert_eq!(header[2], "  downstream  15% transient failures, full outage 2s@2s");
    assert_eq!(header[3], "  pipeline    orders   tiers 2s,5s,15s   jitter equal   breaker on");
    assert!(header[4].starts_with(&format!("  dashboard   {}/#token=", demo.url)), "{}", header[4]);
    assert!(header[4].ends_with("   ← open this"), "{}", header[4]);
    assert!(header[5].starts_with("  try it      "), "{}", header[5]);
    assert!(header[6].ends_with("(in another terminal)"), "{}", header[6]);

    let lines = demo.until("produced");
    let outage: Vec<&str> =
        lines.iter().filter_map(|line| line.split_once("  ")).map(|(_, what)| what).collect();
    assert_eq!(outage[0], "▲ the downstream is down");
    assert!(outage.contains(&"▼ the downstream is back"), "{outage:?}");
    let status = lines.last().unwrap();
    let [produced, succeeded, retrying, held, dead] = five(status);
    assert_eq!(produced, succeeded + retrying + held + dead, "{status}");
    assert!(succeeded > 0, "{status}");
    assert!(status.contains("   p99 ") && status.ends_with(" ms"), "{status}");

    // Messages that failed in the outage wait for their tier, some for many more seconds.
    let pending =
        http::get_with_token(&format!("{}/v1/pipelines/orders", demo.url)).json()["pending"].clone();
    // Until the breaker has closed again, all of them are held.
    assert!(pending["delayed"].as_u64().unwrap() + pending["held"].as_u64().unwrap() > 0, "{pending}");
    demo.interrupt();
    let (lines, status) = demo.end();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    let [.., draining, audit] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        draining.starts_with("draining … ") && draining.contains(" deliveries settled in "),
        "{draining}"
    );
    assert_balances(audit);
    assert!(number(audit, "produced") >= produced, "{audit}");
    assert!(number(audit, "pending") > 0, "it did not wait for those in a tier: {audit}");
    assert_eq!(demo_dirs(tmp.path()), Vec::<PathBuf>::new());
}

/// The lines of the story at 01:05, 01:35 and 02:00, with an earlier outage.
#[test]
fn an_outage_opens_the_breaker_and_costs_no_message() {
    let tmp = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(tmp.path(), &["--outage-window", "9s@3s"]);
    let opened = demo.until("breaker open").pop().unwrap();
    let (_, said) = opened.split_once("  ").unwrap();
    let (share, rest) = said.strip_prefix("▲ breaker open: ").unwrap().split_once(" % of ").unwrap();
    assert!((50..=100).contains(&share.parse::<u32>().unwrap()), "{said}");
    assert!(
        rest.ends_with(" messages failed within 10s. Nothing is sent, no attempts are used up."),
        "{said}"
    );
    let closed = demo.until("breaker closed").pop().unwrap();
    assert!(closed.contains("▼ breaker closed") && closed.ends_with("; ramping 5 → 64 permits"), "{closed}");
    let status = demo.until("produced").pop().unwrap();
    assert!(status.ends_with("   0 dead-lettered for the outage"), "{status}");
    demo.interrupt();
    assert_balances(demo.end().0.last().unwrap());
}

#[test]
fn it_ends_by_itself_keeps_its_directory_if_asked_and_can_be_run_again() {
    let tmp = tempfile::tempdir().unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    for (more, kept) in [(&["--for", "1s", "--keep"][..], 1), (&["--for", "1s"], 1)] {
        let output = command(tmp.path(), &listen, more).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = world::process::stdout(&output);
        assert_balances(text.lines().last().unwrap());
        assert_eq!(demo_dirs(tmp.path()).len(), kept);
    }
    let dir = demo_dirs(tmp.path()).pop().unwrap();
    assert!(std::fs::read_dir(dir).unwrap().next().is_some(), "what is kept is the store");
}

#[test]
fn a_busy_port_is_said_with_exit_2_and_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = holder.local_addr().unwrap().to_string();
    let output = command(tmp.path(), &listen, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains(&listen), "{}", stderr(&output));
    assert!(output.stdout.is_empty(), "{}", world::process::stdout(&output));
    assert_eq!(demo_dirs(tmp.path()), Vec::<PathBuf>::new());
}

/// The five numbers of the page, computed from the API's answer like on the page.
fn five_of_the_api(url: &str) -> [u64; 5] {
    let pipeline = http::get_with_token(&format!("{url}/v1/pipelines/orders")).json();
    let at = |pointer: &str| pipeline.pointer(pointer).and_then(serde_json::Value::as_u64).unwrap();
    let waiting: u64 = ["ready", "delayed", "held", "key_wait", "in_flight"]
        .iter()
        .map(|name| at(&format!("/pending/{name}")))
        .sum();
    let held = at("/pending/held");
    let dead = at("/letters/open");
    [
        at("/succeeded") + dead + at("/letters/discarded") + waiting,
        at("/succeeded"),
        waiting - held,
        held,
        dead,
    ]
}

#[test]
fn the_page_is_served_and_the_api_has_the_numbers_of_the_status_line() {
    let tmp = tempfile::tempdir().unwrap();
    // So few orders that nothing changes at some moments, and out of step with the lines.
    let more = ["--rate", "0.7", "--poison-rate", "30%", "--transient-rate", "30%"];
    let mut demo = Demo::start(tmp.path(), &more);
    let header = demo.until("dashboard");
    let page = header.last().unwrap().split_whitespace().nth(1).unwrap();
    // The fragment after # stays in the browser.
    let answer = http::get(page.split('#').next().unwrap());
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").unwrap().starts_with("text/html"), "{}", answer.head);
    for name in FIVE {
        assert!(answer.body.contains(&format!("[\"{name}\", ")), "the page has a number {name}");
    }

    let url = demo.url.clone();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let samples = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&samples);
    let sampling = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(40))
            == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            let sample = (Instant::now(), five_of_the_api(&url));
            taken.lock().unwrap().push(sample);
        }
    });
    // A line shows what the API returned a moment before. A state that is shorter than the polling interval is not seen
    // by both, so not every line is found; most are.
    let (mut found, mut seen) = (0, 0);
    wait_for("lines that say the same as the API", || {
        let line = demo.until("produced").pop().unwrap();
        let read = Instant::now();
        wait_for("the API to be asked afterwards", || {
            samples.lock().unwrap().last().is_some_and(|(asked, _)| *asked > read)
        });
        let samples = samples.lock().unwrap();
        let lately =
            samples.iter().rev().take_while(|(asked, _)| read.saturating_duration_since(*asked) < LATELY);
        found += usize::from(lately.map(|(_, five)| five).any(|told| *told == five(&line)));
        seen += 1;
        assert!(
            seen < 20 || found * 2 > seen,
            "{found} of {seen} lines say what the API said: {line}, {samples:?}"
        );
        // The samples include dead letters and retries.
        let last = samples.last().unwrap().1;
        found >= 5 && last[4] > 0 && samples.iter().any(|(_, five)| five[2] > 0)
    });
    stop.send(()).unwrap();
    sampling.join().unwrap();
    demo.interrupt();
    assert_balances(demo.end().0.last().unwrap());
}
