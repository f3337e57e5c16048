//! The sink in a pipeline: attempts are counted, the id stays, the class decides.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redrive::{Embedded, LetterState, Message, Pipeline, Policy, Redrive};
use redrive_sinks::webhook::HeaderFrom;

use crate::server::{Server, order, response, sink, to};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_delivery_is_retried_with_the_same_id_and_the_next_attempt_number() {
    let server = Server::answering(|seen| async move {
        match (seen.header("webhook-id"), seen.header("redrive-attempt")) {
            ("o-1", "1") => response(503, &[], "try later"),
            ("bad", _) => response(422, &[("redrive-reason", "no_lines".to_owned())], ""),
            _ => response(200, &[], ""),
        }
    })
    .await;
    let mut options = to(server.url("/hook/s3cr3t-path"));
    options.headers.push(HeaderFrom::setting("authorization", "Bearer s3cr3t-token"));
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let logged = Arc::clone(&log);
    let pipeline = Pipeline::new("orders")
        .policy(Policy::tiers(["20ms", "40ms"]))
        .on_failure(move |failed| logged.lock().unwrap().push(format!("{failed:?}")))
        .sink(sink(options));
    let dir = tempfile::tempdir().unwrap();
    let redrive =
        Redrive::builder().engine(Embedded::open(dir.path()).unwrap()).pipeline(pipeline).build().unwrap();
    let orders = redrive.pipeline("orders").unwrap();
    let bad = Message::builder("bad").payload("{}");
    orders.ingest([order().build().unwrap(), bad.build().unwrap()]).await.unwrap();
    let mut letters = Vec::new();
    let over = async {
        while server.seen().len() < 3 || letters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            letters = orders.letters(Some(LetterState::Open), None, 10).await.unwrap();
        }
    };
    let report = redrive.run_until(over).await.unwrap();
    assert_eq!((report.total().succeeded, report.total().retried), (1, 1));

    let mut seen: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| (seen.header("webhook-id").to_owned(), seen.header("redrive-attempt").to_owned()))
        .collect();
    seen.sort();
    let expected = [("bad", "1"), ("o-1", "1"), ("o-1", "2")];
    assert_eq!(seen, expected.map(|(id, attempt)| (id.to_owned(), attempt.to_owned())));
    let letter = format!("{:?}", letters[0]);
    assert!(letter.contains("422 Unprocessable Entity: no_lines"), "{letter}");

    let log = log.lock().unwrap().join("\n");
    for field in ["status_code", "503", "422", "endpoint_hash", "hmac-sha256:"] {
        assert!(log.contains(field), "{field}: {log}");
    }
    for secret in ["s3cr3t", "127.0.0.1", "http://"] {
        assert!(!log.contains(secret) && !letter.contains(secret), "{secret}: {log} {letter}");
    }
}
