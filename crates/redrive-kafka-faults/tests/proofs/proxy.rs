//! Answers get lost: the broker has done what was requested, and the client cannot know.

use std::collections::HashMap;

use redrive_kafka_faults::proxy::{Kind, Proxy};
use redrive_lab::kafka::broker::Broker;
use redrive_lab::kafka::letters;

use super::support::{Flow, World, root};

const PER_SECOND: u64 = 1_000;
/// Answers of each kind that have to be lost before a test may end.
const LOST_MIN: u64 = 10;

#[test]
fn lost_answers_neither_lose_nor_repeat_anything() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let proxy = Proxy::listen().expect("a free port");
    let broker = Broker::up_behind(root(), dir.path(), proxy.port()).expect("a broker starts");
    proxy.forward_to(broker.port());

    // A plain producer first, for which the effect of the proxy is known.
    let world = World::at(&proxy.address(), "answers", 4);
    proxy.lose_one_in(Kind::Produce, 5);
    let loader = world.loader();
    let mut sent = 0;
    while proxy.lost(Kind::Produce) < LOST_MIN {
        loader.write(sent..sent + 100).expect("an idempotent producer sends again");
        sent += 100;
    }
    proxy.lose_one_in(Kind::Produce, 0);
    let records = letters::read(&proxy.address(), &world.name).expect("the topic can be read");
    let mut times: HashMap<u64, u32> = HashMap::new();
    records.iter().for_each(|record| *times.entry(record.order).or_default() += 1);
    assert_eq!((times.len() as u64, records.len() as u64), (sent, sent), "each order is there once");
    println!("{} answers to a plain producer lost, {sent} orders there once each", proxy.lost(Kind::Produce));
    drop(world);

    let world = World::at(&proxy.address(), "proxy", 4).patient();
    let flow = Flow::start(world.loader(), PER_SECOND);
    let member = world.member("one");
    world.wait_until_moving();
    let before = Kind::ALL.map(|kind| proxy.lost(kind));
    proxy.lose_one_in(Kind::Produce, 40);
    proxy.lose_one_in(Kind::OffsetCommit, 4);
    super::support::wait_for("answers to get lost", || {
        Kind::ALL.into_iter().zip(before).all(|(kind, before)| proxy.lost(kind) >= before + LOST_MIN)
    });
    Kind::ALL.into_iter().for_each(|kind| proxy.lose_one_in(kind, 0));
    let lost = Kind::ALL.map(|kind| proxy.lost(kind));
    let produced = flow.end();
    world.wait_until_ended(produced);
    member.stop();
    let told = world.audit(
        produced,
        &format!("{} produce and {} commit answers lost", lost[0] - before[0], lost[1] - before[1]),
    );
    assert_eq!((told.repeats, told.twin_letters, told.over_budget), (0, 0, 0), "{told}");
    drop(world);
    drop(broker);
}
