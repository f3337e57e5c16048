//! Whether the system has killed processes for lack of memory, from a kernel counter read before and after. The control
//! group of this process has its own counter; otherwise that of the whole machine is used.

use std::fs;
use std::path::{Path, PathBuf};

const CGROUPS: &str = "/sys/fs/cgroup";

/// The kills so far; `None` if the kernel does not count them.
pub fn count() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| events_file(&text));
    let read = |path: &Path| fs::read_to_string(path).ok().and_then(|text| oom_kill(&text));
    own.and_then(|path| read(&path)).or_else(|| read(Path::new("/proc/vmstat")))
}

/// The counter file of the control group in `/proc/self/cgroup`; only version 2 has one.
fn events_file(cgroup: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new(CGROUPS).join(path).join("memory.events"))
}

/// The number after `oom_kill`, which both files write in the same way.
fn oom_kill(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")).and_then(|count| count.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_by_name() {
        let events = "low 0\nhigh 0\nmax 17\noom 2\noom_kill 3\noom_group_kill 0\n";
        assert_eq!(oom_kill(events), Some(3));
        assert_eq!(oom_kill("pgscan 5\n"), None);
    }

    #[test]
    fn only_the_second_version_of_control_groups_counts() {
        let file = events_file("0::/system.slice/redrive.service\n").unwrap();
        assert_eq!(file, Path::new("/sys/fs/cgroup/system.slice/redrive.service/memory.events"));
        assert_eq!(events_file("0::/\n").unwrap(), Path::new("/sys/fs/cgroup/memory.events"));
        assert_eq!(events_file("5:memory:/docker/abc\n"), None);
    }
}
