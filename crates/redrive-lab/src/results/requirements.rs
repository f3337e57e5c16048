//! What the project was asked to show, and the evidence for it: `lab/requirements.toml`.

use serde::Deserialize;

const TEXT: &str = include_str!("../../../../lab/requirements.toml");

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    pub id: String,
    /// `E1` … `E8`, if it asks for one of the eight experiments.
    pub experiment: Option<String>,
    pub asks: String,
    /// One or two sentences; `{scenario | variant | figure}` inserts a measured figure, see `answer`.
    pub answer: String,
    /// The plot that shows it best.
    pub plot: Option<PlotOf>,
    /// What the figures below do and do not show, where they could be misread.
    pub note: Option<String>,
    #[serde(default)]
    pub figures: Vec<FigureOf>,
    #[serde(default)]
    pub forecasts: Vec<ForecastOf>,
    /// Scenarios whose audit by id answers it.
    #[serde(default)]
    pub audits: Vec<String>,
    #[serde(default)]
    pub elsewhere: Vec<Elsewhere>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureOf {
    pub scenario: String,
    pub figure: String,
    /// If empty, every variant that has the figure.
    #[serde(default)]
    pub variants: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlotOf {
    pub scenario: String,
    /// The file name with extension.
    pub file: String,
}

/// A forecast of `redrive check` next to a measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForecastOf {
    pub scenario: String,
    pub what: String,
}

/// Evidence other than a measurement of the lab.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    pub shows: String,
    pub command: String,
    /// Path in the repository.
    pub file: String,
    /// The title, if the file is a picture.
    pub picture: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequirementsFile {
    requirement: Vec<Requirement>,
}

/// All requirements, in order.
pub fn all() -> Result<Vec<Requirement>, toml::de::Error> {
    toml::from_str::<RequirementsFile>(TEXT).map(|file| file.requirement)
}

impl Requirement {
    /// The scenarios that it names, without duplicates.
    pub fn scenarios(&self) -> Vec<&str> {
        let figures = self.figures.iter().map(|figure| figure.scenario.as_str());
        let forecasts = self.forecasts.iter().map(|forecast| forecast.scenario.as_str());
        let mut names: Vec<&str> = Vec::new();
        for name in figures.chain(forecasts).chain(self.audits.iter().map(String::as_str)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_requirement_is_there_once_and_names_what_shows_it() {
        let all = all().unwrap_or_else(|fault| panic!("{fault}"));
        let ids: Vec<&str> = all.iter().map(|requirement| requirement.id.as_str()).collect();
        let of_seed = [2, 5].into_iter().chain(18..=30).chain(37..=43).chain(65..=94);
        let corrected = ["C-2", "C-8", "C-17"].map(str::to_owned);
        assert_eq!(ids, of_seed.map(|n| format!("S2-{n}")).chain(corrected).collect::<Vec<_>>());
        let experiments: Vec<&str> = all.iter().filter_map(|of| of.experiment.as_deref()).collect();
        assert_eq!(experiments, (1..=8).map(|n| format!("E{n}")).collect::<Vec<_>>());
        for requirement in &all {
            let id = &requirement.id;
            assert!(
                !requirement.scenarios().is_empty() || !requirement.elsewhere.is_empty(),
                "{id}: nothing shows it"
            );
            assert!(!requirement.answer.is_empty(), "{id} has no answer");
            let is_measured = !requirement.figures.is_empty();
            assert!(
                !is_measured || requirement.answer.contains('{'),
                "{id}: its answer has no measured figure"
            );
            assert!(requirement.experiment.is_none() || requirement.plot.is_some(), "{id} has no plot");
        }
    }

    #[test]
    fn files_that_hold_a_proof_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for Requirement { id, elsewhere, .. } in all().unwrap_or_default() {
            for proof in elsewhere {
                assert!(root.join(&proof.file).is_file(), "{id}: {}", proof.file);
            }
        }
    }

    /// A command that names a renamed test would run nothing and pass.
    #[test]
    fn tests_and_targets_that_a_command_names_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap();
        for Requirement { id, elsewhere, .. } in all().unwrap_or_default() {
            for Elsewhere { command, file, .. } in elsewhere {
                let words: Vec<&str> = command.split(' ').collect();
                if words[0] == "make" {
                    assert!(makefile.contains(&format!("\n{}:", words[1])), "{id}: {command}");
                }
                let suite = words.iter().position(|word| *word == "--test");
                if let Some(suite) = suite.map(|at| words[at + 1]) {
                    assert!(file.contains(&format!("/tests/{suite}")), "{id}: {command} is not in {file}");
                    let text = std::fs::read_to_string(root.join(&file)).unwrap();
                    let last = words[words.len() - 1];
                    assert!(last == suite || text.contains(last), "{id}: {command}: not in {file}");
                }
            }
        }
    }
}
