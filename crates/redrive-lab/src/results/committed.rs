//! Committed results, the runs that each scenario should have, and links between pages.

use std::fmt;
use std::path::{Path, PathBuf};

use super::summary::Summary;

/// A result and its path.
pub(super) type Committed = (PathBuf, Summary);

/// A scenario and the runs it should have: the environment of each, as in [`Summary::ran_on`], and its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioRuns {
    pub name: String,
    pub title: String,
    /// Hash of the current scenario file.
    pub hash: String,
    /// Why its curves look as they do.
    pub explains: String,
    pub downstream: String,
    pub runs: Vec<(String, String)>,
}

/// What makes a run less than a full measurement. It is a suffix of the result's folder, so that such a run never
/// replaces a full result and the report ignores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultKind {
    /// Of a scenario file given by the user.
    pub custom: bool,
    pub quick: bool,
    pub partial: bool,
}

const ENDINGS: [&str; 3] = ["-custom", "-quick", "-partial"];

impl fmt::Display for ResultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [self.custom, self.quick, self.partial].into_iter().zip(ENDINGS);
        kinds.filter(|(is_it, _)| *is_it).try_for_each(|(_, ending)| f.write_str(ending))
    }
}

/// Whether a folder holds the result of a full run.
pub(super) fn is_full(folder: &Path) -> bool {
    let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    !ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// A relative path for links.
pub(super) fn below(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// The heading of a scenario's explanation.
pub(super) const WHY: &str = "Why it looks like this";

/// The page of a scenario, relative to docs/findings.
pub(super) fn page_of(scenario: &str) -> String {
    format!("{scenario}.md")
}

/// The anchor that GitHub generates for a heading.
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
    fn only_a_full_run_has_a_folder_that_the_report_reads() {
        let all = ResultKind { custom: true, quick: true, partial: true };
        assert_eq!(format!("42-kafka{all}"), "42-kafka-custom-quick-partial");
        assert_eq!(format!("42{}", ResultKind::default()), "42");
        for (folder, full) in
            [("42", true), ("42-kafka", true), ("42-quick", false), ("42-embedded-partial", false)]
        {
            assert_eq!(is_full(&Path::new("lab/results/replay").join(folder)), full, "{folder}");
        }
    }

    #[test]
    fn anchors_are_those_of_the_headings() {
        assert_eq!(
            anchor("Blocking against non-blocking: one, two"),
            "blocking-against-non-blocking-one-two"
        );
    }
}
