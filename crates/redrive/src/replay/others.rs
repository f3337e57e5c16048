//! Jobs that other processes of the group started, as this process knows them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::job::ReplayView;
use super::live::{Job, Listener};
use super::records::JobRecord;
use crate::engine::SharedRecords;

#[derive(Default)]
pub(super) struct Others {
    jobs: Mutex<BTreeMap<String, Arc<Job>>>,
    /// Pipelines whose jobs are shared.
    groups: Mutex<HashMap<String, Arc<dyn SharedRecords>>>,
}

impl Others {
    /// Shares the jobs of a pipeline from now on; `false` if they were shared before.
    pub(super) fn share(&self, pipeline: &str, jobs: Arc<dyn SharedRecords>) -> bool {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.insert(pipeline.to_owned(), jobs).is_none()
    }

    /// The shared records of a pipeline, if its jobs are shared.
    pub(super) fn group(&self, pipeline: &str) -> Option<Arc<dyn SharedRecords>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).get(pipeline).cloned()
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Job>> {
        self.jobs().get(id).cloned()
    }

    /// The job that a record describes.
    pub(super) fn known(&self, record: &JobRecord, listener: &Listener) -> Arc<Job> {
        let mut jobs = self.jobs();
        let job = jobs.entry(record.id.clone()).or_insert_with(|| {
            let (facts, progress) = (record.facts.clone(), record.progress.clone());
            Arc::new(Job::new(record.id.clone(), facts, progress, Arc::clone(listener)))
        });
        Arc::clone(job)
    }

    /// Forgets jobs of a pipeline that the group has forgotten.
    pub(super) fn retain(&self, pipeline: &str, is_known: impl Fn(&str) -> bool) {
        self.jobs().retain(|id, job| job.facts.pipeline != pipeline || job.is_attached() || is_known(id));
    }

    pub(super) fn views(&self) -> Vec<ReplayView> {
        self.jobs().values().map(|job| job.view()).collect()
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
