//! `redrive config`: print, check or explain the configuration.

use crate::args::Global;
use crate::config::resolved::ResolvedTable;
use crate::config::sinks::KEYS;
use crate::config::{Config, ProcessorFlags, default, schema};
use crate::exit::{Exit, Failed};
use crate::output::Output;

#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub action: ConfigAction,
}

#[derive(Debug, clap::Subcommand)]
pub enum ConfigAction {
    /// Print every effective value; secrets are left out
    Show {
        /// Say behind each value where it came from: file and line, profile, variable, flag or default
        #[arg(long)]
        origin: bool,
    },
    /// Check the configuration and print every fault in one run
    Check,
    /// Print the commented default configuration, which is the reference of every key
    Default,
    /// Print a JSON Schema of the configuration, for editors and taplo
    Schema,
}

pub fn run(args: &ConfigArgs, global: &Global, out: &mut Output) -> Result<Exit, Failed> {
    match args.action {
        ConfigAction::Default => out.raw(default::text().as_bytes())?,
        ConfigAction::Schema => out.line(&format!("{:#}", schema::schema(&KEYS)))?,
        ConfigAction::Check => {
            let config = Config::load(global, &ProcessorFlags::default(), out)?;
            let count = config.pipelines.len();
            let name = config.source().map_or("the configuration", |source| source.name()).to_owned();
            if out.is_json() {
                out.json(&serde_json::json!({"errors": 0, "pipelines": count, "file": name}))?;
            } else {
                let pipelines = if count == 1 { "pipeline" } else { "pipelines" };
                out.line(&format!("✓ {name}: {count} {pipelines}, no errors"))?;
            }
        }
        ConfigAction::Show { origin } => {
            let config = Config::load(global, &ProcessorFlags::default(), out)?;
            let tables = config.resolved();
            if out.is_json() {
                let tables: Vec<_> = tables.iter().map(ResolvedTable::to_json).collect();
                out.json(&serde_json::json!({"tables": tables}))?;
            } else {
                for (i, table) in tables.iter().enumerate() {
                    if i > 0 {
                        out.line("")?;
                    }
                    for line in table.text(origin) {
                        out.line(&line)?;
                    }
                }
            }
        }
    }
    Ok(Exit::Ok)
}
