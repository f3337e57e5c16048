//! What of a configuration may be secret: kept out of messages, and better out of the file too.

use std::path::Path;

use redrive_sinks::Secret;

use super::fault::Fault;
use super::keys;
use super::tree::At;

/// A warning about a file with a secret that every user of the machine may read or change. `key` is the setting that names
/// the file.
pub(super) fn exposed(key: &str, path: &Path, at: &At) -> Option<Fault> {
    let exposure = Secret::exposure(path)?;
    let shown = path.display();
    let problem = format!("`{key}` names {shown}, which holds a secret, and {exposure}");
    Some(Fault::line(key, problem, format!("chmod o-rwx {shown}"), vec![at.clone()]).warning())
}

/// Headers whose value is a secret more often than not.
pub(super) fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "proxy-authorization", "cookie"].contains(&name.as_str())
        || ["token", "secret", "api-key", "apikey", "password", "signature"]
            .iter()
            .any(|part| name.contains(part))
}

/// Whether a line of the file may appear in a message. Only a line that sets a single plain key of ours may: a line in
/// the middle of a text of several lines, a table of headers or an unknown key can hold anything.
pub(super) fn may_be_shown(whole: &str, line: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else {
        return line.trim_start().starts_with('[');
    };
    let key = key.trim();
    let several_lines = whole.contains("\"\"\"") || whole.contains("'''");
    let credentials = value.contains('@');
    keys::is_plain(key) && !several_lines && !credentials && !value.contains('{')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_a_plain_key_of_ours_are_shown() {
        let shown = |line: &str| may_be_shown(line, line);
        assert!(shown("tiers = [\"30s\", \"5s\"]"));
        assert!(shown("  timeout = 5"));
        assert!(shown("[engine"));
        assert!(!shown("secret = \"hunter2\""));
        assert!(!shown("headers = { authorization = \"Bearer hunter2\" }"));
        assert!(!shown("authorization = \"Bearer hunter2\""));
        assert!(!shown("url = \"https://user:hunter2@example.com\""));
        assert!(!shown("hunter2"));
        assert!(!may_be_shown("x = \"\"\"\nmode = hunter2\n\"\"\"", "mode = hunter2"));
    }
}
