//! A progress bar on stderr for long work; only on a terminal, and never with `-q` or `--json`.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::number::count;

const BAR_WIDTH: usize = 24;
const REDRAW_AFTER: Duration = Duration::from_millis(100);

/// Redraws its line on request, and removes it on drop.
#[derive(Debug)]
pub struct Progress {
    label: String,
    total: u64,
    shown: bool,
    drawn: Option<Instant>,
    /// What stands behind the bar.
    remark: String,
}

impl Progress {
    pub(super) fn new(label: &str, total: u64, wanted: bool) -> Self {
        let shown = wanted && io::stderr().is_terminal();
        Self { label: label.to_owned(), total, shown, drawn: None, remark: String::new() }
    }

    pub fn at(&mut self, done: u64) {
        let recent = self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAW_AFTER);
        if !self.shown || (recent && done < self.total) {
            return;
        }
        self.drawn = Some(Instant::now());
        // Failing to draw the bar is not worth an error.
        let _ = write!(io::stderr(), "\r\u{1b}[2K{}{}", bar(&self.label, done, self.total), self.remark);
    }

    /// Sets what stands behind the bar, in a few words.
    pub fn remark(&mut self, remark: Option<String>) {
        self.remark = remark.map(|remark| format!("   {remark}")).unwrap_or_default();
    }

    /// Removes the line, so that another one can be printed; the next call of [`Self::at`] draws it again.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(io::stderr(), "\r\u{1b}[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn bar(label: &str, done: u64, total: u64) -> String {
    let done = done.min(total);
    let share = if total == 0 { 1.0 } else { done as f64 / total as f64 };
    let full = (share * BAR_WIDTH as f64).round() as usize;
    let (full, empty) = ("█".repeat(full), "░".repeat(BAR_WIDTH - full));
    format!("{label} {full}{empty} {} of {}", count(done), count(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_never_longer_than_its_width() {
        assert_eq!(bar("reading", 0, 4), format!("reading {} 0 of 4", "░".repeat(24)));
        assert_eq!(bar("reading", 9, 4), format!("reading {} 4 of 4", "█".repeat(24)));
        assert_eq!(bar("reading", 0, 0), format!("reading {} 0 of 0", "█".repeat(24)));
    }
}
