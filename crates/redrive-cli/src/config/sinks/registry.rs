//! Every sink there is: one line each. `pipeline` reads the one that a pipeline names, `service` builds it.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive::Sink;
use redrive::subscriptions::{Purge, Subscriptions};
use redrive_sinks::{Secret, SinkFault};

use super::super::alert::AlertTarget;
use super::super::keys::TableKeys;
use super::super::reader::{Reader, Section};
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

/// One kind of sink as the configuration knows it.
#[derive(Clone, Copy)]
pub struct SinkKind {
    /// The word in `[pipeline.sink.NAME]`.
    pub name: &'static str,
    /// Its table and those below it, with every key.
    pub tables: &'static [TableKeys],
    /// Tables below it whose keys are the user's own.
    pub open_tables: &'static [&'static str],
    pub(in super::super) read: fn(&mut Reader, &Section<'_>) -> SinkRead,
}

impl fmt::Debug for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkKind").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What was read of a sink's table.
pub(in super::super) struct SinkRead {
    pub(in super::super) settings: Arc<dyn SinkSettings>,
    /// Whether it says where messages go. If it does not, a place-holder does, so that the rest can be checked in the
    /// same run.
    pub(in super::super) is_complete: bool,
}

/// The settings of one sink. Plain data until [`Self::build`].
pub trait SinkSettings: Any + fmt::Debug + Send + Sync {
    /// All that is wrong and that the text alone does not show. Reads the files that are named, and connects to nothing.
    /// `timeout` is the pipeline's, where it is known.
    fn check(&self, timeout: Option<Duration>) -> Vec<SinkFault>;

    /// The sink, ready to be called.
    fn build(&self, parts: &SinkParts) -> Result<Arc<dyn Sink>, Vec<SinkFault>>;

    /// What it says about its table of subscriptions, if it has one.
    fn subscriptions(&self) -> Option<SubscriptionSettings<'_>> {
        None
    }

    /// Every value that holds, as TOML, without secrets.
    fn values(&self) -> Vec<(&'static str, String)>;

    /// Whom `redrive check` can ask whether anybody is there.
    fn reachable_at(&self) -> ReachableAt<'_>;
}

/// What a sink gets from the pipeline that it belongs to.
#[derive(Clone, Debug)]
pub struct SinkParts {
    /// The time limit of an attempt.
    pub timeout: Duration,
    /// For a sink with [`SinkSettings::subscriptions`].
    pub subscriptions: Option<SubscriptionParts>,
}

/// A table of subscriptions, and the key of the hashes in it.
#[derive(Clone, Debug)]
pub struct SubscriptionParts {
    pub table: Subscriptions,
    pub hash_key: Secret,
}

/// What the settings of a sink say about its table of subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionSettings<'a> {
    pub purge: Purge,
    pub hash_key_file: Option<&'a Path>,
    /// Who is told of purges.
    pub on_purged: Option<&'a AlertTarget>,
}

/// Whom to ask whether anybody is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachableAt<'a> {
    Url(&'a str),
    /// Nobody can be asked; why.
    Nobody(&'static str),
}

/// The sink of a pipeline.
#[derive(Clone)]
pub struct SinkConfig {
    pub kind: &'static str,
    pub settings: Arc<dyn SinkSettings>,
}

impl SinkConfig {
    /// The settings as those of one kind of sink.
    pub fn settings_of<T: SinkSettings>(&self) -> Option<&T> {
        let settings: &dyn Any = &*self.settings;
        settings.downcast_ref()
    }

    /// The header of its table.
    pub fn header(&self) -> String {
        format!("[pipeline.sink.{}]", self.kind)
    }
}

impl fmt::Debug for SinkConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

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
            assert!(sink.open_tables.iter().all(|path| below(path)), "{}", sink.name);
        }
    }
}
