//! The page in a real browser, against a real processor with dead letters: its numbers, its letters, and that no text
//! from messages is executed.

mod world;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use serde_json::{Value, json};
use world::chromium::{self, Browser};
use world::process::{Processor, TOKEN};
use world::receiver::{OK, Receiver, Reply, UNAVAILABLE};
use world::wait_for;

const MESSAGES: &str = "/v1/pipelines/orders/messages";
/// Each of these would be noticed if it were interpreted as markup.
const HOSTILE: &str = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>";
const REFUSED: Reply =
    ("422 Unprocessable Content", "redrive-reason: <script>window.hacked=1</script><b>no</b>\r\n");

fn config(url: &str) -> String {
    format!(
        r#"
[engine]
kind = "embedded"
dir  = "@DIR@"
[server]
listen = "@LISTEN@"
[[pipeline]]
name   = "orders"
tiers  = ["10m"]
jitter = "none"
[pipeline.sink.webhook]
url = "{url}"
"#
    )
}

/// The labels and numbers of the card, in the order of the page.
fn five(browser: &mut Browser) -> Value {
    browser.evaluate(
        "[...document.querySelectorAll('#pipelines .number')].map(cell => [cell.querySelector('span').textContent, cell.firstChild.textContent])",
    )
}

#[test]
fn the_page_shows_the_numbers_and_the_letters_and_runs_nothing_of_a_stranger() {
    let Some(program) = chromium::find() else {
        println!("skipped: the page in a browser: no Chromium; scripts/page.sh install gets one");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let fixed = Arc::new(AtomicBool::new(false));
    let answers = Arc::clone(&fixed);
    let receiver = Receiver::start(move |request| match request.id().split('-').next() {
        Some("bad") if !answers.load(Ordering::SeqCst) => REFUSED,
        Some("slow") => UNAVAILABLE,
        _ => OK,
    });
    std::fs::write(dir.path().join("desk.token"), TOKEN).unwrap();
    let desk = "[[server.token]]\nname = \"desk\"\nscopes = [\"read\", \"ingest\", \"replay\"]\nsecret_file = \"desk.token\"\n[[pipeline]]";
    let processor = Processor::start(dir.path(), &config(&receiver.url()).replace("[[pipeline]]", desk));
    let mut lines = String::new();
    for (word, count) in [("good", 1_200), ("slow", 3), ("bad", 2)] {
        for n in 0..count {
            let line = json!({
                "id": format!("{word}-{n}"), "key": format!("c-{n}<i>"), "headers": { "x-note": HOSTILE },
                "payload": { "note": HOSTILE },
            });
            writeln!(lines, "{line}").unwrap();
        }
    }
    assert_eq!(processor.post_as(MESSAGES, "application/x-ndjson", &lines).status, 202);
    wait_for("everything to be tried", || {
        let now = processor.get("/v1/pipelines/orders").json();
        now["succeeded"] == 1_200 && now["pending"]["delayed"] == 3 && now["letters"]["open"] == 2
    });

    // A token is configured, so that nothing is visible without one.
    let mut browser = Browser::open(&program, dir.path(), &processor.url("/"));
    let log_in = "document.querySelector('#login').hidden";
    wait_for("the page to ask for a token", || browser.evaluate(log_in) == false);
    assert_eq!(browser.text("#pipelines") + &browser.text("#rows"), "");
    for (token, fault) in [("nobody-knows-this-one", "not known here"), (TOKEN, "")] {
        browser.evaluate(&format!("document.querySelector('#login-token').value = '{token}'"));
        browser.evaluate("document.querySelector('#login-form button').click()");
        let is_told = |browser: &mut Browser| match fault {
            "" => browser.evaluate(log_in) == true,
            fault => browser.text("#login-fault").contains(fault),
        };
        wait_for("the token to be judged", || is_told(&mut browser));
    }
    wait_for("the pipelines", || browser.text("#pipelines").contains("orders"));
    assert_eq!(browser.text("#token-button"), "Log out");
    browser.evaluate("document.querySelector('#token-button').click()");
    wait_for("the page to be empty again", || {
        browser.evaluate("document.readyState === 'complete' && !document.querySelector('#login').hidden")
            == true
    });
    assert_eq!(browser.text("#pipelines"), "");
    // A link passes the token in the fragment of the address, which is never sent.
    browser.evaluate(&format!("location.hash = '#token={TOKEN}'"));
    let shown = json!([
        ["produced", "1,205"],
        ["succeeded", "1,200"],
        ["retrying", "3"],
        ["held", "0"],
        ["dead", "2"]
    ]);
    wait_for("the five numbers", || five(&mut browser) == shown);
    // Deliveries are counted by the process, letters are stored: the page tells them apart.
    let since =
        "[...document.querySelectorAll('.number small')].map(e => e.textContent + '|' + e.parentNode.title)";
    let since = browser.evaluate(&format!("JSON.stringify({since})"));
    let since = since.as_str().unwrap().to_owned();
    assert!(
        since.contains("since start + kept|delivered since") && since.contains("\"since start|"),
        "{since}"
    );
    wait_for("the letters", || browser.text("#rows").contains("bad-1"));
    assert_eq!(browser.text("#status"), "live");
    let error = browser.text("#rows td.error");
    assert!(error.starts_with("422 Unprocessable"), "{error}");
    assert!(browser.text("#rows").contains("key c-0<i>"), "{}", browser.text("#rows"));
    // The token is neither in the address nor in the document.
    assert_eq!(browser.evaluate("location.search"), "");
    assert_eq!(browser.evaluate("location.hash"), "#orders");
    let document = browser.evaluate("document.documentElement.outerHTML");
    assert!(!document.as_str().unwrap().contains(TOKEN));

    // A letter with its payload and headers, as text.
    browser.evaluate("document.querySelector('#rows button').click()");
    wait_for("the letter", || browser.text("#letter-payload").contains("script"));
    assert_eq!(browser.text("#letter-title"), "bad-0");
    let payload: Value = serde_json::from_str(&browser.text("#letter-payload")).unwrap();
    assert_eq!(payload["note"], HOSTILE);
    assert!(browser.text("#letter-headers").contains(HOSTILE), "{}", browser.text("#letter-headers"));
    assert!(browser.text("#letter-history").contains("422 Unprocessable"));
    assert_eq!(browser.evaluate("window.hacked === undefined"), true, "a stranger's script ran");
    let strange = "document.querySelectorAll('img, #rows script, dialog script, #rows i, #rows b').length";
    assert_eq!(browser.evaluate(strange), 0, "a stranger's markup became elements");

    // Actions on the page take effect.
    fixed.store(true, Ordering::SeqCst);
    browser.evaluate("document.querySelector('#letter-replay').click()");
    wait_for("the replay", || processor.get("/v1/pipelines/orders").json()["letters"]["succeeded"] == 1);
    let shown = json!([
        ["produced", "1,205"],
        ["succeeded", "1,201"],
        ["retrying", "3"],
        ["held", "0"],
        ["dead", "1"]
    ]);
    wait_for("the numbers after the replay", || five(&mut browser) == shown);
    assert!(!receiver.requests_for("bad-0").is_empty());
    let actions = processor.get("/v1/actions").json();
    let [action] = actions["actions"].as_array().unwrap().as_slice() else { panic!("{actions}") };
    assert_eq!((&action["action"], &action["actor"]), (&json!("replay"), &json!("desk")), "{action}");
}

/// The notices of the pipeline on the page, by class: `bad: PAUSED paused: …`.
fn notices(browser: &mut Browser) -> String {
    let all = "[...document.querySelectorAll('.notices li')].map(li => li.className + ': ' + li.textContent).join('|')";
    browser.evaluate(all).as_str().unwrap().to_owned()
}

/// Once, after F5 the letters were gone, an open breaker was not shown, and a discarded letter stayed dead.
#[test]
fn a_reload_keeps_the_letters_and_trouble_is_shown_in_words_and_colour() {
    let Some(program) = chromium::find() else {
        println!("skipped: the page in a browser: no Chromium; scripts/page.sh install gets one");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let state = Arc::new(AtomicU8::new(0));
    let answers = Arc::clone(&state);
    let receiver = Receiver::start(move |request| {
        match (request.id().split('-').next(), answers.load(Ordering::SeqCst)) {
            (Some("bad"), _) => REFUSED,
            (_, 1) => ("429 Too Many Requests", "retry-after: 86400\r\n"),
            (_, 2) => UNAVAILABLE,
            _ => OK,
        }
    });
    let config = config(&receiver.url())
        .replace("jitter", "breaker = { cooldown = \"1h\", cooldown_max = \"1h\" }\njitter");
    let processor = Processor::start(dir.path(), &config);
    let ingest = |word: &str, count: usize| {
        let lines: Vec<String> =
            (0..count).map(|n| json!({ "id": format!("{word}-{n}") }).to_string()).collect();
        assert_eq!(processor.post_as(MESSAGES, "application/x-ndjson", &lines.join("\n")).status, 202);
    };
    let shown = || processor.get("/v1/pipelines/orders").json();
    ingest("bad", 3);
    ingest("good", 5);
    wait_for("everything to be tried", || shown()["succeeded"] == 5 && shown()["letters"]["open"] == 3);
    let discarded = processor.cli(&["dlq", "discard", "orders", "--filter", "id:bad-0", "--reason", "known"]);
    assert!(discarded.status.success(), "{}", world::process::stderr(&discarded));

    let mut browser = Browser::open(&program, dir.path(), &processor.url(&format!("/#token={TOKEN}")));
    wait_for("the letters", || browser.text("#rows").contains("bad-2"));
    assert_eq!(browser.evaluate("location.hash"), "#orders");
    browser.evaluate("window.before = 1; location.reload()");
    wait_for("the reload", || {
        browser.evaluate("window.before === undefined && document.readyState === 'complete'") == true
    });
    wait_for("the letters after it", || browser.text("#rows").contains("bad-2"));
    assert_eq!(browser.evaluate("document.querySelector('#letters').hidden"), false);
    // A discarded letter is not dead, on the page as on the command line.
    let numbers =
        json!([["produced", "8"], ["succeeded", "5"], ["retrying", "0"], ["held", "0"], ["dead", "2"]]);
    wait_for("the numbers", || five(&mut browser) == numbers);
    assert!(browser.text(".number.dead small").contains("1 discarded"));
    let status = world::process::stdout(&processor.cli(&["status", "orders"]));
    assert!(status.contains("   dead 2 "), "{status}");
    assert_eq!((notices(&mut browser).as_str(), browser.text("#status").as_str()), ("", "live"));
    let dot = "document.querySelector('#dot').className";
    assert_eq!(browser.evaluate(dot), "dot up");
    assert!(browser.text("#pipelines").contains("last 5 min: p99 "), "{}", browser.text("#pipelines"));

    assert!(processor.cli(&["pause", "orders"]).status.success());
    wait_for("the pause", || notices(&mut browser).starts_with("bad: PAUSED paused: nothing is sent"));
    assert!(notices(&mut browser).contains("redrive resume orders"));
    assert!(processor.cli(&["resume", "orders"]).status.success());
    wait_for("it to go on", || notices(&mut browser).is_empty());

    state.store(1, Ordering::SeqCst);
    ingest("busy", 1);
    wait_for("the Retry-After", || notices(&mut browser).contains("bad: ASKED TO WAIT until 2"));
    let text = notices(&mut browser);
    assert!(
        text.contains("answered busy-0 with 429 and Retry-After 24h")
            && text.contains("redrive resume orders --now"),
        "{text}"
    );

    state.store(2, Ordering::SeqCst);
    assert!(processor.cli(&["resume", "orders", "--now"]).status.success());
    ingest("more", 100);
    wait_for("the breaker", || notices(&mut browser).contains("bad: breaker OPEN breaker open since "));
    wait_for("the dot", || browser.evaluate(dot) == "dot bad");
    assert!(
        browser.text("#status").starts_with("live · orders: breaker OPEN"),
        "{}",
        browser.text("#status")
    );
    let colour = |browser: &mut Browser, of: &str| {
        browser.evaluate(&format!("getComputedStyle(document.querySelector('{of}')).backgroundColor"))
    };
    let bad = colour(&mut browser, "#dot.bad");
    browser.evaluate("document.querySelector('#dot').className = 'dot up'");
    assert_ne!(colour(&mut browser, "#dot"), bad, "trouble has a colour of its own");
    // The same numbers as elsewhere.
    wait_for("what was in flight", || shown()["pending"]["in_flight"] == 0);
    let held = shown()["pending"]["held"].as_u64().unwrap();
    wait_for("the numbers of the API", || five(&mut browser)[3] == json!(["held", held.to_string()]));
    let status = world::process::stdout(&processor.cli(&["status", "orders"]));
    assert!(status.contains(&format!("held {held} (")), "{status}");

    // Situations that this test does not create: the same list, whatever it contains.
    let told = browser.evaluate(
        "api('/v1/pipelines/orders').then(p => { \
           p.attention = [ \
             { subject: 'partition', level: 'bad', short: 'orders/3 held', text: 'orders/3: not allowed to write <b>orders.DLQ</b>' }, \
             { subject: 'suspects', level: 'warning', short: '3 suspects', text: '3 suspects of having ended the process' }]; \
           show(p); showLive([p]); \
           return [...document.querySelectorAll('.notices li')].map(li => li.className + ': ' + li.textContent).join('|') + '|' + document.querySelector('#dot').className; })",
    );
    assert_eq!(
        told,
        "bad: orders/3 held orders/3: not allowed to write <b>orders.DLQ</b>|warning: 3 suspects 3 suspects of having \
         ended the process|dot bad"
    );
}
