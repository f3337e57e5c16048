//! Every experiment, in the order of `lab list`.

use super::fault::LabError;
use super::setup::ExperimentSetup;
use crate::results::Outcome;
use crate::scenario::{Scenario, ScenarioFault};

/// A scenario file that is compiled in, and the code that runs it.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    pub name: &'static str,
    text: &'static str,
    pub(super) run: fn(&Scenario, &ExperimentSetup<'_>) -> Result<Outcome, LabError>,
}

macro_rules! experiment {
    ($name:literal, $subject:ident::$module:ident) => {
        Experiment {
            name: $name,
            text: include_str!(concat!("../../../../lab/scenarios/", $name, ".toml")),
            run: super::$subject::$module::run,
        }
    };
}

pub const EXPERIMENTS: &[Experiment] = &[
    experiment!("blocking-vs-non-blocking", failures::blocking),
    experiment!("retry-storm", outages::retry_storm),
    experiment!("poison-growth", failures::poison_growth),
    experiment!("failure-sweep", failures::failure_sweep),
    experiment!("mixed", failures::mixed),
    experiment!("backoff-sweep", delays::backoff_sweep),
    experiment!("misclassification", failures::misclassification),
    experiment!("time-to-dead-letter", delays::time_to_dead_letter),
    experiment!("ordering", failures::ordering),
    experiment!("replay", replay::experiment),
    experiment!("jitter-comparison", delays::jitter_comparison),
    experiment!("budgets", outages::budgets),
    experiment!("metastability", outages::metastability),
    experiment!("bloom", replay::bloom),
    experiment!("false-dead-letters", outages::false_dead_letters),
    experiment!("noisy-endpoint", outages::noisy_endpoint),
    experiment!("lateness", delays::lateness),
    experiment!("kills", durability::kills),
    experiment!("soak-50k", durability::soak),
];

impl Experiment {
    pub fn named(name: &str) -> Option<&'static Self> {
        EXPERIMENTS.iter().find(|experiment| experiment.name == name)
    }

    /// Parses the scenario that is compiled in.
    pub fn scenario(&self) -> Result<Scenario, ScenarioFault> {
        Scenario::parse(self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{AUDIT, Expectation};

    #[test]
    fn every_scenario_file_is_right_and_says_why_it_expects_what_it_expects() {
        for experiment in EXPERIMENTS {
            let scenario =
                experiment.scenario().unwrap_or_else(|fault| panic!("{}: {fault}", experiment.name));
            assert!(!scenario.expectations.is_empty(), "{}", experiment.name);
            for expected in &scenario.expectations {
                let has_range = |min: Option<f64>, max: Option<f64>| min.is_some() || max.is_some();
                assert!(has_range(expected.min, expected.max), "{}: {expected:?}", experiment.name);
                assert!(expected.reason.len() > 20, "{}: {expected:?}", experiment.name);
            }
            assert!(!scenario.broken.is_empty(), "{}: nothing shows that it can fail", experiment.name);
            for broken in &scenario.broken {
                let is_noticed = |expected: &Expectation| {
                    let variant = expected.variant.as_ref();
                    expected.figure == broken.fails && variant.is_none_or(|name| *name == broken.variant)
                };
                let noticed = broken.fails == AUDIT || scenario.expectations.iter().any(is_noticed);
                assert!(noticed, "{}: nothing is expected of `{}`", experiment.name, broken.fails);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_belongs_to_an_experiment() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/scenarios");
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let name = name.strip_suffix(".toml").unwrap_or_else(|| panic!("{name} is no scenario"));
            assert!(Experiment::named(name).is_some(), "{name}");
        }
    }
}
