//! Formats tables: a header in capitals, two spaces between columns, numbers to the right.

use super::safe;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Collects rows and prints them with columns as wide as needed.
#[derive(Clone, Debug, Default)]
pub struct TextTable {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Creates a table with columns such as `[("GROUP", Align::Left), ("OPEN", Align::Right)]`.
    pub fn new(columns: impl IntoIterator<Item = (&'static str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row. Cells beyond the last column are dropped, missing ones are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| safe::line(&cell)).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, header first, without trailing spaces.
    pub fn lines(&self) -> Vec<String> {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let all = || std::iter::once(&header).chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|i| all().map(|row| width(&row[i])).max().unwrap_or_default())
            .collect();
        all().map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (i, cell) in row.iter().enumerate() {
            if i > 0 {
                line.push_str("  ");
            }
            let fill = " ".repeat(widths[i].saturating_sub(width(cell)));
            match self.columns[i].1 {
                Align::Left => line.extend([cell.as_str(), &fill]),
                Align::Right => line.extend([fill.as_str(), cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The width in characters; wide characters are rare here and only misalign the edges.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_lines_have_no_tail() {
        let mut table =
            TextTable::new([("GROUP", Align::Left), ("OPEN", Align::Right), ("REASON", Align::Left)]);
        table.row(["g1", "38,911", "permanent"].map(str::to_owned));
        table.row(["g2", "1,042", "max_retries"].map(str::to_owned));
        table.row(["g3".to_owned()]);
        assert_eq!(
            table.lines(),
            ["GROUP    OPEN  REASON", "g1     38,911  permanent", "g2      1,042  max_retries", "g3"]
        );
    }

    #[test]
    fn what_a_message_says_cannot_break_a_row_or_colour_the_terminal() {
        let mut table = TextTable::new([("ERROR", Align::Left)]);
        table.row(["a\nb\u{1b}[31mc".to_owned()]);
        assert_eq!(table.lines()[1], "a\\nb\\u{1b}[31mc");
    }
}
