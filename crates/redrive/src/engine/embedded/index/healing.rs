//! Tables that are rebuilt from the journal when they turn out to be damaged, while readers go on.
//!
//! Changes since the last checkpoint are in overlays above the tables. So damaged tables can be replaced by new ones
//! that reflect the same checkpoint, without the layers above noticing. A reader that hits the damage either waits for
//! the new tables or gets an error; it chooses which.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use super::tables::{IndexError, IndexTables, OnRebuild, Pair, Space, Write};
use crate::engine::embedded::state::book::position_of;
use crate::engine::seam::EngineError;
use crate::engine::store_notice::StoreNotice;

/// How often a rebuild is tried, because segments may be dropped while the journal is read.
const TRIES: usize = 3;
/// If freshly built tables are damaged this often in a row, something else is broken.
const REBUILDS_IN_A_ROW_MAX: usize = 4;

/// Builds tables that reflect the journal up to a position; also returns the number of frames read.
pub type Rebuild<S> = dyn Fn(u64) -> Result<(Arc<S>, u64), EngineError> + Send + Sync;

pub struct Healing<S> {
    tables: RwLock<Arc<S>>,
    /// The journal position that the tables reflect.
    reflects: AtomicU64,
    /// Held during a checkpoint and during a rebuild, so that the position does not change meanwhile.
    writing: Mutex<()>,
    state: Mutex<HealingState>,
    changed: Condvar,
    rebuild: OnceLock<Box<Rebuild<S>>>,
    /// Wakes the thread that rebuilds; without one, the reader that finds the damage does it.
    alarm: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct HealingState {
    broken: Option<String>,
    failed: Option<IndexError>,
    rebuilds: u64,
    notices: Vec<StoreNotice>,
}

impl<S> std::fmt::Debug for Healing<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Healing").field("reflects", &self.reflects).finish_non_exhaustive()
    }
}

impl<S: IndexTables> Healing<S> {
    pub fn new(tables: Arc<S>) -> Self {
        Self {
            tables: RwLock::new(tables),
            reflects: AtomicU64::new(0),
            writing: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
            rebuild: OnceLock::new(),
            alarm: OnceLock::new(),
        }
    }

    /// Enables repair; the tables currently reflect the journal up to `reflects`.
    pub fn repair_with(&self, reflects: u64, rebuild: Box<Rebuild<S>>) {
        self.reflects.store(reflects, Ordering::SeqCst);
        let _ = self.rebuild.set(rebuild);
    }

    /// Lets another thread repair: `alarm` wakes it, and it calls [`Self::heal`].
    pub fn on_damage(&self, alarm: Box<dyn Fn() + Send + Sync>) {
        let _ = self.alarm.set(alarm);
    }

    pub fn take_notices(&self, out: &mut Vec<StoreNotice>) {
        out.append(&mut self.state().notices);
    }

    /// How often the tables were rebuilt.
    pub fn rebuilds(&self) -> u64 {
        self.state().rebuilds
    }

    /// Whether they are being rebuilt, or are about to be.
    pub fn is_broken(&self) -> bool {
        self.state().broken.is_some()
    }

    /// Reports that the tables are damaged.
    pub fn report(&self, why: String) {
        let tables = self.tables();
        self.broken(&tables, why);
    }

    /// Reports that merging failed; it is tried again after the next checkpoint.
    pub fn untidy(&self, why: String) {
        self.state().notices.push(StoreNotice::IndexUntidy { why });
    }

    /// Rebuilds the tables if they are broken.
    pub fn heal(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (true, Some(rebuild)) = (self.is_broken(), self.rebuild.get()) else { return };
        let began = Instant::now();
        let reflects = self.reflects.load(Ordering::SeqCst);
        let mut built = rebuild(reflects);
        for _ in 1..TRIES {
            if built.is_err() {
                built = rebuild(reflects);
            }
        }
        let mut state = self.state();
        match built {
            Ok((tables, frames)) => {
                *self.tables.write().unwrap_or_else(PoisonError::into_inner) = tables;
                state.rebuilds += 1;
                state.notices.push(StoreNotice::IndexRebuilt { frames, took: began.elapsed() });
            }
            Err(error) => {
                state.failed = Some(IndexError::Failed(format!("it cannot be rebuilt: {error}")));
            }
        }
        state.broken = None;
        self.changed.notify_all();
    }

