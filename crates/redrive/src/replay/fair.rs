//! Orders letters of many tenants so that no tenant waits for another's hundred thousand letters. Pure.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};

use redrive_core::GroupId;

/// Tenants with their own turns; further ones share one.
const TENANTS_MAX: usize = 10_000;
/// Tenants that are listed by name; the others are counted together.
const SHOWN_MAX: usize = 20;

/// A canary larger than this is not spread over groups: it has some of each anyway.
const SPREAD_MAX: u64 = 10_000;

/// Collects letters with their tenants.
#[derive(Debug, Default)]
pub(super) struct FairOrder {
    ids: Vec<u64>,
    /// The turn of each letter.
    turns: Vec<u32>,
    /// The group of each letter.
    groups: Vec<u32>,
    /// Whether each letter could be one of the first: it goes, and no letter of its key goes before it.
    may_lead: Vec<bool>,
    turn_of: HashMap<Box<str>, u32>,
    letters_of: Vec<u64>,
    going_of: Vec<u64>,
    number_of_group: HashMap<GroupId, u32>,
    /// The turn of a key's first letter, where the order of a key matters: its letters stay in one turn.
    turn_of_key: Option<HashMap<u64, u32>>,
}

/// A letter on its way into the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderedLetter<'a> {
    pub id: u64,
    pub tenant: Option<&'a str>,
    pub key: Option<&'a [u8]>,
    pub group: GroupId,
    /// Whether it will be put back, and not be skipped when its turn comes.
    pub goes: bool,
}

impl FairOrder {
    /// `keyed`: letters of a key keep their order, even if their tenants differ.
    pub(super) fn new(keyed: bool) -> Self {
        Self { turn_of_key: keyed.then(HashMap::new), ..Self::default() }
    }

    pub(super) fn push(&mut self, letter: OrderedLetter<'_>) {
        let own = self.turn_of(letter.tenant.unwrap_or_default());
        self.letters_of[own as usize] += 1;
        self.going_of[own as usize] += u64::from(letter.goes);
        let (turn, is_first_of_key) = match (&mut self.turn_of_key, letter.key) {
            (Some(keys), Some(key)) => match keys.entry(xxhash_rust::xxh3::xxh3_64(key)) {
                Entry::Occupied(turn) => (*turn.get(), false),
                Entry::Vacant(turn) => (*turn.insert(own), true),
            },
            _ => (own, true),
        };
        let next = self.number_of_group.len() as u32;
        self.ids.push(letter.id);
        self.turns.push(turn);
        self.groups.push(*self.number_of_group.entry(letter.group).or_insert(next));
        self.may_lead.push(letter.goes && is_first_of_key);
    }

    /// Letters of a tenant that go so far. Tenants without a turn of their own count together.
    pub(super) fn going_of(&self, tenant: Option<&str>) -> u64 {
        let turn = self.turn_of.get(tenant.unwrap_or_default()).map_or(TENANTS_MAX, |turn| *turn as usize);
        self.going_of.get(turn).copied().unwrap_or(0)
    }

    /// A letter of a tenant that goes with another job.
    pub(super) fn add_going(&mut self, tenant: Option<&str>) {
        let turn = self.turn_of(tenant.unwrap_or_default());
        self.going_of[turn as usize] += 1;
    }

    fn turn_of(&mut self, tenant: &str) -> u32 {
        if let Some(turn) = self.turn_of.get(tenant) {
            return *turn;
        }
        let turn = self.letters_of.len().min(TENANTS_MAX) as u32;
        if self.letters_of.len() <= TENANTS_MAX {
            self.letters_of.push(0);
            self.going_of.push(0);
        }
        if (turn as usize) < TENANTS_MAX {
            self.turn_of.insert(tenant.into(), turn);
        }
        turn
    }

