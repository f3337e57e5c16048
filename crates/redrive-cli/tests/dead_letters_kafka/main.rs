//! Operations on dead letters with the real program, where one broker serves several tests: the plan and the stop of a
//! replay, fairness between tenants, automatic replay of a group, decisions seen at another member, imports of each
//! framework, redaction, and the audit against PostgreSQL.

#[path = "../world/mod.rs"]
mod world;

#[cfg(feature = "kafka")]
mod auto_replay;
#[cfg(feature = "kafka")]
mod books;
#[cfg(feature = "kafka")]
mod dialects;
#[cfg(feature = "kafka")]
mod hidden;
#[cfg(feature = "kafka")]
mod keeping;
#[cfg(feature = "kafka")]
mod plan;
#[cfg(feature = "kafka")]
mod stop;
mod tenants;

/// The lines of a pipeline whose messages may all die: its keys, then tables.
fn lines(name: &str, keys: &str, tables: &str) -> String {
    format!(
        r#"name   = "{name}"
id     = "json:/order_id"
tiers  = ["100ms", "200ms", "300ms"]
jitter = "none"
{keys}
[pipeline.guard]
share  = "100%"          # all of them are to be dead
{tables}"#
    )
}

/// A member of the pipeline's group on Kafka.
#[cfg(feature = "kafka")]
fn member(
    dir: &std::path::Path,
    name: &str,
    pipeline: &str,
    lines: &str,
    url: &str,
) -> world::process::Processor {
    let engine = world::kafka::engine(&format!("{pipeline}-delivery"), name);
    world::process::Processor::start(dir, &world::config(&engine, lines, url))
}
