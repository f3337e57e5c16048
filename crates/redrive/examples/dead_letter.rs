//! A message that no retry can deliver becomes a dead letter with its history. After the fix it is replayed.
//!
//! `cargo run --example dead_letter`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redrive::{
    Failure, HandleError, LetterState, MemoryStores, Message, MessageExt, Pipeline, PipelineHandle, Redrive,
};

static KNOWS_EURO: AtomicBool = AtomicBool::new(false);

#[derive(Debug, thiserror::Error)]
#[error("the currency {0} is not known")]
struct UnknownCurrency(String);

async fn book(message: &Message) -> Result<(), Failure> {
    let order: serde_json::Value = message.json().map_err(Failure::permanent)?;
    let currency = order["currency"].as_str().unwrap_or_default();
    if currency == "EUR" && !KNOWS_EURO.load(Ordering::SeqCst) {
        return Err(Failure::permanent(UnknownCurrency(currency.to_owned())));
    }
    Ok(())
}

async fn wait_for(orders: &PipelineHandle, open: u64) -> Result<(), HandleError> {
    loop {
        let counts = orders.counts().await?;
        if counts.letters_open == open && counts.pending() == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn repair(orders: &PipelineHandle) -> Result<(), HandleError> {
    wait_for(orders, 1).await?;
    let letters = orders.letters(Some(LetterState::Open), None, 10).await?;
    for letter in &letters {
        let attempts = letter.history.attempts();
        println!("{} is dead: {} ({} attempt)", letter.message.id(), attempts[0].error, attempts.len());
    }

    // Somebody deploys the fix, then replays the letters.
    KNOWS_EURO.store(true, Ordering::SeqCst);
    let ids: Vec<u64> = letters.iter().map(|letter| letter.id).collect();
    println!("replayed: {:?}", orders.replay(ids).await?);
    wait_for(orders, 0).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pipeline = Pipeline::new("orders").handler(book).on_dead_letter(|letter| {
        // In the process, the cause is still the error that the handler returned, not a text.
        let cause = letter.failure.as_ref().and_then(|failure| failure.downcast_ref::<UnknownCurrency>());
        println!("alert: {letter} (typed: {})", cause.is_some());
    });
    let redrive = Redrive::builder().engine(MemoryStores::new()).pipeline(pipeline).build()?;
    let orders = redrive.pipeline("orders").ok_or("no such pipeline")?;
    let order =
        |id: &str, currency| Message::builder(id).payload(format!(r#"{{"currency":"{currency}"}}"#)).build();
    orders.ingest([order("o-1", "USD")?, order("o-2", "EUR")?]).await?;

    let mut repaired = Ok(());
    let report = redrive.run_until(async { repaired = repair(&orders).await }).await?;
    repaired?;

    assert_eq!(report.total().succeeded, 2);
    assert_eq!(report.total().dead, 1);
    Ok(())
}
