//! What the project was asked to show, and what shows it: `lab/requirements.toml`.

use serde::Deserialize;

const TEXT: &str = include_str!("../../../../lab/requirements.toml");

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    pub id: String,
    pub asks: String,
    /// What the figures below do and do not show, where they alone could be misread.
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
    /// Empty: of every variant that has it.
    #[serde(default)]
    pub variants: Vec<String>,
}

/// A line of `redrive check` beside a measurement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForecastOf {
    pub scenario: String,
    pub what: String,
}

/// A proof that is no measurement of the lab.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    pub shows: String,
    pub command: String,
    /// Path in the repository.
    pub file: String,
    /// What the file shows, if it is a picture.
    pub picture: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequirementsFile {
    requirement: Vec<Requirement>,
}

/// All of them, in order.
pub fn all() -> Result<Vec<Requirement>, toml::de::Error> {
    toml::from_str::<RequirementsFile>(TEXT).map(|file| file.requirement)
}

impl Requirement {
    /// Every scenario it names, once.
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
        assert_eq!(ids, (71..=94).map(|n| format!("S2-{n}")).collect::<Vec<_>>());
        for requirement in &all {
            let shown = !requirement.scenarios().is_empty() || !requirement.elsewhere.is_empty();
            assert!(shown, "{}: nothing shows it", requirement.id);
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
}
