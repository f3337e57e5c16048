//! Colours the output on a terminal, unless turned off.

use std::io::IsTerminal;

/// The role of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Error,
    Warning,
    Good,
    Strong,
    Faint,
}

impl Style {
    const ALL: [Self; 5] = [Self::Error, Self::Warning, Self::Good, Self::Strong, Self::Faint];

    const fn code(self) -> &'static str {
        match self {
            Self::Error => "\u{1b}[1;31m",
            Self::Warning => "\u{1b}[1;33m",
            Self::Good => "\u{1b}[32m",
            Self::Strong => "\u{1b}[1m",
            Self::Faint => "\u{1b}[2m",
        }
    }
}

const PLAIN: &str = "\u{1b}[0m";

/// Whether to colour. A non-empty `NO_COLOR` means no (no-color.org), as does `TERM=dumb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    pub const OFF: Self = Self { on: false };
    #[cfg(test)]
    pub(super) const ON: Self = Self { on: true };

    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: stream.is_terminal() && !refused && !dumb }
    }

    pub fn paint(self, style: Style, text: &str) -> String {
        if !self.on {
            return text.to_owned();
        }
        format!("{}{text}{PLAIN}", style.code())
    }

    /// Our colour code at the start of `text`, if colours are on.
    pub(super) fn code_at_start(self, text: &str) -> Option<&'static str> {
        let codes = Style::ALL.map(Style::code).into_iter().chain([PLAIN]);
        codes.filter(|_| self.on).find(|code| text.starts_with(code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_the_text_is_the_text() {
        assert_eq!(Paint::OFF.paint(Style::Error, "error"), "error");
        assert_eq!(Paint { on: true }.paint(Style::Good, "ok"), "\u{1b}[32mok\u{1b}[0m");
    }
}
