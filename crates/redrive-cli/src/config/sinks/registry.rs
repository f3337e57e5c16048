//! Every sink, one line each. `pipeline` reads the one that a pipeline names, `service` builds it.

use std::sync::LazyLock;

use super::super::keys::Keys;
use super::kind::SinkKind;
use super::{apns, fcm, stdout, webhook, webpush};

/// A new sink is a module here and a line in this list.
pub const SINKS: [SinkKind; 5] = [webhook::KIND, stdout::KIND, webpush::KIND, apns::KIND, fcm::KIND];

/// The sinks by name, for `[pipeline.sink]`.
pub(in super::super) const NAMES: [&str; SINKS.len()] = {
    let mut names = [""; SINKS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = SINKS[at].name;
        at += 1;
    }
    names
};

/// Every key, including those of the sinks.
pub static KEYS: LazyLock<Keys> =
    LazyLock::new(|| Keys::with_sinks(SINKS.iter().flat_map(|sink| sink.tables.iter().copied())));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sink_has_a_table_of_its_own_name() {
        for sink in SINKS {
            let own = format!("pipeline.sink.{}", sink.name);
            assert_eq!(sink.tables[0].path, own);
            let below = |path: &str| path == own || path.starts_with(&format!("{own}."));
            assert!(sink.tables.iter().all(|table| below(table.path)), "{}", sink.name);
        }
    }
}
