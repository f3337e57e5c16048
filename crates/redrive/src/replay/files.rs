//! Replay jobs on disk: `r-1.json` holds the job and its progress, `r-1.ids` its frozen selection.
//!
//! They are two files because one is written every second, and the other, which may be large, only once. A file is
//! either complete or missing: it is written under another name, synced and renamed.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::job::{self, Facts, JobProgress};
use crate::owner_only;

/// A job file holds a description in words; this is plenty.
const JOB_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct Files {
    dir: PathBuf,
}

/// The contents of the directory.
#[derive(Debug, Default)]
pub(super) struct FoundJobs {
    pub jobs: Vec<(Facts, JobProgress)>,
    /// The highest number in use, including that of unreadable files.
    pub highest: u64,
    /// Files that cannot be read, with the errors.
    pub faults: Vec<String>,
}

impl Files {
    /// Opens or creates the directory and reads all jobs.
    pub(super) fn open(dir: &Path) -> io::Result<(Self, FoundJobs)> {
        let files = Self { dir: dir.join("replays") };
        match owner_only::create_dir(&files.dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        File::open(dir)?.sync_all()?;
        let mut found = FoundJobs::default();
        let (mut selections, mut named) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&files.dir)? {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).and_then(job::number);
            let extension = path.extension().and_then(|extension| extension.to_str());
            let Some(number) = stem else { continue };
            found.highest = found.highest.max(number);
            match extension {
                Some("json") => match read_job(&path) {
                    Ok((facts, progress, names_tenants)) if facts.number == number => {
                        named.extend(names_tenants.then_some(found.jobs.len()));
                        found.jobs.push((facts, progress));
                    }
                    Ok(_) => found.faults.push(format!("{}: it holds another job", path.display())),
                    Err(error) => found.faults.push(format!("{}: {error}", path.display())),
                },
                Some("ids") => selections.push((number, path)),
                // An incomplete write.
                Some("new") => fs::remove_file(&path)?,
                _ => {}
            }
        }
        for (facts, progress) in named.into_iter().map(|at: usize| &found.jobs[at]) {
            files.write(facts, progress)?;
        }
        // A selection without a job: the process died before the job was acknowledged.
        for (number, path) in selections {
            let json = files.path(number, "json");
            if !json.exists() {
                fs::remove_file(path)?;
            }
        }
        Ok((files, found))
    }

    fn path(&self, number: u64, extension: &str) -> PathBuf {
        self.dir.join(format!("{}.{extension}", job::name(number)))
    }

    pub(super) fn write(&self, facts: &Facts, progress: &JobProgress) -> io::Result<()> {
        let text = format!("{:#}\n", job::to_json(facts, progress));
        self.write_durably(facts.number, "json", |out| out.write_all(text.as_bytes()))
    }

    pub(super) fn write_ids(&self, number: u64, ids: &[u64]) -> io::Result<()> {
        self.write_durably(number, "ids", |out| ids.iter().try_for_each(|id| writeln!(out, "{id}")))
    }

    fn write_durably(
        &self,
        number: u64,
        extension: &str,
        content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.path(number, extension);
        let unfinished = self.dir.join(format!("{}.new", job::name(number)));
        let mut out = BufWriter::new(owner_only::create_file(&unfinished)?);
        content(&mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(&self.dir)?.sync_all()
    }

    /// The frozen selection, or why it cannot be trusted.
    pub(super) fn read_ids(&self, facts: &Facts) -> Result<Vec<u64>, String> {
        let path = self.path(facts.number, "ids");
        let wrong = |what: &str| format!("its selection {} {what}", path.display());
        let file = File::open(&path).map_err(|error| wrong(&format!("cannot be opened: {error}")))?;
        let mut ids = Vec::with_capacity(facts.total.min(10_000_000) as usize);
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
            ids.push(line.parse().map_err(|_| wrong("holds something that is not a letter"))?);
            if ids.len() as u64 > facts.total {
                break;
            }
        }
        if ids.len() as u64 != facts.total || checksum(&ids) != facts.ids_crc {
            return Err(wrong("is damaged"));
        }
        Ok(ids)
    }

    /// Removes the selection of a finished job.
    pub(super) fn forget_ids(&self, number: u64) -> io::Result<()> {
        gone(fs::remove_file(self.path(number, "ids")))
    }

    pub(super) fn forget(&self, number: u64) -> io::Result<()> {
        self.forget_ids(number)?;
        gone(fs::remove_file(self.path(number, "json")))
    }
}

pub(super) fn checksum(ids: &[u64]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for id in ids {
        hasher.update(&id.to_le_bytes());
    }
    hasher.finalize()
}

fn gone(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The job, and whether its file contains names of tenants.
fn read_job(path: &Path) -> Result<(Facts, JobProgress, bool), String> {
    let len = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if len > JOB_BYTES_MAX {
        return Err(format!("it has {len} bytes, which no job has"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let (facts, progress) = job::from_json(&value).ok_or_else(|| "it is not a replay job".to_owned())?;
    Ok((facts, progress, job::names_tenants(text.as_bytes())))
}
