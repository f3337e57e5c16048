//! The real processor under attack by clients that connect and send nothing, send requests and do not read, or request
//! more than fits into memory. It keeps accepting and delivering messages, and `/livez` answers throughout.
//!
//! `REDRIVE_ATTACK_CLIENTS` (1,200) attack at once, in rounds for `REDRIVE_ATTACK_SECONDS` (one round).

mod world;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use world::process::{Processor, TOKEN};
use world::receiver::{OK, Receiver, Reply};
use world::{free_port, http, wait_for};

const MESSAGES: &str = "/v1/pipelines/orders/messages";
const REFUSED: Reply = ("422 Unprocessable Content", "");

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// All attackers run in this process.
fn clients() -> usize {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let clients = setting("REDRIVE_ATTACK_CLIENTS", 1_200) as usize;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(
        limit > clients as u64 + 100,
        "{clients} clients need more than the {limit} files of this machine"
    );
    clients
}

/// Runs at least one round, and more in a soak.
fn rounds(mut round: impl FnMut()) {
    let (began, span) = (Instant::now(), Duration::from_secs(setting("REDRIVE_ATTACK_SECONDS", 0)));
    loop {
        round();
        if began.elapsed() >= span {
            break;
        }
    }
}

/// A processor limited to `files` open files, soft and hard.
fn processor(dir: &Path, url: &str, files: u64) -> Processor {
    let port = free_port();
    let mut command = std::process::Command::new("sh");
    command
        .arg("-c")
        .arg(format!("ulimit -n {files} && exec \"$0\" \"$@\""))
        .arg(env!("CARGO_BIN_EXE_redrive"));
    command.args([
        "processor",
        "--name",
        "orders",
        "--sink-url",
        url,
        "--tiers",
        "50ms,100ms",
        "--dir",
        "store",
    ]);
    command.args(["--listen", &format!("127.0.0.1:{port}")]);
    command.current_dir(dir).env("REDRIVE_TOKEN", TOKEN).env("NO_COLOR", "1");
    Processor::run(dir, port, &mut command)
}

/// Opens `count` connections, each with a request whose answer is never read.
fn attack(processor: &Processor, count: usize, request: &[u8]) -> Vec<TcpStream> {
    (0..count).filter_map(|_| attacker(processor.port, request)).collect()
}

fn attacker(port: u16, request: &[u8]) -> Option<TcpStream> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_nonblocking(true).ok()?;
    // Data that does not fit waits at our end, which serves the purpose too.
    let _ = stream.write(request);
    Some(stream)
}

