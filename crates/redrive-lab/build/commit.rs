//! Which commit a program is built from. A part of `build.rs`, and of the tests of the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const UNKNOWN: &str = "unknown";
/// Written by `cargo package` into what it packs.
const PACKED: &str = ".cargo_vcs_info.json";
const DIRTY: &str = "-dirty";

pub struct BuiltFrom {
    /// With `-dirty` if what the program is made of is not what was committed.
    pub commit: String,
    /// Files and directories whose change may change the commit.
    pub watch: Vec<PathBuf>,
}

/// Of the package in `package`, a directory two levels below the root of its checkout, and of the paths `made_of` below that
/// root.
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
        // A branch that is packed has no file; the next commit makes one in this directory.
        heads.push(if branch.exists() {
            branch
        } else {
            branch.parent().map_or(branch.clone(), Path::to_owned)
        });
    }
    // What is not there counts as changed at every build.
    heads.retain(|path| path.exists());
    heads
}

/// `{ "git": { "sha1": "…", "dirty": true }, … }`, of which only these two matter; a build script has no parser for it.
fn of_packed(info: &str) -> Option<String> {
    let (_, rest) = info.split_once("\"sha1\"")?;
    let commit: String = rest.split('"').nth(1)?.chars().take(12).collect();
    let is_hexadecimal = commit.len() == 12 && commit.chars().all(|c| c.is_ascii_hexdigit());
    let is_dirty = info
        .split_once("\"dirty\"")
        .is_some_and(|(_, rest)| rest.trim_start_matches([':', ' ']).starts_with("true"));
    is_hexadecimal.then(|| if is_dirty { commit + DIRTY } else { commit })
}

/// What git prints, if it succeeds and prints anything.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(args).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
