//! Finds stores in the engine's directory without a pipeline in the configuration: a pipeline was renamed or removed,
//! and its unfinished messages are still in the store.

use std::fs;
use std::path::Path;

use redrive::internal::engine::embedded::inspect;

use crate::config::PipelineConfig;
use crate::output::count;

/// A larger store is reported without counts: counting reads the whole store, and would delay the start.
const COUNT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// One line for each such store that is not empty.
pub fn look(dir: &Path, pipelines: &[PipelineConfig]) -> Vec<String> {
    // Failing to read a store here must not prevent the start: the served ones have been opened.
    let stores = inspect::pipelines(dir).unwrap_or_default();
    let orphans = stores.into_iter().filter(|name| pipelines.iter().all(|pipeline| pipeline.name != *name));
    orphans.filter_map(|name| finding(dir, &name)).collect()
}

fn finding(dir: &Path, store: &str) -> Option<String> {
    let what_to_do = "add a pipeline of that name, or see `redrive journal`";
    let small = bytes(&dir.join(store).join("journal")) <= COUNT_BYTES_MAX;
    let Some(found) = small.then(|| inspect::inspect(dir, store, &mut |_| {}).ok()).flatten() else {
        return Some(format!("store `{store}` has no pipeline; {what_to_do}"));
    };
    let open = found.letters.get("open").copied().unwrap_or(0);
    let counted = [(found.pending, "pending message"), (open, "open dead letter")];
    let holds: Vec<String> = counted
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" }))
        .collect();
    (!holds.is_empty())
        .then(|| format!("store `{store}` has {} and no pipeline; {what_to_do}", holds.join(", ")))
}

fn bytes(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|metadata| metadata.len()).sum()
}
