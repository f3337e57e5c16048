//! The text of a configuration file, and the locations of spans in it.

use std::ops::Range;

/// A location in the text: line and column count from 1, the column in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineColumn {
    pub line: usize,
    pub column: usize,
}

/// A file as read, under the name that the user gave.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// The byte offset of each line.
    starts: Vec<usize>,
}

impl Source {
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let behind_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(i, _)| i + 1);
        let starts = std::iter::once(0).chain(behind_ends).collect();
        Self { name: name.into(), text, starts }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn place(&self, offset: usize) -> LineColumn {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let before = self.text.get(self.starts[line - 1]..offset).unwrap_or_default();
        LineColumn { line, column: before.chars().count() + 1 }
    }

    pub fn line(&self, offset: usize) -> usize {
        self.place(offset).line
    }

    /// The text of a line (1-based), without its line end.
    pub fn line_text(&self, line: usize) -> &str {
        let start = line.checked_sub(1).and_then(|i| self.starts.get(i)).copied();
        let end = self.starts.get(line).copied().unwrap_or(self.text.len());
        let text = start.and_then(|start| self.text.get(start..end)).unwrap_or_default();
        text.trim_end_matches(['\n', '\r'])
    }

    /// How many characters of the span are on its first line; at least one.
    pub fn width_on_line(&self, span: &Range<usize>) -> usize {
        let line_end = self.starts.get(self.line(span.start)).copied().unwrap_or(self.text.len());
        let text = self.text.get(span.start..span.end.min(line_end)).unwrap_or_default();
        text.trim_end_matches(['\n', '\r']).chars().count().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_from_one_and_in_characters() {
        let source = Source::new("redrive.toml", "a = 1\nß = \"ü\"\r\n\nend");
        assert_eq!(source.place(0), LineColumn { line: 1, column: 1 });
        assert_eq!(source.place(4), LineColumn { line: 1, column: 5 });
        assert_eq!(source.place(6), LineColumn { line: 2, column: 1 });
        assert_eq!(source.place(11), LineColumn { line: 2, column: 5 });
        assert_eq!(source.line_text(2), "ß = \"ü\"");
        assert_eq!(source.line_text(3), "");
        assert_eq!(source.line_text(4), "end");
        assert_eq!(source.line_text(5), "");
        assert_eq!(source.place(10_000).line, 4);
        assert_eq!(source.width_on_line(&(11..15)), 3);
        assert_eq!(source.width_on_line(&(0..0)), 1);
    }

    #[test]
    fn an_empty_file_has_one_line() {
        let source = Source::new("redrive.toml", "");
        assert_eq!(source.place(0), LineColumn { line: 1, column: 1 });
        assert_eq!(source.line_text(1), "");
    }
}
