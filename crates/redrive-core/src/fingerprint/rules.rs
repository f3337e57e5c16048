//! User-defined rules that group errors regardless of their normalised text.

use super::{Fingerprint, TITLE_BYTES_MAX};
use crate::text::printable::is_unsafe;

/// The maximum number of rules of a pipeline.
pub const RULES_MAX: usize = 100;
/// The maximum length of a pattern.
pub const PATTERN_BYTES_MAX: usize = 500;

/// One rule: errors that match the pattern are one group with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRule {
    pattern: String,
    /// The parts of the pattern between its `*`, in lower case.
    parts: Vec<String>,
    name: String,
}

/// Why a rule is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// The pattern would match every error.
    #[error("`match` is empty, so it would match every error")]
    EmptyPattern,
    /// The pattern is too long.
    #[error("`match` has more than {PATTERN_BYTES_MAX} bytes")]
    LongPattern,
    /// The group has no name.
    #[error("`as` is empty, so the group would have no name")]
    EmptyName,
    /// The name is too long.
    #[error("`as` has more than {TITLE_BYTES_MAX} bytes")]
    LongName,
}

impl GroupRule {
    /// Creates a rule. `pattern` is text that occurs in the error, ignoring ASCII case; `*` matches any text.
    pub fn new(pattern: &str, name: &str) -> Result<Self, RuleFault> {
        let parts: Vec<String> =
            pattern.split('*').filter(|part| !part.is_empty()).map(str::to_ascii_lowercase).collect();
        let name = name.replace(is_unsafe, " ");
        let name = name.trim();
        match () {
            () if parts.iter().all(|part| part.trim().is_empty()) => Err(RuleFault::EmptyPattern),
            () if pattern.len() > PATTERN_BYTES_MAX => Err(RuleFault::LongPattern),
            () if name.is_empty() => Err(RuleFault::EmptyName),
            () if name.len() > TITLE_BYTES_MAX => Err(RuleFault::LongName),
            () => Ok(Self { pattern: pattern.to_owned(), parts, name: name.to_owned() }),
        }
    }

    /// The pattern as given.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The name of the group that matching errors are put into.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the error matches: all parts occur in order without overlapping. `lower` is the error in lower case.
    fn matches(&self, lower: &str) -> bool {
        let mut rest = lower;
        self.parts.iter().all(|part| match rest.find(part.as_str()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

/// The rules of a pipeline. The first match wins.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct GroupRules {
    rules: Vec<GroupRule>,
}

impl GroupRules {
    /// Creates a list of rules. Rules beyond [`RULES_MAX`] are dropped; the configuration rejects them earlier.
    pub fn new(rules: impl IntoIterator<Item = GroupRule>) -> Self {
        Self { rules: rules.into_iter().take(RULES_MAX).collect() }
    }

    /// Appends a rule; one beyond [`RULES_MAX`] is dropped.
    pub fn push(&mut self, rule: GroupRule) {
        if self.rules.len() < RULES_MAX {
            self.rules.push(rule);
        }
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rule that created this group, if it is still configured. A group may be older than the current rules.
    pub fn rule_of(&self, fingerprint: &Fingerprint) -> Option<&GroupRule> {
        self.rules.iter().find(|rule| fingerprint.is_of_rule() && rule.name == fingerprint.title)
    }

    pub(super) fn name_for(&self, error: &str) -> Option<&str> {
        if self.rules.is_empty() {
            return None;
        }
        let lower = error.to_ascii_lowercase();
        self.rules.iter().find(|rule| rule.matches(&lower)).map(|rule| rule.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_names_the_group() {
        let rule = |pattern, name| GroupRule::new(pattern, name).unwrap();
        let rules = GroupRules::new([rule("timeout*payments", "payments slow"), rule("TIMEOUT", "slow")]);
        assert_eq!(rules.name_for("Timeout after 3 s calling payments"), Some("payments slow"));
        assert_eq!(rules.name_for("payments: timeout"), Some("slow"), "parts are found in their order");
        assert_eq!(rules.name_for("404"), None);
        // The parts do not overlap.
        assert_eq!(GroupRules::new([rule("aba*ba", "x")]).name_for("aba"), None);
    }

    #[test]
    fn a_rule_that_means_everything_or_nothing_is_refused() {
        for empty in ["", "*", "* *"] {
            assert_eq!(GroupRule::new(empty, "x"), Err(RuleFault::EmptyPattern), "{empty}");
        }
        assert_eq!(GroupRule::new("a", " "), Err(RuleFault::EmptyName));
        assert_eq!(GroupRule::new(&"a".repeat(501), "x"), Err(RuleFault::LongPattern));
        assert_eq!(GroupRule::new("a", &"a".repeat(201)), Err(RuleFault::LongName));
    }
}
