//! A sink with a limit for the whole pipeline is told its process's share of the work, like the retry budget.

mod broker;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redrive::{Call, Delivery, Pipeline, Policy, Redrive, Sink};
use redrive_kafka::topics::{self, TopicsFault};
use redrive_kafka::{Cluster, KafkaPipeline, KafkaStores, TopicsMode};
use tokio::sync::Notify;

/// The latest share, as owned parts of all parts.
#[derive(Clone, Default)]
struct Sharing(Arc<Mutex<Option<(u32, u32)>>>);

impl Sharing {
    /// Returns its share of the work in percent.
    fn percent(&self) -> Option<u32> {
        self.0.lock().unwrap().map(|(owned, all)| owned * 100 / all)
    }
}

impl Sink for Sharing {
    fn deliver(&self, _: Call) -> Delivery<'_> {
        Box::pin(async { Ok(()) })
    }

    fn set_share(&self, owned: u32, all: u32) {
        *self.0.lock().unwrap() = Some((owned, all));
    }
}

async fn member(cluster: &Cluster, pipeline: &KafkaPipeline, name: &str, sink: Sharing) -> Redrive {
    let state_dir = cluster.state_dir.join(name);
    std::fs::create_dir_all(&state_dir).unwrap();
    let cluster = Cluster { member: Some(name.to_owned()), state_dir, ..cluster.clone() };
    let pipeline = pipeline.clone();
    let build = move || {
        let policy = Policy::tiers(["1s", "5s"]).jitter("none");
        let described = Pipeline::new(&pipeline.name).policy(policy).sink(sink);
        let stores = KafkaStores::new(cluster, vec![pipeline]);
        Redrive::builder().engine(stores).pipeline(described).build().unwrap()
    };
    tokio::task::spawn_blocking(build).await.unwrap()
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
async fn two_members_have_half_of_the_work_each_and_one_that_is_left_has_all() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, pipeline) = (broker::cluster(dir.path()), broker::pipeline(&broker::name("share")));
    broker::create(&cluster, &pipeline.source, 4, &[]).await;
    eventually("the source is known", async || {
        let (made, of) = (cluster.clone(), pipeline.clone());
        let prepare = move || topics::prepare(&made, &of, TopicsMode::Create);
        !matches!(tokio::task::spawn_blocking(prepare).await.unwrap(), Err(TopicsFault::NoSource { .. }))
    })
    .await;
    let (first, second) = (Sharing::default(), Sharing::default());
    let one = member(&cluster, &pipeline, "one", first.clone()).await;
    let two = member(&cluster, &pipeline, "two", second.clone()).await;
    let (stop_one, stop_two) = (Notify::new(), Notify::new());
    let story = async {
        eventually("each has half", async || (first.percent(), second.percent()) == (Some(50), Some(50)))
            .await;
        stop_two.notify_one();
        eventually("the one that is left has all", async || first.percent() == Some(100)).await;
        stop_one.notify_one();
    };
    let (ended, other, ()) =
        tokio::join!(one.run_until(stop_one.notified()), two.run_until(stop_two.notified()), story);
    ended.unwrap();
    other.unwrap();
}
