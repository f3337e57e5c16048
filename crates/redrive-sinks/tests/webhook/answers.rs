//! The class of each answer.

use std::time::{Duration, SystemTime};

use redrive::Class;
use redrive_sinks::webhook::{Case, Meaning, WebhookError};
use redrive_sinks::{ClassTable, WebhookOptions};

use crate::server::{Server, deliver, failure, note, order, response, sink, to};

/// A server that answers `/404` with 404.
async fn by_path() -> Server {
    Server::answering(|seen| async move {
        let status = seen.path.trim_start_matches('/').parse().unwrap();
        response(status, &[], "")
    })
    .await
}

async fn class_of(server: &Server, status: u16, classes: ClassTable) -> Meaning {
    let sink = sink(WebhookOptions { classes, ..to(server.url(&format!("/{status}"))) });
    match deliver(&sink, order()).await {
        Ok(()) => Meaning::Ok,
        Err(failure) => {
            assert!(failure.chain().starts_with(&status.to_string()), "{failure}");
            assert_eq!(note(&failure, "status_code"), Some(&*status.to_string()));
            assert!(!failure.is_ambiguous(), "an answer came");
            Meaning::Fails(failure.class())
        }
    }
}

#[tokio::test]
async fn every_status_of_the_table_is_judged_by_its_row() {
    let server = by_path().await;
    for table in [ClassTable::webhook(), ClassTable::seed_strict()] {
        let mut statuses: Vec<u16> =
            vec![200, 201, 204, 299, 300, 301, 304, 308, 402, 418, 451, 499, 501, 511, 599];
        statuses.extend(table.rows().filter_map(|(case, _)| match case {
            Case::Status(status) => Some(status),
            Case::Hundred(_) | Case::Trouble(_) => None,
        }));
        for status in statuses {
            let meaning = class_of(&server, status, table.clone()).await;
            assert_eq!(meaning, table.status(status), "{status}");
        }
    }
}

#[tokio::test]
async fn the_generic_table_is_that_of_the_specification() {
    let server = by_path().await;
    for (statuses, expected) in [
        (&[200_u16, 202, 204][..], Meaning::Ok),
        (&[301, 302, 307, 400, 401, 403, 404, 405, 413, 415, 422], Meaning::Fails(Class::Permanent)),
        (&[410], Meaning::Fails(Class::Gone)),
        (&[429], Meaning::Fails(Class::RateLimited)),
        (&[408, 425, 500, 502, 503, 504, 507], Meaning::Fails(Class::Transient)),
    ] {
        for status in statuses {
            assert_eq!(class_of(&server, *status, ClassTable::webhook()).await, expected, "{status}");
        }
    }
}

#[tokio::test]
async fn a_row_of_the_user_changes_what_an_answer_means() {
    let server = by_path().await;
    let table = ClassTable::from_settings([("404", "gone"), ("5xx", "permanent"), ("409", "ok")]).unwrap();
    assert_eq!(class_of(&server, 404, table.clone()).await, Meaning::Fails(Class::Gone));
    assert_eq!(class_of(&server, 503, table.clone()).await, Meaning::Fails(Class::Permanent));
    assert_eq!(class_of(&server, 409, table).await, Meaning::Ok);
}

#[tokio::test]
async fn retry_after_in_seconds_and_as_a_date_is_the_wait() {
    for status in [429, 503] {
        let server = Server::saying(status, &[("retry-after", "17")], "").await;
        let failed = failure(&sink(to(server.url("/"))), order()).await;
        assert_eq!(failed.retry_after(), Some(Duration::from_secs(17)));
        assert_eq!(note(&failed, "retry_after_header"), Some("17"));
    }
    let at = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1000));
    let server = Server::saying(429, &[("retry-after", &at)], "").await;
    let failed = failure(&sink(to(server.url("/"))), order()).await;
    let wait = failed.retry_after().unwrap();
    assert!((900..=1000).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(note(&failed, "retry_after_header"), Some(&*at));
}