    fn tables(&self) -> Arc<S> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, HealingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the damage once, unless these tables have been replaced already.
    fn broken(&self, tables: &Arc<S>, why: String) {
        let mut state = self.state();
        if !Arc::ptr_eq(tables, &self.tables()) || state.failed.is_some() {
            return;
        }
        if state.broken.is_none() {
            state.notices.push(StoreNotice::IndexDamaged { why: why.clone() });
            state.broken = Some(why);
        }
        drop(state);
        match self.alarm.get() {
            Some(alarm) => alarm(),
            None => self.heal(),
        }
    }

    fn wait(&self) -> Result<(), IndexError> {
        let mut state = self.state();
        while state.broken.is_some() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    fn try_until_whole<T>(
        &self,
        on_rebuild: OnRebuild,
        mut read: impl FnMut(&S) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        for _ in 0..REBUILDS_IN_A_ROW_MAX {
            let tables = self.tables();
            let why = match read(&tables) {
                Err(IndexError::Damaged(why)) if self.rebuild.get().is_some() => why,
                answer => return answer,
            };
            self.broken(&tables, why);
            if on_rebuild == OnRebuild::Ask && self.is_broken() {
                return Err(IndexError::Rebuilding);
            }
            self.wait()?;
        }
        Err(IndexError::Failed("it is damaged again and again".into()))
    }
}

impl<S: IndexTables> IndexTables for Healing<S> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.try_until_whole(OnRebuild::Wait, |tables| tables.get(space, key))
    }

    fn range(
        &self,
        space: Space,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, IndexError> {
        self.try_until_whole(OnRebuild::Wait, |tables| tables.range(space, from, to, limit))
    }

    fn ask(&self, space: Space, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.try_until_whole(OnRebuild::Ask, |tables| tables.get(space, key))
    }

    fn ask_range(
        &self,
        space: Space,
        from: &[u8],
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Pair>, IndexError> {
        self.try_until_whole(OnRebuild::Ask, |tables| tables.range(space, from, to, limit))
    }

    fn apply(&self, writes: &mut Vec<Write>) -> Result<(), IndexError> {
        let position = position_of(writes);
        self.try_until_whole(OnRebuild::Wait, |_| {
            let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            // The tables may have been replaced while this waited.
            self.tables().apply(writes)?;
            self.reflects.store(position.unwrap_or_default(), Ordering::SeqCst);
            Ok(())
        })
    }

    fn persist(&self) -> Result<(), IndexError> {
        self.tables().persist()
    }

    fn merge(&self) -> Result<bool, IndexError> {
        let tables = self.tables();
        match tables.merge() {
            Err(IndexError::Damaged(why)) => {
                self.broken(&tables, why);
                self.heal();
                self.state().failed.clone().map_or(Ok(true), Err)
            }
            merged => merged,
        }
    }

    fn verify(&self, go_on: &mut dyn FnMut(u64) -> bool) -> Result<(), IndexError> {
        self.tables().verify(go_on)
    }

    fn bytes_of(&self, space: Space) -> u64 {
        self.tables().bytes_of(space)
    }

    fn forget_ids_before(&self, at: u64) {
        self.tables().forget_ids_before(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::embedded::maintenance::maintainer::upkeep;

    /// Tables on a disk that has failed.
    struct Unreadable;

    fn unreadable<T>() -> Result<T, IndexError> {
        Err(IndexError::Damaged("reading: input/output error".into()))
    }

    impl IndexTables for Unreadable {
        fn get(&self, _: Space, _: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
            unreadable()
        }
        fn range(&self, _: Space, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<Vec<Pair>, IndexError> {
            unreadable()
        }
        fn apply(&self, _: &mut Vec<Write>) -> Result<(), IndexError> {
            unreadable()
        }
        fn persist(&self) -> Result<(), IndexError> {
            unreadable()
        }
        fn merge(&self) -> Result<bool, IndexError> {
            unreadable()
        }
    }

    #[test]
    fn tables_that_cannot_be_rebuilt_fail_and_nobody_tries_for_ever() {
        let tables = Healing::new(Arc::new(Unreadable));
        tables.repair_with(0, Box::new(|_| Err(EngineError::Storage("the disk is gone".into()))));
        upkeep(&tables);
        assert!(!tables.is_broken());
        let asked = tables.ask(Space::Letters, &[1]);
        assert!(
            matches!(&asked, Err(IndexError::Failed(why)) if why.contains("the disk is gone")),
            "{asked:?}"
        );
    }
}
