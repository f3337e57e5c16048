//! Several customers with endpoints at one origin, as behind a shared gateway: failures of one customer must not stop
//! deliveries to the others, and an unreachable origin is in cooldown for all of them.

mod support;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use redrive::{
    Call, Delivery, Endpoint, Failure, FailureKind, MemoryStores, Message, Pipeline, Redrive, Sink,
};
use support::{guarded, quick, until};

/// A sink with a single origin. Messages are named `ENDPOINT-NUMBER`, and endpoints of `evil` fail.
#[derive(Clone)]
struct Gateway {
    failure: fn() -> Failure,
    delivered: Arc<Mutex<Vec<String>>>,
}

impl Sink for Gateway {
    fn deliver(&self, call: Call) -> Delivery<'_> {
        Box::pin(async move {
            if call.message.id().starts_with("evil") {
                return Err((self.failure)());
            }
            self.delivered.lock().unwrap().push(call.message.id().to_owned());
            Ok(())
        })
    }

    fn per_endpoint(&self) -> Option<u32> {
        Some(5)
    }

    fn endpoint(&self, message: &Message) -> Option<Endpoint> {
        let mut hasher = DefaultHasher::new();
        message.id().split('-').next().hash(&mut hasher);
        Some(Endpoint { origin: 1, endpoint: hasher.finish() })
    }
}

fn message(id: String, tenant: Option<&str>) -> Message {
    let message = Message::builder(id).payload("{}");
    let message = match tenant {
        Some(tenant) => message.tenant(tenant),
        None => message,
    };
    message.build().unwrap()
}

/// Lets 40 endpoints of one customer fail, then sends a message to another customer. Returns whether it was delivered
/// and not deferred.
async fn neighbour_is_served(failure: fn() -> Failure, tenants: bool) -> bool {
    let sink = Gateway { failure, delivered: Arc::default() };
    let pipeline = Pipeline::new("hooks").policy(quick(1)).sink(sink.clone());
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build().unwrap();
    let handle = redrive.pipeline("hooks").unwrap();
    let (evil, good) = if tenants { (Some("evil"), Some("good")) } else { (None, None) };
    handle.ingest((0..40).map(|number| message(format!("evil{number}-0"), evil))).await.unwrap();
    let story = async {
        // No call is running any more: each message has failed or was deferred.
        until(&handle, |counts| counts.ready + counts.in_flight == 0).await;
        handle.ingest([message("good-0".to_owned(), good)]).await.unwrap();
        until(&handle, |counts| counts.ready + counts.in_flight == 0).await;
    };
    guarded(redrive.run_until(story)).await.unwrap();
    *sink.delivered.lock().unwrap() == ["good-0"]
}

fn answered() -> Failure {
    Failure::transient("503").of_kind(FailureKind::Status(503))
}

fn unreachable() -> Failure {
    Failure::transient("connection refused").of_kind(FailureKind::Refused)
}

#[tokio::test]
async fn a_customer_whose_endpoints_fail_does_not_stop_its_neighbours() {
    assert!(neighbour_is_served(answered, true).await, "by tenant");
    assert!(neighbour_is_served(answered, false).await, "without tenants");
}

#[tokio::test]
async fn an_origin_that_cannot_be_reached_is_left_alone_for_all() {
    assert!(!neighbour_is_served(unreachable, true).await);
    assert!(!neighbour_is_served(unreachable, false).await);
}