#[tokio::test]
async fn a_retry_after_that_makes_no_sense_is_bounded_or_ignored() {
    for (value, expected) in [
        ("18446744073709551615", Some(Duration::from_hours(365 * 24))),
        ("-5", None),
        ("tomorrow", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", Some(Duration::ZERO)),
    ] {
        let server = Server::saying(503, &[("retry-after", value)], "").await;
        let failed = failure(&sink(to(server.url("/"))), order()).await;
        assert_eq!(failed.retry_after(), expected, "{value}");
    }
}

#[tokio::test]
async fn the_receiver_may_say_the_class_itself() {
    for (status, said, expected) in [
        (500, "permanent", Some(Class::Permanent)),
        (400, "transient", Some(Class::Transient)),
        (200, "gone", Some(Class::Gone)),
        (409, "ok", None),
        (401, "credential", Some(Class::Credential)),
        (500, "nonsense", Some(Class::Transient)),
        (500, "crash", Some(Class::Transient)),
    ] {
        let server = Server::saying(status, &[("redrive-class", said)], "").await;
        let outcome = deliver(&sink(to(server.url("/"))), order()).await;
        assert_eq!(outcome.err().map(|failure| failure.class()), expected, "{status} {said}");
    }
}

#[tokio::test]
async fn the_reason_is_kept_cleaned_and_before_the_body() {
    let long = "x".repeat(500);
    for (reason, expected) in [
        ("no_lines", "422 Unprocessable Entity: no_lines".to_owned()),
        ("see http://a.example/b", "422 Unprocessable Entity: see [url]".to_owned()),
        (long.as_str(), format!("422 Unprocessable Entity: {}…", "x".repeat(200))),
    ] {
        let server = Server::saying(422, &[("redrive-reason", reason)], "the body").await;
        let failed = failure(&sink(to(server.url("/"))), order()).await;
        assert_eq!(failed.chain(), expected);
        assert!(matches!(failed.downcast_ref(), Some(WebhookError::Answered { status: 422, .. })));
    }
}

#[tokio::test]
async fn without_a_reason_the_beginning_of_the_body_is_kept() {
    let server = Server::saying(503, &[], "").await;
    let failed = failure(&sink(to(server.url("/"))), order()).await;
    assert_eq!(failed.chain(), "503 Service Unavailable");
    let body = format!("overloaded,\nsee https://status.example/x\u{7} {}", "y".repeat(1000));
    let server = Server::saying(503, &[], &body).await;
    let failed = failure(&sink(to(server.url("/"))), order()).await;
    let text = failed.chain();
    assert!(text.starts_with("503 Service Unavailable: overloaded, see [url] yyy"), "{text}");
    assert!(text.len() < 300, "{text}");
}

/// These answers differ in their values, but are thrown at the same place.
#[tokio::test]
async fn a_stack_trace_in_the_body_is_the_exception_and_where_it_was_thrown() {
    let python = |order: u32, depth: usize| {
        let frames =
            "  File \"/srv/app/framework/middleware.py\", line 81, in call\n    return self.app(scope)\n"
                .repeat(depth);
        format!(
            "Traceback (most recent call last):\n{frames}  File \"/srv/app/orders.py\", line 17, in load\n    raise KeyError(order)\nKeyError: 'o-{order}'\n"
        )
    };
    let java = |order: u32| {
        format!(
            "java.lang.IllegalStateException: order {order} is locked by worker w-{order}\n\tat com.example.Orders.load(Orders.java:42)\n\tat com.example.Main.main(Main.java:7)\n"
        )
    };
    let grouping = redrive::internal::engine::Grouping { sink: "webhook", ..Default::default() };
    let title = async |body: String| {
        let server = Server::saying(500, &[], &body).await;
        let failed = failure(&sink(to(server.url("/"))), order()).await;
        let error = failed.chain();
        assert!(error.starts_with("500 Internal Server Error: ") && error.len() < 300, "{error}");
        let attempt = redrive::internal::engine::Attempt {
            number: 1,
            at: redrive::Time::ZERO,
            took_ms: 1,
            class: failed.class(),
            kind: redrive::FailureKind::Status(500),
            code: None,
            counted: true,
            ambiguous: false,
            error,
        };
        grouping.of(redrive::Reason::MaxRetries, Some(&attempt)).title
    };
    assert_eq!(title(python(17, 1)).await, "KeyError at load");
    assert_eq!(title(python(18, 20)).await, "KeyError at load");
    assert_eq!(title(java(17)).await, "java.lang.IllegalStateException at com.example.Orders.load");
    assert_eq!(title(java(42)).await, "java.lang.IllegalStateException at com.example.Orders.load");
}

#[tokio::test]
async fn a_redirect_is_permanent_and_not_followed() {
    let other = Server::saying(200, &[], "").await;
    let location = other.url("/elsewhere");
    let server = Server::saying(307, &[("location", &location)], "").await;
    let failed = failure(&sink(to(server.url("/"))), order()).await;
    assert_eq!((failed.class(), failed.chain()), (Class::Permanent, "307 Temporary Redirect".to_owned()));
    assert_eq!((server.seen().len(), other.seen().len()), (1, 0));
}

#[tokio::test]
async fn a_receiver_may_end_a_message_or_its_endpoint() {
    for (status, asked, expected) in [
        (503, "abort-message", Some(Class::Permanent)),
        (503, "disable", Some(Class::Gone)),
        (503, "whatever", Some(Class::Transient)),
        (200, "disable", None),
    ] {
        let server = Server::saying(status, &[("webhook-delivery", asked)], "").await;
        let outcome = deliver(&sink(to(server.url("/"))), order()).await;
        assert_eq!(outcome.err().map(|failure| failure.class()), expected, "{status} {asked}");
    }
    let said = [("webhook-delivery", "disable"), ("redrive-class", "transient")];
    let server = Server::saying(503, &said, "").await;
    assert_eq!(failure(&sink(to(server.url("/"))), order()).await.class(), Class::Transient);
}
