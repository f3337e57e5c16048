//! Orders letters of many tenants so that no tenant waits for another's hundred thousand letters. Pure.

use std::collections::HashMap;

/// Tenants with their own turns; further ones share one.
const TENANTS_MAX: usize = 10_000;
/// Tenants that are listed by name; the others are counted together.
const SHOWN_MAX: usize = 20;

/// Collects letters with their tenants.
#[derive(Debug, Default)]
pub(super) struct FairOrder {
    ids: Vec<u64>,
    /// The turn of each letter.
    turns: Vec<u32>,
    turn_of: HashMap<Box<str>, u32>,
    letters_of: Vec<u64>,
    /// The turn of each key's first letter, if the order of a key matters: all its letters share that turn.
    turn_of_key: Option<HashMap<u64, u32>>,
}

impl FairOrder {
    /// `keyed`: letters of a key keep their order, even if their tenants differ.
    pub(super) fn new(keyed: bool) -> Self {
        Self { turn_of_key: keyed.then(HashMap::new), ..Self::default() }
    }

    pub(super) fn push(&mut self, id: u64, tenant: Option<&str>, key: Option<&[u8]>) {
        let own = self.turn_of(tenant.unwrap_or_default());
        self.letters_of[own as usize] += 1;
        let turn = match (&mut self.turn_of_key, key) {
            (Some(keys), Some(key)) => *keys.entry(xxhash_rust::xxh3::xxh3_64(key)).or_insert(own),
            _ => own,
        };
        self.ids.push(id);
        self.turns.push(turn);
    }

    /// The number of letters of a tenant so far. Tenants without their own turn are counted together.
    pub(super) fn letters_of(&self, tenant: Option<&str>) -> u64 {
        let turn = self.turn_of.get(tenant.unwrap_or_default()).map_or(TENANTS_MAX, |turn| *turn as usize);
        self.letters_of.get(turn).copied().unwrap_or(0)
    }

    fn turn_of(&mut self, tenant: &str) -> u32 {
        if let Some(turn) = self.turn_of.get(tenant) {
            return *turn;
        }
        let turn = self.letters_of.len().min(TENANTS_MAX) as u32;
        if self.letters_of.len() <= TENANTS_MAX {
            self.letters_of.push(0);
        }
        if (turn as usize) < TENANTS_MAX {
            self.turn_of.insert(tenant.into(), turn);
        }
        turn
    }

    /// Letters by tenant, the most first; empty if there is only one tenant.
    pub(super) fn tenants(&self) -> Vec<(String, u64)> {
        if self.letters_of.len() < 2 {
            return Vec::new();
        }
        let named = self.turn_of.iter().map(|(tenant, turn)| (tenant, self.letters_of[*turn as usize]));
        let name = |tenant: &str| if tenant.is_empty() { "(none)".to_owned() } else { tenant.to_owned() };
        let mut named: Vec<(String, u64)> = named.map(|(tenant, letters)| (name(tenant), letters)).collect();
        named.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        named.truncate(SHOWN_MAX);
        let shown: u64 = named.iter().map(|(_, letters)| letters).sum();
        let others = self.ids.len() as u64 - shown;
        if others > 0 {
            named.push(("(others)".to_owned(), others));
        }
        named
    }

    /// The letters round-robin by tenant, each tenant's in their original order.
    pub(super) fn into_ids(self) -> Vec<u64> {
        let Self { ids, turns, letters_of, .. } = self;
        if letters_of.len() < 2 {
            return ids;
        }
        let mut queues: Vec<Vec<u32>> = vec![Vec::new(); letters_of.len()];
        for (position, turn) in turns.iter().enumerate() {
            queues[*turn as usize].push(position as u32);
        }
        let mut queues: Vec<_> = queues.into_iter().map(Vec::into_iter).collect();
        let mut mixed = Vec::with_capacity(ids.len());
        while !queues.is_empty() {
            queues.retain_mut(|queue| match queue.next() {
                Some(position) => {
                    mixed.push(ids[position as usize]);
                    true
                }
                None => false,
            });
        }
        mixed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ten_letters_of_one_tenant_do_not_wait_for_a_hundred_thousand_of_another() {
        let mut order = FairOrder::new(false);
        (0..100_000).for_each(|id| order.push(id, Some("acme"), None));
        (100_000..100_010).for_each(|id| order.push(id, Some("zeta"), None));
        assert_eq!(order.tenants(), [("acme".to_owned(), 100_000), ("zeta".to_owned(), 10)]);
        let ids = order.into_ids();
        assert_eq!(ids.len(), 100_010);
        let last = ids.iter().position(|id| *id == 100_009);
        assert_eq!(last, Some(19), "the tenth letter of the small one is the twentieth of all");
    }

    #[test]
    fn the_letters_of_each_tenant_are_counted() {
        let mut order = FairOrder::new(false);
        assert_eq!(order.letters_of(Some("acme")), 0);
        (0..3).for_each(|id| order.push(id, Some("acme"), None));
        order.push(3, None, None);
        assert_eq!((order.letters_of(Some("acme")), order.letters_of(None)), (3, 1));
        assert_eq!(order.letters_of(Some("zeta")), 0);
    }

    #[test]
    fn letters_of_a_key_keep_their_order_also_over_tenants() {
        let mut order = FairOrder::new(true);
        order.push(1, Some("a"), Some(b"k"));
        order.push(2, Some("a"), Some(b"k"));
        order.push(3, Some("b"), Some(b"k"));
        order.push(4, Some("b"), Some(b"other"));
        let ids = order.into_ids();
        assert_eq!(ids, [1, 4, 2, 3]);
    }

    #[test]
    fn more_tenants_than_are_told_apart_share_a_turn() {
        let mut order = FairOrder::new(false);
        (0..TENANTS_MAX as u64 + 50).for_each(|id| order.push(id, Some(&format!("t-{id}")), None));
        assert_eq!(order.letters_of.len(), TENANTS_MAX + 1);
        let shown = order.tenants();
        assert_eq!((shown.len(), shown[SHOWN_MAX].1), (SHOWN_MAX + 1, TENANTS_MAX as u64 + 30));
        assert_eq!(order.into_ids().len(), TENANTS_MAX + 50);
    }

    proptest! {
        /// Every letter comes once, each tenant's in order, and no tenant is more than a turn ahead of a waiting one.
        #[test]
        fn each_letter_goes_once_and_no_tenant_runs_ahead(tenants in prop::collection::vec(0u8..6, 0..300)) {
            let mut order = FairOrder::new(false);
            for (id, tenant) in tenants.iter().enumerate() {
                order.push(id as u64, Some(&tenant.to_string()), None);
            }
            let ids = order.into_ids();
            let mut sorted = ids.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..tenants.len() as u64).collect::<Vec<_>>());
            let mut gone = [0_u64; 6];
            let mut latest = [None; 6];
            let total = |tenant: usize| tenants.iter().filter(|one| usize::from(**one) == tenant).count() as u64;
            for id in ids {
                let tenant = usize::from(tenants[id as usize]);
                prop_assert!(latest[tenant] < Some(id));
                latest[tenant] = Some(id);
                gone[tenant] += 1;
                for other in 0..6 {
                    prop_assert!(gone[other] == total(other) || gone[tenant] <= gone[other] + 1);
                }
            }
        }
    }
}
