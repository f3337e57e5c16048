//! Raises the limit of open files. The usual soft limit of 1,024 exists for programs that use `select`; connections,
//! segments and calls to sinks need more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that is ever needed: 4,096 connections and as many calls, several stores, and some reserve.
const WANTED: u64 = 65_536;
/// With fewer than this, the number of connections is noticeably limited, and the operator is told.
const ENOUGH: u64 = 8_192;

/// Raises the soft limit as far as needed and allowed. Returns a warning for the operator, if any.
pub fn raise_limit() -> Option<String> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = wanted(limit);
    if wanted != limit.current {
        // If the limit cannot be raised, continue; it is logged below.
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

/// Computes the soft limit to set. Pure.
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
