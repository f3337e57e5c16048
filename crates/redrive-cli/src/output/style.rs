//! Colour, where there is a terminal and nobody said no.

use std::io::IsTerminal;

/// What a piece of text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Error,
    Warning,
    Good,
    Strong,
    Faint,
}

/// Whether to colour. `NO_COLOR` of any content but an empty one means no (no-color.org), as does `TERM=dumb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    on: bool,
}

impl Paint {
    pub const OFF: Self = Self { on: false };

    pub fn for_stream(stream: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: stream.is_terminal() && !refused && !dumb }
    }

    pub fn paint(self, style: Style, text: &str) -> String {
        if !self.on {
            return text.to_owned();
        }
        let code = match style {
            Style::Error => "1;31",
            Style::Warning => "1;33",
            Style::Good => "32",
            Style::Strong => "1",
            Style::Faint => "2",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
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
