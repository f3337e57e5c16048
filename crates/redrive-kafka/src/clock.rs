//! Wall-clock time, for what people read and for comparison with earlier records; the engine is given its own time.

use std::time::{SystemTime, UNIX_EPOCH};

use redrive_core::Time;

pub(crate) fn wall_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(0))
}
