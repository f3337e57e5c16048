//! Makes sure that the topics of a pipeline exist and are as they must be.

use std::thread;
use std::time::{Duration, Instant};

use super::fault::{TopicsFault, Wrong};
use super::names::Topics;
use super::survey::{self, Survey, survey};
use crate::{Cluster, KafkaPipeline, TopicsMode};

/// How long new topics may take until every broker knows them.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Makes sure that all topics of a pipeline are there and as they must be. With [`TopicsMode::Create`] missing ones are
/// made and such with too few partitions extended; nothing else is ever changed.
pub fn prepare(cluster: &Cluster, pipeline: &KafkaPipeline, mode: TopicsMode) -> Result<Topics, TopicsFault> {
    complete(cluster, pipeline, mode, survey(cluster, pipeline)?)
}

/// Like [`prepare`], for a pipeline with ordered keys: it is refused if its source has other partitions than its tiers,
/// whether topics may be made or not. Keys have moved then, and only a person can say that their order does not matter.
pub fn prepare_ordered(
    cluster: &Cluster,
    pipeline: &KafkaPipeline,
    mode: TopicsMode,
) -> Result<Topics, TopicsFault> {
    let mut found = survey(cluster, pipeline)?;
    match found.uneven.take() {
        None => complete(cluster, pipeline, mode, found),
        Some(uneven) => Err(TopicsFault::Uneven(uneven)),
    }
}

fn complete(
    cluster: &Cluster,
    pipeline: &KafkaPipeline,
    mode: TopicsMode,
    mut found: Survey,
) -> Result<Topics, TopicsFault> {
    if mode == TopicsMode::Create
        && found.hidden.is_empty()
        && (!found.missing.is_empty() || found.wrong.iter().any(Wrong::is_growth))
    {
        survey::make(cluster, &found)?;
        // Brokers learn of new topics one after the other, and any of them may answer.
        let until = Instant::now() + VISIBLE_WITHIN;
        loop {
            found = survey(cluster, pipeline)?;
            let is_visible = found.missing.is_empty() && !found.wrong.iter().any(Wrong::is_growth);
            if is_visible || !found.hidden.is_empty() || Instant::now() > until {
                break;
            }
            thread::sleep(ASK_AGAIN_AFTER);
        }
    }
    let bootstrap = cluster.bootstrap().to_owned();
    if !found.hidden.is_empty() {
        return Err(TopicsFault::Hidden { topics: found.hidden });
    }
    if !found.missing.is_empty() {
        return Err(TopicsFault::Missing { missing: found.missing, bootstrap });
    }
    if !found.wrong.is_empty() {
        return Err(TopicsFault::Wrong { wrong: found.wrong, bootstrap });
    }
    for warning in &found.warnings {
        tracing::warn!(pipeline = %pipeline.name, "{warning}");
    }
    Ok(found.topics)
}
