//! Makes sure that the topics of a pipeline exist and meet their requirements.

use std::thread;
use std::time::{Duration, Instant};

use super::fault::{TopicsFault, Wrong};
use super::names::Topics;
use super::survey::{self, Survey, survey};
use crate::{Cluster, KafkaPipeline, TopicsMode};

/// How long it may take until every broker knows new topics.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Makes sure that all topics of a pipeline exist and meet their requirements. With [`TopicsMode::Create`], missing
/// topics are created and those with too few partitions extended; nothing else is ever changed.
pub fn prepare(cluster: &Cluster, pipeline: &KafkaPipeline, mode: TopicsMode) -> Result<Topics, TopicsFault> {
    complete(cluster, pipeline, mode, survey(cluster, pipeline)?)
}

/// Like [`prepare`], for a pipeline with ordered keys. It fails if the source has another number of partitions than its
/// tiers, whatever the mode: keys have moved then, and only an operator can decide that their order does not matter.
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
