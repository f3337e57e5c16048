//! An answer of the API, whose shapes are those of `redrive-api`.

use serde_json::Value;

/// An answer twice: as it came, for `--json`, and as what we understand of it.
#[derive(Clone, Debug)]
pub struct ApiAnswer<T> {
    pub json: Value,
    pub view: T,
}
