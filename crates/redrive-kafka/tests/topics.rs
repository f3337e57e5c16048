//! The topics of a pipeline on a real broker: what is missing, what is wrong, what is created.

mod broker;

use std::time::{Duration, Instant};

use broker::{cluster, create, name, pipeline, run_tool};
use redrive_kafka::client::build::Build;
use redrive_kafka::topics::{Topics, TopicsFault, prepare, survey};
use redrive_kafka::{Cluster, KafkaPipeline, TopicsMode};

/// Waits until the broker has applied a change, which it does some time after the tool has ended.
fn wait(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_mins(1), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn names_are_those_of_the_pipeline() {
    let days =
        KafkaPipeline { tiers: vec![Duration::from_secs(5), Duration::from_mins(5)], ..pipeline("orders") };
    let topics = Topics::of(&KafkaPipeline { source: "shop.orders".to_owned(), ..days });
    let names: Vec<_> = topics.owned().into_iter().map(|(_, name)| name).collect();
    assert_eq!(
        names,
        [
            "orders.retry.5s",
            "orders.retry.5m",
            "orders.replay",
            "orders.DLQ",
            "orders.DLQ.state",
            "orders.progress",
            "orders.control"
        ]
    );
    assert_eq!(topics.source, "shop.orders");
    assert!(Topics::is_tier_of("orders", "orders.retry.30s"));
    for other in
        ["orders", "orders.retry", "orders.retry.", "orders.retry.soon", "orders2.retry.5s", "orders.DLQ"]
    {
        assert!(!Topics::is_tier_of("orders", other), "{other}");
    }
}

/// The size of the largest message with our headers, whatever limit the source has for its compressed batches.
const ANY_RECORD_BYTES: i64 = 33_980_928;

#[tokio::test]
async fn the_commands_that_are_printed_make_what_is_missing() {
    let cluster = cluster(&std::env::temp_dir());
    let orders = pipeline(&name("orders"));
    let settings = [("max.message.bytes", "2000000"), ("retention.ms", "3600000")];
    create(&cluster, &orders.source, 3, &settings).await;

    let Err(fault @ TopicsFault::Missing { .. }) = prepare(&cluster, &orders, TopicsMode::Verify) else {
        panic!("nothing was there");
    };
    let text = fault.to_string();
    assert!(
        text.starts_with(&format!("topic {0}.retry.1s is missing (also {0}.retry.5s, ", orders.name)),
        "{text}"
    );

    let found = survey(&cluster, &orders).unwrap();
    assert_eq!(found.missing.len(), 7);
    for planned in &found.missing {
        run_tool(&planned.command(cluster.bootstrap()));
    }
    wait("the topics are known", || prepare(&cluster, &orders, TopicsMode::Verify).is_ok());
    let topics = prepare(&cluster, &orders, TopicsMode::Verify).unwrap();
    assert_eq!(topics, Topics::of(&orders));
    let found = survey(&cluster, &orders).unwrap();
    let tier = &found.found[0];
    assert_eq!((tier.partitions, tier.retention_ms, tier.retention_bytes), (3, -1, -1));
    assert_eq!(tier.max_message_bytes, ANY_RECORD_BYTES);
    assert_eq!(found.found.last().unwrap().cleanup, "compact");
    assert_eq!(found.source.retention_ms, 3_600_000);
}

#[tokio::test]
async fn what_is_missing_is_made_if_that_is_allowed_and_once_is_enough() {
    let cluster = cluster(&std::env::temp_dir());
    let orders = pipeline(&name("orders"));
    create(&cluster, &orders.source, 4, &[]).await;
    let both = [0, 1].map(|_| {
        let (cluster, orders) = (cluster.clone(), orders.clone());
        std::thread::spawn(move || prepare(&cluster, &orders, TopicsMode::Create))
    });
    for one in both {
        assert_eq!(one.join().unwrap().unwrap(), Topics::of(&orders));
    }
    let found = survey(&cluster, &orders).unwrap();
    assert!(found.missing.is_empty() && found.wrong.is_empty(), "{found:?}");
    let (control, others) = found.found.split_last().unwrap();
    assert!(control.partitions == 1 && others.iter().all(|facts| facts.partitions == 4));
}

#[tokio::test]
async fn a_topic_that_would_lose_messages_is_refused_with_the_command_that_helps() {
    let cluster = cluster(&std::env::temp_dir());
    let orders = pipeline(&name("orders"));
    create(&cluster, &orders.source, 2, &[]).await;
    prepare(&cluster, &orders, TopicsMode::Create).unwrap();
    run_tool(&format!(
        "kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {}.retry.1s --add-config retention.ms=86400000",
        cluster.bootstrap(),
        orders.name
    ));
    wait("the setting is known", || prepare(&cluster, &orders, TopicsMode::Verify).is_err());
    // It is not changed even if topics may be created: it was set on purpose.
    let Err(TopicsFault::Wrong { wrong, bootstrap }) = prepare(&cluster, &orders, TopicsMode::Create) else {
        panic!("a tier that expires was accepted");
    };
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].problem.contains("retention.ms=86400000"), "{}", wrong[0].problem);
    run_tool(&wrong[0].command(&bootstrap));
    wait("the setting is known", || prepare(&cluster, &orders, TopicsMode::Verify).is_ok());
}

