//! A pause belongs to the group: it holds for members that join, over a rebalance and over a restart.

mod support;

use std::time::Duration;

use redrive::internal::engine::{Deliver, Delivery, Query, StoreOptions, TakeGate};
use redrive_kafka::KafkaEngine;
use redrive_kafka::group::control;
use redrive_kafka::topics::Topics;
use support::drive::{at, finish_all, messages};
use support::{World, wait};

const TIERS: [Duration; 1] = [Duration::from_secs(1)];

fn took(engine: &mut KafkaEngine) -> Vec<Delivery> {
    let mut out = Vec::new();
    engine.poll(&mut Vec::new()).unwrap();
    engine.take(at(0), 100, &mut out).unwrap();
    out
}

/// A member that joined while all others were paused used to deliver what the rebalance gave it.
#[test]
fn a_member_that_joins_a_paused_group_delivers_nothing_until_any_member_is_resumed() {
    let mut world = World::new(2, &TIERS);
    world.cluster.member = None;
    let mut first = world.open_caught_up(StoreOptions::default());
    first.gate_all(TakeGate::Shut).unwrap();
    world.produce(&messages(0..20));

    let mut second = world.open(StoreOptions::default());
    wait("the second has its share, and has read it", || {
        assert!(took(&mut first).is_empty() && took(&mut second).is_empty());
        second.has_caught_up() && first.has_caught_up() && second.counts().ready == 10
    });
    assert_eq!([first.shared_gate(), second.shared_gate()], [Some(TakeGate::Shut); 2]);
    let pause = control::read(&world.cluster, &Topics::of(&world.pipeline)).unwrap();
    assert!(pause.is_some_and(|pause| !pause.at.is_empty()));

    // The partitions of the first go to a member that only heard of the pause.
    first.close().unwrap();
    drop(first);
    wait("the second has everything", || {
        assert!(took(&mut second).is_empty());
        second.has_caught_up() && second.counts().ready == 20
    });
    let mut third = world.open(StoreOptions::default());
    wait("the third knows", || {
        assert!(took(&mut second).is_empty() && took(&mut third).is_empty());
        third.has_caught_up() && third.shared_gate() == Some(TakeGate::Shut)
    });

    second.gate_all(TakeGate::Open).unwrap();
    let done = finish_all(&mut [&mut second, &mut third], at(0), 20);
    assert_eq!(done.len(), 20);
    assert_eq!(third.shared_gate(), Some(TakeGate::Open));
    third.close().unwrap();
    second.close().unwrap();
}
