//! S3-34, S3-37: a running pipeline on Kafka keeps to its retry budget; what goes beyond it becomes a dead letter at once.

mod support;

use std::time::{Duration, Instant, SystemTime};

use redrive::{Failure, Figures, Message, Pipeline, Policy, Reason, Redrive, Time};
use support::{World, message};

const RETRIES_PER_MINUTE: u32 = 5;
/// One in four: more than the budget allows, and less than an outage.
const BAD: u64 = 20;
const ALL: u64 = 80;

/// Retries that burned an attempt.
fn retries(figures: &Figures) -> u64 {
    figures.retried() - figures.deferred
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_pipeline_keeps_to_its_retry_budget_on_kafka() {
    let began = Instant::now();
    let (world, redrive) = tokio::task::spawn_blocking(|| {
        let world = World::new(1, &[Duration::from_secs(1)]);
        let policy = Policy::tiers(["1s"]).retries_per_minute(RETRIES_PER_MINUTE).jitter("none");
        let pipeline = Pipeline::new(&world.pipeline.name).policy(policy).concurrency(1).handler(
            async |message: &Message| {
                if message.id().starts_with("bad") { Err(Failure::transient("500")) } else { Ok(()) }
            },
        );
        let redrive = Redrive::builder().engine(world.stores()).pipeline(pipeline).build().unwrap();
        let id = |n: u64| if n.is_multiple_of(4) { format!("bad-{n}") } else { format!("good-{n}") };
        let now = Time::from(SystemTime::now());
        let messages: Vec<Message> =
            (0..ALL).map(|n| message(&id(n)).created(now).build().unwrap()).collect();
        world.produce(&messages);
        (world, redrive)
    })
    .await
    .unwrap();
    let payments = redrive.pipeline(&world.pipeline.name).unwrap();
    // Each that fails is retried or given up. What becomes of the retries is another matter: the last of them fail one after
    // another, which looks like an outage, and then they are held.
    let decided = async {
        loop {
            let figures = payments.figures();
            let decided = retries(&figures) + figures.dead.get(Reason::BudgetExhausted);
            if (figures.succeeded == ALL - BAD && decided >= BAD) || began.elapsed() > Duration::from_mins(3)
            {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    redrive.run_until(decided).await.unwrap();
    let figures = payments.figures();
    let (retried, exhausted) = (retries(&figures), figures.dead.get(Reason::BudgetExhausted));
    assert_eq!((figures.succeeded, retried + exhausted), (ALL - BAD, BAD));
    // The budget comes back with time, one retry in twelve seconds.
    let retried_max = u64::from(RETRIES_PER_MINUTE) + began.elapsed().as_secs() / 12 + 1;
    assert!((1..=retried_max).contains(&retried), "{retried} were retried, at most {retried_max} may be");
}
