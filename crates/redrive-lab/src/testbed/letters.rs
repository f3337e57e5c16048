//! Which messages have a stored letter. A letter that a hook announces does not count.

use std::time::{Duration, Instant};

use redrive::{LetterState, PipelineHandle};

use super::played::Error;
use crate::seed;

/// Letters per page.
pub(crate) const PAGE: usize = 1_000;
/// How long a list is retried when the engine is not ready.
const ASK_MAX: Duration = Duration::from_mins(1);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// The number of a letter whose id does not belong to this run.
const STRANGE: u64 = u64::MAX;

/// The number of the message with this id; [`STRANGE`] if it does not belong to a run with this seed.
pub(crate) fn number_of(id: &str, of_seed: u64) -> u64 {
    seed::parse(id).filter(|(seed, _)| *seed == of_seed).map_or(STRANGE, |(_, number)| number)
}

/// The numbers of all messages with a letter in these pipelines, in one state or in any; once per letter.
pub(crate) async fn listed(
    handles: &[PipelineHandle],
    state: Option<LetterState>,
    of_seed: u64,
) -> Result<Vec<u64>, Error> {
    let mut numbers = Vec::new();
    for handle in handles {
        let (mut after, mut began) = (None, Instant::now());
        loop {
            match handle.letters(state, after, PAGE).await {
                Ok(page) => {
                    numbers.extend(page.iter().map(|letter| number_of(letter.message.id(), of_seed)));
                    began = Instant::now();
                    match page.last() {
                        Some(last) => after = Some(last.id),
                        None => break,
                    }
                }
                Err(error) if began.elapsed() > ASK_MAX => return Err(error.into()),
                Err(_) => tokio::time::sleep(ASK_AGAIN).await,
            }
        }
    }
    Ok(numbers)
}

/// Letters as a set, with one bit per message of a run.
#[derive(Debug)]
pub struct LetterSet {
    bits: Vec<u64>,
    /// Letters beyond the first of a message.
    pub twice: u64,
    /// Letters that belong to no message of the run.
    pub strange: u64,
}

impl LetterSet {
    pub fn new(messages: u64, found: &[u64]) -> Self {
        let mut set = Self { bits: vec![0; messages.div_ceil(64) as usize], twice: 0, strange: 0 };
        for number in found {
            if *number >= messages {
                set.strange += 1;
            } else if set.has(*number) {
                set.twice += 1;
            } else {
                set.bits[(*number / 64) as usize] |= 1 << (*number % 64);
            }
        }
        set
    }

    pub fn has(&self, number: u64) -> bool {
        self.bits.get((number / 64) as usize).is_some_and(|bits| bits & (1 << (number % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_who_has_a_letter_and_what_is_wrong_with_the_list() {
        let set = LetterSet::new(70, &[0, 69, 64, 64, 70, STRANGE]);
        let has: Vec<u64> = (0..200).filter(|number| set.has(*number)).collect();
        assert_eq!((has, set.twice, set.strange), (vec![0, 64, 69], 1, 2));
        assert_eq!((number_of("o-7-17", 7), number_of("o-17", 42)), (17, 17));
        assert_eq!((number_of("o-8-17", 7), number_of("order", 7)), (STRANGE, STRANGE));
    }
}
