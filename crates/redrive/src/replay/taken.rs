//! Letters that jobs still have to put back. A letter belongs to one job at a time: two would share their pace, and
//! both would count it.

use redrive_core::text::number::grouped;

/// Letters that jobs still have to put back, by job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenLetters {
    jobs: Vec<TakenBy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TakenBy {
    job: String,
    /// Sorted.
    letters: Vec<u64>,
}

/// How many letters of a selection are taken, by job.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TakenCounts {
    jobs: Vec<(String, u64)>,
}

impl TakenLetters {
    /// Adds the letters that a job has not put back yet.
    pub(super) fn add(&mut self, job: &str, left: &[u64]) {
        if left.is_empty() {
            return;
        }
        let mut letters = left.to_vec();
        letters.sort_unstable();
        self.jobs.push(TakenBy { job: job.to_owned(), letters });
    }

    /// Whether no job has letters to put back.
    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The job that a letter waits in, if it waits in one.
    pub(crate) fn job_of(&self, letter: u64) -> Option<&str> {
        let taken = self.jobs.iter().find(|taken| taken.letters.binary_search(&letter).is_ok());
        taken.map(|taken| taken.job.as_str())
    }

    /// Removes letters that are taken, and counts them.
    pub(super) fn remove_from(&self, ids: &mut Vec<u64>, counts: &mut TakenCounts) {
        if self.jobs.is_empty() {
            return;
        }
        ids.retain(|id| match self.job_of(*id) {
            Some(job) => {
                counts.add(job);
                false
            }
            None => true,
        });
    }
}

impl TakenCounts {
    pub(super) fn add(&mut self, job: &str) {
        match self.jobs.iter_mut().find(|(known, _)| known == job) {
            Some((_, letters)) => *letters += 1,
            None => self.jobs.push((job.to_owned(), 1)),
        }
    }

    /// Whether no letter is taken.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The jobs, each with its number of letters of the selection.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.jobs.iter().map(|(job, letters)| (job.as_str(), *letters))
    }
}

/// Prints as `1,300 in r-1, 2 in r-4`.
impl std::fmt::Display for TakenCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (job, letters)) in self.jobs.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{} in {job}", grouped(*letters))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_waits_in_the_job_that_has_not_put_it_back() {
        let mut taken = TakenLetters::default();
        taken.add("r-1", &[9, 3, 5]);
        taken.add("r-2", &[]);
        taken.add("r-4", &[7]);
        assert_eq!([3, 4, 7].map(|id| taken.job_of(id)), [Some("r-1"), None, Some("r-4")]);
        let (mut ids, mut counts) = (vec![9, 4, 7, 3, 1], TakenCounts::default());
        taken.remove_from(&mut ids, &mut counts);
        assert_eq!((ids, counts.to_string().as_str()), (vec![4, 1], "2 in r-1, 1 in r-4"));
        assert!(TakenCounts::default().is_empty());
    }
}
