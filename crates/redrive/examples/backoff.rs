//! Exponential backoff with jitter, and a Retry-After from the downstream. A virtual clock lets minutes pass in
//! milliseconds.
//!
//! `cargo run --example backoff`

use std::time::Duration;

use redrive::{Failure, LetterState, MemoryStores, Message, Pipeline, Policy, Redrive, VirtualClock};

async fn notify(message: &Message) -> Result<(), Failure> {
    match message.id() {
        // The downstream's Retry-After is the minimum delay.
        "limited" => Err(Failure::rate_limited(Duration::from_mins(2), "429 too many requests")),
        _ => Err(Failure::transient("503 service unavailable")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = Policy::exponential("1s", 2.0, "10s").retries(5).jitter("equal");
    let redrive = Redrive::builder()
        .engine(MemoryStores::new())
        .clock(VirtualClock::default())
        .pipeline(Pipeline::new("push").policy(policy).handler(notify))
        .build()?;
    let push = redrive.pipeline("push").ok_or("no such pipeline")?;
    push.ingest([Message::builder("down").build()?, Message::builder("limited").build()?]).await?;

    let mut waits = Vec::new();
    let look = async {
        while push.counts().await?.letters_open < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for letter in push.letters(Some(LetterState::Open), None, 10).await? {
            let at: Vec<_> = letter.history.attempts().iter().map(|attempt| attempt.at).collect();
            let of_letter: Vec<Duration> = at.windows(2).map(|pair| pair[1].since(pair[0])).collect();
            println!("{}: waited {of_letter:?}, then dead for {}", letter.message.id(), letter.reason);
            waits.push(of_letter);
        }
        Ok::<_, redrive::HandleError>(())
    };
    let mut looked = Ok(());
    redrive.run_until(async { looked = look.await }).await?;
    looked?;

    let seconds = [1, 2, 4, 8, 10].map(Duration::from_secs);
    // Equal jitter: at least half of the delay, at most all of it (plus the time it takes to start).
    assert!(
        waits[0].iter().zip(seconds).all(|(wait, full)| *wait >= full / 2),
        "never before half of the delay"
    );
    assert!(waits[1].iter().all(|wait| *wait >= Duration::from_mins(2)), "never before the Retry-After");
    assert_eq!((waits[0].len(), waits[1].len()), (5, 5));
    Ok(())
}
