//! A group that has lost its offsets: a pipeline that has run before does not choose a start by itself.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use redrive::internal::engine::{Deliver, EngineError, StoreOptions, Verdict};
use redrive_core::{Meta, Reason};
use redrive_kafka::GroupStart;
use redrive_kafka::consume::begin::ran_before;
use redrive_kafka::topics::Topics;
use support::drive::{at, finish_all, messages, settle, take};
use support::{World, wait};

const TIERS: [Duration; 2] = [Duration::from_secs(1), Duration::from_mins(1)];

/// Deletes the offsets, as Kafka does for a group that was empty for a week.
fn forget_offsets(world: &World) {
    let admin: AdminClient<DefaultClientContext> = support::client_at(&world.brokers).create().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
    wait("the group is empty and can be deleted", || {
        let deleted = runtime.block_on(admin.delete_groups(&[&world.cluster.group], &options));
        deleted.is_ok_and(|results| results.iter().all(Result::is_ok))
    });
}

/// Returns a pipeline that has run, without a static member to wait for, and with a backlog written after its offsets
/// were gone.
fn without_offsets(fails: bool) -> World {
    let mut world = World::new(2, &TIERS);
    world.cluster.member = None;
    world.cluster.start = Some(GroupStart::Latest);
    let mut engine = world.open_caught_up(StoreOptions::default());
    world.produce(&messages(0..10));
    let taken = take(&mut engine, at(0), 10);
    settle(&mut engine, taken, |delivery| match delivery.message.id() {
        "m1" if fails => Verdict::Retry { due: at(500), meta: Meta { attempts: 1, ..delivery.meta } },
        "m2" if fails => Verdict::Dead { reason: Reason::Gone, meta: delivery.meta, at: at(1) },
        _ => Verdict::Done,
    });
    if fails {
        let retried = take(&mut engine, at(500), 1);
        settle(&mut engine, retried, |_| Verdict::Done);
    }
    engine.close().unwrap();
    drop(engine);
    forget_offsets(&world);
    world.produce(&messages(10..60));
    world
}

fn refusal(world: &World) -> String {
    match world.stores().engine(&world.pipeline.name, StoreOptions::default()) {
        Err(EngineError::Directory { problem, fix }) => format!("{problem}; {fix}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the backlog is skipped, or everything is repeated"),
    }
}

#[test]
fn a_pipeline_that_has_run_does_not_begin_anew_when_its_offsets_are_gone() {
    for fails in [true, false] {
        let mut world = without_offsets(fails);
        for start in [Some(GroupStart::Latest), Some(GroupStart::Earliest), None] {
            world.cluster.start = start;
            let told = refusal(&world);
            assert!(told.contains(&world.cluster.group) && told.contains("has run before"), "{told}");
            assert!(told.contains("kafka-consumer-groups.sh") && told.contains("--to-latest"), "{told}");
        }
    }
}

#[test]
fn the_command_that_is_printed_says_where_it_goes_on() {
    let world = without_offsets(true);
    let ran = ran_before(&world.cluster, &Topics::of(&world.pipeline)).unwrap().expect("it is noticed");
    let command = &ran.commands()[0];
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/kafka.sh");
    let output = Command::new(script).arg("run").args(command.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let mut engine = world.open(StoreOptions::default());
    let done = finish_all(&mut [&mut engine], at(1_000), 60);
    assert!((10..60).all(|n| done.contains(&format!("m{n}"))), "the backlog is delivered");
    engine.close().unwrap();
}

#[test]
fn a_pipeline_that_is_new_begins_where_start_says_and_also_its_second_member() {
    let mut world = World::new(2, &TIERS);
    world.cluster.member = None;
    world.cluster.start = Some(GroupStart::Latest);
    world.produce(&messages(0..5));
    assert_eq!(ran_before(&world.cluster, &Topics::of(&world.pipeline)).unwrap(), None);
    let mut first = world.open_caught_up(StoreOptions::default());
    let mut second = world.open(StoreOptions::default());
    world.produce(&messages(5..25));
    let done = finish_all(&mut [&mut first, &mut second], at(0), 20);
    assert!(!done.iter().any(|id| ["m0", "m1", "m2", "m3", "m4"].contains(&id.as_str())), "{done:?}");
    first.close().unwrap();
    second.close().unwrap();
}
