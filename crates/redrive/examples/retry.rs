//! A downstream that fails twice and then works: the message is retried and delivered.
//!
//! `cargo run --example retry`

use std::sync::atomic::{AtomicU32, Ordering};

use redrive::{Failure, MemoryStores, Message, Pipeline, Policy, Redrive};
use tokio::sync::Notify;

static CALLS: AtomicU32 = AtomicU32::new(0);
static DELIVERED: Notify = Notify::const_new();

/// Any error becomes a transient failure by `?` or `Failure::transient`; transient failures are retried.
async fn charge(message: &Message) -> Result<(), Failure> {
    let call = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    println!("attempt {call} of {}", message.id());
    if call < 3 {
        return Err(Failure::transient("503 service unavailable"));
    }
    DELIVERED.notify_one();
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .pipeline(Pipeline::new("payments").policy(Policy::tiers(["50ms", "100ms", "200ms"])).handler(charge))
        .build()?;
    let payments = redrive.pipeline("payments").ok_or("no such pipeline")?;
    payments.ingest([Message::builder("p-1").payload(r#"{"amount":1999}"#).build()?]).await?;

    // A service would give its shutdown signal here.
    let report = redrive.run_until(DELIVERED.notified()).await?;
    println!("{report}");

    assert_eq!(report.total().succeeded, 1);
    assert_eq!(report.total().retried, 2);
    Ok(())
}
