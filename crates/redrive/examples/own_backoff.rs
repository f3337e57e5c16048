//! A backoff of your own, and typed payloads: the wait depends on the message and on the error, and a payload that does not
//! parse is dead at once. A virtual clock lets hours pass in milliseconds.
//!
//! `cargo run --example own_backoff`

use std::time::Duration;

use redrive::{
    Call, FailedAttempt, Failure, Json, MemoryStores, Message, Pipeline, Policy, Redrive, VirtualClock,
};

#[derive(serde::Deserialize)]
struct Order {
    shop: String,
}

#[derive(Debug, thiserror::Error)]
#[error("the shop is closed for {hours} h")]
struct ShopClosed {
    hours: u64,
}

async fn send(order: Json<Order>, _call: Call) -> Result<(), Failure> {
    match order.shop.as_str() {
        "corner" => Err(Failure::transient(ShopClosed { hours: 9 })),
        _ => Err(Failure::transient("503 service unavailable")),
    }
}

/// When the shop opens again; for other errors the policy decides.
fn until_it_opens(failed: &FailedAttempt<'_>) -> Option<Duration> {
    let closed = failed.failure.downcast_ref::<ShopClosed>()?;
    Some(Duration::from_hours(closed.hours))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = Policy::fixed("30s").retries(1).jitter("none");
    let pipeline = Pipeline::new("orders").policy(policy).backoff(until_it_opens).json_handler(send);
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(VirtualClock::default())
        .pipeline(pipeline)
        .build()?;
    let orders = redrive.pipeline("orders").ok_or("no such pipeline")?;
    let order = |id: &str, payload: &'static str| Message::builder(id).payload(payload).build();
    orders
        .ingest([
            order("o-1", r#"{"shop":"corner"}"#)?,
            order("o-2", r#"{"shop":"online"}"#)?,
            order("o-3", r#"{"shop":7}"#)?,
        ])
        .await?;

    let mut seen = Vec::new();
    let look = async {
        while orders.counts().await?.letters_open < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for letter in orders.letters(None, None, 10).await? {
            let attempts = letter.history.attempts();
            let waited = attempts.windows(2).map(|pair| pair[1].at.since(pair[0].at)).sum::<Duration>();
            let last = attempts.last().map(|attempt| attempt.error.clone()).unwrap_or_default();
            println!("{}: {} attempts, waited {waited:?}: {last}", letter.message.id(), attempts.len());
            seen.push((attempts.len(), waited));
        }
        Ok::<_, redrive::HandleError>(())
    };
    let mut looked = Ok(());
    redrive.run_until(async { looked = look.await }).await?;
    looked?;

    assert!(seen.contains(&(1, Duration::ZERO)), "what does not parse is not tried again");
    assert!(seen.iter().any(|(_, waited)| *waited >= Duration::from_hours(9)));
    Ok(())
}
