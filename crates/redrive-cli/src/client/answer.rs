//! An answer of the API; its types are those of `redrive-api`.

use serde_json::Value;

/// An answer in two forms: raw, for `--json`, and parsed.
#[derive(Clone, Debug)]
pub struct ApiAnswer<T> {
    pub json: Value,
    pub view: T,
}
