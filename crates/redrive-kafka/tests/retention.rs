//! `letter_retention` on Kafka: a sweep discards letters that died long ago and records it, and a later start knows.

mod broker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use redrive::actions::{Actions, RETENTION_ACTOR, sweep_hourly};
use redrive::{
    BreakerSettings, Failure, GuardSettings, Message, Pipeline, PipelineHandle, Policy, Redrive, Time,
    VirtualClock,
};
use redrive_kafka::topics::{self, TopicsFault};
use redrive_kafka::{Cluster, KafkaPipeline, KafkaStores, TopicsMode};

const DAY: Duration = Duration::from_hours(24);

/// Waits for the condition, never for time alone.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(2);
    while !holds().await {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn produce(topic: &str, records: &[String]) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", broker::address()).create().unwrap();
    for record in records {
        producer.send(BaseRecord::<str, str>::to(topic).payload(record)).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(Duration::from_secs(30)).unwrap();
}

/// Runs a member that refuses everything, with its own clock.
async fn member(cluster: &Cluster, pipeline: &KafkaPipeline, clock: &Arc<VirtualClock>) -> PipelineHandle {
    let (cluster, pipeline, clock) = (cluster.clone(), pipeline.clone(), Arc::clone(clock));
    let build = move || {
        let handler = |_: Message| async { Err(Failure::permanent("422 no")) };
        let policy = Policy::tiers(["1s", "5s"]).jitter("none");
        let described = Pipeline::new(&pipeline.name).policy(policy).handler_fn(handler);
        let described = described.guard(GuardSettings::off()).breaker(BreakerSettings::off());
        let stores = KafkaStores::new(cluster, vec![pipeline]);
        Redrive::builder().engine(stores).clock(clock).pipeline(described).build().unwrap()
    };
    let redrive = tokio::task::spawn_blocking(build).await.unwrap();
    let handle = redrive.pipelines().next().unwrap();
    tokio::spawn(async move { redrive.run_until(std::future::pending::<()>()).await });
    handle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_died_long_ago_are_discarded_and_recorded_for_the_group() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, pipeline) = (broker::cluster(dir.path()), broker::pipeline(&broker::name("retention")));
    broker::create(&cluster, &pipeline.source, 2, &[]).await;
    eventually("the source is known", async || {
        let (made, of) = (cluster.clone(), pipeline.clone());
        let prepare = move || topics::prepare(&made, &of, TopicsMode::Create);
        !matches!(tokio::task::spawn_blocking(prepare).await.unwrap(), Err(TopicsFault::NoSource { .. }))
    })
    .await;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let clock = Arc::new(VirtualClock::starting_at(Time::from_millis(now.as_millis() as u64)));
    let handle = member(&cluster, &pipeline, &clock).await;
    for (day, open) in [(0, 3), (3, 5)] {
        clock.advance(DAY * day);
        let records: Vec<String> = (0..open - handle.counts().await.unwrap().letters_open)
            .map(|n| format!("{{\"order_id\":\"o-{day}-{n}\"}}"))
            .collect();
        let topic = pipeline.source.clone();
        tokio::task::spawn_blocking(move || produce(&topic, &records)).await.unwrap();
        eventually("they are dead", async || handle.counts().await.unwrap().letters_open == open).await;
    }
    let actions = Actions::open(None).unwrap();
    actions.attach(&handle);
    // The sweep begins 5 s after its start; the next would come an hour later.
    clock.advance(DAY * 3);
    let replays = redrive::replay::Replays::open(None).unwrap();
    tokio::spawn(sweep_hourly(actions.clone(), handle.clone(), DAY * 5, replays, |swept| {
        drop(swept.unwrap())
    }));
    eventually("the old ones are discarded", async || {
        let counts = handle.counts().await.unwrap();
        (counts.letters_discarded, counts.letters_open) == (3, 2)
    })
    .await;
    // Another member sees who did it, and undoes it.
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Cluster {
        member: Some("other".to_owned()),
        state_dir: elsewhere.path().to_owned(),
        ..cluster.clone()
    };
    let second = member(&other, &pipeline, &clock).await;
    let theirs = Actions::open(None).unwrap();
    theirs.attach(&second);
    eventually("the other knows them", async || {
        second.counts().await.is_ok_and(|counts| counts.letters_discarded == 3)
    })
    .await;
    let mut listed = Vec::new();
    eventually("the other knows who did it", async || {
        listed = theirs.list(None, 10).await.unwrap();
        !listed.is_empty()
    })
    .await;
    assert_eq!((listed.len(), listed[0].actor.as_str(), listed[0].letters), (1, RETENTION_ACTOR, 3));
    let undone = theirs.undo(&second, listed[0].id.as_deref().unwrap(), "ops").await.unwrap();
    assert_eq!(undone.restored, 3);
}
