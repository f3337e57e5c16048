//! A pipeline from flags alone: the same settings under the names of flags, through the same validator.

use std::path::PathBuf;

/// What `redrive processor` takes instead of a file, or over one.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "A pipeline from flags")]
pub struct ProcessorFlags {
    /// Where messages live: memory, embedded or kafka
    #[arg(long, value_name = "ENGINE")]
    pub engine: Option<String>,
    /// The directory of the embedded engine
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Kafka brokers
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub brokers: Vec<String>,
    /// Kafka consumer group
    #[arg(long)]
    pub group: Option<String>,
    /// Where a new Kafka group starts: earliest or latest
    #[arg(long)]
    pub start: Option<String>,
    /// The Kafka topic to consume
    #[arg(long, value_name = "TOPIC")]
    pub source: Option<String>,
    /// Address and port of the API
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The name of the pipeline; `default` unless given
    #[arg(long)]
    pub name: Option<String>,
    /// The webhook that gets the messages
    #[arg(long, value_name = "URL")]
    pub sink_url: Option<String>,
    /// A named set of settings; the other flags go over it
    #[arg(long)]
    pub profile: Option<String>,
    /// Where a message waits between attempts: blocking or non-blocking
    #[arg(long)]
    pub mode: Option<String>,
    /// How often a message is tried again after its first attempt
    #[arg(long, value_name = "RETRIES")]
    pub max_retries: Option<u32>,
    /// Delay steps, one per retry: 5s,30s,5m
    #[arg(long, value_name = "DELAYS", value_delimiter = ',')]
    pub tiers: Option<Vec<String>>,
    /// The first delay of an exponential backoff
    #[arg(long, value_name = "DELAY")]
    pub backoff_base: Option<String>,
    /// The longest delay of an exponential backoff
    #[arg(long, value_name = "DELAY")]
    pub backoff_cap: Option<String>,
    /// How delays are spread: none, full, equal, decorrelated, plus(50%), plus(1s) or around(10%)
    #[arg(long)]
    pub jitter: Option<String>,
    /// Whether permanent failures are dead-lettered at once: on or off
    #[arg(long, value_name = "ON|OFF")]
    pub classify: Option<String>,
    /// Whether messages of one key wait for each other: none or key
    #[arg(long)]
    pub ordering: Option<String>,
    /// How many attempts may run at once
    #[arg(long, value_name = "CALLS")]
    pub concurrency: Option<u32>,
    /// How long one attempt may take
    #[arg(long, value_name = "DURATION")]
    pub timeout: Option<String>,
    /// How long a message lives
    #[arg(long, value_name = "DURATION")]
    pub ttl: Option<String>,
}
