//! The segments of a log in order, and a limited number of open files.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use super::segment::Segment;
use crate::engine::embedded::disk::real::{Disk, is_out_of_files};

/// How many segments are held open for reading; a log may have thousands.
const OPEN_MAX: usize = 64;

/// How often a reader waits for a file descriptor if all are in use and it has none of its own to close.
const WAITS_MAX: u32 = 500;
const WAIT: Duration = Duration::from_millis(10);

/// Shared between the writer and the readers.
#[derive(Debug)]
pub(crate) struct Segments<D: Disk>(Arc<Inner<D>>);

#[derive(Debug)]
struct Inner<D: Disk> {
    disk: D,
    segments: RwLock<Vec<Arc<Segment>>>,
    /// The open files by base; the one opened first comes first.
    open: Mutex<VecDeque<(u64, Arc<D::File>)>>,
}

impl<D: Disk> Clone for Segments<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: Disk> Segments<D> {
    pub(crate) fn new(disk: D, segments: Vec<Arc<Segment>>) -> Self {
        Self(Arc::new(Inner { disk, segments: RwLock::new(segments), open: Mutex::default() }))
    }

    pub(crate) fn snapshot(&self) -> Vec<Arc<Segment>> {
        self.read().clone()
    }

    pub(crate) fn push(&self, segment: Arc<Segment>) {
        self.write().push(segment);
    }

    pub(crate) fn remove(&self, base: u64) {
        self.write().retain(|segment| segment.base != base);
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|(open, _)| *open != base);
    }

    pub(crate) fn first(&self) -> Option<Arc<Segment>> {
        self.read().first().cloned()
    }

    /// The segment with the highest base at or below `position`.
    pub(crate) fn at(&self, position: u64) -> Option<Arc<Segment>> {
        let segments = self.read();
        let behind = segments.partition_point(|segment| segment.base <= position);
        segments.get(behind.checked_sub(1)?).cloned()
    }

    /// The file of a segment, for reading. It stays readable while it is held, even after it was removed.
    pub(crate) fn file(&self, segment: &Segment) -> io::Result<Arc<D::File>> {
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = open.iter().rev().find(|(base, _)| *base == segment.base) {
            return Ok(file.clone());
        }
        let file = Arc::new(open_patiently(&self.0.disk, &segment.name, &mut open)?);
        if open.len() == OPEN_MAX {
            open.pop_front();
        }
        open.push_back((segment.base, file.clone()));
        Ok(file)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Segment>>> {
        self.0.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Arc<Segment>>> {
        self.0.segments.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a file. If there is no file descriptor left, closes cached files first.
fn open_patiently<D: Disk>(
    disk: &D,
    name: &str,
    held: &mut VecDeque<(u64, Arc<D::File>)>,
) -> io::Result<D::File> {
    let mut waits = 0;
    loop {
        match disk.open(name) {
            Err(error) if is_out_of_files(&error) && waits < WAITS_MAX => {
                if held.pop_front().is_none() {
                    waits += 1;
                    std::thread::sleep(WAIT);
                }
            }
            opened => return opened,
        }
    }
}