/// Attackers that reconnect when they are disconnected.
struct Siege {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Siege {
    /// Returns once each of them has connected.
    fn lay(processor: &Processor, count: usize, request: &'static str, times: usize) -> Self {
        let (over, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (port, stop, connected) = (processor.port, Arc::clone(&over), Arc::clone(&came));
        let request = request.repeat(times);
        let thread = std::thread::spawn(move || {
            let mut all: Vec<Option<TcpStream>> = (0..count).map(|_| None).collect();
            while !stop.load(Ordering::SeqCst) {
                for slot in all.iter_mut().filter(|slot| slot.as_ref().is_none_or(is_gone)) {
                    *slot = attacker(port, request.as_bytes());
                    connected.fetch_add(usize::from(slot.is_some()), Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        wait_for("the attackers to be there", || came.load(Ordering::SeqCst) >= count);
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Siege {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()));
    }
}

fn is_gone(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// How long a probe may take beyond what the machine's load explains.
const PROBE_GRACE: Duration = Duration::from_secs(2);
/// The factor by which an attacked processor may be slower than an undisturbed one in answering a probe.
const PROBE_FACTOR: u32 = 20;
/// The limit for a probe, however slow the undisturbed processor is: orchestrators give up after a few of these.
const PROBE_MAX: Duration = Duration::from_secs(20);

/// A processor that is not attacked: its probes show the effect of the machine's load, including the attackers'.
struct Control {
    processor: Processor,
    _dir: TempDir,
}

impl Control {
    fn start(receiver: &Receiver) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { processor: processor(dir.path(), &receiver.url(), 1_024), _dir: dir }
    }

    /// Asserts that the attacked processor answers its probes about as fast as this one at the same time. Returns the
    /// time of the slower one.
    fn assert_lives(&self, attacked: &Processor) -> Duration {
        let took = ["/livez", "/readyz"].map(|path| {
            let before = probe(&self.processor, path);
            let took = probe(attacked, path);
            let usual = before.max(probe(&self.processor, path));
            let limit = (PROBE_GRACE + usual * PROBE_FACTOR).min(PROBE_MAX);
            assert!(took <= limit, "{path} took {took:?}, and {usual:?} undisturbed");
            took
        });
        took[0].max(took[1])
    }

    /// Probes the attacked processor while `attack` runs.
    fn assert_lives_during(&self, attacked: &Processor, attack: impl FnOnce()) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _over = SetOnDrop(&over);
            scope.spawn(|| {
                let (mut probes, mut slowest) = (0, Duration::ZERO);
                while !over.load(Ordering::SeqCst) {
                    slowest = slowest.max(self.assert_lives(attacked));
                    probes += 1;
                    std::thread::sleep(Duration::from_millis(20));
                }
                println!("{probes} probes, the slowest took {slowest:?}");
            });
            attack();
        });
    }
}

/// Stops probing, even if the attack panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The time until a probe is answered with 200, over as many connections as needed.
fn probe(processor: &Processor, path: &str) -> Duration {
    let began = Instant::now();
    wait_for(path, || {
        http::try_send("GET", &processor.url(path), &[], "").is_some_and(|answer| answer.status == 200)
    });
    began.elapsed()
}

/// Asserts that a message is accepted and delivered once.
fn works(processor: &Processor, receiver: &Receiver, id: &str) {
    let bearer = format!("Bearer {TOKEN}");
    let body = format!(r#"{{"id":"{id}"}}"#);
    wait_for("a message to be accepted", || {
        let headers = [("authorization", bearer.as_str())];
        let sent = http::try_send("POST", &processor.url(MESSAGES), &headers, &body);
        sent.is_some_and(|answer| matches!(answer.status, 200 | 202))
    });
    wait_for("it to be delivered", || receiver.requests_for(id).len() == 1);
    assert_eq!(processor.get("/v1/pipelines").status, 200);
}

fn memory_kib(processor: &Processor, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", processor.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// The usual limit of 1,024 files, and more connections than that. The store needs a new file per 64 MiB.
#[test]
fn clients_that_connect_and_say_nothing_do_not_stop_it() {
    let clients = clients();
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let control = Control::start(&receiver);
    let mut processor = processor(dir.path(), &receiver.url(), 1_024);
    let bearer = format!("Bearer {TOKEN}");
    let mut round = 0;
    rounds(|| {
        let idle = Siege::lay(&processor, clients, "", 1);
        // Plus clients that never finish their request.
        let slow = Siege::lay(&processor, clients / 4, "GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ", 1);
        control.assert_lives(&processor);
        let payload = "x".repeat(1 << 20);
        for number in 0..96 {
            let body = format!(r#"{{"id":"large-{round}-{number}","delay":"1h","payload":"{payload}"}}"#);
            wait_for("a large message to be accepted", || {
                let sent =
                    http::try_send("POST", &processor.url(MESSAGES), &[("authorization", &bearer)], &body);
                sent.is_some_and(|answer| matches!(answer.status, 200 | 202))
            });
        }
        works(&processor, &receiver, &format!("o-{round}"));
        control.assert_lives(&processor);
        drop((idle, slow));
        round += 1;
    });
    let segments = std::fs::read_dir(dir.path().join("store/orders/journal")).unwrap();
    let segments =
        segments.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "seg"));
    assert!(segments.count() > 2, "the journal went on to its next segment");
    assert!(!processor.log().contains("storage"), "{}", processor.log());
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

#[test]
fn clients_that_do_not_read_their_answers_do_not_stop_it() {
    let clients = clients();
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| OK);
    let control = Control::start(&receiver);
    let mut processor = processor(dir.path(), &receiver.url(), 8_192);
    let mut round = 0;
    rounds(|| {
        // An unauthenticated route with a large answer, requested often enough to fill every buffer.
        let greedy = "GET /v1/openapi.json HTTP/1.1\r\nhost: x\r\n\r\n";
        let unread = Siege::lay(&processor, clients, greedy, 100);
        control.assert_lives(&processor);
        works(&processor, &receiver, &format!("o-{round}"));
        drop(unread);
        round += 1;
    });
    let peak = memory_kib(&processor, "VmHWM");
    println!("{clients} clients that do not read: at most {} MiB", peak >> 10);
    assert!(peak < 1 << 20, "{} MiB", peak >> 10);
    processor.signal("TERM");
    assert_eq!(processor.wait(), Some(0), "{}", processor.log());
}

/// 200 readers of 48 letters of 1 MiB each, that is three pages: the answers do not fit into memory together.
#[test]
fn readers_of_large_letters_get_no_more_memory_than_there_is_for_them() {
    clients();
    let dir = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|request| if request.id().starts_with("large") { REFUSED } else { OK });
    let control = Control::start(&receiver);
    let processor = processor(dir.path(), &receiver.url(), 8_192);
    let payload = "x".repeat(1 << 20);
    for number in 0..48 {
        let body = format!(r#"{{"id":"large-{number}","payload":"{payload}"}}"#);
        assert_eq!(processor.post(MESSAGES, &body).status, 202);
    }
    wait_for("the letters", || processor.get("/v1/pipelines/orders").json()["letters"]["open"] == 48);
    let request = format!(
        "GET /v1/pipelines/orders/letters?payload=true&limit=48 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    let mut round = 0;
    rounds(|| {
        let mut answered = 0;
        control.assert_lives_during(&processor, || {
            let readers = attack(&processor, 200, request.as_bytes());
            works(&processor, &receiver, &format!("o-{round}"));
            // Each reader gets an answer: letters, or that there is no room now.
            for mut reader in readers {
                reader.set_nonblocking(false).unwrap();
                reader.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
                let mut head = [0; 12];
                if reader.read_exact(&mut head).is_ok() {
                    assert!(head.ends_with(b" 200") || head.ends_with(b" 429"), "{}", head.escape_ascii());
                    answered += 1;
                }
            }
        });
        assert!(answered > 0);
        round += 1;
    });
    let peak = memory_kib(&processor, "VmHWM");
    println!("200 readers of large letters: at most {} MiB", peak >> 10);
    assert!(peak < 1_536 << 10, "{} MiB", peak >> 10);
    wait_for("somebody who reads to get the letters", || {
        let answer = processor.get("/v1/pipelines/orders/letters?payload=true&limit=4");
        answer.status == 200 && answer.json()["letters"].as_array().unwrap().len() == 4
    });
}