    /// Letters by tenant, the most first; empty if there is only one tenant.
    pub(super) fn tenants(&self) -> Vec<(String, u64)> {
        let named = self.turn_of.iter().map(|(tenant, turn)| (tenant, self.letters_of[*turn as usize]));
        let named = named.filter(|(_, letters)| *letters > 0);
        let name = |tenant: &str| if tenant.is_empty() { "(none)".to_owned() } else { tenant.to_owned() };
        let mut named: Vec<(String, u64)> = named.map(|(tenant, letters)| (name(tenant), letters)).collect();
        named.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        if named.first().is_none_or(|(_, letters)| *letters == self.ids.len() as u64) {
            return Vec::new();
        }
        named.truncate(SHOWN_MAX);
        let shown: u64 = named.iter().map(|(_, letters)| letters).sum();
        let others = self.ids.len() as u64 - shown;
        if others > 0 {
            named.push(("(others)".to_owned(), others));
        }
        named
    }

    /// One letter of each tenant in turn, each tenant's own in the order they came. The first `canary` of them are of as
    /// many groups as there are: a canary of one group says nothing about another.
    pub(super) fn into_ids(self, canary: u64) -> Vec<u64> {
        let order = self.in_turns();
        let leads = self.leads(&order, canary);
        let is_lead: HashSet<u32> = leads.iter().copied().collect();
        let others = order.into_iter().filter(|position| !is_lead.contains(position));
        leads.iter().copied().chain(others).map(|position| self.ids[position as usize]).collect()
    }

    /// The positions of all letters, a tenant after the other.
    fn in_turns(&self) -> Vec<u32> {
        if self.letters_of.len() < 2 {
            return (0..self.ids.len() as u32).collect();
        }
        let mut queues: Vec<Vec<u32>> = vec![Vec::new(); self.letters_of.len()];
        for (position, turn) in self.turns.iter().enumerate() {
            queues[*turn as usize].push(position as u32);
        }
        let mut queues: Vec<_> = queues.into_iter().map(Vec::into_iter).collect();
        let mut mixed = Vec::with_capacity(self.ids.len());
        while !queues.is_empty() {
            queues.retain_mut(|queue| match queue.next() {
                Some(position) => {
                    mixed.push(position);
                    true
                }
                None => false,
            });
        }
        mixed
    }

