//! What `status` says about the engine apart from messages: only what is out of the ordinary.

use redrive_api::ConditionView;

use crate::output::count;

/// Details beyond the problems.
pub fn lines(condition: &ConditionView) -> Vec<String> {
    let mut lines = Vec::new();
    if condition.spooled > 0 {
        lines.push(format!(
            "{} records are too large for Kafka: their dead letters are cut, the whole records are in the spool of `dir`",
            count(condition.spooled)
        ));
    }
    if condition.letter_twins > 0 {
        lines
            .push(format!("{} dead letters were written twice after a crash", count(condition.letter_twins)));
    }
    if condition.foreign_letters > 0 {
        lines.push(format!(
            "{} records among the dead letters were not written by Redrive, or are damaged",
            count(condition.foreign_letters)
        ));
    }
    if condition.passed_over > 0 {
        lines.push(format!(
            "{} duplicate records were skipped; another copy of the message was used",
            count(condition.passed_over)
        ));
    }
    lines
}
