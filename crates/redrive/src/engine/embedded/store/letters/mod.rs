//! Changes of letters: `edit`, `erase` and `import` plan the frames, `keep_letters` has them written and answers once they
//! are durable.

pub(super) mod edit;
pub(super) mod erase;
mod import;
mod keep_letters;
mod wiping;
