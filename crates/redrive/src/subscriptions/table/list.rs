//! Rows of the table, found by name or listed page by page.

use super::super::record::{EndpointId, Standing};
use super::{Listed, Table};

impl Table {
    /// An endpoint by its hash or by the id of a stored subscription. `None` if it was never heard of.
    pub(in super::super) fn find(&self, name: &str) -> Option<EndpointId> {
        let stored = self.stored.get(name).map(|stored| stored.endpoint);
        stored.or_else(|| name.parse::<EndpointId>().ok().filter(|id| self.knows(*id)))
    }

    fn knows(&self, id: EndpointId) -> bool {
        self.records.contains(id) || self.stored.ids_of(id).next().is_some() || self.recent.contains(id)
    }

    pub(in super::super) fn show(&self, endpoint: EndpointId) -> Listed {
        let ids: Vec<String> = self.stored.ids_of(endpoint).cloned().collect();
        let stored = ids.iter().filter_map(|id| self.stored.get(id)).max_by_key(|stored| stored.registered);
        Listed { endpoint, record: self.records.get(endpoint).cloned(), stored: stored.cloned(), ids }
    }

    /// Endpoints that are stored, flagged or purged, in the order of their hashes.
    pub(in super::super) fn list(
        &self,
        standing: Option<Standing>,
        after: Option<EndpointId>,
        limit: usize,
    ) -> Vec<Listed> {
        let fits = |it: &Standing| standing.is_none_or(|wanted| wanted == *it);
        let marked = self.records.after(after).filter(|(_, record)| fits(&record.standing));
        let mut found: Vec<EndpointId> = marked.take(limit).map(|(id, _)| id).collect();
        if fits(&Standing::Active) {
            let active = self.stored.endpoints_after(after);
            found.extend(active.filter(|id| !self.records.contains(*id)).take(limit));
        }
        found.sort_unstable();
        found.into_iter().take(limit).map(|id| self.show(id)).collect()
    }
}
