//! Secrets in a configuration: kept out of messages, and preferably out of the file too.

use std::path::Path;

use redrive_core::text::secret_header;
use redrive_sinks::Secret;

use super::fault::Fault;
use super::tree::At;

/// Warns about a file with a secret that every user of the machine may read or change. `key` is the setting that names
/// the file.
pub(super) fn exposed(key: &str, path: &Path, at: &At) -> Option<Fault> {
    let exposure = Secret::exposure(path)?;
    let shown = path.display();
    let problem = format!("`{key}` names {shown}, which holds a secret, and {exposure}");
    Some(Fault::line(key, problem, format!("chmod o-rwx {shown}"), vec![at.clone()]).warning())
}

/// Headers whose value is usually a secret.
pub(super) fn is_secret_header(name: &str) -> bool {
    secret_header::is_secret_header(name) || name.to_ascii_lowercase().contains("signature")
}
