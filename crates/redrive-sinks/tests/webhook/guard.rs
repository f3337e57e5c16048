//! Endpoints from messages cannot reach what only this host can reach.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redrive::Class;
use redrive_core::MessageBuilder;
use redrive_core::Pick;
use redrive_sinks::webhook::{LimitBy, Trouble, WebhookError};
use redrive_sinks::{Names, WebhookOptions, WebhookSink};

use crate::server::{Server, deliver, failure, note, order, response, sink, to};

/// Resolves every name to these addresses.
fn leading_to(addresses: &[&str]) -> Names {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Names::by(move |_| std::future::ready(Ok(addresses.clone())))
}

fn guarded(names: Names) -> WebhookSink {
    sink(WebhookOptions { names, ..WebhookOptions::per_message(Pick::Header("x-endpoint".into())) })
}

fn at(endpoint: &str) -> MessageBuilder {
    order().header("x-endpoint", endpoint.to_owned())
}

async fn is_blocked(sink: &WebhookSink, endpoint: &str) {
    let failed = failure(sink, at(endpoint)).await;
    assert_eq!(failed.class(), Class::Permanent, "{endpoint}");
    let blocked =
        matches!(failed.downcast_ref(), Some(WebhookError::Unanswered { trouble: Trouble::Blocked, .. }));
    assert!(blocked, "{endpoint}: {failed}");
    assert!(failed.chain().starts_with("the endpoint's address is blocked ("), "{failed}");
    assert!(!failed.is_ambiguous());
}

#[tokio::test]
async fn addresses_in_the_url_itself_are_checked() {
    let internal = Server::saying(200, &[], "secret").await;
    let port = internal.address.port();
    let sink = guarded(leading_to(&["127.0.0.1"]));
    for host in [
        "127.0.0.1",
        "127.0.0.2",
        "0.0.0.0",
        "10.0.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.1.1",
        "192.0.2.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:53aa:64c::]",
        "[2001:db8::1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "[ff02::1]",
    ] {
        is_blocked(&sink, &format!("http://{host}:{port}/")).await;
        is_blocked(&sink, &format!("https://{host}:{port}/")).await;
    }
    assert_eq!(internal.connections(), 0);
}

#[tokio::test]
async fn names_that_lead_to_blocked_addresses_are_refused() {
    let internal = Server::saying(200, &[], "secret").await;
    let port = internal.address.port();
    for addresses in [
        &["127.0.0.1"][..],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["169.254.169.254"],
        &["10.0.0.1", "127.0.0.1", "::1"],
    ] {
        let sink = guarded(leading_to(addresses));
        for host in
            ["localhost", "127.0.0.1.nip.io", "metadata.google.internal", "harmless.example", "localhost."]
        {
            is_blocked(&sink, &format!("http://{host}:{port}/")).await;
        }
    }
    assert_eq!(internal.connections(), 0);
}

#[tokio::test]
async fn the_systems_own_names_are_checked_too() {
    let internal = Server::saying(200, &[], "secret").await;
    let sink = guarded(Names::system());
    is_blocked(&sink, &format!("http://localhost:{}/", internal.address.port())).await;
    assert_eq!(internal.connections(), 0);
}

#[tokio::test]
async fn a_name_that_changes_its_address_between_check_and_connect_gains_nothing() {
    let internal = Server::saying(200, &[], "secret").await;
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    // Resolves to a blocked address at first, so that nothing outside is called here, and to loopback afterwards.
    let sink = guarded(Names::by(move |_| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        let address: IpAddr = if first { "10.9.9.9" } else { "127.0.0.1" }.parse().unwrap();
        async move { io::Result::Ok(vec![address]) }
    }));
    for _ in 0..3 {
        is_blocked(&sink, &format!("http://rebind.example:{}/", internal.address.port())).await;
    }
    assert_eq!(lookups.load(Ordering::SeqCst), 3, "one lookup for each connect, and no second one");
    assert_eq!(internal.connections(), 0);
}

#[tokio::test]
async fn a_bad_endpoint_is_permanent_with_a_text_that_does_not_repeat_it() {
    let sink = guarded(leading_to(&["127.0.0.1"]));
    for (endpoint, expected) in [
        ("ftp://secret.example/", "the endpoint is neither http nor https"),
        ("file://secret/passwd", "the endpoint is neither http nor https"),
        ("gopher://secret.example/_x", "the endpoint is neither http nor https"),
        ("secret.example/path", "the endpoint is not an absolute URL"),
        ("http://user:secret@example.com/", "the endpoint has a user or a password in it"),
        ("http://example.com@127.0.0.1/secret", "the endpoint has a user or a password in it"),
        ("http://2130706433/secret", "the endpoint's host is neither a name nor a plain IP address"),
        ("http://0x7f000001/secret", "the endpoint's host is neither a name nor a plain IP address"),
        ("http://0177.0.0.1/secret", "the endpoint's host is neither a name nor a plain IP address"),
        ("http://127.1/secret", "the endpoint's host is neither a name nor a plain IP address"),
    ] {
        let failed = failure(&sink, at(endpoint)).await;
        assert_eq!((failed.class(), failed.chain().as_str()), (Class::Permanent, expected), "{endpoint}");
    }
    let none = failure(&sink, order()).await;
    assert_eq!((none.class(), none.chain().as_str()), (Class::Permanent, "the message names no endpoint"));
}

