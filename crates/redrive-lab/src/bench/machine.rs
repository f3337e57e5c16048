//! The machine and the process, as reported by the kernel.

use std::fs;
use std::path::Path;
use std::process::Command;

const UNKNOWN: &str = "unknown";

/// The environment to report next to every figure.
pub fn describe(dir: &Path) -> Vec<(&'static str, String)> {
    let cpu = first_field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory_kb: u64 = first_field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let mut known = vec![
        ("cores", cores.to_string()),
        ("cpu", cpu),
        ("memory", format!("{:.1} GB", memory_kb as f64 / 1e6)),
        ("kernel", one_line("uname", &["-sr"])),
        ("file system", file_system(dir)),
        ("commit", BUILT_FROM.to_owned()),
        ("load at start", load()),
    ];
    known.extend(other_checkout().map(|commit| ("checked out", commit)));
    known
}

pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// The commit that the program was built from, with `-dirty` if its sources differed from the commit.
pub const BUILT_FROM: &str = env!("REDRIVE_BUILT_FROM");

/// The commit of the current checkout, if the program was built from a different one.
pub fn other_checkout() -> Option<String> {
    other(BUILT_FROM, &one_line("git", &["describe", "--always", "--dirty", "--abbrev=12"]))
}

/// Ignores `-dirty`: the uncommitted changes may be results.
fn other(built_from: &str, here: &str) -> Option<String> {
    let commit = |text: &str| text.trim_end_matches("-dirty").to_owned();
    (here != UNKNOWN && commit(here) != commit(built_from)).then(|| here.to_owned())
}

/// The output of a program, or [`UNKNOWN`] if it fails or prints nothing.
fn one_line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().ok().filter(|out| out.status.success());
    let line = output.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    line.filter(|line| !line.is_empty()).unwrap_or_else(|| UNKNOWN.to_owned())
}

fn first_field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The type of the file system that holds `dir`.
fn file_system(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let above = fields.filter(|mount| mount.len() > 3 && dir.starts_with(mount[1]));
    above
        .max_by_key(|mount| mount[1].len())
        .map_or("unknown".into(), |mount| format!("{} ({})", mount[2], mount[3]))
}

/// Resident memory of the process, in MB.
pub fn rss_mb() -> f64 {
    status_kb("VmRSS") / 1000.0
}

/// Peak resident memory of the process, in MB.
pub fn rss_peak_mb() -> f64 {
    status_kb("VmHWM") / 1000.0
}

fn status_kb(name: &str) -> f64 {
    let field = first_field("/proc/self/status", name);
    field.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Processor time the process has used, in seconds.
pub fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |index: usize| after_name.split_whitespace().nth(index)?.parse::<f64>().ok();
    // Linux reports these in units of 1/100 s on all architectures.
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

/// Total size of all files below a directory, in bytes.
pub fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => disk_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_is_unknown_and_not_empty() {
        assert_eq!(one_line("git", &["no-such-command"]), UNKNOWN);
        assert_eq!(one_line("no-such-program", &[]), UNKNOWN);
        assert_eq!(one_line("echo", &["a"]), "a");
    }

    #[test]
    fn the_commit_is_the_one_it_was_built_from_and_another_checkout_is_named() {
        let described = describe(Path::new("."));
        let named =
            |wanted: &str| described.iter().find(|(name, _)| *name == wanted).map(|(_, text)| text.as_str());
        assert_eq!(named("commit"), Some(BUILT_FROM));
        assert_eq!(other("0123456789ab-dirty", "0123456789ab"), None);
        assert_eq!(other("0123456789ab", "0123456789ab-dirty"), None, "results that are not committed yet");
        assert_eq!(other("0123456789ab", UNKNOWN), None);
        assert_eq!(other("0123456789ab", "ba9876543210"), Some("ba9876543210".to_owned()));
    }
}
