//! What the API shows of the condition of a pipeline's engine.

use redrive::engine::{Condition, Problem};
use serde::Serialize;

/// Partitions, what is kept aside, and what needs a person.
#[derive(Debug, Serialize)]
pub struct ConditionView {
    partitions: PartitionsView,
    spooled: u64,
    letter_twins: u64,
    foreign_letters: u64,
    passed_over: u64,
    letters_loading: bool,
    problems: Vec<ProblemView>,
}

/// Partitions of this process by how they stand.
#[derive(Debug, Serialize)]
struct PartitionsView {
    reading: u64,
    blocked: u64,
    stopped: u64,
    unassigned: u64,
}

/// One thing that keeps messages from moving.
#[derive(Debug, Serialize)]
pub struct ProblemView {
    kind: &'static str,
    place: String,
    problem: String,
}

impl From<&Problem> for ProblemView {
    fn from(problem: &Problem) -> Self {
        let Problem { kind, place, text } = problem;
        Self { kind: kind.name(), place: place.clone(), problem: text.clone() }
    }
}

impl From<&Condition> for ConditionView {
    fn from(condition: &Condition) -> Self {
        let partitions = condition.partitions;
        Self {
            partitions: PartitionsView {
                reading: partitions.reading,
                blocked: partitions.blocked,
                stopped: partitions.stopped,
                unassigned: partitions.unassigned,
            },
            spooled: condition.spooled,
            letter_twins: condition.letter_twins,
            foreign_letters: condition.foreign_letters,
            passed_over: condition.passed_over,
            letters_loading: condition.letters_loading,
            problems: condition.problems.iter().map(ProblemView::from).collect(),
        }
    }
}