/// A sink whose messages may name endpoints on this host.
fn open(per_endpoint: u32) -> WebhookSink {
    sink(WebhookOptions {
        allow_private_addresses: true,
        per_endpoint: Some(per_endpoint),
        names: leading_to(&["127.0.0.1"]),
        ..WebhookOptions::per_message(Pick::Header("x-endpoint".into()))
    })
}

#[tokio::test]
async fn a_redirect_into_the_metadata_service_is_not_followed() {
    let location = "http://169.254.169.254/latest/meta-data/";
    let server = Server::saying(302, &[("location", location)], "moved to http://169.254.169.254/x").await;
    let failed = failure(&open(5), at(&server.url("/"))).await;
    assert_eq!(failed.class(), Class::Permanent);
    assert_eq!(failed.chain(), "302 Found: moved to [url]");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn private_addresses_can_be_allowed_and_each_message_goes_to_its_own_endpoint() {
    let (one, two) = (Server::saying(200, &[], "").await, Server::saying(500, &[], "").await);
    let sink = open(5);
    deliver(&sink, at(&format!("http://hooks.example:{}/a", one.address.port()))).await.unwrap();
    let failed = failure(&sink, at(&two.url("/b"))).await;
    let other = failure(&sink, at(&two.url("/c"))).await;
    assert_eq!((one.seen()[0].path.as_str(), two.seen()[0].path.as_str()), ("/a", "/b"));
    assert!(one.seen()[0].header("host").starts_with("hooks.example:"));
    assert_ne!(note(&failed, "endpoint_hash"), note(&other, "endpoint_hash"));
    assert!(!format!("{failed:?}").contains("127.0.0.1"));
}

#[tokio::test]
async fn an_endpoint_gets_no_more_requests_at_once_than_its_places() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, peak) = (Arc::clone(&now), Arc::clone(&most));
    let server = Server::answering(move |_| {
        let (count, peak) = (Arc::clone(&count), Arc::clone(&peak));
        async move {
            peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(30)).await;
            count.fetch_sub(1, Ordering::SeqCst);
            response(200, &[], "")
        }
    })
    .await;
    let sink = Arc::new(open(2));
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (sink, endpoint) = (Arc::clone(&sink), server.url("/a"));
        calls.spawn(async move { deliver(&sink, at(&endpoint)).await });
    }
    assert!(calls.join_all().await.into_iter().all(|outcome| outcome.is_ok()));
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn nothing_of_a_message_is_sent_while_it_waits_for_a_place() {
    let server = Server::answering(|_| std::future::pending()).await;
    let sink = sink(WebhookOptions {
        allow_private_addresses: true,
        per_endpoint: Some(1),
        timeout: Duration::from_hours(1),
        ..WebhookOptions::per_message(Pick::Header("x-endpoint".into()))
    });
    let endpoint = server.url("/slow");
    let second = async {
        while server.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Behind the first, which holds the only permit.
        let call = failure(&sink, at(&endpoint));
        tokio::time::timeout(Duration::from_millis(500), call).await
    };
    tokio::select! {
        _ = failure(&sink, at(&endpoint)) => panic!("nobody answers the first"),
        second = second => assert!(second.is_err(), "it waits, and nothing of it is sent"),
    }
    assert_eq!(server.seen().len(), 1);
}

/// With one URL: a customer's calls wait only for each other, and all others get through.
#[tokio::test]
async fn places_are_counted_by_tenant_or_key_where_that_is_asked_for() {
    for limit_by in [LimitBy::Tenant, LimitBy::Key] {
        let server = Server::answering(|request| async move {
            if request.path.ends_with("/orders") && request.header("webhook-id") == "slow" {
                std::future::pending::<()>().await;
            }
            response(200, &[], "")
        })
        .await;
        let options = WebhookOptions {
            per_endpoint: Some(1),
            limit_by,
            timeout: Duration::from_hours(1),
            ..to(server.url("/orders"))
        };
        let sink = sink(options);
        let of = |id: &str, who: &str| {
            redrive_core::Message::builder(id).payload("{}").tenant(who).key(who.as_bytes().to_vec())
        };
        let others = async {
            while server.seen().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let other = deliver(&sink, of("b-1", "b"));
            tokio::time::timeout(Duration::from_mins(1), other).await.expect("it need not wait").unwrap();
            let behind = deliver(&sink, of("a-2", "a"));
            tokio::time::timeout(Duration::from_millis(200), behind).await
        };
        tokio::select! {
            _ = deliver(&sink, of("slow", "a")) => panic!("nobody answers it"),
            behind = others => assert!(behind.is_err(), "{limit_by:?}: it waits behind its own"),
        }
        assert_eq!(server.seen().len(), 2, "{limit_by:?}");
    }
}
