//! Results that are committed, the runs that a scenario should have, and how pages link to them.

use std::path::{Path, PathBuf};

use super::summary::Summary;

/// Where a result is, and what it says.
pub(super) type Committed = (PathBuf, Summary);

/// A scenario, and the runs it should have: where each ran, as [`Summary::ran_on`] says it, and its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioRuns {
    pub name: String,
    pub title: String,
    pub runs: Vec<(String, String)>,
}

/// A path as links write it.
pub(super) fn below(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// The anchor of a heading, as GitHub makes it.
pub(super) fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    kept.chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_the_headings() {
        assert_eq!(
            anchor("Blocking against non-blocking: one, two"),
            "blocking-against-non-blocking-one-two"
        );
    }
}
