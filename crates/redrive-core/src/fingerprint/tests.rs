//! Golden texts: errors and their normalised forms.

use proptest::prelude::*;

use super::*;
use crate::fingerprint::{DeathCause, GroupRule, GroupRules, fingerprint, trace};
use crate::{Class, Reason};

/// Never change a line: stored letters have these fingerprints. A better normalisation needs a new version.
const GOLDEN: [(&str, &str); 40] = [
    ("", ""),
    ("422 field `currency` must be one of EUR, USD, GBP", "422 field `currency` must be one of <list>"),
    ("422 field `currency` must be one of EUR, USD", "422 field `currency` must be one of <list>"),
    ("timeout after 30000 ms calling payments.internal:8443", "timeout after <n> ms calling <host>"),
    ("404 customer c-204 not found", "404 customer <id> not found"),
    ("503 Service Unavailable", "503 Service Unavailable"),
    ("5031 is no status", "<n> is no status"),
    ("connection refused (os error 111)", "connection refused (os error <n>)"),
    ("dial tcp 10.0.0.12:5432: connect: connection refused", "dial tcp <host>: connect: connection refused"),
    ("dial tcp [fe80::1c2d:0:1]:443: i/o timeout", "dial tcp [<host>]:<n>: i/o timeout"),
    ("no route to host db-3.eu.example.com", "no route to host <host>"),
    ("POST https://api.example.com/v1/orders/17?x=1 failed", "POST <url> failed"),
    ("order 6f1c2b58-0c5e-4a57-9a39-1f1f4f3f9a10 is locked", "order <uuid> is locked"),
    ("bad checksum 9f86d081884c7d65", "bad checksum <hex>"),
    ("bad address 0xdeadbeef", "bad address <hex>"),
    ("took 1.5s, limit 250ms", "took <n>s, limit <n>ms"),
    ("disk 97% full", "disk <n>% full"),
    ("expected -3 got +4", "expected <n> got <n>"),
    ("invalid value \"eur\" for currency", "invalid value <value> for currency"),
    ("invalid value 'eur' for currency", "invalid value <value> for currency"),
    ("can't parse, won't retry", "can't parse, won't retry"),
    ("at 2026-11-15T08:01:12Z the job died", "at <time> the job died"),
    ("at 10:41:07 the job died", "at <time> the job died"),
    ("  spaces \t and\nlines  ", "spaces and lines"),
    ("/v1/orders/17/items/3", "/v1/orders/<n>/items/<n>"),
    ("key=17 tenant=acme42", "key=<n> tenant=<id>"),
    ("mail to jane.doe@example.com bounced", "mail to <value> bounced"),
    ("org.springframework.dao.QueryTimeoutException", "org.springframework.dao.QueryTimeoutException"),
    ("panicked at src/main.rs:17:5", "panicked at src/main.rs:<n>:<n>"),
    ("orders:17 is gone", "orders:<n> is gone"),
    ("std::io::Error", "std::io::Error"),
    ("utf8 over http2 to s3", "utf8 over http2 to s3"),
    ("400 {\"code\":\"card_declined\",\"id\":\"ch_1Ab\"}", "400 {code:card_declined,id:<value>}"),
    (
        "400 {\"error\":{\"message\":\"amount must be at least 50\"}}",
        "400 {error:{message:amount must be at least <n>}}",
    ),
    ("said \"the customer does not exist\"", "said the customer does not exist"),
    ("missing a, b and c", "missing a, b and c"),
    ("missing a, b, c and d", "missing <list>"),
    ("timeout calling localhost:8080", "timeout calling <host>"),
    ("größe 12 überschritten", "größe <n> überschritten"),
    ("<n> <id> <host>", "<n> <id> <host>"),
];

#[test]
fn errors_lose_what_differs_from_message_to_message() {
    for (error, expected) in GOLDEN {
        assert_eq!(normalise(error), expected, "{error}");
        assert_eq!(normalise(expected), expected, "again: {error}");
    }
}

