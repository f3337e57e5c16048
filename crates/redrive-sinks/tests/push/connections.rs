//! HTTP/2 in practice: few streams, GOAWAY, connections that are cut or half dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redrive::Class;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::apns::{push, sink};
use crate::server::{PushServer, Reply, deliver};

#[tokio::test]
async fn no_more_streams_are_opened_than_the_server_allows_and_another_connection_takes_the_rest() {
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
    let server = PushServer::with_streams(3, move |_| {
        peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        running.fetch_sub(1, Ordering::SeqCst);
        Reply::of(200, "")
    })
    .await;
    let sink = Arc::new(sink(&server, |options| options.connections = 2));
    let pushes = (0..200).map(|n| {
        let sink = Arc::clone(&sink);
        tokio::spawn(async move { deliver(&*sink, push(&format!("m-{n}"), &format!("{n:04x}"))).await })
    });
    for push in pushes.collect::<Vec<_>>() {
        push.await.unwrap().unwrap();
    }
    assert_eq!(server.seen().len(), 200, "each was sent once");
    assert!(server.connections() <= 2, "{}", server.connections());
    assert!(most.load(Ordering::SeqCst) <= 6);
}

#[tokio::test]
async fn a_busy_connection_gets_a_second_one_beside_it_although_it_could_take_more() {
    let server = PushServer::with_streams(1_000, |_| Reply::of(200, "")).await;
    push_many(&server, server.url(), 400).await;
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn pushes_go_on_over_one_connection_when_no_further_one_can_be_opened() {
    let server = PushServer::with_streams(1_000, |_| Reply::of(200, "")).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, behind) = (listener.local_addr().unwrap().port(), server.port);
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let mut server = tokio::net::TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut first, &mut server).await;
        });
        // All further connections are closed at once.
        while listener.accept().await.is_ok() {}
    });
    push_many(&server, format!("https://localhost:{port}"), 400).await;
    assert_eq!(server.connections(), 1);
}

/// Pushes concurrently; each message arrives once.
async fn push_many(server: &PushServer, url: String, pushes: usize) {
    let sink = Arc::new(sink(server, |options| {
        options.connections = 2;
        options.url = url;
    }));
    let pushes: Vec<_> = (0..pushes)
        .map(|n| {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move { deliver(&*sink, push(&format!("m-{n}"), &format!("{n:04x}"))).await })
        })
        .collect();
    let count = pushes.len();
    for push in pushes {
        push.await.unwrap().unwrap();
    }
    assert_eq!(server.seen().len(), count, "each was sent once");
}

#[tokio::test]
async fn a_server_that_goes_away_again_and_again_loses_nothing_and_gets_nothing_twice() {
    let server = PushServer::start(|_| Reply::of(200, "")).await;
    let sink = Arc::new(sink(&server, |_| {}));
    for round in 0..20 {
        let pushes: Vec<_> = (0..25)
            .map(|n| {
                let sink = Arc::clone(&sink);
                let message = push(&format!("m-{round}-{n}"), &format!("{round:02x}{n:02x}"));
                tokio::spawn(async move { deliver(&*sink, message).await })
            })
            .collect();
        server.go_away();
        for push in pushes {
            // An undelivered message uses up no attempt: it is known that it was not processed.
            if let Err(failure) = push.await.unwrap() {
                assert_eq!((failure.class(), failure.is_ambiguous()), (Class::Reconnect, false), "{failure}");
            }
        }
    }
    let mut paths: Vec<_> = server.seen().into_iter().map(|seen| seen.path).collect();
    let all = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), all, "no device got a push twice");
    assert!(server.connections() > 1);
}

/// Handles frames directly, for behaviour that a library does not support.
async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, u8, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).await.ok()?;
    Some((head[3], head[4], body))
}

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const SETTINGS_ACK: &[u8] = &[0, 0, 0, 4, 1, 0, 0, 0, 0];
/// GOAWAY without an error; the last stream is 0, so none was processed.
const GO_AWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const HEADERS: u8 = 1;
const PING: u8 = 6;
const PING_ACK: &[u8] = &[0, 0, 8, PING, 1, 0, 0, 0, 0];

