//! The rule for names of pipelines, which become names of folders and topics.

/// The longest name of a pipeline.
pub const NAME_BYTES_MAX: usize = 200;

/// The hint for a name that is refused.
pub const RULE: &str = "use 1 to 200 of the characters a-z A-Z 0-9 - _ . , without a dot in front";

/// Names that have a meaning in an engine's directory. They are compared without case, because some file systems
/// ignore it.
const TAKEN: [&str; 8] =
    ["LOCK", "FORMAT", "FORMAT.new", "PIPELINES", "PIPELINES.new", "replays", "actions.ndjson", "token"];

/// Why a name is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    Empty,
    TooLong,
    /// It contains a character that is not allowed.
    Character(char),
    LeadingDot,
    /// A file of the engine has this name.
    Taken(&'static str),
}

impl NameFault {
    pub fn problem(self) -> String {
        match self {
            Self::Empty => "it is empty".to_owned(),
            Self::TooLong => format!("it is longer than {NAME_BYTES_MAX} bytes"),
            Self::Character(c) => format!("{c:?} cannot be part of the name of a folder or topic"),
            Self::LeadingDot => "it begins with a dot".to_owned(),
            Self::Taken(file) => format!("`{file}` has its own meaning in the engine's directory"),
        }
    }
}

/// Whether a pipeline may have this name.
pub fn check(name: &str) -> Result<(), NameFault> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() {
        return Err(NameFault::Empty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(NameFault::TooLong);
    }
    if let Some(c) = name.chars().find(|c| !allowed(*c)) {
        return Err(NameFault::Character(c));
    }
    if name.starts_with('.') {
        return Err(NameFault::LeadingDot);
    }
    match TAKEN.into_iter().find(|taken| taken.eq_ignore_ascii_case(name)) {
        Some(taken) => Err(NameFault::Taken(taken)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_folders_and_topics_are_taken_and_nothing_else() {
        for name in ["orders", "a", "orders.v2", "Orders_2-eu", "lock-picks", &"x".repeat(200)] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for (name, fault) in [
            ("", NameFault::Empty),
            (&*"x".repeat(201), NameFault::TooLong),
            ("a/b", NameFault::Character('/')),
            ("größe", NameFault::Character('ö')),
            (".", NameFault::LeadingDot),
            ("..", NameFault::LeadingDot),
            (".hidden", NameFault::LeadingDot),
            ("LOCK", NameFault::Taken("LOCK")),
            ("format", NameFault::Taken("FORMAT")),
            ("replays", NameFault::Taken("replays")),
        ] {
            assert_eq!(check(name), Err(fault), "{name}");
            assert!(!fault.problem().is_empty());
        }
    }
}
