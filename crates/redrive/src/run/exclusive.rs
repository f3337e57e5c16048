//! Coordinates exclusive runs of suspects across all pipelines of a process. Since a crash hits all pipelines,
//! suspects of all of them run one at a time, and an exclusive run stops every pipeline.

use redrive_core::suspects::Run;

use crate::sync::Ordering::SeqCst;
use crate::sync::{Arc, AtomicBool, AtomicUsize};

const NONE: usize = usize::MAX;

#[derive(Debug)]
pub(crate) struct ExclusiveRuns {
    /// The pipeline whose suspect has its turn.
    turn: AtomicUsize,
    /// Whether that suspect runs exclusively.
    exclusive: AtomicBool,
    /// Which pipelines have running calls.
    busy: Box<[AtomicBool]>,
    /// Whether a message of any pipeline is suspected of having crashed the process.
    suspected: AtomicBool,
}

/// One pipeline's view of it.
#[derive(Clone, Debug)]
pub(crate) struct PipelineTurn {
    all: Arc<ExclusiveRuns>,
    own: usize,
}

impl ExclusiveRuns {
    pub(crate) fn of(pipelines: usize) -> Vec<PipelineTurn> {
        let busy = (0..pipelines).map(|_| AtomicBool::new(false)).collect();
        let (exclusive, suspected) = (AtomicBool::new(false), AtomicBool::new(false));
        let all = Arc::new(Self { turn: AtomicUsize::new(NONE), exclusive, busy, suspected });
        (0..pipelines).map(|own| PipelineTurn { all: Arc::clone(&all), own }).collect()
    }
}

impl PipelineTurn {
    /// Whether this pipeline may start calls. It counts as busy from here on, until it says otherwise. An exclusive
    /// run checks the pipelines after announcing itself, so at least one of the two sees the other.
    pub(crate) fn enter(&self) -> bool {
        self.all.busy[self.own].store(true, SeqCst);
        let excluded = self.all.exclusive.load(SeqCst) && self.all.turn.load(SeqCst) != self.own;
        !excluded
    }

    /// Sets whether calls are running here.
    pub(crate) fn busy(&self, busy: bool) {
        self.all.busy[self.own].store(busy, SeqCst);
    }

    /// Whether this pipeline reports on behalf of the process.
    pub(crate) fn is_first(&self) -> bool {
        self.own == 0
    }

    /// Records that a message of this pipeline is suspected of having crashed the process, which all pipelines share.
    pub(crate) fn suspects(&self) {
        self.all.suspected.store(true, SeqCst);
    }

    /// Whether a message of any pipeline is suspected.
    pub(crate) fn is_anybody_suspected(&self) -> bool {
        self.all.suspected.load(SeqCst)
    }

    /// Asks for the turn. Returns whether the suspect may start now.
    pub(crate) fn ask(&self, run: Run) -> bool {
        let taken = self.all.turn.compare_exchange(NONE, self.own, SeqCst, SeqCst);
        if taken.is_err_and(|holder| holder != self.own) {
            return false;
        }
        if run == Run::Alone {
            return true;
        }
        self.all.exclusive.store(true, SeqCst);
        let others = self.all.busy.iter().enumerate().filter(|(number, _)| *number != self.own);
        others.into_iter().all(|(_, busy)| !busy.load(SeqCst))
    }

    /// Ends the turn, because the suspect is settled or this pipeline ends.
    pub(crate) fn leave(&self) {
        if self.all.turn.load(SeqCst) == self.own {
            self.all.exclusive.store(false, SeqCst);
            self.all.turn.store(NONE, SeqCst);
        }
    }
}