/// How the server treats the first request of each connection.
#[derive(Clone, Copy)]
enum Then {
    GoAway,
    Cut,
    Nothing,
}

/// Accepts connections, answers pings until the first request, and never answers a request. Pushes go to it instead of
/// `server`.
async fn raw(server: &mut PushServer, then: Then) -> Arc<AtomicU32> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    server.port = listener.local_addr().unwrap().port();
    let (acceptor, requests) = (server.authority.acceptor.clone(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.ok()?;
                stream.read_exact(&mut [0; 24]).await.ok()?;
                stream.write_all(SETTINGS).await.ok()?;
                stream.write_all(SETTINGS_ACK).await.ok()?;
                loop {
                    let (kind, flags, body) = read_frame(&mut stream).await?;
                    if (kind, flags) == (PING, 0) {
                        stream.write_all(&[PING_ACK, &body].concat()).await.ok()?;
                    }
                    if kind != HEADERS {
                        continue;
                    }
                    counted.fetch_add(1, Ordering::SeqCst);
                    match then {
                        Then::GoAway => {
                            stream.write_all(GO_AWAY).await.ok()?;
                            stream.flush().await.ok()?;
                            stream.shutdown().await.ok()?;
                            return Some(());
                        }
                        Then::Cut => return Some(()),
                        Then::Nothing => std::future::pending::<()>().await,
                    }
                }
            });
        }
    });
    requests
}

#[tokio::test]
async fn a_request_above_the_last_stream_of_a_goaway_is_sent_again_on_new_connections_and_burns_nothing() {
    let mut server = PushServer::start(|_| Reply::of(200, "")).await;
    let requests = raw(&mut server, Then::GoAway).await;
    let failure = deliver(&sink(&server, |_| {}), push("m", "00ab")).await.unwrap_err();
    assert_eq!((failure.class(), failure.is_ambiguous()), (Class::Reconnect, false), "{failure}");
    assert_eq!(requests.load(Ordering::SeqCst), 3, "a few connections are tried, not endlessly many");
}

#[tokio::test]
async fn a_connection_that_is_cut_after_a_request_leaves_it_ambiguous_and_counted() {
    let mut server = PushServer::start(|_| Reply::of(200, "")).await;
    let requests = raw(&mut server, Then::Cut).await;
    let failure = deliver(&sink(&server, |_| {}), push("m", "00ab")).await.unwrap_err();
    assert_eq!((failure.class(), failure.is_ambiguous()), (Class::Transient, true), "{failure}");
    assert_eq!(requests.load(Ordering::SeqCst), 1, "it may have had its effect, so it is not repeated here");
}

#[tokio::test]
async fn a_connection_that_answers_no_ping_is_given_up_within_ten_seconds() {
    let mut server = PushServer::start(|_| Reply::of(200, "")).await;
    let requests = raw(&mut server, Then::Nothing).await;
    let sink = Arc::new(sink(&server, |options| options.timeout = Duration::from_mins(5)));
    let sending = {
        let sink = Arc::clone(&sink);
        tokio::spawn(async move { deliver(&*sink, push("m", "00ab")).await })
    };
    while requests.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Nothing more arrives from here on, so the clock may run ahead.
    tokio::time::pause();
    let began = Instant::now();
    let failure = sending.await.unwrap().unwrap_err();
    assert!(began.elapsed() <= Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!((failure.class(), failure.is_ambiguous()), (Class::Transient, true), "{failure}");
}

#[tokio::test]
async fn a_server_that_is_not_there_or_not_trusted_ends_no_message() {
    let server = PushServer::start(|_| Reply::of(200, "")).await;
    let untrusted = sink(&server, |options| options.ca_file = None);
    let failure = deliver(&untrusted, push("m", "00ab")).await.unwrap_err();
    assert_eq!((failure.class(), failure.is_ambiguous()), (Class::Transient, false), "{failure}");
    assert!(failure.chain().starts_with("TLS: "), "{failure}");
    let absent = sink(&server, |options| options.url = "https://localhost:1".into());
    let failure = deliver(&absent, push("m", "00ab")).await.unwrap_err();
    assert_eq!((failure.class(), failure.is_ambiguous()), (Class::Transient, false), "{failure}");
}
