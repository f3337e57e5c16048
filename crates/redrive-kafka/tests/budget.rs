//! S3-34, S3-37: a running pipeline on Kafka keeps to its retry budget; what goes beyond it becomes a dead letter at once.

mod support;

use std::time::{Duration, Instant, SystemTime};

use redrive::{Failure, Message, Pipeline, Policy, Reason, Redrive, Time};
use support::{World, message};

const RETRIES_PER_MINUTE: u32 = 5;
/// One in four: more than the budget allows, and less than an outage.
const BAD: u64 = 20;
const ALL: u64 = 80;

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
    let at_the_end = async {
        loop {
            let figures = payments.figures();
            if figures.succeeded + figures.dead.total() == ALL || began.elapsed() > Duration::from_mins(3) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    redrive.run_until(at_the_end).await.unwrap();
    let figures = payments.figures();
    let (exhausted, used_up) =
        (figures.dead.get(Reason::BudgetExhausted), figures.dead.get(Reason::MaxRetries));
    assert_eq!((figures.succeeded, exhausted + used_up), (ALL - BAD, BAD));
    // The budget comes back with time, one retry in twelve seconds.
    let retries_max = u64::from(RETRIES_PER_MINUTE) * (60 + began.elapsed().as_secs()).div_ceil(60);
    assert!(used_up >= 1 && used_up <= retries_max, "{used_up} were retried, at most {retries_max} may be");
    assert_eq!(figures.attempts.total(), ALL + used_up, "what is beyond the budget is not tried again");
}
