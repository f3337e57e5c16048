//! Every printed fix is itself accepted: each is applied to the faulty file, and the file is read again.

mod document;
mod flags;
mod repair;

use std::fs;

use document::{Document, join};
use redrive_cli::args::Global;
use redrive_cli::config::sinks::KEYS;
use redrive_cli::config::{Environment, Fault, Loaded, ProcessorFlags, Severity, Source, load};
use repair::{key_of, offers};
use tempfile::TempDir;

/// A directory for the file and the files it may name.
struct ConfigDir {
    dir: TempDir,
}

impl ConfigDir {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("secret"), "correct-horse-battery").unwrap();
        Self { dir }
    }

    fn read(&self, text: &str) -> Loaded {
        let (flags, environment) = (ProcessorFlags::default(), Environment::default());
        // Most texts are faulty by themselves; the files they name are checked once the text is right.
        let loaded = load::build(Some(Source::new("redrive.toml", text)), &flags, &environment);
        if loaded.config.is_none() {
            return loaded;
        }
        let path = self.dir.path().join("redrive.toml");
        fs::write(&path, text).unwrap();
        let global = Global { config: Some(path), ..Global::default() };
        load::load(&global, &flags, &environment).unwrap()
    }

    /// A file in which `key` of `table` can be set, and which is valid without it.
    fn around(&self, table: &str, key: &str) -> Document {
        let secret = self.dir.path().join("secret").display().to_string();
        let kafka = "[engine]\nkind = \"kafka\"\nbrokers = [\"localhost:9092\"]\ngroup = \"g\"\n";
        let engine = match (table, key) {
            ("engine", "kind" | "dir") => "[engine]\n",
            ("engine", _) | ("pipeline", "source") => kafka,
            _ => "",
        };
        let token = match table {
            "server.token" => {
                format!("[[server.token]]\nname = \"ops\"\nscopes = [\"read\"]\nsecret_file = {secret:?}\n")
            }
            _ => String::new(),
        };
        let policy = match key {
            "cap_ttl_share" => "ttl = \"1h\"\nbackoff = { base = \"2s\" }",
            "on_exhausted" => "budget = { retries_per_minute = 10 }",
            "multiplier" | "cap" => "backoff = { base = \"2s\" }",
            "after_dead" => "ordering = \"key\"",
            _ => "",
        };
        let target = match key {
            "endpoint" | "per_endpoint" | "per_endpoint_rate" => "endpoint = \"json:/url\"",
            _ => "url = \"http://127.0.0.1:8000/orders\"",
        };
        let alert = if table == "alert" { "[[alert]]\nwebhook = \"http://127.0.0.1:9000/\"\n" } else { "" };
        let sink = match table {
            "pipeline.sink.stdout" => "[pipeline.sink.stdout]\n".to_owned(),
            _ => format!("[pipeline.sink.webhook]\n{target}\n"),
        };
        Document::parse(&format!("{engine}{token}[[pipeline]]\nname = \"orders\"\n{policy}\n{sink}{alert}"))
    }
}

/// Values that a user may write anywhere.
const VALUES: [&str; 44] = [
    "true",
    "false",
    "0",
    "1",
    "-4",
    "30",
    "4294967296",
    "9223372036854775807",
    "99999999999999999999",
    "0.5",
    "-0.1",
    "1e300",
    "nan",
    "inf",
    "\"\"",
    "\" \"",
    "\"0s\"",
    "\"1d\"",
    "\"30\"",
    "\"5 s\"",
    "\"8760000h\"",
    "\"1ms\"",
    "\"-1s\"",
    "\"on\"",
    "\"true\"",
    "\"3\"",
    "\"50%\"",
    "\"150%\"",
    "\"Orders\"",
    "\"1.2.3.4:80\"",
    "\"example.com:80\"",
    "\"kafka\"",
    "\"/\"",
    "\"a b\"",
    "[]",
    "[\"1s\", \"1s\", \"1s\"]",
    "[\"5s\", \"1s\"]",
    "[\"8760000h\"]",
    "[30]",
    "[\"x\"]",
    "{}",
    "{ x = 1 }",
    "{ fixed = \"5x\" }",
    "2026-11-15T08:01:12Z",
];

/// Beginnings of fixes in words: files, programs and certificates that only the user has.
const ADVICE: &[&str] = &[
    "openssl rand -hex 20 > ",
    "a readable file with the value",
    "a PEM file with the certificates of your authority",
    "correct its path",
    "a PEM file with a certificate that is valid now, and its private key",
    "a readable file with ",
    "write [[",
];

