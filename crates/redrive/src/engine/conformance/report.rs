//! Runs seeds, shrinks failures and says how to repeat them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use redrive_core::SplitMix64 as Rng;

use super::Open;
use super::check::Violation;
use super::command::Command;
use super::suite::Suite;
use crate::engine::groups::Grouping;
use crate::engine::seam::{AfterDead, DeliveryOrder, Execution, LastEnd, StoreOptions};

/// A failed run, with everything needed to repeat it.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub options: Box<StoreOptions>,
    pub commands: Vec<Command>,
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the engine broke `{}`: {}", self.violation.property, self.violation.detail)?;
        writeln!(f, "seed {}, {:?}; the shortest run found that shows it:", self.seed, self.options)?;
        for (number, command) in self.commands.iter().enumerate() {
            writeln!(f, "  {number:>3} {command:?}")?;
        }
        // The name of the test itself; every engine has its own.
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("conform").to_owned();
        write!(f, "again: REDRIVE_SEED={} cargo test -p redrive {test}", self.seed)
    }
}

/// Runs one seed, which determines the options and `steps` commands. A failure is returned shrunk.
pub fn run(open: Open<'_>, seed: u64, steps: usize) -> Result<(), Failure> {
    let mut rng = Rng::new(seed);
    let options = StoreOptions {
        ordering: if rng.chance(60) { DeliveryOrder::Key } else { DeliveryOrder::None },
        after_dead: if rng.chance(50) { AfterDead::BlockKey } else { AfterDead::Continue },
        dedup: rng.pick(&[None, Some(Duration::from_secs(3)), Some(Duration::from_hours(1))]),
        drain: None,
        // Without suspects, everything else must work the same.
        execution: if seed % 4 == 3 { Execution::Elsewhere } else { Execution::InProcess },
        last_end: LastEnd::Unknown,
        grouping: Grouping::default(),
        letter_options: None,
    };
    let commands: Vec<Command> = (0..steps).map(|_| Command::draw(&mut rng)).collect();
    run_commands(open, options.clone(), &commands).map_err(|violation| {
        let (commands, violation) = shrink(open, &options, commands, violation);
        Failure { seed, options: Box::new(options), commands, violation }
    })
}

/// Runs exactly these commands and then finishes everything.
pub fn run_commands(open: Open<'_>, options: StoreOptions, commands: &[Command]) -> Result<(), Violation> {
    let carry_out = || {
        let harness = open(options.clone());
        let options = harness.options(options);
        let mut suite = Suite::new(harness, options);
        commands.iter().try_for_each(|command| suite.step(command))?;
        suite.finish()
    };
    catch_unwind(AssertUnwindSafe(carry_out)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(Violation { property: "no_panic", detail: text.unwrap_or_default() })
    })
}

/// Leaves out ever smaller parts of the commands as long as the rest still fails.
fn shrink(
    open: Open<'_>,
    options: &StoreOptions,
    mut commands: Vec<Command>,
    mut violation: Violation,
) -> (Vec<Command>, Violation) {
    // Limits the number of tries for engines whose runs take seconds.
    let mut tries = seeds_from_env("REDRIVE_SHRINK").unwrap_or(u64::MAX);
    let mut part = commands.len().div_ceil(2);
    while part > 0 && tries > 0 {
        let mut from = 0;
        let mut smaller = false;
        while from < commands.len() && tries > 0 {
            tries -= 1;
            let mut fewer = commands.clone();
            fewer.drain(from..(from + part).min(commands.len()));
            match run_commands(open, options.clone(), &fewer) {
                Err(found) => {
                    commands = fewer;
                    violation = found;
                    smaller = true;
                }
                Ok(()) => from += part,
            }
        }
        if !smaller || part > 1 {
            part /= 2;
        }
    }
    (commands, violation)
}

/// Runs `seeds` one by one, or only the one given by `REDRIVE_SEED`; panics at the first failure.
pub fn check_seeds(open: Open<'_>, seeds: std::ops::Range<u64>, steps: usize) {
    let seeds = seeds_from_env("REDRIVE_SEED").map_or(seeds, |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(failure) = run(open, seed, steps) {
            panic!("{failure}");
        }
    }
}

/// Reads a number from the environment; panics if the value is not a number.
pub fn seeds_from_env(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}
