//! The shortest use as a library: a downstream that fails twice and then works.

use redrive::{Failure, MemoryStores, Message, Pipeline, Policy, Redrive};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static CALLS: AtomicU32 = AtomicU32::new(0);

async fn charge(message: &Message) -> Result<(), Failure> {
    let call = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    println!("attempt {call} of {}", message.id());
    if call < 3 { Err(Failure::transient("503 service unavailable")) } else { Ok(()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pipeline = Pipeline::new("payments").policy(Policy::tiers(["50ms", "100ms"])).handler(charge);
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build()?;
    let payments = redrive.pipeline("payments").ok_or("no such pipeline")?;
    payments.ingest([Message::builder("p-1").payload(r#"{"amount":1999}"#).build()?]).await?;
    // A service gives its shutdown signal here.
    let report = redrive.run_until(tokio::time::sleep(Duration::from_secs(1))).await?;
    assert_eq!((report.total().succeeded, report.total().retried), (1, 2));
    Ok(())
}
