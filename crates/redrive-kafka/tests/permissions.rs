//! A user with limited permissions: topics it cannot see are not reported as missing, the printed commands are
//! sufficient, and a forbidden write fails with the reason.

mod support;

use std::path::Path;
use std::time::Duration;

use redrive::internal::engine::{
    Deliver, EngineError, KeepLetters, Query, ReplayAnswer, ReplayJob, ReplayTarget, StoreOptions, TakeGate,
    Verdict,
};
use redrive_core::Reason;
use redrive_kafka::letters::other_groups;
use redrive_kafka::topics::{TopicsFault, acl_commands, prepare, survey};
use redrive_kafka::{Cluster, TopicsMode};
use redrive_lab::kafka::broker::Broker;
use support::drive::{at, messages, settle, take};
use support::{World, commit_as, wait};

const TIERS: [Duration; 1] = [Duration::from_secs(1)];

#[test]
fn the_printed_permissions_are_enough_and_a_replay_that_may_not_write_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let broker = Broker::up_secure(&root, dir.path()).expect("a broker");
    let mut world = World::at(broker.address(), 2, &TIERS);
    let superuser = world.cluster.clone();
    world.cluster = Cluster { topics: TopicsMode::Verify, ..world.cluster };
    world.cluster.brokers = vec![broker.secure("sasl_plaintext").unwrap()];
    for (key, value) in [
        ("security.protocol", "SASL_PLAINTEXT".to_owned()),
        ("sasl.mechanism", "PLAIN".to_owned()),
        ("sasl.username", "redrive".to_owned()),
        ("sasl.password", broker.secure("password").unwrap()),
    ] {
        world.cluster.passed_on.push((key.to_owned(), value));
    }
    let run = |commands: &[String]| {
        for command in commands {
            assert!(command.contains("--allow-principal User:redrive "), "{command}");
            broker.tool(&command.replace(world.cluster.bootstrap(), broker.address())).unwrap();
        }
    };
    prepare(&superuser, &world.pipeline, TopicsMode::Create).unwrap();
    // Once anybody has a permission, everybody else needs one.
    for resource in ["--topic *", "--group *", "--transactional-id *"] {
        let line = format!(
            "kafka-acls.sh --bootstrap-server {} --add --allow-principal User:somebody --operation All {resource}",
            broker.address()
        );
        broker.tool(&line).unwrap();
    }
    wait("the source is not visible", || {
        matches!(survey(&world.cluster, &world.pipeline), Err(TopicsFault::Hidden { .. }))
    });

    // Only the source: the pipeline's own topics are not missing but invisible, and without DescribeConfigs their
    // settings are unknown.
    let source = &world.pipeline.source;
    let see = format!(
        "kafka-acls.sh --bootstrap-server {} --add --allow-principal User:redrive --operation Describe --topic {source}",
        broker.address()
    );
    broker.tool(&see).unwrap();
    let mut found = None;
    wait("the source is visible", || {
        found = survey(&world.cluster, &world.pipeline).ok();
        found.is_some()
    });
    let found = found.unwrap();
    assert!(found.missing.is_empty() && found.hidden.len() == 6, "{found:?}");
    assert_eq!(found.unread, std::slice::from_ref(source));

    let (commands, to_source) = acl_commands(&world.cluster, &world.pipeline);
    run(&commands);
    wait("everything is visible", || {
        let found = survey(&world.cluster, &world.pipeline).unwrap();
        found.hidden.is_empty() && found.unread.is_empty() && found.missing.is_empty()
    });
    world.produce(&messages(0..2));
    let mut engine = world.open_caught_up(StoreOptions::default());
    let taken = take(&mut engine, at(0), 2);
    let letter = taken[0].receipt.seq;
    settle(&mut engine, taken, |delivery| Verdict::Dead {
        reason: Reason::Permanent,
        meta: delivery.meta,
        at: at(1),
    });
    engine.gate_all(TakeGate::Shut).unwrap();
    engine.gate_all(TakeGate::Open).unwrap();
    assert!(engine.condition().problems.is_empty(), "{:?}", engine.condition().problems);

    let job = ReplayJob { id: 1, due: at(2), force: false, target: ReplayTarget::Source };
    let refused = engine.replay(&job, &[letter], at(2).into()).unwrap_err();
    let EngineError::Directory { problem, fix } = refused else { panic!("it goes on for ever: {refused}") };
    assert!(problem.contains("uthorization") && fix.contains("check --kafka"), "{problem}; {fix}");

    run(&to_source);
    let mut answers = Vec::new();
    wait("it may write now", || {
        answers = engine.replay(&job, &[letter], at(2).into()).unwrap_or_default();
        !answers.is_empty()
    });
    assert_eq!(answers, [ReplayAnswer::Replayed]);
    commit_as("audit-export", broker.address(), source, 0, 1);
    let mut groups = Vec::new();
    wait("the other group is seen, although nobody of it is there", || {
        groups = other_groups(&world.cluster, source).unwrap_or_default();
        !groups.is_empty()
    });
    assert_eq!(groups, ["audit-export"]);
    engine.close().unwrap();
}
