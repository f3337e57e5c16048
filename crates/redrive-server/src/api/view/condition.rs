//! The condition of a pipeline's engine, in the API.

use redrive::internal::engine::{Condition, Problem};
use redrive_api::{ConditionView, Partitions, PipelineProblem};

/// Partitions, spooled records, and what needs a person.
pub fn condition(condition: &Condition) -> ConditionView {
    let partitions = condition.partitions;
    ConditionView {
        partitions: Partitions {
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
        problems: condition.problems.iter().map(|problem| pipeline_problem(None, problem)).collect(),
    }
}

/// A problem that keeps messages from moving, with its pipeline if the answer covers all of them.
pub fn pipeline_problem(pipeline: Option<&str>, problem: &Problem) -> PipelineProblem {
    let Problem { kind, place, text } = problem;
    PipelineProblem {
        pipeline: pipeline.map(str::to_owned),
        kind: kind.name().to_owned(),
        place: place.clone(),
        problem: text.clone(),
    }
}
