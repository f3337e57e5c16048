//! Who else reads the source topic of a pipeline.

use redrive_kafka::letters::other_groups;

use crate::args::Global;
use crate::config::Environment;
use crate::config::load::load_text;
use crate::exit::Failed;
use crate::output::Output;
use crate::service::assemble::engine_failed;
use crate::service::kafka;

/// The topic and the other groups, in the order of their names.
pub fn find(pipeline: &str, global: &Global, out: &mut Output) -> Result<(String, Vec<String>), Failed> {
    let config = load_text(global, &Environment::of_process())?.report(out)?;
    let found = kafka::pipelines(&config).into_iter().find(|one| one.name == pipeline);
    let Some(found) = found else {
        return Err(Failed::usage(format!("the configuration has no pipeline `{pipeline}`")));
    };
    let groups =
        other_groups(&kafka::cluster(&config)?, &found.source).map_err(|error| engine_failed(&error))?;
    Ok((found.source, groups))
}
