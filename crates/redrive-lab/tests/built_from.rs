//! A result names the commit that its program was built from, not the one checked out where it runs.

#[path = "../build/commit.rs"]
mod commit;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use commit::{UNKNOWN, of};

fn git(root: &Path, args: &[&str]) -> String {
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").current_dir(root).args(who).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Creates a checkout with one commit and a package in it.
fn checkout(root: &Path) -> PathBuf {
    let package = root.join("crates/lab");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("main.rs"), "one").unwrap();
    fs::write(root.join("README.md"), "one").unwrap();
    git(root, &["init", "--quiet"]);
    git(root, &["add", "."]);
    git(root, &["commit", "--quiet", "-m", "one"]);
    package
}

const MADE_OF: [&str; 2] = ["crates/lab", "not/there"];

#[test]
fn the_commit_is_dirty_only_if_what_the_program_is_made_of_is() {
    let dir = tempfile::tempdir().unwrap();
    let package = checkout(dir.path());
    let head = git(dir.path(), &["rev-parse", "--short=12", "HEAD"]);
    assert_eq!(of(&package, &MADE_OF, None).commit, head);
    fs::write(dir.path().join("README.md"), "two").unwrap();
    assert_eq!(of(&package, &MADE_OF, None).commit, head, "no word of it is in the program");
    fs::write(package.join("main.rs"), "two").unwrap();
    assert_eq!(of(&package, &MADE_OF, None).commit, format!("{head}-dirty"));
    git(dir.path(), &["checkout", "--quiet", "."]);
    fs::write(package.join("new.rs"), "untracked").unwrap();
    assert_eq!(
        of(&package, &MADE_OF, None).commit,
        format!("{head}-dirty"),
        "a new file is built in as well"
    );
}

#[test]
fn what_is_watched_exists_and_changes_with_every_commit() {
    let dir = tempfile::tempdir().unwrap();
    let package = checkout(dir.path());
    let contents = || {
        let watch = of(&package, &MADE_OF, None).watch;
        assert!(
            watch.iter().all(|path| path.exists()),
            "a path that is not there builds every time: {watch:?}"
        );
        let files: Vec<PathBuf> = watch.into_iter().filter(|path| path.is_file()).collect();
        files.iter().map(|file| fs::read_to_string(file).unwrap()).collect::<Vec<_>>()
    };
    let before = contents();
    assert_eq!(before.len(), 2, "HEAD and the branch it names");
    git(dir.path(), &["commit", "--quiet", "--allow-empty", "-m", "two"]);
    assert_ne!(contents(), before);
    // For a packed branch, the directory is watched in which the next commit creates its file.
    git(dir.path(), &["pack-refs", "--all"]);
    let watch = of(&package, &MADE_OF, None).watch;
    assert!(watch.iter().any(|path| path.ends_with("refs/heads")), "{watch:?}");
    // A worktree has its own HEAD.
    let other = tempfile::tempdir().unwrap();
    git(dir.path(), &["worktree", "add", "--quiet", "--force", "--detach", &other.path().to_string_lossy()]);
    let own = of(&other.path().join("crates/lab"), &MADE_OF, None);
    assert_eq!(own.commit, git(dir.path(), &["rev-parse", "--short=12", "HEAD"]));
    assert!(own.watch.iter().any(|path| path.to_string_lossy().contains("worktrees")), "{:?}", own.watch);
}

#[test]
fn without_a_checkout_it_is_what_the_package_or_the_builder_says() {
    let dir = tempfile::tempdir().unwrap();
    let package = dir.path().join("redrive-lab-0.1.0");
    fs::create_dir_all(&package).unwrap();
    assert_eq!(of(&package, &MADE_OF, None).commit, UNKNOWN);
    assert_eq!(of(&package, &MADE_OF, Some("")).commit, UNKNOWN);
    assert_eq!(of(&package, &MADE_OF, Some("v1.2-3-g0123")).commit, "v1.2-3-g0123");
    let info = package.join(".cargo_vcs_info.json");
    let sha1 = "0123456789abcdef0123456789abcdef01234567";
    fs::write(
        &info,
        format!("{{\n \"git\": {{\n \"sha1\": \"{sha1}\"\n }},\n \"path_in_vcs\": \"crates/lab\"\n}}"),
    )
    .unwrap();
    assert_eq!(of(&package, &MADE_OF, None).commit, "0123456789ab");
    fs::write(&info, format!("{{\"git\": {{\"sha1\": \"{sha1}\", \"dirty\": true}}}}")).unwrap();
    assert_eq!(of(&package, &MADE_OF, None).commit, "0123456789ab-dirty");
    assert_eq!(of(&package, &MADE_OF, Some("named")).commit, "named", "whoever builds it has the last word");
}

/// A package that is unpacked inside another checkout does not have that checkout's commit.
#[test]
fn a_package_inside_of_another_checkout_does_not_take_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    checkout(dir.path());
    let deep = dir.path().join("target/package/redrive-lab-0.1.0");
    fs::create_dir_all(&deep).unwrap();
    assert_eq!(of(&deep, &MADE_OF, None).commit, UNKNOWN);
}