fn errors(loaded: &Loaded) -> Vec<Fault> {
    let errors = loaded.faults.all.iter().filter(|fault| fault.severity == Severity::Error);
    errors.cloned().collect()
}

/// Applies fixes until there are no faults left, or only some that a program cannot repair. `choice` selects the fix of
/// a fault. Returns the largest number of fixes that a fault offered.
fn repaired(dir: &ConfigDir, start: &Document, choice: usize) -> Result<usize, String> {
    let mut document = start.clone();
    let mut offers_most = 1;
    for _ in 0..8 {
        let before = errors(&dir.read(&document.text()));
        let mut repairable = None;
        for fault in &before {
            match offers(fault) {
                Ok(offers) => repairable = repairable.or(Some((fault, offers))),
                Err(words) if ADVICE.iter().any(|advice| words.starts_with(advice)) => {}
                Err(words) => {
                    return Err(format!("{}--- {}\n--- words: {words}\n", document.text(), fault.problem));
                }
            }
        }
        let Some((fault, offers)) = repairable else { return Ok(offers_most) };
        offers_most = offers_most.max(offers.len());
        let change = &offers[choice.min(offers.len() - 1)];
        let changed = change.applied(&document);
        let after = errors(&dir.read(&changed.text()));
        // The fault is gone, and the same key has no new fault. Mismatches between settings, and the contents of files,
        // are not considered.
        let count = |faults: &[Fault], fault: &Fault| {
            faults.iter().filter(|other| other.key == fault.key && other.problem == fault.problem).count()
        };
        let is_new = |fault: &&Fault| count(&before, fault) == 0;
        let same_key = |again: &&Fault| key_of(again) == key_of(fault);
        let other_matter = |again: &&Fault| {
            let problem = &again.problem;
            ["both ", " is shorter than ", " must grow"].iter().any(|relation| problem.contains(relation))
                || repair::offers(again).is_err()
        };
        let again = after.iter().filter(same_key).find(|again| is_new(again) && !other_matter(again));
        let stays = count(&after, fault) >= count(&before, fault);
        if let Some(again) = again.or(stays.then_some(fault)) {
            return Err(format!(
                "{}--- {} | fix: {}\n--- {change:?} gave\n{}--- {} | fix: {}\n",
                document.text(),
                fault.problem,
                fault.fix,
                changed.text(),
                again.problem,
                again.fix
            ));
        }
        document = changed;
    }
    Err(format!("{}--- never came to an end\n", start.text()))
}

/// Tries every fix of every fault of a file; rejected ones are added to `failed`.
fn try_all(dir: &ConfigDir, document: &Document, failed: &mut Vec<String>) {
    let mut choice = 0;
    loop {
        match repaired(dir, document, choice) {
            Ok(offers) if choice + 1 < offers => choice += 1,
            Ok(_) => return,
            Err(how) => {
                failed.push(how);
                return;
            }
        }
    }
}

