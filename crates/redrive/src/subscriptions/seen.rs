//! Estimates how many endpoints are active without storing them: one sketch per week, of which the last two count.
//!
//! The sketches are durable, so that a restart does not forget what 2 % of the active endpoints are. They are written
//! when they have grown by a hundredth. Members of a Kafka group merge each other's sketches.

use std::time::Duration;

use redrive_core::Time;

use super::entry::Fact;
use super::record::EndpointId;
use super::sketch::Sketch;

/// Length of a generation. An endpoint that took no push for one to two generations is not counted any more.
pub(super) const GENERATION: Duration = Duration::from_hours(7 * 24);

/// The endpoints that took a push lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The number of the current generation, counted from 1970, so that all processes agree.
    number: u64,
    current: Sketch,
    previous: Sketch,
    /// The current generation as stored.
    stored: Sketch,
    /// Whether another process wrote it last, without some endpoints that are known here.
    is_behind: bool,
}

impl Seen {
    /// An endpoint took a push. Returns the facts to store.
    pub(super) fn see(&mut self, id: EndpointId, now: Time) -> Vec<Fact> {
        let mut facts = self.turn_to(number(now));
        let grows = self.current.add(id);
        if (grows || std::mem::take(&mut self.is_behind)) && self.is_more_than_stored() {
            self.stored = self.current.clone();
            facts.push(Fact::Seen(self.number, Some(self.current.clone())));
        }
        facts
    }

    /// Adopts a stored sketch.
    pub(super) fn apply(&mut self, number: u64, sketch: &Sketch) {
        // The resulting facts were written by the process that began the generation.
        drop(self.turn_to(number));
        if number == self.number {
            self.current.merge(sketch);
            self.is_behind = self.current != *sketch;
            self.stored = sketch.clone();
        } else if number + 1 == self.number {
            self.previous.merge(sketch);
        }
    }

    /// All facts that are or should be stored.
    pub(super) fn facts(&self) -> impl Iterator<Item = Fact> {
        let previous = self.number.checked_sub(1).map(|number| (number, &self.previous));
        let both = previous.into_iter().chain([(self.number, &self.current)]);
        let both = both.filter(|(_, sketch)| !sketch.is_empty());
        both.map(|(number, sketch)| Fact::Seen(number, Some(sketch.clone())))
    }

    /// Estimates how many endpoints took a push in the last one to two generations and were not purged since.
    pub(super) fn estimate_without(&self, purged: &PurgedLately, now: Time) -> u64 {
        let mut all = purged.sketch.clone();
        let age = number(now).saturating_sub(self.number);
        if age <= 1 {
            all.merge(&self.current);
        }
        if age == 0 {
            all.merge(&self.previous);
        }
        // Purged endpoints are in the union exactly once, whether they were seen before or not.
        all.estimate().saturating_sub(purged.count)
    }

    /// Begins a generation, if it is a later one. Generations before the previous one are dropped.
    fn turn_to(&mut self, number: u64) -> Vec<Fact> {
        if number <= self.number {
            return Vec::new();
        }
        let before = self.number;
        let (ended, outdated) = (std::mem::take(&mut self.current), std::mem::take(&mut self.previous));
        let mut facts = Vec::new();
        if !outdated.is_empty() {
            facts.push(Fact::Seen(before.saturating_sub(1), None));
        }
        if number == before + 1 && !ended.is_empty() {
            facts.push(Fact::Seen(before, Some(ended.clone())));
            self.previous = ended;
        } else if !ended.is_empty() {
            facts.push(Fact::Seen(before, None));
        }
        (self.number, self.stored, self.is_behind) = (number, Sketch::default(), false);
        facts
    }

    /// Whether the estimate has grown by more than a hundredth since it was stored.
    fn is_more_than_stored(&self) -> bool {
        let stored = self.stored.estimate();
        self.current.estimate() > stored + stored / 100
    }
}

/// Endpoints that were purged in the generations that count, as a sketch and as a count.
#[derive(Clone, Debug, Default)]
pub(super) struct PurgedLately {
    /// The first generation that counts.
    from: u64,
    sketch: Sketch,
    count: u64,
}

impl PurgedLately {
    /// An empty one for this time; `None` if the current one is still right.
    pub(super) fn begin(&self, now: Time) -> Option<Self> {
        let from = number(now).saturating_sub(1);
        (from != self.from).then(|| Self { from, ..Self::default() })
    }

    pub(super) fn add(&mut self, id: EndpointId, at: Time) {
        if number(at) >= self.from {
            self.sketch.add(id);
            self.count += 1;
        }
    }

    /// The endpoint of an undone purge stays in the sketch, and so counts as active.
    pub(super) fn remove(&mut self, at: Time) {
        if number(at) >= self.from {
            self.count = self.count.saturating_sub(1);
        }
    }
}

