//! Decides where a group without offsets begins. For a new pipeline, `start` says so. A pipeline that has run before
//! must have lost its offsets (Kafka drops those of a group that was empty for seven days): starting at the end would
//! skip messages, and starting at the beginning would repeat everything, so an operator has to decide.

use redrive::internal::engine::EngineError;

use crate::Cluster;
use crate::topics::Topics;
use crate::topics::scan::Scan;

/// The key in `T.progress` that is written when a pipeline first begins, so that it is known to have run even if
/// nothing ever failed.
pub(crate) const BEGUN: &str = "begun";

/// A pipeline that has run before, but whose group has no offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanBefore {
    group: String,
    source: String,
    bootstrap: String,
    /// A topic of the pipeline that has or had records.
    trace: String,
}

/// What to do after running the commands.
pub(crate) const SAY_WHERE: &str = "then start again (`start` counts for new pipelines only)";

impl RanBefore {
    pub fn problem(&self) -> String {
        let Self { group, source, trace, .. } = self;
        format!(
            "the group {group} has no offsets for {source}, but {trace} has been written to: the pipeline has run before, and \
             where it stopped is not known any more (Kafka drops the offsets of a group that was empty for 7 days; or `group` \
             was changed)"
        )
    }

    /// Commands that choose where it continues: at the beginning, at a time, at the end.
    pub fn commands(&self) -> [String; 3] {
        let Self { group, source, bootstrap, .. } = self;
        ["--to-earliest", "--to-datetime 2026-01-31T09:00:00.000", "--to-latest"].map(|to| {
            format!(
                "kafka-consumer-groups.sh --bootstrap-server {bootstrap} --group {group} --topic {source} \
                 --reset-offsets {to} --execute"
            )
        })
    }
}

impl std::fmt::Display for RanBefore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; choose where it continues:", self.problem())?;
        self.commands().iter().try_for_each(|command| write!(f, "\n  {command}"))
    }
}

impl From<RanBefore> for EngineError {
    fn from(ran: RanBefore) -> Self {
        Self::Directory { problem: ran.to_string(), fix: SAY_WHERE }
    }
}

/// Whether a pipeline has run before but its group has no offsets for the source.
pub fn ran_before(cluster: &Cluster, topics: &Topics) -> Result<Option<RanBefore>, EngineError> {
    let scan = Scan::new(cluster)?;
    let is_known = || -> Result<bool, EngineError> {
        Ok(scan.spans(&topics.source)?.iter().any(|span| span.committed.is_some()))
    };
    if is_known()? {
        return Ok(None);
    }
    let owned = topics.owned();
    let names = owned.iter().map(|(_, name)| *name).chain(topics.retired.iter().map(String::as_str));
    for name in names {
        // Deleting records does not lower the end offset.
        if scan.spans(name)?.iter().any(|span| span.end > 0) {
            // Another member may have begun in the meantime: it commits before it writes anything.
            let ran = RanBefore {
                group: cluster.group.clone(),
                source: topics.source.clone(),
                bootstrap: cluster.bootstrap().to_owned(),
                trace: name.to_owned(),
            };
            return Ok((!is_known()?).then_some(ran));
        }
    }
    Ok(None)
}