/// Topics of an earlier version had the source's limit plus our headers. They continue to work, and the warning
/// contains the command.
#[tokio::test]
async fn a_topic_with_room_for_uncompressed_records_only_is_warned_of_and_not_refused() {
    let cluster = cluster(&std::env::temp_dir());
    let orders = pipeline(&name("orders"));
    create(&cluster, &orders.source, 1, &[("max.message.bytes", "2000000")]).await;
    let letters = format!("{}.DLQ", orders.name);
    let of_before = (2_000_000 + 128 * 1024).to_string();
    create(&cluster, &letters, 1, &[("retention.ms", "-1"), ("max.message.bytes", &of_before)]).await;
    prepare(&cluster, &orders, TopicsMode::Create).unwrap();
    let found = survey(&cluster, &orders).unwrap();
    let [warning] = found.warnings.as_slice() else { panic!("{:?}", found.warnings) };
    assert!(warning.starts_with(&format!("{letters} has max.message.bytes=2131072: ")), "{warning}");
    let (_, command) = warning.split_once("; ").unwrap();
    run_tool(command);
    wait("the setting is known", || survey(&cluster, &orders).unwrap().warnings.is_empty());

    // Less than the source accepts uncompressed is still refused.
    let less = command.replace(&ANY_RECORD_BYTES.to_string(), "2000000");
    run_tool(&less);
    wait("the setting is known", || prepare(&cluster, &orders, TopicsMode::Verify).is_err());
    let Err(TopicsFault::Wrong { wrong, .. }) = prepare(&cluster, &orders, TopicsMode::Verify) else {
        panic!("a topic without room for headers was accepted");
    };
    assert!(wrong[0].problem.contains("max.message.bytes=2000000"), "{}", wrong[0].problem);
}

