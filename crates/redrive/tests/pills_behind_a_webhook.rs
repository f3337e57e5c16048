//! A service that some messages kill and that comes back a little later. The messages beside them are innocent: their
//! calls hit a service that breaks off or is down, and that must not make them dead letters.
//!
//! The machine runs against a simulated service on a virtual clock, with breaker and gate at their defaults. It prints
//! every setting with its figures: `cargo test -p redrive --test pills_behind_a_webhook -- --nocapture`.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redrive::internal::dispatch::ProtectionSettings;
use redrive::{Policy, Reason};
use support::service::{Answer, STEP, Service};

const PERMITS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Setting {
    pills: u32,
    restart: Duration,
    tiers: &'static [&'static str],
    per_second: u32,
    messages: u32,
    seed: u64,
}

#[derive(Debug, Default)]
struct Figures {
    innocents_dead: usize,
    pills_dead: usize,
    quarantined: usize,
    deaths: u32,
    calls: usize,
    /// The highest number of calls of one message.
    calls_most: usize,
    took: Duration,
}

fn play(setting: Setting) -> Figures {
    let Setting { pills, restart, tiers, per_second, messages, seed } = setting;
    let policy = Policy::tiers(tiers.iter().copied()).jitter("equal").build().unwrap();
    let settings = ProtectionSettings { one_endpoint: true, ..ProtectionSettings::default() };
    let mut service = Service::new(policy, PERMITS, &settings).with_seed(seed);
    let mut killers = BTreeSet::new();
    while killers.len() < pills as usize {
        killers.insert(service.draw() % u64::from(messages));
    }
    let id = |number: u32| {
        if killers.contains(&u64::from(number)) { format!("pill-{number}") } else { format!("m-{number}") }
    };
    let mut answer = |called: &support::service::Called, _| {
        if called.id.starts_with("pill") { Answer::Dies(restart) } else { Answer::Done }
    };
    let mut brought = 0;
    while brought < messages || !service.is_done() {
        let wanted = (service.since_start().as_millis() as u64 * u64::from(per_second) / 1_000) as u32;
        if wanted.min(messages) > brought {
            service.ingest((brought..wanted.min(messages)).map(id));
            brought = wanted.min(messages);
        }
        let span = if brought < messages { STEP } else { Duration::from_secs(5) };
        service.run(span, &mut answer);
        assert!(service.since_start() < Duration::from_hours(26), "it never ends: {setting:?}");
    }
    service.run(Duration::from_secs(1), &mut answer);
    let mut calls_of: BTreeMap<&str, usize> = BTreeMap::new();
    service.calls.iter().for_each(|called| *calls_of.entry(&called.id).or_default() += 1);
    let is_pill = |parked: &&redrive::internal::dispatch::Parked| parked.message.id().starts_with("pill");
    let (pills_dead, innocents): (Vec<_>, Vec<_>) = service.parked.iter().partition(is_pill);
    Figures {
        innocents_dead: innocents.len(),
        pills_dead: pills_dead.len(),
        quarantined: pills_dead.iter().filter(|parked| parked.reason == Reason::PoisonPill).count(),
        deaths: service.deaths(),
        calls: service.calls.len(),
        calls_most: calls_of.values().copied().max().unwrap_or(0),
        took: service.since_start(),
    }
}

#[test]
fn innocents_survive_however_many_pills_there_are() {
    println!(
        "pills  back in  tiers               rate  innocents dead  pills dead, quarantined  deaths  calls  most  took"
    );
    let mut harmed = Vec::new();
    for tiers in [&["1s", "2s", "4s"][..], &["1s"], &["5s", "30s", "5m"]] {
        for per_second in [10, 100] {
            for restart in [500, 2_000, 10_000].map(Duration::from_millis) {
                for (pills, seed) in [1, 2, 4, 8].into_iter().flat_map(|pills| [(pills, 1), (pills, 2)]) {
                    let messages = 37 * per_second;
                    let setting = Setting { pills, restart, tiers, per_second, messages, seed };
                    let figures = play(setting);
                    let Figures { innocents_dead, pills_dead, quarantined, deaths, calls, calls_most, took } =
                        figures;
                    let (tiers, restart) = (tiers.join(", "), format!("{restart:?}"));
                    println!(
                        "{pills:>5}  {restart:>7}  {tiers:<18} {per_second:>4}/s  {innocents_dead:>14}  \
                         {pills_dead:>10}, {quarantined:>9}  {deaths:>6}  {calls:>5}  {calls_most:>4}  {took:?}"
                    );
                    // A pill kills its receiver at most as often as it has attempts and uncounted resets.
                    let bounded = calls_most <= 4 + 8 + 8 && deaths <= pills * 12;
                    if innocents_dead > 0 || pills_dead < pills as usize || !bounded {
                        harmed.push(setting);
                    }
                }
            }
        }
    }
    assert!(harmed.is_empty(), "{} settings: {harmed:#?}", harmed.len());
}
