//! A small ext4 file system in a file: its power can be cut, and it can be full.
#![allow(dead_code)] // each test binary uses its own part

use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounted until it is dropped.
#[derive(Debug)]
pub(crate) struct Image {
    file: PathBuf,
    pub(crate) mount: PathBuf,
    mounted: bool,
}

impl Image {
    /// Creates and mounts an image. `Err` names what is missing on this machine; the test is skipped then.
    pub(crate) fn new(dir: &Path, mib: u64) -> Result<Self, String> {
        let (file, mount) = (dir.join("disk"), dir.join("mount"));
        std::fs::create_dir_all(&mount).map_err(|error| error.to_string())?;
        let image = std::fs::File::create(&file).and_then(|image| image.set_len(mib << 20));
        image.map_err(|error| error.to_string())?;
        // Without reserved blocks, free space is free for root too.
        let path = file.display().to_string();
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &path])
            .map_err(|error| format!("no ext4 image can be made (package `e2fsprogs`): {error}"))?;
        let mut image = Self { file, mount, mounted: false };
        image.mount().map_err(|error| format!("no loop mount (needs root and a loop device): {error}"))?;
        Ok(image)
    }

    fn mount(&mut self) -> Result<(), String> {
        let (file, mount) = (self.file.display().to_string(), self.mount.display().to_string());
        run("mount", &["-t", "ext4", "-o", "loop", &file, &mount])?;
        self.mounted = true;
        Ok(())
    }

    /// Cuts the power: data that was not synced is gone. `log` records when.
    pub(crate) fn cut(&self, log: &Path) -> Result<(), String> {
        let script = &*Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/power-cut");
        let paths = [script, &*self.mount, log].map(|path| path.display().to_string());
        run("perl", &[&paths[0], &paths[1], &paths[2]])
            .map_err(|error| format!("the power cannot be cut (needs root, `perl` and ext4): {error}"))
    }

    pub(crate) fn remount(&mut self) {
        self.unmount().expect("it can be unmounted once nobody uses it");
        self.mount().expect("ext4 recovers from a power cut");
    }

    fn unmount(&mut self) -> Result<(), String> {
        if self.mounted {
            run("umount", &[&self.mount.display().to_string()])?;
            self.mounted = false;
        }
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            // A file is still open; the mount goes away with it.
            let _ = run("umount", &["-l", &self.mount.display().to_string()]);
        }
    }
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