fn number(now: Time) -> u64 {
    now.as_millis() / GENERATION.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use redrive_core::SplitMix64;

    use super::*;

    impl Seen {
        fn count(&self, now: Time) -> u64 {
            self.estimate_without(&PurgedLately::default(), now)
        }
    }

    fn ids(seed: u64, count: usize) -> Vec<EndpointId> {
        let mut dice = SplitMix64::new(seed);
        (0..count).map(|_| EndpointId::from_number(dice.draw())).collect()
    }

    /// A simulated store: what is written is what another process reads.
    fn see_all(seen: &mut Seen, ids: &[EndpointId], now: Time) -> Vec<Fact> {
        ids.iter().flat_map(|id| seen.see(*id, now)).collect()
    }

    fn follow(seen: &mut Seen, facts: &[Fact]) {
        for fact in facts {
            if let Fact::Seen(number, Some(sketch)) = fact {
                seen.apply(*number, sketch);
            }
        }
    }

    fn read(facts: &[Fact]) -> Seen {
        let mut seen = Seen::default();
        follow(&mut seen, facts);
        seen
    }

    #[test]
    fn who_is_not_heard_of_for_two_generations_is_forgotten() {
        let (mut seen, start) = (Seen::default(), Time::from_millis(1));
        see_all(&mut seen, &ids(7, 1000), start);
        let one = ids(8, 1)[0];
        let next = start.plus(GENERATION);
        assert!(seen.count(next) > 900, "before anybody is seen in it, too");
        see_all(&mut seen, &[one], next);
        assert!(seen.count(next) > 900);
        let last = start.plus(2 * GENERATION);
        assert_eq!(seen.count(last), 1);
        let facts = see_all(&mut seen, &[one], last);
        assert_eq!(seen.count(last), 1);
        assert!(facts.contains(&Fact::Seen(0, None)), "the outdated one is removed from the store");
        assert_eq!(seen.count(last.plus(2 * GENERATION)), 0);
    }

    #[test]
    fn the_next_process_has_the_same_estimate_to_a_hundredth_and_the_writes_are_few() {
        let (mut seen, now) = (Seen::default(), Time::from_millis(1_700_000_000_000));
        for (count, seed) in [(50, 1), (1_000, 2), (20_000, 3)] {
            let facts = see_all(&mut seen, &ids(seed, count), now);
            assert!(facts.len() < 700, "{count}: {}", facts.len());
            let (ours, theirs) = (seen.count(now), read(&facts).count(now));
            assert!(theirs <= ours && theirs >= ours - ours / 100, "{count}: {ours} and {theirs}");
        }
        // The next week counts the same endpoints anew, and a process that starts during it misses none of them.
        let later = now.plus(GENERATION);
        let mut facts: Vec<Fact> = seen.facts().collect();
        facts.extend(see_all(&mut seen, &ids(3, 20_000), later));
        let last = later.plus(GENERATION);
        let (ours, theirs) = (seen.count(last), read(&facts).count(last));
        assert!(ours > 19_000 && theirs >= ours - ours / 100, "{ours} and {theirs}");
    }

    #[test]
    fn members_of_a_group_count_together_and_whoever_knows_more_than_the_store_says_so() {
        let now = Time::from_millis(1_700_000_000_000);
        let (mut one, mut other) = (Seen::default(), Seen::default());
        let from_one = see_all(&mut one, &ids(1, 1_000), now);
        let from_other = see_all(&mut other, &ids(2, 1_000), now);
        // Both write, and the store keeps only the second write.
        follow(&mut other, &from_one);
        follow(&mut one, &from_other);
        follow(&mut one, &from_one);
        assert!(one.count(now).abs_diff(2_000) < 100, "{}", one.count(now));
        let again = see_all(&mut one, &ids(1, 1), now);
        assert_eq!(again.len(), 1, "what is in the store is less than what this one knows");
        assert_eq!(read(&again).count(now), one.count(now));
    }

    /// Regression: they counted as active, so the guard let more be purged.
    #[test]
    fn whoever_was_purged_is_not_counted_whether_or_not_they_were_seen_before() {
        let (mut seen, now) = (Seen::default(), Time::from_millis(1_700_000_000_000));
        see_all(&mut seen, &ids(1, 1_000), now);
        let mut purged = PurgedLately::default();
        purged = purged.begin(now).unwrap();
        ids(1, 300).into_iter().for_each(|id| purged.add(id, now));
        assert!(seen.estimate_without(&purged, now).abs_diff(700) < 30);
        // A list with many endpoints that were dead from the beginning.
        ids(2, 500).into_iter().for_each(|id| purged.add(id, now));
        assert!(seen.estimate_without(&purged, now).abs_diff(700) < 50);
        // Undo some purges.
        (0..300).for_each(|_| purged.remove(now));
        assert!(seen.estimate_without(&purged, now).abs_diff(1_000) < 60);
        assert!(purged.begin(now).is_none() && purged.begin(now.plus(GENERATION)).is_some());
        purged.add(ids(3, 1)[0], Time::from_millis(1));
        assert_eq!(purged.count, 500, "too long ago to have been seen since");
    }
}
