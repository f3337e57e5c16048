//! Headers in addition to the payload: ids, time to live, replays. Observed by a real receiver.

use redrive::{Call, Message, Sink as _, Time};

use crate::server::{Server, deliver, order, sink, to};

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Time::from_millis(since.as_millis() as u64)
}

#[tokio::test]
async fn every_request_has_an_idempotency_key_and_the_time_it_has_left() {
    let server = Server::saying(200, &[], "").await;
    let sink = sink(to(server.url("/")));
    let deadline = now().plus(std::time::Duration::from_hours(1));
    deliver(&sink, Message::builder("orders.7").payload("{}").deadline(deadline)).await.unwrap();
    deliver(&sink, order()).await.unwrap();
    let [first, second] = &server.seen()[..] else { panic!("{:?}", server.seen()) };
    assert_eq!((first.header("webhook-id"), first.header("idempotency-key")), ("orders%2E7", "orders%2E7"));
    let left: u64 = first.header("redrive-ttl").parse().unwrap();
    assert!((1..=3_600).contains(&left), "{left}");
    assert_eq!(first.header("redrive-replay"), "", "it was not replayed");
    assert_eq!((second.header("idempotency-key"), second.header("redrive-ttl")), ("o-1", ""));
}

#[tokio::test]
async fn a_replay_is_marked_and_has_the_same_key() {
    let server = Server::saying(200, &[], "").await;
    let sink = sink(to(server.url("/")));
    let message = order().build().unwrap();
    let call = Call { message, attempt: 1, replays: 2, pipeline: "orders".into(), origin: None };
    sink.deliver(call).await.unwrap();
    let seen = server.seen().remove(0);
    assert_eq!((seen.header("redrive-replay"), seen.header("idempotency-key")), ("2", "o-1"));
}
