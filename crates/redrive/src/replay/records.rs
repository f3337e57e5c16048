//! Jobs as records that all processes of a pipeline share: the runner of a job, its progress, and its frozen
//! selection in pieces. Pure.

use bytes::Bytes;
use serde_json::{Value, json};

use super::files::checksum;
use super::job::{self, Facts, JobProgress, ReplayState};

/// Prefix of all keys.
pub(super) const PREFIX: &str = "replay/";
/// The process that runs the controller of auto-replay. No job has this name.
pub(super) const LEASE: &str = "replay/auto/lease";
/// In front of the names of processes for which something is wrong with the sink.
pub(super) const UNHEALTHY: &str = "replay/auto/unhealthy/";
/// Bytes of one piece of a selection; a broker takes a megabyte unless told otherwise.
const PIECE_BYTES_MAX: usize = 256 << 10;

/// The state of a job as its runner last wrote it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JobRecord {
    /// The name of the job.
    pub id: String,
    /// The process that runs it.
    pub runner: String,
    /// Incremented with every write, as a heartbeat of the runner.
    pub beat: u64,
    pub facts: Facts,
    pub progress: JobProgress,
}

impl JobRecord {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut value = job::to_json(&self.facts, &self.progress);
        value["name"] = json!(self.id);
        value["runner"] = json!(self.runner);
        value["beat"] = json!(self.beat);
        value.to_string().into_bytes()
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        let (id, runner) = (text("name")?, text("runner")?);
        let beat = value.get("beat")?.as_u64()?;
        let (facts, progress) = job::from_json(&value)?;
        Some(Self { id, runner, beat, facts, progress })
    }
}

pub(super) fn job_key(id: &str) -> String {
    format!("{PREFIX}{id}/job")
}

/// Whether the key is that of a job's state.
fn is_job_key(key: &str) -> bool {
    key.strip_prefix(PREFIX).is_some_and(|rest| rest.ends_with("/job"))
}

/// All jobs among the records.
pub(super) fn jobs_in(shared: &[(String, Bytes)]) -> Vec<JobRecord> {
    let of_jobs = shared.iter().filter(|(key, _)| is_job_key(key));
    of_jobs.filter_map(|(_, value)| JobRecord::of_bytes(value)).collect()
}

/// Finished jobs whose records contain names of tenants, written by an earlier version.
pub(super) fn naming_tenants(shared: &[(String, Bytes)]) -> Vec<JobRecord> {
    let named = shared.iter().filter(|(key, value)| is_job_key(key) && job::names_tenants(value));
    let named = named.filter_map(|(_, value)| JobRecord::of_bytes(value));
    named.filter(|record| record.progress.is_settled()).collect()
}

/// The key of a request to change a job that runs in another process.
pub(super) fn wish_key(id: &str) -> String {
    format!("{PREFIX}{id}/wish")
}

pub(super) fn wish_of(value: &[u8]) -> Option<ReplayState> {
    ReplayState::from_name(std::str::from_utf8(value).ok()?)
}

/// Prefix of the keys of a selection's pieces.
pub(super) fn pieces_prefix(id: &str) -> String {
    format!("{PREFIX}{id}/ids/")
}

pub(super) fn piece_key(id: &str, number: usize) -> String {
    format!("{}{number:06}", pieces_prefix(id))
}

