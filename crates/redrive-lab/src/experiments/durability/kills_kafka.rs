//! Kills on Kafka: this process produces to the topic that the killed one consumes, so that unacknowledged messages
//! survive.

#[cfg(feature = "kafka")]
pub(super) use with_kafka::play;

#[cfg(not(feature = "kafka"))]
pub(super) fn play(
    _: &super::kills::KillParameters,
    _: &str,
    _: &super::super::setup::ExperimentSetup<'_>,
    _: crate::testbed::Stage<'_>,
) -> Result<Option<(crate::testbed::victim::VictimOrder, crate::testbed::Scratch)>, crate::testbed::Error> {
    Err("this build has no Kafka engine; build it with the feature `kafka`".into())
}

#[cfg(feature = "kafka")]
mod with_kafka {
    use std::collections::HashSet;
    use std::time::{Duration, Instant};

    use super::super::super::setup::ExperimentSetup;
    use super::super::kills::{KillParameters, LIFE_MAX, LOOK, Victim};
    use crate::fate::Fate;
    use crate::kafka::load::Loader;
    use crate::kafka::topics::{self, Lag, Topic};
    use crate::mark;
    use crate::testbed::kafka::{SOURCE_SETTINGS, connecting};
    use crate::testbed::trace::EngineCounts;
    use crate::testbed::victim::{self, VictimOrder, VictimTopic};
    use crate::testbed::{Error, Load, Scratch, Stage};

    const PARTITIONS: u32 = 4;

    /// Once every id has had a call, the offsets must be committed within this time.
    const COMMITTED_WITHIN: Duration = Duration::from_secs(30);

    /// Runs and kills processes, then runs a last one to its end; `None` if interrupted.
    pub(in super::super) fn play(
        p: &KillParameters,
        brokers: &str,
        setup: &ExperimentSetup<'_>,
        stage: Stage<'_>,
    ) -> Result<Option<(VictimOrder, Scratch)>, Error> {
        let scratch = Scratch::new()?;
        let name = scratch.path().file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let mut order = VictimOrder {
            dir: scratch.path().to_owned(),
            seed: setup.seed,
            rate: p.rate,
            // Each process lives for the time of its calls and as long again. The last one needs work too: it ends
            // when every id has had a call, and only then commits what earlier ones had finished.
            messages: p.calls_per_life() * (3 * u64::from(p.kills) + 8),
            concurrency: p.concurrency,
            latency_ms: p.latency.0.as_millis() as u64,
            durable: p.durable,
            forgets: p.forgets,
            life: 0,
            kafka: Some(VictimTopic {
                brokers: brokers.to_owned(),
                topic: name.clone(),
                partitions: PARTITIONS,
            }),
        };
        let topic = |name, partitions| Topic { name, partitions, settings: &SOURCE_SETTINGS };
        let first = connecting(&name);
        topics::create(brokers, &[topic(&name, PARTITIONS.cast_signed()), topic(&first, 1)])?;
        let played = lives(p, &mut order, brokers, &name, setup, stage);
        let found = topics::of_run(brokers, &name)?;
        topics::delete(brokers, &found.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(played?.then_some((order, scratch)))
    }

    /// Returns `false` if interrupted.
    fn lives(
        p: &KillParameters,
        order: &mut VictimOrder,
        brokers: &str,
        name: &str,
        setup: &ExperimentSetup<'_>,
        stage: Stage<'_>,
    ) -> Result<bool, Error> {
        let loader = Loader::new(brokers, name, u64::from(PARTITIONS), &[])?;
        loader.connect(&connecting(name))?;
        let mut sent = 0;
        for life in 0..=p.kills {
            order.life = life;
            stage.share(f64::from(life) / f64::from(p.kills + 1));
            let mut victim = Victim::start(setup.victim, order)?;
            let began = Instant::now();
            let mut goes_on = || -> Result<bool, Error> {
                if began.elapsed() > LIFE_MAX {
                    return Err("a life has lasted ten minutes".into());
                }
                match victim.0.try_wait()? {
                    Some(ended) => {
                        Err(format!("the process that was to be killed has ended: {ended}").into())
                    }
                    None => Ok(!stage.is_interrupted()),
                }
            };
            while !order.ready(life).exists() {
                if !goes_on()? {
                    return Ok(false);
                }
                std::thread::sleep(LOOK);
            }
            // Messages arrive while it runs, as on the embedded engine.
            let (first, reads_since) = (sent, Instant::now());
            let mut enough_since = None;
            loop {
                if !goes_on()? {
                    return Ok(false);
                }
                sent = send(&loader, order, first, sent, reads_since.elapsed())?;
                let is_over = if life < p.kills {
                    // The backlog from the restart is processed at once, much faster than offsets are committed. A
                    // kill at that moment would say nothing about the rate, so wait for another `life`.
                    let has_enough = victim::count(&order.done(life)) >= p.calls_per_life();
                    let since = enough_since.or(has_enough.then(Instant::now));
                    enough_since = since;
                    since.is_some_and(|since| since.elapsed() >= p.life.0)
                } else {
                    sent == order.messages && all_done(order)?
                };
                if is_over {
                    break;
                }
            }
            if life == p.kills {
                loader.drain()?;
                // The last process repeats what earlier ones had finished but not committed.
                let done_since = Instant::now();
                while lag(brokers, name)? > 0 && done_since.elapsed() < COMMITTED_WITHIN {
                    std::thread::sleep(LOOK);
                }
                std::fs::write(order.stop(), "")?;
                let ended = victim.0.wait()?;
                if !ended.success() {
                    return Err(format!("the last life did not come to its end: {ended}").into());
                }
            }
        }
        // Ask the broker, since every process counted only its own.
        let pending = lag(brokers, name)?;
        let letters = topics::reach(brokers, &format!("{name}.DLQ")).unwrap_or_default();
        let letters = letters.iter().map(|(_, next)| next.unsigned_abs()).sum();
        let counts = EngineCounts { accepted: loader.written(), pending, letters };
        std::fs::write(order.counts(), serde_json::to_vec(&counts)?)?;
        Ok(true)
    }

    /// The group's uncommitted messages, as reported by the broker.
    fn lag(brokers: &str, name: &str) -> Result<u64, Error> {
        Ok(Lag::of(brokers, name, name)?.look()?.lag().unsigned_abs())
    }

    /// Produces everything that is due by now; returns the total number sent.
    fn send(
        loader: &Loader,
        order: &VictimOrder,
        first: u64,
        sent: u64,
        elapsed: Duration,
    ) -> Result<u64, Error> {
        let all = Duration::from_secs_f64(order.messages as f64 / order.rate);
        let load = Load::steady(order.seed, order.rate, all);
        let due = (first + load.arrived_by(elapsed)).clamp(sent, order.messages);
        for number in sent..due {
            let payload = mark::order(&load.id(number), load.key(number), number, 0, Fate::Success);
            let partition = (number % u64::from(PARTITIONS)) as i32;
            loader.send_to(partition, &format!("c-{}", load.key(number)), &payload)?;
        }
        loader.rest(LOOK);
        Ok(due)
    }

    /// Whether every id has had a call in any process.
    fn all_done(order: &VictimOrder) -> Result<bool, Error> {
        let lives = || (0..=order.life).map(|life| order.done(life));
        if lives().map(|path| victim::count(&path)).sum::<u64>() < order.messages {
            return Ok(false);
        }
        let mut ids = HashSet::new();
        for path in lives() {
            ids.extend(victim::numbers(&path)?);
        }
        Ok(ids.len() as u64 >= order.messages)
    }
}
