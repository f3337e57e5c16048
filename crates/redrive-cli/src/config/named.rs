//! Checks beyond the text: whether the files it names are usable, and what the parts that will run say about them.

use std::fmt;

use super::fault::Fault;

/// A check to run after the text is read. It may read files, but connects to nothing.
pub(super) struct Named {
    /// The part of the configuration it belongs to, as named in messages.
    part: Option<String>,
    look: Box<dyn Fn() -> Vec<Fault>>,
}

impl Named {
    pub(super) fn new(part: Option<&str>, look: impl Fn() -> Vec<Fault> + 'static) -> Self {
        Self { part: part.map(str::to_owned), look: Box::new(look) }
    }

    pub(super) fn faults(&self) -> Vec<Fault> {
        (self.look)().into_iter().map(|fault| fault.of(self.part.as_deref())).collect()
    }
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("part", &self.part).finish_non_exhaustive()
    }
}