#[test]
fn whatever_is_written_for_a_key_its_fix_is_accepted() {
    let dir = ConfigDir::new();
    let mut failed = Vec::new();
    // Push sinks need key files, which no fix can create.
    let needs_keys = |name: &str| ["webpush", "apns", "fcm"].iter().any(|sink| name.ends_with(sink));
    for table in KEYS.tables().iter().filter(|table| !needs_keys(table.path)) {
        for key in table.keys.iter().filter(|key| !needs_keys(key)) {
            let around = dir.around(table.path, key);
            let right = errors(&dir.read(&around.text()));
            assert!(right.is_empty(), "{}{right:?}", around.text());
            for value in VALUES {
                let mut document = around.clone();
                document.set(&join(table.path, key), value);
                try_all(&dir, &document, &mut failed);
            }
        }
    }
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

const ORDERS: &str = "[[pipeline]]\nname = \"orders\"\n";
const WEBHOOK: &str = "[pipeline.sink.webhook]\nurl = \"http://127.0.0.1:8000/orders\"\n";

/// Settings that conflict, and missing ones.
const TOGETHER: &[&str] = &[
    "tiers = [\"5s\"]\nbackoff = { fixed = \"60s\" }",
    "retries = 3\nattempts = 4",
    "retries = 9\ntiers = [\"5s\", \"30s\"]",
    "attempts = 9\ntiers = [\"5s\", \"30s\"]",
    "tiers = [\"1s\", \"1s\", \"1s\"]\nretries = 2",
    "tiers = [\"5s\", \"5s\", \"1m\"]",
    "tiers = [\"721h\", \"5s\", \"800h\"]",
    "tiers = [\"x\", \"30s\"]",
    "backoff = { fixed = \"60s\", base = \"1s\" }",
    "backoff = { fixed = \"60s\", cap = \"5m\" }",
    "backoff = { cap = \"5m\" }",
    "backoff = { base = \"10m\", cap = \"5m\" }",
    "backoff = { base = \"10m\" }\njitter = \"decorrelated\"",
    "profile = \"emails\"\njitter = \"decorrelated\"",
    "jitter = \"decorrelated\"",
    "jitter = \"around(150%)\"",
    "jitter = \"plus(800h)\"",
    "cap_ttl_share = 0.5",
    "cap_ttl_share = 0.5\nttl = \"1h\"",
    "budget = { on_exhausted = \"defer\" }",
    "budget = { retries_per_minute = 5, share_of_successes = \"10%\" }",
    "budget = { share_of_successes = \"0%\" }",
    "attempts_for = { ratelimited = 5 }",
    "attempts_for = { banana = 5 }",
    "attempts_for = { gone = 5 }",
    "attempts_for = { crash = 5000 }",
    "after_dead = \"block_key\"",
    "breaker = { cooldown = \"10m\" }",
    "breaker = { cooldown_max = \"1s\" }",
    "profile = \"webhook\"",
    "profile = \"banana\"",
    "source = \"orders\"",
    "max_retries = 3",
    "listen = \"127.0.0.1:1\"",
    "xylophone = 1",
];

#[test]
fn settings_that_exclude_each_other_are_repaired_by_each_of_their_fixes() {
    let dir = ConfigDir::new();
    let mut failed = Vec::new();
    for lines in TOGETHER {
        let document = Document::parse(&format!("{ORDERS}{lines}\n{WEBHOOK}"));
        assert!(!errors(&dir.read(&document.text())).is_empty(), "{} was accepted", document.text());
        try_all(&dir, &document, &mut failed);
    }
    let both = format!("{ORDERS}timeout = \"1s\"\nconcurrency = 1\n{WEBHOOK}");
    for text in [
        ORDERS.to_owned(),
        format!("[[pipeline]]\nretries = 1\n{WEBHOOK}"),
        format!("[[pipeline]]\nsource = \"a b\"\n{WEBHOOK}"),
        format!("{ORDERS}[pipeline.sink]\n"),
        format!("{ORDERS}[pipeline.sink.webhook]\n"),
        format!("{both}timeout = \"2s\"\nconcurrency = 2\n"),
        format!("{ORDERS}{WEBHOOK}endpoint = \"json:/url\"\n"),
        format!("{ORDERS}{WEBHOOK}per_endpoint_rate = \"20/s\"\n"),
        format!("{ORDERS}{WEBHOOK}per_endpoint = 5\n"),
        format!("{ORDERS}{WEBHOOK}classes = {{ proxi = \"transient\" }}\n"),
        format!("{ORDERS}{WEBHOOK}headers = {{ host = \"x\" }}\n"),
        format!("{ORDERS}{WEBHOOK}headers = {{ x = 1, \"a b\" = \"c\", webhook-id = \"x\" }}\n"),
        format!("{ORDERS}{WEBHOOK}classes = {{ 404 = \"gon\", 9xx = \"gone\", 500 = \"crash\", 501 = 3 }}\n"),
        format!("{ORDERS}{WEBHOOK}classes = {{ timeout = \"ok\", preset = \"strict\" }}\n"),
        format!("{ORDERS}[pipeline.sink.webhook]\nurl = \"http://me:x@127.0.0.1:8000\"\n"),
        format!("{ORDERS}[pipeline.sink.webhook]\nurl = \"http://[::1/x\"\n"),
        format!("{ORDERS}{WEBHOOK}[[alert]]\nevery = \"1h\"\n"),
        format!("{ORDERS}{WEBHOOK}[[alert]]\nwebhook = \"http://h/\"\ncommand = [\"true\"]\n"),
        format!("{ORDERS}{WEBHOOK}[[alert]]\ncommand = [\"true\"]\nheaders = {{ x = \"y\" }}\n"),
        format!(
            "{ORDERS}{WEBHOOK}[[alert]]\nwebhook = \"http://h/\"\npipelines = [\"ordres\", \"zzzzzzz\"]\n"
        ),
        format!("[server]\nlisten = \"0.0.0.0:7333\"\n{ORDERS}{WEBHOOK}"),
        format!("[engine]\nbrokers = [\"h:1\"]\n{ORDERS}{WEBHOOK}"),
        format!("[engine]\nkind = \"kafka\"\n{ORDERS}{WEBHOOK}"),
        format!("[[server.token]]\nname = \"ops\"\n{ORDERS}{WEBHOOK}"),
    ] {
        let document = Document::parse(&text);
        assert!(!errors(&dir.read(&document.text())).is_empty(), "{text} was accepted");
        try_all(&dir, &document, &mut failed);
    }
    assert!(failed.is_empty(), "{} failed\n{}", failed.len(), failed.join("\n"));
}

/// The first fault of a pipeline with these lines, as `problem | fix`.
fn told(dir: &ConfigDir, lines: &str) -> String {
    let faults = errors(&dir.read(&format!("{ORDERS}{lines}\n{WEBHOOK}")));
    let fault = faults.first().unwrap_or_else(|| panic!("{lines} was accepted"));
    format!("{} | {}", fault.problem, fault.fix)
}

#[test]
fn mistakes_that_people_made_are_answered_with_what_they_meant() {
    let dir = ConfigDir::new();
    for (lines, answer) in [
        ("timeout = 30", "`timeout` must be a text in quotes, not a whole number | timeout = \"30s\""),
        ("concurrency = -4", "`concurrency = -4` must lie between 1 and 100000 | concurrency = 1"),
        ("concurrency = 0", "`concurrency = 0` must lie between 1 and 100000 | concurrency = 1"),
        (
            "concurrency = 9999999",
            "`concurrency = 9999999` must lie between 1 and 100000 | concurrency = 100000",
        ),
        ("retries = -1", "`retries = -1` must lie between 0 and 999 | retries = 0"),
        ("tiers = [\"8760000h\"]", "`tiers = \"8760000h\"` must be at most 720h | tiers = [\"720h\"]"),
        (
            "tiers = [\"1s\", \"1s\", \"1s\"]",
            "`tiers` must grow | backoff.fixed = \"1s\" and retries = 3 instead of `tiers`",
        ),
        ("tiers = [5, \"30s\"]", "`tiers` must be a list of texts | \"5s\""),
        (
            "budget = { share_of_successes = 10 }",
            "`budget.share_of_successes` must be a text in quotes, not a whole number | budget.share_of_successes = \"10%\"",
        ),
        ("outage_gate = \"off\"", "`outage_gate` must be true or false, not a text | outage_gate = false"),
        ("name2 = \"x\"", "unknown key `name2`; did you mean `name`? | "),
    ] {
        assert_eq!(told(&dir, lines), answer, "{lines}");
    }
    let open = |listen: &str| {
        let faults = errors(&dir.read(&format!("[server]\nlisten = \"{listen}\"\n{ORDERS}{WEBHOOK}")));
        faults.first().unwrap_or_else(|| panic!("{listen} was accepted")).fix.clone()
    };
    assert_eq!(open("1.2.3.4:80"), "listen = \"127.0.0.1:80\"");
    assert_eq!(open("example.com:8080"), "listen = \"127.0.0.1:8080\"");
    assert_eq!(open("7333"), "listen = \"127.0.0.1:7333\"");
    assert_eq!(open("0.0.0.0"), "listen = \"127.0.0.1:7333\"");
}

#[test]
fn days_are_durations_everywhere() {
    let dir = ConfigDir::new();
    for lines in [
        "tiers = [\"5m\", \"1d\"]",
        "backoff = { base = \"1d\", cap = \"7d\" }",
        "backoff = { fixed = \"1d\" }",
        "ttl = \"2d12h\"",
        "hold_max = \"7d\"",
        "retry_after_max = \"1d\"",
        "dedup = \"30d\"",
        "jitter = \"plus(1d)\"",
        "crash = { window = \"1d\" }",
        "breaker = { cooldown_max = \"1d\", fast = { window = \"1d\" }, slow = { window = \"1d\" } }",
        "guard = { over = \"1d\" }",
    ] {
        let faults = errors(&dir.read(&format!("{ORDERS}{lines}\n{WEBHOOK}")));
        assert!(faults.is_empty(), "{lines}: {faults:?}");
    }
    let alert =
        "[[alert]]\nwebhook = \"http://h/\"\nevery = \"1d\"\nwithin = \"1d\"\noldest_letter = \"7d\"\n";
    let faults = errors(&dir.read(&format!("{ORDERS}{WEBHOOK}{alert}")));
    assert!(faults.is_empty(), "{faults:?}");
}
