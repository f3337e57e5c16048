//! A sink in the configuration: its name, its tables, how they are read, and the result.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive::Sink;
use redrive::internal::subscriptions::{Purge, Subscriptions};
use redrive_sinks::{Secret, SinkFault};

use super::super::alert::target::AlertTarget;
use super::super::declared::SettingTable;
use super::super::reader::{Section, SettingReader};

/// One kind of sink in the configuration.
#[derive(Clone, Copy)]
pub struct SinkKind {
    /// The name in `[pipeline.sink.NAME]`.
    pub name: &'static str,
    /// Its table and subtables, with every setting.
    pub tables: &'static [SettingTable],
    pub(in super::super) read: fn(&mut SettingReader, &Section<'_>) -> SinkRead,
}

impl fmt::Debug for SinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkKind").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The result of reading a sink's table.
pub(in super::super) struct SinkRead {
    pub(in super::super) settings: Arc<dyn SinkSettings>,
    /// Whether it sets the destination of messages. If not, a placeholder is used, so that the rest can be checked in
    /// the same run.
    pub(in super::super) is_complete: bool,
}

/// The settings of one sink. Plain data until [`Self::build`].
pub trait SinkSettings: Any + fmt::Debug + Send + Sync {
    /// All faults that the text alone does not show. Reads the named files, and connects to nothing. `timeout` is the
    /// pipeline's, if known.
    fn check(&self, timeout: Option<Duration>) -> Vec<SinkFault>;

    /// Builds the sink, ready to be called.
    fn build(&self, parts: &SinkParts) -> Result<Arc<dyn Sink>, Vec<SinkFault>>;

    /// The settings of its table of subscriptions, if it has one.
    fn subscriptions(&self) -> Option<SubscriptionSettings<'_>> {
        None
    }

    /// Where a message carries its receiver, if the sink's messages do: default rules of `redact` for pipelines that
    /// set none.
    fn receivers(&self) -> &'static [&'static str] {
        &[]
    }

    /// All effective values, as TOML, without secrets.
    fn values(&self) -> Vec<(&'static str, String)>;

    /// What `redrive check` can call to test whether the receiver is reachable.
    fn reachable_at(&self) -> ReachableAt<'_>;
}

/// What a sink gets from its pipeline.
#[derive(Clone, Debug)]
pub struct SinkParts {
    /// The time limit of an attempt.
    pub timeout: Duration,
    /// Members of a JSON payload that the pipeline reads, for sinks that define their own message format.
    pub other_members: Vec<String>,
    /// The key of endpoint hashes, if the settings name none.
    pub hash_key: Option<Secret>,
    /// The table, for a sink with [`SinkSettings::subscriptions`].
    pub subscriptions: Option<Subscriptions>,
}

/// The settings of a sink's table of subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionSettings<'a> {
    pub purge: Purge,
    /// Whether they name the key of its hashes.
    pub has_hash_key: bool,
    /// Whom to notify of purges.
    pub on_purged: Option<&'a AlertTarget>,
}

/// What to call to test whether the receiver is reachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReachableAt<'a> {
    Url(&'a str),
    /// Nothing can be called, and why.
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
