//! Quick runs of scenarios, and their checks.

use std::path::Path;

use redrive_lab::experiments::{Experiment, Finished, Order, OrderedEngine, run};
use redrive_lab::results::Summary;
use redrive_lab::scenario::FigureVerdict;
use redrive_lab::testbed::Silent;

pub(crate) fn order(name: &str, broken: Option<usize>, out: Option<&Path>) -> Order {
    Order {
        name: name.to_owned(),
        file: None,
        seed: 7,
        quick: true,
        broken,
        engine: None,
        postgres: None,
        victim: vec![env!("CARGO_BIN_EXE_redrive-lab-victim").to_owned()],
        out: out.map(Path::to_owned),
        command: format!("redrive lab run {name} --seed 7 --quick"),
    }
}

/// Which expectations a test enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Insist {
    /// All expectations.
    OnAll,
    /// Only expectations that a busy machine cannot miss: a broker on the same cores is just as busy.
    OnWhatSpeedCannotChange,
}

/// Checks that the audit balances and the figures are as expected. A miss that a busy machine alone can cause counts
/// only if every try has one. A run in which even the variant without failures stalled is inconclusive and repeated.
pub(crate) fn must_hold(order: &Order, insist: Insist) -> Summary {
    let name = &order.name;
    let expectations = Experiment::named(name).unwrap().scenario().unwrap().expectations;
    // A range relative to a control is enforced everywhere, but a pause of the machine may hit one of the two only.
    let is_of_speed = |v: &&FigureVerdict| {
        v.depends_on_speed || expectations.iter().any(|e| e.figure == v.figure && e.depends_on_speed)
    };
    let mut tries_left = 4;
    loop {
        tries_left -= 1;
        let Finished { summary, .. } = run(order, &Silent).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(summary.audit_balances(), "{name}: {:#?}", summary.variants);
        let counts = |v: &&FigureVerdict| insist == Insist::OnAll || !v.depends_on_speed;
        let wrong: Vec<_> = summary.verdicts.iter().filter(|v| !v.met).filter(counts).collect();
        let may_be_the_machine = wrong.iter().all(is_of_speed) || control_stalled(&summary);
        if tries_left == 0 || wrong.is_empty() || !may_be_the_machine {
            assert!(wrong.is_empty(), "{name}: {wrong:#?}\n{:#?}", summary.variants);
            return summary;
        }
    }
}

fn control_stalled(summary: &Summary) -> bool {
    let control = summary.variants.iter().find(|variant| variant.name == "no failures");
    control.and_then(|variant| variant.figures.get("stall_p50_share")).is_some_and(|share| *share > 0.1)
}

/// Checks a run on an engine.
pub(crate) fn must_hold_on(name: &str, engine: OrderedEngine, ran_on: &str, insist: Insist) {
    let summary = must_hold(&Order { engine: Some(engine), ..order(name, None, None) }, insist);
    assert_eq!(summary.ran_on, ran_on, "{name}");
}