#[tokio::test]
async fn tiers_grow_with_their_source_and_old_ones_are_found() {
    let cluster = cluster(&std::env::temp_dir());
    let orders = pipeline(&name("orders"));
    create(&cluster, &orders.source, 2, &[]).await;
    prepare(&cluster, &orders, TopicsMode::Create).unwrap();
    run_tool(&format!(
        "kafka-topics.sh --bootstrap-server {} --alter --topic {} --partitions 4",
        cluster.bootstrap(),
        orders.source
    ));
    wait("the partitions are known", || prepare(&cluster, &orders, TopicsMode::Verify).is_err());
    let Err(TopicsFault::Wrong { wrong, .. }) = prepare(&cluster, &orders, TopicsMode::Verify) else {
        panic!("two partitions have no tier");
    };
    assert!(wrong.iter().all(redrive_kafka::topics::Wrong::is_growth), "{wrong:?}");
    let retired =
        KafkaPipeline { tiers: vec![Duration::from_secs(5), Duration::from_secs(7)], ..orders.clone() };
    let topics = prepare(&cluster, &retired, TopicsMode::Create).unwrap();
    assert_eq!(topics.retired, [format!("{}.retry.1s", orders.name)]);
    let found = survey(&cluster, &retired).unwrap();
    assert!(found.found.split_last().unwrap().1.iter().all(|facts| facts.partitions == 4), "{found:?}");
    assert!(found.warnings[0].contains("retired tier"), "{:?}", found.warnings);
}

#[test]
fn a_cluster_that_does_not_answer_and_a_source_that_is_not_there_are_told_apart() {
    let cluster = cluster(&std::env::temp_dir());
    let orders = pipeline(&name("orders"));
    let Err(TopicsFault::NoSource { topic }) = prepare(&cluster, &orders, TopicsMode::Create) else {
        panic!("a source was made up");
    };
    assert_eq!(topic, orders.source);
    // Nothing listens on a port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = Cluster { brokers: vec![free.to_string()], ..cluster };
    let fault = prepare(&nobody, &orders, TopicsMode::Verify).unwrap_err();
    assert!(matches!(fault, TopicsFault::Unreachable { .. }), "{fault}");
    assert!(matches!(fault.into(), redrive::internal::engine::EngineError::Unavailable(_)));
}

#[test]
fn passed_on_keys_reach_the_client_but_no_promise_can_be_turned_off() {
    let pass = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let mut cluster = cluster(&std::env::temp_dir());
    cluster.member = Some("redrive-0".to_owned());
    cluster.passed_on = vec![
        pass("session.timeout.ms", "6000"),
        pass("linger.ms", "1"),
        pass("sasl.password", "hunter2"),
        pass("acks", "0"),
        pass("auto.offset.reset", "latest"),
        pass("no.such.key", "hunter2"),
        pass("security.protocol", "hunter2"),
    ];
    let consumer = cluster.consumer("orders");
    assert_eq!(consumer.get("session.timeout.ms"), Some("6000"));
    assert_eq!(consumer.get("auto.offset.reset"), Some("error"));
    assert_eq!(consumer.get("group.instance.id"), Some("redrive-0-orders"));
    assert_eq!(consumer.get("linger.ms"), None);
    let producer = cluster.producer();
    assert_eq!((producer.get("linger.ms"), producer.get("acks")), (Some("1"), Some("all")));
    assert_eq!(producer.get("session.timeout.ms"), None);
    let replayer = cluster.replayer("orders");
    assert_eq!(replayer.get("transactional.id"), Some(&*format!("redrive-replay-{}-orders", cluster.group)));

    let faults = cluster.passed_on_faults();
    let keys: Vec<_> = faults.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["acks", "auto.offset.reset", "no.such.key", "security.protocol"]);
    assert!(!format!("{faults:?} {cluster:?}").contains("hunter2"), "a secret is shown: {faults:?}");
}

#[test]
fn every_client_can_be_made_as_it_is_set_up() {
    let cluster = cluster(&std::env::temp_dir());
    for config in
        [cluster.consumer("a"), cluster.producer(), cluster.replayer("a"), cluster.reader(), cluster.admin()]
    {
        config.create_native_config().unwrap();
    }
    let _: rdkafka::consumer::BaseConsumer = cluster.consumer("a").create().unwrap();
    let _: rdkafka::producer::BaseProducer = cluster.replayer("a").create().unwrap();
    let build = Build::of_this();
    assert!(build.mechanisms.contains(&"PLAIN"), "{build:?}");
    assert!(build.compression.contains(&"lz4"), "{build:?}");
}
