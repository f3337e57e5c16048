//! Stored subscriptions, by id and by endpoint. Several ids may have the same endpoint, such as two accounts in one
//! browser.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::record::EndpointId;
use super::stored::Stored;

#[derive(Debug, Default)]
pub(super) struct StoredIndex {
    by_id: BTreeMap<String, Arc<Stored>>,
    by_endpoint: BTreeSet<(EndpointId, String)>,
    /// The number of different endpoints.
    endpoints: usize,
    /// The number of subscriptions by VAPID key.
    keys: BTreeMap<Option<String>, u64>,
}

impl StoredIndex {
    pub(super) fn put(&mut self, id: String, stored: Stored) {
        drop(self.take(&id));
        let is_new = self.ids_of(stored.endpoint).next().is_none();
        self.endpoints += usize::from(is_new);
        *self.keys.entry(stored.key.clone()).or_default() += 1;
        self.by_endpoint.insert((stored.endpoint, id.clone()));
        self.by_id.insert(id, Arc::new(stored));
    }

    pub(super) fn take(&mut self, id: &str) -> Option<Arc<Stored>> {
        let (id, stored) = self.by_id.remove_entry(id)?;
        self.by_endpoint.remove(&(stored.endpoint, id));
        let was_last = self.ids_of(stored.endpoint).next().is_none();
        self.endpoints -= usize::from(was_last);
        if let Some(count) = self.keys.get_mut(&stored.key) {
            *count -= 1;
        }
        self.keys.retain(|_, count| *count > 0);
        Some(stored)
    }

    pub(super) fn get(&self, id: &str) -> Option<&Arc<Stored>> {
        self.by_id.get(id)
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether a stored subscription has this endpoint.
    pub(super) fn names(&self, endpoint: EndpointId) -> bool {
        self.ids_of(endpoint).next().is_some()
    }

    /// The number of different endpoints.
    pub(super) fn endpoints(&self) -> usize {
        self.endpoints
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Arc<Stored>)> {
        self.by_id.iter()
    }

    /// The ids of an endpoint, in order.
    pub(super) fn ids_of(&self, endpoint: EndpointId) -> impl Iterator<Item = &String> {
        let from = self.by_endpoint.range((endpoint, String::new())..);
        from.take_while(move |(at, _)| *at == endpoint).map(|(_, id)| id)
    }

    /// Endpoints with a stored subscription, sorted and without duplicates.
    pub(super) fn endpoints_after(&self, after: Option<EndpointId>) -> impl Iterator<Item = EndpointId> {
        let from = after.map_or(Some(0), |after| after.number().checked_add(1));
        let from = from.map(|number| (EndpointId::from_number(number), String::new()));
        let range = from.map(|from| self.by_endpoint.range(from..));
        let mut last = None;
        range.into_iter().flatten().map(|(endpoint, _)| *endpoint).filter(move |endpoint| {
            let is_new = last != Some(*endpoint);
            last = Some(*endpoint);
            is_new
        })
    }

    /// The number of subscriptions by VAPID key.
    pub(super) fn keys(&self) -> &BTreeMap<Option<String>, u64> {
        &self.keys
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Time;
    use serde_json::json;

    use super::super::stored::Registered;
    use super::*;

    fn stored(endpoint: u64) -> Stored {
        let registered = Registered { endpoint: EndpointId::from_number(endpoint), key: None };
        Stored::new(registered, Time::ZERO, &json!({}))
    }

    fn ids(index: &StoredIndex, endpoint: u64) -> Vec<&str> {
        index.ids_of(EndpointId::from_number(endpoint)).map(String::as_str).collect()
    }

    #[test]
    fn an_endpoint_has_all_ids_that_name_it_until_each_is_removed_or_moves_on() {
        let mut index = StoredIndex::default();
        index.put("b".into(), stored(7));
        index.put("a".into(), stored(7));
        index.put("c".into(), stored(u64::MAX));
        assert_eq!((ids(&index, 7), ids(&index, 8)), (vec!["a", "b"], vec![]));
        index.put("b".into(), stored(8));
        assert_eq!((ids(&index, 7), ids(&index, 8)), (vec!["a"], vec!["b"]));
        assert!(index.take("a").is_some() && index.take("a").is_none());
        assert_eq!((ids(&index, 7), index.len()), (vec![], 2));
    }

    #[test]
    fn endpoints_and_keys_are_counted_through_every_change() {
        let mut index = StoredIndex::default();
        let made_with = |endpoint: u64, key: &str| {
            let endpoint = EndpointId::from_number(endpoint);
            Stored::new(Registered { endpoint, key: Some(key.to_owned()) }, Time::ZERO, &json!({}))
        };
        let keys = |index: &StoredIndex| {
            index.keys().iter().map(|(key, count)| (key.clone().unwrap(), *count)).collect::<Vec<_>>()
        };
        for (id, endpoint, key) in [("a", 1, "old"), ("b", 1, "old"), ("c", 2, "new")] {
            index.put(id.into(), made_with(endpoint, key));
        }
        assert_eq!((index.len(), index.endpoints()), (3, 2));
        assert_eq!(keys(&index), [("new".to_owned(), 1), ("old".to_owned(), 2)]);
        index.put("a".into(), made_with(3, "new"));
        assert_eq!((index.len(), index.endpoints()), (3, 3));
        index.put("b".into(), made_with(3, "new"));
        assert_eq!((index.endpoints(), keys(&index)), (2, vec![("new".to_owned(), 3)]));
        drop((index.take("a"), index.take("b"), index.take("c")));
        assert_eq!((index.endpoints(), keys(&index)), (0, vec![]));
    }

    #[test]
    fn each_endpoint_is_listed_once_and_the_last_one_has_none_after_it() {
        let mut index = StoredIndex::default();
        for (id, endpoint) in [("a", 1), ("b", 1), ("c", 2), ("d", u64::MAX)] {
            index.put(id.into(), stored(endpoint));
        }
        let after = |after: Option<u64>| {
            let listed = index.endpoints_after(after.map(EndpointId::from_number));
            listed.map(EndpointId::number).collect::<Vec<_>>()
        };
        assert_eq!(after(None), [1, 2, u64::MAX]);
        assert_eq!(after(Some(1)), [2, u64::MAX]);
        assert_eq!(after(Some(u64::MAX)), Vec::<u64>::new());
    }
}
