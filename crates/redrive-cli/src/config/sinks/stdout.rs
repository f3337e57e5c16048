//! `[pipeline.sink.stdout]`: prints each message. It has only the settings of every pipeline.

use std::sync::Arc;
use std::time::Duration;

use redrive::Sink;
use redrive_sinks::{SinkFault, StdoutSink};

use super::super::declared::{Header, SettingTable};
use super::super::reader::{Section, SettingReader};
use super::common::{CONCURRENCY, TIMEOUT};
use super::kind::{ReachableAt, SinkKind, SinkParts, SinkRead, SinkSettings};

pub(super) const KIND: SinkKind = SinkKind { name: "stdout", tables: TABLES, read };

#[rustfmt::skip] // one line for each setting
const TABLES: &[SettingTable] = &[
    SettingTable {
        path: "pipeline.sink.stdout",
        header: Header::Example,
        about: "instead of [pipeline.sink.webhook]: prints each message as a line of JSON",
        settings: &[
            TIMEOUT,
            CONCURRENCY,
        ],
    },
];

/// Has no settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StdoutConfig;

fn read(reader: &mut SettingReader, section: &Section<'_>) -> SinkRead {
    reader.unknown_keys(section);
    SinkRead { settings: Arc::new(StdoutConfig), is_complete: true }
}

impl SinkSettings for StdoutConfig {
    fn check(&self, _timeout: Option<Duration>) -> Vec<SinkFault> {
        Vec::new()
    }

    fn build(&self, _parts: &SinkParts) -> Result<Arc<dyn Sink>, Vec<SinkFault>> {
        Ok(Arc::new(StdoutSink::new()))
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn reachable_at(&self) -> ReachableAt<'_> {
        ReachableAt::Nobody("messages are printed; nothing to check")
    }
}
