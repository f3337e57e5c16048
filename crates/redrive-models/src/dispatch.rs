//! The parts of a call that its hand-over needs.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(pub u32);

#[derive(Debug)]
pub struct Start {
    pub call: CallId,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    Unfinished,
}
