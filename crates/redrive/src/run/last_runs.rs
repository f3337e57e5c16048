//! Counts runs of the process that ended without a clean stop and without a suspect, in a line of the reminder that
//! an engine stores. A process that keeps dying without a suspect reports it.

/// This many in a row are worth reporting.
const REPEATED: u32 = 3;
/// The first word of the line. A different word means a different version, which is not read.
const RUNS: &str = "runs1";

#[derive(Debug)]
pub(crate) struct LastRuns {
    /// Unclean ends in a row before this run. The last of them may still be explained by a suspect.
    unclean: u32,
    /// The lines of the reminder that are not about runs.
    others: Vec<u8>,
    is_unwritten: bool,
}

impl LastRuns {
    /// Reads the reminder of the previous run. A run that ended cleanly has removed its line.
    pub(crate) fn after(reminder: &[u8]) -> Self {
        let (mut unclean, mut others) = (0, Vec::new());
        for line in reminder.split_inclusive(|byte| *byte == b'\n') {
            match read(line) {
                Some(before) => unclean = before.saturating_add(1),
                None => others.extend_from_slice(line),
            }
        }
        Self { unclean, others, is_unwritten: true }
    }

    /// How many runs in a row ended without a clean stop and without a suspect, if they are many. The last run is not
    /// included: its suspects only show later.
    pub(crate) fn unexplained(&self) -> Option<u32> {
        let before_the_last = self.unclean.saturating_sub(1);
        (before_the_last >= REPEATED).then_some(before_the_last)
    }

    /// A message is suspected of the last crash.
    pub(crate) fn explained(&mut self) {
        self.is_unwritten |= self.unclean > 0;
        self.unclean = 0;
    }

    /// The reminder to store, if it has changed; `others` are the other lines if they have changed.
    pub(crate) fn reminder(&mut self, others: Option<Vec<u8>>) -> Option<Vec<u8>> {
        self.is_unwritten |= others.is_some();
        self.others = others.unwrap_or_else(|| std::mem::take(&mut self.others));
        std::mem::take(&mut self.is_unwritten).then(|| {
            let mut text = self.others.clone();
            text.extend_from_slice(format!("{RUNS} {} end\n", self.unclean).as_bytes());
            text
        })
    }

    /// The reminder to store after a clean end.
    pub(crate) fn reminder_at_end(&self) -> &[u8] {
        &self.others
    }
}

/// The number in a complete line of this kind.
fn read(line: &[u8]) -> Option<u32> {
    let mut words = str::from_utf8(line).ok()?.split_ascii_whitespace();
    let is_ours = words.next()? == RUNS;
    let unclean = words.next().filter(|_| is_ours)?.parse().ok()?;
    (words.next()? == "end").then_some(unclean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_without_a_suspect_add_up_until_an_end_is_clean() {
        let mut kept = b"open1 breaker 5 end\n".to_vec();
        let mut told = Vec::new();
        for _ in 0..6 {
            let mut run = LastRuns::after(&kept);
            told.push(run.unexplained());
            kept = run.reminder(None).expect("every run says that it runs");
            assert_eq!(run.reminder(None), None, "once");
            assert!(kept.starts_with(b"open1 breaker 5 end\n"));
        }
        assert_eq!(told, [None, None, None, None, Some(3), Some(4)]);
        let mut last = LastRuns::after(&kept);
        assert!(last.reminder(Some(Vec::new())).is_some());
        assert_eq!(LastRuns::after(last.reminder_at_end()).unexplained(), None);
        assert_eq!(last.reminder_at_end(), b"");
    }

    #[test]
    fn a_suspect_explains_the_deaths_so_far() {
        let mut kept = Vec::new();
        for run in 0..6 {
            let mut runs = LastRuns::after(&kept);
            assert_eq!(runs.unexplained(), None, "{run}");
            kept = runs.reminder(None).unwrap();
            if run % 3 == 2 {
                runs.explained();
                kept = runs.reminder(None).expect("that changes it");
            }
        }
    }
}