/// Encodes ids as differences of variable length.
pub(super) fn pieces(ids: &[u64]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    let (mut piece, mut before) = (Vec::new(), 0_u64);
    for id in ids {
        let step = id.wrapping_sub(before).cast_signed();
        // Zigzag encoding, so that small negative steps are small numbers too.
        let mut left = ((step << 1) ^ (step >> 63)).cast_unsigned();
        while left >= 0x80 {
            piece.push(left as u8 | 0x80);
            left >>= 7;
        }
        piece.push(left as u8);
        before = *id;
        if piece.len() >= PIECE_BYTES_MAX {
            pieces.push(std::mem::take(&mut piece));
            before = 0;
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Decodes pieces in order; `None` if they are malformed.
pub(super) fn ids_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<u64>> {
    let mut ids = Vec::new();
    for piece in pieces {
        let (mut before, mut number, mut shift) = (0_u64, 0_u64, 0_u32);
        for byte in piece {
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                let step = (number >> 1).cast_signed() ^ -((number & 1).cast_signed());
                before = before.wrapping_add(step.cast_unsigned());
                ids.push(before);
                (number, shift) = (0, 0);
            }
        }
        if shift != 0 {
            return None;
        }
    }
    Some(ids)
}

/// The letters that a job still has to put back, according to its last written state; `None` if that is unknown.
pub(super) fn left_of(shared: &[(String, Bytes)], record: &JobRecord) -> Option<Vec<u64>> {
    let mut ids = selection_in(shared, &record.id, &record.facts)?;
    let offered = (record.progress.offered as usize).min(ids.len());
    Some(ids.split_off(offered))
}

/// The frozen selection of a job, if all of its pieces are there.
pub(super) fn selection_in(shared: &[(String, Bytes)], id: &str, facts: &Facts) -> Option<Vec<u64>> {
    let prefix = pieces_prefix(id);
    let pieces = shared.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(_, piece)| &**piece);
    ids_of(pieces).filter(|ids| checksum(ids) == facts.ids_crc)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redrive_core::Time;

    use super::*;
    use crate::replay::job::ReplaySpec;

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let facts = Facts {
            number: 3,
            engine_job: 77,
            pipeline: "orders".into(),
            spec: ReplaySpec::default(),
            total: 2,
            ids_crc: 1,
            created: Time::from_millis(1_700_000_000_000),
            actor: "ops".into(),
            groups: crate::replay::TouchedGroups::default(),
        };
        let progress = JobProgress::new();
        let record = JobRecord { id: "r-k3x9q-3".into(), runner: "k3x9q".into(), beat: 9, facts, progress };
        assert_eq!(JobRecord::of_bytes(&record.to_bytes()), Some(record.clone()));
        let mut earlier: Value = serde_json::from_slice(&record.to_bytes()).unwrap();
        earlier["tenants"] = json!([["erika@example.com", 2]]);
        let written = |value: &Value, state: &str| {
            let mut value = value.clone();
            value["state"] = json!(state);
            vec![(job_key("r-k3x9q-3"), Bytes::from(value.to_string()))]
        };
        let named = naming_tenants(&written(&earlier, "done"));
        assert_eq!(named.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["r-k3x9q-3"]);
        assert!(!String::from_utf8(named[0].to_bytes()).unwrap().contains("erika"));
        assert_eq!(naming_tenants(&written(&earlier, "running")), [], "its runner writes it anew");
        assert_eq!(JobRecord::of_bytes(b"{}"), None);
        assert!(is_job_key(&job_key("r-1")) && !is_job_key(&piece_key("r-1", 0)) && !is_job_key("pause"));
        assert_eq!(wish_of(b"paused"), Some(ReplayState::Paused));
    }

    #[test]
    fn a_million_neighbours_take_little_room() {
        let ids: Vec<u64> = (7 << 48..(7 << 48) + 1_000_000).collect();
        let pieces = pieces(&ids);
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX + 10), "too long for a record");
        assert!(pieces.iter().map(Vec::len).sum::<usize>() < 1_100_000);
        assert_eq!(ids_of(pieces.iter().map(Vec::as_slice)), Some(ids));
    }

    proptest! {
        #[test]
        fn any_ids_come_back_in_their_order(ids in prop::collection::vec(any::<u64>(), 0..200)) {
            let pieces = pieces(&ids);
            prop_assert_eq!(ids_of(pieces.iter().map(Vec::as_slice)), Some(ids));
        }

        #[test]
        fn what_is_no_selection_is_not_taken_for_one(bytes in prop::collection::vec(any::<u8>(), 0..50)) {
            let _ = ids_of([bytes.as_slice()]);
        }
    }
}