    /// The positions of letters that go before all others, a group after the other; none where all are of one group.
    fn leads(&self, order: &[u32], canary: u64) -> Vec<u32> {
        let groups = self.number_of_group.len();
        if groups < 2 || canary == 0 || canary > SPREAD_MAX {
            return Vec::new();
        }
        // No group needs more than this many, however few the letters of the others are.
        let mut of_group: Vec<VecDeque<u32>> = vec![VecDeque::new(); groups];
        for position in order {
            let group = &mut of_group[self.groups[*position as usize] as usize];
            if self.may_lead[*position as usize] && (group.len() as u64) < canary {
                group.push_back(*position);
            }
        }
        let mut leads = Vec::new();
        while (leads.len() as u64) < canary && of_group.iter().any(|group| !group.is_empty()) {
            let left = (canary as usize).saturating_sub(leads.len());
            leads.extend(of_group.iter_mut().filter_map(VecDeque::pop_front).take(left));
        }
        leads
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn group(number: u64) -> GroupId {
        GroupId::from_number(number)
    }

    fn letter<'a>(id: u64, tenant: Option<&'a str>, key: Option<&'a [u8]>) -> OrderedLetter<'a> {
        OrderedLetter { id, tenant, key, group: group(0), goes: true }
    }

    #[test]
    fn ten_letters_of_one_tenant_do_not_wait_for_a_hundred_thousand_of_another() {
        let mut order = FairOrder::new(false);
        (0..100_000).for_each(|id| order.push(letter(id, Some("acme"), None)));
        (100_000..100_010).for_each(|id| order.push(letter(id, Some("zeta"), None)));
        assert_eq!(order.tenants(), [("acme".to_owned(), 100_000), ("zeta".to_owned(), 10)]);
        let ids = order.into_ids(0);
        assert_eq!(ids.len(), 100_010);
        let last = ids.iter().position(|id| *id == 100_009);
        assert_eq!(last, Some(19), "the tenth letter of the small one is the twentieth of all");
    }

    #[test]
    fn the_letters_of_each_tenant_are_counted() {
        let mut order = FairOrder::new(false);
        assert_eq!(order.going_of(Some("acme")), 0);
        (0..3).for_each(|id| order.push(letter(id, Some("acme"), None)));
        order.push(letter(3, None, None));
        assert_eq!((order.going_of(Some("acme")), order.going_of(None)), (3, 1));
        assert_eq!(order.going_of(Some("zeta")), 0);
    }

    #[test]
    fn letters_of_a_key_keep_their_order_also_over_tenants() {
        let mut order = FairOrder::new(true);
        order.push(letter(1, Some("a"), Some(b"k")));
        order.push(letter(2, Some("a"), Some(b"k")));
        order.push(letter(3, Some("b"), Some(b"k")));
        order.push(letter(4, Some("b"), Some(b"other")));
        let ids = order.into_ids(0);
        assert_eq!(ids, [1, 4, 2, 3]);
    }

    #[test]
    fn more_tenants_than_are_told_apart_share_a_turn() {
        let mut order = FairOrder::new(false);
        (0..TENANTS_MAX as u64 + 50).for_each(|id| order.push(letter(id, Some(&format!("t-{id}")), None)));
        assert_eq!(order.letters_of.len(), TENANTS_MAX + 1);
        let shown = order.tenants();
        assert_eq!((shown.len(), shown[SHOWN_MAX].1), (SHOWN_MAX + 1, TENANTS_MAX as u64 + 30));
        assert_eq!(order.into_ids(0).len(), TENANTS_MAX + 50);
    }

    #[test]
    fn letters_that_are_skipped_or_go_with_another_job_are_told_apart_from_those_that_go() {
        let mut order = FairOrder::new(false);
        order.add_going(Some("acme"));
        order.push(OrderedLetter { goes: false, ..letter(0, Some("acme"), None) });
        order.push(letter(1, Some("zeta"), None));
        assert_eq!((order.going_of(Some("acme")), order.going_of(Some("zeta"))), (1, 1));
        assert_eq!(order.tenants(), [("acme".to_owned(), 1), ("zeta".to_owned(), 1)]);
        assert_eq!(order.into_ids(0), [0, 1]);
        let mut order = FairOrder::new(false);
        order.add_going(Some("acme"));
        order.push(letter(1, Some("zeta"), None));
        assert!(order.tenants().is_empty(), "there is one tenant among them");
    }

    #[test]
    fn a_canary_is_of_as_many_groups_as_there_are() {
        let mut order = FairOrder::new(false);
        let of = |id, number| OrderedLetter { group: group(number), ..letter(id, None, None) };
        (0..1_000).for_each(|id| order.push(of(id, 0)));
        (1_000..1_003).for_each(|id| order.push(of(id, 1)));
        order.push(OrderedLetter { goes: false, ..of(1_003, 2) });
        order.push(of(1_004, 2));
        let ids = order.into_ids(8);
        assert_eq!(ids[..8], [0, 1_000, 1_004, 1, 1_001, 2, 1_002, 3]);
        assert_eq!(ids[8..10], [4, 5], "the others keep their order");
        assert_eq!(ids.len(), 1_005);
    }

    #[test]
    fn a_canary_over_groups_leaves_the_order_of_a_key_as_it_is() {
        let mut order = FairOrder::new(true);
        let of = |id, number, key: &'static [u8]| OrderedLetter {
            group: group(number),
            ..letter(id, None, Some(key))
        };
        order.push(of(0, 0, b"k"));
        order.push(of(1, 1, b"k"));
        order.push(of(2, 1, b"other"));
        order.push(of(3, 0, b"third"));
        assert_eq!(order.into_ids(3), [0, 2, 3, 1], "1 has to wait for 0, which is of another group");
    }

    proptest! {
        /// Every letter comes once, each tenant's in order, and no tenant is more than a turn ahead of a waiting one.
        #[test]
        fn each_letter_goes_once_and_no_tenant_runs_ahead(tenants in prop::collection::vec(0u8..6, 0..300)) {
            let mut order = FairOrder::new(false);
            for (id, tenant) in tenants.iter().enumerate() {
                order.push(letter(id as u64, Some(&tenant.to_string()), None));
            }
            let ids = order.into_ids(0);
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
