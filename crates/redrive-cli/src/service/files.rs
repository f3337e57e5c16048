//! Raises the limit of open files. The usual soft limit of 1,024 exists for programs that use `select`; connections,
//! segments and calls to sinks together need more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as are ever needed: 4,096 connections and as many calls, several stores, and some.
const WANTED: u64 = 65_536;
/// With fewer than this the number of connections is cut down noticeably, and an operator should know.
const ENOUGH: u64 = 8_192;

/// Raises the soft limit as far as is needed and allowed. Returns what an operator should know.
pub fn raise_limit() -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = wanted(limit);
    if wanted != limit.current {
        // A limit that cannot be raised is one to live with, and is logged below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: limit.maximum });
    }
    let holds = getrlimit(Resource::Nofile).current?;
    (holds < ENOUGH).then(|| {
        format!(
            "only {holds} files may be open, so at most {} connections; raise the hard limit (LimitNOFILE=)",
            holds / 2
        )
    })
}

/// The soft limit to set. Pure.
fn wanted(limit: Rlimit) -> Option<u64> {
    let possible = limit.maximum.unwrap_or(u64::MAX).min(WANTED);
    limit.current.map(|current| current.max(possible))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_as_far_as_needed_and_allowed_and_never_lowered() {
        let wanted = |current, maximum| wanted(Rlimit { current, maximum });
        assert_eq!(wanted(Some(1_024), Some(1_048_576)), Some(65_536));
        assert_eq!(wanted(Some(1_024), Some(4_096)), Some(4_096));
        assert_eq!(wanted(Some(1_024), None), Some(65_536));
        assert_eq!(wanted(Some(500_000), Some(1_048_576)), Some(500_000));
        assert_eq!(wanted(None, None), None);
    }
}
