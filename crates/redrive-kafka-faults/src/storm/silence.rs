//! How long a partition stood still around a fault.

use std::collections::HashMap;

use super::seen::Attempt;

/// The longest time without a call in one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    pub partition: i32,
    pub length_us: u64,
}

/// Returns the longest silence of any partition that ends within the window. It is counted from the last call, but at
/// most from the start of the window.
pub fn longest(attempts: &[Attempt], from_us: u64, to_us: u64) -> Silence {
    let mut arrivals: HashMap<i32, Vec<u64>> = HashMap::new();
    for attempt in attempts {
        arrivals.entry(attempt.partition).or_default().push(attempt.arrived_us);
    }
    let silences = arrivals.into_iter().flat_map(|(partition, mut times)| {
        times.sort_unstable();
        let gaps: Vec<(u64, u64)> = times.windows(2).map(|pair| (pair[0], pair[1])).collect();
        gaps.into_iter()
            // Only gaps that end within the window count, and the map below cuts off their part before it.
            .filter(move |(_, end)| (from_us..=to_us).contains(end))
            .map(move |(begin, end)| Silence { partition, length_us: end - begin.max(from_us) })
    });
    silences.max_by_key(|silence| (silence.length_us, -silence.partition)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(partition: i32, arrived_us: u64) -> Attempt {
        Attempt { number: 0, partition, arrived_us, answered_us: arrived_us, succeeded: true }
    }

    #[test]
    fn the_longest_silence_of_any_partition_is_found_whatever_the_order_of_the_answers() {
        let attempts = [at(0, 10), at(1, 20), at(1, 300), at(0, 60), at(0, 40), at(1, 310)];
        assert_eq!(longest(&attempts, 0, 1_000), Silence { partition: 1, length_us: 280 });
    }

    #[test]
    fn what_was_silent_before_the_fault_is_not_counted() {
        let attempts = [at(0, 10), at(0, 500), at(0, 530)];
        assert_eq!(longest(&attempts, 450, 1_000), Silence { partition: 0, length_us: 50 });
        assert_eq!(longest(&attempts, 510, 1_000), Silence { partition: 0, length_us: 20 });
        assert_eq!(longest(&attempts, 600, 1_000), Silence::default());
    }
}
