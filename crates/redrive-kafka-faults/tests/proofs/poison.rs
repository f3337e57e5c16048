//! One poison record in a partition, and the records behind it: blocking and non-blocking mode compared.

use redrive_lab::kafka::trace::Tried;

use super::support::World;

const ORDERS: u64 = 200;
const POISON: u64 = 20;

/// Returns all attempts in order, on one partition where order 20 always fails.
fn attempts(mode: &[&str]) -> Vec<Tried> {
    let world = World::shared("poison", 1);
    world.loader().write(0..ORDERS).expect("orders can be written");
    let poison = POISON.to_string();
    let mut flags = vec!["--member", "one", "--state", "one", "--poison", &poison];
    flags.extend(mode);
    let member = world.member_with(&flags);
    world.wait_until_ended(ORDERS);
    member.stop();
    world.tried()
}

/// Returns the position in the sequence of the `attempt`-th attempt of `order`.
fn place(tried: &[Tried], order: u64, attempt: u8) -> usize {
    let found = tried.iter().position(|one| one.order == order && one.attempt == attempt);
    found.unwrap_or_else(|| panic!("order {order} has no attempt {attempt}"))
}

/// No record waits for the retries of another.
#[test]
fn poison_delays_no_other_record_of_its_partition() {
    let tried = attempts(&[]);
    let second = place(&tried, POISON, 2);
    let behind = (POISON + 1..ORDERS).filter(|order| place(&tried, *order, 1) > second).count();
    assert_eq!(behind, 0, "{behind} records came only after the first retry of the poison record");
    assert_eq!(tried.iter().filter(|one| one.order == POISON).count(), 4);
}

/// The opposite, if configured: every record behind it waits until it is dead.
#[test]
fn in_blocking_mode_the_partition_waits_for_its_poison() {
    let tried = attempts(&["--blocking"]);
    let last = place(&tried, POISON, 4);
    let early = (POISON + 1..ORDERS).filter(|order| place(&tried, *order, 1) < last).count();
    assert_eq!(early, 0, "{early} records overtook the poison record");
}
