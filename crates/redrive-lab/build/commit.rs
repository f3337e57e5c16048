//! Finds the commit that a program is built from. Shared by `build.rs` and the tests of the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const UNKNOWN: &str = "unknown";
/// `cargo package` adds this file to the package.
const PACKED: &str = ".cargo_vcs_info.json";
const DIRTY: &str = "-dirty";

pub struct BuiltFrom {
    /// Ends in `-dirty` if the sources differ from the commit.
    pub commit: String,
    /// Files and directories to watch: the commit may change when they do.
    pub watch: Vec<PathBuf>,
}

/// Returns the commit for `package`, a directory two levels below the root of its checkout; `made_of` lists the
/// source paths relative to that root. `named` overrides it.
pub fn of(package: &Path, made_of: &[&str], named: Option<&str>) -> BuiltFrom {
    let fixed = |commit: &str, watch: Vec<PathBuf>| BuiltFrom { commit: commit.to_owned(), watch };
    if let Some(named) = named.map(str::trim).filter(|named| !named.is_empty()) {
        return fixed(named, Vec::new());
    }
    let packed = package.join(PACKED);
    if let Ok(info) = fs::read_to_string(&packed) {
        return fixed(&of_packed(&info).unwrap_or_else(|| UNKNOWN.to_owned()), vec![packed]);
    }
    let Some(root) = package.ancestors().nth(2).filter(|root| root.join(".git").exists()) else {
        return fixed(UNKNOWN, Vec::new());
    };
    let Some(commit) = git(root, &["describe", "--always", "--abbrev=12"]) else {
        return fixed(UNKNOWN, Vec::new());
    };
    let made_of: Vec<&str> = made_of.iter().copied().filter(|path| root.join(path).exists()).collect();
    let status = ["status", "--porcelain", "--"].iter().chain(&made_of).copied().collect::<Vec<_>>();
    let is_dirty = git(root, &status).is_some();
    let mut watch = heads(root);
    watch.extend(made_of.iter().map(|path| root.join(path)));
    BuiltFrom { commit: if is_dirty { commit + DIRTY } else { commit }, watch }
}

/// Files that change when another commit is checked out.
fn heads(root: &Path) -> Vec<PathBuf> {
    let path = |name: &str| git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
    let mut heads: Vec<PathBuf> = path("HEAD").into_iter().collect();
    if let Some(branch) = git(root, &["symbolic-ref", "--quiet", "HEAD"]).and_then(|name| path(&name)) {
        // A packed branch has no file of its own; the next commit creates one in this directory.
        heads.push(if branch.exists() {
            branch
        } else {
            branch.parent().map_or(branch.clone(), Path::to_owned)
        });
    }
    // Cargo treats a missing file as changed on every build.
    heads.retain(|path| path.exists());
    heads
}

/// Extracts the commit from `{ "git": { "sha1": "…", "dirty": true }, … }` by hand, because the build script has no
/// JSON parser.
fn of_packed(info: &str) -> Option<String> {
    let (_, rest) = info.split_once("\"sha1\"")?;
    let commit: String = rest.split('"').nth(1)?.chars().take(12).collect();
    let is_hexadecimal = commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit());
    let is_dirty = info
        .split_once("\"dirty\"")
        .is_some_and(|(_, rest)| rest.trim_start_matches([':', ' ']).starts_with("true"));
    is_hexadecimal.then(|| if is_dirty { commit + DIRTY } else { commit })
}

/// The output of git, unless it fails or prints nothing.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
