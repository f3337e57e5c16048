//! Which part of a log's end a crash may have torn, and which damage is rot. Used for opening and for inspecting a
//! store.
//!
//! - *Durable* is the highest position that intact data proves to be synced: a batch header records it, and a segment
//!   exists only after everything before it was synced.
//! - A bad frame in the last segment that reaches beyond that may be a write torn by a crash. It was never
//!   acknowledged, and pages reach the disk in any order: the log is truncated there.
//! - A bad frame below that is rot. It is reported and stays, as does everything around it.

use super::frame::Rot;

/// How far the log is durable, according to its last segment.
///
/// `said` is the highest position in a batch header, `known_end` the one in the watermark.
pub(crate) fn durable(said: u64, base: u64, end: u64, known_end: u64) -> u64 {
    said.max(base).max(known_end.min(end))
}

/// The first torn range among the damaged ranges of the last segment, and the position at which the log is truncated;
/// `None` if nothing is torn.
pub(crate) fn torn<'a>(bad: impl IntoIterator<Item = &'a Rot>, durable: u64) -> Option<(usize, u64)> {
    let torn = bad.into_iter().enumerate().find(|(_, rot)| rot.position + rot.len > durable);
    torn.map(|(at, rot)| (at, rot.position.max(durable)))
}

/// The part of a damaged range that was durable, which is rot.
pub(crate) fn rot_of(bad: Rot, durable: u64) -> Option<Rot> {
    let len = bad.len.min(durable.saturating_sub(bad.position));
    (len > 0).then_some(Rot { len, ..bad })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(position: u64, len: u64) -> Rot {
        Rot { position, len, header: None }
    }

    #[test]
    fn what_reaches_beyond_the_durable_part_is_torn_with_everything_behind_it() {
        let all = [bad(10, 5), bad(40, 8), bad(60, 1)];
        assert_eq!(torn(&all, 100), None, "all of it was durable");
        assert_eq!(torn(&all, 48), Some((2, 60)));
        assert_eq!(torn(&all, 44), Some((1, 44)), "what was durable stays");
        assert_eq!(torn(&all, 0), Some((0, 10)));
    }

    #[test]
    fn only_what_was_durable_is_rot() {
        assert_eq!(rot_of(bad(40, 8), 100), Some(bad(40, 8)));
        assert_eq!(rot_of(bad(40, 8), 44), Some(bad(40, 4)));
        assert_eq!(rot_of(bad(40, 8), 40), None);
    }

    #[test]
    fn a_segment_proves_what_is_before_it_and_the_watermark_only_what_is_there() {
        assert_eq!(durable(0, 30, 90, 0), 30);
        assert_eq!(durable(50, 30, 90, 70), 70);
        assert_eq!(durable(50, 30, 90, 1_000), 90);
    }
}
