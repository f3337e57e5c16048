//! The table of subscriptions belongs to the group: what one member learns, the others know, and so does one that
//! starts later.

mod broker;

use std::time::{Duration, Instant};

use redrive::Time;
use redrive::internal::subscriptions::{Admission, Answer, EndpointId, Purge, Subscriptions};
use redrive_kafka::group::subscriptions::SubscriptionTopic;
use redrive_kafka::topics::{self, Role, Topics, TopicsFault};
use redrive_kafka::{Cluster, KafkaPipeline, TopicsMode};

const GONE: Answer<'_> = Answer::Gone { status: Some(410), reason: "410 Gone" };

fn now() -> Time {
    Time::from_millis(1_700_000_000_000)
}

fn id(number: u64) -> EndpointId {
    EndpointId::from_number(number)
}

async fn prepared(dir: &tempfile::TempDir) -> (Cluster, KafkaPipeline) {
    let cluster = broker::cluster(dir.path());
    let pipeline = KafkaPipeline { subscriptions: true, ..broker::pipeline(&broker::name("push")) };
    broker::create(&cluster, &pipeline.source, 3, &[]).await;
    // It takes a moment until the whole cluster knows a new topic.
    eventually("the source is known", async || {
        let (made, of) = (cluster.clone(), pipeline.clone());
        let prepare = move || topics::prepare(&made, &of, TopicsMode::Create);
        match tokio::task::spawn_blocking(prepare).await.unwrap() {
            Err(TopicsFault::NoSource { .. }) => false,
            prepared => prepared.map(|_| true).unwrap(),
        }
    })
    .await;
    (cluster, pipeline)
}

async fn member(cluster: &Cluster, pipeline: &KafkaPipeline, purge: Purge) -> Subscriptions {
    let (cluster, pipeline) = (cluster.clone(), pipeline.clone());
    let open = move || {
        let table = Subscriptions::new(&pipeline.name, purge);
        table.open(Box::new(SubscriptionTopic::open(&cluster, &pipeline).unwrap())).unwrap();
        table
    };
    tokio::task::spawn_blocking(open).await.unwrap()
}

/// Waits for the condition, never for time alone.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(2);
    while !holds().await {
        assert!(Instant::now() < until, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_member_purges_the_others_do_not_call_nor_one_that_starts_later() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, pipeline) = prepared(&dir).await;
    let first = member(&cluster, &pipeline, Purge::AtOnce).await;
    let second = member(&cluster, &pipeline, Purge::AtOnce).await;
    first.answered(id(1), GONE, now()).await;
    assert_eq!(first.counts(now()).unwritten, 0);
    eventually("the second member knows of the purge", async || {
        matches!(second.admit(id(1), None, now()).await, Admission::Purged(_))
    })
    .await;
    let third = member(&cluster, &pipeline, Purge::AtOnce).await;
    assert!(matches!(third.admit(id(1), None, now()).await, Admission::Purged(_)));
    assert_eq!(third.admit(id(2), None, now()).await, Admission::Call);

    third.undo(&id(1).to_string(), now()).await.unwrap();
    eventually("the first member calls it again", async || {
        first.admit(id(1), None, now()).await == Admission::Call
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guard_counts_the_purges_of_all_members_and_stops_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, pipeline) = prepared(&dir).await;
    let first = member(&cluster, &pipeline, Purge::AtOnce).await;
    let second = member(&cluster, &pipeline, Purge::AtOnce).await;
    for number in 0..10 {
        first.answered(id(number), GONE, now()).await;
    }
    eventually("the second member has read them", async || second.counts(now()).purged == 10).await;
    second.answered(id(100), GONE, now()).await;
    assert!(second.counts(now()).stopped.is_some(), "ten may go whatever their share, and ten went");
    eventually("the first member stops", async || first.counts(now()).stopped.is_some()).await;
    first.resume(now()).await.unwrap();
    eventually("the second member goes on", async || second.counts(now()).stopped.is_none()).await;
}

/// Each member used to count only subscriptions that it had pushed to, and a fifth too few of them after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn members_estimate_together_how_many_are_active_and_so_does_one_that_starts_later() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, pipeline) = prepared(&dir).await;
    let random = |number: u64| EndpointId::from_number(redrive_core::SplitMix64::new(number).draw());
    let first = member(&cluster, &pipeline, Purge::AtOnce).await;
    let second = member(&cluster, &pipeline, Purge::AtOnce).await;
    for number in 0..600 {
        first.answered(random(number), Answer::Delivered, now()).await;
        second.answered(random(10_000 + number), Answer::Delivered, now()).await;
    }
    // The last write of each contains what the other's latest write left out.
    let close = |active: u64| active.abs_diff(1_200) < 60;
    eventually("both know of all", async || {
        first.answered(random(0), Answer::Delivered, now()).await;
        second.answered(random(0), Answer::Delivered, now()).await;
        close(first.counts(now()).active) && close(second.counts(now()).active)
    })
    .await;
    let before = first.counts(now()).active.max(second.counts(now()).active);
    drop((first, second));
    let third = member(&cluster, &pipeline, Purge::AtOnce).await;
    let active = third.counts(now()).active;
    assert!(active <= before && active >= before - before / 50, "{active} of {before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topic_is_compacted_has_one_partition_and_is_made_only_where_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, pipeline) = prepared(&dir).await;
    let (of, asked) = (pipeline.clone(), cluster.clone());
    let found = tokio::task::spawn_blocking(move || topics::survey(&asked, &of)).await.unwrap().unwrap();
    let name = format!("{}.subscriptions", pipeline.name);
    let facts = found.found.iter().find(|facts| facts.name == name).expect("it was made");
    assert_eq!((facts.partitions, facts.cleanup.as_str()), (1, "compact"));
    let without = Topics::of(&KafkaPipeline { subscriptions: false, ..pipeline });
    assert!(without.owned().iter().all(|(role, _)| *role != Role::Subscriptions));
}