#[test]
fn a_stack_trace_is_its_exception_and_top_frame() {
    let java = "org.springframework.dao.QueryTimeoutException: PreparedStatementCallback; SQL [select 1]\n\
                \tat com.example.Orders.load(Orders.java:42)\n\tat com.example.Orders.run(Orders.java:17)";
    let chained =
        "Listener failed: java.lang.IllegalStateException: order 17\r\n    at app//com.example.A.b(A.java:1)";
    let script = "TypeError: Cannot read properties of undefined (reading 'id')\n    at Orders.load (/app/orders.js:10:5)";
    let python = "Traceback (most recent call last):\n  File \"/app/a.py\", line 3, in run\n    load(x)\n  \
                  File \"/app/b.py\", line 9, in load\n    raise ValueError(x)\nValueError: invalid literal: '17'\n";
    for (trace, expected) in [
        (java, "org.springframework.dao.QueryTimeoutException at com.example.Orders.load"),
        (chained, "java.lang.IllegalStateException at com.example.A.b"),
        (script, "TypeError at Orders.load"),
        (python, "ValueError at load"),
    ] {
        assert_eq!(trace::title(trace).as_deref(), Some(expected));
        assert_eq!(
            trace::title(&trace.replace('\n', "\\n")).as_deref(),
            Some(expected),
            "written on one line"
        );
    }
    for (trace, expected) in [
        (java, "org.springframework.dao.QueryTimeoutException at com.example.Orders.load"),
        (script, "TypeError at Orders.load"),
        (python, "ValueError at load"),
    ] {
        let folded = trace::folded(trace).unwrap();
        assert!(!folded.contains('\n') && folded.len() < 256, "{folded}");
        let answered = format!("500 Internal Server Error: {folded}");
        assert_eq!(trace::title(&answered).as_deref(), Some(expected), "{answered}");
    }
    assert_eq!(trace::folded(python).as_deref(), Some("ValueError: invalid literal: '17'\\n at load"));
    for plain in ["503 at the door", "failed\nat", "", "Error: no frame\nnothing"] {
        assert_eq!(trace::title(plain), None, "{plain}");
        assert_eq!(trace::folded(plain), None, "{plain}");
    }
}

#[test]
fn class_reason_status_and_sink_tell_groups_apart_and_a_rule_joins_them() {
    let cause = DeathCause {
        reason: Reason::MaxRetries,
        class: Some(Class::Transient),
        status: Some(503),
        error: Some("503 order 17"),
        sink: "webhook",
    };
    let none = GroupRules::default();
    let first = fingerprint(&cause, &none);
    assert_eq!(first.title, "503 order <n>");
    assert_eq!(fingerprint(&DeathCause { error: Some("503 order 18"), ..cause }, &none), first);
    let others = [
        DeathCause { reason: Reason::Permanent, ..cause },
        DeathCause { class: Some(Class::Permanent), ..cause },
        DeathCause { status: Some(502), ..cause },
        DeathCause { sink: "stdout", ..cause },
        DeathCause { error: None, ..cause },
    ];
    let rules = GroupRules::new([GroupRule::new("order", "orders").unwrap()]);
    for other in others {
        assert_ne!(fingerprint(&other, &none).group, first.group, "{other:?}");
        if other.error.is_some() {
            assert_eq!(fingerprint(&other, &rules), fingerprint(&cause, &rules));
        }
    }
    assert_eq!(fingerprint(&cause, &rules).title, "orders");
}

#[test]
fn a_long_text_is_cut_at_a_word() {
    let long = "a word ".repeat(400);
    let normal = normalise(&long);
    assert!(normal.len() <= TITLE_BYTES_MAX && normal.ends_with("word…"), "{normal}");
}

fn check(text: &str) {
    let once = normalise(text);
    assert!(once.len() <= TITLE_BYTES_MAX, "{} bytes", once.len());
    assert!(!once.chars().any(crate::text::printable::is_unsafe), "{once:?}");
    assert_eq!(normalise(&once), once, "of {text:?}");
    let cause = DeathCause { reason: Reason::Gone, class: None, status: None, error: Some(text), sink: "" };
    let print = fingerprint(&cause, &GroupRules::default());
    assert!(print.title.len() <= TITLE_BYTES_MAX && !print.title.is_empty());
}

proptest! {
    #[test]
    fn any_text_has_a_bounded_normal_form_that_is_its_own(text in "\\PC{0,300}") {
        check(&text);
    }

    /// Pieces that look like values reach more branches than random noise does.
    #[test]
    fn text_that_is_nearly_a_value_has_one_too(
        parts in prop::collection::vec(prop::sample::select(vec![
            "\"", "'", "`", "<", ">", "<n>", "<value>", "of", "and", " ", ",", ", ", ":", "://", ".", "-", "a", "Error", "17",
            "0x", "10.0.0.1", ":80", "c-1", "\n", "\tat ", "at", "é", "“", "”", "{", "}", "=", "/", "503", "g", "T", "%", "@",
        ]), 0..40)
    ) {
        check(&parts.concat());
    }
}
